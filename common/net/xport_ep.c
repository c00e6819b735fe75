// SPDX-License-Identifier: Apache-2.0
/*
 * xport_ep.c - one endpoint: its birth, its queue, its end.
 *
 * The files of the transports stand on this one, and xport.c, which has all endpoints of an
 * engine, stands on them.  An endpoint has a slot from its birth on (epoll carries the slot's
 * address, so that a late event of a dead endpoint finds an empty slot and not freed memory).
 * What is to be written waits in its queue, and the endpoint on the group's dirty list.
 *
 * ep_kill() closes the descriptor at once and moves the endpoint to the dead list, from where
 * xport_poll() takes it.  A link with a queue pair is fenced first: this side's end of the stream
 * is shut down, and the peer's end of it, which comes when its queue pair is gone, is waited for.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/xport_ep.h"

/* ---- birth ---- */

static int slot_get(struct xport_group *g, struct xport_ep *ep)
{
	uint32_t i;

	if (g->slot_free) {
		i = g->slot_free - 1;
		g->slot_free = g->slots[i].next_free;
	} else if (g->slots_used < XPORT_LINKS_MAX) {
		i = g->slots_used++;
	} else {
		return TALLY_EQUOTA;
	}
	g->slots[i].ep = ep;
	ep->slot = i;
	return 0;
}

static void slot_put(struct xport_group *g, uint32_t i)
{
	g->slots[i].ep = NULL;
	g->slots[i].next_free = g->slot_free;
	g->slot_free = i + 1;
}

void ep_dirty(struct xport_ep *ep)
{
	if (list_empty(&ep->dirty))
		list_add(&ep->g->dirty, &ep->dirty);
}

void ep_arm(struct xport_ep *ep, uint32_t epoll_events)
{
	struct epoll_event ev = { .events = epoll_events };

	if (ep->armed == epoll_events)
		return;
	ev.data.ptr = &ep->g->slots[ep->slot];
	if (epoll_ctl(ep->g->epfd, ep->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, ep->fd, &ev) < 0)
		ep_kill_errno(ep, "watch", errno);
	else
		ep->armed = epoll_events;
}

int ep_new(struct xport_group *g, const struct xport_ops *ops, const struct frame *hello,
		  void *user, mono_t now, struct xport_ep **out, struct err *e)
{
	struct xport_ep *ep;

	if (g->freeing)
		return err_set(e, TALLY_ESHUTDOWN, "the engine is stopping");
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return err_set(e, TALLY_ENOMEM, "no memory for another link");
	if (slot_get(g, ep) < 0) {
		free(ep);
		return err_set(e, TALLY_EQUOTA, "an engine has at most %u links", XPORT_LINKS_MAX);
	}
	ep->g = g;
	ep->ops = ops;
	ep->user = user;
	ep->hello = *hello;
	ep->fd = ep->rx.fd = -1;
	ep->deadline = now + mono_ms(HANDSHAKE_MS);
	ep->heard_at = now;
	ep->ping_at = now + mono_ms(LINK_PING_MS);
	list_init(&ep->dirty);
	if (list_empty(&g->live)) {
		g->tick_at = now;
		g->due = now + mono_ms(XPORT_TICK_MS);
	}
	g->stirred = true;
	list_add(&g->live, &ep->all);
	*out = ep;
	return 0;
}

/* Of either end's address; false: it has none. */
static bool numeric(int (*get)(int, struct sockaddr *, socklen_t *), int fd, char *host,
		    uint32_t host_len, char port[8])
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	return !get(fd, (struct sockaddr *)&sa, &len) && sa.ss_family != AF_UNIX &&
	       !getnameinfo((struct sockaddr *)&sa, len, host, host_len, port, 8,
			    NI_NUMERICHOST | NI_NUMERICSERV);
}

static int peer_name(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getpeername(fd, sa, len);
}

static int own_name(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getsockname(fd, sa, len);
}

static void name_peer(struct xport_ep *ep)
{
	struct ep_facts *f = &ep->facts;
	char port[8], own[8];

	if (!numeric(peer_name, ep->fd, f->remote, sizeof(f->remote), port)) {
		snprintf(ep->peer, sizeof(ep->peer), "node %u", ep->hello.job);
		return;
	}
	snprintf(ep->peer, sizeof(ep->peer), "%s:%s", f->remote, port);
	f->port = (uint16_t)atoi(port);
	if (!numeric(own_name, ep->fd, f->local, sizeof(f->local), own))
		f->local[0] = '\0';
}

int ep_adopt(struct xport_group *g, const struct xport_ops *ops, int fd, const struct frame *hello,
	     const struct frame *welcome, void *user, mono_t now, struct xport_ep **out,
	     struct err *e)
{
	int rc, flags = fcntl(fd, F_GETFL);
	struct xport_ep *ep;

