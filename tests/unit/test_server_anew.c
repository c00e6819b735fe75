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

/* Else what lands over one engine's link would be let go of with the other's. */
START_TEST(a_chunk_of_another_engine_of_its_agent_is_not_taken)
{
	struct frame f = frame(FRAME_PUSH, 0, 1);
	struct srv_peer other;

	job->worker[0].engines = 2;
	peer[0].engine = geom_shard(TENSOR, 0, 2);
	srv_peer_init(&core, &other, NODE, !peer[0].engine);
	ck_assert_ptr_null(srv_place(&core, &other, &f));
	ck_assert_uint_eq(core.count.drop_worker, 1);
	anew(0);
	ck_assert(push(0, 1, 1));
	srv_peer_fini(&other);
}
END_TEST

/* A RESULT is none of what a server gets: what landed of it would never be let go of. */
START_TEST(a_result_from_an_agent_does_not_land)
{
	struct frame f = frame(FRAME_RESULT, 0, 1);

	ck_assert_ptr_null(srv_place(&core, &peer[0], &f));
	ck_assert_uint_eq(core.count.drop_shape, 1);
	anew(0);
	ck_assert(push(0, 1, 1));
}
END_TEST

/* ---- what lands when its chunk leaves ---- */

static struct srv_tensor *two_chunks;
static uint8_t *two_slots;

/* Another tensor, of which the server has both chunks. */
static struct frame two_begin(void)
{
	const bool mine[2] = { true, true };
	struct srv_tensor_desc d = { .id = TENSOR + 1, .dtype = DTYPE_I32, .geom = geom,
				     .mine = mine };
	struct frame f = frame(FRAME_PUSH, 0, 1);
	uint64_t bytes;

	two_chunks = calloc(1, srv_tensor_size(N, &d, &bytes));
	two_slots = malloc(bytes);
	srv_tensor_add(&core, job, two_chunks, two_slots, &d);
	f.tensor = TENSOR + 1;
	return f;
}

/* The other chunk is as good as before. */
static void two_end(struct frame f)
{
	ck_assert(srv_tensor_left(&core, two_chunks));
	ck_assert(!srv_tensor_empty(two_chunks));
	f.chunk = 1;
	for (uint32_t w = 0; w < N; w++) {
		f.worker = (uint16_t)w;
		f.rslot = 100 + w;
		ck_assert(push_frame(&f, 1 << w));
	}
	ck_assert_int_eq(expect(1, FRAME_RESULT, 1), 7);
	srv_tensor_remove(&core, two_chunks);
	srv_tensor_forget(&core, two_chunks);
	free(two_chunks);
	free(two_slots);
}

static void chunk_0_leaves(void)
{
	const bool chunk_0[2] = { true, false };

	srv_tensor_leave(&core, two_chunks, chunk_0);
	srv_tensor_settled(&core, two_chunks);
	(void)srv_tensor_left(&core, two_chunks);
}

/* The server sees the end of its first process's links with the first of the second one. */
START_TEST(what_its_first_process_was_pushing_ends_after_the_chunk_has_left)
{
	struct frame f = two_begin();

	ck_assert_ptr_nonnull(srv_place(&core, &peer[0], &f));
	chunk_0_leaves();
	srv_unplace(&core, &peer[0], &f);
	anew(0);
	two_end(f);
}
END_TEST

START_TEST(what_its_first_process_had_pushed_lands_after_the_chunk_has_left)
{
	struct frame f = two_begin();
	void *at = srv_place(&core, &peer[0], &f);

	ck_assert_ptr_nonnull(at);
	chunk_0_leaves();
	fill(at, 1);
	srv_frame(&core, &peer[0], &f, at, NULL);
	anew(0);
	two_end(f);
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
	tcase_add_test(t, a_chunk_of_another_engine_of_its_agent_is_not_taken);
	tcase_add_test(t, a_result_from_an_agent_does_not_land);
	tcase_add_test(t, what_its_first_process_was_pushing_ends_after_the_chunk_has_left);
	tcase_add_test(t, what_its_first_process_had_pushed_lands_after_the_chunk_has_left);
	tcase_add_test(t, memory_is_in_use_while_an_input_or_a_result_lies_there_or_is_to);
	tcase_add_test(t, memory_of_its_first_process_is_not_in_use);
}

int main(void)
{
	return rig_main("server_anew", add);
}
