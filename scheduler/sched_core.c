// SPDX-License-Identifier: Apache-2.0
/*
 * sched_core.c - one step: an event in, a list of actions out.
 *
 * A connection is NEW until a HELLO makes it a node's or a CLI's; a node's
 * messages go to the file of their noun.  A timer looks at every deadline that
 * has come: leases, graces, requests.  At the end of each step the block of
 * saved numbers is looked after: when less than half of it is left, the next
 * one is asked for, so that in a healthy scheduler nobody ever waits for it.
 *
 * Whatever a peer sends, the answer is a refusal, a counted stray or a closed
 * connection; ASSERTs are about our own tables only.
 */
#include "scheduler/sched.h"

struct sched *sched_new(const struct mem_ops *mem, const struct sched_config *config, mono_t now)
{
	struct sched *s = mem->alloc(mem->ctx, sizeof(*s));

	if (!s)
		return NULL;
	s->mem = *mem;
	s->config = *config;
	s->now = s->started = s->next = s->save_after = now;
	s->last = s->saved = config->ids;
	if (config->recover_ms)
		s->recover_until = MONO_NEVER;		/* until on_saved() */
	return s;
}

void sched_free(struct sched *s)
{
	if (!s)
		return;
	while (s->njobs)
		job_free(s, s->jobs[s->njobs - 1]);
	while (s->nnodes)
		node_free(s, s->nodes[s->nnodes - 1]);
	out_fini(s);
	s->mem.free(s->mem.ctx, s);
}

void sched_wake(struct sched *s, mono_t at)
{
	s->next = MIN(s->next, at);
}

/* ---- numbers ---- */

bool sched_take_epoch(struct sched *s, uint64_t *epoch)
{
	if (s->last.epoch >= s->saved.epoch)
		return false;
	*epoch = ++s->last.epoch;
	return true;
}

/*
 * Whether an epoch's number may be told by a peer: numbers that this scheduler handed out itself
 * are taken, however high a peer's report has made them.
 */
bool sched_epoch_can_be(const struct sched *s, uint64_t epoch)
{
	return epoch <= MAX(SCHED_EPOCH_MAX, s->saved.epoch);
}

void sched_epoch_seen(struct sched *s, uint64_t epoch)
{
	s->last.epoch = MAX(s->last.epoch, epoch);
}

static bool block_low(uint64_t saved, uint64_t last)
{
	return saved < last || saved - last < SCHED_ID_BLOCK / 2;
}

static uint32_t next_block(uint32_t last)
{
	return last > UINT32_MAX - SCHED_ID_BLOCK ? UINT32_MAX : last + SCHED_ID_BLOCK;
}

static void look_after_block(struct sched *s)
{
	const struct sched_ids *l = &s->last, *d = &s->saved;
	struct sched_ids want = {
		.epoch = l->epoch + SCHED_ID_BLOCK,
		.job = next_block(l->job), .node = next_block(l->node),
	};

	if (s->save_pending || s->now < s->save_after)
		return;
	if (!block_low(d->epoch, l->epoch) &&
	    (!block_low(d->job, l->job) || d->job == UINT32_MAX) &&
	    (!block_low(d->node, l->node) || d->node == UINT32_MAX))
		return;
	want.epoch = MAX(want.epoch, d->epoch);
	want.job = MAX(want.job, d->job);
	want.node = MAX(want.node, d->node);
	out_save(s, want);
}

/* No node can register before there are numbers: those of held jobs have all the time then. */
static void recover_begin(struct sched *s)
{
	if (s->recover_until != MONO_NEVER)
		return;
	s->recover_until = s->now + mono_ms(s->config.recover_ms);
	sched_wake(s, s->recover_until);
}

static void on_saved(struct sched *s, int code)
{
	if (!s->save_pending)
		return;
	s->save_pending = false;
	s->save_failed = code;
	if (code) {
		s->save_after = s->now + mono_ms(SCHED_SAVE_RETRY_MS);
		sched_wake(s, s->save_after);
		return;
	}
	s->saved = s->saving;
	recover_begin(s);
}

/* ---- connections ---- */

static void on_up(struct sched *s, uint32_t conn)
{
	ASSERT(s->conns[conn].state == SC_FREE);
	s->conns[conn] = (struct sched_conn){ .state = SC_NEW };
}

/*
 * Closes a connection's row. A peer that sent something which is no message may be a node of
 * another version.
 */
