/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.h - which of a machine's CPUs and network cards are near each other.
 *
 * A daemon with several engines pins each to a CPU of its own near a card, the cards in
 * turn, and an agent's engine takes the nearest card first where several could take a frame
 * equally soon.  Distances are those between NUMA nodes, as hwloc and the firmware tell
 * them.  What is not known (a card without a node, a machine of one node) is near to all.
 *
 * near_read() asks the machine; near_pin() and near_order() are pure.
 */
#ifndef TALLY_RT_NEAR_H
#define TALLY_RT_NEAR_H

#include "common/base/err.h"

#define NEAR_CPUS_MAX	1024u
#define NEAR_UNKNOWN	UINT32_MAX	/* instead of a node */

struct near {
	uint32_t cpus, cards, nodes;
	int cpu[NEAR_CPUS_MAX];		/* the kernel's numbers, rising: those we may use */
	uint32_t cpu_node[NEAR_CPUS_MAX];
	uint32_t card_node[RAILS_MAX];
	uint64_t distance[TOPO_NODES_MAX][TOPO_NODES_MAX];	/* by index; no unit, 0: itself */
};

/*
 * Fills m for the cards with these PCI addresses ("": its node is unknown).  xml NULL: this
 * machine, and the CPUs that this process may use; else hwloc's description of some
 * machine, and all of its CPUs.  Never fails: without hwloc's help no node is known.
 */
void near_read(struct near *m, const char *xml, const char *const *bus_id, uint32_t n);

/*
 * The CPU of each engine, cpu[engines]: engine i near card i mod cards, as near as any
 * that is left, the first of those in the kernel's order; from_last: the last of those, so
 * that the agent and the server of one machine do not meet.  All are -1, not pinned, where
 * there is one engine, or no CPU is left for the rest of the machine.
 */
void near_pin(const struct near *m, uint32_t engines, bool from_last, int *cpu);

/* "2 (near 10.0.0.1), 3": the engines' CPUs, and the addresses of cards that they are near to,
 * where there is more than one node. */
void near_text(const struct near *m, const char *const *addr, const int *cpu, uint32_t engines,
	       char *buf, size_t len);

/* order[cards]: the cards by their distance from that CPU, nearest first, else as they
 * are; all as they are when cpu is -1. */
void near_order(const struct near *m, int cpu, uint32_t *order);

#endif
