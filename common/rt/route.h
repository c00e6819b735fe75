/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - which of this machine's addresses leads to a host.
 */
#ifndef TALLY_RT_ROUTE_H
#define TALLY_RT_ROUTE_H

#include "common/base/err.h"

/*
 * The numeric source address that the kernel would use for host (name or
 * number).  Sends nothing.  EIO: not resolvable, or no route.
 */
int route_source(const char *host, uint16_t port, char addr[ADDR_LEN_MAX + 1], struct err *e);

/* "0.0.0.0", "::", "": every address of the machine. */
bool route_is_wildcard(const char *host);

#endif
