// SPDX-License-Identifier: Apache-2.0
/*
 * A session that has left its job, and memory of it that somebody still looks at, or a child.
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/client_rig.h"

static bool is_mapped(const void *p)
{
	unsigned char in_core;

	return mincore((void *)((uintptr_t)p / PAGE_BYTES * PAGE_BYTES), PAGE_BYTES, &in_core) == 0;
}

START_TEST(memory_outlives_leaving_until_detach)
{
	int before = open_descriptors();
	const float *result;
	float *mem, x = 7;
	tally_tensor *t;
	tally_ticket k;

	start(NO_TRICK);
	t = declare("w", TALLY_FLOAT32, 1);
	ck_assert_int_eq(tally_alloc(s, sizeof(*mem), (void **)&mem), 0);
	*mem = x;
	wait_ok(push(t, mem, NULL));
	result = tally_result(s, t);
	x = *result;
	ck_assert_int_ge(tally_fd(s), 0);
	k = push(t, mem, mem);
	ck_assert_int_eq(tally_leave(s), 0);
	fake_end(agent);
	ck_assert_int_eq(open_descriptors(), before);
	*mem += 1;
	ck_assert_float_eq(*result, x);
	ck_assert_int_eq(tally_barrier(s, 1), TALLY_ESHUTDOWN);
	expect_text("has left its job");
	ck_assert_int_eq(tally_push_pull(s, t, mem, NULL, NULL, &k), TALLY_ESHUTDOWN);
	ck_assert_int_eq(tally_fd(s), TALLY_ESHUTDOWN);
	ck_assert_int_eq(tally_poll(s), TALLY_ESHUTDOWN);
	ck_assert_int_eq(tally_wait(s, k, 1), TALLY_ESHUTDOWN);
	expect_text("has left its job");
	ck_assert_int_eq(tally_test(s, k), TALLY_ESHUTDOWN);
	ck_assert_int_eq(tally_rank(s), 0);
	ck_assert_int_eq(tally_live_ranks(s), 2);
	ck_assert_int_eq(tally_leave(s), 0);
	ck_assert_int_eq(tally_leave(NULL), 0);
	ck_assert(is_mapped(mem) && is_mapped(result));
	ck_assert_int_eq(tally_detach(s), 0);
	ck_assert(!is_mapped(mem) && !is_mapped(result));
	ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

/* What becomes of mem in a child, and in a child of that one; *mem there. */
static int written_by_child(float *mem, int depth)
{
	pid_t child = fork();
	int status;

	if (child) {
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFEXITED(status));
		return WEXITSTATUS(status);
	}
	tally_forked(s);
	*mem += 1;
	if (!depth)
		_exit((int)*mem);
	_exit(written_by_child(mem, depth - 1) == (int)*mem + 1 ? (int)*mem : 0);
}

START_TEST(what_a_child_writes_stays_with_it)
{
	float *mem;

	start(NO_TRICK);
	ck_assert_int_eq(tally_alloc(s, sizeof(*mem), (void **)&mem), 0);
	*mem = 7;
	ck_assert_int_eq(written_by_child(mem, 1), 8);
	ck_assert_float_eq(*mem, 7);
	ck_assert_int_eq(tally_leave(s), 0);	/* it has no descriptors any more */
	ck_assert_int_eq(written_by_child(mem, 1), 8);
	ck_assert_float_eq(*mem, 7);
	finish();
	tally_forked(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_leave");
	TCase *tc = tcase_create("all");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_add_test(tc, memory_outlives_leaving_until_detach);
	tcase_add_test(tc, what_a_child_writes_stays_with_it);
	suite_add_tcase(suite, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
