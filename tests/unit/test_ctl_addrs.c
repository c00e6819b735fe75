// SPDX-License-Identifier: Apache-2.0
/* A scheduler's name that has two addresses, of which the first one answers nobody. */
#include <arpa/inet.h>
#include <check.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/ctl/ctl.h"
#include "tests/unit/loop_wait.h"

#define MANY	8			/* connections, more than a backlog of none keeps */

static struct loop *loop;
static struct listener *good;
static int deaf, caller[MANY];
static uint32_t up, closed;

/* In place of libc's, also for libuv: each name has these two. */
__attribute__((visibility("default")))
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		struct addrinfo **out)
{
	static struct sockaddr_in sa[2];
	static struct addrinfo ai[2];

	(void)host;
	(void)hints;
	for (int i = 0; i < 2; i++) {
		sa[i] = (struct sockaddr_in){
			.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(service)),
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (i == 0)),
		};
		ai[i] = (struct addrinfo){
			.ai_family = AF_INET, .ai_socktype = SOCK_STREAM,
			.ai_addr = (struct sockaddr *)&sa[i], .ai_addrlen = sizeof(sa[i]),
			.ai_next = i == 0 ? &ai[1] : NULL,
		};
	}
	*out = ai;
	return 0;
}

__attribute__((visibility("default")))
void freeaddrinfo(struct addrinfo *ai)
{
	(void)ai;
}

static void on_accepted(void *ctx, int fd)
{
	(void)ctx;
	close(fd);
}

/* Its queue is full, and the kernel drops who wants to connect. */
static void make_deaf(uint16_t port)
{
	const struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1),
	};

	deaf = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(deaf, (const struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(deaf, 0), 0);
	for (int i = 0; i < MANY; i++) {
		caller[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(caller[i], (const struct sockaddr *)&sa, sizeof(sa));
	}
}

static void setup(void)
{
	struct err e;

	up = closed = 0;
	ck_assert_int_eq(loop_new(&loop, &e), 0);
	ck_assert_int_eq(listener_tcp(loop, &good, "127.0.0.1", 0, on_accepted, NULL, &e), 0);
	make_deaf(listener_port(good));
}

static void teardown(void)
{
	for (int i = 0; i < MANY; i++)
		close(caller[i]);
	close(deaf);
	listener_close(good);
	loop_free(loop);
}

static void on_up(void *ctx, struct ctl *c)
{
	(void)ctx;
	(void)c;
	up++;
}

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	(void)ctx;
	(void)c;
	(void)m;
}

static void on_closed(void *ctx, struct ctl *c, const struct err *e)
{
	(void)ctx;
	(void)c;
	(void)e;
	closed++;
}

START_TEST(node_tries_the_next_address)
{
	static const struct ctl_cb cb = { .up = on_up, .msg = on_msg, .closed = on_closed };
	struct ctl *c;
	struct err e;

	ck_assert_int_eq(ctl_connect(loop, &c, "two.test", listener_port(good), &cb, NULL, &e),
			 0);
	loop_wait_count(loop, &closed, 1);	/* by the good one, which has no more to say */
	ck_assert_uint_eq(up, 1);
}
END_TEST

START_TEST(cli_tries_the_next_address)
{
	mono_t began = loop_now();
	struct ctl_client *c;
	struct err e;

	ck_assert_msg(!ctl_client_open(&c, "two.test", listener_port(good), 10000, &e), "%s",
		      e.text);
	ck_assert_int_lt(loop_now() - began, mono_ms(9000));
	ctl_client_close(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ctl_addrs");
	SRunner *r = srunner_create(s);
	TCase *t = tcase_create("all");
	int failed;

	tcase_set_timeout(t, 240);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, node_tries_the_next_address);
	tcase_add_test(t, cli_tries_the_next_address);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
