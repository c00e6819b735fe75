// SPDX-License-Identifier: Apache-2.0
/*
 * Whom a round waits for, as the status says it, beside who has not done his part.
 *
 * A rank has when it has submitted the round.  What agents say is as old as their last
 * heartbeats, and what they know is, by a question that is asked again: so who has done his
 * part may be named for NAMED_MS from when the last of it came to some server, or for SERVER_MS
 * where it may have been lost on the way, and not longer.  A server may be named as long as
 * anything may have kept it from answering.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

#define NAMED_MS	(PROBE_MAX_MS + STUCK_MS)	/* all have asked again by then */
#define SERVER_MS	(NAMED_MS + 4 * PROBE_MAX_MS)	/* and what was lost is there */

void sim_wait_said(const struct sim *s, uint32_t agent, const struct msg_stuck *m)
{
	static const char *const kind[] = { "nobody", "rank", "machine", "server", "link to" };

	for (uint32_t i = 0; s->trace && i < m->nwaits; i++)
		sim_trace(s, "a%u: job %u tensor id %u round %u waits for %s %u, chunk %u, %u of "
			  "them", agent, m->job, m->waits[i].tensor, m->waits[i].round,
			  kind[m->waits[i].kind], m->waits[i].who, m->waits[i].chunk,
			  m->waits[i].chunks);
}

/* Each agent's last heartbeat, and what it said of rounds with it, was sent since then. */
static bool all_said_since(struct sim *s, const struct sim_job *j, mono_t at)
{
	for (uint32_t m = 0; m < j->p->n; m++) {
		const struct sim_ctl *c = &s->agent[j->p->agent[m]]->ctl;

		if (sim_has_job(s, j, m) &&
		    (s->conn[c->conn].beat != c->beats || c->beat_at <= at))
			return false;
	}
	return true;
}

static bool owes(const struct sim_job *j, uint32_t rank, uint32_t k, uint32_t round)
{
	return j->rank[rank].submitted[k] < round;
}

/* Chunks are on their way to other servers. */
static bool moves(struct sim *s, const struct sim_job *j)
{
	for (uint32_t m = 0; m < j->p->n; m++) {
		const struct sim_agent_job *aj = &s->agent[j->p->agent[m]]->job[j->index];

		if (sim_has_job(s, j, m) && aj->settled_told != aj->epoch)
			return true;
	}
	return false;
}

/* What somebody gave may have been lost on the way. */
static bool may_be_lost(const struct sim *s)
{
	return s->now < MAX(s->p.faults_end, s->faulted_at) + mono_ms(SERVER_MS);
}

static mono_t patience(const struct sim *s)
{
	return mono_ms(may_be_lost(s) ? SERVER_MS : NAMED_MS);
}

/* The last of that machine's ranks. */
static mono_t given_at(const struct sim_job *j, uint32_t machine, uint32_t k)
{
	mono_t at = 0;

	for (uint32_t r = 0; r < j->p->world; r++)
		if (j->p->machine[r] == machine)
			at = MAX(at, j->rank[r].submitted_at[k]);
	return at;
}

/* ---- who is named ---- */

static void look_at_rank(struct sim *s, const struct sim_job *j, uint32_t rank, uint32_t k,
			 uint32_t round)
{
	mono_t pushed = MAX(j->tensor[k].pushed_at, j->pushed_at[j->p->machine[rank]]);
	mono_t since = MAX(MAX(given_at(j, j->p->machine[rank], k), pushed),
			   MAX(s->linked_at, j->last_move));

	if (!sim_rank_lives(j, rank) && !(j->coming >> rank & 1))
		sim_fail(s, "status: job %u waits for rank %u, which is lost", j->index, rank);
	sim_totals.blamed_ranks++;
	if (!sim_rank_lives(j, rank) || owes(j, rank, k, round) || moves(s, j))
		return;
	if (all_said_since(s, j, since + patience(s)))
		sim_fail(s, "status: job %u waits for rank %u with round %u of tensor %u, which it "
			 "gave %llu ms ago", j->index, rank, round, k + 1,
			 (unsigned long long)(s->now - since) / NS_PER_MS);
}

static struct sim_server *server_of(struct sim *s, const char *name, uint32_t *index)
{
	for (uint32_t i = 0; i < s->nservers; i++) {
		struct sim_server *v = s->server[i];

		*index = i;
		if (v->alive && !v->replaced && v->name == strtoul(name + 1, NULL, 10))
			return v;
	}
	return NULL;
}

