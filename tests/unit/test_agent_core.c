// SPDX-License-Identifier: Apache-2.0
/* agent_core.c: what is pushed when, what a window does, what answers and losses cost. */
#include "tests/unit/agent_rig.h"

/* ---- pushes ---- */

START_TEST(nothing_is_pushed_before_all_local_ranks_gave_theirs)
{
	struct ag_send s;
	int32_t v;

	post_one(0, 1, 1, 0);
	expect_silence();
	post_one(0, 1, 0, 0);
	ck_assert(ag_next(&core, now, &s));
	memcpy(&v, s.data, 4);
	ck_assert_int_eq(v, 3);
	ck_assert_uint_eq(s.frame.length, SEG);
	ck_assert_uint_eq(s.frame.rslot, SLOT_SLAB(1, (SEGS + taken[0]) * SEG));
	ag_sent(&core, &peer, s.seg, s.frame.length, now);
}
END_TEST

START_TEST(the_most_urgent_goes_first_then_the_oldest)
{
	post(0, 1, 0);
	post(1, 1, 0);
	post(2, 1, 5);
	expect_pushes(2);
	expect_pushes(0);
	expect_pushes(1);
	expect_silence();
}
END_TEST

START_TEST(results_end_the_round_and_the_next_may_open)
{
	post(0, 1, 0);
	expect_pushes(0);
	results(0);
	ck_assert_uint_eq(route->window.used, 0);
	post(0, 2, 0);
	ck_assert_uint_eq(expect(FRAME_PUSH, 0, 0).round, 2);
}
END_TEST

START_TEST(a_round_knows_when_it_got_how_far)
{
	const struct ag_times *t = &tensor[0]->times;
	mono_t at = now;

	post_one(0, 1, 0, 0);
	now += 10;
	post_one(0, 1, 1, 0);
	for (uint32_t i = 0; i < SEGS; i++) {
		now += 10;
		expect(FRAME_PUSH, 0, i);
	}
	now += 100;
	results(0);
	ck_assert_int_eq(t->given, at + 10);
	ck_assert_int_eq(t->begun, at + 20);
	ck_assert_int_eq(t->sent, at + 10 + 10 * SEGS);
	ck_assert_int_eq(t->came, now);
	ck_assert_int_eq(t->summed, now);
	now += 10;
	post(0, 2, 0);
	ck_assert_int_eq(t->begun, 0);
	ck_assert_int_eq(t->summed, 0);
}
END_TEST

START_TEST(a_slot_serves_nobody_while_a_push_into_it_is_under_way)
{
	struct ag_send first, s;

	post(0, 1, 0);
	ck_assert(ag_next(&core, now, &first));
	for (uint32_t i = 1; i < SEGS; expect(FRAME_PUSH, 0, i++));
	results(0);
	post(1, 1, 0);
	while (ag_next(&core, now, &s)) {
		ck_assert(s.frame.slot != first.frame.slot);
		ag_sent(&core, &peer, s.seg, s.frame.length, now);
	}
	post(0, 2, 5);
	expect_silence();
	ag_sent(&core, &peer, first.seg, first.frame.length, now);
	ck_assert_uint_eq(expect(FRAME_PUSH, 0, 0).round, 2);
}
END_TEST

/* Segment by segment, in place for one rank and elsewhere for the other. */
START_TEST(a_result_goes_where_the_ranks_want_it)
{
	uint8_t *elsewhere = calloc(SEGS, SEG), *in = input[0][0];
	struct ag_post p = { .round = 1, .rop = ROP_SUM, .root_local = -1, .length = SEGS * SEG,
			     .base = in, .base_slot = SLOT_SLAB(20, 0), .out = in };

	ag_post(&core, tensor[0], &p, now);
	p = (struct ag_post){ .round = 1, .local = 1, .rop = ROP_SUM, .root_local = -1,
			      .length = SEGS * SEG, .base = input[0][1],
			      .base_slot = SLOT_SLAB(21, 0), .out = elsewhere };
	ag_post(&core, tensor[0], &p, now);
	expect_pushes(0);
	for (uint32_t c = 0; c < SEGS; c++) {
		size_t at = (size_t)taken[c] * SEG;

		ck_assert_mem_ne(in + at, result[0][1] + at, SEG);
		ck_assert(result_lands(0, c));
		ck_assert_mem_eq(in + at, result[0][1] + at, SEG);
		ck_assert_mem_eq(elsewhere + at, result[0][1] + at, SEG);
	}
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	memset(in, 1, SEGS * SEG);
	post(0, 2, 0);			/* and not where nobody asked for it */
	expect_pushes(0);
	results(0);
	ck_assert_mem_ne(in, result[0][0], SEG);
	free(elsewhere);
}
END_TEST

