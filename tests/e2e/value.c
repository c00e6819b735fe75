// SPDX-License-Identifier: Apache-2.0
/*
 * Values are made from random bits: any sign, exponents far apart, so that most
 * sums depend on their order, and now and then a zero, a negative zero or a
 * denormal.  There is no infinity and no NaN, and the largest sums stay finite.
 *
 * The reference adds one element after another in a type that holds them:
 * float for float32, float16 and bfloat16, double, and 64-bit integers modulo
 * 2^64.  Rank by rank within a machine, rounded to the dtype; then machine by
 * machine; divided; rounded.  One machine is one level: divided, then rounded.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/e2e.h"

#define BLOCK	1024u
#define GOLDEN	UINT64_C(0x9e3779b97f4a7c15)

/* A loop over elements, compiled once for each dtype that it is called with. */
#define SPECIAL	inline __attribute__((always_inline))

uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* ---- inputs ---- */

/* Sign, exponent low ... low + 2^spread - 1, mantissa; 1 in 64 has exponent field 0. */
static SPECIAL uint64_t random_float(uint64_t z, uint32_t expo_bits, uint32_t mant, uint32_t low,
			     uint32_t spread)
{
	uint64_t expo = low + (z >> 52 & ((UINT64_C(1) << spread) - 1));
	uint64_t bits = z & ((UINT64_C(1) << mant) - 1);

	if ((z >> 57 & 63) == 0) {
		expo = 0;
		bits = z & 1 ? bits : 0;
	}
	return (z >> 63) << (expo_bits + mant) | expo << mant | bits;
}

static SPECIAL uint64_t element(tally_dtype dtype, uint64_t z)
{
	switch (dtype) {
	case TALLY_FLOAT32:
		return random_float(z, 8, 23, 127 - 16, 5);
	case TALLY_FLOAT64:
		return random_float(z, 11, 52, 1023 - 32, 5);
	case TALLY_FLOAT16:
		return random_float(z, 5, 10, 10, 4);
	case TALLY_BFLOAT16:
		return random_float(z, 8, 7, 127 - 16, 5);
	default:
		return z;
	}
}

static SPECIAL void fill_as(tally_dtype dtype, size_t size, uint64_t at, uint32_t n, uint8_t *p)
{
	for (uint32_t i = 0; i < n; i++, p += size) {
		uint64_t v = element(dtype, mix64(at += GOLDEN));

		memcpy(p, &v, size);		/* little endian, as all that we run on */
	}
}

/* Eight from one draw: a tensor of bytes has the most elements.  at is that of the first. */
static void fill_bytes(uint64_t at, uint32_t n, uint8_t *p)
{
	for (uint32_t i = 0; i < n; i += 8) {
		uint64_t v = mix64(at += GOLDEN);

		memcpy(p + i, &v, n - i < 8 ? n - i : 8);
	}
}

/* first is a multiple of BLOCK. */
static void fill(const struct recipe *r, uint32_t rank, uint64_t first, uint32_t n, void *out)
{
	uint64_t from = mix64(r->seed + (rank + 1) * GOLDEN), at = from + first * GOLDEN;

	switch (r->dtype) {
	case TALLY_FLOAT32:
		return fill_as(TALLY_FLOAT32, 4, at, n, out);
	case TALLY_FLOAT64:
		return fill_as(TALLY_FLOAT64, 8, at, n, out);
	case TALLY_FLOAT16:
		return fill_as(TALLY_FLOAT16, 2, at, n, out);
	case TALLY_BFLOAT16:
		return fill_as(TALLY_BFLOAT16, 2, at, n, out);
	case TALLY_INT8:
	case TALLY_UINT8:
		return fill_bytes(from + first / 8 * GOLDEN, n, out);
	case TALLY_INT32:
		return fill_as(TALLY_INT32, 4, at, n, out);
	default:
		return fill_as(TALLY_INT64, 8, at, n, out);
	}
}

