// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks' story.  All rounds of all tensors have a common order.  A rank
 * submits them in an order of its own, within a distance of the common one; it
 * waits for any it likes, once it has submitted everything before it (so no
 * program deadlocks by itself: the first unfinished one in the common order is
 * always submitted in the end).  Submissions of ranks thus cross, which fills
 * windows with contributions that nobody matches yet.
 *
 * When an agent finishes a round, its result must be there, bit for bit, every
 * rank of the job must have submitted it, and then memory goes bad that may: the
 * inputs at once, the result of two rounds ago when all local ranks go on.
 */
#include <stdlib.h>

#include "common/kern/kern.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

#define CALLS_MS	2000u	/* a rank that computes calls libtally again within this time */

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	struct rng r = { a * 0x9e3779b97f4a7c15u + b };

	r.state = rng_u64(&r) + c;
	return rng_u64(&r);
}

uint8_t sim_rop(const struct sim *s, const struct sim_job *j, uint32_t tensor, uint32_t round)
{
	static const uint8_t ops[] = { ROP_SUM, ROP_SUM, ROP_SUM, ROP_MEAN, ROP_BROADCAST };

	return ops[mix(s->p.seed + j->index, tensor, round) % ARRAY_SIZE(ops)];
}

/* Its machine is cut off, and may be lost for that. */
static bool is_parted(const struct sim *s, const struct sim_job *j, uint32_t rank)
{
	return s->p.parts && j->p->shrink && (!sim_rank_lives(j, rank) ||
	       s->agent[j->p->agent[j->p->machine[rank]]]->ctl.cut_until > s->now);
}

/* One who lives when it is first asked for. */
uint32_t sim_root(const struct sim *s, struct sim_job *j, uint32_t tensor, uint32_t round)
{
	uint32_t *root = &j->tensor[tensor].root[round];
	uint32_t r = (uint32_t)(mix(s->p.seed + j->index, round, tensor + 77) % j->p->world);

	if (*root)
		return *root - 1;
	for (uint32_t i = 0; i < j->p->world && is_parted(s, j, r); i++)
		r = (r + 1) % j->p->world;
	while (j->p->shrink && !sim_rank_lives(j, r) && j->lost != (1u << j->p->world) - 1)
		r = (r + 1) % j->p->world;
	*root = r + 1;
	return r;
}

void sim_world_add(struct sim_job *j, uint32_t world)
{
	for (uint32_t i = 0; i < j->nworlds; i++)
		if (j->worlds[i] == world)
			return;
	ASSERT(j->nworlds < SIM_WORLDS);
	j->worlds[j->nworlds++] = world;
}

bool sim_machine_lives(const struct sim_job *j, uint32_t machine)
{
	for (uint32_t r = 0; r < j->p->world; r++)
		if (j->p->machine[r] == machine && sim_rank_lives(j, r))
			return true;
	return false;
}

/* ---- data ---- */

/* Bits of 8 random bytes that stay, and that are set. */
struct shape {
	uint64_t keep, set;
};

/* Floating point of like size and either sign: sums round, so the order shows. */
static struct shape like_size(uint8_t dtype)
{
	switch (dtype) {
	case DTYPE_F32: return (struct shape){ 0x83ffffff83ffffff, 0x3c0000003c000000 };
	case DTYPE_F64: return (struct shape){ 0x803fffffffffffff, 0x3f80000000000000 };
	case DTYPE_F16: return (struct shape){ 0x8fff8fff8fff8fff, 0x3000300030003000 };
	case DTYPE_BF16: return (struct shape){ 0x83ff83ff83ff83ff, 0x3c003c003c003c00 };
	default: return (struct shape){ UINT64_MAX, 0 };
	}
}

/* 2^r in the first elements of each segment, where that is exact: each counts once. */
static uint64_t one_bit(uint8_t dtype, uint32_t rank)
{
	union { double d; uint64_t u; } f64 = { .d = (double)(1u << rank) };
	union { float f; uint32_t u; } f32 = { .f = (float)(1u << rank) };

	switch (dtype) {
	case DTYPE_F64: return f64.u;
	case DTYPE_I64: return UINT64_C(1) << rank;
	case DTYPE_F32: return (uint64_t)f32.u << 32 | f32.u;
	default: return UINT64_C(0x100000001) << rank;
	}
}

