// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_return.c - an agent that is gone for longer than other nodes may be, and one
 * that was started again: a pause for its job, and an error only when the grace is over.
 */
#include "tests/unit/return_rig.h"

START_TEST(a_job_waits_for_its_agent_and_then_names_its_ranks)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	pass_with(&p, 20000);
	ck_assert_str_eq(waiting_for(), "agent a, 10 s left");
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_with(&p, 11000);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_str_eq(last(p.b, MSG_JOB_DOWN)->text,
			 "rank 0 on machine a is gone (the agent's connection closed)");
}
END_TEST

/* While it is away a server dies, and late in its grace another one: what it missed first it
 * hears when it is back. */
START_TEST(an_agent_back_within_its_grace_hears_all_that_it_missed)
{
	struct pair p = pair_declared();
	const uint32_t all[] = { p.a, p.b, p.server };

	pass_beating(25000, all, 3);
	undeclare_both(&p, 3);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 0);	/* nothing since JOB_UP */
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);
	ck_assert_uint_eq(last(p.a, MSG_FORGET)->seq, 2);
}
END_TEST

/* The answer says that it is up, which its agent is to know by then. */
START_TEST(whose_agent_lost_the_job_on_its_way_hears_of_it_before_the_answer)
{
	struct pair p = pair_up();
	uint32_t up = 0, answered = 0;

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	join(p.a, 1, 2, 0);
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->rec[i].conn == p.a && w->rec[i].type == MSG_JOB_UP)
			up = i;
		else if (w->rec[i].conn == p.a && w->rec[i].type == MSG_REPLY)
			answered = i;
	}
	ck_assert(up && up < answered);
	ck_answer(p.a, 1, 0, NULL);
}
END_TEST

START_TEST(a_silent_agent_has_its_lease_and_then_the_grace)
{
	struct pair p = pair_declared();

	pass_with(&p, 20000);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");	/* the same process */
	pass_beating(40000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* It cannot reach the scheduler, and trains: its grace begins when nobody hears it any more. */
START_TEST(an_agent_that_servers_hear_is_waited_for)
{
	struct pair p = pair_declared();
	uint32_t asked;

	conn_closed(p.a);
	for (uint32_t i = 0; i < 100; i++) {
		asked = count(p.server, MSG_HEARD, REQ_ANY);
		pass_with(&p, 1000);
		ck_assert_uint_eq(count(p.server, MSG_HEARD, REQ_ANY), asked + 1);
		ck_assert_uint_eq(last(p.server, MSG_HEARD)->node, w->agent_node[0]);
		heard(p.server, w->agent_node[0]);
	}
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_str_eq(waiting_for(), "agent a (servers have heard it), 30 s left");
	heard(p.server, w->agent_node[1]);	/* is not away, */
	heard(p.server, w->server_node);	/* nor that one, */
	heard(p.server, 999);			/* and there is none of that number */
	pass_with(&p, 29000);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_with(&p, 2000);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* It is heard; but what the lost one had cannot move without it. */
START_TEST(an_agent_that_servers_hear_is_not_waited_for_for_ever_when_one_is_lost)
{
	struct pair p = { .a = hello(NODE_AGENT, "a"), .b = hello(NODE_AGENT, "b") };
	uint32_t other;

	p.server = hello(NODE_SERVER, "cpu-0");
	other = hello(NODE_SERVER, "cpu-1");
	join(p.a, 1, 2, 0);
	join(p.b, 1, 2, 1);
	p.job = last(p.server, MSG_JOB_UP)->job;
	ready_as(p.server, MSG_JOB_READY, p.job, last(p.server, MSG_JOB_UP)->epoch, 0);
	ready_as(other, MSG_JOB_READY, p.job, last(other, MSG_JOB_UP)->epoch, 0);
	conn_closed(p.a);
	for (uint32_t i = 0; i < 98; i++) {
		if (i == 70)
			conn_closed(other);
		pass_beating(1000, (uint32_t[]){ p.b, p.server, other }, i < 70 ? 3 : 2);
		heard(p.server, w->agent_node[0]);
	}
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_with(&p, 4000);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

/* The scheduler itself stands still, which is nobody's fault: and nobody has heard the agent. */
START_TEST(an_agent_that_nobody_heard_is_not_said_to_be)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	pass_with(&p, 2000);
	w->now += mono_ms(20000);
	pass_with(&p, 1000);
	ck_assert_str_eq(waiting_for(), "agent a, 26 s left");
}
END_TEST

START_TEST(an_agent_that_servers_heard_comes_back)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	for (uint32_t i = 0; i < 100; i++) {
		pass_with(&p, 1000);
		heard(p.server, w->agent_node[0]);
	}
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 0);	/* nothing since JOB_UP */
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);
	conn_closed(p.a);
	pass_with(&p, 1000);
	heard(p.server, w->agent_node[0]);	/* what was heard before is of before */
	ck_assert_str_eq(waiting_for(), "agent a, 29 s left");
	pass_with(&p, 30000);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

START_TEST(agents_without_a_job_and_servers_have_no_grace)
{
	struct pair p = pair_declared();
	uint32_t idle = hello(NODE_AGENT, "c");
	uint64_t epoch = sched_epoch(w->s);

	conn_closed(idle);
	conn_closed(p.server);
	pass(600);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 2);
	ck_assert_uint_eq(sched_epoch(w->s), epoch);	/* nobody is left to sum */
}
END_TEST

