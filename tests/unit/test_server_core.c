// SPDX-License-Identifier: Apache-2.0
/* server_core.c: what a contribution, a question, a loss and a lie do to a segment. */
#include "tests/unit/server_rig.h"

/* ---- contributions ---- */

START_TEST(the_last_contribution_completes_for_everybody)
{
	ck_assert(push(2, 1, 4));
	ck_assert(push(0, 1, 1));
	expect_silence();
	ck_assert(push(1, 1, 2));
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 7);
	expect_silence();
	ck_assert_uint_eq(job->worker[0].parked_bytes, 0);
}
END_TEST

START_TEST(a_duplicate_push_counts_once)
{
	ck_assert(push(0, 1, 1));
	ck_assert(!push(0, 1, 1));
	ck_assert(push(1, 1, 2));
	ck_assert(!push(0, 1, 1));
	ck_assert(push(2, 1, 4));
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
	ck_assert_uint_eq(core.count.duplicates, 2);
	ck_assert_uint_eq(core.count.pushes, 3);
}
END_TEST

/* Its agent was started again, and may use the window as it likes. */
static void anew(uint32_t w)
{
	srv_peer_lost(&core, &peer[w]);
	srv_peer_anew(&core, &peer[w]);
	srv_check(&core);
	ck_assert_uint_eq(job->worker[w].parked_bytes, 0);
}

START_TEST(an_agent_started_again_contributes_again)
{
	say(FRAME_OFFER, 2, 1);
	ck_assert(push(0, 1, 1));
	ck_assert(push(1, 1, 2));
	anew(0);
	anew(2);
	ck_assert_uint_eq(core.count.let_go, 1);
	ck_assert(push(0, 1, 1));
	ck_assert(push(2, 1, 4));
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 7);
	anew(0);
	ck_assert(!push(0, 1, 99));			/* its round is done */
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
	whole_round(2);
}
END_TEST

/* Who was told that it is asked for does not take it back: it would fill a window for ever. */
START_TEST(an_ask_outlives_an_agent_that_starts_again)
{
	for (uint32_t w = 0; w < N; w++)
		say(FRAME_OFFER, w, 1);
	for (uint32_t w = 0; w < N; w++)
		(void)expect(w, FRAME_ASK, 1);
	ck_assert(push(0, 1, 1));
	ck_assert(push(2, 1, 4));
	say(FRAME_CANCEL, 0, 1);
	(void)expect(0, FRAME_HELD, 1);
	anew(1);
	ck_assert_uint_gt(job->asked_bytes, 0);
	expect_silence();
	say(FRAME_OFFER, 1, 1);
	(void)expect(1, FRAME_ASK, 1);
	ck_assert(push(1, 1, 2));
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 7);
	ck_assert_uint_eq(job->asked_bytes, 0);
}
END_TEST

START_TEST(a_push_that_is_landing_is_not_placed_again)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	void *at = srv_place(&core, &peer[0], &f);

	ck_assert_ptr_eq(at, window[0]);
	ck_assert_ptr_null(srv_place(&core, &peer[0], &f));
	srv_frame(&core, &peer[0], &f, at, NULL);
	ck_assert_uint_eq(core.count.duplicates, 1);
}
END_TEST

START_TEST(a_landing_that_breaks_can_be_pushed_again)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);

	fill(srv_place(&core, &peer[0], &f), 99);
	srv_unplace(&core, &peer[0], &f);
	ck_assert_uint_eq(srv_job_borrowed(job), 0);
	whole_round(1);
}
END_TEST

START_TEST(a_lost_result_is_sent_again_to_who_asks)
{
	whole_round(1);
	probe_hurt(1, 1);
	ck_assert_int_eq(expect(1, FRAME_RESULT, 1), 7);
	ck_assert(!push(2, 1, 55));
	ck_assert_int_eq(expect(2, FRAME_RESULT, 1), 7);
	say(FRAME_OFFER, 0, 1);
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
	say(FRAME_CANCEL, 0, 1);
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
	ck_assert_uint_eq(core.count.resends, 4);
	expect_silence();
}
END_TEST

