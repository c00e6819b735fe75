// SPDX-License-Identifier: Apache-2.0
/*
 * sim - random clusters, one per seed.
 *
 * A run fails when a result is wrong, a round is done too early or never, a core
 * asserts, or something is still borrowed at the end.  A set of runs fails also
 * when a path was never taken: a simulator that does not reach the trouble it
 * was made for proves nothing.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/kern/kern.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

#define SEEDS_DEFAULT	320u
#define ROUNDS_LEAST	10000u			/* in a set of so many */

#define PATHS_RUNS	4000u			/* so many runs take all paths */
#define PAIRS_RUNS	5000u			/* and all pairs of a state and an event */
#define CPU_SERVERS	8u			/* at most */
#define REPLAY_EVERY	64u			/* one seed of so many is run twice */
#define STEPS_MAX	20000000u		/* of one run: it does not end */
#define EXIT_SEED	1			/* a run failed, ... */
#define EXIT_SET	3			/* or none, but all together missed something */
#define LIVENESS	(30 * NS_PER_SEC)	/* without faults something is done in this time */

struct sim_totals sim_totals;
#ifdef TALLY_MUTANTS
unsigned mutant;
#endif

static char repeat[128];		/* how to see the present run again */

/* ---- one run ---- */

static bool all_up(const struct sim *s, const struct sim_job *j, uint32_t ntensors)
{
	for (uint32_t m = 0; m < j->p->n; m++) {
		const struct sim_agent_job *aj = &s->agent[j->p->agent[m]]->job[j->index];

		if (!aj->core || aj->log.n < ntensors)
			return false;
	}
	return true;
}

static void job_start_perhaps(struct sim *s, struct sim_job *j)
{
	uint32_t first = j->p->ntensors - j->p->late;

	if (!j->declared && all_up(s, j, 0)) {
		j->declared = true;
		sim_declare(s, j, 0, first);
	}
	j->started |= all_up(s, j, first);
}

/* When the jobs and their first tensors are up everywhere the run begins. */
static void start_perhaps(struct sim *s)
{
	bool all = true;

	for (uint32_t i = 0; i < s->p.njobs; i++) {
		job_start_perhaps(s, &s->job[i]);
		all &= s->job[i].started;
	}
	if (!all)
		return;
	sim_trace(s, "the run begins");
	s->started = true;
	s->p.faults_end += s->now;
	s->slow_until = s->now + s->p.slow_time;
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		s->job[i].last_progress = s->now;
		sim_ranks_start(s, &s->job[i]);
		if (s->p.job[i].late)
			sim_at(s, (mono_t)sim_below(s, 300000000), &(struct sim_event){
				.type = EV_DECLARE, .proc = SIM_NOBODY, .c = i });
		if (s->p.seed % 4 == 0 && s->p.job[i].world > 1 && !s->p.job[i].shrink)
			sim_at(s, (mono_t)sim_below(s, NS_PER_SEC), &(struct sim_event){
				.type = EV_DECLARE, .proc = SIM_NOBODY, .b = 1, .c = i });
	}
	sim_net_faults(s);
	sim_life_start(s);
}

static bool declare_event(struct sim *s, const struct sim_event *e)
{
	struct sim_job *j = &s->job[e->c];

	if (e->type != EV_DECLARE)
		return false;
	if (j->over || s->stopped)
		return true;
	if (e->b && !e->a) {
		sim_disagree(s, j);
		return true;
	}
	if (e->a) {
		if (j->rank[e->a - 1].life == (e->b >> 8 & 0xff))
			sim_declare_one(s, j, e->a - 1, e->b >> 16, e->b & 0xff);
		return true;
	}
	sim_totals.late_declares++;
	j->late_declared = true;
	sim_declare(s, j, j->p->ntensors - j->p->late, j->p->late);
	return true;
}

static void check_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->p.n; i++)
		sim_check(s, sim_agent_proc(i));
	for (uint32_t i = 0; i < s->nservers; i++)
		sim_check(s, sim_server_proc(i));
}

/* Steps on nobody that change what processes have: rare ones. */
static bool touches_others(enum sim_event_type type)
{
	return type == EV_LIFE || type == EV_BREAK || type == EV_AGENT_START;
}

