// SPDX-License-Identifier: Apache-2.0
/*
 * numbers.c - which datagrams arrived, which are lost.
 *
 * `judged` is the border: every number before it is known to have arrived or was handed out as
 * lost.  numbers_lost() moves it over numbers that arrived, and over open ones as far as the border
 * of loss: `reorder` below the highest number that arrived, or below an answered PING.  So each
 * number is looked at once, whatever the datagrams repeat.  A lost number's entry is kept until the
 * ring comes round, so that a late word about it is seen to be a spurious loss.
 */
#include "common/lane/numbers.h"

static struct sent *entry(const struct numbers *n, uint32_t pn)
{
	return &n->ring[pn & (n->room - 1)];
}

/* The number behind pn: 0 is no number. */
static uint32_t after(uint32_t pn)
{
	return pn + 1 ? pn + 1 : 1;
}

void numbers_init(struct numbers *n, struct sent *ring, uint32_t room)
{
	ASSERT(room >= CELL_SACK_BITS && !(room & (room - 1)));
	*n = (struct numbers){
		.ring = ring, .room = room, .next = 1, .judged = 1, .reorder = NUMBERS_REORDER,
		.answer_at = MONO_NEVER,
	};
	memset(ring, 0, room * sizeof(*ring));
}

bool numbers_room(const struct numbers *n)
{
	return n->next - n->judged < n->room - 1;
}

/* ---- what this side sends ---- */

uint32_t numbers_send(struct numbers *n, uint8_t type, uint32_t what, mono_t now)
{
	uint32_t pn = n->next;

	ASSERT(numbers_room(n));
	*entry(n, pn) = (struct sent){ .at = now, .what = what, .type = type, .state = SENT_OPEN };
	n->next = after(pn);
	if (n->next == 1)
		entry(n, 0)->state = SENT_SETTLED;
	if (!n->open++)
		n->quiet_since = now;
	return pn;
}

/* A word about number pn: it arrived.  True: that was not known. */
static bool settle(struct numbers *n, uint32_t pn)
{
	uint32_t age = n->next - pn;
	struct sent *s = entry(n, pn);

	if (!pn || !age || age > n->room || s->state == SENT_SETTLED)
		return false;
	if (s->state == SENT_LOST) {
		n->spurious++;
		n->reorder = MIN(2 * n->reorder, n->room / 2);
		n->calm = 0;
	} else {
		n->open--;
	}
	s->state = SENT_SETTLED;
	if (++n->calm >= NUMBERS_CALM) {
		n->calm = 0;
		n->reorder -= n->reorder > NUMBERS_REORDER;
	}
	return true;
}

/* Bit i of the word: number `from` - i arrived. */
static bool settle_word(struct numbers *n, uint32_t from, uint64_t word)
{
	bool news = false;

	while (word) {
		uint32_t i = (uint32_t)__builtin_ctzll(word);

		news |= settle(n, from - i);
		word &= word - 1;
	}
	return news;
}

static void take_round_trip(struct numbers *n, mono_t took)
{
	took = MAX(took, 1);
	n->srtt = n->srtt ? n->srtt + (took - n->srtt) / 8 : took;
}

bool numbers_heard(struct numbers *n, const struct cell *f, const uint8_t *wide, mono_t now)
{
	bool news = false;
	mono_t at = entry(n, f->ack)->at;

	n->quiet_since = now;
	n->backoff = 0;
	if (!f->ack || !serial_before(f->ack, n->next) || n->next - f->ack > n->room)
		return false;
	if (settle(n, f->ack)) {
		news = true;
		take_round_trip(n, now - at);
	}
	if (!n->acked || serial_before(n->acked, f->ack))
		n->acked = f->ack;
	news |= settle_word(n, f->ack - 1, f->sack);
	for (uint32_t i = 0; wide && i < CELL_WIDE_WORDS; i++)
		news |= settle_word(n, f->ack - 1 - 64 * (i + 1), get_le64(wide + 8 * i));
	return news;
}

