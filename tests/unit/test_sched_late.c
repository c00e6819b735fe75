// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_late.c - an agent that was silent while the scheduler was restarted and
 * recovered, and tells of its jobs within the grace that they wait for it.
 */
#include "tests/unit/return_rig.h"

/* The job trains on: it needs no epoch, and what is declared now is the next entry. */
static void ck_goes_on(const struct pair *p, uint64_t next)
{
	static const struct want more = { "v", DTYPE_F32, 50 };

	ck_assert_str_eq(waiting_for(), "");
	pass_beating(60000, (uint32_t[]){ p->a, p->b, p->server }, 3);
	ck_assert_uint_eq(count(p->a, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(count(p->b, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(count(p->a, MSG_JOB_UP, REQ_ANY), 0);
	declare_in(p->a, 6, p->job, 0, &more, 1);
	declare_in(p->b, 6, p->job, 1, &more, 1);
	ck_assert_uint_eq(last(p->server, MSG_TENSORS)->seq, next);
	ready_as(p->server, MSG_TENSORS_READY, p->job, next, 0);
	ck_assert_uint_eq(last(p->a, MSG_TENSORS)->seq, next);
	ck_assert_uint_eq(last(p->b, MSG_TENSORS)->seq, next);
	ck_answer(p->a, 6, 0, NULL);
}

/* All but agent a are there when the recovery is over. */
static struct pair pair_without_a(uint64_t *epoch)
{
	struct pair p = pair_declared();

	*epoch = sched_epoch(w->s);
	restart(5000);
	told_by_b(&p, *epoch);
	until_recovered(&p);
	ck_assert_str_eq(waiting_for(), "agent a, 29 s left");
	return p;
}

static void a_tells(struct pair *p, uint64_t epoch)
{
	p->a = hello_from(NODE_AGENT, "a", "a", 1, "");
	job_held(p->a, p->job, epoch);
	tensors_held(p->a, p->job, 1, 1, &both[0]);
}

START_TEST(the_first_process_goes_on_within_its_grace)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	pass_with(&p, 20000);
	a_tells(&p, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_goes_on(&p, 2);
}
END_TEST

/* It is the scheduler whom it cannot reach, before and after the restart. */
START_TEST(while_servers_hear_it_it_is_waited_for)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	for (uint32_t i = 0; i < 100; i++) {
		pass_with(&p, 1000);
		heard(p.server, w->agent_node[0]);
	}
	ck_assert_str_eq(waiting_for(), "agent a (servers have heard it), 30 s left");
	pass_with(&p, 20000);
	a_tells(&p, epoch);
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_goes_on(&p, 2);
}
END_TEST

START_TEST(after_its_grace_it_does_not)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	pass_with(&p, 31000);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	a_tells(&p, epoch);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* It was registered already, and what it told was on its way as the recovery ended. */
START_TEST(what_it_told_just_before_the_end_of_the_recovery_is_not_too_late)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	told_by_b(&p, epoch);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	pass(1);
	ck_assert(!sched_recovering(w->s));
	job_held(p.a, p.job, epoch);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_goes_on(&p, 2);
}
END_TEST

/* It is told what it missed before anything new. */
START_TEST(nothing_begins_before_it_has_told_all)
{
	static const struct want more = { "w", DTYPE_F32, 50 };
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	declare_in(p.b, 5, p.job, 1, &more, 1);
	a_tells(&p, epoch);
	declare_in(p.a, 5, p.job, 0, &more, 1);
	ck_assert_uint_eq(count(p.server, MSG_TENSORS, REQ_ANY), 0);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->seq, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 2, 0);
	ck_answer(p.a, 5, 0, NULL);
	ck_goes_on(&p, 3);
}
END_TEST

/* It has an entry that nobody else has.  That would be taken back by an epoch, however many, which
 * it does not answer. */
START_TEST(a_server_that_lets_go_meanwhile_wants_no_epoch)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	told_by_b_and(&p, epoch, 2);
	until_recovered(&p);
	ready_as(p.server, MSG_JOB_READY, p.job, 0, TALLY_EBUSY);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 1);
	a_tells(&p, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_assert_uint_eq(count(p.a, MSG_EPOCH, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* One is offered the job, in a row that it does not know, as soon as it is there. */
START_TEST(servers_that_came_meanwhile_do_not_matter)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);
	uint32_t first = w->server_node, more = hello(NODE_SERVER, "cpu-1");

	w->server_node = first;		/* as a knows the job */
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server, more }, 4);
	ck_assert_uint_eq(last(more, MSG_JOB_UP)->job, p.job);
	if (_i) {
		conn_closed(more);
		pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	}
	job_held(p.a, p.job, epoch);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_str_eq(waiting_for(), "");
}
END_TEST

