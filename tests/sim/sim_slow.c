// SPDX-License-Identifier: Apache-2.0
/*
 * A server that is too slow for its share.  In some runs the servers of one name take several
 * times as long as their share supposes, for good or until some time; ranks take their
 * time, too, so that there are windows to measure, and shares change between their rounds.
 *
 * What servers say of it in their heartbeats is made up here: nothing takes time in the
 * simulator, so there is nothing to measure.  They sum as fast as their shares are large, all
 * but the slow one.  Checked: nobody else gets less than its share, and that one does, when
 * nothing hinders it for long enough.
 */
#include <stdio.h>

#include "scheduler/sched.h"
#include "tests/sim/sim.h"

#define SLOW_OF		12u		/* so many runs */
#define BUSY		0.3		/* of the time, with all of the share and nothing wrong */
#define BYTES_PER_S	1e9		/* of a share of 1 */
#define LESS_MS		30000u		/* twice what a verdict takes */

void sim_slow_make(struct sim_params *p)
{
	struct rng r = { p->seed * 0x9e3779b97f4a7c15u };
	mono_t time;

	if (rng_below(&r, SLOW_OF) || p->njobs > 1 || p->nservers < 2)
		return;
	p->slow = 2 + (uint32_t)rng_below(&r, 2);
	p->slow_name = (uint32_t)rng_below(&r, p->nservers);
	time = (15 + (mono_t)rng_below(&r, 45)) * NS_PER_SEC;
	p->slow_time = rng_below(&r, 2) ? time / 3 : MONO_NEVER / 2;
	p->think = time / (p->job[0].ntensors * p->job[0].rounds);
	if (p->faults_end)		/* fewer, and as long as the run */
		p->faults_end = (mono_t)rng_below(&r, (uint64_t)time);
	p->life_every *= 20;
	p->pause_every *= 20;
	p->break_every *= 20;
}

static bool is_slow(const struct sim *s, uint32_t name)
{
	return name == s->p.slow_name && s->now < s->slow_until;
}

/* The one job, while it trains; NULL: the scheduler does not have it. */
static struct sched_job *job(const struct sim *s)
{
	if (!s->sched || !s->sched->njobs || s->sched->jobs[0]->state != SJ_UP)
		return NULL;
	return s->sched->jobs[0];
}

void sim_slow_beat(struct sim *s, uint32_t server, struct msg_heartbeat *m)
{
	struct sim_server *v = s->server[server];
	mono_t now = sim_clock(s, sim_server_proc(server));
	double seconds = (double)(now - v->beat_at) / 1e9;
	const struct sched_job *j = s->p.slow ? job(s) : NULL;
	double all = 0;

	v->beat_at = now;
	for (uint32_t i = 0; j && i < j->nservers; i++)
		all += j->servers[i].pace.planned;
	for (uint32_t i = 0; j && i < j->nservers; i++) {
		const struct sched_part *p = &j->servers[i];
		double work = seconds * pace_of(p->pace.pace);

		if (!p->node || p->node->number != v->node || p->pace.planned <= 0)
			continue;
		v->bytes += work * p->pace.planned / all * BYTES_PER_S;
		v->busy += work * BUSY * (is_slow(s, v->name) ? s->p.slow : 1);
	}
	m->bytes_summed = (uint64_t)v->bytes;
	m->busy_us = (uint64_t)(1e6 * v->busy);
}

/* It is measured, and so are others to compare it with. */
static bool can_be_told(const struct sim *s, const struct sched_job *j, const struct sched_part *p)
{
	uint32_t others = 0;

	for (uint32_t i = 0; i < j->nservers; i++)
		others += &j->servers[i] != p && plan_can_serve(j, &j->servers[i]) &&
			  j->servers[i].pace.planned > 0;
	return !sim_faulty(s) && j->look_at && j->pace.wait_s <= 0 && others &&
	       plan_can_serve(j, p) && p->pace.planned > 0 && pace_of(p->pace.pace) == 1;
}

static void look_at_slow(struct sim *s, const struct sched_job *j, const struct sched_part *p)
{
	double pace = pace_of(p->pace.pace);

	if (p->node->number != s->slow_node) {
		s->slow_node = p->node->number;
		s->slow_pace = 1;
	}
	sim_totals.slowed += pace < s->slow_pace;
	sim_totals.given_back += pace > s->slow_pace;
	s->slow_pace = pace;
	if (s->now >= s->slow_until || !can_be_told(s, j, p)) {
		s->slow_since = s->now;
		return;
	}
	if (s->now - s->slow_since > mono_ms(LESS_MS))
		sim_fail(s, "server %s is %u times too slow for its share, and has all of it after "
			 "%u s", p->name, s->p.slow, LESS_MS / 1000);
}

void sim_slow_check(struct sim *s)
{
	const struct sched_job *j = s->p.slow ? job(s) : NULL;
	bool there = false;
	char slow[16];

	snprintf(slow, sizeof(slow), "s%u", s->p.slow_name);
	for (uint32_t i = 0; j && i < j->nservers; i++) {
		const struct sched_part *p = &j->servers[i];

		if (!p->node)
			continue;
		if (!strcmp(p->name, slow)) {
			look_at_slow(s, j, p);
			there = true;
		} else if (pace_of(p->pace.pace) < 1) {
			sim_fail(s, "server %s has %.0f %% of its share, and nothing is wrong with "
				 "it", p->name, 100 * p->pace.pace);
		}
	}
	if (!there)
		s->slow_since = s->now;
}
