/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - packet numbers between one machine and one lane of a server: what arrived, what is
 * lost, how long a round trip takes.
 *
 * Each side gives every datagram that it sends a new number, retransmits included, and tells in
 * every datagram which numbers of the other side have arrived (cell.h: ack, sack).  A number is
 * lost when `reorder` later ones have arrived, or when a datagram that was sent after it as a PING
 * was answered.  A number that is told of after it was taken for lost was not: such a spurious
 * loss doubles `reorder`, up to half of the ring, and each NUMBERS_CALM numbers without one take
 * one away again, down to NUMBERS_REORDER.  There is no timer per datagram.
 *
 * Not for: what a number carries.  The owner notes a word and a type with each, and gets them back
 * when the number is lost.
 *
 * Life: numbers_init() over the owner's ring; no end.  Pure: no clock, no heap.  One owner thread.
 */
#ifndef TALLY_LANE_NUMBERS_H
#define TALLY_LANE_NUMBERS_H

#include "common/base/base.h"
#include "common/lane/serial.h"
#include "proto/cell.h"

#define NUMBERS_REORDER		3u	/* later numbers that make an earlier one lost, at first */
#define NUMBERS_CALM		1000u	/* numbers without a spurious loss that take one away */
#define NUMBERS_ANSWER_EVERY	48u	/* unanswered numbers that ask for an ACK at once */
#define NUMBERS_ANSWER_MS	1u	/* and how long fewer of them may wait for it */
#define NUMBERS_PTO_MIN_MS	2u	/* silence that is too long, at least */
#define NUMBERS_PTO_MAX_MS	200u	/* and at most, after doublings */
/* What a receiver remembers below the highest number: the header's and a WIDE ACK's. */
#define NUMBERS_SEEN_BITS	(CELL_SACK_BITS + 64u * CELL_WIDE_WORDS)
#define NUMBERS_SEEN_WORDS	(NUMBERS_SEEN_BITS / 64u)

enum sent_state { SENT_SETTLED, SENT_OPEN, SENT_LOST };

/* One datagram that was sent. */
struct sent {
	mono_t at;
	uint32_t what;			/* the owner's */
	uint8_t type;			/* likewise: enum cell_type */
	uint8_t state;			/* enum sent_state */
};

struct numbers {
	/* what this side sends */
	struct sent *ring;		/* borrowed; `room` entries, of number n at n % room */
	uint32_t room;			/* a power of two */
	uint32_t next;			/* number of the next datagram; 1 at first */
	uint32_t judged;		/* all numbers before it are settled or lost */
	uint32_t open;			/* neither arrived nor lost, as far as is known */
	uint32_t acked;			/* highest number that arrived at the other side; 0 */
	uint32_t probe;			/* number of a PING that settles all before it; 0: none */
	uint32_t reorder, calm;		/* calm: numbers settled since it last changed */
	uint32_t backoff;		/* times that the allowed silence was doubled */
	mono_t srtt;			/* smoothed round trip, ns; 0: not known */
	mono_t quiet_since;		/* nothing heard since then, with something open */
	/* what the other side sends */
	uint32_t highest;		/* that arrived; 0: none */
	uint64_t seen[NUMBERS_SEEN_WORDS];	/* bit i: highest - 1 - i arrived */
	uint32_t unanswered;		/* arrived since the last datagram that told of it */
	mono_t answer_at;		/* when an ACK is due; MONO_NEVER */
	/* counted */
	uint64_t lost, spurious, copies;
};

/* ring: `room` entries, a power of two of at least 64; stays the caller's. */
void numbers_init(struct numbers *n, struct sent *ring, uint32_t room);

/* False: the ring is full of numbers about which nothing is known; wait for a sign. */
bool numbers_room(const struct numbers *n);

/* Takes the next number for a datagram of that type; numbers_room() must be true. */
uint32_t numbers_send(struct numbers *n, uint8_t type, uint32_t what, mono_t now);

/* Writes what has arrived into a datagram that is about to be sent, so that no ACK is due. */
void numbers_tell(struct numbers *n, struct cell *f);

/* The same for a WIDE ACK: the CELL_WIDE_WORDS words behind its header, as little-endian. */
void numbers_tell_wide(struct numbers *n, struct cell *f, uint8_t wide[CELL_WIDE_BYTES]);

/* A datagram of the other side with number pn has arrived.  False: a copy of one that has
 * arrived before, or too old to tell.  Number 0 is always new and asks for no answer: ACKs have
 * none, nor has anything of a hardware lane.  urgent: a PING, whose answer is due at once. */
bool numbers_arrived(struct numbers *n, uint32_t pn, bool urgent, mono_t now);

/* Takes what a datagram says of this side's numbers: ack, sack, and behind a WIDE ACK `wide`, else
 * NULL.  Words about numbers that were never sent are ignored.  True: something was news. */
bool numbers_heard(struct numbers *n, const struct cell *f, const uint8_t *wide, mono_t now);

/* The next number that is lost: its entry, settled from then on; NULL: no more.  The owner decides
 * whether what it carried still matters, and sends that under a new number. */
const struct sent *numbers_lost(struct numbers *n);

/* When this side has to send an ACK at the latest; MONO_NEVER: nothing to tell. */
mono_t numbers_answer_at(const struct numbers *n);

/* When silence is too long and a PING is to be sent; MONO_NEVER: nothing is open. */
mono_t numbers_ping_at(const struct numbers *n);

/* A PING with number pn was sent because of that: silence may last twice as long from now on, and
 * an answer to pn settles all numbers before it. */
void numbers_pinged(struct numbers *n, uint32_t pn, mono_t now);

#endif
