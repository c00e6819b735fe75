// SPDX-License-Identifier: Apache-2.0
/*
 * sched_held.c - jobs that outlived the scheduler.
 *
 * For a while after a restart agents say which jobs they hold and what is in
 * their logs.  The first report of a job is the truth; an agent that says
 * otherwise is told that its job is over.  A job that ends meanwhile is remembered
 * for those who are yet to come back.  When the time is up, jobs whose
 * agents are all back go on; agents that are behind get the entries they miss, and
 * DECLAREs that came in meanwhile are served.  An agent that did not come back has its
 * grace from then on (sched_return.c), and tells of the job then (sched_late.c); without one
 * the job is over, and says who it was.
 * Where chunks are the agents say, too, those of the newest epoch; servers that did not
 * come back, or do not have the job, are lost as any other.
 *
 * Outside that time a report of a known job needs nothing, and of an unknown one is
 * answered with JOB_DOWN, if there could have been others to tell of it.  Servers report their
 * jobs by repeating JOB_READY.  What they say while we recover is kept, since they may come
 * back before the agents do.
 */
#include "scheduler/sched_claim.h"

#include <stdio.h>

static void down_for_one(struct sched *s, struct sched_node *n, uint32_t job, int code,
			 const char *text)
{
	struct msg *m = out_msg(s, MSG_JOB_DOWN);

	if (m)
		m->job_down = (struct msg_job_down){
			.job = job, .code = code, .text = out_string(s, text),
		};
	out_send(s, n, m);
	s->counters.strays++;
}

/* A server reports a job that no agent held, or that ended while the server was away. */
void held_unknown(struct sched *s, struct sched_node *n, uint32_t job)
{
	const struct err *why = job_ended(s, job);

	down_for_one(s, n, job, why ? why->code : TALLY_ESHUTDOWN, why ? why->text :
		     "the scheduler does not know the job any more");
}

/* The job is over for it; without it others may go on. */
void held_lost(struct sched *s, struct sched_node *n, const struct sched_job *j,
	       const struct sched_part *p)
{
	down_for_one(s, n, j->number, j->why.code ? j->why.code : TALLY_EWORKERLOST,
		     j->why.code ? j->why.text : shrink_why(s, j, p));
}

/* ---- JOB_HELD ---- */

static void take_ranks(struct sched_job *j, const struct msg_machine *m, uint32_t machine)
{
	for (uint32_t i = 0; i < m->nranks; i++) {
		if (m->ranks[i] < j->world)
			j->ranks[m->ranks[i]].machine = machine;
	}
}

static bool all_placed(const struct sched_job *j)
{
	for (uint32_t r = 0; r < j->world; r++) {
		if (j->ranks[r].machine == UINT32_MAX)
			return false;
	}
	return true;
}

static void name_row(struct sched_part *p, const struct msg_server *m)
{
	snprintf(p->name, NAME_LEN_MAX + 1, "%s", m->name);
	p->number = m->node;
	p->engines = m->engines;
}

/* The servers as the newest epoch has them; placements of older ones do not count. */
static bool take_epoch(struct sched *s, struct sched_job *j, const struct msg_job_up *m)
{
	struct sched_part *servers = sched_alloc(s, MAX(m->nservers, 1) * sizeof(*servers));

	if (!servers)
		return false;
	list_for_each(&j->tensors, p)
		place_drop(s, j, list_entry(p, struct sched_tensor, link));
	sched_release(s, j->servers);
	sched_release(s, j->place);
	j->servers = servers;
	j->nservers = m->nservers;
	j->servers_room = MAX(m->nservers, 1);
	j->epoch = m->epoch;
	j->epoch_seq = m->seq;
	j->repair = m->repair;
	for (uint32_t i = 0; i < m->nservers; i++) {
		name_row(&servers[i], &m->servers[i]);
		servers[i].weight = m->servers[i].weight;
		servers[i].pace.planned = m->servers[i].weight;	/* as far as we know */
	}
	sched_epoch_seen(s, j->epoch);
	return place_new(s, j);
}

static struct sched_job *held_new(struct sched *s, const struct msg_job_up *m)
{
	struct sched_job *j = s->njobs < JOBS_MAX ? job_new(s, m->name, m->world) : NULL;

