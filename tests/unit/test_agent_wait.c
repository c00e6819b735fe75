// SPDX-License-Identifier: Apache-2.0
/* agent_core_wait.c: for whom a round waits, and for whom it does not. */
#include "tests/unit/agent_rig.h"

static struct msg_wait only_wait(uint32_t k)
{
	struct msg_wait rows[4];

	ck_assert_uint_eq(ag_waits_for(tensor[k], now, rows, 4), 1);
	ck_assert_uint_eq(rows[0].tensor, k + 1);
	ck_assert_uint_eq(rows[0].round, tensor[k]->round);
	return rows[0];
}

static void expect_no_wait(uint32_t k)
{
	struct msg_wait row;

	ck_assert_uint_eq(ag_waits_for(tensor[k], now, &row, 1), 0);
}

START_TEST(a_server_that_answers_no_probe_is_what_a_round_waits_for)
{
	post(0, 1, 0);
	expect_pushes(0);
	expect_no_wait(0);
	for (uint32_t i = 0; i < SEGS; i++)	/* it lived, and then it does not */
		say_held(0, i, 0);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_MACHINE);
	later(PROBE_MIN_MS);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_MACHINE);	/* it has some time to answer */
	for (uint32_t i = 0; i < 20; i++) {
		later(100);
		ck_assert_uint_eq(only_wait(0).kind, WAIT_SERVER);
		ck_assert_uint_eq(only_wait(0).who, 77);
		ck_assert_uint_eq(only_wait(0).chunks, SEGS);
	}
	ck_assert_uint_eq(only_wait(0).age_ms, 2000 + PROBE_MIN_MS);
	while (next().type != FRAME_NONE)
		;
	for (uint32_t i = 0; i < SEGS; i++)
		say_held(0, i, 0);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_MACHINE);
	results(0);
	expect_no_wait(0);
}
END_TEST

START_TEST(a_server_that_gives_again_what_still_lands_has_answered)
{
	post(0, 1, 0);
	expect_pushes(0);
	for (uint32_t i = 0; i < SEGS; i++) {
		struct frame f = answer(FRAME_RESULT, 0, i);

		ck_assert_ptr_nonnull(ag_place(&core, &peer, &f, now));
	}
	later(PROBE_MIN_MS);
	later(100);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_SERVER);
	for (uint32_t i = 0; i < SEGS; i++) {
		struct frame f = answer(FRAME_RESULT, 0, i);

		ck_assert_ptr_null(ag_place(&core, &peer, &f, now));
	}
	expect_no_wait(0);
	for (uint32_t i = 0; i < SEGS; i++)
		say(FRAME_RESULT, 0, i);
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
}
END_TEST

START_TEST(a_round_waits_for_each_of_those_it_waits_for)
{
	struct msg_wait rows[4];

	post(0, 1, 0);
	expect_pushes(0);
	later(PROBE_MIN_MS);
	later(100);
	for (uint32_t i = 0; i < SEGS; i++)
		if (taken[i] == 1)
			say_held(0, i, 0);
	ck_assert_uint_eq(ag_waits_for(tensor[0], now, rows, 4), 2);
	ck_assert_uint_eq(rows[0].kind, WAIT_SERVER);
	ck_assert_uint_eq(rows[0].chunk, 0);
	ck_assert_uint_eq(rows[0].chunks, SEGS - 1);
	ck_assert_uint_eq(rows[1].kind, WAIT_MACHINE);
	ck_assert_uint_eq(rows[1].chunk, 1);
	ck_assert_uint_eq(rows[1].chunks, 1);
	ck_assert_uint_eq(ag_waits_for(tensor[0], now, rows, 1), 1);
}
END_TEST

/* PROBE and ASK come through, and no PUSH does. */
START_TEST(a_server_that_asks_and_gets_nothing_is_what_a_round_waits_for)
{
	uint32_t asked = 0;

	post(0, 1, 0);
	expect_pushes(0);
	for (uint32_t i = 0; i < 200; i++) {
		struct frame f;

		later(50);
		while ((f = next()).type != FRAME_NONE) {
			f.type = f.type == FRAME_PROBE ? FRAME_ASK : FRAME_NONE;
			asked += f.type == FRAME_ASK && f.chunk == taken[0];
			if (f.type == FRAME_ASK)
				ag_frame(&core, &peer, &f, now);
		}
		if (asked < 2)		/* the first one may just be slow */
			continue;
		ck_assert_uint_eq(only_wait(0).kind, WAIT_SERVER);
		ck_assert_uint_eq(only_wait(0).who, 77);
		ck_assert_uint_eq(only_wait(0).chunks, SEGS);
	}
	ck_assert_uint_gt(asked, AG_PATIENCE + 2);
	for (uint32_t i = 0; i < SEGS; i++)	/* at last */
		say_held(0, i, 0);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_MACHINE);
	results(0);
	expect_no_wait(0);
}
END_TEST

START_TEST(without_a_link_a_round_waits_for_the_server)
{
	post(0, 1, 0);
	expect_no_wait(0);		/* in the queue of a card is no waiting */
	ag_peer_down(&core, &peer);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_LINK);
	ck_assert_uint_eq(only_wait(0).chunks, SEGS);
}
END_TEST

