/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - what the files of libtally know of each other.
 *
 * A session is attached from a successful tally_attach() until something final
 * happens: the agent hangs up or talks nonsense, or the job fails.  Then `over`
 * holds the reason, every call returns it, and only tally_detach() is left.
 *
 * A tensor is idle, then flying (its round is with the agent), then done (its
 * completion came in), and idle again once its ticket was used up.
 */
#ifndef TALLY_CLIENT_SESSION_H
#define TALLY_CLIENT_SESSION_H

#include <pthread.h>

#include "client/tally.h"
#include "client/arena.h"
#include "client/conn.h"
#include "client/env.h"
#include "client/timeline.h"
#include "common/shm/ring.h"

#define LT_ID_BUCKETS		4096u
#define LT_CALL_SLACK_MS	2000u		/* so that the agent's text comes before our own */
#define LT_ARENA_GROW_MIN	(4ull << 20)
#define LT_ARENA_GROW_MAX	(1ull << 30)

enum lt_away { LT_HERE, LT_AWAY, LT_ASKED };	/* the agent; see back.c */

enum lt_tensor_state { LT_IDLE, LT_FLYING, LT_DONE };

struct tally_tensor {
	struct tally_session *session;	/* borrowed */
	struct tally_tensor *next, *next_named;	/* in their buckets */
	const uint8_t *result[2];	/* borrowed: of an even, of an odd round */
	void *staging;			/* owned arena block for foreign inputs; NULL: none yet */
	const void *in;			/* flying: what the agent reads; NULL: nothing */
	void *out;			/* flying, done: where to copy the result; NULL: nowhere,
					 * or the agent has put it there */
	uint64_t count, bytes;
	struct ring_sub sub;		/* flying: as it was submitted, to do so again */
	uint64_t announced;		/* done: the session's poll_count when it came in */
	uint32_t id;			/* the scheduler's */
	uint32_t slot;			/* ours, for tickets */
	mono_t since;			/* with a timeline or a log: when the last round was asked
					 * for */
	uint32_t round;			/* last submitted; 0: none */
	uint32_t before;		/* flying: the one before it; 0: none */
	uint32_t handed;		/* last that was handed back in flight; 0: none */
	uint32_t result_round;		/* last finished well; 0: none */
	int32_t priority;
	int32_t code;			/* done: how it went */
	uint8_t dtype;
	uint8_t state;			/* enum lt_tensor_state */
	bool leaving;			/* in the list that tally_undeclare() is checking */
	struct lt_gpu_tensor *gpu;	/* owned; NULL: it has not been on a GPU */
	char name[];
};

struct lt_slot {
	struct tally_tensor *tensor;	/* owned; NULL: free */
	uint16_t generation;		/* of the tensor that has or had it */
};

struct lt_result {
	uint32_t id;
	struct slab mem;		/* owned, read-only; base NULL: it could not be mapped */
};

/*
 * With a GPU somebody else looks after the agent while the rank is in no call: both hold `api`.
 * Ring and bells become others when an agent is back, so whoever posts from elsewhere, or only
 * looks at the status page, holds `sub_lock`, and nothing comes between what is posted then.
 */
struct tally_session {
	pthread_mutex_t api;
	struct err shown;		/* tally_error_text() */
	struct err err;			/* of the last call that failed */
	struct err over;		/* code not 0: why nothing works any more */
	struct err slab_err;		/* code not 0: of the last result slab that could not be
					 * mapped, and is not shown again */
	struct lt_ident who;
	uint32_t asked_timeout_ms;	/* who.timeout_ms as it was at attach */
	struct lt_conn conn;
	uint64_t next_req;
	bool attached;
	uint32_t job;			/* the scheduler's number */
	uint64_t barriers;		/* passed */
	bool late;			/* the job ran before it attached */
	uint32_t grown;			/* ranks that had come back, when we looked last */
	uint32_t local_rank, local_size, machines, chunk_bytes;
	uint32_t grace_ms;		/* to come back in; 0: not at all */
	bool devices;			/* the agent takes dma-bufs */
	enum lt_away away;
	mono_t away_until, try_at;	/* away */
	mono_t asked_at;		/* asked */
	uint64_t back_req;		/* asked: of the ATTACH */
	struct lt_gpu *gpu;		/* owned; NULL: none was opened */
	struct lt_timeline *timeline;	/* owned; NULL: nobody wants one */
	struct lt_wait asking;		/* for the answer to a request */
	struct lt_wait gone;		/* for an agent that is away */
	struct lt_wait slow;		/* for the oldest round in flight, */
	uint32_t slow_round;		/* which it is, */
	char slow_name[NAME_LEN_MAX + 1];
	mono_t slow_look;		/* and when it is looked for again */

	struct slab ring_mem;		/* owned */
	struct ring_end ring;
	pthread_mutex_t sub_lock;
	int sub_bell, cpl_bell;		/* owned */
	int alive;			/* owned: locked, so that an agent that is started again
					 * sees that we live; -1: we could not come back */

	struct lt_arena arena;
	bool no_huge;			/* this process may not have huge pages */
	struct lt_result results[RESULT_SLABS_MAX];
	uint32_t nresults;

