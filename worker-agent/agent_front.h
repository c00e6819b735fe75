/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_front.h - rounds as the machine's processes see them.
 *
 * For: checking what a process asks for (a descriptor from its ring is hostile
 * input), opening rounds, telling the engines, and telling every local process
 * once all engines are done.  Not for: rings, memory, bytes.
 *
 * One front per agent, on engine 0, over all jobs.  A tensor's round r opens with
 * the first local rank's submission and is over when every engine that owns some
 * of its segments says so; only then can r + 1 open.  Pure; memory is the
 * caller's.
 */
#ifndef TALLY_AGENT_FRONT_H
#define TALLY_AGENT_FRONT_H

#include "common/base/geom.h"
#include "common/base/list.h"
#include "common/shm/ring.h"
#include "worker-agent/agent_core.h"

#define FR_BUCKETS 16384u

struct fr_job {
	struct list link;
	uint32_t id, world, nlocal;
	struct list tensors;
	void *user;			/* the shell's */
	uint64_t live;			/* local ranks that take part: bits */
	bool shrink;			/* may go on without some: no rounds by pieces */
	uint32_t rank[LOCAL_RANKS_MAX];	/* by local index, ascending */
	uint64_t turns[LOCAL_RANKS_MAX];	/* rounds by pieces that each has opened */
	uint32_t open;			/* rounds of its tensors; while there are some, since: */
	mono_t open_since;		/* then, or the last end of one */
	_Atomic uint64_t open_ns;	/* so long were some, up to the last that ended; */
	_Atomic uint64_t over_bytes;	/* and so much was in all that did.  For people */
};

struct fr_tensor {
	struct fr_tensor *hash_next;
	struct list link;		/* in job->tensors */
	struct list running_link;	/* in front->running, oldest first */
	struct fr_job *job;
	uint32_t id;
	uint64_t bytes;
	uint32_t chunk_bytes;
	uint32_t engines;		/* bit e: engine e owns some of it */
	uint32_t left;			/* engines not done */
	uint32_t round;			/* running or last finished */
	bool running;
	uint8_t rop;
	uint8_t groups;			/* inputs of each chunk, which come by pieces; 0: whole
					 * ones, one of each rank */
	uint64_t pieces;		/* bytes of them so far */
	uint64_t turn;			/* and which of its opener's such rounds it is */
	uint32_t root;			/* rank */
	int32_t root_local;		/* as ag_post's */
	int32_t priority;
	uint64_t seq;
	mono_t since;
	struct ag_times times;		/* of the engines that are done */
	struct msg_wait waits;		/* WAIT_NONE: as far as the engines know, for nobody */
	mono_t waits_at;		/* when one said so last */
	const char *name;		/* for errors; borrowed */
	bool was;			/* the round in flight goes to where results were, too */
	void *user;
	uint64_t posted;		/* local ranks that have submitted: bits */
	struct fr_input {
		uint32_t behind;	/* finished round of which it was not told; 0: none */
		uint32_t over;		/* of which it was told when it came back, and may have
					 * pieces on the way; 0: none */
		struct list owed;	/* the shell's: a completion its ring had no room for */
		uint32_t owed_tensor, owed_round;
	} in[];				/* nlocal */
};

struct front {
	struct list jobs, running;
	struct fr_tensor *bucket[FR_BUCKETS];
	uint64_t rounds;		/* finished */
	uint64_t next_seq;		/* of rounds that open: jobs do not go before each other */
};

void fr_init(struct front *f);
mono_t fr_oldest(const struct front *f);	/* when that round opened, or MONO_NEVER */
void fr_job_start(struct front *f, struct fr_job *j);	/* fields filled by the caller */
struct fr_job *fr_job_find(struct front *f, uint32_t id);
void fr_job_stop(struct front *f, struct fr_job *j);	/* removes its tensors too */

size_t fr_tensor_size(uint32_t nlocal);
/* id, name, bytes, chunk_bytes, engines are filled by the caller; mem zeroed else. */
void fr_tensor_add(struct front *f, struct fr_job *j, struct fr_tensor *t);
struct fr_tensor *fr_tensor_find(struct front *f, uint32_t job, uint32_t id);
void fr_tensor_remove(struct front *f, struct fr_tensor *t);

/*
 * A local rank submits.  base: where the descriptor's bytes start (resolved and
 * bounded by the shell).  0 with *post filled: give it to every engine in
 * t->engines; when t->left is 0 right away, the round is done (fr_finish).
 * EPROTO: this process broke the rules; its session ends.
 * EMISMATCH: the machine's ranks disagree; e says how; the job ends.
 */
int fr_submit(struct front *f, struct fr_job *j, uint32_t local, const struct ring_sub *sub,
	      const uint8_t *base, uint64_t base_slot, mono_t now, struct fr_tensor **t,
	      struct ag_post *post, struct err *e);

/* An engine is done with t's running round; true: that was the last one. */
bool fr_engine_done(struct front *f, struct fr_tensor *t, const struct ag_times *times);

/* Local ranks are lost, or others have come; then every running round of the job begins again. */
void fr_job_shrink(struct fr_job *j, uint64_t live);
void fr_again(struct fr_tensor *t);

static inline bool fr_posted(const struct fr_tensor *t, uint32_t local)
{
	return t->posted >> local & 1;
}

/* Local ranks that take part and have not submitted to the running round: bits. */
static inline uint64_t fr_unposted(const struct fr_tensor *t)
{
	return t->job->live & ~t->posted;
}

/* Whether all local ranks have submitted to the running round. */
bool fr_all_posted(const struct fr_tensor *t);

/* Closes the round: the caller completes it to every local rank. */
void fr_finish(struct front *f, struct fr_tensor *t, mono_t now);

/* Text of who of this machine has not posted; "" when all have. */
const char *fr_missing(const struct fr_tensor *t, char *buf, size_t len);

#endif
