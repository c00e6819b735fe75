// SPDX-License-Identifier: Apache-2.0
/*
 * xport_rdma_show.c - memory that one side of a link lets the other write.
 *
 *   this side: new -> binding (a window to this queue pair) -> bound -> told (SLAB) ->
 *	hiding (SLAB of no bytes) -> gone, when the peer has confirmed.
 *   the peer: seen, from its SLAB on; taken back: nothing new goes there, and the answer
 *	leaves when what went there is done.
 */
#include <stdlib.h>
#include <string.h>

#include "common/net/xport_rdma_link.h"

/* ---- lookup ---- */

static uint64_t seen_key(uint32_t job, uint64_t id)
{
	return (uint64_t)job << 32 | id;
}

/* Where the key is, or would be. */
static uint32_t seen_at(const struct rdma_link *k, uint64_t key)
{
	uint32_t lo = 0, hi = k->nseen;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (k->seen[mid].key < key)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* ---- showing memory ---- */

void rdma_shown_free(struct shown *s)
{
	list_del(&s->link);
	if (s->mw)
		ibv_dealloc_mw(s->mw);
	free(s);
}

struct shown *rdma_shown_find(const struct rdma_link *k, uint32_t job, uint32_t id)
{
	list_for_each(&k->shown, l) {
		struct shown *s = list_entry(l, struct shown, link);

		if (s->job == job && s->id == id)
			return s;
	}
	return NULL;
}

int xport_show(struct xport_ep *ep, uint32_t job, uint32_t id, const struct xport_region *r,
	       uint64_t off, uint64_t bytes)
{
	struct rdma_link *k = ep->rdma;
	struct ibv_mr *mr;
	struct shown *s;

	if (!xport_takes_regions(ep))
		return ep->ops == &xport_rdma_ops ? TALLY_ESHUTDOWN : TALLY_EINVAL;
	mr = r->mr[k->cq - ep->g->rdma->cq];
	if (!mr || !r->peers_write || !bytes || !range_ok(off, bytes, r->bytes) ||
	    id >= SLABS_PER_LINK_MAX)
		return TALLY_EINVAL;
	s = rdma_shown_find(k, job, id);
	if (s)
		return s->hide ? TALLY_EAGAIN : 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return TALLY_ENOMEM;
	s->mw = k->cq->dev->windows ? ibv_alloc_mw(k->cq->dev->pd, IBV_MW_TYPE_2) : NULL;
	if (k->cq->dev->windows && !s->mw) {
		free(s);
		return TALLY_EQUOTA;
	}
	s->mr = mr;
	s->base = r->base + off;
	s->bytes = bytes;
	s->job = job;
	s->id = id;
	s->serial = k->shown_serial++ & 0x3fff;
	s->rkey = s->mw ? ibv_inc_rkey(s->mw->rkey) : mr->rkey;
	s->state = s->mw ? SHOWN_NEW : SHOWN_BOUND;
	list_add(&k->shown, &s->link);
	ep_dirty(ep);
	return 0;
}

void xport_hide(struct xport_ep *ep, uint32_t job)
{
	if (!ep->rdma || !ep_live(ep))
		return;
	list_for_each(&ep->rdma->shown, l) {
		struct shown *s = list_entry(l, struct shown, link);

		s->hide |= s->job == job;
	}
	ep_dirty(ep);
}

bool xport_shows(const struct xport_ep *ep, uint32_t job)
{
	if (!ep->rdma || !ep_live(ep))
		return false;
	list_for_each(&ep->rdma->shown, l)
		if (list_entry(l, struct shown, link)->job == job)
			return true;
	return false;
}

bool xport_seen(const struct xport_ep *ep, uint32_t job)
{
	const struct rdma_link *k = ep->rdma;
	uint32_t at = k ? seen_at(k, seen_key(job, 0)) : 0;

	return k && ep_live(ep) && at < k->nseen && k->seen[at].key >> 32 == job;
}

static int post_bind(struct xport_ep *ep, struct shown *s)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id(ep, WR_BIND, s->serial),
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = s->mw,
			.rkey = s->rkey,
			.bind_info = {
				.mr = s->mr,
				.addr = (uintptr_t)s->base,
				.length = s->bytes,
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
			},
		},
	};

	return ibv_post_send(ep->rdma->qp, &wr, &bad);
}

static bool say_slab(struct xport_ep *ep, const struct shown *s, uint64_t bytes)
{
	struct frame f = {
		.type = FRAME_SLAB,
		.job = s->job,
		.slot = s->id,
		.rslot = bytes,
		.tensor = s->rkey,
		.chunk = (uint32_t)(uintptr_t)s->base,
		.round = (uint32_t)((uint64_t)(uintptr_t)s->base >> 32),
	};

	return tx_own(ep, &f);
}

/*
 * Takes the next step of making shown memory usable for the peer, where one can be taken; false:
 * the link has ended.
 */
