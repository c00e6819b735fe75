// SPDX-License-Identifier: Apache-2.0
/*
 * sched_forget.c - how long nodes are shown that are dead or were refused, and which servers are
 * there in vain.
 *
 * The row of a dead node, and that of a refused one, says why something is missing.  It goes by
 * itself after NODE_SHOWN_MS, or when somebody has read it (`tally forget`).  What is up comes
 * back by itself, and what is away has jobs that wait for it: these are not forgotten.
 */
#include "scheduler/sched.h"

static const char *kind_text(const struct sched_node *n)
{
	return n->kind == NODE_AGENT ? "agent" : "server";
}

void forget_shown(struct sched *s)
{
	for (uint32_t i = s->nnodes; i-- > 0;) {
		struct sched_node *n = s->nodes[i];

		if (n->state == SN_DEAD && s->now - n->since >= mono_ms(NODE_SHOWN_MS))
			node_free(s, n);
	}
	refused_age(&s->refused, s->now);
}

/* Why that node stays. */
static void refuse(struct sched *s, uint32_t conn, uint64_t req, const struct sched_node *n)
{
	if (n->state == SN_AWAY)
		out_reply(s, conn, req, TALLY_EBUSY, "%s '%.128s' is away and may come back, jobs "
			  "wait for it; it can be forgotten when it is dead", kind_text(n),
			  n->name);
	else if (n->kind == NODE_SERVER)
		out_reply(s, conn, req, TALLY_EBUSY, "server '%.128s' is up; drain it ('tally "
			  "drain %.128s'), stop tally-server on machine %.64s, then forget it",
			  n->name, n->name, n->machine);
	else
		out_reply(s, conn, req, TALLY_EBUSY, "agent '%.128s' is up; stop tally-agent on "
			  "machine %.64s, then forget it", n->name, n->machine);
}

void forget_named(struct sched *s, uint32_t conn, const struct msg_node_forget *m)
{
	const struct sched_node *there = NULL;
	uint32_t gone = 0, refused = refused_forget(&s->refused, m->name);

	for (uint32_t i = s->nnodes; i-- > 0;) {
		struct sched_node *n = s->nodes[i];

		if (strcmp(n->name, m->name))
			continue;
		if (n->state == SN_DEAD) {
			node_free(s, n);
			gone++;
		} else {
			there = n;
		}
	}
	if (gone || refused)
		out_reply(s, conn, m->req, 0, "%s", "");
	else if (there)
		refuse(s, conn, m->req, there);
	else
		out_reply(s, conn, m->req, TALLY_ENOENT, "there is no node '%.128s'; tally nodes "
			  "lists them", m->name);
}

/* ---- servers that are there in vain ---- */

/* "" the job uses it. */
static void bypass_of(struct sched *s, struct sched_job *j, const struct sched_node *n,
		      struct text *t)
{
	const struct sched_part *p = job_server_part(j, n);
	const struct sched_part *cut = cut_row(j, n->name);
	const char *no_link = p ? stuck_no_link(j, p->number) : NULL;

	if (p && p->let_go_by)
		text_add(t, "%s", p->cut_why);
	else if (no_link)
		text_add(t, "machine %.64s has no link to it", no_link);
	else if (!p && cut && s->now < cut->cut_until)
		text_add(t, "%s; it is asked again in %llu s", cut->cut_why, (unsigned long long)
			 div_round_up((uint64_t)(cut->cut_until - s->now), NS_PER_SEC));
	else if (p && !p->weight && !p->joining && !p->fresh)
		text_add(t, "the plan gives it no share: the others are done sooner alone");
}

void bypass_text(struct sched *s, const struct sched_node *n, struct text *t)
{
	if (n->kind != NODE_SERVER || n->state != SN_UP || n->draining)
		return;
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];
		char buf[ERR_TEXT_MAX + 1];
		struct text why;

		if (j->state != SJ_UP || job_one_machine(j))
			continue;
		text_init(&why, buf, sizeof(buf));
		bypass_of(s, j, n, &why);
		if (why.used)
			text_add(t, "%sjob %.64s: %s", t->used ? "; " : "", j->name, buf);
	}
}
