// SPDX-License-Identifier: Apache-2.0
/*
 * What a big cluster costs the scheduler: its core, fed with the events of AGENTS
 * agents, SERVERS servers and TENSORS tensors, without sockets, and the planner
 * and the map that everybody replays.
 *
 *	scale_bench [-l] [-a AGENTS] [-s SERVERS] [-r RANKS_PER_AGENT] [-t TENSORS]
 *
 * One line per phase of a job's life: events fed, CPU time in the core, CPU time to encode
 * what it sends (each message once, however many hear it, as the shell does), the most that
 * one event took in the core, messages and bytes sent, memory of the core then and at most.
 * -l: fails when that is more than the limits below, which are for the numbers that it has
 * by itself.  Memory and bytes are the same on every machine; CPU time has 20 times what two
 * cores of an AMD EPYC took.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/dtype.h"
#include "common/place/place.h"
#include "scheduler/sched_core.h"

#define HEARTBEAT_SECONDS 10u
#define WAIT_SECONDS	2u

#define PEAK_MB_MAX		32.0
#define SENT_MB_MAX		1400.0
#define LONGEST_MS_MAX		400.0
#define SECOND_MS_MAX		200.0	/* of heartbeats: a fifth of a CPU */
#define STUCK_MS_MAX		200.0
#define LIFE_MS_MAX		30000.0
#define PLANNER_MS_MAX		1000.0

static uint32_t agents = 1000, servers = 1000, per_agent = 1, tensors = 2000;

struct phase {
	uint64_t events, core_ns, encode_ns, longest_ns, msgs, distinct, bytes;
};

static struct {
	struct sched *core;
	mono_t now;
	uint64_t live, peak;		/* bytes of the core */
	const struct msg *last;		/* sent: the same pointer is the same message */
	uint32_t last_bytes;
	uint8_t *buf;
	size_t cap;
	struct phase p, life;		/* life: all phases */
	uint64_t heartbeats_ns, waits_ns, stuck_ns, planner_ns;
	uint32_t job;			/* its number, from the answers to RANK_JOIN */
	uint64_t epoch;
	uint32_t refused;
} w;

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "scale_bench: %s\n", what);
	exit(1);
}

