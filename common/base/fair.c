// SPDX-License-Identifier: Apache-2.0
/*
 * fair.c - two levels of the same queue: users in struct fair, flows in struct fair_user.
 *
 * served is where the next turn begins, if that is not in the past: a turn that begins at S and
 * takes b bytes ends at S + b.  Whoever is served from now on begins `credit` before `now` at the
 * earliest.
 */
#include "common/base/fair.h"

static struct fair_user *user_at(const struct list *l)
{
	return list_entry(l, struct fair_user, busy_link);
}

static struct fair_flow *flow_at(const struct list *l)
{
	return list_entry(l, struct fair_flow, busy_link);
}

void fair_init(struct fair *f)
{
	list_init(&f->users);
	list_init(&f->busy);
	f->now = 0;
	f->credit = 0;
}

/* Where a turn begins. */
static uint64_t begin(uint64_t served, uint64_t now, uint64_t credit)
{
	return MAX(served, now - MIN(now, credit));
}

/* ---- who takes part ---- */

static struct fair_user *user_find(const struct fair *f, uint32_t id)
{
	list_for_each(&f->users, l) {
		struct fair_user *u = list_entry(l, struct fair_user, link);

		if (u->id == id)
			return u;
	}
	return NULL;
}

static struct fair_user *user_new(struct fair *f, struct fair_user *u, uint32_t id)
{
	*u = (struct fair_user){ .id = id, .served = f->now };
	list_init(&u->busy_link);
	list_init(&u->flows);
	list_init(&u->busy);
	list_add(&f->users, &u->link);
	return u;
}

void fair_join(struct fair *f, struct fair_flow *w, uint32_t user)
{
	struct fair_user *u = user_find(f, user);

	*w = (struct fair_flow){ .of = f };
	w->user = u ? u : user_new(f, &w->record, user);
	w->served = w->user->now;
	list_init(&w->busy_link);
	list_add(&w->user->flows, &w->link);
}

/* e is in its list where `to` was, which is in none. */
static void list_move(struct list *e, struct list *to)
{
	list_init(e);
	if (list_empty(to))
		return;
	list_add(to, e);
	list_del(to);
}

/* The record goes to another flow of the user: its memory is about to be somebody else's. */
static void user_move(struct fair_user *to, struct fair_user *from)
{
	*to = *from;
	list_move(&to->link, &from->link);
	list_move(&to->busy_link, &from->busy_link);
	list_move(&to->flows, &from->flows);
	list_move(&to->busy, &from->busy);
	list_for_each(&to->flows, l)
		list_entry(l, struct fair_flow, link)->user = to;
}

void fair_leave(struct fair_flow *w)
{
	struct fair_user *u = w->user;

	if (!w->of)
		return;
	fair_sleep(w);
	list_del(&w->link);
	w->of = NULL;
	w->user = NULL;
	if (list_empty(&u->flows))
		list_del(&u->link);
	else if (u == &w->record)
		user_move(&list_first(&u->flows, struct fair_flow, link)->record, u);
}

/* ---- turns ---- */

/* Behind those that were served as little. */
static void queue_user(struct fair_user *u, struct fair *f)
{
	struct list *at = &f->busy;

	list_del(&u->busy_link);
	while (at->prev != &f->busy && user_at(at->prev)->served > u->served)
		at = at->prev;
	list_add(at, &u->busy_link);
}

static void queue_flow(struct fair_flow *w)
{
	struct list *at = &w->user->busy;

	list_del(&w->busy_link);
	while (at->prev != &w->user->busy && flow_at(at->prev)->served > w->served)
		at = at->prev;
	list_add(at, &w->busy_link);
}

void fair_wake(struct fair_flow *w)
{
	struct fair_user *u = w->user;

	if (fair_awake(w))
		return;
	w->served = begin(w->served, u->now, w->of->credit);
	queue_flow(w);
	if (!list_empty(&u->busy_link))
		return;
	u->served = begin(u->served, w->of->now, w->of->credit);
	queue_user(u, w->of);
}

void fair_sleep(struct fair_flow *w)
{
	if (!fair_awake(w))
		return;
	list_del(&w->busy_link);
	if (list_empty(&w->user->busy))
		list_del(&w->user->busy_link);
}

void fair_serve(struct fair_flow *w, uint64_t bytes)
{
	struct fair_user *u = w->user;
	struct fair *f = w->of;

	if (!bytes)
		return;
	u->served = begin(u->served, f->now, f->credit);
	f->now = MAX(f->now, u->served);
	u->served += bytes;
	w->served = begin(w->served, u->now, f->credit);
	u->now = MAX(u->now, w->served);
	w->served += bytes;
	if (fair_awake(w))
		queue_flow(w);
	if (!list_empty(&u->busy_link))
		queue_user(u, f);
}

struct fair_flow *fair_first(const struct fair *f)
{
	return list_empty(&f->busy) ? NULL : flow_at(user_at(f->busy.next)->busy.next);
}

struct fair_flow *fair_next(const struct fair_flow *w)
{
	const struct fair_user *u = w->user;

	if (w->busy_link.next != &u->busy)
		return flow_at(w->busy_link.next);
	if (u->busy_link.next != &w->of->busy)
		return flow_at(user_at(u->busy_link.next)->busy.next);
	return NULL;
}

bool fair_before(const struct fair_flow *a, const struct fair_flow *b)
{
	uint64_t now = a->of->now, credit = a->of->credit;
	uint64_t x = begin(a->user->served, now, credit), y = begin(b->user->served, now, credit);

	if (x != y)
		return x < y;
	if (a->user != b->user)
		return false;
	now = a->user->now;
	return begin(a->served, now, credit) < begin(b->served, now, credit);
}

void fair_check(const struct fair *f)
{
	uint64_t served = 0;

	list_for_each(&f->busy, lu) {
		const struct fair_user *u = user_at(lu);
		uint64_t least = 0;

		ASSERT(u->served >= served && !list_empty(&u->busy));
		served = u->served;
		list_for_each(&u->busy, l) {
			const struct fair_flow *w = flow_at(l);

			ASSERT(w->of == f && w->user == u && w->served >= least);
			least = w->served;
		}
	}
}
