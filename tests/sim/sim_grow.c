// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that come in the place of lost ones; where none was left on their machine it comes
 * into the job with them, and its agent may have been started again.
 *
 * A process that takes a lost rank's number asks to join, and waits.  Barriers of such a
 * job are of the kind "grow": nobody has a round under way there, and no rank submits what
 * lies behind the next one before it has passed it.  Who is let in goes on there, with
 * tensors that it declares anew.  Before that it may end, as everybody may.
 */
#include <stdio.h>

#include "tests/sim/sim.h"

static struct sim_agent_job *at_agent(struct sim *s, const struct sim_job *j, uint32_t rank)
{
	return &s->agent[j->p->agent[j->p->machine[rank]]]->job[j->index];
}

/* ---- who comes ---- */

static void later(struct sim *s, const struct sim_job *j, uint32_t rank)
{
	sim_at(s, (mono_t)sim_below(s, sim_below(s, 3) ? 50000000 : NS_PER_SEC),
	       &(struct sim_event){ .type = EV_COME, .proc = SIM_NOBODY, .a = rank,
				    .c = j->index });
}

void sim_grow_lost(struct sim *s, struct sim_job *j, uint32_t rank)
{
	if (j->p->grow && j->rank[rank].life < SIM_LIVES && sim_chance(s, 800))
		later(s, j, rank);
}

void sim_grow_machine(struct sim *s, struct sim_job *j, uint32_t agent)
{
	for (uint32_t r = 0; r < j->p->world; r++)
		if (j->p->agent[j->p->machine[r]] == agent && !sim_rank_lives(j, r))
			sim_grow_lost(s, j, r);
}

/* Somebody may start it again. */
void sim_machine_crash(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];
	bool for_good = a->life == SIM_AGENT_LIVES || sim_chance(s, 300);

	sim_agent_crash(s, agent, for_good);
	if (for_good)
		return;
	a->alone = true;
	sim_at(s, MAX(s->paused_until[sim_agent_proc(agent)] + 1, s->now + 20000000 +
		      (mono_t)sim_below(s, 8 * NS_PER_SEC)) - s->now,
	       &(struct sim_event){ .type = EV_AGENT_START, .proc = SIM_NOBODY, .a = agent });
}

bool sim_grow_event(struct sim *s, const struct sim_event *e)
{
	struct sim_job *j = &s->job[e->c];
	uint32_t rank = e->a;

	if (e->type != EV_COME)
		return false;
	if (s->stopped || j->over || j->ended || j->starved || sim_rank_lives(j, rank) ||
	    j->coming >> rank & 1 || !s->agent[j->p->agent[j->p->machine[rank]]]->alive ||
	    (sim_machine_lives(j, j->p->machine[rank]) && at_agent(s, j, rank)->over))
		return true;
	sim_trace(s, "job %u: another process wants to be rank %u", j->index, rank);
	j->coming |= 1u << rank;
	sim_ask_join(s, j, rank);
	return true;
}

/* As ad_join_give_up() of the daemon. */
bool sim_grow_give_up(struct sim *s, struct sim_job *j, uint32_t rank)
{
	char name[8];
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.rank = rank, .code = TALLY_EWORKERLOST, .text = name, .pid = sim_pid(j, rank),
		.job = j->rank[rank].heard ? j->number : 0,
	} };

	if (!(j->coming >> rank & 1))
		return false;
	sim_trace(s, "job %u: who wanted to be rank %u dies", j->index, rank);
	sim_totals.gave_up++;
	j->gave_up |= 1u << rank;
	snprintf(name, sizeof(name), "job%u", j->index);
	sim_ctl_send(s, sim_agent_proc(j->p->agent[j->p->machine[rank]]), &m);
	sim_ask_ended(j, rank);
	sim_grow_lost(s, j, rank);
	return true;
}

/* ---- who is let in ---- */

void sim_tell_lost(struct sim *s, uint32_t agent, const struct sim_job *j, uint32_t rank)
{
	const struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = j->number, .rank = rank, .code = TALLY_EWORKERLOST, .text = "",
	} };

	sim_ctl_send(s, sim_agent_proc(agent), &m);
}

/* As ad_join_check() of the daemon. */
void sim_grow_heard(struct sim *s, struct sim_job *j, uint32_t agent, uint64_t came)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	for (uint32_t l = 0; l < aj->front.nlocal; l++) {
		uint32_t rank = aj->front.rank[l];

		if (!(came >> l & 1))
			continue;
		j->gave_up &= ~(1u << rank);
		j->rank[rank].heard = j->coming >> rank & 1;
		if (!j->rank[rank].heard)
			sim_tell_lost(s, agent, j, rank);
	}
}

