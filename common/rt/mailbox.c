// SPDX-License-Identifier: Apache-2.0
/*
 * A mailbox: one single-producer single-consumer ring per sender, one reader.
 *
 * A sender copies its message into its ring and publishes it by storing `tail`
 * (release); the reader sees it by loading `tail` (acquire) and gives the slot
 * back by storing `head`.  No slot is ever touched by both at once.
 *
 * The bell.  The reader that finds nothing sets `asleep` and looks once more; a
 * sender publishes, then takes `asleep`, and rings if it was set.  Both use a
 * read-modify-write on that one flag, and those are totally ordered: if the
 * sender's comes second, it sees the flag and rings; if it comes first, the
 * reader's synchronizes with it and the second look sees the message.  So no
 * message is slept over, and a busy reader is never rung for.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/engine.h"

#define SLOTS		1024u		/* per sender; a power of two */
#define SENDERS		(ENGINES_MAX + 1)
#define LINE		64

static_assert((SLOTS & (SLOTS - 1)) == 0, "ring size is a power of two");
static_assert(sizeof(struct mail) == 2 * LINE, "a mail is two cache lines");

struct ring {
	_Alignas(LINE) _Atomic uint32_t tail;	/* written by the sender */
	_Alignas(LINE) _Atomic uint32_t head;	/* written by the reader */
	_Alignas(LINE) struct mail slots[SLOTS];
};

struct mailbox {
	_Alignas(LINE) _Atomic bool asleep;
	_Alignas(LINE) uint32_t next;		/* the ring to look at first: fairness */
	void (*ring_bell)(void *ctx);
	void *ctx;
	struct ring rings[SENDERS];
};

int mailbox_new(struct mailbox **out, void (*ring)(void *ctx), void *ctx, struct err *e)
{
	struct mailbox *mb = aligned_alloc(LINE, sizeof(*mb));

	if (!mb)
		return err_set(e, TALLY_ENOMEM, "no memory for a mailbox of %zu bytes",
			       sizeof(*mb));
	atomic_init(&mb->asleep, true);
	mb->next = 0;
	mb->ring_bell = ring;
	mb->ctx = ctx;
	for (uint32_t i = 0; i < SENDERS; i++) {
		atomic_init(&mb->rings[i].tail, 0);
		atomic_init(&mb->rings[i].head, 0);
	}
	*out = mb;
	return 0;
}

void mailbox_free(struct mailbox *mb)
{
	free(mb);
}

int mailbox_post(struct mailbox *mb, uint32_t from, uint32_t type, const void *body, size_t len)
{
	struct ring *r;
	struct mail *m;
	uint32_t tail;

	ASSERT(from < SENDERS && len <= MAIL_BYTES);
	r = &mb->rings[from];
	tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == SLOTS)
		return TALLY_EAGAIN;
	m = &r->slots[tail % SLOTS];
	m->type = type;
	m->from = from;
	if (len > 0)
		memcpy(m->body, body, len);
	memset(m->body + len, 0, MAIL_BYTES - len);
	atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
	if (atomic_exchange_explicit(&mb->asleep, false, memory_order_acq_rel))
		mb->ring_bell(mb->ctx);
	return 0;
}

static bool ring_take(struct ring *r, struct mail *m)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (head == atomic_load_explicit(&r->tail, memory_order_acquire))
		return false;
	*m = r->slots[head % SLOTS];
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
	return true;
}

bool mailbox_poll(struct mailbox *mb, struct mail *m)
{
	for (uint32_t i = 0; i < SENDERS; i++) {
		uint32_t at = (mb->next + i) % SENDERS;

		if (ring_take(&mb->rings[at], m)) {
			mb->next = (at + 1) % SENDERS;
			return true;
		}
	}
	return false;
}

bool mailbox_take(struct mailbox *mb, struct mail *m)
{
	if (mailbox_poll(mb, m))
		return true;
	atomic_exchange_explicit(&mb->asleep, true, memory_order_acq_rel);
	return mailbox_poll(mb, m);
}
