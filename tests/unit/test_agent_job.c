// SPDX-License-Identifier: Apache-2.0
/*
 * An agent's jobs on the control thread, with real engines: what a heap that says
 * no does to them, and what a scheduler is told again.
 */
#include "common/base/bytes.h"
#include "tests/unit/agent_job_rig.h"

/* ---- memory ---- */

#if HEAP_FAULTS
START_TEST(job_without_memory_is_refused_and_the_next_one_starts)
{
	struct err e;
	uint64_t at = 0;
	int rc;

	do {
		heap_fail_at = ++at;
		rc = job_up(2, &e);
		heap_fail_at = 0;
		ck_assert(!rc || rc == TALLY_ENOMEM);
		ck_assert(!rc || list_empty(&a.jobs));
	} while (rc);
	ck_assert_uint_gt(at, 10);
	wait_for(&said.jobs, ENGINES);
	end_job(ad_job_find(&a, JOB));
	end_job(start_job(1));
}
END_TEST

START_TEST(engines_need_no_memory_to_start_a_job)
{
	struct ad_job *j;

	end_job(start_job(1));		/* the engines have all that they start with */
	heap_fail_others = true;
	j = start_job(2);
	heap_fail_others = false;
	for (uint32_t i = 0; i < ENGINES; i++)
		for (uint32_t k = 0; k < server.engines; k++)
			ck_assert_int_eq(j->core[i]->route[k] && j->core[i]->route[k]->peer,
					 geom_engines_meet(i, ENGINES, k, server.engines));
	end_job(j);
}
END_TEST

static atomic_uint unmapped_here, unmapped_elsewhere;	/* the control thread is here */

int munmap(void *p, size_t bytes)
{
	if (bytes >= 4u << 20)
		(*(heap_own ? &unmapped_here : &unmapped_elsewhere))++;
	return (int)syscall(SYS_munmap, p, bytes);
}

static bool all_unmapped(void *ctx)
{
	return unmapped_here + unmapped_elsewhere == *(const uint32_t *)ctx;
}

START_TEST(large_memory_is_freed_off_the_control_thread)
{
	struct ad_job *j = start_job(1);
	uint32_t slabs = 2;
	struct ad_slab *s;
	struct err e;

	for (uint32_t i = 0; i < slabs; i++) {
		s = ad_slab_new(&a, j, "input", 8u << 20, true, &e);
		ck_assert_ptr_nonnull(s);
		list_add(i ? &j->inputs : &j->results, &s->link);
	}
	unmapped_here = unmapped_elsewhere = 0;
	end_job(j);
	ck_assert(loop_wait(a.loop, all_unmapped, &slabs));
	ck_assert_uint_eq(unmapped_here, 0);
}
END_TEST
#endif

/* ---- the log ---- */

#if HEAP_FAULTS
START_TEST(forget_without_memory_is_said_and_changes_nothing)
{
	struct ad_job *j = start_job(2);
	const uint32_t id = 1;
	const struct msg m = { .type = MSG_FORGET, .ids = {
		.job = JOB, .seq = 2, .nids = 1, .ids = &id,
	} };
	uint32_t batches;
	struct err e;

	log_entry(j, 1, 1, 1);
	batches_done(j);
	heap_fail_at = 1;
	ck_assert_int_eq(ad_forget(&a, &m, &e), TALLY_ENOMEM);
	heap_fail_at = 0;
	ck_assert_uint_eq(j->seq, 1);
	ck_assert_ptr_nonnull(ad_tensor_find(j, id));
	ck_assert_uint_eq(j->place->total_bytes, PAGE_BYTES);
	batches = said.batches + ENGINES;
	ck_assert_int_eq(ad_forget(&a, &m, &e), 0);
	wait_for(&said.batches, batches);
	batches_done(j);
	ck_assert_ptr_null(ad_tensor_find(j, id));
	ck_assert_uint_eq(j->place->total_bytes, 0);
	end_job(j);
}
END_TEST
#endif

#if HEAP_FAULTS
/* Nobody would miss it: it may be the last entry for a long time. */
START_TEST(entry_that_cannot_wait_for_a_smaller_world_is_said)
{
	struct ad_job *j = start_job(2);
	const uint32_t id = 1;
	const struct msg m = { .type = MSG_FORGET, .ids = {
		.job = JOB, .seq = 1, .nids = 1, .ids = &id,
	} };
	uint32_t batches = said.batches + ENGINES;
	struct err e;
	bool later;

	ck_assert_int_eq(ad_shrink_defer(j, &m, &later, &e), 0);
	ck_assert(!later);
	j->adopting = true;
	heap_fail_at = 1;
	ck_assert_int_eq(ad_shrink_defer(j, &m, &later, &e), TALLY_ENOMEM);
	heap_fail_at = 0;
	ck_assert(list_empty(&j->later));
	ck_assert_int_eq(ad_shrink_defer(j, &m, &later, &e), 0);
	ck_assert(later && !list_empty(&j->later));
	ad_shrink_done(j);
	ck_assert(list_empty(&j->later));
	ck_assert_uint_eq(j->seq, 1);
	wait_for(&said.batches, batches);
	batches_done(j);
	end_job(j);
}
END_TEST
#endif

