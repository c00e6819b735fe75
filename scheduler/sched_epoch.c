// SPDX-License-Identifier: Apache-2.0
/*
 * sched_epoch.c - servers come and go while a job trains.
 *
 * One thing happens in all cases: a log entry EPOCH with the servers' new weights,
 * from which everybody computes which chunks move.  It goes to the servers, which
 * set memory aside and say so, then to the agents, which move their segments and say
 * when nothing of them is with an older owner any more.  Then the epoch is settled,
 * servers free what has left them, and the next one may begin.
 *
 *   a server dies		a repair, at once, whatever else is under way
 *   a server is to drain	a rebalance that gives it no weight; when that is settled it
 *				is out of the job; so too one that was told to end; while
 *				there is no other it serves on
 *   a server registers		it is told the job as it is (JOB_UP and the log, placed);
 *				when it is ready, a rebalance gives it a share, if it has
 *				the memory; else it is out again, and is told it later
 *   a rank is lost		a repair too, where the job goes on without it
 *				(sched_shrink.c)
 *   a rank comes back		the same, between two rounds (sched_grow.c)
 *   an agent cannot reach it	as if it were dead, for that job (sched_cut.c)
 *   a server is slow		a rebalance to what it was measured to do (sched_slow.c)
 *   a repair is settled	a rebalance, where shares are others now (sched_slow.c)
 *   all servers are gone	the job waits for one, and says so; its calls have deadlines
 */
#include "scheduler/sched.h"

#include <stdio.h>

/* ---- what is wanted ---- */

enum want { WANT_NOTHING, WANT_REPAIR, WANT_REBALANCE, WANT_GROW };

static bool any_can_serve(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (plan_can_serve(j, &j->servers[i]))
			return true;
	}
	return false;
}

/* A repair moves what was lost and nothing else: also one without weight may have chunks. */
bool epoch_has_chunks(const struct sched_job *j, const struct sched_part *p)
{
	uint32_t i = (uint32_t)(p - j->servers);

	return p->weight || (i < j->place->nservers && j->place->server[i].assigned_bytes);
}

/*
 * Chunks are there, or agents are still leaving it and wait for what it cannot say: not one that
 * was offered the job since, and is in no epoch.
 */
static bool is_lost(const struct sched_job *j, const struct sched_part *p)
{
	return !p->node && (epoch_has_chunks(j, p) ||
			    (p->number && p->joining_epoch != j->epoch && j->settled < j->epoch));
}

bool epoch_repair_due(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (is_lost(j, &j->servers[i]))
			return true;
	}
	return j->shrinks;
}

/*
 * Stale entries are taken back by the first one that follows.  It is an epoch, settled or not: its
 * number is no scheduler's before, so a server's answer to it is not to what it had.  Who lets go
 * of the job answers nothing any more.
 */
static enum want want(const struct sched_job *j)
{
	enum want w = WANT_NOTHING;
	bool stale = false;

	if (epoch_repair_due(j))
		return WANT_REPAIR;
	for (uint32_t i = 0; i < j->nservers; i++) {
		const struct sched_part *p = &j->servers[i];

		if (plan_can_serve(j, p) ? p->fresh : part_answers(p) && epoch_has_chunks(j, p))
			w = WANT_REBALANCE;
		stale |= part_answers(p) && p->stale;
	}
	if (j->paced || stale)
		w = WANT_REBALANCE;
	if (j->grows && grow_any(j))
		w = WANT_GROW;
	if (j->settled < j->epoch)
		w = stale && any_can_serve(j) ? WANT_REPAIR : WANT_NOTHING;
	return w;
}

/*
 * Notes that no server is left to sum until one comes; ranks that do not want to wait have a
 * deadline of their own.
 */
static void no_server(struct sched *s, struct sched_job *j)
{
	if (!j->no_server)
		out_log(s, SCHED_WARN, "job %s waits, no server is left", j->name);
	j->no_server = true;
}

/* ---- an epoch begins ---- */

