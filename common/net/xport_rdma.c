// SPDX-License-Identifier: Apache-2.0
/*
 * xport_rdma.c - a queue pair beside a TCP link.
 *
 * Joining: behind WELCOME the server offers a queue pair (QP), the agent makes its own,
 * joins it to the offered one and answers, the server joins and says ready, or why not.
 * Queue pairs are exchanged over the link itself and not by rdma_cm: the connection is
 * there, has shown its key, stays as the link's pulse, and where a side cannot go on it is
 * the TCP link to fall back to.
 *
 * Sending: a frame with a payload is two work requests, posted with all others of the
 * turn by one doorbell: the card writes the payload where the peer has shown room,
 * then sends the header, and with it (immediate data) how many headers this side has
 * consumed so far.  The peer has buffers for RQ_FRAMES headers; more are not sent, so a
 * card never waits for a buffer.  The last frame of a doorbell alone asks for a
 * completion; queue pairs are ordered, so it speaks for all before it.
 *
 * Receiving: a header lies in memory that only this card's receives can write; its
 * payload came before it.  Completion queues are polled in every turn while completions
 * come; when none did for SPIN_US the queue's channel is armed, the queue is polled once more (a
 * completion may have come in between), and the engine sleeps on the channel.
 *
 * Showing: a memory window is bound to this queue pair, then the peer is told by a SLAB
 * frame.  Taking back is asked for and answered, so that the window is closed only when
 * nothing is on its way into it; a link that ends closes its windows by itself.
 *
 * Failing: whatever completes with an error, whatever the device has to say, ends the
 * link.  The queue pair goes first, before anybody learns of it: nothing can be sent
 * from or land in this side's memory after that.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "common/net/xport_rdma_link.h"

/* ---- sending ---- */

static bool rdma_take(struct xport_ep *ep, const struct frame *f, const void *data, uint64_t cookie,
		      int *rc)
{
	struct rdma_link *k = ep->rdma;
	struct item it = { .data = data, .cookie = cookie, .len = data ? f->length : 0 };
	uint32_t at = (k->head + k->count) % XPORT_QUEUE;

	if (data && (!rdma_find_room(k, f, &it) ||
		     (it.len > k->inline_bytes &&
		      !rdma_find_lkey(ep->g->rdma, k->cq, data, it.len, &it.lkey)))) {
		k->detours++;
		return false;
	}
	*rc = TALLY_EAGAIN;
	if (k->count == XPORT_QUEUE)
		return true;
	k->q[at] = it;
	frame_encode(f, tx_wire(k, at));
	k->count++;
	k->taken++;
	k->bytes += FRAME_BYTES + it.len;
	ep_dirty(ep);
	*rc = 0;
	return true;
}

uint32_t rdma_queued(const struct xport_ep *ep, uint64_t *bytes)
{
	*bytes = ep->rdma ? ep->rdma->bytes : 0;
	return ep->rdma ? ep->rdma->count : 0;
}

void rdma_give_back(struct xport_ep *ep)
{
	const struct rdma_link *k = ep->rdma;

	for (uint32_t i = 0; k && i < k->count; i++) {
		const struct item *it = &k->q[(k->head + i) % XPORT_QUEUE];

		if (it->data)
			ep->g->cb->unsent(ep->g->ctx, ep, it->cookie, it->len);
	}
}

uint64_t rdma_detours(const struct xport_ep *ep)
{
	return ep->rdma ? ep->rdma->detours : 0;
}

struct batch {
	struct ibv_send_wr wr[2 * BATCH_FRAMES];
	struct ibv_sge sge[2 * BATCH_FRAMES];
	uint32_t n;
};

static struct ibv_send_wr *batch_add(struct batch *b, const void *p, uint32_t len, uint32_t lkey,
				     uint32_t inline_bytes)
{
	struct ibv_send_wr *wr = &b->wr[b->n];
	struct ibv_sge *sge = &b->sge[b->n];

	*sge = (struct ibv_sge){ .addr = (uintptr_t)p, .length = len, .lkey = lkey };
	*wr = (struct ibv_send_wr){
		.sg_list = sge,
		.num_sge = 1,
		.send_flags = len <= inline_bytes ? IBV_SEND_INLINE : 0,
	};
	if (b->n)
		b->wr[b->n - 1].next = wr;
	b->n++;
	return wr;
}

