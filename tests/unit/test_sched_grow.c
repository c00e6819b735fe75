// SPDX-License-Identifier: Apache-2.0
/* sched_grow.c: ranks that come back into jobs that go on without those they lose. */
#include "tests/unit/sched_rig.h"

static uint32_t agent[2], srv, number;

static uint32_t late_chunk;		/* what join_late() wants; 0: any */

static void join_late(uint32_t conn, uint64_t req, uint32_t rank, uint32_t pid, uint32_t world)
{
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = req, .job = "x", .world = world, .rank = rank, .pid = pid,
		.timeout_ms = 20000, .on_loss = ON_LOSS_SHRINK, .chunk_bytes = late_chunk,
	} };

	send(conn, &m);
}

static void grow(uint32_t conn, uint64_t req, uint32_t rank, uint64_t generation)
{
	struct msg m = { .type = MSG_BARRIER, .barrier = {
		.req = req, .job = number, .rank = rank, .timeout_ms = 5000,
		.generation = generation, .grow = 1,
	} };

	send(conn, &m);
}

/* The server and both agents follow the newest epoch. */
static void follow(void)
{
	uint64_t epoch = last(srv, MSG_EPOCH)->epoch;

	ready_as(srv, MSG_EPOCH_READY, number, epoch, 0);
	for (uint32_t i = 0; i < 2; i++)
		ready_as(agent[i], MSG_EPOCH_READY, number, epoch, 0);
}

/* Agents a (ranks 0, 1) and b (2, 3), a server, tensors t and u; rank 1 is lost. */
static void job(void)
{
	agent[0] = hello(NODE_AGENT, "a");
	agent[1] = hello(NODE_AGENT, "b");
	srv = hello(NODE_SERVER, "s0");
	for (uint32_t r = 0; r < 4; r++)
		join_late(agent[r / 2], 1 + r, r, 100 + r, 4);
	number = last(srv, MSG_JOB_UP)->job;
	ready_as(srv, MSG_JOB_READY, number, last(srv, MSG_JOB_UP)->epoch, 0);
	for (uint32_t r = 0; r < 4; r++)
		declare_in(agent[r / 2], 10 + r, number, r, both, 2);
	ready_as(srv, MSG_TENSORS_READY, number, 1, 0);
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	follow();
}

static void beat(uint64_t ms)
{
	pass_beating(ms, (const uint32_t[]){ agent[0], agent[1], srv }, 3);
}

START_TEST(who_comes_is_let_in_when_all_grow_and_all_follow)
{
	job();
	join_late(agent[0], 50, 1, 201, 4);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 50), 0);
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	ck_assert_uint_eq(last(srv, MSG_EPOCH)->ngone, 1);
	grow(agent[1], 63, 3, 1);
	ck_assert_uint_eq(last(srv, MSG_EPOCH)->ngone, 0);
	ck_assert_uint_eq(last(agent[0], MSG_EPOCH)->ngone, 1);	/* servers first */
	ready_as(srv, MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
	ck_assert_uint_eq(last(agent[0], MSG_EPOCH)->ngone, 0);
	ready_as(agent[0], MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 60), 0);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 50), 0);
	ready_as(agent[1], MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
	ck_answer(agent[0], 60, 0, "");
	ck_answer(agent[1], 62, 0, "");
	ck_answer(agent[1], 63, 0, "");
	ck_assert_uint_eq(answer(agent[0], 50)->ids[0], number);
}
END_TEST

START_TEST(nobody_waits_and_it_is_a_barrier)
{
	uint32_t epochs;

	job();
	epochs = count(srv, MSG_EPOCH, REQ_ANY);
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 60), 0);
	grow(agent[1], 63, 3, 1);
	ck_answer(agent[0], 60, 0, "");
	ck_answer(agent[1], 63, 0, "");
	ck_assert_uint_eq(count(srv, MSG_EPOCH, REQ_ANY), epochs);
}
END_TEST

