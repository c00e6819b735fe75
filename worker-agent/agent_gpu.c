// SPDX-License-Identifier: Apache-2.0
/*
 * GPUs of a job's processes on this machine: who is in which group, and who is a root.
 *
 * Every local rank says on which GPU its gradients lie (GPU_JOIN).  When the last one has,
 * the machine's description is taken, cut down to these GPUs, and the local plan made of
 * it; each process gets its part (GPU_PLAN), with the id by which its group's first
 * member lets the others find it.  The plan's shares by card are added up for each GPU:
 * what a process copies lies in its own arena, whichever card it leaves by.
 *
 * Asking hwloc for the description blocks this thread for some 100 ms; the engines go on.  So
 * what it has said holds for TOPOLOGY_MS, however often a process may ask.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/rt/log.h"
#include "common/rt/topo_read.h"
#include "common/topo/local.h"
#include "worker-agent/agent.h"

#define TOPOLOGY_MS	10000u

static void gpu_fail(struct ad_session *s, int code, const char *text)
{
	if (!s->gpu)
		return;
	if (s->ctl)
		(void)ctl_reply(s->ctl, s->gpu->req, code, "%s", text);
	free(s->gpu);
	s->gpu = NULL;
}

/* ---- the description, of these GPUs alone ---- */

static int ask_hwloc(struct agent *a, struct err *e)
{
	const char *rail[RAILS_MAX];
	uint32_t left_out;
	int rc;

	if (!a->topology)
		a->topology = malloc(sizeof(*a->topology));
	if (!a->topology)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < a->nrails; i++)
		rail[i] = a->rail_text[i];
	rc = topo_read_used(NULL, rail, a->nrails, a->topology, &left_out, e);
	if (!rc)
		topo_guess(a->topology);
	a->topology_until = rc ? 1 : loop_now() + mono_ms(TOPOLOGY_MS);
	return rc;
}

static int read_machine(struct agent *a, struct topo *t, struct err *e)
{
	int rc = 0;

	if (!a->topology || (a->topology_until && loop_now() >= a->topology_until))
		rc = ask_hwloc(a, e);
	if (!rc)
		*t = *a->topology;
	return rc;
}

/* Once, and before there are threads: XML is tried in a child. */
int ad_gpu_read(struct agent *a, struct err *e)
{
	const char *file = a->opt.topology;
	uint32_t left_out;
	int rc;

	if (!file || !*file)
		return 0;
	a->topology = calloc(1, sizeof(*a->topology));
	rc = a->topology ? topo_read_used(file, NULL, 0, a->topology, &left_out, e) :
	     err_set(e, TALLY_ENOMEM, "out of memory");
	if (rc)
		return err_wrap(e, "--topology %s", file);
	topo_guess(a->topology);
	return 0;
}

static uint32_t find_gpu(const struct topo *t, const char *name)
{
	for (uint32_t i = 0; i < t->gpus; i++)
		if (!strcasecmp(t->gpu[i].name, name))
			return i;
	return TOPO_NONE;
}

/* GPU number i is local rank i's; two ranks on one GPU have no NVLink between them. */
static int pick(const struct topo *all, struct ad_session *const *s, uint32_t n, struct topo *t,
		struct err *e)
{
	uint32_t was[LOCAL_RANKS_MAX];

	*t = *all;
	t->gpus = n;
	memset(t->nvlink, 0, sizeof(t->nvlink));
	for (uint32_t i = 0; i < n; i++) {
		was[i] = find_gpu(all, s[i]->gpu->name);
		if (was[i] == TOPO_NONE)
			return err_set(e, TALLY_ENOENT,
				       "agent %.80s sees no GPU %s, which rank %u has: tally "
				       "doctor shows what there is, --topology FILE replaces it",
				       s[i]->agent->name, s[i]->gpu->name, s[i]->rank);
		t->gpu[i] = all->gpu[was[i]];
		snprintf(t->gpu[i].name, sizeof(t->gpu[i].name), "rank%u", s[i]->rank);
	}
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < n; k++)
			if (was[i] != was[k])
				t->nvlink[i][k] = all->nvlink[was[i]][was[k]];
	return 0;
}

