// SPDX-License-Identifier: Apache-2.0
/*
 * The guard process: fdguard.h says what for.
 *
 * It waits for its daemon's orders and its children's ends, and never for a stranger.  Two kinds of
 * children may, and may hang for ever:
 * - One that takes in what comes on one socket.  It has nothing but that socket and its way to the
 *   daemon, so its hanging closes are its own.  Meanwhile the guard does not touch the socket.
 * - One that ends with sockets that were closed with descriptors unread.  It ends only when the
 *   guard has closed its own references, so that the last ones are the child's.
 * They are counted by user, and a user whose descriptors hang has no more than so many.
 *
 * At the daemon's end all sockets are shut down, so that nobody is answered by a listener that is
 * gone, and the guard ends with them.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rt/fdguard_int.h"

#define CTL_FD		3
#define FIRST_FD	4		/* of those that are not the guard's own */
#define FETCHES_MAX	64u		/* children of one user at a time that take in */
#define ENDS_MAX	4u		/* that end with sockets, */
#define ENDS_FULL	1024u		/* but one more for each so many that wait for one */
#define AGAIN_MS	500		/* after a fork that failed */
#define FDS_ALL		253u		/* the most that the kernel lets a message have */

struct kept {
	uint64_t id;
	uid_t uid;
	int fd;
	bool dropped, hostile;		/* hostile: dropped with descriptors unread */
	pid_t child;			/* that takes in what comes here; 0: none */
};

struct ended {				/* a child that may hang */
	pid_t pid;
	uid_t uid;
};

struct guard {
	bool devices;
	int signals;
	struct kept *kept;
	size_t nkept, room;
	struct ended *ended;
	size_t nended, ended_room;
};

/* ---- looking at descriptors, without a call that may wait ---- */

static bool is_slab(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) ==
			     (F_SEAL_SHRINK | F_SEAL_GROW);
}

/* By what the kernel's own driver says of it: any other way would ask its file system. */
static bool is_dma_buf(int fd)
{
	char path[40], text[1024];
	ssize_t n;
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	n = info < 0 ? -1 : read(info, text, sizeof(text) - 1);
	if (info >= 0)
		close(info);
	text[n < 0 ? 0 : n] = '\0';
	return strstr(text, "\nexp_name:\t") != NULL;
}

/* ---- a child that takes in ---- */

static bool brings_fds(int sock)
{
	char byte[FDGUARD_CHUNK];
	struct iovec iov = { .iov_base = byte, .iov_len = sizeof(byte) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	return recvmsg(sock, &m, MSG_PEEK | MSG_DONTWAIT) > 0 && m.msg_flags & MSG_CTRUNC;
}

/* How many came; -1: one that is not taken, or too many. */
static int take_fds(struct msghdr *m, int fds[FDGUARD_FDS], bool devices)
{
	uint32_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (n == FDGUARD_FDS || !(is_slab(fd) || (devices && is_dma_buf(fd))))
				return -1;
			fds[n++] = fd;
		}
	}
	return m->msg_flags & MSG_CTRUNC ? -1 : (int)n;
}

static bool hand_on(int to, void *data, size_t len, const int *fds, uint32_t nfds)
{
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	union fdguard_room room = { .bytes = { 0 } };
	ssize_t n;

	if (nfds)
		fdguard_attach(&m, &room, fds, nfds);
	do
		n = sendmsg(to, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len;
}

static bool take_one(int sock, int to, bool devices)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(FDS_ALL * sizeof(int))];
	char data[FDGUARD_CHUNK];
	struct iovec iov = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = room, .msg_controllen = sizeof(room),
	};
	int fds[FDGUARD_FDS];
	ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int nfds = n > 0 ? take_fds(&m, fds, devices) : -1;
	bool ok = nfds >= 0 && hand_on(to, data, (size_t)n, fds, (uint32_t)nfds);

	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	return ok;
}

/* The daemon hears the end before anything that may hang is closed. */
static _Noreturn void fetch_main(int sock, int to, bool devices)
{
	while (brings_fds(sock) && take_one(sock, to, devices))
		;
	close(to);
	_exit(0);
}

/* ---- children ---- */

static void close_from(int first)
{
	if (!syscall(SYS_close_range, first, ~0u, 0))
		return;
	for (int fd = first; fd < 65536; fd++)
		close(fd);
}

static uint32_t fetches_of(const struct guard *g, uid_t uid)
{
	uint32_t n = 0;

	for (size_t i = 0; i < g->nkept; i++)
		n += g->kept[i].child && g->kept[i].uid == uid;
	return n;
}

