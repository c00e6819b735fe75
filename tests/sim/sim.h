/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - whole clusters in one process, every one repeatable from its seed.
 *
 * For: the real cores of scheduler, agents and servers, with real memory, over a
 * network that loses, repeats, reorders, delays and breaks; servers that die, stand
 * still, are cut off, drain and join; a scheduler that dies and comes back with no more
 * than its numbers; agents that die.  One job or two, which must not notice each other.
 * DESIGN section 3 is checked after every step.  Not for: sockets, rings, threads.
 *
 * A seed decides everything: machines, ranks, servers, tensors, faults, and the
 * order of all events (time, then sequence).  One struct sim is one run.
 *
 *	sim_event.c	true time and the queue of events
 *	sim_clock.c	what each process's clock says
 *	sim_net.c	frames on their way, and what happens to them there
 *	sim_lane.c	lanes that break and come back, processes that stand still
 *	sim_ctl.c	control connections, and the scheduler at the end of them
 *	sim_status.c	what the CLI is told, beside what is so
 *	sim_wait.c	... of rounds that wait, and for whom
 *	sim_log.c	a job's log as one process has replayed it
 *	sim_agent.c	agents: what their control threads do
 *	sim_ask.c	what ranks ask the scheduler through them, and ask again
 *	sim_held.c	what agents tell after each registration
 *	sim_return.c	agents that are started again
 *	sim_server.c	servers: what their control threads do
 *	sim_life.c	who dies, comes, is cut off, drains, and when
 *	sim_slow.c	servers that are too slow for their share
 *	sim_grow.c	ranks that come in the place of lost ones
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
#include "common/place/place.h"
#include "proto/msg.h"
#include "scheduler/sched_core.h"
#include "server/server_core.h"
#include "worker-agent/agent_front.h"

enum {
	SIM_AGENTS = 8,
	SIM_KEYS = 64,			/* numbers of agents that a server may hear of */
	SIM_JOBS = 2,
	RUN_ROUNDS = 20,		/* of tensors, in each run at least */
	RUN_FAULTS = 3,			/* and so many faults */
	SIM_SERVERS = 64,		/* every process start counts, and every registration */
	SIM_ROWS = 64,			/* of a job's list of servers */
	SIM_PARTS = 64,			/* of one tensor at one server */
	SIM_AGENT_LIVES = 8,		/* of one agent, after the first */
	SIM_CHUNKS = 24,		/* of one tensor */
	SIM_PROCS = SIM_AGENTS + SIM_SERVERS,
	SIM_SCHED = SIM_PROCS,		/* its clock */
	SIM_CONNS = 256,
	SIM_LAGS = SIM_AGENTS + 8 + 1,
	SIM_SCALE = 16,			/* the scheduler sees everything so much larger: its limits
					 * are for real tensors */
	SIM_LOCAL = 3,
	SIM_RANKS = SIM_AGENTS * SIM_LOCAL,
	SIM_WORLDS = SIM_RANKS + 1,	/* between two growths */
	SIM_LIVES = 4,			/* of a rank */
	SIM_TENSORS = 8,
	SIM_ROUNDS = 24,
	SIM_LANES = 6,			/* per link; half of them stand in for broken ones */
	SIM_SLABS = SIM_JOBS * SIM_TENSORS * (SIM_LOCAL + 2) * 8,
	SIM_WIRES = SIM_TENSORS + 2,
	SIM_BARRIERS = 4,
	SIM_RETRIES = 16,		/* of a declaration that was refused */
	/* Of each rank: join, declare twice and again, undeclare each, barriers. */
	SIM_ASKED = SIM_RANKS * SIM_LIVES * (2 * SIM_TENSORS + 3 + SIM_RETRIES + SIM_BARRIERS),
};

struct sim;

/* ---- what a seed decides before the first event ---- */

struct sim_job_params {
	uint32_t n, world;		/* machines, ranks */
	uint32_t agent[SIM_AGENTS];	/* of a machine, by its lowest rank */
	uint32_t nlocal[SIM_AGENTS];	/* ranks of a machine */
	uint32_t machine[SIM_RANKS];	/* of a rank */
	uint32_t ntensors, rounds;
	uint32_t late;			/* tensors that are declared while others are trained */
	uint32_t stop_at;		/* rounds until it is stopped in mid-flight; 0: never */
	uint32_t barriers;		/* at even distances in the common order */
	uint32_t order;			/* enum sim_order */
	uint32_t lookahead;
	bool shrink;			/* goes on without the ranks that it loses */
	bool grow;			/* and lets others come in their place at its barriers */
};

