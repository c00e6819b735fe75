// SPDX-License-Identifier: Apache-2.0
/*
 * status, nodes, jobs, tensors: one question to the scheduler, shown as a table
 * or as JSON.
 *
 * The four verbs share options and failure; each has one printer for people and
 * one for programs.  JSON documents start with "schema", which goes up when a
 * field changes its meaning or goes away (a new field does not count).
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/query.h"
#include "cli/states.h"
#include "cli/table.h"
#include "common/base/parse.h"

#define QUERY_SCHEMA 1

struct query_opts {
	struct query_where where;
	const char *job;	/* "": all */
	bool json, stuck;
};

struct query_verb {
	const char *name;
	const char *help;
	uint32_t what;
	bool (*table)(const struct msg_report *r, FILE *out);
	void (*json)(const struct msg_report *r, struct json *j);
	bool takes_job;
	const struct query_verb *stuck;	/* with --stuck; NULL: it has no such option */
	const char *columns;	/* of the table, for --help; NULL: they explain themselves */
};

/* ---- text of numbers ---- */

static const char *kind_name(uint32_t kind)
{
	return kind == NODE_AGENT ? "agent" : kind == NODE_SERVER ? "server" : "other";
}

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
"  ADDRESS       of its first card; a server's with the port\n"
"  CARDS         that it uses\n"
"  RATE          all its cards together, each way\n"
"  ADDER         server: what it reads while it sums, measured at start\n"
"  MEMORY        server: its --memory\n"
"  USED          server: of that; agent: what it shares with its processes\n"
"  JOBS          that it takes part in\n"
"  LINKS         data links that are up\n"
"  LINKS/PEER    agent: to one engine of a server, the most\n"
"  FRAMES/WRITE  frames that one call brings to a socket, on average; more is cheaper\n"
"  FLIGHT        what may be under way on its cards at once\n"
"  ROUNDS        finished since it was started: tensors' (agent), segments' (server)\n"
"  DROPS         frames that were stale, doubled or malformed\n"
"  PACE          server that was found slow: what it gets of its planned share\n"
"  NOTE          why it is not up, which jobs bypass it, what is worth knowing about it\n";

static bool nodes_table(const struct msg_report *r, FILE *out)
{
	struct table t;
	bool ok;

	table_init(&t, "NODE KIND STATE >SINCE MACHINE ADDRESS >CARDS >RATE >ADDER >MEMORY >USED "
		       ">JOBS >LINKS >LINKS/PEER >FRAMES/WRITE >FLIGHT >ROUNDS >DROPS >PACE NOTE");
	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];
		char rate[32], adder[40], memory[32], used[32], flight[32], pace[16];
		char links[16], frames[16], since[32], note[2 * ERR_TEXT_MAX];

		table_cell(&t, "%s", n->name);
		table_cell(&t, "%s", kind_name(n->kind));
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
	ok = table_print(&t, out);
	table_free(&t);
	return ok && states_refused_table(r, out);
}

/* Nothing while it is not known. */
static void size_cell(struct table *t, uint64_t bytes)
{
	char text[32];

	table_cell(t, "%s", bytes ? fmt_bytes(text, sizeof(text), bytes) : "");
}

static bool jobs_table(const struct msg_report *r, FILE *out)
{
	struct table t;
	bool ok;

	table_init(&t, ">JOB NAME STATE >RANKS >MACHINES >SERVERS >TENSORS >BYTES >EPOCH >ROUND "
		       ">CHUNK >SEGMENT >WINDOW >AGE WAITING-FOR");
	for (uint32_t i = 0; i < r->njobs; i++) {
		const struct msg_job_row *j = &r->jobs[i];
		char bytes[32], round[32], age[32];

		table_cell(&t, "%" PRIu32, j->job);
		table_cell(&t, "%s", j->name);
		table_cell(&t, "%s", j->state);
		table_cell(&t, "%" PRIu32 "/%" PRIu32, j->attached, j->world);
		table_cell(&t, "%" PRIu32, j->machines);
		table_cell(&t, "%" PRIu32, j->servers);
		table_cell(&t, "%" PRIu32, j->tensors);
		table_cell(&t, "%s", fmt_bytes(bytes, sizeof(bytes), j->bytes));
		table_cell(&t, "%" PRIu64, j->epoch);
		table_cell(&t, "%s", j->round_time_s > 0
			   ? fmt_seconds(round, sizeof(round), j->round_time_s) : "");
		size_cell(&t, j->chunk_bytes);
		size_cell(&t, j->seg_bytes);
		size_cell(&t, j->window_bytes);
		table_cell(&t, "%s", fmt_seconds(age, sizeof(age), (double)j->age_ms / 1e3));
		table_cell(&t, "%s", j->waiting_for);
	}
	ok = table_print(&t, out);
	table_free(&t);
	return ok;
}

