// SPDX-License-Identifier: Apache-2.0
/* A recovery at its edges, and a scheduler that stands still meanwhile. */
#include "tests/unit/return_rig.h"

/* The scheduler stands still while it recovers. */
START_TEST(recovery_goes_on_where_it_was)
{
	struct pair p = pair_declared();
	uint32_t job = p.job;

	restart(5000);
	pass(1000);
	w->now += mono_ms(10000);
	pass(0);			/* the timer comes before what waits in the sockets */
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, job, 1);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* Of another version, it would place what is declared next elsewhere than who trains. */
START_TEST(recovery_ends_a_job_of_another_placement)
{
	struct pair p = pair_declared();
	uint32_t job = p.job;

	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	held_algorithm = PLACE_ALGORITHM + 1;
	job_held(p.a, job, 1);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EVERSION);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text, "the job places by algorithm 3, and the "
			 "scheduler that was started meanwhile by 2: they have to be of the same "
			 "version");
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "one cluster");
	has_log(p.server, MSG_JOB_READY, job, 1, 1);
	pass_beating(5200, (uint32_t[]){ p.a, p.server }, 2);
	ck_assert_uint_eq(last(p.server, MSG_JOB_DOWN)->job, job);
}
END_TEST

/* It has nothing placed. */
START_TEST(recovery_takes_a_job_of_one_machine_of_whatever_placement)
{
	uint64_t epoch;
	uint32_t a, job = alone_declared(&epoch);

	restart(5000);
	held_algorithm = PLACE_ALGORITHM + 1;
	a = held_alone(job, epoch);
	ck_assert_uint_eq(count(a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* What it missed it can hear as the recovery ends, and at no other time. */
START_TEST(recovery_waits_for_who_is_away_for_a_moment)
{
	struct pair p = pair_declared();
	uint32_t job = p.job;

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "one cluster");
	has_log(p.server, MSG_JOB_READY, job, 1, 1);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, job, 1);
	has_log(p.a, MSG_EPOCH_READY, job, 1, 0);		/* it missed TENSORS 1 */
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "one cluster");
	job_held(p.b, job, 1);
	tensors_held(p.b, job, 1, 1, &both[0]);
	has_log(p.b, MSG_EPOCH_READY, job, 1, 1);
	pass_beating(4900, (uint32_t[]){ p.a, p.b, p.server }, 3);
	conn_closed(p.a);
	pass_beating(300, (uint32_t[]){ p.b, p.server }, 2);
	ck_assert(sched_recovering(w->s));
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, job, 1);
	has_log(p.a, MSG_EPOCH_READY, job, 1, 0);
	pass_beating(200, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);
}
END_TEST

/* Nor what it is yet to tell, which would be nothing of a job that goes on. */
START_TEST(recovery_waits_for_who_is_in_the_middle_of_telling)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	told_by_b(&p, epoch);
	pass_with(&p, 4900);
	w->in_the_middle = true;
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, p.job, epoch);
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(sched_recovering(w->s));
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	pass_beating(200, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);	/* it has all */
	ck_assert_uint_eq(w->closes[p.a], 0);
	ck_assert_str_eq(waiting_for(), "");
}
END_TEST

/* ... for as long as others can wait; then it comes back, and tells of it late. */
START_TEST(recovery_does_not_wait_for_ever_for_who_tells)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	told_by_b(&p, epoch);
	w->in_the_middle = true;
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, p.job, epoch);
	pass_beating(7000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(sched_recovering(w->s));
	pass_with(&p, 2000);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(w->closes[p.a], 1);
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	ck_assert_str_ne(waiting_for(), "");
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, p.job, epoch);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_str_eq(waiting_for(), "");
}
END_TEST

/* ... and not for ever. */
START_TEST(recovery_does_not_wait_for_who_comes_and_goes)
{
	struct pair p = pair_declared();
	uint32_t job = p.job, i;

	restart(5000);
	for (i = 0; sched_recovering(w->s) && i < 100; i++) {
		p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
		job_held(p.a, job, 1);
		conn_closed(p.a);
		pass(200);
	}
	ck_assert_uint_ge(i, (5000 + LEASE_MS) / 200 - 1);
	ck_assert_uint_le(i, (5000 + LEASE_MS) / 200 + 1);
}
END_TEST

/* Servers may have heard of an entry that no agent has: its tensors are others'. */
START_TEST(ids_that_servers_may_know_are_not_used_again)
{
	static const struct want third = { "v", DTYPE_I8, 3 };
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(1000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "one cluster");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, p.job, epoch);
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "one cluster");
	job_held(p.b, p.job, epoch);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	declare_in(p.a, 5, p.job, 0, &third, 1);
	declare_in(p.b, 5, p.job, 1, &third, 1);
	ck_assert_uint_gt(last(p.server, MSG_TENSORS)->ids[0], TENSORS_PER_BATCH_MAX);
}
END_TEST

/* Whatever number it says: it hears that the job is over, once. */
START_TEST(server_that_says_the_same_job_twice_has_it_once)
{
	uint32_t server, job = (uint32_t)_i;

	restart(5000);
	server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "one cluster");
	for (uint32_t i = 0; i < 3; i++)
		has_log(server, MSG_JOB_READY, job, 1, 0);
	pass_beating(5000, &server, 1);
	pass(1);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(count(server, MSG_JOB_DOWN, REQ_ANY), 1);
	ck_assert_uint_eq(last(server, MSG_JOB_DOWN)->job, job);
}
END_TEST

/* An agent tells of two tensors under one number, after a restart. */
START_TEST(agent_that_contradicts_itself_ends_its_job_and_leaves_nothing)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	w->in_the_middle = true;
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "one cluster");
	job_held(p.a, p.job, epoch);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	tensors_held(p.a, p.job, 2, 1, &both[1]);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EMISMATCH);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, ids_that_servers_may_know_are_not_used_again);
	tcase_add_test(t, recovery_goes_on_where_it_was);
	tcase_add_test(t, recovery_ends_a_job_of_another_placement);
	tcase_add_test(t, recovery_takes_a_job_of_one_machine_of_whatever_placement);
	tcase_add_test(t, recovery_waits_for_who_is_away_for_a_moment);
	tcase_add_loop_test(t, server_that_says_the_same_job_twice_has_it_once, 0, 2);
	tcase_add_test(t, recovery_waits_for_who_is_in_the_middle_of_telling);
	tcase_add_test(t, recovery_does_not_wait_for_ever_for_who_tells);
	tcase_add_test(t, agent_that_contradicts_itself_ends_its_job_and_leaves_nothing);
	tcase_add_test(t, recovery_does_not_wait_for_who_comes_and_goes);
}

int main(void)
{
	return rig_main("sched_recover", add);
}
