// SPDX-License-Identifier: Apache-2.0
/*
 * libtally with an agent that refuses, lies, falls silent or dies, and with a job
 * that fails: a clear error each time, and no descriptor left behind.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/unit/client_rig.h"

/* ---- attach that fails ---- */

static void expect_no_attach(enum fake_trick trick, int timeout_ms, int code, const char *text)
{
	int before = open_descriptors();
	tally_tensor *t;
	void *p;

	agent = fake_start(trick);
	ck_assert_int_eq(attach_at(agent->path, timeout_ms), code);
	ck_assert_ptr_nonnull(s);
	expect_text(text);
	ck_assert_int_eq(tally_alloc(s, 1, &p), code);
	ck_assert_int_eq(tally_barrier(s, 1), code);
	ck_assert_int_eq(tally_declare(s, NULL, 0, &t), code);
	ck_assert_int_eq(tally_fd(s), code);
	ck_assert_int_eq(tally_poll(s), code);
	ck_assert_int_eq(tally_wait(s, 1, 1), code);
	ck_assert_int_eq(tally_test(s, 1), code);
	expect_text(text);
	finish();
	ck_assert_int_eq(open_descriptors(), before);
}

START_TEST(attach_without_an_agent_says_where_it_looked)
{
	ck_assert_int_eq(attach_at("/tmp/no-such-agent", 100), TALLY_EAGENT);
	expect_text("/tmp/no-such-agent");
	tally_detach(s);
	ck_assert_int_eq(tally_attach(NULL, NULL), TALLY_EINVAL);
	ck_assert_int_eq(tally_detach(NULL), 0);
	ck_assert_str_eq(tally_error_text(NULL), "");
}
END_TEST

START_TEST(attach_refused_carries_the_agents_text)
{
	expect_no_attach(REFUSE_ATTACH, DEADLINE_MS, TALLY_EMISMATCH,
			 "rank 1 says 2 ranks, rank 0 says 4");
}
END_TEST

START_TEST(attach_to_something_that_is_no_agent_is_an_error)
{
	expect_no_attach(GARBAGE_ATTACH, DEADLINE_MS, TALLY_EPROTO, "agent at");
	expect_no_attach(HANG_UP_ATTACH, DEADLINE_MS, TALLY_EAGENT, "is gone");
	expect_no_attach(FEW_FDS_ATTACH, DEADLINE_MS, TALLY_EPROTO, "descriptors");
	expect_no_attach(NO_BELL_ATTACH, DEADLINE_MS, TALLY_EPROTO, "descriptors");
	expect_no_attach(SHORT_RING_ATTACH, DEADLINE_MS, TALLY_EPROTO, "ring");
	expect_no_attach(OTHER_RANK_ATTACH, DEADLINE_MS, TALLY_EPROTO, "rank 0 of 3");
}
END_TEST

START_TEST(attach_to_a_mute_agent_times_out)
{
	expect_no_attach(MUTE_ATTACH, 1, TALLY_ETIMEDOUT, "no answer");
}
END_TEST

/* ---- requests that fail ---- */

START_TEST(barrier_refusal_is_the_calls_error_only)
{
	start(REFUSE_BARRIER);
	ck_assert_int_eq(tally_barrier(s, 1000), TALLY_ETIMEDOUT);
	ck_assert_str_eq(tally_error_text(s), "rank 1 (machine b) is missing");
	agent->trick = NO_TRICK;
	ck_assert_int_eq(tally_barrier(s, 1000), 0);
	ck_assert_uint_eq(agent->last_generation, 1);	/* the same one */
	ck_assert_int_eq(tally_barrier(s, 1000), 0);
	ck_assert_uint_eq(agent->last_generation, 2);
	finish();
}
END_TEST

START_TEST(late_answer_is_dropped)
{
	start(LATE_BARRIER);
	ck_assert_int_eq(tally_barrier(s, 1), TALLY_ETIMEDOUT);
	ck_assert_int_eq(tally_barrier(s, DEADLINE_MS), 0);
	finish();
}
END_TEST

static void expect_protocol_error(enum fake_trick trick)
{
	void *p;

	start(trick);
	ck_assert_int_eq(tally_barrier(s, DEADLINE_MS), TALLY_EPROTO);
	expect_text(agent->path);
	ck_assert_int_eq(tally_alloc(s, 1, &p), TALLY_EPROTO);
	finish();
}

