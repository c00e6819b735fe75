// SPDX-License-Identifier: Apache-2.0
/*
 * sched_job.c - a job's life.
 *
 * The first RANK_JOIN of a name makes the job.  When all ranks are in and there
 * is a server to sum for them, the job is planned, its servers set memory aside
 * (JOB_UP, JOB_READY), its agents are told, and every RANK_JOIN is answered.  It
 * ends when all ranks have left or when one is lost: then everybody is told why, and
 * the last to be told frees it.  Servers may come and go (sched_epoch.c).
 *
 * While a node of a job is away nothing is begun that it would miss: the pump
 * waits for its return or its death, which is half a second at most.
 */
#include "scheduler/sched.h"

#include <stdio.h>

static const char *const state_name[] = {
#define X(e, name, next, help) name,
	SCHED_JOB_TABLE(X)
#undef X
};

static const uint32_t state_next[] = {
#define X(e, name, next, help) next,
	SCHED_JOB_TABLE(X)
#undef X
};

const char *job_state_name(enum sched_job_state st)
{
	return state_name[st];
}

void job_set_state(struct sched *s, struct sched_job *j, enum sched_job_state to, const char *why)
{
	ASSERT(state_next[j->state] & 1u << to);
	out_log(s, to == SJ_DOWN && j->why.code ? SCHED_WARN : SCHED_OFTEN,
		"job %s %s -> %s, number %u, reason %s", j->name, state_name[j->state],
		state_name[to], j->number, why);
	j->state = to;
}

struct sched_job *job_by_number(struct sched *s, uint32_t number)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (s->jobs[i]->number == number)
			return s->jobs[i];
	}
	return NULL;
}

struct sched_job *job_by_name(struct sched *s, const char *name)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (s->jobs[i]->state != SJ_DOWN && !strcmp(s->jobs[i]->name, name))
			return s->jobs[i];
	}
	return NULL;
}

/* ---- birth and death ---- */

struct sched_job *job_new(struct sched *s, const char *name, uint32_t world)
{
	struct sched_job *j = sched_alloc(s, sizeof(*j));

	if (!j)
		return NULL;
	list_init(&j->reqs);
	list_init(&j->log);
	list_init(&j->tensors);
	list_init(&j->placed);
	list_init(&j->sent);
	j->world = world;
	j->since = s->now;
	snprintf(j->name, sizeof(j->name), "%s", name);
	j->ranks = sched_alloc(s, world * sizeof(*j->ranks));
	j->barrier = sched_alloc(s, BITS_WORDS(world) * sizeof(*j->barrier));
	j->by_name = sched_alloc(s, SCHED_BUCKETS * sizeof(*j->by_name));
	j->by_id = sched_alloc(s, SCHED_BUCKETS * sizeof(*j->by_id));
	if (!j->ranks || !j->barrier || !j->by_name || !j->by_id) {
		job_free(s, j);
		return NULL;
	}
	ASSERT(s->njobs < JOBS_MAX);
	s->jobs[s->njobs++] = j;
	return j;
}

void job_free(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (s->jobs[i] != j)
			continue;
		memmove(&s->jobs[i], &s->jobs[i + 1], (s->njobs - i - 1) * sizeof(j));
		s->njobs--;
		break;
	}
	while (!list_empty(&j->reqs))
		req_drop(s, j, list_first(&j->reqs, struct sched_req, link));
	while (!list_empty(&j->log)) {
		struct sched_entry *e = list_first(&j->log, struct sched_entry, link);

		list_del(&e->link);
		sched_release(s, e);
	}
	while (!list_empty(&j->tensors))
		tensor_free(s, j, list_first(&j->tensors, struct sched_tensor, link));
	sent_free(s, j);
	stuck_drop(s, j);
	late_drop(s, j);
	sched_release(s, j->place);
	sched_release(s, j->by_id);
	sched_release(s, j->by_name);
	sched_release(s, j->servers);
	sched_release(s, j->machines);
	sched_release(s, j->barrier);
	sched_release(s, j->ranks);
	sched_release(s, j);
}

static bool part_owed(const struct sched_part *p)
{
	return p->node && p->told_up && !p->told_down;
}

static bool all_told(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (part_owed(&j->machines[i]))
			return false;
	}
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (part_owed(&j->servers[i]))
			return false;
	}
	return true;
}

static void remember(struct sched *s, const struct sched_job *j)
{
	if (j->why.code)
		s->ended[s->nended++ % SCHED_ENDED_MAX] = (struct sched_ended){
			.number = j->number, .why = j->why,
		};
}

