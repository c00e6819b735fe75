// SPDX-License-Identifier: Apache-2.0
/*
 * How fast frames move between two processes of this machine: gigabits of payload
 * per second over TCP (loopback) and shared memory, one way and both ways, next to
 * plain send() and recv() loops over one TCP connection with the same buffers.
 *
 * The child pushes (and receives, both ways), the parent receives (and pushes).
 * A side pushes until its time is up and ends with a PROBE; each measures what
 * arrives from the first payload to the last.  Shared memory moves references
 * only, so its number says what the headers allow, not how fast memory is.
 */
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/net/xport.h"

#define WINDOW	WINDOW_BYTES_MAX	/* buffers rotate through as much as a real window */
#define DEPTH	32u			/* frames kept queued */

enum kind { PLAIN, TCP, SHM, KINDS };

static const char *const kind_names[] = { "send/recv", "tcp", "shm" };

struct tally {
	uint64_t bytes, frames;
	mono_t first, last;
};

struct row {
	enum kind kind;
	uint32_t payload;
	bool both;
	double gbit_s[2];		/* child to parent, parent to child */
	double frames_s;		/* child to parent */
};

static uint8_t *out_window, *in_window;
static uint32_t time_ms = 500;

static void die(const char *what)
{
	fprintf(stderr, "net_bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static mono_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (mono_t)t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

static void tally_add(struct tally *t, uint64_t bytes)
{
	mono_t at = now();

	if (!t->first)
		t->first = at;
	else			/* the first one's bytes came before the clock started */
		t->bytes += bytes;
	t->frames++;
	t->last = at;
}

static double tally_gbit_s(const struct tally *t)
{
	return t->last > t->first ? (double)t->bytes * 8 / (double)(t->last - t->first) : 0;
}

/* ---- plain loops ---- */

struct plain {
	int fd;
	uint32_t payload;
	struct tally got;
};

static void *plain_send(void *arg)
{
	struct plain *p = arg;
	mono_t end = now() + mono_ms(time_ms);
	uint64_t at = 0;

	while (now() < end) {
		if (send(p->fd, out_window + at, p->payload, MSG_NOSIGNAL) < 0)
			die("send");
		at = (at + p->payload) % WINDOW;
	}
	shutdown(p->fd, SHUT_WR);
	return NULL;
}

static void *plain_recv(void *arg)
{
	struct plain *p = arg;
	uint64_t at = 0;
	ssize_t n;

	while ((n = recv(p->fd, in_window + at, p->payload, MSG_WAITALL)) > 0) {
		tally_add(&p->got, (uint64_t)n);
		at = (at + p->payload) % WINDOW;
	}
	return NULL;
}

static struct tally plain_side(int fd, uint32_t payload, bool push, bool take)
{
	struct plain p = { .fd = fd, .payload = payload };
	pthread_t t;

	if (push && take) {
		if (pthread_create(&t, NULL, plain_send, &p))
			die("pthread_create");
		plain_recv(&p);
		pthread_join(t, NULL);
	} else if (push) {
		plain_send(&p);
	} else {
		plain_recv(&p);
	}
	return p.got;
}

/* ---- endpoints ---- */

struct bench {
	struct xport_group *g;
	struct xport_ep *ep;
	int epfd;
	uint32_t payload;
	uint64_t out_at, in_at;
	bool up, pushing, answer, said_end, heard_end, closed;
	struct tally got;
};

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	(void)ep;
	(void)peer;
	((struct bench *)ctx)->up = true;
}

static uint8_t *next_room(struct bench *b)
{
	b->in_at = (b->in_at + b->payload) % WINDOW;
	return in_window + b->in_at;
}

static void *on_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	(void)ep;
	(void)f;
	return next_room(ctx);
}

static const void *on_resolve(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	(void)ep;
	(void)f;
	return next_room(ctx);
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct bench *b = ctx;

	(void)ep;
	if (data)
		tally_add(&b->got, f->length);
	else
		b->heard_end = true;
}

static void on_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	(void)ctx;
	(void)ep;
	(void)cookie;
	(void)len;
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	struct bench *b = ctx;

	(void)ep;
	b->closed = true;
	if (why != CLOSE_LOCAL && why != CLOSE_EOF)
		fprintf(stderr, "net_bench: %s\n", e->text);
}

