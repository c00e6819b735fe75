// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler's core holds its invariants whatever registered nodes say, in whatever order.
 * LIES=n runs n seeds instead of 5000, LIES_SEED=s that one alone.
 */
#include <check.h>
#include <signal.h>
#include <unistd.h>

#include "tests/fuzz/sched_liar.h"

#define SEEDS	5000u
#define CASES	10u
#define MOVES_EACH	150u

static uint64_t seed;

/* Async-signal-safe: a failed ASSERT is a signal, and its message has been printed. */
static void say_seed(int signum)
{
	char text[80];
	int n = snprintf(text, sizeof(text), "repeat it: LIES_SEED=%llu test_sched_lies\n",
			 (unsigned long long)seed);

	(void)!write(STDERR_FILENO, text, (size_t)n);
	signal(signum, SIG_DFL);
	raise(signum);
}

static void run(uint64_t first, uint64_t count)
{
	signal(SIGABRT, say_seed);
	signal(SIGSEGV, say_seed);
	for (seed = first; seed < first + count; seed++) {
		liar_begin(NULL, 0, seed);
		sched_liar_run(MOVES_EACH);
	}
}

START_TEST(whatever_nodes_say_the_invariants_hold)
{
	const char *one = getenv("LIES_SEED"), *n = getenv("LIES");
	uint64_t each = (n ? strtoull(n, NULL, 10) : SEEDS) / CASES;

	if (one && _i == 0)
		run(strtoull(one, NULL, 10), 1);
	else if (!one)
		run((uint64_t)_i * each + 1, each);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sched_lies");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 3600);
	tcase_add_loop_test(t, whatever_nodes_say_the_invariants_hold, 0, CASES);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
