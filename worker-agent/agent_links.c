// SPDX-License-Identifier: Apache-2.0
/*
 * An engine's links to the servers' engines.
 *
 * A peer is one engine of one server; jobs that use it hold it.  To a server on
 * this machine one shared-memory link is enough; to the others there are several
 * TCP connections, at least one per card of either side, each frame taking the
 * one with the least waiting for its bandwidth.  A link that breaks is made again
 * with growing pauses as long as a job needs it; where shared memory does not
 * come up, TCP takes over, and that is said once.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/net/flight.h"
#include "common/rt/log.h"
#include "worker-agent/agent.h"
#include "worker-agent/agent_links.h"
#include "worker-agent/agent_net.h"

#define BACKOFF_MIN_MS	50u
#define BACKOFF_MAX_MS	1000u
#define LASTS_MS	5000u	/* a link over which nothing was pushed is fine then */
#define SHM_TRIES	2u
#define RDMA_TRIES	3u	/* ends of an RDMA link within RDMA_TRIES_MS */
#define RDMA_TRIES_MS	60000u

/* ---- trouble ---- */

/* Where others of its engines have trouble the server has; the last of them says so. */
static void tell_fine(struct ad_peer *p, enum trouble_what what)
{
	bool was = p->troubled;

	p->troubled = false;
	list_for_each(&p->engine->peers, l) {
		const struct ad_peer *q = list_entry(l, struct ad_peer, link);

		was &= !(q->troubled && !strcmp(q->server.name, p->server.name));
	}
	if (was)
		ad_net_say(p->engine, &p->server, what);
}

/* ---- lanes ---- */

static struct ad_lane *lane_new(struct ad_peer *p, uint32_t index)
{
	struct ad_lane *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->peer = p;
	k->index = index;
	k->backoff_ms = BACKOFF_MIN_MS;
	k->bits_per_s = 1;
	list_add(&p->lanes, &k->link);
	return k;
}

static void make_shm_lane(struct ad_peer *p)
{
	struct ad_lane *k = lane_new(p, 0);

	if (!k)
		return;
	k->addr.kind = XPORT_SHM;
	memcpy(k->addr.remote, p->server.shm_path, sizeof(k->addr.remote));
}

static uint32_t peer_rails(const struct ad_peer *p)
{
	return MAX(MAX(p->engine->agent->nrails, p->server.naddrs), 1);
}

/* The nearest card's first: it goes first where others could take a frame as soon. */
static void make_tcp_lanes(struct ad_peer *p)
{
	const struct agent *a = p->engine->agent;
	const uint32_t *order = a->rail_order[p->engine->index];
	uint32_t rails = peer_rails(p);

	for (uint32_t i = 0; i < rails * LINKS_PER_RAIL_MAX; i++) {
		uint32_t rail = rails == a->nrails ? order[i % rails] : i % rails;
		uint32_t remote = p->server.naddrs ? rail % p->server.naddrs : 0;
		uint32_t local = a->nrails ? rail % a->nrails : 0;
		bool rdma = a->nrails && a->rail_rdma[local];
		uint64_t bits = ad_slower_card(p->server.addr[remote].bits_per_s,
					       a->nrails ? a->rail[local].bits_per_s : 0);
		uint64_t links = rdma ? 1 : ad_rail_links(a, bits, p->server.engines);
		struct ad_lane *k;

		if (i / rails >= links)		/* one queue pair fills a card */
			continue;
		k = p->server.naddrs ? lane_new(p, i) : NULL;
		if (!k)
			return;
		k->addr.kind = rdma ? XPORT_RDMA : XPORT_TCP;
		memcpy(k->addr.remote, p->server.addr[remote].host, sizeof(k->addr.remote));
		k->addr.port = p->server.addr[remote].port;
		k->bits_per_s = bits;
		if (a->nrails)
			memcpy(k->addr.local, a->rail_text[local], sizeof(k->addr.local));
	}
}

static void make_lanes(struct ad_peer *p)
{
	if (p->server.local && p->shm_failures < SHM_TRIES)
		make_shm_lane(p);
	else
		make_tcp_lanes(p);
}

