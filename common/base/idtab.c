// SPDX-License-Identifier: Apache-2.0
/*
 * idtab.c - the low bits of an id are its bucket; a chain holds those alike.
 */
#include "common/base/idtab.h"

static_assert((IDTAB_BUCKETS & (IDTAB_BUCKETS - 1)) == 0, "low bits are a bucket");

struct id_node *idtab_find(const struct idtab *t, uint32_t id)
{
	struct id_node *n = t->bucket[id % IDTAB_BUCKETS];

	while (n && n->id != id)
		n = n->next;
	return n;
}

bool idtab_add(struct idtab *t, struct id_node *n, uint32_t id)
{
	struct id_node **head = &t->bucket[id % IDTAB_BUCKETS];

	if (idtab_find(t, id))
		return false;
	n->id = id;
	n->next = *head;
	*head = n;
	return true;
}

void idtab_del(struct idtab *t, struct id_node *n)
{
	struct id_node **at = &t->bucket[n->id % IDTAB_BUCKETS];

	while (*at && *at != n)
		at = &(*at)->next;
	if (*at)
		*at = n->next;
}
