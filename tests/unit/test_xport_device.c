// SPDX-License-Identifier: Apache-2.0
/*
 * xport: what a device says of itself, and which links end for it.  The device is this file:
 * its calls stand in front of the library's, and its links carry nothing but TCP.
 */
#include "common/net/xport_rdma_link.h"
#include "tests/unit/xport_rig.h"

/* ---- the device ---- */

static struct {
	struct ibv_async_event event;	/* to be taken */
	bool has_event;
	union ibv_gid gid;
	uint32_t cqs, made;		/* that are there; that ever were */
	int ends[2];			/* reading: once closed, all descriptors are in error */
} card;

static struct ibv_device device = { .name = "fake0" };
static struct ibv_context context = { .device = &device };
static struct ibv_pd pd = { .context = &context };

static int poll_none(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq;
	(void)n;
	(void)wc;
	return 0;
}

static int notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

#undef ibv_get_device_list
struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	list[0] = &device;
	*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	(void)d;
	ck_assert_int_eq(pipe2(card.ends, O_CLOEXEC), 0);
	context.async_fd = card.ends[1];
	context.ops.poll_cq = poll_none;
	context.ops.req_notify_cq = notify;
	return &context;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	(void)ctx;
	*attr = (struct ibv_device_attr){ .max_cqe = 1 << 20, .phys_port_cnt = 2 };
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	(void)ctx;
	return &pd;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *of, void *addr, size_t len, uint64_t iova,
				unsigned int access)
{
	(void)of;
	(void)addr;
	(void)len;
	(void)iova;
	(void)access;
	return calloc(1, sizeof(struct ibv_mr));
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *c = calloc(1, sizeof(*c));

	c->context = ctx;
	c->fd = fcntl(card.ends[1], F_DUPFD_CLOEXEC, 0);
	return c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	close(c->fd);
	free(c);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int depth, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)vector;
	cq->context = ctx;
	cq->channel = channel;
	cq->cq_context = cq_context;
	cq->cqe = depth;
	card.cqs++;
	card.made++;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	card.cqs--;
	free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **cq, void **cq_context)
{
	(void)c;
	(void)cq;
	(void)cq_context;
	return -1;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	(void)ctx;
	if (!card.has_event)
		return -1;
	card.has_event = false;
	*event = card.event;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	(void)ctx;
	(void)port;
	(void)index;
	*gid = card.gid;
	return 0;
}

/* ---- links ---- */

/* A queue pair's share of a link that is up. */
static void give_queue_pair(struct link *l, uint8_t port)
{
	struct rdma_link *k = calloc(1, sizeof(*k));
	uint32_t n;

	list_init(&k->shown);
	list_init(&k->hidden);
	ck_assert_int_eq(rdma_cq_get(l->side->g->rdma, 0, &k->cq, NULL), 0);
	k->port = port;
	k->trouble = rdma_devs(&n)->trouble[port];
	k->gid = card.gid;
	l->ep->rdma = k;
	l->ep->ops = &xport_rdma_ops;
}

static void rig_with(struct rig *r, uint8_t port_a, uint8_t port_b)
{
	ck_assert(rig_linked(r, 0));
	give_queue_pair(&r->a, port_a);
	give_queue_pair(&r->b, port_b);
	settle(r);
}

/* What the first engine that looks takes, the others find in the device. */
static void device_says(enum ibv_event_type type, int port, struct ibv_cq *cq)
{
	uint32_t n;

	card.event = (struct ibv_async_event){ .event_type = type };
	if (cq)
		card.event.element.cq = cq;
	else
		card.event.element.port_num = port;
	card.has_event = true;
	rdma_dev_events(rdma_devs(&n));
	ck_assert(!card.has_event);
}

static void expect_end(struct rig *r, struct link *l, const char *text)
{
	UNTIL(r, l->closes == 1);
	ck_assert_int_eq(l->why, CLOSE_DEVICE);
	ck_assert_ptr_nonnull(strstr(l->err.text, text));
}

static struct ibv_cq *cq_of(const struct link *l)
{
	return l->side->g->rdma->cq[0].cq;
}

