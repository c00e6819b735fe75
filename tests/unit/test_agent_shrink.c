// SPDX-License-Identifier: Apache-2.0
/* ag_job_shrink(), ag_tensor_again(): what a smaller world leaves of a round at its agent, what a
 * round waits for in a larger one, and what a machine that comes into a job leaves to the next
 * process of its agent. */
#include "tests/unit/agent_rig.h"

enum { NEXT = EPOCH + 5 };

/* Another world, in which tensor 0's round is not whole. */
static void enter(uint64_t live, uint32_t world, uint32_t epoch)
{
	const uint32_t routes[SEGS] = { 0 };
	uint32_t since[SEGS];

	for (uint32_t i = 0; i < SEGS; i++)
		since[i] = epoch;
	ag_job_freeze(job);
	ag_job_epoch(&core, job, epoch, &route, 1);
	ag_job_shrink(job, live, world);
	if (tensor[0]->round)
		ag_tensor_again(&core, tensor[0]);
	for (uint32_t k = 0; k < TENSORS; k++)
		if (job->n > 1)
			ag_tensor_move(&core, tensor[k], routes, since, now);
	ag_check(&core);
}

/* Local rank 1 is lost. */
static void shrink(void)
{
	enter(1, 3, NEXT);
}

/* Another process has come in its place. */
static void grow(void)
{
	enter(3, 4, NEXT + 1);
}

