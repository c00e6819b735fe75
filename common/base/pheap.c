// SPDX-License-Identifier: Apache-2.0
#include "common/base/pheap.h"

void pheap_init(struct pheap *h,
		bool (*less)(const struct pheap_node *, const struct pheap_node *))
{
	h->root = NULL;
	h->less = less;
}

/* Two roots become one: the larger is the first child of the smaller. */
static struct pheap_node *meld(struct pheap *h, struct pheap_node *a, struct pheap_node *b)
{
	if (!a || !b)
		return a ? a : b;
	if (h->less(b, a)) {
		struct pheap_node *t = a;

		a = b;
		b = t;
	}
	b->prev = a;
	b->next = a->child;
	if (a->child)
		a->child->prev = b;
	a->child = b;
	a->next = a->prev = NULL;
	return a;
}

/* The siblings from `first` on become one heap: pairs from the left, then all. */
static struct pheap_node *meld_siblings(struct pheap *h, struct pheap_node *first)
{
	struct pheap_node *pairs = NULL, *root = NULL;

	while (first) {
		struct pheap_node *a = first, *b = a->next;

		first = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = meld(h, a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct pheap_node *a = pairs;

		pairs = a->next;
		a->next = NULL;
		root = meld(h, root, a);
	}
	return root;
}

void pheap_add(struct pheap *h, struct pheap_node *n)
{
	n->child = n->next = n->prev = NULL;
	h->root = meld(h, h->root, n);
}

void pheap_del(struct pheap *h, struct pheap_node *n)
{
	struct pheap_node *rest = meld_siblings(h, n->child);

	if (h->root == n) {
		h->root = rest;
	} else {
		if (n->prev->child == n)
			n->prev->child = n->next;
		else
			n->prev->next = n->next;
		if (n->next)
			n->next->prev = n->prev;
		h->root = meld(h, h->root, rest);
	}
	n->child = n->next = n->prev = NULL;
}
