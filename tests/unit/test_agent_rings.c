// SPDX-License-Identifier: Apache-2.0
/* agent_rings.c: a process that submits faster than the agent takes has its turn, and no more;
 * what the agent may write to is its own. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker-agent/agent.h"

enum { JOB = 3, TURN = 256, TENSOR = 8, RINGS = 2, ROUNDS = 1000 };

static struct agent a;
static struct ad_engine en;
static struct ad_job job[RINGS];
static struct ad_tensor tensor[RINGS];
static struct ad_ring ring[RINGS];
static struct ad_session session[RINGS];
static struct ring_end process[RINGS];
static void *memory[RINGS];
static int bell[RINGS][4];

/* One rank on the machine, and a tensor of no elements: a round is done when it is submitted. */
static void job_start(uint32_t i)
{
	struct fr_tensor *t = calloc(1, fr_tensor_size(1));

	job[i].id = job[i].front.id = JOB + i;
	job[i].front.world = 2;
	job[i].front.nlocal = job[i].front.live = 1;
	job[i].front.user = &job[i];
	fr_job_start(&en.front, &job[i].front);
	tensor[i].ready = true;
	t->id = TENSOR;
	t->name = "z";
	t->user = &tensor[i];
	fr_tensor_add(&en.front, &job[i].front, t);
	tensor[i].front = t;
}

static void ring_start(uint32_t i)
{
	memory[i] = aligned_alloc(PAGE_BYTES, ring_shared_bytes());
	ck_assert_int_eq(ring_sub_bell_new(&bell[i][0]), 0);
	ck_assert_int_eq(ring_cpl_bell_new(&bell[i][2]), 0);
	ring_format(memory[i]);
	ring_end_init(&process[i], memory[i], bell[i][0], bell[i][3]);
	ring[i].job = &job[i];
	ring[i].session = &session[i];
	ring_end_init(&ring[i].ring, memory[i], bell[i][1], bell[i][2]);
	list_init(&ring[i].owed);
	list_add(&en.rings, &ring[i].link);
}

static void setup(void)
{
	a.nengines = a.nlinked = 1;
	en.agent = &a;
	fr_init(&en.front);
	list_init(&en.rings);
	for (uint32_t i = 0; i < RINGS; i++) {
		job_start(i);
		ring_start(i);
	}
}

static void teardown(void)
{
	for (uint32_t i = 0; i < RINGS; i++) {
		fr_job_stop(&en.front, &job[i].front);
		free(tensor[i].front);
		free(memory[i]);
		for (int b = 0; b < 4; b++)
			close(bell[i][b]);
	}
}

static void submit(uint32_t i, uint32_t from, uint32_t to)
{
	for (uint32_t round = from; round <= to; round++) {
		const struct ring_sub s = { .tensor = TENSOR, .round = round, .rop = ROP_SUM };

		ck_assert_int_eq(ring_sub_post(&process[i], &s), 0);
	}
}

static uint32_t taken_in(uint32_t i)
{
	struct ring_cpl c;
	uint32_t n = 0;

	ad_rings_publish(&en);
	while (!ring_cpl_take(&process[i], &c))
		n++;
	return n;
}

START_TEST(flood_of_one_ring_waits_for_the_turns_of_others)
{
	uint32_t done = 0, n;
	bool more = true;

	submit(0, 1, ROUNDS);
	submit(1, 1, 1);
	for (uint32_t turn = 0; more; turn++) {
		more = ad_rings_turn(&en, 1);
		n = taken_in(0);
		ck_assert_uint_gt(n, 0);
		ck_assert_uint_le(n, TURN);
		ck_assert_uint_eq(taken_in(1), turn == 0);
		done += n;
	}
	ck_assert_uint_eq(done, ROUNDS);
	submit(1, 2, 2);		/* an empty ring is asked for its bell */
	ck_assert_int_eq(ring_sub_wake(&ring[1].ring), 0);
	ck_assert(!ad_rings_turn(&en, 1));
	ck_assert_uint_eq(taken_in(1), 1);
}
END_TEST

static void ring_nobody(void *ctx)
{
	(void)ctx;
}

static void no_mail(void *ctx, const struct mail *m, bool stopping)
{
	(void)ctx;
	(void)m;
	(void)stopping;
}

static void no_event(void *ctx, void *data, uint32_t events)
{
	(void)ctx;
	(void)data;
	(void)events;
}

static void forget(const struct mail *m)
{
	struct ad_trouble *t;

	memcpy(&t, m->body, sizeof(t));
	free(t);
}

/* What the ring's status says of a descriptor in a slab that the agent can write to, or cannot. */
static void said_of(uint32_t i, uint8_t part, bool writable, char text[ERR_TEXT_MAX + 1])
{
	const struct ring_sub s = {
		.tensor = TENSOR, .round = 1, .rop = ROP_MEAN, .part = part, .slab = 3,
		.length = PAGE_BYTES, .groups = part == PART_OPEN, .run = part == PART_OPEN,
	};
	int code;

	ring[i].slab[3].base = (uint8_t *)memory[i];
	ring[i].slab[3].bytes = PAGE_BYTES;
	ring[i].slab[3].writable = writable;
	ck_assert_int_eq(ring_sub_post(&process[i], &s), 0);
	(void)ad_rings_turn(&en, 1);
	ck_assert(ring[i].broken);
	ring_status_get(&process[i], &code, text, NULL);
	ck_assert_int_eq(code, TALLY_EPROTO);
}

