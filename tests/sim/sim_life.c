// SPDX-License-Identifier: Apache-2.0
/*
 * What happens to processes.  Servers die (the process, or the machine with its
 * cables), stand still for longer than their lease, are cut off from the scheduler, from
 * agents or from both, in one direction or in two, are drained and used again, and new
 * ones come.  The scheduler dies and comes back.  Control connections break with what
 * is on them.  An agent dies, and with it its jobs.  At the end everything heals, and
 * there is one server at least.  Agents are cut off from the scheduler, too, and machines
 * from all others, until they are given up and longer: they live, and come back.
 */
#include "tests/sim/sim.h"

#define NAMES 12u
#define GRACE_MS	4000u		/* of the scheduler in here */
#define GIVEN_UP_MS	(GRACE_MS - GRACE_MS / 20)	/* clocks are fast */

static uint32_t some_living(struct sim *s)
{
	uint32_t of[SIM_SERVERS], n = 0;

	for (uint32_t i = 0; i < s->nservers; i++)
		if (s->server[i]->alive && !s->server[i]->replaced)
			of[n++] = i;
	return n ? of[sim_below(s, n)] : SIM_NOBODY;
}

static uint32_t living(const struct sim *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->nservers; i++)
		n += s->server[i]->alive && !s->server[i]->replaced;
	return n;
}

void sim_crash(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];
	bool machine = sim_chance(s, 300);	/* nobody closes its connections */

	if (!v->alive)
		return;
	sim_trace(s, "s%u dies%s", server, machine ? " with its machine" : "");
	sim_totals.crashes++;
	if (v->replaced)
		v->alive = false;
	while (v->replaced) {			/* all its lives are one process */
		server = v->next_life;
		v = s->server[server];
	}
	v->alive = false;
	if (!machine)
		sim_ctl_break(s, sim_server_proc(server), (mono_t)sim_below(s, 5000000));
	else
		v->ctl.cut_until = MONO_NEVER;
	for (; ; v = s->server[server = v->last_life]) {
		v->alive = false;
		for (uint32_t i = 0; i < s->p.n; i++)
			for (struct sim_link *l = s->link[i][server]; l; l = l->before)
				sim_link_died(s, l, 0);
		if (v->last_life == SIM_NOBODY)
			return;
	}
}

/* A process with this name does not run; another one may. */
static bool name_is_free(const struct sim *s, uint32_t name)
{
	for (uint32_t i = 0; i < s->nservers; i++)
		if (s->server[i]->name == name && s->server[i]->alive)
			return false;
	return true;
}

static bool come(struct sim *s, uint32_t name)
{
	uint32_t home = SIM_NOBODY, server;

	if (s->nservers + 8 >= SIM_SERVERS || !name_is_free(s, name) || s->p.n == 1)
		return false;
	for (uint32_t i = 0; i < s->nservers; i++)
		if (s->server[i]->name == name)
			home = s->server[i]->home;
	server = sim_server_new(s, name, home);
	sim_totals.joins++;
	sim_trace(s, "s%u starts, name s%u", server, name);
	sim_ctl_connect(s, sim_server_proc(server));
	return true;
}

void sim_fence(struct sim *s, uint32_t server)
{
	sim_totals.fenced++;
	sim_trace(s, "s%u is ended by the agent of its machine", server);
	sim_crash(s, server);
	sim_at(s, 100000000 + (mono_t)sim_below(s, NS_PER_SEC),
	       &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY,
				    .a = s->server[server]->name + 1 });
}

/* ---- cut off ---- */

/* These say whether anything got through before. */
static bool cut_ctl(struct sim *s, uint32_t server, mono_t until)
{
	uint32_t ways = 1 + (uint32_t)sim_below(s, 3);

	sim_totals.cut_off++;
	sim_trace(s, "s%u is cut off from the scheduler, ways %u", server, ways);
	return sim_ctl_cut(s, &s->server[server]->ctl, until, ways);
}

