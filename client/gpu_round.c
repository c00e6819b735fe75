// SPDX-License-Identifier: Apache-2.0
/*
 * gpu_round.c - one round of a tensor that lies on GPUs.
 *
 * All of it is put on the lanes at once, and what is on them waits for what it needs:
 *
 *	REDUCE	the group adds a step's runs up, each to its root
 *	OUT	this rank's run is copied to the arena
 *	POST	a callback posts it
 *	IN	when the agent has counted its chunks, the result is copied to the GPU
 *	SPREAD	the group gets the step's results from the roots
 *
 * A step is as many runs as there are roots, so that each has one to do; the lanes work
 * on different steps, and the network on others again.  A root's sum lies where the
 * result will be, in `out`.  A group of one has neither sums nor roots: its runs are
 * copied from `in`.  Where this group is all there is, its agent has nothing to add: the
 * result is what was copied out, where it was copied to.
 *
 * A driver may put lanes one behind the other that need not be.  That costs time and no
 * more: what a lane waits for was put on the lanes before, here and, as all ranks start
 * rounds in the same order, everywhere else.
 *
 * A ticket can be given to a stream (tally_gpu_wait()).  Then nobody takes the round's
 * completion in until its tensor is used again, which waits for it.
 *
 * With a timeline callbacks note when copies begin and end; what a stream takes is waited for
 * until it has landed then, as its spans are told at that time.
 */
#include "client/gpu.h"

#include <string.h>

#include "client/back.h"
#include "client/clock.h"
#include "client/mem.h"
#include "common/base/turn.h"

#define RUN_BYTES	(8u << 20)	/* most of the rate of a PCIe 5.0 link with 16 lanes */
#define RUNS		4u		/* of a root, of a tensor that has so many chunks: so
					 * that its lanes work at the same time */

/* ---- what a tensor has ---- */

/* Whose run it is.  Those of a tensor with fewer runs than roots begin anywhere. */
static uint32_t root_of(const struct lt_gpu *g, const struct lt_gpu_tensor *t, uint32_t run)
{
	uint64_t first = t->nruns < g->nroots ? t->tensor->id : 0;

	return g->roots[turn_of(g->weights, sizeof(*g->weights), g->nroots, first + run)];
}

/* Into as equal parts for all roots as whole chunks can be.  All members agree. */
static void cut(struct lt_gpu_tensor *gt, uint32_t nroots)
{
	const struct tally_tensor *t = gt->tensor;
	uint32_t chunk = t->session->chunk_bytes;
	uint64_t steps = MAX(RUNS, div_round_up(t->bytes, (uint64_t)RUN_BYTES * nroots));

	gt->run = (uint32_t)div_round_up(div_round_up(t->bytes, chunk), steps * nroots);
	gt->geom = (struct geom){ t->bytes, gt->run * chunk, gt->run * chunk };
	gt->nruns = geom_chunks(&gt->geom);
}

/* Where each of this rank's runs will be copied to, and what will be said of it. */
static void place_runs(tally_session *s, struct lt_gpu_tensor *gt)
{
	struct tally_tensor *t = gt->tensor;
	bool in_place = s->gpu->in_place;
	uint8_t *to = gt->staging;
	uint32_t n = 0;

	for (uint32_t r = 0; r < gt->nruns; r++) {
		struct ring_sub *sub = &gt->posts[n].sub;
		bool found;

		if (root_of(s->gpu, gt, r) != s->gpu->me)
			continue;
		gt->posts[n].session = s;
		gt->posts[n].at = s->timeline ? &gt->times.out_end : NULL;
		*sub = (struct ring_sub){
			.length = geom_chunk_len(&gt->geom, r), .part = PART_PIECE,
			.tensor = t->id, .at = (uint64_t)r * gt->geom.chunk_bytes,
			.group = (uint8_t)s->gpu->group,
		};
		found = lt_arena_find(&s->arena, to, sub->length, &sub->slab, &sub->offset);
		ASSERT(found);
		for (int i = 0; i < 2; i++)
			gt->posts[n].take[i] = (struct lt_gpu_take){
				in_place ? to : t->result[i] + sub->at, to, sub->length };
		to += sub->length;
		n++;
	}
}

