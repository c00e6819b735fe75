/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern.h - the sums: n inputs added in one pass, the same bits on every CPU.
 *
 * out[i] = round(((in[0][i] + in[1][i]) + in[2][i]) + ...), left to right.
 * float32 and float64 add in their own type; float16 and bfloat16 add in
 * float32 and round once at the end (to nearest, ties to even; overflow to
 * infinity; denormals kept).  Integers add modulo 2^bits.  With div > 1 the sum
 * is divided before that last rounding: floating point by an IEEE division,
 * integers after the wrap, toward zero.  NaN payloads and signs are unspecified.
 * n = 1 copies (then divides, if asked).
 *
 * A mean of 16-bit floats is infinite only where the mean itself is too large for its type: see
 * kern_mean(), which kern_sum() is without shifts.
 *
 * Three implementations (plain C, AVX2 + F16C, AVX-512), one table each, chosen
 * once; all give the same bits.  No heap, no locks, no global state but the
 * level, which is set before threads start.
 *
 * out may be one of the inputs (same address), not overlap one otherwise.
 * No alignment is needed; 64 is fastest.
 */
#ifndef TALLY_KERN_H
#define TALLY_KERN_H

#include "common/base/dtype.h"

enum kern_level { KERN_C, KERN_AVX2, KERN_AVX512, KERN_LEVELS };

/* The best level that this CPU and the mask (bit i allows level i) permit. */
enum kern_level kern_init(uint32_t mask);
/* The same by the name of the highest level permitted; false: no such name. */
bool kern_init_upto(const char *name);
enum kern_level kern_level(void);
bool kern_level_usable(enum kern_level l);
const char *kern_level_name(enum kern_level l);

/* len in elements, n >= 1 inputs; div >= 1 (1: plain sum).  dtype must be valid. */
void kern_sum(enum dtype dtype, void *out, const void *const in[], uint32_t n, size_t len,
	      uint32_t div);

/*
 * A mean whose inputs may be sums that were divided by a power of two, so that they fit their
 * type: in[i] stands for in[i] * 2^shift[i].  Shifts are 0 but for 16-bit floats.
 *
 * Of these, bfloat16 and those with a shift, in float32: the inputs times 2^(shift[i] - k) are
 * added, and the sum divided by div * 2^-k, where 2^k is the smallest power of two not below div.
 * Both factors are exact, so that the result has the bits of a sum that does not overflow.
 */
void kern_mean(enum dtype dtype, void *out, const void *const in[], const uint8_t shift[],
	       uint32_t n, size_t len, uint32_t div);
void kern_mean_at(enum kern_level l, enum dtype dtype, void *out, const void *const in[],
		  const uint8_t shift[], uint32_t n, size_t len, uint32_t div);

/*
 * By which power of two the sum of n inputs is divided, so that it fits where every input does:
 * 2^kern_shift() is the smallest that is not below n.  0 for types whose sums are not scaled.
 */
uint8_t kern_shift(enum dtype dtype, uint32_t n);

/*
 * kern_sum() for a result that is not read soon: it goes to memory past the caches, which
 * neither fetches its old bytes nor throws others' out.  For tensors of KERN_COLD_BYTES
 * and more, segment by segment.
 */
#define KERN_COLD_BYTES	(8u << 20)
void kern_sum_cold(enum dtype dtype, void *out, const void *const in[], uint32_t n, size_t len,
		   uint32_t div);

/*
 * Copies bytes to memory whose lines are in no cache of this core: of KERN_COPY_COLD_MIN and
 * more past the caches, which waits for no old bytes.  Other threads see them, like what is
 * stored after them, for sure only after this thread's next kern_copied(): one call will do
 * for many copies.
 */
#define KERN_COPY_COLD_MIN	1024u
void kern_copy_cold(void *out, const void *in, size_t bytes);
void kern_copied(void);

/* kern_sum() at a given level, for tests and benchmarks; the level must be usable. */
void kern_sum_at(enum kern_level l, enum dtype dtype, void *out, const void *const in[],
		 uint32_t n, size_t len, uint32_t div);

#endif
