// SPDX-License-Identifier: Apache-2.0
/*
 * The network's story: a frame is queued on an open lane, transmitted (its bytes
 * are read and the sender gets them back), arrives (the receiver places it) and
 * lands.  Every frame has exactly one event under way; whoever kills it marks it
 * DEAD, and that event frees it.
 *
 * Faults: a frame is lost, comes twice, comes late or changed (a stale or foreign
 * one: the receiver must turn it away).  A lane is cut: each end notices at a
 * time of its own, a new lane may be open before the other end knows.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

/* ---- frames ---- */

static uint32_t sender_of(const struct sim_msg *m)
{
	return m->dir == TO_SERVER ? sim_agent_proc(m->on->agent) : sim_server_proc(m->on->server);
}

static uint32_t receiver_of(const struct sim_msg *m)
{
	return m->dir == TO_AGENT ? sim_agent_proc(m->on->agent) : sim_server_proc(m->on->server);
}

static void msg_event(struct sim *s, struct sim_msg *m, mono_t delay, enum sim_event_type type)
{
	uint32_t proc = type == EV_TRANSMIT ? sender_of(m) : receiver_of(m);

	sim_at(s, delay, &(struct sim_event){ .type = type, .proc = proc, .msg = m });
}

static struct sim_msg *msg_new(struct sim *s, struct sim_link *l, uint8_t dir, uint32_t lane)
{
	struct sim_msg *m = calloc(1, sizeof(*m));

	ASSERT(m);
	m->on = l;
	m->dir = dir;
	m->lane = lane;
	m->gen = l->lane[lane].gen;
	list_add(&l->msgs, &m->link);
	s->msgs++;
	return m;
}

static void msg_free(struct sim *s, struct sim_msg *m)
{
	list_del(&m->link);
	free(m->bytes);
	free(m);
	s->msgs--;
}

static bool end_open(const struct sim_link *l, uint32_t lane, uint8_t dir)
{
	return l->lane[lane].open[dir == TO_SERVER];
}

/* An open lane of the sender's end; SIM_LANES: none. */
static uint32_t pick_lane(struct sim *s, const struct sim_link *l, uint8_t dir)
{
	uint32_t open[SIM_LANES], n = 0;

	for (uint32_t i = 0; i < SIM_LANES; i++)
		if (end_open(l, i, dir))
			open[n++] = i;
	return n ? open[sim_below(s, n)] : SIM_LANES;
}

bool sim_send(struct sim *s, struct sim_link *l, uint8_t dir, const struct frame *f,
	      const void *data, void *tensor)
{
	uint32_t lane = pick_lane(s, l, dir);
	struct sim_msg *m;

	if (lane == SIM_LANES)
		return false;
	m = msg_new(s, l, dir, lane);
	m->frame = *f;
	m->from = data;
	m->tensor = tensor;
	l->queued[dir]++;
	msg_event(s, m, (mono_t)sim_below(s, 200000), EV_TRANSMIT);
	return true;
}

static void give_back(struct sim *s, struct sim_msg *m)
{
	m->on->queued[m->dir]--;
	if (!m->from)
		return;
	if (m->dir == TO_SERVER)
		ag_sent(&s->agent[m->on->agent]->core, &m->on->ag, m->tensor, m->frame.length);
	else
		srv_sent(m->tensor);
	m->from = NULL;
	m->tensor = NULL;
}

static mono_t flight_time(struct sim *s, struct sim_msg *m)
{
	struct sim_lane *lane = &m->on->lane[m->lane];
	mono_t d = s->p.latency + (mono_t)sim_below(s, (uint64_t)s->p.jitter);

	if (sim_faulty(s) && sim_chance(s, s->p.spike))
		d += (mono_t)sim_below(s, NS_PER_SEC);
	if (!s->p.reorder) {
		d = MAX(d, lane->last[m->dir] - s->now);
		lane->last[m->dir] = s->now + d;
	}
	return d;
}

static struct sim_msg *msg_clone(struct sim *s, const struct sim_msg *m)
{
	struct sim_msg *c = msg_new(s, m->on, m->dir, m->lane);

