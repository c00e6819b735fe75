// SPDX-License-Identifier: Apache-2.0
/*
 * Agents: what their control threads do when the scheduler says something, with
 * memory of their own.  Every buffer is an allocation of its own, so that a sanitizer
 * sees each byte out of place, and holds garbage first where old contents must not
 * matter.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

/* ---- slabs: how a server on the same machine reads an agent's memory ---- */

static uint64_t slab_add(struct sim_agent *a, uint8_t *base, uint64_t bytes)
{
	ASSERT(a->nslabs < SIM_SLABS);
	a->slab[a->nslabs] = (struct sim_slab){ base, bytes };
	return SLOT_SLAB(a->nslabs++, 0);
}

void *sim_resolve(struct sim_agent *a, uint64_t slot, uint64_t len)
{
	uint32_t id = SLOT_SLAB_ID(slot);

	if (slot == SLOT_NONE || id >= a->nslabs ||
	    !range_ok(SLOT_SLAB_OFF(slot), len, a->slab[id].bytes))
		return NULL;
	return a->slab[id].base + SLOT_SLAB_OFF(slot);
}

/* ---- asking the scheduler ---- */

static void join(struct sim *s, uint32_t agent)
{
	for (uint32_t r = 0; r < s->p.world; r++) {
		const struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
			.req = 1 + r, .job = "job", .world = s->p.world, .rank = r, .pid = 1,
			.timeout_ms = 100000, .chunk_bytes = s->p.chunk_bytes * SIM_SCALE,
		} };

		if (s->p.machine[r] == agent)
			sim_ctl_send(s, sim_agent_proc(agent), &m);
	}
}

void sim_declare(struct sim *s, uint32_t first, uint32_t n)
{
	struct msg_tensor t[SIM_TENSORS];
	char name[SIM_TENSORS][8];

	for (uint32_t i = 0; i < n; i++) {
		const struct sim_tensor *k = &s->tensor[first + i];

		snprintf(name[i], sizeof(name[i]), "t%u", first + i);
		t[i] = (struct msg_tensor){
			.name = name[i], .dtype = k->dtype,
			.count = k->geom.bytes / dtype_bytes(k->dtype) * SIM_SCALE,
		};
	}
	for (uint32_t r = 0; r < s->p.world; r++) {
		const struct msg m = { .type = MSG_DECLARE, .declare = {
			.req = 1000 + r + first * 100, .job = s->job, .rank = r,
			.timeout_ms = 100000, .ntensors = n, .tensors = t,
		} };

		sim_ctl_send(s, sim_agent_proc(s->p.machine[r]), &m);
	}
}

void sim_undeclare(struct sim *s, uint32_t agent, uint32_t k)
{
	for (uint32_t r = 0; r < s->p.world; r++) {
		const struct msg m = { .type = MSG_UNDECLARE, .ids = {
			.req = 10000 + r + k * 100, .job = s->job, .rank = r, .timeout_ms = 100000,
			.nids = 1, .ids = &s->tensor[k].id,
		} };

		if (s->p.machine[r] == agent)
			sim_ctl_send(s, sim_agent_proc(agent), &m);
	}
	s->agent[agent]->tensor[k].undeclared = true;
}

/* ---- routes ---- */

static uint32_t server_of(const struct sim *s, uint32_t node)
{
	for (uint32_t i = 0; i < s->nservers; i++)
		if (s->server[i]->node == node)
			return i;
	ASSERT(!"a node that never registered");
	return 0;
}

static void take_rows(struct sim_agent *a, const struct msg_server *servers, uint32_t n)
{
	ASSERT(n <= SIM_ROWS);
	a->nrows = n;
	for (uint32_t i = 0; i < n; i++)
		a->row[i] = servers[i].node;
}

static void fill_table(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];

	if (s->p.n == 1)
		a->table[0] = a->route[0] = ag_route_init(sim_zeroed(ag_route_size(0)), NULL, 0, 0,
							  s->now);
	for (uint32_t i = 0; s->p.n > 1 && i < a->nrows; i++) {
		uint32_t v;
		struct sim_link *l;

		a->table[i] = NULL;
		if (!a->row[i])
			continue;
		v = server_of(s, a->row[i]);
		if (!a->route[v]) {
			l = sim_link_get(s, agent, v);
			ag_peer_init(&a->core, &l->ag, a->row[i], 0);
			l->ag.tx_limit = s->p.tx_limit;
			a->route[v] = ag_route_init(sim_zeroed(ag_route_size(s->p.window_bytes)),
						    &l->ag, 0, s->p.window_bytes, s->now);
			for (uint32_t k = 0; k < s->p.lanes; k++)
				sim_link_open(s, l);
		}
		a->table[i] = a->route[v];
	}
}

static bool is_listed(const struct sim_agent *a, uint32_t node)
{
	for (uint32_t i = 0; i < a->nrows; i++)
		if (a->row[i] == node)
			return true;
	return false;
}

/* ---- messages ---- */

