// SPDX-License-Identifier: Apache-2.0
/*
 * tally local: a whole cluster and one job on this machine.
 *
 * The way: a private directory, the broom that will remove it (broom.h), the
 * daemons, then COMMAND once per rank; when the last rank has ended, or one has
 * failed, or a daemon died, or somebody pressed Ctrl-C, everything is stopped in
 * reverse.  Ranks that lose a companion get a few seconds to print Tally's own
 * error, which says more than ours.
 *
 * Standard output is rank 0's alone, so that `... -- tally bench --json | jq`
 * works; the others' output goes to standard error behind "[rank 2]".
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/broom.h"
#include "cli/cmd.h"
#include "cli/local.h"
#include "common/base/base.h"
#include "common/base/parse.h"
#include "common/rt/host.h"
#include "common/rt/loop.h"

#define LAST_WORDS_MS	3000u	/* ranks after another rank's failure */
#define PORT_LEAST	10000u	/* for MASTER_PORT: below are services' */
#define PORT_TRIES	32
#define OBEY_MS		3000u	/* after a signal, until the next harder one */

static const char usage[] =
"Usage: tally local [OPTION]... -- COMMAND [ARG]...\n"
"Starts a scheduler, agents and servers here, runs COMMAND once per rank, cleans up.\n"
"\n"
"  --agents N         GPU machines to play, each with a server of its own (1; at most 64)\n"
"  --servers K        CPU machines with a server (0; at most 64)\n"
"  --ranks L          processes in all, spread evenly over the agents (one each; at most 256)\n"
"  --no-colocated     agents without servers beside them\n"
"  --keep-logs DIR    the daemons' logs go there and stay\n"
"  --keep-going       a daemon that dies is reported, the job goes on\n"
"  --scheduler-port P the scheduler's port (0: any)\n"
"  --agent-arg ARG    one more argument for every agent; may be repeated\n"
"  --server-arg ARG   one more argument for every server; may be repeated\n"
"\n"
"Each rank finds TALLY_RANK, TALLY_WORLD_SIZE, TALLY_LOCAL_RANK, TALLY_SOCKET,\n"
"TALLY_JOB and TALLY_SCHEDULER in its environment, and for torch.distributed what\n"
"torchrun sets: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1)\n"
"and MASTER_PORT (a free port).  Standard output is rank 0's; the other ranks' lines go\n"
"to standard error behind \"[rank 2]\".\n"
"Exit status: that of the first rank that failed; 128 + N after signal N;\n"
"127: COMMAND cannot be run; 1: the cluster failed.\n"
"\n"
"Example:\n"
"  tally local --agents 2 --servers 1 --ranks 4 -- tally bench -b 4K -e 64M -f 4\n";

enum { GO = -1 };	/* parse_opts: options are fine; go on */

enum local_opt {
	OPT_AGENTS = 1, OPT_SERVERS, OPT_RANKS, OPT_NO_COLOCATED, OPT_KEEP_LOGS,
	OPT_KEEP_GOING, OPT_PORT, OPT_AGENT_ARG, OPT_SERVER_ARG, OPT_HELP,
};

static const struct option longs[] = {
	{ "agents", required_argument, NULL, OPT_AGENTS },
	{ "servers", required_argument, NULL, OPT_SERVERS },
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "no-colocated", no_argument, NULL, OPT_NO_COLOCATED },
	{ "keep-logs", required_argument, NULL, OPT_KEEP_LOGS },
	{ "keep-going", no_argument, NULL, OPT_KEEP_GOING },
	{ "scheduler-port", required_argument, NULL, OPT_PORT },
	{ "agent-arg", required_argument, NULL, OPT_AGENT_ARG },
	{ "server-arg", required_argument, NULL, OPT_SERVER_ARG },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

static bool number(const char *option, uint64_t min, uint64_t max, uint32_t *out)
{
	struct err e;
	uint64_t v;

	if (parse_u64(optarg, min, max, &v, &e)) {
		cmd_usage_error("local", "%s: %s", option, e.text);
		return false;
	}
	*out = (uint32_t)v;
	return true;
}

static bool one_more(struct local_args *a, const char *option)
{
	if (a->n == LOCAL_ARGS_MAX) {
		cmd_usage_error("local", "%s: at most %u of them", option, LOCAL_ARGS_MAX);
		return false;
	}
	a->v[a->n++] = optarg;
	return true;
}

