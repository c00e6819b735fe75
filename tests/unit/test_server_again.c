// SPDX-License-Identifier: Apache-2.0
/*
 * Results that are sent again.  A card writes to the slot that the frame names, whatever the
 * agent has there by now: its segment may be another server's, two rounds on.  So a card
 * writes a round's result once, while its agent waits for it; a repetition names no
 * slot, so that it goes over the link's stream, where the agent places it or does not.
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

static void add(TCase *t)
{
	tcase_add_test(t, who_asks_again_is_not_written_to_by_card);
	tcase_add_test(t, it_is_not_sent_again_while_the_first_is_on_its_way);
}

int main(void)
{
	return rig_main("server_again", add);
}
