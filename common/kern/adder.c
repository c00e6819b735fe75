// SPDX-License-Identifier: Apache-2.0
/*
 * The scratch memory is cut into four inputs and an output, which are summed
 * segment by segment as a server does it.
 */
#include "common/kern/adder.h"

#include "common/kern/kern.h"

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
