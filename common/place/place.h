/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - which server sums which chunk, and how long a round will take.
 *
 * Three pure parts.  The planner turns a cluster description into byte shares per
 * server and a predicted round time.  The sizes say what tensors are cut into.  The
 * map turns shares and the declaration log into chunk -> server.  Scheduler, agents,
 * servers and the CLI replay the same log through the same code and get the same
 * answer, so placement travels as a function, not as a table.
 *
 * Determinism: same inputs in the same order, same outputs, on every machine.
 * Shares are turned into integers (parts of PLACE_WEIGHT_SUM) by the scheduler
 * once and travel as integers; the map uses integer arithmetic only.
 *
 * Memory: the caller's.  Errors: TALLY_EINVAL, TALLY_ENOSERVER, TALLY_EQUOTA.
 */
#ifndef TALLY_PLACE_H
#define TALLY_PLACE_H

#include "common/base/err.h"

/* ---- the planner (plan.c) ---- */

struct plan_machine {
	uint64_t bits_per_s;	/* all cards together, payload rate; 0: no network at all */
	uint64_t adder_bytes_per_s; /* what its server reads while summing; 0: not the limit */
	bool is_gpu;		/* has an agent of the job */
	bool has_server;	/* a summation server runs here (gpu: the colocated one) */
};

enum plan_bottleneck {
	PLAN_NONE,		/* one machine: no network */
	PLAN_GPU_CARD,		/* the slowest GPU machine's card: M/B */
	PLAN_ALL_CARDS,		/* every summing machine's card is full */
	PLAN_ADDER,		/* summing rate */
	PLAN_NO_SERVER,		/* nothing can sum: no plan */
};

struct plan {
	double round_time_s;		/* T for model_bytes */
	double ring_time_s;		/* ring all-reduce of the GPU machines: 2(n-1)M/(n min B) */
	double ps_time_s;		/* plain parameter server, M/k per CPU machine; 0: none */
	enum plan_bottleneck bottleneck;
	uint32_t bottleneck_machine;	/* index; for PLAN_GPU_CARD and PLAN_ADDER */
};

/*
 * Finds the smallest round time T (FACTS: sum over CPU machines of T*B_i/n, over
 * GPU machines with a server of max(0, (T*B_j - M)/(n-2)), each capped by
 * T*A_i/n, must reach M; and T >= M / min B_gpu) by bisection.  share[i] gets the
 * bytes that machine i's server sums (as double; their sum is model_bytes; 0
 * without a server).  Where the slowest GPU card holds T up, the shares are those that
 * load the other cards least: none is busy for T, so none has to be in step.  The shares'
 * proportions do not depend on model_bytes: pass 1 while it is not known.
 *
 * n = 1: T = 0, everything on the agent (shares 0).  n = 2: a colocated server
 * costs its machine nothing extra; CPU machines come first.  k > n gains nothing over
 * k = n but is used.
 * TALLY_ENOSERVER when there is no server where one is needed (plan->bottleneck
 * says PLAN_NO_SERVER then), TALLY_EINVAL for no GPU machine, a GPU machine
 * without a card where one is needed, or a model_bytes that is no size.
 */
int plan_solve(const struct plan_machine *m, uint32_t count, double model_bytes,
	       double *share, struct plan *plan, struct err *e);

/*
 * Turns shares into integer weights, sum exactly PLACE_WEIGHT_SUM (all 0 when
 * all shares are), largest remainder, ties by index.
 */
void plan_weights(const double *share, uint32_t count, uint32_t *weight);

/*
 * The time of a round in which machine i's server sums bytes[i], whatever made
 * them so: the longest of any machine's traffic over its rate (a GPU machine
 * moves M + (n-2)*bytes[i] each way, a CPU machine n*bytes[i]) and of any
 * server's n*bytes[i] over its adder.  INFINITY where bytes meet no card.
 */
double plan_time_of(const struct plan_machine *m, uint32_t count, double model_bytes,
		    const double *bytes);

/* ---- what tensors are cut into (sizes.c) ---- */

struct place_sizes {
	uint32_t chunk_bytes;	/* unit of placement */
	uint32_t seg_bytes;	/* of travel and of summing; divides a chunk */
	uint32_t window_bytes;	/* of one agent at one server */
};

/*
 * For a job on so many servers (0: one machine alone) whose slowest machine and fastest
 * server have cards of that speed, nominal, all cards of one together.  chunk_bytes: what
 * its ranks want, a multiple of CHUNK_BYTES_MIN, or 0.
 */
void place_sizes(struct place_sizes *s, uint32_t chunk_bytes, uint32_t nservers,
		 uint64_t slowest_bits, uint64_t fastest_bits);

/* ---- the map (place.c) ---- */

#define PLACE_ALGORITHM	2u	/* version of all below, and of geom_shard(); travels with epochs */
#define PLACE_NOWHERE	UINT16_MAX	/* owner of a chunk that no server sums (n = 1) */
#define PLACE_WEIGHT_SUM UINT32_MAX	/* "all of it" still fits a uint32_t */

static_assert(SERVERS_PER_JOB_MAX < PLACE_NOWHERE, "an owner is 16 bits");

