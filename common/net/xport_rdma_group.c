// SPDX-License-Identifier: Apache-2.0
/*
 * xport_rdma_group.c - an engine's completion queues, one per device, and the memory
 * that its links may send from.
 *
 * A queue has room for everything that all its links may have posted, so it cannot
 * overrun; it grows with the links.
 *
 * A queue that failed is closed, with all its links, and the next link gets another one.
 * Likewise that of a device which is gone, whose descriptors would be readable for ever;
 * there no link gets another.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/net/xport_rdma_link.h"

/* ---- a group's queues ---- */

struct rdma_group *rdma_group_new(struct xport_group *g)
{
	struct rdma_group *rg;
	uint32_t n;

	rdma_devs(&n);
	rg = n ? calloc(1, sizeof(*rg)) : NULL;
	if (!rg)
		return NULL;
	rg->g = g;
	rg->spin = sysconf(_SC_NPROCESSORS_ONLN) >= SPIN_CPUS ? SPIN_US * 1000 : 0;
	return rg;
}

/* None of its links lives. */
static void cq_close(struct rdma_group *rg, struct rdma_cq *c)
{
	if (c->dev) {
		epoll_ctl(rg->g->epfd, EPOLL_CTL_DEL, c->dev->ctx->async_fd, NULL);
		epoll_ctl(rg->g->epfd, EPOLL_CTL_DEL, c->channel->fd, NULL);
	}
	if (c->cq)
		ibv_destroy_cq(c->cq);
	if (c->channel)
		ibv_destroy_comp_channel(c->channel);
	*c = (struct rdma_cq){ .dev = NULL };
}

void rdma_group_free(struct rdma_group *rg)
{
	for (uint32_t i = 0; rg && i < RDMA_DEVS_MAX; i++)
		cq_close(rg, &rg->cq[i]);
	if (rg)
		free(rg->lent);
	free(rg);
}

static int cq_watch(struct rdma_group *rg, struct rdma_cq *c, struct rdma_dev *d)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &c->on_channel };
	int flags = fcntl(c->channel->fd, F_GETFL);

	if (fcntl(c->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    epoll_ctl(rg->g->epfd, EPOLL_CTL_ADD, c->channel->fd, &ev) < 0)
		return -1;
	ev.data.ptr = &c->on_async;
	return epoll_ctl(rg->g->epfd, EPOLL_CTL_ADD, d->ctx->async_fd, &ev);
}

static int cq_open(struct rdma_group *rg, struct rdma_cq *c, struct rdma_dev *d, struct err *e)
{
	int depth = MIN((int)(CQ_LINKS_MIN * LINK_CQES), d->attr.max_cqe);

	c->news = d->news;		/* first: what comes now is seen */
	if (d->dead)
		return err_set(e, TALLY_EIO, "the device failed");
	c->channel = ibv_create_comp_channel(d->ctx);
	if (c->channel)
		c->cq = ibv_create_cq(d->ctx, depth, &c->failed, c->channel, 0);
	if (!c->cq || cq_watch(rg, c, d)) {
		err_set(e, TALLY_EQUOTA, "a completion queue of %d: %m", depth);
		cq_close(rg, c);
		return TALLY_EQUOTA;
	}
	c->dev = d;
	c->depth = depth;
	return 0;
}

/* The group's queue at a device, with room for another link. */
int rdma_cq_get(struct rdma_group *rg, uint32_t dev, struct rdma_cq **out, struct err *e)
{
	struct rdma_cq *c = &rg->cq[dev];
	uint32_t n;
	struct rdma_dev *d = &rdma_devs(&n)[dev];
	int rc = c->dev ? 0 : cq_open(rg, c, d, e), need = c->used + (int)LINK_CQES;

	if (rc)
		return rc;
	if (need > c->depth) {
		int depth = MIN(MAX(2 * c->depth, need), d->attr.max_cqe);

		if (need > depth || ibv_resize_cq(c->cq, depth))
			return err_set(e, TALLY_EQUOTA, "a completion queue for more than %d links "
				       "of an engine (the device allows %d entries)",
				       c->used / (int)LINK_CQES, d->attr.max_cqe);
		c->depth = depth;
	}
	c->used += (int)LINK_CQES;
	*out = c;
	return 0;
}

