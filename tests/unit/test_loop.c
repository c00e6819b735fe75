// SPDX-License-Identifier: Apache-2.0
/* The loop, its streams and its listeners, over real sockets of this machine. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>
#undef MIN
#undef MAX

#include "common/rt/loop_int.h"
#include "tests/unit/loop_wait.h"

static struct loop *loop;
static char dir[] = "/tmp/test_loop.XXXXXX";
static char path[64];

static void setup(void)
{
	struct err e;

	ck_assert_int_eq(loop_new(&loop, &e), 0);
}

static void teardown(void)
{
	loop_free(loop);
}

static void count_up(void *ctx)
{
	++*(uint32_t *)ctx;
}

/* ---- timers, bells, watches, signals ---- */

START_TEST(timer_repeats_until_stopped)
{
	struct loop_timer *t, *once;
	uint32_t n = 0, n_once = 0, at_stop;

	ck_assert_int_eq(loop_timer_start(loop, &t, 1, 1, count_up, &n), 0);
	ck_assert_int_eq(loop_timer_start(loop, &once, 0, 0, count_up, &n_once), 0);
	loop_wait_count(loop, &n, 5);
	loop_timer_stop(t);
	at_stop = n;
	n_once += 10;
	ck_assert_uint_eq(n_once, 11);
	ck_assert_int_eq(loop_timer_start(loop, &t, 5, 0, count_up, &n_once), 0);
	loop_wait_count(loop, &n_once, 12);
	ck_assert_uint_eq(n, at_stop);
	loop_timer_stop(t);
	loop_timer_stop(once);
	loop_timer_stop(NULL);
}
END_TEST

static sem_t go;
static atomic_uint worked;

static void wait_for_go(void *ctx)
{
	(void)ctx;
	sem_wait(&go);
	worked++;
}

static void say_go(void *ctx)
{
	sem_post(&go);
	++*(uint32_t *)ctx;
}

/* The machine stood still while all was being closed: that is no bug of ours. */
START_TEST(loop_that_stood_still_for_a_minute_is_freed)
{
	struct loop_timer *t;
	struct err e;

	ck_assert_int_eq(loop_timer_start(loop, &t, 1, 1, count_up, &(uint32_t){ 0 }), 0);
	loop_timer_stop(t);
	loop_uv(loop)->time -= 60000;
	loop_free(loop);
	ck_assert_int_eq(loop_new(&loop, &e), 0);
}
END_TEST

