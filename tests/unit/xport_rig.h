/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_rig.h - what the transport tests stand on: two groups in one process, an
 * agent's and a server's, joined by one link through a real listener.
 *
 * rig_turn() is one turn of both engines' loops; UNTIL() turns until a condition
 * holds.  Raw tests replace one side by a plain socket that says whatever it
 * likes.  Time is the real clock plus a skew that tests move at will.  Each test
 * program runs its tests over the rows of `media`; the callbacks check what holds
 * for all of them (who calls closed() when, what comes back once).
 *
 * RDMA: between the first two addresses of the family in TALLY_TEST_RDMA ("10.0.0.1
 * 10.0.0.2 fd00::1 fd00::2"), or without it from a device that this machine has to itself.
 * Payloads are registered for as long as they are lent; both ends show their room as soon
 * as they are up.
 */
#ifndef TALLY_TESTS_XPORT_RIG_H
#define TALLY_TESTS_XPORT_RIG_H

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/net/xport.h"

#define DEADLINE_S	30
#define LENT_MAX	8192
#define GUARD		64
#define ROOM_BYTES	(SEG_BYTES_MAX + PAGE_BYTES)

static const struct medium {
	const char *name;
	int kind;
	int family;
	const char *host, *kind_name;
} media[] = {
	{ "tcp v4", XPORT_TCP, AF_INET, "127.0.0.1", "tcp" },
	{ "tcp v6", XPORT_TCP, AF_INET6, "::1", "tcp" },
	{ "shm", XPORT_SHM, AF_UNIX, "", "shm" },
	{ "rdma v4", XPORT_RDMA, AF_INET, NULL, "rdma" },
	{ "rdma v6", XPORT_RDMA, AF_INET6, NULL, "rdma" },
};
#define MEDIUM_RDMA	3		/* and the next */
#define MEDIA ((int)ARRAY_SIZE(media))
/* Where cards are given it is they that are tested. */
#define MEDIUM_FIRST (getenv("TALLY_TEST_RDMA") ? MEDIUM_RDMA : 0)

struct side;

struct lend {			/* a payload that cards may read */
	struct lend *next;
	const void *p;
	uint32_t len, refs;
	struct side *side;
	struct xport_region *region;
};

struct link {
	struct side *side;
	struct xport_ep *ep;		/* NULL after closed() */
	uint32_t ups, closes, sents, unsents, got, places, takes;
	uint32_t landing;		/* addresses that place() has given out */
	uint32_t unplaceds;
	enum close_reason why;
	struct err err;
	struct frame peer, last;
	const void *last_data;
	uint8_t lent[LENT_MAX];		/* by cookie: 1 while the transport has it */
	uint32_t n_lent;
	bool refuse;			/* place() and resolve() say NULL */
	uint8_t *room;			/* where payloads land; with guards */
	struct xport_region *region;	/* of room; rdma */
	struct lend *lend[LENT_MAX];	/* by cookie; rdma */
	void (*on_up)(struct link *l);
	void (*on_place)(struct link *l);
	void (*on_deliver)(struct link *l, const struct frame *f, const void *data);
	void (*on_sent)(struct link *l, uint64_t cookie);
	void (*on_slab)(struct link *l, uint32_t job, uint32_t id, int fd, uint64_t bytes);
	void *arg;
};

struct side {
	struct rig *rig;
	struct xport_group *g;
	int epfd;
	int depth;			/* calls into the group, callbacks among them */
	bool polling;
};

static char last_end[512];	/* of a link, in words: for those that wait in vain */

struct rig {
	const struct medium *m;
	struct side agent, server;
	struct link a, b;		/* the agent's and the server's end */
	int listener;
	struct lend *lends;
	struct xport_addr addr;
	mono_t skew;
};

static inline mono_t real_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (mono_t)t.tv_sec * NS_PER_SEC + t.tv_nsec;
}
/* ---- what cards may read ---- */

