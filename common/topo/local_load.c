// SPDX-License-Identifier: Apache-2.0
/*
 * local_load.c - what every link carries per byte of the model, and which is busiest.
 *
 * Links lie in the plan kind by kind, so that a device's index finds its link; NVLinks
 * between two GPUs come last, as paths use them.  Every movement is a walk: through the
 * switches up to where two devices meet, or on to a socket and its memory.
 *
 * A reduction to a root goes once around the ring and ends at the root: all hops but
 * the one out of it carry the root's share.  A broadcast is the same backwards.  Half
 * of each goes each way around.
 */
#include <math.h>

#include "common/topo/local_int.h"

#define SAME	1e-9			/* relative; then the first link in the list counts */
#define BITS	8

struct loading {
	const struct topo *t;
	struct local_plan *p;
	uint32_t net, sw, gpu, card, sockets, memory, nvswitch, nvlink;	/* first of each kind */
};

/* ---- the list ---- */

static void add_link(struct local_plan *p, enum local_link_kind kind, uint32_t a, uint32_t b,
		     struct topo_rate rate)
{
	ASSERT(p->links < LOCAL_LINKS_MAX);
	p->link[p->links++] = (struct local_link){ .kind = kind, .a = a, .b = b, .rate = rate };
}

static bool is_first_of_socket(const struct topo *t, uint32_t node)
{
	for (uint32_t i = 0; i < node; i++)
		if (t->node[i].socket == t->node[node].socket)
			return false;
	return true;
}

static void list_sockets(const struct topo *t, struct local_plan *p)
{
	for (uint32_t i = 0; i < t->nodes; i++)
		for (uint32_t j = 0; j < i; j++) {
			uint32_t a = t->node[i].socket, b = t->node[j].socket;

			if (a != b && is_first_of_socket(t, i) && is_first_of_socket(t, j))
				add_link(p, LOCAL_LINK_SOCKETS, MIN(a, b), MAX(a, b), t->sockets);
		}
}

static void list_links(struct loading *l)
{
	const struct topo *t = l->t;
	struct local_plan *p = l->p;

	l->net = p->links = 0;
	for (uint32_t i = 0; i < t->cards; i++)
		add_link(p, LOCAL_LINK_NET, i, TOPO_NONE, t->card[i].net);
	l->sw = p->links;
	for (uint32_t i = 0; i < t->switches; i++)
		add_link(p, LOCAL_LINK_SWITCH, i, TOPO_NONE, t->sw[i].up);
	l->gpu = p->links;
	for (uint32_t i = 0; i < t->gpus; i++)
		add_link(p, LOCAL_LINK_GPU, i, TOPO_NONE, t->gpu[i].pcie);
	l->card = p->links;
	for (uint32_t i = 0; i < t->cards; i++)
		add_link(p, LOCAL_LINK_CARD, i, TOPO_NONE, t->card[i].pcie);
	l->sockets = p->links;
	list_sockets(t, p);
	l->memory = p->links;
	for (uint32_t i = 0; i < t->nodes; i++)
		add_link(p, LOCAL_LINK_MEMORY, i, TOPO_NONE, t->node[i].memory);
	l->nvswitch = p->links;
	for (uint32_t i = 0; i < t->gpus; i++)
		add_link(p, LOCAL_LINK_NVSWITCH, i, TOPO_NONE, t->gpu[i].nvswitch);
	l->nvlink = p->links;
}

/* ---- walks ---- */

struct freight {
	enum local_cause cause;
	double bytes;			/* per byte of the model */
};

static void load(const struct loading *l, uint32_t link, enum local_way way, struct freight f)
{
	l->p->link[link].load[way][f.cause] += f.bytes;
}

static bool is_below(const struct topo *t, const struct topo_place *at, uint32_t sw)
{
	for (uint32_t i = at->sw; i != TOPO_NONE; i = t->sw[i].at.sw)
		if (i == sw)
			return true;
	return false;
}

