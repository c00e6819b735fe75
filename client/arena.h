/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - memory that the agent reads in place: slabs of its, cut in pages.
 *
 * The arena itself asks nobody for anything: lt_session_grow() gets slabs from
 * the agent and adds them here.  A slab stays until the session ends.
 */
#ifndef TALLY_CLIENT_ARENA_H
#define TALLY_CLIENT_ARENA_H

#include "client/tally.h"
#include "common/shm/slab.h"

struct lt_arena_slab {
	struct slab mem;		/* owned */
	struct pagemap map;
	uint64_t *words;		/* owned; the map's bits */
	uint32_t *runs;			/* owned; pages of the block that starts at page i, or 0 */
	uint32_t dirty;			/* pages from here on were never given out: they are zero */
	uint32_t id;
	bool read_only;			/* for the agent: it did not make it, and may not write */
};

struct lt_arena {
	struct lt_arena_slab slabs[SLABS_PER_PROCESS_MAX];
	uint32_t nslabs;
	uint64_t bytes;			/* of all slabs */
};

/* Fills words and runs for a slab of that size.  ENOMEM. */
int lt_arena_slab_prepare(struct lt_arena_slab *as, uint64_t bytes, struct err *e);
void lt_arena_slab_drop(struct lt_arena_slab *as);

/* Takes over a prepared slab whose mem is mapped; there is room (ASSERT). */
void lt_arena_add(struct lt_arena *a, const struct lt_arena_slab *as);
void lt_arena_take_back(struct lt_arena *a);	/* the last that was added; no block is in it */
void lt_arena_fini(struct lt_arena *a);
void lt_arena_unshare(struct lt_arena *a);	/* in a child after fork(): see slab_unshare() */

/* Zeroed, and with its memory; NULL: no room, grow, or with a code in e (cleared else) no memory.
 * written: by the agent, too, whichever it is. */
void *lt_arena_get(struct lt_arena *a, uint64_t bytes, bool written, struct err *e);
/* Bytes of the block that starts at p; 0: none does. */
uint64_t lt_arena_block(const struct lt_arena *a, const void *p);
void lt_arena_put(struct lt_arena *a, void *p);		/* a block's start: ASSERT */

/* Which slab holds all of [p, p + len), and where. */
bool lt_arena_find(const struct lt_arena *a, const void *p, uint64_t len, uint32_t *slab,
		   uint64_t *off);

/* The byte at `off` of a slab; NULL: no such slab. */
void *lt_arena_at(const struct lt_arena *a, uint32_t slab, uint64_t off);
bool lt_arena_read_only(const struct lt_arena *a, uint32_t slab);

#endif
