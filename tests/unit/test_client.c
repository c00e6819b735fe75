// SPDX-License-Identifier: Apache-2.0
/*
 * libtally against an agent in a thread: the whole way of a gradient, what a user
 * can get wrong, and a heap that fails at every call in turn.  What the agent can
 * do wrong is in test_client_trouble.c.
 */
#include "tests/unit/client_rig.h"

#include "client/mem.h"
#include "common/base/bytes.h"

/* The heap of the thread that calls libtally: call number `fail_at` fails. */
static _Thread_local uint32_t heap_calls, fail_at;

bool tally_mem_test_fails(void)
{
	return fail_at && ++heap_calls == fail_at;
}

/* ---- the way it should be ---- */

START_TEST(client_knows_its_place_after_attach)
{
	start(NO_TRICK);
	ck_assert_int_eq(tally_rank(s), 0);
	ck_assert_int_eq(tally_world_size(s), 2);
	ck_assert_int_eq(tally_local_rank(s), 1);
	ck_assert_int_eq(tally_local_size(s), 2);
	ck_assert_int_eq(tally_machines(s), 3);
	ck_assert_str_eq(tally_error_text(s), "");
	ck_assert_int_eq(tally_barrier(s, -1), 0);
	finish();
}
END_TEST

START_TEST(client_round_gives_results_in_place_elsewhere_or_in_view)
{
	float foreign[1000], out[1000], *mine;
	tally_tensor *t;

	start(NO_TRICK);
	t = declare("w", TALLY_FLOAT32, 1000);
	ck_assert_ptr_null(tally_result(s, t));
	ck_assert_int_eq(tally_alloc(s, sizeof(foreign), (void **)&mine), 0);
	for (int round = 1; round <= 5; round++) {
		for (int i = 0; i < 1000; i++)
			mine[i] = foreign[i] = (float)(i * round);
		wait_ok(push(t, mine, mine));
		ck_assert_mem_eq(mine, foreign, sizeof(foreign));
		wait_ok(push(t, foreign, out));
		ck_assert_mem_eq(out, foreign, sizeof(foreign));
		memset(foreign, 0, sizeof(foreign));
		wait_ok(push(t, out, NULL));
		ck_assert_mem_eq(tally_result(s, t), out, sizeof(out));
	}
	ck_assert_int_eq(tally_free(s, mine), 0);
	finish();
}
END_TEST

/* The agent fills what it can reach, but never what it still reads. */
START_TEST(client_agent_fills_memory_of_the_arena)
{
	enum { N = 1000 };
	float *mem;
	tally_tensor *t;

	start(NO_TRICK);
	t = declare("w", TALLY_FLOAT32, N);
	ck_assert_int_eq(tally_alloc(s, 2 * N * sizeof(*mem), (void **)&mem), 0);
	for (int at = 0; at <= N; at += N / 4) {
		for (int i = 0; i < N; i++)
			mem[i] = (float)(i + at);
		wait_ok(push(t, mem, mem + at));
		for (int i = 0; i < N; i++)
			ck_assert_float_eq(mem[at + i], (float)(i + at));
		ck_assert_int_eq(atomic_load(&agent->last_out) != 0, at == 0 || at == N);
	}
	finish();
}
END_TEST

START_TEST(client_that_may_shrink_keeps_its_input_and_sees_who_is_lost)
{
	enum { N = 1000 };
	tally_options opt = {
		.job = "test", .rank = 0, .world = 2, .timeout_ms = DEADLINE_MS,
		.on_loss = TALLY_ON_LOSS_SHRINK,
	};
	float *mem;
	tally_tensor *t;

	agent = fake_start(NO_TRICK);
	opt.socket = agent->path;
	ck_assert_int_eq(tally_attach(&opt, &s), 0);
	t = declare("w", TALLY_FLOAT32, N);
	ck_assert_int_eq(tally_alloc(s, N * sizeof(*mem), (void **)&mem), 0);
	for (int i = 0; i < N; i++)
		mem[i] = (float)i;
	wait_ok(push(t, mem, mem));
	ck_assert_int_eq(atomic_load(&agent->last_out), 0);
	for (int i = 0; i < N; i++)
		ck_assert_float_eq(mem[i], (float)i);
	ck_assert_int_eq(tally_live_ranks(s), 2);
	ck_assert_int_eq(tally_gpu_open(s, NULL), TALLY_EINVAL);
	ck_assert_ptr_nonnull(strstr(tally_error_text(s), "on_loss = shrink"));
	ring_lost_set(&agent->ring, 1, true);
	ring_lost_set(&agent->ring, 1, true);
	ck_assert_int_eq(tally_live_ranks(s), 1);
	ck_assert_int_eq(tally_world_size(s), 2);
	ck_assert_int_eq(tally_rank_is_live(s, 0), 1);
	ck_assert_int_eq(tally_rank_is_live(s, 1), 0);
	ck_assert_int_eq(tally_rank_is_live(s, 2), TALLY_EINVAL);
	ck_assert_str_eq(tally_error_text(s), "rank 2 is not in a world of 2");
	ck_assert_int_eq(tally_live_ranks(NULL), TALLY_EINVAL);
	finish();
}
END_TEST

