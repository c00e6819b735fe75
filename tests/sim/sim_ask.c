// SPDX-License-Identifier: Apache-2.0
/*
 * What ranks ask the scheduler through their agents.  Answers may be lost with a
 * connection: a JOIN is asked again at once after a registration, the others a moment
 * later if no answer has come, under the same number, and none may end in an error.
 */
#include <stdio.h>

#include "tests/sim/sim.h"

#define ASK_AGAIN_MS	300u
#define REQ(job, i)	((uint64_t)((job)->index + 1) << 32 | ((i) + 1))

bool sim_job_is_lost(const struct sim *s, const struct sim_job *j)
{
	if (j->p->shrink)
		return j->ended || j->lost == (1u << j->p->world) - 1;
	if (j->dying)
		return true;
	for (uint32_t m = 0; m < j->p->n; m++)
		if (!s->agent[j->p->agent[m]]->alive && !s->agent[j->p->agent[m]]->coming)
			return true;
	return false;
}

bool sim_job_may_end(const struct sim *s, const struct sim_job *j)
{
	return j->starved || sim_job_is_lost(s, j);
}

static uint32_t agent_of(const struct sim_job *j, uint32_t rank)
{
	return j->p->agent[j->p->machine[rank]];
}

static void ask_join(struct sim *s, const struct sim_job *j, uint32_t i)
{
	char name[8];
	const struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = REQ(j, i), .job = name, .world = j->p->world, .rank = j->asked[i].rank,
		.pid = sim_pid(j, j->asked[i].rank), .uid = sim_uid(j), .timeout_ms = 1000000,
		.chunk_bytes = s->p.chunk_bytes * SIM_SCALE,
		.on_loss = j->p->shrink ? ON_LOSS_SHRINK : ON_LOSS_ERROR,
	} };

	snprintf(name, sizeof(name), "job%u", j->index);
	sim_ctl_send(s, sim_agent_proc(agent_of(j, j->asked[i].rank)), &m);
}

static void ask_declare(struct sim *s, const struct sim_job *j, uint32_t i)
{
	const struct sim_asked *q = &j->asked[i];
	struct msg_tensor t[SIM_TENSORS];
	char name[SIM_TENSORS][16];
	const struct msg m = { .type = MSG_DECLARE, .declare = {
		.req = REQ(j, i), .job = j->number, .rank = q->rank, .timeout_ms = 1000000,
		.ntensors = q->n, .tensors = t,
	} };

	if (q->first == SIM_ODD) {
		t[0] = (struct msg_tensor){
			.name = "odd", .dtype = DTYPE_F32,
			.count = 100 + (q->rank == j->index % j->p->world),
		};
		sim_ctl_send(s, sim_agent_proc(agent_of(j, q->rank)), &m);
		return;
	}
	for (uint32_t k = 0; k < q->n; k++) {
		const struct sim_tensor *x = &j->tensor[q->first + k];

		snprintf(name[k], sizeof(name[k]), "t%u", q->first + k);
		t[k] = (struct msg_tensor){
			.name = name[k], .dtype = x->dtype,
			.count = x->geom.bytes / dtype_bytes(x->dtype) * SIM_SCALE,
		};
	}
	sim_ctl_send(s, sim_agent_proc(agent_of(j, q->rank)), &m);
}

static void ask_undeclare(struct sim *s, const struct sim_job *j, uint32_t i)
{
	const struct sim_asked *q = &j->asked[i];
	const struct msg m = { .type = MSG_UNDECLARE, .ids = {
		.req = REQ(j, i), .job = j->number, .rank = q->rank, .timeout_ms = 1000000,
		.nids = 1, .ids = &q->id,
	} };

	sim_ctl_send(s, sim_agent_proc(agent_of(j, q->rank)), &m);
}

static void ask_barrier(struct sim *s, const struct sim_job *j, uint32_t i)
{
	const struct sim_asked *q = &j->asked[i];
	const struct msg m = { .type = MSG_BARRIER, .barrier = {
		.req = REQ(j, i), .job = j->number, .rank = q->rank, .timeout_ms = 1000000,
		.generation = q->id, .grow = j->p->grow,
	} };

	sim_ctl_send(s, sim_agent_proc(agent_of(j, q->rank)), &m);
}