START_TEST(started_again_it_keeps_its_number_and_hears_the_job_anew)
{
	struct pair p = pair_declared();
	uint32_t node = last(p.a, MSG_WELCOME)->node;

	conn_closed(p.a);
	pass_with(&p, 5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	ck_assert_uint_eq(last(p.a, MSG_WELCOME)->node, node);
	ck_assert_uint_eq(count(p.a, MSG_JOB_UP, REQ_ANY), 0);	/* not before its rank is back */
	ck_assert_str_eq(waiting_for(), "rank 0 of agent a, 25 s left");
	back_as(p.a, 5, p.job, 0);
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->job, p.job);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);
	ck_answer(p.a, 5, 0, NULL);
	ck_assert_str_eq(waiting_for(), "");
	pass_beating(60000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* A server in the row of a lost one, that no epoch has named yet: the others have nobody there,
 * and a restarted scheduler would find that the agents do not agree. */
START_TEST(started_again_it_hears_of_the_servers_that_the_others_know)
{
	struct pair p = pair_declared();
	uint32_t servers[] = { p.server, hello(NODE_SERVER, "cpu-1") }, next;

	heartbeat(servers[1], 1);
	ready_as(servers[1], MSG_JOB_READY, p.job, last(servers[1], MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, servers, 2);
	conn_closed(servers[1]);
	pass_beating(RECONNECT_GRACE_MS + 10, (uint32_t[]){ p.a, p.b, p.server }, 3);
	follow_epoch(&p, servers, 1);
	next = hello(NODE_SERVER, "cpu-2");
	heartbeat(next, 1);
	ck_assert_uint_eq(last(next, MSG_JOB_UP)->server[1], w->server_node);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 0);
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->nservers, 2);
	ck_assert_uint_ne(last(p.a, MSG_JOB_UP)->server[0], 0);
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->server[1], 0);
	ready_as(next, MSG_JOB_READY, p.job, last(next, MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, (uint32_t[]){ p.server, next }, 2);
	ck_assert_uint_eq(last(p.a, MSG_EPOCH)->nservers, 2);
}
END_TEST

START_TEST(ranks_that_do_not_come_back_cost_the_job)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	pass_with(&p, 5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	pass_beating(24000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	back_as(p.a, 5, p.job, 0);
	ck_answer(p.a, 5, TALLY_EWORKERLOST, NULL);
}
END_TEST

/* It was lost with the first connection, and the second process asks for it again. */
START_TEST(a_declare_on_its_way_is_asked_again)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, swapped, 2);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 0);
	declare_in(p.a, 6, p.job, 0, both, 2);
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);
	ck_answer(p.a, 6, 0, NULL);
	ck_answer(p.b, 2, 0, NULL);
	declare_in(p.a, 7, p.job, 0, both, 2);		/* answered, and the answer was lost */
	ck_answer(p.a, 7, 0, NULL);
}
END_TEST

