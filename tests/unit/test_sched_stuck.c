// SPDX-License-Identifier: Apache-2.0
/* sched_stuck.c: what several agents say of rounds that wait becomes one table. */
#include "tests/unit/sched_rig.h"

static void stuck(uint32_t conn, uint32_t job, const struct msg_wait *row, uint32_t n)
{
	struct msg m = { .type = MSG_STUCK, .stuck = { .job = job, .nwaits = n, .waits = row } };

	send(conn, &m);
}

static const struct record *table(uint32_t what)
{
	struct msg m = { .type = MSG_QUERY, .query = { .req = 1, .what = what, .job = "" } };
	uint32_t conn = conn_up();

	send(conn, &m);
	return last(conn, MSG_REPORT);
}

static void expect(const char *text)
{
	ck_assert_str_eq(table(QUERY_STUCK)->text, text);
}

/* Agents a (ranks 0, 1) and b (ranks 2, 3), one server, tensors t (1) and u (2). */
static struct pair fours(void)
{
	struct pair p = { .a = hello(NODE_AGENT, "a"), .b = hello(NODE_AGENT, "b") };

	p.server = hello(NODE_SERVER, "cpu-0");
	for (uint32_t r = 0; r < 4; r++)
		join(r < 2 ? p.a : p.b, 1 + r, 4, r);
	p.job = last(p.server, MSG_JOB_UP)->job;
	ready_as(p.server, MSG_JOB_READY, p.job, last(p.server, MSG_JOB_UP)->epoch, 0);
	for (uint32_t r = 0; r < 4; r++)
		declare_in(r < 2 ? p.a : p.b, 10 + r, p.job, r, both, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.a, 10, 0, NULL);
	return p;
}

/* Of tensor 1, round 3. */
static struct msg_wait wait_of(enum wait_kind kind, uint32_t who, uint64_t age_ms)
{
	return (struct msg_wait){
		.tensor = 1, .round = 3, .chunk = 2, .chunks = 4, .kind = kind, .who = who,
		.age_ms = age_ms,
	};
}

START_TEST(a_machine_that_says_nothing_lacks_all_its_ranks)
{
	struct pair p = fours();
	struct msg_wait far = wait_of(WAIT_MACHINE, 1, 700);

	expect("");
	stuck(p.a, p.job, &far, 1);
	expect("t 3 2+4 b 2 3");
	ck_assert_uint_eq(last(w->conns - 1, MSG_REPORT)->age_ms, 700);
	ck_assert_str_eq(table(QUERY_JOBS)->text, "ranks 2, 3 (machine b), tensor t round 3");
	pass(300);
	ck_assert_uint_eq(table(QUERY_STUCK)->age_ms, 1000);
	ck_assert_uint_eq(table(QUERY_STUCK)->silent_ms, 0);
	stuck(p.a, p.job, NULL, 0);
	expect("");
	ck_assert_str_eq(table(QUERY_JOBS)->text, "");
}
END_TEST

START_TEST(what_a_machine_says_of_itself_goes_before_what_others_say)
{
	struct pair p = fours();
	struct msg_wait far = wait_of(WAIT_MACHINE, 1, 700), own = wait_of(WAIT_RANK, 3, 900);

	stuck(p.a, p.job, &far, 1);
	stuck(p.b, p.job, &own, 1);
	expect("t 3 2+4 b 3");
	own.round = 4;			/* of another round it says nothing */
	stuck(p.b, p.job, &own, 1);
	expect("t 3 2+4 b 2 3, t 4 2+4 b 3");
}
END_TEST

START_TEST(a_server_is_named_once_however_many_wait_for_it)
{
	struct pair p = fours();
	struct msg_wait x = wait_of(WAIT_SERVER, w->server_node, 700), y = x;

	y.age_ms = 900;
	y.chunk = 1;
	y.chunks = 2;
	stuck(p.a, p.job, &x, 1);
	stuck(p.b, p.job, &y, 1);
	expect("t 3 1+4 cpu-0");
	ck_assert_uint_eq(table(QUERY_STUCK)->age_ms, 900);
	ck_assert_str_eq(table(QUERY_JOBS)->text, "server cpu-0, tensor t round 3");
}
END_TEST

START_TEST(whom_a_server_keeps_back_is_not_blamed)
{
	struct pair p = fours();
	struct msg_wait far = wait_of(WAIT_MACHINE, 1, 700);
	struct msg_wait held = wait_of(WAIT_SERVER, w->server_node, 900);

	far.round = 4;			/* a had its result of round 3, b did not */
	stuck(p.a, p.job, &far, 1);
	expect("t 4 2+4 b 2 3");
	stuck(p.b, p.job, &held, 1);
	expect("t 3 2+4 cpu-0");
	held.tensor = 2;		/* of whatever tensor: ranks wait for it first */
	stuck(p.b, p.job, &held, 1);
	expect("u 3 2+4 cpu-0");
	held.who = 999;			/* a server that is none explains nothing */
	stuck(p.b, p.job, &held, 1);
	expect("t 4 2+4 b 2 3");
	held.who = w->server_node;	/* nor one that it cannot reach, and does not wait for */
	held.chunks = 0;
	stuck(p.b, p.job, &held, 1);
	expect("t 4 2+4 b 2 3");
}
END_TEST

