// SPDX-License-Identifier: Apache-2.0
/* srv_job_shrink(): what a smaller world does to what a server has, and how it sums. */
#include "tests/unit/server_rig.h"

static const bool lost_2[N] = { false, false, true };

START_TEST(after_a_loss_nothing_of_the_larger_world_is_summed)
{
	ck_assert(push(0, 1, 1));
	ck_assert(push(2, 1, 4));
	srv_job_shrink(&core, job, lost_2, 2);
	ck_assert(!push(1, 1, 2));
	expect_silence();
	say(FRAME_CANCEL, 0, 1);
	expect(0, FRAME_CANCELLED, 1);
	say(FRAME_CANCEL, 1, 1);		/* which never was there */
	expect(1, FRAME_CANCELLED, 1);
	ck_assert_uint_eq(core.count.rounds, 0);
}
END_TEST

START_TEST(what_was_summed_before_a_loss_can_still_be_had)
{
	whole_round(1);
	srv_job_shrink(&core, job, lost_2, 2);
	probe_hurt(0, 1);
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
	say(FRAME_CANCEL, 1, 1);
	ck_assert_int_eq(expect(1, FRAME_RESULT, 1), 7);
}
END_TEST

START_TEST(a_smaller_world_sums_without_the_lost_and_divides_by_the_rest)
{
	const bool mine[2] = { true, false };
	struct srv_tensor_desc d = { .id = TENSOR, .dtype = DTYPE_I32, .geom = geom, .mine = mine,
				     .epoch = EPOCH + 1, .young = true };
	struct frame f = frame(FRAME_PUSH, 0, 5);
	struct srv_tensor *t;
	uint64_t bytes;
	uint8_t *own;

	ck_assert(push(2, 1, 100));
	srv_job_shrink(&core, job, lost_2, 2);
	t = calloc(1, srv_tensor_size(N, &d, &bytes));
	own = malloc(bytes);
	srv_tensor_add(&core, job, t, own, &d);
	f.epoch = EPOCH + 1;
	f.rop = ROP_MEAN;
	ck_assert(push_frame(&f, 10));
	expect(1, FRAME_SEEK, 5);
	f.worker = 2;
	ck_assert(!push_frame(&f, 100));	/* it is lost */
	f.worker = 1;
	f.rslot = 101;
	ck_assert(push_frame(&f, 20));
	ck_assert_int_eq(expect(0, FRAME_RESULT, 5), 15);
	ck_assert_int_eq(expect(1, FRAME_RESULT, 5), 15);
	expect_silence();
	srv_tensor_remove(&core, t);
	srv_tensor_forget(&core, t);
	free(t);
	free(own);
}
END_TEST

START_TEST(a_broadcast_whose_root_is_lost_ends_for_all)
{
	const bool mine[2] = { true, false };
	struct srv_tensor_desc d = { .id = TENSOR, .dtype = DTYPE_I32, .geom = geom, .mine = mine,
				     .epoch = EPOCH + 1, .young = true };
	struct frame f = frame(FRAME_PUSH, 0, 1);
	struct srv_tensor *t;
	struct srv_send s;
	uint64_t bytes;
	uint8_t *own;

	srv_job_shrink(&core, job, lost_2, 2);
	t = calloc(1, srv_tensor_size(N, &d, &bytes));
	own = malloc(bytes);
	srv_tensor_add(&core, job, t, own, &d);
	f.epoch = EPOCH + 1;
	f.rop = ROP_BROADCAST;
	f.flags = FRAME_NODATA;
	f.length = 0;
	f.aux = 2;
	for (f.worker = 0; f.worker < 2; f.worker++)
		srv_frame(&core, &peer[f.worker], &f, NULL, NULL);
	for (uint32_t w = 0; w < 2; w++) {
		ck_assert(srv_next(&core, &peer[w], false, &s));
		ck_assert_uint_eq(s.frame.type, FRAME_REFUSED);
		ck_assert_uint_eq(s.frame.aux, -TALLY_ESHUTDOWN);
		ck_assert_uint_eq(SIDE_ROOT(s.frame.slot), 2);
	}
	srv_tensor_remove(&core, t);
	srv_tensor_forget(&core, t);
	free(t);
	free(own);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server_shrink");
	TCase *t = tcase_create("server_shrink");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, after_a_loss_nothing_of_the_larger_world_is_summed);
	tcase_add_test(t, what_was_summed_before_a_loss_can_still_be_had);
	tcase_add_test(t, a_smaller_world_sums_without_the_lost_and_divides_by_the_rest);
	tcase_add_test(t, a_broadcast_whose_root_is_lost_ends_for_all);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
