/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - libtally's only door to the heap.
 *
 * Everything is zeroed.  A test program may define tally_mem_test_fails(); it is
 * asked before each allocation and makes it fail by returning true.  In the
 * library nobody defines it, and the weak reference is resolved when it is linked.
 */
#ifndef TALLY_CLIENT_MEM_H
#define TALLY_CLIENT_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__attribute__((weak, visibility("hidden"))) bool tally_mem_test_fails(void);

void *lt_mem_new(size_t count, size_t size);	/* NULL: no memory, or count * size overflows */
void lt_mem_free(void *p);			/* NULL is fine */

/* Makes *p hold at least want bytes, content kept. False: as it was. */
bool lt_mem_reserve(uint8_t **p, size_t *size, size_t want);

#endif
