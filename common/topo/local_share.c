// SPDX-License-Identifier: Apache-2.0
/*
 * local_share.c - which root takes how much, and by which card it goes.
 *
 * Given a time T, each device can move T times its rate, and all devices below a switch
 * together what the switch's own link moves in T beside what it carries anyhow.  That
 * grows with T, so the smallest T in which everything is moved is found by bisection;
 * the shares are the capacities then.  Cards get their shares of the network's traffic
 * that way, and roots theirs of the copies, with the cards' traffic carried before.
 *
 * Where cards and some of the GPUs share switches and other GPUs do not, roots are
 * looked for among those others first.  Equal shares are preferred as long as they do
 * not hold back more than the network does.
 */
#include <math.h>
#include <string.h>

#include "common/topo/local_int.h"

#define EPS	1e-9			/* relative; times that differ by less are one */
#define NOTHING	1e-12			/* a share that rounding made */

/* ---- the smallest time ---- */

struct filling {
	const struct topo *t;
	const struct local_filler *f;
	uint32_t count;
	const double *before;			/* NULL: nothing */
	double of_item[MAX(TOPO_GPUS_MAX, TOPO_CARDS_MAX)];
	double below[TOPO_SWITCHES_MAX];	/* what is below a switch together */
	double of_switch[TOPO_SWITCHES_MAX];	/* what of that passes */
};

static double *way_up(struct filling *w, const struct topo_place *at, double *top)
{
	return at->sw == TOPO_NONE ? top : &w->below[at->sw];
}

/* Everything that can be moved within `time`. */
static double capacity(struct filling *w, double time)
{
	double top = 0;

	memset(w->below, 0, sizeof(w->below));
	for (uint32_t i = 0; i < w->count; i++) {
		w->of_item[i] = w->f[i].out ? 0 : time * w->f[i].rate;
		*way_up(w, &w->f[i].at, &top) += w->of_item[i];
	}
	/* Switches above have smaller indices. */
	for (uint32_t i = w->t->switches; i-- > 0;) {
		const struct topo_switch *sw = &w->t->sw[i];
		double room = time * (double)sw->up.bits_per_s - (w->before ? w->before[i] : 0);

		w->of_switch[i] = fmin(w->below[i], fmax(0, room));
		*way_up(w, &sw->at, &top) += w->of_switch[i];
	}
	return top;
}

static void give(const struct filling *w, double scale, double *share)
{
	double part[TOPO_SWITCHES_MAX];		/* of its capacity that something really moves */
	double sum = 0;

	for (uint32_t i = 0; i < w->t->switches; i++) {
		uint32_t above = w->t->sw[i].at.sw;
		double here = above == TOPO_NONE ? scale : part[above];

		part[i] = w->below[i] > 0 ? here * w->of_switch[i] / w->below[i] : 0;
	}
	for (uint32_t i = 0; i < w->count; i++) {
		uint32_t sw = w->f[i].at.sw;

		share[i] = w->of_item[i] * (sw == TOPO_NONE ? scale : part[sw]);
		if (share[i] < EPS)
			share[i] = 0;
		sum += share[i];
	}
	for (uint32_t i = 0; i < w->count; i++)
		share[i] /= sum;
}

double local_fill(const struct topo *t, const struct local_filler *f, uint32_t count,
		  const double *before, double *share)
{
	struct filling w = { .t = t, .f = f, .count = count, .before = before };
	double lo = 0, hi = 0;

	for (uint32_t i = 0; i < count; i++)
		if (!f[i].out)
			hi = fmax(hi, 1 / f[i].rate);
	if (hi == 0)
		return INFINITY;
	while (capacity(&w, hi) < 1) {
		lo = hi;
		hi *= 2;
	}
	while (hi - lo > hi * 1e-14) {
		double mid = lo + (hi - lo) / 2;

		if (capacity(&w, mid) >= 1)
			hi = mid;
		else
			lo = mid;
	}
	give(&w, 1 / capacity(&w, hi), share);
	return hi;
}