struct sim_params {
	uint64_t seed;
	uint32_t n, k, nservers, njobs;
	struct sim_job_params job[SIM_JOBS];
	uint32_t home[SIM_SERVERS];	/* of the first: agent on the same machine, or UINT32_MAX */
	uint32_t chunk_bytes, seg_bytes, window_bytes;
	uint32_t lanes;
	uint64_t tx_limit;
	uint32_t server_queue;		/* frames a server hands a link at once */
	uint32_t loss, dup, forge;	/* of 1000 frames */
	uint32_t spike;			/* of 1000 frames: late by up to a second */
	bool reorder;			/* inside a lane too */
	mono_t latency, jitter;
	mono_t faults_end;		/* none after that */
	mono_t break_every, pause_every; /* mean; 0: never */
	mono_t life_every;		/* mean time between what happens to processes; 0: never */
	bool agents_die;		/* one does, perhaps: its jobs end */
	bool agents_return;		/* they die and are started again */
	bool parts;			/* machines are cut off from all others, for longer than the
					 * grace */
	bool ranks_die;			/* one, of a job that cannot go on without */
	bool refuse_save;		/* the state directory is full now and then */
	uint32_t early;			/* faults while the jobs come up */
	uint32_t untold;		/* of 1000 messages of a job: the scheduler dies then */
	uint32_t skew;			/* of a million: clocks are slow or fast by up to that */
	uint32_t starve, starve_hard;	/* of 1000 times that memory is wanted; where that ends
					 * the job */
	uint32_t famine;		/* of 1000 times that the scheduler wants memory */
	uint32_t slow, slow_name;	/* servers of that name take so many times as long */
	mono_t lag[SIM_LAGS];		/* slow processes: what comes to them waits so long; servers
					 * by their names, and the scheduler's is the last */
	mono_t slow_time;		/* from when the run begins; */
	mono_t think;			/* and ranks so long, from one round to the next */
};

enum sim_order { ORDER_RANDOM, ORDER_FIRST, ORDER_LAST, ORDER_CROSSED };

void sim_params_make(struct sim_params *p, uint64_t seed);
void sim_params_print(const struct sim_params *p);

/* ---- events ---- */

enum sim_event_type {
	EV_TICK,		/* agent */
	EV_RANK,		/* rank a of job c: does something; b: agent's life + 1, to which
				 * it comes back, or 0 */
	EV_SUBMIT,		/* rank a of job c, tensor b: a descriptor comes out of the ring */
	EV_PIECE,		/* the same for one chunk, b: tensor + chunk * SIM_TENSORS */
	EV_TRANSMIT, EV_ARRIVE, EV_LAND, /* msg */
	EV_BREAK,		/* link; all: every lane */
	EV_CLOSED,		/* link, lane, end: that end has noticed */
	EV_OPEN,		/* link: the server's end of a new lane, then the agent's */
	EV_OPENED,		/* link, lane */
	EV_PAUSE,		/* a process */
	EV_SCHED,		/* the scheduler's timer */
	EV_SCHED_GONE,		/* conn a, use b of it: the scheduler is told that it is closed */
	EV_SCHED_START,		/* it is started again */
	EV_CTL,			/* a control message arrives: sim_ctl_msg */
	EV_CTL_CLOSED,		/* proc a, generation b: one end of its connection has noticed */
	EV_CTL_OPEN,		/* proc a connects */
	EV_BEAT,		/* proc a: heartbeat */
	EV_LIFE,		/* something happens to a process; a: server name and 1 to start;
				 * b: 1 while the jobs come up, 2 the scheduler dies */
	EV_ASK,			/* agent a: what use b of its connection left unanswered */
	EV_DECLARE,		/* the late tensors of job c; again rank a - 1, b: what */
	EV_AGENT_START,		/* agent a is started again */
	EV_LET_GO,		/* proc a: what is no longer borrowed goes */
	EV_COME,		/* somebody wants to be rank a of job c, which was lost */
};

struct sim_msg;
struct sim_link;
struct sim_ctl_msg;

struct sim_event {
	mono_t at;
	uint64_t seq;
	enum sim_event_type type;
	uint32_t proc;			/* whose it is: waits while that one is stopped */
	uint32_t a, b, c;		/* by type */
	struct sim_msg *msg;
	struct sim_link *link;
	struct sim_ctl_msg *ctl;
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

/* ---- clocks: true time is s->now ---- */

struct sim_clock {
	mono_t zero, since;		/* what it said at that time */
	int64_t rate;			/* of a million */
};

void sim_clock_start(struct sim *s, uint32_t proc);
mono_t sim_clock(const struct sim *s, uint32_t proc);	/* what it says now */
/* How long it takes until that time has passed on it. */
mono_t sim_clock_wait(const struct sim *s, uint32_t proc, mono_t time);

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
	uint32_t life;			/* of the agent */
	bool by_ref;
	bool greeted;			/* the server has seen that it is another process */
	bool ended;			/* the agent does not want it any more */
	struct sim_link *before;	/* between the same two, ended */
	bool dead[2];			/* the process at this end has ended: server, agent */
	mono_t blind_until[2];		/* by direction: nothing gets through before */
	struct sim_lane lane[SIM_LANES];
	struct list msgs;
	uint32_t queued[2];
	struct ag_peer ag;
	struct srv_peer srv;
};

