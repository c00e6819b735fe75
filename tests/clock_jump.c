// SPDX-License-Identifier: Apache-2.0
/*
 * A wall clock that nobody should believe, to be preloaded: at every look it is another
 * day, earlier or later.  The clocks that count time are left alone.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define DAY_S	86400

int clock_gettime(clockid_t id, struct timespec *ts)
{
	static unsigned int looks;
	int rc = (int)syscall(SYS_clock_gettime, id, ts);

	if (!rc && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI))
		ts->tv_sec += (__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED) * 7 % 11 - 5l) *
			      DAY_S;
	return rc;
}

time_t time(time_t *t)
{
	struct timespec ts = { 0 };

	clock_gettime(CLOCK_REALTIME, &ts);
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}

int gettimeofday(struct timeval *tv, void *zone)
{
	struct timespec ts = { 0 };

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
