// SPDX-License-Identifier: Apache-2.0
/* sched_slow.c: what heartbeats say of servers becomes another share, if there is room. */
#include "tests/unit/sched_rig.h"

#define PLENTY (UINT64_C(1) << 30)

static uint32_t agent[2], srv[2];
static uint64_t summed[2], busy_us[2], cpu_us[2], used;
static double cpu_part;			/* of the busy time, in train(); less than 0: not said */

static void agents(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		agent[i] = hello(NODE_AGENT, i ? "b" : "a");
		summed[i] = busy_us[i] = cpu_us[i] = 0;
	}
	used = 0;
	cpu_part = -1;
}

/* A rank on each of both machines, one tensor, the first n servers. */
static uint32_t job_on(const char *name, uint64_t req, uint32_t n)
{
	static const struct want grad = { "grad", DTYPE_F32, 16 << 20 };	/* 64 MiB */
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = req, .job = name, .world = 2, .timeout_ms = 2000,
	} };
	uint32_t number;

	for (uint32_t i = 0; i < 2; i++) {
		m.rank_join.rank = i;
		m.rank_join.pid = 100 + i;
		send(agent[i], &m);
	}
	number = last(srv[0], MSG_JOB_UP)->job;
	for (uint32_t i = 0; i < n; i++)
		ready_as(srv[i], MSG_JOB_READY, number, last(srv[0], MSG_JOB_UP)->epoch, 0);
	for (uint32_t i = 0; i < 2; i++)
		declare_in(agent[i], req + 1, number, i, &grad, 1);
	for (uint32_t i = 0; i < n; i++)
		ready_as(srv[i], MSG_TENSORS_READY, number, 1, 0);
	ck_answer(agent[0], req + 1, 0, NULL);
	return number;
}

/* Two agents, two servers with half of it each, one tensor. */
static uint32_t job(void)
{
	agents();
	for (uint32_t i = 0; i < 2; i++)
		srv[i] = hello(NODE_SERVER, i ? "s1" : "s0");
	return job_on("x", 1, 2);
}

static void beat(uint32_t i)
{
	struct msg m = { .type = MSG_HEARTBEAT, .heartbeat = {
		.seq = 1, .bytes_summed = summed[i], .busy_us = busy_us[i], .note = "",
		.cpu_us = cpu_us[i],
		.memory_used_bytes = used,
	} };

	send(srv[i], &m);
	heartbeat(agent[i], 1);
}

/* So many seconds in which both sum as much, server 1 in four times the time. */
static void train(uint32_t seconds)
{
	for (uint32_t t = 0; t < seconds; t++) {
		for (uint32_t i = 0; i < 2; i++) {
			summed[i] += 100 << 20;
			busy_us[i] += i ? 800000 : 200000;
			if (cpu_part >= 0)
				cpu_us[i] += (uint64_t)(cpu_part * (i ? 800000 : 200000));
			beat(i);
		}
		pass(1000);
	}
}

START_TEST(a_slow_server_gets_a_smaller_share_by_a_rebalance)
{
	uint32_t number = job();
	const struct record *r;

	train(20);
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 1);
	r = last(srv[0], MSG_EPOCH);
	ck_assert_uint_eq(r->job, number);
	ck_assert_uint_eq(r->n, 0);
	ck_assert_uint_eq(r->nservers, 2);
	ck_assert_uint_ge(r->weight[1], UINT32_MAX / 100 * 19);
	ck_assert_uint_le(r->weight[1], UINT32_MAX / 100 * 21);
	ck_assert_uint_eq(sched_counters(w->s)->rebalances, 1);
	query(conn_up());
	ck_assert_uint_eq(last(w->conns - 1, MSG_REPORT)->pace[2], 0);
	ck_assert_uint_eq(last(w->conns - 1, MSG_REPORT)->pace[3], 25);
	train(200);		/* it is not settled yet: nothing more is decided */
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 1);
}
END_TEST

/* What the slow one's note says while its engines use so much of a CPU. */
static const char *slow_note(double cpu)
{
	job();
	cpu_part = cpu;
	train(20);
	query(conn_up());
	return last(w->conns - 1, MSG_REPORT)->slow;
}

START_TEST(a_slow_server_whose_engines_want_the_cpu_all_the_time_lacks_cores)
{
	const char *note = slow_note(0.9);

	ck_assert_ptr_nonnull(strstr(note, "its CPU binds (sums 125 MiB/s, "));
	ck_assert_ptr_nonnull(strstr(note, "90 %"));
	ck_assert_ptr_nonnull(strstr(note, "--engines"));
}
END_TEST

