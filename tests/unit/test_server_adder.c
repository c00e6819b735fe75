// SPDX-License-Identifier: Apache-2.0
/* test_server_adder.c - what a server says that it sums, and what it does without memory. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "common/kern/adder.h"
#include "common/kern/kern.h"
#include "common/rt/loop.h"
#include "server/server.h"

static const int anywhere[ENGINES_MAX] = {
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
};
static atomic_int_fast64_t ticks;

#define TICK_MS	10u

/* Each look takes a tick, whoever looks. */
static mono_t fake_clock(void)
{
	return mono_ms(TICK_MS * ((uint64_t)atomic_fetch_add(&ticks, 1) + 1));
}

/* n engines look 2n times at the clock in a round: from the first look to the last. */
START_TEST(a_round_is_all_engines_sums_until_the_last_has_done)
{
	const uint32_t n = (uint32_t)_i;
	size_t each = MAX(ADDER_SCRATCH_BYTES / n, SV_ADDER_EACH_MIN) / PAGE_BYTES * PAGE_BYTES;
	void *scratch = mmap(NULL, each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	uint64_t rate = 0, round;
	struct err e;

	ck_assert_ptr_ne(scratch, MAP_FAILED);
	round = n * adder_pass(scratch, each);
	munmap(scratch, each);
	ck_assert_int_eq(sv_adder_measure(n, anywhere, fake_clock, &rate, &e), 0);
	ck_assert_uint_eq(rate, adder_rate(round, mono_ms(TICK_MS * (2 * n - 1))));
	ck_assert_uint_ge(TICK_MS * (uint64_t)ticks, ADDER_MEASURE_MS);
	ck_assert_uint_ge((uint64_t)ticks, 2 * n * ADDER_ROUNDS_MIN);
	if ((uint64_t)ticks > 2 * n * ADDER_ROUNDS_MIN)
		ck_assert_uint_le(TICK_MS * ((uint64_t)ticks - 2 * n), ADDER_MEASURE_MS);
}
END_TEST

/* As fake_clock(), but somebody else has the CPU in the first round. */
static mono_t busy_clock(void)
{
	mono_t t = fake_clock();

	return ticks < 2 ? t : t + 10 * mono_ms(ADDER_MEASURE_MS);
}

START_TEST(a_round_that_takes_long_is_not_the_only_one)
{
	uint64_t calm = 0, busy = 0;
	struct err e;

	ck_assert_int_eq(sv_adder_measure(1, anywhere, fake_clock, &calm, &e), 0);
	ticks = 0;
	ck_assert_int_eq(sv_adder_measure(1, anywhere, busy_clock, &busy, &e), 0);
	ck_assert_uint_eq(busy, calm);
}
END_TEST

/* A round takes 300 ms, and there are 300 ms between two. */
static mono_t slow_clock(void)
{
	return 30 * fake_clock();
}

START_TEST(no_server_measures_for_long)
{
	uint64_t rate = 0;
	struct err e;

	ck_assert_int_eq(sv_adder_measure(1, anywhere, slow_clock, &rate, &e), 0);
	ck_assert_uint_gt(rate, 0);
	ck_assert_int_eq(ticks, 2 * 3);
}
END_TEST

START_TEST(a_cpu_that_is_not_ours_is_an_error)
{
	static const int cpus[] = { -1, 1023 };
	uint64_t rate = 0;
	struct err e;

	ck_assert_int_eq(sv_adder_measure(2, cpus, loop_now, &rate, &e), TALLY_EINVAL);
	ck_assert_uint_eq(rate, 0);
}
END_TEST

/* Sanitizers keep memory of their own, which the limit would refuse them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMITS	0
#else
#define LIMITS	1
#endif

static void leave_no_more_than(size_t bytes)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;
	struct rlimit r;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	r.rlim_cur = r.rlim_max = pages * PAGE_BYTES + bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &r), 0);
}

START_TEST(little_memory_is_measured_with_and_none_is_an_error)
{
	uint64_t rate = 0;
	struct err e;

	leave_no_more_than(ADDER_SCRATCH_BYTES / 2 + (32u << 20));	/* of that a stack */
	ck_assert_int_eq(sv_adder_measure(1, anywhere, loop_now, &rate, &e), 0);
	ck_assert_uint_gt(rate, 0);
	leave_no_more_than(1u << 20);
	ck_assert_int_eq(sv_adder_measure(1, anywhere, loop_now, &rate, &e), TALLY_ENOMEM);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server_adder");
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	kern_init(UINT32_MAX);
	tcase_add_loop_test(t, a_round_is_all_engines_sums_until_the_last_has_done, 1, 5);
	tcase_add_test(t, a_round_that_takes_long_is_not_the_only_one);
	tcase_add_test(t, no_server_measures_for_long);
	tcase_add_test(t, a_cpu_that_is_not_ours_is_an_error);
	if (LIMITS)
		tcase_add_test(t, little_memory_is_measured_with_and_none_is_an_error);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
