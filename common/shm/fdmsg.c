// SPDX-License-Identifier: Apache-2.0
/*
 * fdmsg.c - descriptors over a Unix socket (SCM_RIGHTS).
 *
 * The receiver owns what arrives, whatever arrives: descriptors beyond the
 * caller's room are closed at once, so that nobody can fill our table.  The
 * kernel pads the control buffer, so one descriptor more than asked for may
 * come; that is why the count is taken from what came, not from the room.
 */
#include "common/shm/slab.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union fd_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FDS_PER_MSG_MAX * sizeof(int))];
};

int fdmsg_send(int sock, const void *buf, size_t len, const int *fds, uint32_t nfds)
{
	union fd_control ctl = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = MIN(len, INT_MAX) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t n;

	ASSERT(len >= 1 && nfds <= FDS_PER_MSG_MAX);
	if (nfds) {
		mh.msg_control = &ctl;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	do
		n = sendmsg(sock, &mh, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? err_from_errno(errno) : (int)n;
}

/* Takes descriptors out of one control message; closes what has no room. */
static void take_fds(struct cmsghdr *c, int *fds, uint32_t room, uint32_t *got)
{
	size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	int fd;

	for (size_t i = 0; i < count; i++) {
		memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
		if (*got < room)
			fds[(*got)++] = fd;
		else
			close(fd);
	}
}

int fdmsg_recv(int sock, void *buf, size_t len, int *fds, uint32_t *nfds)
{
	union fd_control ctl;
	struct iovec iov = { .iov_base = buf, .iov_len = MIN(len, INT_MAX) };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &ctl, .msg_controllen = sizeof(ctl),
	};
	uint32_t room = *nfds;
	ssize_t n;

	*nfds = 0;
	do
		n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_from_errno(errno);
	/* at the end of a stream there is nothing to own; a bare message may carry some */
	if (n == 0)
		room = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			take_fds(c, fds, room, nfds);
	return (int)n;
}
