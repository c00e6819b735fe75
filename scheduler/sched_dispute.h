/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_dispute.h - jobs whose ranks disagreed as they gathered, for those who come later.
 *
 * For: telling every rank of one start why its job did not come about, as long as ranks that
 * were started together may still come in.  Not for: deciding who is right.
 *
 * Each rank hears it once.  One that has heard it and comes again belongs to another start,
 * which this is forgotten for.
 *
 * Pure; texts are copied.
 */
#ifndef TALLY_SCHED_DISPUTE_H
#define TALLY_SCHED_DISPUTE_H

#include "common/base/base.h"
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/base/limits.h"

#define DISPUTE_MS	10000u		/* ranks of one start come within that */
#define DISPUTES_MAX	16u		/* then the oldest is forgotten */

struct dispute {
	char name[NAME_LEN_MAX + 1];	/* of the job; "": none */
	uint32_t uid, world;		/* the largest world size that was said */
	mono_t until;
	uint64_t heard[BITS_WORDS(WORLD_SIZE_MAX)];	/* ranks */
	struct err why;
};

struct disputes {
	struct dispute row[DISPUTES_MAX];
	uint32_t n;			/* so far; a ring */
};

/* To be told next who has heard it. */
struct dispute *dispute_new(struct disputes *all, const char *name, uint32_t uid,
			    const struct err *why, mono_t now);
void dispute_heard(struct dispute *d, uint32_t world, uint32_t rank);
/* Why such a rank cannot come in, which has heard it then; NULL: it begins a job. */
const struct err *dispute_of(struct disputes *all, const char *name, uint32_t uid,
			     uint32_t world, uint32_t rank, mono_t now);

#endif
