/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fair.h - turns by bytes: first between users, then between the flows of each.
 *
 * Start-time fair queueing (Goyal, Vin, Cheng 1996) on two levels.  A flow (a job's way through
 * something that jobs share) wakes when it has something to send and sleeps when it has not.  The
 * awake flow of the user that was served least, and of that user's flows the one that was served
 * least, is first.  So a user's share does not grow with its number of flows.
 *
 * A flow that wakes, or that could not send when it was its turn, keeps its debt, and claims of
 * what it did not use `credit` bytes at most.  Without any, who sends some bytes at a time and
 * waits for an answer in between has half of the time in which it sends, not of all time: credit
 * lets it catch up.  Over any time it is ahead of what is fair by no more than that.  One that
 * joins has none.
 *
 * Memory is the caller's.  A user's record lies in one of its flows and moves to another when
 * that one leaves.  Order among equals is the order in which they woke or were served.
 */
#ifndef TALLY_BASE_FAIR_H
#define TALLY_BASE_FAIR_H

#include "common/base/list.h"

struct fair {
	struct list users;		/* fair_user.link */
	struct list busy;		/* fair_user.busy_link of those with awake flows, served
					 * least first */
	uint64_t now;			/* where the user that was served last began, or further */
	uint64_t credit;		/* bytes; its owner's to set, 0 at first */
};

struct fair_user {
	struct list link, busy_link;
	struct list flows;		/* fair_flow.link */
	struct list busy;		/* fair_flow.busy_link of the awake ones, served least
					 * first */
	uint64_t served, now;		/* now: as in struct fair, among its flows */
	uint32_t id;
};

struct fair_flow {
	struct list link, busy_link;
	struct fair *of;		/* NULL: in none */
	struct fair_user *user;		/* borrowed from one of its flows */
	uint64_t served;
	struct fair_user record;
};

void fair_init(struct fair *f);	/* no flows */

/* w is zeroed, or has left. */
void fair_join(struct fair *f, struct fair_flow *w, uint32_t user);
void fair_leave(struct fair_flow *w);	/* harmless where it is in none */

void fair_wake(struct fair_flow *w);	/* harmless on an awake one, */
void fair_sleep(struct fair_flow *w);	/* on a sleeping one */

/*
 * Charges a flow, asleep or not, for so many bytes of what is shared; 0: it used nothing of it.
 */
void fair_serve(struct fair_flow *w, uint64_t bytes);

/* The awake flow that comes first, and the one after w; NULL: none. */
struct fair_flow *fair_first(const struct fair *f);
struct fair_flow *fair_next(const struct fair_flow *w);

/* Of two flows of one struct fair, awake or not: a comes before b. */
bool fair_before(const struct fair_flow *a, const struct fair_flow *b);

static inline bool fair_awake(const struct fair_flow *w)
{
	return !list_empty(&w->busy_link);
}

void fair_check(const struct fair *f);	/* asserts every invariant */

#endif