	if (!j)
		return NULL;
	j->servers_room = MAX(m->nservers, 1);
	j->machines = sched_alloc(s, m->nmachines * sizeof(*j->machines));
	j->servers = sched_alloc(s, MAX(m->nservers, 1) * sizeof(*j->servers));
	if (!j->machines || !j->servers) {
		job_free(s, j);
		return NULL;
	}
	j->number = m->job;
	j->state = SJ_HELD;
	j->outlived = true;
	j->chunk_bytes = m->chunk_bytes;
	j->seg_bytes = m->seg_bytes;
	j->window_bytes = m->window_bytes;
	j->on_loss = (enum on_loss)m->on_loss;
	if (m->user)
		join_take_user(j, MSG_USER_UID(m->user));
	j->nmachines = m->nmachines;
	for (uint32_t r = 0; r < j->world; r++)
		j->ranks[r].machine = UINT32_MAX;
	for (uint32_t i = 0; i < m->nmachines; i++) {
		snprintf(j->machines[i].name, NAME_LEN_MAX + 1, "%s", m->machines[i].name);
		j->machines[i].number = m->machines[i].node;
		j->machines[i].engines = m->machines[i].engines;
		take_ranks(j, &m->machines[i], i);
	}
	if (!all_placed(j) || !take_epoch(s, j, m)) {
		job_free(s, j);
		return NULL;
	}
	grow_take(j, m);
	shrink_take(s, j, m);
	out_log(s, SCHED_INFO, "job %s is held, number %u", j->name, j->number);
	return j;
}

/*
 * A row without a number is one of a server that was being offered the job when its agent heard
 * of it once more (plan_job_again()): the others have who was there before, with nothing to sum.
 * Once the job is up we ourselves offer it such rows, and may have had to give them up.
 */
static bool same_row(const struct sched_job *j, const struct sched_part *p,
		     const struct msg_server *m)
{
	if (p->weight != m->weight)
		return false;
	return p->number == m->node || !p->number || !m->node ||
	       (j->state != SJ_HELD && !p->weight);
}

static bool same_servers(const struct sched_job *j, const struct msg_job_up *m)
{
	static const struct msg_server none;

	if (j->nservers < m->nservers || (j->state == SJ_HELD && j->nservers > m->nservers))
		return false;
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (!same_row(j, &j->servers[i], i < m->nservers ? &m->servers[i] : &none))
			return false;
	}
	return true;
}

bool held_agrees(const struct sched_job *j, const struct msg_job_up *m)
{
	if (strcmp(j->name, m->name) || j->world != m->world ||
	    j->chunk_bytes != m->chunk_bytes || j->nmachines != m->nmachines ||
	    j->on_loss != m->on_loss || m->seq > SCHED_SEQ_MAX)
		return false;
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (strcmp(j->machines[i].name, m->machines[i].name))
			return false;
	}
	return j->epoch != m->epoch || same_servers(j, m);
}

static struct sched_part *part_named(struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (!strcmp(j->machines[i].name, n->name))
			return &j->machines[i];
	}
	return NULL;
}

