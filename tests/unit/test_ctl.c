// SPDX-License-Identifier: Apache-2.0
/* Control connections: messages both ways, descriptors, and every kind of bad peer. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/ctl/ctl.h"
#include "tests/unit/loop_wait.h"

struct side {
	struct ctl *c;
	uint32_t up, msgs, closed, nfds, accepted;
	int fds[STREAM_FDS_MAX];
	uint32_t take, fds_of_msg;	/* the message number that brought them */
	enum msg_type type;
	struct msg_reply reply;		/* text is not kept */
	uint64_t ids_sum;
	char text[ERR_TEXT_MAX + 1];
	struct err why;
	bool close_on_msg, answer;
};

static struct loop *loop;
static struct side a, b;

static void on_up(void *ctx, struct ctl *c)
{
	struct side *s = ctx;

	ck_assert_ptr_eq(s->c, c);
	s->up++;
}

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct side *s = ctx;
	uint32_t n;

	ck_assert_uint_eq(s->closed, 0);
	s->msgs++;
	s->type = m->type;
	if (m->type == MSG_REPLY) {
		s->reply = m->reply;
		snprintf(s->text, sizeof(s->text), "%s", m->reply.text);
		for (uint32_t i = 0; i < m->reply.nids; i++)
			s->ids_sum += m->reply.ids[i];
	}
	n = ctl_take_fds(c, s->fds + s->nfds, MIN(s->take, STREAM_FDS_MAX - s->nfds));
	if (n > 0)
		s->fds_of_msg = s->msgs;
	s->nfds += n;
	if (s->answer)
		ck_assert_int_eq(ctl_reply(c, m->query.req, 0, "%u", s->msgs), 0);
	if (s->close_on_msg)
		ctl_close(c);
}

static void on_closed(void *ctx, struct ctl *c, const struct err *e)
{
	struct side *s = ctx;

	ck_assert_ptr_eq(s->c, c);
	s->closed++;
	s->why = *e;
}

static const struct ctl_cb cb = { .up = on_up, .msg = on_msg, .closed = on_closed };

static void adopt(struct side *s, int fd)
{
	struct err e;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	ck_assert_int_eq(ctl_adopt(loop, &s->c, fd, &cb, s, &e), 0);
}

static void setup(void)
{
	struct err e;

	ck_assert_int_eq(loop_new(&loop, &e), 0);
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	a.take = b.take = STREAM_FDS_MAX;
}

static void setup_pair(void)
{
	int p[2];

	setup();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	adopt(&a, p[0]);
	adopt(&b, p[1]);
}

static void teardown(void)
{
	if (a.c && !a.closed)
		ctl_close(a.c);
	if (b.c && !b.closed)
		ctl_close(b.c);
	loop_free(loop);
	ck_assert_uint_eq(a.closed, a.c != NULL);
	ck_assert_uint_eq(b.closed, b.c != NULL);
}

