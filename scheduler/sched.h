/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched.h - what the files of the scheduler's core share.
 *
 *	sched_core.c	the step: dispatch, connections, timers, number blocks
 *	sched_out.c	actions, scratch memory, answers
 *	sched_text.c	texts with lists of ranks in them
 *	sched_key.c	link keys, and who hears them
 *	sched_node.c	registration, heartbeats, death
 *	sched_job.c	a job's life: gathering, reserving, up, down
 *	sched_join.c	RANK_JOIN
 *	sched_dispute.c	jobs whose ranks disagreed as they gathered
 *	sched_plan.c	who sums how much; the JOB_UP message
 *	sched_epoch.c	servers come and go while a job trains; drain
 *	sched_slow.c	servers that are too slow for their share
 *	sched_pace.c	how much of it they keep up with, from what was measured
 *	sched_meter.c	what rounds take, as agents have measured it
 *	sched_shrink.c	jobs that go on without the ranks that they lose
 *	sched_grow.c	ranks that come back into such jobs
 *	sched_req.c	pending requests and their deadlines
 *	sched_tensor.c	a job's tensors: tables, sets of ranks
 *	sched_declare.c	DECLARE and UNDECLARE
 *	sched_issue.c	what all ranks agree on becomes a log entry
 *	sched_log.c	a job's log: TENSORS and FORGET entries in order
 *	sched_sent.c	what was sent of late, for those who lost it with a connection
 *	sched_barrier.c barriers
 *	sched_held.c	rebuilding jobs after a restart of the scheduler
 *	sched_late.c	agents that tell of their jobs when that is over
 *	sched_return.c	agents that are away for longer, and those started again
 *	sched_report.c	the answer to QUERY
 *	sched_refused.c	nodes that were refused, and why
 *	sched_stuck.c	rounds that wait, and for whom
 *	sched_place.c	which server has which chunk
 *	sched_check.c	invariants
 *
 * Everything in here belongs to the one struct sched; pointers between its
 * parts are shared and stay valid as the comments at the fields say.
 */
#ifndef TALLY_SCHED_H
#define TALLY_SCHED_H

#include "common/base/list.h"
#include "common/base/mutate.h"
#include "common/place/place.h"
#include "scheduler/sched_core.h"
#include "scheduler/sched_dispute.h"
#include "scheduler/sched_meter.h"
#include "scheduler/sched_pace.h"
#include "scheduler/sched_refused.h"

#define NO_CONN			UINT32_MAX
#define SCHED_ID_BLOCK		1024u		/* numbers saved ahead */
#define SCHED_EPOCH_MAX		(UINT64_C(1) << 31)	/* of another scheduler; frames: 32 bits */
#define SCHED_SEQ_MAX		(UINT64_C(1) << 62)	/* of a job's log */
#define SCHED_SAVE_RETRY_MS	1000u
#define SCHED_REQS_PER_RANK_MAX	64u		/* pending requests of one rank */
#define SCHED_NOMINAL_BYTES	1073741824.0	/* the model that shares are planned for */
#define FOREIGN_LOG_MS		10000u	/* between words about nodes that ask in vain */
#define SCHED_SENT_MS		10000u	/* and a grace: how long ago it was lost, at most */
#define SCHED_SENT_MAX		64u	/* of one job */
#define BLINK_MS		50u	/* between looks who is back as the recovery ends */
#define GROW_MORE_MS		1000u	/* what is about to end is given so much more time */
#define GROW_HOPE_MS		(LEASE_MS + 1000u)	/* a process or machine that has ended is
							 * found out by then */
#define SCHED_BUCKETS		4096u		/* of a job's tensor tables; a power of two */

/* ---- nodes ---- */

/*  enum	name	 what may follow; meaning */
#define SCHED_NODE_TABLE(X) \
	X(NEW,	"new",	1u << SN_UP,			"being registered") \
	X(UP,	"up",	1u << SN_AWAY | 1u << SN_DEAD,	"connected, lease running") \
	X(AWAY,	"away",	1u << SN_UP | 1u << SN_DEAD,	"connection closed, may come back") \
	X(DEAD,	"dead",	0,				"gone for good; nothing points to it")

enum sched_node_state {
#define X(e, name, next, help) SN_##e,
	SCHED_NODE_TABLE(X)
#undef X
};

/*
 * A REPLY that waits for an away node to come back; then, until that connection ends,
 * the note that it was sent: a node may ask again before it has read it.
 */
struct sched_mail {
	struct list link;
	uint64_t req;
	int code;
	char *text;			/* inside this block */
	uint32_t nids;
	uint32_t ids[];			/* then the text */
};

/* What a server says that it holds, while the scheduler recovers. */
struct sched_said {
	struct list link;
	uint32_t job;
	uint64_t epoch;			/* that it is at */
	uint64_t log;			/* last entry that it has */
};

struct sched_addr {
	char host[ADDR_LEN_MAX + 1];
	uint16_t port;
	uint64_t bits_per_s;
};

