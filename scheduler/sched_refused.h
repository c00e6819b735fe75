/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_refused.h - nodes that the scheduler refused, for those who ask why one is missing.
 *
 * For: a row for each address, kind, name and error code, with the last reason, how often and
 * when.  Not for: deciding who is refused (sched_node.c).
 *
 * Anybody who reaches the port can bring rows about.  So half of the places are for those that
 * gave the cluster's secret, and a full half gives up the oldest row of the address that has the
 * most there: an address that sends many names displaces its own.  What a stranger says of itself
 * is kept as printable ASCII.
 *
 * Pure; texts are copied; memory is the struct's own.  A row goes NODE_SHOWN_MS after its last
 * time, when its node is taken, and when it is to be forgotten.
 */
#ifndef TALLY_SCHED_REFUSED_H
#define TALLY_SCHED_REFUSED_H

#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "proto/msg.h"

struct refusal {
	bool known;			/* it gave the cluster's secret */
	enum node_kind kind;		/* NONE: it has not said */
	int code;
	uint64_t count;
	mono_t last;
	char name[NAME_LEN_MAX + 1];	/* "": it has not said */
	char addr[ADDR_LEN_MAX + 1];	/* numeric, without a port; "": not known */
	char why[ERR_TEXT_MAX + 1];
};

struct refusals {
	uint32_t n;
	struct refusal row[REFUSED_MAX];	/* the last one first */
};

/* Once more; `peer` is "10.0.0.2:51812", or NULL. */
void refused_note(struct refusals *all, bool known, enum node_kind kind, const char *name,
		  const char *peer, const struct err *why, mono_t now);
/* Removes the rows of a node that has registered since. */
void refused_taken(struct refusals *all, enum node_kind kind, const char *name, const char *peer);
/* All of that name, or without a name from that address; returns how many rows there were. */
uint32_t refused_forget(struct refusals *all, const char *name);
void refused_age(struct refusals *all, mono_t now);

#endif