	c->frame = m->frame;
	c->state = MSG_WIRE;
	c->copied = true;
	if (m->bytes) {
		c->bytes = malloc(m->frame.length);
		ASSERT(c->bytes);
		memcpy(c->bytes, m->bytes, m->frame.length);
	}
	return c;
}

/* One field from another time or place, so that nobody may take it for good. */
static void forge(struct sim *s, struct sim_msg *m)
{
	struct frame *f = &m->frame;
	bool sized = f->type == FRAME_PUSH || f->type == FRAME_RESULT;

	m->forged = true;
	switch (sim_below(s, sized ? 9 : 7)) {
	case 0: f->job++; break;
	case 1: f->epoch--; break;
	case 2: f->tensor += 1000; break;
	case 3: f->chunk += 1u << 20; break;
	case 4: f->offset += 1; break;
	case 5: f->round += 7; break;
	case 6:
		if (m->dir == TO_AGENT)
			f->job++;
		else	/* another machine's, or nobody's */
			f->worker = (uint16_t)((f->worker + 1) % (sim_below(s, 2) ? s->p.n : 9999));
		break;
	case 7: f->dtype = f->dtype == DTYPE_F32 ? DTYPE_I64 : DTYPE_F32; break;
	case 8: f->length = f->length == 4096 ? 2048 : 4096; break;
	}
	/* Whatever its length says now, there are that many bytes. */
	free(m->bytes);
	m->bytes = frame_has_payload(f) ? calloc(1, f->length) : NULL;
}

static void faults_of(struct sim *s, struct sim_msg *m)
{
	struct sim_msg *c;

	if (sim_chance(s, s->p.dup)) {
		c = msg_clone(s, m);
		sim_totals.repeated++;
		msg_event(s, c, flight_time(s, c) + (mono_t)sim_below(s, 3000000), EV_ARRIVE);
	}
	if (sim_chance(s, s->p.forge)) {
		c = msg_clone(s, m);
		forge(s, c);
		sim_totals.forged++;
		msg_event(s, c, flight_time(s, c), EV_ARRIVE);
	}
}

static void transmit(struct sim *s, struct sim_msg *m)
{
	if (m->from) {
		m->bytes = malloc(m->frame.length);
		ASSERT(m->bytes);
		memcpy(m->bytes, m->from, m->frame.length);
	}
	give_back(s, m);
	m->state = MSG_WIRE;
	if (sim_faulty(s)) {
		faults_of(s, m);
		if (sim_chance(s, s->p.loss)) {
			sim_totals.lost++;
			msg_free(s, m);
			return;
		}
	}
	msg_event(s, m, flight_time(s, m), EV_ARRIVE);
}

/* ---- at the receiver ---- */

static void deliver(struct sim *s, struct sim_msg *m, const void *data)
{
	struct sim_agent *a = s->agent[m->on->agent];
	struct sim_server *v = s->server[m->on->server];
	const struct frame *f = &m->frame;
	void *result_at = NULL;

	if (m->dir == TO_AGENT) {
		ag_frame(&a->core, &m->on->ag, f, s->now);
		return;
	}
	if (m->on->by_ref) {
		sim_totals.by_ref_frames++;
		/* The shell knows the segment's length; a forged key has no place. */
		if (!m->forged)
			result_at = sim_resolve(a, f->rslot, 1);
		if (f->type == FRAME_PUSH && !(f->flags & FRAME_NODATA))
			data = sim_resolve(a, f->slot, f->length);
		if (f->type == FRAME_PUSH && !(f->flags & FRAME_NODATA) && !data)
			return;
	}
	srv_frame(&v->core, &m->on->srv, f, data, result_at);
}

