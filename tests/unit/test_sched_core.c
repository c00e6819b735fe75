// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_core.c - the scheduler's core, driven by scripted events.
 *
 * A world is a core, a clock and everything it has sent.  SAVE is answered at
 * once, unless the disk is broken.  Invariants are checked after each step.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/sched_core.h"

#define RECORDS		16384
#define IDS		64
#define REQ_ANY		UINT64_MAX

struct record {
	uint32_t conn;
	enum msg_type type;
	uint64_t req, seq, epoch;
	int code;
	uint32_t job, rank, node, n, ids[IDS];
	uint32_t nmachines, nservers, weight[8], chunk, seg, window;
	uint8_t key;			/* some byte of a link key that is not zero */
	char name[64], text[ERR_TEXT_MAX + 1];
};

struct world {
	struct sched *s;
	mono_t now;
	uint32_t conns, n, closes[CTL_CONNS_MAX];
	int disk;			/* code of each SAVED */
	struct sched_ids saved;
	uint64_t epoch;			/* highest announced */
	uint32_t fail_every;		/* allocation that fails; 0 none */
	uint32_t allocs;
	long blocks;			/* living ones */
	struct record rec[RECORDS];
};

static struct world *w;

/* ---- the world ---- */

static void *mem_alloc(void *ctx, size_t bytes)
{
	struct world *x = ctx;

	if (x->fail_every && ++x->allocs % x->fail_every == 0)
		return NULL;
	x->blocks++;
	return calloc(1, bytes);
}

static void mem_free(void *ctx, void *p)
{
	struct world *x = ctx;

	x->blocks -= p != NULL;
	free(p);
}

static uint8_t key_byte(const uint8_t key[KEY_BYTES])
{
	uint8_t any = 0;

	for (uint32_t i = 0; i < KEY_BYTES; i++)
		any |= key[i];
	return any;
}

static void note_ids(struct record *r, const uint32_t *ids, uint32_t n)
{
	r->n = n;
	for (uint32_t i = 0; i < n && i < IDS; i++)
		r->ids[i] = ids[i];
}

static void note_job_up(struct record *r, const struct msg_job_up *m)
{
	r->job = m->job;
	r->epoch = m->epoch;
	r->nmachines = m->nmachines;
	r->nservers = m->nservers;
	r->chunk = m->chunk_bytes;
	r->seg = m->seg_bytes;
	r->window = m->window_bytes;
	r->key = key_byte(m->machines[0].link_key);
	r->rank = m->machines[0].ranks[0];
	for (uint32_t i = 0; i < m->nservers && i < 8; i++)
		r->weight[i] = m->servers[i].weight;
	snprintf(r->name, sizeof(r->name), "%s", m->machines[0].name);
}

static void note(const struct sched_action *a)
{
	struct record *r = &w->rec[w->n++ % RECORDS];
	const struct msg *m = a->msg;

	*r = (struct record){ .conn = a->conn, .type = m->type };
	switch (m->type) {
	case MSG_REPLY:
		r->req = m->reply.req;
		r->code = m->reply.code;
		note_ids(r, m->reply.ids, m->reply.nids);
		snprintf(r->text, sizeof(r->text), "%s", m->reply.text);
		break;
	case MSG_WELCOME:
		r->node = m->welcome.node;
		r->epoch = m->welcome.epoch;
		r->key = key_byte(m->welcome.link_key);
		break;
	case MSG_JOB_UP:
		note_job_up(r, &m->job_up);
		ck_assert_uint_le(r->epoch, w->saved.epoch);	/* durable before announced */
		break;
	case MSG_JOB_DOWN:
		r->job = m->job_down.job;
		r->code = m->job_down.code;
		snprintf(r->text, sizeof(r->text), "%s", m->job_down.text);
		break;
	case MSG_TENSORS:
		r->seq = m->tensors.seq;
		r->n = m->tensors.ntensors;
		for (uint32_t i = 0; i < r->n && i < IDS; i++)
			r->ids[i] = m->tensors.tensors[i].id;
		break;
	case MSG_FORGET:
		r->seq = m->ids.seq;
		note_ids(r, m->ids.ids, m->ids.nids);
		break;
	case MSG_RANK_LEAVE:
		r->rank = m->rank_leave.rank;
		break;
	case MSG_HEARTBEAT:
		r->seq = m->heartbeat.seq;
		break;
	case MSG_REPORT:
		r->n = m->report.nnodes;
		r->nmachines = m->report.njobs;
		r->nservers = m->report.ntensors;
		if (m->report.ntensors)
			snprintf(r->text, sizeof(r->text), "%s", m->report.tensors[0].waiting_for);
		else if (m->report.njobs)
			snprintf(r->text, sizeof(r->text), "%s", m->report.jobs[0].waiting_for);
		snprintf(r->name, sizeof(r->name), "%s", m->report.state);
		break;
	default:
		ck_abort_msg("the scheduler never sends %d", m->type);
	}
}

static void step(struct sched_event ev)
{
	uint32_t closing[64], nclosing = 0;
	struct sched_actions todo;
	bool saved = false;
	uint64_t before = sched_epoch(w->s);

	ev.now = w->now;
	sched_step(w->s, &ev, &todo);
	for (struct sched_action *a = todo.head; a; a = a->next) {
		if (a->type == SCHED_DO_SEND)
			note(a);
		if (a->type == SCHED_DO_CLOSE) {
			w->closes[a->conn]++;
			ck_assert_uint_lt(nclosing, ARRAY_SIZE(closing));
			closing[nclosing++] = a->conn;
		}
		if (a->type == SCHED_DO_SAVE) {
			saved = true;
			if (!w->disk)
				w->saved = a->ids;
		}
	}
	sched_check(w->s);
	ck_assert_uint_ge(sched_epoch(w->s), before);
	if (saved)
		step((struct sched_event){ .type = SCHED_EV_SAVED, .code = w->disk });
	for (uint32_t i = 0; i < nclosing; i++)
		step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = closing[i] });
}

