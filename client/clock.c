// SPDX-License-Identifier: Apache-2.0
#include "client/clock.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

static mono_t read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (mono_t)t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

mono_t lt_now(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

mono_t lt_wall_offset(void)
{
	return read_clock(CLOCK_REALTIME) - lt_now();
}

int lt_poll(struct pollfd *p, nfds_t n, mono_t deadline)
{
	mono_t left;
	int rc;

	do {
		left = deadline - lt_now();
		/* rounded up: to wake a moment late beats to spin through the last one */
		left = left <= 0 ? 0 : (left - 1) / NS_PER_MS + 1;
		rc = poll(p, n, (int)MIN(left, INT_MAX));
	} while ((rc < 0 && (errno == EINTR || errno == EAGAIN)) || (rc == 0 && left > INT_MAX));
	return rc;
}
