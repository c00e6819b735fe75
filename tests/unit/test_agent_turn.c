// SPDX-License-Identifier: Apache-2.0
/*
 * agent_core_turn.c: what is pushed next, against a look at every segment, while servers
 * come and go, become local and remote, and have room or none; jobs beside each other.
 */
#include <check.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "worker-agent/agent_core.h"

enum { SEG = 4096, ROUTES = 6, TENSORS = 8, CHUNKS = 24, STEPS = 3000 };

static struct ag_core core;
static struct ag_job job;
static struct ag_peer peer[ROUTES];
static struct ag_route *route[ROUTES];
static struct ag_tensor *tensor[TENSORS];
static uint8_t input[CHUNKS * SEG], result[CHUNKS * SEG];

static void add_tensor(struct rng *rng, uint32_t k)
{
	uint32_t owner[CHUNKS];
	struct ag_tensor_desc d = { .id = k + 1, .dtype = DTYPE_I32, .route = owner,
				    .geom = { CHUNKS * SEG, SEG, SEG },
				    .result = { result, result },
				    .result_slot = { SLOT_NONE, SLOT_NONE } };

	for (uint32_t ch = 0; ch < CHUNKS; ch++)
		owner[ch] = rng_below(rng, ROUTES);
	tensor[k] = ag_tensor_add(&core, &job, calloc(1, ag_tensor_size(&job, &d)), &d);
}

static void begin(struct rng *rng)
{
	const uint64_t window = TENSORS * CHUNKS * SEG;
	struct ag_job_desc d = { .id = 4, .n = 2, .me = rng_below(rng, 2), .nlocal = 1, .world = 2,
				 .chunk_bytes = SEG, .seg_bytes = SEG, .nroutes = ROUTES,
				 .route = route };

	ag_init(&core);
	job = (struct ag_job){ 0 };
	for (uint32_t r = 0; r < ROUTES; r++) {
		ag_peer_init(&core, &peer[r], 77 + r, 0);
		route[r] = ag_route_init(calloc(1, ag_route_size(window)), &peer[r], 0, window, 0);
	}
	ag_job_start(&core, &job, &d);
	for (uint32_t k = 0; k < TENSORS; k++)
		add_tensor(rng, k);
}

static void end(void)
{
	ag_job_stop(&core, &job);
	for (uint32_t k = 0; k < TENSORS; k++) {
		ag_tensor_forget(&core, tensor[k]);
		free(tensor[k]);
	}
	ag_job_forget(&core, &job);
	for (uint32_t r = 0; r < ROUTES; r++) {
		ag_route_del(route[r]);
		free(route[r]);
	}
}

static void post(struct rng *rng, uint64_t seq)
{
	struct ag_tensor *t = tensor[rng_below(rng, TENSORS)];
	struct ag_post p = { .round = 1, .rop = ROP_SUM, .root_local = -1, .seq = seq,
			     .priority = (int32_t)rng_below(rng, 3), .length = CHUNKS * SEG,
			     .base = input, .base_slot = SLOT_NONE };

	if (!t->round)
		ag_post(&core, t, &p, 0);
}

static void change(struct rng *rng, uint64_t seq)
{
	struct ag_peer *p = &peer[rng_below(rng, ROUTES)];

	switch (rng_below(rng, 7)) {
	case 0: post(rng, seq); break;
	case 1: p->busy = !p->busy; break;
	case 2: p->tx_limit = p->tx_limit ? 0 : UINT64_MAX; break;
	case 3: core.tx_limit = core.tx_limit ? 0 : UINT64_MAX; break;
	case 4: ag_peer_down(&core, p); break;
	case 5: case 6: ag_peer_up(&core, p, rng_below(rng, 2), 0); break;
	}
}

/* What has its room in the window goes before what has not, at the same server. */
static struct ag_seg *first_at(const struct ag_route *r)
{
	struct ag_seg *best = NULL;

	for (uint32_t k = 0; k < TENSORS; k++) {
		for (uint32_t i = 0; i < tensor[k]->nsegs; i++) {
			struct ag_seg *s = &tensor[k]->seg[i];
			bool has = s->slot != UINT32_MAX, had = best && best->slot != UINT32_MAX;

			if (s->route == r && s->state == SEG_READY &&
			    (!best || (has == had ? ag_more_urgent(s, best) : has)))
				best = s;
		}
	}
	return best;
}

static bool may_push(const struct ag_peer *p)
{
	return p->up && !p->busy && (p->by_ref || (p->tx_limit && core.tx_limit));
}

static struct ag_seg *first_of_all(void)
{
	struct ag_seg *best = NULL;

	for (uint32_t r = 0; r < ROUTES; r++) {
		struct ag_seg *s = may_push(&peer[r]) ? first_at(route[r]) : NULL;

		if (s && (!best || ag_more_urgent(s, best)))
			best = s;
	}
	return best;
}

