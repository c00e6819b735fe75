// SPDX-License-Identifier: Apache-2.0
/*
 * place.c - the map: chunk -> server, the same answer for everybody.
 *
 * All three ways to change the map are one: take chunks off servers (none, the
 * lost ones, the excess), then place what has no owner.  Placing has two passes.
 *
 * Full chunks, in declaration order.  A server is ready for one more when that
 * leaves it less than a chunk over its weight of what is placed by then; of
 * those ready, the one that falls behind first (earliest deadline) takes it.
 * That is fair queueing, WF2Q, or Tijdeman's chairman assignment: nobody is ever
 * a whole chunk ahead, and consecutive chunks are spread as evenly as the
 * weights allow.  Some server is always ready, since all lie on average at
 * their weight.
 *
 * Then the tails: the last, shorter chunk of a tensor, or a small tensor.  The
 * final total is known now, so each, largest first, goes to the server that
 * lacks most of it.  The most is at least the average, which is not negative
 * before and positive with the tail itself: again nobody gets a tail ahead.
 *
 * Bytes are compared in units of bytes * weight, in 128 bits: at most 2^16
 * tensors of 2^36 bytes times 2^11 weights of 2^32 is 2^95.
 */
#include "common/place/place.h"

typedef bool before_fn(const struct place *p, uint16_t a, uint16_t b);

/* ---- who comes first ---- */

static int order_of(__int128 a, __int128 b)
{
	return (a > b) - (a < b);
}

/* Which of a and b has `extra` more than it has, first for its weight. */
static bool sooner(const struct place *p, uint16_t a, uint16_t b, uint64_t extra)
{
	const struct place_server *x = &p->server[a], *y = &p->server[b];
	int c = order_of((__int128)(x->assigned_bytes + extra) * y->weight,
			 (__int128)(y->assigned_bytes + extra) * x->weight);

	return c ? c < 0 : a < b;
}

static bool start_before(const struct place *p, uint16_t a, uint16_t b)
{
	return sooner(p, a, b, 0);
}

static bool deadline_before(const struct place *p, uint16_t a, uint16_t b)
{
	return sooner(p, a, b, p->chunk_bytes);
}

/* Bytes that server i lacks of its weight of `total` bytes, times the sum of the weights. */
static __int128 lacks(const struct place *p, uint16_t i, uint64_t total)
{
	const struct place_server *s = &p->server[i];

	return (__int128)total * s->weight - (__int128)s->assigned_bytes * p->weight_sum;
}

static bool lacks_before(const struct place *p, uint16_t a, uint16_t b)
{
	int c = order_of(lacks(p, a, p->total_bytes), lacks(p, b, p->total_bytes));

	return c ? c > 0 : a < b;
}

/* ---- heaps of servers ---- */

static void sift_down(const struct place *p, struct place_heap *h, uint32_t i,
		      before_fn *before)
{
	for (;;) {
		uint32_t child = 2 * i + 1;
		uint16_t t;

		if (child >= h->len)
			return;
		if (child + 1 < h->len && before(p, h->at[child + 1], h->at[child]))
			child++;
		if (before(p, h->at[i], h->at[child]))
			return;
		t = h->at[i];
		h->at[i] = h->at[child];
		h->at[child] = t;
		i = child;
	}
}

