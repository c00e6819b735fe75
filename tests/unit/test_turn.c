// SPDX-License-Identifier: Apache-2.0
/* turn.c: equal shares in strict rotation, others by their weight, whoever asks. */
#include <check.h>
#include <stdlib.h>

#include "common/base/turn.h"

static uint32_t turn(const uint32_t *end, uint32_t n, uint64_t i)
{
	return turn_of(end, sizeof(*end), n, i);
}

START_TEST(equal_shares_take_strict_turns)
{
	uint32_t end[64];

	for (uint32_t n = 1; n <= 64; n++) {
		for (uint32_t k = 0; k < n; k++)
			end[k] = (uint32_t)((uint64_t)TURN_SUM * (k + 1) / n);
		for (uint32_t i = 0; i < 200; i++)
			ck_assert_uint_eq(turn(end, n, i), i % n);
	}
}
END_TEST

START_TEST(unequal_shares_get_what_they_weigh)
{
	const uint32_t end[3] = { TURN_SUM / 8, TURN_SUM / 2, TURN_SUM };
	uint32_t got[3] = { 0 };

	for (uint32_t i = 0; i < 8192; i++)
		got[turn(end, 3, i)]++;
	ck_assert_uint_le(abs((int)got[0] - 1024), 4);
	ck_assert_uint_le(abs((int)got[1] - 3072), 4);
	ck_assert_uint_le(abs((int)got[2] - 4096), 4);
}
END_TEST

START_TEST(shares_may_stand_in_structures)
{
	const struct {
		uint32_t other, end;
	} s[2] = { { 7, TURN_SUM / 2 }, { 9, TURN_SUM } };

	for (uint32_t i = 0; i < 10; i++)
		ck_assert_uint_eq(turn_of(&s[0].end, sizeof(s[0]), 2, i), i % 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("turn");
	TCase *t = tcase_create("turn");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, equal_shares_take_strict_turns);
	tcase_add_test(t, unequal_shares_get_what_they_weigh);
	tcase_add_test(t, shares_may_stand_in_structures);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
