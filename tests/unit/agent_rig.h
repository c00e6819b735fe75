/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_rig.h - what the tests of an agent's core stand on: machine 1 of 2 with two
 * local ranks, one server, three tensors, and what happens to them.  Included by one
 * test program each; setup() and setup_small() differ in the window.
 */
#ifndef TALLY_TESTS_AGENT_RIG_H
#define TALLY_TESTS_AGENT_RIG_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/kern/kern.h"
#include "worker-agent/agent_core.h"

enum { JOB = 4, EPOCH = 6, SEG = 4096, SEGS = 4, TENSORS = 3, ME = 1 };

/* Machine 1 of 2 with two local ranks; one server; tensors of four int32 segments. */
static struct ag_core core;
static struct ag_job *job;
static struct ag_peer peer;
static struct ag_route *route;
static struct ag_tensor *tensor[TENSORS];
static uint8_t *input[TENSORS][2], *sum[TENSORS], *result[TENSORS][2];
static uint64_t marks[TENSORS][2][SEGS];
static mono_t now;

static const uint32_t the_route[SEGS];	/* of all chunks: number 0 */

static inline struct ag_tensor_desc desc_of(uint32_t k, bool whole)
{
	struct ag_tensor_desc d = {
		.id = k + 1, .dtype = DTYPE_I32, .geom = { SEGS * SEG, SEG, SEG },
		.route = the_route,
		.sum = sum[k], .sum_slot = SLOT_SLAB(9, 0), .whole = whole,
	};

	for (int i = 0; i < 2; i++) {
		d.result[i] = result[k][i];
		d.result_slot[i] = SLOT_SLAB(k + 1, (uint64_t)i * SEGS * SEG);
		d.mark[i] = marks[k][i];
	}
	return d;
}

/* With what is in its memory; round: the last that a process before had finished. */
static inline void put_tensor(uint32_t k, uint32_t round, bool whole)
{
	struct ag_tensor_desc d = desc_of(k, whole);

	ck_assert(ag_desc_resume(&d, round));
	tensor[k] = ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &d)), &d);
}

static inline void add_tensor(uint32_t k)
{
	sum[k] = malloc(SEGS * SEG);
	memset(marks[k], 0, sizeof(marks[k]));
	for (int i = 0; i < 2; i++) {
		input[k][i] = malloc(SEGS * SEG);
		for (uint32_t e = 0; e < SEGS * SEG / 4; e++)
			memcpy(input[k][i] + 4 * (size_t)e, &(int32_t){ i + 1 }, 4);
		result[k][i] = calloc(1, SEGS * SEG);
	}
	put_tensor(k, 0, false);
}

/* The chunks in the order in which this machine takes them. */
static uint32_t taken[SEGS];

static inline void find_order(const struct ag_tensor *t)
{
	for (uint32_t i = 0; i < SEGS; i++) {
		uint32_t before = 0;

		for (uint32_t o = 0; o < SEGS; o++)
			before += t->seg[o].order < t->seg[i].order;
		taken[before] = t->seg[i].chunk;
	}
}

static inline void start(uint32_t n, uint64_t window)
{
	struct ag_job_desc d = {
		.id = JOB, .n = n, .me = n > 1 ? ME : 0, .nlocal = 2, .world = 2 * n,
		.epoch = EPOCH,
		.chunk_bytes = SEG, .seg_bytes = SEG, .nroutes = 1, .route = &route,
	};

	kern_init(~0u);
	now = 10 * NS_PER_SEC;
	ag_init(&core);
	ag_peer_init(&core, &peer, 77, 0);
	route = ag_route_init(calloc(1, ag_route_size(window)), n > 1 ? &peer : NULL, 0, window,
			      now);
	job = ag_job_start(&core, calloc(1, sizeof(*job)), &d);
	for (uint32_t k = 0; k < TENSORS; k++)
		add_tensor(k);
	find_order(tensor[0]);
	if (n > 1)
		ag_peer_up(&core, &peer, false, now);
}

static inline void setup(void)
{
	start(2, 64 * SEG);
}

static inline void setup_small(void)
{
	start(2, 2 * SEG);
}

static inline void setup_alone(void)
{
	start(1, 0);
}