struct sched_node {
	uint32_t number;
	enum node_kind kind;
	enum sched_node_state state;
	uint32_t conn;			/* NO_CONN unless UP */
	uint32_t conns;			/* how many it has had */
	bool draining;			/* servers: to have nothing to do */
	bool astray;			/* it cannot follow a job; dies when it has let go of all */
	uint8_t instance[ID_BYTES], claimant[ID_BYTES];	/* who wants its name since `claimed` */
	uint32_t naddrs, engines;
	struct sched_addr addrs[RAILS_MAX];
	uint64_t adder_bytes_per_s, memory_bytes;
	mono_t heard;			/* last message; the lease runs from here */
	mono_t beat;			/* last heartbeat */
	mono_t away, claimed;		/* since */
	mono_t since;			/* in that state; servers: to drain, or no longer to; */
	char why[96];			/* and the reason */
	bool left;			/* DEAD: it was drained before, nobody misses it */
	mono_t seen;			/* agents, away: a server has heard it then */
	mono_t ask_at;			/* servers are asked then */
	uint32_t asked;			/* so often: what came before the first does not count */
	struct msg_heartbeat last;	/* its note points to `note` */
	uint32_t mark;			/* scratch of one function */
	struct list outbox;		/* sched_mail, owned */
	struct list ahead;		/* sched_mail, owned: answered before asked again here */
	struct list said;		/* sched_said, owned */
	char name[NAME_LEN_MAX + 1];
	char machine[NAME_LEN_MAX + 1];
	char shm_path[ADDR_LEN_MAX + 1];
	char note[ERR_TEXT_MAX + 1];
	mono_t blamed;			/* since when its note is a cause on the network; 0: no */
};

/* ---- jobs ---- */

/*  enum	name		what may follow; meaning */
#define SCHED_JOB_TABLE(X) \
	X(GATHERING, "gathering", 1u << SJ_RESERVING | 1u << SJ_UP | 1u << SJ_DOWN, \
	  "ranks attach, or a server is awaited") \
	X(RESERVING, "reserving", 1u << SJ_UP | 1u << SJ_DOWN, \
	  "servers set their windows aside") \
	X(HELD, "recovering", 1u << SJ_UP | 1u << SJ_DOWN, \
	  "rebuilt from what agents say after a restart") \
	X(UP, "up", 1u << SJ_DOWN, "training") \
	X(DOWN, "down", 0, "over; away nodes are yet to be told")

enum sched_job_state {
#define X(e, name, next, help) SJ_##e,
	SCHED_JOB_TABLE(X)
#undef X
};

/* LOST: it has ended without a word, and its job goes on. */
enum sched_rank_state { SR_NONE, SR_IN, SR_LEFT, SR_LOST };

struct sched_rank {
	enum sched_rank_state state;
	uint32_t pid;
	struct sched_node *node;	/* SR_IN: its agent; NULL after the node died */
	uint32_t machine;		/* index in job->machines once they are set */
	bool gone;			/* LOST, and an epoch has said so */
	bool joined;			/* came back, by the last epoch that let somebody in */
	uint64_t since;			/* that epoch's log entry; 0: it was there from the start */
	uint32_t pending;		/* requests of this rank */
	uint64_t gave_up;		/* job->done + 1 when a deadline of its own passed */
	bool back;			/* it has come to its agent, which was started again */
	mono_t seen;			/* its agent said that it lives, and will come; 0: never */
};

/* Tensors that an agent still has, and the others have been told to forget. */
struct sched_gone {
	uint32_t n, room;
	uint32_t *ids;
};

/* What a server did in the window in which it was found slow. */
struct slow_cause {
	double bytes_per_s;		/* that it summed while it had something to do */
	double cpu;			/* part of that time in which engines ran or waited for
					 * a CPU; less than 0: not known */
};

/* One node's part in one job. */
struct sched_part {
	struct sched_node *node;	/* NULL: dead, or not back yet (HELD) */
	uint32_t weight;		/* servers: parts of PLACE_WEIGHT_SUM */
	bool told_up, told_down;
	bool ready;			/* servers: answered JOB_UP, or the head of the log */
	bool held, told;		/* agents: has sent JOB_HELD, and all that goes with it */
	bool out;			/* agents: all its ranks are lost */
	bool coming;			/* agents: was out, and hears the job when all others are in
					 * the world that it comes into */
	bool came;			/* agents: has heard the job so, and not said it yet */
	bool expected;			/* agents: nobody spoke for it in a recovery, and no rank of
					 * its has come back since: what it tells is taken yet */
	struct sched_gone gone;		/* ... of what it tells; ids: owned */
	mono_t return_by;		/* agents: started again, and has not heard the job yet */
	bool joining;			/* servers: has not answered the JOB_UP of a running job, */
	uint64_t joining_epoch;		/* which said this epoch; agents: the one it came into */
	bool fresh;			/* servers: can take part, and no epoch has asked it yet */
	bool unsure;			/* back on a new connection, and has not said what it has:
					 * what was on its way on the old one may be lost */
	uint64_t seq;			/* highest log entry it was sent, or said it holds */
	uint64_t stale;			/* servers: its last entry, which no agent has after a
					 * restart; 0: it has been told what is there instead */
	uint64_t settled;		/* agents: epoch it follows; servers: was told all follow */
	uint64_t held_epoch;		/* agents: of its JOB_HELD */
	struct sched_stuck *stuck;	/* agents: its last STUCK, owned; NULL: nothing waits */
	uint32_t number;		/* servers: the node's in the last epoch; 0: it was gone */
	uint32_t engines;		/* servers: of the last one here */
	struct meter meter;		/* agents */
	struct pace_server pace;	/* servers */
	mono_t used_since;		/* servers: in an epoch, as cut_look() saw it; 0: not */
	mono_t cut_since;		/* servers: an agent has no link to it; 0: all have */
	mono_t let_go_by;		/* was told that the job is over, because of that */
	uint8_t let_go[ID_BYTES];	/* the process that has said that it has nothing of it */
	uint32_t cuts;			/* so often, of late; */
	mono_t cut_until;		/* not offered the job again before, */
	char cut_why[128];		/* for that reason */
	uint64_t from_bytes, from_busy_us, from_cpu_us;	/* as the window began, with the */
	mono_t from;			/* heartbeat of then; or the last one before it joined */
	struct slow_cause cause;	/* servers: that get less than their planned share */
	char name[NAME_LEN_MAX + 1];
};

