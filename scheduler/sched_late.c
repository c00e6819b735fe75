// SPDX-License-Identifier: Apache-2.0
/*
 * sched_late.c - agents that are behind what others have told after a restart of the
 * scheduler, and those that tell of their jobs when the recovery is over.
 *
 * Who was silent then has its grace, as an agent that was started again has (sched_return.c),
 * and nothing new begins in the job before it is back or given up.  So what it says when it
 * is there, JOB_HELD, TENSORS_HELD and EPOCH_READY, is as good as it would have been before:
 * it has what the others have, or is behind, and hears what it lacks.  What nobody else has
 * told, an epoch or an entry of the log, is gone by then; who has it cannot follow the others,
 * and its ranks are lost.  So it is with an agent whose processes have come back to another
 * one meanwhile.  A job that only silent agents had is over, but for one of a single machine:
 * nobody else is needed to know of it.
 */
#include "scheduler/sched.h"

/* ---- what an agent missed ---- */

static const struct msg *forget_gone(struct sched *s, const struct sched_job *j, uint64_t seq,
				     const struct sched_gone *g)
{
	struct msg *m = out_msg(s, MSG_FORGET);

	if (m)
		m->ids = (struct msg_ids){ .job = j->number, .seq = seq, .nids = g->n,
					   .ids = g->ids };
	return m;
}

/* The epoch that it lacks, and where the chunks of what it has are. */
static const struct msg *epoch_again(struct sched *s, const struct sched_job *j, uint64_t seq)
{
	struct sched_tensor **t = out_scratch(s, (j->ntensors + 1) * sizeof(struct sched_tensor *));
	struct msg *m = plan_epoch(s, j);
	uint32_t n = 0;

	if (!t || !m)
		return NULL;
	list_for_each(&j->placed, p) {
		struct sched_tensor *one = list_entry(p, struct sched_tensor, placed);

		if (one->seq <= seq)
			t[n++] = one;
	}
	m->epoch.seq = seq;
	m->epoch.placed = place_told(s, j, t, n, &m->epoch.nplaced);
	return m->epoch.placed ? m : NULL;
}

/* An entry of which tensors are left, or of which nothing is. */
static const struct msg *entry_again(struct sched *s, const struct sched_job *j, uint64_t seq)
{
	static const struct sched_gone nothing;
	const struct msg *m = log_message(s, j, seq, true);

	return m && !m->tensors.ntensors ? forget_gone(s, j, seq, &nothing) : m;
}

/*
 * Sends an agent what it missed, not entry by entry: of TENSORS only what is left is known, all
 * else is an EPOCH, a FORGET, or tensors that are gone again. It only has to come to where the
 * others are. So it first forgets what is gone and takes the newest epoch, under the number that
 * it has, and then hears of the rest.
 */
bool late_catch_up(struct sched *s, struct sched_job *j, struct sched_part *p,
		   const struct sched_gone *g)
{
	bool sent = true;

	if (j->seq - p->seq > TENSORS_PER_JOB_MAX) {
		job_down(s, j, TALLY_EMISMATCH, "machine %.128s is %llu log entries behind",
			 p->name, (unsigned long long)(j->seq - p->seq));
		return false;
	}
	if (p->seq < j->seq && g->n)
		sent = out_send(s, p->node, forget_gone(s, j, p->seq, g));
	if (p->seq < j->seq && p->held_epoch < j->epoch)
		sent &= out_send(s, p->node, epoch_again(s, j, p->seq));
	while (sent && p->seq < j->seq) {
		p->seq++;
		sent = out_send(s, p->node, entry_again(s, j, p->seq));
	}
	return sent;
}

/* ---- as the recovery ends ---- */

static bool half_told(const struct sched_job *j, const struct sched_part *p)
{
	return j->state == SJ_HELD && p->held && !p->told && !p->out;
}

static bool tells(const struct sched *s, const struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs && n->state == SN_UP; i++) {
		const struct sched_job *j = s->jobs[i];

		for (uint32_t k = 0; k < j->nmachines; k++)
			if (j->machines[k].node == n && half_told(j, &j->machines[k]))
				return true;
	}
	return false;
}

bool late_any_tells(const struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++)
		if (tells(s, s->nodes[i]))
			return true;
	return false;
}

/* A job of one machine, which its agent has not told all of: it tells of it anew. */
void late_forget(struct sched *s, const struct sched_node *n)
{
	for (uint32_t i = s->njobs; i-- > 0 && !s->recover_until;) {
		struct sched_job *j = s->jobs[i];

		if (j->nmachines != 1 || j->machines[0].node != n || !half_told(j, j->machines))
			continue;
		out_log(s, SCHED_INFO, "job %s is to be told again by %s", j->name, n->name);
		job_free(s, j);
	}
}

/*
 * Closes the connections of agents that are in the middle of their report: the rest of it would
 * belong to no job that goes on. They come back, and report all as late ones.
 */
void late_close_tellers(struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		struct sched_node *n = s->nodes[i];
		uint32_t conn = n->conn;

		if (tells(s, n)) {
			node_closed(s, n);
			out_close(s, conn);
		} else if (n->state == SN_AWAY) {
			late_forget(s, n);
		}
	}
}

/* ---- an agent that tells of its job late ---- */

bool late_expect(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	if (!return_expect(s, j, p))
		return false;
	p->expected = p->return_by != 0;	/* else all its ranks have left */
	p->held = false;
	return true;
}

