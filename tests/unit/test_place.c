// SPDX-License-Identifier: Apache-2.0
/*
 * The map's promises one by one, then all of them on random jobs.  Every test
 * that changes a map recounts it from owner[] (check_map), so no sum is trusted
 * because the code kept it.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/bytes.h"
#include "tests/unit/place_model.h"

static struct job job, twin;

/* ---- one map's promises ---- */

START_TEST(place_without_weights_is_nowhere)
{
	job_init(&job, CHUNK);
	start(&job, 2);		/* weights 0: one machine, nothing to sum */
	place_batch(&job.p, add_tensor(&job, 2 * CHUNK + 1), 1);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(job.owner[i], PLACE_NOWHERE);
	ck_assert_uint_eq(job.p.total_bytes, 2 * CHUNK + 1);
	place_forget(&job.p, job.t);
	ck_assert_uint_eq(job.p.total_bytes, 0);
}
END_TEST

START_TEST(place_start_refuses_too_many_servers)
{
	static const uint32_t weight[SERVERS_PER_JOB_MAX + 1];
	struct err e;

	place_init(&job.p, CHUNK);
	ck_assert_int_eq(place_start(&job.p, weight, SERVERS_PER_JOB_MAX + 1, &e), TALLY_EQUOTA);
	ck_assert_uint_eq(job.p.nservers, 0);
	ck_assert_int_eq(place_start(&job.p, weight, SERVERS_PER_JOB_MAX, &e), 0);
}
END_TEST

START_TEST(place_chunk_count_at_its_edges)
{
	place_init(&job.p, CHUNK);
	ck_assert_uint_eq(place_chunks(&job.p, 0), 0);
	ck_assert_uint_eq(place_chunks(&job.p, 1), 1);
	ck_assert_uint_eq(place_chunks(&job.p, CHUNK), 1);
	ck_assert_uint_eq(place_chunks(&job.p, CHUNK + 1), 2);
	place_init(&job.p, CHUNK_BYTES_MIN);
	ck_assert_uint_eq(place_chunks(&job.p, TENSOR_BYTES_MAX),
			  TENSOR_BYTES_MAX / CHUNK_BYTES_MIN);
}
END_TEST

START_TEST(place_equal_servers_take_turns)
{
	job_init(&job, CHUNK);
	for (int i = 0; i < 7; i++)
		job.weight[i] = PLACE_WEIGHT_SUM / 7;
	start(&job, 7);
	place_batch(&job.p, add_tensor(&job, 70 * CHUNK), 1);
	for (int c = 0; c < 70; c++)
		ck_assert_uint_eq(job.owner[c], c % 7);
}
END_TEST

/* In any run of consecutive chunks each server has its part, give or take two. */
START_TEST(place_consecutive_chunks_follow_the_weights)
{
	static const uint32_t weights[][5] = {
		{ 50, 1, 1, 1, 1 }, { 14, 14, 4, 4, 4 }, { 1, 2, 3, 4, 5 }, { 90, 9, 1, 0, 0 },
	};

	for (size_t w = 0; w < ARRAY_SIZE(weights); w++) {
		const uint32_t chunks = 500;

		job_init(&job, CHUNK);
		memcpy(job.weight, weights[w], sizeof(weights[w]));
		start(&job, 5);
		place_batch(&job.p, add_tensor(&job, (uint64_t)chunks * CHUNK), 1);
		for (uint32_t from = 0; from < chunks; from++) {
			double has[5] = { 0 };

			for (uint32_t to = from; to < chunks; to++) {
				has[job.owner[to]]++;
				for (int i = 0; i < 5; i++) {
					double part = (to - from + 1.0) * job.weight[i] /
						      (double)job.p.weight_sum;

					if (fabs(has[i] - part) >= 2)
						ck_abort_msg("chunks %u to %u", from, to);
				}
			}
		}
	}
}
END_TEST

START_TEST(place_small_tensors_fill_what_large_ones_left)
{
	job_init(&job, CHUNK);
	for (int i = 0; i < 3; i++)
		job.weight[i] = 1;
	start(&job, 3);
	for (int i = 0; i < 64; i++)	/* small first: order in the batch is no excuse */
		add_tensor(&job, CHUNK / 64);
	add_tensor(&job, 2 * CHUNK);
	place_batch(&job.p, job.t, job.tensors);
	check_map(&job);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(job.p.server[i].assigned_bytes, CHUNK);
}
END_TEST

