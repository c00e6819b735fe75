// SPDX-License-Identifier: Apache-2.0
/* agg.c and numbers.c: which cell counts, which number is lost. */
#include <check.h>
#include <stdlib.h>

#include "common/kern/kern.h"
#include "common/lane/agg.h"
#include "common/lane/numbers.h"

#define SLOTS	16u
#define CELL	64u
#define N	3u

static const uint64_t nobody[1];
static struct agg a;
static void *memory;
static struct numbers n;
static struct sent ring[256];

static void setup(void)
{
	size_t bytes = agg_bytes(AGG_EXACT, N, SLOTS, CELL);

	memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	agg_init(&a, memory, AGG_EXACT, N, SLOTS, CELL, nobody);
	numbers_init(&n, ring, ARRAY_SIZE(ring));
}

static void teardown(void)
{
	free(memory);
}

static enum agg_verdict take(uint32_t w, uint32_t p)
{
	float payload[CELL / 4];
	enum agg_verdict v;

	for (uint32_t i = 0; i < ARRAY_SIZE(payload); i++)
		payload[i] = (float)(p * 8 + w) + 0.1f * (float)i;
	v = agg_take(&a, w, p, payload, CELL);
	agg_check(&a);
	return v;
}

static void finish(uint32_t p)
{
	for (uint32_t w = 0; w + 1 < N; w++)
		ck_assert_int_eq(take(w, p), AGG_TAKEN);
	ck_assert_int_eq(take(N - 1, p), AGG_COMPLETE);
	agg_sum(&a, p, DTYPE_F32, 1, NULL);
	agg_check(&a);
}

START_TEST(copy_counts_once_and_is_answered_when_the_sum_is_there)
{
	uint32_t len;

	ck_assert_int_eq(take(0, 5), AGG_TAKEN);
	ck_assert_int_eq(take(0, 5), AGG_COPY);
	ck_assert(agg_misses(&a, 5, 1) && !agg_misses(&a, 5, 0) && !agg_misses(&a, 6, 0));
	ck_assert_int_eq(take(2, 5), AGG_TAKEN);
	ck_assert_ptr_null(agg_result(&a, 5, &len));
	ck_assert_int_eq(take(1, 5), AGG_COMPLETE);
	agg_sum(&a, 5, DTYPE_F32, 1, NULL);
	ck_assert_int_eq(take(0, 5), AGG_AGAIN);
	ck_assert_ptr_nonnull(agg_result(&a, 5, &len));
	ck_assert_uint_eq(len, CELL);
}
END_TEST

START_TEST(position_begins_only_when_the_two_before_it_in_its_slot_are_over)
{
	ck_assert_int_eq(take(0, SLOTS), AGG_JUMP);		/* 0 has not begun */
	ck_assert_int_eq(take(0, 0), AGG_TAKEN);
	ck_assert_int_eq(take(0, SLOTS), AGG_JUMP);		/* 0 is not complete */
	ck_assert_int_eq(take(1, 0), AGG_TAKEN);
	ck_assert_int_eq(take(2, 0), AGG_COMPLETE);
	agg_sum(&a, 0, DTYPE_F32, 1, NULL);
	ck_assert_int_eq(take(0, 2 * SLOTS), AGG_JUMP);		/* SLOTS has not begun */
	ck_assert_int_eq(take(0, 3 * SLOTS), AGG_JUMP);
	ck_assert_int_eq(take(0, 1000 * SLOTS), AGG_JUMP);
	finish(SLOTS);
	ck_assert_int_eq(take(1, 3 * SLOTS), AGG_JUMP);
	finish(2 * SLOTS);
	ck_assert_int_eq(take(0, 0), AGG_STALE);
	ck_assert_int_eq(take(0, SLOTS), AGG_AGAIN);		/* still there */
	finish(3 * SLOTS);
	ck_assert_int_eq(take(0, SLOTS), AGG_STALE);
}
END_TEST