static void begin(struct sched *s, struct sched_job *j, struct sched_entry *e, enum want w)
{
	bool repair = w != WANT_REBALANCE, smaller = j->shrinks;

	e->seq = j->epoch_seq = ++j->seq;
	j->repair = repair;
	j->anew = smaller || w == WANT_GROW;
	shrink_begin(j);
	if (w == WANT_GROW)
		grow_begin(s, j);
	j->paced = false;
	j->look_at = 0;
	for (uint32_t i = 0; i < j->nservers; i++) {
		struct sched_part *p = &j->servers[i];

		p->number = p->node ? p->node->number : 0;	/* and stays, whoever dies now */
		p->ready = !part_answers(p);
		p->fresh &= !plan_can_serve(j, p);
	}
	if (!place_change(s, j)) {
		job_down(s, j, TALLY_ENOMEM, "the scheduler is out of memory");
		return;
	}
	repair ? s->counters.repairs++ : s->counters.rebalances++;
	out_log(s, SCHED_INFO, "job %s epoch %llu, %s", j->name, (unsigned long long)j->epoch,
		smaller ? "the world is smaller" : j->anew ? "the world is larger" :
		repair ? "a lost server's chunks move" : "chunks move to the servers' new shares");
	log_send_servers(s, j, e->seq, plan_epoch(s, j));
}

bool epoch_begin(struct sched *s, struct sched_job *j)
{
	struct sched_part *small;
	struct sched_entry *e;
	uint64_t epoch;
	struct err why;
	enum want w;

	while ((w = want(j)) == WANT_REBALANCE && (small = plan_without_room(s, j, &why)))
		cut_lacks(s, j, small, why.text);
	if (w == WANT_NOTHING)
		return false;
	if (j->nservers && !any_can_serve(j)) {
		if (w == WANT_REPAIR)
			no_server(s, j);
		return false;
	}
	j->no_server = false;
	e = log_new(s, SE_EPOCH, 0);
	/* The number first: there is no telling the weights of an epoch that has none. */
	if (!e || !sched_take_epoch(s, &epoch) || (j->nservers && plan_weights_of(s, j, &why))) {
		sched_release(s, e);	/* the next timer tries again */
		return false;
	}
	j->epoch = epoch;
	list_add(j->log.next, &e->link);
	begin(s, j, e, w);
	return true;
}

void epoch_done(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	if (e->why.code) {
		job_down(s, j, TALLY_ESERVERLOST, "%s", e->why.text);
		return;
	}
	log_send_machines(s, j, e->seq, plan_epoch(s, j));
	list_del(&e->link);
	sched_release(s, e);
}

/* ---- an epoch settles ---- */

static void tell_settled(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	struct msg *m;

	if (!p->node || p->settled >= j->settled)
		return;
	m = out_msg(s, MSG_EPOCH_READY);
	if (m)
		m->ready = (struct msg_ready){ .job = j->number, .seq = j->settled, .text = "" };
	if (out_send(s, p->node, m))
		p->settled = j->settled;
}

/* Nothing of the job is there any more. */
static void part_out(struct sched *s, struct sched_job *j, struct sched_part *p, const char *why)
{
	struct msg *m = out_msg(s, MSG_JOB_DOWN);

	if (m)
		m->job_down = (struct msg_job_down){
			.job = j->number, .text = out_string(s, why),
		};
	out_send(s, p->node, m);	/* else it tells of the job, and is told then */
	p->node = NULL;
	p->joining = p->fresh = p->told_up = false;
	p->ready = true;
}

static bool is_drained(const struct sched_job *j, const struct sched_part *p)
{
	return p->node && p->node->draining && !p->joining && !epoch_has_chunks(j, p) &&
	       j->settled == j->epoch;
}

static void tell_all_settled(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		struct sched_part *p = &j->servers[i];

		tell_settled(s, j, p);
		if (is_drained(j, p))
			part_out(s, j, p, "the server is drained");
	}
}

static struct sched_part *part_of(struct sched_job *j, const struct sched_node *n)
{
	return n->kind == NODE_SERVER ? job_server_part(j, n) : job_machine_part(j, n);
}

