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
 * must know which of a server's engines to speak to.  Mixed, because a server
 * owns a regular pattern of chunks and its engines shall share it evenly.
 */
static inline uint32_t geom_shard(uint32_t tensor, uint32_t chunk, uint32_t engines)
{
	uint64_t z = ((uint64_t)tensor << 32 | chunk) + UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(((z ^ (z >> 31)) >> 32) * engines >> 32);
}

/* One engine's part of an agent's window at a server, in bytes. */
static inline uint64_t geom_window(uint64_t window_bytes, uint32_t engines, uint32_t seg_bytes)
{
	uint64_t part = window_bytes / engines / PAGE_BYTES * PAGE_BYTES;

	return MAX(part, align_up(seg_bytes, PAGE_BYTES));
}

/* Rounds count 1, 2, ..., 2^32 - 1, 1, ...; 0 is "none yet". */
static inline uint32_t round_next(uint32_t r)
{
	return r == UINT32_MAX ? 1 : r + 1;
}

#endif
