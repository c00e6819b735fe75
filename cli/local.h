/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h - a whole cluster on this machine: its options, its daemons.
 *
 * Life: local_cluster_up, the job, local_cluster_down; both print what goes
 * wrong themselves, because they know what to show (the last lines of a log).
 * Owner: the main thread.
 */
#ifndef TALLY_CLI_LOCAL_H
#define TALLY_CLI_LOCAL_H

#include "cli/sup.h"

#define LOCAL_NODES_MAX		64u	/* agents; CPU servers */
#define LOCAL_RANKS_TOTAL_MAX	256u
#define LOCAL_ARGS_MAX		16u	/* --agent-arg, --server-arg each */

static_assert(1 + 3 * LOCAL_NODES_MAX + LOCAL_RANKS_TOTAL_MAX <= SUP_CHILDREN_MAX,
	      "every child has a place");

struct local_args {
	const char *v[LOCAL_ARGS_MAX];
	uint32_t n;
};

struct local {
	/* options */
	uint32_t agents, servers, ranks;
	bool colocated;			/* every agent has a server beside it */
	bool keep_going;		/* a daemon's death does not end the job */
	const char *keep_logs;		/* NULL: logs go with the rest */
	uint32_t scheduler_port;	/* 0: any */
	struct local_args agent_args, server_args;
	char *const *command;

	/* run time */
	char dir[PATH_MAX];		/* 0700; sockets, state, logs */
	char log_dir[PATH_MAX];
	char bin_dir[PATH_MAX];		/* where this program lies; "" unknown */
	char scheduler[64];		/* "127.0.0.1:PORT" once it listens */
	uint16_t master_port;		/* MASTER_PORT of the ranks */
	struct sup sup;
	uint64_t told;			/* of the deaths of daemons: the number of the last one */
};

/* Path of agent i's socket, in buf. */
const char *local_socket(const struct local *l, uint32_t agent, char buf[PATH_MAX]);

/* Starts all daemons and waits until they are registered.  Exit code, 0 fine. */
int local_cluster_up(struct local *l);

/* Daemons that ended although nobody asked: each is told with the end of its log, once. */
bool local_daemon_died(const struct local *l);
void local_tell_deaths(struct local *l);

/* Stops agents, servers, scheduler in this order; what will not go is killed. */
void local_cluster_down(struct local *l);

#endif
