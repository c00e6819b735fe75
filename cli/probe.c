// SPDX-License-Identifier: Apache-2.0
/*
 * The leading side asks by OFFER (aux: what, round: how many, length: how large) and sends
 * its own part; the other one does what it was asked and says HELD when all of the
 * leader's part has come.  Payloads go round through a room that each side shows.
 */
#include "cli/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/rt/loop.h"

#define ROOM_BYTES	(8u << 20)
#define JOB		1u

enum ask { ASK_PING = 1, ASK_TAKE, ASK_GIVE, ASK_BOTH };

struct side {
	struct xport_group *g;
	struct xport_ep *ep;
	struct xport_region *region;
	uint8_t *room;
	int epfd;
	bool up, over, server;
	enum close_reason why;
	struct err err;
	uint32_t size;
	uint32_t to_send, sent, done;	/* payloads of this step: to be queued, queued, sent */
	uint32_t to_get, got;		/* and those of the peer */
	uint32_t answers;
};

/* ---- transport callbacks ---- */

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	struct side *s = ctx;

	(void)peer;
	s->ep = ep;
	s->up = true;
	if (xport_takes_regions(ep))
		(void)xport_show(ep, JOB, 0, s->region, 0, ROOM_BYTES);
}

static void *on_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct side *s = ctx;

	(void)ep;
	return range_ok(f->slot, f->length, ROOM_BYTES) ? s->room + f->slot : NULL;
}

static void begin(struct side *s, uint32_t what, uint32_t count, uint32_t size)
{
	s->size = size;
	s->sent = s->done = s->got = 0;
	s->to_get = what == ASK_TAKE || what == ASK_BOTH ? count : 0;
	s->to_send = what == ASK_GIVE || what == ASK_BOTH ? count : 0;
}

static void answer(struct side *s)
{
	(void)xport_send(s->ep, &(struct frame){ .type = FRAME_HELD, .job = JOB }, NULL, 0);
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct side *s = ctx;

	(void)ep;
	(void)data;
	if (f->type == FRAME_HELD) {
		s->answers++;
	} else if (f->type == FRAME_OFFER && s->server) {
		begin(s, f->aux, f->round, f->length);
		if (f->aux == ASK_PING)
			answer(s);
	} else if (frame_has_payload(f)) {
		if (++s->got == s->to_get && s->server)
			answer(s);
	}
}

static void on_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct side *s = ctx;

	(void)ep;
	(void)len;
	s->done += cookie == 1;
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	struct side *s = ctx;

	(void)ep;
	s->ep = NULL;
	s->over = true;
	s->why = why;
	s->err = *e;
}

static const struct xport_cb callbacks = {
	.up = on_up,
	.place = on_place,
	.deliver = on_deliver,
	.sent = on_sent,
	.closed = on_closed,
};

/* ---- both sides ---- */

static int side_open(struct side *s, struct err *e)
{
	int rc;

	s->epfd = epoll_create1(EPOLL_CLOEXEC);
	s->room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (s->epfd < 0 || s->room == MAP_FAILED)
		return err_set(e, TALLY_ENOMEM, "out of memory or descriptors: %m");
	rc = xport_region_new(&s->region, s->room, ROOM_BYTES, true, e);
	rc = rc ? rc : xport_group_new(&s->g, s->epfd, &callbacks, s, e);
	if (!rc && xport_lend(s->g, s->region))
		rc = err_set(e, TALLY_ENOMEM, "out of memory");
	return rc;
}

static void side_close(struct side *s)
{
	xport_group_free(s->g);
	xport_region_free(s->region);
	if (s->room && s->room != MAP_FAILED)
		munmap(s->room, ROOM_BYTES);
	if (s->epfd >= 0)
		close(s->epfd);
}

/* Queues what there is to send, as far as the link takes it. */
static void give(struct side *s)
{
	uint64_t stride = align_up(MAX(s->size, 1u), PAGE_BYTES);
	struct frame f = { .type = FRAME_PUSH, .job = JOB, .length = s->size };

	while (s->up && !s->over && s->sent < s->to_send) {
		f.slot = s->sent % (ROOM_BYTES / stride) * stride;
		if (xport_send(s->ep, &f, s->room + f.slot, 1))
			return;
		s->sent++;
	}
}

