/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agg.h - the aggregator of one lane: slots in which contributions wait, and what makes a cell of a
 * position count exactly once.
 *
 * Position p belongs to slot p % slots and version (p / slots) % 2.  A version holds one position
 * at a time, and takes the next one, 2 * slots later, only when its own is complete and so is the
 * position `slots` earlier: a machine that sends p has the sum of p - slots, so all others have
 * sent that, so all have the sum of p - 2 * slots.  Whatever else comes is a copy, is late, or was
 * never possible.  No bit is cleared for another version, and nothing is taken back: a cell of an
 * earlier life of the lane has another key and does not come here.
 *
 * Exact lanes keep the cells of all machines until the last one is there, and add them in the order
 * of the machines (kern.h), so the bits do not depend on who is first.  Integer lanes add int32 as
 * it comes, modulo 2^32.  A machine on the server's own host may be resident: it sends no cells,
 * its input is read when all others' are there.
 *
 * Not for: keys, addresses, packet numbers (numbers.h), which segment a position is of.
 *
 * Life: agg_init() over memory of agg_bytes(); no end.  Pure.  One owner thread.
 */
#ifndef TALLY_LANE_AGG_H
#define TALLY_LANE_AGG_H

#include "common/base/dtype.h"
#include "common/base/limits.h"
#include "common/lane/serial.h"
#include "proto/cell.h"

#define AGG_SLOTS_MIN	16u
#define AGG_SLOTS_MAX	4096u
#define AGG_MEMBERS_MAX	AGENTS_PER_JOB_MAX

enum agg_mode { AGG_EXACT, AGG_INT32 };

enum agg_verdict {
	AGG_TAKEN,		/* counts; others are missing */
	AGG_COMPLETE,		/* counts, and was the last: agg_sum() is due */
	AGG_COPY,		/* counted before; others are missing */
	AGG_AGAIN,		/* counted before, and the sum is there: send it to this machine */
	AGG_STALE,		/* of a position that is over */
	AGG_JUMP,		/* of a position that cannot have begun */
	AGG_REFUSED,		/* no member, resident, or of another length than the first cell */
};

/* One position's state. */
struct agg_version {
	uint32_t p;		/* valid unless fresh */
	uint32_t count;		/* cells that count */
	uint32_t len;		/* of each cell, in bytes; that of the first one */
	bool fresh;		/* no position yet in this life */
	bool summed;		/* agg_sum() has made the sum */
};

struct agg {
	enum agg_mode mode;
	uint32_t members;	/* machines of the job */
	uint32_t senders;	/* those that send cells: not resident */
	uint32_t slots;		/* a power of two */
	uint32_t cell_bytes;	/* of payload, at most; a multiple of 64 */
	const uint64_t *resident;	/* borrowed: bit w: machine w sends nothing */
	struct agg_version *version;	/* [2 * slots] */
	uint64_t *seen;		/* [2 * slots][words of members] */
	uint8_t *parked;	/* exact: [slots][members][cell_bytes] */
	uint8_t *sums;		/* [2 * slots][cell_bytes] */
};

/* Bytes of memory that agg_init() wants for such a lane. */
size_t agg_bytes(enum agg_mode mode, uint32_t members, uint32_t slots, uint32_t cell_bytes);

/*
 * A lane without any position, over agg_bytes() of memory aligned to 64 bytes, which the caller
 * keeps.  slots: a power of two from AGG_SLOTS_MIN to AGG_SLOTS_MAX; members: 1 to AGG_MEMBERS_MAX;
 * cell_bytes: a multiple of 64, at most CELL_PAYLOAD_MAX; resident: BITS_WORDS(members) words,
 * with a member at least that is not.
 */
void agg_init(struct agg *a, void *memory, enum agg_mode mode, uint32_t members, uint32_t slots,
	      uint32_t cell_bytes, const uint64_t *resident);

/* Takes the contribution of machine w to position p: `len` bytes, copied. */
enum agg_verdict agg_take(struct agg *a, uint32_t w, uint32_t p, const void *payload,
			  uint32_t len);

/*
 * Makes the sum of position p, of which agg_take() has just said AGG_COMPLETE.  dtype: of the
 * elements, int32 in an integer lane; div: as kern_sum() has it, 1 in an integer lane; inputs: by
 * machine, of the resident ones, len bytes each; NULL where none is.  Returns the sum, `len` bytes,
 * there until position p + 2 * slots begins.
 */
const void *agg_sum(struct agg *a, uint32_t p, enum dtype dtype, uint32_t div,
		    const void *const *inputs);

/* The sum of position p and its bytes; NULL: it is not there, or no more. */
const void *agg_result(const struct agg *a, uint32_t p, uint32_t *len);

/* Is the contribution of machine w what position p waits for? */
bool agg_misses(const struct agg *a, uint32_t p, uint32_t w);

/* Asserts what must hold after each call. */
void agg_check(const struct agg *a);

#endif
