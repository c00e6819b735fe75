// SPDX-License-Identifier: Apache-2.0
/* quant.c: q32 has the same bits at every level, in every order, by every way. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "common/kern/half.h"
#include "common/kern/quant.h"

#define LEN	1000u			/* three blocks and a part of one */
#define BLOCKS	4u
#define GUARD	0x7b
#define N_MAX	64u

static const enum dtype types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };

static float any(struct rng *r, int scale)
{
	uint32_t u = (uint32_t)rng_u64(r);
	float f = f32_from_bits((u & 0x807fffff) | 0x3f800000);	/* 1 to 2, and its negative */

	if (rng_below(r, 16) == 0)
		return 0.0f;
	if (rng_below(r, 4) == 0)	/* the largest mantissa */
		f = f32_from_bits(f32_bits(f) | 0x7fffff);
	return ldexpf(f, scale - (int)rng_below(r, 30));
}

static void put(enum dtype d, void *x, size_t i, float f)
{
	uint16_t h = d == DTYPE_F16 ? f16_from_f32(f) : bf16_from_f32(f);

	if (d == DTYPE_F32)
		((float *)x)[i] = f;
	else
		((uint16_t *)x)[i] = h;
}

static float get(enum dtype d, const void *x, size_t i)
{
	if (d == DTYPE_F32)
		return ((const float *)x)[i];
	return d == DTYPE_F16 ? f32_from_f16(((const uint16_t *)x)[i])
			      : f32_from_bf16(((const uint16_t *)x)[i]);
}

static float input[N_MAX][LEN];
static const void *in[N_MAX];

static void fill(enum dtype d, uint64_t seed, uint32_t n)
{
	struct rng r = { .state = seed };
	int scale = d == DTYPE_F16 ? 8 : (int)rng_below(&r, 200) - 90;

	for (uint32_t w = 0; w < n; w++) {
		in[w] = input[w];
		for (uint32_t i = 0; i < LEN; i++)
			put(d, input[w], i, any(&r, scale));
	}
}

/* The result by integers that each contributor made by its own exponents. */
static void by_integers(enum dtype d, uint32_t n, uint32_t div, void *out)
{
	static int32_t q[LEN], sum[LEN];
	uint8_t own[N_MAX][BLOCKS], e[BLOCKS] = { 0 };
	uint32_t h = quant_headroom(n);

	memset(sum, 0, sizeof(sum));
	for (uint32_t w = 0; w < n; w++) {
		quant_exponents(d, in[w], LEN, own[w]);
		quant_exponents_join(e, own[w], BLOCKS);
	}
	for (uint32_t w = n; w-- > 0;) {		/* the last one first */
		quant_ints(d, in[w], LEN, own[w], h, q);
		quant_align(q, LEN, own[w], e);
		for (uint32_t i = 0; i < LEN; i++) {
			ck_assert_int_le(llabs((long long)sum[i] + q[i]), 1 << QUANT_BITS);
			sum[i] += q[i];
		}
	}
	quant_floats(d, sum, LEN, e, h, div, out);
}

static const uint32_t counts[] = { 1, 2, 3, 4, 7, 16, 64 };

#define SEEDS 20

START_TEST(integers_aligned_later_give_the_bits_of_the_whole_sum_at_every_level)
{
	enum dtype d = types[_i % 3];
	uint32_t n = counts[_i / 3 % ARRAY_SIZE(counts)];
	uint32_t div = _i & 1 ? n : 1;
	static float want[LEN], got[LEN];
	size_t bytes = LEN * dtype_bytes((uint8_t)d);

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		fill(d, seed, n);
		kern_init(1u << KERN_C);
		quant_sum(d, want, in, n, LEN, div);
		for (int l = KERN_C; l < KERN_LEVELS; l++) {
			if (!kern_level_usable((enum kern_level)l))
				continue;
			kern_init(1u << l);
			memset(got, GUARD, sizeof(got));
			quant_sum(d, got, in, n, LEN, div);
			ck_assert_mem_eq(got, want, bytes);
			by_integers(d, n, div, got);
			ck_assert_mem_eq(got, want, bytes);
			for (size_t i = bytes; i < sizeof(got); i++)
				ck_assert_int_eq(((uint8_t *)got)[i], GUARD);
		}
	}
}
END_TEST

START_TEST(error_is_within_the_promise)
{
	enum dtype d = types[_i % 3];
	uint32_t n = counts[_i / 3 % ARRAY_SIZE(counts)];
	static float got[LEN];

	fill(d, (uint64_t)_i + 100, n);
	quant_sum(d, got, in, n, LEN, 1);
	for (uint32_t i = 0; i < LEN; i++) {
		double sum = 0, most = 0, r = get(d, got, i), unit;
		uint32_t first = i / QUANT_BLOCK * QUANT_BLOCK;

		for (uint32_t w = 0; w < n; w++) {
			sum += get(d, in[w], i);
			for (uint32_t k = first; k < MIN(first + QUANT_BLOCK, LEN); k++)
				most = fmax(most, fabs((double)get(d, in[w], k)));
		}
		unit = fabs(r) * (d == DTYPE_F32 ? 0x1p-23 : d == DTYPE_F16 ? 0x1p-10 : 0x1p-7);
		unit = fmax(unit, d == DTYPE_F16 ? 0x1p-24 : 0x1p-149);
		if (!isinf(r))
			ck_assert_double_le(fabs(r - sum), n * most *
					    ldexp(1, (int)quant_headroom(n) - 29) +
					    unit * (0.5 + 0x1p-12));
	}
}
END_TEST

