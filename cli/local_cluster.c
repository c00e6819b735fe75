// SPDX-License-Identifier: Apache-2.0
/*
 * The daemons of `tally local`: scheduler, then servers and agents, then a look
 * at the scheduler's list until all of them are in it.
 *
 * Everything is on 127.0.0.1 with ports that the kernel picks, so that any
 * number of clusters run side by side.  "Machines" are machine ids: agent i and
 * its server share local-i, so they speak through shared memory; every other
 * pair speaks TCP, as it would across a network.
 */
#include "cli/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/query.h"
#include "common/rt/loop.h"

#define UP_MS		30000u	/* servers measure their adders at start */
#define ASK_MS		1000u
#define LOOK_MS		20	/* between two looks at what has no event to wait for */
#define STOP_MS		3000u
#define LOG_LINES	12
#define LOGS_MAX	4	/* of those that are missing; all are named */
#define SCHEDULER	"scheduler"	/* its name among the nodes'; there is one */

/* What every card of the made-up machines claims: equal, so shares are equal. */
#define CARD		"10gbit"

#define ARGV_MAX	(24u + LOCAL_ARGS_MAX)

struct args {
	const char *v[ARGV_MAX + 1];
	uint32_t n;
};

static void arg(struct args *a, const char *word)
{
	ASSERT(a->n < ARGV_MAX);
	a->v[a->n++] = word;
	a->v[a->n] = NULL;
}

static void arg2(struct args *a, const char *option, const char *value)
{
	arg(a, option);
	arg(a, value);
}

static void args_more(struct args *a, const struct local_args *more)
{
	for (uint32_t i = 0; i < more->n; i++)
		arg(a, more->v[i]);
}

const char *local_socket(const struct local *l, uint32_t agent, char buf[PATH_MAX])
{
	int n = snprintf(buf, PATH_MAX, "%s/agent-%u.sock", l->dir, agent);

	ASSERT(n > 0 && n < PATH_MAX);
	return buf;
}

/* Joins two parts of a path; what does not fit is a name of nothing. */
static const char *join(char buf[PATH_MAX], const char *dir, const char *name, const char *end)
{
	int n = snprintf(buf, PATH_MAX, "%s/%s%s", dir, name, end);

	if (n < 0 || n >= PATH_MAX)
		buf[0] = '\0';
	return buf;
}

/* Next to this program, as in a build tree; else PATH decides. */
static const char *daemon_path(const struct local *l, const char *program, char buf[PATH_MAX])
{
	if (l->bin_dir[0] && access(join(buf, l->bin_dir, program, ""), X_OK) == 0)
		return buf;
	return program;
}

static int spawn(struct local *l, struct args *a, const char *name, struct err *e)
{
	char path[PATH_MAX], label[SUP_LABEL_MAX + 1], log[PATH_MAX];
	const char *program = a->v[0];
	struct proc_spec spec = { .argv = a->v };
	struct child *c;
	pid_t pid;
	int rc;

	join(log, l->log_dir, name, ".log");
	a->v[0] = daemon_path(l, program, path);
	spec.in_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	spec.out_fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	spec.err_fd = spec.out_fd;
	if (spec.in_fd < 0 || spec.out_fd < 0)
		rc = err_set(e, err_from_errno(errno), "%s: %s", log, strerror(errno));
	else
		rc = proc_start(&spec, &pid, e);
	if (spec.in_fd >= 0)
		close(spec.in_fd);
	if (spec.out_fd >= 0)
		close(spec.out_fd);
	if (rc)
		return rc;
	if (strcmp(name, SCHEDULER))
		snprintf(label, sizeof(label), "%s %s", program, name);
	else
		snprintf(label, sizeof(label), "%s", program);
	c = sup_add(&l->sup, CHILD_DAEMON, label, pid, -1, e);
	snprintf(c->log, sizeof(c->log), "%s", log);
	return 0;
}

static int start_scheduler(struct local *l, struct err *e)
{
	struct args a = { .n = 0 };
	char listen[64], state[PATH_MAX], port[PATH_MAX];

	snprintf(listen, sizeof(listen), "127.0.0.1:%u", l->scheduler_port);
	arg(&a, "tally-scheduler");
	arg2(&a, "--listen", listen);
	arg2(&a, "--state-dir", join(state, l->dir, "state", ""));
	arg2(&a, "--port-file", join(port, l->dir, "port", ""));
	return spawn(l, &a, SCHEDULER, e);
}

