// SPDX-License-Identifier: Apache-2.0
/*
 * sched_grow.c - ranks that come back into a job that goes on without those it loses.
 *
 * A process that attaches in the place of a lost rank waits (its RANK_JOIN does).  At a
 * barrier of the kind "grow" no survivor has a round under way, so all are at the same
 * round of every tensor: that is where somebody can come in.  When all survivors are
 * there and somebody waits, an epoch makes the world larger, as another one made it
 * smaller: all chunks are placed anew, and nothing of the two worlds can meet.  When all
 * agents follow it, the barrier opens for the survivors and for those who came in: they
 * count as having been there.
 *
 * A machine of which no rank was left comes back with them: by its name, and with the
 * number by which servers know it.  Its agent has nothing of the job, and is told all of
 * it, with the rounds that the others say, when they all follow the epoch.
 *
 * Who dies meanwhile is lost as at any other time; the barrier does not wait for it.  A
 * scheduler that is restarted meanwhile hears from the agents at which barrier who came
 * in: one that nobody has passed is waited for again.
 */
#include "scheduler/sched.h"

#include <stdio.h>

#define PROCESS_TEXT	32u

/* ---- who waits, and who is coming in ---- */

static bool waits(const struct sched_req *q)
{
	return q->kind == SQ_JOIN && q->grow;
}

static struct sched_req *waiter_of(const struct sched_job *j, uint32_t rank)
{
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->rank == rank && waits(q))
			return q;
	}
	return NULL;
}

/* A machine's agent, also when the job goes on without it. */
static bool is_agent(const struct sched_part *p, const struct sched_node *n)
{
	return p->node ? p->node == n : p->number == n->number;
}

/* An epoch has said that it is gone, and its machine is in the job, or comes in with it. */
static bool may_come(const struct sched_job *j, const struct sched_req *q)
{
	const struct sched_rank *r = &j->ranks[q->rank];
	const struct sched_part *p = &j->machines[r->machine];

	return waits(q) && r->gone && is_agent(p, q->node) &&
	       (p->node || q->node->state == SN_UP);
}

bool grow_any(const struct sched_job *j)
{
	list_for_each(&j->reqs, p)
		if (may_come(j, list_entry(p, struct sched_req, link)))
			return true;
	return false;
}

struct sched_node *grow_node(const struct sched_job *j, uint32_t machine)
{
	if (j->machines[machine].node || !j->grows)
		return j->machines[machine].node;
	list_for_each(&j->reqs, p) {
		const struct sched_req *q = list_entry(p, struct sched_req, link);

		if (j->ranks[q->rank].machine == machine && may_come(j, q))
			return q->node;
	}
	return NULL;
}

uint32_t grow_number(const struct sched *s, const char *name)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_job *j = s->jobs[i];

		if (j->on_loss != ON_LOSS_SHRINK || j->state != SJ_UP)
			continue;
		for (uint32_t m = 0; m < j->nmachines; m++)
			if (!j->machines[m].node && !strcmp(j->machines[m].name, name))
				return j->machines[m].number;
	}
	return 0;
}

bool grow_joins(const struct sched_job *j, uint32_t rank)
{
	return j->ranks[rank].joined && j->ranks[rank].state == SR_IN &&
	       j->generation < j->grown_at;
}

uint32_t grow_awaited(const struct sched_job *j)
{
	uint32_t n = j->world - j->nlost;

	for (uint32_t r = 0; r < j->world; r++)
		n -= grow_joins(j, r);
	return n;
}

bool grow_under_way(const struct sched_job *j)
{
	return j->grown_at == j->generation + 1;
}

void grow_text(struct text *t, const struct sched_job *j)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].state == SR_LOST && waiter_of(j, r))
			text_add(t, "%s%u", n++ ? ", " : t->used ? "; rank " : "rank ", r);
	if (n)
		text_add(t, " %s to come in, until the survivors call tally_grow",
			 n == 1 ? "waits" : "wait");
}

/* ---- coming ---- */

/* 0: it is in another PID namespace than its agent, which cannot tell its number. */
static const char *process_text(uint32_t pid, char text[PROCESS_TEXT])
{
	if (pid)
		snprintf(text, PROCESS_TEXT, "process %u", pid);
	else
		snprintf(text, PROCESS_TEXT, "a process");
	return text;
}