static void on_closed(struct sched *s, uint32_t conn, const struct err *why)
{
	struct sched_node *n = s->conns[conn].node;

	ASSERT(s->conns[conn].state != SC_FREE);
	if (s->conns[conn].state == SC_NEW && why)
		refused_note(&s->refused, false, NODE_NONE, "", s->peer, why, s->now);
	s->conns[conn] = (struct sched_conn){ .state = SC_FREE };
	if (n)
		node_closed(s, n);
}

/* The number of a question that waits for its answer, 0: it is none. */
static uint64_t asks(const struct msg *m)
{
	switch (m->type) {
	case MSG_RANK_JOIN:
		return m->rank_join.req;
	case MSG_DECLARE:
		return m->declare.req;
	case MSG_UNDECLARE:
		return m->ids.req;
	case MSG_BARRIER:
		return m->barrier.req;
	default:
		return 0;
	}
}

/*
 * Takes in what rounds of a job took at an agent; a report for a job or machine that is over is
 * counted as a stray.
 */
static void take_time(struct sched *s, const struct sched_node *n, const struct msg_job_time *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_part *p = j ? job_machine_part(j, n) : NULL;

	if (p)
		meter_take(&p->meter, m->under_way_us, m->bytes, j->bytes);
	else
		s->counters.strays++;
}

static void from_agent(struct sched *s, struct sched_node *n, const struct msg *m)
{
	if (asks(m) && out_was_ahead(s, n, asks(m)))
		return;			/* the answer was on its way when it asked again */
	switch (m->type) {
	case MSG_RANK_JOIN:
		job_join(s, n, &m->rank_join);
		break;
	case MSG_RANK_LEAVE:
		job_leave(s, n, &m->rank_leave);
		if (m->rank_leave.req)
			out_reply(s, n->conn, m->rank_leave.req, 0, "%s", "");
		break;
	case MSG_DECLARE:
		tensor_declare(s, n, &m->declare);
		break;
	case MSG_UNDECLARE:
		tensor_undeclare(s, n, &m->ids);
		break;
	case MSG_BARRIER:
		barrier_enter(s, n, &m->barrier);
		break;
	case MSG_JOB_HELD:
		held_job(s, n, &m->job_up);
		break;
	case MSG_TENSORS_HELD:
		held_tensors(s, n, &m->tensors);
		break;
	case MSG_EPOCH_READY:
		epoch_ready(s, n, &m->ready);
		break;
	case MSG_RANK_ALIVE:
		return_alive(s, n, &m->rank_alive);
		break;
	case MSG_STUCK:
		stuck_take(s, n, &m->stuck);
		break;
	case MSG_WAITS:
		req_tell(s, n, m->reply.req);
		break;
	case MSG_JOB_TIME:
		take_time(s, n, &m->job_time);
		break;
	default:
		s->counters.strays++;
	}
}

static void from_server(struct sched *s, struct sched_node *n, const struct msg *m)
{
	if (m->type == MSG_JOB_READY || m->type == MSG_TENSORS_READY)
		job_ready(s, n, m);
	else if (m->type == MSG_EPOCH_READY)
		epoch_ready(s, n, &m->ready);
	else if (m->type == MSG_DRAIN && !m->drain.undo)
		epoch_leave(s, n);
	else if (m->type == MSG_HEARD)
		return_seen(s, n, m->heard.node);
	else if (m->type == MSG_JOB_DOWN)
		cut_let_go(s, n, m->job_down.job);
	else
		s->counters.strays++;
}

static void from_node(struct sched *s, struct sched_node *n, const struct msg *m)
{
	n->heard = s->now;
	if (m->type == MSG_HEARTBEAT)
		node_heartbeat(s, n, &m->heartbeat);
	else if (m->type == MSG_QUERY)
		report_query(s, n->conn, &m->query);
	else if (n->kind == NODE_AGENT)
		from_agent(s, n, m);
	else
		from_server(s, n, m);
}

