// SPDX-License-Identifier: Apache-2.0
/*
 * test_xport.c - what every transport promises, over every transport present.
 *
 * A rig is two groups in one process, an agent's and a server's, joined by one
 * link through a real listener.  rig_turn() is one turn of both engines' loops;
 * UNTIL() turns until a condition holds.  Raw tests replace one side by a plain
 * socket that says whatever it likes.  Time is the real clock plus a skew that
 * tests move at will.
 */
#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

static const struct medium {
	const char *name;
	int kind;
	int family;
	const char *host;
} media[] = {
	{ "tcp v4", XPORT_TCP, AF_INET, "127.0.0.1" },
	{ "tcp v6", XPORT_TCP, AF_INET6, "::1" },
	{ "shm", XPORT_SHM, AF_UNIX, "" },
};
#define MEDIA ((int)ARRAY_SIZE(media))

struct side;

struct link {
	struct side *side;
	struct xport_ep *ep;		/* NULL after closed() */
	uint32_t ups, closes, sents, got, places;
	enum close_reason why;
	struct err err;
	struct frame peer, last;
	const void *last_data;
	uint8_t lent[LENT_MAX];		/* by cookie: 1 while the transport has it */
	uint32_t n_lent;
	bool refuse;			/* place() and resolve() say NULL */
	uint8_t *room;			/* where payloads land; with guards */
	void (*on_up)(struct link *l);
	void (*on_place)(struct link *l);
	void (*on_deliver)(struct link *l, const struct frame *f, const void *data);
	void (*on_sent)(struct link *l, uint64_t cookie);
	void (*on_slab)(struct link *l, uint32_t id, int fd, uint64_t bytes);
	void *arg;
};

struct side {
	struct rig *rig;
	struct xport_group *g;
	int epfd;
	int depth;			/* calls into the group, callbacks among them */
	bool polling;
};

struct rig {
	const struct medium *m;
	struct side agent, server;
	struct link a, b;		/* the agent's and the server's end */
	int listener;
	struct xport_addr addr;
	mono_t skew;
};

static mono_t real_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (mono_t)t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

/* ---- callbacks ---- */

static void cb_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	struct link *l = xport_user(ep);

	ck_assert_ptr_eq(ctx, l->side);
	l->ups++;
	l->peer = *peer;
	if (l->on_up)
		l->on_up(l);
}

static void *cb_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert(!xport_by_reference(ep));
	ck_assert(frame_has_payload(f));
	l->places++;
	if (l->on_place)
		l->on_place(l);
	return l->refuse ? NULL : l->room + GUARD;
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

static void cb_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	l->got++;
	l->last = *f;
	l->last_data = data;
	if (l->on_deliver)
		l->on_deliver(l, f, data);
}

static void cb_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert_uint_gt(len, 0);
	ck_assert(l->side->polling);
	ck_assert_uint_eq(l->lent[cookie], 1);
	l->lent[cookie] = 0;
	l->n_lent--;
	l->sents++;
	if (l->on_sent)
		l->on_sent(l, cookie);
}

static void cb_slab(void *ctx, struct xport_ep *ep, uint32_t id, int fd, uint64_t bytes)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	if (l->on_slab)
		l->on_slab(l, id, fd, bytes);
	close(fd);
}

/* Comes from poll (or free) itself, once, and never from below another call. */
static void cb_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	struct link *l = xport_user(ep);

	(void)ctx;
	ck_assert_ptr_eq(l->ep, ep);
	ck_assert_int_eq(l->side->depth, 0);
	ck_assert_int_lt(e->code, 0);
	ck_assert_int_ne(e->text[0], 0);
	l->closes++;
	l->why = why;
	l->err = *e;
	l->ep = NULL;
}

static const struct xport_cb callbacks = {
	.up = cb_up,
	.place = cb_place,
	.resolve = cb_resolve,
	.deliver = cb_deliver,
	.sent = cb_sent,
	.slab = cb_slab,
	.closed = cb_closed,
};

/* ---- the rig ---- */

static void side_open(struct side *s, struct rig *r)
{
	s->rig = r;
	s->epfd = epoll_create1(EPOLL_CLOEXEC);
	ck_assert_int_ge(s->epfd, 0);
	ck_assert_int_eq(xport_group_new(&s->g, s->epfd, &callbacks, s, NULL), 0);
}

static mono_t side_turn(struct side *s)
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

static void rig_turn(struct rig *r)
{
	side_turn(&r->agent);
	side_turn(&r->server);
}

#define UNTIL(r, cond) \
	do { \
		mono_t until_ = real_now() + DEADLINE_S * NS_PER_SEC; \
		while (!(cond)) { \
			ck_assert_msg(real_now() < until_, "never: " #cond); \
			rig_turn(r); \
		} \
	} while (0)

/* Also makes sure that nothing more comes: a few turns with nothing to do. */
static void settle(struct rig *r)
{
	for (int i = 0; i < 20; i++)
		rig_turn(r);
}

/* Moves the clock as an engine's loop would see it: in small steps. */
static void let_pass(struct rig *r, uint32_t ms)
{
	for (uint32_t t = 0; t < ms; t += 50) {
		r->skew += mono_ms(50);
		rig_turn(r);
	}
}

static socklen_t any_addr(const struct medium *m, struct sockaddr_storage *sa)
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

static bool listener_open(struct rig *r)
{
	struct sockaddr_storage sa;
	socklen_t len = any_addr(r->m, &sa);

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
		strcpy(r->addr.remote, r->m->host);
		strcpy(r->addr.local, r->m->host);
		r->addr.port = ntohs(((struct sockaddr_in *)&sa)->sin_port);
	}
	return true;
}