mono_t sim_lag(const struct sim *s, uint32_t proc);
void sim_link_open(struct sim *s, struct sim_link *l);
void sim_net_faults(struct sim *s);
void sim_net_fault(struct sim *s);	/* a lane breaks, or all of a link, or a process stalls */
bool sim_pause(struct sim *s, uint32_t proc, mono_t time);	/* true: one that was running */
bool sim_send(struct sim *s, struct sim_link *l, uint8_t dir, const struct frame *f,
	      const void *data, void *seg);
bool sim_net_event(struct sim *s, const struct sim_event *e);	/* false: no frame's */
bool sim_lane_event(struct sim *s, const struct sim_event *e);	/* false: no lane's */
bool sim_link_is_open(const struct sim_link *l, uint32_t end);	/* 1: at the agent's end */
void sim_give_back(struct sim *s, struct sim_msg *m);	/* what was queued is the sender's again */
void sim_msg_free(struct sim *s, struct sim_msg *m);
void sim_net_cut_all(struct sim *s);	/* both ends notice at once */
void sim_link_end(struct sim *s, struct sim_link *l);	/* the agent's end, at once and for good */
void sim_link_unlist(struct sim *s, struct sim_link *l);	/* the server has noticed, too */
void sim_link_fence(struct sim *s, struct sim_link *l);	/* its lanes go, another job needs it */
void sim_link_died(struct sim *s, struct sim_link *l, uint32_t end); /* that process has ended */
struct sim_link *sim_link_get(struct sim *s, uint32_t agent, uint32_t server);
void sim_link_break_all(struct sim *s, struct sim_link *l);
void sim_link_outdated(struct sim *s, uint32_t agent, uint32_t server);	/* of processes before */

/* ---- processes ---- */

struct sim_slab {
	uint8_t *base;
	uint64_t bytes;
};

struct sim_tensor {			/* what all agree on */
	uint8_t dtype;
	uint32_t id;			/* as ranks are told */
	struct geom geom;
	uint8_t *expect[2];		/* by parity of the round */
	uint32_t expect_round[2];
	uint32_t expect_world[2];	/* bits: ranks that the sum is of */
	uint32_t fixed[2], world[2];	/* by parity: round that some machine shows, of whom */
	uint32_t done[SIM_AGENTS], all;	/* rounds: of each machine, of all that live */
	mono_t pushed_at;		/* the last has come to some server */
	mono_t all_at[SIM_ROUNDS + 1];	/* a round is over since then */
	uint32_t root[SIM_ROUNDS + 2];	/* of a broadcast, and 1; 0: not chosen yet */
	bool ends;			/* is undeclared once all rounds are done */
};

/* A job's log as one process has replayed it. */
struct sim_log {
	struct place *place;		/* NULL: no job */
	uint64_t seq, told;
	uint64_t epoch_seq;		/* of the last EPOCH */
	uint64_t forget_seq, forget_from;	/* as a server's */
	uint32_t ngone, grown;		/* ranks that it was told are gone; that came back, */
	uint64_t grown_at;		/* the last of them at this barrier */
	uint32_t n, k[SIM_TENSORS];	/* tensors in log order */
	uint32_t id[SIM_TENSORS];	/* of tensor k */
	uint64_t entry[SIM_TENSORS];
	struct place_tensor pt[SIM_TENSORS];
	uint16_t owner[SIM_TENSORS][SIM_CHUNKS];
	uint32_t since[SIM_TENSORS][SIM_CHUNKS];
};

/* A node's end of its control connection. */
struct sim_ctl {
	bool open[2];			/* at the scheduler, at the node */
	bool registered;
	bool lost;			/* what is on its way will not arrive */
	uint32_t gen, conn;
	mono_t last[2];			/* arrival of the last message, by direction */
	mono_t echo;			/* of the last heartbeat */
	mono_t cut_until;		/* nothing gets through before, */
	bool cut[2];			/* these ways; no new connection at all */
	bool silent;			/* an agent: through a recovery, and not back yet */
	uint64_t beats;
	mono_t beat_at;			/* the last of them was sent */
	uint64_t epoch_seen;
	uint8_t instance[ID_BYTES];
};

struct sim_agent_tensor {
	void *mem, *sum, *result;
	uint64_t *marks;		/* of both parities; ranks keep them */
	struct ag_tensor *core;
	struct fr_tensor *front;
	uint8_t *input[SIM_LOCAL];
	_Atomic uint32_t words[SIM_LOCAL][SIM_CHUNKS];	/* of rounds by pieces */
	uint32_t slab;
	bool removed;
	uint32_t elsewhere;		/* last round that this machine missed */
	bool kept;			/* inputs are those of the process before */
};

