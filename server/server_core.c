// SPDX-License-Identifier: Apache-2.0
/*
 * The story of a segment's round at its server.
 *
 * A PUSH comes: srv_place() checks that it can count (job, epoch, worker,
 * tensor, round, attempt, shape) and says where in the worker's window it lands;
 * srv_frame() parks it.  The n-th contribution completes the segment: one pass
 * over all parked inputs in worker order writes the result, every worker gets a
 * RESULT to be sent, the windows are the agents' again.
 *
 * When something goes wrong: what is here already is a duplicate and dropped;
 * what belongs to the round just done is answered by its result; what is older
 * or newer is dropped; what belongs to no job, tensor or epoch of ours is
 * REFUSED.  A sum does not overwrite a result that a card may still be reading for
 * some agent (the last one's repetition): it waits for srv_sent().  Ranks that disagree
 * on the operation fail the segment's round, and every worker is told.
 *
 * Crossed ranks can fill windows with contributions that nobody matches.  An
 * agent without room OFFERs what it has; when a segment is parked or offered by
 * all, it is asked for, at most ask_limit bytes at a time, so that the asked ones
 * always fit every window together; an agent makes room by CANCEL.  What is
 * being asked for cannot be cancelled.
 *
 * What an agent is sent next: server_core_out.c.  Segments that change their server:
 * server_core_young.c.
 */
#include "server/server_core.h"

#include <string.h>

#include "common/kern/kern.h"

/* An answer about something that has no place of its own here. */
static struct frame *answer(struct srv_core *c, struct srv_peer *p, const struct frame *f,
			    enum frame_type type)
{
	struct frame *r;

	if (p->nrefusals == SRV_REFUSALS) {
		c->count.refusals_lost++;
		return NULL;
	}
	r = &p->refusal[p->nrefusals++];
	*r = *f;
	r->type = (uint8_t)type;
	r->flags = 0;
	r->length = 0;
	r->slot = r->rslot = 0;
	r->aux = 0;
	return r;
}

static void refuse(struct srv_core *c, struct srv_peer *p, const struct frame *f, int code,
		   uint32_t epoch)
{
	struct frame *r = answer(c, p, f, FRAME_REFUSED);

	if (!r)
		return;
	r->epoch = epoch;
	r->aux = (uint32_t)-code;
}

/* ---- finding what a frame speaks of ---- */

/* A chunk of another epoch is somebody else's by now, or will be ours soon. */
static void not_here(struct srv_core *c, struct srv_peer *p, const struct frame *f,
		     const struct srv_job *j)
{
	if (f->epoch < j->epoch || srv_tensor_moved(c, f->job, f->tensor, f->chunk, f->epoch)) {
		c->count.drop_epoch++;
		refuse(c, p, f, TALLY_EBUSY, j->epoch);
	} else {
		c->count.drop_tensor++;
		refuse(c, p, f, TALLY_ENOENT, j->epoch);
	}
}

/* Of the machine at the other end, and the chunk of that engine of its agent. */
static bool speaks_for(const struct srv_peer *p, const struct srv_job *j, const struct frame *f)
{
	const struct srv_worker *w = &j->worker[f->worker];

	return w->node == p->node && !bits_test(j->out, f->worker) &&
	       geom_shard(f->tensor, f->chunk, w->engines) == p->engine;
}

/* The worker's part in the segment; NULL: counted, and refused where that helps. */
static struct srv_in *find_in(struct srv_core *c, struct srv_peer *p, const struct frame *f)
{
	struct srv_job *j = srv_job_find(c, f->job);
	struct srv_tensor *t;
	struct srv_seg *s;

	if (!j || j->stopped) {
		c->count.drop_job++;
		refuse(c, p, f, TALLY_ENOENT, 0);
		return NULL;
	}
	if (f->worker >= j->n || !speaks_for(p, j, f)) {
		c->count.drop_worker++;
		return NULL;
	}
	t = srv_tensor_find(c, f->job, f->tensor, f->chunk, f->epoch);
	if (!t || t->removed || f->offset % t->geom.seg_bytes ||
	    f->offset >= geom_chunk_len(&t->geom, f->chunk)) {
		not_here(c, p, f, j);
		return NULL;
	}
	s = &t->seg[t->first[f->chunk] + f->offset / t->geom.seg_bytes];
	return &s->in[f->worker];
}

enum phase { PHASE_GATHERING, PHASE_DONE, PHASE_OTHER };

static enum phase phase_of(const struct srv_seg *s, uint32_t round)
{
	if (round == round_next(s->done_round))
		return PHASE_GATHERING;
	if (round == s->done_round && round)
		return PHASE_DONE;
	return PHASE_OTHER;
}