	ASSERT(hello->type == FRAME_HELLO && welcome->type == FRAME_WELCOME);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_set(e, err_from_errno(errno), "adopting a link: %m");
	rc = ep_new(g, ops, hello, user, now, &ep, e);
	if (rc < 0)
		return rc;
	ep->fd = fd;
	ep->state = ops->shake ? EP_QUEUE_PAIR : EP_ADOPTED;
	name_peer(ep);
	ops->tune(fd);
	tx_control(ep, welcome);
	ep_arm(ep, EPOLLIN);
	if (ops->shake && ep_live(ep))
		ops->shake(ep);
	*out = ep;
	return 0;
}

void ep_up(struct xport_ep *ep, const struct frame *peer)
{
	ep->state = EP_UP;
	ep_facts_up(ep);
	ep->g->cb->up(ep->g->ctx, ep, peer);
}

void ep_deliver(struct xport_ep *ep, const struct frame *f, const void *data)
{
	ep->g->cb->deliver(ep->g->ctx, ep, f, data);
}

void ep_unplace(struct xport_ep *ep, const struct frame *f)
{
	if (ep->g->cb->unplaced)
		ep->g->cb->unplaced(ep->g->ctx, ep, f);
}

/* ---- end ---- */

void ep_gone(struct xport_ep *ep)
{
	ep->state = EP_DEAD;
	list_del(&ep->all);
	list_add(&ep->g->dead, &ep->all);
	slot_put(ep->g, ep->slot);
	if (ep->armed)	/* close() alone would not do it if a child has a copy */
		epoll_ctl(ep->g->epfd, EPOLL_CTL_DEL, ep->fd, NULL);
	close(ep->fd);
	ep->fd = -1;
}

/* err.text holds the cause already. */
static void ep_bury(struct xport_ep *ep, enum close_reason why)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &ep->g->slots[ep->slot] };
	bool fence = ep->ops->cut && ep->ops->cut(ep);

	ep_facts_end(ep, why);
	ep->why = why;
	err_wrap(&ep->err, "%s link %s", ep->ops->name, ep->peer);
	list_del(&ep->dirty);
	if (!fence || ep->g->freeing || shutdown(ep->fd, SHUT_WR) < 0) {
		ep_gone(ep);
		return;
	}
	ep->state = EP_FENCED;
	ep->deadline = 0;
	ep->g->stirred = true;
	epoll_ctl(ep->g->epfd, EPOLL_CTL_MOD, ep->fd, &ev);
}

void ep_kill(struct xport_ep *ep, enum close_reason why, const char *fmt, ...)
{
	va_list ap;

	ASSERT(ep_live(ep));
	va_start(ap, fmt);
	err_setv(&ep->err, close_reason_code(why), fmt, ap);
	va_end(ap);
	ep_bury(ep, why);
}

#define SHOWN_BYTES	40u	/* of a frame: slot and rslot, behind them, hold keys of some */

void ep_kill_frame(struct xport_ep *ep, const uint8_t wire[FRAME_BYTES], const char *what)
{
	char hex[2 * SHOWN_BYTES + 1];

	for (uint32_t i = 0; i < SHOWN_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", wire[i]);
	ep_kill(ep, CLOSE_BAD_FRAME, "%s: %s", what, hex);
}

void ep_kill_errno(struct xport_ep *ep, const char *doing, int errnum)
{
	enum close_reason why = close_reason_from_errno(errnum);

	if (ep->state == EP_CONNECTING && why == CLOSE_TIMEOUT)
		why = CLOSE_UNREACHABLE;
	ep->facts.errnum = errnum;
	errno = errnum;
	ep_kill(ep, why, "%s: %m", doing);
}

/* ---- queue ---- */

struct tx_item *tx_push(struct xport_ep *ep, const struct frame *f, uint32_t len)
{
	struct tx *t = &ep->tx;
	struct tx_item *it = &t->q[(t->head + t->count) % XPORT_QUEUE];

	t->count++;
	t->bytes += FRAME_BYTES + len;
	ep->idle = false;
	it->data = NULL;
	it->cookie = 0;
	it->len = len;
	it->fd = -1;
	frame_encode(f, it->wire);
	if (!t->blocked)
		ep_dirty(ep);
	return it;
}

bool tx_own(struct xport_ep *ep, const struct frame *f)
{
	if (ep->tx.count == XPORT_QUEUE)
		return false;
	tx_push(ep, f, 0);
	return true;
}

void tx_control(struct xport_ep *ep, const struct frame *f)
{
	struct tx *t = &ep->tx;

	if (t->ctl_len + FRAME_BYTES > sizeof(t->ctl))
		return;
	frame_encode(f, t->ctl + t->ctl_len);
	t->ctl_len += FRAME_BYTES;
	ep_dirty(ep);
}