/* From all agents or some; one way, the other, or both. */
static bool cut_data(struct sim *s, uint32_t server, mono_t until)
{
	uint32_t way = (uint32_t)sim_below(s, 3);
	bool through = false, some = sim_below(s, 2);

	sim_totals.blind++;
	for (uint32_t i = 0; i < s->p.n; i++) {
		struct sim_link *l = s->link[i][server];

		if (!l || (some && sim_below(s, 2)))
			continue;
		sim_trace(s, "a%u -- s%u is cut, way %u", i, server, way);
		through |= sim_link_is_open(l, 1) && l->blind_until[way == 1] <= s->now;
		l->blind_until[TO_SERVER] = way != 1 ? until : l->blind_until[TO_SERVER];
		l->blind_until[TO_AGENT] = way != 0 ? until : l->blind_until[TO_AGENT];
		/* Nothing is heard: the transport gives it up in time. */
		if (until - s->now > mono_ms(LINK_DEAD_MS))
			sim_at(s, mono_ms(LINK_DEAD_MS),
			       &(struct sim_event){ .type = EV_BREAK, .proc = SIM_NOBODY,
						    .link = l });
	}
	return through;
}

static bool cut_off(struct sim *s, uint32_t server)
{
	mono_t until = s->now + 100000000 + (mono_t)sim_below(s, 5 * NS_PER_SEC);
	uint32_t what = (uint32_t)sim_below(s, 3);
	bool through = false;

	if (what == 1)			/* the scheduler hears both, often for long enough */
		until += (mono_t)sim_below(s, 12 * NS_PER_SEC);
	if (what != 1)
		through |= cut_ctl(s, server, until);
	if (what != 0)
		through |= cut_data(s, server, until);
	return through;
}

/* ---- one thing at a time; a fault is what somebody feels ---- */

static bool to_server(struct sim *s)
{
	uint32_t server = some_living(s), left = living(s);
	bool done;

	switch (server == SIM_NOBODY ? 9 : sim_below(s, 10)) {
	case 0:
	case 1:
	case 2:
		if (left <= 1 && !sim_chance(s, 200))
			return false;
		sim_crash(s, server);
		return true;
	case 3:		/* stands still, often for longer than the lease */
		sim_totals.paused++;
		sim_trace(s, "s%u stands still", server);
		return sim_pause(s, sim_server_proc(server), (mono_t)sim_below(s, 6 * NS_PER_SEC));
	case 4:
	case 5:
		return cut_off(s, server);
	case 6:
		done = sim_drain(s, s->server[server]->name, false);
		sim_totals.drains += done;
		return done;
	case 7:
		done = sim_drain(s, s->server[server]->name, true);
		sim_totals.undrains += done;
		return done;
	default:
		return come(s, (uint32_t)sim_below(s, NAMES));
	}
}

/* All of its jobs go on without it. */
static bool can_spare(const struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		const struct sim_job *j = &s->job[i];
		bool others = false, here = false;

		for (uint32_t m = 0; m < j->p->n; m++) {
			here |= j->p->agent[m] == agent;
			others |= j->p->agent[m] != agent && sim_machine_lives(j, m);
		}
		if (here && (!j->p->shrink || !others))
			return false;
	}
	return s->agent[agent]->alive;
}

/* Its end may be the job's: a broadcast that nobody else has. */
static bool is_root(const struct sim *s, const struct sim_job *j, uint32_t rank, bool machine)
{
	for (uint32_t k = 0; k < j->p->ntensors; k++)
		for (uint32_t i = j->tensor[k].all + 1; i <= j->p->rounds; i++) {
			uint32_t root = j->tensor[k].root[i] - 1;

			if (!j->tensor[k].root[i] || sim_rop(s, j, k, i) != ROP_BROADCAST)
				continue;
			if (root == rank || (machine && j->p->machine[root] == j->p->machine[rank]))
				return true;
		}
	return false;
}

/* The same of a machine, in any job. */
static bool has_root(const struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		for (uint32_t r = 0; r < s->p.job[i].world; r++)
			if (s->p.job[i].agent[s->p.job[i].machine[r]] == agent &&
			    is_root(s, &s->job[i], r, true))
				return true;
	return false;
}

