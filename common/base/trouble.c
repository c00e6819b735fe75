// SPDX-License-Identifier: Apache-2.0
/* trouble.c - rows by name, and when the log has them. */
#include "common/base/trouble.h"

#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

static struct trouble_row *find(struct trouble *t, const char *peer)
{
	size_t len = strnlen(peer, sizeof(t->row[0].peer) - 1);

	for (uint32_t i = 0; i < TROUBLE_ROWS; i++)
		if (peer[0] && !strncmp(t->row[i].peer, peer, len) && !t->row[i].peer[len])
			return &t->row[i];
	return NULL;
}

/* A free row, or that of the peer whose trouble has been over for longest; NULL: all are open. */
static struct trouble_row *make(struct trouble *t, const char *peer)
{
	struct trouble_row *r = NULL;

	for (uint32_t i = 0; i < TROUBLE_ROWS; i++) {
		struct trouble_row *k = &t->row[i];

		if (!k->open && (!r || (r->peer[0] && (!k->peer[0] || k->told < r->told))))
			r = k;
	}
	if (!r || !peer[0])
		return NULL;
	*r = (struct trouble_row){ 0 };
	snprintf(r->peer, sizeof(r->peer), "%s", peer);
	return r;
}

/* A cause that says nothing comes after a better one: whoever heard that keeps it. */
static void learn(struct trouble_row *r, enum cause c, const char *text, mono_t now)
{
	if (!r->open)
		r->since = now;
	if (r->open && !cause_is_vague(r->cause) && cause_is_vague(c))
		return;
	r->cause = c;
	snprintf(r->text, sizeof(r->text), "%s", text);
	utf8_mend(r->text);
}

uint32_t trouble_note(struct trouble *t, const char *peer, enum cause c, const char *text,
		      mono_t now)
{
	struct trouble_row *r = find(t, peer);
	uint32_t times;

	r = r ? r : make(t, peer);
	if (!r)
		return 1;
	learn(r, c, text, now);
	r->open = true;
	times = ++r->times;
	if (r->told && now - r->told < mono_ms(TROUBLE_LOG_MS) &&
	    (!r->vague_told || cause_is_vague(c)))
		return 0;
	if (!r->told || now - r->told >= mono_ms(TROUBLE_LOG_MS))
		r->told = now;
	r->vague_told = cause_is_vague(c);
	r->times = 0;
	return times;
}

bool trouble_over(struct trouble *t, const char *peer)
{
	struct trouble_row *r = find(t, peer);
	bool said = r && r->open && r->told && !r->times;

	if (r)
		r->open = false;
	return said;
}

void trouble_forget(struct trouble *t, const char *peer)
{
	struct trouble_row *r = find(t, peer);

	if (r)
		r->open = false;
}

const struct trouble_row *trouble_of(const struct trouble *t, const char *peer)
{
	const struct trouble_row *r = find((struct trouble *)(uintptr_t)t, peer);

	return r && r->open ? r : NULL;
}

const struct trouble_row *trouble_first(const struct trouble *t)
{
	const struct trouble_row *best = NULL;

	for (uint32_t i = 0; i < TROUBLE_ROWS; i++) {
		const struct trouble_row *r = &t->row[i];
		bool vague = cause_is_vague(r->cause);

		if (!r->open || r->cause == CAUSE_NONE)
			continue;
		if (!best || (cause_is_vague(best->cause) && !vague) ||
		    (cause_is_vague(best->cause) == vague && r->since < best->since))
			best = r;
	}
	return best;
}
