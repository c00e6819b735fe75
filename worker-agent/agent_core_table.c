// SPDX-License-Identifier: Apache-2.0
/*
 * The tables of the agent's core: peers, jobs, tensors come and go here, and
 * every invariant between them is checked here.  What rounds and frames do to
 * them is in agent_core.c.
 */
#include "worker-agent/agent_core.h"

#include <string.h>

#include "common/base/bytes.h"

void ag_init(struct ag_core *c)
{
	memset(c, 0, sizeof(*c));
	list_init(&c->jobs);
	list_init(&c->done);
	list_init(&c->talk);
	fair_init(&c->links);
	fair_init(&c->alone);
	c->tx_limit = UINT64_MAX;
}

/* ---- peers ---- */

void ag_peer_init(struct ag_core *c, struct ag_peer *p, uint32_t node, uint32_t engine)
{
	memset(p, 0, sizeof(*p));
	p->core = c;
	list_init(&p->talk);
	p->node = node;
	p->engine = engine;
	p->tx_limit = UINT64_MAX;
	list_init(&p->todo);
}

static void each_route(struct ag_core *c, struct ag_peer *p,
		       void (*fn)(struct ag_core *, struct ag_route *))
{
	list_for_each(&c->jobs, lj) {
		struct ag_job *j = list_entry(lj, struct ag_job, link);

		list_for_each(&j->routes, lr) {
			struct ag_route *r = list_entry(lr, struct ag_route, link);

			if (r->peer == p)
				fn(c, r);
		}
	}
}

/* Pushes a segment again, into the same slot, since the first push may be lost. */
static void push_again(struct ag_core *c, struct ag_seg *s)
{
	if (s->state == SEG_CANCELLING || s->next) {
		ag_seg_recall(s);
		return;
	}
	list_del(&s->link);
	ag_todo_drop(s, AG_PROBE);
	c->count.repushes++;
	ag_seg_ready(s);
}

static void push_all_again(struct ag_core *c, struct ag_route *r)
{
	list_for_each_safe(&r->inflight, l, next)
		push_again(c, list_entry(l, struct ag_seg, link));
}

static void turn_out(struct ag_core *c, struct ag_route *r)
{
	(void)c;
	if (pheap_min(&r->ready))
		pheap_del(ag_turn_of(r), &r->turn);
}

static void turn_in(struct ag_core *c, struct ag_route *r)
{
	(void)c;
	if (pheap_min(&r->ready))
		pheap_add(ag_turn_of(r), &r->turn);
}

void ag_peer_up(struct ag_core *c, struct ag_peer *p, bool by_ref, mono_t now)
{
	(void)now;
	each_route(c, p, turn_out);
	p->by_ref = by_ref;
	each_route(c, p, turn_in);
	p->up = true;
	each_route(c, p, push_all_again);
}

static void heard_never(struct ag_core *c, struct ag_route *r)
{
	(void)c;
	list_for_each(&r->inflight, l) {
		struct ag_seg *s = list_entry(l, struct ag_seg, link);

		s->heard = 0;
		s->hurt = true;
	}
}

void ag_peer_hurt(struct ag_core *c, struct ag_peer *p)
{
	p->doubtful = true;
	each_route(c, p, heard_never);
}

void ag_peer_down(struct ag_core *c, struct ag_peer *p)
{
	(void)c;
	p->up = false;
	p->doubtful = true;
}

/* ---- jobs ---- */

bool ag_more_urgent(const struct ag_seg *a, const struct ag_seg *b)
{
	if (a->asked != b->asked)
		return a->asked;
	if (a->tensor->priority != b->tensor->priority)
		return a->tensor->priority > b->tensor->priority;
	if (a->tensor->seq != b->tensor->seq)
		return a->tensor->seq < b->tensor->seq;
	return a->order < b->order;
}

/*
 * Order of a route's queue: a segment that is pushed again has its room already and goes first.
 * Behind an asked one that finds none it would hold that room for ever, ready and not in flight,
 * so that nobody could take it back.
 */
static bool goes_first(const struct pheap_node *x, const struct pheap_node *y)
{
	const struct ag_seg *a = container_of(x, struct ag_seg, heap);
	const struct ag_seg *b = container_of(y, struct ag_seg, heap);

	if ((a->slot == UINT32_MAX) != (b->slot == UINT32_MAX))
		return a->slot != UINT32_MAX;
	return ag_more_urgent(a, b);
}

