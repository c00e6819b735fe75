// SPDX-License-Identifier: Apache-2.0
/*
 * One data thread of a server: links in, core in the middle, links out.
 *
 * A link is adopted with its hello and joins the peer it speaks for (one engine
 * of one agent); several links of a peer share its queue, each taking a frame
 * when it has room.  An agent that was started again is another process under the
 * same number: its links wait until the last of the one before has ended.
 *
 * Letting go: a stopped job or a forgotten tensor goes back to the control
 * thread as soon as no link borrows its memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/net/flight.h"
#include "common/rt/log.h"
#include "server/server_peer.h"

#define LINK_QUEUE_BYTES (1u << 20)	/* handed to one link ahead of the kernel */
#define SWEEP_MS	500u		/* memory that is not shown any more: still in use? */

/* ---- what cards may read and agents may write ---- */

/* By RDMA an agent's engine writes into its own part of its window, and nowhere else. */
static void show_window(const struct sv_engine *en, struct sv_link *k, const struct srv_job *c)
{
	const struct sv_job *j = c->user;
	int rc = 0;

	if (!k->up || !xport_takes_regions(k->ep) || !j->windows_region || c->stopped)
		return;
	for (uint32_t w = 0; w < j->n; w++)
		if (j->worker[w].node == k->peer->core.node)
			rc = xport_show(k->ep, j->id, 0, j->windows_region,
					((uint64_t)w * j->nengines + en->index) * j->window_bytes,
					j->window_bytes);
	if (rc)
		log_warn("agent node %u cannot write into its window by rdma and uses tcp, "
			 "reason %s", k->peer->core.node, err_name(rc));
}

static void each_link(struct sv_engine *en, const struct srv_job *c,
		      void (*f)(const struct sv_engine *, struct sv_link *, const struct srv_job *))
{
	list_for_each(&en->core.peers, lp)
		list_for_each(&sv_peer_of(lp)->links, l)
			f(en, list_entry(l, struct sv_link, link), c);
}

static void hide_window(const struct sv_engine *en, struct sv_link *k, const struct srv_job *c)
{
	(void)en;
	xport_hide(k->ep, c->id);
}

static bool window_shown(const struct sv_engine *en, uint32_t job)
{
	list_for_each(&en->core.peers, lp)
		list_for_each(&sv_peer_of(lp)->links, l)
			if (xport_shows(list_entry(l, struct sv_link, link)->ep, job))
				return true;
	return false;
}

static void lend_slots(struct sv_engine *en, struct sv_slots *m)
{
	if (m && m->region && m->lent[en->index]++ == 0)
		(void)xport_lend(en->group, m->region);	/* or they go over TCP */
}

static void unlend_slots(struct sv_engine *en, struct sv_slots *m)
{
	if (m && m->region && --m->lent[en->index] == 0)
		xport_unlend(en->group, m->region);
}

/* ---- transport callbacks ---- */

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	struct sv_engine *en = ctx;
	struct sv_link *k = xport_user(ep);

	(void)peer;
	k->up = true;
	k->up_at = loop_now();
	en->stats.links++;
	list_for_each(&en->core.jobs, l)
		show_window(en, k, list_entry(l, struct srv_job, link));
}

static void *on_place(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct sv_engine *en = ctx;
	struct sv_link *k = xport_user(ep);

	return srv_place(&en->core, &k->peer->core, f);
}

static void on_take(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct sv_engine *en = ctx;
	struct sv_link *k = xport_user(ep);

	k->peer->heard = true;
	en->bytes_received += f->length;
	srv_take(&en->core, &k->peer->core, f, data);
}

static void on_unplaced(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	struct sv_engine *en = ctx;
	struct sv_link *k = xport_user(ep);

	srv_unplace(&en->core, &k->peer->core, f);
}

static const void *on_resolve(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	const struct sv_link *k = xport_user(ep);

	(void)ctx;
	return sv_slab_at(k->peer, f->slot, f->job, f->length);
}

/* The result of a segment is as long as the segment, which the core knows; a
 * place with room for the longest one is asked for only when f has no length. */