/* ---- what each process is told ---- */

struct part {				/* of one group */
	uint32_t lowest;		/* local rank */
	uint32_t members[LOCAL_RANKS_MAX];	/* ranks */
	uint32_t roots[LOCAL_RANKS_MAX], weights[LOCAL_RANKS_MAX], nroots;
	bool scatter;
};

static bool all_equal(const struct part *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (p->weights[i] - (i ? p->weights[i - 1] : 0) > TURN_SUM / n + 1)
			return false;
	return p->nroots == n && n > 1;
}

static void make_part(const struct local_plan *p, const struct local_group *g,
		      struct ad_session *const *s, struct part *out)
{
	double upto = 0;

	*out = (struct part){ .lowest = UINT32_MAX };
	for (uint32_t m = 0; m < g->count; m++) {
		uint32_t gpu = p->member[g->first + m];
		double share = 0;

		out->members[m] = s[gpu]->rank;
		out->lowest = MIN(out->lowest, gpu);
		for (uint32_t c = g->first_copy; c < g->first_copy + g->copies; c++)
			if (p->copy[c].gpu == gpu)
				share += p->copy[c].share;
		upto += share;
		if ((uint32_t)(share * TURN_SUM) == 0)
			continue;
		out->roots[out->nroots] = m;
		out->weights[out->nroots++] = (uint32_t)(upto * TURN_SUM);
	}
	ASSERT(out->nroots);
	out->weights[out->nroots - 1] = TURN_SUM;
	out->scatter = !g->whole && all_equal(out, g->count);
}

static void tell_group(const struct local_plan *p, uint32_t group, const struct part *part,
		       uint32_t number, struct ad_session *const *s)
{
	const struct local_group *g = &p->group[group];
	char why[ERR_TEXT_MAX + 1];

	for (uint32_t m = 0; m < g->count; m++) {
		const struct ad_session *to = s[p->member[g->first + m]];
		const struct msg answer = {
			.type = MSG_GPU_PLAN,
			.gpu_plan = {
				.req = to->gpu->req, .group = number, .groups = p->groups, .me = m,
				.nmembers = g->count, .members = part->members,
				.nroots = part->nroots, .roots = part->roots,
				.nweights = part->nroots, .weights = part->weights,
				.scatter = part->scatter, .nids = GPU_ID_WORDS,
				.ids = s[p->member[g->first]]->gpu->ids,
				.why = local_why(p, group, why, sizeof(why)),
			},
		};
		struct err e;

		if (to->ctl && ctl_send_fds(to->ctl, &answer, NULL, 0, &e))
			log_warn("%s not told, reason %s", to->called, e.text);
	}
}

/* Groups are numbered by their lowest ranks: sums do not depend on how they were found. */
static void tell_all(const struct local_plan *p, struct ad_session *const *s, struct part *part)
{
	for (uint32_t g = 0; g < p->groups; g++)
		make_part(p, &p->group[g], s, &part[g]);
	for (uint32_t g = 0; g < p->groups; g++) {
		uint32_t before = 0;

		for (uint32_t o = 0; o < p->groups; o++)
			before += part[o].lowest < part[g].lowest;
		tell_group(p, g, &part[g], before, s);
	}
}

struct planning {			/* too big for a stack */
	struct topo all, used;
	struct local_plan plan;
	struct part part[TOPO_GPUS_MAX];
};

static int plan(struct ad_job *j, struct ad_session *const *s, struct err *e)
{
	struct planning *p = malloc(sizeof(*p));
	bool exact = s[0]->gpu->exact;
	int rc = 0;

	if (!p)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 1; !rc && i < j->nlocal; i++)
		if (s[i]->gpu->exact != exact)
			rc = err_set(e, TALLY_EMISMATCH,
				     "rank %u wants exact sums, rank %u does not",
				     s[exact ? 0 : i]->rank, s[exact ? i : 0]->rank);
	rc = rc ? rc : read_machine(j->agent, &p->all, e);
	rc = rc ? rc : pick(&p->all, s, j->nlocal, &p->used, e);
	rc = rc ? rc : local_plan_make(&p->used, exact, &p->plan, e);
	if (!rc) {
		log_info("job %u '%s': GPUs %u, groups %u, %s", j->id, j->name, p->used.gpus,
			 p->plan.groups, local_strategy_text(p->plan.strategy));
		tell_all(&p->plan, s, p->part);
	}
	free(p);
	return rc;
}

