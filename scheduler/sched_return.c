// SPDX-License-Identifier: Apache-2.0
/*
 * sched_return.c - an agent that is lost, while its job's processes live.
 *
 * An agent of a running job that is silent is away for agent_grace_ms before it is dead.
 * The same process may come back, as any node does; or it was started again: then it has
 * the name and the machine of the first one and takes its number over, so that the
 * servers know it, and its part in the job is returning.  Its ranks come back to it one
 * by one (RANK_JOIN that names the job's number); with the last of them it hears the job
 * as it is by now: JOB_UP, and its log with where the chunks are.  Meanwhile nothing new
 * begins in the job, and when the grace is over, the agent is as good as dead.
 *
 * A process that computes for longer than that has not heard of it yet.  Its agent sees that
 * it lives, and says so each second (RANK_ALIVE): the grace of who lives begins anew.
 *
 * One that is away may train on: it is we whom it cannot reach.  So servers of its jobs are
 * asked each second whether they hear it, and as long as one does its grace begins anew; not
 * where a server is lost, too, whose chunks cannot move without it.
 *
 * While we recover from a restart of our own nobody knows yet whose processes they are: an
 * agent that was started then registers when that is over, and one that was started just
 * before asks for its ranks again.  A machine that no agent has spoken for by then, in a job
 * that others hold, is returning from there on, and has all its grace.
 */
#include "scheduler/sched.h"

#define NAMED_MAX	4u	/* ranks of one machine */

/* A job that trains, with processes that wait for this agent. */
static struct sched_part *waiting_part(struct sched_job *j, const struct sched_node *n)
{
	return (j->state == SJ_UP || j->state == SJ_HELD) && n->kind == NODE_AGENT ?
	       job_machine_part(j, n) : NULL;
}

/*
 * How long an agent may be away. Its time begins when the scheduler has recovered
 * (node_recovered()): before, nobody can come back.
 */
mono_t return_grace(struct sched *s, const struct sched_node *n)
{
	mono_t grace = mono_ms(MAX(s->config.agent_grace_ms, RECONNECT_GRACE_MS));

	if (s->recover_until && s->config.agent_grace_ms)
		grace += s->recover_until - n->away;
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (waiting_part(s->jobs[i], n))
			return grace;
	}
	return mono_ms(RECONNECT_GRACE_MS);
}

mono_t return_until(struct sched *s, const struct sched_node *n)
{
	return MAX(n->away, n->seen) + return_grace(s, n);
}

void return_ask(struct sched *s, struct sched_node *n)
{
	struct msg *m;

	if (n->kind != NODE_AGENT || !s->config.agent_grace_ms || s->now < n->ask_at)
		return;
	n->ask_at = s->now + mono_ms(s->config.heartbeat_ms);
	m = out_msg(s, MSG_HEARD);
	if (!m)
		return;
	m->heard.node = n->number;
	n->asked++;
	for (uint32_t i = 0; i < s->nnodes; i++)
		s->nodes[i]->mark = 0;
	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_job *j = s->jobs[i];
		bool waits = waiting_part(s->jobs[i], n) != NULL;

		for (uint32_t k = 0; waits && k < j->nservers; k++)
			if (j->servers[k].node && !j->servers[k].node->mark++)
				out_send(s, j->servers[k].node, m);
	}
}

/* A job of its cannot go on before it is back, or given up. */
static bool holds_up(const struct sched *s, const struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs; i++)
		if (waiting_part(s->jobs[i], n) &&
		    (epoch_repair_due(s->jobs[i]) || cut_due(s, s->jobs[i])))
			return true;
	return false;
}

void return_seen(struct sched *s, const struct sched_node *server, uint32_t number)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		struct sched_node *n = s->nodes[i];

		if (n->number != number || n->state != SN_AWAY || n->asked < 2 || holds_up(s, n))
			continue;
		if (!n->seen)
			out_log(s, SCHED_WARN, "agent %s is away, and server %s hears it: it is "
				"waited for", n->name, server->name);
		n->seen = s->now;
	}
}