static void *result_place(struct sv_engine *en, const struct sv_link *k, const struct frame *f)
{
	const struct srv_tensor *t;

	if (!xport_by_reference(k->ep) || f->rslot == SLOT_NONE ||
	    !sv_slab_writable(k->peer, f->rslot))
		return NULL;
	t = srv_tensor_find(&en->core, f->job, f->tensor, f->chunk, f->epoch);
	if (!t || f->offset >= geom_chunk_len(&t->geom, f->chunk))
		return NULL;
	return sv_slab_at(k->peer, f->rslot, f->job, geom_seg_len(&t->geom, f->chunk, f->offset));
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	struct sv_engine *en = ctx;
	struct sv_link *k = xport_user(ep);

	k->peer->heard = true;
	en->bytes_received += f->length;
	srv_frame(&en->core, &k->peer->core, f, data, result_place(en, k, f));
}

static void on_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct sv_engine *en = ctx;

	(void)ep;
	en->bytes_sent += len;
	if (cookie)
		srv_sent(&en->core, (struct srv_in *)(uintptr_t)cookie);
}

static void on_unsent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	struct sv_engine *en = ctx;

	(void)ep;
	(void)len;
	if (cookie)
		srv_sent(&en->core, (struct srv_in *)(uintptr_t)cookie);
}

static void on_slab(void *ctx, struct xport_ep *ep, uint32_t job, uint32_t id, int fd,
		    uint64_t bytes)
{
	const struct sv_link *k = xport_user(ep);

	if (!sv_slab_take(ctx, k->peer, job, id, fd, bytes))
		xport_close(ep, CLOSE_RESOURCE);	/* the next link is shown all of them */
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	struct sv_engine *en = ctx;
	struct sv_link *k = xport_user(ep);
	struct sv_peer *p = k->peer;

	sv_net_lost(en, p, ep, why, e);
	if (k->up)
		en->stats.links--;
	list_del(&k->link);
	free(k);
	if (list_empty(&p->links))
		srv_peer_lost(&en->core, &p->core);
	sv_peer_put(en, p);
}

static const struct xport_cb callbacks = {
	.up = on_up,
	.place = on_place,
	.take = on_take,
	.unplaced = on_unplaced,
	.resolve = on_resolve,
	.deliver = on_deliver,
	.sent = on_sent,
	.unsent = on_unsent,
	.slab = on_slab,
	.closed = on_closed,
};

/* ---- out ---- */

static bool has_work(const struct sv_peer *p)
{
	return srv_due(&p->core).turn != SRV_NOTHING;
}

/*
 * Bytes that a link has not brought to the agent yet, with the kernel's part where NICs are
 * slow.
 */
static uint64_t link_bytes(const struct sv_link *k)
{
	return xport_queued_bytes(k->ep) + k->backlog;
}

/*
 * A by-reference link before any other, then the one with the least before it: a
 * faster card empties its links faster, so it gets as much more.
 */
static struct sv_link *best_link(const struct sv_peer *p)
{
	struct sv_link *best = NULL;
	uint64_t least = LINK_QUEUE_BYTES;

	list_for_each(&p->links, l) {
		struct sv_link *k = list_entry(l, struct sv_link, link);
		uint64_t bytes;

		if (!k->up || !xport_takes(k->ep))
			continue;
		if (xport_by_reference(k->ep))
			return k;
		bytes = link_bytes(k);
		if (bytes < least) {
			best = k;
			least = bytes;
		}
	}
	return best;
}

/* The link that takes p's next frame now; NULL: none, or there is no frame. */
static struct sv_link *link_for(const struct sv_peer *p, uint64_t room)
{
	struct sv_link *k = has_work(p) ? best_link(p) : NULL;

	return k && (xport_by_reference(k->ep) || (room && p->room)) ? k : NULL;
}

static void send_one(struct sv_engine *en, struct sv_peer *p, struct sv_link *k, uint64_t *room)
{
	struct srv_send s;

	if (!srv_next(&en->core, &p->core, xport_by_reference(k->ep), &s))
		return;
	if (s.in) {
		*room = flight_room(*room, s.frame.length);
		p->room = flight_room(p->room, s.frame.length);
	}
	if (xport_send(k->ep, &s.frame, s.data, (uintptr_t)s.in) && s.in)
		srv_sent(&en->core, s.in);	/* the agent will ask for it */
}

