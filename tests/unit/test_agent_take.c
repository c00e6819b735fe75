// SPDX-License-Identifier: Apache-2.0
/* agent_core.c: a result that is used where it was read, and is gone after the call. */
#include "tests/unit/agent_rig.h"

static void take_frame(const struct frame *f, uint8_t v)
{
	static uint8_t read[SEG];

	memset(read, v, sizeof(read));
	ag_take(&core, &peer, f, read, now);
	kern_copied();
	memset(read, 0xff, sizeof(read));
	ag_check(&core);
}

static void take(uint32_t k, uint32_t at, uint8_t v)
{
	struct frame f = answer(FRAME_RESULT, k, at);

	take_frame(&f, v);
}

static void all_are(const uint8_t *p, uint8_t v)
{
	for (uint32_t i = 0; i < SEGS * SEG; i++)
		ck_assert_uint_eq(p[i], v);
}

/* Rank 0 wants the result in its input. */
static void post_in_place(uint32_t k, uint32_t round)
{
	struct ag_post p = {
		.round = round, .rop = ROP_SUM, .root_local = -1, .length = SEGS * SEG,
		.base = input[k][0], .base_slot = SLOT_SLAB(20, 0), .out = input[k][0],
	};

	ag_post(&core, tensor[k], &p, now);
	post_one(k, round, 1, 0);
}

START_TEST(a_short_result_is_in_its_slot_and_where_a_rank_wants_it)
{
	for (uint32_t round = 1; round <= 2; round++) {
		post_in_place(0, round);
		expect_pushes(0);
		for (uint32_t i = 0; i < SEGS; i++)
			take(0, i, (uint8_t)(4 + round));
		ck_assert_ptr_eq(ag_done(&core), tensor[0]);
		all_are(result[0][round & 1], (uint8_t)(4 + round));
		all_are(input[0][0], (uint8_t)(4 + round));
		ck_assert_uint_eq(job->borrowed, 0);
	}
}
END_TEST

START_TEST(a_short_result_is_marked)
{
	post(0, 1, 0);
	expect_pushes(0);
	take(0, 0, 5);
	ck_assert_uint_eq(marks[0][1][taken[0]], AG_MARK(job->world, ROP_SUM, 1));
	ck_assert_uint_eq(marks[0][1][taken[1]], 0);
}
END_TEST

START_TEST(what_does_not_count_is_not_taken)
{
	struct frame f;

	post(0, 1, 0);
	expect_pushes(0);
	f = answer(FRAME_RESULT, 0, 0);
	f.length = SEG - 4;
	take_frame(&f, 9);
	f = answer(FRAME_RESULT, 0, 0);
	f.type = FRAME_PUSH;
	take_frame(&f, 9);
	ck_assert_uint_eq(core.count.drop_shape, 2);
	all_are(result[0][1], 0);
	take(0, 0, 5);
	take(0, 0, 9);
	f = answer(FRAME_RESULT, 0, 1);
	ck_assert_ptr_nonnull(ag_place(&core, &peer, &f, now));
	take_frame(&f, 9);				/* while the first one lands */
	ck_assert_uint_eq(core.count.duplicates, 2);
	ck_assert_uint_eq(core.count.results, 1);
	ck_assert_uint_eq(result[0][1][(size_t)taken[0] * SEG], 5);
	ag_unplace(&core, &f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_take");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_short_result_is_in_its_slot_and_where_a_rank_wants_it);
	tcase_add_test(t, a_short_result_is_marked);
	tcase_add_test(t, what_does_not_count_is_not_taken);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
