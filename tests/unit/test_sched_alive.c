// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_alive.c - ranks that compute while their agent is started again, for longer than
 * the grace: its new process says that they live, and they are waited for.
 */
#include "tests/unit/return_rig.h"

static void alive(uint32_t conn, uint32_t job, uint32_t rank)
{
	send(conn, &(struct msg){ .type = MSG_RANK_ALIVE,
				  .rank_alive = { .job = job, .rank = rank } });
}

/* It computes; the others, and jobs and ranks that there are not, say nothing of it. */
START_TEST(a_rank_that_lives_is_waited_for)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	pass_with(&p, 5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	for (uint32_t i = 0; i < 100; i++) {
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
		alive(p.a, p.job, 0);
	}
	ck_assert_str_eq(waiting_for(), "rank 0 of agent a (its processes live), 30 s left");
	ck_assert_uint_eq(count(p.a, MSG_JOB_UP, REQ_ANY), 0);
	for (uint32_t i = 0; i < 29; i++) {
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
		alive(p.b, p.job, 0);
		alive(p.a, p.job, 1);
		alive(p.a, p.job, 2);
		alive(p.a, p.job + 1, 0);
	}
	ck_assert_str_eq(waiting_for(), "rank 0 of agent a, 1 s left");
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* Its connection breaks as the grace ends; who is back stays, the other one is lost. */
START_TEST(an_agent_that_blinks_as_its_grace_ends_keeps_the_ranks_that_are_back)
{
	struct pair p = trio();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 0);
	pass_beating(29800, (uint32_t[]){ p.a, p.b, p.server }, 3);
	conn_closed(p.a);
	pass_with(&p, 400);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	pass_beating(100, (uint32_t[]){ p.a, p.b, p.server }, 3);
	back_as(p.a, 6, p.job, 0);
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_answer(p.a, 6, 0, NULL);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->ngone, 1);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->gone[0], 1);
}
END_TEST

/* It has computed all along; the others have ended the job meanwhile, and all were told. */
START_TEST(a_rank_that_comes_back_too_late_hears_why_its_job_has_ended)
{
	struct pair p = pair_declared();
	const struct msg failed = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = p.job, .rank = 1, .code = TALLY_EMISMATCH, .text = "what they disagree on",
	} };

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	send(p.b, &failed);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EMISMATCH);
	back_as(p.a, 5, p.job, 0);
	ck_answer(p.a, 5, TALLY_EMISMATCH, "job 'x' is over: what they disagree on");
	job_held(p.a, p.job, 1);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text, "what they disagree on");
	back_as(p.a, 6, p.job + 1, 0);
	ck_answer(p.a, 6, TALLY_EWORKERLOST, "job 'x' is over: its agent was gone for too long, or "
		  "was started again together with the scheduler");
}
END_TEST

/* The process waits to be taken back while another one computes, and detaches, or dies. */
START_TEST(who_goes_while_it_waits_to_be_taken_back_goes_as_any_other)
{
	struct pair p = trio_that(ON_LOSS_ERROR);
	const struct msg dies = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.rank = 0, .code = TALLY_EWORKERLOST, .text = "x", .pid = 7,
	} };

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 1);
	leave(p.a, p.job, 1, 0);
	ck_assert_uint_eq(last(p.b, MSG_RANK_LEAVE)->rank, 1);
	back_as(p.a, 6, p.job, 0);
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_answer(p.a, 6, 0, NULL);		/* that rank is not waited for */

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 8, "");
	send(p.a, &dies);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

START_TEST(a_rank_that_lived_and_comes_back_goes_on)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	for (uint32_t i = 0; i < 40; i++) {
		alive(p.a, p.job, 0);
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	}
	back_as(p.a, 5, p.job, 0);
	ck_answer(p.a, 5, 0, NULL);
	alive(p.a, p.job, 0);			/* was on its way */
	ck_assert_str_eq(waiting_for(), "");
	pass_beating(60000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* Rank 1 lives, and computes; nobody has seen rank 0. */
START_TEST(a_job_that_shrinks_waits_for_the_ranks_that_live)
{
	struct pair p = trio();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	for (uint32_t i = 0; i < 90; i++) {
		alive(p.a, p.job, 1);
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
		if (i < 28)
			ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
	}
	ck_assert_uint_eq(count(p.a, MSG_JOB_UP, REQ_ANY), 0);
	ck_assert_str_eq(waiting_for(), "rank 1 of agent a (its processes live), 29 s left");
	back_as(p.a, 5, p.job, 1);
	ck_answer(p.a, 5, 0, NULL);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->ngone, 1);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->gone[0], 0);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* And does not have to wait for the end of that one's grace, which may never come. */
