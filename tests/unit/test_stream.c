// SPDX-License-Identifier: Apache-2.0
/* Writes of a stream that fail: what passes is written later, and nobody is left waiting. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/rt/loop.h"
#include "tests/unit/loop_wait.h"

struct side {
	struct stream *s;
	int peer;			/* the other end, a bare socket */
	uint32_t closed;
	struct err why;
};

static struct loop *loop;
static struct side a, b;
static int bad_fd, bad_errno;		/* the next bad_times writes to bad_fd fail so */
static uint32_t bad_times;

/* In place of libc's. */
ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (bad_times > 0 && fd == bad_fd) {
		bad_times--;
		errno = bad_errno;
		return -1;
	}
	return syscall(SYS_sendmsg, fd, m, flags);
}

static void fail_writes(const struct side *s, int errnum, uint32_t times)
{
	bad_fd = stream_fd(s->s);
	bad_errno = errnum;
	bad_times = times;
}

static void on_closed(void *ctx, struct stream *s, const struct err *e)
{
	struct side *side = ctx;

	ck_assert_ptr_eq(side->s, s);
	side->closed++;
	side->why = *e;
}

static void on_readable(void *ctx, struct stream *s, const uint8_t *data, size_t len)
{
	(void)ctx;
	(void)s;
	(void)data;
	(void)len;
}

static const struct stream_cb cb = { .readable = on_readable, .closed = on_closed };

static void adopt(struct side *side)
{
	struct err e;
	int p[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p), 0);
	ck_assert_int_eq(stream_adopt(loop, &side->s, p[0], &cb, side, &e), 0);
	side->peer = p[1];
}

static void setup(void)
{
	struct err e;

	ck_assert_int_eq(loop_new(&loop, &e), 0);
	a = b = (struct side){ .peer = -1 };
	bad_times = 0;
	adopt(&a);
}

static void teardown(void)
{
	struct side *sides[] = { &a, &b };

	for (int i = 0; i < 2; i++) {
		if (sides[i]->s && !sides[i]->closed)
			stream_close(sides[i]->s);
		if (sides[i]->peer >= 0)
			close(sides[i]->peer);
	}
	loop_free(loop);
}

static bool peer_has(void *ctx)
{
	return poll(&(struct pollfd){ .fd = *(int *)ctx, .events = POLLIN }, 1, 0) > 0;
}

/* What comes, with the descriptors that came with it. */
static size_t receive(int fd, char *buf, size_t len, uint32_t *nfds)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(STREAM_FDS_MAX * sizeof(int))];
	struct iovec iov = { buf, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n;

	ck_assert(loop_wait(loop, peer_has, &fd));
	n = recvmsg(fd, &m, 0);
	ck_assert_int_ge(n, 0);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			close(((int *)(void *)CMSG_DATA(c))[i]);
			++*nfds;
		}
	return (size_t)n;
}

static void receive_all(const char *want, uint32_t want_fds)
{
	char buf[64] = "";
	uint32_t nfds = 0;
	size_t n = 0;

	while (n < strlen(want))
		n += receive(a.peer, buf + n, sizeof(buf) - 1 - n, &nfds);
	ck_assert_str_eq(buf, want);
	ck_assert_uint_eq(nfds, want_fds);
}

static const int passing[] = { ENOBUFS, ENOMEM, ETOOMANYREFS };

START_TEST(error_that_passes_costs_time_and_no_byte)
{
	fail_writes(&a, passing[_i], 2);
	ck_assert_int_eq(stream_write_fds(a.s, "one ", 4, &a.peer, 1), 0);
	ck_assert_int_eq(stream_write(a.s, "two ", 4), 0);
	receive_all("one two ", 1);
	ck_assert_uint_eq(bad_times, 0);
	fail_writes(&a, passing[_i], 1);
	ck_assert_int_eq(stream_write(a.s, "three", 5), 0);
	receive_all("three", 0);
	ck_assert_uint_eq(a.closed, 0);
}
END_TEST

START_TEST(error_that_passes_in_the_last_word_is_waited_for)
{
	uint32_t nfds = 0;
	char buf[8];

	fail_writes(&a, passing[_i], 2);
	ck_assert_int_eq(stream_write(a.s, "bye", 3), 0);
	stream_finish(a.s, HANDSHAKE_MS);
	receive_all("bye", 0);
	ck_assert_uint_eq(receive(a.peer, buf, sizeof(buf), &nfds), 0);
	loop_wait_count(loop, &a.closed, 1);
	ck_assert_int_eq(a.why.code, 0);
}
END_TEST

/* One that could have passed and does not; and one that is no word of a peer, which stays. */
START_TEST(error_that_does_not_pass_ends_the_connection_for_both)
{
	uint32_t nfds = 0;
	char buf[8];

	adopt(&b);
	fail_writes(&b, EPIPE, 1);
	ck_assert_int_eq(stream_write(b.s, "lost", 4), 0);
	fail_writes(&a, ENOBUFS, UINT32_MAX);
	ck_assert_int_eq(stream_write(a.s, "lost", 4), 0);
	ck_assert_int_eq(stream_write(a.s, "lost", 4), 0);
	loop_wait_count(loop, &a.closed, 1);
	loop_wait_count(loop, &b.closed, 1);
	ck_assert_int_ne(a.why.code, 0);
	ck_assert_ptr_nonnull(strstr(a.why.text, "cannot write to"));
	ck_assert_ptr_nonnull(strstr(b.why.text, "cannot write to"));
	ck_assert_uint_eq(receive(a.peer, buf, sizeof(buf), &nfds), 0);
	ck_assert_uint_eq(receive(b.peer, buf, sizeof(buf), &nfds), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stream");
	TCase *t = tcase_create("writes that fail");
	SRunner *r = srunner_create(s);
	int failed;

	signal(SIGPIPE, SIG_IGN);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, error_that_passes_costs_time_and_no_byte, 0, 3);
	tcase_add_loop_test(t, error_that_passes_in_the_last_word_is_waited_for, 0, 3);
	tcase_add_test(t, error_that_does_not_pass_ends_the_connection_for_both);
	tcase_set_timeout(t, 240);
	suite_add_tcase(s, t);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
