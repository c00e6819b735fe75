// SPDX-License-Identifier: Apache-2.0
/*
 * The sums with AVX2 and F16C.  Four vectors of accumulators stay in registers
 * while a piece of every input is added to them, so memory sees each input
 * once; what is left at the end, less than such a piece, goes to the plain C.
 *
 * bfloat16 is two float32 in each 32-bit lane: the upper half is one already,
 * the lower half is one after a shift.  Rounding puts them back the same way,
 * with no shuffle.
 *
 * Everything is an __m256i in between, so that one loop serves all types; the
 * casts are free.
 */
#include "common/kern/impl.h"

#include <immintrin.h>

#define VEC	32u		/* bytes of a vector */

struct quad {
	__m256i a, b, c, d;
};

typedef __m256i op_fn(__m256i a, __m256i b);

/* What a 16-bit type is made of: a vector of it is two vectors of float32. */
struct wide {
	__m256 lo, hi;
};

typedef struct wide widen_fn(__m256i v);
typedef __m256i narrow_fn(struct wide w);

KERN_ALWAYS_INLINE __m256i load(const char *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

KERN_ALWAYS_INLINE void store(char *p, __m256i v)
{
	_mm256_storeu_si256((__m256i *)p, v);
}

/* Types that add as themselves. */

KERN_ALWAYS_INLINE __m256i add_f32(__m256i a, __m256i b)
{
	return _mm256_castps_si256(
		_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
}

KERN_ALWAYS_INLINE __m256i div_f32(__m256i a, __m256i b)
{
	return _mm256_castps_si256(
		_mm256_div_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
}

KERN_ALWAYS_INLINE __m256i add_f64(__m256i a, __m256i b)
{
	return _mm256_castpd_si256(
		_mm256_add_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
}

KERN_ALWAYS_INLINE __m256i div_f64(__m256i a, __m256i b)
{
	return _mm256_castpd_si256(
		_mm256_div_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
}

KERN_ALWAYS_INLINE __m256i add_i8(__m256i a, __m256i b)
{
	return _mm256_add_epi8(a, b);
}

KERN_ALWAYS_INLINE __m256i add_i32(__m256i a, __m256i b)
{
	return _mm256_add_epi32(a, b);
}

KERN_ALWAYS_INLINE __m256i add_i64(__m256i a, __m256i b)
{
	return _mm256_add_epi64(a, b);
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
KERN_ALWAYS_INLINE void put(char *p, __m256i v, bool cold)
{
	if (cold)
		_mm256_stream_si256((__m256i *)p, v);
	else
		store(p, v);
}

KERN_ALWAYS_INLINE void quad_put(char *p, struct quad q, bool cold)
{
	put(p, q.a, cold);
	put(p + VEC, q.b, cold);
	put(p + 2 * VEC, q.c, cold);
	put(p + 3 * VEC, q.d, cold);
}

/* Whole quads from byte `at`; div is NULL or divides by the lanes of `by`.
 * Returns where it stopped. */
KERN_ALWAYS_INLINE size_t sum_same(char *out, const void *const in[], uint32_t n, size_t at,
				   size_t end, op_fn *add, op_fn *div, __m256i by, bool cold)
{
	const size_t ahead = kern_ahead(n, cold);

	for (; end - at >= 4 * VEC; at += 4 * VEC) {
		struct quad q = quad_ahead((const char *)in[0] + at, ahead);

		for (uint32_t j = 1; j < n; j++)
			q = quad_op(q, quad_ahead((const char *)in[j] + at, ahead), add);
		if (div)
			q = quad_op(q, (struct quad){ by, by, by, by }, div);
		quad_put(out + at, q, cold);
	}
	return at;
}

static void rest(enum dtype dtype, void *out, const void *const in[], uint32_t n, size_t from,
		 size_t to, uint32_t div)
{
	if (from < to)
		kern_table_c[dtype](out, in, n, from, to, div);
}

#define DEFINE_INTEGER_AS(name, cold, size, dtype, add) \
	static void name(void *out, const void *const in[], uint32_t n, size_t from, size_t to, \
			 uint32_t div) \
	{ \
		size_t at = sum_same(out, in, n, from * (size), to * (size), add, NULL, \
				     _mm256_setzero_si256(), cold); \
\
		rest(dtype, out, in, n, at / (size), to, div); \
	}

#define DEFINE_FLOAT_AS(name, cold, size, dtype, add, divide, splat) \
	static void name(void *out, const void *const in[], uint32_t n, size_t from, size_t to, \
			 uint32_t div) \
	{ \
		size_t at; \
\
		if (div > 1) \
			at = sum_same(out, in, n, from * (size), to * (size), add, divide, \
				      splat, cold); \
		else \
			at = sum_same(out, in, n, from * (size), to * (size), add, NULL, \
				      _mm256_setzero_si256(), cold); \
		rest(dtype, out, in, n, at / (size), to, div); \
	}

#define DEFINE_INTEGER(name, size, dtype, add) \
	DEFINE_INTEGER_AS(name, false, size, dtype, add) \
	DEFINE_INTEGER_AS(name##_cold, true, size, dtype, add)

#define DEFINE_FLOAT(name, size, dtype, add, divide, splat) \
	DEFINE_FLOAT_AS(name, false, size, dtype, add, divide, splat) \
	DEFINE_FLOAT_AS(name##_cold, true, size, dtype, add, divide, splat)

DEFINE_INTEGER(sum_i8, 1, DTYPE_I8, add_i8)
DEFINE_INTEGER(sum_i32, 4, DTYPE_I32, add_i32)
DEFINE_INTEGER(sum_i64, 8, DTYPE_I64, add_i64)
DEFINE_FLOAT(sum_f32, 4, DTYPE_F32, add_f32, div_f32,
	     _mm256_castps_si256(_mm256_set1_ps((float)div)))
DEFINE_FLOAT(sum_f64, 8, DTYPE_F64, add_f64, div_f64,
	     _mm256_castpd_si256(_mm256_set1_pd((double)div)))

/* Types that add as float32. */

/* The first of the two vectors of a line. */
KERN_ALWAYS_INLINE __m256i load_ahead(const char *p, size_t ahead)
{
	if (ahead)
		_mm_prefetch(p + ahead, _MM_HINT_T0);
	return load(p);
}

KERN_ALWAYS_INLINE struct wide widen_f16(__m256i v)
{
	return (struct wide){ _mm256_cvtph_ps(_mm256_castsi256_si128(v)),
			      _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)) };
}

KERN_ALWAYS_INLINE __m256i narrow_f16(struct wide w)
{
	__m128i lo = _mm256_cvtps_ph(w.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	__m128i hi = _mm256_cvtps_ph(w.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

	return _mm256_set_m128i(hi, lo);
}

KERN_ALWAYS_INLINE struct wide widen_bf16(__m256i v)
{
	__m256i upper = _mm256_set1_epi32((int)0xffff0000);

	return (struct wide){ _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)),
			      _mm256_castsi256_ps(_mm256_and_si256(v, upper)) };
}

/*
 * The bfloat16 in the upper half of each lane; the lower half is rubbish.  A NaN
 * here came from a bfloat16 or from infinities: its lower half is 0, so rounding
 * does not carry out of its mantissa and it needs no special case.
 */
KERN_ALWAYS_INLINE __m256i round_bf16(__m256 f)
{
	__m256i u = _mm256_castps_si256(f);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));

	return _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
}

KERN_ALWAYS_INLINE __m256i narrow_bf16(struct wide w)
{
	return _mm256_blend_epi16(_mm256_srli_epi32(round_bf16(w.lo), 16), round_bf16(w.hi),
				  0xaa);
}

KERN_ALWAYS_INLINE struct wide wide_add(struct wide w, struct wide x)
{
	return (struct wide){ _mm256_add_ps(w.lo, x.lo), _mm256_add_ps(w.hi, x.hi) };
}

KERN_ALWAYS_INLINE struct wide wide_div(struct wide w, __m256 by)
{
	return (struct wide){ _mm256_div_ps(w.lo, by), _mm256_div_ps(w.hi, by) };
}

/* Times input j's scale; NULL: as it is.  A power of two: exact, fused with an addition or not. */
KERN_ALWAYS_INLINE struct wide wide_scale(struct wide w, const float *scale, uint32_t j)
{
	if (!scale)
		return w;
	return (struct wide){ _mm256_mul_ps(w.lo, _mm256_set1_ps(scale[j])),
			      _mm256_mul_ps(w.hi, _mm256_set1_ps(scale[j])) };
}

/* Pairs of vectors from byte `at`; scale: see wide_scale().  Returns where it stopped. */
KERN_ALWAYS_INLINE size_t sum_half(char *out, const void *const in[], const float *scale,
				   uint32_t n, size_t at, size_t end, float div, widen_fn *widen,
				   narrow_fn *narrow, bool cold)
{
	__m256 by = _mm256_set1_ps(div);
	const bool far = widen == widen_f16 && n > 2;	/* on AMD, too (BENCHMARKS.md) */
	const size_t ahead = !cold ? 0 : far ? KERN_AHEAD_BYTES : kern_ahead(n, true);

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
	return at;
}

#define DEFINE_HALF_AS(name, cold, dtype, widen, narrow) \
	static void name(void *out, const void *const in[], uint32_t n, size_t from, size_t to, \
			 uint32_t div) \
	{ \
		size_t at = sum_half(out, in, NULL, n, 2 * from, 2 * to, (float)div, widen, \
				     narrow, cold); \
\
		rest(dtype, out, in, n, at / 2, to, div); \
	} \
\
	static void scaled_##name(void *out, const void *const in[], const float *scale, \
				  uint32_t n, size_t from, size_t to, float by) \
	{ \
		size_t at = sum_half(out, in, scale, n, 2 * from, 2 * to, by, widen, narrow, \
				     cold); \
\
		if (at / 2 < to) \
			kern_scaled_c[dtype](out, in, scale, n, at / 2, to, by); \
	}

#define DEFINE_HALF(name, dtype, widen, narrow) \
	DEFINE_HALF_AS(name, false, dtype, widen, narrow) \
	DEFINE_HALF_AS(name##_cold, true, dtype, widen, narrow)

DEFINE_HALF(sum_f16, DTYPE_F16, widen_f16, narrow_f16)
DEFINE_HALF(sum_bf16, DTYPE_BF16, widen_bf16, narrow_bf16)

kern_fn *const kern_table_avx2[DTYPE_END] = {
	[DTYPE_F32] = sum_f32,
	[DTYPE_F64] = sum_f64,
	[DTYPE_F16] = sum_f16,
	[DTYPE_BF16] = sum_bf16,
	[DTYPE_I8] = sum_i8,
	[DTYPE_U8] = sum_i8,
	[DTYPE_I32] = sum_i32,
	[DTYPE_I64] = sum_i64,
};

kern_fn *const kern_cold_avx2[DTYPE_END] = {
	[DTYPE_F32] = sum_f32_cold,
	[DTYPE_F64] = sum_f64_cold,
	[DTYPE_F16] = sum_f16_cold,
	[DTYPE_BF16] = sum_bf16_cold,
	[DTYPE_I8] = sum_i8_cold,
	[DTYPE_U8] = sum_i8_cold,
	[DTYPE_I32] = sum_i32_cold,
	[DTYPE_I64] = sum_i64_cold,
};

kern_scaled_fn *const kern_scaled_avx2[DTYPE_END] = {
	[DTYPE_F16] = scaled_sum_f16,
	[DTYPE_BF16] = scaled_sum_bf16,
};

kern_scaled_fn *const kern_scaled_cold_avx2[DTYPE_END] = {
	[DTYPE_F16] = scaled_sum_f16_cold,
	[DTYPE_BF16] = scaled_sum_bf16_cold,
};