static bool has_bits(uint8_t dtype)
{
	return dtype == DTYPE_F64 || dtype == DTYPE_I64 || dtype == DTYPE_F32 ||
	       dtype == DTYPE_I32;
}

/* A third of the simulator's time, where the compiler does not take several at once. */
__attribute__((optimize("O3"), target_clones("default", "arch=x86-64-v4")))
static void fill_words(struct rng *state, struct shape shape, uint8_t *out, uint64_t n)
{
	struct rng r = *state;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t v = (rng_u64(&r) & shape.keep) | shape.set;

		memcpy(out + 8 * i, &v, 8);
	}
	*state = r;
}

/* Rank r's input: bits that say whose it is, and data whose sum depends on the order. */
static void fill(const struct sim *s, const struct sim_job *j, uint32_t tensor, uint32_t round,
		 uint32_t rank, uint8_t *out)
{
	const struct sim_tensor *t = &j->tensor[tensor];
	struct rng r = { mix(s->p.seed + j->index, (uint64_t)tensor << 32 | round, rank) };
	uint64_t bytes = t->geom.bytes, bit = one_bit(t->dtype, rank);
	uint8_t tail[8];

	fill_words(&r, like_size(t->dtype), out, bytes / 8);
	fill_words(&r, like_size(t->dtype), tail, 1);
	memcpy(out + bytes / 8 * 8, tail, bytes % 8);
	for (uint64_t at = 0; at < bytes && has_bits(t->dtype); at += t->geom.seg_bytes)
		memcpy(out + at, &bit, MIN(8u, bytes - at));
}

static uint32_t inputs_of(const struct sim *s, const struct sim_job *j, uint32_t world,
			  uint32_t machine, uint32_t tensor, uint32_t round, uint8_t *in[])
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < j->p->world; r++)
		if (j->p->machine[r] == machine && world >> r & 1)
			fill(s, j, tensor, round, r, in[n++]);
	return n;
}

static void *buffer(uint64_t bytes)
{
	void *p = malloc(bytes + 1);

	ASSERT(p);
	return p;
}

/* Rank order within a machine, then machine by machine; one machine: all at once. */
static void expected_sum(const struct sim *s, const struct sim_job *j, uint32_t world,
			 uint32_t tensor, uint32_t round, uint8_t *out)
{
	const struct sim_tensor *t = &j->tensor[tensor];
	uint64_t len = t->geom.bytes / dtype_bytes(t->dtype);
	uint32_t div = sim_rop(s, j, tensor, round) == ROP_MEAN ?
		       (uint32_t)__builtin_popcount(world) : 1, machines = 0;
	uint8_t *in[SIM_LOCAL], *sum[SIM_AGENTS], shift[SIM_AGENTS];

	for (uint32_t l = 0; l < SIM_LOCAL; l++)
		in[l] = buffer(t->geom.bytes);
	for (uint32_t m = 0; m < j->p->n; m++) {
		uint32_t n = inputs_of(s, j, world, m, tensor, round, in);

		if (!n)
			continue;
		sum[machines] = buffer(t->geom.bytes);
		shift[machines] = div > 1 ? kern_shift(t->dtype, n) : 0;
		kern_sum_at(KERN_C, t->dtype, sum[machines], (const void *const *)in, n, len,
			    j->p->n == 1 ? div : 1u << shift[machines]);
		machines++;
	}
	if (j->p->n == 1)
		memcpy(out, sum[0], t->geom.bytes);
	else
		kern_mean_at(KERN_C, t->dtype, out, (const void *const *)sum, shift, machines,
			     len, div);
	for (uint32_t l = 0; l < SIM_LOCAL; l++)
		free(in[l]);
	while (machines)
		free(sum[--machines]);
}