/* The other end is a bare socket; returns it. */
static int raw_peer(void)
{
	int p[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	adopt(&a, p[0]);
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	return p[1];
}

static struct msg query(uint64_t req)
{
	return (struct msg){ .type = MSG_QUERY,
			     .query = { .req = req, .what = QUERY_NODES, .job = "" } };
}

/* Encodes m into buf; bytes. */
static uint32_t encode(const struct msg *m, uint8_t *buf, size_t size)
{
	uint32_t bytes;

	ck_assert_int_eq(msg_encode_size(m, &bytes, NULL), 0);
	ck_assert_uint_le(bytes, size);
	ck_assert_int_eq(msg_encode(m, buf, bytes, NULL), 0);
	return bytes;
}

/* The one REPLY that a bare peer finds in its socket before the end. */
static int read_reply(int fd)
{
	static uint8_t buf[4096], mem[32768];
	struct msg_mem mm = { mem, sizeof(mem), 0 };
	uint32_t body, type;
	ssize_t n = read(fd, buf, sizeof(buf));
	struct msg m;

	ck_assert_int_ge(n, MSG_PREFIX_BYTES);
	ck_assert_int_eq(msg_prefix_decode(buf, &body, &type, NULL), 0);
	ck_assert_int_eq(n, MSG_PREFIX_BYTES + body);
	ck_assert_int_eq(msg_decode(type, buf + MSG_PREFIX_BYTES, body, &mm, &m, NULL), 0);
	ck_assert_int_eq(m.type, MSG_REPLY);
	ck_assert_uint_eq(m.reply.req, 0);
	ck_assert_uint_gt(strlen(m.reply.text), 0);
	ck_assert_int_eq(read(fd, buf, 1), 0);
	return m.reply.code;
}

/* ---- good peers ---- */

START_TEST(messages_go_both_ways)
{
	struct msg m = query(17);

	b.answer = true;
	ck_assert_int_eq(ctl_send(a.c, &m, NULL), 0);
	loop_wait_count(loop, &a.msgs, 1);
	ck_assert_int_eq(b.type, MSG_QUERY);
	ck_assert_uint_eq(a.reply.req, 17);
	ck_assert_int_eq(a.reply.code, 0);
	ck_assert_str_eq(a.text, "1");
	ctl_close(a.c);
	loop_wait_count(loop, &b.closed, 1);
	ck_assert_int_eq(b.why.code, 0);
	ck_assert_int_eq(a.why.code, 0);
}
END_TEST

START_TEST(message_encoded_once_goes_to_many)
{
	struct msg m = { .type = MSG_REPLY, .reply = { .req = 9, .text = "to all" } };
	struct ctl_wire w = { 0 };

	ctl_wire_free(&w);
	ck_assert_int_eq(ctl_encode(&m, &w, NULL), 0);
	ck_assert_int_eq(ctl_send_wire(a.c, &w, NULL), 0);
	ck_assert_int_eq(ctl_send_wire(b.c, &w, NULL), 0);
	ctl_wire_free(&w);
	loop_wait_count(loop, &b.msgs, 1);
	loop_wait_count(loop, &a.msgs, 1);
	ck_assert_str_eq(a.text, "to all");
	ck_assert_str_eq(b.text, "to all");
	m.reply.text = NULL;
	m.type = MSG_TYPE_END;
	ck_assert_int_ne(ctl_encode(&m, &w, NULL), 0);
	ck_assert_ptr_null(w.bytes);
}
END_TEST

START_TEST(many_messages_keep_their_order)
{
	enum { N = 5000 };

	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(ctl_reply(a.c, i, 0, "message %u", i), 0);
	loop_wait_count(loop, &b.msgs, N);
	ck_assert_uint_eq(b.reply.req, N - 1);
	ck_assert_uint_eq(b.msgs, N);
}
END_TEST

START_TEST(big_message_arrives_whole)
{
	static uint32_t ids[16384];
	struct msg m = { .type = MSG_REPLY,
			 .reply = { .req = 1, .text = "", .nids = ARRAY_SIZE(ids), .ids = ids } };
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ARRAY_SIZE(ids); i++) {
		ids[i] = i * 200003u + 1;
		sum += ids[i];
	}
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(ctl_send(a.c, &m, NULL), 0);
	loop_wait_count(loop, &b.msgs, 20);
	ck_assert_uint_eq(b.ids_sum, 20 * sum);
}
END_TEST

START_TEST(descriptors_belong_to_the_message_they_came_with)
{
	struct msg m = query(1);
	int p[2];
	char c;

	ck_assert_int_eq(pipe(p), 0);
	/* All of this is in the socket before the other side reads. */
	ck_assert_int_eq(ctl_send(a.c, &m, NULL), 0);
	ck_assert_int_eq(ctl_send(a.c, &m, NULL), 0);
	ck_assert_int_eq(ctl_send_fds(a.c, &m, p, 2, NULL), 0);
	ck_assert_int_eq(ctl_send(a.c, &m, NULL), 0);
	loop_wait_count(loop, &b.msgs, 4);
	ck_assert_uint_eq(b.nfds, 2);
	ck_assert_uint_eq(b.fds_of_msg, 3);
	ck_assert_int_eq(write(b.fds[1], "x", 1), 1);
	ck_assert_int_eq(read(p[0], &c, 1), 1);
	close(p[0]);
	close(p[1]);
	close(b.fds[0]);
	close(b.fds[1]);
}
END_TEST

