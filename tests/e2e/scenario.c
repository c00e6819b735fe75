// SPDX-License-Identifier: Apache-2.0
/*
 * What the ranks do.  All ranks play the same scenario, each in its own order;
 * the orders are such that a job must always finish: before a rank waits for a
 * round, it has submitted all that another rank may need to get that far.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/e2e.h"

#define KIB	UINT64_C(1024)
#define MIB	(1024 * KIB)

static const char *const dtype_names[] = { "", "fp32", "fp64", "fp16", "bf16",
					   "int8", "uint8", "int32", "int64" };

/* A list of tensors that grows. */
struct box {
	struct toy *toys;		/* owned */
	uint32_t n, max;
};

static struct toy *box_add(struct run *r, struct box *b, tally_dtype dtype, uint64_t count,
			   uint32_t passes)
{
	struct toy *t;

	if (b->n == b->max) {
		b->max = b->max ? 2 * b->max : 64;
		b->toys = realloc(b->toys, b->max * sizeof(*b->toys));
		if (!b->toys)
			die(r, "no memory");
	}
	t = &b->toys[b->n];
	*t = (struct toy){ .dtype = dtype, .count = count, .passes = passes };
	snprintf(t->name, sizeof(t->name), "%s.%llu.%u", dtype_names[dtype],
		 (unsigned long long)count, b->n);
	b->n++;
	return t;
}

static void box_open(struct run *r, struct box *b)
{
	toys_declare(r, b->toys, b->n);
}

static void box_close(struct run *r, struct box *b)
{
	toys_undeclare(r, b->toys, b->n);
	free(b->toys);
	*b = (struct box){ 0 };
}

/* order[0..n): 0..n-1 shuffled. */
static void shuffle(uint64_t seed, uint32_t *order, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = (uint32_t)(mix64(seed + i * UINT64_C(0x9e3779b97f4a7c15)) %
					(i + 1));

		order[i] = order[k];
		order[k] = i;
	}
}

static uint32_t *order_new(const struct run *r, uint32_t n, uint64_t salt)
{
	uint32_t *order = calloc(n, sizeof(*order));

	if (!order)
		die(r, "no memory");
	shuffle(mix64(r->seed ^ salt << 16 ^ (r->rank + 1)), order, n);
	return order;
}

/* ---- sums ---- */

/* Ops and memories take turns, other memories on other ranks. */
static void submit_pass(struct run *r, struct toy *t, uint32_t pass)
{
	toy_submit(r, t, (enum op)((pass + t->id) % OPS),
		   (enum place)((pass * 3 + t->id + r->rank) % PLACES),
		   (pass + t->id) % r->world);
}

/*
 * Passes over all tensors: first all are submitted, then all waited for, each
 * rank in orders of its own.
 */
static void play_box(struct run *r, struct box *b)
{
	uint32_t passes = 0;

	for (uint32_t i = 0; i < b->n; i++)
		if (passes < b->toys[i].passes)
			passes = b->toys[i].passes;
	for (uint32_t pass = 0; pass < passes; pass++) {
		uint32_t *there = order_new(r, b->n, 2 * pass);
		uint32_t *back = order_new(r, b->n, 2 * pass + 1);

		for (uint32_t i = 0; i < b->n; i++)
			if (pass < b->toys[there[i]].passes)
				submit_pass(r, &b->toys[there[i]], pass);
		for (uint32_t i = 0; i < b->n; i++)
			if (pass < b->toys[back[i]].passes)
				toy_collect(r, &b->toys[back[i]]);
		free(there);
		free(back);
	}
}

/* Neighbours differ in op, so large ones have each op in one pass, too. */
static void add_edges(struct run *r, struct box *b, tally_dtype d, uint64_t bytes)
{
	uint64_t count = bytes / tally_dtype_size(d);
	uint32_t passes = bytes < MIB ? OPS * effort() : effort();

	for (int i = -1; i <= 1; i++)
		box_add(r, b, d, count + (uint64_t)i, passes);
}

static void add_all_edges(struct run *r, struct box *b, tally_dtype d)
{
	for (uint32_t i = 0; i < r->nedges; i++)
		add_edges(r, b, d, r->edge[i]);
}

static void look_at_edges(const struct run *r)
{
	if (r->look && r->rank == 0 && system(r->look))
		die(r, "%s: not what it should be", r->look);
}