static const uint8_t *expected(const struct sim *s, struct sim_job *j, uint32_t world,
			       uint32_t tensor, uint32_t round)
{
	struct sim_tensor *t = &j->tensor[tensor];
	uint8_t *out = t->expect[round & 1];

	if (t->expect_round[round & 1] == round && t->expect_world[round & 1] == world)
		return out;
	if (sim_rop(s, j, tensor, round) == ROP_BROADCAST)
		fill(s, j, tensor, round, sim_root(s, j, tensor, round), out);
	else
		expected_sum(s, j, world, tensor, round, out);
	t->expect_round[round & 1] = round;
	t->expect_world[round & 1] = world;
	return out;
}

/* ---- what must be true ---- */

static uint8_t *result_of(struct sim *s, const struct sim_job *j, uint32_t agent, uint32_t tensor,
			  uint32_t round)
{
	return (uint8_t *)s->agent[agent]->job[j->index].tensor[tensor].result +
	       (round & 1) * j->tensor[tensor].geom.bytes;
}

static uint8_t *input_of(struct sim *s, const struct sim_job *j, uint32_t rank, uint32_t tensor)
{
	uint32_t agent = j->p->agent[j->p->machine[rank]];

	return s->agent[agent]->job[j->index].tensor[tensor].input[j->rank[rank].local];
}

/* Whose contributions a segment's sum has, once each where all is well. */
static uint64_t contributors(const struct sim_tensor *t, const uint8_t *result, uint64_t at)
{
	union { uint64_t u; double d; uint32_t u32; float f; } v = { 0 };

	at -= at % t->geom.seg_bytes;
	memcpy(&v, result + at, MIN(dtype_bytes(t->dtype), t->geom.bytes - at));
	switch (t->dtype) {
	case DTYPE_F64: return v.d >= 0 && v.d < 1e9 ? (uint64_t)v.d : UINT64_MAX;
	case DTYPE_F32: return v.f >= 0 && v.f < 1e9f ? (uint64_t)v.f : UINT64_MAX;
	case DTYPE_I32: return v.u32;
	default: return v.u;
	}
}

/* Beside the bits of the reference: said first, because it says what has gone wrong. */
static void must_have_all(struct sim *s, const struct sim_job *j, uint32_t world, uint32_t agent,
			  uint32_t tensor, uint32_t round)
{
	const struct sim_tensor *t = &j->tensor[tensor];
	const uint8_t *got = result_of(s, j, agent, tensor, round);
	uint64_t all = world;

	if (!has_bits(t->dtype) || sim_rop(s, j, tensor, round) != ROP_SUM)
		return;
	for (uint64_t at = 0; at < t->geom.bytes; at += t->geom.seg_bytes)
		if (contributors(t, got, at) != all)
			sim_fail(s, "job %u agent %u tensor %u round %u: the sum at byte %llu has "
				 "contributors 0x%llx, not 0x%llx", j->index, agent, tensor + 1,
				 round, (unsigned long long)at,
				 (unsigned long long)contributors(t, got, at),
				 (unsigned long long)all);
}

static void must_equal(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t tensor,
		       uint32_t round, const char *when)
{
	const uint8_t *want = expected(s, j, j->tensor[tensor].world[round & 1], tensor, round);
	const uint8_t *got = result_of(s, j, agent, tensor, round);
	uint64_t at = 0, bytes = j->tensor[tensor].geom.bytes;

	if (!memcmp(want, got, bytes))
		return;
	while (want[at] == got[at])
		at++;
	sim_fail(s, "job %u agent %u tensor %u (%s, %llu bytes) round %u (%s): result wrong %s, "
		 "byte %llu", j->index, agent, tensor + 1, dtype_name(j->tensor[tensor].dtype),
		 (unsigned long long)bytes, round, rop_name(sim_rop(s, j, tensor, round)), when,
		 (unsigned long long)at);
}

static void wakes_in(struct sim *s, const struct sim_job *j, uint32_t rank, mono_t most)
{
	sim_at(s, (mono_t)sim_below(s, (uint64_t)most),
	       &(struct sim_event){ .type = EV_RANK, .proc = SIM_NOBODY, .a = rank,
				    .c = j->index });
}

