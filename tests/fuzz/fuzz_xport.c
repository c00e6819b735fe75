// SPDX-License-Identifier: Apache-2.0
/*
 * Any bytes, in any pieces, into an endpoint.  The first byte (enum mode) picks the kind,
 * which side of the handshake this one is, whether headers get a right magic, version and
 * check (so that the fuzzer reaches what lies behind them), whether payloads are refused, and
 * whether the owner answers; the second says how small the pieces are, the third in which
 * callback the owner closes.  Whatever comes: closed() once, each payload lent comes back
 * once, and arrivals are what was sent.
 *
 * With a card (fake_card.h) the input is a list of steps instead: a frame for the socket or
 * through the queue pair, a completion that fails, or something that the owner does.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/net/xport_ep.h"
#include "tests/fuzz/fake_card.h"
#include "tests/fuzz/fuzz_fds.h"

#define ROOM	(1u << 16)

enum mode {
	SHM = 1,			/* else TCP */
	RIGHT = 2,
	REFUSE = 4,
	ANSWER = 8,
	CONNECT = 16,			/* this side said HELLO, the input answers */
	HELLO_FIRST = 32,		/* the input's HELLO decides whether it is adopted */
	CARD = 64,			/* a TCP link that has a queue pair, or gets none */
	FDS = 128,			/* each piece has a descriptor; SHM */
};

#define SHOWN_BYTES	65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t shown[SHOWN_BYTES];	/* to the peer, by a card */
static const uint8_t reply[100];

struct room {				/* as long as the payload placed: overruns show */
	struct room *next;
	uint8_t bytes[];
};

struct world {
	struct xport_group *g;
	struct xport_ep *ep;
	int epfd, peer;
	uint8_t mode;
	uint32_t until_close, closes, lent, landing;
	struct room *rooms;
};

static void step(struct world *w)
{
	if (w->until_close && --w->until_close == 0)
		xport_close(w->ep, CLOSE_LOCAL);
}

/* The memory registered with the card; for all inputs. */
static struct xport_region *region(bool of_shown)
{
	static struct xport_region *all[2];
	void *base = of_shown ? shown : (void *)(uintptr_t)reply;
	uint64_t bytes = of_shown ? sizeof(shown) : sizeof(reply);

	if (!all[of_shown])
		ASSERT(!xport_region_new(&all[of_shown], base, bytes, of_shown, NULL));
	return all[of_shown];
}

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	struct world *w = ctx;

	ASSERT(peer->type == (w->mode & CONNECT ? FRAME_WELCOME : FRAME_HELLO));
	if (w->mode & CONNECT)		/* what this side's HELLO says */
		ASSERT(peer->aux == FRAME_VERSION && !peer->job && !peer->worker &&
		       !peer->tensor && !peer->chunk && !peer->epoch);
	if (xport_takes_regions(ep))
		ASSERT(!xport_show(ep, 0, 0, region(true), 0, SHOWN_BYTES));
	step(w);
}

/* Where the card has put it, if it has. */
static uint8_t *place_shown(const struct frame *f)
{
	uint64_t off = SLOT_SLAB_OFF(f->slot);

	return range_ok(off, f->length, SHOWN_BYTES) ? shown + off : NULL;
}

static uint8_t *place_room(struct world *w, const struct frame *f)
{
	struct room *r = malloc(sizeof(*r) + f->length);

	r->next = w->rooms;
	w->rooms = r;
	return r->bytes;
}

static bool is_placed(const struct world *w, const uint8_t *data)
{
	for (const struct room *r = w->rooms; r; r = r->next)
		if (r->bytes == data)
			return true;
	return data >= shown && data < shown + SHOWN_BYTES;
}

static void *on_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	bool card = xport_takes_regions(ep) && f->slot != SLOT_NONE;
	struct world *w = ctx;
	uint8_t *at;

	ASSERT(!xport_by_reference(ep) && frame_has_payload(f));
	at = w->mode & REFUSE ? NULL : card ? place_shown(f) : place_room(w, f);
	w->landing += at != NULL;
	step(w);
	return at;
}

static void on_unplaced(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct world *w = ctx;

	ASSERT(!xport_by_reference(ep) && frame_has_payload(f) && w->landing > 0);
	w->landing--;
}

static const void *on_resolve(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct world *w = ctx;

	ASSERT(xport_by_reference(ep) && f->length > 0);
	step(w);
	return w->mode & REFUSE ? NULL : w;
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct frame out = {
		.type = FRAME_RESULT, .length = sizeof(reply), .job = f->job, .slot = f->slot,
	};
	struct world *w = ctx;
	bool lend = !xport_by_reference(ep);

	ASSERT((f->type > FRAME_WELCOME && f->type < FRAME_PING) || f->type == FRAME_SEEK ||
	       f->type == FRAME_GIVE);
	ASSERT(!data || data == w || is_placed(w, data));
	ASSERT(!lend || !(f->flags & FRAME_BYREF));
	w->landing -= lend && data;
	if (w->mode & ANSWER && xport_send(ep, &out, lend ? reply : NULL, 1) == 0)
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

static void on_unsent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct world *w = ctx;

	(void)ep;
	ASSERT(w->lent > 0 && cookie == 1 && len == 100);
	w->lent--;
}