static void look_at_server(struct sim *s, const struct sim_job *j, uint32_t k, const char *name)
{
	mono_t since = MAX(MAX(s->p.faults_end, s->linked_at), MAX(s->faulted_at, j->last_move));
	uint32_t i;

	sim_totals.blamed_servers++;
	if (!server_of(s, name, &i) || moves(s, j))
		return;
	since = MAX(MAX(since, j->tensor[k].pushed_at), s->paused_until[sim_server_proc(i)]);
	for (uint32_t m = 0; m < j->p->n; m++) {
		const struct sim_link *l = s->link[j->p->agent[m]][i];

		if (!l || !sim_link_is_open(l, 0) || !sim_link_is_open(l, 1))
			return;
		since = MAX(since, MAX(l->blind_until[0], l->blind_until[1]));
	}
	if (all_said_since(s, j, since + mono_ms(SERVER_MS)))
		sim_fail(s, "status: job %u waits for server %s, which nothing has kept from "
			 "answering for %llu ms", j->index, name,
			 (unsigned long long)(s->now - since) / NS_PER_MS);
}

void sim_wait_row(struct sim *s, const struct sim_job *j, const struct msg_stuck_row *row)
{
	uint32_t k = (uint32_t)strtoul(row->tensor + 1, NULL, 10);
	const struct sim_tensor *t = &j->tensor[k];

	if (t->all >= row->round && all_said_since(s, j, t->all_at[row->round]))
		sim_fail(s, "status: job %u waits for round %u of tensor %u, which all have",
			 j->index, row->round, k + 1);
	for (uint32_t i = 0; i < row->nranks; i++)
		look_at_rank(s, j, row->ranks[i], k, row->round);
	if (!row->nranks)
		look_at_server(s, j, k, row->name);
}

/* ---- nothing has been done for long, and some ranks wait for a round of others ---- */

static bool is_told(const struct sim *s, const struct sim_job *j, const struct msg_report *r,
		    uint32_t k, uint32_t round)
{
	for (uint32_t i = 0; i < r->nstuck; i++) {
		const struct msg_stuck_row *row = &r->stuck[i];
		uint32_t of = (uint32_t)strtoul(row->tensor + 1, NULL, 10);

		if (row->job != j->number)
			continue;
		if (!row->nranks)
			return true;	/* whoever waits for that server may be late for it */
		for (uint32_t n = 0; n < row->nranks; n++) {
			bool late = owes(j, row->ranks[n], of, row->round);

			if (late ? of == k && row->round == round : may_be_lost(s))
				return true;	/* late; or as of a server, on the way */
		}
	}
	return false;
}

void sim_wait_look(struct sim *s, const struct sim_job *j, const struct msg_report *r,
		   const struct msg_job_row *row)
{
	mono_t since = MAX(MAX(j->last_progress, j->last_move), MAX(s->p.faults_end, s->linked_at));
	uint32_t waiting[SIM_TENSORS], n = 0;

	for (uint32_t k = 0; k < j->p->ntensors; k++) {
		uint32_t round = j->tensor[k].all + 1, given = 0, missing = 0;

		since = MAX(since, j->tensor[k].pushed_at);	/* a chunk goes on */
		for (uint32_t i = 0; i < j->p->world; i++) {
			if (!sim_rank_lives(j, i))
				continue;
			since = MAX(since, j->rank[i].submitted_at[k]);
			given += j->rank[i].submitted[k] == round;
			missing += j->rank[i].submitted[k] < round;
		}
		if (given && missing && j->tensor[k].geom.bytes && round <= j->p->rounds &&
		    sim_rop(s, j, k, round) != ROP_BROADCAST)
			waiting[n++] = k;
	}
	if (!n || moves(s, j) || !all_said_since(s, j, since + mono_ms(NAMED_MS)))
		return;
	sim_totals.named++;
	if (!row->waiting_for[0])
		sim_fail(s, "status: job %u waits, and nothing is said of it", j->index);
	if (!row->servers)		/* it waits for one, and knows */
		return;
	for (uint32_t i = 0; i < n; i++)	/* of one of them: not all are looked at at once */
		if (is_told(s, j, r, waiting[i], j->tensor[waiting[i]].all + 1))
			return;
	sim_fail(s, "status: job %u waits for ranks with round %u of tensor %u, and none of them "
		 "is named", j->index, j->tensor[waiting[0]].all + 1, waiting[0] + 1);
}