/*  A tensor's life, in order; FAILED branches off WANTED. */
enum sched_tensor_state {
	ST_WANTED,			/* some ranks have declared it */
	ST_LOGGED,			/* all have; it is in the log's queue */
	ST_UP,				/* every agent was told */
	ST_DROPPED,			/* all ranks undeclared; FORGET is in the queue */
	ST_FAILED,			/* mismatch; gone when every rank has been told */
};

struct sched_tensor {
	struct list link;		/* job->tensors, by first declaration */
	struct sched_tensor *by_name, *by_id;	/* hash chains */
	enum sched_tensor_state state;
	uint32_t id;			/* 0 until LOGGED */
	uint64_t seq;			/* its log entry */
	uint32_t dtype, ndims;
	uint64_t dims[DIMS_MAX];
	uint64_t count;
	int32_t priority;		/* rank 0's, once it has declared */
	uint32_t round;			/* the last, as agents report it while ranks come in;
					 * else 0 */
	bool mark;			/* scratch of one function */
	uint32_t nset;
	uint64_t *set;			/* ranks. WANTED: declared, UP: undeclared, FAILED: told */
	uint32_t nheld;			/* HELD jobs: agents that have it */
	struct err *why;		/* FAILED; owned; NULL: no memory */
	char *meaning;			/* WANTED: as the first rank said it; owned; NULL: none */
	uint64_t meaning_sum;		/* of it; 0: none, or not known after a restart */
	struct list placed;		/* in job->placed, from its log entry on */
	struct place_tensor place;	/* owner, since: owned, one block; NULL: no servers */
	char name[];
};

enum sched_entry_kind { SE_TENSORS, SE_FORGET, SE_EPOCH };

/* An entry of a job's log that is not yet with everybody. */
struct sched_entry {
	struct list link;		/* job->log */
	enum sched_entry_kind kind;
	uint64_t seq;			/* 0 until sent to the servers */
	struct err why;			/* TENSORS: code != 0: to be forgotten again */
	uint32_t n;
	struct sched_tensor *t[];
};

/* JOB_UP (seq 0) or a log entry as it was sent, for those who may have lost it. */
struct sched_sent {
	struct list link;		/* job->sent, oldest first */
	uint64_t seq;
	mono_t at;
	uint32_t bytes;
	uint8_t wire[];
};

enum sched_req_kind { SQ_JOIN, SQ_DECLARE, SQ_UNDECLARE, SQ_BARRIER };

/* A request that waits for others; answered exactly once, then gone. */
struct sched_req {
	struct list link;		/* job->reqs, by arrival */
	enum sched_req_kind kind;
	struct sched_node *node;	/* never dead: a dead node's requests are dropped */
	uint64_t req;			/* 0: of an agent that was started again since */
	uint32_t asked;			/* on which of the node's connections */
	uint32_t rank;
	bool grow;			/* BARRIER: who waits may come in; JOIN: it is such a one */
	uint32_t pid;			/* such a JOIN's, */
	mono_t until;			/* and its deadline, if its rank turns out to be lost */
	mono_t deadline;
	struct sched_entry *entry;	/* its log entry, once there is one */
	bool mark;			/* scratch of one function */
	uint32_t n;
	struct sched_tensor *t[];	/* DECLARE, UNDECLARE: in the order asked */
};