/* Each agent speaks for its own ranks: those it does not list have left. */
static void enter(struct sched *s, struct sched_job *j, struct sched_node *n,
		  const struct msg_job_up *m)
{
	struct sched_part *p = part_named(j, n);
	uint32_t at;

	if (!p || !held_agrees(j, m) || (m->epoch > j->epoch && !held_valid(s, m))) {
		down_for_one(s, n, m->job, TALLY_EMISMATCH, "the agents that hold this job do not "
			     "agree on it");
		return;
	}
	if (p->held && !p->out) {
		if (p->node == n)
			job_tell_leaves(s, j, p);	/* it was away once more */
		return;
	}
	if (m->epoch > j->epoch) {
		if (!take_epoch(s, j, m)) {
			job_down(s, j, TALLY_ENOMEM, "the scheduler is out of memory");
			return;
		}
		grow_take(j, m);
		shrink_take(s, j, m);
	}
	j->seq = j->told = MAX(j->seq, j->epoch_seq);	/* as far as the log goes at least */
	if (p->out) {
		down_for_one(s, n, m->job, TALLY_EWORKERLOST, shrink_why(s, j, p));
		return;
	}
	for (uint32_t i = 0; m->epoch == j->epoch && i < j->nservers; i++)
		if (!j->servers[i].number)
			name_row(&j->servers[i], &m->servers[i]);
	at = (uint32_t)(p - j->machines);
	p->node = n;
	p->held = p->told_up = true;
	p->told = false;
	p->held_epoch = m->epoch;
	if (j->nmachines == 1)
		p->number = n->number;	/* another one, if it came late; no server knows it */
	job_take_left(s, j, n, m);
	if (j->state == SJ_DOWN)
		return;
	for (uint32_t i = 0; i < m->machines[at].nranks; i++) {
		uint32_t r = m->machines[at].ranks[i];

		if (r >= j->world || j->ranks[r].machine != at || j->ranks[r].state != SR_NONE)
			continue;
		j->ranks[r].state = SR_IN;
		j->ranks[r].node = n;
		j->nin++;
	}
	job_tell_leaves(s, j, p);	/* who came before it */
}

/*
 * A rank whose agent has not heard that the job is up, or who has not heard it from its
 * agent.  Where nothing came after JOB_UP that agent can hear it when the wait is over.
 */
bool held_join(struct sched *s, struct sched_job *j, struct sched_node *n,
	       const struct msg_rank_join *m)
{
	struct sched_part *p = part_named(j, n);
	struct sched_rank *r = m->rank < j->world ? &j->ranks[m->rank] : NULL;

	if (!p || !r || r->machine != (uint32_t)(p - j->machines) || p->number != n->number ||
	    (p->held && p->node != n) ||
	    (!p->held && (j->seq || j->epoch_seq)) || p->out || r->state == SR_LEFT ||
	    r->state == SR_LOST)
		return false;
	if (!p->held) {
		p->node = n;
		p->held = p->told = p->unsure = true;
		p->held_epoch = p->settled = j->epoch;
	}
	if (r->state == SR_NONE) {	/* else its agent holds the job for its process */
		r->state = SR_IN;
		r->node = n;
		r->pid = m->pid;
		j->nin++;
	}
	join_take_user(j, m->uid);
	req_new(s, j, n, SQ_JOIN, m->rank, m->req, m->timeout_ms, 0);
	return true;
}

/* Ranks that came before those who hold the job, and perhaps in the place of lost ones. */
static void move_joins(struct sched *s, struct sched_job *from, struct sched_job *to)
{
	list_for_each_safe(&from->reqs, l, next) {
		struct sched_req *q = list_entry(l, struct sched_req, link);
		mono_t left = MAX(q->deadline - s->now, 0);	/* the timer may be yet to come */
		const struct msg_rank_join m = {
			.req = q->req, .job = to->name, .world = from->world, .rank = q->rank,
			.pid = from->ranks[q->rank].pid, .on_loss = (uint32_t)from->on_loss,
			.timeout_ms = (uint32_t)(left / mono_ms(1)) + 1,
			.chunk_bytes = from->chunk_bytes, .uid = from->uid,
		};

		if (join_other_world(s, to, q->node, &m) ||
		    held_join(s, to, q->node, &m) ||
		    grow_join(s, to, q->node, &m))
			req_drop(s, from, q);
	}
}

/* We would place its next chunks elsewhere than those who have it. */
static const char *other_algorithm(struct sched *s, const struct msg_job_up *m)
{
	struct err e;

	err_set(&e, TALLY_EVERSION, "the job places by algorithm %u, and the scheduler that was "
		"started meanwhile by %u: they have to be of the same version", m->algorithm,
		PLACE_ALGORITHM);
	return out_string(s, e.text);
}

