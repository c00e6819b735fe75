// SPDX-License-Identifier: Apache-2.0
/* agent_front.c: rounds of local ranks; what a process may ask for and what it may not. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "worker-agent/agent_front.h"

enum { JOB = 3, TENSOR = 8, WORLD = 6, LOCAL = 2, BYTES = 1000, CHUNK = 300, ENGINES = 0x5 };

static struct front *front;
static struct fr_job job;
static struct fr_tensor *tensor;

static struct fr_tensor *add(uint32_t id, uint64_t bytes, uint32_t engines)
{
	struct fr_tensor *t = calloc(1, fr_tensor_size(LOCAL));

	t->id = id;
	t->name = "grad";
	t->bytes = bytes;
	t->chunk_bytes = CHUNK;
	t->engines = engines;
	fr_tensor_add(front, &job, t);
	return t;
}

/* Local ranks 1 and 4 of six. */
static void setup(void)
{
	front = calloc(1, sizeof(*front));
	fr_init(front);
	job = (struct fr_job){ .id = JOB, .world = WORLD, .nlocal = LOCAL, .rank = { 1, 4 } };
	fr_job_start(front, &job);
	tensor = add(TENSOR, BYTES, ENGINES);
}

static void teardown(void)
{
	if (fr_job_find(front, JOB))
		fr_job_stop(front, &job);
	free(tensor);
	free(front);
}

static struct ring_sub sub(uint32_t round)
{
	return (struct ring_sub){ .length = BYTES, .tensor = TENSOR, .round = round,
				  .rop = ROP_SUM };
}

#define SAME_ORDER "all ranks start rounds on GPUs in the same order"

static const uint8_t input[LOCAL][BYTES];
static struct ag_post post;
static struct err error;

static int submit(uint32_t local, const struct ring_sub *s)
{
	struct fr_tensor *t = NULL;
	int rc = fr_submit(front, &job, local, s, input[local], SLOT_SLAB(local, 64), 5, &t, &post,
			   &error);

	ck_assert(rc || t);
	return rc;
}

static void finish(struct fr_tensor *t)
{
	const struct ag_times one = { 10, 20, 50, 30, 60 }, other = { 11, 15, 40, 0, 0 };

	ck_assert(!fr_engine_done(front, t, &one));
	ck_assert(fr_engine_done(front, t, &other));
	fr_finish(front, t, 60);
}

START_TEST(a_round_has_the_times_of_all_its_engines)
{
	struct fr_tensor *t = fr_tensor_find(front, JOB, TENSOR);
	const struct ag_times all = { 11, 15, 50, 30, 60 };
	struct ring_sub s = sub(1);

	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_int_eq(submit(1, &s), 0);
	finish(t);
	ck_assert_mem_eq(&t->times, &all, sizeof(all));
	s.round = 2;
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_int_eq(t->times.begun, 0);
}
END_TEST

START_TEST(time_counts_while_some_round_is_under_way)
{
	struct fr_tensor *other = add(TENSOR + 1, BYTES, ENGINES);
	struct ring_sub s = sub(1), so = sub(1);

	so.tensor = TENSOR + 1;
	ck_assert_int_eq(submit(0, &s), 0);	/* at 5 */
	ck_assert_int_eq(submit(0, &so), 0);
	finish(tensor);				/* at 60 */
	ck_assert_uint_eq(job.open_ns, 55);
	ck_assert_uint_eq(job.over_bytes, BYTES);
	finish(other);				/* at the same time */
	ck_assert_uint_eq(job.open_ns, 55);
	ck_assert_uint_eq(job.over_bytes, 2 * BYTES);
	s.round = 2;
	ck_assert_int_eq(submit(0, &s), 0);
	finish(tensor);
	ck_assert_uint_eq(job.open_ns, 110);
	s.round = 3;
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_uint_eq(job.open, 1);
	fr_tensor_remove(front, other);
	fr_tensor_remove(front, tensor);
	ck_assert_uint_eq(job.open, 0);
	free(other);
}
END_TEST

