// SPDX-License-Identifier: Apache-2.0
/* xport: why links end, what hostile, dead and silent peers can do, the listener's half. */
#include "tests/unit/xport_rig.h"

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
	do
		side_turn(&r.agent);
	while (xport_queued(r.a.ep) > 0);
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
	ck_assert_uint_eq(r.b.unplaceds, _i != 2);
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
	if (last_end[0]) {		/* the medium is there */
		const char *bytes = strstr(last_end, "a5a5a5a5");

		ck_assert_ptr_nonnull(bytes);
		ck_assert_uint_eq(strspn(bytes, "a5"), 80);	/* no key that a frame may have */
	}
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

START_TEST(the_backlog_follows_the_peer)
{
	uint8_t *p = pattern(SEG_BYTES_MAX, 8);
	struct rig r;
	char buf[65536];
	int fd;

	ck_assert(rig_open(&r, 0));
	fd = raw_peer(&r);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(send_push(&r.b, p, SEG_BYTES_MAX, i), 0);
	UNTIL(&r, xport_backlog_bytes(r.b.ep) > 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	UNTIL(&r, (recv(fd, buf, sizeof(buf), 0), r.b.n_lent == 0));
	UNTIL(&r, (recv(fd, buf, sizeof(buf), 0), xport_backlog_bytes(r.b.ep) == 0));
	close(fd);
	rig_close(&r);
	free(p);
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

static void add(TCase *t)
{
	tcase_add_loop_test(t, nobody_there_is_refused, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, peers_close_is_eof, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, cut_inside_a_frame_is_reset, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, killed_peer_is_noticed, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, garbage_is_bad_frame, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, other_version_is_version, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, frames_out_of_place_are_bad_frames, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, wrong_answers_to_hello_end_the_handshake, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, silent_listener_times_out, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, silent_peer_is_asked_and_then_given_up, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, idle_links_stay_up, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, our_own_stall_is_not_the_peers_silence, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, hello_read_takes_64_bytes_and_no_more, MEDIUM_FIRST, MEDIA);
	tcase_add_test(t, bad_addresses_are_einval);
	tcase_add_test(t, foreign_source_address_is_unreachable);
	tcase_add_test(t, tcp_reset_is_reset);
	tcase_add_test(t, poll_says_when_it_is_needed_again);
	tcase_add_test(t, the_backlog_follows_the_peer);
	tcase_add_test(t, hello_read_takes_only_a_hello);
	tcase_add_test(t, close_reasons_have_names_and_bounds);
}

int main(void)
{
	return rig_main("xport ends", add);
}
