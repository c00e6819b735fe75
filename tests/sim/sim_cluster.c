// SPDX-License-Identifier: Apache-2.0
/*
 * The processes of a run at work: what the shells of agent and server do around
 * their cores.
 *
 * Life: sim_build(), then events; tensors may be removed at each process in its
 * own time; sim_stop_job() ends the job everywhere; when no frame is under way,
 * nothing may be borrowed and sim_free() asserts it.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

/* ---- turns ---- */

static void finish_round(struct sim *s, uint32_t agent, struct fr_tensor *ft)
{
	fr_finish(&s->agent[agent]->front, ft);
	sim_round_done(s, agent, ft->id - 1, ft->round);
}

void sim_pump_agent(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];
	struct ag_send out;
	struct ag_tensor *t;

	while (ag_work(&a->core, s->p.seg_bytes))
		;
	while (!s->failed && ag_next(&a->core, s->now, &out)) {
		struct sim_link *l = container_of(out.peer, struct sim_link, ag);

		ASSERT(sim_send(s, l, TO_SERVER, &out.frame, out.data, out.seg));
	}
	while ((t = ag_done(&a->core))) {
		struct fr_tensor *ft = fr_tensor_find(&a->front, SIM_JOB, t->id);

		ASSERT(ft);
		if (fr_engine_done(&a->front, ft))
			finish_round(s, agent, ft);
	}
	if (a->job->fail_code && !s->stopped)
		sim_fail(s, "agent %u: the job failed with %s", agent, err_name(a->job->fail_code));
}

void sim_pump_server(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];
	struct srv_send out;

	for (uint32_t i = 0; i < s->p.n; i++) {
		struct sim_link *l = s->link[i][server];

		while (l->queued[TO_AGENT] < s->p.server_queue &&
		       sim_link_is_open(l, 0) &&
		       srv_next(&v->core, &l->srv, l->by_ref, &out))
			ASSERT(sim_send(s, l, TO_AGENT, &out.frame, out.data, out.seg));
	}
}

void sim_check(struct sim *s, uint32_t proc)
{
	if (proc < SIM_AGENTS)
		ag_check(&s->agent[proc]->core);
	else
		srv_check(&s->server[proc - SIM_AGENTS]->core);
}

/* ---- ends ---- */

/* True once the process has let go of the tensor for good. */
static bool remove_at(struct sim *s, uint32_t proc, uint32_t k)
{
	if (proc < SIM_AGENTS) {
		struct sim_agent *a = s->agent[proc];
		struct sim_agent_tensor *at = &a->tensor[k];

		if (!at->core->removed) {
			ag_tensor_remove(&a->core, at->core);
			fr_tensor_remove(&a->front, at->front);
		}
		if (at->core->borrowed)
			return false;
		ag_tensor_forget(&a->core, at->core);
		free(at->mem);
		free(at->front);
		at->mem = at->front = NULL;
	} else {
		struct sim_server_tensor *st = &s->server[proc - SIM_AGENTS]->tensor[k];

		if (!list_empty(&st->core->link))
			srv_tensor_remove(&s->server[proc - SIM_AGENTS]->core, st->core);
		if (st->core->borrowed)
			return false;
		free(st->mem);
		free(st->slots);
		st->mem = st->slots = NULL;
	}
	sim_totals.removed++;
	return true;
}

static void remove_again(struct sim *s, const struct sim_event *e)
{
	bool agent = e->proc < SIM_AGENTS;

	if (agent ? !s->agent[e->proc]->tensor[e->a].mem :
		    !s->server[e->proc - SIM_AGENTS]->tensor[e->a].mem)
		return;
	if (!remove_at(s, e->proc, e->a))
		sim_at(s, 1000000, e);
}

bool sim_proc_event(struct sim *s, const struct sim_event *e)
{
	switch (e->type) {
	case EV_TICK:
		if (!s->stopped) {
			ag_tick(&s->agent[e->a]->core, s->now);
			sim_at(s, mono_ms(OFFER_AFTER_MS), e);
		}
		return true;
	case EV_REMOVE:
		remove_again(s, e);
		return true;
	default:
		return false;
	}
}

void sim_stop_job(struct sim *s)
{
	sim_trace(s, "the job stops");
	s->stopped = true;
	for (uint32_t i = 0; i < s->p.n; i++) {
		ag_job_stop(&s->agent[i]->core, s->agent[i]->job);
		fr_job_stop(&s->agent[i]->front, &s->agent[i]->fjob);
	}
	for (uint32_t j = 0; j < s->p.nservers; j++)
		srv_job_stop(&s->server[j]->core, s->server[j]->job);
}

static void add_counters(uint64_t *to, const uint64_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

static void free_server(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];

	for (uint32_t k = 0; k < s->p.ntensors; k++)
		if (v->tensor[k].mem && !s->failed)
			ASSERT(remove_at(s, sim_server_proc(server), k));
	if (!s->failed)
		srv_job_forget(&v->core, v->job);
	add_counters((uint64_t *)&sim_totals.srv, (uint64_t *)&v->core.count,
		     sizeof(v->core.count) / sizeof(uint64_t));
	for (uint32_t i = 0; i < s->p.n; i++)
		free(v->window[i]);
	free(v->job);
	free(v);
}

static void free_agent(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];

	for (uint32_t k = 0; k < s->p.ntensors; k++) {
		if (a->tensor[k].mem && !s->failed)
			ASSERT(remove_at(s, sim_agent_proc(agent), k));
		free(a->tensor[k].result);
		free(a->tensor[k].sum);
		for (uint32_t l = 0; l < SIM_LOCAL; l++)
			free(a->tensor[k].input[l]);
	}
	if (!s->failed)
		ag_job_forget(&a->core, a->job);
	add_counters((uint64_t *)&sim_totals.ag, (uint64_t *)&a->core.count,
		     sizeof(a->core.count) / sizeof(uint64_t));
	free(a->job);
	free(a);
}

/* After a failure only the memory goes that nothing points to; the run is over. */
void sim_free(struct sim *s)
{
	for (uint32_t j = 0; j < s->p.nservers; j++)
		free_server(s, j);
	for (uint32_t i = 0; i < s->p.n; i++) {
		free_agent(s, i);
		for (uint32_t j = 0; j < s->p.nservers; j++) {
			ASSERT(s->failed || list_empty(&s->link[i][j]->msgs));
			free(s->link[i][j]);
		}
	}
	for (uint32_t k = 0; k < s->p.ntensors; k++) {
		free(s->tensor[k].owner);
		free(s->tensor[k].expect[0]);
		free(s->tensor[k].expect[1]);
	}
	free(s->queue.heap);
}