/* A connection was lost, and with it perhaps what was on its way. */
void epoch_back(struct sched *s, struct sched_job *j, const struct sched_node *n)
{
	struct sched_part *p = part_of(j, n);

	if (p && (p->return_by || p->coming)) {	/* it is yet to hear all of it */
		return_anew(s, j, p);
		return;
	}
	if (p && p->joining) {		/* it is told the job again */
		p->node = NULL;
		p->joining = p->told_up = false;
	} else if (p) {
		p->unsure = true;
	}
}

/*
 * Takes the report of a resyncing node, which says what it has of the log, or that it has none,
 * and sends it the rest. False: the node is out. A stale entry has the number of one of ours,
 * which the node lacks as long as it says so; else it reports all up to there. An agent that
 * came in, and did not hear so, waits to come in once more: the others' rounds are not known any
 * more.
 */
bool epoch_sure(struct sched *s, struct sched_job *j, struct sched_part *p, bool none, uint64_t has)
{
	struct sched_node *n = p->node;

	p->unsure = false;
	if (none && p->came && shrink_machine(s, j, p, "its connection broke as it came in"))
		return false;
	p->came = false;
	if (n->kind == NODE_AGENT) {
		if (sent_again(s, j, p, none, has, j->told)) {
			job_tell_leaves(s, j, p);
			return true;
		}
		job_down(s, j, TALLY_EWORKERLOST, "machine %.128s was away and has missed too much",
			 p->name);
		return false;
	}
	p->stale = has == p->stale ? has : 0;
	if (!sent_again(s, j, p, none, p->stale ? j->resumed : has, j->seq)) {
		node_die(s, n, "it has missed log entries");
		return false;
	}
	p->settled = 0;
	tell_settled(s, j, p);
	return true;
}

/* After a return all that it has has been said by now. */
void epoch_unsaid(struct sched *s, struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs && n->state == SN_UP; i++) {
		struct sched_job *j = s->jobs[i];
		struct sched_part *p = part_of(j, n);

		if (!p || !p->unsure || p->let_go_by ||
		    (j->state != SJ_UP && j->state != SJ_RESERVING))
			continue;
		if (n->kind == NODE_AGENT)
			epoch_sure(s, j, p, true, 0);
		else if (j->state == SJ_RESERVING && !p->ready)
			job_tell_again(s, j, p);
		else
			node_die(s, n, "it has lost a job");
	}
}

void epoch_settle(struct sched *s, struct sched_job *j)
{
	uint64_t least = j->epoch;

	for (uint32_t i = 0; i < j->nmachines; i++) {
		const struct sched_part *p = &j->machines[i];

		if (p->node && !p->out && !p->coming)	/* no node: all its ranks have left */
			least = MIN(least, p->settled);
	}
	if (least <= j->settled)
		return;
	j->settled = least;
	if (least == j->epoch)
		out_log(s, SCHED_INFO, "job %s epoch %llu is settled", j->name,
			(unsigned long long)least);
	tell_all_settled(s, j);
	job_pump(s, j);
}

/* Said before it heard that it is in the job anew, and of what it had of the one before. */
static bool is_of_before(const struct sched_part *p, const struct msg_ready *m)
{
	return p->coming || (p->came && m->seq < p->joining_epoch);
}

static void agent_ready(struct sched *s, struct sched_node *n, const struct msg_ready *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_part *p = j ? job_machine_part(j, n) : NULL;
	bool late = p && late_tells(j, p);

	if (!p || m->seq > j->epoch || is_of_before(p, m)) {
		s->counters.strays++;
		return;
	}
	p->settled = MAX(p->settled, m->seq);
	p->came = false;
	held_last(s, j, p, m);
	if (j->state != SJ_UP)
		return;
	if (j->outlived)		/* by ranks that came back after the others */
		barrier_passed(s, j, m->barrier);
	grow_rounds(j, m);
	if (late && !late_last(s, j, p, m->log))
		return;
	if (p->unsure && !epoch_sure(s, j, p, false, m->log))
		return;
	epoch_settle(s, j);
	if (late)
		job_pump(s, j);
}