static void handle(struct sim *s, const struct sim_event *e)
{
	bool known = sim_net_event(s, e) || sim_lane_event(s, e) || sim_proc_event(s, e) ||
		     sim_rank_event(s, e) || sim_ctl_event(s, e) || sim_life_event(s, e) ||
		     sim_ask_event(s, e) || sim_grow_event(s, e) || sim_return_event(s, e) ||
		     declare_event(s, e);

	ASSERT(known);
	if (e->proc == SIM_NOBODY) {
		if (touches_others(e->type))
			check_all(s);
		return;
	}
	if (e->proc < SIM_AGENTS)
		sim_pump_agent(s, e->proc);
	else
		sim_pump_server(s, e->proc - SIM_AGENTS);
	sim_check(s, e->proc);
}

/* ---- the end ---- */

/* An agent is lost, and with it the job: that is done when all others have been told. */
static bool all_are_told(const struct sim *s, const struct sim_job *j)
{
	bool told = true;

	for (uint32_t m = 0; m < j->p->n; m++) {
		const struct sim_agent *a = s->agent[j->p->agent[m]];
		const struct sim_agent_job *aj = &a->job[j->index];

		told &= !a->alive || aj->over || !aj->core;	/* started again, without it */
	}
	return told;
}

static bool is_done(struct sim *s, struct sim_job *j)
{
	bool lost = sim_job_may_end(s, j), returns = sim_job_returns(s, j);

	if (sim_all_done(j) && !returns && !j->shaken && s->p.njobs > 1) {
		j->shaken = true;	/* somebody may not hear of its end */
		for (uint32_t i = (uint32_t)sim_below(s, 4); i; i--)
			sim_any_fault(s);
	}
	if (lost && all_are_told(s, j))
		return true;
	if (sim_all_done(j) && !returns && !sim_job_is_lost(s, j) && !sim_disagrees(s, j))
		return s->now >= j->last_progress + mono_ms(50) && s->faults >= RUN_FAULTS;
	if (!sim_job_is_lost(s, j) && !returns && j->p->stop_at &&
	    j->rounds_done >= j->p->stop_at && s->faults >= RUN_FAULTS && !sim_disagrees(s, j)) {
		sim_totals.stopped_early++;
		return true;
	}
	if (s->now - MAX(s->p.faults_end, j->last_progress) > LIVENESS)
		sim_fail(s, "job %u: nothing was done for %u s without faults, %llu of %u rounds "
			 "done%s", j->index, (unsigned)(LIVENESS / NS_PER_SEC),
			 (unsigned long long)j->rounds_done, j->p->ntensors * j->p->rounds,
			 lost ? ", and it may end" : "");
	return false;
}

/* Each run has its faults, however quiet its network. */
static void force_faults(struct sim *s)
{
	uint64_t all = 0, done = 0, before = s->faults;

	for (uint32_t i = 0; i < s->p.njobs; i++) {
		const struct sim_job *j = &s->job[i];
		uint64_t rounds = j->p->stop_at ? j->p->stop_at : j->p->ntensors * j->p->rounds;

		all += rounds;
		done += j->over ? rounds : j->rounds_done;
	}
	if (s->faults_due == RUN_FAULTS || done * (RUN_FAULTS + 2) < all * (s->faults_due + 1))
		return;
	if (s->faults <= s->faults_due)
		sim_any_fault(s);
	if (s->faults != before || s->faults > s->faults_due)
		s->faults_due++;	/* else it was not possible just now */
}

static void end_perhaps(struct sim *s)
{
	bool all = true;

	if (s->stopped)
		return;
	force_faults(s);
	sim_life_rank_dies(s);
	sim_life_agent_dies(s);
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		struct sim_job *j = &s->job[i];

		if (!j->over && is_done(s, j)) {
			j->over = true;
			sim_job_leaves(s, j);
		}
		all &= j->over;
	}
	if (!all)
		return;
	sim_stop_jobs(s);
	if (sim_below(s, 2))
		sim_net_cut_all(s);
	check_all(s);
}

/* A machine was cut off for so long that it was given up, and with it a broadcast's root. */
static bool may_be_short(const struct sim *s)
{
	bool ended = false;

	for (uint32_t i = 0; i < s->p.njobs; i++)
		ended |= s->job[i].ended;
	return ended;
}