/* A server dies meanwhile: its chunks move when all are there. */
START_TEST(nothing_begins_that_it_would_miss)
{
	struct pair p = pair_declared();
	uint32_t other = hello(NODE_SERVER, "cpu-1");

	conn_closed(p.a);
	pass_with(&p, 1000);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	heartbeat(other, 1);				/* it may be offered the job */
	if (count(other, MSG_JOB_UP, REQ_ANY))
		ready_as(other, MSG_JOB_READY, p.job, last(other, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
	back_as(p.a, 5, p.job, 0);
	ck_answer(p.a, 5, 0, NULL);
	heartbeat(other, 2);
	ck_assert_uint_eq(count(other, MSG_JOB_UP, REQ_ANY), 1);
	if (!count(p.server, MSG_EPOCH, REQ_ANY))
		ready_as(other, MSG_JOB_READY, p.job, last(other, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->seq, 2);
}
END_TEST

START_TEST(only_who_did_not_come_back_is_gone)
{
	const char *text = "rank 0 on machine a is gone (the agent's processes did not come back)";
	struct pair p = trio_that(ON_LOSS_ERROR);

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	ck_assert_str_eq(waiting_for(), "ranks 0, 1 of agent a, 30 s left");
	back_as(p.a, 5, p.job, 1);
	ck_assert_str_eq(waiting_for(), "rank 0 of agent a, 30 s left");
	pass_beating(31000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_str_eq(last(p.b, MSG_JOB_DOWN)->text, text);
	ck_answer(p.a, 5, TALLY_EWORKERLOST, text);
}
END_TEST

START_TEST(a_job_that_shrinks_waits_for_its_agent_first)
{
	struct pair p = trio();

	conn_closed(p.a);
	pass_with(&p, 29000);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
	pass_with(&p, 2000);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->ngone, 2);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(a_job_that_shrinks_goes_on_with_the_ranks_that_come_back)
{
	struct pair p = trio();

	conn_closed(p.a);
	pass_with(&p, 5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 1);
	pass_beating(24000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.a, MSG_JOB_UP, REQ_ANY), 0);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_answer(p.a, 5, 0, NULL);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->ngone, 1);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->gone[0], 0);
	ready_as(p.server, MSG_EPOCH_READY, p.job, last(p.server, MSG_EPOCH)->epoch, 0);
	ck_assert_uint_eq(last(p.a, MSG_EPOCH)->ngone, 1);
}
END_TEST

/* It has the rank's number, its process's perhaps, and none of its memory. */
START_TEST(who_attaches_to_an_agent_that_waits_is_not_one_of_its_ranks)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	join(p.a, 1, 2, 0);
	ck_answer(p.a, 1, TALLY_EEXIST, "rank 0 of job 'x' is on machine a already, process 101"
		  "; give each process a TALLY_RANK of its own, or this job another name "
		  "(TALLY_JOB)");
	back_as(p.a, 5, p.job, 0);
	ck_answer(p.a, 5, 0, NULL);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

static void all_follow(const struct pair *p)
{
	uint64_t epoch = last(p->server, MSG_EPOCH)->epoch;

	ready_as(p->server, MSG_EPOCH_READY, p->job, epoch, 0);
	ready_as(p->a, MSG_EPOCH_READY, p->job, epoch, 0);
	ready_as(p->b, MSG_EPOCH_READY, p->job, epoch, 0);
}

/* Ranks 1 and 2 of trio(), and who waits comes in. */
static void survivors_grow(const struct pair *p)
{
	struct msg b = { .type = MSG_BARRIER, .barrier = {
		.req = 70, .job = p->job, .rank = 1, .timeout_ms = 5000, .generation = 1, .grow = 1,
	} };

	send(p->a, &b);
	b.barrier.rank = 2;
	send(p->b, &b);
	ck_assert_uint_eq(last(p->server, MSG_EPOCH)->ngone, 0);
	all_follow(p);
	ck_answer(p->b, 70, 0, "");
}

/* It may come back to its agent until the grace is over. */
START_TEST(who_waits_to_come_in_does_until_the_one_before_is_lost)
{
	struct pair p = trio();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 1);
	join_late(p.a, 6);
	pass_beating(31000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->ngone, 1);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 6), 0);
	pass_beating(10000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_int_eq(answer(p.a, 6)->code, TALLY_ETIMEDOUT);
}
END_TEST