void sim_rank_wakes(struct sim *s, const struct sim_job *j, uint32_t rank)
{
	wakes_in(s, j, rank, 300000);
}

/* The rank wants the result where its input is. */
static bool in_place(const struct sim *s, const struct sim_job *j, uint32_t rank, uint32_t tensor)
{
	return !j->p->shrink && mix(s->p.seed, rank, 7 + tensor) & 1;
}

static void completed(struct sim *s, struct sim_job *j, uint32_t rank, uint32_t agent,
		      uint32_t tensor, uint32_t round)
{
	struct sim_rank *r = &j->rank[rank];
	uint64_t bytes = j->tensor[tensor].geom.bytes;
	uint8_t *input = input_of(s, j, rank, tensor);

	if (r->submitted[tensor] != round || r->done[tensor] != round - 1)
		sim_fail(s, "rank %u: tensor %u round %u is done, submitted %u", rank, tensor + 1,
			 round, r->submitted[tensor]);
	r->done[tensor] = round;
	if (r->again[tensor] == round)		/* the agent cannot write there any more */
		memcpy(input, result_of(s, j, agent, tensor, round), bytes);
	if (in_place(s, j, rank, tensor) &&
	    memcmp(input, result_of(s, j, agent, tensor, round), bytes))
		sim_fail(s, "rank %u: tensor %u round %u: not the result in place", rank,
			 tensor + 1, round);
	memset(input, 0xdb, bytes);
	if (r->waiting == (int32_t)tensor) {
		r->waiting = -1;
		sim_rank_wakes(s, j, rank);
	}
}

static void all_have(struct sim *s, struct sim_job *j, uint32_t tensor)
{
	struct sim_tensor *t = &j->tensor[tensor];
	uint32_t least = j->p->rounds;

	for (uint32_t m = 0; m < j->p->n; m++)
		if (!j->p->shrink || sim_machine_lives(j, m))
			least = MIN(least, t->done[m]);
	if (least <= t->all)
		return;
	j->rounds_done += least - t->all;
	while (t->all < least)
		t->all_at[++t->all] = s->now;
	for (uint32_t m = 0; m < j->p->n && t->ends && least == j->p->rounds; m++)
		if (s->agent[j->p->agent[m]]->alive)
			sim_undeclare(s, j, j->p->agent[m], tensor);
}

/* As ranks with GPUs do, each in a group of its own: sums are those of whole inputs.  Of one rank
 * alone a piece is the result, and none is shown. */
static bool by_pieces(const struct sim *s, const struct sim_job *j, uint32_t k, uint32_t round)
{
	return !j->p->shrink && j->tensor[k].geom.bytes && j->p->world > 1 &&
	       sim_rop(s, j, k, round) != ROP_BROADCAST &&
	       mix(s->p.seed, k, 2 * round + 1) % 3 == 0;
}

/* Chunks that a local rank has counted in one word. */
static uint32_t run_of(uint32_t k, uint32_t local)
{
	return 1 + (k + local) % 3;
}

/* Each local rank's words say so, too, where it has asked for that. */
static void must_be_told(struct sim *s, const struct sim_job *j, uint32_t agent, uint32_t k,
			 uint32_t round)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	uint32_t chunks = geom_chunks(&j->tensor[k].geom);

	for (uint32_t l = 0; by_pieces(s, j, k, round) && l < aj->front.nlocal; l++)
		for (uint32_t c = 0, run = run_of(k, l); c < chunks; c += run)
			if (aj->tensor[k].words[l][c / run] != MIN(run, chunks - c))
				sim_fail(s, "agent %u: tensor %u round %u is done, of chunk %u and "
					 "those behind it %u of %u were told to local rank %u",
					 agent, k + 1, round, c, aj->tensor[k].words[l][c / run],
					 MIN(run, chunks - c), l);
}

void sim_ranks_lost(struct sim *s, struct sim_job *j, uint32_t ranks)
{
	j->lost |= ranks;
	j->last_progress = s->now;
	sim_grow_forgotten(j);
	for (uint32_t k = 0; k < j->p->ntensors && j->p->shrink; k++)
		all_have(s, j, k);
}

