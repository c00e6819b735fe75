// SPDX-License-Identifier: Apache-2.0
/* frame.c: the header's bytes are what PROTOCOL.md prints, and nothing else decodes. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "proto/frame.h"

static const struct frame sample = {
	.type = FRAME_PUSH, .dtype = DTYPE_BF16, .rop = ROP_MEAN, .flags = FRAME_BYREF,
	.attempt = 0x09, .worker = 0x0b0a, .job = 0x0f0e0d0c, .tensor = 0x13121110,
	.chunk = 0x17161514, .round = 0x1b1a1918, .epoch = 0x1f1e1d1c, .offset = 0x00020000,
	.length = 0x00010000, .slot = 0x2f2e2d2c2b2a2928, .rslot = 0x3736353433323130,
	.aux = 0x3b3a3938,
};

/* The example of PROTOCOL.md: PUSH of 64 KiB by worker 2. */
static const uint8_t golden[FRAME_BYTES] = {
	0x54, 0x4c, 0x4c, 0x59, 0x01, 0x03, 0x01, 0x01,
	0x00, 0x00, 0x02, 0x00, 0x03, 0x00, 0x00, 0x00,
	0x07, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
	0x0c, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x00,
	0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x20, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x1f, 0xcc, 0xeb, 0x67,
};

static const struct frame golden_frame = {
	.type = FRAME_PUSH, .dtype = DTYPE_F32, .rop = ROP_SUM, .worker = 2, .job = 3, .tensor = 7,
	.chunk = 1, .round = 12, .epoch = 5, .offset = 131072, .length = 65536, .slot = 4096,
	.rslot = SLOT_SLAB(1, 8192),
};

/* Makes the check fit again after the test changed a byte. */
static void seal(uint8_t *wire)
{
	put_le32(wire + 60, crc32c(wire, 60));
}

static void assert_same(const struct frame *a, const struct frame *b)
{
	uint8_t wa[FRAME_BYTES], wb[FRAME_BYTES];

	frame_encode(a, wa);
	frame_encode(b, wb);
	ck_assert_mem_eq(wa, wb, FRAME_BYTES);
}

START_TEST(golden_bytes_stay)
{
	uint8_t wire[FRAME_BYTES];
	struct frame f;

	frame_encode(&golden_frame, wire);
	ck_assert_mem_eq(wire, golden, FRAME_BYTES);
	ck_assert_int_eq(frame_decode(golden, &f), 0);
	assert_same(&f, &golden_frame);
}
END_TEST

START_TEST(each_field_lies_at_its_offset)
{
	uint8_t wire[FRAME_BYTES];

	frame_encode(&sample, wire);
	ck_assert_mem_eq(wire, "TLLY", 4);
	ck_assert_uint_eq(wire[4], FRAME_VERSION);
	ck_assert_uint_eq(wire[5], FRAME_PUSH);
	ck_assert_uint_eq(wire[6], DTYPE_BF16);
	ck_assert_uint_eq(wire[7], ROP_MEAN);
	ck_assert_uint_eq(wire[8], FRAME_BYREF);
	for (int at = 9; at < 32; at++)		/* attempt to epoch hold their own offsets */
		ck_assert_int_eq(wire[at], at);
	ck_assert_uint_eq(get_le32(wire + 32), 0x00020000);
	ck_assert_uint_eq(get_le32(wire + 36), 0x00010000);
	for (int at = 40; at < 60; at++)	/* slot, rslot, aux */
		ck_assert_int_eq(wire[at], at);
	ck_assert_uint_eq(get_le32(wire + 60), crc32c(wire, 60));
}
END_TEST

START_TEST(every_type_comes_back_as_it_went)
{
	struct frame f = sample, back;
	uint8_t wire[FRAME_BYTES];

	f.type = (uint8_t)_i;
	if (f.type != FRAME_PUSH && f.type != FRAME_RESULT)
		f.flags = 0;
	frame_encode(&f, wire);
	ck_assert_int_eq(frame_decode(wire, &back), 0);
	ck_assert_int_eq(back.type, _i);
	assert_same(&f, &back);
	ck_assert_str_ne(frame_type_name((uint8_t)_i), "?");
}
END_TEST