void held_job(struct sched *s, struct sched_node *n, const struct msg_job_up *m)
{
	struct sched_job *j = job_by_number(s, m->job), *same;
	uint64_t nomem = s->counters.nomem;
	struct sched_part *p;
	bool late;

	if (j && j->state == SJ_HELD) {
		enter(s, j, n, m);
		return;
	}
	if (j && j->state == SJ_DOWN) {
		down_for_one(s, n, m->job, j->why.code, j->why.text);
		return;
	}
	if (j && j->state != SJ_GATHERING && part_named(j, n)) {
		p = part_named(j, n);
		if (late_job(s, j, p, n, m))
			return;
		late = p->node == n && p->return_by;
		if (late)
			job_agent_dead(s, j, n, "report of the job came too late");
		if (j->state == SJ_DOWN)
			down_for_one(s, n, m->job, j->why.code, j->why.text);
		else if (late || p->out)
			down_for_one(s, n, m->job, TALLY_EWORKERLOST, shrink_why(s, j, p));
		return;
	}
	if (j || (!s->recover_until && !late_alone(s, m)) || !held_valid(s, m)) {
		held_unknown(s, n, m->job);
		return;
	}
	same = job_by_name(s, m->name);
	if (m->nmachines > 1 && m->algorithm != PLACE_ALGORITHM) {
		down_for_one(s, n, m->job, TALLY_EVERSION, other_algorithm(s, m));
		return;
	}
	if (same && same->state != SJ_GATHERING) {
		down_for_one(s, n, m->job, TALLY_EMISMATCH, "another job has the same name");
		return;
	}
	j = held_new(s, m);
	if (j)
		enter(s, j, n, m);
	else if (s->counters.nomem != nomem)
		out_send_conn(s, n->conn, NULL);	/* closed: it comes and tells again */
	else
		down_for_one(s, n, m->job, TALLY_EMISMATCH, "there are too many jobs, or a rank "
			     "of the job has no machine");
	if (j && j->state == SJ_DOWN)
		return;			/* all its ranks have detached: `same` is the next one */
	if (same && j)
		move_joins(s, same, j);
	if (same && j && j->nleft)
		job_down(s, same, TALLY_EBUSY, "the job '%.128s' of before is not over", m->name);
	else if (same)
		job_down(s, same, TALLY_EEXIST, "job '%.128s' is running already", m->name);
}

/* ---- TENSORS_HELD ---- */

/* The part whose log goes on with entry `seq`, or NULL. */
static struct sched_part *next_entry(struct sched *s, struct sched_node *n, uint32_t job,
				     uint64_t seq, struct sched_job **out)
{
	struct sched_job *j = job_by_number(s, job);
	struct sched_part *p = j && j->state == SJ_HELD ? part_named(j, n) : NULL;

	if (!p || !p->held || p->node != n || seq <= p->seq || seq > SCHED_SEQ_MAX) {
		if (!j)
			s->counters.strays++;
		return NULL;
	}
	p->seq = seq;
	j->seq = j->told = MAX(j->seq, seq);
	*out = j;
	return p;
}

static bool promote(struct sched *s, struct sched_job *j, struct sched_tensor *t,
		    const struct msg_tensor *m, uint64_t seq)
{
	if (!tensor_equal(t, m) || tensor_by_id(j, m->id))
		return false;
	tensor_drop_set(s, t);
	tensor_drop_meaning(s, j, t);
	tensor_set_id(j, t, m->id);
	t->state = ST_UP;
	t->priority = m->priority;
	t->seq = seq;
	t->nheld = 1;
	j->bytes += tensor_bytes(t);
	return true;
}

/* False: it contradicts what another agent has said, or there is no memory. */
static bool take_tensor(struct sched *s, struct sched_job *j, const struct msg_tensor *m,
			uint64_t seq)
{
	struct sched_tensor *t = tensor_by_name(j, m->name);

	if (!m->id || !m->name[0])
		return false;
	if (t && t->id && t->id > m->id)
		return true;		/* declared anew since; this one is forgotten */
	if (t && t->id && t->id < m->id) {
		j->bytes -= tensor_bytes(t);
		tensor_purge(s, j, t, TALLY_EBUSY, "the tensor was taken back meanwhile");
		t = NULL;
	}
	if (t && t->state == ST_UP) {
		t->nheld++;
		return t->seq == seq && tensor_equal(t, m);
	}
	if (t && t->state != ST_WANTED)
		return false;
	if (!t && j->ntensors < TENSORS_PER_JOB_MAX)
		t = tensor_new(s, j, m);
	if (t && promote(s, j, t, m, seq))
		return true;
	if (t && !t->nset)
		tensor_free(s, j, t);	/* another one has its id */
	return false;
}

