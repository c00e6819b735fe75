// SPDX-License-Identifier: Apache-2.0
/*
 * tally tensors: the declared tensors; with --stuck the rounds that wait, and for whom.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/query_verb.h"
#include "cli/table.h"
#include "common/base/parse.h"

/* The name of a job by its number; the scheduler sends the rows of jobs with those of tensors. */
static const char *job_name(const struct msg_report *r, uint32_t job)
{
	for (uint32_t i = 0; i < r->njobs; i++)
		if (r->jobs[i].job == job)
			return r->jobs[i].name;
	return "";
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

static const char tensors_columns[] =
"  JOB          name of its job\n"
"  ID           its number in the job\n"
"  NAME         as declared\n"
"  DTYPE        of an element\n"
"  COUNT        elements\n"
"  BYTES        of all elements\n"
"  CHUNKS       that it is cut into\n"
"  PRIORITY     higher is more urgent\n"
"  STATE        declaring, reserving, up, undeclaring, mismatch\n"
"  WAITING-FOR  ranks that have yet to declare or to undeclare it\n"
"With --stuck, a row for each round that waits and each node that it waits for:\n"
"  JOB          name of its job\n"
"  TENSOR       its name\n"
"  ROUND        that waits\n"
"  CHUNK        the first that waits\n"
"  CHUNKS       so many wait\n"
"  NODE         agent of the ranks that are missing, or the server\n"
"  MACHINE      machine id of that node\n"
"  SINCE        the round began, where it began first\n"
"  WAITING-FOR  ranks or server; and how long its node has been silent\n";

static bool tensors_table(const struct msg_report *r, FILE *out, uint32_t columns)
{
	struct table t;
	bool ok;

	table_init(&t, "~JOB >ID:9 ~NAME DTYPE:6 >COUNT:8 >BYTES:3 >CHUNKS:10 >PRIORITY:11 STATE:2 "
		       "~WAITING-FOR");
	for (uint32_t i = 0; i < r->ntensors; i++) {
		const struct msg_tensor_row *n = &r->tensors[i];
		char bytes[32];

		table_cell(&t, "%s", job_name(r, n->job));
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
	ok = table_print(&t, out, columns);
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

static bool stuck_table(const struct msg_report *r, FILE *out, uint32_t columns)
{
	struct table t;
	bool ok;

	table_init(&t, "~JOB ~TENSOR >ROUND:3 >CHUNK:5 >CHUNKS:6 ~NODE:4 ~MACHINE:9 >SINCE:2 "
		       "~WAITING-FOR");
	for (uint32_t i = 0; i < r->nstuck; i++) {
		const struct msg_stuck_row *n = &r->stuck[i];
		char who[2 * NAME_LEN_MAX], age[32];

		table_cell(&t, "%s", job_name(r, n->job));
		table_cell(&t, "%s", n->tensor);
		table_cell(&t, "%" PRIu32, n->round);
		table_cell(&t, "%" PRIu32, n->chunk);
		table_cell(&t, "%" PRIu32, n->chunks);
		table_cell(&t, "%s", n->name);
		table_cell(&t, "%s", n->machine);
		table_cell(&t, "%s", fmt_seconds(age, sizeof(age), (double)n->age_ms / 1e3));
		table_cell(&t, "%s", stuck_who(who, sizeof(who), n));
	}
	ok = table_print(&t, out, columns);
	table_free(&t);
	return ok;
}

static void tensors_json(const struct msg_report *r, struct json *j)
{
	json_array(j, "tensors");
	for (uint32_t i = 0; i < r->ntensors; i++) {
		const struct msg_tensor_row *n = &r->tensors[i];

		json_object(j, NULL);
		json_u64(j, "job", n->job);
		json_str(j, "job_name", job_name(r, n->job));
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
		json_str(j, "job_name", job_name(r, n->job));
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
		tensors_columns,
	};

	return query_run(&v, argc, argv);
}
