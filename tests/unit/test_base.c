// SPDX-License-Identifier: Apache-2.0
/* common/base: the checksum, the heap, the page allocator, the cutting of tensors. */
#include <check.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "common/base/geom.h"
#include "common/base/pagemap.h"
#include "common/base/pheap.h"

/* ---- bytes ---- */

START_TEST(crc32c_of_the_check_string_is_the_published_one)
{
	ck_assert_uint_eq(crc32c("123456789", 9), 0xe3069283u);
	ck_assert_uint_eq(crc32c("", 0), 0);
}
END_TEST

START_TEST(crc32c_by_table_and_by_instruction_agree)
{
	struct rng rng = { 1 };
	uint8_t b[128 + 8];

	for (size_t i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)rng_u64(&rng);
	for (size_t at = 0; at < 8; at++)
		for (size_t len = 0; len <= 128; len++)
			ck_assert_uint_eq(crc32c(b + at, len), crc32c_by_table(b + at, len));
	ck_assert_uint_eq(crc32c_by_table("123456789", 9), 0xe3069283u);
}
END_TEST

START_TEST(numbers_lie_little_end_first)
{
	uint8_t b[8];

	put_le64(b, UINT64_C(0x0807060504030201));
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(b[i], i + 1);
	ck_assert_uint_eq(get_le16(b), 0x0201);
	ck_assert_uint_eq(get_le32(b), 0x04030201);
	ck_assert_uint_eq(get_le64(b), UINT64_C(0x0807060504030201));
}
END_TEST

/* ---- pheap ---- */

#define ITEMS 400

struct item {
	uint32_t key;
	bool in;
	struct pheap_node node;
};

static bool item_less(const struct pheap_node *a, const struct pheap_node *b)
{
	return container_of(a, struct item, node)->key < container_of(b, struct item, node)->key;
}

static uint32_t smallest(const struct item *it)
{
	uint32_t min = UINT32_MAX;

	for (int i = 0; i < ITEMS; i++)
		if (it[i].in)
			min = MIN(min, it[i].key);
	return min;
}

START_TEST(pheap_min_is_the_smallest_whatever_comes_and_goes)
{
	static struct item it[ITEMS];
	struct rng r = { (uint64_t)_i };
	struct pheap h;

	memset(it, 0, sizeof(it));
	pheap_init(&h, item_less);
	for (int step = 0; step < 4000; step++) {
		struct item *x = &it[rng_below(&r, ITEMS)];

		if (rng_below(&r, 4) == 0 && pheap_min(&h))
			x = container_of(pheap_min(&h), struct item, node);
		if (x->in) {
			pheap_del(&h, &x->node);
		} else {
			x->key = (uint32_t)rng_below(&r, 1000);
			pheap_add(&h, &x->node);
		}
		x->in = !x->in;
		if (!pheap_min(&h))
			ck_assert_uint_eq(smallest(it), UINT32_MAX);
		else
			ck_assert_uint_eq(container_of(pheap_min(&h), struct item, node)->key,
					  smallest(it));
	}
}
END_TEST

START_TEST(pheap_gives_everything_back_in_order)
{
	static struct item it[ITEMS];
	struct rng r = { 7 };
	struct pheap h;
	uint32_t last = 0, n = 0;

	pheap_init(&h, item_less);
	for (int i = 0; i < ITEMS; i++) {
		it[i].key = (uint32_t)rng_below(&r, 300);
		pheap_add(&h, &it[i].node);
	}
	while (pheap_min(&h)) {
		struct item *x = container_of(pheap_min(&h), struct item, node);

		ck_assert_uint_le(last, x->key);
		last = x->key;
		pheap_del(&h, &x->node);
		n++;
	}
	ck_assert_uint_eq(n, ITEMS);
}
END_TEST

/* ---- pagemap ---- */

#define PAGES 150

/* First run of n free pages, page by page. */
static uint32_t first_fit(const bool *taken, uint32_t n)
{
	for (uint32_t at = 0; at + n <= PAGES; at++) {
		uint32_t k = 0;

		while (k < n && !taken[at + k])
			k++;
		if (k == n)
			return at;
	}
	return UINT32_MAX;
}

static void mark(bool *taken, uint32_t at, uint32_t n, bool to)
{
	for (uint32_t k = 0; k < n; k++)
		taken[at + k] = to;
}

START_TEST(pagemap_gives_the_first_run_that_fits)
{
	uint64_t words[BITS_WORDS(PAGES)];
	bool taken[PAGES] = { false };
	struct { uint32_t at, n; } run[PAGES];
	uint32_t nruns = 0, used = 0;
	struct rng r = { (uint64_t)_i };
	struct pagemap m;

	pagemap_init(&m, words, PAGES);
	for (int step = 0; step < 3000; step++) {
		uint32_t n = 1 + (uint32_t)rng_below(&r, rng_below(&r, 8) ? 6 : 80), at, k;

		if (nruns && rng_below(&r, 2)) {
			k = (uint32_t)rng_below(&r, nruns);
			pagemap_put(&m, run[k].at, run[k].n);
			mark(taken, run[k].at, run[k].n, false);
			used -= run[k].n;
			run[k] = run[--nruns];
			continue;
		}
		at = pagemap_get(&m, n);
		ck_assert_uint_eq(at, first_fit(taken, n));
		if (at == UINT32_MAX)
			continue;
		mark(taken, at, n, true);
		run[nruns].at = at;
		run[nruns++].n = n;
		used += n;
		ck_assert_uint_eq(m.used, used);
	}
}
END_TEST

/* ---- geom ---- */

