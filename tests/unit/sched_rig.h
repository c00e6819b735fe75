/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_rig.h - what the tests of the scheduler's core stand on: a world,
 * driven by scripted events.
 *
 * A world is a core, a clock and everything it has sent, which must be fit to be
 * sent.  SAVE is answered at once, unless the disk is broken.  Invariants are
 * checked after each step.
 */
#ifndef TALLY_TESTS_SCHED_RIG_H
#define TALLY_TESTS_SCHED_RIG_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/place/place.h"
#include "scheduler/sched_core.h"

#ifndef RIG_AGENT_GRACE_MS
#define RIG_AGENT_GRACE_MS 0
#endif
#define RECORDS		16384
#define IDS		64
#define TELLS		64
#define REQ_ANY		UINT64_MAX

static uint32_t window_bytes;			/* of the scheduler that starts; 0: by the cards */

struct record {
	uint32_t conn;
	enum msg_type type;
	uint64_t req, seq, epoch, age_ms, job_age_ms, silent_ms;
	int code;
	uint32_t job, user, rank, node, n, ids[IDS];
	uint32_t ngone, gone[4], nleft, left[4], rounds[2];
	double measured_s;		/* REPORT: of its first job */
	char slow[ERR_TEXT_MAX + 1];	/* REPORT: the note of a node that is slow */
	uint32_t nplaced, nmachines, nservers, weight[8], pace[8], chunk, seg, window;
	uint32_t server[8];		/* their numbers, of a JOB_UP */
	uint32_t nlet_go;		/* servers that are gone and named as living */
	uint64_t key;			/* a link key's; 0: it is all zeros */
	int32_t priority;		/* of the first of TENSORS */
	char name[64], text[ERR_TEXT_MAX + 1];
};

struct world {
	struct sched *s;
	mono_t now;
	uint32_t conns, n, closes[CTL_CONNS_MAX];
	int disk;			/* code of each SAVED */
	struct sched_ids saved;
	uint64_t epoch;			/* highest announced */
	uint32_t server_node;		/* number of the server that registered last */
	uint32_t agent_node[2];		/* of agents a and b */
	uint32_t fail_every;		/* allocation that fails; 0 none */
	uint32_t allocs;
	long blocks;			/* living ones */
	struct { uint32_t conn, job; } tells[TELLS];	/* JOB_HELD while it recovered, not said
							 * yet that this was all */
	uint32_t ntells;
	bool in_the_middle;		/* that is not said by itself */
	struct record rec[RECORDS];
};

static struct world *w;

/* ---- the world ---- */

static inline void *mem_alloc(void *ctx, size_t bytes)
{
	struct world *x = ctx;

	if (x->fail_every && ++x->allocs % x->fail_every == 0)
		return NULL;
	x->blocks++;
	return calloc(1, bytes);
}

static inline void mem_free(void *ctx, void *p)
{
	struct world *x = ctx;

	x->blocks -= p != NULL;
	free(p);
}

static inline uint64_t key_sum(const uint8_t key[KEY_BYTES])
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < KEY_BYTES; i++)
		sum = 31 * sum + key[i];
	return sum;
}

static inline void note_ids(struct record *r, const uint32_t *ids, uint32_t n)
{
	r->n = n;
	for (uint32_t i = 0; i < n && i < IDS; i++)
		r->ids[i] = ids[i];
}

static inline void note_job_up(struct record *r, const struct msg_job_up *m)
{
	r->job = m->job;
	r->user = m->user;
	r->epoch = m->epoch;
	r->nmachines = m->nmachines;
	r->nservers = m->nservers;
	r->chunk = m->chunk_bytes;
	r->seg = m->seg_bytes;
	r->window = m->window_bytes;
	r->key = key_sum(m->machines[0].link_key);
	r->rank = m->machines[0].ranks[0];
	for (uint32_t i = 0; i < m->nservers && i < 8; i++) {
		r->weight[i] = m->servers[i].weight;
		r->server[i] = m->servers[i].node;
	}
	r->nleft = m->nleft;
	for (uint32_t i = 0; i < MIN(m->nleft, 4); i++)
		r->left[i] = m->left[i];
	snprintf(r->name, sizeof(r->name), "%s", m->machines[0].name);
}

