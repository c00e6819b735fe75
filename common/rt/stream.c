// SPDX-License-Identifier: Apache-2.0
/*
 * A byte stream over TCP or a Unix socket.
 *
 * Connecting: resolve if the host is a name, then try address after address, each but
 * the last one for NEXT_ADDR_MS; open: read when readable (a bounded number of reads
 * per turn, so that one busy peer does not starve the others), write at once what the
 * socket takes and queue the rest; finishing: only the queue is still sent; closed: the
 * last word goes out from a deferred task, never inside a call of the owner's.
 *
 * A failed write does not end the stream by itself: the peer may have said why
 * it closed, and that lies unread in our receive buffer.  Writing is over then,
 * and reading goes on to the end, which is near.  Likewise what the peer sent
 * last is read and thrown away before close(): closing a TCP socket with unread
 * bytes would reset the connection and could take our own last message with it.
 * An end that does not come is not waited for long.  Where it is the kernel that
 * lacks something, what could not be written is written later.
 *
 * Who asks and does not take the answers is not heard meanwhile (stream_set_room()),
 * so that what waits for it is bounded; it is cut when it has taken nothing for
 * CTL_STALL_MS and has asked more.  Whoever has asked nothing more may take its time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/rt/fdguard.h"
#include "common/rt/loop_int.h"
#include "common/shm/limit.h"

#define READS_PER_TURN		16
#define SMALL_READ_BYTES	4096u	/* may be some hundred messages, each with an answer */
#define DRAIN_READS		16
#define WRITE_AGAIN_MS		50u	/* after an error that passes */

enum stream_state { RESOLVING, CONNECTING, OPEN, FINISHING, CLOSED };

struct piece {				/* waits to be sent */
	struct list link;
	size_t len, off;
	uint32_t nfds;			/* owned, not yet sent */
	int fds[STREAM_FDS_MAX];
	uint8_t data[];
};

struct stream {
	struct loop *l;
	struct stream_cb cb;
	void *ctx;
	enum stream_state state;
	int fd;
	bool is_unix, fetched_any;
	uint64_t kept;			/* the guard holds the socket, too; 0: it does not */
	int fetched;			/* -1, or read instead of fd: the guard takes in */
	struct loop_watch *fetch_watch;
	bool write_dead;		/* why says what happened; reading goes on */
	struct err why;
	int errnum;			/* of why; 0: none */
	struct loop_watch *watch;
	struct loop_timer *next;	/* runs while an address is tried that is not the last */
	struct loop_timer *finish;
	struct loop_timer *again;	/* runs: nothing is written until it fires */
	mono_t again_until;		/* errors that pass have passed by then */
	struct loop_timer *stall;	/* runs while nothing is read for want of room */
	uint64_t taken, taken_before;	/* bytes by the peer's socket; as the timer last fired */
	struct resolve *resolve;
	struct loop_task last_word;
	size_t want;			/* of the message that has begun; 0: little */
	struct list queue;		/* of struct piece */
	size_t queued;			/* bytes, and what it takes to keep them */
	size_t room;			/* 0: no bound to what waits while we read */
	uint32_t nfds;			/* received, not taken */
	int fds[STREAM_FDS_MAX];
	struct sock_addr addrs[RESOLVE_ADDRS_MAX];
	uint32_t naddrs, next_addr;
	char host[ADDR_LEN_MAX + 1];	/* as asked for */
	char peer[SOCK_TEXT_BYTES], local[SOCK_TEXT_BYTES];
};

static void on_events(void *ctx, int events);

/* ---- making and unmaking ---- */

static void close_fds(int *fds, uint32_t *n)
{
	while (*n > 0)
		close(fds[--*n]);
}

static void piece_free(struct piece *p)
{
	close_fds(p->fds, &p->nfds);
	free(p);
}

static void drop_queue(struct stream *s)
{
	while (!list_empty(&s->queue)) {
		struct piece *p = list_first(&s->queue, struct piece, link);

		list_del(&p->link);
		piece_free(p);
	}
	s->queued = 0;
}

