// SPDX-License-Identifier: Apache-2.0
/*
 * sched_text.c - texts that name who is missing, cut to fit rather than failing.
 */
#include "scheduler/sched.h"

#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

#define LISTED_MAX	8u	/* names in one list before "and N more" */

void text_init(struct text *t, char *buf, size_t size)
{
	ASSERT(size > 0);
	*t = (struct text){ .buf = buf, .size = size };
	buf[0] = '\0';
}

void text_add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->buf + t->used, t->size - t->used, fmt, ap);
	va_end(ap);
	if (n <= 0)
		return;
	utf8_mend(t->buf + t->used);	/* a name, or all of it, was cut */
	t->used += strlen(t->buf + t->used);
}

/* Writes one list of ranks: counted first, so that "rank" or "ranks" can be chosen. */
static uint32_t ranks(struct text *t, const struct sched_job *j,
		      bool (*missing)(const struct sched_job *, const uint64_t *, uint32_t),
		      const uint64_t *set)
{
	uint32_t total = 0, listed = 0;

	for (uint32_t r = 0; r < j->world; r++)
		total += missing(j, set, r);
	if (total)
		text_add(t, "%s", total == 1 ? "rank " : "ranks ");
	for (uint32_t r = 0; r < j->world && listed < MIN(total, LISTED_MAX); r++) {
		if (!missing(j, set, r))
			continue;
		text_add(t, "%s%u", listed++ ? ", " : "", r);
		if (j->ranks[r].node)
			text_add(t, " (machine %.64s)", j->ranks[r].node->name);
	}
	if (total > LISTED_MAX)
		text_add(t, " and %u more", total - LISTED_MAX);
	return total;
}

/*
 * Whether a rank was there, as far as this goes, and has not waited for those that are missing.
 */
static bool gave_up(const struct sched_job *j, uint32_t r)
{
	return j->ranks[r].gave_up == j->done + 1;
}

static bool not_set(const struct sched_job *j, const uint64_t *set, uint32_t r)
{
	return !bits_test(set, r) && j->ranks[r].state != SR_LOST &&
	       !(set == j->barrier && grow_joins(j, r));	/* is not waited for there */
}

static bool never_set(const struct sched_job *j, const uint64_t *set, uint32_t r)
{
	return not_set(j, set, r) && !gave_up(j, r);
}

static bool not_joined(const struct sched_job *j, const uint64_t *set, uint32_t r)
{
	(void)set;
	return j->ranks[r].state == SR_NONE;
}

static bool never_joined(const struct sched_job *j, const uint64_t *set, uint32_t r)
{
	return not_joined(j, set, r) && !gave_up(j, r);
}

uint32_t text_missing(struct text *t, const struct sched_job *j, const uint64_t *set)
{
	uint32_t n = ranks(t, j, never_set, set);

	return n ? n : ranks(t, j, not_set, set);
}

uint32_t text_not_joined(struct text *t, const struct sched_job *j)
{
	uint32_t n = ranks(t, j, never_joined, NULL);

	return n ? n : ranks(t, j, not_joined, NULL);
}

static bool still_in(const struct sched_job *j, const uint64_t *set, uint32_t r)
{
	(void)set;
	return j->ranks[r].state == SR_IN;
}

uint32_t text_not_left(struct text *t, const struct sched_job *j)
{
	return ranks(t, j, still_in, NULL);
}

static bool is_at(const struct sched_job *j, const uint64_t *machine, uint32_t r)
{
	return j->ranks[r].machine == *machine;
}

uint32_t text_ranks_of(struct text *t, const struct sched_job *j, uint32_t machine)
{
	return ranks(t, j, is_at, &(uint64_t){ machine });
}

static bool has_rank(const struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].node == n)
			return true;
	return false;
}

void text_elsewhere(const struct sched *s, struct text *t, const struct sched_job *j)
{
	char names[LISTED_MAX * 24] = "";
	struct text list;
	uint32_t n = 0;

	text_init(&list, names, sizeof(names));
	for (uint32_t i = 0; i < s->nnodes; i++) {
		const struct sched_node *a = s->nodes[i];

		if (a->kind != NODE_AGENT || a->state != SN_UP)
			continue;
		if (!has_rank(j, a))
			return;
		if (n++ < LISTED_MAX)
			text_add(&list, "%s%.20s", n > 1 ? ", " : "", a->name);
	}
	text_add(t, "; %u agent%s registered with this scheduler, %s%s, and %s ranks of it: do all "
		 "machines have the same --scheduler?", n, n == 1 ? " is" : "s are", names,
		 n > LISTED_MAX ? ", ..." : "", n == 1 ? "has" : "all have");
}

uint32_t text_not_ready(struct text *t, const struct sched_job *j)
{
	uint32_t total = 0;

	for (uint32_t i = 0; i < j->nservers; i++) {
		if (j->servers[i].ready)
			continue;
		if (total++ < LISTED_MAX)
			text_add(t, "%s%s", total > 1 ? ", " : "server ", j->servers[i].name);
	}
	if (total > LISTED_MAX)
		text_add(t, " and %u more", total - LISTED_MAX);
	return total;
}

bool text_blame(struct text *t, const char *before, const struct sched_node *n)
{
	if (n)
		text_add(t, "%s%s %.64s: %s", before, n->kind == NODE_AGENT ? "agent" : "server",
			 n->name, n->note);
	return n;
}

void text_shape(struct text *t, uint32_t dtype, const uint64_t *dims, uint32_t ndims,
		uint64_t count)
{
	text_add(t, "%s[", dtype_name((uint8_t)dtype));
	for (uint32_t i = 0; i < ndims; i++)
		text_add(t, "%s%llu", i ? "," : "", (unsigned long long)dims[i]);
	if (!ndims)
		text_add(t, "%llu", (unsigned long long)count);
	text_add(t, "]");
}
