/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_card.h - an RDMA device for one fuzz target, which has one queue pair at a time.
 *
 * Its functions stand where those of libibverbs are linked otherwise.  It has one port, whose
 * one address is 127.0.0.1.  What is sent goes nowhere and is complete at once; what arrives,
 * and how, is said by card_receive() and by `status`.  A queue pair of an odd number cannot be
 * joined.  Writes have to stay in what the peer has shown: card_shown().
 */
#ifndef TALLY_TESTS_FUZZ_FAKE_CARD_H
#define TALLY_TESTS_FUZZ_FAKE_CARD_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/net/xport_rdma_link.h"

#define CARD_SHOWN_MAX	64u

struct card_slab {
	uint64_t addr, bytes;
	uint32_t rkey;
};

static struct card {
	struct ibv_device device;
	struct ibv_context ctx;
	struct ibv_pd pd;
	struct ibv_qp *qp;		/* the one there is; NULL: none */
	enum ibv_wc_status status;	/* of what is complete next; once */
	struct ibv_wc wc[LINK_CQES];
	struct { uint64_t id; uint8_t *at; } recv[RQ_WRS];
	uint32_t wcs, recvs, headers;	/* headers: sent ever, by this queue pair */
	uint32_t keys, nshown;
	struct card_slab shown[CARD_SHOWN_MAX];
} card;

/* The peer lets that be written. */
static inline void card_shown(uint64_t addr, uint64_t bytes, uint32_t rkey)
{
	card.shown[card.nshown++ % CARD_SHOWN_MAX] = (struct card_slab){ addr, bytes, rkey };
}

static inline void card_complete(const struct ibv_wc *wc)
{
	ASSERT(card.wcs < ARRAY_SIZE(card.wc));		/* the queue has room for all */
	card.wc[card.wcs] = *wc;
	card.wc[card.wcs++].status = card.status;
	card.status = IBV_WC_SUCCESS;
}

/* So many bytes of a peer's message; nothing where no receive waits for it. */
static inline void card_receive(const uint8_t wire[FRAME_BYTES], uint32_t len, uint32_t imm)
{
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV, .byte_len = len, .wc_flags = IBV_WC_WITH_IMM,
		.imm_data = imm,
	};

	if (!card.qp || !card.recvs)
		return;
	ASSERT(len <= FRAME_BYTES);
	wc.wr_id = card.recv[0].id;
	memcpy(card.recv[0].at, wire, len);
	memmove(card.recv, card.recv + 1, --card.recvs * sizeof(card.recv[0]));
	card_complete(&wc);
}

static inline void card_check_write(const struct ibv_send_wr *wr)
{
	uint64_t at = wr->wr.rdma.remote_addr;
	bool ok = card.nshown > CARD_SHOWN_MAX;		/* not all of it is known any more */

	for (uint32_t i = 0; i < MIN(card.nshown, CARD_SHOWN_MAX) && !ok; i++)
		ok = card.shown[i].rkey == wr->wr.rdma.rkey && at >= card.shown[i].addr &&
		     range_ok(at - card.shown[i].addr, wr->sg_list->length, card.shown[i].bytes);
	ASSERT(ok);
}

static int card_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	static volatile uint8_t read;

	(void)bad;
	for (; wr; wr = wr->next) {
		const struct ibv_sge *sge = wr->num_sge ? wr->sg_list : NULL;

		ASSERT(qp == card.qp && wr->num_sge <= 1);
		for (uint32_t i = 0; sge && i < sge->length; i++)
			read = ((const uint8_t *)(uintptr_t)sge->addr)[i];
		if (wr->opcode == IBV_WR_RDMA_WRITE)
			card_check_write(wr);
		card.headers += wr->opcode == IBV_WR_SEND_WITH_IMM && sge;
		if (wr->send_flags & IBV_SEND_SIGNALED)
			card_complete(&(struct ibv_wc){ .wr_id = wr->wr_id });
	}
	(void)read;
	return 0;
}