const struct err *job_ended(const struct sched *s, uint32_t number)
{
	for (uint32_t i = 0; number && i < SCHED_ENDED_MAX; i++)
		if (s->ended[i].number == number)
			return &s->ended[i].why;
	return NULL;
}

void job_reap(struct sched *s)
{
	s->any_down = false;
	for (uint32_t i = s->njobs; i-- > 0; ) {
		const struct sched_job *j = s->jobs[i];

		if (j->state != SJ_DOWN || !all_told(j) || (j->outlived && s->recover_until))
			continue;
		remember(s, j);
		job_free(s, s->jobs[i]);
	}
}

static void tell_down(struct sched *s, struct sched_part *parts, uint32_t n,
		      const struct msg *m)
{
	for (uint32_t i = 0; i < n; i++) {
		if (part_owed(&parts[i]))
			parts[i].told_down = out_send(s, parts[i].node, m);
	}
}

static void tell_everybody_down(struct sched *s, struct sched_job *j)
{
	struct msg *m = out_msg(s, MSG_JOB_DOWN);

	if (m)
		m->job_down = (struct msg_job_down){
			.job = j->number, .code = j->why.code,
			.text = out_string(s, j->why.text),
		};
	tell_down(s, j->servers, j->nservers, m);
	tell_down(s, j->machines, j->nmachines, m);
	s->any_down = true;
}

void job_down(struct sched *s, struct sched_job *j, int code, const char *fmt, ...)
{
	va_list ap;

	if (j->state == SJ_DOWN)
		return;
	va_start(ap, fmt);
	err_setv(&j->why, code, fmt, ap);
	va_end(ap);
	job_set_state(s, j, SJ_DOWN, j->why.text);
	s->counters.jobs_failed += code != 0;
	while (!list_empty(&j->reqs))
		req_done(s, j, list_first(&j->reqs, struct sched_req, link),
			 code ? code : TALLY_ESHUTDOWN, j->why.text, NULL, 0);
	tell_everybody_down(s, j);
}

/* ---- coming up ---- */

bool job_any_away(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (j->machines[i].node && j->machines[i].node->state != SN_UP)
			return true;
	}
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (j->servers[i].node && j->servers[i].node->state != SN_UP)
			return true;
	}
	return false;
}

static bool ranks_away(const struct sched_job *j)
{
	for (uint32_t r = 0; r < j->world; r++) {
		if (j->ranks[r].state == SR_IN && j->ranks[r].node->state != SN_UP)
			return true;
	}
	return false;
}

bool job_one_machine(const struct sched_job *j)
{
	for (uint32_t r = 1; r < j->world; r++) {
		if (j->ranks[r].node != j->ranks[0].node)
			return false;
	}
	return true;
}

bool job_have_server(const struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		if (s->nodes[i]->kind == NODE_SERVER && s->nodes[i]->state == SN_UP &&
		    !s->nodes[i]->draining)
			return true;
	}
	return false;
}

/* Everybody is ready: agents first hear of the job, then of their requests. */
static void come_up(struct sched *s, struct sched_job *j)
{
	const struct msg *m = plan_job_up(s, j, j->nservers, false);

	sent_keep(s, j, 0, m);
	for (uint32_t i = 0; i < j->nmachines; i++) {
		j->machines[i].told_up = out_send(s, j->machines[i].node, m);
		j->machines[i].settled = j->epoch;
	}
	job_set_state(s, j, SJ_UP, "all ranks and servers are ready");
	s->counters.jobs_started++;
	list_for_each_safe(&j->reqs, p, next)
		req_done(s, j, list_entry(p, struct sched_req, link), 0, "", &j->number, 1);
	job_pump(s, j);			/* a server may have died meanwhile */
}

void job_tell_again(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	p->unsure = false;
	p->told_up = out_send(s, p->node, plan_job_up(s, j, j->nservers, true));
}

static void try_start(struct sched *s, struct sched_job *j)
{
	const struct msg *m;
	struct err e;

	if (j->nin < j->world || s->recover_until || ranks_away(j))
		return;
	if (!job_one_machine(j) && !job_have_server(s))
		return;
	if (plan_job(s, j, &e)) {
		job_down(s, j, e.code, "%s", e.text);
		return;
	}
	if (!j->nservers) {
		come_up(s, j);
		return;
	}
	job_set_state(s, j, SJ_RESERVING, "all ranks are in");
	m = plan_job_up(s, j, j->nservers, true);
	for (uint32_t i = 0; i < j->nservers; i++)
		j->servers[i].told_up = out_send(s, j->servers[i].node, m);
}

