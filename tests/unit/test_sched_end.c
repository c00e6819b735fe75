// SPDX-License-Identifier: Apache-2.0
/* test_sched_end.c - a job that a lost process ends: on the same round for everybody. */
#include "tests/unit/sched_rig.h"

static const uint32_t steps[] = { END_GIVEN, END_DONE };

static struct pair pair_that_lost_rank_1(void)
{
	struct pair p = pair_declared();

	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	return p;
}

START_TEST(rounds_that_all_have_given_are_over_before_the_job_is)
{
	struct pair p = pair_that_lost_rank_1();

	given(p.a, p.job, 7, 8);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_GIVEN);
	given(p.b, p.job, 8, 7);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_DONE);
	ck_assert_uint_eq(last(p.b, MSG_JOB_END)->rounds[0], 7);
	ck_assert_uint_eq(last(p.b, MSG_JOB_END)->rounds[1], 7);
	ready_as(p.b, MSG_JOB_END, p.job, END_DONE, 0);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);
	ready_as(p.a, MSG_JOB_END, p.job, END_DONE, 0);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "rank 1 on machine b is gone (process ended)");
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* As it came once more, for the question before: it says nothing of the last rounds. */
START_TEST(an_answer_that_comes_twice_does_not_end_the_job)
{
	struct pair p = pair_that_lost_rank_1();

	given(p.a, p.job, 7, 7);
	given(p.b, p.job, 7, 7);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_DONE);
	given(p.a, p.job, 7, 7);
	given(p.b, p.job, 7, 7);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(a_first_round_that_one_has_not_given_is_not_waited_for)
{
	struct pair p = pair_that_lost_rank_1();

	given(p.a, p.job, 1, 0);
	given(p.b, p.job, 0, 1);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_DONE);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->n, 0);
}
END_TEST

START_TEST(rounds_begin_again_at_one)
{
	struct pair p = pair_that_lost_rank_1();

	given(p.a, p.job, 1, ROUND_MAX);
	given(p.b, p.job, ROUND_MAX, 1);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->rounds[0], ROUND_MAX);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->rounds[1], ROUND_MAX);
}
END_TEST

/* Longer, when all have said what they gave: it comes, if late, as may the question. */
START_TEST(who_does_not_answer_is_not_waited_for_long)
{
	struct pair p = pair_that_lost_rank_1();
	const uint32_t all[] = { p.a, p.b, p.server };

	if (steps[_i] == END_DONE) {
		given(p.a, p.job, 1, 1);
		given(p.b, p.job, 1, 1);
	}
	ready_as(p.a, MSG_JOB_END, p.job, steps[_i], 0);
	pass_beating(steps[_i] == END_DONE ? 9900 : 2900, all, 3);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, steps[_i]);
	pass_beating(1100, all, 3);
	if (steps[_i] == END_GIVEN) {	/* those who have answered end on the same round still */
		ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
		ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_DONE);
		pass_beating(3100, all, 3);
	}
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

