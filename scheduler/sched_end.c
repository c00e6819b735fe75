// SPDX-License-Identifier: Apache-2.0
/*
 * sched_end.c - a job that ends because a process, or an agent for good, is lost: on the same
 * round for everybody.
 *
 * A round for which all machines have given their inputs, the lost rank's too, is summed, and
 * its result may be at one machine when the others' is on its way.  So the end has two steps
 * before it.  Agents take no more inputs, and say which rounds theirs are for.  What all
 * have given comes: its sums are made, or will be.  What one has not never does.  Then
 * they wait for the former, tell their ranks, and say so; and only then the job is over,
 * for servers and agents.
 *
 * Agents that cannot answer are not waited for.  Whoever does not answer is, for END_MS; and in
 * the second step for as long as somebody says that results come, or a server may be lost or
 * takes over what one had: END_MS from then on, and END_LATEST_MS in all.  Where all have said
 * what they gave, its results do come, if late, and the question may take as long where a card has
 * more than it can carry: then it is END_SURE_MS.  Where no process is left nobody is waited for.
 */
#include "common/base/geom.h"
#include "scheduler/sched.h"

#define END_MS		3000u
#define END_SURE_MS	10000u
#define END_LATEST_MS	120000u
#define END_AGAIN_MS	100u

static bool is_known(const struct sched_part *p, enum sched_node_state state)
{
	return p->node && p->node->state == state && !p->return_by && p->told_up;
}

static bool is_asked(const struct sched_part *p)
{
	return is_known(p, SN_UP);
}

/* Its connection broke just now, and it may be back at once. */
static bool blinks(struct sched *s, const struct sched_part *p)
{
	mono_t until;

	if (!is_known(p, SN_AWAY))
		return false;
	until = p->node->away + mono_ms(RECONNECT_GRACE_MS);
	if (s->now < until)
		sched_wake(s, until);
	return s->now < until;
}

/* It was started again, has nothing of the job yet, and is asked when it has. */
static bool returns(const struct sched_part *p)
{
	return p->node && p->node->state == SN_UP && p->return_by;
}

/* NULL: no memory. */
static const struct msg *question(struct sched *s, struct sched_job *j)
{
	struct msg *m = out_msg(s, MSG_JOB_END);
	bool done = j->ending == END_DONE;
	uint64_t *rounds = done ? out_scratch(s, (j->ntensors + 1) * sizeof(*rounds)) : NULL;
	uint32_t n = 0;

	if (!m || (done && !rounds))
		return NULL;
	list_for_each(&j->tensors, l) {
		const struct sched_tensor *t = list_entry(l, struct sched_tensor, link);

		if (done && t->round && !t->never && !MUTATE(27))
			rounds[n++] = (uint64_t)t->id << 32 | t->round;
	}
	m->ready = (struct msg_ready){
		.job = j->number, .seq = j->ending, .text = "", .nrounds = n, .rounds = rounds,
	};
	return m;
}

void end_wait(struct sched *s, struct sched_job *j)
{
	if (!j->ending)
		return;
	j->end_by = MIN(s->now + mono_ms(j->end_sure ? END_SURE_MS : END_MS), j->end_latest);
	sched_wake(s, j->end_by);
}

static void ask_all(struct sched *s, struct sched_job *j, const struct msg *m)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		struct sched_part *p = &j->machines[i];

		p->ended = false;
		if (is_asked(p))
			out_send(s, p->node, m);
	}
	end_wait(s, j);
}

static void over(struct sched *s, struct sched_job *j)
{
	const struct err why = j->why;

	job_down(s, j, why.code, "%s", why.text);
}

static bool all_have_ended(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nmachines; i++)
		if (!j->machines[i].ended && !j->machines[i].out)
			return false;
	return true;
}

/* With what those have said who could.  Without memory to say it nobody would wait for it. */
static void go_on(struct sched *s, struct sched_job *j)
{
	const struct msg *m;

	if (j->ending == END_DONE) {
		over(s, j);
		return;
	}
	j->ending = END_DONE;
	m = question(s, j);
	if (m || s->now >= j->end_latest) {
		j->end_sure = all_have_ended(j);
		ask_all(s, j, m);
		return;
	}
	j->ending = END_GIVEN;
	j->end_by = s->now + mono_ms(END_AGAIN_MS);
	sched_wake(s, j->end_by);
}