/* The scheduler is told that the log ends before it: it would be applied twice. */
START_TEST(entry_that_waits_as_the_connection_breaks_is_heard_again)
{
	struct ad_job *j = start_job(1);
	const uint32_t id = 1;
	const struct msg m = { .type = MSG_FORGET, .ids = {
		.job = JOB, .seq = 1, .nids = 1, .ids = &id,
	} };
	struct err e;
	uint32_t batches;
	bool later;

	register_agent();
	j->adopting = true;
	ck_assert_int_eq(ad_shrink_defer(j, &m, &later, &e), 0);
	ck_assert(later && !list_empty(&j->later));
	ad_job_resend(j);
	ad_shrink_done(j);
	ck_assert_uint_eq(j->seq, 0);
	batches = said.batches + ENGINES;
	ck_assert_int_eq(ad_forget(&a, &m, &e), 0);
	ck_assert_uint_eq(j->seq, 1);
	wait_for(&said.batches, batches);
	batches_done(j);
	unregister_agent();
	end_job(j);
}
END_TEST

/* A model of many small tensors would take twice the memory, and its marks a page each. */
START_TEST(tensors_of_a_page_take_one_for_each_parity_and_marks_are_neighbours)
{
	struct ad_job *j = start_job(1);
	const uint64_t *next = NULL;

	log_entry(j, 1, 1, 4);
	batches_done(j);
	for (uint32_t id = 1; id <= 4; id++) {
		const struct ad_tensor *t = ad_tensor_find(j, id);
		const struct ad_slab *s = t->result;

		ck_assert_uint_eq(t->npages, 1);
		ck_assert_uint_eq(t->result_page[1], t->result_page[0] + 1);
		ck_assert(!next || t->desc.mark[0] == next);
		ck_assert(t->desc.mark[1] == t->desc.mark[0] + 1);
		next = t->desc.mark[1] + 1;
		ck_assert(s->marks == (uint64_t *)(s->mem.base + s->pages.pages * PAGE_BYTES));
		ck_assert((uint8_t *)(s->marks + s->pages.pages) <= s->mem.base + s->mem.bytes);
	}
	end_job(j);
}
END_TEST

START_TEST(job_is_told_again_as_it_is_now)
{
	struct ad_job *j = start_job(1);

	register_agent();
	log_entry(j, 1, 1, 2);
	log_entry(j, 2, 3, 1);
	batches_done(j);
	ad_job_resend(j);
	wait_for(&sched.n, 4);
	ck_heard(0, (struct heard){ .type = MSG_JOB_HELD });
	ck_heard(1, (struct heard){ .type = MSG_TENSORS_HELD, .seq = 1, .count = 2, .id = 1 });
	ck_heard(2, (struct heard){ .type = MSG_TENSORS_HELD, .seq = 2, .count = 1, .id = 3 });
	ck_heard(3, (struct heard){ .type = MSG_EPOCH_READY, .seq = 2 });

	/* What is forgotten is not told; the log's last number is, and who has left. */
	forget(j, 3, (const uint32_t[]){ 1, 3 }, 2);
	ad_job_left(j, 0, &(struct ad_left){ .code = TALLY_EWORKERLOST, .pid = 4711 });
	wait_for(&sched.n, 5);
	sched.n = 0;
	ad_job_resend(j);
	wait_for(&sched.n, 4);
	ck_heard(0, (struct heard){ .type = MSG_JOB_HELD });
	ck_heard(1, (struct heard){ .type = MSG_TENSORS_HELD, .seq = 1, .count = 1, .id = 2 });
	ck_heard(2, (struct heard){ .type = MSG_EPOCH_READY, .seq = 3 });
	ck_heard(3, (struct heard){ .type = MSG_RANK_LEAVE, .code = TALLY_EWORKERLOST });

	/* Also that nothing waits: the last that was said of it may have been lost. */
	ad_stuck_tell(j);
	wait_for(&sched.n, 5);
	ck_heard(4, (struct heard){ .type = MSG_STUCK, .id = JOB });
	unregister_agent();
	end_job(j);
}
END_TEST