START_TEST(a_plain_barrier_lets_nobody_in)
{
	job();
	join_late(agent[0], 50, 1, 201, 4);
	barrier(agent[0], 60, number, 0, 1);
	barrier(agent[1], 62, number, 2, 1);
	barrier(agent[1], 63, number, 3, 1);
	ck_answer(agent[0], 60, 0, "");
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 50), 0);
	grow(agent[0], 70, 0, 2);
	barrier(agent[1], 72, number, 2, 2);
	grow(agent[1], 73, 3, 2);
	ck_answer(agent[0], 70, TALLY_EMISMATCH, "job 'x': rank 0 (machine a) calls tally_grow, "
		  "rank 2 (machine b) tally_barrier");
	ck_assert_int_eq(answer(agent[1], 72)->code, TALLY_EMISMATCH);
	beat(21000);
	ck_answer(agent[0], 50, TALLY_ETIMEDOUT, "rank 1 of job 'x' waited to come in, and the "
		  "survivors have not called tally_grow");
}
END_TEST

static void come_in(void)
{
	job();
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	follow();
	ck_answer(agent[0], 50, 0, NULL);
}

START_TEST(who_is_in_declares_what_is_there_and_is_one_of_all)
{
	static const struct want other = { "t", DTYPE_F32, 77 }, late = { "late", DTYPE_F32, 5 };

	come_in();
	declare_in(agent[0], 70, number, 1, &other, 1);
	ck_assert_int_eq(answer(agent[0], 70)->code, TALLY_EMISMATCH);
	ck_assert_ptr_nonnull(strstr(answer(agent[0], 70)->text, "tensor 't': the job has "));
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 0);
	declare_in(agent[0], 71, number, 1, both, 2);
	ck_answer(agent[0], 71, 0, NULL);
	ck_assert_uint_eq(answer(agent[0], 71)->ids[0], answer(agent[1], 13)->ids[0]);
	for (uint32_t r = 0; r < 4; r++)
		barrier(agent[r / 2], 80 + r, number, r, 2);
	ck_answer(agent[0], 81, 0, "");
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 80), 1);
	for (uint32_t r = 0; r < 3; r++)
		declare_in(agent[r / 2], 90 + r, number, r, &late, 1);
	ck_assert_uint_eq(last(srv, MSG_TENSORS)->seq, 1);
	declare_in(agent[1], 93, number, 3, &late, 1);
	ck_assert_uint_gt(last(srv, MSG_TENSORS)->seq, 1);
}
END_TEST