START_TEST(client_grows_between_rounds_and_hears_how_many_came)
{
	tally_options opt = {
		.job = "test", .rank = 0, .world = 2, .timeout_ms = DEADLINE_MS,
		.on_loss = TALLY_ON_LOSS_SHRINK,
	};
	float in[4] = { 0 };
	tally_tensor *t;
	tally_ticket k;

	agent = fake_start(NO_TRICK);
	opt.socket = agent->path;
	ck_assert_int_eq(tally_attach(&opt, &s), 0);
	ck_assert_int_eq(tally_is_late(s), 0);
	t = declare("w", TALLY_FLOAT32, 4);
	k = push(t, in, in);
	ck_assert_int_eq(tally_grow(s, -1), TALLY_EBUSY);
	ck_assert_ptr_nonnull(strstr(tally_error_text(s), "round 1 of tensor w"));
	wait_ok(k);
	ck_assert_int_eq(tally_grow(s, -1), 0);
	ring_lost_set(&agent->ring, 1, true);
	ring_lost_set(&agent->ring, 1, false);
	ring_grown_set(&agent->ring, 1);
	ck_assert_int_eq(tally_grow(s, -1), 1);
	ck_assert_int_eq(tally_grow(s, -1), 0);
	ck_assert_int_eq(tally_live_ranks(s), 2);
	ck_assert_int_eq(tally_grow(NULL, -1), TALLY_EINVAL);
	finish();
}
END_TEST

START_TEST(client_grows_no_job_that_ends_with_a_rank)
{
	start(NO_TRICK);
	ck_assert_int_eq(tally_grow(s, -1), TALLY_EINVAL);
	finish();
}
END_TEST

START_TEST(client_foreign_input_may_change_after_the_call)
{
	int64_t in[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out[8];
	tally_ticket k;

	start(HOLD_ROUNDS);
	k = push(declare("w", TALLY_INT64, 8), in, out);
	while (atomic_load(&agent->rounds) == 0)
		sched_yield();
	memset(in, 0xff, sizeof(in));
	fake_release(agent);
	wait_ok(k);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(out[i], i + 1);
	finish();
}
END_TEST

START_TEST(client_tensors_may_be_waited_for_in_any_order)
{
	enum { N = 20 };
	const uint64_t shape[2] = { 1, 1 };
	tally_tensor_desc d[N];
	tally_tensor *t[N];
	char names[N][8];
	int32_t in[N], out[N];
	tally_ticket k[N];

	start(HOLD_ROUNDS);
	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "t%d", i);
		d[i] = (tally_tensor_desc){
			.name = names[i], .dtype = TALLY_INT32, .count = 1,
			.shape = shape, .ndims = 2,
		};
		in[i] = i * 7;
	}
	ck_assert_int_eq(tally_declare(s, d, N, t), 0);
	for (int i = 0; i < N; i++)
		k[i] = push(t[i], &in[i], &out[i]);
	while (atomic_load(&agent->rounds) < N)
		sched_yield();
	ck_assert_int_eq(tally_test(s, k[3]), TALLY_EAGAIN);
	fake_release(agent);
	for (int i = N; i-- > 0;) {
		wait_ok(k[i]);
		ck_assert_int_eq(out[i], i * 7);
	}
	finish();
}
END_TEST

START_TEST(client_empty_tensor_works_like_any_other)
{
	tally_tensor *t;

	start(NO_TRICK);
	t = declare("nothing", TALLY_BFLOAT16, 0);
	wait_ok(push(t, NULL, NULL));
	ck_assert_ptr_nonnull(tally_result(s, t));
	ck_assert_int_eq(tally_undeclare(s, &t, 1), 0);
	finish();
}
END_TEST

