// SPDX-License-Identifier: Apache-2.0
/*
 * Every type at every level against sums written the obvious way here: one
 * element at a time, 16-bit floats by arithmetic on their value, not their bits.
 * Inputs end where their allocation ends, so a sanitizer sees reads beyond.
 */
#include "common/kern/adder.h"
#include "common/kern/half.h"
#include "common/kern/kern.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_MAX		64u
#define LEN_MAX		4200u	/* more than the piece in which integers are divided */
#define GUARD		64u
#define GUARD_BYTE	0xa5
#define LINE		64u

static const uint32_t counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64 };
static const size_t lens[] = { 0,  1,  2,  3,  5,   7,   8,   9,   15,  16,  17,  31,   33,  47,
			       63, 64, 65, 95, 127, 128, 129, 255, 257, 511, 512, 513, 1025 };
static const enum dtype dtypes[] = {
#define X(e, num, name, bytes) DTYPE_##e,
	DTYPE_TABLE(X)
#undef X
};

enum values { ANY_BITS, TAME, SPECIAL, VALUES };

static uint64_t seed;

static uint64_t rnd(void)
{
	uint64_t z = (seed += 0x9e3779b97f4a7c15u);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* ---- the reference ---- */

/* How a 16-bit type splits its bits. */
struct format {
	int mantissa, bias, exp_max;
};

static const struct format half_format = { 10, 15, 31 };
static const struct format bf16_format = { 7, 127, 255 };

static double ref_decode(struct format f, uint16_t h)
{
	int exp = h >> f.mantissa & f.exp_max;
	double frac = h & ((1 << f.mantissa) - 1), v;

	if (exp == f.exp_max)
		v = frac != 0 ? (double)NAN : (double)INFINITY;
	else if (exp == 0)
		v = ldexp(frac, 1 - f.bias - f.mantissa);
	else
		v = ldexp(frac + (1 << f.mantissa), exp - f.bias - f.mantissa);
	return h & 0x8000 ? -v : v;
}

/* Rounds to a multiple of the last place of v's binade, then writes the bits. */
static uint16_t ref_encode(struct format f, double v)
{
	int sign = signbit(v) ? 0x8000 : 0, exp;
	double units;

	if (isnan(v))
		return (uint16_t)(f.exp_max << f.mantissa | 1 << (f.mantissa - 1));
	v = fabs(v);
	if (isinf(v))
		return (uint16_t)(sign | f.exp_max << f.mantissa);
	frexp(v, &exp);
	exp = v == 0 ? 1 - f.bias : MAX(exp - 1, 1 - f.bias);
	units = nearbyint(ldexp(v, f.mantissa - exp));
	/* A full mantissa carries into the exponent, from denormals too. */
	if (units < (1 << f.mantissa))
		return (uint16_t)(sign | (int)units);
	units += (double)(exp + f.bias - 1) * (1 << f.mantissa);
	return (uint16_t)(sign | (int)MIN(units, (double)(f.exp_max << f.mantissa)));
}

static uint64_t element(enum dtype d, const void *p, size_t i)
{
	uint32_t size = dtype_bytes((uint8_t)d);
	uint64_t u = 0;

	memcpy(&u, (const char *)p + i * size, size);
	return u;
}

static uint64_t ref_f32(const void *const in[], uint32_t n, size_t i, uint32_t div)
{
	float sum = f32_from_bits((uint32_t)element(DTYPE_F32, in[0], i));

	for (uint32_t j = 1; j < n; j++)
		sum += f32_from_bits((uint32_t)element(DTYPE_F32, in[j], i));
	return f32_bits(div > 1 ? sum / (float)div : sum);
}

static uint64_t ref_f64(const void *const in[], uint32_t n, size_t i, uint32_t div)
{
	double sum, x;
	uint64_t u = element(DTYPE_F64, in[0], i);

	memcpy(&sum, &u, sizeof(sum));
	for (uint32_t j = 1; j < n; j++) {
		u = element(DTYPE_F64, in[j], i);
		memcpy(&x, &u, sizeof(x));
		sum += x;
	}
	if (div > 1)
		sum /= div;
	memcpy(&u, &sum, sizeof(u));
	return u;
}

/* Input j times its scale, and the sum divided: in float32, which bfloat16's sums may not fit. */
static uint64_t ref_half_mean(enum dtype d, const void *const in[], const uint8_t *shift,
			      uint32_t n, size_t i, uint32_t div)
{
	struct format f = d == DTYPE_F16 ? half_format : bf16_format;
	float sum = 0;
	int k = 0;

	while (1ull << k < div)
		k++;
	for (uint32_t j = 0; j < n; j++) {
		double v = ref_decode(f, (uint16_t)element(d, in[j], i));
		float scaled = (float)ldexp(v, (shift ? shift[j] : 0) - k);

		sum = j ? sum + scaled : scaled;
	}
	return ref_encode(f, (double)(sum / (float)ldexp((double)(float)div, -k)));
}

static uint64_t ref_half(enum dtype d, const void *const in[], uint32_t n, size_t i, uint32_t div)
{
	struct format f = d == DTYPE_F16 ? half_format : bf16_format;
	float sum = (float)ref_decode(f, (uint16_t)element(d, in[0], i));

	if (n == 1 && div == 1)
		return element(d, in[0], i);
	if (d == DTYPE_BF16 && div > 1)
		return ref_half_mean(d, in, NULL, n, i, div);
	for (uint32_t j = 1; j < n; j++)
		sum += (float)ref_decode(f, (uint16_t)element(d, in[j], i));
	return ref_encode(f, (double)(div > 1 ? sum / (float)div : sum));
}

static uint64_t ref_integer(enum dtype d, const void *const in[], uint32_t n, size_t i,
			    uint32_t div)
{
	uint64_t sum = 0;
	int64_t q;

	for (uint32_t j = 0; j < n; j++)
		sum += element(d, in[j], i);
	switch (d) {
	case DTYPE_I8:
		q = (int8_t)sum / (int64_t)div;
		return (uint8_t)q;
	case DTYPE_U8:
		return (uint8_t)sum / div;
	case DTYPE_I32:
		q = (int32_t)sum / (int64_t)div;
		return (uint32_t)q;
	default:
		q = (int64_t)sum / (int64_t)div;
		return (uint64_t)q;
	}
}

static uint64_t reference(enum dtype d, const void *const in[], uint32_t n, size_t i, uint32_t div)
{
	switch (d) {
	case DTYPE_F32:
		return ref_f32(in, n, i, div);
	case DTYPE_F64:
		return ref_f64(in, n, i, div);
	case DTYPE_F16:
	case DTYPE_BF16:
		return ref_half(d, in, n, i, div);
	default:
		return ref_integer(d, in, n, i, div);
	}
}

static bool is_nan(enum dtype d, uint64_t u)
{
	switch (d) {
	case DTYPE_F32:
		return (u & 0x7fffffff) > 0x7f800000;
	case DTYPE_F64:
		return (u & INT64_MAX) > 0x7ff0000000000000;
	case DTYPE_F16:
		return (u & 0x7fff) > 0x7c00;
	case DTYPE_BF16:
		return (u & 0x7fff) > 0x7f80;
	default:
		return false;
	}
}

/* ---- inputs ---- */

/* A float of moderate size, as bits of type d. */
static uint64_t tame(enum dtype d)
{
	double v = ldexp((double)(int64_t)rnd(), -60 - (int)(rnd() % 8));
	uint64_t u;

	switch (d) {
	case DTYPE_F32:
		return f32_bits((float)v);
	case DTYPE_F64:
		memcpy(&u, &v, sizeof(u));
		return u;
	case DTYPE_F16:
		return ref_encode(half_format, v);
	case DTYPE_BF16:
		return ref_encode(bf16_format, v);
	default:
		return (uint64_t)v;
	}
}

/* NaN, infinities, zeros, the smallest and largest of each kind, of either sign. */
static uint64_t special(enum dtype d)
{
	static const uint64_t f32[] = { 0x7fc00000, 0x7f800001, 0x7f800000, 0, 1, 0x7fffff,
					0x800000, 0x7f7fffff, 0x3f800000, 0x33800000 };
	static const uint64_t f64[] = { 0x7ff8000000000000, 0x7ff0000000000001, 0x7ff0000000000000,
					0, 1, 0xfffffffffffff, 0x10000000000000, 0x7fefffffffffffff,
					0x3ff0000000000000, 0x3ca0000000000000 };
	static const uint64_t f16[] = { 0x7e00, 0x7c01, 0x7c00, 0, 1, 0x3ff, 0x400, 0x7bff,
					0x3c00, 0x1000 };
	static const uint64_t bf16[] = { 0x7fc0, 0x7f81, 0x7f80, 0, 1, 0x7f, 0x80, 0x7f7f,
					 0x3f80, 0x3b80 };
	uint64_t i = rnd() % 10, minus = rnd() & 1;

	switch (d) {
	case DTYPE_F32:
		return f32[i] | minus << 31;
	case DTYPE_F64:
		return f64[i] | minus << 63;
	case DTYPE_F16:
		return f16[i] | minus << 15;
	case DTYPE_BF16:
		return bf16[i] | minus << 15;
	default:	/* 0, 1, -1, least, greatest, at every width */
		i = dtype_bytes((uint8_t)d) * 8 - 1;
		return (uint64_t[]){ 0, 1, UINT64_MAX, 1ull << i, (1ull << i) - 1 }[rnd() % 5];
	}
}

static void fill(enum dtype d, void *p, size_t len, enum values values)
{
	uint32_t size = dtype_bytes((uint8_t)d);

	for (size_t i = 0; i < len; i++) {
		uint64_t u = values == TAME ? tame(d) : values == SPECIAL ? special(d) : rnd();

		memcpy((char *)p + i * size, &u, size);
	}
}

/* ---- one call, checked ---- */

struct call {
	enum kern_level level;
	enum dtype dtype;
	uint32_t n, div;
	size_t len;
	enum values values;
	int in_place;		/* the input that out is; -1: none */
	bool cold;		/* by kern_sum_cold(), at the level that is set */
};

struct memory {
	char *base;		/* owned */
	char *data;		/* not aligned to anything */
};

static struct memory memory_new(size_t bytes, size_t offset, size_t after)
{
	struct memory m = { .base = malloc(offset + bytes + after) };

	if (!m.base)		/* thousands of checks take their time: each is a message */
		ck_abort_msg("no memory");
	m.data = m.base + offset;
	memset(m.base, GUARD_BYTE, offset + bytes + after);
	return m;
}

static void check_guards(struct memory m, size_t bytes)
{
	for (size_t i = 0; i < GUARD; i++)
		if ((uint8_t)m.data[bytes + i] != GUARD_BYTE ||
		    (uint8_t)m.data[-1 - (ptrdiff_t)i] != GUARD_BYTE)
			ck_abort_msg("written outside of out, at distance %zu", i);
}

static void check_result(const struct call *c, const void *out, const uint64_t *want)
{
	for (size_t i = 0; i < c->len; i++) {
		uint64_t got = element(c->dtype, out, i);

		if (got == want[i] || (is_nan(c->dtype, got) && is_nan(c->dtype, want[i])))
			continue;
		ck_abort_msg("%s %s, n %u, div %u, len %zu, values %d, in place %d: "
			     "[%zu] is %#llx, not %#llx",
			     kern_level_name(c->level), dtype_name((uint8_t)c->dtype), c->n, c->div,
			     c->len, (int)c->values, c->in_place, i, (unsigned long long)got,
			     (unsigned long long)want[i]);
	}
}

static void check_call(const struct call *c)
{
	static uint64_t want[LEN_MAX];
	struct memory in[N_MAX], out;
	const void *ptrs[N_MAX];
	size_t bytes = c->len * dtype_bytes((uint8_t)c->dtype);

	out = memory_new(bytes, GUARD + (c->cold ? LINE : rnd() % 65), GUARD);
	if (c->cold)
		out.data -= (uintptr_t)out.data % LINE;	/* else it goes the ordinary way */
	for (uint32_t j = 0; j < c->n; j++) {
		in[j] = memory_new(bytes, 1 + rnd() % 65, 0);
		ptrs[j] = (int)j == c->in_place ? out.data : in[j].data;
		fill(c->dtype, (int)j == c->in_place ? out.data : in[j].data, c->len, c->values);
	}
	for (size_t i = 0; i < c->len; i++)
		want[i] = reference(c->dtype, ptrs, c->n, i, c->div);
	if (c->cold)
		kern_sum_cold(c->dtype, out.data, ptrs, c->n, c->len, c->div);
	else
		kern_sum_at(c->level, c->dtype, out.data, ptrs, c->n, c->len, c->div);
	check_result(c, out.data, want);
	check_guards(out, bytes);
	for (uint32_t j = 0; j < c->n; j++)
		free(in[j].base);
	free(out.base);
}

static void check_all_lens(struct call c)
{
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		c.len = lens[i];
		c.values = (enum values)((c.values + 1) % VALUES);
		c.div = 1;
		check_call(&c);
		c.div = 2 + (uint32_t)(rnd() % 300);
		check_call(&c);
	}
}