/* Where its chunks are, unless somebody has said so or the agent is behind. */
static bool take_placed(struct sched *s, struct sched_job *j, const struct sched_part *p,
			const struct msg_tensors *m, uint32_t i, uint32_t *at)
{
	struct sched_tensor *t = tensor_by_id(j, m->tensors[i].id);
	uint64_t bytes = m->tensors[i].count * dtype_bytes((uint8_t)m->tensors[i].dtype);
	uint32_t first = *at;

	*at = first + (uint32_t)MIN(div_round_up(bytes, j->chunk_bytes), PLACED_MAX);
	if (p->held_epoch != j->epoch || !t || t->seq != m->seq || !list_empty(&t->placed))
		return true;
	return first <= m->nplaced && place_take(s, j, t, m->placed + first, m->nplaced - first);
}

void held_tensors(struct sched *s, struct sched_node *n, const struct msg_tensors *m)
{
	struct sched_job *j;
	struct sched_part *p = next_entry(s, n, m->job, m->seq, &j);
	uint64_t nomem = s->counters.nomem;
	uint32_t at = 0;

	if (!p) {
		late_tensors(s, n, m);
		return;
	}
	for (uint32_t i = 0; i < m->ntensors; i++) {
		if (take_tensor(s, j, &m->tensors[i], m->seq) &&
		    take_placed(s, j, p, m, i, &at))
			continue;
		if (s->counters.nomem != nomem)
			job_down(s, j, TALLY_ENOMEM, "the scheduler is out of memory");
		else
			job_down(s, j, TALLY_EMISMATCH,
				 "job '%.96s': machine %.96s contradicts another one on tensor "
				 "'%s'", j->name, n->name, m->tensors[i].name);
		return;
	}
}

static void resume(struct sched *s, struct sched_job *j);

/* Its log ends here; FORGET and EPOCH entries are told by nothing else. */
void held_last(struct sched *s, struct sched_job *j, struct sched_part *p,
	       const struct msg_ready *m)
{
	if (j->state != SJ_HELD || !p->held || m->log > SCHED_SEQ_MAX || MUTATE(18))
		return;
	p->told = true;
	p->seq = MAX(p->seq, m->log);
	j->seq = j->told = MAX(j->seq, m->log);
	barrier_passed(s, j, m->barrier);
	if (!s->recover_until)
		resume(s, j);		/* its only agent has told all */
}

/* ---- JOB_READY of servers ---- */

static struct sched_said *said_of(const struct sched_node *n, uint32_t job)
{
	list_for_each(&n->said, l) {
		struct sched_said *x = list_entry(l, struct sched_said, link);

		if (x->job == job)
			return x;
	}
	return NULL;
}

/* The job may not be known yet.  Without memory the server is as one that lacks it. */
void held_said(struct sched *s, struct sched_node *n, const struct msg_ready *m)
{
	struct sched_said *x = said_of(n, m->job);
	uint32_t count = 0;

	if (m->code) {
		if (x)
			list_del(&x->link);
		sched_release(s, x);
		return;
	}
	list_for_each(&n->said, l)
		count++;
	if (!x && count < JOBS_MAX) {
		x = sched_alloc(s, sizeof(*x));
		if (x)
			list_add(&n->said, &x->link);
	}
	if (!x)
		return;
	x->job = m->job;
	x->epoch = m->epoch;
	x->log = m->log;
}

void held_unsay(struct sched *s, struct sched_node *n)
{
	while (!list_empty(&n->said)) {
		struct sched_said *x = list_first(&n->said, struct sched_said, link);

		list_del(&x->link);
		sched_release(s, x);
	}
}

/* ---- the end of the wait ---- */

/*
 * Its ranks asked before anybody had said what came after JOB_UP; by that they are not those
 * that were in, and its agent has nothing of the job.  They hear so.
 */