START_TEST(client_broadcast_sends_the_root_only)
{
	double in = 2.5, out = 0;
	tally_tensor *t;
	tally_ticket k;

	start(NO_TRICK);
	t = declare("w", TALLY_FLOAT64, 1);
	ck_assert_int_eq(tally_broadcast(s, t, &in, &out, 0, &k), 0);
	wait_ok(k);
	ck_assert_double_eq(out, 2.5);
	ck_assert_int_eq(tally_broadcast(s, t, NULL, NULL, 1, &k), 0);
	wait_ok(k);
	ck_assert_int_eq(atomic_load(&agent->last_rop), ROP_BROADCAST);
	ck_assert_int_eq(tally_broadcast(s, t, &in, &out, 2, &k), TALLY_EINVAL);
	ck_assert_int_eq(tally_broadcast(s, t, &in, &out, -1, &k), TALLY_EINVAL);
	ck_assert_int_eq(tally_broadcast(s, t, NULL, &out, 0, &k), TALLY_EINVAL);
	finish();
}
END_TEST

START_TEST(client_operation_and_priority_reach_the_agent)
{
	tally_push_pull_options opt = { .op = TALLY_MEAN };
	uint8_t x = 1;
	tally_tensor *t;
	tally_ticket k;

	start(NO_TRICK);
	t = declare("w", TALLY_UINT8, 1);
	ck_assert_int_eq(tally_push_pull(s, t, &x, &x, &opt, &k), 0);
	wait_ok(k);
	ck_assert_int_eq(atomic_load(&agent->last_rop), ROP_MEAN);
	ck_assert_int_eq(atomic_load(&agent->last_priority), 5);
	opt = (tally_push_pull_options){ .override_priority = 1, .priority = -9 };
	ck_assert_int_eq(tally_push_pull(s, t, &x, &x, &opt, &k), 0);
	wait_ok(k);
	ck_assert_int_eq(atomic_load(&agent->last_rop), ROP_SUM);
	ck_assert_int_eq(atomic_load(&agent->last_priority), -9);
	opt.op = (tally_op)7;
	ck_assert_int_eq(tally_push_pull(s, t, &x, &x, &opt, &k), TALLY_EINVAL);
	finish();
}
END_TEST

START_TEST(client_arena_is_zeroed_aligned_reused_and_grows)
{
	struct rng rng = { .state = 3 };
	uint8_t *p[64] = { 0 };
	size_t n[64];

	start(NO_TRICK);
	for (int step = 0; step < 1500; step++) {
		uint32_t i = (uint32_t)rng_below(&rng, ARRAY_SIZE(p));

		if (p[i]) {
			for (size_t at = 0; at < n[i]; at += 512)
				ck_assert_uint_eq(p[i][at], i);
			ck_assert_int_eq(tally_free(s, p[i]), 0);
			p[i] = NULL;
			continue;
		}
		n[i] = rng_below(&rng, 600000);
		ck_assert_int_eq(tally_alloc(s, n[i], (void **)&p[i]), 0);
		ck_assert_uint_eq((uintptr_t)p[i] % PAGE_BYTES, 0);
		for (size_t at = 0; at < n[i]; at += 512)
			ck_assert_uint_eq(p[i][at], 0);
		memset(p[i], (int)i, n[i]);
	}
	ck_assert_uint_le(atomic_load(&agent->input_slabs), 6);
	finish();
}
END_TEST

START_TEST(client_many_tensors_in_several_batches)
{
	enum { N = TENSORS_PER_BATCH_MAX + 100 };
	tally_tensor_desc *d = calloc(N, sizeof(*d));
	tally_tensor **t = calloc(N, sizeof(*t));
	char (*names)[12] = calloc(N, sizeof(*names));
	float x = 3;

	start(NO_TRICK);
	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "t%d", i);
		d[i] = (tally_tensor_desc){ .name = names[i], .dtype = TALLY_FLOAT32, .count = 1 };
	}
	ck_assert_msg(tally_declare(s, d, N, t) == 0, "%s", tally_error_text(s));
	ck_assert_uint_eq(atomic_load(&agent->declares), 2);
	wait_ok(push(t[N - 1], &x, &x));
	ck_assert_int_eq(tally_undeclare(s, t, N), 0);
	ck_assert_uint_eq(atomic_load(&agent->live_tensors), 0);
	ck_assert_ptr_null(t[0]);
	finish();
	free(d);
	free(t);
	free(names);
}
END_TEST

