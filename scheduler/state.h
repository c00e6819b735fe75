/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - what the scheduler keeps on disk: one small file in a directory.
 *
 * The cluster's id, the seed of its link keys, and the highest numbers that may
 * have been handed out.  The file is replaced as a whole (write, fsync, rename,
 * fsync of the directory), so it is old or new, never half; a checksum finds
 * what the disk did to it.  Then its copy is read, which is always written before it,
 * so that no number was handed out that is above the copy's.  With both damaged, or one and
 * no other, nothing is guessed: it is refused.  A lock keeps a second scheduler out; it goes
 * with the process, however that ends.
 *
 * With an empty directory name everything is in memory only: each start is a
 * new cluster.  Main thread only.
 */
#ifndef TALLY_SCHED_STATE_H
#define TALLY_SCHED_STATE_H

#include "scheduler/sched_core.h"

#define STATE_FILE	"state"
#define STATE_COPY	"state.copy"
#define STATE_LOCK	"lock"

struct state;

/* Locks the directory (created if its parent exists) and reads the state, or its
 * copy, and says so in the log; or makes it, where neither is there.  EBUSY names the
 * pid that has it, EIO and EPROTO the file. */
int state_open(struct state **st, const char *dir, struct err *e);
void state_close(struct state *st);		/* NULL is fine */

/* Makes ids durable; on error what was durable before still is. */
int state_save(struct state *st, const struct sched_ids *ids, struct err *e);

bool state_is_new(const struct state *st);	/* made by this open */
const struct sched_ids *state_ids(const struct state *st);	/* as last saved */
const uint8_t *state_cluster(const struct state *st);		/* ID_BYTES */
const uint8_t *state_key_seed(const struct state *st);		/* KEY_BYTES */

#endif
