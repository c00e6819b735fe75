// SPDX-License-Identifier: Apache-2.0
/*
 * An agent dies and is started again, while its ranks live.  They keep what they share
 * with it: inputs, results, and the marks that say whose result is where.  The new
 * process registers, says that its ranks are back, hears the jobs anew (all of it or
 * nothing counts), copies results and marks, and the ranks submit again what had no
 * completion.  A rank that computes comes later, and its agent says that it lives.  Servers
 * know the agent by its number, and see that it is another process.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

#define BACK	(UINT64_C(1) << 62)
#define BUSY_MS	12000u		/* the scheduler's grace in here is 4 s */

/* ---- dying ---- */

/* It is on its way; one that has died for good since is not. */
static bool returns(const struct sim_agent *a, uint32_t job)
{
	return a->coming || (a->alive && a->job[job].nback);
}

static bool holds(const struct sim_agent *a, uint32_t job)
{
	return a->alive && a->job[job].core && !a->job[job].over;
}

/* The last entry of the job's log that it, or a process before it, has heard. */
static uint64_t heard(const struct sim_agent *a, uint32_t job)
{
	uint64_t seq = 0;

	for (; a; a = a->before)
		seq = MAX(seq, MAX(a->job[job].log.seq, a->job[job].log.told));
	return seq;
}

bool sim_jobs_are_held(const struct sim *s, uint32_t but)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		const struct sim_job *j = &s->job[i];
		bool held = j->over, wanted = false;
		uint64_t last = 0;

		for (uint32_t m = 0; m < j->p->n; m++)
			last = MAX(last, heard(s->agent[j->p->agent[m]], i));
		for (uint32_t m = 0; m < j->p->n; m++) {
			const struct sim_agent *a = s->agent[j->p->agent[m]];

			held |= holds(a, i) && !a->ctl.silent && j->p->agent[m] != but &&
				heard(a, i) == last;
			wanted |= holds(a, i) || returns(a, i);
		}
		if (wanted && !held)
			return false;
	}
	return true;
}

/* Others tell of its jobs what it has, or nobody can. */
bool sim_agent_may_be_silent(const struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		const struct sim_job *j = &s->job[i];
		bool told = j->over || j->p->n == 1;

		for (uint32_t m = 0; m < j->p->n; m++) {
			const struct sim_agent *a = s->agent[j->p->agent[m]];

			told |= j->p->agent[m] != agent && holds(a, i) && !a->ctl.silent &&
				heard(a, i) >= heard(s->agent[agent], i);
		}
		if (holds(s->agent[agent], i) && !told)
			return false;
	}
	return true;
}

/* A scheduler that is not there, or recovers, knows of a job only what is told yet. */
bool sim_agent_may_die(const struct sim *s, uint32_t agent)
{
	return (s->sched && !sched_recovering(s->sched)) || sim_jobs_are_held(s, agent);
}

static bool can_die(struct sim *s, uint32_t agent)
{
	const struct sim_agent *a = s->agent[agent];
	bool busy = false;

	if (!s->started || !a->alive || a->life == SIM_AGENT_LIVES || a->given_up ||
	    (s->p.parts && a->ctl.cut_until > s->now) ||
	    !sim_agent_may_die(s, agent))
		return false;
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		const struct sim_agent_job *aj = &a->job[i];

		if (aj->left || aj->nback || s->job[i].over)
			return false;
		busy |= aj->core && !aj->over;
	}
	return busy;
}

bool sim_job_returns(const struct sim *s, const struct sim_job *j)
{
	for (uint32_t m = 0; m < j->p->n; m++)
		if (returns(s->agent[j->p->agent[m]], j->index))
			return true;
	return false;
}

bool sim_agent_again(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent];
	mono_t at = s->now + 20000000 + (mono_t)sim_below(s, NS_PER_SEC);

	if (!can_die(s, agent))
		return false;
	sim_trace(s, "a%u dies, to be started again", agent);
	sim_totals.agent_restarts++;
	a->alive = false;
	a->coming = true;
	sim_ctl_break(s, sim_agent_proc(agent), (mono_t)sim_below(s, 5000000));
	for (uint32_t v = 0; v < s->nservers; v++)
		for (struct sim_link *l = s->link[agent][v]; l; l = l->before)
			sim_link_died(s, l, 1);
	at = MAX(at, s->paused_until[sim_agent_proc(agent)] + 1);
	sim_at(s, at - s->now, &(struct sim_event){ .type = EV_AGENT_START, .proc = SIM_NOBODY,
						    .a = agent });
	return true;
}

/* ---- being started ---- */