START_TEST(descriptors_not_taken_are_closed)
{
	struct msg m = query(1);
	int p[2];
	char c;

	ck_assert_int_eq(pipe(p), 0);
	b.take = 0;
	ck_assert_int_eq(ctl_send_fds(a.c, &m, &p[1], 1, NULL), 0);
	close(p[1]);
	loop_wait_count(loop, &b.msgs, 1);
	ck_assert_int_eq(read(p[0], &c, 1), 0);		/* nobody has the other end */
	close(p[0]);
}
END_TEST

START_TEST(closing_in_a_callback_stops_the_messages)
{
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(ctl_reply(a.c, 0, 0, "x"), 0);
	b.close_on_msg = true;
	loop_wait_count(loop, &a.closed, 1);
	loop_wait_count(loop, &b.closed, 1);
	ck_assert_uint_eq(b.msgs, 1);
	ck_assert_int_eq(b.why.code, 0);
}
END_TEST

START_TEST(sending_after_close_is_refused)
{
	struct msg m = query(1);
	struct err e;

	ctl_close(a.c);
	ck_assert_int_eq(ctl_send(a.c, &m, &e), TALLY_ESHUTDOWN);
	ck_assert_uint_eq(a.closed, 0);		/* told later, never inside a call */
}
END_TEST

START_TEST(reply_text_is_made_clean)
{
	ck_assert_int_eq(ctl_reply(a.c, 3, TALLY_EINVAL, "bad name '%s'", "a\nb\xff\u00e9"), 0);
	loop_wait_count(loop, &b.msgs, 1);
	ck_assert_str_eq(b.text, "bad name 'a?b?\u00e9'");
	ck_assert_int_eq(b.reply.code, TALLY_EINVAL);
}
END_TEST

START_TEST(peer_that_does_not_read_is_cut)
{
	static uint32_t ids[16384];
	struct msg m = { .type = MSG_REPLY,
			 .reply = { .req = 1, .text = "", .nids = ARRAY_SIZE(ids), .ids = ids } };
	struct err e;
	int code = 0, n;

	for (uint32_t i = 0; i < ARRAY_SIZE(ids); i++)
		ids[i] = UINT32_MAX;
	for (n = 0; n < 10000 && code == 0; n++)
		code = ctl_send(a.c, &m, &e);
	ck_assert_int_eq(code, TALLY_EQUOTA);
	ck_assert_ptr_nonnull(strstr(e.text, "does not read"));
	ck_assert_uint_eq(a.closed, 0);
	loop_wait_count(loop, &a.closed, 1);
	ck_assert_int_eq(a.why.code, TALLY_EQUOTA);
}
END_TEST

/* ---- over TCP ---- */

static void on_accepted(void *ctx, int fd)
{
	struct side *s = ctx;

	s->accepted++;
	adopt(s, fd);
}

START_TEST(connect_over_tcp_says_up_and_knows_both_addresses)
{
	struct listener *li;
	struct msg m = query(5);
	struct err e;

	b.answer = true;
	ck_assert_int_eq(listener_tcp(loop, &li, "127.0.0.1", 0, on_accepted, &b, &e), 0);
	ck_assert_int_eq(ctl_connect(loop, &a.c, "127.0.0.1", listener_port(li), &cb, &a, &e), 0);
	ck_assert_int_eq(ctl_send(a.c, &m, NULL), 0);	/* before it is up */
	loop_wait_count(loop, &a.msgs, 1);
	ck_assert_uint_eq(a.up, 1);
	ck_assert_uint_eq(b.up, 0);
	ck_assert_str_eq(ctl_peer(a.c), ctl_local(b.c));
	ck_assert_str_eq(ctl_local(a.c), ctl_peer(b.c));
	ck_assert_int_ge(ctl_fd(a.c), 0);
	listener_close(li);
}
END_TEST

START_TEST(connect_to_nobody_is_closed_with_the_reason)
{
	struct listener *li;
	struct err e;
	uint16_t port;

	ck_assert_int_eq(listener_tcp(loop, &li, "127.0.0.1", 0, on_accepted, &b, &e), 0);
	port = listener_port(li);
	listener_close(li);
	ck_assert_int_eq(ctl_connect(loop, &a.c, "127.0.0.1", port, &cb, &a, &e), 0);
	loop_wait_count(loop, &a.closed, 1);
	ck_assert_uint_eq(a.up, 0);
	ck_assert_ptr_nonnull(strstr(a.why.text, "refused"));
}
END_TEST