static bool is_full(const struct sim *s)
{
	return s->faults >= RUN_FAULTS && sim_rounds(s) >= RUN_ROUNDS;
}

static bool is_short(const struct sim *s)
{
	return s->faults >= RUN_FAULTS && !is_full(s) && may_be_short(s);
}

static uint32_t clusters[SIM_AGENTS + 1][CPU_SERVERS + 1];	/* runs, by agents and servers */

/* How many numbers of agents, or of servers, no run had.  A machine alone has no server. */
static uint32_t report_clusters(void)
{
	uint32_t agents = 0, servers = 0, both = 0;

	for (uint32_t n = 1; n <= SIM_AGENTS; n++) {
		uint32_t any = 0;

		for (uint32_t k = 0; k <= CPU_SERVERS; k++) {
			any += clusters[n][k];
			both += clusters[n][k] != 0;
		}
		agents += any != 0;
	}
	for (uint32_t k = 0; k <= CPU_SERVERS; k++) {
		uint32_t any = 0;

		for (uint32_t n = 1; n <= SIM_AGENTS; n++)
			any += clusters[n][k];
		servers += any != 0;
	}
	printf("clusters: %u of %u numbers of agents (1 to %u), %u of %u of CPU servers (0 to %u), "
	       "%u of %u pairs; two jobs in %llu of %llu runs\n", agents, SIM_AGENTS, SIM_AGENTS,
	       servers, CPU_SERVERS + 1, CPU_SERVERS, both,
	       (SIM_AGENTS - 1) * (CPU_SERVERS + 1) + 1, (unsigned long long)sim_totals.two_jobs,
	       (unsigned long long)sim_totals.runs);
	return SIM_AGENTS - agents + CPU_SERVERS + 1 - servers;
}

static void count(const struct sim *s)
{
	bool lost = false;

	for (uint32_t i = 0; i < s->p.n; i++)
		lost |= !s->agent[i]->alive;
	sim_totals.runs++;
	sim_totals.rounds += sim_rounds(s);
	sim_totals.steps += s->steps;
	sim_totals.faults += s->faults;
	sim_totals.two_jobs += s->p.njobs == 2;
	sim_totals.spared += lost && s->p.njobs == 2 && (sim_all_done(&s->job[0]) ||
							  sim_all_done(&s->job[1]));
	sim_totals.full_runs += is_full(s);
	sim_totals.short_runs += is_short(s);
	clusters[s->p.n][s->p.k]++;
}

void sim_run(struct sim *s)
{
	struct sim_event e;
	uint64_t before;

	sim_build(s);
	while (!s->failed && sim_pop(s, &e)) {
		if (e.proc != SIM_NOBODY && s->paused_until[e.proc] > s->now && !s->stopped) {
			sim_again_at(s, s->paused_until[e.proc], &e);
			continue;
		}
		if (sim_sched_waits(s, &e)) {
			sim_again_at(s, s->sched_still, &e);
			continue;
		}
		before = s->faults;
		s->trail = (s->trail ^ (uint64_t)e.at ^ e.seq << 40 ^ e.type << 8 ^ e.proc) *
			   0x100000001b3u;
		handle(s, &e);
		if (++s->steps == STEPS_MAX)
			sim_fail(s, "%u steps and no end", STEPS_MAX);
		if (s->started)
			end_perhaps(s);
		else
			start_perhaps(s);
		if (s->faults != before)
			s->faulted_at = s->now;
	}
	if (!s->failed && !s->stopped)
		sim_fail(s, "it never began");
	if (!s->failed && !is_full(s) && !is_short(s))
		sim_fail(s, "it is over with %llu rounds and %llu faults, and is to have %u and %u",
			 (unsigned long long)sim_rounds(s), (unsigned long long)s->faults,
			 RUN_ROUNDS, RUN_FAULTS);
	if (!s->failed && (s->msgs || s->ctl_msgs))
		sim_fail(s, "%llu frames never arrived",
			 (unsigned long long)(s->msgs + s->ctl_msgs));
	count(s);
	sim_free(s);
}

/* ---- what a seed means ---- */