static inline struct lend *lend_get(struct side *s, struct lend **all, const void *p, uint32_t len)
{
	struct lend *d = *all;

	while (d && (d->p != p || d->len != len || d->side != s || !d->refs))
		d = d->next;
	if (!d) {
		d = calloc(1, sizeof(*d));
		*d = (struct lend){ .next = *all, .p = p, .len = len, .side = s };
		*all = d;
		ck_assert_int_eq(xport_region_new(&d->region, (void *)(uintptr_t)p, len, false,
						  NULL), 0);
		ck_assert_int_eq(xport_lend(s->g, d->region), 0);
	}
	d->refs++;
	return d;
}

static inline void lend_put(struct lend *d)
{
	if (!d || --d->refs)
		return;
	if (d->side->g)
		xport_unlend(d->side->g, d->region);
	xport_region_free(d->region);
	d->region = NULL;
}

/* ---- callbacks ---- */

static inline void cb_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	struct link *l = xport_user(ep);

	ck_assert_ptr_eq(ctx, l->side);
	l->ups++;
	l->peer = *peer;
	if (xport_takes_regions(ep))
		ck_assert_int_eq(xport_show(ep, 0, 0, l->region, 0, ROOM_BYTES), 0);
	if (l->on_up)
		l->on_up(l);
}

static inline void *cb_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert(!xport_by_reference(ep));
	ck_assert(frame_has_payload(f));
	l->places++;
	if (l->on_place)
		l->on_place(l);
	if (l->refuse)
		return NULL;
	l->landing++;
	return l->room + (xport_takes_regions(ep) && f->slot != SLOT_NONE ?
			  SLOT_SLAB_OFF(f->slot) : GUARD);
}

static inline void cb_unplaced(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert(frame_has_payload(f));
	ck_assert_uint_eq(l->closes, 0);
	ck_assert_uint_gt(l->landing, 0);
	l->landing--;
	l->unplaceds++;
}

static const void *cb_resolve(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert(xport_by_reference(ep));
	l->places++;
	if (l->on_place)
		l->on_place(l);
	return l->refuse ? NULL : (const void *)(uintptr_t)f->slot;
}

static inline void cb_deliver(void *ctx, struct xport_ep *ep, const struct frame *f,
			      const void *data)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	l->got++;
	l->landing -= frame_has_payload(f);
	l->last = *f;
	l->last_data = data;
	if (l->on_deliver)
		l->on_deliver(l, f, data);
}

static inline void cb_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert_uint_gt(len, 0);
	ck_assert(l->side->polling);
	ck_assert_uint_eq(l->lent[cookie], 1);
	l->lent[cookie] = 0;
	l->n_lent--;
	l->sents++;
	lend_put(l->lend[cookie]);
	l->lend[cookie] = NULL;
	if (l->on_sent)
		l->on_sent(l, cookie);
}

static inline void cb_unsent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert_uint_gt(len, 0);
	ck_assert_uint_eq(l->closes, 0);
	ck_assert_uint_eq(l->lent[cookie], 1);
	l->lent[cookie] = 0;
	l->n_lent--;
	l->unsents++;
	lend_put(l->lend[cookie]);
	l->lend[cookie] = NULL;
}

static inline void cb_slab(void *ctx, struct xport_ep *ep, uint32_t job, uint32_t id, int fd,
			   uint64_t bytes)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	if (l->on_slab)
		l->on_slab(l, job, id, fd, bytes);
	close(fd);
}

/* Comes from poll (or free) itself, once, and never from below another call. */
static inline void cb_closed(void *ctx, struct xport_ep *ep, enum close_reason why,
			     const struct err *e)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert_ptr_eq(l->ep, ep);
	ck_assert_int_eq(l->side->depth, 0);
	ck_assert_uint_eq(l->landing, 0);
	ck_assert_int_lt(e->code, 0);
	ck_assert_int_ne(e->text[0], 0);
	snprintf(last_end, sizeof(last_end), " (last end: %s, %.400s)", close_reason_name(why),
		 e->text);
	l->closes++;
	l->why = why;
	l->err = *e;
	l->ep = NULL;
}