/* ---- memory lent by the owner ---- */

/* The first region behind `p`, by base. */
static uint32_t lent_after(const struct rdma_group *rg, const uint8_t *p)
{
	uint32_t lo = 0, hi = rg->nlent;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (rg->lent[mid]->base > p)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

int xport_lend(struct xport_group *g, const struct xport_region *r)
{
	struct rdma_group *rg = g->rdma;
	uint32_t at;

	if (!rg)
		return 0;
	if (rg->nlent == rg->lent_room) {
		uint32_t room = MAX(2 * rg->lent_room, 16u);
		const struct xport_region **more = realloc(rg->lent, room * sizeof(*more));

		if (!more)
			return TALLY_ENOMEM;
		rg->lent = more;
		rg->lent_room = room;
	}
	at = lent_after(rg, r->base);
	memmove(&rg->lent[at + 1], &rg->lent[at], (rg->nlent - at) * sizeof(rg->lent[0]));
	rg->lent[at] = r;
	rg->nlent++;
	return 0;
}

void xport_unlend(struct xport_group *g, const struct xport_region *r)
{
	struct rdma_group *rg = g->rdma;

	for (uint32_t i = 0; rg && i < rg->nlent; i++) {
		if (rg->lent[i] != r)
			continue;
		rg->nlent--;
		memmove(&rg->lent[i], &rg->lent[i + 1], (rg->nlent - i) * sizeof(rg->lent[0]));
		return;
	}
}

bool rdma_find_lkey(const struct rdma_group *rg, const struct rdma_cq *c, const uint8_t *p,
		      uint32_t len, uint32_t *lkey)
{
	uint32_t at = lent_after(rg, p), dev = (uint32_t)(c - rg->cq);
	const struct xport_region *r = at ? rg->lent[at - 1] : NULL;

	if (!r || !r->mr[dev] || !range_ok((uint64_t)(p - r->base), len, r->bytes))
		return false;
	*lkey = r->mr[dev]->lkey;
	return true;
}

/* ---- devices ---- */

static bool gid_moved(const struct xport_ep *ep)
{
	const struct rdma_link *k = ep->rdma;
	union ibv_gid now;

	return ibv_query_gid(k->cq->dev->ctx, k->port, k->gid_index, &now) ||
	       memcmp(now.raw, k->gid.raw, 16);
}

const char *rdma_trouble(const struct xport_ep *ep)
{
	const struct rdma_link *k = ep->rdma;

	if (k->cq->dev->dead)
		return "the device failed";
	if (k->cq->failed)
		return "its completion queue failed";
	if (k->trouble != k->cq->dev->trouble[k->port])
		return "its port went down or changed";
	return gid_moved(ep) ? "the NIC's address is another now" : NULL;
}

void rdma_cq_check(struct rdma_group *rg, struct rdma_cq *c)
{
	uint32_t news = c->dev->news;
	bool dead = c->dev->dead, failed = c->failed;

	if (news == c->news)
		return;
	c->news = news;
	list_for_each_safe(&rg->g->live, l, next) {
		struct xport_ep *ep = list_entry(l, struct xport_ep, all);
		bool mine = ep_live(ep) && ep->rdma && ep->rdma->cq == c;
		const char *why = mine ? rdma_trouble(ep) : NULL;

		if (why)
			ep_kill(ep, CLOSE_DEVICE, "%s", why);
	}
	if (dead || failed)
		cq_close(rg, c);
}

bool rdma_group_event(struct rdma_group *rg, void *data_ptr)
{
	for (uint32_t i = 0; i < RDMA_DEVS_MAX; i++) {
		struct rdma_cq *c = &rg->cq[i];
		struct ibv_cq *cq;
		void *ctx;

		if (data_ptr == &c->on_async) {
			if (c->dev)
				rdma_dev_events(c->dev);
			return true;
		}
		if (data_ptr == &c->on_channel) {
			if (c->dev && !ibv_get_cq_event(c->channel, &cq, &ctx))
				ibv_ack_cq_events(cq, 1);
			c->armed = false;
			return true;
		}
	}
	return false;
}
