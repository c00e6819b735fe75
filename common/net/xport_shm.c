// SPDX-License-Identifier: Apache-2.0
/*
 * xport_shm.c - shared memory: headers over a Unix stream socket, data in place.
 *
 * The same 64-byte frames as over TCP go through the same stream engine, but a
 * payload never follows: a frame names a slab and an offset, and each side has
 * mapped the other's slabs.  A slab is shown by a SLAB frame with the memfd as
 * SCM_RIGHTS.  The kernel hands a descriptor over with the first byte of the
 * sendmsg() that carried it, and ends a recvmsg() behind the bytes of the first
 * sendmsg() that had one.  So the sender starts a sendmsg() with each SLAB frame
 * and the receiver needs room for one descriptor only: the one of the SLAB frame
 * it is reading or about to read.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/net/xport_ep.h"
#include "common/shm/limit.h"

union fd_room {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static int shm_open_link(const struct xport_addr *a, int *out, int *sys_err, struct err *e)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t len = strnlen(a->remote, sizeof(a->remote));
	int fd;

	static_assert(ADDR_LEN_MAX < sizeof(sa.sun_path), "any path fits");
	if (len == 0 || len > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "a socket path has 1 to %u characters",
			       ADDR_LEN_MAX);
	memcpy(sa.sun_path, a->remote, len);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return limit_err(e, errno, "socket to %s", a->remote);
	*sys_err = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ? errno : 0;
	*out = fd;
	return 0;
}

static void shm_tune(int fd)
{
	(void)fd;
}

static void attach_fd(struct msghdr *m, union fd_room *room, int fd)
{
	struct cmsghdr *c;

	m->msg_control = room->bytes;
	m->msg_controllen = sizeof(room->bytes);
	c = CMSG_FIRSTHDR(m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
}

static ssize_t shm_send(int fd, struct iovec *iov, int n, int pass_fd)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	union fd_room room = { .bytes = { 0 } };

	if (pass_fd >= 0)
		attach_fd(&m, &room, pass_fd);
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Room for one descriptor: the kernel drops a hostile peer's further ones. */
static ssize_t shm_recv(int fd, struct iovec *iov, int n, int *got_fd)
{
	union fd_room room;
	struct msghdr m = {
		.msg_iov = iov,
		.msg_iovlen = (size_t)n,
		.msg_control = room.bytes,
		.msg_controllen = CMSG_LEN(sizeof(int)),
	};
	ssize_t got = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = got < 0 ? NULL : CMSG_FIRSTHDR(&m);

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(got_fd, CMSG_DATA(c), sizeof(*got_fd));
	return got;
}

const struct xport_ops xport_shm_ops = {
	.name = "shm",
	.by_reference = true,
	.open = shm_open_link,
	.tune = shm_tune,
	.event = stream_event,
	.flush = stream_flush,
	.send = shm_send,
	.recv = shm_recv,
};