static void heap_push(const struct place *p, struct place_heap *h, uint16_t s,
		      before_fn *before)
{
	uint32_t i = h->len++;

	while (i > 0 && before(p, s, h->at[(i - 1) / 2])) {
		h->at[i] = h->at[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h->at[i] = s;
}

static uint16_t heap_pop(const struct place *p, struct place_heap *h, before_fn *before)
{
	uint16_t s = h->at[0];

	h->at[0] = h->at[--h->len];
	sift_down(p, h, 0, before);
	return s;
}

/* All servers that have a weight. */
static void heap_fill(const struct place *p, struct place_heap *h, before_fn *before)
{
	h->len = 0;
	for (uint32_t i = 0; i < p->nservers; i++)
		if (p->server[i].weight > 0)
			h->at[h->len++] = (uint16_t)i;
	for (uint32_t i = h->len / 2; i-- > 0;)
		sift_down(p, h, i, before);
}

/* ---- chunks ---- */

static uint64_t chunk_len(const struct place *p, const struct place_tensor *t, uint32_t chunk)
{
	uint64_t left = t->bytes - (uint64_t)chunk * p->chunk_bytes;

	return MIN(left, p->chunk_bytes);
}

static void give(struct place *p, uint16_t server, uint64_t len)
{
	p->server[server].assigned_bytes += len;
	p->placed_bytes += len;
}

static void take(struct place *p, uint16_t server, uint64_t len)
{
	ASSERT(server < p->nservers && p->server[server].assigned_bytes >= len);
	p->server[server].assigned_bytes -= len;
	p->placed_bytes -= len;
}

static void own(const struct place *p, struct place_tensor *t, uint64_t chunk, uint16_t server)
{
	t->owner[chunk] = server;
	if (t->since)
		t->since[chunk] = p->epoch;
}

/* ---- placing what has no owner ---- */

static void fill_for_full(struct place *p)
{
	heap_fill(p, &p->waiting, start_before);
	p->ready.len = 0;
}

/* The server for the next full chunk, taken off the heaps and put back. */
static uint16_t next_for_full(struct place *p)
{
	uint64_t after = p->placed_bytes + p->chunk_bytes;
	uint16_t s;

	while (p->waiting.len > 0 && lacks(p, p->waiting.at[0], after) > 0)
		heap_push(p, &p->ready, heap_pop(p, &p->waiting, start_before),
			  deadline_before);
	ASSERT(p->ready.len > 0);
	s = heap_pop(p, &p->ready, deadline_before);
	give(p, s, p->chunk_bytes);
	heap_push(p, &p->waiting, s, start_before);
	return s;
}

static void place_full(struct place *p, struct place_tensor *t, uint32_t count)
{
	bool filled = false;	/* a heap costs more than a batch of small tensors */

	for (uint32_t i = 0; i < count; i++) {
		uint64_t full = t[i].bytes / p->chunk_bytes;

		for (uint64_t c = 0; c < full; c++) {
			if (t[i].owner[c] != PLACE_NOWHERE)
				continue;
			if (!filled)
				fill_for_full(p);
			filled = true;
			own(p, &t[i], c, next_for_full(p));
		}
	}
}

static uint64_t tail_len(const struct place *p, const struct place_tensor *t)
{
	return t->bytes % p->chunk_bytes;
}

static uint64_t tail(const struct place *p, const struct place_tensor *t)
{
	return t->bytes / p->chunk_bytes;
}

/* Whether tensor a's tail is placed after tensor b's: smaller, or declared later. */
static bool tail_after(const struct place *p, const struct place_tensor *t, uint32_t a,
		       uint32_t b)
{
	uint64_t la = tail_len(p, &t[a]), lb = tail_len(p, &t[b]);

	return la != lb ? la < lb : a > b;
}

static void sift_tail(const struct place *p, struct place_tensor *t, uint32_t i, uint32_t len)
{
	for (;;) {
		uint32_t child = 2 * i + 1, swap;

		if (child >= len)
			return;
		if (child + 1 < len && tail_after(p, t, t[child + 1].order, t[child].order))
			child++;
		if (!tail_after(p, t, t[child].order, t[i].order))
			return;
		swap = t[i].order;
		t[i].order = t[child].order;
		t[child].order = swap;
		i = child;
	}
}

/*
 * Lists the tensors whose tails have no owner in t[0..].order, in the order of
 * placing, and returns how many.  A heap sort: in place, and no callback that
 * would need the environment of qsort.
 */
static uint32_t list_tails(const struct place *p, struct place_tensor *t, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++)
		if (tail_len(p, &t[i]) && t[i].owner[tail(p, &t[i])] == PLACE_NOWHERE)
			t[n++].order = i;
	for (uint32_t i = n / 2; i-- > 0;)
		sift_tail(p, t, i, n);
	for (uint32_t end = n; end-- > 1;) {
		uint32_t last = t[0].order;

		t[0].order = t[end].order;
		t[end].order = last;
		sift_tail(p, t, 0, end);
	}
	return n;
}

static void place_tails(struct place *p, struct place_tensor *t, uint32_t count)
{
	uint32_t n = list_tails(p, t, count);

	if (n > 0)
		heap_fill(p, &p->ready, lacks_before);
	for (uint32_t i = 0; i < n; i++) {
		struct place_tensor *x = &t[t[i].order];

		own(p, x, tail(p, x), p->ready.at[0]);
		give(p, p->ready.at[0], tail_len(p, x));
		sift_down(p, &p->ready, 0, lacks_before);
	}
}

static void place_missing(struct place *p, struct place_tensor *t, uint32_t count)
{
	if (p->weight_sum == 0)
		return;
	place_full(p, t, count);
	place_tails(p, t, count);
}

/* ---- what the others call ---- */

void place_init(struct place *p, uint32_t chunk_bytes)
{
	ASSERT(chunk_bytes > 0);
	*p = (struct place){ .chunk_bytes = chunk_bytes };
}

uint32_t place_chunks(const struct place *p, uint64_t bytes)
{
	return (uint32_t)div_round_up(bytes, p->chunk_bytes);
}

static void set_weight(struct place *p, uint32_t server, uint32_t weight)
{
	p->weight_sum -= p->server[server].weight;
	p->server[server].weight = weight;
	p->weight_sum += weight;
}

int place_start(struct place *p, const uint32_t *weight, uint32_t nservers, struct err *e)
{
	if (nservers > SERVERS_PER_JOB_MAX)
		return err_set(e, TALLY_EQUOTA, "%u servers for one job, at most %u",
			       nservers, SERVERS_PER_JOB_MAX);
	ASSERT(p->nservers == 0 && p->total_bytes == 0);
	p->nservers = nservers;
	for (uint32_t i = 0; i < nservers; i++) {
		p->server[i].alive = true;
		set_weight(p, i, weight[i]);
	}
	return 0;
}

void place_batch(struct place *p, struct place_tensor *t, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t chunks = place_chunks(p, t[i].bytes);

		for (uint32_t c = 0; c < chunks; c++)
			own(p, &t[i], c, PLACE_NOWHERE);
		p->total_bytes += t[i].bytes;
	}
	place_missing(p, t, count);
}