static void end_links(struct sim *s, uint32_t agent)
{
	for (uint32_t v = 0; v < s->nservers; v++) {
		struct sim_link *l = s->link[agent][v];

		if (!l || l->ended)
			continue;
		l->ended = true;
		if (!sim_link_is_open(l, 0))
			sim_link_unlist(s, l);
	}
}

/* One of eight computes for longer than the grace, perhaps. */
static mono_t busy_until(struct sim *s)
{
	return sim_below(s, 8) ? 0 : s->now + (mono_t)sim_below(s, BUSY_MS) * NS_PER_MS;
}

static void keep_job(struct sim *s, const struct sim_job *j, uint32_t agent,
		     const struct sim_agent_job *from, struct sim_agent_job *to)
{
	to->over = from->over;
	to->code = from->code;
	for (uint32_t m = 0; m < j->p->n; m++)	/* also if its job was not back yet */
		to->over |= j->p->shrink && j->p->agent[m] == agent && !sim_machine_lives(j, m);
	if (!from->core || from->over)
		return;
	for (uint32_t r = 0; r < j->p->world; r++) {
		if (j->p->machine[r] != from->me || !sim_rank_lives(j, r))
			continue;
		to->nback++;
		to->busy_until[r] = MAX(from->busy_until[r], busy_until(s));
	}
}

static void start(struct sim *s, uint32_t agent)
{
	struct sim_agent *old = s->agent[agent], *a;

	if (s->stopped)
		return;
	sim_trace(s, "a%u is started again", agent);
	old->coming = false;
	end_links(s, agent);
	a = sim_agent_make(s, agent);
	a->before = old;
	a->life = old->life + 1;
	a->was_node = old->alone ? 0 : old->node;
	a->ctl = old->ctl;
	a->ctl.cut_until = 0;
	a->ctl.epoch_seen = a->ctl.beats = 0;
	memset(a->ctl.instance, (int)(10 + 8 * a->life + agent), ID_BYTES);
	for (uint32_t i = 0; i < s->p.njobs; i++)
		keep_job(s, &s->job[i], agent, &old->job[i], &a->job[i]);
	sim_agent_begin(s, agent);
	for (uint32_t i = 0; i < s->p.njobs; i++)
		sim_grow_machine(s, &s->job[i], agent);
}

/* ---- coming back ---- */

static void say_join(struct sim *s, uint32_t agent, const struct sim_job *j, uint32_t rank)
{
	const struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = BACK | (uint64_t)j->index << 32 | rank, .job = "back",
		.world = j->p->world, .rank = rank, .pid = 1 + rank, .uid = sim_uid(j),
		.timeout_ms = 1000000, .back = j->number,
	} };

	sim_ctl_send(s, sim_agent_proc(agent), &m);
}

static void say_alive(struct sim *s, uint32_t agent, const struct sim_job *j, uint32_t rank)
{
	const struct msg m = { .type = MSG_RANK_ALIVE, .rank_alive = {
		.job = j->number, .rank = rank,
	} };

	sim_ctl_send(s, sim_agent_proc(agent), &m);
}

static bool is_missing(const struct sim *s, uint32_t agent, const struct sim_job *j, uint32_t rank)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	return aj->nback && j->p->agent[j->p->machine[rank]] == agent &&
	       !aj->back[rank] && sim_rank_lives(j, rank);
}

/* As ad_alive_look() of the daemon; and who has computed enough is back. */
static void look(struct sim *s, uint32_t agent, struct sim_job *j, bool again)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	for (uint32_t r = 0; r < j->p->world; r++) {
		bool busy = aj->busy_until[r] != 0;

		if (!is_missing(s, agent, j, r) || (!busy && !again))
			continue;
		if (busy)
			say_alive(s, agent, j, r);
		if (s->now < aj->busy_until[r])
			continue;
		aj->busy_until[r] = 0;
		say_join(s, agent, j, r);
	}
}

void sim_back_ask(struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		look(s, agent, &s->job[i], true);
}

void sim_back_beat(struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		look(s, agent, &s->job[i], false);
}

/* Its agent waits for one less. */
void sim_back_lost(struct sim *s, uint32_t agent, const struct sim_job *j, uint32_t rank)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	if (aj->nback && !aj->back[rank]) {
		aj->back[rank] = true;
		aj->nback--;
	}
}

/* As keeps_up() of the daemon. */
static bool nobody_wants(struct sim *s, const struct sim_job *j, uint32_t agent)
{
	bool nobody = true;

	for (uint32_t r = 0; r < j->p->world; r++)
		if (j->p->agent[j->p->machine[r]] == agent)
			nobody &= !sim_rank_lives(j, r) && !(j->coming >> r & 1);
	for (uint32_t r = 0; r < j->p->world && nobody; r++)
		if (j->p->agent[j->p->machine[r]] == agent)
			sim_tell_lost(s, agent, j, r);
	return nobody;
}