/* Its process ends, and another one finds its memory. */
static void again(uint32_t k, uint32_t round, bool whole)
{
	ag_tensor_remove(&core, tensor[k]);
	ag_tensor_forget(&core, tensor[k]);
	free(tensor[k]);
	put_tensor(k, round, whole);
	ag_check(&core);
}

/* The inputs of those that have a result may be gone: they are not pushed again. */
START_TEST(started_again_it_pushes_what_has_no_result)
{
	post(0, 1, 0);
	expect_pushes(0);
	ck_assert(result_lands(0, 1));
	ck_assert(result_lands(0, 3));
	again(0, 0, false);
	post_one(0, 1, 1, 0);
	expect_silence();
	post_one(0, 1, 0, 0);
	expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 2);
	expect_silence();
	ck_assert_uint_eq(core.count.kept, 2);
	ck_assert(!result_lands(0, 1));
	ck_assert(result_lands(0, 0));
	ck_assert(result_lands(0, 2));
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	post(0, 2, 0);
	expect_pushes(0);
	results(0);
}
END_TEST

/* Where a world may become smaller a tensor is of one, whole: it keeps all or nothing. */
START_TEST(started_again_it_keeps_a_whole_round_or_none_of_it)
{
	post(0, 1, 0);
	expect_pushes(0);
	ck_assert(result_lands(0, 1));
	again(0, 0, true);
	post(0, 1, 0);
	expect_pushes(0);
	results(0);
	again(0, 0, true);
	post_one(0, 1, 1, 0);
	ck_assert_ptr_null(ag_done(&core));
	post_one(0, 1, 0, 0);
	expect_silence();
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	ck_assert_uint_eq(core.count.kept, SEGS);

	marks[0][1][1] += AG_MARK(1, 0, 0);		/* a result of another world */
	again(0, 0, true);
	post(0, 1, 0);
	expect_pushes(0);
	results(0);
}
END_TEST

START_TEST(started_again_it_gives_the_round_before_and_goes_on)
{
	struct frame f;

	post(0, 1, 0);
	expect_pushes(0);
	results(0);
	again(0, 1, false);
	say(FRAME_SEEK, 0, 2);
	f = expect(FRAME_GIVE, 0, 2);
	ck_assert_uint_eq(f.round, 1);
	ck_assert_uint_eq(f.rop, ROP_SUM);
	post(0, 2, 0);
	expect_pushes(0);
	results(0);
}
END_TEST

static void scribble(uint32_t k)
{
	for (int parity = 0; parity < 2; parity++)
		for (uint32_t i = 0; i < SEGS; i++)
			marks[k][parity][i] = (uint64_t)random() << 32 | (random() & 7);
}

/* They lie where others may be able to write: who says what he likes is not believed. */
START_TEST(started_again_it_takes_no_marks_that_cannot_be)
{
	uint64_t good[2][SEGS];
	struct ag_tensor_desc d;

	post(0, 1, 0);
	expect_pushes(0);
	results(0);
	memcpy(good, marks[0], sizeof(good));
	for (uint32_t i = 0; i < 10000; i++) {
		d = desc_of(0, i & 1);
		scribble(0);
		if (ag_desc_resume(&d, 1 + i % 8))
			ck_assert(d.rop < ROP_END && d.round == 1 + i % 8);
	}
	for (uint32_t k = 0; k < SEGS; k++) {
		memcpy(marks[0], good, sizeof(good));
		d = desc_of(0, false);
		ck_assert(!ag_desc_resume(&d, 2));
		ck_assert(!ag_desc_resume(&d, 3));	/* of the same parity */
		ck_assert(!ag_desc_resume(&d, UINT32_MAX));
		ck_assert(ag_desc_resume(&d, 1));
		marks[0][1][k] += AG_MARK(1, 0, 0);
		ck_assert(!ag_desc_resume(&d, 1));
	}
	for (uint32_t rop = 0; rop < 256; rop++) {
		for (uint32_t k = 0; k < SEGS; k++)
			marks[0][1][k] = AG_MARK(4, rop, 1);
		ck_assert(ag_desc_resume(&d, 1) == (rop < ROP_END));
	}
}
END_TEST