/* "t 3 0+16 a1 0 1, ", and so on. */
static inline void note_stuck(struct record *r, const struct msg_report *m)
{
	size_t at = 0;

	for (uint32_t i = 0; i < m->nstuck && at < sizeof(r->text); i++) {
		const struct msg_stuck_row *k = &m->stuck[i];

		at += (size_t)snprintf(r->text + at, sizeof(r->text) - at, "%s%s %u %u+%u %s",
				       i ? ", " : "", k->tensor, k->round, k->chunk, k->chunks,
				       k->name);
		for (uint32_t n = 0; n < k->nranks && at < sizeof(r->text); n++)
			at += (size_t)snprintf(r->text + at, sizeof(r->text) - at, " %u",
					       k->ranks[n]);
		r->age_ms = k->age_ms;
		r->silent_ms = k->silent_ms;
	}
}

static char shown[16384];	/* by the last report: a line for each node, and each refusal */

/* "a up 3 s, registered", "! x 10.0.0.9 EAUTH 2 times, wrong ..." */
static inline void note_shown(const struct msg_report *m)
{
	size_t at = 0;

	shown[0] = '\0';
	for (uint32_t i = 0; i < m->nnodes && at < sizeof(shown); i++) {
		const struct msg_node_row *n = &m->nodes[i];

		at += (size_t)snprintf(shown + at, sizeof(shown) - at, "%s %s %u s, %s%s%s\n",
				       n->name, n->state, (uint32_t)(n->state_ms / 1000), n->why,
				       n->bypassed[0] ? ", bypassed: " : "", n->bypassed);
	}
	for (uint32_t i = 0; i < m->nrefused && at < sizeof(shown); i++) {
		const struct msg_refused_row *f = &m->refused[i];

		at += (size_t)snprintf(shown + at, sizeof(shown) - at, "! %s %s %s %u times, %s\n",
				       f->name, f->addr, err_name(f->code), (uint32_t)f->count,
				       f->why);
	}
}

static inline void note(const struct sched_action *a)
{
	struct record *r = &w->rec[w->n++ % RECORDS];
	const struct msg *m = a->msg;
	uint32_t bytes;
	struct err e;

	/* or the shell would cut the connection, and that of each node it is for */
	ck_assert_msg(!msg_encode_size(m, &bytes, &e), "cannot be sent: %s", e.text);
	*r = (struct record){ .conn = a->conn, .type = m->type };
	switch (m->type) {
	case MSG_WAITS:
	case MSG_REPLY:
		r->req = m->reply.req;
		r->code = m->reply.code;
		note_ids(r, m->reply.ids, m->reply.nids);
		snprintf(r->text, sizeof(r->text), "%s", m->reply.text);
		break;
	case MSG_WELCOME:
		r->node = m->welcome.node;
		r->epoch = m->welcome.epoch;
		r->key = key_sum(m->welcome.link_key);
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
		r->priority = r->n ? m->tensors.tensors[0].priority : 0;
		for (uint32_t i = 0; i < r->n && i < IDS; i++)
			r->ids[i] = m->tensors.tensors[i].id;
		for (uint32_t i = 0; i < MIN(r->n, 2); i++)
			r->rounds[i] = m->tensors.tensors[i].round;
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
		r->job_age_ms = m->report.njobs ? m->report.jobs[0].age_ms : 0;
		snprintf(r->name, sizeof(r->name), "%s", m->report.state);
		note_stuck(r, &m->report);
		note_shown(&m->report);
		for (uint32_t i = 0; i < MIN(m->report.nnodes, 8); i++)
			r->pace[i] = m->report.nodes[i].pace;
		for (uint32_t i = 0; i < m->report.nnodes; i++)
			if (m->report.nodes[i].pace)
				snprintf(r->slow, sizeof(r->slow), "%s", m->report.nodes[i].note);
		r->measured_s = m->report.njobs ? m->report.jobs[0].measured_time_s : 0;
		break;
	case MSG_EPOCH:
		r->job = m->epoch.job;
		r->seq = m->epoch.seq;
		r->epoch = m->epoch.epoch;
		r->n = m->epoch.repair;
		r->nplaced = m->epoch.nplaced;
		r->nservers = m->epoch.nservers;
		r->ngone = m->epoch.ngone;
		for (uint32_t i = 0; i < MIN(m->epoch.ngone, 4); i++)
			r->gone[i] = m->epoch.gone[i];
		for (uint32_t i = 0; i < MIN(m->epoch.nservers, 8); i++)
			r->weight[i] = m->epoch.servers[i].weight;
		for (uint32_t i = 0; i < m->epoch.nservers; i++)
			r->nlet_go += !m->epoch.servers[i].node &&
				      *m->epoch.servers[i].instance;
		break;
	case MSG_DRAIN:
		r->n = m->drain.undo;
		break;
	case MSG_HEARD:
		r->node = m->heard.node;
		break;
	case MSG_AGENT_KEYS:
		r->n = m->agent_keys.nkeys;
		ck_assert_uint_gt(r->n, 0);
		r->node = m->agent_keys.keys[0].node;
		r->key = key_sum(m->agent_keys.keys[0].link_key);
		break;
	case MSG_EPOCH_READY:
		r->job = m->ready.job;
		r->seq = m->ready.seq;
		r->n = m->ready.nrounds;
		for (uint32_t i = 0; i < MIN(r->n, 2); i++)
			r->rounds[i] = (uint32_t)m->ready.rounds[i];
		break;
	default:
		ck_abort_msg("the scheduler never sends %d", m->type);
	}
}

