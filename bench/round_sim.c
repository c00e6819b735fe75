// SPDX-License-Identifier: Apache-2.0
/*
 * How long a round takes in simulated time, next to the optimum of the plan: the
 * cores of agents and servers as they are, between cards that are modelled.
 *
 *	round_sim [-b GBIT] [-m MODEL.txt] [-x TIMES] [-c CHUNK_KIB] [-l LIMIT] [-v]
 *		  N,K[,CPU[,GPU]]...
 *
 * -x: the list's tensors so many times as large; -l: exits 1 when a round takes longer
 * than LIMIT times the optimum; -v: also how busy each card was, and when.
 *
 * N machines train, each with a server beside its agent, K machines have a server
 * only; CPU is the speed of the latter's cards and GPU the first training machine's, as
 * a part of the others'.  All tensors of the list are posted at once, and a round lasts
 * until the last agent has the last result.
 *
 * The model: a card sends its frames one after the other in the order in which it
 * was given them, and takes what comes in the order in which it comes; a frame
 * occupies both at the card's speed, receiving begins when its first byte is
 * there (switches cut through, have room, and are never the limit).  What waits before
 * a card is bounded as flight.h says, what is on its way by the windows.  Frames to the
 * server beside an agent, and sums, take no time.
 *
 * Simulated bytes stand for SCALE real ones each, so that 512 machines fit in one
 * process; contributions are not copied, all machines share one of each buffer.
 * Nothing is random: the same arguments give the same times, bit for bit.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/dtype.h"
#include "common/kern/kern.h"
#include "common/net/flight.h"
#include "common/place/place.h"
#include "server/server_core.h"
#include "worker-agent/agent_core.h"

#define SCALE		256u
#define LATENCY		((mono_t)20000)		/* one way, ns */
#define LOCAL		((mono_t)1000)		/* by shared memory */
#define PAYLOAD		0.9564			/* 1448 of the 1514 bytes of a frame on the wire */
#define TENSORS		4096u
#define JOB		1u
#define EPOCH		1u
#define NODE		1u			/* node number of agent 0 */
#define SLICES		24u			/* of a round, each the optimum / SLICES_OPT */
#define SLICES_OPT	20u

struct link;

enum event_type { EV_SENT, EV_HEAD, EV_LAND, EV_TICK };

struct event {
	struct pheap_node node;			/* in sim.events */
	mono_t at;
	uint64_t seq;
	enum event_type type;
	void *of;				/* struct frame_on_way; EV_TICK: struct agent */
};

struct frame_on_way {
	struct frame_on_way *spare, *all;	/* in the lists of that name */
	struct link *link;
	bool to_server;
	struct event sent, comes;		/* EV_SENT; EV_HEAD, then EV_LAND */
	mono_t tx_end;
	struct frame frame;
	void *seg;				/* the sender's: ag_sent(), srv_sent() */
};

struct card {
	uint64_t bits_per_s;			/* payload */
	mono_t tx_free, rx_free;
	double tx_busy[SLICES];			/* parts of a slice */
	double rx_busy[SLICES];
};

struct link {
	uint32_t agent, server;
	bool by_ref;
	struct ag_peer ag;
	struct ag_route *route;
	struct srv_peer srv;
	struct pheap_node turn;			/* in server.waiting while waits */
	bool waits;
	uint64_t tx_bytes;			/* the server's, under way; real bytes */
};

struct agent {
	struct ag_core core;
	struct ag_job job;
	struct ag_route **route;
	struct ag_tensor **tensor;
	void **mem;
	uint32_t left;				/* tensors of this round */
	struct event tick;
};

struct server {
	struct srv_core core;
	struct srv_job *job;
	void **mem;
	struct pheap waiting;			/* links with frames to be sent */
	uint64_t tx_bytes, tx_limit;
	uint64_t finished;			/* the core's, when results were looked for last */
};

struct tensor {
	uint64_t bytes;
	struct geom geom;
	uint16_t *owner;
	uint8_t *data, *result, *slots;
};

