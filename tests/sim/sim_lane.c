// SPDX-License-Identifier: Apache-2.0
/*
 * Lanes and the faults to come.  A lane is cut: each end notices at a time of its
 * own, what it was sending is its own again, what was landing there stays as it
 * is, and a new lane may be open before the other end knows.  Now and then all
 * lanes of a link go at once, or a process stands still for a while.
 */
#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

/* ---- lanes ---- */

bool sim_link_is_open(const struct sim_link *l, uint32_t end)
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
			sim_give_back(s, m);
			m->state = MSG_DEAD;
		} else if (m->state == MSG_LANDING && !mine) {
			m->state = MSG_DEAD;
			sim_totals.torn++;
			if (l->dead[end])
				continue;
			memcpy(m->to, m->bytes, sim_below(s, m->frame.length + 1));
			if (m->dir == TO_SERVER)
				srv_unplace(&s->server[l->server]->core, &l->srv, &m->frame);
			else
				ag_unplace(&s->agent[l->agent]->core, &m->frame);
		}
	}
	l->lane[lane].open[end] = false;
}

static void lost_at_server(struct sim *s, struct sim_link *l)
{
	sim_cover_lost(&s->server[l->server]->core, &l->srv, false);
	srv_peer_lost(&s->server[l->server]->core, &l->srv);
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
		if (!sim_link_is_open(l, 0) && !l->dead[0])
			lost_at_server(s, l);
		if (!sim_link_is_open(l, 0) && l->ended)
			list_del(&l->srv.link);	/* as srv_peer_fini(), dead or alive */
		return;
	}
	if (l->dead[1])
		return;
	if (l->ended) {
		l->ag.up = sim_link_is_open(l, 1);
	} else if (sim_link_is_open(l, 1)) {
		ag_peer_hurt(c, &l->ag);
	} else {
		sim_cover_down(c, &l->ag);
		ag_peer_down(c, &l->ag);
	}
}

static void cut(struct sim *s, struct sim_link *l, uint32_t lane)
{
	uint32_t first = (uint32_t)sim_below(s, 2);
	mono_t later = (mono_t)sim_below(s, 50000000);

	l->lane[lane].cut = true;
	for (uint32_t end = 0; end < 2; end++)
		sim_at(s, end == first ? 0 : later,
		       &(struct sim_event){ .type = EV_CLOSED, .link = l, .a = lane, .b = end,
			.c = l->lane[lane].gen,
			.proc = end ? sim_agent_proc(l->agent) : sim_server_proc(l->server) });
	sim_at(s, (mono_t)sim_below(s, 100000000),
	       &(struct sim_event){ .type = EV_OPEN, .link = l,
				    .proc = sim_server_proc(l->server) });
}

/* True: some lane was whole. */
static bool break_link(struct sim *s, struct sim_link *l, bool all)
{
	uint32_t left = all ? SIM_LANES : 1, before = left;

	all ? sim_totals.all_broken++ : sim_totals.broken++;
	for (uint32_t i = 0; i < SIM_LANES && left; i++) {
		if (l->lane[i].cut || !l->lane[i].open[0] || !l->lane[i].open[1])
			continue;
		cut(s, l, i);
		left--;
	}
	return left < before;
}

/*
 * As sv_peer_is() of the daemon: nothing of the process before lands any more; of the same one
 * something may still, by a link that it has ended.
 */
static void greet(struct sim *s, struct sim_link *l)
{
	bool known = false;

	if (l->greeted)
		return;
	l->greeted = true;
	for (struct sim_link *old = l->before; old; old = old->before) {
		known |= old->greeted && old->life == l->life;
		for (uint32_t k = 0; k < SIM_LANES && old->life != l->life; k++)
			closed(s, old, k, 0);
	}
	if (l->life && !known) {
		sim_cover_lost(&s->server[l->server]->core, &l->srv, true);
		srv_peer_anew(&s->server[l->server]->core, &l->srv);
	}
}

void sim_link_outdated(struct sim *s, uint32_t agent, uint32_t server)
{
	for (struct sim_link *l = s->link[agent][server]; l; l = l->before)
		for (uint32_t k = 0; k < SIM_LANES && l->life != s->agent[agent]->life; k++)
			closed(s, l, k, 0);
}