static void count_runs(const struct lt_gpu *g, struct lt_gpu_tensor *gt, uint64_t *bytes)
{
	*bytes = 0;
	for (uint32_t r = 0; r < gt->nruns; r++) {
		if (root_of(g, gt, r) != g->me)
			continue;
		*bytes += geom_chunk_len(&gt->geom, r);
		gt->nposts++;
	}
}

static int fill(tally_session *s, struct lt_gpu_tensor *gt)
{
	uint64_t words = align_up(gt->nruns * sizeof(uint32_t), PAGE_BYTES), bytes;
	int rc;

	count_runs(s->gpu, gt, &bytes);
	gt->posts = lt_mem_new(MAX(gt->nposts, 1), sizeof(*gt->posts));
	if (!gt->posts)
		return err_set(&s->err, TALLY_ENOMEM, "no memory for a tensor on a GPU");
	rc = lt_session_alloc(s, words + bytes, true, &gt->block);
	if (!rc)
		rc = lt_gpu_pin(s);
	if (!rc)
		rc = s->gpu->ops->event_new(s->gpu->dev, &gt->landed, &s->err);
	if (rc)
		return rc;
	gt->words = gt->block;		/* zeroed */
	gt->staging = (uint8_t *)gt->block + words;
	place_runs(s, gt);
	return 0;
}

static void drop(tally_session *s, struct lt_gpu_tensor *gt)
{
	if (gt->landed)
		s->gpu->ops->event_free(s->gpu->dev, gt->landed);
	if (gt->block)
		lt_arena_put(&s->arena, gt->block);
	lt_mem_free(gt->posts);
	lt_mem_free(gt);
}

static int prepare(tally_session *s, struct tally_tensor *t)
{
	struct lt_gpu_tensor *gt;
	int rc;

	if (t->gpu)
		return lt_gpu_pin(s);
	gt = lt_mem_new(1, sizeof(*gt));
	if (!gt)
		return err_set(&s->err, TALLY_ENOMEM, "no memory for a tensor on a GPU");
	gt->tensor = t;
	list_init(&gt->link);
	cut(gt, s->gpu->nroots);
	rc = fill(s, gt);
	if (rc) {
		drop(s, gt);
		return rc;
	}
	t->gpu = gt;
	pthread_mutex_lock(&s->gpu->lock);
	list_add(&s->gpu->tensors, &gt->link);
	pthread_mutex_unlock(&s->gpu->lock);
	return 0;
}

void lt_gpu_tensor_free(tally_session *s, struct tally_tensor *t)
{
	struct lt_gpu_tensor *gt = t->gpu;

	if (!gt)
		return;
	/* the result may be there while who posted the last run is about to note that */
	pthread_mutex_lock(&s->sub_lock);
	pthread_mutex_unlock(&s->sub_lock);
	pthread_mutex_lock(&s->gpu->lock);
	list_del(&gt->link);
	pthread_mutex_unlock(&s->gpu->lock);
	t->gpu = NULL;
	drop(s, gt);
}

/* ---- on the lanes ---- */

static int post_run(struct lt_gpu_post *p)
{
	int rc;

	pthread_mutex_lock(&p->session->sub_lock);
	rc = lt_round_post(p->session, &p->sub);
	if (!rc)
		p->posted = p->sub.round;
	pthread_mutex_unlock(&p->session->sub_lock);
	return rc;
}

/* The driver's: the run is in the arena.  A full ring has room soon, the agent sees to it, or the
 * next one. */
static void post(void *arg)
{
	struct lt_gpu_post *p = arg;

	if (p->at)
		*p->at = lt_now();
	while (post_run(p) && !p->session->gpu->broken)
		lt_gpu_doze();
}

/*
 * The driver reads memory that is not pinned when it is told to copy it, which is before the lane
 * comes to that.  The input is not needed when the result is there.
 */