void value_fill(const struct recipe *r, uint32_t rank, uint64_t count, void *out)
{
	size_t size = tally_dtype_size(r->dtype);

	for (uint64_t at = 0; at < count; at += BLOCK) {
		uint64_t left = count - at;

		fill(r, rank, at, left < BLOCK ? (uint32_t)left : BLOCK,
		     (uint8_t *)out + at * size);
	}
}

/* ---- the reference ---- */

/* One number while it is added.  No union: the parts shall live in registers. */
struct wide {
	float f;
	double d;
	uint64_t u;
};

/* Every float16's value, since where no instruction widens one a call per element takes long. */
static float halves[65536];

static void halves_init(void)
{
	static bool done;
	_Float16 half;

	for (uint32_t h = 0; !done && h < 65536; h++) {
		uint16_t bits = (uint16_t)h;

		memcpy(&half, &bits, 2);
		halves[h] = (float)half;
	}
	done = true;
}

static SPECIAL struct wide widen(tally_dtype dtype, const uint8_t *p)
{
	struct wide w = { .u = 0 };
	uint32_t bits = 0;
	uint16_t half;
	int32_t i32;

	switch (dtype) {
	case TALLY_FLOAT32:
		memcpy(&w.f, p, 4);
		break;
	case TALLY_FLOAT64:
		memcpy(&w.d, p, 8);
		break;
	case TALLY_FLOAT16:
		memcpy(&half, p, 2);
		w.f = halves[half];
		break;
	case TALLY_BFLOAT16:
		memcpy((uint8_t *)&bits + 2, p, 2);
		memcpy(&w.f, &bits, 4);
		break;
	case TALLY_INT8:
		w.u = (uint64_t)(int64_t)(int8_t)*p;
		break;
	case TALLY_UINT8:
		w.u = *p;
		break;
	case TALLY_INT32:
		memcpy(&i32, p, 4);
		w.u = (uint64_t)(int64_t)i32;
		break;
	default:
		memcpy(&w.u, p, 8);
	}
	return w;
}

/* Rounds to the dtype: to nearest, ties to even; integers modulo 2^bits. */
static SPECIAL void narrow(tally_dtype dtype, struct wide w, uint8_t *p)
{
	_Float16 half;
	uint32_t bits;

	switch (dtype) {
	case TALLY_FLOAT32:
		memcpy(p, &w.f, 4);
		break;
	case TALLY_FLOAT64:
		memcpy(p, &w.d, 8);
		break;
	case TALLY_FLOAT16:
		half = (_Float16)w.f;
		memcpy(p, &half, 2);
		break;
	case TALLY_BFLOAT16:
		memcpy(&bits, &w.f, 4);
		bits += 0x7fff + (bits >> 16 & 1);
		memcpy(p, (uint8_t *)&bits + 2, 2);
		break;
	case TALLY_INT32:
		memcpy(p, &w.u, 4);
		break;
	case TALLY_INT64:
		memcpy(p, &w.u, 8);
		break;
	default:
		*p = (uint8_t)w.u;
	}
}

static SPECIAL struct wide add(tally_dtype dtype, struct wide a, struct wide b)
{
	switch (dtype) {
	case TALLY_FLOAT32:
	case TALLY_FLOAT16:
	case TALLY_BFLOAT16:
		return (struct wide){ .f = a.f + b.f };
	case TALLY_FLOAT64:
		return (struct wide){ .d = a.d + b.d };
	default:
		return (struct wide){ .u = a.u + b.u };
	}
}

/* Integers: what fits the dtype, then toward zero. */
static SPECIAL struct wide divide(tally_dtype dtype, struct wide w, uint32_t by)
{
	uint8_t p[8];

	switch (dtype) {
	case TALLY_FLOAT32:
	case TALLY_FLOAT16:
	case TALLY_BFLOAT16:
		return (struct wide){ .f = w.f / (float)by };
	case TALLY_FLOAT64:
		return (struct wide){ .d = w.d / by };
	default:
		narrow(dtype, w, p);
		w = widen(dtype, p);
		return (struct wide){ .u = (uint64_t)((int64_t)w.u / (int64_t)by) };
	}
}

uint32_t value_ranks_on(uint32_t world, uint32_t machines, uint32_t machine)
{
	return world / machines + (machine < world % machines);
}