START_TEST(place_small_tensors_go_largest_first)
{
	job_init(&job, CHUNK);
	job.weight[0] = job.weight[1] = 1;
	start(&job, 2);
	for (int i = 0; i < 4; i++)
		add_tensor(&job, 1000);
	add_tensor(&job, 4000);		/* last, it could not be made up for */
	place_batch(&job.p, job.t, job.tensors);
	check_map(&job);
	ck_assert_uint_eq(job.p.server[0].assigned_bytes, 4000);
	ck_assert_uint_eq(job.p.server[1].assigned_bytes, 4000);
}
END_TEST

START_TEST(place_forget_and_declare_again_leaks_nothing)
{
	struct rng r = { 99 };

	setup(&job, "resnet50", 8, 4);
	place_batch(&job.p, job.t, job.tensors);
	for (int i = 0; i < 5000; i++) {
		struct place_tensor *t = &job.t[rng_below(&r, job.tensors)];

		place_forget(&job.p, t);
		place_batch(&job.p, t, 1);
	}
	check_map(&job);
	for (uint32_t i = 0; i < job.tensors; i++)
		place_forget(&job.p, &job.t[i]);
	ck_assert_uint_eq(job.p.total_bytes, 0);
	for (uint32_t i = 0; i < job.p.nservers; i++)
		ck_assert_uint_eq(job.p.server[i].assigned_bytes, 0);
}
END_TEST

/* Placement is a function that travels: another answer needs another version. */
START_TEST(place_algorithm_gives_these_owners)
{
	static uint8_t wire[2 * OWNERS];

	ck_assert_uint_eq(PLACE_ALGORITHM, 2);
	setup(&job, "bert-large", 8, 4);
	place_batch(&job.p, job.t, job.tensors);
	for (uint32_t i = 0; i < job.owners; i++)
		put_le16(&wire[2 * i], job.owner[i]);
	ck_assert_uint_eq(job.owners, 2813);
	ck_assert_uint_eq(crc32c(wire, 2 * job.owners), 3984951843u);
}
END_TEST

/* ---- repair ---- */

START_TEST(place_repair_keeps_the_dead_out_of_later_batches)
{
	bool alive[] = { true, false, true };
	const uint32_t weight[] = { 1, 1, 1 };

	job_init(&job, CHUNK);
	memcpy(job.weight, weight, sizeof(weight));
	start(&job, 3);
	for (int i = 0; i < 3; i++)
		place_batch(&job.p, add_tensor(&job, 10 * CHUNK + 17), 1);
	place_repair(&job.p, weight, alive, job.p.nservers, job.t, job.tensors);
	place_batch(&job.p, add_tensor(&job, 40 * CHUNK), 1);
	check_map(&job);
	ck_assert_uint_eq(job.p.server[1].assigned_bytes, 0);
	check_balance(&job, CHUNK);
	alive[1] = true;	/* another server has its index */
	ck_assert_uint_eq(place_repair(&job.p, weight, alive, job.p.nservers, job.t,
				       job.tensors), 0);
	place_batch(&job.p, add_tensor(&job, 60 * CHUNK), 1);
	check_map(&job);
	check_balance(&job, CHUNK);
}
END_TEST