static void say_last_word(struct loop_task *t)
{
	struct stream *s = container_of(t, struct stream, last_word);

	s->cb.closed(s->ctx, s, &s->why);
	free(s);
}

static struct stream *stream_new(struct loop *l, const struct stream_cb *cb, void *ctx)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->l = l;
	s->cb = *cb;
	s->ctx = ctx;
	s->fd = s->fetched = -1;
	list_init(&s->queue);
	loop_task_init(&s->last_word, say_last_word);
	return s;
}

static void drain_input(struct stream *s)
{
	uint8_t *to = loop_scratch(s->l);

	for (int i = 0; i < DRAIN_READS && s->fetched < 0; i++) {
		ssize_t n = s->kept ? fdguard_read(s->fd, to, LOOP_SCRATCH_BYTES) :
				      recv(s->fd, to, LOOP_SCRATCH_BYTES, MSG_DONTWAIT);

		if (n <= 0)
			return;
	}
}

static void fetch_end(struct stream *s)
{
	loop_watch_stop(s->fetch_watch);
	s->fetch_watch = NULL;
	if (s->fetched >= 0)
		close(s->fetched);
	s->fetched = -1;
}

/* The fd may only be closed once libuv has let go of it, which stop does. */
static void drop_fd(struct stream *s)
{
	loop_watch_stop(s->watch);
	s->watch = NULL;
	fetch_end(s);
	if (s->kept)
		fdguard_close(loop_fdguard(s->l), s->kept, s->fd);
	else if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->kept = 0;
}

/* Ends the stream; why is in s->why. */
static void end(struct stream *s)
{
	if (s->state == CLOSED)
		return;
	if (s->state == OPEN || s->state == FINISHING)
		drain_input(s);
	s->state = CLOSED;
	resolve_cancel(s->resolve);
	s->resolve = NULL;
	loop_timer_stop(s->next);
	loop_timer_stop(s->finish);
	loop_timer_stop(s->again);
	loop_timer_stop(s->stall);
	s->next = s->finish = s->again = s->stall = NULL;
	drop_fd(s);
	drop_queue(s);
	loop_defer(s->l, &s->last_word);
}

static void end_errno(struct stream *s, const char *what, int errnum)
{
	if (s->why.code == 0) {
		limit_err(&s->why, errnum, "%s %s", what, s->peer[0] ? s->peer : s->host);
		s->errnum = errnum;
	}
	end(s);
}

static void set_watch(struct stream *s, int events)
{
	int code;

	if (s->watch) {
		loop_watch_change(s->watch, events);
		return;
	}
	code = loop_watch_start(s->l, &s->watch, s->fd, events, on_events, s);
	if (code < 0) {
		err_set(&s->why, code, "cannot watch the connection to %s", s->host);
		end(s);
	}
}

/* ---- peers that do not take what they asked for ---- */

bool stream_stalled(const struct stream *s)
{
	return s->room && s->queued > s->room;
}

bool stream_unread(const struct stream *s)
{
	int bytes = 0;

	return s->fd >= 0 && !ioctl(s->fd, FIONREAD, &bytes) && bytes > 0;
}

static void on_stall(void *ctx)
{
	struct stream *s = ctx;

	if (s->taken == s->taken_before && stream_unread(s)) {
		err_set(&s->why, TALLY_EQUOTA, "%s asks and does not read the answers: %zu KiB "
			"wait for it", stream_peer(s), s->queued >> 10);
		end(s);
	}
	s->taken_before = s->taken;
}

/* Without memory for the timer it is not cut, and has no more waiting for that. */
static void watch_stall(struct stream *s)
{
	bool stalled = s->state == OPEN && stream_stalled(s);

	if (stalled && !s->stall) {
		s->taken_before = s->taken;
		(void)loop_timer_start(s->l, &s->stall, CTL_STALL_MS, CTL_STALL_MS, on_stall, s);
	} else if (!stalled && s->stall) {
		loop_timer_stop(s->stall);
		s->stall = NULL;
	}
}

