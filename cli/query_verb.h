/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_verb.h - a verb that asks the scheduler one question and shows the answer.
 *
 * For: what such verbs share: options, what to ask, failure, JSON or table, --watch.
 * Not for: the question itself (query.h).  A verb is a constant; query_run() reads the
 * command line, asks, prints, and returns the exit status.
 */
#ifndef TALLY_CLI_QUERY_VERB_H
#define TALLY_CLI_QUERY_VERB_H

#include <stdio.h>

#include "cli/json.h"
#include "proto/msg.h"

struct query_verb {
	const char *name;
	const char *help;
	uint32_t what;
	bool (*table)(const struct msg_report *r, FILE *out, uint32_t columns); /* 0: no bound */
	void (*json)(const struct msg_report *r, struct json *j);
	bool takes_job;
	const struct query_verb *stuck;	/* with --stuck; NULL: it has no such option */
	const char *columns;	/* of the table, for --help */
};

int query_run(const struct query_verb *v, int argc, char **argv);

#endif
