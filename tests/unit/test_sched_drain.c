// SPDX-License-Identifier: Apache-2.0
/* A drained server stays drained as long as its process lives, whatever its scheduler does. */
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

static void add(TCase *t)
{
	tcase_add_test(t, server_hears_that_it_is_drained);
	tcase_add_test(t, restarted_scheduler_does_not_use_a_drained_server);
	tcase_add_test(t, server_taken_for_dead_comes_back_drained);
	tcase_add_test(t, server_that_was_away_is_told_when_it_is_back);
}

int main(void)
{
	return rig_main("sched_drain", add);
}
