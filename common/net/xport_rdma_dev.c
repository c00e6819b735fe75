// SPDX-License-Identifier: Apache-2.0
/*
 * xport_rdma_dev.c - the devices of this process, and memory registered with them.
 *
 * Opening never fails: a machine without devices, or without the rights to open them,
 * has none, and everything goes over TCP.  Registering fails as a whole where one
 * device refuses, and says what to raise; what it had done is undone.
 *
 * Any engine that sees a device's async descriptor readable takes the event and counts
 * it in the device; every engine compares the counts with those it has seen and ends
 * its own links.  A completion queue that failed is marked by way of its context.  Events
 * about single queue pairs need no care: a queue pair that fails flushes the receives that
 * every link has posted.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/net/xport_rdma.h"

static struct rdma_dev devs[RDMA_DEVS_MAX];
static uint32_t ndevs;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t registered;

/* ---- devices ---- */

static bool dev_open(struct rdma_dev *d, struct ibv_device *from)
{
	int flags;

	d->ctx = ibv_open_device(from);
	if (!d->ctx)
		return false;
	flags = fcntl(d->ctx->async_fd, F_GETFL);
	d->pd = ibv_alloc_pd(d->ctx);
	if (d->pd && !ibv_query_device(d->ctx, &d->attr) &&
	    !fcntl(d->ctx->async_fd, F_SETFL, flags | O_NONBLOCK)) {
		d->windows = d->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B &&
			     d->attr.max_mw > 0;
		d->soft = d->attr.vendor_id == RDMA_SOFT_VENDOR;
		return true;
	}
	if (d->pd)
		ibv_dealloc_pd(d->pd);
	ibv_close_device(d->ctx);
	return false;
}

static void open_all(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (int i = 0; list && i < n && ndevs < RDMA_DEVS_MAX; i++)
		ndevs += dev_open(&devs[ndevs], list[i]);
	if (list)
		ibv_free_device_list(list);
}

static void open_none(void)
{
}

void xport_rdma_off(void)
{
	pthread_once(&once, open_none);
}

uint32_t xport_rdma_devices(void)
{
	uint32_t n;

	rdma_devs(&n);
	return n;
}

struct rdma_dev *rdma_devs(uint32_t *n)
{
	pthread_once(&once, open_all);
	*n = ndevs;
	return devs;
}

/* True: links have to look at it. */
static bool take_event(struct rdma_dev *d, const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		d->dead = true;
		return true;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
		d->trouble[(uint8_t)ev->element.port_num]++;
		return true;
	case IBV_EVENT_CQ_ERR:
		*(_Atomic bool *)ev->element.cq->cq_context = true;
		return true;
	default:
		return ev->event_type == IBV_EVENT_GID_CHANGE;
	}
}

void rdma_dev_events(struct rdma_dev *d)
{
	struct ibv_async_event ev;

	while (!ibv_get_async_event(d->ctx, &ev)) {
		d->news += take_event(d, &ev);
		ibv_ack_async_event(&ev);
	}
}

/* ---- what they say ---- */

void rdma_netdev_of(const struct sockaddr_storage *sa, char netdev[IF_NAMESIZE])
{
	struct ifaddrs *all = NULL;
	uint8_t want[16], have[16];

	netdev[0] = '\0';
	if (!rdma_gid_of(sa, want) || getifaddrs(&all))
		return;
	for (struct ifaddrs *i = all; i && !netdev[0]; i = i->ifa_next)
		if (i->ifa_addr &&
		    rdma_gid_of((const struct sockaddr_storage *)i->ifa_addr, have) &&
		    !memcmp(want, have, 16))
			snprintf(netdev, IF_NAMESIZE, "%s", i->ifa_name);
	freeifaddrs(all);
}

/* The network interface of an InfiniBand port (IPoIB), or "". */
static void ipoib_of(const char *dev, uint8_t port, char *netdev)
{
	char path[256];
	glob_t found;

	netdev[0] = '\0';
	snprintf(path, sizeof(path), "/sys/class/net/*/device/infiniband/%s", dev);
	if (glob(path, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc && !netdev[0]; i++) {
		const char *name = found.gl_pathv[i] + strlen("/sys/class/net/");
		int len = (int)strcspn(name, "/");
		unsigned int dev_port = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/sys/class/net/%.*s/dev_port", len, name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%u", &dev_port) == 1 && dev_port + 1u == port)
			snprintf(netdev, IF_NAMESIZE, "%.*s", len, name);
		if (f)
			fclose(f);
	}
	globfree(&found);
}