struct sched_job {
	uint32_t number;
	enum sched_job_state state;
	uint32_t world, nin, nleft, nlost;
	enum on_loss on_loss;
	uint32_t uid;			/* whose ranks come in: the first one's; `owned` is false */
	bool owned;			/* after a restart, until one has come that may */
	bool shrinks;			/* ranks are lost, and no epoch has said so yet */
	bool grows;			/* all are at a barrier, and some wait to come in */
	uint32_t grown;			/* so many have come back, ever, */
	uint64_t grown_at;		/* the last of them at this barrier; 0: none */
	uint64_t epoch, settled;	/* settled: followed by all agents, in everything */
	uint64_t epoch_seq;		/* the last epoch's log entry; 0: it came with JOB_UP */
	bool repair;			/* how it placed */
	bool anew;			/* ... all chunks, for another world */
	bool no_server;			/* all are gone, and what they had waits for one */
	struct pace pace;		/* of its servers */
	mono_t look_at;			/* when a window begins or ends; 0: begin anew */
	bool looking, paced;		/* in a window; the plan is to be made again */
	struct place *place;		/* owned */
	struct list placed;		/* sched_tensor.placed, log order */
	uint32_t chunk_bytes;		/* while ranks gather their wish, 0: none */
	uint32_t seg_bytes, window_bytes;
	double seconds_per_byte;	/* predicted by the planner */
	mono_t since;			/* its first rank came, or it was told of after a restart */
	struct sched_rank *ranks;	/* world of them, owned */
	uint32_t nmachines, nservers, servers_room;
	struct sched_part *machines, *servers;	/* owned; set when planned */
	struct list reqs;		/* sched_req, owned */
	struct list log;		/* sched_entry, owned; the head is being done */
	struct list sent;		/* sched_sent, owned: what was sent of late */
	uint64_t seq;			/* last log entry sent */
	uint64_t told;			/* last one that was sent to the agents, too */
	uint64_t resumed;		/* last one of before a restart */
	uint32_t last_id, ntensors;
	uint64_t bytes, chunks;		/* of tensors that are UP; of those that have an id */
	uint64_t meaning_bytes;		/* of tensors that not all ranks have declared */
	struct list tensors;		/* sched_tensor, owned */
	struct sched_tensor **by_name, **by_id;	/* SCHED_BUCKETS each, owned */
	uint64_t *barrier;		/* ranks in this generation, owned */
	uint32_t nbarrier;
	uint64_t done;			/* requests that were answered well */
	uint64_t generation;		/* barriers that all have passed */
	bool outlived;			/* a restart; not every agent may have said so yet */
	struct err why;			/* DOWN */
	char name[NAME_LEN_MAX + 1];
};

/* ---- the whole ---- */

enum sched_conn_state { SC_FREE, SC_NEW, SC_NODE, SC_CLI, SC_CLOSING };

struct sched_conn {
	enum sched_conn_state state;
	bool doomed;			/* a message for it was lost: close it */
	bool early;			/* asked while we recover what is known when we have: it is
					 * closed then, and asks again */
	struct sched_node *node;	/* SC_NODE */
};

struct sched_block;			/* scratch memory, sched_out.c */

#define SCHED_ENDED_MAX 64u

struct sched_ended {			/* why a job that is gone has ended */
	uint32_t number;		/* 0: none yet */
	struct err why;
};

struct sched {
	mono_t foreign_log;		/* when nodes of another cluster, or those that another
					 * process has replaced, are spoken of again */
	struct mem_ops mem;
	struct sched_config config;
	mono_t now, started, next;
	mono_t recover_until;		/* 0: active; MONO_NEVER: when it begins is not known */
	struct sched_ids last;		/* handed out */
	struct sched_ids saved;		/* may be handed out */
	struct sched_ids saving;	/* asked for by SAVE */
	bool save_pending;
	mono_t save_after;		/* no new SAVE before */
	bool save_failed;		/* the last one; nobody new comes in who needs a number */
	uint32_t nnodes, njobs;
	uint32_t nblamed;		/* nodes with trouble on the network */
	struct sched_node *nodes[NODES_MAX];	/* owned, by number */
	struct sched_job *jobs[JOBS_MAX];	/* owned, by creation */
	struct sched_ended ended[SCHED_ENDED_MAX];	/* the last that failed; a ring */
	uint32_t nended;
	struct disputes disputes;
	struct refusals refused;
	const char *peer;		/* address of the event's connection; NULL: not known */
	struct sched_conn conns[CTL_CONNS_MAX];
	bool any_doomed;
	bool any_down;			/* a job may be ready to be freed */
	struct sched_block *scratch;
	struct sched_actions *todo;	/* during a step */
	struct sched_counters counters;
};