/* EAUTH: the socket there is a stranger's, and nothing was sent to it. */
static int lane_open(struct ad_lane *k, mono_t now)
{
	struct ad_peer *p = k->peer;
	struct frame hello = {
		.type = FRAME_HELLO,
		.job = p->node,
		.worker = (uint16_t)k->index,
		.tensor = p->server_engine,
		.chunk = p->engine->index,
		.round = p->engine->agent->start,
		.epoch = p->server.node,
		.slot = get_le64(p->key),
		.rslot = get_le64(p->key + 8),
		.aux = FRAME_VERSION,
	};
	struct err e;
	int rc;

	k->retry_at = MONO_NEVER;
	rc = xport_connect(p->engine->group, &k->addr, &hello, k, now, &k->ep, &e);
	if (!rc)
		return 0;
	k->ep = NULL;
	ad_net_unmade(p->engine, &p->server, p->lanes_up, &k->addr, &e);
	p->troubled |= !p->lanes_up;
	k->retry_at = now + mono_ms(BACKOFF_MAX_MS);
	return rc;
}

static void lane_free(struct ad_lane *k)
{
	list_del(&k->link);
	free(k);
}

/* ---- peers ---- */

/* After a scheduler's restart the same server or agent may have another number. */
static struct ad_peer *peer_find(struct ad_engine *en, const struct ad_job *j, uint32_t server,
				 uint32_t server_engine)
{
	list_for_each(&en->peers, l) {
		struct ad_peer *p = list_entry(l, struct ad_peer, link);

		if (p->node == j->node && p->server.node == server &&
		    p->server_engine == server_engine)
			return p;
	}
	return NULL;
}

int ad_peers_reserve(struct list *spare, uint32_t n)
{
	while (n--) {
		struct ad_peer *p = calloc(1, sizeof(*p));

		if (!p)
			return TALLY_ENOMEM;
		list_add(spare, &p->link);
	}
	return 0;
}

void ad_peers_release(struct list *spare)
{
	list_for_each_safe(spare, l, next) {
		list_del(l);
		free(list_entry(l, struct ad_peer, link));
	}
}

void ad_peer_learn(struct ag_peer *core, const struct ad_server *sv)
{
	struct ad_peer *p = core->user;

	p->server.weight = sv->weight;	/* the latest job's plan */
	if (p->server.naddrs || !sv->naddrs)
		return;
	p->server = *sv;
	make_lanes(p);
}

struct ag_peer *ad_peer_get(struct ad_engine *en, const struct ad_job *j, struct list *spare,
			    const struct ad_server *sv, uint32_t server_engine)
{
	struct ad_peer *p = peer_find(en, j, sv->node, server_engine);

	if (!p) {
		p = list_first(spare, struct ad_peer, link);
		list_del(&p->link);
		p->engine = en;
		p->process = -1;
		p->node = j->node;
		p->server = *sv;
		p->server_engine = server_engine;
		list_init(&p->lanes);
		ag_peer_init(&en->core, &p->core, sv->node, server_engine);
		p->core.user = p;
		list_add(&en->peers, &p->link);
	}
	memcpy(p->key, j->link_key, KEY_BYTES);
	if (p->jobs++ == 0)
		make_lanes(p);
	ad_peer_learn(&p->core, sv);
	return &p->core;
}

static void peer_free_if_idle(struct ad_peer *p)
{
	if (p->jobs || !list_empty(&p->lanes))
		return;
	if (p->process >= 0)
		close(p->process);
	list_del(&p->link);
	free(p);
}

static void lane_end(struct ad_lane *k)
{
	k->going = true;
	k->retry_at = MONO_NEVER;
	if (k->ep)
		xport_close(k->ep, CLOSE_LOCAL);
	else
		lane_free(k);
}

void ad_peer_put(struct ag_peer *core)
{
	struct ad_peer *p = core->user;

	ASSERT(p->jobs);
	if (--p->jobs)
		return;
	tell_fine(p, TROUBLE_LEFT);
	list_for_each_safe(&p->lanes, l, next)
		lane_end(list_entry(l, struct ad_lane, link));
	peer_free_if_idle(p);
}

void ad_peer_fence(struct ag_peer *core, bool ended)
{
	struct ad_peer *p = core->user;

	if (!ended)
		ad_fence_kill(&p->process, p->server.name);
	list_for_each(&p->lanes, l) {
		struct ad_lane *k = list_entry(l, struct ad_lane, link);

		if (k->ep)
			xport_close(k->ep, CLOSE_LOCAL);
	}
}

