// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>

#include "common/base/idtab.h"

#define MANY (4 * IDTAB_BUCKETS)

static struct idtab tab;
static struct id_node node[MANY];

static void clear(void)
{
	tab = (struct idtab){ 0 };
	for (uint32_t i = 0; i < MANY; i++)
		node[i] = (struct id_node){ 0 };
}

START_TEST(idtab_finds_each_of_many_and_nobody_else)
{
	for (uint32_t i = 0; i < MANY; i++)
		ck_assert(idtab_add(&tab, &node[i], 3 * i));
	for (uint32_t i = 0; i < MANY; i++) {
		ck_assert_ptr_eq(idtab_find(&tab, 3 * i), &node[i]);
		ck_assert_ptr_null(idtab_find(&tab, 3 * i + 1));
	}
}
END_TEST

START_TEST(idtab_keeps_the_first_of_an_id)
{
	ck_assert(idtab_add(&tab, &node[0], UINT32_MAX));
	ck_assert(!idtab_add(&tab, &node[1], UINT32_MAX));
	ck_assert_ptr_eq(idtab_find(&tab, UINT32_MAX), &node[0]);
}
END_TEST

START_TEST(idtab_del_takes_one_out_of_a_chain)
{
	for (uint32_t i = 0; i < 3; i++)
		ck_assert(idtab_add(&tab, &node[i], 7 + i * IDTAB_BUCKETS));
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t gone = (i + 1) % 3;	/* the middle, an end, the last one */

		idtab_del(&tab, &node[gone]);
		ck_assert_ptr_null(idtab_find(&tab, 7 + gone * IDTAB_BUCKETS));
	}
	for (uint32_t i = 0; i < 3; i++)
		ck_assert(idtab_add(&tab, &node[i], 7 + i * IDTAB_BUCKETS));
}
END_TEST

START_TEST(idtab_del_of_a_stranger_changes_nothing)
{
	ck_assert(idtab_add(&tab, &node[0], 0));
	idtab_del(&tab, &node[1]);		/* never in; its id would be 0, too */
	ck_assert_ptr_eq(idtab_find(&tab, 0), &node[0]);
	idtab_del(&tab, &node[0]);
	idtab_del(&tab, &node[0]);
	ck_assert_ptr_null(idtab_find(&tab, 0));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("idtab");
	TCase *tc = tcase_create("idtab");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, clear, NULL);
	tcase_add_test(tc, idtab_finds_each_of_many_and_nobody_else);
	tcase_add_test(tc, idtab_keeps_the_first_of_an_id);
	tcase_add_test(tc, idtab_del_takes_one_out_of_a_chain);
	tcase_add_test(tc, idtab_del_of_a_stranger_changes_nothing);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
