// SPDX-License-Identifier: Apache-2.0
/*
 * The sums with AVX-512 (F, BW, VL, DQ).  Four vectors of accumulators stay in
 * registers while a piece of every input is added to them, so memory sees each
 * input once; the rest of the range goes vector by vector under a byte mask.
 *
 * bfloat16 is two float32 in each 32-bit lane: the upper half is one already,
 * the lower half is one after a shift.  Rounding puts them back the same way,
 * with no shuffle.  The AVX512_BF16 instructions are not used: they flush
 * denormals.
 *
 * Everything is an __m512i in between, so that one loop serves all types; the
 * casts are free.
 */
#include "common/kern/impl.h"

#include <immintrin.h>

#define VEC	64u		/* bytes of a vector */
#define STEP	(4 * VEC)

struct quad {
	__m512i a, b, c, d;
};

typedef __m512i op_fn(__m512i a, __m512i b);

/* What a 16-bit type is made of: a vector of it is two vectors of float32. */
struct wide {
	__m512 lo, hi;
};

typedef struct wide widen_fn(__m512i v);
typedef __m512i narrow_fn(struct wide w);

KERN_ALWAYS_INLINE __m512i load(const void *p)
{
	return _mm512_loadu_si512(p);
}

KERN_ALWAYS_INLINE __mmask64 mask_of(size_t bytes)
{
	return bytes >= VEC ? ~(__mmask64)0 : ~(__mmask64)0 >> (VEC - bytes);
}

/* Types that add as themselves. */