void end_step(struct sched *s, struct sched_job *j)
{
	if (!j->nin) {
		over(s, j);
		return;
	}
	for (uint32_t i = 0; i < j->nmachines; i++) {
		const struct sched_part *p = &j->machines[i];

		if (!p->ended && (is_asked(p) || blinks(s, p) || returns(p)))
			return;
	}
	go_on(s, j);
}

bool end_begin(struct sched *s, struct sched_job *j, const struct err *why)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < j->nmachines; i++)
		n += j->machines[i].node != NULL;
	if (j->state != SJ_UP || n < 2 || !j->nin)	/* ranks of one machine have the same */
		return false;
	j->why = *why;
	j->ending = END_GIVEN;
	j->end_sure = false;
	j->end_latest = s->now + mono_ms(END_LATEST_MS);
	out_log(s, SCHED_WARN, "job %s ends when its last rounds are over, reason %s", j->name,
		why->text);
	list_for_each(&j->tensors, l) {
		struct sched_tensor *t = list_entry(l, struct sched_tensor, link);

		t->round = 0;
		t->never = false;
	}
	ask_all(s, j, question(s, j));
	return true;
}

void end_ready(struct sched *s, struct sched_node *n, const struct msg_ready *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_part *p = j ? job_machine_part(j, n) : NULL;
	bool more = m->seq == END_MORE && j && j->ending == END_DONE;

	if (!p || j->state != SJ_UP || !j->ending || p->ended ||
	    (m->seq != j->ending && !more)) {
		s->counters.strays++;
		return;
	}
	if (more) {
		end_wait(s, j);
		return;
	}
	p->ended = true;
	for (uint32_t i = 0; j->ending == END_GIVEN && i < m->nrounds; i++) {
		struct sched_tensor *t = tensor_by_id(j, (uint32_t)(m->rounds[i] >> 32));
		uint32_t round = (uint32_t)m->rounds[i];

		if (!t)
			continue;
		t->never |= !round;
		/* machines are at most one round apart */
		if (!t->round || round == round_prev(t->round))
			t->round = round;
	}
	end_step(s, j);
}

static void lose(struct sched_job *j, uint32_t rank)
{
	j->ranks[rank].state = SR_LOST;
	j->nin--;
	j->nlost++;
}

void end_lose(struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].node == n && j->ranks[r].state == SR_IN)
			lose(j, r);
}

void end_leave(struct sched *s, struct sched_job *j, const struct sched_node *n, uint32_t rank)
{
	if (rank >= j->world || j->ranks[rank].node != n || j->ranks[rank].state != SR_IN) {
		s->counters.strays++;
		return;
	}
	lose(j, rank);
	if (!j->nin)
		end_step(s, j);
}

/* What it was asked may be lost with the connection before, or with the process. */
void end_back(struct sched *s, struct sched_job *j, struct sched_node *n)
{
	struct sched_part *p = job_machine_part(j, n);

	if (p && j->ending && !p->ended && is_asked(p))
		out_send(s, n, question(s, j));
}

/* Whether all servers are there, which is known within a lease, and have what they shall. */
static bool any_doubt(const struct sched *s, const struct sched_job *j)
{
	list_for_each(&j->log, l)
		if (list_entry(l, struct sched_entry, link)->kind == SE_EPOCH)
			return true;
	for (uint32_t i = 0; i < j->nservers; i++) {
		const struct sched_node *n = j->servers[i].node;

		if (n && (n->state != SN_UP || node_silent_ms(s, n)))
			return true;
	}
	return false;
}

void end_timer(struct sched *s, struct sched_job *j)
{
	if (!j->ending)
		return;
	if (s->now >= j->end_by && j->ending == END_DONE && any_doubt(s, j))
		end_wait(s, j);
	if (s->now >= j->end_by) {
		go_on(s, j);
		return;
	}
	sched_wake(s, j->end_by);
	end_step(s, j);			/* somebody may be away by now */
}
