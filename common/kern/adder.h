/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adder.h - how fast this machine sums, measured.
 *
 * A server reports it when it registers; the planner gives no server more than
 * it can add.  Takes about ADDER_MEASURE_MS of one core and should run before
 * the data threads start, on a thread placed as they will be.  Uses the level
 * that kern_init() chose.  No heap, no clock of its own.
 */
#ifndef TALLY_KERN_ADDER_H
#define TALLY_KERN_ADDER_H

#include "common/base/base.h"

#define ADDER_MEASURE_MS	60u
#define ADDER_SCRATCH_BYTES	(160u << 20)	/* wanted: out of most caches */

/*
 * Bytes of input read per second while summing float32 from memory, four inputs
 * at a time.  scratch is overwritten, by touching all of it; bytes should be
 * ADDER_SCRATCH_BYTES, less measures the cache.  0: bytes is too small to measure
 * with, or now() stands still.
 */
uint64_t adder_measure(void *scratch, size_t bytes, mono_t (*now)(void));

#endif
