// SPDX-License-Identifier: Apache-2.0
/*
 * Listening sockets.
 *
 * A Unix socket leaves a file behind when its daemon is killed.  Whoever finds
 * such a file asks it: if the kernel says that nobody is there any more, the file is
 * replaced; else the place is taken.  A daemon that was killed answers until the kernel has
 * taken its memory away, which lasts: whoever is started in its place waits for that.  Two
 * daemons that start at the same moment must not replace each other's, so the whole question
 * is put under a lock on a file of its own, PATH.lock, which is removed again: the directory
 * itself anybody who can read it could lock.
 *
 * Running out of descriptors must not spin the loop on an accept() that cannot
 * succeed: accepting pauses for ACCEPT_PAUSE_MS, and the kernel queues meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/rt/fdguard.h"
#include "common/rt/log.h"
#include "common/rt/loop_int.h"
#include "common/shm/limit.h"
#include "common/shm/proc.h"

#define BACKLOG			1024
#define ACCEPTS_PER_TURN	64
#define ACCEPT_PAUSE_MS		100u
#define LOCK_TRIES		200
#define LOCK_RETRY_MS		10u
#define DYING_MS		10000u	/* a process of hundreds of GiB takes seconds to end */
#define DYING_RETRY_MS		20u

struct listener {
	struct loop *l;
	int fd;
	struct loop_watch *watch;
	struct loop_timer *pause;
	bool paused;			/* since the last that was accepted; said once */
	struct loop_task gone;
	void (*accepted)(void *ctx, int fd);
	void *ctx;
	uint64_t kept;			/* by the loop's guard; 0: not */
	uint16_t port;
	char path[ADDR_LEN_MAX + 1];	/* "" for TCP */
	dev_t dev;			/* of the file that is ours */
	ino_t ino;
};

/* ---- accepting ---- */

static void on_pause_over(void *ctx)
{
	struct listener *li = ctx;

	loop_timer_stop(li->pause);
	li->pause = NULL;
	loop_watch_change(li->watch, LOOP_READ);
}

static void pause_accepting(struct listener *li, int errnum)
{
	char port[16], why[LIMIT_TEXT_MAX];

	snprintf(port, sizeof(port), "port %u", li->port);
	if (!li->paused)
		log_warn("listener %s cannot accept, trying each %u ms: %s",
			 li->path[0] ? li->path : port, ACCEPT_PAUSE_MS, limit_why(errnum, why));
	li->paused = true;
	if (loop_timer_start(li->l, &li->pause, ACCEPT_PAUSE_MS, 0, on_pause_over, li) == 0)
		loop_watch_change(li->watch, 0);
}

