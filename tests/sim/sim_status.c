// SPDX-License-Identifier: Apache-2.0
/*
 * What `tally status`, `nodes`, `jobs` and `tensors` say, beside what is so.
 *
 * The CLI asks at odd moments, and whenever control is quiet: no message is on its way and
 * all who live are registered.  At any moment what the scheduler says must be what it has been
 * told and has told others: who is connected, under which number, with which last heartbeat;
 * that it cannot save, or recovers.  In quiet moments it must be what is so at agents and
 * servers: epoch, tensors and where their chunks are, who is attached, who serves, who is
 * drained, who is waited for at a barrier, and no round may be called stuck that is over.
 */
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/sched.h"
#include "tests/sim/sim.h"

#define STATUS_OF	32u		/* so many control events at odd moments */

/* ---- nodes ---- */

static bool is_up(const struct msg_node_row *row)
{
	return !strcmp(row->state, "up") || !strcmp(row->state, "draining") ||
	       !strcmp(row->state, "drained");
}

static const struct msg_node_row *node_row(const struct msg_report *r, uint32_t node)
{
	for (uint32_t i = 0; i < r->nnodes; i++)
		if (r->nodes[i].node == node)
			return &r->nodes[i];
	return NULL;
}

/* One that is connected: all of it must be said. */
static void look_at_conn(struct sim *s, const struct msg_report *r, uint32_t conn)
{
	const struct msg_node_row *row = node_row(r, s->conn[conn].node);
	mono_t heard = sim_clock(s, SIM_SCHED) - s->conn[conn].heard;
	uint32_t proc = s->conn[conn].who;
	char name[16], machine[16];

	sim_proc_name(s, proc, name, machine);
	if (!row || !is_up(row)) {
		sim_fail(s, "status: %s is connected as node %u, and is %s", name,
			 s->conn[conn].node, row ? row->state : "not there");
		return;
	}
	if (row->kind != (proc < SIM_AGENTS ? NODE_AGENT : NODE_SERVER) ||
	    strcmp(row->name, name) || strcmp(row->machine, machine))
		sim_fail(s, "status: %s on %s is called %s on %s", name, machine, row->name,
			 row->machine);
	/* While the scheduler stood still nobody could be heard. */
	if (s->conn[conn].heard > s->deaf_until &&
	    row->heartbeat_age_ms != (uint64_t)(heard / NS_PER_MS))
		sim_fail(s, "status: %s was heard %llu ms ago, not %llu", name,
			 (unsigned long long)heard / NS_PER_MS,
			 (unsigned long long)row->heartbeat_age_ms);
	if (s->conn[conn].beat && row->last.seq != s->conn[conn].beat)
		sim_fail(s, "status: heartbeat %llu of %s is shown, the last was %llu",
			 (unsigned long long)row->last.seq, name,
			 (unsigned long long)s->conn[conn].beat);
}

/* It is given up for want of memory, and closed when there is some. */
static bool is_doomed(const struct sim *s, const struct msg_report *r, uint32_t conn)
{
	const struct msg_node_row *row = node_row(r, s->conn[conn].node);

	return s->p.famine && row && !strcmp(row->state, "dead");
}

static void look_at_nodes(struct sim *s, const struct msg_report *r)
{
	uint32_t connected = 0, up = 0;

	for (uint32_t i = 0; i < SIM_CONNS; i++) {
		if (!s->conn[i].node || is_doomed(s, r, i))
			continue;
		connected++;
		look_at_conn(s, r, i);
	}
	for (uint32_t i = 0; i < r->nnodes; i++)
		up += is_up(&r->nodes[i]);
	if (up != connected)
		sim_fail(s, "status: %u nodes are up, %u are connected", up, connected);
}

/* ---- the scheduler itself ---- */

static void look_at_state(struct sim *s, const struct msg_report *r)
{
	mono_t now = sim_clock(s, SIM_SCHED), left = s->recovers_until - now;
	const char *want = s->save_failed ? "cannot save" : left > 0 ? "recovering" : "active";
	/* Its timer, and an agent that is away for a moment. */
	bool due = !s->save_failed && left <= 0 && left > -mono_ms(LEASE_MS) - NS_PER_MS;

	if (strcmp(r->state, want) && !(due && !strcmp(r->state, "recovering")))
		sim_fail(s, "status: the scheduler is %s, not %s", want, r->state);
	if (r->uptime_ms != (uint64_t)((now - s->sched_since) / NS_PER_MS))
		sim_fail(s, "status: up for %llu ms", (unsigned long long)r->uptime_ms);
	if (r->epoch < s->epoch_told)
		sim_fail(s, "status: the epoch goes back from %llu to %llu",
			 (unsigned long long)s->epoch_told, (unsigned long long)r->epoch);
	s->epoch_told = r->epoch;
}