START_TEST(who_was_back_and_does_not_ask_again_may_be_lost)
{
	struct pair p = trio();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 0);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	join_late(p.a, 6);
	back_as(p.a, 7, p.job, 1);
	pass_beating(10000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 6), 0);
	ck_assert_uint_eq(count(p.a, MSG_JOB_UP, REQ_ANY), 0);
	pass_beating(21000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.a, MSG_JOB_UP, REQ_ANY), 1);
	all_follow(&p);
	survivors_grow(&p);
	ck_answer(p.a, 6, 0, NULL);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 5), 0);		/* it is not the one who came in */
}
END_TEST

START_TEST(who_waits_to_come_in_hears_that_the_one_before_is_back)
{
	struct pair p = trio();

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	join_late(p.a, 6);
	pass_beating(20000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 6), 0);
	back_as(p.a, 4, p.job, 0);
	back_as(p.a, 5, p.job, 1);
	pass_beating(15000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_answer(p.a, 6, TALLY_EEXIST, "rank 0 of job 'x' is on machine a already, process 7");
}
END_TEST

/* The others of its machine come back, which lets nobody in. */
START_TEST(who_waits_to_come_in_waits_until_the_survivors_grow)
{
	struct pair p = trio();

	leave(p.a, p.job, 0, TALLY_EWORKERLOST);
	all_follow(&p);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	join_late(p.a, 6);
	back_as(p.a, 5, p.job, 1);
	ck_answer(p.a, 5, 0, NULL);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 6), 0);
	survivors_grow(&p);
	ck_answer(p.a, 6, 0, NULL);
}
END_TEST

/* ---- while the scheduler recovers from a restart of its own ---- */

static void ck_takes_over(struct pair *p, uint32_t node, uint64_t key)
{
	ck_assert_uint_eq(last(p->a, MSG_WELCOME)->node, node);
	ck_assert_uint_ne(last(p->a, MSG_WELCOME)->key, key);	/* it is another process */
	ck_assert_uint_eq(last(p->server, MSG_AGENT_KEYS)->key, last(p->a, MSG_WELCOME)->key);
	back_as(p->a, 5, p->job, 0);
	ck_assert_uint_eq(last(p->a, MSG_JOB_UP)->job, p->job);
	ck_assert_uint_eq(last(p->a, MSG_TENSORS)->seq, 1);
	ck_answer(p->a, 5, 0, NULL);
	pass_beating(60000, (uint32_t[]){ p->a, p->b, p->server }, 3);
	ck_assert_uint_eq(count(p->b, MSG_JOB_DOWN, REQ_ANY), 0);
	declare_in(p->a, 6, p->job, 0, both, 2);
	declare_in(p->b, 6, p->job, 1, both, 2);
	ck_assert_uint_eq(last(p->server, MSG_TENSORS)->seq, 2);
}

/* Nobody knows yet what was the first process's. */
START_TEST(started_while_the_scheduler_recovers_it_registers_when_that_is_over)
{
	struct pair p = pair_declared();
	struct record before = *last(p.a, MSG_WELCOME);
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.a = process_anew();
	ck_assert_int_eq(last(p.a, MSG_REPLY)->code, TALLY_EBUSY);
	ck_assert_uint_eq(w->closes[p.a], 1);
	told_by_b(&p, epoch);
	until_recovered(&p);
	ck_assert_str_eq(waiting_for(), "agent a, 29 s left");
	pass_with(&p, 20000);
	p.a = process_anew();
	ck_takes_over(&p, before.node, before.key);
}
END_TEST

/* Its rank had the answer, and nobody else who has come back had. */
START_TEST(its_ranks_may_have_passed_a_barrier_that_nobody_else_has)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);
	struct msg m = { .type = MSG_EPOCH_READY, .ready = {
		.job = p.job, .seq = epoch, .text = "", .barrier = 1,
	} };

	restart(5000);
	told_by_b(&p, epoch);
	until_recovered(&p);
	barrier(p.b, 7, p.job, 1, 1);
	p.a = process_anew();
	back_as(p.a, 5, p.job, 0);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 7), 0);
	send(p.a, &m);
	ck_answer(p.b, 7, 0, "");
}
END_TEST