static int start_server(struct local *l, const char *name, const char *machine, struct err *e)
{
	struct args a = { .n = 0 };
	char shm[PATH_MAX];

	arg(&a, "tally-server");
	arg2(&a, "--scheduler", l->scheduler);
	arg2(&a, "--listen", "127.0.0.1:0@" CARD);
	arg2(&a, "--name", name);
	arg2(&a, "--machine-id", machine);
	arg2(&a, "--shm-socket", join(shm, l->dir, name, ".sock"));
	arg2(&a, "--engines", "1");
	args_more(&a, &l->server_args);
	return spawn(l, &a, name, e);
}

static int start_agent(struct local *l, uint32_t i, const char *name, const char *machine,
		       struct err *e)
{
	struct args a = { .n = 0 };
	char socket[PATH_MAX];

	arg(&a, "tally-agent");
	arg2(&a, "--scheduler", l->scheduler);
	arg2(&a, "--socket", local_socket(l, i, socket));
	arg2(&a, "--name", name);
	arg2(&a, "--machine-id", machine);
	arg2(&a, "--rail", "127.0.0.1@" CARD);
	arg2(&a, "--engines", "1");
	args_more(&a, &l->agent_args);
	return spawn(l, &a, name, e);
}

static int start_nodes(struct local *l, struct err *e)
{
	char name[32], machine[32];
	int rc = 0;

	for (uint32_t i = 0; !rc && l->colocated && i < l->agents; i++) {
		snprintf(name, sizeof(name), "server-%u", i);
		snprintf(machine, sizeof(machine), "local-%u", i);
		rc = start_server(l, name, machine, e);
	}
	for (uint32_t i = 0; !rc && i < l->servers; i++) {
		snprintf(name, sizeof(name), "cpu-%u", i);
		snprintf(machine, sizeof(machine), "local-cpu-%u", i);
		rc = start_server(l, name, machine, e);
	}
	for (uint32_t i = 0; !rc && i < l->agents; i++) {
		snprintf(name, sizeof(name), "agent-%u", i);
		snprintf(machine, sizeof(machine), "local-%u", i);
		rc = start_agent(l, i, name, machine, e);
	}
	return rc;
}

/* ---- what their logs say ---- */