static void update_watch(struct stream *s)
{
	int reads = s->state == OPEN && !stream_stalled(s) ? LOOP_READ : 0;

	watch_stall(s);
	if (s->fetch_watch)
		loop_watch_change(s->fetch_watch, reads);
	set_watch(s, (s->fetch_watch ? 0 : reads) |
		     (list_empty(&s->queue) || s->again ? 0 : LOOP_WRITE));
}

void stream_set_room(struct stream *s, size_t bytes)
{
	s->room = bytes;
	if (s->state == OPEN)
		update_watch(s);
}

/* ---- the socket's facts ---- */

static void name_unix_peer(struct stream *s)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return;
	if (cred.pid)			/* 0: it is in a PID namespace that is not seen here */
		snprintf(s->peer, sizeof(s->peer), "pid %d uid %u", cred.pid, cred.uid);
	else
		snprintf(s->peer, sizeof(s->peer), "a process of uid %u", cred.uid);
}

static void learn_socket(struct stream *s)
{
	struct sock_addr a = { .len = sizeof(a.un) };

	if (getsockname(s->fd, &a.sa, &a.len) == 0)
		sock_addr_text(&a, s->local, sizeof(s->local));
	s->is_unix = a.sa.sa_family == AF_UNIX;
	a.len = sizeof(a.un);
	if (s->is_unix)
		name_unix_peer(s);
	else if (getpeername(s->fd, &a.sa, &a.len) == 0)
		sock_addr_text(&a, s->peer, sizeof(s->peer));
	else if (!s->peer[0] && !s->host[0])
		snprintf(s->peer, sizeof(s->peer), "of somebody who has gone");
	if (!s->is_unix)
		sock_tune_tcp(s->fd);
}

/* ---- connecting ---- */

static void try_next(struct stream *s, int errnum);

/* The kernel would ask for two minutes whether somebody is there. */
static void on_no_answer(void *ctx)
{
	try_next(ctx, ETIMEDOUT);
}

/* Starts on the next address; errnum is what the one before ended with. */
static void try_next(struct stream *s, int errnum)
{
	loop_timer_stop(s->next);
	s->next = NULL;
	drop_fd(s);
	while (s->next_addr < s->naddrs) {
		const struct sock_addr *a = &s->addrs[s->next_addr++];

		sock_addr_text(a, s->peer, sizeof(s->peer));
		s->fd = sock_connect(a);
		if (s->fd >= 0) {
			s->state = CONNECTING;
			if (s->next_addr < s->naddrs)	/* without memory it has all the time */
				(void)loop_timer_start(s->l, &s->next, NEXT_ADDR_MS, 0,
						       on_no_answer, s);
			set_watch(s, LOOP_WRITE);
			return;
		}
		errnum = -s->fd;
		s->fd = -1;
	}
	end_errno(s, "cannot connect to", errnum);
}

static void on_connect_event(struct stream *s)
{
	int errnum = 0;
	socklen_t len = sizeof(errnum);

	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0)
		errnum = errno;
	if (errnum) {
		try_next(s, errnum);
		return;
	}
	loop_timer_stop(s->next);
	s->next = NULL;
	s->state = OPEN;
	learn_socket(s);
	update_watch(s);
	if (s->cb.connected)
		s->cb.connected(s->ctx, s);
}

static void on_addrs(void *ctx, const struct sock_addr *addrs, uint32_t n, const struct err *e)
{
	struct stream *s = ctx;

	s->resolve = NULL;
	if (n == 0) {
		s->why = *e;
		end(s);
		return;
	}
	memcpy(s->addrs, addrs, n * sizeof(*addrs));
	s->naddrs = n;
	try_next(s, 0);
}

