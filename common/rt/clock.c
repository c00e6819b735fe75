// SPDX-License-Identifier: Apache-2.0
/*
 * The one clock of all daemons: CLOCK_BOOTTIME, which also counts the time that
 * a machine slept, so that a lease that ran out meanwhile is seen to have.
 */
#include <time.h>

#include "common/rt/loop.h"

mono_t loop_now(void)
{
	struct timespec ts;
	int r = clock_gettime(CLOCK_BOOTTIME, &ts);

	ASSERT(r == 0);
	return (mono_t)ts.tv_sec * NS_PER_SEC + ts.tv_nsec;
}
