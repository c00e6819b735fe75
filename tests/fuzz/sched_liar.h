/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_liar.h - the scheduler's core among nodes that lie (liar.h).
 *
 * Some connections say hello as agents, servers and CLIs, some of them under each other's names,
 * machines and processes; each then sends whatever the liar makes, or, so that deep states are
 * reached, what an honest node would say next.  Connections break, time passes, the disk fails,
 * memory is short, the scheduler is started again.  After each step the core's invariants hold,
 * and all that it sends can be encoded.
 */
#ifndef TALLY_TESTS_SCHED_LIAR_H
#define TALLY_TESTS_SCHED_LIAR_H

#include "common/place/place.h"
#include "scheduler/sched_core.h"
#include "tests/fuzz/liar.h"

#define CONNS		10u
#define TODO_MAX	64u

static const uint32_t node_types[] = {
	MSG_HELLO, MSG_HEARTBEAT, MSG_RANK_JOIN, MSG_RANK_LEAVE, MSG_JOB_READY, MSG_JOB_DOWN,
	MSG_DECLARE, MSG_TENSORS_READY, MSG_UNDECLARE, MSG_BARRIER, MSG_QUERY, MSG_JOB_HELD,
	MSG_TENSORS_HELD, MSG_EPOCH_READY, MSG_DRAIN, MSG_STUCK, MSG_JOB_END, MSG_HEARD,
	MSG_RANK_ALIVE, MSG_REPLY,
};

struct liar_world {
	struct sched *s;
	mono_t now;
	struct sched_ids saved;
	bool open[CONNS];
	uint32_t kind[CONNS];		/* enum node_kind of its honest hello; 0: none */
	uint8_t instance[CONNS];	/* of that hello's process */
	uint8_t up[CONNS][LIAR_WIRE];	/* the JOB_UP that it heard last */
	uint32_t up_bytes[CONNS];
	uint32_t fail_every, allocs;
	long blocks;
	/* what honest nodes answer next */
	struct { uint32_t conn; enum msg_type type; struct msg_ready ready; } todo[TODO_MAX];
	uint32_t ntodo;
	uint32_t job[4], tensor[4], njobs, ntensors;
	uint64_t req;
};

static struct liar_world lw;

static inline void *lw_alloc(void *ctx, size_t bytes)
{
	struct liar_world *x = ctx;

	if (x->fail_every && ++x->allocs % x->fail_every == 0)
		return NULL;
	x->blocks++;
	return calloc(1, bytes);
}

static inline void lw_free(void *ctx, void *p)
{
	((struct liar_world *)ctx)->blocks -= p != NULL;
	free(p);
}

static inline void answer_later(uint32_t conn, enum msg_type type, struct msg_ready ready)
{
	if (lw.ntodo == TODO_MAX)
		return;
	ready.text = "";
	lw.todo[lw.ntodo].conn = conn;
	lw.todo[lw.ntodo].type = type;
	lw.todo[lw.ntodo++].ready = ready;
}

/* What the node on that connection has to answer. */
static inline void lw_hear(uint32_t conn, const struct msg *m)
{
	bool server = lw.kind[conn] == NODE_SERVER;

	liar_hear(m);
	if (m->type == MSG_JOB_UP) {
		uint32_t bytes;

		lw.job[lw.njobs++ % 4] = m->job_up.job;
		if (!msg_encode_size(m, &bytes, NULL) && bytes <= LIAR_WIRE) {
			msg_encode(m, lw.up[conn], bytes, NULL);
			lw.up_bytes[conn] = bytes;
		}
		if (server)
			answer_later(conn, MSG_JOB_READY, (struct msg_ready){
				.job = m->job_up.job, .seq = m->job_up.epoch,
				.epoch = m->job_up.epoch });
	} else if (m->type == MSG_TENSORS && server) {
		answer_later(conn, MSG_TENSORS_READY, (struct msg_ready){
			.job = m->tensors.job, .seq = m->tensors.seq });
	} else if (m->type == MSG_TENSORS && m->tensors.ntensors) {
		lw.tensor[lw.ntensors++ % 4] = m->tensors.tensors[0].id;
	} else if (m->type == MSG_EPOCH) {
		answer_later(conn, MSG_EPOCH_READY, (struct msg_ready){
			.job = m->epoch.job, .seq = m->epoch.epoch, .log = m->epoch.seq });
	} else if (m->type == MSG_JOB_END) {
		answer_later(conn, MSG_JOB_END, (struct msg_ready){
			.job = m->ready.job, .seq = m->ready.seq });
	}
}