static bool attempt_older(uint8_t a, uint8_t b)
{
	return (uint8_t)(a - b) >= 128;
}

void srv_resend(struct srv_core *c, struct srv_in *in, uint8_t *result_at)
{
	struct srv_seg *s = in->seg;

	if (in->state == IN_LANDING)
		return;			/* its room is the agent's again only when it has landed */
	if (s->young) {
		if (result_at)
			in->result_at = result_at;
		srv_want(c, in);
		return;
	}
	if (s->failed) {
		srv_todo(in, TODO_FAIL);
		return;
	}
	if (in->lent) {			/* the agent may go on only when that has ended */
		in->again = !result_at;
		return;
	}
	/* Where it was told of it, its agent may have a later round's by now, of another server. */
	if (result_at && !(in->told && in->result_at == result_at)) {
		if (result_at != s->result)
			memcpy(result_at, s->result, s->len);
		if (in->state != IN_PARKED)
			in->result_at = result_at;
	}
	c->count.resends++;
	srv_todo(in, TODO_RESULT);
}

/* Common to all frames: the part in a segment that is gathering f's round. */
static struct srv_in *find_gathering(struct srv_core *c, struct srv_peer *p, const struct frame *f,
				     uint8_t *result_at)
{
	struct srv_in *in = find_in(c, p, f);

	if (!in)
		return NULL;
	in->peer = in->todo ? in->peer : p;
	if (in->seg->young)
		srv_learn_round(c, in->seg, f->round);
	if (phase_of(in->seg, f->round) != PHASE_OTHER)
		in->rslot[f->round & 1] = f->rslot;	/* links pass each other */
	switch (phase_of(in->seg, f->round)) {
	case PHASE_GATHERING:
		if (attempt_older(f->attempt, in->attempt) && f->type != FRAME_CANCEL &&
		    !MUTATE(4)) {
			c->count.drop_attempt++;
			return NULL;
		}
		return in;
	case PHASE_DONE:
		if (in->seg->young && f->type == FRAME_CANCEL) {
			srv_let_go(in);
			if (in->state != IN_LANDING)
				(void)answer(c, p, f, FRAME_CANCELLED);
			return NULL;
		}
		c->count.duplicates++;
		/* On its way, unless the agent knows of a broken link. */
		if (f->type == FRAME_PROBE && !f->aux && in->told &&
		    (++in->probes < SRV_PATIENCE || MUTATE(5)))
			return NULL;
		if (result_at && srv_gone_on(c, in, f->worker)) {
			c->count.drop_epoch++;
			return NULL;
		}
		srv_resend(c, in, result_at);
		return NULL;
	case PHASE_OTHER:
		break;
	}
	c->count.drop_round++;
	return NULL;
}

/* ---- asking for what is offered ---- */

void srv_ask_end(struct srv_seg *s)
{
	if (s->asking) {
		s->tensor->job->asked_bytes -= srv_ask_cost(s);
		s->asking = false;
	}
	list_del(&s->ask);
}

static void ask_send(struct srv_core *c, struct srv_seg *s)
{
	for (uint32_t w = 0; w < s->tensor->job->n; w++) {
		if (s->in[w].state == IN_OFFERED) {
			c->count.asks++;
			srv_todo(&s->in[w], TODO_ASK);
		}
	}
}

static bool ask_start(struct srv_core *c, struct srv_seg *s)
{
	struct srv_job *j = s->tensor->job;

	if (j->asked_bytes && j->asked_bytes + srv_ask_cost(s) > j->ask_limit)
		return false;
	list_del(&s->ask);
	s->asking = true;
	j->asked_bytes += srv_ask_cost(s);
	ask_send(c, s);
	return true;
}

void srv_ask_pump(struct srv_core *c, struct srv_job *j)
{
	while (!list_empty(&j->ask_wait))
		if (!ask_start(c, list_first(&j->ask_wait, struct srv_seg, ask)))
			return;
}

/* Everybody has it, somebody not here: time to ask. */
static void ask_check(struct srv_core *c, struct srv_seg *s)
{
	struct srv_job *j = s->tensor->job;

	if (!s->offered || s->parked + s->offered != j->live || s->leaving || s->tensor->stale) {
		list_del(&s->ask);
		return;
	}
	if (s->asking) {
		ask_send(c, s);
		return;
	}
	if (list_empty(&s->ask) && !ask_start(c, s))
		list_add(&j->ask_wait, &s->ask);
}

/* ---- the end of a round ---- */

