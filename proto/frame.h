/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - the 64-byte header of everything on a data link.
 *
 * A data link joins one engine of an agent to one engine of a server.  Every
 * message is a header and, for PUSH, RESULT and GIVE over a socket, `length` bytes of
 * payload right behind it.  By shared memory the payload stays where it is and
 * `slot` says where (FRAME_BYREF).  All fields are little-endian; the last four
 * bytes are CRC-32C over the first sixty.  docs/PROTOCOL.md has the picture.
 *
 * Key = (tensor, chunk).  A segment = (key, offset): the unit of travel.
 * A contribution = (job, segment, round, worker): it counts once, whatever is
 * lost, repeated or late.  `attempt` tells a segment's pushes apart after the
 * agent has taken one back (CANCEL); it wraps.
 *
 * decode() believes nothing: 0, or a TALLY_E* code.  It never reads past 64
 * bytes.  A decoded frame's fields are in the ranges stated here; whether job,
 * tensor or segment exist is for the receiver's core to say.
 */
#ifndef TALLY_PROTO_FRAME_H
#define TALLY_PROTO_FRAME_H

#include "common/base/dtype.h"
#include "common/base/err.h"

#define FRAME_BYTES	64u
#define FRAME_MAGIC	0x594c4c54u	/* "TLLY" on the wire */
#define FRAME_VERSION	1u

/* enum      num payload from     meaning */
#define FRAME_TYPE_TABLE(X) \
	X(HELLO,      1, false, "agent",  "opens a link: who I am, for which engine, my key") \
	X(WELCOME,    2, false, "server", "the link is open") \
	X(PUSH,       3, true,  "agent",  "a contribution") \
	X(RESULT,     4, true,  "server", "the sum of all contributions of a segment's round") \
	X(OFFER,      5, false, "agent",  "ready here, not pushed for want of window") \
	X(PROBE,      6, false, "agent",  "pushed long ago; what became of it?") \
	X(HELD,       7, false, "server", "your contribution is here; aux names who is missing") \
	X(ASK,        8, false, "server", "push this contribution now (again)") \
	X(CANCEL,     9, false, "agent",  "take my contribution back out, I need its room") \
	X(CANCELLED, 10, false, "server", "it is out; its room is yours") \
	X(REFUSED,   11, false, "server", "not for me: aux is a code, epoch the one I know") \
	X(PING,      12, false, "both",   "is the process alive?") \
	X(PONG,      13, false, "both",   "it is") \
	X(SLAB,      14, false, "both",   "shows memory: shm by fd, rdma by address and key") \
	X(QP,        15, false, "both",   "rdma: a queue pair to join, or why there is none") \
	X(SEEK,      16, false, "server", "new here: has anybody the result of this round?") \
	X(GIVE,      17, true,  "agent",  "the result of a round, for those who lack it")

enum frame_type {
	FRAME_NONE = 0,
#define X(e, num, payload, from, help) FRAME_##e = num,
	FRAME_TYPE_TABLE(X)
#undef X
	FRAME_TYPE_END
};

enum frame_flag {
	FRAME_BYREF = 1u << 0,		/* no payload follows; slot says where it lies */
	FRAME_NODATA = 1u << 1,		/* PUSH: takes part without data (broadcast, not root) */
	FRAME_SCALED = 1u << 2,		/* PUSH, a mean of 16-bit floats: divided by 2^aux */
	FRAME_FLAGS = FRAME_BYREF | FRAME_NODATA | FRAME_SCALED,
};

/* With SCALED: of more inputs no machine's sum is made. */
#define FRAME_SHIFT_MAX	6u

/* Where a payload lies at its reader: a slab of the sender's, or window offset. */
#define SLOT_NONE	UINT64_MAX
#define SLOT_SLAB(slab, off)	((uint64_t)(slab) << 48 | (uint64_t)(off))
#define SLOT_SLAB_ID(slot)	((uint32_t)((slot) >> 48))
#define SLOT_SLAB_OFF(slot)	((slot) & ((UINT64_C(1) << 48) - 1))

/* HELD.slot: it was asked for by name and cannot be taken back in this round. */
#define HELD_ASKED	1u

/* What one of a job's machines wants of a segment's round; REFUSED with EMISMATCH has two
 * of them, that differ in what they want, in slot and rslot. */
#define SIDE(worker, rop, root)	((uint64_t)(worker) << 40 | (uint64_t)(rop) << 32 | (root))
#define SIDE_WORKER(side)	((uint32_t)((side) >> 40))
#define SIDE_ROP(side)		((uint8_t)((side) >> 32))
#define SIDE_ROOT(side)		((uint32_t)(side))