static struct {
	uint64_t bits_per_s;			/* of a card, nominal */
	double cpu_speed, gpu_speed;		/* parts of that: CPU machines', the first GPU's */
	double t_opt;				/* seconds, by the plan */
	double t_placed;			/* for what each server got in whole chunks */
	double times;				/* the list's sizes times this */
	const char *model;
	bool verbose;
	uint32_t n, k, nservers;
	struct place_sizes sizes;
	uint32_t chunk_bytes, seg_bytes;	/* those, scaled */
	uint32_t weight[SERVERS_PER_JOB_MAX];
	uint32_t ntensors;
	struct tensor tensor[TENSORS];
	double bytes;				/* real ones, of all tensors */
	uint8_t *window;
	uint64_t window_bytes;			/* scaled, as many segments as a real one has */
	struct agent *agent;
	struct server *server;
	struct link *link;			/* agents x servers */
	struct card *card;			/* agents' machines, then CPU machines */
	struct pheap events;
	uint64_t seq, steps;
	struct frame_on_way *spare, *all;
	mono_t now;
	uint32_t busy;				/* agents that are not done with the round */
} sim = { .bits_per_s = 1000000000, .times = 1, .model = "tests/data/bert-large.txt" };

static void die(const char *what)
{
	fprintf(stderr, "round_sim: %s\n", what);
	exit(2);
}

static void *zeroed(size_t n, size_t size)
{
	void *p = calloc(n + !n, size);

	if (!p)
		die("out of memory");
	return p;
}

/* ---- events: earliest first, then in the order they were made ---- */

