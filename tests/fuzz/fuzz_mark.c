// SPDX-License-Identifier: Apache-2.0
/*
 * Marks of results, in memory that ranks had in hand: any words there, of any tensor and
 * round.  What an agent that was started again makes of them is a round with an operation
 * that can be, or nothing.  The marks have exactly their size, so that a sanitizer sees one
 * too far.
 */
#include <stdlib.h>

#include "common/base/bytes.h"
#include "worker-agent/agent_core.h"

#define HEAD	16u
#define PAGES	64u		/* of a tensor, at most */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p;
	size_t left;
};

/* A word is a right mark of one of two rounds, or anything. */
static uint64_t word(struct input *in, uint32_t round)
{
	uint8_t b[10] = { 0 };
	size_t n = MIN(in->left, sizeof(b));

	memcpy(b, in->p, n);
	if (n && b[0] & 1) {
		n = MIN(n, (size_t)2);
		b[2] = 0;
	}
	in->p += n;
	in->left -= n;
	if (!(b[0] & 1))
		return get_le64(b + 1);
	return AG_MARK(1 + (b[1] >> 4), b[1] % 16 % (ROP_END + 1),
		       b[0] & 2 ? round : round_next(round));
}

static uint64_t *marks(struct input *in, const struct geom *g, uint32_t round)
{
	uint64_t n = ag_marks(g), *m = malloc(MAX(n, 1) * sizeof(*m));

	ASSERT(m);
	for (uint64_t i = 0; i < n; i++)
		m[i] = i && !in->left ? m[i - 1] : word(in, round);
	return m;
}

/* An engine with these chunks: bits. */
static void resume(const struct ag_tensor_desc *d, uint32_t mine, uint32_t world)
{
	struct ag_job job = { .world = world };
	uint32_t chunks = geom_chunks(&d->geom), n = 0;
	struct ag_tensor t = {
		.job = &job, .geom = d->geom, .nchunks = chunks,
		.mark = { d->mark[0], d->mark[1] },
	};

	t.seg = calloc(ag_marks(&d->geom) + 1, sizeof(*t.seg));
	ASSERT(t.seg);
	for (uint32_t c = 0; c < chunks; c++)
		for (uint32_t k = 0; mine >> c % 32 & 1 && k < geom_chunk_segs(&d->geom, c); k++)
			t.seg[n++] = (struct ag_seg){
				.tensor = &t, .chunk = c, .offset = k * d->geom.seg_bytes,
			};
	t.nsegs = n;
	ag_tensor_resume(&t, d);
	for (uint32_t i = 0; i < n; i++) {
		ASSERT(!t.seg[i].kept || d->kept);
		ASSERT(t.seg[i].state == (d->rop == ROP_NONE ? SEG_IDLE : SEG_DONE));
		(void)ag_was_done(&t.seg[i]);
	}
	free(t.seg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data + HEAD, size - HEAD };
	struct ag_tensor_desc d = { .id = 1 };
	uint32_t round;

	if (size < HEAD)
		return 0;
	d.geom.seg_bytes = (1 + data[0] % 4) * PAGE_BYTES;
	d.geom.chunk_bytes = d.geom.seg_bytes * (1 + data[1] % 4);
	d.geom.bytes = (get_le32(data + 2) % (PAGES * PAGE_BYTES)) & ~UINT64_C(3);
	d.whole = data[6] & 1;
	round = data[6] & 2 ? get_le32(data + 8) : data[7] % 4;
	for (uint32_t i = 0; i < 2; i++)
		d.mark[i] = marks(&in, &d.geom, round);
	if (ag_desc_resume(&d, round)) {
		ASSERT(d.round == round || !round);
		ASSERT(d.rop < ROP_END);
		ASSERT(d.rop == ROP_NONE || AG_MARK_ROUND(*d.mark[round & 1]) == round);
		resume(&d, get_le32(data + 12), 1 + data[1]);
	}
	free(d.mark[0]);
	free(d.mark[1]);
	return 0;
}