START_TEST(its_connection_may_break_as_it_tells)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	a_tells(&p, epoch);
	conn_closed(p.a);
	pass_with(&p, 1000);
	a_tells(&p, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_goes_on(&p, 2);
}
END_TEST

/* It told in time, and its connection broke as the recovery ended: it is behind. */
START_TEST(what_it_missed_it_hears_also_when_it_was_away_for_longer)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	told_by_b(&p, epoch);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	job_held(p.a, p.job, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 0);
	pass_beating(4900, (uint32_t[]){ p.a, p.b, p.server }, 3);
	conn_closed(p.a);
	pass_with(&p, 20000);
	ck_assert(!sched_recovering(w->s));
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	job_held(p.a, p.job, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 0);
	ck_told(p.a, (struct told[]){ { MSG_TENSORS, 1, 1, 1 } }, 1);
	ck_goes_on(&p, 2);
}
END_TEST

/* The others tell of tensor 3 and a newer epoch, and have forgotten tensor 2. */
START_TEST(what_it_missed_before_the_restart_it_hears)
{
	static const struct want third = { "x", DTYPE_F32, 60 };
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);
	struct msg log = { .type = MSG_JOB_READY, .ready = {
		.job = p.job, .seq = epoch, .text = "", .log = 5, .epoch = epoch + 1,
	} };

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	send(p.server, &log);
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	job_held(p.b, p.job, epoch + 1);
	tensors_held(p.b, p.job, 1, 1, &both[0]);
	tensors_held(p.b, p.job, 5, 3, &third);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch + 1, 5);
	until_recovered(&p);
	a_tells(&p, epoch);
	tensors_held(p.a, p.job, 2, 2, &both[1]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 2);
	ck_told(p.a, (struct told[]){
		{ MSG_FORGET, 2, 1, 2 }, { MSG_EPOCH, 2, 1, 0 }, { MSG_FORGET, 3, 0, 0 },
		{ MSG_FORGET, 4, 0, 0 }, { MSG_TENSORS, 5, 1, 3 },
	}, 5);
	ck_assert_uint_eq(last(p.a, MSG_EPOCH)->epoch, epoch + 1);
	ck_told(p.b, NULL, 0);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch + 1, 5);
	ck_goes_on(&p, 6);
}
END_TEST

/* Who was there has gone on without that: it cannot follow them. */
START_TEST(who_has_what_nobody_else_told_of_costs_the_job)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	if (_i)
		a_tells(&p, epoch + 1);
	else
		a_tells(&p, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 2);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* Ranks that have come back to another process are that one's. */
START_TEST(what_its_ranks_left_it_has_lost)
{
	struct pair p = trio_that(ON_LOSS_ERROR);
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	trio_held(p.b, p.job, epoch, ON_LOSS_ERROR);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 0);
	until_recovered(&p);
	p.a = process_anew();
	back_as(p.a, 5, p.job, 1);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	trio_held(p.a, p.job, epoch, ON_LOSS_ERROR);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

START_TEST(a_job_that_shrinks_keeps_it)
{
	struct pair p = trio();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	trio_held(p.b, p.job, epoch, ON_LOSS_SHRINK);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 0);
	until_recovered(&p);
	pass_with(&p, 20000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	trio_held(p.a, p.job, epoch, ON_LOSS_SHRINK);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 0);
	pass_beating(60000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* It has an entry that nobody else told of: the job goes on without it, and says so by name. */
START_TEST(a_job_that_shrinks_says_whom_it_goes_on_without)
{
	struct pair p = trio();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	trio_held(p.b, p.job, epoch, ON_LOSS_SHRINK);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 0);
	until_recovered(&p);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	trio_held(p.a, p.job, epoch, ON_LOSS_SHRINK);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_ptr_nonnull(strstr(last(p.a, MSG_JOB_DOWN)->text, "on machine a"));
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* One of its ranks has detached, which nobody could tell before. */
START_TEST(who_has_left_it_says_then)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	a_tells(&p, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	leave(p.a, p.job, 0, 0);
	ck_assert_uint_eq(last(p.b, MSG_RANK_LEAVE)->rank, 0);
	leave(p.b, p.job, 1, 0);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, 0);
}
END_TEST