/* Links that live deliver: it is on its way, until it has been asked after for long. */
START_TEST(a_result_on_its_way_is_sent_again_after_some_patience)
{
	whole_round(1);
	for (uint32_t again = 0; again < 2; again++) {
		for (uint32_t n = 1; n < SRV_PATIENCE; n++) {
			say(FRAME_PROBE, 1, 1);
			expect_silence();
		}
		say(FRAME_PROBE, 1, 1);
		ck_assert_int_eq(expect(1, FRAME_RESULT, 1), 7);
	}
	ck_assert_uint_eq(core.count.resends, 2);
}
END_TEST

START_TEST(the_result_stays_until_all_have_gone_on)
{
	whole_round(1);
	ck_assert(push(0, 2, 10));
	ck_assert(push(1, 2, 10));
	probe_hurt(2, 1);
	ck_assert_int_eq(expect(2, FRAME_RESULT, 1), 7);
	ck_assert(push(2, 2, 10));
	ck_assert_int_eq(expect(0, FRAME_RESULT, 2), 30);
}
END_TEST

/* So that a shell can serve first whom a full card kept waiting. */
START_TEST(the_agent_that_waited_longest_is_known)
{
	struct frame second = frame(FRAME_PUSH, 0, 1);

	second.offset = SEG;
	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1));
	for (uint32_t w = 0; w < N; w++) {
		second.worker = (uint16_t)w;
		ck_assert(push_frame(&second, 1));
	}
	ck_assert_uint_eq(srv_due(&peer[0]).turn, srv_due(&peer[1]).turn);
	expect(0, FRAME_RESULT, 1);
	ck_assert_uint_lt(srv_due(&peer[1]).turn, srv_due(&peer[0]).turn);
	expect(0, FRAME_RESULT, 1);
	ck_assert_uint_eq(srv_due(&peer[0]).turn, SRV_NOTHING);
	say(FRAME_PROBE, 0, 2);
	ck_assert_uint_eq(srv_due(&peer[0]).turn, 0);	/* an answer without payload */
}
END_TEST

START_TEST(mean_divides_by_the_ranks)
{
	for (uint32_t w = 0; w < N; w++) {
		struct frame f = frame(FRAME_PUSH, w, 1);

		f.rop = ROP_MEAN;
		ck_assert(push_frame(&f, 10));
	}
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 10);
}
END_TEST

START_TEST(broadcast_takes_the_one_that_has_data)
{
	for (uint32_t w = 0; w < N; w++) {
		struct frame f = frame(FRAME_PUSH, w, 1);

		f.rop = ROP_BROADCAST;
		if (w == 1) {
			ck_assert(push_frame(&f, 42));
			continue;
		}
		f.flags = FRAME_NODATA;
		f.length = 0;
		srv_frame(&core, &peer[w], &f, NULL, NULL);
	}
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 42);
}
END_TEST

START_TEST(two_roots_of_a_broadcast_fail_the_round)
{
	for (uint32_t w = 0; w < N; w++) {
		struct frame f = frame(FRAME_PUSH, w, 1);

		f.rop = ROP_BROADCAST;
		ck_assert(push_frame(&f, 42));
	}
	for (uint32_t w = 0; w < N; w++)
		expect(w, FRAME_REFUSED, 1);
}
END_TEST

/* One machine has data, and it is not the root that another one waits for. */
START_TEST(another_root_of_a_broadcast_fails_the_round)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	struct srv_send s;

	f.rop = ROP_BROADCAST;
	f.aux = 3;
	ck_assert(push_frame(&f, 42));
	for (uint32_t w = 1; w < N; w++) {
		f.worker = (uint16_t)w;
		f.flags = FRAME_NODATA;
		f.length = 0;
		f.aux = w == 1 ? 3 : 4;
		srv_frame(&core, &peer[w], &f, NULL, NULL);
	}
	for (uint32_t w = 0; w < N; w++) {
		ck_assert(srv_next(&core, &peer[w], false, &s));
		ck_assert_uint_eq(s.frame.type, FRAME_REFUSED);
		ck_assert_uint_eq(s.frame.slot, SIDE(0, ROP_BROADCAST, 3));
		ck_assert_uint_eq(s.frame.rslot, SIDE(2, ROP_BROADCAST, 4));
	}
}
END_TEST