/* The next frame is a push in that world, of a sum of local ranks. */
static void expect_push_of(int32_t sum_of, uint32_t epoch)
{
	struct ag_send s;
	int32_t v;

	ck_assert(ag_next(&core, now, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_PUSH);
	ck_assert_uint_eq(s.frame.epoch, epoch);
	memcpy(&v, s.data, 4);
	ck_assert_int_eq(v, sum_of);
	ag_sent(&core, &peer, s.seg, s.frame.length, now);
	ag_check(&core);
}

/* In the smaller world, of what rank 0 alone gave. */
static void expect_new_push(void)
{
	expect_push_of(1, NEXT);
}

START_TEST(what_is_done_of_a_round_that_is_not_whole_begins_again)
{
	post(0, 1, 0);
	expect_pushes(0);
	for (uint32_t i = 0; i + 1 < SEGS; i++)
		ck_assert(result_lands(0, i));
	shrink();
	for (uint32_t i = 0; i < SEGS; i++)
		if (next().type == FRAME_CANCEL)
			break;
	say(FRAME_CANCELLED, 0, SEGS - 1);
	ck_assert_uint_eq(core.count.again, 1);
	ck_assert_uint_eq(tensor[0]->left, SEGS);
	ck_assert_ptr_null(ag_done(&core));
}
END_TEST

START_TEST(what_is_pushed_comes_back_before_it_is_pushed_again)
{
	post(0, 1, 0);
	expect(FRAME_PUSH, 0, 0);
	shrink();
	ck_assert_uint_eq(next().type, FRAME_CANCEL);
	for (uint32_t i = 1; i < SEGS; i++)
		expect_new_push();
	expect_silence();
	say(FRAME_CANCELLED, 0, 0);
	expect_new_push();
	expect_silence();
}
END_TEST

START_TEST(a_result_of_the_larger_world_is_no_result)
{
	post(0, 1, 0);
	expect_pushes(0);
	shrink();
	while (next().type != FRAME_NONE)
		;			/* CANCELs */
	ck_assert(result_lands(0, 0));
	ck_assert_uint_eq(core.count.voided, 1);
	ck_assert_uint_eq(core.count.results, 0);
	ck_assert_uint_eq(tensor[0]->left, SEGS);
	expect_new_push();
	expect_silence();
	ck_assert(!result_lands(0, 0));		/* again, late: of an older epoch */
}
END_TEST

START_TEST(a_round_that_waited_for_the_lost_rank_goes_on)
{
	post_one(0, 1, 0, 0);
	expect_silence();
	shrink();
	for (uint32_t i = 0; i < SEGS; i++)
		expect_new_push();
	post_one(1, 1, 0, 0);
	expect_new_push();
}
END_TEST

START_TEST(frozen_no_round_ends)
{
	post(0, 1, 0);
	expect_pushes(0);
	for (uint32_t i = 0; i + 1 < SEGS; i++)
		ck_assert(result_lands(0, i));
	ag_job_freeze(job);
	ck_assert(result_lands(0, SEGS - 1));
	ck_assert_ptr_null(ag_done(&core));
}
END_TEST

/* Whether the next process takes round 1 for done. */
static bool kept(void)
{
	struct ag_tensor_desc d = desc_of(0, true);

	ck_assert(ag_desc_resume(&d, 0));
	return d.kept;
}

START_TEST(what_ended_and_was_not_told_is_not_whole)
{
	post(0, 1, 0);
	expect_pushes(0);
	for (uint32_t i = 0; i < SEGS; i++)
		ck_assert(result_lands(0, i));
	ck_assert(kept());
	shrink();
	ck_assert(!kept());
	ck_assert_ptr_null(ag_done(&core));
	for (uint32_t i = 0; i < SEGS; i++)
		expect_new_push();
}
END_TEST

START_TEST(alone_a_mean_divides_by_the_survivors)
{
	struct ag_post p = { .round = 1, .rop = ROP_MEAN, .root_local = -1,
			     .length = SEGS * SEG, .base = input[0][0], .base_slot = SLOT_NONE };
	int32_t v;

	memset(input[0][0], 0, SEGS * SEG);
	memcpy(input[0][0], &(int32_t){ 12 }, 4);
	ag_post(&core, tensor[0], &p, now);
	ck_assert(!ag_work(&core, UINT64_MAX));
	shrink();
	ck_assert(!ag_work(&core, UINT64_MAX));
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	memcpy(&v, result[0][1], 4);
	ck_assert_int_eq(v, 4);		/* shrink() says three */
}
END_TEST

START_TEST(alone_a_broadcast_without_its_root_ends_the_job)
{
	struct ag_post p = { .round = 1, .rop = ROP_BROADCAST, .root_local = 1, .root = 1,
			     .length = SEGS * SEG, .base_slot = SLOT_NONE };

	ag_post(&core, tensor[0], &p, now);
	shrink();
	ck_assert_int_eq(job->fail_code, TALLY_ESHUTDOWN);
	ck_assert(!ag_work(&core, UINT64_MAX));
	ck_assert_ptr_null(ag_done(&core));	/* nobody is shown what nobody gave */
}
END_TEST

START_TEST(a_broadcast_goes_on_with_what_its_lost_root_gave)
{
	struct ag_post p = { .round = 1, .local = 1, .rop = ROP_BROADCAST, .root_local = 1,
			     .root = 1, .length = SEGS * SEG, .base = input[0][1],
			     .base_slot = SLOT_NONE };

	ag_post(&core, tensor[0], &p, now);
	shrink();
	ck_assert_int_eq(job->fail_code, 0);
	p = (struct ag_post){ .round = 1, .rop = ROP_BROADCAST, .root_local = 1, .root = 1,
			      .length = SEGS * SEG, .base_slot = SLOT_NONE };
	ag_post(&core, tensor[0], &p, now);
	ck_assert(!ag_work(&core, UINT64_MAX));
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	ck_assert_mem_eq(result[0][1], input[0][1], SEGS * SEG);
}
END_TEST

START_TEST(what_a_lost_rank_gave_is_in_use_until_its_rounds_are_over)
{
	struct ag_send lent;

	post(0, 1, 0);
	ck_assert(ag_next(&core, now, &lent));	/* a link has it, and is slow */
	ck_assert(!ag_job_past(job));
	shrink();
	ck_assert(ag_job_past(job));
	ck_assert_uint_eq(next().type, FRAME_CANCEL);
	for (uint32_t i = 1; i < SEGS; i++)
		expect_new_push();
	say(FRAME_CANCELLED, 0, 0);
	expect_silence();
	ag_sent(&core, &peer, lent.seg, lent.frame.length, now);
	expect_new_push();
	for (uint32_t i = 0; i < SEGS; i++) {
		struct frame f = answer(FRAME_RESULT, 0, i);

		ck_assert(ag_job_past(job));
		f.epoch = NEXT;
		ck_assert_ptr_nonnull(ag_place(&core, &peer, &f, now));
		ag_frame(&core, &peer, &f, now);
	}
	ck_assert(ag_job_past(job));
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	post_one(0, 2, 0, 0);			/* nobody looks between two rounds */
	ck_assert(!ag_job_past(job));
}
END_TEST

/* Its machine came into the job behind round 5, of which it has nothing. */
START_TEST(started_again_it_may_have_missed_the_last_round)
{
	struct ag_tensor_desc d = desc_of(0, true);

	d.round = 5;
	for (uint32_t i = 0; i < 2; i++) {
		ag_tensor_remove(&core, tensor[0]);
		ag_tensor_forget(&core, tensor[0]);
		free(tensor[0]);
		tensor[0] = ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &d)), &d);
		ck_assert_uint_eq(tensor[0]->round, 5);
		d = desc_of(0, true);
		ck_assert(!ag_desc_resume(&d, 4));
		ck_assert(!ag_desc_resume(&d, 6));
		ck_assert(ag_desc_resume(&d, 5));
		ck_assert_uint_eq(d.rop, ROP_NONE);
	}
	post(0, 6, 0);
	expect_pushes(0);
	results(0);
	ck_assert(ag_desc_resume(&d, 6));
}
END_TEST

/*
 * A tensor of one chunk belongs to one of an agent's engines.  The others know it, and, where the
 * agent was started again, its last round, too: no round of it runs there, nor ends.
 */
