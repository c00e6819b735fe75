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

static void add(TCase *t)
{
	tcase_add_test(t, an_agent_that_was_started_again_hears_who_has_left);
	tcase_add_test(t, a_machine_that_all_have_left_is_not_waited_for_after_a_restart);
	tcase_add_test(t, who_has_left_is_believed_whoever_says_so);
}

int main(void)
{
	return rig_main("sched_left", add);
}
