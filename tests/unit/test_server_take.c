// SPDX-License-Identifier: Apache-2.0
/* server_core.c: a payload that is used where it was read, and is gone after the call. */
#include "tests/unit/server_rig.h"

/* A payload by srv_take(), whose memory holds something else right afterwards. */
static void take_frame(const struct frame *f, int32_t v)
{
	static uint8_t read[SEG];

	fill(read, v);
	srv_take(&core, &peer[f->worker], f, read);
	fill(read, -1);
	srv_check(&core);
}

static void take(uint32_t w, uint32_t round, int32_t v)
{
	struct frame f = frame(FRAME_PUSH, w, round);

	take_frame(&f, v);
}

START_TEST(short_contributions_are_summed_wherever_they_were_read)
{
	for (uint32_t round = 1; round <= 3; round++) {
		for (uint32_t w = 0; w < N; w++)
			take((w + round) % N, round, 1 << (w + round) % N);
		for (uint32_t w = 0; w < N; w++)
			ck_assert_int_eq(expect(w, FRAME_RESULT, round), 7);
	}
	ck_assert_uint_eq(srv_job_borrowed(job), 0);
}
END_TEST

START_TEST(short_and_placed_contributions_are_summed_together)
{
	take(0, 1, 1);
	ck_assert(push(1, 1, 2));
	take(2, 1, 4);
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 7);
}
END_TEST

/* The last contribution may have to wait for a result that a link still sends. */
START_TEST(the_last_contribution_outlives_its_read_where_it_has_to_wait)
{
	struct srv_send s;

	whole_round(1);
	probe_hurt(0, 1);
	ck_assert(srv_next(&core, &peer[0], false, &s));	/* a repetition, not yet sent */
	for (uint32_t w = 0; w < N; w++)
		take(w, 2, 2 << w);
	expect_silence();
	srv_sent(&core, s.in);
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 2), 14);
}
END_TEST

START_TEST(what_does_not_count_is_not_taken)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	struct frame late = frame(FRAME_PUSH, 1, 1);
	void *at;

	take(0, 1, 1);
	take(0, 1, 99);
	ck_assert_uint_eq(core.count.duplicates, 1);
	f.slot = WINDOW;
	f.worker = 2;
	take_frame(&f, 99);
	f.type = FRAME_RESULT;
	take_frame(&f, 99);
	ck_assert_uint_eq(core.count.drop_shape, 2);
	at = srv_place(&core, &peer[1], &late);		/* the same comes on two links */
	take(1, 1, 99);
	ck_assert_uint_eq(core.count.duplicates, 2);
	fill(at, 2);
	srv_frame(&core, &peer[1], &late, at, NULL);
	take(2, 1, 4);
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 7);
}
END_TEST

START_TEST(who_disagrees_fails_the_round_and_leaves_nothing)
{
	struct frame f = frame(FRAME_PUSH, 1, 1);

	take(0, 1, 1);
	f.rop = ROP_MEAN;
	take_frame(&f, 2);
	for (uint32_t w = 0; w < 2; w++)
		(void)expect(w, FRAME_REFUSED, 1);
	for (uint32_t w = 0; w < N; w++)
		take(w, 2, 1 << w);
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 2), 7);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server_take");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, short_contributions_are_summed_wherever_they_were_read);
	tcase_add_test(t, short_and_placed_contributions_are_summed_together);
	tcase_add_test(t, the_last_contribution_outlives_its_read_where_it_has_to_wait);
	tcase_add_test(t, what_does_not_count_is_not_taken);
	tcase_add_test(t, who_disagrees_fails_the_round_and_leaves_nothing);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