struct sim_agent_job {
	struct fr_job front;
	struct ag_job *core;		/* NULL: has not come up */
	uint32_t me;			/* machine */
	bool left;			/* its ranks have detached */
	bool stuck;			/* some round waited, as it said last */
	bool over;
	int code;			/* why it ended */
	uint32_t starved_gen;		/* connection on which it said that it cannot follow */
	bool root_lost;			/* it cannot go on, as it says until it ends */
	struct sim_log log;
	uint8_t *up_wire, *epoch_wire;	/* as they came; owned */
	uint64_t epoch, settled_told;
	uint64_t barriers;		/* that some rank has passed, as this process knows */
	uint32_t nrows, row[SIM_ROWS];	/* node of each server of the epoch, 0: gone */
	struct ag_route *table[SIM_ROWS];
	struct ag_route *route[SIM_SERVERS];	/* by server; NULL: none */
	struct sim_agent_tensor tensor[SIM_TENSORS];
	uint32_t nback;			/* ranks that are not back yet */
	bool back[SIM_RANKS];
	mono_t busy_until[SIM_RANKS];	/* it computes, and has not heard of it; 0: it does not */
	uint32_t nwires;		/* of the job as it is told again; owned */
	uint8_t *wire[SIM_WIRES];
};

struct sim_agent {
	struct sim_ctl ctl;
	uint32_t node, was_node;	/* was_node: before it was started again */
	uint8_t key[KEY_BYTES];		/* that its links present */
	uint32_t life;
	struct sim_agent *before;	/* the process before; owned: its memory is shared */
	bool alive;
	bool coming;			/* is to be started again, with its ranks */
	bool alone;			/* without them */
	bool given_up;			/* by the scheduler, and has not heard it yet */
	mono_t parted_at;		/* cut off from all others, last */
	struct ag_core core;
	struct front front;
	struct sim_agent_job job[SIM_JOBS];
	uint32_t nslabs;
	struct sim_slab slab[SIM_SLABS];
};

struct sim_part {
	void *mem;
	uint8_t *slots;
	struct srv_tensor *core;
	uint32_t epoch;
	bool mine[SIM_CHUNKS], leaving[SIM_CHUNKS];
	bool left;			/* what leaves may go */
};

struct sim_server_job {
	struct srv_job *core;		/* NULL: none */
	struct sim_log log;
	uint64_t epoch;			/* that it came up with */
	uint64_t refused;		/* as a server's of the daemon */
	uint32_t refused_id;
	uint64_t settled;		/* the last that it was told all follow, */
	mono_t settled_at;		/* then */
	uint32_t ready_type;		/* the last that it said of its log */
	uint64_t ready_seq;
	int ready_code;
	uint32_t me;			/* its row */
	uint8_t *window[SIM_AGENTS];
	struct { uint32_t n; struct sim_part part[SIM_PARTS]; } tensor[SIM_TENSORS];
};

struct sim_server {
	struct sim_ctl ctl;
	uint32_t node, home, name;
	bool alive;			/* the process runs */
	bool replaced;			/* it has registered anew as somebody else */
	bool draining;			/* as it was told */
	uint32_t next_life, last_life;	/* server in the table, or nobody */
	bool heard[SIM_AGENTS];		/* a frame has come since the scheduler asked */
	uint32_t nkeys;			/* of agents that jobs have named, by their numbers */
	struct msg_agent_key key[SIM_KEYS];
	double bytes, busy;		/* as its heartbeats say: summed, and seconds */
	mono_t beat_at;
	struct srv_core core;
	struct sim_server_job job[SIM_JOBS];
};

struct sim_rank {
	uint32_t local;
	uint32_t life;			/* 0: its first process */
	bool heard;			/* its agent's world has it, in this life */
	uint32_t pos;			/* everything before it in sim.order is submitted */
	int32_t waiting;		/* tensor, or -1 */
	uint32_t barriers, passed;	/* entered; and come out of again */
	bool declared[SIM_TENSORS];	/* it has been told so */
	uint32_t submitted[SIM_TENSORS], done[SIM_TENSORS]; /* rounds */
	mono_t submitted_at[SIM_TENSORS];
	uint32_t again[SIM_TENSORS];	/* the round that was submitted to two agents */
	bool away;			/* its agent was started again, which it has not seen */
};

#define SIM_ODD (SIM_TENSORS + 1)	/* a tensor on which ranks disagree */

struct sim_asked {
	enum msg_type type;
	uint32_t rank, first, n;	/* tensors */
	uint32_t life;			/* of the rank that asks */
	uint32_t id;			/* UNDECLARE; BARRIER: its generation; of SIM_ODD: on which
					 * connection of which agent */
	uint32_t gen;			/* of the agent's connection when it was asked last */
	bool answered, done;
};