static void *need(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

/* ---- memory that counts itself ---- */

static void *mem_alloc(void *ctx, size_t bytes)
{
	size_t *p = calloc(1, bytes + sizeof(max_align_t));

	(void)ctx;
	if (!p)
		return NULL;
	*p = bytes;
	w.live += bytes;
	w.peak = MAX(w.peak, w.live);
	return (uint8_t *)p + sizeof(max_align_t);
}

static void mem_free(void *ctx, void *p)
{
	size_t *head = p ? (size_t *)(void *)((uint8_t *)p - sizeof(max_align_t)) : NULL;

	(void)ctx;
	if (head)
		w.live -= *head;
	free(head);
}

/* ---- the shell's part ---- */

static void encode(const struct msg *m)
{
	struct err e;

	if (m == w.last)
		return;
	if (msg_encode_size(m, &w.last_bytes, &e))
		die(e.text);
	if (w.last_bytes > w.cap) {
		w.cap = 2ul * w.last_bytes;
		w.buf = need(realloc(w.buf, w.cap));
	}
	if (msg_encode(m, w.buf, w.last_bytes, &e))
		die(e.text);
	w.last = m;
	w.p.distinct++;
}

static void note(const struct msg *m)
{
	if (m->type == MSG_JOB_UP) {
		w.job = m->job_up.job;
		w.epoch = m->job_up.epoch;
	}
	if (m->type == MSG_EPOCH)
		w.epoch = m->epoch.epoch;
	if (m->type == MSG_REPLY && m->reply.code) {
		w.refused++;
		fprintf(stderr, "scale_bench: refused: %s\n", m->reply.text);
	}
}

static void step(struct sched_event ev)
{
	struct sched_actions todo;
	uint64_t start = cpu_ns(), took;
	bool save = false;

	ev.now = w.now;
	sched_step(w.core, &ev, &todo);
	took = cpu_ns() - start;
	w.p.core_ns += took;
	w.p.longest_ns = MAX(w.p.longest_ns, took);
	w.p.events++;
	start = cpu_ns();
	w.last = NULL;
	for (const struct sched_action *a = todo.head; a; a = a->next) {
		save |= a->type == SCHED_DO_SAVE;
		if (a->type != SCHED_DO_SEND)
			continue;
		encode(a->msg);
		note(a->msg);
		w.p.msgs++;
		w.p.bytes += w.last_bytes;
	}
	w.p.encode_ns += cpu_ns() - start;
	if (save)
		step((struct sched_event){ .type = SCHED_EV_SAVED });
}

static void say(uint32_t conn, const struct msg *m)
{
	step((struct sched_event){ .type = SCHED_EV_MSG, .conn = conn, .msg = m });
}

static void phase_end(const char *name)
{
	const struct phase *p = &w.p;

	printf("%-28s %8llu %9.1f %9.1f %10.2f %8llu %8llu %9.1f %9.1f %9.1f\n", name,
	       (unsigned long long)p->events, (double)p->core_ns / 1e6,
	       (double)p->encode_ns / 1e6, (double)p->longest_ns / 1e6,
	       (unsigned long long)p->msgs, (unsigned long long)p->distinct,
	       (double)p->bytes / 1e6, (double)w.live / 1e6, (double)w.peak / 1e6);
	w.life.core_ns += p->core_ns + p->encode_ns;
	w.life.longest_ns = MAX(w.life.longest_ns, p->longest_ns);
	w.life.bytes += p->bytes;
	w.p = (struct phase){ 0 };
}

/* ---- a job's life ---- */

static void hello(uint32_t conn, enum node_kind kind, uint32_t i, bool beside)
{
	struct msg_addr addr = { .host = "10.11.12.13", .port = 7471,
				 .bits_per_s = UINT64_C(100000000000) };
	char name[64], machine[64];
	struct msg m = {
		.type = MSG_HELLO,
		.hello = {
			.version_min = 1, .version_max = 1, .kind = kind, .name = name,
			.machine = machine, .secret = "", .naddrs = 1, .addrs = &addr,
			.shm_path = "/run/tally/server.sock", .engines = 4,
			.adder_bytes_per_s = UINT64_C(80000000000),
			.memory_bytes = UINT64_C(64) << 30,
		},
	};

	snprintf(name, sizeof(name), "%s-%04u.cluster.example", kind == NODE_AGENT ? "gpu" : "cpu",
		 i);
	snprintf(machine, sizeof(machine), "%s%032u", kind == NODE_AGENT || beside ? "a" : "b", i);
	memcpy(m.hello.instance, &conn, sizeof(conn));
	step((struct sched_event){ .type = SCHED_EV_UP, .conn = conn });
	say(conn, &m);
}

static uint32_t server_conn(uint32_t i)
{
	return agents + i;
}

/* Every other server stands beside an agent, the rest have machines of their own. */
static void register_all(void)
{
	for (uint32_t i = 0; i < agents; i++)
		hello(i, NODE_AGENT, i, false);
	for (uint32_t i = 0; i < servers; i++)
		hello(server_conn(i), NODE_SERVER, i, i % 2 && i < agents);
	phase_end("registration");
}

static void join_all(void)
{
	uint32_t world = agents * per_agent;

	for (uint32_t r = 0; r < world; r++) {
		struct msg m = {
			.type = MSG_RANK_JOIN,
			.rank_join = { .req = r + 1, .job = "big", .world = world, .rank = r,
				       .pid = 1000 + r, .timeout_ms = 600000 },
		};

		if (r == world - 1)
			phase_end("attach, all ranks but one");
		say(r / per_agent, &m);
	}
	phase_end("plan, JOB_UP to servers");
}

static void ready(enum msg_type type, uint64_t seq, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct msg m = {
			.type = type,
			.ready = { .job = w.job, .seq = seq, .text = "" },
		};

		say(first + i, &m);
	}
}

static void ready_all(enum msg_type type, uint64_t seq)
{
	ready(type, seq, server_conn(0), servers);
}

/* Ranks of one program declare the same, so the message differs in its rank alone. */
static void declare_all(struct msg_tensor *t, uint32_t first, uint32_t n, uint64_t req)
{
	for (uint32_t r = 0; r < agents * per_agent; r++) {
		struct msg m = {
			.type = MSG_DECLARE,
			.declare = { .req = req, .job = w.job, .rank = r, .timeout_ms = 600000,
				     .ntensors = n, .tensors = t + first },
		};

		say(r / per_agent, &m);
	}
}

