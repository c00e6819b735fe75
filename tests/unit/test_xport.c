// SPDX-License-Identifier: Apache-2.0
/* xport: what every transport promises while a link lives, over every transport present. */
#include "common/net/xport_ep.h"
#include "tests/unit/xport_rig.h"

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
	ck_assert_str_eq(xport_kind_name(r.a.ep), r.m->kind_name);
	ck_assert_str_eq(xport_kind_name(r.b.ep), r.m->kind_name);
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
	settle(&r);
	send_small(&r.a, 1);
	do
		side_turn(&r.agent);
	while (epoll_wait(r.server.epfd, &ev, 1, 0) != 1);
	close_call(&r.b, CLOSE_LOCAL);
	ck_assert(xport_event(r.server.g, ev.data.ptr, ev.events));
	UNTIL(&r, r.b.closes == 1);
	ck_assert(xport_event(r.server.g, ev.data.ptr, ev.events));
	ck_assert_uint_eq(r.b.got, 0);
	ck_assert(!xport_event(r.server.g, &mine, EPOLLIN));
	ck_assert(!xport_event(r.server.g, NULL, EPOLLIN));
	rig_close(&r);
}
END_TEST

/* What went by the card and what was copied; a card copies what a work request holds. */
static void moved_are(const struct link *l, uint64_t bytes, uint64_t tiny)
{
	struct xport_moved m = xport_moved(l->ep);
	bool rdma = l->side->rig->m->kind == XPORT_RDMA, shm = xport_by_reference(l->ep);

	ck_assert_uint_eq(m.direct + m.copied, shm ? 0 : bytes);
	ck_assert_uint_le(m.copied, rdma ? tiny : bytes);
	ck_assert(rdma || m.direct == 0);
}

/* ---- frames ---- */

static void expect_next_round(struct link *l, const struct frame *f, const void *data)
{
	ck_assert_ptr_null(data);
	ck_assert_uint_eq(f->round, l->got);
}

START_TEST(frames_arrive_in_order)
{
	uint32_t n = 1, all = _i < MEDIUM_RDMA ? 20000 : 5000;
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	r.b.on_deliver = expect_next_round;
	while (n <= all) {
		if (send_small(&r.a, n) == 0)
			n++;
		else
			rig_turn(&r);
	}
	UNTIL(&r, r.b.got == all);
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
	uint64_t all = 0;
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint8_t *p = pattern(sizes[i], i);

		memset(r.b.room, 0xee, ROOM_BYTES);
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
		all += sizes[i];
	}
	moved_are(&r.a, all, 1 + 63 + 64 + 65);
	moved_are(&r.b, all, 0);
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
	link_free(&a2);
	link_free(&b2);
	free(p);
}
END_TEST

static void expect_pattern(struct link *l, const struct frame *f, const void *data)
{
	ck_assert_int_eq(memcmp(data, l->arg, f->length), 0);
}

START_TEST(small_payloads_of_two_links_do_not_mix)
{
	static struct rig r;
	static struct link a2, b2;
	struct link *to[] = { &r.b, &b2 };
	uint8_t *p[] = { pattern(1000, 1), pattern(1000, 2) };

	memset(&a2, 0, sizeof(a2));
	memset(&b2, 0, sizeof(b2));
	if (rig_linked(&r, _i)) {
		connect_link(&r, &a2);
		accept_link(&r, &b2);
		UNTIL(&r, a2.ups && b2.ups);
		for (int k = 0; k < 2; k++) {
			to[k]->arg = p[k];
			to[k]->on_deliver = expect_pattern;
		}
		for (uint32_t i = 0; i < 500; i++) {
			ck_assert_int_eq(send_push(&r.a, p[0], 1000, i), 0);
			ck_assert_int_eq(send_push(&a2, p[1], 1000, i), 0);
		}
		UNTIL(&r, r.b.got == 500 && b2.got == 500 && !r.a.n_lent && !a2.n_lent);
		rig_close(&r);
		link_free(&a2);
		link_free(&b2);
	}
	free(p[0]);
	free(p[1]);
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
	link_free(&b2);
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
	ck_assert_uint_eq(r.a.sents + r.a.unsents, 50);
	ck_assert_uint_gt(r.a.unsents, 0);
	ck_assert_uint_eq(r.a.n_lent, 0);
	rig_close(&r);
	free(p);
}

