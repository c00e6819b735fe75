// SPDX-License-Identifier: Apache-2.0
/*
 * fdguard.c, stream.c, listener.c: whatever descriptor a stranger sends, the loop goes on.
 *
 * A TCP socket with unsent bytes and SO_LINGER holds up whoever drops its last reference for
 * LINGER_S, which is longer than a test may take.
 */
#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rt/fdguard.h"
#include "common/rt/loop.h"
#include "loop_wait.h"

#define LINGER_S	60
#define MANY		200

static struct loop *loop;
static struct fdguard *guard;
static struct listener *listener;
static char dir[] = "/tmp/tally-fdguard-XXXXXX", path[64];

/* What the daemon has heard of all its connections. */
static struct heard {
	uint32_t accepted, bytes, fds, closed;
	int last_code, fd;
	struct stream *s;
} heard;

static void on_readable(void *ctx, struct stream *s, const uint8_t *data, size_t len)
{
	int fd;

	(void)ctx;
	heard.bytes += (uint32_t)len;
	while (stream_take_fds(s, &fd, 1)) {
		if (heard.fd >= 0)
			close(heard.fd);
		heard.fd = fd;
		heard.fds++;
	}
	if (data[len - 1] == '?')
		ck_assert_int_eq(stream_write(s, "!", 1), 0);
}

static void on_closed(void *ctx, struct stream *s, const struct err *e)
{
	(void)ctx;
	(void)s;
	heard.closed++;
	heard.last_code = e->code;
}

static const struct stream_cb cb = { .readable = on_readable, .closed = on_closed };

static void on_accepted(void *ctx, int fd)
{
	struct err e;

	(void)ctx;
	heard.accepted++;
	ck_assert_int_eq(stream_adopt(loop, &heard.s, fd, &cb, NULL, &e), 0);
}

static void setup(void)
{
	struct err e;

	heard = (struct heard){ .fd = -1 };
	ck_assert_ptr_nonnull(mkdtemp(strcpy(dir, "/tmp/tally-fdguard-XXXXXX")));
	snprintf(path, sizeof(path), "%s/s", dir);
	ck_assert_int_eq(fdguard_start(&guard, false, &e), 0);
	ck_assert_int_eq(loop_new(&loop, &e), 0);
	loop_set_fdguard(loop, guard);
	ck_assert_int_eq(listener_unix(loop, &listener, path, 0600, on_accepted, NULL, &e), 0);
}

static void end_guard(void)
{
	fdguard_stop(guard);
	guard = NULL;
	ck_assert_int_gt(wait(NULL), 0);	/* it ends with its daemon */
}

static void teardown(void)
{
	if (listener)
		listener_close(listener);
	listener = NULL;
	if (heard.s && heard.closed < heard.accepted)
		stream_close(heard.s);
	loop_free(loop);
	if (guard)
		end_guard();
	if (heard.fd >= 0)
		close(heard.fd);
	rmdir(dir);
}

/* ---- strangers ---- */

static int stranger(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path, path, strlen(path));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static int peer = -1;		/* of the last one that lingers; never reads */

static int lingering(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct linger linger = { .l_onoff = 1, .l_linger = LINGER_S };
	socklen_t len = sizeof(a);
	static char junk[65536];

	ck_assert_int_eq(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(l, 1), 0);
	ck_assert_int_eq(getsockname(l, (struct sockaddr *)&a, &len), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	peer = accept(l, NULL, NULL);
	ck_assert_int_ge(peer, 0);
	close(l);
	while (send(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd;
}

static void give(int to, int flags, int n, int fd)
{
	static union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MANY * sizeof(int))];
	} room;
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room.bytes };
	struct cmsghdr *c;

	m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(to, &m, MSG_NOSIGNAL | flags), 1);
}

