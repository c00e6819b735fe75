/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - the words every other file is written with.
 *
 * Time as a type, the assertion that guards against our own bugs, a few
 * arithmetic helpers.  Nothing here allocates, locks or does I/O, but for
 * assert_failed(), which writes one line and aborts.
 */
#ifndef TALLY_BASE_BASE_H
#define TALLY_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/limits.h"

/* Nanoseconds of CLOCK_BOOTTIME (or of a simulator's clock).  Never wall time. */
typedef int64_t mono_t;

#define MONO_NEVER	INT64_MAX
#define NS_PER_MS	INT64_C(1000000)
#define NS_PER_SEC	INT64_C(1000000000)

static inline mono_t mono_ms(uint64_t ms)
{
	return (mono_t)ms * NS_PER_MS;
}

/* Our own bug: says where, and aborts.  Never used on bytes from outside. */
_Noreturn void assert_failed(const char *expr, const char *file, int line);
#define ASSERT(x) ((x) ? (void)0 : assert_failed(#x, __FILE__, __LINE__))

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) \
	((type *)((char *)(p) - offsetof(type, member)))

#define MIN(a, b)	((a) < (b) ? (a) : (b))
#define MAX(a, b)	((a) > (b) ? (a) : (b))

static inline uint64_t div_round_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* `to` is a power of two. */
static inline uint64_t align_up(uint64_t a, uint64_t to)
{
	return (a + to - 1) & ~(to - 1);
}

/*
 * Places that users share, max of them, all taken, mine among those: nobody takes more than half
 * of what the others leave, so whoever comes next finds room.
 */
static inline bool user_has_room(uint32_t mine, uint32_t all, uint32_t max)
{
	return all < max && mine < max - all;
}

/* True when [off, off + len) lies inside [0, size); safe against overflow. */
static inline bool range_ok(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

#endif
