/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idtab.h - numbered things by their number: a hash table threaded through them.
 *
 * For ids that are given out one after the other (tensors of a job): they spread
 * evenly as they are.  Nothing is allocated, nothing can fail; the nodes' memory
 * is their owner's and must stay while they are in.  One owner thread.
 */
#ifndef TALLY_BASE_IDTAB_H
#define TALLY_BASE_IDTAB_H

#include "common/base/base.h"

#define IDTAB_BUCKETS 8192u

struct id_node {
	struct id_node *next;
	uint32_t id;
};

struct idtab {
	struct id_node *bucket[IDTAB_BUCKETS];	/* zeroed: empty */
};

/* False, and nothing changes: somebody has that id. */
bool idtab_add(struct idtab *t, struct id_node *n, uint32_t id);
struct id_node *idtab_find(const struct idtab *t, uint32_t id);	/* NULL: nobody */
void idtab_del(struct idtab *t, struct id_node *n);	/* harmless on one that is not in */

#endif
