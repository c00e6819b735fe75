/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_core.h - the scheduler as a state machine: events in, actions out.
 *
 * It knows who is registered and alive, which ranks form which job, which
 * tensors a job has, and it decides who sums what.  It does not know sockets,
 * clocks, threads or files: the shell (sched_io.c, a test, the simulator) feeds
 * it events that carry the time and performs the actions in their order.
 *
 * Life: sched_new(), then one TIMER event at once (it asks for the first SAVE),
 * then any events, sched_free().  One thread.  Actions and the messages in them
 * live until the next sched_step().
 *
 * Memory: everything comes from the mem_ops given, bounded by limits.h.  A
 * request that finds no memory is answered TALLY_ENOMEM; a message that cannot
 * be built for lack of memory costs its connection, and its node is dead: a peer
 * never misses a message silently.
 *
 * Numbers that must never come back (epochs, job and node numbers) are handed
 * out from a block that has been saved before: SAVE asks for the end of the
 * next block to be made durable, SAVED reports how that went.  So a number is
 * always on disk before anybody hears it, and nobody waits for the disk.
 */
#ifndef TALLY_SCHED_CORE_H
#define TALLY_SCHED_CORE_H

#include "common/base/bytes.h"
#include "common/base/err.h"
#include "proto/msg.h"

struct sched;

struct mem_ops {
	void *ctx;
	void *(*alloc)(void *ctx, size_t bytes);	/* zeroed; NULL: none left */
	void (*free)(void *ctx, void *p);		/* NULL is fine */
};

/* The highest numbers that may have been handed out. */
struct sched_ids {
	uint64_t epoch;
	uint32_t job, node;
};

struct sched_config {
	uint8_t cluster[ID_BYTES];	/* never zeros */
	uint8_t key_seed[KEY_BYTES];	/* link keys are derived from it */
	struct sched_ids ids;		/* as last saved */
	const char *secret;		/* join secret, "" none; borrowed for life */
	const char *version;		/* shown in reports; borrowed for life */
	uint32_t heartbeat_ms;		/* what nodes are told */
	uint32_t recover_ms;		/* for held jobs, once saved; 0: fresh cluster */
	uint32_t agent_grace_ms;	/* jobs wait so long for a lost agent; 0: not at all */
	uint32_t window_bytes;		/* of jobs that begin; 0: by the cards */
};

/*  enum	what happened */
#define SCHED_EVENT_TABLE(X) \
	X(UP,	  "a connection was accepted") \
	X(CLOSED, "a connection is gone; its number may be used again") \
	X(MSG,	  "a message arrived on a connection") \
	X(SAVED,  "the SAVE asked for is durable (code 0) or failed") \
	X(TIMER,  "sched_next() has come")

enum sched_event_type {
	SCHED_EV_NONE,
#define X(e, help) SCHED_EV_##e,
	SCHED_EVENT_TABLE(X)
#undef X
};

struct sched_event {
	enum sched_event_type type;
	mono_t now;			/* never goes back */
	uint32_t conn;			/* UP, CLOSED, MSG: below CTL_CONNS_MAX */
	const struct msg *msg;		/* MSG: borrowed for the call, decoded and checked */
	int code;			/* SAVED */
	const char *peer;		/* MSG, CLOSED: "10.0.0.2:51812"; NULL: not known */
	const struct err *why;		/* CLOSED: by what was no message; NULL: else */
};

/*  enum	what to do */
#define SCHED_ACTION_TABLE(X) \
	X(SEND,	 "send msg on conn") \
	X(CLOSE, "close conn after what was sent; a CLOSED event follows") \
	X(SAVE,	 "make ids durable, then feed SAVED") \
	X(LOG,	 "write text to the log at level, within the bounds of its place")

enum sched_action_type {
	SCHED_DO_NONE,
#define X(e, help) SCHED_DO_##e,
	SCHED_ACTION_TABLE(X)
#undef X
};

/* OFTEN: info of what anybody can bring about as often as he likes; bounded as warnings are. */
enum sched_level { SCHED_ERROR, SCHED_WARN, SCHED_OFTEN, SCHED_INFO, SCHED_DEBUG };

struct sched_action {
	enum sched_action_type type;
	struct sched_action *next;
	uint32_t conn;			/* SEND, CLOSE */
	const struct msg *msg;		/* SEND */
	struct sched_ids ids;		/* SAVE */
	enum sched_level level;		/* LOG */
	const char *place;		/* LOG: one for all lines of one place in the code */
	const char *text;		/* LOG */
};

struct sched_actions {
	struct sched_action *head, **tail;
};

/*  name	what is counted */
#define SCHED_COUNTER_TABLE(X) \
	X(messages,	"messages taken") \
	X(strays,	"messages that fit nothing known: counted and dropped") \
	X(refused,	"requests answered with an error at once") \
	X(timeouts,	"requests whose deadline passed") \
	X(answers,	"requests answered") \
	X(nodes_lost,	"nodes declared dead") \
	X(jobs_started,	"jobs that came up") \
	X(jobs_failed,	"jobs that ended with an error") \
	X(repairs,	"epochs that moved a lost server's chunks") \
	X(cuts,		"servers that a job went on without: an agent had no link to them") \
	X(rebalances,	"epochs that moved chunks because servers came or went") \
	X(nomem,	"times memory was missing")

struct sched_counters {
#define X(name, help) uint64_t name;
	SCHED_COUNTER_TABLE(X)
#undef X
};

/* NULL when the memory for the tables is not there. */
struct sched *sched_new(const struct mem_ops *mem, const struct sched_config *config, mono_t now);
void sched_free(struct sched *s);

void sched_step(struct sched *s, const struct sched_event *ev, struct sched_actions *todo);
mono_t sched_next(const struct sched *s);	/* when to feed TIMER; never MONO_NEVER for long */

uint64_t sched_epoch(const struct sched *s);	/* the highest handed out */
uint32_t sched_nodes_up(const struct sched *s);
uint32_t sched_jobs(const struct sched *s);
bool sched_recovering(const struct sched *s);
const struct sched_counters *sched_counters(const struct sched *s);

/* Asserts every invariant; for tests and the simulator, after each step. */
void sched_check(const struct sched *s);

#endif
