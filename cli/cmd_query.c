// SPDX-License-Identifier: Apache-2.0
/*
 * status, nodes, jobs: one question to the scheduler, shown as a table or as JSON; and
 * what they share with tensors: options, failure, showing it again and again.
 *
 * Each verb has one printer for people and one for programs.  JSON documents start with
 * "schema", which goes up when a field changes its meaning or goes away (a new field does
 * not count).
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/query.h"
#include "cli/query_verb.h"
#include "cli/screen.h"
#include "cli/states.h"
#include "cli/table.h"
#include "common/base/parse.h"

#define QUERY_SCHEMA 1

#define WATCH_S		2.0	/* --watch without a number */
#define WATCH_S_MIN	0.1
#define WATCH_S_MAX	86400.0

struct query_opts {
	struct query_where where;
	const char *job;	/* "": all */
	bool json, stuck, wide;
	double watch_s;		/* 0: once */
};

/* ---- text of numbers ---- */

static const char *bytes_text(char buf[32], uint64_t bytes)
{
	return bytes ? fmt_bytes(buf, 32, bytes) : "";
}

static const char *rate_text(char buf[32], uint64_t bits_per_s)
{
	return bits_per_s ? fmt_bitrate(buf, 32, bits_per_s) : "";
}

static const char *adder_text(char buf[40], uint64_t bytes_per_s)
{
	char bytes[32];

	if (!bytes_per_s)
		return "";
	snprintf(buf, 40, "%s/s", fmt_bytes(bytes, sizeof(bytes), bytes_per_s));
	return buf;
}

static const char *cluster_text(char buf[2 * ID_BYTES + 1], const uint8_t id[ID_BYTES])
{
	for (uint32_t i = 0; i < ID_BYTES; i++)
		snprintf(buf + 2 * i, 3, "%02x", id[i]);
	return buf;
}

/* Of its planned share a server that is slower than that gets less. */
static const char *pace_text(char buf[16], const struct msg_node_row *n)
{
	buf[0] = '\0';
	if (n->pace)
		snprintf(buf, 16, "%" PRIu32 " %%", n->pace);
	return buf;
}

static double frames_per_write(const struct msg_heartbeat *hb)
{
	return hb->writes ? (double)hb->frames / (double)hb->writes : 0;
}

static const char *some_text(char buf[16], double some)
{
	buf[0] = '\0';
	if (some > 0)
		snprintf(buf, 16, "%.3g", some);
	return buf;
}

/* ---- tables ---- */

/* The scheduler's word about it, else its own; "" without any. */
static const char *node_note(const struct msg_node_row *n)
{
	return n->note[0] ? n->note : n->last.note;
}

static const char nodes_columns[] =
"  NODE          its name\n"
"  KIND          agent or server\n"
"  STATE         up, away (may come back), draining, drained, dead, left (was drained)\n"
"  SINCE         it is in that state\n"
"  MACHINE       machine id: the same text is the same machine\n"
"  ADDRESS       of its first NIC; a server's with the port\n"
"  NICS          that it uses\n"
"  RATE          all its NICs together, each way\n"
"  ADDER         server: what it reads while it sums, measured at start\n"
"  MEMORY        server: its --memory\n"
"  USED          server: of that; agent: what it shares with its processes\n"
"  JOBS          that it takes part in\n"
"  LINKS         data links that are up\n"
"  LINKS/PEER    agent: to one engine of a server, the most\n"
"  FRAMES/WRITE  frames that one call brings to a socket, on average; more is cheaper\n"
"  FLIGHT        what may be under way on its NICs at once\n"
"  ROUNDS        finished since it was started: tensors' (agent), segments' (server)\n"
"  DROPS         frames that were stale, doubled or malformed\n"
"  PACE          server that was found slow: what it gets of its planned share\n"
"  NOTE          why it is not up, which jobs bypass it, what is worth knowing about it\n";