START_TEST(answers_nobody_asked_for_end_the_session)
{
	expect_protocol_error(WRONG_REQ_BARRIER);
	expect_protocol_error(WRONG_TYPE_BARRIER);
}
END_TEST

START_TEST(arena_takes_what_the_agent_can_give)
{
	void *p;

	start(REFUSE_SLAB);
	ck_assert_int_eq(tally_alloc(s, 100000, &p), 0);
	ck_assert_int_eq(tally_alloc(s, 2 << 20, &p), TALLY_EQUOTA);
	expect_text("1 MiB is all there is");
	ck_assert_int_eq(tally_barrier(s, DEADLINE_MS), 0);
	finish();
}
END_TEST

/* However often the agent is asked: timeout_ms and 2 s in all. */
START_TEST(arena_has_one_time_limit_for_all_its_questions)
{
	void *p;

	agent = fake_start(LATE_SLAB);
	ck_assert_int_eq(attach_at(agent->path, 2000), 0);
	ck_assert_int_eq(tally_alloc(s, 100000, &p), TALLY_ETIMEDOUT);
	finish();
}
END_TEST

START_TEST(arena_slab_that_is_none_is_an_error)
{
	void *p;

	start(SMALL_SLAB);
	ck_assert_int_eq(tally_alloc(s, 1, &p), TALLY_EPROTO);
	finish();
	start(NO_FD_SLAB);
	ck_assert_int_eq(tally_alloc(s, 1, &p), TALLY_EPROTO);
	finish();
}
END_TEST

START_TEST(declare_refusal_names_the_mismatch_and_is_survived)
{
	tally_tensor_desc d = { .name = "w", .dtype = TALLY_FLOAT32, .count = 1 };
	tally_tensor *t = NULL;

	start(REFUSE_DECLARE);
	ck_assert_int_eq(tally_declare(s, &d, 1, &t), TALLY_EMISMATCH);
	expect_text("rank 1 says int8");
	ck_assert_ptr_null(t);
	agent->trick = NO_TRICK;
	ck_assert_int_eq(tally_declare(s, &d, 1, &t), 0);
	finish();
}
END_TEST

START_TEST(declare_answer_that_makes_no_sense_ends_the_session)
{
	static const enum fake_trick tricks[] = {
		NO_SLAB_DECLARE, OUTSIDE_DECLARE, SAME_ID_DECLARE, FEW_DECLARE,
	};
	const tally_tensor_desc d[2] = {
		{ .name = "v", .dtype = TALLY_FLOAT32, .count = 1 },
		{ .name = "w", .dtype = TALLY_FLOAT32, .count = 1 },
	};
	tally_tensor *t[2], *u;

	for (size_t i = 0; i < ARRAY_SIZE(tricks); i++) {
		start(NO_TRICK);
		u = declare("u", TALLY_FLOAT32, 1);
		agent->trick = tricks[i];
		ck_assert_int_eq(tally_declare(s, d, 2, t), TALLY_EPROTO);
		ck_assert_int_eq(tally_undeclare(s, &u, 1), TALLY_EPROTO);
		finish();
	}
}
END_TEST

START_TEST(declare_that_fails_halfway_takes_the_first_half_back)
{
	enum { N = TENSORS_PER_BATCH_MAX + 1 };
	tally_tensor_desc *d = calloc(N, sizeof(*d));
	tally_tensor **t = calloc(N, sizeof(*t));
	char (*names)[12] = calloc(N, sizeof(*names));

	start(REFUSE_SECOND_DECLARE);
	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "t%d", i);
		d[i] = (tally_tensor_desc){ .name = names[i], .dtype = TALLY_FLOAT32, .count = 1 };
	}
	ck_assert_int_eq(tally_declare(s, d, N, t), TALLY_EMISMATCH);
	expect_text("rank 1 says int8");
	ck_assert_ptr_null(t[0]);
	ck_assert_uint_eq(atomic_load(&agent->live_tensors), 0);
	finish();
	free(d);
	free(t);
	free(names);
}
END_TEST