/* Who is gone says no more. */
static inline void tells_no_more(uint32_t conn)
{
	for (uint32_t i = w->ntells; i-- > 0;)
		if (w->tells[i].conn == conn)
			w->tells[i] = w->tells[--w->ntells];
}

static inline void step(struct sched_event ev)
{
	uint32_t closing[64], nclosing = 0;
	struct sched_actions todo;
	bool saved = false;
	uint64_t before = sched_epoch(w->s);

	ev.now = w->now;
	if (ev.type == SCHED_EV_CLOSED)
		tells_no_more(ev.conn);
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

static inline void world_open(struct sched_ids ids, uint32_t recover_ms, const char *secret)
{
	struct mem_ops mem = { .ctx = w, .alloc = mem_alloc, .free = mem_free };
	struct sched_config c = {
		.cluster = "one cluster", .key_seed = "seed of the keys", .ids = ids,
		.secret = secret, .version = "test", .heartbeat_ms = HEARTBEAT_MS,
		.recover_ms = recover_ms, .agent_grace_ms = RIG_AGENT_GRACE_MS,
		.window_bytes = window_bytes,
	};

	w->saved = ids;
	w->s = sched_new(&mem, &c, w->now);
	ck_assert_ptr_nonnull(w->s);
	step((struct sched_event){ .type = SCHED_EV_TIMER });
}

static inline void setup(void)
{
	w = calloc(1, sizeof(*w));
	w->now = NS_PER_SEC;
	world_open((struct sched_ids){ 0 }, 0, "");
}

static inline void teardown(void)
{
	sched_free(w->s);
	ck_assert_int_eq(w->blocks, 0);
	free(w);
}

static inline uint32_t restart(uint32_t recover_ms)
{
	sched_free(w->s);
	w->n = w->ntells = 0;
	world_open(w->saved, recover_ms, "");
	return w->conns;
}

static const char *peer = "10.0.0.9:51812";	/* of whoever speaks */

static inline void send(uint32_t conn, const struct msg *m)
{
	step((struct sched_event){ .type = SCHED_EV_MSG, .conn = conn, .msg = m, .peer = peer });
	if (m->type == MSG_JOB_HELD && sched_recovering(w->s)) {
		ck_assert_uint_lt(w->ntells, TELLS);
		w->tells[w->ntells].conn = conn;
		w->tells[w->ntells++].job = m->job_up.job;
	}
}

/* Who tells of a job says that this was all, as its agent does at once. */
static inline void all_told(void)
{
	while (w->ntells && !w->in_the_middle) {
		struct msg m = { .type = MSG_EPOCH_READY };

		w->ntells--;
		m.ready = (struct msg_ready){ .job = w->tells[w->ntells].job, .text = "" };
		if (sched_recovering(w->s))
			send(w->tells[w->ntells].conn, &m);
	}
}

/* Time passes; timers fire when the core wants them to. */
static inline void pass(uint64_t ms)
{
	mono_t until = w->now + mono_ms(ms);

	all_told();
	while (sched_next(w->s) <= until) {
		w->now = MAX(w->now, sched_next(w->s));
		step((struct sched_event){ .type = SCHED_EV_TIMER });
		ck_assert_int_gt(sched_next(w->s), w->now - 1);
		if (sched_next(w->s) == w->now)
			w->now++;
	}
	w->now = MAX(w->now, until);
}

/* ---- what nodes say ---- */

static inline uint32_t conn_up(void)
{
	step((struct sched_event){ .type = SCHED_EV_UP, .conn = w->conns });
	return w->conns++;
}

static inline void conn_closed(uint32_t conn)
{
	step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = conn });
}