/* They are looked at once: what they say later changes nothing. */
START_TEST(started_again_it_does_not_mind_marks_that_change)
{
	struct ag_tensor_desc d;

	post(0, 1, 0);
	expect_pushes(0);
	results(0);
	for (uint32_t i = 0; i < 100; i++) {
		ag_tensor_remove(&core, tensor[0]);
		ag_tensor_forget(&core, tensor[0]);
		free(tensor[0]);
		for (uint32_t k = 0; k < SEGS; k++)
			marks[0][1][k] = AG_MARK(4, ROP_SUM, 1);
		d = desc_of(0, i & 1);
		ck_assert(ag_desc_resume(&d, 1));
		scribble(0);
		tensor[0] = ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &d)), &d);
		ck_assert_uint_eq(tensor[0]->round, 1);
		ck_assert_uint_eq(tensor[0]->rop, ROP_SUM);
		scribble(0);
		ag_check(&core);
	}
	memset(marks[0], 0, sizeof(marks[0]));
	again(0, 0, false);
	post(0, 1, 0);
	expect_pushes(0);
	results(0);
}
END_TEST

/* It has no marks, and rounds as any other has. */
START_TEST(started_again_an_empty_tensor_goes_on)
{
	const uint32_t no_route = 0;
	uint64_t other = ~0ull;		/* somebody else's */
	struct ag_tensor_desc d = {
		.id = TENSORS + 1, .dtype = DTYPE_I32, .geom = { 0, SEG, SEG }, .route = &no_route,
		.sum = sum[0], .sum_slot = SLOT_SLAB(9, 0), .whole = true,
		.result = { result[0][0], result[0][1] }, .mark = { &other, &other },
	};
	struct ag_post p = { .round = 4, .rop = ROP_SUM, .root_local = -1, .base = input[0][0],
			     .base_slot = SLOT_SLAB(20, 0) };
	struct ag_tensor *t;

	ck_assert_uint_eq(ag_marks(&d.geom), 0);
	ck_assert(ag_desc_resume(&d, 3));
	t = ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &d)), &d);
	ck_assert_uint_eq(t->round, 3);
	ck_assert_uint_eq(t->rop, 0);
	for (p.local = 0; p.local < 2; p.local++)
		ag_post(&core, t, &p, now);
	expect_silence();
	ck_assert_ptr_eq(ag_done(&core), t);
	ck_assert_uint_eq(t->round, 4);
	ag_tensor_remove(&core, t);
	ag_tensor_forget(&core, t);
	free(t);
}
END_TEST

START_TEST(a_full_window_stops_pushes_and_a_result_frees_it)
{
	post(0, 1, 0);
	expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 1);
	expect_silence();
	ck_assert(result_lands(0, 0));
	expect(FRAME_PUSH, 0, 2);
	expect_silence();
}
END_TEST

START_TEST(bytes_on_the_links_have_a_limit)
{
	struct ag_send a, b;

	peer.tx_limit = SEG;
	post(0, 1, 0);
	ck_assert(ag_next(&core, now, &a));
	ck_assert(!ag_next(&core, now, &b));
	ag_sent(&core, &peer, a.seg, a.frame.length, now);
	expect(FRAME_PUSH, 0, 1);
}
END_TEST

START_TEST(by_reference_a_push_names_the_slab_and_needs_no_window)
{
	struct frame f;

	ag_peer_down(&core, &peer);
	ag_peer_up(&core, &peer, true, now);
	post(0, 1, 0);
	f = expect(FRAME_PUSH, 0, 0);
	ck_assert_uint_eq(f.flags, FRAME_BYREF);
	ck_assert_uint_eq(f.slot, SLOT_SLAB(9, taken[0] * SEG));
	ck_assert_uint_eq(route->window.used, 0);
	f = answer(FRAME_RESULT, 0, 0);
	f.flags = FRAME_BYREF;
	f.slot = SLOT_SLAB(1, taken[0] * SEG);		/* of another round */
	ag_frame(&core, &peer, &f, now);
	ck_assert_uint_eq(core.count.drop_shape, 1);
	f.slot += SEGS * SEG;
	ag_frame(&core, &peer, &f, now);
	ck_assert_uint_eq(core.count.results, 1);
}
END_TEST