/* Together they might be more chunks than a log entry has. */
START_TEST(declare_of_huge_tensors_is_several_requests)
{
	const tally_tensor_desc d[2] = {
		{ .name = "v", .dtype = TALLY_INT8, .count = 1 },
		{ .name = "w", .dtype = TALLY_INT8, .count = TENSOR_BYTES_MAX },
	};
	tally_tensor *t[2] = { NULL };

	start(REFUSE_SECOND_DECLARE);
	ck_assert_int_eq(tally_declare(s, d, 2, t), TALLY_EMISMATCH);
	ck_assert_uint_eq(atomic_load(&agent->declares), 2);
	ck_assert_uint_eq(atomic_load(&agent->live_tensors), 0);
	finish();
}
END_TEST

/* ---- the end comes while rounds are in flight ---- */

START_TEST(agent_that_dies_wakes_the_waiter)
{
	float x = 1;
	tally_tensor *t;
	tally_ticket k;

	start(DIE_ON_ROUND);
	t = declare("w", TALLY_FLOAT32, 1);
	k = push(t, &x, &x);
	ck_assert_int_eq(tally_wait(s, k, DEADLINE_MS), TALLY_EAGENT);
	expect_text(agent->path);
	expect_text("is gone");
	ck_assert_int_eq(tally_wait(s, k, 0), TALLY_EAGENT);
	ck_assert_int_eq(tally_push_pull(s, t, &x, &x, NULL, &k), TALLY_EAGENT);
	ck_assert_int_eq(tally_barrier(s, 10), TALLY_EAGENT);
	finish();
}
END_TEST

/* It is told how far this process is; what the first one says after that is not so any more. */
static void come_back(bool polls, uint32_t first_round)
{
	float x[4] = { 1, 2, 3, 4 }, out[4] = { 0 };
	tally_tensor *t;
	tally_ticket k;

	start(LEAVE_ON_ROUND);
	agent->first_round = first_round;
	t = declare("w", TALLY_FLOAT32, 4);
	if (polls)
		ck_assert_int_ge(tally_fd(s), 0);
	k = push(t, x, out);
	while (!atomic_load(&agent->backs))
		ck_assert_int_eq(tally_wait(s, k, 1), TALLY_ETIMEDOUT);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(tally_wait(s, k, 1), TALLY_ETIMEDOUT);
		ck_assert_int_eq(tally_test(s, k), TALLY_EAGAIN);
		ck_assert_int_eq(polls ? tally_poll(s) : 0, 0);
	}
	ck_assert_int_eq(tally_wait(s, k, 1), TALLY_ETIMEDOUT);
	expect_text("was started again, and waits for other processes");
	ck_assert_uint_eq(agent->back_round, first_round);
	ck_assert_uint_eq(agent->back_flies, 1);
	fake_release(agent);
	wait_ok(k);
	ck_assert_mem_eq(out, x, sizeof(x));
	ck_assert_uint_eq(agent->rounds, 2);
	finish();
}

START_TEST(agent_that_comes_back_hears_the_round_that_the_process_goes_by)
{
	come_back(false, 0);
	come_back(true, 0);
	come_back(false, 17);		/* it came late: its first round is not the job's */
}
END_TEST

static tally_tensor **many;

static void declare_many(uint32_t n)
{
	tally_tensor_desc *desc = calloc(n, sizeof(*desc));
	char (*name)[16] = calloc(n, sizeof(*name));

	for (uint32_t i = 0; i < n; i++) {
		snprintf(name[i], sizeof(name[i]), "t%u", i);
		desc[i] = (tally_tensor_desc){ .name = name[i], .dtype = TALLY_FLOAT32,
					       .count = 1 };
	}
	many = calloc(n, sizeof(*many));
	ck_assert_int_eq(tally_declare(s, desc, n, many), 0);
	free(desc);
	free(name);
}

/* More is handed back than a socket takes that nobody reads. */
START_TEST(agent_that_comes_back_and_stands_still_holds_up_nobody_who_polls)
{
	float x = 1;
	tally_ticket k;

	start(LEAVE_ON_ROUND);
	declare_many(16000);
	agent->still = true;
	k = push(many[0], &x, &x);
	while (atomic_load(&agent->rounds) < 1)
		sched_yield();
	for (uint32_t i = 0; i < 100; i++) {
		mono_t before = lt_now();

		if (i % 2)
			ck_assert_int_eq(tally_test(s, k), TALLY_EAGAIN);
		else
			ck_assert_int_eq(tally_poll(s), 0);
		ck_assert_int_lt(lt_now() - before, mono_ms(4000));
		usleep(10000);
	}
	agent->still = false;
	while (!atomic_load(&agent->backs))
		ck_assert_int_eq(tally_test(s, k), TALLY_EAGAIN);
	fake_release(agent);
	wait_ok(k);
	finish();
	free(many);
}
END_TEST

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

