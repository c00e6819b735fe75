// SPDX-License-Identifier: Apache-2.0
/*
 * sched_join.c - ranks come in, until all are there or somebody's time is up.
 *
 * A rank that cannot be (no such number, a second process, a full machine) is
 * refused alone.  Ranks that disagree on the world size or the chunk size while they
 * gather end the job for everybody, also for who comes in the next seconds.  Who comes with
 * another world size when all are in is alone with it, and hears both; the job goes on.
 * Who is another user than the first rank's has nothing to say in it at all.
 * A process that ends while it waits gives its place back; when all were in by then, that
 * costs the job as any lost rank does.
 */
#include "scheduler/sched_blame.h"

#include <stdio.h>

static int join_valid(const struct msg_rank_join *m, struct err *e)
{
	if (!m->job[0] || strlen(m->job) > NAME_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "a job needs a name of 1 to %u characters",
			       NAME_LEN_MAX);
	if (!m->world || m->world > WORLD_SIZE_MAX || m->rank >= m->world)
		return err_set(e, TALLY_EINVAL, "job '%.128s': rank %u of %u cannot be; world "
			       "sizes are 1 to %u", m->job, m->rank, m->world, WORLD_SIZE_MAX);
	if (m->chunk_bytes && (m->chunk_bytes < CHUNK_BYTES_MIN ||
			       m->chunk_bytes > CHUNK_BYTES_MAX ||
			       m->chunk_bytes % CHUNK_BYTES_MIN))
		return err_set(e, TALLY_EINVAL, "job '%.128s': %u bytes is no chunk size; they are "
			       "multiples of %u up to %u", m->job, m->chunk_bytes, CHUNK_BYTES_MIN,
			       CHUNK_BYTES_MAX);
	return 0;
}

static uint32_t first_in(const struct sched_job *j)
{
	uint32_t r = 0;

	while (r < j->world && j->ranks[r].state != SR_IN)
		r++;
	ASSERT(r < j->world);
	return r;
}

/* Some ranks have detached: a rank that joins now means the next job of that name. */
static bool ending(const struct sched_job *j)
{
	return j->nleft && (j->state == SJ_UP || j->state == SJ_HELD);
}

static void world_text(struct err *e, const struct sched_job *j, const char *machine,
		       const struct msg_rank_join *m)
{
	uint32_t r;

	if (!j->nin) {		/* after a restart: nobody has spoken for a rank yet */
		err_set(e, TALLY_EMISMATCH, "job '%.128s' has world size %u, rank %u on machine "
			"%.64s says %u", j->name, j->world, m->rank, machine, m->world);
		return;
	}
	r = first_in(j);
	err_set(e, TALLY_EMISMATCH, "job '%.128s': rank %u on machine %.64s says world size %u, "
		"rank %u on machine %.64s says %u", j->name, r, j->ranks[r].node->name, j->world,
		m->rank, machine, m->world);
}

/* There is no telling who is right; who has not come yet is told when it does. */
static void nobody_gets_it(struct sched *s, struct sched_job *j, struct sched_node *n,
			   const struct msg_rank_join *m, const struct err *why)
{
	struct dispute *d = dispute_new(&s->disputes, j->name, j->uid, why, s->now);

	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].state == SR_IN)
			dispute_heard(d, j->world, r);
	dispute_heard(d, m->world, m->rank);
	out_refuse(s, n, m->req, why->code, "%s", why->text);
	job_down(s, j, why->code, "%s", why->text);
}

/* While ranks gather nobody gets the job then; later it is this one that is wrong. */
bool join_other_world(struct sched *s, struct sched_job *j, struct sched_node *n,
		      const struct msg_rank_join *m)
{
	struct err e;

	if (m->world == j->world || ending(j))
		return false;
	world_text(&e, j, n->name, m);
	if (j->state == SJ_GATHERING)
		nobody_gets_it(s, j, n, m, &e);
	else
		out_refuse(s, n, m->req, e.code, "%s", e.text);
	return true;
}

static const char *on_loss_name(uint32_t on_loss)
{
	return on_loss == ON_LOSS_SHRINK ? "shrink" : "end";
}

