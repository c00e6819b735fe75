// SPDX-License-Identifier: Apache-2.0
/*
 * slab.c - sealed memfds and their mappings.
 *
 * Maker: memfd at its final size, sealed SHRINK and GROW, mapped, then shown to
 * others.  Receiver: asks the kernel for the seals, then for the size, then maps;
 * in that order, because a sealed size cannot change any more.
 *
 * Failures: no huge pages left falls back to small ones; everything else goes
 * back to the caller with nothing kept.
 */
#include "common/shm/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL		0x0008u		/* Linux 6.3 */
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22		/* Linux 5.14 */
#define MADV_POPULATE_WRITE	23
#endif

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC		0x444d4142	/* Linux 5.2 */
#endif

#define HUGE_BYTES_USUAL	(2ull << 20)
#define SEALS_SIZE	(F_SEAL_SHRINK | F_SEAL_GROW)

/* Never executable where the kernel knows how to say so. */
static int memfd_new(const char *name, unsigned int extra)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | extra;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL ? memfd_create(name, flags) : fd;
}

/* The page size of what lies behind fd; *huge when it is hugetlbfs. 0: errno. */
static uint64_t fd_page_bytes(int fd, bool *huge)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return 0;
	*huge = fs.f_type == HUGETLBFS_MAGIC;
	return *huge ? (uint64_t)fs.f_bsize : PAGE_BYTES;
}

/* Asks for transparent huge pages, too: the kernel has them where shmem_enabled says advise. */
static void *map_shared(int fd, uint64_t bytes, bool writable)
{
	void *base = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);

	if (base != MAP_FAILED)
		(void)madvise(base, bytes, MADV_HUGEPAGE);
	return base;
}

/* Fills s from a fresh memfd; on failure errno says why and fd is closed. */
static bool memfd_fill(struct slab *s, int fd, uint64_t bytes)
{
	bool huge = false;
	uint64_t page = fd_page_bytes(fd, &huge);
	void *base;
	int errnum;

	if (!page)
		goto fail;
	bytes = align_up(bytes, page);
	if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, SEALS_SIZE) < 0)
		goto fail;
	base = map_shared(fd, bytes, true);
	if (base == MAP_FAILED)
		goto fail;
	*s = (struct slab){
		.base = base, .bytes = bytes, .fd = fd, .huge = huge, .writable = true,
	};
	return true;
fail:
	errnum = errno;
	close(fd);
	errno = errnum;
	return false;
}

int slab_new(struct slab *s, const char *name, uint64_t bytes, bool try_huge, struct err *e)
{
	int fd;

	if (bytes == 0 || bytes > SLAB_BYTES_MAX)
		return err_set(e, TALLY_EINVAL, "a slab of %llu bytes; 1 to %llu are possible",
			       (unsigned long long)bytes, (unsigned long long)SLAB_BYTES_MAX);
	fd = try_huge ? memfd_new(name, MFD_HUGETLB) : -1;
	if (fd >= 0 && memfd_fill(s, fd, bytes))
		return 0;
	fd = memfd_new(name, 0);
	if (fd >= 0 && memfd_fill(s, fd, bytes))
		return 0;
	return limit_err(e, errno, "slab %s of %llu bytes", name, (unsigned long long)bytes);
}

/* Another descriptor of the same file; -1: errno. */
static int open_again(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

int slab_readonly_fd(const struct slab *s, int *fd, struct err *e)
{
	int ro;

	/* a descriptor can be opened anew through /proc: the mode must not allow writing */
	if (fchmod(s->fd, 0400) < 0)
		return err_set(e, err_from_errno(errno), "fchmod of a slab: %m");
	ro = open_again(s->fd, O_RDONLY);
	if (ro < 0)
		return limit_err(e, errno, "a slab, read-only");
	*fd = ro;
	return 0;
}

/* Huge pages that were punched are nobody's; a mapping has all that it may need kept for it. */
static bool keep_pages(const struct slab *s)
{
	void *p = s->huge ? mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, s->fd, 0) : NULL;

	if (p && p != MAP_FAILED)
		munmap(p, s->bytes);	/* they are kept for the file */
	return p != MAP_FAILED;
}

