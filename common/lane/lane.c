// SPDX-License-Identifier: Apache-2.0
/*
 * lane.c - positions granted, cells sent, sums that came.
 *
 * Cells leave in the order of positions, so a slot is open from its cell's first sending until its
 * sum comes, and the positions that are open lie within `slots` of each other.  A lost number marks
 * its slot; lost cells go before new ones.  Each datagram has a number of its own, so the
 * position alone says what it is.
 */
#include "common/lane/lane.h"

static struct lane_slot *slot_of(const struct lane *l, uint32_t p)
{
	return &l->slot[p & (l->slots - 1)];
}

/* Packet numbers that may be open: each slot's cell a few times over. */
static uint32_t ring_room(uint32_t slots)
{
	return MAX(4 * slots, 256u);
}

size_t lane_bytes(uint32_t slots)
{
	return ring_room(slots) * sizeof(struct sent) +
	       LANE_GRANTS_MAX * sizeof(struct lane_grant) + slots * sizeof(struct lane_slot);
}

void lane_init(struct lane *l, void *memory, uint32_t slots, uint32_t key, uint16_t number,
	       uint16_t worker)
{
	struct sent *ring = memory;

	ASSERT(slots >= 16 && !(slots & (slots - 1)));
	memset(memory, 0, lane_bytes(slots));
	*l = (struct lane){
		.key = key, .number = number, .worker = worker, .slots = slots, .win = slots,
		.answer_since = MONO_NEVER,
		.grant = (struct lane_grant *)(ring + ring_room(slots)),
	};
	l->slot = (struct lane_slot *)(l->grant + LANE_GRANTS_MAX);
	numbers_init(&l->numbers, ring, ring_room(slots));
}

/* ---- grants ---- */

/* The grant that position p belongs to; NULL: none. */
static struct lane_grant *grant_of(const struct lane *l, uint32_t p)
{
	for (uint32_t i = 0, seen = 0; seen < l->ngrants; i++) {
		struct lane_grant *g = &l->grant[i];

		if (!g->left)
			continue;
		seen++;
		if (p - g->p0 < g->cells)
			return g;
	}
	return NULL;
}

static bool overlaps(const struct lane_grant *g, uint32_t p0, uint32_t cells)
{
	return g->left && (p0 - g->p0 < g->cells || g->p0 - p0 < cells);
}

int lane_grant(struct lane *l, uint64_t segment, uint32_t p0, uint32_t cells)
{
	struct lane_grant *free = NULL;

	if (!cells || cells > INT32_MAX || serial_before(p0, l->next))
		return TALLY_EPROTO;
	if (l->ngrants == LANE_GRANTS_MAX)
		return TALLY_EQUOTA;
	for (uint32_t i = 0; i < LANE_GRANTS_MAX; i++) {
		if (overlaps(&l->grant[i], p0, cells))
			return TALLY_EPROTO;
		if (!l->grant[i].left && !free)
			free = &l->grant[i];
	}
	*free = (struct lane_grant){ .segment = segment, .p0 = p0, .cells = cells, .left = cells };
	l->ngrants++;
	return 0;
}

/* ---- sending ---- */

static void header(struct lane *l, enum cell_type type, uint32_t p, struct cell *f)
{
	*f = (struct cell){
		.type = (uint8_t)type, .key = l->key, .lane = l->number, .worker = l->worker,
		.p = p,
	};
	numbers_tell(&l->numbers, f);
}

/* Marks the slots of numbers that are lost, as far as their sums have not come. */
static void look_for_losses(struct lane *l)
{
	const struct sent *s;

	while ((s = numbers_lost(&l->numbers))) {
		struct lane_slot *slot = slot_of(l, s->what);

		if (s->type != CELL_ADD || !slot->open || slot->p != s->what || slot->lost)
			continue;
		slot->lost = true;
		l->nlost++;
	}
}

/* The lost cell that has waited longest, or nearly so; NULL: none. */
static struct lane_slot *take_lost(struct lane *l)
{
	if (!l->nlost)
		return NULL;
	while (!l->slot[l->lost_from & (l->slots - 1)].lost)
		l->lost_from++;
	l->nlost--;
	l->slot[l->lost_from & (l->slots - 1)].lost = false;
	return &l->slot[l->lost_from++ & (l->slots - 1)];
}

/* A slot that the next position may take; NULL: none, or no grant. */
static struct lane_slot *take_new(struct lane *l)
{
	struct lane_slot *slot = slot_of(l, l->next);
	struct lane_grant *g;

	if (slot->open || l->open >= l->win)
		return NULL;
	g = grant_of(l, l->next);
	if (!g)
		return NULL;
	*slot = (struct lane_slot){
		.p = l->next++, .open = true, .grant = (uint16_t)(g - l->grant),
	};
	l->open++;
	return slot;
}

