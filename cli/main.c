// SPDX-License-Identifier: Apache-2.0
/*
 * `tally VERB ...`: finds the verb in the table and calls it.
 *
 * Help, the list of verbs and the guess after a wrong one come from the same
 * table.  `tally help VERB` is the verb with --help.  What was printed is
 * flushed here and a full disk is a failure, not a silence.
 */
#include "cli/cmd.h"

#include <stdio.h>
#include <string.h>

#include "client/tally.h"
#include "common/rt/daemon.h"

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
};

static const struct verb verbs[] = {
#define X(verb, help) { #verb, cmd_##verb, help },
	CMD_TABLE(X)
#undef X
};

#define NVERBS (sizeof(verbs) / sizeof(verbs[0]))

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < NVERBS; i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static void print_help(FILE *out)
{
	fputs("Usage: tally VERB [OPTION]...\n"
	      "Sums gradients across machines: looks at a cluster, plans one, runs one here.\n\n",
	      out);
	for (size_t i = 0; i < NVERBS; i++)
		fprintf(out, "  %-10s%s\n", verbs[i].name, verbs[i].help);
	fputs("\n  help VERB     options and examples of a verb\n"
	      "  --version     the version\n\n"
	      "Exit status: 0 done, 1 failed, 2 wrong usage, 4 not found,\n"
	      "5 unreachable, 6 denied.\n", out);
}

static int unknown_verb(const char *name)
{
	const char *names[NVERBS];
	const char *near;

	for (size_t i = 0; i < NVERBS; i++)
		names[i] = verbs[i].name;
	near = cmd_nearest(name, names, NVERBS);
	fprintf(stderr, "tally: there is no verb '%s'", name);
	if (near)
		fprintf(stderr, "; did you mean '%s'?", near);
	fputs("\nTry: tally help\n", stderr);
	return CMD_USAGE;
}

static int run_verb(const char *name, int argc, char **argv)
{
	const struct verb *v = find_verb(name);
	char title[64];

	if (!v)
		return unknown_verb(name);
	snprintf(title, sizeof(title), "tally %s", v->name);
	argv[0] = title;
	return v->run(argc, argv);
}

static int help(int argc, char **argv)
{
	char flag[] = "--help";

	if (argc < 2) {
		print_help(stdout);
		return CMD_OK;
	}
	return run_verb(argv[1], 2, (char *[]){ argv[1], flag, NULL });
}

static int dispatch(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;

	if (!word) {
		print_help(stderr);
		return CMD_USAGE;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		printf("tally %s\n", tally_version());
		return CMD_OK;
	}
	if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h"))
		return help(argc - 1, argv + 1);
	return run_verb(word, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	daemon_std_descriptors();
	return daemon_printed("tally", dispatch(argc, argv));
}
