// SPDX-License-Identifier: Apache-2.0
/*
 * What each of the ways in which Tally uses a card is worth: bytes per second from an agent
 * to two servers, half to one on another machine, half to one on its own, with everything
 * done the plain way first, and then one thing after the other as xport_rdma does it.
 *
 *	rdma_ladder [-s BYTES] [-n MESSAGES] DEVICE:GID DEVICE:GID
 *
 * The agent and the server beside it have the first device, the other server the second; all
 * three are this process, which sleeps when no queue pair has anything to say.  A message is a
 * payload and a header of 64 bytes; who has received both answers nothing.
 */
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/base/limits.h"

#define DEPTH	8u		/* messages under way to one server */
#define HEAD	64u
#define RECVS	(2 * DEPTH)
#define ODD	40u		/* off a page's beginning */

enum rung { PLAIN, ONCE, BY_SHM, ALIGNED, ONE_SGE, RUNGS };

static const char *const rung_name[] = {
	"plain: registered, asked for and written, message by message",
	"+ registered once, so nothing is asked for",
	"+ shared memory, not the NIC's loopback",
	"+ payloads begin where pages do",
	"+ one scatter element; header by an inline send",
};

struct dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	union ibv_gid gid;
	uint8_t index;
	struct ibv_port_attr port;
};

struct end {
	struct dev *d;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *heads;			/* RECVS received, then DEPTH to be sent */
	struct ibv_mr *heads_mr;
	uint8_t *payload;		/* DEPTH slots */
	struct ibv_mr *payload_mr;
	struct ibv_mr *slot_mr[DEPTH];	/* PLAIN: of a message */
};

struct flow {			/* to one server */
	struct end agent, server;
	bool shm;
	int pair[2];
	uint32_t begun, done, busy;	/* busy: slots, bits */
};

static struct dev dev[2];
static uint32_t size = 64 << 10, messages = 512;

__attribute__((format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "rdma_ladder: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
	va_end(ap);
	exit(1);
}

/* ---- devices and queue pairs ---- */

static void dev_open(struct dev *d, const char *arg)
{
	const char *colon = strchr(arg, ':');
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i] && colon; i++) {
		const char *name = ibv_get_device_name(list[i]);

		if (strlen(name) == (size_t)(colon - arg) && !strncmp(name, arg, strlen(name)))
			d->ctx = ibv_open_device(list[i]);
	}
	if (!d->ctx)
		die("no device '%s'; say NAME:GID-INDEX, as rdma link and its gids show", arg);
	d->index = (uint8_t)atoi(colon + 1);
	d->pd = ibv_alloc_pd(d->ctx);
	d->channel = ibv_create_comp_channel(d->ctx);
	if (!d->pd || !d->channel || ibv_query_gid(d->ctx, 1, d->index, &d->gid) ||
	    ibv_query_port(d->ctx, 1, &d->port))
		die("device '%s'", arg);
}

static uint64_t slot_bytes(void)
{
	return align_up(size + HEAD + ODD, PAGE_BYTES) + PAGE_BYTES;
}

static void *memory(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("memory");
	return p;
}

static struct ibv_mr *reg(struct dev *d, void *base, uint64_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(d->pd, base, bytes,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		die("registering %llu bytes", (unsigned long long)bytes);
	return mr;
}

static void post_recv(struct end *e, uint32_t i)
{
	struct ibv_sge sge = { (uintptr_t)(e->heads + i * HEAD), HEAD, e->heads_mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };

	if (ibv_post_recv(e->qp, &wr, &bad))
		die("a receive");
}

static void end_open(struct end *e, struct dev *d)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4 * DEPTH, .max_recv_wr = RECVS, .max_send_sge = 2,
			 .max_recv_sge = 1, .max_inline_data = HEAD },
	};

	e->d = d;
	e->cq = ibv_create_cq(d->ctx, 8 * DEPTH, e, d->channel, 0);
	if (!e->cq)
		die("a completion queue");
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(d->pd, &init);
	if (!e->qp)
		die("a queue pair");
	e->heads = memory((RECVS + DEPTH) * HEAD);
	e->heads_mr = reg(d, e->heads, (RECVS + DEPTH) * HEAD);
	e->payload = memory(DEPTH * slot_bytes());
	e->payload_mr = reg(d, e->payload, DEPTH * slot_bytes());
	if (ibv_req_notify_cq(e->cq, 0))
		die("completions");
}