bool return_can(struct sched *s, const struct sched_node *n, const struct msg_hello *h)
{
	return n->kind == NODE_AGENT && n->state == SN_AWAY && s->config.agent_grace_ms &&
	       !s->recover_until && node_is_machine(n, h->machine) && n->engines == h->engines &&
	       !node_outlived(n, h) &&
	       return_grace(s, n) > mono_ms(RECONNECT_GRACE_MS);
}

static void drop_stuck(struct sched *s, struct sched_part *p)
{
	sched_release(s, p->stuck);
	p->stuck = NULL;
}

/*
 * Waits afresh for the ranks of a machine: those that live ask again, also on another
 * connection, since the end of one may be lost with it. They have the time for that, also where
 * the grace is over just now.
 */
void return_anew(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	if (p->return_by)
		p->return_by = MAX(p->return_by, s->now + mono_ms(RECONNECT_GRACE_MS));
	for (uint32_t r = 0; r < j->world; r++)
		j->ranks[r].back &= j->ranks[r].node != p->node;
}

/* For all its ranks, from here on. */
static void await(struct sched *s, struct sched_job *j, struct sched_part *p, mono_t since)
{
	p->return_by = since + return_grace(s, p->node);
	p->unsure = false;
	return_anew(s, j, p);
	out_log(s, SCHED_INFO, "job %s waits for the processes of machine %s", j->name, p->name);
}

void return_begin(struct sched *s, struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];
		struct sched_part *p = waiting_part(j, n);

		if (!p || p->coming) {
			job_agent_dead(s, j, n, "process was started again");
			continue;
		}
		req_orphan(s, j, n);
		drop_stuck(s, p);
		await(s, j, p, MAX(n->away, n->seen));
	}
	s->any_down = true;
}

static bool all_left(const struct sched_job *j, const struct sched_part *p)
{
	for (uint32_t r = 0; r < j->world; r++) {
		if (&j->machines[j->ranks[r].machine] == p && j->ranks[r].state != SR_LEFT)
			return false;
	}
	return true;
}

/*
 * Its agent may be there, and have nothing of the job.  Nobody is waited for who has detached, as
 * others say; a job that may go on in a smaller world does so without them.
 */
bool return_expect(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	struct sched_node *n = s->config.agent_grace_ms ? node_away(s, p) : NULL;
	uint32_t at = (uint32_t)(p - j->machines);

	if (all_left(j, p) && j->on_loss != ON_LOSS_SHRINK)
		return true;
	if (!n)
		return false;
	for (uint32_t r = 0; r < j->world; r++) {
		if (j->ranks[r].machine != at || j->ranks[r].state != SR_NONE)
			continue;
		j->ranks[r].state = SR_IN;
		j->ranks[r].node = n;
		j->nin++;
	}
	p->node = n;
	p->told_up = true;
	p->unsure = false;
	p->return_by = s->now + mono_ms(s->config.agent_grace_ms);
	sched_wake(s, p->return_by);
	out_log(s, SCHED_INFO, "job %s waits for machine %s, which did not come back after the "
		"scheduler's restart", j->name, p->name);
	return true;
}

bool return_awaited(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (j->machines[i].return_by)
			return true;
	}
	return false;
}

/* ---- it hears the job ---- */

static bool is_missing(const struct sched_rank *r, const struct sched_part *p)
{
	return p->node && r->node == p->node && r->state == SR_IN && !r->back;
}

static bool all_back(const struct sched_job *j, const struct sched_part *p)
{
	for (uint32_t r = 0; r < j->world; r++) {
		if (is_missing(&j->ranks[r], p))
			return false;
	}
	return true;
}

bool return_lives(const struct sched *s, const struct sched_rank *r)
{
	return r->seen && s->now < r->seen + mono_ms(LEASE_MS);
}

/* Its grace, from when it was known to live. */
static mono_t wait_until(const struct sched *s, const struct sched_rank *r)
{
	return r->seen ? r->seen + mono_ms(MAX(s->config.agent_grace_ms, LEASE_MS)) : 0;
}