/* False: it was wrong, and that has been said. */
static bool take_option(struct local *l, int c)
{
	switch (c) {
	case OPT_AGENTS:
		return number("--agents", 1, LOCAL_NODES_MAX, &l->agents);
	case OPT_SERVERS:
		return number("--servers", 0, LOCAL_NODES_MAX, &l->servers);
	case OPT_RANKS:
		return number("--ranks", 1, LOCAL_RANKS_TOTAL_MAX, &l->ranks);
	case OPT_PORT:
		return number("--scheduler-port", 0, UINT16_MAX, &l->scheduler_port);
	case OPT_AGENT_ARG:
		return one_more(&l->agent_args, "--agent-arg");
	case OPT_SERVER_ARG:
		return one_more(&l->server_args, "--server-arg");
	case OPT_NO_COLOCATED:
		l->colocated = false;
		return true;
	case OPT_KEEP_GOING:
		l->keep_going = true;
		return true;
	case OPT_KEEP_LOGS:
		l->keep_logs = optarg;
		return true;
	default:	/* getopt_long has said what is wrong */
		fputs("Try: tally help local\n", stderr);
		return false;
	}
}

static int parse_opts(struct local *l, int argc, char **argv)
{
	int c;

	optind = 0;
	while ((c = getopt_long(argc, argv, "+h", longs, NULL)) != -1) {
		if (c == OPT_HELP || c == 'h') {
			fputs(usage, stdout);
			return CMD_OK;
		}
		if (!take_option(l, c))
			return CMD_USAGE;
	}
	if (optind >= argc)
		return cmd_usage_error("local", "what shall the ranks run? "
				       "e.g. tally local --agents 2 -- tally bench");
	l->command = argv + optind;
	if (!l->ranks)
		l->ranks = l->agents;
	if (!l->colocated && !l->servers)
		return cmd_usage_error("local", "--no-colocated without --servers K "
				       "leaves nobody to sum");
	if (div_round_up(l->ranks, l->agents) > LOCAL_RANKS_MAX)
		return cmd_usage_error("local", "at most %u ranks per agent", LOCAL_RANKS_MAX);
	return GO;
}

/* ---- set-up ---- */

static int make_dirs(struct local *l, struct err *e)
{
	char tmp[PATH_MAX], longest[PATH_MAX];

	if (!realpath(cmd_env("TMPDIR", "/tmp"), tmp))
		return err_set(e, err_from_errno(errno), "TMPDIR %s: %s",
			       cmd_env("TMPDIR", "/tmp"), strerror(errno));
	if ((size_t)snprintf(l->dir, sizeof(l->dir), "%s/tally-local-XXXXXX", tmp) >=
	    sizeof(l->dir) || strlen(local_socket(l, LOCAL_NODES_MAX, longest)) > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL,
			       "TMPDIR is too long for the path of a socket; try TMPDIR=/tmp");
	if (!mkdtemp(l->dir))
		return err_set(e, err_from_errno(errno), "%s: %s", l->dir, strerror(errno));
	if (!l->keep_logs) {
		memcpy(l->log_dir, l->dir, sizeof(l->log_dir));
		return 0;
	}
	if (mkdir(l->keep_logs, 0777) && errno != EEXIST)
		err_set(e, err_from_errno(errno), "%s: %s", l->keep_logs, strerror(errno));
	else if (!realpath(l->keep_logs, l->log_dir))
		err_set(e, err_from_errno(errno), "%s: %s", l->keep_logs, strerror(errno));
	else
		return 0;
	rmdir(l->dir);
	return e->code;
}

static void find_bin_dir(struct local *l)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return;
	path[n] = '\0';
	snprintf(l->bin_dir, sizeof(l->bin_dir), "%s", dirname(path));
}

/* ---- the job ---- */

/* One rank's environment: "NAME=value", each once; all points into text. */
#define RANK_ENV_MAX	14u

struct rank_env {
	char text[RANK_ENV_MAX][PATH_MAX * 3];
	const char *all[RANK_ENV_MAX + 1];	/* ends with NULL */
	uint32_t n;
};

/* How many ranks an agent has: ranks are contiguous, the first agents get one more. */
static uint32_t ranks_of(const struct local *l, uint32_t agent)
{
	return l->ranks / l->agents + (agent < l->ranks % l->agents);
}

/* Rank r's agent and its number there. */
static void seat_of(const struct local *l, uint32_t rank, uint32_t *agent, uint32_t *seat)
{
	*agent = 0;
	*seat = rank;
	while (*seat >= ranks_of(l, *agent))
		*seat -= ranks_of(l, (*agent)++);
}

__attribute__((format(printf, 2, 3)))
static void env_add(struct rank_env *v, const char *format, ...)
{
	va_list ap;

	ASSERT(v->n < RANK_ENV_MAX);
	va_start(ap, format);
	vsnprintf(v->text[v->n], sizeof(v->text[0]), format, ap);
	va_end(ap);
	v->all[v->n] = v->text[v->n];
	v->n++;
}