/* LIES_TRACE=1 shows what happens. */
static inline void lw_trace(const char *what, uint32_t conn, const struct msg *m)
{
	static int wanted = -1;
	uint32_t first = m ? (uint32_t)m->reply.req : 0;	/* of many types the job */

	if (wanted < 0)
		wanted = getenv("LIES_TRACE") != NULL;
	if (wanted)
		fprintf(stderr, "%8.3f %s %u %s %u\n", (double)lw.now / NS_PER_SEC, what, conn,
			m ? msg_type_name(m->type) : "", first);
}

static inline void lw_step(struct sched_event ev)
{
	struct sched_actions todo;
	uint32_t closing[CONNS], nclosing = 0;
	struct sched_ids ids = { 0 };
	bool save = false;

	ev.now = lw.now;
	lw_trace(ev.type == SCHED_EV_MSG ? "says" : ev.type == SCHED_EV_UP ? "comes" :
		 ev.type == SCHED_EV_CLOSED ? "closes" : "time", ev.conn, ev.msg);
	sched_step(lw.s, &ev, &todo);
	for (struct sched_action *a = todo.head; a; a = a->next) {
		if (a->type == SCHED_DO_LOG)
			lw_trace(a->text, 0, NULL);
		if (a->type == SCHED_DO_SEND)
			lw_trace("  hears", a->conn, a->msg);
		if (a->type == SCHED_DO_SEND && lw.open[a->conn])
			lw_hear(a->conn, a->msg);
		if (a->type == SCHED_DO_CLOSE && lw.open[a->conn]) {
			lw.open[a->conn] = false;
			closing[nclosing++] = a->conn;
		}
		if (a->type == SCHED_DO_SAVE) {
			save = true;
			ids = a->ids;
		}
	}
	sched_check(lw.s);
	if (save) {
		int code = chance(5) ? TALLY_EIO : 0;

		lw.saved = code ? lw.saved : ids;
		lw_step((struct sched_event){ .type = SCHED_EV_SAVED, .code = code });
	}
	for (uint32_t i = 0; i < nclosing; i++)
		lw_step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = closing[i] });
}

static inline void lw_send(uint32_t conn, const struct msg *m)
{
	if (lw.open[conn])
		lw_step((struct sched_event){ .type = SCHED_EV_MSG, .conn = conn, .msg = m });
}

static inline void lw_start(uint32_t recover_ms)
{
	struct mem_ops mem = { .ctx = &lw, .alloc = lw_alloc, .free = lw_free };
	struct sched_config c = {
		.cluster = "one cluster", .key_seed = "seed", .ids = lw.saved, .secret = "",
		.version = "test", .heartbeat_ms = HEARTBEAT_MS, .recover_ms = recover_ms,
		.agent_grace_ms = chance(80) ? 3000 : 0,
	};

	lw.fail_every = 0;
	lw.s = sched_new(&mem, &c, lw.now);
	ASSERT(lw.s);
	lw_step((struct sched_event){ .type = SCHED_EV_TIMER });
}

/* ---- moves ---- */

/* Connections 0 to 3 are those of agents a and b and servers s and t, 4 a CLI's; the others are of
 * whoever says that it is one of them. */
static inline void move_hello(uint32_t conn)
{
	static const char *const names[] = { "a", "b", "s", "t", "c" };
	static const uint32_t kinds[] = {
		NODE_AGENT, NODE_AGENT, NODE_SERVER, NODE_SERVER, NODE_CLI,
	};
	const struct msg_addr addr = { "10.0.0.1", 7471, 1000000000 };
	uint32_t who = conn < ARRAY_SIZE(names) && chance(95) ? conn :
		       choose(ARRAY_SIZE(names));
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = kinds[who],
		.name = names[who], .machine = names[chance(95) ? who : choose(4)],
		.secret = "", .naddrs = 1, .addrs = &addr, .shm_path = "",
		.engines = chance(97) ? 1 : 2, .adder_bytes_per_s = 10000000000,
		.memory_bytes = 1ull << 30, .node = chance(90) ? 0 : 1 + choose(6),
	} };

	if (!lw.open[conn]) {
		lw.open[conn] = true;
		lw.kind[conn] = 0;
		lw_step((struct sched_event){ .type = SCHED_EV_UP, .conn = conn });
	}
	lw.kind[conn] = kinds[who];
	if (!lw.instance[conn] || chance(35))
		lw.instance[conn] = (uint8_t)(1 + choose(255));
	m.hello.instance[0] = lw.instance[conn];
	if (chance(50))
		memcpy(m.hello.cluster, "one cluster", 12);
	lw_send(conn, &m);
}