static uint64_t look_at_links(const struct sv_engine *en, struct sv_peer *p)
{
	uint64_t bytes = 0;

	list_for_each(&p->links, l) {
		struct sv_link *k = list_entry(l, struct sv_link, link);

		k->backlog = 0;
		if (!k->up || en->flight_limit == UINT64_MAX)
			continue;
		k->backlog = xport_backlog_bytes(k->ep);
		bytes += link_bytes(k);
	}
	return bytes;
}

/* Bytes that the NICs take on top of what is under way, all together and each peer. */
static uint64_t room_for_all(struct sv_engine *en)
{
	uint64_t bytes = 0, limit = en->flight_limit, each;
	uint32_t peers = 0;

	list_for_each(&en->core.peers, l)
		peers++;
	each = flight_peer_bytes(limit, peers);
	list_for_each(&en->core.peers, l) {
		struct sv_peer *p = sv_peer_of(l);
		uint64_t mine = look_at_links(en, p);

		p->room = each == UINT64_MAX ? each : flight_room(each, mine);
		bytes += mine;
	}
	return limit == UINT64_MAX ? limit : flight_room(limit, bytes);
}

/* Of the frames that some link takes the one that comes first. */
static struct srv_due first_due(const struct sv_engine *en, uint64_t room)
{
	struct srv_due first = { .turn = SRV_NOTHING };

	list_for_each(&en->core.peers, l) {
		const struct sv_peer *p = sv_peer_of(l);
		struct srv_due due = srv_due(&p->core);

		if (link_for(p, room) && srv_due_before(&due, &first))
			first = due;
	}
	return first;
}

/*
 * Frames for all peers, until no link takes one; true: more waits.  Each pass serves
 * those that are furthest behind in one job, so that all have a result at about the same
 * time: an agent that lagged a little more with every segment would end long after the
 * others, and the cards would idle meanwhile.
 */
static bool pump(struct sv_engine *en)
{
	uint64_t room = room_for_all(en);
	bool waits = false;
	struct srv_due first;

	do {
		first = first_due(en, room);
		list_for_each(&en->core.peers, l) {
			struct sv_peer *p = sv_peer_of(l);
			struct srv_due due = srv_due(&p->core);
			struct sv_link *k = due.job == first.job && due.turn <= first.turn ?
					    link_for(p, room) : NULL;

			if (k)
				send_one(en, p, k, &room);
		}
	} while (first.turn != SRV_NOTHING);
	list_for_each(&en->core.peers, l)
		waits |= has_work(sv_peer_of(l));
	return waits;
}

/* ---- mail ---- */

/* Here and not at the start: the group is this thread's from its first breath. */
static void open_group(struct sv_engine *en)
{
	struct err e;

	if (xport_group_new(&en->group, engine_epfd(en->thread), &callbacks, en, &e)) {
		log_error("server engine %u cannot start: %s", en->index, e.text);
		exit(1);
	}
	xport_set_frames_per_write(en->group, (uint32_t)en->server->opt.daemon.frames_per_write);
}

/* A link of another process of its agent waits until those of the one before have ended. */
struct sv_waiting {
	struct list link;		/* in engine->waiting */
	struct sv_adopt adopt;
};

static bool wait_for_old(struct sv_engine *en, const struct sv_adopt *a)
{
	struct sv_waiting *w = calloc(1, sizeof(*w));

	if (!w)
		return false;
	w->adopt = *a;
	list_add(&en->waiting, &w->link);
	return true;
}

static void waiting_drop(struct sv_waiting *w)
{
	list_del(&w->link);
	close(w->adopt.fd);
	free(w);
}