static struct msg_tensor *make_tensors(uint32_t n, const char *what)
{
	struct msg_tensor *t = need(calloc(n, sizeof(*t)));

	for (uint32_t i = 0; i < n; i++) {
		uint64_t *dims = need(calloc(2, sizeof(*dims)));
		char *name = need(malloc(64));

		snprintf(name, 64, "model.layers.%u.attention.%s.weight", i, what);
		dims[0] = 1 + i % 7 * 100;
		dims[1] = 1024;
		t[i] = (struct msg_tensor){ .name = name, .dtype = DTYPE_F32, .ndims = 2,
					    .dims = dims, .count = dims[0] * dims[1] };
	}
	return t;
}

static void free_tensors(struct msg_tensor *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		free((void *)(uintptr_t)t[i].name);
		free((void *)(uintptr_t)t[i].dims);
	}
	free(t);
}

static void declare_phases(void)
{
	struct msg_tensor *t = make_tensors(tensors, "query"), *one = make_tensors(tensors, "key");
	uint32_t alone = MIN(tensors, 100u);

	declare_all(t, 0, tensors, 10000000);
	phase_end("declare, one batch");
	ready_all(MSG_TENSORS_READY, 1);
	phase_end("servers ready, answers");
	for (uint32_t i = 0; i < alone; i++) {
		declare_all(one, i, 1, 20000000 + i);
		ready_all(MSG_TENSORS_READY, 2 + i);
	}
	phase_end("declare, 100 one by one");
	free_tensors(t, tensors);
	free_tensors(one, tensors);
}

static void beat_for(uint32_t seconds)
{
	struct msg m = { .type = MSG_HEARTBEAT, .heartbeat = { .note = "" } };
	uint32_t nodes = agents + servers;

	for (uint32_t s = 0; s < seconds; s++) {
		for (uint32_t i = 0; i < nodes; i++) {
			w.now += (mono_t)(NS_PER_SEC / nodes);
			m.heartbeat.seq++;
			say(i, &m);
			if (sched_next(w.core) <= w.now)
				step((struct sched_event){ .type = SCHED_EV_TIMER });
		}
	}
}

static void heartbeats(void)
{
	beat_for(HEARTBEAT_SECONDS);
	w.heartbeats_ns = w.p.core_ns + w.p.encode_ns;
	phase_end("heartbeats, 10 seconds");
}

static void barriers(void)
{
	for (uint32_t r = 0; r < agents * per_agent; r++) {
		struct msg m = {
			.type = MSG_BARRIER,
			.barrier = { .req = 30000000, .job = w.job, .rank = r,
				     .timeout_ms = 600000 },
		};

		say(r / per_agent, &m);
	}
	phase_end("barrier");
}

static void questions(void)
{
	struct msg m = {
		.type = MSG_QUERY,
		.query = { .req = 40000000, .what = QUERY_NODES | QUERY_JOBS | QUERY_TENSORS,
			   .job = "" },
	};

	say(0, &m);
	phase_end("tally status");
}

/* An agent is stopped: all others tell of as many rounds as they may, and of a link. */
static void rounds_wait(void)
{
	struct msg_wait row[STUCK_ROWS_MAX];
	struct msg m = { .type = MSG_STUCK, .stuck = { .job = w.job, .waits = row } };

	for (uint32_t i = 0; i < STUCK_ROWS_MAX; i++)
		row[i] = (struct msg_wait){ .tensor = 1 + i % tensors, .round = 1 + i / tensors,
					    .chunks = 1, .kind = WAIT_MACHINE };
	row[STUCK_ROWS_MAX - 1].kind = WAIT_LINK;
	row[STUCK_ROWS_MAX - 1].who = agents + servers;		/* the last one's number */
	m.stuck.nwaits = STUCK_ROWS_MAX;
	for (uint32_t a = 1; a < agents; a++)
		say(a, &m);
	phase_end("rounds wait for an agent");
	beat_for(WAIT_SECONDS);
	w.waits_ns = w.p.core_ns + w.p.encode_ns;
	phase_end("they wait for 2 seconds");
	say(0, &(struct msg){ .type = MSG_QUERY, .query = {
		.req = 45000000, .what = QUERY_STUCK, .job = "" } });
	w.stuck_ns = w.p.core_ns + w.p.encode_ns;
	phase_end("tally tensors --stuck");
	m.stuck.nwaits = 0;
	for (uint32_t a = 1; a < agents; a++)
		say(a, &m);
	phase_end("they go on");
}