static void try_come_up(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (!j->servers[i].ready)
			return;
	}
	if (!job_any_away(j))
		come_up(s, j);
}

void job_pump(struct sched *s, struct sched_job *j)
{
	switch (j->state) {
	case SJ_GATHERING:
		try_start(s, j);
		break;
	case SJ_RESERVING:
		try_come_up(s, j);
		break;
	case SJ_UP:
		log_pump(s, j);
		return_pump(s, j);
		barrier_pump(s, j);
		break;
	case SJ_HELD:
	case SJ_DOWN:
		break;
	}
}

void job_servers_changed(struct sched *s)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (s->jobs[i]->state == SJ_GATHERING)
			job_pump(s, s->jobs[i]);
	}
}

struct sched_part *job_server_part(struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (j->servers[i].node == n)
			return &j->servers[i];
	}
	return NULL;
}

struct sched_part *job_machine_part(struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (j->machines[i].node == n)
			return &j->machines[i];
	}
	return NULL;
}

void job_ready(struct sched *s, struct sched_node *n, const struct msg *m)
{
	struct sched_job *j = job_by_number(s, m->ready.job);
	struct sched_part *p = j ? job_server_part(j, n) : NULL;

	if (s->recover_until && m->type == MSG_JOB_READY)
		held_said(s, n, &m->ready);
	if (p && p->let_go_by) {	/* what it says of the job is not so any more */
		if (m->type == MSG_JOB_READY && !m->ready.code)
			held_unknown(s, n, m->ready.job);	/* it may not have heard that */
		return;
	}
	if (p && m->type == MSG_TENSORS_READY) {
		log_ready(s, j, p, &m->ready);
		return;
	}
	if (p && p->joining && j->state == SJ_UP && m->ready.seq == p->joining_epoch) {
		epoch_joined(s, j, p, &m->ready);
		return;
	}
	if (!p && m->type == MSG_JOB_READY && !m->ready.code && !s->recover_until) {
		held_unknown(s, n, m->ready.job);
		return;
	}
	if (p && m->ready.code && j->state == SJ_UP) {
		if (p->joining || p->fresh || p->unsure)	/* it was not told all of the log */
			cut_lacks(s, j, p, m->ready.text);
		else
			cut_server(s, n, m->ready.text);
		return;
	}
	if (p && p->unsure && j->state == SJ_UP && !epoch_sure(s, j, p, false, m->ready.log))
		return;
	if (p)
		p->unsure = false;
	if (p && p->ready && j->state != SJ_RESERVING)
		return;			/* told again, now and then */
	if (!p || j->state != SJ_RESERVING || p->ready || m->ready.seq != j->epoch) {
		s->counters.strays++;
		return;
	}
	if (m->ready.code) {
		job_down(s, j, m->ready.code, "server %.64s cannot take job '%.128s': %s", n->name,
			 j->name, m->ready.text);
		return;
	}
	p->ready = true;
	job_pump(s, j);
}

/* ---- leaving ---- */

static uint32_t first_left(const struct sched_job *j)
{
	uint32_t r = 0;

	while (j->ranks[r].state != SR_LEFT)
		r++;
	return r;
}

struct sched_job *job_of_request(struct sched *s, struct sched_node *n, uint64_t req,
				 uint32_t number, uint32_t rank)
{
	struct sched_job *j = job_by_number(s, number);
	const struct sched_rank *r;

	if (!j || j->state == SJ_GATHERING || j->state == SJ_RESERVING) {
		out_refuse(s, n, req, TALLY_ENOENT, "there is no job number %u", number);
		return NULL;
	}
	if (j->state == SJ_DOWN) {
		out_refuse(s, n, req, j->why.code ? j->why.code : TALLY_ESHUTDOWN,
			   "job '%.128s' is over: %.300s", j->name, j->why.text);
		return NULL;
	}
	r = rank < j->world ? &j->ranks[rank] : NULL;
	if (!r || r->state != SR_IN || r->node != n) {
		out_refuse(s, n, req, TALLY_ENOENT, "rank %u of job '%.128s' is not on machine "
			   "%.128s", rank, j->name, n->name);
		return NULL;
	}
	return j;
}