static void ck_over_after(const struct pair *p, const uint32_t *beating, uint32_t n)
{
	ck_assert_uint_eq(count(p->a, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_beating(1200, beating, n);
	ck_assert_int_eq(last(p->a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}

START_TEST(a_round_to_which_results_come_is_waited_for)
{
	struct pair p = pair_that_lost_rank_1();
	const uint32_t all[] = { p.a, p.b, p.server };

	ready_as(p.b, MSG_JOB_END, p.job, END_MORE, 0);		/* of another job, then */
	given(p.a, p.job, 1, 1);
	given(p.b, p.job, 1, 1);
	ready_as(p.a, MSG_JOB_END, p.job, END_DONE, 0);
	for (uint32_t i = 0; i < 10; i++) {
		pass_beating(9500, all, 3);
		ready_as(p.b, MSG_JOB_END, p.job, END_MORE, 0);
	}
	ready_as(p.a, MSG_JOB_END, p.job, END_MORE, 0);		/* who has ended has no say */
	pass_beating(9000, all, 3);
	ready_as(p.a, MSG_JOB_END, p.job, END_MORE, 0);
	ck_over_after(&p, all, 3);
}
END_TEST

/* The first question is answered at once, or not at all. */
START_TEST(results_do_not_put_the_first_answers_off)
{
	struct pair p = pair_that_lost_rank_1();
	const uint32_t all[] = { p.a, p.b, p.server };

	given(p.a, p.job, 1, 1);
	pass_beating(2500, all, 3);
	ready_as(p.b, MSG_JOB_END, p.job, END_MORE, 0);
	pass_beating(1000, all, 3);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_DONE);
}
END_TEST

/* Two servers; all is given. */
static struct pair pair_that_ends_with(uint32_t *other)
{
	struct pair p = { hello(NODE_AGENT, "a"), hello(NODE_AGENT, "b"),
			  hello(NODE_SERVER, "cpu-0"), 0 };

	*other = hello(NODE_SERVER, "cpu-1");
	join(p.a, 1, 2, 0);
	join(p.b, 1, 2, 1);
	p.job = last(*other, MSG_JOB_UP)->job;
	ready_as(p.server, MSG_JOB_READY, p.job, last(*other, MSG_JOB_UP)->epoch, 0);
	ready_as(*other, MSG_JOB_READY, p.job, last(*other, MSG_JOB_UP)->epoch, 0);
	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	given(p.a, p.job, 1, 1);
	given(p.b, p.job, 1, 1);
	return p;
}

/* It falls silent, or its connection closes: what moves then is waited for as long again. */
START_TEST(a_server_that_may_be_lost_is_waited_for)
{
	uint32_t other;
	struct pair p = pair_that_ends_with(&other);
	const uint32_t all[] = { p.a, p.b, other, p.server };

	pass_beating(_i ? 9900 : 8000, all, 4);
	if (_i)
		conn_closed(p.server);
	pass_beating(_i ? 3000 : 5500, all, 3);
	ready_as(other, MSG_EPOCH_READY, p.job, last(other, MSG_EPOCH)->epoch, 0);
	pass_beating(9500, all, 3);
	ck_over_after(&p, all, 3);
}
END_TEST

/* A large model's memory takes longer than a lease; but not for ever. */
START_TEST(a_server_that_takes_over_what_was_lost_is_waited_for)
{
	uint32_t other;
	struct pair p = pair_that_ends_with(&other);

	conn_closed(p.server);
	pass_beating(119000, (uint32_t[]){ p.a, p.b, other }, 3);
	ck_over_after(&p, (uint32_t[]){ p.a, p.b, other }, 3);
}
END_TEST

START_TEST(nobody_is_waited_for_for_ever)
{
	struct pair p = pair_that_lost_rank_1();
	const uint32_t all[] = { p.a, p.b, p.server };

	given(p.a, p.job, 1, 1);
	given(p.b, p.job, 1, 1);
	for (uint32_t i = 0; i < 119; i++) {
		pass_beating(1000, all, 3);
		ready_as(p.b, MSG_JOB_END, p.job, END_MORE, 0);
	}
	ck_over_after(&p, all, 3);
}
END_TEST

/* A server that comes while it ends has no part in it. */
START_TEST(a_job_that_ends_does_not_move_to_new_servers)
{
	struct pair p = pair_that_lost_rank_1();
	uint32_t more = hello(NODE_SERVER, "cpu-1");

	given(p.a, p.job, 1, 1);
	given(p.b, p.job, 1, 1);
	heartbeat(more, 1);		/* with which it is offered jobs */
	ready_as(more, MSG_JOB_READY, p.job, last(more, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
}
END_TEST

/* Back within 0.5 s: nothing.  Later: nobody waits for it. */
START_TEST(an_agent_that_blinks_is_waited_for)
{
	struct pair p = pair_that_lost_rank_1();

	given(p.a, p.job, 1, 1);
	given(p.b, p.job, 1, 1);
	conn_closed(p.b);
	ready_as(p.a, MSG_JOB_END, p.job, END_DONE, 0);
	pass_beating(400, (uint32_t[]){ p.a, p.server }, 2);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	if (_i) {
		pass_beating(200, (uint32_t[]){ p.a, p.server }, 2);
	} else {
		p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
		ck_assert_uint_eq(last(p.b, MSG_JOB_END)->seq, END_DONE);
		ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
		ready_as(p.b, MSG_JOB_END, p.job, END_DONE, 0);
	}
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* The name is free for the next one, which is asked to try again until it is. */
START_TEST(a_job_of_which_no_process_is_left_is_over)
{
	struct pair p = pair_that_lost_rank_1();

	join(p.b, 20, 2, 1);
	ck_answer(p.b, 20, TALLY_EBUSY, "the job 'x' of before is not over, its last rounds go on");
	leave(p.a, p.job, 0, _i ? 0 : TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

START_TEST(agents_that_are_gone_are_not_waited_for)
{
	struct pair p = pair_that_lost_rank_1();

	given(p.a, p.job, 3, 3);
	conn_closed(p.b);
	pass_beating(1000, (uint32_t[]){ p.a, p.server }, 2);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_DONE);
	ready_as(p.a, MSG_JOB_END, p.job, END_DONE, 0);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "rank 1 on machine b is gone (process ended)");
}
END_TEST

/* Agents a, b and c, with ranks 0, 1 and 2; c is lost for good. */
START_TEST(a_lost_agent_ends_it_in_the_same_way)
{
	uint32_t conn[3], job, server, other, step = 0;

	for (uint32_t r = 0; r < 3; r++)
		conn[r] = hello(NODE_AGENT, (const char *[]){ "a", "b", "c" }[r]);
	server = hello(NODE_SERVER, "cpu-0");
	other = hello(NODE_SERVER, "cpu-1");
	for (uint32_t r = 0; r < 3; r++)
		join(conn[r], 1, 3, r);
	job = last(server, MSG_JOB_UP)->job;
	ready_as(server, MSG_JOB_READY, job, last(server, MSG_JOB_UP)->epoch, 0);
	ready_as(other, MSG_JOB_READY, job, last(server, MSG_JOB_UP)->epoch, 0);
	barrier(conn[0], 10, job, 0, 1);	/* which nobody passes without rank 2 */
	barrier(conn[1], 10, job, 1, 1);
	conn_closed(conn[2]);
	pass_beating(1000, (uint32_t[]){ conn[0], conn[1], server, other }, 4);
	conn[2] = hello_from(NODE_AGENT, "c", "c", 1, "");
	job_held(conn[2], job, last(server, MSG_JOB_UP)->epoch);	/* it was given up */
	ck_assert_int_eq(last(conn[2], MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	for (; step < 2; step++) {
		ck_assert_uint_eq(last(conn[0], MSG_JOB_END)->seq, steps[step]);
		ck_assert_uint_eq(count(conn[1], MSG_JOB_DOWN, REQ_ANY), 0);
		ready_as(conn[0], MSG_JOB_END, job, steps[step], 0);
		if (step == 1) {	/* what it has given to some comes to all */
			conn_closed(other);
			pass_beating(1000, (uint32_t[]){ conn[0], conn[1], server }, 3);
			ck_assert_uint_eq(last(server, MSG_EPOCH)->ngone, 0);
		}
		ready_as(conn[1], MSG_JOB_END, job, steps[step], 0);
	}
	ck_assert_str_eq(last(conn[1], MSG_JOB_DOWN)->text,
			 "rank 2 on machine c is gone (the agent's connection closed)");
	ck_assert_int_eq(last(server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_int_lt(answer(conn[0], 10)->code, 0);	/* its deadline, or the job's end */
	ck_assert_int_lt(answer(conn[1], 10)->code, 0);
}
END_TEST

START_TEST(time_in_which_the_scheduler_stood_still_is_not_their_silence)
{
	struct pair p = pair_that_lost_rank_1();

	w->now += mono_ms(60000);
	pass_beating(100, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_GIVEN);
}
END_TEST

START_TEST(an_agent_that_lost_the_question_is_asked_again)
{
	struct pair p = pair_that_lost_rank_1();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_GIVEN);
	given(p.b, p.job, 3, 3);
	given(p.a, p.job, 3, 3);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->seq, END_DONE);
}
END_TEST

START_TEST(nothing_new_begins_and_further_losses_change_nothing)
{
	struct pair p = pair_that_lost_rank_1();

	declare_in(p.a, 9, p.job, 0, both, 2);
	ck_answer(p.a, 9, TALLY_EWORKERLOST, NULL);
	barrier(p.a, 10, p.job, 0, 1);
	ck_answer(p.a, 10, TALLY_EWORKERLOST, NULL);
	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	leave(p.b, p.job, 7, TALLY_EWORKERLOST);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	given(p.a, p.job, 3, 3);
	given(p.a, p.job, 2, 2);		/* said twice */
	given(p.b, p.job, 3, 3);
	ck_assert_uint_eq(last(p.a, MSG_JOB_END)->rounds[0], 3);
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
	tcase_add_test(t, without_any_server_a_job_waits_for_as_long_as_it_takes);
	tcase_add_loop_test(t, without_any_server_a_job_ends_with_its_ranks, 0, 2);
	tcase_add_test(t, an_answer_that_comes_twice_does_not_end_the_job);
	tcase_add_test(t, rounds_that_all_have_given_are_over_before_the_job_is);
	tcase_add_test(t, a_first_round_that_one_has_not_given_is_not_waited_for);
	tcase_add_test(t, rounds_begin_again_at_one);
	tcase_add_loop_test(t, who_does_not_answer_is_not_waited_for_long, 0, ARRAY_SIZE(steps));
	tcase_add_test(t, a_round_to_which_results_come_is_waited_for);
	tcase_add_test(t, results_do_not_put_the_first_answers_off);
	tcase_add_loop_test(t, a_server_that_may_be_lost_is_waited_for, 0, 2);
	tcase_add_test(t, a_server_that_takes_over_what_was_lost_is_waited_for);
	tcase_add_test(t, nobody_is_waited_for_for_ever);
	tcase_add_test(t, a_job_that_ends_does_not_move_to_new_servers);
	tcase_add_loop_test(t, an_agent_that_blinks_is_waited_for, 0, 2);
	tcase_add_loop_test(t, a_job_of_which_no_process_is_left_is_over, 0, 2);
	tcase_add_test(t, agents_that_are_gone_are_not_waited_for);
	tcase_add_test(t, a_lost_agent_ends_it_in_the_same_way);
	tcase_add_test(t, an_agent_that_lost_the_question_is_asked_again);
	tcase_add_test(t, time_in_which_the_scheduler_stood_still_is_not_their_silence);
	tcase_add_test(t, nothing_new_begins_and_further_losses_change_nothing);
}

int main(void)
{
	return rig_main("sched_end", add);
}