static void job_up(struct sim *s, uint32_t agent, const struct msg_job_up *m)
{
	struct sim_agent *a = s->agent[agent];
	uint32_t nlocal = 0;
	struct ag_job_desc d = {
		.id = m->job, .n = s->p.n, .me = agent, .nlocal = s->p.nlocal[agent],
		.world = s->p.world, .epoch = (uint32_t)m->epoch,
		.chunk_bytes = s->p.chunk_bytes, .seg_bytes = s->p.seg_bytes, .route = a->table,
		.nroutes = MAX(m->nservers, 1u),
	};

	s->job = m->job;
	ASSERT(m->nmachines == s->p.n && m->machines[agent].node == a->node);
	sim_log_start(&a->log, m);
	take_rows(a, m->servers, m->nservers);
	fill_table(s, agent);
	a->job = ag_job_start(&a->core, sim_zeroed(sizeof(*a->job)), &d);
	a->epoch = a->settled_told = m->epoch;
	a->fjob.id = m->job;
	a->fjob.world = s->p.world;
	for (uint32_t r = 0; r < s->p.world; r++)
		if (s->p.machine[r] == agent) {
			s->rank[r].local = nlocal;
			a->fjob.rank[nlocal++] = r;
		}
	a->fjob.nlocal = nlocal;
	fr_job_start(&a->front, &a->fjob);
}

static void route_of(const struct sim *s, const struct sim_agent *a, uint32_t k, uint32_t *route)
{
	for (uint32_t c = 0; c < geom_chunks(&s->tensor[k].geom); c++)
		route[c] = s->p.n > 1 ? a->log.owner[k][c] : 0;
}

static void add_tensor(struct sim *s, uint32_t agent, uint32_t k)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_tensor *at = &a->tensor[k];
	struct sim_tensor *t = &s->tensor[k];
	uint32_t nlocal = s->p.nlocal[agent], route[SIM_CHUNKS];
	uint64_t bytes = t->geom.bytes, slot;
	struct ag_tensor_desc d = { .id = t->id, .dtype = t->dtype, .geom = t->geom,
				    .route = route, .since = a->log.since[k] };

	route_of(s, a, k, route);
	at->result = sim_garbage(s, 2 * bytes);
	slot = slab_add(a, at->result, 2 * bytes);
	at->slab = SLOT_SLAB_ID(slot);
	for (int parity = 0; parity < 2; parity++) {
		d.result[parity] = (uint8_t *)at->result + (uint64_t)parity * bytes;
		d.result_slot[parity] = slot + (uint64_t)parity * bytes;
	}
	if (nlocal > 1) {
		at->sum = sim_garbage(s, bytes);
		d.sum = at->sum;
		d.sum_slot = slab_add(a, at->sum, bytes);
	}
	for (uint32_t l = 0; l < nlocal; l++) {
		at->input[l] = sim_garbage(s, bytes);
		ASSERT(slab_add(a, at->input[l], bytes) != SLOT_NONE);
	}
	at->mem = sim_zeroed(ag_tensor_size(a->job, &d));
	at->core = ag_tensor_add(&a->core, a->job, at->mem, &d);
	at->front = sim_zeroed(fr_tensor_size(nlocal));
	at->front->id = t->id;
	at->front->name = "simulated";
	at->front->bytes = bytes;
	at->front->engines = bytes ? 1 : 0;
	fr_tensor_add(&a->front, &a->fjob, at->front);
}

static void tensors(struct sim *s, uint32_t agent, const struct msg_tensors *m)
{
	struct sim_agent *a = s->agent[agent];
	uint32_t first = a->log.n;

	sim_log_tensors(s, &a->log, m);
	for (uint32_t i = first; i < a->log.n; i++)
		add_tensor(s, agent, a->log.k[i]);
}

static void forget(struct sim *s, uint32_t agent, const struct msg_ids *m)
{
	struct sim_agent *a = s->agent[agent];

	a->log.seq = m->seq;
	for (uint32_t i = 0; i < m->nids; i++) {
		uint32_t k = sim_log_forget(s, &a->log, m->ids[i]);
		struct sim_agent_tensor *at = &a->tensor[k];

		ag_tensor_remove(&a->core, at->core);
		fr_tensor_remove(&a->front, at->front);
		at->removed = true;
	}
	sim_agent_let_go(s, agent);
}

static void end_route(struct sim *s, uint32_t agent, uint32_t v)
{
	struct sim_agent *a = s->agent[agent];

	ag_route_del(a->route[v]);
	free(a->route[v]);
	a->route[v] = NULL;
	sim_link_end(s, s->link[agent][v]);
}

/* It registered anew, and has the job anew: it has let go of what it had before. */
static bool came_back(const struct sim *s, const struct sim_agent *a, uint32_t v)
{
	while (s->server[v]->replaced)
		v = s->server[v]->next_life;
	return is_listed(a, s->server[v]->node);
}