void place_forget(struct place *p, const struct place_tensor *t)
{
	uint32_t chunks = place_chunks(p, t->bytes);

	for (uint32_t c = 0; c < chunks; c++)
		if (t->owner[c] != PLACE_NOWHERE)
			take(p, t->owner[c], chunk_len(p, t, c));
	ASSERT(p->total_bytes >= t->bytes);
	p->total_bytes -= t->bytes;
}

bool place_adopt(struct place *p, struct place_tensor *t, const uint64_t *placed)
{
	uint32_t chunks = place_chunks(p, t->bytes);

	for (uint32_t c = 0; c < chunks; c++)
		if (PLACED_OWNER(placed[c]) >= p->nservers)
			return false;
	for (uint32_t c = 0; c < chunks; c++) {
		t->owner[c] = PLACED_OWNER(placed[c]);
		if (t->since)
			t->since[c] = PLACED_EPOCH(placed[c]);
		give(p, t->owner[c], chunk_len(p, t, c));
	}
	p->total_bytes += t->bytes;
	return true;
}

typedef bool wants_fn(struct place *p, uint16_t server, uint64_t len);

/* Takes every chunk that `wants` picks off its server; returns their bytes. */
static uint64_t take_chunks(struct place *p, struct place_tensor *t, uint32_t count,
			    wants_fn *wants)
{
	uint64_t moved = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t chunks = place_chunks(p, t[i].bytes);

		for (uint32_t c = 0; c < chunks; c++) {
			uint16_t server = t[i].owner[c];
			uint64_t len = chunk_len(p, &t[i], c);

			if (server == PLACE_NOWHERE || !wants(p, server, len))
				continue;
			take(p, server, len);
			t[i].owner[c] = PLACE_NOWHERE;
			moved += len;
		}
	}
	return moved;
}

