// SPDX-License-Identifier: Apache-2.0
/*
 * Results that are sent again.  A card writes to the slot that the frame names, whatever the
 * agent has there by now: its segment may be another server's, two rounds on.  So a card
 * writes a round's result once, while its agent waits for it; a repetition names no
 * slot, so that it goes over the link's stream, where the agent places it or does not.  Nor does
 * a server on the agent's machine write it a second time where it has told that it lies.
 */
#include "tests/unit/server_rig.h"
#include "tests/unit/rig_main.h"

/* A question that was late on its link, when the chunk has gone to another server. */
START_TEST(who_asks_again_is_not_written_to_by_card)
{
	const bool chunk_0[2] = { true, false };
	struct srv_send s;

	whole_round(1);
	srv_tensor_leave(&core, tensor, chunk_0);
	probe_hurt(0, 1);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_RESULT);
	ck_assert_uint_eq(s.frame.slot, SLOT_NONE);
	srv_sent(&core, s.in);
}
END_TEST

/* Else the agent would go on by the second one, and the first be written later. */
START_TEST(it_is_not_sent_again_while_the_first_is_on_its_way)
{
	struct srv_send first, s;

	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1 << w));
	ck_assert(srv_next(&core, &peer[0], false, &first));
	ck_assert_uint_eq(first.frame.slot, 100);
	probe_hurt(0, 1);
	ck_assert(!srv_next(&core, &peer[0], false, &s));
	srv_sent(&core, first.in);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_RESULT);
	ck_assert_uint_eq(s.frame.slot, SLOT_NONE);
	srv_sent(&core, s.in);
}
END_TEST

/* ---- by reference ---- */

static uint8_t *place[N];

static void places(void)
{
	for (uint32_t w = 0; w < N; w++)
		place[w] = calloc(1, SEG);
}

static void places_end(void)
{
	for (uint32_t w = 0; w < N; w++)
		free(place[w]);
}

/* It is told that its result lies in its place; when it has gone on it is asked about that. */
static void late_cancel(uint32_t w)
{
	struct frame cancel = frame(FRAME_CANCEL, w, 1);
	struct srv_send s;
	int32_t v;

	ck_assert(srv_next(&core, &peer[w], true, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_RESULT);
	memcpy(&v, place[w], 4);
	ck_assert_int_eq(v, 7);
	fill(place[w], 99);		/* of round 3, by another server */
	srv_frame(&core, &peer[w], &cancel, NULL, place[w]);
	memcpy(&v, place[w], 4);
	ck_assert_int_eq(v, 99);
}

START_TEST(by_reference_a_late_question_does_not_bring_an_old_result_back)
{
	int32_t input[N][SEG / 4];

	places();
	for (uint32_t w = 0; w < N; w++) {
		struct frame f = frame(FRAME_PUSH, w, 1);

		f.flags = FRAME_BYREF;
		fill(input[w], 1 << w);
		srv_frame(&core, &peer[w], &f, input[w], place[w]);
	}
	for (uint32_t w = N; w--;)	/* the first one's is copied for the others */
		late_cancel(w);
	places_end();
}
END_TEST

START_TEST(by_reference_nor_does_one_about_a_result_that_was_given)
{
	struct frame probe = frame(FRAME_PROBE, 1, 1), give = frame(FRAME_GIVE, 0, 1);
	int32_t result[SEG / 4];

	places();
	tensor->seg[0].young = true;
	srv_frame(&core, &peer[1], &probe, NULL, place[1]);
	give.dtype = DTYPE_I32;
	give.rop = ROP_SUM;
	give.length = SEG;
	give.flags = FRAME_BYREF;
	fill(result, 7);
	srv_frame(&core, &peer[0], &give, result, NULL);
	ck_assert_uint_eq(core.count.given, 1);
	srv_frame(&core, &peer[1], &probe, NULL, place[1]);
	late_cancel(1);
	places_end();
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, by_reference_a_late_question_does_not_bring_an_old_result_back);
	tcase_add_test(t, by_reference_nor_does_one_about_a_result_that_was_given);
	tcase_add_test(t, who_asks_again_is_not_written_to_by_card);
	tcase_add_test(t, it_is_not_sent_again_while_the_first_is_on_its_way);
}

int main(void)
{
	return rig_main("server_again", add);
}
