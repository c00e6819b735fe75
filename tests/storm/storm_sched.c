// SPDX-License-Identifier: Apache-2.0
/*
 * storm_sched.c - the scheduler's core, and peers that say anything.
 *
 * Three agents' names and two servers', on connections that open and close; processes that claim
 * each other's names, numbers and machines; ranks that join and leave where they like; a CLI; a
 * disk and a heap that fail; time that passes; the scheduler started again.  Between them are
 * honest answers, so that jobs come up, train, lose machines and recover.  The core's invariants
 * are checked after each step, and what it sends has to be fit to be sent.
 */
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/sched_core.h"
#include "tests/storm/storm.h"

#define CONNS		10u
#define STEPS		220u
#define NAMES		5u
#define AGENTS		3u		/* of the names; the others are servers' */
#define CLOSING_MAX	64u

struct peer {
	bool open, node, cli;
	uint32_t name;
};

struct world {
	struct storm *storm;
	struct sched *s;
	mono_t now;
	struct peer peer[CONNS];
	struct sched_ids saved;
	bool disk_fails;
	uint32_t fail_every, allocs;
	long blocks;
	uint32_t size, on_loss;		/* of the jobs that honest ranks join */
	uint64_t req;
	uint32_t grace_ms;
};

static const char *const names[NAMES] = { "a", "b", "c", "s", "t" };

static void *get(void *ctx, size_t bytes)
{
	struct world *w = ctx;

	if (w->fail_every && ++w->allocs % w->fail_every == 0)
		return NULL;
	w->blocks++;
	return calloc(1, bytes);
}

static void put(void *ctx, void *p)
{
	struct world *w = ctx;

	w->blocks -= p != NULL;
	free(p);
}

/* ---- steps ---- */

static void trace(const struct world *w, const char *what, uint32_t conn, const struct msg *m)
{
	if (!w->storm->trace)
		return;
	printf("%9.3f %s %u", (double)w->now / 1e9, what, conn);
	if (m) {
		const struct msg_shape *shape = msg_shape_of(m->type);

		printf(" %s", msg_type_name(m->type));
		for (uint32_t i = 0; i < shape->nrows; i++) {
			const struct msg_row *row = &shape->rows[i];
			uint64_t v = 0;

			if (row->kind == KIND_U32 || row->kind == KIND_U64)
				memcpy(&v, (const char *)&m->reply + row->at,
				       row->kind == KIND_U32 ? 4 : 8);
			if (v)
				printf(" %s %llu", row->name, (unsigned long long)v);
			if (row->kind == KIND_STR && msg_row_ptr(row, &m->reply))
				printf(" %s '%.60s'", row->name,
				       (const char *)msg_row_ptr(row, &m->reply));
			if (row->kind == KIND_SUBS || row->kind == KIND_U32S)
				printf(" %s[%u]", row->name, msg_row_count(row, &m->reply));
		}
	}
	printf("\n");
	fflush(stdout);
}

static void step(struct world *w, struct sched_event ev)
{
	uint32_t closing[CLOSING_MAX], n = 0, bytes;
	struct sched_actions todo;
	bool saves = false;
	struct err e;

	ev.now = w->now;
	sched_step(w->s, &ev, &todo);
	for (const struct sched_action *a = todo.head; a; a = a->next) {
		if (a->type == SCHED_DO_SEND) {
			trace(w, "  ->", a->conn, a->msg);
			if (msg_encode_size(a->msg, &bytes, &e)) {
				fprintf(stderr, "cannot be sent: %s: %s\n",
					msg_type_name(a->msg->type), e.text);
				abort();
			}
			storm_see(w->storm, a->conn, a->msg);
		} else if (a->type == SCHED_DO_CLOSE) {
			ASSERT(n < CLOSING_MAX);
			closing[n++] = a->conn;
		} else if (a->type == SCHED_DO_SAVE) {
			saves = true;
			if (!w->disk_fails)
				w->saved = a->ids;
		} else if (a->type == SCHED_DO_LOG && w->storm->trace) {
			printf("            %s\n", a->text);
		}
	}
	sched_check(w->s);
	if (saves)
		step(w, (struct sched_event){ .type = SCHED_EV_SAVED,
					      .code = w->disk_fails ? TALLY_EPROTO : 0 });
	for (uint32_t i = 0; i < n; i++) {
		if (!w->peer[closing[i]].open)
			continue;
		trace(w, "closed", closing[i], NULL);
		w->peer[closing[i]] = (struct peer){ .open = false };
		step(w, (struct sched_event){ .type = SCHED_EV_CLOSED, .conn = closing[i] });
	}
}