bool job_refuses(struct sched *s, const struct sched_job *j, struct sched_node *n, uint64_t req)
{
	if (j->nleft)
		out_refuse(s, n, req, TALLY_ESHUTDOWN, "rank %u of job '%.128s' has detached",
			   first_left(j), j->name);
	return j->nleft != 0;
}

static void tell_left(struct sched *s, struct sched_job *j, const struct sched_node *from,
		      uint32_t rank)
{
	struct msg *m = out_msg(s, MSG_RANK_LEAVE);

	if (m)
		m->rank_leave = (struct msg_rank_leave){
			.job = j->number, .rank = rank, .text = "",
		};
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (j->machines[i].node && j->machines[i].node != from)
			out_send(s, j->machines[i].node, m);
	}
}

/* Fails the requests that wait for a rank which will never come; what is in the log goes on. */
static void fail_collectives(struct sched *s, struct sched_job *j, uint32_t rank)
{
	struct err e;

	err_set(&e, TALLY_ESHUTDOWN, "rank %u of job '%.128s' has detached", rank, j->name);
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->entry || (q->kind == SQ_JOIN && !q->grow))
			continue;
		if (q->kind == SQ_BARRIER)
			barrier_leave(j, q);
		else
			tensor_withdraw(s, j, q);
		req_done(s, j, q, e.code, e.text, NULL, 0);
	}
	if (j->state == SJ_UP)
		grow_answer(s, j);
}

/* A lost rank, or what an agent has found that makes the job impossible. */
static void leave_broken(struct sched *s, struct sched_job *j, const struct sched_node *n,
			 const struct msg_rank_leave *m)
{
	const char *text = m->text[0] ? m->text : err_name(m->code);

	if (m->code == TALLY_EMISMATCH || m->code == TALLY_ESHUTDOWN)
		job_down(s, j, m->code, "%s", text);	/* it names whose doing it is */
	else if (m->code == TALLY_EWORKERLOST)
		job_down(s, j, m->code, "rank %u on machine %.128s is gone (%.200s)", m->rank,
			 n->name, text);
	else
		job_down(s, j, m->code, "machine %.128s: %.300s", n->name, text);
}

/*
 * Whether an agent reports that the job cannot go on. It names any rank of its machine for that,
 * also one that is lost or has detached.
 */
static bool found_by_agent(struct sched_job *j, const struct sched_node *n,
			   const struct msg_rank_leave *m)
{
	const struct sched_part *p = job_machine_part(j, n);
	const struct sched_rank *r = &j->ranks[m->rank];

	return m->code && m->code != TALLY_EWORKERLOST && p &&
	       (j->state == SJ_UP || j->state == SJ_HELD) &&
	       (r->state == SR_LOST || r->state == SR_LEFT) &&
	       r->machine == (uint32_t)(p - j->machines);
}

static void rank_left(struct sched *s, struct sched_job *j, const struct sched_node *n,
		      uint32_t rank)
{
	j->nin -= j->ranks[rank].state == SR_IN;
	j->ranks[rank].state = SR_LEFT;
	j->nleft++;
	/* While we recover those of an agent that is yet to come may be in. */
	if (!j->nin && (j->state == SJ_UP || j->nleft + j->nlost == j->world)) {
		job_down(s, j, 0, "all ranks have detached");
		return;
	}
	fail_collectives(s, j, rank);
	tell_left(s, j, n, rank);
}

void job_leave(struct sched *s, struct sched_node *n, const struct msg_rank_leave *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_rank *r = j && m->rank < j->world ? &j->ranks[m->rank] : NULL;

	if (!m->job) {
		job_withdraw(s, n, m);
		return;
	}
	if (r && found_by_agent(j, n, m)) {
		leave_broken(s, j, n, m);
		return;
	}
	if (!r || r->node != n || r->state != SR_IN || (j->state != SJ_UP && j->state != SJ_HELD)) {
		s->counters.strays++;
		return;
	}
	if (m->code == TALLY_EWORKERLOST &&
	    shrink_rank(s, j, m->rank, m->text[0] ? m->text : "its process has ended"))
		return;
	if (m->code) {
		leave_broken(s, j, n, m);
		return;
	}
	rank_left(s, j, n, m->rank);
}

void job_take_left(struct sched *s, struct sched_job *j, const struct sched_node *n,
		   const struct msg_job_up *m)
{
	for (uint32_t i = 0; i < m->nleft && j->state != SJ_DOWN; i++) {
		enum sched_rank_state state = j->ranks[m->left[i]].state;

		if (state == SR_NONE || state == SR_IN)
			rank_left(s, j, n, m->left[i]);
	}
}