/* The loop turns while the work waits for it; at the end loop_free() waits for the work. */
START_TEST(work_does_not_hold_the_loop)
{
	struct loop_timer *t;
	uint32_t n = 0;

	worked = 0;
	ck_assert_int_eq(sem_init(&go, 0, 0), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(loop_work(loop, wait_for_go, NULL), 0);
	ck_assert_int_eq(loop_timer_start(loop, &t, 0, 1, say_go, &n), 0);
	loop_wait_count(loop, &n, 3);
	loop_timer_stop(t);
	loop_free(loop);
	ck_assert_uint_eq(worked, 3);
	sem_destroy(&go);
	setup();
}
END_TEST

static void *ring_often(void *bell)
{
	for (int i = 0; i < 1000; i++)
		loop_bell_ring(bell);
	return NULL;
}

START_TEST(bell_rung_by_another_thread_is_heard_and_coalesces)
{
	struct loop_bell *b;
	pthread_t t;
	uint32_t n = 0;

	ck_assert_int_eq(loop_bell_start(loop, &b, count_up, &n), 0);
	pthread_create(&t, NULL, ring_often, b);
	pthread_join(t, NULL);
	loop_wait_count(loop, &n, 1);
	ck_assert_uint_lt(n, 1000);
	loop_bell_stop(b);
}
END_TEST

struct watched {
	struct loop_watch *w;
	int fd;
	uint32_t reads;
};

static void on_watched(void *ctx, int events)
{
	struct watched *w = ctx;
	char c;

	ck_assert_int_eq(events, LOOP_READ);
	ck_assert_int_eq(read(w->fd, &c, 1), 1);
	if (++w->reads == 2) {
		loop_watch_stop(w->w);
		close(w->fd);		/* allowed at once */
	}
}

START_TEST(watch_tells_readable_and_may_be_stopped_in_its_callback)
{
	struct watched w = { 0 };
	int p[2];

	ck_assert_int_eq(pipe2(p, O_NONBLOCK), 0);
	w.fd = p[0];
	ck_assert_int_eq(loop_watch_start(loop, &w.w, p[0], LOOP_READ, on_watched, &w), 0);
	ck_assert_int_eq(write(p[1], "abc", 3), 3);
	loop_wait_count(loop, &w.reads, 2);
	close(p[1]);
}
END_TEST

static void on_signal(void *ctx, int signum)
{
	*(uint32_t *)ctx = (uint32_t)signum;
}

START_TEST(sigterm_arrives_as_a_callback)
{
	uint32_t got = 0;

	ck_assert_int_eq(loop_on_signals(loop, on_signal, &got), 0);
	raise(SIGPIPE);
	raise(SIGTERM);
	loop_wait_count(loop, &got, 1);
	ck_assert_uint_eq(got, SIGTERM);
}
END_TEST

/* ---- streams ---- */

struct end {
	struct stream *s;
	uint32_t connected, closed, accepted, nfds;
	uint32_t bytes;
	uint8_t first, last;
	uint64_t sum;
	int fds[STREAM_FDS_MAX];
	struct err why;
	bool echo;
	bool one_turn;			/* the loop ends with the turn in which something came */
};

static struct end near, far;
static struct listener *listener;

static void on_connected(void *ctx, struct stream *s)
{
	struct end *en = ctx;

	en->connected++;
	ck_assert_ptr_eq(en->s, s);
}

static void on_readable(void *ctx, struct stream *s, const uint8_t *data, size_t len)
{
	struct end *en = ctx;

	if (en->bytes == 0)
		en->first = data[0];
	en->bytes += (uint32_t)len;
	en->last = data[len - 1];
	for (size_t i = 0; i < len; i++)
		en->sum += data[i];
	en->nfds += stream_take_fds(s, en->fds + en->nfds, STREAM_FDS_MAX - en->nfds);
	if (en->echo)
		ck_assert_int_eq(stream_write(s, data, len), 0);
	if (en->one_turn)
		loop_stop(loop);
}

static void on_closed(void *ctx, struct stream *s, const struct err *e)
{
	struct end *en = ctx;

	ck_assert_ptr_eq(en->s, s);
	en->closed++;
	en->why = *e;
}

static const struct stream_cb stream_cb = {
	.connected = on_connected, .readable = on_readable, .closed = on_closed,
};

static void on_accepted(void *ctx, int fd)
{
	struct end *en = ctx;
	struct err e;

	en->accepted++;
	ck_assert_int_eq(stream_adopt(loop, &en->s, fd, &stream_cb, en, &e), 0);
}

static void setup_pair(bool is_unix)
{
	struct err e = { 0 };
	int code;

	setup();
	memset(&near, 0, sizeof(near));
	memset(&far, 0, sizeof(far));
	if (is_unix)
		code = listener_unix(loop, &listener, path, 0600, on_accepted, &far, &e);
	else
		code = listener_tcp(loop, &listener, "127.0.0.1", 0, on_accepted, &far, &e);
	ck_assert_msg(code == 0, "%s", e.text);
	ck_assert_int_eq(stream_connect(loop, &near.s, is_unix ? path : "127.0.0.1",
					listener_port(listener), &stream_cb, &near, &e), 0);
	loop_wait_count(loop, &far.accepted, 1);
	loop_wait_count(loop, &near.connected, 1);
}

static void setup_tcp(void)
{
	setup_pair(false);
}

static void setup_unix(void)
{
	setup_pair(true);
}

static void teardown_pair(void)
{
	stream_close(near.s);
	stream_close(far.s);
	listener_close(listener);
	loop_free(loop);
	ck_assert_uint_eq(near.closed, 1);
	ck_assert_uint_eq(far.closed, 1);
}

static void send_a_lot_and_back(void)
{
	enum { BYTES = 3000000 };
	uint8_t *data = malloc(BYTES);
	uint64_t sum = 0;

	for (size_t i = 0; i < BYTES; i++) {
		data[i] = (uint8_t)(i * 7 + i / 251);
		sum += data[i];
	}
	far.echo = true;
	ck_assert_int_eq(stream_write(near.s, data, BYTES), 0);
	loop_wait_count(loop, &near.bytes, BYTES);
	ck_assert_uint_eq(near.bytes, BYTES);
	ck_assert_uint_eq(near.first, data[0]);
	ck_assert_uint_eq(near.last, data[BYTES - 1]);
	ck_assert_uint_eq(near.sum, sum);
	free(data);
}

START_TEST(tcp_stream_carries_bytes_both_ways)
{
	send_a_lot_and_back();
	ck_assert_str_eq(stream_peer(near.s), stream_local(far.s));
	ck_assert_str_eq(stream_local(near.s), stream_peer(far.s));
	ck_assert_int_eq(stream_write_fds(near.s, "x", 1, (int[]){ 0 }, 1), TALLY_EINVAL);
}
END_TEST

START_TEST(peer_that_sends_without_end_has_one_small_read_in_a_turn)
{
	uint8_t some[4096] = { 0 };
	uint32_t sent = 0;
	ssize_t n;

	while ((n = send(stream_fd(near.s), some, sizeof(some), MSG_DONTWAIT)) > 0)
		sent += (uint32_t)n;
	ck_assert_uint_gt(sent, 64 << 10);
	far.one_turn = true;
	loop_run(loop);
	ck_assert_uint_gt(far.bytes, 0);
	ck_assert_uint_le(far.bytes, 4096);
	far.one_turn = false;
	loop_wait_count(loop, &far.bytes, sent);
}
END_TEST

START_TEST(unix_stream_carries_bytes_both_ways)
{
	char peer[64];

	send_a_lot_and_back();
	snprintf(peer, sizeof(peer), "pid %d uid %u", getpid(), getuid());
	ck_assert_str_eq(stream_peer(far.s), peer);
}
END_TEST

START_TEST(descriptors_ride_both_ways_even_behind_a_queue)
{
	static uint8_t bulk[1 << 20];
	int p[2];
	char c;

	ck_assert_int_eq(pipe(p), 0);
	/* The bulk fills the socket: the descriptors wait in the queue with their bytes. */
	ck_assert_int_eq(stream_write(near.s, bulk, sizeof(bulk)), 0);
	ck_assert_int_eq(stream_write_fds(near.s, "ab", 2, p, 2), 0);
	close(p[0]);
	close(p[1]);
	loop_wait_count(loop, &far.nfds, 2);
	loop_wait_count(loop, &far.bytes, sizeof(bulk) + 2);
	ck_assert_int_eq(write(far.fds[1], "!", 1), 1);
	ck_assert_int_eq(stream_write_fds(far.s, "c", 1, far.fds, 1), 0);
	loop_wait_count(loop, &near.nfds, 1);
	ck_assert_int_eq(read(near.fds[0], &c, 1), 1);
	ck_assert_int_eq(c, '!');
	ck_assert(fcntl(near.fds[0], F_GETFD) & FD_CLOEXEC);
	close(near.fds[0]);
	close(far.fds[0]);
	close(far.fds[1]);
}
END_TEST

START_TEST(stream_finish_delivers_what_waits_before_the_end)
{
	static uint8_t bulk[2 << 20];

	ck_assert_int_eq(stream_write(near.s, bulk, sizeof(bulk)), 0);
	stream_finish(near.s, LOOP_WAIT_MS);
	ck_assert_int_eq(stream_write(near.s, "x", 1), TALLY_ESHUTDOWN);
	loop_wait_count(loop, &far.closed, 1);
	ck_assert_uint_eq(far.bytes, sizeof(bulk));
	ck_assert_int_eq(far.why.code, 0);
	loop_wait_count(loop, &near.closed, 1);
	ck_assert_int_eq(near.why.code, 0);
	listener_close(listener);
	loop_free(loop);
}
END_TEST

START_TEST(stream_finish_gives_up_on_a_peer_that_does_not_read)
{
	static uint8_t bulk[16 << 20];
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(listener_port(listener)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	stream_close(far.s);
	loop_wait_count(loop, &far.closed, 1);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	loop_wait_count(loop, &far.accepted, 2);
	ck_assert_int_eq(stream_write(far.s, bulk, sizeof(bulk)), 0);
	stream_finish(far.s, 20);
	loop_wait_count(loop, &far.closed, 2);
	close(fd);
	loop_wait_count(loop, &near.closed, 1);
	listener_close(listener);
	loop_free(loop);
}
END_TEST

START_TEST(queue_of_a_peer_that_does_not_read_is_bounded)
{
	enum { PIECE = 8 << 20 };
	uint8_t *bulk = calloc(1, PIECE);
	uint32_t pieces = 0;
	int code;

	/* The loop does not run, so nothing is read. */
	do {
		code = stream_write(near.s, bulk, PIECE);
		pieces += code == 0;
	} while (code == 0 && pieces < 100);
	ck_assert_int_eq(code, TALLY_EQUOTA);
	ck_assert_uint_ge(pieces, CTL_QUEUE_BYTES_MAX / PIECE);
	ck_assert_uint_le(pieces, CTL_QUEUE_BYTES_MAX / PIECE + 2);
	free(bulk);
}
END_TEST

START_TEST(connecting_to_nobody_ends_in_closed_with_the_address)
{
	struct end en = { 0 };
	struct err e;
	uint16_t port;

	ck_assert_int_eq(listener_tcp(loop, &listener, "127.0.0.1", 0, on_accepted, NULL, &e), 0);
	port = listener_port(listener);
	listener_close(listener);
	ck_assert_int_eq(stream_connect(loop, &en.s, "127.0.0.1", port, &stream_cb, &en, &e), 0);
	ck_assert_uint_eq(en.closed, 0);
	loop_wait_count(loop, &en.closed, 1);
	ck_assert_uint_eq(en.connected, 0);
	ck_assert_int_lt(en.why.code, 0);
	ck_assert_ptr_nonnull(strstr(en.why.text, "127.0.0.1:"));
	ck_assert_ptr_nonnull(strstr(en.why.text, "refused"));
}
END_TEST

START_TEST(names_are_resolved_and_an_unknown_one_is_said)
{
	struct end en = { 0 }, none = { 0 };
	struct err e;

	memset(&far, 0, sizeof(far));
	ck_assert_int_eq(listener_tcp(loop, &listener, "127.0.0.1", 0, on_accepted, &far, &e), 0);
	ck_assert_int_eq(stream_connect(loop, &en.s, "localhost", listener_port(listener),
					&stream_cb, &en, &e), 0);
	ck_assert_int_eq(stream_connect(loop, &none.s, "no-such-host.invalid", 1, &stream_cb,
					&none, &e), 0);
	loop_wait_count(loop, &en.connected, 1);
	loop_wait_count(loop, &far.accepted, 1);
	loop_wait_count(loop, &none.closed, 1);
	ck_assert_ptr_nonnull(strstr(none.why.text, "no-such-host.invalid"));
	stream_close(en.s);
	stream_close(far.s);
	listener_close(listener);
	loop_wait_count(loop, &en.closed, 1);
	loop_wait_count(loop, &far.closed, 1);
}
END_TEST

START_TEST(stream_closed_while_resolving_says_so_once)
{
	struct end en = { 0 };
	struct err e;

	ck_assert_int_eq(stream_connect(loop, &en.s, "localhost", 1, &stream_cb, &en, &e), 0);
	stream_close(en.s);
	stream_close(en.s);
	ck_assert_uint_eq(en.closed, 0);
	loop_wait_count(loop, &en.closed, 1);
	ck_assert_int_eq(en.why.code, 0);
}
END_TEST

/* ---- listeners ---- */

START_TEST(busy_port_is_said_with_the_address)
{
	struct listener *a, *b;
	struct err e;
	char want[64];

	ck_assert_int_eq(listener_tcp(loop, &a, "127.0.0.1", 0, on_accepted, NULL, &e), 0);
	ck_assert_int_eq(listener_tcp(loop, &b, "127.0.0.1", listener_port(a), on_accepted, NULL,
				      &e), TALLY_EBUSY);
	snprintf(want, sizeof(want), "cannot listen on 127.0.0.1:%u: address already in use",
		 listener_port(a));
	ck_assert_ptr_nonnull(strstr(e.text, want));
	ck_assert_int_eq(listener_tcp(loop, &b, "192.0.2.1", 1, on_accepted, NULL, &e),
			 TALLY_EINVAL);
	ck_assert_ptr_nonnull(strstr(e.text, "not an address of this machine"));
	listener_close(a);
}
END_TEST

START_TEST(living_unix_socket_is_busy_and_keeps_its_file)
{
	struct listener *a, *b;
	struct stat st;
	struct err e;

	memset(&far, 0, sizeof(far));
	ck_assert_int_eq(listener_unix(loop, &a, path, 0640, on_accepted, &far, &e), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0640);
	ck_assert_int_eq(listener_unix(loop, &b, path, 0600, on_accepted, NULL, &e), TALLY_EBUSY);
	ck_assert_ptr_nonnull(strstr(e.text, path));
	ck_assert_int_eq(stat(path, &st), 0);
	loop_wait_count(loop, &far.closed, 1);		/* the question itself came in, and left */
	listener_close(a);
	ck_assert_int_lt(stat(path, &st), 0);
}
END_TEST

START_TEST(dead_socket_file_is_replaced)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct listener *li;
	struct err e = { 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	memcpy(a.sun_path, path, strlen(path));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	close(fd);			/* as SIGKILL would: the file stays */
	ck_assert_msg(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e) == 0, "%s",
		      e.text);
	listener_close(li);
}
END_TEST

/* It answers while the kernel takes its memory away. */
START_TEST(socket_of_a_daemon_that_was_killed_is_waited_for)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct listener *li;
	struct err e = { 0 };
	int word[2];
	char c = 0;
	pid_t pid;

	memcpy(a.sun_path, path, strlen(path));
	ck_assert_int_eq(pipe(word), 0);
	pid = fork();
	if (pid == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		void *p = mmap(NULL, 512u << 20, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p == MAP_FAILED || bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
		    listen(fd, 1) || write(word[1], &c, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(word[0], &c, 1), 1);
	ck_assert_int_eq(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e), TALLY_EBUSY);
	kill(pid, SIGKILL);
	ck_assert_msg(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e) == 0, "%s",
		      e.text);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	listener_close(li);
	close(word[0]);
	close(word[1]);
}
END_TEST

