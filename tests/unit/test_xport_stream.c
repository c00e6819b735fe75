// SPDX-License-Identifier: Apache-2.0
/*
 * xport: the stream engine under random cuts, both ways, and descriptors that must
 * keep their place in the stream.  A failing run repeats from the seed it printed.
 */
#include "tests/unit/xport_rig.h"

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

	rig_takes = s.seed & 1;
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

/* Not the least there are: TCP then waits 200 ms before it sends less than half a window. */
static void shrink_buffers(int fd)
{
	int small = 16 << 10;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
}

static bool stream_send(struct link *l, uint32_t i)
{
	struct frame f = stream_frame(l->arg, i);
	bool lent = frame_has_payload(&f);
	const void *data = lent ? (const void *)(uintptr_t)f.slot : NULL;
	int rc;

	if (lent && xport_takes_regions(l->ep))	/* the room is an image of all payloads */
		f.slot = SLOT_SLAB(0, GUARD + f.rslot);
	rc = send_call(l, &f, data, i);
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

	rig_takes = s.seed & 1;
	s.bytes = bytes;
	if (rig_open(&r, _i)) {
		shrink_buffers(r.listener);
		connect_link(&r, &r.a);
		accept_link(&r, &r.b);
		UNTIL(&r, r.a.ups && r.b.ups);
		if (r.m->kind == XPORT_RDMA) {
			lend_get(&r.agent, &r.lends, bytes, STREAM_BYTES);
			lend_get(&r.server, &r.lends, bytes, STREAM_BYTES);
			UNTIL(&r, xport_seen(r.a.ep, 0) && xport_seen(r.b.ep, 0));
		}
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

/* What is whole in a read goes to its owner as it is; what is cut, or long, is placed. */
START_TEST(short_payloads_are_taken_where_they_were_read)
{
	enum { FRAMES = 200, BYTES = 4096 };
	uint8_t *bytes = pattern(STREAM_BYTES, 1), *wire = malloc(FRAMES * (FRAME_BYTES + BYTES));
	size_t len = 0, at = 0;
	struct rig r;
	int fd;

	for (uint32_t i = 0; i < FRAMES; i++, len += BYTES) {
		struct frame f = { .type = FRAME_PUSH, .round = i, .length = BYTES };

		frame_encode(&f, wire + len);
		len += FRAME_BYTES;
		memcpy(wire + len, bytes + i, BYTES);
	}
	rig_takes = true;
	ck_assert(rig_open(&r, 0));
	fd = raw_peer(&r);
	while (at < len) {
		ssize_t w = send(fd, wire + at, len - at, MSG_DONTWAIT);

		at += w > 0 ? (size_t)w : 0;
		rig_turn(&r);
	}
	UNTIL(&r, r.b.got == FRAMES);
	ck_assert_uint_eq(r.b.takes + r.b.places, FRAMES);
	ck_assert_uint_gt(r.b.takes, FRAMES / 2);
	ck_assert_uint_eq(r.b.landing, 0);
	close(fd);
	rig_close(&r);
	free(wire);
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

START_TEST(frames_that_wait_go_with_one_call_or_as_few_as_asked_for)
{
	static const struct {
		uint32_t asked, calls;	/* 0: as it is without a word */
	} want[] = { { 0, 1 }, { 1, 20 }, { 8, 3 }, { FRAMES_PER_WRITE_MAX, 1 } };

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct rig r;

		ck_assert(rig_linked(&r, 0));
		ck_assert_uint_eq(xport_written(r.agent.g).calls, 0);	/* the handshake's */
		if (want[i].asked)
			xport_set_frames_per_write(r.agent.g, want[i].asked);
		for (uint32_t f = 1; f <= 20; f++)
			ck_assert_int_eq(send_small(&r.a, f), 0);
		UNTIL(&r, r.b.got == 20);
		ck_assert_uint_eq(xport_written(r.agent.g).frames, 20);
		ck_assert_uint_eq(xport_written(r.agent.g).calls, want[i].calls);
		rig_close(&r);
	}
}
END_TEST

/* ---- slabs ---- */

static int numbered_memfd(uint32_t id)
{
	int fd = memfd_create("slab", MFD_CLOEXEC);

	ck_assert_int_eq(pwrite(fd, &id, sizeof(id), 0), sizeof(id));
	return fd;
}

static void check_slab(struct link *l, uint32_t job, uint32_t id, int fd, uint64_t bytes)
{
	uint32_t inside, *next = l->arg;

	ck_assert_int_eq(pread(fd, &inside, sizeof(inside), 0), sizeof(inside));
	ck_assert_uint_eq(inside, id);
	ck_assert_uint_eq(job, 7);
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

		ck_assert_int_eq(xport_send_slab(r.a.ep, 7, i, fd, 4096 + i), 0);
		close(fd);
		for (int k = 0; k < 3; k++)
			ck_assert_int_eq(send_small(&r.a, i), 0);
	}
	UNTIL(&r, seen == 200 && r.b.got == 600);
	rig_close(&r);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

static void count_none(struct link *l, uint32_t job, uint32_t id, int fd, uint64_t bytes)
{
	uint32_t *none = l->arg;

	ck_assert_uint_eq(job, 7);
	ck_assert_uint_eq(id, 3);
	ck_assert_int_eq(fd < 0, !bytes);
	if (fd < 0)
		++*none;
	else
		close(fd);
}

/* With a slab right behind it, whose descriptor may come ahead of both. */
START_TEST(slabs_are_taken_back_in_order)
{
	int before = open_fds(), fd = numbered_memfd(3);
	uint32_t none = 0;
	struct rig r;

	ck_assert(rig_linked(&r, 2));
	r.b.on_slab = count_none;
	r.b.arg = &none;
	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_int_eq(xport_send_slab(r.a.ep, 7, 3, fd, 4096), 0);
		ck_assert_int_eq(xport_send_slab(r.a.ep, 7, 3, -1, 0), 0);
	}
	ck_assert_int_eq(send_small(&r.a, 1), 0);
	UNTIL(&r, r.b.got == 1);
	ck_assert_uint_eq(none, 50);
	close(fd);
	rig_close(&r);
	ck_assert_int_eq(open_fds(), before);
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

START_TEST(slabs_have_bounds)
{
	const struct frame bad[] = {
		{ .type = FRAME_SLAB, .slot = SLABS_PER_LINK_MAX, .rslot = 4096 },
		{ .type = FRAME_SLAB, .rslot = SLAB_BYTES_MAX + 1 },
	};
	int fd = numbered_memfd(0), before = open_fds();

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct rig r;
		int sock;

		ck_assert(rig_open(&r, 2));
		sock = raw_peer(&r);
		ck_assert_int_eq(xport_send_slab(r.b.ep, 7, (uint32_t)bad[i].slot, fd,
						 bad[i].rslot), TALLY_EINVAL);
		raw_frame_with_fds(sock, &bad[i], fd, 1);
		UNTIL(&r, r.b.closes == 1);
		ck_assert_int_eq(r.b.why, CLOSE_BAD_FRAME);
		close(sock);
		rig_close(&r);
	}
	ck_assert_int_eq(open_fds(), before);
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
		ck_assert_int_eq(xport_send_slab(r.a.ep, 7, i, fd, 4096), 0);
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
	ck_assert_int_eq(xport_send_slab(r.a.ep, 7, 0, fd, 4096), TALLY_EINVAL);
	rig_close(&r);
	close(fd);
}
END_TEST

/* One that is taken back has no descriptor that could be missed.  _i: its type. */
START_TEST(frames_about_slabs_end_a_tcp_link)
{
	struct rig r;
	int sock;

	ck_assert(rig_open(&r, 0));
	sock = raw_peer(&r);
	raw_frame(sock, &(struct frame){ .type = (uint8_t)_i });
	UNTIL(&r, r.b.closes == 1);
	ck_assert_int_eq(r.b.why, CLOSE_BAD_FRAME);
	close(sock);
	rig_close(&r);
}
END_TEST

/* _i: with data somewhere, or with none. */
START_TEST(frames_by_reference_end_a_tcp_link)
{
	struct frame f = { .type = FRAME_PUSH, .flags = FRAME_BYREF };
	struct rig r;
	int sock;

	ck_assert(rig_open(&r, 0));
	sock = raw_peer(&r);
	if (_i)
		f.flags |= FRAME_NODATA;
	else
		f.length = 4096;
	raw_frame(sock, &f);
	UNTIL(&r, r.b.closes == 1);
	ck_assert_int_eq(r.b.why, CLOSE_BAD_FRAME);
	ck_assert_uint_eq(r.b.got, 0);
	close(sock);
	rig_close(&r);
}
END_TEST

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

static void add(TCase *t)
{
	tcase_add_loop_test(t, any_fragmentation_gives_the_same_frames, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, random_frames_both_ways_through_small_buffers, MEDIUM_FIRST, MEDIA);
	tcase_add_test(t, slabs_come_in_order_with_their_descriptors);
	tcase_add_test(t, slabs_are_taken_back_in_order);
	tcase_add_test(t, slabs_have_bounds);
	tcase_add_test(t, slabs_unsent_at_close_leak_nothing);
	tcase_add_test(t, slabs_do_not_go_over_tcp);
	tcase_add_loop_test(t, frames_about_slabs_end_a_tcp_link, FRAME_SLAB, FRAME_QP + 1);
	tcase_add_loop_test(t, frames_by_reference_end_a_tcp_link, 0, 2);
	tcase_add_test(t, stray_descriptors_close_the_link_and_leak_nothing);
	tcase_add_test(t, short_payloads_are_taken_where_they_were_read);
	tcase_add_test(t, pongs_do_not_break_frames);
	tcase_add_test(t, frames_that_wait_go_with_one_call_or_as_few_as_asked_for);
}

int main(void)
{
	return rig_main("xport stream", add);
}
