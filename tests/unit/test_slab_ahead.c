// SPDX-License-Identifier: Apache-2.0
/*
 * Where there are cards, memory for tensors that may never be declared: it has its pages at once,
 * and is nobody else's.  Nothing here needs a device: the daemons are told that there is one.
 */
/* LIBS: -Wl,--wrap=xport_rdma_devices */
#include "server/server.h"
#include "worker-agent/agent.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

uint32_t __wrap_xport_rdma_devices(void);

uint32_t __wrap_xport_rdma_devices(void)
{
	return 1;
}

static struct server s;
static struct sv_job sv_job;
static struct agent a;
static struct ad_job ad_job;

static void setup(void)
{
	s = (struct server){ .name = "s", .memory_bytes = 64 * MIB };
	list_init(&sv_job.slots);
	a.name = "a";
	list_init(&ad_job.results);
}

static void teardown(void)
{
	sv_slots_free(&s, &sv_job);
	ck_assert_uint_eq(s.memory_used, 0);
}

static int get(uint64_t bytes, uint64_t batch_bytes, bool beyond, struct sv_place *p)
{
	struct err e;

	return sv_slots_get(&s, &sv_job, bytes, batch_bytes, beyond, p, &e);
}

START_TEST(a_late_small_tensor_leaves_most_of_a_servers_room)
{
	struct sv_place p;

	ck_assert_int_eq(get(24 * MIB, 24 * MIB, false, &p), 0);
	ck_assert_int_eq(get(PAGE_BYTES, PAGE_BYTES, false, &p), 0);
	ck_assert_uint_eq(s.memory_used, (24 + 10) * MIB);	/* a quarter of 40 */
}
END_TEST

START_TEST(small_tensors_share_slabs)
{
	struct sv_place p;
	uint32_t n = 0;

	for (uint32_t i = 0; i < 2048; i++)
		ck_assert_int_eq(get(PAGE_BYTES, PAGE_BYTES, false, &p), 0);
	list_for_each(&sv_job.slots, l)
		n += l != NULL;
	ck_assert_uint_le(n, 12);
}
END_TEST

/* What was undeclared is had again where the server is full: in pieces, as large as they are. */
START_TEST(what_is_free_in_a_full_servers_slabs_counts)
{
	struct sv_place p[4], more;
	struct err e;

	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(get(16 * MIB, (4 - i) * 16 * MIB, false, &p[i]), 0);
	ck_assert_int_eq(sv_slots_check(&s, &sv_job, PAGE_BYTES, &e), TALLY_EQUOTA);
	sv_slots_put(&s, &p[0]);
	sv_slots_put(&s, &p[2]);
	ck_assert_int_eq(sv_slots_check(&s, &sv_job, 32 * MIB, &e), 0);
	ck_assert_int_eq(sv_slots_check(&s, &sv_job, 32 * MIB + PAGE_BYTES, &e), TALLY_EQUOTA);
	ck_assert_int_eq(get(24 * MIB, 24 * MIB, false, &more), TALLY_EQUOTA);
	ck_assert_int_eq(get(16 * MIB, 32 * MIB, false, &more), 0);
	ck_assert_int_eq(get(8 * MIB, 16 * MIB, false, &more), 0);
	ck_assert_uint_eq(s.memory_used, s.memory_bytes);
	ck_assert_int_eq(get(24 * MIB, 24 * MIB, true, &more), 0);
	ck_assert_uint_gt(s.memory_used, s.memory_bytes);
}
END_TEST

/* All of 2 GiB of results are given out. */
START_TEST(a_late_small_tensor_takes_a_part_of_what_an_agents_job_has)
{
	struct ad_slab full = { .mem = { .bytes = 2048 * MIB, .fd = -1 } }, *more;
	uint64_t none = 0;
	uint32_t page;
	struct err e;

	pagemap_init(&full.pages, &none, 0);
	list_add(&ad_job.results, &full.link);
	ck_assert_int_eq(ad_pages_get(&a, &ad_job, &ad_job.results, "test", 1, &more, &page, &e),
			 0);
	ck_assert_uint_eq(more->mem.bytes, SLAB_AHEAD_BYTES);
	ad_slab_free(&a, more);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slab_ahead");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 240);
	tcase_add_test(t, a_late_small_tensor_leaves_most_of_a_servers_room);
	tcase_add_test(t, small_tensors_share_slabs);
	tcase_add_test(t, what_is_free_in_a_full_servers_slabs_counts);
	tcase_add_test(t, a_late_small_tensor_takes_a_part_of_what_an_agents_job_has);
	suite_add_tcase(suite, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