/* ---- promises ---- */

START_TEST(a_ports_event_ends_the_links_of_that_port)
{
	static const enum ibv_event_type types[] = {
		IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
	};
	static struct link a2, b2;
	struct rig r;

	memset(&a2, 0, sizeof(a2));
	memset(&b2, 0, sizeof(b2));
	rig_with(&r, 1, 1);
	connect_link(&r, &a2);
	accept_link(&r, &b2);
	UNTIL(&r, a2.ups && b2.ups);
	give_queue_pair(&a2, 2);
	device_says(types[_i], 3, NULL);
	settle(&r);
	ck_assert_uint_eq(r.a.closes + r.b.closes + a2.closes, 0);
	device_says(types[_i], 2, NULL);
	expect_end(&r, &a2, "its port went down or changed");
	settle(&r);
	ck_assert_uint_eq(r.a.closes + r.b.closes, 0);
	device_says(types[_i], 1, NULL);
	expect_end(&r, &r.a, "its port went down or changed");
	rig_close(&r);
	link_free(&a2);
	link_free(&b2);
}
END_TEST

START_TEST(an_address_that_has_moved_ends_its_links)
{
	struct rig r;

	rig_with(&r, 1, 1);
	device_says(IBV_EVENT_GID_CHANGE, 1, NULL);
	settle(&r);
	ck_assert_uint_eq(r.a.closes, 0);
	card.gid.raw[15]++;
	device_says(IBV_EVENT_GID_CHANGE, 1, NULL);
	expect_end(&r, &r.a, "the NIC's address is another now");
	rig_close(&r);
}
END_TEST

START_TEST(a_completion_queue_that_failed_is_used_no_more)
{
	struct rdma_cq *c;
	struct rig r;

	rig_with(&r, 1, 1);
	ck_assert_uint_eq(card.cqs, 2);
	device_says(IBV_EVENT_CQ_ERR, 0, cq_of(&r.a));
	side_turn(&r.agent);
	ck_assert_uint_eq(r.a.closes, 1);
	ck_assert_ptr_nonnull(strstr(r.a.err.text, "its completion queue failed"));
	ck_assert_uint_eq(card.cqs, 1);
	side_turn(&r.server);
	ck_assert_int_ne(r.b.why, CLOSE_DEVICE);	/* of another engine, with its own queue */
	ck_assert_int_eq(rdma_cq_get(r.agent.g->rdma, 0, &c, NULL), 0);
	ck_assert_uint_eq(card.made, 3);
	ck_assert(!c->failed);
	rig_close(&r);
	ck_assert_uint_eq(card.cqs, 0);
}
END_TEST

static int events_of(struct side *s)
{
	struct epoll_event ev[4];

	return epoll_wait(s->epfd, ev, ARRAY_SIZE(ev), 0);
}

/* Its descriptors are in error from then on. */
START_TEST(a_device_that_is_gone_keeps_no_engine_busy)
{
	struct rdma_cq *c;
	struct rig r;
	struct err e;

	rig_with(&r, 1, 2);
	close(card.ends[0]);
	ck_assert_int_ge(events_of(&r.agent), 2);
	device_says(IBV_EVENT_DEVICE_FATAL, 0, NULL);
	expect_end(&r, &r.a, "the device failed");
	settle(&r);
	ck_assert_uint_eq(r.b.closes, 1);
	ck_assert_int_eq(events_of(&r.agent), 0);
	ck_assert_int_eq(events_of(&r.server), 0);
	ck_assert_uint_eq(card.cqs, 0);
	ck_assert_int_eq(rdma_cq_get(r.agent.g->rdma, 0, &c, &e), TALLY_EIO);
	rig_close(&r);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, a_ports_event_ends_the_links_of_that_port, 0, 3);
	tcase_add_test(t, an_address_that_has_moved_ends_its_links);
	tcase_add_test(t, a_completion_queue_that_failed_is_used_no_more);
	tcase_add_test(t, a_device_that_is_gone_keeps_no_engine_busy);
}

int main(void)
{
	return rig_main("xport device", add);
}
