// SPDX-License-Identifier: Apache-2.0
/*
 * An agent's engines and a server on its machine: what a link shows of the agent's memory.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/unit/agent_job_rig.h"

#define SHOWN	(XPORT_QUEUE + 200u)	/* a tenth of SLABS_PER_LINK_MAX */

/* The server: a link from each of the agent's engines, and one that is made again. */
static struct {
	int listener, epfd;
	struct xport_group *group;
	struct sockaddr_un at;
	uint32_t links, slabs[ENGINES + 1], hidden;
	struct xport_ep *ep[ENGINES + 1];
} sv;

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	(void)ctx;
	(void)ep;
	(void)peer;
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	(void)ctx;
	(void)ep;
	(void)f;
	(void)data;
}

static void on_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	(void)ctx;
	(void)ep;
	(void)cookie;
	(void)len;
}

static void on_slab(void *ctx, struct xport_ep *ep, uint32_t job, uint32_t id, int fd,
		    uint64_t bytes)
{
	(void)ctx;
	(void)id;
	(void)bytes;
	ck_assert_uint_eq(job, JOB);
	if (fd < 0) {
		sv.hidden++;
		return;
	}
	close(fd);
	++*(uint32_t *)xport_user(ep);
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	(void)ctx;
	(void)ep;
	(void)why;
	(void)e;
}

static const struct xport_cb server_cb = {
	.up = on_up, .deliver = on_deliver, .sent = on_sent, .slab = on_slab, .closed = on_closed,
};

static void server_listen(void)
{
	struct err e;

	memset(&sv, 0, sizeof(sv));
	sv.at.sun_family = AF_UNIX;
	snprintf(sv.at.sun_path, sizeof(sv.at.sun_path), "/tmp/test_agent_links.%d", getpid());
	unlink(sv.at.sun_path);
	sv.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(sv.listener, (struct sockaddr *)&sv.at, sizeof(sv.at)), 0);
	ck_assert_int_eq(listen(sv.listener, ENGINES), 0);
	sv.epfd = epoll_create1(EPOLL_CLOEXEC);
	ck_assert_int_eq(xport_group_new(&sv.group, sv.epfd, &server_cb, NULL, &e), 0);
}

static int server_accept(void)
{
	int fd = accept4(sv.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* The link is up from here on. */
static void server_adopt(int fd)
{
	struct xport_hello h = { .got = 0 };
	struct frame hello, welcome;
	struct err e;

	while (xport_hello_read(&h, fd, &hello))
		;
	welcome = hello;
	welcome.type = FRAME_WELCOME;
	welcome.slot = welcome.rslot = welcome.offset = welcome.round = 0;
	welcome.aux = FRAME_VERSION;
	ck_assert_int_eq(xport_adopt(sv.group, fd, &hello, &welcome, &sv.slabs[sv.links],
				     loop_now(), &sv.ep[sv.links], &e), 0);
	sv.links++;
}

static void server_turn(void)
{
	struct epoll_event ev;

	if (epoll_wait(sv.epfd, &ev, 1, 1) > 0)
		xport_event(sv.group, ev.data.ptr, ev.events);
	xport_poll(sv.group, loop_now());
}

static void server_close(void)
{
	xport_group_free(sv.group);
	close(sv.epfd);
	close(sv.listener);
	unlink(sv.at.sun_path);
}

static struct ad_job *start_with_local_server(void)
{
	struct msg_server here = server;
	const struct msg m = { .type = MSG_JOB_UP, .job_up = {
		.job = JOB, .name = "x", .world = 2, .epoch = 5,
		.algorithm = PLACE_ALGORITHM, .chunk_bytes = CHUNK_BYTES_DEFAULT,
		.seg_bytes = CHUNK_BYTES_DEFAULT, .window_bytes = WINDOW_BYTES_MIN,
		.nmachines = 2, .machines = machines, .nservers = 1, .servers = &here,
	} };
	struct err e;

	here.machine = "a";
	here.shm_path = sv.at.sun_path;
	here.engines = 1;
	ck_assert_int_eq(ad_job_up(&a, &m, &e), 0);
	wait_for(&said.jobs, ENGINES);
	return ad_job_find(&a, JOB);
}

static void make_slabs(struct ad_job *j, uint32_t n)
{
	struct ad_slab *s;
	struct err e;

	for (uint32_t i = 0; i < n; i++) {
		s = ad_slab_new(&a, j, "input", PAGE_BYTES, true, &e);
		ck_assert_ptr_nonnull(s);
		list_add(&j->inputs, &s->link);
	}
}

static void expect_all(uint32_t n)
{
	mono_t until = loop_now() + mono_ms(10000);

	while ((sv.slabs[0] < n || sv.slabs[1] < n) && loop_now() < until)
		server_turn();
	ck_assert_uint_ge(sv.slabs[0], n);
	ck_assert_uint_ge(sv.slabs[1], n);
}

static void many_descriptors(void)
{
	struct rlimit l;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &l), 0);
	l.rlim_cur = l.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &l), 0);
}

