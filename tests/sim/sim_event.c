// SPDX-License-Identifier: Apache-2.0
/*
 * The clock and the queue: a binary heap by (time, sequence), so that the same
 * seed always gives the same order.  The clock jumps to each event's time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void swap(struct sim_event *a, struct sim_event *b)
{
	struct sim_event t = *a;

	*a = *b;
	*b = t;
}

static void insert(struct sim_queue *q, const struct sim_event *e)
{
	uint32_t i = q->len++;

	if (q->len > q->cap) {
		q->cap = q->cap ? 2 * q->cap : 256;
		q->heap = realloc(q->heap, q->cap * sizeof(*q->heap));
		ASSERT(q->heap);
	}
	q->heap[i] = *e;
	for (; i && before(&q->heap[i], &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&q->heap[i], &q->heap[(i - 1) / 2]);
}

void sim_at(struct sim *s, mono_t delay, const struct sim_event *e)
{
	struct sim_event x = *e;

	x.at = s->now + delay;
	x.seq = s->queue.seq++;
	insert(&s->queue, &x);
}

void sim_again_at(struct sim *s, mono_t at, const struct sim_event *e)
{
	struct sim_event x = *e;

	x.at = at;
	insert(&s->queue, &x);
}

bool sim_pop(struct sim *s, struct sim_event *e)
{
	struct sim_queue *q = &s->queue;
	uint32_t i = 0, c;

	if (!q->len)
		return false;
	*e = q->heap[0];
	q->heap[0] = q->heap[--q->len];
	while ((c = 2 * i + 1) < q->len) {
		if (c + 1 < q->len && before(&q->heap[c + 1], &q->heap[c]))
			c++;
		if (!before(&q->heap[c], &q->heap[i]))
			break;
		swap(&q->heap[c], &q->heap[i]);
		i = c;
	}
	ASSERT(e->at >= s->now);
	s->now = e->at;
	return true;
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
}

void sim_trace(const struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->trace)
		return;
	printf("%12.6f ms  ", (double)s->now / 1e6);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}