static bool nodes_table(const struct msg_report *r, FILE *out, uint32_t columns)
{
	struct table t;
	bool ok;

	table_init(&t, "~NODE KIND:6 STATE >SINCE:16 ~MACHINE:21 ~ADDRESS:8 >NICS:12 >RATE:5 "
		       ">ADDER:7 >MEMORY:10 >USED:9 >JOBS:4 >LINKS:13 >LINKS/PEER:19 "
		       ">FRAMES/WRITE:20 >FLIGHT:18 >ROUNDS:11 >DROPS:14 >PACE:3 ~NOTE");
	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];
		char rate[32], adder[40], memory[32], used[32], flight[32], pace[16];
		char links[16], frames[16], since[32], note[2 * ERR_TEXT_MAX];

		table_cell(&t, "%s", n->name);
		table_cell(&t, "%s", msg_kind_name(n->kind));
		table_cell(&t, "%s", n->state);
		table_cell(&t, "%s", fmt_seconds(since, sizeof(since),
						 (double)(n->state_ms / 1000)));
		table_cell(&t, "%s", n->machine);
		table_cell(&t, "%s", n->addr);
		table_cell(&t, "%" PRIu32, n->rails);
		table_cell(&t, "%s", rate_text(rate, n->bits_per_s));
		table_cell(&t, "%s", adder_text(adder, n->adder_bytes_per_s));
		table_cell(&t, "%s", bytes_text(memory, n->memory_bytes));
		table_cell(&t, "%s", bytes_text(used, n->last.memory_used_bytes));
		table_cell(&t, "%" PRIu32, n->jobs);
		table_cell(&t, "%" PRIu32, n->last.links);
		table_cell(&t, "%s", some_text(links, n->last.links_per_peer));
		table_cell(&t, "%s", some_text(frames, frames_per_write(&n->last)));
		table_cell(&t, "%s", bytes_text(flight, n->last.flight_bytes));
		table_cell(&t, "%" PRIu64, n->last.rounds);
		table_cell(&t, "%" PRIu64, n->last.drops);
		table_cell(&t, "%s", pace_text(pace, n));
		table_cell(&t, "%s", states_note(note, sizeof(note), n));
	}
	ok = table_print(&t, out, columns);
	table_free(&t);
	return ok && states_refused_table(r, out, columns);
}

/* Nothing while it is not known. */
static void size_cell(struct table *t, uint64_t bytes)
{
	char text[32];

	table_cell(t, "%s", bytes ? fmt_bytes(text, sizeof(text), bytes) : "");
}

static void seconds_cell(struct table *t, double seconds)
{
	char text[32];

	table_cell(t, "%s", seconds > 0 ? fmt_seconds(text, sizeof(text), seconds) : "");
}

static const char jobs_columns[] =
"  NAME         TALLY_JOB, or what the launcher says\n"
"  STATE        gathering, reserving, recovering, up, down\n"
"  RANKS        that are there, of all\n"
"  AGENTS       that its ranks are attached to: one for each of its machines\n"
"  SERVERS      that sum for it\n"
"  TENSORS      declared\n"
"  BYTES        of all its tensors\n"
"  EPOCH        of its placement; goes up as chunks move\n"
"  PLANNED      one round of all its tensors, as predicted from the speed of NICs and adders\n"
"  MEASURED     the same as it was of late: time with tensors under way, from the first rank's\n"
"               submission to the sum, for as many bytes as all tensors have; at the agent\n"
"               where it is shortest, since the others' ranks also wait for that one's.\n"
"               Longer than PLANNED where ranks submit while they compute, or wait\n"
"  CHUNK        unit of placement\n"
"  SEGMENT      payload of one frame, at most\n"
"  WINDOW       credit of an agent at each server\n"
"  AGE          since its first rank came\n"
"  JOB          its number: another one for the next job of that name\n"
"  WAITING-FOR  who is missing, or what is awaited\n";

