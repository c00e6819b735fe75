/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig_main.h - the main of a suite with one case, over the setup() and teardown() of the rig
 * that includes it at its end.
 */
#ifndef TALLY_TESTS_RIG_MAIN_H
#define TALLY_TESTS_RIG_MAIN_H

#include <check.h>
#include <stdlib.h>

static inline int rig_main(const char *name, void (*add)(TCase *t))
{
	Suite *suite = suite_create(name);
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 240);
	add(t);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