static void on_acceptable(void *ctx, int events)
{
	struct listener *li = ctx;

	(void)events;
	/* accepted() may close us: the turn ends with the watch then. */
	for (int i = 0; i < ACCEPTS_PER_TURN && li->watch; i++) {
		int fd = accept4(li->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			li->paused = false;
			li->accepted(li->ctx, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(li, errno);
		if (errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

/* ---- making ---- */

static void free_listener(struct loop_task *t)
{
	free(container_of(t, struct listener, gone));
}

static struct listener *listener_new(struct loop *l, void (*accepted)(void *ctx, int fd),
				     void *ctx, struct err *e)
{
	struct listener *li = calloc(1, sizeof(*li));

	if (!li) {
		err_set(e, TALLY_ENOMEM, "no memory for a listener");
		return NULL;
	}
	li->l = l;
	li->fd = -1;
	li->accepted = accepted;
	li->ctx = ctx;
	loop_task_init(&li->gone, free_listener);
	return li;
}

void listener_close(struct listener *li)
{
	struct stat st;

	if (!li)
		return;
	loop_timer_stop(li->pause);
	loop_watch_stop(li->watch);
	li->watch = NULL;
	if (li->ino && stat(li->path, &st) == 0 && st.st_ino == li->ino && st.st_dev == li->dev)
		unlink(li->path);
	if (li->kept)
		fdguard_close(loop_fdguard(li->l), li->kept, li->fd);
	else if (li->fd >= 0)
		close(li->fd);
	loop_defer(li->l, &li->gone);	/* accepted() may be running */
}

static int cannot_listen(struct err *e, const char *where, int errnum)
{
	switch (errnum) {
	case EADDRINUSE:
		return err_set(e, TALLY_EBUSY, "cannot listen on %s: address already in use "
			       "(is another one running? choose another port)", where);
	case EADDRNOTAVAIL:
		return err_set(e, TALLY_EINVAL,
			       "cannot listen on %s: not an address of this machine", where);
	case EACCES:
	case EPERM:
		return err_set(e, TALLY_EAUTH, "cannot listen on %s: %s", where,
			       strerror(errnum));
	default:
		return limit_err(e, errnum, "cannot listen on %s", where);
	}
}

/* The last step of both kinds: the bound socket begins to listen. */
static int begin(struct listener *li, const char *where, struct err *e)
{
	int code;

	if (listen(li->fd, BACKLOG) < 0)
		return cannot_listen(e, where, errno);
	code = loop_watch_start(li->l, &li->watch, li->fd, LOOP_READ, on_acceptable, li);
	if (code < 0)
		return err_set(e, code, "cannot watch the listener on %s", where);
	return 0;
}

/* ---- TCP ---- */

static int find_address(struct sock_addr *a, const char *host, uint16_t port, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *ai;
	char service[8];
	int r;

	if (host[0] == '\0' || strcmp(host, "*") == 0)
		host = "0.0.0.0";
	if (host[0] != '/' && sock_addr_numeric(a, host, port))
		return 0;
	snprintf(service, sizeof(service), "%u", port);
	r = getaddrinfo(host, service, &hints, &ai);
	if (r != 0)
		return err_set(e, TALLY_EINVAL, "cannot listen on %s: %s", host, gai_strerror(r));
	sock_addr_from_sa(a, ai->ai_addr, ai->ai_addrlen);
	freeaddrinfo(ai);
	return 0;
}

static int open_tcp(struct listener *li, struct sock_addr *a, struct err *e)
{
	char where[SOCK_TEXT_BYTES];
	int one = 1;

	sock_addr_text(a, where, sizeof(where));
	li->fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (li->fd < 0)
		return cannot_listen(e, where, errno);
	setsockopt(li->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(li->fd, &a->sa, a->len) < 0 || getsockname(li->fd, &a->sa, &a->len) < 0)
		return cannot_listen(e, where, errno);
	li->port = ntohs(a->sa.sa_family == AF_INET6 ? a->in6.sin6_port : a->in.sin_port);
	return begin(li, where, e);
}

int listener_tcp(struct loop *l, struct listener **out, const char *host, uint16_t port,
		 void (*accepted)(void *ctx, int fd), void *ctx, struct err *e)
{
	struct sock_addr a = { 0 };
	struct listener *li;
	int code = find_address(&a, host, port, e);

	if (code < 0)
		return code;
	li = listener_new(l, accepted, ctx, e);
	if (!li)
		return TALLY_ENOMEM;
	code = open_tcp(li, &a, e);
	if (code < 0)
		listener_close(li);
	else
		*out = li;
	return code;
}

/* ---- Unix ---- */

/* "PATH.lock": nobody else can open it, and lock it for as long as they like. */
#define LOCK_SUFFIX	".lock"
#define LOCK_PATH_MAX	(ADDR_LEN_MAX + sizeof(LOCK_SUFFIX))

struct path_lock {
	char path[LOCK_PATH_MAX];
	int fd;
};

static int cannot_lock(const char *path, const struct path_lock *k, struct err *e)
{
	char copy[ADDR_LEN_MAX + 1];
	const char *dir;
	int errnum = errno;

	snprintf(copy, sizeof(copy), "%s", path);
	dir = dirname(copy);
	if (errnum == ENOENT)
		return err_set(e, TALLY_ENOENT, "cannot listen on %s: directory %s does not exist; "
			       "make it, or say another place", path, dir);
	return err_set(e, err_from_errno(errnum), "cannot listen on %s: lock file %s: %s",
		       path, k->path, strerror(errnum));
}

static bool is_same_file(int fd, const char *path)
{
	struct stat mine, there;

	return !fstat(fd, &mine) && !lstat(path, &there) && mine.st_ino == there.st_ino &&
	       mine.st_dev == there.st_dev;
}

/* 0: it is ours; EAGAIN: another daemon has it, or has just removed it; else why not. */
static int try_lock(struct path_lock *k, const char *path, struct err *e)
{
	struct stat st;
	int code = TALLY_EAGAIN;

	k->fd = open(k->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (k->fd < 0)
		return cannot_lock(path, k, e);
	if (fstat(k->fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		code = err_set(e, TALLY_EAUTH, "cannot listen on %s: %s is not a file of this "
			       "user; remove it, or say another place", path, k->path);
	else if (st.st_mode & 077 && fchmod(k->fd, 0600))
		code = cannot_lock(path, k, e);
	else if (!flock(k->fd, LOCK_EX | LOCK_NB) && is_same_file(k->fd, k->path))
		return 0;
	close(k->fd);
	return code;
}

static int lock_path(struct path_lock *k, const char *path, struct err *e)
{
	const struct timespec nap = { .tv_nsec = LOCK_RETRY_MS * NS_PER_MS };
	int code;

	snprintf(k->path, sizeof(k->path), "%s" LOCK_SUFFIX, path);
	for (int i = 0; i < LOCK_TRIES; i++) {
		code = try_lock(k, path, e);
		if (code != TALLY_EAGAIN)
			return code;
		nanosleep(&nap, NULL);	/* another daemon starts here just now */
	}
	return err_set(e, TALLY_EBUSY, "cannot listen on %s: %s stays locked by another process "
		       "of this user", path, k->path);
}

static void unlock_path(struct path_lock *k)
{
	unlink(k->path);
	close(k->fd);
}

/*
 * Whether somebody is at that path; under its lock.  The socket of a daemon that has just been
 * killed may live for a moment more, in the process that guards it; `dying`: or in itself.
 */
static bool somebody_answers(const struct sock_addr *a, pid_t *dying)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	bool yes;

	if (fd < 0)
		return true;
	/* A backlog may be full, a socket of another kind, or not for us: all of that lives. */
	yes = connect(fd, &a->sa, a->len) == 0 || errno != ECONNREFUSED;
	if (yes && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.pid > 0) {
		yes = !proc_has_ended(cred.pid);
		*dying = yes && proc_is_dying(cred.pid) ? cred.pid : 0;
	}
	close(fd);
	return yes;
}

static bool somebody_stays(const struct sock_addr *a)
{
	const struct timespec nap = { .tv_nsec = DYING_RETRY_MS * NS_PER_MS };
	pid_t dying = 0;

	if (!somebody_answers(a, &dying))
		return false;
	if (!dying)
		return true;
	for (uint32_t i = 0; !proc_has_ended(dying) && i < DYING_MS / DYING_RETRY_MS; i++)
		nanosleep(&nap, NULL);
	return somebody_answers(a, &dying);
}

static int clear_path(const char *path, const struct sock_addr *a, struct err *e)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : cannot_listen(e, path, errno);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, TALLY_EEXIST,
			       "cannot listen on %s: a file that is no socket is there", path);
	if (somebody_stays(a))
		return err_set(e, TALLY_EBUSY, "cannot listen on %s: socket already in use "
			       "(is another one running? choose another path)", path);
	if (unlink(path) < 0)
		return cannot_listen(e, path, errno);
	return 0;
}

static int open_unix(struct listener *li, const struct sock_addr *a, uint32_t mode,
		     struct err *e)
{
	struct stat st;

	li->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (li->fd < 0)
		return cannot_listen(e, li->path, errno);
	/* The mode before bind: the file is never more open than it shall be. */
	if (fchmod(li->fd, mode) < 0 || bind(li->fd, &a->sa, a->len) < 0 ||
	    stat(li->path, &st) < 0)
		return cannot_listen(e, li->path, errno);
	li->dev = st.st_dev;
	li->ino = st.st_ino;
	if (chmod(li->path, mode) < 0)		/* what the umask took away */
		return cannot_listen(e, li->path, errno);
	if (loop_fdguard(li->l))	/* what is never accepted may bring descriptors, too */
		li->kept = fdguard_keep(loop_fdguard(li->l), li->fd);
	return begin(li, li->path, e);
}

int listener_unix(struct loop *l, struct listener **out, const char *path, uint32_t mode,
		  void (*accepted)(void *ctx, int fd), void *ctx, struct err *e)
{
	struct sock_addr a = { .len = sizeof(a.un) };
	struct listener *li;
	struct path_lock lock;
	int code;

	a.un.sun_family = AF_UNIX;
	if (path[0] == '\0' || strlen(path) > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "socket path '%.120s' must have 1 to %u characters",
			       path, ADDR_LEN_MAX);
	memcpy(a.un.sun_path, path, strlen(path));
	li = listener_new(l, accepted, ctx, e);
	if (!li)
		return TALLY_ENOMEM;
	memcpy(li->path, path, strlen(path));
	code = lock_path(&lock, path, e);
	if (code < 0)
		goto close_li;
	code = clear_path(path, &a, e);
	if (code == 0)
		code = open_unix(li, &a, mode, e);
	unlock_path(&lock);
	if (code < 0)
		goto close_li;
	*out = li;
	return 0;

close_li:
	listener_close(li);
	return code;
}

uint16_t listener_port(const struct listener *li)
{
	return li->port;
}
