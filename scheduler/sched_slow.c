// SPDX-License-Identifier: Apache-2.0
/*
 * sched_slow.c - servers that are too slow for their share, or have more than that.
 *
 * Heartbeats say what a server has summed and how long it was busy.  While a job
 * trains and nothing of it moves, two heartbeats PACE_WINDOW_MS apart make a window of
 * each of its servers; sched_pace.c says what follows from them.  If it is another
 * share, the next rebalance gives it, provided the others have the memory: being slow
 * is no reason to end a job.
 *
 * What a server says is of all its jobs together.  Where another job has shares of it that are
 * not in proportion to this one's, on all servers of this one, these cannot be compared, and
 * nothing follows.
 *
 * A repair gives new shares, also where the world is another one by it, and moves only what
 * was lost.  Who has more than a chunk over its share when it is settled gives that away by a
 * rebalance, on the same condition; until then nobody is measured by a share that it has not.
 */
#include "scheduler/sched.h"

#include <math.h>

#include "common/base/parse.h"

#define PACE_WINDOW_MS	(2 * HEARTBEAT_MS)
#define PACE_SPARE	(16u << 20)	/* of a server's memory, for what goes with a share */
#define CPU_BINDS	0.75		/* of its busy time: the rest it waits for its NIC */
#define PACE_ALIKE	1.1		/* shares that are in proportion, the most to the least */

static void window_open(struct sched *s, struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		struct sched_part *p = &j->servers[i];

		if (!p->node)
			continue;
		p->from = p->node->beat;
		p->from_bytes = p->node->last.bytes_summed;
		p->from_busy_us = p->node->last.busy_us;
		p->from_cpu_us = p->node->last.cpu_us;
	}
	j->looking = true;
	j->look_at = s->now + mono_ms(PACE_WINDOW_MS);
}

/* Measures what a server did in the window; false: it has not reported it. */
static bool measure(const struct sched_job *j, struct sched_part *p)
{
	const struct sched_node *n = p->node;
	double seconds;

	p->pace.bytes = p->pace.busy = 0;
	if (!n || !plan_can_serve(j, p))
		return true;
	seconds = (double)(n->beat - p->from) / 1e9;
	if (seconds * 1000 < PACE_WINDOW_MS / 2 || n->last.bytes_summed < p->from_bytes ||
	    n->last.busy_us < p->from_busy_us)
		return false;
	p->pace.bytes = (double)(n->last.bytes_summed - p->from_bytes) / seconds;
	p->pace.busy = MIN((double)(n->last.busy_us - p->from_busy_us) / 1e6 / seconds, 1);
	return true;
}

/* The servers that are compared know by their marks where they are in job j. */
static void mark_servers(struct sched *s, const struct sched_job *j)
{
	for (uint32_t i = 0; i < s->nnodes; i++)
		s->nodes[i]->mark = UINT32_MAX;
	for (uint32_t i = 0; i < j->nservers; i++)
		if (j->servers[i].pace.planned > 0 && plan_can_serve(j, &j->servers[i]))
			j->servers[i].node->mark = i;
}

/* Whether another job's shares of the servers are the same everywhere, none at all included. */
static bool is_alike(struct sched *s, const struct sched_job *j, const struct sched_job *other)
{
	double *share = out_scratch(s, j->nservers * sizeof(*share));
	double most = 0, least = INFINITY;

	for (uint32_t i = 0; share && i < other->nservers; i++) {
		const struct sched_part *p = &other->servers[i];

		if (!p->node || p->node->mark >= j->nservers)
			continue;
		if (p->pace.planned <= 0 && other->place->server[i].assigned_bytes)
			return false;		/* not planned since a restart */
		share[p->node->mark] = p->pace.planned;
	}
	for (uint32_t i = 0; share && i < j->nservers; i++) {
		const struct sched_part *p = &j->servers[i];

		if (!p->node || p->node->mark != i)
			continue;
		most = MAX(most, share[i] / p->pace.planned);
		least = MIN(least, share[i] / p->pace.planned);
	}
	return share && most <= PACE_ALIKE * least;
}

static bool are_comparable(struct sched *s, const struct sched_job *j)
{
	mark_servers(s, j);
	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_job *k = s->jobs[i];

		if (k != j && k->state == SJ_UP && k->place && k->place->total_bytes &&
		    !is_alike(s, j, k))
			return false;
	}
	return true;
}

static struct pace_server *collect(struct sched *s, struct sched_job *j)
{
	struct pace_server *sv = out_scratch(s, j->nservers * sizeof(*sv));

	if (!are_comparable(s, j))
		return NULL;
	for (uint32_t i = 0; sv && i < j->nservers; i++) {
		if (!measure(j, &j->servers[i]))
			return NULL;
		sv[i] = j->servers[i].pace;
		if (!plan_can_serve(j, &j->servers[i]))
			sv[i].planned = 0;
	}
	return sv;
}

/* Whether all servers that get more have room for it. */
static bool has_room(const struct sched_job *j, const struct pace_server *sv)
{
	double sum = 0;

	for (uint32_t i = 0; i < j->nservers; i++)
		sum += sv[i].planned * pace_of(sv[i].pace);
	for (uint32_t i = 0; i < j->nservers; i++) {
		const struct sched_node *n = j->servers[i].node;
		double more = sv[i].planned * pace_of(sv[i].pace) / sum * (double)j->bytes -
			      (double)j->place->server[i].assigned_bytes;

		if (n && n->memory_bytes && more > 0 && (double)n->memory_bytes <
		    (double)n->last.memory_used_bytes + 2 * more + PACE_SPARE)
			return false;
	}
	return true;
}

