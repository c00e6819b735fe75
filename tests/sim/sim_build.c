// SPDX-License-Identifier: Apache-2.0
/*
 * What a run starts from: agents, servers, links, one job, its tensors, placed as
 * the daemons place them.  Every buffer is an allocation of its own, so that a
 * sanitizer sees each byte out of place, and holds garbage first where old
 * contents must not matter.
 */
#include <stdlib.h>

#include "common/place/place.h"
#include "tests/sim/sim.h"

static void *zeroed(size_t bytes)
{
	void *p = calloc(1, bytes + !bytes);

	ASSERT(p);
	return p;
}

/* Memory whose old contents must not matter. */
static void *garbage(struct sim *s, size_t bytes)
{
	void *p = malloc(bytes + !bytes);

	ASSERT(p);
	memset(p, (int)sim_below(s, 256), bytes);
	return p;
}

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

/* ---- tensors ---- */

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

static void make_tensors(struct sim *s)
{
	struct place *p = zeroed(sizeof(*p));
	struct place_tensor pt[SIM_TENSORS];
	uint32_t weight[SIM_SERVERS];

	for (uint32_t j = 0; j < s->p.nservers; j++)
		weight[j] = 1 + (uint32_t)sim_below(s, 4);
	place_init(p, s->p.chunk_bytes);
	ASSERT(!place_start(p, weight, s->p.nservers, NULL));
	for (uint32_t k = 0; k < s->p.ntensors; k++) {
		struct sim_tensor *t = &s->tensor[k];

		t->id = k + 1;
		t->dtype = (uint8_t)(1 + sim_below(s, DTYPE_END - 1));
		t->geom.bytes = some_bytes(s, dtype_bytes(t->dtype));
		t->geom.chunk_bytes = s->p.chunk_bytes;
		t->geom.seg_bytes = s->p.seg_bytes;
		t->owner = zeroed(geom_chunks(&t->geom) * sizeof(*t->owner));
		t->expect[0] = zeroed(t->geom.bytes);
		t->expect[1] = zeroed(t->geom.bytes);
		t->ends = sim_chance(s, 500);
		pt[k] = (struct place_tensor){ .bytes = t->geom.bytes, .owner = t->owner };
	}
	place_batch(p, pt, s->p.ntensors);
	free(p);
}

/* ---- servers ---- */

static void server_add_tensor(struct sim *s, uint32_t server, uint32_t k)
{
	struct sim_server *v = s->server[server];
	struct sim_tensor *t = &s->tensor[k];
	uint32_t nchunks = geom_chunks(&t->geom);
	bool *mine = zeroed(nchunks * sizeof(*mine));
	struct srv_tensor_desc d = { .id = t->id, .dtype = t->dtype, .geom = t->geom,
				     .mine = mine };
	uint64_t slots;

	for (uint32_t c = 0; c < nchunks; c++)
		mine[c] = t->owner[c] == server;
	v->tensor[k].mem = zeroed(srv_tensor_size(s->p.n, &d, &slots));
	v->tensor[k].slots = garbage(s, slots);
	v->tensor[k].core = srv_tensor_add(&v->core, v->job, v->tensor[k].mem,
					   v->tensor[k].slots, &d);
	free(mine);
}

static void build_server(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server] = zeroed(sizeof(*v));
	struct srv_job_desc d = {
		.id = SIM_JOB, .n = s->p.n, .world = s->p.world, .epoch = SIM_EPOCH,
		.chunk_bytes = s->p.chunk_bytes, .seg_bytes = s->p.seg_bytes,
		.window_bytes = s->p.window_bytes,
	};

	srv_init(&v->core);
	v->job = srv_job_start(&v->core, zeroed(srv_job_size(s->p.n)), &d);
	for (uint32_t i = 0; i < s->p.n; i++) {
		v->job->worker[i].node = SIM_NODE + i;
		if (s->p.home[server] == i)
			continue;
		v->window[i] = garbage(s, s->p.window_bytes);
		v->job->worker[i].window = v->window[i];
	}
	for (uint32_t k = 0; k < s->p.ntensors; k++)
		server_add_tensor(s, server, k);
}

/* ---- agents ---- */

