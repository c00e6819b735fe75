// SPDX-License-Identifier: Apache-2.0
/*
 * Peers of an engine: who they are, and the slabs that they show by shared memory.
 *
 * A slab that is shown no more, its number another's or its process gone, stays mapped while
 * something of its job lies in it: results that others wait for, or contributions.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rt/log.h"
#include "server/server_peer.h"

struct sv_peer *sv_peer_get(struct sv_engine *en, uint32_t node, uint32_t agent_engine)
{
	struct sv_peer *p;

	list_for_each(&en->core.peers, l) {
		p = sv_peer_of(l);
		if (p->core.node == node && p->agent_engine == agent_engine)
			return p;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	srv_peer_init(&en->core, &p->core, node, agent_engine);
	p->agent_engine = agent_engine;
	list_init(&p->links);
	list_init(&p->retired);
	return p;
}

/* A job names its agent, so it may come back as another process. */
static bool is_named(const struct sv_engine *en, const struct sv_peer *p)
{
	list_for_each(&en->core.jobs, l) {
		const struct srv_job *j = list_entry(l, struct srv_job, link);

		for (uint32_t w = 0; w < j->n; w++)
			if (j->worker[w].node == p->core.node)
				return true;
	}
	return false;
}

void sv_peer_put(struct sv_engine *en, struct sv_peer *p)
{
	if (!list_empty(&p->links) || p->nslabs || is_named(en, p))
		return;
	sv_net_fine(en, p, TROUBLE_LEFT);
	srv_peer_fini(&p->core);
	free(p);
}

/* ---- slabs ---- */

void *sv_slab_at(const struct sv_peer *p, uint64_t slot, uint32_t job, uint64_t len)
{
	uint32_t id = SLOT_SLAB_ID(slot);
	const struct sv_slab *s;

	if (slot == SLOT_NONE || id >= SLABS_PER_LINK_MAX)
		return NULL;
	s = p->slab[id];
	if (!s || s->job != job || !range_ok(SLOT_SLAB_OFF(slot), len, s->mem.bytes))
		return NULL;
	return s->mem.base + SLOT_SLAB_OFF(slot);
}

bool sv_slab_writable(const struct sv_peer *p, uint64_t slot)
{
	uint32_t id = SLOT_SLAB_ID(slot);

	return id < SLABS_PER_LINK_MAX && p->slab[id] && p->slab[id]->mem.writable;
}

static void slab_drop(struct sv_engine *en, struct sv_peer *p, struct sv_slab *s)
{
	if (!list_empty(&s->link))
		en->nretired--;
	list_del(&s->link);
	if (s->region && en->group)
		xport_unlend(en->group, s->region);
	xport_region_free(s->region);
	slab_free(&s->mem);
	free(s);
	p->nslabs--;
}

/* Contributions of its job may still be read where they lie. */
static void slab_retire(struct sv_engine *en, struct sv_peer *p, uint32_t id)
{
	struct sv_slab *s = p->slab[id];

	p->slab[id] = NULL;
	if (!s)
		return;
	if (srv_job_find(&en->core, s->job)) {
		list_add(&p->retired, &s->link);
		en->nretired++;
	} else {
		slab_drop(en, p, s);
	}
}

/*
 * Whether a slab is in use. Results that NICs still send are counted by the job, not by the
 * slab.
 */
static bool in_use(struct sv_engine *en, const struct sv_slab *s)
{
	const struct srv_job *j = srv_job_find(&en->core, s->job);

	return j && ((s->mem.writable && srv_job_borrowed(j)) ||
		     srv_job_uses(j, s->mem.base, s->mem.bytes));
}

void sv_slabs_sweep(struct sv_engine *en)
{
	list_for_each(&en->core.peers, lp) {
		struct sv_peer *p = sv_peer_of(lp);

		list_for_each_safe(&p->retired, l, next) {
			struct sv_slab *s = list_entry(l, struct sv_slab, link);

			if (!in_use(en, s))
				slab_drop(en, p, s);
		}
	}
}

