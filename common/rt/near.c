// SPDX-License-Identifier: Apache-2.0
#include "common/rt/near.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/rt/hwloc_load.h"

/* ---- the machine ---- */

static void read_allowed(struct near *m)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return;
	for (int i = 0; i < CPU_SETSIZE && m->cpus < NEAR_CPUS_MAX; i++)
		if (CPU_ISSET((size_t)i, &set))
			m->cpu[m->cpus++] = i;
}

static void read_all(struct near *m, hwloc_topology_t h)
{
	hwloc_const_cpuset_t set = hwloc_topology_get_allowed_cpuset(h);

	for (int i = hwloc_bitmap_first(set); i >= 0 && m->cpus < NEAR_CPUS_MAX;
	     i = hwloc_bitmap_next(set, i))
		m->cpu[m->cpus++] = i;
}

/* Nodes are known here by their logical index. */
static uint32_t node_above(hwloc_topology_t h, hwloc_obj_t o)
{
	uint32_t i = 0;

	for (hwloc_obj_t n = NULL;
	     o && (n = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, n)) != NULL; i++)
		if (i < TOPO_NODES_MAX && n->cpuset && o->cpuset &&
		    hwloc_bitmap_intersects(n->cpuset, o->cpuset))
			return i;
	return NEAR_UNKNOWN;
}

static uint32_t node_of_card(hwloc_topology_t h, const char *bus_id)
{
	hwloc_obj_t dev = bus_id[0] ? hwloc_get_pcidev_by_busidstring(h, bus_id) : NULL;

	return dev ? node_above(h, hwloc_get_non_io_ancestor_obj(h, dev)) : NEAR_UNKNOWN;
}

static void read_distances(struct near *m, hwloc_topology_t h)
{
	struct hwloc_distances_s *d;
	unsigned n = 1;

	for (uint32_t i = 0; i < m->nodes; i++)
		for (uint32_t k = 0; k < m->nodes; k++)
			m->distance[i][k] = i != k;
	if (hwloc_distances_get_by_type(h, HWLOC_OBJ_NUMANODE, &n, &d,
					HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) || !n)
		return;
	for (uint32_t i = 0; i < d->nbobjs; i++)
		for (uint32_t k = 0; k < d->nbobjs; k++) {
			uint32_t a = d->objs[i]->logical_index, b = d->objs[k]->logical_index;
			uint64_t far = d->values[i * d->nbobjs + k];
			uint64_t here = d->values[i * d->nbobjs + i];

			if (a < m->nodes && b < m->nodes)
				m->distance[a][b] = far - MIN(far, here);
		}
	hwloc_distances_release(h, d);
}

static void read_nodes(struct near *m, hwloc_topology_t h, const char *const *bus_id)
{
	int n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);

	m->nodes = n > 0 ? MIN((uint32_t)n, TOPO_NODES_MAX) : 0;
	for (uint32_t i = 0; i < m->cpus; i++)
		m->cpu_node[i] = node_above(h, hwloc_get_pu_obj_by_os_index(h,
								(unsigned)m->cpu[i]));
	for (uint32_t i = 0; i < m->cards; i++)
		m->card_node[i] = node_of_card(h, bus_id[i]);
	read_distances(m, h);
}

void near_read(struct near *m, const char *xml, const char *const *bus_id, uint32_t n)
{
	hwloc_topology_t h;
	struct err e;

	memset(m, 0, sizeof(*m));
	m->cards = MIN(n, RAILS_MAX);
	for (uint32_t i = 0; i < NEAR_CPUS_MAX; i++)
		m->cpu_node[i] = NEAR_UNKNOWN;
	for (uint32_t i = 0; i < RAILS_MAX; i++)
		m->card_node[i] = NEAR_UNKNOWN;
	if (!xml)
		read_allowed(m);
	if (hwloc_topology_init(&h) < 0)
		return;
	if (!hwloc_load(h, xml, &e)) {
		if (xml)
			read_all(m, h);
		read_nodes(m, h, bus_id);
	}
	hwloc_topology_destroy(h);
}

/* ---- what follows from it ---- */

static uint64_t distance(const struct near *m, uint32_t a, uint32_t b)
{
	return a == NEAR_UNKNOWN || b == NEAR_UNKNOWN ? 0 : m->distance[a][b];
}

/* Index of the CPU nearest to that node which is nobody's yet. */
static uint32_t nearest(const struct near *m, uint32_t node, bool from_last, const bool *taken)
{
	uint32_t best = m->cpus;

	for (uint32_t i = 0; i < m->cpus; i++) {
		uint32_t k = from_last ? m->cpus - 1 - i : i;

		if (taken[k])
			continue;
		if (best == m->cpus ||
		    distance(m, node, m->cpu_node[k]) < distance(m, node, m->cpu_node[best]))
			best = k;
	}
	return best;
}

void near_pin(const struct near *m, uint32_t engines, bool from_last, int *cpu)
{
	bool taken[NEAR_CPUS_MAX] = { false };

	for (uint32_t e = 0; e < engines; e++) {
		uint32_t k;

		cpu[e] = -1;
		if (engines < 2 || m->cpus <= engines)
			continue;
		k = nearest(m, m->cards ? m->card_node[e % m->cards] : NEAR_UNKNOWN, from_last,
			    taken);
		taken[k] = true;
		cpu[e] = m->cpu[k];
	}
}

static uint32_t node_of_cpu(const struct near *m, int cpu)
{
	for (uint32_t i = 0; i < m->cpus; i++)
		if (m->cpu[i] == cpu)
			return m->cpu_node[i];
	return NEAR_UNKNOWN;
}

void near_text(const struct near *m, const char *const *addr, const int *cpu, uint32_t engines,
	       char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (uint32_t e = 0; e < engines && at < len; e++) {
		uint32_t card = m->cards ? e % m->cards : 0;
		bool near = m->cards && m->nodes > 1 && m->card_node[card] != NEAR_UNKNOWN &&
			    !distance(m, m->card_node[card], node_of_cpu(m, cpu[e]));

		at += (size_t)snprintf(buf + at, len - at, "%s%d%s%s%s", e ? ", " : "", cpu[e],
				       near ? " (near " : "", near ? addr[card] : "",
				       near ? ")" : "");
	}
}

void near_order(const struct near *m, int cpu, uint32_t *order)
{
	uint32_t node = node_of_cpu(m, cpu);

	for (uint32_t i = 0; i < m->cards; i++) {	/* few: by insertion, which is stable */
		uint32_t at = i;

		while (at && distance(m, node, m->card_node[order[at - 1]]) >
			     distance(m, node, m->card_node[i])) {
			order[at] = order[at - 1];
			at--;
		}
		order[at] = i;
	}
}