static bool sooner(const struct pheap_node *x, const struct pheap_node *y)
{
	const struct event *a = container_of(x, struct event, node);
	const struct event *b = container_of(y, struct event, node);

	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void later(struct event *e, mono_t at, enum event_type type, void *of)
{
	e->at = at;
	e->seq = sim.seq++;
	e->type = type;
	e->of = of;
	pheap_add(&sim.events, &e->node);
}

/* ---- the cards ---- */

static mono_t wire_time(const struct card *c, const struct frame *f)
{
	uint64_t bytes = FRAME_BYTES;

	if (frame_has_payload(f))
		bytes += (uint64_t)f->length * SCALE;
	return (mono_t)(bytes * 8 * NS_PER_SEC / c->bits_per_s);
}

/* Agents' machines come first, each with the server of its number. */
static struct card *card_of(const struct link *l, bool server)
{
	return &sim.card[server ? l->server : l->agent];
}

static void note_busy(double busy[SLICES], mono_t from, mono_t to)
{
	double slice = sim.t_opt * NS_PER_SEC / SLICES_OPT;

	for (uint32_t i = 0; sim.verbose && i < SLICES; i++)
		busy[i] += MAX(MIN((double)to, (i + 1) * slice) - MAX((double)from, i * slice), 0) /
			   slice;
}

static struct frame_on_way *new_frame(void)
{
	struct frame_on_way *f = sim.spare;

	if (f) {
		sim.spare = f->spare;
		return f;
	}
	f = zeroed(1, sizeof(*f));
	f->all = sim.all;
	sim.all = f;
	return f;
}

static void transmit(struct link *l, bool to_server, const struct frame *frame, void *seg)
{
	struct frame_on_way *f = new_frame();
	struct card *from = card_of(l, !to_server);
	mono_t start;

	f->link = l;
	f->to_server = to_server;
	f->frame = *frame;
	f->seg = seg;
	if (l->by_ref) {
		later(&f->comes, sim.now + LOCAL, EV_LAND, f);
		return;
	}
	start = MAX(sim.now, from->tx_free);
	f->tx_end = from->tx_free = start + wire_time(from, frame);
	note_busy(from->tx_busy, start, f->tx_end);
	later(&f->comes, start + LATENCY, EV_HEAD, f);
	if (seg)
		later(&f->sent, f->tx_end, EV_SENT, f);
}

static void on_head(struct frame_on_way *f)
{
	struct card *to = card_of(f->link, f->to_server);
	mono_t start = MAX(sim.now, to->rx_free);

	to->rx_free = MAX(start + wire_time(to, &f->frame), f->tx_end + LATENCY);
	note_busy(to->rx_busy, to->rx_free - wire_time(to, &f->frame), to->rx_free);
	later(&f->comes, to->rx_free, EV_LAND, f);
}

/* ---- what the shells do around the cores ---- */

static void pump_agent(struct agent *a)
{
	struct ag_tensor *t;
	struct ag_send s;
	bool more = true;

	/* What goes to the server beside it has gone: only the card's room is worth a look. */
	if (a->core.tx_bytes >= a->core.tx_limit && list_empty(&a->core.talk))
		more = false;
	while (more && ag_next(&a->core, sim.now, &s))
		transmit(container_of(s.peer, struct link, ag), true, &s.frame, s.seg);
	while ((t = ag_done(&a->core))) {
		if (--a->left == 0)
			sim.busy--;
	}
}

/* Whose next frame has waited longest comes first, by shared memory before any other. */
static uint64_t due(const struct link *l)
{
	return l->by_ref ? 0 : srv_due(&l->srv).turn;
}

static bool due_sooner(const struct pheap_node *x, const struct pheap_node *y)
{
	const struct link *a = container_of(x, struct link, turn);
	const struct link *b = container_of(y, struct link, turn);
	const struct srv_core *c = &sim.server[a->server].core;

	return due(a) != due(b) ? due(a) < due(b) : srv_turn(c, &a->srv) < srv_turn(c, &b->srv);
}

static void server_wants(struct server *v, struct link *l)
{
	if (l->waits || srv_due(&l->srv).turn == SRV_NOTHING)
		return;
	l->waits = true;
	pheap_add(&v->waiting, &l->turn);
}

static bool has_room(const struct server *v, const struct link *l)
{
	return l->by_ref || l->tx_bytes < flight_peer_bytes(v->tx_limit, sim.n);
}

/* As long as the card has room; who has none comes back when a frame of its is sent. */
static void pump_server(uint32_t j)
{
	struct server *v = &sim.server[j];
	struct srv_send s;

	while (pheap_min(&v->waiting)) {
		struct link *l = container_of(pheap_min(&v->waiting), struct link, turn);

		if (!l->by_ref && v->tx_bytes >= v->tx_limit)
			return;
		pheap_del(&v->waiting, &l->turn);
		l->waits = false;
		if (!has_room(v, l) || !srv_next(&v->core, &l->srv, l->by_ref, &s))
			continue;
		if (s.in) {
			l->tx_bytes += (uint64_t)s.frame.length * SCALE;
			v->tx_bytes += (uint64_t)s.frame.length * SCALE;
		}
		transmit(l, false, &s.frame, s.in);
		server_wants(v, l);
	}
}

static struct link *link_of(uint32_t agent, uint32_t server)
{
	return &sim.link[(size_t)agent * sim.nservers + server];
}

static void at_server(struct frame_on_way *f)
{
	struct link *l = f->link;
	struct server *v = &sim.server[l->server];
	const struct tensor *t = &sim.tensor[f->frame.tensor - 1];
	uint64_t at = (uint64_t)f->frame.chunk * sim.chunk_bytes + f->frame.offset;
	const void *data = NULL;
	void *result = NULL;

	if (f->frame.flags & FRAME_BYREF) {
		data = t->data + at;
		result = t->result + at;
	} else if (frame_has_payload(&f->frame)) {
		data = srv_place(&v->core, &l->srv, &f->frame);
		if (!data)
			return;
	}
	srv_frame(&v->core, &l->srv, &f->frame, data, result);
	server_wants(v, l);
	if (v->core.finished == v->finished)
		return;
	v->finished = v->core.finished;		/* a sum: everybody is to be sent it */
	for (uint32_t i = 0; i < sim.n; i++)
		server_wants(v, link_of(i, l->server));
}

static void at_agent(struct frame_on_way *f)
{
	struct ag_core *c = &sim.agent[f->link->agent].core;

	if (frame_has_payload(&f->frame) && !ag_place(c, &f->link->ag, &f->frame, sim.now))
		return;
	ag_frame(c, &f->link->ag, &f->frame, sim.now);
}

static void on_land(struct frame_on_way *f)
{
	struct link *l = f->link;

	if (f->to_server)
		at_server(f);
	else
		at_agent(f);
	f->spare = sim.spare;
	sim.spare = f;
	if (f->to_server)
		pump_server(l->server);
	else
		pump_agent(&sim.agent[l->agent]);
}

static void on_sent(struct frame_on_way *f)
{
	struct link *l = f->link;
	struct server *v = &sim.server[l->server];

	if (f->to_server) {
		ag_sent(&sim.agent[l->agent].core, &l->ag, f->seg, f->frame.length, sim.now);
		pump_agent(&sim.agent[l->agent]);
	} else {
		srv_sent(&v->core, f->seg);
		l->tx_bytes -= (uint64_t)f->frame.length * SCALE;
		v->tx_bytes -= (uint64_t)f->frame.length * SCALE;
		server_wants(v, l);
		pump_server(l->server);
	}
}

static void on_tick(struct agent *a)
{
	ag_tick(&a->core, sim.now);
	pump_agent(a);
	later(&a->tick, sim.now + mono_ms(OFFER_AFTER_MS), EV_TICK, a);
}

static void run_until_done(void)
{
	while (sim.busy) {
		struct event *e = container_of(pheap_min(&sim.events), struct event, node);

		pheap_del(&sim.events, &e->node);
		sim.now = e->at;
		sim.steps++;
		switch (e->type) {
		case EV_SENT: on_sent(e->of); break;
		case EV_HEAD: on_head(e->of); break;
		case EV_LAND: on_land(e->of); break;
		case EV_TICK: on_tick(e->of); break;
		}
	}
}

/* ---- building ---- */

static uint64_t product(char *dims)
{
	uint64_t p = 1;
	char *save = NULL;

	for (char *d = strtok_r(dims, "x", &save); d; d = strtok_r(NULL, "x", &save))
		p *= strtoull(d, NULL, 10);
	return p;
}

/* Real sizes, to the bytes that whole simulated elements stand for. */
static void read_model(void)
{
	FILE *f = fopen(sim.model, "r");
	char name[256], dtype[32], dims[128];

	if (!f)
		die("no such tensor list; run from the top of the tree");
	while (fscanf(f, "%255s %31s %127s", name, dtype, dims) == 3) {
		double bytes = (double)(product(dims) * sizeof(float)) * sim.times;
		struct tensor *t = &sim.tensor[sim.ntensors++];

		if (sim.ntensors == TENSORS)
			die("too many tensors");
		t->bytes = MAX((uint64_t)(bytes / SCALE) / 4 * 4, 4u);
		sim.bytes += (double)(t->bytes * SCALE);
	}
	fclose(f);
}

/* Bits per second, nominal, of the machine's card. */
static uint64_t card_bits(uint32_t machine)
{
	double part = machine >= sim.n ? sim.cpu_speed : machine == 0 ? sim.gpu_speed : 1;

	return (uint64_t)((double)sim.bits_per_s * part);
}

static double place_all(void)
{
	uint32_t count = sim.n + sim.k;
	struct plan_machine *m = zeroed(count, sizeof(*m));
	double *share = zeroed(count, sizeof(*share));
	struct place_tensor *pt = zeroed(sim.ntensors, sizeof(*pt));
	struct place *p = zeroed(1, sizeof(*p));
	struct plan plan;
	struct err e;

	for (uint32_t i = 0; i < count; i++)
		m[i] = (struct plan_machine){ .bits_per_s = sim.card[i].bits_per_s,
					      .is_gpu = i < sim.n, .has_server = true };
	if (plan_solve(m, count, sim.bytes, share, &plan, &e))
		die(e.text);
	plan_weights(share, count, sim.weight);
	place_init(p, sim.chunk_bytes);
	if (place_start(p, sim.weight, count, &e))
		die(e.text);
	for (uint32_t i = 0; i < sim.ntensors; i++) {
		struct tensor *t = &sim.tensor[i];

		t->geom = (struct geom){ t->bytes, sim.chunk_bytes, sim.seg_bytes };
		t->owner = zeroed(geom_chunks(&t->geom), sizeof(*t->owner));
		t->data = zeroed(t->bytes, 1);
		t->result = zeroed(t->bytes, 1);
		pt[i] = (struct place_tensor){ .bytes = t->bytes, .owner = t->owner };
	}
	place_batch(p, pt, sim.ntensors);
	for (uint32_t i = 0; i < count; i++)
		share[i] = (double)p->server[i].assigned_bytes * SCALE;
	sim.t_placed = plan_time_of(m, count, sim.bytes, share);
	free(p);
	free(pt);
	free(share);
	free(m);
	return plan.round_time_s;
}

static void build_server(uint32_t j)
{
	struct server *v = &sim.server[j];
	struct srv_job_desc d = {
		.id = JOB, .n = sim.n, .world = sim.n, .epoch = EPOCH, .engines = 1,
		.chunk_bytes = sim.chunk_bytes, .seg_bytes = sim.seg_bytes,
		.window_bytes = sim.window_bytes,
	};

	srv_init(&v->core);
	srv_begin_with(&v->core, NODE + j % sim.n);
	pheap_init(&v->waiting, due_sooner);
	v->tx_limit = flight_bytes(card_bits(j));
	v->mem = zeroed(sim.ntensors, sizeof(*v->mem));
	v->job = srv_job_start(&v->core, zeroed(1, srv_job_size(sim.n, 1)), &d);
	for (uint32_t i = 0; i < sim.n; i++) {
		v->job->worker[i].node = NODE + i;
		v->job->worker[i].window = sim.window;
	}
	for (uint32_t k = 0; k < sim.ntensors; k++) {
		struct tensor *t = &sim.tensor[k];
		uint32_t chunks = geom_chunks(&t->geom);
		bool *mine = zeroed(chunks, sizeof(*mine));
		struct srv_tensor_desc td = { .id = k + 1, .dtype = DTYPE_F32, .geom = t->geom,
					      .mine = mine };
		uint64_t slots;

		for (uint32_t c = 0; c < chunks; c++)
			mine[c] = t->owner[c] == j;
		v->mem[k] = zeroed(1, srv_tensor_size(sim.n, &td, &slots));
		if (!t->slots)			/* the most that a server can want */
			t->slots = zeroed(chunks, align_up(sim.chunk_bytes, PAGE_BYTES));
		srv_tensor_add(&v->core, v->job, v->mem[k], t->slots, &td);
		free(mine);
	}
}

static void agent_tensors(uint32_t i)
{
	struct agent *a = &sim.agent[i];

	for (uint32_t k = 0; k < sim.ntensors; k++) {
		struct tensor *t = &sim.tensor[k];
		uint32_t chunks = geom_chunks(&t->geom);
		uint32_t *route = zeroed(chunks, sizeof(*route));
		struct ag_tensor_desc d = {
			.id = k + 1, .dtype = DTYPE_F32, .geom = t->geom, .route = route,
			.result = { t->result, t->result },
			.result_slot = { SLOT_SLAB(k, 0), SLOT_SLAB(k, 0) },
		};

		for (uint32_t c = 0; c < chunks; c++)
			route[c] = t->owner[c];
		a->mem[k] = zeroed(1, ag_tensor_size(&a->job, &d));
		a->tensor[k] = ag_tensor_add(&a->core, &a->job, a->mem[k], &d);
		free(route);
	}
}

static void build_link(uint32_t i, uint32_t j)
{
	struct link *l = link_of(i, j);

	l->agent = i;
	l->server = j;
	l->by_ref = i == j;
	ag_peer_init(&sim.agent[i].core, &l->ag, NODE + sim.n + j, 0);
	l->route = ag_route_init(zeroed(1, ag_route_size(sim.window_bytes)), &l->ag, 0,
				 sim.window_bytes, 0);
	srv_peer_init(&sim.server[j].core, &l->srv, NODE + i, 0);
}

static void build_agent(uint32_t i)
{
	struct agent *a = &sim.agent[i];
	uint64_t flight = flight_bytes(card_bits(i));
	struct ag_job_desc d = {
		.id = JOB, .n = sim.n, .me = i, .nlocal = 1, .world = sim.n, .epoch = EPOCH,
		.chunk_bytes = sim.chunk_bytes, .seg_bytes = sim.seg_bytes,
		.nroutes = sim.nservers,
	};

	ag_init(&a->core);
	a->route = zeroed(sim.nservers, sizeof(struct ag_route *));
	a->tensor = zeroed(sim.ntensors, sizeof(struct ag_tensor *));
	a->mem = zeroed(sim.ntensors, sizeof(void *));
	for (uint32_t j = 0; j < sim.nservers; j++) {
		build_link(i, j);
		a->route[j] = link_of(i, j)->route;
	}
	d.route = a->route;
	ag_job_start(&a->core, &a->job, &d);
	if (flight != UINT64_MAX)
		a->core.tx_limit = flight / SCALE;
	for (uint32_t j = 0; j < sim.nservers; j++) {
		struct link *l = link_of(i, j);

		ag_peer_up(&a->core, &l->ag, l->by_ref, 0);
		if (flight != UINT64_MAX)
			l->ag.tx_limit = flight_peer_bytes(flight, sim.nservers - 1) / SCALE;
	}
	agent_tensors(i);
}

/* As many segments as fit a real window, in pages of which a segment takes whole ones. */
static void build_window(void)
{
	uint32_t segs = sim.sizes.window_bytes / sim.sizes.seg_bytes;

	sim.window_bytes = (uint64_t)segs * align_up(sim.seg_bytes, PAGE_BYTES);
	sim.window = zeroed(sim.window_bytes, 1);
}

static void build(uint32_t chunk)
{
	uint64_t slowest = UINT64_MAX, fastest = 0;

	sim.nservers = sim.n + sim.k;
	sim.card = zeroed(sim.nservers, sizeof(*sim.card));
	for (uint32_t i = 0; i < sim.nservers; i++) {
		sim.card[i].bits_per_s = (uint64_t)((double)card_bits(i) * PAYLOAD);
		slowest = MIN(slowest, card_bits(i));
		fastest = MAX(fastest, card_bits(i));
	}
	place_sizes(&sim.sizes, chunk, sim.nservers, slowest, fastest);
	sim.chunk_bytes = sim.sizes.chunk_bytes / SCALE;
	sim.seg_bytes = sim.sizes.seg_bytes / SCALE;
	sim.t_opt = place_all();
	build_window();
	sim.agent = zeroed(sim.n, sizeof(*sim.agent));
	sim.server = zeroed(sim.nservers, sizeof(*sim.server));
	sim.link = zeroed((size_t)sim.n * sim.nservers, sizeof(*sim.link));
	for (uint32_t j = 0; j < sim.nservers; j++)
		build_server(j);
	for (uint32_t i = 0; i < sim.n; i++)
		build_agent(i);
}

static void unbuild(void)
{
	for (uint32_t i = 0; i < sim.n; i++) {
		for (uint32_t k = 0; k < sim.ntensors; k++)
			free(sim.agent[i].mem[k]);
		free(sim.agent[i].mem);
		free(sim.agent[i].tensor);
		free(sim.agent[i].route);
	}
	for (uint32_t i = 0; i < sim.n * sim.nservers; i++)
		free(sim.link[i].route);
	for (uint32_t j = 0; j < sim.nservers; j++) {
		for (uint32_t k = 0; k < sim.ntensors; k++)
			free(sim.server[j].mem[k]);
		free(sim.server[j].mem);
		free(sim.server[j].job);
	}
	for (uint32_t k = 0; k < sim.ntensors; k++) {
		struct tensor *t = &sim.tensor[k];

		free(t->owner);
		free(t->data);
		free(t->result);
		free(t->slots);
		t->slots = NULL;
	}
	free(sim.agent);
	free(sim.server);
	free(sim.link);
	free(sim.card);
	free(sim.window);
	while (sim.all) {
		struct frame_on_way *f = sim.all;

		sim.all = f->all;
		free(f);
	}
	sim.spare = NULL;
}

/* ---- a round ---- */

static void post_all(uint32_t i, uint32_t round)
{
	struct agent *a = &sim.agent[i];

	a->left = sim.ntensors;
	for (uint32_t k = 0; k < sim.ntensors; k++) {
		struct ag_post p = {
			.round = round, .rop = ROP_SUM, .root_local = -1, .seq = k + 1,
			.length = sim.tensor[k].bytes, .base = sim.tensor[k].data,
			.base_slot = SLOT_SLAB(k, 0),
		};

		ag_post(&a->core, a->tensor[k], &p, sim.now);
	}
}

static double round_time(uint32_t round)
{
	mono_t start = sim.now;

	sim.busy = sim.n;
	for (uint32_t i = 0; i < sim.n; i++)
		post_all(i, round);
	for (uint32_t i = 0; i < sim.n; i++)
		pump_agent(&sim.agent[i]);
	run_until_done();
	return (double)(sim.now - start) / (double)NS_PER_SEC;
}

static uint64_t wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / NS_PER_MS;
}