/* Some rank; when enough has been done, often one whose data others wait for. */
static uint32_t victim(struct sim *s, const struct sim_job *j)
{
	uint32_t rank = (uint32_t)sim_below(s, j->p->world);

	if (!j->p->shrink || sim_rounds(s) < RUN_ROUNDS || !sim_chance(s, 500))
		return rank;
	for (uint32_t k = 0; k < j->p->ntensors; k++) {
		uint32_t round = j->tensor[k].all + 1, root = j->tensor[k].root[round] - 1;

		if (round <= j->p->rounds && j->tensor[k].root[round] &&
		    j->rank[root].submitted[k] < round &&
		    sim_rop(s, j, k, round) == ROP_BROADCAST)
			return root;
	}
	return rank;
}

/* A rank of a job that goes on without, or the agent of one. */
static bool shrink_some(struct sim *s)
{
	struct sim_job *j = &s->job[sim_below(s, s->p.njobs)];
	uint32_t rank = victim(s, j);
	uint32_t agent = j->p->agent[j->p->machine[rank]];
	bool machine = sim_chance(s, 400);

	if (sim_grow_give_up(s, j, rank)) {
		s->faults++;
		return true;
	}
	if (!sim_had_enough(s) && (machine ? has_root(s, agent) : is_root(s, j, rank, false)))
		return false;
	if (!j->p->shrink || !sim_faulty(s) || !sim_rank_lives(j, rank) || j->over || j->ended ||
	    __builtin_popcount(j->lost) + 1u >= j->p->world)
		return false;
	if (machine && can_spare(s, agent) && sim_agent_may_die(s, agent))
		sim_machine_crash(s, agent);
	else if (!s->agent[agent]->job[j->index].over)
		sim_rank_dies(s, j, rank);
	s->faults += !sim_rank_lives(j, rank);
	return true;
}

/* One in a run, in any moment, when enough has been done. */
void sim_life_agent_dies(struct sim *s)
{
	uint32_t agent = (uint32_t)sim_below(s, s->p.n);

	if (!s->p.agents_die || !sim_had_enough(s) || !sim_chance(s, 2) ||
	    !s->agent[agent]->alive || !sim_agent_may_die(s, agent))
		return;
	s->p.agents_die = false;
	s->faults++;
	sim_agent_crash(s, agent, true);
}

/* It dies, and its supervisor starts it again. */
static bool restart_agent(struct sim *s)
{
	if (!s->p.agents_return || !sim_faulty(s))
		return false;
	if (!sim_agent_again(s, (uint32_t)sim_below(s, s->p.n)))
		return false;
	s->faults++;
	return true;
}

/*
 * From the scheduler, for longer than its lease, and less than its grace: which is not to be
 * used up by its own restart before.
 */
static void cut_some_agent(struct sim *s)
{
	uint32_t agent = (uint32_t)sim_below(s, s->p.n);
	struct sim_ctl *c = &s->agent[agent]->ctl;
	uint32_t ways = 1 + (uint32_t)sim_below(s, 3);

	if (s->p.agents_return || !s->agent[agent]->alive || !c->registered || c->lost ||
	    c->cut_until > s->now || s->paused_until[sim_agent_proc(agent)] > s->now)
		return;
	sim_totals.deaf++;
	s->faults++;
	sim_trace(s, "a%u is cut off from the scheduler, ways %u", agent, ways);
	sim_ctl_cut(s, c, s->now + (mono_t)sim_below(s, mono_ms(LEASE_MS + 400)), ways);
}