START_TEST(exponents_of_special_blocks)
{
	static const struct {
		float x;
		uint8_t e;
	} rows[] = {
		{ 0.0f, 0 }, { -0.0f, 0 },
		{ 0x1p-149f, QUANT_EXP_MIN }, { 0x1p-97f, QUANT_EXP_MIN },
		{ 0x1p-96f, 31 }, { 0x1p-95f, 32 }, { 1.0f, 127 }, { -1.99f, 127 },
		{ 0x1p127f, 254 }, { INFINITY, QUANT_EXACT }, { -INFINITY, QUANT_EXACT },
		{ NAN, QUANT_EXACT },
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
		float x[3] = { 0, rows[i].x, 0 };
		uint8_t e = 99;

		quant_exponents(DTYPE_F32, x, 3, &e);
		ck_assert_uint_eq(e, rows[i].e);
	}
}
END_TEST

/* Blocks with an infinity or NaN are IEEE's; their neighbours are not touched by it. */
START_TEST(infinite_block_goes_by_the_exact_way)
{
	static float got[LEN], exact[LEN], finite[LEN];

	fill(DTYPE_F32, 5, 3);
	quant_sum(DTYPE_F32, finite, in, 3, LEN, 3);
	input[1][300] = INFINITY;
	quant_sum(DTYPE_F32, got, in, 3, LEN, 3);
	kern_sum(DTYPE_F32, exact, in, 3, LEN, 3);
	ck_assert_mem_eq(got + 256, exact + 256, 256 * 4);
	ck_assert_mem_eq(got, finite, 256 * 4);
	ck_assert_mem_eq(got + 512, finite + 512, (LEN - 512) * 4);
	ck_assert(isinf(got[300]));
}
END_TEST

START_TEST(largest_numbers_do_not_overflow_in_between)
{
	static float got[LEN];

	for (uint32_t w = 0; w < N_MAX; w++) {
		in[w] = input[w];
		for (uint32_t i = 0; i < LEN; i++)
			input[w][i] = w & 1 ? -0x1.fffffep127f : 0x1.fffffep127f;
	}
	quant_sum(DTYPE_F32, got, in, N_MAX, LEN, 1);
	for (uint32_t i = 0; i < LEN; i++)
		ck_assert(got[i] == 0.0f);
	for (uint32_t i = 0; i < LEN; i++)
		input[1][i] = 0x1.fffffep127f;
	quant_sum(DTYPE_F32, got, in, N_MAX, LEN, 2);
	ck_assert(got[0] > 0x1.fff0p127f && got[0] < INFINITY);
}
END_TEST

START_TEST(headroom_is_log2_of_the_contributors_rounded_up)
{
	ck_assert_uint_eq(quant_headroom(1), 0);
	ck_assert_uint_eq(quant_headroom(2), 1);
	ck_assert_uint_eq(quant_headroom(3), 2);
	ck_assert_uint_eq(quant_headroom(4), 2);
	ck_assert_uint_eq(quant_headroom(5), 3);
	ck_assert_uint_eq(quant_headroom(256), 8);
	ck_assert_uint_eq(quant_headroom(257), 9);
	ck_assert_uint_eq(quant_headroom(65536), 16);
}
END_TEST

START_TEST(integers_are_cut_toward_zero)
{
	int32_t q[5] = { 7, -7, 1 << 29, -(1 << 29), -1 };
	const uint8_t own = 100, more = 102, far = 200;

	quant_align(q, 5, &own, &more);
	ck_assert_int_eq(q[0], 1);
	ck_assert_int_eq(q[1], -1);
	ck_assert_int_eq(q[2], 1 << 27);
	ck_assert_int_eq(q[3], -(1 << 27));
	ck_assert_int_eq(q[4], 0);
	quant_align(q, 5, &more, &far);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(q[i], 0);
}
END_TEST

int main(void)
{
	int all = 3 * (int)ARRAY_SIZE(counts);
	Suite *s = suite_create("quant");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	kern_init(~0u);
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, integers_aligned_later_give_the_bits_of_the_whole_sum_at_every_level,
			    0, all);
	tcase_add_loop_test(t, error_is_within_the_promise, 0, all);
	tcase_add_test(t, exponents_of_special_blocks);
	tcase_add_test(t, infinite_block_goes_by_the_exact_way);
	tcase_add_test(t, largest_numbers_do_not_overflow_in_between);
	tcase_add_test(t, headroom_is_log2_of_the_contributors_rounded_up);
	tcase_add_test(t, integers_are_cut_toward_zero);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