START_TEST(client_leaves_no_descriptor_behind)
{
	int before = open_descriptors();
	float x = 1;

	for (int i = 0; i < 3; i++) {
		start(NO_TRICK);
		wait_ok(push(declare("w", TALLY_FLOAT32, 1), &x, &x));
		ck_assert_int_ge(tally_fd(s), 0);
		finish();
		ck_assert_int_eq(open_descriptors(), before);
	}
}
END_TEST

/* ---- tickets ---- */

START_TEST(ticket_is_used_up_by_waiting)
{
	float x = 1;
	tally_tensor *t;
	tally_ticket k, k2;

	start(NO_TRICK);
	t = declare("w", TALLY_FLOAT32, 1);
	k = push(t, &x, &x);
	wait_ok(k);
	ck_assert_int_eq(tally_wait(s, k, 0), TALLY_EINVAL);
	ck_assert_int_eq(tally_test(s, k), TALLY_EINVAL);
	ck_assert_int_eq(tally_wait(s, 0, 0), TALLY_EINVAL);
	ck_assert_int_eq(tally_wait(s, UINT64_MAX, 0), TALLY_EINVAL);
	k2 = push(t, &x, &x);
	ck_assert_uint_ne(k, k2);
	ck_assert_int_eq(tally_wait(s, k, 0), TALLY_EINVAL);
	wait_ok(k2);
	finish();
}
END_TEST

START_TEST(ticket_of_a_former_tensor_is_stale)
{
	float x = 1;
	tally_tensor *t;
	tally_ticket old, k;

	start(NO_TRICK);
	t = declare("a", TALLY_FLOAT32, 1);
	old = push(t, &x, &x);
	wait_ok(old);
	ck_assert_int_eq(tally_undeclare(s, &t, 1), 0);
	t = declare("b", TALLY_FLOAT32, 1);
	k = push(t, &x, &x);
	ck_assert_int_eq(tally_wait(s, old, 0), TALLY_EINVAL);
	wait_ok(k);
	finish();
}
END_TEST

START_TEST(ticket_second_round_waits_for_the_first)
{
	float x = 1;
	tally_tensor *t;
	tally_ticket k, k2;

	start(HOLD_ROUNDS);
	t = declare("w", TALLY_FLOAT32, 1);
	k = push(t, &x, &x);
	ck_assert_int_eq(tally_push_pull(s, t, &x, &x, NULL, &k2), TALLY_EEXIST);
	ck_assert_int_eq(tally_undeclare(s, &t, 1), TALLY_EBUSY);
	while (atomic_load(&agent->rounds) == 0)
		sched_yield();
	fake_release(agent);
	while (tally_poll(s) == 0)
		sched_yield();
	ck_assert_int_eq(tally_push_pull(s, t, &x, &x, NULL, &k2), TALLY_EEXIST);
	wait_ok(k);
	finish();
}
END_TEST

START_TEST(ticket_outlives_a_timeout_that_names_who_is_missing)
{
	float x = 4, out = 0;
	tally_ticket k;

	setenv("TALLY_ROUND_TIMEOUT_MS", "70", 1);
	start(HOLD_ROUNDS);
	unsetenv("TALLY_ROUND_TIMEOUT_MS");
	ck_assert_int_eq(tally_round_timeout_ms(s), 70);
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &out);
	while (atomic_load(&agent->rounds) == 0)
		sched_yield();
	ck_assert_int_eq(tally_wait(s, k, -1), TALLY_ETIMEDOUT);
	expect_text("not done after 70 ms");
	ck_assert_int_eq(tally_wait(s, k, 0), TALLY_ETIMEDOUT);
	ck_assert_int_eq(tally_wait(s, k, SHORT_MS), TALLY_ETIMEDOUT);
	expect_text("round 1 of tensor w");
	expect_text("waiting for rank 3 (machine b)");
	fake_release(agent);
	wait_ok(k);
	ck_assert_float_eq(out, 4);
	finish();
}
END_TEST