/* Whether others have, and keep, what a server would have to take over in a rebalance. */
static bool spares(const struct sched_job *j, const struct sched_part *p)
{
	for (uint32_t i = 0; i < j->nservers && !j->repair; i++)
		if (&j->servers[i] != p && plan_can_serve(j, &j->servers[i]))
			return true;
	return false;
}

static void server_ready(struct sched *s, struct sched_node *n, const struct msg_ready *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_part *p = j ? job_server_part(j, n) : NULL;
	struct sched_entry *e = j && !list_empty(&j->log) ?
				list_first(&j->log, struct sched_entry, link) : NULL;

	if (p && m->code && m->seq == j->epoch && j->state == SJ_UP && !p->let_go_by &&
	    (p->joining || p->fresh || spares(j, p))) {
		cut_lacks(s, j, p, m->text);	/* the others follow it */
		return;
	}
	if (!p || !e || e->kind != SE_EPOCH || m->seq != j->epoch || j->state != SJ_UP ||
	    p->let_go_by) {
		s->counters.strays++;
		return;
	}
	p->ready = true;
	p->stale = 0;
	if (m->code && !e->why.code)
		err_set(&e->why, m->code, "server %.128s cannot take over: %.300s", p->name,
			m->text);
	job_pump(s, j);
}

void epoch_ready(struct sched *s, struct sched_node *n, const struct msg_ready *m)
{
	if (n->kind == NODE_AGENT)
		agent_ready(s, n, m);
	else
		server_ready(s, n, m);
}

/* ---- servers that join ---- */

static bool is_free(const struct sched_job *j, const struct sched_part *p)
{
	return !p->node && !epoch_has_chunks(j, p);
}

/*
 * The row that it had, where agents know it by that: who recovers the job from them must
 * find it there.  Else of one that is gone for good, or a new one; NULL: there is no room.
 */
static struct sched_part *free_part(struct sched *s, struct sched_job *j,
				    const struct sched_node *n)
{
	struct sched_part *more;
	uint32_t room = j->servers_room + 8;

	for (uint32_t i = 0; i < j->nservers; i++) {
		if (is_free(j, &j->servers[i]) && j->servers[i].number == n->number)
			return &j->servers[i];
	}
	for (uint32_t i = 0; j->settled == j->epoch && i < j->nservers; i++) {
		if (is_free(j, &j->servers[i]) && s->now >= j->servers[i].cut_until)
			return &j->servers[i];
	}
	if (j->nservers == SERVERS_PER_JOB_MAX)
		return NULL;
	if (j->nservers == j->servers_room) {
		more = sched_alloc(s, room * sizeof(*more));
		if (!more)
			return NULL;
		memcpy(more, j->servers, j->nservers * sizeof(*more));
		sched_release(s, j->servers);
		j->servers = more;
		j->servers_room = room;
	}
	return &j->servers[j->nservers++];
}

/*
 * Tells a node the last entry of the log, by which it knows that it has been told all, whatever
 * became of its connection.
 */
static void tell_log(struct sched *s, struct sched_job *j, struct sched_node *n)
{
	struct msg *m;

	if (log_send_again(s, j, n, j->seq) == j->seq)
		return;
	m = out_msg(s, MSG_FORGET);
	if (m)
		m->ids = (struct msg_ids){ .job = j->number, .seq = j->seq };
	out_send(s, n, m);
}

static void offer(struct sched *s, struct sched_job *j, struct sched_node *n)
{
	struct sched_part *p = free_part(s, j, n), past = { .cuts = 0 };
	uint32_t rows;

	if (!p)
		return;
	rows = MAX((uint32_t)(p - j->servers) + 1, j->place->nservers);
	cut_remember(j, n, &past);
	*p = (struct sched_part){
		.node = n, .number = n->number, .engines = n->engines,
		.joining = true, .joining_epoch = j->epoch, .from = n->beat,
		.told_up = true, .ready = true,
		.seq = j->seq, .settled = j->settled,
		.cuts = past.cuts, .cut_until = past.cut_until,
	};
	snprintf(p->name, sizeof(p->name), "%s", n->name);
	out_log(s, SCHED_INFO, "job %s is told to server %s", j->name, n->name);
	out_send(s, n, plan_job_up(s, j, rows, true));
	tell_log(s, j, n);
}