static void turn(struct side *s)
{
	mono_t now = loop_now(), next;
	struct epoll_event ev[16];
	int n;

	give(s);
	next = xport_poll(s->g, now);
	n = epoll_wait(s->epfd, ev, ARRAY_SIZE(ev),
		       next <= now ? 0 : (int)MIN((next - now) / 1000000 + 1, 100));
	for (int i = 0; i < n; i++)
		xport_event(s->g, ev[i].data.ptr, ev[i].events);
}

/* ---- the leading side ---- */

static bool step_over(const struct side *s, uint32_t answers)
{
	return s->done >= s->to_send && s->got >= s->to_get && s->answers >= answers;
}

/* Asks the peer to do `what` and does the matching part here; seconds, or < 0. */
static double step(struct side *s, enum ask what, uint32_t count, uint32_t size, struct err *e)
{
	static const enum ask mine[] = {
		[ASK_PING] = ASK_PING, [ASK_TAKE] = ASK_GIVE, [ASK_GIVE] = ASK_TAKE,
		[ASK_BOTH] = ASK_BOTH,
	};
	struct frame f = { .type = FRAME_OFFER, .job = JOB, .aux = what, .round = count,
			   .length = size };
	mono_t start = loop_now();
	uint32_t answers = s->answers + (what != ASK_GIVE);

	begin(s, mine[what], count, size);
	if (s->over || xport_send(s->ep, &f, NULL, 0)) {
		err_set(e, TALLY_EIO, "%s", s->over ? s->err.text : "the link takes nothing");
		return -1;
	}
	while (!s->over && !step_over(s, answers)) {
		if (loop_now() - start > PROBE_SECONDS * NS_PER_SEC) {
			err_set(e, TALLY_ETIMEDOUT, "the peer did not keep up");
			return -1;
		}
		turn(s);
	}
	if (s->over) {
		err_set(e, s->err.code, "%s", s->err.text);
		return -1;
	}
	return (double)(loop_now() - start) / NS_PER_SEC;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int lead(struct side *s, uint32_t size, uint32_t count, struct probe_result *r,
		struct err *e)
{
	double ping[PROBE_PINGS], bytes = (double)size * count, t;

	for (uint32_t i = 0; i < PROBE_PINGS; i++) {
		ping[i] = step(s, ASK_PING, 0, 0, e);
		if (ping[i] < 0)
			return e->code;
	}
	qsort(ping, PROBE_PINGS, sizeof(ping[0]), by_value);
	r->latency_us = ping[PROBE_PINGS / 2] * 1e6 / 2;
	t = step(s, ASK_TAKE, count, size, e);
	if (t < 0)
		return e->code;
	r->out = bytes / t;
	t = step(s, ASK_GIVE, count, size, e);
	if (t < 0)
		return e->code;
	r->in = bytes / t;
	t = step(s, ASK_BOTH, count, size, e);
	if (t < 0)
		return e->code;
	r->both_out = r->both_in = bytes / t;
	r->detours = xport_detours(s->ep);
	return 0;
}

static int wait_up(struct side *s, struct err *e)
{
	while (!s->over && !(s->up && (!xport_takes_regions(s->ep) || xport_seen(s->ep, JOB))))
		turn(s);	/* the transport has a deadline of its own */
	return s->over ? err_set(e, s->err.code, "%s", s->err.text) : 0;
}

int probe_run(const struct xport_addr *to, uint32_t size, uint64_t bytes, struct probe_result *r,
	      struct err *e)
{
	struct frame hello = { .type = FRAME_HELLO, .aux = FRAME_VERSION };
	struct side s = { .epfd = -1 };
	uint32_t count = (uint32_t)MAX(bytes / size, 1);
	int rc = side_open(&s, e);

	rc = rc ? rc : xport_connect(s.g, to, &hello, NULL, loop_now(), &s.ep, e);
	rc = rc ? rc : wait_up(&s, e);
	if (!rc) {
		snprintf(r->kind, sizeof(r->kind), "%s", xport_kind_name(s.ep));
		snprintf(r->path, sizeof(r->path), "%s", xport_path(s.ep));
		rc = lead(&s, size, count, r, e);
	}
	if (!s.over && s.ep)
		xport_close(s.ep, CLOSE_LOCAL);
	while (!s.over && s.ep)
		turn(&s);
	side_close(&s);
	return rc;
}

/* ---- the other side ---- */

static int take_hello(int fd, struct frame *hello, struct err *e)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct xport_hello h = { .got = 0 };
	int rc;

	do
		rc = poll(&p, 1, HANDSHAKE_MS) > 0 ? xport_hello_read(&h, fd, hello) :
		     TALLY_ETIMEDOUT;
	while (rc == TALLY_EAGAIN);
	return rc ? err_set(e, rc, "it did not say hello as tally doctor does (%s)",
			    err_name(rc)) : 0;
}

