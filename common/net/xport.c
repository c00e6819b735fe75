// SPDX-License-Identifier: Apache-2.0
/*
 * xport.c - the links of one engine: their table, their pulse, their ends.
 *
 * connect and adopt make an endpoint (xport_ep.c) and put it on the live list.  Events go to the
 * kind's engine (xport_ops).  Whatever wants to write goes on the dirty list; xport_poll()
 * flushes that list once per turn, so that all frames of a turn leave together.
 *
 * Ends: ep_kill() moves the endpoint to the dead list; the next poll calls closed() and frees
 * it.  Endpoints that die in a closed() wait for the poll after it, so an owner that connects to
 * nobody again and again does not keep the engine from its other work.
 *
 * Pulse: every XPORT_TICK_MS a walk over the live endpoints turns their `heard`
 * flags into times.  A tick that comes late means that this process was not
 * looking: it takes everybody for alive and starts counting anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/xport_ep.h"

static struct xport_slot *slot_of(struct xport_group *g, void *data_ptr)
{
	uintptr_t at = (uintptr_t)data_ptr, base = (uintptr_t)g->slots;

	if (at < base || at - base >= XPORT_LINKS_MAX * sizeof(*g->slots))
		return NULL;
	return &g->slots[(at - base) / sizeof(*g->slots)];
}

/* ---- connecting and adopting ---- */

static const struct xport_ops *kind_ops(const struct xport_group *g, int kind)
{
	if (kind == XPORT_RDMA && g->rdma)
		return &xport_rdma_ops;
	return kind == XPORT_SHM ? &xport_shm_ops : &xport_tcp_ops;
}

static void name_ends(struct xport_ep *ep, const struct xport_addr *a)
{
	fmt_endpoint(ep->peer, sizeof(ep->peer), a->remote, a->port);
	memcpy(ep->facts.local, a->local, sizeof(ep->facts.local));
	memcpy(ep->facts.remote, a->remote, sizeof(ep->facts.remote));
	ep->facts.port = a->port;
}