START_TEST(the_first_rank_opens_the_round_and_the_engines_close_it)
{
	struct ring_sub s = sub(1);

	s.priority = 9;
	ck_assert_int_eq(submit(1, &s), 0);
	ck_assert_uint_eq(post.round, 1);
	ck_assert_uint_eq(post.local, 1);
	ck_assert_uint_eq(post.length, BYTES);
	ck_assert_int_eq(post.priority, 9);
	ck_assert_int_eq(post.root_local, -1);
	ck_assert_ptr_eq(post.base, input[1]);
	ck_assert(!fr_all_posted(tensor));
	s.priority = 1;			/* the first one's counts */
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_int_eq(post.priority, 9);
	ck_assert(fr_all_posted(tensor));
	finish(tensor);
	ck_assert(list_empty(&front->running));
	ck_assert_uint_eq(front->rounds, 1);
	s.round = 2;
	ck_assert_int_eq(submit(0, &s), 0);
}
END_TEST

START_TEST(who_is_missing_is_named)
{
	struct ring_sub s = sub(1);
	char buf[64], tiny[6];

	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_str_eq(fr_missing(tensor, buf, sizeof(buf)), "rank 4");
	ck_assert_str_eq(fr_missing(tensor, tiny, sizeof(tiny)), "rank ");
	ck_assert_int_eq(submit(1, &s), 0);
	ck_assert_str_eq(fr_missing(tensor, buf, sizeof(buf)), "");
}
END_TEST

START_TEST(rounds_have_the_order_of_their_submission)
{
	struct fr_tensor *other = add(TENSOR + 1, BYTES, 1);
	struct ring_sub s = sub(1);
	uint64_t first;

	ck_assert_int_eq(submit(0, &s), 0);
	first = post.seq;
	s.tensor++;
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_uint_gt(post.seq, first);
	ck_assert_ptr_eq(list_first(&front->running, struct fr_tensor, running_link), tensor);
	fr_tensor_remove(front, other);
	ck_assert_ptr_null(fr_tensor_find(front, JOB, TENSOR + 1));
	free(other);
}
END_TEST

/* Nothing that fr_submit may change has changed. */
static void hostile(uint32_t local, const struct ring_sub *s)
{
	size_t size = fr_tensor_size(LOCAL);
	struct fr_tensor *before = malloc(size);
	uint64_t seq = front->next_seq;

	memcpy(before, tensor, size);
	ck_assert_int_eq(submit(local, s), TALLY_EPROTO);
	ck_assert_int_eq(error.code, TALLY_EPROTO);
	ck_assert_mem_eq(before, tensor, size);
	ck_assert_uint_eq(front->next_seq, seq);
	free(before);
}

START_TEST(hostile_descriptors_give_eproto_and_change_nothing)
{
	struct ring_sub s;

	for (int running = 0; running < 2; running++) {
#define HOSTILE(change) do { s = sub(1); change; hostile(0, &s); } while (0)
		HOSTILE(s.tensor = 0);
		HOSTILE(s.tensor = UINT32_MAX);
		HOSTILE(s.round = 0);
		HOSTILE(s.round = 2);
		HOSTILE(s.round = UINT32_MAX);
		HOSTILE(s.rop = ROP_NONE);
		HOSTILE(s.rop = ROP_END);
		HOSTILE(s.rop = 255);
		HOSTILE(s.length = 0);
		HOSTILE(s.length = BYTES + 1);
		HOSTILE(s.length = UINT64_MAX);
		HOSTILE(s.at = 1);
		HOSTILE(s.at = UINT64_MAX; s.length = 1);
		HOSTILE(s.rop = ROP_BROADCAST; s.root = WORLD);
		HOSTILE(s.rop = ROP_BROADCAST; s.root = UINT32_MAX);
		HOSTILE(s.rop = ROP_BROADCAST; s.root = 1; s.length = 0); /* the root itself */
#undef HOSTILE
		if (!running) {
			s = sub(1);
			ck_assert_int_eq(submit(1, &s), 0);
		}
	}
}
END_TEST

START_TEST(a_rank_submits_a_round_once)
{
	struct ring_sub s = sub(1);

	ck_assert_int_eq(submit(0, &s), 0);
	hostile(0, &s);
	s.round = 2;			/* before the first is over */
	hostile(0, &s);
	hostile(1, &s);
	s.round = 1;
	ck_assert_int_eq(submit(1, &s), 0);
	finish(tensor);
	hostile(1, &s);			/* after it is over */
}
END_TEST

