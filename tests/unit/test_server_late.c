// SPDX-License-Identifier: Apache-2.0
/*
 * Where a result is wanted: a card writes it to the slot that its frame names, before the
 * agent has a say, so it has to be the round's own.
 */
#include "tests/unit/server_rig.h"
#include "tests/unit/rig_main.h"

/* Two slots by the round's parity, as an agent has them. */
static uint64_t slot_of(uint32_t w, uint32_t round)
{
	return SLOT_SLAB(3, (2 * w + (round & 1)) * SEG);
}

static struct frame wants(uint8_t type, uint32_t w, uint32_t round)
{
	struct frame f = frame(type, w, round);

	f.rslot = slot_of(w, round);
	return f;
}

static void push_wants(uint32_t w, uint32_t round, int32_t v)
{
	struct frame f = wants(FRAME_PUSH, w, round);

	ck_assert(push_frame(&f, v));
}

static void say_wants(uint8_t type, uint32_t w, uint32_t round)
{
	struct frame f = wants(type, w, round);

	srv_frame(&core, &peer[w], &f, NULL, NULL);
	srv_check(&core);
}

/* All that is to be sent to w now; the result of the round goes where it belongs. */
static void goes_to_its_slot(uint32_t w, uint32_t round)
{
	struct srv_send s;
	bool seen = false;

	while (srv_next(&core, &peer[w], false, &s)) {
		if (s.frame.type != FRAME_RESULT)
			continue;
		if (s.frame.round == round) {
			ck_assert_uint_eq(s.frame.slot, slot_of(w, round));
			seen = true;
		}
		srv_sent(&core, s.in);
	}
	ck_assert(seen);
}

static void round_of(uint32_t round)
{
	for (uint32_t w = 0; w < N; w++)
		push_wants(w, round, 1 << w);
	for (uint32_t w = 0; w < N; w++)
		goes_to_its_slot(w, round);
}

/* Links pass each other: a question about the round before comes behind the next push. */
START_TEST(a_late_question_does_not_say_where_the_next_result_goes)
{
	round_of(1);
	push_wants(0, 2, 1);
	say_wants(FRAME_PROBE, 0, 1);
	push_wants(1, 2, 2);
	push_wants(2, 2, 4);
	goes_to_its_slot(0, 2);
}
END_TEST

/* The same by a copy of the push, which was asked for again when it was only late. */
START_TEST(a_late_push_does_not_say_where_the_next_result_goes)
{
	struct frame late = wants(FRAME_PUSH, 0, 1);

	round_of(1);
	push_wants(0, 2, 1);
	ck_assert(!push_frame(&late, 1));
	push_wants(1, 2, 2);
	push_wants(2, 2, 4);
	goes_to_its_slot(0, 2);
}
END_TEST

static struct srv_tensor *young;

static void add_young(uint8_t **own)
{
	const bool mine[2] = { false, true };
	struct srv_tensor_desc d = { .id = TENSOR, .dtype = DTYPE_I32, .geom = geom, .mine = mine,
				     .epoch = EPOCH + 1, .young = true };
	uint64_t bytes;

	young = calloc(1, srv_tensor_size(N, &d, &bytes));
	*own = malloc(bytes);
	srv_tensor_add(&core, job, young, *own, &d);
}

static struct frame of_young(uint8_t type, uint32_t w, uint32_t round)
{
	struct frame f = wants(type, w, round);

	f.epoch = EPOCH + 1;
	f.chunk = 1;
	return f;
}

static void end_young(uint8_t *own)
{
	srv_tensor_remove(&core, young);
	srv_tensor_forget(&core, young);
	free(young);
	free(own);
}

/* Of a round that began at a server which died: who has its result gives it. */
static void give(uint32_t w, uint32_t round)
{
	struct frame f = of_young(FRAME_GIVE, w, round);
	void *at;

	f.dtype = DTYPE_I32;
	f.rop = ROP_SUM;
	f.length = SEG;
	f.slot = SLOT_NONE;
	at = srv_place(&core, &peer[w], &f);
	ck_assert_ptr_nonnull(at);
	fill(at, 7);
	srv_frame(&core, &peer[w], &f, at, NULL);
}