START_TEST(who_cannot_come_in_hears_why_at_once)
{
	job();
	join_late(agent[1], 50, 1, 201, 4);
	ck_answer(agent[1], 50, TALLY_EINVAL, "rank 1 of job 'x' can come back on machine a, where "
		  "it was; a machine in its place takes its name, by tally-agent --name");
	join_late(agent[0], 51, 1, 201, 5);
	ck_assert_int_eq(answer(agent[0], 51)->code, TALLY_EMISMATCH);
	join_late(agent[1], 52, 0, 201, 4);
	ck_assert_int_eq(answer(agent[1], 52)->code, TALLY_EEXIST);
	late_chunk = 2 * CHUNK_BYTES_DEFAULT;
	join_late(agent[0], 53, 1, 201, 4);
	ck_assert_int_eq(answer(agent[0], 53)->code, TALLY_EMISMATCH);
	late_chunk = 0;
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* What the survivors' agent says when it follows the epoch: tensor 1 has had round 7. */
static void follow_with_rounds(void)
{
	static const uint64_t rounds[] = { 1ull << 32 | 7, 2ull << 32, 99ull << 32 | 5 };
	struct msg m = { .type = MSG_EPOCH_READY, .ready = {
		.job = number, .seq = last(srv, MSG_EPOCH)->epoch, .text = "",
		.nrounds = 3, .rounds = rounds,
	} };

	ready_as(srv, MSG_EPOCH_READY, number, m.ready.seq, 0);
	send(agent[1], &m);
}

/* Both ranks of a are lost; the agent lives, or another process has its name. */
static void machine_out(bool agent_dies)
{
	uint32_t node;

	job();
	node = last(agent[0], MSG_WELCOME)->node;
	if (agent_dies) {
		conn_closed(agent[0]);
		pass_beating(6000, (const uint32_t[]){ agent[1], srv }, 2);
		ready_as(srv, MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
		ready_as(agent[1], MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
		agent[0] = hello_from(NODE_AGENT, "a", "another", 77, "");
		ck_assert_uint_eq(last(agent[0], MSG_WELCOME)->node, node);
	} else {
		leave(agent[0], number, 0, TALLY_EWORKERLOST);
		ck_assert_int_eq(last(agent[0], MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
		follow();
	}
}

static void comes_back(void)
{
	uint32_t ups = count(agent[0], MSG_JOB_UP, REQ_ANY);
	uint32_t epochs = count(agent[0], MSG_EPOCH, REQ_ANY), late;

	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	ck_assert_uint_eq(last(srv, MSG_EPOCH)->ngone, 1);	/* rank 0 */
	ck_assert_uint_eq(count(agent[0], MSG_JOB_UP, REQ_ANY), ups);
	follow_with_rounds();
	ck_assert_uint_eq(count(agent[0], MSG_JOB_UP, REQ_ANY), ups + 1);
	ck_assert_uint_eq(count(agent[0], MSG_EPOCH, REQ_ANY), epochs);	/* it is in JOB_UP */
	ck_assert_uint_eq(last(agent[0], MSG_TENSORS)->rounds[0], 7);
	ck_assert_uint_eq(last(agent[0], MSG_TENSORS)->rounds[1], 0);
	ck_answer(agent[0], 50, 0, NULL);
	ck_answer(agent[1], 62, 0, "");
	late = hello(NODE_SERVER, "s1");	/* the rounds are old ones now: told to nobody */
	heartbeat(late, 1);
	ck_assert_uint_eq(last(late, MSG_TENSORS)->rounds[0], 0);
	join_late(agent[0], 51, 0, 202, 4);	/* and from then on it is as any other */
	grow(agent[0], 71, 1, 2);
	grow(agent[1], 72, 2, 2);
	grow(agent[1], 73, 3, 2);
	follow();
	ck_assert_uint_eq(count(agent[0], MSG_EPOCH, REQ_ANY), epochs + 1);
	ck_answer(agent[0], 51, 0, NULL);
	ck_answer(agent[1], 73, 0, "");
}

START_TEST(a_machine_comes_back_when_its_ranks_do)
{
	machine_out(false);
	comes_back();
}
END_TEST

START_TEST(a_machine_comes_back_with_another_agent)
{
	machine_out(true);
	comes_back();
}
END_TEST

static void says_stuck(uint32_t conn, uint32_t n, const char *want)
{
	static const struct msg_wait own = { .tensor = 1, .round = 3, .chunks = 1,
					     .kind = WAIT_RANK, .who = 1, .age_ms = 5000 };
	struct msg m = { .type = MSG_STUCK,
			 .stuck = { .job = number, .nwaits = n, .waits = &own } };

	send(conn, &m);
	m = (struct msg){ .type = MSG_QUERY, .query = { .what = QUERY_STUCK, .job = "" } };
	conn = conn_up();
	send(conn, &m);
	ck_assert_str_eq(last(conn, MSG_REPORT)->text, want);
	conn_closed(conn);
}

/* All that it sends is heard, but it hears nothing for a while: it speaks of the part before. */
START_TEST(what_a_machine_says_of_its_part_before_is_not_taken_for_the_new_one)
{
	uint64_t before;
	uint32_t epochs;

	machine_out(false);
	before = last(srv, MSG_EPOCH)->epoch;
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	says_stuck(agent[0], 1, "");
	ready_as(agent[0], MSG_EPOCH_READY, number, before, 0);
	follow_with_rounds();
	ck_answer(agent[0], 50, 0, NULL);
	ready_as(agent[0], MSG_EPOCH_READY, number, before, 0);
	says_stuck(agent[0], 0, "");		/* its first word of the new part */
	says_stuck(agent[0], 1, "t 3 0+1 a 1");

	/* That it has heard of the new one it has not said yet. */
	conn_closed(agent[0]);
	agent[0] = hello_from(NODE_AGENT, "a", "a", 1, "");
	epochs = count(srv, MSG_EPOCH, REQ_ANY);
	heartbeat(agent[0], 1);
	ck_assert_uint_eq(count(srv, MSG_EPOCH, REQ_ANY), epochs + 1);
	ck_assert_uint_eq(last(srv, MSG_EPOCH)->ngone, 2);
}
END_TEST

/* It was never told of the job, and is not missed for long. */
START_TEST(a_machine_that_dies_on_its_way_in_is_not_waited_for)
{
	machine_out(true);
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	conn_closed(agent[0]);
	pass_beating(6000, (const uint32_t[]){ agent[1], srv }, 2);
	follow_with_rounds();
	follow_with_rounds();
	ck_answer(agent[1], 62, 0, "");
	ck_assert_uint_eq(last(srv, MSG_EPOCH)->ngone, 2);
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* Its connection broke with what it was told. */
START_TEST(a_machine_that_does_not_hear_that_it_is_in_waits_again)
{
	machine_out(true);
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	follow_with_rounds();
	ck_answer(agent[1], 62, 0, "");
	conn_closed(agent[0]);
	agent[0] = hello_from(NODE_AGENT, "a", "another", 77, "");
	join_late(agent[0], 50, 1, 201, 4);
	ck_assert_uint_eq(last(srv, MSG_EPOCH)->ngone, 2);
	follow_with_rounds();
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 50), 0);
	ck_assert_uint_eq(count(agent[0], MSG_JOB_UP, REQ_ANY), 0);
	grow(agent[1], 72, 2, 2);
	grow(agent[1], 73, 3, 2);
	follow_with_rounds();
	ck_assert_uint_eq(count(agent[0], MSG_JOB_UP, REQ_ANY), 1);
	ck_assert_uint_eq(last(agent[0], MSG_TENSORS)->rounds[0], 7);
	ck_answer(agent[0], 50, 0, NULL);
	ck_answer(agent[1], 72, 0, "");
}
END_TEST

/* So its ranks cannot, and hear that. */
START_TEST(a_machine_does_not_come_into_a_job_that_ends)
{
	machine_out(true);
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	leave(agent[1], number, 2, 0);
	ck_assert_int_eq(answer(agent[0], 50)->code, TALLY_ESHUTDOWN);
	ck_assert_uint_eq(count(agent[0], MSG_JOB_UP, REQ_ANY), 0);
	leave(agent[1], number, 3, 0);
	ck_assert_int_eq(last(agent[1], MSG_JOB_DOWN)->code, 0);
}
END_TEST

START_TEST(a_machine_comes_back_as_it_was)
{
	machine_out(true);
	conn_closed(agent[0]);
	pass_beating(6000, (const uint32_t[]){ agent[1], srv }, 2);
	hello_engines = 4;
	agent[0] = hello_from(NODE_AGENT, "a", "a", 78, "");
	join_late(agent[0], 50, 1, 201, 4);
	ck_answer(agent[0], 50, TALLY_EINVAL, "agent a has 4 engines, and had 1 when job 'x' "
		  "began: start it with --engines 1");
	hello_engines = 1;
}
END_TEST

START_TEST(a_process_may_come_before_the_end_of_the_one_before_is_known)
{
	job();
	join_late(agent[1], 50, 3, 203, 4);
	leave(agent[1], number, 3, TALLY_EWORKERLOST);
	follow();
	beat(6000);
	ck_assert_uint_eq(count(agent[1], MSG_REPLY, 50), 0);
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	follow();
	ck_answer(agent[1], 50, 0, NULL);
	ck_answer(agent[0], 60, 0, "");
	join_late(agent[1], 51, 3, 303, 4);		/* but that one lives */
	beat(5000);
	ck_answer(agent[1], 51, TALLY_EEXIST, "rank 3 of job 'x' is on machine b already, process "
		  "203");
}
END_TEST

START_TEST(who_dies_on_its_way_in_is_not_waited_for)
{
	struct msg gives_up = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.rank = 1, .code = TALLY_EWORKERLOST, .text = "x", .pid = 201,
	} };

	job();
	join_late(agent[0], 50, 1, 201, 4);
	send(agent[0], &gives_up);			/* while it waits */
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	ck_answer(agent[0], 60, 0, "");
	join_late(agent[0], 51, 1, 202, 4);
	grow(agent[0], 70, 0, 2);
	grow(agent[1], 72, 2, 2);
	grow(agent[1], 73, 3, 2);
	gives_up.rank_leave.pid = 202;			/* when it is in, and not told */
	send(agent[0], &gives_up);
	follow();
	follow();
	ck_answer(agent[0], 70, 0, "");
	ck_assert_uint_eq(last(agent[1], MSG_EPOCH)->ngone, 1);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 51), 0);
}
END_TEST

