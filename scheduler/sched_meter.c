// SPDX-License-Identifier: Apache-2.0
/* sched_meter.c - what agents say of rounds becomes the time that people are shown. */
#include "scheduler/sched.h"

#include <math.h>

void meter_take(struct meter *m, uint64_t under_way_us, uint64_t bytes, uint64_t round_bytes)
{
	/* less than before: the agent was started again */
	bool follows = m->begun && under_way_us >= m->from_us && bytes >= m->from_bytes;

	if (follows && (bytes == m->from_bytes || bytes - m->from_bytes < round_bytes))
		return;
	if (follows)
		m->seconds_per_byte = (double)(under_way_us - m->from_us) / 1e6 /
				      (double)(bytes - m->from_bytes);
	m->begun = true;
	m->from_us = under_way_us;
	m->from_bytes = bytes;
}

double meter_round(const struct sched_job *j)
{
	double least = INFINITY;

	for (uint32_t i = 0; i < j->nmachines; i++) {
		const struct sched_part *p = &j->machines[i];

		if (p->node && p->meter.seconds_per_byte > 0)
			least = MIN(least, p->meter.seconds_per_byte);
	}
	return isinf(least) ? 0 : least * (double)j->bytes;
}
