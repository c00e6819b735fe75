// SPDX-License-Identifier: Apache-2.0
/* sched_declare.c: what ranks hear that disagree on a tensor, whatever memory there is. */
#include "tests/unit/sched_rig.h"

static const struct want hundred = { "t", DTYPE_F32, 100 }, more = { "t", DTYPE_F32, 101 };

static uint32_t machine, job;

static int heard(uint64_t req)
{
	return count(machine, MSG_REPLY, req) ? answer(machine, req)->code : 0;
}

/* Who is told so is not heard again; so who asks later must be told, too, and not wait for them. */
START_TEST(who_asks_late_hears_of_it_whichever_allocation_has_failed)
{
	machine = hello(NODE_AGENT, "a");
	for (uint32_t r = 0; r < 3; r++)
		join(machine, 1 + r, 3, r);
	job = last(machine, MSG_JOB_UP)->job;
	declare_in(machine, 10, job, 0, &hundred, 1);
	w->allocs = 0;
	w->fail_every = (uint32_t)_i;
	declare_in(machine, 11, job, 1, &more, 1);
	w->fail_every = 0;
	if (heard(11) == TALLY_ENOMEM || !count(machine, MSG_REPLY, 11))
		declare_in(machine, 11, job, 1, &more, 1);	/* as who has not heard does */
	ck_assert_int_eq(heard(11), TALLY_EMISMATCH);
	declare_in(machine, 12, job, 2, &hundred, 1);
	ck_assert_int_eq(heard(12), TALLY_EMISMATCH);
	for (uint32_t r = 0; r < 3; r++)		/* and then it is forgotten */
		declare_in(machine, 20 + r, job, r, &hundred, 1);
	ck_answer(machine, 22, 0, "");
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, who_asks_late_hears_of_it_whichever_allocation_has_failed, 1, 12);
}

int main(void)
{
	return rig_main("sched_declare", add);
}