static void on_slab(void *ctx, struct xport_ep *ep, uint32_t job, uint32_t id, int fd,
		    uint64_t bytes)
{
	(void)job;
	ASSERT(xport_by_reference(ep) && (fd >= 0) == (bytes > 0));
	ASSERT(id < SLABS_PER_LINK_MAX && bytes <= SLAB_BYTES_MAX);
	if (fd >= 0)
		close(fd);
	step(ctx);
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	struct world *w = ctx;

	ASSERT(ep == w->ep && why < CLOSE_REASON_END && e->code < 0);
	ASSERT(w->lent == 0 && w->landing == 0);
	w->closes++;
	w->ep = NULL;
}

static const struct xport_cb callbacks = {
	.up = on_up,
	.place = on_place,
	.unplaced = on_unplaced,
	.resolve = on_resolve,
	.deliver = on_deliver,
	.sent = on_sent,
	.unsent = on_unsent,
	.slab = on_slab,
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
		uint32_t fds = (w->mode & (SHM | FDS)) == (SHM | FDS);

		if (!send_with_fds(w->peer, p + at, MIN(piece, len - at), fds))
			break;
		turn(w);
	}
}

/* ---- right headers ---- */

static void make_right(uint8_t *wire)
{
	put_le32(wire, FRAME_MAGIC);
	wire[4] = FRAME_VERSION;
	wire[5] = wire[5] % (FRAME_TYPE_END + 1);
	wire[6] %= DTYPE_END;
	wire[7] %= ROP_END;
	put_le32(wire + 32, get_le32(wire + 32) % CHUNK_BYTES_MIN);
	put_le32(wire + 36, get_le32(wire + 36) % 512);
	put_le32(wire + 60, crc32c(wire, 60));
}

/* What opens the link, where the input lets it: HELLO, or what echoes a HELLO of zeros, all
 * of it or the beginning. */
static void make_first(uint8_t *wire, uint8_t mode)
{
	size_t echo = wire[9] & 1 ? wire[9] / 4 % 24 : 32 - 9;

	if (wire[9] & 2)
		return;
	wire[5] = mode & CONNECT ? FRAME_WELCOME : FRAME_HELLO;
	wire[8] = 0;
	put_le32(wire + 56, wire[56] & 1 ? get_le32(wire + 56) : FRAME_VERSION);
	if (mode & CONNECT)
		memset(wire + 9, 0, echo);
}

/* Turns the input into a stream of frames with right headers. */
static void make_all_right(uint8_t *p, size_t size, uint8_t mode)
{
	size_t at = 0;
	struct frame f;

	while (size - at >= FRAME_BYTES) {
		uint8_t *wire = p + at;

		if (at == 0 && mode & (CONNECT | HELLO_FIRST))
			make_first(wire, mode);
		make_right(wire);
		at += FRAME_BYTES;
		if (frame_decode(wire, &f) == 0 && frame_has_payload(&f))
			at += MIN(size - at, (size_t)f.length);
	}
}

/* ---- steps of a link with a card ---- */

static struct frame frame_of(const uint8_t *p, uint8_t type)
{
	struct frame f = {
		.type = type,
		.attempt = p[0] % 8,
		.worker = get_le16(p + 1),
		.job = p[3] % 4,
		.tensor = get_le32(p + 4),
		.chunk = get_le32(p + 8),
		.round = p[12],
		.epoch = p[13] & 7 ? RQ_FRAMES : get_le32(p + 14),
		.length = p[18] & 3 ? get_le32(p + 19) % 512 : 0,
		.slot = p[23] & 15 ? SLOT_SLAB(p[24] % 4, get_le16(p + 25)) : SLOT_NONE,
		.aux = p[27] & 3 ? 0 : 1,
	};

	if (type == FRAME_SLAB) {
		f.slot = p[23] & 15 ? p[24] % 4 : get_le64(p + 24);
		f.rslot = p[28] & 1 ? 0 : p[28] & 2 ? get_le16(p + 29) : get_le64(p + 29);
		f.length = 0;
	}
	return f;
}