/* The last server; servers say that they are ready, then agents that all has moved. */
static void drain(void)
{
	char name[64];
	struct msg m = { .type = MSG_DRAIN, .drain = { .req = 50000000, .name = name } };

	snprintf(name, sizeof(name), "cpu-%04u.cluster.example", servers - 1);
	step((struct sched_event){ .type = SCHED_EV_UP, .conn = server_conn(servers) });
	say(server_conn(servers), &m);
	phase_end("a server is drained");
	ready_all(MSG_EPOCH_READY, w.epoch);
	ready(MSG_EPOCH_READY, w.epoch, 0, agents);
	phase_end("its chunks have moved");
}

static void loss(void)
{
	step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = server_conn(0) });
	phase_end("a server's connection closes");
	for (uint32_t i = 0; i < 3; i++) {
		w.now = MAX(w.now, sched_next(w.core));
		step((struct sched_event){ .type = SCHED_EV_TIMER });
	}
	phase_end("it is dead, servers are told");
}

static void scheduler(void)
{
	static const struct mem_ops mem = { .alloc = mem_alloc, .free = mem_free };
	struct sched_config c = { .cluster = { 1 }, .secret = "", .version = "bench",
				  .heartbeat_ms = HEARTBEAT_MS };

	printf("%u agents, %u servers, %u ranks, %u tensors\n\n%-28s %8s %9s %9s %10s %8s %8s "
	       "%9s %9s %9s\n", agents, servers, agents * per_agent, tensors, "scheduler",
	       "events", "core ms", "encode ms", "ms at most", "messages", "distinct", "MB sent",
	       "MB held", "MB peak");
	w.core = need(sched_new(&mem, &c, 0));
	step((struct sched_event){ .type = SCHED_EV_TIMER });
	register_all();
	join_all();
	ready_all(MSG_JOB_READY, w.epoch);
	phase_end("servers ready, JOB_UP");
	declare_phases();
	barriers();
	heartbeats();
	questions();
	rounds_wait();
	drain();
	loss();
	sched_free(w.core);
	if (w.refused)
		die("something was refused");
	if (w.live)
		die("the core leaks");
}

/* ---- the planner and the map ---- */

struct map {
	struct place *place;
	struct place_tensor *t;
	uint32_t n;
	double bytes;
};

static struct map map_new(uint32_t n, uint64_t total, uint32_t chunk_bytes)
{
	struct map m = { .place = need(calloc(1, sizeof(*m.place))), .n = n,
			 .t = need(calloc(n, sizeof(*m.t))) };

	place_init(m.place, chunk_bytes);
	for (uint32_t i = 0; i < n; i++) {
		m.t[i].bytes = total / n * (1 + i % 3) / 2 / 4 * 4;
		m.t[i].owner = need(calloc(place_chunks(m.place, m.t[i].bytes),
					   sizeof(*m.t[i].owner)));
		m.bytes += (double)m.t[i].bytes;
	}
	return m;
}

static void map_free(struct map *m)
{
	for (uint32_t i = 0; i < m->n; i++)
		free(m->t[i].owner);
	free(m->t);
	free(m->place);
}

static uint64_t took(const char *what, uint64_t start)
{
	uint64_t ns = cpu_ns() - start;

	w.planner_ns += ns;
	printf("%-28s %8.1f ms\n", what, (double)ns / 1e6);
	return cpu_ns();
}