/* False where this machine lacks the medium (no IPv6); said once per test. */
static bool rig_open(struct rig *r, int medium)
{
	memset(r, 0, sizeof(*r));
	r->m = &media[medium];
	if (!listener_open(r)) {
		ck_assert_msg(r->m->family == AF_INET6, "%s must work", r->m->name);
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

static void link_room(struct link *l)
{
	l->room = malloc(SEG_BYTES_MAX + 2 * GUARD);
	memset(l->room, 0xee, SEG_BYTES_MAX + 2 * GUARD);
}

static struct frame hello_frame(void)
{
	return (struct frame){ .type = FRAME_HELLO, .job = 5, .worker = 1, .tensor = 2,
			       .chunk = 3, .epoch = 9, .slot = 0x1122, .aux = FRAME_VERSION };
}

static struct frame welcome_for(const struct frame *h)
{
	return (struct frame){ .type = FRAME_WELCOME, .job = h->job, .worker = h->worker,
			       .tensor = h->tensor, .chunk = h->chunk, .epoch = h->epoch,
			       .aux = FRAME_VERSION };
}

static void connect_link(struct rig *r, struct link *l)
{
	struct frame hello = hello_frame();

	if (!l->room)
		link_room(l);
	l->side = &r->agent;
	ck_assert_int_eq(xport_connect(r->agent.g, &r->addr, &hello, l, real_now() + r->skew,
				       &l->ep, NULL), 0);
}

static void adopt_link(struct rig *r, struct link *l, int fd, const struct frame *hello)
{
	struct frame welcome = welcome_for(hello);

	if (!l->room)
		link_room(l);
	l->side = &r->server;
	ck_assert_int_eq(xport_adopt(r->server.g, fd, hello, &welcome, l, real_now() + r->skew,
				     &l->ep, NULL), 0);
}

/* Accepts like a listener does: HELLO first, then the engine gets the descriptor. */
static void accept_link(struct rig *r, struct link *l)
{
	struct xport_hello h = { .got = 0 };
	struct frame hello;
	int rc = TALLY_EAGAIN, fd = accept(r->listener, NULL, NULL);

	ck_assert_int_ge(fd, 0);
	UNTIL(r, (rc = xport_hello_read(&h, fd, &hello)) != TALLY_EAGAIN);
	ck_assert_int_eq(rc, 0);
	adopt_link(r, l, fd, &hello);
}

static bool rig_linked(struct rig *r, int medium)
{
	if (!rig_open(r, medium))
		return false;
	connect_link(r, &r->a);
	accept_link(r, &r->b);
	UNTIL(r, r->a.ups && r->b.ups);
	return true;
}

static void rig_close(struct rig *r)
{
	if (r->m->family == AF_UNIX)
		unlink(r->addr.remote);
	close(r->listener);
	xport_group_free(r->agent.g);
	xport_group_free(r->server.g);
	ck_assert_ptr_null(r->a.ep);
	ck_assert_ptr_null(r->b.ep);
	close(r->agent.epfd);
	close(r->server.epfd);
	free(r->a.room);
	free(r->b.room);
}

/* ---- raw peers ---- */

static void raw_connect(struct rig *r, int *client, int *accepted)
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
static int raw_peer(struct rig *r)
{
	struct frame hello = hello_frame();
	int client, fd;

	raw_connect(r, &client, &fd);
	adopt_link(r, &r->b, fd, &hello);
	UNTIL(r, r->b.ups);
	return client;
}

static void raw_write(int fd, const void *p, size_t len)
{
	ck_assert_int_eq(send(fd, p, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void raw_frame(int fd, const struct frame *f)
{
	uint8_t wire[FRAME_BYTES];

	frame_encode(f, wire);
	raw_write(fd, wire, sizeof(wire));
}

/* The next whole frame from a raw socket, turning the engines meanwhile. */
static struct frame raw_read(struct rig *r, int fd)
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

static uint8_t *pattern(uint32_t len, uint64_t seed)
{
	uint8_t *p = malloc(len + 8);
	struct rng g = { seed };

	for (uint32_t i = 0; i < len; i += 8) {
		uint64_t v = rng_u64(&g);

		memcpy(p + i, &v, 8);
	}
	return p;
}

static int send_call(struct link *l, const struct frame *f, const void *data, uint64_t cookie)
{
	int rc;

	l->side->depth++;
	rc = xport_send(l->ep, f, data, cookie);
	l->side->depth--;
	return rc;
}

static void close_call(struct link *l, enum close_reason why)
{
	l->side->depth++;
	xport_close(l->ep, why);
	l->side->depth--;
}

static int send_small(struct link *l, uint32_t round)
{
	struct frame f = { .type = FRAME_PROBE, .round = round };

	return send_call(l, &f, NULL, 0);
}

static int send_push(struct link *l, const void *data, uint32_t len, uint32_t cookie)
{
	struct frame f = { .type = FRAME_PUSH, .dtype = DTYPE_U8, .length = len, .round = cookie,
			   .slot = (uintptr_t)data };
	bool lent = len > 0 && !xport_by_reference(l->ep);
	int rc = send_call(l, &f, lent ? data : NULL, cookie);

	if (rc == 0 && lent) {
		l->lent[cookie] = 1;
		l->n_lent++;
	}
	return rc;
}

static void guards_ok(const struct link *l, uint32_t len)
{
	for (int i = 0; i < GUARD; i++) {
		ck_assert_uint_eq(l->room[i], 0xee);
		ck_assert_uint_eq(l->room[GUARD + len + (uint32_t)i], 0xee);
	}
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---- life ---- */

START_TEST(handshake_brings_both_up_and_shows_the_peer)
{
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	settle(&r);
	ck_assert_uint_eq(r.a.ups, 1);
	ck_assert_uint_eq(r.b.ups, 1);
	ck_assert_uint_eq(r.a.peer.type, FRAME_WELCOME);
	ck_assert_uint_eq(r.b.peer.type, FRAME_HELLO);
	ck_assert_uint_eq(r.b.peer.slot, 0x1122);
	ck_assert_str_eq(xport_kind_name(r.a.ep), _i == 2 ? "shm" : "tcp");
	ck_assert(xport_by_reference(r.a.ep) == (_i == 2));
	rig_close(&r);
	ck_assert_int_eq(r.a.why, CLOSE_LOCAL);
	ck_assert_uint_eq(r.a.closes, 1);
	ck_assert_uint_eq(r.b.closes, 1);
}
END_TEST

START_TEST(send_before_up_says_shutdown)
{
	struct rig r;

	if (!rig_open(&r, _i))
		return;
	connect_link(&r, &r.a);
	ck_assert_int_eq(send_small(&r.a, 1), TALLY_ESHUTDOWN);
	close_call(&r.a, CLOSE_LOCAL);
	ck_assert_int_eq(send_small(&r.a, 1), TALLY_ESHUTDOWN);
	close_call(&r.a, CLOSE_EOF);	/* harmless, changes nothing */
	ck_assert_uint_eq(r.a.closes, 0);
	rig_turn(&r);
	ck_assert_uint_eq(r.a.closes, 1);
	ck_assert_int_eq(r.a.why, CLOSE_LOCAL);
	rig_close(&r);
}
END_TEST

START_TEST(late_and_foreign_events_are_harmless)
{
	struct rig r;
	struct epoll_event ev;
	int mine;

	if (!rig_linked(&r, _i))
		return;
	send_small(&r.a, 1);
	UNTIL(&r, (side_turn(&r.agent), epoll_wait(r.server.epfd, &ev, 1, 0)) == 1);
	close_call(&r.b, CLOSE_LOCAL);
	ck_assert(xport_event(r.server.g, ev.data.ptr, ev.events));
	side_turn(&r.server);
	ck_assert_uint_eq(r.b.closes, 1);
	ck_assert(xport_event(r.server.g, ev.data.ptr, ev.events));
	ck_assert_uint_eq(r.b.got, 0);
	ck_assert(!xport_event(r.server.g, &mine, EPOLLIN));
	ck_assert(!xport_event(r.server.g, NULL, EPOLLIN));
	rig_close(&r);
}
END_TEST

/* ---- frames ---- */

static void expect_next_round(struct link *l, const struct frame *f, const void *data)
{
	ck_assert_ptr_null(data);
	ck_assert_uint_eq(f->round, l->got);
}

START_TEST(frames_arrive_in_order)
{
	struct rig r;
	uint32_t n = 1;

	if (!rig_linked(&r, _i))
		return;
	r.b.on_deliver = expect_next_round;
	while (n <= 20000) {
		if (send_small(&r.a, n) == 0)
			n++;
		else
			rig_turn(&r);
	}
	UNTIL(&r, r.b.got == 20000);
	ck_assert_uint_eq(xport_queued(r.a.ep), 0);
	ck_assert_uint_eq(xport_queued_bytes(r.a.ep), 0);
	rig_close(&r);
}
END_TEST

START_TEST(payloads_of_any_size_arrive_whole)
{
	static const uint32_t sizes[] = { 0, 1, 63, 64, 65, 4095, 4096, 65537, 131072,
					  XPORT_TURN_BYTES - 1, XPORT_TURN_BYTES + 3,
					  SEG_BYTES_MAX };
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint8_t *p = pattern(sizes[i], i);

		memset(r.b.room, 0xee, SEG_BYTES_MAX + 2 * GUARD);
		ck_assert_int_eq(send_push(&r.a, p, sizes[i], i), 0);
		UNTIL(&r, r.b.got == i + 1 && r.a.n_lent == 0);
		ck_assert_uint_eq(r.b.last.length, sizes[i]);
		if (sizes[i] == 0)
			ck_assert_ptr_null(r.b.last_data);
		else
			ck_assert_int_eq(memcmp(r.b.last_data, p, sizes[i]), 0);
		if (_i != 2)
			guards_ok(&r.b, sizes[i]);
		free(p);
	}
	rig_close(&r);
}
END_TEST

START_TEST(reference_arrives_as_the_senders_address)
{
	struct rig r;
	uint8_t data[512];

	ck_assert(rig_linked(&r, 2));
	ck_assert_int_eq(send_push(&r.a, data, sizeof(data), 1), 0);
	UNTIL(&r, r.b.got == 1);
	ck_assert_ptr_eq(r.b.last_data, data);
	ck_assert_uint_eq(r.b.last.flags, FRAME_BYREF);
	ck_assert_uint_eq(r.a.sents, 0);
	rig_close(&r);
}
END_TEST

START_TEST(nodata_push_comes_without_payload)
{
	struct frame f = { .type = FRAME_PUSH, .flags = FRAME_NODATA, .length = 4096 };
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	ck_assert_int_eq(send_call(&r.a, &f, NULL, 0), 0);
	UNTIL(&r, r.b.got == 1);
	ck_assert_ptr_null(r.b.last_data);
	ck_assert_uint_eq(r.b.places, 0);
	ck_assert_uint_eq(r.b.last.length, 4096);
	rig_close(&r);
}
END_TEST

START_TEST(full_queue_says_again_and_takes_nothing)
{
	struct rig r;
	uint8_t *p = pattern(1000, 1);
	uint32_t n = 0;

	if (!rig_linked(&r, _i)) {
		free(p);
		return;
	}
	while (send_push(&r.a, p, 1000, n) == 0)
		n++;
	ck_assert_uint_eq(n, XPORT_QUEUE);
	ck_assert_int_eq(send_push(&r.a, p, 1000, n), TALLY_EAGAIN);
	ck_assert_uint_eq(xport_queued(r.a.ep), XPORT_QUEUE);
	ck_assert_uint_eq(xport_queued_bytes(r.a.ep),
			  XPORT_QUEUE * (FRAME_BYTES + (_i == 2 ? 0u : 1000u)));
	UNTIL(&r, r.b.got == n && r.a.n_lent == 0);
	ck_assert_int_eq(send_push(&r.a, p, 1000, n), 0);
	UNTIL(&r, r.b.got == n + 1);
	ck_assert_uint_eq(r.a.sents, _i == 2 ? 0 : n + 1);
	rig_close(&r);
	free(p);
}
END_TEST

START_TEST(refused_payload_is_thrown_away_and_the_stream_goes_on)
{
	struct rig r;
	uint8_t *p = pattern(SEG_BYTES_MAX, 3);

	if (!rig_linked(&r, _i)) {
		free(p);
		return;
	}
	r.b.refuse = true;
	ck_assert_int_eq(send_push(&r.a, p, 777, 0), 0);
	ck_assert_int_eq(send_push(&r.a, p, SEG_BYTES_MAX, 1), 0);
	ck_assert_int_eq(send_small(&r.a, 42), 0);
	UNTIL(&r, r.b.got == 1);
	ck_assert_uint_eq(r.b.last.round, 42);
	ck_assert_uint_eq(r.b.places, 2);
	r.b.refuse = false;
	ck_assert_int_eq(send_push(&r.a, p, 777, 2), 0);
	UNTIL(&r, r.b.got == 2 && r.a.n_lent == 0);
	ck_assert_int_eq(memcmp(r.b.last_data, p, 777), 0);
	rig_close(&r);
	free(p);
}
END_TEST

static void refill(struct link *l, uint64_t cookie)
{
	if (cookie + 1 < 200)
		ck_assert_int_eq(send_push(l, l->arg, 5000, (uint32_t)cookie + 1), 0);
}

START_TEST(sent_may_send_again)
{
	struct rig r;
	uint8_t *p = pattern(5000, 9);

	ck_assert(rig_linked(&r, 0));
	r.a.on_sent = refill;
	r.a.arg = p;
	ck_assert_int_eq(send_push(&r.a, p, 5000, 0), 0);
	UNTIL(&r, r.b.got == 200 && r.a.sents == 200);
	rig_close(&r);
	free(p);
}
END_TEST

START_TEST(two_links_carry_both_ways_at_once)
{
	static struct rig r;
	static struct link a2, b2;
	uint8_t *p = pattern(300000, 4);
	struct link *all[] = { &r.a, &r.b, &a2, &b2 };

	memset(&a2, 0, sizeof(a2));
	memset(&b2, 0, sizeof(b2));
	if (!rig_linked(&r, _i)) {
		free(p);
		return;
	}
	connect_link(&r, &a2);
	accept_link(&r, &b2);
	UNTIL(&r, a2.ups && b2.ups);
	for (uint32_t i = 0; i < 50; i++)
		for (int k = 0; k < 4; k++)
			ck_assert_int_eq(send_push(all[k], p, 300000, i), 0);
	for (int k = 0; k < 4; k++) {
		UNTIL(&r, all[k]->got == 50 && all[k]->n_lent == 0);
		ck_assert_int_eq(memcmp(all[k]->last_data, p, 300000), 0);
	}
	rig_close(&r);
	ck_assert_uint_eq(a2.closes + b2.closes, 2);
	free(a2.room);
	free(b2.room);
	free(p);
}
END_TEST

START_TEST(one_flood_does_not_keep_others_waiting)
{
	static struct rig r;
	static struct link b2;
	struct frame hello = hello_frame(), push = { .type = FRAME_PUSH, .length = 65536 };
	uint8_t *p = pattern(65536, 4);
	int flood, quiet, fd;
	ssize_t n = 1;

	memset(&b2, 0, sizeof(b2));
	ck_assert(rig_open(&r, 0));
	flood = raw_peer(&r);
	raw_connect(&r, &quiet, &fd);
	adopt_link(&r, &b2, fd, &hello);
	UNTIL(&r, b2.ups);
	fcntl(flood, F_SETFL, O_NONBLOCK);
	while (n > 0) {		/* fill the kernel's buffers; the last frame may be cut */
		uint8_t wire[FRAME_BYTES];

		frame_encode(&push, wire);
		n = send(flood, wire, sizeof(wire), MSG_NOSIGNAL | MSG_MORE);
		if (n > 0)
			n = send(flood, p, 65536, MSG_NOSIGNAL);
		n = n == 65536;
	}
	raw_frame(quiet, &(struct frame){ .type = FRAME_PROBE });
	UNTIL(&r, b2.got == 1);
	ck_assert_uint_le(r.b.got, 2 * XPORT_TURN_BYTES / 65536);
	close(flood);
	close(quiet);
	rig_close(&r);
	free(b2.room);
	free(p);
}
END_TEST

/* ---- borrowed payloads ---- */

static void close_at_fifth(struct link *l, uint64_t cookie)
{
	if (cookie == 5)
		close_call(l, CLOSE_LOCAL);
}

/* what: 0 the sender closes, 1 the receiver closes, 2 the sender in sent() */
static void lend_and_close(int medium, int what)
{
	struct rig r;
	uint8_t *p = pattern(SEG_BYTES_MAX, 5);

	if (!rig_linked(&r, medium)) {
		free(p);
		return;
	}
	if (what == 2)
		r.a.on_sent = close_at_fifth;
	for (uint32_t i = 0; i < 50; i++)
		ck_assert_int_eq(send_push(&r.a, p, what == 2 ? 1000 : SEG_BYTES_MAX, i), 0);
	if (what == 0)
		UNTIL(&r, r.b.got == 2);
	if (what == 1)
		UNTIL(&r, r.b.got == 3);
	if (what < 2)
		close_call(what == 0 ? &r.a : &r.b, CLOSE_LOCAL);
	UNTIL(&r, r.a.closes == 1 && r.b.closes == 1);
	settle(&r);
	ck_assert_uint_eq(r.a.sents + r.a.n_lent, 50);
	ck_assert_uint_gt(r.a.n_lent, 0);
	rig_close(&r);
	free(p);
}

START_TEST(closed_gives_back_what_sent_has_not)
{
	lend_and_close(_i / 3, _i % 3);
}
END_TEST

/* ---- closing from inside callbacks ---- */

static void close_self(struct link *l)
{
	close_call(l, CLOSE_LOCAL);
}

static void close_in_deliver(struct link *l, const struct frame *f, const void *data)
{
	(void)f;
	(void)data;
	close_call(l->arg ? l->arg : l, CLOSE_LOCAL);
}

START_TEST(closing_in_up_is_safe)
{
	struct rig r;

	if (!rig_open(&r, _i))
		return;
	r.b.on_up = close_self;
	connect_link(&r, &r.a);
	accept_link(&r, &r.b);
	UNTIL(&r, r.a.closes == 1 && r.b.closes == 1);
	rig_close(&r);
}
END_TEST

START_TEST(closing_in_place_or_resolve_is_safe)
{
	struct rig r;
	uint8_t *p = pattern(200000, 5);

	if (!rig_linked(&r, _i)) {
		free(p);
		return;
	}
	r.b.on_place = close_self;
	send_push(&r.a, p, 100, 0);
	send_push(&r.a, p, 200000, 1);
	UNTIL(&r, r.b.closes == 1 && r.a.closes == 1);
	ck_assert_uint_eq(r.b.got, 0);
	ck_assert_uint_eq(r.b.places, 1);
	rig_close(&r);
	free(p);
}
END_TEST

START_TEST(closing_in_deliver_stops_the_batch)
{
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	r.b.on_deliver = close_in_deliver;
	for (uint32_t i = 0; i < 100; i++)
		send_small(&r.a, i);
	UNTIL(&r, r.b.closes == 1 && r.a.closes == 1);
	ck_assert_uint_eq(r.b.got, 1);
	rig_close(&r);
}
END_TEST

START_TEST(closing_another_link_in_deliver_is_safe)
{
	static struct rig r;
	static struct link a2, b2;

	memset(&a2, 0, sizeof(a2));
	memset(&b2, 0, sizeof(b2));
	if (!rig_linked(&r, _i))
		return;
	connect_link(&r, &a2);
	accept_link(&r, &b2);
	UNTIL(&r, a2.ups && b2.ups);
	r.b.on_deliver = close_in_deliver;
	r.b.arg = &b2;
	send_small(&r.a, 1);
	send_small(&a2, 1);
	side_turn(&r.agent);
	UNTIL(&r, b2.closes == 1 && a2.closes == 1 && r.b.got == 1);
	ck_assert_uint_eq(r.b.closes, 0);
	rig_close(&r);
	free(a2.room);
	free(b2.room);
}
END_TEST

/* ---- why links end ---- */

START_TEST(nobody_there_is_refused)
{
	struct rig r;

	if (!rig_open(&r, _i))
		return;
	if (r.m->family == AF_UNIX)
		unlink(r.addr.remote);
	shutdown(r.listener, SHUT_RDWR);
	close(r.listener);
	r.listener = open("/dev/null", O_RDONLY);
	connect_link(&r, &r.a);
	ck_assert_uint_eq(r.a.closes, 0);
	UNTIL(&r, r.a.closes == 1);
	ck_assert_int_eq(r.a.why, CLOSE_REFUSED);
	ck_assert_ptr_nonnull(strstr(r.a.err.text, r.addr.remote));
	rig_close(&r);
}
END_TEST

START_TEST(bad_addresses_are_einval)
{
	static const struct xport_addr bad[] = {
		{ .kind = XPORT_TCP, .remote = "no.such.name", .port = 1 },
		{ .kind = XPORT_TCP, .remote = "", .port = 1 },
		{ .kind = XPORT_TCP, .remote = "127.0.0.1", .local = "::1", .port = 1 },
		{ .kind = XPORT_TCP, .remote = "127.0.0.1", .local = "x", .port = 1 },
		{ .kind = XPORT_SHM, .remote = "" },
	};
	struct frame hello = hello_frame();
	int before = open_fds();
	struct rig r;
	struct err e;

	ck_assert(rig_open(&r, 0));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(xport_connect(r.agent.g, &bad[i], &hello, &r.a, 0, &r.a.ep, &e),
				 TALLY_EINVAL);
		ck_assert_int_ne(e.text[0], 0);
		ck_assert_ptr_null(r.a.ep);
	}
	rig_close(&r);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(foreign_source_address_is_unreachable)
{
	struct rig r;

	ck_assert(rig_open(&r, 0));
	strcpy(r.addr.local, "192.0.2.77");
	connect_link(&r, &r.a);
	UNTIL(&r, r.a.closes == 1);
	ck_assert_int_eq(r.a.why, CLOSE_UNREACHABLE);
	rig_close(&r);
}
END_TEST

START_TEST(peers_close_is_eof)
{
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	send_small(&r.a, 1);
	side_turn(&r.agent);
	close_call(&r.a, CLOSE_LOCAL);
	UNTIL(&r, r.b.closes == 1);
	ck_assert_uint_eq(r.b.got, 1);	/* what came before the end counts */
	ck_assert_int_eq(r.b.why, CLOSE_EOF);
	rig_close(&r);
}
END_TEST

START_TEST(cut_inside_a_frame_is_reset)
{
	struct frame push = { .type = FRAME_PUSH, .length = 5000 };
	struct frame probe = { .type = FRAME_PROBE };
	uint8_t wire[FRAME_BYTES + 1000] = { 0 };
	struct rig r;
	int fd;

	if (!rig_open(&r, _i))
		return;
	fd = raw_peer(&r);
	raw_read(&r, fd);	/* or the unread WELCOME makes TCP's close a reset */
	frame_encode(_i == 2 ? &probe : &push, wire);
	raw_write(fd, wire, _i == 2 ? 63 : sizeof(wire));
	close(fd);
	UNTIL(&r, r.b.closes == 1);
	ck_assert_int_eq(r.b.why, CLOSE_RESET);
	ck_assert_uint_eq(r.b.got, 0);
	rig_close(&r);
}
END_TEST

START_TEST(killed_peer_is_noticed)
{
	struct rig r;
	int fd;
	pid_t child;

	if (!rig_open(&r, _i))
		return;
	fd = raw_peer(&r);
	raw_read(&r, fd);
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	close(fd);
	settle(&r);
	ck_assert_uint_eq(r.b.closes, 0);
	kill(child, SIGKILL);
	UNTIL(&r, r.b.closes == 1);
	ck_assert_int_eq(r.b.why, CLOSE_EOF);
	waitpid(child, NULL, 0);
	rig_close(&r);
}
END_TEST

START_TEST(tcp_reset_is_reset)
{
	struct linger now = { .l_onoff = 1 };
	struct rig r;
	int fd;

	ck_assert(rig_open(&r, 0));
	fd = raw_peer(&r);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
	UNTIL(&r, r.b.closes == 1);
	ck_assert_int_eq(r.b.why, CLOSE_RESET);
	rig_close(&r);
}
END_TEST

/* Whatever the 64 bytes are, only this link ends, and with this reason. */
static void raw_bytes_close(int medium, const uint8_t wire[FRAME_BYTES], enum close_reason why)
{
	struct rig r;
	int fd;

	if (!rig_open(&r, medium))
		return;
	fd = raw_peer(&r);
	raw_frame(fd, &(struct frame){ .type = FRAME_PROBE });
	raw_write(fd, wire, FRAME_BYTES);
	raw_frame(fd, &(struct frame){ .type = FRAME_PROBE });
	UNTIL(&r, r.b.closes == 1);
	ck_assert_int_eq(r.b.why, why);
	ck_assert_uint_eq(r.b.got, 1);
	close(fd);
	rig_close(&r);
}

START_TEST(garbage_is_bad_frame)
{
	uint8_t wire[FRAME_BYTES];

	memset(wire, 0xa5, sizeof(wire));
	raw_bytes_close(_i, wire, CLOSE_BAD_FRAME);
	frame_encode(&(struct frame){ .type = FRAME_PROBE }, wire);
	wire[30] ^= 1;
	raw_bytes_close(_i, wire, CLOSE_BAD_FRAME);
}
END_TEST

START_TEST(other_version_is_version)
{
	uint8_t wire[FRAME_BYTES];

	frame_encode(&(struct frame){ .type = FRAME_PROBE }, wire);
	wire[4] = FRAME_VERSION + 1;
	raw_bytes_close(_i, wire, CLOSE_VERSION);
}
END_TEST

START_TEST(frames_out_of_place_are_bad_frames)
{
	const struct frame bad[] = {
		hello_frame(),
		welcome_for(&bad[0]),
		{ .type = FRAME_SLAB, .slot = 1, .rslot = 4096 },	/* no descriptor */
		{ .type = FRAME_PUSH, .length = 100, .flags = _i == 2 ? 0 : FRAME_BYREF },
	};
	uint8_t wire[FRAME_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		frame_encode(&bad[i], wire);
		raw_bytes_close(_i, wire, CLOSE_BAD_FRAME);
	}
}
END_TEST

/* A raw server: takes r->a's connection, reads its HELLO, answers at will. */
static int raw_server(struct rig *r, struct frame *hello)
{
	int fd;

	connect_link(r, &r->a);
	fd = accept(r->listener, NULL, NULL);
	*hello = raw_read(r, fd);
	return fd;
}

START_TEST(wrong_answers_to_hello_end_the_handshake)
{
	static const enum close_reason why[] = { CLOSE_HANDSHAKE, CLOSE_HANDSHAKE,
						 CLOSE_HANDSHAKE, CLOSE_VERSION,
						 CLOSE_HANDSHAKE };

	for (size_t i = 0; i < ARRAY_SIZE(why); i++) {
		struct frame hello, answer;
		struct rig r;
		int fd;

		if (!rig_open(&r, _i))
			return;
		fd = raw_server(&r, &hello);
		answer = welcome_for(&hello);
		if (i == 0)
			answer.epoch++;
		if (i == 1)
			answer = (struct frame){ .type = FRAME_PROBE };
		if (i == 2)
			answer = (struct frame){ .type = FRAME_REFUSED, .aux = 16 };
		if (i == 3)
			answer.aux = FRAME_VERSION + 1;
		if (i < 4)
			raw_frame(fd, &answer);
		else
			close(fd);
		UNTIL(&r, r.a.closes == 1);
		ck_assert_int_eq(r.a.why, why[i]);
		ck_assert_uint_eq(r.a.ups, 0);
		if (i < 4)
			close(fd);
		rig_close(&r);
	}
}
END_TEST

START_TEST(silent_listener_times_out)
{
	struct frame hello;
	struct rig r;
	int fd;

	if (!rig_open(&r, _i))
		return;
	fd = raw_server(&r, &hello);
	let_pass(&r, HANDSHAKE_MS - 1000);
	ck_assert_uint_eq(r.a.closes, 0);
	let_pass(&r, 1500);
	ck_assert_uint_eq(r.a.closes, 1);
	ck_assert_int_eq(r.a.why, CLOSE_TIMEOUT);
	close(fd);
	rig_close(&r);
}
END_TEST

START_TEST(silent_peer_is_asked_and_then_given_up)
{
	struct rig r;
	int fd;

	if (!rig_open(&r, _i))
		return;
	fd = raw_peer(&r);
	ck_assert_uint_eq(raw_read(&r, fd).type, FRAME_WELCOME);
	let_pass(&r, LINK_PING_MS + 300);
	ck_assert_uint_eq(raw_read(&r, fd).type, FRAME_PING);
	raw_frame(fd, &(struct frame){ .type = FRAME_PONG });
	settle(&r);
	let_pass(&r, LINK_DEAD_MS - 300);
	ck_assert_uint_eq(r.b.closes, 0);
	let_pass(&r, 900);
	ck_assert_uint_eq(r.b.closes, 1);
	ck_assert_int_eq(r.b.why, CLOSE_TIMEOUT);
	ck_assert_uint_eq(r.b.got, 0);	/* PONG is the transport's own */
	close(fd);
	rig_close(&r);
}
END_TEST

START_TEST(idle_links_stay_up)
{
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	for (int i = 0; i < 20; i++) {
		let_pass(&r, 1000);
		settle(&r);
	}
	ck_assert_uint_eq(r.a.closes + r.b.closes, 0);
	ck_assert_uint_eq(r.a.got + r.b.got, 0);
	rig_close(&r);
}
END_TEST

START_TEST(our_own_stall_is_not_the_peers_silence)
{
	struct rig r;
	int fd;

	if (!rig_open(&r, _i))
		return;
	fd = raw_peer(&r);
	let_pass(&r, LINK_PING_MS + 500);
	r.skew += mono_ms(60000);
	rig_turn(&r);
	let_pass(&r, LINK_PING_MS);
	ck_assert_uint_eq(r.b.closes, 0);
	close(fd);
	rig_close(&r);
}
END_TEST

START_TEST(poll_says_when_it_is_needed_again)
{
	struct rig r;
	mono_t now;

	ck_assert(rig_linked(&r, 0));
	settle(&r);
	now = real_now();
	ck_assert_int_gt(xport_poll(r.agent.g, now), now);
	ck_assert_int_le(xport_poll(r.agent.g, now), now + mono_ms(LINK_PING_MS));
	send_small(&r.a, 1);
	close_call(&r.b, CLOSE_LOCAL);
	UNTIL(&r, r.a.closes && r.b.closes);
	ck_assert_int_eq(xport_poll(r.agent.g, now), MONO_NEVER);
	rig_close(&r);
}
END_TEST

START_TEST(unacked_bytes_follow_the_peer)
{
	uint8_t *p = pattern(SEG_BYTES_MAX, 8);
	struct rig r;
	char buf[65536];
	int fd;

	ck_assert(rig_open(&r, 0));
	fd = raw_peer(&r);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(send_push(&r.b, p, SEG_BYTES_MAX, i), 0);
	UNTIL(&r, xport_unacked_bytes(r.b.ep) > 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	UNTIL(&r, (recv(fd, buf, sizeof(buf), 0), r.b.n_lent == 0));
	UNTIL(&r, (recv(fd, buf, sizeof(buf), 0), xport_unacked_bytes(r.b.ep) == 0));
	close(fd);
	rig_close(&r);
	free(p);
}
END_TEST

/* ---- slabs ---- */

static int numbered_memfd(uint32_t id)
{
	int fd = memfd_create("slab", MFD_CLOEXEC);

	ck_assert_int_eq(pwrite(fd, &id, sizeof(id), 0), sizeof(id));
	return fd;
}

static void check_slab(struct link *l, uint32_t id, int fd, uint64_t bytes)
{
	uint32_t inside, *next = l->arg;

	ck_assert_int_eq(pread(fd, &inside, sizeof(inside), 0), sizeof(inside));
	ck_assert_uint_eq(inside, id);
	ck_assert_uint_eq(bytes, 4096 + id);
	ck_assert_uint_eq(id, *next);
	ck_assert_uint_eq(l->got, id * 3);	/* in order with the frames around */
	(*next)++;
}

START_TEST(slabs_come_in_order_with_their_descriptors)
{
	int before = open_fds();
	uint32_t seen = 0;
	struct rig r;

	ck_assert(rig_linked(&r, 2));
	r.b.on_slab = check_slab;
	r.b.arg = &seen;
	for (uint32_t i = 0; i < 200; i++) {
		int fd = numbered_memfd(i);

		ck_assert_int_eq(xport_send_slab(r.a.ep, i, fd, 4096 + i), 0);
		close(fd);
		for (int k = 0; k < 3; k++)
			ck_assert_int_eq(send_small(&r.a, i), 0);
	}
	UNTIL(&r, seen == 200 && r.b.got == 600);
	rig_close(&r);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(slabs_have_a_limit)
{
	struct rig r;
	int fd = numbered_memfd(0), rc;

	ck_assert(rig_linked(&r, 2));
	for (uint32_t i = 0; i < SLABS_PER_LINK_MAX; i++) {
		ck_assert_int_eq(xport_send_slab(r.a.ep, i, fd, 4096), 0);
		if (i % 32 == 0)
			UNTIL(&r, xport_queued(r.a.ep) == 0);
	}
	rc = xport_send_slab(r.a.ep, 1, fd, 4096);
	ck_assert_int_eq(rc, TALLY_EQUOTA);
	UNTIL(&r, xport_queued(r.a.ep) == 0);
	settle(&r);
	ck_assert_uint_eq(r.b.closes, 0);
	rig_close(&r);
	close(fd);
}
END_TEST

START_TEST(slabs_unsent_at_close_leak_nothing)
{
	int before = open_fds(), fd;
	struct rig r;

	ck_assert(rig_linked(&r, 2));
	fd = numbered_memfd(0);
	for (uint32_t i = 0; i < 50; i++)
		ck_assert_int_eq(xport_send_slab(r.a.ep, i, fd, 4096), 0);
	close(fd);
	rig_close(&r);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(slabs_do_not_go_over_tcp)
{
	struct rig r;
	int fd = numbered_memfd(0);

	ck_assert(rig_linked(&r, 0));
	ck_assert_int_eq(xport_send_slab(r.a.ep, 0, fd, 4096), TALLY_EINVAL);
	rig_close(&r);
	close(fd);
}
END_TEST

static void raw_frame_with_fds(int sock, const struct frame *f, int fd, uint32_t n)
{
	uint8_t wire[FRAME_BYTES];
	struct iovec iov = { wire, sizeof(wire) };
	union {
		char bytes[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} room = { .bytes = { 0 } };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room.bytes,
			    .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	frame_encode(f, wire);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	for (uint32_t i = 0; i < n; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(sock, &m, 0), FRAME_BYTES);
}

START_TEST(stray_descriptors_close_the_link_and_leak_nothing)
{
	int before = open_fds(), fd, sock;
	struct frame probe = { .type = FRAME_PROBE }, slab = { .type = FRAME_SLAB, .rslot = 4096 };
	struct rig r;

	ck_assert(rig_open(&r, 2));
	sock = raw_peer(&r);
	fd = numbered_memfd(0);
	raw_frame_with_fds(sock, &slab, fd, 4);		/* the first one is the slab's */
	raw_frame_with_fds(sock, &probe, fd, 1);
	UNTIL(&r, r.b.got == 1);
	ck_assert_uint_eq(r.b.closes, 0);
	raw_frame_with_fds(sock, &probe, fd, 3);
	UNTIL(&r, r.b.closes == 1);
	ck_assert_int_eq(r.b.why, CLOSE_BAD_FRAME);
	close(sock);
	close(fd);
	rig_close(&r);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

/* ---- the listener's half ---- */

START_TEST(hello_read_takes_64_bytes_and_no_more)
{
	struct frame hello = hello_frame(), f;
	struct xport_hello h = { .got = 0 };
	uint8_t wire[FRAME_BYTES + 10] = { 0 };
	char rest[20];
	struct rig r;
	int client, fd;

	if (!rig_open(&r, _i))
		return;
	raw_connect(&r, &client, &fd);
	ck_assert_int_eq(xport_hello_read(&h, fd, &f), TALLY_EAGAIN);
	frame_encode(&hello, wire);
	raw_write(client, wire, 30);
	ck_assert_int_eq(xport_hello_read(&h, fd, &f), TALLY_EAGAIN);
	raw_write(client, wire + 30, sizeof(wire) - 30);
	ck_assert_int_eq(xport_hello_read(&h, fd, &f), 0);
	ck_assert_uint_eq(f.slot, hello.slot);
	ck_assert_int_eq(recv(fd, rest, sizeof(rest), 0), 10);
	close(client);
	close(fd);
	rig_close(&r);
}
END_TEST

START_TEST(hello_read_takes_only_a_hello)
{
	struct xport_hello h;
	struct frame f;
	uint8_t wire[FRAME_BYTES];
	int sv[2];

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
		h.got = 0;
		frame_encode(&(struct frame){ .type = i == 0 ? FRAME_PUSH : FRAME_HELLO }, wire);
		if (i == 1)
			wire[4]++;
		if (i < 2)
			raw_write(sv[0], wire, sizeof(wire));
		close(sv[0]);
		ck_assert_int_eq(xport_hello_read(&h, sv[1], &f),
				 i == 0 ? TALLY_EPROTO : i == 1 ? TALLY_EVERSION :
				 TALLY_ESHUTDOWN);
		close(sv[1]);
	}
}
END_TEST

START_TEST(close_reasons_have_names_and_bounds)
{
	for (unsigned int i = 0; i < CLOSE_REASON_END; i++) {
		ck_assert_str_ne(close_reason_name(i), "?");
		ck_assert_uint_gt(strlen(close_reason_help(i)), 5);
		ck_assert_ptr_nonnull(strstr("info warn error", close_reason_severity(i)));
	}
	ck_assert_str_eq(close_reason_name(CLOSE_RESET), "reset");
	ck_assert_str_eq(close_reason_name(CLOSE_REASON_END), "?");
	ck_assert(close_reason_retry(CLOSE_RESET));
	ck_assert(!close_reason_retry(CLOSE_BAD_FRAME));
	ck_assert(!close_reason_retry(CLOSE_REASON_END));
}
END_TEST

/* ---- random streams ---- */

static uint64_t seed_now(void)
{
	const char *s = getenv("TALLY_TEST_SEED");
	uint64_t seed = s ? strtoull(s, NULL, 0) : (uint64_t)real_now();

	printf("seed %llu (set TALLY_TEST_SEED to repeat)\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

/* What a random stream holds: frame i has length len_of(seed, i), byte k is known. */
struct stream {
	uint64_t seed;
	const uint8_t *bytes;		/* all payloads are pieces of it */
	bool by_ref;
};

#define STREAM_BYTES	(400u << 10)

static struct frame stream_frame(const struct stream *s, uint32_t i)
{
	struct rng g = { s->seed ^ ((uint64_t)i << 32) };
	uint64_t pick = rng_below(&g, 100);
	struct frame f = { .type = FRAME_PROBE, .round = i };

	if (pick < 50)
		return f;
	f.type = pick & 1 ? FRAME_PUSH : FRAME_RESULT;
	f.length = (uint32_t)rng_below(&g, pick < 60 ? 4 : pick < 90 ? 3000 : STREAM_BYTES / 2);
	f.rslot = rng_below(&g, STREAM_BYTES / 2);	/* where in `bytes` it starts */
	f.slot = (uintptr_t)s->bytes + f.rslot;
	if (s->by_ref && f.length)
		f.flags = FRAME_BYREF;
	return f;
}

static void check_stream(struct link *l, const struct frame *f, const void *data)
{
	const struct stream *s = l->arg;
	struct frame want = stream_frame(s, l->got - 1);

	ck_assert_uint_eq(f->round, want.round);
	ck_assert_uint_eq(f->type, want.type);
	ck_assert_uint_eq(f->length, want.length);
	ck_assert((data != NULL) == (want.length > 0));
	if (data)
		ck_assert_int_eq(memcmp(data, s->bytes + want.rslot, want.length), 0);
}

START_TEST(any_fragmentation_gives_the_same_frames)
{
	struct stream s = { .seed = seed_now(), .by_ref = _i == 2 };
	struct rng g = { s.seed };
	uint8_t *bytes = pattern(STREAM_BYTES, s.seed), *wire;
	size_t len = 0, at = 0;
	struct rig r;
	int fd;

	s.bytes = bytes;
	wire = malloc(300 * (FRAME_BYTES + STREAM_BYTES));
	for (uint32_t i = 0; i < 300; i++) {
		struct frame f = stream_frame(&s, i);

		frame_encode(&f, wire + len);
		len += FRAME_BYTES;
		if (frame_has_payload(&f)) {
			memcpy(wire + len, bytes + f.rslot, f.length);
			len += f.length;
		}
	}
	if (rig_open(&r, _i)) {
		fd = raw_peer(&r);
		r.b.on_deliver = check_stream;
		r.b.arg = &s;
		while (at < len) {
			size_t n = 1 + rng_below(&g, rng_below(&g, 3) ? 100 : 100000);
			ssize_t w = send(fd, wire + at, MIN(n, len - at), MSG_DONTWAIT);

			at += w > 0 ? (size_t)w : 0;
			if (rng_below(&g, 2))
				rig_turn(&r);
		}
		UNTIL(&r, r.b.got == 300);
		close(fd);
		rig_close(&r);
	}
	free(wire);
	free(bytes);
}
END_TEST

static void shrink_buffers(int fd)
{
	int small = 1;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
}

static bool stream_send(struct link *l, uint32_t i)
{
	struct frame f = stream_frame(l->arg, i);
	bool lent = frame_has_payload(&f);
	int rc = send_call(l, &f, lent ? (const void *)(uintptr_t)f.slot : NULL, i);

	if (rc == TALLY_EAGAIN)
		return false;
	ck_assert_int_eq(rc, 0);
	if (lent) {
		l->lent[i] = 1;
		l->n_lent++;
	}
	return true;
}

/* Both ways over buffers so small that nearly every write and read is cut. */
START_TEST(random_frames_both_ways_through_small_buffers)
{
	struct stream s = { .seed = seed_now(), .by_ref = _i == 2 };
	struct rng g = { s.seed };
	uint8_t *bytes = pattern(STREAM_BYTES, s.seed);
	uint32_t to_b = 0, to_a = 0, n = _i == 2 ? 8000 : 250;
	struct rig r;

	s.bytes = bytes;
	if (rig_open(&r, _i)) {
		shrink_buffers(r.listener);
		connect_link(&r, &r.a);
		accept_link(&r, &r.b);
		UNTIL(&r, r.a.ups && r.b.ups);
		r.a.on_deliver = r.b.on_deliver = check_stream;
		r.a.arg = r.b.arg = &s;
		while (to_a < n || to_b < n) {
			if (to_b < n && rng_below(&g, 2))
				to_b += stream_send(&r.a, to_b);
			if (to_a < n && rng_below(&g, 2))
				to_a += stream_send(&r.b, to_a);
			if (rng_below(&g, 4) == 0 || to_a > to_b + 1000 || to_b > to_a + 1000)
				rig_turn(&r);
		}
		UNTIL(&r, r.a.got == n && r.b.got == n);
		UNTIL(&r, r.a.n_lent == 0 && r.b.n_lent == 0);
		rig_close(&r);
	}
	free(bytes);
}
END_TEST

/* PONGs go between frames, never into one, however full the socket is. */
START_TEST(pongs_do_not_break_frames)
{
	uint8_t *p = pattern(20000, 7);
	uint32_t pushes = 0, pongs = 0;
	struct rig r;
	int fd;

	ck_assert(rig_open(&r, 0));
	shrink_buffers(r.listener);
	fd = raw_peer(&r);
	for (uint32_t i = 0; i < 100; i++)
		ck_assert_int_eq(send_push(&r.b, p, 20000, i), 0);
	ck_assert_uint_eq(raw_read(&r, fd).type, FRAME_WELCOME);
	while (pushes < 100 || pongs == 0) {
		struct frame f;

		if (pushes % 10 == 3)
			raw_frame(fd, &(struct frame){ .type = FRAME_PING });
		f = raw_read(&r, fd);
		ck_assert(f.type == FRAME_PUSH || f.type == FRAME_PONG);
		pongs += f.type == FRAME_PONG;
		if (f.type == FRAME_PONG)
			continue;
		ck_assert_uint_eq(f.round, pushes++);
		for (uint32_t got = 0; got < f.length;) {
			uint8_t buf[20000];
			ssize_t n = recv(fd, buf, f.length - got, MSG_DONTWAIT);

			if (n > 0)
				ck_assert_int_eq(memcmp(buf, p + got, (size_t)n), 0);
			got += n > 0 ? (uint32_t)n : 0;
			rig_turn(&r);
		}
	}
	close(fd);
	rig_close(&r);
	free(p);
}
END_TEST

/* ---- all of them ---- */

static void add_every_medium(TCase *t)
{
	tcase_add_loop_test(t, handshake_brings_both_up_and_shows_the_peer, 0, MEDIA);
	tcase_add_loop_test(t, send_before_up_says_shutdown, 0, MEDIA);
	tcase_add_loop_test(t, late_and_foreign_events_are_harmless, 0, MEDIA);
	tcase_add_loop_test(t, frames_arrive_in_order, 0, MEDIA);
	tcase_add_loop_test(t, payloads_of_any_size_arrive_whole, 0, MEDIA);
	tcase_add_loop_test(t, nodata_push_comes_without_payload, 0, MEDIA);
	tcase_add_loop_test(t, full_queue_says_again_and_takes_nothing, 0, MEDIA);
	tcase_add_loop_test(t, refused_payload_is_thrown_away_and_the_stream_goes_on, 0, MEDIA);
	tcase_add_loop_test(t, two_links_carry_both_ways_at_once, 0, MEDIA);
	tcase_add_loop_test(t, closing_in_up_is_safe, 0, MEDIA);
	tcase_add_loop_test(t, closing_in_place_or_resolve_is_safe, 0, MEDIA);
	tcase_add_loop_test(t, closing_in_deliver_stops_the_batch, 0, MEDIA);
	tcase_add_loop_test(t, closing_another_link_in_deliver_is_safe, 0, MEDIA);
	tcase_add_loop_test(t, nobody_there_is_refused, 0, MEDIA);
	tcase_add_loop_test(t, peers_close_is_eof, 0, MEDIA);
	tcase_add_loop_test(t, cut_inside_a_frame_is_reset, 0, MEDIA);
	tcase_add_loop_test(t, killed_peer_is_noticed, 0, MEDIA);
	tcase_add_loop_test(t, garbage_is_bad_frame, 0, MEDIA);
	tcase_add_loop_test(t, other_version_is_version, 0, MEDIA);
	tcase_add_loop_test(t, frames_out_of_place_are_bad_frames, 0, MEDIA);
	tcase_add_loop_test(t, wrong_answers_to_hello_end_the_handshake, 0, MEDIA);
	tcase_add_loop_test(t, silent_listener_times_out, 0, MEDIA);
	tcase_add_loop_test(t, silent_peer_is_asked_and_then_given_up, 0, MEDIA);
	tcase_add_loop_test(t, idle_links_stay_up, 0, MEDIA);
	tcase_add_loop_test(t, our_own_stall_is_not_the_peers_silence, 0, MEDIA);
	tcase_add_loop_test(t, hello_read_takes_64_bytes_and_no_more, 0, MEDIA);
	tcase_add_loop_test(t, any_fragmentation_gives_the_same_frames, 0, MEDIA);
	tcase_add_loop_test(t, random_frames_both_ways_through_small_buffers, 0, MEDIA);
	tcase_add_loop_test(t, closed_gives_back_what_sent_has_not, 0, 2 * 3);	/* tcp only */
}

static void add_special(TCase *t)
{
	tcase_add_test(t, reference_arrives_as_the_senders_address);
	tcase_add_test(t, sent_may_send_again);
	tcase_add_test(t, one_flood_does_not_keep_others_waiting);
	tcase_add_test(t, bad_addresses_are_einval);
	tcase_add_test(t, foreign_source_address_is_unreachable);
	tcase_add_test(t, tcp_reset_is_reset);
	tcase_add_test(t, poll_says_when_it_is_needed_again);
	tcase_add_test(t, unacked_bytes_follow_the_peer);
	tcase_add_test(t, slabs_come_in_order_with_their_descriptors);
	tcase_add_test(t, slabs_have_a_limit);
	tcase_add_test(t, slabs_unsent_at_close_leak_nothing);
	tcase_add_test(t, slabs_do_not_go_over_tcp);
	tcase_add_test(t, stray_descriptors_close_the_link_and_leak_nothing);
	tcase_add_test(t, hello_read_takes_only_a_hello);
	tcase_add_test(t, close_reasons_have_names_and_bounds);
	tcase_add_test(t, pongs_do_not_break_frames);
}

int main(void)
{
	Suite *s = suite_create("xport");
	TCase *every = tcase_create("every medium"), *special = tcase_create("special");
	SRunner *run = srunner_create(s);
	int failed;

	add_every_medium(every);
	add_special(special);
	tcase_set_timeout(every, 120);
	tcase_set_timeout(special, 120);
	suite_add_tcase(s, every);
	suite_add_tcase(s, special);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
