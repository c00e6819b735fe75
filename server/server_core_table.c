// SPDX-License-Identifier: Apache-2.0
/*
 * The tables of the server's core: jobs, tensors, peers come and go here, and
 * every invariant between them is checked here.  What frames do to them is in
 * server_core.c.
 */
#include "server/server_core.h"

#include <string.h>

void srv_init(struct srv_core *c)
{
	memset(c, 0, sizeof(*c));
	list_init(&c->jobs);
	list_init(&c->peers);
	fair_init(&c->out);
}

/* ---- jobs ---- */

size_t srv_job_size(uint32_t nmachines, uint32_t engines)
{
	return sizeof(struct srv_job) + nmachines * sizeof(struct srv_worker) +
	       (size_t)nmachines * engines * sizeof(struct srv_lane);
}

struct srv_job *srv_job_start(struct srv_core *c, void *mem, const struct srv_job_desc *d)
{
	struct srv_job *j = mem;

	ASSERT(d->n >= 1 && d->n <= AGENTS_PER_JOB_MAX);
	ASSERT(d->seg_bytes <= d->chunk_bytes && d->window_bytes >= d->seg_bytes);
	j->id = d->id;
	j->n = d->n;
	j->live = d->n;
	j->world = d->world;
	j->epoch = d->epoch;
	j->chunk_bytes = d->chunk_bytes;
	j->seg_bytes = d->seg_bytes;
	j->ask_limit = (d->part_bytes ? d->part_bytes : d->window_bytes) + d->seg_bytes -
		       PAGE_BYTES;
	list_init(&j->ask_wait);
	list_init(&j->tensors);
	for (uint32_t w = 0; w < d->n; w++) {
		j->worker[w].window_bytes = d->window_bytes;
		j->worker[w].engines = 1;
	}
	j->owner = d->user;
	srv_lanes_init(j, (struct srv_lane *)&j->worker[d->n], d->engines);
	fair_join(&c->out, &j->flow, d->user);
	list_add(&c->jobs, &j->link);
	return j;
}

struct srv_job *srv_job_find(struct srv_core *c, uint32_t id)
{
	list_for_each(&c->jobs, l) {
		struct srv_job *j = list_entry(l, struct srv_job, link);

		if (j->id == id)
			return j;
	}
	return NULL;
}

void srv_job_shrink(struct srv_core *c, struct srv_job *j, const bool *lost, uint32_t world)
{
	for (uint32_t w = 0; w < j->n; w++) {
		if (lost[w] == bits_test(j->out, w))
			continue;
		if (lost[w])
			bits_set(j->out, w);
		else
			bits_clear(j->out, w);	/* come back, with nothing of the world before */
		if (!lost[w])		/* and an empty window, but for what lands there yet */
			j->worker[w].late = j->worker[w].landing;
		j->live += lost[w] ? -1u : 1;
	}
	j->world = MUTATE(22) ? j->world : world;
	list_for_each(&j->tensors, l) {
		struct srv_tensor *t = list_entry(l, struct srv_tensor, link);

		t->stale = true;
		for (uint32_t k = 0; k < t->nsegs; k++)
			srv_ask_end(&t->seg[k]);
	}
	srv_ask_pump(c, j);
}

/* The job stays findable, so that what is borrowed finds its way back. */
void srv_job_stop(struct srv_core *c, struct srv_job *j)
{
	j->stopped = true;
	list_for_each(&j->tensors, l)
		srv_tensor_remove(c, list_entry(l, struct srv_tensor, link));
}

void srv_job_forget(struct srv_core *c, struct srv_job *j)
{
	(void)c;
	ASSERT(j->stopped && !j->borrowed && list_empty(&j->tensors));
	srv_lanes_fini(j);
	fair_leave(&j->flow);
	list_del(&j->link);
}

/* ---- tensors ---- */