static void end_join(struct end *e, const struct end *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	if (ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS))
		die("queue pair to INIT");
	for (uint32_t i = 0; i < RECVS; i++)
		post_recv(e, i);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = MIN(e->d->port.active_mtu, peer->d->port.active_mtu),
		.dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .dlid = peer->d->port.lid,
			     .grh = { .dgid = peer->d->gid, .sgid_index = e->d->index,
				      .hop_limit = 64 } },
	};
	if (ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("queue pair to RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6,
				  .rnr_retry = 6, .max_rd_atomic = 1 };
	if (ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("queue pair to RTS");
}

static void end_close(struct end *e)
{
	ibv_destroy_qp(e->qp);
	ibv_destroy_cq(e->cq);
	ibv_dereg_mr(e->heads_mr);
	ibv_dereg_mr(e->payload_mr);
	munmap(e->heads, (RECVS + DEPTH) * HEAD);
	munmap(e->payload, DEPTH * slot_bytes());
}

/* ---- a message ---- */

static uint8_t *payload_at(const struct end *e, enum rung rung, uint32_t slot)
{
	return e->payload + slot * slot_bytes() + PAGE_BYTES + (rung < ALIGNED ? ODD : 0);
}

static void post(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(e->qp, wr, &bad))
		die("a send");
}

/* A header by itself; its slot is the immediate. */
static void send_head(struct end *e, uint32_t slot, unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)(e->heads + (RECVS + slot) * HEAD), HEAD,
			       e->heads_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = slot,
				  .send_flags = flags | IBV_SEND_INLINE };

	post(e, &wr);
}

/* Header and payload by one write of two elements, next to each other over there. */
static void write_both(struct flow *f, enum rung rung, uint32_t slot)
{
	const struct ibv_mr *from = rung == PLAIN ? f->agent.slot_mr[slot] : f->agent.payload_mr;
	const struct ibv_mr *to = rung == PLAIN ? f->server.slot_mr[slot] : f->server.payload_mr;
	struct ibv_sge sge[2] = {
		{ (uintptr_t)(f->agent.heads + (RECVS + slot) * HEAD), HEAD,
		  f->agent.heads_mr->lkey },
		{ (uintptr_t)payload_at(&f->agent, rung, slot), size, from->lkey },
	};
	struct ibv_send_wr wr = {
		.wr_id = slot, .sg_list = sge, .num_sge = 2, .imm_data = slot,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)payload_at(&f->server, rung, slot) - HEAD, to->rkey },
	};

	post(&f->agent, &wr);
}

static void write_then_send(struct flow *f, enum rung rung, uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)payload_at(&f->agent, rung, slot), size,
			       f->agent.payload_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = slot, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)payload_at(&f->server, rung, slot),
			     f->server.payload_mr->rkey },
	};

	post(&f->agent, &wr);
	send_head(&f->agent, slot, IBV_SEND_SIGNALED);
}

static void begin(struct flow *f, enum rung rung)
{
	uint32_t slot = (uint32_t)__builtin_ctz(~f->busy);

	f->begun++;
	f->busy |= 1u << slot;
	if (rung == PLAIN) {
		f->agent.slot_mr[slot] = reg(f->agent.d, payload_at(&f->agent, rung, slot), size);
		send_head(&f->agent, slot, IBV_SEND_SIGNALED);
	} else if (rung < ONE_SGE) {
		write_both(f, rung, slot);
	} else {
		write_then_send(f, rung, slot);
	}
}

/* By reference: the header goes through a socket, the payload stays where it is. */
static void by_shm(struct flow *f)
{
	uint8_t head[HEAD] = { 0 };

	if (write(f->pair[0], head, HEAD) != HEAD || read(f->pair[1], head, HEAD) != HEAD)
		die("the socket");
	f->begun++;
	f->done++;
}

static void received(struct flow *f, enum rung rung, struct end *e, const struct ibv_wc *wc)
{
	uint32_t slot = wc->imm_data;
	bool asked = rung == PLAIN && wc->opcode == IBV_WC_RECV;

	post_recv(e, (uint32_t)wc->wr_id);
	if (asked && e == &f->server) {		/* where it may go */
		e->slot_mr[slot] = reg(e->d, payload_at(e, rung, slot) - HEAD, size + HEAD);
		send_head(e, slot, IBV_SEND_SIGNALED);
	} else if (asked) {
		write_both(f, rung, slot);
	} else {
		if (rung == PLAIN)
			ibv_dereg_mr(e->slot_mr[slot]);
		f->done++;
	}
}

