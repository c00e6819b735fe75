// SPDX-License-Identifier: Apache-2.0
/*
 * The network's story: a frame is queued on an open lane, transmitted (its bytes
 * are read and the sender gets them back), arrives (the receiver places it) and
 * lands.  Every frame has exactly one event under way; whoever kills it marks it
 * DEAD, and that event frees it.
 *
 * Faults: a frame is lost, comes twice, comes late or changed (a stale or foreign
 * one: the receiver must turn it away).
 */
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

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

void sim_msg_free(struct sim *s, struct sim_msg *m)
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
	      const void *data, void *seg)
{
	uint32_t lane = pick_lane(s, l, dir);
	struct sim_msg *m;

	if (lane == SIM_LANES)
		return false;
	m = msg_new(s, l, dir, lane);
	m->frame = *f;
	m->from = data;
	m->seg = seg;
	l->queued[dir]++;
	msg_event(s, m, (mono_t)sim_below(s, 200000), EV_TRANSMIT);
	return true;
}

void sim_give_back(struct sim *s, struct sim_msg *m)
{
	bool lives = !m->on->dead[m->dir == TO_SERVER];	/* else its memory is nobody's */

	m->on->queued[m->dir]--;
	if (!m->from)
		return;
	if (lives && m->dir == TO_SERVER) {
		sim_cover_sent(m->seg);
		ag_sent(&s->agent[m->on->agent]->core, &m->on->ag, m->seg, m->frame.length,
			sim_clock(s, sim_agent_proc(m->on->agent)));
	} else if (lives) {
		sim_cover_result(m->seg);
		srv_sent(&s->server[m->on->server]->core, m->seg);
	}
	m->from = NULL;
	m->seg = NULL;
}

mono_t sim_lag(const struct sim *s, uint32_t proc)
{
	if (proc < SIM_AGENTS)
		return s->p.lag[proc];
	return s->p.lag[SIM_AGENTS + s->server[proc - SIM_AGENTS]->name % 8];
}