/* Row of every rank, one behind the other; out may not be one of them. */
static SPECIAL void add_up_as(tally_dtype dtype, size_t size, const struct recipe *r,
			      const uint8_t *rows, uint32_t n, uint8_t *out)
{
	uint32_t div = r->op == OP_MEAN ? r->world : 1;
	uint32_t ranks[E2E_WORLD_MAX];

	for (uint32_t m = 0; m < r->machines; m++)
		ranks[m] = value_ranks_on(r->world, r->machines, m);
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *p = rows + i * size;
		struct wide total = { .u = 0 };

		for (uint32_t m = 0; m < r->machines; m++) {
			struct wide sum = widen(dtype, p);
			uint8_t level[8];

			p += BLOCK * size;
			for (uint32_t k = 1; k < ranks[m]; k++, p += BLOCK * size)
				sum = add(dtype, sum, widen(dtype, p));
			if (r->machines > 1) {
				narrow(dtype, sum, level);
				sum = widen(dtype, level);
			}
			total = m ? add(dtype, total, sum) : sum;
		}
		if (div > 1)
			total = divide(dtype, total, div);
		narrow(dtype, total, out + i * size);
	}
}

static void add_up(const struct recipe *r, const uint8_t *rows, uint32_t n, uint8_t *out)
{
	switch (r->dtype) {
	case TALLY_FLOAT32:
		return add_up_as(TALLY_FLOAT32, 4, r, rows, n, out);
	case TALLY_FLOAT64:
		return add_up_as(TALLY_FLOAT64, 8, r, rows, n, out);
	case TALLY_FLOAT16:
		return add_up_as(TALLY_FLOAT16, 2, r, rows, n, out);
	case TALLY_BFLOAT16:
		return add_up_as(TALLY_BFLOAT16, 2, r, rows, n, out);
	case TALLY_INT8:
		return add_up_as(TALLY_INT8, 1, r, rows, n, out);
	case TALLY_UINT8:
		return add_up_as(TALLY_UINT8, 1, r, rows, n, out);
	case TALLY_INT32:
		return add_up_as(TALLY_INT32, 4, r, rows, n, out);
	default:
		return add_up_as(TALLY_INT64, 8, r, rows, n, out);
	}
}

static void expect(const struct recipe *r, bool turned, uint64_t first, uint32_t n, void *out)
{
	static uint8_t rows[E2E_WORLD_MAX * BLOCK * 8];
	size_t size = tally_dtype_size(r->dtype);

	if (r->op == OP_BROADCAST) {
		fill(r, r->root, first, n, out);
		return;
	}
	halves_init();
	for (uint32_t k = 0; k < r->world; k++)
		fill(r, turned ? (k + 1) % r->world : k, first, n,
		     rows + (size_t)k * BLOCK * size);
	add_up(r, rows, n, out);
}

uint64_t value_differences(const struct recipe *r, const void *got, uint64_t count,
			   uint64_t *at)
{
	size_t size = tally_dtype_size(r->dtype);
	const uint8_t *p = got;
	uint64_t bad = 0;

	for (uint64_t first = 0; first < count; first += BLOCK, p += BLOCK * size) {
		uint32_t n = count - first < BLOCK ? (uint32_t)(count - first) : BLOCK;
		uint8_t want[BLOCK * 8];

		expect(r, false, first, n, want);
		if (!memcmp(p, want, n * size))
			continue;
		for (uint32_t i = 0; i < n; i++) {
			if (!memcmp(p + i * size, want + i * size, size))
				continue;
			if (!bad++)
				*at = first + i;
		}
	}
	return bad;
}

bool value_order_matters(const struct recipe *r, uint64_t count)
{
	size_t size = tally_dtype_size(r->dtype);

	for (uint64_t first = 0; first + BLOCK <= count; first += BLOCK) {
		uint8_t a[BLOCK * 8], b[BLOCK * 8];

		expect(r, false, first, BLOCK, a);
		expect(r, true, first, BLOCK, b);
		if (memcmp(a, b, BLOCK * size))
			return true;
	}
	return false;
}