/* Ranks fall on machines in any order; machines are numbered by their lowest rank. */
static void make_machines(struct sim_job_params *p, struct rng *r, uint32_t agents)
{
	uint32_t of[SIM_RANKS], machine[SIM_AGENTS], most = agents > 4 ? 2 : SIM_LOCAL;

	for (uint32_t i = 0; i < agents; i++) {
		machine[i] = UINT32_MAX;
		for (uint32_t l = 1 + (uint32_t)rng_below(r, most); l; l--)
			of[p->world++] = i;
	}
	for (uint32_t i = p->world; i > 1; i--) {
		uint32_t j = (uint32_t)rng_below(r, i), t = of[j];

		of[j] = of[i - 1];
		of[i - 1] = t;
	}
	for (uint32_t i = 0; i < p->world; i++) {
		if (machine[of[i]] == UINT32_MAX) {
			machine[of[i]] = p->n;
			p->agent[p->n++] = of[i];
		}
		p->machine[i] = machine[of[i]];
		p->nlocal[p->machine[i]]++;
	}
}

static void make_work(struct sim_job_params *p, struct rng *r, uint32_t njobs)
{
	uint32_t total;

	p->ntensors = 1 + (uint32_t)rng_below(r, SIM_TENSORS / njobs);
	p->late = p->ntensors > 1 && !rng_below(r, 3) ? 1 : 0;
	p->rounds = 3 + (uint32_t)rng_below(r, 5);
	p->rounds = MAX(p->rounds, (uint32_t)div_round_up(RUN_ROUNDS, p->ntensors));
	total = p->ntensors * p->rounds;
	if (total > RUN_ROUNDS && !rng_below(r, 8))
		p->stop_at = RUN_ROUNDS + (uint32_t)rng_below(r, total - RUN_ROUNDS);
	p->barriers = (uint32_t)rng_below(r, SIM_BARRIERS);
	p->order = (uint32_t)rng_below(r, 4);
	p->lookahead = rng_below(r, 2) ? 100 : 1 + (uint32_t)rng_below(r, 20);
	p->grow = p->shrink && rng_below(r, 2);
	p->barriers += p->grow && p->barriers < SIM_BARRIERS;
}

/* The second job is on some of the machines, or all. */
static void make_jobs(struct sim_params *p, struct rng *r)
{
	p->n = 1 + (uint32_t)rng_below(r, rng_below(r, 4) ? 4 : SIM_AGENTS);
	p->njobs = rng_below(r, 3) ? 1 : 2;
	for (uint32_t i = 0; i < p->njobs; i++) {
		make_machines(&p->job[i], r, i && rng_below(r, 2) ?
			      1 + (uint32_t)rng_below(r, p->n) : p->n);
		p->job[i].shrink = !rng_below(r, 3);
		make_work(&p->job[i], r, p->njobs);
	}
}

static void make_servers(struct sim_params *p, struct rng *r)
{
	uint32_t colocated = (uint32_t)rng_below(r, 4);

	if (p->n == 1)
		return;
	p->k = (uint32_t)rng_below(r, rng_below(r, 4) ? 4 : CPU_SERVERS + 1);
	for (p->nservers = 0; p->nservers < p->k; p->nservers++)
		p->home[p->nservers] = UINT32_MAX;
	for (uint32_t i = 0; i < p->n; i++)
		if (rng_below(r, 4) < colocated)
			p->home[p->nservers++] = i;
}

static void make_sizes(struct sim_params *p, struct rng *r)
{
	static const uint32_t segs[] = { 1, 1, 2, 2, 3, 3, 5, 8, 16, 64 };
	static const uint32_t limits[] = { 1, 3, 20, 1000 };

	p->seg_bytes = PAGE_BYTES << rng_below(r, 3);
	p->chunk_bytes = p->seg_bytes * (1 + (uint32_t)rng_below(r, 4));
	p->window_bytes = p->seg_bytes * segs[rng_below(r, ARRAY_SIZE(segs))] +
			  PAGE_BYTES * (uint32_t)rng_below(r, 2);
	p->tx_limit = (uint64_t)p->seg_bytes * limits[rng_below(r, ARRAY_SIZE(limits))];
	p->server_queue = 1 + (uint32_t)rng_below(r, 30);
}

