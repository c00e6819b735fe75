// SPDX-License-Identifier: Apache-2.0
/* test_sched_end.c - jobs that a lost process or agent ends, and jobs without any server. */
#include "tests/unit/sched_rig.h"

/* Everybody hears it at once, and the name is free for the next job. */
START_TEST(a_lost_rank_ends_the_job_for_all_at_once)
{
	struct pair p = pair_declared();

	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "rank 1 on machine b is gone (process ended)");
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
	leave(p.b, p.job, 1, TALLY_EWORKERLOST);	/* reported twice */
	join(p.a, 20, 2, 0);
	join(p.b, 20, 2, 1);
	ck_assert_uint_gt(last(p.server, MSG_JOB_UP)->job, p.job);
}
END_TEST

/* Agents a, b and c, with ranks 0, 1 and 2; c is lost for good. */
START_TEST(a_lost_agent_ends_the_job_for_all_at_once)
{
	uint32_t conn[3], job, server;

	for (uint32_t r = 0; r < 3; r++)
		conn[r] = hello(NODE_AGENT, (const char *[]){ "a", "b", "c" }[r]);
	server = hello(NODE_SERVER, "cpu-0");
	for (uint32_t r = 0; r < 3; r++)
		join(conn[r], 1, 3, r);
	job = last(server, MSG_JOB_UP)->job;
	ready_as(server, MSG_JOB_READY, job, last(server, MSG_JOB_UP)->epoch, 0);
	barrier(conn[0], 10, job, 0, 1);	/* which nobody passes without rank 2 */
	barrier(conn[1], 10, job, 1, 1);
	conn_closed(conn[2]);
	pass_beating(1000, (uint32_t[]){ conn[0], conn[1], server }, 3);
	ck_assert_str_eq(last(conn[1], MSG_JOB_DOWN)->text,
			 "rank 2 on machine c is gone (the agent's connection closed)");
	ck_assert_int_eq(last(server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_int_eq(answer(conn[0], 10)->code, TALLY_EWORKERLOST);
	ck_assert_int_eq(answer(conn[1], 10)->code, TALLY_EWORKERLOST);
	conn[2] = hello_from(NODE_AGENT, "c", "c", 1, "");
	job_held(conn[2], job, last(server, MSG_JOB_UP)->epoch);	/* it was given up */
	ck_assert_int_eq(last(conn[2], MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* Its rounds have deadlines of their own. */
START_TEST(without_any_server_a_job_waits_for_as_long_as_it_takes)
{
	struct pair p = pair_declared();
	const struct msg jobs = { .type = MSG_QUERY, .query = {
		.req = 1, .what = QUERY_JOBS, .job = "",
	} };
	uint32_t other, cli = conn_up();

	conn_closed(p.server);
	pass_beating(1200000, (uint32_t[]){ p.a, p.b }, 2);
	send(cli, &jobs);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "a server, all are gone");
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	other = hello(NODE_SERVER, "cpu-1");
	heartbeat(other, 1);
	ready_as(other, MSG_JOB_READY, p.job, last(other, MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, &other, 1);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, other }, 3);
	send(cli, &jobs);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "");
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(without_any_server_a_job_ends_with_its_ranks)
{
	struct pair p = pair_declared();

	conn_closed(p.server);
	pass_beating(100000, (uint32_t[]){ p.a, p.b }, 2);
	leave(p.a, p.job, 0, _i ? TALLY_EWORKERLOST : 0);
	leave(p.b, p.job, 1, 0);
	pass_beating(10000, (uint32_t[]){ p.a, p.b }, 2);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, _i ? TALLY_EWORKERLOST : 0);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_lost_rank_ends_the_job_for_all_at_once);
	tcase_add_test(t, a_lost_agent_ends_the_job_for_all_at_once);
	tcase_add_test(t, without_any_server_a_job_waits_for_as_long_as_it_takes);
	tcase_add_loop_test(t, without_any_server_a_job_ends_with_its_ranks, 0, 2);
}

int main(void)
{
	return rig_main("sched_end", add);
}