static void batch_frame(struct batch *b, struct xport_ep *ep, uint32_t at)
{
	struct rdma_link *k = ep->rdma;
	const struct item *it = &k->q[at];
	struct ibv_send_wr *wr;

	if (it->len) {
		wr = batch_add(b, it->data, it->len, it->lkey, k->inline_bytes);
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->wr.rdma.remote_addr = it->raddr;
		wr->wr.rdma.rkey = it->rkey;
		wr->wr_id = wr_id(ep, WR_FRAME, at);	/* errors complete in any case */
	}
	wr = batch_add(b, tx_wire(k, at), FRAME_BYTES, k->mr->lkey, k->inline_bytes);
	wr->opcode = IBV_WR_SEND_WITH_IMM;
	wr->imm_data = htonl(k->took);
	wr->wr_id = wr_id(ep, WR_FRAME, at);
}

/*
 * Posts one batch of frames with one doorbell; false: nothing to post, or no room, or the link
 * has ended.
 */
static bool post_batch(struct xport_ep *ep)
{
	struct rdma_link *k = ep->rdma;
	struct ibv_send_wr *bad;
	struct batch b = { .n = 0 };
	uint32_t n = MIN(k->count - k->posted, BATCH_FRAMES);

	n = MIN(n, SQ_FRAMES - k->posted);
	n = MIN(n, k->peer_room - (k->sent - k->peer_took));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (k->head + k->posted + i) % XPORT_QUEUE;

		if (k->posted_bytes >= POST_BYTES)
			n = i;
		else
			batch_frame(&b, ep, at);
		k->posted_bytes += i < n ? k->q[at].len : 0;
	}
	if (!n)
		return false;
	b.wr[b.n - 1].send_flags |= IBV_SEND_SIGNALED;
	errno = ibv_post_send(k->qp, b.wr, &bad);
	if (errno) {
		ep_kill(ep, CLOSE_QUEUE_PAIR, "sending: %m");
		return false;
	}
	k->posted += n;
	k->sent += n;
	k->told = k->took;
	return true;
}

/* Nothing goes the peer's way, and it may be waiting for buffers. */
static void post_credit(struct xport_ep *ep)
{
	struct rdma_link *k = ep->rdma;
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id(ep, WR_CREDIT, 0),
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(k->took),
	};

	if (k->took - k->told < RQ_FRAMES / 2 || k->own_wrs == OWN_WRS)
		return;
	errno = ibv_post_send(k->qp, &wr, &bad);
	if (errno) {
		ep_kill(ep, CLOSE_QUEUE_PAIR, "sending: %m");
		return;
	}
	k->own_wrs++;
	k->told = k->took;
}

/* ---- completions ---- */

/* The frame at `index` and all before it have arrived. */
static void retire(struct xport_ep *ep, uint32_t index)
{
	struct rdma_link *k = ep->rdma;
	bool last = false;

	while (!last && k->posted && ep_live(ep)) {
		struct item it = k->q[k->head];

		last = k->head == index;
		k->head = (k->head + 1) % XPORT_QUEUE;
		k->count--;
		k->posted--;
		k->done++;
		k->bytes -= FRAME_BYTES + it.len;
		k->posted_bytes -= it.len;
		*(it.len > k->inline_bytes ? &ep->moved.direct : &ep->moved.copied) += it.len;
		if (it.data)
			ep->g->cb->sent(ep->g->ctx, ep, it.cookie, it.len);
	}
	if (ep_live(ep))
		ep_dirty(ep);
}

/* The address that (job, slot) means here, as this side has shown it; NULL: nothing. */
static const uint8_t *landed_at(const struct rdma_link *k, const struct frame *f)
{
	const struct shown *s = rdma_shown_find(k, f->job, SLOT_SLAB_ID(f->slot));

	if (!s || !range_ok(SLOT_SLAB_OFF(f->slot), f->length, s->bytes))
		return NULL;
	return s->base + SLOT_SLAB_OFF(f->slot);
}

