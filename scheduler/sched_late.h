/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_late.h - agents that report their jobs after the recovery of a restarted scheduler.
 *
 * What each function does with the job and the agent's part in it is sched_late.c's story; all is
 * of the scheduler's one thread and of its core.
 */
#ifndef TALLY_SCHED_LATE_H
#define TALLY_SCHED_LATE_H

#include "scheduler/sched.h"

/* To where the others are; g: what is gone.  False: not sent, or the job is over. */
bool late_catch_up(struct sched *s, struct sched_job *j, struct sched_part *p,
		   const struct sched_gone *g);
bool late_any_tells(const struct sched *s);	/* has begun to, and not told all */
void late_close_tellers(struct sched *s);
void late_forget(struct sched *s, const struct sched_node *n); /* what only it tells, anew */
/* As return_expect(); and what that agent itself tells is taken in. */
bool late_expect(struct sched *s, struct sched_job *j, struct sched_part *p);
/* The same of one that has told of the job, if it is away as the recovery ends. */
bool late_away(struct sched *s, struct sched_job *j, struct sched_part *p);
/* JOB_HELD.  False: it comes too late. */
bool late_job(struct sched *s, struct sched_job *j, struct sched_part *p, struct sched_node *n,
	      const struct msg_job_up *m);
bool late_alone(const struct sched *s, const struct msg_job_up *m);	/* taken in as new */
void late_tensors(struct sched *s, struct sched_node *n, const struct msg_tensors *m);
bool late_tells(const struct sched_job *j, const struct sched_part *p);
/* Ends the report of an agent that came late. False: it is not there yet, or lost. */
bool late_last(struct sched *s, struct sched_job *j, struct sched_part *p, uint64_t has);
/* Its rank asks to join: it has not heard that the job is up, and hears so.  False: it has. */
bool late_join(struct sched *s, struct sched_job *j, struct sched_node *n,
	       const struct msg_rank_join *m);
void late_end(struct sched *s, struct sched_part *p);	/* nothing is expected any more */
void late_drop(struct sched *s, struct sched_job *j);

#endif