/*
 * Whether a server let go of the job while no epoch could say so, since no server was left.
 * Agents, which know servers by their numbers, would wait for what it had: it gets another
 * number.
 */
static bool is_missed(const struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		const struct sched_part *p = &j->servers[i];

		if (p->number == n->number && is_lost(j, p) && p->joining_epoch != j->epoch)
			return true;
	}
	return false;
}

void epoch_offer(struct sched *s, struct sched_node *n)
{
	if (n->astray) {		/* the last of its jobs may have ended meanwhile */
		cut_end(s, n);
		return;
	}
	if (n->draining || s->recover_until)
		return;
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];

		if (j->state != SJ_UP || j->nmachines == 1 || job_any_away(j) ||
		    job_server_part(j, n) || cut_bars(s, j, n))
			continue;
		if (is_missed(j, n)) {
			node_die(s, n, "agents wait for what it had under this number");
			return;
		}
		offer(s, j, n);
	}
}

void epoch_joined(struct sched *s, struct sched_job *j, struct sched_part *p,
		  const struct msg_ready *m)
{
	if (m->code) {
		out_log(s, SCHED_WARN, "server %s does not take job %s, reason %s", p->name,
			j->name, m->text);
		cut_refused(s, p, m->text);
		p->told_up = false;
		p->joining = false;
		p->node = NULL;
		return;
	}
	p->joining = false;
	p->fresh = true;
	if (is_drained(j, p))
		part_out(s, j, p, "the server is drained");
	job_pump(s, j);
}

/* ---- drain ---- */

bool epoch_idle(const struct sched *s, const struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (s->jobs[i]->state != SJ_DOWN && job_server_part(s->jobs[i], n))
			return false;
	}
	return true;
}

/* Used again: where it has no share, the next rebalance gives it one. */
static void undrain(struct sched *s, struct sched_node *n)
{
	n->draining = false;
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_part *p = job_server_part(s->jobs[i], n);

		if (p)
			p->fresh = !epoch_has_chunks(s->jobs[i], p);
	}
	job_servers_changed(s);
}

static void drain(struct sched *s, struct sched_node *n, bool undo, const char *why)
{
	if (undo) {
		undrain(s, n);
		node_since(s, n, why);
	} else if (!n->draining) {
		out_log(s, SCHED_INFO, "server %s is to drain, reason %s", n->name, why);
		n->draining = true;
		node_since(s, n, why);
	}
	node_tell_drain(s, n);
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];
		struct sched_part *p = job_server_part(j, n);

		if (!p || j->state != SJ_UP)
			continue;
		if (is_drained(j, p))
			part_out(s, j, p, "the server is drained");
		else
			job_pump(s, j);
	}
}

void epoch_drain(struct sched *s, uint32_t conn, const struct msg_drain *m)
{
	struct sched_node *n = node_by_name(s, NODE_SERVER, m->name);

	if (!n || n->state == SN_DEAD) {
		out_reply(s, conn, m->req, TALLY_ENOENT,
			  "there is no server '%.128s'; tally nodes lists them", m->name);
		return;
	}
	drain(s, n, m->undo, m->undo ? "tally drain --undo" : "tally drain");
	out_reply(s, conn, m->req, 0, "%s", "");
}

void epoch_leave(struct sched *s, struct sched_node *n)
{
	drain(s, n, false, "it was told to end");
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];

		if (j->state != SJ_UP || !job_server_part(j, n) || plan_any_stays(j))
			continue;
		out_reply(s, n->conn, 0, TALLY_ENOSERVER, "job '%.128s' has no other server",
			  j->name);
		return;
	}
}

const char *epoch_waiting(const struct sched_job *j)
{
	if (j->no_server)
		return "a server, all are gone";
	return j->settled < j->epoch ? "chunks to move" : "";
}
