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
 * For a mean of a 16-bit float a machine's sum is divided by the smallest power of
 * two that is not below its ranks, before it is rounded, and multiplied after.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/e2e.h"

#define BLOCK	1024u
#define GOLDEN	UINT64_C(0x9e3779b97f4a7c15)

/* A loop over elements, compiled once for each dtype that it is called with. */
#define SPECIAL	inline __attribute__((always_inline))
/* ... and for CPUs that have AVX2 and F16C, or AVX-512: no test takes longer than these loops. */
#define FAST	__attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))

uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* ---- inputs ---- */

/*
 * Of random bits: the sign, and as many of the exponent's as make it low ... low + 2^spread - 1;
 * of 1 in 64 the exponent field is 0, and of half of those the mantissa, too.
 */
static SPECIAL uint64_t shaped(uint64_t z, uint32_t bits, uint32_t mant, uint32_t low,
			       uint32_t spread)
{
	uint64_t sign = z >> (bits - 1) << (bits - 1), frac = z & ((UINT64_C(1) << mant) - 1);
	uint64_t expo = low + (z >> mant & ((UINT64_C(1) << spread) - 1));

	return (z & 0x7e) ? sign | expo << mant | frac : z & 1 ? sign | frac : sign;
}

union block {
	uint64_t u64[BLOCK];
	uint32_t u32[2 * BLOCK];
	uint16_t u16[4 * BLOCK];
};

static SPECIAL void shape(tally_dtype dtype, uint32_t n, union block *b)
{
	switch (dtype) {
	case TALLY_FLOAT32:
		for (uint32_t i = 0; i < n; i++)
			b->u32[i] = (uint32_t)shaped(b->u32[i], 32, 23, 127 - 16, 5);
		break;
	case TALLY_FLOAT64:
		for (uint32_t i = 0; i < n; i++)
			b->u64[i] = shaped(b->u64[i], 64, 52, 1023 - 32, 5);
		break;
	case TALLY_FLOAT16:
		for (uint32_t i = 0; i < n; i++)
			b->u16[i] = (uint16_t)shaped(b->u16[i], 16, 10, 10, 4);
		break;
	case TALLY_BFLOAT16:
		for (uint32_t i = 0; i < n; i++)
			b->u16[i] = (uint16_t)shaped(b->u16[i], 16, 7, 127 - 16, 5);
		break;
	default:
		break;
	}
}

/* first is a multiple of BLOCK, n at most BLOCK. */
static FAST void fill(const struct recipe *r, uint32_t rank, uint64_t first, uint32_t n, void *out)
{
	size_t size = tally_dtype_size(r->dtype);
	uint32_t words = (n * (uint32_t)size + 7) / 8;
	union block b;
	uint64_t from = mix64(r->seed + (rank + 1) * GOLDEN) + first * size / 8 * GOLDEN;

	for (uint32_t i = 0; i < words; i++)
		b.u64[i] = mix64(from + (i + 1) * GOLDEN);
	shape(r->dtype, n, &b);
	memcpy(out, &b, n * size);		/* little endian, as all that we run on */
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

/* So many at a time.  Of a dtype one array is used. */
struct many {
	float f[BLOCK];
	double d[BLOCK];
	uint64_t u[BLOCK];
};

static SPECIAL struct wide get(tally_dtype dtype, const struct many *m, uint32_t i)
{
	switch (dtype) {
	case TALLY_FLOAT32:
	case TALLY_FLOAT16:
	case TALLY_BFLOAT16:
		return (struct wide){ .f = m->f[i] };
	case TALLY_FLOAT64:
		return (struct wide){ .d = m->d[i] };
	default:
		return (struct wide){ .u = m->u[i] };
	}
}

static SPECIAL void put(tally_dtype dtype, struct many *m, uint32_t i, struct wide w)
{
	switch (dtype) {
	case TALLY_FLOAT32:
	case TALLY_FLOAT16:
	case TALLY_BFLOAT16:
		m->f[i] = w.f;
		break;
	case TALLY_FLOAT64:
		m->d[i] = w.d;
		break;
	default:
		m->u[i] = w.u;
	}
}

/* What machine m adds to the total: its ranks' rows, p the first. */
static SPECIAL void add_machine(tally_dtype dtype, size_t size, const struct recipe *r, uint32_t m,
				const uint8_t *p, uint32_t n, struct many *total)
{
	uint32_t ranks = value_ranks_on(r->world, r->machines, m);
	bool half = dtype == TALLY_FLOAT16 || dtype == TALLY_BFLOAT16;
	float part = 1;
	struct many sum;

	while (half && r->op == OP_MEAN && part < (float)ranks)
		part *= 2;

	for (uint32_t i = 0; i < n; i++)
		put(dtype, &sum, i, widen(dtype, p + i * size));
	for (uint32_t k = 1; k < ranks; k++) {
		p += BLOCK * size;
		for (uint32_t i = 0; i < n; i++)
			put(dtype, &sum, i, add(dtype, get(dtype, &sum, i),
						widen(dtype, p + i * size)));
	}
	for (uint32_t i = 0; i < n; i++) {
		struct wide w = get(dtype, &sum, i);
		uint8_t level[8];

		if (r->machines > 1) {
			w.f = half ? w.f / part : w.f;
			narrow(dtype, w, level);
			w = widen(dtype, level);
			w.f = half ? w.f * part : w.f;
		}
		put(dtype, total, i, m ? add(dtype, get(dtype, total, i), w) : w);
	}
}

/* Row of every rank, one behind the other; out may not be one of them. */
static SPECIAL void add_up_as(tally_dtype dtype, size_t size, const struct recipe *r,
			      const uint8_t *rows, uint32_t n, uint8_t *out)
{
	uint32_t div = r->op == OP_MEAN ? r->world : 1, before = 0;
	struct many total;

	for (uint32_t m = 0; m < r->machines; m++) {
		add_machine(dtype, size, r, m, rows + before * BLOCK * size, n, &total);
		before += value_ranks_on(r->world, r->machines, m);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct wide w = get(dtype, &total, i);

		narrow(dtype, div > 1 ? divide(dtype, w, div) : w, out + i * size);
	}
}

static FAST void add_up(const struct recipe *r, const uint8_t *rows, uint32_t n, uint8_t *out)
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