KERN_ALWAYS_INLINE __m512i add_f32(__m512i a, __m512i b)
{
	return _mm512_castps_si512(
		_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

KERN_ALWAYS_INLINE __m512i div_f32(__m512i a, __m512i b)
{
	return _mm512_castps_si512(
		_mm512_div_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

KERN_ALWAYS_INLINE __m512i add_f64(__m512i a, __m512i b)
{
	return _mm512_castpd_si512(
		_mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
}

KERN_ALWAYS_INLINE __m512i div_f64(__m512i a, __m512i b)
{
	return _mm512_castpd_si512(
		_mm512_div_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
}

KERN_ALWAYS_INLINE __m512i add_i8(__m512i a, __m512i b)
{
	return _mm512_add_epi8(a, b);
}

KERN_ALWAYS_INLINE __m512i add_i32(__m512i a, __m512i b)
{
	return _mm512_add_epi32(a, b);
}

KERN_ALWAYS_INLINE __m512i add_i64(__m512i a, __m512i b)
{
	return _mm512_add_epi64(a, b);
}

KERN_ALWAYS_INLINE struct quad quad_of(const char *p)
{
	return (struct quad){ load(p), load(p + VEC), load(p + 2 * VEC), load(p + 3 * VEC) };
}

KERN_ALWAYS_INLINE struct quad quad_ahead(const char *p, size_t ahead)
{
	for (size_t at = 0; ahead && at < sizeof(struct quad); at += KERN_LINE)
		_mm_prefetch(p + ahead + at, _MM_HINT_T0);
	return quad_of(p);
}

KERN_ALWAYS_INLINE struct quad quad_op(struct quad q, struct quad r, op_fn *op)
{
	return (struct quad){ op(q.a, r.a), op(q.b, r.b), op(q.c, r.c), op(q.d, r.d) };
}

/* Past the caches when they are not to hold it; p is a multiple of VEC then. */
KERN_ALWAYS_INLINE void put(char *p, __m512i v, bool cold)
{
	if (cold)
		_mm512_stream_si512((__m512i *)p, v);
	else
		_mm512_storeu_si512(p, v);
}

KERN_ALWAYS_INLINE void quad_put(char *p, struct quad q, bool cold)
{
	put(p, q.a, cold);
	put(p + VEC, q.b, cold);
	put(p + 2 * VEC, q.c, cold);
	put(p + 3 * VEC, q.d, cold);
}

/* Bytes [at, end); div is NULL or divides by the lanes of `by`. */
KERN_ALWAYS_INLINE void sum_same(char *out, const void *const in[], uint32_t n, size_t at,
				 size_t end, op_fn *add, op_fn *div, __m512i by, bool cold)
{
	const size_t ahead = kern_ahead(n, cold);

	for (; end - at >= STEP; at += STEP) {
		struct quad q = quad_ahead((const char *)in[0] + at, ahead);

		for (uint32_t j = 1; j < n; j++)
			q = quad_op(q, quad_ahead((const char *)in[j] + at, ahead), add);
		if (div)
			q = quad_op(q, (struct quad){ by, by, by, by }, div);
		quad_put(out + at, q, cold);
	}
	for (; at < end; at += VEC) {
		__mmask64 m = mask_of(end - at);
		__m512i v = _mm512_maskz_loadu_epi8(m, (const char *)in[0] + at);

		for (uint32_t j = 1; j < n; j++)
			v = add(v, _mm512_maskz_loadu_epi8(m, (const char *)in[j] + at));
		if (div)
			v = div(v, by);
		_mm512_mask_storeu_epi8(out + at, m, v);
		if (end - at < VEC)
			break;
	}
}

#define DEFINE_INTEGER_AS(name, cold, size, add) \
	static void name(void *out, const void *const in[], uint32_t n, size_t from, size_t to, \
			 uint32_t div) \
	{ \
		(void)div; \
		sum_same(out, in, n, from * (size), to * (size), add, NULL, \
			 _mm512_setzero_si512(), cold); \
	}

#define DEFINE_FLOAT_AS(name, cold, size, add, divide, splat) \
	static void name(void *out, const void *const in[], uint32_t n, size_t from, size_t to, \
			 uint32_t div) \
	{ \
		if (div > 1) \
			sum_same(out, in, n, from * (size), to * (size), add, divide, splat, \
				 cold); \
		else \
			sum_same(out, in, n, from * (size), to * (size), add, NULL, \
				 _mm512_setzero_si512(), cold); \
	}

#define DEFINE_INTEGER(name, size, add) \
	DEFINE_INTEGER_AS(name, false, size, add) \
	DEFINE_INTEGER_AS(name##_cold, true, size, add)

#define DEFINE_FLOAT(name, size, add, divide, splat) \
	DEFINE_FLOAT_AS(name, false, size, add, divide, splat) \
	DEFINE_FLOAT_AS(name##_cold, true, size, add, divide, splat)

DEFINE_INTEGER(sum_i8, 1, add_i8)
DEFINE_INTEGER(sum_i32, 4, add_i32)
DEFINE_INTEGER(sum_i64, 8, add_i64)
DEFINE_FLOAT(sum_f32, 4, add_f32, div_f32, _mm512_castps_si512(_mm512_set1_ps((float)div)))
DEFINE_FLOAT(sum_f64, 8, add_f64, div_f64, _mm512_castpd_si512(_mm512_set1_pd((double)div)))

/* Types that add as float32. */

/* The first of two vectors. */
KERN_ALWAYS_INLINE __m512i load_ahead(const char *p, size_t ahead)
{
	for (size_t at = 0; ahead && at < 2 * VEC; at += KERN_LINE)
		_mm_prefetch(p + ahead + at, _MM_HINT_T0);
	return load(p);
}

KERN_ALWAYS_INLINE struct wide widen_f16(__m512i v)
{
	return (struct wide){ _mm512_cvtph_ps(_mm512_castsi512_si256(v)),
			      _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1)) };
}

KERN_ALWAYS_INLINE __m512i narrow_f16(struct wide w)
{
	__m256i lo = _mm512_cvtps_ph(w.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	__m256i hi = _mm512_cvtps_ph(w.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

	return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}

KERN_ALWAYS_INLINE struct wide widen_bf16(__m512i v)
{
	__m512i upper = _mm512_set1_epi32((int)0xffff0000);

	return (struct wide){ _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
			      _mm512_castsi512_ps(_mm512_and_si512(v, upper)) };
}

/*
 * The bfloat16 in the upper half of each lane; the lower half is rubbish.  A NaN
 * here came from a bfloat16 or from infinities: its lower half is 0, so rounding
 * does not carry out of its mantissa and it needs no special case.
 */
KERN_ALWAYS_INLINE __m512i round_bf16(__m512 f)
{
	__m512i u = _mm512_castps_si512(f);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));

	return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
}

KERN_ALWAYS_INLINE __m512i narrow_bf16(struct wide w)
{
	return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(round_bf16(w.lo), 16),
				       round_bf16(w.hi));
}

KERN_ALWAYS_INLINE struct wide wide_add(struct wide w, struct wide x)
{
	return (struct wide){ _mm512_add_ps(w.lo, x.lo), _mm512_add_ps(w.hi, x.hi) };
}

KERN_ALWAYS_INLINE struct wide wide_div(struct wide w, __m512 by)
{
	return (struct wide){ _mm512_div_ps(w.lo, by), _mm512_div_ps(w.hi, by) };
}

/* Times input j's scale; NULL: as it is.  A power of two: exact, fused with an addition or not. */
KERN_ALWAYS_INLINE struct wide wide_scale(struct wide w, const float *scale, uint32_t j)
{
	if (!scale)
		return w;
	return (struct wide){ _mm512_mul_ps(w.lo, _mm512_set1_ps(scale[j])),
			      _mm512_mul_ps(w.hi, _mm512_set1_ps(scale[j])) };
}

/* The bytes of an input that the mask has. */
KERN_ALWAYS_INLINE struct wide widen_tail(const void *in, size_t at, __mmask64 m, widen_fn *widen)
{
	return widen(_mm512_maskz_loadu_epi8(m, (const char *)in + at));
}

/* Bytes [at, end); scale: see wide_scale(). */
KERN_ALWAYS_INLINE void sum_half(char *out, const void *const in[], const float *scale,
				 uint32_t n, size_t at, size_t end, float div, widen_fn *widen,
				 narrow_fn *narrow, bool cold)
{
	__m512 by = _mm512_set1_ps(div);
	const size_t ahead = cold ? kern_ahead(n, true) : 0;

	for (; end - at >= 2 * VEC; at += 2 * VEC) {
		struct wide w = wide_scale(widen(load_ahead((const char *)in[0] + at, ahead)),
					   scale, 0);
		struct wide x = wide_scale(widen(load((const char *)in[0] + at + VEC)), scale, 0);

		for (uint32_t j = 1; j < n; j++) {
			const char *p = (const char *)in[j] + at;

			w = wide_add(w, wide_scale(widen(load_ahead(p, ahead)), scale, j));
			x = wide_add(x, wide_scale(widen(load(p + VEC)), scale, j));
		}
		if (div != 1) {
			w = wide_div(w, by);
			x = wide_div(x, by);
		}
		put(out + at, narrow(w), cold);
		put(out + at + VEC, narrow(x), cold);
	}
	for (; at < end; at += VEC) {
		__mmask64 m = mask_of(end - at);
		struct wide w = wide_scale(widen_tail(in[0], at, m, widen), scale, 0);

		for (uint32_t j = 1; j < n; j++)
			w = wide_add(w, wide_scale(widen_tail(in[j], at, m, widen), scale, j));
		if (div != 1)
			w = wide_div(w, by);
		_mm512_mask_storeu_epi8(out + at, m, narrow(w));
		if (end - at < VEC)
			break;
	}
}

#define DEFINE_HALF_AS(name, cold, widen, narrow) \
	static void name(void *out, const void *const in[], uint32_t n, size_t from, size_t to, \
			 uint32_t div) \
	{ \
		sum_half(out, in, NULL, n, 2 * from, 2 * to, (float)div, widen, narrow, cold); \
	} \
\
	static void scaled_##name(void *out, const void *const in[], const float *scale, \
				  uint32_t n, size_t from, size_t to, float by) \
	{ \
		sum_half(out, in, scale, n, 2 * from, 2 * to, by, widen, narrow, cold); \
	}

#define DEFINE_HALF(name, widen, narrow) \
	DEFINE_HALF_AS(name, false, widen, narrow) \
	DEFINE_HALF_AS(name##_cold, true, widen, narrow)

DEFINE_HALF(sum_f16, widen_f16, narrow_f16)
DEFINE_HALF(sum_bf16, widen_bf16, narrow_bf16)

kern_fn *const kern_table_avx512[DTYPE_END] = {
	[DTYPE_F32] = sum_f32,
	[DTYPE_F64] = sum_f64,
	[DTYPE_F16] = sum_f16,
	[DTYPE_BF16] = sum_bf16,
	[DTYPE_I8] = sum_i8,
	[DTYPE_U8] = sum_i8,
	[DTYPE_I32] = sum_i32,
	[DTYPE_I64] = sum_i64,
};

kern_fn *const kern_cold_avx512[DTYPE_END] = {
	[DTYPE_F32] = sum_f32_cold,
	[DTYPE_F64] = sum_f64_cold,
	[DTYPE_F16] = sum_f16_cold,
	[DTYPE_BF16] = sum_bf16_cold,
	[DTYPE_I8] = sum_i8_cold,
	[DTYPE_U8] = sum_i8_cold,
	[DTYPE_I32] = sum_i32_cold,
	[DTYPE_I64] = sum_i64_cold,
};

kern_scaled_fn *const kern_scaled_avx512[DTYPE_END] = {
	[DTYPE_F16] = scaled_sum_f16,
	[DTYPE_BF16] = scaled_sum_bf16,
};

kern_scaled_fn *const kern_scaled_cold_avx512[DTYPE_END] = {
	[DTYPE_F16] = scaled_sum_f16_cold,
	[DTYPE_BF16] = scaled_sum_bf16_cold,
};
