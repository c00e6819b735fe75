/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_rdma_link.h - what a link with a queue pair is made of; for the files
 * xport_rdma*.c alone.
 *
 *   xport_rdma.c	frames: sent, received, completed; calls the others
 *   xport_rdma_qp.c	queue pairs: made, joined, gone
 *   xport_rdma_show.c	memory that one side lets the other write
 *   xport_rdma_group.c	an engine's completion queues and lent memory
 *   xport_rdma_dev.c	devices and registered memory, of the process
 *   xport_rdma_pick.c	which address of which port
 *
 * Owner: the engine thread, but for devices and regions.  Memory: a link's is one
 * struct and one page-aligned block of headers, made when the queue pairs are joined;
 * what is shown is a few words each, made by xport_show() and by the peer's SLABs, at
 * most SLABS_PER_LINK_MAX.
 */
#ifndef TALLY_NET_XPORT_RDMA_LINK_H
#define TALLY_NET_XPORT_RDMA_LINK_H

#include "common/base/bytes.h"
#include "common/net/xport_ep.h"
#include "common/net/xport_rdma.h"

#define SQ_FRAMES	128u	/* frames posted and not completed, of one link */
#define BATCH_FRAMES	16u	/* of one doorbell */
#define POST_BYTES	(2u << 20) /* with the card: nothing overtakes them, so no more than
				 * bridge the time until completions are looked at */
#define OWN_WRS		16u	/* binds and credit notes posted and not completed */
#define RQ_FRAMES	256u	/* headers a peer may be ahead of us */
#define RQ_SPARE	8u	/* receives for credit notes, which are not counted */
#define RQ_WRS		(RQ_FRAMES + RQ_SPARE)
#define INLINE_BYTES	64u	/* a header, or a payload no larger */
#define LINK_CQES	(2 * SQ_FRAMES + OWN_WRS + RQ_WRS)
#define CQ_LINKS_MIN	8u
#define CQ_BATCH	32
#define TURN_CQES	256u
#define SPIN_US		50u
#define SPIN_CPUS	4	/* with fewer the peers or the kernel need the CPU more */

enum wr_kind { WR_FRAME, WR_RECV, WR_BIND, WR_CREDIT };

struct item {			/* a frame, from xport_send() to its completion */
	const uint8_t *data;	/* borrowed until sent() or closed() */
	uint64_t cookie, raddr;
	uint32_t len, lkey, rkey;
};

enum shown_state { SHOWN_NEW, SHOWN_BINDING, SHOWN_BOUND, SHOWN_TOLD, SHOWN_HIDING };

struct shown {			/* what this side lets the peer write */
	struct list link;
	struct ibv_mw *mw;	/* NULL: the device has none */
	struct ibv_mr *mr;
	uint8_t *base;
	uint64_t bytes;
	uint32_t job, id, rkey, serial;
	enum shown_state state;
	bool hide;
};

struct seen {			/* what the peer lets this side write */
	uint64_t key, addr, bytes;	/* key: job, id */
	uint32_t rkey;
};

struct hidden {			/* taken back by the peer, to be confirmed */
	struct list link;
	uint64_t after;		/* when so many frames are done */
	uint32_t job, id;
};

struct rdma_cq {		/* a group's queue at one device */
	struct rdma_dev *dev;	/* NULL: not used yet */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int depth, used;	/* used: by links that live */
	bool armed;
	mono_t busy_at;
	uint32_t news;		/* the device's count as last seen */
	_Atomic bool failed;	/* by the word of whichever engine heard of it */
	char on_channel, on_async;	/* what epoll carries */
};

struct rdma_group {
	struct xport_group *g;
	struct rdma_cq cq[RDMA_DEVS_MAX];
	const struct xport_region **lent;	/* owned array, by base */
	uint32_t nlent, lent_room, serial;
	mono_t spin, polled_at;
};