/*
 * A pipe's end tells the other side.  Not fork(): what libraries of the daemon do in a child is to
 * close descriptors by numbers that are others' here.  -1: no descriptors, or no more processes.
 */
static pid_t fork_with(int sync[2])
{
	pid_t pid;

	if (pipe2(sync, O_CLOEXEC))
		return -1;
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid < 0) {
		close(sync[0]);
		close(sync[1]);
	}
	return pid;
}

static void wait_for_end(int fd)
{
	char byte;

	while (read(fd, &byte, 1) < 0 && errno == EINTR)
		;
	close(fd);
}

static void fetch(struct guard *g, struct kept *k, int to)
{
	int sync[2];
	pid_t pid;

	if (k->child || fetches_of(g, k->uid) >= FETCHES_MAX)
		return;
	pid = fork_with(sync);
	if (pid == 0) {
		/* Others' sockets go while the guard has them, too, and waits. */
		int sock = dup2(k->fd, 0), out = dup2(to, 1);

		close_from(CTL_FD);
		fetch_main(sock, out, g->devices);
	}
	if (pid < 0)
		return;
	close(sync[1]);
	wait_for_end(sync[0]);
	k->child = pid;
}

/* ---- sockets that were dropped ---- */

static struct kept *add(struct guard *g, uint64_t id, int fd)
{
	struct ucred cred = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(cred);
	struct kept *more;

	if (g->nkept == g->room) {
		more = realloc(g->kept, (g->room + 256) * sizeof(*more));
		if (!more)
			return NULL;
		g->kept = more;
		g->room += 256;
	}
	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	g->kept[g->nkept] = (struct kept){ .id = id, .fd = fd, .uid = cred.uid };
	return &g->kept[g->nkept++];
}

static void forget(struct guard *g, struct kept *k)
{
	close(k->fd);
	*k = g->kept[--g->nkept];
}

/* Nothing comes any more; what is there is thrown away as long as no descriptors come with it. */
static bool is_clean(int fd)
{
	char sink[FDGUARD_CHUNK];
	ssize_t n;

	do
		n = fdguard_read(fd, sink, sizeof(sink));
	while (n > 0 || n == -EINTR);
	return n != -EREMOTE;
}

static void settle(struct guard *g, struct kept *k)
{
	(void)shutdown(k->fd, SHUT_RDWR);
	k->hostile = !is_clean(k->fd);
	if (!k->hostile)
		forget(g, k);
}

/* Connections that were never accepted are a listener's. */
static void drop_backlog(struct guard *g, int listener)
{
	static const int one = 1;
	int fd;

	(void)fcntl(listener, F_SETFL, O_NONBLOCK);
	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct kept *k = add(g, 0, fd);

		(void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
		if (!k)
			return;
		k->dropped = true;
		settle(g, k);
	}
}

static bool is_listener(int fd)
{
	socklen_t len = sizeof(int);
	int listens = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) && listens;
}

static void drop(struct guard *g, struct kept *k)
{
	int fd = k->fd;

	k->dropped = true;
	(void)shutdown(fd, SHUT_RDWR);
	if (k->child)
		return;			/* settled when that has ended */
	if (!is_listener(fd)) {
		settle(g, k);
		return;
	}
	*k = g->kept[--g->nkept];
	drop_backlog(g, fd);
	close(fd);
}

/* ---- children that end with them ---- */

static bool may_end(const struct guard *g, uid_t uid)
{
	size_t n = 0, waiting = 0;

	for (size_t i = 0; i < g->nended; i++)
		n += g->ended[i].uid == uid;
	for (size_t i = 0; i < g->nkept; i++)
		waiting += g->kept[i].hostile && g->kept[i].uid == uid;
	return n < ENDS_MAX || waiting >= ENDS_FULL;
}

static bool note_ended(struct guard *g, pid_t pid, uid_t uid)
{
	struct ended *more;

	if (g->nended == g->ended_room) {
		more = realloc(g->ended, (g->ended_room + 64) * sizeof(*more));
		if (!more)
			return false;
		g->ended = more;
		g->ended_room += 64;
	}
	if (pid)
		g->ended[g->nended++] = (struct ended){ .pid = pid, .uid = uid };
	return true;
}