/* Another user may lock the directory, which everybody may read, for as long as they like. */
START_TEST(directory_that_others_lock_keeps_no_daemon_from_its_socket)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY);
	struct listener *li;
	char lock[300];
	struct stat st;
	struct err e = { 0 };

	snprintf(lock, sizeof(lock), "%s.lock", path);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	ck_assert_msg(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e) == 0, "%s",
		      e.text);
	ck_assert_int_lt(stat(lock, &st), 0);		/* nothing is left behind */
	listener_close(li);
	close(fd);
}
END_TEST

START_TEST(lock_file_is_nobody_elses)
{
	struct listener *li;
	char lock[300];
	struct err e;
	int fd;

	snprintf(lock, sizeof(lock), "%s.lock", path);
	ck_assert_int_eq(symlink("/dev/null", lock), 0);
	ck_assert_int_lt(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e), 0);
	ck_assert_ptr_nonnull(strstr(e.text, lock));
	ck_assert_int_eq(unlink(lock), 0);
	ck_assert_int_eq(mkfifo(lock, 0666), 0);
	ck_assert_int_eq(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e), TALLY_EAUTH);
	ck_assert_ptr_nonnull(strstr(e.text, "remove it"));
	ck_assert_int_eq(unlink(lock), 0);
	fd = open(lock, O_CREAT | O_WRONLY, 0600);	/* of one that was killed here */
	close(fd);
	ck_assert_int_eq(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e), 0);
	listener_close(li);
}
END_TEST

