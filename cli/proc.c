// SPDX-License-Identifier: Apache-2.0
/*
 * Starting: fork, join the group, arm the death signal, look whether the parent
 * died before that was armed, exec; a pipe that exec closes brings its failure back.
 *
 * Sweeping: the broom reads the end of its pipe and forks once more; the child
 * leaves the group and kills it, so that the broom itself, whose pid keeps the
 * group's number from being given to strangers, dies with the others.
 */
#include "cli/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SWEEP_MS 2000		/* until the last process of the group must be gone */

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	remove(path);		/* what cannot go stays; the others still go */
	return 0;
}

static void sweep(pid_t group, const char *dir)
{
	if (setpgid(0, 0) == 0)
		kill(-group, SIGKILL);
	/* Twice: a process may make one more file while it dies.  Zombies that pid 1
	 * is slow to reap only delay the second time. */
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	for (int ms = 0; ms < SWEEP_MS && kill(-group, 0) == 0; ms += 10)
		poll(NULL, 0, 10);
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
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

static _Noreturn void broom_run(int life_fd, int done_fd, const char *dir)
{
	char byte;
	pid_t group = getpid();

	ignore_signals();
	keep_only(life_fd, done_fd);
	prctl(PR_SET_NAME, "tally-broom");
	while (read(life_fd, &byte, 1) > 0 || errno == EINTR)
		errno = 0;
	if (fork() == 0) {
		sweep(group, dir);
		_exit(0);
	}
	for (;;)
		pause();
}

int broom_start(struct broom *b, const char *dir, struct err *e)
{
	int life[2], done[2], rc;
	pid_t pid;

	/* Grandchildren whose parent died become ours to reap, whatever pid 1 does. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (pipe2(life, O_CLOEXEC))
		return err_set(e, err_from_errno(errno), "pipe: %s", strerror(errno));
	if (pipe2(done, O_CLOEXEC)) {
		rc = err_set(e, err_from_errno(errno), "pipe: %s", strerror(errno));
		goto close_life;
	}
	pid = fork();
	if (pid < 0) {
		rc = err_set(e, err_from_errno(errno), "fork: %s", strerror(errno));
		goto close_done;
	}
	if (pid == 0) {
		setpgid(0, 0);
		broom_run(life[0], done[1], dir);
	}
	setpgid(pid, pid);	/* both sides: whoever comes first */
	close(life[0]);
	close(done[1]);
	*b = (struct broom){ .group = pid, .life_fd = life[1], .done_fd = done[0] };
	return 0;

close_done:
	close(done[0]);
	close(done[1]);
close_life:
	close(life[0]);
	close(life[1]);
	return rc;
}

void broom_sweep(struct broom *b)
{
	struct pollfd done = { .fd = b->done_fd, .events = POLLIN };

	close(b->life_fd);
	/* The sweeper waits for the group to vanish: zombies of ours must not be in it. */
	while (poll(&done, 1, 10) <= 0)
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	close(b->done_fd);
}

static void use_fd(int fd, int as)
{
	if (fd >= 0 && dup2(fd, as) < 0)
		_exit(127);
}

/* In the child.  Returns only when exec failed, with errno. */
static void become(const struct broom *b, const struct proc_spec *spec, pid_t parent)
{
	sigset_t none;

	setpgid(0, b->group);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	use_fd(spec->in_fd, 0);
	use_fd(spec->out_fd, 1);
	use_fd(spec->err_fd, 2);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (const char *const *p = spec->env; p && *p; p++)
		putenv((char *)(uintptr_t)*p);
	execvp(spec->argv[0], (char *const *)(uintptr_t)spec->argv);
}

int proc_start(const struct broom *b, const struct proc_spec *spec, pid_t *pid, struct err *e)
{
	pid_t parent = getpid(), child;
	int status[2], why = 0;
	ssize_t n;

	if (pipe2(status, O_CLOEXEC))
		return err_set(e, err_from_errno(errno), "pipe: %s", strerror(errno));
	child = fork();
	if (child == 0) {
		become(b, spec, parent);
		why = errno;
		n = write(status[1], &why, sizeof(why));
		_exit(n < 0 ? 126 : 127);
	}
	close(status[1]);
	if (child < 0) {
		close(status[0]);
		return err_set(e, err_from_errno(errno), "fork: %s", strerror(errno));
	}
	setpgid(child, b->group);	/* fails harmlessly when it has exec'd already */
	do
		n = read(status[0], &why, sizeof(why));
	while (n < 0 && errno == EINTR);
	close(status[0]);
	if (n == (ssize_t)sizeof(why)) {
		waitpid(child, NULL, 0);
		return err_set(e, TALLY_ENOENT, "cannot run '%s': %s", spec->argv[0],
			       strerror(why));
	}
	*pid = child;
	return 0;
}

int proc_exit_code(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

const char *proc_end_text(char *buf, size_t len, int wait_status)
{
	if (WIFSIGNALED(wait_status))
		snprintf(buf, len, "was killed by signal %d (%s)", WTERMSIG(wait_status),
			 strsignal(WTERMSIG(wait_status)));
	else
		snprintf(buf, len, "exited with status %d", WEXITSTATUS(wait_status));
	return buf;
}
