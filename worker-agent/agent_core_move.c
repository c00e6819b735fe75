// SPDX-License-Identifier: Apache-2.0
/*
 * The story of a segment that changes its server.
 *
 * An epoch gives it to another owner.  Where nothing of it is with the old one
 * (IDLE, DONE, READY and not pushed) it goes at once.  What is pushed stays while
 * the old server lives: its result is on its way, as a rule, and then the segment
 * goes between two rounds.  But agents hear of an epoch at different times, and one
 * that had not pushed yet pushes to the new owner, while another one's contribution
 * lies with the old; each server would wait for ever.  So a new owner SEEKs those it
 * has not heard of, and whoever is sought takes its contribution back (CANCEL: the old
 * server shall not read that memory any more), goes over and pushes again.  So does
 * who hears from the old one that it waits for others (HELD).
 *
 * A dead server has nothing to answer: its segments go over at once, whatever they
 * were doing.  Nobody cares whether it had summed the round for some, because those
 * have the result, and a new owner SEEKs it: who has it GIVEs it, and then it is
 * nobody's contribution that counts, but the result.  It cannot be that one server
 * sums a round and another one, too: a sum needs all agents' contributions, an agent
 * with a result does not push its contribution again, and one that went over takes no
 * result from the old owner any more.
 */
#include "worker-agent/agent_core.h"

void ag_job_epoch(struct ag_core *c, struct ag_job *j, uint32_t epoch,
		  struct ag_route *const *route, uint32_t nroutes)
{
	(void)c;
	j->epoch = epoch;
	j->route = route;
	j->nroutes = nroutes;
	for (uint32_t i = 0; i < nroutes; i++) {
		if (!route[i] || route[i]->job)
			continue;
		route[i]->job = j;
		list_add(&j->routes, &route[i]->link);
	}
}

/* Its window is nobody's: what may still land in it does no harm. */
static void free_late(struct ag_route *r)
{
	list_for_each(&r->job->tensors, l) {
		struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

		for (uint32_t k = 0; k < t->nsegs; k++)
			if (t->seg[k].late_slot != UINT32_MAX && t->seg[k].late_route == r)
				ag_seg_free_late(&t->seg[k]);
	}
}

void ag_route_gone(struct ag_route *r)
{
	r->gone = true;
	free_late(r);
}

void ag_route_del(struct ag_route *r)
{
	free_late(r);
	ASSERT(!r->users && list_empty(&r->inflight) && !pheap_min(&r->ready));
	list_del(&r->link);
}

/* ---- going over ---- */

void ag_seg_switch(struct ag_core *c, struct ag_seg *s, mono_t now)
{
	bool ready = s->state == SEG_READY;

	if (ready)
		ag_seg_unready(s);
	ag_todo_drop(s, 0xff);
	ag_seg_free_slot(s, now);
	s->route->users--;
	s->route = s->next;
	s->epoch = s->next_epoch;
	s->next = NULL;
	s->tensor->job->moving--;
	s->attempt = 0;
	s->asked = s->pinned = s->held = s->lost = s->voided = false;
	c->count.moves++;
	if (ready)
		ag_seg_given(s);
	if (s->give_round)
		ag_todo(s, AG_GIVE);
}

void ag_seg_recall(struct ag_seg *s)
{
	s->state = SEG_CANCELLING;
	ag_todo_drop(s, AG_PROBE);
	ag_todo(s, AG_CANCEL);
}

void ag_seg_move(struct ag_core *c, struct ag_seg *s, mono_t now)
{
	if (!s->next)
		return;
	if (((s->route->gone && !MUTATE(12)) || MUTATE(11)) &&
	    (s->state == SEG_PUSHED || s->state == SEG_CANCELLING)) {
		list_del(&s->link);
		c->count.repushes++;
		ag_seg_given(s);
	} else if (s->state == SEG_PUSHED || s->state == SEG_CANCELLING) {
		return;
	} else if (s->state == SEG_READY && s->held && !s->route->gone) {
		ag_seg_unready(s);	/* to be pushed again after a link broke */
		list_add(&s->route->inflight, &s->link);
		ag_seg_recall(s);
		return;
	}
	ag_seg_switch(c, s, now);
}

static void seg_next(struct ag_core *c, struct ag_seg *s, struct ag_route *r, uint32_t epoch,
		     mono_t now)
{
	struct ag_job *j = s->tensor->job;

	if (s->next)
		s->next->users--;
	else
		j->moving++;
	s->next = r;
	s->next_epoch = epoch;
	r->users++;
	ag_seg_move(c, s, now);
}

void ag_tensor_move(struct ag_core *c, struct ag_tensor *t, const uint32_t *route,
		    const uint32_t *since, mono_t now)
{
	for (uint32_t k = 0; k < t->nsegs && !t->removed; k++) {
		struct ag_seg *s = &t->seg[k];

		if (since[s->chunk] != (s->next ? s->next_epoch : s->epoch))
			seg_next(c, s, t->job->route[route[s->chunk]], since[s->chunk], now);
		else
			ag_seg_move(c, s, now);	/* its old server may have died */
	}
}

/* ---- a smaller world ---- */

void ag_job_freeze(struct ag_job *j)
{
	j->frozen = true;
	list_for_each(&j->tensors, l)	/* not told yet: not whole */
		list_del(&list_entry(l, struct ag_tensor, link)->done_link);
}

