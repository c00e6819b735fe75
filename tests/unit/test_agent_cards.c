// SPDX-License-Identifier: Apache-2.0
/*
 * An agent's memory where there is an RDMA card, which is told of each slab as a whole.  The
 * card is played here, in the place of libibverbs: it takes note of what it is told.
 */
#include <sys/eventfd.h>

#include "common/net/xport_rdma.h"
#include "tests/unit/agent_job_rig.h"

#undef ibv_get_device_list
#undef ibv_reg_mr

static struct ibv_device card = { .name = "card" };
static struct ibv_context context = { .device = &card, .async_fd = -1 };
static struct ibv_pd domain = { .context = &context };
static struct {
	uint32_t n;
	uint64_t bytes;			/* the last */
} told;

struct ibv_device **ibv_get_device_list(int *n)
{
	static struct ibv_device *list[] = { &card, NULL };

	*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	(void)d;
	context.async_fd = eventfd(0, EFD_CLOEXEC);	/* as long as the process */
	return &context;
}

int ibv_close_device(struct ibv_context *c)
{
	return close(c->async_fd);
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	(void)c;
	*attr = (struct ibv_device_attr){ .max_mr = 1000 };
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	(void)c;
	return &domain;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

static struct ibv_mr *tell(struct ibv_pd *pd, void *base, size_t bytes)
{
	static struct ibv_mr mr[64];	/* more than there are slabs */
	struct ibv_mr *m = &mr[told.n++ % ARRAY_SIZE(mr)];

	*m = (struct ibv_mr){ .context = &context, .pd = pd, .addr = base, .length = bytes };
	told.bytes = bytes;
	return m;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t bytes, int access)
{
	(void)access;
	return tell(pd, base, bytes);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t bytes, uint64_t iova,
				unsigned int access)
{
	(void)iova;
	(void)access;
	return tell(pd, base, bytes);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	return 0;
}

/* ---- slabs ---- */

#define MIB_PAGES	((1u << 20) / PAGE_BYTES)

static int get(struct ad_job *j, uint32_t pages, struct ad_slab **s, struct err *e)
{
	uint32_t page;

	return ad_pages_get(&a, j, &j->results, AD_RESULTS, pages, s, &page, e);
}

static void expect_backed(const struct ad_slab *s, uint64_t before)
{
	ck_assert_uint_eq(s->backed, s->pages.pages);
	ck_assert_uint_eq(a.backed_bytes, before + (uint64_t)s->pages.pages * PAGE_BYTES);
	ck_assert_uint_eq(told.bytes, s->mem.bytes);
}

/* Else the kernel would end the agent as it gets the slab's pages, for the card. */
START_TEST(what_a_card_is_told_of_has_its_memory_and_is_asked_for_before)
{
	struct ad_job *j = start_job(1);
	struct ad_slab *s, *large;
	uint64_t before;
	struct err e;
	uint32_t n;

	a.memory_bytes = 10u << 20;
	told.n = 0;
	ck_assert_int_eq(get(j, 2 * MIB_PAGES, &s, &e), 0);
	expect_backed(s, 0);
	before = a.backed_bytes;
	ck_assert_int_eq(get(j, MIB_PAGES, &large, &e), 0);	/* costs nothing more */
	ck_assert_ptr_eq(large, s);
	ck_assert_uint_eq(a.backed_bytes, before);
	n = told.n;
	ck_assert_int_eq(get(j, 32 * MIB_PAGES, &large, &e), TALLY_EQUOTA);
	ck_assert_ptr_nonnull(strstr(e.text, "there is no memory for 32"));
	ck_assert_uint_eq(told.n, n);
	ck_assert_uint_eq(a.backed_bytes, before);
	end_counted_job(j);
}
END_TEST

START_TEST(slabs_double_only_where_there_is_the_memory)
{
	struct ad_job *j = start_job(1);
	struct ad_slab *s, *next;
	uint64_t before;
	struct err e;

	a.memory_bytes = 10u << 20;
	ck_assert_int_eq(get(j, 3 * MIB_PAGES, &s, &e), 0);
	before = a.backed_bytes;
	ck_assert_int_eq(get(j, 5 * MIB_PAGES, &next, &e), 0);	/* 8 MiB would not fit */
	ck_assert_ptr_ne(next, s);
	expect_backed(next, before);
	before = a.backed_bytes;
	ck_assert_uint_le(before, a.memory_bytes);
	a.memory_bytes = before + 2 * PAGE_BYTES;		/* not even the least */
	ck_assert_int_eq(get(j, MIB_PAGES / 2, &s, &e), 0);	/* in the first one */
	ck_assert_int_eq(get(j, MIB_PAGES, &s, &e), TALLY_EQUOTA);
	ck_assert_uint_eq(a.backed_bytes, before);
	end_counted_job(j);
}
END_TEST

START_TEST(results_that_came_back_are_asked_for_as_a_whole)
{
	struct ad_job *j = start_job(1);
	uint64_t bytes = 4u << 20, all;
	struct ad_slab *s;
	struct slab was;
	struct err e;

	ck_assert_int_eq(slab_new(&was, "test", bytes, false, &e), 0);
	a.memory_bytes = bytes;
	told.n = 0;
	s = ad_results_again(&a, j, bytes, &e);
	ck_assert_ptr_nonnull(s);
	expect_backed(s, 0);
	all = a.backed_bytes;
	ck_assert(pagemap_take(&s->pages, 8, 8));
	ck_assert_int_eq(ad_pages_copy(&a, s, 8, 8, was.fd, &e), 0);
	ck_assert_uint_eq(a.backed_bytes, all);
	ck_assert_ptr_null(ad_results_again(&a, j, bytes, &e));
	ck_assert_int_eq(e.code, TALLY_EQUOTA);
	ck_assert_uint_eq(told.n, 1);
	end_counted_job(j);
	slab_free(&was);
}
END_TEST

START_TEST(arena_that_there_is_no_memory_for_is_refused)
{
	struct ad_job *j = start_job(1);
	struct ad_slab *s;
	struct err e;

	a.memory_bytes = 4u << 20;
	told.n = 0;
	ck_assert_ptr_null(ad_slab_new(&a, j, AD_ARENA, 64u << 20, true, &e));
	ck_assert_int_eq(e.code, TALLY_EQUOTA);
	ck_assert_ptr_nonnull(strstr(e.text, "there is no memory for 64 MiB of an arena"));
	ck_assert_uint_eq(told.n, 0);
	s = ad_slab_new(&a, j, AD_ARENA, 4u << 20, true, &e);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(told.n, 1);
	list_add(&j->inputs, &s->link);
	end_counted_job(j);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, what_a_card_is_told_of_has_its_memory_and_is_asked_for_before);
	tcase_add_test(t, arena_that_there_is_no_memory_for_is_refused);
	tcase_add_test(t, slabs_double_only_where_there_is_the_memory);
	tcase_add_test(t, results_that_came_back_are_asked_for_as_a_whole);
}

int main(void)
{
	return rig_main("agent_cards", add);
}
