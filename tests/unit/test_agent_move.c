// SPDX-License-Identifier: Apache-2.0
/*
 * agent_core_move.c: an epoch gives all chunks to another server, while the first one lives or
 * when it has died; and what a link that breaks leaves of a push.
 */
#include "tests/unit/agent_rig.h"

enum { NEXT = EPOCH + 5 };

static struct ag_peer heir;
static struct ag_route *to_heir;

static void setup_two(void)
{
	setup();
	ag_peer_init(&core, &heir, 78, 0);
	to_heir = ag_route_init(calloc(1, ag_route_size(64 * SEG)), &heir, 0, 64 * SEG, now);
	ag_peer_up(&core, &heir, false, now);
}

static void teardown_two(void)
{
	bool is_of_job = to_heir->job;

	teardown();
	if (!is_of_job)
		free(to_heir);
}

/* Again: it has gone on to say that the old one is dead. */
static void move(bool again)
{
	static struct ag_route *routes[2];
	static const uint32_t to[SEGS] = { 1, 1, 1, 1 };
	static const uint32_t since[SEGS] = { NEXT, NEXT, NEXT, NEXT };

	routes[0] = route;
	routes[1] = to_heir;
	if (again)
		ag_route_gone(route);
	else
		ag_job_epoch(&core, job, NEXT, routes, 2);
	for (uint32_t k = 0; k < TENSORS; k++)
		ag_tensor_move(&core, tensor[k], to, since, now);
	if (!again)
		ag_check(&core);
}

static void expect_at(const struct ag_peer *p, uint8_t type, uint32_t epoch, uint32_t round)
{
	struct ag_send s;

	ck_assert(ag_next(&core, now, &s));
	ck_assert_str_eq(frame_type_name(s.frame.type), frame_type_name(type));
	ck_assert_ptr_eq(s.peer, p);
	ck_assert_uint_eq(s.frame.epoch, epoch);
	ck_assert_uint_eq(s.frame.round, round);
	if (type == FRAME_PUSH)
		ck_assert_uint_eq(s.frame.attempt, 0);
	if (s.data)
		ag_sent(&core, s.peer, s.seg, s.frame.length, now);
	ag_check(&core);
}

/* The old server gives all back, and it is pushed to the next one, not before. */
static void goes_over_after_cancel(void)
{
	for (uint32_t i = 0; i < SEGS; i++)
		expect_at(&peer, FRAME_CANCEL, EPOCH, 1);
	expect_silence();
	ck_assert(!ag_job_settled(job));
	for (uint32_t i = 0; i < SEGS; i++)
		say(FRAME_CANCELLED, 0, i);
	for (uint32_t i = 0; i < SEGS; i++)
		expect_at(&heir, FRAME_PUSH, NEXT, 1);
	expect_silence();
	ck_assert(ag_job_settled(job));
}

static void seek(uint32_t round)
{
	for (uint32_t i = 0; i < SEGS; i++) {
		struct frame f = answer(FRAME_SEEK, 0, i);

		f.epoch = NEXT;
		f.round = round;
		ag_frame(&core, &heir, &f, now);
	}
}

START_TEST(what_is_pushed_stays_until_somebody_asks_for_it)
{
	post(0, 1, 0);
	expect_pushes(0);
	move(false);
	expect_silence();
	if (_i == 0) {
		seek(1);
	} else if (_i == 1) {
		for (uint32_t i = 0; i < SEGS; i++)
			say_held(0, i, 0);
	} else if (_i == 2) {
		for (uint32_t i = 0; i < SEGS; i++)
			say(FRAME_ASK, 0, i);
	} else {
		ag_peer_down(&core, &peer);
		ag_peer_up(&core, &peer, false, now);
	}
	goes_over_after_cancel();
}
END_TEST

/* A link broke, and the old server may have what is to be pushed once more. */
START_TEST(what_may_have_been_pushed_comes_back_first)
{
	post(0, 1, 0);
	expect_pushes(0);
	ag_peer_down(&core, &peer);
	ag_peer_up(&core, &peer, false, now);
	move(false);
	goes_over_after_cancel();
}
END_TEST

