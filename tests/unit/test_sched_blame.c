// SPDX-License-Identifier: Apache-2.0
/* sched_blame.c: who waits hears what is wrong on the network, and no innocent rank's name. */
#include "tests/unit/sched_rig.h"

static void beat(uint32_t conn, const char *note, const char *cause)
{
	struct msg m = {
		.type = MSG_HEARTBEAT, .heartbeat = { .seq = 1, .note = note, .cause = cause },
	};

	send(conn, &m);
}

#define HOLE "large packets are lost; set the same MTU"

START_TEST(a_barrier_is_kept_back_by_what_an_agent_says_of_the_network)
{
	struct pair p = pair_up();

	beat(p.b, "", HOLE);
	barrier(p.a, 9, p.job, 0, 1);
	pass(2001);
	ck_answer(p.a, 9, TALLY_ETIMEDOUT, "barrier 1 of job 'x' waits for agent b: " HOLE);
	beat(p.b, "", "");			/* it is over */
	barrier(p.a, 10, p.job, 0, 1);
	pass(2001);
	ck_answer(p.a, 10, TALLY_ETIMEDOUT, "barrier 1 of job 'x' waits for rank 1 (machine b)");
}
END_TEST

START_TEST(the_first_that_said_so_is_named_and_others_hear_of_it)
{
	struct pair p = pair_up();

	beat(p.server, "", "small ones pass");
	pass(10);
	beat(p.b, "", HOLE);
	beat(p.a, "", "");
	ck_assert_str_eq(last(p.a, MSG_HEARTBEAT)->text, "server cpu-0: small ones pass");
	beat(p.server, "", "");
	beat(p.a, "", "");
	ck_assert_str_eq(last(p.a, MSG_HEARTBEAT)->text, "agent b: " HOLE);
	beat(p.b, "", HOLE);			/* its own it knows */
	ck_assert_str_eq(last(p.b, MSG_HEARTBEAT)->text, "");
}
END_TEST

START_TEST(who_detached_for_it_is_not_all_that_is_said)
{
	struct pair p = pair_up();

	beat(p.b, "", HOLE);
	barrier(p.a, 9, p.job, 0, 1);
	leave(p.b, p.job, 1, 0);
	ck_answer(p.a, 9, TALLY_ESHUTDOWN, "rank 1 of job 'x' has detached; agent b: " HOLE);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_barrier_is_kept_back_by_what_an_agent_says_of_the_network);
	tcase_add_test(t, the_first_that_said_so_is_named_and_others_hear_of_it);
	tcase_add_test(t, who_detached_for_it_is_not_all_that_is_said);
}

int main(void)
{
	return rig_main("sched_blame", add);
}
