// SPDX-License-Identifier: Apache-2.0
/* sched_issue.c: how many chunks tensors may have, of one entry and of a job. */
#include "tests/unit/sched_rig.h"

#define HUGE_COUNT (TENSOR_BYTES_MAX / 4)	/* of float32: as many chunks as an entry has */

static const struct want huge[] = {
	{ "h0", DTYPE_F32, HUGE_COUNT }, { "h1", DTYPE_F32, HUGE_COUNT }, { "h2", DTYPE_F32, 1 },
};

static uint64_t entries;		/* of the log */

static struct pair pair(void)
{
	struct pair p = pair_up();

	ck_assert_uint_eq(last(p.server, MSG_JOB_UP)->chunk, TENSOR_BYTES_MAX / PLACED_MAX);
	entries = 0;
	return p;
}

static void declare(const struct pair *p, uint64_t req, const struct want *t, uint32_t n)
{
	declare_in(p->a, req, p->job, 0, t, n);
	declare_in(p->b, req, p->job, 1, t, n);
}

static void declare_well(const struct pair *p, uint64_t req, const struct want *t)
{
	declare(p, req, t, 1);
	ready_as(p->server, MSG_TENSORS_READY, p->job, ++entries, 0);
	ck_answer(p->a, req, 0, NULL);
	ck_answer(p->b, req, 0, NULL);
}

START_TEST(an_entry_has_no_more_chunks_than_who_comes_later_can_be_told)
{
	struct pair p = pair();
	uint32_t late;

	declare(&p, 2, &huge[1], 2);
	ck_answer(p.a, 2, TALLY_EQUOTA, "job 'x' declares 1048577 chunks of 65536 bytes at once, "
		  "1048576 are possible: declare in several calls, or have larger chunks "
		  "(chunk_bytes)");
	ck_assert_int_eq(answer(p.b, 2)->code, TALLY_EQUOTA);
	declare_well(&p, 3, &huge[1]);
	declare_well(&p, 4, &huge[2]);
	late = hello(NODE_SERVER, "late");
	heartbeat(late, 1);
	ck_assert_uint_eq(count(late, MSG_TENSORS, REQ_ANY), 2);
}
END_TEST

START_TEST(a_job_has_no_more_chunks_than_an_epoch_can_say)
{
	static const uint32_t ids[] = { 1 };
	struct pair p = pair();

	declare_well(&p, 2, &huge[0]);
	declare_well(&p, 3, &huge[1]);
	declare(&p, 4, &huge[2], 1);
	ck_answer(p.a, 4, TALLY_EQUOTA, "job 'x' would have 2097153 chunks of 65536 bytes, 2097152 "
		  "are possible: have larger chunks (chunk_bytes)");
	ck_assert_int_eq(answer(p.b, 4)->code, TALLY_EQUOTA);
	ids_as(p.a, MSG_UNDECLARE, 5, p.job, 0, ids, 1);
	ids_as(p.b, MSG_UNDECLARE, 5, p.job, 1, ids, 1);
	entries++;
	declare_well(&p, 6, &huge[2]);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, an_entry_has_no_more_chunks_than_who_comes_later_can_be_told);
	tcase_add_test(t, a_job_has_no_more_chunks_than_an_epoch_can_say);
}

int main(void)
{
	return rig_main("sched_issue", add);
}