/* Some machine with a rank that lives shows the round: as that one is, so must all be. */
static bool is_fixed(const struct sim_job *j, const struct sim_tensor *t, uint32_t round)
{
	for (uint32_t m = 0; m < j->p->n; m++)
		if (t->done[m] >= round && (!j->p->shrink || sim_machine_lives(j, m)))
			return t->fixed[round & 1] == round;
	return false;
}

/* Of which world the first result is, whole: any that there was. */
static void fix_world(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t tensor,
		      uint32_t round)
{
	struct sim_tensor *t = &j->tensor[tensor];
	uint32_t w = j->nworlds;

	while (w-- > 0)
		if (!memcmp(expected(s, j, j->worlds[w], tensor, round),
			    result_of(s, j, agent, tensor, round), t->geom.bytes))
			break;
	t->fixed[round & 1] = round;
	t->world[round & 1] = j->worlds[w == UINT32_MAX ? j->nworlds - 1 : w];
}

void sim_round_done(struct sim *s, struct sim_job *j, uint32_t agent, uint32_t tensor,
		    uint32_t round)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	struct sim_tensor *t = &j->tensor[tensor];
	uint32_t world;

	sim_trace(s, "a%u: job %u tensor %u round %u is done", agent, j->index, tensor + 1, round);
	if (j->p->shrink && !sim_machine_lives(j, aj->me))
		return;			/* nobody is left who sees it */
	if (!is_fixed(j, t, round))
		fix_world(s, j, agent, tensor, round);
	world = t->world[round & 1];
	must_have_all(s, j, world, agent, tensor, round);
	must_equal(s, j, agent, tensor, round, "when done");
	must_be_told(s, j, agent, tensor, round);
	for (uint32_t r = 0; r < j->p->world; r++) {
		/* A tensor of no elements has nothing to wait for. */
		if (j->rank[r].submitted[tensor] < round && t->geom.bytes && world >> r & 1 &&
		    (sim_rop(s, j, tensor, round) != ROP_BROADCAST || sim_rank_lives(j, r)))
			sim_fail(s, "agent %u: tensor %u round %u is done without rank %u", agent,
				 tensor + 1, round, r);
		if (j->p->machine[r] == aj->me && sim_rank_lives(j, r))
			completed(s, j, r, agent, tensor, round);
	}
	if (aj->tensor[tensor].sum)
		memset(aj->tensor[tensor].sum, 0xdc, t->geom.bytes);
	j->last_progress = s->now;
	t->done[aj->me] = round;
	all_have(s, j, tensor);
}

bool sim_all_done(const struct sim_job *j)
{
	return j->rounds_done == (uint64_t)j->p->ntensors * j->p->rounds;
}

uint64_t sim_rounds(const struct sim *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->p.njobs; i++)
		n += s->job[i].rounds_done;
	return n;
}

bool sim_had_enough(const struct sim *s)
{
	return sim_rounds(s) >= RUN_ROUNDS && s->faults >= RUN_FAULTS - 1;
}

/* ---- submitting ---- */

static struct ring_sub descriptor(const struct sim *s, struct sim_job *j, uint32_t rank,
				  uint32_t k, uint32_t id)
{
	uint32_t round = j->rank[rank].submitted[k];
	uint8_t rop = sim_rop(s, j, k, round);
	bool listens = rop == ROP_BROADCAST && sim_root(s, j, k, round) != rank;

	return (struct ring_sub){
		.length = listens ? 0 : j->tensor[k].geom.bytes, .tensor = id, .round = round,
		.root = sim_root(s, j, k, round), .rop = rop,
		.priority = (int32_t)(mix(s->p.seed, k, 5) % 3),
	};
}

/* Copies of chunks come to an end at any time, in any order. */
static void pieces_follow(struct sim *s, const struct sim_job *j, const struct sim_event *e)
{
	struct sim_event piece = *e;

	piece.type = EV_PIECE;
	for (uint32_t c = 0; c < geom_chunks(&j->tensor[e->b].geom); c++) {
		piece.b = e->b + c * SIM_TENSORS;
		sim_at(s, (mono_t)sim_below(s, 2 * NS_PER_MS), &piece);
	}
}

