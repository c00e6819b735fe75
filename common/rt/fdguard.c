// SPDX-License-Identifier: Apache-2.0
/*
 * The daemon's half of the guard, and what both do with a socket.
 *
 * Looking ahead (MSG_PEEK) without room for descriptors shows whether some would come, and drops
 * only references that are not the last.  Urgent bytes are read in line: out of line the kernel
 * would drop one with its descriptors where a read steps over it.
 */
#include "common/rt/fdguard.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/rt/fdguard_int.h"
#include "common/shm/limit.h"

#define GUARD_WAIT_MS	1000	/* it never waits for anybody, so it reads at once */

struct fdguard {
	int ctl;
	uint64_t ids;
};

int fdguard_start(struct fdguard **out, bool devices, struct err *e)
{
	struct fdguard *g = calloc(1, sizeof(*g));
	int sv[2];
	pid_t pid;

	if (!g)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv)) {
		free(g);
		return limit_err(e, errno, "cannot make a socket pair");
	}
	pid = fork();
	if (pid == 0) {
		close(sv[0]);
		fdguard_main(sv[1], devices);
	}
	close(sv[1]);
	if (pid < 0) {
		limit_err(e, errno, "cannot start the process that guards descriptors");
		close(sv[0]);
		free(g);
		return e->code;
	}
	g->ctl = sv[0];
	*out = g;
	return 0;
}

void fdguard_stop(struct fdguard *g)
{
	if (!g)
		return;
	close(g->ctl);
	free(g);
}

int fdguard_fd(const struct fdguard *g)
{
	return g->ctl;
}

static bool order(struct fdguard *g, enum fdguard_op op, uint64_t id, int fd)
{
	struct pollfd p = { .fd = g->ctl, .events = POLLOUT };
	const struct fdguard_order o = { .id = id, .op = op };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)&o, .iov_len = sizeof(o) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	union fdguard_room room = { .bytes = { 0 } };
	ssize_t n;

	if (fd >= 0)
		fdguard_attach(&m, &room, &fd, 1);
	do
		n = sendmsg(g->ctl, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && (errno == EINTR || (errno == EAGAIN && poll(&p, 1, GUARD_WAIT_MS) > 0)));
	return n == sizeof(o);
}

uint64_t fdguard_keep(struct fdguard *g, int sock)
{
	static const int one = 1;

	(void)setsockopt(sock, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	return order(g, FDGUARD_KEEP, ++g->ids, sock) ? g->ids : 0;
}

void fdguard_close(struct fdguard *g, uint64_t id, int sock)
{
	(void)shutdown(sock, SHUT_RDWR);
	close(sock);
	(void)order(g, FDGUARD_DROP, id, -1);
}

int fdguard_fetch(struct fdguard *g, uint64_t id)
{
	int sv[2];
	bool ok;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -1;
	ok = order(g, FDGUARD_FETCH, id, sv[1]);
	close(sv[1]);
	if (ok)
		return sv[0];
	close(sv[0]);
	return -1;
}