/* A job's tensors are numbered one after the other: so are their places here, and a step
 * that goes through all of them goes through the table from end to end. */
static uint32_t bucket_of(uint32_t job, uint32_t id)
{
	return (job * 0x9e3779b1u + id) & (SRV_BUCKETS - 1);
}

static bool has_chunk(const struct srv_tensor *t, uint32_t chunk)
{
	return chunk < t->nchunks && t->first[chunk] != SRV_NO_SEG;
}

struct srv_tensor *srv_tensor_find(struct srv_core *c, uint32_t job, uint32_t id, uint32_t chunk,
				   uint32_t epoch)
{
	struct srv_tensor *t = c->bucket[bucket_of(job, id)];

	while (t && (t->id != id || t->job->id != job ||
		     (t->epoch != epoch && !MUTATE(1)) || !has_chunk(t, chunk)))
		t = t->hash_next;
	return t;
}

bool srv_tensor_moved(const struct srv_core *c, uint32_t job, uint32_t id, uint32_t chunk,
		      uint32_t epoch)
{
	const struct srv_tensor *t = c->bucket[bucket_of(job, id)];

	while (t && (t->id != id || t->job->id != job || t->epoch == epoch ||
		     !has_chunk(t, chunk)))
		t = t->hash_next;
	return t;
}

bool srv_gone_on(const struct srv_core *c, const struct srv_in *in, uint32_t worker)
{
	const struct srv_seg *s = in->seg;
	const struct srv_tensor *old = s->tensor, *t = c->bucket[bucket_of(old->job->id, old->id)];

	for (; t && old->stale; t = t->hash_next)
		if (t->id == old->id && t->job == old->job && t->epoch > old->epoch &&
		    has_chunk(t, s->chunk) &&
		    t->seg[t->first[s->chunk] + s->offset / t->geom.seg_bytes].in[worker].by_ref)
			return true;
	return false;
}

/* Segments of this engine's chunks, and the page-aligned bytes of their results. */
static uint32_t count_segs(const struct srv_tensor_desc *d, uint64_t *slot_bytes)
{
	uint32_t nsegs = 0;

	*slot_bytes = 0;
	for (uint32_t ch = 0; ch < geom_chunks(&d->geom); ch++) {
		if (!d->mine[ch])
			continue;
		nsegs += geom_chunk_segs(&d->geom, ch);
		*slot_bytes += align_up(geom_chunk_len(&d->geom, ch), PAGE_BYTES);
	}
	return nsegs;
}

size_t srv_tensor_size(uint32_t nmachines, const struct srv_tensor_desc *d, uint64_t *slot_bytes)
{
	size_t nsegs = count_segs(d, slot_bytes);

	return sizeof(struct srv_tensor) + nsegs * sizeof(struct srv_seg) +
	       nsegs * nmachines * sizeof(struct srv_in) + geom_chunks(&d->geom) * sizeof(uint32_t);
}

static void seg_init(struct srv_seg *s, struct srv_tensor *t, uint32_t chunk, uint32_t offset,
		     uint8_t *own, struct srv_in *in)
{
	s->tensor = t;
	s->chunk = chunk;
	s->offset = offset;
	s->len = geom_seg_len(&t->geom, chunk, offset);
	s->own = s->result = own;
	s->in = in;
	list_init(&s->ask);
	for (uint32_t w = 0; w < t->job->n; w++) {
		list_init(&in[w].out);
		in[w].seg = s;
	}
}