static void post_to(struct sim_agent *a, struct ag_tensor *t, const struct ag_post *p, mono_t now)
{
	sim_cover_given(t, p);
	ag_post(&a->core, t, p, now);
}

/* The agent reads the descriptor of one chunk. */
static void piece_event(struct sim *s, const struct sim_event *e)
{
	struct sim_job *j = &s->job[e->c];
	uint32_t rank = e->a, k = e->b % SIM_TENSORS, chunk = e->b / SIM_TENSORS;
	struct sim_agent *a = s->agent[j->p->agent[j->p->machine[rank]]];
	struct sim_agent_job *aj = &a->job[e->c];
	struct sim_agent_tensor *at = &aj->tensor[k];
	uint32_t local = j->rank[rank].local;
	uint32_t slab = at->slab + (aj->front.nlocal > 1 ? 2 : 1) + local;
	struct ring_sub sub = descriptor(s, j, rank, k, aj->log.id[k]);
	struct fr_tensor *ft;
	struct ag_post post;
	struct err err;

	if (s->stopped || aj->over || !a->alive)
		return;
	sub.part = PART_PIECE;
	sub.group = (uint8_t)local;
	sub.at = (uint64_t)chunk * j->tensor[k].geom.chunk_bytes;
	sub.length = geom_chunk_len(&j->tensor[k].geom, chunk);
	if (fr_submit(&a->front, &aj->front, local, &sub, at->input[local] + sub.at,
		      SLOT_SLAB(slab, sub.at), s->now, &ft, &post, &err))
		sim_fail(s, "rank %u: tensor %u round %u chunk %u: %s", rank, k + 1, sub.round,
			 chunk, err.text);
	else
		post_to(a, at->core, &post, s->now);
}

/* The agent reads the descriptor from the rank's ring. */
static void submit_event(struct sim *s, const struct sim_event *e)
{
	struct sim_job *j = &s->job[e->c];
	uint32_t rank = e->a, k = e->b, agent = j->p->agent[j->p->machine[rank]];
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[e->c];
	struct sim_agent_tensor *at = &aj->tensor[k];
	struct sim_rank *r = &j->rank[rank];
	struct ring_sub sub = descriptor(s, j, rank, k, aj->log.id[k]);
	bool listens = sub.rop == ROP_BROADCAST && sub.root != rank;
	bool pieces = by_pieces(s, j, k, sub.round);
	const void *base = pieces ? (const void *)at->words[r->local] : at->input[r->local];
	uint32_t slab = at->slab + (aj->front.nlocal > 1 ? 2 : 1) + r->local;
	struct fr_tensor *ft;
	struct ag_post post;
	struct err err;
	int rc;

	if (s->stopped || aj->over || !a->alive || !sim_rank_lives(j, rank))
		return;
	if (pieces) {
		sub.part = PART_OPEN;
		sub.groups = (uint8_t)aj->front.nlocal;
		sub.run = run_of(k, r->local);
		sub.length = 4 * div_round_up(geom_chunks(&j->tensor[k].geom), sub.run);
		memset(at->words[r->local], 0, sizeof(at->words[r->local]));
		pieces_follow(s, j, e);
	}
	rc = fr_submit(&a->front, &aj->front, r->local, &sub, listens ? NULL : base,
		       listens ? SLOT_NONE : SLOT_SLAB(slab, 0),
		       sim_clock(s, sim_agent_proc(agent)), &ft, &post, &err);
	if (rc == TALLY_ESHUTDOWN && sim_root_is_lost(s, j, agent, k, sub.round))
		return;
	if (rc) {
		sim_fail(s, "rank %u: tensor %u round %u: %s", rank, k + 1, sub.round, err.text);
		return;
	}
	if (in_place(s, j, rank, k) && r->again[k] != sub.round)
		post.out = at->input[r->local];
	/* Nobody may need the result of two rounds ago from here on. */
	if (fr_all_posted(ft) && r->again[k] != sub.round)
		memset(result_of(s, j, agent, k, sub.round), 0xdd, j->tensor[k].geom.bytes);
	if (ft->engines)
		post_to(a, at->core, &post, sim_clock(s, sim_agent_proc(agent)));
	else if (!ft->left && fr_all_posted(ft)) {
		fr_finish(&a->front, ft, sim_clock(s, sim_agent_proc(agent)));
		sim_round_done(s, j, agent, k, sub.round);
	}
}

