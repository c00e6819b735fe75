/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serial.h - comparing 32-bit numbers that wrap (positions, packet numbers), as RFC 1982 does.
 *
 * Right as long as the numbers that are compared lie less than 2^31 apart.
 */
#ifndef TALLY_LANE_SERIAL_H
#define TALLY_LANE_SERIAL_H

#include "common/base/base.h"

/* How far b lies behind a; negative: before it. */
static inline int32_t serial_diff(uint32_t b, uint32_t a)
{
	return (int32_t)(b - a);
}

static inline bool serial_before(uint32_t a, uint32_t b)
{
	return serial_diff(a, b) < 0;
}

#endif