/* From a scheduler that recovers, and for less than the grace that begins then. */
void sim_life_recovers(struct sim *s, mono_t recovery, mono_t grace)
{
	uint32_t agent = (uint32_t)sim_below(s, s->p.n);
	struct sim_ctl *c = &s->agent[agent]->ctl;
	mono_t rest = (mono_t)sim_below(s, (uint64_t)(grace - 3 * NS_PER_SEC / 2));

	if (!s->recovers_until || !s->started || !sim_faulty(s) || !sim_chance(s, 300) ||
	    !s->agent[agent]->alive || c->cut_until > s->now ||
	    s->paused_until[sim_agent_proc(agent)] > s->now || !sim_agent_may_be_silent(s, agent))
		return;
	sim_totals.late++;
	s->faults++;
	sim_trace(s, "a%u is silent through the recovery", agent);
	c->silent = true;
	sim_ctl_cut(s, c, s->now + sim_clock_wait(s, SIM_SCHED, recovery + rest), 3);
}

/* It is in nothing that a lost machine ends too early, or that it comes back to just now. */
static bool may_part(const struct sim *s, uint32_t agent)
{
	const struct sim_agent *a = s->agent[agent];
	bool busy = false;

	if (!a->alive || a->given_up || !a->ctl.registered || a->ctl.lost || !s->sched ||
	    sched_recovering(s->sched) || s->paused_until[sim_agent_proc(agent)] > s->now)
		return false;
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		if (a->job[i].nback || a->job[i].left)
			return false;
		busy |= a->job[i].core && !a->job[i].over;
	}
	for (uint32_t i = 0; i < s->p.n; i++)	/* one at a time, so that the rest goes on */
		if (s->agent[i]->given_up || s->agent[i]->ctl.cut_until > s->now ||
		    s->agent[i]->coming)
			return false;
	return busy && (sim_had_enough(s) || (can_spare(s, agent) && !has_root(s, agent)));
}

/* From all others, until it is given up and often longer; its ranks live and train on. */
static bool part_some(struct sim *s)
{
	uint32_t agent = (uint32_t)sim_below(s, s->p.n);
	mono_t until = s->now + mono_ms(LEASE_MS + GRACE_MS) + (mono_t)sim_below(s, 6 * NS_PER_SEC);

	if (!s->p.parts || !may_part(s, agent))
		return false;
	sim_trace(s, "a%u is cut off from all others", agent);
	sim_ctl_cut(s, &s->agent[agent]->ctl, until, 3);
	s->agent[agent]->parted_at = s->now;
	for (uint32_t v = 0; v < s->nservers; v++) {
		struct sim_link *l = s->link[agent][v];

		if (!l || l->by_ref)
			continue;
		l->blind_until[TO_SERVER] = l->blind_until[TO_AGENT] = until;
		sim_at(s, mono_ms(LINK_DEAD_MS),
		       &(struct sim_event){ .type = EV_BREAK, .proc = SIM_NOBODY, .link = l });
	}
	return true;
}

/* An agent without such a job is given up at once. */
static bool has_grace(const struct sim *s, uint32_t agent)
{
	const struct sim_agent *a = s->agent[agent];

	for (uint32_t i = 0; i < s->p.njobs; i++)
		if (a->job[i].core && !a->job[i].over && !sim_job_may_end(s, &s->job[i]) &&
		    sim_machine_lives(&s->job[i], a->job[i].me))
			return true;
	return false;
}

/* In any moment, when enough has been done: a rank of a job that cannot go on without it. */
void sim_life_rank_dies(struct sim *s)
{
	struct sim_job *j = &s->job[sim_below(s, s->p.njobs)];
	uint32_t rank = (uint32_t)sim_below(s, j->p->world);
	const struct sim_agent *a = s->agent[j->p->agent[j->p->machine[rank]]];
	const struct sim_agent_job *aj = &a->job[j->index];

	if (!s->p.ranks_die || !sim_had_enough(s) || !sim_chance(s, 2) || j->p->shrink ||
	    j->over || !a->alive || !aj->core || aj->over || aj->left || aj->nback)
		return;
	s->p.ranks_die = false;
	s->faults++;
	j->dying = true;
	sim_rank_dies(s, j, rank);
}