/* A scheduler without a secret answers questions from strangers. */
static void from_stranger(struct sched *s, uint32_t conn, const struct msg *m)
{
	bool known = s->conns[conn].state == SC_CLI || !s->config.secret[0];

	if (m->type == MSG_QUERY && known) {
		report_query(s, conn, &m->query);
		return;
	}
	if (m->type == MSG_DRAIN && known) {
		epoch_drain(s, conn, &m->drain);
		return;
	}
	if (m->type == MSG_NODE_FORGET && known) {
		node_forget(s, conn, &m->node_forget);
		return;
	}
	if (m->type == MSG_HELLO && s->conns[conn].state == SC_NEW) {
		node_hello(s, conn, &m->hello);
		return;
	}
	if (s->conns[conn].state == SC_CLI)
		out_reply(s, conn, 0, TALLY_EAUTH, "a CLI may send QUERY, DRAIN and NODE_FORGET, "
			  "and sent %s", msg_type_name(m->type));
	else if (m->type == MSG_QUERY || m->type == MSG_DRAIN || m->type == MSG_NODE_FORGET)
		out_reply(s, conn, m->query.req, TALLY_EAUTH,
			  "the cluster has a join secret, and the question came without it");
	else
		out_reply(s, conn, 0, TALLY_EAUTH,
			  "before %s comes HELLO, which says who sends it",
			  msg_type_name(m->type));
	out_close(s, conn);
}

static void on_msg(struct sched *s, uint32_t conn, const struct msg *m)
{
	struct sched_conn *c = &s->conns[conn];

	if (c->state == SC_CLOSING || c->doomed)
		return;
	ASSERT(c->state != SC_FREE);
	s->counters.messages++;
	if (c->state != SC_NODE) {
		from_stranger(s, conn, m);
		return;
	}
	if (m->type == MSG_HELLO) {
		out_reply(s, conn, 0, TALLY_EPROTO, "a second HELLO on one connection");
		node_closed(s, c->node);
		out_close(s, conn);
		return;
	}
	from_node(s, c->node, m);
}

/* ---- the step ---- */

/*
 * Everything re-arms what it still waits for.  A timer that comes by a heartbeat too
 * late says that the scheduler itself stood still (stopped, or its machine was), and
 * nobody could be heard: that time, which may have begun right after the step `before`,
 * counts against nobody.
 */
static void on_timer(struct sched *s, mono_t before)
{
	if (s->now < s->next)
		return;
	if (s->now - s->next >= mono_ms(s->config.heartbeat_ms))
		node_deaf(s, s->now - MIN(before, s->next));
	s->next = s->now + mono_ms(s->config.heartbeat_ms);
	if (s->recover_until && !held_look(s))
		sched_wake(s, MAX(s->recover_until, s->now + mono_ms(BLINK_MS)));
	node_timer(s);
	node_forget_old(s);
	for (uint32_t i = 0; i < s->njobs; i++)
		req_timer(s, s->jobs[i]);
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (s->jobs[i]->state != SJ_UP)
			continue;
		cut_look(s, s->jobs[i]);
		slow_look(s, s->jobs[i]);
		return_timer(s, s->jobs[i]);
		job_pump(s, s->jobs[i]);
	}
}

void sched_step(struct sched *s, const struct sched_event *ev, struct sched_actions *todo)
{
	mono_t before = s->now;

	ASSERT(ev->now >= s->now);
	ASSERT(ev->conn < CTL_CONNS_MAX);
	s->now = ev->now;
	out_reset(s);
	todo->head = NULL;
	todo->tail = &todo->head;
	s->todo = todo;
	s->peer = ev->peer;
	out_doomed(s);
	switch (ev->type) {
	case SCHED_EV_UP:
		on_up(s, ev->conn);
		break;
	case SCHED_EV_CLOSED:
		on_closed(s, ev->conn, ev->why);
		break;
	case SCHED_EV_MSG:
		on_msg(s, ev->conn, ev->msg);
		break;
	case SCHED_EV_SAVED:
		on_saved(s, ev->code);
		break;
	case SCHED_EV_TIMER:
		on_timer(s, before);
		break;
	case SCHED_EV_NONE:
		break;
	}
	if (s->any_down)
		job_reap(s);
	look_after_block(s);
	s->todo = NULL;
	s->peer = NULL;
}

mono_t sched_next(const struct sched *s)
{
	return s->next;
}

uint64_t sched_epoch(const struct sched *s)
{
	return s->last.epoch;
}

uint32_t sched_nodes_up(const struct sched *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->nnodes; i++)
		n += s->nodes[i]->state == SN_UP;
	return n;
}

uint32_t sched_jobs(const struct sched *s)
{
	return s->njobs;
}

bool sched_recovering(const struct sched *s)
{
	return s->recover_until != 0;
}

const struct sched_counters *sched_counters(const struct sched *s)
{
	return &s->counters;
}