/* Contributions with data, in worker order. */
static uint32_t gather_inputs(const struct srv_seg *s, const void *in[], uint8_t shift[])
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < s->tensor->job->n; w++)
		if (s->in[w].data) {
			shift[n] = s->in[w].shift;
			in[n++] = s->in[w].data;
		}
	return n;
}

/*
 * Memory for the result: the place of an agent on this machine that can be written at once, or
 * the segment's own.
 */
static uint8_t *choose_result(const struct srv_seg *s)
{
	for (uint32_t w = 0; w < s->tensor->job->n; w++)
		if (s->in[w].by_ref)
			return s->in[w].result_at;
	return s->own;
}

void srv_unpark(struct srv_in *in, uint32_t worker)
{
	struct srv_seg *s = in->seg;

	if (in->state == IN_PARKED) {
		s->tensor->job->worker[worker].parked_bytes -= srv_window_use(in);
		s->tensor->job->parked--;
		in->data = NULL;
		s->parked--;
		if (!s->parked)
			s->rop = ROP_NONE;
	} else if (in->state == IN_OFFERED) {
		s->offered--;
	}
	in->state = IN_NONE;
}

/* Moves on to the next round, `what` for everybody. */
static void finish(struct srv_core *c, struct srv_seg *s, enum srv_todo what)
{
	struct srv_job *j = s->tensor->job;

	s->done_round = round_next(s->done_round);
	s->done_rop = s->rop;
	s->turn = ++c->finished;
	s->failed = what == TODO_FAIL;
	s->young = false;
	s->wants = 0;
	srv_ask_end(s);
	for (uint32_t w = 0; w < j->n; w++) {
		struct srv_in *in = &s->in[w];

		if (in->state != IN_LANDING)
			srv_unpark(in, w);
		in->attempt = 0;
		in->told = in->wants = in->again = false;
		srv_todo_drop(in, TODO_HELD | TODO_ASK | TODO_CANCELLED | TODO_SEEK);
		srv_todo(in, what);
	}
	s->rop = ROP_NONE;
	srv_ask_pump(c, j);
}

static void complete(struct srv_core *c, struct srv_seg *s)
{
	const void *in[AGENTS_PER_JOB_MAX];
	uint8_t shift[AGENTS_PER_JOB_MAX];
	const struct srv_tensor *t = s->tensor;
	const struct srv_job *j = t->job;
	uint32_t n = gather_inputs(s, in, shift);

	if (s->rop == ROP_BROADCAST ? n != 1 : n != j->live) {
		finish(c, s, TODO_FAIL);
		return;
	}
	s->result = choose_result(s);
	kern_mean(t->dtype, s->result, in, shift, n, s->len / dtype_bytes(t->dtype),
		  s->rop == ROP_MEAN ? j->world : 1);
	for (uint32_t w = 0; w < j->n; w++)
		if (s->in[w].by_ref && s->in[w].result_at != s->result)
			memcpy(s->in[w].result_at, s->result, s->len);
	c->count.rounds++;
	c->count.bytes_summed += (uint64_t)n * s->len;
	finish(c, s, TODO_RESULT);
}

/* ---- frames ---- */

static bool push_shape_ok(const struct srv_in *in, const struct frame *f, const void *result_at)
{
	const struct srv_seg *s = in->seg;
	const struct srv_worker *w = &s->tensor->job->worker[f->worker];

	if (f->dtype != s->tensor->dtype || f->rop == ROP_NONE)
		return false;
	if (f->flags & FRAME_BYREF && !result_at)
		return false;
	if (f->flags & FRAME_NODATA)
		return f->rop == ROP_BROADCAST && !f->length;
	if (f->length != s->len)
		return false;
	return f->flags & FRAME_BYREF ||
	       (w->window && f->slot % PAGE_BYTES == 0 &&
		range_ok(f->slot, f->length, w->window_bytes));
}

/* The agent will hear of the smaller world, and push to that. */
static bool is_stale(struct srv_core *c, const struct srv_in *in)
{
	c->count.drop_epoch += in->seg->tensor->stale;
	return in->seg->tensor->stale;
}

/* The part in a segment that lacks the contribution that comes with f; NULL: counted. */
static struct srv_in *find_lacking(struct srv_core *c, struct srv_peer *p, const struct frame *f)
{
	struct srv_in *in = find_gathering(c, p, f, NULL);

