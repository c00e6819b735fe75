// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes, in any pieces, into an adopted endpoint.  The first byte picks the
 * kind (tcp's or shm's row over a socketpair), whether headers get a right magic,
 * version and check (so that the fuzzer reaches what lies behind them), whether
 * payloads are refused, and whether the owner answers; the second says how small
 * the pieces are, the third in which callback the owner closes.  Whatever comes:
 * closed() once, each payload lent comes back once, and arrivals are what was sent.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/net/xport_ep.h"

#define ROOM	(1u << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
	struct xport_group *g;
	struct xport_ep *ep;
	int epfd, peer;
	bool refuse, answer;
	uint32_t until_close, closes, lent;
	uint8_t *room;			/* as long as the payload placed: overruns show */
};

static void step(struct world *w)
{
	if (w->until_close && --w->until_close == 0)
		xport_close(w->ep, CLOSE_LOCAL);
}

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	(void)ep;
	ASSERT(peer->type == FRAME_HELLO);
	step(ctx);
}

static void *on_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct world *w = ctx;

	ASSERT(!xport_by_reference(ep) && frame_has_payload(f));
	free(w->room);
	w->room = w->refuse ? NULL : malloc(f->length);
	step(w);
	return w->room;
}

static const void *on_resolve(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct world *w = ctx;

	ASSERT(xport_by_reference(ep) && f->length > 0);
	step(w);
	return w->refuse ? NULL : w;
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	static const uint8_t reply[100];
	struct frame out = { .type = FRAME_RESULT, .length = sizeof(reply) };
	struct world *w = ctx;
	bool lend = !xport_by_reference(ep);

	ASSERT((f->type > FRAME_WELCOME && f->type < FRAME_PING) || f->type == FRAME_SEEK ||
	       f->type == FRAME_GIVE);
	ASSERT(!data || data == w->room || data == w);
	if (w->answer && xport_send(ep, &out, lend ? reply : NULL, 1) == 0)
		w->lent += lend;
	step(w);
}

static void on_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct world *w = ctx;

	(void)ep;
	ASSERT(w->lent > 0 && cookie == 1 && len == 100);
	w->lent--;
	step(w);
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	struct world *w = ctx;

	ASSERT(ep == w->ep && why < CLOSE_REASON_END && e->code < 0);
	w->closes++;
	w->ep = NULL;
}

static const struct xport_cb callbacks = {
	.up = on_up,
	.place = on_place,
	.resolve = on_resolve,
	.deliver = on_deliver,
	.sent = on_sent,
	.closed = on_closed,
};

static void turn(struct world *w)
{
	struct epoll_event ev;
	char trash[4096];

	if (epoll_wait(w->epfd, &ev, 1, 0) == 1)
		ASSERT(xport_event(w->g, ev.data.ptr, ev.events));
	xport_poll(w->g, 0);
	while (recv(w->peer, trash, sizeof(trash), MSG_DONTWAIT) > 0)
		continue;
}

static void feed(struct world *w, const uint8_t *p, size_t len, size_t piece)
{
	for (size_t at = 0; at < len && w->ep; at += piece) {
		if (send(w->peer, p + at, MIN(piece, len - at), MSG_NOSIGNAL) < 0)
			break;
		turn(w);
	}
}

/* Turns the input into a stream of frames with right headers. */
static void make_right(uint8_t *p, size_t size)
{
	size_t at = 0;
	struct frame f;

	while (size - at >= FRAME_BYTES) {
		uint8_t *wire = p + at;

		put_le32(wire, FRAME_MAGIC);
		wire[4] = FRAME_VERSION;
		wire[5] = wire[5] % (FRAME_TYPE_END + 1);
		wire[6] %= DTYPE_END;
		wire[7] %= ROP_END;
		put_le32(wire + 32, get_le32(wire + 32) % CHUNK_BYTES_MIN);
		put_le32(wire + 36, get_le32(wire + 36) % 512);
		put_le32(wire + 60, crc32c(wire, 60));
		at += FRAME_BYTES;
		if (frame_decode(wire, &f) == 0 && frame_has_payload(&f))
			at += MIN(size - at, (size_t)f.length);
	}
}

static void adopt(struct world *w, const struct xport_ops *ops)
{
	struct frame hello = { .type = FRAME_HELLO }, welcome = { .type = FRAME_WELCOME };
	int sv[2];

	w->epfd = epoll_create1(EPOLL_CLOEXEC);
	ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	w->peer = sv[0];
	ASSERT(xport_group_new(&w->g, w->epfd, &callbacks, w, NULL) == 0);
	ASSERT(ep_adopt(w->g, ops, sv[1], &hello, &welcome, NULL, 0, &w->ep, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = { .closes = 0 };
	uint8_t *copy;

	if (size < 3 || size > ROOM)
		return 0;
	w.refuse = data[0] & 4;
	w.answer = data[0] & 8;
	w.until_close = data[2];
	copy = malloc(size);
	memcpy(copy, data, size);
	adopt(&w, data[0] & 1 ? &xport_shm_ops : &xport_tcp_ops);
	if (data[0] & 2)
		make_right(copy + 3, size - 3);
	feed(&w, copy + 3, size - 3, 1 + (size_t)data[1] * 16);
	close(w.peer);
	w.peer = -1;
	for (int i = 0; i < 4; i++)
		turn(&w);
	ASSERT(w.closes == 1);
	xport_group_free(w.g);
	close(w.epfd);
	free(w.room);
	free(copy);
	return 0;
}
