// SPDX-License-Identifier: Apache-2.0
/*
 * sched_cut.c - servers that the scheduler hears, and to which an agent has no link.
 *
 * An agent says so of rounds that wait (STUCK).  When it has said so for a lease, and there
 * is another server to which nobody lacks a link, the job goes on without this one: it hears
 * that the job is over, says when it has let go of it, and is lost to that job alone, as if
 * it were dead (sched_epoch.c).  It is offered the job again after CUT_AGAIN_MS, and after
 * twice as long each time that it does not last; so is one that refused it, after JOIN_RETRY_MS.
 *
 * Where no server is left that all agents can reach, the job waits, and its row says for whom.
 *
 * One that cannot follow the log of a job (it has heard an epoch of a scheduler that died,
 * which nobody else has) lets go of all its jobs in the same way, and comes back as another
 * server: it may be on an agent's machine, and that agent ends what has not let go.
 */
#include "scheduler/sched.h"

#include <stdio.h>

#define CUT_MS		LEASE_MS
#define CUT_AGAIN_MS	20000u
#define CUT_DOUBLINGS	6u
#define LET_GO_MS	1000u

static mono_t pause_of(const struct sched_part *p, uint32_t first_ms)
{
	return mono_ms((uint64_t)first_ms << MIN(p->cuts ? p->cuts - 1 : 0, CUT_DOUBLINGS));
}

static void pause_once_more(const struct sched *s, struct sched_part *p, uint32_t first_ms,
			    const char *why)
{
	struct text t;

	bool of_late = p->cuts && s->now - p->cut_until < 2 * pause_of(p, first_ms);

	p->cuts = of_late ? p->cuts + 1 : 1;
	p->cut_until = s->now + pause_of(p, first_ms);
	text_init(&t, p->cut_why, sizeof(p->cut_why));
	text_add(&t, "%s", why);
}

/*
 * Pauses a server that did not take the job, for want of memory, say: each question costs it the
 * whole log.
 */
void cut_refused(const struct sched *s, struct sched_part *p, const char *why)
{
	pause_once_more(s, p, JOIN_RETRY_MS, why);
}

/* The row of a server of that name, which may have been another process. */
struct sched_part *cut_row(struct sched_job *j, const char *name)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (j->servers[i].cuts && !strcmp(j->servers[i].name, name))
			return &j->servers[i];
	}
	return NULL;
}

bool cut_bars(const struct sched *s, struct sched_job *j, const struct sched_node *n)
{
	const struct sched_part *p = cut_row(j, n->name);

	return p && s->now < p->cut_until;
}

/* Carries over what is known of a server of that name as it gets a part in the job. */
void cut_remember(struct sched_job *j, const struct sched_node *n, struct sched_part *to)
{
	struct sched_part *p = cut_row(j, n->name);

	to->cuts = p ? p->cuts : 0;
	to->cut_until = p ? p->cut_until : 0;
	snprintf(to->cut_why, sizeof(to->cut_why), "%s", p ? p->cut_why : "");
	if (!p)
		return;
	p->cuts = 0;
	memset(p->let_go, 0, ID_BYTES);		/* it will have something of it again */
}

static bool lets_go(const struct sched *s, const struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_part *p = job_server_part(s->jobs[i], n);

		if (p && p->let_go_by && s->jobs[i]->state == SJ_UP)
			return true;
	}
	return false;
}

void cut_end(struct sched *s, struct sched_node *n)
{
	if (n->astray && n->state != SN_DEAD && !lets_go(s, n))
		node_die(s, n, "it cannot follow a job");	/* and comes back as another one */
}

static void lost(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	struct sched_node *n = p->node;

	job_server_lost(s, j, p);
	if (n)
		cut_end(s, n);
}

void cut_let_go(struct sched *s, const struct sched_node *n, uint32_t job)
{
	struct sched_job *j = job_by_number(s, job);
	struct sched_part *p = j ? job_server_part(j, n) : NULL;

	if (!p || !p->let_go_by)
		return;			/* the job is over, or was never told here */
	memcpy(p->let_go, n->instance, ID_BYTES);
	lost(s, j, p);
}

