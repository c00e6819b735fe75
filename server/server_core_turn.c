// SPDX-License-Identifier: Apache-2.0
/*
 * Which frame goes out next.
 *
 * Frames stand in lanes, one for each job and engine of an agent, in the order in which there
 * was something to say: an ASK does not overtake the result that makes room for what it asks
 * for.  On the way to the engine users take turns by bytes of results, and the lanes of each
 * (common/base/fair.h): its card is what they share.
 *
 * The server's own card is shared, too: between engines of agents that could be served the
 * one comes first whose next result is of the user, and of the job, that all of them together
 * were sent least of; for one job it is the one that is furthest behind.
 */
#include "server/server_core.h"

/* Of the engine that in->peer is. */
static struct srv_lane *lane_of(const struct srv_in *in)
{
	const struct srv_seg *s = in->seg;

	return &s->tensor->job->worker[in - s->in].lane[in->peer->engine];
}

void srv_todo(struct srv_in *in, uint8_t what)
{
	struct srv_lane *lane;

	if (!in->peer)
		return;
	if (!in->todo) {
		lane = lane_of(in);
		if (lane->flow.of != &in->peer->lanes) {
			fair_leave(&lane->flow);
			fair_join(&in->peer->lanes, &lane->flow, in->seg->tensor->job->owner);
		}
		list_add(&lane->out, &in->out);
		fair_wake(&lane->flow);
	}
	in->todo |= what;
}

void srv_todo_drop(struct srv_in *in, uint8_t what)
{
	bool queued = in->todo;

	in->todo &= (uint8_t)~what;
	if (!queued || in->todo)
		return;
	list_del(&in->out);
	if (list_empty(&lane_of(in)->out))
		fair_sleep(&lane_of(in)->flow);
}

struct srv_in *srv_first(const struct srv_peer *p)
{
	const struct fair_flow *w = fair_first(&p->lanes);

	return w ? list_first(&container_of(w, struct srv_lane, flow)->out, struct srv_in, out) :
		   NULL;
}

void srv_serve(const struct srv_in *in, bool by_ref)
{
	uint64_t bytes = in->seg->len + FRAME_BYTES;

	fair_serve(&lane_of(in)->flow, bytes);
	fair_serve(&in->seg->tensor->job->flow, by_ref ? 0 : bytes);
}

/* ---- whose turn it is ---- */

struct srv_due srv_due(const struct srv_peer *p)
{
	const struct srv_in *in = p->nrefusals ? NULL : srv_first(p);

	if (p->nrefusals || (in && !(in->todo & TODO_RESULT)))
		return (struct srv_due){ .turn = 0 };
	if (!in)
		return (struct srv_due){ .turn = SRV_NOTHING };
	return (struct srv_due){ .job = in->seg->tensor->job, .turn = in->seg->turn };
}

bool srv_due_before(const struct srv_due *a, const struct srv_due *b)
{
	if (a->job && b->job && a->job != b->job) {
		if (fair_before(&a->job->flow, &b->job->flow))
			return true;
		if (fair_before(&b->job->flow, &a->job->flow))
			return false;
	}
	return a->turn < b->turn;
}

void srv_turns_credit(struct srv_core *c, uint64_t bytes)
{
	c->out.credit = bytes;
	list_for_each(&c->peers, l)
		list_entry(l, struct srv_peer, link)->lanes.credit = bytes;
}

/* ---- jobs and peers that come and go ---- */

void srv_lanes_init(struct srv_job *j, struct srv_lane *lane, uint32_t engines)
{
	for (uint32_t w = 0; w < j->n; w++) {
		j->worker[w].lane = &lane[w * engines];
		for (uint32_t e = 0; e < engines; e++)
			list_init(&j->worker[w].lane[e].out);
	}
	j->engines = engines;
}

void srv_lanes_fini(struct srv_job *j)
{
	for (uint32_t i = 0; i < j->n * j->engines; i++)
		fair_leave(&j->worker[0].lane[i].flow);
}

void srv_lanes_lost(struct srv_core *c, struct srv_peer *p)
{
	list_for_each(&c->jobs, l) {
		struct srv_job *j = list_entry(l, struct srv_job, link);

		for (uint32_t w = 0; w < j->n; w++)
			if (p->engine < j->engines &&
			    j->worker[w].lane[p->engine].flow.of == &p->lanes)
				fair_leave(&j->worker[w].lane[p->engine].flow);
	}
	ASSERT(list_empty(&p->lanes.users));
}

void srv_turns_check(const struct srv_core *c)
{
	fair_check(&c->out);
	list_for_each(&c->peers, l)
		fair_check(&list_entry(l, struct srv_peer, link)->lanes);
	list_for_each(&c->jobs, l) {
		const struct srv_job *j = list_entry(l, struct srv_job, link);

		for (uint32_t i = 0; i < j->n * j->engines; i++) {
			const struct srv_lane *k = &j->worker[0].lane[i];

			ASSERT(list_empty(&k->out) || k->flow.of);
			ASSERT(!k->flow.of || fair_awake(&k->flow) == !list_empty(&k->out));
		}
	}
}
