/* SPDX-License-Identifier: Apache-2.0 */
/*
 * half.h - float16 and bfloat16 to float32 and back, by their bits.
 *
 * To float32 is exact.  Back rounds to nearest, ties to even, overflows to
 * infinity and keeps denormals; NaN stays NaN.  Needs no F16C and compiles with
 * every compiler; the vector code gives the same bits.  The C environment must
 * be the default one (round to nearest, denormals on).
 */
#ifndef TALLY_KERN_HALF_H
#define TALLY_KERN_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static inline float f32_from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/*
 * The 15 bits moved to float32's places are the value times 2^-112, denormals
 * too, so one multiplication gives the value.  Only infinity and NaN come out
 * as numbers, of 65536 and more: they get float32's exponent for them.
 */
static inline float f32_from_f16(uint16_t h)
{
	float f = f32_from_bits((uint32_t)(h & 0x7fff) << 13) * 0x1p112f;
	uint32_t u = f32_bits(f);

	u |= f >= 65536.0f ? 0x7f800000u : 0;
	return f32_from_bits(u | (uint32_t)(h & 0x8000) << 16);
}

/*
 * Normal results: move the exponent, add half of the last place (less one bit
 * if even), cut; a carry may run up to infinity, as it should.  Denormal
 * results: adding 0.5, whose last place is float16's smallest denormal, rounds.
 */
static inline uint16_t f16_from_f32(float f)
{
	uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, normal, tiny, special;

	u &= 0x7fffffff;
	normal = (u - (112u << 23) + 0xfff + (u >> 13 & 1)) >> 13;
	tiny = f32_bits(f32_from_bits(u) + 0.5f) - f32_bits(0.5f);
	special = u > 0x7f800000 ? 0x7e00 : 0x7c00;
	if (u < 0x38800000)			/* 2^-14 */
		normal = tiny;
	if (u >= 0x47800000)			/* 65536 */
		normal = special;
	return (uint16_t)(sign | normal);
}

static inline float f32_from_bf16(uint16_t h)
{
	return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float f)
{
	uint32_t u = f32_bits(f);
	uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
	uint32_t quiet = u >> 16 | 0x40;

	return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

#endif
