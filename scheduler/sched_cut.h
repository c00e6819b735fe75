/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_cut.h - servers that the scheduler hears, and without which a job goes on: for a while,
 * because an agent has no link to them, or they did not take the job.  A part of sched.h.
 */
#ifndef TALLY_SCHED_CUT_H
#define TALLY_SCHED_CUT_H

struct sched;
struct sched_job;
struct sched_node;
struct sched_part;

void cut_look(struct sched *s, struct sched_job *j);	/* whenever time has passed */
bool cut_due(const struct sched *s, const struct sched_job *j);	/* one is to be given up */
void cut_server(struct sched *s, struct sched_node *n, const char *why);	/* from all jobs */
void cut_end(struct sched *s, struct sched_node *n);	/* of one that has let go of all */
void cut_let_go(struct sched *s, const struct sched_node *n, uint32_t job);	/* it says so */
/* Notes that a server does not take the job. */
void cut_refused(const struct sched *s, struct sched_part *p, const char *why);
void cut_lacks(struct sched *s, struct sched_job *j, struct sched_part *p, const char *why);
/* The row of a server that the job was taken from, or does without; NULL: there is none. */
struct sched_part *cut_row(struct sched_job *j, const char *name);
bool cut_bars(const struct sched *s, struct sched_job *j, const struct sched_node *n);
void cut_remember(struct sched_job *j, const struct sched_node *n, struct sched_part *to);

#endif