START_TEST(a_broadcast_from_elsewhere_is_pushed_without_data)
{
	struct ag_post p = { .round = 1, .rop = ROP_BROADCAST, .root_local = -1, .root = 9,
			     .length = SEGS * SEG, .base_slot = SLOT_NONE };
	struct frame f;

	for (p.local = 0; p.local < 2; p.local++)
		ag_post(&core, tensor[0], &p, now);
	f = expect(FRAME_PUSH, 0, 0);
	ck_assert_uint_eq(f.flags, FRAME_NODATA);
	ck_assert_uint_eq(f.length, 0);
	ck_assert_uint_eq(f.aux, 9);	/* so that the server sees who disagrees */
	ck_assert_uint_eq(route->window.used, 0);
}
END_TEST

START_TEST(one_machine_alone_sums_by_itself_within_its_budget)
{
	int32_t v;

	post(0, 1, 0);
	expect_silence();
	ck_assert(ag_work(&core, SEG));
	ck_assert(!ag_work(&core, UINT64_MAX));
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	memcpy(&v, result[0][1], 4);
	ck_assert_int_eq(v, 3);
}
END_TEST

/* ---- answers, late and wrong ones ---- */

START_TEST(results_that_cannot_be_are_counted_and_dropped)
{
	struct ag_counters *n = &core.count;
	struct frame f;

	post(0, 1, 0);
	expect(FRAME_PUSH, 0, 0);
#define DROPPED(counter, change) do { \
		f = answer(FRAME_RESULT, 0, 0); \
		change; \
		ck_assert_ptr_null(ag_place(&core, &peer, &f, now)); \
		ck_assert_uint_eq(n->counter, 1); \
		n->counter = 0; \
	} while (0)
	DROPPED(drop_job, f.job++);
	DROPPED(drop_job, f.tensor = 99);
	DROPPED(drop_epoch, f.epoch++);
	DROPPED(drop_job, f.chunk = SEGS);
	DROPPED(drop_job, f.offset = 4);
	DROPPED(drop_round, f.round = 0);
	DROPPED(drop_round, f.round = 2);
	DROPPED(drop_shape, f.dtype = DTYPE_F32);
	DROPPED(drop_shape, f.rop = ROP_MEAN);
	DROPPED(drop_shape, f.length = SEG - 4);
	DROPPED(drop_shape, f.type = FRAME_PUSH);	/* that it has landed nobody would say */
	DROPPED(drop_state, f.tensor = 2; f.round = 0);
#undef DROPPED
	ck_assert_uint_eq(n->results, 0);
}
END_TEST

START_TEST(a_second_result_is_a_duplicate)
{
	struct frame f = { 0 };

	post(0, 1, 0);
	expect(FRAME_PUSH, 0, 0);
	f = answer(FRAME_RESULT, 0, 0);
	ck_assert_ptr_nonnull(ag_place(&core, &peer, &f, now));
	ck_assert_ptr_null(ag_place(&core, &peer, &f, now));	/* while the first one lands */
	ag_frame(&core, &peer, &f, now);
	ck_assert(!result_lands(0, 0));
	ck_assert_uint_eq(core.count.results, 1);
	ck_assert_uint_eq(core.count.duplicates, 2);
}
END_TEST

START_TEST(a_result_that_breaks_can_land_again)
{
	struct frame f;

	post(0, 1, 0);
	expect(FRAME_PUSH, 0, 0);
	f = answer(FRAME_RESULT, 0, 0);
	ck_assert_ptr_nonnull(ag_place(&core, &peer, &f, now));
	ag_unplace(&core, &f);
	ck_assert_uint_eq(job->borrowed, 0);
	ck_assert(result_lands(0, 0));
}
END_TEST

