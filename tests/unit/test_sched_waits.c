// SPDX-License-Identifier: Apache-2.0
/*
 * What a request waits for (WAITS), as agents are told for their processes.
 */
#include "tests/unit/sched_rig.h"

static const struct want one = { "t", DTYPE_F32, 100 };

/* WAITS for that request has that one answer, and the request goes on. */
static void ck_waits(uint32_t conn, uint64_t req, const char *text)
{
	const struct msg m = { .type = MSG_WAITS, .reply = { .req = req, .text = "" } };
	uint32_t before = count(conn, MSG_WAITS, req);

	send(conn, &m);
	ck_assert_uint_eq(count(conn, MSG_WAITS, req), before + 1);
	ck_assert_str_eq(last(conn, MSG_WAITS)->text, text);
	ck_assert_uint_eq(count(conn, MSG_REPLY, req), 0);
}

START_TEST(who_waits_is_told_what_for_and_waits_on)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b"), s, job;

	join(a, 1, 3, 0);
	ck_waits(a, 1, "ranks 1, 2 of job 'x' have not attached");
	join(a, 2, 3, 1);
	ck_waits(a, 2, "rank 2 of job 'x' has not attached");
	join(b, 1, 3, 2);
	ck_waits(b, 1, "job 'x' spans several machines and no summation server is registered; "
		 "start tally-server");
	s = hello(NODE_SERVER, "cpu-0");
	ck_waits(a, 2, "job 'x' waits for server cpu-0 to reserve memory");
	job = last(s, MSG_JOB_UP)->job;
	ready_as(s, MSG_JOB_READY, job, last(s, MSG_JOB_UP)->epoch, 0);
	ck_answer(a, 1, 0, NULL);
	declare_in(a, 3, job, 0, &one, 1);
	ck_waits(a, 3, "tensor 't' of job 'x': ranks 1 (machine a), 2 (machine b) have not "
		 "declared it");
	barrier(b, 2, job, 2, 1);
	barrier(a, 4, job, 1, 1);
	ck_waits(b, 2, "barrier 1 of job 'x' waits for rank 0 (machine a)");
	barrier(a, 5, job, 0, 1);
	ck_answer(b, 2, 0, "");
	ck_assert_uint_eq(count(a, MSG_WAITS, 5), 0);
	send(a, &(struct msg){ .type = MSG_WAITS, .reply = { .req = 5, .text = "" } });
	send(b, &(struct msg){ .type = MSG_WAITS, .reply = { .req = 3, .text = "" } });
	ck_assert_uint_eq(count(a, MSG_WAITS, 5) + count(b, MSG_WAITS, 3), 0);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, who_waits_is_told_what_for_and_waits_on);
}

int main(void)
{
	return rig_main("sched_waits", add);
}