/* ---- in quiet moments: jobs ---- */

static bool lives(const struct sim *s, uint32_t proc)
{
	const struct sim_server *v = proc < SIM_AGENTS ? NULL : s->server[proc - SIM_AGENTS];

	return v ? v->alive && !v->replaced : s->agent[proc]->alive;
}

static bool is_settled(struct sim *s, uint32_t proc)
{
	const struct sim_ctl *c = sim_ctl_of(s, proc);

	return !lives(s, proc) || (c->registered && !c->lost && c->open[0] && c->open[1] &&
				   s->conn[c->conn].node);
}

bool sim_is_quiet(struct sim *s)
{
	if (!s->sched || s->sched_still > s->now || s->stopped || s->ctl_msgs ||
	    sched_recovering(s->sched))
		return false;
	for (uint32_t i = 0; i < s->p.n; i++)
		if (!is_settled(s, sim_agent_proc(i)))
			return false;
	for (uint32_t i = 0; i < s->nservers; i++)
		if (!is_settled(s, sim_server_proc(i)))
			return false;
	for (uint32_t i = 0; i < SIM_CONNS; i++)	/* an end that it has not noticed */
		if (s->conn[i].node && (s->conn[i].proc == SIM_NOBODY ||
					!lives(s, s->conn[i].proc)))
			return false;
	return true;
}

static struct sim_agent_job *at_machine(struct sim *s, const struct sim_job *j, uint32_t machine)
{
	return &s->agent[j->p->agent[machine]]->job[j->index];
}

bool sim_has_job(struct sim *s, const struct sim_job *j, uint32_t machine)
{
	const struct sim_agent_job *aj = at_machine(s, j, machine);

	return s->agent[j->p->agent[machine]]->alive && aj->core && !aj->over && !aj->nback;
}

/* Each machine has it, or is out of it for good: nobody is waited for. */
static bool is_whole(struct sim *s, const struct sim_job *j)
{
	uint32_t have = 0;

	for (uint32_t m = 0; m < j->p->n; m++) {
		const struct sim_agent *a = s->agent[j->p->agent[m]];
		const struct sim_agent_job *aj = at_machine(s, j, m);
		bool has = sim_has_job(s, j, m);

		if (!has && (a->coming || aj->nback || sim_machine_lives(j, m)))
			return false;
		if (has && !sim_machine_lives(j, m))
			return false;		/* it comes in, or goes, just now */
		have += has;
	}
	return have && !j->ended && !j->starved && !sim_job_is_lost(s, j);
}

/* Some rank has asked that of the scheduler, and waits; now: on this connection. */
static bool waits(struct sim *s, const struct sim_job *j, enum msg_type type, uint32_t rank,
		  uint32_t k, bool now)
{
	for (uint32_t i = 0; i < j->nasked; i++) {
		const struct sim_asked *q = &j->asked[i];
		uint32_t agent = j->p->agent[j->p->machine[q->rank]];

		if (q->type == type && !q->done && !q->answered &&
		    (!now || q->gen == s->agent[agent]->ctl.gen) && sim_rank_lives(j, q->rank) &&
		    (rank == SIM_NOBODY || q->rank == rank) &&
		    (k == SIM_NOBODY || (k >= q->first && k < q->first + MAX(q->n, 1))))
			return true;
	}
	return false;
}

static bool serves(const struct sim_server *v, const struct sim_job *j)
{
	const struct srv_job *core = v->job[j->index].core;

	return v->alive && !v->replaced && core && !core->stopped && core->id == j->number;
}

/* It has let go of the job; that may have been lost with its connection, and is waited for. */
static bool lets_go(struct sim *s, const struct sim_job *j, const struct msg_job_row *row)
{
	bool any = false;

	for (uint32_t i = 0; i < s->nservers; i++) {
		const struct sim_server *v = s->server[i];
		const struct srv_job *core = v->job[j->index].core;

		any |= v->alive && !v->replaced && core && core->stopped &&
		       core->id == j->number;
	}
	return any && !strncmp(row->waiting_for, "server ", 7);
}