static inline void join_rank(uint32_t conn, uint32_t which, uint32_t rank, uint32_t back)
{
	static const char *const jobs[] = { "x", "y", "z" };
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = ++lw.req, .job = jobs[which], .world = which + 1, .rank = rank,
		.pid = 1 + choose(5), .uid = chance(95) ? 0 : 1, .timeout_ms = 1000 + choose(9000),
		.on_loss = which == 2 ? ON_LOSS_SHRINK : ON_LOSS_ERROR, .back = back,
	} };

	lw_send(conn, &m);
}

static inline void move_join(uint32_t conn)
{
	uint32_t which = choose(3);

	join_rank(conn, which, choose(which + 1), chance(30) ? lw.job[choose(4)] : 0);
}

/* An agent that was started again, or that hears a scheduler which was: what it has of the job. */
static inline void move_held(uint32_t conn)
{
	struct msg m;

	if (!lw.up_bytes[conn] || !lw.open[conn] ||
	    !through_codec(&m, lw.up[conn], lw.up_bytes[conn], MSG_JOB_HELD))
		return;
	m.type = MSG_JOB_HELD;
	lw_send(conn, &m);
	m = (struct msg){ .type = MSG_EPOCH_READY, .ready = {
		.job = m.job_up.job, .seq = m.job_up.epoch, .text = "", .log = choose(3),
	} };
	if (chance(80))
		lw_send(conn, &m);
}

static inline void move_alive(uint32_t conn)
{
	struct msg m = { .type = MSG_RANK_ALIVE, .rank_alive = {
		.job = lw.job[choose(4)], .rank = choose(3),
	} };

	lw_send(conn, &m);
}

static inline void move_barrier(uint32_t conn)
{
	struct msg m = { .type = MSG_BARRIER, .barrier = {
		.req = ++lw.req, .job = lw.job[choose(4)], .rank = choose(3), .timeout_ms = 2000,
		.generation = 1 + choose(2), .grow = choose(2),
	} };

	lw_send(conn, &m);
}

static inline void move_leave(uint32_t conn)
{
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = lw.job[choose(4)], .rank = choose(3),
		.code = chance(50) ? 0 : TALLY_EWORKERLOST, .text = "",
	} };

	lw_send(conn, &m);
}

static inline void move_declare(uint32_t conn)
{
	static const char *const names[] = { "t", "u", "v" };
	struct msg_tensor t = { .name = names[choose(3)], .dtype = DTYPE_F32,
				.count = 1 + choose(3) * 100000 };
	struct msg m = { .type = MSG_DECLARE, .declare = {
		.req = ++lw.req, .job = lw.job[choose(4)], .rank = choose(2), .timeout_ms = 2000,
		.ntensors = 1, .tensors = &t,
	} };
	uint32_t id = lw.tensor[choose(4)];

	if (chance(25)) {
		m = (struct msg){ .type = MSG_UNDECLARE, .ids = {
			.req = lw.req, .job = lw.job[choose(4)], .rank = choose(2),
			.timeout_ms = 2000, .nids = 1, .ids = &id,
		} };
		lw_send(conn, &m);
		return;
	}
	lw_send(conn, &m);
}

/* An answer that is due, if there is one. */
static inline void move_answer(void)
{
	uint32_t i;
	struct msg m;

	if (!lw.ntodo)
		return;
	i = choose(lw.ntodo);
	m = (struct msg){ .type = lw.todo[i].type };
	m.ready = lw.todo[i].ready;
	lw_send(lw.todo[i].conn, &m);
	if (lw.ntodo && chance(95))
		lw.todo[MIN(i, lw.ntodo - 1)] = lw.todo[lw.ntodo - 1], lw.ntodo--;
}