double local_fill_time(const struct topo *t, const struct local_filler *f, uint32_t count,
		       const double *before, const double *share)
{
	double through[TOPO_SWITCHES_MAX] = { 0 }, time = 0;

	for (uint32_t i = 0; i < count; i++) {
		time = fmax(time, share[i] / f[i].rate);
		for (uint32_t s = f[i].at.sw; s != TOPO_NONE; s = t->sw[s].at.sw)
			through[s] += share[i];
	}
	for (uint32_t i = 0; i < t->switches; i++)
		if (through[i] > 0)
			time = fmax(time, (through[i] + (before ? before[i] : 0)) /
				    (double)t->sw[i].up.bits_per_s);
	return time;
}

/* ---- roots ---- */

struct sharing {
	const struct topo *t;
	struct local_plan *p;
	double before[TOPO_SWITCHES_MAX];	/* the network's traffic, each way */
	bool has_card[TOPO_SWITCHES_MAX];	/* top switches */
	double network_time;			/* nothing need be faster */
};

static bool beside_card(const struct sharing *s, uint32_t gpu)
{
	uint32_t top = topo_top(s->t, &s->t->gpu[gpu].at);

	return top != TOPO_NONE && s->has_card[top];
}

/* S_n and S_g of the group; a GPU straight on the CPU is a switch of its own. */
static void count_switches(const struct sharing *s, struct local_group *g)
{
	bool seen[TOPO_SWITCHES_MAX] = { false };

	for (uint32_t i = 0; i < g->count; i++) {
		uint32_t gpu = s->p->member[g->first + i];
		uint32_t top = topo_top(s->t, &s->t->gpu[gpu].at);

		if (top != TOPO_NONE && seen[top])
			continue;
		if (top != TOPO_NONE)
			seen[top] = true;
		if (beside_card(s, gpu))
			g->switches_card++;
		else
			g->switches_only++;
	}
}

/* Equal shares, if they are as good. */
static void level(const struct sharing *s, const struct local_filler *f, uint32_t count,
		  double time, double *share)
{
	double equal[TOPO_GPUS_MAX];
	uint32_t in = 0;

	for (uint32_t i = 0; i < count; i++)
		in += !f[i].out;
	for (uint32_t i = 0; i < count; i++)
		equal[i] = f[i].out ? 0 : 1.0 / in;
	if (local_fill_time(s->t, f, count, s->before, equal) <=
	    fmax(time, s->network_time) * (1 + EPS))
		memcpy(share, equal, count * sizeof(*share));
}

static void choose_roots(const struct sharing *s, struct local_group *g, double *share)
{
	struct local_filler f[TOPO_GPUS_MAX];
	double time;

	count_switches(s, g);
	g->spared = g->switches_card && g->switches_only;
	for (uint32_t i = 0; i < g->count; i++) {
		uint32_t gpu = s->p->member[g->first + i];

		f[i] = (struct local_filler){
			s->t->gpu[gpu].at, (double)s->t->gpu[gpu].pcie.bits_per_s,
			g->spared && beside_card(s, gpu),
		};
	}
	time = local_fill(s->t, f, g->count, s->before, share);
	if (g->spared && time > s->network_time * (1 + EPS)) {
		double all_share[TOPO_GPUS_MAX], all_time;

		for (uint32_t i = 0; i < g->count; i++)
			f[i].out = false;
		all_time = local_fill(s->t, f, g->count, s->before, all_share);
		if (all_time < time * (1 - EPS)) {
			g->spared = false;
			time = all_time;
			memcpy(share, all_share, sizeof(all_share));
		}
		for (uint32_t i = 0; i < g->count; i++)
			f[i].out = g->spared && beside_card(s, s->p->member[g->first + i]);
	}
	level(s, f, g->count, time, share);
	g->whole = g->spared && s->p->groups == 1;
}

/* ---- roots' cards ---- */

enum { SAME_SWITCH, SAME_NODE, SAME_SOCKET, FAR, DISTANCES };

static int distance(const struct topo *t, const struct topo_place *a, const struct topo_place *b)
{
	uint32_t top = topo_top(t, a);

	if (top != TOPO_NONE && top == topo_top(t, b))
		return SAME_SWITCH;
	if (a->node == b->node)
		return SAME_NODE;
	return t->node[a->node].socket == t->node[b->node].socket ? SAME_SOCKET : FAR;
}