static uint32_t window_pages(uint64_t window_bytes)
{
	return (uint32_t)(window_bytes / PAGE_BYTES);
}

size_t ag_route_size(uint64_t window_bytes)
{
	return sizeof(struct ag_route) + BITS_WORDS(window_pages(window_bytes)) * sizeof(uint64_t);
}

struct ag_route *ag_route_init(void *mem, struct ag_peer *peer, uint64_t window_at,
			       uint64_t window_bytes, mono_t now)
{
	struct ag_route *r = mem;

	r->peer = peer;
	r->window_at = window_at;
	r->progress = now;
	list_init(&r->link);
	list_init(&r->aside);
	list_init(&r->waiting);
	list_init(&r->inflight);
	pheap_init(&r->ready, goes_first);
	pagemap_init(&r->window, (uint64_t *)(r + 1), window_pages(window_bytes));
	return r;
}

struct ag_job *ag_job_start(struct ag_core *c, void *mem, const struct ag_job_desc *d)
{
	struct ag_job *j = mem;

	ASSERT(d->n >= 1 && d->me < d->n && d->nlocal >= 1 && d->nroutes >= 1);
	j->id = d->id;
	j->n = d->n;
	j->me = d->me;
	j->nlocal = d->nlocal;
	j->live = UINT64_MAX >> (LOCAL_RANKS_MAX - d->nlocal);
	j->world = d->world;
	j->chunk_bytes = d->chunk_bytes;
	j->seg_bytes = d->seg_bytes;
	list_init(&j->tensors);
	list_init(&j->routes);
	fair_join(d->n == 1 ? &c->alone : &c->links, &j->flow, d->user);
	ag_turns_init(j->turn, AG_TURNS);
	ag_job_epoch(c, j, d->epoch, d->route, d->nroutes);
	list_add(&c->jobs, &j->link);
	return j;
}

struct ag_job *ag_job_find(struct ag_core *c, uint32_t id)
{
	list_for_each(&c->jobs, l) {
		struct ag_job *j = list_entry(l, struct ag_job, link);

		if (j->id == id)
			return j;
	}
	return NULL;
}

void ag_job_stop(struct ag_core *c, struct ag_job *j)
{
	j->stopped = true;
	list_for_each(&j->tensors, l)
		ag_tensor_remove(c, list_entry(l, struct ag_tensor, link));
	fair_leave(&j->flow);
}

void ag_job_forget(struct ag_core *c, struct ag_job *j)
{
	(void)c;
	ASSERT(j->stopped && !j->borrowed && list_empty(&j->tensors));
	list_del(&j->link);
}

/* ---- tensors ---- */

/* A job's tensors are numbered one after the other: so are their places here, and a step
 * that goes through all of them goes through the table from end to end. */
static uint32_t bucket_of(uint32_t job, uint32_t id)
{
	return (job * 0x9e3779b1u + id) & (AG_BUCKETS - 1);
}

struct ag_tensor *ag_tensor_find(struct ag_core *c, uint32_t job, uint32_t id)
{
	struct ag_tensor *t = c->bucket[bucket_of(job, id)];

	while (t && (t->id != id || t->job->id != job))
		t = t->hash_next;
	return t;
}

/* Whether engine `engine` of `engines` owns the chunk. */
static bool owns(const struct ag_tensor_desc *d, uint32_t chunk, uint32_t engine, uint32_t engines)
{
	return d->route[chunk] != AG_NO_SEG && geom_shard(d->id, chunk, engines) == engine;
}

static uint32_t count_segs(const struct ag_tensor_desc *d, uint32_t engine, uint32_t engines)
{
	uint32_t n = 0;

	for (uint32_t ch = 0; ch < geom_chunks(&d->geom); ch++)
		if (owns(d, ch, engine, engines))
			n += geom_chunk_segs(&d->geom, ch);
	return n;
}

static size_t tensor_head_size(uint32_t nlocal)
{
	return align_up(sizeof(struct ag_tensor) + nlocal * sizeof(struct ag_input), 64);
}

size_t ag_tensor_size_max(uint32_t nlocal, const struct geom *g, uint64_t nsegs)
{
	return tensor_head_size(nlocal) + nsegs * sizeof(struct ag_seg) +
	       geom_chunks(g) * (nlocal * sizeof(struct ag_piece) + sizeof(uint32_t));
}

