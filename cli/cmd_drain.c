// SPDX-License-Identifier: Apache-2.0
/*
 * drain: a server gives what it sums to the others, between two rounds, and is then
 * nobody's; jobs that start meanwhile do not get it.  By default the command waits
 * until that is so.
 */
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/query.h"
#include "common/base/parse.h"
#include "common/rt/loop.h"

#define LOOK_MS 100

struct drain_opts {
	struct query_where where;
	const char *name;
	bool undo, no_wait;
	uint64_t seconds;
};

static void print_usage(void)
{
	puts("Usage: tally drain [OPTION]... SERVER\n"
	     "Gives a server nothing more to do and waits until no job uses it: then it can be\n"
	     "stopped. Jobs train on. With --undo it is used again, from a coming round.\n\n"
	     "  --undo                 use it again\n"
	     "  --no-wait              do not wait until it is drained\n"
	     "  --timeout SECONDS      how long to wait (60)\n"
	     "  --scheduler HOST:PORT  where to ask (TALLY_SCHEDULER, " SCHED_DEFAULT ")\n"
	     "  --secret-file FILE     the cluster's join secret (TALLY_SECRET_FILE)");
}

enum { GO = -1 };	/* parse_opts: options are fine; go on */

static int parse_opts(int argc, char **argv, struct drain_opts *o)
{
	static const struct option longs[] = {
		{ "scheduler", required_argument, NULL, 's' },
		{ "secret-file", required_argument, NULL, 'S' },
		{ "undo", no_argument, NULL, 'u' },
		{ "no-wait", no_argument, NULL, 'n' },
		{ "timeout", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct err e;
	int c;

	optind = 0;
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 's': o->where.endpoint = optarg; break;
		case 'S': o->where.secret_file = optarg; break;
		case 'u': o->undo = true; break;
		case 'n': o->no_wait = true; break;
		case 't':
			if (parse_u64(optarg, 1, 86400, &o->seconds, &e))
				return cmd_usage_error("drain", "--timeout: %s", e.text);
			break;
		case 'h': print_usage(); return CMD_OK;
		default:
			fputs("Try: tally help drain\n", stderr);
			return CMD_USAGE;
		}
	}
	if (optind + 1 != argc)
		return cmd_usage_error("drain", "it needs the name of one server");
	o->name = argv[optind];
	if (strlen(o->name) > NAME_LEN_MAX || !*o->name)
		return cmd_usage_error("drain", "a name has 1 to %u characters", NAME_LEN_MAX);
	return GO;
}

enum seen { NOT_YET, DRAINED, USED_AGAIN };	/* look: else an error */

/* A scheduler that recovers does not know yet who uses it, nor one that has it away. */
static int seen(const struct drain_opts *o, const struct msg_report *r)
{
	if (!strcmp(r->state, "recovering"))
		return NOT_YET;
	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];

		if (n->kind != NODE_SERVER || strcmp(n->name, o->name))
			continue;
		if (!strcmp(n->state, "up"))
			return USED_AGAIN;
		return !strcmp(n->state, "drained") || !strcmp(n->state, "dead") ||
		       !strcmp(n->state, "left") ? DRAINED : NOT_YET;
	}
	return DRAINED;		/* it is gone */
}

static int look(const struct drain_opts *o, struct err *e)
{
	struct query s = { 0 };
	int rc = query_ask(&s, &o->where, QUERY_NODES, "", e);

	if (rc)
		return rc;
	rc = seen(o, s.report);
	query_close(&s);
	return rc;
}

static int wait_drained(const struct drain_opts *o)
{
	mono_t end = loop_now() + (mono_t)o->seconds * NS_PER_SEC;
	struct err e;
	int rc;

	for (;;) {
		rc = look(o, &e);
		if (rc < 0)
			return query_failed("drain", &o->where, &e);
		if (rc == USED_AGAIN) {
			fprintf(stderr, "tally drain: server %s is used again: --undo was said, or "
				"it was started anew\n", o->name);
			return CMD_FAILED;
		}
		if (rc == DRAINED)
			return CMD_OK;
		if (loop_now() >= end)
			break;
		(void)poll(NULL, 0, LOOK_MS);
	}
	fprintf(stderr, "tally drain: server %s is still draining after %llu s; it waits for "
		"rounds "
		"to end, or there is no other server\n", o->name, (unsigned long long)o->seconds);
	return CMD_FAILED;
}

int cmd_drain(int argc, char **argv)
{
	struct drain_opts o = {
		.where = {
			.endpoint = cmd_env("TALLY_SCHEDULER", SCHED_DEFAULT),
			.secret_file = cmd_env("TALLY_SECRET_FILE", NULL), .timeout_ms = 5000,
		},
		.seconds = 60,
	};
	struct err e;
	int status = parse_opts(argc, argv, &o);

	if (status != GO)
		return status;
	if (query_drain(&o.where, o.name, o.undo, &e)) {
		status = query_failed("drain", &o.where, &e);
		if (e.code == TALLY_ENOENT)
			query_suggest(&o.where, o.name);
		return status;
	}
	if (!o.undo && !o.no_wait) {
		status = wait_drained(&o);
		if (status != CMD_OK)
			return status;
		printf("server %s is drained\n", o.name);
	} else {
		printf("server %s is %s\n", o.name, o.undo ? "used again" : "draining");
	}
	return CMD_OK;
}