static bool any_in(const struct sched_job *j, const struct sched_part *p)
{
	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].node == p->node && j->ranks[r].state == SR_IN)
			return true;
	return false;
}

/*
 * Lets an agent that has reported, and is away as the recovery ends, report once more before it
 * hears what it missed.
 */
bool late_away(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	if (p->node->state != SN_AWAY || p->unsure || !s->config.agent_grace_ms || !any_in(j, p))
		return false;
	p->expected = true;
	p->held = false;
	p->return_by = s->now + mono_ms(s->config.agent_grace_ms);
	sched_wake(s, p->return_by);
	return true;
}

void late_end(struct sched *s, struct sched_part *p)
{
	sched_release(s, p->gone.ids);
	p->gone = (struct sched_gone){ .n = 0 };
	p->expected = false;
}

void late_drop(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines; i++)
		late_end(s, &j->machines[i]);
}

static bool is_late(const struct sched_job *j, const struct sched_part *p)
{
	return p && p->expected && p->return_by && j->state == SJ_UP;
}

bool late_job(struct sched *s, struct sched_job *j, struct sched_part *p, struct sched_node *n,
	      const struct msg_job_up *m)
{
	if (!is_late(j, p) || p->node != n || m->epoch > j->epoch || !held_agrees(j, m))
		return false;
	late_end(s, p);			/* its connection may have broken as it told */
	p->expected = p->held = true;
	p->held_epoch = m->epoch;
	p->seq = 0;
	return true;
}

/*
 * Whether a job may be taken in after the recovery: what a job of one machine has only its agent
 * can tell, whenever that is.
 */
bool late_alone(const struct sched *s, const struct msg_job_up *m)
{
	return m->nmachines == 1 && !m->nservers && !job_ended(s, m->job);
}

static bool add_gone(struct sched *s, struct sched_gone *g, uint32_t id)
{
	uint32_t room = MAX(64, 2 * g->room), *more;

	if (g->n == g->room) {
		more = sched_alloc(s, room * sizeof(*more));
		if (!more)
			return false;
		if (g->n)
			memcpy(more, g->ids, g->n * sizeof(*more));
		sched_release(s, g->ids);
		g->ids = more;
		g->room = room;
	}
	g->ids[g->n++] = id;
	return true;
}

/* Without memory for what it says: it comes back and says it once more. */
static void tell_again(struct sched *s, struct sched_node *n)
{
	uint32_t conn = n->conn;

	node_closed(s, n);
	out_close(s, conn);
}

/*
 * Takes a reported tensor in: one that others have forgotten, or never heard of, its agent has
 * to forget.
 */
static bool take(struct sched *s, struct sched_job *j, struct sched_part *p,
		 const struct msg_tensor *m, uint64_t seq)
{
	const struct sched_tensor *t = tensor_by_id(j, m->id);

	if (!t && !add_gone(s, &p->gone, m->id)) {
		tell_again(s, p->node);
		return false;
	}
	if (t && (t->seq != seq || !tensor_equal(t, m))) {
		job_down(s, j, TALLY_EMISMATCH, "job '%.96s': machine %.96s contradicts another "
			 "one on tensor '%s'", j->name, p->name, m->name);
		return false;
	}
	return true;
}

void late_tensors(struct sched *s, struct sched_node *n, const struct msg_tensors *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_part *p = j ? job_machine_part(j, n) : NULL;

	if (!is_late(j, p) || !p->held || m->seq <= p->seq || m->seq > SCHED_SEQ_MAX)
		return;
	p->seq = m->seq;
	for (uint32_t i = 0; i < m->ntensors; i++)
		if (!take(s, j, p, &m->tensors[i], m->seq))
			return;
}

bool late_tells(const struct sched_job *j, const struct sched_part *p)
{
	return is_late(j, p) && p->held;
}

/* As long as messages need it. */
static bool copy_gone(struct sched *s, const struct sched_gone *from, struct sched_gone *to)
{
	to->n = from->n;
	to->ids = out_scratch(s, (from->n + 1) * sizeof(*to->ids));
	if (to->ids && from->n)
		memcpy(to->ids, from->ids, from->n * sizeof(*to->ids));
	return to->ids;
}

bool late_last(struct sched *s, struct sched_job *j, struct sched_part *p, uint64_t has)
{
	struct sched_node *n = p->node;
	struct sched_gone gone;

	p->seq = MAX(p->seq, has);
	if (p->seq > j->seq) {
		job_agent_dead(s, j, n, "log has entries that nobody else told of");
		held_lost(s, n, j, p);
		return false;
	}
	if (!copy_gone(s, &p->gone, &gone)) {
		tell_again(s, n);
		return false;
	}
	if (!late_catch_up(s, j, p, &gone))
		return false;		/* it tells once more, or the job is over */
	late_end(s, p);
	p->return_by = 0;
	out_log(s, SCHED_INFO, "job %s goes on with machine %s, which tells of it late", j->name,
		p->name);
	job_tell_leaves(s, j, p);
	return true;
}

bool late_join(struct sched *s, struct sched_job *j, struct sched_node *n,
	       const struct msg_rank_join *m)
{
	struct sched_rank *r = &j->ranks[m->rank];
	const struct sched_part *p = &j->machines[r->machine];

	if (!is_late(j, p) || p->held || j->seq || j->epoch_seq)
		return false;
	r->pid = m->pid;
	r->back = true;
	join_take_user(j, m->uid);
	req_new(s, j, n, SQ_JOIN, m->rank, m->req, m->timeout_ms, 0);
	job_pump(s, j);
	return true;
}