/* ---- bad peers ---- */

static void expect_cut(int fd, int code)
{
	loop_wait_count(loop, &a.closed, 1);
	ck_assert_uint_eq(a.msgs, 0);
	ck_assert_int_eq(a.why.code, code);
	ck_assert_int_eq(read_reply(fd), code);
	close(fd);
}

START_TEST(garbage_is_answered_with_eproto_and_cut)
{
	int fd = raw_peer();

	ck_assert_int_eq(write(fd, "\1\0\0\0\377\377\1\0garbage", 15), 15);
	expect_cut(fd, TALLY_EPROTO);
}
END_TEST

START_TEST(wrong_version_is_answered_with_eversion_and_cut)
{
	struct msg m = query(1);
	uint8_t buf[256];
	int fd = raw_peer();
	uint32_t n = encode(&m, buf, sizeof(buf));

	put_le16(buf + 6, MSG_VERSION + 1);
	ck_assert_int_eq(write(fd, buf, n), n);
	expect_cut(fd, TALLY_EVERSION);
}
END_TEST

START_TEST(promise_of_too_long_a_message_is_cut_at_the_prefix)
{
	uint8_t prefix[MSG_PREFIX_BYTES];
	int fd = raw_peer();

	put_le32(prefix, CTL_MSG_BYTES_MAX + 1);
	put_le16(prefix + 4, MSG_QUERY);
	put_le16(prefix + 6, MSG_VERSION);
	ck_assert_int_eq(write(fd, prefix, sizeof(prefix)), sizeof(prefix));
	expect_cut(fd, TALLY_EPROTO);
}
END_TEST

