// SPDX-License-Identifier: Apache-2.0
/*
 * xport_stream.c - frames over any stream socket.
 *
 * Writing: everything queued since the last turn goes out with one sendmsg() of
 * up to TX_IOV pieces (of fewer where the owner wants fewer frames in it), headers
 * from the queue, payloads from where they lie.  A short write means that the socket
 * is full: EPOLLOUT is asked for, and stays asked for while the stream is the
 * bottleneck, so that a busy link costs no epoll_ctl().
 *
 * Reading: behind a frame with a small payload or none the next one is likely such
 * a frame, too, so a whole batch is asked for, into memory that all endpoints of the
 * group share.  A payload that is whole there goes to the owner as it is, or is copied to
 * its place where the owner takes none so; one that is cut is copied.  Behind a large
 * payload the next frame likely has one too, so the read asks for the rest of the
 * payload, into its place, and exactly one header.  A payload that nobody wants goes
 * to the group's sink, named many times by the same readv().
 *
 * Either way an endpoint stops after XPORT_TURN_BYTES; the rest is reported again
 * by (level-triggered) epoll, or waits on the group's dirty list.
 *
 * Any callback may close the endpoint: after each, and before touching the
 * stream again, the code looks whether it is still alive.  Its memory is: it
 * goes after closed() only.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/base/utf8.h"
#include "common/net/xport_ep.h"

#define TX_IOV	64
#define RX_IOV	17	/* a payload in sink-sized pieces, one header */

static_assert((RX_IOV - 1) * SINK_BYTES >= XPORT_TURN_BYTES, "a turn fits the sink");

/* ---- writing ---- */

/* Control frames may go first only where no frame is half out. */
static bool tx_control_first(const struct tx *t)
{
	return t->ctl_len > 0 && t->head_off == 0;
}

static bool tx_pending(const struct tx *t)
{
	return t->ctl_len > 0 || t->count > 0;
}

static size_t iov_put(struct iovec *iov, int *n, const void *p, size_t len)
{
	iov[*n].iov_base = (void *)(uintptr_t)p;
	iov[*n].iov_len = len;
	(*n)++;
	return len;
}

static size_t tx_put_item(const struct tx_item *it, uint32_t off, struct iovec *iov, int *n)
{
	uint32_t data_off = off > FRAME_BYTES ? off - FRAME_BYTES : 0;
	size_t bytes = 0;

	if (off < FRAME_BYTES)
		bytes += iov_put(iov, n, it->wire + off, FRAME_BYTES - off);
	if (it->len > data_off)
		bytes += iov_put(iov, n, it->data + data_off, it->len - data_off);
	return bytes;
}

/* Returns the bytes gathered, of so many frames at most, the pulse aside.  A descriptor is
 * tied to the first byte of its send. */
static size_t tx_gather(struct tx *t, uint32_t frames, struct iovec *iov, int *n, int *pass_fd)
{
	size_t bytes = 0;

	*n = 0;
	*pass_fd = -1;
	if (tx_control_first(t))
		bytes += iov_put(iov, n, t->ctl + t->ctl_off, t->ctl_len - t->ctl_off);
	for (uint32_t i = 0; i < MIN(t->count, frames); i++) {
		struct tx_item *it = &t->q[(t->head + i) % XPORT_QUEUE];

		if (*n + 2 > TX_IOV || bytes >= XPORT_TURN_BYTES || (it->fd >= 0 && *n > 0))
			break;
		if (it->fd >= 0)
			*pass_fd = it->fd;
		bytes += tx_put_item(it, i == 0 ? t->head_off : 0, iov, n);
	}
	return bytes;
}

static size_t tx_retire_control(struct tx *t, size_t done)
{
	size_t n = MIN(done, (size_t)(t->ctl_len - t->ctl_off));

	t->ctl_off += (uint32_t)n;
	if (t->ctl_off == t->ctl_len)
		t->ctl_off = t->ctl_len = 0;
	return done - n;
}

/* `done` bytes of what tx_gather() named are out. */
static void tx_retire(struct xport_ep *ep, size_t done)
{
	struct tx *t = &ep->tx;

	if (tx_control_first(t))
		done = tx_retire_control(t, done);
	while (done > 0 && ep_live(ep)) {
		struct tx_item *it = &t->q[t->head];
		size_t n = MIN(done, (size_t)FRAME_BYTES + it->len - t->head_off);

		if (it->fd >= 0) {
			close(it->fd);
			it->fd = -1;
		}
		done -= n;
		t->bytes -= n;
		t->head_off += (uint32_t)n;
		if (t->head_off < FRAME_BYTES + it->len)
			return;
		t->head = (t->head + 1) % XPORT_QUEUE;
		t->count--;
		t->head_off = 0;
		ep->g->written.frames++;
		ep->moved.copied += it->len;
		if (it->data)
			ep->g->cb->sent(ep->g->ctx, ep, it->cookie, it->len);
	}
}