static void world_open(struct sched_ids ids, uint32_t recover_ms, const char *secret)
{
	struct mem_ops mem = { .ctx = w, .alloc = mem_alloc, .free = mem_free };
	struct sched_config c = {
		.cluster = "one cluster", .key_seed = "seed of the keys", .ids = ids,
		.secret = secret, .version = "test", .heartbeat_ms = HEARTBEAT_MS,
		.recover_ms = recover_ms,
	};

	w->saved = ids;
	w->s = sched_new(&mem, &c, w->now);
	ck_assert_ptr_nonnull(w->s);
	step((struct sched_event){ .type = SCHED_EV_TIMER });
}

static void setup(void)
{
	w = calloc(1, sizeof(*w));
	w->now = NS_PER_SEC;
	world_open((struct sched_ids){ 0 }, 0, "");
}

static void teardown(void)
{
	sched_free(w->s);
	ck_assert_int_eq(w->blocks, 0);
	free(w);
}

static uint32_t restart(uint32_t recover_ms)
{
	sched_free(w->s);
	w->n = 0;
	world_open(w->saved, recover_ms, "");
	return w->conns;
}

/* Time passes; timers fire when the core wants them to. */
static void pass(uint64_t ms)
{
	mono_t until = w->now + mono_ms(ms);

	while (sched_next(w->s) <= until) {
		w->now = MAX(w->now, sched_next(w->s));
		step((struct sched_event){ .type = SCHED_EV_TIMER });
		ck_assert_int_gt(sched_next(w->s), w->now - 1);
		if (sched_next(w->s) == w->now)
			w->now++;
	}
	w->now = MAX(w->now, until);
}

static void send(uint32_t conn, const struct msg *m)
{
	step((struct sched_event){ .type = SCHED_EV_MSG, .conn = conn, .msg = m });
}

/* ---- what nodes say ---- */

static uint32_t conn_up(void)
{
	step((struct sched_event){ .type = SCHED_EV_UP, .conn = w->conns });
	return w->conns++;
}

static void conn_closed(uint32_t conn)
{
	step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = conn });
}

static uint32_t hello_from(enum node_kind kind, const char *name, const char *machine,
			   uint8_t instance, const char *cluster)
{
	static const struct msg_addr addr = { "10.0.0.1", 7471, 1000000000 };
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = kind,
		.name = name, .machine = machine, .instance = { instance }, .secret = "",
		.naddrs = 1, .addrs = &addr, .shm_path = "", .engines = 1,
		.adder_bytes_per_s = 10000000000, .memory_bytes = 1ull << 30,
	} };
	uint32_t conn = conn_up();

	snprintf((char *)m.hello.cluster, ID_BYTES, "%s", cluster);
	send(conn, &m);
	return conn;
}

static uint32_t hello(enum node_kind kind, const char *name)
{
	return hello_from(kind, name, name, (uint8_t)(w->conns + 1), "");
}

static void heartbeat(uint32_t conn, uint64_t seq)
{
	struct msg m = { .type = MSG_HEARTBEAT, .heartbeat = { .seq = seq, .note = "" } };

	send(conn, &m);
}

/* Time passes and these connections keep their leases. */
static void pass_beating(uint64_t ms, const uint32_t *conn, uint32_t n)
{
	for (uint64_t t = 0; t < ms; t += 1000) {
		for (uint32_t i = 0; i < n; i++)
			heartbeat(conn[i], 1);
		pass(MIN(1000, ms - t));
	}
}

static void join_as(uint32_t conn, uint64_t req, uint32_t world, uint32_t rank, uint32_t timeout_ms,
		    uint32_t chunk)
{
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = req, .job = "x", .world = world, .rank = rank, .pid = 100 + (uint32_t)req,
		.timeout_ms = timeout_ms, .chunk_bytes = chunk,
	} };

	send(conn, &m);
}

static void join(uint32_t conn, uint64_t req, uint32_t world, uint32_t rank)
{
	join_as(conn, req, world, rank, 2000, 0);
}

static void ready_as(uint32_t conn, enum msg_type type, uint32_t job, uint64_t seq, int code)
{
	struct msg m = { .type = type, .ready = {
		.job = job, .seq = seq, .code = code, .text = code ? "memory is full" : "",
	} };

	send(conn, &m);
}

struct want {
	const char *name;
	uint32_t dtype;
	uint64_t count;
};

static void declare_in(uint32_t conn, uint64_t req, uint32_t job, uint32_t rank,
		       const struct want *t, uint32_t n)
{
	struct msg_tensor tensors[8];
	struct msg m = { .type = MSG_DECLARE, .declare = {
		.req = req, .job = job, .rank = rank, .timeout_ms = 2000, .ntensors = n,
		.tensors = tensors,
	} };

	for (uint32_t i = 0; i < n; i++)
		tensors[i] = (struct msg_tensor){
			.name = t[i].name, .dtype = t[i].dtype, .ndims = 1, .dims = &t[i].count,
			.count = t[i].count,
		};
	send(conn, &m);
}

static void ids_as(uint32_t conn, enum msg_type type, uint64_t req, uint32_t job, uint32_t rank,
		   const uint32_t *ids, uint32_t n)
{
	struct msg m = { .type = type, .ids = {
		.req = req, .job = job, .rank = rank, .timeout_ms = 2000, .nids = n, .ids = ids,
	} };

	send(conn, &m);
}