static const struct xport_cb callbacks = {
	.up = cb_up,
	.place = cb_place,
	.unplaced = cb_unplaced,
	.resolve = cb_resolve,
	.deliver = cb_deliver,
	.sent = cb_sent,
	.unsent = cb_unsent,
	.slab = cb_slab,
	.closed = cb_closed,
};

/* A short payload as it was read, which counts as one that was placed; what follows it in the read
 * is not to be touched.  Used where a test sets rig_takes before it opens its rig. */
static bool rig_takes;

static inline void cb_take(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct link *l = xport_user(ep);

	ck_assert(!xport_by_reference(ep) && frame_has_payload(f) && data);
	l->landing++;
	l->takes++;
	cb_deliver(ctx, ep, f, data);
}

/* ---- the rig ---- */

static inline void side_open(struct side *s, struct rig *r)
{
	static struct xport_cb taking;

	taking = callbacks;
	taking.take = cb_take;
	s->rig = r;
	s->epfd = epoll_create1(EPOLL_CLOEXEC);
	ck_assert_int_ge(s->epfd, 0);
	ck_assert_int_eq(xport_group_new(&s->g, s->epfd, rig_takes ? &taking : &callbacks, s,
					 NULL), 0);
}

static inline mono_t side_turn(struct side *s)
{
	struct epoll_event ev[16];
	int n = epoll_wait(s->epfd, ev, ARRAY_SIZE(ev), 0);
	mono_t next;

	for (int i = 0; i < n; i++) {
		s->depth++;
		ck_assert(xport_event(s->g, ev[i].data.ptr, ev[i].events));
		s->depth--;
	}
	s->polling = true;
	next = xport_poll(s->g, real_now() + s->rig->skew);
	s->polling = false;
	return next;
}

static inline void rig_turn(struct rig *r)
{
	side_turn(&r->agent);
	side_turn(&r->server);
}

#define UNTIL(r, cond) \
	do { \
		mono_t until_ = real_now() + DEADLINE_S * NS_PER_SEC; \
		while (!(cond)) { \
			ck_assert_msg(real_now() < until_, "never: " #cond "%s", last_end); \
			rig_turn(r); \
		} \
	} while (0)

/* Also makes sure that nothing more comes: a few turns with nothing to do. */
static inline void settle(struct rig *r)
{
	for (int i = 0; i < 20; i++)
		rig_turn(r);
}

/* Moves the clock as an engine's loop would see it: in small steps. */
static inline void let_pass(struct rig *r, uint32_t ms)
{
	for (uint32_t t = 0; t < ms; t += 50) {
		r->skew += mono_ms(50);
		rig_turn(r);
	}
}

static inline socklen_t any_addr(const struct medium *m, struct sockaddr_storage *sa)
{
	static int serial;

	memset(sa, 0, sizeof(*sa));
	sa->ss_family = (sa_family_t)m->family;
	if (m->family == AF_UNIX) {
		struct sockaddr_un *un = (struct sockaddr_un *)sa;

		snprintf(un->sun_path, sizeof(un->sun_path), "/tmp/tally-xport-%d-%d",
			 (int)getpid(), serial++);
		return sizeof(*un);
	}
	if (m->family == AF_INET) {
		((struct sockaddr_in *)sa)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(struct sockaddr_in);
	}
	((struct sockaddr_in6 *)sa)->sin6_addr = in6addr_loopback;
	return sizeof(struct sockaddr_in6);
}

/* As bytes behind the family's own fields; false: not of this family, or no address. */
static inline bool addr_parse(int family, const char *text, struct sockaddr_storage *sa)
{
	sa->ss_family = (sa_family_t)family;
	return inet_pton(family, text, family == AF_INET ?
			 (void *)&((struct sockaddr_in *)sa)->sin_addr :
			 (void *)&((struct sockaddr_in6 *)sa)->sin6_addr) == 1;
}

/* The first address of this machine that a device serves; link-local ones need more. */
static inline bool rdma_own_addr(int family, char addr[ADDR_LEN_MAX + 1])
{
	socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) :
			sizeof(struct sockaddr_in6);
	struct ifaddrs *all;
	char why[256];

	addr[0] = '\0';
	ck_assert_int_eq(getifaddrs(&all), 0);
	for (struct ifaddrs *i = all; i && !addr[0]; i = i->ifa_next)
		if (!i->ifa_addr || i->ifa_addr->sa_family != family ||
		    getnameinfo(i->ifa_addr, len, addr, ADDR_LEN_MAX, NULL, 0, NI_NUMERICHOST) ||
		    strchr(addr, '%') || !xport_rdma_serves(addr, why, sizeof(why)))
			addr[0] = '\0';
	freeifaddrs(all);
	return addr[0];
}

