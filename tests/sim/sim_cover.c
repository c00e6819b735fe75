// SPDX-License-Identifier: Apache-2.0
/*
 * Which (state, event) pairs of the state tables the runs have come to: of a segment at
 * a server and at an agent, where events are frames, and what happens to links, ranks and
 * placement; at the scheduler of a connection, a node, a job, and
 * its ranks, tensors, machines and servers, where they are messages, connections and time.
 *
 * Whatever can be must have been, in a set of some size; what cannot is listed, and why.
 */
#include <stdio.h>

#include "scheduler/sched.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

enum { SRV_STATES = 4, AG_STATES = 5, KINDS = 2 };

static const char *const srv_state[SRV_STATES] = { "NONE", "OFFERED", "LANDING", "PARKED" };
static const char *const srv_kind[KINDS] = { "", " young" };
static const char *const ag_state[AG_STATES] = { "IDLE", "READY", "PUSHED", "CANCELLING", "DONE" };
static const char *const ag_kind[KINDS] = { "", " moving" };
static const uint8_t srv_event[] = { FRAME_OFFER, FRAME_PUSH, FRAME_PROBE, FRAME_CANCEL,
				     FRAME_GIVE };
static const uint8_t ag_event[] = { FRAME_RESULT, FRAME_ASK, FRAME_HELD, FRAME_CANCELLED,
				    FRAME_REFUSED, FRAME_SEEK };

static uint64_t srv_seen[SRV_STATES][KINDS][32], ag_seen[AG_STATES][KINDS][32];

void sim_cover_server(struct srv_core *c, const struct frame *f)
{
	struct srv_tensor *t = srv_tensor_find(c, f->job, f->tensor, f->chunk, f->epoch);
	const struct srv_seg *s;

	if (!t || t->removed || f->worker >= t->job->n || f->offset % t->geom.seg_bytes ||
	    f->offset >= geom_chunk_len(&t->geom, f->chunk))
		return;
	s = &t->seg[t->first[f->chunk] + f->offset / t->geom.seg_bytes];
	srv_seen[s->in[f->worker].state][s->young][f->type % 32]++;
}

void sim_cover_agent(struct ag_core *c, const struct frame *f)
{
	struct ag_seg *s = ag_find(c, f);

	if (s && !s->tensor->removed)
		ag_seen[s->state][s->next != NULL][f->type % 32]++;
}

/* ---- what no frame brings ---- */

enum { AE_GIVEN, AE_SENT, AE_DOWN, AE_MOVE, AE_WORLD, AE_TIME, AG_LOCALS };
enum { SE_SENT, SE_DOWN, SE_ANEW, SE_LEAVE, SE_WORLD, SRV_LOCALS };

static const char *const ag_local[] = { "a rank gives it", "push is away", "links are lost",
					"another owner", "another world", "timer" };
static const char *const srv_local[] = { "result is away", "links are lost", "agent is another",
					 "another owner", "another world" };
static uint64_t ag_met[AG_STATES][KINDS][AG_LOCALS], srv_met[SRV_STATES][KINDS][SRV_LOCALS];

static void ag_meets(const struct ag_seg *s, uint32_t event)
{
	ag_met[s->state][s->next != NULL][event]++;
}

static void srv_meets(const struct srv_in *in, uint32_t event)
{
	srv_met[in->state][in->seg->young][event]++;
}

void sim_cover_given(const struct ag_tensor *t, const struct ag_post *p)
{
	for (uint32_t i = 0; i < t->nsegs; i++)
		if (t->seg[i].chunk * (uint64_t)t->geom.chunk_bytes - p->at < p->length)
			ag_meets(&t->seg[i], AE_GIVEN);
}

void sim_cover_sent(const struct ag_seg *s)
{
	if (!s->tensor->removed)
		ag_meets(s, AE_SENT);
}

void sim_cover_down(const struct ag_core *c, const struct ag_peer *p)
{
	list_for_each(&c->jobs, lj)
		list_for_each(&list_entry(lj, struct ag_job, link)->tensors, l) {
			const struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

			for (uint32_t i = 0; i < t->nsegs && !t->removed; i++)
				if (t->seg[i].route->peer == p)
					ag_meets(&t->seg[i], AE_DOWN);
		}
}

void sim_cover_move(const struct ag_tensor *t, struct ag_route *const *table,
		    const uint32_t *route)
{
	for (uint32_t i = 0; i < t->nsegs && !t->removed; i++)
		if (table[route[t->seg[i].chunk]] !=
		    (t->seg[i].next ? t->seg[i].next : t->seg[i].route))
			ag_meets(&t->seg[i], AE_MOVE);
}