static void barrier(uint32_t conn, uint64_t req, uint32_t job, uint32_t rank)
{
	struct msg m = { .type = MSG_BARRIER, .barrier = {
		.req = req, .job = job, .rank = rank, .timeout_ms = 2000,
	} };

	send(conn, &m);
}

static void leave(uint32_t conn, uint32_t job, uint32_t rank, int code)
{
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = job, .rank = rank, .code = code, .text = code ? "process ended" : "",
	} };

	send(conn, &m);
}

static void query(uint32_t conn)
{
	struct msg m = { .type = MSG_QUERY, .query = {
		.req = 1, .what = QUERY_NODES | QUERY_JOBS | QUERY_TENSORS, .job = "",
	} };

	send(conn, &m);
}

/* ---- what was sent ---- */

static uint32_t count(uint32_t conn, enum msg_type type, uint64_t req)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n; i++)
		n += w->rec[i].conn == conn && w->rec[i].type == type &&
		     (req == REQ_ANY || w->rec[i].req == req);
	return n;
}

static const struct record *last(uint32_t conn, enum msg_type type)
{
	for (uint32_t i = w->n; i-- > 0; ) {
		if (w->rec[i].conn == conn && w->rec[i].type == type)
			return &w->rec[i];
	}
	ck_abort_msg("connection %u never got a %s", conn, msg_type_name(type));
}

static const struct record *answer(uint32_t conn, uint64_t req)
{
	ck_assert_uint_eq(count(conn, MSG_REPLY, req), 1);
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->rec[i].conn == conn && w->rec[i].type == MSG_REPLY && w->rec[i].req == req)
			return &w->rec[i];
	}
	return NULL;
}

static void ck_answer(uint32_t conn, uint64_t req, int code, const char *text)
{
	const struct record *r = answer(conn, req);

	ck_assert_int_eq(r->code, code);
	if (text)
		ck_assert_str_eq(r->text, text);
}

/* Two agents a and b with a rank each, one server, up: job number 1. */
struct pair {
	uint32_t a, b, server, job;
};

static struct pair pair_up(void)
{
	struct pair p = { .a = hello(NODE_AGENT, "a"), .b = hello(NODE_AGENT, "b") };

	p.server = hello(NODE_SERVER, "cpu-0");
	join(p.a, 1, 2, 0);
	join(p.b, 1, 2, 1);
	p.job = last(p.server, MSG_JOB_UP)->job;
	ready_as(p.server, MSG_JOB_READY, p.job, last(p.server, MSG_JOB_UP)->epoch, 0);
	ck_answer(p.a, 1, 0, NULL);
	ck_answer(p.b, 1, 0, NULL);
	return p;
}

static const struct want both[] = { { "t", DTYPE_F32, 1000 }, { "u", DTYPE_F16, 7 } };
static const struct want swapped[] = { { "u", DTYPE_F16, 7 }, { "t", DTYPE_F32, 1000 } };

/* Both tensors declared by both ranks and up: ids 1 and 2. */
static struct pair pair_declared(void)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, swapped, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.a, 2, 0, NULL);
	return p;
}

/* ---- nodes ---- */

START_TEST(hello_gets_number_and_key)
{
	uint32_t a = hello(NODE_AGENT, "a"), s = hello(NODE_SERVER, "a");

	ck_assert_uint_eq(last(a, MSG_WELCOME)->node, 1);
	ck_assert_uint_ne(last(a, MSG_WELCOME)->key, 0);
	ck_assert_uint_eq(last(s, MSG_WELCOME)->node, 2);
	ck_assert_uint_eq(last(s, MSG_WELCOME)->key, 0);
	heartbeat(a, 42);
	ck_assert_uint_eq(last(a, MSG_HEARTBEAT)->seq, 42);
}
END_TEST

START_TEST(living_name_is_not_given_twice)
{
	uint32_t a = hello(NODE_AGENT, "a"), again = hello(NODE_AGENT, "a");

	ck_assert_int_eq(last(again, MSG_REPLY)->code, TALLY_EEXIST);
	ck_assert_uint_eq(w->closes[again], 1);
	ck_assert_uint_eq(w->closes[a], 0);
}
END_TEST

START_TEST(returning_instance_keeps_its_number)
{
	uint32_t a = hello_from(NODE_AGENT, "a", "m", 7, ""), again;

	conn_closed(a);
	pass(RECONNECT_GRACE_MS / 2);
	again = hello_from(NODE_AGENT, "a", "m", 7, "");
	ck_assert_uint_eq(last(again, MSG_WELCOME)->node, last(a, MSG_WELCOME)->node);
	pass(RECONNECT_GRACE_MS);
	ck_assert_uint_eq(sched_nodes_up(w->s), 1);
}
END_TEST

START_TEST(new_process_takes_the_name_of_a_closed_one)
{
	uint32_t a = hello_from(NODE_AGENT, "a", "m", 7, ""), b;

	conn_closed(a);
	b = hello_from(NODE_AGENT, "a", "m", 8, "");
	ck_assert_uint_ne(last(b, MSG_WELCOME)->node, last(a, MSG_WELCOME)->node);
	conn_closed(b);
	b = hello_from(NODE_AGENT, "a", "other", 9, "");
	ck_assert_int_eq(last(b, MSG_REPLY)->code, TALLY_EBUSY);
	pass(RECONNECT_GRACE_MS);
	b = hello_from(NODE_AGENT, "a", "other", 9, "");
	ck_assert_uint_gt(last(b, MSG_WELCOME)->node, 0);
}
END_TEST