static void say(struct world *w, uint32_t conn, const struct msg *m)
{
	uint32_t bytes;

	if (!w->peer[conn].open || msg_encode_size(m, &bytes, NULL))
		return;
	trace(w, "<-", conn, m);
	step(w, (struct sched_event){ .type = SCHED_EV_MSG, .conn = conn, .msg = m });
}

static void pass(struct world *w, uint64_t ms)
{
	mono_t until = w->now + mono_ms(ms);

	while (sched_next(w->s) <= until) {
		w->now = MAX(w->now + 1, sched_next(w->s));
		step(w, (struct sched_event){ .type = SCHED_EV_TIMER });
	}
	w->now = MAX(w->now, until);
}

static void open_world(struct world *w, uint32_t recover_ms)
{
	const struct mem_ops mem = { .ctx = w, .alloc = get, .free = put };
	const struct sched_config c = {
		.cluster = "one cluster", .key_seed = "seed of the keys", .ids = w->saved,
		.secret = "", .version = "storm", .heartbeat_ms = HEARTBEAT_MS,
		.recover_ms = recover_ms, .agent_grace_ms = w->grace_ms,
	};
	uint32_t fails = w->fail_every;

	w->fail_every = 0;
	w->s = sched_new(&mem, &c, w->now);
	ASSERT(w->s);
	w->fail_every = fails;
	step(w, (struct sched_event){ .type = SCHED_EV_TIMER });
}

/* ---- what peers do ---- */

static uint32_t any_conn(struct world *w)
{
	uint32_t from = storm_below(w->storm, CONNS);

	for (uint32_t i = 0; i < CONNS; i++)
		if (w->peer[(from + i) % CONNS].open)
			return (from + i) % CONNS;
	return from;
}

static void hello(struct world *w, uint32_t conn)
{
	static const struct msg_addr addr = { "127.0.0.1", 7471, 1000000000 };
	struct storm *st = w->storm;
	uint32_t i = storm_below(st, NAMES + 1);
	bool cli = i == NAMES;
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION,
		.kind = cli ? NODE_CLI : i >= AGENTS ? NODE_SERVER : NODE_AGENT,
		.name = cli ? "cli" : names[i], .machine = cli ? "" : names[i],
		.instance = { (uint8_t)(1 + 10 * i) }, .secret = "", .shm_path = "",
		.naddrs = 1, .addrs = &addr, .engines = 1, .adder_bytes_per_s = 1000000000,
		.memory_bytes = 1u << 30,
	} };

	if (storm_one_in(st, 3))		/* another process */
		m.hello.instance[0] += (uint8_t)(1 + storm_below(st, 2));
	if (storm_one_in(st, 8))		/* on another machine */
		m.hello.machine = names[storm_below(st, NAMES)];
	if (storm_one_in(st, 2)) {
		memcpy(m.hello.cluster, "one cluster", 11);
		m.hello.node = storm_one_in(st, 4) ? storm_below(st, 8) : 1 + i;
		m.hello.epoch_seen = storm_below(st, 3);
	}
	if (storm_one_in(st, 12) && !storm_make(st, MSG_HELLO, &m))
		return;
	w->peer[conn].node = m.hello.kind != NODE_CLI;
	w->peer[conn].cli = !w->peer[conn].node;
	w->peer[conn].name = i;
	say(w, conn, &m);
}

static void connect_one(struct world *w)
{
	for (uint32_t i = 0; i < CONNS; i++) {
		if (w->peer[i].open)
			continue;
		w->peer[i].open = true;
		trace(w, "opened", i, NULL);
		step(w, (struct sched_event){ .type = SCHED_EV_UP, .conn = i });
		if (!storm_one_in(w->storm, 20))
			hello(w, i);
		return;
	}
}

static void close_one(struct world *w)
{
	uint32_t conn = any_conn(w);

	if (!w->peer[conn].open)
		return;
	trace(w, "closes", conn, NULL);
	w->peer[conn] = (struct peer){ .open = false };
	step(w, (struct sched_event){ .type = SCHED_EV_CLOSED, .conn = conn });
}