START_TEST(geom_covers_every_byte_once)
{
	static const uint64_t sizes[] = {
		0, 1, 2, 4095, 4096, 4097, 32767, 32768, 32769, 65535, 65536, 65537, 98304, 131071,
		131072, 131073, 1000003,
	};
	struct geom g = { sizes[_i], 65536, 32768 };
	uint64_t at = 0;

	for (uint32_t c = 0; c < geom_chunks(&g); c++) {
		uint32_t in_chunk = 0;

		ck_assert_uint_eq((uint64_t)c * g.chunk_bytes, at);
		ck_assert_uint_ge(geom_chunk_segs(&g, c), 1);
		for (uint32_t s = 0; s < geom_chunk_segs(&g, c); s++) {
			uint32_t len = geom_seg_len(&g, c, s * g.seg_bytes);

			ck_assert_uint_eq(in_chunk, s * g.seg_bytes);
			ck_assert(len >= 1 && len <= g.seg_bytes);
			in_chunk += len;
		}
		ck_assert_uint_eq(in_chunk, geom_chunk_len(&g, c));
		at += in_chunk;
	}
	ck_assert_uint_eq(at, g.bytes);
}
END_TEST

/* Of so many in a row no engine has many more than its part, wherever they end. */
START_TEST(geom_shares_chunks_evenly_among_engines)
{
	uint32_t count[ENGINES_MAX] = { 0 }, engines = (uint32_t)_i;

	for (uint32_t chunk = 0; chunk < 16000; chunk++) {
		uint32_t e = geom_shard(5, chunk, engines);

		bool even = true;

		ck_assert_uint_lt(e, engines);
		count[e]++;
		for (e = 0; e < engines; e++)
			even = even && count[e] * engines <= chunk + 1 + 4 * engines &&
			       (count[e] + 4) * engines >= chunk + 1;
		ck_assert_msg(even, "%u chunks, %u engines", chunk + 1, engines);
	}
}
END_TEST

/* Nor of those that a server has, which are one in `step`. */
START_TEST(geom_shares_a_server_s_chunks_evenly)
{
	uint32_t step = (uint32_t)_i;

	for (uint32_t tensor = 1; tensor < 100; tensor++)
		for (uint32_t first = 0; first < step; first++) {
			uint32_t second = 0, all = 0;

			for (uint32_t chunk = first; chunk < 1024; chunk += step, all++)
				second += geom_shard(tensor, chunk, 2);
			ck_assert_uint_le(second, all / 2 + 6);
			ck_assert_uint_ge(second + 6, all / 2);
		}
}
END_TEST

/* Small tensors are a chunk each. */
START_TEST(geom_shares_small_tensors_evenly)
{
	uint32_t count = 0;

	for (uint32_t tensor = 1; tensor <= 10000; tensor++)
		count += geom_shard(tensor, 0, 2);
	ck_assert_uint_gt(count, 4800);
	ck_assert_uint_lt(count, 5200);
}
END_TEST

START_TEST(geom_window_of_an_engine_takes_a_whole_segment)
{
	ck_assert_uint_eq(geom_window(WINDOW_BYTES_MIN, ENGINES_MAX, 1, SEG_BYTES_MAX),
			  SEG_BYTES_MAX);
	ck_assert_uint_eq(geom_window(WINDOW_BYTES_MAX, 1, 1, SEG_BYTES_MIN), WINDOW_BYTES_MAX);
	ck_assert_uint_eq(geom_window(WINDOW_BYTES_MAX, 3, 1, SEG_BYTES_MIN) % PAGE_BYTES, 0);
}
END_TEST

START_TEST(rounds_go_round_and_never_are_zero)
{
	ck_assert_uint_eq(round_next(0), 1);
	ck_assert_uint_eq(round_next(1), 2);
	ck_assert_uint_eq(round_next(ROUND_MAX), 1);
	ck_assert_uint_eq(round_prev(1), ROUND_MAX);
}
END_TEST

/* Results, their marks and where they are wanted lie in one of two places by turns. */
START_TEST(even_and_odd_rounds_take_turns)
{
	uint32_t r = ROUND_MAX - 3;

	for (int i = 0; i < 8; i++, r = round_next(r)) {
		ck_assert_uint_ne(round_next(r) % 2, r % 2);
		ck_assert_uint_eq(round_prev(round_next(r)), r);
	}
	ck_assert_uint_eq(r, 5);
}
END_TEST

START_TEST(range_ok_does_not_overflow)
{
	ck_assert(range_ok(0, 0, 0));
	ck_assert(range_ok(5, 5, 10));
	ck_assert(!range_ok(5, 6, 10));
	ck_assert(!range_ok(UINT64_MAX, 2, 10));
	ck_assert(!range_ok(2, UINT64_MAX, 10));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base");
	TCase *t = tcase_create("base");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, crc32c_of_the_check_string_is_the_published_one);
	tcase_add_test(t, crc32c_by_table_and_by_instruction_agree);
	tcase_add_test(t, numbers_lie_little_end_first);
	tcase_add_loop_test(t, pheap_min_is_the_smallest_whatever_comes_and_goes, 0, 20);
	tcase_add_test(t, pheap_gives_everything_back_in_order);
	tcase_add_loop_test(t, pagemap_gives_the_first_run_that_fits, 0, 20);
	tcase_add_loop_test(t, geom_covers_every_byte_once, 0, 17);
	tcase_add_loop_test(t, geom_shares_chunks_evenly_among_engines, 1, ENGINES_MAX + 1);
	tcase_add_loop_test(t, geom_shares_a_server_s_chunks_evenly, 1, 17);
	tcase_add_test(t, geom_shares_small_tensors_evenly);
	tcase_add_test(t, geom_window_of_an_engine_takes_a_whole_segment);
	tcase_add_test(t, rounds_go_round_and_never_are_zero);
	tcase_add_test(t, even_and_odd_rounds_take_turns);
	tcase_add_test(t, range_ok_does_not_overflow);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