START_TEST(the_most_urgent_that_may_be_pushed_is_next)
{
	struct rng rng = { (uint64_t)_i + 1 };
	uint64_t pushes = 0;

	begin(&rng);
	for (uint64_t i = 0; i < STEPS; i++) {
		const struct ag_seg *want, *got;
		struct ag_send s;

		change(&rng, i);
		ag_check(&core);
		want = first_of_all();
		if (!ag_next(&core, 0, &s)) {
			ck_assert_ptr_null(want);
			continue;
		}
		ck_assert_uint_eq(s.frame.type, FRAME_PUSH);
		got = ag_find(&core, &s.frame);
		ck_assert_ptr_nonnull(want);
		ck_assert(!ag_more_urgent(want, got) && !ag_more_urgent(got, want));
		ck_assert(may_push(got->route->peer));
		if (s.seg)
			ag_sent(&core, s.peer, s.seg, s.frame.length, 0);
		ag_check(&core);
		pushes++;
	}
	ck_assert_uint_gt(pushes, TENSORS * CHUNKS);
	end();
}
END_TEST

/* ---- jobs ---- */

/* A job of one tensor of so many segments, all at one server, or on one machine alone. */
struct flow {
	struct ag_job job;
	struct ag_route *route;
	struct ag_tensor *tensor;
	uint64_t bytes;			/* pushed */
};

enum { FLOW_SEGS = 400 };

static uint8_t data[FLOW_SEGS * SEG], sums[FLOW_SEGS * SEG];

static uint32_t user_of_next;

static void flow_start(struct flow *f, uint32_t id, struct ag_peer *p, uint64_t window)
{
	uint32_t owner[FLOW_SEGS] = { 0 };
	struct ag_job_desc jd = { .id = id, .user = user_of_next, .n = p ? 2 : 1, .nlocal = 1,
				  .world = p ? 2 : 1,
				  .chunk_bytes = SEG, .seg_bytes = SEG, .nroutes = 1,
				  .route = &f->route };
	struct ag_tensor_desc d = { .id = 1, .dtype = DTYPE_I32, .route = owner,
				    .geom = { FLOW_SEGS * SEG, SEG, SEG },
				    .result = { sums, sums },
				    .result_slot = { SLOT_NONE, SLOT_NONE } };

	*f = (struct flow){ 0 };
	f->route = ag_route_init(calloc(1, ag_route_size(window)), p, 0, window, 0);
	ag_job_start(&core, &f->job, &jd);
	f->tensor = ag_tensor_add(&core, &f->job, calloc(1, ag_tensor_size(&f->job, &d)), &d);
}

static void flow_post(struct flow *f, int32_t priority, uint64_t seq)
{
	struct ag_post p = { .round = 1, .rop = ROP_SUM, .root_local = -1, .seq = seq,
			     .priority = priority, .length = FLOW_SEGS * SEG, .base = data,
			     .base_slot = SLOT_NONE };

	ag_post(&core, f->tensor, &p, 0);
}

static void flow_end(struct flow *f)
{
	ag_job_stop(&core, &f->job);
	ag_tensor_forget(&core, f->tensor);
	free(f->tensor);
	ag_job_forget(&core, &f->job);
	ag_route_del(f->route);
	free(f->route);
}

/* Pushes n segments, or until nobody may push; how many. */
static uint32_t push_some(uint32_t n)
{
	struct ag_send s;
	uint32_t i = 0;

	for (; i < n && ag_next(&core, 0, &s); i++) {
		struct flow *f = container_of(ag_job_find(&core, s.frame.job), struct flow, job);

		f->bytes += s.frame.length;
		ag_sent(&core, s.peer, s.seg, s.frame.length, 0);
		ag_check(&core);
	}
	return i;
}

static struct flow flow[3];

static void flows_start(uint64_t window_of_first)
{
	ag_init(&core);
	ag_peer_init(&core, &peer[0], 77, 0);
	ag_peer_up(&core, &peer[0], false, 0);
	for (uint32_t i = 0; i < 3; i++)
		flow_start(&flow[i], 4 + i, &peer[0], i ? FLOW_SEGS * SEG : window_of_first);
}

static void flows_end(void)
{
	for (uint32_t i = 0; i < 3; i++)
		flow_end(&flow[i]);
}

START_TEST(jobs_take_turns_whatever_their_priorities_and_age)
{
	flows_start(FLOW_SEGS * SEG);
	flow_post(&flow[0], 100, 1);
	flow_post(&flow[1], 0, 2);
	ck_assert_uint_eq(push_some(100), 100);
	ck_assert_uint_eq(flow[0].bytes, 50 * SEG);
	ck_assert_uint_eq(flow[1].bytes, 50 * SEG);
	flow_post(&flow[2], -7, 3);		/* who comes late is not owed what others had */
	ck_assert_uint_eq(push_some(90), 90);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(flow[i].bytes, (i < 2 ? 80 : 30) * SEG);
	ck_assert_uint_eq(push_some(3 * FLOW_SEGS), 3 * FLOW_SEGS - 190);
	flows_end();
}
END_TEST