START_TEST(silence_ends_the_lease)
{
	uint32_t a = hello(NODE_AGENT, "a");

	pass(LEASE_MS - 1);
	ck_assert_uint_eq(sched_nodes_up(w->s), 1);
	pass(1);
	ck_assert_uint_eq(sched_nodes_up(w->s), 0);
	ck_assert_uint_eq(w->closes[a], 1);
}
END_TEST

START_TEST(strangers_are_turned_away)
{
	uint32_t c = conn_up(), v = conn_up();
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = 9, .version_max = 9, .kind = NODE_AGENT, .name = "a",
		.machine = "m", .secret = "", .shm_path = "",
	} };

	heartbeat(c, 1);
	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
	ck_assert_uint_eq(w->closes[c], 1);
	send(v, &m);
	ck_assert_int_eq(last(v, MSG_REPLY)->code, TALLY_EVERSION);
}
END_TEST

START_TEST(secret_is_asked_for)
{
	uint32_t c;

	sched_free(w->s);
	world_open(w->saved, 0, "sesame");
	c = hello(NODE_AGENT, "a");
	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
	c = conn_up();
	query(c);
	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
}
END_TEST

/* ---- jobs ---- */

START_TEST(job_comes_up_servers_first)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");
	uint32_t s0 = hello(NODE_SERVER, "cpu-0"), s1 = hello(NODE_SERVER, "cpu-1");
	const struct record *up;

	join(b, 5, 3, 0);
	join(a, 6, 3, 2);
	ck_assert_uint_eq(count(s0, MSG_JOB_UP, REQ_ANY), 0);
	join(a, 7, 3, 1);
	up = last(s0, MSG_JOB_UP);
	ck_assert_uint_ne(up->key, 0);
	ck_assert_uint_eq(up->nmachines, 2);
	ck_assert_uint_eq(up->nservers, 2);
	ck_assert_str_eq(up->name, "b");	/* by lowest rank */
	ck_assert_uint_le(up->weight[0] - up->weight[1], 1);	/* equal but for the rounding */
	ck_assert_uint_eq(up->chunk, CHUNK_BYTES_DEFAULT);
	ck_assert_uint_eq(up->seg, 64u << 10);	/* 1 Gbit/s: 125 kB in a millisecond */
	ck_assert_uint_eq(up->window, WINDOW_BYTES_MAX);
	ready_as(s0, MSG_JOB_READY, up->job, up->epoch, 0);
	ck_assert_uint_eq(count(a, MSG_JOB_UP, REQ_ANY), 0);
	ready_as(s1, MSG_JOB_READY, up->job, up->epoch, 0);
	ck_assert_uint_eq(last(a, MSG_JOB_UP)->key, 0);
	ck_answer(b, 5, 0, "");
	ck_assert_uint_eq(answer(a, 6)->ids[0], up->job);
	ck_answer(a, 7, 0, "");
}
END_TEST

START_TEST(one_machine_needs_no_server)
{
	uint32_t a = hello(NODE_AGENT, "a");

	join(a, 1, 2, 0);
	join(a, 2, 2, 1);
	ck_answer(a, 1, 0, "");
	ck_assert_uint_eq(last(a, MSG_JOB_UP)->nservers, 0);
}
END_TEST

START_TEST(job_waits_for_a_server_and_says_so)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b"), s;

	join(a, 1, 2, 0);
	join(b, 1, 2, 1);
	pass(2000);
	ck_answer(a, 1, TALLY_ENOSERVER, NULL);
	ck_answer(b, 1, TALLY_ENOSERVER, NULL);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
	join(a, 2, 2, 0);
	join(b, 2, 2, 1);
	s = hello(NODE_SERVER, "cpu-0");
	ck_assert_uint_eq(count(s, MSG_JOB_UP, REQ_ANY), 1);
}
END_TEST