static void ag_job_meets(const struct ag_job *j, uint32_t event)
{
	list_for_each(&j->tensors, l) {
		const struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

		for (uint32_t i = 0; i < t->nsegs && !t->removed; i++)
			ag_meets(&t->seg[i], event);
	}
}

void sim_cover_world(const struct ag_job *j)
{
	ag_job_meets(j, AE_WORLD);
}

void sim_cover_time(const struct ag_core *c)
{
	list_for_each(&c->jobs, l)
		ag_job_meets(list_entry(l, struct ag_job, link), AE_TIME);
}

void sim_cover_result(const struct srv_in *in)
{
	srv_meets(in, SE_SENT);
}

void sim_cover_lost(const struct srv_core *c, const struct srv_peer *p, bool anew)
{
	list_for_each(&c->jobs, lj) {
		const struct srv_job *j = list_entry(lj, struct srv_job, link);

		list_for_each(&j->tensors, l) {
			const struct srv_tensor *t = list_entry(l, struct srv_tensor, link);

			for (uint32_t i = 0; i < t->nsegs && !t->removed; i++)
				for (uint32_t w = 0; w < j->n; w++)
					if (anew ? j->worker[w].node == p->node :
					    t->seg[i].in[w].peer == p)
						srv_meets(&t->seg[i].in[w],
							  anew ? SE_ANEW : SE_DOWN);
		}
	}
}

void sim_cover_leave(const struct srv_tensor *t, const bool *chunks)
{
	for (uint32_t i = 0; i < t->nsegs; i++)
		for (uint32_t w = 0; w < t->job->n && chunks[t->seg[i].chunk]; w++)
			srv_meets(&t->seg[i].in[w], SE_LEAVE);
}

void sim_cover_server_world(const struct srv_job *j)
{
	list_for_each(&j->tensors, l) {
		const struct srv_tensor *t = list_entry(l, struct srv_tensor, link);

		for (uint32_t i = 0; i < t->nsegs && !t->removed; i++)
			for (uint32_t w = 0; w < j->n; w++)
				srv_meets(&t->seg[i].in[w], SE_WORLD);
	}
}

/* ---- the scheduler's ---- */

/*  enum	name */
#define NODE_EVENT_TABLE(X) \
	X(HELLO,	"HELLO again") \
	X(OTHER,	"HELLO, other") \
	X(CLOSED,	"closed") \
	X(MESSAGE,	"message") \
	X(TIME,		"timer")

#define JOB_EVENT_TABLE(X) \
	X(JOIN,		"RANK_JOIN") \
	X(LEAVE,	"RANK_LEAVE") \
	X(DECLARE,	"DECLARE") \
	X(UNDECLARE,	"UNDECLARE") \
	X(READY,	"JOB_READY") \
	X(TENSORS,	"TENSORS_READY") \
	X(EPOCH,	"EPOCH_READY") \
	X(HELD,		"JOB_HELD") \
	X(LOG,		"TENSORS_HELD") \
	X(BARRIER,	"BARRIER") \
	X(NO_JOB,	"JOB_READY: no") \
	X(NO_TENSORS,	"TENSORS_READY: no") \
	X(NO_EPOCH,	"EPOCH_READY: no") \
	X(BROKEN,	"RANK_LEAVE: no") \
	X(RETURN,	"RANK_JOIN: back") \
	X(ALIVE,	"RANK_ALIVE") \
	X(GROW,		"BARRIER: grow") \
	X(LET_GO,	"JOB_DOWN") \
	X(STUCK,	"STUCK") \
	X(AGENT_AWAY,	"agent away") \
	X(AGENT_BACK,	"agent back") \
	X(SERVER_AWAY,	"server away") \
	X(SERVER_BACK,	"server back") \
	X(TIME,		"timer")

enum conn_event { CE_HELLO, CE_OTHER, CE_CLOSED, CONN_EVENTS };

enum node_event {
#define X(e, name) NE_##e,
	NODE_EVENT_TABLE(X)
#undef X
	NODE_EVENTS
};

enum job_event {
#define X(e, name) JE_##e,
	JOB_EVENT_TABLE(X)
#undef X
	JOB_EVENTS
};

static const char *const conn_event[] = { "HELLO", "any other", "closed" };
static const char *const conn_state[] = { "free", "new", "node", "asks", "closing" };

static const char *const node_event[] = {
#define X(e, name) name,
	NODE_EVENT_TABLE(X)
#undef X
};

static const char *const job_event[] = {
#define X(e, name) name,
	JOB_EVENT_TABLE(X)
#undef X
};

static uint64_t conn_seen[SC_CLOSING + 1][CONN_EVENTS];
static uint64_t node_seen[SN_DEAD + 1][NODE_EVENTS], job_seen[SJ_DOWN + 1][JOB_EVENTS];