static void planner(void)
{
	uint32_t count = agents + servers;
	struct plan_machine *m = need(calloc(count, sizeof(*m)));
	double *share = need(calloc(count, sizeof(*share)));
	uint32_t *weight = need(calloc(count, sizeof(*weight)));
	bool *alive = need(calloc(count, sizeof(*alive)));
	struct map map = map_new(tensors, UINT64_C(4) << 30, 64u << 10);
	uint64_t start, moved;
	struct plan plan;
	struct err e;

	for (uint32_t i = 0; i < count; i++)
		m[i] = (struct plan_machine){ .bits_per_s = UINT64_C(1000000000) * (50 + i % 51),
					      .is_gpu = i < agents, .has_server = true };
	printf("\n%u machines, all with a server; %u tensors of %.1f GB in chunks of %u KiB\n",
	       count, tensors, map.bytes / 1e9, map.place->chunk_bytes >> 10);
	start = cpu_ns();
	if (plan_solve(m, count, map.bytes, share, &plan, &e))
		die(e.text);
	start = took("shares and round time", start);
	plan_weights(share, count, weight);
	start = took("weights", start);
	if (place_start(map.place, weight, MIN(count, SERVERS_PER_JOB_MAX), &e))
		die(e.text);
	place_batch(map.place, map.t, map.n);
	start = took("place", start);
	for (uint32_t i = 0; i < count; i++)
		alive[i] = i != count - 1;
	moved = place_repair(map.place, weight, alive, map.place->nservers, map.t, map.n);
	start = took("epoch: a server is lost", start);
	printf("%-28s %8.1f MB\n", "  bytes that move", (double)moved / 1e6);
	for (uint32_t i = 0; i < count; i++)
		weight[i] = i % 10 ? weight[i] : 0;
	start = cpu_ns();
	moved = place_rebalance(map.place, weight, MIN(count, SERVERS_PER_JOB_MAX), map.t, map.n);
	took("epoch: a tenth is drained", start);
	printf("%-28s %8.1f MB\n", "  bytes that move", (double)moved / 1e6);
	printf("%-28s %8.1f KB\n", "memory of the map",
	       (double)(sizeof(*map.place) + map.n * sizeof(*map.t)) / 1e3);
	map_free(&map);
	free(m);
	free(share);
	free(weight);
	free(alive);
}

/* ---- the limits ---- */

static bool keeps(const char *what, double value, double limit)
{
	printf("%-40s %9.1f, limit %8.1f %s\n", what, value, limit,
	       value <= limit ? "met" : "MISSED");
	return value <= limit;
}

static bool within_limits(void)
{
	bool ok = true;

	printf("\n");
	ok &= keeps("memory of the core at most, MB", (double)w.peak / 1e6, PEAK_MB_MAX);
	ok &= keeps("sent in all, MB", (double)w.life.bytes / 1e6, SENT_MB_MAX);
	ok &= keeps("longest event, CPU ms", (double)w.life.longest_ns / 1e6, LONGEST_MS_MAX);
	ok &= keeps("a second of heartbeats, CPU ms",
		    (double)w.heartbeats_ns / HEARTBEAT_SECONDS / 1e6, SECOND_MS_MAX);
	ok &= keeps("a second while rounds wait, CPU ms",
		    (double)w.waits_ns / WAIT_SECONDS / 1e6, SECOND_MS_MAX);
	ok &= keeps("tally tensors --stuck, CPU ms", (double)w.stuck_ns / 1e6, STUCK_MS_MAX);
	ok &= keeps("all events, CPU ms", (double)w.life.core_ns / 1e6, LIFE_MS_MAX);
	ok &= keeps("planner and map, CPU ms", (double)w.planner_ns / 1e6, PLANNER_MS_MAX);
	return ok;
}

int main(int argc, char **argv)
{
	bool limited = false;
	int opt;

	while ((opt = getopt(argc, argv, "la:s:r:t:")) != -1) {
		uint32_t n = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;

		switch (opt) {
		case 'l': limited = true; break;
		case 'a': agents = n; break;
		case 's': servers = n; break;
		case 'r': per_agent = n; break;
		case 't': tensors = n; break;
		default:
			fprintf(stderr, "usage: scale_bench [-l] [-a AGENTS] [-s SERVERS] "
				"[-r RANKS_PER_AGENT] [-t TENSORS]\n");
			return 2;
		}
	}
	if (agents < 2 || agents > AGENTS_PER_JOB_MAX || !servers ||
	    agents + servers > SERVERS_PER_JOB_MAX || !per_agent || !tensors ||
	    per_agent > LOCAL_RANKS_MAX || agents * per_agent > WORLD_SIZE_MAX ||
	    tensors > TENSORS_PER_BATCH_MAX)
		die("a number is out of range");
	scheduler();
	planner();
	free(w.buf);
	return !limited || within_limits() ? 0 : 1;
}
