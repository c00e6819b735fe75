// SPDX-License-Identifier: Apache-2.0
/*
 * Clocks.  Each process has its own, which starts anywhere and is slow or fast by a
 * few percent: hundreds of times as wrong as real ones, so that what supposes that two
 * clocks agree has no luck.  Events happen in true time; cores hear their own clock's.
 */
#include "tests/sim/sim.h"

#define MILLION		INT64_C(1000000)
#define WAIT_MAX	(1000 * NS_PER_SEC)	/* longer than any run */

void sim_clock_start(struct sim *s, uint32_t proc)
{
	struct sim_clock *c = &s->clock[proc];

	*c = (struct sim_clock){ .since = s->now };
	c->zero = 100 * NS_PER_SEC + (mono_t)sim_below(s, 1000 * NS_PER_SEC);
	c->rate = MILLION - (int64_t)s->p.skew + (int64_t)sim_below(s, 2 * s->p.skew + 1);
}

mono_t sim_clock(const struct sim *s, uint32_t proc)
{
	const struct sim_clock *c = &s->clock[proc];

	return c->zero + (s->now - c->since) * c->rate / MILLION;
}

mono_t sim_clock_wait(const struct sim *s, uint32_t proc, mono_t time)
{
	return MIN(MAX(time, 0), WAIT_MAX) * MILLION / s->clock[proc].rate + 1;
}