static bool is_stranger(struct sched *s, struct sched_job *j, const struct sched_part *p)
{
	if (!p->held || p->told_up || !j->seq)
		return false;
	list_for_each_safe(&j->reqs, l, next) {
		struct sched_req *q = list_entry(l, struct sched_req, link);

		if (q->kind == SQ_JOIN && !q->grow && q->node == p->node)
			req_done(s, j, q, TALLY_EWORKERLOST, "the job is running already, and "
				 "its machine has lost it", NULL, 0);
	}
	return true;
}

static bool machines_back(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		struct sched_part *p = &j->machines[i];

		if (p->out || (p->held && p->node && !is_stranger(s, j, p)))
			continue;
		if (late_expect(s, j, p) ||
		    shrink_machine(s, j, p, "it did not come back after the scheduler's restart"))
			continue;
		job_down(s, j, TALLY_EWORKERLOST, "machine %.128s did not come back after the "
			 "scheduler's restart", p->name);
		return false;
	}
	return true;
}

/* Whether a server has all that agents have; an entry behind that it takes back, or cannot. */
static bool has_job(const struct sched_job *j, const struct sched_said *x)
{
	return x && (x->epoch == j->epoch ? x->log >= j->seq :
		     x->epoch > j->epoch && x->log > j->seq);
}

/*
 * A server may have been drained out of the job, or have heard an epoch of a scheduler that died
 * where the log goes on with another one, or have missed a FORGET that cannot be told again.
 * Agents may wait for what such a one had under this number: it gets another one.  What it was
 * told and no agent, perhaps an epoch, never was.
 */
static void find_servers(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		struct sched_part *p = &j->servers[i];
		struct sched_node *n = node_by_name(s, NODE_SERVER, p->name);
		const struct sched_said *x = n ? said_of(n, j->number) : NULL;

		p->ready = true;
		p->seq = j->seq;
		if (!n || n->state == SN_DEAD || n->number != p->number)
			continue;
		if (!MUTATE(17) && !has_job(j, x)) {
			if (x || epoch_has_chunks(j, p))
				node_die(s, n, "it has not the job as agents know it");
			continue;
		}
		p->stale = x && x->log > j->seq ? x->log : 0;
		p->told_up = true;
		p->fresh = !p->weight;		/* it may have been about to come again */
		p->node = n;
	}
}

/*
 * Brings tensors that several agents reported into the order of the log, which is that of their
 * ids.
 */
static bool sort_placed(struct sched_job *j)
{
	struct list sorted;

	list_init(&sorted);
	while (!list_empty(&j->placed)) {
		struct sched_tensor *t = list_first(&j->placed, struct sched_tensor, placed);
		struct list *at = sorted.prev;

		list_del(&t->placed);
		while (at != &sorted && list_entry(at, struct sched_tensor, placed)->id > t->id)
			at = at->prev;
		list_add(at->next, &t->placed);
	}
	while (!list_empty(&sorted)) {
		struct list *l = sorted.next;

		list_del(l);
		list_add(&j->placed, l);
	}
	list_for_each(&j->tensors, p) {
		const struct sched_tensor *t = list_entry(p, struct sched_tensor, link);

		if (t->state == ST_UP && list_empty(&t->placed))
			return false;
	}
	return true;
}

/* Drops tensors that agents have been told to forget: they have the entry, not the tensor. */
static bool drop_forgotten(struct sched *s, struct sched_job *j, struct sched_gone *g)
{
	g->n = 0;
	g->ids = out_scratch(s, (j->ntensors + 1) * sizeof(*g->ids));
	if (!g->ids)
		return false;
	list_for_each_safe(&j->tensors, p, next) {
		struct sched_tensor *t = list_entry(p, struct sched_tensor, link);
		uint32_t expected = 0;

		for (uint32_t i = 0; i < j->nmachines; i++)
			expected += j->machines[i].seq >= t->seq;
		if (t->state != ST_UP || t->nheld >= expected)
			continue;
		g->ids[g->n++] = t->id;
		j->bytes -= tensor_bytes(t);
		tensor_purge(s, j, t, TALLY_EBUSY, "the tensor was taken back meanwhile");
		next = j->tensors.next;		/* the purge may have freed more */
	}
	return true;
}