/* The first two are one user's. */
static void users_start(struct ag_peer *p)
{
	ag_init(&core);
	if (p) {
		ag_peer_init(&core, p, 77, 0);
		ag_peer_up(&core, p, false, 0);
	}
	for (uint32_t i = 0; i < 3; i++) {
		user_of_next = 1 + i / 2;
		flow_start(&flow[i], 4 + i, p, FLOW_SEGS * SEG);
		flow_post(&flow[i], (int32_t)(3 - i), 1 + i);
	}
	user_of_next = 0;
}

START_TEST(users_take_turns_and_then_the_jobs_of_each)
{
	users_start(&peer[0]);
	ck_assert_uint_eq(push_some(400), 400);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(flow[i].bytes, (i < 2 ? 100 : 200) * SEG);
	ck_assert_uint_eq(push_some(3 * FLOW_SEGS), 3 * FLOW_SEGS - 400);
	flows_end();
}
END_TEST

START_TEST(a_job_that_could_not_push_has_no_claim_to_it_later)
{
	flows_start(8 * SEG);			/* room in its window for so much */
	flow_post(&flow[0], 0, 1);
	flow_post(&flow[1], 0, 2);
	ck_assert_uint_eq(push_some(208), 208);
	ck_assert_uint_eq(flow[0].bytes, 8 * SEG);
	for (uint32_t k = 0; k < 8; k++)
		ag_seg_free_slot(&flow[0].tensor->seg[k], 0);
	ck_assert_uint_eq(push_some(16), 16);
	ck_assert_uint_eq(flow[0].bytes, 16 * SEG);
	flows_end();
}
END_TEST

static uint32_t summed(const struct flow *f)
{
	return FLOW_SEGS - f->tensor->left;
}

START_TEST(jobs_of_one_machine_take_turns_too)
{
	uint32_t steps = 0;

	ag_init(&core);
	for (uint32_t i = 0; i < 3; i++)
		flow_start(&flow[i], 4 + i, NULL, SEG);
	flow_post(&flow[0], 100, 1);
	flow_post(&flow[1], 0, 2);
	for (; summed(&flow[0]) + summed(&flow[1]) < 100; steps++)
		ck_assert(ag_work(&core, 1));
	ck_assert_uint_eq(steps, 100);
	ck_assert_uint_eq(summed(&flow[0]), 50);
	flow_post(&flow[2], -7, 3);
	for (; steps < 190; steps++)
		ck_assert(ag_work(&core, 1));
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(summed(&flow[i]), i < 2 ? 80 : 30);
	while (ag_work(&core, 1))
		ag_check(&core);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(summed(&flow[i]), FLOW_SEGS);
	flows_end();
}
END_TEST

START_TEST(users_of_one_machine_take_turns_too)
{
	users_start(NULL);
	for (uint32_t i = 0; i < 400; i++)
		ck_assert(ag_work(&core, 1));
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(summed(&flow[i]), i < 2 ? 100 : 200);
	while (ag_work(&core, 1))
		ag_check(&core);
	flows_end();
}
END_TEST

/* Each time as if it had just come, and before the other by its priority. */
START_TEST(a_job_that_always_has_one_segment_more_takes_turns_too)
{
	struct ag_seg *seg;
	uint32_t next = 1;

	ag_init(&core);
	for (uint32_t i = 0; i < 3; i++)
		flow_start(&flow[i], 4 + i, NULL, SEG);
	flow_post(&flow[0], 100, 1);
	flow_post(&flow[1], 0, 2);
	seg = flow[0].tensor->seg;
	for (uint32_t k = next; k < FLOW_SEGS; k++)
		ag_seg_unready(&seg[k]);
	for (uint32_t i = 0; i < 100; i++) {
		ck_assert(ag_work(&core, 1));
		if (summed(&flow[0]) == next)
			ag_seg_ready(&seg[next++]);
	}
	ck_assert_uint_eq(summed(&flow[0]), 50);
	while (next < FLOW_SEGS)
		ag_seg_ready(&seg[next++]);
	while (ag_work(&core, 1))
		ag_check(&core);
	flows_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_turn");
	TCase *t = tcase_create("turn");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, the_most_urgent_that_may_be_pushed_is_next, 0, 20);
	tcase_add_test(t, jobs_take_turns_whatever_their_priorities_and_age);
	tcase_add_test(t, users_take_turns_and_then_the_jobs_of_each);
	tcase_add_test(t, users_of_one_machine_take_turns_too);
	tcase_add_test(t, a_job_that_could_not_push_has_no_claim_to_it_later);
	tcase_add_test(t, jobs_of_one_machine_take_turns_too);
	tcase_add_test(t, a_job_that_always_has_one_segment_more_takes_turns_too);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
