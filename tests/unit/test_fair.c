// SPDX-License-Identifier: Apache-2.0
/* fair.c: bytes are shared between users first, then between the flows of each. */
#include <check.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "common/base/fair.h"

enum { FLOWS = 12, UNIT = 1000 };

static struct fair f;
static struct fair_flow flow[FLOWS];
static uint64_t had[FLOWS];

static void setup(void)
{
	fair_init(&f);
	for (uint32_t i = 0; i < FLOWS; i++) {
		flow[i] = (struct fair_flow){ 0 };
		had[i] = 0;
	}
}

static void join(uint32_t i, uint32_t user)
{
	fair_join(&f, &flow[i], user);
	fair_wake(&flow[i]);
}

static uint32_t serve_first(uint64_t bytes)
{
	struct fair_flow *w = fair_first(&f);
	uint32_t i = (uint32_t)(w - flow);

	fair_serve(w, bytes);
	had[i] += bytes;
	fair_check(&f);
	return i;
}

static void serve(uint32_t turns)
{
	while (turns--)
		serve_first(UNIT);
}

START_TEST(ten_jobs_of_one_user_have_what_the_one_of_another_has)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < 10; i++)
		join(i, 7);
	join(10, 8);
	serve(2000);
	for (uint32_t i = 0; i < 10; i++) {
		ck_assert_uint_eq(had[i], 100 * UNIT);
		all += had[i];
	}
	ck_assert_uint_eq(had[10], all);
}
END_TEST

/* By bytes, not by turns. */
START_TEST(large_turns_are_fewer)
{
	join(0, 1);
	join(1, 2);
	for (uint32_t i = 0; i < 1000; i++)
		serve_first(fair_first(&f) == &flow[0] ? 64 * UNIT : UNIT);
	ck_assert_uint_le(had[0], had[1] + 64 * UNIT);
	ck_assert_uint_le(had[1], had[0] + UNIT);
}
END_TEST

/* It is asleep after each turn, in which it takes more than others do in one. */
START_TEST(a_flow_that_has_one_turn_at_a_time_keeps_its_debt)
{
	join(0, 1);
	join(1, 2);
	for (uint32_t i = 0; i < 1000; i++) {
		if (serve_first(fair_first(&f) == &flow[0] ? 64 * UNIT : UNIT))
			continue;
		fair_sleep(&flow[0]);
		fair_wake(&flow[0]);
	}
	ck_assert_uint_le(had[0], had[1] + 64 * UNIT);
}
END_TEST

/* So do many flows of which one at a time is awake. */
START_TEST(a_user_that_takes_turns_with_itself_keeps_its_debt)
{
	uint32_t awake = 1;

	join(0, 9);
	for (uint32_t i = 1; i < FLOWS; i++) {
		join(i, 7);
		if (i != awake)
			fair_sleep(&flow[i]);
	}
	for (uint32_t i = 0; i < 1000; i++) {
		if (!serve_first(fair_first(&f) == &flow[0] ? UNIT : 64 * UNIT))
			continue;
		fair_sleep(&flow[awake]);
		awake = awake % (FLOWS - 1) + 1;
		fair_wake(&flow[awake]);
	}
	for (uint32_t i = 2; i < FLOWS; i++)
		had[1] += had[i];
	ck_assert_uint_le(had[1], had[0] + 64 * UNIT);
}
END_TEST

START_TEST(who_wakes_has_no_claim_to_what_others_had_meanwhile)
{
	join(0, 1);
	join(1, 2);
	fair_sleep(&flow[1]);
	serve(100);
	fair_wake(&flow[1]);
	serve(100);
	ck_assert_uint_le(had[1], 51 * UNIT);
	ck_assert_uint_ge(had[1], 49 * UNIT);
}
END_TEST

/* It is first, and what it has does not fit now: the one after it is served. */
START_TEST(who_could_not_send_has_no_claim_later)
{
	join(0, 1);
	join(1, 2);
	for (uint32_t i = 0; i < 100; i++)
		fair_serve(&flow[1], UNIT);
	ck_assert_ptr_eq(fair_first(&f), &flow[0]);
	serve(100);
	ck_assert_uint_le(had[0], 51 * UNIT);
}
END_TEST

/* Rounds of 20 turns, and then an answer takes as long as 10 turns of others. */
static void rounds_beside(uint32_t small, uint32_t large, uint32_t n)
{
	fair_sleep(&flow[small]);
	while (n--) {
		for (uint32_t i = 0; i < 10; i++)
			ck_assert_uint_eq(serve_first(UNIT), large);
		fair_wake(&flow[small]);
		for (uint32_t i = 0; i < 20; )
			i += serve_first(UNIT) == small;
		fair_sleep(&flow[small]);
	}
}

