/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - the two rings between one training process and its agent.
 *
 * One shared page set (memfd, sealed against resizing) holds a submission ring
 * (process -> agent), a completion ring (agent -> process) and a status area
 * (agent -> process).  Single producer, single consumer each.
 *
 * The other side is hostile: masks, sizes and capacities live in the private
 * struct ring_end; an index read from shared memory is copied once, compared
 * with what it can be, and a descriptor is copied once before it is looked at.
 * A consumer that sees an impossible producer index returns TALLY_EPROTO; the
 * session is over, nothing else is.  A producer trusts the consumer index only
 * within [its own tail - capacity, tail].
 *
 * Wake-up: each ring has a bell and a flag `sleeping`.  The consumer sets the
 * flag, looks once more, then sleeps; the producer rings only when the flag is
 * set, and clears it.  Ordering: seq_cst on both flag and index pairs them.
 *
 * No process can stop its agent by a bell, nor give it a descriptor by one: closing a
 * stranger's descriptor may take as long as the stranger likes.
 * - The submission bell is an eventfd.  Its flags are shared with the process, so the agent
 *   never writes to it and reads it with RWF_NOWAIT only, which nobody can take away.
 * - The completion bell is a socket pair whose ringing end is shut down for reading before
 *   the process gets the other one: the kernel takes nothing from the process for it.
 * A pipe would not do: a reader whose buffer faults holds the pipe's mutex, and the agent
 * would wait for it in write().
 *
 * Ownership: a posted entry is the producer's copy; nothing is borrowed.
 */
#ifndef TALLY_SHM_RING_H
#define TALLY_SHM_RING_H

#include <stdatomic.h>

#include "common/base/err.h"

/*
 * What a descriptor is.  WHOLE: the rank's input, all of it.  OPEN: the machine's inputs
 * to this round come by pieces, `groups` of them for each chunk (one for each group of
 * GPUs); every local rank opens the round, whether it brings pieces or not.  PIECE: group
 * number `group`'s input for some chunks.
 */
enum ring_part { PART_WHOLE, PART_OPEN, PART_PIECE, PART_END };

/* process -> agent: "my input for this round lies there" (64 bytes) */
struct ring_sub {
	uint64_t offset;	/* first byte in the slab */
	uint64_t length;	/* bytes.  WHOLE: the tensor; 0 with slab 0: takes part without
				 * data (broadcast, not the root; or a tensor of no elements).
				 * PIECE: a whole number of chunks.  OPEN: 4 for each run of
				 * chunks: words that count chunks whose result is there */
	uint64_t at;		/* where in the tensor a PIECE starts */
	uint32_t tensor;
	uint32_t round;
	uint32_t slab;
	uint32_t root;		/* broadcast: the root's rank */
	uint8_t rop;
	uint8_t part;		/* enum ring_part */
	uint8_t group;		/* PIECE: whose input it is */
	uint8_t groups;		/* OPEN: inputs of each chunk, 1 .. local ranks; else 0 */
	int32_t priority;	/* higher is more urgent */
	uint64_t out_offset;	/* first byte in out_slab - 1 */
	uint32_t out_slab;	/* slab + 1 where the result is wanted too, whole; 0: nowhere.
				 * May be the input itself, else none of its bytes */
	uint32_t run;		/* OPEN: chunks that have a word together, at least 1; else 0 */
};

/*
 * When the round got how far at this machine's agent.  Where all ranks are on one machine:
 * BEGUN when the last of them had given its input, and DONE; nothing else.
 */
#define RING_TIME_TABLE(X) \
	X(BEGUN,	"the first part of it was handed to a link") \
	X(SENT,		"the last part of it had left") \
	X(CAME,		"the first sum began to come") \
	X(SUMMED,	"the last sum began to come") \
	X(DONE,		"the last sum was there")

enum ring_time {
#define X(name, help) TIME_##name,
	RING_TIME_TABLE(X)
#undef X
	TIME_END
};

/* agent -> process: "that round of that tensor is done" (32 bytes) */
struct ring_cpl {
	uint32_t tensor;
	uint32_t round;
	int32_t code;		/* 0 or TALLY_E* */
	uint32_t at[TIME_END];	/* RING_TIME(), 0: not told */
};

