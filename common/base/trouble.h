/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trouble.h - the peers that a daemon has trouble with on the network, and how often it says so.
 *
 * One row per peer, by name: what keeps the link down, since when, and when the log had it last.
 * A link that comes and goes is one trouble, until trouble_over() says that it carries data again;
 * the log has it once in TROUBLE_LOG_MS, and once more where a vague cause is followed by a better
 * one.  Life: zeroed is empty.  Owner: one thread.  Memory: fixed; with more than TROUBLE_ROWS
 * peers in trouble the others are logged each time, and are not in trouble_first().
 */
#ifndef TALLY_BASE_TROUBLE_H
#define TALLY_BASE_TROUBLE_H

#include "common/base/cause.h"

#define TROUBLE_ROWS	32u
#define TROUBLE_LOG_MS	60000u

struct trouble_row {
	char peer[64];			/* cut; "": free */
	char text[ERR_TEXT_MAX + 1];	/* what people read: the best cause since it began */
	enum cause cause;
	bool open;			/* not over */
	bool vague_told;		/* all that the log has had of it since told */
	mono_t since, told;		/* told: 0 before the first line */
	uint32_t times;			/* since told */
};

struct trouble {
	struct trouble_row row[TROUBLE_ROWS];
};

/*
 * The peer's link has ended, or does not come about, or carries nothing; text says why.  The row
 * keeps the first cause that is not vague.  Returns how often that has been since the log had it
 * last, this time counted, when it is to have it now; else 0.
 */
uint32_t trouble_note(struct trouble *t, const char *peer, enum cause c, const char *text,
		      mono_t now);

/* The link carries data: true when the log has had its trouble and is to have this. */
bool trouble_over(struct trouble *t, const char *peer);

/* Nobody asks after that peer any more. */
void trouble_forget(struct trouble *t, const char *peer);

/* The peer's row while it is in trouble, or NULL. */
const struct trouble_row *trouble_of(const struct trouble *t, const char *peer);

/* The oldest trouble, those whose cause is known first; NULL: none, or none with a cause. */
const struct trouble_row *trouble_first(const struct trouble *t);

#endif