/* Words are counted in, and a group's pieces become the result: a mean is brought there. */
START_TEST(words_and_pieces_lie_where_the_agent_may_write)
{
	static const struct engine_cb idle = { .mail = no_mail, .event = no_event };
	uint8_t part = _i ? PART_PIECE : PART_OPEN;
	char text[ERR_TEXT_MAX + 1];
	struct mailbox *mail;
	struct mail m;
	struct err e;

	ck_assert_int_eq(mailbox_new(&mail, ring_nobody, NULL, &e), 0);
	outbox_init(&en.out, mail, 0);
	ck_assert_int_eq(engine_start(&en.thread, "t", 0, -1, 0, &idle, NULL, &e), 0);
	said_of(0, part, false, text);
	ck_assert_ptr_nonnull(strstr(text, "memory that it does not have"));
	said_of(1, part, true, text);	/* refused, too, as the tensor has no elements */
	ck_assert_ptr_nonnull(strstr(text, "bad part"));
	engine_stop(en.thread);
	while (mailbox_take(mail, &m))
		forget(&m);
	outbox_fini(&en.out);
	mailbox_free(mail);
}
END_TEST

/* ---- rounds on GPUs that were in flight when the agent was started again ---- */

enum { CHUNKS = 4 };

static _Atomic uint32_t words[PAGE_BYTES / 4] __attribute__((aligned(PAGE_BYTES)));

/* A tensor of some chunks, which some other engine has. */
static struct fr_tensor *on_gpu(uint32_t i)
{
	struct fr_tensor *t = tensor[i].front;

	t->bytes = CHUNKS * PAGE_BYTES;
	t->chunk_bytes = PAGE_BYTES;
	t->engines = 2;
	memset(words, 0, sizeof(words));
	ring[i].slab[3].base = (uint8_t *)words;
	ring[i].slab[3].bytes = sizeof(words);
	ring[i].slab[3].writable = true;
	ring[i].slab[4] = ring[i].slab[3];
	ring[i].slab[4].bytes = CHUNKS * PAGE_BYTES;	/* nobody reads it */
	return t;
}

static void open_and_pieces(uint32_t i, uint32_t run, uint32_t pieces)
{
	struct ring_sub s = {
		.tensor = TENSOR, .round = 1, .rop = ROP_SUM, .part = PART_OPEN, .slab = 3,
		.length = 4 * (uint64_t)(run ? CHUNKS / run : CHUNKS), .groups = 1, .run = run,
	};

	ck_assert_int_eq(ring_sub_post(&process[i], &s), 0);
	s.part = PART_PIECE;
	s.slab = 4;
	s.groups = s.run = 0;
	s.length = PAGE_BYTES;
	for (uint32_t k = 0; k < pieces; k++, s.at += PAGE_BYTES)
		ck_assert_int_eq(ring_sub_post(&process[i], &s), 0);
	(void)ad_rings_turn(&en, 1);
	ck_assert(!ring[i].broken);
}

/* It hears that the round is done, and so do copies that wait on its GPU. */
START_TEST(words_of_a_round_that_was_done_before_are_counted)
{
	struct fr_tensor *t = on_gpu(0);

	t->round = 1;
	t->in[0].behind = 1;
	open_and_pieces(0, _i ? 2 : 0, CHUNKS);	/* 0: nonsense, which harms nobody */
	ck_assert_uint_eq(taken_in(0), 1);
	ck_assert_uint_eq(words[0], _i ? 2 : 0);
	ck_assert_uint_eq(words[1], _i ? 2 : 0);
	ck_assert_uint_eq(words[2], 0);
	ck_assert(!t->running);
}
END_TEST

/* It has lied about what it has heard, so a round is said to be done that it is yet to hear of. */
START_TEST(a_completion_is_owed_once)
{
	uint32_t n = 0, round = 1;

	while (list_empty(&ring[0].owed)) {
		submit(0, round, round);
		(void)ad_rings_turn(&en, 1);
		ck_assert_uint_le(++round, 100000);
	}
	tensor[0].front->in[0].behind = round;
	submit(0, round, round);
	(void)ad_rings_turn(&en, 1);
	list_for_each(&ring[0].owed, l)
		ck_assert_uint_le(++n, 1);
	ck_assert_uint_eq(n, 1);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("agent_rings");
	TCase *tc = tcase_create("turn");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, words_and_pieces_lie_where_the_agent_may_write, 0, 2);
	tcase_add_test(tc, a_completion_is_owed_once);
	tcase_add_test(tc, flood_of_one_ring_waits_for_the_turns_of_others);
	tcase_add_loop_test(tc, words_of_a_round_that_was_done_before_are_counted, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(suite());
	int failed;

	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
