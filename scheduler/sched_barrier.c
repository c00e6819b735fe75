// SPDX-License-Identifier: Apache-2.0
/*
 * sched_barrier.c - all ranks of a job, or a deadline that says who is missing.
 */
#include "scheduler/sched.h"

void barrier_enter(struct sched *s, struct sched_node *n, const struct msg_barrier *m)
{
	struct sched_job *j = job_of_request(s, n, m->req, m->job, m->rank);
	struct sched_req *q;

	if (!j || req_asked(j, n, SQ_BARRIER, m->rank, m->req))
		return;
	if (bits_test(j->barrier, m->rank)) {
		out_refuse(s, n, m->req, TALLY_EEXIST, "rank %u is in this barrier of job '%s' "
			   "already", m->rank, j->name);
		return;
	}
	q = req_new(s, j, n, SQ_BARRIER, m->rank, m->req, m->timeout_ms, 0);
	if (!q)
		return;
	bits_set(j->barrier, m->rank);
	j->nbarrier++;
	barrier_pump(s, j);
}

void barrier_leave(struct sched_job *j, struct sched_req *q)
{
	bits_clear(j->barrier, q->rank);
	j->nbarrier--;
}

void barrier_pump(struct sched *s, struct sched_job *j)
{
	if (j->state != SJ_UP || j->nbarrier < j->world)
		return;
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind != SQ_BARRIER)
			continue;
		barrier_leave(j, q);
		req_done(s, j, q, 0, "", NULL, 0);
	}
	ASSERT(j->nbarrier == 0);
	j->generation++;
}

void barrier_expire(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	char buf[ERR_TEXT_MAX + 1];
	struct text t;

	text_init(&t, buf, sizeof(buf));
	text_add(&t, "barrier %llu of job '%.128s' ", (unsigned long long)j->generation, j->name);
	if (j->nbarrier == j->world)
		text_add(&t, "waits for the scheduler to recover");
	else
		text_add(&t, "waits for ");
	text_missing(&t, j, j->barrier);
	barrier_leave(j, q);
	req_done(s, j, q, TALLY_ETIMEDOUT, buf, NULL, 0);
}