static bool in_flight(const struct sim_rank *r, uint32_t tensor)
{
	return r->submitted[tensor] != r->done[tensor];
}

static bool was_submitted(const struct sim_job *j, const struct sim_rank *r, uint32_t pos)
{
	return r->submitted[j->order[pos].tensor] >= j->order[pos].round;
}

/* Position of what the rank submits next; norder: nothing can be. */
static uint32_t choose(struct sim *s, const struct sim_job *j, uint32_t rank)
{
	const struct sim_rank *r = &j->rank[rank];
	uint32_t can[SIM_TENSORS], n = 0, machine = j->p->machine[rank];
	uint32_t end = MIN(r->pos + j->p->lookahead, j->norder);
	uint32_t fence = j->p->grow && r->passed < j->p->barriers ?
			 sim_barrier_pos(j, r->passed + 1) : j->norder;
	const struct sim_agent_job *aj = &s->agent[j->p->agent[machine]]->job[j->index];

	end = MIN(end, fence);
	for (uint32_t i = r->pos; i < end && n < SIM_TENSORS; i++) {
		uint32_t k = j->order[i].tensor;

		if (aj->tensor[k].core && r->declared[k] && !in_flight(r, k) &&
		    j->order[i].round == r->submitted[k] + 1)
			can[n++] = i;
	}
	if (!n)
		return j->norder;
	switch (j->p->order) {
	case ORDER_FIRST: return can[0];
	case ORDER_LAST: return can[n - 1];
	case ORDER_CROSSED: return can[machine % 2 ? 0 : n - 1];
	default: return can[sim_below(s, n)];
	}
}

static void submit_at(struct sim *s, const struct sim_job *j, uint32_t rank, uint32_t k)
{
	uint32_t agent = j->p->agent[j->p->machine[rank]];

	sim_at(s, 5000, &(struct sim_event){ .type = EV_SUBMIT, .proc = sim_agent_proc(agent),
					     .a = rank, .b = k, .c = j->index });
}

static void submit(struct sim *s, struct sim_job *j, uint32_t rank, uint32_t pos)
{
	struct sim_rank *r = &j->rank[rank];
	uint32_t k = j->order[pos].tensor, round = j->order[pos].round;
	uint32_t agent = j->p->agent[j->p->machine[rank]];

	for (uint32_t back = 1; back <= 2 && back < round; back++)
		if (round - back > s->agent[agent]->job[j->index].tensor[k].elsewhere)
			must_equal(s, j, agent, k, round - back, "when going on");
	for (uint32_t o = 0; o < j->p->world; o++)
		sim_totals.ahead += j->rank[o].submitted[k] + 1 == round &&
				    j->rank[o].done[k] + 2 == round;
	fill(s, j, k, round, rank, input_of(s, j, rank, k));
	r->submitted[k] = round;
	r->submitted_at[k] = s->now;
	while (r->pos < j->norder && was_submitted(j, r, r->pos))
		r->pos++;
	sim_trace(s, "job %u rank %u submits tensor %u round %u", j->index, rank, k + 1, round);
	submit_at(s, j, rank, k);
}

/* Something before pos and not done; -1: none. */
static int32_t wait_for(struct sim *s, const struct sim_job *j, const struct sim_rank *r)
{
	uint32_t can[SIM_TENSORS], n = 0;

	for (uint32_t i = 0; i < r->pos; i++) {
		uint32_t k = j->order[i].tensor;

		if (in_flight(r, k) && j->order[i].round == r->submitted[k])
			can[n++] = k;
	}
	return n ? (int32_t)can[sim_below(s, n)] : -1;
}