static void look_at_ranks(struct sim *s, const struct sim_job *j, const struct msg_job_row *row)
{
	uint32_t in = 0, servers = 0;

	for (uint32_t r = 0; r < j->p->world; r++)
		in += sim_rank_lives(j, r) && !at_machine(s, j, j->p->machine[r])->left;
	for (uint32_t i = 0; i < s->nservers; i++)
		servers += serves(s->server[i], j);
	if (row->world != j->p->world || row->machines != j->p->n)
		sim_fail(s, "status: job %u has world %u on %u machines", j->index, row->world,
			 row->machines);
	/* Who comes in may be, and have not heard it yet; nor has its agent of who gave up. */
	if (row->attached < in ||
	    row->attached > in + (uint32_t)__builtin_popcount(j->coming | j->gave_up))
		sim_fail(s, "status: job %u has %u ranks, not %u", j->index, in, row->attached);
	if (row->servers != servers)
		sim_fail(s, "status: job %u has %u servers, not %u", j->index, servers,
			 row->servers);
}

static void look_at_waiting(struct sim *s, const struct sim_job *j, const struct msg_job_row *row)
{
	const char *why = row->waiting_for;
	bool barrier = strstr(why, " at a barrier"), moves = false;
	uint32_t rank = strncmp(why, "rank", 4) ? SIM_NOBODY :
			(uint32_t)strtoul(why + strcspn(why, "0123456789"), NULL, 10);

	for (uint32_t m = 0; m < j->p->n; m++)
		moves |= sim_has_job(s, j, m) && at_machine(s, j, m)->settled_told != row->epoch;
	if (!strcmp(why, "chunks to move") && !moves)
		sim_fail(s, "status: job %u waits for %s, and all are there", j->index, why);
	if (barrier && !waits(s, j, MSG_BARRIER, SIM_NOBODY, SIM_NOBODY, false))
		sim_fail(s, "status: job %u waits for %s, and nobody is there", j->index, why);
	if (barrier && rank != SIM_NOBODY && waits(s, j, MSG_BARRIER, rank, SIM_NOBODY,
						  true))
		sim_fail(s, "status: job %u waits for %s, which is there", j->index, why);
	if (!why[0] && waits(s, j, MSG_BARRIER, SIM_NOBODY, SIM_NOBODY, true))
		sim_fail(s, "status: job %u waits for nobody, and some are at a barrier",
			 j->index);
}

/* ---- tensors ---- */

static const struct msg_tensor_row *tensor_row(const struct msg_report *r, uint32_t job,
					       uint32_t k)
{
	char name[16];

	snprintf(name, sizeof(name), "t%u", k);
	for (uint32_t i = 0; i < r->ntensors; i++)
		if (r->tensors[i].job == job && !strcmp(r->tensors[i].name, name))
			return &r->tensors[i];
	return NULL;
}

/* Where the scheduler's placement has its chunks, beside where an agent goes with them. */
static void look_at_chunks(struct sim *s, const struct sim_job *j, const struct sim_log *l,
			   uint32_t k)
{
	struct sched_job *sj = job_by_number(s->sched, j->number);
	const struct sched_tensor *t = tensor_by_id(sj, l->id[k]);

	for (uint32_t c = 0; t && j->p->n > 1 && c < geom_chunks(&j->tensor[k].geom); c++)
		if (t->place.owner[c] != l->owner[k][c] || t->place.since[c] != l->since[k][c])
			sim_fail(s, "job %u: chunk %u of tensor %u is in row %u since epoch %u, "
				 "and for an agent in row %u since %u", j->index, c, k + 1,
				 t->place.owner[c], t->place.since[c], l->owner[k][c],
				 l->since[k][c]);
}

static uint64_t look_at_tensor(struct sim *s, const struct sim_job *j, const struct sim_log *l,
			       const struct msg_report *r, uint32_t k)
{
	const struct msg_tensor_row *row = tensor_row(r, j->number, k);
	const struct sim_tensor *t = &j->tensor[k];
	bool here = sim_log_tensor(l, l->id[k]) == k && l->id[k];
	bool up = row && !strcmp(row->state, "up");
	bool ends = row && !strcmp(row->state, "undeclaring");

	if (here ? !up && !ends : up) {		/* a server had no memory for it: it ends, too */
		sim_fail(s, "status: job %u, agents have %s tensor %u, which is %s", j->index,
			 here ? "a" : "no", k + 1, row ? row->state : "not there");
		return 0;
	}
	if ((here && ends && !waits(s, j, MSG_UNDECLARE, SIM_NOBODY, k, false)) ||
	    (up && waits(s, j, MSG_UNDECLARE, SIM_NOBODY, k, true)) ||
	    (row && !strcmp(row->state, "declaring") &&
	     !waits(s, j, MSG_DECLARE, SIM_NOBODY, k, false)))
		sim_fail(s, "status: job %u tensor %u is %s", j->index, k + 1, row->state);
	if (!here)
		return ends ? t->geom.bytes * SIM_SCALE : 0;
	if (row->id != l->id[k] || row->dtype != t->dtype ||
	    row->count * dtype_bytes(t->dtype) != t->geom.bytes * SIM_SCALE ||
	    row->chunks != geom_chunks(&t->geom))
		sim_fail(s, "status: job %u tensor %u, id %u, %u chunks, is another one", j->index,
			 k + 1, row->id, row->chunks);
	look_at_chunks(s, j, l, k);
	return t->geom.bytes * SIM_SCALE;
}