START_TEST(world_mismatch_reaches_every_rank)
{
	static const char text[] =
		"job 'x': rank 0 on machine a says world size 4, rank 1 on machine b says 2";
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	join(a, 1, 4, 0);
	join(a, 2, 4, 2);
	join(b, 1, 2, 1);
	ck_answer(a, 1, TALLY_EMISMATCH, text);
	ck_answer(a, 2, TALLY_EMISMATCH, text);
	ck_answer(b, 1, TALLY_EMISMATCH, text);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(segments_divide_chunks)
{
	uint32_t a = hello(NODE_AGENT, "a"), chunk;

	for (chunk = CHUNK_BYTES_MIN; chunk <= CHUNK_BYTES_MAX; chunk += CHUNK_BYTES_MIN) {
		join_as(a, chunk, 1, 0, 0, chunk);
		ck_assert_uint_eq(last(a, MSG_JOB_UP)->chunk, chunk);
		ck_assert_uint_eq(chunk % last(a, MSG_JOB_UP)->seg, 0);
		leave(a, last(a, MSG_JOB_UP)->job, 0, 0);
	}
}
END_TEST

START_TEST(chunk_wishes_must_agree)
{
	uint32_t a = hello(NODE_AGENT, "a");

	join_as(a, 1, 2, 0, 0, 64u << 10);
	join_as(a, 2, 2, 1, 0, 0);
	ck_answer(a, 1, TALLY_EMISMATCH, NULL);
	ck_answer(a, 2, TALLY_EMISMATCH, NULL);
	join_as(a, 3, 2, 1, 0, 5);
	ck_answer(a, 3, TALLY_EINVAL, NULL);
}
END_TEST

START_TEST(second_process_of_a_rank_is_refused_alone)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	join(a, 1, 3, 0);
	join(b, 1, 3, 0);
	ck_answer(b, 1, TALLY_EEXIST, "rank 0 of job 'x' is on machine a already, process 101");
	ck_assert_uint_eq(count(a, MSG_REPLY, 1), 0);
	join(a, 1, 3, 0);	/* the same one again: answered once */
	pass(2000);
	ck_answer(a, 1, TALLY_ETIMEDOUT, "ranks 1, 2 of job 'x' have not attached");
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(server_that_is_full_fails_the_job)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");
	uint32_t s = hello(NODE_SERVER, "cpu-0");

	join(a, 1, 2, 0);
	join(b, 1, 2, 1);
	ready_as(s, MSG_JOB_READY, last(s, MSG_JOB_UP)->job, last(s, MSG_JOB_UP)->epoch,
		 TALLY_EQUOTA);
	ck_answer(a, 1, TALLY_EQUOTA, "server cpu-0 cannot take job 'x': memory is full");
	ck_answer(b, 1, TALLY_EQUOTA, NULL);
	ck_assert_int_eq(last(s, MSG_JOB_DOWN)->code, TALLY_EQUOTA);
	ck_assert_uint_eq(count(a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(server_that_is_silent_is_named)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	hello(NODE_SERVER, "cpu-0");
	join(a, 1, 2, 0);
	join(b, 1, 2, 1);
	pass(2000);
	ck_answer(a, 1, TALLY_ETIMEDOUT, "job 'x' waits for server cpu-0 to reserve memory");
}
END_TEST

START_TEST(last_rank_that_leaves_ends_the_job)
{
	struct pair p = pair_up();

	barrier(p.b, 9, p.job, 1);
	leave(p.a, p.job, 0, 0);
	ck_assert_uint_eq(last(p.b, MSG_RANK_LEAVE)->rank, 0);
	ck_answer(p.b, 9, TALLY_ESHUTDOWN, "rank 0 of job 'x' has detached");
	barrier(p.b, 10, p.job, 1);
	ck_answer(p.b, 10, TALLY_ESHUTDOWN, NULL);
	leave(p.b, p.job, 1, 0);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, 0);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, 0);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(lost_rank_is_named_to_everybody)
{
	struct pair p = pair_up();

	barrier(p.a, 9, p.job, 0);
	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "rank 1 on machine b is gone (process ended)");
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_answer(p.a, 9, TALLY_EWORKERLOST, NULL);
}
END_TEST

START_TEST(what_an_agent_found_is_told_as_it_is)
{
	struct pair p = pair_up();
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = p.job, .rank = 1, .code = TALLY_EMISMATCH,
		.text = "the ranks disagree on the operation",
	} };

	barrier(p.a, 9, p.job, 0);
	send(p.b, &m);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EMISMATCH);
	ck_assert_str_eq(last(p.server, MSG_JOB_DOWN)->text, "the ranks disagree on the operation");
	ck_answer(p.a, 9, TALLY_EMISMATCH, "the ranks disagree on the operation");
}
END_TEST

static void withdraw(uint32_t conn, uint32_t rank, uint32_t pid)
{
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.rank = rank, .code = TALLY_EWORKERLOST, .text = "x", .pid = pid,
	} };

	send(conn, &m);
}

START_TEST(process_that_ends_while_joining_gives_its_place_back)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	hello(NODE_SERVER, "cpu-0");
	join(a, 1, 2, 0);
	withdraw(a, 0, 102);			/* another process: it was refused */
	withdraw(b, 0, 101);			/* another machine */
	ck_assert_uint_eq(sched_jobs(w->s), 1);
	withdraw(a, 0, 101);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
	ck_assert_uint_eq(count(a, MSG_REPLY, 1), 0);	/* nobody is there to hear it */
	join(a, 3, 2, 0);			/* its successor */
	ck_assert_uint_eq(count(a, MSG_REPLY, 3), 0);
	join(b, 1, 2, 1);
	withdraw(a, 0, 103);			/* the job is being set up: it is lost */
	ck_answer(b, 1, TALLY_EWORKERLOST, "rank 0 on machine a is gone (process 103 has ended "
		  "while it was joining)");
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(dead_agent_and_dead_server_end_the_job)
{
	struct pair p = pair_up();

	conn_closed(p.b);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	pass(RECONNECT_GRACE_MS);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
	p.b = hello(NODE_AGENT, "b");
	join(p.a, 2, 2, 0);
	join(p.b, 2, 2, 1);
	ready_as(p.server, MSG_JOB_READY, 2, last(p.server, MSG_JOB_UP)->epoch, 0);
	conn_closed(p.server);
	pass(RECONNECT_GRACE_MS);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_ESERVERLOST);
	ck_assert_str_eq(last(p.b, MSG_JOB_DOWN)->text, "server cpu-0 is gone (connection closed)");
}
END_TEST

START_TEST(away_node_hears_what_it_missed)
{
	struct pair p = pair_up();
	uint32_t again;

	barrier(p.b, 9, p.job, 1);
	conn_closed(p.b);
	barrier(p.a, 9, p.job, 0);
	leave(p.a, p.job, 0, TALLY_EWORKERLOST);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
	again = hello_from(NODE_AGENT, "b", "b", 2, "");
	ck_answer(again, 9, 0, "");
	ck_assert_int_eq(last(again, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

/* ---- tensors ---- */

START_TEST(batch_goes_to_servers_then_agents_then_ids)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	ck_assert_uint_eq(count(p.server, MSG_TENSORS, REQ_ANY), 0);
	declare_in(p.b, 2, p.job, 1, swapped, 2);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->n, 2);
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.b, MSG_TENSORS)->seq, 1);
	ck_assert_uint_eq(answer(p.a, 2)->ids[0], 1);
	ck_assert_uint_eq(answer(p.a, 2)->ids[1], 2);
	ck_assert_uint_eq(answer(p.b, 2)->ids[0], 2);
	ck_assert_uint_eq(answer(p.b, 2)->ids[1], 1);
	declare_in(p.a, 3, p.job, 0, both, 1);
	ck_answer(p.a, 3, TALLY_EEXIST, NULL);
}
END_TEST

