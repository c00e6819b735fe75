// SPDX-License-Identifier: Apache-2.0
/*
 * sizes.c - what a job's tensors are cut into.
 *
 * A segment lasts about a millisecond on the slowest card: shorter ones cost more headers
 * and wake-ups, longer ones let a card wait for its first sum and after its last.  A
 * chunk is what is placed, and is longer than a segment only when ranks want it so: a server's
 * share is met within a chunk, and whoever got one more is who all wait for.  For the
 * same reason both shrink when so many servers share the model that each has only a few.
 * Slow cards, whose segment is the smallest, send few in a second whatever their length, so
 * there they shrink sooner and further; a model of more than CHUNKS_PER_JOB_MAX of them would
 * take minutes for a round.
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
#define MODEL_BYTES		(512u << 20)	/* few that need many machines are smaller, */
#define MODEL_MS		250u		/* but with slow cards: what one carries in that */
#define CHUNKS_PER_SERVER	32u
#define CHUNK_LEAST		(64u << 10)	/* but with slow cards */

static uint32_t segment(uint64_t slowest_bits)
{
	uint32_t seg = SEG_NEAR_MIN;

	while (seg < SEG_NEAR_MAX && 2ull * seg <= slowest_bits / 8 / 1000)
		seg *= 2;
	return seg;
}

static uint32_t chunk_of(uint32_t seg, uint32_t nservers, uint64_t slowest_bits)
{
	bool slow = seg == SEG_NEAR_MIN;
	uint64_t model = slow ? slowest_bits / 8 * MODEL_MS / 1000 : MODEL_BYTES;
	uint32_t least = slow ? CHUNK_BYTES_MIN : CHUNK_LEAST, chunk = seg;

	while (chunk > least && (uint64_t)nservers * CHUNKS_PER_SERVER * chunk > model)
		chunk /= 2;
	return chunk;
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
	uint32_t seg = segment(slowest_bits), chunk = chunk_bytes;

	if (!chunk)
		chunk = chunk_of(seg, nservers, slowest_bits);
	seg = nservers ? seg : MIN(seg, SEG_ALONE);
	while (chunk % seg)
		seg /= 2;
	*s = (struct place_sizes){ chunk, seg, window(fastest_bits) };
}
