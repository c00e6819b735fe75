/* SPDX-License-Identifier: Apache-2.0 */
/*
 * impl.h - what the implementations of the sums share; for common/kern only.
 *
 * A kern_fn sums elements [from, to) of n >= 2 inputs (n >= 1 if div > 1) into
 * the same elements of out.  It loads a piece of every input before it stores
 * that piece, so out may be one of them.  Integer functions ignore div: kern.c
 * divides afterwards, the same code at every level.
 */
#ifndef TALLY_KERN_IMPL_H
#define TALLY_KERN_IMPL_H

#include "common/base/dtype.h"

typedef void kern_fn(void *out, const void *const in[], uint32_t n, size_t from, size_t to,
		     uint32_t div);

/* Indexed by enum dtype. */
extern kern_fn *const kern_table_c[DTYPE_END];
extern kern_fn *const kern_table_avx2[DTYPE_END];
extern kern_fn *const kern_table_avx512[DTYPE_END];

/* The same for kern_sum_cold(); out is a multiple of KERN_LINE. */
extern kern_fn *const kern_cold_avx2[DTYPE_END];
extern kern_fn *const kern_cold_avx512[DTYPE_END];

/*
 * Sums of 16-bit floats in which every input is multiplied by its scale, a power of two, before
 * it is added, and the sum divided by `by` (n >= 1).  Only those types have one.
 */
typedef void kern_scaled_fn(void *out, const void *const in[], const float *scale, uint32_t n,
			    size_t from, size_t to, float by);

extern kern_scaled_fn *const kern_scaled_c[DTYPE_END];
extern kern_scaled_fn *const kern_scaled_avx2[DTYPE_END];
extern kern_scaled_fn *const kern_scaled_avx512[DTYPE_END];
/* The same for kern_sum_cold(); out is a multiple of KERN_LINE. */
extern kern_scaled_fn *const kern_scaled_cold_avx2[DTYPE_END];
extern kern_scaled_fn *const kern_scaled_cold_avx512[DTYPE_END];

/*
 * From so many inputs on a core's own prefetchers no longer keep up with a cache: the vector
 * loops ask for what comes KERN_AHEAD_BYTES later.  With fewer it would only cost there.
 */
#define KERN_AHEAD_INPUTS	5u
#define KERN_AHEAD_BYTES	2048u
#define KERN_LINE		64u

/* For the generic loops that become one tight loop per type. */
#define KERN_ALWAYS_INLINE static inline __attribute__((always_inline))

#ifdef __x86_64__
/*
 * How many bytes later the lines are for which the loops ask, 0 for none.  Past the caches AMD's
 * prefetchers do keep up, and only want to hear early of the next lines (BENCHMARKS.md).
 */
KERN_ALWAYS_INLINE size_t kern_ahead(uint32_t n, bool cold)
{
	if (!cold)
		return n < KERN_AHEAD_INPUTS ? 0 : KERN_AHEAD_BYTES;
	return __builtin_cpu_is("amd") ? 4 * KERN_LINE : KERN_AHEAD_BYTES;
}
#endif

#endif
