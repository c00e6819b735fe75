// SPDX-License-Identifier: Apache-2.0
/*
 * agent_quota.c - what is counted against a user, and when.
 *
 * Counted are results, local sums, what an agent keeps of a tensor, and the arenas of processes,
 * whoever touches their pages first.  A declaration is looked at before it goes to the scheduler,
 * so that who asks for too much hears so and its job goes on; the log entry is looked at again,
 * since others may have been faster.  Root is a user like any other.
 */
#include "common/base/bytes.h"
#include "common/base/parse.h"
#include "common/shm/limit.h"
#include "worker-agent/agent_quota.h"

static uint64_t arenas(const struct ad_job *j)
{
	uint64_t bytes = 0;

	list_for_each(&j->inputs, l) {
		const struct ad_slab *s = list_entry(l, struct ad_slab, link);

		bytes += s->mem.device ? 0 : s->mem.bytes;
	}
	return bytes;
}

static uint64_t used_by(const struct agent *a, uint32_t user)
{
	uint64_t bytes = 0;

	list_for_each(&a->jobs, l) {
		const struct ad_job *j = list_entry(l, struct ad_job, link);

		if (j->user == user && !j->freed)
			bytes += j->tensor_bytes + arenas(j);
	}
	return bytes;
}

int ad_quota_check(const struct ad_job *j, uint64_t more, const char *what, struct err *e)
{
	const struct agent *a = j->agent;
	uint64_t used = used_by(a, j->user), limit = a->user_bytes;
	char whose[32] = "a user that is not known", need[32], have[32], all[32];

	if (!limit || more <= limit - MIN(used, limit))
		return 0;
	if (j->user)
		snprintf(whose, sizeof(whose), "user id %u", MSG_USER_UID(j->user));
	return err_set(e, TALLY_EQUOTA, "%s has %s of the %s of memory that one user may have at "
		       "agent %.64s, and %s of job '%.64s' would take %s more (tally-agent "
		       "--user-memory; tensors and jobs that end give theirs back)", whose,
		       fmt_bytes(have, sizeof(have), used), fmt_bytes(all, sizeof(all), limit),
		       a->name, what, j->name, fmt_bytes(need, sizeof(need), more));
}

uint64_t ad_tensor_cost(const struct ad_job *j, uint64_t bytes)
{
	const struct geom g = { bytes, j->chunk_bytes, j->seg_bytes };
	uint64_t copies = 2 + (j->nlocal > 1 && j->n > 1), segs;

	if (!bytes)
		return TENSOR_OWN_BYTES;
	segs = (uint64_t)geom_chunks(&g) * div_round_up(g.chunk_bytes, g.seg_bytes);
	return TENSOR_OWN_BYTES + copies * align_up(bytes, PAGE_BYTES) +
	       ag_tensor_size_max(j->nlocal, &g, segs);
}

static uint64_t cost_of_all(const struct ad_job *j, const struct msg_declare *m)
{
	uint64_t cost = 0;

	for (uint32_t i = 0; i < m->ntensors; i++) {
		const struct msg_tensor *t = &m->tensors[i];
		uint64_t each = dtype_bytes((uint8_t)t->dtype);

		if (each && t->count <= TENSOR_BYTES_MAX / each)	/* else it is refused */
			cost += ad_tensor_cost(j, t->count * each);
	}
	return cost;
}

/*
 * All ranks of a job declare the same: what this one has declared by then, less what the
 * job has, is new.
 */
int ad_quota_declare(struct ad_session *s, const struct msg_declare *m, uint64_t *cost,
		     struct err *e)
{
	uint64_t have = s->job->tensor_bytes, all, more;
	int rc;

	*cost = cost_of_all(s->job, m);
	all = s->declared_bytes + *cost;
	more = all - MIN(all, have);
	rc = more ? ad_quota_check(s->job, more, "tensors", e) : 0;
	if (!rc && more >= MEMORY_LOOK_BYTES && limit_memory_check(more, e))
		rc = err_wrap(e, "tensors of job '%.64s'", s->job_name);
	s->declared_bytes += rc ? 0 : *cost;
	return rc;
}

void ad_quota_undeclare(struct ad_session *s, uint64_t cost)
{
	s->declared_bytes -= MIN(cost, s->declared_bytes);
}
