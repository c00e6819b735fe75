/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_meter.h - what a round of a job takes, as an agent has measured it.
 *
 * For: people, beside what the plan predicts; nothing is decided by it.  Not for: the
 * measuring itself, which agents do (JobTime).
 *
 * An agent says with each heartbeat how long rounds of the job have been under way, and how
 * many bytes were in those that are over, since it was started.  A window of the meter is as
 * long as it takes for one round of all tensors, so that each tensor has its part in it, and
 * at least a heartbeat.
 *
 * Pure; memory is the caller's.
 */
#ifndef TALLY_SCHED_METER_H
#define TALLY_SCHED_METER_H

#include "common/base/base.h"

struct meter {				/* of a job at one agent; all zeros at first */
	bool begun;
	uint64_t from_us, from_bytes;	/* as the window began */
	double seconds_per_byte;	/* in the last one; 0: there was none */
};

/* An agent's words; round_bytes: of all tensors of the job. */
void meter_take(struct meter *m, uint64_t under_way_us, uint64_t bytes, uint64_t round_bytes);

#endif