/* The ranks do not agree on how the job is to be: nobody gets it. */
static bool disagrees(struct sched *s, struct sched_job *j, struct sched_node *n,
		      const struct msg_rank_join *m)
{
	struct err e;
	uint32_t r;

	if (m->chunk_bytes == j->chunk_bytes && m->on_loss == j->on_loss)
		return false;
	r = first_in(j);
	if (m->on_loss != j->on_loss)
		err_set(&e, TALLY_EMISMATCH, "job '%.128s': rank %u on machine %.64s wants to %s "
			"when a rank is lost, rank %u on machine %.64s to %s", j->name, r,
			j->ranks[r].node->name, on_loss_name(j->on_loss), m->rank, n->name,
			on_loss_name(m->on_loss));
	else
		err_set(&e, TALLY_EMISMATCH, "job '%.128s': rank %u on machine %.64s wants chunks "
			"of %u bytes (0: any), rank %u on machine %.64s of %u", j->name, r,
			j->ranks[r].node->name, j->chunk_bytes, m->rank, n->name, m->chunk_bytes);
	nobody_gets_it(s, j, n, m, &e);
	return true;
}

static bool machine_full(const struct sched_job *j, const struct sched_node *n)
{
	uint32_t on = 0;

	for (uint32_t r = 0; r < j->world; r++)
		on += j->ranks[r].node == n;
	return on >= LOCAL_RANKS_MAX;
}

static bool not_over(struct sched *s, const struct sched_job *j, struct sched_node *n,
		     const struct msg_rank_join *m)
{
	char who[ERR_TEXT_MAX / 2];
	struct text t;

	if (!ending(j))
		return false;
	text_init(&t, who, sizeof(who));
	if (!j->nin)
		text_add(&t, "and the scheduler, which was started again, waits for its agents");
	else
		text_add(&t, "%s not detached yet", text_not_left(&t, j) == 1 ? " has" : " have");
	out_refuse(s, n, m->req, TALLY_EBUSY, "the job '%.128s' of before is not over, %s",
		   j->name, who);
	return true;
}

void join_take_user(struct sched_job *j, uint32_t uid)
{
	if (j->owned)
		return;
	j->owned = true;
	j->uid = uid;
}

static bool other_user(struct sched *s, const struct sched_job *j, struct sched_node *n,
		       const struct msg_rank_join *m)
{
	if (!j->owned || m->uid == j->uid)
		return false;
	if (!not_over(s, j, n, m))
		out_refuse(s, n, m->req, TALLY_EAUTH, "job '%.128s' belongs to user id %u, rank "
			   "%u on machine %.64s is user id %u; give this job another name "
			   "(TALLY_JOB)",
			   j->name, j->uid, m->rank, n->name, m->uid);
	return true;
}

/* A job that this rank cannot enter (any more). */
static bool refused(struct sched *s, struct sched_job *j, struct sched_node *n,
		    const struct msg_rank_join *m)
{
	const struct sched_rank *r = m->rank < j->world ? &j->ranks[m->rank] : NULL;
	char who[32] = "";

	if (not_over(s, j, n, m))
		return true;
	if (r && r->state == SR_IN && r->node) {
		if (r->pid)
			snprintf(who, sizeof(who), ", process %u", r->pid);
		out_refuse(s, n, m->req, TALLY_EEXIST, "rank %u of job '%.128s' is on machine "
			   "%.128s already%s; give each process a TALLY_RANK of its own, or this "
			   "job another name (TALLY_JOB)", m->rank, j->name, r->node->name, who);
		return true;
	}
	if (j->state != SJ_GATHERING) {
		out_refuse(s, n, m->req, TALLY_EEXIST, "job '%.128s' is running already with %u "
			   "ranks; give this one another name (TALLY_JOB)", j->name, j->world);
		return true;
	}
	return false;
}

static uint32_t jobs_of(const struct sched *s, uint32_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->njobs; i++)
		n += s->jobs[i]->owned && s->jobs[i]->uid == uid;
	return n;
}

