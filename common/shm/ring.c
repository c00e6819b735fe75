// SPDX-License-Identifier: Apache-2.0
/*
 * ring.c - two single-producer single-consumer rings over hostile memory.
 *
 * Happy path: the producer writes the entry's words at its own index, then
 * publishes index + 1; the consumer sees the index move, copies the words out,
 * then publishes its own.  Indices are free-running u32; an entry's place is
 * index mod RING_ENTRIES, so every place is valid whatever the index is.
 *
 * Entries are moved word by word with relaxed atomics: each shared word is read
 * exactly once, so what is validated later is what was copied, and a peer that
 * scribbles while we read is a torn entry, not undefined behaviour.
 *
 * When the other side lies about its index: a consumer reports EPROTO (more
 * than RING_ENTRIES entries cannot be there), a producer takes the ring for
 * full until the index is believable again.  Both harm the liar only.
 */
#include "common/shm/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define RING_LINE	64u
#define SUB_WORDS	(sizeof(struct ring_sub) / sizeof(uint64_t))
#define CPL_WORDS	(sizeof(struct ring_cpl) / sizeof(uint64_t))
#define STATUS_TRIES	1000u	/* a writer that never finishes is dead */

/* One direction's indices; each word has a cache line and one writer but `sleeping`. */
struct ring_dir {
	_Alignas(RING_LINE) _Atomic uint32_t tail;	/* the producer's: entries ever posted */
	_Alignas(RING_LINE) _Atomic uint32_t head;	/* the consumer's: entries ever taken */
	_Alignas(RING_LINE) _Atomic uint32_t sleeping;	/* consumer sets, producer clears */
};

struct ring_shared {
	struct ring_dir sub;
	struct ring_dir cpl;
	_Alignas(PAGE_BYTES) struct ring_status status;
	_Alignas(PAGE_BYTES) _Atomic uint64_t sub_words[RING_ENTRIES][SUB_WORDS];
	_Alignas(PAGE_BYTES) _Atomic uint64_t cpl_words[RING_ENTRIES][CPL_WORDS];
};

_Static_assert(sizeof(struct ring_shared) % PAGE_BYTES == 0, "whole pages");
_Static_assert(sizeof(struct ring_status) <= PAGE_BYTES, "the status area is one page");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
	       "atomics work between processes");

size_t ring_shared_bytes(void)
{
	return sizeof(struct ring_shared);
}

/* ---- bells ---- */

/* Both ends are the same counter. */
int ring_sub_bell_new(int ends[2])
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int other = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0), errnum = errno;

	if (other < 0) {
		if (fd >= 0)
			close(fd);
		return err_from_errno(errnum);
	}
	ends[0] = fd;
	ends[1] = other;
	return 0;
}

/*
 * The one place where common/shm makes sockets (and fdmsg.c passes descriptors over one).
 * Nothing can be sent back to the end that rings.
 */
int ring_cpl_bell_new(int ends[2])
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv) < 0)
		return err_from_errno(errno);
	(void)shutdown(sv[0], SHUT_RD);
	ends[0] = sv[0];
	ends[1] = sv[1];
	return 0;
}

/* An anonymous inode has no type; sockets, pipes and files have one. */
bool ring_sub_bell_ok(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && !(st.st_mode & S_IFMT);
}

bool ring_cpl_bell_ok(int fd)
{
	int domain, type;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX)
		return false;
	len = sizeof(type);
	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
}

/* By the process.  Full means it rings already. */
static void sub_bell_ring(int fd)
{
	static const uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* By the agent.  A kernel that cannot read so leaves it rung: edges are waited for. */
static int sub_bell_clear(int fd)
{
	uint64_t rung;
	struct iovec iov = { .iov_base = &rung, .iov_len = sizeof(rung) };
	ssize_t n = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);

	return n == sizeof(rung) || (n < 0 && (errno == EAGAIN || errno == EINTR ||
					       errno == EOPNOTSUPP)) ? 0 : TALLY_EPROTO;
}

