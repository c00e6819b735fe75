// SPDX-License-Identifier: Apache-2.0
/*
 * Inputs are made from their bits, not by arithmetic: a random sign, an exponent
 * from one down to 2^-7 and a random mantissa, so that no value is special and
 * any two orders of adding them differ somewhere in a few thousand elements.
 */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/kern/kern.h"

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)	/* rng_u64's step: seeks in its sequence */

void bench_group(struct bench_ranks *g, const int64_t *key, uint32_t world,
		 uint32_t *machine_of)
{
	uint32_t machines = 0;

	for (uint32_t r = 0; r < world; r++) {
		uint32_t first = 0;

		while (key[first] != key[r])
			first++;
		machine_of[r] = first < r ? machine_of[first] : machines++;
	}
	*g = (struct bench_ranks){ .world = world, .machines = machines,
				   .machine_of = machine_of };
}

/* sign, exponent `bias - 0..7`, mantissa of `mant` bits, in 1 + ... + mant bits */
static uint64_t random_float(uint64_t z, uint32_t bias, uint32_t expo_bits, uint32_t mant)
{
	uint64_t sign = z >> 63, down = z >> 60 & 7;
	uint64_t mantissa = z & ((UINT64_C(1) << mant) - 1);

	return sign << (expo_bits + mant) | (bias - down) << mant | mantissa;
}

static uint64_t element(enum dtype dtype, uint64_t z)
{
	switch (dtype) {
	case DTYPE_F32:
		return random_float(z, 127, 8, 23);
	case DTYPE_F64:
		return random_float(z, 1023, 11, 52);
	case DTYPE_F16:
		return random_float(z, 15, 5, 10);
	case DTYPE_BF16:
		return random_float(z, 127, 8, 7);
	default:
		return z;
	}
}

void bench_fill(enum dtype dtype, uint32_t rank, uint64_t first, uint64_t count, void *out)
{
	struct rng seed = { .state = rank };
	struct rng r = { .state = rng_u64(&seed) + first * GOLDEN };
	uint32_t size = dtype_bytes((uint8_t)dtype);
	uint8_t *p = out;

	for (uint64_t i = 0; i < count; i++, p += size) {
		uint8_t bits[8];

		put_le64(bits, element(dtype, rng_u64(&r)));
		memcpy(p, bits, size);
	}
}

/* Workspace of bench_expect: one row of BENCH_BLOCK elements per rank and machine. */
struct rows {
	uint8_t *data;		/* owned */
	size_t row_bytes;
	const void **in;	/* owned; world entries */
};

static void *row(const struct rows *w, uint32_t i)
{
	return w->data + i * w->row_bytes;
}

/*
 * Computes the expected result of a block. A job on one machine has one level only: its agent
 * adds, divides and rounds at once.
 */
static void expect_block(const struct bench_ranks *g, enum dtype dtype, uint32_t div,
			 uint64_t first, uint64_t count, const struct rows *w, void *out)
{
	uint8_t shift[AGENTS_PER_JOB_MAX];

	for (uint32_t m = 0; m < g->machines; m++) {
		uint32_t n = 0;

		for (uint32_t r = 0; r < g->world; r++) {
			if (g->machine_of[r] != m)
				continue;
			bench_fill(dtype, r, first, count, row(w, n));
			w->in[n] = row(w, n);
			n++;
		}
		shift[m] = div > 1 ? kern_shift(dtype, n) : 0;
		kern_sum_at(KERN_C, dtype, row(w, g->world + m), w->in, n, count,
			    g->machines == 1 ? div : 1u << shift[m]);
	}
	if (g->machines == 1)
		div = 1, shift[0] = 0;
	for (uint32_t m = 0; m < g->machines; m++)
		w->in[m] = row(w, g->world + m);
	kern_mean_at(KERN_C, dtype, out, w->in, shift, g->machines, count, div);
}

int bench_expect(const struct bench_ranks *g, enum dtype dtype, enum rop op, uint64_t count,
		 void *out)
{
	uint32_t size = dtype_bytes((uint8_t)dtype);
	struct rows w = { .row_bytes = (size_t)BENCH_BLOCK * size };
	int rc = TALLY_ENOMEM;

	w.data = malloc((g->world + g->machines) * w.row_bytes);
	w.in = malloc(g->world * sizeof(*w.in));
	if (w.data && w.in) {
		for (uint64_t at = 0; at < count; at += BENCH_BLOCK)
			expect_block(g, dtype, op == ROP_MEAN ? g->world : 1, at,
				     MIN(count - at, BENCH_BLOCK), &w,
				     (uint8_t *)out + at * size);
		rc = 0;
	}
	free(w.data);
	free(w.in);
	return rc;
}

uint64_t bench_differences(enum dtype dtype, const void *got, const void *expected,
			   uint64_t count)
{
	uint32_t size = dtype_bytes((uint8_t)dtype);
	const uint8_t *a = got, *b = expected;
	uint64_t n = 0;

	if (!memcmp(a, b, count * size))
		return 0;
	for (uint64_t i = 0; i < count; i++)
		n += memcmp(a + i * size, b + i * size, size) != 0;
	return n;
}

double bench_quantile(const double *sorted, uint32_t n, double p)
{
	double at = ceil(p * n);

	ASSERT(n > 0);
	return sorted[at < 1 ? 0 : at > n ? n - 1 : (uint32_t)at - 1];
}