START_TEST(ticket_of_a_failed_round_is_used_up_and_the_tensor_lives)
{
	float x = 4;
	tally_tensor *t;
	tally_ticket k;

	start(FAIL_ROUND);
	t = declare("w", TALLY_FLOAT32, 1);
	k = push(t, &x, &x);
	ck_assert_int_eq(tally_wait(s, k, DEADLINE_MS), TALLY_ESERVERLOST);
	expect_text("tensor w");
	ck_assert_int_eq(tally_wait(s, k, 0), TALLY_EINVAL);
	ck_assert_ptr_null(tally_result(s, t));
	push(t, &x, &x);
	finish();
}
END_TEST

START_TEST(completions_that_match_nothing_are_ignored)
{
	float x = 4, out = 0;
	tally_tensor *t;

	start(STALE_COMPLETIONS);
	t = declare("w", TALLY_FLOAT32, 1);
	for (int i = 0; i < 3; i++) {
		wait_ok(push(t, &x, &out));
		ck_assert_float_eq(out, 4);
	}
	finish();
}
END_TEST

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

START_TEST(descriptor_tells_of_completions_and_of_the_end)
{
	float x[2] = { 1, 2 };
	tally_tensor *t[2];
	tally_ticket k[2];
	int fd;

	start(HOLD_ROUNDS);
	fd = tally_fd(s);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(tally_fd(s), fd);
	for (int i = 0; i < 2; i++) {
		t[i] = declare(i ? "b" : "a", TALLY_FLOAT32, 1);
		k[i] = push(t[i], &x[i], &x[i]);
	}
	while (atomic_load(&agent->rounds) < 2)
		sched_yield();
	ck_assert(!readable(fd, 0));
	ck_assert_int_eq(tally_poll(s), 0);
	fake_release(agent);
	/* the first is waited for: news of the second must not be lost with it */
	wait_ok(k[0]);
	ck_assert(readable(fd, DEADLINE_MS));
	while (tally_test(s, k[1]) == TALLY_EAGAIN)
		ck_assert(readable(fd, DEADLINE_MS));
	ck_assert_int_eq(tally_poll(s), 0);
	ck_assert(!readable(fd, 0));
	k[0] = push(t[0], &x[0], &x[0]);
	while (atomic_load(&agent->rounds) < 3)
		sched_yield();
	fake_release(agent);
	ck_assert(readable(fd, DEADLINE_MS));
	ck_assert_int_eq(tally_poll(s), 1);
	ck_assert(!readable(fd, 0));
	ck_assert_int_eq(tally_test(s, k[0]), 0);
	fake_end(agent);
	ck_assert(readable(fd, DEADLINE_MS));
	ck_assert_int_eq(tally_poll(s), TALLY_EAGENT);
	ck_assert(readable(fd, DEADLINE_MS));
	tally_detach(s);
}
END_TEST

/* ---- what the user can get wrong ---- */

/* Those that tally.h promises, to the last byte. */
START_TEST(tensor_has_the_limits_of_the_header)
{
	const uint64_t shape[9] = { 2, 3, 1, 1, 1, 1, 1, 1, 1 };
	char name[] = { [0 ... 255] = 'n', '\0' };
	tally_tensor_desc d = {
		.name = name + 1, .dtype = TALLY_INT8, .count = 6, .shape = shape, .ndims = 8,
	};
	tally_tensor *t;

	start(NO_TRICK);
	ck_assert_int_eq(tally_declare(s, &d, 1, &t), 0);
	d.name = name;
	ck_assert_int_eq(tally_declare(s, &d, 1, &t), TALLY_EINVAL);
	expect_text("1 to 255 bytes");
	d = (tally_tensor_desc){
		.name = "w", .dtype = TALLY_INT8, .count = 6, .shape = shape, .ndims = 9,
	};
	ck_assert_int_eq(tally_declare(s, &d, 1, &t), TALLY_EINVAL);
	expect_text("more than 8 dimensions");
	d = (tally_tensor_desc){ .name = "w", .dtype = TALLY_INT8, .count = (64ull << 30) + 1 };
	ck_assert_int_eq(tally_declare(s, &d, 1, &t), TALLY_EINVAL);
	expect_text("more than 68719476736 bytes");
	finish();
}
END_TEST