static uint64_t card_bits_per_s = 1000000000;	/* of whoever says hello */
static uint64_t second_bits_per_s;		/* of another card that it has; 0: it has one */
static uint64_t hello_adder = 10000000000, hello_memory = 1ull << 30;
static uint32_t hello_draining, hello_engines = 1;
static bool hello_anew;		/* agents: by a process that no scheduler has heard of */

/* The number that it has, as a node that outlives the scheduler says it. */
static inline uint32_t number_of(enum node_kind kind, const char *name)
{
	if (kind != NODE_AGENT || hello_anew || !sched_recovering(w->s))
		return 0;
	return *name == 'a' || *name == 'b' ? w->agent_node[*name - 'a'] : 0;
}

static inline uint32_t hello_from(enum node_kind kind, const char *name, const char *machine,
				  uint8_t instance, const char *cluster)
{
	const struct msg_addr addr[] = {
		{ "10.0.0.1", 7471, card_bits_per_s }, { "10.0.1.1", 7471, second_bits_per_s },
	};
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = kind,
		.name = name, .machine = machine, .instance = { instance }, .secret = "",
		.naddrs = second_bits_per_s ? 2 : 1, .addrs = addr, .shm_path = "",
		.engines = hello_engines,
		.adder_bytes_per_s = hello_adder, .memory_bytes = hello_memory,
		.draining = hello_draining, .node = number_of(kind, name),
	} };
	uint32_t conn = conn_up();

	snprintf((char *)m.hello.cluster, ID_BYTES, "%s",
		 m.hello.node && !*cluster ? "one cluster" : cluster);
	send(conn, &m);
	for (uint32_t i = 0; kind == NODE_SERVER && i < w->n; i++)
		if (w->rec[i].conn == conn && w->rec[i].type == MSG_WELCOME)
			w->server_node = w->rec[i].node;
	for (uint32_t i = 0; kind == NODE_AGENT && (*name == 'a' || *name == 'b') && i < w->n; i++)
		if (w->rec[i].conn == conn && w->rec[i].type == MSG_WELCOME)
			w->agent_node[*name - 'a'] = w->rec[i].node;
	return conn;
}

static inline uint32_t hello(enum node_kind kind, const char *name)
{
	return hello_from(kind, name, name, (uint8_t)(w->conns + 1), "");
}

static inline void heartbeat(uint32_t conn, uint64_t seq)
{
	struct msg m = { .type = MSG_HEARTBEAT, .heartbeat = { .seq = seq, .note = "" } };

	send(conn, &m);
}

/* Time passes and these connections keep their leases. */
static inline void pass_beating(uint64_t ms, const uint32_t *conn, uint32_t n)
{
	for (uint64_t t = 0; t < ms; t += 1000) {
		for (uint32_t i = 0; i < n; i++)
			heartbeat(conn[i], 1);
		pass(MIN(1000, ms - t));
	}
}

static uint32_t rank_uid = 1000;	/* of whoever joins, or comes back */

static inline void join_as(uint32_t conn, uint64_t req, uint32_t world, uint32_t rank,
			   uint32_t timeout_ms, uint32_t chunk)
{
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = req, .job = "x", .world = world, .rank = rank, .pid = 100 + (uint32_t)req,
		.timeout_ms = timeout_ms, .chunk_bytes = chunk, .uid = rank_uid,
	} };

	send(conn, &m);
}

static inline void join(uint32_t conn, uint64_t req, uint32_t world, uint32_t rank)
{
	join_as(conn, req, world, rank, 2000, 0);
}

static inline void ready_as(uint32_t conn, enum msg_type type, uint32_t job, uint64_t seq,
			    int code)
{
	struct msg m = { .type = type, .ready = {
		.job = job, .seq = seq, .code = code, .text = code ? "memory is full" : "",
		.epoch = type == MSG_JOB_READY ? seq : 0,
	} };

	send(conn, &m);
}

