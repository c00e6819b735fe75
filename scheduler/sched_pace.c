// SPDX-License-Identifier: Apache-2.0
/* sched_pace.c - who is too slow for its share. */
#include "scheduler/sched_pace.h"

#include <math.h>

#include "common/base/mutate.h"

void pace_forget(struct pace *p, struct pace_server *sv, uint32_t n)
{
	p->windows = 0;
	for (uint32_t i = 0; i < n; i++)
		sv[i].bytes_sum = sv[i].busy_sum = sv[i].off = 0;
}

/* Bytes per busy time, over the planned share; 0: not known. */
static double speed(const struct pace_server *sv, double bytes, double busy, uint32_t windows)
{
	if (sv->planned <= 0 || bytes <= 0 || busy < PACE_IDLE * windows)
		return 0;
	return bytes / busy / (MUTATE(30) ? 1 : sv->planned);
}

static double speed_now(const struct pace_server *sv)
{
	return speed(sv, sv->bytes, sv->busy, 1);
}

static double speed_so_far(const struct pace_server *sv)
{
	return speed(sv, sv->bytes_sum, sv->busy_sum, PACE_WINDOWS);
}

/* The highest speed below `limit`, and how many have it; 0: none. */
static double highest(const struct pace_server *sv, uint32_t n,
		      double (*speed_of)(const struct pace_server *), double limit, uint32_t *count)
{
	double best = 0;

	*count = 0;
	for (uint32_t i = 0; i < n; i++) {
		double v = speed_of(&sv[i]);

		if (v <= 0 || v >= limit || v < best)
			continue;
		*count = v > best ? 1 : *count + 1;
		best = v;
	}
	return best;
}

/*
 * Speed of a server that has nothing wrong: that of the fastest. Of many the fastest was lucky,
 * so an eighth of them is not looked at. 0: not known.
 */
static double normal(const struct pace_server *sv, uint32_t n,
		     double (*speed_of)(const struct pace_server *))
{
	uint32_t known = 0, seen = 0, count;
	double best = INFINITY;

	for (uint32_t i = 0; i < n; i++)
		known += speed_of(&sv[i]) > 0;
	if (known < 2)
		return 0;
	while (seen <= known / 8) {
		best = highest(sv, n, speed_of, best, &count);
		seen += count;
	}
	return best;
}

/* 0: as its share supposes, or not known; else the pace it should have. */
static double other_pace(const struct pace_server *sv, double v, double usual)
{
	double pace = pace_of(sv->pace), wanted = v / usual, rel = wanted / pace;

	if (v <= 0 || (rel >= PACE_SLOW && (rel <= PACE_FAST || pace >= 1)))
		return 0;
	wanted = wanted > PACE_FULL ? 1 : MAX(wanted, PACE_LEAST);
	return wanted == pace ? 0 : wanted;
}

static bool any_off(struct pace_server *sv, uint32_t n)
{
	double usual = normal(sv, n, speed_now), busiest = 0;
	bool off = false;

	for (uint32_t i = 0; i < n && usual > 0; i++) {
		double to = other_pace(&sv[i], speed_now(&sv[i]), usual);

		busiest = MAX(busiest, sv[i].busy);
		if (to <= 0)
			continue;
		sv[i].off += to > pace_of(sv[i].pace) ? 1 : -1;
		off = true;
	}
	return off && busiest >= PACE_WORTH;
}

static bool change(struct pace_server *sv, uint32_t n)
{
	double usual = normal(sv, n, speed_so_far);
	bool changed = false;

	for (uint32_t i = 0; i < n && usual > 0; i++) {
		double to = other_pace(&sv[i], speed_so_far(&sv[i]), usual);
		bool up = to > pace_of(sv[i].pace);

		if (to <= 0 || sv[i].off != (up ? (int32_t)PACE_WINDOWS : -(int32_t)PACE_WINDOWS))
			continue;
		sv[i].pace = to;
		changed = true;
	}
	return changed;
}

/*
 * Lets time pass: a job that changes its shares a lot has to wait longer and longer, a quiet one
 * less and less.
 */
static void pass(struct pace *p, double seconds)
{
	p->hold_s = MAX(p->hold_s, PACE_HOLD_MIN_S);
	p->wait_s = MAX(p->wait_s - seconds, 0);
	p->quiet_s += seconds;
	if (p->quiet_s < 8 * p->hold_s)
		return;
	p->hold_s = MAX(p->hold_s / 2, PACE_HOLD_MIN_S);
	p->quiet_s = 0;
}

bool pace_look(struct pace *p, struct pace_server *sv, uint32_t n, double seconds)
{
	bool changed;

	pass(p, seconds);
	if (!any_off(sv, n)) {
		pace_forget(p, sv, n);
		return false;
	}
	for (uint32_t i = 0; i < n; i++) {
		sv[i].bytes_sum += sv[i].bytes;
		sv[i].busy_sum += sv[i].busy;
	}
	if (++p->windows < PACE_WINDOWS)
		return false;
	changed = p->wait_s <= 0 && !MUTATE(29) && change(sv, n);
	pace_forget(p, sv, n);
	if (changed) {
		p->wait_s = p->hold_s;
		p->hold_s = MIN(2 * p->hold_s, PACE_HOLD_MAX_S);
		p->quiet_s = 0;
	}
	return changed;
}
