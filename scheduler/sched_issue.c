// SPDX-License-Identifier: Apache-2.0
/*
 * sched_issue.c - what all ranks agree on becomes one entry of the log.
 *
 * A request is all or nothing, so a tensor may go only when every request that
 * names it may, and a request only when all its tensors may.  The largest such
 * set is found by striking out: first the requests with a tensor that somebody
 * has not named yet, then those that share a tensor with one struck out, until
 * nothing changes.  When all ranks cut their batches alike, as they do when they
 * run the same program, that is one turn.
 */
#include "scheduler/sched.h"

static bool waits(const struct sched_req *q, enum sched_req_kind kind)
{
	return q->kind == kind && !q->entry;
}

static enum sched_tensor_state from_state(enum sched_req_kind kind)
{
	return kind == SQ_DECLARE ? ST_WANTED : ST_UP;
}

/* A DECLARE asked again after a restart may name tensors that are up. */
static bool complete(const struct sched_job *j, const struct sched_tensor *t,
		     enum sched_req_kind kind)
{
	if (t->state == from_state(kind) && t->nset == j->world - j->nlost)
		return true;
	return kind == SQ_DECLARE && t->state == ST_UP;
}

static bool all_complete(const struct sched_job *j, const struct sched_req *q)
{
	for (uint32_t i = 0; i < q->n; i++) {
		if (!complete(j, q->t[i], q->kind))
			return false;
	}
	return true;
}

static bool shares_struck(const struct sched_req *q, enum sched_req_kind kind)
{
	for (uint32_t i = 0; i < q->n; i++) {
		if (q->t[i]->mark && q->t[i]->state == from_state(kind))
			return true;
	}
	return false;
}

/* Marks the tensors of struck requests, and strikes requests that share them; one turn. */
static bool strike(struct sched_job *j, enum sched_req_kind kind)
{
	bool changed = false;

	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		for (uint32_t i = 0; waits(q, kind) && !q->mark && i < q->n; i++)
			q->t[i]->mark = true;
	}
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (!waits(q, kind) || !q->mark || !shares_struck(q, kind))
			continue;
		q->mark = false;
		changed = true;
	}
	return changed;
}

static void unmark(struct sched_job *j)
{
	list_for_each(&j->tensors, p)
		list_entry(p, struct sched_tensor, link)->mark = false;
}

/* Leaves q->mark on what may go, t->mark on what may not. */
static void choose(struct sched_job *j, enum sched_req_kind kind)
{
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		q->mark = waits(q, kind) && all_complete(j, q);
	}
	while (strike(j, kind))
		;
}

static bool goes(const struct sched_job *j, const struct sched_tensor *t,
		 enum sched_req_kind kind)
{
	return !t->mark && t->state == from_state(kind) && t->nset == j->world - j->nlost;
}

/* Where all chunks are is told to who comes later, entry by entry. */
static int check_chunks(const struct sched_job *j, struct err *e)
{
	uint64_t n = 0;

	list_for_each(&j->tensors, p) {
		const struct sched_tensor *t = list_entry(p, struct sched_tensor, link);

		if (goes(j, t, SQ_DECLARE))
			n += div_round_up(tensor_bytes(t), j->chunk_bytes);
	}
	if (n > PLACED_MAX)
		return err_set(e, TALLY_EQUOTA, "job '%.96s' declares %llu chunks of %u bytes at "
			       "once, %u are possible: declare in several calls, or have larger "
			       "chunks (chunk_bytes)", j->name, (unsigned long long)n,
			       j->chunk_bytes, PLACED_MAX);
	if (n + j->chunks > CHUNKS_PER_JOB_MAX)
		return err_set(e, TALLY_EQUOTA, "job '%.96s' would have %llu chunks of %u bytes, "
			       "%u are possible: have larger chunks (chunk_bytes)", j->name,
			       (unsigned long long)(n + j->chunks), j->chunk_bytes,
			       CHUNKS_PER_JOB_MAX);
	return 0;
}

static struct sched_entry *collect(struct sched *s, struct sched_job *j,
				   enum sched_req_kind kind, struct err *e)
{
	struct sched_entry *entry;
	uint32_t n = 0, at = 0;

	list_for_each(&j->tensors, p)
		n += goes(j, list_entry(p, struct sched_tensor, link), kind);
	err_set(e, 0, "nothing to do");
	if (!n)
		return NULL;
	if (n > TENSORS_PER_BATCH_MAX || j->last_id > UINT32_MAX - n) {
		err_set(e, TALLY_EQUOTA, "job '%.128s' has %u tensors complete at once, %u are "
			"possible; cut batches alike on all ranks", j->name, n,
			TENSORS_PER_BATCH_MAX);
		return NULL;
	}
	if (kind == SQ_DECLARE && check_chunks(j, e))
		return NULL;
	entry = log_new(s, kind == SQ_DECLARE ? SE_TENSORS : SE_FORGET, n);
	if (!entry) {
		err_set(e, TALLY_ENOMEM, "the scheduler is out of memory");
		return NULL;
	}
	list_for_each(&j->tensors, p) {
		struct sched_tensor *t = list_entry(p, struct sched_tensor, link);

		if (goes(j, t, kind))
			entry->t[at++] = t;
	}
	return entry;
}

static void enter(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	for (uint32_t i = 0; i < e->n; i++) {
		struct sched_tensor *t = e->t[i];

		tensor_drop_set(s, t);
		tensor_drop_meaning(s, j, t);
		t->state = e->kind == SE_TENSORS ? ST_LOGGED : ST_DROPPED;
		if (e->kind == SE_TENSORS)
			tensor_set_id(j, t, j->last_id + 1);
	}
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->mark)
			q->entry = e;
	}
	log_add(s, j, e);
}

/* All its tensors were up before the restart: it only wants to hear the ids. */
static void answer_known(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	uint32_t *ids = out_scratch(s, q->n * sizeof(*ids));

	if (!ids) {
		req_done(s, j, q, TALLY_ENOMEM, "the scheduler is out of memory", NULL, 0);
		return;
	}
	for (uint32_t i = 0; i < q->n; i++)
		ids[i] = q->t[i]->id;
	req_done(s, j, q, 0, "", ids, q->n);
}

static void settle(struct sched *s, struct sched_job *j, const struct err *e)
{
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (!q->mark)
			continue;
		if (!e->code) {
			answer_known(s, j, q);
			continue;
		}
		tensor_withdraw(s, j, q);
		req_done(s, j, q, e->code, e->text, NULL, 0);
	}
}

void tensor_issue(struct sched *s, struct sched_job *j, enum sched_req_kind kind)
{
	struct sched_entry *entry;
	struct err e;

	if (j->state != SJ_UP)
		return;
	choose(j, kind);
	entry = collect(s, j, kind, &e);
	unmark(j);
	if (entry)
		enter(s, j, entry);
	else
		settle(s, j, &e);
}