bool lane_send(struct lane *l, mono_t now, struct cell *f, struct lane_cell *what)
{
	const struct lane_grant *g;
	struct lane_slot *slot;
	bool again;

	look_for_losses(l);
	if (!numbers_room(&l->numbers))
		return false;
	slot = take_lost(l);
	again = slot != NULL;
	if (!slot)
		slot = take_new(l);
	if (!slot)
		return false;
	header(l, CELL_ADD, slot->p, f);
	f->flags |= again ? CELL_RESENT : 0;
	f->pn = numbers_send(&l->numbers, CELL_ADD, slot->p, now);
	g = &l->grant[slot->grant];
	*what = (struct lane_cell){ .segment = g->segment, .index = slot->p - g->p0 };
	l->sent++;
	l->resent += again;
	return true;
}

/* ---- what comes ---- */

/* The sum of the slot's position is here: the slot is free, and its segment may be done. */
static void settle_slot(struct lane *l, struct lane_slot *slot, struct lane_cell *what)
{
	struct lane_grant *g = &l->grant[slot->grant];

	slot->open = false;
	l->open--;
	l->nlost -= slot->lost;
	slot->lost = false;
	l->sums++;
	*what = (struct lane_cell){ .segment = g->segment, .index = slot->p - g->p0 };
	what->last = --g->left == 0;
	l->ngrants -= what->last;
}

static void take_win(struct lane *l, uint8_t sixteenths)
{
	if (sixteenths)
		l->win = MAX(l->slots * MIN(sixteenths, 16u) / 16, 1u);
}

static enum lane_verdict strange(struct lane *l)
{
	l->strange++;
	return LANE_STRANGE;
}

enum lane_verdict lane_take(struct lane *l, const struct cell *f, const uint8_t *wide, mono_t now,
			    struct lane_cell *what)
{
	struct lane_slot *slot = slot_of(l, f->p);

	if (f->key != l->key || f->lane != l->number || f->worker != CELL_FROM_SERVER)
		return strange(l);
	if (f->type == CELL_STOP)
		return LANE_STOP;
	if (f->type != CELL_SUM && f->type != CELL_ACK && f->type != CELL_PING)
		return strange(l);
	l->answer_since = MONO_NEVER;
	take_win(l, f->win);
	numbers_heard(&l->numbers, f, wide, now);
	numbers_arrived(&l->numbers, f->pn, f->type == CELL_PING, now);
	if (f->type != CELL_SUM)
		return LANE_WORD;
	if (!slot->open || slot->p != f->p) {
		l->copies++;
		return LANE_COPY;
	}
	settle_slot(l, slot, what);
	return LANE_SUM;
}

/* ---- time ---- */

bool lane_timer(struct lane *l, mono_t now, struct cell *f, uint8_t wide[CELL_WIDE_BYTES])
{
	if (now >= numbers_ping_at(&l->numbers) && numbers_room(&l->numbers)) {
		header(l, CELL_PING, 0, f);
		f->pn = numbers_send(&l->numbers, CELL_PING, 0, now);
		numbers_pinged(&l->numbers, f->pn, now);
		l->answer_since = MIN(l->answer_since, now);
		return true;
	}
	if (now >= numbers_answer_at(&l->numbers)) {
		header(l, CELL_ACK, 0, f);
		numbers_tell_wide(&l->numbers, f, wide);
		return true;
	}
	return false;
}

mono_t lane_next(const struct lane *l)
{
	mono_t next = MIN(numbers_ping_at(&l->numbers), numbers_answer_at(&l->numbers));

	if (l->answer_since != MONO_NEVER)
		next = MIN(next, l->answer_since + mono_ms(LANE_DEAD_MS));
	return next;
}

bool lane_failed(const struct lane *l, mono_t now)
{
	return l->answer_since != MONO_NEVER && now - l->answer_since >= mono_ms(LANE_DEAD_MS);
}

void lane_check(const struct lane *l)
{
	uint32_t open = 0, lost = 0, grants = 0;

	for (uint32_t i = 0; i < l->slots; i++) {
		const struct lane_slot *s = &l->slot[i];

		open += s->open;
		lost += s->lost;
		ASSERT(!s->lost || s->open);
		ASSERT(!s->open || (s->p & (l->slots - 1)) == i);
		ASSERT(!s->open || serial_before(s->p, l->next));
		ASSERT(!s->open || l->grant[s->grant].left);
	}
	for (uint32_t i = 0; i < LANE_GRANTS_MAX; i++)
		grants += l->grant[i].left > 0;
	ASSERT(open == l->open && lost == l->nlost && grants == l->ngrants);
}