START_TEST(every_flipped_bit_is_refused)
{
	struct frame f = golden_frame;
	uint8_t wire[FRAME_BYTES];
	int rc;

	memcpy(wire, golden, FRAME_BYTES);
	wire[_i / 8] ^= (uint8_t)(1 << _i % 8);
	rc = frame_decode(wire, &f);
	ck_assert_int_eq(rc, _i / 8 == 4 ? TALLY_EVERSION : TALLY_EPROTO);
	assert_same(&f, &golden_frame);
}
END_TEST

START_TEST(random_bytes_with_our_magic_and_a_bad_check_are_refused)
{
	struct rng rng = { 1 };
	uint8_t wire[FRAME_BYTES];
	struct frame f;

	for (int i = 0; i < 10000; i++) {
		for (int j = 0; j < 64; j += 8)
			put_le64(wire + j, rng_u64(&rng));
		memcpy(wire, golden, 5);
		put_le32(wire + 60, crc32c(wire, 60) ^ (1u << rng_below(&rng, 32)));
		ck_assert_int_eq(frame_decode(wire, &f), TALLY_EPROTO);
	}
}
END_TEST

/* A header with a fitting check whose fields are out of range. */
static int decode_with(uint32_t at, uint32_t bytes, uint32_t value)
{
	uint8_t wire[FRAME_BYTES];
	struct frame f;

	memcpy(wire, golden, FRAME_BYTES);
	if (bytes == 1)
		wire[at] = (uint8_t)value;
	else
		put_le32(wire + at, value);
	seal(wire);
	return frame_decode(wire, &f);
}

START_TEST(fields_out_of_range_are_refused)
{
	ck_assert_int_eq(decode_with(5, 1, FRAME_NONE), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(5, 1, FRAME_TYPE_END), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(5, 1, 255), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(6, 1, DTYPE_END - 1), 0);
	ck_assert_int_eq(decode_with(6, 1, DTYPE_END), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(7, 1, ROP_END - 1), 0);
	ck_assert_int_eq(decode_with(7, 1, ROP_END), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(8, 1, FRAME_BYREF | FRAME_NODATA), 0);
	ck_assert_int_eq(decode_with(8, 1, FRAME_FLAGS + 1), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(32, 4, CHUNK_BYTES_MAX - 65536), 0);
	ck_assert_int_eq(decode_with(32, 4, CHUNK_BYTES_MAX - 65535), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(32, 4, UINT32_MAX), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(36, 4, SEG_BYTES_MAX - 131072), 0);
	ck_assert_int_eq(decode_with(36, 4, SEG_BYTES_MAX - 131071), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(36, 4, SEG_BYTES_MAX + 1), TALLY_EPROTO);
	ck_assert_int_eq(decode_with(36, 4, UINT32_MAX), TALLY_EPROTO);
}
END_TEST

START_TEST(flags_belong_to_the_types_that_have_them)
{
	for (uint8_t type = FRAME_NONE + 1; type < FRAME_TYPE_END; type++) {
		for (uint8_t flags = 0; flags <= FRAME_FLAGS; flags++) {
			struct frame f = { .type = type, .flags = flags }, back;
			bool may = !flags || (type == FRAME_PUSH && !(flags & FRAME_SCALED)) ||
				   ((type == FRAME_RESULT || type == FRAME_GIVE) &&
				    flags == FRAME_BYREF);
			uint8_t wire[FRAME_BYTES];

			frame_encode(&f, wire);
			ck_assert_int_eq(frame_decode(wire, &back), may ? 0 : TALLY_EPROTO);
		}
	}
}
END_TEST