/* Else there would be two completions to be owed, and room for one. */
START_TEST(a_rank_that_does_not_listen_cannot_go_on)
{
	struct ring_sub s = sub(1);
	struct list owed;

	list_init(&owed);
	for (uint32_t local = 0; local < LOCAL; local++)
		ck_assert_int_eq(submit(local, &s), 0);
	finish(tensor);
	tensor->in[1].owed_round = 1;
	list_add(&owed, &tensor->in[1].owed);
	s.round = 2;
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_int_eq(submit(1, &s), TALLY_EPROTO);
	ck_assert_str_eq(error.text, "rank 4 went on with tensor 'grad' before it had heard that "
			 "round 1 is done");
	list_del(&tensor->in[1].owed);
	ck_assert_int_eq(submit(1, &s), 0);
}
END_TEST

START_TEST(ranks_of_one_machine_that_disagree_are_named)
{
	struct ring_sub s = sub(1);

	ck_assert_int_eq(submit(1, &s), 0);
	s.rop = ROP_MEAN;
	ck_assert_int_eq(submit(0, &s), TALLY_EMISMATCH);
	ck_assert_str_eq(error.text, "tensor 'grad' round 1: rank 4: sum, rank 1: mean");
	ck_assert(!fr_posted(tensor, 0));
}
END_TEST

START_TEST(broadcasts_from_different_roots_disagree)
{
	struct ring_sub s = sub(1);

	s.rop = ROP_BROADCAST;
	s.root = 0;
	ck_assert_int_eq(submit(1, &s), 0);
	ck_assert_uint_eq(post.root, 0);
	s.root = 5;
	ck_assert_int_eq(submit(0, &s), TALLY_EMISMATCH);
	ck_assert_str_eq(error.text, "tensor 'grad' round 1: rank 4: broadcast from rank 0, "
			 "rank 1: broadcast from rank 5");
}
END_TEST

START_TEST(a_broadcast_knows_its_root_by_local_index)
{
	struct ring_sub s = sub(1);

	s.rop = ROP_BROADCAST;
	s.root = 4;
	ck_assert_int_eq(submit(1, &s), 0);
	ck_assert_int_eq(post.root_local, 1);
	ck_assert_uint_eq(post.root, 4);
	s.length = 0;			/* the other one listens */
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_int_eq(post.root_local, 1);
	ck_assert_uint_eq(post.length, BYTES);
}
END_TEST

/* As the core does (ag_tensor_again()): it goes on with what the lost root gave. */
START_TEST(a_broadcast_has_its_root_as_long_as_its_data_is_there)
{
	struct ring_sub s = sub(1);
	bool gave = _i;

	s.rop = ROP_BROADCAST;
	s.root = 4;
	s.length = gave ? BYTES : 0;
	ck_assert_int_eq(submit(gave ? 1 : 0, &s), 0);
	fr_job_shrink(&job, 1);
	fr_again(tensor);
	ck_assert_int_eq(tensor->root_local, gave ? 1 : -1);
}
END_TEST

START_TEST(a_lost_rank_is_no_local_root)
{
	struct ring_sub s = sub(1);

	fr_job_shrink(&job, 1);
	s.rop = ROP_BROADCAST;
	s.root = 4;
	s.length = 0;
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_int_eq(post.root_local, -1);
}
END_TEST

/* Of rank 4's process that was lost; another one is rank 4 now. */
START_TEST(who_comes_submits_what_the_lost_process_had)
{
	struct ring_sub s = sub(1);

	ck_assert_int_eq(submit(1, &s), 0);
	fr_job_shrink(&job, 1);
	fr_again(tensor);
	fr_job_shrink(&job, 3);
	fr_again(tensor);
	ck_assert(!fr_all_posted(tensor));
	if (_i)
		ck_assert_int_eq(submit(0, &s), 0);
	ck_assert(!fr_all_posted(tensor));
	ck_assert_int_eq(submit(1, &s), 0);
	if (!_i)
		ck_assert_int_eq(submit(0, &s), 0);
	ck_assert(fr_all_posted(tensor));
}
END_TEST