/* Addresses of the agent's and the server's card; false: there is none. */
static inline bool rdma_addrs(int family, char local[ADDR_LEN_MAX + 1],
			      char remote[ADDR_LEN_MAX + 1])
{
	const char *given = getenv("TALLY_TEST_RDMA");
	struct sockaddr_storage sa;
	char word[ADDR_LEN_MAX + 1];
	int n = 0, at = 0;

	if (!given) {
		strcpy(remote, rdma_own_addr(family, local) ? local : "");
		return local[0];
	}
	for (; n < 2 && sscanf(given, "%107s%n", word, &at) == 1; given += at)
		if (addr_parse(family, word, &sa))
			strcpy(n++ ? remote : local, word);
	return n == 2;
}

static inline bool listener_open(struct rig *r)
{
	struct sockaddr_storage sa;
	socklen_t len = any_addr(r->m, &sa);

	if (r->m->kind == XPORT_RDMA) {
		r->listener = -1;
		if (!rdma_addrs(r->m->family, r->addr.local, r->addr.remote) ||
		    !addr_parse(r->m->family, r->addr.remote, &sa))
			return false;
	}
	r->listener = socket(r->m->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->listener < 0 || bind(r->listener, (struct sockaddr *)&sa, len) < 0)
		return false;
	ck_assert_int_eq(listen(r->listener, 64), 0);
	ck_assert_int_eq(getsockname(r->listener, (struct sockaddr *)&sa, &len), 0);
	r->addr.kind = r->m->kind;
	if (r->m->family == AF_UNIX) {
		snprintf(r->addr.remote, sizeof(r->addr.remote), "%.*s", (int)ADDR_LEN_MAX,
			 ((struct sockaddr_un *)&sa)->sun_path);
	} else {
		if (r->m->host) {
			strcpy(r->addr.remote, r->m->host);
			strcpy(r->addr.local, r->m->host);
		}
		r->addr.port = ntohs(((struct sockaddr_in *)&sa)->sin_port);
	}
	return true;
}

/* False where this machine lacks the medium (no IPv6); said once per test. */
static inline bool rig_open(struct rig *r, int medium)
{
	memset(r, 0, sizeof(*r));
	last_end[0] = '\0';
	r->m = &media[medium];
	if (!listener_open(r)) {
		ck_assert_msg(r->m->family == AF_INET6 ||
			      (r->m->kind == XPORT_RDMA && !getenv("TALLY_TEST_RDMA")),
			      "%s must work", r->m->name);
		printf("%s is not here, left out\n", r->m->name);
		close(r->listener);
		return false;
	}
	side_open(&r->agent, r);
	side_open(&r->server, r);
	r->a.side = &r->agent;
	r->b.side = &r->server;
	return true;
}