START_TEST(bad_body_is_cut)
{
	uint8_t bytes[MSG_PREFIX_BYTES + 4] = { 4, 0, 0, 0 };
	int fd = raw_peer();

	put_le16(bytes + 4, MSG_QUERY);
	put_le16(bytes + 6, MSG_VERSION);
	memset(bytes + MSG_PREFIX_BYTES, 0xff, 4);
	ck_assert_int_eq(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	expect_cut(fd, TALLY_EPROTO);
}
END_TEST

START_TEST(silent_peer_is_cut_at_the_deadline)
{
	int fd = raw_peer();

	ctl_set_patience(a.c, 30);
	expect_cut(fd, TALLY_ETIMEDOUT);
}
END_TEST

struct dribble {
	int fd;
	uint8_t buf[256];
	uint32_t len, sent;
};

static void on_dribble(void *ctx)
{
	struct dribble *d = ctx;

	/* All but the last byte: it would never be done. */
	if (d->sent + 1 < d->len && write(d->fd, d->buf + d->sent, 1) == 1)
		d->sent++;
}

START_TEST(slow_loris_is_cut_however_often_it_sends_a_byte)
{
	struct msg m = query(1);
	struct dribble d = { .fd = raw_peer() };
	struct loop_timer *t;

	d.len = encode(&m, d.buf, sizeof(d.buf));
	ck_assert_int_eq(write(d.fd, d.buf, d.len), d.len);	/* a good first message */
	loop_wait_count(loop, &a.msgs, 1);
	ctl_set_patience(a.c, 60);
	ck_assert_int_eq(loop_timer_start(loop, &t, 0, 10, on_dribble, &d), 0);
	loop_wait_count(loop, &a.closed, 1);
	loop_timer_stop(t);
	ck_assert_uint_ge(d.sent, 2);
	ck_assert_uint_eq(a.msgs, 1);
	ck_assert_int_eq(a.why.code, TALLY_ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(a.why.text, "rest of a message"));
	close(d.fd);
}
END_TEST

START_TEST(message_in_single_bytes_is_a_message)
{
	struct msg m = query(1);
	uint8_t buf[256];
	int fd = raw_peer();
	uint32_t n = encode(&m, buf, sizeof(buf));

	for (uint32_t i = 0; i < n; i++) {
		uint32_t turn = 0;
		struct loop_count one = { &turn, 0 };

		ck_assert_int_eq(write(fd, buf + i, 1), 1);
		ck_assert(loop_wait(loop, loop_count_holds, &one));
	}
	loop_wait_count(loop, &a.msgs, 1);
	ck_assert_int_eq(a.type, MSG_QUERY);
	close(fd);
	loop_wait_count(loop, &a.closed, 1);
	ck_assert_int_eq(a.why.code, 0);
}
END_TEST

START_TEST(end_in_the_middle_of_a_message_is_eproto)
{
	int fd = raw_peer();

	ck_assert_int_eq(write(fd, "\1\0", 2), 2);
	close(fd);
	loop_wait_count(loop, &a.closed, 1);
	ck_assert_int_eq(a.why.code, TALLY_EPROTO);
}
END_TEST

/* ---- the blocking client ---- */

struct asker {
	uint16_t port;
	uint32_t timeout_ms;
	int open_code, ask_code;
	struct err e;
	char text[64];
	struct loop_bell *done;
};

static void *ask(void *p)
{
	struct asker *k = p;
	struct msg m = query(9), answer;
	struct ctl_client *c;

	k->ask_code = 1;
	k->open_code = ctl_client_open(&c, "127.0.0.1", k->port, k->timeout_ms, &k->e);
	if (k->open_code == 0) {
		k->ask_code = ctl_client_ask(c, &m, &answer, &k->e);
		if (k->ask_code == 0 && answer.type == MSG_REPLY && answer.reply.req == 9)
			snprintf(k->text, sizeof(k->text), "%s", answer.reply.text);
		ctl_client_close(c);
	}
	loop_bell_ring(k->done);
	return NULL;
}

static void on_done(void *ctx)
{
	++*(uint32_t *)ctx;
}

static void run_asker(struct asker *k)
{
	uint32_t done = 0;
	pthread_t t;

	ck_assert_int_eq(loop_bell_start(loop, &k->done, on_done, &done), 0);
	pthread_create(&t, NULL, ask, k);
	loop_wait_count(loop, &done, 1);
	pthread_join(t, NULL);
	loop_bell_stop(k->done);
}

START_TEST(client_asks_and_is_answered)
{
	struct asker k = { .timeout_ms = LOOP_WAIT_MS };
	struct listener *li;
	struct err e;

	b.answer = true;
	ck_assert_int_eq(listener_tcp(loop, &li, "127.0.0.1", 0, on_accepted, &b, &e), 0);
	k.port = listener_port(li);
	run_asker(&k);
	ck_assert_msg(k.ask_code == 0, "%s", k.e.text);
	ck_assert_str_eq(k.text, "1");
	listener_close(li);
}
END_TEST

START_TEST(client_gives_up_on_a_silent_scheduler)
{
	struct asker k = { .timeout_ms = 500 };
	struct listener *li;
	struct err e;

	ck_assert_int_eq(listener_tcp(loop, &li, "127.0.0.1", 0, on_accepted, &b, &e), 0);
	k.port = listener_port(li);
	run_asker(&k);
	ck_assert_int_eq(k.ask_code, TALLY_ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(k.e.text, "did not answer in 500 ms"));
	listener_close(li);
}
END_TEST

START_TEST(client_says_that_nobody_is_there)
{
	struct asker k = { .timeout_ms = 1000 };
	struct listener *li;
	struct err e;

	ck_assert_int_eq(listener_tcp(loop, &li, "127.0.0.1", 0, on_accepted, &b, &e), 0);
	k.port = listener_port(li);
	listener_close(li);
	run_asker(&k);
	ck_assert_int_eq(k.open_code, TALLY_ESCHED);
	ck_assert_ptr_nonnull(strstr(k.e.text, "refused"));
}
END_TEST

START_TEST(crowd_closes_its_oldest_stranger_and_nobody_who_is_known)
{
	static struct side t[4];
	struct ctl_crowd crowd;
	struct err e;
	int p[4][2];

	ctl_crowd_init(&crowd, 2);
	for (int i = 0; i < 4; i++) {
		t[i] = (struct side){ 0 };
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p[i]), 0);
		ck_assert_int_eq(ctl_adopt(loop, &t[i].c, p[i][0], &cb, &t[i], &e), 0);
		ctl_crowd_join(&crowd, t[i].c);
		if (i == 0)
			ctl_known(t[i].c);
	}
	loop_wait_count(loop, &t[1].closed, 1);
	ck_assert_int_eq(t[1].why.code, 0);
	ck_assert_uint_eq(crowd.n, 2);
	close(p[2][1]);			/* who leaves makes room, too */
	loop_wait_count(loop, &t[2].closed, 1);
	ck_assert_uint_eq(crowd.n, 1);
	ck_assert_uint_eq(t[0].closed + t[3].closed, 0);
	for (int i = 0; i < 4; i++) {
		if (i != 2)
			close(p[i][1]);
		loop_wait_count(loop, &t[i].closed, 1);
	}
	ck_assert_uint_eq(crowd.n, 0);
}
END_TEST