static void arrive(struct sim *s, struct sim_msg *m)
{
	struct sim_lane *lane = &m->on->lane[m->lane];
	char text[200];

	if (lane->gen != m->gen || lane->cut || !end_open(m->on, m->lane, !m->dir)) {
		msg_free(s, m);
		return;
	}
	sim_trace(s, "a%u %s s%u lane %u%s%s  %s", m->on->agent, m->dir == TO_SERVER ? "->" : "<-",
		  m->on->server, m->lane, m->copied ? " again" : "", m->forged ? " forged" : "",
		  frame_text(&m->frame, text, sizeof(text)));
	if (!frame_has_payload(&m->frame)) {
		deliver(s, m, NULL);
		msg_free(s, m);
		return;
	}
	m->to = m->dir == TO_SERVER ?
		srv_place(&s->server[m->on->server]->core, &m->on->srv, &m->frame) :
		ag_place(&s->agent[m->on->agent]->core, &m->on->ag, &m->frame);
	if (m->to && m->forged)
		sim_fail(s, "a frame that cannot be was given a place: %s",
			 frame_text(&m->frame, text, sizeof(text)));
	if (!m->to) {
		msg_free(s, m);
		return;
	}
	m->state = MSG_LANDING;
	msg_event(s, m, (mono_t)sim_below(s, sim_chance(s, 30) ? 300000000 : 300000), EV_LAND);
}

static void land(struct sim *s, struct sim_msg *m)
{
	memcpy(m->to, m->bytes, m->frame.length);
	deliver(s, m, m->to);
	msg_free(s, m);
}

/* ---- lanes ---- */

static bool any_open(const struct sim_link *l, uint32_t end)
{
	for (uint32_t i = 0; i < SIM_LANES; i++)
		if (l->lane[i].open[end])
			return true;
	return false;
}

/* The lane's frames that this end sends are its own again, landings end half-way. */
static void end_closed(struct sim *s, struct sim_link *l, uint32_t lane, uint32_t end)
{
	list_for_each(&l->msgs, p) {
		struct sim_msg *m = list_entry(p, struct sim_msg, link);
		bool mine = m->dir == (end ? TO_SERVER : TO_AGENT);

		if (m->lane != lane || m->gen != l->lane[lane].gen)
			continue;
		if (m->state == MSG_QUEUED && mine) {
			give_back(s, m);
			m->state = MSG_DEAD;
		} else if (m->state == MSG_LANDING && !mine) {
			memcpy(m->to, m->bytes, sim_below(s, m->frame.length + 1));
			sim_totals.torn++;
			if (m->dir == TO_SERVER)
				srv_unplace(&s->server[l->server]->core, &l->srv, &m->frame);
			else
				ag_unplace(&s->agent[l->agent]->core, &m->frame);
			m->state = MSG_DEAD;
		}
	}
	l->lane[lane].open[end] = false;
}

static void closed(struct sim *s, struct sim_link *l, uint32_t lane, uint32_t end)
{
	struct ag_core *c = &s->agent[l->agent]->core;

	if (!l->lane[lane].open[end])
		return;
	sim_trace(s, "a%u -- s%u lane %u closed at the %s", l->agent, l->server, lane,
		  end ? "agent" : "server");
	end_closed(s, l, lane, end);
	if (!end) {
		if (!any_open(l, 0))
			srv_peer_lost(&s->server[l->server]->core, &l->srv);
		return;
	}
	if (any_open(l, 1))
		ag_peer_hurt(c, &l->ag);
	else
		ag_peer_down(c, &l->ag);
}

static void cut(struct sim *s, struct sim_link *l, uint32_t lane)
{
	uint32_t first = (uint32_t)sim_below(s, 2);
	mono_t later = (mono_t)sim_below(s, 50000000);

	l->lane[lane].cut = true;
	for (uint32_t end = 0; end < 2; end++)
		sim_at(s, end == first ? 0 : later,
		       &(struct sim_event){ .type = EV_CLOSED, .link = l, .a = lane, .b = end,
			.proc = end ? sim_agent_proc(l->agent) : sim_server_proc(l->server) });
	sim_at(s, (mono_t)sim_below(s, 100000000),
	       &(struct sim_event){ .type = EV_OPEN, .link = l,
				    .proc = sim_server_proc(l->server) });
}

