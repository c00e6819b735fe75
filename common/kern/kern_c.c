// SPDX-License-Identifier: Apache-2.0
/*
 * The plain C sums: what the vector code must equal, and what runs where there
 * is none.  A block of accumulators stays in the L1 cache while the inputs are
 * added to it one after the other, so memory sees each input once.
 *
 * Whole blocks have a constant length, which lets compilers vectorise the loops
 * with the baseline's instructions at -O2.
 */
#include "common/kern/half.h"
#include "common/kern/impl.h"

#define BLOCK 512u	/* accumulators: 4 KiB at most */

/*
 * One type: `elem` in memory, added as `acc_t`.  get and put convert, finish
 * divides.  Integers are added unsigned: that wraps without undefined behaviour.
 */
#define DEFINE_SUM(name, elem, acc_t, get, put, finish) \
	KERN_ALWAYS_INLINE void name##_block(char *out, const void *const in[], uint32_t n, \
					     size_t at, size_t len, uint32_t div) \
	{ \
		acc_t acc[BLOCK]; \
		elem e; \
\
		for (size_t i = 0; i < len; i++) { \
			memcpy(&e, (const char *)in[0] + at + i * sizeof(e), sizeof(e)); \
			acc[i] = get(e); \
		} \
		for (uint32_t j = 1; j < n; j++) { \
			const char *p = (const char *)in[j] + at; \
\
			for (size_t i = 0; i < len; i++) { \
				memcpy(&e, p + i * sizeof(e), sizeof(e)); \
				acc[i] = (acc_t)(acc[i] + get(e)); \
			} \
		} \
		if (div > 1) \
			for (size_t i = 0; i < len; i++) \
				acc[i] = finish(acc[i], (acc_t)div); \
		for (size_t i = 0; i < len; i++) { \
			e = put(acc[i]); \
			memcpy(out + at + i * sizeof(e), &e, sizeof(e)); \
		} \
	} \
\
	static void name(void *out, const void *const in[], uint32_t n, size_t from, size_t to, \
			 uint32_t div) \
	{ \
		for (; to - from >= BLOCK; from += BLOCK) \
			name##_block(out, in, n, from * sizeof(elem), BLOCK, div); \
		if (from < to) \
			name##_block(out, in, n, from * sizeof(elem), to - from, div); \
	}

#define SAME(x)		(x)
#define QUOTIENT(a, b)	((a) / (b))
#define FIRST(a, b)	((void)(b), (a))	/* integers are divided in kern.c */

DEFINE_SUM(sum_f32, float, float, SAME, SAME, QUOTIENT)
DEFINE_SUM(sum_f64, double, double, SAME, SAME, QUOTIENT)
DEFINE_SUM(sum_f16, uint16_t, float, f32_from_f16, f16_from_f32, QUOTIENT)
DEFINE_SUM(sum_bf16, uint16_t, float, f32_from_bf16, bf16_from_f32, QUOTIENT)
DEFINE_SUM(sum_i8, uint8_t, uint8_t, SAME, SAME, FIRST)
DEFINE_SUM(sum_i32, uint32_t, uint32_t, SAME, SAME, FIRST)
DEFINE_SUM(sum_i64, uint64_t, uint64_t, SAME, SAME, FIRST)

/* One 16-bit type: inputs times their scales, divided; see kern_scaled_fn. */
#define DEFINE_SCALED(name, get, put) \
	KERN_ALWAYS_INLINE void name##_block(char *out, const void *const in[], \
					     const float *scale, uint32_t n, size_t at, \
					     size_t len, float by) \
	{ \
		float acc[BLOCK]; \
		uint16_t e; \
\
		for (uint32_t j = 0; j < n; j++) { \
			const char *p = (const char *)in[j] + at; \
\
			for (size_t i = 0; i < len; i++) { \
				memcpy(&e, p + i * sizeof(e), sizeof(e)); \
				acc[i] = j ? acc[i] + get(e) * scale[j] : get(e) * scale[0]; \
			} \
		} \
		for (size_t i = 0; i < len; i++) { \
			e = put(acc[i] / by); \
			memcpy(out + at + i * sizeof(e), &e, sizeof(e)); \
		} \
	} \
\
	static void name(void *out, const void *const in[], const float *scale, uint32_t n, \
			 size_t from, size_t to, float by) \
	{ \
		for (; to - from >= BLOCK; from += BLOCK) \
			name##_block(out, in, scale, n, from * 2, BLOCK, by); \
		if (from < to) \
			name##_block(out, in, scale, n, from * 2, to - from, by); \
	}

DEFINE_SCALED(scaled_f16, f32_from_f16, f16_from_f32)
DEFINE_SCALED(scaled_bf16, f32_from_bf16, bf16_from_f32)

kern_scaled_fn *const kern_scaled_c[DTYPE_END] = {
	[DTYPE_F16] = scaled_f16,
	[DTYPE_BF16] = scaled_bf16,
};

kern_fn *const kern_table_c[DTYPE_END] = {
	[DTYPE_F32] = sum_f32,
	[DTYPE_F64] = sum_f64,
	[DTYPE_F16] = sum_f16,
	[DTYPE_BF16] = sum_bf16,
	[DTYPE_I8] = sum_i8,
	[DTYPE_U8] = sum_i8,
	[DTYPE_I32] = sum_i32,
	[DTYPE_I64] = sum_i64,
};