static int card_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)bad;
	ASSERT(qp == card.qp && !wr->next && wr->num_sge == 1);
	ASSERT(wr->sg_list->length == FRAME_BYTES && card.recvs < RQ_WRS);
	card.recv[card.recvs].id = wr->wr_id;
	card.recv[card.recvs++].at = (uint8_t *)(uintptr_t)wr->sg_list->addr;
	return 0;
}

static int card_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	uint32_t n = MIN(card.wcs, (uint32_t)max);

	(void)cq;
	memcpy(wc, card.wc, n * sizeof(*wc));
	card.wcs -= n;
	memmove(card.wc, card.wc + n, card.wcs * sizeof(*wc));
	return (int)n;
}

static int card_req_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

static struct ibv_mw *card_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = calloc(1, sizeof(*mw));

	*mw = (struct ibv_mw){ .context = pd->context, .pd = pd, .type = type };
	mw->rkey = ++card.keys << 8;
	return mw;
}

static int card_dealloc_mw(struct ibv_mw *mw)
{
	free(mw);
	return 0;
}

/* ---- in libibverbs' place ---- */

struct ibv_device **ibv_get_device_list(int *n)
{
	static struct ibv_device *list[2];

	strcpy(card.device.name, "fake0");
	list[0] = &card.device;
	*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	card.ctx = (struct ibv_context){
		.device = device,
		.async_fd = eventfd(0, EFD_CLOEXEC),
		.ops = {
			.alloc_mw = card_alloc_mw,
			.dealloc_mw = card_dealloc_mw,
			.poll_cq = card_poll_cq,
			.req_notify_cq = card_req_notify,
			.post_send = card_post_send,
			.post_recv = card_post_recv,
		},
	};
	return &card.ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	return close(ctx->async_fd);
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	(void)ctx;
	*attr = (struct ibv_device_attr){
		.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_mw = 1, .max_qp = 1, .max_mr = 1,
		.max_cqe = CQ_LINKS_MIN * LINK_CQES,
	};
	return 0;
}

int (ibv_query_port)(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)ctx;
	(void)port;
	((struct ibv_port_attr *)(void *)attr)->state = IBV_PORT_ACTIVE;
	((struct ibv_port_attr *)(void *)attr)->active_mtu = IBV_MTU_1024;
	return 0;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	static const uint8_t raw[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };

	(void)ctx;
	(void)port;
	(void)index;
	memcpy(gid->raw, raw, sizeof(raw));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *row, size_t max,
			     uint32_t flags, size_t bytes)
{
	ASSERT(max > 0 && !flags && bytes == sizeof(*row));
	*row = (struct ibv_gid_entry){ .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2 };
	return ibv_query_gid(ctx, 1, 0, &row->gid) ? -1 : 1;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	(void)ctx;
	(void)ev;
	errno = EAGAIN;
	return -1;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	card.pd.context = ctx;
	return &card.pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *at, size_t len, int access)
{
	return ibv_reg_mr_iova2(pd, at, len, (uintptr_t)at, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t len, uint64_t iova,
				unsigned int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)iova;
	(void)access;
	*mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = at, .length = len };
	mr->lkey = mr->rkey = ++card.keys << 8;
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *c = calloc(1, sizeof(*c));

	*c = (struct ibv_comp_channel){ .context = ctx, .fd = eventfd(0, EFD_CLOEXEC) };
	return c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	close(c->fd);
	free(c);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)cqe;
	(void)vector;
	cq->context = ctx;
	cq->channel = channel;
	cq->cq_context = cq_context;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *qp = calloc(1, sizeof(*qp));

	ASSERT(!card.qp);
	qp->context = pd->context;
	qp->recv_cq = init->recv_cq;
	qp->send_cq = init->send_cq;
	qp->qp_num = 2;
	card.qp = qp;
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	ASSERT(qp == card.qp);
	return mask & IBV_QP_DEST_QPN && attr->dest_qp_num & 1 ? EINVAL : 0;
}

/* With all that it had to do. */
int ibv_destroy_qp(struct ibv_qp *qp)
{
	ASSERT(qp == card.qp);
	card.qp = NULL;
	card.wcs = card.recvs = card.headers = card.nshown = 0;
	card.status = IBV_WC_SUCCESS;
	free(qp);
	return 0;
}

#endif
