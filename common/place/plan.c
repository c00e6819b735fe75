// SPDX-License-Identifier: Apache-2.0
/*
 * plan.c - the smallest round time, and the byte shares that reach it.
 *
 * Given a time T, each server's capacity is known: a CPU machine moves n bytes
 * each way for each byte it sums, so its card lets it sum T*B/n; a GPU machine
 * moves its own M bytes anyhow and n-2 more for each byte its server sums, so it
 * can take (T*B - M)/(n-2); an adder reads n inputs, so it can take T*A/n.  All
 * of that grows with T, so the smallest T whose capacities reach M is found by
 * bisection, and the shares are the capacities at that T.  Below M/B of the slowest
 * GPU machine nobody has everything sent, so a round takes that at least; where it
 * takes longer than T the other cards have room to spare, all alike.
 *
 * Two sizes are special.  One GPU machine needs no network.  With two, a byte
 * summed at home saves its own sending and costs the other's receiving, so a
 * colocated server costs nothing and may take all.
 */
#include "common/place/place.h"

#include <math.h>

#define ROUNDING	1e-12	/* relative; doubles err by 1e-16 a step */

/* Bytes per second of a machine's cards. */
static double card(const struct plan_machine *m)
{
	return (double)m->bits_per_s / 8;
}

static bool can_sum(const struct plan_machine *m)
{
	return m->has_server && m->bits_per_s > 0;
}

/* What the problem comes down to, read off the machines once. */
struct cluster {
	const struct plan_machine *m;
	uint32_t count;
	uint32_t gpus;			/* n */
	uint32_t cpu_servers;		/* CPU machines that can sum */
	uint32_t servers;
	uint32_t slowest_gpu;
	double bytes;			/* M */
};

static void cluster_read(struct cluster *c, const struct plan_machine *m, uint32_t count,
			 double bytes)
{
	*c = (struct cluster){ .m = m, .count = count, .bytes = bytes };

	for (uint32_t i = 0; i < count; i++) {
		c->servers += can_sum(&m[i]);
		if (!m[i].is_gpu) {
			c->cpu_servers += can_sum(&m[i]);
			continue;
		}
		if (c->gpus == 0 || m[i].bits_per_s < m[c->slowest_gpu].bits_per_s)
			c->slowest_gpu = i;
		c->gpus++;
	}
}

/*
 * Bytes that machine i's NIC leaves within time t. What is left by rounding alone, of a NIC that
 * is full with the machine's own traffic, is nothing.
 */
static double by_card(const struct cluster *c, uint32_t i, double t)
{
	const struct plan_machine *m = &c->m[i];
	double moves = t * card(m);

	if (!m->is_gpu)
		return moves / c->gpus;
	if (c->gpus == 2)
		return c->bytes;
	return moves > c->bytes * (1 + ROUNDING) ? (moves - c->bytes) / (c->gpus - 2) : 0;
}

static double by_adder(const struct cluster *c, uint32_t i, double t)
{
	const struct plan_machine *m = &c->m[i];

	return m->adder_bytes_per_s ? t * (double)m->adder_bytes_per_s / c->gpus : INFINITY;
}

/* Bytes that machine i's server can sum within t. */
static double capacity(const struct cluster *c, uint32_t i, double t)
{
	if (!can_sum(&c->m[i]))
		return 0;
	return fmin(by_card(c, i, t), by_adder(c, i, t));
}

static double capacity_of(const struct cluster *c, bool gpu, double t)
{
	double sum = 0;

	for (uint32_t i = 0; i < c->count; i++)
		if (c->m[i].is_gpu == gpu)
			sum += capacity(c, i, t);
	return sum;
}

/* Within rounding, so that k = n is the GPU cards' case and not a hair above. */
static bool suffices(const struct cluster *c, double t)
{
	return capacity_of(c, false, t) + capacity_of(c, true, t) >= c->bytes * (1 - ROUNDING);
}

/* Some server can sum, and every capacity grows without bound: both loops end. */
static double smallest_time(const struct cluster *c, double guess_s)
{
	double lo = 0, hi = guess_s;

	while (!suffices(c, hi)) {
		lo = hi;
		hi *= 2;
	}
	while (hi - lo > hi * 1e-14) {
		double mid = lo + (hi - lo) / 2;

		if (suffices(c, mid))
			hi = mid;
		else
			lo = mid;
	}
	return hi;
}

/* CPU machines first, each group in proportion to what it can take. */
static void give_shares(const struct cluster *c, double t, double *share)
{
	double cpu = capacity_of(c, false, t), gpu = capacity_of(c, true, t);
	double cpu_part = cpu > 0 ? fmin(1, c->bytes / cpu) : 0;
	double rest = c->bytes - cpu_part * cpu;
	double gpu_part = gpu > 0 ? fmax(0, rest / gpu) : 0;

	if (gpu == 0 && cpu > 0)
		cpu_part = c->bytes / cpu;
	for (uint32_t i = 0; i < c->count; i++)
		share[i] = capacity(c, i, t) * (c->m[i].is_gpu ? gpu_part : cpu_part);
}

