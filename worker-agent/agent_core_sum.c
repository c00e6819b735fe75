// SPDX-License-Identifier: Apache-2.0
/*
 * What this machine adds up, and where a result goes besides its slot.
 *
 * A segment's inputs are its ranks' tensors, or the pieces of its groups of GPUs.  With several
 * machines their sum is pushed; a machine alone makes the result of them.
 */
#include <string.h>

#include "common/kern/kern.h"
#include "worker-agent/agent_core.h"

/* Where input i of the segment lies: a group's piece of its chunk, or a rank's tensor. */
static const uint8_t *input(const struct ag_seg *s, uint32_t i, uint64_t *slot)
{
	const struct ag_tensor *t = s->tensor;
	const struct ag_piece *p = &t->piece[s->chunk * t->job->nlocal + i];
	uint64_t at = t->groups ? s->offset : ag_seg_at(s);
	uint64_t slab = t->groups ? p->slot : t->in[i].slot;

	*slot = slab == SLOT_NONE ? SLOT_NONE : slab + at;
	return (t->groups ? p->base : t->in[i].base) + at;
}

/* Whether the sum has it: a group's piece, or what a rank that takes part gave. */
static bool is_input(const struct ag_seg *s, uint32_t i)
{
	const struct ag_tensor *t = s->tensor;

	if (t->rop == ROP_BROADCAST)
		return (int32_t)i == t->root_local;
	return t->groups || (MUTATE(21) ? s->posted : t->job->live) >> i & 1;
}

static uint32_t sum_inputs(struct ag_core *c, const struct ag_seg *s, uint8_t *out, uint32_t div,
			   bool cold)
{
	const struct ag_tensor *t = s->tensor;
	uint32_t inputs = t->groups ? t->groups : t->job->nlocal, n = 0;
	const void *in[LOCAL_RANKS_MAX];
	uint64_t slot;

	for (uint32_t i = 0; i < inputs; i++)
		if (is_input(s, i))
			in[n++] = input(s, i, &slot);
	(cold ? kern_sum_cold : kern_sum)(t->dtype, out, in, n, s->len / dtype_bytes(t->dtype),
					  div);
	c->count.bytes_added += (uint64_t)n * s->len;
	return n;
}

/* Of a job that is on this machine alone. */
static uint32_t divisor(const struct ag_tensor *t)
{
	return t->rop == ROP_MEAN ? t->job->world : 1;
}

static_assert(LOCAL_RANKS_MAX <= 1u << FRAME_SHIFT_MAX, "a machine's sum can be scaled to fit");

/* The inputs of this machine: its groups of GPUs, or its ranks that take part. */
static uint64_t inputs_of(const struct ag_tensor *t)
{
	return t->groups ? UINT64_MAX >> (64 - t->groups) : t->job->live;
}

/* A mean's sum of 16-bit floats is divided by 2^this, so that it fits where every input does. */
uint32_t ag_contribution_shift(const struct ag_tensor *t)
{
	uint32_t n = (uint32_t)__builtin_popcountll(inputs_of(t));

	return t->rop == ROP_MEAN ? kern_shift(t->dtype, n) : 0;
}

/* This machine's contribution: its only input as it is, or the sum of all. */
const uint8_t *ag_contribution(struct ag_core *c, struct ag_seg *s, uint64_t *slot)
{
	struct ag_tensor *t = s->tensor;
	uint64_t inputs = inputs_of(t);
	uint32_t only = t->rop == ROP_BROADCAST ? (uint32_t)t->root_local :
						  (uint32_t)__builtin_ctzll(inputs);

	if (!(inputs & (inputs - 1)) || t->rop == ROP_BROADCAST)
		return input(s, only, slot);
	*slot = t->sum_slot == SLOT_NONE ? SLOT_NONE : t->sum_slot + ag_seg_at(s);
	if (!s->added)					/* not cold: it is sent now */
		sum_inputs(c, s, t->sum + ag_seg_at(s), 1u << ag_contribution_shift(t), false);
	s->added = true;
	return t->sum + ag_seg_at(s);
}

/* Of one group on one machine, whose result is where its input was. */
static bool in_place(const struct ag_tensor *t)
{
	return t->job->n == 1 && t->groups == 1;
}

/*
 * Copies a result to where it is wanted. A reader of a large tensor begins with its first bytes,
 * when the last ones have come, so the copy goes past the caches. Where all is on one machine
 * the place has just been read for the sum, is in a cache, and stays there.
 */
static void copy_result(const struct ag_seg *s, uint8_t *to, const void *read)
{
	const struct ag_tensor *t = s->tensor;
	const void *result = t->result[t->round & 1] + ag_seg_at(s);

	if (read)
		kern_copy_cold(to, read, s->len);
	else if (t->job->n > 1 && t->geom.bytes >= KERN_COLD_BYTES)
		kern_sum_cold(DTYPE_U8, to, &result, 1, s->len, 1);
	else
		memcpy(to, result, s->len);
}

void ag_hand_out(const struct ag_seg *s, const void *read)
{
	const struct ag_tensor *t = s->tensor;
	uint64_t slot;

	for (uint32_t l = 0; l < t->job->nlocal; l++)
		if (t->in[l].out)
			copy_result(s, t->in[l].out + ag_seg_at(s), read);
	if (in_place(t) && divisor(t) > 1)
		copy_result(s, (uint8_t *)(uintptr_t)input(s, 0, &slot), read);
	for (uint32_t i = 0; t->groups && t->kept == t->round && i < t->nwas; i++)
		copy_result(s, t->was[i] + ag_seg_at(s), read);
}

/* Of such a result nothing is in a cache when a rank looks at it; a copy is made at once. */
static bool goes_cold(const struct ag_tensor *t)
{
	for (uint32_t l = 0; l < t->job->nlocal; l++)
		if (t->in[l].out)
			return false;
	return t->geom.bytes >= KERN_COLD_BYTES;
}

/*
 * Sums a segment of a job that this machine has alone; returns the bytes moved. One group's
 * pieces are the result already, where they are: only a mean is left to do. It is divided
 * elsewhere and brought there once it is marked, so that an agent that is started after us
 * divides no result again.
 */
uint64_t ag_sum_alone(struct ag_core *c, const struct ag_seg *s)
{
	const struct ag_tensor *t = s->tensor;
	uint8_t *out = t->result[t->round & 1] + ag_seg_at(s);
	uint32_t div = divisor(t), n;

	if (in_place(t) && div == 1)
		return 0;
	n = sum_inputs(c, s, out, div, !in_place(t) && goes_cold(t));
	return (uint64_t)(n + 1 + in_place(t)) * s->len;
}