START_TEST(ranks_that_disagree_fail_the_round_for_all)
{
	struct frame f = frame(FRAME_PUSH, 1, 1);
	struct srv_send s;

	f.rop = ROP_MEAN;
	ck_assert(push(0, 1, 1));
	ck_assert(push_frame(&f, 2));
	for (uint32_t w = 0; w < N; w++) {
		ck_assert(srv_next(&core, &peer[w], false, &s) || w == 2);
		if (w < 2) {
			ck_assert_uint_eq(s.frame.type, FRAME_REFUSED);
			ck_assert_uint_eq(s.frame.aux, (uint32_t)-TALLY_EMISMATCH);
			ck_assert_uint_eq(s.frame.slot, SIDE(0, ROP_SUM, 0));
			ck_assert_uint_eq(s.frame.rslot, SIDE(1, ROP_MEAN, 0));
		}
	}
	ck_assert(!push(2, 1, 4));	/* late: is told as well */
	expect(2, FRAME_REFUSED, 1);
	ck_assert_uint_eq(core.count.rounds, 0);
}
END_TEST

START_TEST(a_landing_that_meets_a_failed_round_is_told)
{
	struct frame f = frame(FRAME_PUSH, 2, 1), g = frame(FRAME_PUSH, 1, 1);
	void *at = srv_place(&core, &peer[2], &f);

	g.rop = ROP_MEAN;
	ck_assert(push(0, 1, 1));
	ck_assert(push_frame(&g, 2));
	srv_frame(&core, &peer[2], &f, at, NULL);
	srv_check(&core);
	expect(2, FRAME_REFUSED, 1);
	ck_assert_uint_eq(job->worker[2].parked_bytes, 0);
}
END_TEST

START_TEST(by_reference_the_result_is_written_where_the_agent_wants_it)
{
	uint8_t *input = malloc(SEG), *result = malloc(SEG);
	struct frame f = frame(FRAME_PUSH, 0, 1);
	struct srv_send s;
	int32_t v;

	f.flags = FRAME_BYREF;
	fill(input, 1);
	srv_frame(&core, &peer[0], &f, input, result);
	ck_assert_uint_eq(job->worker[0].parked_bytes, 0);
	ck_assert(push(1, 1, 2) && push(2, 1, 4));
	memcpy(&v, result, 4);
	ck_assert_int_eq(v, 7);
	ck_assert(srv_next(&core, &peer[0], true, &s));
	ck_assert_uint_eq(s.frame.flags, FRAME_BYREF);
	ck_assert_ptr_null(s.data);
	ck_assert_int_eq(expect(1, FRAME_RESULT, 1), 7);
	free(input);
	free(result);
}
END_TEST

/* Agents of one machine, each with memory of its own. */
START_TEST(by_reference_each_agent_has_the_result_in_its_own_memory)
{
	uint8_t *input = malloc(SEG), *result[2] = { malloc(SEG), malloc(SEG) };
	struct frame f = frame(FRAME_PUSH, 0, 1);
	int32_t v;

	f.flags = FRAME_BYREF;
	fill(input, 1);
	for (f.worker = 0; f.worker < 2; f.worker++) {
		fill(result[f.worker], 0);
		srv_frame(&core, &peer[f.worker], &f, input, result[f.worker]);
	}
	ck_assert(push(2, 1, 4));
	for (uint32_t w = 0; w < 2; w++) {
		memcpy(&v, result[w] + SEG - 4, 4);
		ck_assert_int_eq(v, 6);
		free(result[w]);
	}
	free(input);
}
END_TEST

/* ---- what must not count ---- */

