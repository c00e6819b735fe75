/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox.h - mail from an engine to the control thread that never waits.
 *
 * The control thread waits for room in an engine's mailbox; if engines waited
 * for room in its own, both could wait for ever.  So what finds the mailbox full
 * is kept here, and posted at a later turn, in order.  One owner thread.
 */
#ifndef TALLY_RT_OUTBOX_H
#define TALLY_RT_OUTBOX_H

#include "common/base/list.h"
#include "common/rt/engine.h"

struct outbox {
	struct mailbox *to;	/* borrowed */
	uint32_t from;
	struct list late;	/* owned */
};

void outbox_init(struct outbox *o, struct mailbox *to, uint32_t from);
void outbox_fini(struct outbox *o);		/* what was not posted is dropped */
/* Copies body.  Only where there is no memory to keep it does it wait for room. */
void outbox_post(struct outbox *o, uint32_t type, const void *body, size_t len);
/* Once per turn.  False: some is left, come back soon. */
bool outbox_flush(struct outbox *o);

#endif
