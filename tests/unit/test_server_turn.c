// SPDX-License-Identifier: Apache-2.0
/* server_core.c: jobs take turns by bytes on the way back to an agent. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/kern/kern.h"
#include "server/server_core.h"

enum { N = 2, JOBS = 3, SEGS = 16, SEG = 4096, EPOCH = 6 };

static struct srv_core core;
static struct srv_job *job[JOBS];
static struct srv_tensor *tensor[JOBS];
static struct srv_peer peer[N];
static uint8_t *window[JOBS][N], *slots[JOBS];

/* The first two jobs are of one user, or all are. */
static void setup_users(bool two)
{
	const bool mine[1] = { true };
	struct srv_tensor_desc t = { .id = 1, .dtype = DTYPE_I32, .mine = mine,
				     .geom = { SEGS * SEG, SEGS * SEG, SEG } };
	struct srv_job_desc d = { .n = N, .world = N, .epoch = EPOCH, .chunk_bytes = SEGS * SEG,
				  .seg_bytes = SEG, .window_bytes = SEGS * SEG, .engines = 1 };
	uint64_t bytes;

	kern_init(~0u);
	srv_init(&core);
	for (uint32_t w = 0; w < N; w++)
		srv_peer_init(&core, &peer[w], 50 + w, 0);
	for (uint32_t k = 0; k < JOBS; k++) {
		d.id = k + 1;
		d.user = two && k == 2;
		job[k] = srv_job_start(&core, calloc(1, srv_job_size(N, 1)), &d);
		for (uint32_t w = 0; w < N; w++) {
			window[k][w] = calloc(1, SEGS * SEG);
			job[k]->worker[w].node = 50 + w;
			job[k]->worker[w].window = window[k][w];
		}
		tensor[k] = calloc(1, srv_tensor_size(N, &t, &bytes));
		slots[k] = calloc(1, bytes);
		srv_tensor_add(&core, job[k], tensor[k], slots[k], &t);
	}
}

static void setup(void)
{
	setup_users(false);
}

static void setup_two_users(void)
{
	setup_users(true);
}

static void teardown(void)
{
	srv_check(&core);
	for (uint32_t k = 0; k < JOBS; k++) {
		srv_job_stop(&core, job[k]);
		srv_tensor_forget(&core, tensor[k]);
		srv_job_forget(&core, job[k]);
		free(tensor[k]);
		free(slots[k]);
		free(job[k]);
		for (uint32_t w = 0; w < N; w++)
			free(window[k][w]);
	}
}

/* So many segments of the job's round are summed, from this one on. */
static void sum(uint32_t k, uint32_t first, uint32_t n)
{
	for (uint32_t i = first * N; i < (first + n) * N; i++) {
		struct frame f = { .type = FRAME_PUSH, .worker = (uint16_t)(i % N), .job = k + 1,
				   .tensor = 1, .epoch = EPOCH, .round = 1, .dtype = DTYPE_I32,
				   .rop = ROP_SUM, .length = SEG, .offset = i / N * SEG,
				   .slot = i / N * SEG };
		void *at = srv_place(&core, &peer[i % N], &f);

		ck_assert_ptr_nonnull(at);
		srv_frame(&core, &peer[i % N], &f, at, NULL);
	}
	srv_check(&core);
}

