/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub.h - the server's end of a lane: the aggregator (agg.h), and for each machine the packet
 * numbers both ways and the sums that it has yet to get.
 *
 * A sum goes to every machine that sends cells, once it is made; a machine whose sum is lost gets
 * it again under a new number, as long as the slot has it.  A machine that has not yet got the sum
 * of p cannot send p + slots, so at most 2 * slots sums wait for a machine.
 *
 * Not for: sockets, addresses, which segment a position is of, the order of segments.
 *
 * Life: hub_init() over memory of hub_bytes(); no end.  Pure.  One owner thread.
 */
#ifndef TALLY_LANE_HUB_H
#define TALLY_LANE_HUB_H

#include "common/lane/agg.h"
#include "common/lane/numbers.h"

enum hub_verdict {
	HUB_TAKEN,		/* counts; others are missing */
	HUB_COMPLETE,		/* counts, and was the last: agg_sum() and hub_summed() are due */
	HUB_WORD,		/* nothing but what it says of packet numbers */
	HUB_COPY,		/* counted before */
	HUB_DROPPED,		/* late, impossible, or of a wrong length */
	HUB_STRANGE,		/* not for this lane: key, number, machine or type */
};

struct hub_peer {
	struct numbers numbers;
	uint32_t *due;		/* [2 * slots]: positions whose sums are to be sent, a ring */
	uint32_t head, count;
};

struct hub {
	uint32_t key;
	uint16_t number;
	uint8_t win;		/* what machines are told of slots, in 16ths; 0: nothing */
	struct agg agg;
	struct hub_peer *peer;	/* [members] */
	/* counted */
	uint64_t sums, resent, copies, dropped, strange;
};

size_t hub_bytes(enum agg_mode mode, uint32_t members, uint32_t slots, uint32_t cell_bytes);

/* As agg_init(), over hub_bytes() of memory aligned to 64 bytes. */
void hub_init(struct hub *h, void *memory, uint32_t key, uint16_t number, enum agg_mode mode,
	      uint32_t members, uint32_t slots, uint32_t cell_bytes, const uint64_t *resident);

/* Takes a datagram of machine f->worker: header, payload (of a WIDE ACK its words), length. */
enum hub_verdict hub_take(struct hub *h, const struct cell *f, const uint8_t *payload,
			  uint32_t len, mono_t now);

/* The sum of position p is made: every machine that sends cells gets it. */
void hub_summed(struct hub *h, uint32_t p);

/* The next SUM for machine w, lost ones first: header, number and all, and where its payload lies
 * until position p + 2 * slots begins; false: none now. */
bool hub_send(struct hub *h, uint32_t w, mono_t now, struct cell *f, const void **payload,
	      uint32_t *len);

/*
 * Takes the next cell that is due to machine w besides answers: a PING, or an ACK with the words
 * in `wide` behind it; false: none. To be called until then.
 */
bool hub_timer(struct hub *h, uint32_t w, mono_t now, struct cell *f,
	       uint8_t wide[CELL_WIDE_BYTES]);
/* When hub_timer() is to be asked next; MONO_NEVER: when something comes. */
mono_t hub_next(const struct hub *h, uint32_t w);

/* Asserts what must hold after each call. */
void hub_check(const struct hub *h);

#endif
