// SPDX-License-Identifier: Apache-2.0
/*
 * sched_sent.c - what was sent of late, as it was sent.
 *
 * A connection that breaks takes along what was on its way.  Nobody acknowledges a log
 * entry by itself: a node that comes back says how much of the log it has, and hears
 * the rest again from here.  A connection that is silently dead is found out by the
 * lease, and who is away may come back within the grace: what is older has arrived.
 */
#include "scheduler/sched.h"

static void forget_first(struct sched *s, struct sched_job *j)
{
	struct sched_sent *x = list_first(&j->sent, struct sched_sent, link);

	list_del(&x->link);
	sched_release(s, x);
}

static void forget_old(struct sched *s, struct sched_job *j)
{
	mono_t keep = mono_ms(SCHED_SENT_MS + s->config.agent_grace_ms);
	uint32_t n = 0;

	list_for_each(&j->sent, p)
		n++;
	for (; n; n--) {
		const struct sched_sent *x = list_first(&j->sent, struct sched_sent, link);

		if (n <= SCHED_SENT_MAX && s->now - x->at <= keep)
			return;
		forget_first(s, j);
	}
}

/* Without memory it is not there when it is asked for, and that is answered then. */
void sent_keep(struct sched *s, struct sched_job *j, uint64_t seq, const struct msg *m)
{
	struct sched_sent *x;
	uint32_t bytes;

	forget_old(s, j);
	if (!m || msg_encode_size(m, &bytes, NULL))
		return;
	x = sched_alloc(s, sizeof(*x) + bytes);
	if (!x)
		return;
	x->seq = seq;
	x->at = s->now;
	x->bytes = bytes;
	if (msg_encode(m, x->wire, bytes, NULL))
		sched_release(s, x);
	else
		list_add(&j->sent, &x->link);
}

void sent_unkeep(struct sched *s, struct sched_job *j, uint64_t seq)
{
	list_for_each_safe(&j->sent, l, next) {
		struct sched_sent *x = list_entry(l, struct sched_sent, link);

		if (x->seq != seq)
			continue;
		list_del(&x->link);
		sched_release(s, x);
	}
}

static const struct msg *read_again(struct sched *s, const struct sched_sent *x)
{
	struct msg_mem mem = { .size = msg_mem_need(x->bytes - MSG_PREFIX_BYTES) };
	struct msg *m = out_msg(s, MSG_NONE);
	uint32_t bytes, type;

	mem.base = out_scratch(s, mem.size);
	if (!m || !mem.base || msg_prefix_decode(x->wire, &bytes, &type, NULL) ||
	    msg_decode(type, x->wire + MSG_PREFIX_BYTES, bytes, &mem, m, NULL))
		return NULL;
	return m;
}

bool sent_again(struct sched *s, struct sched_job *j, struct sched_part *p, bool none,
		uint64_t has, uint64_t last)
{
	uint64_t next = none ? 0 : has + 1;

	list_for_each(&j->sent, l) {
		const struct sched_sent *x = list_entry(l, struct sched_sent, link);

		if (x->seq != next || next > last)
			continue;
		if (!MUTATE(16))
			out_send(s, p->node, read_again(s, x));
		next++;
	}
	p->seq = MAX(p->seq, last);
	return next > last;
}

void sent_free(struct sched *s, struct sched_job *j)
{
	while (!list_empty(&j->sent))
		forget_first(s, j);
}
