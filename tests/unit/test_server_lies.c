// SPDX-License-Identifier: Apache-2.0
/*
 * test_server_lies.c - agents that say what cannot be, to a server's core: what they say is
 * counted and dropped.  tests/storm looks for more of the kind.
 */
#include "tests/unit/server_rig.h"

static bool push_at(uint32_t w, uint32_t offset, uint64_t slot)
{
	struct frame f = frame(FRAME_PUSH, w, 1);

	f.offset = offset;
	f.slot = slot;
	return push_frame(&f, 1);
}

/* A window of one segment and a half: two contributions can only lie one over the other. */
START_TEST(contributions_that_overlap_never_take_more_than_the_window)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);

	job->worker[0].window_bytes = job->worker[1].window_bytes = SEG + SEG / 2;
	ck_assert(push_at(0, 0, 0));
	ck_assert(!push_at(0, SEG, 0));
	ck_assert_uint_eq(core.count.drop_shape, 1);
	ck_assert(srv_place(&core, &peer[1], &(struct frame){
		.type = FRAME_PUSH, .worker = 1, .job = JOB, .tensor = TENSOR, .epoch = EPOCH,
		.round = 1, .dtype = DTYPE_I32, .rop = ROP_SUM, .length = SEG,
	}));
	srv_check(&core);
	ck_assert(!push_at(1, SEG, 0));		/* while the first one lands */
	f.worker = 1;
	srv_unplace(&core, &peer[1], &f);
	ck_assert(push_at(1, SEG, 0));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server_lies");
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, contributions_that_overlap_never_take_more_than_the_window);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
