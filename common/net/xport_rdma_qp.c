// SPDX-License-Identifier: Apache-2.0
/*
 * xport_rdma_qp.c - queue pairs: made, joined over their link, gone.
 *
 * Behind WELCOME the server offers a queue pair (QP), the agent makes its own, joins it
 * to the offered one and answers, the server joins and says ready.  Only then is the
 * link up: a header sent to a queue pair that is not joined yet would be lost, and
 * sent again for a while.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/net/xport_rdma_link.h"

/* ---- a queue pair: made, joined, gone ---- */

static int qp_make(struct xport_ep *ep, struct rdma_link *k, struct err *e)
{
	struct rdma_dev *d = k->cq->dev;
	struct ibv_qp_init_attr init = {
		.send_cq = k->cq->cq,
		.recv_cq = k->cq->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 2 * SQ_FRAMES + OWN_WRS,
			.max_recv_wr = RQ_WRS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_BYTES,
		},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = k->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	k->qp = ibv_create_qp(d->pd, &init);
	if (!k->qp) {		/* a card without inline sends takes headers from wires */
		init.cap.max_inline_data = 0;
		k->qp = ibv_create_qp(d->pd, &init);
	}
	if (!k->qp)
		return err_set(e, TALLY_EQUOTA, "a queue pair: %m (the device allows %d)",
			       d->attr.max_qp);
	k->inline_bytes = init.cap.max_inline_data;
	k->qp->qp_context = ep;
	errno = ibv_modify_qp(k->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      IBV_QP_ACCESS_FLAGS);
	return errno ? err_set(e, TALLY_EIO, "a queue pair's first step: %m") : 0;
}

int rdma_post_recv(struct xport_ep *ep, uint32_t index)
{
	struct rdma_link *k = ep->rdma;
	struct ibv_sge sge = {
		.addr = (uintptr_t)wire_of(k, index), .length = FRAME_BYTES, .lkey = k->mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id(ep, WR_RECV, index), .sg_list = &sge, .num_sge = 1,
	};

	return ibv_post_recv(k->qp, &wr, &bad);
}

static int wires_make(struct rdma_link *k, struct err *e)
{
	size_t bytes = align_up((RQ_WRS + XPORT_QUEUE) * FRAME_BYTES, PAGE_BYTES);

	k->wires = aligned_alloc(PAGE_BYTES, bytes);
	if (!k->wires)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	memset(k->wires, 0, bytes);
	k->mr = ibv_reg_mr(k->cq->dev->pd, k->wires, bytes, IBV_ACCESS_LOCAL_WRITE);
	return k->mr ? 0 : err_set(e, TALLY_EQUOTA, "headers not registered: %m (RLIMIT_MEMLOCK?)");
}

/*
 * Everything that the card knows of the link; harmless when done.  The queue pair first
 * stops, in both directions; then its windows close, since a window holds on to the queue
 * pair that it is bound to; then it goes.
 */
void rdma_link_cut(struct rdma_link *k)
{
	struct ibv_qp_attr stop = { .qp_state = IBV_QPS_ERR };

	if (k->qp)
		ibv_modify_qp(k->qp, &stop, IBV_QP_STATE);
	while (!list_empty(&k->shown))
		rdma_shown_free(list_first(&k->shown, struct shown, link));
	if (k->qp)
		ibv_destroy_qp(k->qp);
	k->qp = NULL;
	if (k->mr)
		ibv_dereg_mr(k->mr);
	k->mr = NULL;
	if (k->cq)
		k->cq->used -= (int)LINK_CQES;
	k->cq = NULL;
}

void rdma_link_free(struct rdma_link *k)
{
	if (!k)
		return;
	rdma_link_cut(k);
	while (!list_empty(&k->hidden)) {
		struct hidden *h = list_first(&k->hidden, struct hidden, link);

		list_del(&h->link);
		free(h);
	}
	free(k->wires);
	free(k->seen);
	free(k);
}

static int pick_row(struct xport_ep *ep, struct rdma_gid *row, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (getsockname(ep->fd, (struct sockaddr *)&sa, &len) < 0)
		return err_set(e, TALLY_EIO, "the link's own address: %m");
	if (rdma_find(&sa, row, ep->path, sizeof(ep->path)))
		return err_set(e, TALLY_ENOENT, "%s", ep->path);
	return 0;
}

/* This side's queue pair, ready to be joined. */
static int link_make(struct xport_ep *ep, struct err *e)
{
	struct rdma_group *rg = ep->g->rdma;
	struct rdma_gid row = { .dev = 0 };
	struct rdma_link *k;
	uint32_t n;
	int rc = rg ? pick_row(ep, &row, e) : err_set(e, TALLY_ENOENT, "no RDMA device here");

	if (rc)
		return rc;
	k = calloc(1, sizeof(*k));
	if (!k)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	list_init(&k->shown);
	list_init(&k->hidden);
	k->serial = ++rg->serial;
	k->port = row.port;
	k->trouble = rdma_devs(&n)[row.dev].trouble[row.port];
	k->gid_index = row.index;
	k->lid = row.lid;
	k->mtu = row.mtu;
	memcpy(k->gid.raw, row.gid, 16);
	ep->rdma = k;
	rc = getrandom(&k->psn, sizeof(k->psn), 0) < 0 ? TALLY_EIO : 0;
	k->psn &= 0xffffff;	/* nobody guesses what the next packet's number is */
	rc = rc ? rc : rdma_cq_get(rg, row.dev, &k->cq, e);
	rc = rc ? rc : wires_make(k, e);
	rc = rc ? rc : qp_make(ep, k, e);
	for (uint32_t i = 0; !rc && i < RQ_WRS; i++)
		if (rdma_post_recv(ep, i))
			rc = err_set(e, TALLY_EIO, "receives not posted: %m");
	if (rc) {
		rdma_link_free(k);
		ep->rdma = NULL;
	}
	return rc;
}