/* The last lines of a file, indented; a full disk leaves none. */
static void print_tail(const char *path)
{
	char buf[8192];
	FILE *f = fopen(path, "re");
	size_t n, from;
	int lines = 0;

	if (!f)
		return;
	if (fseek(f, -(long)(sizeof(buf) - 1), SEEK_END))
		rewind(f);
	n = fread(buf, 1, sizeof(buf) - 1, f);
	fclose(f);
	buf[n] = '\0';
	for (from = n; from > 0; from--)
		if (buf[from - 1] == '\n' && from < n && ++lines == LOG_LINES)
			break;
	if (!buf[from])
		fprintf(stderr, "    (nothing is in %s: is the disk full?)\n", path);
	for (char *save, *line = strtok_r(buf + from, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		fprintf(stderr, "    %s\n", line);
}

/* ---- waiting until they are up ---- */

/* The scheduler writes its port when it listens; a file of digits and a newline. */
static bool scheduler_listens(struct local *l)
{
	char path[PATH_MAX];
	FILE *f = fopen(join(path, l->dir, "port", ""), "re");
	unsigned port = 0;
	char end = 0;

	if (!f)
		return false;
	if (fscanf(f, "%5u%c", &port, &end) == 2 && end == '\n' && port > 0 && port < 65536)
		snprintf(l->scheduler, sizeof(l->scheduler), "127.0.0.1:%u", port);
	fclose(f);
	return l->scheduler[0];
}

static bool ask_nodes(const struct local *l, struct query *s)
{
	const struct query_where where = { .endpoint = l->scheduler, .timeout_ms = ASK_MS };
	struct err e;

	*s = (struct query){ 0 };
	return query_ask(s, &where, QUERY_NODES, "", &e) == 0;
}

/* Nodes have names of their own here, whatever their kind. */
static bool is_up(const struct query *s, const struct child *c)
{
	const char *name = strchr(c->label, ' ') + 1;

	for (uint32_t i = 0; i < s->report->nnodes; i++)
		if (!strcmp(s->report->nodes[i].name, name))
			return !strcmp(s->report->nodes[i].state, "up");
	return false;
}

/* The children are the scheduler and then the nodes. */
static bool all_registered(struct local *l)
{
	struct query s;
	bool all = true;
	char path[PATH_MAX];

	for (uint32_t i = 0; i < l->agents; i++)
		if (access(local_socket(l, i, path), F_OK))
			return false;
	if (!ask_nodes(l, &s))
		return false;
	for (uint32_t i = 1; i < l->sup.count; i++)
		all = all && is_up(&s, &l->sup.children[i]);
	query_close(&s);
	return all;
}

/* The time is over: says who is missing; true: nobody is by now. */
static bool none_missing(const struct local *l)
{
	struct query s;
	uint32_t missing = 0;

	if (!l->scheduler[0] || !ask_nodes(l, &s)) {
		fprintf(stderr, "tally local: the scheduler did not answer within %u s; its log "
			"ends:\n", UP_MS / 1000);
		print_tail(l->sup.children[0].log);
		return false;
	}
	for (uint32_t i = 1; i < l->sup.count; i++) {
		const struct child *c = &l->sup.children[i];

		if (is_up(&s, c))
			continue;
		fprintf(stderr, "tally local: %s did not register within %u s%s\n", c->label,
			UP_MS / 1000, missing < LOGS_MAX ? "; its log ends:" : "");
		if (missing++ < LOGS_MAX)
			print_tail(c->log);
	}
	query_close(&s);
	return !missing;
}

static bool wait_up(struct local *l, bool (*up)(struct local *))
{
	mono_t end = loop_now() + mono_ms(UP_MS);

	while (!up(l)) {
		if (local_daemon_died(l)) {
			local_tell_deaths(l);
			return false;
		}
		if (l->sup.signum)
			return false;
		if (loop_now() > end)
			return none_missing(l);
		sup_turn(&l->sup, LOOK_MS);
	}
	return true;
}

int local_cluster_up(struct local *l)
{
	struct err e;
	int rc = start_scheduler(l, &e);

	if (!rc) {
		if (!wait_up(l, scheduler_listens))
			return CMD_FAILED;
		rc = start_nodes(l, &e);
	}
	if (rc) {
		fprintf(stderr, "tally local: %s\n", e.text);
		return CMD_FAILED;
	}
	if (!wait_up(l, all_registered))
		return CMD_FAILED;
	return CMD_OK;
}

/* ---- their end ---- */

bool local_daemon_died(const struct local *l)
{
	return sup_first_ended(&l->sup, CHILD_DAEMON, false, 0) != NULL;
}

void local_tell_deaths(struct local *l)
{
	const struct child *c;
	char how[96];

	while ((c = sup_first_ended(&l->sup, CHILD_DAEMON, false, l->told)) != NULL) {
		fprintf(stderr, "tally local: %s %s; its log ends:\n", c->label,
			proc_end_text(how, sizeof(how), c->wait_status));
		print_tail(c->log);
		l->told = c->ended;
	}
}

/* Daemons were added in the order of starting: the scheduler first, agents last. */
static void stop_daemons(struct local *l, const char *program)
{
	for (uint32_t i = 0; i < l->sup.count; i++) {
		const struct child *c = &l->sup.children[i];

		if (c->kind == CHILD_DAEMON && c->running && strstr(c->label, program))
			kill(c->pid, SIGTERM);
	}
}

static bool runs(const struct local *l, const char *program)
{
	for (uint32_t i = 0; i < l->sup.count; i++) {
		const struct child *c = &l->sup.children[i];

		if (c->kind == CHILD_DAEMON && c->running && strstr(c->label, program))
			return true;
	}
	return false;
}

void local_cluster_down(struct local *l)
{
	static const char *const order[] = { "tally-agent", "tally-server", "tally-scheduler" };
	mono_t end = loop_now() + mono_ms(STOP_MS);

	for (uint32_t i = 0; i < ARRAY_SIZE(order); i++) {
		stop_daemons(l, order[i]);
		while (runs(l, order[i]) && loop_now() < end)
			sup_turn(&l->sup, LOOK_MS);
	}
	if (sup_running(&l->sup, CHILD_DAEMON)) {
		sup_signal(&l->sup, CHILD_DAEMON, SIGKILL);
		sup_wait(&l->sup, CHILD_DAEMON, STOP_MS);
	}
}