START_TEST(stranger_and_wrong_length_are_refused)
{
	static const uint8_t payload[2 * CELL];

	ck_assert_int_eq(agg_take(&a, N, 0, payload, CELL), AGG_REFUSED);
	ck_assert_int_eq(agg_take(&a, 0, 0, payload, 0), AGG_REFUSED);
	ck_assert_int_eq(agg_take(&a, 0, 0, payload, CELL + 4), AGG_REFUSED);
	ck_assert_int_eq(agg_take(&a, 0, 0, payload, 8), AGG_TAKEN);
	ck_assert_int_eq(agg_take(&a, 1, 0, payload, CELL), AGG_REFUSED);
	agg_check(&a);
}
END_TEST

START_TEST(positions_wrap)
{
	for (uint32_t v = 0; v < 2 * SLOTS; v++)
		a.version[v] = (struct agg_version){ .p = UINT32_MAX - 2 * SLOTS + 1 + v,
						     .len = CELL, .summed = true, .count = N };
	for (uint32_t v = 0; v < 2 * SLOTS; v++)
		a.seen[v] = (1u << N) - 1;
	ck_assert_int_eq(take(0, SLOTS), AGG_JUMP);
	for (uint32_t p = 0; p < 4 * SLOTS; p++)
		finish(p);
	ck_assert_int_eq(take(0, UINT32_MAX), AGG_STALE);
}
END_TEST

START_TEST(integer_lane_adds_modulo_2_to_the_32_whoever_is_first)
{
	static const uint32_t order[6][3] = {
		{ 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
	};
	const uint32_t *got;

	agg_init(&a, memory, AGG_INT32, N, SLOTS, CELL, nobody);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t value = 0x70000000u + order[_i][i];

		ck_assert_int_eq(agg_take(&a, order[_i][i], 0, &value, 4),
				 i == 2 ? AGG_COMPLETE : AGG_TAKEN);
	}
	got = agg_sum(&a, 0, DTYPE_I32, 1, NULL);
	ck_assert_uint_eq(*got, 3 * 0x70000000u + 3);
}
END_TEST

/* ---- numbers ---- */

/* A datagram of the other side that says: `ack` arrived, and of those before it what sack says. */
static void hear(uint32_t ack, uint64_t sack, mono_t now)
{
	struct cell f = { .type = CELL_ACK, .ack = ack, .sack = sack };

	numbers_heard(&n, &f, NULL, now);
}

static void send_some(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		numbers_send(&n, CELL_ADD, n.next * 10, 0);
}

START_TEST(number_is_lost_when_three_later_ones_have_arrived)
{
	const struct sent *s;

	send_some(5);
	hear(3, 1, 1000);			/* 3 and 2: 1 may be on its way */
	ck_assert_ptr_null(numbers_lost(&n));
	hear(4, 3, 1000);
	s = numbers_lost(&n);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(s->what, 10);
	ck_assert_ptr_null(numbers_lost(&n));
	ck_assert_uint_eq(n.lost, 1);
	ck_assert_uint_eq(n.open, 1);		/* 5 */
}
END_TEST

START_TEST(spurious_loss_doubles_the_patience_and_calm_takes_it_back)
{
	send_some(4);
	hear(4, 3, 1);
	ck_assert_ptr_nonnull(numbers_lost(&n));
	hear(4, 7, 2);				/* 1 comes late */
	ck_assert_uint_eq(n.spurious, 1);
	ck_assert_uint_eq(n.reorder, 2 * NUMBERS_REORDER);
	for (uint32_t i = 0; i < 4 * NUMBERS_CALM; i++) {
		send_some(1);
		hear(n.next - 1, 0, 3);
		ck_assert_ptr_null(numbers_lost(&n));
	}
	ck_assert_uint_eq(n.reorder, NUMBERS_REORDER);
}
END_TEST

START_TEST(answered_ping_settles_all_numbers_before_it)
{
	uint32_t ping;

	send_some(2);
	ck_assert_int_eq(numbers_ping_at(&n), mono_ms(NUMBERS_PTO_MIN_MS));
	ping = numbers_send(&n, CELL_PING, 0, mono_ms(2));
	numbers_pinged(&n, ping, mono_ms(2));
	ck_assert_int_eq(numbers_ping_at(&n), mono_ms(2 + 2 * NUMBERS_PTO_MIN_MS));
	hear(ping, 0, mono_ms(3));
	ck_assert_uint_eq(numbers_lost(&n)->what, 10);
	ck_assert_uint_eq(numbers_lost(&n)->what, 20);
	ck_assert_ptr_null(numbers_lost(&n));
	ck_assert_int_eq(numbers_ping_at(&n), MONO_NEVER);
}
END_TEST