/* Its ranks came back to it before anybody told of their job. */
START_TEST(started_just_before_its_ranks_ask_again)
{
	struct pair p = pair_declared();
	struct record before = *last(p.a, MSG_WELCOME);
	uint64_t epoch = sched_epoch(w->s);

	conn_closed(p.a);
	p.a = process_anew();
	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	back_as(p.a, 5, p.job, 0);
	told_by_b(&p, epoch);
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	pass(1);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 5), 0);
	ck_assert_uint_eq(w->closes[p.a], 1);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	ck_takes_over(&p, before.node, before.key);
}
END_TEST

/* The first process has told of the job, and is killed then: its grace begins with the job. */
START_TEST(killed_while_the_scheduler_recovers_it_has_its_grace)
{
	struct pair p = pair_declared();
	struct record before = *last(p.a, MSG_WELCOME);
	uint64_t epoch = sched_epoch(w->s);

	restart(60000);
	told_by_b(&p, epoch);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	job_held(p.a, p.job, epoch);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	conn_closed(p.a);
	pass_with(&p, 60000);
	pass(1);
	ck_assert_str_eq(waiting_for(), "agent a, 29 s left");
	p.a = process_anew();
	ck_takes_over(&p, before.node, before.key);
}
END_TEST

/* Nobody says where chunks are, as there is none: the log is known all the same. */
START_TEST(without_servers_it_hears_what_the_scheduler_was_told)
{
	uint64_t epoch;
	uint32_t a, job = alone_declared(&epoch);

	restart(5000);
	a = held_alone(job, epoch);
	pass_beating(5000, &a, 1);
	pass(1);
	conn_closed(a);
	a = process_anew();
	back_as(a, 5, job, 0);
	back_as(a, 6, job, 1);
	ck_assert_uint_eq(last(a, MSG_JOB_UP)->nservers, 0);
	ck_assert_uint_eq(last(a, MSG_TENSORS)->seq, 1);
	ck_assert_uint_eq(last(a, MSG_TENSORS)->ids[0], 1);
	ck_answer(a, 6, 0, NULL);
	ids_as(a, MSG_UNDECLARE, 7, job, 0, (const uint32_t[]){ 1 }, 1);
	ids_as(a, MSG_UNDECLARE, 8, job, 1, (const uint32_t[]){ 1 }, 1);
	ck_answer(a, 8, 0, NULL);
}
END_TEST

START_TEST(who_does_not_come_after_the_scheduler_costs_the_job)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	told_by_b(&p, epoch);
	until_recovered(&p);
	pass_with(&p, 29000);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_with(&p, 2000);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

START_TEST(a_job_that_nobody_tells_of_is_over)
{
	struct pair p = pair_declared();

	restart(5000);
	pass(5001);
	p.a = process_anew();
	back_as(p.a, 5, p.job, 0);
	ck_answer(p.a, 5, TALLY_EWORKERLOST, NULL);
}
END_TEST

/* It was heard until a second ago, and is started again: its ranks have the grace. */
START_TEST(started_again_after_servers_heard_it_its_ranks_have_the_grace)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	for (uint32_t i = 0; i < 60; i++) {
		pass_with(&p, 1000);
		heard(p.server, w->agent_node[0]);
	}
	ck_assert_str_eq(waiting_for(), "agent a (servers have heard it), 30 s left");
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	back_as(p.a, 5, p.job, 0);
	ck_answer(p.a, 5, 0, NULL);
}
END_TEST

static void no_link(uint32_t conn, uint32_t job, uint32_t server)
{
	const struct msg_wait row = {
		.tensor = 1, .round = 3, .chunk = 2, .chunks = 4, .kind = WAIT_LINK, .who = server,
	};

	send(conn, &(struct msg){ .type = MSG_STUCK, .stuck = { .job = job, .nwaits = 1,
								.waits = &row } });
}

