/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_claim.h - whether what an agent says of a job that is new here can be.
 *
 * The codec has checked each field and the rules of a message (msg.h); this is what it cannot
 * know: which numbers were ever given out, and that no node has two rows.
 */
#ifndef TALLY_SCHED_CLAIM_H
#define TALLY_SCHED_CLAIM_H

#include "scheduler/sched.h"

/* A job of before a restart of the scheduler, or a later epoch of one. */
bool held_valid(const struct sched *s, const struct msg_job_up *m);

#endif