static void say_row(const char *what, uint32_t machine, const double busy[SLICES])
{
	printf("  %s %-3u %s", machine < sim.n ? "gpu" : "cpu",
	       machine < sim.n ? machine : machine - sim.n, what);
	for (uint32_t i = 0; i < SLICES; i++)
		printf(" %3.0f", 100 * busy[i]);
	printf("\n");
}

/* Of each card, in each slice of the round: the part of the time, in percent. */
static void say_busy(void)
{
	for (uint32_t i = 0; i < sim.nservers; i++) {
		say_row("sends   ", i, sim.card[i].tx_busy);
		say_row("receives", i, sim.card[i].rx_busy);
	}
}

static double simulate(const char *cluster, uint32_t chunk)
{
	uint64_t start = wall_ms();
	double t;

	sim.now = 0;
	sim.steps = sim.seq = 0;
	pheap_init(&sim.events, sooner);
	build(chunk);
	for (uint32_t i = 0; i < sim.n; i++)
		later(&sim.agent[i].tick, mono_ms(OFFER_AFTER_MS) * i / sim.n, EV_TICK,
		      &sim.agent[i]);
	t = round_time(1);
	printf("%-13s %4u KiB %10.4f s %10.4f s %7.4f %7.4f %12llu %8.1f s\n", cluster,
	       sim.sizes.chunk_bytes >> 10, t, sim.t_opt, sim.t_placed / sim.t_opt, t / sim.t_opt,
	       (unsigned long long)sim.steps,
	       (double)(wall_ms() - start) / 1000);
	if (sim.verbose)
		say_busy();
	fflush(stdout);
	unbuild();
	return t / sim.t_opt;
}

