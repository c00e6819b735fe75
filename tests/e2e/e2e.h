/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e.h - a rank that knows what every sum must be.
 *
 * The program is run once per rank under `tally local` and uses libtally alone,
 * as a training process would.  Every input is a function of (tensor, round,
 * rank), so each rank computes by itself what all ranks together must give, in
 * plain scalar code that shares nothing with the daemons' sums, and compares bit
 * by bit.  Rank 0 prints a hash over all results of the run: two runs with the
 * same machines and ranks must print the same one, whatever servers, chunks,
 * links, engines or CPU level were in between.
 *
 * A failure prints a line and ends the rank with status 1; nothing is retried.
 */
#ifndef TALLY_E2E_H
#define TALLY_E2E_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/tally.h"

#define E2E_WORLD_MAX	16u	/* float16 sums of more could overflow */
#define E2E_WAIT_MS	60000
#define E2E_DTYPES	8u	/* 1 ... 8 in tally.h */
#define E2E_EDGES	4u

enum op { OP_SUM, OP_MEAN, OP_BROADCAST, OPS };

/* Where a round's input and output lie. */
enum place {
	ARENA_IN_PLACE,
	ARENA_TO_ARENA,
	ARENA_ODD_IN_PLACE,	/* one element behind a page's start */
	ARENA_VIEW,		/* no output: tally_result() */
	FOREIGN_IN_PLACE,
	FOREIGN_TO_FOREIGN,
	FOREIGN_TO_ARENA,
	FOREIGN_VIEW,
	PLACES
};

struct run {
	tally_session *s;
	uint32_t rank, world, machines;
	uint64_t seed;
	uint64_t edge[E2E_EDGES];	/* bytes; sizes lie there, and one element to each side */
	uint32_t nedges;
	const char *look;	/* a command, while tensors with edges are declared; NULL: none */
	uint64_t hash;		/* of all results so far, in any order */
	uint64_t results, bytes;
};

/* ---- value.c: inputs, and what they add up to ---- */

/* What one round of one tensor is made of. */
struct recipe {
	tally_dtype dtype;
	enum op op;
	uint32_t world, machines;	/* ranks lie on machines in order, evenly */
	uint32_t root;			/* OP_BROADCAST */
	uint64_t seed;			/* of the tensor and the round */
};

void value_fill(const struct recipe *r, uint32_t rank, uint64_t count, void *out);

/* Elements of got that differ from what the recipe gives; *at: the first of them. */
uint64_t value_differences(const struct recipe *r, const void *got, uint64_t count,
			   uint64_t *at);

/* Whether the next rank's input in each rank's place would give other bits somewhere. */
bool value_order_matters(const struct recipe *r, uint64_t count);

/* How many of world ranks lie on a machine. */
uint32_t value_ranks_on(uint32_t world, uint32_t machines, uint32_t machine);

uint64_t mix64(uint64_t z);

/* ---- toy.c: a tensor under test ---- */

enum { ARENA_IN, ARENA_OUT, FOREIGN_IN, FOREIGN_OUT, BUFFERS };

struct toy {
	char name[64];
	tally_dtype dtype;
	uint64_t count;
	int32_t priority;
	uint32_t passes;	/* scenarios': rounds it takes part in */

	uint32_t id;		/* the same on all ranks */
	uint32_t round;		/* last submitted */
	tally_tensor *t;
	void *buffer[BUFFERS];	/* owned; NULL: not needed yet */
	enum place place;	/* of the round in flight */
	struct recipe recipe;	/* of the last round */
	void *in, *out;
	tally_ticket k;		/* 0: none in flight */
};

void toys_declare(struct run *r, struct toy *toys, uint32_t n);
void toys_undeclare(struct run *r, struct toy *toys, uint32_t n);

void toy_submit(struct run *r, struct toy *t, enum op op, enum place place, uint32_t root);

/* Waits; checks every bit of the result, and that nothing else was written. */
void toy_collect(struct run *r, struct toy *t);

/* Checks bytes at p against an earlier round's recipe. */
void toy_check(struct run *r, const struct toy *t, const struct recipe *recipe, const void *p);

/* ---- scenario.c ---- */

struct scenario {
	const char *name, *help;
	void (*play)(struct run *r);
};

extern const struct scenario scenarios[];	/* ends with a NULL name */

/* ---- main.c ---- */

/* Prints "e2e rank R: ..." to stderr and ends the process. */
__attribute__((noreturn, format(printf, 2, 3)))
void die(const struct run *r, const char *format, ...);

/* Dies with the session's own words unless rc is 0. */
void must(const struct run *r, int rc, const char *what);

/* 1 by default: how many times as many rounds a scenario plays. */
uint32_t effort(void);

#endif