struct srv_tensor *srv_tensor_add(struct srv_core *c, struct srv_job *j, void *mem,
				  uint8_t *slots, const struct srv_tensor_desc *d)
{
	struct srv_tensor *t = mem, **head = &c->bucket[bucket_of(j->id, d->id)];
	struct srv_in *in;
	uint64_t slot_bytes;
	uint32_t k = 0;

	t->job = j;
	t->id = d->id;
	t->epoch = d->epoch ? d->epoch : j->epoch;
	t->dtype = d->dtype;
	t->geom = d->geom;
	t->nchunks = geom_chunks(&d->geom);
	t->nsegs = count_segs(d, &slot_bytes);
	t->seg = (struct srv_seg *)(t + 1);
	in = (struct srv_in *)(t->seg + t->nsegs);
	t->first = (uint32_t *)(in + (size_t)t->nsegs * j->n);
	for (uint32_t ch = 0; ch < t->nchunks; ch++) {
		t->first[ch] = SRV_NO_SEG;
		if (!d->mine[ch])
			continue;
		t->first[ch] = k;
		for (uint32_t off = 0; off < geom_chunk_len(&d->geom, ch);
		     off += d->geom.seg_bytes) {
			seg_init(&t->seg[k], t, ch, off, slots + off, in + (size_t)k * j->n);
			t->seg[k++].young = d->young;
		}
		slots += align_up(geom_chunk_len(&d->geom, ch), PAGE_BYTES);
	}
	ASSERT(k == t->nsegs);
	list_add(&j->tensors, &t->link);
	t->hash_next = *head;
	*head = t;
	return t;
}

/* Ends what a segment gathers and what it still has to send. */
static void seg_end(struct srv_seg *s)
{
	srv_ask_end(s);
	for (uint32_t w = 0; w < s->tensor->job->n; w++) {
		struct srv_in *in = &s->in[w];

		if (in->state != IN_LANDING)	/* landed() or seg_gone() ends that */
			srv_unpark(in, w);
		in->wants = in->again = false;
		srv_todo_drop(in, 0xff);
	}
	s->wants = 0;
}

void srv_tensor_remove(struct srv_core *c, struct srv_tensor *t)
{
	if (t->removed)
		return;
	t->removed = true;
	for (uint32_t k = 0; k < t->nsegs; k++)
		seg_end(&t->seg[k]);
	srv_ask_pump(c, t->job);
}

void srv_tensor_forget(struct srv_core *c, struct srv_tensor *t)
{
	struct srv_tensor **at = &c->bucket[bucket_of(t->job->id, t->id)];

	ASSERT(t->removed && !t->borrowed);
	while (*at != t)
		at = &(*at)->hash_next;
	*at = t->hash_next;
	list_del(&t->link);
}

void srv_tensor_leave(struct srv_core *c, struct srv_tensor *t, const bool *chunks)
{
	for (uint32_t k = 0; k < t->nsegs; k++) {
		if (!chunks[t->seg[k].chunk])
			continue;
		t->seg[k].leaving = true;
		srv_ask_end(&t->seg[k]);	/* the askable have gone where it goes */
	}
	srv_ask_pump(c, t->job);
}

void srv_tensor_settled(struct srv_core *c, struct srv_tensor *t)
{
	(void)c;
	for (uint32_t k = 0; k < t->nsegs; k++)
		t->seg[k].left = t->seg[k].leaving;
}

/*
 * No frame finds it any more, nor landed().  What lands for it does so in a worker's window,
 * which is the job's, and counts there: not in the segment's own memory.
 */
static void seg_gone(struct srv_seg *s)
{
	s->tensor->first[s->chunk] = SRV_NO_SEG;
	for (uint32_t w = 0; w < s->tensor->job->n; w++)
		if (s->in[w].state == IN_LANDING)
			s->in[w].state = IN_NONE;
}

bool srv_tensor_left(struct srv_core *c, struct srv_tensor *t)
{
	bool all = true;

	(void)c;
	for (uint32_t k = 0; k < t->nsegs; k++) {
		struct srv_seg *s = &t->seg[k];

		if (!s->left)
			continue;
		seg_end(s);
		all &= !s->lent;
	}
	for (uint32_t k = 0; all && k < t->nsegs; k++)
		if (t->seg[k].left)
			seg_gone(&t->seg[k]);
	return all;
}

