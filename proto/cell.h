/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell.h - the datagram of a streaming lane: 32 bytes of header, then payload.
 *
 * A lane is a stream of positions 0, 1, 2, ... that all machines of a job share with one engine of
 * a server.  Position p of a lane is one cell of one segment; every machine sends its contribution
 * as an ADD and gets the sum as a SUM.  A lane has `slots` slots, a power of two; position p
 * belongs to slot p % slots and to that slot's version (p / slots) % 2.
 *
 * Positions and packet numbers wrap: compare them by serial32_before().  A packet number is new for
 * every datagram of a direction, retransmits included, so `ack` and `sack` tell which of them
 * arrived.  `key` names one life of the lane; a cell with another key is of an earlier life.
 *
 * All fields are little-endian; with CELL_BE header and payload are big-endian (hardware lanes).
 * The length of the payload is that of the datagram.  cell_decode() believes nothing: 0, or a
 * TALLY_E* code, and it never reads past 32 bytes.  Layout: docs/CELL.md.
 */
#ifndef TALLY_PROTO_CELL_H
#define TALLY_PROTO_CELL_H

#include "common/base/bytes.h"
#include "common/base/err.h"

#define CELL_BYTES		32u		/* of the header */
#define CELL_MAGIC		0xc7u
#define CELL_VERSION		1u
#define CELL_PAYLOAD_MAX	8896u		/* fits an MTU of 9000 with IPv6 and UDP */
#define CELL_PAYLOAD_MIN	1152u		/* fits IPv6's smallest MTU, 1280 */
#define CELL_SACK_BITS		64u		/* numbers before `ack` that the header tells of */
#define CELL_WIDE_WORDS		16u		/* and the 64-bit words that follow a WIDE ACK */
#define CELL_WIDE_BYTES		(8u * CELL_WIDE_WORDS)
#define CELL_FROM_SERVER	0xffffu		/* `worker` of what a server sends */

/* enum     num from      meaning */
#define CELL_TYPE_TABLE(X) \
	X(ADD,     1, "agent",  "a contribution to position p") \
	X(SUM,     2, "server", "the sum of position p") \
	X(ACK,     3, "both",   "what arrived, and nothing else; WIDE: 128 bytes more of it") \
	X(PING,    4, "both",   "answer, so that I know what arrived") \
	X(PATH,    5, "agent",  "padded to the cell size that is tried; p is a nonce") \
	X(PATH_OK, 6, "server", "that size has arrived; as long, with the same nonce") \
	X(STOP,    7, "server", "the lane or its key is not known here") \
	X(SUMMED,  8, "kernel", "the last contribution, with the sum in it; never on a wire")

enum cell_type {
	CELL_NONE = 0,
#define X(e, num, from, help) CELL_##e = num,
	CELL_TYPE_TABLE(X)
#undef X
	CELL_TYPE_END
};

enum cell_flag {
	CELL_RESENT = 1u << 0,		/* sent before under another packet number */
	CELL_BE = 1u << 1,		/* big-endian: header and payload */
	CELL_ECN = 1u << 2,		/* a congestion mark came since the last datagram */
	CELL_WIDE = 1u << 3,		/* ACK: CELL_WIDE_BYTES of bitmap follow */
	CELL_FLAGS = CELL_RESENT | CELL_BE | CELL_ECN | CELL_WIDE,
};

/*   offset on the wire, field; 0 is the magic, 1 version and type */
struct cell {
	uint8_t type;		/*  1, low half: enum cell_type; high half: CELL_VERSION */
	uint8_t flags;		/*  2: enum cell_flag */
	uint8_t win;		/*  3: slots that may be used, in 16ths of all; 0: no word */
	uint32_t key;		/*  4: of this life of the lane */
	uint16_t lane;		/*  8: the server's number of the lane */
	uint16_t worker;	/* 10: the machine's index in the job, or CELL_FROM_SERVER */
	uint32_t p;		/* 12: position; PATH, PATH_OK: nonce; ACK, PING, STOP: 0 */
	uint32_t pn;		/* 16: packet number of this direction: 1, 2, ...; 0: none */
	uint32_t ack;		/* 20: highest number that arrived from the other side; 0: none */
	uint64_t sack;		/* 24: bit i: number ack - 1 - i arrived */
};

/* Writes the header in the byte order that f->flags says; fields out of range are written as
 * they are. */
void cell_encode(const struct cell *f, uint8_t wire[CELL_BYTES]);

/* Reads a header.  EPROTO: magic, type or flags (WIDE belongs to ACK); EVERSION: another version.
 * *f is written on success only. */
int cell_decode(const uint8_t wire[CELL_BYTES], struct cell *f);

/* Reads a datagram of `len` bytes: header as above, and a payload whose length suits the type:
 * ADD, SUM, SUMMED 1 to CELL_PAYLOAD_MAX bytes, PATH and PATH_OK up to that, a WIDE ACK
 * CELL_WIDE_BYTES, else none.  EPROTO where it does not. */
int cell_read(const uint8_t *datagram, size_t len, struct cell *f);

const char *cell_type_name(uint8_t type);	/* "ADD"; "?": no such type */

/* Writes "ADD lane 3 worker 2 p 70007 pn 91234 ack 90990", returns buf. */
const char *cell_text(const struct cell *f, char *buf, size_t len);

#endif
