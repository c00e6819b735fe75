// SPDX-License-Identifier: Apache-2.0
/*
 * local.c - the local plan: three ways to put GPUs into groups, made in turn and compared.
 *
 * All that moves is in link loads, so "faster" is one number.  The rule's grouping comes
 * first and gives way only to one that is faster by more than rounding; the chosen one
 * is then made again, since a plan is too big to keep three.
 */
#include "common/topo/local.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/topo/local_int.h"

#define FASTER	1e-6			/* relative */
#define EQUAL	1e-6			/* the same of shares */
#define PIECE_ALIGN	256u

static int check_rates(const struct topo *t, struct err *e)
{
	bool known = t->sockets.bits_per_s > 0;

	for (uint32_t i = 0; i < t->nodes; i++)
		known &= t->node[i].memory.bits_per_s > 0;
	for (uint32_t i = 0; i < t->switches; i++)
		known &= t->sw[i].up.bits_per_s > 0;
	for (uint32_t i = 0; i < t->gpus; i++)
		known &= t->gpu[i].pcie.bits_per_s > 0;
	for (uint32_t i = 0; i < t->cards; i++)
		known &= t->card[i].pcie.bits_per_s > 0 && t->card[i].net.bits_per_s > 0;
	return known ? 0 : err_set(e, TALLY_EINVAL, "a link without a rate");
}

static void make(const struct topo *t, enum local_grouping how, struct local_plan *p)
{
	local_group_up(t, how, p);
	p->s_per_byte = INFINITY;
	if (!local_find_paths(t, p))
		return;
	local_share_out(t, p);
	local_load_links(t, p);
}

/* Each GPU is a root for as much: else NCCL has no one call for it. */
static bool scatters(const struct local_plan *p, const struct local_group *g)
{
	double share[TOPO_GPUS_MAX] = { 0 };

	for (uint32_t c = g->first_copy; c < g->first_copy + g->copies; c++)
		share[p->copy[c].gpu] += p->copy[c].share;
	for (uint32_t i = g->first; i < g->first + g->count; i++)
		if (fabs(share[p->member[i]] * g->count - 1) > EQUAL)
			return false;
	return !g->whole;
}

static enum local_strategy strategy_of(const struct topo *t, const struct local_plan *p)
{
	if (t->gpus <= 1)
		return t->gpus ? LOCAL_COPY : LOCAL_NO_GPU;
	if (p->groups > 1)
		return LOCAL_CPU_ASSISTED;
	return scatters(p, &p->group[0]) ? LOCAL_SCATTER : LOCAL_ROOTS;
}

int local_plan_make(const struct topo *t, bool exact, struct local_plan *p, struct err *e)
{
	enum local_grouping best = exact ? LOCAL_GROUP_ALONE : LOCAL_GROUP_JOINED;
	int rc = topo_check(t, e);

	rc = rc ? rc : check_rates(t, e);
	if (rc)
		return rc;
	memset(p, 0, sizeof(*p));
	for (int how = 0; how < LOCAL_GROUPINGS; how++) {
		make(t, how, p);
		p->other_s_per_byte[how] = p->s_per_byte;
		if (!exact && p->s_per_byte < p->other_s_per_byte[best] * (1 - FASTER))
			best = how;
	}
	make(t, best, p);
	p->strategy = strategy_of(t, p);
	return 0;
}

/* ---- pieces ---- */

static uint32_t whole_chunk(const struct local_plan *p, const struct local_group *g,
			    uint64_t chunk, uint64_t bytes, struct local_piece *out)
{
	uint32_t c = g->first_copy + turn_of(&p->copy[g->first_copy].weight_end,
					     sizeof(p->copy[0]), g->copies, chunk);

	*out = (struct local_piece){ c, 0, bytes };
	return bytes > 0;
}

uint32_t local_pieces(const struct local_plan *p, uint32_t group, uint64_t chunk, uint64_t bytes,
		      struct local_piece *out)
{
	const struct local_group *g = &p->group[group];
	uint64_t start = 0;
	uint32_t n = 0;

