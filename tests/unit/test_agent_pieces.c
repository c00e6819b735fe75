// SPDX-License-Identifier: Apache-2.0
/* agent_core.c: rounds whose inputs come by pieces, one of each group of GPUs. */
#include "tests/unit/agent_rig.h"

static _Atomic uint32_t words[2][SEGS];
static uint32_t run[2];			/* chunks of a word, of each rank */

static void open_one(uint32_t k, uint32_t round, uint32_t local, uint8_t groups)
{
	struct ag_post p = {
		.round = round, .local = local, .rop = ROP_SUM, .part = PART_OPEN,
		.groups = groups, .root_local = -1, .length = SEGS * SEG, .run = run[local],
		.base = (const uint8_t *)words[local], .base_slot = SLOT_SLAB(20 + local, 0),
	};

	ag_post(&core, tensor[k], &p, now);
	ag_check(&core);
}

/* Chunks [from, to) for the group, from wherever the rank has put them. */
static void piece(uint32_t k, uint32_t round, uint32_t local, uint8_t group, uint8_t groups,
		  uint32_t from, uint32_t to)
{
	struct ag_post p = {
		.round = round, .local = local, .rop = ROP_SUM, .part = PART_PIECE,
		.group = group, .groups = groups, .root_local = -1, .at = from * SEG,
		.length = (uint64_t)(to - from) * SEG, .base = input[k][local],
		.base_slot = SLOT_SLAB(20 + local, 0),
	};

	ag_post(&core, tensor[k], &p, now);
	ag_check(&core);
}

static void setup_words(void)
{
	setup();
	memset(words, 0, sizeof(words));
	run[0] = run[1] = 1;
}

static void setup_words_alone(void)
{
	setup_alone();
	memset(words, 0, sizeof(words));
	run[0] = run[1] = 1;
}

START_TEST(a_chunk_goes_when_all_have_opened_and_its_pieces_are_here)
{
	struct ag_send s;
	int32_t v;

	open_one(0, 1, 0, 2);
	piece(0, 1, 0, 1, 2, 0, SEGS);
	piece(0, 1, 0, 0, 2, 2, 3);
	expect_silence();		/* rank 1 has not opened it */
	open_one(0, 1, 1, 2);
	ck_assert(ag_next(&core, now, &s));
	ck_assert_uint_eq(s.frame.chunk, 2);
	memcpy(&v, s.data, 4);
	ck_assert_int_eq(v, 2);		/* rank 0's values, for both groups */
	ag_sent(&core, &peer, s.seg, s.frame.length, now);
	expect_silence();
	piece(0, 1, 1, 0, 2, 0, 2);
	for (int i = 0; i < 2; i++) {
		ck_assert(ag_next(&core, now, &s));
		memcpy(&v, s.data, 4);
		ck_assert_int_eq(v, 3);
		ag_sent(&core, &peer, s.seg, s.frame.length, now);
	}
	expect_silence();
}
END_TEST

START_TEST(a_single_groups_pieces_are_pushed_from_where_they_lie)
{
	uint32_t of[SEGS] = { 0, 0, 1, 1 };

	open_one(0, 1, 0, 1);
	open_one(0, 1, 1, 1);
	piece(0, 1, 0, 0, 1, 0, 2);
	piece(0, 1, 1, 0, 1, 2, SEGS);
	for (uint32_t i = 0; i < SEGS; i++) {
		uint32_t chunk = taken[i];
		struct ag_send s;

		ck_assert(ag_next(&core, now, &s));
		ck_assert_uint_eq(s.frame.chunk, chunk);
		ck_assert_ptr_eq(s.data, input[0][of[chunk]] + (chunk % 2) * SEG);
		ag_sent(&core, &peer, s.seg, s.frame.length, now);
	}
	ck_assert_uint_eq(core.count.bytes_added, 0);
}
END_TEST