/* It is killed, or stands still, while there are more rounds to be given again than its ring has
 * room for.  (_i: the process only polls.) */
START_TEST(agent_that_dies_as_rounds_are_given_again_is_waited_for)
{
	enum { N = RING_ENTRIES + 1000 };
	tally_ticket *k = calloc(N, sizeof(*k));
	float x = 1;
	int fd;

	start(LEAVE_ON_ROUND);
	declare_many(N);
	agent->swallows = N - 1;
	for (uint32_t i = 0; i < N; i++)
		while (tally_push_pull(s, many[i], &x, &x, NULL, &k[i]) == TALLY_EAGAIN)
			sched_yield();
	while (!atomic_load(&agent->backs))
		ck_assert_int_eq(tally_wait(s, k[0], 1), TALLY_ETIMEDOUT);
	fd = _i ? tally_fd(s) : -1;
	agent->dies_of_back = true;
	fake_release(agent);
	while (atomic_load(&agent->backs) < 2) {
		ck_assert(fd < 0 || readable(fd, DEADLINE_MS));
		if (fd < 0)
			ck_assert_int_eq(tally_wait(s, k[0], 1), TALLY_ETIMEDOUT);
		else
			ck_assert_int_ge(tally_poll(s), 0);
	}
	fake_release(agent);
	for (uint32_t i = 0; i < N; i++)
		wait_ok(k[i]);
	finish();
	free(many);
	free(k);
}
END_TEST

/* Not for ever: as an event loop, which looks whenever there may be news. */
static bool falls_silent(int fd)
{
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_ge(tally_poll(s), 0);
		if (!readable(fd, 0))
			return true;
	}
	return false;
}

/* It has our descriptors, and none of the agent's. */
static pid_t child_of_ours(void)
{
	pid_t child = fork();

	if (child)
		return child;
	close(agent->conn);
	close(agent->sub_bell[1]);
	close(agent->cpl_bell[0]);
	for (;;)
		pause();
}

static void end_child(pid_t child)
{
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

/* Another call has found the agent gone, and back: who polls hears of the round all the same. */
START_TEST(descriptor_tells_of_rounds_though_another_call_came_back)
{
	float x = 1;
	tally_ticket k;
	pid_t child;
	int fd;

	start(LEAVE_ON_ROUND);
	agent->at_once = true;
	fd = tally_fd(s);
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &x);
	child = child_of_ours();
	while (atomic_load(&agent->rounds) < 1)
		sched_yield();
	ck_assert_int_eq(tally_barrier(s, DEADLINE_MS), 0);
	ck_assert_uint_eq(agent->backs, 1);
	ck_assert(readable(fd, DEADLINE_MS));
	wait_ok(k);
	ck_assert(falls_silent(fd));
	end_child(child);
	finish();
}
END_TEST

/* An agent that is started again takes no results with a gap in their numbers. */
START_TEST(results_that_could_not_be_mapped_are_handed_back)
{
	const tally_tensor_desc large = {
		.name = "v", .dtype = TALLY_FLOAT32, .count = 4u << 20,
	};
	int before = open_descriptors();
	struct rlimit was;
	tally_tensor *t;
	float x = 1;

	start(LEAVE_ON_ROUND);
	agent->at_once = true;
	declare("u", TALLY_FLOAT32, 1);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &was), 0);
	agent->trick = NO_ROOM_RESULTS;
	ck_assert_int_eq(tally_declare(s, &large, 1, &t), TALLY_ENOMEM);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &was), 0);
	expect_text("tensor v: mapping a slab");
	agent->trick = LEAVE_ON_ROUND;
	wait_ok(push(declare("w", TALLY_FLOAT32, 1), &x, &x));
	ck_assert_uint_eq(agent->backs, 1);
	ck_assert_uint_eq(agent->back_results, 3);
	finish();
	ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