/* ---- the promises ---- */

/* Loop tests: i counts level x dtype, of the levels that this CPU has. */
static enum kern_level levels[KERN_LEVELS];
static int nlevels;

#define PAIRS (nlevels * (int)ARRAY_SIZE(dtypes))

/* And says which: a machine without a level tests less. */
static void find_levels(void)
{
	char lacks[64] = "";

	for (int l = 0; l < KERN_LEVELS; l++) {
		const char *name = kern_level_name((enum kern_level)l);

		if (kern_level_usable((enum kern_level)l))
			levels[nlevels++] = (enum kern_level)l;
		else
			snprintf(lacks + strlen(lacks), sizeof(lacks) - strlen(lacks), " %s", name);
	}
	printf("note: levels tested:");
	for (int i = 0; i < nlevels; i++)
		printf(" %s", kern_level_name(levels[i]));
	printf("%s%s\n", lacks[0] ? "; not on this CPU:" : "", lacks);
	fflush(stdout);		/* or every test's process says it again */
}

static struct call pick(int i)
{
	seed = (uint64_t)i;
	return (struct call){ .level = levels[i / (int)ARRAY_SIZE(dtypes)],
			      .dtype = dtypes[i % (int)ARRAY_SIZE(dtypes)],
			      .in_place = -1 };
}