/* Fills v with the place of a rank in the job, in Tally's variables and in torchrun's. */
static void make_env(const struct local *l, uint32_t rank, struct rank_env *v)
{
	uint32_t agent, seat;
	char socket[PATH_MAX];

	seat_of(l, rank, &agent, &seat);
	memset(v, 0, sizeof(*v));
	env_add(v, "TALLY_RANK=%u", rank);
	env_add(v, "TALLY_WORLD_SIZE=%u", l->ranks);
	env_add(v, "TALLY_LOCAL_RANK=%u", seat);
	env_add(v, "TALLY_SOCKET=%s", local_socket(l, agent, socket));
	env_add(v, "TALLY_JOB=local-%d", (int)getpid());
	env_add(v, "TALLY_SCHEDULER=%s", l->scheduler);
	/* This cluster has no join secret, and refuses the one of the user's own. */
	env_add(v, "TALLY_SECRET_FILE=");
	env_add(v, "RANK=%u", rank);
	env_add(v, "WORLD_SIZE=%u", l->ranks);
	env_add(v, "LOCAL_RANK=%u", seat);
	env_add(v, "LOCAL_WORLD_SIZE=%u", ranks_of(l, agent));
	env_add(v, "MASTER_ADDR=127.0.0.1");
	env_add(v, "MASTER_PORT=%u", l->master_port);
	/* So that `-- tally bench` finds this build when nothing is installed. */
	if (l->bin_dir[0])
		env_add(v, "PATH=%s:%s", cmd_env("PATH", "/usr/bin:/bin"), l->bin_dir);
}

/* The lowest port that the kernel gives to connections and to port 0; its default if unknown. */
static uint32_t first_given_port(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	uint32_t first;

	if (!f || fscanf(f, "%" SCNu32, &first) != 1)
		first = 32768;
	if (f)
		fclose(f);
	return MIN(first, UINT16_MAX);
}

/* Finds out whether a port is free, or with 0 any that is; 0 or a negative code. */
static int try_port(uint16_t port, uint16_t *got, struct err *e)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		rc = err_set(e, err_from_errno(errno), "a port for MASTER_PORT: %s",
			     strerror(errno));
	if (fd >= 0)
		close(fd);
	*got = ntohs(a.sin_port);
	return rc;
}

/*
 * Chooses a free TCP port for MASTER_PORT, on which rank 0 will listen if it uses
 * torch.distributed.  Until then the kernel gives no port below first_given_port() to a
 * connection; only a program that asks for just this one can take it, and then torch says that
 * the address is in use.  Where all that are tried are taken it is one of the kernel's choice.
 */
static int choose_master_port(struct local *l, struct err *e)
{
	uint32_t end = first_given_port(), seed;

	for (int i = 0; i < PORT_TRIES && end > PORT_LEAST; i++) {
		if (host_random(&seed, sizeof(seed)))
			break;
		if (!try_port((uint16_t)(PORT_LEAST + seed % (end - PORT_LEAST)), &l->master_port,
			      e))
			return 0;
	}
	return try_port(0, &l->master_port, e);
}