static uint64_t tensor_bytes(const struct msg_tensor_row *t)
{
	return t->count * dtype_bytes((uint8_t)t->dtype);
}

/* The scheduler says as many as fit into an answer; the jobs' rows say how many there are. */
static uint64_t left_out(const struct msg_report *r)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < r->njobs; i++)
		all += r->jobs[i].tensors;
	return all > r->ntensors ? all - r->ntensors : 0;
}

static bool tensors_table(const struct msg_report *r, FILE *out)
{
	struct table t;
	bool ok;

	table_init(&t, ">JOB >ID NAME DTYPE >COUNT >BYTES >CHUNKS >PRIORITY STATE WAITING-FOR");
	for (uint32_t i = 0; i < r->ntensors; i++) {
		const struct msg_tensor_row *n = &r->tensors[i];
		char bytes[32];

		table_cell(&t, "%" PRIu32, n->job);
		table_cell(&t, "%" PRIu32, n->id);
		table_cell(&t, "%s", n->name);
		table_cell(&t, "%s", dtype_name((uint8_t)n->dtype));
		table_cell(&t, "%" PRIu64, n->count);
		table_cell(&t, "%s", fmt_bytes(bytes, sizeof(bytes), tensor_bytes(n)));
		table_cell(&t, "%" PRIu32, n->chunks);
		table_cell(&t, "%" PRId32, n->priority);
		table_cell(&t, "%s", n->state);
		table_cell(&t, "%s", n->waiting_for);
	}
	ok = table_print(&t, out);
	table_free(&t);
	if (left_out(r))
		fprintf(stderr, "tally tensors: %" PRIu64 " more did not fit into the answer\n",
			left_out(r));
	return ok;
}

/* "rank 3", "ranks 0, 1, 2, 3 and 4 more", "server s0", "agent a (rank 3), silent for 1.9 s" */
static const char *stuck_who(char *buf, size_t size, const struct msg_stuck_row *n)
{
	char ranks[64] = "", silent[32];
	size_t at = 0;

	for (uint32_t i = 0; i < MIN(n->nranks, 4u); i++)
		at += (size_t)snprintf(ranks + at, sizeof(ranks) - at, "%s%" PRIu32,
				       i ? ", " : n->nranks > 1 ? "ranks " : "rank ", n->ranks[i]);
	if (n->nranks > 4)
		snprintf(ranks + at, sizeof(ranks) - at, " and %" PRIu32 " more", n->nranks - 4);
	if (!n->silent_ms && n->nranks)
		snprintf(buf, size, "%s", ranks);
	else if (n->nranks)
		snprintf(buf, size, "agent %s (%s)", n->name, ranks);
	else
		snprintf(buf, size, "server %s", n->name);
	if (n->silent_ms)
		snprintf(buf + strlen(buf), size - strlen(buf), ", silent for %s",
			 fmt_seconds(silent, sizeof(silent), (double)n->silent_ms / 1e3));
	return buf;
}