/* The adder that keeps the most of its card unused is the one to name. */
static void name_bottleneck(const struct cluster *c, double floor_s, struct plan *plan)
{
	double t = plan->round_time_s, worst = 0;

	if (t <= floor_s) {
		plan->bottleneck = PLAN_GPU_CARD;
		plan->bottleneck_machine = c->slowest_gpu;
		return;
	}
	plan->bottleneck = PLAN_ALL_CARDS;
	for (uint32_t i = 0; i < c->count; i++) {
		double lost = can_sum(&c->m[i]) ? by_card(c, i, t) - by_adder(c, i, t) : 0;

		if (lost > worst) {
			worst = lost;
			plan->bottleneck = PLAN_ADDER;
			plan->bottleneck_machine = i;
		}
	}
}

/* Every CPU machine gets M/k, so the slowest of them holds all back. */
static double ps_time(const struct cluster *c)
{
	double slowest = card(&c->m[c->slowest_gpu]);
	double t = c->bytes / slowest;

	if (c->cpu_servers == 0)
		return 0;
	for (uint32_t i = 0; i < c->count; i++) {
		const struct plan_machine *m = &c->m[i];
		double reads = c->gpus * c->bytes / c->cpu_servers;

		if (m->is_gpu || !can_sum(m))
			continue;
		t = fmax(t, reads / card(m));
		if (m->adder_bytes_per_s)
			t = fmax(t, reads / (double)m->adder_bytes_per_s);
	}
	return t;
}

static int cluster_check(const struct cluster *c, struct plan *plan, struct err *e)
{
	if (!(c->bytes >= 0) || isinf(c->bytes))
		return err_set(e, TALLY_EINVAL, "plan: %g bytes is no model size", c->bytes);
	if (c->gpus == 0)
		return err_set(e, TALLY_EINVAL, "plan: no GPU machine, so nothing to sum");
	if (c->gpus == 1)
		return 0;
	if (c->m[c->slowest_gpu].bits_per_s == 0)
		return err_set(e, TALLY_EINVAL, "plan: GPU machine %u has no network card",
			       c->slowest_gpu);
	if (c->servers == 0) {
		plan->bottleneck = PLAN_NO_SERVER;
		return err_set(e, TALLY_ENOSERVER,
			       "plan: %u GPU machines and no summation server: start "
			       "tally-server on them or on a CPU machine", c->gpus);
	}
	return 0;
}

int plan_solve(const struct plan_machine *m, uint32_t count, double model_bytes,
	       double *share, struct plan *plan, struct err *e)
{
	struct cluster c;
	double slowest, floor_s, t;
	int r;

	*plan = (struct plan){ .bottleneck = PLAN_NONE };
	cluster_read(&c, m, count, model_bytes);
	r = cluster_check(&c, plan, e);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count; i++)
		share[i] = 0;
	if (c.gpus == 1 || model_bytes == 0)
		return 0;

	slowest = card(&m[c.slowest_gpu]);
	floor_s = model_bytes / slowest;
	t = smallest_time(&c, floor_s);
	plan->round_time_s = fmax(t, floor_s);
	plan->ring_time_s = 2 * (c.gpus - 1.0) * model_bytes / (c.gpus * slowest);
	plan->ps_time_s = ps_time(&c);
	give_shares(&c, c.gpus == 2 ? plan->round_time_s : t, share);
	name_bottleneck(&c, floor_s, plan);
	return 0;
}

static double exact_weight(double share, double total)
{
	return share / total * PLACE_WEIGHT_SUM;
}

/* The index whose weight lost most to rounding down and was not topped up yet. */
static uint32_t most_cut(const double *share, double total, uint32_t count,
			 const uint32_t *weight)
{
	uint32_t best = count;
	double most = -1;

	for (uint32_t i = 0; i < count; i++) {
		double exact = exact_weight(share[i], total);
		double cut = exact - weight[i];

		if (share[i] > 0 && cut >= 0 && cut > most) {
			most = cut;
			best = i;
		}
	}
	return best;
}

void plan_weights(const double *share, uint32_t count, uint32_t *weight)
{
	double total = 0;
	uint64_t given = 0;

	for (uint32_t i = 0; i < count; i++)
		total += share[i];
	for (uint32_t i = 0; i < count; i++) {
		weight[i] = total > 0 ? (uint32_t)exact_weight(share[i], total) : 0;
		given += weight[i];
	}
	if (total <= 0)
		return;
	for (; given < PLACE_WEIGHT_SUM; given++) {
		uint32_t i = most_cut(share, total, count, weight);

		ASSERT(i < count);
		weight[i]++;
	}
}

static double moving_time(double bytes, double bytes_per_s)
{
	if (bytes <= 0)
		return 0;
	return bytes_per_s > 0 ? bytes / bytes_per_s : INFINITY;
}

double plan_time_of(const struct plan_machine *m, uint32_t count, double model_bytes,
		    const double *bytes)
{
	struct cluster c;
	double t = 0;

	cluster_read(&c, m, count, model_bytes);
	if (c.gpus <= 1)
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		double reads = c.gpus * bytes[i];
		double moves = m[i].is_gpu ? model_bytes + (c.gpus - 2) * bytes[i] : reads;

		t = fmax(t, moving_time(moves, card(&m[i])));
		if (m[i].adder_bytes_per_s)
			t = fmax(t, moving_time(reads, (double)m[i].adder_bytes_per_s));
	}
	return t;
}