START_TEST(sum_of_n_inputs_of_any_length_equals_reference)
{
	struct call c = pick(_i);

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		c.n = counts[i];
		check_all_lens(c);
	}
}
END_TEST

START_TEST(out_may_be_any_one_input)
{
	struct call c = pick(_i);

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		c.n = counts[i];
		c.in_place = 0;
		check_all_lens(c);
		c.in_place = (int)(rnd() % c.n);
		check_all_lens(c);
	}
}
END_TEST

START_TEST(sum_past_the_caches_equals_reference)
{
	struct call c = pick(_i);

	c.cold = true;
	kern_init(1u << c.level);
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		c.n = counts[i];
		c.in_place = -1;
		check_all_lens(c);
		c.in_place = (int)(rnd() % c.n);
		check_all_lens(c);
	}
	kern_init(UINT32_MAX);
}
END_TEST

/* Numbers that are none have many bits; a copy keeps theirs. */
START_TEST(one_input_past_the_caches_is_a_copy)
{
	struct call c = pick(_i);
	size_t size = dtype_bytes((uint8_t)c.dtype), bytes = LEN_MAX * size;
	struct memory in = memory_new(bytes, GUARD + rnd() % 65, GUARD);
	struct memory out = memory_new(bytes, GUARD + LINE, GUARD);
	const void *ptr = in.data;

	out.data -= (uintptr_t)out.data % LINE;
	for (size_t i = 0; i < bytes; i++)
		in.data[i] = (char)rnd();
	kern_init(1u << c.level);
	for (size_t len = LEN_MAX; len > 0; len = len * 3 / 4) {
		memset(out.data, GUARD_BYTE, bytes);
		kern_sum_cold(c.dtype, out.data, &ptr, 1, len, 1);
		ck_assert_mem_eq(out.data, in.data, len * size);
		check_guards(out, len * size);
	}
	ptr = out.data;
	kern_sum_cold(c.dtype, out.data, &ptr, 1, 1, 1);
	ck_assert_mem_eq(out.data, in.data, size);
	kern_init(UINT32_MAX);
	free(in.base);
	free(out.base);
}
END_TEST

