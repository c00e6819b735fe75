// SPDX-License-Identifier: Apache-2.0
/*
 * The story of a segment's round at its agent.
 *
 * ag_post() notes a rank's input; with the last local rank's the segment is
 * READY and queued at its route by urgency.  ag_next() takes the most urgent one
 * over all routes that have room (agent_core_turn.c), adds up the local inputs at
 * this moment, while they go out anyway, and hands out the PUSH.  The RESULT lands
 * in the result slot and frees the window.
 *
 * When something goes wrong: a pushed segment without a word for a while is
 * asked after (PROBE); the server answers with the result, with HELD, or with
 * ASK, and then it is pushed again.  A window full of contributions that nobody
 * matches is untangled by OFFER and ASK: to make room for an asked segment the
 * least urgent unasked one is taken back (CANCEL); a server that is waiting for
 * others to match it says HELD, and then another one goes.  A broken link costs
 * pushing again what was in flight on it, into the same slots.  What a new epoch
 * does is in agent_core_move.c.
 *
 * A card writes into a slot whenever it gets to it: a push that was repeated over
 * another link may land after its round is over.  So a slot is nobody else's before
 * all pushes into it are done (ag_sent), and its segment is not pushed before either.
 */
#include "common/kern/kern.h"
#include "worker-agent/agent_core.h"

#include <string.h>

#define TICK_BURST 64u		/* frames that one tick may cause per route */

/* ---- small moves ---- */

void ag_todo(struct ag_seg *s, uint8_t what)
{
	struct ag_peer *p = s->route->peer;

	if (list_empty(&p->todo))
		list_add(&p->core->talk, &p->talk);
	if (!s->todo)
		list_add(&p->todo, &s->todo_link);
	s->todo |= what;
}

void ag_todo_drop(struct ag_seg *s, uint8_t what)
{
	struct ag_peer *p = s->route->peer;

	s->todo &= (uint8_t)~what;
	if (!s->todo)
		list_del(&s->todo_link);
	if (p && list_empty(&p->todo))
		list_del(&p->talk);
}

/* ---- a round's beginning and end ---- */

static void round_open(struct ag_core *c, struct ag_tensor *t, const struct ag_post *p, mono_t now)
{
	ASSERT(p->round == round_next(t->round) && !t->running);
	t->round = p->round;
	ag_set_running(c, t, true);
	t->past &= t->borrowed > 0;
	t->last_rop = t->rop;
	t->rop = p->rop;
	t->groups = p->groups;
	if (p->groups)
		memset(t->piece, 0, t->nchunks * t->job->nlocal * sizeof(*t->piece));
	t->root_local = p->root_local;
	t->root = p->root;
	t->priority = p->priority;
	t->seq = p->seq;
	t->since = now;
	t->times = (struct ag_times){ 0 };
	t->left = t->nsegs;
	for (uint32_t k = 0; k < t->nsegs; k++) {
		struct ag_seg *s = &t->seg[k];

		ASSERT(s->state == SEG_IDLE || s->state == SEG_DONE);
		s->state = SEG_IDLE;
		s->posted = 0;
		s->attempt = 0;
		s->heard = 0;
		s->asked = s->pinned = s->added = s->probed = s->hurt = s->held = s->lost = false;
		s->voided = false;
		s->pieces = 0;
		s->backoff_ms = PROBE_MIN_MS;
	}
	if (!t->left)
		list_add(&c->done, &t->done_link);
}

/* Its result was there before; where it is wanted besides, it may not have come to yet. */
static void seg_kept(struct ag_core *c, struct ag_seg *s)
{
	struct ag_tensor *t = s->tensor;

	s->state = SEG_DONE;
	c->count.kept++;
	ag_hand_out(s, NULL);
	ag_tell(s);
	if (--t->left == 0 && !t->job->frozen)
		list_add(&c->done, &t->done_link);
}

static void seg_posted(struct ag_core *c, struct ag_seg *s, const struct ag_post *p)
{
	if (p->part == PART_PIECE) {
		ASSERT(s->pieces < s->tensor->groups);
		s->pieces++;
	} else {
		ASSERT(!(s->posted >> p->local & 1));
		s->posted |= UINT64_C(1) << p->local;
	}
	if (s->state != SEG_IDLE || !ag_all_gave(s))
		return;
	if (ag_was_done(s))
		seg_kept(c, s);
	else
		ag_seg_ready(s);
}