static void job_met(const struct sched_job *j, enum job_event e)
{
	if (j)
		job_seen[j->state][e]++;
}

/* ---- what a job is made of: ranks, tensors, and its part of each node ---- */

enum { RANK_GONE = SR_LOST + 1, RANK_STATES };
enum { TENSOR_STATES = ST_FAILED + 1 };
enum { PART_IN, PART_UNSURE, PART_NEW, PART_BETWEEN, PART_STATES };

static const char *const rank_state[] = { "none", "in", "left", "lost", "gone" };
static const char *const tensor_state[] = { "wanted", "logged", "up", "dropped", "failed" };
static const char *const machine_state[] = { "in", "unsure", "coming", "returning" };
static const char *const server_state[] = { "in", "unsure", "joining", "letting go" };

static uint64_t rank_seen[RANK_STATES][JOB_EVENTS], tensor_seen[TENSOR_STATES][JOB_EVENTS],
		machine_seen[PART_STATES][JOB_EVENTS], server_seen[PART_STATES][JOB_EVENTS];

static uint32_t rank_is(const struct sched_rank *r)
{
	return r->gone ? RANK_GONE : r->state;
}

static void rank_met(const struct sched_job *j, uint32_t rank, enum job_event e)
{
	if (j && rank < j->world)
		rank_seen[rank_is(&j->ranks[rank])][e]++;
}

static void tensor_met(const struct sched_tensor *t, enum job_event e)
{
	if (t)
		tensor_seen[t->state][e]++;
}

static void all_tensors_of(const struct sched_job *j, enum job_event e)
{
	if (j)
		list_for_each(&j->tensors, p)
			tensor_met(list_entry(p, struct sched_tensor, link), e);
}

static uint32_t part_is(const struct sched_part *p)
{
	if (p->return_by || p->let_go_by)
		return PART_BETWEEN;
	if (p->unsure)
		return PART_UNSURE;
	return p->joining || p->coming ? PART_NEW : PART_IN;
}

static void part_met(struct sched_job *j, const struct sched_node *n, enum job_event e)
{
	struct sched_part *p;

	if (!j)
		return;
	p = n->kind == NODE_AGENT ? job_machine_part(j, n) : job_server_part(j, n);
	if (p)
		(n->kind == NODE_AGENT ? machine_seen : server_seen)[part_is(p)][e]++;
}

static bool is_part(struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t r = 0; r < j->world; r++)
		if (j->ranks[r].node == n)
			return true;
	return job_server_part(j, n) != NULL;
}

static void all_jobs_of(struct sched *c, const struct sched_node *n, enum job_event agent,
			enum job_event server)
{
	enum job_event e = n->kind == NODE_AGENT ? agent : server;

	for (uint32_t i = 0; i < c->njobs; i++) {
		struct sched_job *j = c->jobs[i];

		if (!is_part(j, n))
			continue;
		job_met(j, e);
		part_met(j, n, e);
		all_tensors_of(j, e);
		for (uint32_t r = 0; r < j->world; r++)
			if (j->ranks[r].node == n)
				rank_met(j, r, e);
	}
}

static void met_hello(struct sched *c, const struct msg_hello *h)
{
	const struct sched_node *n = node_by_name(c, h->kind, h->name);
	bool same = n && !memcmp(n->instance, h->instance, ID_BYTES);

	if (!n)
		return;
	node_seen[n->state][same ? NE_HELLO : NE_OTHER]++;
	if (same && n->state != SN_DEAD)
		all_jobs_of(c, n, JE_AGENT_BACK, JE_SERVER_BACK);
}

/* The answer of a node to what it was told last. */
static void met_ready(struct sched *c, const struct sched_node *n, const struct msg_ready *m,
		      enum job_event e)
{
	struct sched_job *j = job_by_number(c, m->job);

	if (m->code)
		e = e == JE_READY ? JE_NO_JOB : e == JE_TENSORS ? JE_NO_TENSORS : JE_NO_EPOCH;
	job_met(j, e);
	part_met(j, n, e);
	all_tensors_of(j, e);
}

static void met_rank(struct sched_job *j, uint32_t rank, enum job_event e)
{
	job_met(j, e);
	rank_met(j, rank, e);
}

static void met_declare(struct sched_job *j, const struct msg_declare *m)
{
	met_rank(j, m->rank, JE_DECLARE);
	for (uint32_t i = 0; j && i < m->ntensors; i++)
		tensor_met(tensor_by_name(j, m->tensors[i].name), JE_DECLARE);
}