/* CLOCK_BOOTTIME in microseconds, the low half: the same clock on both sides. */
#define RING_TIME(t)	((uint32_t)((uint64_t)(t) / 1000) | 1u)

_Static_assert(sizeof(struct ring_sub) == 64, "one cache line");
_Static_assert(sizeof(struct ring_cpl) == 32, "half a cache line");

/* What the agent tells its process without being asked; written by the agent only. */
struct ring_status {
	_Atomic uint32_t seq;		/* odd while being written */
	_Atomic int32_t job_code;	/* 0, or why the job is over (TALLY_E*) */
	char job_text[ERR_TEXT_MAX + 1];
	char stall_text[ERR_TEXT_MAX + 1]; /* what the oldest rounds wait for, or "" */
	uint8_t pad[2];
	_Atomic uint32_t nlost;		/* ranks that the job goes on without, */
	_Atomic uint64_t lost[WORLD_SIZE_MAX / 64];	/* rank r: bit r % 64 of word r / 64 */
	_Atomic uint32_t grown;		/* so many lost ranks came back, ever */
	uint32_t pad2;
};

struct ring_shared;		/* the layout, in ring.c and docs/PROTOCOL.md */

size_t ring_shared_bytes(void);	/* of the memfd; a multiple of PAGE_BYTES */

/* One side's private view; either side makes its own over the same memory. */
struct ring_end {
	struct ring_shared *mem;	/* shared */
	int sub_fd, cpl_fd;		/* this side's ends of the bells, borrowed */
	uint32_t sub_pos, cpl_pos;	/* this side's own index */
	uint32_t sub_seen, cpl_seen;	/* the other side's, last believed value */
	uint32_t cpl_told;		/* agent: published up to here */
};

/* A bell: the producer keeps or gets ends[0] and rings, the consumer polls ends[1]
 * for input.  Both CLOEXEC, the caller closes them. */
int ring_sub_bell_new(int ends[2]);
int ring_cpl_bell_new(int ends[2]);
/* Process: whether a descriptor from somebody else is an end of one. */
bool ring_sub_bell_ok(int fd);
bool ring_cpl_bell_ok(int fd);

void ring_format(void *mem);				/* agent, once, before sharing */
void ring_end_init(struct ring_end *r, void *mem, int sub_fd, int cpl_fd);

/* process's side */
int ring_sub_post(struct ring_end *r, const struct ring_sub *s);	/* 0, EAGAIN: full */
int ring_cpl_take(struct ring_end *r, struct ring_cpl *c);	/* 0, EAGAIN: empty, EPROTO */
bool ring_cpl_sleep(struct ring_end *r);	/* true: now poll cpl_fd; false: look again,
						 * at the job's code too */
int ring_cpl_wake(struct ring_end *r);		/* after the poll: clears flag and bell;
						 * ESHUTDOWN: the other side closed it */
/* Texts have ERR_TEXT_MAX + 1 bytes and end with NUL; NULL: not wanted.  They are whole,
 * or empty when the agent has been stopped in the middle of writing them. */
void ring_status_get(const struct ring_end *r, int *job_code, char *job_text,
		     char *stall_text);

uint32_t ring_lost_count(const struct ring_end *r);
bool ring_is_lost(const struct ring_end *r, uint32_t rank);	/* rank < WORLD_SIZE_MAX */
uint32_t ring_grown(const struct ring_end *r);	/* so many lost ranks came back */

/* agent's side */
void ring_lost_set(struct ring_end *r, uint32_t rank, bool lost);	/* harmless again */
void ring_grown_set(struct ring_end *r, uint32_t grown);
int ring_sub_take(struct ring_end *r, struct ring_sub *s);	/* 0, EAGAIN: empty, EPROTO */
bool ring_sub_sleep(struct ring_end *r);
int ring_sub_wake(struct ring_end *r);		/* other than 0: that is no bell */
/* 0, EAGAIN: full.  The process sees it when it is published: together with others, so that it
 * is woken once for all of them. */
int ring_cpl_post(struct ring_end *r, const struct ring_cpl *c);
void ring_cpl_publish(struct ring_end *r);	/* what was posted; harmless if nothing was */
void ring_status_set(struct ring_end *r, int job_code, const char *job_text,
		     const char *stall_text);	/* NULL: leave as it is;
						 * a job_code other than 0 wakes the process */

#endif