void ad_links_free(struct ad_engine *en)
{
	while (!list_empty(&en->peers)) {
		struct ad_peer *p = list_first(&en->peers, struct ad_peer, link);

		while (!list_empty(&p->lanes))
			lane_free(list_first(&p->lanes, struct ad_lane, link));
		list_del(&p->link);
		free(p);
	}
}

/* ---- counting ---- */

struct tally {
	uint32_t rdma, no_rdma[NO_RDMA_END];
	uint64_t detours;
	struct xport_moved moved;
};

static void add_moved(struct xport_moved *sum, const struct xport_ep *ep)
{
	struct xport_moved m = xport_moved(ep);

	sum->direct += m.direct;
	sum->copied += m.copied;
}

static void count_in(struct ad_lane *k, void *arg)
{
	struct tally *t = arg;

	if (!k->up)
		return;
	t->rdma += xport_takes_regions(k->ep);
	t->no_rdma[k->no_rdma] += k->addr.kind == XPORT_TCP;
	t->detours += xport_detours(k->ep);
	add_moved(&t->moved, k->ep);
}

/* Whether its links carry data: known from what comes of pushes, else by how long they last. */
static void look_at_peer(struct ad_peer *p, mono_t now)
{
	list_for_each(&p->lanes, l) {
		const struct ad_lane *k = list_entry(l, struct ad_lane, link);

		if (!k->up || !ad_net_stuck(p->engine, &p->server, k->ep))
			continue;
		p->troubled = true;
		return;
	}
	if (p->lanes_up && (!p->core.doubtful || now - p->up_at > mono_ms(LASTS_MS)))
		tell_fine(p, TROUBLE_OVER);
}

bool ad_links_troubled(const struct ad_engine *en)
{
	list_for_each(&en->peers, l)
		if (list_entry(l, struct ad_peer, link)->troubled)
			return true;
	return false;
}

void ad_links_count(struct ad_engine *en)
{
	mono_t now = loop_now();
	struct tally t = { .detours = en->detours_before, .moved = en->moved_before };
	uint32_t links = 0;

	ad_lanes_each(en, count_in, &t);
	list_for_each(&en->peers, l) {
		links = MAX(links, list_entry(l, struct ad_peer, link)->lanes_up);
		look_at_peer(list_entry(l, struct ad_peer, link), now);
	}
	en->stats.links_per_peer = links;
	en->rdma_links = t.rdma;
	for (uint32_t i = 0; i < NO_RDMA_END; i++)
		en->no_rdma[i] = t.no_rdma[i];
	en->detours = t.detours;
	en->direct_bytes = t.moved.direct;
	en->copied_bytes = t.moved.copied;
}

/* ---- transport callbacks ---- */

/* From now on, and for as long as the peer is known, and with as many links as fill the rail. */
static void use_tcp(struct ad_lane *k, enum ad_no_rdma why)
{
	struct ad_peer *p = k->peer;
	uint64_t links = ad_rail_links(p->engine->agent, k->bits_per_s, p->server.engines);

	k->addr.kind = XPORT_TCP;
	k->no_rdma = why;
	for (uint32_t i = 1; i < links; i++) {
		struct ad_lane *more = lane_new(p, k->index + i * peer_rails(p));

		if (!more)
			return;
		more->addr = k->addr;
		more->bits_per_s = k->bits_per_s;
		more->no_rdma = why;
	}
}

/* Once for each peer, and again for a card that could not. */
static void tell_path(struct ad_lane *k)
{
	struct ad_peer *p = k->peer;

	if (k->addr.kind != XPORT_RDMA)
		return;
	if (!xport_takes_regions(k->ep)) {
		use_tcp(k, NO_RDMA_JOIN);	/* what is missing does not come back by itself */
		log_warn("rdma to server %s is not possible, using tcp, reason %s",
			 p->server.name, xport_path(k->ep));
	} else if (!p->path_told) {
		log_info("server %s engine %u is reached by rdma, %s", p->server.name,
			 p->server_engine, xport_path(k->ep));
		p->path_told = true;
	}
}

