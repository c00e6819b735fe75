/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_int.h - the steps of making a local plan, private to common/topo.
 *
 * local.c calls them in this order: groups, paths, shares, loads.  Each reads what
 * those before it have put into the plan.
 */
#ifndef TALLY_TOPO_LOCAL_INT_H
#define TALLY_TOPO_LOCAL_INT_H

#include "common/topo/local.h"

/* Puts the GPUs into groups; member[] is in order of index. */
void local_group_up(const struct topo *t, enum local_grouping how, struct local_plan *p);

/* A ring through each group: orders member[].  False: some group has none. */
bool local_find_paths(const struct topo *t, struct local_plan *p);

/* Devices that share a load of 1 in all, as their rates and those above allow. */
struct local_filler {
	struct topo_place at;
	double rate;			/* bits/s */
	bool out;			/* takes no part */
};

/*
 * The shares (1 in all) with which the load is moved soonest.  before[i] is what the way
 * up of switch i carries anyhow.  Returns the time that takes, in s per bit of load,
 * or INFINITY when all are out.
 */
double local_fill(const struct topo *t, const struct local_filler *f, uint32_t count,
		  const double *before, double *share);
/* The time that given shares take. */
double local_fill_time(const struct topo *t, const struct local_filler *f, uint32_t count,
		       const double *before, const double *share);

/* Fills card_share[], and roots and their shares: copy[] and what groups say of them. */
void local_share_out(const struct topo *t, struct local_plan *p);

/* Fills link[] from all that; then the bottleneck. */
void local_load_links(const struct topo *t, struct local_plan *p);

#endif