/*   offset on the wire, field; HELLO and WELCOME use slot/rslot/aux as said there */
struct frame {
	uint8_t type;		/*  5: enum frame_type */
	uint8_t dtype;		/*  6: enum dtype, or 0 where no data is meant */
	uint8_t rop;		/*  7: enum rop, or 0 */
	uint8_t flags;		/*  8: enum frame_flag */
	uint8_t attempt;	/*  9: which push of this contribution */
	uint16_t worker;	/* 10: the agent's index among the job's machines */
	uint32_t job;		/* 12: the scheduler's number of the job */
	uint32_t tensor;	/* 16: the scheduler's number of the tensor in the job */
	uint32_t chunk;		/* 20: its index in the tensor */
	uint32_t round;		/* 24: 1, 2, 3, ... per tensor; after ROUND_MAX 1 */
	uint32_t epoch;		/* 28: that placed the chunk at this server */
	uint32_t offset;	/* 32: the segment's first byte in the chunk */
	uint32_t length;	/* 36: its bytes, <= SEG_BYTES_MAX */
	uint64_t slot;		/* 40: PUSH: where in window or slab; RESULT: the push's rslot;
				 *     HELD: HELD_ASKED or 0; REFUSED: SIDE() or 0 */
	uint64_t rslot;		/* 48: PUSH: where the agent wants the result;
				 *     REFUSED: the other SIDE() or 0 */
	uint32_t aux;		/* 56: PUSH: a broadcast's root, with SCALED 1 to FRAME_SHIFT_MAX,
				 *     else 0; REFUSED: -code;
				 *     HELD: who misses; PROBE: 1 if a link broke */
};				/* 60: header check */

/*
 * HELLO: job = the agent's node id, worker = lane (connection) number, tensor =
 *   server engine wanted, chunk = agent engine, epoch = node id of the server meant,
 *   round = the agent's process: another number, another process,
 *   slot and rslot = the 16-byte link key, aux = agent's version of the protocol.
 *   offset = HELLO_RDMA when the agent would like a queue pair beside the link.
 * REFUSED, instead of WELCOME: another server is here than the one meant: aux = -ENOENT, epoch
 *   its node id, slot and rslot = the first HELLO_NAME_BYTES of its name; the link ends.
 * WELCOME: echoes job, worker, tensor, chunk, epoch; length = 0,
 *   aux = FRAME_VERSION.
 * SLAB: job, slot = the slab's id, rslot = its bytes.  shm: the descriptor comes along.
 *   rdma: tensor = key, chunk and round = address, low and high half; rslot = 0: it is
 *   taken back, and the answer (aux = 1) says that no write to it is under way.
 * QP: job = QP_OFFER (server), QP_ANSWER (agent), QP_READY (server); tensor = its number,
 *   chunk = first sequence number, worker = LID, attempt = MTU (1: 256, 2: 512, ... 5:
 *   4096), slot and rslot = its GID's bytes, epoch = headers it has buffers for;
 *   aux = -code when there is none or it is not joined, and the link goes on without.
 */
#define HELLO_RDMA	1u
#define HELLO_NAME_BYTES 16u	/* of a server's name, in slot and rslot of a HELLO's REFUSED */
enum { QP_OFFER = 1, QP_ANSWER, QP_READY };

/* Believes its caller: fields out of range are written as they are. */
void frame_encode(const struct frame *f, uint8_t wire[FRAME_BYTES]);

/*
 * EPROTO: magic, check, type, dtype, rop, flags (NODATA and SCALED: PUSH only, SCALED with
 * another aux, op or dtype than it may have; BYREF: PUSH, RESULT and GIVE only), length,
 * or offset + length > CHUNK_BYTES_MAX; EVERSION: another version.  *f is written on
 * success only.
 */
int frame_decode(const uint8_t wire[FRAME_BYTES], struct frame *f);

const char *frame_type_name(uint8_t type);	/* "PUSH"; "?": no such type */

/* `length` bytes follow on a socket: PUSH, RESULT, GIVE, neither BYREF nor NODATA, not empty. */
bool frame_has_payload(const struct frame *f);

/* Writes "PUSH job 3 key 7.0+131072 round 12 ..." (key tensor.chunk+offset); returns buf. */
const char *frame_text(const struct frame *f, char *buf, size_t len);

#endif