/* A process may say a thing twice; what was said first holds. */
static bool take_piece(struct ag_core *c, struct ag_tensor *t, const struct ag_post *p,
		       uint32_t chunk)
{
	struct ag_piece *piece = &t->piece[chunk * t->job->nlocal + p->group];
	uint64_t at = (uint64_t)chunk * t->geom.chunk_bytes - p->at;

	if (piece->base) {
		c->count.drop_state++;
		return false;
	}
	piece->base = p->base + at;
	piece->slot = p->base_slot == SLOT_NONE ? SLOT_NONE : p->base_slot + at;
	return true;
}

static void take_whole(struct ag_input *in, const struct ag_post *p)
{
	bool open = p->part == PART_OPEN;

	in->base = open ? NULL : p->base;
	in->slot = p->base_slot;
	in->out = p->out;
	in->tell = open ? (_Atomic uint32_t *)(uintptr_t)p->base : NULL;
	in->run = p->run;
}

void ag_post(struct ag_core *c, struct ag_tensor *t, const struct ag_post *p, mono_t now)
{
	bool piece = p->part == PART_PIECE;
	uint32_t ch, end;

	if (piece && (!t->running || p->round != t->round)) {
		c->count.drop_state++;	/* said twice, and the round is over here */
		return;
	}
	ASSERT(p->local < t->job->nlocal && range_ok(p->at, p->length, t->geom.bytes));
	if (!t->running)
		round_open(c, t, p, now);
	t->times.given = now;
	ASSERT(p->round == t->round && p->rop == t->rop && p->root_local == t->root_local &&
	       p->root == t->root && p->groups == t->groups);
	if (!piece)
		take_whole(&t->in[p->local], p);
	end = (uint32_t)div_round_up(p->at + p->length, t->geom.chunk_bytes);
	for (ch = (uint32_t)(p->at / t->geom.chunk_bytes); ch < end; ch++) {
		if (t->first[ch] == AG_NO_SEG || (piece && !take_piece(c, t, p, ch)))
			continue;
		for (uint32_t k = 0; k < geom_chunk_segs(&t->geom, ch); k++)
			seg_posted(c, &t->seg[t->first[ch] + k], p);
	}
}

static void seg_done(struct ag_core *c, struct ag_seg *s, const void *read, mono_t now)
{
	struct ag_tensor *t = s->tensor;

	ag_mark(s);
	ag_hand_out(s, read);
	if (s->state == SEG_READY)
		ag_seg_unready(s);
	list_del(&s->link);
	ag_todo_drop(s, 0xff);
	ag_seg_free_slot(s, now);
	s->route->progress = now;
	s->state = SEG_DONE;
	s->held = false;
	ag_tell(s);
	ag_seg_move(c, s, now);
	if (--t->left == 0 && !t->job->frozen)
		list_add(&c->done, &t->done_link);
}

struct ag_tensor *ag_done(struct ag_core *c)
{
	struct ag_tensor *t;

	if (list_empty(&c->done))
		return NULL;
	t = list_first(&c->done, struct ag_tensor, done_link);
	list_del(&t->done_link);
	ag_set_running(c, t, false);
	return t;
}

void ag_undone(struct ag_core *c, struct ag_tensor *t)
{
	ag_set_running(c, t, true);
	list_add(c->done.next, &t->done_link);
}

/* ---- one machine alone ---- */

bool ag_work(struct ag_core *c, uint64_t budget)
{
	struct fair_flow *w;

	while ((w = fair_first(&c->alone))) {
		struct ag_job *j = container_of(w, struct ag_job, flow);
		struct ag_route *r = container_of(pheap_min(&j->turn[AG_BY_LINK]), struct ag_route,
						  turn);
		struct ag_seg *s = container_of(pheap_min(&r->ready), struct ag_seg, heap);
		uint64_t cost;

		if (!budget)
			return true;
		cost = ag_sum_alone(c, s);
		fair_serve(w, cost);
		seg_done(c, s, NULL, r->progress);
		budget -= MIN(budget, cost);
	}
	return false;
}

