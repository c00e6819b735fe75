// SPDX-License-Identifier: Apache-2.0
/*
 * topo_probe.c - one thread for each CPU of a node copies its own buffer for a while.
 *
 * Threads touch their buffers first, so that memory is near, and begin together but for
 * that.  A buffer is larger than a core's share of the last cache, so memcpy() reads from
 * memory and, at that size, writes past the caches: each byte copied is two bytes moved.
 */
#include "common/rt/topo_probe.h"

#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/loop.h"
#include "common/rt/topo_read.h"

#define BUFFER_BYTES	(16u << 20)
#define PROBE_TIME	(200 * NS_PER_MS)

struct copier {
	pthread_t thread;
	hwloc_topology_t h;
	hwloc_const_cpuset_t cpus;
	pthread_mutex_t *start;		/* held until all are there */
	double bytes_per_s;		/* 0: no memory, or not let run there */
};

static void copy_for_a_while(struct copier *c, uint8_t *from, uint8_t *to)
{
	mono_t began = loop_now(), now;
	uint64_t copies = 0;

	do {
		memcpy(to, from, BUFFER_BYTES);
		from[copies++ % BUFFER_BYTES]++;	/* no copy is the same as the last */
		now = loop_now();
	} while (now - began < PROBE_TIME);
	c->bytes_per_s = 2.0 * BUFFER_BYTES * (double)copies * NS_PER_SEC / (double)(now - began);
}

static void *run_copier(void *arg)
{
	struct copier *c = arg;
	bool bound = hwloc_set_cpubind(c->h, c->cpus, HWLOC_CPUBIND_THREAD) == 0;
	uint8_t *from = malloc(BUFFER_BYTES), *to = malloc(BUFFER_BYTES);

	if (from && to) {
		memset(from, 1, BUFFER_BYTES);
		memset(to, 2, BUFFER_BYTES);
	}
	pthread_mutex_lock(c->start);
	pthread_mutex_unlock(c->start);
	if (from && to && bound)
		copy_for_a_while(c, from, to);
	free(from);
	free(to);
	return NULL;
}

/* Bytes/s of all CPUs in the set together, 0: cannot tell. */
static double probe(hwloc_topology_t h, hwloc_const_cpuset_t cpus)
{
	struct copier c[PROBE_THREADS_MAX];
	pthread_mutex_t start = PTHREAD_MUTEX_INITIALIZER;
	uint32_t want = (uint32_t)MAX(1, hwloc_bitmap_weight(cpus)), n;
	double sum = 0;

	want = MIN(want, PROBE_THREADS_MAX);
	pthread_mutex_lock(&start);
	for (n = 0; n < want; n++) {
		c[n] = (struct copier){ .h = h, .cpus = cpus, .start = &start };
		if (pthread_create(&c[n].thread, NULL, run_copier, &c[n]))
			break;
	}
	pthread_mutex_unlock(&start);
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(c[i].thread, NULL);
		sum += c[i].bytes_per_s;
	}
	return sum;
}

static uint32_t probe_nodes(hwloc_topology_t h, struct topo *t)
{
	uint32_t measured = 0;

	for (hwloc_obj_t o = NULL;
	     (o = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, o)) != NULL;)
		for (uint32_t i = 0; i < t->nodes; i++) {
			uint64_t bits;
			char name[TOPO_NAME_MAX + 1];

			snprintf(name, sizeof(name), TOPO_NODE_NAME, o->os_index);
			if (strcmp(name, t->node[i].name) != 0)
				continue;
			bits = (uint64_t)(8 * probe(h, o->cpuset));
			if (!bits)
				continue;
			t->node[i].memory = (struct topo_rate){ bits, false };
			measured++;
		}
	return measured;
}

uint32_t topo_probe_memory(struct topo *t)
{
	hwloc_topology_t h;
	uint32_t measured = 0;

	if (hwloc_topology_init(&h) < 0)
		return 0;
	/* what a file describes is not here */
	if (hwloc_topology_load(h) == 0 && hwloc_topology_is_thissystem(h))
		measured = probe_nodes(h, t);
	hwloc_topology_destroy(h);
	return measured;
}
