/* SPDX-License-Identifier: Apache-2.0 */
/*
 * back.h - a session whose agent is gone, and may have been started again.
 *
 * Nothing of a session is lost with its agent: the arena, the results and the rounds in
 * flight are the process's, too.  For as long as the agent said when it was there
 * (ATTACHED.grace_ms) every call tries to come back instead of failing.
 */
#ifndef TALLY_CLIENT_BACK_H
#define TALLY_CLIENT_BACK_H

#include "client/session.h"

/* Its connection has broken.  True: it may come back (lt_back()); false: s is over, or shall
 * be: no grace, or the job has ended. */
bool lt_back_begin(tally_session *s);

/*
 * While s->away: tries, until the deadline.  0: it is back, and every round in flight has
 * been submitted again; EAGAIN: not yet; else s is over.
 */
int lt_back(tally_session *s, mono_t deadline);

/* For who waits for something else: whether the agent is gone, or back.  EAGAIN; else s is over. */
int lt_back_look(tally_session *s);

/* To an agent that is back, also where it has to read some first. */
int lt_back_post(tally_session *s, const struct ring_sub *sub);

/* While s->away: what is waited for, with a remedy; the same as s->err, ETIMEDOUT. */
void lt_back_text(const tally_session *s, char *buf, size_t len);
int lt_back_late(tally_session *s);
uint32_t lt_back_patience_ms(const tally_session *s);	/* for an agent that has gone just now */

#endif