struct sim_job {
	const struct sim_job_params *p;
	uint32_t index, number;		/* number: 0 until it is up */
	bool declared, started, over;
	bool starved;			/* memory was refused without which it cannot go on */
	uint32_t odd_of;		/* of the scheduler whom ranks disagreed before */
	bool shaken;			/* a last time before its ranks detach */
	uint64_t rounds_done;		/* tensor rounds complete on every agent */
	uint32_t lost;			/* bits: ranks that have ended, or their agents; */
	uint32_t coming;		/* of these: others wait in their place */
	uint32_t gave_up;		/* no more, of which the scheduler may not have heard */
	uint32_t grown;			/* as the first agent heard it */
	uint32_t grown_by[SIM_BARRIERS + 1];	/* what ranks heard at each barrier, and 1 */
	bool late_declared;
	uint32_t nworlds, worlds[SIM_WORLDS];	/* bits: that some agent has been in */
	bool ended;			/* a broadcast's root is lost */
	bool dying;			/* a rank has ended, and it cannot go on without */
	mono_t last_progress;
	mono_t last_move;		/* of chunks, from server to server */
	mono_t pushed_at[SIM_AGENTS];	/* by a machine: the last has come to some server */
	struct sim_tensor tensor[SIM_TENSORS];
	struct sim_rank rank[SIM_RANKS];
	uint32_t norder;
	struct { uint32_t tensor, round; } order[SIM_TENSORS * SIM_ROUNDS];
	uint32_t nasked;
	struct sim_asked asked[SIM_ASKED];
};

struct sim {
	struct sim_params p;
	bool trace;
	struct rng rng;
	mono_t now;
	struct sim_queue queue;
	uint64_t steps;
	uint64_t trail;			/* of all events, as a number */
	uint64_t msgs;			/* alive */
	bool stopped;
	bool failed;
	char why[256];
	mono_t paused_until[SIM_PROCS];
	struct sim_clock clock[SIM_PROCS + 1];
	struct sched *sched;		/* NULL: it is not there */
	struct sched_ids saved;		/* its state directory */
	mono_t sched_at;		/* its timer */
	mono_t sched_still;		/* it stands still until then; */
	mono_t deaf_until;		/* by its clock, the last time */
	mono_t full_until;		/* its disk, where refuse_save */
	mono_t sched_since;		/* by its clock: started, */
	uint32_t sched_lives;
	mono_t recovers_until;		/* and recovers; MONO_NEVER: it could not save yet */
	bool save_failed;		/* the last one */
	uint64_t epoch_told;		/* by the status, ever */
	uint64_t looks;			/* at the status */
	struct {
		uint32_t proc;		/* whose connection, or nobody */
		bool busy;
		uint32_t use;		/* how often it was one */
		uint32_t who;		/* proc that has connected */
		uint32_t node;		/* number that the scheduler gave it; 0: none (yet) */
		mono_t heard;		/* by its clock */
		uint64_t beat;		/* the last that has come */
	} conn[SIM_CONNS];
	uint64_t ctl_msgs;		/* under way */
	uint32_t nservers;
	bool started;			/* faults and ranks have begun */
	mono_t slow_until, slow_since;	/* since: nothing has kept it from being told */
	double slow_pace;		/* that slow_node had last */
	uint32_t slow_node;
	mono_t linked_at;		/* some agent and server, last */
	mono_t faulted_at;		/* the last fault */
	uint64_t faults, faults_due;	/* that somebody has felt; and how many of RUN_FAULTS were
					 * forced */
	struct sim_agent *agent[SIM_AGENTS];
	struct sim_server *server[SIM_SERVERS];
	struct sim_link *link[SIM_AGENTS][SIM_SERVERS];
	struct sim_job job[SIM_JOBS];
};

/* What has been exercised, over all runs. */
struct sim_totals {
	uint64_t rounds, steps, runs, faults;
	uint64_t full_runs;		/* of RUN_ROUNDS rounds and RUN_FAULTS faults at least */
	uint64_t short_runs;		/* of fewer rounds: a job lost a broadcast's root */
	uint64_t lost, repeated, forged, broken, all_broken, torn, paused, stopped_early, removed,
		 by_ref_frames, ahead, crashes, joins, drains, undrains, cut_off, deaf, late, heard,
		 blind, fenced, reborn, late_declares, disagreed, resets, restarts, agent_crashes,
		 two_jobs, spared, log_cuts, asked_again, barriers, starved, starved_jobs,
		 caught_up, ranks_lost, shrunk, roots_lost, grown,
		 came, gave_up, agent_restarts, given_up, machines_came, slowed, given_back,
		 looks, quiet, named, blamed_ranks, blamed_servers, famines, still, replayed;
	struct srv_counters srv;
	struct ag_counters ag;
	struct sched_counters sched;
};

