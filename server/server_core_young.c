// SPDX-License-Identifier: Apache-2.0
/*
 * The story of a segment that came from another server (server_core.h: young).
 *
 * The first frame tells its round r.  Agents' rounds differ by one at most: who is a
 * round ahead has r's result, and r need not be gathered any more.  So:
 *
 *   somebody pushes r, others are silent: SEEK r from the silent.  They have r's
 *	result and GIVE it, or their contribution is with the old server and they come
 *	over, or their ranks have not submitted r yet and they push when they have.
 *   somebody pushes r + 1 while r is gathered: r is done somewhere (skip); those who
 *	pushed r want its result now, SEEK r from the others.
 *
 * A result given ends it as a sum does.  A SEEK may be lost or come before the agent
 * knows the epoch; whoever waits here PROBEs, and then it is sent again.
 */
#include <string.h>

#include "server/server_core.h"

/* ---- rounds ---- */

/* The round being gathered was finished elsewhere: who has pushed it wants its result. */
static void skip(struct srv_core *c, struct srv_seg *s)
{
	s->done_round = round_next(s->done_round);
	s->wants = 0;
	c->count.skipped++;
	srv_ask_end(s);
	for (uint32_t w = 0; w < s->tensor->job->n; w++) {
		struct srv_in *in = &s->in[w];

		in->wants = in->state == IN_PARKED || in->state == IN_OFFERED;
		s->wants += in->wants;
		if (in->state != IN_LANDING)
			srv_unpark(in, w);
		in->attempt = 0;
		in->told = in->again = false;
		srv_todo_drop(in, TODO_HELD | TODO_ASK | TODO_CANCELLED | TODO_SEEK);
	}
	s->rop = ROP_NONE;
	srv_ask_pump(c, s->tensor->job);
	if (s->wants)
		srv_seek(c, s);
}

void srv_learn_round(struct srv_core *c, struct srv_seg *s, uint32_t round)
{
	if (!s->known) {
		s->known = true;
		s->done_round = round_prev(round);
	} else if (round == round_next(round_next(s->done_round))) {
		skip(c, s);
	}
}

/* ---- who might know ---- */

static struct srv_peer *find_peer(struct srv_core *c, const struct srv_seg *s, uint32_t worker)
{
	const struct srv_worker *w = &s->tensor->job->worker[worker];
	uint32_t engine = geom_shard(s->tensor->id, s->chunk, w->engines);

	list_for_each(&c->peers, l) {
		struct srv_peer *p = list_entry(l, struct srv_peer, link);

		if (p->node == w->node && p->engine == engine)
			return p;
	}
	return NULL;
}

uint32_t srv_sought_round(const struct srv_seg *s)
{
	return s->wants ? s->done_round : round_next(s->done_round);
}

void srv_seek(struct srv_core *c, struct srv_seg *s)
{
	for (uint32_t w = 0; w < s->tensor->job->n; w++) {
		struct srv_in *in = &s->in[w];

		if (bits_test(s->tensor->job->out, w))
			continue;
		if (MUTATE(6) || (s->wants ? in->wants : in->state != IN_NONE))
			continue;
		if (!in->peer)
			in->peer = find_peer(c, s, w);
		if (!in->peer)
			continue;	/* no link yet: at the next PROBE */
		c->count.seeks++;
		srv_todo(in, TODO_SEEK);
	}
}

void srv_want(struct srv_core *c, struct srv_in *in)
{
	struct srv_seg *s = in->seg;

	s->wants += !in->wants;
	in->wants = true;
	srv_seek(c, s);
}

void srv_let_go(struct srv_in *in)
{
	in->seg->wants -= in->wants;
	in->wants = false;
}

/* ---- what is given ---- */

/* Whether a frame is of the round that this segment, migrating here, misses. */
static bool is_missed(const struct srv_seg *s, const struct frame *f)
{
	return s->young && s->known &&
	       (f->round == s->done_round || f->round == round_next(s->done_round));
}

static bool shape_ok(const struct srv_seg *s, const struct frame *f)
{
	return f->dtype == s->tensor->dtype && f->length == s->len && f->rop != ROP_NONE;
}

void *srv_give_place(struct srv_core *c, struct srv_seg *s, const struct frame *f)
{
	if (!is_missed(s, f) || s->giving) {
		c->count.duplicates++;
		return NULL;
	}
	if (!shape_ok(s, f)) {
		c->count.drop_shape++;
		return NULL;
	}
	s->giving = true;
	s->lent++;
	s->tensor->borrowed++;
	s->tensor->job->borrowed++;
	return s->own;
}

void srv_give(struct srv_core *c, struct srv_seg *s, const struct frame *f, const void *data)
{
	if (!is_missed(s, f)) {
		c->count.duplicates++;
		return;
	}
	if (!shape_ok(s, f) || !data || s->giving) {
		c->count.drop_shape++;
		return;
	}
	if (data != s->own)
		memcpy(s->own, data, s->len);
	if (f->round != s->done_round)
		skip(c, s);
	c->count.given++;
	s->young = false;
	s->failed = false;
	s->wants = 0;
	s->result = s->own;
	s->turn = ++c->finished;
	s->done_rop = f->rop;
	for (uint32_t w = 0; w < s->tensor->job->n; w++) {
		struct srv_in *in = &s->in[w];

		srv_todo_drop(in, TODO_SEEK);
		if (in->wants)
			srv_resend(c, in, in->result_at);
		in->wants = false;
	}
}
