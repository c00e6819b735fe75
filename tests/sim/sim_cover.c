// SPDX-License-Identifier: Apache-2.0
/*
 * Which (state, event) pairs of the state tables the runs have come to: of a segment at
 * a server and at an agent, where events are frames; of a node and of a job at the
 * scheduler, where they are messages, connections and time.
 *
 * Whatever can be must have been, in a set of some size; what cannot is listed, and why.
 */
#include <stdio.h>

#include "scheduler/sched.h"
#include "tests/sim/sim.h"

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
	X(END,		"JOB_END") \
	X(LET_GO,	"JOB_DOWN") \
	X(STUCK,	"STUCK") \
	X(AGENT_AWAY,	"agent away") \
	X(AGENT_BACK,	"agent back") \
	X(SERVER_AWAY,	"server away") \
	X(SERVER_BACK,	"server back") \
	X(TIME,		"timer")

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

#define SJ_ENDING (SJ_DOWN + 1)		/* up, and a rank is lost without which it cannot go on */

static uint64_t node_seen[SN_DEAD + 1][NODE_EVENTS], job_seen[SJ_ENDING + 1][JOB_EVENTS];

static void job_met(const struct sched_job *j, enum job_event e)
{
	if (j)
		job_seen[j->state == SJ_UP && j->ending ? SJ_ENDING : j->state][e]++;
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
	for (uint32_t i = 0; i < c->njobs; i++)
		if (is_part(c->jobs[i], n))
			job_met(c->jobs[i], n->kind == NODE_AGENT ? agent : server);
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

static void met_ready(struct sched *c, const struct msg_ready *m, enum job_event yes,
		      enum job_event no)
{
	job_met(job_by_number(c, m->job), m->code ? no : yes);
}

static void met_message(struct sched *c, const struct msg *m)
{
	switch (m->type) {
	case MSG_RANK_JOIN:
		if (m->rank_join.back)
			job_met(job_by_number(c, m->rank_join.back), JE_RETURN);
		else
			job_met(job_by_name(c, m->rank_join.job), JE_JOIN);
		break;
	case MSG_RANK_LEAVE:
		job_met(job_by_number(c, m->rank_leave.job),
			m->rank_leave.code ? JE_BROKEN : JE_LEAVE);
		break;
	case MSG_DECLARE: job_met(job_by_number(c, m->declare.job), JE_DECLARE); break;
	case MSG_UNDECLARE: job_met(job_by_number(c, m->ids.job), JE_UNDECLARE); break;
	case MSG_BARRIER:
		job_met(job_by_number(c, m->barrier.job),
			m->barrier.grow ? JE_GROW : JE_BARRIER);
		break;
	case MSG_RANK_ALIVE: job_met(job_by_number(c, m->rank_alive.job), JE_ALIVE); break;
	case MSG_JOB_END: job_met(job_by_number(c, m->ready.job), JE_END); break;
	case MSG_JOB_DOWN: job_met(job_by_number(c, m->job_down.job), JE_LET_GO); break;
	case MSG_STUCK: job_met(job_by_number(c, m->stuck.job), JE_STUCK); break;
	case MSG_JOB_READY: met_ready(c, &m->ready, JE_READY, JE_NO_JOB); break;
	case MSG_TENSORS_READY: met_ready(c, &m->ready, JE_TENSORS, JE_NO_TENSORS); break;
	case MSG_EPOCH_READY: met_ready(c, &m->ready, JE_EPOCH, JE_NO_EPOCH); break;
	case MSG_JOB_HELD: job_met(job_by_number(c, m->job_up.job), JE_HELD); break;
	case MSG_TENSORS_HELD: job_met(job_by_number(c, m->tensors.job), JE_LOG); break;
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

	if (ev->type == SCHED_EV_TIMER) {
		met_time(c);
	} else if (ev->type == SCHED_EV_CLOSED && n) {
		node_seen[n->state][NE_CLOSED]++;
		all_jobs_of(c, n, JE_AGENT_AWAY, JE_SERVER_AWAY);
	} else if (ev->type == SCHED_EV_MSG && ev->msg->type == MSG_HELLO) {
		met_hello(c, &ev->msg->hello);
	} else if (ev->type == SCHED_EV_MSG && n) {
		node_seen[n->state][NE_MESSAGE]++;
		met_message(c, ev->msg);
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
	{ SJ_GATHERING, JE_END, UNNUMBERED },
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
	{ SJ_RESERVING, JE_END, UNHEARD },
	{ SJ_RESERVING, JE_LET_GO, "no agent has found that it has no path to it" },
	{ SJ_RESERVING, JE_STUCK, UNHEARD },
	{ SJ_HELD, JE_NO_JOB, HEARD },
	{ SJ_HELD, JE_NO_TENSORS, HEARD },
	{ SJ_HELD, JE_NO_EPOCH, HEARD },
	{ SJ_HELD, JE_END, HEARD, true },
	{ SJ_HELD, JE_LET_GO, HEARD, true },
	{ SJ_HELD, JE_SERVER_AWAY, "its servers are its again when it goes on" },
	{ SJ_HELD, JE_SERVER_BACK, "its servers are its again when it goes on" },
	{ SJ_UP, JE_END, "nobody has been asked", true },
	{ SJ_ENDING, JE_LEAVE, "a rank leaves just then", true },
	{ SJ_ENDING, JE_JOIN, "its ranks are all there", true },
	{ SJ_ENDING, JE_BROKEN, "a second rank is lost just then", true },
	{ SJ_ENDING, JE_GROW, "such a job does not grow" },
	{ SJ_ENDING, JE_NO_JOB, "memory fails just then", true },
	{ SJ_ENDING, JE_NO_TENSORS, "memory fails just then", true },
	{ SJ_ENDING, JE_NO_EPOCH, "memory fails just then", true },
	{ SJ_ENDING, JE_RETURN, "an agent is away just then", true },
	{ SJ_ENDING, JE_LET_GO, "a path is cut just then", true },
	{ SJ_DOWN, JE_JOIN, "its name is free" },
	{ SJ_DOWN, ANY, CORPSE, true },
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

	printf("  %-9s %-10s%-7s %-17s %12llu%s%s%s\n", who, state, kind, event,
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
	for (uint32_t i = 0; i < AG_STATES * KINDS; i++)
		for (uint32_t e = 0; e < ARRAY_SIZE(ag_event); e++)
			if (!(i % KINDS) || can_move(i / KINDS))
				pair("agent", ag_state[i / KINDS], ag_kind[i % KINDS],
				     frame_type_name(ag_event[e]),
				     ag_seen[i / KINDS][i % KINDS][ag_event[e]],
				     find(no_ag, i / KINDS, ag_event[e]));
}

uint32_t sim_cover_report(void)
{
	report_segments();
	for (uint32_t i = 0; i <= SN_DEAD; i++)
		for (uint32_t e = 0; e < NODE_EVENTS; e++)
			pair("node", node_state_name(i), "", node_event[e], node_seen[i][e],
			     find(no_node, i, e));
	for (uint32_t i = 0; i <= SJ_ENDING; i++)
		for (uint32_t e = 0; e < JOB_EVENTS; e++)
			pair("job", i == SJ_ENDING ? "ending" : job_state_name(i), "",
			     job_event[e], job_seen[i][e], find(no_job, i, e));
	printf("%u of %u pairs of a state and an event were met, %u cannot be, %u are rare, "
	       "%u are missing\n", sum.met, sum.all, sum.never, sum.rare, sum.missed);
	return sum.missed;
}
