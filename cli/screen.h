/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.h - what a verb knows of where its output goes.
 *
 * A terminal has columns, and a table fits them; a pipe or a file gets all there is.
 * screen_watch() shows the same again and again: on a terminal in place, else one
 * after the other with an empty line between.
 *
 * Owner: one thread.  screen_watch() takes SIGINT for itself, which ends the process
 * with status 0: there is nothing to clean up in a verb that only asks.
 */
#ifndef TALLY_CLI_SCREEN_H
#define TALLY_CLI_SCREEN_H

#include <stdio.h>

#include "common/base/base.h"

/*
 * Columns of the terminal that is standard output; of one that does not say so COLUMNS,
 * else 80.  0, no bound: it is no terminal, or wide is true.
 */
uint32_t screen_columns(bool wide);

/* "head       words and more\n" within so many columns (0: one line): what is too long goes on
 * below its first word. */
void screen_line(FILE *out, uint32_t columns, const char *head, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

struct screen_show {
	/* Writes what there is to show now; 0: go on, else the status to end with. */
	int (*draw)(void *ctx, FILE *out);
	void *ctx;
	uint32_t every_ms;
	bool in_place;		/* on a terminal; false: one after the other there, too */
};

/* Until Ctrl-C, until draw ends it, or until nobody reads any more; the status. */
int screen_watch(const struct screen_show *s);

#endif
