/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - whole clusters in one process, every one repeatable from its seed.
 *
 * For: the real cores of agents and servers, with real memory, over a network
 * that loses, repeats, reorders, delays and breaks; DESIGN section 3 checked
 * after every step.  Not for: sockets, rings, threads, the scheduler's core.
 *
 * A seed decides everything: machines, ranks, servers, tensors, faults, and the
 * order of all events (time, then sequence).  One struct sim is one run.
 *
 *	sim_event.c	the clock and the queue of events
 *	sim_net.c	frames on their way, and what happens to them there
 *	sim_lane.c	lanes that break and come back, processes that stand still
 *	sim_build.c	agents, servers, links, the job and its tensors
 *	sim_cluster.c	what the shells would do around the cores
 *	sim_rank.c	ranks: data, order of submission, what a result must be
 *	main.c		parameters from a seed, sets of runs, what was exercised
 *
 * A frame with payload goes as over TCP: its bytes are read from the borrowed
 * address when it is transmitted (after ag_next/srv_next), the receiver says
 * where they shall land when the header arrives, and they land there later; a
 * lane that breaks in between leaves a part of them.  By reference nothing
 * travels but the header.
 */
#ifndef TALLY_TESTS_SIM_H
#define TALLY_TESTS_SIM_H

#include "common/base/bytes.h"
#include "server/server_core.h"
#include "worker-agent/agent_front.h"

enum {
	SIM_AGENTS = 6,
	SIM_SERVERS = 4 + SIM_AGENTS,	/* CPU servers, then colocated ones */
	SIM_LOCAL = 3,
	SIM_RANKS = SIM_AGENTS * SIM_LOCAL,
	SIM_TENSORS = 10,
	SIM_ROUNDS = 16,
	SIM_LANES = 6,			/* per link; half of them stand in for broken ones */
	SIM_SLABS = SIM_TENSORS * (SIM_LOCAL + 2),
	SIM_JOB = 7,
	SIM_EPOCH = 3,
	SIM_NODE = 100,			/* node number of agent 0 */
};

struct sim;

/* ---- what a seed decides before the first event ---- */

struct sim_params {
	uint64_t seed;
	uint32_t n, k, world, nservers;
	uint32_t nlocal[SIM_AGENTS];
	uint32_t machine[SIM_RANKS];	/* of a rank */
	uint32_t home[SIM_SERVERS];	/* agent on the same machine, or UINT32_MAX */
	uint32_t chunk_bytes, seg_bytes, window_bytes;
	uint32_t ntensors, rounds;
	uint32_t lanes;
	uint64_t tx_limit;
	uint32_t server_queue;		/* frames a server hands a link at once */
	uint32_t order;			/* enum sim_order */
	uint32_t lookahead;
	uint32_t loss, dup, forge;	/* of 1000 frames */
	uint32_t spike;			/* of 1000 frames: late by up to a second */
	bool reorder;			/* inside a lane too */
	mono_t latency, jitter;
	mono_t faults_end;		/* none after that */
	mono_t break_every, pause_every; /* mean; 0: never */
	mono_t stop_at;			/* the job is stopped in mid-flight; 0: when all is done */
};

enum sim_order { ORDER_RANDOM, ORDER_FIRST, ORDER_LAST, ORDER_CROSSED };

void sim_params_make(struct sim_params *p, uint64_t seed);
void sim_params_print(const struct sim_params *p);

/* ---- events ---- */

enum sim_event_type {
	EV_TICK,		/* agent */
	EV_RANK,		/* rank: does something */
	EV_SUBMIT,		/* agent; rank, tensor: a descriptor comes out of the ring */
	EV_TRANSMIT, EV_ARRIVE, EV_LAND, /* msg */
	EV_BREAK,		/* link; all: every lane */
	EV_CLOSED,		/* link, lane, end: that end has noticed */
	EV_OPEN,		/* link: the server's end of a new lane, then the agent's */
	EV_OPENED,		/* link, lane */
	EV_PAUSE,		/* a process */
	EV_REMOVE,		/* process, tensor */
};

struct sim_msg;
struct sim_link;

struct sim_event {
	mono_t at;
	uint64_t seq;
	enum sim_event_type type;
	uint32_t proc;			/* whose it is: waits while that one is stopped */
	uint32_t a, b;			/* by type */
	struct sim_msg *msg;
	struct sim_link *link;
};

#define SIM_NOBODY UINT32_MAX

struct sim_queue {
	struct sim_event *heap;
	uint32_t len, cap;
	uint64_t seq;
};

void sim_at(struct sim *s, mono_t delay, const struct sim_event *e);
bool sim_pop(struct sim *s, struct sim_event *e);	/* moves the clock */
void sim_again_at(struct sim *s, mono_t at, const struct sim_event *e); /* keeps its seq */

/* ---- the network ---- */

enum { TO_SERVER, TO_AGENT };
enum sim_msg_state { MSG_QUEUED, MSG_WIRE, MSG_LANDING, MSG_DEAD };

struct sim_msg {
	struct list link;		/* in sim_link.msgs */
	struct sim_link *on;
	uint32_t lane, gen;
	uint8_t dir, state;
	bool forged, copied;
	struct frame frame;
	const uint8_t *from;		/* borrowed from the sender while QUEUED */
	void *seg;			/* the sender's, while QUEUED with data */
	uint8_t *bytes;			/* on the wire; owned */
	uint8_t *to;			/* borrowed from the receiver while LANDING */
};

