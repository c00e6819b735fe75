/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_body.h - the loops of q32 over one block; for the quant_*.c of each level alone.
 *
 * Each of those defines QUANT_TABLE, the name of its table, and is compiled for its instructions:
 * the compiler makes vectors of these loops.  Every operation in them is exact or rounds once, so
 * all levels give the same bits.
 */
#include <string.h>

#include "common/base/bytes.h"
#include "common/kern/half.h"
#include "common/kern/quant_impl.h"

/* The largest |x| as bits, which compare as values do; an infinity or NaN is larger than all. */
static uint32_t largest(const float *x, uint32_t len)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < len; i++) {
		uint32_t u;

		memcpy(&u, x + i, sizeof(u));
		u &= 0x7fffffff;
		most = u > most ? u : most;
	}
	return most;
}

static void ints(const float *x, uint32_t len, float scale, int32_t *q)
{
	for (uint32_t i = 0; i < len; i++)
		q[i] = (int32_t)(x[i] * scale);
}

static void add_ints(const float *x, uint32_t len, float scale, int32_t *sum)
{
	for (uint32_t i = 0; i < len; i++)
		sum[i] += (int32_t)(x[i] * scale);
}

/* Divides by 2^shift, toward zero; shift from 1 to 30. */
static void shift_down(int32_t *q, uint32_t len, uint32_t shift)
{
	int32_t low = (int32_t)((1u << shift) - 1);

	for (uint32_t i = 0; i < len; i++)
		q[i] = (q[i] + (q[i] >> 31 & low)) >> shift;
}

static void floats(const int32_t *sum, uint32_t len, double scale, float *out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = (float)((double)sum[i] * scale);
}

static void floats_divided(const int32_t *sum, uint32_t len, double scale, double div, float *out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = (float)((double)sum[i] * scale / div);
}

static void from_f16(const uint16_t *x, uint32_t len, float *out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = f32_from_f16(x[i]);
}

static void from_bf16(const uint16_t *x, uint32_t len, float *out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = f32_from_bf16(x[i]);
}

static void to_f16(const float *x, uint32_t len, uint16_t *out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = f16_from_f32(x[i]);
}

static void to_bf16(const float *x, uint32_t len, uint16_t *out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = bf16_from_f32(x[i]);
}

const struct quant_table QUANT_TABLE = {
	.largest = largest, .ints = ints, .add_ints = add_ints, .shift_down = shift_down,
	.floats = floats, .floats_divided = floats_divided, .from_f16 = from_f16,
	.from_bf16 = from_bf16, .to_f16 = to_f16, .to_bf16 = to_bf16,
};
