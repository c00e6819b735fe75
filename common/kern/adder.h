/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adder.h - how fast sums are made here, measured.
 *
 * A server reports what its engines add together when it registers
 * (server/server_adder.c); the planner gives no server more than it can add.  Sums out
 * of memory share its bandwidth: what one thread does is not what each of several does.
 * Uses the level that kern_init() chose.  No heap, no clock of its own.
 */
#ifndef TALLY_KERN_ADDER_H
#define TALLY_KERN_ADDER_H

#include "common/base/base.h"

#define ADDER_MEASURE_MS	60u
#define ADDER_ROUNDS_MIN	6u	/* on a busy machine, too, where one may take that long */
#define ADDER_LONGEST_MS	1000u	/* ... but not for longer than this */
#define ADDER_ROUNDS_MAX	64u
#define ADDER_SCRATCH_BYTES	(160u << 20)	/* wanted: out of most caches */

/* Sums all of scratch once, as it is; the bytes of input that were read.  0: it is too small. */
size_t adder_pass(void *scratch, size_t bytes);

/* Bytes per second; 0: no time has passed. */
uint64_t adder_rate(size_t bytes, mono_t took);

#endif