START_TEST(a_link_shows_all_slabs_that_there_are)
{
	struct ad_job *j;

	many_descriptors();
	server_listen();
	j = start_with_local_server();
	make_slabs(j, SHOWN);
	for (uint32_t i = 0; i < ENGINES; i++)
		server_adopt(server_accept());
	expect_all(SHOWN);
	end_job(j);
	server_close();
}
END_TEST

static void limit_descriptors(rlim_t n)
{
	struct rlimit l;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &l), 0);
	l.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &l), 0);
}

/* Its own two are the last descriptors that there were; some are free again a moment later. */
START_TEST(a_slab_that_found_no_descriptor_is_shown_later)
{
	struct ad_job *j;
	int spare[2];

	server_listen();
	j = start_with_local_server();
	for (uint32_t i = 0; i < ENGINES; i++)
		server_adopt(server_accept());
	make_slabs(j, 1);
	expect_all(1);
	spare[0] = dup(0);
	spare[1] = dup(0);
	limit_descriptors((rlim_t)spare[1] + 1);
	close(spare[0]);
	close(spare[1]);
	make_slabs(j, 1);
	while (dup(0) >= 0)
		;				/* engines close copies that they sent */
	(void)poll(NULL, 0, 100);		/* nor has the server one to take it with */
	limit_descriptors((rlim_t)spare[1] + 100);
	expect_all(2);
	end_job(j);
	server_close();
}
END_TEST

/* Else the server would keep it until the job ends. */
START_TEST(a_link_that_was_down_hears_of_memory_that_is_to_go_when_it_is_up)
{
	mono_t until = loop_now() + mono_ms(20000);
	struct ad_shown shown = { .job = JOB };
	struct ad_slab *s;
	struct ad_job *j;
	int again;

	server_listen();
	j = start_with_local_server();
	for (uint32_t i = 0; i < ENGINES; i++)
		server_adopt(server_accept());
	make_slabs(j, 1);
	expect_all(1);
	xport_close(sv.ep[0], CLOSE_LOCAL);
	again = server_accept();
	s = list_entry(j->inputs.next, struct ad_slab, link);
	shown.id = s->id;
	s->hiding = a.nengines;
	for (uint32_t i = 0; i < a.nengines; i++)
		ad_engine_tell(a.engine[i], AD_HIDE, &shown, sizeof(shown));
	wait_for(&said.hidden, 1);
	server_adopt(again);
	while (sv.hidden < ENGINES && loop_now() < until)
		server_turn();
	ck_assert_uint_eq(sv.hidden, ENGINES);
	wait_for(&said.hidden, ENGINES);
	end_job(j);
	server_close();
}
END_TEST

/* Anybody may have been there before the server, and wait for what an agent says and shows. */
START_TEST(a_socket_of_another_user_is_told_nothing)
{
	struct ad_job *j;
	char byte;

	if (geteuid() != 0)
		return;
	ck_assert_int_eq(seteuid(65534), 0);
	server_listen();
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(chmod(sv.at.sun_path, 0777), 0);
	j = start_with_local_server();
	make_slabs(j, 1);
	for (uint32_t i = 0; i < ENGINES; i++) {
		int fd = server_accept();
		struct pollfd p = { .fd = fd, .events = POLLIN };

		ck_assert_int_eq(poll(&p, 1, 20000), 1);
		ck_assert_int_eq(read(fd, &byte, 1), 0);	/* closed, and not a byte before */
		close(fd);
	}
	end_job(j);
	server_close();
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_socket_of_another_user_is_told_nothing);
	tcase_add_test(t, a_link_that_was_down_hears_of_memory_that_is_to_go_when_it_is_up);
	tcase_add_test(t, a_link_shows_all_slabs_that_there_are);
	tcase_add_test(t, a_slab_that_found_no_descriptor_is_shown_later);
}

int main(void)
{
	return rig_main("agent_links", add);
}