START_TEST(who_wants_to_come_in_for_a_rank_that_lives_is_refused)
{
	struct pair p = trio();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	alive(p.a, p.job, 0);
	join_late(p.a, 6);
	for (uint32_t i = 0; i < 6; i++) {
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
		alive(p.a, p.job, 0);
	}
	ck_assert_int_eq(answer(p.a, 6)->code, TALLY_EEXIST);
}
END_TEST

/* It has ended since it was seen, which is not known yet. */
START_TEST(who_wants_to_come_in_for_a_rank_that_lived_waits)
{
	struct pair p = trio();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 1);
	alive(p.a, p.job, 0);
	join_late(p.a, 6);
	pass_beating(29000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 6), 0);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->ngone, 1);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 6), 0);
}
END_TEST

START_TEST(who_lives_is_not_said_to_be_gone)
{
	struct pair p = trio_that(ON_LOSS_ERROR);

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	for (uint32_t i = 0; i < 31; i++) {
		alive(p.a, p.job, 1);
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	}
	ck_assert_str_eq(last(p.b, MSG_JOB_DOWN)->text,
			 "rank 0 on machine a is gone (the agent's processes did not come back)");
}
END_TEST

START_TEST(time_in_which_the_scheduler_stood_still_does_not_count)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	alive(p.a, p.job, 0);
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	w->now += mono_ms(60000);
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_beating(30000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* The same where nobody has said yet that its ranks live, and where one has for long. */
START_TEST(graces_are_as_long_when_the_scheduler_stood_still)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	for (uint32_t i = 0; _i && i < 40; i++) {
		alive(p.a, p.job, 0);
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	}
	w->now += mono_ms(60000);
	pass_beating(20000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_beating(11000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* Servers had heard that it trains until then. */
START_TEST(an_agent_that_is_heard_is_waited_for_when_the_scheduler_stood_still)
{
	struct pair p = pair_declared();
	const struct msg heard = { .type = MSG_HEARD, .heard = { .node = w->agent_node[0] } };

	conn_closed(p.a);
	for (uint32_t i = 0; i < 40; i++) {
		pass_with(&p, 1000);
		send(p.server, &heard);
	}
	w->now += mono_ms(60000);
	pass_with(&p, 20000);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* Engines own chunks, and parts of the windows at servers: as many as before. */
START_TEST(an_agent_with_other_engines_is_not_the_one_that_was_lost)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	hello_engines = 2;
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	hello_engines = 1;
	back_as(p.a, 5, p.job, 0);
	ck_assert_int_eq(answer(p.a, 5)->code, TALLY_EWORKERLOST);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, graces_are_as_long_when_the_scheduler_stood_still, 0, 2);
	tcase_add_test(t, an_agent_that_is_heard_is_waited_for_when_the_scheduler_stood_still);
	tcase_add_test(t, an_agent_with_other_engines_is_not_the_one_that_was_lost);
	tcase_add_test(t, who_wants_to_come_in_for_a_rank_that_lived_waits);
	tcase_add_test(t, who_lives_is_not_said_to_be_gone);
	tcase_add_test(t, time_in_which_the_scheduler_stood_still_does_not_count);
	tcase_add_test(t, a_rank_that_lives_is_waited_for);
	tcase_add_test(t, an_agent_that_blinks_as_its_grace_ends_keeps_the_ranks_that_are_back);
	tcase_add_test(t, a_rank_that_comes_back_too_late_hears_why_its_job_has_ended);
	tcase_add_test(t, who_goes_while_it_waits_to_be_taken_back_goes_as_any_other);
	tcase_add_test(t, a_rank_that_lived_and_comes_back_goes_on);
	tcase_add_test(t, a_job_that_shrinks_waits_for_the_ranks_that_live);
	tcase_add_test(t, who_wants_to_come_in_for_a_rank_that_lives_is_refused);
}

int main(void)
{
	return rig_main("sched_alive", add);
}
