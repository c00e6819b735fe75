// SPDX-License-Identifier: Apache-2.0
/*
 * sched_log.c - a job's declaration log: one entry at a time, in order.
 *
 * An entry of tensors goes to the servers, which set memory aside and say so;
 * then to the agents; then the DECLAREs whose tensors are all up are answered.
 * An EPOCH (sched_epoch.c) goes before others and in the same two steps.
 * A FORGET goes to everybody at once.  When a server cannot, or the deadline of
 * somebody who waits for it passes, a FORGET follows, which is all that agents hear,
 * for both numbers; the requests have the error by then.
 * One entry is on its way at any time: servers know that one (and its FORGET) when a
 * restarted scheduler and the agents do not, and begin its number anew.
 */
#include "scheduler/sched.h"

struct sched_entry *log_new(struct sched *s, enum sched_entry_kind kind, uint32_t n)
{
	struct sched_entry *e = sched_alloc(s, sizeof(*e) + n * sizeof(e->t[0]));

	if (!e)
		return NULL;
	list_init(&e->link);
	e->kind = kind;
	e->n = n;
	return e;
}

void log_add(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	list_add(&j->log, &e->link);
	log_pump(s, j);
}

static struct msg_tensor *fill_tensors(struct sched *s, struct sched_tensor *const *t, uint32_t n)
{
	struct msg_tensor *out = out_scratch(s, MAX(n, 1) * sizeof(*out));

	for (uint32_t i = 0; out && i < n; i++) {
		uint64_t *dims = out_scratch(s, sizeof(t[i]->dims));

		if (!dims)
			return NULL;
		memcpy(dims, t[i]->dims, sizeof(t[i]->dims));
		out[i] = (struct msg_tensor){
			.id = t[i]->id, .name = out_string(s, t[i]->name), .dtype = t[i]->dtype,
			.ndims = t[i]->ndims, .dims = dims, .count = t[i]->count,
			.priority = t[i]->priority, .round = t[i]->round,
		};
	}
	return out;
}

static struct msg *tensors_msg(struct sched *s, const struct sched_job *j, uint64_t seq,
				     struct sched_tensor *const *t, uint32_t n)
{
	struct msg *m = out_msg(s, MSG_TENSORS);
	struct msg_tensor *tensors = fill_tensors(s, t, n);

	if (!m || !tensors)
		return NULL;
	m->tensors = (struct msg_tensors){
		.job = j->number, .seq = seq, .ntensors = n, .tensors = tensors,
	};
	return m;
}

static const struct msg *forget_msg(struct sched *s, const struct sched_job *j, uint64_t seq,
				    struct sched_tensor *const *t, uint32_t n)
{
	struct msg *m = out_msg(s, MSG_FORGET);
	uint32_t *ids = out_scratch(s, MAX(n, 1) * sizeof(*ids));

	if (!m || !ids)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = t[i]->id;
	m->ids = (struct msg_ids){ .job = j->number, .seq = seq, .nids = n, .ids = ids };
	return m;
}

/*
 * The message of an entry that a server has refused. No agent allocates memory for it: agents
 * hear of the entry and of its FORGET in one. So nobody has the one without the other, whenever
 * a scheduler dies: where an agent has it servers must have the FORGET, and else neither has
 * been.
 */
static const struct msg *refused_msg(struct sched *s, struct sched_job *j,
				     const struct sched_entry *e)
{
	const struct msg *m = forget_msg(s, j, e->seq + 1, NULL, 0);

	sent_unkeep(s, j, e->seq);	/* the servers all have it */
	sent_keep(s, j, e->seq, m);
	return m;
}

/* An entry again, from the tensors that came with it; empty when all are forgotten. */
const struct msg *log_message(struct sched *s, const struct sched_job *j, uint64_t seq,
			      bool placed)
{
	struct sched_tensor **t;
	uint32_t n = 0, at = 0;
	struct msg *m;

	list_for_each(&j->placed, p)
		n += list_entry(p, struct sched_tensor, placed)->seq == seq;
	t = out_scratch(s, MAX(n, 1) * sizeof(struct sched_tensor *));
	if (!t)
		return NULL;
	list_for_each(&j->placed, p) {
		struct sched_tensor *one = list_entry(p, struct sched_tensor, placed);

		if (one->seq == seq)
			t[at++] = one;
	}
	m = tensors_msg(s, j, seq, t, at);
	if (!m || !placed)
		return m;
	m->tensors.placed = place_told(s, j, t, at, &m->tensors.nplaced);
	return m->tensors.placed ? m : NULL;
}

uint64_t log_send_again(struct sched *s, struct sched_job *j, struct sched_node *n, uint64_t last)
{
	uint64_t seq = 0;

	list_for_each(&j->placed, p) {
		const struct sched_tensor *t = list_entry(p, struct sched_tensor, placed);

		if (t->seq == seq || t->seq > last)
			continue;
		seq = t->seq;
		out_send(s, n, log_message(s, j, seq, j->nservers > 0));
	}
	return seq;
}

static void send_parts(struct sched *s, struct sched_part *parts, uint32_t n, uint64_t seq,
		       const struct msg *m)
{
	for (uint32_t i = 0; i < n; i++) {
		if (parts[i].let_go_by)
			continue;		/* has nothing of the job any more */
		if (!parts[i].node || parts[i].unsure || parts[i].return_by || parts[i].coming)
			continue;		/* hears it with all that it says it lacks */
		out_send(s, parts[i].node, m);
		parts[i].seq = seq;
	}
}

void log_send_servers(struct sched *s, struct sched_job *j, uint64_t seq, const struct msg *m)
{
	sent_keep(s, j, seq, m);
	send_parts(s, j->servers, j->nservers, seq, m);
}

