/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_blame.h - nodes that have trouble on the network, as they say in heartbeats.
 *
 * A rank that waits is told of such a node, not of the rank whose input is missing: that one may
 * have given its input to an agent that reaches no server.  What a node said counts until its next
 * heartbeat, or its end.
 */
#ifndef TALLY_SCHED_BLAME_H
#define TALLY_SCHED_BLAME_H

#include "scheduler/sched.h"

/* The note and the cause of its heartbeat. */
void blame_take(struct sched *s, struct sched_node *n, const struct msg_heartbeat *hb);
/* Drops the trouble of a node that has none now, or is gone. */
void blame_drop(struct sched *s, struct sched_node *n);

/* Of the job's nodes, and of those who joined before it is up, the one that said so first; its
 * note is the cause.  NULL: none has trouble. */
const struct sched_node *blame_of(const struct sched *s, const struct sched_job *j);

/* The same for a node, of others in its jobs. */
const struct sched_node *blame_for(const struct sched *s, const struct sched_node *n);

#endif