/* Whether all ranks that are missing are known to live. */
static bool all_live(const struct sched *s, const struct sched_job *j, const struct sched_part *p)
{
	for (uint32_t r = 0; r < j->world; r++) {
		if (is_missing(&j->ranks[r], p) && !return_lives(s, &j->ranks[r]))
			return false;
	}
	return true;
}

/* When it is given up; p->return_by, but for ranks that live. */
static mono_t give_up_at(const struct sched *s, const struct sched_job *j,
			 const struct sched_part *p)
{
	mono_t at = MONO_NEVER;

	for (uint32_t r = 0; r < j->world; r++) {
		if (is_missing(&j->ranks[r], p))
			at = MIN(at, wait_until(s, &j->ranks[r]));
	}
	return at == MONO_NEVER ? p->return_by : MAX(p->return_by, at);
}

static void answer_ranks(struct sched *s, struct sched_job *j, const struct sched_part *p,
			 int code, const char *text)
{
	list_for_each_safe(&j->reqs, l, next) {
		struct sched_req *q = list_entry(l, struct sched_req, link);

		if (q->kind == SQ_JOIN && !q->grow && q->node == p->node)
			req_done(s, j, q, code, text, &j->number, !code);
	}
}

void return_tell(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	late_end(s, p);
	p->told_up = true;
	p->told_down = false;
	p->seq = j->told;
	p->settled = j->epoch;
	out_log(s, SCHED_INFO, "job %s goes on with machine %s", j->name, p->name);
	out_send(s, p->node, plan_job_again(s, j));
	log_send_again(s, j, p->node, j->told);
}

static void resume(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	p->return_by = 0;
	return_tell(s, j, p);
	answer_ranks(s, j, p, 0, "");
	job_tell_leaves(s, j, p);
	epoch_settle(s, j);
}

/* An epoch that is with the servers comes first: the placement is that one's already. */
void return_pump(struct sched *s, struct sched_job *j)
{
	const struct sched_entry *e = list_empty(&j->log) ? NULL :
				      list_first(&j->log, struct sched_entry, link);

	if (e && e->seq && e->kind == SE_EPOCH)
		return;
	for (uint32_t i = 0; i < j->nmachines && j->state == SJ_UP; i++) {
		struct sched_part *p = &j->machines[i];

		if (p->return_by && p->node->state == SN_UP && all_back(j, p)) {
			resume(s, j, p);
			log_pump(s, j);
		}
	}
}

void return_rank(struct sched *s, struct sched_node *n, const struct msg_rank_join *m)
{
	struct sched_job *j = job_by_number(s, m->back);
	struct sched_part *p = j ? job_machine_part(j, n) : NULL;
	struct sched_rank *r = j && m->rank < j->world ? &j->ranks[m->rank] : NULL;
	const struct err *why = j && j->state == SJ_DOWN && j->why.code ? &j->why :
				j ? NULL : job_ended(s, m->back);

	if (s->recover_until) {
		s->conns[n->conn].early = true;
		return;
	}
	if (!j || why) {
		out_refuse(s, n, m->req, why ? why->code : TALLY_EWORKERLOST,
			   "job '%.128s' is over: %.300s", m->job, why ? why->text :
			   "its agent was gone for too long, or was started again together with "
			   "the scheduler");
		return;
	}
	if (!p || !r || r->node != n || r->state != SR_IN || j->state != SJ_UP) {
		out_refuse(s, n, m->req, TALLY_EWORKERLOST, "rank %u of job '%.128s' cannot come "
			   "back to machine %.128s", m->rank, m->job, n->name);
		return;
	}
	if (!p->return_by && p->unsure)		/* it never heard what it was told */
		await(s, j, p, s->now);
	late_end(s, p);
	join_take_user(j, m->uid);	/* it was in, as what it handed back says */
	r->pid = m->pid;
	r->back = true;
	if (!p->return_by)
		out_answer(s, n, m->req, 0, "", &j->number, 1);
	else if (!req_asked(j, n, SQ_JOIN, m->rank, m->req))
		req_new(s, j, n, SQ_JOIN, m->rank, m->req, m->timeout_ms, 0);
	job_pump(s, j);
}