static bool fill_row(struct rdma_gid *r, uint32_t dev, const struct ibv_gid_entry *g)
{
	struct ibv_context *ctx = devs[dev].ctx;
	struct ibv_port_attr port;

	if (ibv_query_port(ctx, (uint8_t)g->port_num, &port))
		return false;
	*r = (struct rdma_gid){
		.dev = dev,
		.port = (uint8_t)g->port_num,
		.mtu = (uint8_t)port.active_mtu,
		.index = (uint16_t)g->gid_index,
		.lid = port.lid,
		.type = g->gid_type == IBV_GID_TYPE_IB ? RDMA_IB :
			g->gid_type == IBV_GID_TYPE_ROCE_V2 ? RDMA_ROCE_V2 : RDMA_ROCE_V1,
		.active = port.state == IBV_PORT_ACTIVE && !devs[dev].dead,
	};
	memcpy(r->gid, g->gid.raw, 16);
	snprintf(r->name, sizeof(r->name), "%s", ibv_get_device_name(ctx->device));
	if (r->type == RDMA_IB)
		ipoib_of(r->name, r->port, r->netdev);
	else if (g->ndev_ifindex)
		if_indextoname(g->ndev_ifindex, r->netdev);
	return true;
}

uint32_t rdma_rows(struct rdma_gid *rows, uint32_t max)
{
	struct ibv_gid_entry *table = calloc(RDMA_GIDS_MAX, sizeof(*table));
	uint32_t n, filled = 0;

	rdma_devs(&n);
	for (uint32_t d = 0; table && d < n; d++) {
		ssize_t got = ibv_query_gid_table(devs[d].ctx, table, RDMA_GIDS_MAX, 0);

		for (ssize_t i = 0; i < got && filled < max; i++)
			filled += fill_row(&rows[filled], d, &table[i]);
	}
	free(table);
	return filled;
}

int rdma_find(const struct sockaddr_storage *sa, struct rdma_gid *row, char *why, size_t len)
{
	struct rdma_gid *rows = calloc(RDMA_GIDS_MAX, sizeof(*rows));
	char netdev[IF_NAMESIZE];
	uint8_t gid[16];
	int at = -1;

	snprintf(why, len, rows ? "the link has no IP address" : "out of memory");
	if (rows && rdma_gid_of(sa, gid)) {
		rdma_netdev_of(sa, netdev);
		at = rdma_pick(rows, rdma_rows(rows, RDMA_GIDS_MAX), gid, netdev, why, len);
	}
	if (at >= 0)
		*row = rows[at];
	free(rows);
	return at < 0 ? TALLY_ENOENT : 0;
}

static bool parse_addr(const char *addr, struct sockaddr_storage *sa)
{
	memset(sa, 0, sizeof(*sa));
	sa->ss_family = AF_INET;
	if (inet_pton(AF_INET, addr, &((struct sockaddr_in *)sa)->sin_addr) == 1)
		return true;
	sa->ss_family = AF_INET6;
	return inet_pton(AF_INET6, addr, &((struct sockaddr_in6 *)sa)->sin6_addr) == 1;
}

bool xport_rdma_serves(const char *addr, char *why, size_t len)
{
	struct sockaddr_storage sa;
	struct rdma_gid row;

	if (parse_addr(addr, &sa))
		return rdma_find(&sa, &row, why, len) == 0;
	snprintf(why, len, "%s is no address", addr);
	return false;
}