static void declare(struct sim *s, struct sim_job *j, uint32_t rank)
{
	uint32_t n = j->p->ntensors - (j->late_declared ? 0 : j->p->late);

	for (uint32_t k = 0; k < n; k++)
		if (j->rank[rank].submitted[k] < j->p->rounds)
			sim_declare_one(s, j, rank, k, 1);
}

/* The agent has the job now, or what it had of it before has not ended yet. */
static void machine_in(struct sim *s, struct sim_job *j, uint32_t agent)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	sim_back_take_in(s, agent, j);
	if (aj->core && !aj->over) {
		sim_totals.machines_came++;
		sim_grow_heard(s, j, agent, aj->front.live);
		return;
	}
	for (uint32_t r = 0; r < j->p->world; r++) {
		if (j->p->agent[j->p->machine[r]] != agent)
			continue;
		sim_tell_lost(s, agent, j, r);
		if (!(j->coming >> r & 1))
			continue;
		sim_ask_ended(j, r);
		sim_grow_lost(s, j, r);
	}
}

void sim_grow_answered(struct sim *s, struct sim_job *j, uint32_t rank)
{
	struct sim_agent_job *aj = at_agent(s, j, rank);
	uint32_t machine = j->p->machine[rank], barrier;
	bool first = !sim_machine_lives(j, machine);
	struct sim_rank *r = &j->rank[rank];

	if (aj->nwires)
		machine_in(s, j, j->p->agent[machine]);
	barrier = (uint32_t)aj->log.grown_at;
	if (aj->over || !aj->core)
		return;
	if (!r->heard)
		sim_fail(s, "job %u rank %u is in before its agent has heard of it", j->index,
			 rank);
	sim_trace(s, "job %u has rank %u again, behind barrier %u", j->index, rank, barrier);
	sim_totals.came++;
	aj->barriers = MAX(aj->barriers, barrier);
	j->coming &= ~(1u << rank);
	j->lost &= ~(1u << rank);
	j->last_progress = s->now;
	*r = (struct sim_rank){ .local = r->local, .life = r->life, .waiting = -1,
				.barriers = barrier, .passed = barrier,
				.pos = sim_barrier_pos(j, barrier) };
	for (uint32_t i = 0; i < r->pos; i++)
		r->submitted[j->order[i].tensor]++;
	for (uint32_t k = 0; k < j->p->ntensors; k++) {
		const struct fr_tensor *t = aj->tensor[k].front;

		r->done[k] = r->submitted[k];
		r->submitted_at[k] = s->now;
		if (first)
			j->tensor[k].done[machine] = r->submitted[k];
		if (t && !aj->tensor[k].removed && t->round != r->submitted[k] &&
		    !(t->running && t->round == r->submitted[k] + 1))
			sim_fail(s, "job %u rank %u comes in at round %u of tensor %u, which is at "
				 "%u", j->index, rank, r->submitted[k], k + 1, t->round);
	}
	sim_grow_passed(s, j, rank, barrier);
	declare(s, j, rank);
	sim_rank_wakes(s, j, rank);
}

static bool any_passed(const struct sim_job *j, uint32_t barrier)
{
	for (uint32_t r = 0; r < j->p->world; r++)
		if (sim_rank_lives(j, r) && j->rank[r].passed >= barrier)
			return true;
	return false;
}

/* The others may come out of it anew, with who waits by then. */
void sim_grow_forgotten(struct sim_job *j)
{
	for (uint32_t b = 0; b < ARRAY_SIZE(j->grown_by); b++)
		if (!any_passed(j, b))
			j->grown_by[b] = 0;
}

/* All hear the same number of ranks that came in, and all agents are in their world. */
void sim_grow_passed(struct sim *s, struct sim_job *j, uint32_t rank, uint32_t barrier)
{
	uint32_t grown = at_agent(s, j, rank)->log.grown, *by = &j->grown_by[barrier];

	if (!j->p->grow)
		return;
	if (*by && *by != grown + 1)
		sim_fail(s, "job %u rank %u: %u ranks have come in by barrier %u, others heard %u",
			 j->index, rank, grown, barrier, *by - 1);
	*by = grown + 1;
	for (uint32_t m = 0; m < j->p->n; m++) {
		const struct sim_agent *a = s->agent[j->p->agent[m]];
		const struct sim_agent_job *aj = &a->job[j->index];

		if (!a->alive || !aj->core)
			continue;		/* hears of it with the job, when it is back */
		if (!aj->over && sim_machine_lives(j, m) && aj->log.grown < grown)
			sim_fail(s, "job %u rank %u passes barrier %u, agent %u is not in that "
				 "world", j->index, rank, barrier, j->p->agent[m]);
	}
}