START_TEST(frames_from_another_time_or_place_are_counted_and_dropped)
{
	struct srv_counters *n = &core.count;
	struct frame f;
	struct srv_send s;

#define DROPPED(counter, change) do { \
		f = frame(FRAME_PUSH, 0, 1); \
		change; \
		ck_assert_ptr_null(srv_place(&core, &peer[0], &f)); \
		ck_assert_uint_eq(n->counter, 1); \
		n->counter = 0; \
	} while (0)
	DROPPED(drop_round, f.round = 2);
	DROPPED(drop_round, f.round = 0);
	DROPPED(drop_round, f.round = UINT32_MAX);
	DROPPED(drop_epoch, f.epoch--);
	DROPPED(drop_worker, f.worker = 1);
	DROPPED(drop_worker, f.worker = N);
	DROPPED(drop_job, f.job++);
	DROPPED(drop_tensor, f.tensor++);
	DROPPED(drop_tensor, f.chunk = 1);	/* another server's */
	DROPPED(drop_tensor, f.chunk = 2);
	DROPPED(drop_tensor, f.chunk = UINT32_MAX);
	DROPPED(drop_tensor, f.offset = 4);
	DROPPED(drop_tensor, f.offset = 2 * SEG);
	DROPPED(drop_shape, f.dtype = DTYPE_F32);
	DROPPED(drop_shape, f.rop = ROP_NONE);
	DROPPED(drop_shape, f.length = SEG - 4);
	DROPPED(drop_shape, f.slot = 8);
	DROPPED(drop_shape, f.slot = WINDOW);
	DROPPED(drop_shape, f.slot = SLOT_NONE);
	DROPPED(drop_shape, (f.flags = FRAME_NODATA, f.length = 0));
#undef DROPPED
	while (srv_next(&core, &peer[0], false, &s))
		ck_assert_uint_eq(s.frame.type, FRAME_REFUSED);
	ck_assert_uint_eq(n->pushes, 0);
	whole_round(1);
}
END_TEST

START_TEST(a_server_never_takes_a_frame_that_servers_send)
{
	static const uint8_t types[] = { FRAME_RESULT, FRAME_HELD, FRAME_ASK, FRAME_CANCELLED,
					 FRAME_REFUSED };

	say(types[_i], 0, 1);
	ck_assert_uint_eq(core.count.drop_shape, 1);
	expect_silence();
}
END_TEST

START_TEST(a_refusal_names_the_code_and_the_epoch)
{
	struct frame f = frame(FRAME_PROBE, 0, 1);
	struct srv_send s;

	f.epoch--;
	srv_frame(&core, &peer[0], &f, NULL, NULL);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_REFUSED);
	ck_assert_uint_eq(s.frame.aux, (uint32_t)-TALLY_EBUSY);
	ck_assert_uint_eq(s.frame.epoch, EPOCH);
}
END_TEST

START_TEST(refusals_have_a_limit)
{
	struct frame f = frame(FRAME_PROBE, 0, 1);
	struct srv_send s;
	uint32_t n = 0;

	f.job++;
	for (uint32_t i = 0; i < SRV_REFUSALS + 5; i++)
		srv_frame(&core, &peer[0], &f, NULL, NULL);
	ck_assert_uint_eq(core.count.refusals_lost, 5);
	while (srv_next(&core, &peer[0], false, &s))
		n++;
	ck_assert_uint_eq(n, SRV_REFUSALS);
}
END_TEST

/* ---- questions ---- */

START_TEST(a_probe_is_answered_by_what_became_of_it)
{
	struct srv_send s;

	say(FRAME_PROBE, 0, 1);
	expect(0, FRAME_ASK, 1);	/* never came */
	ck_assert(push(0, 1, 1));
	say(FRAME_PROBE, 0, 1);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_HELD);
	ck_assert_uint_eq(s.frame.aux, 1);	/* worker 1 is missing */
	ck_assert_uint_eq(s.frame.slot, 0);
}
END_TEST

START_TEST(who_has_offered_is_not_missing_before_who_has_not)
{
	struct srv_send s;

	ck_assert(push(0, 1, 1));
	say(FRAME_OFFER, 1, 1);
	say(FRAME_PROBE, 0, 1);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_HELD);
	ck_assert_uint_eq(s.frame.aux, 2);
}
END_TEST

START_TEST(a_peer_lost_is_sent_nothing_and_asks_again)
{
	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1 << w));
	srv_peer_lost(&core, &peer[1]);
	ck_assert(!srv_first(&peer[1]));
	srv_check(&core);
	ck_assert(!push(1, 1, 2));
	ck_assert_int_eq(expect(1, FRAME_RESULT, 1), 7);
}
END_TEST

START_TEST(what_all_have_is_asked_for)
{
	ck_assert(push(0, 1, 1));
	say(FRAME_OFFER, 1, 1);
	expect_silence();
	say(FRAME_OFFER, 2, 1);
	expect(1, FRAME_ASK, 1);
	expect(2, FRAME_ASK, 1);
	expect_silence();
	say(FRAME_OFFER, 2, 1);		/* the ASK may have been lost */
	expect(2, FRAME_ASK, 1);
}
END_TEST

