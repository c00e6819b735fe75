/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_probe.h - measures the links of GPUs, where tally doctor would tell what is nominal.
 *
 * By libtally-cuda, which is loaded for it as libtally does; what is on the GPUs meanwhile
 * slows it down.  Some tenths of a second for each link, and what it takes to open a GPU.
 */
#ifndef TALLY_CLI_GPU_PROBE_H
#define TALLY_CLI_GPU_PROBE_H

#include <stdio.h>

#include "common/topo/topo.h"

/*
 * For t of this machine: rates between GPUs and host become the slower of both ways, rates
 * of NVLinks and into NVSwitches what one GPU copies to another that way.  What was measured,
 * and what could not be, is told in comments of a topology file, one a line.
 */
void gpu_probe(struct topo *t, FILE *out);

#endif