/* A server that multiplied something else would give a wrong mean without a word. */
START_TEST(only_means_of_16_bit_floats_are_scaled)
{
	for (uint8_t dtype = DTYPE_NONE; dtype < DTYPE_END; dtype++) {
		for (uint8_t rop = ROP_NONE; rop < ROP_END; rop++) {
			for (uint32_t shift = 0; shift <= FRAME_SHIFT_MAX + 1; shift++) {
				struct frame f = { .type = FRAME_PUSH, .dtype = dtype, .rop = rop,
						   .flags = FRAME_SCALED, .aux = shift }, back;
				bool may = (dtype == DTYPE_F16 || dtype == DTYPE_BF16) &&
					   rop == ROP_MEAN && shift && shift <= FRAME_SHIFT_MAX;
				uint8_t wire[FRAME_BYTES];

				frame_encode(&f, wire);
				ck_assert_int_eq(frame_decode(wire, &back), may ? 0 : TALLY_EPROTO);
				f.flags |= FRAME_NODATA;
				frame_encode(&f, wire);
				ck_assert_int_eq(frame_decode(wire, &back), TALLY_EPROTO);
			}
		}
	}
}
END_TEST

START_TEST(another_version_is_told_before_its_check)
{
	uint8_t wire[FRAME_BYTES];
	struct frame f;

	memcpy(wire, golden, FRAME_BYTES);
	wire[4] = FRAME_VERSION + 1;	/* whatever it may check, and where */
	memset(wire + 40, 0xff, 24);
	ck_assert_int_eq(frame_decode(wire, &f), TALLY_EVERSION);
	wire[0] ^= 1;			/* but what is not ours has no version */
	ck_assert_int_eq(frame_decode(wire, &f), TALLY_EPROTO);
}
END_TEST

START_TEST(only_push_result_and_give_have_bytes_behind_them)
{
	for (uint8_t type = FRAME_NONE; type <= FRAME_TYPE_END; type++) {
		struct frame f = { .type = type, .length = 8 };

		ck_assert_int_eq(frame_has_payload(&f),
				 type == FRAME_PUSH || type == FRAME_RESULT ||
				 type == FRAME_GIVE);
		f.flags = FRAME_BYREF;
		ck_assert(!frame_has_payload(&f));
		f.flags = FRAME_NODATA;
		ck_assert(!frame_has_payload(&f));
		f = (struct frame){ .type = type };
		ck_assert(!frame_has_payload(&f));
	}
}
END_TEST

START_TEST(slots_name_slab_and_offset)
{
	uint64_t slot = SLOT_SLAB(8191, UINT64_C(0xabcdef012345));

	ck_assert_uint_eq(SLOT_SLAB_ID(slot), 8191);
	ck_assert_uint_eq(SLOT_SLAB_OFF(slot), UINT64_C(0xabcdef012345));
}
END_TEST

START_TEST(text_names_what_a_person_looks_for)
{
	char buf[256], tiny[8];

	ck_assert_str_eq(frame_text(&golden_frame, buf, sizeof(buf)),
			 "PUSH job 3 key 7.1+131072 round 12 worker 2 epoch 5 length 65536 "
			 "attempt 0 aux 0");
	ck_assert_ptr_nonnull(strstr(frame_text(&sample, buf, sizeof(buf)), " byref "));
	ck_assert_str_eq(frame_text(&golden_frame, tiny, sizeof(tiny)), "PUSH jo");
	ck_assert_str_eq(frame_type_name(0), "?");
	ck_assert_str_eq(frame_type_name(FRAME_TYPE_END), "?");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("frame");
	TCase *t = tcase_create("frame");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, golden_bytes_stay);
	tcase_add_test(t, each_field_lies_at_its_offset);
	tcase_add_loop_test(t, every_type_comes_back_as_it_went, FRAME_NONE + 1, FRAME_TYPE_END);
	tcase_add_loop_test(t, every_flipped_bit_is_refused, 0, 8 * FRAME_BYTES);
	tcase_add_test(t, random_bytes_with_our_magic_and_a_bad_check_are_refused);
	tcase_add_test(t, fields_out_of_range_are_refused);
	tcase_add_test(t, flags_belong_to_the_types_that_have_them);
	tcase_add_test(t, only_means_of_16_bit_floats_are_scaled);
	tcase_add_test(t, another_version_is_told_before_its_check);
	tcase_add_test(t, only_push_result_and_give_have_bytes_behind_them);
	tcase_add_test(t, slots_name_slab_and_offset);
	tcase_add_test(t, text_names_what_a_person_looks_for);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