START_TEST(numbers_wrap_and_skip_zero)
{
	n.next = n.judged = UINT32_MAX - 5;
	for (uint32_t i = 0; i < 600; i++) {
		send_some(1);
		ck_assert_uint_ne(n.next, 0);
		hear(n.next == 1 ? UINT32_MAX : n.next - 1, 0, 1);
		ck_assert_ptr_null(numbers_lost(&n));
	}
	ck_assert_uint_eq(n.open, 0);
	ck_assert_uint_eq(n.lost, 0);
}
END_TEST

START_TEST(words_about_numbers_never_sent_are_ignored)
{
	send_some(3);
	hear(4, UINT64_MAX, 1);
	hear(UINT32_MAX, UINT64_MAX, 1);
	hear(0, UINT64_MAX, 1);
	ck_assert_uint_eq(n.open, 3);
	ck_assert_ptr_null(numbers_lost(&n));
}
END_TEST

START_TEST(what_arrived_is_told_as_it_was_heard)
{
	uint8_t wide[CELL_WIDE_BYTES];
	struct numbers other;
	struct sent others[1024];
	struct rng r = { .state = (uint64_t)_i };
	uint64_t arrived = 0;
	struct cell f = { .type = CELL_ACK };

	numbers_init(&other, others, ARRAY_SIZE(others));
	for (uint32_t pn = 1; pn <= 1000; pn++) {
		numbers_send(&other, CELL_ADD, pn, 0);
		if (pn < 1000 && rng_below(&r, 3))
			continue;
		ck_assert(numbers_arrived(&n, pn, false, 0));
		ck_assert(!numbers_arrived(&n, pn, false, 0));
		arrived++;
	}
	numbers_tell_wide(&n, &f, wide);
	ck_assert(numbers_heard(&other, &f, wide, 1));
	ck_assert_uint_eq(other.open, 1000 - arrived);
	ck_assert_int_eq(numbers_answer_at(&n), MONO_NEVER);
}
END_TEST

START_TEST(answer_is_due_after_a_millisecond_at_once_behind_48_or_a_ping)
{
	numbers_arrived(&n, 1, false, 5);
	ck_assert_int_eq(numbers_answer_at(&n), 5 + mono_ms(NUMBERS_ANSWER_MS));
	for (uint32_t pn = 2; pn <= NUMBERS_ANSWER_EVERY; pn++)
		numbers_arrived(&n, pn, false, 6);
	ck_assert_int_eq(numbers_answer_at(&n), 6);
	numbers_tell(&n, &(struct cell){ .type = CELL_ACK });
	numbers_arrived(&n, 100, true, 7);
	ck_assert_int_eq(numbers_answer_at(&n), 7);
}
END_TEST

static void add_tests(TCase *t)
{
	tcase_add_test(t, copy_counts_once_and_is_answered_when_the_sum_is_there);
	tcase_add_test(t, position_begins_only_when_the_two_before_it_in_its_slot_are_over);
	tcase_add_test(t, stranger_and_wrong_length_are_refused);
	tcase_add_test(t, positions_wrap);
	tcase_add_loop_test(t, integer_lane_adds_modulo_2_to_the_32_whoever_is_first, 0, 6);
	tcase_add_test(t, number_is_lost_when_three_later_ones_have_arrived);
	tcase_add_test(t, spurious_loss_doubles_the_patience_and_calm_takes_it_back);
	tcase_add_test(t, answered_ping_settles_all_numbers_before_it);
	tcase_add_test(t, numbers_wrap_and_skip_zero);
	tcase_add_test(t, words_about_numbers_never_sent_are_ignored);
	tcase_add_loop_test(t, what_arrived_is_told_as_it_was_heard, 0, 20);
	tcase_add_test(t, answer_is_due_after_a_millisecond_at_once_behind_48_or_a_ping);
}

#include "tests/unit/rig_main.h"

int main(void)
{
	kern_init(~0u);
	return rig_main("agg", add_tests);
}
