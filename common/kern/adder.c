// SPDX-License-Identifier: Apache-2.0
/*
 * The scratch memory is cut into four inputs and an output, which are summed
 * segment by segment as a server does it, round and round.  The best of the
 * rounds counts: others shared the machine with somebody.
 */
#include "common/kern/adder.h"

#include "common/kern/kern.h"

#include <string.h>

#define INPUTS		4u
#define SEG		(256u << 10)

size_t adder_pass(void *scratch, size_t bytes)
{
	size_t part = bytes / (INPUTS + 1) / SEG * SEG;
	char *base = scratch;
	const void *in[INPUTS];

	for (size_t at = 0; at < part; at += SEG) {
		for (uint32_t i = 0; i < INPUTS; i++)
			in[i] = base + i * part + at;
		kern_sum(DTYPE_F32, base + INPUTS * part + at, in, INPUTS, SEG / 4, 1);
	}
	return INPUTS * part;
}

uint64_t adder_rate(size_t bytes, mono_t took)
{
	return took > 0 ? (uint64_t)((double)bytes * (double)NS_PER_SEC / (double)took) : 0;
}

uint64_t adder_measure(void *scratch, size_t bytes, mono_t (*now)(void))
{
	mono_t began, t, best = MONO_NEVER;
	size_t read = 0;

	memset(scratch, 0, bytes);
	began = now();
	for (uint32_t i = 0; i < ADDER_ROUNDS_MAX; i++) {
		mono_t from = now();

		read = adder_pass(scratch, bytes);
		t = now();
		best = MIN(best, t - from);
		if (i + 1 >= ADDER_ROUNDS_MIN && t - began >= mono_ms(ADDER_MEASURE_MS))
			break;
	}
	return adder_rate(read, best);
}
