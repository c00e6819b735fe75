// SPDX-License-Identifier: Apache-2.0
/*
 * A drained server stays drained as long as its process lives, whatever its scheduler does;
 * one that is told to end asks for it.
 */
#include "tests/unit/sched_rig.h"

static void drain(uint32_t cli, uint64_t req, const char *name, bool undo)
{
	struct msg m = { .type = MSG_DRAIN, .drain = { .req = req, .name = name, .undo = undo } };

	send(cli, &m);
	ck_answer(cli, req, 0, "");
}

static uint32_t server(const char *name, const char *cluster, bool draining)
{
	uint32_t conn;

	hello_draining = draining;
	conn = hello_from(NODE_SERVER, name, name, 9, cluster);
	hello_draining = 0;
	return conn;
}

/* Servers with a weight in a job of two machines that starts now; leaves it. */
static uint32_t used_by_a_job(uint32_t a, uint32_t b, uint64_t req)
{
	const struct record *r;
	uint32_t used = 0, job, conn;

	join(a, req, 2, 0);
	join(b, req, 2, 1);
	for (conn = 0; conn < w->conns; conn++) {
		if (!count(conn, MSG_JOB_UP, REQ_ANY))
			continue;
		r = last(conn, MSG_JOB_UP);
		ready_as(conn, MSG_JOB_READY, r->job, r->epoch, 0);
	}
	ck_answer(a, req, 0, NULL);
	r = last(a, MSG_JOB_UP);
	job = r->job;
	for (uint32_t i = 0; i < r->nservers; i++)
		used += r->weight[i] != 0;
	leave(a, job, 0, 0);
	leave(b, job, 1, 0);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
	return used;
}

START_TEST(server_hears_that_it_is_drained)
{
	uint32_t s = server("s", "", false), cli = conn_up();

	ck_assert_uint_eq(count(s, MSG_DRAIN, REQ_ANY), 0);
	drain(cli, 1, "s", false);
	ck_assert_uint_eq(last(s, MSG_DRAIN)->n, 0);
	drain(cli, 2, "s", true);
	ck_assert_uint_eq(last(s, MSG_DRAIN)->n, 1);
}
END_TEST

START_TEST(restarted_scheduler_does_not_use_a_drained_server)
{
	uint32_t a, b, s, cli;

	restart(0);
	a = hello(NODE_AGENT, "a");
	b = hello(NODE_AGENT, "b");
	server("other", "one cluster", false);
	s = server("s", "one cluster", true);
	ck_assert_uint_eq(count(s, MSG_DRAIN, REQ_ANY), 0);
	ck_assert_uint_eq(used_by_a_job(a, b, 1), 1);
	ck_assert_uint_eq(count(s, MSG_JOB_UP, REQ_ANY), 0);
	cli = conn_up();
	drain(cli, 1, "s", true);
	ck_assert_uint_eq(used_by_a_job(a, b, 2), 2);
}
END_TEST

START_TEST(server_taken_for_dead_comes_back_drained)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b"), s, cli = conn_up();

	server("other", "", false);
	s = server("s", "", false);
	drain(cli, 1, "s", false);
	conn_closed(s);
	pass(2 * RECONNECT_GRACE_MS);
	s = server("s", "one cluster", true);
	ck_assert_uint_eq(used_by_a_job(a, b, 1), 1);
	ck_assert_uint_eq(count(s, MSG_JOB_UP, REQ_ANY), 0);
}
END_TEST

START_TEST(who_finds_drained_servers_alone_is_told_so)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	server("s", "one cluster", true);
	join(a, 1, 2, 0);
	join(b, 2, 2, 1);
	pass(2000);
	ck_answer(a, 1, TALLY_ENOSERVER, "job 'x' spans several machines and no summation server "
		  "is registered but s, which is drained (tally drain --undo NAME); start "
		  "tally-server");
}
END_TEST

START_TEST(server_that_was_away_is_told_when_it_is_back)
{
	uint32_t s = server("s", "", false), cli = conn_up();

	conn_closed(s);
	drain(cli, 1, "s", false);
	s = server("s", "one cluster", false);
	ck_assert_uint_eq(last(s, MSG_DRAIN)->n, 0);
	conn_closed(s);
	drain(cli, 2, "s", true);
	s = server("s", "one cluster", true);
	ck_assert_uint_eq(last(s, MSG_DRAIN)->n, 1);
}
END_TEST

