// SPDX-License-Identifier: Apache-2.0
/*
 * sched_barrier.c - all ranks of a job, or a deadline that says who is missing.
 *
 * A rank says which barrier it means, so that asking again does no harm: one that
 * all have passed is answered at once, whatever became of the first answer, and a
 * rank that has given up and comes back takes its own place.  After a restart the
 * ranks know better than we do: who has passed a barrier (its agent tells, or it asks for
 * the next one) has passed it with all, also with those who lost the answer.
 */
#include "scheduler/sched_blame.h"

static struct sched_req *waiting(const struct sched_job *j, uint32_t rank)
{
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind == SQ_BARRIER && q->rank == rank)
			return q;
	}
	return NULL;
}

static void open_all(struct sched *s, struct sched_job *j, uint64_t generation)
{
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind != SQ_BARRIER)
			continue;
		barrier_leave(j, q);
		req_done(s, j, q, 0, "", NULL, 0);
	}
	ASSERT(j->nbarrier == 0);
	j->generation = generation;
	if (generation >= j->grown_at)
		grow_answer(s, j);
}

void barrier_passed(struct sched *s, struct sched_job *j, uint64_t generation)
{
	if (generation > j->generation)
		open_all(s, j, generation);
}

void barrier_enter(struct sched *s, struct sched_node *n, const struct msg_barrier *m)
{
	struct sched_job *j = job_of_request(s, n, m->req, m->job, m->rank);
	struct sched_req *q;

	if (!j || req_asked(j, n, SQ_BARRIER, m->rank, m->req))
		return;
	if (m->generation <= j->generation) {
		out_answer(s, n, m->req, 0, "", NULL, 0);
		return;
	}
	if (job_refuses(s, j, n, m->req))
		return;
	barrier_passed(s, j, m->generation - 1);
	q = waiting(j, m->rank);
	if (q) {
		barrier_leave(j, q);
		req_done(s, j, q, TALLY_EEXIST, "the barrier was asked for again", NULL, 0);
	}
	q = req_new(s, j, n, SQ_BARRIER, m->rank, m->req, m->timeout_ms, 0);
	if (!q)
		return;
	q->grow = m->grow;
	bits_set(j->barrier, m->rank);
	j->nbarrier++;
	barrier_pump(s, j);
}

void barrier_leave(struct sched_job *j, struct sched_req *q)
{
	bits_clear(j->barrier, q->rank);
	j->nbarrier--;
	j->grows = false;
}

void barrier_pump(struct sched *s, struct sched_job *j)
{
	if (j->state == SJ_UP && j->nbarrier &&
	    j->nbarrier + MUTATE(19) >= grow_awaited(j) &&
	    !grow_holds(s, j))
		open_all(s, j, j->generation + 1);
}

void barrier_text(const struct sched *s, struct text *t, const struct sched_job *j)
{
	text_add(t, "barrier %llu of job '%.128s' waits for ",
		 (unsigned long long)(j->generation + 1), j->name);
	if (j->nbarrier >= grow_awaited(j))
		text_add(t, "%s", grow_under_way(j) ? "the ranks that come in" :
			 "the scheduler to recover");
	else if (!text_blame(t, "", blame_of(s, j)))
		text_missing(t, j, j->barrier);
}

void barrier_expire(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	char buf[ERR_TEXT_MAX + 1];
	struct text t;

	if (grow_under_way(j) && j->nbarrier >= grow_awaited(j)) {
		q->deadline = s->now + mono_ms(GROW_MORE_MS);
		sched_wake(s, q->deadline);
		return;
	}
	text_init(&t, buf, sizeof(buf));
	barrier_text(s, &t, j);
	barrier_leave(j, q);
	req_done(s, j, q, TALLY_ETIMEDOUT, buf, NULL, 0);
}
