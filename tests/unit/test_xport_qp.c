// SPDX-License-Identifier: Apache-2.0
/* xport: what ends a queue pair or keeps it from being, and what is left of the link then. */
#include <netinet/in.h>

#include "common/net/xport_rdma_link.h"
#include "tests/unit/xport_rig.h"

#define PUSHES	40u
#define PUSH_BYTES 65536u

/* A second link of the rig's groups, in the place of the one that has ended. */
static void expect_another_serves(struct rig *r)
{
	static struct link a, b;
	uint8_t *p = pattern(PUSH_BYTES, 3);

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	connect_link(r, &a);
	accept_link(r, &b);
	UNTIL(r, a.ups && b.ups);
	ck_assert_str_eq(xport_kind_name(a.ep), "rdma");
	UNTIL(r, xport_seen(a.ep, 0));
	ck_assert_int_eq(send_push(&a, p, PUSH_BYTES, 0), 0);
	UNTIL(r, b.got == 1 && a.n_lent == 0);
	ck_assert_int_eq(memcmp(b.last_data, p, PUSH_BYTES), 0);
	rig_close(r);
	link_free(&a);
	link_free(&b);
	free(p);
}

/* _i: which medium, and whose queue pair, while payloads go from a to b. */
START_TEST(a_queue_pair_in_error_ends_its_link_and_the_next_one_serves)
{
	struct ibv_qp_attr stop = { .qp_state = IBV_QPS_ERR };
	uint8_t *p = pattern(PUSH_BYTES, 1);
	struct rig r;
	struct link *bad = _i % 2 ? &r.b : &r.a, *good = _i % 2 ? &r.a : &r.b;

	if (rig_linked(&r, MEDIUM_RDMA + _i / 2)) {
		for (uint32_t i = 0; i < PUSHES; i++)
			ck_assert_int_eq(send_push(&r.a, p, PUSH_BYTES, i), 0);
		UNTIL(&r, r.b.got > 0);
		ck_assert_int_eq(ibv_modify_qp(bad->ep->rdma->qp, &stop, IBV_QP_STATE), 0);
		UNTIL(&r, r.a.closes == 1 && r.b.closes == 1);
		ck_assert_int_eq(bad->why, CLOSE_QUEUE_PAIR);
		ck_assert_int_eq(good->why, CLOSE_EOF);
		ck_assert_uint_eq(r.a.sents + r.a.unsents, PUSHES);
		ck_assert_uint_eq(r.a.n_lent, 0);
		ck_assert_uint_ge(r.b.got, r.a.sents);
		expect_another_serves(&r);
	}
	free(p);
}
END_TEST

/* The card refuses, nothing lands, both ends learn of it; the next link serves. */
static void expect_refused(struct rig *r)
{
	uint8_t *p = pattern(PUSH_BYTES, 2);

	ck_assert_int_eq(send_push(&r->a, p, PUSH_BYTES, 0), 0);
	UNTIL(r, r->a.closes == 1 && r->b.closes == 1);
	ck_assert_int_eq(r->a.why, CLOSE_ACCESS);
	ck_assert_uint_eq(r->b.got, 0);
	ck_assert_uint_eq(r->b.room[0], 0xee);
	ck_assert_int_eq(memcmp(r->b.room, r->b.room + 1, ROOM_BYTES - 1), 0);
	expect_another_serves(r);
	free(p);
}

START_TEST(a_write_beyond_what_was_shown_is_refused)
{
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	r.a.ep->rdma->seen[0].addr += ROOM_BYTES - PUSH_BYTES;	/* its end is beyond */
	expect_refused(&r);
}
END_TEST

START_TEST(a_late_write_into_what_was_taken_back_is_refused)
{
	struct rdma_link *k;
	struct seen was;
	struct rig r;

	if (!rig_linked(&r, _i))
		return;
	k = r.a.ep->rdma;
	was = k->seen[0];
	xport_hide(r.b.ep, 0);
	UNTIL(&r, !xport_shows(r.b.ep, 0));
	ck_assert_uint_eq(k->nseen, 0);
	k->seen[k->nseen++] = was;
	if (k->cq->dev->windows)
		expect_refused(&r);
	else
		rig_close(&r);
}
END_TEST