static void met_undeclare(struct sched_job *j, const struct msg_ids *m)
{
	met_rank(j, m->rank, JE_UNDECLARE);
	for (uint32_t i = 0; j && i < m->nids; i++)
		tensor_met(tensor_by_id(j, m->ids[i]), JE_UNDECLARE);
}

static void met_leave(struct sched_job *j, const struct msg_rank_leave *m)
{
	enum job_event e = m->code ? JE_BROKEN : JE_LEAVE;

	met_rank(j, m->rank, e);
	all_tensors_of(j, e);
}

static void met_part(struct sched_job *j, const struct sched_node *n, enum job_event e)
{
	job_met(j, e);
	part_met(j, n, e);
}

static void met_message(struct sched *c, const struct sched_node *n, const struct msg *m)
{
	switch (m->type) {
	case MSG_RANK_JOIN:
		if (m->rank_join.back)
			met_rank(job_by_number(c, m->rank_join.back), m->rank_join.rank, JE_RETURN);
		else
			met_rank(job_by_name(c, m->rank_join.job), m->rank_join.rank, JE_JOIN);
		break;
	case MSG_RANK_LEAVE: met_leave(job_by_number(c, m->rank_leave.job), &m->rank_leave); break;
	case MSG_DECLARE: met_declare(job_by_number(c, m->declare.job), &m->declare); break;
	case MSG_UNDECLARE: met_undeclare(job_by_number(c, m->ids.job), &m->ids); break;
	case MSG_BARRIER:
		met_rank(job_by_number(c, m->barrier.job), m->barrier.rank,
			 m->barrier.grow ? JE_GROW : JE_BARRIER);
		break;
	case MSG_RANK_ALIVE:
		met_rank(job_by_number(c, m->rank_alive.job), m->rank_alive.rank, JE_ALIVE);
		break;
	case MSG_JOB_DOWN: met_part(job_by_number(c, m->job_down.job), n, JE_LET_GO); break;
	case MSG_STUCK: met_part(job_by_number(c, m->stuck.job), n, JE_STUCK); break;
	case MSG_JOB_READY: met_ready(c, n, &m->ready, JE_READY); break;
	case MSG_TENSORS_READY: met_ready(c, n, &m->ready, JE_TENSORS); break;
	case MSG_EPOCH_READY: met_ready(c, n, &m->ready, JE_EPOCH); break;
	case MSG_JOB_HELD: met_part(job_by_number(c, m->job_up.job), n, JE_HELD); break;
	case MSG_TENSORS_HELD: met_part(job_by_number(c, m->tensors.job), n, JE_LOG); break;
	default: break;
	}
}

static void met_time(const struct sched *c)
{
	for (uint32_t i = 0; i < c->nnodes; i++)
		node_seen[c->nodes[i]->state][NE_TIME]++;
	for (uint32_t i = 0; i < c->njobs; i++)
		job_met(c->jobs[i], JE_TIME);
}

void sim_cover_sched(struct sched *c, const struct sched_event *ev)
{
	const struct sched_node *n = c->conns[ev->conn].node;
	uint64_t *seen = conn_seen[c->conns[ev->conn].state];

	if (ev->type == SCHED_EV_CLOSED)
		seen[CE_CLOSED]++;
	else if (ev->type == SCHED_EV_MSG)
		seen[ev->msg->type == MSG_HELLO ? CE_HELLO : CE_OTHER]++;
	if (ev->type == SCHED_EV_TIMER) {
		met_time(c);
	} else if (ev->type == SCHED_EV_CLOSED && n) {
		node_seen[n->state][NE_CLOSED]++;
		all_jobs_of(c, n, JE_AGENT_AWAY, JE_SERVER_AWAY);
	} else if (ev->type == SCHED_EV_MSG && ev->msg->type == MSG_HELLO) {
		met_hello(c, &ev->msg->hello);
	} else if (ev->type == SCHED_EV_MSG && n) {
		node_seen[n->state][NE_MESSAGE]++;
		met_message(c, n, ev->msg);
	}
}

/* ---- what cannot be, and why ---- */

#define ANY UINT32_MAX

struct impossible {
	uint32_t state, event;		/* or ANY */
	const char *why;
	bool rare;			/* it can be, and is too rare to be asked for */
};

#define LATE "a result given so late that others have it, and full windows"

static const struct impossible no_srv[] = {
	{ IN_OFFERED, FRAME_GIVE, LATE, true },
	{ IN_LANDING, FRAME_GIVE, LATE, true },
	{ 0 }
};

static const struct impossible no_ag[] = {
	{ SEG_PUSHED, FRAME_CANCELLED, "an answer that outlived its question", true },
	{ SEG_PUSHED, FRAME_REFUSED, "an answer that outlived its question", true },
	{ SEG_IDLE, FRAME_CANCELLED, "an answer that outlived its question", true },
	{ SEG_IDLE, FRAME_REFUSED, "an answer that outlived its question", true },
	{ 0 }
};

