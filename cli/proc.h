/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - child processes that do not outlive us: each asks the kernel for SIGKILL
 * at our death.  Their children need not go with them; that is the broom's work.
 *
 * Owner: the main thread, which must be the only one.  Errors: EIO, ENOMEM with a
 * text.
 */
#ifndef TALLY_CLI_PROC_H
#define TALLY_CLI_PROC_H

#include <sys/types.h>

#include "common/base/err.h"

struct proc_spec {
	const char *const *argv;	/* NULL at the end; argv[0] is looked up in PATH */
	const char *const *env;		/* "NAME=value" to set; NULL at the end; or NULL */
	int in_fd, out_fd, err_fd;	/* become 0, 1, 2; -1: inherited */
};

/*
 * Starts a child with default signals, in a process group of its own: what it sends to
 * its group is for itself.  Returns its pid in *pid; ENOENT when the program does not
 * exist or may not be run.
 */
int proc_start(const struct proc_spec *spec, pid_t *pid, struct err *e);

/* Exit status as a shell gives it: the code, or 128 + the signal. */
int proc_exit_code(int wait_status);

/* "exited with status 1", "was killed by signal 9 (Killed)"; returns buf. */
const char *proc_end_text(char *buf, size_t len, int wait_status);

#endif