/* ---- no queue pair ---- */

static void expect_tcp(struct rig *r, struct link *from, struct link *to)
{
	uint8_t data[100] = { 7 };

	ck_assert_str_eq(xport_kind_name(from->ep), "tcp");
	ck_assert(!xport_takes_regions(from->ep));
	ck_assert_int_eq(send_push(from, data, sizeof(data), 0), 0);
	UNTIL(r, to->got == 1 && from->n_lent == 0);
	ck_assert_int_eq(memcmp(to->last_data, data, sizeof(data)), 0);
}

/* On any machine: loopback has no card. */
START_TEST(an_address_without_a_card_is_reached_by_tcp)
{
	struct rig r;

	ck_assert(rig_open(&r, 0));
	r.addr.kind = XPORT_RDMA;
	connect_link(&r, &r.a);
	accept_link(&r, &r.b);
	UNTIL(&r, r.a.ups && r.b.ups);
	if (xport_rdma_devices()) {
		ck_assert_ptr_nonnull(strstr(xport_path(r.a.ep), "no queue pair"));
		ck_assert_ptr_nonnull(strstr(xport_path(r.b.ep), "no RDMA device"));
	}
	expect_tcp(&r, &r.a, &r.b);
	expect_tcp(&r, &r.b, &r.a);
	rig_close(&r);
}
END_TEST

/* A queue pair at that address, or at one that nobody has. */
static struct frame qp_at(const struct rig *r, const char *addr, uint32_t step, bool wrong)
{
	struct frame f = {
		.type = FRAME_QP, .job = step, .tensor = 4000, .attempt = IBV_MTU_1024,
		.epoch = RQ_FRAMES,
	};
	struct sockaddr_storage sa;
	uint8_t gid[16];

	ck_assert(addr_parse(r->m->family, addr, &sa) && rdma_gid_of(&sa, gid));
	gid[15] ^= wrong ? 0x80 : 0;
	f.slot = get_le64(gid);
	f.rslot = get_le64(gid + 8);
	return f;
}

/* r->a has been welcomed by a plain socket, and offered a queue pair. */
static int raw_offer(struct rig *r, bool wrong)
{
	struct frame f = qp_at(r, r->addr.remote, QP_OFFER, wrong), hello, welcome;
	int fd;

	connect_link(r, &r->a);
	fd = accept(r->listener, NULL, NULL);
	hello = raw_read(r, fd);
	ck_assert_uint_eq(hello.offset, HELLO_RDMA);
	welcome = welcome_for(&hello);
	raw_frame(fd, &welcome);
	raw_frame(fd, &f);
	return fd;
}

START_TEST(a_peer_with_a_wrong_gid_is_reached_by_tcp)
{
	struct frame f;
	struct rig r;
	int fd;

	if (!rig_open(&r, _i))
		return;
	fd = raw_offer(&r, true);
	f = raw_read(&r, fd);
	ck_assert_uint_eq(f.type, FRAME_QP);
	ck_assert_uint_eq(f.job, QP_ANSWER);
	ck_assert_uint_ne(f.aux, 0);
	UNTIL(&r, r.a.ups);
	ck_assert_str_eq(xport_kind_name(r.a.ep), "tcp");
	ck_assert_ptr_nonnull(strstr(xport_path(r.a.ep), "joining the queue pairs"));
	raw_frame(fd, &(struct frame){ .type = FRAME_PROBE });
	UNTIL(&r, r.a.got == 1);
	close(fd);
	rig_close(&r);
}
END_TEST