START_TEST(tensor_mismatch_names_both_sides_everywhere)
{
	static const struct want other[] = { { "t", DTYPE_F64, 500 } };
	static const char text[] = "tensor 't': rank 0 (machine a) float32[1000], "
				   "rank 1 (machine b) float64[500]";
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, other, 1);
	ck_answer(p.a, 2, TALLY_EMISMATCH, text);
	ck_answer(p.b, 2, TALLY_EMISMATCH, text);
	declare_in(p.a, 3, p.job, 0, other, 1);		/* the name is free again */
	declare_in(p.b, 3, p.job, 1, other, 1);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.a, 3, 0, NULL);
}
END_TEST

START_TEST(late_rank_hears_of_the_mismatch)
{
	static const struct want other[] = { { "t", DTYPE_F64, 500 } };
	uint32_t a = hello(NODE_AGENT, "a");

	for (uint32_t r = 0; r < 3; r++)
		join(a, r, 3, r);
	declare_in(a, 10, 1, 0, both, 1);
	declare_in(a, 11, 1, 1, other, 1);
	declare_in(a, 12, 1, 1, other, 1);
	ck_answer(a, 12, TALLY_EMISMATCH, NULL);
	declare_in(a, 13, 1, 2, both, 2);
	ck_answer(a, 13, TALLY_EMISMATCH, answer(a, 10)->text);
	for (uint32_t r = 0; r < 3; r++)
		declare_in(a, 20 + r, 1, r, both, 2);
	ck_answer(a, 22, 0, NULL);
}
END_TEST

START_TEST(declare_deadline_names_tensors_and_ranks)
{
	struct pair p = pair_up();
	uint32_t conns[] = { p.a, p.b, p.server };

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 1);
	pass_beating(2000, conns, 3);
	ck_answer(p.a, 2, TALLY_ETIMEDOUT,
		  "tensor 'u' of job 'x': rank 1 (machine b) has not declared it");
	ck_assert_int_eq(answer(p.b, 2)->code, TALLY_ETIMEDOUT);
	declare_in(p.a, 3, p.job, 0, both, 2);		/* all was taken back */
	declare_in(p.b, 3, p.job, 1, both, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.b, 3, 0, NULL);
}
END_TEST

START_TEST(declare_is_all_or_nothing)
{
	static const struct want twice[] = { { "v", DTYPE_F32, 1 }, { "v", DTYPE_F32, 1 } };
	struct pair p = pair_declared();

	declare_in(p.a, 3, p.job, 0, twice, 2);
	ck_answer(p.a, 3, TALLY_EINVAL, NULL);
	declare_in(p.a, 4, p.job, 0, twice, 1);
	declare_in(p.b, 4, p.job, 1, twice, 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->seq, 2);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->ids[0], 3);
}
END_TEST

START_TEST(batches_cut_differently_go_together)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, &both[0], 1);
	ck_assert_uint_eq(count(p.server, MSG_TENSORS, REQ_ANY), 0);
	declare_in(p.b, 3, p.job, 1, &both[1], 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->n, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.b, 2, 0, NULL);
	ck_answer(p.b, 3, 0, NULL);
}
END_TEST

START_TEST(server_without_room_takes_the_batch_back)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, TALLY_EQUOTA);
	ck_answer(p.a, 2, TALLY_EQUOTA, "server cpu-0: memory is full");
	ck_answer(p.b, 2, TALLY_EQUOTA, NULL);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);	/* numbers have no gaps */
	ck_assert_uint_eq(last(p.a, MSG_FORGET)->seq, 2);
	ck_assert_uint_eq(last(p.server, MSG_FORGET)->n, 2);
}
END_TEST

START_TEST(silent_server_fails_the_batch_by_name)
{
	struct pair p = pair_up();
	uint32_t conns[] = { p.a, p.b, p.server };

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 2);
	pass_beating(2000, conns, 3);
	ck_answer(p.a, 2, TALLY_ETIMEDOUT, "job 'x' waits for server cpu-0");
	ck_answer(p.b, 2, TALLY_ETIMEDOUT, NULL);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.b, MSG_FORGET)->seq, 2);
}
END_TEST

START_TEST(undeclare_forgets_when_all_have)
{
	static const uint32_t ids[] = { 1, 2 }, none[] = { 77 };
	struct pair p = pair_declared();

	ids_as(p.a, MSG_UNDECLARE, 3, p.job, 0, ids, 2);
	ids_as(p.a, MSG_UNDECLARE, 4, p.job, 0, ids, 1);
	ck_answer(p.a, 4, TALLY_EEXIST, NULL);
	ids_as(p.a, MSG_UNDECLARE, 5, p.job, 0, none, 1);
	ck_answer(p.a, 5, TALLY_ENOENT, NULL);
	ck_assert_uint_eq(count(p.server, MSG_FORGET, REQ_ANY), 0);
	ids_as(p.b, MSG_UNDECLARE, 3, p.job, 1, ids, 2);
	ck_answer(p.a, 3, 0, "");
	ck_answer(p.b, 3, 0, "");
	ck_assert_uint_eq(last(p.server, MSG_FORGET)->seq, 2);
	declare_in(p.a, 6, p.job, 0, both, 1);
	declare_in(p.b, 6, p.job, 1, both, 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->ids[0], 3);	/* never reused */
}
END_TEST