START_TEST(by_reference_a_piece_is_named_in_its_own_slab)
{
	ag_peer_down(&core, &peer);
	ag_peer_up(&core, &peer, true, now);
	open_one(0, 1, 0, 1);
	open_one(0, 1, 1, 1);
	piece(0, 1, 1, 0, 1, 2, SEGS);
	for (int i = 0; i < 2; i++) {
		struct frame f = next();

		ck_assert_uint_eq(f.type, FRAME_PUSH);
		ck_assert_uint_eq(f.slot, SLOT_SLAB(21, (f.chunk - 2) * SEG));
	}
	expect_silence();
}
END_TEST

START_TEST(words_are_told_chunk_by_chunk)
{
	open_one(0, 1, 0, 1);
	open_one(0, 1, 1, 1);
	piece(0, 1, 0, 0, 1, 0, SEGS);
	expect_pushes(0);
	for (uint32_t i = 0; i < SEGS; i++) {
		ck_assert_uint_eq(words[0][taken[i]], 0);
		ck_assert(result_lands(0, i));
		ck_assert_uint_eq(words[0][taken[i]], 1);
		ck_assert_uint_eq(words[1][taken[i]], 1);
	}
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
	post(0, 2, 0);			/* a round of host memory tells nobody */
	expect_pushes(0);
	results(0);
	ck_assert_uint_eq(words[0][0], 1);
}
END_TEST

START_TEST(a_word_counts_the_chunks_of_its_run)
{
	run[1] = 3;
	for (uint32_t round = 1; round <= 2; round++) {
		open_one(0, round, 0, 1);
		open_one(0, round, 1, 1);
		piece(0, round, 0, 0, 1, 0, SEGS);
		expect_pushes(0);
		results(0);
		ck_assert_uint_eq(words[0][2], round);
		ck_assert_uint_eq(words[1][0], 3 * round);
		ck_assert_uint_eq(words[1][1], (SEGS - 3) * round);
		ck_assert_uint_eq(words[1][2], 0);
	}
}
END_TEST

START_TEST(what_is_said_twice_is_dropped)
{
	open_one(0, 1, 0, 1);
	open_one(0, 1, 1, 1);
	piece(0, 1, 0, 0, 1, 0, SEGS);
	piece(0, 1, 1, 0, 1, 1, 3);
	ck_assert_uint_eq(core.count.drop_state, 2);
	expect_pushes(0);
	results(0);
	piece(0, 1, 1, 0, 1, 0, 1);	/* before the next round is open here */
	ck_assert_uint_eq(core.count.drop_state, 3);
	open_one(0, 2, 0, 1);
	piece(0, 1, 1, 0, 1, 0, 1);
	ck_assert_uint_eq(core.count.drop_state, 4);
	open_one(0, 2, 1, 1);
	expect_silence();
	piece(0, 2, 1, 0, 1, 0, SEGS);
	expect_pushes(0);
}
END_TEST

/* A GPU copies the whole of it then. */
START_TEST(a_word_is_told_when_all_segments_of_its_chunk_are_there)
{
	struct ag_tensor_desc d = desc_of(0, false);
	struct ag_tensor *t;
	struct ag_post p = {
		.round = 1, .rop = ROP_MEAN, .part = PART_OPEN, .groups = 1, .root_local = -1,
		.length = 2 * SEG, .base = (const uint8_t *)words[0], .base_slot = SLOT_NONE,
		.run = 1,
	};

	d.id = 9;
	d.geom = (struct geom){ 2 * SEG, 2 * SEG, SEG };
	d.mark[0] = d.mark[1] = NULL;
	t = ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &d)), &d);
	for (p.local = 0; p.local < 2; p.local++)
		ag_post(&core, t, &p, now);
	p.local = 0;
	p.part = PART_PIECE;
	p.base = input[0][0];
	ag_post(&core, t, &p, now);
	ck_assert(ag_work(&core, 1));
	ck_assert_uint_eq(words[0][0], 0);
	ck_assert(!ag_work(&core, 1 << 20));
	ck_assert_uint_eq(words[0][0], 2);	/* both ranks gave this one's words */
	ag_tensor_remove(&core, t);
	ag_tensor_forget(&core, t);
	free(t);
}
END_TEST

