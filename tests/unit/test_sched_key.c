// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_key.c - a link key belongs to a process, and servers know whose each number is
 * by now, whenever they have been away.
 */
#include "tests/unit/return_rig.h"

static uint64_t key_of(uint32_t conn)
{
	return last(conn, MSG_WELCOME)->key;
}

static uint32_t times_told(uint32_t server)
{
	return count(server, MSG_AGENT_KEYS, REQ_ANY);
}

/* The last that it heard of a job's first agent. */
static void ck_key_told(uint32_t server, uint32_t node, uint64_t key)
{
	ck_assert_uint_eq(last(server, MSG_AGENT_KEYS)->node, node);
	ck_assert_uint_eq(last(server, MSG_AGENT_KEYS)->key, key);
}

/* As a process that was a node before says it; `node`: its number. */
static uint32_t hello_as_node(const char *name, const char *machine, uint8_t instance,
			      uint32_t node)
{
	const struct msg_addr addr = { "10.0.0.1", 7471, 1 };
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = NODE_AGENT,
		.name = name, .machine = machine, .instance = { instance }, .secret = "",
		.naddrs = 1, .addrs = &addr, .shm_path = "", .engines = 1,
		.cluster = "one cluster", .node = node,
	} };
	uint32_t conn = conn_up();

	send(conn, &m);
	return conn;
}

/* ---- whose it is ---- */

START_TEST(it_outlives_a_connection_and_the_scheduler)
{
	struct pair p = pair_declared();
	uint32_t node = last(p.a, MSG_WELCOME)->node;
	uint64_t key = key_of(p.a);

	ck_assert_uint_eq(last(p.server, MSG_JOB_UP)->key, key);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	ck_assert_uint_eq(key_of(p.a), key);
	ck_assert_uint_eq(times_told(p.server), 0);
	restart(5000);
	p.a = hello_as_node("a", "a", 1, node);
	ck_assert_uint_eq(last(p.a, MSG_WELCOME)->node, node);
	ck_assert_uint_eq(key_of(p.a), key);
}
END_TEST

/* The number is the same, and so it would fight the process before, if that lived. */
START_TEST(an_agent_that_was_started_again_has_another_one)
{
	struct pair p = pair_declared();
	uint32_t node = last(p.a, MSG_WELCOME)->node;
	uint64_t key = key_of(p.a);

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	ck_assert_uint_eq(last(p.a, MSG_WELCOME)->node, node);
	ck_assert_uint_ne(key_of(p.a), key);
	ck_assert_uint_ne(key_of(p.a), 0);
	ck_key_told(p.server, node, key_of(p.a));
	ck_assert_uint_eq(last(p.server, MSG_AGENT_KEYS)->n, 1);
	ck_assert_uint_eq(times_told(p.server), 1);
}
END_TEST

/* ---- who hears of it ---- */

/* Another job of both agents, which this server has, too. */
static void join_another(const struct pair *p, uint32_t other)
{
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = 20, .job = "y", .world = 2, .pid = 7, .timeout_ms = 2000,
		.uid = rank_uid,
	} };

	send(p->a, &m);
	m.rank_join.rank = 1;
	send(p->b, &m);
	ready_as(p->server, MSG_JOB_READY, last(other, MSG_JOB_UP)->job,
		 last(other, MSG_JOB_UP)->epoch, 0);
	ready_as(other, MSG_JOB_READY, last(other, MSG_JOB_UP)->job,
		 last(other, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_ne(last(p->a, MSG_JOB_UP)->job, p->job);
}

START_TEST(a_server_hears_it_once_however_many_jobs_it_has)
{
	struct pair p = pair_up();
	uint32_t other = hello(NODE_SERVER, "idle");

	join_another(&p, other);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	ck_assert_uint_eq(times_told(p.server), 1);
	ck_assert_uint_eq(times_told(other), 1);	/* it has the second job */
	conn_closed(p.b);
	p.b = hello_from(NODE_AGENT, "b", "b", 9, "");
	ck_assert_uint_eq(times_told(p.server), 2);
	hello(NODE_AGENT, "c");				/* is in none */
	ck_assert_uint_eq(times_told(p.server), 2);
}
END_TEST

START_TEST(a_server_that_was_away_hears_it_when_it_is_back)
{
	struct pair p = pair_declared();
	uint32_t node = last(p.a, MSG_WELCOME)->node;

	conn_closed(p.server);
	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	ck_key_told(p.server, node, key_of(p.a));
	ck_assert_uint_eq(last(p.server, MSG_AGENT_KEYS)->n, 2);
}
END_TEST

/* The agent before is away: servers that know its key keep it, and others have none. */
START_TEST(of_an_agent_that_is_not_there_nothing_is_told)
{
	struct pair p = pair_declared();

	conn_closed(p.a);
	pass_with(&p, 31000);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_uint_eq(times_told(p.server), 0);
}
END_TEST

/* The scheduler before may have told the agent, and not the servers. */
START_TEST(servers_hear_all_when_the_scheduler_has_recovered)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);
	uint32_t node;

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	node = last(p.a, MSG_WELCOME)->node;
	restart(5000);
	told_by_b(&p, epoch);
	p.a = hello_as_node("a", "a", 9, node);
	ck_assert_uint_eq(last(p.a, MSG_WELCOME)->node, node);
	ck_assert_uint_eq(times_told(p.server), 0);
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	pass(1);
	ck_assert(!sched_recovering(w->s));
	ck_key_told(p.server, node, key_of(p.a));
	ck_assert_uint_eq(last(p.server, MSG_AGENT_KEYS)->n, 2);
}
END_TEST