#define GIVEN "all ranks of its machine have given it"

static const struct impossible no_srv_local[] = {
	{ IN_LANDING, SE_SENT, "a result that is sent again, and late", true },
	{ IN_LANDING, SE_DOWN, "what lands ends before its link; by a newer one is rare", true },
	{ IN_LANDING, SE_ANEW, "what lands ends before its link" },
	{ 0 }
};

static const struct impossible no_srv_young[] = {
	{ ANY, SE_SENT, "no result has come by yet" },
	{ IN_LANDING, SE_DOWN, "what lands ends before its link; by a newer one is rare", true },
	{ IN_LANDING, SE_ANEW, "what lands ends before its link" },
	{ 0 }
};

static const struct impossible no_ag_local[] = {
	{ SEG_READY, AE_GIVEN, GIVEN },
	{ SEG_PUSHED, AE_GIVEN, GIVEN },
	{ SEG_CANCELLING, AE_GIVEN, GIVEN },
	{ 0 }
};

static const struct impossible no_conn[] = {
	{ SC_FREE, ANY, "there is no connection" },
	{ SC_NODE, CE_HELLO, "a node says it once" },
	{ SC_CLI, ANY, "questions here come without a HELLO" },
	{ SC_CLOSING, CE_HELLO, "it is the first that is said" },
	{ 0 }
};

static const struct impossible no_node[] = {
	{ SN_NEW, ANY, "only within one step" },
	{ SN_AWAY, NE_CLOSED, "it has no connection" },
	{ SN_AWAY, NE_MESSAGE, "it has no connection" },
	{ SN_DEAD, NE_CLOSED, "it has no connection" },
	{ SN_DEAD, NE_MESSAGE, "it has no connection" },
	{ 0 }
};

#define UNNUMBERED "nobody has heard its number"
#define UNHEARD "no agent has heard of it"
#define HEARD "it answers what a scheduler that has died had said"
#define CORPSE "it stays only while a node is away that is to hear it"

static const struct impossible no_job[] = {
	{ SJ_GATHERING, JE_LEAVE, UNNUMBERED },
	{ SJ_GATHERING, JE_DECLARE, UNNUMBERED },
	{ SJ_GATHERING, JE_UNDECLARE, UNNUMBERED },
	{ SJ_GATHERING, JE_READY, UNNUMBERED },
	{ SJ_GATHERING, JE_TENSORS, UNNUMBERED },
	{ SJ_GATHERING, JE_EPOCH, UNNUMBERED },
	{ SJ_GATHERING, JE_HELD, UNNUMBERED },
	{ SJ_GATHERING, JE_LOG, UNNUMBERED },
	{ SJ_GATHERING, JE_BARRIER, UNNUMBERED },
	{ SJ_GATHERING, JE_NO_JOB, UNNUMBERED },
	{ SJ_GATHERING, JE_NO_TENSORS, UNNUMBERED },
	{ SJ_GATHERING, JE_NO_EPOCH, UNNUMBERED },
	{ SJ_GATHERING, JE_BROKEN, UNNUMBERED },
	{ SJ_GATHERING, JE_RETURN, UNNUMBERED },
	{ SJ_GATHERING, JE_ALIVE, UNNUMBERED },
	{ SJ_GATHERING, JE_GROW, UNNUMBERED },
	{ SJ_GATHERING, JE_LET_GO, UNNUMBERED },
	{ SJ_GATHERING, JE_STUCK, UNNUMBERED },
	{ SJ_GATHERING, JE_SERVER_AWAY, "it has no servers yet" },
	{ SJ_GATHERING, JE_SERVER_BACK, "it has no servers yet" },
	{ SJ_RESERVING, JE_LEAVE, UNHEARD },
	{ SJ_RESERVING, JE_DECLARE, UNHEARD },
	{ SJ_RESERVING, JE_UNDECLARE, UNHEARD },
	{ SJ_RESERVING, JE_TENSORS, "it has no log yet" },
	{ SJ_RESERVING, JE_EPOCH, "it has no log yet" },
	{ SJ_RESERVING, JE_HELD, UNHEARD },
	{ SJ_RESERVING, JE_LOG, UNHEARD },
	{ SJ_RESERVING, JE_BARRIER, UNHEARD },
	{ SJ_RESERVING, JE_NO_JOB, "memory does not fail before the run begins", true },
	{ SJ_RESERVING, JE_NO_TENSORS, "it has no log yet" },
	{ SJ_RESERVING, JE_NO_EPOCH, "it has no log yet" },
	{ SJ_RESERVING, JE_BROKEN, UNHEARD },
	{ SJ_RESERVING, JE_RETURN, UNHEARD },
	{ SJ_RESERVING, JE_ALIVE, UNHEARD },
	{ SJ_RESERVING, JE_GROW, UNHEARD },
	{ SJ_RESERVING, JE_LET_GO, "a server that was taken for dead lets go just then", true },
	{ SJ_RESERVING, JE_STUCK, UNHEARD },
	{ SJ_HELD, JE_NO_JOB, "a server was cut off as it was told of the job", true },
	{ SJ_HELD, JE_NO_TENSORS, HEARD, true },
	{ SJ_HELD, JE_NO_EPOCH, HEARD, true },
	{ SJ_HELD, JE_LET_GO, HEARD, true },
	{ SJ_HELD, JE_SERVER_AWAY, "its servers are its again when it goes on" },
	{ SJ_HELD, JE_SERVER_BACK, "its servers are its again when it goes on" },
	{ SJ_DOWN, JE_JOIN, "its name is free" },
	{ SJ_DOWN, ANY, CORPSE, true },
	{ 0 }
};