static inline void link_room(struct link *l)
{
	l->room = aligned_alloc(PAGE_BYTES, ROOM_BYTES);
	memset(l->room, 0xee, ROOM_BYTES);
	ck_assert_int_eq(xport_region_new(&l->region, l->room, ROOM_BYTES, true, NULL), 0);
}

/* After its link has closed. */
static inline void link_free(struct link *l)
{
	for (uint32_t i = 0; i < LENT_MAX; i++)
		lend_put(l->lend[i]);
	xport_region_free(l->region);
	free(l->room);
}

static inline struct frame hello_frame(void)
{
	return (struct frame){ .type = FRAME_HELLO, .job = 5, .worker = 1, .tensor = 2,
			       .chunk = 3, .epoch = 9, .slot = 0x1122, .aux = FRAME_VERSION };
}

static inline struct frame welcome_for(const struct frame *h)
{
	return (struct frame){ .type = FRAME_WELCOME, .job = h->job, .worker = h->worker,
			       .tensor = h->tensor, .chunk = h->chunk, .epoch = h->epoch,
			       .aux = FRAME_VERSION };
}

static inline void connect_link(struct rig *r, struct link *l)
{
	struct frame hello = hello_frame();

	if (!l->room)
		link_room(l);
	l->side = &r->agent;
	ck_assert_int_eq(xport_connect(r->agent.g, &r->addr, &hello, l, real_now() + r->skew,
				       &l->ep, NULL), 0);
}

static inline void adopt_link(struct rig *r, struct link *l, int fd, const struct frame *hello)
{
	struct frame welcome = welcome_for(hello);

	if (!l->room)
		link_room(l);
	l->side = &r->server;
	ck_assert_int_eq(xport_adopt(r->server.g, fd, hello, &welcome, l, real_now() + r->skew,
				     &l->ep, NULL), 0);
}

/* Accepts like a listener does: HELLO first, then the engine gets the descriptor. */
static inline void accept_link(struct rig *r, struct link *l)
{
	struct xport_hello h = { .got = 0 };
	struct frame hello;
	int rc = TALLY_EAGAIN, fd = accept(r->listener, NULL, NULL);

	ck_assert_int_ge(fd, 0);
	UNTIL(r, (rc = xport_hello_read(&h, fd, &hello)) != TALLY_EAGAIN);
	ck_assert_int_eq(rc, 0);
	adopt_link(r, l, fd, &hello);
}

static inline bool rig_linked(struct rig *r, int medium)
{
	if (!rig_open(r, medium))
		return false;
	connect_link(r, &r->a);
	accept_link(r, &r->b);
	UNTIL(r, r->a.ups && r->b.ups);
	if (r->m->kind == XPORT_RDMA)
		UNTIL(r, xport_seen(r->a.ep, 0) && xport_seen(r->b.ep, 0));
	return true;
}

static inline void rig_close(struct rig *r)
{
	if (r->m->family == AF_UNIX)
		unlink(r->addr.remote);
	close(r->listener);
	xport_group_free(r->agent.g);
	xport_group_free(r->server.g);
	ck_assert_ptr_null(r->a.ep);
	ck_assert_ptr_null(r->b.ep);
	r->agent.g = r->server.g = NULL;
	link_free(&r->a);
	link_free(&r->b);
	for (struct lend *d = r->lends, *next; d; d = next) {
		next = d->next;
		xport_region_free(d->region);
		free(d);
	}
	close(r->agent.epfd);
	close(r->server.epfd);
}

/* ---- raw peers ---- */

static inline void raw_connect(struct rig *r, int *client, int *accepted)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	ck_assert_int_eq(getsockname(r->listener, (struct sockaddr *)&sa, &len), 0);
	*client = socket(r->m->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(*client, (struct sockaddr *)&sa, len), 0);
	*accepted = accept(r->listener, NULL, NULL);
	ck_assert_int_ge(*accepted, 0);
}

