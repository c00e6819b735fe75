/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fdguard_int.h - what the daemon and its guard process say to each other.
 *
 * One order is one packet: KEEP with a socket, DROP, and FETCH with the end of a packet socket to
 * which a child writes.  The end of the connection is the end of the daemon.
 */
#ifndef TALLY_RT_FDGUARD_INT_H
#define TALLY_RT_FDGUARD_INT_H

#include <string.h>
#include <sys/socket.h>

#include "common/rt/fdguard.h"

#define FDGUARD_FDS	16u		/* with one message; STREAM_FDS_MAX */

enum fdguard_op { FDGUARD_KEEP, FDGUARD_DROP, FDGUARD_FETCH };

struct fdguard_order {
	uint64_t id;
	uint32_t op, pad;
};

union fdguard_room {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FDGUARD_FDS * sizeof(int))];
};

static inline void fdguard_attach(struct msghdr *m, union fdguard_room *room, const int *fds,
				  uint32_t n)
{
	struct cmsghdr *c;

	m->msg_control = room->bytes;
	m->msg_controllen = CMSG_SPACE(n * sizeof(int));
	c = CMSG_FIRSTHDR(m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
}

/* The guard process. */
_Noreturn void fdguard_main(int ctl, bool devices);

#endif