static void take(void *arg)
{
	const struct lt_gpu_take *t = arg;

	memcpy(t->to, t->from, t->bytes);
}

static void note(void *arg)
{
	*(_Atomic mono_t *)arg = lt_now();
}

struct flight {				/* of one round */
	const struct gpu_plugin *ops;
	struct lt_gpu *g;
	struct lt_gpu_tensor *gt;
	const uint8_t *in;
	uint8_t *out;
	enum dtype dtype;
	uint32_t from, to;		/* runs of the step */
	uint32_t posts;			/* of this rank that are on the lane */
	uint32_t results;		/* the same, on the way back */
	bool timed;
	struct err *e;
};

static uint64_t at(const struct flight *f, uint32_t run)
{
	return (uint64_t)run * f->gt->geom.chunk_bytes;
}

static size_t elements(const struct flight *f, uint32_t run)
{
	return geom_chunk_len(&f->gt->geom, run) / dtype_bytes((uint8_t)f->dtype);
}

static bool mine(const struct flight *f, uint32_t run)
{
	return root_of(f->g, f->gt, run) == f->g->me;
}

static bool scatters(const struct flight *f)
{
	return f->g->scatter && f->to - f->from == f->g->members &&
	       geom_chunk_len(&f->gt->geom, f->to - 1) == f->gt->geom.chunk_bytes;
}

/* The step's runs, for a reduction or a broadcast. */
static uint32_t parts(const struct flight *f, const uint8_t *in, struct gpu_part *p)
{
	uint32_t n = 0;

	for (uint32_t r = f->from; r < f->to; r++)
		p[n++] = (struct gpu_part){
			.in = in + at(f, r), .out = f->out + at(f, r),
			.count = elements(f, r), .root = root_of(f->g, f->gt, r),
		};
	return n;
}

static int sum_up(const struct flight *f)
{
	struct gpu_part p[LOCAL_RANKS_MAX];
	uint32_t n;

	if (scatters(f))
		return f->ops->reduce_scatter(f->g->dev, f->in + at(f, f->from),
					      f->out + at(f, f->from) + at(f, f->g->me),
					      elements(f, f->from), f->dtype, f->e);
	n = parts(f, f->in, p);
	return f->ops->reduce(f->g->dev, p, n, f->dtype, f->e);
}

static int spread(const struct flight *f)
{
	struct gpu_part p[LOCAL_RANKS_MAX];
	uint32_t n;

	if (scatters(f))
		return f->ops->all_gather(f->g->dev, f->out + at(f, f->from) + at(f, f->g->me),
					  f->out + at(f, f->from),
					  elements(f, f->from), f->dtype, f->e);
	n = parts(f, f->out, p);
	return f->ops->broadcast(f->g->dev, p, n, f->dtype, f->e);
}

/* Lets everything that lane `to` does from now on wait for what lane `from` holds. */
static int after(const struct flight *f, enum gpu_lane from, enum gpu_lane to)
{
	int rc = f->ops->record(f->g->dev, from, f->g->step, f->e);

	return rc ? rc : f->ops->wait(f->g->dev, to, f->g->step, f->e);
}

/* Notes the time when the lane has come so far. */
static int when(const struct flight *f, enum gpu_lane lane, _Atomic mono_t *time)
{
	return f->timed ? f->ops->call(f->g->dev, lane, note, time, f->e) : 0;
}

static int bring_out(struct flight *f, uint32_t run)
{
	int rc = f->posts ? 0 : when(f, GPU_OUT, &f->gt->times.out_begin);
	struct lt_gpu_post *p = &f->gt->posts[f->posts++];
	const uint8_t *from = f->g->members > 1 ? f->out : f->in;

	if (!rc)
		rc = f->ops->copy(f->g->dev, GPU_OUT, p->take[0].to, from + at(f, run),
				  p->sub.length, f->e);
	rc = rc ? rc : after(f, GPU_OUT, GPU_POST);
	return rc ? rc : f->ops->call(f->g->dev, GPU_POST, post, p, f->e);
}