static void adopt(struct sv_engine *en, const struct sv_adopt *a)
{
	struct sv_peer *p = sv_peer_get(en, a->hello.job, a->hello.chunk);
	struct sv_link *k;
	struct frame welcome = a->hello;
	struct err e;

	if (p && !sv_peer_is(en, p, a->hello.round) && wait_for_old(en, a))
		return;
	k = p && p->start == a->hello.round ? calloc(1, sizeof(*k)) : NULL;
	welcome.type = FRAME_WELCOME;
	welcome.slot = welcome.rslot = welcome.offset = welcome.round = 0;
	welcome.aux = FRAME_VERSION;
	if (k) {
		k->peer = p;
		list_add(&p->links, &k->link);
		if (!xport_adopt(en->group, a->fd, &a->hello, &welcome, k, loop_now(), &k->ep, &e))
			return;
		log_warn("link from agent node %u refused, reason %s", a->hello.job, e.text);
		list_del(&k->link);
	}
	close(a->fd);
	free(k);
	if (p)
		sv_peer_put(en, p);
}

static void adopt_waiting(struct sv_engine *en)
{
	struct list now;

	list_init(&now);
	while (!list_empty(&en->waiting)) {
		struct list *l = en->waiting.next;

		list_del(l);
		list_add(&now, l);
	}
	while (!list_empty(&now)) {
		struct sv_waiting *w = list_first(&now, struct sv_waiting, link);

		list_del(&w->link);
		adopt(en, &w->adopt);
		free(w);
	}
}

/* All, or those of one agent. */
static void cut_links(struct sv_engine *en, bool all, uint32_t node)
{
	list_for_each_safe(&en->waiting, l, next) {
		struct sv_waiting *w = list_entry(l, struct sv_waiting, link);

		if (all || w->adopt.hello.job == node)
			waiting_drop(w);
	}
	list_for_each(&en->core.peers, l) {
		struct sv_peer *p = sv_peer_of(l);

		if (all || p->core.node == node)
			sv_peer_cut(p);
	}
}

uint64_t sv_card_flight(const struct server *s)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < s->naddrs; i++)
		bits += s->addr[i].bits_per_s;
	return flight_part(bits, s->nengines);
}

static void job_start(struct sv_engine *en, struct sv_job *j)
{
	struct srv_job_desc d = {
		.id = j->id,
		.n = j->n,
		.world = j->world,
		.epoch = (uint32_t)j->epoch,
		.user = j->user,
		.engines = j->agent_engines,
		.chunk_bytes = j->chunk_bytes,
		.seg_bytes = j->seg_bytes,
		.window_bytes = j->window_bytes,
		.part_bytes = j->part_bytes,
	};
	struct srv_job *c = srv_job_start(&en->core, j->piece[en->index].mem, &d);

	for (uint32_t w = 0; w < j->n; w++) {
		c->worker[w].node = j->worker[w].node;
		c->worker[w].engines = j->worker[w].engines;
		c->worker[w].window =
			j->windows + ((uint64_t)w * j->nengines + en->index) * j->window_bytes;
	}
	if (j->ngone)
		srv_job_shrink(&en->core, c, j->lost, j->world - j->ngone);
	j->piece[en->index].core = c;
	c->user = j;
	srv_begin_with(&en->core, j->worker[j->me % j->n].node);
	en->flight_limit = sv_card_flight(en->server);
	srv_turns_credit(&en->core, flight_credit(en->flight_limit));
	each_link(en, c, show_window);
}

static void tell_control(struct sv_engine *en, enum sv_mail type, void *p)
{
	outbox_post(&en->out, type, &p, sizeof(p));
}

static void add_tensor(struct sv_engine *en, struct srv_job *j, struct sv_tensor_piece *p)
{
	lend_slots(en, p->place.in);
	p->core = srv_tensor_add(&en->core, j, p->mem, sv_place_at(&p->place), &p->desc);
}

static void batch_part(struct sv_engine *en, struct sv_batch *b, uint32_t i)
{
	struct sv_tensor_piece *p = &b->part[i]->piece[en->index];

	if (b->kind == BATCH_ADD || (b->kind == BATCH_EPOCH && !b->leaving[i]))
		add_tensor(en, b->job->piece[en->index].core, p);
	else if (!p->core)
		return;			/* all of it has left */
	else if (b->kind == BATCH_EPOCH)
		srv_tensor_leave(&en->core, p->core, b->leaving[i]);
	else if (b->kind == BATCH_LEFT)
		srv_tensor_settled(&en->core, p->core);
	else
		srv_tensor_remove(&en->core, p->core);
}