static void agent_add_tensor(struct sim *s, uint32_t agent, uint32_t k)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_tensor *at = &a->tensor[k];
	struct sim_tensor *t = &s->tensor[k];
	uint32_t nchunks = geom_chunks(&t->geom), nlocal = s->p.nlocal[agent];
	uint64_t bytes = t->geom.bytes, slot;
	uint32_t *route = zeroed(nchunks * sizeof(*route));
	struct ag_tensor_desc d = { .id = t->id, .dtype = t->dtype, .geom = t->geom,
				    .route = route };

	for (uint32_t c = 0; c < nchunks; c++)
		route[c] = s->p.nservers ? t->owner[c] : 0;
	at->result = garbage(s, 2 * bytes);
	slot = slab_add(a, at->result, 2 * bytes);
	for (int parity = 0; parity < 2; parity++) {
		d.result[parity] = (uint8_t *)at->result + (uint64_t)parity * bytes;
		d.result_slot[parity] = slot + (uint64_t)parity * bytes;
	}
	if (nlocal > 1) {
		at->sum = garbage(s, bytes);
		d.sum = at->sum;
		d.sum_slot = slab_add(a, at->sum, bytes);
	}
	for (uint32_t l = 0; l < nlocal; l++) {
		at->input[l] = garbage(s, bytes);
		ASSERT(slab_add(a, at->input[l], bytes) != SLOT_NONE);
	}
	at->mem = zeroed(ag_tensor_size(a->job, &d));
	at->core = ag_tensor_add(&a->core, a->job, at->mem, &d);
	at->front = zeroed(fr_tensor_size(nlocal));
	at->front->id = t->id;
	at->front->name = "simulated";
	at->front->bytes = bytes;
	at->front->engines = bytes ? 1 : 0;
	fr_tensor_add(&a->front, &a->fjob, at->front);
	free(route);
}

static void build_agent(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent] = zeroed(sizeof(*a));
	struct ag_peer *peers[SIM_SERVERS] = { NULL };
	uint64_t windows[SIM_SERVERS];
	uint32_t nlocal = 0;
	struct ag_job_desc d = {
		.id = SIM_JOB, .n = s->p.n, .me = agent, .nlocal = s->p.nlocal[agent],
		.world = s->p.world, .epoch = SIM_EPOCH, .chunk_bytes = s->p.chunk_bytes,
		.seg_bytes = s->p.seg_bytes, .nroutes = MAX(s->p.nservers, 1u), .peers = peers,
		.window_bytes = windows,
	};

	ag_init(&a->core);
	a->core.tx_limit = s->p.tx_limit;
	for (uint32_t j = 0; j < s->p.nservers; j++) {
		struct sim_link *l = s->link[agent][j];

		peers[j] = &l->ag;
		windows[j] = s->p.window_bytes;
		ag_peer_init(&a->core, &l->ag, 1000 + j, 0);
		l->ag.tx_limit = s->p.tx_limit;
	}
	a->job = ag_job_start(&a->core, zeroed(ag_job_size(&d)), &d, s->now);
	fr_init(&a->front);
	a->fjob.id = SIM_JOB;
	a->fjob.world = s->p.world;
	for (uint32_t r = 0; r < s->p.world; r++)
		if (s->p.machine[r] == agent) {
			s->rank[r].local = nlocal;
			a->fjob.rank[nlocal++] = r;
		}
	a->fjob.nlocal = nlocal;
	fr_job_start(&a->front, &a->fjob);
	for (uint32_t k = 0; k < s->p.ntensors; k++)
		agent_add_tensor(s, agent, k);
}

/* ---- all of it ---- */

static void build_links(struct sim *s)
{
	for (uint32_t i = 0; i < s->p.n; i++)
		for (uint32_t j = 0; j < s->p.nservers; j++) {
			struct sim_link *l = s->link[i][j] = zeroed(sizeof(*l));

			l->agent = i;
			l->server = j;
			l->by_ref = s->p.home[j] == i;
			list_init(&l->msgs);
			srv_peer_init(&l->srv, SIM_NODE + i);
		}
}

void sim_build(struct sim *s)
{
	make_tensors(s);
	build_links(s);
	for (uint32_t j = 0; j < s->p.nservers; j++)
		build_server(s, j);
	for (uint32_t i = 0; i < s->p.n; i++) {
		build_agent(s, i);
		sim_at(s, (mono_t)sim_below(s, 20000000),
		       &(struct sim_event){ .type = EV_TICK, .proc = sim_agent_proc(i), .a = i });
		for (uint32_t j = 0; j < s->p.nservers; j++)
			for (uint32_t k = 0; k < s->p.lanes; k++)
				sim_link_open(s, s->link[i][j]);
	}
	sim_ranks_start(s);
	sim_net_faults(s);
}
