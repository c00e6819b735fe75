/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h - a doubly linked list threaded through its elements.
 *
 * The head is a node of its own, an unlinked node points to itself.  Whoever
 * owns the head owns the links; the elements' memory belongs to somebody else.
 */
#ifndef TALLY_BASE_LIST_H
#define TALLY_BASE_LIST_H

#include "common/base/base.h"

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* Inserts e before `at`; with `at` the head, at the end of the list. */
static inline void list_add(struct list *at, struct list *e)
{
	e->prev = at->prev;
	e->next = at;
	at->prev->next = e;
	at->prev = e;
}

/* Takes e out of whatever list it is in; harmless on an unlinked node. */
static inline void list_del(struct list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	list_init(e);
}

#define list_entry(p, type, member)	container_of(p, type, member)
#define list_first(l, type, member)	list_entry((l)->next, type, member)
#define list_for_each(l, p) \
	for (struct list *p = (l)->next; p != (l); p = p->next)
#define list_for_each_safe(l, p, n) \
	for (struct list *p = (l)->next, *n = p->next; p != (l); p = n, n = p->next)

#endif