START_TEST(place_repair_without_survivors_leaves_chunks_nowhere)
{
	const bool none[] = { false, false }, one[] = { false, true };
	const uint32_t weight[] = { 1, 3 };

	job_init(&job, CHUNK);
	memcpy(job.weight, weight, sizeof(weight));
	start(&job, 2);
	place_batch(&job.p, add_tensor(&job, 3 * CHUNK), 1);
	ck_assert_uint_eq(place_repair(&job.p, weight, none, job.p.nservers, job.t, 1), 3 * CHUNK);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(job.owner[i], PLACE_NOWHERE);
	ck_assert_uint_eq(place_repair(&job.p, weight, one, job.p.nservers, job.t, 1), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(job.owner[i], 1);
	place_rebalance(&job.p, weight, 2, job.t, 1);	/* weights bring them back */
	check_map(&job);
}
END_TEST

/* ---- epochs ---- */

/* It missed the repair, and hears of the rebalance with where the chunks are. */
START_TEST(place_epoch_brings_who_missed_one_to_the_same_map)
{
	static struct place late;
	const bool alive[] = { true, false, true };
	const uint32_t even[] = { 1, 1, 1 }, odd[] = { 1, 5, 2 };
	struct place_change repair = {
		.epoch = 2, .repair = true, .nservers = 3, .weight = even, .alive = alive,
	}, next = { .epoch = 3, .nservers = 3, .weight = odd, .alive = alive };
	uint16_t owner[40], more[40];
	uint64_t placed[40];
	struct place_tensor t = { .bytes = 30 * CHUNK + 17, .owner = owner };
	struct place_tensor u = { .bytes = 39 * CHUNK, .owner = more };

	job_init(&job, CHUNK);
	memcpy(job.weight, even, sizeof(even));
	start(&job, 3);
	place_batch(&job.p, add_tensor(&job, t.bytes), 1);
	late = job.p;
	memcpy(owner, job.owner, 31 * sizeof(owner[0]));
	ck_assert(place_epoch(&job.p, &repair, job.t, 1) && place_epoch(&job.p, &next, job.t, 1));
	for (uint32_t c = 0; c < 31; c++)
		placed[c] = PLACED(2, job.owner[c]);
	next.placed = placed;
	next.nplaced = 31;
	ck_assert(place_epoch(&late, &next, &t, 1));
	ck_assert_mem_eq(owner, job.owner, 31 * sizeof(owner[0]));
	place_batch(&job.p, add_tensor(&job, u.bytes), 1);
	place_batch(&late, &u, 1);
	ck_assert_mem_eq(more, &job.owner[31], 39 * sizeof(more[0]));
	check_map(&job);
}
END_TEST

START_TEST(place_epoch_that_cannot_be_is_refused)
{
	const bool alive[] = { true, true };
	uint64_t placed[] = { PLACED(2, 1), PLACED(2, 2), PLACED(2, 0) };
	struct place_change c = {
		.epoch = 2, .nservers = 2, .weight = job.weight, .alive = alive, .nplaced = 2,
		.placed = placed,
	};

	for (int i = 0; i < 3; i++) {
		job_init(&job, CHUNK);
		job.weight[0] = job.weight[1] = 1;
		start(&job, 2);
		place_batch(&job.p, add_tensor(&job, 2 * CHUNK), 1);
		ck_assert_int_eq(place_epoch(&job.p, &c, job.t, 1), i == 2);
		placed[1] = PLACED(2, 1);	/* there is such a server, */
		c.nplaced = i ? 2 : 3;		/* but not so many chunks, and then all is well */
	}
	check_map(&job);
}
END_TEST

START_TEST(place_epoch_of_a_smaller_world_dates_all)
{
	const bool alive[] = { true, true };
	const uint32_t weight[] = { 1, 2 };
	struct place_change c = {
		.epoch = 7, .repair = true, .anew = true, .nservers = 2, .weight = weight,
		.alive = alive,
	};
	struct place p;
	uint16_t owner[9], before[9];
	uint32_t since[9] = { 0 };
	struct place_tensor t = { .bytes = 8 * (uint64_t)CHUNK + 1, .owner = owner,
				  .since = since };

	place_init(&p, CHUNK);
	p.epoch = 3;
	ck_assert_int_eq(place_start(&p, weight, 2, NULL), 0);
	place_batch(&p, &t, 1);
	memcpy(before, owner, sizeof(owner));
	ck_assert(place_epoch(&p, &c, &t, 1));
	ck_assert_mem_eq(before, owner, sizeof(owner));
	for (uint32_t i = 0; i < 9; i++)
		ck_assert_uint_eq(since[i], 7);
}
END_TEST

/* ---- rebalance ---- */

START_TEST(place_rebalance_to_the_same_weights_moves_nothing)
{
	setup(&job, "gpt2", 8, 4);
	place_batch(&job.p, job.t, job.tensors);
	for (int i = 0; i < 3; i++) {
		uint64_t moved = place_rebalance(&job.p, job.weight, 12, job.t, job.tensors);

		/* A server less than a chunk over may still shed a small tensor. */
		ck_assert_uint_le(moved, 12 * CHUNK);
		if (i > 0)
			ck_assert_uint_eq(moved, 0);
	}
	check_map(&job);
}
END_TEST

START_TEST(place_rebalance_spreads_what_it_takes)
{
	const uint32_t weight[] = { 1, 1, 1 };
	uint32_t taken_in_half = 0;

	job_init(&job, CHUNK);
	memcpy(job.weight, weight, sizeof(weight));
	start(&job, 2);
	place_batch(&job.p, add_tensor(&job, 600 * CHUNK), 1);
	ck_assert_uint_eq(place_rebalance(&job.p, weight, 3, job.t, 1), 200 * CHUNK);
	for (int c = 0; c < 300; c++)
		taken_in_half += job.owner[c] == 2;
	ck_assert_uint_ge(taken_in_half, 99);
	ck_assert_uint_le(taken_in_half, 101);
}
END_TEST

/* ---- random jobs ---- */

static uint64_t random_bytes(struct rng *r, uint32_t chunk)
{
	switch (rng_below(r, 4)) {
	case 0:
		return rng_below(r, chunk);
	case 1:
		return chunk * rng_below(r, 20);
	default:
		return rng_below(r, 1 + rng_below(r, (uint64_t)chunk * 30));
	}
}

static void random_weights(struct rng *r, uint32_t *weight, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		weight[i] = rng_below(r, 6) ? (uint32_t)rng_below(r, UINT32_MAX / 64) : 0;
	weight[rng_below(r, count)] |= 1u << 20;
}

static void random_batch(struct rng *r, struct job *j)
{
	uint32_t from = j->tensors, count = 1 + (uint32_t)rng_below(r, 40);

	for (uint32_t i = 0; i < count; i++)
		add_tensor(j, random_bytes(r, j->p.chunk_bytes));
	place_batch(&j->p, &j->t[from], count);
}

static void random_repair(struct rng *r, struct job *j)
{
	uint32_t dead = (uint32_t)rng_below(r, j->p.nservers);
	bool alive[SERVERS_PER_JOB_MAX];
	uint64_t lost = j->p.server[dead].assigned_bytes;

	if (j->p.server[dead].weight == j->p.weight_sum)
		return;		/* the last one with a weight */
	for (uint32_t i = 0; i < j->p.nservers; i++) {
		alive[i] = i != dead;
		j->weight[i] = j->p.server[i].weight;
	}
	ck_assert_uint_eq(place_repair(&j->p, j->weight, alive, j->p.nservers, j->t, j->tensors),
			  lost);
}

static void random_rebalance(struct rng *r, struct job *j)
{
	uint32_t servers = j->p.nservers + (uint32_t)rng_below(r, 3);
	uint64_t moved;

	random_weights(r, j->weight, servers);
	moved = place_rebalance(&j->p, j->weight, servers, j->t, j->tensors);
	ck_assert_uint_le(moved, j->p.total_bytes);
	check_balance(j, j->p.chunk_bytes);
}

/* One job from a seed: batches, deaths and rebalances in any order. */
static void random_life(struct job *j, uint64_t seed)
{
	struct rng r = { seed };
	uint32_t servers = 1 + (uint32_t)rng_below(&r, 40);

	job_init(j, CHUNK_BYTES_MIN << rng_below(&r, 4));
	random_weights(&r, j->weight, servers);
	start(j, servers);
	for (int i = 0; i < 12; i++) {
		switch (rng_below(&r, 6)) {
		case 0:
			random_repair(&r, j);
			break;
		case 1:
			random_rebalance(&r, j);
			break;
		default:
			random_batch(&r, j);
		}
		check_map(j);
	}
}

START_TEST(place_random_lives_keep_every_promise)
{
	for (uint64_t seed = 1; seed <= 300; seed++)
		random_life(&job, seed);
}
END_TEST

START_TEST(place_random_batches_never_a_chunk_over)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct rng r = { seed };
		uint32_t servers = 1 + (uint32_t)rng_below(&r, 100);

		job_init(&job, CHUNK_BYTES_MIN);
		random_weights(&r, job.weight, servers);
		start(&job, servers);
		for (int i = 0; i < 8; i++) {
			random_batch(&r, &job);
			check_map(&job);
			check_balance(&job, CHUNK_BYTES_MIN);
		}
	}
}
END_TEST

