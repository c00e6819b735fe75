/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - the verbs of `tally`, and what they have in common.
 *
 * A verb is one function with main's arguments: argv[0] is "tally VERB" (for
 * getopt's messages), the rest are its own options, read with getopt_long (set
 * optind = 0 first).  Data goes to stdout, talk to stderr.  It returns the exit
 * code below; it never exits by itself, so that main can flush stdout and notice
 * a full disk.
 */
#ifndef TALLY_CLI_CMD_H
#define TALLY_CLI_CMD_H

#include <stdbool.h>

#include "common/base/limits.h"

/* Exit codes, the same for every verb. */
enum cmd_exit {
	CMD_OK = 0,
	CMD_FAILED = 1,		/* the operation failed */
	CMD_USAGE = 2,		/* the command line is wrong */
	CMD_NOT_FOUND = 4,	/* no such job, node, tensor */
	CMD_UNREACHABLE = 5,	/* the scheduler or the agent does not answer */
	CMD_DENIED = 6,		/* the secret is wrong or missing; no access to the agent */
};

/*  verb	one line of help */
#define CMD_TABLE(X) \
	X(status,	"the cluster in a few lines: scheduler, nodes, jobs") \
	X(nodes,	"every agent and server: state, cards, rates, memory") \
	X(jobs,		"every job: ranks, machines, tensors, who is missing") \
	X(tensors,	"every declared tensor: type, size, chunks; rounds that wait") \
	X(drain,	"give a server nothing to do, so that it can be stopped; or undo it") \
	X(forget,	"show a node no longer that is dead, has left, or was refused") \
	X(plan,		"what a cluster would do on paper: shares, round time, bottleneck") \
	X(local,	"run a whole cluster and a job on this machine, then clean up") \
	X(doctor,	"is this machine fit to be a node; how fast is the link to a peer") \
	X(bench,	"measure and check push_pull as one rank of a job")

#define X(verb, help) int cmd_##verb(int argc, char **argv);
CMD_TABLE(X)
#undef X

/* Reports an argument that is wrong and how to get help; returns CMD_USAGE. */
int cmd_usage_error(const char *verb, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The environment variable `name`, or `otherwise` when it is unset or empty. */
const char *cmd_env(const char *name, const char *otherwise);

/*
 * Of `count` names the one that `typed` most probably meant, or NULL when none
 * is near (more than a third of the letters would have to change).
 */
const char *cmd_nearest(const char *typed, const char *const *names, unsigned count);

#endif