void log_send_machines(struct sched *s, struct sched_job *j, uint64_t seq, const struct msg *m)
{
	j->told = seq;
	send_parts(s, j->machines, j->nmachines, seq, m);
}

/* ---- the end of an entry ---- */

/* DECLAREs are answered when their whole entry is with the agents. */
static void answer_declares(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	uint32_t *ids = NULL, max = 0;

	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->entry != e)
			continue;
		if (q->n > max) {
			max = q->n;
			ids = out_scratch(s, max * sizeof(*ids));
		}
		for (uint32_t i = 0; ids && i < q->n; i++)
			ids[i] = q->t[i]->id;
		if (ids)
			req_done(s, j, q, 0, "", ids, q->n);
		else
			req_done(s, j, q, TALLY_ENOMEM, "the scheduler is out of memory", NULL, 0);
	}
}

static void answer_undeclares(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->entry == e)
			req_done(s, j, q, 0, "", NULL, 0);
	}
}

static void entry_drop(struct sched *s, struct sched_entry *e)
{
	list_del(&e->link);
	sched_release(s, e);
}

static void forget(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	const struct msg *told = e->why.code ? refused_msg(s, j, e) : NULL;
	const struct msg *m = forget_msg(s, j, ++j->seq, e->t, e->n);

	log_send_servers(s, j, j->seq, m);
	log_send_machines(s, j, j->seq, e->why.code ? told : m);	/* NULL: no memory */
	answer_undeclares(s, j, e);
	for (uint32_t i = 0; i < e->n; i++) {
		j->bytes -= tensor_bytes(e->t[i]);
		tensor_free(s, j, e->t[i]);
	}
	entry_drop(s, e);
}

static void tensors_done(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	if (e->why.code) {		/* before an EPOCH: who refused them has not placed them */
		forget(s, j, e);
		return;
	}
	log_send_machines(s, j, e->seq, tensors_msg(s, j, e->seq, e->t, e->n));
	for (uint32_t i = 0; i < e->n; i++) {
		j->bytes += tensor_bytes(e->t[i]);
		e->t[i]->state = ST_UP;
	}
	answer_declares(s, j, e);
	entry_drop(s, e);
}

static void begin(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	e->seq = ++j->seq;
	for (uint32_t i = 0; i < e->n; i++)
		e->t[i]->seq = e->seq;
	if (!place_entry(s, j, e->t, e->n)) {
		job_down(s, j, TALLY_ENOMEM, "the scheduler is out of memory");
		return;
	}
	for (uint32_t i = 0; i < j->nservers; i++)
		j->servers[i].ready = !part_answers(&j->servers[i]);
	log_send_servers(s, j, e->seq, tensors_msg(s, j, e->seq, e->t, e->n));
}

static bool reserved(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (!j->servers[i].ready)
			return false;
	}
	return true;
}

static void entry_done(struct sched *s, struct sched_job *j, struct sched_entry *e)
{
	if (e->kind == SE_EPOCH)
		epoch_done(s, j, e);
	else
		tensors_done(s, j, e);
}

void log_pump(struct sched *s, struct sched_job *j)
{
	while (j->state == SJ_UP && !job_any_away(j)) {
		struct sched_entry *e = list_empty(&j->log) ? NULL :
					list_first(&j->log, struct sched_entry, link);

		if (e && e->seq && !reserved(j))
			return;		/* with the servers */
		if (e && e->seq)
			entry_done(s, j, e);
		else if (return_awaited(j))
			return;		/* it would miss what begins now */
		else if (epoch_begin(s, j))
			continue;
		else if (!e)
			return;
		else if (e->kind == SE_FORGET)
			forget(s, j, e);
		else
			begin(s, j, e);
	}
}

/* ---- what servers say ---- */

void log_fail(struct sched *s, struct sched_job *j, struct sched_entry *e, int code,
	      const char *text)
{
	if (e->why.code)
		return;
	err_set(&e->why, code, "%s", text);
	for (uint32_t i = 0; i < e->n; i++) {
		e->t[i]->state = ST_DROPPED;	/* who declares them now hears EBUSY */
		j->bytes += tensor_bytes(e->t[i]);
	}
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->entry == e)
			req_done(s, j, q, code, e->why.text, NULL, 0);
	}
}

/*
 * Whether a server joined while the entry was under way, was not waited for, and refuses it,
 * though all others have those tensors, or will. Where they forget them in the end it has lost
 * nothing.
 */
static bool lacks(const struct sched_job *j, const struct sched_part *p,
		  const struct sched_entry *e, uint64_t seq)
{
	bool under_way = e && e->seq == seq;

	if (j->state != SJ_UP || p->unsure || (under_way && (!p->ready || e->why.code)))
		return false;
	list_for_each(&j->tensors, l) {
		const struct sched_tensor *t = list_entry(l, struct sched_tensor, link);

		if (t->id && t->seq == seq)
			return true;
	}
	return false;
}

void log_ready(struct sched *s, struct sched_job *j, struct sched_part *p,
	       const struct msg_ready *m)
{
	struct sched_entry *e = list_empty(&j->log) ? NULL :
				list_first(&j->log, struct sched_entry, link);

	if (m->code && lacks(j, p, e, m->seq)) {
		cut_lacks(s, j, p, m->text);
		return;
	}
	if (p->joining || (p->ready && e && e->seq == m->seq && !m->code))
		return;			/* it has no part in it, so it was not waited for */
	if (j->state != SJ_UP || !e || e->kind != SE_TENSORS || !e->seq || e->seq != m->seq ||
	    p->ready) {
		s->counters.strays++;
		return;
	}
	p->ready = true;
	p->stale = 0;
	if (m->code)
		log_fail(s, j, e, m->code, m->text);	/* which names the server */
	log_pump(s, j);
}