bool sim_is_with_agent(const struct sim *s, const struct sim_job *j, uint32_t rank)
{
	const struct sim_agent_job *aj = &s->agent[agent_of(j, rank)]->job[j->index];

	return !aj->nback || aj->back[rank] || !sim_rank_lives(j, rank);
}

static void ask(struct sim *s, struct sim_job *j, uint32_t i)
{
	const struct sim_ctl *c = &s->agent[agent_of(j, j->asked[i].rank)]->ctl;

	if (!c->registered || !sim_is_with_agent(s, j, j->asked[i].rank))
		return;			/* asked when it is */
	j->asked[i].gen = c->gen;
	j->asked[i].answered = false;
	if (j->asked[i].type == MSG_RANK_JOIN)
		ask_join(s, j, i);
	else if (j->asked[i].type == MSG_DECLARE)
		ask_declare(s, j, i);
	else if (j->asked[i].type == MSG_BARRIER)
		ask_barrier(s, j, i);
	else
		ask_undeclare(s, j, i);
}

static void ask_new(struct sim *s, struct sim_job *j, const struct sim_asked *q)
{
	ASSERT(j->nasked < SIM_ASKED);
	j->asked[j->nasked] = *q;
	j->asked[j->nasked].life = j->rank[q->rank].life;
	ask(s, j, j->nasked++);
}

uint32_t sim_uid(const struct sim_job *j)
{
	return 1000 + j->index / 2;
}

uint32_t sim_pid(const struct sim_job *j, uint32_t rank)
{
	return 1 + rank + 1000 * j->rank[rank].life;
}

void sim_ask_ended(struct sim_job *j, uint32_t rank)
{
	j->coming &= ~(1u << rank);
	j->rank[rank].life++;
	j->rank[rank].heard = false;
	for (uint32_t i = 0; i < j->nasked; i++)
		j->asked[i].done |= j->asked[i].rank == rank;
}

void sim_ask_join(struct sim *s, struct sim_job *j, uint32_t rank)
{
	ask_new(s, j, &(struct sim_asked){ .type = MSG_RANK_JOIN, .rank = rank });
}

void sim_join(struct sim *s, struct sim_job *j)
{
	for (uint32_t r = 0; r < j->p->world; r++)
		ask_new(s, j, &(struct sim_asked){ .type = MSG_RANK_JOIN, .rank = r });
}

void sim_declare_one(struct sim *s, struct sim_job *j, uint32_t rank, uint32_t first, uint32_t n)
{
	ask_new(s, j, &(struct sim_asked){ .type = MSG_DECLARE, .rank = rank, .first = first,
					   .n = n });
}

void sim_declare(struct sim *s, struct sim_job *j, uint32_t first, uint32_t n)
{
	for (uint32_t r = 0; r < j->p->world; r++)
		if (sim_rank_lives(j, r))
			sim_declare_one(s, j, r, first, n);
}

static uint32_t connection_of(const struct sim *s, const struct sim_job *j, uint32_t rank)
{
	const struct sim_agent *a = s->agent[agent_of(j, rank)];

	return a->life << 16 | (a->ctl.gen & 0xffff);
}

void sim_disagree(struct sim *s, struct sim_job *j)
{
	j->odd_of = s->sched_lives;
	for (uint32_t r = 0; r < j->p->world; r++)
		if (sim_rank_lives(j, r))
			ask_new(s, j, &(struct sim_asked){
				.type = MSG_DECLARE, .rank = r, .first = SIM_ODD, .n = 1,
				.id = connection_of(s, j, r) });
}

bool sim_disagrees(const struct sim *s, const struct sim_job *j)
{
	if (j->odd_of != s->sched_lives)	/* who has heard it does not ask the next one */
		return false;
	for (uint32_t i = 0; i < j->nasked; i++) {
		const struct sim_asked *q = &j->asked[i];

		/* The answer, the last known of it, may be lost with agent or connection. */
		if (q->type == MSG_DECLARE && q->first == SIM_ODD && !q->done &&
		    sim_rank_lives(j, q->rank) && connection_of(s, j, q->rank) == q->id)
			return true;
	}
	return false;
}

void sim_undeclare(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t k)
{
	for (uint32_t r = 0; r < j->p->world; r++)
		if (agent_of(j, r) == agent && sim_rank_lives(j, r))
			ask_new(s, j, &(struct sim_asked){ .type = MSG_UNDECLARE, .rank = r,
							   .first = k, .id = j->tensor[k].id });
}