/* The agent before this one knew it: here there is no process to miss. */
START_TEST(who_has_detached_before_is_not_missed_and_is_told)
{
	struct ad_job *j;

	has_left = &ranks[1];
	j = start_pair();
	has_left = NULL;
	register_agent();
	ad_join_check(j, 2, false);
	ad_job_resend(j);
	wait_for(&sched.n, 3);
	ck_heard(0, (struct heard){ .type = MSG_JOB_HELD, .nleft = 1, .left = 1 });
	ck_heard(1, (struct heard){ .type = MSG_EPOCH_READY });
	ck_heard(2, (struct heard){ .type = MSG_RANK_LEAVE });
	unregister_agent();
	end_job(j);
}
END_TEST

START_TEST(who_has_detached_elsewhere_is_told_with_the_job)
{
	struct ad_job *j = start_job(2);

	register_agent();
	ad_job_detached(j, 1);
	ad_job_resend(j);
	wait_for(&sched.n, 2);
	ck_heard(0, (struct heard){ .type = MSG_JOB_HELD, .nleft = 1, .left = 1 });
	ck_heard(1, (struct heard){ .type = MSG_EPOCH_READY });
	unregister_agent();
	end_job(j);
}
END_TEST

/* Another process may come in its place then. */
START_TEST(who_is_lost_with_its_machine_has_not_detached_any_more)
{
	struct ad_job *j = start_job(2);
	const struct ad_epoch ep = { .job = j, .live = j->live };

	ad_job_detached(j, 1);
	ad_shrink_take(j, &ep, &(struct msg_epoch){ .ngone = 1, .gone = &ranks[1] });
	ck_assert(!bits_test(j->detached, 1));
	end_job(j);
}
END_TEST

START_TEST(card_of_unknown_speed_is_as_fast_as_the_one_it_speaks_to)
{
	ck_assert_uint_eq(ad_slower_card(1000, 3000), 1000);
	ck_assert_uint_eq(ad_slower_card(3000, 1000), 1000);
	ck_assert_uint_eq(ad_slower_card(0, 3000), 3000);
	ck_assert_uint_eq(ad_slower_card(3000, 0), 3000);
	ck_assert_uint_eq(ad_slower_card(0, 0), CARD_BITS_UNKNOWN);
}
END_TEST

START_TEST(links_are_more_where_those_of_all_engines_would_not_fill_the_card)
{
	static const struct {
		uint64_t gbits;
		uint32_t pairs, links;
	} want[] = {
		{ 0, 1, 1 }, { 1, 1, 1 }, { 20, 1, 1 }, { 21, 1, 2 }, { 100, 1, 5 },
		{ 1, 4, 1 }, { 40, 2, 1 }, { 41, 2, 2 }, { 100, 4, 2 }, { 200, 4, 3 },
		{ 400, 1, LINKS_PER_RAIL_MAX }, { 400, 4, 5 }, { 400, 16, 2 },
		{ 400, ENGINES_MAX * ENGINES_MAX, 1 }, { 1000000, 1, LINKS_PER_RAIL_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		ck_assert_uint_eq(ad_tcp_links(want[i].gbits * 1000000000, want[i].pairs),
				  want[i].links);
}
END_TEST

static void add(TCase *t)
{
#if HEAP_FAULTS
	tcase_add_test(t, job_without_memory_is_refused_and_the_next_one_starts);
	tcase_add_test(t, engines_need_no_memory_to_start_a_job);
	tcase_add_test(t, large_memory_is_freed_off_the_control_thread);
	tcase_add_test(t, forget_without_memory_is_said_and_changes_nothing);
	tcase_add_test(t, entry_that_cannot_wait_for_a_smaller_world_is_said);
#endif
	tcase_add_test(t, entry_that_waits_as_the_connection_breaks_is_heard_again);
	tcase_add_test(t, tensors_of_a_page_take_one_for_each_parity_and_marks_are_neighbours);
	tcase_add_test(t, job_is_told_again_as_it_is_now);
	tcase_add_test(t, who_has_detached_before_is_not_missed_and_is_told);
	tcase_add_test(t, who_has_detached_elsewhere_is_told_with_the_job);
	tcase_add_test(t, who_is_lost_with_its_machine_has_not_detached_any_more);
	tcase_add_test(t, links_are_more_where_those_of_all_engines_would_not_fill_the_card);
	tcase_add_test(t, card_of_unknown_speed_is_as_fast_as_the_one_it_speaks_to);
}

int main(void)
{
	return rig_main("agent_job", add);
}