static struct sched_job *job_begin(struct sched *s, struct sched_node *n,
				   const struct msg_rank_join *m)
{
	const struct err *why = dispute_of(&s->disputes, m->job, m->uid, m->world, m->rank, s->now);
	struct sched_job *j;

	if (why) {
		out_refuse(s, n, m->req, why->code, "%s", why->text);
		return NULL;
	}
	if (s->njobs == JOBS_MAX) {
		out_refuse(s, n, m->req, TALLY_EQUOTA, "the cluster has %u jobs already", JOBS_MAX);
		return NULL;
	}
	if (!user_has_room(jobs_of(s, m->uid), s->njobs, JOBS_MAX)) {
		out_refuse(s, n, m->req, TALLY_EQUOTA, "user id %u has %u jobs already, and the "
			   "last %u places of the cluster are for others; let one end first",
			   m->uid, jobs_of(s, m->uid), JOBS_MAX - s->njobs);
		return NULL;
	}
	if (s->last.job == UINT32_MAX) {
		out_refuse(s, n, m->req, TALLY_EQUOTA, "the cluster has had all job numbers that "
			   "there are; give the scheduler another --state-dir once no job runs");
		return NULL;
	}
	if (s->last.job >= s->saved.job) {
		out_refuse(s, n, m->req, TALLY_EIO, "the scheduler cannot save its state just now");
		return NULL;
	}
	j = job_new(s, m->job, m->world);
	if (!j) {
		out_refuse(s, n, m->req, TALLY_ENOMEM, "the scheduler is out of memory");
		return NULL;
	}
	j->number = ++s->last.job;
	j->chunk_bytes = m->chunk_bytes;
	j->on_loss = (enum on_loss)m->on_loss;
	join_take_user(j, m->uid);
	return j;
}

void job_rank_out(struct sched *s, struct sched_job *j, uint32_t rank)
{
	ASSERT(j->state == SJ_GATHERING && j->ranks[rank].state == SR_IN);
	j->ranks[rank].state = SR_NONE;
	j->ranks[rank].node = NULL;
	if (--j->nin == 0)
		job_down(s, j, 0, "nobody is left who waits for it");
}

/* Asked again after its connection broke, by the process that is in already. */
static bool joined_already(struct sched *s, struct sched_job *j, struct sched_node *n,
			   const struct msg_rank_join *m)
{
	struct sched_part *p;
	struct sched_rank *r;

	if (m->world != j->world)
		return false;
	r = &j->ranks[m->rank];
	if (r->state != SR_IN || r->node != n || (r->pid && r->pid != m->pid))
		return false;
	if (req_asked(j, n, SQ_JOIN, m->rank, m->req))
		return true;
	if (j->state == SJ_UP && late_join(s, j, n, m))
		return true;
	if (j->state != SJ_UP)
		return false;
	p = &j->machines[r->machine];
	if (p->return_by)
		return false;		/* its agent has yet to hear of the job again */
	if (p->unsure && !epoch_sure(s, j, p, true, 0))		/* it would have said so by now */
		return false;
	if (grow_joins(j, m->rank)) {
		req_new(s, j, n, SQ_JOIN, m->rank, m->req, m->timeout_ms, 0);
		return true;
	}
	/* After a restart its process is not known, and this may be another: agents take one. */
	join_take_user(j, m->uid);
	out_answer(s, n, m->req, 0, "", &j->number, 1);
	return true;
}

void job_join(struct sched *s, struct sched_node *n, const struct msg_rank_join *m)
{
	struct sched_job *j;
	struct err e;

	if (m->back) {
		return_rank(s, n, m);
		return;
	}
	if (join_valid(m, &e)) {
		out_refuse(s, n, m->req, e.code, "%s", e.text);
		return;
	}
	j = job_by_name(s, m->job);
	if (!j)
		j = job_begin(s, n, m);
	if (!j || other_user(s, j, n, m) || joined_already(s, j, n, m) ||
	    join_other_world(s, j, n, m) || (j->state == SJ_HELD && held_join(s, j, n, m)) ||
	    grow_join(s, j, n, m) || refused(s, j, n, m))
		return;
	if (j->nin && disagrees(s, j, n, m))
		return;
	if (machine_full(j, n)) {
		out_refuse(s, n, m->req, TALLY_EQUOTA, "machine %.128s has %u ranks of job "
			   "'%.128s' already", n->name, LOCAL_RANKS_MAX, j->name);
		return;
	}
	j->ranks[m->rank] = (struct sched_rank){ .state = SR_IN, .pid = m->pid, .node = n };
	j->nin++;
	if (!req_new(s, j, n, SQ_JOIN, m->rank, m->req, m->timeout_ms, 0)) {
		job_rank_out(s, j, m->rank);
		return;
	}
	job_pump(s, j);
}

