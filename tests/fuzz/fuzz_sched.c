// SPDX-License-Identifier: Apache-2.0
/* Messages, connections and time in any order, as the bytes say, at the scheduler's core. */
#include "tests/fuzz/sched_liar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	liar_begin(data, size, 0);
	sched_liar_run(400);
	return 0;
}
