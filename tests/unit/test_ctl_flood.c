// SPDX-License-Identifier: Apache-2.0
/* Peers of a control connection that ask and do not read, and strangers that talk on and on. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/ctl/ctl.h"
#include "tests/unit/loop_wait.h"

struct side {
	struct ctl *c;
	uint32_t msgs, closed;
	struct err why;
	bool answer;
};

static struct loop *loop;
static struct side a, b;		/* a pair that behaves */

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct side *s = ctx;

	s->msgs++;
	if (s->answer)
		(void)ctl_reply(c, m->query.req, 0, "%u", s->msgs);
}

static void on_closed(void *ctx, struct ctl *c, const struct err *e)
{
	struct side *s = ctx;

	ck_assert_ptr_eq(s->c, c);
	s->closed++;
	s->why = *e;
}

static void adopt(struct side *s, int fd)
{
	static const struct ctl_cb cb = { .msg = on_msg, .closed = on_closed };
	struct err e;

	ck_assert_int_eq(ctl_adopt(loop, &s->c, fd, &cb, s, &e), 0);
}

static void setup(void)
{
	struct err e;
	int p[2];

	ck_assert_int_eq(loop_new(&loop, &e), 0);
	a = b = (struct side){ 0 };
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p), 0);
	adopt(&a, p[0]);
	adopt(&b, p[1]);
	b.answer = true;
}

static void teardown(void)
{
	ctl_close(a.c);
	loop_wait_count(loop, &b.closed, 1);
	loop_free(loop);
}

static struct msg query(uint64_t req)
{
	return (struct msg){ .type = MSG_QUERY,
			     .query = { .req = req, .what = QUERY_NODES, .job = "" } };
}

#define ANSWER_BYTES_MIN	100u	/* of one that waits, with what it takes to keep it */
#define IN_SOCKET_MAX		1000u	/* answers that the kernel keeps, and one read more */

struct flood {
	struct side side;
	int fd;
	uint8_t buf[256];
	uint32_t len, at;		/* of one question; how much of it is out */
	uint32_t asked, idle, counted;
};

/* Asks as much as the socket takes. */
static void on_flood(void *ctx)
{
	struct flood *f = ctx;
	uint32_t before = f->asked;
	ssize_t n;

	while ((n = write(f->fd, f->buf + f->at, f->len - f->at)) > 0) {
		f->at = (f->at + (uint32_t)n) % f->len;
		f->asked += f->at == 0;
	}
	f->idle = f->asked == before ? f->idle + 1 : 0;
}

static void flood_start(struct flood *f, bool bounded)
{
	struct msg m = query(1);
	uint32_t bytes;
	int p[2];

	*f = (struct flood){ .side.answer = true };
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p), 0);
	adopt(&f->side, p[0]);
	ctl_set_bounded(f->side.c, bounded);
	f->fd = p[1];
	ck_assert_int_eq(msg_encode_size(&m, &bytes, NULL), 0);
	ck_assert_uint_le(bytes, sizeof(f->buf));
	ck_assert_int_eq(msg_encode(&m, f->buf, bytes, NULL), 0);
	f->len = bytes;
}

/* Until its socket has taken nothing for many turns of the loop, in which b is answered. */
static void flood_until_full(struct flood *f)
{
	struct loop_timer *t;
	struct msg m = query(2);

	ck_assert_int_eq(loop_timer_start(loop, &t, 0, 1, on_flood, f), 0);
	for (uint32_t i = 0; f->idle < 50; i++) {
		ck_assert_uint_lt(f->side.msgs, 20 * CTL_ROOM_BYTES / ANSWER_BYTES_MIN);
		ck_assert_int_eq(ctl_send(a.c, &m, NULL), 0);
		loop_wait_count(loop, &a.msgs, i + 1);
	}
	loop_timer_stop(t);
}

static void flood_end(struct flood *f)
{
	if (!f->side.closed)
		ctl_close(f->side.c);
	close(f->fd);
	loop_wait_count(loop, &f->side.closed, 1);
}

static bool all_read(void *ctx)
{
	struct flood *f = ctx;
	uint8_t buf[4096];
	ssize_t n;

	on_flood(f);				/* the rest of a question that was cut short */
	while ((n = read(f->fd, buf, sizeof(buf))) > 0)
		f->counted += (uint32_t)n;
	return f->side.msgs > 4 * CTL_ROOM_BYTES / ANSWER_BYTES_MIN;
}

START_TEST(flood_whose_answers_nobody_reads_waits_in_its_socket)
{
	struct flood f;

	flood_start(&f, true);
	flood_until_full(&f);
	ck_assert_uint_ge(f.side.msgs, CTL_ROOM_BYTES / 1000);
	ck_assert_uint_le(f.side.msgs, CTL_ROOM_BYTES / ANSWER_BYTES_MIN + IN_SOCKET_MAX);
	ck_assert(loop_wait(loop, all_read, &f));	/* goes on when they are read */
	ck_assert_uint_gt(f.counted, f.side.msgs);
	flood_end(&f);
}
END_TEST