	struct lt_slot *slots;		/* owned */
	uint32_t nslots, ntensors;
	struct tally_tensor *const *bound;	/* borrowed: of a declaration under way, those */
	uint32_t nbound;		/* that have been answered */
	uint64_t poll_count;		/* tally_poll() calls: separates news from old */
	uint32_t fresh;			/* done since the last tally_poll(), ticket not used */
	int poll_fd, news_fd;		/* owned; -1 until tally_fd() was called */
	int away_fd;			/* owned: a timer, while away; -1: none */
	bool news_told;			/* news_fd is readable */
	struct tally_tensor *buckets[LT_ID_BUCKETS], *named[LT_ID_BUCKETS];
};

/* A call of the user's, which may make others: first of all in each of them, but for what tells
 * what never changes. */
static inline tally_session *lt_enter(const tally_session *s)
{
	if (s)
		pthread_mutex_lock(&((tally_session *)s)->api);
	return (tally_session *)s;
}

static inline void lt_exit(tally_session *const *s)
{
	if (*s)
		pthread_mutex_unlock(&(*s)->api);
}

#define LT_CALL(s) \
	tally_session *in_call_ __attribute__((cleanup(lt_exit), unused)) = lt_enter(s)

/* 0, or the code for which nothing works any more (its text is in s->err then). */
int lt_session_live(tally_session *s);

/* Makes s->err the reason why the session is over; the job's own reason goes first. */
int lt_session_over(tally_session *s);

/*
 * Gives up the way back to an agent that is started again, so that nobody waits for this
 * process.
 */
void lt_session_no_return(tally_session *s);

uint64_t lt_session_req(tally_session *s);	/* a number for the next request */

/*
 * Sends ask and waits for the answer to req, of type want or REPLY; meanwhile maps
 * result slabs that the agent announces.  A REPLY or DECLARED with a code is that
 * code, its text in s->err.  ETIMEDOUT after timeout_ms and a little more.
 */
int lt_session_call(tally_session *s, const struct msg *ask, uint64_t req, enum msg_type want,
		    uint32_t timeout_ms, struct msg *answer);
/* The same with a descriptor, which stays the caller's (-1: none), and the deadline, which may
 * be one for several calls: timeout_ms and a little more from now. */
int lt_session_call_fd(tally_session *s, const struct msg *ask, int fd, uint64_t req,
		       enum msg_type want, mono_t deadline, struct msg *answer);
mono_t lt_session_limit(uint32_t timeout_ms);

/* The agent broke the protocol: closes the connection; s is over. EPROTO, mostly. */
int lt_session_protocol_error(tally_session *s, const char *what);

/* The agent hung up: 0, it may come back (s->away); else the end of s, by EAGENT unless the
 * job's end explains it. */
int lt_session_agent_gone(tally_session *s);

/* Takes the ring that came with ATTACHED; EPROTO, ENOMEM in s->err. */
int lt_session_ring(tally_session *s);

/* A result slab: a new one, or one that is to lie where another has; acknowledged. */
int lt_session_result_slab(tally_session *s, const struct msg_slab *slab);

/* A block of the arena, grown when there is no room; then a zeroed, page-aligned *p.
 * written: the agent writes there, too, also one that is started again. */
int lt_session_alloc(tally_session *s, uint64_t bytes, bool written, void **p);

/* Where a result slab holds [off, off + bytes); NULL: it does not. */
const uint8_t *lt_session_result(const tally_session *s, uint32_t slab, uint64_t off,
				 uint64_t bytes);

int lt_round_take_all(tally_session *s);	/* completions; EPROTO: s is over */

/* The steps of a round, for those that are not one descriptor.  Check: may it begin?  Post:
 * from any thread, EAGAIN when the ring is full.  Start: posts the first descriptor, fills
 * tensor and round in, gives the ticket.  Await: 0, ETIMEDOUT, or what ends the session. */
int lt_round_check(tally_session *s, tally_tensor *t, const tally_ticket *k);
int lt_round_post(tally_session *s, const struct ring_sub *sub);
int lt_round_start(tally_session *s, tally_tensor *t, struct ring_sub *sub, tally_ticket *k);
int lt_round_await(tally_session *s, const tally_tensor *t, mono_t deadline);
void lt_round_use_up(tally_session *s, tally_tensor *t);	/* the ticket */
struct tally_tensor *lt_round_of(const tally_session *s, tally_ticket k);	/* NULL: none */
/* rop and priority of a push_pull; EINVAL. */
int lt_round_options(tally_session *s, const tally_tensor *t, const tally_push_pull_options *opt,
		     struct ring_sub *sub);
void lt_news_moved(tally_session *s);	/* other descriptors tell of them now */
void lt_news_unwatch(tally_session *s);	/* the bell, before it is closed */
void lt_news_arm(tally_session *s);	/* before returning to a user of tally_fd() */

/* NULL: no such tensor.  Fini frees all of them, at the end. */
struct tally_tensor *lt_tensor_by_id(const tally_session *s, uint32_t id);
void lt_tensors_fini(tally_session *s);	/* and the slots */

#endif