static int to_rtr(struct rdma_link *k, const struct frame *f)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = k->mtu,
		.dest_qp_num = f->tensor,
		.rq_psn = f->chunk & 0xffffff,
		.max_dest_rd_atomic = 0,	/* nobody reads here */
		.min_rnr_timer = RDMA_RNR_TIMER,
		.ah_attr = {
			.dlid = f->worker,
			.is_global = 1,
			.grh.sgid_index = (uint8_t)k->gid_index,
			.grh.hop_limit = 64,
			.port_num = k->port,
		},
	};

	put_le64(a.ah_attr.grh.dgid.raw, f->slot);
	put_le64(a.ah_attr.grh.dgid.raw + 8, f->rslot);
	return ibv_modify_qp(k->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct rdma_link *k)
{
	bool soft = k->cq->dev->soft;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = soft ? RDMA_SOFT_TIMEOUT : RDMA_TIMEOUT,
		.retry_cnt = soft ? RDMA_SOFT_RETRIES : RDMA_RETRIES,
		.rnr_retry = RDMA_RNR_RETRIES,
		.sq_psn = k->psn,
		.max_rd_atomic = 0,
	};

	return ibv_modify_qp(k->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* f: the peer's queue pair. */
static int link_join(struct xport_ep *ep, const struct frame *f, struct err *e)
{
	struct rdma_link *k = ep->rdma;
	size_t at = strlen(ep->path);

	if (!rdma_mtu_bytes(f->attempt) || f->epoch < 2 || f->epoch > 1u << 16)
		return err_set(e, TALLY_EPROTO, "the peer's queue pair cannot be");
	k->mtu = MIN(k->mtu, f->attempt);
	k->peer_room = f->epoch;
	errno = to_rtr(k, f);
	if (!errno)
		errno = to_rts(k);
	if (errno)
		return err_set(e, TALLY_EIO, "joining the queue pairs: %m");
	k->joined = true;
	snprintf(ep->path + at, sizeof(ep->path) - at, "; both ends take %u",
		 rdma_mtu_bytes(k->mtu));
	return 0;
}

/* ---- the handshake ---- */

static void say_qp(struct xport_ep *ep, uint32_t step, int code)
{
	const struct rdma_link *k = ep->rdma;
	struct frame f = { .type = FRAME_QP, .job = step, .aux = (uint32_t)-code };

	if (k) {
		f.tensor = k->qp->qp_num;
		f.chunk = k->psn;
		f.worker = k->lid;
		f.attempt = k->mtu;
		f.epoch = RQ_FRAMES;
		f.slot = get_le64(k->gid.raw);
		f.rslot = get_le64(k->gid.raw + 8);
	}
	(void)tx_own(ep, &f);	/* the queue is empty before up() */
}

/* The link goes on without a queue pair. */
static void fall_back(struct xport_ep *ep, const char *why)
{
	rdma_link_free(ep->rdma);
	ep->rdma = NULL;
	ep->ops = &xport_tcp_ops;
	snprintf(ep->path, sizeof(ep->path), "%.*s", (int)sizeof(ep->path) - 1, why);
}

/* Server: the offer goes behind the welcome.  Agent: waits for it. */
void rdma_shake(struct xport_ep *ep)
{
	struct err e = { 0 };

	if (!rdma_is_server(ep))
		return;
	if (!link_make(ep, &e)) {
		say_qp(ep, QP_OFFER, 0);
		return;
	}
	say_qp(ep, QP_OFFER, e.code);
	fall_back(ep, e.text);
	ep->state = EP_ADOPTED;
}

static void refused(struct xport_ep *ep, const struct frame *f)
{
	char why[120];

	snprintf(why, sizeof(why), "the %s has no queue pair for this link, %s",
		 rdma_is_server(ep) ? "agent" : "server", err_name(-(int)f->aux));
	fall_back(ep, why);
	ep_up(ep, &ep->hello);
}

static void take_offer(struct xport_ep *ep, const struct frame *f)
{
	struct err e = { 0 };
	int rc = link_make(ep, &e);

	rc = rc ? rc : link_join(ep, f, &e);
	if (!rc) {
		say_qp(ep, QP_ANSWER, 0);
		return;
	}
	fall_back(ep, e.text);
	say_qp(ep, QP_ANSWER, e.code);
	ep_up(ep, &ep->hello);
}

static void take_answer(struct xport_ep *ep, const struct frame *f)
{
	struct err e = { 0 };

	if (link_join(ep, f, &e))
		fall_back(ep, e.text);
	say_qp(ep, QP_READY, e.code);
	ep_up(ep, &ep->hello);
}

void rdma_take_qp(struct xport_ep *ep, const struct frame *f)
{
	uint32_t want = rdma_is_server(ep) ? QP_ANSWER : ep->rdma ? QP_READY : QP_OFFER;

	if (ep->state == EP_UP && want == QP_READY && f->job == QP_READY)
		return;		/* a first header was faster */
	if (ep->state != EP_QUEUE_PAIR || f->job != want)
		ep_kill(ep, CLOSE_BAD_FRAME, "a QP out of place");
	else if (f->aux)
		refused(ep, f);
	else if (want == QP_OFFER)
		take_offer(ep, f);
	else if (want == QP_ANSWER)
		take_answer(ep, f);
	else
		ep_up(ep, &ep->hello);
}