/* ---- what goes out ---- */

void ag_fill_head(struct frame *f, const struct ag_seg *s, uint8_t type)
{
	const struct ag_tensor *t = s->tensor;
	uint64_t result = t->result_slot[t->round & 1];

	*f = (struct frame){
		.type = type,
		.attempt = s->attempt,
		.worker = (uint16_t)t->job->me,
		.job = t->job->id,
		.tensor = t->id,
		.chunk = s->chunk,
		.round = t->round,
		.epoch = s->epoch,
		.offset = s->offset,
		.rslot = result == SLOT_NONE ? SLOT_NONE : result + ag_seg_at(s),
	};
}

void ag_lend(struct ag_core *c, struct ag_seg *s, struct ag_send *out, const uint8_t *data,
	     uint64_t slot)
{
	struct ag_tensor *t = s->tensor;
	struct ag_peer *p = s->route->peer;

	out->frame.length = s->len;
	if (p->by_ref) {
		out->frame.slot = slot;
		return;
	}
	out->data = data;
	out->seg = s;
	s->lent++;
	t->borrowed++;
	t->job->borrowed++;
	p->tx_bytes += s->len;
	c->tx_bytes += s->len;
}

/* A question about a segment, most binding first. */
static bool next_todo(struct ag_core *c, struct ag_peer *p, struct ag_send *out)
{
	struct ag_seg *s;
	uint8_t type, what;

	s = list_first(&p->todo, struct ag_seg, todo_link);
	if (s->todo & AG_CANCEL) {
		what = AG_CANCEL;
		type = FRAME_CANCEL;
		c->count.cancels++;
	} else if (s->todo & AG_PROBE) {
		what = AG_PROBE;
		type = FRAME_PROBE;
		c->count.probes++;
	} else if (s->todo & AG_OFFER) {
		what = AG_OFFER;
		type = FRAME_OFFER;
		c->count.offers++;
	} else {
		ag_todo_drop(s, AG_GIVE);
		return ag_give(c, s, out);
	}
	*out = (struct ag_send){ .peer = p };
	ag_fill_head(&out->frame, s, type);
	out->frame.aux = type == FRAME_PROBE && s->hurt;
	ag_todo_drop(s, what);
	return true;
}

static void push(struct ag_core *c, struct ag_seg *s, struct ag_send *out, mono_t now)
{
	struct ag_tensor *t = s->tensor;
	struct ag_peer *p = s->route->peer;
	struct frame *f = &out->frame;

	ag_fill_head(f, s, FRAME_PUSH);
	f->dtype = t->dtype;
	f->rop = t->rop;
	f->aux = t->rop == ROP_BROADCAST ? t->root : ag_contribution_shift(t);
	f->flags = p->by_ref ? FRAME_BYREF : 0;
	if (t->rop == ROP_MEAN && f->aux)
		f->flags |= FRAME_SCALED;
	f->slot = s->slot == UINT32_MAX ? SLOT_NONE :
		  s->route->window_at + (uint64_t)(MUTATE(37) ? 0 : s->slot) * PAGE_BYTES;
	out->peer = p;
	out->data = NULL;
	out->seg = NULL;
	if (ag_without_data(t)) {
		f->flags |= FRAME_NODATA;
	} else {
		uint64_t slot;
		const uint8_t *data = ag_contribution(c, s, &slot);

		ag_lend(c, s, out, data, slot);
	}
	ag_seg_unready(s);
	ag_todo_drop(s, AG_OFFER);
	s->state = SEG_PUSHED;
	s->held = true;
	s->heard = now;
	ag_saw_push(t, now);
	s->missing = UINT32_MAX;
	s->probed = s->hurt = false;
	s->probes = s->unheard = 0;
	list_add(&s->route->inflight, &s->link);
	c->count.pushes++;
}

static bool next_talk(struct ag_core *c, struct ag_send *out)
{
	list_for_each_safe(&c->talk, l, next) {
		struct ag_peer *p = list_entry(l, struct ag_peer, talk);

		while (p->up && !p->busy && !list_empty(&p->todo))
			if (next_todo(c, p, out))
				return true;
	}
	return false;
}

