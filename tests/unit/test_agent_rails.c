// SPDX-License-Identifier: Apache-2.0
/*
 * An agent's cards and a server that is reached over them: how many links there are, and what
 * becomes of one that shall be RDMA's and cannot.  The server is plain sockets.
 *
 * With cards of this machine in TALLY_TEST_RDMA (tests/unit/xport_rig.h) over these, too.
 */
/* LIBS: -Wl,--wrap=ad_links_turn,--wrap=xport_poll */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "common/net/xport_rdma.h"
#include "tests/unit/agent_job_rig.h"

#define GBIT	UINT64_C(1000000000)
#define LINKS_MAX 64

/* ---- an engine's turn ---- */

static _Thread_local bool queued;	/* something may be, that no poll has looked for */
static _Atomic uint32_t turns, late;

void __real_ad_links_turn(struct ad_engine *en, mono_t now);
void __wrap_ad_links_turn(struct ad_engine *en, mono_t now);
mono_t __real_xport_poll(struct xport_group *g, mono_t now);
mono_t __wrap_xport_poll(struct xport_group *g, mono_t now);

void __wrap_ad_links_turn(struct ad_engine *en, mono_t now)
{
	turns++;
	late += queued;
	queued = true;
	__real_ad_links_turn(en, now);
}

mono_t __wrap_xport_poll(struct xport_group *g, mono_t now)
{
	queued = false;
	return __real_xport_poll(g, now);
}

/* ---- the server ---- */

/* Its listener, and what it does with those who would like a queue pair. */
static struct {
	int listener, fd[LINKS_MAX];
	uint32_t links, asked;		/* that asked for none; that asked for one */
	char at[ADDR_LEN_MAX + 1];
	bool offers;			/* a queue pair, and ends the link that has taken it */
} sv;

static void server_listen(const char *at)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };

	memset(&sv, 0, sizeof(sv));
	snprintf(sv.at, sizeof(sv.at), "%s", at);
	ck_assert_int_eq(inet_pton(AF_INET, at, &sa.sin_addr), 1);
	sv.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(sv.listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(sv.listener, LINKS_MAX), 0);
}

static uint16_t server_port(void)
{
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);

	ck_assert_int_eq(getsockname(sv.listener, (struct sockaddr *)&sa, &len), 0);
	return ntohs(sa.sin_port);
}

static void say(int fd, const struct frame *f)
{
	uint8_t wire[FRAME_BYTES];

	frame_encode(f, wire);
	ck_assert_int_eq(send(fd, wire, sizeof(wire), MSG_NOSIGNAL), sizeof(wire));
}

static struct frame hear(int fd)
{
	uint8_t wire[FRAME_BYTES];
	struct frame f;

	ck_assert_int_eq(recv(fd, wire, sizeof(wire), MSG_WAITALL), sizeof(wire));
	ck_assert_int_eq(frame_decode(wire, &f), 0);
	return f;
}

/* One that never joins, or none. */
static void say_queue_pair(int fd)
{
	struct frame f = { .type = FRAME_QP, .job = QP_OFFER, .aux = 1 };
	struct sockaddr_storage sa = { .ss_family = AF_INET };
	uint8_t gid[16];

	if (sv.offers) {
		inet_pton(AF_INET, sv.at, &((struct sockaddr_in *)&sa)->sin_addr);
		ck_assert(rdma_gid_of(&sa, gid));
		f.aux = 0;
		f.tensor = 4000;
		f.attempt = IBV_MTU_1024;
		f.epoch = 256;
		f.slot = get_le64(gid);
		f.rslot = get_le64(gid + 8);
	}
	say(fd, &f);
}

static void server_take(void)
{
	int fd = accept4(sv.listener, NULL, NULL, SOCK_CLOEXEC);
	struct frame f = hear(fd);
	bool asked = f.offset == HELLO_RDMA;

	ck_assert_uint_eq(f.type, FRAME_HELLO);
	ck_assert_uint_lt(sv.links + sv.asked, LINKS_MAX);
	f.type = FRAME_WELCOME;
	f.slot = f.rslot = f.offset = f.round = 0;
	f.aux = FRAME_VERSION;
	say(fd, &f);
	sv.asked += asked;
	if (asked)
		say_queue_pair(fd);
	if (asked && sv.offers) {
		ck_assert_uint_eq(hear(fd).job, QP_ANSWER);
		close(fd);
		return;
	}
	sv.fd[sv.links++] = fd;
}