/* ---- nodes that die or come back ---- */

static void forget_node(struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t r = 0; r < j->world; r++) {
		if (j->ranks[r].node == n)
			j->ranks[r].node = NULL;
	}
	for (uint32_t i = 0; i < j->nmachines; i++) {
		struct sched_part *p = &j->machines[i];

		if (p->node != n)
			continue;
		p->node = NULL;
		p->return_by = 0;
		p->unsure = p->coming = p->expected = false;
	}
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (j->servers[i].node == n)
			j->servers[i].node = NULL;
	}
}

/* Ranks of that machine that are in; `missing`: without those that have come back or live. */
static uint32_t count_ranks(const struct sched *s, const struct sched_job *j,
			    const struct sched_node *n, bool missing, uint32_t *first)
{
	uint32_t count = 0;

	for (uint32_t r = 0; r < j->world; r++) {
		const struct sched_rank *k = &j->ranks[r];

		if (k->node != n || k->state != SR_IN ||
		    (missing && (k->back || return_lives(s, k))))
			continue;
		if (!count++)
			*first = r;
	}
	return count;
}

/*
 * Ranks that live are not the reason, where others are missing.  Where all live, their agent is
 * lost for the job by what it said, and they are lost with it: no rank stays in without a node.
 */
uint32_t job_lost_with(const struct sched *s, struct sched_job *j, const struct sched_node *n,
		       const char *why, struct err *e)
{
	const struct sched_part *part = job_machine_part(j, n);
	bool some_back = part && part->return_by && n->state == SN_UP;	/* they live */
	uint32_t first = 0, lost = count_ranks(s, j, n, some_back, &first);

	if (!lost)
		lost = count_ranks(s, j, n, false, &first);
	if (lost == 1)
		err_set(e, TALLY_EWORKERLOST, "rank %u on machine %.128s is gone (the agent's %s)",
			first, n->name, why);
	else
		err_set(e, TALLY_EWORKERLOST, "rank %u and %u more on machine %.128s are gone "
			"(the agent's %s)", first, lost - 1, n->name, why);
	return lost;
}

void job_agent_dead(struct sched *s, struct sched_job *j, struct sched_node *n, const char *why)
{
	bool gathering = j->state == SJ_GATHERING;
	struct sched_part *part = job_machine_part(j, n);
	struct err e;
	uint32_t lost;

	req_drop_of(s, j, n, UINT32_MAX);
	if (part && shrink_machine(s, j, part, why)) {
		forget_node(j, n);
		return;
	}
	lost = job_lost_with(s, j, n, why, &e);
	for (uint32_t r = 0; r < j->world && gathering; r++)
		if (j->ranks[r].node == n && j->ranks[r].state == SR_IN)
			job_rank_out(s, j, r);
	forget_node(j, n);
	if (!lost && j->state == SJ_UP)
		epoch_settle(s, j);	/* its ranks have detached, and no epoch waits for it */
	if (lost && !gathering)
		job_down(s, j, e.code, "%s", e.text);
}

/* Its chunks move (sched_epoch.c), as soon as the job trains. */
void job_server_lost(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	p->node = NULL;
	p->ready = true;
	p->joining = p->fresh = p->told_up = p->unsure = false;
	p->let_go_by = p->cut_since = 0;
	job_pump(s, j);
}

void job_node_dead(struct sched *s, struct sched_node *n, const char *why)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_part *p = job_server_part(s->jobs[i], n);

		if (n->kind == NODE_AGENT)
			job_agent_dead(s, s->jobs[i], n, why);
		else if (p)
			job_server_lost(s, s->jobs[i], p);
	}
	s->any_down = true;
}

void job_tell_leaves(struct sched *s, const struct sched_job *j, const struct sched_part *p)
{
	for (uint32_t r = 0; j->nleft && r < j->world; r++) {
		struct msg *m;

		if (j->ranks[r].state != SR_LEFT)
			continue;
		m = out_msg(s, MSG_RANK_LEAVE);
		if (m)
			m->rank_leave = (struct msg_rank_leave){
				.job = j->number, .rank = r, .text = "",
			};
		out_send(s, p->node, m);
	}
}

void job_node_back(struct sched *s, struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];

		if (j->state == SJ_DOWN) {
			tell_everybody_down(s, j);
			continue;
		}
		if (j->state == SJ_UP || (j->state == SJ_RESERVING && n->kind == NODE_SERVER))
			epoch_back(s, j, n);
		job_pump(s, j);
	}
}