/* Machines that come back show slabs of their own, by numbers that were others' before. */
static void forget_slabs(struct sv_engine *en, const struct srv_job *c, const bool *lost)
{
	list_for_each(&en->core.peers, l) {
		struct sv_peer *p = sv_peer_of(l);

		for (uint32_t w = 0; w < c->n; w++)
			if (c->worker[w].node == p->core.node && bits_test(c->out, w) && !lost[w])
				sv_slabs_retire(en, p, c->id);
	}
}

static void batch(struct sv_engine *en, struct sv_batch *b)
{
	struct srv_job *c = b->job->piece[en->index].core;

	if (b->lost) {
		forget_slabs(en, c, b->lost);
		srv_job_shrink(&en->core, c, b->lost, b->world);
	}
	for (uint32_t i = 0; i < b->n; i++)
		batch_part(en, b, i);
	if (b->kind == BATCH_FORGET || b->kind == BATCH_LEFT)
		list_add(&en->forgetting, &b->link[en->index]);
	else
		tell_control(en, SV_BATCH_READY, b);
}

static void say_heard(struct sv_engine *en, uint32_t node)
{
	bool heard = false;

	list_for_each(&en->core.peers, l) {
		struct sv_peer *p = sv_peer_of(l);

		if (p->core.node != node)
			continue;
		heard |= p->heard;
		p->heard = false;
	}
	if (heard)
		outbox_post(&en->out, SV_HEARD, &node, sizeof(node));
}

static void on_mail(void *ctx, const struct mail *m, bool stopping)
{
	struct sv_engine *en = ctx;
	struct sv_adopt a;
	uint32_t node;
	void *p;

	if (m->type == SV_ADOPT) {
		memcpy(&a, m->body, sizeof(a));
		if (stopping)
			close(a.fd);
		else
			adopt(en, &a);
		return;
	}
	if (m->type == SV_OPEN) {
		open_group(en);
		return;
	}
	if (m->type == SV_CUT) {
		cut_links(en, true, 0);
		return;
	}
	if (m->type == SV_CUT_AGENT) {
		memcpy(&node, m->body, sizeof(node));
		cut_links(en, false, node);
		return;
	}
	if (m->type == SV_HEARD) {
		memcpy(&node, m->body, sizeof(node));
		say_heard(en, node);
		return;
	}
	memcpy(&p, m->body, sizeof(p));
	if (m->type == SV_JOB_START) {
		job_start(en, p);
		tell_control(en, SV_JOB_READY, p);
	} else if (m->type == SV_JOB_STOP) {
		struct sv_job_piece *jp = &((struct sv_job *)p)->piece[en->index];

		srv_job_stop(&en->core, jp->core);
		each_link(en, jp->core, hide_window);
		list_add(&en->stopping, &jp->link);
	} else {
		batch(en, p);
	}
}

/* ---- letting go ---- */

/* The core has let go of the engine's piece of the part, as far as the batch wants it. */
static bool piece_let_go(struct sv_engine *en, const struct sv_batch *b, struct sv_tensor_piece *p)
{
	if (!p->core)
		return true;
	if (b->kind == BATCH_LEFT) {
		if (!srv_tensor_left(&en->core, p->core))
			return false;
		if (!srv_tensor_empty(p->core))
			return true;
		srv_tensor_remove(&en->core, p->core);
	}
	if (p->core->borrowed)
		return false;
	srv_tensor_forget(&en->core, p->core);
	unlend_slots(en, p->place.in);
	p->core = NULL;
	return true;
}

static bool batch_let_go(struct sv_engine *en, struct sv_batch *b)
{
	bool all = true;

	for (uint32_t i = 0; i < b->n; i++)
		all &= piece_let_go(en, b, &b->part[i]->piece[en->index]);
	return all;
}

static void unlend_job(struct sv_engine *en, struct sv_job *j)
{
	list_for_each(&j->slots, l) {
		struct sv_slots *m = list_entry(l, struct sv_slots, link);

		if (m->region && m->lent[en->index])
			xport_unlend(en->group, m->region);
		m->lent[en->index] = 0;
	}
}