struct want {
	const char *name;
	uint32_t dtype;
	uint64_t count;
	bool flat;			/* declared without a shape */
};

static inline void declare_in(uint32_t conn, uint64_t req, uint32_t job, uint32_t rank,
			      const struct want *t, uint32_t n)
{
	struct msg_tensor *tensors = calloc(n, sizeof(*tensors));
	struct msg m = { .type = MSG_DECLARE, .declare = {
		.req = req, .job = job, .rank = rank, .timeout_ms = 2000, .ntensors = n,
		.tensors = tensors,
	} };

	for (uint32_t i = 0; i < n; i++)
		tensors[i] = (struct msg_tensor){
			.name = t[i].name, .dtype = t[i].dtype, .ndims = !t[i].flat,
			.dims = t[i].flat ? NULL : &t[i].count, .count = t[i].count,
		};
	send(conn, &m);
	free(tensors);
}

static inline void ids_as(uint32_t conn, enum msg_type type, uint64_t req, uint32_t job,
			  uint32_t rank, const uint32_t *ids, uint32_t n)
{
	struct msg m = { .type = type, .ids = {
		.req = req, .job = job, .rank = rank, .timeout_ms = 2000, .nids = n, .ids = ids,
	} };

	send(conn, &m);
}

static inline void barrier(uint32_t conn, uint64_t req, uint32_t job, uint32_t rank,
			   uint64_t generation)
{
	struct msg m = { .type = MSG_BARRIER, .barrier = {
		.req = req, .job = job, .rank = rank, .timeout_ms = 2000,
		.generation = generation,
	} };

	send(conn, &m);
}

static inline void leave(uint32_t conn, uint32_t job, uint32_t rank, int code)
{
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = job, .rank = rank, .code = code, .text = code ? "process ended" : "",
	} };

	send(conn, &m);
}

static inline void query(uint32_t conn)
{
	struct msg m = { .type = MSG_QUERY, .query = {
		.req = 1, .what = QUERY_NODES | QUERY_JOBS | QUERY_TENSORS, .job = "",
	} };

	send(conn, &m);
}

static uint32_t held_algorithm = PLACE_ALGORITHM;
static uint32_t held_user;		/* as they say; 0: they do not know */
static int32_t left_rank = -1;		/* agents that hold a job say that it has; -1: nobody has */

/* A second server, with nothing to sum, has that number; 0: it is being offered the job; -1:
 * there is none. */
static inline void job_held_by(uint32_t conn, uint32_t job, uint64_t epoch, int32_t second)
{
	static const uint32_t ranks[] = { 0, 1 };
	const struct msg_machine machines[] = {
		{ .node = w->agent_node[0], .name = "a", .machine = "a", .engines = 1,
		  .nranks = 1, .ranks = &ranks[0] },
		{ .node = w->agent_node[1], .name = "b", .machine = "b", .engines = 1,
		  .nranks = 1, .ranks = &ranks[1] },
	};
	const struct msg_server servers[] = {
		{ .node = w->server_node, .engines = 1, .name = "cpu-0",
		  .machine = "cpu-0", .shm_path = "", .weight = UINT32_MAX },
		{ .node = (uint32_t)second, .engines = 1, .name = "cpu-1",
		  .machine = "cpu-1", .shm_path = "" },
	};
	struct msg m = { .type = MSG_JOB_HELD, .job_up = {
		.algorithm = held_algorithm,
		.job = job, .name = "x", .world = 2, .epoch = epoch,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .seg_bytes = CHUNK_BYTES_DEFAULT,
		.window_bytes = WINDOW_BYTES_MAX, .nmachines = 2, .machines = machines,
		.nservers = second < 0 ? 1 : 2, .servers = servers,
		.nleft = left_rank >= 0, .left = (uint32_t *)&left_rank, .user = held_user,
	} };

	send(conn, &m);
}

static inline void job_held(uint32_t conn, uint32_t job, uint64_t epoch)
{
	job_held_by(conn, job, epoch, -1);
}