/* Its window was full, so it has offered and not pushed. */
START_TEST(who_has_offered_gets_what_is_given_where_it_belongs)
{
	struct frame offer = of_young(FRAME_OFFER, 0, 5), ahead = of_young(FRAME_PUSH, 1, 6);
	uint8_t *own;

	add_young(&own);
	srv_frame(&core, &peer[0], &offer, NULL, NULL);
	ck_assert(push_frame(&ahead, 1));
	give(1, 5);
	goes_to_its_slot(0, 5);
	end_young(own);
}
END_TEST

/* Its push goes over TCP (a window that is not registered), and lands meanwhile. */
START_TEST(whose_push_lands_gets_what_is_given_where_it_belongs)
{
	struct frame slow = of_young(FRAME_PUSH, 0, 5), ahead = of_young(FRAME_PUSH, 1, 6);
	uint8_t *own;
	void *at;

	add_young(&own);
	at = srv_place(&core, &peer[0], &slow);
	ck_assert_ptr_nonnull(at);
	ck_assert(push_frame(&ahead, 1));
	give(1, 5);
	fill(at, 1);
	srv_frame(&core, &peer[0], &slow, at, NULL);
	goes_to_its_slot(0, 5);
	end_young(own);
}
END_TEST

/* Its agent may use that part of the window again as soon as it has the result. */
START_TEST(whose_push_lands_gets_nothing_before_it_has)
{
	struct frame slow = of_young(FRAME_PUSH, 0, 5), ahead = of_young(FRAME_PUSH, 1, 6);
	struct frame probe = of_young(FRAME_PROBE, 0, 5);
	struct srv_send s;
	uint8_t *own;
	void *at;

	add_young(&own);
	at = srv_place(&core, &peer[0], &slow);
	ck_assert_ptr_nonnull(at);
	ck_assert(push_frame(&ahead, 1));
	srv_frame(&core, &peer[0], &probe, NULL, NULL);
	give(1, 5);
	while (srv_next(&core, &peer[0], false, &s))
		ck_assert_uint_ne(s.frame.type, FRAME_RESULT);
	fill(at, 1);
	srv_frame(&core, &peer[0], &slow, at, NULL);
	goes_to_its_slot(0, 5);
	end_young(own);
}
END_TEST

/* It has gone over to the next server: what comes there may be written already. */
START_TEST(who_takes_back_what_was_done_elsewhere_gets_no_result_of_it)
{
	struct frame mine = of_young(FRAME_PUSH, 0, 5), ahead = of_young(FRAME_PUSH, 1, 6);
	struct frame cancel = of_young(FRAME_CANCEL, 0, 5);
	struct srv_send s;
	uint8_t *own;

	add_young(&own);
	ck_assert(push_frame(&mine, 1));
	ck_assert(push_frame(&ahead, 1));
	srv_frame(&core, &peer[0], &cancel, NULL, NULL);
	ck_assert(srv_next(&core, &peer[0], false, &s));
	ck_assert_uint_eq(s.frame.type, FRAME_CANCELLED);
	give(1, 5);
	ck_assert(!srv_next(&core, &peer[0], false, &s));
	end_young(own);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_late_question_does_not_say_where_the_next_result_goes);
	tcase_add_test(t, a_late_push_does_not_say_where_the_next_result_goes);
	tcase_add_test(t, who_has_offered_gets_what_is_given_where_it_belongs);
	tcase_add_test(t, whose_push_lands_gets_what_is_given_where_it_belongs);
	tcase_add_test(t, whose_push_lands_gets_nothing_before_it_has);
	tcase_add_test(t, who_takes_back_what_was_done_elsewhere_gets_no_result_of_it);
}

int main(void)
{
	return rig_main("server_late", add);
}
