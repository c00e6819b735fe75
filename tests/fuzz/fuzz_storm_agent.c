// SPDX-License-Identifier: Apache-2.0
/*
 * An agent's core, and servers that send whatever the bytes choose: each byte is a choice of
 * tests/storm, which makes well-formed messages in impossible orders of them.
 */
#include "tests/storm/storm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct storm s;

	storm_init(&s, 0, data, size);
	storm_agent(&s);
	storm_fini(&s);
	return 0;
}