int stream_connect(struct loop *l, struct stream **out, const char *host, uint16_t port,
		   const struct stream_cb *cb, void *ctx, struct err *e)
{
	struct stream *s = stream_new(l, cb, ctx);
	int code;

	if (!s)
		return err_set(e, TALLY_ENOMEM, "no memory to connect to %s", host);
	snprintf(s->host, sizeof(s->host), "%s", host);
	s->state = RESOLVING;
	if (sock_addr_numeric(&s->addrs[0], host, port)) {
		s->naddrs = 1;
		try_next(s, 0);
	} else {
		code = resolve_start(l, &s->resolve, host, port, on_addrs, s, e);
		if (code < 0) {
			free(s);
			return code;
		}
	}
	*out = s;
	return 0;
}

int stream_adopt(struct loop *l, struct stream **out, int fd, const struct stream_cb *cb,
		 void *ctx, struct err *e)
{
	struct stream *s = stream_new(l, cb, ctx);
	int code;

	if (!s)
		return err_set(e, TALLY_ENOMEM, "no memory for a connection");
	code = loop_watch_start(l, &s->watch, fd, LOOP_READ, on_events, s);
	if (code < 0) {
		free(s);
		return err_set(e, code, "cannot watch a connection");
	}
	s->state = OPEN;
	s->fd = fd;
	learn_socket(s);
	if (s->is_unix && loop_fdguard(l))
		s->kept = fdguard_keep(loop_fdguard(l), fd);
	*out = s;
	return 0;
}

void stream_refuse(struct loop *l, int fd)
{
	uint64_t kept = loop_fdguard(l) ? fdguard_keep(loop_fdguard(l), fd) : 0;

	if (kept)
		fdguard_close(loop_fdguard(l), kept, fd);
	else
		close(fd);
}

/* ---- reading ---- */

/* Takes the descriptors out of a message's ancillary data; false: too many came. */
static bool take_control(struct stream *s, struct msghdr *mh)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		const uint8_t *data = CMSG_DATA(c);
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		/* The kernel fits them into our buffer; padding may let one more in. */
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, data + i * sizeof(fd), sizeof(fd));
			if (s->nfds < STREAM_FDS_MAX)
				s->fds[s->nfds++] = fd;
			else
				close(fd);
		}
	}
	return !(mh->msg_flags & MSG_CTRUNC);
}

/* Reads once, up to max bytes: how many, 0 at the end, -errno. */
static ssize_t read_some(struct stream *s, size_t max)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(STREAM_FDS_MAX * sizeof(int))];
	struct iovec iov = { loop_scratch(s->l), max };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = s->is_unix ? control : NULL,
		.msg_controllen = s->is_unix ? sizeof(control) : 0,
	};
	ssize_t n = recvmsg(s->fetched < 0 ? s->fd : s->fetched, &mh,
			    MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	if (s->is_unix && !take_control(s, &mh))
		return -EPROTO;
	return n;
}

static void on_fetched(void *ctx, int events)
{
	(void)events;
	on_events(ctx, LOOP_READ);
}

/* Lets the guard process receive the next bytes, which carry descriptors. */
static ssize_t fetch(struct stream *s)
{
	s->fetched = fdguard_fetch(loop_fdguard(s->l), s->kept);
	s->fetched_any = false;
	if (s->fetched < 0)
		return -EMFILE;
	if (loop_watch_start(s->l, &s->fetch_watch, s->fetched, LOOP_READ, on_fetched, s) < 0) {
		fetch_end(s);
		return -ENOMEM;
	}
	update_watch(s);
	return -EAGAIN;
}

/* Of a stranger: it takes in no descriptor that the guard has not looked at. */
static ssize_t read_guarded(struct stream *s, size_t max)
{
	ssize_t n;

	if (s->fetched < 0) {
		n = fdguard_read(s->fd, loop_scratch(s->l), max);
		return n == -EREMOTE ? fetch(s) : n;
	}
	n = read_some(s, FDGUARD_CHUNK);
	if (n > 0)
		s->fetched_any = true;
	if (n)
		return n;
	fetch_end(s);
	update_watch(s);
	if (s->fetched_any)
		return -EAGAIN;		/* no more of that kind: the next event is the socket's */
	err_set(&s->why, TALLY_EPROTO, "%s has sent a descriptor that is not taken here", s->peer);
	return -EPROTO;
}