void xport_rdma_say(const char *addr, char *buf, size_t len)
{
	struct rlimit lim = { RLIM_INFINITY, 0 };
	struct sockaddr_storage sa;
	struct rdma_gid row;
	char why[256], lock[48] = "any amount of";

	if (!parse_addr(addr, &sa) || rdma_find(&sa, &row, why, sizeof(why))) {
		snprintf(buf, len, "no rdma: %s", parse_addr(addr, &sa) ? why : "no address");
		return;
	}
	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (lim.rlim_cur != RLIM_INFINITY)
		snprintf(lock, sizeof(lock), "%llu MiB of",
			 (unsigned long long)lim.rlim_cur >> 20);
	snprintf(buf, len, "rdma, %s; %s memory windows, %d queue pairs, %d regions, %s memory; "
		 "a link ends when a write is not answered for %u ms", why,
		 devs[row.dev].windows ? "with" : "without", devs[row.dev].attr.max_qp,
		 devs[row.dev].attr.max_mr, lock, rdma_patience_ms(devs[row.dev].soft));
}

/* ---- memory ---- */

static int register_error(struct err *e, const struct rdma_dev *d, uint64_t bytes, int errnum)
{
	const char *dev = ibv_get_device_name(d->ctx->device);
	struct rlimit lim = { 0, 0 };

	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (errnum == ENOMEM && lim.rlim_cur != RLIM_INFINITY)
		return err_set(e, TALLY_EQUOTA, "%s cannot register %llu MiB beside %llu MiB: "
			       "RLIMIT_MEMLOCK is %llu MiB; raise it (LimitMEMLOCK=infinity in "
			       "the unit, or ulimit -l unlimited)", dev,
			       (unsigned long long)(bytes >> 20),
			       (unsigned long long)(registered >> 20),
			       (unsigned long long)lim.rlim_cur >> 20);
	errno = errnum;
	return err_set(e, TALLY_EQUOTA, "%s cannot register %llu MiB: %m (it has room for %d "
		       "regions)", dev, (unsigned long long)(bytes >> 20), d->attr.max_mr);
}

static int access_of(const struct rdma_dev *d, bool peers_write)
{
	if (!peers_write)
		return 0;
	return IBV_ACCESS_LOCAL_WRITE |
	       (d->windows ? IBV_ACCESS_MW_BIND : IBV_ACCESS_REMOTE_WRITE);
}

static struct ibv_mr *reg_memory(const struct rdma_dev *d, const struct xport_region *r, int fd)
{
	if (fd >= 0)
		return ibv_reg_dmabuf_mr(d->pd, 0, r->bytes, (uintptr_t)r->base, fd, 0);
	return ibv_reg_mr(d->pd, r->base, r->bytes, access_of(d, r->peers_write));
}

/* With every device, or none.  fd: of a dma-buf, or -1. */
static int region_new(struct xport_region **out, const struct xport_region *want, int fd,
		      struct err *e)
{
	struct xport_region *r = calloc(1, sizeof(*r));
	uint32_t n;
	struct rdma_dev *all = rdma_devs(&n);
	int rc;

	if (!r)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	*r = *want;
	for (uint32_t i = 0; i < n; i++) {
		if (all[i].dead)
			continue;
		r->mr[i] = reg_memory(&all[i], r, fd);
		if (r->mr[i])
			continue;
		rc = fd < 0 ? register_error(e, &all[i], r->bytes, errno) :
			      err_set(e, TALLY_EIO, "%s cannot read the device by itself: %m",
				      ibv_get_device_name(all[i].ctx->device));
		xport_region_free(r);
		return rc;
	}
	r->counted = n > 0;
	registered += r->counted ? r->bytes : 0;
	*out = r;
	return 0;
}

int xport_region_new(struct xport_region **out, void *base, uint64_t bytes, bool peers_write,
		     struct err *e)
{
	const struct xport_region want = {
		.base = base, .bytes = bytes, .peers_write = peers_write,
	};

	return region_new(out, &want, -1, e);
}

int xport_region_device(struct xport_region **out, int fd, void *base, uint64_t bytes,
			struct err *e)
{
	return region_new(out, &(struct xport_region){ .base = base, .bytes = bytes }, fd, e);
}

void xport_region_free(struct xport_region *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < RDMA_DEVS_MAX; i++)
		if (r->mr[i])
			ibv_dereg_mr(r->mr[i]);
	registered -= r->counted ? r->bytes : 0;
	free(r);
}

uint64_t xport_regions_bytes(void)
{
	return registered;
}