static inline void teardown(void)
{
	ag_check(&core);
	ag_job_stop(&core, job);
	for (uint32_t k = 0; k < TENSORS; k++) {
		ag_tensor_forget(&core, tensor[k]);
		free(tensor[k]);
		free(sum[k]);
		for (int i = 0; i < 2; i++) {
			free(input[k][i]);
			free(result[k][i]);
		}
	}
	ag_job_forget(&core, job);
	while (!list_empty(&job->routes)) {
		struct ag_route *r = list_first(&job->routes, struct ag_route, link);

		ag_route_del(r);
		free(r);
	}
	free(job);
}

/* ---- what happens to it ---- */

static inline void post_one(uint32_t k, uint32_t round, uint32_t local, int32_t priority)
{
	static uint64_t seq;
	struct ag_post p = {
		.round = round, .local = local, .rop = ROP_SUM, .root_local = -1,
		.priority = priority, .seq = seq++, .length = SEGS * SEG, .base = input[k][local],
		.base_slot = SLOT_SLAB(20 + local, 0),
	};

	ag_post(&core, tensor[k], &p, now);
	ag_check(&core);
}

static inline void post(uint32_t k, uint32_t round, int32_t priority)
{
	post_one(k, round, 0, priority);
	post_one(k, round, 1, priority);
}

/* The next frame, as if its payload were sent at once; FRAME_NONE: none. */
static inline struct frame next(void)
{
	struct ag_send s;
	struct frame f = { .type = FRAME_NONE };

	if (ag_next(&core, now, &s)) {
		f = s.frame;
		ck_assert_ptr_eq(s.peer, &peer);
		if (s.data)
			ag_sent(&core, &peer, s.seg, f.length, now);
	}
	ag_check(&core);
	return f;
}

/* Below, `at` is a place in that order. */
static inline struct frame expect(uint8_t type, uint32_t k, uint32_t at)
{
	struct frame f = next();

	ck_assert_str_eq(frame_type_name(f.type), frame_type_name(type));
	ck_assert_uint_eq(f.tensor, k + 1);
	ck_assert_uint_eq(f.chunk, taken[at]);
	ck_assert_uint_eq(f.worker, ME);
	ck_assert_uint_eq(f.epoch, EPOCH);
	return f;
}

static inline void expect_pushes(uint32_t k)
{
	for (uint32_t i = 0; i < SEGS; i++)
		expect(FRAME_PUSH, k, i);
}

static inline void expect_silence(void)
{
	ck_assert_uint_eq(next().type, FRAME_NONE);
}

static inline struct frame answer(uint8_t type, uint32_t k, uint32_t at)
{
	struct frame f = { .type = type, .worker = ME, .job = JOB, .tensor = k + 1,
			   .chunk = taken[at], .round = tensor[k]->round, .epoch = EPOCH };

	if (type == FRAME_RESULT) {
		f.dtype = DTYPE_I32;
		f.rop = ROP_SUM;
		f.length = SEG;
	}
	return f;
}

static inline void say(uint8_t type, uint32_t k, uint32_t at)
{
	struct frame f = answer(type, k, at);

	ag_frame(&core, &peer, &f, now);
	ag_check(&core);
}

static inline void say_held(uint32_t k, uint32_t at, uint64_t slot)
{
	struct frame f = answer(FRAME_HELD, k, at);

	f.slot = slot;
	ag_frame(&core, &peer, &f, now);
	ag_check(&core);
}

/* A result lands; false: it was not wanted. */
static inline bool result_lands(uint32_t k, uint32_t at)
{
	struct frame f = answer(FRAME_RESULT, k, at);
	uint8_t *to = ag_place(&core, &peer, &f, now);

	if (!to)
		return false;
	ck_assert_ptr_eq(to, result[k][f.round & 1] + (size_t)taken[at] * SEG);
	memset(to, 5, SEG);
	ag_frame(&core, &peer, &f, now);
	ag_check(&core);
	return true;
}

static inline void results(uint32_t k)
{
	for (uint32_t c = 0; c < SEGS; c++)
		ck_assert(result_lands(k, c));
	ck_assert_ptr_eq(ag_done(&core), tensor[k]);
	ck_assert_ptr_null(ag_done(&core));
}

static inline void later(uint64_t ms)
{
	now += mono_ms(ms);
	ag_tick(&core, now);
	ag_check(&core);
}

#endif