START_TEST(what_a_dead_server_had_goes_over_at_once)
{
	post(0, 1, 0);
	expect_pushes(0);
	move(false);
	expect_silence();
	move(true);
	for (uint32_t i = 0; i < SEGS; i++)
		expect_at(&heir, FRAME_PUSH, NEXT, 1);
	ck_assert(ag_job_settled(job));
}
END_TEST

/* Another sum of the round is made at the next one: of the first nothing counts any more. */
START_TEST(what_lands_of_a_dead_server_is_no_result)
{
	struct frame f;

	post(0, 1, 0);
	expect_pushes(0);
	f = answer(FRAME_RESULT, 0, 0);
	ck_assert_ptr_nonnull(ag_place(&core, &peer, &f, now));
	move(false);
	move(true);
	ag_frame(&core, &peer, &f, now);
	ck_assert_uint_eq(core.count.results, 0);
	ck_assert_uint_eq(tensor[0]->left, SEGS);
	for (uint32_t i = 0; i < SEGS; i++)
		expect_at(&heir, FRAME_PUSH, NEXT, 1);
}
END_TEST

START_TEST(another_server_has_nothing_to_say)
{
	struct frame f;

	post(0, 1, 0);
	expect_pushes(0);
	f = answer(FRAME_RESULT, 0, 0);
	ck_assert_ptr_null(ag_place(&core, &heir, &f, now));
	move(false);
	ck_assert_ptr_null(ag_place(&core, &heir, &f, now));
	ck_assert_uint_eq(core.count.drop_job, 2);
}
END_TEST

/* It asks before it is spoken to. */
START_TEST(the_next_server_is_given_the_round_before_when_all_is_there)
{
	post(0, 1, 0);
	expect_pushes(0);
	results(0);
	post(0, 2, 0);
	expect_pushes(0);
	move(false);
	seek(1);
	for (uint32_t i = 0; i < SEGS; i++)
		expect_at(&peer, FRAME_CANCEL, EPOCH, 2);
	expect_silence();
	for (uint32_t i = 0; i < SEGS; i++)
		say(FRAME_CANCELLED, 0, i);
	for (uint32_t i = 0; i < SEGS; i++)
		expect_at(&heir, FRAME_GIVE, NEXT, 1);
	for (uint32_t i = 0; i < SEGS; i++)
		expect_at(&heir, FRAME_PUSH, NEXT, 2);
}
END_TEST

/* It went out twice, since a link broke, and the first one is done first. */
START_TEST(a_slot_serves_nobody_before_all_pushes_into_it_are_done)
{
	struct ag_send first, second, s;

	post(0, 1, 0);
	ck_assert(ag_next(&core, now, &first));
	ag_peer_down(&core, &peer);
	ag_peer_up(&core, &peer, false, now);
	ck_assert(ag_next(&core, now, &second));
	ck_assert_uint_eq(second.frame.slot, first.frame.slot);
	for (uint32_t i = 1; i < SEGS; expect(FRAME_PUSH, 0, i++));
	results(0);
	ag_sent(&core, &peer, first.seg, first.frame.length, now);
	post(1, 1, 0);
	while (ag_next(&core, now, &s)) {
		ck_assert(s.frame.slot != first.frame.slot);
		ag_sent(&core, &peer, s.seg, s.frame.length, now);
	}
	ag_sent(&core, &peer, second.seg, second.frame.length, now);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_move");
	TCase *t = tcase_create("agent_move");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup_two, teardown_two);
	tcase_add_loop_test(t, what_is_pushed_stays_until_somebody_asks_for_it, 0, 4);
	tcase_add_test(t, what_may_have_been_pushed_comes_back_first);
	tcase_add_test(t, what_a_dead_server_had_goes_over_at_once);
	tcase_add_test(t, what_lands_of_a_dead_server_is_no_result);
	tcase_add_test(t, another_server_has_nothing_to_say);
	tcase_add_test(t, the_next_server_is_given_the_round_before_when_all_is_there);
	tcase_add_test(t, a_slot_serves_nobody_before_all_pushes_into_it_are_done);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