START_TEST(asked_segments_fit_the_window_together)
{
	struct frame f[2][N];
	uint32_t asks = 0;
	struct srv_send s;

	job->ask_limit = SEG;	/* as if the window took one */
	for (uint32_t k = 0; k < 2; k++)
		for (uint32_t w = 0; w < N; w++) {
			f[k][w] = frame(FRAME_OFFER, w, 1);
			f[k][w].offset = k * SEG;
			srv_frame(&core, &peer[w], &f[k][w], NULL, NULL);
			srv_check(&core);
		}
	for (uint32_t w = 0; w < N; w++)
		while (srv_next(&core, &peer[w], false, &s)) {
			ck_assert_uint_eq(s.frame.type, FRAME_ASK);
			ck_assert_uint_eq(s.frame.offset, 0);
			asks++;
		}
	ck_assert_uint_eq(asks, N);
	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1));
	for (uint32_t w = 0; w < N; w++) {
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), N);
		ck_assert(srv_next(&core, &peer[w], false, &s));
		ck_assert_uint_eq(s.frame.type, FRAME_ASK);
		ck_assert_uint_eq(s.frame.offset, SEG);
	}
}
END_TEST

/* It waited for its turn to be asked for, which it is not any more: it is not all there. */
START_TEST(what_is_taken_back_is_not_asked_for_when_there_is_room)
{
	struct frame offer = frame(FRAME_OFFER, 0, 1);
	struct srv_send s;

	job->ask_limit = SEG;
	for (uint32_t w = 0; w < N; w++)
		say(FRAME_OFFER, w, 1);
	offer.offset = SEG;
	for (offer.worker = 0; offer.worker < N; offer.worker++)
		srv_frame(&core, &peer[offer.worker], &offer, NULL, NULL);
	offer = frame(FRAME_CANCEL, 2, 1);
	offer.offset = SEG;
	srv_frame(&core, &peer[2], &offer, NULL, NULL);
	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1));
	for (uint32_t w = 0; w < N; w++)
		while (srv_next(&core, &peer[w], false, &s)) {
			ck_assert_uint_ne(s.frame.type, FRAME_ASK);
			if (s.in)
				srv_sent(&core, s.in);
		}
}
END_TEST

/* Agents push it to its next server. */
START_TEST(what_leaves_is_not_asked_for)
{
	const bool chunk_0[2] = { true, false };

	ck_assert(push(0, 1, 1));
	srv_tensor_leave(&core, tensor, chunk_0);
	say(FRAME_OFFER, 1, 1);
	say(FRAME_OFFER, 2, 1);
	expect_silence();
	say(FRAME_CANCEL, 0, 1);
	expect(0, FRAME_CANCELLED, 1);
}
END_TEST

START_TEST(a_cancelled_contribution_is_out_and_may_come_again)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	struct srv_send s;

	ck_assert(push(0, 1, 1));
	say_attempt(FRAME_CANCEL, 0, 1, 0);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_CANCELLED);
	ck_assert_uint_eq(s.frame.attempt, 0);
	ck_assert_uint_eq(job->worker[0].parked_bytes, 0);
	ck_assert(!push_frame(&f, 99));		/* the first push once more */
	ck_assert_uint_eq(core.count.drop_attempt, 1);
	say_attempt(FRAME_CANCEL, 0, 1, 0);	/* CANCELLED was lost */
	expect(0, FRAME_CANCELLED, 1);
	f.attempt = 1;
	ck_assert(push_frame(&f, 1));
	ck_assert(push(1, 1, 2) && push(2, 1, 4));
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
}
END_TEST

START_TEST(a_cancel_before_its_push_turns_the_push_away)
{
	say_attempt(FRAME_CANCEL, 0, 1, 0);
	expect(0, FRAME_CANCELLED, 1);
	ck_assert(!push(0, 1, 99));
	ck_assert_uint_eq(core.count.drop_attempt, 1);
}
END_TEST

