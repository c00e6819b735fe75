/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trouble.h - the peers that a daemon has trouble with on the network, and how often it says so.
 *
 * The table has one row per peer, by name: what keeps the link down, since when, and when the log
 * had it last.
 * A link that comes and goes is one trouble, until trouble_over() says that it carries data again;
 * the log has it once in TROUBLE_LOG_MS, and once more for each cause that is not vague and new.
 * A peer may have links of several sources (a daemon's engines): it is in trouble while one
 * of them is.
 *
 * Life: zeroed is empty.  Owner: one thread.  Memory: fixed; with more than TROUBLE_ROWS peers in
 * trouble the others are logged each time, and are not in trouble_first().
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
	uint64_t open;			/* by source: not over */
	mono_t left;			/* since when nobody asks for the peer; 0: not so */
	uint32_t causes;		/* bits: those that the log has had since told */
	mono_t since, told;		/* told: 0 before the first line */
	uint32_t times;			/* since told */
};

/* Kinds of news that a source (an engine) sends about its links to a peer, to the thread that keeps
 * the rows. */
enum trouble_what {
	TROUBLE_LOST,			/* there is none, or none that carries data */
	TROUBLE_STUCK,			/* the same of one that is up, and carries no data */
	TROUBLE_PART,			/* one of several is lost */
	TROUBLE_OVER,			/* they carry data */
	TROUBLE_LEFT,			/* they are not asked for any more */
};

struct trouble_news {
	enum trouble_what what;
	uint32_t node, source;		/* node: rows are by it, as the name may be forgotten
					 * before the trouble is; 0: by the name */
	bool mild;			/* the peer is to have no data: no warning */
	bool severe;			/* not of the network: the log has it each time */
	char peer[NAME_LEN_MAX + 1];
	struct cause_held held;		/* LOST, STUCK, PART */
	char words[200];		/* the transport's, where no cause is known */
};

struct trouble {
	struct trouble_row row[TROUBLE_ROWS];
};

/*
 * The peer's link has ended, or does not come about, or carries nothing; text says why.  The row
 * keeps the first cause that is not vague.  Returns how often that has been since the log had it
 * last, this time counted, when it is to have it now; else 0.
 */
uint32_t trouble_note(struct trouble *t, const char *peer, uint32_t source, enum cause c,
		      const char *text, mono_t now);

/* The source's links carry data: true when the log has had the trouble and is to have this. */
bool trouble_over(struct trouble *t, const char *peer, uint32_t source);

/* The source does not ask after that peer any more: what its trouble was is known for a while. */
void trouble_leave(struct trouble *t, const char *peer, uint32_t source, mono_t now);

/* Takes news in: true, with a line for the log, when the log is to have it. */
#define TROUBLE_LINE	(ERR_TEXT_MAX + NAME_LEN_MAX + 80)
bool trouble_hear(struct trouble *t, const struct trouble_news *n, mono_t now,
		  char line[TROUBLE_LINE]);

/* The peer's row while it is in trouble, or NULL. */
const struct trouble_row *trouble_of(const struct trouble *t, const char *peer);

/*
 * The oldest trouble, those whose cause is known first; NULL: none, or none with a cause.
 * since: with peers that were left then or later; MONO_NEVER: without those.
 */
const struct trouble_row *trouble_first(const struct trouble *t, mono_t since);

#endif