START_TEST(misuse_is_refused_and_harmless)
{
	uint64_t shape[9] = { 2, 3, 1, 1, 1, 1, 1, 1, 1 };
	const tally_tensor_desc bad[] = {
		{ .name = NULL, .dtype = TALLY_INT8, .count = 1 },
		{ .name = "", .dtype = TALLY_INT8, .count = 1 },
		{ .name = "line\nfeed", .dtype = TALLY_INT8, .count = 1 },
		{ .name = "x", .dtype = (tally_dtype)0, .count = 1 },
		{ .name = "x", .dtype = (tally_dtype)9, .count = 1 },
		{ .name = "x", .dtype = (tally_dtype)257, .count = 1 },
		{ .name = "x", .dtype = TALLY_FLOAT64, .count = UINT64_MAX },
		{ .name = "x", .dtype = TALLY_INT8, .count = 5, .shape = shape, .ndims = 2 },
		{ .name = "x", .dtype = TALLY_INT8, .count = 6, .shape = shape, .ndims = 9 },
		{ .name = "x", .dtype = TALLY_INT8, .count = 6, .ndims = 2 },
	};
	tally_tensor *t = NULL, *two[2];
	float x[4], *p;
	tally_ticket k;

	start(NO_TRICK);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(tally_declare(s, &bad[i], 1, &t), TALLY_EINVAL);
		ck_assert_ptr_null(t);
		ck_assert_str_ne(tally_error_text(s), "");
	}
	ck_assert_int_eq(tally_declare(s, NULL, 1, &t), TALLY_EINVAL);
	ck_assert_str_eq(tally_error_text(s), "no descriptions, or no room for tensors");
	ck_assert_int_eq(tally_declare(s, NULL, 0, NULL), 0);
	t = declare("w", TALLY_FLOAT32, 4);
	for (uint32_t n = 1; n <= 2; n++) {	/* declared before; twice in one call */
		const tally_tensor_desc again = {
			.name = n == 1 ? "w" : "v", .dtype = TALLY_FLOAT32, .count = 4,
		};

		ck_assert_int_eq(tally_declare(s, (tally_tensor_desc[]){ again, again }, n, two),
				 TALLY_EEXIST);
	}
	(void)declare("v", TALLY_FLOAT32, 4);
	ck_assert_int_eq(tally_push_pull(s, NULL, x, x, NULL, &k), TALLY_EINVAL);
	ck_assert_int_eq(tally_push_pull(s, t, NULL, x, NULL, &k), TALLY_EINVAL);
	ck_assert_int_eq(tally_push_pull(s, t, x, x, NULL, NULL), TALLY_EINVAL);
	ck_assert_int_eq(tally_push_pull(NULL, t, x, x, NULL, &k), TALLY_EINVAL);
	two[0] = two[1] = t;
	ck_assert_int_eq(tally_undeclare(s, two, 2), TALLY_EINVAL);
	ck_assert_int_eq(tally_undeclare(s, NULL, 2), TALLY_EINVAL);
	ck_assert_str_eq(tally_error_text(s), "no tensors");
	ck_assert_int_eq(tally_free(s, x), TALLY_EINVAL);
	ck_assert_int_eq(tally_alloc(s, 3 * PAGE_BYTES, (void **)&p), 0);
	ck_assert_int_eq(tally_free(s, p + 1), TALLY_EINVAL);
	ck_assert_int_eq(tally_free(s, p + PAGE_BYTES / sizeof(*p)), TALLY_EINVAL);
	ck_assert_int_eq(tally_free(s, p), 0);
	ck_assert_int_eq(tally_free(s, p), TALLY_EINVAL);
	ck_assert_int_eq(tally_free(s, NULL), 0);
	ck_assert_int_eq(tally_alloc(s, SIZE_MAX, (void **)&p), TALLY_EINVAL);
	ck_assert_int_eq(tally_import(s, -1, PAGE_BYTES, (void **)&p), TALLY_EINVAL);
	ck_assert_int_eq(tally_import(s, STDERR_FILENO, PAGE_BYTES, (void **)&p), TALLY_EINVAL);
	ck_assert_str_eq(tally_error_text(s), "the descriptor is no dma-buf");
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(i ? tally_alloc(s, PAGE_BYTES, NULL) :
				     tally_import(s, STDERR_FILENO, PAGE_BYTES, NULL),
				 TALLY_EINVAL);
		ck_assert_str_eq(tally_error_text(s), "no place for the memory's address");
		ck_assert_int_eq(tally_free(s, x), TALLY_EINVAL);
	}
	ck_assert_int_eq(tally_import(NULL, STDERR_FILENO, PAGE_BYTES, (void **)&p), TALLY_EINVAL);
	wait_ok(push(t, x, x));
	finish();
}
END_TEST

