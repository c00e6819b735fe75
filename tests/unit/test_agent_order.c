// SPDX-License-Identifier: Apache-2.0
/* agent_core_table.c: in which order a tensor's segments are pushed. */
#include <check.h>
#include <stdlib.h>

#include "worker-agent/agent_core.h"

enum { JOB = 4, SEG = 4096, ROUTES = 4, CHUNKS = 64 };

static struct ag_core core;
static struct ag_job *job;
static struct ag_peer peer;
static struct ag_route *routes[ROUTES];

/* Half the chunks lie on route 0, in a lump; the others take turns on the rest. */
static uint32_t lumpy(uint32_t chunk)
{
	return chunk < CHUNKS / 2 ? 0 : 1 + chunk % (ROUTES - 1);
}

static struct ag_tensor *lumpy_tensor(uint32_t me)
{
	struct ag_job_desc d = { .id = JOB, .n = 4, .me = me, .nlocal = 1, .world = 4,
				 .chunk_bytes = 2 * SEG, .seg_bytes = SEG, .nroutes = ROUTES,
				 .route = routes };
	uint32_t route[CHUNKS];
	struct ag_tensor_desc td = { .id = 1, .dtype = DTYPE_I32, .route = route,
				     .geom = { CHUNKS * 2 * SEG, 2 * SEG, SEG } };

	for (uint32_t ch = 0; ch < CHUNKS; ch++)
		route[ch] = lumpy(ch);
	ag_init(&core);
	ag_peer_init(&core, &peer, 77, 0);
	for (uint32_t r = 0; r < ROUTES; r++)
		routes[r] = ag_route_init(calloc(1, ag_route_size(0)), &peer, 0, 0, 0);
	job = ag_job_start(&core, calloc(1, sizeof(*job)), &d);
	return ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &td)), &td);
}

static void forget(struct ag_tensor *t)
{
	ag_tensor_remove(&core, t);
	ag_tensor_forget(&core, t);
	ag_job_stop(&core, job);
	ag_job_forget(&core, job);
	for (uint32_t r = 0; r < ROUTES; r++) {
		ag_route_del(routes[r]);
		free(routes[r]);
	}
	free(t);
	free(job);
}

static uint32_t route_of(const struct ag_seg *s)
{
	uint32_t r = 0;

	while (s->tensor->job->route[r] != s->route)
		r++;
	return r;
}

/* Any stretch of the queue loads every server by its share, two segments more or less. */
START_TEST(the_order_of_a_tensor_spreads_over_the_servers)
{
	for (uint32_t me = 0; me < 4; me++) {
		struct ag_tensor *t = lumpy_tensor(me);

		for (uint32_t k = 0; k < t->nsegs; k++) {
			uint32_t before = 0, mine = 0, of_route = 0;

			for (uint32_t o = 0; o < t->nsegs; o++) {
				bool same = t->seg[o].route == t->seg[k].route;

				before += t->seg[o].order < t->seg[k].order;
				mine += same && t->seg[o].order < t->seg[k].order;
				of_route += same;
				ck_assert(!same || o >= k || t->seg[o].order < t->seg[k].order);
			}
			ck_assert_double_eq_tol((double)mine,
						(double)before * of_route / t->nsegs, 2);
		}
		forget(t);
	}
}
END_TEST

START_TEST(machines_begin_with_different_servers)
{
	uint32_t seen = 0;

	for (uint32_t me = 0; me < 4; me++) {
		struct ag_tensor *t = lumpy_tensor(me);
		const struct ag_seg *first = &t->seg[0];

		for (uint32_t k = 1; k < t->nsegs; k++)
			first = t->seg[k].order < first->order ? &t->seg[k] : first;
		seen |= 1u << route_of(first);
		forget(t);
	}
	ck_assert_uint_eq(seen, 0xf);
}
END_TEST

/* Who has a chunk here meets who has it there, and their windows do not overlap. */
START_TEST(engines_of_both_sides_meet_where_they_share_chunks)
{
	uint32_t as = 1 + (uint32_t)_i / 8, bs = 1 + (uint32_t)_i % 8;
	uint64_t window = geom_window(1 << 20, bs, as, SEG), at, end = 0;

	for (uint32_t chunk = 0; chunk < 1000; chunk++)
		ck_assert(geom_engines_meet(geom_shard(1, chunk, as), as, geom_shard(1, chunk, bs),
					    bs));
	for (uint32_t b = 0; b < bs; b++, end = 0)
		for (uint32_t a = 0; a < as; a++) {
			uint64_t part = geom_window_part(window, a, as, b, bs, &at);

			if (!geom_engines_meet(a, as, b, bs))
				continue;
			ck_assert_uint_eq(at, end);
			ck_assert_uint_ge(part, SEG);
			end = at + part;
			ck_assert_uint_le(end, window);
		}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_order");
	TCase *t = tcase_create("order");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, engines_of_both_sides_meet_where_they_share_chunks, 0, 64);
	tcase_add_test(t, the_order_of_a_tensor_spreads_over_the_servers);
	tcase_add_test(t, machines_begin_with_different_servers);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