/* Sends JOB_UP, as it is now, to a resyncing node, which may have lost it. */
static void tell_up(struct sched *s, const struct sched_job *j, struct sched_part *p)
{
	if (!p->unsure)
		return;
	p->told_up = out_send(s, p->node, plan_job_up(s, j, j->nservers, false));
	p->unsure = false;
	p->held_epoch = j->epoch;
}

static void answer_joins(struct sched *s, struct sched_job *j)
{
	list_for_each_safe(&j->reqs, l, next) {
		struct sched_req *q = list_entry(l, struct sched_req, link);

		if (q->kind == SQ_JOIN && !q->grow && !grow_joins(j, q->rank))
			req_done(s, j, q, 0, "", &j->number, 1);
	}
}

static void resume(struct sched *s, struct sched_job *j)
{
	struct sched_gone gone;

	j->resumed = j->seq;
	find_servers(s, j);
	if (!machines_back(s, j))
		return;
	for (uint32_t r = 0; r < j->world; r++) {
		if (j->ranks[r].state != SR_NONE)
			continue;
		j->ranks[r].state = SR_LEFT;
		j->nleft++;
	}
	if (!j->nin) {
		job_down(s, j, j->nleft ? 0 : TALLY_EWORKERLOST, "%s", j->nleft ?
			 "all ranks have detached" : "all ranks are lost");
		return;
	}
	if (!drop_forgotten(s, j, &gone)) {
		job_down(s, j, TALLY_ENOMEM, "the scheduler is out of memory");
		return;
	}
	if (!sort_placed(j)) {
		job_down(s, j, TALLY_EMISMATCH, "job '%.128s': no agent says where its chunks are",
			 j->name);
		return;
	}
	for (uint32_t i = 0; i < j->nmachines; i++) {
		struct sched_part *p = &j->machines[i];

		if (p->out || p->return_by || !p->node || late_away(s, j, p) ||
		    p->node->state == SN_AWAY)
			continue;
		tell_up(s, j, p);
		if (!late_catch_up(s, j, p, &gone))
			return;
		job_tell_leaves(s, j, p);
	}
	/* Servers may know one entry that no agent has: its ids are not used again. */
	if (j->last_id < UINT32_MAX - TENSORS_PER_BATCH_MAX)
		j->last_id += TENSORS_PER_BATCH_MAX;
	job_set_state(s, j, SJ_UP, "all agents and servers are back");
	key_tell_job(s, j);
	grow_resume(j);
	answer_joins(s, j);
	epoch_settle(s, j);
	tensor_issue(s, j, SQ_DECLARE);
	tensor_issue(s, j, SQ_UNDECLARE);
	job_pump(s, j);
}

/* Ends the jobs that a server reports and that are over, or go on without it. */
static void end_strays(struct sched *s, struct sched_node *n)
{
	list_for_each(&n->said, l) {
		const struct sched_said *x = list_entry(l, struct sched_said, link);
		struct sched_job *j = job_by_number(s, x->job);

		if (n->state == SN_UP && (!j || !job_server_part(j, n)))
			held_unknown(s, n, x->job);
	}
	held_unsay(s, n);
}

static void over(struct sched *s)
{
	s->recover_until = 0;
	late_close_tellers(s);
	s->any_down = true;
	out_log(s, SCHED_INFO, "scheduler is active again, %u jobs were held", s->njobs);
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (s->jobs[i]->state == SJ_HELD)
			resume(s, s->jobs[i]);
	}
	for (uint32_t i = 0; i < s->nnodes; i++)
		end_strays(s, s->nodes[i]);
	node_recovered(s);
	job_servers_changed(s);
}

/*
 * Whether the connection of an agent that has reported broke just now: what it missed can only
 * be sent to it when all is reported, which is when the recovery is over.
 */
static bool any_blinks(const struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		const struct sched_node *n = s->nodes[i];

		if (n->kind == NODE_AGENT && n->state == SN_AWAY &&
		    s->now - n->away < mono_ms(RECONNECT_GRACE_MS))
			return true;
	}
	return false;
}

bool held_look(struct sched *s)
{
	if (s->now < s->recover_until ||
	    ((any_blinks(s) || late_any_tells(s)) &&
	     s->now < s->recover_until + mono_ms(LEASE_MS)))
		return false;
	over(s);
	return true;
}