static void read_cluster(const char *text)
{
	sim.cpu_speed = sim.gpu_speed = 1;
	if (sscanf(text, "%u,%u,%lf,%lf", &sim.n, &sim.k, &sim.cpu_speed, &sim.gpu_speed) < 2 ||
	    sim.n < 2 || sim.n > AGENTS_PER_JOB_MAX || sim.k > SERVERS_PER_JOB_MAX - sim.n ||
	    sim.cpu_speed <= 0 || sim.gpu_speed <= 0)
		die("a cluster is N,K[,CPU[,GPU]]");
}

int main(int argc, char **argv)
{
	double gbit = 1, worst = 0, limit = 0, ratio;
	uint32_t chunk = 0;
	int opt;

	while ((opt = getopt(argc, argv, "b:m:x:c:l:v")) != -1) {
		switch (opt) {
		case 'b': gbit = strtod(optarg, NULL); break;
		case 'm': sim.model = optarg; break;
		case 'x': sim.times = strtod(optarg, NULL); break;
		case 'c': chunk = (uint32_t)strtoul(optarg, NULL, 10) << 10; break;
		case 'l': limit = strtod(optarg, NULL); break;
		case 'v': sim.verbose = true; break;
		default: die("round_sim [-b GBIT] [-m MODEL] [-x TIMES] [-c KIB] [-l LIMIT] [-v] "
			     "N,K[,CPU[,GPU]]...");
		}
	}
	kern_init(~0u);
	sim.bits_per_s = (uint64_t)(gbit * 1e9);
	read_model();
	printf("%u tensors, %.1f MB, cards of %g Gbit/s\n%-13s %8s %12s %12s %7s %7s %12s %10s\n",
	       sim.ntensors, sim.bytes / 1e6, gbit, "n,k", "chunk", "round", "t_opt", "placed",
	       "ratio", "events", "wall");
	for (int i = optind; i < argc; i++) {
		read_cluster(argv[i]);
		ratio = simulate(argv[i], chunk);
		worst = MAX(worst, ratio);
	}
	return limit > 0 && worst > limit;
}
