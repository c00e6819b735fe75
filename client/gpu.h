/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - gradients on GPUs: the machine's local plan, carried out.
 *
 * gpu.c opens the plugin, gets this rank's part of the plan from the agent, and watches:
 * a thread of its own sees the job end, the agent go for good, a group of GPUs fail or a round
 * take too long; then it lets everything go on that waits on the GPU, and the next call
 * says why.  gpu_round.c puts a round on the GPU's lanes.
 *
 * A round on a GPU opens with an OPEN descriptor, in whose words the agent counts the
 * chunks whose results are there.  The pieces are posted by callbacks of the driver, so the
 * ring has a lock when there is a GPU.
 *
 * What is copied at a time is a run, of neighbouring chunks: copies and callbacks cost the
 * same time whatever their size, and a chunk is too short for that.
 *
 * An agent that is started again (client/back.h): who waits for the GPU makes no call, so the
 * thread comes back to it then.  Its results are in other memory.  What is on the lanes reads
 * the first, where that agent puts them, too, for rounds in flight; so results are mapped once
 * more for the GPU, and that mapping stays until the lanes have done with it.
 *
 * Owner: the session's thread, but for what the thread does in its place (session.h) and what
 * the lock is for.
 */
#ifndef TALLY_CLIENT_GPU_H
#define TALLY_CLIENT_GPU_H

#include <pthread.h>

#include "client/session.h"
#include "client/gpu/plugin.h"
#include "common/base/geom.h"
#include "common/base/list.h"
#include "proto/msg.h"

/* With a timeline: when a round came how far on the lanes, as callbacks of the driver saw it.
 * 0: this rank copies no run, or not yet.  Read when `landed` is done. */
struct lt_gpu_times {
	_Atomic mono_t out_begin, out_end;	/* this rank's runs to the arena */
	_Atomic mono_t in_begin, in_end;	/* and back */
	_Atomic mono_t landed;
};

/* A result that a callback copies to where the input was. */
struct lt_gpu_take {
	const uint8_t *from;
	uint8_t *to;
	uint64_t bytes;
};

/* A descriptor that a callback posts: of a run. */
struct lt_gpu_post {
	struct tally_session *session;
	_Atomic mono_t *at;		/* when it was posted last; NULL: nobody asks */
	struct ring_sub sub;
	uint32_t posted;		/* of this round it was; 0: of none; under sub_lock */
	uint32_t handed;		/* and that was handed back of this one */
	struct lt_gpu_take take[2];	/* by the round's lowest bit, as results are */
};

/* What a tensor has on top when it has been on a GPU. */
struct lt_gpu_tensor {
	struct list link;		/* in lt_gpu.tensors, under its lock */
	struct tally_tensor *tensor;
	struct gpu_event *landed;	/* owned: the last round's result is in out */
	void *block;			/* owned, of the arena: words, then this rank's runs */
	uint8_t *staging;		/* behind the words */
	_Atomic uint32_t *words;	/* nruns: the agent counts results of chunks */
	uint32_t nruns, run;		/* run: chunks of one, but for the last */
	struct geom geom;		/* its chunks are runs */
	uint32_t nposts;
	struct lt_gpu_post *posts;	/* owned; one for each run of this rank */
	struct lt_gpu_times times;
	const uint8_t *reads;		/* where the last round's result is, pinned; NULL: it is
					 * not brought from there */
	uint32_t round;			/* last started, under the lock */
	uint32_t rounds;		/* started on a GPU, under the lock */
	mono_t since;			/* when */
	bool flying;			/* a round on the GPU, not handed over */
	bool let_go;			/* nobody will wait for its ticket: a stream does */
};

/* Results as an agent before this one had them; copies from there are on the lanes. */
struct lt_gpu_old {
	struct lt_gpu_old *next;
	struct slab mem;		/* owned, pinned */
};