static void sums(struct run *r)
{
	static const uint64_t small[] = { 0, 1, 3, 17, 4099 };
	struct box b = { 0 };

	for (tally_dtype d = 1; d <= E2E_DTYPES; d++) {
		for (size_t i = 0; i < sizeof(small) / sizeof(*small); i++)
			box_add(r, &b, d, small[i], OPS * PLACES);
		add_all_edges(r, &b, d);
		box_add(r, &b, d, (1300 * KIB + 40) / tally_dtype_size(d), OPS * effort());
	}
	add_edges(r, &b, TALLY_FLOAT16, 64 * KIB);
	box_open(r, &b);
	look_at_edges(r);
	play_box(r, &b);
	box_close(r, &b);
}

static void edges(struct run *r)
{
	struct box b = { 0 };

	for (tally_dtype d = 1; d <= E2E_DTYPES; d++)
		add_all_edges(r, &b, d);
	box_open(r, &b);
	look_at_edges(r);
	play_box(r, &b);
	box_close(r, &b);
}

/* A sum and a mean of each, one of them in place; on the next rank the other one. */
static void play_large(struct run *r, uint64_t bytes)
{
	static const enum place places[] = { ARENA_IN_PLACE, FOREIGN_TO_FOREIGN,
					     FOREIGN_IN_PLACE, ARENA_TO_ARENA };

	for (tally_dtype d = 1; d <= E2E_DTYPES; d++) {
		struct box b = { 0 };

		box_add(r, &b, d, bytes / tally_dtype_size(d), 0);
		box_open(r, &b);
		for (uint32_t i = 0; i < 2; i++) {
			toy_submit(r, b.toys, i ? OP_MEAN : OP_SUM,
				   places[(r->rank + d + i) % 4], 0);
			toy_collect(r, b.toys);
		}
		box_close(r, &b);
	}
}

static void big(struct run *r)
{
	play_large(r, 64 * MIB);
}

/* What a single machine sums past the caches, and not a multiple of anything. */
static void cold(struct run *r)
{
	play_large(r, 9 * MIB + 40);
}

/* That the inputs are worth adding: in another order they give other bits. */
static void order(struct run *r)
{
	static const tally_dtype real[] = { TALLY_FLOAT32, TALLY_FLOAT64, TALLY_FLOAT16,
					    TALLY_BFLOAT16 };

	if (r->world < 3)
		die(r, "order: needs three ranks");
	for (size_t i = 0; i < sizeof(real) / sizeof(*real); i++) {
		struct recipe recipe = { .dtype = real[i], .op = OP_SUM, .world = r->world,
					 .machines = r->machines, .seed = r->seed };

		if (!value_order_matters(&recipe, 64 * KIB))
			die(r, "order: %s sums do not depend on it", dtype_names[real[i]]);
	}
}

/* ---- ranks that are not in step ---- */

/*
 * The first rank is done with round n of t and has submitted n + 1 before the
 * others look at round n: what they then see is still round n; and it stays
 * until they submit n + 2.  `signal` tells them when: its round needs the first
 * rank, which submits it after n + 1.
 */
static void ahead(struct run *r)
{
	struct box b = { 0 };
	struct toy *t, *bell;
	struct recipe before;
	const void *seen = NULL;

	box_add(r, &b, TALLY_FLOAT32, 700001, 0);
	box_add(r, &b, TALLY_INT32, 1, 0);
	box_open(r, &b);
	t = &b.toys[0];
	bell = &b.toys[1];
	toy_submit(r, t, OP_SUM, ARENA_VIEW, 0);
	for (uint32_t round = 1; round < 20 * effort(); round++) {
		bool first = r->rank == round % r->world;
		enum op op = round & 1 ? OP_MEAN : OP_SUM;

		if (first) {
			toy_collect(r, t);
			before = t->recipe;
			seen = tally_result(r->s, t->t);
			toy_submit(r, t, op, ARENA_IN_PLACE, 0);
		}
		toy_submit(r, bell, OP_SUM, ARENA_VIEW, 0);
		toy_collect(r, bell);
		if (!first) {
			toy_collect(r, t);
			before = t->recipe;
			seen = tally_result(r->s, t->t);
			toy_submit(r, t, op, round & 2 ? FOREIGN_VIEW : ARENA_TO_ARENA, 0);
		}
		toy_check(r, t, &before, seen);
	}
	toy_collect(r, t);
	toy_check(r, t, &before, seen);
	box_close(r, &b);
}

