// SPDX-License-Identifier: Apache-2.0
#include "client/clock.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

mono_t lt_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (mono_t)t.tv_sec * NS_PER_SEC + t.tv_nsec;
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
