// SPDX-License-Identifier: Apache-2.0
/*
 * What a run starts from: a scheduler, servers, agents and their ranks' tensors.  The
 * rest the scheduler brings about; until the job is up nothing fails.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

void *sim_zeroed(size_t bytes)
{
	void *p = calloc(1, bytes + !bytes);

	ASSERT(p);
	return p;
}

void *sim_garbage(struct sim *s, size_t bytes)
{
	void *p = malloc(bytes + !bytes);

	ASSERT(p);
	memset(p, (int)sim_below(s, 256), bytes);
	return p;
}

static uint64_t some_bytes(struct sim *s, uint32_t esize)
{
	uint64_t chunk = s->p.chunk_bytes / esize, count;

	switch (sim_below(s, 10)) {
	case 0: count = 1; break;
	case 1: count = chunk; break;
	case 2: count = chunk - 1; break;
	case 3: count = chunk * (1 + sim_below(s, 3)) + 1; break;
	case 4: count = sim_below(s, 4) ? 1 + sim_below(s, 500) : 0; break;
	default: count = 1 + sim_below(s, 5 * chunk); break;
	}
	return MIN(count * esize, UINT64_C(96) << 10);
}

static void make_tensors(struct sim *s, struct sim_job *j)
{
	for (uint32_t k = 0; k < j->p->ntensors; k++) {
		struct sim_tensor *t = &j->tensor[k];

		t->dtype = (uint8_t)(1 + sim_below(s, DTYPE_END - 1));
		t->geom.bytes = some_bytes(s, dtype_bytes(t->dtype));
		t->geom.chunk_bytes = s->p.chunk_bytes;
		t->geom.seg_bytes = s->p.seg_bytes;
		t->expect[0] = sim_zeroed(t->geom.bytes);
		t->expect[1] = sim_zeroed(t->geom.bytes);
		t->ends = sim_chance(s, 500);
	}
}

struct sim_link *sim_link_get(struct sim *s, uint32_t agent, uint32_t server)
{
	struct sim_link *before = s->link[agent][server], *l;

	if (before && !before->ended)
		return before;
	l = s->link[agent][server] = sim_zeroed(sizeof(*l));
	l->before = before;
	l->agent = agent;
	l->server = server;
	l->life = s->agent[agent]->life;
	l->by_ref = s->server[server]->home == agent;
	l->dead[0] = !s->server[server]->alive;
	list_init(&l->msgs);
	srv_peer_init(&s->server[server]->core, &l->srv, s->agent[agent]->node, 0);
	return l;
}

void sim_build(struct sim *s)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		s->job[i].index = i;
		s->job[i].p = &s->p.job[i];
		sim_world_add(&s->job[i], (1u << s->p.job[i].world) - 1);
		make_tensors(s, &s->job[i]);
	}
	sim_sched_start(s);
	for (uint32_t v = 0; v < s->p.nservers; v++)
		sim_ctl_connect(s, sim_server_proc(sim_server_new(s, v, s->p.home[v])));
	if (!s->p.nservers)
		sim_at(s, (mono_t)sim_below(s, NS_PER_SEC),
		       &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY, .a = 1 });
	for (uint32_t i = 0; i < s->p.n; i++)
		sim_agent_new(s, i);
	for (uint32_t i = 0; i < s->p.early; i++)
		sim_at(s, (mono_t)sim_below(s, 12000000),
		       &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY, .b = 1 });
	for (uint32_t i = 0; i < s->p.njobs; i++)
		sim_join(s, &s->job[i]);
}
