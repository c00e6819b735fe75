/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broom.h - work whose processes and files cannot outlive it.
 *
 * The work runs in a process of its own, and the broom is the process between
 * it and the caller:
 *
 *	caller --- broom --- work --- its children, and theirs
 *
 * When the work has ended, or the caller has, of anything, SIGKILL included, the
 * broom kills whoever descends from it and removes a directory.  It is their
 * subreaper: a process that left its group, its session or its parent is still
 * the broom's, so nobody gets away.  There is no other clean-up path, so the one
 * there is runs every time.  A broom that is killed takes the work with it, and
 * the caller removes the directory; of the work's children only those go then
 * that ask for it, as proc_start()'s do.
 *
 * Owner: the main thread, which must be the only one.
 */
#ifndef TALLY_CLI_BROOM_H
#define TALLY_CLI_BROOM_H

#include <signal.h>

#include "common/base/err.h"

/*
 * Blocks the signals that end a run: SIGINT, SIGTERM and, but for nohup, SIGHUP.
 * Those that come are not lost: broom_run passes them on to the work.
 */
void broom_hold_signals(sigset_t *held);

/*
 * Runs work(arg) and sweeps behind it; `dir` is absolute, everything below it goes.
 * Work begins in a process group of its own with those signals blocked.  Its exit
 * status (128 + N: signal N killed it), or a negative code with a text: it was never run,
 * and dir is as it was.
 */
int broom_run(const char *dir, int (*work)(void *arg), void *arg, struct err *e);

#endif
