// SPDX-License-Identifier: Apache-2.0
#include "common/rt/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct late_mail {
	struct list link;
	uint32_t type;
	size_t len;
	uint8_t body[MAIL_BYTES];
};

void outbox_init(struct outbox *o, struct mailbox *to, uint32_t from)
{
	o->to = to;
	o->from = from;
	list_init(&o->late);
}

static void drop_first(struct outbox *o)
{
	struct late_mail *m = list_first(&o->late, struct late_mail, link);

	list_del(&m->link);
	free(m);
}

void outbox_fini(struct outbox *o)
{
	while (!list_empty(&o->late))
		drop_first(o);
}

bool outbox_flush(struct outbox *o)
{
	while (!list_empty(&o->late)) {
		const struct late_mail *m = list_first(&o->late, struct late_mail, link);

		if (mailbox_post(o->to, o->from, m->type, m->body, m->len))
			return false;
		drop_first(o);
	}
	return true;
}

void outbox_post(struct outbox *o, uint32_t type, const void *body, size_t len)
{
	struct late_mail *m;

	ASSERT(len <= MAIL_BYTES);
	while (!outbox_flush(o) || mailbox_post(o->to, o->from, type, body, len)) {
		m = malloc(sizeof(*m));
		if (!m) {
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
			continue;
		}
		m->type = type;
		m->len = len;
		if (len)
			memcpy(m->body, body, len);
		list_add(&o->late, &m->link);
		return;
	}
}