/* By the agent.  Full means it rings already; closed means nobody listens: both are fine. */
static void cpl_bell_ring(int fd)
{
	while (send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

/* By the process.  One read: an agent that rings without pause must not keep us here. */
static int cpl_bell_clear(int fd)
{
	char sink[256];
	ssize_t n;

	do
		n = recv(fd, sink, sizeof(sink), MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n > 0 || (n < 0 && errno == EAGAIN) ? 0 : TALLY_ESHUTDOWN;
}

/* ---- one direction ---- */

/* seq_cst pairs with dir_sleep(): either we see the flag or it sees the tail. */
static void dir_publish(struct ring_dir *d, uint32_t tail, void (*ring)(int fd), int bell)
{
	atomic_store(&d->tail, tail);
	if (atomic_load(&d->sleeping) && atomic_exchange(&d->sleeping, 0))
		ring(bell);
}

/* True when the producer at pos has room; *seen is the last believed head. */
static bool dir_has_room(struct ring_dir *d, uint32_t pos, uint32_t *seen)
{
	uint32_t head;

	if (pos - *seen < RING_ENTRIES)
		return true;
	head = atomic_load_explicit(&d->head, memory_order_acquire);
	if (pos - head > RING_ENTRIES)
		return false;
	*seen = head;
	return pos - head < RING_ENTRIES;
}

/* 0: an entry is at pos; *seen is the last believed tail. */
static int dir_has_entry(struct ring_dir *d, uint32_t pos, uint32_t *seen)
{
	uint32_t tail;

	if (pos != *seen)
		return 0;
	tail = atomic_load_explicit(&d->tail, memory_order_acquire);
	if (tail - pos > RING_ENTRIES)
		return TALLY_EPROTO;
	*seen = tail;
	return tail == pos ? TALLY_EAGAIN : 0;
}

/* True: nothing came since the flag was set, so whoever comes will ring. */
static bool dir_sleep(struct ring_dir *d, uint32_t pos)
{
	atomic_store(&d->sleeping, 1);
	if (atomic_load(&d->tail) == pos)
		return true;
	atomic_store(&d->sleeping, 0);
	return false;
}

static void words_put(_Atomic uint64_t *to, const void *from, size_t words)
{
	uint64_t w;

	for (size_t i = 0; i < words; i++) {
		memcpy(&w, (const char *)from + i * sizeof(w), sizeof(w));
		atomic_store_explicit(&to[i], w, memory_order_relaxed);
	}
}

static void words_get(void *to, _Atomic uint64_t *from, size_t words)
{
	uint64_t w;

	for (size_t i = 0; i < words; i++) {
		w = atomic_load_explicit(&from[i], memory_order_relaxed);
		memcpy((char *)to + i * sizeof(w), &w, sizeof(w));
	}
}

/* ---- life ---- */

void ring_format(void *mem)
{
	memset(mem, 0, sizeof(struct ring_shared));
}

void ring_end_init(struct ring_end *r, void *mem, int sub_fd, int cpl_fd)
{
	*r = (struct ring_end){ .mem = mem, .sub_fd = sub_fd, .cpl_fd = cpl_fd };
}

/* ---- the process's side ---- */

int ring_sub_post(struct ring_end *r, const struct ring_sub *s)
{
	struct ring_shared *m = r->mem;

	if (!dir_has_room(&m->sub, r->sub_pos, &r->sub_seen))
		return TALLY_EAGAIN;
	words_put(m->sub_words[r->sub_pos % RING_ENTRIES], s, SUB_WORDS);
	dir_publish(&m->sub, ++r->sub_pos, sub_bell_ring, r->sub_fd);
	return 0;
}

int ring_cpl_take(struct ring_end *r, struct ring_cpl *c)
{
	struct ring_shared *m = r->mem;
	int rc = dir_has_entry(&m->cpl, r->cpl_pos, &r->cpl_seen);

	if (rc)
		return rc;
	words_get(c, m->cpl_words[r->cpl_pos % RING_ENTRIES], CPL_WORDS);
	atomic_store_explicit(&m->cpl.head, ++r->cpl_pos, memory_order_release);
	return 0;
}

bool ring_cpl_sleep(struct ring_end *r)
{
	if (!dir_sleep(&r->mem->cpl, r->cpl_pos))
		return false;
	if (!atomic_load(&r->mem->status.job_code))
		return true;
	atomic_store(&r->mem->cpl.sleeping, 0);
	return false;
}

int ring_cpl_wake(struct ring_end *r)
{
	atomic_store(&r->mem->cpl.sleeping, 0);
	return cpl_bell_clear(r->cpl_fd);
}

/* ---- the agent's side ---- */

int ring_sub_take(struct ring_end *r, struct ring_sub *s)
{
	struct ring_shared *m = r->mem;
	int rc = dir_has_entry(&m->sub, r->sub_pos, &r->sub_seen);

	if (rc)
		return rc;
	words_get(s, m->sub_words[r->sub_pos % RING_ENTRIES], SUB_WORDS);
	atomic_store_explicit(&m->sub.head, ++r->sub_pos, memory_order_release);
	return 0;
}

bool ring_sub_sleep(struct ring_end *r)
{
	return dir_sleep(&r->mem->sub, r->sub_pos);
}

int ring_sub_wake(struct ring_end *r)
{
	atomic_store(&r->mem->sub.sleeping, 0);
	return sub_bell_clear(r->sub_fd);
}

int ring_cpl_post(struct ring_end *r, const struct ring_cpl *c)
{
	struct ring_shared *m = r->mem;

	if (!dir_has_room(&m->cpl, r->cpl_pos, &r->cpl_seen)) {
		ring_cpl_publish(r);	/* so that there will be some */
		return TALLY_EAGAIN;
	}
	words_put(m->cpl_words[r->cpl_pos++ % RING_ENTRIES], c, CPL_WORDS);
	return 0;
}

void ring_cpl_publish(struct ring_end *r)
{
	if (r->cpl_told == r->cpl_pos)
		return;
	r->cpl_told = r->cpl_pos;
	dir_publish(&r->mem->cpl, r->cpl_pos, cpl_bell_ring, r->cpl_fd);
}

/* ---- the status area: a sequence lock, one writer ---- */

/*
 * Bytes are stored with release and loaded with acquire instead of standing
 * between fences: as cheap where it matters, and checkable by ThreadSanitizer.
 * A reader that saw one new byte therefore sees the odd sequence number too.
 */
static void text_put(char *to, const char *from)
{
	size_t n = strnlen(from, ERR_TEXT_MAX);

	for (size_t i = 0; i < n; i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELEASE);
	__atomic_store_n(&to[n], '\0', __ATOMIC_RELEASE);
}

static void text_get(char *to, const char *from)
{
	size_t i = 0;

	for (; i < ERR_TEXT_MAX; i++) {
		to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
		if (!to[i])
			return;
	}
	to[i] = '\0';
}

void ring_status_set(struct ring_end *r, int job_code, const char *job_text,
		     const char *stall_text)
{
	struct ring_status *st = &r->mem->status;
	struct ring_dir *cpl = &r->mem->cpl;
	uint32_t odd = atomic_load_explicit(&st->seq, memory_order_relaxed) | 1;

	ring_cpl_publish(r);		/* what was done before the job ended is done */
	atomic_store_explicit(&st->seq, odd, memory_order_relaxed);
	if (job_text)
		text_put(st->job_text, job_text);
	if (stall_text)
		text_put(st->stall_text, stall_text);
	/* after the text, so that whoever sees the code finds it; seq_cst as in dir_publish */
	atomic_store(&st->job_code, job_code);
	atomic_store_explicit(&st->seq, odd + 1, memory_order_release);
	if (job_code && atomic_load(&cpl->sleeping) && atomic_exchange(&cpl->sleeping, 0))
		cpl_bell_ring(r->cpl_fd);
}

void ring_status_get(const struct ring_end *r, int *job_code, char *job_text, char *stall_text)
{
	struct ring_status *st = &r->mem->status;
	uint32_t seq;

	for (uint32_t tries = 0; tries < STATUS_TRIES; tries++) {
		seq = atomic_load_explicit(&st->seq, memory_order_acquire);
		if (job_code)
			*job_code = atomic_load_explicit(&st->job_code, memory_order_acquire);
		if (job_text)
			text_get(job_text, st->job_text);
		if (stall_text)
			text_get(stall_text, st->stall_text);
		if (!(seq & 1) &&
		    atomic_load_explicit(&st->seq, memory_order_relaxed) == seq)
			return;
		if (!job_text && !stall_text)
			return;		/* one word cannot be torn */
		sched_yield();		/* the writer may have been stopped half-way */
	}
	if (job_text)
		*job_text = '\0';
	if (stall_text)
		*stall_text = '\0';
}

void ring_lost_set(struct ring_end *r, uint32_t rank, bool lost)
{
	struct ring_status *st = &r->mem->status;
	uint64_t bit = UINT64_C(1) << rank % 64;

	if (lost && !(atomic_fetch_or(&st->lost[rank / 64], bit) & bit))
		atomic_fetch_add(&st->nlost, 1);
	if (!lost && atomic_fetch_and(&st->lost[rank / 64], ~bit) & bit)
		atomic_fetch_sub(&st->nlost, 1);
}

void ring_grown_set(struct ring_end *r, uint32_t grown)
{
	atomic_store(&r->mem->status.grown, grown);
}

uint32_t ring_grown(const struct ring_end *r)
{
	return atomic_load(&r->mem->status.grown);
}

uint32_t ring_lost_count(const struct ring_end *r)
{
	return atomic_load(&r->mem->status.nlost);
}

bool ring_is_lost(const struct ring_end *r, uint32_t rank)
{
	return atomic_load(&r->mem->status.lost[rank / 64]) >> rank % 64 & 1;
}
