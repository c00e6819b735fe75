/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_wait.h - runs a loop until a condition holds, or a deadline that only a
 * broken build meets.  No sleeping: the loop goes on while we wait.
 */
#ifndef TALLY_TESTS_LOOP_WAIT_H
#define TALLY_TESTS_LOOP_WAIT_H

#include <check.h>

#include "common/rt/loop.h"

#define LOOP_WAIT_MS	20000u

struct loop_wait {
	struct loop *l;
	bool (*holds)(void *ctx);
	void *ctx;
	mono_t deadline;
	bool held;
};

static void loop_wait_look(void *p)
{
	struct loop_wait *w = p;

	w->held = w->holds(w->ctx);
	if (w->held || loop_now() > w->deadline)
		loop_stop(w->l);
}

/* Whether it came to hold. */
static bool loop_wait(struct loop *l, bool (*holds)(void *ctx), void *ctx)
{
	struct loop_wait w = { .l = l, .holds = holds, .ctx = ctx,
			       .deadline = loop_now() + mono_ms(LOOP_WAIT_MS) };
	struct loop_timer *t;

	ck_assert_int_eq(loop_timer_start(l, &t, 0, 1, loop_wait_look, &w), 0);
	loop_run(l);
	loop_timer_stop(t);
	return w.held;
}

/* The same for "this counter is at least n". */
struct loop_count {
	const uint32_t *counter;
	uint32_t n;
};

static bool loop_count_holds(void *p)
{
	const struct loop_count *c = p;

	return *c->counter >= c->n;
}

static void loop_wait_count(struct loop *l, const uint32_t *counter, uint32_t n)
{
	struct loop_count c = { counter, n };

	ck_assert(loop_wait(l, loop_count_holds, &c));
}

#endif
