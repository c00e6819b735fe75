// SPDX-License-Identifier: Apache-2.0
/*
 * local_path.c - groups, and the way on which a group's GPUs reduce.
 *
 * A ring: NCCL reduces and broadcasts along rings, and one that lacks a link would go through
 * the CPU.  Its narrowest link shall be as wide as possible, so rings are looked for over the
 * fastest links first, then over slower ones, too.  DGX-1's hybrid mesh has one, a switch has
 * one trivially.  Where there is none, or the search takes too long, GPUs are not grouped so.
 */
#include <string.h>

#include "common/topo/local_int.h"

#define STEPS_MAX 20000u		/* of a search for rings; groups are small or dense */

static bool joined(const struct topo *t, enum local_grouping how, uint32_t a, uint32_t b)
{
	if (how == LOCAL_GROUP_ALONE)
		return false;
	if (topo_same_switch(t, a, b))
		return true;
	return how == LOCAL_GROUP_JOINED && topo_nvlinked(t, a, b);
}

static void sort(uint32_t *v, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t j = i; j > 0 && v[j] < v[j - 1]; j--) {
			uint32_t x = v[j];

			v[j] = v[j - 1];
			v[j - 1] = x;
		}
}

/* member[] is also the queue of GPUs whose neighbours are still to be looked at. */
void local_group_up(const struct topo *t, enum local_grouping how, struct local_plan *p)
{
	bool taken[TOPO_GPUS_MAX] = { false };
	uint32_t n = 0;

	p->grouping = how;
	p->groups = 0;
	for (uint32_t seed = 0; seed < t->gpus; seed++) {
		struct local_group *g = &p->group[p->groups];

		if (taken[seed])
			continue;
		*g = (struct local_group){ .first = n };
		taken[seed] = true;
		p->member[n++] = seed;
		for (uint32_t at = g->first; at < n; at++)
			for (uint32_t i = 0; i < t->gpus; i++)
				if (!taken[i] && joined(t, how, p->member[at], i)) {
					taken[i] = true;
					p->member[n++] = i;
				}
		g->count = n - g->first;
		sort(&p->member[g->first], g->count);
		p->groups++;
	}
}

/* ---- links between two GPUs of a group ---- */

struct search {
	const struct topo *t;
	uint32_t gpu[TOPO_GPUS_MAX];	/* of the group, by index */
	uint32_t count;
	bool nvlink_only;
	uint64_t at_least;		/* links slower than this are not used */
	uint32_t steps;
	uint32_t path[TOPO_GPUS_MAX];	/* positions in gpu[] */
	bool used[TOPO_GPUS_MAX];
};

/* Bits/s; 0: no direct way. */
static uint64_t width(const struct search *s, uint32_t a, uint32_t b)
{
	uint32_t i = s->gpu[a], j = s->gpu[b];
	uint64_t nv = topo_nvlink_rate(s->t, i, j);

	if (nv || s->nvlink_only)
		return nv;
	if (!topo_same_switch(s->t, i, j))
		return 0;
	return MIN(s->t->gpu[i].pcie.bits_per_s, s->t->gpu[j].pcie.bits_per_s);
}

/* Do the links seen now join all? */
static bool is_whole(const struct search *s)
{
	uint32_t queue[TOPO_GPUS_MAX] = { 0 }, n = 1;
	bool seen[TOPO_GPUS_MAX] = { true };

	for (uint32_t at = 0; at < n; at++)
		for (uint32_t i = 0; i < s->count; i++)
			if (!seen[i] && width(s, queue[at], i)) {
				seen[i] = true;
				queue[n++] = i;
			}
	return n == s->count;
}

/* ---- rings ---- */

static bool ring_from(struct search *s, uint32_t len);

static bool ring_over(struct search *s, uint32_t len, uint32_t next)
{
	if (++s->steps > STEPS_MAX)
		return false;
	s->used[next] = true;
	s->path[len] = next;
	if (ring_from(s, len + 1))
		return true;
	s->used[next] = false;
	return false;
}

/* NVLinks first: where they alternate with a switch, its links carry half. */
static bool ring_from(struct search *s, uint32_t len)
{
	uint32_t last = s->path[len - 1];

	if (len == s->count)
		return width(s, last, s->path[0]) >= s->at_least;
	for (int nvlink = 1; nvlink >= 0; nvlink--)
		for (uint32_t next = 1; next < s->count; next++) {
			if (s->used[next] || width(s, last, next) < s->at_least ||
			    topo_nvlinked(s->t, s->gpu[last], s->gpu[next]) != nvlink)
				continue;
			if (ring_over(s, len, next))
				return true;
		}
	return false;
}

/* The widest below `width`, 0: none. */
static uint64_t next_width(const struct search *s, uint64_t below)
{
	uint64_t best = 0;

	for (uint32_t a = 0; a < s->count; a++)
		for (uint32_t b = 0; b < a; b++) {
			uint64_t w = width(s, a, b);

			if (w < below)
				best = MAX(best, w);
		}
	return best;
}

/* A ring goes to each GPU by one link, and leaves it by another. */
static bool has_links(const struct search *s, uint64_t at_least)
{
	for (uint32_t a = 0; a < s->count; a++) {
		uint32_t n = 0;

		for (uint32_t b = 0; b < s->count; b++)
			n += a != b && width(s, a, b) >= at_least;
		if (n < MIN(2, s->count - 1))
			return false;
	}
	return true;
}

/*
 * Searches for a ring, the fastest links first. Steps that the search over faster links took do
 * not keep it from looking at all links.
 */
static bool find_ring(struct search *s)
{
	for (uint64_t w = next_width(s, UINT64_MAX); w; w = next_width(s, w)) {
		if (!has_links(s, w))
			continue;
		if (!next_width(s, w))
			s->steps = 0;
		s->at_least = w;
		memset(s->used, 0, sizeof(s->used));
		s->used[0] = true;
		s->path[0] = 0;
		if (ring_from(s, 1))
			return true;
	}
	return s->count == 1;
}

static bool find_path(const struct topo *t, struct local_plan *p, struct local_group *g)
{
	struct search s = { .t = t, .count = g->count, .nvlink_only = true };

	memcpy(s.gpu, &p->member[g->first], g->count * sizeof(s.gpu[0]));
	g->nvlink = g->count > 1 && is_whole(&s);
	s.nvlink_only = g->nvlink;
	if (!find_ring(&s))
		return false;
	for (uint32_t i = 0; i < g->count; i++)
		p->member[g->first + i] = s.gpu[s.path[i]];
	return true;
}

bool local_find_paths(const struct topo *t, struct local_plan *p)
{
	for (uint32_t i = 0; i < p->groups; i++)
		if (!find_path(t, p, &p->group[i]))
			return false;
	return true;
}