static bool jobs_table(const struct msg_report *r, FILE *out, uint32_t columns)
{
	struct table t;
	bool ok;

	table_init(&t, "~NAME STATE:5 >RANKS >AGENTS:12 >SERVERS:11 >TENSORS:13 >BYTES:8 >EPOCH:16 "
		       ">PLANNED:4 >MEASURED:3 >CHUNK:17 >SEGMENT:18 >WINDOW:19 >AGE:9 >JOB:15 "
		       "~WAITING-FOR");
	for (uint32_t i = 0; i < r->njobs; i++) {
		const struct msg_job_row *j = &r->jobs[i];
		char bytes[32], age[32];

		table_cell(&t, "%s", j->name);
		table_cell(&t, "%s", j->state);
		table_cell(&t, "%" PRIu32 "/%" PRIu32, j->attached, j->world);
		table_cell(&t, "%" PRIu32, j->machines);
		table_cell(&t, "%" PRIu32, j->servers);
		table_cell(&t, "%" PRIu32, j->tensors);
		table_cell(&t, "%s", fmt_bytes(bytes, sizeof(bytes), j->bytes));
		table_cell(&t, "%" PRIu64, j->epoch);
		seconds_cell(&t, j->round_time_s);
		seconds_cell(&t, j->measured_time_s);
		size_cell(&t, j->chunk_bytes);
		size_cell(&t, j->seg_bytes);
		size_cell(&t, j->window_bytes);
		table_cell(&t, "%s", fmt_seconds(age, sizeof(age), (double)j->age_ms / 1e3));
		table_cell(&t, "%" PRIu32, j->job);
		table_cell(&t, "%s", j->waiting_for);
	}
	ok = table_print(&t, out, columns);
	table_free(&t);
	return ok;
}

struct tally_of_nodes {
	uint64_t rounds, drops;
	struct msg_heartbeat sent;	/* frames, writes, links_per_peer */
};

static struct tally_of_nodes count_nodes(const struct msg_report *r)
{
	struct tally_of_nodes c = { 0 };

	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];

		c.drops += n->last.drops;
		c.sent.links_per_peer = MAX(c.sent.links_per_peer, n->last.links_per_peer);
		c.sent.frames += n->last.frames;
		c.sent.writes += n->last.writes;
		if (n->kind == NODE_AGENT)
			c.rounds += n->last.rounds;
	}
	return c;
}

struct status_out {
	FILE *out;
	uint32_t columns;
};

static void status_line(void *ctx, const char *label, const char *text)
{
	const struct status_out *o = ctx;

	screen_line(o->out, o->columns, label, "%s", text);
}

static bool status_table(const struct msg_report *r, FILE *out, uint32_t columns)
{
	struct tally_of_nodes c = count_nodes(r);
	char id[2 * ID_BYTES + 1], up[32], frames[16], nodes[2 * ERR_TEXT_MAX];

	screen_line(out, columns, "scheduler", "%s, version %s, up %s", r->state, r->version,
		    fmt_seconds(up, sizeof(up), (double)r->uptime_ms / 1e3));
	screen_line(out, columns, "cluster", "%s, epoch %" PRIu64, cluster_text(id, r->cluster),
		    r->epoch);
	screen_line(out, columns, "nodes", "%s", states_headline(nodes, sizeof(nodes), r));
	states_lines(r, status_line, &(struct status_out){ out, columns });
	screen_line(out, columns, "rounds", "%" PRIu64 " finished by the agents, %" PRIu64
		    " frame%s dropped", c.rounds, c.drops, plural(c.drops));
	if (c.sent.links_per_peer && c.sent.writes)
		screen_line(out, columns, "links", "%" PRIu32 " to a peer, %s frames per write",
			    c.sent.links_per_peer, some_text(frames, frames_per_write(&c.sent)));
	for (uint32_t i = 0; i < r->nnodes; i++) {
		if (r->nodes[i].pace)
			screen_line(out, columns, "slow", "server %s gets %" PRIu32
				    " %% of its share", r->nodes[i].name, r->nodes[i].pace);
		if (node_note(&r->nodes[i])[0])
			screen_line(out, columns, "note", "%s: %s", r->nodes[i].name,
				    node_note(&r->nodes[i]));
	}
	screen_line(out, columns, "jobs", "%" PRIu32, r->njobs);
	if (!r->njobs)
		return true;
	putc('\n', out);
	return jobs_table(r, out, columns);
}

