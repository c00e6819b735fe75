// SPDX-License-Identifier: Apache-2.0
/*
 * The caller passes signals on as bytes in a pipe, the line, and waits for the
 * broom.  The broom waits for what comes first, the end of the line (the caller
 * is gone) or that of a second pipe, which only the work holds.  Then it kills its
 * children until it has none: the children of one that dies become its own.
 */
#include "cli/broom.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/proc.h"

#define SWEEP_MS 5000		/* for all to be gone; one that may not be killed stays */
#define LOOK_MS	10

void broom_hold_signals(sigset_t *held)
{
	struct sigaction hup;

	sigemptyset(held);
	sigaddset(held, SIGINT);
	sigaddset(held, SIGTERM);
	sigaction(SIGHUP, NULL, &hup);
	if (hup.sa_handler != SIG_IGN)		/* nohup means what it says */
		sigaddset(held, SIGHUP);
	sigprocmask(SIG_BLOCK, held, NULL);
}

/* ---- the broom ---- */

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	remove(path);		/* what cannot go stays; the others still go */
	return 0;
}

static void remove_tree(const char *dir)
{
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Of a process by its line in /proc; 0 if there is none. */
static pid_t parent_of(pid_t pid)
{
	char path[32], line[512];
	const char *name_end;
	int parent = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[n > 0 ? n : 0] = '\0';
	name_end = strrchr(line, ')');		/* a name may have spaces and brackets */
	if (!name_end || sscanf(name_end, ") %*c %d", &parent) != 1)
		return 0;
	return parent;
}

static void kill_children(void)
{
	DIR *all = opendir("/proc");
	struct dirent *entry;

	while (all && (entry = readdir(all))) {
		pid_t pid = (pid_t)atoi(entry->d_name);

		if (pid > 0 && parent_of(pid) == getpid())
			kill(pid, SIGKILL);
	}
	if (all)
		closedir(all);
}

/* Returns the work's wait status; -1 if even that cannot be killed. */
static int kill_all(pid_t work)
{
	int work_status = -1, status;
	pid_t pid;

	for (int ms = 0; ms < SWEEP_MS; ms += LOOK_MS) {
		kill_children();
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (pid == work)
				work_status = status;
		if (pid < 0)
			break;		/* no children */
		poll(NULL, 0, LOOK_MS);
	}
	return work_status;
}

/* The broom sits through everything that a terminal or a person may send. */
static void ignore_signals(void)
{
	static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP,
				       SIGTTIN, SIGTTOU };

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
}

static void close_between(int above, int below)
{
	if (above + 1 < below)
		close_range((unsigned)above + 1, (unsigned)below - 1, 0);
}

/* Any other descriptor would keep a pipe of somebody's open: `tally local | head`. */
static void keep_only(int a, int b)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; fd >= 0 && i < 3; i++)
		dup2(fd, i);
	close_between(2, MIN(a, b));
	close_between(MIN(a, b), MAX(a, b));
	close_between(MAX(a, b), INT_MAX);
}

/* Until the work or the caller has ended. */
static void pass_signals(pid_t work, int line_fd, int work_fd)
{
	struct pollfd fds[] = {
		{ .fd = work_fd, .events = POLLIN }, { .fd = line_fd, .events = POLLIN },
	};
	unsigned char signum;
	ssize_t n;

	for (;;) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			continue;
		if (fds[0].revents)
			return;
		n = read(line_fd, &signum, 1);
		if (n == 1)
			kill(work, signum);
		else if (n == 0 || errno != EINTR)
			return;
	}
}

static _Noreturn void work_begin(pid_t broom, int (*work)(void *arg), void *arg)
{
	sigset_t output;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != broom)
		_exit(127);
	setpgid(0, 0);			/* a terminal's Ctrl-C is for the caller alone */
	sigemptyset(&output);
	sigaddset(&output, SIGTTOU);	/* and its screen is for all of us */
	sigprocmask(SIG_BLOCK, &output, NULL);
	/* Grandchildren whose parent died are the work's to reap, while it is there. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	exit(work(arg));
}

static _Noreturn void broom_begin(int line_fd, const char *dir, int (*work)(void *arg), void *arg)
{
	pid_t self = getpid(), pid = -1;
	int end[2], status;

	setpgid(0, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!pipe2(end, O_CLOEXEC))
		pid = fork();
	if (pid < 0) {
		fprintf(stderr, "tally: cannot start a process: %s\n", strerror(errno));
		remove_tree(dir);
		_exit(1);
	}
	if (pid == 0) {
		close(end[0]);
		close(line_fd);
		work_begin(self, work, arg);
	}
	ignore_signals();
	keep_only(line_fd, end[0]);
	prctl(PR_SET_NAME, "tally-broom");
	pass_signals(pid, line_fd, end[0]);
	status = kill_all(pid);
	remove_tree(dir);
	_exit(proc_exit_code(status));
}

/* ---- the caller ---- */

/* Returns the broom's wait status. */
static int await(pid_t broom, int line_fd, const sigset_t *signals)
{
	int status;

	for (;;) {
		int signum = sigwaitinfo(signals, NULL);
		unsigned char byte = (unsigned char)signum;
		ssize_t n = 0;

		if (signum == SIGCHLD && waitpid(broom, &status, WNOHANG) == broom)
			return status;
		if (signum > 0 && signum != SIGCHLD)
			n = write(line_fd, &byte, 1);
		(void)n;		/* or the broom is gone, and SIGCHLD will say so */
	}
}

int broom_run(const char *dir, int (*work)(void *arg), void *arg, struct err *e)
{
	sigset_t signals, child;
	int line[2], status;
	pid_t pid;

	if (pipe2(line, O_CLOEXEC))
		return err_set(e, err_from_errno(errno), "pipe: %s", strerror(errno));
	broom_hold_signals(&signals);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	sigaddset(&signals, SIGCHLD);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	fflush(NULL);			/* or it would be written twice */
	pid = fork();
	if (pid < 0) {
		status = err_set(e, err_from_errno(errno), "fork: %s", strerror(errno));
		close(line[0]);
		close(line[1]);
		return status;
	}
	if (pid == 0) {
		close(line[1]);
		broom_begin(line[0], dir, work, arg);
	}
	close(line[0]);
	status = await(pid, line[1], &signals);
	close(line[1]);
	if (WIFSIGNALED(status))
		remove_tree(dir);
	return proc_exit_code(status);
}
