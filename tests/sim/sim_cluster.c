// SPDX-License-Identifier: Apache-2.0
/*
 * The processes of a run at work: what the shells of agent and server do around
 * their cores.
 *
 * Life: sim_build(), then events; sim_stop_job() ends the job everywhere at once; when
 * no frame is under way, nothing may be borrowed and sim_free() asserts it.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

bool sim_starves(struct sim *s, struct sim_job *j, bool hard)
{
	if (!sim_faulty(s) || (hard && !sim_had_enough(s)) ||
	    !sim_chance(s, hard ? s->p.starve_hard : s->p.starve))
		return false;
	s->faults++;
	sim_totals.starved++;
	sim_totals.starved_jobs += hard && !j->starved;
	j->starved |= hard;
	return true;
}

bool sim_sched_starves(struct sim *s)
{
	if (!s->sched || !sim_faulty(s) || !sim_had_enough(s) || !sim_chance(s, s->p.famine))
		return false;
	s->faults++;
	sim_totals.famines++;
	for (uint32_t i = 0; i < s->p.njobs; i++)
		s->job[i].starved = true;
	return true;
}

/* ---- turns ---- */

static void engine_done(struct sim *s, uint32_t agent, const struct ag_tensor *t)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_job *j = sim_job_of(s, t->job->id);
	struct fr_tensor *ft = fr_tensor_find(&a->front, t->job->id, t->id);

	ASSERT(j && ft);
	if (!fr_engine_done(&a->front, ft, &t->times))
		return;
	fr_finish(&a->front, ft, sim_clock(s, sim_agent_proc(agent)));
	sim_round_done(s, j, agent, sim_log_tensor(&a->job[j->index].log, t->id), ft->round);
}

void sim_root_tell(struct sim *s, const struct sim_job *j, uint32_t agent)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	const struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = j->number, .rank = aj->front.rank[__builtin_ctzll(aj->core->live)],
		.code = TALLY_ESHUTDOWN, .text = "a broadcast's root is gone",
	} };

	if (aj->root_lost)
		sim_ctl_send(s, sim_agent_proc(agent), &m);
}

/* What nobody has, and nobody will get: the job ends, and says so. */
bool sim_root_is_lost(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t k, uint32_t round)
{
	if (sim_rop(s, j, k, round) != ROP_BROADCAST || sim_rank_lives(j, sim_root(s, j, k, round)))
		return false;
	for (uint32_t i = 0; i < j->p->n; i++)
		if (sim_machine_lives(j, i) && j->tensor[k].done[i] >= round)
			return false;
	sim_totals.roots_lost++;
	s->agent[agent]->job[j->index].root_lost = true;
	sim_root_tell(s, j, agent);
	j->ended = true;
	return true;
}

static bool may_fail(struct sim *s, struct sim_job *j, uint32_t agent)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	uint32_t k = sim_log_tensor(&aj->log, aj->core->fail_tensor);

	if (!aj->core->fail_told)
		aj->core->fail_told = aj->core->fail_code == TALLY_ESHUTDOWN && k != SIM_NOBODY &&
			sim_root_is_lost(s, j, agent, k, aj->core->fail_round);
	return aj->core->fail_told;
}

void sim_pump_agent(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];
	mono_t now = sim_clock(s, sim_agent_proc(agent));
	struct ag_send out;
	struct ag_tensor *t;

	if (!a->alive)
		return;
	while (ag_work(&a->core, s->p.seg_bytes))
		;
	while (!s->failed && ag_next(&a->core, now, &out)) {
		struct sim_link *l = container_of(out.peer, struct sim_link, ag);

		ASSERT(sim_send(s, l, TO_SERVER, &out.frame, out.data, out.seg));
	}
	while ((t = ag_done(&a->core)))
		engine_done(s, agent, t);
	for (uint32_t i = 0; i < s->p.njobs; i++)
		if (a->job[i].core && !a->job[i].over && a->job[i].core->fail_code &&
		    !may_fail(s, &s->job[i], agent))
			sim_fail(s, "agent %u: job %u failed with %s", agent, i,
				 err_name(a->job[i].core->fail_code));
	sim_agent_turn(s, agent);
}

void sim_pump_server(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];
	struct srv_send out;

	for (uint32_t i = 0; v->alive && i < s->p.n; i++) {
		struct sim_link *l = s->link[i][server];

		while (l && l->queued[TO_AGENT] < s->p.server_queue &&
		       sim_link_is_open(l, 0) &&
		       srv_next(&v->core, &l->srv, l->by_ref, &out))
			ASSERT(sim_send(s, l, TO_AGENT, &out.frame, out.data, out.in));
	}
}

void sim_check(struct sim *s, uint32_t proc)
{
	if (proc < SIM_AGENTS && !s->agent[proc]->alive)
		return;
	if (proc < SIM_AGENTS)
		ag_check(&s->agent[proc]->core);
	else
		srv_check(&s->server[proc - SIM_AGENTS]->core);
}

/* ---- ends ---- */

static void let_go(struct sim *s, uint32_t proc)
{
	if (proc < SIM_AGENTS)
		sim_agent_let_go(s, proc);
	else
		sim_server_let_go(s, proc - SIM_AGENTS);
}

bool sim_proc_event(struct sim *s, const struct sim_event *e)
{
	switch (e->type) {
	case EV_TICK:
		if (s->stopped || !s->agent[e->a]->alive)
			return true;
		sim_cover_time(&s->agent[e->a]->core);
		ag_tick(&s->agent[e->a]->core, sim_clock(s, e->proc));
		sim_at(s, sim_clock_wait(s, e->proc, mono_ms(OFFER_AFTER_MS)), e);
		return true;
	case EV_LET_GO:
		let_go(s, e->a);
		return true;
	default:
		return false;
	}
}

static void job_ends(struct sim *s, struct sim_job *j)
{
	for (uint32_t i = 0; i < s->p.n; i++)
		sim_agent_stop_job(s, i, j);
	for (uint32_t v = 0; v < s->nservers; v++)
		sim_server_stop_job(s, v, j);
}

void sim_stop_jobs(struct sim *s)
{
	s->stopped = true;
	for (uint32_t i = 0; i < s->p.njobs; i++)
		job_ends(s, &s->job[i]);
}

static void link_free(struct sim *s, struct sim_link *l)
{
	if (!l)
		return;
	ASSERT(s->failed || list_empty(&l->msgs));
	link_free(s, l->before);
	free(l);
}

/* After a failure only the memory goes that nothing points to; the run is over. */
void sim_free(struct sim *s)
{
	sim_sched_count(s);
	for (uint32_t j = 0; j < s->nservers; j++)
		sim_server_free(s, j);
	for (uint32_t i = 0; i < s->p.n; i++) {
		sim_agent_free(s, i);
		for (uint32_t j = 0; j < s->nservers; j++)
			link_free(s, s->link[i][j]);
	}
	for (uint32_t i = 0; i < SIM_JOBS * SIM_TENSORS; i++) {
		free(s->job[i / SIM_TENSORS].tensor[i % SIM_TENSORS].expect[0]);
		free(s->job[i / SIM_TENSORS].tensor[i % SIM_TENSORS].expect[1]);
	}
	sched_free(s->sched);
	free(s->queue.heap);
}