START_TEST(who_comes_goes_on_with_the_operation_that_was_begun)
{
	struct ring_sub s = sub(1);

	ck_assert_int_eq(submit(1, &s), 0);
	fr_job_shrink(&job, 1);
	fr_again(tensor);
	fr_job_shrink(&job, 3);
	fr_again(tensor);
	s.rop = ROP_MEAN;
	ck_assert_int_eq(submit(1, &s), TALLY_EMISMATCH);
	ck_assert_str_eq(error.text, "tensor 'grad' round 1: rank 4: sum, rank 4: mean");
}
END_TEST

/* ---- rounds by pieces ---- */

static struct ring_sub open_sub(uint32_t round, uint8_t groups)
{
	struct ring_sub s = sub(round);

	s.part = PART_OPEN;
	s.groups = groups;
	s.length = 4 * 4;		/* a word for each chunk */
	s.run = 1;
	return s;
}

static struct ring_sub piece(uint32_t round, uint8_t group, uint64_t at, uint64_t length)
{
	struct ring_sub s = sub(round);

	s.part = PART_PIECE;
	s.group = group;
	s.at = at;
	s.length = length;
	return s;
}

START_TEST(a_round_by_pieces_is_opened_by_all_and_takes_pieces_of_any)
{
	struct ring_sub s = open_sub(1, 2);

	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_uint_eq(post.part, PART_OPEN);
	ck_assert_uint_eq(post.groups, 2);
	ck_assert_uint_eq(post.at, 0);
	ck_assert_uint_eq(post.length, BYTES);
	s = piece(1, 1, 2 * CHUNK, BYTES - 2 * CHUNK);
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_uint_eq(post.part, PART_PIECE);
	ck_assert_uint_eq(post.group, 1);
	ck_assert_uint_eq(post.at, 2 * CHUNK);
	ck_assert_uint_eq(post.length, BYTES - 2 * CHUNK);
	ck_assert(!fr_all_posted(tensor));
	s = open_sub(1, 2);
	ck_assert_int_eq(submit(1, &s), 0);
	ck_assert(fr_all_posted(tensor));
	s = piece(1, 0, 0, CHUNK);
	ck_assert_int_eq(submit(1, &s), 0);
	s = piece(1, 1, 0, 2 * CHUNK);
	ck_assert_int_eq(submit(1, &s), 0);
	s = piece(1, 0, CHUNK, BYTES - CHUNK);
	ck_assert_int_eq(submit(0, &s), 0);
	finish(tensor);
	s = sub(2);			/* the next one may be of host memory */
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_uint_eq(post.groups, 0);
}
END_TEST

/* Two tensors, whose rounds ranks start on GPUs in an order of their own. */
static uint8_t groups;

static int open_of(uint32_t local, uint32_t id, uint32_t round)
{
	struct ring_sub s = open_sub(round, groups);

	s.tensor = id;
	return submit(local, &s);
}

START_TEST(ranks_that_cross_on_gpus_hear_so_before_a_sum_is_whole)
{
	struct fr_tensor *second = add(TENSOR + 1, BYTES, ENGINES);

	second->name = "bias";
	groups = 1;
	ck_assert_int_eq(open_of(0, TENSOR, 1), 0);
	if (!_i)			/* one is ahead of the other */
		ck_assert_int_eq(open_of(0, TENSOR + 1, 1), 0);
	ck_assert_int_eq(open_of(1, TENSOR + 1, 1), TALLY_EMISMATCH);
	ck_assert_str_eq(error.text, "tensor 'bias' round 1: rank 4 starts it on its GPU where "
			 "others start 'grad'; " SAME_ORDER);
	ck_assert(!fr_all_posted(tensor));
	fr_tensor_remove(front, second);
	free(second);
}
END_TEST