#define OUTSIDE "only who is in has an agent that speaks for it"
#define UNTAKEN "memory fails just as its agent says that it is in"
#define DETACHED "its agent was started again, or asks again, just then"
#define UNKNOWN "its agent has not heard yet that it is lost"

static const struct impossible no_rank[] = {
	{ SR_NONE, JE_DECLARE, UNTAKEN, true },
	{ SR_NONE, JE_UNDECLARE, UNTAKEN, true },
	{ SR_NONE, JE_BARRIER, UNTAKEN, true },
	{ SR_NONE, JE_GROW, UNTAKEN, true },
	{ SR_NONE, JE_LEAVE, "the scheduler was started again just then", true },
	{ SR_NONE, JE_BROKEN, "the scheduler was started again just then", true },
	{ SR_NONE, JE_AGENT_AWAY, OUTSIDE },
	{ SR_NONE, JE_AGENT_BACK, OUTSIDE },
	{ SR_LEFT, JE_JOIN, "nobody comes while a job ends", true },
	{ SR_LEFT, JE_DECLARE, DETACHED, true },
	{ SR_LEFT, JE_BARRIER, DETACHED, true },
	{ SR_LEFT, JE_BROKEN, DETACHED, true },
	{ SR_LEFT, JE_RETURN, DETACHED, true },
	{ SR_LEFT, JE_ALIVE, DETACHED, true },
	{ SR_LEFT, JE_GROW, DETACHED, true },
	{ SR_LOST, JE_LEAVE, UNKNOWN, true },
	{ SR_LOST, JE_DECLARE, UNKNOWN, true },
	{ SR_LOST, JE_UNDECLARE, UNKNOWN, true },
	{ SR_LOST, JE_BARRIER, UNKNOWN, true },
	{ SR_LOST, JE_RETURN, UNKNOWN, true },
	{ SR_LOST, JE_ALIVE, UNKNOWN, true },
	{ SR_LOST, JE_GROW, UNKNOWN, true },
	{ SR_LOST, JE_AGENT_AWAY, "the job that it ends does so just then", true },
	{ SR_LOST, JE_AGENT_BACK, "the job that it ends does so just then", true },
	{ RANK_GONE, JE_LEAVE, UNKNOWN, true },
	{ RANK_GONE, JE_DECLARE, UNKNOWN, true },
	{ RANK_GONE, JE_UNDECLARE, UNKNOWN, true },
	{ RANK_GONE, JE_BARRIER, UNKNOWN, true },
	{ RANK_GONE, JE_RETURN, UNKNOWN, true },
	{ RANK_GONE, JE_ALIVE, UNKNOWN, true },
	{ RANK_GONE, JE_GROW, UNKNOWN, true },
	{ RANK_GONE, JE_AGENT_AWAY, OUTSIDE },
	{ RANK_GONE, JE_AGENT_BACK, OUTSIDE },
	{ 0 }
};