static void break_link(struct sim *s, struct sim_link *l, bool all)
{
	uint32_t left = all ? SIM_LANES : 1;

	all ? sim_totals.all_broken++ : sim_totals.broken++;
	for (uint32_t i = 0; i < SIM_LANES && left; i++) {
		if (l->lane[i].cut || !l->lane[i].open[0] || !l->lane[i].open[1])
			continue;
		cut(s, l, i);
		left--;
	}
}

void sim_link_open(struct sim *s, struct sim_link *l)
{
	struct sim_event e = { .type = EV_OPENED, .link = l, .proc = sim_agent_proc(l->agent) };
	uint32_t i = 0;

	while (i < SIM_LANES && (l->lane[i].open[0] || l->lane[i].open[1]))
		i++;
	if (i == SIM_LANES) {	/* the ends have not noticed yet: again later */
		sim_at(s, 20000000, &(struct sim_event){ .type = EV_OPEN, .link = l,
							 .proc = sim_server_proc(l->server) });
		return;
	}
	l->lane[i] = (struct sim_lane){ .open = { true, false }, .gen = l->lane[i].gen + 1 };
	e.a = i;
	e.b = l->lane[i].gen;
	sim_at(s, s->p.latency, &e);
}

static void opened(struct sim *s, struct sim_link *l, uint32_t lane, uint32_t gen)
{
	bool first = !any_open(l, 1);

	if (l->lane[lane].gen != gen || l->lane[lane].cut)
		return;
	l->lane[lane].open[1] = true;
	if (first)
		ag_peer_up(&s->agent[l->agent]->core, &l->ag, l->by_ref, s->now);
}

void sim_net_cut_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->p.n; i++)
		for (uint32_t j = 0; j < s->p.nservers; j++)
			for (uint32_t k = 0; k < SIM_LANES; k++) {
				s->link[i][j]->lane[k].cut = true;
				closed(s, s->link[i][j], k, 0);
				closed(s, s->link[i][j], k, 1);
			}
}

/* ---- faults to come ---- */

static void later(struct sim *s, mono_t mean, enum sim_event_type type)
{
	if (mean)
		sim_at(s, (mono_t)sim_below(s, 2 * (uint64_t)mean),
		       &(struct sim_event){ .type = type, .proc = SIM_NOBODY });
}

void sim_net_faults(struct sim *s)
{
	if (s->p.nservers)
		later(s, s->p.break_every, EV_BREAK);
	later(s, s->p.pause_every, EV_PAUSE);
}

static void break_some(struct sim *s)
{
	if (!sim_faulty(s))
		return;
	break_link(s, s->link[sim_below(s, s->p.n)][sim_below(s, s->p.nservers)],
		   sim_chance(s, 300));
	later(s, s->p.break_every, EV_BREAK);
}

/* A process is stopped (SIGSTOP, a page fault, a long fork) and goes on later. */
static void pause_some(struct sim *s)
{
	uint32_t i = (uint32_t)sim_below(s, s->p.n + s->p.nservers);
	uint32_t proc = i < s->p.n ? sim_agent_proc(i) : sim_server_proc(i - s->p.n);

	if (!sim_faulty(s))
		return;
	sim_totals.paused++;
	s->paused_until[proc] = s->now + (mono_t)sim_below(s, 400000000);
	later(s, s->p.pause_every, EV_PAUSE);
}

bool sim_net_event(struct sim *s, const struct sim_event *e)
{
	if (e->msg && e->msg->state == MSG_DEAD) {
		msg_free(s, e->msg);
		return true;
	}
	switch (e->type) {
	case EV_TRANSMIT: transmit(s, e->msg); return true;
	case EV_ARRIVE: arrive(s, e->msg); return true;
	case EV_LAND: land(s, e->msg); return true;
	case EV_BREAK: break_some(s); return true;
	case EV_CLOSED: closed(s, e->link, e->a, e->b); return true;
	case EV_OPENED: opened(s, e->link, e->a, e->b); return true;
	case EV_PAUSE: pause_some(s); return true;
	case EV_OPEN:
		if (!s->stopped)
			sim_link_open(s, e->link);
		return true;
	default: return false;
	}
}