START_TEST(memory_in_use_is_not_freed)
{
	tally_tensor *t;
	tally_ticket k;
	float *p, *out;

	start(HOLD_ROUNDS);
	t = declare("w", TALLY_FLOAT32, 10);
	ck_assert_int_eq(tally_alloc(s, 40, (void **)&p), 0);
	ck_assert_int_eq(tally_alloc(s, 40, (void **)&out), 0);
	k = push(t, p, out);
	ck_assert_int_eq(tally_free(s, p), TALLY_EBUSY);
	ck_assert_int_eq(tally_free(s, out), TALLY_EBUSY);
	while (atomic_load(&agent->rounds) == 0)
		sched_yield();
	fake_release(agent);
	wait_ok(k);
	ck_assert_int_eq(tally_free(s, p), 0);
	ck_assert_int_eq(tally_free(s, out), 0);
	finish();
}
END_TEST

START_TEST(full_ring_is_again_and_costs_no_round)
{
	enum { N = RING_ENTRIES + 1 };
	tally_tensor_desc *d = calloc(N, sizeof(*d));
	tally_tensor **t = calloc(N, sizeof(*t));
	char (*names)[12] = calloc(N, sizeof(*names));
	tally_ticket k;
	uint8_t *x;

	start(NO_TRICK);
	ck_assert_int_eq(tally_alloc(s, 1, (void **)&x), 0);
	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "t%d", i);
		d[i] = (tally_tensor_desc){ .name = names[i], .dtype = TALLY_UINT8, .count = 1 };
	}
	ck_assert_int_eq(tally_declare(s, d, N, t), 0);
	pthread_mutex_lock(&agent->pause);
	for (uint32_t i = 0; i < RING_ENTRIES; i++)
		push(t[i], x, NULL);
	ck_assert_int_eq(tally_push_pull(s, t[N - 1], x, NULL, NULL, &k), TALLY_EAGAIN);
	pthread_mutex_unlock(&agent->pause);
	while (tally_push_pull(s, t[N - 1], x, NULL, NULL, &k) == TALLY_EAGAIN)
		sched_yield();
	wait_ok(k);
	finish();
	free(d);
	free(t);
	free(names);
}
END_TEST

/* ---- the heap ---- */

/* A call that found no memory did nothing: called again, with memory, it works. */
#define WITH_HEAP(call) do { \
		int rc_ = (call); \
		if (rc_ == TALLY_ENOMEM) \
			rc_ = (call); \
		ck_assert_msg(rc_ == 0, "%s: %d %s", #call, rc_, tally_error_text(s)); \
	} while (0)

static int attach_again(void)
{
	tally_detach(s);
	return attach_at(agent->path, DEADLINE_MS);
}

/* The whole way, with heap call number n failing; false: there was no such call. */
static bool whole_way(uint32_t n)
{
	tally_tensor_desc d[100];
	tally_tensor *t[100];
	char names[100][8];
	float x[5] = { 1, 2, 3, 4, 5 }, out[5] = { 0 };
	tally_ticket k;
	void *p;

	for (int i = 0; i < 100; i++) {
		snprintf(names[i], sizeof(names[i]), "t%d", i);
		d[i] = (tally_tensor_desc){ .name = names[i], .dtype = TALLY_FLOAT32, .count = 5 };
	}
	heap_calls = 0;
	fail_at = n;
	s = NULL;
	WITH_HEAP(attach_again());
	WITH_HEAP(tally_alloc(s, 100, &p));
	WITH_HEAP(tally_declare(s, d, 2, t));
	WITH_HEAP(tally_declare(s, d + 2, 98, t + 2));
	WITH_HEAP(tally_push_pull(s, t[77], x, out, NULL, &k));
	WITH_HEAP(tally_wait(s, k, DEADLINE_MS));
	ck_assert_mem_eq(x, out, sizeof(x));
	WITH_HEAP(tally_alloc(s, 30 << 20, &p));
	WITH_HEAP(tally_barrier(s, DEADLINE_MS));
	WITH_HEAP(tally_undeclare(s, t, 100));
	ck_assert_uint_eq(atomic_load(&agent->live_tensors), 0);
	fail_at = 0;
	ck_assert_int_eq(tally_detach(s), 0);
	return heap_calls >= n;
}

