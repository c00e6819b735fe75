/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_fds.h - descriptors for targets that get some, and whether they kept one. */
#ifndef TALLY_TESTS_FUZZ_FDS_H
#define TALLY_TESTS_FUZZ_FDS_H

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/base.h"
#include "common/shm/slab.h"

#define SENT_FDS_MAX	(2 * FDS_PER_MSG_MAX)	/* more than anybody may take */

#define WATCHED_FDS	64

/* After as before, when none was kept. */
static inline uint32_t open_fds(void)
{
	uint32_t n = 0;

	for (int fd = 0; fd < WATCHED_FDS; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Whoever sends need not keep to fdmsg_send().  False: there is no room, or nobody reads. */
static inline bool send_with_fds(int sock, const uint8_t *data, size_t len, uint32_t nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(SENT_FDS_MAX * sizeof(int))];
	} ctl = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[SENT_FDS_MAX], null = nfds ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
	struct cmsghdr *c;
	ssize_t n;

	ASSERT(nfds <= SENT_FDS_MAX && (null >= 0 || !nfds));
	for (uint32_t i = 0; i < nfds; i++)
		fds[i] = null;
	if (nfds) {
		mh.msg_control = &ctl;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	n = sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (nfds)
		close(null);
	return n == (ssize_t)len;
}

#endif
