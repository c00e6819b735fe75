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

/* With it all that are left are here: their agents push again, to the smaller world. */
START_TEST(what_lands_after_a_loss_completes_nothing)
{
	struct frame f = frame(FRAME_PUSH, 1, 1);
	void *at = srv_place(&core, &peer[1], &f);

	ck_assert_ptr_nonnull(at);
	ck_assert(push(0, 1, 1));
	srv_job_shrink(&core, job, lost_2, 2);
	fill(at, 2);
	srv_frame(&core, &peer[1], &f, at, NULL);
	expect_silence();
	ck_assert_uint_eq(core.count.rounds, 0);
}
END_TEST

/* It would be held for those who ask, and its agent takes it back until it is given. */
START_TEST(after_a_loss_nothing_of_the_larger_world_is_asked_for)
{
	ck_assert(push(0, 1, 1));
	srv_job_shrink(&core, job, lost_2, 2);
	say(FRAME_OFFER, 1, 1);
	expect_silence();
	say(FRAME_CANCEL, 0, 1);
	expect(0, FRAME_CANCELLED, 1);
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

/* The chunk as the smaller world's epoch has it, beside the larger one's. */
struct anew {
	struct srv_tensor *tensor;
	uint8_t *own;
};

static struct anew without(const bool *lost)
{
	const bool mine[2] = { true, false };
	struct srv_tensor_desc d = { .id = TENSOR, .dtype = DTYPE_I32, .geom = geom, .mine = mine,
				     .epoch = EPOCH + 1, .young = true };
	struct anew a;
	uint64_t bytes;

	srv_job_shrink(&core, job, lost, 2);
	a.tensor = calloc(1, srv_tensor_size(N, &d, &bytes));
	a.own = malloc(bytes);
	srv_tensor_add(&core, job, a.tensor, a.own, &d);
	return a;
}

static struct anew shrink(void)
{
	return without(lost_2);
}

static void anew_end(struct anew *a)
{
	srv_tensor_remove(&core, a->tensor);
	srv_tensor_forget(&core, a->tensor);
	free(a->tensor);
	free(a->own);
}

START_TEST(a_smaller_world_sums_without_the_lost_and_divides_by_the_rest)
{
	struct frame f = frame(FRAME_PUSH, 0, 5);
	struct anew a;

	ck_assert(push(2, 1, 100));
	a = shrink();
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
	anew_end(&a);
}
END_TEST

START_TEST(who_is_lost_is_not_named_as_missing)
{
	struct anew a = without((const bool[N]){ true, false, false });
	struct frame f = frame(FRAME_PUSH, 1, 1);
	struct srv_send s;

	f.epoch = EPOCH + 1;
	ck_assert(push_frame(&f, 2));
	f = frame(FRAME_PROBE, 1, 1);
	f.epoch = EPOCH + 1;
	srv_frame(&core, &peer[1], &f, NULL, NULL);
	ck_assert(srv_next(&core, &peer[1], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_HELD);
	ck_assert_uint_eq(s.frame.aux, 2);
	anew_end(&a);
}
END_TEST

/*
 * What the larger world summed is written by reference until its agent has gone on; here to
 * where the agent, which was started again, has its results now.
 */
START_TEST(a_late_push_does_not_overwrite_the_smaller_worlds_result)
{
	uint8_t *input = malloc(SEG), *before = malloc(SEG), *result = malloc(SEG);
	struct frame late = frame(FRAME_PUSH, 0, 1), f;
	struct anew a;
	int32_t v;

	late.flags = FRAME_BYREF;
	fill(input, 1);
	srv_frame(&core, &peer[0], &late, input, before);
	ck_assert(push(1, 1, 2) && push(2, 1, 4));
	a = shrink();
	srv_frame(&core, &peer[0], &late, input, result);
	memcpy(&v, result, 4);
	ck_assert_int_eq(v, 7);
	f = late;
	f.epoch = EPOCH + 1;
	srv_frame(&core, &peer[0], &f, input, result);
	f = frame(FRAME_PUSH, 1, 1);
	f.epoch = EPOCH + 1;
	ck_assert(push_frame(&f, 2));
	memcpy(&v, result, 4);
	ck_assert_int_eq(v, 3);
	srv_frame(&core, &peer[0], &late, input, result);
	memcpy(&v, result, 4);
	ck_assert_int_eq(v, 3);
	anew_end(&a);
	free(input);
	free(before);
	free(result);
}
END_TEST

/*
 * It comes back, by the same process, with an empty window, while a push of its earlier life
 * still lands there: what it pushes now may not lie where that one's last bytes come.
 */
START_TEST(who_comes_back_has_no_window_while_what_it_pushed_before_lands)
{
	static const bool none[N] = { false, false, false };
	struct frame old = frame(FRAME_PUSH, 2, 1), f = old;
	void *slow = srv_place(&core, &peer[2], &old), *at;
	struct anew a;

	ck_assert_ptr_nonnull(slow);
	a = shrink();
	srv_job_shrink(&core, job, none, N);
	a.tensor->stale = false;	/* as the epoch that it comes with adds it */
	f.epoch = EPOCH + 1;
	f.rslot = 102;
	at = srv_place(&core, &peer[2], &f);
	if (at) {			/* else it is asked after, and pushed again */
		fill(at, 4);
		srv_frame(&core, &peer[2], &f, at, NULL);
	}
	fill(slow, 99);
	srv_frame(&core, &peer[2], &old, slow, NULL);
	if (!at)
		ck_assert(push_frame(&f, 4));
	f.worker = 0;
	f.rslot = 100;
	ck_assert(push_frame(&f, 1));
	f.worker = 1;
	f.rslot = 101;
	ck_assert(push_frame(&f, 2));
	ck_assert_int_eq(expect(1, FRAME_RESULT, 1), 7);
	expect(0, FRAME_RESULT, 1);
	expect(2, FRAME_RESULT, 1);
	anew_end(&a);
}
END_TEST

/*
 * What a lost machine's agent had begun to send is still landing when all others have gone
 * over, and a result of the same tensor is still being sent.
 */
START_TEST(a_push_of_the_lost_that_lands_after_the_chunks_have_left_is_dropped)
{
	const bool chunk_0[2] = { true, false };
	struct frame f = frame(FRAME_PUSH, 2, 1);
	struct srv_send s;
	void *at;

	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1));
	ck_assert(srv_next(&core, &peer[2], false, &s));
	f.offset = SEG;
	f.slot = SEG;
	at = srv_place(&core, &peer[2], &f);
	ck_assert_ptr_nonnull(at);
	srv_job_shrink(&core, job, lost_2, 2);
	srv_tensor_leave(&core, tensor, chunk_0);
	srv_tensor_settled(&core, tensor);
	ck_assert(!srv_tensor_left(&core, tensor));	/* s is on its way */
	fill(at, 4);
	srv_frame(&core, &peer[2], &f, at, NULL);
	srv_sent(&core, s.in);
	ck_assert(srv_tensor_left(&core, tensor));
	ck_assert(srv_tensor_empty(tensor));
	srv_tensor_remove(&core, tensor);
}
END_TEST

START_TEST(a_broadcast_whose_root_is_lost_ends_for_all)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	struct anew a = shrink();
	struct srv_send s;

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
	anew_end(&a);
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
	tcase_add_test(t, what_lands_after_a_loss_completes_nothing);
	tcase_add_test(t, after_a_loss_nothing_of_the_larger_world_is_asked_for);
	tcase_add_test(t, what_was_summed_before_a_loss_can_still_be_had);
	tcase_add_test(t, a_smaller_world_sums_without_the_lost_and_divides_by_the_rest);
	tcase_add_test(t, who_is_lost_is_not_named_as_missing);
	tcase_add_test(t, a_late_push_does_not_overwrite_the_smaller_worlds_result);
	tcase_add_test(t, who_comes_back_has_no_window_while_what_it_pushed_before_lands);
	tcase_add_test(t, a_push_of_the_lost_that_lands_after_the_chunks_have_left_is_dropped);
	tcase_add_test(t, a_broadcast_whose_root_is_lost_ends_for_all);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