bool rdma_shown_step(struct xport_ep *ep, struct shown *s)
{
	struct rdma_link *k = ep->rdma;

	switch (s->state) {
	case SHOWN_NEW:
		if (s->hide) {
			rdma_shown_free(s);
		} else if (k->own_wrs < OWN_WRS) {
			if (post_bind(ep, s)) {
				ep_kill(ep, CLOSE_QUEUE_PAIR, "a memory window: %m");
				return false;
			}
			k->own_wrs++;
			s->state = SHOWN_BINDING;
		}
		break;
	case SHOWN_BOUND:
		if (s->hide)
			rdma_shown_free(s);
		else if (say_slab(ep, s, s->bytes))
			s->state = SHOWN_TOLD;
		break;
	case SHOWN_TOLD:
		if (s->hide && say_slab(ep, s, 0))
			s->state = SHOWN_HIDING;
		break;
	case SHOWN_BINDING:
	case SHOWN_HIDING:
		break;
	}
	return true;
}

void rdma_bound(struct xport_ep *ep, uint32_t serial)
{
	ep->rdma->own_wrs--;
	list_for_each(&ep->rdma->shown, l) {
		struct shown *s = list_entry(l, struct shown, link);

		if (s->serial == serial && s->state == SHOWN_BINDING)
			s->state = SHOWN_BOUND;
	}
	ep_dirty(ep);
}

/* ---- what the peer shows ---- */

static bool seen_add(struct rdma_link *k, const struct seen *s)
{
	uint32_t at = seen_at(k, s->key);

	if (at < k->nseen && k->seen[at].key == s->key) {
		k->seen[at] = *s;
		return true;
	}
	if (k->nseen == SLABS_PER_LINK_MAX)
		return false;
	if (k->nseen == k->seen_room) {
		uint32_t room = MAX(2 * k->seen_room, 8u);
		struct seen *more = realloc(k->seen, room * sizeof(*more));

		if (!more)
			return false;
		k->seen = more;
		k->seen_room = room;
	}
	memmove(&k->seen[at + 1], &k->seen[at], (k->nseen - at) * sizeof(k->seen[0]));
	k->seen[at] = *s;
	k->nseen++;
	return true;
}

/* Nothing more is sent there; what was is waited for before the peer hears of it. */
static bool seen_del(struct rdma_link *k, uint32_t job, uint32_t id)
{
	uint64_t key = seen_key(job, id);
	uint32_t at = seen_at(k, key);
	struct hidden *h;

	if (at == k->nseen || k->seen[at].key != key || k->nhidden == SLABS_PER_LINK_MAX)
		return false;
	h = calloc(1, sizeof(*h));
	if (!h)
		return false;
	h->job = job;
	h->id = id;
	h->after = k->taken;
	k->nhidden++;
	list_add(&k->hidden, &h->link);
	k->nseen--;
	memmove(&k->seen[at], &k->seen[at + 1], (k->nseen - at) * sizeof(k->seen[0]));
	return true;
}

void rdma_confirm_hidden(struct xport_ep *ep)
{
	struct rdma_link *k = ep->rdma;

	list_for_each_safe(&k->hidden, l, next) {
		struct hidden *h = list_entry(l, struct hidden, link);
		struct frame f = { .type = FRAME_SLAB, .job = h->job, .slot = h->id, .aux = 1 };

		if (h->after > k->done || !tx_own(ep, &f))
			return;		/* they are in order */
		list_del(&h->link);
		free(h);
		k->nhidden--;
	}
}

bool rdma_take_slab(struct rdma_link *k, const struct frame *f)
{
	struct seen s = {
		.key = seen_key(f->job, f->slot),
		.addr = (uint64_t)f->round << 32 | f->chunk,
		.bytes = f->rslot,
		.rkey = f->tensor,
	};
	struct shown *mine;

	if (f->slot >= SLABS_PER_LINK_MAX || f->rslot > SLAB_BYTES_MAX ||
	    s.addr + s.bytes < s.addr)
		return false;
	if (f->rslot)
		return seen_add(k, &s);
	if (!f->aux)
		return seen_del(k, f->job, (uint32_t)f->slot);
	mine = rdma_shown_find(k, f->job, (uint32_t)f->slot);
	if (!mine || mine->state != SHOWN_HIDING)
		return false;
	rdma_shown_free(mine);
	return true;
}

bool rdma_find_room(const struct rdma_link *k, const struct frame *f, struct item *it)
{
	uint64_t off = SLOT_SLAB_OFF(f->slot), key = seen_key(f->job, SLOT_SLAB_ID(f->slot));
	uint32_t at = seen_at(k, key);

	if (at == k->nseen || k->seen[at].key != key ||
	    !range_ok(off, f->length, k->seen[at].bytes))
		return false;
	it->raddr = k->seen[at].addr + off;
	it->rkey = k->seen[at].rkey;
	return true;
}

bool xport_takes_regions(const struct xport_ep *ep)
{
	return ep->state == EP_UP && ep->ops == &xport_rdma_ops;
}