START_TEST(a_mismatch_ends_the_job_and_names_the_tensor)
{
	struct frame f;

	post(1, 1, 0);
	expect(FRAME_PUSH, 1, 0);
	f = answer(FRAME_REFUSED, 1, 0);
	f.aux = (uint32_t)-TALLY_EBUSY;
	ag_frame(&core, &peer, &f, now);
	ck_assert_int_eq(job->fail_code, 0);
	f.aux = (uint32_t)-TALLY_EMISMATCH;
	f.slot = SIDE(0, ROP_SUM, 0);
	f.rslot = SIDE(1, ROP_MEAN, 0);
	ag_frame(&core, &peer, &f, now);
	ck_assert_int_eq(job->fail_code, TALLY_EMISMATCH);
	ck_assert_uint_eq(job->fail_tensor, 2);
	ck_assert_uint_eq(job->fail_round, 1);
	ck_assert_uint_eq(job->fail_side[0], f.slot);
	ck_assert_uint_eq(job->fail_side[1], f.rslot);
}
END_TEST

/* ---- loss ---- */

START_TEST(a_push_without_a_word_is_asked_after)
{
	post(0, 1, 0);
	expect_pushes(0);
	later(PROBE_MIN_MS - 1);
	expect_silence();
	later(1);
	for (uint32_t i = 0; i < SEGS; i++)
		expect(FRAME_PROBE, 0, i);
	later(PROBE_MIN_MS);
	expect_silence();		/* asks less and less often */
}
END_TEST

START_TEST(a_push_that_a_broken_link_lost_is_pushed_again)
{
	struct frame first, again;

	post(0, 1, 0);
	first = expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 1);
	expect(FRAME_PUSH, 0, 2);
	expect(FRAME_PUSH, 0, 3);
	ag_peer_hurt(&core, &peer);
	later(0);
	for (uint32_t i = 0; i < SEGS; i++)
		expect(FRAME_PROBE, 0, i);
	say(FRAME_ASK, 0, 0);
	again = expect(FRAME_PUSH, 0, 0);
	ck_assert_uint_eq(again.slot, first.slot);
	ck_assert_uint_eq(again.attempt, first.attempt);
	ck_assert_uint_eq(core.count.repushes, 1);
}
END_TEST

/* Links that live deliver; only when nothing comes of it for long it is pushed again. */
START_TEST(an_ask_on_links_that_live_is_followed_after_some_patience)
{
	struct frame first, again;

	post(0, 1, 0);
	first = expect(FRAME_PUSH, 0, 0);
	for (uint32_t i = 1; i < SEGS; i++)
		expect(FRAME_PUSH, 0, i);
	for (uint32_t n = 1; n <= AG_PATIENCE; n++) {
		expect_silence();
		later(PROBE_MAX_MS);
		for (uint32_t i = 0; i < SEGS; i++)
			expect(FRAME_PROBE, 0, i);
		say(FRAME_ASK, 0, 0);
		for (uint32_t i = 1; i < SEGS; i++)
			say_held(0, i, 0);
		ck_assert_uint_eq(core.count.repushes, n == AG_PATIENCE);
	}
	again = expect(FRAME_PUSH, 0, 0);
	ck_assert_uint_eq(again.slot, first.slot);
	ck_assert_uint_eq(again.attempt, first.attempt);
	expect_silence();
}
END_TEST

START_TEST(an_ask_for_what_is_on_its_way_is_not_pushed_twice)
{
	post(0, 1, 0);
	expect_pushes(0);
	say(FRAME_ASK, 0, 0);
	expect_silence();
}
END_TEST

START_TEST(held_names_who_is_missing)
{
	struct msg_wait rows[4];
	struct frame f;

	post(0, 1, 0);
	expect_pushes(0);
	f = answer(FRAME_HELD, 0, 0);
	f.aux = 0;
	ag_frame(&core, &peer, &f, now);
	ck_assert_uint_eq(ag_waits_for(tensor[0], now, rows, 4), 1);
	ck_assert_uint_eq(rows[0].kind, WAIT_MACHINE);
	ck_assert_uint_eq(rows[0].who, 0);
}
END_TEST

START_TEST(a_link_that_comes_back_gets_everything_again_into_the_same_slots)
{
	uint64_t slot[SEGS];

	post(0, 1, 0);
	for (uint32_t i = 0; i < SEGS; i++)
		slot[i] = expect(FRAME_PUSH, 0, i).slot;
	ag_peer_down(&core, &peer);
	later(1000);
	expect_silence();
	ag_peer_up(&core, &peer, false, now);
	for (uint32_t i = 0; i < SEGS; i++)
		ck_assert_uint_eq(expect(FRAME_PUSH, 0, i).slot, slot[i]);
	results(0);
}
END_TEST

