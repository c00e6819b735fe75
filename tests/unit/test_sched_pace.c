// SPDX-License-Identifier: Apache-2.0
/*
 * sched_pace.c: a slow server is found, gets what it can do, and nothing swings.
 *
 * A model: in every window each server sums its share of a round that takes as long as
 * the slowest server needs; what is measured is noisy.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "scheduler/sched_pace.h"

#define WINDOW_S	2.0
#define MANY		64u

static struct pace pace;
static struct pace_server sv[MANY];
static double rate[MANY];		/* of the server, over what the plan thinks */
static uint32_t n;
static struct rng rng;

static void start(uint32_t servers, uint64_t seed)
{
	pace = (struct pace){ 0 };
	n = servers;
	rng = (struct rng){ seed + 1 };
	for (uint32_t i = 0; i < n; i++) {
		sv[i] = (struct pace_server){ .planned = 1.0 + i % 3 };
		rate[i] = 1;
	}
}

/* Between 1 / (1 + spread) and 1 + spread. */
static double noise(double spread)
{
	double at = (double)rng_below(&rng, 2000001) / 1000000 - 1;

	return pow(1 + spread, at);
}

/* How long server i sums in a round, the whole model being 1. */
static double time_of(uint32_t i)
{
	double sum = 0;

	for (uint32_t k = 0; k < n; k++)
		sum += sv[k].planned * pace_of(sv[k].pace);
	return pace_of(sv[i].pace) / sum / rate[i];
}

static double round_time(void)
{
	double longest = 0;

	for (uint32_t i = 0; i < n; i++)
		longest = MAX(longest, time_of(i));
	return longest;
}

/* A window in which communication takes `load` of the time. */
static bool look(double load, double spread)
{
	double longest = round_time();

	for (uint32_t i = 0; i < n; i++) {
		sv[i].busy = MIN(load * time_of(i) / longest * noise(spread), 1);
		sv[i].bytes = time_of(i) * rate[i] * sv[i].planned * load / longest;
	}
	return pace_look(&pace, sv, n, WINDOW_S);
}

static uint32_t changes(uint32_t windows, double load, double spread)
{
	uint32_t count = 0;

	for (uint32_t w = 0; w < windows; w++)
		count += look(load, spread);
	return count;
}

START_TEST(a_server_at_a_quarter_gets_a_quarter_and_all_of_it_back)
{
	for (uint32_t servers = 2; servers <= MANY; servers *= 2) {
		start(servers, servers);
		ck_assert_uint_eq(changes(100, 1, 0), 0);
		rate[1] = 0.25;
		ck_assert_uint_eq(changes(PACE_WINDOWS - 1, 1, 0), 0);
		ck_assert(look(1, 0));
		ck_assert_double_eq_tol(sv[1].pace, 0.25, 0.001);
		ck_assert_double_eq(pace_of(sv[0].pace), 1);
		ck_assert_uint_eq(changes(1000, 1, 0), 0);
		rate[1] = 1;
		ck_assert_uint_eq(changes(PACE_WINDOWS, 1, 0), 1);
		ck_assert_double_eq(sv[1].pace, 1);
		ck_assert_uint_eq(changes(1000, 1, 0), 0);
	}
}
END_TEST

START_TEST(most_of_them_slow_and_one_all_but_dead)
{
	start(4, 1);
	rate[0] = rate[1] = rate[2] = 0.5;
	ck_assert_uint_eq(changes(20, 1, 0), 1);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_double_eq_tol(sv[i].pace, 0.5, 0.001);
	ck_assert_double_eq(pace_of(sv[3].pace), 1);
	start(4, 1);
	rate[2] = 0.004;
	ck_assert_uint_eq(changes(500, 1, 0), 1);
	ck_assert_double_eq(sv[2].pace, PACE_LEAST);
}
END_TEST

START_TEST(what_is_nearly_right_stays)
{
	start(8, 1);
	for (uint32_t i = 0; i < n; i++)
		rate[i] = i & 1 ? 1 : 0.75;
	ck_assert_uint_eq(changes(1000, 1, 0), 0);
}
END_TEST

