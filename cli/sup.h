/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sup.h - looking after the children of `tally local`: who runs, who ended and
 * how, what they print, which signals came.
 *
 * Everything happens in sup_turn(), which sleeps until something did or the
 * time is up; between turns the caller looks at the fields.  A child with a
 * pipe has its output passed to stderr line by line behind its label.
 *
 * Life: sup_init, sup_add after each proc_start, sup_turn..., sup_fini.  Owner:
 * the main thread.  Memory: the supervisor's, for at most `max` children,
 * SUP_CHILDREN_MAX at the most.
 */
#ifndef TALLY_CLI_SUP_H
#define TALLY_CLI_SUP_H

#include <limits.h>
#include <signal.h>

#include "cli/proc.h"

#define SUP_CHILDREN_MAX 512u
#define SUP_LABEL_MAX	31u
#define SUP_LINE_MAX	4096u		/* a longer line is printed in pieces */

enum child_kind { CHILD_DAEMON, CHILD_RANK };

struct child {
	enum child_kind kind;
	char label[SUP_LABEL_MAX + 1];	/* "tally-server server-0", "rank 2" */
	char log[PATH_MAX];		/* "": none */
	pid_t pid;
	bool running;
	int wait_status;		/* once not running */
	uint64_t ended;			/* 1 for the first child that ended, 2, ...; 0 running */
	int out_fd;			/* owned; -1: not ours to pass on */
	char *line;			/* owned; SUP_LINE_MAX bytes when out_fd >= 0 */
	size_t line_len;
};

struct sup {
	struct child *children;		/* owned */
	uint32_t count, max;
	uint64_t ends;			/* how many have ended */
	int signal_fd;			/* owned */
	int signum;			/* last SIGINT, SIGTERM or SIGHUP; 0: none */
	uint32_t signals;		/* how many of them came */
};

/* Blocks the signals it will read itself, for the rest of the process's life. */
int sup_init(struct sup *s, uint32_t max, struct err *e);

/* Closes descriptors and frees; children must have ended or been killed. */
void sup_fini(struct sup *s);

/* Takes over a started child and, when >= 0, the reading end of its output. */
struct child *sup_add(struct sup *s, enum child_kind kind, const char *label, pid_t pid,
		      int out_fd, struct err *e);

/* Sleeps at most timeout_ms until a child ends, prints, or a signal comes. */
void sup_turn(struct sup *s, int timeout_ms);

/* How many of a kind still run; the first that ended (badly: not with 0) of those whose number
 * is above after, or NULL. */
uint32_t sup_running(const struct sup *s, enum child_kind kind);
const struct child *sup_first_ended(const struct sup *s, enum child_kind kind, bool badly,
				    uint64_t after);

/* Sends signum to every running child of the kind. */
void sup_signal(struct sup *s, enum child_kind kind, int signum);

/* Turns until none of the kind runs: true, or the time is up: false. */
bool sup_wait(struct sup *s, enum child_kind kind, uint32_t timeout_ms);

#endif