START_TEST(a_copy_past_the_caches_of_any_length_from_and_to_anywhere)
{
	struct memory in = memory_new(2 * LEN_MAX, GUARD, GUARD), out;

	for (size_t i = 0; i < 2 * LEN_MAX; i++)
		in.data[i] = (char)rnd();
	kern_init(1u << levels[_i]);
	for (size_t len = 0; len < 2 * LEN_MAX; len = len < 70 ? len + 1 : len * 5 / 4) {
		size_t from = rnd() % MIN(65, 2 * LEN_MAX - len);

		out = memory_new(len, GUARD + rnd() % 65, GUARD);
		kern_copy_cold(out.data, in.data + from, len);
		kern_copied();
		ck_assert_mem_eq(out.data, in.data + from, len);
		check_guards(out, len);
		free(out.base);
	}
	kern_init(UINT32_MAX);
	free(in.base);
}
END_TEST

START_TEST(long_sums_and_means_equal_reference_for_every_kind_of_value)
{
	struct call c = pick(_i);

	for (c.values = 0; c.values < VALUES; c.values++) {
		for (c.n = 1; c.n <= 4; c.n++) {
			c.len = LEN_MAX - c.n;
			c.div = 1;
			check_call(&c);
			c.div = c.n + 1;
			check_call(&c);
			c.div = UINT32_MAX - c.n;
			check_call(&c);
		}
	}
}
END_TEST