START_TEST(without_anything_to_gain_nothing_changes)
{
	start(4, 1);
	rate[1] = 0.25;
	ck_assert_uint_eq(changes(100, PACE_WORTH * 0.9, 0), 0);
	ck_assert_uint_eq(changes(100, 0, 0), 0);		/* nobody trains */
	n = 1;
	ck_assert_uint_eq(changes(100, 1, 0), 0);		/* nobody to compare with */
}
END_TEST

START_TEST(a_few_slow_rounds_are_no_slow_server)
{
	start(4, 1);
	for (uint32_t i = 0; i < 300; i++) {
		rate[1] = i % PACE_WINDOWS ? 0.25 : 1;
		ck_assert(!look(1, 0));
	}
}
END_TEST

/* A quarter more or less, at random, in every window of every server. */
START_TEST(noise_alone_changes_nothing)
{
	for (uint32_t servers = 2; servers <= MANY; servers *= 2) {
		uint32_t count = 0;

		for (uint64_t seed = 0; seed < 20; seed++) {
			start(servers, seed);
			count += changes(2000, 0.7, 0.25);
		}
		ck_assert_msg(count == 0, "%u servers: %u changes", servers, count);
	}
}
END_TEST

START_TEST(heavy_noise_changes_little_and_ever_less)
{
	for (uint32_t servers = 2; servers <= MANY; servers *= 2) {
		start(servers, 7);
		/* 40,000 s: waits of 20, 40, 80, ... 640 s, once they are long */
		ck_assert_uint_le(changes(20000, 0.5, 1.0), 7 + 40000 / 640 + 1);
		for (uint32_t i = 0; i < n; i++)
			ck_assert_double_ge(pace_of(sv[i].pace), 0.2);
	}
}
END_TEST

START_TEST(through_noise_a_slow_server_is_found_and_stays_found)
{
	for (uint32_t servers = 2; servers <= MANY; servers *= 2) {
		double before;

		start(servers, 3);
		rate[1] = 0.25;
		before = round_time();
		ck_assert_uint_ge(changes(50, 0.9, 0.25), 1);
		ck_assert_double_ge(sv[1].pace, 0.15);
		ck_assert_double_le(sv[1].pace, 0.4);
		ck_assert_double_le(round_time(), before / 1.5);
		ck_assert_uint_le(changes(2000, 0.9, 0.25), 2);
	}
}
END_TEST

/* A server that is slow and fast again in step with us: ever longer waits. */
START_TEST(a_server_that_swings_is_not_followed_for_ever)
{
	uint32_t count = 0;

	start(4, 1);
	for (uint32_t i = 0; i < 20000; i++) {
		rate[1] = pace_of(sv[1].pace) < 1 ? 1 : 0.25;
		count += look(1, 0);
	}
	ck_assert_uint_le(count, 7 + 40000 / 640 + 1);
	rate[1] = 1;
	ck_assert_uint_le(changes(20000, 1, 0), 1);
	ck_assert_double_eq(pace_of(sv[1].pace), 1);
	rate[1] = 0.25;					/* and it is forgiven */
	ck_assert_uint_eq(changes(PACE_WINDOWS, 1, 0), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sched_pace");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 240);
	tcase_add_test(t, a_server_at_a_quarter_gets_a_quarter_and_all_of_it_back);
	tcase_add_test(t, most_of_them_slow_and_one_all_but_dead);
	tcase_add_test(t, what_is_nearly_right_stays);
	tcase_add_test(t, without_anything_to_gain_nothing_changes);
	tcase_add_test(t, a_few_slow_rounds_are_no_slow_server);
	tcase_add_test(t, noise_alone_changes_nothing);
	tcase_add_test(t, heavy_noise_changes_little_and_ever_less);
	tcase_add_test(t, through_noise_a_slow_server_is_found_and_stays_found);
	tcase_add_test(t, a_server_that_swings_is_not_followed_for_ever);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