/* As the listener of the daemon: the server has heard whose the number is. */
static bool is_let_in(const struct sim *s, const struct sim_link *l)
{
	const struct sim_agent *a = s->agent[l->agent];
	const struct sim_server *v = s->server[l->server];

	for (uint32_t i = 0; i < v->nkeys; i++)
		if (v->key[i].node == a->node)
			return !memcmp(v->key[i].link_key, a->key, KEY_BYTES);
	return false;
}

void sim_link_open(struct sim *s, struct sim_link *l)
{
	struct sim_event e = { .type = EV_OPENED, .link = l, .proc = sim_agent_proc(l->agent) };
	uint32_t i = 0;

	if (l->ended || l->dead[0] || l->dead[1])
		return;
	while (i < SIM_LANES && (l->lane[i].open[0] || l->lane[i].open[1]))
		i++;
	if (i == SIM_LANES || l->blind_until[0] > s->now || l->blind_until[1] > s->now ||
	    !is_let_in(s, l)) {
		/* The ends have not noticed yet, or it cannot be: again later. */
		sim_at(s, 20000000, &(struct sim_event){ .type = EV_OPEN, .link = l,
							 .proc = sim_server_proc(l->server) });
		return;
	}
	greet(s, l);
	l->lane[i] = (struct sim_lane){ .open = { true, false }, .gen = l->lane[i].gen + 1 };
	e.a = i;
	e.b = l->lane[i].gen;
	sim_at(s, s->p.latency, &e);
}

static void opened(struct sim *s, struct sim_link *l, uint32_t lane, uint32_t gen)
{
	bool first = !sim_link_is_open(l, 1);

	if (l->lane[lane].gen != gen || l->lane[lane].cut)
		return;
	if (l->ended || l->dead[1]) {
		l->lane[lane].cut = true;
		closed(s, l, lane, 0);
		return;
	}
	l->lane[lane].open[1] = true;
	if (!first)
		return;
	s->linked_at = s->now;
	ag_peer_up(&s->agent[l->agent]->core, &l->ag, l->by_ref,
		   sim_clock(s, sim_agent_proc(l->agent)));
}

void sim_net_cut_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->p.n; i++)
		for (uint32_t j = 0; j < s->nservers; j++)
			for (struct sim_link *l = s->link[i][j]; l; l = l->before)
				for (uint32_t k = 0; k < SIM_LANES; k++) {
					l->lane[k].cut = true;
					closed(s, l, k, 0);
					closed(s, l, k, 1);
				}
}

void sim_link_break_all(struct sim *s, struct sim_link *l)
{
	break_link(s, l, true);
}

/*
 * The server has noticed.  A real one finds the same peer for the next link, which sends what waits
 * for it; here that one is another, so nothing may wait for this one any more.
 */
void sim_link_unlist(struct sim *s, struct sim_link *l)
{
	if (!l->dead[0])
		lost_at_server(s, l);
	list_del(&l->srv.link);
}

/* The server notices in its own time. */
void sim_link_end(struct sim *s, struct sim_link *l)
{
	l->ended = true;
	if (!sim_link_is_open(l, 0))
		sim_link_unlist(s, l);
	for (uint32_t k = 0; k < SIM_LANES; k++) {
		if (!l->lane[k].open[0] && !l->lane[k].open[1])
			continue;
		l->lane[k].cut = true;
		closed(s, l, k, 1);
		sim_at(s, (mono_t)sim_below(s, 50000000), &(struct sim_event){ .type = EV_CLOSED,
			.link = l, .a = k, .b = 0, .c = l->lane[k].gen,
			.proc = sim_server_proc(l->server) });
	}
}