static void join(struct world *w, uint32_t conn)
{
	struct storm *st = w->storm;
	uint32_t rank = storm_one_in(st, 4) ? storm_below(st, w->size) :
			(w->peer[conn].name + 3 * storm_below(st, 2)) % w->size;
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = ++w->req, .job = storm_one_in(st, 8) ? "y" : "x", .world = w->size,
		.rank = rank, .pid = 100 + rank, .uid = 1000, .timeout_ms = 20000,
		.on_loss = w->on_loss,
	} };

	if (storm_one_in(st, 4))
		m.rank_join.back = (uint32_t)st->pool[1][storm_below(st, 2)];
	say(w, conn, &m);
}

/* Ranks of the usual machines, where these are. */
static void join_all(struct world *w)
{
	for (uint32_t i = 0; i < CONNS; i++) {
		if (!w->peer[i].open || !w->peer[i].node || w->peer[i].name >= AGENTS)
			continue;
		join(w, i);
		join(w, i);
	}
}

/* As an honest node answers what it heard last. */
static void answer(struct world *w, uint32_t conn)
{
	struct msg m, r = { .type = MSG_EPOCH_READY, .ready = { .text = "" } };

	if (!storm_last(w->storm, conn, &m))
		return;
	switch (m.type) {
	case MSG_JOB_UP:
		r.type = w->peer[conn].name < AGENTS ? MSG_EPOCH_READY : MSG_JOB_READY;
		r.ready.job = m.job_up.job;
		r.ready.seq = r.ready.epoch = m.job_up.epoch;
		r.ready.log = m.job_up.seq;
		break;
	case MSG_TENSORS:
		r.type = MSG_TENSORS_READY;
		r.ready.job = m.tensors.job;
		r.ready.seq = m.tensors.seq;
		break;
	case MSG_EPOCH:
		r.ready.job = m.epoch.job;
		r.ready.seq = m.epoch.epoch;
		r.ready.log = m.epoch.seq;
		break;
	case MSG_HEARD:
		r = m;
		break;
	case MSG_JOB_DOWN:
		r = m;
		break;
	default:
		return;
	}
	say(w, conn, &r);
}

static void answer_all(struct world *w)
{
	for (uint32_t i = 0; i < CONNS; i++)
		if (w->peer[i].open && w->peer[i].node)
			answer(w, i);
}

static void declare(struct world *w, uint32_t conn)
{
	static const struct msg_tensor t[] = {
		{ .name = "t", .dtype = DTYPE_F32, .count = 10000 },
		{ .name = "u", .dtype = DTYPE_F32, .count = 10 },
	};
	struct storm *st = w->storm;
	struct msg m = { .type = MSG_DECLARE, .declare = {
		.req = ++w->req, .job = (uint32_t)st->pool[1][storm_below(st, 2)],
		.timeout_ms = 5000, .ntensors = 1 + storm_below(st, 2), .tensors = t,
	} };

	for (uint32_t r = 0; r < w->size; r++) {
		m.declare.rank = r;
		m.declare.req = ++w->req;
		say(w, conn, &m);
	}
}

static void barrier(struct world *w, uint32_t conn)
{
	struct storm *st = w->storm;
	struct msg m = { .type = MSG_BARRIER, .barrier = {
		.job = (uint32_t)st->pool[1][storm_below(st, 2)], .timeout_ms = 5000,
		.generation = 1 + storm_below(st, 2), .grow = storm_below(st, 2),
	} };

	for (uint32_t r = 0; r < w->size; r++) {
		m.barrier.rank = r;
		m.barrier.req = ++w->req;
		say(w, conn, &m);
	}
}

/* An agent that was started again, or tells a scheduler that was. */
static void tell(struct world *w, uint32_t conn)
{
	struct storm *st = w->storm;
	struct msg m, last = { .type = MSG_EPOCH_READY, .ready = { .text = "" } };
	uint64_t *job = &st->pool[1][storm_below(st, 2)];

	for (uint32_t r = 0; r < w->size && storm_one_in(st, 2); r++) {
		m = (struct msg){ .type = MSG_RANK_ALIVE, .rank_alive = { (uint32_t)*job, r } };
		say(w, conn, &m);
	}
	for (uint32_t i = 0; i < STORM_SEEN; i++) {
		if (!storm_seen(st, i, &m))
			break;
		if (m.type != MSG_JOB_UP && m.type != MSG_TENSORS)
			continue;
		m.type = m.type == MSG_JOB_UP ? MSG_JOB_HELD : MSG_TENSORS_HELD;
		last.ready.job = m.type == MSG_JOB_HELD ? m.job_up.job : m.tensors.job;
		last.ready.seq = m.type == MSG_JOB_HELD ? m.job_up.epoch : last.ready.seq;
		say(w, conn, &m);
		storm_reset(st);
	}
	if (storm_one_in(st, 2))
		say(w, conn, &last);
}

