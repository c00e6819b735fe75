/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fdguard.h - Unix sockets into which other users can put descriptors.
 *
 * The last close of a descriptor may take as long as its maker likes: a socket that lingers, a
 * file of a FUSE server that does not answer, which not even SIGKILL ends.  It is the thread that
 * reads, closes or drops what a stranger has sent (SCM_RIGHTS) that waits, also inside recvmsg(),
 * at the close of a socket with unread messages, and at the end of a process.
 *
 * So a process of its own holds every such socket beside the daemon, whose close is never the last
 * one, and whose reads look first whether descriptors would come (fdguard_read()).  Where they do,
 * a child of the guard takes them in, and hands on what cannot hold up anybody: memfds that are
 * sealed like slabs, and dma-bufs where the daemon takes them.  The last reference to anything
 * else is dropped by children of the guard that nobody waits for, other ones for each user.
 *
 * Owner: the daemon's main thread.  It is started before the first thread, and ends with its
 * daemon, however that ends.
 */
#ifndef TALLY_RT_FDGUARD_H
#define TALLY_RT_FDGUARD_H

#include <sys/types.h>

#include "common/base/err.h"

struct fdguard;

int fdguard_start(struct fdguard **g, bool devices, struct err *e);
void fdguard_stop(struct fdguard *g);		/* NULL is fine */
int fdguard_fd(const struct fdguard *g);	/* readable: the guard has ended */

/* Before anything else is done with a socket that was accepted or listens.  0: there is no guard
 * any more; else the number for the calls below. */
uint64_t fdguard_keep(struct fdguard *g, int sock);
/* Shuts down and closes the daemon's end, then the guard's. */
void fdguard_close(struct fdguard *g, uint64_t id, int sock);

/* Of a kept socket, as recv() without waiting: bytes, 0 at the end, or -errno.  -EREMOTE:
 * descriptors come with what is next, which was not read. */
ssize_t fdguard_read(int sock, void *buf, size_t max);
/* What is next, with its descriptors: a SEQPACKET socket, the caller's, from which each read takes
 * up to FDGUARD_CHUNK bytes and their descriptors.  It ends where no descriptors come next, and at
 * once where one came that is not taken.  -1: no guard, or no descriptors left. */
#define FDGUARD_CHUNK 4096u
int fdguard_fetch(struct fdguard *g, uint64_t id);

#endif
