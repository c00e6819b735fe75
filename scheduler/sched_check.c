// SPDX-License-Identifier: Apache-2.0
/*
 * sched_check.c - what is true between two steps, whatever came in.
 */
#include "scheduler/sched.h"

static bool living(const struct sched *s, const struct sched_node *n)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		if (s->nodes[i] == n)
			return n->state != SN_DEAD;
	}
	return false;
}

static void check_conns(const struct sched *s)
{
	for (uint32_t i = 0; i < CTL_CONNS_MAX; i++) {
		const struct sched_conn *c = &s->conns[i];

		if (c->node)
			ASSERT(c->state == SC_NODE && living(s, c->node) && c->node->conn == i);
		else
			ASSERT(c->state != SC_NODE || c->doomed);
	}
}

static void check_nodes(const struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		const struct sched_node *n = s->nodes[i];

		ASSERT(n->state != SN_NEW);
		ASSERT((n->state == SN_UP) == (n->conn != NO_CONN));
		ASSERT(n->conn == NO_CONN || s->conns[n->conn].node == n);
		ASSERT(n->number && n->number <= s->last.node);
		ASSERT(!i || s->nodes[i - 1]->number < n->number);
		ASSERT(n->state == SN_AWAY || list_empty(&n->outbox));
		ASSERT(n->state == SN_UP || list_empty(&n->ahead));
		for (uint32_t k = 0; k < i; k++)
			ASSERT(s->nodes[k]->kind != n->kind || strcmp(s->nodes[k]->name, n->name));
	}
}

/* The row of a rank's machine, and that its agent is the one that the rank is with. */
static void check_row_of(const struct sched_job *j, uint32_t r)
{
	const struct sched_rank *k = &j->ranks[r];

	if (j->state == SJ_GATHERING || !j->machines)
		return;
	ASSERT(k->machine < j->nmachines);
	if (j->state == SJ_UP && k->state == SR_IN && !grow_joins(j, r))
		ASSERT(j->machines[k->machine].node == k->node);
}

static void check_ranks(const struct sched *s, const struct sched_job *j)
{
	uint32_t in = 0, left = 0, lost = 0, pending = 0, reqs = 0, barrier = 0;

	for (uint32_t r = 0; r < j->world; r++) {
		const struct sched_rank *k = &j->ranks[r];

		in += k->state == SR_IN;
		left += k->state == SR_LEFT;
		lost += k->state == SR_LOST;
		ASSERT(!k->gone || k->state == SR_LOST);
		pending += k->pending;
		barrier += bits_test(j->barrier, r);
		if (k->node)
			ASSERT(living(s, k->node) && k->node->kind == NODE_AGENT);
		ASSERT(k->state != SR_IN || k->node || j->state == SJ_DOWN);
		check_row_of(j, r);
	}
	ASSERT(in == j->nin && left == j->nleft && lost == j->nlost && barrier == j->nbarrier);
	list_for_each(&j->reqs, p)
		reqs++;
	ASSERT(reqs == pending);
}

/* No node has two rows of a job; who is waited for is a node. */
static void check_agent_row(const struct sched *s, const struct sched_job *j, uint32_t i)
{
	const struct sched_part *p = &j->machines[i];

	ASSERT(!p->node || (living(s, p->node) && p->node->kind == NODE_AGENT));
	for (uint32_t k = 0; k < i; k++)
		ASSERT(!p->node || j->machines[k].node != p->node);
	if (j->state == SJ_UP && (p->return_by || p->expected || p->coming))
		ASSERT(p->node);
	ASSERT(!p->out || !p->node || p->coming);
}

static void check_parts(const struct sched *s, const struct sched_job *j)
{
	ASSERT(j->nservers <= j->servers_room || !j->servers);
	for (uint32_t i = 0; i < j->nmachines; i++)
		check_agent_row(s, j, i);
	for (uint32_t i = 0; i < j->nmachines && j->state == SJ_UP; i++)
		ASSERT(!j->machines[i].expected || j->machines[i].return_by);
	for (uint32_t i = 0; i < j->nservers; i++) {
		ASSERT(!j->servers[i].node || (living(s, j->servers[i].node) &&
					       j->servers[i].node->kind == NODE_SERVER));
		for (uint32_t k = 0; k < i; k++)
			ASSERT(!j->servers[i].node || j->servers[k].node != j->servers[i].node);
		ASSERT(!j->servers[i].joining || (j->servers[i].node && !j->servers[i].weight));
	}
}