/* Any frame, as what the input says, and what the peer shows by it. */
static void say(struct world *w, const uint8_t wire[FRAME_BYTES])
{
	struct frame f;

	if (frame_decode(wire, &f) == 0 && f.type == FRAME_SLAB && f.rslot)
		card_shown((uint64_t)f.round << 32 | f.chunk, f.rslot, f.tensor);
	(void)send(w->peer, wire, FRAME_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void own_step(struct world *w, uint32_t which)
{
	struct frame out = {
		.type = FRAME_RESULT, .length = sizeof(reply), .job = which / 4 % 4,
		.slot = SLOT_SLAB(which / 16, 0),
	};

	if (which % 4 == 0)
		xport_hide(w->ep, which / 4 % 2);
	else if (which % 4 == 1 && xport_takes_regions(w->ep))
		(void)xport_show(w->ep, which / 4 % 2, 0, region(true), 0, SHOWN_BYTES);
	else if (which % 4 == 2)
		card.status = which / 4 % (IBV_WC_GENERAL_ERR + 1);
	else
		w->lent += xport_send(w->ep, &out, reply, 1) == 0;
}

/* Returns how much of the input it took. */
static size_t card_step(struct world *w, const uint8_t *p, size_t len)
{
	uint8_t what = p[0] % 8, more = p[0] / 8, wire[FRAME_BYTES] = { 0 };
	size_t n = what < 7 ? MIN(len - 1, (size_t)FRAME_BYTES) : 0;
	static const uint8_t types[] = { FRAME_QP, FRAME_SLAB };
	struct frame f;

	memcpy(wire, p + 1, n);
	f = frame_of(wire, what < 2 ? types[what] : more % FRAME_TYPE_END);
	if (what == 0)
		f.job = more % 4;	/* the handshake's step */
	if (what < 2 || what == 3 || what == 5)
		frame_encode(&f, wire);
	if (what < 4)
		say(w, wire);
	else if (what < 6)
		card_receive(wire, FRAME_BYTES, htonl(card.headers));
	else if (what == 6)
		card_receive(wire, more & 1 ? 0 : more, get_le32(wire));
	else
		own_step(w, more);
	return 1 + n;
}

static void check_seen(const struct xport_ep *ep)
{
	const struct rdma_link *k = ep->rdma;

	for (uint32_t i = 0; k && i < k->nseen; i++)
		ASSERT(k->joined && (uint32_t)k->seen[i].key < SLABS_PER_LINK_MAX &&
		       k->seen[i].bytes && k->seen[i].bytes <= SLAB_BYTES_MAX &&
		       (i == 0 || k->seen[i].key > k->seen[i - 1].key));
}

static void play(struct world *w, const uint8_t *p, size_t len)
{
	for (size_t at = 0; at < len && w->ep && ep_live(w->ep);) {
		at += card_step(w, p + at, len - at);
		turn(w);
		if (w->ep)
			check_seen(w->ep);
	}
}

/* ---- links ---- */

static int listen_at(const struct sockaddr *sa, socklen_t len)
{
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ASSERT(fd >= 0 && bind(fd, sa, len) == 0 && listen(fd, 8) == 0);
	return fd;
}

/* One for all inputs. */
static int tcp_listener(struct xport_addr *a)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	static int fd = -1;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		fd = listen_at((struct sockaddr *)&sa, sizeof(sa));
	ASSERT(getsockname(fd, (struct sockaddr *)&sa, &len) == 0);
	a->port = ntohs(sa.sin_port);
	strcpy(a->remote, "127.0.0.1");
	return fd;
}

static int shm_listener(struct xport_addr *a)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const char *tmp = getenv("TMPDIR");
	static int fd = -1;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/fuzz_xport.%d", tmp ? tmp : "/tmp",
		 (int)getpid());
	strcpy(a->remote, sa.sun_path);
	if (fd < 0)
		fd = listen_at((struct sockaddr *)&sa, sizeof(sa));
	return fd;
}

