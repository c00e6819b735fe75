// SPDX-License-Identifier: Apache-2.0
/*
 * Rounds that wait, as the scheduler is told (STUCK).
 *
 * Each engine lists for every job what its rounds that are older than STUCK_MS wait
 * for: engine 0 the local ranks that have not given their input, every engine what
 * its core says of its segments.  The control thread adds the lists up and tells the
 * scheduler when the answer has changed; a job of which nothing waits costs nothing.
 * A list that does not fit leaves the youngest tensors out: what is told of first is
 * what was declared first, and stays until it goes on.
 *
 * And questions of processes that wait (WAITS): the scheduler knows what for, so a process's WAITS
 * goes on to it under our number of the question, and its text comes back.  What the agent knows
 * itself it says at once.
 */
#include <stdlib.h>
#include <string.h>

#include "worker-agent/agent.h"

#define WHY_MS	250u	/* a process may ask so often; more is not answered */

/* ---- an engine ---- */

static void add(struct ad_stuck *st, const struct msg_wait *w)
{
	if (st->n < STUCK_ROWS_MAX)
		st->row[st->n++] = *w;
}

static void add_local_ranks(struct ad_stuck *st, const struct fr_job *fj, mono_t now)
{
	list_for_each(&fj->tensors, l) {
		const struct fr_tensor *t = list_entry(l, struct fr_tensor, link);
		const struct ad_tensor *at = t->user;

		if (!t->running || now - t->since < mono_ms(STUCK_MS))
			continue;
		for (uint32_t i = 0; i < fj->nlocal; i++) {
			const struct msg_wait w = {
				.tensor = t->id, .round = t->round,
				.chunks = MAX(geom_chunks(&at->desc.geom), 1),
				.kind = WAIT_RANK, .who = fj->rank[i],
				.age_ms = (uint64_t)((now - t->since) / NS_PER_MS),
			};

			if (fr_unposted(t) >> i & 1)
				add(st, &w);
		}
	}
}

static void add_segments(struct ad_stuck *st, const struct ag_job *c, mono_t now)
{
	list_for_each(&c->tensors, l) {
		const struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

		if (t->running && !t->removed && now - t->since >= mono_ms(STUCK_MS))
			st->n += ag_waits_for(t, now, &st->row[st->n], STUCK_ROWS_MAX - st->n);
	}
	st->n = ag_waits_elsewhere(c, st->row, st->n, STUCK_ROWS_MAX);
}

void ad_stuck_look(struct ad_engine *en, mono_t now)
{
	bool old = ad_any_open(en, now, STUCK_MS);	/* else there is nothing to look for */

	list_for_each(&en->core.jobs, l) {
		const struct ag_job *c = list_entry(l, struct ag_job, link);
		struct ad_job *j = c->user;
		struct ad_stuck *st = c->stopped ? NULL : malloc(sizeof(*st));

		if (!st)
			continue;	/* without memory nothing is said */
		*st = (struct ad_stuck){ .job = c->id, .engine = en->index, .at = now };
		if (old && en->index == 0)
			add_local_ranks(st, &j->front, now);
		if (old)
			add_segments(st, c, now);
		if (!st->n && !j->stuck_said[en->index]) {
			free(st);
			continue;
		}
		j->stuck_said[en->index] = st->n != 0;
		ad_tell_control(en, AD_STUCK, &st, sizeof(st));
	}
}

/* ---- control thread ---- */

static bool same_wait(const struct msg_wait *a, const struct msg_wait *b)
{
	return a->tensor == b->tensor && a->round == b->round && a->kind == b->kind &&
	       a->who == b->who;
}

/* Into the sum of the engines' lists: another engine has other chunks of the same round. */
static void merge(struct ad_stuck *sum, const struct ad_stuck *st)
{
	for (uint32_t i = 0; i < st->n; i++) {
		struct msg_wait w = st->row[i];
		uint32_t k = 0;

		w.age_ms += (uint64_t)((sum->at - st->at) / NS_PER_MS);
		while (k < sum->n && !same_wait(&sum->row[k], &w))
			k++;
		if (k == sum->n) {
			add(sum, &w);
			continue;
		}
		if (w.chunks)		/* none: it says whom others of this engine wait for */
			sum->row[k].chunk = sum->row[k].chunks ?
				MIN(sum->row[k].chunk, w.chunk) : w.chunk;
		sum->row[k].chunks += w.chunks;
		sum->row[k].age_ms = MAX(sum->row[k].age_ms, w.age_ms);
	}
}