/* A second server, which has no chunk. */
START_TEST(who_lacks_a_link_says_which_others_it_lacks)
{
	uint64_t bytes = 4 * SEG;
	struct ag_peer more;
	struct ag_route *both[2] = { route };
	struct msg_wait rows[3];

	ag_peer_init(&core, &more, 78, 0);
	both[1] = ag_route_init(calloc(1, ag_route_size(bytes)), &more, 1, bytes, now);
	ag_job_epoch(&core, job, EPOCH, both, 2);
	rows[0] = (struct msg_wait){ .tensor = 1, .round = 1, .chunks = 1, .kind = WAIT_RANK };
	ck_assert_uint_eq(ag_waits_elsewhere(job, rows, 0, 3), 0);
	ck_assert_uint_eq(ag_waits_elsewhere(job, rows, 1, 3), 1);	/* for no link */
	post(0, 1, 0);
	ag_peer_down(&core, &peer);
	ck_assert_uint_eq(ag_waits_for(tensor[0], now, &rows[1], 2), 1);
	ck_assert_uint_eq(ag_waits_elsewhere(job, rows, 2, 3), 3);
	ck_assert_uint_eq(rows[1].who, 77);
	ck_assert_uint_eq(rows[1].chunks, SEGS);
	ck_assert_uint_eq(rows[2].who, 78);
	ck_assert_uint_eq(rows[2].kind, WAIT_LINK);
	ck_assert_uint_eq(rows[2].chunks, 0);
	ck_assert_uint_eq(rows[2].tensor, 1);
	ck_assert_uint_eq(ag_waits_elsewhere(job, rows, 3, 3), 3);	/* is there */
	ck_assert_uint_eq(ag_waits_elsewhere(job, rows, 2, 2), 2);	/* no room */
	ck_assert_uint_eq(rows[1].who, 78);
	(void)ag_waits_for(tensor[0], now, &rows[1], 2);
	ag_peer_up(&core, &more, false, now);
	ck_assert_uint_eq(ag_waits_elsewhere(job, rows, 2, 3), 2);
	ag_job_epoch(&core, job, EPOCH, &route, 1);
	ag_route_del(both[1]);
	free(both[1]);
	ag_peer_up(&core, &peer, false, now);
	expect_pushes(0);
	results(0);
}
END_TEST

/* They come up, and are lost again: large packets do not pass. */
START_TEST(a_link_that_comes_back_and_carries_nothing_is_none)
{
	struct frame ask;

	post(0, 1, 0);
	expect_pushes(0);
	ag_peer_down(&core, &peer);
	ag_peer_up(&core, &peer, false, now);
	expect_pushes(0);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_LINK);
	ck_assert_uint_eq(only_wait(0).chunks, SEGS);
	later(PROBE_MIN_MS);
	ask = next();
	ck_assert_uint_eq(ask.type, FRAME_PROBE);
	ask.type = FRAME_ASK;		/* what is small passes */
	ag_frame(&core, &peer, &ask, now);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_LINK);
	for (uint32_t i = 0; i < SEGS; i++)
		say_held(0, i, 0);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_MACHINE);
	ag_peer_hurt(&core, &peer);	/* one of several */
	ck_assert_uint_eq(only_wait(0).kind, WAIT_LINK);
	results(0);
	expect_no_wait(0);
	post(0, 2, 0);
	expect_pushes(0);
	expect_no_wait(0);
}
END_TEST

START_TEST(without_room_a_round_waits_for_whom_the_window_waits_for)
{
	post(0, 1, 0);			/* two of its segments fill the window */
	expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 1);
	post(1, 1, 0);
	expect_silence();
	expect_no_wait(1);
	say_held(0, 0, 0);
	ck_assert_uint_eq(only_wait(0).chunks, SEGS - 1);	/* one was pushed, and not held */
	ck_assert_uint_eq(only_wait(1).kind, WAIT_MACHINE);
	ck_assert_uint_eq(only_wait(1).who, 0);
	ck_assert_uint_eq(only_wait(1).chunks, SEGS);
}
END_TEST

/* What was lost on the way, and then gave its room to another one, waits for nobody. */
START_TEST(who_answered_a_cancel_is_not_what_a_round_waits_for)
{
	struct frame f;

	post(0, 1, 0);
	expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 1);
	for (uint32_t i = 0; i < 2; i++) {
		later(PROBE_MAX_MS);
		while (next().type != FRAME_NONE)
			;
		say_held(0, 0, 0);
		say(FRAME_ASK, 0, 1);
	}
	ck_assert_uint_eq(ag_waits_for(tensor[0], now, &(struct msg_wait) { 0 }, 1), 1);
	ck_assert(tensor[0]->seg[1].lost);
	say(FRAME_ASK, 0, 3);
	do {
		f = next();
		ck_assert_uint_ne(f.type, FRAME_NONE);
	} while (f.type != FRAME_CANCEL || f.chunk != taken[1]);
	f.type = FRAME_CANCELLED;
	ag_frame(&core, &peer, &f, now);
	expect(FRAME_PUSH, 0, 3);
	ck_assert_uint_eq(only_wait(0).kind, WAIT_MACHINE);
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
	TCase *wide = tcase("wide window", setup), *small = tcase("small window", setup_small);
	Suite *s = suite_create("agent_wait");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(wide, a_server_that_answers_no_probe_is_what_a_round_waits_for);
	tcase_add_test(wide, a_server_that_asks_and_gets_nothing_is_what_a_round_waits_for);
	tcase_add_test(wide, a_server_that_gives_again_what_still_lands_has_answered);
	tcase_add_test(wide, a_round_waits_for_each_of_those_it_waits_for);
	tcase_add_test(wide, without_a_link_a_round_waits_for_the_server);
	tcase_add_test(wide, who_lacks_a_link_says_which_others_it_lacks);
	tcase_add_test(wide, a_link_that_comes_back_and_carries_nothing_is_none);
	tcase_add_test(small, without_room_a_round_waits_for_whom_the_window_waits_for);
	tcase_add_test(small, who_answered_a_cancel_is_not_what_a_round_waits_for);
	suite_add_tcase(s, wide);
	suite_add_tcase(s, small);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
