// SPDX-License-Identifier: Apache-2.0
/*
 * The story of a round that does not end: whose fault it is.
 *
 * What was pushed is asked after (PROBE).  A server that has it says HELD and who is
 * missing; one that says nothing is itself what the round waits for, as is one that
 * asks for what was pushed and gets it no more than before (a path that only small frames
 * come through), and one that there is no link to, or only links that come up, carry nothing
 * and are lost again (a path that loses large packets).  What finds no room in a window waits
 * for whatever fills the window.  A segment that is merely in the queue of a slow card
 * waits for nobody.
 */
#include "worker-agent/agent_core.h"

#define ANSWER_MS 100u		/* a server that lives has answered a PROBE by then */

/* Nothing is heard from it, or that it still has not what was pushed. */
static bool unanswered(const struct ag_seg *s, mono_t now)
{
	return s->lost || s->unheard > 1 || MUTATE(40) ||
	       (s->unheard && now - s->heard >= mono_ms(ANSWER_MS));
}

static bool is_reached(const struct ag_peer *p)
{
	return p->up && !p->doubtful;
}

static void wait_for_server(const struct ag_peer *p, struct msg_wait *w)
{
	w->kind = is_reached(p) ? WAIT_SERVER : WAIT_LINK;
	w->who = p->node;
}

/* Of one that has been pushed. */
static bool under_way(const struct ag_seg *s, mono_t now, struct msg_wait *w)
{
	const struct ag_peer *p = s->route->peer;

	if (!is_reached(p) || unanswered(s, now)) {
		wait_for_server(p, w);
	} else if (s->missing != UINT32_MAX && s->missing != s->tensor->job->me) {
		w->kind = WAIT_MACHINE;
		w->who = s->missing;
	} else {
		return false;
	}
	return true;
}

static bool queued(const struct ag_seg *s, mono_t now, struct msg_wait *w)
{
	const struct ag_route *r = s->route;

	if (r->peer && (!is_reached(r->peer) || s->lost)) {
		wait_for_server(r->peer, w);
		return true;
	}
	if (!r->peer || !r->full)
		return false;
	list_for_each(&r->inflight, l) {
		if (under_way(list_entry(l, struct ag_seg, link), now, w))
			return true;
	}
	return false;
}

static bool waits(const struct ag_seg *s, mono_t now, struct msg_wait *w)
{
	if (s->state == SEG_READY)
		return queued(s, now, w);
	return (s->state == SEG_PUSHED || s->state == SEG_CANCELLING) && under_way(s, now, w);
}

static struct msg_wait *row_of(struct msg_wait *row, uint32_t n, const struct msg_wait *w)
{
	for (uint32_t i = 0; i < n; i++)
		if (row[i].kind == w->kind && row[i].who == w->who)
			return &row[i];
	return NULL;
}

uint32_t ag_waits_for(const struct ag_tensor *t, mono_t now, struct msg_wait *row, uint32_t max)
{
	uint32_t n = 0, counted = AG_NO_SEG;	/* counted: the chunk that was last */

	for (uint32_t k = 0; t->running && k < t->nsegs; k++) {
		const struct ag_seg *s = &t->seg[k];
		struct msg_wait w = {
			.tensor = t->id, .round = t->round, .chunk = s->chunk, .chunks = 1,
			.age_ms = (uint64_t)((now - t->since) / NS_PER_MS),
		}, *same;

		if (!waits(s, now, &w))
			continue;
		same = row_of(row, n, &w);
		if (same)
			same->chunks += s->chunk != counted;
		else if (n < max)
			row[n++] = w;
		counted = s->chunk;
	}
	return n;
}

/*
 * Adds the servers without a link that chunks do not wait for just now, so that chunks are not
 * given to one of these for want of a link to another.
 */
uint32_t ag_waits_elsewhere(const struct ag_job *j, struct msg_wait *row, uint32_t n,
			    uint32_t max)
{
	struct msg_wait w = { .kind = WAIT_NONE };

	for (uint32_t i = 0; i < n && !w.kind; i++)
		if (row[i].kind == WAIT_LINK)
			w = row[i];
	w.chunk = w.chunks = 0;
	for (uint32_t i = 0; w.kind && i < j->nroutes; i++) {
		const struct ag_peer *p = j->route[i] ? j->route[i]->peer : NULL;

		w.who = p ? p->node : 0;
		if (p && !is_reached(p) && !row_of(row, n, &w))
			row[n < max ? n++ : max - 1] = w;
	}
	return n;
}

bool ag_reaches_any(const struct ag_job *j)
{
	for (uint32_t i = 0; i < j->nroutes; i++)
		if (j->route[i] && j->route[i]->peer && is_reached(j->route[i]->peer))
			return true;
	return false;
}