void sim_agent_given_up(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];

	/* Its connection may have broken, too. */
	if ((!a->parted_at || s->now - a->parted_at < mono_ms(GIVEN_UP_MS)) && has_grace(s, agent))
		sim_fail(s, "agent %u is given up, and was not away for long", agent);
	sim_trace(s, "a%u is given up, and lives", agent);
	sim_totals.given_up++;
	a->given_up = true;
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		struct sim_job *j = &s->job[i];

		if (!a->job[i].core || a->job[i].over)
			continue;
		j->dying |= !j->p->shrink;
		sim_agent_ranks_lost(s, j, agent);
	}
}

static void reset_some(struct sim *s)
{
	uint32_t i = (uint32_t)sim_below(s, s->p.n + s->nservers);
	uint64_t before = sim_totals.resets;

	sim_ctl_reset(s, i < s->p.n ? sim_agent_proc(i) : sim_server_proc(i - s->p.n));
	s->faults += sim_totals.resets - before;
}

void sim_life_fault(struct sim *s)
{
	if (sim_chance(s, 150) && restart_agent(s))
		return;
	if (s->p.parts && sim_chance(s, 500) && part_some(s)) {
		s->faults++;
		return;
	}
	switch (sim_below(s, s->p.n == 1 ? 4 : 16)) {
	case 0:		/* perhaps just when some have lost their connections */
		for (uint32_t i = (uint32_t)sim_below(s, 3); i; i--)
			reset_some(s);
		sim_at(s, (mono_t)sim_below(s, 50000000),
		       &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY, .b = 2 });
		break;
	case 1:
	case 2:
	case 3:
		if (shrink_some(s))
			break;
		if (sim_chance(s, 200))
			cut_some_agent(s);
		else if (sim_chance(s, 200))
			s->faults += sim_sched_stop(s);
		else
			reset_some(s);
		break;
	default:
		s->faults += to_server(s);
	}
}

void sim_any_fault(struct sim *s)
{
	switch (sim_below(s, 8)) {
	case 0:
		s->faults += sim_below(s, 3) ? sim_sched_crash(s) : sim_sched_stop(s);
		break;
	case 1:
	case 2:
		reset_some(s);
		break;
	default:
		sim_net_fault(s);
	}
}

/* Perhaps nobody else hears of it, nor anybody who tells a new scheduler. */
void sim_life_opened(struct sim *s, uint32_t agent)
{
	if (s->p.agents_return && sim_faulty(s) && s->sched && sim_chance(s, 100))
		sim_at(s, 0, &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY, .b = 3,
						  .c = agent });
}

static void later(struct sim *s)
{
	if (s->p.life_every)
		sim_at(s, (mono_t)sim_below(s, 2 * (uint64_t)s->p.life_every),
		       &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY });
}

void sim_life_start(struct sim *s)
{
	later(s);
}

bool sim_life_event(struct sim *s, const struct sim_event *e)
{
	if (e->type != EV_LIFE)
		return false;
	if (e->a) {			/* what its supervisor does */
		if (!s->stopped)
			come(s, e->a - 1);
		return true;
	}
	if (e->b) {
		if (e->b >= 2 && sim_faulty(s) && s->sched) {
			s->faults += sim_sched_crash(s);
			s->faults += e->b == 3 && sim_agent_again(s, e->c);
		}
		else if (e->b == 1 && !s->started)
			sim_any_fault(s);
		return true;
	}
	if (!sim_faulty(s)) {
		sim_life_ends(s);
		return true;
	}
	sim_life_fault(s);
	later(s);
	return true;
}

/* Everything is used again, and where nobody is left somebody comes. */
bool sim_life_ends(struct sim *s)
{
	bool some = living(s) > 0, drained = false;

	if (s->stopped)
		return false;
	for (uint32_t i = 0; i < s->nservers; i++)
		if (s->server[i]->alive && !s->server[i]->replaced)
			sim_drain(s, s->server[i]->name, true);
	if (!some)
		come(s, (uint32_t)sim_below(s, NAMES));
	for (uint32_t i = 0; i < s->nservers; i++)	/* the scheduler was away */
		drained |= s->server[i]->alive && !s->server[i]->replaced && s->server[i]->draining;
	if (!living(s) || drained)
		sim_at(s, drained ? 100000000 : 1000000,
		       &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY });
	return some;
}
