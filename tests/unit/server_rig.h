/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_rig.h - one server core, three workers, one tensor of int32: what the tests of
 * server_core.c share.  Worker w's contribution is what it pushes, in every element.
 */
#ifndef TALLY_TESTS_SERVER_RIG_H
#define TALLY_TESTS_SERVER_RIG_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/kern/kern.h"
#include "server/server_core.h"

enum { N = 3, JOB = 4, TENSOR = 9, EPOCH = 6, NODE = 50, SEG = 4096, WINDOW = 3 * SEG };

/* One tensor of two chunks of two segments of int32; the server has chunk 0 alone. */
static struct srv_core core;
static struct srv_job *job;
static struct srv_tensor *tensor;
static struct srv_peer peer[N];
static uint8_t *window[N], *slots;
static const struct geom geom = { 4 * SEG, 2 * SEG, SEG };

static inline void add_tensor(void)
{
	const bool mine[2] = { true, false };
	struct srv_tensor_desc d = { .id = TENSOR, .dtype = DTYPE_I32, .geom = geom, .mine = mine };
	uint64_t bytes;
	void *mem = calloc(1, srv_tensor_size(N, &d, &bytes));

	ck_assert_uint_eq(bytes, 2 * SEG);
	slots = malloc(bytes);
	tensor = srv_tensor_add(&core, job, mem, slots, &d);
}

static inline void setup(void)
{
	struct srv_job_desc d = { .id = JOB, .n = N, .world = N, .epoch = EPOCH,
				  .chunk_bytes = 2 * SEG, .seg_bytes = SEG,
				  .window_bytes = WINDOW, .engines = 2 };

	kern_init(~0u);
	srv_init(&core);
	job = srv_job_start(&core, calloc(1, srv_job_size(N, 2)), &d);
	for (uint32_t w = 0; w < N; w++) {
		window[w] = calloc(1, WINDOW);
		job->worker[w].node = NODE + w;
		job->worker[w].window = window[w];
		srv_peer_init(&core, &peer[w], NODE + w, 0);
	}
	add_tensor();
}

static inline void teardown(void)
{
	srv_check(&core);
	srv_job_stop(&core, job);
	ck_assert_uint_eq(srv_job_borrowed(job), 0);
	srv_tensor_forget(&core, tensor);
	srv_job_forget(&core, job);
	free(tensor);
	free(slots);
	free(job);
	for (uint32_t w = 0; w < N; w++)
		free(window[w]);
}

/* ---- frames ---- */

static inline struct frame frame(uint8_t type, uint32_t w, uint32_t round)
{
	struct frame f = { .type = type, .worker = (uint16_t)w, .job = JOB, .tensor = TENSOR,
			   .epoch = EPOCH, .round = round, .rslot = 100 + w };

	if (type == FRAME_PUSH) {
		f.dtype = DTYPE_I32;
		f.rop = ROP_SUM;
		f.length = SEG;
	}
	return f;
}

static inline void fill(void *at, int32_t v)
{
	for (uint32_t i = 0; i < SEG / 4; i++)
		memcpy((uint8_t *)at + 4 * (size_t)i, &v, 4);
}

/* A payload lands; false: it was not wanted. */
static inline bool push_frame(const struct frame *f, int32_t v)
{
	struct srv_peer *p = &peer[f->worker];
	void *at = srv_place(&core, p, f);

	if (at) {
		fill(at, v);
		srv_frame(&core, p, f, at, NULL);
	}
	srv_check(&core);
	return at;
}

static inline bool push(uint32_t w, uint32_t round, int32_t v)
{
	struct frame f = frame(FRAME_PUSH, w, round);

	return push_frame(&f, v);
}

static inline void say(uint8_t type, uint32_t w, uint32_t round)
{
	struct frame f = frame(type, w, round);

	srv_frame(&core, &peer[w], &f, NULL, NULL);
	srv_check(&core);
}

static inline void say_attempt(uint8_t type, uint32_t w, uint32_t round, uint8_t attempt)
{
	struct frame f = frame(type, w, round);

	f.attempt = attempt;
	srv_frame(&core, &peer[w], &f, NULL, NULL);
	srv_check(&core);
}

/* Asks after a round, knowing that a link broke. */
static inline void probe_hurt(uint32_t w, uint32_t round)
{
	struct frame f = frame(FRAME_PROBE, w, round);

	f.aux = 1;
	srv_frame(&core, &peer[w], &f, NULL, NULL);
	srv_check(&core);
}

/* The next frame for worker w has this type; its result's first element. */
static inline int32_t expect(uint32_t w, uint8_t type, uint32_t round)
{
	struct srv_send s;
	int32_t v = 0;

	ck_assert(srv_next(&core, &peer[w], false, &s));
	ck_assert_uint_eq(s.frame.type, type);
	ck_assert_uint_eq(s.frame.round, round);
	ck_assert_uint_eq(s.frame.worker, w);
	if (type == FRAME_RESULT) {
		ck_assert(s.frame.slot == 100 + w || s.frame.slot == SLOT_NONE);
		memcpy(&v, s.data, 4);
		srv_sent(&core, s.in);
	}
	return v;
}

static inline void expect_silence(void)
{
	struct srv_send s;

	for (uint32_t w = 0; w < N; w++)
		ck_assert(!srv_next(&core, &peer[w], false, &s));
}

static inline void whole_round(uint32_t round)
{
	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, round, 1 << w));
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, round), 7);
}

#endif