static const struct sched_node *drained_server(const struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		if (s->nodes[i]->kind == NODE_SERVER && s->nodes[i]->state == SN_UP &&
		    s->nodes[i]->draining)
			return s->nodes[i];
	}
	return NULL;
}

/* All are in, and still it has not started: why. */
static void complete_why(struct sched *s, const struct sched_job *j, struct err *e)
{
	const struct sched_node *drained = drained_server(s);
	char buf[ERR_TEXT_MAX + 1];
	struct text t;

	if (j->state == SJ_RESERVING) {
		text_init(&t, buf, sizeof(buf));
		if (!text_blame(&t, "", blame_of(s, j)))
			text_not_ready(&t, j);
		err_set(e, TALLY_ETIMEDOUT, "job '%.128s' waits for %.300s to reserve memory",
			j->name, t.used ? buf : "an agent that is away");
	} else if (s->recover_until) {
		err_set(e, TALLY_ETIMEDOUT, "job '%.128s' waits for the scheduler, which "
			"recovers from a restart", j->name);
	} else if (!job_one_machine(j) && !job_have_server(s)) {
		err_set(e, TALLY_ENOSERVER, "job '%.128s' spans several machines and no "
			"summation server is registered%s%.128s%s; start tally-server", j->name,
			drained ? " but " : "", drained ? drained->name : "",
			drained ? ", which is drained (tally drain --undo NAME)" : "");
	} else {
		err_set(e, TALLY_ETIMEDOUT, "job '%.128s' waits for an agent that is away",
			j->name);
	}
}

void join_text(struct sched *s, struct text *t, const struct sched_job *j)
{
	uint32_t missing;
	struct err e;

	if (j->state == SJ_HELD) {
		text_add(t, "the scheduler recovers from a restart");
	} else if (j->state == SJ_UP) {
		text_add(t, "other processes of this machine did not come back");
	} else if (j->nin == j->world) {
		complete_why(s, j, &e);
		text_add(t, "%s", e.text);
	} else {
		missing = text_not_joined(t, j);
		text_add(t, " of job '%.128s' %s not attached", j->name,
			 missing == 1 ? "has" : "have");
		text_elsewhere(s, t, j);
	}
}

void job_expire_join(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	bool heard_by_others = j->state == SJ_HELD || j->state == SJ_UP;
	uint32_t rank = q->rank;
	char buf[ERR_TEXT_MAX + 1];
	struct text t;
	struct err e;

	if (grow_expire(s, j, q))
		return;
	if (!heard_by_others && j->nin == j->world) {
		complete_why(s, j, &e);
		job_down(s, j, e.code, "%s", e.text);
		return;
	}
	text_init(&t, buf, sizeof(buf));
	join_text(s, &t, j);
	req_done(s, j, q, TALLY_ETIMEDOUT, buf, NULL, 0);
	if (!heard_by_others)		/* else only this one has not heard it */
		job_rank_out(s, j, rank);
}

void job_withdraw(struct sched *s, struct sched_node *n, const struct msg_rank_leave *m)
{
	struct sched_job *j = job_by_name(s, m->text);
	const struct sched_rank *r = j && m->rank < j->world ? &j->ranks[m->rank] : NULL;
	char who[32] = "its process";

	if (r && grow_withdraw(s, j, n, m->rank, m->pid))
		return;
	if (!r || r->state != SR_IN || r->node != n || r->pid != m->pid || j->state == SJ_HELD ||
	    (j->outlived && !r->pid)) {	/* that process trains: it does not join */
		s->counters.strays++;
		return;
	}
	if (shrink_rank(s, j, m->rank, "its process has ended while it was coming back"))
		return;
	if (j->state != SJ_GATHERING) {
		if (m->pid)		/* 0: in another PID namespace than its agent */
			snprintf(who, sizeof(who), "process %u", m->pid);
		job_down(s, j, TALLY_EWORKERLOST, "rank %u on machine %.128s is gone (%s has ended "
			 "while it was %s)", m->rank, n->name, who,
			 j->state == SJ_UP ? "coming back" : "joining");
		return;
	}
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind == SQ_JOIN && q->node == n && q->rank == m->rank)
			req_drop(s, j, q);
	}
	job_rank_out(s, j, m->rank);
}
