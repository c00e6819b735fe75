/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_pace.h - how much of its planned share a server can keep up with.
 *
 * For: deciding, from what the servers of a job were measured to do, that one of them
 * shall get less than the plan gives it (or more again).  Not for: the plan, the
 * measuring, the moving of chunks.
 *
 * A server is measured by what it summed and by how much of the time it had something
 * to sum or to send.  Whoever waits for a late rank waits at all servers alike; so
 * servers are compared with each other only, each by bytes per busy time over its
 * planned share.  Who then is much slower than its present share supposes is cut down
 * to what was measured; who was cut and is much faster gets back what was measured.
 *
 * It shall never oscillate.  A verdict on a server needs PACE_WINDOWS windows in a row
 * that say the same of it, and what they say together; "much" leaves room between cutting
 * and giving back; a cut is to what was measured, not past it; and after each change the
 * next one has to wait, twice as long each time, until all has been quiet for a while.
 *
 * Pure; memory is the caller's.
 */
#ifndef TALLY_SCHED_PACE_H
#define TALLY_SCHED_PACE_H

#include "common/base/base.h"

#define PACE_WINDOWS	5u		/* that must agree */
#define PACE_SLOW	0.7		/* of what its share supposes: less is slow */
#define PACE_FAST	1.4		/* one that was cut: more is fast */
#define PACE_FULL	0.75		/* a pace above this is all of its share */
#define PACE_LEAST	(1.0 / 16)
#define PACE_IDLE	0.001		/* busy less of the time than this: nothing was measured */
#define PACE_WORTH	0.2		/* nobody busy for more of the time: nothing to gain */
#define PACE_HOLD_MIN_S	20.0		/* between two changes */
#define PACE_HOLD_MAX_S	640.0

struct pace_server {
	double planned;		/* share by the plan, in any unit; 0: takes no part */
	double bytes, busy;	/* of this window: summed per second; part of the time, 0 to 1 */
	double pace;		/* part of its planned share that it gets; 0 means 1, too */
	double bytes_sum, busy_sum;	/* of the windows so far */
	int32_t off;		/* of those, in how many it was fast; less than 0: slow */
};

struct pace {			/* of a job; all zeros at first */
	uint32_t windows;	/* so far, in each of which some server was off */
	double hold_s;		/* after the next change; 0: PACE_HOLD_MIN_S */
	double wait_s;		/* until a change is possible */
	double quiet_s;		/* since the last change */
};

/* A window of `seconds` has passed.  True: paces have changed. */
bool pace_look(struct pace *p, struct pace_server *sv, uint32_t n, double seconds);

/* Forgets the windows so far, which say nothing any more once servers or shares have changed. */
void pace_forget(struct pace *p, struct pace_server *sv, uint32_t n);

static inline double pace_of(double pace)
{
	return pace > 0 ? pace : 1;
}

#endif
