/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_probe.h - measures host memory, which would otherwise be guessed.
 *
 * Takes some tenths of a second for each NUMA node, all of its CPUs and 32 MiB for each
 * of them (at most PROBE_THREADS_MAX).  What else runs on the machine slows it down.
 */
#ifndef TALLY_RT_TOPO_PROBE_H
#define TALLY_RT_TOPO_PROBE_H

#include "common/topo/topo.h"

#define PROBE_THREADS_MAX 16u

/*
 * For t from topo_read() of this machine: replaces the nodes' memory rates by what their
 * CPUs copy, reads and writes together.  A node that cannot be measured keeps its own.
 * Returns how many were measured.
 */
uint32_t topo_probe_memory(struct topo *t);

#endif