struct sim_lane {
	bool open[2];			/* at the server's end, at the agent's */
	bool cut;
	uint32_t gen;
	mono_t last[2];			/* arrival of the last frame, by direction */
};

struct sim_link {
	uint32_t agent, server;
	bool by_ref;
	struct sim_lane lane[SIM_LANES];
	struct list msgs;
	uint32_t queued[2];
	struct ag_peer ag;
	struct srv_peer srv;
};

void sim_link_open(struct sim *s, struct sim_link *l);
void sim_net_faults(struct sim *s);
bool sim_send(struct sim *s, struct sim_link *l, uint8_t dir, const struct frame *f,
	      const void *data, void *seg);
bool sim_net_event(struct sim *s, const struct sim_event *e);	/* false: no frame's */
bool sim_lane_event(struct sim *s, const struct sim_event *e);	/* false: no lane's */
bool sim_link_is_open(const struct sim_link *l, uint32_t end);	/* 1: at the agent's end */
void sim_give_back(struct sim *s, struct sim_msg *m);	/* what was queued is the sender's again */
void sim_msg_free(struct sim *s, struct sim_msg *m);
void sim_net_cut_all(struct sim *s);	/* both ends notice at once */

/* ---- processes ---- */

struct sim_slab {
	uint8_t *base;
	uint64_t bytes;
};

struct sim_tensor {			/* what all agree on */
	uint32_t id;
	uint8_t dtype;
	struct geom geom;
	uint16_t *owner;		/* server of each chunk */
	uint8_t *expect[2];		/* by parity of the round */
	uint32_t expect_round[2];
	uint32_t completions;		/* (agent, round) pairs */
	bool ends;			/* is removed everywhere once all rounds are done */
};

struct sim_agent_tensor {
	void *mem, *sum, *result;
	struct ag_tensor *core;
	struct fr_tensor *front;
	uint8_t *input[SIM_LOCAL];
	uint32_t posts;
};

struct sim_agent {
	struct ag_core core;
	struct front front;
	struct fr_job fjob;
	struct ag_job *job;
	uint32_t nslabs;
	struct sim_slab slab[SIM_SLABS];
	struct sim_agent_tensor tensor[SIM_TENSORS];
};

struct sim_server {
	struct srv_core core;
	struct srv_job *job;
	uint8_t *window[SIM_AGENTS];
	struct sim_server_tensor {
		void *mem;
		uint8_t *slots;
		struct srv_tensor *core;
	} tensor[SIM_TENSORS];
};

struct sim_rank {
	uint32_t local;
	uint32_t pos;			/* everything before it in sim.order is submitted */
	int32_t waiting;		/* tensor, or -1 */
	uint32_t submitted[SIM_TENSORS], done[SIM_TENSORS]; /* rounds */
};

struct sim {
	struct sim_params p;
	bool trace;
	struct rng rng;
	mono_t now, last_progress;
	struct sim_queue queue;
	uint64_t steps, rounds_done;	/* tensor rounds complete on every agent */
	uint64_t msgs;			/* alive */
	bool stopped;
	bool failed;
	char why[256];
	mono_t paused_until[SIM_AGENTS + SIM_SERVERS];
	struct sim_agent *agent[SIM_AGENTS];
	struct sim_server *server[SIM_SERVERS];
	struct sim_link *link[SIM_AGENTS][SIM_SERVERS];
	struct sim_tensor tensor[SIM_TENSORS];
	struct sim_rank rank[SIM_RANKS];
	uint32_t norder;
	struct { uint32_t tensor, round; } order[SIM_TENSORS * SIM_ROUNDS];
};

/* What has been exercised, over all runs. */
struct sim_totals {
	uint64_t rounds, steps, runs;
	uint64_t lost, repeated, forged, broken, all_broken, torn, paused, stopped_early, removed,
		 by_ref_frames, ahead;
	struct srv_counters srv;
	struct ag_counters ag;
};

extern struct sim_totals sim_totals;

void sim_build(struct sim *s);
void sim_free(struct sim *s);
void sim_stop_job(struct sim *s);
void sim_pump_agent(struct sim *s, uint32_t agent);
void sim_pump_server(struct sim *s, uint32_t server);
void sim_check(struct sim *s, uint32_t proc);
bool sim_proc_event(struct sim *s, const struct sim_event *e);
void *sim_resolve(struct sim_agent *a, uint64_t slot, uint64_t len); /* NULL: no such bytes */

static inline uint32_t sim_agent_proc(uint32_t agent)
{
	return agent;
}

static inline uint32_t sim_server_proc(uint32_t server)
{
	return SIM_AGENTS + server;
}

/* ---- ranks ---- */

uint8_t sim_rop(const struct sim *s, uint32_t tensor, uint32_t round);
uint32_t sim_root(const struct sim *s, uint32_t tensor, uint32_t round);
void sim_ranks_start(struct sim *s);
bool sim_rank_event(struct sim *s, const struct sim_event *e);	/* false: not a rank's */
/* The agent has finished a round: what it shows its ranks must be right. */
void sim_round_done(struct sim *s, uint32_t agent, uint32_t tensor, uint32_t round);
bool sim_all_done(const struct sim *s);

/* ---- running ---- */

void sim_run(struct sim *s);
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(const struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline uint64_t sim_below(struct sim *s, uint64_t n)
{
	return rng_below(&s->rng, n);
}

static inline bool sim_chance(struct sim *s, uint32_t of_1000)
{
	return sim_below(s, 1000) < of_1000;
}

static inline bool sim_faulty(const struct sim *s)
{
	return s->now < s->p.faults_end && !s->stopped;
}

#endif