bool ag_next(struct ag_core *c, mono_t now, struct ag_send *out)
{
	struct ag_seg *s;

	if (next_talk(c, out))
		return true;
	s = ag_choose(c);
	if (!s)
		return next_talk(c, out);	/* a CANCEL, where room is wanted */
	fair_serve(&s->tensor->job->flow, s->route->peer->by_ref ? 0 : s->len + FRAME_BYTES);
	push(c, s, out, now);
	return true;
}

void ag_sent(struct ag_core *c, struct ag_peer *p, struct ag_seg *s, uint32_t len, mono_t now)
{
	struct ag_tensor *t = s->tensor;

	ASSERT(p->tx_bytes >= len && c->tx_bytes >= len && t->borrowed && t->job->borrowed);
	ASSERT(s->lent);
	if (!--s->lent)
		ag_seg_free_late(s);
	if (s->state == SEG_PUSHED)
		ag_saw_push(t, now);
	p->tx_bytes -= len;
	c->tx_bytes -= len;
	t->borrowed--;
	t->job->borrowed--;
}

/* ---- what comes in ---- */

struct ag_seg *ag_find(struct ag_core *c, const struct frame *f)
{
	struct ag_tensor *t = ag_tensor_find(c, f->job, f->tensor);

	if (!t || f->chunk >= t->nchunks || t->first[f->chunk] == AG_NO_SEG ||
	    f->offset % t->geom.seg_bytes || f->offset >= geom_chunk_len(&t->geom, f->chunk))
		return NULL;
	return &t->seg[t->first[f->chunk] + f->offset / t->geom.seg_bytes];
}

/* The open segment that f is about; NULL: counted. */
static struct ag_seg *find_open(struct ag_core *c, struct ag_peer *p, const struct frame *f)
{
	struct ag_seg *s = ag_find(c, f);

	if (!s || s->tensor->removed || s->route->peer != p) {
		c->count.drop_job++;
		return NULL;
	}
	if (f->epoch != s->epoch && !MUTATE(7)) {
		c->count.drop_epoch++;
		return NULL;
	}
	if (f->round != s->tensor->round && !MUTATE(8)) {
		c->count.drop_round++;
		return NULL;
	}
	if (s->state == SEG_DONE) {
		c->count.duplicates++;
		return NULL;
	}
	if (s->state == SEG_IDLE) {	/* nothing was given yet, so nothing can be answered */
		c->count.drop_state++;
		return NULL;
	}
	return s;
}

static bool result_shape_ok(const struct ag_seg *s, const struct frame *f)
{
	uint64_t want = s->tensor->result_slot[f->round & 1];

	return f->dtype == s->tensor->dtype && f->rop == s->tensor->rop && f->length == s->len &&
	       (!(f->flags & FRAME_BYREF) || f->slot == want + ag_seg_at(s));
}

/* The open segment whose result comes with f; NULL: counted. */
static struct ag_seg *open_result(struct ag_core *c, struct ag_peer *p, const struct frame *f,
				  mono_t now)
{
	struct ag_seg *s = find_open(c, p, f);

	if (!s)
		return NULL;
	if (f->type != FRAME_RESULT || !result_shape_ok(s, f)) {
		c->count.drop_shape++;
		return NULL;
	}
	if (s->landing) {		/* on a slow link: it answers what was asked meanwhile */
		c->count.duplicates++;
		s->heard = now;
		s->unheard = 0;
		return NULL;
	}
	return s;
}

void *ag_place(struct ag_core *c, struct ag_peer *p, const struct frame *f, mono_t now)
{
	struct ag_seg *s = open_result(c, p, f, now);

	if (!s)
		return NULL;
	s->landing = true;
	ag_saw_result(s->tensor, now);
	s->tensor->borrowed++;
	s->tensor->job->borrowed++;
	return s->tensor->result[f->round & 1] + ag_seg_at(s);
}

/* Gives a landing address back; a removed tensor stays in the table for that. */
static struct ag_seg *landed(struct ag_core *c, const struct frame *f)
{
	struct ag_seg *s = ag_find(c, f);

	if (!s || !s->landing)
		return NULL;
	s->landing = false;
	s->tensor->borrowed--;
	s->tensor->job->borrowed--;
	return s;
}