static const struct impossible no_tensor[] = {
	{ ST_WANTED, JE_LEAVE, "ranks detach after their rounds", true },
	{ ST_WANTED, JE_UNDECLARE, "nobody has heard its id" },
	{ ST_WANTED, JE_NO_TENSORS, "memory fails just then", true },
	{ ST_WANTED, JE_NO_EPOCH, "memory fails just then", true },
	{ ST_LOGGED, JE_LEAVE, "ranks detach after their rounds", true },
	{ ST_LOGGED, JE_UNDECLARE, "nobody has heard its id" },
	{ ST_LOGGED, JE_NO_EPOCH, "memory fails just then", true },
	{ ST_DROPPED, JE_UNDECLARE, "a rank asks again", true },
	{ ST_DROPPED, JE_NO_EPOCH, "memory fails just then", true },
	{ ST_DROPPED, JE_BROKEN, "a rank is lost just then", true },
	{ ST_FAILED, JE_UNDECLARE, "it has no id" },
	{ ST_FAILED, JE_LEAVE, "ranks detach when they have heard it", true },
	{ ST_FAILED, JE_BROKEN, "a rank is lost just then", true },
	{ ST_FAILED, JE_NO_TENSORS, "memory fails just then", true },
	{ ST_FAILED, JE_NO_EPOCH, "memory fails just then", true },
	{ ST_FAILED, JE_SERVER_AWAY, "it is so for a moment", true },
	{ ST_FAILED, JE_SERVER_BACK, "it is so for a moment", true },
	{ 0 }
};

#define FIRST "it says first what it has"
#define NOT_HEARD "it has not heard of the job yet"

static const struct impossible no_machine[] = {
	{ PART_UNSURE, JE_STUCK, FIRST, true },
	{ PART_UNSURE, JE_AGENT_AWAY, "a second time just then", true },
	{ PART_UNSURE, JE_AGENT_BACK, "a second time just then", true },
	{ PART_NEW, JE_AGENT_AWAY, "it is so for a moment", true },
	{ PART_NEW, JE_AGENT_BACK, "it is so for a moment", true },
	{ PART_NEW, ANY, NOT_HEARD },
	{ PART_BETWEEN, JE_STUCK, NOT_HEARD },
	{ 0 }
};

static const struct impossible no_server[] = {
	{ PART_UNSURE, JE_TENSORS, FIRST },
	{ PART_UNSURE, JE_EPOCH, FIRST },
	{ PART_UNSURE, JE_NO_JOB, FIRST, true },
	{ PART_UNSURE, JE_NO_TENSORS, FIRST },
	{ PART_UNSURE, JE_NO_EPOCH, FIRST },
	{ PART_UNSURE, JE_LET_GO, FIRST, true },
	{ PART_UNSURE, JE_SERVER_AWAY, "a second time just then", true },
	{ PART_UNSURE, JE_SERVER_BACK, "a second time just then", true },
	{ PART_NEW, JE_TENSORS, "it said so before it was out of the job", true },
	{ PART_NEW, JE_EPOCH, NOT_HEARD },
	{ PART_NEW, JE_NO_TENSORS, NOT_HEARD },
	{ PART_NEW, JE_NO_EPOCH, NOT_HEARD },
	{ PART_NEW, JE_LET_GO, "memory fails just then", true },
	{ PART_NEW, JE_SERVER_AWAY, "it is so for a moment", true },
	{ PART_NEW, JE_SERVER_BACK, "it is so for a moment", true },
	{ PART_BETWEEN, JE_READY, "it is so for a moment", true },
	{ PART_BETWEEN, JE_TENSORS, "it is so for a moment", true },
	{ PART_BETWEEN, JE_SERVER_AWAY, "it is so for a moment", true },
	{ PART_BETWEEN, JE_SERVER_BACK, "it is so for a moment", true },
	{ 0 }
};

static const struct impossible *find(const struct impossible *no, uint32_t state, uint32_t event)
{
	for (; no->why; no++)
		if ((no->state == state || no->state == ANY) &&
		    (no->event == event || no->event == ANY))
			return no;
	return NULL;
}

/* ---- the report ---- */

static struct {
	uint32_t met, all, never, rare, missed;
} sum;

static void pair(const char *who, const char *state, const char *kind, const char *event,
		 uint64_t seen, const struct impossible *no)
{
	bool never = no && !no->rare, rare = no && no->rare && !seen;

	bool missed = seen ? never : !no;

	printf("  %-10s %-10s%-7s %-17s %12llu%s%s%s\n", who, state, kind, event,
	       (unsigned long long)seen, missed ? "  WRONG" : "",
	       never ? "  never: " : rare ? "  rare: " : "", never || rare ? no->why : "");
	sum.all++;
	sum.met += seen != 0;
	sum.never += never;
	sum.rare += rare;
	sum.missed += missed;
}

/* A segment moves only while its contribution is with the old owner. */
static bool can_move(uint32_t state)
{
	return state == SEG_PUSHED || state == SEG_CANCELLING;
}