static int bring_in(struct flight *f, uint32_t run)
{
	struct lt_gpu_tensor *gt = f->gt;
	struct lt_gpu_take *t = &gt->posts[f->results].take[gt->round & 1];
	const uint8_t *from = gt->reads ? gt->reads + gt->posts[f->results].sub.at : t->to;
	int rc = f->ops->await(f->g->dev, GPU_IN, &gt->words[run], lt_gpu_count(gt, run), f->e);

	if (!rc && !f->results++)
		rc = when(f, GPU_IN, &gt->times.in_begin);
	if (!rc && !gt->reads && t->from != t->to)
		rc = f->ops->call(f->g->dev, GPU_IN, take, t, f->e);
	return rc ? rc : f->ops->copy(f->g->dev, GPU_IN, f->out + at(f, run),
				      from, t->bytes, f->e);
}

static int step(struct flight *f)
{
	bool group = f->g->members > 1;
	int rc = group ? sum_up(f) : 0;

	rc = rc ? rc : after(f, GPU_REDUCE, GPU_OUT);
	for (uint32_t r = f->from; r < f->to && !rc; r++)
		rc = mine(f, r) ? bring_out(f, r) : 0;
	/* a result may be where the sum was, and that has been copied */
	rc = rc ? rc : after(f, GPU_OUT, GPU_IN);
	for (uint32_t r = f->from; r < f->to && !rc; r++)
		rc = mine(f, r) ? bring_in(f, r) : 0;
	if (!group)
		return rc;
	rc = rc ? rc : after(f, GPU_IN, GPU_SPREAD);
	return rc ? rc : spread(f);
}

static int take_off(struct flight *f)
{
	enum gpu_lane last = f->g->members > 1 ? GPU_SPREAD : GPU_IN;
	uint32_t width = f->g->members > 1 ? f->g->nroots : 1;
	/* out may still be on its way from the last round */
	int rc = f->ops->wait(f->g->dev, GPU_REDUCE, f->gt->landed, f->e);

	for (f->from = 0; f->from < f->gt->nruns && !rc; f->from = f->to) {
		f->to = MIN(f->from + width, f->gt->nruns);
		rc = step(f);
	}
	rc = rc || !f->results ? rc : when(f, GPU_IN, &f->gt->times.in_end);
	if (!rc && f->timed && last != GPU_IN)
		rc = after(f, GPU_IN, last);	/* landed is after that */
	rc = rc ? rc : when(f, last, &f->gt->times.landed);
	return rc ? rc : f->ops->record(f->g->dev, last, f->gt->landed, f->e);
}

/* ---- rounds ---- */

/*
 * Passes on the plugin's verdict on the user's stream: EINVAL is the user's error, all else
 * means that the GPU is broken.
 */
static int of_stream(tally_session *s, int rc, const struct err *e)
{
	if (rc != TALLY_EINVAL)
		return rc ? lt_gpu_broken(s, e) : 0;
	s->err = *e;
	return rc;
}

/* The same place of a result where it is pinned; NULL: it is not. */
static const uint8_t *pinned(const tally_session *s, const uint8_t *result)
{
	for (uint32_t i = 0; i < s->gpu->pinned_results; i++) {
		const struct slab *m = &s->results[i].mem;

		if ((uintptr_t)result - (uintptr_t)m->base < m->bytes)
			return s->gpu->result[i].base + (result - m->base);
	}
	return NULL;
}

static int open_round(tally_session *s, struct tally_tensor *t, struct ring_sub *sub,
		      tally_ticket *k)
{
	struct lt_gpu_tensor *gt = t->gpu;
	bool found = lt_arena_find(&s->arena, gt->words, gt->nruns * sizeof(uint32_t),
				   &sub->slab, &sub->offset);
	int rc;

	ASSERT(found);
	sub->part = PART_OPEN;
	sub->groups = (uint8_t)s->gpu->groups;
	sub->length = gt->nruns * sizeof(uint32_t);
	sub->run = gt->run;
	rc = lt_round_start(s, t, sub, k);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < gt->nposts; i++) {
		gt->posts[i].sub.round = t->round;
		gt->posts[i].sub.rop = sub->rop;
	}
	pthread_mutex_lock(&s->gpu->lock);
	gt->round = t->round;
	gt->rounds++;
	gt->since = lt_now();
	list_del(&gt->link);
	list_add(&s->gpu->tensors, &gt->link);
	pthread_mutex_unlock(&s->gpu->lock);
	gt->reads = pinned(s, t->result[t->round & 1]);
	gt->flying = true;
	gt->times = (struct lt_gpu_times){ 0 };
	return 0;
}

