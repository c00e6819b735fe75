// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a job of which a process is lost: on the same round for all its ranks.
 *
 * The scheduler asks twice (JOB_END).  First engine 0 takes nothing more from the job's
 * rings, and says of each tensor the last round for which this machine's ranks have all given
 * their inputs.  Then it is told the rounds for which all machines have, waits until these
 * are over, as any round ends, before all else of the job, and says so; meanwhile, that results
 * come, as long as they do.  JOB_DOWN comes when all have.
 *
 * What a rank had in flight when it came back to this process it has given, to the one before:
 * others may have its sum.  So that counts, is taken from its ring when it submits it again, which
 * is when it calls libtally next, and is waited for as results are.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "worker-agent/agent.h"

/* ---- control thread ---- */

static void answer(struct agent *a, uint32_t job, enum msg_end step, const struct ad_end *end)
{
	const struct msg m = {
		.type = MSG_JOB_END,
		.ready = {
			.job = job, .seq = step, .text = "", .nrounds = end ? end->n : 0,
			.rounds = end ? end->rounds : NULL,
		},
	};

	(void)ad_tell_scheduler(a, &m);		/* it does not wait for long */
}

static uint32_t tensors_of(const struct ad_job *j)
{
	uint32_t n = 0;

	list_for_each(&j->tensors, l)
		n++;
	return n;
}

void ad_end_asked(struct agent *a, const struct msg_ready *m)
{
	enum msg_end step = (enum msg_end)m->seq;
	struct ad_job *j = ad_job_find(a, m->job);

	if (!j && ad_back_waits(a, m->job))
		return;			/* it hears the job first, and is asked once more */
	if (!j || j->state == JOB_STOPPING) {
		answer(a, m->job, step, NULL);
		return;
	}
	if (j->end.busy)
		return;			/* asked again, on another connection */
	free(j->end.rounds);
	j->end = (struct ad_end){ .step = step };
	j->end.room = MAX(tensors_of(j), m->nrounds) + 1;
	j->end.rounds = calloc(j->end.room, sizeof(*j->end.rounds));
	if (!j->end.rounds) {
		answer(a, m->job, step, NULL);
		return;
	}
	j->end.n = j->end.asked = m->nrounds;
	if (m->nrounds)
		memcpy(j->end.rounds, m->rounds, m->nrounds * sizeof(*m->rounds));
	j->end.busy = step == END_GIVEN ? 1 : a->nengines;
	for (uint32_t i = j->end.busy; i > 0; i--)
		ad_engine_tell(a->engine[i - 1], AD_END, &j, sizeof(j));
}

void ad_end_answer(struct ad_job *j)
{
	if (--j->end.busy == 0 && j->state != JOB_STOPPING)
		answer(j->agent, j->id, j->end.step, &j->end);
}

void ad_end_goes_on(struct ad_job *j)
{
	if (j->end.busy && j->end.step == END_DONE && j->state != JOB_STOPPING)
		answer(j->agent, j->id, END_MORE, NULL);
}

/* ---- engines ---- */

/* What else has begun will not be over: some rank has not given it. */
static void hurry(struct ad_engine *en, const struct ad_job *j)
{
	for (uint32_t i = 0; i < j->end.asked; i++) {
		uint64_t round = j->end.rounds[i];
		struct ag_tensor *t = ag_tensor_find(&en->core, j->id, (uint32_t)(round >> 32));

		if (t && t->running && t->round == (uint32_t)round)
			ag_hurry(t);
	}
}

/* ---- engine 0 ---- */

/* A rank has given it to the agent before this one, and is to submit it here as it comes back:
 * because its sum is not there, or to be told that it is. */
static bool is_awaited(struct ad_engine *en, const struct ad_job *j, uint64_t round)
{
	const struct fr_tensor *t = fr_tensor_find(&en->front, j->id, (uint32_t)(round >> 32));

	return t && ((fr_awaits(t, (uint32_t)round) && ad_rings_give(en, t)) ||
		     ad_rings_tell(en, t, (uint32_t)round));
}

/* Its sum is there, and every rank was told. */
static bool is_over(struct ad_engine *en, const struct ad_job *j, uint64_t round)
{
	const struct fr_tensor *t = fr_tensor_find(&en->front, j->id, (uint32_t)(round >> 32));

	if (is_awaited(en, j, round))
		return false;
	if (!t)
		return true;
	for (uint32_t l = 0; l < j->front.nlocal; l++)
		if (!list_empty(&t->in[l].owed) && t->in[l].owed_round == (uint32_t)round)
			return false;
	return !t->running || t->round != (uint32_t)round;
}

static void look(struct ad_engine *en, struct ad_job *j)
{
	struct ad_end *end = &j->end;

	while (end->n && is_over(en, j, end->rounds[end->n - 1]))
		end->n--;
	if (end->n)
		return;
	j->finishing = false;
	ad_tell_control(en, AD_ENDED, &j, sizeof(j));
}

/* It may compute for long before it does. */
bool ad_end_awaits(struct ad_engine *en, const struct ad_job *j)
{
	for (uint32_t i = 0; j->finishing && i < j->end.n; i++)
		if (is_awaited(en, j, j->end.rounds[i]))
			return true;
	return false;
}

void ad_end_mail(struct ad_engine *en, struct ad_job *j)
{
	struct ad_end *end = &j->end;

	ad_rings_publish(en);		/* before others hear that these rounds are over */
	if (end->step != END_GIVEN)
		hurry(en, j);
	if (en->index) {
		ad_tell_control(en, AD_ENDED, &j, sizeof(j));
		return;
	}
	j->ending = j->front.ends = true;
	if (end->step != END_GIVEN) {
		j->finishing = true;
		look(en, j);
		return;
	}
	end->n = 0;
	list_for_each(&j->front.tensors, l) {
		const struct fr_tensor *t = list_entry(l, struct fr_tensor, link);

		if (end->n < end->room)
			end->rounds[end->n++] = (uint64_t)t->id << 32 | fr_given(t);
	}
	ad_tell_control(en, AD_ENDED, &j, sizeof(j));
}

void ad_end_turn(struct ad_engine *en)
{
	list_for_each(&en->front.jobs, l) {
		struct ad_job *j = list_entry(l, struct fr_job, link)->user;

		if (j->finishing)
			look(en, j);
	}
}
