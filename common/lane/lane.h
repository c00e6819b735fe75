/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.h - a machine's end of a lane: which cell is sent next, and what a cell that came means.
 *
 * The server grants positions to segments that all machines have ready: positions p0 .. p0 + cells
 * - 1 are the segment's, in order.  Grants may come in any order; cells leave in the order of
 * positions.  Slot p % slots is free for p when p < slots or when the sum of p - slots has come.
 * A cell that is lost (numbers.h) is sent again under a new number as long as its sum has not come.
 *
 * The owner copies what SUMs bring, reads inputs anew for each cell that it sends, and so keeps a
 * segment's input until the segment is done.
 *
 * Not for: sockets and byte ranges: a cell is (segment, index), the owner knows where it lies.
 *
 * Life: lane_init() over memory of lane_bytes(); no end.  Pure.  One owner thread.
 */
#ifndef TALLY_LANE_LANE_H
#define TALLY_LANE_LANE_H

#include "common/lane/numbers.h"

#define LANE_GRANTS_MAX		512u	/* segments with positions that are not done */
#define LANE_DEAD_MS		1000u	/* of PINGs without an answer: the lane has failed */

enum lane_verdict {
	LANE_SUM,		/* the sum of a cell: copy it; the segment may be done */
	LANE_WORD,		/* nothing but what it says of packet numbers */
	LANE_COPY,		/* a sum that has come before, or of another position */
	LANE_STOP,		/* the server does not know the lane (any more) */
	LANE_STRANGE,		/* not for this lane: key, number, sender or type */
};

struct lane_grant {
	uint64_t segment;	/* the owner's name of it */
	uint32_t p0, cells;
	uint32_t left;		/* cells whose sums have not come */
};

struct lane_slot {
	uint32_t p;		/* sent, valid while open */
	uint16_t grant;		/* of p */
	bool open;		/* sent, and its sum has not come */
	bool lost;		/* is to be sent again */
};

/* A cell to be sent, or one whose sum has come. */
struct lane_cell {
	uint64_t segment;
	uint32_t index;		/* of the cell in its segment */
	bool last;		/* LANE_SUM: the segment is done */
};

struct lane {
	uint32_t key;
	uint16_t number, worker;
	uint32_t slots;		/* a power of two */
	uint32_t win;		/* of them may be open at a time */
	uint32_t open;		/* of them are */
	uint32_t next;		/* position of the next new cell */
	uint32_t nlost;		/* slots whose cell is to be sent again */
	uint32_t lost_from;	/* slot from which they are looked for */
	uint32_t ngrants;
	mono_t answer_since;	/* PINGs have no answer since then; MONO_NEVER: none is open */
	struct numbers numbers;
	struct lane_slot *slot;	/* [slots] */
	struct lane_grant *grant;	/* [LANE_GRANTS_MAX]; left 0: free */
	/* counted */
	uint64_t sent, resent, sums, copies, strange;
};

size_t lane_bytes(uint32_t slots);

/* A lane of `slots` slots, a power of two of at least 16, over lane_bytes() of memory aligned to 8
 * bytes, which the caller keeps; position 0 comes first. */
void lane_init(struct lane *l, void *memory, uint32_t slots, uint32_t key, uint16_t number,
	       uint16_t worker);

/*
 * Positions p0 .. p0 + cells - 1 are those of a segment.  EQUOTA: more segments than
 * LANE_GRANTS_MAX; EPROTO: positions that have been sent or granted before, or none.
 */
int lane_grant(struct lane *l, uint64_t segment, uint32_t p0, uint32_t cells);

/*
 * The next cell to be sent, with its header, number and all; false: nothing can be sent now, for
 * want of grants, of slots or of packet numbers.
 */
bool lane_send(struct lane *l, mono_t now, struct cell *f, struct lane_cell *what);

/* Takes a datagram's header (and of a WIDE ACK the words behind it, else NULL). */
enum lane_verdict lane_take(struct lane *l, const struct cell *f, const uint8_t *wide, mono_t now,
			    struct lane_cell *what);

/*
 * Takes the next cell that is due without data: a PING, or an ACK with the words in `wide`
 * behind it; false: none. To be called until then.
 */
bool lane_timer(struct lane *l, mono_t now, struct cell *f, uint8_t wide[CELL_WIDE_BYTES]);
/* When lane_timer() or lane_failed() is to be asked next; MONO_NEVER: when something comes. */
mono_t lane_next(const struct lane *l);

/* The server has not answered PINGs for LANE_DEAD_MS. */
bool lane_failed(const struct lane *l, mono_t now);

/* Asserts what must hold after each call. */
void lane_check(const struct lane *l);

#endif