/* ---- coming together ---- */

/* Sessions of the job that have joined a group of GPUs, by local rank; returns how many. */
static uint32_t joined(struct ad_job *j, struct ad_session **by_rank)
{
	uint32_t n = 0;

	memset(by_rank, 0, LOCAL_RANKS_MAX * sizeof(*by_rank));
	list_for_each(&j->agent->sessions, l) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->job != j || !s->gpu || s->state != SESSION_OPEN)
			continue;
		by_rank[s->local] = s;
		n++;
	}
	return n;
}

void ad_gpu_join(struct ad_session *s, const struct msg_gpu_join *m)
{
	struct ad_session *by_rank[LOCAL_RANKS_MAX];
	struct ad_job *j = s->job;
	struct err e = { 0 };
	int rc;

	if (s->gpu || strlen(m->gpu) > TOPO_NAME_MAX) {
		(void)ctl_reply(s->ctl, m->req, TALLY_EINVAL, "%s", s->gpu ?
				"this process joins already" : "no GPU has such a name");
		return;
	}
	s->gpu = calloc(1, sizeof(*s->gpu));
	if (!s->gpu) {
		(void)ctl_reply(s->ctl, m->req, TALLY_ENOMEM, "out of memory");
		return;
	}
	s->gpu->req = m->req;
	s->gpu->deadline = loop_now() + mono_ms(m->timeout_ms);
	s->gpu->exact = m->exact;
	snprintf(s->gpu->name, sizeof(s->gpu->name), "%s", m->gpu);
	memcpy(s->gpu->ids, m->ids, sizeof(s->gpu->ids));
	if (joined(j, by_rank) < j->nlocal)
		return;
	rc = plan(j, by_rank, &e);
	for (uint32_t i = 0; i < j->nlocal; i++) {
		if (rc)
			gpu_fail(by_rank[i], rc, e.text);
		free(by_rank[i]->gpu);
		by_rank[i]->gpu = NULL;
	}
}

/* Answers all that wait with an error: without the others there will be no plan. */
static void fail_all(struct ad_job *j, int code, const char *text)
{
	list_for_each(&j->agent->sessions, l) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->job == j)
			gpu_fail(s, code, text);
	}
}

/* The local ranks that the others wait for, "rank 1 rank 3"; false: nobody waits. */
static bool list_missing(struct ad_job *j, char *text, size_t len)
{
	struct ad_session *by_rank[LOCAL_RANKS_MAX];
	size_t at = 0;

	if (!joined(j, by_rank))
		return false;
	for (uint32_t i = 0; i < j->nlocal && at + 16 < len; i++)
		if (!by_rank[i])
			at += (size_t)snprintf(text + at, len - at, "%srank %u", at ? " " : "",
					       j->front.rank[i]);
	return true;
}

const char *ad_gpu_remark(struct ad_job *j, const char *text, char out[ERR_TEXT_MAX + 1])
{
	char missing[ERR_TEXT_MAX + 1];

	if (!j || !list_missing(j, missing, sizeof(missing)))
		return text;
	snprintf(out, ERR_TEXT_MAX + 1, "%.230s; tally_gpu_open() on machine %.80s waits for "
		 "%.110s", text, j->agent->name, missing);
	return out;
}

void ad_gpu_over(struct ad_job *j)
{
	char text[ERR_TEXT_MAX + 1];

	fail_all(j, j->code, ad_gpu_remark(j, j->text, text));
}

void ad_gpu_tick(struct ad_session *s, mono_t now)
{
	char missing[ERR_TEXT_MAX + 1], text[ERR_TEXT_MAX + 1];

	if (!s->gpu || now < s->gpu->deadline || !list_missing(s->job, missing, sizeof(missing)))
		return;
	snprintf(text, sizeof(text), "on machine %.80s these have not said which GPU they have: "
		 "%.300s", s->agent->name, missing);
	fail_all(s->job, TALLY_ETIMEDOUT, text);
}