static uint32_t bits_count(const uint64_t *set, uint32_t n)
{
	uint32_t count = 0;

	for (uint32_t i = 0; set && i < n; i++)
		count += bits_test(set, i);
	return count;
}

static bool has_tensor(const struct sched_job *j, const struct sched_tensor *t)
{
	return tensor_by_name(j, t->name) == t;
}

static bool has_entry(const struct sched_job *j, const struct sched_entry *e)
{
	list_for_each(&j->log, p)
		if (list_entry(p, struct sched_entry, link) == e)
			return true;
	return false;
}

static void check_log(const struct sched_job *j)
{
	list_for_each(&j->log, p) {
		const struct sched_entry *e = list_entry(p, struct sched_entry, link);

		for (uint32_t i = 0; i < e->n; i++)
			ASSERT(has_tensor(j, e->t[i]));
	}
}

static void check_placed(const struct sched_job *j)
{
	uint64_t bytes = 0;

	list_for_each(&j->placed, p) {
		const struct sched_tensor *t = list_entry(p, struct sched_tensor, placed);

		ASSERT(has_tensor(j, t));
		bytes += t->place.bytes;
	}
	ASSERT(!j->place || bytes == j->place->total_bytes);
	ASSERT(j->settled <= j->epoch);
}

/*
 * Asserts that ranks which have declared a tensor and wait for others are there: texts name
 * their machines.
 */
static void check_wanted(const struct sched_job *j, const struct sched_tensor *t)
{
	if (t->state != ST_WANTED || j->state == SJ_DOWN)
		return;
	for (uint32_t r = 0; r < j->world; r++)
		ASSERT(!bits_test(t->set, r) || j->ranks[r].node);
}

static void check_tensors(const struct sched_job *j)
{
	uint64_t bytes = 0, chunks = 0, meaning = 0;
	uint32_t n = 0;

	list_for_each(&j->tensors, p) {
		const struct sched_tensor *t = list_entry(p, struct sched_tensor, link);

		n++;
		ASSERT(tensor_by_name(j, t->name) == t);
		ASSERT(!t->id || tensor_by_id(j, t->id) == t);
		ASSERT(!!t->id == (t->state != ST_WANTED && t->state != ST_FAILED));
		ASSERT(t->nset == bits_count(t->set, j->world));
		ASSERT(t->state != ST_WANTED || t->nset > 0);
		check_wanted(j, t);
		ASSERT(!t->mark);
		ASSERT(!t->meaning || t->state == ST_WANTED || t->state == ST_FAILED);
		meaning += t->meaning ? strlen(t->meaning) + 1 : 0;
		bytes += t->state == ST_UP || t->state == ST_DROPPED ? tensor_bytes(t) : 0;
		chunks += t->id ? div_round_up(tensor_bytes(t), j->chunk_bytes) : 0;
	}
	ASSERT(meaning == j->meaning_bytes);
	ASSERT(n == j->ntensors && bytes == j->bytes && chunks == j->chunks);
}

/* Each rank that is in a WANTED tensor's set waits with exactly one DECLARE. */
static void check_reqs(const struct sched *s, const struct sched_job *j)
{
	list_for_each(&j->reqs, p) {
		const struct sched_req *q = list_entry(p, struct sched_req, link);

		ASSERT(living(s, q->node));
		ASSERT(s->next <= q->deadline);
		ASSERT(q->kind != SQ_BARRIER || bits_test(j->barrier, q->rank));
		ASSERT(!q->entry || has_entry(j, q->entry));
		for (uint32_t i = 0; i < q->n && !q->entry; i++) {
			ASSERT(has_tensor(j, q->t[i]));
			if (q->t[i]->state == ST_WANTED || q->kind == SQ_UNDECLARE)
				ASSERT(bits_test(q->t[i]->set, q->rank));
		}
	}
	ASSERT(j->state != SJ_DOWN || list_empty(&j->reqs));
}

void sched_check(const struct sched *s)
{
	ASSERT(s->last.job <= s->saved.job && s->last.node <= s->saved.node);
	ASSERT(sched_epoch_can_be(s, s->last.epoch));
	check_conns(s);
	check_nodes(s);
	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_job *j = s->jobs[i];

		ASSERT(j->epoch <= s->last.epoch && j->number <= s->last.job);
		ASSERT(j->state != SJ_GATHERING || j->nin > 0);
		check_ranks(s, j);
		check_parts(s, j);
		check_tensors(j);
		check_placed(j);
		check_log(j);
		check_reqs(s, j);
	}
}