START_TEST(heap_that_fails_at_any_call_costs_that_call_only)
{
	uint32_t n = 1;

	agent = fake_start(NO_TRICK);
	while (whole_way(n))
		n++;
	ck_assert_uint_gt(n, 100);	/* one for each tensor at least */
	fake_end(agent);
}
END_TEST

START_TEST(public_numbers_are_the_tables)
{
#define X(name, num, help) ck_assert_int_eq(TALLY_##name, -(num));
	ERR_TABLE(X)
#undef X
#define X(e, num, name, bytes) ck_assert_uint_eq(tally_dtype_size((tally_dtype)(num)), bytes);
	DTYPE_TABLE(X)
#undef X
	ck_assert_int_eq((int)TALLY_FLOAT32, (int)DTYPE_F32);
	ck_assert_int_eq((int)TALLY_BFLOAT16, (int)DTYPE_BF16);
	ck_assert_int_eq((int)TALLY_INT64, (int)DTYPE_I64);
	ck_assert_int_eq((int)TALLY_SUM, (int)ROP_SUM);
	ck_assert_int_eq((int)TALLY_MEAN, (int)ROP_MEAN);
}
END_TEST

START_TEST(error_codes_have_names_and_help)
{
	ck_assert_str_eq(tally_error_name(TALLY_EMISMATCH), "EMISMATCH");
	ck_assert_str_eq(tally_error_name(-99), "EUNKNOWN");
	for (int code = TALLY_EINTERNAL; code <= 0; code++) {
		ck_assert_str_ne(tally_error_name(code), "EUNKNOWN");
		ck_assert_str_ne(tally_error_help(code), "");
	}
	ck_assert_str_eq(tally_version(), "0.1.0");
	ck_assert_uint_eq(tally_dtype_size(TALLY_BFLOAT16), 2);
	ck_assert_uint_eq(tally_dtype_size((tally_dtype)0), 0);
	ck_assert_uint_eq(tally_dtype_size((tally_dtype)258), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client");
	TCase *tc = tcase_create("all");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, client_knows_its_place_after_attach);
	tcase_add_test(tc, client_round_gives_results_in_place_elsewhere_or_in_view);
	tcase_add_test(tc, client_agent_fills_memory_of_the_arena);
	tcase_add_test(tc, client_that_may_shrink_keeps_its_input_and_sees_who_is_lost);
	tcase_add_test(tc, client_grows_between_rounds_and_hears_how_many_came);
	tcase_add_test(tc, client_grows_no_job_that_ends_with_a_rank);
	tcase_add_test(tc, client_foreign_input_may_change_after_the_call);
	tcase_add_test(tc, client_tensors_may_be_waited_for_in_any_order);
	tcase_add_test(tc, client_empty_tensor_works_like_any_other);
	tcase_add_test(tc, client_broadcast_sends_the_root_only);
	tcase_add_test(tc, client_operation_and_priority_reach_the_agent);
	tcase_add_test(tc, client_arena_is_zeroed_aligned_reused_and_grows);
	tcase_add_test(tc, client_many_tensors_in_several_batches);
	tcase_add_test(tc, client_leaves_no_descriptor_behind);
	tcase_add_test(tc, ticket_is_used_up_by_waiting);
	tcase_add_test(tc, ticket_of_a_former_tensor_is_stale);
	tcase_add_test(tc, ticket_second_round_waits_for_the_first);
	tcase_add_test(tc, ticket_outlives_a_timeout_that_names_who_is_missing);
	tcase_add_test(tc, ticket_of_a_failed_round_is_used_up_and_the_tensor_lives);
	tcase_add_test(tc, completions_that_match_nothing_are_ignored);
	tcase_add_test(tc, descriptor_tells_of_completions_and_of_the_end);
	tcase_add_test(tc, tensor_has_the_limits_of_the_header);
	tcase_add_test(tc, misuse_is_refused_and_harmless);
	tcase_add_test(tc, memory_in_use_is_not_freed);
	tcase_add_test(tc, full_ring_is_again_and_costs_no_round);
	tcase_add_test(tc, heap_that_fails_at_any_call_costs_that_call_only);
	tcase_add_test(tc, public_numbers_are_the_tables);
	tcase_add_test(tc, error_codes_have_names_and_help);
	suite_add_tcase(suite, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