static void tell_no_shm(const struct ad_peer *p, const struct err *e)
{
	log_warn("server %s on this machine gets no shared memory, reason %s",
		 p->server.name, e->text);
}

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	struct ad_engine *en = ctx;
	struct ad_lane *k = xport_user(ep);
	struct ad_peer *p = k->peer;
	struct err e;

	(void)peer;
	if (xport_by_reference(ep) && ad_fence_keep(&p->process, ep, &e)) {
		tell_no_shm(p, &e);
		p->shm_failures = SHM_TRIES;
		xport_close(ep, CLOSE_LOCAL);
		return;
	}
	k->up = true;
	k->backoff_ms = BACKOFF_MIN_MS;
	en->stats.links++;
	k->unshown = 0;
	ad_lane_show(en, k);
	tell_path(k);
	if (p->lanes_up++ == 0) {
		p->up_at = loop_now();
		ag_peer_up(&en->core, &p->core, xport_by_reference(ep), p->up_at);
	}
}

static void *on_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct ad_engine *en = ctx;
	struct ad_lane *k = xport_user(ep);

	return ag_place(&en->core, &k->peer->core, f, en->now);
}

static void on_take(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct ad_engine *en = ctx;
	struct ad_lane *k = xport_user(ep);

	en->bytes_received += f->length;
	ag_take(&en->core, &k->peer->core, f, data, en->now);
}

static void on_unplaced(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct ad_engine *en = ctx;

	(void)ep;
	ag_unplace(&en->core, f);
}

/* By reference a result is where it belongs already; any address says "go on". */
static const void *on_resolve(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	(void)f;
	(void)ep;
	return ctx;
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct ad_engine *en = ctx;
	struct ad_lane *k = xport_user(ep);

	(void)data;
	en->bytes_received += f->length;
	ag_frame(&en->core, &k->peer->core, f, en->now);
}

static void on_unsent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct ad_engine *en = ctx;
	struct ad_lane *k = xport_user(ep);

	if (cookie)
		ag_sent(&en->core, &k->peer->core, (struct ag_seg *)(uintptr_t)cookie, len,
			en->now);
}

static void on_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	((struct ad_engine *)ctx)->bytes_sent += len;
	on_unsent(ctx, ep, cookie, len);
}

static void fall_back(struct ad_peer *p, struct ad_lane *k)
{
	log_warn("shared memory to server %s does not come up, using tcp", p->server.name);
	lane_free(k);
	make_lanes(p);
}

/*
 * A network that carries TCP and, again and again, not the card's packets.  Whichever
 * side's queue pair failed first: to the other one it looks like the end of the link.
 */
static void rdma_failed(struct ad_lane *k, mono_t now)
{
	if (!k->rdma_failures || now - k->rdma_failed > mono_ms(RDMA_TRIES_MS)) {
		k->rdma_failures = 0;
		k->rdma_failed = now;
	}
	if (++k->rdma_failures < RDMA_TRIES)
		return;
	use_tcp(k, NO_RDMA_ENDS);
	log_warn("rdma to server %s ended %u times within %u s, using tcp for this link",
		 k->peer->server.name, RDMA_TRIES, RDMA_TRIES_MS / 1000);
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	struct ad_engine *en = ctx;
	struct ad_lane *k = xport_user(ep);
	struct ad_peer *p = k->peer;
	bool was_up = k->up;

	en->detours_before += xport_detours(ep);
	add_moved(&en->moved_before, ep);
	k->ep = NULL;
	if (k->up) {
		en->stats.links--;
		if (--p->lanes_up)
			ag_peer_hurt(&en->core, &p->core);
		else
			ag_peer_down(&en->core, &p->core);
	} else if (k->addr.kind == XPORT_SHM) {
		p->shm_failures++;
	}
	k->up = false;
	if (k->going) {
		lane_free(k);
		peer_free_if_idle(p);
		return;
	}
	if (why != CLOSE_LOCAL) {
		ad_net_lost(en, &p->server, p->lanes_up, ep, why, e);
		p->troubled |= !p->lanes_up;
	}
	if (k->addr.kind == XPORT_SHM && p->shm_failures >= SHM_TRIES) {
		fall_back(p, k);
		return;
	}
	if (k->addr.kind == XPORT_RDMA && (was_up || why == CLOSE_QUEUE_PAIR))
		rdma_failed(k, loop_now());
	k->retry_at = loop_now() + mono_ms(k->backoff_ms);
	k->backoff_ms = MIN(2 * k->backoff_ms, BACKOFF_MAX_MS);
}