/* Large messages go on in one turn; of small ones, each of which is work, it takes a few. */
static void on_readable(struct stream *s)
{
	bool more = true;

	for (int i = 0; i < READS_PER_TURN && s->state == OPEN && more && !stream_stalled(s); i++) {
		size_t max = s->want ? MIN(s->want, LOOP_SCRATCH_BYTES) : SMALL_READ_BYTES;
		ssize_t n = s->kept ? read_guarded(s, max) : read_some(s, max);

		if (n == -EAGAIN || n == -EINTR)
			return;
		s->want = 0;
		if (n > 0)
			s->cb.readable(s->ctx, s, loop_scratch(s->l), (size_t)n);
		close_fds(s->fds, &s->nfds);
		if (n == 0)
			end(s);
		else if (n < 0)
			end_errno(s, "cannot read from", (int)-n);
		more = s->want > 0;
	}
}

void stream_want(struct stream *s, size_t bytes)
{
	s->want = bytes > SMALL_READ_BYTES ? bytes : 0;
}

uint32_t stream_take_fds(struct stream *s, int *fds, uint32_t max)
{
	uint32_t n = MIN(max, s->nfds);

	memcpy(fds, s->fds, n * sizeof(*fds));
	memmove(s->fds, s->fds + n, (s->nfds - n) * sizeof(*fds));
	s->nfds -= n;
	return n;
}

/* ---- writing ---- */

static void flush(struct stream *s);

static void on_again(void *ctx)
{
	struct stream *s = ctx;

	loop_timer_stop(s->again);
	s->again = NULL;
	flush(s);
}

/*
 * The kernel has no memory just now, or too many descriptors are on their way: nothing that the
 * peer would hear of.
 */
static bool passes(int errnum)
{
	return errnum == ENOBUFS || errnum == ENOMEM || errnum == ETOOMANYREFS;
}

/* The socket is writable all the while, so the clock says when. */
static bool tries_again(struct stream *s, int errnum)
{
	mono_t now = loop_now();

	if (!passes(errnum))
		return false;
	if (!s->again_until)
		s->again_until = now + mono_ms(CTL_STALL_MS);
	if (now >= s->again_until ||
	    (!s->again && loop_timer_start(s->l, &s->again, WRITE_AGAIN_MS, 0, on_again, s) < 0)) {
		end_errno(s, "cannot write to", errnum);
		return true;
	}
	update_watch(s);
	return true;
}

static void on_finish_timeout(void *ctx)
{
	end(ctx);
}

static void write_failed(struct stream *s, int errnum)
{
	if (tries_again(s, errnum))
		return;
	if (s->state == FINISHING) {
		end_errno(s, "cannot write to", errnum);
		return;
	}
	err_set(&s->why, err_from_errno(errnum), "cannot write to %s: %s", s->peer,
		strerror(errnum));
	s->write_dead = true;
	drop_queue(s);
	if (loop_timer_start(s->l, &s->finish, HANDSHAKE_MS, 0, on_finish_timeout, s) < 0)
		end(s);
	else
		update_watch(s);
}

/* n bytes of the first piece are out. */
static void took(struct stream *s, struct piece *p, size_t n)
{
	s->again_until = 0;
	s->taken += n;
	close_fds(p->fds, &p->nfds);	/* they went with the first byte */
	p->off += n;
	s->queued -= n;
	if (p->off < p->len)
		return;
	s->queued -= sizeof(*p);
	list_del(&p->link);
	piece_free(p);
}

static void flush(struct stream *s)
{
	while (!list_empty(&s->queue)) {
		struct piece *p = list_first(&s->queue, struct piece, link);
		ssize_t n = sock_send(s->fd, p->data + p->off, p->len - p->off, p->fds, p->nfds);

		if (n < 0 && errno == EAGAIN) {
			if (s->room)
				update_watch(s);
			return;
		}
		if (n < 0) {
			write_failed(s, errno);
			return;
		}
		took(s, p, (size_t)n);
	}
	if (s->state == FINISHING)
		end(s);
	else
		update_watch(s);
}