struct lt_gpu {
	const struct gpu_plugin *ops;
	struct gpu *dev;		/* owned */
	struct gpu_event *step;		/* owned: from lane to lane */
	uint32_t group, groups, me, members, nroots;
	uint32_t roots[LOCAL_RANKS_MAX], weights[LOCAL_RANKS_MAX];
	bool scatter;
	bool in_place;			/* results are where the inputs were: nothing is added */
	uint32_t pinned_arena, pinned_results;	/* slabs */
	struct slab result[RESULT_SLABS_MAX];	/* owned, those that are pinned */
	bool by_arena;			/* results cannot be pinned, so they go by the arena */
	bool moved;			/* the agent is another one, and has other results */
	struct lt_gpu_old *old;		/* owned */
	struct gpu_event *old_read;	/* owned: all of it has been */
	pthread_t watcher, asker;
	bool watched, asked;		/* they run */
	int stop_fd;			/* owned; readable: they end */
	struct err failure;		/* the asker's: what the GPU has said, before `failed` */
	_Atomic bool failed;
	mono_t failed_at;		/* the watcher's: when it saw that; 0: it has not */
	pthread_mutex_t lock;		/* of what follows, and of rounds of tensors */
	struct list tensors;		/* lt_gpu_tensor.link, as their last rounds were started */
	struct err err;			/* why it is broken; written once */
	_Atomic bool broken;
};

/* 0, or the code why the GPU's side is broken, which ends the session. */
int lt_gpu_live(tally_session *s);

static inline uint32_t lt_gpu_chunks(const struct lt_gpu_tensor *t, uint32_t run)
{
	return (uint32_t)div_round_up(geom_chunk_len(&t->geom, run),
				      t->tensor->session->chunk_bytes);
}

/* The count that a run's word has when all rounds that were started are done; wraps. */
static inline uint32_t lt_gpu_count(const struct lt_gpu_tensor *t, uint32_t run)
{
	return t->rounds * lt_gpu_chunks(t, run);
}

/*
 * Releases the session's lock around a call of the driver. Such a call may wait for the GPU, and
 * so for rounds before; the thread that watches has to be able to come back to an agent
 * meanwhile. Not to be used under another call.
 */
static inline void lt_gpu_let(tally_session *s)
{
	pthread_mutex_unlock(&s->api);
}

static inline void lt_gpu_hold(tally_session *s)
{
	pthread_mutex_lock(&s->api);
}

/* As the plugin's done(). */
static inline int lt_gpu_done(tally_session *s, struct gpu_event *ev, struct err *e)
{
	int rc;

	lt_gpu_let(s);
	rc = s->gpu->ops->done(s->gpu->dev, ev, e);
	lt_gpu_hold(s);
	return rc;
}

/* Pins the arena and the results that have become known since the last call. */
int lt_gpu_pin(tally_session *s);

/* Results as they are mapped for the GPU, of all agents so far, as far as something may still
 * be read there; NULL: there are no more than i.  And 1 + the number of that from which the
 * round in flight brings its result to the GPU; 0: it brings it from nowhere there. */
const struct slab *lt_gpu_memory(const tally_session *s, uint32_t i);
uint32_t lt_gpu_reads(const tally_session *s, const struct tally_tensor *t);

/* Marks what was posted of the round in flight as handed back to a restarted agent. */
void lt_gpu_hand(tally_session *s, const struct tally_tensor *t);

/* An agent that was started again hears of all rounds in flight, under sub_lock: of what was
 * handed back, or of what was posted since. */
int lt_gpu_again(tally_session *s, bool handed);

/* The GPU failed in a call: what happens then is the same as if the thread had seen it. */
int lt_gpu_broken(tally_session *s, const struct err *why);

/* A moment's sleep, of who looks at something again and again. */
void lt_gpu_doze(void);

/* Ends all: what flies is given up, but what a stream waits for has some seconds; ETIMEDOUT: it
 * is given up then, too, or why else it is void.  Harmless without a GPU. */
int lt_gpu_close(tally_session *s);

/* gpu_round.c: 0 when the last round's result is in its place on the GPU; EAGAIN,
 * ETIMEDOUT at the deadline. */
int lt_gpu_landed(tally_session *s, struct tally_tensor *t, mono_t deadline);
/* Waits for a round whose ticket was given to a stream, until the deadline; 0: that of rounds.
 * 0 at once if there is none. */
int lt_gpu_settle(tally_session *s, struct tally_tensor *t, mono_t deadline);
/* Frees the GPU's part of a tensor. */
void lt_gpu_tensor_free(tally_session *s, struct tally_tensor *t);

#endif
