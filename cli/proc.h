/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - child processes that cannot outlive us, and the broom behind them.
 *
 * The broom is a small process of its own, started before any child.  It leads
 * the process group that all children join and waits for the end of a pipe that
 * only we hold.  When that comes, because we closed it or because we died of
 * anything, SIGKILL included, it kills the whole group (children of children
 * too) and removes the temporary directory.  There is no other clean-up path, so
 * the one there is runs every time.  As a second net every child asks the
 * kernel for SIGKILL at its parent's death.
 *
 * Life: broom_start, proc_start..., broom_sweep.  Owner: the main thread, which
 * must be the only one.  Errors: EIO, ENOMEM with a text.
 */
#ifndef TALLY_CLI_PROC_H
#define TALLY_CLI_PROC_H

#include <sys/types.h>

#include "common/base/err.h"

struct broom {
	pid_t group;		/* the broom's pid, and the group of all children */
	int life_fd;		/* owned; closed: sweep */
	int done_fd;		/* owned; its end: swept */
};

/* Starts the broom for directory `dir` (absolute; everything below it goes). */
int broom_start(struct broom *b, const char *dir, struct err *e);

/* Kills what is left of the group, removes the directory, returns when that is done. */
void broom_sweep(struct broom *b);

struct proc_spec {
	const char *const *argv;	/* NULL at the end; argv[0] is looked up in PATH */
	const char *const *env;		/* "NAME=value" to set; NULL at the end; or NULL */
	int in_fd, out_fd, err_fd;	/* become 0, 1, 2; -1: inherited */
};

/*
 * Starts a child in the broom's group with default signals.  Returns its pid in
 * *pid; ENOENT when the program does not exist or may not be run.
 */
int proc_start(const struct broom *b, const struct proc_spec *spec, pid_t *pid, struct err *e);

/* Exit status as a shell gives it: the code, or 128 + the signal. */
int proc_exit_code(int wait_status);

/* "exited with status 1", "was killed by signal 9 (Killed)"; returns buf. */
const char *proc_end_text(char *buf, size_t len, int wait_status);

#endif
