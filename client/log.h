/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - what the library does and waits for, on stderr, where TALLY_LOG asks for it.
 *
 * Without TALLY_LOG nothing is written and nothing is looked at.  info: what a call or a round
 * waits for, once that has taken a second, and then whenever it has taken twice as long; and the
 * life of the session.  debug: each call that asks the agent, too.
 *
 * A struct lt_wait is one wait: begun when its `begin` is set, and quiet when that is 0.
 */
#ifndef TALLY_CLIENT_LOG_H
#define TALLY_CLIENT_LOG_H

#include "client/tally.h"
#include "common/base/base.h"

enum lt_log_level { LT_LOG_NONE, LT_LOG_INFO, LT_LOG_DEBUG };

struct lt_wait {
	mono_t begin;			/* 0: nothing waits */
	mono_t next;			/* when it is to be told of */
	bool told;			/* it has been */
	bool asked;			/* the agent, what it waits for, and it has not said */
};

/* lt_log() writes one line, of this rank, world and job. */
void lt_log(const tally_session *s, enum lt_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

void lt_wait_begin(const tally_session *s, struct lt_wait *w);	/* now, where anybody wants it */
mono_t lt_wait_until(const struct lt_wait *w, mono_t deadline);	/* or when it is to be told of */
bool lt_wait_due(const struct lt_wait *w);
/* "in a barrier for 2 s: why".  The next time is when it has taken twice as long. */
void lt_wait_tell(const tally_session *s, struct lt_wait *w, const char *what, const char *why);
void lt_wait_end(const tally_session *s, struct lt_wait *w, const char *what);

/* Tells of the oldest round in flight, where that is due: for whoever waits for one, or polls. */
void lt_log_rounds(tally_session *s);
void lt_log_round_over(tally_session *s, const tally_tensor *t);	/* its ticket is used up */

#endif