static void leaves(uint32_t conn)
{
	struct msg m = { .type = MSG_DRAIN, .drain = { .req = 1, .name = "whatever it says" } };

	send(conn, &m);
}

START_TEST(server_that_ends_is_drained_first)
{
	struct pair p = pair_declared();
	uint32_t servers[] = { p.server, hello(NODE_SERVER, "cpu-1") };

	heartbeat(servers[1], 1);
	ready_as(servers[1], MSG_JOB_READY, p.job, last(servers[1], MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, servers, 2);
	ck_assert_uint_eq(count(servers[0], MSG_JOB_DOWN, REQ_ANY), 0);
	leaves(servers[0]);
	follow_epoch(&p, servers, 2);
	ck_assert_int_eq(last(servers[0], MSG_JOB_DOWN)->code, 0);
	ck_assert_uint_eq(count(servers[0], MSG_REPLY, REQ_ANY), 0);
	ck_assert_uint_eq(count(servers[1], MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 0);
	ck_assert_uint_eq(sched_counters(w->s)->rebalances, 2);
	conn_closed(servers[0]);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, servers[1] }, 3);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 0);
	servers[0] = hello(NODE_SERVER, "cpu-0");	/* the next process is used again */
	heartbeat(servers[0], 1);
	ck_assert_uint_eq(last(servers[0], MSG_JOB_UP)->job, p.job);
}
END_TEST

START_TEST(server_that_ends_hears_that_there_is_no_other)
{
	struct pair p = pair_declared();

	leaves(p.server);
	ck_assert_int_eq(last(p.server, MSG_REPLY)->code, TALLY_ENOSERVER);
	ck_assert_str_eq(last(p.server, MSG_REPLY)->text, "job 'x' has no other server");
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* It has been told the job, and no epoch has given it anything. */
START_TEST(server_that_is_drained_while_it_joins_does_not_stay)
{
	struct pair p = pair_declared();
	uint32_t one = hello(NODE_SERVER, "cpu-1");

	heartbeat(one, 1);
	leaves(one);
	ck_assert_uint_eq(count(one, MSG_JOB_DOWN, REQ_ANY), 0);
	ready_as(one, MSG_JOB_READY, p.job, last(one, MSG_JOB_UP)->epoch, 0);
	ck_assert_int_eq(last(one, MSG_JOB_DOWN)->code, 0);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
}
END_TEST

/* Whoever is to be drained serves as long as there is no other. */
START_TEST(server_that_drains_takes_over_what_the_last_other_one_had)
{
	struct pair p = pair_declared();
	uint32_t servers[] = { hello(NODE_SERVER, "cpu-1"), p.server };

	heartbeat(servers[0], 1);
	ready_as(servers[0], MSG_JOB_READY, p.job, last(servers[0], MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, servers, 2);
	drain(conn_up(), 1, "cpu-0", false);
	for (int i = 0; i < 1 + _i; i++)	/* it dies before it says so, or just after */
		ready_as(servers[!i], MSG_EPOCH_READY, p.job,
			 last(servers[!i], MSG_EPOCH)->epoch, 0);
	conn_closed(servers[0]);
	pass_beating(2000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
	follow_epoch(&p, servers + 1, 1);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_beating(120000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	servers[0] = hello(NODE_SERVER, "cpu-2");	/* it leaves for who comes */
	heartbeat(servers[0], 1);
	ready_as(servers[0], MSG_JOB_READY, p.job, last(servers[0], MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, servers, 2);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, 0);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, server_that_drains_takes_over_what_the_last_other_one_had, 0, 2);
	tcase_add_test(t, server_that_ends_is_drained_first);
	tcase_add_test(t, server_that_ends_hears_that_there_is_no_other);
	tcase_add_test(t, server_that_is_drained_while_it_joins_does_not_stay);
	tcase_add_test(t, server_hears_that_it_is_drained);
	tcase_add_test(t, restarted_scheduler_does_not_use_a_drained_server);
	tcase_add_test(t, server_taken_for_dead_comes_back_drained);
	tcase_add_test(t, who_finds_drained_servers_alone_is_told_so);
	tcase_add_test(t, server_that_was_away_is_told_when_it_is_back);
}

int main(void)
{
	return rig_main("sched_drain", add);
}
