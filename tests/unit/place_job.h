/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_job.h - a job to place: its map, its tensors and their owners, and the
 * recount that every test of the map ends with.
 *
 * A struct job is large: keep it static.  job_init empties it; the tensors that
 * add_tensor appends get their owners from the job's pool.
 */
#ifndef TALLY_TESTS_PLACE_JOB_H
#define TALLY_TESTS_PLACE_JOB_H

#include <check.h>
#include <string.h>

#include "common/place/place.h"

#define CHUNK		CHUNK_BYTES_DEFAULT
#define TENSORS		16384u
#define OWNERS		(1u << 21)

struct job {
	struct place p;
	struct place_tensor t[TENSORS];
	uint32_t tensors;
	uint32_t owners;

	struct plan_machine m[SERVERS_PER_JOB_MAX];	/* where the weights came from */
	uint32_t machines;
	uint32_t weight[SERVERS_PER_JOB_MAX];
	struct plan plan;

	uint16_t owner[OWNERS];		/* last: job_init leaves it as it is */
};

static inline void job_init(struct job *j, uint32_t chunk_bytes)
{
	memset(j, 0, offsetof(struct job, owner));
	place_init(&j->p, chunk_bytes);
}

static inline struct place_tensor *add_tensor(struct job *j, uint64_t bytes)
{
	struct place_tensor *t = &j->t[j->tensors++];

	ck_assert_uint_le(j->tensors, TENSORS);
	*t = (struct place_tensor){ .bytes = bytes, .owner = &j->owner[j->owners],
				    .order = 0xdeadbeef };
	j->owners += place_chunks(&j->p, bytes);
	ck_assert_uint_le(j->owners, OWNERS);
	return t;
}

static inline void start(struct job *j, uint32_t servers)
{
	ck_assert_int_eq(place_start(&j->p, j->weight, servers, NULL), 0);
}

static inline uint64_t chunk_len(const struct job *j, const struct place_tensor *t, uint32_t c)
{
	uint64_t left = t->bytes - (uint64_t)c * j->p.chunk_bytes;

	return MIN(left, j->p.chunk_bytes);
}

/* Bytes per server, counted from the owners. */
static inline void count_bytes(const struct job *j, double *bytes)
{
	for (uint32_t i = 0; i < j->p.nservers; i++)
		bytes[i] = 0;
	for (uint32_t i = 0; i < j->tensors; i++)
		for (uint32_t c = 0; c < place_chunks(&j->p, j->t[i].bytes); c++) {
			if (j->t[i].owner[c] >= j->p.nservers)	/* cheaper than ck_assert */
				ck_abort_msg("tensor %u chunk %u has no owner", i, c);
			bytes[j->t[i].owner[c]] += (double)chunk_len(j, &j->t[i], c);
		}
}

/* Every chunk has a live owner with a weight; the books agree with the owners. */
static inline void check_map(const struct job *j)
{
	static double bytes[SERVERS_PER_JOB_MAX];
	uint64_t total = 0, weights = 0;

	count_bytes(j, bytes);
	for (uint32_t i = 0; i < j->p.nservers; i++) {
		const struct place_server *s = &j->p.server[i];

		ck_assert_double_eq(bytes[i], (double)s->assigned_bytes);
		ck_assert_msg(bytes[i] == 0 || s->alive, "dead server %u owns chunks", i);
		total += s->assigned_bytes;
		weights += s->weight;
	}
	ck_assert_uint_eq(total, j->p.total_bytes);
	ck_assert_uint_eq(total, j->p.placed_bytes);
	ck_assert_uint_eq(weights, j->p.weight_sum);
}

/* Bytes by which server i exceeds its weight of the whole. */
static inline double over(const struct job *j, uint32_t i)
{
	const struct place_server *s = &j->p.server[i];

	return (double)s->assigned_bytes -
	       (double)j->p.total_bytes * s->weight / (double)j->p.weight_sum;
}

static inline void check_balance(const struct job *j, double slack)
{
	for (uint32_t i = 0; i < j->p.nservers; i++)
		ck_assert_msg(over(j, i) <= slack, "server %u is %g bytes over", i, over(j, i));
}

#endif
