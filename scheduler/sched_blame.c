// SPDX-License-Identifier: Apache-2.0
/* sched_blame.c - whose trouble keeps a job back: the first that is known. */
#include "scheduler/sched_blame.h"

#include <stdio.h>

void blame_take(struct sched *s, struct sched_node *n, const struct msg_heartbeat *hb)
{
	bool was = n->blamed, is = hb->cause && hb->cause[0];

	snprintf(n->note, sizeof(n->note), "%s", is ? hb->cause : hb->note);
	n->last.note = n->note;
	n->last.cause = "";
	s->nblamed += is && !was;
	s->nblamed -= was && !is;
	n->blamed = !is ? 0 : was ? n->blamed : s->now;
}

void blame_drop(struct sched *s, struct sched_node *n)
{
	s->nblamed -= n->blamed != 0;
	n->blamed = 0;
}

static const struct sched_node *earlier(const struct sched_node *a, const struct sched_node *b,
					const struct sched_node *except)
{
	if (!b || !b->blamed || b == except)
		return a;
	return !a || b->blamed < a->blamed ? b : a;
}

static const struct sched_node *first(const struct sched_job *j, const struct sched_node *except)
{
	const struct sched_node *n = NULL;

	for (uint32_t i = 0; i < j->nmachines; i++)
		n = earlier(n, j->machines[i].node, except);
	for (uint32_t i = 0; i < j->nservers; i++)
		n = earlier(n, j->servers[i].node, except);
	for (uint32_t r = 0; !j->nmachines && r < j->world; r++)
		n = earlier(n, j->ranks[r].node, except);
	return n;
}

const struct sched_node *blame_of(const struct sched *s, const struct sched_job *j)
{
	return s->nblamed ? first(j, NULL) : NULL;
}

static bool is_in(const struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t i = 0; i < j->nmachines; i++)
		if (j->machines[i].node == n)
			return true;
	for (uint32_t i = 0; i < j->nservers; i++)
		if (j->servers[i].node == n)
			return true;
	return false;
}

const struct sched_node *blame_for(const struct sched *s, const struct sched_node *n)
{
	const struct sched_node *best = NULL;

	for (uint32_t i = 0; s->nblamed && i < s->njobs; i++)
		if (is_in(s->jobs[i], n))
			best = earlier(best, first(s->jobs[i], n), n);
	return best;
}