/* A job that comes back is taken in as a whole, or, if a connection breaks, not at all. */
bool sim_back_keeps(struct sim *s, uint32_t agent, const struct msg *m)
{
	uint32_t number = m->type == MSG_JOB_UP ? m->job_up.job : m->tensors.job;
	const struct sim_job *j = sim_job_of(s, number);
	struct sim_agent_job *aj = j ? &s->agent[agent]->job[j->index] : NULL;
	bool up = m->type == MSG_JOB_UP, again = up && (m->job_up.seq || m->job_up.epoch_seq);

	if (!aj || (aj->core && !aj->over))
		return false;
	if (up)
		sim_back_drop(aj);
	if (again && ((aj->left && !aj->nback) || nobody_wants(s, j, agent)))
		return true;
	if (up ? !aj->nback && !m->job_up.epoch_seq : !aj->nwires)
		return false;
	ASSERT(aj->nwires < ARRAY_SIZE(aj->wire));
	aj->wire[aj->nwires++] = sim_wire(m);
	return true;
}

void sim_back_drop(struct sim_agent_job *aj)
{
	while (aj->nwires)
		free(aj->wire[--aj->nwires]);
}

void sim_back_take_in(struct sim *s, uint32_t agent, struct sim_job *j)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	uint32_t n = aj->nwires;
	uint8_t *wire[ARRAY_SIZE(aj->wire)];
	bool here = true;

	memcpy(wire, aj->wire, sizeof(wire));
	aj->nwires = 0;
	if (aj->over && n)
		here = sim_agent_anew(s, agent, j);
	for (uint32_t i = 0; i < n; i++) {
		struct msg m;
		void *mem = sim_read_wire(wire[i], &m);

		if (here)
			sim_agent_take(s, agent, &m);
		free(mem);
		free(wire[i]);
	}
	if (here && !aj->core)
		sim_fail(s, "agent %u: told that it has a job again, and not the job", agent);
}

/* As ad_join_check() of the daemon: whose end was not heard is told to be lost. */
static void check_ranks(struct sim *s, struct sim_job *j, uint32_t agent)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	for (uint32_t l = 0; l < aj->front.nlocal; l++)
		if (aj->front.live >> l & 1 && !sim_rank_lives(j, aj->front.rank[l]))
			sim_tell_lost(s, agent, j, aj->front.rank[l]);
}

bool sim_back_answered(struct sim *s, uint32_t agent, const struct msg_reply *m)
{
	struct sim_job *j = &s->job[m->req >> 32 & 1];
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	uint32_t rank = (uint32_t)m->req;

	if (!(m->req & BACK))
		return false;
	if (aj->over || aj->back[rank] || !sim_rank_lives(j, rank))
		return true;
	if (m->code) {
		if (!sim_job_may_end(s, j))
			sim_fail(s, "agent %u rank %u does not come back: %s", agent, rank,
				 m->text);
		sim_agent_stop_job(s, agent, j);
		aj->nback = 0;
		return true;
	}
	if (!aj->core) {
		sim_back_take_in(s, agent, j);
		check_ranks(s, j, agent);
		if (aj->core && !aj->over)
			sim_agent_ready(s, agent, j);
	}
	aj->back[rank] = true;
	/* As ad_back_inputs() of the daemon. */
	if (aj->core && !aj->over && j->rank[rank].passed > aj->barriers) {
		aj->barriers = j->rank[rank].passed;
		sim_agent_ready(s, agent, j);
	}
	if (!s->failed)
		sim_rank_back(s, j, rank);
	aj->nback--;
	sim_ask_back(s, agent);
	return true;
}

/* ---- what the ranks have kept ---- */

uint32_t sim_back_round(const struct sim *s, const struct sim_job *j, uint32_t agent, uint32_t k)
{
	uint32_t round = 0;

	for (uint32_t r = 0; r < j->p->world && s->agent[agent]->life; r++)
		if (j->p->agent[j->p->machine[r]] == agent)
			round = MAX(round, j->rank[r].done[k]);
	return round;
}

/* The newest that any process of this agent had. */
const struct sim_agent_tensor *sim_back_tensor(const struct sim_agent *a, uint32_t job,
					       uint32_t k)
{
	for (a = a->before; a; a = a->before)
		if (a->job[job].tensor[k].result)
			return &a->job[job].tensor[k];
	return NULL;
}

bool sim_return_event(struct sim *s, const struct sim_event *e)
{
	if (e->type != EV_AGENT_START)
		return false;
	start(s, e->a);
	return true;
}