static bool fits(struct sched *s, struct sched_job *j, struct sched_node *n,
		 const struct msg_rank_join *m)
{
	const struct sched_part *p = &j->machines[j->ranks[m->rank].machine];
	struct sched_req *q = waiter_of(j, m->rank);
	char who[PROCESS_TEXT];

	if (q && q->node == n) {	/* as a rule it has ended, and that was lost on the way */
		req_done(s, j, q, TALLY_EEXIST, "another process has taken its place", NULL, 0);
		q = NULL;
	}
	if (q)
		out_refuse(s, n, m->req, TALLY_EEXIST, "rank %u of job '%.128s' is waited for by "
			   "%s on machine %.128s already", m->rank, j->name,
			   process_text(q->pid, who), q->node->name);
	else if (strcmp(p->name, n->name) || !is_agent(p, n))
		out_refuse(s, n, m->req, TALLY_EINVAL, "rank %u of job '%.128s' can come back on "
			   "machine %.128s, where it was; a machine in its place takes its name, "
			   "by tally-agent --name", m->rank, j->name, p->name);
	else if (p->engines != n->engines)
		out_refuse(s, n, m->req, TALLY_EINVAL, "agent %.128s has %u engines, and had %u "
			   "when job '%.128s' began: start it with --engines %u", n->name,
			   n->engines, p->engines, j->name, p->engines);
	else
		return true;
	return false;
}

/* Refuses a process that comes in with other wishes than the job has; the job goes on. */
static bool agrees(struct sched *s, struct sched_job *j, struct sched_node *n,
		   const struct msg_rank_join *m)
{
	if (m->on_loss == (uint32_t)j->on_loss &&
	    (!m->chunk_bytes || m->chunk_bytes == j->chunk_bytes))
		return true;
	out_refuse(s, n, m->req, TALLY_EMISMATCH, "job '%.128s' has chunks of %u bytes, and goes "
		   "on without lost ranks; rank %u on machine %.64s says chunks of %u (0: any)%s",
		   j->name, j->chunk_bytes, m->rank, n->name, m->chunk_bytes,
		   m->on_loss == ON_LOSS_SHRINK ? "" : ", and to end when a rank is lost");
	return false;
}

/*
 * The rank is lost; or was here, and its end may not have been noticed yet; or nobody has
 * spoken for it since the scheduler was restarted.
 */
static bool is_free(const struct sched_job *j, const struct sched_node *n, uint32_t rank)
{
	const struct sched_rank *r = rank < j->world ? &j->ranks[rank] : NULL;

	return r && (r->state == SR_LOST || (r->state == SR_IN && r->node == n) ||
		     (r->state == SR_NONE && j->state == SJ_HELD));
}

/* Until when it is not known whether the process before it comes back to its agent; 0: it is. */
static mono_t unknown_until(const struct sched *s, const struct sched_job *j, uint32_t rank)
{
	const struct sched_rank *r = &j->ranks[rank];
	bool unknown = r->state == SR_IN && !r->back && !return_lives(s, r);

	return unknown ? j->machines[r->machine].return_by : 0;
}

/* Until when it waits: not for long for an end that is to be noticed. */
static void await(struct sched *s, const struct sched_job *j, struct sched_req *q)
{
	mono_t hope = MAX(s->now, unknown_until(s, j, q->rank)) + mono_ms(GROW_HOPE_MS);

	q->deadline = j->ranks[q->rank].state == SR_LOST ? q->until : MIN(q->until, hope);
	sched_wake(s, q->deadline);
}

bool grow_join(struct sched *s, struct sched_job *j, struct sched_node *n,
	       const struct msg_rank_join *m)
{
	struct sched_req *q;

	if (j->on_loss != ON_LOSS_SHRINK || j->nleft ||
	    (j->state != SJ_UP && j->state != SJ_HELD) || !is_free(j, n, m->rank))
		return false;
	if (req_asked(j, n, SQ_JOIN, m->rank, m->req) || !agrees(s, j, n, m) || !fits(s, j, n, m))
		return true;
	q = req_new(s, j, n, SQ_JOIN, m->rank, m->req, m->timeout_ms, 0);
	if (!q)
		return true;
	join_take_user(j, m->uid);
	q->grow = true;
	q->pid = m->pid;
	q->until = q->deadline;
	await(s, j, q);
	out_log(s, SCHED_INFO, "job %s: rank %u waits to come in", j->name, m->rank);
	job_pump(s, j);
	return true;
}