size_t ag_tensor_size(const struct ag_job *j, const struct ag_tensor_desc *d)
{
	return ag_tensor_size_max(j->nlocal, &d->geom, count_segs(d, 0, 1));
}

static void seg_init(struct ag_seg *s, struct ag_tensor *t, struct ag_route *route, uint32_t epoch,
		     uint32_t chunk, uint32_t offset)
{
	s->tensor = t;
	s->route = route;
	s->route->users++;
	s->epoch = epoch;
	s->chunk = chunk;
	s->offset = offset;
	s->len = geom_seg_len(&t->geom, chunk, offset);
	s->order = route->numbered++;
	s->slot = s->late_slot = UINT32_MAX;
	list_init(&s->link);
	list_init(&s->todo_link);
}

/*
 * All agents push a server's segments in the same order and at the same pace, or sums
 * would be complete only at the end.  The pace: of `count` segments for one server the
 * k-th comes k / count into the tensor, so that any stretch of the queue loads all
 * servers as the plan does.  And agents take turns with the servers within a pace.
 */
static void put_in_order(struct ag_tensor *t, const uint32_t *route)
{
	const struct ag_job *j = t->job;

	for (uint32_t k = 0; k < t->nsegs; k++) {
		struct ag_seg *s = &t->seg[k];
		uint32_t turn = (route[s->chunk] + j->me) % j->n;
		uint64_t place = (uint64_t)s->order * j->n + turn;

		s->order = (uint32_t)((place << 31) / ((uint64_t)s->route->numbered * j->n));
	}
	for (uint32_t k = 0; k < t->nsegs; k++)
		t->seg[k].route->numbered = 0;
}

struct ag_tensor *ag_tensor_add(struct ag_core *c, struct ag_job *j, void *mem,
				const struct ag_tensor_desc *d)
{
	return ag_tensor_add_shard(c, j, mem, d, 0, 1);
}

struct ag_tensor *ag_tensor_add_shard(struct ag_core *c, struct ag_job *j, void *mem,
				      const struct ag_tensor_desc *d, uint32_t engine,
				      uint32_t engines)
{
	struct ag_tensor *t = mem, **head = &c->bucket[bucket_of(j->id, d->id)];
	uint32_t k = 0;

	t->job = j;
	t->id = d->id;
	t->dtype = d->dtype;
	t->geom = d->geom;
	t->nchunks = geom_chunks(&d->geom);
	t->nsegs = count_segs(d, engine, engines);
	t->sum = d->sum;
	t->sum_slot = d->sum_slot;
	for (int parity = 0; parity < 2; parity++) {
		t->result[parity] = d->result[parity];
		t->result_slot[parity] = d->result_slot[parity];
		t->mark[parity] = d->mark[parity];
	}
	t->nwas = d->nwas;
	t->was = d->was;
	t->seg = (struct ag_seg *)((char *)t + tensor_head_size(j->nlocal));
	t->piece = (struct ag_piece *)(t->seg + t->nsegs);
	t->first = (uint32_t *)(t->piece + t->nchunks * j->nlocal);
	list_init(&t->done_link);
	for (uint32_t ch = 0; ch < t->nchunks; ch++) {
		t->first[ch] = AG_NO_SEG;
		if (!owns(d, ch, engine, engines))
			continue;
		ASSERT(d->route[ch] < j->nroutes);
		t->first[ch] = k;
		for (uint32_t off = 0; off < geom_chunk_len(&t->geom, ch); off += t->geom.seg_bytes)
			seg_init(&t->seg[k++], t, j->route[d->route[ch]],
				 d->since ? d->since[ch] : j->epoch, ch, off);
	}
	put_in_order(t, d->route);
	ag_tensor_resume(t, d);
	list_add(&j->tensors, &t->link);
	t->hash_next = *head;
	*head = t;
	return t;
}

static void seg_drop(struct ag_seg *s)
{
	if (s->state == SEG_READY)
		ag_seg_unready(s);
	ag_todo_drop(s, 0xff);
	list_del(&s->link);
	ag_seg_free_slot(s, s->route->progress);
	s->state = SEG_IDLE;
	s->voided = false;
	s->route->users--;
	if (!s->next)
		return;
	s->next->users--;
	s->next = NULL;
	s->tensor->job->moving--;
}

void ag_tensor_remove(struct ag_core *c, struct ag_tensor *t)
{
	if (t->removed)
		return;
	t->removed = true;
	ag_set_running(c, t, false);
	list_del(&t->done_link);
	for (uint32_t k = 0; k < t->nsegs; k++)
		seg_drop(&t->seg[k]);
}