START_TEST(place_replay_gives_the_same_answer)
{
	for (uint64_t seed = 1; seed <= 100; seed++) {
		random_life(&job, seed);
		random_life(&twin, seed);
		ck_assert_uint_eq(job.owners, twin.owners);
		ck_assert_mem_eq(job.owner, twin.owner, job.owners * sizeof(job.owner[0]));
	}
}
END_TEST

START_TEST(place_ignores_what_scratch_held)
{
	setup(&job, "resnet50", 8, 4);
	setup(&twin, "resnet50", 8, 4);
	memset(&twin.p.waiting, 0xff, sizeof(twin.p.waiting));
	memset(&twin.p.ready, 0xff, sizeof(twin.p.ready));
	for (uint32_t i = 0; i < twin.tensors; i++)
		twin.t[i].order = ~i;
	place_batch(&job.p, job.t, job.tensors);
	place_batch(&twin.p, twin.t, twin.tensors);
	ck_assert_mem_eq(job.owner, twin.owner, job.owners * sizeof(job.owner[0]));
}
END_TEST

/* ---- size ---- */

static void place_one_by_one(void)
{
	for (uint32_t i = 0; i < job.tensors; i++)
		place_batch(&job.p, &job.t[i], 1);
}

static double cpu_seconds(void)
{
	return (double)clock() / CLOCKS_PER_SEC;
}

