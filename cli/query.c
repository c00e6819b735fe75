// SPDX-License-Identifier: Apache-2.0
/*
 * Connect, ask QUERY, take the REPORT.  A scheduler that is not there is the
 * commonest trouble of all, so its error names the address and the remedy.
 */
#include "cli/query.h"

#include <stdio.h>

#include "cli/cmd.h"
#include "common/base/parse.h"
#include "common/rt/secret.h"

#define SECRET_BYTES 256u

static int open_client(struct query *s, const struct query_where *w, struct err *e)
{
	char host[ADDR_LEN_MAX + 1];
	uint16_t port;
	int rc = parse_peer(w->endpoint, SCHED_PORT, host, &port, e);

	if (rc)
		return err_wrap(e, "scheduler %s", w->endpoint);
	rc = ctl_client_open(&s->client, host, port, w->timeout_ms, e);
	if (rc)
		err_wrap(e, "no scheduler at %s", w->endpoint);
	return rc;
}

/* An answer that is not what was asked for: the scheduler's own words, or EPROTO. */
static int unexpected(const struct query_where *w, const struct msg *answer, struct err *e)
{
	if (answer->type == MSG_REPLY && answer->reply.code)
		return err_set(e, answer->reply.code, "%s", answer->reply.text);
	return err_set(e, TALLY_EPROTO, "scheduler at %s answered with %s", w->endpoint,
		       msg_type_name(answer->type));
}

static int ask(struct query *s, const struct query_where *w, const struct msg *m,
	       enum msg_type expected, struct err *e)
{
	int rc = ctl_client_ask(s->client, m, &s->answer, e);

	if (rc) {
		err_wrap(e, "scheduler at %s", w->endpoint);
		return rc;
	}
	return s->answer.type == expected ? 0 : unexpected(w, &s->answer, e);
}

/* With a secret the scheduler wants to know first who asks. */
static int introduce(struct query *s, const struct query_where *w, const char *secret,
		     struct err *e)
{
	const struct msg hello = {
		.type = MSG_HELLO,
		.hello = {
			.version_min = MSG_VERSION,
			.version_max = MSG_VERSION,
			.kind = NODE_CLI,
			.name = "tally",
			.machine = "",
			.secret = secret,
			.shm_path = "",
		},
	};

	return secret[0] ? ask(s, w, &hello, MSG_WELCOME, e) : 0;
}

/* Nothing to close on error. */
static int connect_and_ask(struct query *s, const struct query_where *w, const struct msg *m,
			   enum msg_type expected, struct err *e)
{
	char secret[SECRET_BYTES];
	int rc;

	if (secret_read(w->secret_file, secret, sizeof(secret), e)) {
		e->code = TALLY_EINVAL;		/* the user's mistake, whatever the reason */
		return err_wrap(e, "--secret-file");
	}
	rc = open_client(s, w, e);
	if (rc)
		return rc;
	rc = introduce(s, w, secret, e);
	if (!rc)
		rc = ask(s, w, m, expected, e);
	if (rc)
		ctl_client_close(s->client);
	return rc;
}

int query_ask(struct query *s, const struct query_where *w, uint32_t what, const char *job,
	      struct err *e)
{
	const struct msg m = {
		.type = MSG_QUERY,
		.query = { .req = 1, .what = what, .job = job },
	};
	int rc = connect_and_ask(s, w, &m, MSG_REPORT, e);

	if (!rc)
		s->report = &s->answer.report;
	return rc;
}

/*
 * Sends a question whose answer is a REPLY; 0, or the code and text of the scheduler's refusal.
 */
static int demand(const struct query_where *w, const struct msg *m, struct err *e)
{
	struct query s = { 0 };
	int rc = connect_and_ask(&s, w, m, MSG_REPLY, e);

	if (rc)
		return rc;
	if (s.answer.reply.code)
		rc = err_set(e, s.answer.reply.code, "%s", s.answer.reply.text);
	query_close(&s);
	return rc;
}

int query_drain(const struct query_where *w, const char *name, bool undo, struct err *e)
{
	const struct msg m = {
		.type = MSG_DRAIN,
		.drain = { .req = 1, .name = name, .undo = undo },
	};

	return demand(w, &m, e);
}

int query_forget(const struct query_where *w, const char *name, struct err *e)
{
	const struct msg m = {
		.type = MSG_NODE_FORGET,
		.node_forget = { .req = 1, .name = name },
	};

	return demand(w, &m, e);
}

void query_suggest(const struct query_where *w, const char *typed)
{
	const char *names[NODES_MAX + REFUSED_MAX], *near;
	struct query s = { 0 };
	unsigned n = 0;
	struct err e;

	if (query_ask(&s, w, QUERY_NODES, "", &e))
		return;
	for (uint32_t i = 0; i < s.report->nnodes; i++)
		names[n++] = s.report->nodes[i].name;
	for (uint32_t i = 0; i < s.report->nrefused; i++)
		names[n++] = s.report->refused[i].name;
	near = cmd_nearest(typed, names, n);
	if (near)
		fprintf(stderr, "Did you mean '%s'?\n", near);
	query_close(&s);
}

int query_failed(const char *verb, const struct query_where *w, const struct err *e)
{
	fprintf(stderr, "tally %s: %s\n", verb, e->text);
	switch (e->code) {
	case TALLY_EINVAL:
		fprintf(stderr, "Try: tally help %s\n", verb);
		return CMD_USAGE;
	case TALLY_ENOENT:
		return CMD_NOT_FOUND;
	case TALLY_EAUTH:
		if (!w->secret_file)
			fputs("Give it with --secret-file FILE or TALLY_SECRET_FILE.\n", stderr);
		return CMD_DENIED;
	case TALLY_ESCHED:
	case TALLY_ETIMEDOUT:
	case TALLY_ESHUTDOWN:
	case TALLY_EIO:		/* nobody was asked: the name has no address here */
	case TALLY_EPROTO:	/* it is something else */
		fputs("Name another one with --scheduler HOST:PORT or TALLY_SCHEDULER.  Jobs that"
		      " train go on without it.\n", stderr);
		return CMD_UNREACHABLE;
	default:
		fprintf(stderr, "%s: %s\n", err_name(e->code), err_help(e->code));
		return CMD_FAILED;
	}
}

void query_close(struct query *s)
{
	ctl_client_close(s->client);
	*s = (struct query){ 0 };
}