/* Not beside what ends jobs by itself, in a way of its own, which is looked for. */
static void make_famine(struct sim_params *p)
{
	struct rng r = { p->seed * 0xd6e8feb86659fd93u };

	if (p->faults_end && !p->agents_return && !p->agents_die && !p->ranks_die &&
	    !rng_below(&r, 3))
		p->famine = 20 + (uint32_t)rng_below(&r, 300);
}

static void make_lags(struct sim_params *p)
{
	struct rng r = { p->seed * 0xe7037ed1a0b428dbu };

	for (uint32_t i = 0; i < SIM_LAGS && !(p->seed % 3); i++)
		p->lag[i] = rng_below(&r, 4) ? 0 : (mono_t)rng_below(&r, mono_ms(20));
}

/* What a scheduler that dies meanwhile knows of it afterwards is another matter. */
static void make_parts(struct sim_params *p)
{
	struct rng r = { p->seed * 0xa0761d6478bd642fu };

	p->parts = p->life_every && !p->famine && !p->starve && !p->agents_die && !p->ranks_die &&
		   rng_below(&r, 3);
}

static void make_faults(struct sim_params *p, struct rng *r)
{
	p->lanes = 1 + (uint32_t)rng_below(r, 3);
	p->latency = 1000 + (mono_t)rng_below(r, 1000000);
	p->jitter = 1 + (mono_t)rng_below(r, 2000000);
	p->reorder = rng_below(r, 2);
	p->refuse_save = !rng_below(r, 4);
	p->early = rng_below(r, 3) ? 0 : 1 + (uint32_t)rng_below(r, 3);
	p->skew = rng_below(r, 3) ? (uint32_t)rng_below(r, 50000) : 0;
	if (!rng_below(r, 4))	/* a quiet network: crossing alone must not stop anything */
		return;
	p->faults_end = (mono_t)rng_below(r, 4 * NS_PER_SEC);
	p->loss = (uint32_t)rng_below(r, rng_below(r, 3) ? 30 : 200);
	p->dup = (uint32_t)rng_below(r, 100);
	p->forge = (uint32_t)rng_below(r, 30);
	p->spike = (uint32_t)rng_below(r, 20);
	p->break_every = rng_below(r, 3) ? 1000000 + (mono_t)rng_below(r, 100000000) : 0;
	p->life_every = rng_below(r, 5) ? 20000000 + (mono_t)rng_below(r, 500000000) : 0;
	p->pause_every = rng_below(r, 3) ? 10000000 + (mono_t)rng_below(r, 300000000) : 0;
	p->agents_die = !rng_below(r, 6);
	p->starve = rng_below(r, 4) ? 0 : 100 + (uint32_t)rng_below(r, 300);
	p->starve_hard = p->starve / 4;
	p->untold = rng_below(r, 4) ? 0 : 1 + (uint32_t)rng_below(r, 60);
	p->agents_return = !rng_below(r, 2) && !p->starve;
	p->ranks_die = !p->agents_die && !rng_below(r, 3);
	for (uint32_t i = 0; (p->ranks_die || p->agents_die) && i < p->njobs; i++)
		p->job[i].rounds = MIN(2 * p->job[i].rounds, SIM_ROUNDS);
}

void sim_params_make(struct sim_params *p, uint64_t seed)
{
	struct rng r = { seed * 0x2545f4914f6cdd1du };

	*p = (struct sim_params){ .seed = seed };
	make_jobs(p, &r);
	make_servers(p, &r);
	make_sizes(p, &r);
	make_faults(p, &r);
	make_famine(p);
	make_parts(p);
	make_lags(p);
	sim_slow_make(p);
}

void sim_params_print(const struct sim_params *p)
{
	printf("seed %llu: %u agents, %u servers (%u colocated), chunk %u, segment %u, window %u, "
	       "lanes %u, loss %u, faults to %.3f s\n", (unsigned long long)p->seed, p->n,
	       p->nservers, p->nservers - p->k, p->chunk_bytes, p->seg_bytes, p->window_bytes,
	       p->lanes, p->loss, (double)p->faults_end / 1e9);
	if (p->slow)
		printf("  server s%u is %u times too slow for %.3f s\n", p->slow_name, p->slow,
		       (double)p->slow_time / 1e9);
	for (uint32_t i = 0; i < p->njobs; i++)
		printf("  job %u: %u machines, %u ranks, %u tensors, %u rounds, order %u%s\n", i,
		       p->job[i].n, p->job[i].world, p->job[i].ntensors, p->job[i].rounds,
		       p->job[i].order, p->job[i].grow ? ", shrinks and grows" :
		       p->job[i].shrink ? ", shrinks" : "");
}