/* Generous, for sanitizers: a scan of all servers per chunk would still miss it. */
static void assert_fast(const char *what, double since)
{
	double took = cpu_seconds() - since;

	printf("place: %s in %.3f s\n", what, took);
	ck_assert_msg(took < 8, "%s took %.1f s", what, took);
}

static void big_job(uint32_t servers, uint32_t chunk_bytes)
{
	struct rng r = { servers };

	job_init(&job, chunk_bytes);
	random_weights(&r, job.weight, servers);
	start(&job, servers);
}

static struct place_sizes sizes(uint32_t chunk_bytes, uint32_t nservers, uint64_t bits)
{
	struct place_sizes s;

	place_sizes(&s, chunk_bytes, nservers, bits, bits);
	ck_assert_uint_ge(s.chunk_bytes, CHUNK_BYTES_MIN);
	ck_assert_uint_le(s.chunk_bytes, CHUNK_BYTES_MAX);
	ck_assert_uint_eq(s.chunk_bytes % CHUNK_BYTES_MIN, 0);
	ck_assert_uint_eq(s.chunk_bytes % s.seg_bytes, 0);
	ck_assert_uint_ge(s.seg_bytes, SEG_BYTES_MIN);
	ck_assert_uint_ge(s.window_bytes, MAX(WINDOW_BYTES_MIN, s.chunk_bytes));
	ck_assert_uint_le(s.window_bytes, WINDOW_BYTES_MAX);
	return s;
}