/* What goes to an agent next, as "job segment". */
static void expect(uint32_t w, uint32_t k, uint32_t seg)
{
	struct srv_send s;

	ck_assert(srv_next(&core, &peer[w], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_RESULT);
	ck_assert_uint_eq(s.frame.job, k + 1);
	ck_assert_uint_eq(s.frame.offset, seg * SEG);
	srv_sent(&core, s.in);
}

static void expect_job(uint32_t w, uint32_t k, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		expect(w, k, i);
}

START_TEST(one_jobs_results_go_as_they_were_summed)
{
	sum(0, 8, 8);
	sum(0, 0, 8);
	for (uint32_t w = 0; w < N; w++) {
		expect_job(w, 0, 8, 8);
		expect_job(w, 0, 0, 8);
	}
}
END_TEST

START_TEST(a_small_jobs_results_do_not_wait_behind_a_large_ones)
{
	sum(0, 0, SEGS);
	expect_job(0, 0, 0, 4);		/* the other agent's link is slower */
	sum(1, 0, 2);
	expect(0, 1, 0);
	expect(0, 0, 4);
	expect(0, 1, 1);
	expect_job(0, 0, 5, SEGS - 5);
	expect(1, 0, 0);
	expect_job(1, 1, 0, 1);
	expect(1, 0, 1);
	expect_job(1, 1, 1, 1);
	expect_job(1, 0, 2, SEGS - 2);
}
END_TEST

START_TEST(jobs_take_turns)
{
	for (uint32_t k = 0; k < JOBS; k++)
		sum(k, 0, SEGS);
	for (uint32_t i = 0; i < SEGS; i++)
		for (uint32_t k = 0; k < JOBS; k++)
			expect(0, k, i);
	expect_job(1, 0, 0, 1);
}
END_TEST

START_TEST(users_take_turns_and_then_the_jobs_of_each)
{
	for (uint32_t k = 0; k < JOBS; k++)
		sum(k, 0, SEGS);
	for (uint32_t i = 0; i < SEGS / 2; i++) {
		expect(0, 0, i);
		expect(0, 2, 2 * i);
		expect(0, 1, i);
		expect(0, 2, 2 * i + 1);
	}
	for (uint32_t i = SEGS / 2; i < SEGS; i++) {
		expect(0, 0, i);
		expect(0, 1, i);
	}
}
END_TEST

static bool is_before(uint32_t w, uint32_t v)
{
	struct srv_due a = srv_due(&peer[w]), b = srv_due(&peer[v]);

	return srv_due_before(&a, &b);
}

/* Else all that was summed for one user before would go first, to whomever. */
START_TEST(the_servers_own_card_is_shared_by_users_too)
{
	sum(0, 0, SEGS);
	expect_job(0, 0, 0, SEGS);
	ck_assert(is_before(1, 0));
	sum(2, 0, 1);
	ck_assert_ptr_eq(srv_due(&peer[0]).job, job[2]);
	ck_assert_ptr_eq(srv_due(&peer[1]).job, job[0]);	/* which was there first */
	ck_assert(is_before(0, 1) && !is_before(1, 0));
	expect(0, 2, 0);
	ck_assert(is_before(1, 0) && !is_before(0, 1));
	ck_assert(!is_before(1, 1));
}
END_TEST

/* Nobody saves up, and nobody pays for what he had alone. */
START_TEST(who_had_nothing_to_send_has_no_claim_later)
{
	sum(0, 0, 8);
	expect_job(0, 0, 0, 8);
	sum(0, 8, 8);
	sum(1, 0, 8);
	for (uint32_t i = 0; i < 8; i++) {
		expect(0, 1, i);
		expect(0, 0, 8 + i);
	}
}
END_TEST

/* What was to be sent over a link that broke counts for nothing. */
START_TEST(a_link_that_breaks_is_not_counted_against_a_job)
{
	struct frame probe = { .type = FRAME_PROBE, .job = 1, .tensor = 1, .epoch = EPOCH,
			       .round = 1, .aux = 1 };

	sum(0, 0, SEGS);
	srv_peer_lost(&core, &peer[0]);
	srv_peer_fini(&peer[0]);
	srv_peer_init(&core, &peer[0], 50, 0);
	sum(1, 0, SEGS);
	srv_frame(&core, &peer[0], &probe, NULL, NULL);
	expect(0, 1, 0);
	expect(0, 0, 0);
	expect_job(0, 1, 1, SEGS - 1);
}
END_TEST

static void expect_order(const uint32_t node[], const uint32_t engine[], uint32_t n)
{
	uint32_t i = 0;

	list_for_each(&core.peers, l) {
		const struct srv_peer *p = list_entry(l, struct srv_peer, link);

		ck_assert_uint_lt(i, n);
		ck_assert_uint_eq(p->node, node[i]);
		ck_assert_uint_eq(p->engine, engine[i]);
		i++;
	}
	ck_assert_uint_eq(i, n);
}

/* Whoever came when: by number, from the one that this server begins with; engines together. */
START_TEST(each_server_begins_with_another_agent)
{
	struct srv_peer more[4];
	const uint32_t numbers[] = { 7, 51, 60, 50 }, engines[] = { 0, 1, 0, 1 };

	for (uint32_t i = 0; i < ARRAY_SIZE(more); i++)
		srv_peer_init(&core, &more[i], numbers[i], engines[i]);
	expect_order((uint32_t[]){ 7, 50, 50, 51, 51, 60 }, (uint32_t[]){ 0, 0, 1, 0, 1, 0 }, 6);
	srv_begin_with(&core, 51);
	expect_order((uint32_t[]){ 51, 51, 60, 7, 50, 50 }, (uint32_t[]){ 0, 1, 0, 0, 0, 1 }, 6);
	srv_begin_with(&core, 8);
	expect_order((uint32_t[]){ 50, 50, 51, 51, 60, 7 }, (uint32_t[]){ 0, 1, 0, 1, 0, 0 }, 6);
	srv_peer_fini(&more[0]);
	srv_peer_init(&core, &more[0], 9, 0);
	expect_order((uint32_t[]){ 9, 50, 50, 51, 51, 60 }, (uint32_t[]){ 0, 0, 1, 0, 1, 0 }, 6);
	for (uint32_t i = 0; i < ARRAY_SIZE(more); i++)
		srv_peer_fini(&more[i]);
}
END_TEST

START_TEST(nobody_to_begin_with)
{
	struct srv_core none;
	struct srv_peer p;

	srv_init(&none);
	srv_begin_with(&none, 3);
	ck_assert(list_empty(&none.peers));
	srv_peer_init(&none, &p, 2, 0);
	ck_assert_ptr_eq(none.peers.next, &p.link);
	srv_peer_fini(&p);
	ck_assert(list_empty(&none.peers));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server_turn");
	TCase *t = tcase_create("all"), *users = tcase_create("users");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_checked_fixture(users, setup_two_users, teardown);
	tcase_add_test(t, one_jobs_results_go_as_they_were_summed);
	tcase_add_test(t, a_small_jobs_results_do_not_wait_behind_a_large_ones);
	tcase_add_test(t, jobs_take_turns);
	tcase_add_test(users, users_take_turns_and_then_the_jobs_of_each);
	tcase_add_test(users, the_servers_own_card_is_shared_by_users_too);
	tcase_add_test(t, who_had_nothing_to_send_has_no_claim_later);
	tcase_add_test(t, a_link_that_breaks_is_not_counted_against_a_job);
	tcase_add_test(t, each_server_begins_with_another_agent);
	tcase_add_test(t, nobody_to_begin_with);
	suite_add_tcase(s, t);
	suite_add_tcase(s, users);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
