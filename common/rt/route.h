/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - addresses of hosts, and which of this machine's leads to one.  They ask a name
 * server where they are given a name, and wait for it: for starts.
 */
#ifndef TALLY_RT_ROUTE_H
#define TALLY_RT_ROUTE_H

#include "common/base/err.h"

/*
 * The numeric source address that the kernel would use for host (name or
 * number).  Sends nothing.  EIO: not resolvable, or no route.
 */
int route_source(const char *host, uint16_t port, char addr[ADDR_LEN_MAX + 1], struct err *e);

/* The (first) numeric address of host, a name or a number.  EINVAL: not resolvable. */
int route_numeric(const char *host, char addr[ADDR_LEN_MAX + 1], struct err *e);

/* "0.0.0.0", "::", "": every address of the machine. */
bool route_is_wildcard(const char *host);

/*
 * addr is one that other machines are told: EINVAL, with what to give instead, where it is a
 * loopback address and the scheduler ("HOST:PORT" or "HOST") is on another machine.
 */
int route_check(const char *addr, const char *scheduler, uint16_t default_port, struct err *e);

/* Says in the log that no other machine gets to such an address, if addr is one that a daemon
 * has found by itself; option: by which it is told another. */
void route_warn_loopback(const char *addr, const char *option);

#endif