/* Of a log daemon, say, whose path was typed by mistake. */
START_TEST(living_socket_of_another_kind_is_left_alone)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct listener *li;
	struct err e = { 0 };
	struct stat st;
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	memcpy(a.sun_path, path, strlen(path));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e), TALLY_EBUSY);
	ck_assert_int_eq(stat(path, &st), 0);
	close(fd);
	ck_assert_int_eq(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e), 0);
	listener_close(li);
}
END_TEST

START_TEST(file_that_is_no_socket_is_left_alone)
{
	struct listener *li;
	struct err e;
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	close(fd);
	ck_assert_int_eq(listener_unix(loop, &li, path, 0600, on_accepted, NULL, &e),
			 TALLY_EEXIST);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(missing_directory_and_long_path_are_said)
{
	struct listener *li;
	char where[256];
	struct err e;

	snprintf(where, sizeof(where), "%s/no/agent.sock", dir);
	ck_assert_int_eq(listener_unix(loop, &li, where, 0600, on_accepted, NULL, &e),
			 TALLY_ENOENT);
	ck_assert_ptr_nonnull(strstr(e.text, "/no does not exist"));
	memset(where, 'x', sizeof(where) - 1);
	where[0] = '/';
	where[sizeof(where) - 1] = '\0';
	ck_assert_int_eq(listener_unix(loop, &li, where, 0600, on_accepted, NULL, &e),
			 TALLY_EINVAL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("loop");
	TCase *c = tcase_create("loop");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, timer_repeats_until_stopped);
	tcase_add_test(c, loop_that_stood_still_for_a_minute_is_freed);
	tcase_add_test(c, work_does_not_hold_the_loop);
	tcase_add_test(c, bell_rung_by_another_thread_is_heard_and_coalesces);
	tcase_add_test(c, watch_tells_readable_and_may_be_stopped_in_its_callback);
	tcase_add_test(c, sigterm_arrives_as_a_callback);
	tcase_add_test(c, connecting_to_nobody_ends_in_closed_with_the_address);
	tcase_add_test(c, names_are_resolved_and_an_unknown_one_is_said);
	tcase_add_test(c, stream_closed_while_resolving_says_so_once);
	tcase_add_test(c, busy_port_is_said_with_the_address);
	tcase_add_test(c, living_unix_socket_is_busy_and_keeps_its_file);
	tcase_add_test(c, dead_socket_file_is_replaced);
	tcase_add_test(c, socket_of_a_daemon_that_was_killed_is_waited_for);
	tcase_add_test(c, directory_that_others_lock_keeps_no_daemon_from_its_socket);
	tcase_add_test(c, lock_file_is_nobody_elses);
	tcase_add_test(c, living_socket_of_another_kind_is_left_alone);
	tcase_add_test(c, file_that_is_no_socket_is_left_alone);
	tcase_add_test(c, missing_directory_and_long_path_are_said);
	tcase_set_timeout(c, 240);
	suite_add_tcase(s, c);

	c = tcase_create("tcp");
	tcase_add_checked_fixture(c, setup_tcp, teardown_pair);
	tcase_add_test(c, tcp_stream_carries_bytes_both_ways);
	tcase_add_test(c, queue_of_a_peer_that_does_not_read_is_bounded);
	tcase_set_timeout(c, 240);
	suite_add_tcase(s, c);

	c = tcase_create("finish");
	tcase_add_checked_fixture(c, setup_tcp, NULL);
	tcase_add_test(c, stream_finish_delivers_what_waits_before_the_end);
	tcase_add_test(c, stream_finish_gives_up_on_a_peer_that_does_not_read);
	tcase_set_timeout(c, 240);
	suite_add_tcase(s, c);

	c = tcase_create("unix");
	tcase_add_checked_fixture(c, setup_unix, teardown_pair);
	tcase_add_test(c, peer_that_sends_without_end_has_one_small_read_in_a_turn);
	tcase_add_test(c, unix_stream_carries_bytes_both_ways);
	tcase_add_test(c, descriptors_ride_both_ways_even_behind_a_queue);
	tcase_set_timeout(c, 240);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	SRunner *r;
	int failed;

	if (!mkdtemp(dir))
		return EXIT_FAILURE;
	snprintf(path, sizeof(path), "%s/agent.sock", dir);
	r = srunner_create(suite());
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	unlink(path);
	rmdir(dir);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