/* All its lanes at the agent's end, at once; new ones come. */
void sim_link_fence(struct sim *s, struct sim_link *l)
{
	for (uint32_t k = 0; k < SIM_LANES; k++) {
		if (!l->lane[k].open[0] && !l->lane[k].open[1])
			continue;
		if (!l->lane[k].cut)
			sim_at(s, (mono_t)sim_below(s, 100000000),
			       &(struct sim_event){ .type = EV_OPEN, .link = l,
						    .proc = sim_server_proc(l->server) });
		l->lane[k].cut = true;
		closed(s, l, k, 1);
		sim_at(s, (mono_t)sim_below(s, 50000000), &(struct sim_event){ .type = EV_CLOSED,
			.link = l, .a = k, .b = 0, .c = l->lane[k].gen,
			.proc = sim_server_proc(l->server) });
	}
}

/* Its memory is gone: what was to be read there is lost, what was to land there, too. */
void sim_link_died(struct sim *s, struct sim_link *l, uint32_t end)
{
	l->dead[end] = true;
	for (uint32_t k = 0; k < SIM_LANES; k++) {
		if (!l->lane[k].open[0] && !l->lane[k].open[1])
			continue;
		l->lane[k].cut = true;
		closed(s, l, k, end);
		sim_at(s, (mono_t)sim_below(s, sim_chance(s, 300) ? 3 * NS_PER_SEC : 20000000),
		       &(struct sim_event){ .type = EV_CLOSED, .link = l, .a = k, .b = !end,
			.c = l->lane[k].gen,
			.proc = end ? sim_server_proc(l->server) : sim_agent_proc(l->agent) });
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
	later(s, s->p.break_every, EV_BREAK);
	later(s, s->p.pause_every, EV_PAUSE);
}

static bool break_some(struct sim *s)
{
	struct sim_link *l = NULL;

	if (s->nservers)
		l = s->link[sim_below(s, s->p.n)][sim_below(s, s->nservers)];
	if (!l || l->ended || l->dead[0] || l->dead[1])
		return false;
	s->faults += break_link(s, l, sim_chance(s, 300));
	return true;
}

static void break_event(struct sim *s, struct sim_link *given)
{
	if (given) {
		sim_link_break_all(s, given);
		return;
	}
	if (!sim_faulty(s))
		return;
	break_some(s);
	later(s, s->p.break_every, EV_BREAK);
}

bool sim_pause(struct sim *s, uint32_t proc, mono_t time)
{
	const struct sim_server *v = proc < SIM_AGENTS ? NULL : s->server[proc - SIM_AGENTS];
	bool lives = v ? v->alive && !v->replaced : s->agent[proc]->alive;
	bool running = s->paused_until[proc] <= s->now;

	s->paused_until[proc] = MAX(s->paused_until[proc], s->now + time);
	return lives && running;
}

/* A process is stopped (SIGSTOP, a page fault, a long fork) and goes on later. */
static void pause_some(struct sim *s)
{
	uint32_t i = (uint32_t)sim_below(s, s->p.n + s->nservers);
	uint32_t proc = i < s->p.n ? sim_agent_proc(i) : sim_server_proc(i - s->p.n);

	/* An agent runs now and then: it is not to lose its lease. */
	if (proc < SIM_AGENTS && (s->paused_until[proc] + NS_PER_SEC > s->now ||
				  !s->agent[proc]->ctl.registered || s->agent[proc]->ctl.lost))
		return;
	sim_totals.paused++;
	s->faults += sim_pause(s, proc, (mono_t)sim_below(s, 400000000));
}

static void pause_event(struct sim *s)
{
	if (!sim_faulty(s))
		return;
	later(s, s->p.pause_every, EV_PAUSE);
	pause_some(s);
}

void sim_net_fault(struct sim *s)
{
	if (sim_below(s, 3) == 0 || !break_some(s))
		pause_some(s);
}

bool sim_lane_event(struct sim *s, const struct sim_event *e)
{
	switch (e->type) {
	case EV_BREAK: break_event(s, e->link); return true;
	case EV_CLOSED:			/* unless a new one is in its place */
		if (e->link->lane[e->a].gen == e->c)
			closed(s, e->link, e->a, e->b);
		return true;
	case EV_OPENED: opened(s, e->link, e->a, e->b); return true;
	case EV_PAUSE: pause_event(s); return true;
	case EV_OPEN:
		if (!s->stopped)
			sim_link_open(s, e->link);
		return true;
	default: return false;
	}
}
