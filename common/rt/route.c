// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting a datagram socket makes the kernel choose a route and a source
 * address, and sends nothing.
 */
#include "common/rt/route.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cause.h"
#include "common/base/parse.h"
#include "common/rt/host.h"
#include "common/rt/log.h"

bool route_is_wildcard(const char *host)
{
	return !host[0] || !strcmp(host, "0.0.0.0") || !strcmp(host, "::") || !strcmp(host, "*");
}

void route_warn_loopback(const char *addr, const char *option)
{
	if (cause_is_loopback(addr))
		log_warn("address %s, found by --scheduler, leads to no other machine; where there "
			 "are some say %s, or name the scheduler as they do", addr, option);
}

static int source_of(const struct addrinfo *ai, char addr[ADDR_LEN_MAX + 1])
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int fd = socket(ai->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = -1;

	if (fd < 0)
		return -1;
	if (!connect(fd, ai->ai_addr, ai->ai_addrlen) &&
	    !getsockname(fd, (struct sockaddr *)&ss, &len) &&
	    !getnameinfo((struct sockaddr *)&ss, len, addr, ADDR_LEN_MAX + 1, NULL, 0,
			 NI_NUMERICHOST))
		rc = 0;
	close(fd);
	return rc;
}

int route_numeric(const char *host, char addr[ADDR_LEN_MAX + 1], struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *all;
	int rc = getaddrinfo(host, NULL, &hints, &all);

	if (rc)
		return err_set(e, TALLY_EINVAL, "cannot resolve %s: %s", host, gai_strerror(rc));
	rc = getnameinfo(all->ai_addr, all->ai_addrlen, addr, ADDR_LEN_MAX + 1, NULL, 0,
			 NI_NUMERICHOST);
	freeaddrinfo(all);
	return rc ? err_set(e, TALLY_EINVAL, "%s: %s", host, gai_strerror(rc)) : 0;
}

int route_source(const char *host, uint16_t port, char addr[ADDR_LEN_MAX + 1], struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
	struct addrinfo *all;
	char service[8];
	int rc, why;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &all);
	if (rc)
		return err_set(e, TALLY_EIO, "cannot find the address of %s: %s; is that its name, "
			       "and can this machine look it up?  Else give its address", host,
			       gai_strerror(rc));
	rc = TALLY_EIO;
	for (const struct addrinfo *ai = all; ai && rc; ai = ai->ai_next)
		rc = source_of(ai, addr) ? TALLY_EIO : 0;
	why = errno;
	freeaddrinfo(all);
	if (rc)
		return err_set(e, TALLY_EIO, "no route to %s: %s", host, strerror(why));
	return 0;
}

/* Where the scheduler cannot be looked up just now, connecting to it says so. */
int route_check(const char *addr, const char *scheduler, uint16_t default_port, struct err *e)
{
	char host[ADDR_LEN_MAX + 1], there[ADDR_LEN_MAX + 1], source[ADDR_LEN_MAX + 1];
	uint16_t port;

	if (!cause_is_loopback(addr) || !scheduler ||
	    parse_peer(scheduler, default_port, host, &port, NULL) ||
	    route_numeric(host, there, NULL) || cause_is_loopback(there) ||
	    host_has_address(there))
		return 0;
	if (route_source(host, port, source, NULL))
		snprintf(source, sizeof(source), "a NIC's");
	return err_set(e, TALLY_EINVAL, "%s leads each machine to itself, and the scheduler %s is "
		       "on another one; give an address that other machines reach, %s leads there",
		       addr, scheduler, source);
}
