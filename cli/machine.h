/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - a machine's inside, for people: the picture, the local plan, every link.
 */
#ifndef TALLY_CLI_MACHINE_H
#define TALLY_CLI_MACHINE_H

#include <stdio.h>

#include "common/topo/local.h"

/*
 * Prints the topology in lines that topo_read() takes back. Rates that were guessed are in
 * comments, since a file would make them facts.
 */
void machine_print(const struct topo *t, FILE *out);

/* Strategy, groups, roots and why, then a table of links within so many columns (0: no bound);
 * false: the heap failed. */
bool machine_print_plan(const struct topo *t, const struct local_plan *p, FILE *out,
			uint32_t columns);

#endif