/* Neither is given up: the job stands still for as long as both paths are cut. */
START_TEST(agent_away_and_heard_does_not_keep_a_server_that_another_cannot_reach)
{
	struct pair p = pair_declared();
	uint32_t two = hello(NODE_SERVER, "cpu-1"), node_two = w->server_node;

	heartbeat(two, 1);
	ready_as(two, MSG_JOB_READY, p.job, last(two, MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, (uint32_t[]){ p.server, two }, 2);
	conn_closed(p.a);
	no_link(p.b, p.job, node_two);
	for (uint32_t i = 0; i < 600; i++) {
		pass_beating(1000, (uint32_t[]){ p.b, p.server, two }, 3);
		heard(p.server, w->agent_node[0]);
	}
	ck_assert_uint_gt(count(two, MSG_JOB_DOWN, REQ_ANY) + count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* All of its ranks are said to live, so that none of them is missing, and then it reports the job
 * as one that it trains: that is too late, and the ranks are lost with it. */
START_TEST(agent_that_reports_its_job_too_late_loses_its_living_ranks)
{
	struct pair p = pair_declared();
	uint64_t epoch = last(p.server, MSG_JOB_UP)->epoch;
	struct msg alive = { .type = MSG_RANK_ALIVE, .rank_alive = { .job = p.job } };

	conn_closed(p.a);
	pass_with(&p, 1000);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	send(p.a, &alive);
	job_held(p.a, p.job, epoch);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_ptr_nonnull(strstr(last(p.a, MSG_JOB_DOWN)->text, "rank 0 on machine a is gone"));
	join_as(p.a, 7, 3, 0, 2000, 0);		/* its text names a rank that is in, and its node */
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_job_waits_for_its_agent_and_then_names_its_ranks);
	tcase_add_test(t, only_who_did_not_come_back_is_gone);
	tcase_add_test(t, an_agent_back_within_its_grace_hears_all_that_it_missed);
	tcase_add_test(t, whose_agent_lost_the_job_on_its_way_hears_of_it_before_the_answer);
	tcase_add_test(t, a_silent_agent_has_its_lease_and_then_the_grace);
	tcase_add_test(t, an_agent_that_servers_hear_is_waited_for);
	tcase_add_test(t, an_agent_that_servers_hear_is_not_waited_for_for_ever_when_one_is_lost);
	tcase_add_test(t, an_agent_that_nobody_heard_is_not_said_to_be);
	tcase_add_test(t, an_agent_that_servers_heard_comes_back);
	tcase_add_test(t, agents_without_a_job_and_servers_have_no_grace);
	tcase_add_test(t, started_again_it_keeps_its_number_and_hears_the_job_anew);
	tcase_add_test(t, started_again_it_hears_of_the_servers_that_the_others_know);
	tcase_add_test(t, ranks_that_do_not_come_back_cost_the_job);
	tcase_add_test(t, a_declare_on_its_way_is_asked_again);
	tcase_add_test(t, nothing_begins_that_it_would_miss);
	tcase_add_test(t, a_job_that_shrinks_waits_for_its_agent_first);
	tcase_add_test(t, a_job_that_shrinks_goes_on_with_the_ranks_that_come_back);
	tcase_add_test(t, who_attaches_to_an_agent_that_waits_is_not_one_of_its_ranks);
	tcase_add_test(t, who_waits_to_come_in_does_until_the_one_before_is_lost);
	tcase_add_test(t, who_was_back_and_does_not_ask_again_may_be_lost);
	tcase_add_test(t, who_waits_to_come_in_hears_that_the_one_before_is_back);
	tcase_add_test(t, who_waits_to_come_in_waits_until_the_survivors_grow);
	tcase_add_test(t, started_while_the_scheduler_recovers_it_registers_when_that_is_over);
	tcase_add_test(t, its_ranks_may_have_passed_a_barrier_that_nobody_else_has);
	tcase_add_test(t, started_just_before_its_ranks_ask_again);
	tcase_add_test(t, killed_while_the_scheduler_recovers_it_has_its_grace);
	tcase_add_test(t, without_servers_it_hears_what_the_scheduler_was_told);
	tcase_add_test(t, who_does_not_come_after_the_scheduler_costs_the_job);
	tcase_add_test(t, a_job_that_nobody_tells_of_is_over);
	tcase_add_test(t, started_again_after_servers_heard_it_its_ranks_have_the_grace);
	tcase_add_test(t, agent_that_reports_its_job_too_late_loses_its_living_ranks);
	tcase_add_test(t, agent_away_and_heard_does_not_keep_a_server_that_another_cannot_reach);
}

int main(void)
{
	return rig_main("sched_return", add);
}