START_TEST(a_slow_server_whose_engines_wait_has_a_slow_nic)
{
	const char *note = slow_note(0.2);

	ck_assert_ptr_nonnull(strstr(note, "its NIC binds (sums 125 MiB/s, "));
	ck_assert_ptr_nonnull(strstr(note, "20 %"));
	ck_assert_ptr_nonnull(strstr(note, "--listen ADDR@BITRATE"));
}
END_TEST

START_TEST(what_binds_a_slow_server_is_left_open_where_its_kernel_does_not_say)
{
	ck_assert_ptr_nonnull(strstr(slow_note(-1), "its NIC or its CPU binds"));
}
END_TEST

static double measured(void)
{
	query(conn_up());
	return last(w->conns - 1, MSG_REPORT)->measured_s;
}

static void took(uint32_t i, uint32_t number, uint64_t us, uint64_t bytes)
{
	send(agent[i], &(struct msg){ .type = MSG_JOB_TIME, .job_time = {
		.job = number, .under_way_us = us, .bytes = bytes,
	} });
}

/* A round of its one tensor is 64 MiB. */
START_TEST(a_round_was_as_long_as_at_the_agent_that_waited_least)
{
	const uint64_t round = UINT64_C(64) << 20;
	uint32_t number = job();

	took(0, number, 1000000, round);
	took(0, number, 1100000, round + round / 2);
	ck_assert_double_eq(measured(), 0);	/* not a whole round yet */
	took(0, number, 1400000, 3 * round);
	ck_assert_double_eq_tol(measured(), 0.2, 1e-9);
	took(1, number, 0, 0);
	took(1, number, 300000, 2 * round);
	ck_assert_double_eq_tol(measured(), 0.15, 1e-9);
	took(1, number, 100, round);		/* it was started again: a new window */
	took(1, number, 500100, 2 * round);
	ck_assert_double_eq_tol(measured(), 0.2, 1e-9);
	took(0, number + 1, 5, 5);		/* no job of its */
	ck_assert_double_eq_tol(measured(), 0.2, 1e-9);
}
END_TEST

START_TEST(what_is_not_measured_moves_nothing)
{
	job();
	for (uint32_t t = 0; t < 60; t++) {	/* one of them has no work */
		summed[0] += 100 << 20;
		busy_us[0] += 500000;
		beat(0);
		beat(1);
		pass(1000);
	}
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 0);
}
END_TEST

START_TEST(without_room_at_the_others_a_slow_server_keeps_its_share)
{
	job();
	used = PLENTY - (32 << 20);	/* the other one would get 19 MiB more */
	train(60);
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 0);
	used = PLENTY - (128 << 20);
	train(60);
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 1);
}
END_TEST

/* One job has both of them, the other one only the first: which does more in its busy time. */
START_TEST(servers_that_have_not_the_same_jobs_are_not_compared)
{
	uint32_t other;

	agents();
	srv[0] = hello(NODE_SERVER, "s0");
	other = job_on("y", 1, 1);
	srv[1] = hello(NODE_SERVER, "s1");	/* it does not say that it takes that job */
	job_on("x", 3, 2);
	train(60);
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 0);
	for (uint32_t i = 0; i < 2; i++)
		leave(agent[i], other, i, 0);
	train(20);
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 1);
}
END_TEST

START_TEST(servers_that_have_the_same_part_of_all_jobs_are_compared)
{
	uint32_t number = job();

	job_on("y", 3, 2);
	train(20);
	ck_assert_uint_eq(count(srv[0], MSG_EPOCH, REQ_ANY), 2);	/* one for each of both */
	ck_assert_uint_ne(last(srv[0], MSG_EPOCH)->job, number);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, servers_that_have_not_the_same_jobs_are_not_compared);
	tcase_add_test(t, servers_that_have_the_same_part_of_all_jobs_are_compared);
	tcase_add_test(t, a_slow_server_gets_a_smaller_share_by_a_rebalance);
	tcase_add_test(t, a_slow_server_whose_engines_want_the_cpu_all_the_time_lacks_cores);
	tcase_add_test(t, a_slow_server_whose_engines_wait_has_a_slow_nic);
	tcase_add_test(t, what_binds_a_slow_server_is_left_open_where_its_kernel_does_not_say);
	tcase_add_test(t, a_round_was_as_long_as_at_the_agent_that_waited_least);
	tcase_add_test(t, what_is_not_measured_moves_nothing);
	tcase_add_test(t, without_room_at_the_others_a_slow_server_keeps_its_share);
}

int main(void)
{
	return rig_main("sched_slow", add);
}