/* True: it was one that waited. */
bool grow_withdraw(struct sched *s, struct sched_job *j, const struct sched_node *n, uint32_t rank,
		   uint32_t pid)
{
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		bool waited = waits(q);

		if (q->kind != SQ_JOIN || q->node != n || q->rank != rank ||
		    (waited ? q->pid : j->ranks[rank].pid) != pid)
			continue;
		req_drop(s, j, q);
		if (waited)
			job_pump(s, j);
		return waited;
	}
	return false;
}

/* True: not an ordinary one. */
bool grow_expire(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	const struct sched_rank *r = &j->ranks[q->rank];
	char buf[ERR_TEXT_MAX + 1], who[PROCESS_TEXT];
	struct text t;

	if (!waits(q) && grow_joins(j, q->rank)) {	/* in, when all have heard of it */
		q->deadline = s->now + mono_ms(GROW_MORE_MS);
		sched_wake(s, q->deadline);
		return true;
	}
	if (!waits(q))
		return false;
	if ((r->state == SR_LOST || j->state == SJ_HELD || unknown_until(s, j, q->rank)) &&
	    s->now < q->until) {
		await(s, j, q);
		return true;
	}
	text_init(&t, buf, sizeof(buf));
	if (r->state == SR_IN) {
		text_add(&t, "rank %u of job '%.128s' is on machine %.128s already, %s",
			 q->rank, j->name, r->node->name, process_text(r->pid, who));
		req_done(s, j, q, TALLY_EEXIST, buf, NULL, 0);
		return true;
	}
	text_add(&t, "rank %u of job '%.128s' waited to come in, and the survivors have not called "
		 "tally_grow", q->rank, j->name);
	req_done(s, j, q, TALLY_ETIMEDOUT, buf, NULL, 0);
	job_pump(s, j);
	return true;
}

/*
 * A rank that was let in, and has not been told so, waits again; a request of another kind has
 * ended.
 */
void grow_lose(struct sched *s, struct sched_job *j, uint32_t rank)
{
	bool joins = grow_joins(j, rank);

	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind != SQ_JOIN || q->rank != rank || q->grow)
			continue;
		if (!joins) {
			req_drop(s, j, q);
			continue;
		}
		q->grow = true;
		q->pid = j->ranks[rank].pid;
		q->until = q->deadline;
	}
}

/* ---- the barrier ---- */

static void differ(struct sched *s, struct sched_job *j)
{
	const struct sched_req *first[2] = { NULL, NULL };	/* by grow */
	struct err e;

	list_for_each(&j->reqs, p) {
		const struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind == SQ_BARRIER && (!first[q->grow] || first[q->grow]->rank > q->rank))
			first[q->grow] = q;
	}
	ASSERT(first[0] && first[1]);
	err_set(&e, TALLY_EMISMATCH, "job '%.96s': rank %u (machine %.64s) calls tally_grow, rank "
		"%u (machine %.64s) tally_barrier", j->name, first[1]->rank, first[1]->node->name,
		first[0]->rank, first[0]->node->name);
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind != SQ_BARRIER)
			continue;
		barrier_leave(j, q);
		req_done(s, j, q, e.code, e.text, NULL, 0);
	}
}

/* False: one is away just now.  From here on the rounds that were said are old ones. */
static bool tell_coming(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		struct sched_part *p = &j->machines[i];

		if (!p->coming)
			continue;
		if (p->node->state != SN_UP)
			return false;
		p->coming = false;
		p->came = true;
		p->joining_epoch = j->epoch;
		return_tell(s, j, p);
	}
	list_for_each(&j->tensors, l)
		list_entry(l, struct sched_tensor, link)->round = 0;
	return true;
}

bool grow_holds(struct sched *s, struct sched_job *j)
{
	uint32_t n = 0;

	list_for_each(&j->reqs, p) {
		const struct sched_req *q = list_entry(p, struct sched_req, link);

		n += q->kind == SQ_BARRIER && q->grow;
	}
	if (n && n < j->nbarrier) {
		differ(s, j);
		return true;
	}
	if (grow_under_way(j))
		return (j->settled < j->epoch && !MUTATE(23)) || !tell_coming(s, j);
	j->grows = n && grow_any(j);
	if (!j->grows)
		return false;
	log_pump(s, j);		/* which may have to wait for its turn */
	return true;
}