/* Nobody knows who it is: as many as there may be of those have little together. */
START_TEST(stranger_that_promises_much_is_closed_before_it_is_kept)
{
	uint8_t prefix[MSG_PREFIX_BYTES] = { 0 };
	struct ctl_crowd crowd;
	int fd = raw_peer();

	put_le32(prefix, CTL_MSG_BYTES_MAX);
	put_le16(prefix + 4, MSG_HELLO);
	put_le16(prefix + 6, MSG_VERSION);
	ctl_crowd_init(&crowd, 2);
	ctl_crowd_join(&crowd, a.c);
	ck_assert_int_eq(write(fd, prefix, sizeof(prefix)), sizeof(prefix));
	loop_wait_count(loop, &a.closed, 1);
	ck_assert_int_eq(a.why.code, TALLY_EPROTO);	/* ETIMEDOUT: it was waited for */
	close(fd);
}
END_TEST

static void add_pair_tests(TCase *c)
{
	tcase_add_checked_fixture(c, setup_pair, teardown);
	tcase_add_test(c, messages_go_both_ways);
	tcase_add_test(c, many_messages_keep_their_order);
	tcase_add_test(c, message_encoded_once_goes_to_many);
	tcase_add_test(c, big_message_arrives_whole);
	tcase_add_test(c, descriptors_belong_to_the_message_they_came_with);
	tcase_add_test(c, descriptors_not_taken_are_closed);
	tcase_add_test(c, closing_in_a_callback_stops_the_messages);
	tcase_add_test(c, sending_after_close_is_refused);
	tcase_add_test(c, reply_text_is_made_clean);
	tcase_add_test(c, peer_that_does_not_read_is_cut);
}

static void add_other_tests(TCase *c)
{
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, connect_over_tcp_says_up_and_knows_both_addresses);
	tcase_add_test(c, connect_to_nobody_is_closed_with_the_reason);
	tcase_add_test(c, garbage_is_answered_with_eproto_and_cut);
	tcase_add_test(c, wrong_version_is_answered_with_eversion_and_cut);
	tcase_add_test(c, promise_of_too_long_a_message_is_cut_at_the_prefix);
	tcase_add_test(c, bad_body_is_cut);
	tcase_add_test(c, silent_peer_is_cut_at_the_deadline);
	tcase_add_test(c, slow_loris_is_cut_however_often_it_sends_a_byte);
	tcase_add_test(c, message_in_single_bytes_is_a_message);
	tcase_add_test(c, end_in_the_middle_of_a_message_is_eproto);
	tcase_add_test(c, crowd_closes_its_oldest_stranger_and_nobody_who_is_known);
	tcase_add_test(c, stranger_that_promises_much_is_closed_before_it_is_kept);
	tcase_add_test(c, client_asks_and_is_answered);
	tcase_add_test(c, client_gives_up_on_a_silent_scheduler);
	tcase_add_test(c, client_says_that_nobody_is_there);
}

int main(void)
{
	Suite *s = suite_create("ctl");
	TCase *pair = tcase_create("pair"), *other = tcase_create("other");
	SRunner *r = srunner_create(s);
	int failed;

	signal(SIGPIPE, SIG_IGN);	/* the bare peers write to closed sockets */
	add_pair_tests(pair);
	add_other_tests(other);
	tcase_set_timeout(pair, 240);
	tcase_set_timeout(other, 240);
	suite_add_tcase(s, pair);
	suite_add_tcase(s, other);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
