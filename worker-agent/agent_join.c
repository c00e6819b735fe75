// SPDX-License-Identifier: Apache-2.0
/*
 * Which process is which rank of a job, while the scheduler decides and when it has.
 *
 * A process may end before the answer to its RANK_JOIN, and the scheduler, or what it is to
 * be told, may be lost meanwhile.  So who is in a job and has no process here is told as lost
 * when the agent hears that it is in.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker-agent/agent.h"

/* A restarted scheduler does not know which process a rank was: we do. */
bool ad_join_taken(const struct ad_session *s, const struct ad_job *j, uint32_t local)
{
	if (j->left[local].gone)
		return true;
	list_for_each(&s->agent->sessions, l) {
		const struct ad_session *o = list_entry(l, struct ad_session, link);

		if (o != s && o->placed && o->job == j && o->local == local)
			return true;
	}
	return false;
}

/* Its rank, where its job is up, and no other one of the name; else UINT32_MAX. */
static uint32_t local_in(const struct ad_session *s, struct ad_job *j)
{
	const struct ad_machine *me = &j->machines[j->me];

	if (ad_back_job(s) && ad_back_job(s) != j->id)
		return UINT32_MAX;
	for (uint32_t l = 0; l < me->nranks && !strcmp(j->name, s->job_name); l++)
		if (me->ranks[l] == s->rank && j->state != JOB_STOPPING && j->live >> l & 1)
			return l;
	return UINT32_MAX;
}

/*
 * A process that goes while it is joining: its job hears it as any other, where it is in it; or
 * its RANK_JOIN is withdrawn.
 */
void ad_join_give_up(struct ad_session *s)
{
	bool detached = s->detached && ad_back_job(s);
	int code = detached ? 0 : TALLY_EWORKERLOST;
	const struct msg m = {
		.type = MSG_RANK_LEAVE,
		.rank_leave = {
			.job = detached ? ad_back_job(s) : 0,
			.rank = s->rank,
			.code = code,
			.text = detached ? "" : s->job_name,
			.pid = s->pid,
		},
	};

	list_for_each(&s->agent->jobs, l) {
		struct ad_job *j = list_entry(l, struct ad_job, link);
		uint32_t local = j->freed ? UINT32_MAX : local_in(s, j);

		if (local == UINT32_MAX || ad_join_taken(s, j, local))
			continue;
		ad_job_left(j, local, &(struct ad_left){ .code = code, .joining = true });
		return;
	}
	(void)ad_tell_scheduler(s->agent, &m);
}

/*
 * A rank that went when the scheduler could not be told is missed when its job is up.  Who
 * waits to come in its place is not it: back says which of the two the ranks have to be.
 */
void ad_join_check(struct ad_job *j, uint64_t locals, bool back)
{
	const struct ad_machine *me = &j->machines[j->me];

	for (uint32_t local = 0; local < me->nranks; local++) {
		bool here = !(locals >> local & 1);

		list_for_each(&j->agent->sessions, l) {
			const struct ad_session *s = list_entry(l, struct ad_session, link);

			here |= s->state == SESSION_JOINING && s->rank == me->ranks[local] &&
				!strcmp(s->job_name, j->name) &&
				ad_back_job(s) == (back ? j->id : 0);
		}
		if (!here)
			ad_job_left(j, local, &(struct ad_left){ .code = TALLY_EWORKERLOST,
							.joining = true });
	}
}

/* ---- its ring ---- */

int ad_ring_open(struct ad_session *s, struct err *e)
{
	char name[AD_NAME_MAX];
	int rc;

	ad_ring_name(name, s->job->id, s->rank);
	rc = slab_new(&s->ring_mem, name, ring_shared_bytes(), false, e);
	rc = rc ? rc : ad_prefault(s->agent, &s->ring_mem, 0, s->ring_mem.bytes, e);
	if (rc)
		return rc;
	s->ring = calloc(1, sizeof(*s->ring));
	if (!s->ring)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	if (ring_sub_bell_new(&s->bell[0]) || ring_cpl_bell_new(&s->bell[2]))
		return limit_err(e, errno, "agent %s, bells for rank %u", s->agent->name, s->rank);
	ring_format(s->ring_mem.base);
	/* Processes ring bell 0 and hear 3; the agent hears 1 and rings 2. */
	ring_end_init(&s->ring->ring, s->ring_mem.base, s->bell[1], s->bell[2]);
	s->ring->session = s;
	s->ring->job = s->job;
	list_init(&s->ring->link);
	list_init(&s->ring->owed);
	return 0;
}