/* As ad_epoch_adopt(): what is lost, where to go, all segments, an end with the lost. */
static void epoch(struct sim *s, uint32_t agent, const struct msg_epoch *m)
{
	struct sim_agent *a = s->agent[agent];
	uint32_t route[SIM_CHUNKS];

	if (m->seq != a->log.seq + 1)
		sim_fail(s, "agent %u: epoch entry %llu after %llu", agent,
			 (unsigned long long)m->seq, (unsigned long long)a->log.seq);
	sim_log_epoch(&a->log, m);
	take_rows(a, m->servers, m->nservers);
	for (uint32_t v = 0; v < s->nservers; v++) {
		if (!a->route[v] || is_listed(a, s->server[v]->node))
			continue;
		ag_route_gone(a->route[v]);
		if (a->route[v]->users && s->link[agent][v]->by_ref && s->server[v]->alive &&
		    !came_back(s, a, v))
			sim_fence(s, v);
		sim_link_end(s, s->link[agent][v]);
	}
	fill_table(s, agent);
	ag_job_epoch(&a->core, a->job, (uint32_t)m->epoch, a->table, a->nrows);
	for (uint32_t i = 0; i < a->log.n; i++) {
		uint32_t k = a->log.k[i];

		route_of(s, a, k, route);
		ag_tensor_move(&a->core, a->tensor[k].core, route, a->log.since[k], s->now);
	}
	for (uint32_t v = 0; v < s->nservers; v++)
		if (a->route[v] && a->route[v]->gone)
			end_route(s, agent, v);
	a->epoch = m->epoch;
}

void sim_agent_msg(struct sim *s, uint32_t agent, const struct msg *m)
{
	switch (m->type) {
	case MSG_JOB_UP: job_up(s, agent, &m->job_up); break;
	case MSG_TENSORS: tensors(s, agent, &m->tensors); break;
	case MSG_FORGET: forget(s, agent, &m->ids); break;
	case MSG_EPOCH: epoch(s, agent, &m->epoch); break;
	case MSG_JOB_DOWN:
		sim_fail(s, "the job has ended: %s", m->job_down.text);
		break;
	case MSG_REPLY:
		if (m->reply.code)
			sim_fail(s, "agent %u is told: %s", agent, m->reply.text);
		break;
	default:
		break;
	}
}

void sim_agent_turn(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];
	struct msg m = { .type = MSG_EPOCH_READY };

	if (!a->job || s->stopped || !ag_job_settled(a->job) || a->settled_told == a->epoch)
		return;
	a->settled_told = a->epoch;
	m.ready = (struct msg_ready){ .job = s->job, .seq = a->epoch, .text = "" };
	sim_ctl_send(s, sim_agent_proc(agent), &m);
}

/* ---- life ---- */

void sim_agent_new(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent] = sim_zeroed(sizeof(*a));

	ag_init(&a->core);
	a->core.tx_limit = s->p.tx_limit;
	fr_init(&a->front);
	memset(a->ctl.instance, 1 + (int)agent, ID_BYTES);
	sim_ctl_connect(s, sim_agent_proc(agent));
	join(s, agent);
	sim_at(s, mono_ms(HEARTBEAT_MS), &(struct sim_event){ .type = EV_BEAT,
		.proc = sim_agent_proc(agent), .a = sim_agent_proc(agent) });
	sim_at(s, (mono_t)sim_below(s, 20000000),
	       &(struct sim_event){ .type = EV_TICK, .proc = sim_agent_proc(agent), .a = agent });
}

void sim_agent_let_go(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];
	bool again = false;

	for (uint32_t k = 0; k < s->p.ntensors; k++) {
		struct sim_agent_tensor *at = &a->tensor[k];

		if (!at->mem || !at->removed)
			continue;
		if (at->core->borrowed) {
			again = true;
			continue;
		}
		ag_tensor_forget(&a->core, at->core);
		free(at->mem);
		free(at->front);
		at->mem = at->front = NULL;
		sim_totals.removed++;
	}
	if (again && !s->stopped)
		sim_at(s, 1000000, &(struct sim_event){ .type = EV_LET_GO,
			.proc = sim_agent_proc(agent), .a = sim_agent_proc(agent) });
}

static void add_counters(uint64_t *to, const uint64_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

void sim_agent_free(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];

	for (uint32_t k = 0; k < s->p.ntensors; k++) {
		a->tensor[k].removed = true;
		if (!s->failed)
			sim_agent_let_go(s, agent);
		ASSERT(s->failed || !a->tensor[k].mem);
		free(a->tensor[k].result);
		free(a->tensor[k].sum);
		for (uint32_t l = 0; l < SIM_LOCAL; l++)
			free(a->tensor[k].input[l]);
	}
	if (!s->failed && a->job) {
		ag_job_forget(&a->core, a->job);
		for (uint32_t v = 0; v < SIM_SERVERS; v++)
			if (a->route[v])
				ag_route_del(a->route[v]);
	}
	for (uint32_t v = 0; v < SIM_SERVERS; v++)
		free(a->route[v]);
	add_counters((uint64_t *)&sim_totals.ag, (uint64_t *)&a->core.count,
		     sizeof(a->core.count) / sizeof(uint64_t));
	sim_log_fini(&a->log);
	free(a->job);
	free(a);
}