/* The scheduler died as the job came up: it has not heard so, and its rank asks. */
START_TEST(whose_rank_had_no_answer_yet_hears_that_the_job_is_up)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	job_held(p.b, p.job, epoch);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 0);
	until_recovered(&p);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	join_as(p.a, 1, 2, 0, 9000, 0);
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->job, p.job);
	ck_answer(p.a, 1, 0, NULL);
	pass_beating(60000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* There is nobody else who could have told of it. */
START_TEST(a_job_of_one_machine_goes_on_whenever_its_agent_tells_of_it)
{
	uint64_t epoch;
	uint32_t a, job = alone_declared(&epoch);

	restart(5000);
	pass(60000);
	a = held_alone(job, epoch);
	ck_assert_uint_eq(count(a, MSG_JOB_DOWN, REQ_ANY), 0);
	declare_in(a, 5, job, 0, &both[1], 1);
	declare_in(a, 6, job, 1, &both[1], 1);
	ck_answer(a, 5, 0, NULL);
	leave(a, job, 0, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	conn_closed(a);
	a = held_alone(job, epoch);		/* it is over, and stays so */
	ck_assert_int_eq(last(a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* Nobody else could tell what it has not told when the recovery ends: it tells of it anew (_i: it
 * is away then, else it is closed), and once more if its connection breaks again. */
START_TEST(a_job_of_one_machine_is_as_its_agent_tells_it_in_the_end)
{
	uint64_t epoch;
	uint32_t a, job = alone_declared(&epoch);

	restart(5000);
	w->in_the_middle = true;
	a = tells_alone(job, epoch);
	pass_beating(_i ? 4000 : 7500, &a, 1);
	if (_i)
		conn_closed(a);
	pass(2000);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(w->closes[a], !_i);
	conn_closed(tells_alone(job, epoch));
	pass(1000);
	a = tells_alone(job, epoch);
	ck_assert_uint_eq(count(a, MSG_JOB_DOWN, REQ_ANY), 0);
	declare_in(a, 5, job, 0, &both[1], 1);
	declare_in(a, 6, job, 1, &both[1], 1);
	ck_assert_uint_eq(count(a, MSG_TENSORS, REQ_ANY), 0);
	has_log(a, MSG_EPOCH_READY, job, epoch, 1);
	ck_assert_uint_eq(last(a, MSG_TENSORS)->seq, 2);
	ck_answer(a, 5, 0, NULL);
}
END_TEST

/* Some memory is missing each time it tells, and then there is some. */
START_TEST(without_memory_for_what_it_tells_it_tells_again)
{
	uint64_t epoch;
	struct pair p = pair_without_a(&epoch);

	for (uint32_t every = 1; every < 4; every++) {
		a_tells(&p, epoch);
		w->fail_every = every;
		tensors_held(p.a, p.job, 2, 2, &both[1]);
		w->fail_every = 0;
		ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
		if (!w->closes[p.a])
			conn_closed(p.a);
	}
	a_tells(&p, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 1);
	ck_goes_on(&p, 2);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, the_first_process_goes_on_within_its_grace);
	tcase_add_test(t, while_servers_hear_it_it_is_waited_for);
	tcase_add_test(t, after_its_grace_it_does_not);
	tcase_add_test(t, what_it_told_just_before_the_end_of_the_recovery_is_not_too_late);
	tcase_add_test(t, nothing_begins_before_it_has_told_all);
	tcase_add_test(t, a_server_that_lets_go_meanwhile_wants_no_epoch);
	tcase_add_loop_test(t, servers_that_came_meanwhile_do_not_matter, 0, 2);
	tcase_add_test(t, its_connection_may_break_as_it_tells);
	tcase_add_test(t, what_it_missed_it_hears_also_when_it_was_away_for_longer);
	tcase_add_test(t, what_it_missed_before_the_restart_it_hears);
	tcase_add_loop_test(t, who_has_what_nobody_else_told_of_costs_the_job, 0, 2);
	tcase_add_test(t, what_its_ranks_left_it_has_lost);
	tcase_add_test(t, a_job_that_shrinks_keeps_it);
	tcase_add_test(t, a_job_that_shrinks_says_whom_it_goes_on_without);
	tcase_add_test(t, who_has_left_it_says_then);
	tcase_add_test(t, whose_rank_had_no_answer_yet_hears_that_the_job_is_up);
	tcase_add_test(t, a_job_of_one_machine_goes_on_whenever_its_agent_tells_of_it);
	tcase_add_loop_test(t, a_job_of_one_machine_is_as_its_agent_tells_it_in_the_end, 0, 2);
	tcase_add_test(t, without_memory_for_what_it_tells_it_tells_again);
}

int main(void)
{
	return rig_main("sched_late", add);
}
