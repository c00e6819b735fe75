// SPDX-License-Identifier: Apache-2.0
/*
 * forget: a node that is dead, has left, or was refused is no longer shown.  It comes back if it
 * registers again.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/query.h"

static void print_usage(void)
{
	puts("Usage: tally forget [OPTION]... NAME\n"
	     "Shows a node no longer that is dead, has left, or was refused; NAME is its name,\n"
	     "or the address of a refused one that gave none.  One that is up stays: drain a\n"
	     "server, then stop it.  Without this such a node is shown for an hour.\n\n"
	     "  --scheduler HOST:PORT  where to ask (TALLY_SCHEDULER, " SCHED_DEFAULT ")\n"
	     "  --secret-file FILE     the cluster's join secret (TALLY_SECRET_FILE)");
}

enum { GO = -1 };	/* parse_opts: options are fine; go on */

static int parse_opts(int argc, char **argv, struct query_where *where, const char **name)
{
	static const struct option longs[] = {
		{ "scheduler", required_argument, NULL, 's' },
		{ "secret-file", required_argument, NULL, 'S' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	optind = 0;
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 's': where->endpoint = optarg; break;
		case 'S': where->secret_file = optarg; break;
		case 'h': print_usage(); return CMD_OK;
		default:
			fputs("Try: tally help forget\n", stderr);
			return CMD_USAGE;
		}
	}
	if (optind + 1 != argc)
		return cmd_usage_error("forget", "it needs the name of one node");
	*name = argv[optind];
	if (strlen(*name) > NAME_LEN_MAX || !**name)
		return cmd_usage_error("forget", "a name has 1 to %u characters", NAME_LEN_MAX);
	return GO;
}

int cmd_forget(int argc, char **argv)
{
	struct query_where where = {
		.endpoint = cmd_env("TALLY_SCHEDULER", SCHED_DEFAULT),
		.secret_file = cmd_env("TALLY_SECRET_FILE", NULL), .timeout_ms = 5000,
	};
	const char *name = NULL;
	struct err e;
	int status = parse_opts(argc, argv, &where, &name);

	if (status != GO)
		return status;
	if (query_forget(&where, name, &e)) {
		status = query_failed("forget", &where, &e);
		if (e.code == TALLY_ENOENT)
			query_suggest(&where, name);
		return status;
	}
	printf("%s is forgotten\n", name);
	return CMD_OK;
}