START_TEST(one_broken_link_of_several_is_asked_after_at_once)
{
	post(0, 1, 0);
	expect_pushes(0);
	ag_peer_hurt(&core, &peer);
	later(0);
	expect(FRAME_PROBE, 0, 0);
}
END_TEST

START_TEST(a_borrowed_payload_holds_the_tensor)
{
	struct ag_send s;

	post(0, 1, 0);
	ck_assert(ag_next(&core, now, &s));
	ag_tensor_remove(&core, tensor[0]);
	ck_assert_uint_eq(tensor[0]->borrowed, 1);
	ck_assert(!result_lands(0, 0));
	ag_sent(&core, &peer, s.seg, s.frame.length, now);
	ck_assert_uint_eq(tensor[0]->borrowed, 0);
}
END_TEST

/* ---- full windows ---- */

static void fill_window(void)
{
	post(0, 1, 0);
	expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 1);
	expect_silence();
}

START_TEST(what_finds_no_room_is_offered)
{
	fill_window();
	later(OFFER_AFTER_MS - 1);
	expect_silence();
	later(1);
	expect(FRAME_OFFER, 0, 2);
	expect(FRAME_OFFER, 0, 3);
	later(OFFER_AFTER_MS);
	expect_silence();
	later(PROBE_MIN_MS);
	expect(FRAME_PROBE, 0, 0);
	expect(FRAME_PROBE, 0, 1);
	expect(FRAME_OFFER, 0, 2);
}
END_TEST

START_TEST(room_for_an_asked_one_is_taken_from_the_least_urgent)
{
	struct frame f;
	uint64_t slot;

	fill_window();
	say(FRAME_ASK, 0, 3);
	slot = expect(FRAME_CANCEL, 0, 1).attempt;
	ck_assert_uint_eq(slot, 0);
	expect_silence();		/* one at a time */
	f = answer(FRAME_CANCELLED, 0, 1);
	f.attempt = 1;			/* of another time */
	ag_frame(&core, &peer, &f, now);
	ck_assert_uint_eq(core.count.drop_state, 1);
	expect_silence();
	f.attempt = 0;
	ag_frame(&core, &peer, &f, now);
	expect(FRAME_PUSH, 0, 3);
	expect_silence();
	ck_assert(result_lands(0, 3));
	ck_assert_uint_eq(expect(FRAME_PUSH, 0, 1).attempt, 1);
}
END_TEST

START_TEST(what_the_server_holds_is_not_taken_back_again)
{
	fill_window();
	say(FRAME_ASK, 0, 3);
	expect(FRAME_CANCEL, 0, 1);
	say_held(0, 1, HELD_ASKED);
	expect(FRAME_CANCEL, 0, 0);
	say_held(0, 0, HELD_ASKED);
	expect_silence();
	ck_assert(result_lands(0, 1));
	expect(FRAME_PUSH, 0, 3);
}
END_TEST

START_TEST(a_held_from_before_the_cancel_is_not_its_answer)
{
	struct frame f;

	fill_window();
	say(FRAME_ASK, 0, 3);
	expect(FRAME_CANCEL, 0, 1);
	say_held(0, 1, 0);
	f = answer(FRAME_CANCELLED, 0, 1);
	ag_frame(&core, &peer, &f, now);
	expect(FRAME_PUSH, 0, 3);
}
END_TEST

START_TEST(a_cancel_without_an_answer_is_said_again)
{
	fill_window();
	say(FRAME_ASK, 0, 3);
	expect(FRAME_CANCEL, 0, 1);
	later(PROBE_MIN_MS);
	expect(FRAME_PROBE, 0, 0);
	expect(FRAME_CANCEL, 0, 1);
	expect(FRAME_OFFER, 0, 2);
	expect(FRAME_OFFER, 0, 3);
	ck_assert(result_lands(0, 1));	/* or it was complete all along */
	expect(FRAME_PUSH, 0, 3);
}
END_TEST

START_TEST(what_is_pushed_again_goes_before_an_asked_one_without_room)
{
	fill_window();
	say(FRAME_ASK, 0, 3);
	ag_peer_down(&core, &peer);
	ag_peer_up(&core, &peer, false, now);
	expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 1);
	expect(FRAME_CANCEL, 0, 1);
}
END_TEST