/* All of one user's that wait; false: it could not be. */
static bool end_with(struct guard *g, uid_t uid)
{
	int sync[2];
	pid_t pid;

	if (!note_ended(g, 0, uid))
		return false;
	pid = fork_with(sync);
	if (pid < 0)
		return false;
	if (pid == 0) {
		close(sync[1]);
		wait_for_end(sync[0]);
		_exit(0);
	}
	for (size_t i = g->nkept; i-- > 0; )
		if (g->kept[i].hostile && g->kept[i].uid == uid)
			forget(g, &g->kept[i]);
	(void)note_ended(g, pid, uid);
	close(sync[0]);
	close(sync[1]);
	return true;
}

/* False: some wait that could have gone. */
static bool end_all(struct guard *g)
{
	for (size_t i = 0; i < g->nkept; i++) {
		if (!g->kept[i].hostile || !may_end(g, g->kept[i].uid))
			continue;
		if (!end_with(g, g->kept[i].uid))
			return false;
		i = SIZE_MAX;		/* the table is another one */
	}
	return true;
}

static void on_child(struct guard *g, pid_t pid)
{
	for (size_t i = g->nended; i-- > 0; )
		if (g->ended[i].pid == pid)
			g->ended[i] = g->ended[--g->nended];
	for (size_t i = g->nkept; i-- > 0; ) {
		if (g->kept[i].child != pid)
			continue;
		g->kept[i].child = 0;
		if (g->kept[i].dropped)
			drop(g, &g->kept[i]);
		return;
	}
}

static void reap(struct guard *g)
{
	struct signalfd_siginfo info;
	pid_t pid;

	(void)!read(g->signals, &info, sizeof(info));
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		on_child(g, pid);
}

/* ---- orders ---- */

static struct kept *find(struct guard *g, uint64_t id)
{
	for (size_t i = g->nkept; i-- > 0; )
		if (g->kept[i].id == id)
			return &g->kept[i];
	return NULL;
}

static void obey(struct guard *g, const struct fdguard_order *o, int fd)
{
	struct kept *k = o->op == FDGUARD_KEEP ? NULL : find(g, o->id);

	if (o->op == FDGUARD_KEEP && fd >= 0 && add(g, o->id, fd))
		return;
	if (k && o->op == FDGUARD_FETCH && fd >= 0)
		fetch(g, k, fd);
	if (k && o->op == FDGUARD_DROP)
		drop(g, k);
	if (fd >= 0)
		close(fd);
}

/* False: the daemon has ended. */
static bool hear(struct guard *g)
{
	struct fdguard_order o;
	struct iovec iov = { .iov_base = &o, .iov_len = sizeof(o) };
	union fdguard_room room;
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = room.bytes, .msg_controllen = CMSG_LEN(sizeof(int)),
	};
	ssize_t n = recvmsg(CTL_FD, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c;
	int fd = -1;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n != sizeof(o))
		return false;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	obey(g, &o, fd);
	return true;
}

static void set_up(struct guard *g, int ctl)
{
	static const int ignored[] = { SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGQUIT };
	sigset_t set;
	int null;

	(void)prctl(PR_SET_NAME, "tally-fdguard");
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
	ctl = fcntl(ctl, F_DUPFD_CLOEXEC, FIRST_FD);	/* out of the way of those below */
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < CTL_FD; fd++)
		(void)dup2(null, fd);
	(void)dup3(ctl, CTL_FD, O_CLOEXEC);
	close_from(FIRST_FD);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	g->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

_Noreturn void fdguard_main(int ctl, bool devices)
{
	struct guard g = { .devices = devices };
	bool all = true;

	set_up(&g, ctl);
	for (;;) {
		struct pollfd p[] = {
			{ .fd = CTL_FD, .events = POLLIN }, { .fd = g.signals, .events = POLLIN },
		};

		(void)poll(p, 2, all ? -1 : AGAIN_MS);
		if (p[1].revents)
			reap(&g);
		if (p[0].revents && !hear(&g))
			break;
		all = end_all(&g);
	}
	for (size_t i = 0; i < g.nkept; i++)
		(void)shutdown(g.kept[i].fd, SHUT_RDWR);
	_exit(0);
}

ssize_t fdguard_read(int sock, void *buf, size_t max)
{
	struct iovec iov = { .iov_base = buf, .iov_len = max };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n = recvmsg(sock, &m, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return -errno;
	if (m.msg_flags & MSG_CTRUNC)
		return -EREMOTE;
	if (n == 0)
		return 0;
	n = recv(sock, buf, (size_t)n, MSG_DONTWAIT);	/* the same bytes: nobody else reads */
	return n < 0 ? -errno : n;
}