/* ---- barriers, reports, hostile words ---- */

START_TEST(barrier_opens_for_all_or_names_who_is_missing)
{
	struct pair p = pair_up();
	uint32_t conns[] = { p.a, p.b, p.server };

	barrier(p.a, 2, p.job, 0);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 2), 0);
	barrier(p.b, 2, p.job, 1);
	ck_answer(p.a, 2, 0, "");
	ck_answer(p.b, 2, 0, "");
	barrier(p.b, 3, p.job, 1);
	barrier(p.b, 4, p.job, 1);
	ck_answer(p.b, 4, TALLY_EEXIST, NULL);
	pass_beating(2000, conns, 3);
	ck_answer(p.b, 3, TALLY_ETIMEDOUT, "barrier 1 of job 'x' waits for rank 0 (machine a)");
}
END_TEST

START_TEST(report_says_what_is_waited_for)
{
	struct pair p = pair_up();
	uint32_t cli = conn_up();

	query(cli);
	ck_assert_uint_eq(last(cli, MSG_REPORT)->n, 3);
	ck_assert_uint_eq(last(cli, MSG_REPORT)->nmachines, 1);
	ck_assert_str_eq(last(cli, MSG_REPORT)->name, "active");
	declare_in(p.a, 2, p.job, 0, both, 1);
	query(cli);
	ck_assert_uint_eq(last(cli, MSG_REPORT)->nservers, 1);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "rank 1 (machine b)");
}
END_TEST

START_TEST(nonsense_is_refused_and_harms_nobody)
{
	struct pair p = pair_up();

	barrier(p.a, 2, 99, 0);
	ck_answer(p.a, 2, TALLY_ENOENT, "there is no job number 99");
	barrier(p.a, 3, p.job, 1);
	ck_answer(p.a, 3, TALLY_ENOENT, "rank 1 of job 'x' is not on machine a");
	declare_in(p.a, 4, p.job, UINT32_MAX, both, 2);
	ck_answer(p.a, 4, TALLY_ENOENT, NULL);
	declare_in(p.a, 5, p.job, 0, both, 0);
	ck_answer(p.a, 5, TALLY_EINVAL, NULL);
	leave(p.a, p.job, 1, -1);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 7, 0);
	ready_as(p.server, MSG_JOB_READY, p.job, 7, 0);
	ck_assert_uint_eq(sched_counters(w->s)->strays, 3);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
}
END_TEST

START_TEST(without_a_disk_no_number_is_handed_out)
{
	uint32_t a;

	sched_free(w->s);
	w->disk = TALLY_EIO;
	world_open(w->saved, 0, "");
	a = hello(NODE_AGENT, "a");
	ck_assert_int_eq(last(a, MSG_REPLY)->code, TALLY_EIO);
	w->disk = 0;
	pass(2000);
	a = hello(NODE_AGENT, "a");
	join(a, 1, 1, 0);
	ck_answer(a, 1, 0, "");
}
END_TEST

/* ---- restart ---- */

static void job_held(uint32_t conn, uint32_t job, uint64_t epoch)
{
	static const uint32_t ranks[] = { 0, 1 };
	static const struct msg_machine machines[] = {
		{ .name = "a", .machine = "a", .nranks = 1, .ranks = &ranks[0] },
		{ .name = "b", .machine = "b", .nranks = 1, .ranks = &ranks[1] },
	};
	static const struct msg_server server = {
		.name = "cpu-0", .machine = "cpu-0", .shm_path = "", .weight = UINT32_MAX,
	};
	struct msg m = { .type = MSG_JOB_HELD, .job_up = {
		.job = job, .name = "x", .world = 2, .epoch = epoch,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .nmachines = 2, .machines = machines,
		.nservers = 1, .servers = &server,
	} };

	send(conn, &m);
}

static void tensors_held(uint32_t conn, uint32_t job, uint64_t seq, uint32_t id,
			 const struct want *t)
{
	struct msg_tensor one = {
		.id = id, .name = t->name, .dtype = t->dtype, .ndims = 1, .dims = &t->count,
		.count = t->count,
	};
	struct msg m = { .type = MSG_TENSORS_HELD, .tensors = {
		.job = job, .seq = seq, .ntensors = 1, .tensors = &one,
	} };

	send(conn, &m);
}

START_TEST(restarted_scheduler_takes_held_jobs_back)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	ck_assert(sched_recovering(w->s));
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	p.server = hello(NODE_SERVER, "cpu-0");
	job_held(p.a, p.job, epoch);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	tensors_held(p.a, p.job, 2, 2, &both[1]);
	job_held(p.b, p.job, epoch);
	tensors_held(p.b, p.job, 1, 1, &both[0]);
	declare_in(p.b, 8, p.job, 1, both, 2);		/* never heard the answer */
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(last(p.b, MSG_TENSORS)->seq, 2);	/* it was behind */
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 8), 1);
	barrier(p.a, 9, p.job, 0);
	barrier(p.b, 9, p.job, 1);
	ck_answer(p.a, 9, 0, "");
	join(p.a, 10, 2, 0);
	ck_answer(p.a, 10, TALLY_EEXIST, NULL);
	ck_assert_uint_ge(sched_epoch(w->s), epoch);
}
END_TEST