static void completed(struct flow *f, enum rung rung, struct end *e, const struct ibv_wc *wc)
{
	errno = 0;
	if (wc->status)
		die("%s", ibv_wc_status_str(wc->status));
	if (wc->opcode & IBV_WC_RECV) {
		received(f, rung, e, wc);
		return;
	}
	if (e == &f->server || (rung == PLAIN && wc->opcode == IBV_WC_SEND))
		return;
	if (rung == PLAIN)
		ibv_dereg_mr(e->slot_mr[wc->wr_id]);
	f->busy &= ~(1u << wc->wr_id);
}

/* ---- a run ---- */

static bool look(struct flow *f, enum rung rung, struct end *e)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(e->cq, 16, wc);

	for (int i = 0; i < n; i++)
		completed(f, rung, e, &wc[i]);
	return n > 0;
}

/* A queue that has told is armed again, and looked at before the next sleep. */
static void sleep_until_told(void)
{
	struct pollfd p[2] = {
		{ .fd = dev[0].channel->fd, .events = POLLIN },
		{ .fd = dev[1].channel->fd, .events = POLLIN },
	};
	struct ibv_cq *cq;
	void *of;

	if (poll(p, 2, 20000) <= 0)
		die("nothing came for 20 s");
	for (int i = 0; i < 2; i++) {
		if (!(p[i].revents & POLLIN) || ibv_get_cq_event(dev[i].channel, &cq, &of))
			continue;
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0))
			die("completions");
	}
}

static bool turn(struct flow *f, enum rung rung)
{
	bool any = false;

	if (f->shm) {
		for (uint32_t i = 0; i < DEPTH && f->begun < messages; i++, any = true)
			by_shm(f);
		return any;
	}
	while (f->begun < messages && f->busy != (1u << DEPTH) - 1) {
		begin(f, rung);
		any = true;
	}
	any |= look(f, rung, &f->agent);
	return look(f, rung, &f->server) || any;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* MB/s (10^6). */
static double run(enum rung rung)
{
	struct flow flow[2] = { 0 };
	double begin_at, took;

	for (uint32_t i = 0; i < 2; i++) {
		flow[i].shm = i == 1 && rung >= BY_SHM;
		if (flow[i].shm && socketpair(AF_UNIX, SOCK_STREAM, 0, flow[i].pair))
			die("a socket");
		if (flow[i].shm)
			continue;
		end_open(&flow[i].agent, &dev[0]);
		end_open(&flow[i].server, &dev[i == 0]);
		end_join(&flow[i].agent, &flow[i].server);
		end_join(&flow[i].server, &flow[i].agent);
	}
	begin_at = seconds();
	while (flow[0].done < messages || flow[1].done < messages) {
		bool any = turn(&flow[0], rung);

		if (!turn(&flow[1], rung) && !any)
			sleep_until_told();
	}
	took = seconds() - begin_at;
	for (uint32_t i = 0; i < 2; i++) {
		if (flow[i].shm) {
			close(flow[i].pair[0]);
			close(flow[i].pair[1]);
			continue;
		}
		end_close(&flow[i].agent);
		end_close(&flow[i].server);
	}
	return 2.0 * messages * size / took / 1e6;
}

int main(int argc, char **argv)
{
	double before = 0;
	int c;

	while ((c = getopt(argc, argv, "s:n:")) != -1) {
		if (c == 's')
			size = (uint32_t)atoi(optarg);
		else if (c == 'n')
			messages = (uint32_t)atoi(optarg);
		else
			return 2;
	}
	if (argc - optind != 2 || !size || !messages) {
		fputs("usage: rdma_ladder [-s BYTES] [-n MESSAGES] DEVICE:GID DEVICE:GID\n",
		      stderr);
		return 2;
	}
	for (int i = 0; i < 2; i++)
		dev_open(&dev[i], argv[optind + i]);
	for (enum rung r = PLAIN; r < RUNGS; r++) {
		double now = run(r);

		printf("  %8u %8.1f MB/s %6.2f  %s\n", size, now, before ? now / before : 1,
		       rung_name[r]);
		fflush(stdout);
		before = now;
	}
	return 0;
}
