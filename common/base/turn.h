/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.h - whose turn is it, among several with unequal shares.
 *
 * For runs of chunks that go to roots by turns: equal ones in strict rotation, others as evenly
 * as fractions can.  A pure function of the number, so that all who take part agree.
 */
#ifndef TALLY_BASE_TURN_H
#define TALLY_BASE_TURN_H

#include "common/base/base.h"

#define TURN_SUM (1u << 24)

/*
 * Which of n owners gets number i. Shares are given by where they end: ascending, the last one
 * TURN_SUM; the first stands at `end`, the others at steps of `stride` bytes behind it.
 */
uint32_t turn_of(const uint32_t *end, size_t stride, uint32_t n, uint64_t i);

#endif
