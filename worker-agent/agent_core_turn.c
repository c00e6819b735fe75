// SPDX-License-Identifier: Apache-2.0
/*
 * Which segment an agent pushes next.
 *
 * Users take turns by bytes, and the jobs of each (common/base/fair.h): no other one's flood,
 * age, priorities or number of jobs holds a job up.  So do those on this machine alone, by the
 * bytes that their sums move.
 *
 * A route, the way of a job to one server, has its READY segments in a heap by urgency, and
 * is itself in a heap by the most urgent of them.  So the next push costs the logarithm of
 * the number of servers, not the number: with hundreds of them a look at each was most
 * of the work.  Those found at the top that may not push now (no link, no room on the links
 * or in the window) are few, as a rule: the card's queue holds a few segments.  They go
 * back when somebody was found who may.
 *
 * Servers on this machine take no room on the card, so they stand in a heap of their own.
 */
#include "worker-agent/agent_core.h"

static struct ag_seg *first_ready(const struct ag_route *r)
{
	return container_of(pheap_min(&r->ready), struct ag_seg, heap);
}

static bool route_before(const struct pheap_node *x, const struct pheap_node *y)
{
	return ag_more_urgent(first_ready(container_of(x, struct ag_route, turn)),
			      first_ready(container_of(y, struct ag_route, turn)));
}

void ag_turns_init(struct pheap *turn, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		pheap_init(&turn[i], route_before);
}

struct pheap *ag_turn_of(const struct ag_route *r)
{
	return &r->job->turn[r->peer && r->peer->by_ref ? AG_BY_REF : AG_BY_LINK];
}

/* ---- jobs ---- */

static void job_ready(struct ag_job *j)
{
	if (!j->nready++)
		fair_wake(&j->flow);
}

static void job_unready(struct ag_job *j)
{
	if (!--j->nready)
		fair_sleep(&j->flow);
}

static struct ag_job *job_of(struct fair_flow *w)
{
	return container_of(w, struct ag_job, flow);
}

bool ag_waits(const struct ag_core *c)
{
	for (struct fair_flow *w = fair_first(&c->links); w; w = fair_next(w))
		if (pheap_min(&job_of(w)->turn[AG_BY_LINK]))
			return true;
	return false;
}

/* ---- segments ---- */

void ag_seg_ready(struct ag_seg *s)
{
	struct ag_route *r = s->route;
	struct pheap_node *first = pheap_min(&r->ready);
	bool leads = !first || r->ready.less(&s->heap, first);

	if (first && leads)
		pheap_del(ag_turn_of(r), &r->turn);
	s->state = SEG_READY;
	pheap_add(&r->ready, &s->heap);
	list_add(&r->waiting, &s->link);
	if (leads)
		pheap_add(ag_turn_of(r), &r->turn);
	job_ready(r->job);
}

void ag_seg_unready(struct ag_seg *s)
{
	struct ag_route *r = s->route;
	bool leads = first_ready(r) == s;

	if (leads)
		pheap_del(ag_turn_of(r), &r->turn);
	pheap_del(&r->ready, &s->heap);
	list_del(&s->link);
	if (leads && pheap_min(&r->ready))
		pheap_add(ag_turn_of(r), &r->turn);
	job_unready(r->job);
}

void ag_seg_given(struct ag_seg *s)
{
	s->state = SEG_IDLE;
	if (ag_all_gave(s))
		ag_seg_ready(s);
}

/*
 * The least urgent segment in flight that may be taken back; NULL: none.  One
 * that was asked for is no exception: an ASK may also have answered a PROBE, or
 * be old, and what the server does ask for it holds.
 */
static struct ag_seg *victim(struct ag_route *r)
{
	struct ag_seg *worst = NULL;

	list_for_each(&r->inflight, l) {
		struct ag_seg *s = list_entry(l, struct ag_seg, link);

		if (s->state == SEG_CANCELLING)
			return NULL;	/* one at a time */
		if (s->pinned || s->slot == UINT32_MAX)
			continue;
		if (!worst || ag_more_urgent(worst, s))
			worst = s;
	}
	return worst;
}

/* The asked segment at the head finds no room: take something back. */
static void make_room(struct ag_route *r)
{
	struct ag_seg *s = victim(r);

	if (s)
		ag_seg_recall(s);
}

static bool links_take(const struct ag_peer *p)
{
	return p->up && !p->busy && (p->by_ref || p->tx_bytes < p->tx_limit);
}

static bool takes_window(const struct ag_seg *s)
{
	return !s->route->peer->by_ref && !ag_without_data(s->tensor);
}

/* The route's most urgent segment, with a slot when it needs one; NULL: not now. */
static struct ag_seg *head(struct ag_route *r)
{
	struct ag_seg *s = first_ready(r);

	if (!links_take(r->peer))
		return NULL;
	if (s->slot != UINT32_MAX || !takes_window(s))
		return s;
	if (r->full || s->late_slot != UINT32_MAX)
		return NULL;
	s->slot = pagemap_get(&r->window, ag_seg_pages(s));
	if (s->slot != UINT32_MAX)
		return s;
	r->full = true;
	if (s->asked)
		make_room(r);
	return NULL;
}

void ag_seg_free_late(struct ag_seg *s)
{
	if (s->late_slot == UINT32_MAX)
		return;
	pagemap_put(&s->late_route->window, s->late_slot, ag_seg_pages(s));
	s->late_slot = UINT32_MAX;
	s->late_route->full = false;
}

void ag_seg_free_slot(struct ag_seg *s, mono_t now)
{
	if (s->slot == UINT32_MAX)
		return;
	if (s->lent && !s->route->gone) {
		s->late_slot = s->slot;
		s->late_route = s->route;
	} else {
		pagemap_put(&s->route->window, s->slot, ag_seg_pages(s));
	}
	s->slot = UINT32_MAX;
	s->route->full = false;
	s->route->progress = now;
}

static struct ag_seg *first_of(struct pheap *turn)
{
	struct list aside;
	struct ag_seg *s = NULL;

	list_init(&aside);
	while (!s && pheap_min(turn)) {
		struct ag_route *r = container_of(pheap_min(turn), struct ag_route, turn);

		s = head(r);
		if (s)
			break;
		pheap_del(turn, &r->turn);
		list_add(&aside, &r->aside);
	}
	list_for_each_safe(&aside, l, next) {
		struct ag_route *r = list_entry(l, struct ag_route, aside);

		list_del(&r->aside);
		pheap_add(turn, &r->turn);
	}
	return s;
}

static struct ag_seg *first_of_job(struct ag_core *c, struct ag_job *j)
{
	struct ag_seg *near = first_of(&j->turn[AG_BY_REF]), *far = NULL;

	if (c->tx_bytes < c->tx_limit)
		far = first_of(&j->turn[AG_BY_LINK]);
	return !far || (near && ag_more_urgent(near, far)) ? near : far;
}

struct ag_seg *ag_choose(struct ag_core *c)
{
	struct ag_seg *s = NULL;

	for (struct fair_flow *w = fair_first(&c->links); w && !s; w = fair_next(w))
		s = first_of_job(c, job_of(w));
	return s;
}