/* ---- JSON ---- */

static void nodes_json(const struct msg_report *r, struct json *j)
{
	json_array(j, "nodes");
	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];

		json_object(j, NULL);
		json_u64(j, "node", n->node);
		json_str(j, "kind", msg_kind_name(n->kind));
		json_str(j, "name", n->name);
		json_str(j, "machine", n->machine);
		json_str(j, "address", n->addr);
		json_str(j, "state", n->state);
		json_u64(j, "state_ms", n->state_ms);
		json_str(j, "why", n->why);
		json_str(j, "bypassed", n->bypassed);
		json_str(j, "note", node_note(n));
		json_u64(j, "rails", n->rails);
		json_u64(j, "bits_per_s", n->bits_per_s);
		json_u64(j, "adder_bytes_per_s", n->adder_bytes_per_s);
		json_u64(j, "memory_bytes", n->memory_bytes);
		json_u64(j, "memory_used_bytes", n->last.memory_used_bytes);
		json_u64(j, "jobs", n->jobs);
		json_u64(j, "heartbeat_age_ms", n->heartbeat_age_ms);
		json_u64(j, "links", n->last.links);
		json_u64(j, "links_per_peer", n->last.links_per_peer);
		json_u64(j, "frames", n->last.frames);
		json_u64(j, "writes", n->last.writes);
		json_u64(j, "flight_bytes", n->last.flight_bytes);
		json_u64(j, "rounds", n->last.rounds);
		json_u64(j, "bytes_sent", n->last.bytes_sent);
		json_u64(j, "bytes_received", n->last.bytes_received);
		json_u64(j, "bytes_summed", n->last.bytes_summed);
		json_u64(j, "drops", n->last.drops);
		json_double(j, "busy_s", (double)n->last.busy_us / 1e6);
		json_u64(j, "pace_percent", n->pace ? n->pace : 100);
		json_end_object(j);
	}
	json_end_array(j);
}

static void nodes_all_json(const struct msg_report *r, struct json *j)
{
	nodes_json(r, j);
	states_refused_json(r, j);
}

static void jobs_json(const struct msg_report *r, struct json *j)
{
	json_array(j, "jobs");
	for (uint32_t i = 0; i < r->njobs; i++) {
		const struct msg_job_row *n = &r->jobs[i];

		json_object(j, NULL);
		json_u64(j, "job", n->job);
		json_str(j, "name", n->name);
		json_str(j, "state", n->state);
		json_str(j, "waiting_for", n->waiting_for);
		json_u64(j, "world_size", n->world);
		json_u64(j, "attached", n->attached);
		json_u64(j, "machines", n->machines);
		json_u64(j, "servers", n->servers);
		json_u64(j, "tensors", n->tensors);
		json_u64(j, "bytes", n->bytes);
		json_u64(j, "epoch", n->epoch);
		json_u64(j, "age_ms", n->age_ms);
		json_double(j, "round_time_s", n->round_time_s);
		json_double(j, "measured_round_time_s", n->measured_time_s);
		json_u64(j, "chunk_bytes", n->chunk_bytes);
		json_u64(j, "segment_bytes", n->seg_bytes);
		json_u64(j, "window_bytes", n->window_bytes);
		json_end_object(j);
	}
	json_end_array(j);
}

static void status_json(const struct msg_report *r, struct json *j)
{
	struct tally_of_nodes c = count_nodes(r);

	json_u64(j, "agents", states_count(r, NODE_AGENT, "up"));
	json_u64(j, "servers", states_count(r, NODE_SERVER, "up"));
	states_counts_json(r, j);
	json_u64(j, "rounds", c.rounds);
	json_u64(j, "drops", c.drops);
	json_u64(j, "links_per_peer", c.sent.links_per_peer);
	json_u64(j, "frames", c.sent.frames);
	json_u64(j, "writes", c.sent.writes);
	nodes_all_json(r, j);
	jobs_json(r, j);
}