/* So that no port is left to wait for those that are closed. */
static void no_linger(int fd)
{
	static const struct linger at_once = { .l_onoff = 1 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

static void welcome(struct world *w)
{
	uint8_t wire[FRAME_BYTES];

	frame_encode(&(struct frame){ .type = FRAME_WELCOME, .aux = FRAME_VERSION }, wire);
	say(w, wire);
}

static void connect_link(struct world *w)
{
	bool shm = (w->mode & (SHM | CARD)) == SHM;
	struct xport_addr a = {
		.kind = shm ? XPORT_SHM : w->mode & CARD ? XPORT_RDMA : XPORT_TCP,
	};
	struct frame hello = { .type = FRAME_HELLO, .aux = FRAME_VERSION };
	int fd = shm ? shm_listener(&a) : tcp_listener(&a);

	ASSERT(xport_connect(w->g, &a, &hello, NULL, 0, &w->ep, NULL) == 0);
	w->peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	ASSERT(w->peer >= 0);
	no_linger(w->peer);
	no_linger(w->ep->fd);
	if (w->mode & CARD)
		welcome(w);
	turn(w);
}

/* Two ends of a connection: w->peer, and the one returned. */
static int join(struct world *w)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	struct xport_addr a;
	int sv[2];

	if (!(w->mode & CARD)) {
		ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
		w->peer = sv[0];
		return sv[1];
	}
	sv[0] = tcp_listener(&a);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sa.sin_port = htons(a.port);
	w->peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ASSERT(w->peer >= 0 && !connect(w->peer, (struct sockaddr *)&sa, sizeof(sa)));
	sv[1] = accept4(sv[0], NULL, NULL, SOCK_CLOEXEC);
	ASSERT(sv[1] >= 0);
	no_linger(w->peer);
	no_linger(sv[1]);
	return sv[1];
}

/* The listener's half, as a server has it: how many bytes of the input it took; *hello is one
 * where its type says so. */
static size_t hear(struct world *w, int fd, const uint8_t *p, size_t len, size_t piece,
		   struct frame *hello)
{
	struct xport_hello h = { .got = 0 };
	int rc = TALLY_EAGAIN;
	size_t at = 0;

	if (w->mode & CARD)		/* what is behind it are steps */
		len = MIN(len, (size_t)FRAME_BYTES);
	while (at < len && rc == TALLY_EAGAIN) {
		size_t n = MIN(piece, len - at);

		ASSERT(send(w->peer, p + at, n, MSG_NOSIGNAL) == (ssize_t)n);
		at += n;
		rc = xport_hello_read(&h, fd, hello);
		ASSERT(h.got <= FRAME_BYTES && h.got <= at);
	}
	if (rc == TALLY_EAGAIN && at) {
		ASSERT(shutdown(w->peer, SHUT_WR) == 0);
		ASSERT(xport_hello_read(&h, fd, hello) == TALLY_ESHUTDOWN);
	}
	ASSERT((rc == 0) == (hello->type == FRAME_HELLO));
	ASSERT(h.got == MIN(at, (size_t)FRAME_BYTES));
	ASSERT((rc == TALLY_EAGAIN) == (h.got < FRAME_BYTES));
	return at;
}

static size_t adopt_link(struct world *w, const uint8_t *p, size_t len, size_t piece)
{
	struct frame hello = { .type = FRAME_HELLO }, welcome = { .type = FRAME_WELCOME };
	const struct xport_ops *ops = w->mode & SHM ? &xport_shm_ops : &xport_tcp_ops;
	int rc, fd = join(w);
	size_t used = 0;

	if (w->mode & HELLO_FIRST) {
		hello.type = FRAME_NONE;
		used = hear(w, fd, p, len, piece, &hello);
	} else if (w->mode & CARD) {
		hello.offset = HELLO_RDMA;
	}
	if (hello.type != FRAME_HELLO) {
		close(fd);
		return used;
	}
	rc = w->mode & CARD ? xport_adopt(w->g, fd, &hello, &welcome, NULL, 0, &w->ep, NULL) :
			      ep_adopt(w->g, ops, fd, &hello, &welcome, NULL, 0, &w->ep, NULL);
	ASSERT(rc == 0);
	turn(w);
	return used;
}

static void close_world(struct world *w)
{
	bool linked = w->ep;

	shutdown(w->peer, SHUT_WR);
	turn(w);
	close(w->peer);
	w->peer = -1;
	for (int i = 0; i < 4; i++)
		turn(w);
	ASSERT(w->ep == NULL && w->closes <= 1 && w->closes >= linked);
	xport_group_free(w->g);
	close(w->epfd);
	while (w->rooms) {
		struct room *r = w->rooms;

		w->rooms = r->next;
		free(r);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = { .peer = -1 };
	size_t piece, used = 0;
	uint8_t *copy;

	if (size < 3 || size > ROOM)
		return 0;
	w.mode = data[0];
	piece = 1 + (size_t)data[1] * 16;
	w.until_close = data[2];
	w.epfd = epoll_create1(EPOLL_CLOEXEC);
	ASSERT(xport_group_new(&w.g, w.epfd, &callbacks, &w, NULL) == 0);
	ASSERT(xport_lend(w.g, region(false)) == 0);
	card.nshown = 0;
	card.status = IBV_WC_SUCCESS;
	size -= 3;
	copy = malloc(size + 1);
	memcpy(copy, data + 3, size);
	if (w.mode & RIGHT && !(w.mode & CARD))
		make_all_right(copy, size, w.mode);
	if (w.mode & CONNECT)
		connect_link(&w);
	else
		used = adopt_link(&w, copy, size, piece);
	if (w.mode & CARD)
		play(&w, copy + used, size - used);
	else
		feed(&w, copy + used, size - used, piece);
	close_world(&w);
	free(copy);
	return 0;
}