/* ---- sets of runs ---- */

static bool run_seed(uint64_t seed, bool trace, uint64_t *trail)
{
	struct sim *s = calloc(1, sizeof(*s));
	bool ok;

	ASSERT(s);
	snprintf(repeat, sizeof(repeat), "repeat with: sim --seed %llu --trace\n",
		 (unsigned long long)seed);
	sim_params_make(&s->p, seed);
	s->trace = trace;
	s->rng.state = seed;
	s->now = 100 * NS_PER_SEC;
	if (trace)
		sim_params_print(&s->p);
	sim_run(s);
	ok = !s->failed;
	if (!ok) {
		printf("FAILED: %s\n", s->why);
		sim_params_print(&s->p);
		printf("%s", repeat);
	}
	*trail = s->trail;
	free(s);
	return ok;
}

/* Now and then one is played twice: what a seed has shown once it shows again. */
static bool run_one(uint64_t seed)
{
	uint64_t trail, again;

	if (!run_seed(seed, false, &trail))
		return false;
	if (seed % REPLAY_EVERY)
		return true;
	if (!run_seed(seed, false, &again))
		return false;
	sim_totals.replayed++;
	if (again == trail)
		return true;
	printf("FAILED: seed %llu does not repeat itself\n", (unsigned long long)seed);
	return false;
}

/* Counters of this run set by name; enough runs take every path (all of them).  Refusals that
 * find no room are left to a unit test. */
static uint32_t paths_missing(bool all)
{
	uint32_t missing = 0;

#define REPORT(side, name, value, want) do { \
		printf("  %-6s %-14s %12llu\n", side, name, (unsigned long long)(value)); \
		if (all && (want) && !(value)) { \
			printf("FAILED: no run took the path %s %s\n", side, name); \
			missing++; \
		} \
	} while (0)
#define X(name, help) \
	REPORT("server", #name, sim_totals.srv.name, strcmp(#name, "refusals_lost") != 0);
	SRV_COUNTER_TABLE(X)
#undef X
#define X(name, help) REPORT("agent", #name, sim_totals.ag.name, true);
	AG_COUNTER_TABLE(X)
#undef X
	REPORT("sched", "repairs", sim_totals.sched.repairs, true);
	REPORT("sched", "cuts", sim_totals.sched.cuts, true);
#define NET(name) REPORT("net", #name, sim_totals.name, true)
	NET(lost);
	NET(repeated);
	NET(forged);
	NET(broken);
	NET(all_broken);
	NET(torn);
	NET(paused);
	NET(by_ref_frames);
	NET(stopped_early);
	NET(removed);
	NET(ahead);
	NET(crashes);
	NET(joins);
	NET(drains);
	NET(undrains);
	NET(cut_off);
	NET(deaf);
	NET(late);
	NET(heard);
	NET(blind);
	NET(fenced);
	NET(reborn);
	NET(late_declares);
	NET(disagreed);
	NET(resets);
	NET(restarts);
	NET(agent_crashes);
	NET(agent_restarts);
	NET(given_up);
	NET(machines_came);
	NET(two_jobs);
	NET(spared);
	NET(log_cuts);
	NET(asked_again);
	NET(barriers);
	NET(starved);
	NET(famines);
	NET(starved_jobs);
	NET(caught_up);
	NET(ranks_lost);
	NET(shrunk);
	NET(roots_lost);
	NET(grown);
	NET(came);
	NET(gave_up);
	NET(slowed);
	NET(given_back);
	NET(looks);
	NET(quiet);
	NET(named);
	NET(blamed_ranks);
	NET(blamed_servers);
	NET(still);
	NET(replayed);
	NET(faults);
#undef NET
#undef REPORT
	return missing;
}