START_TEST(ranks_in_one_order_on_gpus_may_be_apart_and_use_host_memory_between)
{
	struct fr_tensor *second = add(TENSOR + 1, BYTES, ENGINES);
	struct ring_sub s = sub(2);

	groups = 1;
	ck_assert_int_eq(open_of(0, TENSOR, 1), 0);
	ck_assert_int_eq(open_of(0, TENSOR + 1, 1), 0);
	ck_assert_int_eq(open_of(1, TENSOR, 1), 0);
	finish(tensor);
	ck_assert_int_eq(submit(0, &s), 0);		/* rank 1 not yet */
	ck_assert_int_eq(open_of(1, TENSOR + 1, 1), 0);
	finish(second);
	ck_assert_int_eq(submit(1, &s), 0);
	finish(tensor);
	ck_assert_int_eq(open_of(1, TENSOR + 1, 2), 0);
	ck_assert_int_eq(open_of(0, TENSOR + 1, 2), 0);
	finish(second);
	fr_tensor_remove(front, second);
	free(second);
}
END_TEST

START_TEST(ranks_may_cross_where_each_gpu_is_a_group)
{
	struct fr_tensor *second = add(TENSOR + 1, BYTES, ENGINES);

	groups = LOCAL;
	ck_assert_int_eq(open_of(0, TENSOR, 1), 0);
	ck_assert_int_eq(open_of(1, TENSOR + 1, 1), 0);
	ck_assert_int_eq(open_of(1, TENSOR, 1), 0);
	ck_assert_int_eq(open_of(0, TENSOR + 1, 1), 0);
	ck_assert(fr_all_posted(tensor) && fr_all_posted(second));
	fr_tensor_remove(front, second);
	free(second);
}
END_TEST

START_TEST(hostile_pieces_give_eproto_and_change_nothing)
{
	struct ring_sub s;

#define HOSTILE(what, change) do { s = what; change; hostile(0, &s); } while (0)
	HOSTILE(sub(1), s.groups = 1);
	HOSTILE(sub(1), s.group = 1);
	HOSTILE(sub(1), s.part = PART_END);
	HOSTILE(sub(1), s.part = 255);
	HOSTILE(open_sub(1, 0), (void)s);
	HOSTILE(open_sub(1, LOCAL + 1), (void)s);
	HOSTILE(open_sub(1, 1), s.group = 1);
	HOSTILE(open_sub(1, 1), s.rop = ROP_BROADCAST);
	HOSTILE(open_sub(1, 1), s.offset = 2);
	HOSTILE(open_sub(1, 1), s.length = BYTES);
	HOSTILE(open_sub(1, 1), s.run = 0);
	HOSTILE(open_sub(1, 1), s.run = 2);
	HOSTILE(open_sub(1, 1), s.run = UINT32_MAX);
	HOSTILE(sub(1), s.run = 1);
	HOSTILE(open_sub(1, 1), s.length = 0);
	HOSTILE(open_sub(1, 1), s.at = CHUNK);
	HOSTILE(open_sub(1, 1), s.out_slab = 1);
	HOSTILE(piece(1, 0, 0, CHUNK), (void)s);	/* of a round that nobody has opened */
	s = open_sub(1, 1);
	ck_assert_int_eq(submit(1, &s), 0);
	HOSTILE(piece(1, 0, 0, CHUNK), (void)s);	/* that this rank has not opened */
	s = open_sub(1, 1);
	ck_assert_int_eq(submit(0, &s), 0);
	HOSTILE(open_sub(1, 1), (void)s);
	HOSTILE(piece(1, 1, 0, CHUNK), (void)s);
	HOSTILE(piece(1, 0, 0, CHUNK), s.run = 1);
	HOSTILE(piece(1, 0, 1, CHUNK), (void)s);
	HOSTILE(piece(1, 0, 0, CHUNK + 1), (void)s);
	HOSTILE(piece(1, 0, 0, 0), (void)s);
	HOSTILE(piece(1, 0, 3 * CHUNK, CHUNK), (void)s);
	HOSTILE(piece(1, 0, 4 * CHUNK, CHUNK), (void)s);
	HOSTILE(piece(1, 0, UINT64_MAX - 1, CHUNK), (void)s);
	HOSTILE(piece(2, 0, 0, CHUNK), (void)s);
	HOSTILE(piece(1, 0, 0, CHUNK), s.rop = ROP_MEAN);
	HOSTILE(piece(1, 0, 0, CHUNK), s.groups = 1);
	finish(tensor);
	HOSTILE(piece(1, 0, 0, CHUNK), (void)s);
	HOSTILE(piece(2, 0, 0, CHUNK), (void)s);
	job.shrink = true;
	HOSTILE(open_sub(2, 1), (void)s);
	job.shrink = false;
#undef HOSTILE
}
END_TEST