bool srv_tensor_empty(const struct srv_tensor *t)
{
	for (uint32_t ch = 0; ch < t->nchunks; ch++)
		if (t->first[ch] != SRV_NO_SEG)
			return false;
	return true;
}

static bool within(const uint8_t *p, const uint8_t *base, uint64_t bytes)
{
	return p >= base && p < base + bytes;
}

bool srv_job_uses(const struct srv_job *j, const uint8_t *base, uint64_t bytes)
{
	list_for_each(&j->tensors, l) {
		const struct srv_tensor *t = list_entry(l, struct srv_tensor, link);

		for (uint32_t k = 0; k < t->nsegs; k++)
			if (within(t->seg[k].result, base, bytes))
				return true;
		for (size_t i = 0; i < (size_t)t->nsegs * j->n; i++)
			if (within(t->seg->in[i].data, base, bytes) ||
			    within(t->seg->in[i].result_at, base, bytes))
				return true;
	}
	return false;
}

/* ---- peers ---- */

static uint32_t turn_of(const struct srv_core *c, const struct list *l)
{
	return srv_turn(c, list_entry(l, struct srv_peer, link));
}

static void put_in_turn(struct srv_core *c, struct srv_peer *p)
{
	struct list *at = c->peers.next;

	while (at != &c->peers && turn_of(c, at) <= turn_of(c, &p->link))
		at = at->next;
	list_add(at, &p->link);
}

void srv_peer_init(struct srv_core *c, struct srv_peer *p, uint32_t node, uint32_t engine)
{
	memset(p, 0, sizeof(*p));
	p->node = node;
	p->engine = engine;
	fair_init(&p->lanes);
	p->lanes.credit = c->out.credit;
	put_in_turn(c, p);
}

void srv_begin_with(struct srv_core *c, uint32_t node)
{
	struct list *first = c->peers.next;

	c->first_node = node;
	list_for_each(&c->peers, l)
		if (turn_of(c, l) < turn_of(c, first))
			first = l;
	list_del(&c->peers);
	list_add(first, &c->peers);	/* the ring is the same, and begins elsewhere */
}

static void tensor_forget_peer(struct srv_tensor *t, const struct srv_peer *p)
{
	for (size_t i = 0; i < (size_t)t->nsegs * t->job->n; i++) {
		struct srv_in *in = &t->seg->in[i];

		if (in->peer != p)
			continue;
		srv_todo_drop(in, 0xff);
		in->peer = NULL;
	}
}

void srv_peer_lost(struct srv_core *c, struct srv_peer *p)
{
	p->nrefusals = 0;
	list_for_each(&c->jobs, lj) {
		struct srv_job *j = list_entry(lj, struct srv_job, link);

		list_for_each(&j->tensors, lt)
			tensor_forget_peer(list_entry(lt, struct srv_tensor, link), p);
	}
	srv_lanes_lost(c, p);
}

/*
 * Resets a contribution of an agent that was started again: it pushes again what it has, from
 * inputs that its ranks have kept. A segment that was being asked for still is: others may have
 * been told so, and wait for it with their windows full.
 */
static void in_anew(struct srv_core *c, struct srv_in *in, uint32_t worker)
{
	struct srv_seg *s = in->seg;

	ASSERT(in->state != IN_LANDING);
	c->count.let_go += in->state == IN_PARKED;
	if (in->state != IN_NONE && !s->asking)
		list_del(&s->ask);
	srv_unpark(in, worker);
	if (in->todo)
		srv_todo_drop(in, 0xff);
	srv_let_go(in);
	in->peer = NULL;
	in->attempt = 0;
	in->probes = 0;
	in->told = in->by_ref = in->again = false;
	in->result_at = NULL;
}

