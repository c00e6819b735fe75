// SPDX-License-Identifier: Apache-2.0
/*
 * sched_shrink.c - jobs that go on without the ranks that they lose.
 *
 * A lost rank is out of everything that waits for all at once: declarations, barriers.
 * Rounds learn of it by an epoch (sched_epoch.c) which says who is gone and gives all
 * chunks to their owners anew.  No epoch, no smaller world: servers and agents never
 * see contributions of two worlds under one.  A machine all of whose ranks are lost is
 * out of the job; its place in the list stays, so that nobody's index changes, and it may
 * come back to it (sched_grow.c).
 */
#include "scheduler/sched.h"

static bool is_out(const struct sched_job *j, uint32_t machine)
{
	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].machine == machine && j->ranks[r].state != SR_LOST)
			return false;
	return true;
}

static void lose(struct sched *s, struct sched_job *j, uint32_t rank)
{
	struct sched_rank *r = &j->ranks[rank];

	grow_lose(s, j, rank);
	if (r->state == SR_IN) {
		req_drop_of(s, j, r->node, rank);
		j->nin--;
	}
	j->nleft -= r->state == SR_LEFT;
	r->state = SR_LOST;
	r->joined = false;
	r->node = NULL;
	j->nlost++;
	j->shrinks = true;
	tensor_lose(s, j, rank);
}

/* The agent may live, and have the job still. */
static void machine_out(struct sched *s, struct sched_job *j, struct sched_part *p,
			const char *why)
{
	struct msg *m = out_msg(s, MSG_JOB_DOWN);

	p->out = true;
	if (m)
		m->job_down = (struct msg_job_down){
			.job = j->number, .code = TALLY_EWORKERLOST, .text = out_string(s, why),
		};
	if (p->node && p->told_up)
		out_send(s, p->node, m);	/* away: it tells of the job, and is told then */
	p->node = NULL;
	p->unsure = p->coming = p->expected = false;
	p->return_by = 0;
	sched_release(s, p->stuck);
	p->stuck = NULL;
}

const char *shrink_why(struct sched *s, const struct sched_job *j, const struct sched_part *p)
{
	char buf[ERR_TEXT_MAX + 1];
	struct text t;
	bool one;

	text_init(&t, buf, sizeof(buf));
	one = text_ranks_of(&t, j, (uint32_t)(p - j->machines)) == 1;
	text_add(&t, " on machine %.64s %s lost while its agent could not reach the scheduler "
		 "(--agent-grace says for how long it may), and job '%.64s' goes on without %s; "
		 "whoever attaches in such a place comes in when all others call tally_grow()",
		 p->name, one ? "was" : "were", j->name, one ? "it" : "them");
	return out_string(s, buf);
}

/*
 * Whether some rank that stays has the job's state; one that comes in, and is not answered yet,
 * has nothing of it.
 */
static bool any_stays(const struct sched_job *j)
{
	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].state == SR_IN && !grow_joins(j, r))
			return true;
	return false;
}

/* True: somebody is left. */
static bool go_on(struct sched *s, struct sched_job *j, const char *why)
{
	if (j->state == SJ_UP && !any_stays(j)) {
		job_down(s, j, j->nleft ? 0 : TALLY_EWORKERLOST, "%s",
			 j->nleft ? "all ranks have detached" : why);
		return false;
	}
	if (j->state != SJ_UP)
		return true;
	tensor_issue(s, j, SQ_DECLARE);
	tensor_issue(s, j, SQ_UNDECLARE);
	epoch_settle(s, j);
	job_pump(s, j);
	return true;
}

static bool may_shrink(const struct sched_job *j)
{
	return j->on_loss == ON_LOSS_SHRINK && (j->state == SJ_UP || j->state == SJ_HELD);
}

bool shrink_rank(struct sched *s, struct sched_job *j, uint32_t rank, const char *why)
{
	uint32_t at = j->ranks[rank].machine;

	if (!may_shrink(j))
		return false;
	out_log(s, SCHED_WARN, "job %s loses rank %u, %s", j->name, rank, why);
	lose(s, j, rank);
	if (is_out(j, at))
		machine_out(s, j, &j->machines[at], why);
	return go_on(s, j, why);
}

bool shrink_machine(struct sched *s, struct sched_job *j, struct sched_part *p, const char *why)
{
	uint32_t at = (uint32_t)(p - j->machines);

	if (!may_shrink(j))
		return false;
	out_log(s, SCHED_WARN, "job %s loses machine %s, %s", j->name, p->name, why);
	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].machine == at && j->ranks[r].state != SR_LOST)
			lose(s, j, r);	/* nobody gives what one that detached had, either */
	machine_out(s, j, p, why);
	return go_on(s, j, why);
}

/* A job that ends, since it cannot go on without them, has its last rounds of all ranks. */
void shrink_begin(struct sched_job *j)
{
	for (uint32_t r = 0; r < j->world && j->on_loss == ON_LOSS_SHRINK; r++)
		j->ranks[r].gone = j->ranks[r].state == SR_LOST;
	j->shrinks = false;
}

const uint32_t *shrink_gone(struct sched *s, const struct sched_job *j, uint32_t *n)
{
	uint32_t *out = out_scratch(s, (j->nlost + 1) * sizeof(*out));

	*n = 0;
	for (uint32_t r = 0; out && r < j->world; r++)
		if (j->ranks[r].gone)
			out[(*n)++] = r;
	return out;
}

/*
 * Another agent may have said before that a rank is lost.  An epoch for it that has been would
 * give all chunks out anew for us alone: agents and servers know nobody more to be gone.
 */
void shrink_take(struct sched *s, struct sched_job *j, const struct msg_job_up *m)
{
	for (uint32_t i = 0; i < m->ngone; i++) {
		struct sched_rank *r = &j->ranks[m->gone[i]];

		if (r->state != SR_LOST)
			lose(s, j, m->gone[i]);
		r->gone = true;
	}
	j->shrinks = false;
	for (uint32_t r = 0; r < j->world; r++)
		j->shrinks |= j->ranks[r].state == SR_LOST && !j->ranks[r].gone;
	for (uint32_t i = 0; i < j->nmachines; i++)
		if (!j->machines[i].out && is_out(j, i))
			machine_out(s, j, &j->machines[i], "its ranks were lost");
}