/* All switches from there toward the CPU, up to the one that `meet` is below, too. */
static void through_switches(const struct loading *l, const struct topo_place *from,
			     const struct topo_place *meet, enum local_way way, struct freight f)
{
	for (uint32_t i = from->sw; i != TOPO_NONE; i = l->t->sw[i].at.sw) {
		if (meet && is_below(l->t, meet, i))
			return;
		load(l, l->sw + i, way, f);
	}
}

static void across_sockets(const struct loading *l, uint32_t from_node, uint32_t to_node,
			   struct freight f)
{
	uint32_t from = l->t->node[from_node].socket, to = l->t->node[to_node].socket;

	for (uint32_t i = l->sockets; i < l->memory; i++)
		if (l->p->link[i].a == MIN(from, to) && l->p->link[i].b == MAX(from, to))
			load(l, i, from < to ? LOCAL_UP : LOCAL_DOWN, f);
}

static void gpu_to_memory(const struct loading *l, uint32_t gpu, uint32_t node, struct freight f)
{
	const struct topo_place *at = &l->t->gpu[gpu].at;

	load(l, l->gpu + gpu, LOCAL_UP, f);
	through_switches(l, at, NULL, LOCAL_UP, f);
	across_sockets(l, at->node, node, f);
	load(l, l->memory + node, LOCAL_UP, f);
}

static void memory_to_gpu(const struct loading *l, uint32_t gpu, uint32_t node, struct freight f)
{
	const struct topo_place *at = &l->t->gpu[gpu].at;

	load(l, l->memory + node, LOCAL_DOWN, f);
	across_sockets(l, node, at->node, f);
	through_switches(l, at, NULL, LOCAL_DOWN, f);
	load(l, l->gpu + gpu, LOCAL_DOWN, f);
}

/* Both ways at once: what is sent, and the sum of all machines. */
static void network(const struct loading *l, uint32_t card)
{
	const struct topo_place *at = &l->t->card[card].at;
	struct freight f = { LOCAL_BY_NETWORK, l->p->card_share[card] };

	for (int way = LOCAL_UP; way <= LOCAL_DOWN; way++) {
		load(l, l->net + card, way, f);
		load(l, l->card + card, way, f);
		through_switches(l, at, NULL, way, f);
		load(l, l->memory + at->node, way, f);
	}
}

static uint32_t nvlink_between(const struct loading *l, uint32_t a, uint32_t b)
{
	uint32_t i = l->nvlink;

	for (; i < l->p->links; i++)
		if (l->p->link[i].a == MIN(a, b) && l->p->link[i].b == MAX(a, b))
			return i;
	add_link(l->p, LOCAL_LINK_NVLINK, MIN(a, b), MAX(a, b),
		 (struct topo_rate){ l->t->nvlink[a][b], false });
	return i;
}

/* Links of their own and the fabric carry in proportion to their rates. */
static void by_nvlink(const struct loading *l, uint32_t a, uint32_t b, struct freight f)
{
	double own = (double)l->t->nvlink[a][b] / (double)topo_nvlink_rate(l->t, a, b);
	struct freight direct = { f.cause, f.bytes * own };
	struct freight fabric = { f.cause, f.bytes - direct.bytes };

	if (own > 0)
		load(l, nvlink_between(l, a, b), a < b ? LOCAL_UP : LOCAL_DOWN, direct);
	if (own < 1) {
		load(l, l->nvswitch + a, LOCAL_UP, fabric);
		load(l, l->nvswitch + b, LOCAL_DOWN, fabric);
	}
}