/* It may train, and only have no way to us. */
START_TEST(of_one_that_is_not_back_then_they_keep_what_they_know)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	told_by_b(&p, epoch);
	pass_with(&p, 5000);
	pass(1);
	ck_assert_str_eq(waiting_for(), "agent a, 29 s left");
	ck_key_told(p.server, last(p.b, MSG_WELCOME)->node, key_of(p.b));
	ck_assert_uint_eq(last(p.server, MSG_AGENT_KEYS)->n, 1);
}
END_TEST

/* ---- a process in the place of a lost agent, and that one after all ---- */

/* trio(), whose machine a was given up; it had that number. */
static struct pair given_up(uint32_t *node)
{
	struct pair p = trio();

	*node = last(p.a, MSG_WELCOME)->node;
	conn_closed(p.a);
	pass_with(&p, 31000);
	follow_epoch(&(struct pair){ .a = p.b, .b = p.b, .job = p.job }, &p.server, 1);
	return p;
}

/* And has another agent now. */
static struct pair replaced(uint32_t *node)
{
	struct pair p = given_up(node);

	p.a = hello_from(NODE_AGENT, "a", "other", 9, "");
	return p;
}

START_TEST(it_has_the_number_and_servers_hear_its_key_before_it_is_in)
{
	uint32_t node, late;
	struct pair p = replaced(&node);

	ck_assert_uint_eq(last(p.a, MSG_WELCOME)->node, node);
	ck_key_told(p.server, node, key_of(p.a));
	late = hello(NODE_SERVER, "cpu-1");		/* is told with the job */
	heartbeat(late, 1);
	ck_assert_uint_eq(last(late, MSG_JOB_UP)->key, key_of(p.a));
}
END_TEST

START_TEST(a_server_that_comes_while_nobody_is_there_has_no_key)
{
	uint32_t node, late;
	struct pair p = given_up(&node);

	late = hello(NODE_SERVER, "cpu-1");
	heartbeat(late, 1);
	ck_assert_uint_eq(last(late, MSG_JOB_UP)->job, p.job);
	ck_assert_uint_eq(last(late, MSG_JOB_UP)->key, 0);
}
END_TEST

START_TEST(the_one_before_hears_that_it_was_given_up)
{
	uint32_t node, old;
	struct pair p = replaced(&node);

	old = hello_as_node("a", "a", 1, node);

	ck_assert_int_eq(last(old, MSG_REPLY)->code, TALLY_EEXIST);
	ck_assert_str_eq(last(old, MSG_REPLY)->text, "another agent is registered as 'a', from "
			 "machine other, and this one was given up; start what ran here there, or "
			 "this one with another --name");
	ck_assert_uint_eq(w->closes[p.a], 0);
	ck_key_told(p.server, node, key_of(p.a));
}
END_TEST

/* On the same machine it is not taken for one that was started again. */
START_TEST(the_one_before_does_not_take_over_while_the_other_is_away)
{
	struct pair p = pair_declared();
	uint32_t node = last(p.a, MSG_WELCOME)->node, old;
	uint64_t key;

	conn_closed(p.a);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	key = key_of(p.a);
	back_as(p.a, 5, p.job, 0);
	conn_closed(p.a);
	old = hello_as_node("a", "a", 1, node);
	ck_assert_int_eq(last(old, MSG_REPLY)->code, TALLY_EBUSY);
	p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
	ck_assert_uint_eq(last(p.a, MSG_WELCOME)->node, node);
	ck_assert_uint_eq(key_of(p.a), key);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, it_outlives_a_connection_and_the_scheduler);
	tcase_add_test(t, an_agent_that_was_started_again_has_another_one);
	tcase_add_test(t, a_server_hears_it_once_however_many_jobs_it_has);
	tcase_add_test(t, a_server_that_was_away_hears_it_when_it_is_back);
	tcase_add_test(t, of_an_agent_that_is_not_there_nothing_is_told);
	tcase_add_test(t, servers_hear_all_when_the_scheduler_has_recovered);
	tcase_add_test(t, of_one_that_is_not_back_then_they_keep_what_they_know);
	tcase_add_test(t, it_has_the_number_and_servers_hear_its_key_before_it_is_in);
	tcase_add_test(t, a_server_that_comes_while_nobody_is_there_has_no_key);
	tcase_add_test(t, the_one_before_hears_that_it_was_given_up);
	tcase_add_test(t, the_one_before_does_not_take_over_while_the_other_is_away);
}

int main(void)
{
	return rig_main("sched_key", add);
}