/* A machine's sum of three, of one, ...: each was divided by another power of two. */
START_TEST(means_of_inputs_that_were_divided_before_equal_reference)
{
	struct call c = pick(_i);
	uint8_t shift[N_MAX];
	static uint16_t in[N_MAX][LEN_MAX], out[LEN_MAX];
	const void *ptrs[N_MAX];

	if (c.dtype != DTYPE_F16 && c.dtype != DTYPE_BF16)
		return;
	for (c.n = 1; c.n <= N_MAX; c.n = c.n * 2 + 1) {
		for (size_t l = 0; l < ARRAY_SIZE(lens); l++) {
			c.values = (enum values)(l % VALUES);
			c.div = 1 + (uint32_t)(rnd() % 300);
			for (uint32_t j = 0; j < c.n; j++) {
				shift[j] = (uint8_t)(rnd() % 7) | (j == 0);
				ptrs[j] = in[j];
				fill(c.dtype, in[j], lens[l], c.values);
			}
			kern_mean_at(c.level, c.dtype, out, ptrs, shift, c.n, lens[l], c.div);
			for (size_t i = 0; i < lens[l]; i++) {
				uint64_t want = ref_half_mean(c.dtype, ptrs, shift, c.n, i, c.div);

				if (out[i] != want && !(is_nan(c.dtype, out[i]) &&
							is_nan(c.dtype, want)))
					ck_abort_msg("%s %s, n %u, div %u: [%zu] is %#x, not %#llx",
						     kern_level_name(c.level),
						     dtype_name((uint8_t)c.dtype), c.n, c.div, i,
						     out[i], (unsigned long long)want);
			}
		}
	}
}
END_TEST