START_TEST(an_agent_with_a_wrong_gid_is_reached_by_tcp)
{
	struct frame f, hello = hello_frame();
	struct rig r;
	int client, fd;

	if (!rig_open(&r, _i))
		return;
	raw_connect(&r, &client, &fd);
	hello.offset = HELLO_RDMA;
	adopt_link(&r, &r.b, fd, &hello);
	ck_assert_uint_eq(raw_read(&r, client).type, FRAME_WELCOME);
	f = raw_read(&r, client);
	ck_assert_uint_eq(f.job, QP_OFFER);
	ck_assert_uint_eq(f.aux, 0);
	f = qp_at(&r, r.addr.local, QP_ANSWER, true);
	raw_frame(client, &f);
	f = raw_read(&r, client);
	ck_assert_uint_eq(f.type, FRAME_QP);
	ck_assert_uint_eq(f.job, QP_READY);
	ck_assert_uint_ne(f.aux, 0);
	ck_assert_uint_eq(r.b.ups, 1);
	ck_assert_str_eq(xport_kind_name(r.b.ep), "tcp");
	ck_assert_ptr_nonnull(strstr(xport_path(r.b.ep), "joining the queue pairs"));
	raw_frame(client, &(struct frame){ .type = FRAME_PROBE });
	UNTIL(&r, r.b.got == 1);
	close(client);
	rig_close(&r);
}
END_TEST

START_TEST(a_server_that_could_not_join_is_reached_by_tcp)
{
	struct frame f;
	struct rig r;
	int fd;

	if (!rig_open(&r, _i))
		return;
	fd = raw_offer(&r, false);
	f = raw_read(&r, fd);
	ck_assert_uint_eq(f.job, QP_ANSWER);
	ck_assert_uint_eq(f.aux, 0);
	raw_frame(fd, &(struct frame){ .type = FRAME_QP, .job = QP_READY, .aux = 5 });
	UNTIL(&r, r.a.ups);
	ck_assert_str_eq(xport_kind_name(r.a.ep), "tcp");
	ck_assert_ptr_nonnull(strstr(xport_path(r.a.ep), "the server has no queue pair"));
	raw_frame(fd, &(struct frame){ .type = FRAME_PROBE });
	UNTIL(&r, r.a.got == 1);
	close(fd);
	rig_close(&r);
}
END_TEST

/* _i: which medium, and whether it says nothing or ends. */
START_TEST(a_server_that_does_not_join_ends_its_link_for_the_queue_pair)
{
	struct rig r;
	int fd;

	if (!rig_open(&r, MEDIUM_RDMA + _i / 2))
		return;
	fd = raw_offer(&r, false);
	ck_assert_uint_eq(raw_read(&r, fd).job, QP_ANSWER);
	if (_i % 2)
		shutdown(fd, SHUT_WR);
	else
		let_pass(&r, HANDSHAKE_MS + 500);
	UNTIL(&r, r.a.closes == 1);
	ck_assert_int_eq(r.a.why, CLOSE_QUEUE_PAIR);
	close(fd);
	rig_close(&r);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, a_queue_pair_in_error_ends_its_link_and_the_next_one_serves, 0, 4);
	tcase_add_loop_test(t, a_write_beyond_what_was_shown_is_refused, MEDIUM_RDMA, MEDIA);
	tcase_add_loop_test(t, a_late_write_into_what_was_taken_back_is_refused, MEDIUM_RDMA,
			    MEDIA);
	tcase_add_test(t, an_address_without_a_card_is_reached_by_tcp);
	tcase_add_loop_test(t, a_peer_with_a_wrong_gid_is_reached_by_tcp, MEDIUM_RDMA, MEDIA);
	tcase_add_loop_test(t, an_agent_with_a_wrong_gid_is_reached_by_tcp, MEDIUM_RDMA, MEDIA);
	tcase_add_loop_test(t, a_server_that_could_not_join_is_reached_by_tcp, MEDIUM_RDMA, MEDIA);
	tcase_add_loop_test(t, a_server_that_does_not_join_ends_its_link_for_the_queue_pair, 0, 4);
}

int main(void)
{
	return rig_main("xport qp", add);
}