/* The first number that is not lost, however long it has been open. */
static uint32_t border(const struct numbers *n)
{
	uint32_t at = n->acked - n->reorder + 1;

	if (!n->acked)
		return n->judged;
	if (n->probe && !serial_before(n->acked, n->probe) && serial_before(at, n->probe))
		at = n->probe;
	return at;
}

const struct sent *numbers_lost(struct numbers *n)
{
	uint32_t end = border(n);

	while (n->judged != n->next) {
		struct sent *s = entry(n, n->judged);
		bool open = s->state == SENT_OPEN;

		if (open && !serial_before(n->judged, end))
			break;
		n->judged = after(n->judged);
		if (n->judged == n->probe)
			n->probe = 0;
		if (open) {
			s->state = SENT_LOST;
			n->open--;
			n->lost++;
			return s;
		}
	}
	return NULL;
}

mono_t numbers_ping_at(const struct numbers *n)
{
	mono_t patience = MAX(2 * n->srtt, mono_ms(NUMBERS_PTO_MIN_MS));

	if (!n->open)
		return MONO_NEVER;
	for (uint32_t i = 0; i < n->backoff && patience < mono_ms(NUMBERS_PTO_MAX_MS); i++)
		patience *= 2;
	return n->quiet_since + MIN(patience, mono_ms(NUMBERS_PTO_MAX_MS));
}

void numbers_pinged(struct numbers *n, uint32_t pn, mono_t now)
{
	n->probe = pn;
	n->backoff++;
	n->quiet_since = now;
}

/* ---- what the other side sends ---- */

static void shift_seen(struct numbers *n, uint32_t by)
{
	uint32_t words = by / 64, bits = by % 64;

	for (uint32_t i = NUMBERS_SEEN_WORDS; i-- > 0;) {
		uint64_t low = i >= words ? n->seen[i - words] : 0;
		uint64_t lower = i > words ? n->seen[i - words - 1] : 0;

		n->seen[i] = bits ? low << bits | lower >> (64 - bits) : low;
	}
}

/* True: pn is new, and noted. */
static bool note(struct numbers *n, uint32_t pn)
{
	uint32_t ahead = pn - n->highest, behind = n->highest - 1 - pn;

	if (!n->highest || serial_before(n->highest, pn)) {
		if (n->highest) {
			shift_seen(n, MIN(ahead, NUMBERS_SEEN_BITS));
			if (ahead <= NUMBERS_SEEN_BITS)
				bits_set(n->seen, ahead - 1);
		}
		n->highest = pn;
		return true;
	}
	if (pn == n->highest || behind >= NUMBERS_SEEN_BITS || bits_test(n->seen, behind))
		return false;
	bits_set(n->seen, behind);
	return true;
}

bool numbers_arrived(struct numbers *n, uint32_t pn, bool urgent, mono_t now)
{
	bool new = !pn || note(n, pn);

	if (!pn)
		return true;
	n->copies += !new;
	if (++n->unanswered >= NUMBERS_ANSWER_EVERY || urgent)
		n->answer_at = MIN(n->answer_at, now);
	else
		n->answer_at = MIN(n->answer_at, now + mono_ms(NUMBERS_ANSWER_MS));
	return new;
}

mono_t numbers_answer_at(const struct numbers *n)
{
	return n->answer_at;
}

void numbers_tell(struct numbers *n, struct cell *f)
{
	f->ack = n->highest;
	f->sack = n->seen[0];
	n->unanswered = 0;
	n->answer_at = MONO_NEVER;
}

void numbers_tell_wide(struct numbers *n, struct cell *f, uint8_t wide[CELL_WIDE_BYTES])
{
	numbers_tell(n, f);
	f->flags |= CELL_WIDE;
	for (uint32_t i = 0; i < CELL_WIDE_WORDS; i++)
		put_le64(wide + 8 * i, n->seen[i + 1]);
}