void sim_barrier(struct sim *s, struct sim_job *j, uint32_t rank)
{
	ask_new(s, j, &(struct sim_asked){ .type = MSG_BARRIER, .rank = rank,
					   .id = ++j->rank[rank].barriers });
}

/* Nobody comes out before all have gone in. */
static void passed(struct sim *s, struct sim_job *j, const struct sim_asked *q)
{
	struct sim_agent_job *aj = &s->agent[agent_of(j, q->rank)]->job[j->index];
	struct sim_rank *r = &j->rank[q->rank];
	bool first = true;

	for (uint32_t o = 0; o < j->p->world; o++)
		first &= j->rank[o].passed < q->id;
	if (first)
		sim_life_opened(s, agent_of(j, q->rank));
	if (r->passed + 1 != q->id)
		sim_fail(s, "job %u rank %u passes barrier %u after %u", j->index, q->rank, q->id,
			 r->passed);
	r->passed = q->id;
	aj->barriers = MAX(aj->barriers, q->id);
	sim_totals.barriers++;
	for (uint32_t o = 0; o < j->p->world; o++)
		if (j->rank[o].barriers < q->id && sim_rank_lives(j, o))
			sim_fail(s, "job %u rank %u passes barrier %u without rank %u", j->index,
				 q->rank, q->id, o);
	sim_grow_passed(s, j, q->rank, q->id);
	sim_rank_wakes(s, j, q->rank);
}

/* There may be memory then. */
static void ask_later(struct sim *s, uint32_t agent, struct sim_asked *q)
{
	q->done = false;
	q->gen = 0;
	sim_at(s, (mono_t)sim_below(s, NS_PER_SEC), &(struct sim_event){ .type = EV_ASK,
		.proc = sim_agent_proc(agent), .a = agent, .b = s->agent[agent]->ctl.gen });
}

/*
 * Tensors for which a server had no memory are declared again, and whatever it was for which
 * the scheduler had none; nothing else may fail.
 */
static void refused(struct sim *s, uint32_t agent, struct sim_job *j,
		    struct sim_asked *q, const struct msg_reply *m, bool before)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	/* Its machine is out of the job, or who was there before is waited for. */
	bool out = q->type == MSG_RANK_JOIN && (m->code == TALLY_EWORKERLOST ||
						(m->code == TALLY_EEXIST && aj->nback));
	bool memory = q->type == MSG_DECLARE && s->p.starve &&
		      (m->code == TALLY_ENOMEM || m->code == TALLY_EBUSY);
	bool famine = j->starved && s->p.famine && m->code == TALLY_ENOMEM;

	memory |= famine && q->type == MSG_DECLARE;
	if (q->type == MSG_RANK_JOIN && (out || aj->over || famine)) {	/* not, or not yet */
		j->coming &= ~(1u << q->rank);
		sim_grow_lost(s, j, q->rank);
	}
	if (aj->over || aj->left || out ||
	    (!sim_rank_lives(j, q->rank) && !(j->coming >> q->rank & 1)))
		return;
	if (memory && !before)
		sim_at(s, (mono_t)sim_below(s, NS_PER_SEC), &(struct sim_event){
			.type = EV_DECLARE, .proc = SIM_NOBODY, .a = q->rank + 1,
			.b = q->first << 16 | q->life << 8 | q->n, .c = j->index });
	else if (famine && !before && (q->type == MSG_BARRIER || q->type == MSG_UNDECLARE))
		ask_later(s, agent, q);
	else if (!memory && !sim_job_may_end(s, j))
		sim_fail(s, "agent %u is told: %s", agent, m->text);
}

/* A rank hears that they disagree, whoever asked first; or that somebody has no memory just now. */
static void odd_refused(struct sim *s, uint32_t agent, struct sim_job *j, struct sim_asked *q,
			const struct msg_reply *m)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	if (aj->over || aj->left || !sim_rank_lives(j, q->rank))
		return;
	if (m->code == TALLY_EMISMATCH && strstr(m->text, "tensor 'odd'"))
		sim_totals.disagreed++;
	else if (m->code == TALLY_ENOMEM && (s->p.starve || s->p.famine))
		ask_later(s, agent, q);
	else if (!sim_job_may_end(s, j))
		sim_fail(s, "agent %u, of a tensor on which ranks disagree: %s", agent, m->text);
}