/* They are tried again like an agent that is not there. */
START_TEST(descriptors_that_are_used_up_when_the_agent_is_back_are_waited_for)
{
	struct rlimit was, tight;
	tally_ticket k;
	float x = 1;

	start(LEAVE_ON_ROUND);
	agent->at_once = true;
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &x);
	while (atomic_load(&agent->rounds) < 1)
		sched_yield();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	tight = (struct rlimit){ 4, was.rlim_max };	/* of which none is free */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
	ck_assert_int_eq(tally_wait(s, k, SHORT_MS), TALLY_ETIMEDOUT);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
	wait_ok(k);
	ck_assert_uint_eq(agent->backs, 1);
	finish();
}
END_TEST

/* Of the ring of a job that ends an agent reads no more than what it was told of. */
START_TEST(agent_that_comes_back_hears_first_what_was_handed_back)
{
	const tally_push_pull_options mean = { .op = TALLY_MEAN };
	tally_tensor *before, *handed;
	tally_ticket k[2];
	float x = 1;

	start(LEAVE_ON_ROUND);
	before = declare("v", TALLY_FLOAT32, 1);
	handed = declare("w", TALLY_FLOAT32, 1);
	k[0] = push(handed, &x, &x);
	while (!atomic_load(&agent->backs))
		ck_assert_int_eq(tally_wait(s, k[0], 1), TALLY_ETIMEDOUT);
	ck_assert_int_eq(tally_push_pull(s, before, &x, &x, &mean, &k[1]), 0);
	fake_release(agent);
	wait_ok(k[0]);
	wait_ok(k[1]);
	ck_assert_uint_eq(agent->rounds, 3);
	ck_assert_int_eq(agent->last_rop, ROP_MEAN);
	finish();
}
END_TEST

/* A child, such as loads data, has the first agent's descriptors, too. */
START_TEST(descriptor_falls_silent_while_the_agent_is_away_and_after)
{
	float x = 1;
	tally_ticket k;
	pid_t child;
	int fd;

	start(LEAVE_ON_ROUND);
	fd = tally_fd(s);
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &x);
	child = child_of_ours();
	while (!atomic_load(&agent->backs))
		ck_assert_int_eq(tally_wait(s, k, 1), TALLY_ETIMEDOUT);
	ck_assert(falls_silent(fd));
	fake_release(agent);
	wait_ok(k);
	ck_assert(falls_silent(fd));
	end_child(child);
	finish();
}
END_TEST

START_TEST(detach_does_not_wait_to_be_taken_back)
{
	float x = 1;
	tally_ticket k;

	start(LEAVE_ON_ROUND);
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &x);
	while (!atomic_load(&agent->backs))
		ck_assert_int_eq(tally_wait(s, k, 1), TALLY_ETIMEDOUT);
	ck_assert_int_eq(tally_detach(s), 0);
	ck_assert_uint_eq(agent->detaches, 1);
	fake_end(agent);
}
END_TEST

/* It was waiting to be taken back, and the next agent hears that it goes. */
START_TEST(detach_goes_to_the_next_agent_when_one_dies_of_it)
{
	float x = 1;
	tally_ticket k;
	mono_t begin;

	agent = fake_start(LEAVE_ON_ROUND);
	agent->grace_ms = 100;
	ck_assert_int_eq(attach_at(agent->path, DEADLINE_MS), 0);
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &x);
	while (!atomic_load(&agent->backs))
		ck_assert_int_eq(tally_wait(s, k, 1), TALLY_ETIMEDOUT);
	agent->dies_of_detach = true;
	begin = lt_now();
	ck_assert_int_eq(tally_detach(s), 0);
	ck_assert_uint_eq(agent->detaches, 1);
	ck_assert_int_lt(lt_now() - begin, mono_ms(5000));
	fake_end(agent);
}
END_TEST

START_TEST(agent_that_dies_is_noticed_by_test)
{
	float x = 1;
	tally_ticket k;
	int rc;

	start(DIE_ON_ROUND);
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &x);
	while ((rc = tally_test(s, k)) == TALLY_EAGAIN)
		sched_yield();
	ck_assert_int_eq(rc, TALLY_EAGENT);
	finish();
}
END_TEST