/* Who says nothing for long is given up. */
static bool another_comes(int wait_ms)
{
	struct pollfd p = { .fd = sv.listener, .events = POLLIN };

	for (uint32_t i = 0; i < sv.links; i++)
		say(sv.fd[i], &(struct frame){ .type = FRAME_PING });
	return poll(&p, 1, wait_ms) > 0;
}

/* So many links are there, and no more come. */
static void expect_links(uint32_t n)
{
	mono_t until = loop_now() + mono_ms(20000);

	while (sv.links < n && loop_now() < until)
		if (another_comes(100))
			server_take();
	ck_assert_uint_eq(sv.links, n);
	ck_assert(!another_comes(200));
}

static void server_close(void)
{
	for (uint32_t i = 0; i < sv.links; i++)
		close(sv.fd[i]);
	close(sv.listener);
}

/* The agent has that one card, and the server there as many engines as the agent. */
static struct ad_job *start_over(const char *card, uint64_t bits, bool rdma)
{
	struct msg_server there = server;
	const struct msg_addr at = { .host = sv.at, .port = server_port(), .bits_per_s = bits };
	const struct msg m = { .type = MSG_JOB_UP, .job_up = {
		.job = JOB, .name = "x", .world = 2, .epoch = 5,
		.algorithm = PLACE_ALGORITHM, .chunk_bytes = CHUNK_BYTES_DEFAULT,
		.seg_bytes = CHUNK_BYTES_DEFAULT, .window_bytes = WINDOW_BYTES_MIN,
		.nmachines = 2, .machines = machines, .nservers = 1, .servers = &there,
	} };
	struct err e;

	a.nrails = 1;
	a.rail[0].bits_per_s = bits;
	snprintf(a.rail_text[0], sizeof(a.rail_text[0]), "%s", card);
	a.rail_rdma[0] = rdma;
	there.engines = ENGINES;
	there.addrs = &at;
	ck_assert_int_eq(ad_job_up(&a, &m, &e), 0);
	wait_for(&said.jobs, ENGINES);
	return ad_job_find(&a, JOB);
}

START_TEST(what_a_turn_queues_leaves_in_that_turn)
{
	struct ad_job *j;

	server_listen("127.0.0.1");
	j = start_over("127.0.0.1", 100 * GBIT, false);
	expect_links(ENGINES * 2);
	end_job(j);
	server_close();
	ck_assert_uint_gt(turns, ENGINES);
	ck_assert_uint_eq(late, 0);
}
END_TEST

START_TEST(links_fill_a_card_over_the_engines_that_meet)
{
	struct ad_job *j;

	a.opt.links = 0;
	server_listen("127.0.0.1");
	j = start_over("127.0.0.1", 100 * GBIT, false);
	expect_links(ENGINES * 3);
	end_job(j);
	server_close();
}
END_TEST

/* Loopback has no card, on any machine. */
START_TEST(a_card_that_falls_back_to_tcp_has_as_many_links_as_tcp)
{
	struct ad_job *j;

	server_listen("127.0.0.1");
	j = start_over("127.0.0.1", 100 * GBIT, true);
	expect_links(ENGINES * 2);
	end_job(j);
	server_close();
}
END_TEST

START_TEST(a_link_that_ends_before_it_is_joined_again_and_again_stays_on_tcp)
{
	const char *given = getenv("TALLY_TEST_RDMA");
	char card[64], at[64];
	struct ad_job *j;

	if (!given || sscanf(given, "%63s%63s", card, at) != 2) {
		printf("no card given, left out\n");
		return;
	}
	server_listen(at);
	sv.offers = true;
	j = start_over(card, 100 * GBIT, true);
	expect_links(ENGINES * 2);
	ck_assert_uint_eq(sv.asked, ENGINES * 3);
	end_job(j);
	server_close();
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, what_a_turn_queues_leaves_in_that_turn);
	tcase_add_test(t, links_fill_a_card_over_the_engines_that_meet);
	tcase_add_test(t, a_card_that_falls_back_to_tcp_has_as_many_links_as_tcp);
	tcase_add_test(t, a_link_that_ends_before_it_is_joined_again_and_again_stays_on_tcp);
}

int main(void)
{
	return rig_main("agent_rails", add);
}