static bool has_all(const struct sim_agent_job *aj, const struct sim_asked *q)
{
	for (uint32_t k = q->first; k < q->first + q->n; k++)
		if (!aj->tensor[k].front)
			return false;
	return true;
}

/* As all_ready() of the daemon: an answer counts when the tensors are there, too. */
void sim_declared(struct sim *s, struct sim_job *j, uint32_t agent)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	for (uint32_t i = 0; i < j->nasked; i++) {
		struct sim_asked *q = &j->asked[i];

		if (!q->answered || q->done || agent_of(j, q->rank) != agent || !has_all(aj, q))
			continue;
		q->done = true;
		for (uint32_t k = q->first; k < q->first + q->n; k++) {
			j->rank[q->rank].declared[k] = true;
			j->tensor[k].id = aj->log.id[k];
		}
	}
}

void sim_answered(struct sim *s, uint32_t agent, const struct msg_reply *m)
{
	uint32_t job = (uint32_t)(m->req >> 32) - 1, i = (uint32_t)m->req - 1;
	const struct sim_agent_job *aj;
	struct sim_asked *q;
	bool before;

	if (!m->req)
		return;			/* the registration was refused, and is tried again */
	if (job >= s->p.njobs || i >= s->job[job].nasked) {
		sim_fail(s, "agent %u hears an answer to nothing: %s", agent, m->text);
		return;
	}
	q = &s->job[job].asked[i];
	if (q->life != s->job[job].rank[q->rank].life)
		return;			/* the process that asked has ended */
	before = q->done;
	q->done = true;			/* asked again it may be answered again, and alike */
	if (q->type == MSG_DECLARE && q->first == SIM_ODD && !m->code) {
		sim_fail(s, "agent %u: ranks disagree on a tensor, and nobody says so", agent);
	} else if (q->type == MSG_DECLARE && q->first == SIM_ODD) {
		odd_refused(s, agent, &s->job[job], q, m);
		return;
	}
	if (m->code) {
		refused(s, agent, &s->job[job], q, m, before);
		return;
	}
	if (q->type == MSG_DECLARE && !before) {
		q->done = false;
		q->answered = true;
		sim_declared(s, &s->job[job], agent);
	}
	aj = &s->agent[agent]->job[job];
	if (q->type == MSG_RANK_JOIN && !before && !aj->core && !aj->nwires && !aj->over)
		sim_fail(s, "agent %u: rank %u is in a job that it has not heard of", agent,
			 q->rank);
	if (q->type == MSG_RANK_JOIN && q->life && !before)
		sim_grow_answered(s, &s->job[job], q->rank);
	if (q->type == MSG_BARRIER && !before)
		passed(s, &s->job[job], q);
}

static void ask_again(struct sim *s, uint32_t agent, bool join)
{
	for (uint32_t n = 0; n < s->p.njobs; n++) {
		struct sim_job *j = &s->job[n];

		for (uint32_t i = 0; i < j->nasked; i++) {
			const struct sim_asked *q = &j->asked[i];

			if (s->agent[agent]->job[n].over && !(j->coming >> q->rank & 1))
				continue;
			if (!sim_rank_lives(j, q->rank) && !(j->coming >> q->rank & 1))
				continue;
			if (q->done || agent_of(j, q->rank) != agent ||
			    !sim_is_with_agent(s, j, q->rank) ||
			    q->gen == s->agent[agent]->ctl.gen ||
			    (q->type == MSG_RANK_JOIN) != join)
				continue;
			sim_totals.asked_again++;
			ask(s, j, i);
		}
	}
}

void sim_ask_back(struct sim *s, uint32_t agent)
{
	ask_again(s, agent, false);
}

void sim_ask_welcomed(struct sim *s, uint32_t agent)
{
	ask_again(s, agent, true);
	sim_at(s, mono_ms(ASK_AGAIN_MS), &(struct sim_event){ .type = EV_ASK,
		.proc = sim_agent_proc(agent), .a = agent, .b = s->agent[agent]->ctl.gen });
}

bool sim_ask_event(struct sim *s, const struct sim_event *e)
{
	if (e->type != EV_ASK)
		return false;
	if (s->agent[e->a]->ctl.gen == e->b && s->agent[e->a]->ctl.registered)
		ask_again(s, e->a, false);
	return true;
}