START_TEST(failed_job_is_the_answer_to_everything)
{
	float x = 1;
	tally_tensor *t;
	tally_ticket k;
	void *p;

	start(FAIL_JOB);
	t = declare("w", TALLY_FLOAT32, 1);
	k = push(t, &x, &x);
	ck_assert_int_eq(tally_wait(s, k, DEADLINE_MS), TALLY_EWORKERLOST);
	ck_assert_str_eq(tally_error_text(s), "rank 3 is gone");
	ck_assert_int_eq(tally_push_pull(s, t, &x, &x, NULL, &k), TALLY_EWORKERLOST);
	ck_assert_str_eq(tally_error_text(s), "rank 3 is gone");
	ck_assert_int_eq(tally_undeclare(s, &t, 1), TALLY_EWORKERLOST);
	ck_assert_int_eq(tally_alloc(s, 1, &p), TALLY_EWORKERLOST);
	finish();
}
END_TEST

START_TEST(broken_completion_ring_ends_the_session)
{
	float x = 1;
	tally_ticket k;

	start(BREAK_RING);
	k = push(declare("w", TALLY_FLOAT32, 1), &x, &x);
	ck_assert_int_eq(tally_wait(s, k, DEADLINE_MS), TALLY_EPROTO);
	ck_assert_int_eq(tally_barrier(s, 10), TALLY_EPROTO);
	finish();
}
END_TEST

/* ---- timeline ---- */

/* How many events of a category the file of a run has. */
static int spans_of(const char *what)
{
	char path[96], line[2048];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/line.0", agent->dir);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, what) != NULL;
	fclose(f);
	return n;
}

static void run_with_timeline(enum fake_trick trick)
{
	char path[96];
	float in[100] = { 1 };
	tally_tensor *t;

	agent = fake_start(trick);
	snprintf(path, sizeof(path), "%s/line", agent->dir);
	setenv("TALLY_TIMELINE", path, 1);
	ck_assert_msg(attach_at(agent->path, DEADLINE_MS) == 0, "%s", tally_error_text(s));
	unsetenv("TALLY_TIMELINE");
	t = declare("grad", TALLY_FLOAT32, 100);
	wait_ok(push(t, in, in));
}

static void end_with_timeline(void)
{
	char path[96];

	tally_detach(s);
	s = NULL;
	ck_assert_int_eq(spans_of("left_out"), 1);
	snprintf(path, sizeof(path), "%s/line.0", agent->dir);
	unlink(path);
	fake_end(agent);
	agent = NULL;
}

START_TEST(timeline_has_the_round_its_copies_and_what_the_agent_told)
{
	uint64_t ns = (uint64_t)lt_now();

	run_with_timeline(TELL_TIMES);
	ck_assert_int_eq(tally_span(s, TALLY_SPAN_FRAMEWORK, "forward", ns, ns + 1), 0);
	ck_assert_int_eq(tally_span(s, 0, "forward", ns, ns), TALLY_EINVAL);
	ck_assert_int_eq(tally_span(s, TALLY_SPAN_COPY, NULL, ns, ns), TALLY_EINVAL);
	ck_assert_int_eq(tally_span(s, TALLY_SPAN_COPY, "x", ns, ns - 1), TALLY_EINVAL);
	ck_assert_int_eq(tally_span(s, TALLY_SPAN_COPY, "x", ns, UINT64_MAX), TALLY_EINVAL);
	ck_assert_int_eq(tally_barrier(s, DEADLINE_MS), 0);	/* whatever waits lets lines out */
	ck_assert_int_eq(spans_of("\"cat\":\"framework\",\"name\":\"grad\""), 1);
	ck_assert_int_eq(spans_of("\"cat\":\"framework\",\"name\":\"forward\""), 1);
	ck_assert_int_eq(spans_of("\"cat\":\"copy\""), 2);
	ck_assert_int_eq(spans_of("\"cat\":\"network\""), 3);
	ck_assert_int_eq(spans_of("\"cat\":\"sum\""), 1);
	ck_assert_int_eq(spans_of("\"args\":{\"round\":1,\"bytes\":400,\"priority\":5}"), 7);
	end_with_timeline();
}
END_TEST

/* The agent had read its clock before the round was asked for, and looked at its rings then. */
START_TEST(timeline_has_a_round_that_an_agent_took_in_late_in_its_turn)
{
	run_with_timeline(TELL_EARLY_TIMES);
	ck_assert_int_eq(tally_barrier(s, DEADLINE_MS), 0);
	ck_assert_int_eq(spans_of("\"cat\":\"network\""), 3);
	ck_assert_int_eq(spans_of("\"cat\":\"sum\""), 1);
	end_with_timeline();
}
END_TEST

