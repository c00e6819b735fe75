/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.h - which nodes of a report are there, which are not, and why: for people and programs.
 *
 * For: the lines of `tally status` about nodes, the table of refused nodes, and their JSON.
 * Not for: the table of nodes itself.  All reads the report and keeps nothing; lists are cut at
 * STATES_LISTED, and say how many more there are.
 */
#ifndef TALLY_CLI_STATES_H
#define TALLY_CLI_STATES_H

#include <stdio.h>

#include "cli/json.h"
#include "proto/msg.h"

#define STATES_LISTED	8u

/*  state	what it means */
#define STATES_TABLE(X) \
	X(up,		"registered, and heard") \
	X(draining,	"told to drain, and some job uses it still") \
	X(drained,	"no job uses it; it can be stopped") \
	X(away,		"its connection is gone, it may come back") \
	X(dead,		"gone for good") \
	X(left,		"stopped after it was drained")

/*
 * Takes a line of `tally status`: `label` is the word at its beginning, `text` the rest.  Both
 * strings are valid during the call only.
 */
typedef void states_line(void *ctx, const char *label, const char *text);

/* "2 agents up, 0 of 1 servers up, sa dead 12 s"; returns buf. */
const char *states_headline(char *buf, size_t size, const struct msg_report *r);
/* A line for each node that is not up, each server that jobs bypass, each refused node. */
void states_lines(const struct msg_report *r, states_line *line, void *ctx);
/* So many nodes of a kind are in that state. */
uint32_t states_count(const struct msg_report *r, uint32_t kind, const char *state);
/*
 * Writes what an operator should know of a node: why it is not up, which jobs bypass it, its
 * note; returns buf.
 */
const char *states_note(char *buf, size_t size, const struct msg_node_row *n);

/* Nothing without refused nodes; columns as table_print(); false: no memory. */
bool states_refused_table(const struct msg_report *r, FILE *out, uint32_t columns);
extern const char states_refused_columns[];

/* "agents_by_state" and "servers_by_state"; "refused". */
void states_counts_json(const struct msg_report *r, struct json *j);
void states_refused_json(const struct msg_report *r, struct json *j);

#endif