static int enqueue(struct stream *s, const uint8_t *data, size_t len, const int *fds,
		   uint32_t nfds)
{
	struct piece *p = malloc(sizeof(*p) + len);

	if (!p)
		return TALLY_ENOMEM;
	p->len = len;
	p->off = 0;
	memcpy(p->data, data, len);
	for (p->nfds = 0; p->nfds < nfds; p->nfds++) {
		p->fds[p->nfds] = dup(fds[p->nfds]);
		if (p->fds[p->nfds] < 0) {
			int errnum = errno;

			piece_free(p);
			return err_from_errno(errnum);
		}
	}
	list_add(&s->queue, &p->link);
	s->queued += sizeof(*p) + len;
	return 0;
}

int stream_write_fds(struct stream *s, const void *data, size_t len, const int *fds,
		     uint32_t nfds)
{
	size_t sent = 0;
	int code, errnum = 0;

	if (s->state == CLOSED || s->state == FINISHING)
		return TALLY_ESHUTDOWN;
	if (nfds > STREAM_FDS_MAX || (nfds > 0 && (!s->is_unix || len == 0)))
		return TALLY_EINVAL;
	if (len + sizeof(struct piece) > CTL_QUEUE_BYTES_MAX - s->queued)
		return TALLY_EQUOTA;
	if (s->write_dead || len == 0)
		return 0;
	if (s->state == OPEN && list_empty(&s->queue)) {
		ssize_t n = sock_send(s->fd, data, len, fds, nfds);

		errnum = n < 0 && errno != EAGAIN ? errno : 0;
		sent = n > 0 ? (size_t)n : 0;
	}
	if (sent == len)
		return 0;
	if (errnum && !passes(errnum)) {
		write_failed(s, errnum);
		return 0;
	}
	code = enqueue(s, (const uint8_t *)data + sent, len - sent, fds, sent ? 0 : nfds);
	if (code < 0 && sent > 0) {
		/* Half a message is out: the rest of this stream would be noise. */
		err_set(&s->why, code, "no memory to write to %s", s->peer);
		end(s);
	} else if (code == 0 && errnum) {
		write_failed(s, errnum);
	} else if (s->state == OPEN) {
		update_watch(s);
	}
	return code;
}

int stream_write(struct stream *s, const void *data, size_t len)
{
	return stream_write_fds(s, data, len, NULL, 0);
}

/* ---- events and the end ---- */

static void on_events(void *ctx, int events)
{
	struct stream *s = ctx;

	if (s->state == CONNECTING) {
		on_connect_event(s);
		return;
	}
	if (events & LOOP_WRITE)
		flush(s);
	if (s->state == OPEN && events & LOOP_READ)
		on_readable(s);
}

void stream_close(struct stream *s)
{
	end(s);
}

void stream_fail(struct stream *s, const struct err *why)
{
	if (s->state != CLOSED)
		s->why = *why;
	end(s);
}

void stream_finish(struct stream *s, uint32_t timeout_ms)
{
	if (s->state == CLOSED || s->state == FINISHING)
		return;
	if (s->state != OPEN || list_empty(&s->queue) ||
	    loop_timer_start(s->l, &s->finish, timeout_ms, 0, on_finish_timeout, s) < 0) {
		end(s);
		return;
	}
	s->state = FINISHING;
	update_watch(s);
}

bool stream_is_over(const struct stream *s)
{
	return s->state == CLOSED;
}

int stream_fd(const struct stream *s)
{
	return s->fd;
}

int stream_errnum(const struct stream *s)
{
	return s->errnum;
}

const char *stream_peer(const struct stream *s)
{
	return s->peer[0] ? s->peer : s->host;
}

const char *stream_local(const struct stream *s)
{
	return s->local;
}
