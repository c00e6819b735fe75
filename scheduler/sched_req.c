// SPDX-License-Identifier: Apache-2.0
/*
 * sched_req.c - requests that wait for other ranks or for servers.
 *
 * Each is answered exactly once: when what it asked for has happened, when it
 * cannot happen any more, or when its deadline passes.  A node that dies is
 * owed nothing; its requests are dropped.
 */
#include "scheduler/sched.h"

bool req_asked(const struct sched_job *j, const struct sched_node *n, enum sched_req_kind kind,
	       uint32_t rank, uint64_t req)
{
	if (!j->ranks[rank].pending)
		return false;
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->node == n && q->req == req && q->kind == kind &&
		    q->rank == rank) {
			q->asked = n->conns;
			return true;
		}
	}
	return false;
}

struct sched_req *req_new(struct sched *s, struct sched_job *j, struct sched_node *n,
			  enum sched_req_kind kind, uint32_t rank, uint64_t req,
			  uint32_t timeout_ms, uint32_t ntensors)
{
	struct sched_req *q;

	if (j->ranks[rank].pending >= SCHED_REQS_PER_RANK_MAX) {
		out_refuse(s, n, req, TALLY_EQUOTA, "rank %u of job '%s' has %u requests waiting",
			   rank, j->name, j->ranks[rank].pending);
		return NULL;
	}
	q = sched_alloc(s, sizeof(*q) + ntensors * sizeof(q->t[0]));
	if (!q && MUTATE(35))
		return NULL;
	if (!q) {
		out_refuse(s, n, req, TALLY_ENOMEM, "the scheduler is out of memory");
		return NULL;
	}
	q->kind = kind;
	q->node = n;
	q->req = req;
	q->asked = n->conns;
	q->rank = rank;
	q->n = ntensors;
	q->deadline = s->now + mono_ms(timeout_ms ? timeout_ms : ATTACH_TIMEOUT_MS);
	list_add(&j->reqs, &q->link);
	j->ranks[rank].pending++;
	sched_wake(s, q->deadline);
	return q;
}

void req_drop(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	ASSERT(j->ranks[q->rank].pending > 0);
	j->ranks[q->rank].pending--;
	list_del(&q->link);
	sched_release(s, q);
}

static void give_up(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	if (q->kind == SQ_BARRIER)
		barrier_leave(j, q);
	else if (q->kind != SQ_JOIN && !q->entry)
		tensor_withdraw(s, j, q);
	req_drop(s, j, q);
}

void req_drop_of(struct sched *s, struct sched_job *j, const struct sched_node *n, uint32_t rank)
{
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->node == n && (rank == UINT32_MAX ||
				     (q->rank == rank && q->kind != SQ_JOIN)))
			give_up(s, j, q);
	}
}

void req_orphan(struct sched *s, struct sched_job *j, const struct sched_node *n)
{
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->node == n && q->entry)
			q->req = 0;
		else if (q->node == n)
			give_up(s, j, q);
	}
}

void req_done(struct sched *s, struct sched_job *j, struct sched_req *q, int code,
	      const char *text, const uint32_t *ids, uint32_t nids)
{
	j->done += !code;
	if (q->req) {
		out_answer(s, q->node, q->req, code, text, ids, nids);
		if (q->node->state == SN_UP && q->asked != q->node->conns)
			out_ahead(s, q->node, q->req);
	}
	req_drop(s, j, q);
}

bool req_asked_anew(struct sched_job *j, const struct sched_node *n, enum sched_req_kind kind,
		    uint32_t rank, const struct sched_tensor *t, uint64_t req)
{
	if (!j->ranks[rank].pending)
		return false;
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->node != n || q->req || q->kind != kind || q->rank != rank)
			continue;
		for (uint32_t i = 0; i < q->n; i++) {
			if (q->t[i] != t)
				continue;
			q->req = req;
			q->asked = n->conns;
			return true;
		}
	}
	return false;
}

static void expire(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	s->counters.timeouts++;
	j->ranks[q->rank].gave_up = j->done + 1;
	switch (q->kind) {
	case SQ_JOIN:
		job_expire_join(s, j, q);
		break;
	case SQ_DECLARE:
	case SQ_UNDECLARE:
		tensor_expire(s, j, q);
		break;
	case SQ_BARRIER:
		barrier_expire(s, j, q);
		break;
	}
}

static struct sched_req *req_of(const struct sched_job *j, const struct sched_node *n,
				uint64_t req)
{
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->node == n && q->req == req)
			return q;
	}
	return NULL;
}

static void why(struct sched *s, struct sched_job *j, const struct sched_req *q, struct text *t)
{
	switch (q->kind) {
	case SQ_JOIN:
		if (q->grow)
			text_add(t, "rank %u of job '%.128s' waits to come in, until the "
				 "survivors call tally_grow", q->rank, j->name);
		else
			join_text(s, t, j);
		break;
	case SQ_DECLARE:
	case SQ_UNDECLARE:
		tensor_text(s, t, j, q);
		break;
	case SQ_BARRIER:
		barrier_text(s, t, j);
		break;
	}
}

void req_tell(struct sched *s, struct sched_node *n, uint64_t req)
{
	const struct sched_req *q = NULL;
	char buf[ERR_TEXT_MAX + 1];
	struct text t;
	struct msg *m;

	text_init(&t, buf, sizeof(buf));
	for (uint32_t i = 0; req && !q && i < s->njobs; i++) {
		q = req_of(s->jobs[i], n, req);
		if (q)
			why(s, s->jobs[i], q, &t);
	}
	m = q ? out_msg(s, MSG_WAITS) : NULL;
	if (!m)
		return;			/* it has been answered, or nothing can be said now */
	m->reply = (struct msg_reply){ .req = req, .text = out_string(s, buf) };
	(void)out_send(s, n, m);
}

static struct sched_req *first_expired(struct sched *s, struct sched_job *j)
{
	list_for_each(&j->reqs, p) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (s->now >= q->deadline)
			return q;
		sched_wake(s, q->deadline);
	}
	return NULL;
}

/*
 * Expires requests whose deadline has passed. One expiry may answer many, so the list is read
 * afresh after each.
 */
void req_timer(struct sched *s, struct sched_job *j)
{
	struct sched_req *q;

	while ((q = first_expired(s, j)))
		expire(s, j, q);
}