/* Nobody is left who has the rounds: who comes in hears so. */
START_TEST(who_comes_in_when_all_others_end_is_not_in)
{
	job();
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	ck_assert_uint_eq(last(srv, MSG_EPOCH)->ngone, 0);
	leave(agent[0], number, 0, TALLY_EWORKERLOST);
	leave(agent[1], number, 2, TALLY_EWORKERLOST);
	leave(agent[1], number, 3, TALLY_EWORKERLOST);
	beat(1000);
	ck_answer(agent[0], 50, TALLY_EWORKERLOST, NULL);
	ck_assert_uint_eq(count(srv, MSG_JOB_DOWN, REQ_ANY), 1);
}
END_TEST

START_TEST(a_survivor_that_dies_meanwhile_is_not_waited_for)
{
	job();
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	leave(agent[1], number, 3, TALLY_EWORKERLOST);	/* first a smaller world, then a larger */
	follow();
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 50), 0);
	follow();
	ck_answer(agent[0], 50, 0, NULL);
	ck_answer(agent[0], 60, 0, "");
	ck_assert_uint_eq(last(agent[0], MSG_EPOCH)->ngone, 1);
	ck_assert_uint_eq(last(agent[0], MSG_EPOCH)->gone[0], 3);
}
END_TEST

static bool came_back;		/* rank 1 has, by the first tally_grow() */