extern struct sim_totals sim_totals;

void sim_build(struct sim *s);
void sim_free(struct sim *s);
void sim_stop_jobs(struct sim *s);
void sim_job_leaves(struct sim *s, struct sim_job *j);	/* all its ranks detach */
void sim_pump_agent(struct sim *s, uint32_t agent);
void sim_root_tell(struct sim *s, const struct sim_job *j, uint32_t agent);	/* if it is lost */
/* That round is a broadcast of which nobody has the data: the agent ends the job. */
bool sim_root_is_lost(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t k, uint32_t round);
void sim_pump_server(struct sim *s, uint32_t server);
void sim_check(struct sim *s, uint32_t proc);
bool sim_proc_event(struct sim *s, const struct sim_event *e);
/* The process of the agent that a link belongs to. */
struct sim_agent *sim_agent_at(struct sim *s, const struct sim_link *l);
void *sim_resolve(struct sim_agent *a, uint64_t slot, uint64_t len); /* NULL: no such bytes */
void *sim_zeroed(size_t bytes);
void *sim_garbage(struct sim *s, size_t bytes);	/* old contents must not matter */

/* ---- control ---- */

void sim_sched_start(struct sim *s);
bool sim_sched_stop(struct sim *s);	/* it stands still for a while; false: not just now */
bool sim_sched_waits(const struct sim *s, const struct sim_event *e);	/* for it to go on */
bool sim_sched_crash(struct sim *s);	/* comes back by itself; false: not just now */
void sim_sched_count(struct sim *s);	/* its counters, before it goes */
bool sim_ctl_event(struct sim *s, const struct sim_event *e);	/* false: not one of its */
struct sim_ctl *sim_ctl_of(struct sim *s, uint32_t proc);
void sim_ctl_send(struct sim *s, uint32_t proc, const struct msg *m);	/* to the scheduler */
void sim_ctl_connect(struct sim *s, uint32_t proc);
void sim_ctl_break(struct sim *s, uint32_t proc, mono_t sched_notices);
void sim_ctl_reset(struct sim *s, uint32_t proc); /* what is on its way is lost */
/* ways, bits: to the node, to the scheduler.  False: it was cut already. */
bool sim_ctl_cut(struct sim *s, struct sim_ctl *c, mono_t until, uint32_t ways);
bool sim_drain(struct sim *s, uint32_t server, bool undo);	/* true: it was not before */
bool sim_status_due(struct sim *s);	/* the CLI asks now, and hears: */
void sim_status_told(struct sim *s, const struct msg *m);
bool sim_has_job(struct sim *s, const struct sim_job *j, uint32_t machine);	/* all of it */
void sim_wait_said(const struct sim *s, uint32_t agent, const struct msg_stuck *m);
void sim_wait_row(struct sim *s, const struct sim_job *j, const struct msg_stuck_row *row);
void sim_wait_look(struct sim *s, const struct sim_job *j, const struct msg_report *r,
		   const struct msg_job_row *row);
/* Nothing is on its way between the scheduler and those who live. */
bool sim_is_quiet(struct sim *s);
/* "s3" of "m1". */
void sim_proc_name(const struct sim *s, uint32_t proc, char name[16], char machine[16]);

void sim_log_start(struct sim_log *l, const struct msg_job_up *m);
/* The next entry, or one that was told afterwards (up to l->told, with gaps). */
bool sim_log_follows(const struct sim_log *l, uint64_t seq);
void sim_log_tensors(struct sim *s, struct sim_log *l, const struct sim_job *j,
		     const struct msg_tensors *m);
uint32_t sim_log_forget(struct sim_log *l, uint32_t id);	/* its tensor, or nobody */
void sim_log_epoch(struct sim *s, struct sim_log *l, const struct msg_epoch *m);
void sim_log_fini(struct sim_log *l);
/* The tensor with this id in a log; nobody: there is none. */
uint32_t sim_log_tensor(const struct sim_log *l, uint32_t id);
/* The job of a number; NULL: none of ours. */
struct sim_job *sim_job_of(struct sim *s, uint32_t number);