int slab_seal(struct slab *s, struct err *e)
{
	int want = F_SEAL_SEAL | (s->huge ? F_SEAL_FUTURE_WRITE : 0);

	if ((fcntl(s->fd, F_GET_SEALS) & want) != want && fcntl(s->fd, F_ADD_SEALS, want) < 0)
		return err_set(e, err_from_errno(errno), "sealing a slab: %m");
	if (!keep_pages(s))
		return err_set(e, TALLY_ENOMEM, "huge pages of a slab that were given back: %m");
	return 0;
}

bool slab_is_named(int fd, const char *name)
{
	char path[32], is[300], want[300];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(want, sizeof(want), "/memfd:%s (deleted)", name);
	n = readlink(path, is, sizeof(is) - 1);
	is[MAX(n, 0)] = '\0';
	return !strcmp(is, want);
}

bool slab_is_closed(const struct slab *s)
{
	return fcntl(s->fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE;
}

bool slab_is_solid(const struct slab *s)
{
	return !s->huge || slab_is_closed(s);
}

/* Whether a descriptor from somebody else is a slab of that many bytes, which are rounded up. */
static int check(int fd, uint64_t *bytes, bool *huge, struct err *e)
{
	int seals = fcntl(fd, F_GET_SEALS);
	uint64_t page;
	struct stat st;

	if (seals < 0)
		return err_set(e, TALLY_EPROTO, "a slab's descriptor is no memfd: %m");
	if ((seals & SEALS_SIZE) != SEALS_SIZE)
		return err_set(e, TALLY_EPROTO, "a slab is not sealed against resizing");
	page = fd_page_bytes(fd, huge);
	if (!page || fstat(fd, &st) < 0)
		return err_set(e, err_from_errno(errno), "fstat of a slab: %m");
	if (*bytes == 0 || *bytes > SLAB_BYTES_MAX ||
	    align_up(*bytes, page) > (uint64_t)st.st_size)
		return err_set(e, TALLY_EPROTO, "a slab has %lld bytes, %llu were announced",
			       (long long)st.st_size, (unsigned long long)*bytes);
	*bytes = align_up(*bytes, page);
	return 0;
}

int slab_map(struct slab *s, int fd, uint64_t bytes, bool writable, struct err *e)
{
	bool huge = false;
	void *base;
	int rc = check(fd, &bytes, &huge, e);

	if (rc)
		return rc;
	base = map_shared(fd, bytes, writable);
	if (base == MAP_FAILED)
		return limit_err(e, errno, "mapping a slab of %llu bytes",
				 (unsigned long long)bytes);
	*s = (struct slab){
		.base = base, .bytes = bytes, .fd = fd, .huge = huge, .writable = writable,
	};
	return 0;
}

int slab_map_own(struct slab *s, int fd, uint64_t bytes, struct err *e)
{
	int rw = -1, rc;

	if (!fchmod(fd, 0600)) {
		rw = open_again(fd, O_RDWR);
		(void)fchmod(fd, 0400);
	}
	if (rw < 0)
		return limit_err(e, errno, "a slab, to be written");
	rc = slab_map(s, rw, bytes, true, e);
	if (rc)
		close(rw);
	return rc;
}

bool slab_is_device(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == DMA_BUF_MAGIC;
}

int slab_map_device(struct slab *s, int fd, uint64_t bytes, bool writable, struct err *e)
{
	off_t size;
	void *base;

	if (!slab_is_device(fd))
		return err_set(e, TALLY_EINVAL, "the descriptor is no dma-buf");
	size = lseek(fd, 0, SEEK_END);
	if (!bytes || bytes > SLAB_BYTES_MAX || size < 0 || bytes > (uint64_t)size)
		return err_set(e, TALLY_EINVAL, "a dma-buf has %lld bytes, %llu were announced",
			       (long long)size, (unsigned long long)bytes);
	bytes = MIN(align_up(bytes, PAGE_BYTES), (uint64_t)size);
	base = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return err_set(e, TALLY_EINVAL, "the driver of the dma-buf does not let the CPU "
			       "map it: %m");
	*s = (struct slab){
		.base = base, .bytes = bytes, .fd = fd, .writable = writable, .device = true,
	};
	return 0;
}

int slab_remap(struct slab *s, int fd, struct err *e)
{
	int prot = PROT_READ | (s->writable ? PROT_WRITE : 0), rc;
	uint64_t bytes = s->bytes;
	bool huge = false;

	rc = check(fd, &bytes, &huge, e);
	if (rc)
		return rc;
	if (bytes != s->bytes ||
	    mmap(s->base, s->bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return limit_err(e, errno, "mapping a slab of %llu bytes again",
				 (unsigned long long)s->bytes);
	(void)madvise(s->base, s->bytes, MADV_HUGEPAGE);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = fd;
	s->huge = huge;
	return 0;
}

/* A copy of what is used, in place of the mapping. */
static bool copy_in_place(const struct slab *s, uint64_t used)
{
	void *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return false;
	memcpy(p, s->base, MIN(used, s->bytes));
	if (mremap(p, s->bytes, s->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, s->base) != MAP_FAILED)
		return true;
	munmap(p, s->bytes);
	return false;
}

/* Pages are copied when they are written to; of huge ones there might be none left then. */
static bool copy_on_write(const struct slab *s)
{
	return s->fd >= 0 && !s->huge &&
	       mmap(s->base, s->bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, s->fd, 0) != MAP_FAILED;
}

void slab_unshare(struct slab *s, uint64_t used)
{
	if (!s->base || !s->writable)
		return;
	if (s->device || !(copy_on_write(s) || copy_in_place(s, used)))
		(void)mprotect(s->base, s->bytes, PROT_READ);
	s->writable = false;
	slab_close_fd(s);
}

/*
 * Before Linux 5.14: every page once; adding nothing leaves what is there.  A file's pages are
 * had first by a call that can fail, for a touch that fails ends the process; who may only read
 * it has them from its maker.
 */
static int touch_pages(struct slab *s, uint64_t off, uint64_t len)
{
	int rc = 0;

	while (s->writable && s->fd >= 0 && !s->device &&
	       (rc = fallocate(s->fd, 0, (off_t)off, (off_t)len)) < 0 && errno == EINTR)
		;
	if (rc < 0 && errno != EBADF && errno != EOPNOTSUPP && errno != EPERM)
		return -1;
	for (uint64_t at = off; at < off + len; at += PAGE_BYTES) {
		if (s->writable)
			__atomic_fetch_add(s->base + at, 0, __ATOMIC_RELAXED);
		else
			(void)__atomic_load_n(s->base + at, __ATOMIC_RELAXED);
	}
	return 0;
}

const char *slab_huge_text(const struct slab *s, uint32_t pid, char text[LIMIT_TEXT_MAX])
{
	bool huge = false;
	uint64_t page = s->fd < 0 ? 0 : fd_page_bytes(s->fd, &huge);

	return limit_huge_text(pid, huge ? page : HUGE_BYTES_USUAL, text);
}

/* Pages that were kept for a file can be refused still: by a cgroup, or where they lie. */
static int no_huge(const struct slab *s, uint64_t len, struct err *e)
{
	char limit[LIMIT_TEXT_MAX];

	slab_huge_text(s, 0, limit);
	return err_set(e, TALLY_ENOMEM, "%s (process %d) gets no huge pages for %llu bytes%s%s",
		       program_invocation_short_name, getpid(), (unsigned long long)len,
		       limit[0] ? ": " : "", limit);
}

int slab_prefault(struct slab *s, uint64_t off, uint64_t len, struct err *e)
{
	uint64_t from, to;
	int rc;

	ASSERT(range_ok(off, len, s->bytes));
	from = off / PAGE_BYTES * PAGE_BYTES;
	to = align_up(off + len, PAGE_BYTES);
	if (len == 0)
		return 0;
	do
		rc = madvise(s->base + from, to - from,
			     s->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	while (rc < 0 && errno == EINTR);
	if (rc < 0 && errno == EINVAL)
		rc = touch_pages(s, from, to - from);
	if (rc == 0)
		return 0;
	if (s->huge)
		return no_huge(s, len, e);
	limit_err(e, ENOMEM, "%llu bytes of shared memory", (unsigned long long)len);
	return TALLY_ENOMEM;
}

uint64_t slab_ahead_max(uint64_t all, uint64_t room)
{
	return MIN(MAX(SLAB_AHEAD_BYTES, all / 8), room / 4) / PAGE_BYTES * PAGE_BYTES;
}

void slab_close_fd(struct slab *s)
{
	/* a zeroed slab has fd 0, which is not ours: base tells */
	if (s->base && s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void slab_free(struct slab *s)
{
	if (!s->base)
		return;
	munmap(s->base, s->bytes);
	slab_close_fd(s);
	*s = (struct slab){ .fd = -1 };
}
