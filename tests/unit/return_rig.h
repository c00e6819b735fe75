/* SPDX-License-Identifier: Apache-2.0 */
/*
 * return_rig.h - an agent that was started again, and its ranks, over sched_rig.h: the
 * scheduler's grace is 30 s.
 */
#ifndef TALLY_TESTS_RETURN_RIG_H
#define TALLY_TESTS_RETURN_RIG_H

#define RIG_AGENT_GRACE_MS 30000u
#include "tests/unit/sched_rig.h"

static inline void back_as(uint32_t conn, uint64_t req, uint32_t job, uint32_t rank)
{
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = req, .job = "x", .world = 2, .rank = rank, .pid = 7, .timeout_ms = 60000,
		.back = job, .uid = rank_uid,
	} };

	send(conn, &m);
}

static inline void pass_with(const struct pair *p, uint64_t ms)
{
	pass_beating(ms, (uint32_t[]){ p->b, p->server }, 2);
}

static inline const char *waiting_for(void)
{
	uint32_t cli = conn_up();
	struct msg m = { .type = MSG_QUERY, .query = { .req = 1, .what = QUERY_JOBS, .job = "" } };

	send(cli, &m);
	return last(cli, MSG_REPORT)->text;
}

/* Ranks 0 and 1 on a, 2 on b. */
static inline struct pair trio_that(uint32_t on_loss)
{
	struct pair p = { .a = hello(NODE_AGENT, "a"), .b = hello(NODE_AGENT, "b") };

	p.server = hello(NODE_SERVER, "cpu-0");
	for (uint32_t r = 0; r < 3; r++) {
		struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
			.req = 1 + r, .job = "x", .world = 3, .rank = r, .pid = 7,
			.timeout_ms = 2000, .on_loss = on_loss, .uid = rank_uid,
		} };

		send(r < 2 ? p.a : p.b, &m);
	}
	p.job = last(p.server, MSG_JOB_UP)->job;
	ready_as(p.server, MSG_JOB_READY, p.job, last(p.server, MSG_JOB_UP)->epoch, 0);
	return p;
}

/* It goes on without those that it loses. */
static inline struct pair trio(void)
{
	return trio_that(ON_LOSS_SHRINK);
}

/* A late process of rank 0 of trio(); timeout 40 s. */
static inline void join_late(uint32_t conn, uint64_t req)
{
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = req, .job = "x", .world = 3, .rank = 0, .pid = 9, .timeout_ms = 40000,
		.on_loss = ON_LOSS_SHRINK, .uid = rank_uid,
	} };

	send(conn, &m);
}

#endif
