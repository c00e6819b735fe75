// SPDX-License-Identifier: Apache-2.0
/*
 * quant.c - q32 block by block: exponents, scales, types; the loops are the level's.
 *
 * A block is brought to float32 (where it is not already), worked on, and brought back, so that
 * everything stays in the first cache.
 */
#include "common/kern/quant.h"

#include <string.h>

#include "common/base/limits.h"
#include "common/kern/quant_impl.h"

static const struct quant_table *const tables[KERN_LEVELS] = {
	[KERN_C] = &quant_table_c,
#ifdef __x86_64__
	[KERN_AVX2] = &quant_table_avx2,
	[KERN_AVX512] = &quant_table_avx512,
#endif
};

static const struct quant_table *table(void)
{
	return tables[kern_level()];
}

uint32_t quant_headroom(uint32_t n)
{
	ASSERT(n >= 1 && n <= 1u << 16);
	return n == 1 ? 0 : 32 - (uint32_t)__builtin_clz(n - 1);
}

bool quant_takes(enum dtype dtype)
{
	return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* ---- one block ---- */

/* Elements of the block that begins at element `at`. */
static uint32_t block_len(size_t len, size_t at)
{
	return (uint32_t)MIN(len - at, (size_t)QUANT_BLOCK);
}

/* The block at element `at` of x as float32, in buf. */
static const float *load(enum dtype dtype, const void *x, size_t at, uint32_t len,
			 float buf[QUANT_BLOCK])
{
	uint16_t half[QUANT_BLOCK];
	const char *from = (const char *)x + at * dtype_bytes(dtype);

	if (dtype == DTYPE_F32) {
		memcpy(buf, from, len * sizeof(*buf));
		return buf;
	}
	memcpy(half, from, len * sizeof(*half));
	if (dtype == DTYPE_F16)
		table()->from_f16(half, len, buf);
	else
		table()->from_bf16(half, len, buf);
	return buf;
}

static void store(enum dtype dtype, const float *buf, uint32_t len, void *out, size_t at)
{
	uint16_t half[QUANT_BLOCK];
	char *to = (char *)out + at * dtype_bytes(dtype);

	if (dtype == DTYPE_F32) {
		memcpy(to, buf, len * sizeof(*buf));
		return;
	}
	if (dtype == DTYPE_F16)
		table()->to_f16(buf, len, half);
	else
		table()->to_bf16(buf, len, half);
	memcpy(to, half, len * sizeof(*half));
}

static uint8_t exponent(const float *x, uint32_t len)
{
	uint32_t most = table()->largest(x, len), e = most >> 23;

	if (!most)
		return 0;
	return (uint8_t)(e == QUANT_EXACT ? e : MAX(e, QUANT_EXP_MIN));
}

/* 2^(30 - h - E), E = e - 126; 0 for a block of zeros. */
static float scale_up(uint8_t e, uint32_t headroom)
{
	uint32_t bits = (QUANT_BITS + 126 + 127 - headroom - e) << 23;
	float scale;

	ASSERT(e != QUANT_EXACT && headroom <= 16);
	memcpy(&scale, &bits, sizeof(scale));
	return e ? scale : 0.0f;
}

/* 2^-(30 - h - E), E = e - 126. */
static double scale_down(uint8_t e, uint32_t headroom)
{
	uint64_t bits = (uint64_t)(1023 + headroom + e - 126 - QUANT_BITS) << 52;
	double scale;

	ASSERT(e != QUANT_EXACT && headroom <= 16);
	memcpy(&scale, &bits, sizeof(scale));
	return scale;
}

static void block_floats(enum dtype dtype, const int32_t *sum, uint32_t len, uint8_t e,
			 uint32_t headroom, uint32_t div, void *out, size_t at)
{
	float buf[QUANT_BLOCK];

	if (div == 1)
		table()->floats(sum, len, scale_down(e, headroom), buf);
	else
		table()->floats_divided(sum, len, scale_down(e, headroom), div, buf);
	store(dtype, buf, len, out, at);
}

/* ---- many ---- */

void quant_exponents(enum dtype dtype, const void *x, size_t len, uint8_t *e)
{
	float buf[QUANT_BLOCK];

	ASSERT(quant_takes(dtype));
	for (size_t at = 0; at < len; at += QUANT_BLOCK) {
		uint32_t n = block_len(len, at);

		*e++ = exponent(load(dtype, x, at, n, buf), n);
	}
}

void quant_exponents_join(uint8_t *into, const uint8_t *e, size_t blocks)
{
	for (size_t i = 0; i < blocks; i++)
		into[i] = MAX(into[i], e[i]);
}

void quant_ints(enum dtype dtype, const void *x, size_t len, const uint8_t *e, uint32_t headroom,
		int32_t *q)
{
	float buf[QUANT_BLOCK];

	ASSERT(quant_takes(dtype));
	for (size_t at = 0; at < len; at += QUANT_BLOCK) {
		uint32_t n = block_len(len, at);

		table()->ints(load(dtype, x, at, n, buf), n, scale_up(*e++, headroom), q + at);
	}
}

void quant_align(int32_t *q, size_t len, const uint8_t *own, const uint8_t *e)
{
	for (size_t at = 0; at < len; at += QUANT_BLOCK, own++, e++) {
		uint32_t n = block_len(len, at), shift = (uint32_t)(*e - *own);

		ASSERT(*e >= *own);
		if (!*own || shift > QUANT_BITS)
			memset(q + at, 0, n * sizeof(*q));
		else if (shift)
			table()->shift_down(q + at, n, shift);
	}
}

void quant_floats(enum dtype dtype, const int32_t *sum, size_t len, const uint8_t *e,
		  uint32_t headroom, uint32_t div, void *out)
{
	ASSERT(quant_takes(dtype) && div >= 1);
	for (size_t at = 0; at < len; at += QUANT_BLOCK)
		block_floats(dtype, sum + at, block_len(len, at), *e++, headroom, div, out, at);
}

/* The block at element `at` of all inputs by the exact way. */
static void block_exact(enum dtype dtype, void *out, const void *const in[], uint32_t n,
			size_t at, uint32_t len, uint32_t div)
{
	size_t off = at * dtype_bytes(dtype);
	const void *block[AGENTS_PER_JOB_MAX];

	for (uint32_t i = 0; i < n; i++)
		block[i] = (const char *)in[i] + off;
	kern_sum(dtype, (char *)out + off, block, n, len, div);
}

void quant_sum(enum dtype dtype, void *out, const void *const in[], uint32_t n, size_t len,
	       uint32_t div)
{
	uint32_t headroom = quant_headroom(n);
	int32_t sum[QUANT_BLOCK];
	float buf[QUANT_BLOCK];

	ASSERT(quant_takes(dtype) && n <= AGENTS_PER_JOB_MAX && div >= 1);
	for (size_t at = 0; at < len; at += QUANT_BLOCK) {
		uint32_t k = block_len(len, at);
		uint8_t e = 0;

		for (uint32_t i = 0; i < n; i++)
			e = MAX(e, exponent(load(dtype, in[i], at, k, buf), k));
		if (e == QUANT_EXACT) {
			block_exact(dtype, out, in, n, at, k, div);
			continue;
		}
		memset(sum, 0, k * sizeof(*sum));
		for (uint32_t i = 0; i < n; i++)
			table()->add_ints(load(dtype, in[i], at, k, buf), k,
					  scale_up(e, headroom), sum);
		block_floats(dtype, sum, k, e, headroom, div, out, at);
	}
}
