// SPDX-License-Identifier: Apache-2.0
/*
 * A job that ends because one of its ranks does: on the same round for all the others.
 *
 * As agent_end.c: asked the first time, an agent takes no more inputs, and says which rounds
 * its ranks have all given; asked the second time, it waits until the rounds that it is told
 * are over.  When all have said so no machine may be a round before another.
 */
#include "tests/sim/sim.h"

/* Every second run where agents are started again waits for such a moment: some rank has come
 * back, and has not submitted again what it had in flight. */
static bool is_early(const struct sim *s, const struct sim_job *j)
{
	for (uint32_t r = 0; r < j->p->world; r++)
		if (j->rank[r].away)
			return false;
	return s->p.agents_return && s->p.seed & 1;
}

/* What it had in flight when it came back to its agent, which nobody else can give
 * (FAILURES.md). */
static bool is_to_give(const struct sim_job *j, const struct sim_agent_job *aj, uint32_t rank)
{
	for (uint32_t i = 0; i < aj->log.n; i++)
		if (aj->tensor[aj->log.k[i]].front->in[j->rank[rank].local].again)
			return true;
	return false;
}

/* In any moment, when enough has been done: a rank of a job that cannot go on without. */
void sim_end_begin(struct sim *s)
{
	struct sim_job *j = &s->job[sim_below(s, s->p.njobs)];
	uint32_t rank = (uint32_t)sim_below(s, j->p->world);
	const struct sim_agent *a = s->agent[j->p->agent[j->p->machine[rank]]];
	const struct sim_agent_job *aj = &a->job[j->index];

	if (!s->p.ranks_die || !sim_had_enough(s) || !sim_chance(s, 2) || is_early(s, j) ||
	    j->p->shrink ||
	    j->over || !a->alive || !aj->core || aj->over || aj->left || aj->nback ||
	    is_to_give(j, aj, rank))
		return;
	s->p.ranks_die = false;
	s->faults++;
	j->dying = true;
	sim_rank_dies(s, j, rank);
}

static void answer(struct sim *s, uint32_t agent, uint32_t job, uint64_t step,
		   const uint64_t *rounds, uint32_t n)
{
	sim_ctl_send(s, sim_agent_proc(agent), &(struct msg){ .type = MSG_JOB_END, .ready = {
		.job = job, .seq = step, .text = "", .nrounds = n, .rounds = rounds } });
}

static void say_given(struct sim *s, uint32_t agent, const struct sim_job *j)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	uint64_t rounds[SIM_TENSORS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < aj->log.n; i++) {
		uint32_t k = aj->log.k[i];

		rounds[n++] = (uint64_t)aj->log.id[k] << 32 | fr_given(aj->tensor[k].front);
	}
	answer(s, agent, j->number, END_GIVEN, rounds, n);
}

void sim_end_asked(struct sim *s, uint32_t agent, const struct msg_ready *m)
{
	struct sim_job *j = sim_job_of(s, m->job);
	struct sim_agent_job *aj = j ? &s->agent[agent]->job[j->index] : NULL;

	if (aj && !aj->core && !aj->over && !aj->left)
		return;			/* it hears the job first, and is asked once more */
	if (!aj || !aj->core || aj->over) {
		answer(s, agent, m->job, m->seq, NULL, 0);
		return;
	}
	if (aj->finishing)
		return;			/* asked again, on another connection */
	aj->ending = aj->front.ends = true;
	if (m->seq == END_GIVEN) {
		say_given(s, agent, j);
		return;
	}
	ASSERT(m->nrounds <= SIM_TENSORS);
	aj->nend = m->nrounds;
	for (uint32_t i = 0; i < m->nrounds; i++) {
		struct ag_tensor *t = ag_tensor_find(&s->agent[agent]->core, m->job,
						     (uint32_t)(m->rounds[i] >> 32));

		aj->end[i] = m->rounds[i];
		if (t && t->running && t->round == (uint32_t)m->rounds[i])
			ag_hurry(t);
	}
	aj->finishing = true;
	sim_end_turn(s, agent);
}

static const struct fr_tensor *find(const struct sim_agent_job *aj, uint32_t id)
{
	for (uint32_t i = 0; i < aj->log.n; i++)
		if (aj->log.id[aj->log.k[i]] == id)
			return aj->tensor[aj->log.k[i]].front;
	return NULL;
}

/* As is_awaited() of the daemon. */
static bool is_awaited(const struct sim_job *j, const struct sim_agent_job *aj, uint64_t round)
{
	const struct fr_tensor *t = find(aj, (uint32_t)(round >> 32));

	if (!t || !fr_awaits(t, (uint32_t)round))
		return false;
	for (uint32_t l = 0; l < aj->front.nlocal; l++)
		if (t->in[l].again && !sim_rank_lives(j, aj->front.rank[l]))
			return false;
	return true;
}

static bool is_over(const struct sim_job *j, const struct sim_agent_job *aj, uint64_t round)
{
	const struct fr_tensor *t = find(aj, (uint32_t)(round >> 32));

	return !is_awaited(j, aj, round) && (!t || !t->running || t->round != (uint32_t)round);
}

void sim_end_turn(struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		struct sim_agent_job *aj = &s->agent[agent]->job[i];

		if (!aj->finishing || aj->over)
			continue;
		while (aj->nend && is_over(&s->job[i], aj, aj->end[aj->nend - 1]))
			aj->nend--;
		if (aj->nend)
			continue;
		aj->finishing = false;
		s->job[i].ended_by |= 1u << aj->me;
		answer(s, agent, s->job[i].number, END_DONE, NULL, 0);
	}
}

void sim_end_goes_on(struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		struct sim_agent_job *aj = &s->agent[agent]->job[i];

		bool awaits = false;

		for (uint32_t k = 0; k < aj->nend; k++)
			awaits |= is_awaited(&s->job[i], aj, aj->end[k]);
		if (!aj->core || !aj->finishing || aj->over ||
		    (aj->core->progress == aj->progress_said && !awaits))
			continue;
		aj->progress_said = aj->core->progress;
		answer(s, agent, s->job[i].number, END_MORE, NULL, 0);
	}
}

/* Machines whose agents were not lost, too. */
static uint32_t living(const struct sim *s, const struct sim_job *j)
{
	uint32_t machines = 0;

	for (uint32_t m = 0; m < j->p->n; m++)
		if (s->agent[j->p->agent[m]]->alive && !s->agent[j->p->agent[m]]->given_up)
			machines |= 1u << m;
	return machines;
}

void sim_end_told(struct sim *s, uint32_t number)
{
	struct sim_job *j = sim_job_of(s, number);
	uint32_t who = j ? living(s, j) : 0, first = who ? (uint32_t)__builtin_ctz(who) : 0;

	/* Somebody was not waited for; or has forgotten that the job ends (FAILURES.md). */
	if (!who || j->p->shrink || !sim_job_is_lost(s, j) || j->ended_by != who || j->end_anew)
		return;
	j->ended_by = 0;
	sim_totals.same_end++;
	sim_totals.same_end_agents += !j->dying;
	/* A tensor of no elements waits for nobody. */
	for (uint32_t k = 0; k < j->p->ntensors; k++)
		for (uint32_t m = first + 1; m < j->p->n && j->tensor[k].geom.bytes; m++)
			if (who >> m & 1 && j->tensor[k].done[m] != j->tensor[k].done[first])
				sim_fail(s, "job %u ends with round %u of tensor %u on machine "
					 "%u, and with round %u on machine %u", j->index,
					 j->tensor[k].done[m], k + 1, m, j->tensor[k].done[first],
					 first);
}