static void report_segments(void)
{
	for (uint32_t i = 0; i < SRV_STATES * KINDS; i++)
		for (uint32_t e = 0; e < ARRAY_SIZE(srv_event); e++)
			pair("server", srv_state[i / KINDS], srv_kind[i % KINDS],
			     frame_type_name(srv_event[e]),
			     srv_seen[i / KINDS][i % KINDS][srv_event[e]],
			     find(no_srv, i / KINDS, srv_event[e]));
	for (uint32_t i = 0; i < SRV_STATES * KINDS; i++)
		for (uint32_t e = 0; e < SRV_LOCALS; e++)
			pair("server", srv_state[i / KINDS], srv_kind[i % KINDS], srv_local[e],
			     srv_met[i / KINDS][i % KINDS][e],
			     find(i % KINDS ? no_srv_young : no_srv_local, i / KINDS, e));
	for (uint32_t i = 0; i < AG_STATES * KINDS; i++)
		for (uint32_t e = 0; e < AG_LOCALS; e++)
			if (!(i % KINDS) || can_move(i / KINDS))
				pair("agent", ag_state[i / KINDS], ag_kind[i % KINDS], ag_local[e],
				     ag_met[i / KINDS][i % KINDS][e],
				     find(no_ag_local, i / KINDS, e));
	for (uint32_t i = 0; i < AG_STATES * KINDS; i++)
		for (uint32_t e = 0; e < ARRAY_SIZE(ag_event); e++)
			if (!(i % KINDS) || can_move(i / KINDS))
				pair("agent", ag_state[i / KINDS], ag_kind[i % KINDS],
				     frame_type_name(ag_event[e]),
				     ag_seen[i / KINDS][i % KINDS][ag_event[e]],
				     find(no_ag, i / KINDS, ag_event[e]));
}

/* Of those events that can be meant for it. */
static void report(const char *who, const char *const state[], uint32_t nstates,
		   uint64_t seen[][JOB_EVENTS], const uint8_t *events, uint32_t nevents,
		   const struct impossible *no)
{
	for (uint32_t i = 0; i < nstates; i++)
		for (uint32_t e = 0; e < nevents; e++)
			pair(who, state[i], "", job_event[events[e]], seen[i][events[e]],
			     find(no, i, events[e]));
}

static const uint8_t rank_event[] = { JE_JOIN, JE_LEAVE, JE_DECLARE, JE_UNDECLARE, JE_BARRIER,
				      JE_BROKEN, JE_RETURN, JE_ALIVE, JE_GROW, JE_AGENT_AWAY,
				      JE_AGENT_BACK };
static const uint8_t tensor_event[] = { JE_LEAVE, JE_DECLARE, JE_UNDECLARE, JE_TENSORS, JE_EPOCH,
					JE_NO_TENSORS, JE_NO_EPOCH, JE_BROKEN, JE_AGENT_AWAY,
					JE_AGENT_BACK, JE_SERVER_AWAY, JE_SERVER_BACK };
static const uint8_t machine_event[] = { JE_EPOCH, JE_HELD, JE_LOG, JE_STUCK,
					 JE_AGENT_AWAY, JE_AGENT_BACK };
static const uint8_t server_event[] = { JE_READY, JE_TENSORS, JE_EPOCH, JE_NO_JOB, JE_NO_TENSORS,
					JE_NO_EPOCH, JE_LET_GO, JE_SERVER_AWAY, JE_SERVER_BACK };

uint32_t sim_cover_report(void)
{
	report_segments();
	for (uint32_t i = 0; i <= SC_CLOSING; i++)
		for (uint32_t e = 0; e < CONN_EVENTS; e++)
			pair("connection", conn_state[i], "", conn_event[e], conn_seen[i][e],
			     find(no_conn, i, e));
	for (uint32_t i = 0; i <= SN_DEAD; i++)
		for (uint32_t e = 0; e < NODE_EVENTS; e++)
			pair("node", node_state_name(i), "", node_event[e], node_seen[i][e],
			     find(no_node, i, e));
	for (uint32_t i = 0; i <= SJ_DOWN; i++)
		for (uint32_t e = 0; e < JOB_EVENTS; e++)
			pair("job", job_state_name(i), "",
			     job_event[e], job_seen[i][e], find(no_job, i, e));
	report("rank", rank_state, RANK_STATES, rank_seen, rank_event, ARRAY_SIZE(rank_event),
	       no_rank);
	report("tensor", tensor_state, TENSOR_STATES, tensor_seen, tensor_event,
	       ARRAY_SIZE(tensor_event), no_tensor);
	report("machine", machine_state, PART_STATES, machine_seen, machine_event,
	       ARRAY_SIZE(machine_event), no_machine);
	report("server of", server_state, PART_STATES, server_seen, server_event,
	       ARRAY_SIZE(server_event), no_server);
	printf("%u of %u pairs of a state and an event were met, %u cannot be, %u are rare, "
	       "%u are missing\n", sum.met, sum.all, sum.never, sum.rare, sum.missed);
	return sum.missed;
}
