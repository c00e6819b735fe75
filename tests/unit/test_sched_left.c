// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_left.c - who has detached has, whichever agents and schedulers are started again
 * after that: nobody misses such a rank, and nobody waits for it.
 */
#include "tests/unit/return_rig.h"

/* Agent b and the server are back, and tell of the job and of who has left it. */
static void left_by_b(struct pair *p, uint64_t epoch, int32_t left)
{
	p->server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p->server, MSG_JOB_READY, p->job, epoch, 1);
	p->b = hello_from(NODE_AGENT, "b", "b", 2, "");
	left_rank = left;
	job_held(p->b, p->job, epoch);
	left_rank = -1;
	tensors_held(p->b, p->job, 1, 1, &both[0]);
	has_log(p->b, MSG_EPOCH_READY, p->job, epoch, 1);
}

static void recover(const struct pair *p)
{
	pass_with(p, 5000);
	pass(1);
	ck_assert(!sched_recovering(w->s));
}

START_TEST(an_agent_that_was_started_again_hears_who_has_left)
{
	struct pair p = trio_that(ON_LOSS_ERROR);

	leave(p.a, p.job, 0, 0);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 1);
	ck_answer(p.a, 5, 0, NULL);
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->nleft, 1);
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->left[0], 0);
}
END_TEST

/* Its machine has been switched off since: there is nobody to come back to the job. */
START_TEST(a_machine_that_all_have_left_is_not_waited_for_after_a_restart)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);
	uint32_t other;

	leave(p.a, p.job, 0, 0);
	restart(5000);
	left_by_b(&p, epoch, 0);
	recover(&p);
	ck_assert_str_eq(waiting_for(), "");
	other = hello(NODE_SERVER, "cpu-1");		/* epochs go on without that machine */
	heartbeat(other, 1);
	ready_as(other, MSG_JOB_READY, p.job, last(other, MSG_JOB_UP)->epoch, 0);
	ready_as(p.server, MSG_EPOCH_READY, p.job, last(p.server, MSG_EPOCH)->epoch, 0);
	ready_as(other, MSG_EPOCH_READY, p.job, last(other, MSG_EPOCH)->epoch, 0);
	ck_assert_uint_eq(last(p.b, MSG_EPOCH)->seq, 2);
	ready_as(p.b, MSG_EPOCH_READY, p.job, last(p.b, MSG_EPOCH)->epoch, 0);
	pass_beating(60000, (uint32_t[]){ p.b, p.server, other }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	declare_in(p.b, 3, p.job, 1, both, 2);
	ck_answer(p.b, 3, TALLY_ESHUTDOWN, "rank 0 of job 'x' has detached");
	leave(p.b, p.job, 1, 0);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, 0);
}
END_TEST

/* Its own agent comes first, and is one that does not know. */
START_TEST(who_has_left_is_believed_whoever_says_so)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	leave(p.a, p.job, 0, 0);
	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	job_held(p.a, p.job, epoch);
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	left_rank = 0;
	job_held(p.b, p.job, epoch);
	left_rank = -1;
	ck_assert_uint_eq(last(p.a, MSG_RANK_LEAVE)->rank, 0);
	leave(p.a, p.job, 0, TALLY_EWORKERLOST);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* Agents a and b have told; of whom these ranks had detached while there was no scheduler. */
static struct pair told_left(int32_t by_a, int32_t by_b)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	left_rank = by_a;
	job_held(p.a, p.job, epoch);
	left_rank = by_b;
	job_held(p.b, p.job, epoch);
	left_rank = -1;
	return p;
}

/* The next job of that name need not wait for the end of the recovery to be told so. */
START_TEST(a_job_that_all_have_left_is_over_while_the_scheduler_recovers)
{
	struct pair p = told_left(0, 1);

	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, 0);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, 0);
	join_as(p.a, 20, 2, 0, 20000, 0);
	join_as(p.b, 21, 2, 1, 20000, 0);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 20), 0);
	p.server = hello(NODE_SERVER, "cpu-0");
	pass_beating(6000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ready_as(p.server, MSG_JOB_READY, last(p.server, MSG_JOB_UP)->job,
		 last(p.server, MSG_JOB_UP)->epoch, 0);
	ck_answer(p.a, 20, 0, NULL);
	ck_answer(p.b, 21, 0, NULL);
}
END_TEST

START_TEST(a_job_that_some_have_left_is_not_over_yet_while_the_scheduler_recovers)
{
	struct pair p = told_left(0, -1);

	join_as(p.a, 20, 2, 0, 20000, 0);
	ck_answer(p.a, 20, TALLY_EBUSY, "the job 'x' of before is not over, rank 1 (machine b) has "
		  "not detached yet; wait for it, or give this job another name (TALLY_JOB)");
}
END_TEST

/* It asked before the agents had told of the job of before. */
START_TEST(a_job_that_gathers_before_its_namesake_is_told_of_hears_that_it_is_busy)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	leave(p.b, p.job, 1, 0);
	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	join_as(p.a, 20, 2, 1, 20000, 0);
	left_rank = 0;
	job_held(p.a, p.job, epoch);
	left_rank = -1;
	ck_answer(p.a, 20, TALLY_EBUSY, "the job 'x' of before is not over; give this one "
		  "another name (TALLY_JOB)");
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_job_that_all_have_left_is_over_while_the_scheduler_recovers);
	tcase_add_test(t, a_job_that_some_have_left_is_not_over_yet_while_the_scheduler_recovers);
	tcase_add_test(t, a_job_that_gathers_before_its_namesake_is_told_of_hears_that_it_is_busy);
	tcase_add_test(t, an_agent_that_was_started_again_hears_who_has_left);
	tcase_add_test(t, a_machine_that_all_have_left_is_not_waited_for_after_a_restart);
	tcase_add_test(t, who_has_left_is_believed_whoever_says_so);
}

int main(void)
{
	return rig_main("sched_left", add);
}
