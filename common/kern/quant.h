/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant.h - q32: sums of floats as sums of integers, whose bits do not depend on any order.
 *
 * Elements are taken in blocks of QUANT_BLOCK from the tensor's start.  Of each block every
 * contributor tells an exponent; the largest of all contributors is the block's:
 *
 *	e = 0: all elements are zero; QUANT_EXACT: one is infinite or NaN (the block then has no
 *	integers and goes by the exact way); else max(31, biased exponent of the largest |x|).
 *	E = e - 126, so |x| < 2^E.  With n contributors and h = ceil(log2 n):
 *	q = trunc(x * 2^(30 - h - E))			an int32 of each contributor
 *	S = sum of the q of all				|S| <= 2^30: cannot overflow, in any order
 *	r = round(S * 2^-(30 - h - E) / div)		in double, then to float32, then to
 *							a 16-bit type
 *
 * Truncation composes: integers made with an exponent of one's own and then shifted toward zero to
 * the block's are those made with the block's exponent at once.  So whoever adds, and whatever
 * travels, the result is the same function of the inputs, the number of contributors and div.
 *
 * Promise: |r - sum of x / div| <= n * 2^(h - 29) * max|x| / div + half a unit in the last place
 * of r (of a 16-bit r: half a unit and 2^-12 of one), where max is over the block and all
 * contributors.
 *
 * float16 and bfloat16 are widened to float32 first, which is exact.  Plain C, AVX2 and AVX-512
 * give the same bits.  No heap, no state but the level of kern.h.  No alignment is needed.
 */
#ifndef TALLY_KERN_QUANT_H
#define TALLY_KERN_QUANT_H

#include "common/kern/kern.h"

#define QUANT_BLOCK	256u
#define QUANT_EXACT	255u		/* exponent of a block that integers cannot say */
#define QUANT_EXP_MIN	31u		/* of smaller blocks, too: scales stay normal floats */
#define QUANT_BITS	30u		/* of a sum; each contributor has h fewer */

/* Blocks of len elements. */
static inline size_t quant_blocks(size_t len)
{
	return (len + QUANT_BLOCK - 1) / QUANT_BLOCK;
}

/* h: ceil(log2 n), n from 1 to 2^16. */
uint32_t quant_headroom(uint32_t n);

/* Can q32 add elements of this type: float32, float16, bfloat16. */
bool quant_takes(enum dtype dtype);

/* The exponents of x, from a block's start on: quant_blocks(len) bytes. */
void quant_exponents(enum dtype dtype, const void *x, size_t len, uint8_t *e);

/* into[i] = the larger of both, for `blocks` blocks. */
void quant_exponents_join(uint8_t *into, const uint8_t *e, size_t blocks);

/* The integers of x by exponents e, none of which is QUANT_EXACT or less than x's own. */
void quant_ints(enum dtype dtype, const void *x, size_t len, const uint8_t *e, uint32_t headroom,
		int32_t *q);

/* Integers made by exponents `own`, as those by e, none of which is less; in place. */
void quant_align(int32_t *q, size_t len, const uint8_t *own, const uint8_t *e);

/* The result of sums S by exponents e; div >= 1. */
void quant_floats(enum dtype dtype, const int32_t *sum, size_t len, const uint8_t *e,
		  uint32_t headroom, uint32_t div, void *out);

/*
 * All of it from the contributors' own elements, for whoever has them: the same bits as by
 * integers.  Blocks with an infinity or NaN are summed by kern_sum().  n from 1 to
 * AGENTS_PER_JOB_MAX; out may be one of the inputs.
 */
void quant_sum(enum dtype dtype, void *out, const void *const in[], uint32_t n, size_t len,
	       uint32_t div);

#endif
