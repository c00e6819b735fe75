// SPDX-License-Identifier: Apache-2.0
/*
 * An agent that was started again: nothing that its first process said counts for the second
 * one, and the memory of the first can be let go of.
 */
#include "tests/unit/server_rig.h"
#include "tests/unit/rig_main.h"

static void anew(uint32_t w)
{
	srv_peer_lost(&core, &peer[w]);
	srv_peer_anew(&core, &peer[w]);
	srv_check(&core);
}

/* Attempts begin anew with a process. */
START_TEST(what_its_first_process_took_back_the_second_one_pushes)
{
	ck_assert(push(0, 1, 1));
	say(FRAME_CANCEL, 0, 1);
	expect(0, FRAME_CANCELLED, 1);
	anew(0);
	ck_assert(push(0, 1, 1));
	ck_assert_uint_eq(core.count.drop_attempt, 0);
}
END_TEST

START_TEST(a_result_that_its_first_process_was_sent_is_sent_at_once)
{
	whole_round(1);
	anew(0);
	say(FRAME_PROBE, 0, 1);
	ck_assert_int_eq(expect(0, FRAME_RESULT, 1), 7);
}
END_TEST

/* It waited for its turn to be asked for, and is not all there now. */
START_TEST(what_its_first_process_offered_is_not_asked_of_others)
{
	struct frame offer = frame(FRAME_OFFER, 0, 1);
	struct srv_send s;

	job->ask_limit = SEG;
	for (uint32_t w = 0; w < N; w++)
		say(FRAME_OFFER, w, 1);
	offer.offset = SEG;
	for (offer.worker = 0; offer.worker < N; offer.worker++)
		srv_frame(&core, &peer[offer.worker], &offer, NULL, NULL);
	anew(2);
	for (uint32_t w = 0; w < N; w++)
		ck_assert(push(w, 1, 1));
	for (uint32_t w = 0; w < N; w++)
		while (srv_next(&core, &peer[w], false, &s)) {
			ck_assert(s.frame.type != FRAME_ASK || !s.frame.offset);
			if (s.in)
				srv_sent(&core, s.in);
		}
}
END_TEST

/* ---- memory of agents on this machine ---- */

static bool uses(const uint8_t *at)
{
	return srv_job_uses(job, at, SEG);
}

START_TEST(memory_is_in_use_while_an_input_or_a_result_lies_there_or_is_to)
{
	uint8_t *input = malloc(SEG), *result[2] = { malloc(SEG), malloc(SEG) };
	struct frame f = frame(FRAME_PUSH, 0, 1);

	f.flags = FRAME_BYREF;
	fill(input, 1);
	ck_assert(!uses(input) && !uses(result[0]) && !uses(result[1]));
	srv_frame(&core, &peer[0], &f, input, result[0]);
	ck_assert(uses(input) && uses(result[0]));
	f.worker = 1;
	srv_frame(&core, &peer[1], &f, input, result[1]);
	ck_assert(uses(result[1]));
	ck_assert(push(2, 1, 4));
	ck_assert(!uses(input));
	anew(0);
	ck_assert(uses(result[0]));		/* whoever asks has it from there */
	ck_assert_int_eq(expect(2, FRAME_RESULT, 1), 6);
	free(input);
	free(result[0]);
	free(result[1]);
}
END_TEST

START_TEST(memory_of_its_first_process_is_not_in_use)
{
	uint8_t *input = malloc(SEG), *result = malloc(SEG);
	struct frame f = frame(FRAME_PUSH, 0, 1);

	f.flags = FRAME_BYREF;
	fill(input, 1);
	srv_frame(&core, &peer[0], &f, input, result);
	anew(0);
	ck_assert(!uses(input) && !uses(result));
	free(input);
	free(result);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, what_its_first_process_took_back_the_second_one_pushes);
	tcase_add_test(t, a_result_that_its_first_process_was_sent_is_sent_at_once);
	tcase_add_test(t, what_its_first_process_offered_is_not_asked_of_others);
	tcase_add_test(t, memory_is_in_use_while_an_input_or_a_result_lies_there_or_is_to);
	tcase_add_test(t, memory_of_its_first_process_is_not_in_use);
}

int main(void)
{
	return rig_main("server_anew", add);
}