static mono_t flight_time(struct sim *s, struct sim_msg *m)
{
	struct sim_lane *lane = &m->on->lane[m->lane];
	mono_t d = s->p.latency + (mono_t)sim_below(s, (uint64_t)s->p.jitter) +
		   sim_lag(s, m->dir == TO_AGENT ? sim_agent_proc(m->on->agent) :
			   sim_server_proc(m->on->server));

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

/* Whom it is for has heard of the frame's epoch: an earlier one is none for him. */
static bool knows_epoch(struct sim *s, const struct sim_msg *m)
{
	const struct sim_job *j = sim_job_of(s, m->frame.job);

	if (!j)
		return false;
	if (m->dir == TO_AGENT)
		return s->agent[m->on->agent]->job[j->index].epoch >= m->frame.epoch;
	return s->server[m->on->server]->job[j->index].log.place &&
	       s->server[m->on->server]->job[j->index].log.place->epoch >= m->frame.epoch;
}

/* One field from another time or place, so that nobody may take it for good. */
static void forge(struct sim *s, struct sim_msg *m)
{
	struct frame *f = &m->frame;
	bool sized = f->type == FRAME_PUSH || f->type == FRAME_RESULT;

	m->forged = true;
	switch (sim_below(s, sized ? 9 : 7)) {
	case 0: f->job += 1000; break;
	case 1: f->epoch += knows_epoch(s, m) ? UINT32_MAX : 1000; break;
	case 2: f->tensor += 1000; break;
	case 3: f->chunk += 1u << 20; break;
	case 4: f->offset += 1; break;
	case 5:			/* young segments believe what they hear first */
		if (s->p.life_every || f->epoch > 1)
			f->job += 1000;
		else
			f->round += 1000;	/* never reached, however late it arrives */
		break;
	case 6:
		if (m->dir == TO_AGENT)
			f->job += 1000;
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
	sim_give_back(s, m);
	m->state = MSG_WIRE;
	if (m->on->blind_until[m->dir] > s->now) {
		sim_totals.lost++;
		sim_msg_free(s, m);
		return;
	}
	if (sim_faulty(s)) {
		faults_of(s, m);
		if (sim_chance(s, s->p.loss)) {
			sim_totals.lost++;
			sim_msg_free(s, m);
			return;
		}
	}
	msg_event(s, m, flight_time(s, m), EV_ARRIVE);
}

/* ---- at the receiver ---- */

static void push_came(struct sim *s, const struct sim_msg *m)
{
	struct sim_job *j = sim_job_of(s, m->frame.job);
	const struct sim_agent_job *aj = j ? &s->agent[m->on->agent]->job[j->index] : NULL;
	uint32_t k = j ? sim_log_tensor(&aj->log, m->frame.tensor) : SIM_NOBODY;

	if (k != SIM_NOBODY)
		j->pushed_at[aj->me] = j->tensor[k].pushed_at = s->now;
}

static void deliver(struct sim *s, struct sim_msg *m, const void *data)
{
	struct sim_agent *a = sim_agent_at(s, m->on);
	struct sim_server *v = s->server[m->on->server];
	const struct frame *f = &m->frame;
	void *result_at = NULL;

	if (m->dir == TO_AGENT) {
		sim_cover_agent(&a->core, f);
		ag_frame(&a->core, &m->on->ag, f,
			 sim_clock(s, sim_agent_proc(m->on->agent)));
		return;
	}
	if (m->on->by_ref) {
		sim_totals.by_ref_frames++;
		/* The shell knows the segment's length; a forged key has no place. */
		if (!m->forged)
			result_at = sim_resolve(a, f->rslot, 1);
		if (f->flags & FRAME_BYREF && !(f->flags & FRAME_NODATA)) {
			data = sim_resolve(a, f->slot, f->length);
			if (!data)
				return;
		}
	}
	sim_cover_server(&v->core, f);
	v->heard[m->on->agent] = true;
	if (f->type == FRAME_PUSH && !m->forged)
		push_came(s, m);
	srv_frame(&v->core, &m->on->srv, f, data, result_at);
}

/* By TCP a short payload is used where it was read; a long one, or one by a card, is placed. */
static bool is_taken(const struct sim_msg *m)
{
	return !m->forged && (m->frame.tensor + m->frame.chunk + m->frame.round) & 1;
}

static void take(struct sim *s, struct sim_msg *m)
{
	struct sim_server *v = s->server[m->on->server];
	struct sim_agent *a = sim_agent_at(s, m->on);

	if (m->dir == TO_AGENT) {
		sim_cover_agent(&a->core, &m->frame);
		ag_take(&a->core, &m->on->ag, &m->frame, m->bytes,
			sim_clock(s, sim_agent_proc(m->on->agent)));
	} else {
		sim_cover_server(&v->core, &m->frame);
		v->heard[m->on->agent] = true;
		if (m->frame.type == FRAME_PUSH)
			push_came(s, m);
		srv_take(&v->core, &m->on->srv, &m->frame, m->bytes);
	}
	memset(m->bytes, 0xa5, m->frame.length);	/* the next read writes there */
	sim_msg_free(s, m);
}

static void arrive(struct sim *s, struct sim_msg *m)
{
	struct sim_lane *lane = &m->on->lane[m->lane];
	char text[200];

	if (lane->gen != m->gen || lane->cut || !end_open(m->on, m->lane, !m->dir) ||
	    m->on->dead[m->dir == TO_AGENT]) {
		sim_msg_free(s, m);
		return;
	}
	sim_trace(s, "a%u %s s%u lane %u%s%s  %s", m->on->agent, m->dir == TO_SERVER ? "->" : "<-",
		  m->on->server, m->lane, m->copied ? " again" : "", m->forged ? " forged" : "",
		  frame_text(&m->frame, text, sizeof(text)));
	if (!frame_has_payload(&m->frame)) {
		deliver(s, m, NULL);
		sim_msg_free(s, m);
		return;
	}
	if (is_taken(m)) {
		take(s, m);
		return;
	}
	m->to = m->dir == TO_SERVER ?
		srv_place(&s->server[m->on->server]->core, &m->on->srv, &m->frame) :
		ag_place(&s->agent[m->on->agent]->core, &m->on->ag, &m->frame,
			 sim_clock(s, sim_agent_proc(m->on->agent)));
	if (m->to && m->forged)
		sim_fail(s, "a frame that cannot be was given a place: %s",
			 frame_text(&m->frame, text, sizeof(text)));
	if (!m->to) {
		sim_msg_free(s, m);
		return;
	}
	m->state = MSG_LANDING;
	msg_event(s, m, (mono_t)sim_below(s, sim_chance(s, 30) ? 300000000 : 300000), EV_LAND);
}

static void land(struct sim *s, struct sim_msg *m)
{
	memcpy(m->to, m->bytes, m->frame.length);
	deliver(s, m, m->to);
	sim_msg_free(s, m);
}

bool sim_net_event(struct sim *s, const struct sim_event *e)
{
	if (e->msg && e->msg->state == MSG_DEAD) {
		sim_msg_free(s, e->msg);
		return true;
	}
	switch (e->type) {
	case EV_TRANSMIT: transmit(s, e->msg); return true;
	case EV_ARRIVE: arrive(s, e->msg); return true;
	case EV_LAND: land(s, e->msg); return true;
	default: return false;
	}
}