static bool stuck_table(const struct msg_report *r, FILE *out)
{
	struct table t;
	bool ok;

	table_init(&t, ">JOB TENSOR >ROUND >CHUNK >CHUNKS MACHINE >SINCE WAITING-FOR");
	for (uint32_t i = 0; i < r->nstuck; i++) {
		const struct msg_stuck_row *n = &r->stuck[i];
		char who[2 * NAME_LEN_MAX], age[32];

		table_cell(&t, "%" PRIu32, n->job);
		table_cell(&t, "%s", n->tensor);
		table_cell(&t, "%" PRIu32, n->round);
		table_cell(&t, "%" PRIu32, n->chunk);
		table_cell(&t, "%" PRIu32, n->chunks);
		table_cell(&t, "%s", n->machine);
		table_cell(&t, "%s", fmt_seconds(age, sizeof(age), (double)n->age_ms / 1e3));
		table_cell(&t, "%s", stuck_who(who, sizeof(who), n));
	}
	ok = table_print(&t, out);
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

static void status_line(void *ctx, const char *label, const char *text)
{
	fprintf(ctx, "%-11s%s\n", label, text);
}

static bool status_table(const struct msg_report *r, FILE *out)
{
	struct tally_of_nodes c = count_nodes(r);
	char id[2 * ID_BYTES + 1], up[32], frames[16], nodes[2 * ERR_TEXT_MAX];

	fprintf(out, "scheduler  %s, version %s, up %s\n", r->state, r->version,
		fmt_seconds(up, sizeof(up), (double)r->uptime_ms / 1e3));
	fprintf(out, "cluster    %s, epoch %" PRIu64 "\n", cluster_text(id, r->cluster), r->epoch);
	fprintf(out, "nodes      %s\n", states_headline(nodes, sizeof(nodes), r));
	states_lines(r, status_line, out);
	fprintf(out, "rounds     %" PRIu64 " finished by the agents, %" PRIu64
		" frames dropped\n", c.rounds, c.drops);
	if (c.sent.links_per_peer && c.sent.writes)
		fprintf(out, "links      %" PRIu32 " to a peer, %s frames per write\n",
			c.sent.links_per_peer, some_text(frames, frames_per_write(&c.sent)));
	for (uint32_t i = 0; i < r->nnodes; i++) {
		if (r->nodes[i].pace)
			fprintf(out, "slow       server %s gets %" PRIu32 " %% of its share\n",
				r->nodes[i].name, r->nodes[i].pace);
		if (node_note(&r->nodes[i])[0])
			fprintf(out, "note       %s: %s\n", r->nodes[i].name,
				node_note(&r->nodes[i]));
	}
	fprintf(out, "jobs       %" PRIu32 "\n", r->njobs);
	if (!r->njobs)
		return true;
	putc('\n', out);
	return jobs_table(r, out);
}

/* ---- JSON ---- */

static void nodes_json(const struct msg_report *r, struct json *j)
{
	json_array(j, "nodes");
	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];

		json_object(j, NULL);
		json_u64(j, "node", n->node);
		json_str(j, "kind", kind_name(n->kind));
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
		json_u64(j, "chunk_bytes", n->chunk_bytes);
		json_u64(j, "segment_bytes", n->seg_bytes);
		json_u64(j, "window_bytes", n->window_bytes);
		json_end_object(j);
	}
	json_end_array(j);
}

static void tensors_json(const struct msg_report *r, struct json *j)
{
	json_array(j, "tensors");
	for (uint32_t i = 0; i < r->ntensors; i++) {
		const struct msg_tensor_row *n = &r->tensors[i];

		json_object(j, NULL);
		json_u64(j, "job", n->job);
		json_u64(j, "id", n->id);
		json_str(j, "name", n->name);
		json_str(j, "dtype", dtype_name((uint8_t)n->dtype));
		json_u64(j, "count", n->count);
		json_u64(j, "bytes", tensor_bytes(n));
		json_u64(j, "chunks", n->chunks);
		json_i64(j, "priority", n->priority);
		json_str(j, "state", n->state);
		json_str(j, "waiting_for", n->waiting_for);
		json_end_object(j);
	}
	json_end_array(j);
	json_u64(j, "left_out", left_out(r));
}