START_TEST(a_cancel_of_what_is_asked_for_is_held)
{
	struct srv_send s;

	ck_assert(push(0, 1, 1));
	say(FRAME_OFFER, 1, 1);
	say(FRAME_OFFER, 2, 1);
	say_attempt(FRAME_CANCEL, 0, 1, 0);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_HELD);
	ck_assert_uint_eq(s.frame.slot, HELD_ASKED);
	ck_assert_uint_eq(core.count.cancels, 0);
}
END_TEST

/* It has overtaken its PUSH on another rail, and is answered as if it had not. */
START_TEST(a_cancel_while_it_lands_waits)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	void *at = srv_place(&core, &peer[0], &f);

	say_attempt(FRAME_CANCEL, 0, 1, 0);
	expect_silence();
	srv_frame(&core, &peer[0], &f, at, NULL);
	expect(0, FRAME_CANCELLED, 1);
	expect_silence();
	ck_assert_uint_eq(job->worker[0].parked_bytes, 0);
	ck_assert(!push_frame(&f, 99));		/* the first push once more */
	f.attempt = 1;
	ck_assert(push_frame(&f, 1));
	expect_silence();
	ck_assert(push(1, 1, 2) && push(2, 1, 4));
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
}
END_TEST

START_TEST(a_cancel_while_the_last_one_lands_hears_the_result)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	void *at;

	ck_assert(push(1, 1, 2) && push(2, 1, 4));
	at = srv_place(&core, &peer[0], &f);
	say_attempt(FRAME_CANCEL, 0, 1, 0);
	fill(at, 1);
	srv_frame(&core, &peer[0], &f, at, NULL);
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 7);
	expect_silence();
}
END_TEST

START_TEST(a_cancel_while_what_is_asked_for_lands_is_held)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	void *at;

	for (uint32_t w = 0; w < N; w++)
		say(FRAME_OFFER, w, 1);
	for (uint32_t w = 0; w < N; w++)
		expect(w, FRAME_ASK, 1);
	at = srv_place(&core, &peer[0], &f);
	say_attempt(FRAME_CANCEL, 0, 1, 0);
	srv_frame(&core, &peer[0], &f, at, NULL);
	expect(0, FRAME_HELD, 1);
	ck_assert_uint_eq(core.count.cancels, 0);
}
END_TEST

START_TEST(a_cancel_is_forgotten_with_the_landing_that_breaks)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);

	ck_assert_ptr_nonnull(srv_place(&core, &peer[0], &f));
	say_attempt(FRAME_CANCEL, 0, 1, 0);
	srv_unplace(&core, &peer[0], &f);
	expect_silence();
	ck_assert(push(0, 1, 1));
	expect_silence();
	ck_assert(push(1, 1, 2) && push(2, 1, 4));
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
}
END_TEST

/* ---- ends ---- */

START_TEST(a_landing_outlives_its_tensor)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	void *at = srv_place(&core, &peer[0], &f);

	srv_tensor_remove(&core, tensor);
	ck_assert_uint_eq(srv_job_borrowed(job), 1);
	srv_frame(&core, &peer[0], &f, at, NULL);
	ck_assert_uint_eq(srv_job_borrowed(job), 0);
	expect_silence();
}
END_TEST

/* Sent again because an agent asked, and the first copy had arrived after all. */
START_TEST(a_sum_waits_for_the_last_rounds_result_to_be_read)
{
	struct srv_send s;

	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1 << w));
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), (1 << N) - 1);
	probe_hurt(0, 1);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 2, 1));
	expect_silence();
	ck_assert_int_eq(*(const int32_t *)s.data, (1 << N) - 1);
	srv_sent(&core, s.in);
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 2), N);
}
END_TEST

START_TEST(a_result_being_sent_holds_the_memory_of_its_tensor)
{
	struct srv_send s;

	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1 << w));
	ck_assert(srv_next(&core, &peer[0], false, &s));
	srv_job_stop(&core, job);
	ck_assert_uint_eq(tensor->borrowed, 1);
	ck_assert_uint_eq(srv_job_borrowed(job), 1);
	srv_sent(&core, s.in);
	ck_assert_uint_eq(tensor->borrowed, 0);
	ck_assert(!push(0, 2, 1));
	ck_assert_uint_eq(core.count.drop_job, 1);
}
END_TEST

