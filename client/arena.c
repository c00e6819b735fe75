// SPDX-License-Identifier: Apache-2.0
/*
 * arena.c - blocks of pages in slabs, first slab that has room, first fit in it.
 *
 * A fresh page is zero already, so only what was given out before is cleared.  A block has its
 * memory when it is given out: where a cgroup or the machine has none, that is an error of the
 * call, and not the end of the process at the first touch.
 */
#include "client/arena.h"

#include <string.h>

#include "client/mem.h"
#include "common/base/bytes.h"
#include "common/shm/limit.h"

#define CHECKED_BYTES_MIN	(1u << 20)

static_assert(SLAB_BYTES_MAX / PAGE_BYTES < UINT32_MAX, "page numbers are u32");

int lt_arena_slab_prepare(struct lt_arena_slab *as, uint64_t bytes, struct err *e)
{
	uint32_t pages = (uint32_t)(bytes / PAGE_BYTES);

	*as = (struct lt_arena_slab){ .mem.fd = -1 };
	as->words = lt_mem_new(BITS_WORDS((size_t)pages), sizeof(*as->words));
	as->runs = lt_mem_new(pages, sizeof(*as->runs));
	if (!as->words || !as->runs) {
		lt_arena_slab_drop(as);
		return err_set(e, TALLY_ENOMEM, "no memory to keep an arena of %llu bytes",
			       (unsigned long long)bytes);
	}
	pagemap_init(&as->map, as->words, pages);
	return 0;
}

void lt_arena_slab_drop(struct lt_arena_slab *as)
{
	slab_free(&as->mem);
	lt_mem_free(as->words);
	lt_mem_free(as->runs);
	*as = (struct lt_arena_slab){ .mem.fd = -1 };
}

void lt_arena_add(struct lt_arena *a, const struct lt_arena_slab *as)
{
	ASSERT(a->nslabs < SLABS_PER_PROCESS_MAX);
	ASSERT((uint64_t)as->map.pages * PAGE_BYTES <= as->mem.bytes);
	a->slabs[a->nslabs++] = *as;
	a->bytes += as->mem.bytes;
}

void lt_arena_take_back(struct lt_arena *a)
{
	struct lt_arena_slab *as = &a->slabs[--a->nslabs];

	a->bytes -= as->mem.bytes;
	lt_arena_slab_drop(as);
}

void lt_arena_fini(struct lt_arena *a)
{
	for (uint32_t i = 0; i < a->nslabs; i++)
		lt_arena_slab_drop(&a->slabs[i]);
	a->nslabs = 0;
	a->bytes = 0;
}

void lt_arena_unshare(struct lt_arena *a)
{
	for (uint32_t i = 0; i < a->nslabs; i++)
		slab_unshare(&a->slabs[i].mem, (uint64_t)a->slabs[i].dirty * PAGE_BYTES);
}

/* Pages from `dirty` on get their memory.  To ask for the limits costs as much as some pages. */
static int back(struct lt_arena_slab *as, uint32_t to, struct err *e)
{
	uint64_t from = (uint64_t)as->dirty * PAGE_BYTES, len;
	int rc = 0;

	if (to <= as->dirty || as->mem.huge || as->mem.device)
		return 0;
	len = (uint64_t)(to - as->dirty) * PAGE_BYTES;
	if (len >= CHECKED_BYTES_MIN)
		rc = limit_memory_check(len, e);
	return rc ? rc : slab_prefault(&as->mem, from, len, e);
}

static void *slab_get(struct lt_arena_slab *as, uint32_t pages, struct err *e)
{
	uint32_t first = pagemap_get(&as->map, pages);
	uint8_t *p;

	if (first == UINT32_MAX)
		return NULL;
	if (back(as, first + pages, e)) {
		pagemap_put(&as->map, first, pages);
		return NULL;
	}
	p = as->mem.base + (uint64_t)first * PAGE_BYTES;
	if (first < as->dirty)
		memset(p, 0, (uint64_t)(MIN(first + pages, as->dirty) - first) * PAGE_BYTES);
	as->dirty = MAX(as->dirty, first + pages);
	as->runs[first] = pages;
	return p;
}

void *lt_arena_get(struct lt_arena *a, uint64_t bytes, bool written, struct err *e)
{
	uint64_t pages = MAX(div_round_up(bytes, PAGE_BYTES), 1);
	void *p = NULL;

	*e = (struct err){ 0 };
	if (pages > SLAB_BYTES_MAX / PAGE_BYTES)
		return NULL;
	for (uint32_t i = 0; i < a->nslabs && !p && !e->code; i++)
		if (!written || !(a->slabs[i].read_only || a->slabs[i].mem.huge))
			p = slab_get(&a->slabs[i], (uint32_t)pages, e);
	return p;
}

/* The slab that p points into, and the offset; NULL: none. */
static const struct lt_arena_slab *slab_of(const struct lt_arena *a, const void *p, uint64_t *off)
{
	for (uint32_t i = 0; i < a->nslabs; i++) {
		*off = (uintptr_t)p - (uintptr_t)a->slabs[i].mem.base;
		if (*off < a->slabs[i].mem.bytes)
			return &a->slabs[i];
	}
	return NULL;
}

uint64_t lt_arena_block(const struct lt_arena *a, const void *p)
{
	const struct lt_arena_slab *as;
	uint64_t off, page;

	as = slab_of(a, p, &off);
	page = off / PAGE_BYTES;
	if (!as || off % PAGE_BYTES || page >= as->map.pages)
		return 0;
	return (uint64_t)as->runs[page] * PAGE_BYTES;
}

void lt_arena_put(struct lt_arena *a, void *p)
{
	struct lt_arena_slab *as;
	uint64_t off;
	uint32_t page;

	as = (struct lt_arena_slab *)slab_of(a, p, &off);
	ASSERT(as && off % PAGE_BYTES == 0);
	page = (uint32_t)(off / PAGE_BYTES);
	ASSERT(as->runs[page]);
	pagemap_put(&as->map, page, as->runs[page]);
	as->runs[page] = 0;
}

bool lt_arena_find(const struct lt_arena *a, const void *p, uint64_t len, uint32_t *slab,
		   uint64_t *off)
{
	const struct lt_arena_slab *as = slab_of(a, p, off);

	if (!as || !range_ok(*off, len, as->mem.bytes))
		return false;
	*slab = as->id;
	return true;
}

static const struct lt_arena_slab *slab_by_id(const struct lt_arena *a, uint32_t id)
{
	for (uint32_t i = 0; i < a->nslabs; i++)
		if (a->slabs[i].id == id)
			return &a->slabs[i];
	return NULL;
}

void *lt_arena_at(const struct lt_arena *a, uint32_t slab, uint64_t off)
{
	const struct lt_arena_slab *as = slab_by_id(a, slab);

	return as ? as->mem.base + off : NULL;
}

bool lt_arena_read_only(const struct lt_arena *a, uint32_t slab)
{
	const struct lt_arena_slab *as = slab_by_id(a, slab);

	return as && as->read_only;
}