static bool same_list(const struct ad_stuck *a, const struct ad_stuck *b)
{
	if (!a || !b || a->n != b->n)
		return a == b;
	for (uint32_t i = 0; i < a->n; i++)
		if (!same_wait(&a->row[i], &b->row[i]) || a->row[i].chunk != b->row[i].chunk ||
		    a->row[i].chunks != b->row[i].chunks)
			return false;
	return true;
}

static void tell(struct agent *a, uint32_t job, const struct ad_stuck *st)
{
	const struct msg m = {
		.type = MSG_STUCK,
		.stuck = { .job = job, .nwaits = st ? st->n : 0, .waits = st ? st->row : NULL },
	};

	(void)ad_tell_scheduler(a, &m);
}

/* NULL: nothing waits; also when there is no memory to say what does. */
static struct ad_stuck *sum_up(const struct ad_job *j)
{
	struct ad_stuck *sum = NULL;
	mono_t now = loop_now();

	for (uint32_t e = 0; e < j->agent->nengines; e++) {
		if (!j->stuck[e])
			continue;
		sum = sum ? sum : calloc(1, sizeof(*sum));
		if (!sum)
			return NULL;
		sum->at = now;
		merge(sum, j->stuck[e]);
	}
	return sum;
}

void ad_stuck_take(struct agent *a, struct ad_stuck *st)
{
	struct ad_job *j = ad_job_find(a, st->job);
	struct ad_stuck *sum;

	if (!j || j->state == JOB_STOPPING) {
		free(st);
		return;
	}
	free(j->stuck[st->engine]);
	j->stuck[st->engine] = st->n ? st : NULL;
	if (!st->n)
		free(st);
	sum = sum_up(j);
	if (same_list(sum, j->stuck_told)) {
		free(sum);
		return;
	}
	free(j->stuck_told);
	j->stuck_told = sum;
	tell(a, j->id, sum);
}

void ad_stuck_tell(struct ad_job *j)
{
	tell(j->agent, j->id, j->stuck_told);	/* nothing, too: that may have been lost */
}

void ad_stuck_new_part(struct agent *a, uint32_t job)
{
	const struct ad_job *j = ad_job_find(a, job);

	if (!j || j->state == JOB_STOPPING)	/* of which it says nothing any more */
		tell(a, job, NULL);
}

/* ---- questions that wait, as their processes are told (WAITS) ---- */

static void tell_waits(struct ad_session *s, uint64_t theirs, const char *text)
{
	const struct msg m = { .type = MSG_WAITS, .reply = { .req = theirs, .text = text } };

	(void)ad_session_send(s, &m, NULL, 0);
}

static void tell_no_scheduler(struct ad_session *s, uint64_t theirs)
{
	struct err e;

	ad_scheduler_late(s->agent, &e);
	tell_waits(s, theirs, e.text);
}

void ad_waits_asked(struct ad_session *s, uint64_t theirs)
{
	for (uint32_t i = 0; i < AD_REQS_MAX; i++) {
		const struct msg m = {
			.type = MSG_WAITS, .reply = { .req = s->req[i].ours, .text = "" },
		};
		struct ad_req *r = &s->req[i];

		if (!r->ours || r->theirs != theirs || loop_now() - r->why_at < mono_ms(WHY_MS))
			continue;
		r->why_at = loop_now();
		if (r->ids)
			tell_waits(s, theirs, "the agent makes the tensors' memory ready");
		else if (ctl_node_is_up(s->agent->node))
			(void)ad_tell_scheduler(s->agent, &m);
		else
			tell_no_scheduler(s, theirs);
	}
}

void ad_waits_told(struct agent *a, const struct msg_reply *m)
{
	char more[ERR_TEXT_MAX + 1];

	list_for_each(&a->sessions, l) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		for (uint32_t i = 0; i < AD_REQS_MAX && m->req; i++)
			if (s->req[i].ours == m->req)
				tell_waits(s, s->req[i].theirs,
					   ad_gpu_remark(s->job, m->text, more));
	}
}

/* ---- the end ---- */

void ad_stuck_free(struct ad_job *j)
{
	for (uint32_t e = 0; e < ENGINES_MAX; e++) {
		free(j->stuck[e]);
		j->stuck[e] = NULL;
	}
	free(j->stuck_told);
	j->stuck_told = NULL;
}