static void take_payload(struct xport_ep *ep, const struct frame *f)
{
	const struct xport_cb *cb = ep->g->cb;
	const uint8_t *at = cb->place ? cb->place(ep->g->ctx, ep, f) : NULL;

	if (!at)
		return;
	if (ep_live(ep) && at != landed_at(ep->rdma, f))
		ep_kill(ep, CLOSE_BAD_FRAME, "a payload was written elsewhere");
	if (!ep_live(ep)) {
		ep_unplace(ep, f);
		return;
	}
	ep->moved.direct += f->length;
	ep_deliver(ep, f, at);
}

static void take_header(struct xport_ep *ep, const uint8_t *wire)
{
	struct frame f;
	int rc = frame_decode(wire, &f);

	if (ep->state == EP_QUEUE_PAIR && !rdma_is_server(ep))
		ep_up(ep, &ep->hello);	/* the peer has joined, and its READY is behind */
	if (ep->state != EP_UP)
		return;
	if (rc == TALLY_EVERSION)
		ep_kill(ep, CLOSE_VERSION, "a frame of another version than %u", FRAME_VERSION);
	else if (rc || !ep_owners_type(f.type) || f.flags & FRAME_BYREF)
		ep_kill_frame(ep, wire, "a header that cannot be");
	else if (frame_has_payload(&f))
		take_payload(ep, &f);
	else
		ep_deliver(ep, &f, NULL);
}

static void received(struct xport_ep *ep, const struct ibv_wc *wc)
{
	struct rdma_link *k = ep->rdma;
	uint32_t index = wc->wr_id & 0x3fff, took = ntohl(wc->imm_data);
	uint8_t wire[FRAME_BYTES];

	if (!(wc->wc_flags & IBV_WC_WITH_IMM) || (wc->byte_len && wc->byte_len != FRAME_BYTES)) {
		ep_kill(ep, CLOSE_BAD_FRAME, "a message of %u bytes that is no header",
			wc->byte_len);
		return;
	}
	memcpy(wire, wire_of(k, index), FRAME_BYTES);
	/* More than were sent: soft RoCE repeats one now and then.  It counts for all. */
	k->peer_took += MIN(took - k->peer_took, k->sent - k->peer_took);
	k->took += wc->byte_len > 0;
	ep_heard(ep);
	ep_dirty(ep);
	errno = rdma_post_recv(ep, index);
	if (errno)
		ep_kill(ep, CLOSE_QUEUE_PAIR, "receiving: %m");
	else if (wc->byte_len)
		take_header(ep, wire);
}

static enum close_reason reason_of(enum ibv_wc_status s)
{
	switch (s) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return CLOSE_RETRIES;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return CLOSE_NOT_READY;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_MW_BIND_ERR:
	case IBV_WC_LOC_PROT_ERR:
		return CLOSE_ACCESS;
	default:
		return CLOSE_QUEUE_PAIR;
	}
}

/* The card could not do a request: the cause may be the card itself. */
static void not_completed(struct xport_ep *ep, const struct ibv_wc *wc)
{
	const char *trouble = rdma_trouble(ep);

	if (trouble)
		ep_kill(ep, CLOSE_DEVICE, "%s", trouble);
	else
		ep_kill(ep, reason_of(wc->status), "%s (vendor's code %#x)",
			ibv_wc_status_str(wc->status), wc->vendor_err);
}

static void completed(struct xport_ep *ep, const struct ibv_wc *wc)
{
	uint32_t index = wc->wr_id & 0x3fff;

	if (wc->status != IBV_WC_SUCCESS) {
		not_completed(ep, wc);
		return;
	}
	switch ((enum wr_kind)(wc->wr_id >> 14 & 3)) {
	case WR_FRAME:
		retire(ep, index);
		break;
	case WR_RECV:
		received(ep, wc);
		break;
	case WR_BIND:
		rdma_bound(ep, index);
		break;
	case WR_CREDIT:
		ep->rdma->own_wrs--;
		break;
	}
}

static struct xport_ep *wr_ep(const struct xport_group *g, uint64_t id)
{
	struct xport_ep *ep = g->slots[id >> 16 & 0xffff].ep;

	return ep && ep_live(ep) && ep->rdma && ep->rdma->serial == id >> 32 ? ep : NULL;
}