START_TEST(an_ask_that_answered_a_probe_protects_nothing)
{
	fill_window();
	ag_peer_hurt(&core, &peer);
	later(0);
	expect(FRAME_PROBE, 0, 0);
	expect(FRAME_PROBE, 0, 1);
	say(FRAME_ASK, 0, 0);
	say(FRAME_ASK, 0, 1);
	expect(FRAME_PUSH, 0, 0);
	expect(FRAME_PUSH, 0, 1);
	say(FRAME_ASK, 0, 3);
	expect(FRAME_CANCEL, 0, 1);
}
END_TEST

static void add_wide(TCase *t)
{
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, nothing_is_pushed_before_all_local_ranks_gave_theirs);
	tcase_add_test(t, the_most_urgent_goes_first_then_the_oldest);
	tcase_add_test(t, a_slot_serves_nobody_while_a_push_into_it_is_under_way);
	tcase_add_test(t, results_end_the_round_and_the_next_may_open);
	tcase_add_test(t, a_round_knows_when_it_got_how_far);
	tcase_add_test(t, a_result_goes_where_the_ranks_want_it);
	tcase_add_test(t, bytes_on_the_links_have_a_limit);
	tcase_add_test(t, by_reference_a_push_names_the_slab_and_needs_no_window);
	tcase_add_test(t, a_broadcast_from_elsewhere_is_pushed_without_data);
	tcase_add_test(t, results_that_cannot_be_are_counted_and_dropped);
	tcase_add_test(t, a_second_result_is_a_duplicate);
	tcase_add_test(t, a_result_that_breaks_can_land_again);
	tcase_add_test(t, a_mismatch_ends_the_job_and_names_the_tensor);
	tcase_add_test(t, a_push_without_a_word_is_asked_after);
	tcase_add_test(t, a_push_that_a_broken_link_lost_is_pushed_again);
	tcase_add_test(t,
		       an_ask_on_links_that_live_is_followed_after_some_patience);
	tcase_add_test(t, an_ask_for_what_is_on_its_way_is_not_pushed_twice);
	tcase_add_test(t, held_names_who_is_missing);
	tcase_add_test(t, a_link_that_comes_back_gets_everything_again_into_the_same_slots);
	tcase_add_test(t, one_broken_link_of_several_is_asked_after_at_once);
	tcase_add_test(t, a_borrowed_payload_holds_the_tensor);
	tcase_add_test(t, started_again_it_pushes_what_has_no_result);
	tcase_add_test(t, started_again_it_keeps_a_whole_round_or_none_of_it);
	tcase_add_test(t, started_again_it_gives_the_round_before_and_goes_on);
	tcase_add_test(t, started_again_it_takes_no_marks_that_cannot_be);
	tcase_add_test(t, started_again_it_does_not_mind_marks_that_change);
	tcase_add_test(t, started_again_an_empty_tensor_goes_on);
}

static void add_small(TCase *t)
{
	tcase_add_checked_fixture(t, setup_small, teardown);
	tcase_add_test(t, a_full_window_stops_pushes_and_a_result_frees_it);
	tcase_add_test(t, what_finds_no_room_is_offered);
	tcase_add_test(t, room_for_an_asked_one_is_taken_from_the_least_urgent);
	tcase_add_test(t, what_the_server_holds_is_not_taken_back_again);
	tcase_add_test(t, a_held_from_before_the_cancel_is_not_its_answer);
	tcase_add_test(t, a_cancel_without_an_answer_is_said_again);
	tcase_add_test(t, what_is_pushed_again_goes_before_an_asked_one_without_room);
	tcase_add_test(t, an_ask_that_answered_a_probe_protects_nothing);
}

int main(void)
{
	Suite *s = suite_create("agent_core");
	TCase *wide = tcase_create("wide window"), *small = tcase_create("small window");
	TCase *alone = tcase_create("one machine");
	SRunner *r = srunner_create(s);
	int failed;

	add_wide(wide);
	add_small(small);
	tcase_add_checked_fixture(alone, setup_alone, teardown);
	tcase_add_test(alone, one_machine_alone_sums_by_itself_within_its_budget);
	suite_add_tcase(s, wide);
	suite_add_tcase(s, small);
	suite_add_tcase(s, alone);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