static bool is_lost(struct place *p, uint16_t server, uint64_t len)
{
	(void)len;
	return !p->server[server].alive;
}

uint64_t place_repair(struct place *p, const uint32_t *weight, const bool *alive,
		      uint32_t nservers, struct place_tensor *t, uint32_t count)
{
	uint64_t moved;

	ASSERT(nservers >= p->nservers && nservers <= SERVERS_PER_JOB_MAX);
	for (uint32_t i = 0; i < nservers; i++) {
		p->server[i].alive = alive[i];
		set_weight(p, i, p->server[i].alive ? weight[i] : 0);
	}
	p->nservers = nservers;
	moved = take_chunks(p, t, count, is_lost);
	place_missing(p, t, count);
	return moved;
}

/*
 * Spreads what a server must give over all that it has: after each of its
 * chunks it has given at most the same part of what was seen, and less than a
 * chunk below that.
 */
static bool is_excess(struct place *p, uint16_t server, uint64_t len)
{
	struct place_server *s = &p->server[server];
	uint64_t had = s->assigned_bytes + s->taken;

	s->seen += len;
	if ((unsigned __int128)(s->taken + len) * had > (unsigned __int128)s->excess * s->seen)
		return false;
	s->taken += len;
	return true;
}

static uint64_t excess_of(const struct place *p, uint32_t server)
{
	const struct place_server *s = &p->server[server];
	unsigned __int128 all = (unsigned __int128)p->total_bytes * s->weight;
	uint64_t goal = p->weight_sum ? (uint64_t)(all / p->weight_sum) : 0;

	return s->assigned_bytes > goal ? s->assigned_bytes - goal : 0;
}

bool place_uneven(const struct place *p)
{
	for (uint32_t i = 0; i < p->nservers; i++)
		if (excess_of(p, i) > p->chunk_bytes)
			return true;
	return false;
}

static void find_excess(struct place *p)
{
	for (uint32_t i = 0; i < p->nservers; i++) {
		struct place_server *s = &p->server[i];

		s->excess = excess_of(p, i);
		s->seen = s->taken = 0;
	}
}

uint64_t place_rebalance(struct place *p, const uint32_t *weight, uint32_t nservers,
			 struct place_tensor *t, uint32_t count)
{
	uint64_t moved;

	ASSERT(nservers >= p->nservers && nservers <= SERVERS_PER_JOB_MAX);
	for (uint32_t i = 0; i < nservers; i++) {
		p->server[i].alive |= i >= p->nservers || weight[i] > 0;
		set_weight(p, i, weight[i]);
	}
	p->nservers = nservers;
	find_excess(p);
	moved = take_chunks(p, t, count, is_excess);
	place_missing(p, t, count);
	return moved;
}

/* Every chunk stays with its owner, but since p->epoch: the owner begins anew with it. */
static void anew(const struct place *p, struct place_tensor *t, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t c = 0; t[i].since && c < place_chunks(p, t[i].bytes); c++)
			t[i].since[c] = p->epoch;
}

static void change(struct place *p, const struct place_change *c, struct place_tensor *t,
		   uint32_t count)
{
	p->epoch = c->epoch;
	if (c->repair)
		place_repair(p, c->weight, c->alive, c->nservers, t, count);
	else
		place_rebalance(p, c->weight, c->nservers, t, count);
	if (c->anew)
		anew(p, t, count);
}

static bool adopt_all(struct place *p, const struct place_change *c, struct place_tensor *t,
		      uint32_t count)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t chunks = place_chunks(p, t[i].bytes);

		if (at + chunks > c->nplaced || !place_adopt(p, &t[i], c->placed + at))
			return false;
		at += chunks;
	}
	return at == c->nplaced;
}

bool place_epoch(struct place *p, const struct place_change *c, struct place_tensor *t,
		 uint32_t count)
{
	if (!c->nplaced) {
		change(p, c, t, count);
		return true;
	}
	for (uint32_t i = 0; i < count; i++)
		place_forget(p, &t[i]);
	change(p, c, NULL, 0);		/* the servers alone */
	return adopt_all(p, c, t, count);
}