/*
 * Agents' view of servers: index into the epoch's server list.  A server keeps
 * its index; a dead or drained one gets weight 0 and is not an owner any more,
 * and its index may be another server's later.
 */
struct place_server {
	uint64_t assigned_bytes;	/* of all declared tensors */
	uint32_t weight;		/* parts of PLACE_WEIGHT_SUM */
	bool alive;			/* false: owns nothing, gets nothing */

	uint64_t excess, seen, taken;	/* scratch of place_rebalance */
};

/* A binary heap of server indices; scratch of one call. */
struct place_heap {
	uint32_t len;
	uint16_t at[SERVERS_PER_JOB_MAX];
};

struct place {
	uint32_t chunk_bytes;
	uint32_t epoch;			/* the caller's: what moves from now on is marked with it */
	uint32_t nservers;
	uint64_t total_bytes;		/* of declared tensors */
	uint64_t placed_bytes;		/* of those, the sum of assigned_bytes */
	uint64_t weight_sum;		/* of all servers; 0: every chunk is nowhere */
	struct place_server server[SERVERS_PER_JOB_MAX];
	struct place_heap waiting, ready; /* scratch */
};

/* chunk_bytes > 0. */
void place_init(struct place *p, uint32_t chunk_bytes);

/* Number of chunks of a tensor (0 bytes: 0 chunks; bytes <= TENSOR_BYTES_MAX). */
uint32_t place_chunks(const struct place *p, uint64_t bytes);

/*
 * Sets the servers and weights of the first epoch (before any tensor).  Weights
 * count relative to their sum, whatever it is.  TALLY_EQUOTA: too many servers.
 */
int place_start(struct place *p, const uint32_t *weight, uint32_t nservers, struct err *e);

struct place_tensor {
	uint64_t bytes;
	uint16_t *owner;	/* caller's, place_chunks(bytes) entries */
	uint32_t *since;	/* the same: epoch that placed the chunk there; NULL: not wanted */
	uint32_t order;		/* scratch: needs no value before, has no meaning after */
};

/*
 * Places one batch.  Size-aware: no chunk takes a server more than that chunk's
 * bytes over its weight of what is placed by then; consecutive chunks of a
 * tensor go to different servers in proportion to the weights (smooth weighted
 * round robin); the tensors' last, shorter chunks and the small tensors then
 * fill what the full chunks left, largest first.  Batches balance against all
 * that went before.  O(chunks * log servers).
 */
void place_batch(struct place *p, struct place_tensor *t, uint32_t count);

/* Takes a tensor out again (undeclare). */
void place_forget(struct place *p, const struct place_tensor *t);

/* Where a chunk is, as it travels: the epoch that placed it, and its owner. */
#define PLACED(epoch, owner)	((uint64_t)(epoch) << 16 | (owner))
#define PLACED_EPOCH(placed)	((uint32_t)((placed) >> 16))
#define PLACED_OWNER(placed)	((uint16_t)(placed))

/*
 * Counts a tensor in whose chunks are where `placed` says, one after the other: a latecomer
 * is told what the log made of it.  False, and nothing is done: there is no such server.
 */
bool place_adopt(struct place *p, struct place_tensor *t, const uint64_t *placed);

/*
 * Repair: servers whose alive[] is false lose everything; only their chunks (and those
 * without an owner)
 * move, filling the others up toward the new weights (the plan without the dead;
 * both lists have nservers entries, a dead server's weight counts as 0).
 * A dead server's index may be another one's later: alive[] is the caller's word.
 * Rebalance: new weights (a weight brings a dead server back, weight 0 drains);
 * moves as few bytes as reach them within a chunk.  A longer list adds servers.
 * Both rewrite owner[] of all tensors given (all of the job, in log order, at
 * most TENSORS_PER_JOB_MAX) and return the bytes that moved.  They want
 * p->nservers <= nservers <= SERVERS_PER_JOB_MAX: the caller has checked.
 */
uint64_t place_repair(struct place *p, const uint32_t *weight, const bool *alive,
		      uint32_t nservers, struct place_tensor *t, uint32_t count);
uint64_t place_rebalance(struct place *p, const uint32_t *weight, uint32_t nservers,
			 struct place_tensor *t, uint32_t count);

/* Some server is more than a chunk over its weight: a rebalance to these weights moves some. */
bool place_uneven(const struct place *p);

/* A log entry EPOCH. */
struct place_change {
	uint32_t epoch;			/* what moves is marked with it */
	bool repair;			/* else a rebalance */
	bool anew;			/* chunks that stay are marked, too: a smaller world */
	uint32_t nservers;		/* weights and alive, as of those two */
	const uint32_t *weight;
	const bool *alive;
	uint32_t nplaced;		/* 0, or of all chunks of all tensors where they are by */
	const uint64_t *placed;		/* now: for who has missed what came before */
};

/*
 * Carries it out on all tensors, as everybody does.  False: `placed` cannot be, and the
 * map is of no use any more.
 */
bool place_epoch(struct place *p, const struct place_change *c, struct place_tensor *t,
		 uint32_t count);

#endif