/* Forgets the inputs of ranks in whose place others have come: they give their own. */
static void forget_given(struct ag_tensor *t, uint64_t came)
{
	for (uint32_t k = 0; k < t->nsegs; k++)
		t->seg[k].posted &= ~came;
}

void ag_job_shrink(struct ag_job *j, uint64_t live, uint32_t world)
{
	uint64_t came = live & ~j->live;

	j->frozen = false;
	j->live = MUTATE(24) ? live & j->live : live;
	j->world = world;
	list_for_each(&j->tensors, l) {
		struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

		t->past = t->running || t->borrowed;
		forget_given(t, came);
	}
}

bool ag_job_past(struct ag_job *j)
{
	bool past = false;

	list_for_each(&j->tensors, l) {
		struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

		t->past &= t->running || t->borrowed;
		past |= t->past;
	}
	return past;
}

/*
 * Begins a segment's round again; what its server has of it is recalled first, since that memory
 * may be read until then.
 */
static void seg_again(struct ag_seg *s)
{
	bool out = s->state == SEG_PUSHED || s->state == SEG_CANCELLING ||
		   (s->state == SEG_READY && s->held);

	ag_unmark(s);
	s->added = false;
	s->voided = out;
	s->pinned = false;
	if (s->state == SEG_PUSHED)
		ag_seg_recall(s);
	if (s->state == SEG_DONE && !MUTATE(20)) {
		s->state = SEG_IDLE;
		s->attempt = 0;
		s->asked = s->held = s->hurt = false;
	}
	if (s->state == SEG_READY && !s->held) {
		ag_seg_unready(s);
		s->state = SEG_IDLE;
	}
	if (s->state == SEG_IDLE)
		ag_seg_given(s);
	s->tensor->left += s->state != SEG_DONE;
}

/* A broadcast whose root ended before it gave its data; others may have it. */
static bool root_is_lost(const struct ag_tensor *t)
{
	return t->rop == ROP_BROADCAST && t->root_local >= 0 && t->nsegs &&
	       !(t->job->live >> t->root_local & 1) && !(t->seg[0].posted >> t->root_local & 1);
}

void ag_tensor_again(struct ag_core *c, struct ag_tensor *t)
{
	struct ag_job *j = t->job;

	if (t->removed || !t->nsegs)	/* other engines have it: no round ends here */
		return;
	list_del(&t->done_link);
	ag_set_running(c, t, true);
	t->left = 0;
	t->times = (struct ag_times){ .given = t->times.given };
	t->kept = 0;
	c->count.again++;
	if (root_is_lost(t)) {
		t->root_local = -1;
		if (j->n == 1 && !j->fail_code) {
			j->fail_code = TALLY_ESHUTDOWN;
			j->fail_tensor = t->id;
			j->fail_round = t->round;
			j->fail_side[0] = j->fail_side[1] = SIDE(j->me, t->rop, t->root);
		}
	}
	for (uint32_t k = 0; k < t->nsegs; k++)
		seg_again(&t->seg[k]);
}

/* ---- results for those who lack them ---- */

static bool has_result(const struct ag_seg *s, uint32_t round)
{
	const struct ag_tensor *t = s->tensor;

	return MUTATE(10) || (round == t->round && s->state == SEG_DONE) ||
	       (round == round_prev(t->round) && t->last_rop != ROP_NONE);
}

/*
 * An owner lacks a round that another one began.  While a segment is on its way to
 * the next owner both may ask: the old one may itself have been new in that round.
 */
void ag_on_seek(struct ag_core *c, struct ag_peer *p, const struct frame *f, mono_t now)
{
	struct ag_seg *s = ag_find(c, f);
	bool here, next;

	if (!s || s->tensor->removed) {
		c->count.drop_job++;
		return;
	}
	here = s->route->peer == p && s->epoch == f->epoch;
	next = s->next && s->next->peer == p && s->next_epoch == f->epoch;
	if (!here && !next) {
		c->count.drop_epoch++;
		return;
	}
	if (has_result(s, f->round)) {
		s->give_round = f->round;
		if (here)
			ag_todo(s, AG_GIVE);
	}
	if (next && s->state == SEG_PUSHED) {
		s->heard = now;
		ag_seg_recall(s);
	}
}

bool ag_give(struct ag_core *c, struct ag_seg *s, struct ag_send *out)
{
	const struct ag_tensor *t = s->tensor;
	uint32_t round = s->give_round, parity = (round + MUTATE(9)) & 1;

	s->give_round = 0;
	if (!has_result(s, round))
		return false;
	*out = (struct ag_send){ .peer = s->route->peer };
	ag_fill_head(&out->frame, s, FRAME_GIVE);
	out->frame.round = round;
	out->frame.attempt = 0;
	out->frame.dtype = t->dtype;
	out->frame.rop = round == t->round ? t->rop : t->last_rop;
	out->frame.flags = s->route->peer->by_ref ? FRAME_BYREF : 0;
	out->frame.slot = SLOT_NONE;
	ag_lend(c, s, out, t->result[parity] + ag_seg_at(s), t->result_slot[parity] + ag_seg_at(s));
	c->count.gives++;
	return true;
}