/* The sum of the machine's ranks, divided, then that of the machines: the largest, the smallest. */
START_TEST(a_mean_of_equal_halves_is_that_half)
{
	struct call c = pick(_i);
	static const uint16_t f16[] = { 0x7bff, 0xfbff, 1, 0x3ff, 0x3555, 0 };
	static const uint16_t bf16[] = { 0x7f7f, 0xff7f, 1, 0x7f, 0x3eab, 0 };
	const uint16_t *values = c.dtype == DTYPE_F16 ? f16 : bf16;
	uint16_t sum[3], out;
	uint8_t shift[3];
	const void *in[N_MAX], *sums[] = { sum, sum + 1, sum + 2 };

	if (c.dtype != DTYPE_F16 && c.dtype != DTYPE_BF16)
		return;
	for (size_t v = 0; v < ARRAY_SIZE(f16); v++) {
		for (uint32_t i = 0; i < N_MAX; i++)
			in[i] = &values[v];
		for (uint32_t ranks = 1; 2 * ranks < N_MAX; ranks++) {
			uint32_t of[] = { ranks, 1, 2 * ranks };

			for (uint32_t m = 0; m < 3; m++) {
				shift[m] = kern_shift(c.dtype, of[m]);
				kern_sum_at(c.level, c.dtype, sum + m, in, of[m], 1,
					    1u << shift[m]);
			}
			kern_mean_at(c.level, c.dtype, &out, sums, shift, 3, 1, 3 * ranks + 1);
			ck_assert_int_le(abs((int)out - (int)values[v]), of[2] != 1u << shift[2]);
			kern_sum_at(c.level, c.dtype, &out, in, of[2], 1, of[2]);
			ck_assert_uint_eq(out, values[v]);
		}
	}
}
END_TEST

START_TEST(sums_are_added_left_to_right)
{
	struct call c = pick(_i);
	float big = 0x1p24f, one = 1, out;
	const void *in[] = { &big, &one, &one };

	if (c.dtype != DTYPE_F32)
		return;
	kern_sum_at(c.level, DTYPE_F32, &out, in, 3, 1, 1);
	ck_assert(out == 0x1p24f);
	in[0] = &one;
	in[2] = &big;
	kern_sum_at(c.level, DTYPE_F32, &out, in, 3, 1, 1);
	ck_assert(out == 0x1p24f + 2);
}
END_TEST

/* 2048 + 1 + 1: rounding to float16 after every addition would lose both ones. */
START_TEST(halves_are_rounded_once_at_the_end)
{
	struct call c = pick(_i);
	uint16_t big = 0x6800, one = 0x3c00, out = 0;
	const void *in[] = { &big, &one, &one };

	if (c.dtype != DTYPE_F16)
		return;
	kern_sum_at(c.level, DTYPE_F16, &out, in, 3, 1, 1);
	ck_assert_uint_eq(out, 0x6801);
}
END_TEST

/* Adding -0 changes nothing; all values go through both conversions. */
START_TEST(all_halves_survive_every_level)
{
	static uint16_t all[65536], minus_zero[65536], out[65536];
	const void *in[] = { all, minus_zero };
	struct call c = pick(_i);

	if (c.dtype != DTYPE_F16 && c.dtype != DTYPE_BF16)
		return;
	for (uint32_t h = 0; h < 65536; h++) {
		all[h] = (uint16_t)h;
		minus_zero[h] = 0x8000;
	}
	kern_sum_at(c.level, c.dtype, out, in, 2, 65536, 1);
	for (uint32_t h = 0; h < 65536; h++)
		if (is_nan(c.dtype, h) ? !is_nan(c.dtype, out[h]) : out[h] != h)
			ck_abort_msg("%#x became %#x", h, out[h]);
}
END_TEST

START_TEST(all_65536_halves_decode_to_their_value)
{
	for (uint32_t h = 0; h < 65536; h++) {
		float f = f32_from_f16((uint16_t)h), b = f32_from_bf16((uint16_t)h);
		float fr = (float)ref_decode(half_format, (uint16_t)h);
		float br = (float)ref_decode(bf16_format, (uint16_t)h);

		if (isnan(fr) ? !isnan(f) : f32_bits(f) != f32_bits(fr))
			ck_abort_msg("float16 %#x", h);
		if (isnan(br) ? !isnan(b) : f32_bits(b) != f32_bits(br))
			ck_abort_msg("bfloat16 %#x", h);
	}
}
END_TEST