/* by[root][card]: nearest first; every step fills a root's share or a card's. */
static void assign_cards(const struct sharing *s, const struct local_group *g,
			 const double *share, double by[TOPO_GPUS_MAX][TOPO_CARDS_MAX])
{
	double root_left[TOPO_GPUS_MAX], card_left[TOPO_CARDS_MAX];

	memset(by, 0, sizeof(double) * TOPO_GPUS_MAX * TOPO_CARDS_MAX);
	memcpy(root_left, share, g->count * sizeof(*share));
	memcpy(card_left, s->p->card_share, sizeof(card_left));
	for (int d = SAME_SWITCH; d < DISTANCES; d++)
		for (uint32_t i = 0; i < g->count; i++)
			for (uint32_t c = 0; c < s->t->cards; c++) {
				uint32_t gpu = s->p->member[g->first + i];
				double part = fmin(root_left[i], card_left[c]);

				if (part <= NOTHING || distance(s->t, &s->t->gpu[gpu].at,
								&s->t->card[c].at) != d)
					continue;
				by[i][c] = part;
				root_left[i] -= part;
				card_left[c] -= part;
			}
}

static void add_copy(struct local_plan *p, struct local_group *g, struct local_copy c)
{
	ASSERT(p->copies < LOCAL_COPIES_MAX);
	p->copy[p->copies++] = c;
	g->copies++;
}

static uint32_t weight(double up_to)
{
	return (uint32_t)fmin(LOCAL_WEIGHT_SUM, round(up_to * LOCAL_WEIGHT_SUM));
}

/* Memory near the GPU, unless the CPU adds there what others bring. */
static void copy_without_cards(const struct sharing *s, struct local_group *g,
			       const double *share)
{
	double sum = 0;

	for (uint32_t i = 0; i < g->count; i++) {
		uint32_t gpu = s->p->member[g->first + i];
		uint32_t near = s->p->groups == 1 ? gpu : 0;

		sum += share[i];
		if (share[i] > 0)
			add_copy(s->p, g, (struct local_copy){
				gpu, TOPO_NONE, s->t->gpu[near].at.node, weight(sum), share[i] });
	}
}

/* Between cards every group is cut at the same places: what the cards' shares come to. */
static void copy_by_cards(const struct sharing *s, struct local_group *g, const double *share)
{
	double by[TOPO_GPUS_MAX][TOPO_CARDS_MAX], before = 0;

	assign_cards(s, g, share, by);
	for (uint32_t c = 0; c < s->t->cards; c++) {
		double sum = before;
		uint32_t had = g->copies;

		for (uint32_t i = 0; i < g->count; i++) {
			sum += by[i][c];
			if (by[i][c] > 0)
				add_copy(s->p, g, (struct local_copy){
					s->p->member[g->first + i], c, s->t->card[c].at.node,
					weight(sum), by[i][c] });
		}
		before += s->p->card_share[c];
		if (g->copies > had)
			s->p->copy[s->p->copies - 1].weight_end = weight(before);
	}
}

/* ---- all of it ---- */

static void share_cards(struct sharing *s)
{
	const struct topo *t = s->t;
	struct local_filler f[TOPO_CARDS_MAX];

	for (uint32_t c = 0; c < t->cards; c++)
		f[c] = (struct local_filler){
			t->card[c].at,
			(double)MIN(t->card[c].net.bits_per_s, t->card[c].pcie.bits_per_s), false,
		};
	if (t->cards)
		s->network_time = local_fill(t, f, t->cards, NULL, s->p->card_share);
	for (uint32_t c = 0; c < t->cards; c++) {
		uint32_t top = topo_top(t, &t->card[c].at);

		for (uint32_t i = t->card[c].at.sw; i != TOPO_NONE; i = t->sw[i].at.sw)
			s->before[i] += s->p->card_share[c];
		if (top != TOPO_NONE)
			s->has_card[top] = true;
	}
}

void local_share_out(const struct topo *t, struct local_plan *p)
{
	struct sharing s = { .t = t, .p = p };

	p->copies = 0;
	share_cards(&s);
	for (uint32_t i = 0; i < p->groups; i++) {
		struct local_group *g = &p->group[i];
		double share[TOPO_GPUS_MAX];

		choose_roots(&s, g, share);
		g->first_copy = p->copies;
		if (t->cards)
			copy_by_cards(&s, g, share);
		else
			copy_without_cards(&s, g, share);
		p->copy[p->copies - 1].weight_end = LOCAL_WEIGHT_SUM;
	}
}