START_TEST(alone_groups_are_added_in_their_order)
{
	int32_t v;

	open_one(0, 1, 0, 2);
	open_one(0, 1, 1, 2);
	piece(0, 1, 0, 1, 2, 0, SEGS);
	ck_assert(!ag_work(&core, 1 << 20));
	ck_assert_uint_eq(words[0][0], 0);
	piece(0, 1, 1, 0, 2, 0, SEGS);
	ck_assert(!ag_work(&core, 1 << 20));
	memcpy(&v, result[0][1], 4);
	ck_assert_int_eq(v, 3);
	ck_assert_uint_eq(words[0][0], 1);
	ck_assert_uint_eq(words[1][SEGS - 1], 1);
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
}
END_TEST

START_TEST(alone_one_groups_pieces_are_the_result_where_they_are)
{
	int32_t v;

	open_one(0, 1, 0, 1);
	open_one(0, 1, 1, 1);
	piece(0, 1, 0, 0, 1, 0, 2);
	piece(0, 1, 1, 0, 1, 2, SEGS);
	ck_assert(!ag_work(&core, 1 << 20));
	ck_assert_uint_eq(core.count.bytes_added, 0);
	ck_assert_uint_eq(words[0][0], 1);
	ck_assert_uint_eq(words[0][SEGS - 1], 1);
	memcpy(&v, input[0][1], 4);
	ck_assert_int_eq(v, 2);
	memcpy(&v, result[0][1], 4);
	ck_assert_int_eq(v, 0);
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
}
END_TEST

/* What a group has added up is divided by the ranks, not by the groups. */
START_TEST(alone_one_groups_mean_is_where_its_input_was)
{
	struct ag_post p = {
		.round = 1, .rop = ROP_MEAN, .part = PART_OPEN, .groups = 1, .root_local = -1,
		.length = SEGS * SEG, .base = (const uint8_t *)words[0], .base_slot = SLOT_NONE,
		.run = SEGS,
	};
	int32_t v;

	for (p.local = 0; p.local < 2; p.local++)
		ag_post(&core, tensor[0], &p, now);
	p.local = 0;
	p.part = PART_PIECE;
	p.base = input[0][1];
	ag_post(&core, tensor[0], &p, now);
	ck_assert(!ag_work(&core, 1 << 20));
	ck_assert_uint_eq(words[0][0], 2 * SEGS);	/* both ranks gave this one's words */
	for (uint32_t at = 0; at < SEGS * SEG; at += 4) {
		memcpy(&v, input[0][1] + at, 4);
		ck_assert_int_eq(v, 1);
	}
}
END_TEST

/* As a process that is started again finds it; was: where a GPU waits for the round in flight. */
static void come_back(uint32_t k, uint32_t round, uint8_t *const *was, uint32_t nwas)
{
	struct ag_tensor_desc d = desc_of(k, false);

	ag_tensor_remove(&core, tensor[k]);
	ag_tensor_forget(&core, tensor[k]);
	free(tensor[k]);
	ck_assert(ag_desc_resume(&d, round));
	d.was = was;
	d.nwas = nwas;
	tensor[k] = ag_tensor_add(&core, job, calloc(1, ag_tensor_size(job, &d)), &d);
}

static void mean_alone(uint32_t round, uint32_t first, uint32_t last)
{
	struct ag_post p = {
		.round = round, .rop = ROP_MEAN, .part = PART_OPEN, .groups = 1, .root_local = -1,
		.length = SEGS * SEG, .base = (const uint8_t *)words[0], .base_slot = SLOT_NONE,
		.run = SEGS,
	};

	for (p.local = 0; p.local < 2; p.local++)
		ag_post(&core, tensor[0], &p, now);
	p.local = 0;
	p.part = PART_PIECE;
	p.at = first * SEG;
	p.length = (uint64_t)(last - first) * SEG;
	p.base = input[0][1] + p.at;
	ag_post(&core, tensor[0], &p, now);
	while (ag_work(&core, 1 << 20))
		;
}

