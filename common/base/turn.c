// SPDX-License-Identifier: Apache-2.0
/* Turns by fractions: number i falls somewhere in [0, 1), and into somebody's share. */
#include "common/base/turn.h"

#include <string.h>

/* The bits of i in reverse order, as a fraction: each new one halves the widest gap. */
static double radical_inverse(uint64_t i)
{
	double f = 0, bit = 0.5;

	for (; i; i >>= 1, bit /= 2)
		if (i & 1)
			f += bit;
	return f;
}

static uint32_t end_of(const uint32_t *end, size_t stride, uint32_t k)
{
	uint32_t v;

	memcpy(&v, (const char *)end + k * stride, sizeof(v));
	return v;
}

uint32_t turn_of(const uint32_t *end, size_t stride, uint32_t n, uint64_t i)
{
	double at = ((double)(i % n) + radical_inverse(i / n)) / n * TURN_SUM;
	uint32_t k = 0;

	/* half a weight: thirds are no weights, and their turn comes right on the end */
	while (k + 1 < n && end_of(end, stride, k) < at + 0.5)
		k++;
	return k;
}
