// SPDX-License-Identifier: Apache-2.0
/*
 * What an agent that is started again finds of the process before it.
 *
 * To each result belongs a mark, in memory that ranks keep: the round, once the result is
 * there.  It is set before the result may be copied over a rank's input, so an input whose
 * result is not marked is still an input.  The new process finishes the segments with a mark
 * from what is there, and pushes the others again.  Where a job goes on without lost ranks
 * inputs stay until the whole tensor is done, and a round of which it has not all may begin
 * again in a smaller world: there it keeps all or nothing, and nothing of two worlds.  What
 * begins again loses its mark before anything of the new world is pushed.
 * A round that only others had finished, when this machine came into the job, is marked by no
 * operation.
 */
#include "worker-agent/agent_core.h"

static_assert(WORLD_SIZE_MAX < 1u << 24, "a mark has 24 bits for it");

static uint32_t mark_index(const struct geom *g, uint32_t chunk, uint32_t offset)
{
	return chunk * (uint32_t)div_round_up(g->chunk_bytes, g->seg_bytes) +
	       offset / g->seg_bytes;
}

/* Where s's result of a round is marked; NULL: nowhere. */
static uint64_t *mark_of(const struct ag_seg *s, uint32_t round)
{
	const struct ag_tensor *t = s->tensor;
	uint64_t *m = t->mark[round & 1];

	return m ? m + mark_index(&t->geom, s->chunk, s->offset) : NULL;
}

static bool chunk_done(const struct ag_tensor *t, uint32_t chunk)
{
	for (uint32_t k = 0; k < geom_chunk_segs(&t->geom, chunk); k++)
		if (t->seg[t->first[chunk] + k].state != SEG_DONE)
			return false;
	return true;
}

/* To ranks that take results by runs of chunks, once for each chunk. */
void ag_tell(const struct ag_seg *s)
{
	const struct ag_tensor *t = s->tensor;

	if (!t->groups || !chunk_done(t, s->chunk))
		return;
	for (uint32_t l = 0; l < t->job->nlocal; l++)
		if (t->in[l].tell)
			atomic_fetch_add_explicit(&t->in[l].tell[s->chunk / t->in[l].run], 1,
						  memory_order_release);
}

/*
 * Nothing that follows may come before it, whenever this process ends.  Who reads it comes
 * after that end, when all stores up to some point of the program were made and none behind:
 * so the order in the program is enough, and waiting for the result's bytes would not help.
 */
static void set_mark(const struct ag_seg *s, uint64_t mark)
{
	uint64_t *m = mark_of(s, s->tensor->round);

	if (!m)
		return;
	__atomic_store_n(m, mark, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void ag_mark(const struct ag_seg *s)
{
	const struct ag_tensor *t = s->tensor;

	set_mark(s, AG_MARK(t->job->world, t->rop, t->round));
}

void ag_unmark(const struct ag_seg *s)
{
	set_mark(s, 0);
}

bool ag_was_done(const struct ag_seg *s)
{
	return s->tensor->kept && s->tensor->kept == s->tensor->round && s->kept && !MUTATE(25);
}

/* Ranks, or servers on this machine, may be able to write where a mark lies. */
static uint64_t read_mark(const uint64_t *m)
{
	return __atomic_load_n(m, __ATOMIC_RELAXED);
}

/* The result of a round is there, all of it, and of one world: as the first mark has it. */
static bool is_whole(const struct geom *g, const uint64_t *marks, uint64_t first, uint32_t round)
{
	for (uint32_t c = 0; c < geom_chunks(g); c++)
		for (uint32_t k = 0; k < geom_chunk_segs(g, c); k++)
			if (read_mark(&marks[mark_index(g, c, k * g->seg_bytes)]) != first)
				return false;
	return AG_MARK_ROUND(first) == round;
}

bool ag_desc_resume(struct ag_tensor_desc *d, uint32_t round)
{
	const uint64_t *done = d->mark[round & 1], *next = d->mark[round_next(round) & 1];
	uint64_t first;

	if (!ag_marks(&d->geom)) {
		d->round = round;
		return true;
	}
	d->kept = !d->whole || is_whole(&d->geom, next, read_mark(next), round_next(round));
	if (!round)
		return true;
	first = read_mark(done);
	if (!is_whole(&d->geom, done, first, round) || AG_MARK_ROP(first) >= ROP_END)
		return false;
	d->round = round;
	d->rop = AG_MARK_ROP(first);
	return true;
}

void ag_tensor_resume(struct ag_tensor *t, const struct ag_tensor_desc *d)
{
	t->round = d->round;
	t->rop = d->rop;
	if (d->kept)
		t->kept = round_next(d->round);
	for (uint32_t k = 0; k < t->nsegs; k++) {
		struct ag_seg *s = &t->seg[k];

		s->kept = d->kept && (d->whole || AG_MARK_ROUND(read_mark(mark_of(s, t->kept))) ==
						  t->kept);
		if (d->rop != ROP_NONE)
			s->state = SEG_DONE;
		else if (t->round)
			ag_mark(s);
	}
}