void sim_agent_new(struct sim *s, uint32_t agent);
struct sim_agent *sim_agent_make(struct sim *s, uint32_t agent);	/* only its memory */
void sim_agent_begin(struct sim *s, uint32_t agent);	/* connects, beats and ticks */
void sim_agent_stuck(struct sim *s, uint32_t agent);
void sim_agent_take(struct sim *s, uint32_t agent, const struct msg *m); /* at once */
bool sim_agent_again(struct sim *s, uint32_t agent);	/* dies, comes again; false: not now */
/* Each job that somebody waits for has an agent, but that one, which can tell all of it. */
bool sim_jobs_are_held(const struct sim *s, uint32_t but);
bool sim_agent_may_die(const struct sim *s, uint32_t agent);	/* else a job may be lost */
bool sim_agent_may_be_silent(const struct sim *s, uint32_t agent);	/* while one recovers */
bool sim_job_returns(const struct sim *s, const struct sim_job *j);
void sim_back_ask(struct sim *s, uint32_t agent);
void sim_back_beat(struct sim *s, uint32_t agent);
bool sim_back_keeps(struct sim *s, uint32_t agent, const struct msg *m);
void sim_back_drop(struct sim_agent_job *aj);
void sim_back_take_in(struct sim *s, uint32_t agent, struct sim_job *j);	/* what it keeps */
void sim_back_lost(struct sim *s, uint32_t agent, const struct sim_job *j, uint32_t rank);
bool sim_back_answered(struct sim *s, uint32_t agent, const struct msg_reply *m);
/* The last round of tensor k that the ranks of this agent know to be done. */
uint32_t sim_back_round(const struct sim *s, const struct sim_job *j, uint32_t agent, uint32_t k);
const struct sim_agent_tensor *sim_back_tensor(const struct sim_agent *a, uint32_t job,
					       uint32_t k);	/* NULL: none */
bool sim_return_event(struct sim *s, const struct sim_event *e);	/* false: not one of its */
void sim_agent_msg(struct sim *s, uint32_t agent, const struct msg *m);
void sim_agent_turn(struct sim *s, uint32_t agent);	/* says what is settled */
void sim_agent_stop_job(struct sim *s, uint32_t agent, const struct sim_job *j);
void sim_agent_let_go(struct sim *s, uint32_t agent);
void sim_agent_ready(struct sim *s, uint32_t agent, const struct sim_job *j);
bool sim_agent_anew(struct sim *s, uint32_t agent, const struct sim_job *j);
void sim_agent_free(struct sim *s, uint32_t agent);
void sim_agent_crash(struct sim *s, uint32_t agent, bool for_good);
void sim_agent_ranks_lost(struct sim *s, struct sim_job *j, uint32_t agent);
void sim_agent_given_up(struct sim *s, uint32_t agent);	/* it lives */
void sim_rank_dies(struct sim *s, struct sim_job *j, uint32_t rank);
/* Its ranks there. */
void sim_machine_lost(struct sim *s, struct sim_job *j, uint32_t agent);
bool sim_job_is_lost(const struct sim *s, const struct sim_job *j);	/* with an agent */
bool sim_job_may_end(const struct sim *s, const struct sim_job *j);	/* or for want of memory */

void sim_join(struct sim *s, struct sim_job *j);
void sim_declare(struct sim *s, struct sim_job *j, uint32_t first, uint32_t n);
void sim_declare_one(struct sim *s, struct sim_job *j, uint32_t rank, uint32_t first, uint32_t n);
void sim_declared(struct sim *s, struct sim_job *j, uint32_t agent);	/* it has more tensors */
void sim_disagree(struct sim *s, struct sim_job *j);	/* on a tensor */
/* Some rank has yet to hear of it. */
bool sim_disagrees(const struct sim *s, const struct sim_job *j);
void sim_undeclare(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t k);
void sim_barrier(struct sim *s, struct sim_job *j, uint32_t rank);	/* the next one */
/* A rank whose process has ended, or whose agent has: nothing of it is asked again. */
void sim_ask_ended(struct sim_job *j, uint32_t rank);
void sim_ask_join(struct sim *s, struct sim_job *j, uint32_t rank);
uint32_t sim_uid(const struct sim_job *j);	/* two jobs of each user */
uint32_t sim_pid(const struct sim_job *j, uint32_t rank);
void sim_answered(struct sim *s, uint32_t agent, const struct msg_reply *m);
/* Whose agent was started again asks through it, and submits, when it is back there. */
bool sim_is_with_agent(const struct sim *s, const struct sim_job *j, uint32_t rank);
void sim_ask_back(struct sim *s, uint32_t agent);	/* a rank is with it again */
void sim_ask_welcomed(struct sim *s, uint32_t agent);
bool sim_ask_event(struct sim *s, const struct sim_event *e);	/* false: not one of its */

uint8_t *sim_wire(const struct msg *m);	/* encoded; the caller's */
void *sim_read_wire(const uint8_t *wire, struct msg *m);	/* what it lies in; the caller's */
void sim_held_tell(struct sim *s, uint32_t agent);

uint32_t sim_server_new(struct sim *s, uint32_t name, uint32_t home);
void sim_server_never(struct sim *s, uint32_t node);
void sim_server_msg(struct sim *s, uint32_t server, const struct msg *m);
void sim_server_let_go(struct sim *s, uint32_t server);
void sim_server_free(struct sim *s, uint32_t server);
void sim_server_kept(struct sim *s, uint32_t server);	/* nothing of what has moved away */
void sim_server_tell(struct sim *s, uint32_t server);
void sim_server_reborn(struct sim *s, uint32_t server, uint32_t node);
void sim_server_stop_job(struct sim *s, uint32_t server, const struct sim_job *j);