static bool overlap(const uint8_t *in, const uint8_t *out, uint64_t bytes)
{
	return in != out && in < out + bytes && out < in + bytes;
}

static int follow(tally_session *s, void *stream, struct err *e)
{
	int rc;

	lt_gpu_let(s);
	rc = s->gpu->ops->follow(s->gpu->dev, GPU_REDUCE, stream, s->gpu->step, e);
	lt_gpu_hold(s);
	return rc;
}

static int lead(tally_session *s, struct gpu_event *ev, void *stream, struct err *e)
{
	int rc;

	lt_gpu_let(s);
	rc = s->gpu->ops->lead(s->gpu->dev, ev, stream, e);
	lt_gpu_hold(s);
	return rc;
}

/*
 * With what it needs, at an agent that is there: one that has not heard of the round when it comes
 * puts its result where it has its own.
 */
static int get_ready(tally_session *s, struct tally_tensor *t)
{
	mono_t deadline = lt_now() + mono_ms(s->who.round_timeout_ms);
	int rc;

	do {
		rc = lt_session_live(s);
		if (!rc && s->away)
			rc = lt_back(s, deadline);
		if (rc == TALLY_EAGAIN)
			return lt_back_late(s);
		rc = rc ? rc : prepare(s, t);
	} while (!rc && s->away);
	return rc;
}

static int fly(tally_session *s, struct flight *f)
{
	int rc;

	lt_gpu_let(s);
	rc = take_off(f);
	lt_gpu_hold(s);
	return rc;
}

int tally_gpu_push_pull(tally_session *s, tally_tensor *t, const void *in, void *out,
			const tally_push_pull_options *opt, void *stream, tally_ticket *k)
{
	LT_CALL(s);
	struct ring_sub sub = { 0 };
	struct err e;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_round_check(s, t, k);
	if (rc)
		return rc;
	if (!s->gpu)
		return err_set(&s->err, TALLY_EINVAL, "no GPU was opened: tally_gpu_open()");
	if (!t->bytes)
		return tally_push_pull(s, t, NULL, NULL, opt, k);
	if (!in || !out)
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: no input or no output", t->name);
	if (overlap(in, out, t->bytes))
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: in and out overlap, and are not "
			       "the same", t->name);
	rc = lt_round_options(s, t, opt, &sub);
	rc = rc ? rc : of_stream(s, follow(s, stream, &e), &e);
	rc = rc ? rc : get_ready(s, t);
	if (!rc)
		rc = open_round(s, t, &sub, k);
	if (rc)
		return rc;
	struct flight f = {
		.ops = s->gpu->ops, .g = s->gpu, .gt = t->gpu, .in = in, .out = out,
		.dtype = t->dtype, .timed = s->timeline != NULL, .e = &e,
	};

	rc = fly(s, &f);
	if (!rc)
		return 0;
	err_wrap(&e, "round %u of tensor %s", t->round, t->name);
	return lt_gpu_broken(s, &e);
}

void lt_gpu_hand(tally_session *s, const struct tally_tensor *t)
{
	struct lt_gpu_tensor *gt = t->gpu;

	if (!gt || !gt->flying)
		return;
	pthread_mutex_lock(&s->sub_lock);
	for (uint32_t i = 0; i < gt->nposts; i++)
		gt->posts[i].handed = gt->posts[i].posted;
	pthread_mutex_unlock(&s->sub_lock);
}

/*
 * Sets the words of a tensor back by one round, so that all chunks of the round are counted
 * again, those that are known to be done, too.
 */