static void rank_acts(struct sim *s, struct sim_job *j, uint32_t rank)
{
	const struct sim_agent *a = s->agent[j->p->agent[j->p->machine[rank]]];
	struct sim_rank *r = &j->rank[rank];
	uint32_t pos;

	if (s->stopped || r->away || r->waiting >= 0 || a->job[j->index].over || !a->alive ||
	    !sim_rank_lives(j, rank) || !sim_is_with_agent(s, j, rank))
		return;
	/* All come there, because what is before it is submitted by then. */
	if (r->barriers == r->passed && r->barriers < j->p->barriers &&
	    r->pos >= sim_barrier_pos(j, r->barriers + 1)) {
		r->waiting = j->p->grow ? wait_for(s, j, r) : -1;
		if (r->waiting >= 0)
			return;
		sim_barrier(s, j, rank);
	}
	if (r->barriers > r->passed || r->pos == j->norder)
		return;
	pos = choose(s, j, rank);
	if (pos == j->norder || sim_chance(s, 250))
		r->waiting = wait_for(s, j, r);
	if (r->waiting >= 0)
		return;
	if (pos < j->norder)
		submit(s, j, rank, pos);
	wakes_in(s, j, rank, s->p.think ? 2 * s->p.think : 300000);
}

/* As take_back() of the library. */
static void submit_again(struct sim *s, struct sim_job *j, uint32_t rank)
{
	struct sim_rank *r = &j->rank[rank];

	r->away = false;
	for (uint32_t k = 0; k < j->p->ntensors; k++) {
		if (!in_flight(r, k))
			continue;
		r->again[k] = r->submitted[k];
		r->submitted_at[k] = s->now;
		sim_trace(s, "job %u rank %u submits tensor %u round %u again", j->index, rank,
			  k + 1, r->submitted[k]);
		submit_at(s, j, rank, k);
	}
	sim_rank_wakes(s, j, rank);
}

/* Its agent may have been started once more, or have been lost. */
static void rank_calls(struct sim *s, struct sim_job *j, uint32_t rank, uint32_t life)
{
	const struct sim_agent *a = s->agent[j->p->agent[j->p->machine[rank]]];

	if (j->rank[rank].away && a->alive && a->life == life && a->job[j->index].core)
		submit_again(s, j, rank);
}

bool sim_rank_event(struct sim *s, const struct sim_event *e)
{
	if (e->type == EV_RANK && e->b)
		rank_calls(s, &s->job[e->c], e->a, e->b - 1);
	else if (e->type == EV_RANK)
		rank_acts(s, &s->job[e->c], e->a);
	else if (e->type == EV_SUBMIT)
		submit_event(s, e);
	else if (e->type == EV_PIECE)
		piece_event(s, e);
	else
		return false;
	return true;
}

/* It has asked, and computes: the answer waits for it. */
void sim_rank_back(struct sim *s, struct sim_job *j, uint32_t rank)
{
	const struct sim_agent *a = s->agent[j->p->agent[j->p->machine[rank]]];

	j->rank[rank].away = !sim_below(s, 4);
	for (uint32_t k = 0; k < j->p->ntensors; k++)
		if (in_flight(&j->rank[rank], k))
			j->rank[rank].submitted_at[k] = s->now;
	if (!j->rank[rank].away)
		submit_again(s, j, rank);
	else
		sim_at(s, (mono_t)sim_below(s, CALLS_MS * NS_PER_MS),
		       &(struct sim_event){ .type = EV_RANK, .proc = SIM_NOBODY, .a = rank,
					    .b = 1 + a->life, .c = j->index });
}

void sim_ranks_start(struct sim *s, struct sim_job *j)
{
	uint32_t next[SIM_TENSORS] = { 0 };

	j->norder = 0;
	while (j->norder < j->p->ntensors * j->p->rounds) {
		uint32_t k = (uint32_t)sim_below(s, j->p->ntensors);

		if (next[k] == j->p->rounds)
			continue;
		j->order[j->norder].tensor = k;
		j->order[j->norder++].round = ++next[k];
	}
	for (uint32_t r = 0; r < j->p->world; r++) {
		j->rank[r].waiting = -1;
		sim_rank_wakes(s, j, r);
	}
}