/* sched_out.c */
void *sched_alloc(struct sched *s, size_t bytes);	/* state; NULL is counted */
void sched_release(struct sched *s, void *p);
void *out_scratch(struct sched *s, size_t bytes);	/* zeroed, until the next step */
const char *out_string(struct sched *s, const char *text);	/* copy; "" without memory */
void out_reset(struct sched *s);
void out_fini(struct sched *s);
struct msg *out_msg(struct sched *s, enum msg_type type);
bool out_send(struct sched *s, struct sched_node *n, const struct msg *m);	/* false: away */
void out_send_conn(struct sched *s, uint32_t conn, const struct msg *m);	/* m NULL: doomed */
void out_close(struct sched *s, uint32_t conn);
void out_doomed(struct sched *s);
void out_save(struct sched *s, struct sched_ids ids);
void out_log(struct sched *s, enum sched_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void out_reply(struct sched *s, uint32_t conn, uint64_t req, int code, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The answer to a node's request; waits in the outbox while the node is away. */
void out_answer(struct sched *s, struct sched_node *n, uint64_t req, int code, const char *text,
		const uint32_t *ids, uint32_t nids);
/* An error at once. */
void out_refuse(struct sched *s, struct sched_node *n, uint64_t req, int code, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void out_flush(struct sched *s, struct sched_node *n);
void out_drop(struct sched *s, struct sched_node *n);
/* The node was answered on this connection what it had asked on an earlier one. */
void out_ahead(struct sched *s, struct sched_node *n, uint64_t req);
bool out_was_ahead(struct sched *s, struct sched_node *n, uint64_t req);	/* says so once */
void out_forget_ahead(struct sched *s, struct sched_node *n);

/* sched_text.c */
struct text {
	char *buf;			/* borrowed */
	size_t size, used;		/* used < size; ends with a NUL */
};
void text_init(struct text *t, char *buf, size_t size);
void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * "rank 2 (machine a)" / "ranks 2, 3 and 9 more": those of the job whose bit is clear.  Who
 * has waited itself and given up is named only when nobody else is missing.
 */
uint32_t text_missing(struct text *t, const struct sched_job *j, const uint64_t *set);
uint32_t text_not_joined(struct text *t, const struct sched_job *j);
/* Of a job that misses ranks, where no agent is without some: they may be at another scheduler. */
void text_elsewhere(const struct sched *s, struct text *t, const struct sched_job *j);
uint32_t text_not_left(struct text *t, const struct sched_job *j);	/* not detached */
uint32_t text_ranks_of(struct text *t, const struct sched_job *j, uint32_t machine);
uint32_t text_not_ready(struct text *t, const struct sched_job *j);	/* "server 'a'" */
/* Adds `before`, and "agent a1: CAUSE" of a node of blame_of(); false, and nothing, for NULL. */
bool text_blame(struct text *t, const char *before, const struct sched_node *n);
/* "float32[10,100]"; the count where no shape was given. */
void text_shape(struct text *t, uint32_t dtype, const uint64_t *dims, uint32_t ndims,
		uint64_t count);

/* sched_key.c */
void key_derive(const uint8_t seed[KEY_BYTES], uint32_t number, const uint8_t instance[ID_BYTES],
		uint8_t key[KEY_BYTES]);
/* The link key of the process that is the machine's agent now. False: none is known. */
bool key_of(const struct sched *s, const struct sched_part *p, uint8_t key[KEY_BYTES]);
/* Another process has that number: to the servers that may know the one before. */
void key_tell(struct sched *s, const struct sched_node *n);
void key_tell_job(struct sched *s, const struct sched_job *j);	/* all of its, to all its servers */
void key_tell_server(struct sched *s, struct sched_node *n);	/* of all its jobs */

/* sched_core.c */
void sched_wake(struct sched *s, mono_t at);		/* TIMER no later than this */
bool sched_take_epoch(struct sched *s, uint64_t *epoch);
bool sched_epoch_can_be(const struct sched *s, uint64_t epoch);	/* that a node says */
void sched_epoch_seen(struct sched *s, uint64_t epoch);

/* sched_node.c */
void node_hello(struct sched *s, uint32_t conn, const struct msg_hello *h);
void node_heartbeat(struct sched *s, struct sched_node *n, const struct msg_heartbeat *hb);
/* Since it was heard; 0: no longer than a heartbeat that is late by half of one. */
uint64_t node_silent_ms(const struct sched *s, const struct sched_node *n);
void node_closed(struct sched *s, struct sched_node *n);
void node_die(struct sched *s, struct sched_node *n, const char *why);
void node_timer(struct sched *s);
void node_deaf(struct sched *s, mono_t ns);	/* for so long nobody could be heard */
void node_tell_drain(struct sched *s, struct sched_node *n);	/* or that it is used again */
void node_free(struct sched *s, struct sched_node *n);
struct sched_node *node_by_name(struct sched *s, enum node_kind kind, const char *name);
bool node_is_machine(const struct sched_node *n, const char *machine);	/* it may be there */
/* h is a process that was a node before, and has lost its name to n's. */
bool node_outlived(const struct sched_node *n, const struct msg_hello *h);
/* The agent of a part that nobody spoke for: away from now on if it is not there, with its
 * number; NULL: another one has its name by now, or there is no memory. */
struct sched_node *node_away(struct sched *s, const struct sched_part *p);
void node_recovered(struct sched *s);	/* who asked too early asks again; graces begin */
const char *node_state_name(enum sched_node_state st);
void node_since(struct sched *s, struct sched_node *n, const char *why);	/* as it is shown */
/* Rows of dead and refused nodes go: those of a name, for a CLI; those that are old. */
void node_forget(struct sched *s, uint32_t conn, const struct msg_node_forget *m);
void node_forget_old(struct sched *s);

/* sched_job.c */
struct sched_job *job_by_number(struct sched *s, uint32_t number);
struct sched_job *job_by_name(struct sched *s, const char *name);	/* not DOWN */
struct sched_job *job_new(struct sched *s, const char *name, uint32_t world);
void job_free(struct sched *s, struct sched_job *j);
/* Of a job that failed and is gone, for who was away when all were told; NULL: not known. */
const struct err *job_ended(const struct sched *s, uint32_t number);
void job_set_state(struct sched *s, struct sched_job *j, enum sched_job_state to, const char *why);
/* sched_join.c */
void job_rank_out(struct sched *s, struct sched_job *j, uint32_t rank);	/* gathering only */
void job_join(struct sched *s, struct sched_node *n, const struct msg_rank_join *m);
/* True: of another world size than the job has, and was told so. */
bool join_other_world(struct sched *s, struct sched_job *j, struct sched_node *n,
		      const struct msg_rank_join *m);
/* Whose job it is, unless that is known. */
void join_take_user(struct sched_job *j, uint32_t uid);
void job_withdraw(struct sched *s, struct sched_node *n, const struct msg_rank_leave *m);
void job_expire_join(struct sched *s, struct sched_job *j, struct sched_req *q);
void join_text(struct sched *s, struct text *t, const struct sched_job *j);	/* what it awaits */
/* sched_job.c again */
bool job_one_machine(const struct sched_job *j);
bool job_have_server(const struct sched *s);
struct sched_part *job_server_part(struct sched_job *j, const struct sched_node *n);
struct sched_part *job_machine_part(struct sched_job *j, const struct sched_node *n);
void job_server_lost(struct sched *s, struct sched_job *j, struct sched_part *p);
/* A server, of a job that comes up: what it was told was lost with a connection. */
void job_tell_again(struct sched *s, struct sched_job *j, struct sched_part *p);
void job_leave(struct sched *s, struct sched_node *n, const struct msg_rank_leave *m);
/* As an agent that holds the job has heard it: their own may not come back, or not know it. */
void job_take_left(struct sched *s, struct sched_job *j, const struct sched_node *n,
		   const struct msg_job_up *m);
void job_ready(struct sched *s, struct sched_node *n, const struct msg *m);	/* or TENSORS_ */
void job_down(struct sched *s, struct sched_job *j, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void job_node_dead(struct sched *s, struct sched_node *n, const char *why);
void job_node_back(struct sched *s, struct sched_node *n);
/* For one job; of whom that is said, and how many are lost: 0: nobody, and nothing is. */
uint32_t job_lost_with(const struct sched *s, struct sched_job *j, const struct sched_node *n,
		       const char *why, struct err *e);
void job_agent_dead(struct sched *s, struct sched_job *j, struct sched_node *n, const char *why);
/* Reports the ranks that have detached to a node once more: earlier reports may be lost. */
void job_tell_leaves(struct sched *s, const struct sched_job *j, const struct sched_part *p);
void job_servers_changed(struct sched *s);		/* one more to start with */
void job_reap(struct sched *s);				/* frees jobs that are over */
void job_pump(struct sched *s, struct sched_job *j);	/* does what can be done now */
bool job_any_away(const struct sched_job *j);
const char *job_state_name(enum sched_job_state st);
/* The job and the rank of a request, or NULL after it was refused. */
struct sched_job *job_of_request(struct sched *s, struct sched_node *n, uint64_t req,
				 uint32_t job, uint32_t rank);
/* A rank has left: what is not done yet never will be, and is refused. */
bool job_refuses(struct sched *s, const struct sched_job *j, struct sched_node *n, uint64_t req);

/* sched_epoch.c */
bool epoch_begin(struct sched *s, struct sched_job *j);	/* true: it is on its way */
/* Servers are ready. */
void epoch_done(struct sched *s, struct sched_job *j, struct sched_entry *e);
void epoch_ready(struct sched *s, struct sched_node *n, const struct msg_ready *m);
void epoch_settle(struct sched *s, struct sched_job *j);	/* as far as all agents say */
void epoch_back(struct sched *s, struct sched_job *j, const struct sched_node *n);
bool epoch_sure(struct sched *s, struct sched_job *j, struct sched_part *p, bool none,
		uint64_t has);
bool epoch_has_chunks(const struct sched_job *j, const struct sched_part *p);
bool epoch_repair_due(const struct sched_job *j);	/* what a lost server had has to move */
void epoch_unsaid(struct sched *s, struct sched_node *n);
void epoch_offer(struct sched *s, struct sched_node *n);	/* to jobs without it */
void epoch_joined(struct sched *s, struct sched_job *j, struct sched_part *p,
		  const struct msg_ready *m);
void epoch_drain(struct sched *s, uint32_t conn, const struct msg_drain *m);
void epoch_leave(struct sched *s, struct sched_node *n);	/* it asks for it itself */
const char *epoch_waiting(const struct sched_job *j);	/* "" nothing */
bool epoch_idle(const struct sched *s, const struct sched_node *n);	/* no job has it */

/* sched_slow.c */
void slow_look(struct sched *s, struct sched_job *j);	/* whenever time has passed */
uint32_t slow_percent(const struct sched *s, const struct sched_node *n);	/* 0: all */
/*
 * Says what limits a server, its NIC or its CPU, and what helps; nothing if it has all of its
 * share.
 */
void slow_text(const struct sched *s, const struct sched_node *n, struct text *t);

/* sched_place.c */
bool place_new(struct sched *s, struct sched_job *j);	/* false: no memory */
bool place_entry(struct sched *s, struct sched_job *j, struct sched_tensor *const *t, uint32_t n);
void place_drop(struct sched *s, struct sched_job *j, struct sched_tensor *t);
/* To the weights, as j->repair says. */
bool place_change(struct sched *s, struct sched_job *j);
/* The placement of these tensors for a message; NULL: no memory, or too many. */
const uint64_t *place_told(struct sched *s, const struct sched_job *j,
			   struct sched_tensor *const *t, uint32_t n, uint32_t *count);
bool place_take(struct sched *s, struct sched_job *j, struct sched_tensor *t,
		const uint64_t *placed, uint32_t n);	/* from an agent; false: cannot be */

/* sched_plan.c */
/* Of those who are there now. */
int plan_weights_of(struct sched *s, struct sched_job *j, struct err *e);
/* A fresh server without room for its share, which others can keep; NULL: there is none. */
struct sched_part *plan_without_room(struct sched *s, struct sched_job *j, struct err *why);
bool plan_any_stays(const struct sched_job *j);		/* a server that is not to drain */
/*
 * Whether a server is in the job and not to drain; while no other stays, those that are to drain
 * serve on.
 */
bool plan_can_serve(const struct sched_job *j, const struct sched_part *p);

/* A server that is told an entry, and says when it has memory for it. */
static inline bool part_answers(const struct sched_part *p)
{
	return p->node && !p->joining && !p->let_go_by;
}

struct msg *plan_epoch(struct sched *s, const struct sched_job *j);
int plan_job(struct sched *s, struct sched_job *j, struct err *e);	/* parts, weights, sizes */
const struct msg *plan_job_up(struct sched *s, const struct sched_job *j, uint32_t nservers,
			      bool with_keys);	/* the first rows */
/* For an agent that was started again. */
const struct msg *plan_job_again(struct sched *s, const struct sched_job *j);

/* sched_shrink.c */
/* A rank is lost, or all that a machine has: true: the job goes on without. */
bool shrink_rank(struct sched *s, struct sched_job *j, uint32_t rank, const char *why);
bool shrink_machine(struct sched *s, struct sched_job *j, struct sched_part *p, const char *why);
void shrink_begin(struct sched_job *j);		/* an epoch says who is gone */
/* The ranks that are lost, for a message; NULL: no memory. */
const uint32_t *shrink_gone(struct sched *s, const struct sched_job *j, uint32_t *n);
/* For an agent that tells of a job which goes on without its machine; lives for the step. */
const char *shrink_why(struct sched *s, const struct sched_job *j, const struct sched_part *p);
/* As an agent says it after a restart. */
void shrink_take(struct sched *s, struct sched_job *j, const struct msg_job_up *m);

/* sched_grow.c */
/* A process in the place of a lost rank: true: it waits, or was refused. */
bool grow_join(struct sched *s, struct sched_job *j, struct sched_node *n,
	       const struct msg_rank_join *m);
bool grow_withdraw(struct sched *s, struct sched_job *j, const struct sched_node *n, uint32_t rank,
		   uint32_t pid);
bool grow_expire(struct sched *s, struct sched_job *j, struct sched_req *q);
bool grow_any(const struct sched_job *j);	/* somebody could come in */
bool grow_joins(const struct sched_job *j, uint32_t rank);	/* came in, and is not answered */
uint32_t grow_awaited(const struct sched_job *j);	/* ranks at a barrier: all but those */
bool grow_under_way(const struct sched_job *j);	/* an epoch has let somebody in at this barrier */
bool grow_holds(struct sched *s, struct sched_job *j);	/* a barrier where all are; or it is over */
void grow_begin(struct sched *s, struct sched_job *j);	/* an epoch lets them in */
/* The agent of a machine, also of one that comes in with that epoch; or NULL. */
struct sched_node *grow_node(const struct sched_job *j, uint32_t machine);
/* Of an agent with this name that a job has lost; 0: of none. */
uint32_t grow_number(const struct sched *s, const char *name);
void grow_rounds(struct sched_job *j, const struct msg_ready *m);	/* as an agent says them */
void grow_answer(struct sched *s, struct sched_job *j);	/* they hear that they are in */
const uint32_t *grow_joined(struct sched *s, const struct sched_job *j, uint32_t *n);
void grow_take(struct sched_job *j, const struct msg_job_up *m);
void grow_resume(struct sched_job *j);
void grow_lose(struct sched *s, struct sched_job *j, uint32_t rank);
void grow_text(struct text *t, const struct sched_job *j);	/* who waits */

/* sched_req.c */
/* Drops the requests of a node's rank; rank UINT32_MAX: of all its ranks. */
void req_drop_of(struct sched *s, struct sched_job *j, const struct sched_node *n,
		 uint32_t rank);
/* Of an agent that was started again: what is in the log stays, with nobody to answer. */
void req_orphan(struct sched *s, struct sched_job *j, const struct sched_node *n);
/*
 * Hands a request of a restarted agent's process before, which is in the log and names t, to the
 * process that asks now.
 */
bool req_asked_anew(struct sched_job *j, const struct sched_node *n, enum sched_req_kind kind,
		    uint32_t rank, const struct sched_tensor *t, uint64_t req);
struct sched_req *req_new(struct sched *s, struct sched_job *j, struct sched_node *n,
			  enum sched_req_kind kind, uint32_t rank, uint64_t req,
			  uint32_t timeout_ms, uint32_t ntensors);	/* NULL: refused */
bool req_asked(const struct sched_job *j, const struct sched_node *n, enum sched_req_kind kind,
	       uint32_t rank, uint64_t req);	/* pending already: asked again, answered once */
/* Answers and frees. */
void req_done(struct sched *s, struct sched_job *j, struct sched_req *q, int code,
	      const char *text, const uint32_t *ids, uint32_t nids);
void req_drop(struct sched *s, struct sched_job *j, struct sched_req *q);
void req_timer(struct sched *s, struct sched_job *j);
void req_tell(struct sched *s, struct sched_node *n, uint64_t req);	/* WAITS */

/* sched_log.c */
struct sched_entry *log_new(struct sched *s, enum sched_entry_kind kind, uint32_t n);
void log_add(struct sched *s, struct sched_job *j, struct sched_entry *e);
void log_pump(struct sched *s, struct sched_job *j);
void log_ready(struct sched *s, struct sched_job *j, struct sched_part *p,
	       const struct msg_ready *m);
void log_fail(struct sched *s, struct sched_job *j, struct sched_entry *e, int code,
	      const char *text);
const struct msg *log_message(struct sched *s, const struct sched_job *j, uint64_t seq,
			      bool placed);
/* To one who comes late: the tensors' entries up to `last`, placed.  Returns the last of them. */
uint64_t log_send_again(struct sched *s, struct sched_job *j, struct sched_node *n, uint64_t last);
void log_send_servers(struct sched *s, struct sched_job *j, uint64_t seq, const struct msg *m);
void log_send_machines(struct sched *s, struct sched_job *j, uint64_t seq, const struct msg *m);

/* sched_sent.c */
void sent_keep(struct sched *s, struct sched_job *j, uint64_t seq, const struct msg *m);
void sent_unkeep(struct sched *s, struct sched_job *j, uint64_t seq);	/* what was kept of it */
/* To one who has the log up to `has` (none: not even JOB_UP) what follows, up to `last`. */
bool sent_again(struct sched *s, struct sched_job *j, struct sched_part *p, bool none,
		uint64_t has, uint64_t last);	/* false: it is not known any more */
void sent_free(struct sched *s, struct sched_job *j);

/* sched_barrier.c */
void barrier_enter(struct sched *s, struct sched_node *n, const struct msg_barrier *m);
void barrier_passed(struct sched *s, struct sched_job *j, uint64_t generation); /* by somebody */
void barrier_leave(struct sched_job *j, struct sched_req *q);
void barrier_text(const struct sched *s, struct text *t, const struct sched_job *j);
void barrier_expire(struct sched *s, struct sched_job *j, struct sched_req *q);
void barrier_pump(struct sched *s, struct sched_job *j);

/* sched_return.c */
mono_t return_grace(struct sched *s, const struct sched_node *n);	/* it may be away */
/*
 * Whether h is the new process of an agent that was started again; then its jobs wait for its
 * ranks.
 */
bool return_can(struct sched *s, const struct sched_node *n, const struct msg_hello *h);
void return_begin(struct sched *s, struct sched_node *n);
/*
 * Asks the servers of its jobs whether they hear an agent that is away; return_seen(): one does.
 */
void return_ask(struct sched *s, struct sched_node *n);
void return_seen(struct sched *s, const struct sched_node *server, uint32_t number);
mono_t return_until(struct sched *s, const struct sched_node *n);	/* it is given up then */
/* The scheduler has recovered, and nobody spoke for that part: true: it is waited for. */
bool return_expect(struct sched *s, struct sched_job *j, struct sched_part *p);
void return_anew(struct sched *s, struct sched_job *j, struct sched_part *p); /* none is back */
void return_rank(struct sched *s, struct sched_node *n, const struct msg_rank_join *m);
/* Its agent, which was started again, says that it lives: it is waited for. */
void return_alive(struct sched *s, struct sched_node *n, const struct msg_rank_alive *m);
bool return_lives(const struct sched *s, const struct sched_rank *r);	/* it said so of late */
void return_deaf(struct sched *s, mono_t ns);	/* as node_deaf() */

/* For node_deaf(): that long ago is less long ago; 0: never. */
static inline void since_later(const struct sched *s, mono_t *since, mono_t ns)
{
	if (*since)
		*since = MIN(*since + ns, s->now);
}
bool return_awaited(const struct sched_job *j);	/* somebody's ranks are */
void return_pump(struct sched *s, struct sched_job *j);
/* The job as it is by now, to who has nothing of it. */
void return_tell(struct sched *s, struct sched_job *j, struct sched_part *p);
void return_timer(struct sched *s, struct sched_job *j);
void return_text(struct sched *s, const struct sched_job *j, struct text *t);

/* sched_held.c */
void held_job(struct sched *s, struct sched_node *n, const struct msg_job_up *m);
bool held_agrees(const struct sched_job *j, const struct msg_job_up *m);
void held_lost(struct sched *s, struct sched_node *n, const struct sched_job *j,
	       const struct sched_part *p);
bool held_join(struct sched *s, struct sched_job *j, struct sched_node *n,
	       const struct msg_rank_join *m);			/* false: it cannot be */
void held_tensors(struct sched *s, struct sched_node *n, const struct msg_tensors *m);
void held_said(struct sched *s, struct sched_node *n, const struct msg_ready *m); /* a server */
void held_unsay(struct sched *s, struct sched_node *n);
void held_last(struct sched *s, struct sched_job *j, struct sched_part *p,
	       const struct msg_ready *m);
void held_unknown(struct sched *s, struct sched_node *n, uint32_t job);	/* a server has it */
bool held_look(struct sched *s);	/* when recover_until has come: true, it is over */

/* sched_stuck.c */
void stuck_take(struct sched *s, struct sched_node *n, const struct msg_stuck *m);
void stuck_report(struct sched *s, const struct sched_job *j, struct msg_report *r);
/* Nothing, if nothing waits. */
void stuck_text(struct sched *s, struct text *t, const struct sched_job *j);
void stuck_drop(struct sched *s, struct sched_job *j);
/* A machine that is there and has no link to that server, or NULL. */
const char *stuck_no_link(const struct sched_job *j, uint32_t server);

/* sched_meter.c: seconds of a round of all tensors; 0: not known */
double meter_round(const struct sched_job *j);

/* sched_report.c */
void report_query(struct sched *s, uint32_t conn, const struct msg_query *m);

#include "scheduler/sched_cut.h"
#include "scheduler/sched_late.h"
#include "scheduler/sched_tensor.h"

#endif