static void ask_to_let_go(struct sched *s, struct sched_job *j, struct sched_part *p,
			  const char *why)
{
	struct msg *m = out_msg(s, MSG_JOB_DOWN);

	out_log(s, SCHED_WARN, "job %s goes on without server %s, reason %s", j->name, p->name,
		why);
	p->cut_since = 0;
	p->let_go_by = s->now + mono_ms(LET_GO_MS);
	sched_wake(s, p->let_go_by);
	if (m)
		m->job_down = (struct msg_job_down){
			.job = j->number, .code = TALLY_ENOSERVER, .text = out_string(s, why),
		};
	if (!out_send(s, p->node, m))
		lost(s, j, p);
}

/* Takes the job from a server that has not taken tensors which all others have. */
void cut_lacks(struct sched *s, struct sched_job *j, struct sched_part *p, const char *why)
{
	cut_refused(s, p, why);
	ask_to_let_go(s, j, p, why);
}

void cut_server(struct sched *s, struct sched_node *n, const char *why)
{
	n->astray = true;
	for (uint32_t i = 0; i < s->njobs && n->state != SN_DEAD; i++) {
		struct sched_part *p = job_server_part(s->jobs[i], n);

		if (p && s->jobs[i]->state == SJ_UP && !p->let_go_by)
			ask_to_let_go(s, s->jobs[i], p, why);
	}
}

static void give_up(struct sched *s, struct sched_job *j, struct sched_part *p,
		    const char *machine)
{
	char buf[NAME_LEN_MAX + 64];
	struct text t;

	text_init(&t, buf, sizeof(buf));
	text_add(&t, "machine %.128s has no link to it", machine);
	s->counters.cuts++;
	pause_once_more(s, p, CUT_AGAIN_MS, buf);
	ask_to_let_go(s, j, p, buf);
}

static bool is_used(const struct sched_part *p)
{
	return p->node && p->number == p->node->number && !p->joining && !p->let_go_by;
}

/* All have had the time to say that they have no link to it. */
static bool any_reached(const struct sched *s, const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		const struct sched_part *p = &j->servers[i];

		if (p->used_since && s->now - p->used_since >= mono_ms(CUT_MS) &&
		    plan_can_serve(j, p) && !p->cut_since)
			return true;
	}
	return false;
}

static bool is_due(const struct sched *s, const struct sched_job *j, const struct sched_part *p)
{
	return p->cut_since && s->now - p->cut_since >= mono_ms(CUT_MS) && any_reached(s, j);
}

bool cut_due(const struct sched *s, const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++)
		if (is_due(s, j, &j->servers[i]))
			return true;
	return false;
}

static void look_at(struct sched *s, struct sched_job *j, struct sched_part *p)
{
	if (p->let_go_by && s->now >= p->let_go_by)
		lost(s, j, p);
	if (p->let_go_by)
		sched_wake(s, p->let_go_by);
	if (!is_used(p) || p->fresh)
		p->used_since = 0;
	else if (!p->used_since && j->told >= j->epoch_seq)	/* agents have heard so */
		p->used_since = s->now;
	if (!is_used(p) || !stuck_no_link(j, p->number))
		p->cut_since = 0;
	else if (!p->cut_since)
		p->cut_since = s->now;
	if (p->cut_since)
		sched_wake(s, MAX(p->cut_since + mono_ms(CUT_MS), s->now + mono_ms(HEARTBEAT_MS)));
}

void cut_look(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++)
		look_at(s, j, &j->servers[i]);
	if (job_any_away(j))
		return;
	for (uint32_t i = 0; i < j->nservers; i++) {
		struct sched_part *p = &j->servers[i];

		if (is_due(s, j, p))
			give_up(s, j, p, stuck_no_link(j, p->number));
	}
}