static void check_encode(uint32_t u)
{
	float f = f32_from_bits(u);
	uint16_t h = f16_from_f32(f), b = bf16_from_f32(f);

	if (isnan(f) ? !is_nan(DTYPE_F16, h) : h != ref_encode(half_format, (double)f))
		ck_abort_msg("float16 of %#x is %#x", u, h);
	if (isnan(f) ? !is_nan(DTYPE_BF16, b) : b != ref_encode(bf16_format, (double)f))
		ck_abort_msg("bfloat16 of %#x is %#x", u, b);
}

/* Around every float16 and bfloat16 and every midpoint between two, and between. */
START_TEST(float32_rounds_to_nearest_even_half)
{
	for (uint32_t h = 0; h < 65536; h++) {
		uint32_t f = f32_bits((float)ref_decode(half_format, (uint16_t)h));

		for (uint32_t near = 0; near < 3; near++) {
			check_encode(f + near - 1);
			check_encode(f + 0x1000 + near - 1);
			check_encode((h << 16) + near - 1);
			check_encode((h << 16) + 0x8000 + near - 1);
		}
	}
	for (uint64_t u = 0; u <= UINT32_MAX; u += 6007)
		check_encode((uint32_t)u);
}
END_TEST

START_TEST(mask_forces_a_lower_level)
{
	enum kern_level best = kern_init(UINT32_MAX);

	ck_assert(kern_level_usable(best));
	ck_assert_int_eq(kern_level(), best);
	ck_assert_int_eq(kern_init(0), KERN_C);
	ck_assert_int_eq(kern_init(1u << KERN_C), KERN_C);
	for (int l = 0; l < KERN_LEVELS; l++) {
		enum kern_level want = kern_level_usable((enum kern_level)l) ? (enum kern_level)l
									     : KERN_C;

		ck_assert_int_eq(kern_init(1u << l), want);
		ck_assert_int_eq(kern_level(), want);
		ck_assert_str_ne(kern_level_name((enum kern_level)l), "?");
	}
	kern_init(UINT32_MAX);
}
END_TEST

/* 5 MiB are four inputs of 1 MiB and an output. */
START_TEST(adder_rate_is_input_bytes_over_time)
{
	size_t bytes = 5u << 20;
	void *scratch = calloc(1, bytes);

	ck_assert_uint_eq(adder_pass(scratch, bytes), 4u << 20);
	ck_assert_uint_eq(adder_rate(4u << 20, NS_PER_MS), 4ull * (1u << 20) * 1000);
	ck_assert_uint_eq(adder_pass(scratch, 4096), 0);
	ck_assert_uint_eq(adder_rate(4u << 20, 0), 0);
	free(scratch);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kern");
	TCase *t = tcase_create("kern");
	SRunner *r;
	int failed;

	find_levels();
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, sum_of_n_inputs_of_any_length_equals_reference, 0, PAIRS);
	tcase_add_loop_test(t, out_may_be_any_one_input, 0, PAIRS);
	tcase_add_loop_test(t, sum_past_the_caches_equals_reference, 0, PAIRS);
	tcase_add_loop_test(t, one_input_past_the_caches_is_a_copy, 0, PAIRS);
	tcase_add_loop_test(t, a_copy_past_the_caches_of_any_length_from_and_to_anywhere, 0,
			    nlevels);
	tcase_add_loop_test(t, long_sums_and_means_equal_reference_for_every_kind_of_value, 0,
			    PAIRS);
	tcase_add_loop_test(t, means_of_inputs_that_were_divided_before_equal_reference, 0, PAIRS);
	tcase_add_loop_test(t, a_mean_of_equal_halves_is_that_half, 0, PAIRS);
	tcase_add_loop_test(t, sums_are_added_left_to_right, 0, PAIRS);
	tcase_add_loop_test(t, halves_are_rounded_once_at_the_end, 0, PAIRS);
	tcase_add_loop_test(t, all_halves_survive_every_level, 0, PAIRS);
	tcase_add_test(t, all_65536_halves_decode_to_their_value);
	tcase_add_test(t, float32_rounds_to_nearest_even_half);
	tcase_add_test(t, mask_forces_a_lower_level);
	tcase_add_test(t, adder_rate_is_input_bytes_over_time);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
