/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query.h - one question to the scheduler, one answer.
 *
 * Life: query_ask opens a connection, asks, and fills the report; the report's
 * strings live until query_close.  Owner: one thread, which blocks.  Errors:
 * ESCHED, ETIMEDOUT, EIO when it does not answer, with a text that says what to
 * do; whatever the scheduler itself answered otherwise.
 */
#ifndef TALLY_CLI_QUERY_H
#define TALLY_CLI_QUERY_H

#include "common/ctl/ctl.h"

#define SCHED_PORT		7470u
#define SCHED_DEFAULT		"127.0.0.1:7470"

struct query_where {
	const char *endpoint;		/* "HOST:PORT" */
	const char *secret_file;	/* with the cluster's join secret; NULL: none */
	uint32_t timeout_ms;
};

struct query {
	struct ctl_client *client;	/* owned */
	struct msg answer;		/* borrowed from client */
	const struct msg_report *report; /* inside answer */
};

/* what: enum query_what, or-ed; job: "" for all.  Nothing to close on error. */
int query_ask(struct query *s, const struct query_where *w, uint32_t what, const char *job,
	      struct err *e);
void query_close(struct query *s);

/* Asks for a server to be drained, or used again; 0: the scheduler has taken it. */
int query_drain(const struct query_where *w, const char *name, bool undo, struct err *e);

/* Asks for a node to be shown no longer that is dead or was refused. */
int query_forget(const struct query_where *w, const char *name, struct err *e);

/* Says on stderr which node's name is near the one that was typed, if one is. */
void query_suggest(const struct query_where *w, const char *typed);

/* Says on stderr why verb has failed and what can be done; the exit status. */
int query_failed(const char *verb, const struct query_where *w, const struct err *e);

#endif