START_TEST(closed_gives_back_what_sent_has_not)
{
	static const int mediums[] = { 0, 1, MEDIUM_RDMA, MEDIUM_RDMA + 1 };

	lend_and_close(mediums[_i / 3], _i % 3);
}
END_TEST

static bool waits_for_the_peer(struct xport_ep *ep)
{
	(void)ep;
	return true;
}

/* As a card's is, whose peer may still write: closed() comes when that one has heard of it. */
START_TEST(a_link_that_has_died_takes_nothing_and_holds_nothing)
{
	struct rig r;
	struct xport_ops ops;
	uint8_t *p = pattern(1000, 1);

	if (!rig_linked(&r, _i)) {
		free(p);
		return;
	}
	ops = *r.a.ep->ops;
	if (!ops.cut)
		ops.cut = waits_for_the_peer;
	r.a.ep->ops = &ops;
	ck_assert_int_eq(send_push(&r.a, p, 1000, 0), 0);
	ck_assert(xport_takes(r.a.ep));
	ck_assert_uint_gt(xport_queued_bytes(r.a.ep), 0);
	close_call(&r.a, CLOSE_LOCAL);
	side_turn(&r.agent);
	ck_assert_uint_eq(r.a.closes, 0);
	ck_assert(!xport_takes(r.a.ep));
	ck_assert_uint_eq(xport_queued_bytes(r.a.ep), 0);
	UNTIL(&r, r.a.closes == 1 && r.b.closes == 1);
	rig_close(&r);
	free(p);
}
END_TEST

/* Half of a payload is here by the stream, and, where there is a card, a frame behind it. */
START_TEST(a_landing_that_its_link_cuts_short_is_given_back)
{
	struct frame f = { .type = FRAME_PUSH, .dtype = DTYPE_U8, .length = SEG_BYTES_MAX,
			   .slot = SLOT_NONE };
	uint8_t *p = pattern(SEG_BYTES_MAX, 6);
	struct rig r;

	if (rig_linked(&r, _i)) {
		r.a.lent[0] = 1;
		r.a.n_lent = 1;
		ck_assert_int_eq(send_call(&r.a, &f, p, 0), 0);
		UNTIL(&r, r.b.places);
		ck_assert_int_eq(send_small(&r.a, 1), 0);
		side_turn(&r.agent);
		while (r.m->kind == XPORT_RDMA && !r.b.got)
			side_turn(&r.server);
		ck_assert_uint_eq(r.b.landing, 1);
		close_call(&r.a, CLOSE_LOCAL);
		UNTIL(&r, r.a.closes == 1 && r.b.closes == 1);
		ck_assert_uint_eq(r.b.got, r.m->kind == XPORT_RDMA);
		ck_assert_uint_eq(r.b.unplaceds, 1);
		rig_close(&r);
	}
	free(p);
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
	ck_assert_uint_eq(r.b.unplaceds, _i != 2);
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
	link_free(&a2);
	link_free(&b2);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, handshake_brings_both_up_and_shows_the_peer, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, send_before_up_says_shutdown, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, late_and_foreign_events_are_harmless, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, frames_arrive_in_order, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, payloads_of_any_size_arrive_whole, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, nodata_push_comes_without_payload, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, full_queue_says_again_and_takes_nothing, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, refused_payload_is_thrown_away_and_the_stream_goes_on,
			    MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, two_links_carry_both_ways_at_once, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, small_payloads_of_two_links_do_not_mix, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, a_link_that_has_died_takes_nothing_and_holds_nothing, MEDIUM_FIRST,
			    MEDIA);
	tcase_add_loop_test(t, closing_in_up_is_safe, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, closing_in_place_or_resolve_is_safe, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, closing_in_deliver_stops_the_batch, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, closing_another_link_in_deliver_is_safe, MEDIUM_FIRST, MEDIA);
	tcase_add_loop_test(t, closed_gives_back_what_sent_has_not, MIN(MEDIUM_FIRST, 2) * 3,
			    4 * 3);	/* not shm */
	for (int i = 0; i < MEDIA; i++)
		if (i >= MEDIUM_FIRST && i != 2)
			tcase_add_loop_test(t, a_landing_that_its_link_cuts_short_is_given_back, i,
					    i + 1);
	tcase_add_test(t, reference_arrives_as_the_senders_address);
	tcase_add_test(t, sent_may_send_again);
	tcase_add_test(t, one_flood_does_not_keep_others_waiting);
}

int main(void)
{
	return rig_main("xport", add);
}