static void print_json(const struct query_verb *v, const struct msg_report *r, FILE *out)
{
	char id[2 * ID_BYTES + 1];
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_u64(&j, "schema", QUERY_SCHEMA);
	json_str(&j, "cluster", cluster_text(id, r->cluster));
	json_u64(&j, "epoch", r->epoch);
	json_str(&j, "state", r->state);
	json_str(&j, "version", r->version);
	json_u64(&j, "uptime_ms", r->uptime_ms);
	v->json(r, &j);
	json_end_object(&j);
	json_end_document(&j);
}

/* ---- options, and the way all four go ---- */

static void print_usage(const struct query_verb *v)
{
	printf("Usage: tally %s [OPTION]...\n%s\n\n", v->name, v->help);
	puts("  --scheduler HOST:PORT  where to ask (TALLY_SCHEDULER, " SCHED_DEFAULT ")");
	puts("  --secret-file FILE     the cluster's join secret (TALLY_SECRET_FILE)");
	if (v->takes_job)
		puts("  --job NAME             of this job only");
	if (v->stuck)
		puts("  --stuck                rounds that wait: for whom, and since when");
	puts("  --json                 for programs: one object, fields as in docs/CLI.md\n"
	     "  --wide                 all columns in full; without, a terminal that is too\n"
	     "                         narrow gets the important ones, with texts shortened\n"
	     "  --watch[=SECONDS]      again and again (every 2 s), until Ctrl-C\n"
	     "  --timeout SECONDS      how long to wait for the answer (5)\n"
	     "  --help                 this text");
	if (v->columns)
		printf("\nColumns (-: nothing, or not known):\n%s", v->columns);
	if (v->columns == nodes_columns)
		printf("\nBelow, nodes that were refused, the last first:\n%s",
		       states_refused_columns);
}

enum { GO = -1 };	/* parse_opts: options are fine; go on */

/* An option that only some of the verbs have. */
static int has_option(const struct query_verb *v, bool has, const char *name)
{
	return has ? GO : cmd_usage_error(v->name, "it has no option --%s", name);
}

static int take_option(const struct query_verb *v, int c, struct query_opts *o)
{
	uint64_t seconds;
	struct err e;

	switch (c) {
	case 's':
		o->where.endpoint = optarg;
		return GO;
	case 'S':
		o->where.secret_file = optarg;
		return GO;
	case 'j':
		o->job = optarg;
		return has_option(v, v->takes_job, "job");
	case 'k':
		o->stuck = true;
		return has_option(v, v->stuck != NULL, "stuck");
	case 'J':
		o->json = true;
		return GO;
	case 'w':
		o->wide = true;
		return GO;
	case 'W':
		o->watch_s = WATCH_S;
		if (optarg && parse_decimal(optarg, WATCH_S_MIN, WATCH_S_MAX, &o->watch_s, &e))
			return cmd_usage_error(v->name, "--watch: seconds, %s", e.text);
		return GO;
	case 't':
		if (parse_u64(optarg, 1, 3600, &seconds, &e))
			return cmd_usage_error(v->name, "--timeout: %s", e.text);
		o->where.timeout_ms = (uint32_t)seconds * 1000;
		return GO;
	case 'h':
		print_usage(v);
		return CMD_OK;
	default:
		fprintf(stderr, "Try: tally help %s\n", v->name);
		return CMD_USAGE;
	}
}