static int serve_one(int fd, struct err *e)
{
	struct side s = { .epfd = -1, .server = true };
	struct frame hello, welcome;
	int rc = side_open(&s, e);

	rc = rc ? rc : take_hello(fd, &hello, e);
	if (!rc) {
		welcome = hello;
		welcome.type = FRAME_WELCOME;
		welcome.slot = welcome.rslot = welcome.offset = 0;
		welcome.aux = FRAME_VERSION;
		rc = xport_adopt(s.g, fd, &hello, &welcome, NULL, loop_now(), &s.ep, e);
	}
	if (rc)
		close(fd);
	while (!rc && !s.over)
		turn(&s);
	if (!rc && s.why != CLOSE_EOF)
		fprintf(stderr, "tally doctor: the link to a peer ended, reason %s: %s\n",
			close_reason_name(s.why), s.err.text);
	side_close(&s);
	return rc;
}

/* host "": all addresses. */
static int listen_on(const char *host, uint16_t port, int *listener, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	char service[8], where[ENDPOINT_TEXT];
	struct addrinfo *ai;
	int fd, on = 1, rc;

	fmt_endpoint(where, sizeof(where), host, port);
	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host[0] ? host : NULL, service, &hints, &ai);
	if (rc)
		return err_set(e, TALLY_EINVAL, "cannot listen on %s: %s", where, gai_strerror(rc));
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	rc = fd < 0 || bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, 4);
	freeaddrinfo(ai);
	if (!rc) {
		*listener = fd;
		return 0;
	}
	err_set(e, err_from_errno(errno), "cannot listen on %s: %m", where);
	if (fd >= 0)
		close(fd);
	return e->code;
}

/* Port 0 is another one by now. */
static int say_where(int listener, struct err *e)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char host[ADDR_LEN_MAX + 1], port[8];

	if (getsockname(listener, (struct sockaddr *)&ss, &len) ||
	    getnameinfo((struct sockaddr *)&ss, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return err_set(e, TALLY_EIO, "cannot find out where it listens");
	printf(strchr(host, ':') ? "listens on [%s]:%s\n" : "listens on %s:%s\n", host, port);
	return fflush(stdout) ? err_set(e, TALLY_EIO, "cannot write the output: %m") : 0;
}

int probe_serve(const char *host, uint16_t port, uint32_t peers, struct err *e)
{
	int listener = -1, rc = listen_on(host, port, &listener, e);

	rc = rc ? rc : say_where(listener, e);
	for (uint32_t i = 0; !rc && (!peers || i < peers); i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0 && errno != ECONNABORTED && errno != EINTR)
			rc = err_set(e, err_from_errno(errno), "cannot take a peer: %m");
		else if (fd >= 0)
			rc = serve_one(fd, e);
		if (rc && fd >= 0 && !peers) {
			fprintf(stderr, "tally doctor: a peer was turned away: %s\n", e->text);
			rc = 0;
		}
	}
	if (listener >= 0)
		close(listener);
	return rc;
}