static inline void tensors_held(uint32_t conn, uint32_t job, uint64_t seq, uint32_t id,
				const struct want *t)
{
	struct msg_tensor one = {
		.id = id, .name = t->name, .dtype = t->dtype, .ndims = 1, .dims = &t->count,
		.count = t->count,
	};
	uint64_t placed[64];
	struct msg m = { .type = MSG_TENSORS_HELD, .tensors = {
		.job = job, .seq = seq, .ntensors = 1, .tensors = &one,
		.nplaced = (uint32_t)div_round_up(t->count * dtype_bytes((uint8_t)t->dtype),
						  CHUNK_BYTES_DEFAULT),
		.placed = placed,
	} };

	ck_assert_uint_le(m.tensors.nplaced, 64);
	for (uint32_t i = 0; i < m.tensors.nplaced; i++)
		placed[i] = PLACED(1, 0);

	send(conn, &m);
}

/* ---- what was sent ---- */

static inline uint32_t count(uint32_t conn, enum msg_type type, uint64_t req)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n; i++)
		n += w->rec[i].conn == conn && w->rec[i].type == type &&
		     (req == REQ_ANY || w->rec[i].req == req);
	return n;
}

static inline const struct record *last(uint32_t conn, enum msg_type type)
{
	for (uint32_t i = w->n; i-- > 0; ) {
		if (w->rec[i].conn == conn && w->rec[i].type == type)
			return &w->rec[i];
	}
	ck_abort_msg("connection %u never got a %s", conn, msg_type_name(type));
}

static inline const struct record *answer(uint32_t conn, uint64_t req)
{
	ck_assert_uint_eq(count(conn, MSG_REPLY, req), 1);
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->rec[i].conn == conn && w->rec[i].type == MSG_REPLY && w->rec[i].req == req)
			return &w->rec[i];
	}
	return NULL;
}

static inline void ck_answer(uint32_t conn, uint64_t req, int code, const char *text)
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

static inline struct pair pair_up(void)
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
static inline struct pair pair_declared(void)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, swapped, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.a, 2, 0, NULL);
	return p;
}

/* "I have the job, and its log up to here". */
static inline void has_log(uint32_t conn, enum msg_type type, uint32_t job, uint64_t epoch,
			   uint64_t log)
{
	const struct msg m = { .type = type, .ready = {
		.job = job, .seq = epoch, .text = "", .log = log, .epoch = epoch,
	} };

	send(conn, &m);
}

/* All that have the last epoch say so: these servers first, then the agents. */
static inline void follow_epoch(const struct pair *p, const uint32_t *servers, uint32_t n)
{
	uint64_t epoch = last(servers[0], MSG_EPOCH)->epoch;

	for (uint32_t i = 0; i < n; i++)
		ready_as(servers[i], MSG_EPOCH_READY, p->job, epoch, 0);
	ck_assert_uint_eq(last(p->a, MSG_EPOCH)->epoch, epoch);
	ready_as(p->a, MSG_EPOCH_READY, p->job, epoch, 0);
	ready_as(p->b, MSG_EPOCH_READY, p->job, epoch, 0);
}

static const uint32_t both_ids[] = { 1, 2 };

static inline void undeclare_both(const struct pair *p, uint64_t req)
{
	ids_as(p->a, MSG_UNDECLARE, req, p->job, 0, both_ids, 2);
	ids_as(p->b, MSG_UNDECLARE, req, p->job, 1, both_ids, 2);
}

struct told {
	enum msg_type type;
	uint64_t seq;
	uint32_t n, id;
};

/* What a connection heard of its job's log, in this order. */
static inline void ck_told(uint32_t conn, const struct told *want, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		const struct record *r = &w->rec[i];

		if (r->conn != conn || (r->type != MSG_TENSORS && r->type != MSG_FORGET &&
					r->type != MSG_EPOCH))
			continue;
		ck_assert_uint_lt(at, n);
		ck_assert_int_eq(r->type, want[at].type);
		ck_assert_uint_eq(r->seq, want[at].seq);
		ck_assert_uint_eq(r->type == MSG_EPOCH ? r->nplaced : r->n, want[at].n);
		if (r->type != MSG_EPOCH && r->n)
			ck_assert_uint_eq(r->ids[r->n - 1], want[at].id);
		at++;
	}
	ck_assert_uint_eq(at, n);
}

/* Runs what `add` puts into a test case, each in its own world; main() returns this. */
#include "tests/unit/rig_main.h"

#endif