static void machine_in(struct sched *s, struct sched_job *j, struct sched_part *p,
		       struct sched_node *n)
{
	out_log(s, SCHED_INFO, "job %s has machine %s again", j->name, p->name);
	p->node = n;
	p->out = p->told_up = p->told_down = p->came = false;
	p->coming = true;
}

/* With the epoch that is about to begin. */
void grow_begin(struct sched *s, struct sched_job *j)
{
	for (uint32_t r = 0; r < j->world; r++)
		j->ranks[r].joined = false;
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);
		struct sched_rank *r = &j->ranks[q->rank];
		char who[PROCESS_TEXT];

		if (!may_come(j, q))
			continue;
		out_log(s, SCHED_INFO, "job %s has rank %u again, %s", j->name, q->rank,
			process_text(q->pid, who));
		if (!j->machines[r->machine].node)
			machine_in(s, j, &j->machines[r->machine], q->node);
		q->grow = false;
		r->pid = q->pid;
		r->state = SR_IN;
		r->node = q->node;
		r->gone = false;
		r->joined = true;
		r->since = j->seq;
		j->nin++;
		j->nlost--;
		j->grown++;
	}
	j->grown_at = j->generation + 1;
	j->grows = false;
}

/* Their agent has not heard of the job, and will not any more. */
static void turn_away(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	list_for_each_safe(&j->reqs, l, next) {
		struct sched_req *q = list_entry(l, struct sched_req, link);

		if (q->kind == SQ_JOIN && !q->grow && q->node == p->node)
			req_done(s, j, q, TALLY_ESHUTDOWN, "the job ends", NULL, 0);
	}
	shrink_machine(s, j, p, "the job ends before it is in");
}

/*
 * After a restart: a rank that came in by an epoch which its agent has not heard has asked
 * again, as one that waits.
 */
void grow_resume(struct sched_job *j)
{
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);
		struct sched_rank *r = &j->ranks[q->rank];

		if (!waits(q) || !grow_joins(j, q->rank) || q->node != r->node)
			continue;
		q->grow = false;
		r->pid = q->pid;
	}
}

/* The barrier at which they came in has opened; or the job ends, which they are to hear as
 * members of it. */
void grow_answer(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines && j->state == SJ_UP; i++)
		if (j->machines[i].coming)
			turn_away(s, j, &j->machines[i]);
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		const struct sched_rank *r = &j->ranks[q->rank];

		if (q->kind == SQ_JOIN && !q->grow && r->joined && r->state == SR_IN)
			req_done(s, j, q, 0, "", &j->number, 1);
	}
}

/* ---- messages ---- */

const uint32_t *grow_joined(struct sched *s, const struct sched_job *j, uint32_t *n)
{
	uint32_t *out = out_scratch(s, (j->world + 1) * sizeof(*out));

	*n = 0;
	for (uint32_t r = 0; out && r < j->world; r++)
		if (j->ranks[r].joined)
			out[(*n)++] = r;
	return out;
}

void grow_rounds(struct sched_job *j, const struct msg_ready *m)
{
	if (!grow_under_way(j) || m->seq != j->epoch)
		return;
	for (uint32_t i = 0; i < m->nrounds; i++) {
		struct sched_tensor *t = tensor_by_id(j, (uint32_t)(m->rounds[i] >> 32));

		if (t)
			t->round = (uint32_t)m->rounds[i];
	}
}

/* As an agent with a newer epoch says it after a restart. */
void grow_take(struct sched_job *j, const struct msg_job_up *m)
{
	uint32_t at = 0;

	j->grown = m->grown;
	j->grown_at = m->grown_at;
	for (uint32_t r = 0; r < j->world; r++)
		j->ranks[r].joined = false;
	for (uint32_t i = 0; i < m->njoined; i++)
		if (m->joined[i] < j->world)
			j->ranks[m->joined[i]].joined = true;
	for (uint32_t r = 0; r < j->world; r++) {
		struct sched_rank *k = &j->ranks[r];
		struct sched_part *p = k->machine < j->nmachines ? &j->machines[k->machine] : NULL;

		while (at < m->ngone && m->gone[at] < r)
			at++;
		if (!k->gone || (at < m->ngone && m->gone[at] == r))
			continue;
		k->gone = false;	/* an older epoch said so */
		k->state = p && p->held ? SR_IN : SR_NONE;
		k->node = p && p->held ? p->node : NULL;
		j->nin += k->state == SR_IN;
		j->nlost--;
		if (p)
			p->out = false;
	}
}