START_TEST(ranks_that_disagree_on_groups_are_named)
{
	struct ring_sub s = open_sub(1, 2);

	ck_assert_int_eq(submit(1, &s), 0);
	s = sub(1);
	ck_assert_int_eq(submit(0, &s), TALLY_EMISMATCH);
	ck_assert_str_eq(error.text, "tensor 'grad' round 1: rank 4: 2 groups of GPUs, rank 1: 0 "
			 "(0: in host memory)");
	ck_assert(!fr_posted(tensor, 0));
}
END_TEST

START_TEST(a_tensor_of_no_elements_waits_for_its_local_ranks_alone)
{
	struct fr_tensor *empty = add(TENSOR + 1, 0, 0);
	struct ring_sub s = { .tensor = TENSOR + 1, .round = 1, .rop = ROP_SUM };

	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_uint_eq(empty->left, 0);
	ck_assert(!fr_all_posted(empty));
	ck_assert_int_eq(submit(1, &s), 0);
	ck_assert(fr_all_posted(empty));
	fr_finish(front, empty, 60);
	s.round = 2;
	ck_assert_int_eq(submit(1, &s), 0);
	fr_tensor_remove(front, empty);
	free(empty);
}
END_TEST

START_TEST(rounds_wrap_past_zero)
{
	struct ring_sub s = sub(1);

	tensor->round = UINT32_MAX;
	ck_assert_int_eq(submit(0, &s), 0);
	ck_assert_uint_eq(tensor->round, 1);
}
END_TEST

START_TEST(a_stopped_job_is_forgotten_with_its_tensors)
{
	struct ring_sub s = sub(1);

	ck_assert_int_eq(submit(0, &s), 0);
	fr_job_stop(front, &job);
	ck_assert_ptr_null(fr_job_find(front, JOB));
	ck_assert_ptr_null(fr_tensor_find(front, JOB, TENSOR));
	ck_assert(list_empty(&front->running));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_front");
	TCase *t = tcase_create("agent_front");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_first_rank_opens_the_round_and_the_engines_close_it);
	tcase_add_test(t, a_round_has_the_times_of_all_its_engines);
	tcase_add_test(t, time_counts_while_some_round_is_under_way);
	tcase_add_test(t, who_is_missing_is_named);
	tcase_add_test(t, rounds_have_the_order_of_their_submission);
	tcase_add_test(t, hostile_descriptors_give_eproto_and_change_nothing);
	tcase_add_test(t, a_rank_submits_a_round_once);
	tcase_add_test(t, a_rank_that_does_not_listen_cannot_go_on);
	tcase_add_test(t, ranks_of_one_machine_that_disagree_are_named);
	tcase_add_test(t, broadcasts_from_different_roots_disagree);
	tcase_add_test(t, a_broadcast_knows_its_root_by_local_index);
	tcase_add_loop_test(t, a_broadcast_has_its_root_as_long_as_its_data_is_there, 0, 2);
	tcase_add_test(t, a_lost_rank_is_no_local_root);
	tcase_add_loop_test(t, who_comes_submits_what_the_lost_process_had, 0, 2);
	tcase_add_test(t, who_comes_goes_on_with_the_operation_that_was_begun);
	tcase_add_test(t, a_tensor_of_no_elements_waits_for_its_local_ranks_alone);
	tcase_add_test(t, a_round_by_pieces_is_opened_by_all_and_takes_pieces_of_any);
	tcase_add_loop_test(t, ranks_that_cross_on_gpus_hear_so_before_a_sum_is_whole, 0, 2);
	tcase_add_test(t, ranks_in_one_order_on_gpus_may_be_apart_and_use_host_memory_between);
	tcase_add_test(t, ranks_may_cross_where_each_gpu_is_a_group);
	tcase_add_test(t, hostile_pieces_give_eproto_and_change_nothing);
	tcase_add_test(t, ranks_that_disagree_on_groups_are_named);
	tcase_add_test(t, rounds_wrap_past_zero);
	tcase_add_test(t, a_stopped_job_is_forgotten_with_its_tensors);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
