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

static inline void heard(uint32_t server, uint32_t node)
{
	send(server, &(struct msg){ .type = MSG_HEARD, .heard = { .node = node } });
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

/* ---- while the scheduler recovers from a restart of its own ---- */

/* Agent b and the server, which has the log up to there, are back, and tell of the job. */
static inline void told_by_b_and(struct pair *p, uint64_t epoch, uint64_t has)
{
	struct msg log = { .type = MSG_JOB_READY, .ready = {
		.job = p->job, .seq = epoch, .text = "", .log = has, .epoch = epoch,
	} };

	p->server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	send(p->server, &log);
	log.ready.log = 1;
	p->b = hello_from(NODE_AGENT, "b", "b", 2, "");
	job_held(p->b, p->job, epoch);
	tensors_held(p->b, p->job, 1, 1, &both[0]);
	log.type = MSG_EPOCH_READY;
	send(p->b, &log);
}

static inline void told_by_b(struct pair *p, uint64_t epoch)
{
	told_by_b_and(p, epoch, 1);
}

static inline uint32_t process_anew(void)
{
	uint32_t conn;

	hello_anew = true;
	conn = hello_from(NODE_AGENT, "a", "a", 9, "");
	hello_anew = false;
	return conn;
}

static inline void until_recovered(const struct pair *p)
{
	pass_with(p, 5000);
	pass(1);
	ck_assert(!sched_recovering(w->s));
}

/* A job of one machine, without servers, with a tensor: its number. */
static inline uint32_t alone_declared(uint64_t *epoch)
{
	uint32_t a = hello(NODE_AGENT, "a"), job;

	join(a, 1, 2, 0);
	join(a, 2, 2, 1);
	job = last(a, MSG_JOB_UP)->job;
	*epoch = last(a, MSG_JOB_UP)->epoch;
	declare_in(a, 3, job, 0, both, 1);
	declare_in(a, 4, job, 1, both, 1);
	return job;
}

/* As its agent tells of it; but not that this was all. */
static inline uint32_t tells_alone(uint32_t job, uint64_t epoch)
{
	static const uint32_t ranks[] = { 0, 1 };
	const struct msg_machine machine = {
		.node = w->agent_node[0], .name = "a", .machine = "a", .engines = 1,
		.nranks = 2, .ranks = ranks,
	};
	struct msg m = { .type = MSG_JOB_HELD, .job_up = {
		.algorithm = held_algorithm,
		.job = job, .name = "x", .world = 2, .epoch = epoch,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .seg_bytes = CHUNK_BYTES_DEFAULT,
		.window_bytes = WINDOW_BYTES_MAX, .nmachines = 1, .machines = &machine,
	} };
	uint32_t a = hello_from(NODE_AGENT, "a", "a", 1, "");

	send(a, &m);
	tensors_held(a, job, 1, 1, &both[0]);
	return a;
}

static inline uint32_t held_alone(uint32_t job, uint64_t epoch)
{
	uint32_t a = tells_alone(job, epoch);

	has_log(a, MSG_EPOCH_READY, job, epoch, 1);
	return a;
}

/* trio(), as an agent of its tells of it. */
static inline void trio_held(uint32_t conn, uint32_t job, uint64_t epoch, uint32_t on_loss)
{
	static const uint32_t ranks[] = { 0, 1, 2 };
	const struct msg_machine machines[] = {
		{ .node = w->agent_node[0], .name = "a", .machine = "a", .engines = 1,
		  .nranks = 2, .ranks = &ranks[0] },
		{ .node = w->agent_node[1], .name = "b", .machine = "b", .engines = 1,
		  .nranks = 1, .ranks = &ranks[2] },
	};
	const struct msg_server server = {
		.node = w->server_node, .engines = 1, .name = "cpu-0", .machine = "cpu-0",
		.shm_path = "", .weight = UINT32_MAX,
	};

	send(conn, &(struct msg){ .type = MSG_JOB_HELD, .job_up = {
		.algorithm = held_algorithm,
		.job = job, .name = "x", .world = 3, .epoch = epoch, .on_loss = on_loss,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .seg_bytes = CHUNK_BYTES_DEFAULT,
		.window_bytes = WINDOW_BYTES_MAX, .nmachines = 2, .machines = machines,
		.nservers = 1, .servers = &server,
	} });
}

#endif