/* Whether a slab is mapped already: it is shown again when a broken link comes back. */
static bool slab_known(const struct sv_slab *s, uint32_t job, int fd)
{
	struct stat here, there;

	return s && s->job == job && !fstat(s->mem.fd, &here) && !fstat(fd, &there) &&
	       here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

/* Slabs of jobs that are not here are other servers' business. */
static bool slab_wanted(struct sv_engine *en, const struct sv_peer *p, uint32_t job, uint32_t id,
			int fd)
{
	const struct srv_job *j = srv_job_find(&en->core, job);

	return id < SLABS_PER_LINK_MAX && p->nslabs < 2 * SLABS_PER_LINK_MAX && j && !j->stopped &&
	       !slab_known(p->slab[id], job, fd);
}

/* Results are written; inputs may be sealed against new writers by now, and are read. */
static int map_slab(struct slab *s, int fd, uint64_t bytes, struct err *e)
{
	if (slab_is_device(fd))		/* its agent was told to trust it */
		return slab_map_device(s, fd, bytes, false, e);
	return slab_map(s, fd, bytes, true, e) ? slab_map(s, fd, bytes, false, e) : 0;
}

static void taken_back(struct sv_engine *en, struct sv_peer *p, uint32_t job, uint32_t id)
{
	if (id < SLABS_PER_LINK_MAX && p->slab[id] && p->slab[id]->job == job)
		slab_retire(en, p, id);
}

bool sv_slab_take(struct sv_engine *en, struct sv_peer *p, uint32_t job, uint32_t id, int fd,
		  uint64_t bytes)
{
	struct sv_slab *s;
	struct err e;

	if (fd < 0) {
		taken_back(en, p, job, id);
		return true;
	}
	if (!slab_wanted(en, p, job, id, fd)) {
		close(fd);
		return true;
	}
	s = calloc(1, sizeof(*s));
	if (!s || map_slab(&s->mem, fd, bytes, &e)) {
		log_warn("agent node %u slab %u not mapped, reason %s", p->core.node, id,
			 s ? e.text : "out of memory");
		free(s);
		close(fd);
		return false;
	}
	slab_retire(en, p, id);
	list_init(&s->link);
	s->job = job;
	/* Sums are made in a local agent's results, and go to the others from there. */
	if (s->mem.writable && xport_rdma_devices() &&
	    !xport_region_new(&s->region, s->mem.base, s->mem.bytes, false, &e))
		(void)xport_lend(en->group, s->region);
	p->slab[id] = s;
	p->nslabs++;
	return true;
}

void sv_slabs_retire(struct sv_engine *en, struct sv_peer *p, uint32_t job)
{
	for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++)
		if (p->slab[id] && p->slab[id]->job == job)
			slab_retire(en, p, id);
}

static void drop_slabs(struct sv_engine *en, struct sv_peer *p, bool all, uint32_t job)
{
	list_for_each_safe(&p->retired, l, next) {
		struct sv_slab *s = list_entry(l, struct sv_slab, link);

		if (all || s->job == job)
			slab_drop(en, p, s);
	}
	for (uint32_t id = 0; p->nslabs && id < SLABS_PER_LINK_MAX; id++) {
		if (!p->slab[id] || (!all && p->slab[id]->job != job))
			continue;
		slab_drop(en, p, p->slab[id]);
		p->slab[id] = NULL;
	}
}

void sv_slabs_drop_job(struct sv_engine *en, uint32_t job)
{
	list_for_each_safe(&en->core.peers, l, next) {
		struct sv_peer *p = sv_peer_of(l);

		drop_slabs(en, p, false, job);
		sv_peer_put(en, p);
	}
}

void sv_peer_free(struct sv_engine *en, struct sv_peer *p)
{
	ASSERT(list_empty(&p->links));
	drop_slabs(en, p, true, 0);
	srv_peer_lost(&en->core, &p->core);	/* what it was to be sent since, too */
	srv_peer_fini(&p->core);
	free(p);
}

/* ---- another process ---- */

void sv_peer_cut(struct sv_peer *p)
{
	list_for_each(&p->links, l)
		xport_close(list_entry(l, struct sv_link, link)->ep, CLOSE_LOCAL);
}

bool sv_peer_is(struct sv_engine *en, struct sv_peer *p, uint32_t start)
{
	if (p->start == start)
		return true;
	sv_peer_cut(p);
	if (!list_empty(&p->links))
		return false;
	if (p->start) {
		log_info("agent node %u was started again", p->core.node);
		for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++)
			slab_retire(en, p, id);
		srv_peer_anew(&en->core, &p->core);
	}
	p->start = start;
	return true;
}