/*
 * No pass waits for the pass: a rank goes through the tensors in an order of its
 * own and submits each one's next round as soon as its last is done.
 */
static void soak(struct run *r)
{
	struct box b = { 0 };

	for (uint32_t i = 0; i < 40; i++)
		box_add(r, &b, 1 + i % E2E_DTYPES,
			1 + mix64(r->seed * 1000 + i) % (i % 8 ? 20000 : 400000), 0);
	box_open(r, &b);
	for (uint32_t pass = 0; pass < 12 * effort(); pass++) {
		uint32_t *turn = order_new(r, b.n, 1000 + pass);

		for (uint32_t i = 0; i < b.n; i++) {
			struct toy *t = &b.toys[turn[i]];

			if (t->k)
				toy_collect(r, t);
			submit_pass(r, t, pass);
		}
		free(turn);
	}
	for (uint32_t i = 0; i < b.n; i++)
		toy_collect(r, &b.toys[i]);
	box_close(r, &b);
}

/* ---- ranks that cross ---- */

/* About mib MiB of tensors from 4 bytes to 4 MiB. */
static void add_flood(struct run *r, struct box *b, uint64_t mib)
{
	for (uint64_t sum = 0; sum < mib * MIB;) {
		uint64_t z = mix64(r->seed * 7777 + b->n);
		uint64_t count = z % 4 ? 1 + (z >> 8) % (64 * KIB) : 256 * KIB + (z >> 8) % MIB;

		box_add(r, b, TALLY_FLOAT32, count, 0);
		sum += count * 4;
	}
}

static void submit_range(struct run *r, struct box *b, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		toy_submit(r, &b->toys[i], OP_SUM, ARENA_VIEW, 0);
}

static void collect_all(struct run *r, struct box *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->toys[i].k)
			toy_collect(r, &b->toys[i]);
}

/*
 * The first rank submits the flood and then x; the others wait for x before they
 * submit any of the flood.  X comes last, and is small; then it is large; then it
 * is of less urgency than the flood.
 */
static void cross(struct run *r)
{
	static const struct { uint64_t count; int32_t priority; } x[] = {
		{ 1, 0 }, { 2 * MIB, 0 }, { 300000, -5 },
	};
	struct box b = { 0 };
	uint32_t flood;

	add_flood(r, &b, 96);
	flood = b.n;
	for (uint32_t i = 0; i < 3; i++)
		box_add(r, &b, TALLY_FLOAT32, x[i].count, 0)->priority = x[i].priority;
	box_open(r, &b);
	for (uint32_t i = 0; i < 3 * effort(); i++) {
		struct toy *last = &b.toys[flood + i % 3];

		if (r->rank == i % r->world)
			submit_range(r, &b, 0, flood);
		toy_submit(r, last, OP_SUM, ARENA_VIEW, 0);
		toy_collect(r, last);
		if (r->rank != i % r->world)
			submit_range(r, &b, 0, flood);
		collect_all(r, &b);
	}
	box_close(r, &b);
}

/*
 * Rank r begins with part r of the tensors, then r + 1, and so on: every rank
 * fills its windows with what no other rank has come to yet.
 */
static void circle(struct run *r)
{
	struct box b = { 0 };
	uint32_t part[E2E_WORLD_MAX + 1] = { 0 };

	for (uint32_t i = 0; i < r->world; i++) {
		add_flood(r, &b, 48);
		part[i + 1] = b.n;
	}
	box_open(r, &b);
	for (uint32_t round = 0; round < 2 * effort(); round++) {
		for (uint32_t i = 0; i < r->world; i++) {
			uint32_t p = (r->rank + i) % r->world;

			submit_range(r, &b, part[p], part[p + 1]);
		}
		collect_all(r, &b);
	}
	box_close(r, &b);
}

const struct scenario scenarios[] = {
	{ "order", "the inputs' sums depend on their order (3 ranks or more)", order },
	{ "sums", "every dtype, op and memory, small and around the edges", sums },
	{ "edges", "every dtype and op, around the edges", edges },
	{ "big", "every dtype, 64 MiB", big },
	{ "cold", "every dtype, 9 MiB", cold },
	{ "ahead", "one rank a round ahead of the others", ahead },
	{ "soak", "many tensors, nobody in step", soak },
	{ "cross", "one floods before what the others wait for", cross },
	{ "circle", "each floods first what the others come to last", circle },
	{ NULL, NULL, NULL },
};