/* Writes with one sendmsg(); returns the bytes written, 0 when no more can be done now. */
static size_t tx_write(struct xport_ep *ep)
{
	struct iovec iov[TX_IOV];
	int n, pass_fd;
	size_t want = tx_gather(&ep->tx, ep->g->frames_per_write, iov, &n, &pass_fd);
	ssize_t w = ep->ops->send(ep->fd, iov, n, pass_fd);

	if (w < 0 && errno == EINTR)
		return 0;
	if (w < 0 && errno != EAGAIN) {
		ep_kill_errno(ep, "write", errno);
		return 0;
	}
	ep->tx.blocked = w < (ssize_t)want;
	if (w <= 0)
		return 0;
	ep->g->written.calls += ep->tx.count > 0;	/* the pulse alone is no work */
	ep_facts_wrote(ep, (size_t)w);
	tx_retire(ep, (size_t)w);
	return (size_t)w;
}

void stream_flush(struct xport_ep *ep)
{
	struct tx *t = &ep->tx;
	size_t done = 0;

	if (ep->state == EP_CONNECTING)
		return;
	while (done < XPORT_TURN_BYTES && ep_live(ep) && !t->blocked && tx_pending(t)) {
		size_t w = tx_write(ep);

		if (w == 0)
			break;
		done += w;
	}
	if (!ep_live(ep))
		return;
	if (!t->blocked && tx_pending(t))
		ep_dirty(ep);
	ep_arm(ep, t->blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* ---- frames that arrived ---- */

/* rdma: up() shows the welcome when the queue pairs are joined, too. */
static void welcomed(struct xport_ep *ep, const struct frame *f)
{
	ep->hello = *f;
	ep->state = EP_QUEUE_PAIR;
	ep->ops->shake(ep);
}

static void other_server(struct xport_ep *ep, const struct frame *f)
{
	char *name = ep->facts.other;

	put_le64((uint8_t *)name, f->slot);
	put_le64((uint8_t *)name + 8, f->rslot);
	name[HELLO_NAME_BYTES] = '\0';
	utf8_mend(name);
	ep_kill(ep, CLOSE_HANDSHAKE, "server %s answered, node %u, and another node is meant",
		name, f->epoch);
}

static void take_welcome(struct xport_ep *ep, const struct frame *f)
{
	const struct frame *h = &ep->hello;

	ep->facts.answered = true;
	if (f->type == FRAME_REFUSED && f->aux == -TALLY_ENOENT)
		other_server(ep, f);
	else if (f->type == FRAME_REFUSED)
		ep_kill(ep, CLOSE_HANDSHAKE, "the hello was refused, %s", err_name(-(int)f->aux));
	else if (f->type != FRAME_WELCOME)
		ep_kill(ep, CLOSE_HANDSHAKE, "the hello was answered with %s",
			frame_type_name(f->type));
	else if (f->aux != FRAME_VERSION)
		ep_kill(ep, CLOSE_VERSION, "the peer speaks version %u, this side %u", f->aux,
			FRAME_VERSION);
	else if (f->job != h->job || f->worker != h->worker || f->tensor != h->tensor ||
		 f->chunk != h->chunk || f->epoch != h->epoch)
		ep_kill(ep, CLOSE_HANDSHAKE, "the welcome does not echo the hello");
	else if (ep->ops->shake)
		welcomed(ep, f);
	else
		ep_up(ep, f);
}

static void take_slab(struct xport_ep *ep, const struct frame *f)
{
	bool none = f->type == FRAME_SLAB && !f->rslot;
	struct rx *r = &ep->rx;
	int fd = none ? -1 : r->fd;

	if (!ep->ops->by_reference) {
		ep_kill(ep, CLOSE_BAD_FRAME, "a %s does not go over %s", frame_type_name(f->type),
			ep->ops->name);
		return;
	}
	if ((fd < 0 && !none) || f->type != FRAME_SLAB) {
		ep_kill(ep, CLOSE_BAD_FRAME, "a %s came without %s", frame_type_name(f->type),
			f->type == FRAME_SLAB ? "its descriptor" : "being asked for");
		return;
	}
	if (f->slot >= SLABS_PER_LINK_MAX || f->rslot > SLAB_BYTES_MAX) {
		ep_kill(ep, CLOSE_BAD_FRAME, "slab %llu of %llu bytes is out of bounds",
			(unsigned long long)f->slot, (unsigned long long)f->rslot);
		return;
	}
	if (!none)
		r->fd = -1;
	if (ep->g->cb->slab)
		ep->g->cb->slab(ep->g->ctx, ep, f->job, (uint32_t)f->slot, fd, f->rslot);
	else if (!none)
		close(fd);
}

/* All of the frame's payload lies behind its header in the batch; the owner uses it there. */
static bool take_read(struct xport_ep *ep, const struct frame *f)
{
	struct rx *r = &ep->rx;

	if (!ep->g->cb->take || f->length > r->ahead)
		return false;
	r->taken = f->length;
	ep->moved.copied += f->length;
	ep->g->cb->take(ep->g->ctx, ep, f, r->next);
	return true;
}

static void take_data(struct xport_ep *ep, const struct frame *f)
{
	const struct xport_cb *cb = ep->g->cb;
	bool byref = f->flags & FRAME_BYREF;

	if ((byref && !ep->ops->by_reference) || (frame_has_payload(f) && ep->ops->by_reference)) {
		ep_kill(ep, CLOSE_BAD_FRAME, "a %s by %s does not go over %s",
			frame_type_name(f->type), byref ? "reference" : "value", ep->ops->name);
	} else if (frame_has_payload(f)) {
		if (take_read(ep, f))
			return;
		ep->rx.f = *f;
		ep->rx.left = f->length;
		ep->rx.dst = cb->place ? cb->place(ep->g->ctx, ep, f) : NULL;
	} else if (byref && !(f->flags & FRAME_NODATA) && f->length > 0) {
		const void *data = cb->resolve ? cb->resolve(ep->g->ctx, ep, f) : NULL;

		if (data && ep_live(ep))
			ep_deliver(ep, f, data);
	} else {
		ep_deliver(ep, f, NULL);
	}
}

static void take_frame(struct xport_ep *ep, const struct frame *f)
{
	if (ep->state == EP_HELLO) {
		take_welcome(ep, f);
		return;
	}
	switch (f->type) {
	case FRAME_PING:
		tx_control(ep, &(struct frame){ .type = FRAME_PONG });
		break;
	case FRAME_PONG:
		break;
	case FRAME_SLAB:
	case FRAME_QP:
		if (ep->ops->frame)
			ep->ops->frame(ep, f);
		else
			take_slab(ep, f);
		break;
	case FRAME_HELLO:
	case FRAME_WELCOME:
		ep_kill(ep, CLOSE_BAD_FRAME, "a second %s", frame_type_name(f->type));
		break;
	default:
		if (ep->state == EP_QUEUE_PAIR)
			ep_kill(ep, CLOSE_BAD_FRAME, "a %s before the queue pairs are joined",
				frame_type_name(f->type));
		else
			take_data(ep, f);
	}
}

static void take_header(struct xport_ep *ep, const uint8_t *wire)
{
	struct frame f;
	int rc = frame_decode(wire, &f);

	if (rc == 0)
		take_frame(ep, &f);
	else if (rc == TALLY_EVERSION)
		ep_kill(ep, CLOSE_VERSION, "a frame of another version than %u", FRAME_VERSION);
	else if (ep->state == EP_HELLO && *speech_of(SPEECH_DATA, wire, FRAME_BYTES,
						     ep->facts.speaks))
		ep_kill(ep, CLOSE_HANDSHAKE, "the hello was answered by %s", ep->facts.speaks);
	else
		ep_kill_frame(ep, wire, "64 bytes that are no frame");
}

/* ---- reading ---- */

/* n bytes of the payload are in place. */
static void payload_advance(struct xport_ep *ep, uint32_t n)
{
	struct rx *r = &ep->rx;

	r->left -= n;
	r->bulk = r->f.length > SMALL_BYTES;
	if (r->left == 0 && r->dst) {
		struct frame f = r->f;

		ep->moved.copied += f.length;
		ep_deliver(ep, &f, r->dst);
	}
}

/* Payload bytes that a batch read caught; returns how many of the `avail` they are. */
static uint32_t payload_spill(struct xport_ep *ep, const uint8_t *p, uint32_t avail)
{
	struct rx *r = &ep->rx;
	uint32_t n = MIN(avail, r->left);

	if (r->dst)
		memcpy(r->dst + (r->f.length - r->left), p, n);
	if (n > 0)
		payload_advance(ep, n);
	return n;
}

/* Decodes all whole headers in the batch, of so many bytes, and keeps the rest of them. */
static void rx_headers(struct xport_ep *ep, uint32_t have)
{
	const uint8_t *batch = ep->g->batch;
	struct rx *r = &ep->rx;
	uint32_t at = 0;

	while (ep_live(ep) && have - at >= FRAME_BYTES) {
		at += FRAME_BYTES;
		r->bulk = false;
		r->next = batch + at;
		r->ahead = have - at;
		r->taken = 0;
		take_header(ep, r->next - FRAME_BYTES);
		at += r->taken;
		if (ep_live(ep) && r->left > 0)
			at += payload_spill(ep, batch + at, have - at);
	}
	if (!ep_live(ep))
		return;
	r->have = have - at;
	memcpy(r->part, batch + at, r->have);
}

static void rx_take(struct xport_ep *ep, size_t n)
{
	struct rx *r = &ep->rx;

	if (r->left > 0) {
		uint32_t p = (uint32_t)MIN(n, (size_t)r->left);

		n -= p;
		payload_advance(ep, p);
	}
	if (ep_live(ep))
		rx_headers(ep, r->have + (uint32_t)n);
}

/* Where the next bytes shall go; at most `room` of payload.  Returns their number. */
static size_t rx_gather(struct xport_ep *ep, size_t room, struct iovec *iov, int *n)
{
	struct rx *r = &ep->rx;
	size_t payload = MIN((size_t)r->left, room), bytes = 0;
	uint8_t *batch = ep->g->batch;

	*n = 0;
	if (r->left == 0) {
		memcpy(batch, r->part, r->have);
		return iov_put(iov, n, batch + r->have,
			       (r->bulk ? FRAME_BYTES : BATCH_BYTES) - r->have);
	}
	if (r->dst)
		bytes = iov_put(iov, n, r->dst + (r->f.length - r->left), payload);
	while (bytes < payload)
		bytes += iov_put(iov, n, ep->g->sink, MIN(payload - bytes, (size_t)SINK_BYTES));
	if (payload == r->left)
		bytes += iov_put(iov, n, batch,
				 r->f.length > SMALL_BYTES ? FRAME_BYTES : BATCH_BYTES);
	return bytes;
}

static void rx_end(struct xport_ep *ep)
{
	if (ep->ops->eof && ep->rx.left == 0 && ep->rx.have == 0 && ep->ops->eof(ep))
		return;
	if (ep->state == EP_HELLO)
		ep_kill(ep, CLOSE_HANDSHAKE, "closed by the peer instead of a welcome");
	else if (ep->state == EP_QUEUE_PAIR)
		ep_kill(ep, CLOSE_QUEUE_PAIR, "closed by the peer instead of a queue pair");
	else if (ep->rx.left > 0 || ep->rx.have > 0)
		ep_kill(ep, CLOSE_RESET, "cut inside a frame, %u bytes of payload missing",
			ep->rx.left);
	else
		ep_kill(ep, CLOSE_EOF, "closed by the peer");
}

/* A descriptor may be one step ahead of its SLAB frame, not more. */
static bool rx_keep_fd(struct xport_ep *ep, int fd)
{
	if (fd < 0)
		return true;
	if (ep->rx.fd < 0) {
		ep->rx.fd = fd;
		return true;
	}
	close(fd);
	ep_kill(ep, CLOSE_BAD_FRAME, "a descriptor came without its slab");
	return false;
}

/* Reads with one readv(); returns the bytes read, 0 when no more can be done now. */
static size_t rx_read(struct xport_ep *ep, size_t room)
{
	struct iovec iov[RX_IOV];
	int n, got_fd = -1;
	size_t want = rx_gather(ep, room, iov, &n);
	ssize_t got = ep->ops->recv(ep->fd, iov, n, &got_fd);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got < 0) {
		ep_kill_errno(ep, "read", errno);
		return 0;
	}
	if (got == 0) {
		rx_end(ep);
		return 0;
	}
	if (!rx_keep_fd(ep, got_fd))
		return 0;
	ep_heard(ep);
	rx_take(ep, (size_t)got);
	return got < (ssize_t)want ? 0 : (size_t)got;
}

static void rx_drain(struct xport_ep *ep)
{
	size_t done = 0;

	while (done < XPORT_TURN_BYTES && ep_live(ep)) {
		size_t n = rx_read(ep, XPORT_TURN_BYTES - done);

		if (n == 0)
			break;
		done += n;
	}
}

static void connected(struct xport_ep *ep)
{
	int sys_err = 0;
	socklen_t len = sizeof(sys_err);

	if (getsockopt(ep->fd, SOL_SOCKET, SO_ERROR, &sys_err, &len) < 0)
		sys_err = errno;
	if (sys_err) {
		ep_kill_errno(ep, "connect", sys_err);
		return;
	}
	ep->state = EP_HELLO;
	ep_heard(ep);
	ep_dirty(ep);
}

void stream_event(struct xport_ep *ep, uint32_t epoll_events)
{
	if (ep->state == EP_CONNECTING) {
		if (epoll_events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			connected(ep);
		return;
	}
	if (epoll_events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		rx_drain(ep);
	if (ep_live(ep) && (epoll_events & EPOLLOUT)) {
		ep->tx.blocked = false;
		ep_dirty(ep);
	}
}