/* Rank 0 may read what was piped in; a terminal it would only be stopped by. */
static int open_input(uint32_t rank)
{
	if (rank == 0 && !isatty(STDIN_FILENO))
		return -1;
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int start_rank(struct local *l, uint32_t rank, struct err *e)
{
	struct rank_env v;
	char label[SUP_LABEL_MAX + 1];
	int out[2] = { -1, -1 }, rc;
	struct proc_spec spec = {
		.argv = (const char *const *)l->command,
		.env = v.all,
		.in_fd = open_input(rank),
	};
	pid_t pid;

	make_env(l, rank, &v);
	if (rank && pipe2(out, O_CLOEXEC)) {
		rc = err_set(e, err_from_errno(errno), "pipe: %s", strerror(errno));
		goto close_input;
	}
	if (rank)
		fcntl(out[0], F_SETFL, O_NONBLOCK);
	spec.out_fd = spec.err_fd = out[1];
	rc = proc_start(&spec, &pid, e);
	if (out[1] >= 0)
		close(out[1]);
	if (rc) {
		if (out[0] >= 0)
			close(out[0]);
		goto close_input;
	}
	snprintf(label, sizeof(label), "rank %u", rank);
	if (!sup_add(&l->sup, CHILD_RANK, label, pid, out[0], e))
		rc = e->code;
close_input:
	if (spec.in_fd >= 0)
		close(spec.in_fd);
	return rc;
}

/* Why the ranks shall stop before they are done, or NULL. */
static const char *trouble(const struct local *l, char buf[160])
{
	const struct child *bad = sup_first_ended(&l->sup, CHILD_RANK, true, 0);
	char how[96];

	if (l->sup.signum) {
		snprintf(buf, 160, "signal %d (%s)", l->sup.signum, strsignal(l->sup.signum));
		return buf;
	}
	if (bad) {
		snprintf(buf, 160, "%s %s", bad->label,
			 proc_end_text(how, sizeof(how), bad->wait_status));
		return buf;
	}
	return !l->keep_going && local_daemon_died(l) ? "a daemon died" : NULL;
}

/* Waits for the ranks; a signal that was not there before ends the wait. */
static bool ranks_end_within(struct local *l, uint32_t ms)
{
	mono_t end = loop_now() + mono_ms(ms);
	uint32_t signals = l->sup.signals;

	while (sup_running(&l->sup, CHILD_RANK) && l->sup.signals == signals &&
	       loop_now() < end)
		sup_turn(&l->sup, (int)((end - loop_now()) / NS_PER_MS) + 1);
	return !sup_running(&l->sup, CHILD_RANK);
}

/* Softly first: last words, the signal that we got, SIGTERM, SIGKILL. */
static void stop_ranks(struct local *l)
{
	if (!sup_running(&l->sup, CHILD_RANK))
		return;
	if (!l->sup.signum && ranks_end_within(l, LAST_WORDS_MS))
		return;
	sup_signal(&l->sup, CHILD_RANK, l->sup.signum ? l->sup.signum : SIGTERM);
	if (ranks_end_within(l, OBEY_MS))
		return;
	if (l->sup.signum) {
		sup_signal(&l->sup, CHILD_RANK, SIGTERM);
		if (ranks_end_within(l, OBEY_MS))
			return;
	}
	sup_signal(&l->sup, CHILD_RANK, SIGKILL);
	sup_wait(&l->sup, CHILD_RANK, OBEY_MS);
}

static int job_exit(const struct local *l, bool daemon_died)
{
	const struct child *bad = sup_first_ended(&l->sup, CHILD_RANK, true, 0);

	if (l->sup.signum)
		return 128 + l->sup.signum;
	if (bad)
		return proc_exit_code(bad->wait_status);
	return daemon_died && !l->keep_going ? CMD_FAILED : CMD_OK;
}

static int job_run(struct local *l)
{
	const char *why = NULL;
	char buf[160];
	struct err e;

	if (choose_master_port(l, &e)) {
		fprintf(stderr, "tally local: %s\n", e.text);
		return CMD_FAILED;
	}
	for (uint32_t r = 0; r < l->ranks; r++) {
		if (start_rank(l, r, &e)) {
			fprintf(stderr, "tally local: rank %u: %s\n", r, e.text);
			sup_signal(&l->sup, CHILD_RANK, SIGKILL);
			sup_wait(&l->sup, CHILD_RANK, OBEY_MS);
			return e.code == TALLY_ENOENT ? 127 : CMD_FAILED;
		}
	}
	while (sup_running(&l->sup, CHILD_RANK) && !why) {
		sup_turn(&l->sup, -1);
		local_tell_deaths(l);
		why = trouble(l, buf);
	}
	if (why && sup_running(&l->sup, CHILD_RANK))
		fprintf(stderr, "tally local: %s; stopping the other ranks\n", why);
	else if (why)
		fprintf(stderr, "tally local: %s\n", why);
	stop_ranks(l);
	return job_exit(l, local_daemon_died(l));
}

static int cluster_and_job(void *arg)
{
	struct local *l = arg;
	struct err e;
	int status;

	if (sup_init(&l->sup, 1 + 2 * l->agents + l->servers + l->ranks, &e)) {
		fprintf(stderr, "tally local: %s\n", e.text);
		return CMD_FAILED;
	}
	status = local_cluster_up(l);
	if (status == CMD_OK)
		status = job_run(l);
	else if (l->sup.signum)
		status = 128 + l->sup.signum;
	local_cluster_down(l);
	sup_fini(&l->sup);
	return status;
}

int cmd_local(int argc, char **argv)
{
	struct local l = { .agents = 1, .colocated = true };
	struct err e = { 0 };
	sigset_t held;
	int status = parse_opts(&l, argc, argv);

	if (status != GO)
		return status;
	find_bin_dir(&l);
	/* From here on a signal waits until somebody is there who will remove the directory. */
	broom_hold_signals(&held);
	if (make_dirs(&l, &e))
		goto failed;
	status = broom_run(l.dir, cluster_and_job, &l, &e);
	if (status >= 0)
		return status;
	rmdir(l.dir);
failed:
	fprintf(stderr, "tally local: %s\n", e.text);
	return CMD_FAILED;
}