static void gpu_to_gpu(const struct loading *l, uint32_t a, uint32_t b, struct freight f)
{
	const struct topo_gpu *from = &l->t->gpu[a], *to = &l->t->gpu[b];

	if (f.bytes <= 0)
		return;
	if (topo_nvlinked(l->t, a, b)) {
		by_nvlink(l, a, b, f);
		return;
	}
	load(l, l->gpu + a, LOCAL_UP, f);
	through_switches(l, &from->at, &to->at, LOCAL_UP, f);
	through_switches(l, &to->at, &from->at, LOCAL_DOWN, f);
	load(l, l->gpu + b, LOCAL_DOWN, f);
}

/* ---- groups ---- */

/* share[]: of each member, in member[]'s order */
static void load_ring(const struct loading *l, const struct local_group *g, const double *share)
{
	for (uint32_t i = 0; i < g->count && g->count > 1; i++) {
		uint32_t j = (i + 1) % g->count;
		uint32_t a = l->p->member[g->first + i], b = l->p->member[g->first + j];
		double without_a = (1 - share[i]) / 2, without_b = (1 - share[j]) / 2;

		gpu_to_gpu(l, a, b, (struct freight){ LOCAL_BY_REDUCE, without_a });
		gpu_to_gpu(l, b, a, (struct freight){ LOCAL_BY_REDUCE, without_b });
		gpu_to_gpu(l, a, b, (struct freight){ LOCAL_BY_BROADCAST, without_b });
		gpu_to_gpu(l, b, a, (struct freight){ LOCAL_BY_BROADCAST, without_a });
	}
}

static void load_group(const struct loading *l, const struct local_group *g)
{
	double share[TOPO_GPUS_MAX] = { 0 };

	for (uint32_t c = g->first_copy; c < g->first_copy + g->copies; c++) {
		const struct local_copy *k = &l->p->copy[c];

		gpu_to_memory(l, k->gpu, k->node, (struct freight){ LOCAL_BY_COPY_OUT, k->share });
		memory_to_gpu(l, k->gpu, k->node, (struct freight){ LOCAL_BY_COPY_IN, k->share });
		for (uint32_t i = 0; i < g->count; i++)
			if (l->p->member[g->first + i] == k->gpu)
				share[i] += k->share;
	}
	load_ring(l, g, share);
}

/* The CPU reads what every group brought and writes the sum once. */
static void load_sums(const struct loading *l)
{
	const struct local_group *first = &l->p->group[0];

	if (l->p->groups < 2)
		return;
	for (uint32_t c = 0; c < l->p->copies; c++) {
		const struct local_copy *k = &l->p->copy[c];
		struct freight f = { LOCAL_BY_SUM, k->share };

		load(l, l->memory + k->node, LOCAL_DOWN, f);
		if (c < first->first_copy + first->copies)
			load(l, l->memory + k->node, LOCAL_UP, f);
	}
}

/* ---- the busiest ---- */

double local_load(const struct local_link *l, enum local_way way)
{
	double sum = 0;

	for (int c = 0; c < LOCAL_CAUSES; c++)
		sum += l->load[way][c];
	return sum;
}

double local_link_time(const struct local_link *l)
{
	double up = local_load(l, LOCAL_UP), down = local_load(l, LOCAL_DOWN);
	double bytes = l->kind == LOCAL_LINK_MEMORY ? up + down : fmax(up, down);

	return bytes > 0 ? bytes * BITS / (double)l->rate.bits_per_s : 0;
}

void local_load_links(const struct topo *t, struct local_plan *p)
{
	struct loading l = { .t = t, .p = p };

	list_links(&l);
	for (uint32_t i = 0; i < t->cards; i++)
		network(&l, i);
	for (uint32_t i = 0; i < p->groups; i++)
		load_group(&l, &p->group[i]);
	load_sums(&l);
	p->bottleneck = 0;
	p->s_per_byte = 0;
	for (uint32_t i = 0; i < p->links; i++) {
		double time = local_link_time(&p->link[i]);

		if (time > p->s_per_byte * (1 + SAME)) {
			p->s_per_byte = time;
			p->bottleneck = i;
		}
	}
}