static void let_go(struct sv_engine *en)
{
	list_for_each_safe(&en->forgetting, l, next) {
		struct sv_batch *b = container_of(l - en->index, struct sv_batch, link);

		if (!batch_let_go(en, b))
			continue;
		list_del(l);
		tell_control(en, SV_BATCH_READY, b);
	}
	list_for_each_safe(&en->stopping, l, next) {
		struct sv_job_piece *jp = list_entry(l, struct sv_job_piece, link);
		struct sv_job *j = container_of(jp - en->index, struct sv_job, piece);

		if (srv_job_borrowed(jp->core) || window_shown(en, j->id))
			continue;
		list_del(l);
		list_for_each_safe(&jp->core->tensors, lt, after)
			srv_tensor_forget(&en->core, list_entry(lt, struct srv_tensor, link));
		unlend_job(en, j);
		srv_job_forget(&en->core, jp->core);
		sv_slabs_drop_job(en, j->id);
		tell_control(en, SV_JOB_FREE, j);
	}
}

/* ---- the thread ---- */

static void on_event(void *ctx, void *data_ptr, uint32_t events)
{
	struct sv_engine *en = ctx;

	(void)xport_event(en->group, data_ptr, events);
}

static mono_t sweep(struct sv_engine *en, mono_t now)
{
	if (now >= en->next_sweep) {
		sv_slabs_sweep(en);
		en->next_sweep = now + mono_ms(SWEEP_MS);
	}
	return en->next_sweep;
}

static mono_t on_turn(void *ctx, mono_t now)
{
	struct sv_engine *en = ctx;
	mono_t next, links;
	bool full;

	if (!en->group)
		return MONO_NEVER;
	pump(en);
	xport_poll(en->group, now);
	full = pump(en);		/* what was sent has made room */
	links = xport_poll(en->group, now);
	next = full ? MIN(links, now + mono_ms(FLIGHT_LOOK_MS)) : links;
	if (!list_empty(&en->waiting)) {
		adopt_waiting(en);
		next = MIN(next, now + mono_ms(1));
	}
	if (!list_empty(&en->stopping) || !list_empty(&en->forgetting))
		let_go(en);
	if (en->nretired)
		next = MIN(next, sweep(en, now));
	if (!outbox_flush(&en->out))
		next = MIN(next, now + mono_ms(1));
	sv_net_look(en, now);
	sv_stats_turn(en, now);
	return next;
}

static const struct engine_cb engine_callbacks = {
	.mail = on_mail,
	.event = on_event,
	.turn = on_turn,
};

int sv_engine_start(struct server *s, uint32_t index, int cpu, struct err *e)
{
	struct sv_engine *en = calloc(1, sizeof(*en));
	int rc;

	if (!en)
		return err_set(e, TALLY_ENOMEM, "out of memory for engine %u", index);
	en->server = s;
	en->index = index;
	srv_init(&en->core);
	list_init(&en->stopping);
	list_init(&en->forgetting);
	list_init(&en->waiting);
	outbox_init(&en->out, s->mail, index);
	rc = engine_start(&en->thread, "server", index, cpu, 0, &engine_callbacks, en, e);
	if (rc) {
		free(en);
		return rc;
	}
	s->engine[index] = en;
	sv_engine_tell(en, SV_OPEN, NULL, 0);
	return 0;
}

void sv_engine_tell(struct sv_engine *en, enum sv_mail type, const void *body, size_t len)
{
	while (engine_post(en->thread, ENGINE_CONTROL, type, body, len))
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* After engine_stop() everything of the engine belongs to the caller. */
void sv_engine_stop(struct sv_engine *en)
{
	engine_stop(en->thread);
	if (en->group)
		xport_group_free(en->group);
	en->group = NULL;
	while (!list_empty(&en->core.peers)) {
		struct sv_peer *p = sv_peer_of(en->core.peers.next);

		sv_peer_free(en, p);
	}
	while (!list_empty(&en->waiting))
		waiting_drop(list_first(&en->waiting, struct sv_waiting, link));
	outbox_fini(&en->out);
	free(en);
}
