/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pheap.h - a pairing heap threaded through its elements (Fredman, Sedgewick,
 * Sleator, Tarjan 1986): O(1) insert and peek, O(log n) amortised removal of
 * any element, no memory of its own, no recursion.
 */
#ifndef TALLY_BASE_PHEAP_H
#define TALLY_BASE_PHEAP_H

#include "common/base/base.h"

struct pheap_node {
	struct pheap_node *child, *next, *prev;	/* prev: left sibling or parent */
};

struct pheap {
	struct pheap_node *root;
	bool (*less)(const struct pheap_node *a, const struct pheap_node *b);
};

void pheap_init(struct pheap *h,
		bool (*less)(const struct pheap_node *, const struct pheap_node *));
void pheap_add(struct pheap *h, struct pheap_node *n);
void pheap_del(struct pheap *h, struct pheap_node *n);	/* n must be in h */

static inline struct pheap_node *pheap_min(const struct pheap *h)
{
	return h->root;
}

#endif