static void look_at_log(struct sim *s, const struct sim_job *j, uint32_t machine,
			const struct msg_report *r, const struct msg_job_row *row)
{
	const struct sim_agent_job *aj = at_machine(s, j, machine);
	uint64_t bytes = 0;

	if (!sim_has_job(s, j, machine))
		return;
	if (aj->epoch != row->epoch)
		sim_fail(s, "status: job %u is in epoch %llu, machine %u in %llu", j->index,
			 (unsigned long long)row->epoch, machine, (unsigned long long)aj->epoch);
	for (uint32_t k = 0; k < j->p->ntensors && !s->failed; k++)
		bytes += look_at_tensor(s, j, &aj->log, r, k);
	if (row->bytes != bytes)
		sim_fail(s, "status: job %u has %llu bytes of tensors, not %llu", j->index,
			 (unsigned long long)bytes, (unsigned long long)row->bytes);
}

static void look_at_job(struct sim *s, const struct sim_job *j, const struct msg_report *r,
			const struct msg_job_row *row)
{
	if (!is_whole(s, j) || row->job != j->number || strstr(row->waiting_for, "agent "))
		return;		/* ranks that are lost may be back, for all that it knows */
	if (lets_go(s, j, row))
		return;
	look_at_ranks(s, j, row);
	look_at_waiting(s, j, row);
	for (uint32_t m = 0; m < j->p->n && !s->failed; m++)
		look_at_log(s, j, m, r, row);
	for (uint32_t i = 0; i < r->nstuck && !s->failed; i++)
		if (r->stuck[i].job == row->job)
			sim_wait_row(s, j, &r->stuck[i]);
	sim_wait_look(s, j, r, row);
}

/* A server says what it was told of itself, and has a job as long as it serves one. */
static void look_at_server(struct sim *s, const struct msg_report *r, const struct sim_server *v)
{
	const struct msg_node_row *row = node_row(r, v->node);
	const char *want = "up";

	if (!v->alive || v->replaced || !row)
		return;
	if (v->draining)
		want = row->jobs ? "draining" : "drained";
	if (strcmp(row->state, want))
		sim_fail(s, "status: server s%u is %s, not %s", v->name, want, row->state);
}

static void look_at_quiet(struct sim *s, const struct msg_report *r)
{
	for (uint32_t i = 0; i < r->nnodes; i++)	/* it may come back, and is waited for */
		if (!strcmp(r->nodes[i].state, "away"))
			return;
	sim_totals.quiet++;
	for (uint32_t i = 0; i < s->nservers && !s->failed; i++) {
		look_at_server(s, r, s->server[i]);
		sim_server_kept(s, i);
	}
	for (uint32_t i = 0; i < r->njobs && !s->failed; i++)
		if (!strcmp(r->jobs[i].state, "up"))
			look_at_job(s, &s->job[r->jobs[i].name[3] - '0'], r, &r->jobs[i]);
}

/* ---- as the CLI does ---- */

void sim_status_told(struct sim *s, const struct msg *m)
{
	uint8_t *wire = sim_wire(m);
	struct msg got;
	void *mem = sim_read_wire(wire, &got);

	sim_totals.looks++;
	look_at_state(s, &got.report);
	look_at_nodes(s, &got.report);
	if (!s->failed && sim_is_quiet(s))
		look_at_quiet(s, &got.report);
	free(mem);
	free(wire);
}

bool sim_status_due(struct sim *s)
{
	return s->sched && s->sched_still <= s->now && !s->stopped &&
	       (sim_is_quiet(s) || ++s->looks % STATUS_OF == 0);
}
