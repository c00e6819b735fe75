// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sched_dispute.h"

#include <stdio.h>
#include <string.h>

static struct dispute *find(struct disputes *all, const char *name, uint32_t uid)
{
	for (uint32_t i = 0; i < DISPUTES_MAX; i++)
		if (all->row[i].uid == uid && !strcmp(all->row[i].name, name))
			return &all->row[i];
	return NULL;
}

struct dispute *dispute_new(struct disputes *all, const char *name, uint32_t uid,
			    const struct err *why, mono_t now)
{
	struct dispute *d = find(all, name, uid);

	d = d ? d : &all->row[all->n++ % DISPUTES_MAX];
	*d = (struct dispute){ .uid = uid, .until = now + mono_ms(DISPUTE_MS), .why = *why };
	snprintf(d->name, sizeof(d->name), "%s", name);
	return d;
}

void dispute_heard(struct dispute *d, uint32_t world, uint32_t rank)
{
	d->world = MAX(d->world, world);
	bits_set(d->heard, rank);
}

static bool all_heard(const struct dispute *d)
{
	for (uint32_t r = 0; r < d->world; r++)
		if (!bits_test(d->heard, r))
			return false;
	return true;
}

const struct err *dispute_of(struct disputes *all, const char *name, uint32_t uid,
			     uint32_t world, uint32_t rank, mono_t now)
{
	struct dispute *d = find(all, name, uid);

	if (!d)
		return NULL;
	if (now >= d->until || all_heard(d) || bits_test(d->heard, rank)) {
		d->name[0] = '\0';
		return NULL;
	}
	dispute_heard(d, world, rank);
	return &d->why;
}