void return_alive(struct sched *s, struct sched_node *n, const struct msg_rank_alive *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_part *p = j ? job_machine_part(j, n) : NULL;
	struct sched_rank *r = p && m->rank < j->world ? &j->ranks[m->rank] : NULL;

	if (r && is_missing(r, p))	/* else the job is over for it, which it has to hear */
		r->seen = s->now;
}

void return_deaf(struct sched *s, mono_t ns)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];

		for (uint32_t k = 0; k < j->nmachines; k++)
			j->machines[k].return_by += j->machines[k].return_by ? ns : 0;
		for (uint32_t k = 0; k < j->nservers; k++) {
			struct sched_part *p = &j->servers[k];

			p->let_go_by += p->let_go_by ? ns : 0;
			since_later(s, &p->cut_since, ns);
			since_later(s, &p->used_since, ns);
		}
		for (uint32_t r = 0; r < j->world; r++)
			since_later(s, &j->ranks[r].seen, ns);
	}
}

/* ---- time ---- */

/* A job that goes on without lost ranks goes on with those that are back, or live. */
static void lose_ranks(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	for (uint32_t r = 0; r < j->world && p->node; r++)
		if (is_missing(&j->ranks[r], p) && s->now >= wait_until(s, &j->ranks[r]))
			shrink_rank(s, j, r, "its process did not come back to its agent");
}

static void give_up(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	const char *why = "processes did not come back";
	struct err e;

	if (j->on_loss == ON_LOSS_SHRINK && p->node->state == SN_UP) {
		lose_ranks(s, j, p);
		return;
	}
	if (job_lost_with(s, j, p->node, why, &e))
		answer_ranks(s, j, p, e.code, e.text);
	job_agent_dead(s, j, p->node, why);
}

void return_timer(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines && j->state == SJ_UP; i++) {
		struct sched_part *p = &j->machines[i];

		/* With all its ranks back it waits for servers, as the others do. */
		if (!p->return_by || (p->node->state == SN_UP && all_back(j, p)))
			continue;
		/* Who of its ranks is back it says when it is, or is lost itself. */
		if (p->node->state == SN_AWAY && (p->expected || j->on_loss == ON_LOSS_SHRINK))
			continue;
		p->return_by = give_up_at(s, j, p);
		if (s->now < p->return_by) {
			sched_wake(s, p->return_by);
			continue;
		}
		give_up(s, j, p);
	}
}

/* "ranks 0, 3 and 5 more of ", who have not come back to an agent that is there. */
static void add_missing(const struct sched_job *j, const struct sched_part *p, struct text *t)
{
	uint32_t all = 0, named = 0;

	for (uint32_t r = 0; r < j->world; r++)
		all += is_missing(&j->ranks[r], p);
	for (uint32_t r = 0; r < j->world && named < MIN(all, NAMED_MAX); r++)
		if (is_missing(&j->ranks[r], p))
			text_add(t, "%s%u", named++ ? ", " : all == 1 ? "rank " : "ranks ", r);
	if (all > named)
		text_add(t, " and %u more", all - named);
	text_add(t, "%s", all ? " of " : "");
}

/* Whom the job waits for, and how long it will; nothing, if for nobody. */
void return_text(struct sched *s, const struct sched_job *j, struct text *t)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		const struct sched_part *p = &j->machines[i];
		bool gone = p->expected && p->node->state == SN_AWAY;
		mono_t by = gone ? 0 : p->return_by;
		bool seen = !by && p->node && p->node->state == SN_AWAY && p->node->seen;
		bool alive = by && all_live(s, j, p);

		if (!by && p->node && p->node->state == SN_AWAY)
			by = return_until(s, p->node);
		if (!by || j->state != SJ_UP)
			continue;
		if (p->return_by && !gone)
			by = give_up_at(s, j, p);
		text_add(t, "%s", t->used ? ", " : "");
		if (p->return_by && p->node->state == SN_UP)
			add_missing(j, p, t);
		text_add(t, "agent %s%s, %llu s left", p->name,
			 seen ? " (servers have heard it)" : alive ? " (its processes live)" : "",
			 (unsigned long long)(by > s->now ? (by - s->now) / NS_PER_SEC : 0));
	}
}