/*
 * Gives up a place whose payload does not come. Frames that came meanwhile were turned away, so
 * the segment is probed at once.
 */
void ag_unplace(struct ag_core *c, const struct frame *f)
{
	struct ag_seg *s = landed(c, f);

	if (!s)
		return;
	s->hurt = true;
	s->heard = 0;
}

/* Nothing of it is at its server: it is to be pushed again, once all have given it. */
static void taken_back(struct ag_core *c, struct ag_seg *s, mono_t now)
{
	list_del(&s->link);
	ag_todo_drop(s, AG_CANCEL | AG_PROBE);
	ag_seg_free_slot(s, now);
	s->attempt += !MUTATE(13);
	s->heard = now;
	s->asked = s->held = s->lost = s->voided = false;
	ag_seg_given(s);
	ag_seg_move(c, s, now);
}

/* The result of s is in its slot, or is of a larger world, and counts no more. */
static void result_came(struct ag_core *c, struct ag_peer *p, struct ag_seg *s, const void *read,
			mono_t now)
{
	if (s->voided) {
		c->count.voided++;
		taken_back(c, s, now);
		return;
	}
	c->count.results++;
	p->doubtful = false;
	seg_done(c, s, read, now);
}

static void on_result(struct ag_core *c, struct ag_peer *p, const struct frame *f, mono_t now)
{
	struct ag_seg *s;

	if (frame_has_payload(f)) {
		s = landed(c, f);
		if (!s || s->tensor->removed || s->state == SEG_DONE || s->state == SEG_IDLE)
			return;
		if (f->epoch != s->epoch) {
			c->count.drop_epoch++;
			return;
		}
	} else {
		s = find_open(c, p, f);
		if (!s)
			return;
		if (!(f->flags & FRAME_BYREF) || !result_shape_ok(s, f)) {
			c->count.drop_shape++;
			return;
		}
		ag_saw_result(s->tensor, now);
	}
	result_came(c, p, s, NULL, now);
}

void ag_take(struct ag_core *c, struct ag_peer *p, const struct frame *f, const void *data,
	     mono_t now)
{
	struct ag_seg *s = open_result(c, p, f, now);

	if (!s)
		return;
	ag_saw_result(s->tensor, now);
	if (!s->voided)
		kern_copy_cold(s->tensor->result[f->round & 1] + ag_seg_at(s), data, s->len);
	result_came(c, p, s, data, now);
}

/* Readies it for the head of the queue; the heap's order must not change in place. */
static void make_asked(struct ag_seg *s)
{
	if (s->state == SEG_READY)
		ag_seg_unready(s);
	s->asked = true;
	ag_seg_ready(s);
	s->route->full = false;
}

static void on_ask(struct ag_core *c, struct ag_seg *s, mono_t now)
{
	s->heard = now;
	s->unheard = 0;
	if (s->state == SEG_READY) {
		make_asked(s);
	} else if (s->state == SEG_PUSHED && s->next) {
		ag_seg_recall(s);	/* it shall be pushed to somebody else */
	} else if (s->state == SEG_PUSHED && s->probed) {
		s->lost |= s->probes > 1;
		if (!s->hurt && s->probes < AG_PATIENCE)
			return;
		list_del(&s->link);
		c->count.repushes++;
		make_asked(s);
	}
}

static void on_cancelled(struct ag_core *c, struct ag_seg *s, const struct frame *f, mono_t now)
{
	if (s->state != SEG_CANCELLING || f->attempt != s->attempt) {
		c->count.drop_state++;
		return;
	}
	taken_back(c, s, now);
}

static void on_held(struct ag_seg *s, const struct frame *f, mono_t now)
{
	s->missing = f->aux;
	s->lost = false;
	s->unheard = 0;
	s->heard = now;
	s->probed = false;
	/* Else it answers a PROBE from before the CANCEL, whose own answer is to come. */
	if (s->state == SEG_CANCELLING && f->slot == HELD_ASKED && !s->voided) {
		ag_todo_drop(s, AG_CANCEL);
		s->state = SEG_PUSHED;
		s->pinned = true;
		s->route->full = false;
	}
	if (s->state != SEG_PUSHED)
		return;
	list_del(&s->link);
	list_add(&s->route->inflight, &s->link);
	if (s->next)
		ag_seg_recall(s);	/* those it waits for may have gone over already */
}

