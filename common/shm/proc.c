// SPDX-License-Identifier: Apache-2.0
/*
 * What the kernel says of other processes: by pidfd, by SO_PEERCRED, and in /proc.
 *
 * SO_PEERPIDFD gives the very process that listened, whatever its number is by now.  Kernels
 * before 6.5 lack it: there the number is looked up, and the process behind it must have been
 * started when the one was that the connection was made to.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/shm/limit.h"
#include "common/shm/proc.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD	77
#endif
#define PF_EXITING	0x4u	/* the kernel's, in proc_pid_stat(5) */
#define TEXT_BYTES	4096u

/* /proc/PID/NAME; false: there is none, or it is not for us. */
static bool proc_text(pid_t pid, const char *name, char *text)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, TEXT_BYTES - 1);
	close(fd);
	text[MAX(n, 0)] = '\0';
	return n > 0;
}

struct proc_stat {
	char state;
	unsigned int flags;
	unsigned long long started;
};

/* Behind the name, which may hold anything. */
static bool read_stat(pid_t pid, struct proc_stat *st)
{
	char text[TEXT_BYTES];
	const char *at = proc_text(pid, "stat", text) ? strrchr(text, ')') : NULL;

	return at && sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d "
			    "%*d %*d %*d %*d %llu", &st->state, &st->flags, &st->started) == 3;
}

uint64_t proc_start_time(pid_t pid)
{
	struct proc_stat st;

	return read_stat(pid, &st) ? st.started : 0;
}

bool proc_has_ended(pid_t pid)
{
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	bool ended = p.fd < 0 ? errno == ESRCH : poll(&p, 1, 0) > 0;

	if (p.fd >= 0)
		close(p.fd);
	return ended;
}

static bool kill_pends(const char *status, const char *set)
{
	const char *at = strstr(status, set);
	unsigned long long signals;

	return at && sscanf(at + strlen(set), "%llx", &signals) == 1 &&
	       signals >> (SIGKILL - 1) & 1;
}

bool proc_is_dying(pid_t pid)
{
	char status[TEXT_BYTES];
	struct proc_stat st;

	if (read_stat(pid, &st) && (strchr("ZX", st.state) || st.flags & PF_EXITING))
		return true;
	return proc_text(pid, "status", status) &&
	       (kill_pends(status, "\nSigPnd:") || kill_pends(status, "\nShdPnd:"));
}

int proc_peer(int fd, struct proc_peer *p, struct err *e)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return err_set(e, err_from_errno(errno), "the kernel does not say who listens: %m");
	p->pid = cred.pid;
	p->uid = cred.uid;
	p->started = cred.pid > 0 ? proc_start_time(cred.pid) : 0;
	return 0;
}

int proc_peer_check(const struct proc_peer *p, const char *path, struct err *e)
{
	if (p->uid == 0 || p->uid == geteuid())
		return 0;
	return err_set(e, TALLY_EAUTH, "who listens on %s is user %u, not this process's user %u "
		       "or root", path, (unsigned int)p->uid, (unsigned int)geteuid());
}

static int open_peer(int fd, const struct proc_peer *p, struct err *e)
{
	socklen_t len = sizeof(int);
	int process = -1;

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &len))
		return process;
	if (errno != ENOPROTOOPT && errno != ESRCH && errno != EINVAL)
		return limit_err(e, errno, "process %d cannot be held", (int)p->pid);
	process = errno == ENOPROTOOPT ? (int)syscall(SYS_pidfd_open, p->pid, 0) : -1;
	if (process < 0)
		return err_set(e, TALLY_ESHUTDOWN, "process %d, which listened there, has ended",
			       (int)p->pid);
	if (p->started && proc_start_time(p->pid) == p->started)
		return process;
	close(process);
	return err_set(e, TALLY_ESHUTDOWN, "process %d is another one than listened there",
		       (int)p->pid);
}

int proc_peer_open(int fd, const struct proc_peer *p, struct err *e)
{
	struct pollfd ended = { .events = POLLIN };
	int code = 0;

	if (p->pid <= 0)
		return err_set(e, TALLY_ENOENT, "its process is in another PID namespace, where "
			       "it cannot be seen");
	ended.fd = open_peer(fd, p, e);
	if (ended.fd < 0)
		return ended.fd;
	if (poll(&ended, 1, 0) > 0)
		code = err_set(e, TALLY_ESHUTDOWN, "process %d, which listened there, has ended",
			       (int)p->pid);
	else if (syscall(SYS_pidfd_send_signal, ended.fd, 0, NULL, 0))
		code = err_set(e, err_from_errno(errno), "process %d of user %u cannot be "
			       "signalled: %m", (int)p->pid, (unsigned int)p->uid);
	if (!code)
		return ended.fd;
	close(ended.fd);
	return code;
}
