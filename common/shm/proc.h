/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - another process of this machine: whether it lives, and who is behind a Unix socket.
 *
 * A number is a process's only as long as it lives: afterwards the kernel gives it to another one.
 * So nobody is signalled by number.  A descriptor of the process (pidfd) stays its own; where one
 * can only be had by number, the time at which the process was started tells it from a later one.
 *
 * Any thread.  Nothing here waits.
 */
#ifndef TALLY_SHM_PROC_H
#define TALLY_SHM_PROC_H

#include <sys/types.h>

#include "common/base/err.h"

bool proc_has_ended(pid_t pid);		/* whether or not its parent has asked after it */
/* Killed, or at its end: it accepts nothing any more, though its sockets may live on. */
bool proc_is_dying(pid_t pid);
uint64_t proc_start_time(pid_t pid);	/* clock ticks since boot; 0: it is not to be seen */

/* The peer of a connected Unix socket: the process that listens there, by the kernel's word. */
struct proc_peer {
	pid_t pid;			/* 0: in a PID namespace that is not to be seen */
	uid_t uid;
	uint64_t started;		/* proc_start_time() now */
};

int proc_peer(int fd, struct proc_peer *p, struct err *e);
/* 0, or EAUTH with a text: it is neither this process's user's nor root's. */
int proc_peer_check(const struct proc_peer *p, const char *path, struct err *e);
/*
 * The peer's pidfd, the caller's, CLOEXEC.  It is of the process that `p` was, which lives, and
 * which this process may signal; else an error with a text that says why not.
 */
int proc_peer_open(int fd, const struct proc_peer *p, struct err *e);

#endif