/* What an agent says after a restart, of a job whose ranks from `gone` on are lost up to 1. */
static void held_by(uint32_t conn, const struct record *epoch, uint32_t a, uint32_t world,
		    uint32_t gone)
{
	static const uint32_t ranks[] = { 0, 1, 2, 3 };
	const struct msg_machine machines[] = {
		{ .node = a, .name = "a", .machine = "a", .engines = 1, .nranks = 2,
		  .ranks = &ranks[0] },
		{ .name = "b", .machine = "b", .engines = 1, .nranks = 2, .ranks = &ranks[2] },
	};
	const struct msg held = { .type = MSG_JOB_HELD, .job_up = {
		.algorithm = held_algorithm,
		.job = number, .name = "x", .world = world, .epoch = epoch->epoch,
		.seq = epoch->seq, .chunk_bytes = CHUNK_BYTES_DEFAULT,
		.seg_bytes = CHUNK_BYTES_DEFAULT, .window_bytes = WINDOW_BYTES_MAX,
		.nmachines = 2, .machines = machines, .on_loss = ON_LOSS_SHRINK,
		.ngone = 2 - gone, .gone = &ranks[gone],
		.grown = came_back, .grown_at = came_back, .njoined = came_back,
		.joined = &ranks[1],
	} };

	send(conn, &held);
}