/* Ranks disagree, or a broadcast's root is gone: the job is over. */
static bool is_final(const struct frame *f)
{
	return f->aux == (uint32_t)-TALLY_EMISMATCH || f->aux == (uint32_t)-TALLY_ESHUTDOWN;
}

static void on_refused(struct ag_core *c, struct ag_seg *s, const struct frame *f)
{
	struct ag_job *j = s->tensor->job;

	c->count.refused++;
	if (is_final(f) && !j->fail_code) {
		j->fail_code = -(int)f->aux;
		j->fail_tensor = f->tensor;
		j->fail_round = f->round;
		j->fail_side[0] = f->slot;
		j->fail_side[1] = f->rslot;
	}
}

void ag_frame(struct ag_core *c, struct ag_peer *p, const struct frame *f, mono_t now)
{
	struct ag_seg *s;

	if (f->type == FRAME_RESULT) {
		on_result(c, p, f, now);
		return;
	}
	if (f->type == FRAME_REFUSED && !is_final(f)) {
		c->count.refused++;	/* the probe's clock goes on */
		return;
	}
	if (f->type == FRAME_SEEK) {
		ag_on_seek(c, p, f, now);
		return;
	}
	s = find_open(c, p, f);
	if (!s)
		return;
	switch (f->type) {
	case FRAME_ASK:
		on_ask(c, s, now);
		break;
	case FRAME_CANCELLED:
		on_cancelled(c, s, f, now);
		break;
	case FRAME_HELD:
		p->doubtful = false;
		on_held(s, f, now);
		break;
	case FRAME_REFUSED:
		on_refused(c, s, f);
		break;
	default:
		c->count.drop_shape++;
	}
}

/* ---- time ---- */

/*
 * Offers segments that wait for room; each goes to the end of the line then, so that all are
 * offered in turn.
 */
static void offer_ready(struct ag_route *r, mono_t now)
{
	struct list *last = r->waiting.prev;
	uint32_t burst = TICK_BURST;
	bool more = !list_empty(&r->waiting);

	for (struct list *l = r->waiting.next, *next; more; l = next) {
		struct ag_seg *s = list_entry(l, struct ag_seg, link);

		next = l->next;
		more = l != last;
		if (s->slot != UINT32_MAX || now - s->heard < mono_ms(PROBE_MIN_MS))
			continue;
		s->heard = now;
		ag_todo(s, AG_OFFER);
		list_del(&s->link);
		list_add(&r->waiting, &s->link);
		more = more && --burst;
	}
}

/* Oldest word first; who is asked after goes to the end of the line. */
static void probe_inflight(struct ag_route *r, mono_t now)
{
	uint32_t burst = TICK_BURST;

	list_for_each_safe(&r->inflight, l, next) {
		struct ag_seg *s = list_entry(l, struct ag_seg, link);

		if (!burst--)
			return;
		if (now - s->heard < mono_ms(s->backoff_ms))
			continue;
		s->heard = now;
		s->backoff_ms = MIN(2 * s->backoff_ms, PROBE_MAX_MS);
		s->probed = s->state == SEG_PUSHED;
		s->probes += s->probes < UINT8_MAX;
		s->unheard += s->unheard < UINT8_MAX;
		ag_todo(s, s->state == SEG_CANCELLING ? AG_CANCEL : AG_PROBE);
		list_del(&s->link);
		list_add(&r->inflight, &s->link);
		if (next == &r->inflight)
			return;
	}
}

void ag_tick(struct ag_core *c, mono_t now)
{
	list_for_each(&c->jobs, lj) {
		struct ag_job *j = list_entry(lj, struct ag_job, link);

		list_for_each(&j->routes, lr) {
			struct ag_route *r = list_entry(lr, struct ag_route, link);

			if (!r->peer || !r->peer->up)
				continue;
			probe_inflight(r, now);
			if (r->full && now - r->progress >= mono_ms(OFFER_AFTER_MS))
				offer_ready(r, now);
		}
	}
}