static inline void move_time(void)
{
	static const uint32_t ms[] = { 1, 20, 100, 600, 1100, 3100, 8000, 40000 };
	mono_t until = lw.now + mono_ms(ms[choose(ARRAY_SIZE(ms))]);
	bool beating = chance(70);

	for (uint32_t turns = 0; turns < 200 && sched_next(lw.s) <= until; turns++) {
		lw.now = MAX(lw.now + 1, sched_next(lw.s));
		lw_step((struct sched_event){ .type = SCHED_EV_TIMER });
		for (uint32_t c = 0; c < CONNS && beating; c++) {
			struct msg m = { .type = MSG_HEARTBEAT, .heartbeat = { .note = "" } };

			if (lw.kind[c] == NODE_AGENT || lw.kind[c] == NODE_SERVER)
				lw_send(c, &m);
		}
	}
	lw.now = MAX(lw.now, until);
}

static inline void move_close(uint32_t conn)
{
	if (!lw.open[conn])
		return;
	lw.open[conn] = false;
	lw_step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = conn });
}

static inline void move_restart(void)
{
	sched_free(lw.s);
	ASSERT(!lw.blocks);
	memset(lw.open, 0, sizeof(lw.open));
	lw.ntodo = 0;
	lw_start(chance(80) ? 5000 : 0);
	for (uint32_t c = 0; c < 5; c++)
		if (chance(85))
			move_hello(c);
	for (uint32_t c = 0; c < 2; c++)
		if (chance(80))
			move_held(c);
}

static inline void move_lie(uint32_t conn)
{
	struct msg m;

	if (lw.open[conn] && liar_make(&m, node_types, ARRAY_SIZE(node_types)))
		lw_send(conn, &m);
}

static inline void move_query(uint32_t conn)
{
	struct msg m = { .type = MSG_QUERY, .query = {
		.req = 1, .what = QUERY_NODES | QUERY_JOBS | QUERY_TENSORS | QUERY_STUCK,
		.job = "",
	} };

	lw_send(conn, &m);
}

/* percent, move */
#define MOVES(X) \
	X(6, move_hello(conn)) \
	X(12, move_join(conn)) \
	X(7, move_declare(conn)) \
	X(22, move_answer()) \
	X(5, move_held(conn)) \
	X(3, move_alive(conn)) \
	X(4, move_barrier(conn)) \
	X(2, move_leave(conn)) \
	X(20, move_lie(conn)) \
	X(9, move_time()) \
	X(5, move_close(conn)) \
	X(2, move_query(conn)) \
	X(1, move_memory()) \
	X(1, move_restart())

static inline void move_memory(void)
{
	lw.fail_every = chance(70) ? 0 : 2 + choose(40);
}

static inline void lw_move(void)
{
	uint32_t what = choose(100), conn = chance(80) ? choose(4) : choose(CONNS);

#define X(percent, move) \
	if (what < (percent)) { \
		move; \
		return; \
	} \
	what -= (percent);
	MOVES(X)
#undef X
}

/* A job of two machines that trains, unless somebody lies on the way. */
static inline void lw_train(void)
{
	uint32_t which = 1 + choose(2);

	for (uint32_t r = 0; r <= which; r++)
		join_rank(r ? 1 : 0, which, r, 0);
	while (lw.ntodo && chance(97))
		move_answer();
	for (uint32_t i = choose(12); i > 0; i--)
		move_declare(choose(2));
	while (lw.ntodo && chance(97))
		move_answer();
}

/* One life, of so many moves at most, or as many as the bytes last for. */
static inline void sched_liar_run(uint32_t moves)
{
	memset(&lw, 0, sizeof(lw));
	lw.now = NS_PER_SEC;
	lw_start(0);
	for (uint32_t c = 0; c < 5; c++)
		move_hello(c);
	if (chance(85))
		lw_train();
	while (moves-- && !liar_is_done())
		lw_move();
	for (uint32_t c = 0; c < CONNS; c++)
		move_query(c);
	sched_free(lw.s);
	ASSERT(!lw.blocks);
}

#endif