void ag_tensor_forget(struct ag_core *c, struct ag_tensor *t)
{
	struct ag_tensor **at = &c->bucket[bucket_of(t->job->id, t->id)];

	ASSERT(t->removed && !t->borrowed);
	while (*at != t)
		at = &(*at)->hash_next;
	*at = t->hash_next;
	list_del(&t->link);
}

/* ---- invariants ---- */

static void check_seg(const struct ag_seg *s, uint32_t *left)
{
	*left += s->state != SEG_DONE;
	ASSERT((s->state == SEG_IDLE || s->state == SEG_DONE) == list_empty(&s->link));
	ASSERT(!s->todo == list_empty(&s->todo_link));
	ASSERT(!s->todo || s->route->peer);
	ASSERT(s->state != SEG_DONE || s->slot == UINT32_MAX);
	ASSERT(s->late_slot == UINT32_MAX || (s->lent && s->slot == UINT32_MAX));
	ASSERT(s->state != SEG_IDLE || !ag_all_gave(s) || !s->tensor->running);
	ASSERT(!s->voided || s->state == SEG_PUSHED || s->state == SEG_CANCELLING);
	ASSERT(!s->next || s->state == SEG_PUSHED || s->state == SEG_CANCELLING);
	ASSERT(!s->route->gone || s->tensor->removed);
	ASSERT(s->slot == UINT32_MAX || s->held || s->state == SEG_READY);
}

/* In the heap of its kind, where it has something to push, and in no other. */
static void check_turn(const struct ag_route *r)
{
	const struct pheap *mine = ag_turn_of(r);
	bool in = r->turn.prev || pheap_min(mine) == &r->turn;

	ASSERT(in == (pheap_min(&r->ready) != NULL));
	for (uint32_t i = 0; i < AG_TURNS; i++)
		ASSERT(&r->job->turn[i] == mine || pheap_min(&r->job->turn[i]) != &r->turn);
}

/* Jobs with something to push, or to sum, have their turn. */
static void check_ready(const struct ag_core *c)
{
	fair_check(&c->links);
	fair_check(&c->alone);
	list_for_each(&c->jobs, l) {
		const struct ag_job *j = list_entry(l, struct ag_job, link);
		uint32_t ready = 0;

		list_for_each(&j->routes, lr) {
			const struct ag_route *r = list_entry(lr, struct ag_route, link);

			list_for_each(&r->waiting, lw)
				ready++;
		}
		ASSERT(j->nready == ready && (!j->flow.of || fair_awake(&j->flow) == (ready > 0)));
	}
}

static void check_route(const struct ag_job *j, const struct ag_route *r)
{
	uint32_t pages = 0, users = 0;

	list_for_each(&j->tensors, l) {
		const struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

		for (uint32_t k = 0; k < t->nsegs; k++) {
			const struct ag_seg *s = &t->seg[k];
			bool late = s->late_slot != UINT32_MAX && s->late_route == r;

			if (late || (s->route == r && s->slot != UINT32_MAX))
				pages += (uint32_t)div_round_up(s->len, PAGE_BYTES);
			if (!t->removed)
				users += (s->route == r) + (s->next == r);
		}
	}
	ASSERT(pages == r->window.used);
	ASSERT(users == r->users);
	check_turn(r);
}

static uint32_t count_moving(const struct ag_tensor *t)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < t->nsegs; k++)
		n += t->seg[k].next != NULL;
	return n;
}

void ag_check(const struct ag_core *c)
{
	uint32_t open = 0;

	list_for_each(&c->jobs, lj) {
		const struct ag_job *j = list_entry(lj, struct ag_job, link);
		uint32_t moving = 0;

		list_for_each(&j->tensors, lt) {
			const struct ag_tensor *t = list_entry(lt, struct ag_tensor, link);
			uint32_t left = 0;

			for (uint32_t k = 0; k < t->nsegs; k++)
				check_seg(&t->seg[k], &left);
			open += t->running;
			ASSERT(!t->running || left == t->left);
			ASSERT(t->borrowed <= j->borrowed);
			moving += count_moving(t);
		}
		ASSERT(moving == j->moving);
		list_for_each(&j->routes, lr)
			check_route(j, list_entry(lr, struct ag_route, link));
	}
	ASSERT(open == c->open);
	check_ready(c);
}