	ASSERT(group < p->groups && bytes <= CHUNK_BYTES_MAX);
	if (g->whole)
		return whole_chunk(p, g, chunk, bytes, out);
	for (uint32_t i = 0; i < g->copies; i++) {
		uint32_t c = g->first_copy + i;
		uint64_t end = bytes * p->copy[c].weight_end / LOCAL_WEIGHT_SUM;

		if (p->copy[c].weight_end < LOCAL_WEIGHT_SUM)
			end &= ~(uint64_t)(PIECE_ALIGN - 1);
		if (end > start)
			out[n++] = (struct local_piece){ c, start, end - start };
		start = end;
	}
	return n;
}

/* ---- words ---- */

const char *local_strategy_text(enum local_strategy s)
{
	static const char *const text[] = {
#define X(e, t) [LOCAL_##e] = t,
		LOCAL_STRATEGY_TABLE(X)
#undef X
	};

	return text[s];
}

const char *local_grouping_text(enum local_grouping g)
{
	static const char *const text[] = {
#define X(e, t) [LOCAL_GROUP_##e] = t,
		LOCAL_GROUPING_TABLE(X)
#undef X
	};

	return text[g];
}

const char *local_cause_text(enum local_cause c)
{
	static const char *const text[] = {
#define X(e, t) [LOCAL_BY_##e] = t,
		LOCAL_CAUSE_TABLE(X)
#undef X
	};

	return text[c];
}

const char *local_link_text(enum local_link_kind k)
{
	static const char *const text[] = {
#define X(e, t) [LOCAL_LINK_##e] = t,
		LOCAL_LINK_TABLE(X)
#undef X
	};

	return text[k];
}

const char *local_why(const struct local_plan *p, uint32_t group, char *buf, size_t len)
{
	const struct local_group *g = &p->group[group];
	uint32_t both = g->switches_card, only = g->switches_only;
	const char *how = g->nvlink ? "NVLink joins" :
			  both + only > 1 ? "NVLink and switches together join" : "a switch joins";

	if (g->count == 1)
		snprintf(buf, len, "nothing to reduce: it is by itself");
	else if (g->spared)
		snprintf(buf, len, "%s them across %u switches, %u of them with a NIC: "
			 "roots are away from it, so that its way to the CPU is spared",
			 how, both + only, both);
	else if (both && only)
		snprintf(buf, len, "%s them; the %u switch%s without a NIC would hold the "
			 "rest back, so roots are beside NICs, too, as far as there is room",
			 how, only, only == 1 ? "" : "es");
	else if (both + only == 1)
		snprintf(buf, len, "%s them, and one switch brings all to the CPU", how);
	else
		snprintf(buf, len, "%s them, and %s switch has a NIC: the copies are "
			 "spread over all", how, both ? "every" : "no");
	return buf;
}

const char *local_bottleneck_text(const struct local_plan *p, char *buf, size_t len)
{
	static const char *const meaning[] = {
		[LOCAL_LINK_NET] = "the network itself: the machine keeps up with its NICs",
		[LOCAL_LINK_SWITCH] = "the switch's way to the CPU",
		[LOCAL_LINK_GPU] = "the GPU's own link",
		[LOCAL_LINK_CARD] = "the NIC's slot is slower than its wire",
		[LOCAL_LINK_SOCKETS] = "data crosses sockets on its way to the NIC",
		[LOCAL_LINK_MEMORY] = "host memory: every copy, send and sum passes it",
		[LOCAL_LINK_NVLINK] = "the NVLinks between two GPUs",
		[LOCAL_LINK_NVSWITCH] = "a GPU's links to the NVSwitches",
	};
	const struct local_link *l = &p->link[p->bottleneck];
	bool network = local_load(l, LOCAL_UP) > 0 && l->load[LOCAL_UP][LOCAL_BY_NETWORK] > 0;

	snprintf(buf, len, "%s%s", meaning[l->kind],
		 l->kind == LOCAL_LINK_SWITCH && network ? ", which a NIC shares" : "");
	return buf;
}
