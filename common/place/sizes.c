// SPDX-License-Identifier: Apache-2.0
/*
 * sizes.c - what a job's tensors are cut into.
 *
 * A segment lasts about a millisecond on the slowest card: shorter ones cost more headers
 * and wake-ups, longer ones let a card wait for its first sum and after its last.  A
 * chunk is what is placed, and is longer than a segment only when ranks want it so: a server's
 * share is met within a chunk, and whoever got one more is who all wait for.  For the
 * same reason both shrink when so many servers share the model that each has only a few:
 * a model that the slowest card carries in MODEL_MS, or a large one.  Below CHUNK_LEAST that is
 * for slow cards only, which send few segments in a second whatever their length, and where
 * nobody trains what has more than CHUNKS_PER_JOB_MAX of them.
 *
 * One machine alone sends nothing: there a segment's inputs and its sum stay in a core's
 * cache until the ranks have their copies.
 *
 * A window is what the fastest card carries in WINDOW_MS: so far may an agent be ahead of
 * the slowest.  With more of it those ahead take a busy card from those that every sum
 * waits for.
 */
#include "common/place/place.h"

#define SEG_NEAR_MIN		(64u << 10)
#define SEG_NEAR_MAX		CHUNK_BYTES_DEFAULT
#define SEG_ALONE		(128u << 10)
#define WINDOW_MS		32u
#define MODEL_MS		250u
#define MODEL_BYTES_MAX		(512u << 20)	/* few that need many machines are smaller */
#define CHUNKS_PER_SERVER	32u
#define CHUNK_LEAST		(64u << 10)

static uint32_t segment(uint64_t slowest_bits)
{
	uint32_t seg = SEG_NEAR_MIN;

	while (seg < SEG_NEAR_MAX && 2ull * seg <= slowest_bits / 8 / 1000)
		seg *= 2;
	return seg;
}

static bool few_each(uint32_t chunk, uint32_t nservers, uint64_t slowest_bits)
{
	uint64_t model = MIN(slowest_bits / 8 * MODEL_MS / 1000, MODEL_BYTES_MAX);

	return (uint64_t)nservers * CHUNKS_PER_SERVER * chunk > model;
}

static uint32_t window(uint64_t fastest_bits)
{
	uint32_t w = WINDOW_BYTES_MAX;

	while (w > WINDOW_BYTES_MIN && w > fastest_bits / 8 * WINDOW_MS / 1000)
		w /= 2;
	return w;
}

void place_sizes(struct place_sizes *s, uint32_t chunk_bytes, uint32_t nservers,
		 uint64_t slowest_bits, uint64_t fastest_bits)
{
	uint32_t seg = segment(slowest_bits), chunk = chunk_bytes ? chunk_bytes : seg;
	uint32_t least = seg > SEG_NEAR_MIN ? CHUNK_LEAST : CHUNK_BYTES_MIN;

	while (!chunk_bytes && chunk > least && few_each(chunk, nservers, slowest_bits))
		chunk /= 2;
	seg = nservers ? seg : MIN(seg, SEG_ALONE);
	while (chunk % seg)
		seg /= 2;
	*s = (struct place_sizes){ chunk, seg, window(fastest_bits) };
}