/* Its quotient was marked, and had come to where the input was, or not yet, or in part. */
START_TEST(alone_a_mean_is_divided_once_however_often_its_agent_is_started)
{
	int32_t v;

	mean_alone(1, 0, 2);		/* which makes 1 of 2 */
	ck_assert_uint_eq(words[0][0], 4);
	memset(input[0][1] + SEG, 2, SEG / 2);	/* died here, in the second chunk */
	words[0][0] = 0;
	come_back(0, 0, NULL, 0);
	mean_alone(1, 0, SEGS);
	ck_assert_uint_eq(words[0][0], 2 * SEGS);
	ck_assert_uint_eq(core.count.kept, 2);
	for (uint32_t at = 0; at < SEGS * SEG; at += 4) {
		memcpy(&v, input[0][1] + at, 4);
		ck_assert_int_eq(v, 1);
	}
}
END_TEST

static void one_round(uint32_t round, uint32_t landed)
{
	open_one(0, round, 0, 1);
	open_one(0, round, 1, 1);
	piece(0, round, 0, 0, 1, 0, SEGS);
	while (next().type != FRAME_NONE)
		;
	for (uint32_t i = 0; i < SEGS; i++)
		ck_assert(result_lands(0, i) == (i >= landed));
	ck_assert_ptr_eq(ag_done(&core), tensor[0]);
}

/* Copies to GPUs that were put on their lanes before read there; later ones read the results. */
START_TEST(a_round_in_flight_goes_to_where_gpus_wait_for_it_and_no_round_after_it)
{
	static uint8_t first[SEGS * SEG], second[SEGS * SEG];
	uint8_t *const was[] = { first, second };

	come_back(0, 0, was, 2);
	memset(first, 0, sizeof(first));
	memset(second, 0, sizeof(second));
	one_round(1, 0);
	ck_assert(!memcmp(first, result[0][1], sizeof(first)));
	ck_assert(!memcmp(second, result[0][1], sizeof(second)));
	ck_assert_uint_eq(words[0][0], 1);
	memset(first, 0, sizeof(first));
	for (uint32_t round = 2; round < 5; round++)
		one_round(round, 0);
	ck_assert_uint_eq(first[0], 0);
}
END_TEST

START_TEST(in_host_memory_nobody_waits_where_results_were)
{
	static uint8_t first[SEGS * SEG];
	uint8_t *const was[] = { first };

	come_back(0, 0, was, 1);
	post(0, 1, 0);
	expect_pushes(0);
	results(0);
	ck_assert_uint_eq(first[0], 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_pieces");
	TCase *t = tcase_create("agent_pieces"), *alone = tcase_create("alone");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup_words, teardown);
	tcase_add_test(t, a_chunk_goes_when_all_have_opened_and_its_pieces_are_here);
	tcase_add_test(t, a_single_groups_pieces_are_pushed_from_where_they_lie);
	tcase_add_test(t, by_reference_a_piece_is_named_in_its_own_slab);
	tcase_add_test(t, words_are_told_chunk_by_chunk);
	tcase_add_test(t, a_word_counts_the_chunks_of_its_run);
	tcase_add_test(t, what_is_said_twice_is_dropped);
	tcase_add_test(t, a_round_in_flight_goes_to_where_gpus_wait_for_it_and_no_round_after_it);
	tcase_add_test(t, in_host_memory_nobody_waits_where_results_were);
	tcase_add_checked_fixture(alone, setup_words_alone, teardown);
	tcase_add_test(alone, alone_groups_are_added_in_their_order);
	tcase_add_test(alone, alone_one_groups_pieces_are_the_result_where_they_are);
	tcase_add_test(alone, alone_one_groups_mean_is_where_its_input_was);
	tcase_add_test(alone, alone_a_mean_is_divided_once_however_often_its_agent_is_started);
	tcase_add_test(alone, a_word_is_told_when_all_segments_of_its_chunk_are_there);
	suite_add_tcase(s, t);
	suite_add_tcase(s, alone);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