/* The shares that the last epoch gave, for what is somewhere else still. */
static bool can_spread(struct sched *s, const struct sched_job *j)
{
	struct pace_server *sv = out_scratch(s, j->nservers * sizeof(*sv));

	for (uint32_t i = 0; sv && i < j->place->nservers; i++)
		sv[i].planned = j->place->server[i].weight;
	return sv && has_room(j, sv);
}

/* As the window that ends shows it. */
static struct slow_cause find_cause(const struct sched_part *p)
{
	const struct sched_node *n = p->node;
	struct slow_cause c = { .cpu = -1 };
	double busy_us;

	if (!n || p->pace.busy <= 0)
		return c;
	busy_us = (double)(n->last.busy_us - p->from_busy_us);
	c.bytes_per_s = p->pace.bytes / p->pace.busy;
	if (p->from_cpu_us && n->last.cpu_us >= p->from_cpu_us)
		c.cpu = MIN((double)(n->last.cpu_us - p->from_cpu_us) / busy_us, 1);
	return c;
}

static void cause_text(struct text *t, const struct slow_cause *c)
{
	char rate[32];

	fmt_bytes(rate, sizeof(rate), (uint64_t)c->bytes_per_s);
	if (c->cpu < 0)
		text_add(t, "its NIC or its CPU binds (sums %s/s; the kernel there does not say "
			 "which): look at both", rate);
	else if (c->cpu >= CPU_BINDS)
		text_add(t, "its CPU binds (sums %s/s, engines use or wait for a CPU %.0f %% of "
			 "the time): give it cores of its own, or more of them by --engines",
			 rate, 100 * c->cpu);
	else
		text_add(t, "its NIC binds (sums %s/s, engines use a CPU %.0f %% of the time): "
			 "look at the link's speed and errors, or tell plans of it by --listen "
			 "ADDR@BITRATE", rate, 100 * c->cpu);
}

static void adopt(struct sched *s, struct sched_job *j, struct sched_part *p, double pace)
{
	double before = pace_of(p->pace.pace);
	char why[ERR_TEXT_MAX + 1];
	struct text t;

	p->pace.pace = pace;
	if (pace_of(pace) == before)
		return;
	if (pace_of(pace) < before)
		p->cause = find_cause(p);
	text_init(&t, why, sizeof(why));
	if (pace_of(pace) < 1)
		cause_text(&t, &p->cause);
	out_log(s, SCHED_WARN, "job %s server %s gets %.0f %% of its planned share, before "
		"%.0f %%, as measured%s%s", j->name, p->name, 100 * pace_of(pace), 100 * before,
		t.used ? "; " : "", why);
}

static void window_close(struct sched *s, struct sched_job *j)
{
	struct pace_server *sv = collect(s, j);

	if (!sv)
		return;			/* nothing can be said: the next window */
	j->paced = pace_look(&j->pace, sv, j->nservers, PACE_WINDOW_MS / 1e3) && has_room(j, sv);
	for (uint32_t i = 0; i < j->nservers; i++) {
		struct sched_part *p = &j->servers[i];

		p->pace.bytes_sum = sv[i].bytes_sum;
		p->pace.busy_sum = sv[i].busy_sum;
		p->pace.off = sv[i].off;
		if (j->paced)
			adopt(s, j, p, sv[i].pace);
	}
}

void slow_look(struct sched *s, struct sched_job *j)
{
	if (j->nservers < 2 || j->settled < j->epoch || !list_empty(&j->log) || j->no_server ||
	    j->paced || job_any_away(j)) {
		j->look_at = 0;
		return;
	}
	if (!j->look_at) {		/* heartbeats from before are of another time */
		j->pace.windows = 0;
		for (uint32_t i = 0; i < j->nservers; i++)
			pace_forget(&j->pace, &j->servers[i].pace, 1);
		j->looking = false;
		j->look_at = s->now + mono_ms(2 * HEARTBEAT_MS);
		return;
	}
	if (s->now < j->look_at)
		return;
	if (j->repair && place_uneven(j->place)) {
		j->paced = !grow_under_way(j) && can_spread(s, j);
		j->look_at = 0;
		return;
	}
	if (j->looking)
		window_close(s, j);
	window_open(s, j);
}

/* Where it gets the least of its planned share; NULL: all of it everywhere. */
static const struct sched_part *slowest(const struct sched *s, const struct sched_node *n)
{
	const struct sched_part *least = NULL;

	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_part *p = job_server_part(s->jobs[i], n);

		if (s->jobs[i]->state == SJ_UP && p && pace_of(p->pace.pace) < 1 &&
		    (!least || pace_of(p->pace.pace) < pace_of(least->pace.pace)))
			least = p;
	}
	return least;
}

uint32_t slow_percent(const struct sched *s, const struct sched_node *n)
{
	const struct sched_part *p = slowest(s, n);

	return p ? (uint32_t)(100 * pace_of(p->pace.pace) + 0.5) : 0;
}

void slow_text(const struct sched *s, const struct sched_node *n, struct text *t)
{
	const struct sched_part *p = slowest(s, n);

	if (!p)
		return;
	text_add(t, "slow, ");
	cause_text(t, &p->cause);
}