int xport_connect(struct xport_group *g, const struct xport_addr *a, const struct frame *hello,
		  void *user, mono_t now, struct xport_ep **out, struct err *e)
{
	const struct xport_ops *ops = kind_ops(g, a->kind);
	int fd, sys_err, rc = ops->open(a, &fd, &sys_err, e);
	struct proc_peer process = { 0 };
	struct xport_ep *ep;

	ASSERT(hello->type == FRAME_HELLO);
	if (rc < 0)
		return rc;
	if (a->kind == XPORT_SHM && !sys_err) {
		rc = proc_peer(fd, &process, e);
		rc = rc ? rc : proc_peer_check(&process, a->remote, e);
	}
	rc = rc ? rc : ep_new(g, ops, hello, user, now, &ep, e);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	ep->fd = fd;
	ep->process = process;
	if (a->kind == XPORT_SHM)
		snprintf(ep->peer, sizeof(ep->peer), "%s", a->remote);
	else
		name_ends(ep, a);
	ops->tune(fd);
	if (ops->shake)
		ep->hello.offset = HELLO_RDMA;
	else if (a->kind == XPORT_RDMA)
		snprintf(ep->path, sizeof(ep->path), "this machine has no RDMA device");
	tx_control(ep, &ep->hello);
	if (sys_err && sys_err != EINPROGRESS) {
		ep_kill_errno(ep, "connect", sys_err);
	} else {
		ep->state = sys_err ? EP_CONNECTING : EP_HELLO;
		ep_arm(ep, sys_err ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
	*out = ep;
	return 0;
}

int xport_adopt(struct xport_group *g, int fd, const struct frame *hello,
		const struct frame *welcome, void *user, mono_t now, struct xport_ep **ep,
		struct err *e)
{
	int domain;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return err_set(e, err_from_errno(errno), "adopting a link: %m");
	if (domain != AF_UNIX && hello->offset & HELLO_RDMA)
		return ep_adopt(g, &xport_rdma_ops, fd, hello, welcome, user, now, ep, e);
	return ep_adopt(g, kind_ops(g, domain == AF_UNIX ? XPORT_SHM : XPORT_TCP), fd, hello,
			welcome, user, now, ep, e);
}

/* ---- ends ---- */

/* Whatever the peer still says is thrown away, until it has no more to say. */
static void fence_event(struct xport_ep *ep)
{
	ssize_t n = recv(ep->fd, ep->g->sink, SINK_BYTES, MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		ep_gone(ep);
}

void xport_close(struct xport_ep *ep, enum close_reason why)
{
	ASSERT((unsigned int)why < CLOSE_REASON_END);
	if (ep_live(ep))
		ep_kill(ep, why, "%s", close_reason_help(why));
}

static void ep_free(struct xport_ep *ep)
{
	const struct tx *t = &ep->tx;

	for (uint32_t i = 0; i < t->count; i++) {
		int fd = t->q[(t->head + i) % XPORT_QUEUE].fd;

		if (fd >= 0)
			close(fd);
	}
	if (ep->rx.fd >= 0)
		close(ep->rx.fd);
	rdma_link_free(ep->rdma);
	free(ep);
}

static void list_take(struct list *from, struct list *to)
{
	list_init(to);
	if (list_empty(from))
		return;
	*to = *from;
	to->next->prev = to->prev->next = to;
	list_init(from);
}

static void give_back(struct xport_ep *ep)
{
	const struct tx *t = &ep->tx;

	if (!ep->g->cb->unsent)
		return;
	for (uint32_t i = 0; i < t->count; i++) {
		const struct tx_item *it = &t->q[(t->head + i) % XPORT_QUEUE];

		if (it->data)
			ep->g->cb->unsent(ep->g->ctx, ep, it->cookie, it->len);
	}
	rdma_give_back(ep);
}

static void reap(struct xport_group *g)
{
	struct list dead;

	list_take(&g->dead, &dead);
	while (!list_empty(&dead)) {
		struct xport_ep *ep = list_first(&dead, struct xport_ep, all);

		list_del(&ep->all);
		give_back(ep);
		if (ep->rx.left > 0 && ep->rx.dst)
			ep_unplace(ep, &ep->rx.f);
		g->cb->closed(g->ctx, ep, ep->why, &ep->err);
		ep_free(ep);
	}
}

/* ---- sending ---- */

static int tx_room(const struct xport_ep *ep)
{
	if (ep->state != EP_UP)
		return TALLY_ESHUTDOWN;
	return ep->tx.count < XPORT_QUEUE ? 0 : TALLY_EAGAIN;
}

int xport_send(struct xport_ep *ep, const struct frame *f, const void *data, uint64_t cookie)
{
	struct frame g = *f;
	struct tx_item *it;
	int rc = tx_room(ep);

	if (rc < 0)
		return rc;
	if (ep->ops->by_reference && frame_has_payload(f))
		g.flags |= FRAME_BYREF;
	ASSERT(ep_owners_type(g.type) && g.length <= SEG_BYTES_MAX);
	ASSERT(ep->ops->by_reference || !(g.flags & FRAME_BYREF));
	ASSERT((data != NULL) == frame_has_payload(&g));
	if (ep->ops->take && ep->ops->take(ep, &g, data, cookie, &rc))
		return rc;
	it = tx_push(ep, &g, data ? g.length : 0);
	it->data = data;
	it->cookie = cookie;
	return 0;
}

int xport_send_slab(struct xport_ep *ep, uint32_t job, uint32_t id, int fd, uint64_t bytes)
{
	struct frame f = { .type = FRAME_SLAB, .job = job, .slot = id, .rslot = bytes };
	int rc = tx_room(ep), copy;

	if (!ep->ops->by_reference || id >= SLABS_PER_LINK_MAX || bytes > SLAB_BYTES_MAX)
		return TALLY_EINVAL;
	if (rc < 0)
		return rc;
	copy = bytes ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (bytes && copy < 0)
		return errno == EMFILE ? TALLY_EQUOTA : TALLY_EINVAL;
	tx_push(ep, &f, 0)->fd = copy;
	return 0;
}

/* ---- the group ---- */

int xport_group_new(struct xport_group **out, int epfd, const struct xport_cb *cb, void *ctx,
		    struct err *e)
{
	struct xport_group *g = calloc(1, sizeof(*g));

	ASSERT(cb->up && cb->deliver && cb->sent && cb->closed);
	if (g)
		g->slots = calloc(XPORT_LINKS_MAX, sizeof(*g->slots));
	if (!g || !g->slots) {
		free(g);
		return err_set(e, TALLY_ENOMEM, "no memory for an engine's links");
	}
	g->epfd = epfd;
	g->cb = cb;
	g->ctx = ctx;
	g->frames_per_write = FRAMES_PER_WRITE_MAX;
	list_init(&g->live);
	list_init(&g->dead);
	list_init(&g->dirty);
	g->rdma = rdma_group_new(g);
	*out = g;
	return 0;
}

void xport_group_free(struct xport_group *g)
{
	if (!g)
		return;
	ASSERT(!g->busy);
	g->freeing = true;
	while (!list_empty(&g->live)) {
		struct xport_ep *ep = list_first(&g->live, struct xport_ep, all);

		if (ep->state == EP_FENCED)
			ep_gone(ep);
		else
			xport_close(ep, CLOSE_LOCAL);
	}
	reap(g);
	rdma_group_free(g->rdma);
	free(g->slots);
	free(g);
}

void xport_set_frames_per_write(struct xport_group *g, uint32_t frames)
{
	ASSERT(frames >= 1 && frames <= FRAMES_PER_WRITE_MAX);
	g->frames_per_write = frames;
}

struct xport_written xport_written(const struct xport_group *g)
{
	return g->written;
}

bool xport_event(struct xport_group *g, void *data_ptr, uint32_t epoll_events)
{
	struct xport_slot *s = slot_of(g, data_ptr);
	struct xport_ep *ep = s ? s->ep : NULL;

	if (!s)
		return g->rdma && rdma_group_event(g->rdma, data_ptr);
	ASSERT(!g->busy);
	g->busy = true;
	if (ep && ep->state == EP_ADOPTED)
		ep_up(ep, &ep->hello);
	if (ep && ep->state == EP_FENCED)
		fence_event(ep);
	else if (ep && ep_live(ep))
		ep->ops->event(ep, epoll_events);
	g->busy = false;
	return true;
}

static void beat_handshake(struct xport_ep *ep, mono_t now)
{
	if (now < ep->deadline)
		return;
	if (ep->state == EP_CONNECTING)
		ep_kill(ep, CLOSE_UNREACHABLE, "no answer for %u ms", HANDSHAKE_MS);
	else if (ep->state == EP_HELLO)
		ep_kill(ep, CLOSE_TIMEOUT, "no welcome for %u ms", HANDSHAKE_MS);
	else
		ep_kill(ep, CLOSE_QUEUE_PAIR, "no queue pair for %u ms", HANDSHAKE_MS);
}

static void beat_up(struct xport_ep *ep, mono_t now)
{
	ep_facts_look(ep);
	if (ep->heard) {
		ep->heard = false;
		ep->heard_at = now;
		ep->ping_at = now + mono_ms(LINK_PING_MS);
	} else if (now - ep->heard_at >= mono_ms(LINK_DEAD_MS)) {
		ep_kill(ep, CLOSE_TIMEOUT, "not a byte for %u ms", LINK_DEAD_MS);
	} else if (now >= ep->ping_at) {
		ep->ping_at = now + mono_ms(LINK_PING_MS);
		tx_control(ep, &(struct frame){ .type = FRAME_PING });
	}
}

static void beat_fence(struct xport_ep *ep, mono_t now)
{
	if (!ep->deadline)
		ep->deadline = now + mono_ms(LINK_DEAD_MS);
	if (now >= ep->deadline)
		ep_gone(ep);
}

/* When the endpoint wants a tick if nothing comes. */
static mono_t need_of(const struct xport_ep *ep)
{
	if (ep->state < EP_ADOPTED || ep->state == EP_FENCED)
		return ep->deadline;
	if (ep_facts_wanted(ep))
		return ep->g->tick_at;
	return MIN(ep->ping_at, ep->heard_at + mono_ms(LINK_DEAD_MS));
}

/* late: this process was stalled, which is not to count as the peers' silence. */
static void tick(struct xport_group *g, mono_t now)
{
	bool late = g->due < now - mono_ms(LINK_PING_MS - XPORT_TICK_MS);

	g->tick_at = now;
	g->need_at = MONO_NEVER;
	g->stirred = false;
	list_for_each_safe(&g->live, p, next) {
		struct xport_ep *ep = list_entry(p, struct xport_ep, all);

		if (ep->state == EP_FENCED) {
			beat_fence(ep, now);
		} else if (ep->state < EP_ADOPTED) {
			beat_handshake(ep, now);
		} else {
			ep->heard |= late;
			beat_up(ep, now);
		}
		if (ep->state != EP_DEAD)
			g->need_at = MIN(g->need_at, need_of(ep));
	}
}

/* Ticks are so far apart at least; where nothing happens, as far as the endpoints need. */
static mono_t tick_due(const struct xport_group *g)
{
	mono_t soon = g->tick_at + mono_ms(XPORT_TICK_MS);

	if (list_empty(&g->live))
		return MONO_NEVER;
	return g->stirred ? soon : MAX(soon, g->need_at);
}

/* Callbacks in here may make others dirty or dead: those wait for the next turn. */
static void flush(struct xport_group *g)
{
	struct list dirty;

	list_take(&g->dirty, &dirty);
	while (!list_empty(&dirty)) {
		struct xport_ep *ep = list_first(&dirty, struct xport_ep, dirty);

		list_del(&ep->dirty);
		if (ep->state == EP_ADOPTED)
			ep_up(ep, &ep->hello);
		if (ep_live(ep))
			ep->ops->flush(ep);
	}
}

mono_t xport_poll(struct xport_group *g, mono_t now)
{
	mono_t next = MONO_NEVER;

	ASSERT(!g->busy);
	g->busy = true;
	if (now >= tick_due(g))
		tick(g, now);
	flush(g);
	if (g->rdma)
		next = rdma_group_poll(g->rdma, now);
	reap(g);
	g->busy = false;
	g->due = tick_due(g);
	if (!list_empty(&g->dirty) || !list_empty(&g->dead))
		return now;
	return MIN(next, g->due);
}

/* ---- looking ---- */

void *xport_user(const struct xport_ep *ep)
{
	return ep->user;
}

uint32_t xport_queued(const struct xport_ep *ep)
{
	uint64_t bytes;

	return ep->tx.count + rdma_queued(ep, &bytes);
}

uint64_t xport_queued_bytes(const struct xport_ep *ep)
{
	uint64_t bytes;

	if (!ep_live(ep))
		return 0;
	(void)rdma_queued(ep, &bytes);
	return ep->tx.bytes + bytes;
}

bool xport_takes(const struct xport_ep *ep)
{
	return ep->state == EP_UP && xport_queued(ep) < XPORT_QUEUE / 2;
}

uint64_t xport_backlog_bytes(struct xport_ep *ep)
{
	uint32_t mem[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof(mem);
	int unsent = 0;

	if (!ep_live(ep) || ep->ops != &xport_tcp_ops || ep->idle)
		return 0;
	if (ioctl(ep->fd, SIOCOUTQNSD, &unsent) || unsent < 0)
		unsent = 0;
	if (getsockopt(ep->fd, SOL_SOCKET, SO_MEMINFO, mem, &len))
		mem[SK_MEMINFO_WMEM_ALLOC] = 0;
	ep->idle = !ep->tx.count && !unsent && !mem[SK_MEMINFO_WMEM_ALLOC];
	return (uint64_t)unsent + mem[SK_MEMINFO_WMEM_ALLOC];
}

bool xport_by_reference(const struct xport_ep *ep)
{
	return ep->ops->by_reference;
}

int xport_peer_process(const struct xport_ep *ep, struct err *e)
{
	if (!ep->ops->by_reference || !ep_live(ep))
		return err_set(e, TALLY_ESHUTDOWN, "there is no link by shared memory");
	return proc_peer_open(ep->fd, &ep->process, e);
}

const char *xport_kind_name(const struct xport_ep *ep)
{
	return ep->ops->name;
}

const char *xport_path(const struct xport_ep *ep)
{
	return ep->path;
}

uint64_t xport_detours(const struct xport_ep *ep)
{
	return rdma_detours(ep);
}

struct xport_moved xport_moved(const struct xport_ep *ep)
{
	return ep->moved;
}

/* ---- the listener's half ---- */

int xport_hello_read(struct xport_hello *h, int fd, struct frame *hello)
{
	struct frame f;
	ssize_t n;
	int rc;

	n = recv(fd, h->wire + h->got, FRAME_BYTES - h->got, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? TALLY_EAGAIN : err_from_errno(errno);
	if (n == 0)
		return TALLY_ESHUTDOWN;
	h->got += (uint32_t)n;
	if (h->got < FRAME_BYTES)
		return TALLY_EAGAIN;
	rc = frame_decode(h->wire, &f);
	if (rc == 0 && f.type != FRAME_HELLO)
		rc = TALLY_EPROTO;
	if (rc == 0)
		*hello = f;
	return rc;
}