START_TEST(timeline_believes_no_other_clock)
{
	run_with_timeline(TELL_OTHER_TIMES);
	ck_assert_int_eq(tally_barrier(s, DEADLINE_MS), 0);
	ck_assert_int_eq(spans_of("\"cat\":\"copy\""), 2);
	ck_assert_int_eq(spans_of("\"cat\":\"network\"") + spans_of("\"cat\":\"sum\""), 0);
	end_with_timeline();
}
END_TEST

START_TEST(timeline_that_cannot_be_written_is_said_before_anybody_is_joined)
{
	setenv("TALLY_TIMELINE", "/nowhere/trace", 1);
	agent = fake_start(NO_TRICK);
	ck_assert_int_ne(attach_at(agent->path, DEADLINE_MS), 0);
	expect_text("TALLY_TIMELINE: /nowhere/trace.0: No such file");
	unsetenv("TALLY_TIMELINE");
	finish();
	ck_assert_int_eq(tally_span(NULL, TALLY_SPAN_COPY, "x", 0, 1), TALLY_EINVAL);
	start(NO_TRICK);
	ck_assert_int_eq(tally_span(s, TALLY_SPAN_COPY, "x", 0, 1), 0);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_trouble");
	TCase *tc = tcase_create("all");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, attach_without_an_agent_says_where_it_looked);
	tcase_add_test(tc, attach_refused_carries_the_agents_text);
	tcase_add_test(tc, attach_to_something_that_is_no_agent_is_an_error);
	tcase_add_test(tc, attach_to_a_mute_agent_times_out);
	tcase_add_test(tc, barrier_refusal_is_the_calls_error_only);
	tcase_add_test(tc, late_answer_is_dropped);
	tcase_add_test(tc, answers_nobody_asked_for_end_the_session);
	tcase_add_test(tc, arena_takes_what_the_agent_can_give);
	tcase_add_test(tc, arena_has_one_time_limit_for_all_its_questions);
	tcase_add_test(tc, arena_slab_that_is_none_is_an_error);
	tcase_add_test(tc, declare_refusal_names_the_mismatch_and_is_survived);
	tcase_add_test(tc, declare_answer_that_makes_no_sense_ends_the_session);
	tcase_add_test(tc, declare_of_huge_tensors_is_several_requests);
	tcase_add_test(tc, declare_that_fails_halfway_takes_the_first_half_back);
	tcase_add_test(tc, agent_that_dies_wakes_the_waiter);
	tcase_add_test(tc, agent_that_comes_back_hears_the_round_that_the_process_goes_by);
	tcase_add_test(tc, agent_that_comes_back_and_stands_still_holds_up_nobody_who_polls);
	tcase_add_loop_test(tc, agent_that_dies_as_rounds_are_given_again_is_waited_for, 0, 2);
	tcase_add_test(tc, descriptor_tells_of_rounds_though_another_call_came_back);
	tcase_add_test(tc, descriptor_falls_silent_while_the_agent_is_away_and_after);
	tcase_add_test(tc, agent_that_comes_back_hears_first_what_was_handed_back);
	tcase_add_test(tc, results_that_could_not_be_mapped_are_handed_back);
	tcase_add_test(tc, descriptors_that_are_used_up_when_the_agent_is_back_are_waited_for);
	tcase_add_test(tc, detach_does_not_wait_to_be_taken_back);
	tcase_add_test(tc, detach_goes_to_the_next_agent_when_one_dies_of_it);
	tcase_add_test(tc, agent_that_dies_is_noticed_by_test);
	tcase_add_test(tc, failed_job_is_the_answer_to_everything);
	tcase_add_test(tc, broken_completion_ring_ends_the_session);
	tcase_add_test(tc, timeline_has_the_round_its_copies_and_what_the_agent_told);
	tcase_add_test(tc, timeline_has_a_round_that_an_agent_took_in_late_in_its_turn);
	tcase_add_test(tc, timeline_believes_no_other_clock);
	tcase_add_test(tc, timeline_that_cannot_be_written_is_said_before_anybody_is_joined);
	suite_add_tcase(suite, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