static bool has_input(void *ctx)
{
	struct pollfd p = { .fd = *(int *)ctx, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* In less time than whoever drops that descriptor is held up for: see the case's timeout. */
static void check_another_is_answered(void)
{
	int fd = stranger();
	char c;

	ck_assert_int_eq(send(fd, "?", 1, 0), 1);
	ck_assert(loop_wait(loop, has_input, &fd));
	ck_assert_int_eq(recv(fd, &c, 1, 0), 1);
	ck_assert_int_eq(c, '!');
	close(fd);
	close(peer);			/* its reset ends the linger */
}

START_TEST(descriptor_with_a_message_ends_its_connection_alone)
{
	int s = stranger(), fd = lingering();

	give(s, 0, 1, fd);
	close(fd);
	loop_wait_count(loop, &heard.closed, 1);
	ck_assert_int_eq(heard.last_code, TALLY_EPROTO);
	ck_assert_uint_eq(heard.bytes, 0);
	check_another_is_answered();
	close(s);
}
END_TEST

START_TEST(more_descriptors_than_a_table_has_room_for_end_it_too)
{
	int s = stranger(), fd = lingering();

	give(s, 0, MANY, fd);
	close(fd);
	loop_wait_count(loop, &heard.closed, 1);
	ck_assert_int_eq(heard.last_code, TALLY_EPROTO);
	check_another_is_answered();
	close(s);
}
END_TEST

START_TEST(urgent_byte_brings_no_descriptor_past_the_guard)
{
	int s = stranger(), fd = lingering();

	give(s, MSG_OOB, 1, fd);
	close(fd);
	ck_assert_int_eq(send(s, "x", 1, 0), 1);
	loop_wait_count(loop, &heard.closed, 1);
	check_another_is_answered();
	close(s);
}
END_TEST

START_TEST(descriptor_that_nobody_has_read_is_dropped_elsewhere)
{
	int s = stranger(), fd;

	ck_assert_int_eq(send(s, "x", 1, 0), 1);
	loop_wait_count(loop, &heard.bytes, 1);
	fd = lingering();
	give(s, 0, 1, fd);		/* and the daemon closes before it looks */
	close(fd);
	stream_close(heard.s);
	loop_wait_count(loop, &heard.closed, 1);
	check_another_is_answered();
	close(s);
}
END_TEST

START_TEST(connection_that_is_never_accepted_holds_up_no_listener)
{
	int s = stranger(), fd = lingering();
	struct err e;

	give(s, 0, 1, fd);
	close(fd);
	listener_close(listener);
	ck_assert_int_eq(listener_unix(loop, &listener, path, 0600, on_accepted, NULL, &e), 0);
	check_another_is_answered();
	close(s);
}
END_TEST

START_TEST(sealed_memory_is_taken_in_with_its_bytes)
{
	int s = stranger(), fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	struct stat sent, came;
	char c;

	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	ck_assert_int_eq(send(s, "abc", 3, 0), 3);
	for (uint32_t i = 1; i <= 3; i++) {
		give(s, 0, 1, fd);
		ck_assert_int_eq(send(s, "de", 2, 0), 2);
	}
	loop_wait_count(loop, &heard.fds, 3);
	loop_wait_count(loop, &heard.bytes, 12);
	ck_assert_int_eq(fstat(fd, &sent), 0);
	ck_assert_int_eq(fstat(heard.fd, &came), 0);
	ck_assert_uint_eq(sent.st_ino, came.st_ino);
	ck_assert_int_eq(send(s, "?", 1, 0), 1);
	ck_assert(loop_wait(loop, has_input, &s));
	ck_assert_int_eq(recv(s, &c, 1, 0), 1);
	ck_assert_uint_eq(heard.closed, 0);
	close(fd);
	close(s);
	loop_wait_count(loop, &heard.closed, 1);
	ck_assert_int_eq(heard.last_code, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fdguard");
	TCase *t = tcase_create("fdguard");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, LINGER_S / 2);
	tcase_add_test(t, descriptor_with_a_message_ends_its_connection_alone);
	tcase_add_test(t, more_descriptors_than_a_table_has_room_for_end_it_too);
	tcase_add_test(t, urgent_byte_brings_no_descriptor_past_the_guard);
	tcase_add_test(t, descriptor_that_nobody_has_read_is_dropped_elsewhere);
	tcase_add_test(t, connection_that_is_never_accepted_holds_up_no_listener);
	tcase_add_test(t, sealed_memory_is_taken_in_with_its_bytes);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
