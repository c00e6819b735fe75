// SPDX-License-Identifier: Apache-2.0
/*
 * What an agent tells after each registration, as the daemon does (agent_log.c): its
 * jobs, with the servers of the newest epoch, their logs with where the chunks are by
 * now, and how far it follows.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

uint8_t *sim_wire(const struct msg *m)
{
	uint32_t bytes;
	uint8_t *wire;
	struct err e;

	ASSERT(!msg_encode_size(m, &bytes, &e));
	wire = sim_zeroed(bytes);
	ASSERT(!msg_encode(m, wire, bytes, &e));
	return wire;
}

void *sim_read_wire(const uint8_t *wire, struct msg *m)
{
	uint32_t bytes, type;
	struct msg_mem mem = { 0 };

	ASSERT(!msg_prefix_decode(wire, &bytes, &type, NULL));
	mem.size = msg_mem_need(bytes);
	mem.base = malloc(mem.size);
	ASSERT(mem.base);
	ASSERT(!msg_decode(type, wire + MSG_PREFIX_BYTES, bytes, &mem, m, NULL));
	return mem.base;
}

static void tell_up(struct sim *s, uint32_t agent, const struct sim_agent_job *aj)
{
	struct msg up, epoch;
	void *a = sim_read_wire(aj->up_wire, &up), *b = NULL;

	up.type = MSG_JOB_HELD;
	up.job_up.seq = aj->log.epoch_seq;
	if (aj->epoch_wire) {
		b = sim_read_wire(aj->epoch_wire, &epoch);
		up.job_up.epoch = epoch.epoch.epoch;
		up.job_up.repair = epoch.epoch.repair;
		up.job_up.nservers = epoch.epoch.nservers;
		up.job_up.servers = epoch.epoch.servers;
		up.job_up.ngone = epoch.epoch.ngone;
		up.job_up.gone = epoch.epoch.gone;
		up.job_up.grown = epoch.epoch.grown;
		up.job_up.grown_at = epoch.epoch.grown_at;
		up.job_up.njoined = epoch.epoch.njoined;
		up.job_up.joined = epoch.epoch.joined;
	}
	sim_ctl_send(s, sim_agent_proc(agent), &up);
	free(a);
	free(b);
}

static void tell_entry(struct sim *s, uint32_t agent, const struct sim_job *j,
		       const struct sim_log *l, uint64_t seq)
{
	struct msg_tensor t[SIM_TENSORS];
	uint64_t placed[SIM_TENSORS * SIM_CHUNKS];
	char name[SIM_TENSORS][16];
	struct msg m = { .type = MSG_TENSORS_HELD, .tensors = {
		.job = j->number, .seq = seq, .tensors = t, .placed = placed,
	} };

	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t k = l->k[i], n = m.tensors.ntensors;
		const struct sim_tensor *x = &j->tensor[k];

		if (l->entry[k] != seq)
			continue;
		snprintf(name[n], sizeof(name[n]), "t%u", k);
		t[n] = (struct msg_tensor){
			.id = l->id[k], .name = name[n], .dtype = x->dtype,
			.count = x->geom.bytes / dtype_bytes(x->dtype) * SIM_SCALE,
		};
		m.tensors.ntensors++;
		for (uint32_t c = 0; c < geom_chunks(&x->geom); c++)
			placed[m.tensors.nplaced++] = PLACED(l->since[k][c], l->owner[k][c]);
	}
	sim_ctl_send(s, sim_agent_proc(agent), &m);
}

/* As ad_job.left: its process has ended, and no other one is in its place. */
static bool has_left(const struct sim_job *j, uint32_t rank)
{
	return !sim_rank_lives(j, rank) && !j->rank[rank].heard;
}

static void tell_left(struct sim *s, uint32_t agent, const struct sim_job *j, bool all)
{
	for (uint32_t r = 0; r < j->p->world; r++) {
		const struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
			.job = j->number, .rank = r, .text = "",
			.code = sim_rank_lives(j, r) ? 0 : TALLY_EWORKERLOST,
		} };

		if (j->p->agent[j->p->machine[r]] == agent &&
		    (all || has_left(j, r)))
			sim_ctl_send(s, sim_agent_proc(agent), &m);
	}
}

static void tell_job(struct sim *s, uint32_t agent, const struct sim_job *j)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	const struct sim_log *l = &aj->log;
	uint64_t seq = 0;

	aj->stuck = true;		/* that nothing waits may have been lost, too */
	tell_up(s, agent, aj);
	for (uint32_t i = 0; i < l->n; i++) {
		if (l->entry[l->k[i]] == seq)
			continue;
		seq = l->entry[l->k[i]];
		tell_entry(s, agent, j, l, seq);
	}
	sim_agent_ready(s, agent, j);
	tell_left(s, agent, j, aj->left);
	sim_root_tell(s, j, agent);
}

void sim_job_leaves(struct sim *s, struct sim_job *j)
{
	sim_trace(s, "all ranks of job %u detach", j->index);
	for (uint32_t m = 0; m < j->p->n; m++) {
		struct sim_agent *a = s->agent[j->p->agent[m]];

		if (!a->alive || a->job[j->index].over)
			continue;
		a->job[j->index].left = true;
		tell_left(s, j->p->agent[m], j, true);
	}
}

void sim_held_tell(struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		if (s->agent[agent]->job[i].core && !s->agent[agent]->job[i].over)
			tell_job(s, agent, &s->job[i]);
}
