// SPDX-License-Identifier: Apache-2.0
/*
 * topo.c - a description of a machine: is it sound, and what follows from it at once.
 *
 * Everything that comes from a file or from a kernel passes topo_check(); after it,
 * indices hold and every walk upward ends, because a switch above has a smaller index.
 */
#include "common/topo/topo.h"

#include <string.h>

/* What a link has where nobody says: PCIe 3.0 x16, six channels of DDR4, two UPI links. */
#define GUESS_PCIE	UINT64_C(126000000000)
#define GUESS_NET	UINT64_C(100000000000)
#define GUESS_MEMORY	UINT64_C(800000000000)
#define GUESS_SOCKETS	UINT64_C(300000000000)

static bool place_ok(const struct topo *t, const struct topo_place *at, uint32_t switches)
{
	if (at->node >= t->nodes)
		return false;
	return at->sw == TOPO_NONE || (at->sw < switches && t->sw[at->sw].at.node == at->node);
}

static int check_places(const struct topo *t, struct err *e)
{
	for (uint32_t i = 0; i < t->switches; i++)
		if (!place_ok(t, &t->sw[i].at, i))
			return err_set(e, TALLY_EINVAL, "switch %s hangs nowhere", t->sw[i].name);
	for (uint32_t i = 0; i < t->gpus; i++)
		if (!place_ok(t, &t->gpu[i].at, t->switches))
			return err_set(e, TALLY_EINVAL, "GPU %s hangs nowhere", t->gpu[i].name);
	for (uint32_t i = 0; i < t->cards; i++)
		if (!place_ok(t, &t->card[i].at, t->switches))
			return err_set(e, TALLY_EINVAL, "NIC %s hangs nowhere", t->card[i].name);
	return 0;
}

int topo_check(const struct topo *t, struct err *e)
{
	int r;

	if (t->nodes > TOPO_NODES_MAX || t->switches > TOPO_SWITCHES_MAX ||
	    t->gpus > TOPO_GPUS_MAX || t->cards > TOPO_CARDS_MAX)
		return err_set(e, TALLY_EINVAL, "more devices than a description holds");
	if (t->nodes == 0)
		return err_set(e, TALLY_EINVAL, "no NUMA node: every machine has memory somewhere");
	r = check_places(t, e);
	if (r)
		return r;
	for (uint32_t a = 0; a < t->gpus; a++)
		for (uint32_t b = 0; b <= a; b++)
			if (t->nvlink[a][b] != t->nvlink[b][a] || (a == b && t->nvlink[a][b]))
				return err_set(e, TALLY_EINVAL,
					       "NVLink between %s and %s is not the same both ways",
					       t->gpu[a].name, t->gpu[b].name);
	return 0;
}

static void guess(struct topo_rate *r, uint64_t bits_per_s)
{
	if (!r->bits_per_s)
		*r = (struct topo_rate){ bits_per_s, true };
}

void topo_guess(struct topo *t)
{
	guess(&t->sockets, GUESS_SOCKETS);
	for (uint32_t i = 0; i < t->nodes; i++)
		guess(&t->node[i].memory, GUESS_MEMORY);
	for (uint32_t i = 0; i < t->switches; i++)
		guess(&t->sw[i].up, GUESS_PCIE);
	for (uint32_t i = 0; i < t->gpus; i++)
		guess(&t->gpu[i].pcie, GUESS_PCIE);
	for (uint32_t i = 0; i < t->cards; i++) {
		struct topo_card *c = &t->card[i];

		guess(&c->pcie, GUESS_PCIE);
		guess(&c->net, MIN(GUESS_NET, c->pcie.bits_per_s));
	}
}

/* 0: nothing is known. */
static uint64_t card_rate(const struct topo_card *c, bool wire_only)
{
	uint64_t net = c->net.bits_per_s, pcie = c->pcie.bits_per_s;

	if (wire_only || !pcie)
		return net;
	return net ? MIN(net, pcie) : pcie;
}

uint32_t topo_drop_slow_cards(struct topo *t)
{
	uint64_t fastest = 0;
	uint32_t left = 0, were = t->cards;
	bool wires = false;

	/* A slot's width says little about a card whose wire is down or unknown. */
	for (uint32_t i = 0; i < t->cards; i++)
		wires |= t->card[i].net.bits_per_s != 0;
	for (uint32_t i = 0; i < t->cards; i++)
		fastest = MAX(fastest, card_rate(&t->card[i], wires));
	for (uint32_t i = 0; i < t->cards; i++)
		if (card_rate(&t->card[i], wires) >= fastest - fastest / 2)
			t->card[left++] = t->card[i];
	t->cards = left;
	return were - left;
}

uint32_t topo_top(const struct topo *t, const struct topo_place *at)
{
	uint32_t sw = at->sw;

	while (sw != TOPO_NONE && t->sw[sw].at.sw != TOPO_NONE)
		sw = t->sw[sw].at.sw;
	return sw;
}

bool topo_same_switch(const struct topo *t, uint32_t gpu_a, uint32_t gpu_b)
{
	uint32_t top = topo_top(t, &t->gpu[gpu_a].at);

	return top != TOPO_NONE && top == topo_top(t, &t->gpu[gpu_b].at);
}

uint64_t topo_nvlink_rate(const struct topo *t, uint32_t gpu_a, uint32_t gpu_b)
{
	uint64_t a = t->gpu[gpu_a].nvswitch.bits_per_s, b = t->gpu[gpu_b].nvswitch.bits_per_s;

	return gpu_a == gpu_b ? 0 : t->nvlink[gpu_a][gpu_b] + MIN(a, b);
}

bool topo_nvlinked(const struct topo *t, uint32_t gpu_a, uint32_t gpu_b)
{
	return topo_nvlink_rate(t, gpu_a, gpu_b) > 0;
}