/* The next epoch may be heard of before what the last one took away has been let go of. */
START_TEST(the_end_of_an_epoch_is_not_the_end_of_what_the_next_one_takes_away)
{
	const bool chunk_0[2] = { true, false };

	srv_tensor_settled(&core, tensor);
	srv_tensor_leave(&core, tensor, chunk_0);
	ck_assert(push(0, 1, 1));
	ck_assert(push(1, 1, 2));
	ck_assert(srv_tensor_left(&core, tensor));
	ck_assert(!srv_tensor_empty(tensor));
	ck_assert(push(2, 1, 4));
	for (uint32_t w = 0; w < N; w++)
		ck_assert_int_eq(expect(w, FRAME_RESULT, 1), 7);
	srv_tensor_settled(&core, tensor);
	ck_assert(srv_tensor_left(&core, tensor));
	ck_assert(srv_tensor_empty(tensor));
	ck_assert(!push(0, 2, 1));
	srv_tensor_remove(&core, tensor);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server_core");
	TCase *t = tcase_create("server_core");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_last_contribution_completes_for_everybody);
	tcase_add_test(t, a_duplicate_push_counts_once);
	tcase_add_test(t, an_agent_started_again_contributes_again);
	tcase_add_test(t, an_ask_outlives_an_agent_that_starts_again);
	tcase_add_test(t, a_push_that_is_landing_is_not_placed_again);
	tcase_add_test(t, a_landing_that_breaks_can_be_pushed_again);
	tcase_add_test(t, a_lost_result_is_sent_again_to_who_asks);
	tcase_add_test(t, a_result_on_its_way_is_sent_again_after_some_patience);
	tcase_add_test(t, the_result_stays_until_all_have_gone_on);
	tcase_add_test(t, the_agent_that_waited_longest_is_known);
	tcase_add_test(t, mean_divides_by_the_ranks);
	tcase_add_test(t, broadcast_takes_the_one_that_has_data);
	tcase_add_test(t, two_roots_of_a_broadcast_fail_the_round);
	tcase_add_test(t, another_root_of_a_broadcast_fails_the_round);
	tcase_add_test(t, ranks_that_disagree_fail_the_round_for_all);
	tcase_add_test(t, a_landing_that_meets_a_failed_round_is_told);
	tcase_add_test(t, by_reference_the_result_is_written_where_the_agent_wants_it);
	tcase_add_test(t, by_reference_each_agent_has_the_result_in_its_own_memory);
	tcase_add_test(t, frames_from_another_time_or_place_are_counted_and_dropped);
	tcase_add_loop_test(t, a_server_never_takes_a_frame_that_servers_send, 0, 5);
	tcase_add_test(t, a_refusal_names_the_code_and_the_epoch);
	tcase_add_test(t, refusals_have_a_limit);
	tcase_add_test(t, a_probe_is_answered_by_what_became_of_it);
	tcase_add_test(t, who_has_offered_is_not_missing_before_who_has_not);
	tcase_add_test(t, a_peer_lost_is_sent_nothing_and_asks_again);
	tcase_add_test(t, what_all_have_is_asked_for);
	tcase_add_test(t, asked_segments_fit_the_window_together);
	tcase_add_test(t, what_is_taken_back_is_not_asked_for_when_there_is_room);
	tcase_add_test(t, what_leaves_is_not_asked_for);
	tcase_add_test(t, a_cancelled_contribution_is_out_and_may_come_again);
	tcase_add_test(t, a_cancel_before_its_push_turns_the_push_away);
	tcase_add_test(t, a_cancel_of_what_is_asked_for_is_held);
	tcase_add_test(t, a_cancel_while_it_lands_waits);
	tcase_add_test(t, a_cancel_while_the_last_one_lands_hears_the_result);
	tcase_add_test(t, a_cancel_while_what_is_asked_for_lands_is_held);
	tcase_add_test(t, a_cancel_is_forgotten_with_the_landing_that_breaks);
	tcase_add_test(t, a_landing_outlives_its_tensor);
	tcase_add_test(t, a_sum_waits_for_the_last_rounds_result_to_be_read);
	tcase_add_test(t, a_result_being_sent_holds_the_memory_of_its_tensor);
	tcase_add_test(t, the_end_of_an_epoch_is_not_the_end_of_what_the_next_one_takes_away);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