static void worker_anew(struct srv_core *c, struct srv_job *j, uint32_t worker, uint32_t engine)
{
	list_for_each(&j->tensors, l) {
		struct srv_tensor *t = list_entry(l, struct srv_tensor, link);

		for (uint32_t k = 0; k < t->nsegs && !t->removed; k++)
			if (geom_shard(t->id, t->seg[k].chunk, j->worker[worker].engines) == engine)
				in_anew(c, &t->seg[k].in[worker], worker);
	}
}

void srv_peer_anew(struct srv_core *c, struct srv_peer *p)
{
	p->nrefusals = 0;
	list_for_each(&c->jobs, l) {
		struct srv_job *j = list_entry(l, struct srv_job, link);

		for (uint32_t w = 0; w < j->n && !j->stopped; w++)
			if (j->worker[w].node == p->node && !MUTATE(26))
				worker_anew(c, j, w, p->engine);
	}
}

void srv_peer_fini(struct srv_peer *p)
{
	ASSERT(list_empty(&p->lanes.users));
	list_del(&p->link);
}

bool srv_busy(const struct srv_core *c)
{
	list_for_each(&c->jobs, l) {
		const struct srv_job *j = list_entry(l, struct srv_job, link);

		if (!j->stopped && (j->parked || j->borrowed))
			return true;
	}
	list_for_each(&c->peers, l) {
		if (srv_first(list_entry(l, struct srv_peer, link)))
			return true;
	}
	return false;
}

/* ---- invariants ---- */

static uint32_t check_seg(const struct srv_seg *s, uint64_t parked_bytes[], uint64_t *asked)
{
	uint32_t n = s->tensor->job->n, parked = 0, offered = 0, wants = 0;

	for (uint32_t w = 0; w < n; w++) {
		const struct srv_in *in = &s->in[w];

		parked += in->state == IN_PARKED;
		offered += in->state == IN_OFFERED;
		wants += in->wants;
		parked_bytes[w] += in->state == IN_PARKED ? srv_window_use(in) : 0;
		ASSERT(list_empty(&in->out) == !in->todo);
		ASSERT(!in->todo || in->peer);
		/* Else nothing would say that it has landed. */
		ASSERT(in->state != IN_LANDING || has_chunk(s->tensor, s->chunk) ||
		       s->tensor->removed);
	}
	ASSERT(parked == s->parked && offered == s->offered);
	/* Else it would be complete. */
	ASSERT(parked < s->tensor->job->live || s->lent || s->tensor->stale);
	ASSERT(!s->asking || list_empty(&s->ask));
	ASSERT(parked ? s->rop != ROP_NONE : s->rop == ROP_NONE);
	ASSERT(wants == s->wants && (!wants || (s->young && s->known)));
	ASSERT(!s->giving || s->lent);
	*asked += s->asking ? srv_ask_cost(s) : 0;
	return parked;
}

void srv_check(const struct srv_core *c)
{
	srv_turns_check(c);
	list_for_each(&c->jobs, lj) {
		const struct srv_job *j = list_entry(lj, struct srv_job, link);
		uint64_t parked_bytes[AGENTS_PER_JOB_MAX] = { 0 }, asked = 0, parked = 0,
			 most = 0;

		list_for_each(&j->tensors, lt) {
			const struct srv_tensor *t = list_entry(lt, struct srv_tensor, link);

			for (uint32_t k = 0; k < t->nsegs; k++) {
				parked += check_seg(&t->seg[k], parked_bytes, &asked);
				most = MAX(most, srv_ask_cost(&t->seg[k]));
			}
		}
		ASSERT(asked == j->asked_bytes && parked == j->parked);
		/* One may be larger: it is asked for alone. */
		ASSERT(asked <= MAX(j->ask_limit, most));
		for (uint32_t w = 0; w < j->n; w++) {
			const struct srv_worker *wk = &j->worker[w];

			ASSERT(wk->parked_bytes == parked_bytes[w]);
			ASSERT(wk->parked_bytes <= wk->window_bytes);
		}
	}
}
