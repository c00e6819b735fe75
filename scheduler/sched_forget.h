/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_forget.h - what is shown of nodes that are not there, or are there in vain: for how long,
 * and why.  A part of sched.h.
 */
#ifndef TALLY_SCHED_FORGET_H
#define TALLY_SCHED_FORGET_H

struct sched;
struct sched_node;
struct text;

/* NODE_FORGET from a CLI: rows of that name go, of dead and of refused nodes. */
void forget_named(struct sched *s, uint32_t conn, const struct msg_node_forget *m);
/* Rows that have been shown for long enough. */
void forget_shown(struct sched *s);
/* Of a server that is up: jobs that train without it, or that it holds up, and why. */
void bypass_text(struct sched *s, const struct sched_node *n, struct text *t);

#endif