/* A rank detaches, or has ended; its agent says so, or another one. */
static void leave(struct world *w, uint32_t conn)
{
	struct storm *st = w->storm;
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = (uint32_t)st->pool[1][storm_below(st, 2)], .rank = storm_below(st, w->size),
		.code = storm_one_in(st, 3) ? 0 : TALLY_EWORKERLOST, .text = "",
	} };

	say(w, conn, &m);
}

static void drain(struct world *w, uint32_t conn)
{
	const struct msg m = { .type = MSG_DRAIN, .drain = {
		.name = names[AGENTS + storm_below(w->storm, NAMES - AGENTS)],
		.undo = storm_below(w->storm, 2),
	} };

	say(w, conn, &m);
}

static void beat_all(struct world *w)
{
	const struct msg m = { .type = MSG_HEARTBEAT, .heartbeat = { .seq = 1, .note = "" } };

	for (uint32_t i = 0; i < CONNS; i++)
		if (w->peer[i].open && w->peer[i].node)
			say(w, i, &m);
}

/* Whatever a text or a report follows is followed. */
static void query(struct world *w, uint32_t conn)
{
	const struct msg m = { .type = MSG_QUERY, .query = {
		.what = QUERY_NODES | QUERY_JOBS | QUERY_TENSORS | QUERY_STUCK, .job = "",
	} };

	say(w, conn, &m);
}

static void count(struct world *w)
{
	const struct sched_counters *c = sched_counters(w->s);

	w->storm->messages += c->messages;
	w->storm->good += c->jobs_started;
	w->storm->repairs += c->repairs + c->rebalances;
}

static void restart(struct world *w)
{
	w->storm->resumed += sched_recovering(w->s);
	count(w);
	sched_free(w->s);
	ASSERT(!w->blocks);
	for (uint32_t i = 0; i < CONNS; i++)
		w->peer[i] = (struct peer){ .open = false };
	w->disk_fails = false;
	if (w->storm->trace)
		printf("---- the scheduler is started again\n");
	open_world(w, storm_one_in(w->storm, 5) ? 0 : 5000);
	for (uint32_t i = 0; i < 4; i++)
		connect_one(w);
}

static void anything(struct world *w, uint32_t conn)
{
	struct msg m;

	if (storm_any(w->storm, &m))
		say(w, conn, &m);
}

static void turn(struct world *w)
{
	struct storm *st = w->storm;
	uint32_t conn = any_conn(w), what = storm_below(st, 64);

	if (!w->peer[conn].open || what < 4)
		connect_one(w);
	else if (what < 6)
		close_one(w);
	else if (what < 9)
		join_all(w);
	else if (what < 17)
		answer_all(w);
	else if (what < 19)
		declare(w, conn);
	else if (what < 20)
		barrier(w, conn);
	else if (what < 24)
		beat_all(w);
	else if (what < 26)
		query(w, conn);
	else if (what < 30)
		answer(w, conn);
	else if (what < 31)
		pass(w, storm_below(st, 8000));
	else if (what < 36)
		pass(w, storm_below(st, 600));
	else if (what == 36 && storm_one_in(st, 3))
		restart(w);
	else if (what == 37 && storm_one_in(st, 4))
		w->disk_fails = !w->disk_fails;
	else if (what < 41 && what > 38)
		tell(w, conn);
	else if (what == 41)
		leave(w, conn);
	else if (what == 42)
		drain(w, conn);
	else if (what == 38 && storm_one_in(st, 4))
		w->fail_every = w->fail_every ? 0 : 3 + storm_below(st, 60);
	else
		anything(w, conn);
}

void storm_sched(struct storm *st)
{
	struct world *w = calloc(1, sizeof(*w));

	ASSERT(w);
	w->storm = st;
	w->now = NS_PER_SEC;
	w->size = 1 + storm_below(st, 4);
	w->on_loss = storm_below(st, ON_LOSS_END);
	w->grace_ms = storm_one_in(st, 3) ? 0 : 5000;
	open_world(w, 0);
	for (uint32_t i = 0; i < CONNS - 2; i++)
		connect_one(w);
	for (uint32_t i = 0; i < STEPS && !st->over; i++) {
		turn(w);
		storm_reset(st);
	}
	w->fail_every = 0;
	w->disk_fails = false;
	connect_one(w);
	query(w, any_conn(w));
	pass(w, 60000);
	count(w);
	sched_free(w->s);
	ASSERT(!w->blocks);
	free(w);
}
