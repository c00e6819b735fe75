// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/outbox.h"

#define MANY 5000u		/* several times what a mailbox holds */

static struct mailbox *box;
static struct outbox out;

static void ring(void *ctx)
{
	(void)ctx;
}

static void open_both(void)
{
	struct err e;

	ck_assert_int_eq(mailbox_new(&box, ring, NULL, &e), 0);
	outbox_init(&out, box, 3);
}

static void close_both(void)
{
	outbox_fini(&out);
	mailbox_free(box);
}

static void post_many(void)
{
	for (uint32_t i = 0; i < MANY; i++)
		outbox_post(&out, i, &i, sizeof(i));
}

START_TEST(outbox_loses_nothing_and_keeps_the_order)
{
	struct mail m;
	uint32_t next = 0, body;

	post_many();
	while (next < MANY) {
		uint32_t before = next;

		while (mailbox_poll(box, &m)) {
			memcpy(&body, m.body, sizeof(body));
			ck_assert_uint_eq(m.type, next);
			ck_assert_uint_eq(body, next);
			ck_assert_uint_eq(m.from, 3);
			next++;
		}
		ck_assert_uint_gt(next, before);
		ck_assert(outbox_flush(&out) || next < MANY);
	}
	ck_assert(!mailbox_poll(box, &m));
}
END_TEST

START_TEST(outbox_says_when_some_is_left)
{
	struct mail m;

	ck_assert(outbox_flush(&out));
	post_many();
	ck_assert(!outbox_flush(&out));
	for (uint32_t i = 0; i < MANY; i++) {
		(void)outbox_flush(&out);
		ck_assert(mailbox_poll(box, &m));
	}
	ck_assert(outbox_flush(&out));
}
END_TEST

START_TEST(outbox_fini_drops_the_rest)
{
	post_many();
	outbox_fini(&out);
	ck_assert(outbox_flush(&out));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("outbox");
	TCase *tc = tcase_create("outbox");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, open_both, close_both);
	tcase_add_test(tc, outbox_loses_nothing_and_keeps_the_order);
	tcase_add_test(tc, outbox_says_when_some_is_left);
	tcase_add_test(tc, outbox_fini_drops_the_rest);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