START_TEST(who_waits_for_answers_has_half_of_all_time_by_credit)
{
	join(0, 1);
	join(1, 1 + (uint32_t)_i);		/* of the same user, of another one */
	rounds_beside(1, 0, 100);
	ck_assert_uint_lt(had[1], had[0] * 7 / 10);	/* 20 of 20 + 10 + 20 turns */
	f.credit = 20 * UNIT;
	had[0] = had[1] = 0;
	rounds_beside(1, 0, 100);
	ck_assert_uint_ge(had[1] + 10 * UNIT, had[0]);
	ck_assert_uint_le(had[1], had[0] + 20 * UNIT);
}
END_TEST

START_TEST(who_slept_long_claims_no_more_than_credit)
{
	f.credit = 10 * UNIT;
	join(0, 1);
	join(1, 1 + (uint32_t)_i);
	fair_sleep(&flow[1]);
	serve(1000);
	fair_wake(&flow[1]);
	had[0] = 0;
	serve(100);
	ck_assert_uint_ge(had[1], 54 * UNIT);
	ck_assert_uint_le(had[1], 56 * UNIT);
}
END_TEST

START_TEST(who_joins_has_no_credit)
{
	f.credit = 10 * UNIT;
	join(0, 1);
	serve(1000);
	join(1, 1 + (uint32_t)_i);
	had[0] = 0;
	serve(100);
	ck_assert_uint_ge(had[1], 49 * UNIT);
	ck_assert_uint_le(had[1], 51 * UNIT);
}
END_TEST

START_TEST(what_costs_nothing_changes_no_turn)
{
	join(0, 1);
	join(1, 2);
	serve(3);
	fair_serve(&flow[0], 0);
	fair_serve(&flow[1], 0);
	serve(97);
	ck_assert_uint_eq(had[0], had[1]);
}
END_TEST

START_TEST(all_that_are_awake_come_by_user_then_by_flow)
{
	const uint32_t order[] = { 0, 2, 1, 3 };
	uint32_t n = 0;

	join(0, 1);
	join(1, 2);
	join(2, 1);
	join(3, 2);
	for (struct fair_flow *w = fair_first(&f); w; w = fair_next(w))
		ck_assert_ptr_eq(w, &flow[order[n++]]);
	ck_assert_uint_eq(n, 4);
	ck_assert(!fair_before(&flow[0], &flow[1]) && !fair_before(&flow[1], &flow[0]));
	fair_serve(&flow[0], UNIT);
	ck_assert(fair_before(&flow[1], &flow[2]) && fair_before(&flow[2], &flow[0]));
}
END_TEST

static void step(struct rng *rng)
{
	uint32_t i = rng_below(rng, FLOWS);

	if (!flow[i].of) {
		fair_join(&f, &flow[i], rng_below(rng, 4));
		return;
	}
	switch (rng_below(rng, 8)) {
	case 0:
		fair_leave(&flow[i]);
		flow[i] = (struct fair_flow){ 0 };	/* its memory is another's */
		break;
	case 1: case 2: fair_wake(&flow[i]); break;
	case 3: fair_sleep(&flow[i]); break;
	default: fair_serve(&flow[i], rng_below(rng, 3) * UNIT);
	}
}

/* Records of users lie in flows, which come and go. */
START_TEST(a_users_record_outlives_the_flow_that_it_lay_in)
{
	struct rng rng = { (uint64_t)_i + 1 };

	f.credit = rng_below(&rng, 3) * UNIT;
	for (uint32_t n = 0; n < 20000; n++) {
		uint32_t awake = 0, listed = 0;

		step(&rng);
		fair_check(&f);
		for (uint32_t i = 0; i < FLOWS; i++)
			awake += flow[i].of && fair_awake(&flow[i]);
		for (struct fair_flow *w = fair_first(&f); w; w = fair_next(w))
			listed++;
		ck_assert_uint_eq(awake, listed);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fair");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, ten_jobs_of_one_user_have_what_the_one_of_another_has);
	tcase_add_test(t, large_turns_are_fewer);
	tcase_add_test(t, a_flow_that_has_one_turn_at_a_time_keeps_its_debt);
	tcase_add_test(t, a_user_that_takes_turns_with_itself_keeps_its_debt);
	tcase_add_test(t, who_wakes_has_no_claim_to_what_others_had_meanwhile);
	tcase_add_test(t, who_could_not_send_has_no_claim_later);
	tcase_add_loop_test(t, who_waits_for_answers_has_half_of_all_time_by_credit, 0, 2);
	tcase_add_loop_test(t, who_slept_long_claims_no_more_than_credit, 0, 2);
	tcase_add_loop_test(t, who_joins_has_no_credit, 0, 2);
	tcase_add_test(t, what_costs_nothing_changes_no_turn);
	tcase_add_test(t, all_that_are_awake_come_by_user_then_by_flow);
	tcase_add_loop_test(t, a_users_record_outlives_the_flow_that_it_lay_in, 0, 10);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