	if (!in || is_stale(c, in))
		return NULL;
	if ((in->state == IN_PARKED && !MUTATE(2)) || in->state == IN_LANDING) {
		c->count.duplicates++;
		return NULL;
	}
	if (!push_shape_ok(in, f, NULL)) {
		c->count.drop_shape++;
		return NULL;
	}
	if (in->seg->tensor->job->worker[f->worker].late) {
		c->count.drop_epoch++;	/* it might be overwritten; it is asked after */
		return NULL;
	}
	return in;
}

void *srv_place(struct srv_core *c, struct srv_peer *p, const struct frame *f)
{
	struct srv_in *in;
	struct srv_job *j;

	if (f->type == FRAME_GIVE) {
		in = find_in(c, p, f);
		return in && !is_stale(c, in) ? srv_give_place(c, in->seg, f) : NULL;
	}
	if (f->type != FRAME_PUSH) {		/* nobody would say that it has landed */
		c->count.drop_shape++;
		return NULL;
	}
	in = find_lacking(c, p, f);
	if (!in)
		return NULL;
	j = in->seg->tensor->job;
	if (in->state == IN_OFFERED)
		in->seg->offered--;
	in->state = IN_LANDING;
	j->borrowed++;
	j->worker[f->worker].landing++;
	return j->worker[f->worker].window + f->slot;
}

void srv_seg_back(struct srv_core *c, struct srv_seg *s)
{
	struct srv_tensor *t = s->tensor;

	ASSERT(s->lent && t->borrowed && t->job->borrowed);
	t->borrowed--;
	t->job->borrowed--;
	if (!--s->lent && s->parked == t->job->live && !t->removed && !t->stale)
		complete(c, s);
}

/* Gives the landing address back; the part it was for, if that still exists. */
static struct srv_in *landed(struct srv_core *c, const struct frame *f)
{
	struct srv_job *j = srv_job_find(c, f->job);
	struct srv_tensor *t = srv_tensor_find(c, f->job, f->tensor, f->chunk, f->epoch);
	struct srv_seg *s = t ? &t->seg[t->first[f->chunk] + f->offset / t->geom.seg_bytes] : NULL;
	struct srv_in *in;

	ASSERT(j && j->borrowed);
	if (f->type == FRAME_GIVE) {
		ASSERT(s->giving);	/* a borrowed tensor stays findable */
		s->giving = false;
		srv_seg_back(c, s);
		return t->removed ? NULL : &s->in[f->worker];
	}
	j->borrowed--;
	j->worker[f->worker].landing--;
	j->worker[f->worker].late -= j->worker[f->worker].late > 0;
	if (!s || t->removed)
		return NULL;
	in = &s->in[f->worker];
	ASSERT(in->state == IN_LANDING);
	in->state = IN_NONE;
	return s->left ? NULL : in;
}

static bool take_recall(struct srv_in *in)
{
	bool recalled = in->recalled;

	in->recalled = false;
	return recalled;
}

void srv_unplace(struct srv_core *c, struct srv_peer *p, const struct frame *f)
{
	struct srv_in *in = landed(c, f);

	(void)p;
	if (in && f->type == FRAME_PUSH)
		(void)take_recall(in);	/* it will be asked again */
}

static void park(struct srv_core *c, struct srv_in *in, const struct frame *f, const void *data,
		 uint8_t *result_at)
{
	struct srv_seg *s = in->seg;
	struct srv_job *j = s->tensor->job;

	if (in->state == IN_OFFERED)
		s->offered--;
	in->state = IN_PARKED;
	in->data = f->flags & FRAME_NODATA ? NULL : data;
	in->by_ref = f->flags & FRAME_BYREF;
	in->shift = f->flags & FRAME_SCALED ? (uint8_t)f->aux : 0;
	in->result_at = result_at;
	in->attempt = f->attempt;
	s->parked++;
	j->worker[f->worker].parked_bytes += srv_window_use(in);
	j->parked++;
	c->count.pushes++;
	srv_todo_drop(in, TODO_RESULT | TODO_FAIL | TODO_ASK);
	in->again = false;
	s->side[1] = SIDE(f->worker, f->rop, f->rop == ROP_BROADCAST ? f->aux : 0);
	if (s->parked == 1)
		s->side[0] = s->side[1];
	if (SIDE_ROP(s->side[0]) != f->rop || SIDE_ROOT(s->side[0]) != SIDE_ROOT(s->side[1])) {
		finish(c, s, TODO_FAIL);
		return;
	}
	s->rop = f->rop;
	if (s->tensor->stale)
		return;
	if (s->parked < j->live - MUTATE(3)) {
		ask_check(c, s);
		if (s->young && s->parked == 1)
			srv_seek(c, s);
	} else if (!s->lent) {
		complete(c, s);
	}
}

