// SPDX-License-Identifier: Apache-2.0
/*
 * What an agent lets a server's card write, where two jobs share the links to it.  There is no
 * card here: the agent's engines take links by TCP for links by RDMA.
 */
/* LIBS: -Wl,--wrap=xport_rdma_devices,--wrap=xport_region_new,--wrap=xport_region_free */
/* LIBS: -Wl,--wrap=ad_tell_scheduler */
/* LIBS: -Wl,--wrap=xport_lend,--wrap=xport_unlend,--wrap=xport_takes_regions,--wrap=xport_show */
#include <arpa/inet.h>
#include <poll.h>
#include <sys/epoll.h>

#include "tests/unit/agent_job_rig.h"

#define OTHER	(JOB + 1)

/* ---- a card ---- */

static uint8_t a_region;
static atomic_uint shown[OTHER + 1];		/* by job */

uint32_t __wrap_xport_rdma_devices(void);
int __wrap_xport_region_new(struct xport_region **r, void *base, uint64_t bytes, bool peers_write,
			    struct err *e);
void __wrap_xport_region_free(struct xport_region *r);
int __wrap_xport_lend(struct xport_group *g, const struct xport_region *r);
void __wrap_xport_unlend(struct xport_group *g, const struct xport_region *r);
bool __wrap_xport_takes_regions(const struct xport_ep *ep);
int __wrap_xport_show(struct xport_ep *ep, uint32_t job, uint32_t id, const struct xport_region *r,
		      uint64_t off, uint64_t bytes);

uint32_t __wrap_xport_rdma_devices(void)
{
	return 1;
}

int __wrap_xport_region_new(struct xport_region **r, void *base, uint64_t bytes, bool peers_write,
			    struct err *e)
{
	(void)base;
	(void)bytes;
	(void)peers_write;
	(void)e;
	*r = (struct xport_region *)(void *)&a_region;
	return 0;
}

void __wrap_xport_region_free(struct xport_region *r)
{
	(void)r;
}

int __wrap_xport_lend(struct xport_group *g, const struct xport_region *r)
{
	(void)g;
	(void)r;
	return 0;
}

void __wrap_xport_unlend(struct xport_group *g, const struct xport_region *r)
{
	(void)g;
	(void)r;
}

bool __wrap_xport_takes_regions(const struct xport_ep *ep)
{
	(void)ep;
	return true;
}

int __wrap_xport_show(struct xport_ep *ep, uint32_t job, uint32_t id, const struct xport_region *r,
		      uint64_t off, uint64_t bytes)
{
	(void)ep;
	(void)id;
	(void)r;
	(void)off;
	(void)bytes;
	shown[job]++;
	return 0;
}

/* ---- a scheduler that hears nothing, and a server that joins ---- */

int __wrap_ad_tell_scheduler(struct agent *agent, const struct msg *m);

int __wrap_ad_tell_scheduler(struct agent *agent, const struct msg *m)
{
	(void)agent;
	(void)m;
	return 0;
}

static int listener;
static struct msg_addr at;

static void server_listen(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(listener, ENGINES), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&sa, &len), 0);
	at = (struct msg_addr){ .host = "127.0.0.1", .port = ntohs(sa.sin_port) };
}

/* Says WELCOME to an engine's link, which is up from here on. */
static int server_adopt(void)
{
	struct xport_hello h = { .got = 0 };
	uint8_t wire[FRAME_BYTES];
	struct frame hello;
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	while (xport_hello_read(&h, fd, &hello))
		;
	hello.type = FRAME_WELCOME;
	hello.slot = hello.rslot = hello.offset = hello.round = 0;
	frame_encode(&hello, wire);
	ck_assert_int_eq(write(fd, wire, sizeof(wire)), sizeof(wire));
	return fd;
}

static struct ad_job *start(uint32_t id)
{
	const struct msg m = { .type = MSG_JOB_UP, .job_up = {
		.job = id, .name = "x", .world = 2, .epoch = 5, .algorithm = PLACE_ALGORITHM,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .seg_bytes = CHUNK_BYTES_DEFAULT,
		.window_bytes = WINDOW_BYTES_MIN, .nmachines = 2, .machines = machines,
		.nservers = 1, .servers = &server,
	} };
	const struct msg_tensor t = { .id = 1, .name = "t", .dtype = DTYPE_F32, .count = 1 };
	const struct msg log = { .type = MSG_TENSORS, .tensors = {
		.job = id, .seq = 1, .ntensors = 1, .tensors = &t,
	} };
	uint32_t ready = said.jobs + ENGINES, batches = said.batches + ENGINES;
	struct err e;

	ck_assert_int_eq(ad_job_up(&a, &m, &e), 0);
	wait_for(&said.jobs, ready);
	ck_assert_int_eq(ad_tensors(&a, &log, &e), 0);
	wait_for(&said.batches, batches);
	batches_done(ad_job_find(&a, id));
	return ad_job_find(&a, id);
}

static bool is_shown(void *job)
{
	return shown[*(uint32_t *)job] >= ENGINES;
}

static void joins(uint32_t id)
{
	struct msg_server both[2] = { server, server };
	const struct msg m = { .type = MSG_EPOCH, .epoch = {
		.job = id, .seq = 2, .epoch = 6, .nservers = 2, .servers = both,
	} };
	struct err e;

	both[0].weight /= 2;
	both[1] = both[0];
	both[1].node++;
	both[1].name = "t";
	both[1].engines = 1;
	both[1].addrs = &at;
	ck_assert_int_eq(ad_epoch(&a, &m, &e), 0);
}

static void job_over(struct ad_job *j)
{
	uint32_t freed = said.freed + ENGINES;

	ad_job_down(j, 0, "");
	wait_for(&said.freed, freed);
}

START_TEST(a_server_that_joins_may_write_results_of_the_second_job_too)
{
	struct ad_job *one, *two;
	uint32_t id = JOB;
	int fd[ENGINES];

	a.opt.links = 1;
	server_listen();
	one = start(JOB);
	two = start(OTHER);
	joins(JOB);
	for (uint32_t i = 0; i < ENGINES; i++)
		fd[i] = server_adopt();
	ck_assert(loop_wait(a.loop, is_shown, &id));
	ck_assert_uint_eq(shown[OTHER], 0);
	joins(OTHER);
	id = OTHER;
	ck_assert(loop_wait(a.loop, is_shown, &id));
	job_over(one);
	job_over(two);
	for (uint32_t i = 0; i < ENGINES; i++)
		close(fd[i]);
	close(listener);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_server_that_joins_may_write_results_of_the_second_job_too);
}

int main(void)
{
	return rig_main("agent_shows", add);
}
