// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_lies.c - nodes that say what cannot be: the invariants hold after each step, and
 * everybody else hears a reason.  tests/storm looks for more of the kind.
 */
#include "tests/unit/return_rig.h"

static void alive(uint32_t conn, uint32_t job, uint32_t rank)
{
	send(conn, &(struct msg){ .type = MSG_RANK_ALIVE,
				  .rank_alive = { .job = job, .rank = rank } });
}

/* A process that was started again says of all ranks that they live, and that it has the job. */
START_TEST(ranks_that_live_are_lost_with_the_agent_that_tells_of_their_job_too_late)
{
	struct pair p = pair_declared();
	uint64_t epoch = last(p.a, MSG_JOB_UP)->epoch;

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	alive(p.a, p.job, 0);
	job_held(p.a, p.job, epoch);
	join_as(p.a, 20, 3, 0, 2000, 0);	/* whose answer names ranks and their machines */
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	query(p.b);
	pass_beating(30000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_ptr_nonnull(strstr(last(p.b, MSG_JOB_DOWN)->text, "rank 0 on machine a is gone"));
}
END_TEST

/* Rows of a job that is told of after a restart: i of the machines, then of the servers. */
static void tell_twice(uint32_t conn, uint32_t job, bool same_name, bool same_number,
		       bool same_server)
{
	static const uint32_t ranks[] = { 0, 1 };
	const struct msg_machine machines[] = {
		{ .node = w->agent_node[0], .name = "a", .machine = "a", .engines = 1,
		  .nranks = 1, .ranks = &ranks[0] },
		{ .node = w->agent_node[same_number ? 0 : 1], .name = same_name ? "a" : "b",
		  .machine = "b", .engines = 1, .nranks = 1, .ranks = &ranks[1] },
	};
	const struct msg_server servers[] = {
		{ .node = w->server_node, .engines = 1, .name = "cpu-0", .machine = "cpu-0",
		  .shm_path = "", .weight = 1u << 31 },
		{ .node = w->server_node + !same_server, .engines = 1, .name = "cpu-1",
		  .machine = "cpu-1", .shm_path = "", .weight = 1u << 31 },
	};
	struct msg m = { .type = MSG_JOB_HELD, .job_up = {
		.algorithm = PLACE_ALGORITHM, .job = job, .name = "x", .world = 2, .epoch = 1,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .seg_bytes = CHUNK_BYTES_DEFAULT,
		.window_bytes = WINDOW_BYTES_MAX, .nmachines = 2, .machines = machines,
		.nservers = 2, .servers = servers,
	} };

	send(conn, &m);
}

START_TEST(a_job_that_has_a_node_twice_is_not_taken_in)
{
	struct pair p = pair_up();
	uint32_t a;

	restart(5000);
	a = hello_from(NODE_AGENT, "a", "a", 1, "");
	tell_twice(a, p.job, _i == 0, _i == 1, _i == 2);
	ck_assert_uint_eq(sched_jobs(w->s), _i == 3);
	ck_assert_uint_eq(count(a, MSG_JOB_DOWN, REQ_ANY), _i != 3);
	pass(60000);
}
END_TEST

/* Else no epoch could follow, for any job. */
START_TEST(a_later_epoch_that_was_never_given_out_is_not_taken)
{
	struct pair p = pair_up();
	uint64_t epoch = last(p.a, MSG_JOB_UP)->epoch;
	uint32_t a, b;

	restart(5000);
	a = hello_from(NODE_AGENT, "a", "a", 1, "");
	b = hello_from(NODE_AGENT, "b", "b", 2, "");
	job_held(a, p.job, epoch);
	job_held(b, p.job, UINT64_MAX);
	ck_assert_int_eq(last(b, MSG_JOB_DOWN)->code, TALLY_EMISMATCH);
	ck_assert_uint_lt(sched_epoch(w->s), UINT32_MAX);
	pass(10000);
}
END_TEST

START_TEST(two_tensors_with_one_id_end_a_job_that_is_told_of)
{
	struct pair p = pair_up();
	uint64_t epoch = last(p.a, MSG_JOB_UP)->epoch;
	uint32_t a;

	restart(5000);
	a = hello_from(NODE_AGENT, "a", "a", 1, "");
	job_held(a, p.job, epoch);
	tensors_held(a, p.job, 1, 1, &both[0]);
	tensors_held(a, p.job, 2, 1, &both[1]);
	ck_assert_int_eq(last(a, MSG_JOB_DOWN)->code, TALLY_EMISMATCH);
	pass(10000);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, ranks_that_live_are_lost_with_the_agent_that_tells_of_their_job_too_late);
	tcase_add_loop_test(t, a_job_that_has_a_node_twice_is_not_taken_in, 0, 4);
	tcase_add_test(t, a_later_epoch_that_was_never_given_out_is_not_taken);
	tcase_add_test(t, two_tensors_with_one_id_end_a_job_that_is_told_of);
}

int main(void)
{
	return rig_main("sched_lies", add);
}