static void take_push(struct srv_core *c, struct srv_peer *p, const struct frame *f,
		      const void *data)
{
	struct srv_in *in = find_lacking(c, p, f);
	uint8_t *at;

	if (!in)
		return;
	at = in->seg->tensor->job->worker[f->worker].window + f->slot;
	park(c, in, f, data, NULL);
	if (in->state != IN_PARKED)	/* it was the last, or failed: nobody reads it any more */
		return;
	memcpy(at, data, f->length);
	in->data = at;
}

void srv_take(struct srv_core *c, struct srv_peer *p, const struct frame *f, const void *data)
{
	void *at;

	if (f->type == FRAME_PUSH) {
		take_push(c, p, f, data);
		return;
	}
	at = srv_place(c, p, f);
	if (!at)
		return;
	memcpy(at, data, f->length);
	srv_frame(c, p, f, at, NULL);
}

static void on_cancel(struct srv_core *c, struct srv_in *in, const struct frame *f)
{
	struct srv_seg *s = in->seg;

	if (attempt_older(f->attempt, in->attempt)) {
		/* Taken out before: the answer may have been lost. */
		if (f->attempt == (uint8_t)(in->attempt - 1) && in->state < IN_LANDING)
			srv_todo(in, TODO_CANCELLED);
		return;
	}
	if (in->state == IN_LANDING) {
		in->recalled = true;
		return;
	}
	if (s->asking) {
		srv_todo(in, TODO_HELD);
		return;
	}
	srv_unpark(in, f->worker);
	in->attempt = (uint8_t)(f->attempt + 1);
	c->count.cancels++;
	srv_todo_drop(in, TODO_HELD);
	srv_todo(in, TODO_CANCELLED);
	ask_check(c, s);
}

static void on_landed(struct srv_core *c, struct srv_in *in, const struct frame *f,
		      const void *data)
{
	bool recalled = take_recall(in);

	/* The round may have failed meanwhile; it cannot have been summed. */
	if (phase_of(in->seg, f->round) != PHASE_GATHERING) {
		srv_resend(c, in, NULL);
		return;
	}
	park(c, in, f, data, NULL);
	if (recalled && in->state == IN_PARKED)		/* else it was the last, or failed */
		on_cancel(c, in, f);
}

static void on_push(struct srv_core *c, struct srv_peer *p, const struct frame *f,
		    const void *data, uint8_t *result_at)
{
	struct srv_in *in;

	if (frame_has_payload(f)) {
		in = landed(c, f);
		if (in)
			on_landed(c, in, f, data);
		return;
	}
	in = find_gathering(c, p, f, result_at);
	if (!in || is_stale(c, in))
		return;
	if ((in->state == IN_PARKED && !MUTATE(2)) || in->state == IN_LANDING) {
		c->count.duplicates++;
	} else if (!push_shape_ok(in, f, result_at) || (!data && !(f->flags & FRAME_NODATA))) {
		c->count.drop_shape++;
	} else {
		park(c, in, f, data, result_at);
	}
}

static void on_offer(struct srv_core *c, struct srv_in *in)
{
	struct srv_seg *s = in->seg;

	if (in->state == IN_NONE) {
		in->state = IN_OFFERED;
		s->offered++;
		c->count.offers++;
	}
	if (in->state == IN_OFFERED)
		ask_check(c, s);
	if (s->young)
		srv_seek(c, s);
}

static void on_probe(struct srv_core *c, struct srv_in *in)
{
	srv_todo(in, in->state >= IN_LANDING ? TODO_HELD : TODO_ASK);
	if (in->seg->young)
		srv_seek(c, in->seg);
}

void srv_frame(struct srv_core *c, struct srv_peer *p, const struct frame *f, const void *data,
	       void *result_at)
{
	struct srv_in *in;

	switch (f->type) {
	case FRAME_PUSH:
		on_push(c, p, f, data, result_at);
		return;
	case FRAME_GIVE:
		in = frame_has_payload(f) ? landed(c, f) : find_in(c, p, f);
		if (in && !in->seg->tensor->stale)
			srv_give(c, in->seg, f, data);
		return;
	case FRAME_OFFER:
	case FRAME_PROBE:
	case FRAME_CANCEL:
		break;
	default:
		c->count.drop_shape++;
		return;
	}
	in = find_gathering(c, p, f, result_at);
	if (!in)
		return;
	if (f->type == FRAME_OFFER)
		on_offer(c, in);
	else if (f->type == FRAME_CANCEL)
		on_cancel(c, in, f);
	else
		on_probe(c, in);
}
