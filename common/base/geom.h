/* SPDX-License-Identifier: Apache-2.0 */
/*
 * geom.h - how a tensor is cut: chunks (placement) and segments (travel).
 *
 * Chunk c is bytes [c * chunk_bytes, ...) of the tensor; segment s of a chunk is
 * bytes [s * seg_bytes, ...) of the chunk.  Both sizes are multiples of the page
 * and so of every element; the last of each is shorter.  All parts of the system
 * use these functions, so they agree on every boundary.
 */
#ifndef TALLY_BASE_GEOM_H
#define TALLY_BASE_GEOM_H

#include "common/base/base.h"

struct geom {
	uint64_t bytes;		/* of the tensor */
	uint32_t chunk_bytes;
	uint32_t seg_bytes;	/* <= chunk_bytes */
};

static inline uint32_t geom_chunks(const struct geom *g)
{
	return (uint32_t)div_round_up(g->bytes, g->chunk_bytes);
}

static inline uint32_t geom_chunk_len(const struct geom *g, uint32_t chunk)
{
	uint64_t at = (uint64_t)chunk * g->chunk_bytes;

	return (uint32_t)MIN((uint64_t)g->chunk_bytes, g->bytes - at);
}

static inline uint32_t geom_chunk_segs(const struct geom *g, uint32_t chunk)
{
	return (uint32_t)div_round_up(geom_chunk_len(g, chunk), g->seg_bytes);
}

/* Of the segment that starts at `offset` in the chunk. */
static inline uint32_t geom_seg_len(const struct geom *g, uint32_t chunk, uint32_t offset)
{
	return MIN(g->seg_bytes, geom_chunk_len(g, chunk) - offset);
}

/*
 * The engine, of `engines`, that owns a chunk.  Part of the protocol: an agent
 * must know which of a server's engines to speak to.  Each chunk lies the golden
 * section of the range further than the one before (Weyl's sequence, which is nowhere
 * evener), so all engines have the same part of any stretch of a tensor, and nearly so of a
 * server's chunks, which are a regular pattern of it: worst where alike servers are 34, 55
 * or 89 (Fibonacci's), and each has few chunks of a tensor.  Tensors begin anywhere.
 */
static inline uint32_t geom_shard(uint32_t tensor, uint32_t chunk, uint32_t engines)
{
	uint64_t z = ((uint64_t)tensor << 32) + UINT64_C(0x9e3779b97f4a7c15);
	uint32_t at;

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	at = (uint32_t)((z ^ (z >> 31)) >> 32) + chunk * UINT32_C(0x9e3779b9);
	return (uint32_t)((uint64_t)at * engines >> 32);
}

/*
 * geom_shard() cuts one range into equal parts, whatever their number.  So an
 * agent's engine shares chunks only with those of a server's engines whose part
 * of the range meets its own, and with them alone it has links and a window.
 */
static inline bool geom_engines_meet(uint32_t a, uint32_t as, uint32_t b, uint32_t bs)
{
	return (uint64_t)a * bs < (uint64_t)(b + 1) * as &&
	       (uint64_t)b * as < (uint64_t)(a + 1) * bs;
}

static inline uint32_t geom_engine_pairs(uint32_t as, uint32_t bs)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < as * bs; i++)
		n += geom_engines_meet(i / bs, as, i % bs, bs);
	return n;
}

/*
 * Bytes of one server engine's part of an agent's window. Each of the agent's engines that use
 * it finds room for a segment.
 */
static inline uint64_t geom_window(uint64_t window_bytes, uint32_t server_engines,
				   uint32_t engines, uint32_t seg_bytes)
{
	uint64_t part = window_bytes / server_engines / PAGE_BYTES * PAGE_BYTES;
	uint64_t meets = MIN(engines, (engines - 1) / server_engines + 2);

	return MAX(part, meets * align_up(seg_bytes, PAGE_BYTES));
}

/* An agent's engine's part of that: where it begins, and how much it is. */
static inline uint64_t geom_window_part(uint64_t window, uint32_t engine, uint32_t engines,
					uint32_t server_engine, uint32_t server_engines,
					uint64_t *at)
{
	uint32_t before = 0, all = 0;
	uint64_t part;

	for (uint32_t e = 0; e < engines; e++) {
		bool meets = geom_engines_meet(e, engines, server_engine, server_engines);

		all += meets;
		before += meets && e < engine;
	}
	part = window / MAX(all, 1u) / PAGE_BYTES * PAGE_BYTES;
	*at = before * part;
	return part;
}

/* Rounds count 1, 2, ..., ROUND_MAX, 1, ...; 0 is "none yet". */
static inline uint32_t round_next(uint32_t r)
{
	return r >= ROUND_MAX ? 1 : r + 1;
}

static inline uint32_t round_prev(uint32_t r)
{
	return r == 1 ? ROUND_MAX : r - 1;
}

#endif