START_TEST(job_that_ends_during_recovery_is_told_to_the_late)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.b = hello(NODE_AGENT, "b");
	job_held(p.b, p.job, epoch);
	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	p.a = hello(NODE_AGENT, "a");
	job_held(p.a, p.job, epoch);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "rank 1 on machine b is gone (process ended)");
	pass_beating(5000, (uint32_t[]){ p.a, p.b }, 2);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(held_job_without_all_its_agents_is_over)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.a = hello(NODE_AGENT, "a");
	p.server = hello(NODE_SERVER, "cpu-0");
	job_held(p.a, p.job, epoch);
	pass_beating(5000, (uint32_t[]){ p.a, p.server }, 2);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "machine b did not come back after the scheduler's restart");
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	p.b = hello(NODE_AGENT, "b");
	job_held(p.b, p.job, epoch);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_ESHUTDOWN);
	join(p.a, 4, 1, 0);
	ck_assert_uint_gt(answer(p.a, 4)->ids[0], p.job);	/* never reused */
	ck_assert_uint_gt(last(p.a, MSG_JOB_UP)->epoch, epoch);
}
END_TEST

START_TEST(server_hears_of_a_job_that_nobody_holds)
{
	struct pair p = pair_up();

	ready_as(p.server, MSG_JOB_READY, p.job, last(p.server, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);
	restart(5000);
	p.server = hello(NODE_SERVER, "cpu-0");
	ready_as(p.server, MSG_JOB_READY, p.job, 1, 0);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);	/* agents may yet come */
	pass_beating(5000, (uint32_t[]){ p.server }, 1);
	ready_as(p.server, MSG_JOB_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.server, MSG_JOB_DOWN)->job, p.job);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_ESHUTDOWN);
}
END_TEST

START_TEST(other_clusters_jobs_are_refused)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "elsewhere");
	ck_assert_uint_gt(last(p.a, MSG_WELCOME)->node, 0);
	job_held(p.a, p.job, epoch);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EAUTH);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(epoch_seen_by_a_node_is_never_undercut)
{
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = 1, .version_max = 1, .kind = NODE_AGENT, .name = "a",
		.machine = "m", .secret = "", .shm_path = "", .epoch_seen = 123456,
	} };
	uint32_t c = conn_up();

	send(c, &m);
	join(c, 1, 1, 0);
	ck_assert_uint_eq(last(c, MSG_JOB_UP)->epoch, 123457);
	ck_assert_uint_ge(w->saved.epoch, 123457);
}
END_TEST

/* ---- anything, in any order ---- */

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
		barrier(conn, req, job, rank);
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
			barrier(conns[rank], next++, p.job, rank);
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

int main(void)
{
	Suite *suite = suite_create("sched_core");
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, hello_gets_number_and_key);
	tcase_add_test(t, living_name_is_not_given_twice);
	tcase_add_test(t, returning_instance_keeps_its_number);
	tcase_add_test(t, new_process_takes_the_name_of_a_closed_one);
	tcase_add_test(t, silence_ends_the_lease);
	tcase_add_test(t, strangers_are_turned_away);
	tcase_add_test(t, secret_is_asked_for);
	tcase_add_test(t, job_comes_up_servers_first);
	tcase_add_test(t, one_machine_needs_no_server);
	tcase_add_test(t, job_waits_for_a_server_and_says_so);
	tcase_add_test(t, world_mismatch_reaches_every_rank);
	tcase_add_test(t, segments_divide_chunks);
	tcase_add_test(t, chunk_wishes_must_agree);
	tcase_add_test(t, second_process_of_a_rank_is_refused_alone);
	tcase_add_test(t, server_that_is_full_fails_the_job);
	tcase_add_test(t, server_that_is_silent_is_named);
	tcase_add_test(t, last_rank_that_leaves_ends_the_job);
	tcase_add_test(t, lost_rank_is_named_to_everybody);
	tcase_add_test(t, what_an_agent_found_is_told_as_it_is);
	tcase_add_test(t, process_that_ends_while_joining_gives_its_place_back);
	tcase_add_test(t, dead_agent_and_dead_server_end_the_job);
	tcase_add_test(t, away_node_hears_what_it_missed);
	tcase_add_test(t, batch_goes_to_servers_then_agents_then_ids);
	tcase_add_test(t, tensor_mismatch_names_both_sides_everywhere);
	tcase_add_test(t, late_rank_hears_of_the_mismatch);
	tcase_add_test(t, declare_deadline_names_tensors_and_ranks);
	tcase_add_test(t, declare_is_all_or_nothing);
	tcase_add_test(t, batches_cut_differently_go_together);
	tcase_add_test(t, server_without_room_takes_the_batch_back);
	tcase_add_test(t, silent_server_fails_the_batch_by_name);
	tcase_add_test(t, undeclare_forgets_when_all_have);
	tcase_add_test(t, barrier_opens_for_all_or_names_who_is_missing);
	tcase_add_test(t, report_says_what_is_waited_for);
	tcase_add_test(t, nonsense_is_refused_and_harms_nobody);
	tcase_add_test(t, without_a_disk_no_number_is_handed_out);
	tcase_add_test(t, restarted_scheduler_takes_held_jobs_back);
	tcase_add_test(t, job_that_ends_during_recovery_is_told_to_the_late);
	tcase_add_test(t, held_job_without_all_its_agents_is_over);
	tcase_add_test(t, server_hears_of_a_job_that_nobody_holds);
	tcase_add_test(t, other_clusters_jobs_are_refused);
	tcase_add_test(t, epoch_seen_by_a_node_is_never_undercut);
	tcase_add_loop_test(t, every_request_is_answered_once, 0, 10);
	tcase_add_loop_test(t, random_events_break_nothing, 0, 20);
	tcase_add_loop_test(t, missing_memory_breaks_nothing, 0, 10);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
