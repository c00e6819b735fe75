/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - which server sums which chunk, and how long a round will take.
 *
 * Two pure parts.  The planner turns a cluster description into byte shares per
 * server and a predicted round time.  The map turns shares and the declaration
 * log into chunk -> server.  Scheduler, agents, servers and the CLI replay the
 * same log through the same code and get the same answer, so placement travels
 * as a function, not as a table.
 *
 * Determinism: same inputs in the same order, same outputs, on every machine.
 * Shares are turned into integers (parts per 2^32) by the scheduler once and
 * travel as integers; the map uses integer arithmetic only.
 *
 * Memory: the caller's.  Errors: TALLY_EINVAL, TALLY_EQUOTA (limits).
 */
#ifndef TALLY_PLACE_H
#define TALLY_PLACE_H

#include "common/base/err.h"

/* ---- the planner ---- */

struct plan_machine {
	uint64_t bits_per_s;	/* all cards together, payload rate; 0: no network at all */
	uint64_t adder_bytes_per_s; /* what its server reads while summing; 0: not the limit */
	bool is_gpu;		/* has an agent of the job */
	bool has_server;	/* a summation server runs here (gpu: the colocated one) */
};

enum plan_bottleneck {
	PLAN_NONE,		/* one machine: no network */
	PLAN_GPU_CARD,		/* the slowest GPU machine's card: M/B */
	PLAN_ALL_CARDS,		/* every card is full */
	PLAN_ADDER,		/* summing rate */
	PLAN_NO_SERVER,		/* nothing can sum: no plan */
};

struct plan {
	double round_time_s;		/* T for model_bytes */
	double ring_time_s;		/* ring all-reduce over the GPU machines: 2(n-1)M/(n min B) */
	double ps_time_s;		/* plain parameter server on the k CPU machines; 0: none */
	enum plan_bottleneck bottleneck;
	uint32_t bottleneck_machine;	/* index; the limiting one where there is one */
};

/*
 * Finds the smallest round time T (FACTS: sum over CPU machines of T*B_i/n, over
 * GPU machines with a server of max(0, (T*B_j - M)/(n-2)), each capped by
 * T*A_i/n, must reach M; and T >= M / min B_gpu) by bisection.  share[i] gets the
 * bytes that machine i's server sums (as double; their sum is model_bytes; 0
 * without a server).  n = 1: T = 0, everything on the agent (shares 0).  n = 2:
 * a colocated server costs its machine nothing extra.  k > n gains nothing over
 * k = n but is used.  TALLY_ENOSERVER when there is no server where one is
 * needed, TALLY_EINVAL for no GPU machine or a GPU machine without a card.
 */
int plan_solve(const struct plan_machine *m, uint32_t count, double model_bytes,
	       double *share, struct plan *plan, struct err *e);

/*
 * Turns shares into integer weights, sum exactly 2^32 (all 0 when all shares
 * are), largest remainder, ties by index.
 */
void plan_weights(const double *share, uint32_t count, uint32_t *weight);

/* ---- the map ---- */

#define PLACE_ALGORITHM	1u	/* version of everything below; travels with the epochs */
#define PLACE_NOWHERE	UINT16_MAX

/*
 * Agents' view of servers: index into the epoch's server list.  A server keeps
 * its index for the job's life; a dead or drained one gets weight 0 and is not
 * an owner any more.
 */
struct place_server {
	uint64_t assigned_bytes;	/* of all declared tensors */
	uint32_t weight;		/* parts per 2^32 */
	bool alive;			/* false: owns nothing, gets nothing */
};

struct place {
	uint32_t chunk_bytes;
	uint32_t nservers;
	uint64_t total_bytes;		/* of declared tensors */
	struct place_server server[SERVERS_PER_JOB_MAX];
};

void place_init(struct place *p, uint32_t chunk_bytes);

/* Number of chunks of a tensor (0 bytes: 0 chunks). */
uint32_t place_chunks(const struct place *p, uint64_t bytes);

/* Sets the servers and weights of the first epoch (before any tensor). */
int place_start(struct place *p, const uint32_t *weight, uint32_t nservers, struct err *e);

struct place_tensor {
	uint64_t bytes;
	uint16_t *owner;	/* caller's, place_chunks(bytes) entries */
};

/*
 * Places one batch.  Size-aware: no server ends more than one chunk over its
 * weight of the batch where that is possible at all; consecutive chunks of a
 * tensor go to different servers in proportion to the weights; small tensors
 * fill what the large left.  Batches balance against all that went before.
 */
void place_batch(struct place *p, struct place_tensor *t, uint32_t count);

/* Takes a tensor out again (undeclare). */
void place_forget(struct place *p, const struct place_tensor *t);

/*
 * Repair: servers whose alive[] is false lose everything; only their chunks
 * move, to the others by their weights.  Rebalance: new weights (a longer list
 * adds servers); moves as few bytes as reach them within a chunk.  Both rewrite
 * owner[] of all tensors given (all of the job, in log order) and return the
 * bytes that moved.
 */
uint64_t place_repair(struct place *p, const bool *alive, struct place_tensor *t, uint32_t count);
uint64_t place_rebalance(struct place *p, const uint32_t *weight, uint32_t nservers,
			 struct place_tensor *t, uint32_t count);

#endif