/* At most a turn's share; true: there is more. */
static bool cq_drain(struct rdma_group *rg, struct rdma_cq *c, mono_t now)
{
	struct ibv_wc wc[CQ_BATCH];
	uint32_t done = 0;
	int n;

	do {
		n = ibv_poll_cq(c->cq, CQ_BATCH, wc);
		for (int i = 0; i < n; i++) {
			struct xport_ep *ep = wr_ep(rg->g, wc[i].wr_id);

			if (ep)
				completed(ep, &wc[i]);
		}
		done += n > 0 ? (uint32_t)n : 0;
	} while (n == CQ_BATCH && done < TURN_CQES);
	if (done)
		c->busy_at = now;
	return n == CQ_BATCH;
}

static mono_t cq_poll(struct rdma_group *rg, struct rdma_cq *c, mono_t now)
{
	rdma_cq_check(rg, c);
	if (!c->dev)
		return MONO_NEVER;
	if (cq_drain(rg, c, now))
		return now;
	if (c->armed || !c->used)
		return MONO_NEVER;
	if (now - c->busy_at < rg->spin)
		return now;
	if (ibv_req_notify_cq(c->cq, 0))
		return now + mono_ms(1);
	c->armed = true;
	return cq_drain(rg, c, now) || c->busy_at == now ? now : MONO_NEVER;
}

mono_t rdma_group_poll(struct rdma_group *rg, mono_t now)
{
	mono_t next = MONO_NEVER;

	rg->polled_at = now;
	for (uint32_t i = 0; i < RDMA_DEVS_MAX; i++) {
		mono_t at = rg->cq[i].dev ? cq_poll(rg, &rg->cq[i], now) : MONO_NEVER;

		next = MIN(next, at);
	}
	return next;
}

static void rdma_flush(struct xport_ep *ep)
{
	struct rdma_link *k = ep->rdma;

	if (ep->state == EP_UP && k->eof) {
		while (ep_live(ep) && cq_drain(ep->g->rdma, k->cq, ep->g->rdma->polled_at))
			;
		if (ep_live(ep))
			ep_kill(ep, CLOSE_EOF, "closed by the peer");
		return;
	}
	if (ep->state == EP_UP) {
		rdma_confirm_hidden(ep);
		list_for_each_safe(&k->shown, l, next)
			if (!rdma_shown_step(ep, list_entry(l, struct shown, link)))
				return;
		while (post_batch(ep))
			;
		if (ep_live(ep))
			post_credit(ep);
	}
	if (ep_live(ep))
		stream_flush(ep);
}

/* ---- the stream beside it, ends ---- */

static void rdma_frame(struct xport_ep *ep, const struct frame *f)
{
	if (f->type == FRAME_QP)
		rdma_take_qp(ep, f);
	else if (!ep->rdma || !ep->rdma->joined || !rdma_take_slab(ep->rdma, f))
		ep_kill(ep, CLOSE_BAD_FRAME, "a slab that cannot be");
	else
		ep_dirty(ep);
}

static bool rdma_eof(struct xport_ep *ep)
{
	if (ep->state != EP_UP)
		return false;
	ep->rdma->eof = true;	/* what came before the end counts: see flush */
	ep_dirty(ep);
	return true;
}

static bool rdma_cut(struct xport_ep *ep)
{
	bool joined = ep->rdma && ep->rdma->joined;

	if (ep->rdma)
		rdma_link_cut(ep->rdma);
	return joined;
}

static int rdma_open(const struct xport_addr *a, int *fd, int *sys_err, struct err *e)
{
	return xport_tcp_ops.open(a, fd, sys_err, e);
}

static void rdma_tune(int fd)
{
	xport_tcp_ops.tune(fd);
}

static ssize_t rdma_send(int fd, struct iovec *iov, int n, int pass_fd)
{
	return xport_tcp_ops.send(fd, iov, n, pass_fd);
}

static ssize_t rdma_recv(int fd, struct iovec *iov, int n, int *got_fd)
{
	return xport_tcp_ops.recv(fd, iov, n, got_fd);
}

const struct xport_ops xport_rdma_ops = {
	.name = "rdma",
	.by_reference = false,
	.open = rdma_open,
	.tune = rdma_tune,
	.event = stream_event,
	.flush = rdma_flush,
	.send = rdma_send,
	.recv = rdma_recv,
	.shake = rdma_shake,
	.frame = rdma_frame,
	.take = rdma_take,
	.eof = rdma_eof,
	.cut = rdma_cut,
};
