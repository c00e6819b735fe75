// SPDX-License-Identifier: Apache-2.0
/*
 * xport_tcp.c - TCP under the stream engine.
 *
 * A link binds to the address of its rail, so that traffic leaves by that card;
 * the kernel picks the port when it connects, which lets many links share the
 * port range.  Options, and why:
 *   NODELAY		a header on its own must not wait for an acknowledgement.
 *   NOTSENT_LOWAT	bytes that the card cannot take yet stay in our queue, where
 *			a more urgent chunk can still overtake them.
 *   CONGESTION		by loss, whatever the machine's default is.  The sender bounds
 *			what is under way itself, and who gets how much changes within
 *			milliseconds; an algorithm that paces a link by what it measured
 *			some round trips ago (bbr) holds back the wrong ones meanwhile.
 *   KEEPALIVE 1/1/3, USER_TIMEOUT	a machine that vanished is noticed within the
 *			lease, whether we were sending or not.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/xport_ep.h"
#include "common/shm/limit.h"

#define NOTSENT_BYTES	(256 << 10)
#define SILENCE_MS	3000	/* unacknowledged for this long: broken */

static int numeric_addr(const char *host, uint16_t port, struct sockaddr_storage *sa,
			socklen_t *len, struct err *e)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
	};
	struct addrinfo *ai;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &ai);
	if (rc)
		return err_set(e, TALLY_EINVAL, "address %s: %s", host, gai_strerror(rc));
	memcpy(sa, ai->ai_addr, ai->ai_addrlen);
	*len = ai->ai_addrlen;
	freeaddrinfo(ai);
	return 0;
}

/* Returns an errno value. */
static int bind_rail(int fd, const struct sockaddr_storage *sa, socklen_t len)
{
	int on = 1;

	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	return bind(fd, (const struct sockaddr *)sa, len) < 0 ? errno : 0;
}

static int start_connect(int fd, const struct sockaddr_storage *sa, socklen_t len)
{
	return connect(fd, (const struct sockaddr *)sa, len) < 0 ? errno : 0;
}

static int tcp_open(const struct xport_addr *a, int *out, int *sys_err, struct err *e)
{
	struct sockaddr_storage to, from;
	socklen_t to_len, from_len = 0;
	int fd, rc = numeric_addr(a->remote, a->port, &to, &to_len, e);

	if (rc == 0 && a->local[0])
		rc = numeric_addr(a->local, 0, &from, &from_len, e);
	if (rc < 0)
		return rc;
	if (from_len && from.ss_family != to.ss_family)
		return err_set(e, TALLY_EINVAL, "%s cannot reach %s: one is IPv4, one IPv6",
			       a->local, a->remote);
	fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return limit_err(e, errno, "socket to %s", a->remote);
	*sys_err = from_len ? bind_rail(fd, &from, from_len) : 0;
	if (*sys_err == 0)
		*sys_err = start_connect(fd, &to, to_len);
	*out = fd;
	return 0;
}

/* Not every process may choose any; "reno" all may. */
static void by_loss(int fd)
{
	static const char *const names[] = { "cubic", "reno" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, names[i], strlen(names[i])))
			return;
}

static void tcp_tune(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_BYTES },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 1 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 1 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS },
	};

	by_loss(fd);
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			   sizeof(options[i].value));
}

static ssize_t tcp_send(int fd, struct iovec *iov, int n, int pass_fd)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };

	ASSERT(pass_fd < 0);
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t tcp_recv(int fd, struct iovec *iov, int n, int *got_fd)
{
	(void)got_fd;
	return readv(fd, iov, n);
}

const struct xport_ops xport_tcp_ops = {
	.name = "tcp",
	.by_reference = false,
	.open = tcp_open,
	.tune = tcp_tune,
	.event = stream_event,
	.flush = stream_flush,
	.send = tcp_send,
	.recv = tcp_recv,
};