/* It asks again before anybody has told the scheduler of the job. */
START_TEST(who_waits_goes_on_waiting_when_the_scheduler_is_back)
{
	struct record epoch;

	machine_out(false);
	epoch = *last(agent[1], MSG_EPOCH);
	restart(10000);
	agent[0] = hello(NODE_AGENT, "a");
	join_late(agent[0], 50, 1, 201, 4);
	agent[1] = hello(NODE_AGENT, "b");
	held_by(agent[1], &epoch, last(agent[0], MSG_WELCOME)->node, 4, 0);
	pass_beating(11000, agent, 2);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 50), 0);
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* Its agent has not heard of the epoch that lets it in, and asks as for one that is lost. */
START_TEST(who_is_in_by_an_epoch_that_its_agent_has_not_heard_is_in)
{
	struct record epoch, before;
	uint32_t node;

	job();
	node = last(agent[0], MSG_WELCOME)->node;
	before = *last(agent[0], MSG_EPOCH);
	join_late(agent[0], 50, 1, 201, 4);
	for (uint32_t r = 0; r < 4; r++)
		if (r != 1)
			grow(agent[r / 2], 60 + r, r, 1);
	ready_as(srv, MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
	epoch = *last(agent[1], MSG_EPOCH);
	ck_assert_uint_eq(epoch.ngone, 0);
	restart(10000);
	agent[0] = hello(NODE_AGENT, "a");
	held_by(agent[0], &before, node, 4, 1);
	join_late(agent[0], 51, 1, 201, 4);
	agent[1] = hello(NODE_AGENT, "b");
	came_back = true;
	held_by(agent[1], &epoch, node, 4, 2);
	came_back = false;
	pass_beating(11000, agent, 2);
	for (uint32_t i = 0; i < 2; i++)
		ready_as(agent[i], MSG_EPOCH_READY, number, epoch.epoch, 0);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 51), 0);
	for (uint32_t r = 0; r < 4; r++)
		if (r != 1)
			grow(agent[r / 2], 70 + r, r, 1);
	ck_answer(agent[0], 70, 0, "");
	ck_assert_uint_eq(answer(agent[0], 51)->ids[0], number);
}
END_TEST

/* Agent a was started again while the scheduler was away: without a grace its ranks are lost. */
START_TEST(who_comes_while_the_scheduler_recovers_can_come_in_behind_that)
{
	struct record epoch;
	uint32_t node;

	job();
	epoch = *last(agent[1], MSG_EPOCH);
	node = last(agent[0], MSG_WELCOME)->node;
	restart(10000);
	agent[1] = hello(NODE_AGENT, "b");
	held_by(agent[1], &epoch, node, 5, 1);	/* one has no machine: such a job cannot be */
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 1);
	held_by(agent[1], &epoch, node, 4, 1);
	hello_anew = true;
	agent[0] = hello(NODE_AGENT, "a");
	ck_assert_int_eq(last(agent[0], MSG_REPLY)->code, TALLY_EBUSY);
	pass_beating(11000, &agent[1], 1);
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 1);
	agent[0] = hello(NODE_AGENT, "a");
	hello_anew = false;
	ck_assert_uint_eq(last(agent[0], MSG_WELCOME)->node, node);
	join_late(agent[0], 51, 0, 200, 4);
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 51), 0);
}
END_TEST