/* Its window is full of what the other one has not given. */
START_TEST(who_has_given_and_waits_too_is_not_blamed)
{
	struct pair p = fours();
	struct msg_wait far = wait_of(WAIT_MACHINE, 1, 700), near = wait_of(WAIT_MACHINE, 0, 900);

	stuck(p.a, p.job, &far, 1);
	expect("t 3 2+4 b 2 3");
	stuck(p.b, p.job, &near, 1);
	expect("");
	near.round = 4;			/* of another round it says nothing */
	stuck(p.b, p.job, &near, 1);
	expect("t 3 2+4 b 2 3, t 4 2+4 a 0 1");
}
END_TEST

START_TEST(whom_a_lost_server_keeps_back_is_not_blamed)
{
	struct pair p = fours();
	struct msg_wait far = wait_of(WAIT_MACHINE, 1, 700);
	struct msg_wait held = wait_of(WAIT_LINK, w->server_node, 900);

	stuck(p.a, p.job, &far, 1);
	stuck(p.b, p.job, &held, 1);
	conn_closed(p.server);
	pass(1000);
	expect("t 3 2+4 cpu-0");	/* there is none in its place */
	stuck(p.b, p.job, NULL, 0);
	expect("t 3 2+4 b 2 3");
}
END_TEST

START_TEST(a_node_that_misses_heartbeats_is_called_silent)
{
	struct pair p = fours();
	struct msg_wait w1 = wait_of(WAIT_MACHINE, 1, 0);

	stuck(p.a, p.job, &w1, 1);
	for (uint32_t i = 0; i < 2; i++) {
		heartbeat(p.a, i);
		heartbeat(p.server, i);
		pass(HEARTBEAT_MS);
	}
	ck_assert_uint_eq(table(QUERY_STUCK)->silent_ms, 2 * HEARTBEAT_MS);
	heartbeat(p.b, 1);
	ck_assert_uint_eq(table(QUERY_STUCK)->silent_ms, 0);
}
END_TEST

START_TEST(nonsense_names_nobody)
{
	struct pair p = fours();
	uint32_t stranger = hello(NODE_AGENT, "c");
	struct msg_wait rows[] = {
		wait_of(WAIT_MACHINE, 2, 0), wait_of(WAIT_SERVER, 999, 0),
		wait_of(WAIT_RANK, 4, 0), wait_of(WAIT_RANK, UINT32_MAX, 0),
		wait_of(WAIT_MACHINE, UINT32_MAX, 0), wait_of(WAIT_RANK, 0, 0),
	};
	uint64_t strays = sched_counters(w->s)->strays;

	rows[5].tensor = 99;
	stuck(p.a, p.job, rows, ARRAY_SIZE(rows));
	expect("");
	rows[5].tensor = 1;
	stuck(stranger, p.job, &rows[5], 1);
	stuck(p.a, 77, &rows[5], 1);
	stuck(p.server, p.job, &rows[5], 1);
	expect("");
	ck_assert_uint_eq(sched_counters(w->s)->strays, strays + 3);
}
END_TEST

START_TEST(a_job_that_is_over_waits_for_nobody)
{
	struct pair p = fours();
	struct msg_wait own = wait_of(WAIT_RANK, 1, 0);

	stuck(p.a, p.job, &own, 1);
	expect("t 3 2+4 a 1");
	leave(p.b, p.job, 2, TALLY_EWORKERLOST);
	expect("");
}
END_TEST

START_TEST(who_waits_for_each_other_is_named_twice)
{
	struct pair p = fours();
	struct msg_wait x = wait_of(WAIT_MACHINE, 1, 700), y = wait_of(WAIT_MACHINE, 0, 900);

	y.tensor = 2;			/* b's ranks have gone another way through the program */
	y.round = 7;
	stuck(p.a, p.job, &x, 1);
	stuck(p.b, p.job, &y, 1);
	expect("t 3 2+4 b 2 3, u 7 2+4 a 0 1");
}
END_TEST

START_TEST(without_memory_nothing_is_said_rather_than_half)
{
	struct pair p = fours();
	uint32_t cli = conn_up();
	struct msg m = { .type = MSG_QUERY, .query = { .req = 1, .what = QUERY_STUCK | QUERY_NODES,
						       .job = "" } };

	w->fail_every = 1;		/* the table of rounds that wait is an outsize block */
	send(cli, &m);
	w->fail_every = 0;
	ck_assert_uint_eq(count(cli, MSG_REPORT, REQ_ANY), 0);
	pass(1);
	ck_assert_uint_eq(w->closes[cli], 1);
	heartbeat(p.a, 1);
	expect("");
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, who_waits_for_each_other_is_named_twice);
	tcase_add_test(t, without_memory_nothing_is_said_rather_than_half);
	tcase_add_test(t, a_machine_that_says_nothing_lacks_all_its_ranks);
	tcase_add_test(t, what_a_machine_says_of_itself_goes_before_what_others_say);
	tcase_add_test(t, a_server_is_named_once_however_many_wait_for_it);
	tcase_add_test(t, whom_a_server_keeps_back_is_not_blamed);
	tcase_add_test(t, who_has_given_and_waits_too_is_not_blamed);
	tcase_add_test(t, whom_a_lost_server_keeps_back_is_not_blamed);
	tcase_add_test(t, a_node_that_misses_heartbeats_is_called_silent);
	tcase_add_test(t, nonsense_names_nobody);
	tcase_add_test(t, a_job_that_is_over_waits_for_nobody);
}

int main(void)
{
	return rig_main("sched_stuck", add);
}
