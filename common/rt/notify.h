/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify.h - sd_notify(3): "READY=1", "STATUS=...", "STOPPING=1", "WATCHDOG=1".
 * Does nothing without NOTIFY_SOCKET.  The value of WATCHDOG_USEC is read once.  notify_alive()
 * is of one thread, the others of any.
 */
#ifndef TALLY_RT_NOTIFY_H
#define TALLY_RT_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

void notify(const char *state);
uint64_t notify_watchdog_ms(void);	/* 0: none; send WATCHDOG=1 at half of it */
/* WATCHDOG=1 when half of that is over since the last call that sent it; for work between two
 * turns of the loop that goes in pieces. */
void notify_alive(void);

#endif