static int parse_opts(const struct query_verb *v, int argc, char **argv, struct query_opts *o)
{
	static const struct option longs[] = {
		{ "scheduler", required_argument, NULL, 's' },
		{ "secret-file", required_argument, NULL, 'S' },
		{ "job", required_argument, NULL, 'j' },
		{ "stuck", no_argument, NULL, 'k' },
		{ "json", no_argument, NULL, 'J' },
		{ "wide", no_argument, NULL, 'w' },
		{ "watch", optional_argument, NULL, 'W' },
		{ "timeout", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, status = GO;

	optind = 0;
	while (status == GO && (c = getopt_long(argc, argv, "+h", longs, NULL)) != -1)
		status = take_option(v, c, o);
	if (status == GO && optind < argc)
		return cmd_usage_error(v->name, "unexpected argument '%s'%s", argv[optind],
				       o->watch_s > 0 ? "; seconds follow --watch by '='" : "");
	return status;
}

/* ---- once, or again and again ---- */

/* 0 with the exit status in *status, or a negative code: the scheduler was not asked. */
static int show(const struct query_verb *v, const struct query_opts *o, FILE *out, int *status,
		struct err *e)
{
	struct query s = { 0 };
	int rc = query_ask(&s, &o->where, v->what, o->job, e);

	if (rc)
		return rc;
	*status = CMD_OK;
	if (o->job[0] && !s.report->njobs) {
		fprintf(stderr, "tally %s: there is no job '%s'; tally jobs lists them\n", v->name,
			o->job);
		*status = CMD_NOT_FOUND;
	} else if (o->json) {
		print_json(v, s.report, out);
	} else if (!v->table(s.report, out, screen_columns(o->wide))) {
		fprintf(stderr, "tally %s: out of memory\n", v->name);
		*status = CMD_FAILED;
	}
	query_close(&s);
	return 0;
}

struct watch {
	const struct query_verb *v;
	const struct query_opts *o;
	bool answered;			/* the scheduler has, at least once */
};

/* Whether an error may be over a moment later; a wrong secret or a wrong name stays wrong. */
static bool may_come_back(const struct err *e)
{
	return e->code == TALLY_ESCHED || e->code == TALLY_ETIMEDOUT ||
	       e->code == TALLY_ESHUTDOWN || e->code == TALLY_EIO;
}

static int draw(void *ctx, FILE *out)
{
	struct watch *w = ctx;
	struct err e;
	int status;

	if (!show(w->v, w->o, out, &status, &e)) {
		w->answered = true;
		return status;
	}
	if (!w->answered || !may_come_back(&e))
		return query_failed(w->v->name, &w->o->where, &e);
	screen_line(w->o->json ? stderr : out, screen_columns(false), "scheduler",
		    "%s; asked again every %.3g s", e.text, w->o->watch_s);
	return CMD_OK;
}

int query_run(const struct query_verb *v, int argc, char **argv)
{
	struct query_opts o = {
		.where = {
			.endpoint = cmd_env("TALLY_SCHEDULER", SCHED_DEFAULT),
			.secret_file = cmd_env("TALLY_SECRET_FILE", NULL),
			.timeout_ms = 5000,
		},
		.job = "",
	};
	struct watch w = { .o = &o };
	struct err e;
	int status = parse_opts(v, argc, argv, &o);

	if (status != GO)
		return status;
	v = o.stuck ? v->stuck : v;
	w.v = v;
	if (o.watch_s > 0)
		return screen_watch(&(struct screen_show){ .draw = draw, .ctx = &w,
				    .every_ms = (uint32_t)(1000 * o.watch_s),
				    .in_place = !o.json });
	if (show(v, &o, stdout, &status, &e))
		return query_failed(v->name, &o.where, &e);
	return status;
}

int cmd_status(int argc, char **argv)
{
	static const struct query_verb v = {
		"status", "Shows the cluster in a few lines: scheduler, nodes, jobs.",
		QUERY_NODES | QUERY_JOBS, status_table, status_json, false, NULL,
		NULL,
	};

	return query_run(&v, argc, argv);
}

int cmd_nodes(int argc, char **argv)
{
	static const struct query_verb v = {
		"nodes", "Shows every agent and server: state, NICs, rates, memory, counters.",
		QUERY_NODES, nodes_table, nodes_all_json, false, NULL, nodes_columns,
	};

	return query_run(&v, argc, argv);
}

int cmd_jobs(int argc, char **argv)
{
	static const struct query_verb v = {
		"jobs", "Shows every job: ranks, machines, tensors, and who is missing.",
		QUERY_JOBS, jobs_table, jobs_json, true, NULL, jobs_columns,
	};

	return query_run(&v, argc, argv);
}