static const struct xport_cb callbacks = {
	.up = on_up,
	.place = on_place,
	.resolve = on_resolve,
	.deliver = on_deliver,
	.sent = on_sent,
	.closed = on_closed,
};

static void push_more(struct bench *b)
{
	struct frame f = { .type = FRAME_PUSH, .length = b->payload };

	while (xport_queued(b->ep) < DEPTH) {
		const void *data = xport_by_reference(b->ep) ? NULL : out_window + b->out_at;

		if (xport_send(b->ep, &f, data, 0))
			die("xport_send");
		b->out_at = (b->out_at + b->payload) % WINDOW;
	}
}

/* Pushes until `end`, then says so; a side that only takes answers the other's end. */
static void drive(struct bench *b, mono_t end)
{
	struct frame last = { .type = FRAME_PROBE };

	if (!b->up || b->closed || b->said_end)
		return;
	if (b->pushing && now() < end) {
		push_more(b);
	} else if ((b->pushing || b->heard_end) && xport_queued(b->ep) < XPORT_QUEUE) {
		xport_send(b->ep, &last, NULL, 0);
		b->said_end = true;
	}
}

static void turn(struct bench *b, mono_t end)
{
	struct epoll_event ev[8];
	mono_t next;
	int n, wait_ms;

	drive(b, end);
	next = xport_poll(b->g, now());
	wait_ms = b->closed || next <= now() || (b->up && xport_queued(b->ep) == 0 && b->pushing) ?
		0 : 10;
	n = epoll_wait(b->epfd, ev, ARRAY_SIZE(ev), wait_ms);
	for (int i = 0; i < n; i++)
		xport_event(b->g, ev[i].data.ptr, ev[i].events);
}

static void run_side(struct bench *b)
{
	mono_t end = now() + mono_ms(time_ms), give_up = end + 10 * NS_PER_SEC;

	while (!b->closed && now() < give_up &&
	       !(b->said_end && b->heard_end && xport_queued(b->ep) == 0))
		turn(b, end);
	xport_group_free(b->g);
	close(b->epfd);
}

static void bench_new(struct bench *b, uint32_t payload, bool pushing)
{
	memset(b, 0, sizeof(*b));
	b->payload = payload;
	b->pushing = pushing;
	b->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (b->epfd < 0 || xport_group_new(&b->g, b->epfd, &callbacks, b, NULL))
		die("engine");
}

static struct tally agent_side(const struct xport_addr *a, uint32_t payload)
{
	struct frame hello = { .type = FRAME_HELLO };
	struct bench b;
	struct err e;

	bench_new(&b, payload, true);
	if (xport_connect(b.g, a, &hello, NULL, now(), &b.ep, &e)) {
		fprintf(stderr, "net_bench: %s\n", e.text);
		exit(1);
	}
	run_side(&b);
	return b.got;
}

static struct tally server_side(int fd, uint32_t payload, bool pushing)
{
	struct frame hello, welcome = { .type = FRAME_WELCOME, .aux = FRAME_VERSION };
	struct xport_hello h = { .got = 0 };
	struct bench b;

	while (xport_hello_read(&h, fd, &hello) == TALLY_EAGAIN)
		continue;
	bench_new(&b, payload, pushing);
	if (xport_adopt(b.g, fd, &hello, &welcome, NULL, now(), &b.ep, NULL))
		die("adopt");
	run_side(&b);
	return b.got;
}

/* ---- one row: two processes ---- */

static int listen_on(enum kind kind, struct xport_addr *a)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	bool shm = kind == SHM;
	socklen_t len = shm ? sizeof(un) : sizeof(in);
	struct sockaddr *sa = shm ? (struct sockaddr *)&un : (struct sockaddr *)&in;
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/tally-net-bench.%d", (int)getpid());
	if (fd < 0 || bind(fd, sa, len) < 0 || listen(fd, 1) < 0 || getsockname(fd, sa, &len) < 0)
		die("listen");
	memset(a, 0, sizeof(*a));
	a->kind = shm ? XPORT_SHM : XPORT_TCP;
	a->port = ntohs(in.sin_port);
	snprintf(a->remote, sizeof(a->remote), "%.100s", shm ? un.sun_path : "127.0.0.1");
	return fd;
}