START_TEST(an_engine_without_segments_of_a_tensor_has_none_of_its_rounds)
{
	struct ag_tensor_desc d = desc_of(0, true);
	const uint32_t elsewhere[SEGS] = { AG_NO_SEG, AG_NO_SEG, AG_NO_SEG, AG_NO_SEG };

	ag_tensor_remove(&core, tensor[0]);
	ag_tensor_forget(&core, tensor[0]);
	free(tensor[0]);
	d.round = 5;
	d.route = elsewhere;
	tensor[0] = ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &d)), &d);
	ck_assert_uint_eq(tensor[0]->nsegs, 0);
	shrink();				/* while round 6 runs in another engine */
	ck_assert(!tensor[0]->running);
	ck_assert(!ag_job_past(job));
	ag_job_freeze(job);			/* and the next rank is lost */
	ag_job_shrink(job, 1, 2);
	ck_assert(!ag_job_past(job));		/* its memory can be given back */
}
END_TEST

/* ---- who comes while a round is open ---- */

/* Rank 1's input is none, or the lost process's, until its new process gives one. */
static void expect_round_of_both(void)
{
	expect_silence();
	post_one(0, 1, 1, 0);
	for (uint32_t i = 0; i < SEGS; i++)
		expect_push_of(3, NEXT + 1);
	expect_silence();
}

START_TEST(what_is_open_waits_for_who_comes)
{
	struct frame f;

	shrink();
	post_one(0, 1, 0, 0);
	expect_new_push();
	f = answer(FRAME_CANCELLED, 0, 0);
	f.epoch = NEXT;
	grow();
	ck_assert_uint_eq(next().type, FRAME_CANCEL);
	expect_silence();
	ag_frame(&core, &peer, &f, now);
	expect_round_of_both();
}
END_TEST

START_TEST(what_the_lost_process_gave_is_not_what_the_next_one_gives)
{
	if (_i)				/* only the lost rank had begun the round, else both */
		post_one(0, 1, 1, 0);
	else
		post(0, 1, 0);
	shrink();
	grow();
	if (_i)
		post_one(0, 1, 0, 0);
	expect_round_of_both();
}
END_TEST

START_TEST(what_was_with_a_server_that_is_gone_waits_for_who_comes)
{
	shrink();
	post_one(0, 1, 0, 0);
	expect_new_push();
	ag_route_gone(route);
	route = ag_route_init(calloc(1, ag_route_size(64 * SEG)), &peer, 0, 64 * SEG, now);
	grow();
	expect_round_of_both();
}
END_TEST

START_TEST(alone_what_is_open_waits_for_who_comes)
{
	int32_t v;

	shrink();
	post_one(0, 1, 0, 0);
	grow();
	ck_assert(!ag_work(&core, UINT64_MAX));
	ck_assert_ptr_null(ag_done(&core));
	post_one(0, 1, 1, 0);
	ck_assert(!ag_work(&core, UINT64_MAX));
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	memcpy(&v, result[0][1], 4);
	ck_assert_int_eq(v, 3);
}
END_TEST

static TCase *tcase(const char *name, void (*set_up)(void))
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, set_up, teardown);
	return t;
}

int main(void)
{
	TCase *wide = tcase("wide window", setup), *alone = tcase("alone", setup_alone);
	Suite *s = suite_create("agent_shrink");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(wide, what_a_lost_rank_gave_is_in_use_until_its_rounds_are_over);
	tcase_add_test(wide, what_is_done_of_a_round_that_is_not_whole_begins_again);
	tcase_add_test(wide, what_is_pushed_comes_back_before_it_is_pushed_again);
	tcase_add_test(wide, a_result_of_the_larger_world_is_no_result);
	tcase_add_test(wide, a_round_that_waited_for_the_lost_rank_goes_on);
	tcase_add_test(wide, frozen_no_round_ends);
	tcase_add_test(wide, what_ended_and_was_not_told_is_not_whole);
	tcase_add_test(wide, started_again_it_may_have_missed_the_last_round);
	tcase_add_test(wide, an_engine_without_segments_of_a_tensor_has_none_of_its_rounds);
	tcase_add_test(wide, what_is_open_waits_for_who_comes);
	tcase_add_loop_test(wide, what_the_lost_process_gave_is_not_what_the_next_one_gives, 0, 2);
	tcase_add_test(wide, what_was_with_a_server_that_is_gone_waits_for_who_comes);
	tcase_add_test(alone, alone_what_is_open_waits_for_who_comes);
	tcase_add_test(alone, alone_a_mean_divides_by_the_survivors);
	tcase_add_test(alone, alone_a_broadcast_without_its_root_ends_the_job);
	tcase_add_test(alone, a_broadcast_goes_on_with_what_its_lost_root_gave);
	suite_add_tcase(s, wide);
	suite_add_tcase(s, alone);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
