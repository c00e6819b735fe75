/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what `tally bench` feeds in and expects back.
 *
 * Input element i of rank r is a pure function of (dtype, r, i), so that every
 * rank knows what every other one gave.  Floating-point values are fractions of
 * many magnitudes, whose sum shows in which order it was made; the expected
 * result is made in the order that Tally promises: by rank within a machine,
 * then machine by machine, each level rounded once, with the plain C kernels.
 *
 * Memory: blocks of BENCH_BLOCK elements on the way, allocated at init.
 */
#ifndef TALLY_CLI_BENCH_H
#define TALLY_CLI_BENCH_H

#include "common/base/dtype.h"

#define BENCH_BLOCK	4096u		/* elements */

/* Which rank sits on which machine; machines are numbered by their lowest rank. */
struct bench_ranks {
	uint32_t world, machines;
	uint32_t *machine_of;	/* owned, by whoever made it; `world` entries */
};

/*
 * Numbers the machines: key[r] is any number that ranks on one machine, and
 * only they, share.  machine_of has room for `world` entries.
 */
void bench_group(struct bench_ranks *g, const int64_t *key, uint32_t world,
		 uint32_t *machine_of);

/* Elements [first, first + count) of rank's input. */
void bench_fill(enum dtype dtype, uint32_t rank, uint64_t first, uint64_t count, void *out);

/* The expected result of all `count` elements.  TALLY_ENOMEM. */
int bench_expect(const struct bench_ranks *g, enum dtype dtype, enum rop op, uint64_t count,
		 void *out);

/* Elements that differ in any bit. */
uint64_t bench_differences(enum dtype dtype, const void *got, const void *expected,
			   uint64_t count);

/* The p-th quantile (0..1) of n sorted values, by the nearest-rank rule; n > 0. */
double bench_quantile(const double *sorted, uint32_t n, double p);

#endif
