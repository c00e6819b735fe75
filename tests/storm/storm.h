/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm.h - well-formed messages in impossible orders, for the cores of the daemons.
 *
 * A storm is a source of choices: a seed (any number of them) or the bytes of a fuzzer (until
 * they are used up).  Messages are made from the codec's own table, so that a new message is
 * covered without a line here.  Values come from what the core under test has said (job numbers,
 * epochs, log entries, node numbers, tensor ids, names, whole messages), from the bounds of their
 * rows, or from nowhere.  What cannot be encoded is never handed over.
 *
 * One thread.  Messages live until storm_reset(); what storm_see() keeps, as long as the storm.
 */
#ifndef TALLY_TESTS_STORM_H
#define TALLY_TESTS_STORM_H

#include "common/base/bytes.h"
#include "proto/msg_table.h"

#define STORM_POOLS	6u
#define STORM_POOL	16u		/* numbers kept of a kind */
#define STORM_SEEN	24u		/* messages kept */
#define STORM_ARENA	(4u << 20)

struct storm_kept {
	uint32_t conn, type, bytes;
	uint8_t *wire;			/* owned */
};

struct storm {
	struct rng rng;
	const uint8_t *data;		/* of a fuzzer; NULL: a seed's */
	size_t left;
	bool over;			/* the bytes are used up */
	bool trace;
	uint64_t pool[STORM_POOLS][STORM_POOL];
	uint32_t npool[STORM_POOLS];	/* so many were put in, ever */
	struct storm_kept seen[STORM_SEEN];
	uint32_t nseen;
	uint8_t *arena;			/* owned */
	size_t used;
	uint64_t messages, good, repairs, resumed;	/* counted over runs, to be shown */
};

void storm_init(struct storm *s, uint64_t seed, const uint8_t *data, size_t size);
void storm_fini(struct storm *s);
void storm_reset(struct storm *s);
void *storm_get(struct storm *s, size_t bytes);	/* zeroed; NULL: the arena is full */
uint32_t storm_below(struct storm *s, uint32_t n);
bool storm_one_in(struct storm *s, uint32_t n);

/* Remembers what a message says, and the message as one for `conn`. */
void storm_see(struct storm *s, uint32_t conn, const struct msg *m);
/* The last message to that connection, decoded anew; false: there is none. */
bool storm_last(struct storm *s, uint32_t conn, struct msg *m);

/* The i-th of those that are kept, the oldest first, decoded anew. */
bool storm_seen(struct storm *s, uint32_t i, struct msg *m);

/* Any message of that type, made from rows. */
bool storm_make(struct storm *s, uint32_t type, struct msg *m);
/* One that was seen, also as another type of the same shape, with a few fields changed. */
bool storm_echo(struct storm *s, struct msg *m);
/* A row by name gets another value; the message is made to keep its rules.  False: it cannot. */
bool storm_mend(struct msg *m);
/* One or the other. */
bool storm_any(struct storm *s, struct msg *m);

/* storm_sched.c, storm_server.c, storm_agent.c: a run against one daemon's core, to its end. */
void storm_sched(struct storm *s);
void storm_server(struct storm *s);
void storm_agent(struct storm *s);
/* storm_peer.c: a scheduler on a port of the loopback, until it has said so many messages. */
int storm_peer(struct storm *s, const char *port_file, uint64_t messages);
/* storm_jobs.c: a server's control thread, with engines that are threads. */
void storm_jobs(struct storm *s);

#endif