static int plain_connect(const struct xport_addr *a)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(a->port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&in, sizeof(in)) < 0)
		die("connect");
	return fd;
}

static void child(const struct row *r, const struct xport_addr *a, int result)
{
	struct tally got;

	if (r->kind == PLAIN)
		got = plain_side(plain_connect(a), r->payload, true, r->both);
	else
		got = agent_side(a, r->payload);
	if (write(result, &got, sizeof(got)) != sizeof(got))
		die("write");
	exit(0);
}

static void measure(struct row *r)
{
	struct tally up, down;
	struct xport_addr a;
	int listener = listen_on(r->kind, &a), result[2], fd;
	pid_t pid;

	if (pipe(result) < 0)
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0)
		child(r, &a, result[1]);
	close(result[1]);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	up = r->kind == PLAIN ? plain_side(fd, r->payload, r->both, true) :
				server_side(fd, r->payload, r->both);
	if (read(result[0], &down, sizeof(down)) != sizeof(down))
		die("the child's result");
	waitpid(pid, NULL, 0);
	if (r->kind == SHM)
		unlink(a.remote);
	if (r->kind == PLAIN)
		close(fd);
	close(listener);
	close(result[0]);
	r->gbit_s[0] = tally_gbit_s(&up);
	r->gbit_s[1] = tally_gbit_s(&down);
	r->frames_s = r->gbit_s[0] / 8 * 1e9 / r->payload;
}

/* ---- showing ---- */

static void show(const struct row *r, bool json, bool first)
{
	if (json) {
		printf("%s{\"kind\": \"%s\", \"payload_bytes\": %u, \"both_ways\": %s, "
		       "\"there_gbit_s\": %.3f, \"back_gbit_s\": %.3f, \"frames_s\": %.0f}",
		       first ? "" : ",\n  ", kind_names[r->kind], r->payload,
		       r->both ? "true" : "false", r->gbit_s[0], r->gbit_s[1], r->frames_s);
		return;
	}
	if (first)
		printf("%-10s %8s %-5s %12s %12s %12s\n", "kind", "payload", "ways",
		       "there Gbit/s", "back Gbit/s", "frames/s");
	printf("%-10s %4u KiB %-5s %12.2f %12.2f %12.0f%s\n", kind_names[r->kind],
	       r->payload >> 10, r->both ? "both" : "one", r->gbit_s[0], r->gbit_s[1],
	       r->frames_s, r->kind == SHM ? "  (by reference)" : "");
}

static void run_all(bool json)
{
	static const uint32_t payloads[] = { 128u << 10, 512u << 10 };
	bool first = true;

	printf("%s", json ? "{\"results\": [\n  " : "");
	for (int both = 0; both < 2; both++) {
		for (size_t p = 0; p < ARRAY_SIZE(payloads); p++) {
			for (int k = 0; k < KINDS; k++) {
				struct row r = { .kind = (enum kind)k, .payload = payloads[p],
						 .both = both };

				fflush(stdout);
				measure(&r);
				show(&r, json, first);
				first = false;
			}
		}
	}
	printf("%s", json ? "\n]}\n" : "");
}

static const char usage[] =
	"Usage: net_bench [OPTION]...\n"
	"Measures frames between two processes: Gbit/s of payload, next to send/recv.\n"
	"\n"
	"  -t, --time MS   push for so long per row (default 500)\n"
	"      --json      print an object with a list of results\n"
	"      --help      this text\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "time", required_argument, NULL, 't' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, "t:", options, NULL)) != -1) {
		if (c == 't' && atoi(optarg) > 0) {
			time_ms = (uint32_t)atoi(optarg);
		} else if (c == 'j') {
			json = true;
		} else {
			fputs(usage, c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	out_window = malloc(WINDOW + SEG_BYTES_MAX);
	in_window = malloc(WINDOW + SEG_BYTES_MAX);
	if (!out_window || !in_window)
		die("memory");
	memset(out_window, 1, WINDOW + SEG_BYTES_MAX);
	memset(in_window, 1, WINDOW + SEG_BYTES_MAX);
	run_all(json);
	free(out_window);
	free(in_window);
	return 0;
}
