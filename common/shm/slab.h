/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.h - memory that two processes share: sealed memfds and their mappings.
 *
 * The maker (always the agent, or a server for its own) creates the memfd at
 * its final size, seals it (SHRINK, GROW) before anybody else sees it, so that
 * no later truncation can turn a read into SIGBUS.  Huge pages (hugetlb) are
 * taken when the kernel has enough free ones; such a slab must be sealed
 * FUTURE_WRITE once everybody has mapped it (slab_seal), because a punched
 * hole there kills the reader.  Whoever receives a descriptor checks size and
 * seals (slab_map) before touching a byte.
 *
 * Memory of a device (a GPU) comes as a dma-buf: its size never changes, but what its driver
 * does when the device fails is its own (SIGBUS, say), so only who was told to trusts it.
 *
 * Pages are touched (and so charged) by slab_prefault(), not before: a large
 * slab may be created and filled part by part.
 */
#ifndef TALLY_SHM_SLAB_H
#define TALLY_SHM_SLAB_H

#include "common/base/err.h"
#include "common/base/pagemap.h"
#include "common/shm/limit.h"

struct slab {
	uint8_t *base;		/* mapping, owned; NULL: none */
	uint64_t bytes;
	int fd;			/* owned; -1: none */
	bool huge;
	bool writable;
	bool device;		/* a dma-buf; its pages may be no memory of this machine */
};

/* bytes is rounded up to pages (or huge pages). EINVAL (0 or too many), EQUOTA,
 * ENOMEM. name shows in /proc. */
int slab_new(struct slab *s, const char *name, uint64_t bytes, bool try_huge, struct err *e);

/* Another descriptor of s, read-only, mode 0400; the caller closes it. */
int slab_readonly_fd(const struct slab *s, int *fd, struct err *e);

/*
 * Seals a slab, so that what others have mapped stays as it is: no more seals, and of huge pages
 * no writers that come later, either (F_SEAL_FUTURE_WRITE). Harmless when it has the seals.
 * ENOMEM: huge pages that were punched before cannot be had again, and nobody may touch them.
 */
int slab_seal(struct slab *s, struct err *e);

/* Whether its maker gave a memfd that name (slab_new()); nobody else can give it another. */
bool slab_is_named(int fd, const char *name);
/* No hole can be punched that kills a reader. */
bool slab_is_solid(const struct slab *s);
/* Whether a process that maps the slab from here on can only read it. */
bool slab_is_closed(const struct slab *s);

/*
 * Maps a descriptor from somebody else.  Checks: a memfd, sealed SHRINK and
 * GROW, at least `bytes` long.  On success s owns fd; on error the caller does.
 */
int slab_map(struct slab *s, int fd, uint64_t bytes, bool writable, struct err *e);
/* The same for one that a process of our user has made, and that was given on read-only: a
 * writable mapping.  fd stays the caller's. */
int slab_map_own(struct slab *s, int fd, uint64_t bytes, struct err *e);

/*
 * The same for a dma-buf, whose driver must let the CPU map: EINVAL else.  Its bytes may
 * be slow to read, and what the device wrote is seen once its driver has been told so.
 */
int slab_map_device(struct slab *s, int fd, uint64_t bytes, bool writable, struct err *e);
bool slab_is_device(int fd);

/* The same in place of what s has, at its address; on success fd is its own, the first closed. */
int slab_remap(struct slab *s, int fd, struct err *e);

/*
 * In a child after fork(): s is memory of this process alone, at the same place, and what it
 * writes there nobody else sees.  Values: those of the fork, up to `used` at least; small pages
 * that the child has not written may show what others write later.  The descriptor is closed.
 * Where there is no memory for it, or it is a device's, it can be read only.  Again: harmless.
 */
void slab_unshare(struct slab *s, uint64_t used);

/*
 * Gives [off, off + len) its pages, which are charged to this process's cgroup unless they were
 * there: to be called before the first touch, which ends the process where a page is refused.
 * ENOMEM, which names the limit.
 */
int slab_prefault(struct slab *s, uint64_t off, uint64_t len, struct err *e);
/* limit_huge_text() for pages of that slab's size. */
const char *slab_huge_text(const struct slab *s, uint32_t pid, char text[LIMIT_TEXT_MAX]);
void slab_close_fd(struct slab *s);			/* its mapping stays */
void slab_free(struct slab *s);				/* both harmless on a zeroed/freed slab */

/*
 * Largest slab to make ahead of need. Memory that NICs must know is allocated as a whole and in
 * few slabs, so slabs come in doubling sizes, wanted or not; but not beyond this: `all` bytes
 * are in those that the job has, and `room` are left to the daemon.
 */
uint64_t slab_ahead_max(uint64_t all, uint64_t room);

/* Descriptors over a Unix socket (SOCK_SEQPACKET or stream): one message, at most
 * `nfds` of them, all CLOEXEC; extra ones are closed. */
#define FDS_PER_MSG_MAX 4

/* Returns the bytes sent, TALLY_EAGAIN, or an error.  The descriptors go with the
 * first byte: after a short send the rest follows without them.  len >= 1. */
int fdmsg_send(int sock, const void *buf, size_t len, const int *fds, uint32_t nfds);
/* Returns bytes, 0 at end, TALLY_EAGAIN, or an error; *nfds in: room, out: got (0
 * but for a positive return). */
int fdmsg_recv(int sock, void *buf, size_t len, int *fds, uint32_t *nfds);

#endif