/* r->b is up; its peer is the plain socket returned, WELCOME still unread. */
static inline int raw_peer(struct rig *r)
{
	struct frame hello = hello_frame();
	int client, fd;

	raw_connect(r, &client, &fd);
	adopt_link(r, &r->b, fd, &hello);
	UNTIL(r, r->b.ups);
	return client;
}

static inline void raw_write(int fd, const void *p, size_t len)
{
	ck_assert_int_eq(send(fd, p, len, MSG_NOSIGNAL), (ssize_t)len);
}

static inline void raw_frame(int fd, const struct frame *f)
{
	uint8_t wire[FRAME_BYTES];

	frame_encode(f, wire);
	raw_write(fd, wire, sizeof(wire));
}

/* The next whole frame from a raw socket, turning the engines meanwhile. */
static inline struct frame raw_read(struct rig *r, int fd)
{
	uint8_t wire[FRAME_BYTES];
	size_t got = 0;
	struct frame f;

	while (got < sizeof(wire)) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		UNTIL(r, poll(&p, 1, 0) > 0);
		n = recv(fd, wire + got, sizeof(wire) - got, 0);
		ck_assert_int_gt(n, 0);
		got += (size_t)n;
	}
	ck_assert_int_eq(frame_decode(wire, &f), 0);
	return f;
}

/* ---- payloads ---- */

static inline uint8_t *pattern(uint32_t len, uint64_t seed)
{
	uint8_t *p = malloc(len + 8);
	struct rng g = { seed };

	for (uint32_t i = 0; i < len; i += 8) {
		uint64_t v = rng_u64(&g);

		memcpy(p + i, &v, 8);
	}
	return p;
}

static inline int send_call(struct link *l, const struct frame *f, const void *data,
			    uint64_t cookie)
{
	int rc;

	l->side->depth++;
	rc = xport_send(l->ep, f, data, cookie);
	l->side->depth--;
	return rc;
}

static inline void close_call(struct link *l, enum close_reason why)
{
	l->side->depth++;
	xport_close(l->ep, why);
	l->side->depth--;
}

static inline int send_small(struct link *l, uint32_t round)
{
	struct frame f = { .type = FRAME_PROBE, .round = round };

	return send_call(l, &f, NULL, 0);
}

static inline int send_push(struct link *l, const void *data, uint32_t len, uint32_t cookie)
{
	struct frame f = { .type = FRAME_PUSH, .dtype = DTYPE_U8, .length = len, .round = cookie,
			   .slot = (uintptr_t)data };
	bool lent = len > 0 && !xport_by_reference(l->ep);
	struct lend *d = NULL;
	int rc;

	if (lent && xport_takes_regions(l->ep)) {
		f.slot = SLOT_SLAB(0, GUARD);
		d = lend_get(l->side, &l->side->rig->lends, data, len);
	}
	rc = send_call(l, &f, lent ? data : NULL, cookie);
	if (rc == 0 && lent) {
		l->lent[cookie] = 1;
		l->lend[cookie] = d;
		l->n_lent++;
	} else {
		lend_put(d);
	}
	return rc;
}

static inline void guards_ok(const struct link *l, uint32_t len)
{
	for (int i = 0; i < GUARD; i++) {
		ck_assert_uint_eq(l->room[i], 0xee);
		ck_assert_uint_eq(l->room[GUARD + len + (uint32_t)i], 0xee);
	}
}

static inline int open_fds(void)
{
	DIR *d;
	int n = 0;
	char why[256];

	(void)xport_rdma_serves("::", why, sizeof(why));	/* opens devices, once for all */
	d = opendir("/proc/self/fd");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Runs what `add` puts into a test case; main() returns this. */
static inline int rig_main(const char *name, void (*add)(TCase *t))
{
	Suite *s = suite_create(name);
	TCase *t = tcase_create(name);
	SRunner *run = srunner_create(s);
	int failed;

	add(t);
	tcase_set_timeout(t, 240);
	suite_add_tcase(s, t);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}

#endif
