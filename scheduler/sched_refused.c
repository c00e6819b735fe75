// SPDX-License-Identifier: Apache-2.0
/*
 * sched_refused.c - a list, the last one first; a row that is noted again goes to the front.
 */
#include "scheduler/sched_refused.h"

#include <stdio.h>
#include <string.h>

#include "common/base/parse.h"

static void drop(struct refusals *all, uint32_t at)
{
	memmove(&all->row[at], &all->row[at + 1], (all->n - at - 1) * sizeof(all->row[0]));
	all->n--;
}

/* Terminals take characters for commands and for other characters. */
static void make_plain(char *text)
{
	for (; *text; text++)
		*text = *text >= ' ' && *text <= '~' ? *text : '?';
}

static bool is_named(const struct refusal *r, const char *name)
{
	char plain[NAME_LEN_MAX + 1];

	snprintf(plain, sizeof(plain), "%s", name);
	if (!r->known)
		make_plain(plain);
	return !strcmp(r->name, plain);
}

static bool is_same(const struct refusal *a, const struct refusal *b)
{
	return a->known == b->known && a->kind == b->kind && a->code == b->code &&
	       !strcmp(a->name, b->name) && !strcmp(a->addr, b->addr);
}

static uint32_t count_of(const struct refusals *all, bool known, const char *addr)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < all->n; i++)
		n += all->row[i].known == known && (!addr || !strcmp(all->row[i].addr, addr));
	return n;
}

/* The oldest row, of the address with the most rows among those. */
static void make_room(struct refusals *all, bool known)
{
	uint32_t most = 0, at = 0;

	for (uint32_t i = 0; i < all->n; i++) {
		uint32_t n = all->row[i].known == known ?
			     count_of(all, known, all->row[i].addr) : 0;

		if (n && n >= most) {
			most = n;
			at = i;
		}
	}
	drop(all, at);
}

void refused_note(struct refusals *all, bool known, enum node_kind kind, const char *name,
		  const char *peer, const struct err *why, mono_t now)
{
	struct refusal r = { .known = known, .kind = kind, .code = why->code, .count = 1,
			     .last = now };

	snprintf(r.name, sizeof(r.name), "%s", name);
	snprintf(r.why, sizeof(r.why), "%s", why->text);
	endpoint_host(peer ? peer : "", r.addr);
	if (!known) {
		make_plain(r.name);
		make_plain(r.why);
	}
	for (uint32_t i = 0; i < all->n; i++) {
		if (!is_same(&all->row[i], &r))
			continue;
		r.count = all->row[i].count + 1;
		drop(all, i);
		break;
	}
	if (count_of(all, known, NULL) == REFUSED_MAX / 2)
		make_room(all, known);
	memmove(&all->row[1], &all->row[0], all->n * sizeof(all->row[0]));
	all->row[0] = r;
	all->n++;
}

void refused_taken(struct refusals *all, enum node_kind kind, const char *name, const char *peer)
{
	char addr[ADDR_LEN_MAX + 1];

	endpoint_host(peer ? peer : "", addr);
	for (uint32_t i = all->n; i-- > 0;) {
		const struct refusal *r = &all->row[i];

		if (r->kind == kind && is_named(r, name) && !strcmp(r->addr, addr))
			drop(all, i);
	}
}

uint32_t refused_forget(struct refusals *all, const char *name)
{
	uint32_t n = 0;

	for (uint32_t i = all->n; i-- > 0;) {
		const struct refusal *r = &all->row[i];

		if (r->name[0] ? !is_named(r, name) : strcmp(r->addr, name))
			continue;
		drop(all, i);
		n++;
	}
	return n;
}

void refused_age(struct refusals *all, mono_t now)
{
	while (all->n && now - all->row[all->n - 1].last >= mono_ms(NODE_SHOWN_MS))
		drop(all, all->n - 1);
}
