// SPDX-License-Identifier: Apache-2.0
/*
 * fork, lead a group, arm the death signal, look whether the parent died before
 * that was armed, exec; a pipe that exec closes brings its failure back.
 */
#include "cli/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void use_fd(int fd, int as)
{
	if (fd >= 0 && dup2(fd, as) < 0)
		_exit(127);
}

/* In the child.  Returns only when exec failed, with errno. */
static void become(const struct proc_spec *spec, pid_t parent)
{
	sigset_t before, mask;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	use_fd(spec->in_fd, 0);
	use_fd(spec->out_fd, 1);
	use_fd(spec->err_fd, 2);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	/* Where the caller's terminal is for all to write to (stty tostop), it stays so. */
	sigprocmask(SIG_SETMASK, NULL, &before);
	sigemptyset(&mask);
	if (sigismember(&before, SIGTTOU) == 1)
		sigaddset(&mask, SIGTTOU);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	for (const char *const *p = spec->env; p && *p; p++)
		putenv((char *)(uintptr_t)*p);
	execvp(spec->argv[0], (char *const *)(uintptr_t)spec->argv);
}

int proc_start(const struct proc_spec *spec, pid_t *pid, struct err *e)
{
	pid_t parent = getpid(), child;
	int status[2], why = 0;
	ssize_t n;

	if (pipe2(status, O_CLOEXEC))
		return err_set(e, err_from_errno(errno), "pipe: %s", strerror(errno));
	child = fork();
	if (child == 0) {
		become(spec, parent);
		why = errno;
		n = write(status[1], &why, sizeof(why));
		_exit(n < 0 ? 126 : 127);
	}
	close(status[1]);
	if (child < 0) {
		close(status[0]);
		return err_set(e, err_from_errno(errno), "fork: %s", strerror(errno));
	}
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