const struct xport_cb ad_link_callbacks = {
	.up = on_up,
	.place = on_place,
	.take = on_take,
	.unplaced = on_unplaced,
	.resolve = on_resolve,
	.deliver = on_deliver,
	.sent = on_sent,
	.unsent = on_unsent,
	.closed = on_closed,
};

/* ---- each turn ---- */

/*
 * Bytes that a lane has not brought to the server yet, with the kernel's part where NICs are
 * slow.
 */
static uint64_t lane_bytes(const struct ad_lane *k)
{
	return xport_queued_bytes(k->ep) + k->backlog;
}

static uint64_t look_at_lanes(const struct ad_peer *p)
{
	uint64_t bytes = 0;

	list_for_each(&p->lanes, l) {
		struct ad_lane *k = list_entry(l, struct ad_lane, link);

		k->backlog = 0;
		if (!k->up)
			continue;
		k->backlog = xport_backlog_bytes(k->ep);
		bytes += lane_bytes(k);
	}
	return bytes;
}

/* The one that will have room first: so every card carries as much as it can. */
static struct ad_lane *best_lane(const struct ad_peer *p)
{
	struct ad_lane *best = NULL;
	double least = 0;

	list_for_each(&p->lanes, l) {
		struct ad_lane *k = list_entry(l, struct ad_lane, link);
		double wait;

		if (!k->up || !xport_takes(k->ep))
			continue;
		wait = (double)(lane_bytes(k) + FRAME_BYTES) / (double)k->bits_per_s;
		if (!best || wait < least) {
			best = k;
			least = wait;
		}
	}
	return best;
}

/* A frame that no lane takes is lost, like one that a lane loses: asked after later. */
static void send_one(struct ad_engine *en, const struct ag_send *s, mono_t now)
{
	struct ad_lane *k = best_lane(s->peer->user);

	if (!k || xport_send(k->ep, &s->frame, s->data, (uintptr_t)s->seg))
		if (s->seg)
			ag_sent(&en->core, s->peer, s->seg, s->frame.length, now);
	s->peer->busy = !best_lane(s->peer->user);
}

/* The core may hand out what the card has room for. */
static void make_flight(struct ad_engine *en)
{
	uint64_t bytes = 0, each;
	uint32_t peers = 0;

	if (en->flight_limit == UINT64_MAX)
		return;
	list_for_each(&en->peers, l) {
		const struct ad_peer *p = list_entry(l, struct ad_peer, link);

		peers += p->server.weight && !p->core.by_ref;
	}
	each = flight_peer_bytes(en->flight_limit, peers);
	list_for_each(&en->peers, l) {
		struct ad_peer *p = list_entry(l, struct ad_peer, link);
		uint64_t mine = look_at_lanes(p);

		p->core.tx_limit = p->core.tx_bytes + flight_room(each, mine);
		bytes += mine;
	}
	en->core.tx_limit = en->core.tx_bytes + flight_room(en->flight_limit, bytes);
}

bool ad_links_full(const struct ad_engine *en)
{
	return en->flight_limit != UINT64_MAX && ag_waits(&en->core);
}

void ad_links_turn(struct ad_engine *en, mono_t now)
{
	struct ag_send s;

	make_flight(en);

	list_for_each(&en->peers, lp) {
		struct ad_peer *p = list_entry(lp, struct ad_peer, link);

		if (p->jobs && list_empty(&p->lanes))
			make_lanes(p);	/* there was no memory for any */
		list_for_each_safe(&p->lanes, l, next) {
			struct ad_lane *k = list_entry(l, struct ad_lane, link);

			if (k->retry_at <= now && !k->ep && !k->going &&
			    lane_open(k, now) == TALLY_EAUTH) {
				p->shm_failures = SHM_TRIES;
				fall_back(p, k);
				continue;
			}
			ad_lane_show(en, k);
		}
		p->core.busy = !best_lane(p);
	}
	while (ag_next(&en->core, now, &s))
		send_one(en, &s, now);
}

mono_t ad_links_next(const struct ad_engine *en)
{
	mono_t next = MONO_NEVER;

	list_for_each(&en->peers, lp) {
		const struct ad_peer *p = list_entry(lp, struct ad_peer, link);

		list_for_each(&p->lanes, l)
			next = MIN(next, list_entry(l, struct ad_lane, link)->retry_at);
	}
	return next;
}