START_TEST(sizes_follow_the_cards)
{
	static const struct {
		uint64_t bits;
		uint32_t chunk, window;
	} want[] = {
		{ 1, 16u << 10, 4u << 20 }, { 200000000, 32u << 10, 4u << 20 },
		{ 1000000000, 64u << 10, 4u << 20 },
		{ 2500000000, 256u << 10, 8u << 20 }, { 10000000000, 512u << 10, 16u << 20 },
		{ 400000000000, CHUNK_BYTES_DEFAULT, WINDOW_BYTES_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct place_sizes s = sizes(0, 4, want[i].bits);

		ck_assert_uint_eq(s.chunk_bytes, want[i].chunk);
		ck_assert_uint_eq(s.seg_bytes, want[i].chunk);
		ck_assert_uint_eq(s.window_bytes, want[i].window);
	}
}
END_TEST

START_TEST(one_machine_alone_sums_what_a_cache_holds)
{
	struct place_sizes s = sizes(0, 0, 10000000000);

	ck_assert_uint_eq(s.chunk_bytes, CHUNK_BYTES_DEFAULT);
	ck_assert_uint_eq(s.seg_bytes, 128u << 10);
	ck_assert_uint_eq(sizes(192u << 10, 0, 10000000000).seg_bytes, 64u << 10);
	ck_assert_uint_eq(sizes(0, 0, 1000000000).seg_bytes, 64u << 10);
}
END_TEST

START_TEST(sizes_shrink_with_the_number_of_servers)
{
	for (uint64_t bits = 10000000000; bits <= 100000000000; bits *= 10) {
		uint32_t last = CHUNK_BYTES_DEFAULT;

		for (uint32_t n = 0; n <= SERVERS_PER_JOB_MAX; n++) {
			uint32_t chunk = sizes(0, n, bits).chunk_bytes;

			ck_assert_uint_eq(chunk, n <= 32 ? CHUNK_BYTES_DEFAULT : MIN(chunk, last));
			last = chunk;
		}
		ck_assert_uint_eq(last, 64u << 10);
	}
}
END_TEST

/* Each server is to have some chunks of what such a card carries in a quarter of a second. */
START_TEST(sizes_shrink_further_on_slow_cards)
{
	for (uint32_t n = 1; n <= SERVERS_PER_JOB_MAX; n++) {
		struct place_sizes s = sizes(0, n, 1000000000);

		ck_assert_uint_eq(s.chunk_bytes >> 10, n < 15 ? 64 : n < 30 ? 32 : 16);
		ck_assert_uint_eq(s.seg_bytes, s.chunk_bytes);
	}
	ck_assert_uint_eq(sizes(0, 64, 1048575999).chunk_bytes, 16u << 10);
	ck_assert_uint_eq(sizes(0, 64, 1048576000).chunk_bytes, 128u << 10);
	ck_assert_uint_eq(sizes(0, SERVERS_PER_JOB_MAX, 1048576000).chunk_bytes, 64u << 10);
}
END_TEST

START_TEST(sizes_are_as_the_ranks_want)
{
	for (uint32_t c = CHUNK_BYTES_MIN; c <= CHUNK_BYTES_MAX; c += CHUNK_BYTES_MIN)
		for (uint64_t bits = 1000000000; bits <= 100000000000; bits *= 10)
			ck_assert_uint_eq(sizes(c, SERVERS_PER_JOB_MAX, bits).chunk_bytes, c);
}
END_TEST

START_TEST(place_large_jobs_are_fast)
{
	struct rng r = { 5 };
	double t0;

	big_job(2000, CHUNK);
	for (int i = 0; i < 2000; i++)
		add_tensor(&job, rng_below(&r, 16u << 20));
	t0 = cpu_seconds();
	place_batch(&job.p, job.t, job.tensors);
	assert_fast("2,000 tensors on 2,000 servers in one batch", t0);
	check_map(&job);
	check_balance(&job, CHUNK);

	big_job(1000, CHUNK);
	for (int i = 0; i < 10000; i++)
		add_tensor(&job, rng_below(&r, 1u << 20));
	t0 = cpu_seconds();
	place_one_by_one();
	assert_fast("10,000 tensors on 1,000 servers one by one", t0);
	check_map(&job);

	big_job(SERVERS_PER_JOB_MAX, TENSOR_BYTES_MAX / PLACED_MAX);
	add_tensor(&job, TENSOR_BYTES_MAX);
	t0 = cpu_seconds();
	place_batch(&job.p, job.t, job.tensors);
	assert_fast("a million chunks on 2,048 servers", t0);
	check_map(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("place");
	TCase *tc = tcase_create("place");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, place_repair_keeps_the_dead_out_of_later_batches);
	tcase_add_test(tc, place_repair_without_survivors_leaves_chunks_nowhere);
	tcase_add_test(tc, place_epoch_brings_who_missed_one_to_the_same_map);
	tcase_add_test(tc, place_epoch_that_cannot_be_is_refused);
	tcase_add_test(tc, place_epoch_of_a_smaller_world_dates_all);
	tcase_add_test(tc, place_rebalance_to_the_same_weights_moves_nothing);
	tcase_add_test(tc, place_rebalance_spreads_what_it_takes);
	tcase_add_test(tc, place_without_weights_is_nowhere);
	tcase_add_test(tc, place_start_refuses_too_many_servers);
	tcase_add_test(tc, place_chunk_count_at_its_edges);
	tcase_add_test(tc, place_equal_servers_take_turns);
	tcase_add_test(tc, place_consecutive_chunks_follow_the_weights);
	tcase_add_test(tc, place_small_tensors_fill_what_large_ones_left);
	tcase_add_test(tc, place_small_tensors_go_largest_first);
	tcase_add_test(tc, place_forget_and_declare_again_leaks_nothing);
	tcase_add_test(tc, place_algorithm_gives_these_owners);
	tcase_add_test(tc, place_random_lives_keep_every_promise);
	tcase_add_test(tc, place_random_batches_never_a_chunk_over);
	tcase_add_test(tc, place_replay_gives_the_same_answer);
	tcase_add_test(tc, place_ignores_what_scratch_held);
	tcase_add_test(tc, sizes_follow_the_cards);
	tcase_add_test(tc, one_machine_alone_sums_what_a_cache_holds);
	tcase_add_test(tc, sizes_shrink_with_the_number_of_servers);
	tcase_add_test(tc, sizes_shrink_further_on_slow_cards);
	tcase_add_test(tc, sizes_are_as_the_ranks_want);
	tcase_add_test(tc, place_large_jobs_are_fast);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
