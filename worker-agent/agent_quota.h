/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_quota.h - what one user's jobs may have of this machine's memory (--user-memory).
 *
 * For: saying no in time, with whose limit it is, what is used and what to set.  Not for: what the
 * machine has left (agent_mem.c).  Control thread; no memory of its own.
 */
#ifndef TALLY_AGENT_QUOTA_H
#define TALLY_AGENT_QUOTA_H

#include "worker-agent/agent.h"

/* Whether the job's user may have so many bytes more, for `what` of the job; EQUOTA. */
int ad_quota_check(const struct ad_job *j, uint64_t more, const char *what, struct err *e);

/* A tensor of so many bytes counts so much: results, a local sum, what the agent keeps of it. */
uint64_t ad_tensor_cost(const struct ad_job *j, uint64_t bytes);

/*
 * EQUOTA, ENOMEM: what a process declares would take too much.  cost: of its tensors; they count
 * as declared by it from here on, until it fails or takes them back.
 */
int ad_quota_declare(struct ad_session *s, const struct msg_declare *m, uint64_t *cost,
		     struct err *e);
void ad_quota_undeclare(struct ad_session *s, uint64_t cost);

#endif
