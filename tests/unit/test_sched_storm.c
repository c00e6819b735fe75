// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_storm.c - anything, in any order: no event and no missing memory
 * breaks the core.
 *
 * Each run is a seed.  The rig checks the core's invariants after every step; here
 * it is also checked that nobody is answered twice, and that all jobs end.
 */
#include "tests/unit/sched_rig.h"

#define NODES	6

struct asker {
	uint32_t conn, req;
	bool up;
};

static void random_hello(struct rng *r, struct asker *k, uint32_t i)
{
	static const char *const names[NODES] = { "a", "b", "c", "s", "t", "a" };

	k->conn = hello_from(i == 3 || i == 4 ? NODE_SERVER : NODE_AGENT, names[i], names[i],
			     (uint8_t)(i + 1 + NODES * rng_below(r, 2)), "");
	k->up = w->closes[k->conn] == 0;
}

static uint32_t newest_job(void)
{
	for (uint32_t i = w->n; i-- > 0; ) {
		if (w->rec[i].type == MSG_JOB_UP)
			return w->rec[i].job;
	}
	return 1;
}

static void random_words(struct rng *r, uint32_t who, uint32_t conn, uint64_t req)
{
	struct want t[2] = {
		{ rng_below(r, 2) ? "t" : "u", rng_below(r, 30) ? DTYPE_F32 : DTYPE_F64, 10 },
		{ "v", DTYPE_I32, 3 },
	};
	uint32_t job = newest_job() + !rng_below(r, 20);
	uint32_t rank = rng_below(r, 20) ? who % 3 : (uint32_t)rng_below(r, 4);
	uint32_t ids[2] = { (uint32_t)rng_below(r, 9), 2 };

	switch (rng_below(r, 10)) {
	case 0:
	case 1:
		join_as(conn, req, rng_below(r, 20) ? 3 : 4, rank % 3, 1000, 0);
		break;
	case 2:
	case 3:
	case 4:
		declare_in(conn, req, job, rank, t, 1 + (uint32_t)rng_below(r, 2));
		break;
	case 5:
		ids_as(conn, MSG_UNDECLARE, req, job, rank, ids, 1 + (uint32_t)rng_below(r, 2));
		break;
	case 6:
		barrier(conn, req, job, rank, 1 + rng_below(r, 4));
		break;
	case 7:
		if (!rng_below(r, 30))
			leave(conn, job, rank, rng_below(r, 2) ? -1 : 0);
		heartbeat(conn, 1);
		break;
	case 8:
		query(conn);
		break;
	default:
		job_held(conn, job, 1);
		tensors_held(conn, job, rng_below(r, 4), ids[0], t);
	}
}

/* Servers answer most of the time what they were last asked. */
static void random_ready(struct rng *r, uint32_t conn)
{
	for (uint32_t i = w->n; i-- > 0; ) {
		if (w->rec[i].conn != conn)
			continue;
		if (w->rec[i].type == MSG_JOB_UP)
			ready_as(conn, MSG_JOB_READY, w->rec[i].job, w->rec[i].epoch,
				 rng_below(r, 30) ? 0 : TALLY_EQUOTA);
		if (w->rec[i].type == MSG_TENSORS)
			ready_as(conn, MSG_TENSORS_READY, newest_job(), w->rec[i].seq,
				 rng_below(r, 30) ? 0 : TALLY_EQUOTA);
		return;
	}
}

/* Anything that is alive may say anything; nobody may be answered twice. */
static void random_run(uint64_t seed, uint32_t steps, uint32_t fail_every)
{
	struct rng r = { seed };
	struct asker k[NODES] = { 0 };
	uint32_t asked = 0;

	w->fail_every = fail_every;
	for (uint32_t i = 0; i < steps; i++) {
		uint32_t who = (uint32_t)rng_below(&r, NODES);

		if (w->n > RECORDS / 2)
			w->n = 0;
		k[who].up = k[who].up && w->closes[k[who].conn] == 0;
		if (!k[who].up)
			random_hello(&r, &k[who], who);
		else if (!rng_below(&r, 150)) {
			conn_closed(k[who].conn);
			k[who].up = false;
		} else if (who == 3 || who == 4) {
			random_ready(&r, k[who].conn);
			heartbeat(k[who].conn, 1);
		} else {
			random_words(&r, who, k[who].conn, ++asked);
			ck_assert_uint_le(count(k[who].conn, MSG_REPLY, asked), 1);
		}
		pass(rng_below(&r, 30));
	}
	w->fail_every = 0;
	pass(20000);		/* all deadlines and leases are over */
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}

START_TEST(random_events_break_nothing)
{
	random_run((uint64_t)_i, 1200, 0);
	ck_assert_uint_gt(sched_counters(w->s)->jobs_started, 0);
}
END_TEST

START_TEST(missing_memory_breaks_nothing)
{
	random_run((uint64_t)_i, 800, 3 + (uint32_t)_i * 4);
	ck_assert_uint_gt(sched_counters(w->s)->nomem, 0);
}
END_TEST

/* Every request of living nodes is answered exactly once by its deadline. */
START_TEST(every_request_is_answered_once)
{
	struct rng r = { (uint64_t)_i };
	struct pair p = pair_up();
	uint32_t conns[] = { p.a, p.b, p.server };
	uint64_t first = 1000, next = first;

	for (uint32_t i = 0; i < 200; i++) {
		uint32_t rank = (uint32_t)rng_below(&r, 2);

		switch (rng_below(&r, 3)) {
		case 0:
			declare_in(conns[rank], next++, p.job, rank, both,
				   1 + (uint32_t)rng_below(&r, 2));
			break;
		case 1:
			ids_as(conns[rank], MSG_UNDECLARE, next++, p.job, rank,
			       (uint32_t[]){ 1 + (uint32_t)rng_below(&r, 5) }, 1);
			break;
		default:
			barrier(conns[rank], next++, p.job, rank, 1 + rng_below(&r, 4));
		}
		if (rng_below(&r, 3))
			random_ready(&r, p.server);
		pass_beating(rng_below(&r, 50), conns, 3);
	}
	pass_beating(3000, conns, 3);
	for (uint64_t req = first; req < next; req++)
		ck_assert_uint_eq(count(p.a, MSG_REPLY, req) + count(p.b, MSG_REPLY, req), 1);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, every_request_is_answered_once, 0, 10);
	tcase_add_loop_test(t, random_events_break_nothing, 0, 20);
	tcase_add_loop_test(t, missing_memory_breaks_nothing, 0, 10);
}

int main(void)
{
	return rig_main("sched_storm", add);
}
