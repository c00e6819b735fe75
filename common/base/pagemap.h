/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pagemap.h - a page allocator over an address range: first fit in a bitmap.
 *
 * The words are the caller's; nothing is allocated, nothing can fail but for
 * want of room.  One owner thread.
 */
#ifndef TALLY_BASE_PAGEMAP_H
#define TALLY_BASE_PAGEMAP_H

#include "common/base/base.h"

struct pagemap {
	uint64_t *words;	/* borrowed; BITS_WORDS(pages) of them */
	uint32_t pages;
	uint32_t used;
	uint32_t hint;		/* no free page below */
};

void pagemap_init(struct pagemap *m, uint64_t *words, uint32_t pages);
/* First page of a free run of n, now taken; UINT32_MAX: none.  n >= 1. */
uint32_t pagemap_get(struct pagemap *m, uint32_t n);
bool pagemap_take(struct pagemap *m, uint32_t first, uint32_t n);	/* false: not all free */
void pagemap_put(struct pagemap *m, uint32_t first, uint32_t n);	/* must be taken: ASSERT */

#endif