struct rdma_link {
	struct rdma_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;	/* of wires */
	uint8_t *wires;		/* headers: RQ_WRS received, XPORT_QUEUE to be sent */
	union ibv_gid gid;
	uint32_t serial, psn, inline_bytes, shown_serial;
	uint32_t trouble;	/* of the port, when the link was made */
	uint16_t gid_index, lid;
	uint8_t port, mtu;
	bool joined, eof;

	uint32_t head, count, posted;	/* of q; the first `posted` are with the card */
	uint64_t bytes, posted_bytes;	/* of q; with the card */
	uint64_t taken, done;		/* frames ever */
	uint64_t detours;
	uint32_t own_wrs;
	uint32_t sent, peer_took, peer_room;	/* headers ever, and the peer's word */
	uint32_t took, told;		/* received ever; what the peer was told of it */

	struct list shown, hidden;
	struct seen *seen;		/* by key */
	uint32_t nseen, seen_room, nhidden;
	struct item q[XPORT_QUEUE];
};

static_assert(XPORT_QUEUE <= 1u << 14 && XPORT_LINKS_MAX <= 1u << 16, "wr_id holds them");
static_assert(RQ_WRS <= 1u << 14, "wr_id holds them");

/* A completion may outlive its link; the serial tells links of one slot apart. */
static inline uint64_t wr_id(const struct xport_ep *ep, enum wr_kind kind, uint32_t index)
{
	return (uint64_t)ep->rdma->serial << 32 | (uint64_t)ep->slot << 16 |
	       (uint64_t)kind << 14 | index;
}

static inline uint8_t *wire_of(const struct rdma_link *k, uint32_t index)
{
	return k->wires + (size_t)index * FRAME_BYTES;
}

static inline uint8_t *tx_wire(const struct rdma_link *k, uint32_t index)
{
	return wire_of(k, RQ_WRS + index);
}

static inline bool rdma_is_server(const struct xport_ep *ep)
{
	return ep->hello.type == FRAME_HELLO;
}

/* ---- xport_rdma_group.c ---- */

/* The group's completion queue at a device, with room for another link. EQUOTA. */
int rdma_cq_get(struct rdma_group *rg, uint32_t dev, struct rdma_cq **out, struct err *e);
/* Why its device does not let the link go on; NULL: it does. */
const char *rdma_trouble(const struct xport_ep *ep);
/* Ends the links of a device that failed or changed, and closes the queue of one that is gone. */
void rdma_cq_check(struct rdma_group *rg, struct rdma_cq *c);
/* The key under which c's device may read [p, p + len); false: nobody lent it. */
bool rdma_find_lkey(const struct rdma_group *rg, const struct rdma_cq *c, const uint8_t *p,
		    uint32_t len, uint32_t *lkey);

/* ---- xport_rdma_qp.c ---- */

void rdma_shake(struct xport_ep *ep);		/* xport_ops.shake */
void rdma_take_qp(struct xport_ep *ep, const struct frame *f);
/* Everything that the card knows of the link goes; harmless when done. */
void rdma_link_cut(struct rdma_link *k);
int rdma_post_recv(struct xport_ep *ep, uint32_t index);	/* an errno value */

/* ---- xport_rdma_show.c ---- */

/* Carries out a SLAB frame of the peer; false: it cannot be, or there is no memory for it. */
bool rdma_take_slab(struct rdma_link *k, const struct frame *f);
struct shown *rdma_shown_find(const struct rdma_link *k, uint32_t job, uint32_t id);
void rdma_shown_free(struct shown *s);		/* closes its window */
/*
 * Takes the next step of making shown memory usable for the peer, where one can be taken; false:
 * the link has ended.
 */
bool rdma_shown_step(struct xport_ep *ep, struct shown *s);
void rdma_bound(struct xport_ep *ep, uint32_t serial);	/* a window is open */
/* Answers the peer about memory that it took back and that no write is under way to. */
void rdma_confirm_hidden(struct xport_ep *ep);
/* Where f's payload goes at the peer; false: not shown (yet), or beyond its end. */
bool rdma_find_room(const struct rdma_link *k, const struct frame *f, struct item *it);

#endif
