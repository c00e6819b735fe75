// SPDX-License-Identifier: Apache-2.0
/* Slabs that an engine shows over its links: to servers that read or write them where they lie. */
#include "common/rt/log.h"
#include "worker-agent/agent_links.h"

/* Whether the peer is one of the job's servers. */
static bool serves(struct ad_engine *en, const struct ad_peer *p, uint32_t job)
{
	const struct ag_job *j = ag_job_find(&en->core, job);

	for (uint32_t i = 0; j && !j->stopped && i < j->nroutes; i++)
		if (j->route[i] && j->route[i]->peer == &p->core)
			return true;
	return false;
}

/* By shared memory all of it, by RDMA only what the job's servers write.  Where the link has no
 * room for it now, or we no descriptor, later: what lies there would be named in vain. */
static void show_one(struct ad_engine *en, struct ad_lane *k, const struct ad_shown *s)
{
	int rc = 0;

	if (!k->up)
		return;
	if (xport_by_reference(k->ep))
		rc = xport_send_slab(k->ep, s->job, s->id, s->fd, s->bytes);
	else if (xport_takes_regions(k->ep) && s->region && s->servers_write &&
		 serves(en, k->peer, s->job) &&
		 xport_show(k->ep, s->job, s->id, s->region, 0, s->bytes))
		log_warn("server %s cannot write results by rdma and uses tcp",
			 k->peer->server.name);
	if (rc == TALLY_EAGAIN || rc == TALLY_EQUOTA)
		k->unshown = MIN(k->unshown, s->id);
}

void ad_lane_show(struct ad_engine *en, struct ad_lane *k)
{
	uint32_t from = k->unshown;

	k->unshown = SLABS_PER_LINK_MAX;
	for (uint32_t id = from; id < k->unshown; id++)
		if (en->shown[id].fd >= 0)
			show_one(en, k, &en->shown[id]);
}

void ad_links_show_job(struct ad_engine *en, struct ag_peer *core, uint32_t job)
{
	list_for_each(&((struct ad_peer *)core->user)->lanes, l) {
		struct ad_lane *k = list_entry(l, struct ad_lane, link);

		for (uint32_t id = 0; k->up && id < SLABS_PER_LINK_MAX; id++)
			if (en->shown[id].fd >= 0 && en->shown[id].job == job)
				show_one(en, k, &en->shown[id]);
	}
}

static void hide_in(struct ad_lane *k, void *job)
{
	if (k->ep)
		xport_hide(k->ep, *(uint32_t *)job);
}

void ad_links_hide(struct ad_engine *en, uint32_t job)
{
	ad_lanes_each(en, hide_in, &job);
}

bool ad_links_shown(const struct ad_engine *en, uint32_t job)
{
	list_for_each(&en->peers, lp) {
		list_for_each(&list_entry(lp, struct ad_peer, link)->lanes, l) {
			const struct ad_lane *k = list_entry(l, struct ad_lane, link);

			if (k->ep && xport_shows(k->ep, job))
				return true;
		}
	}
	return false;
}

void ad_links_forget(struct ad_engine *en, struct ad_shown *s)
{
	if (s->region)
		xport_unlend(en->group, s->region);
	en->nhiding -= s->hiding;
	s->hiding = false;
	s->fd = -1;
}

void ad_links_show(struct ad_engine *en, const struct ad_shown *s)
{
	en->shown[s->id] = *s;
	if (s->region)
		(void)xport_lend(en->group, s->region);	/* or they go over TCP */
	list_for_each(&en->peers, lp)
		list_for_each(&list_entry(lp, struct ad_peer, link)->lanes, l)
			show_one(en, list_entry(l, struct ad_lane, link), s);
}

/* False: a link has no room to hear of it now, or is down.  Hearing it twice does no harm. */
static bool take_back(struct ad_engine *en, const struct ad_shown *s)
{
	bool all = true;

	list_for_each(&en->peers, lp) {
		list_for_each(&list_entry(lp, struct ad_peer, link)->lanes, l) {
			struct ad_lane *k = list_entry(l, struct ad_lane, link);

			if (k->addr.kind == XPORT_SHM)
				all &= k->up && !xport_send_slab(k->ep, s->job, s->id, -1, 0);
		}
	}
	return all;
}

void ad_links_take_back(struct ad_engine *en)
{
	for (uint32_t id = 0; en->nhiding && id < SLABS_PER_LINK_MAX; id++) {
		struct ad_shown *s = &en->shown[id];
		struct ag_job *j = s->hiding ? ag_job_find(&en->core, s->job) : NULL;

		if (!j || j->stopped || ag_job_past(j) || !take_back(en, s))
			continue;	/* the end of a job takes all */
		ad_links_forget(en, s);
		outbox_post(&en->out, AD_HIDDEN, s, sizeof(*s));
	}
}