/* Between its two registrations it was given up. */
START_TEST(who_is_lost_while_the_scheduler_recovers_hears_so_when_it_is_back)
{
	struct record epoch;
	uint32_t node;

	job();
	node = last(agent[0], MSG_WELCOME)->node;
	epoch = *last(agent[1], MSG_EPOCH);
	restart(10000);
	agent[1] = hello(NODE_AGENT, "b");
	held_by(agent[1], &epoch, node, 4, 1);
	agent[0] = hello(NODE_AGENT, "a");
	held_by(agent[0], &epoch, node, 4, 1);
	ck_assert_uint_eq(count(agent[0], MSG_JOB_DOWN, REQ_ANY), 0);
	conn_closed(agent[0]);
	pass_beating(RECONNECT_GRACE_MS + 100, &agent[1], 1);
	agent[0] = hello(NODE_AGENT, "a");
	held_by(agent[0], &epoch, node, 4, 1);
	ck_assert_int_eq(last(agent[0], MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_ptr_nonnull(strstr(last(agent[0], MSG_JOB_DOWN)->text, " on machine a w"));
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* The agents and servers have that world already, and would not place anything anew. */
START_TEST(a_smaller_world_that_an_epoch_has_said_is_not_said_again)
{
	struct record epoch, before;
	uint32_t node;

	job();
	node = last(agent[0], MSG_WELCOME)->node;
	before = epoch = *last(agent[1], MSG_EPOCH);
	before.epoch--;
	before.seq--;
	restart(10000);
	agent[0] = hello(NODE_AGENT, "a");
	agent[1] = hello(NODE_AGENT, "b");
	held_by(agent[0], &before, node, 4, 2);
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	held_by(agent[1], &epoch, node, 4, 1);
	pass_beating(11000, agent, 2);
	ck_assert_uint_eq(count(agent[1], MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(count(agent[1], MSG_EPOCH, REQ_ANY), 0);
}
END_TEST

/* Any other rank hears so, too. */
START_TEST(who_came_in_does_not_declare_what_it_takes_back)
{
	static const struct want more[] = { { "t", DTYPE_F32, 1000 }, { "late", DTYPE_F32, 5 } };
	uint32_t t = 1;

	come_in();
	ids_as(agent[0], MSG_UNDECLARE, 70, number, 1, &t, 1);
	declare_in(agent[0], 71, number, 1, more, 2);	/* is not to wait for "late" */
	for (uint32_t r = 0; r < 4; r++)
		if (r != 1)
			ids_as(agent[r / 2], MSG_UNDECLARE, 80 + r, number, r, &t, 1);
	for (uint32_t r = 0; r < 4; r++)		/* t is gone */
		if (r != 1)
			declare_in(agent[r / 2], 90 + r, number, r, &more[1], 1);
	beat(3000);
	ck_answer(agent[0], 71, TALLY_EEXIST, NULL);
}
END_TEST

/* All who have to are at the barrier: who comes in is not, and need not be. */
START_TEST(who_comes_in_is_not_named_as_missing)
{
	struct msg m = { .type = MSG_QUERY, .query = { .req = 1, .what = QUERY_JOBS, .job = "" } };
	uint32_t cli = conn_up();

	job();
	join_late(agent[0], 50, 1, 201, 4);
	grow(agent[0], 60, 0, 1);
	grow(agent[1], 62, 2, 1);
	grow(agent[1], 63, 3, 1);
	ready_as(srv, MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
	send(cli, &m);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "chunks to move");
}
END_TEST

/* Three machines with an agent, its rank and a server each. */
struct three {
	uint32_t agent[3], srv[3];
};

static void three_follow(const struct three *m, const bool *agents)
{
	uint64_t epoch = last(m->srv[0], MSG_EPOCH)->epoch;

	for (uint32_t i = 0; i < 3; i++)
		ready_as(m->srv[i], MSG_EPOCH_READY, number, epoch, 0);
	for (uint32_t i = 0; i < 3; i++)
		if (agents[i])
			ready_as(m->agent[i], MSG_EPOCH_READY, number, epoch, 0);
}

static void three_beat(const struct three *m, uint64_t ms)
{
	pass_beating(ms, (const uint32_t[]){ m->agent[0], m->agent[1], m->agent[2], m->srv[0],
					     m->srv[1], m->srv[2] }, 6);
}

static void three_up(struct three *m)
{
	static const char *const name[] = { "a", "b", "c" };
	static const struct want grad = { "grad", DTYPE_F32, 16 << 20 };

	for (uint32_t i = 0; i < 3; i++)
		m->agent[i] = hello(NODE_AGENT, name[i]);
	for (uint32_t i = 0; i < 3; i++)
		m->srv[i] = hello(NODE_SERVER, name[i]);
	for (uint32_t i = 0; i < 3; i++)
		join_late(m->agent[i], 1, i, 100 + i, 3);
	number = last(m->srv[0], MSG_JOB_UP)->job;
	for (uint32_t i = 0; i < 3; i++)
		ready_as(m->srv[i], MSG_JOB_READY, number, last(m->srv[0], MSG_JOB_UP)->epoch, 0);
	for (uint32_t i = 0; i < 3; i++)
		declare_in(m->agent[i], 2, number, i, &grad, 1);
	for (uint32_t i = 0; i < 3; i++)
		ready_as(m->srv[i], MSG_TENSORS_READY, number, 1, 0);
	ck_answer(m->agent[0], 2, 0, NULL);
}

/* Its server is back first, on a machine without a rank, which can sum the most. */
START_TEST(when_a_machine_is_in_again_its_server_gives_away_what_is_too_much_now)
{
	static const bool two[] = { true, true, false }, all[] = { true, true, true };
	struct three m;
	uint32_t epochs;

	three_up(&m);
	conn_closed(m.agent[2]);
	conn_closed(m.srv[2]);
	pass_beating(6000, (const uint32_t[]){ m.agent[0], m.agent[1], m.srv[0], m.srv[1] }, 4);
	m.srv[2] = hello(NODE_SERVER, "c");
	three_follow(&m, two);
	three_follow(&m, two);
	heartbeat(m.srv[2], 1);
	ready_as(m.srv[2], MSG_JOB_READY, number, last(m.srv[2], MSG_JOB_UP)->epoch, 0);
	three_follow(&m, two);
	ck_assert_uint_gt(last(m.srv[0], MSG_EPOCH)->weight[2], UINT32_MAX / 5 * 2);
	m.agent[2] = hello_from(NODE_AGENT, "c", "c", 77, "");
	join_late(m.agent[2], 50, 2, 201, 3);
	grow(m.agent[0], 60, 0, 1);
	grow(m.agent[1], 61, 1, 1);
	three_follow(&m, two);
	ck_answer(m.agent[2], 50, 0, NULL);
	ck_assert_uint_eq(last(m.srv[0], MSG_EPOCH)->n, 1);	/* a repair: nothing has moved */
	ready_as(m.agent[2], MSG_EPOCH_READY, number, last(m.srv[0], MSG_EPOCH)->epoch, 0);
	epochs = count(m.srv[0], MSG_EPOCH, REQ_ANY);
	three_beat(&m, 10000);
	ck_assert_uint_eq(count(m.srv[0], MSG_EPOCH, REQ_ANY), epochs + 1);
	ck_assert_uint_eq(last(m.srv[0], MSG_EPOCH)->n, 0);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(last(m.srv[0], MSG_EPOCH)->weight[i] / 10, UINT32_MAX / 30);
	three_follow(&m, all);
	three_beat(&m, 60000);
	ck_assert_uint_eq(count(m.srv[0], MSG_EPOCH, REQ_ANY), epochs + 1);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, when_a_machine_is_in_again_its_server_gives_away_what_is_too_much_now);
	tcase_add_test(t, who_is_lost_while_the_scheduler_recovers_hears_so_when_it_is_back);
	tcase_add_test(t, a_smaller_world_that_an_epoch_has_said_is_not_said_again);
	tcase_add_test(t, who_comes_is_let_in_when_all_grow_and_all_follow);
	tcase_add_test(t, nobody_waits_and_it_is_a_barrier);
	tcase_add_test(t, a_plain_barrier_lets_nobody_in);
	tcase_add_test(t, who_is_in_declares_what_is_there_and_is_one_of_all);
	tcase_add_test(t, who_cannot_come_in_hears_why_at_once);
	tcase_add_test(t, a_process_may_come_before_the_end_of_the_one_before_is_known);
	tcase_add_test(t, who_dies_on_its_way_in_is_not_waited_for);
	tcase_add_test(t, who_comes_in_when_all_others_end_is_not_in);
	tcase_add_test(t, a_survivor_that_dies_meanwhile_is_not_waited_for);
	tcase_add_test(t, a_machine_comes_back_when_its_ranks_do);
	tcase_add_test(t, a_machine_comes_back_with_another_agent);
	tcase_add_test(t, a_machine_that_dies_on_its_way_in_is_not_waited_for);
	tcase_add_test(t, what_a_machine_says_of_its_part_before_is_not_taken_for_the_new_one);
	tcase_add_test(t, a_machine_that_does_not_hear_that_it_is_in_waits_again);
	tcase_add_test(t, a_machine_does_not_come_into_a_job_that_ends);
	tcase_add_test(t, a_machine_comes_back_as_it_was);
	tcase_add_test(t, who_waits_goes_on_waiting_when_the_scheduler_is_back);
	tcase_add_test(t, who_is_in_by_an_epoch_that_its_agent_has_not_heard_is_in);
	tcase_add_test(t, who_comes_while_the_scheduler_recovers_can_come_in_behind_that);
	tcase_add_test(t, who_came_in_does_not_declare_what_it_takes_back);
	tcase_add_test(t, who_comes_in_is_not_named_as_missing);
}

int main(void)
{
	return rig_main("sched_grow", add);
}
