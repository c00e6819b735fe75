// SPDX-License-Identifier: Apache-2.0
/*
 * hub.c - contributions in, sums out, and the numbers of both.
 */
#include "common/lane/hub.h"

static size_t up64(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

/* Packet numbers to one machine that may be open: each version's sum, and some more than once. */
static uint32_t ring_room(uint32_t slots)
{
	return MAX(8 * slots, 256u);
}

static size_t peer_bytes(uint32_t slots)
{
	return up64(ring_room(slots) * sizeof(struct sent)) + up64(2 * slots * sizeof(uint32_t));
}

size_t hub_bytes(enum agg_mode mode, uint32_t members, uint32_t slots, uint32_t cell_bytes)
{
	return up64(members * sizeof(struct hub_peer)) + members * peer_bytes(slots) +
	       agg_bytes(mode, members, slots, cell_bytes);
}

void hub_init(struct hub *h, void *memory, uint32_t key, uint16_t number, enum agg_mode mode,
	      uint32_t members, uint32_t slots, uint32_t cell_bytes, const uint64_t *resident)
{
	uint8_t *at = memory;

	*h = (struct hub){ .key = key, .number = number, .peer = (struct hub_peer *)at };
	at += up64(members * sizeof(struct hub_peer));
	for (uint32_t w = 0; w < members; w++) {
		h->peer[w] = (struct hub_peer){ .head = 0 };
		numbers_init(&h->peer[w].numbers, (struct sent *)at, ring_room(slots));
		at += up64(ring_room(slots) * sizeof(struct sent));
		h->peer[w].due = (uint32_t *)at;
		at += up64(2 * slots * sizeof(uint32_t));
	}
	agg_init(&h->agg, at, mode, members, slots, cell_bytes, resident);
}

/* Notes that machine w is to get the sum of p (again).  A full ring has it already, or has more
 * urgent ones: then the machine asks again. */
static void make_due(struct hub *h, uint32_t w, uint32_t p)
{
	struct hub_peer *peer = &h->peer[w];
	uint32_t room = 2 * h->agg.slots;

	if (peer->count == room)
		return;
	peer->due[(peer->head + peer->count++) & (room - 1)] = p;
}

static enum hub_verdict take_add(struct hub *h, const struct cell *f, const uint8_t *payload,
				 uint32_t len)
{
	switch (agg_take(&h->agg, f->worker, f->p, payload, len)) {
	case AGG_TAKEN:
		return HUB_TAKEN;
	case AGG_COMPLETE:
		return HUB_COMPLETE;
	case AGG_AGAIN:
		make_due(h, f->worker, f->p);
		h->copies++;
		return HUB_COPY;
	case AGG_COPY:
		h->copies++;
		return HUB_COPY;
	default:
		h->dropped++;
		return HUB_DROPPED;
	}
}

static bool is_ours(const struct hub *h, const struct cell *f)
{
	return f->key == h->key && f->lane == h->number && f->worker < h->agg.members &&
	       !bits_test(h->agg.resident, f->worker) &&
	       (f->type == CELL_ADD || f->type == CELL_ACK || f->type == CELL_PING);
}

enum hub_verdict hub_take(struct hub *h, const struct cell *f, const uint8_t *payload,
			  uint32_t len, mono_t now)
{
	struct numbers *n;

	if (!is_ours(h, f)) {
		h->strange++;
		return HUB_STRANGE;
	}
	n = &h->peer[f->worker].numbers;
	numbers_heard(n, f, f->flags & CELL_WIDE ? payload : NULL, now);
	numbers_arrived(n, f->pn, f->type == CELL_PING, now);
	return f->type == CELL_ADD ? take_add(h, f, payload, len) : HUB_WORD;
}

void hub_summed(struct hub *h, uint32_t p)
{
	for (uint32_t w = 0; w < h->agg.members; w++)
		if (!bits_test(h->agg.resident, w))
			make_due(h, w, p);
	h->sums++;
}

static void header(struct hub *h, struct numbers *n, enum cell_type type, uint32_t p,
		   struct cell *f)
{
	*f = (struct cell){
		.type = (uint8_t)type, .win = h->win, .key = h->key, .lane = h->number,
		.worker = CELL_FROM_SERVER, .p = p,
	};
	numbers_tell(n, f);
}

/* Puts the sums whose datagrams are lost before all others. */
static void look_for_losses(struct hub *h, struct hub_peer *peer)
{
	uint32_t room = 2 * h->agg.slots, len;
	const struct sent *s;

	while (peer->count < room && (s = numbers_lost(&peer->numbers))) {
		if (s->type != CELL_SUM || !agg_result(&h->agg, s->what, &len))
			continue;
		peer->head = (peer->head - 1) & (room - 1);
		peer->due[peer->head] = s->what;
		peer->count++;
		h->resent++;
	}
}

bool hub_send(struct hub *h, uint32_t w, mono_t now, struct cell *f, const void **payload,
	      uint32_t *len)
{
	struct hub_peer *peer = &h->peer[w];

	look_for_losses(h, peer);
	while (peer->count && numbers_room(&peer->numbers)) {
		uint32_t p = peer->due[peer->head];

		peer->head = (peer->head + 1) & (2 * h->agg.slots - 1);
		peer->count--;
		*payload = agg_result(&h->agg, p, len);
		if (!*payload)
			continue;	/* all have it: position p + 2 * slots has begun */
		header(h, &peer->numbers, CELL_SUM, p, f);
		f->pn = numbers_send(&peer->numbers, CELL_SUM, p, now);
		return true;
	}
	return false;
}

bool hub_timer(struct hub *h, uint32_t w, mono_t now, struct cell *f,
	       uint8_t wide[CELL_WIDE_BYTES])
{
	struct numbers *n = &h->peer[w].numbers;

	if (now >= numbers_ping_at(n) && numbers_room(n)) {
		header(h, n, CELL_PING, 0, f);
		f->pn = numbers_send(n, CELL_PING, 0, now);
		numbers_pinged(n, f->pn, now);
		return true;
	}
	if (now >= numbers_answer_at(n)) {
		header(h, n, CELL_ACK, 0, f);
		numbers_tell_wide(n, f, wide);
		return true;
	}
	return false;
}

mono_t hub_next(const struct hub *h, uint32_t w)
{
	const struct numbers *n = &h->peer[w].numbers;

	return MIN(numbers_ping_at(n), numbers_answer_at(n));
}

void hub_check(const struct hub *h)
{
	agg_check(&h->agg);
	for (uint32_t w = 0; w < h->agg.members; w++)
		ASSERT(h->peer[w].count <= 2 * h->agg.slots);
}