static void count_anew(const struct lt_gpu *g, struct lt_gpu_tensor *t)
{
	for (uint32_t r = 0; r < t->nruns && !g->broken; r++)
		atomic_store(&t->words[r], lt_gpu_count(t, r) - lt_gpu_chunks(t, r));
}

static int open_again(tally_session *s, struct lt_gpu_tensor *t)
{
	pthread_mutex_lock(&s->gpu->lock);
	count_anew(s->gpu, t);
	pthread_mutex_unlock(&s->gpu->lock);
	return lt_back_post(s, &t->tensor->sub);
}

static int again(tally_session *s, struct lt_gpu_tensor *t, bool handed)
{
	int rc = (t->tensor->handed == t->round) == handed ? open_again(s, t) : 0;

	for (uint32_t i = 0; i < t->nposts && !rc; i++)
		if (t->posts[i].posted == t->round && (t->posts[i].handed == t->round) == handed)
			rc = lt_back_post(s, &t->posts[i].sub);
	return rc;
}

/* In the order in which all ranks have started them.  Nobody else adds to the list, or takes
 * from it: only its rank does, in a call. */
int lt_gpu_again(tally_session *s, bool handed)
{
	int rc = 0;

	if (!s->gpu)
		return 0;
	s->gpu->moved = true;
	list_for_each(&s->gpu->tensors, l) {
		struct lt_gpu_tensor *t = list_entry(l, struct lt_gpu_tensor, link);

		if (!rc && t->flying && t->tensor->state == LT_FLYING)
			rc = again(s, t, handed);
	}
	return rc;
}

int lt_gpu_landed(tally_session *s, struct tally_tensor *t, mono_t deadline)
{
	struct err e = { 0 };
	int rc;

	if (!t->gpu)
		return 0;
	while ((rc = lt_gpu_done(s, t->gpu->landed, &e)) == TALLY_EAGAIN) {
		if (s->gpu->broken)
			return lt_gpu_live(s);
		if (!deadline || lt_now() >= deadline)
			return deadline ? TALLY_ETIMEDOUT : TALLY_EAGAIN;
		lt_gpu_doze();
		/* what is before it on its lane may wait for that */
		if ((s->away || lt_conn_gone(&s->conn)) && lt_back_look(s) != TALLY_EAGAIN)
			return s->over.code;
	}
	if (rc)
		return lt_gpu_broken(s, &e);
	return s->gpu->broken ? lt_gpu_live(s) : 0;
}

int lt_gpu_settle(tally_session *s, struct tally_tensor *t, mono_t deadline)
{
	int rc;

	if (!t->gpu || !t->gpu->let_go)
		return 0;
	if (!deadline)
		deadline = lt_now() + mono_ms(s->who.round_timeout_ms);
	rc = lt_round_await(s, t, deadline);
	lt_news_arm(s);			/* other rounds' ends may have been taken in */
	if (!rc && !t->code && s->timeline)
		rc = lt_gpu_landed(s, t, deadline);
	if (!rc && t->code)
		rc = err_set(&s->err, t->code, "round %u of tensor %s: %s", t->round, t->name,
			     err_help(t->code));
	if (rc == TALLY_ETIMEDOUT && !s->over.code)
		return err_set(&s->err, rc, "round %u of tensor %s, which a stream waits for, is "
			       "not done", t->round, t->name);
	lt_round_use_up(s, t);
	return rc;
}

int tally_gpu_wait(tally_session *s, tally_ticket k, void *stream)
{
	LT_CALL(s);
	struct tally_tensor *t;
	struct err e;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	if (rc)
		return rc;
	t = lt_round_of(s, k);
	if (!t || (t->gpu && t->gpu->let_go))
		return err_set(&s->err, TALLY_EINVAL, "ticket %#llx is used up, or never was one",
			       (unsigned long long)k);
	if (!t->gpu || !t->gpu->flying)
		return tally_wait(s, k, -1);
	rc = of_stream(s, lead(s, t->gpu->landed, stream, &e), &e);
	t->gpu->let_go = !rc;
	return rc;
}