START_TEST(stranger_has_few_answers_waiting_for_it)
{
	struct ctl_crowd crowd;
	struct flood f;
	mono_t closing;

	ctl_crowd_init(&crowd, 2);
	flood_start(&f, true);
	ctl_crowd_join(&crowd, f.side.c);
	flood_until_full(&f);
	ck_assert_uint_le(f.side.msgs, STRANGER_ROOM_BYTES / ANSWER_BYTES_MIN + IN_SOCKET_MAX);
	closing = loop_now();
	ctl_close(f.side.c);
	loop_wait_count(loop, &f.side.closed, 1);	/* its last word waits for nobody */
	ck_assert_int_lt(loop_now() - closing, mono_ms(HANDSHAKE_MS));
	flood_end(&f);
}
END_TEST

/* What it has said lies in the socket: it is read before anybody is cut. */
START_TEST(deadline_that_passes_while_we_stand_still_cuts_nobody_who_spoke)
{
	struct flood f;

	flood_start(&f, true);
	ctl_set_patience(f.side.c, 40);
	ck_assert_int_eq(write(f.fd, f.buf, f.len), f.len);
	usleep(100000);
	loop_wait_count(loop, &f.side.msgs, 1);
	ck_assert_uint_eq(f.side.closed, 0);
	flood_end(&f);
}
END_TEST

/* A process that computes for minutes has asked nothing meanwhile, whatever it has yet to read. */
START_TEST(who_asks_on_and_reads_nothing_is_cut_and_who_asks_nothing_is_not)
{
	static uint32_t ids[16384];
	struct msg m = { .type = MSG_REPLY,
			 .reply = { .req = 1, .text = "", .nids = ARRAY_SIZE(ids), .ids = ids } };
	struct flood f, quiet;

	for (uint32_t i = 0; i < ARRAY_SIZE(ids); i++)
		ids[i] = UINT32_MAX;
	flood_start(&f, true);
	flood_start(&quiet, true);
	ck_assert_int_eq(write(quiet.fd, quiet.buf, quiet.len), quiet.len);
	loop_wait_count(loop, &quiet.side.msgs, 1);	/* no deadline of a first message */
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(ctl_send(quiet.side.c, &m, NULL), 0);
	flood_until_full(&f);
	loop_wait_count(loop, &f.side.closed, 1);
	ck_assert_int_eq(f.side.why.code, TALLY_EQUOTA);
	ck_assert_ptr_nonnull(strstr(f.side.why.text, "does not read the answers"));
	ck_assert_uint_eq(quiet.side.closed, 0);
	flood_end(&f);
	flood_end(&quiet);
}
END_TEST

START_TEST(stranger_that_talks_and_does_not_say_who_it_is_is_cut)
{
	struct flood f, known;
	struct ctl_crowd crowd;
	struct loop_timer *t;

	ctl_crowd_init(&crowd, 2);
	flood_start(&f, true);
	flood_start(&known, true);
	ctl_crowd_join(&crowd, f.side.c);
	ctl_crowd_join(&crowd, known.side.c);
	for (struct flood *k = &f; k; k = k == &f ? &known : NULL) {
		ck_assert_int_eq(write(k->fd, k->buf, k->len), k->len);
		loop_wait_count(loop, &k->side.msgs, 1);
	}
	ctl_set_patience(known.side.c, 60);	/* no turn of the loop until it is known */
	ctl_known(known.side.c);
	ctl_set_patience(f.side.c, 60);
	f.len = 0;				/* it says nothing more */
	ck_assert_int_eq(loop_timer_start(loop, &t, 0, 10, on_flood, &known), 0);
	loop_wait_count(loop, &f.side.closed, 1);
	loop_timer_stop(t);
	ck_assert_int_eq(f.side.why.code, TALLY_ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(f.side.why.text, "did not say who it is"));
	ck_assert_uint_eq(known.side.closed, 0);
	flood_end(&f);
	flood_end(&known);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ctl_flood");
	TCase *t = tcase_create("floods");
	SRunner *r = srunner_create(s);
	int failed;

	signal(SIGPIPE, SIG_IGN);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, flood_whose_answers_nobody_reads_waits_in_its_socket);
	tcase_add_test(t, stranger_has_few_answers_waiting_for_it);
	tcase_add_test(t, who_asks_on_and_reads_nothing_is_cut_and_who_asks_nothing_is_not);
	tcase_add_test(t, deadline_that_passes_while_we_stand_still_cuts_nobody_who_spoke);
	tcase_add_test(t, stranger_that_talks_and_does_not_say_who_it_is_is_cut);
	tcase_set_timeout(t, 240);
	suite_add_tcase(s, t);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