static int run_set(uint64_t first, uint64_t seeds, uint32_t failures)
{
	uint32_t passed = 0, failed = 0, seeds_failed, missing, pairs;

	for (uint64_t seed = first; seed < first + seeds; seed++) {
		if (run_one(seed))
			passed++;
		else if (++failed == failures)
			break;
	}
	seeds_failed = failed;
	pairs = sim_cover_report();
	missing = paths_missing(passed >= PATHS_RUNS);
	failed += missing + (passed >= PAIRS_RUNS ? pairs : 0);
	if (sim_totals.full_runs + sim_totals.short_runs < passed) {
		printf("FAILED: runs had fewer than %u rounds or %u faults\n", RUN_ROUNDS,
		       RUN_FAULTS);
		failed++;
	}
	missing = report_clusters();
	if (passed >= PAIRS_RUNS && missing) {
		printf("FAILED: %u numbers of agents or servers were in no run\n", missing);
		failed++;
	}
	if (passed >= SEEDS_DEFAULT && sim_totals.rounds < ROUNDS_LEAST) {
		printf("FAILED: less than %u tensor rounds\n", ROUNDS_LEAST);
		failed++;
	}
	printf("seeds from %llu: %llu tensor rounds, %llu events, %llu runs of at least %u "
	       "rounds and %u faults, %llu shorter ones, whose broadcast's root was lost\n",
	       (unsigned long long)first,
	       (unsigned long long)sim_totals.rounds, (unsigned long long)sim_totals.steps,
	       (unsigned long long)sim_totals.full_runs, RUN_ROUNDS, RUN_FAULTS,
	       (unsigned long long)sim_totals.short_runs);
	printf("%u passed, %u failed\n", passed, failed);
	if (seeds_failed)
		return EXIT_SEED;
	return failed ? EXIT_SET : 0;
}

/* A sanitizer says more of a crash, and then aborts. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const int deaths[] = { SIGABRT, SIGTERM };
#else
static const int deaths[] = { SIGABRT, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL };
#endif

static void on_death(int sig)
{
	ssize_t n = write(STDERR_FILENO, repeat, strlen(repeat));

	(void)n;
	signal(sig, SIG_DFL);
	raise(sig);
}

static void usage(FILE *f)
{
	fprintf(f, "usage: sim [--seeds N] [--first S | --fresh] [--failures N]\n"
		"           runs with seeds S, S + 1, ...\n"
		"       sim --seed S [--trace]         one run, and what happened in it\n"
		"Random clusters of the real cores over a network that fails; N is %u, S is 1.\n"
		"Status %u: a run failed; %u: none, but all together missed something.\n",
		SEEDS_DEFAULT, EXIT_SEED, EXIT_SET);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' }, { "trace", no_argument, NULL, 't' },
		{ "first", required_argument, NULL, 'f' },
		{ "seeds", required_argument, NULL, 'n' }, { "fresh", no_argument, NULL, 'F' },
		{ "failures", required_argument, NULL, 'x' },
		{ "mutant", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' }, { 0 },
	};
	uint64_t seed = 0, seeds = SEEDS_DEFAULT, first = 1, trail;
	uint32_t failures = 10;
	bool one = false, trace = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 's': seed = strtoull(optarg, NULL, 0); one = true; break;
		case 't': trace = true; break;
		case 'f': first = strtoull(optarg, NULL, 0); break;
		case 'n': seeds = strtoull(optarg, NULL, 0); break;
		case 'F': first = (uint64_t)time(NULL) * 100000 + (uint64_t)getpid(); break;
		case 'x': failures = (uint32_t)strtoul(optarg, NULL, 0); break;
#ifdef TALLY_MUTANTS
		case 'm': mutant = (unsigned)strtoul(optarg, NULL, 0); break;
#endif
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	setvbuf(stdout, NULL, _IOLBF, 0);	/* a trace is wanted most when a core asserts */
	for (size_t i = 0; i < ARRAY_SIZE(deaths); i++)
		signal(deaths[i], on_death);
	kern_init(~0u);
	if (!one)
		return run_set(first, seeds, failures);
	if (!run_seed(seed, trace, &trail))
		return EXIT_SEED;
	printf("1 passed, 0 failed\n");
	return 0;
}