void sim_crash(struct sim *s, uint32_t server);
void sim_fence(struct sim *s, uint32_t server);	/* ended by its machine's agent; starts again */
bool sim_life_event(struct sim *s, const struct sim_event *e);
void sim_life_start(struct sim *s);
void sim_life_recovers(struct sim *s, mono_t recovery, mono_t grace);	/* from here on */
bool sim_life_ends(struct sim *s);	/* repairs the last faults; true: there were some */
void sim_life_fault(struct sim *s);	/* something happens to some process */
/* A rank of a job that cannot go on without it does, perhaps. */
void sim_life_rank_dies(struct sim *s);
void sim_life_agent_dies(struct sim *s);	/* one does, perhaps, for good */
void sim_any_fault(struct sim *s);	/* one that heals by itself */
void sim_life_opened(struct sim *s, uint32_t agent);	/* a barrier has: it is the first to hear */

static inline uint32_t sim_agent_proc(uint32_t agent)
{
	return agent;
}

static inline uint32_t sim_server_proc(uint32_t server)
{
	return SIM_AGENTS + server;
}

/* ---- ranks ---- */

uint8_t sim_rop(const struct sim *s, const struct sim_job *j, uint32_t tensor, uint32_t round);
uint32_t sim_root(const struct sim *s, struct sim_job *j, uint32_t tensor, uint32_t round);
void sim_rank_back(struct sim *s, struct sim_job *j, uint32_t rank);	/* at a new agent */
/* What the ranks that come back to it hand back: which rounds are under way. */
void sim_ranks_start(struct sim *s, struct sim_job *j);
bool sim_rank_event(struct sim *s, const struct sim_event *e);	/* false: not a rank's */
void sim_rank_wakes(struct sim *s, const struct sim_job *j, uint32_t rank); /* in a while */
/* The agent has finished a round: what it shows its ranks must be right. */
void sim_round_done(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t tensor,
		    uint32_t round);
bool sim_all_done(const struct sim_job *j);
void sim_ranks_lost(struct sim *s, struct sim_job *j, uint32_t ranks);	/* bits */
bool sim_machine_lives(const struct sim_job *j, uint32_t machine);	/* some rank of it */
static inline bool sim_rank_lives(const struct sim_job *j, uint32_t rank)
{
	return !(j->lost >> rank & 1);
}
void sim_world_add(struct sim_job *j, uint32_t world);
uint64_t sim_rounds(const struct sim *s);	/* done, of all jobs */
bool sim_had_enough(const struct sim *s);	/* what a run has to have, with one more fault */

/* Where all come to a barrier, 1, 2, ...: everything before it is submitted, and nothing behind
 * it before they have passed it, if some may come in there. */
static inline uint32_t sim_barrier_pos(const struct sim_job *j, uint32_t barrier)
{
	return (uint32_t)((uint64_t)barrier * j->norder / (j->p->barriers + 1));
}

/* ---- growing ---- */

void sim_grow_lost(struct sim *s, struct sim_job *j, uint32_t rank);	/* another may come */
/* False: it does not wait. */
void sim_grow_machine(struct sim *s, struct sim_job *j, uint32_t agent);	/* started again */
void sim_machine_crash(struct sim *s, uint32_t agent);
void sim_tell_lost(struct sim *s, uint32_t agent, const struct sim_job *j, uint32_t rank);
bool sim_grow_give_up(struct sim *s, struct sim_job *j, uint32_t rank);
bool sim_grow_event(struct sim *s, const struct sim_event *e);	/* false: not one of its */
void sim_grow_answered(struct sim *s, struct sim_job *j, uint32_t rank);	/* it is in */
/* Local ranks (bits) are in the agent's world from now on: a dead one is missed. */
void sim_grow_heard(struct sim *s, struct sim_job *j, uint32_t agent, uint64_t came);
void sim_grow_passed(struct sim *s, struct sim_job *j, uint32_t rank, uint32_t barrier);
/* Who is lost has taken with it that a barrier had opened. */
void sim_grow_forgotten(struct sim_job *j);

/* ---- servers that are too slow ---- */

void sim_slow_make(struct sim_params *p);
void sim_slow_beat(struct sim *s, uint32_t server, struct msg_heartbeat *m);
void sim_slow_check(struct sim *s);	/* the scheduler has done something */

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

/* Somebody wants memory and there is none; hard: its job ends. */
bool sim_starves(struct sim *s, struct sim_job *j, bool hard);
bool sim_sched_starves(struct sim *s);	/* the scheduler; any job may end for it */

static inline bool sim_faulty(const struct sim *s)
{
	return s->started && s->now < s->p.faults_end && !s->stopped;
}

#endif