static void stuck_json(const struct msg_report *r, struct json *j)
{
	json_array(j, "stuck");
	for (uint32_t i = 0; i < r->nstuck; i++) {
		const struct msg_stuck_row *n = &r->stuck[i];

		json_object(j, NULL);
		json_u64(j, "job", n->job);
		json_str(j, "tensor", n->tensor);
		json_u64(j, "round", n->round);
		json_u64(j, "chunk", n->chunk);
		json_u64(j, "chunks", n->chunks);
		json_str(j, "kind", n->nranks ? "agent" : "server");
		json_str(j, "name", n->name);
		json_str(j, "machine", n->machine);
		json_array(j, "ranks");
		for (uint32_t k = 0; k < n->nranks; k++)
			json_u64(j, NULL, n->ranks[k]);
		json_end_array(j);
		json_double(j, "seconds", (double)n->age_ms / 1e3);
		json_double(j, "silent_seconds", (double)n->silent_ms / 1e3);
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

static void print_json(const struct query_verb *v, const struct msg_report *r)
{
	char id[2 * ID_BYTES + 1];
	struct json j;

	json_init(&j, stdout);
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
	     "  --timeout SECONDS      how long to wait for the answer (5)");
	if (v->columns)
		printf("\nColumns (-: nothing, or not known):\n%s", v->columns);
	if (v->columns == nodes_columns)
		printf("\nBelow, nodes that were refused, the last first:\n%s",
		       states_refused_columns);
}

enum { GO = -1 };	/* parse_opts: options are fine; go on */

static int parse_opts(const struct query_verb *v, int argc, char **argv, struct query_opts *o)
{
	static const struct option longs[] = {
		{ "scheduler", required_argument, NULL, 's' },
		{ "secret-file", required_argument, NULL, 'S' },
		{ "job", required_argument, NULL, 'j' },
		{ "stuck", no_argument, NULL, 'w' },
		{ "json", no_argument, NULL, 'J' },
		{ "timeout", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	uint64_t seconds = 5;
	struct err e;
	int c;

	optind = 0;
	while ((c = getopt_long(argc, argv, "+h", longs, NULL)) != -1) {
		if (c == 's') {
			o->where.endpoint = optarg;
		} else if (c == 'S') {
			o->where.secret_file = optarg;
		} else if (c == 'j') {
			if (!v->takes_job)
				return cmd_usage_error(v->name, "it has no option --job");
			o->job = optarg;
		} else if (c == 'w') {
			if (!v->stuck)
				return cmd_usage_error(v->name, "it has no option --stuck");
			o->stuck = true;
		} else if (c == 'J') {
			o->json = true;
		} else if (c == 't') {
			if (parse_u64(optarg, 1, 3600, &seconds, &e))
				return cmd_usage_error(v->name, "--timeout: %s", e.text);
		} else if (c == 'h') {
			print_usage(v);
			return CMD_OK;
		} else {
			fprintf(stderr, "Try: tally help %s\n", v->name);
			return CMD_USAGE;
		}
	}
	if (optind < argc)
		return cmd_usage_error(v->name, "unexpected argument '%s'", argv[optind]);
	o->where.timeout_ms = (uint32_t)seconds * 1000;
	return GO;
}

static int query(const struct query_verb *v, int argc, char **argv)
{
	struct query_opts o = {
		.where = {
			.endpoint = cmd_env("TALLY_SCHEDULER", SCHED_DEFAULT),
			.secret_file = cmd_env("TALLY_SECRET_FILE", NULL),
		},
		.job = "",
	};
	struct query s = { 0 };
	struct err e;
	int status = parse_opts(v, argc, argv, &o);

	if (status != GO)
		return status;
	v = o.stuck ? v->stuck : v;
	if (query_ask(&s, &o.where, v->what, o.job, &e))
		return query_failed(v->name, &o.where, &e);
	status = CMD_OK;
	if (o.job[0] && !s.report->njobs) {
		fprintf(stderr, "tally %s: there is no job '%s'; tally jobs lists them\n", v->name,
			o.job);
		status = CMD_NOT_FOUND;
	} else if (o.json) {
		print_json(v, s.report);
	} else if (!v->table(s.report, stdout)) {
		fprintf(stderr, "tally %s: out of memory\n", v->name);
		status = CMD_FAILED;
	}
	query_close(&s);
	return status;
}

int cmd_status(int argc, char **argv)
{
	static const struct query_verb v = {
		"status", "Shows the cluster in a few lines: scheduler, nodes, jobs.",
		QUERY_NODES | QUERY_JOBS, status_table, status_json, false, NULL,
		NULL,
	};

	return query(&v, argc, argv);
}

int cmd_nodes(int argc, char **argv)
{
	static const struct query_verb v = {
		"nodes", "Shows every agent and server: state, cards, rates, memory, counters.",
		QUERY_NODES, nodes_table, nodes_all_json, false, NULL, nodes_columns,
	};

	return query(&v, argc, argv);
}

int cmd_jobs(int argc, char **argv)
{
	static const struct query_verb v = {
		"jobs", "Shows every job: ranks, machines, tensors, and who is missing.",
		QUERY_JOBS, jobs_table, jobs_json, true, NULL, NULL,
	};

	return query(&v, argc, argv);
}

int cmd_tensors(int argc, char **argv)
{
	static const struct query_verb stuck = {
		"tensors", "", QUERY_STUCK | QUERY_JOBS, stuck_table, stuck_json, true, NULL,
		NULL,
	}, v = {
		"tensors",
		"Shows every declared tensor: type, size, chunks, and which ranks have yet to\n"
		"declare it (WAITING-FOR); with --stuck, whom rounds wait for.",
		QUERY_TENSORS | QUERY_JOBS, tensors_table, tensors_json, true, &stuck,
		NULL,
	};

	return query(&v, argc, argv);
}
