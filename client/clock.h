/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - the library's only clock, and waiting on descriptors until a deadline.
 */
#ifndef TALLY_CLIENT_CLOCK_H
#define TALLY_CLIENT_CLOCK_H

#include <poll.h>

#include "common/base/base.h"

mono_t lt_now(void);		/* CLOCK_BOOTTIME */
mono_t lt_wall_offset(void);	/* what makes it the time of day: since 1970, UTC */

/* poll(2) until the deadline, whatever signals come; 0: it passed. */
int lt_poll(struct pollfd *p, nfds_t n, mono_t deadline);

#endif
