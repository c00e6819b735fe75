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

bool notify_is_wanted(void);		/* there is a service manager */
void notify(const char *state);

/*
 * The service manager's descriptor store (FileDescriptorStoreMax= of the unit): it has a copy of
 * fd under that name, for as long as the service is not stopped, and the process that is started
 * next gets it.  Names have no colon.  A manager that does not listen just now keeps nothing.
 */
void notify_keep(int fd, const char *name);
/*
 * All that it has under that name; waits for room in the manager's queue, wait_ms at most.  False:
 * there was none, or there is no manager.
 */
bool notify_forget(const char *name, uint32_t wait_ms);
/* False: there is no manager, or it has not done within twice wait_ms what it was told so far. */
bool notify_barrier(uint32_t wait_ms);
/* Once, at the start: hands over the descriptors that the process before had kept, to be closed. */
void notify_kept(void (*take)(void *ctx, const char *name, int fd), void *ctx);

uint64_t notify_watchdog_ms(void);	/* 0: none; send WATCHDOG=1 at half of it */
/* WATCHDOG=1 when half of that is over since the last call that sent it; for work between two
 * turns of the loop that goes in pieces. */
void notify_alive(void);

#endif
