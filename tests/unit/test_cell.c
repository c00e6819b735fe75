// SPDX-License-Identifier: Apache-2.0
/* cell.c: the bytes that docs/CELL.md prints, both byte orders, and nothing else reads. */
#include <check.h>
#include <stdlib.h>

#include "proto/cell.h"

/* An ADD of worker 2 to position 70007 of lane 3; everything before 90990 has arrived. */
static const struct cell sample = {
	.type = CELL_ADD, .key = 0x5eed1234, .lane = 3, .worker = 2, .p = 70007, .pn = 91234,
	.ack = 90990, .sack = UINT64_MAX,
};

static const uint8_t golden[CELL_BYTES] = {
	0xc7, 0x11, 0x00, 0x00, 0x34, 0x12, 0xed, 0x5e,
	0x03, 0x00, 0x02, 0x00, 0x77, 0x11, 0x01, 0x00,
	0x62, 0x64, 0x01, 0x00, 0x6e, 0x63, 0x01, 0x00,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
};

static void assert_same(const struct cell *a, const struct cell *b)
{
	uint8_t wa[CELL_BYTES], wb[CELL_BYTES];

	cell_encode(a, wa);
	cell_encode(b, wb);
	ck_assert_mem_eq(wa, wb, CELL_BYTES);
}

START_TEST(golden_bytes_stay)
{
	uint8_t wire[CELL_BYTES];
	struct cell f;

	cell_encode(&sample, wire);
	ck_assert_mem_eq(wire, golden, CELL_BYTES);
	ck_assert_int_eq(cell_decode(golden, &f), 0);
	assert_same(&f, &sample);
}
END_TEST

START_TEST(big_endian_flag_swaps_every_field_and_reads_back)
{
	struct cell f, be = sample;
	uint8_t wire[CELL_BYTES];

	be.flags = CELL_BE | CELL_RESENT;
	be.sack = 0x0102030405060708;
	cell_encode(&be, wire);
	ck_assert_int_eq(wire[4], 0x5e);
	ck_assert_int_eq(wire[9], 3);
	ck_assert_int_eq(wire[11], 2);
	ck_assert_int_eq(wire[24], 1);
	ck_assert_int_eq(wire[31], 8);
	ck_assert_int_eq(cell_decode(wire, &f), 0);
	assert_same(&f, &be);
	ck_assert_uint_eq(f.p, 70007);
}
END_TEST

START_TEST(other_magic_version_type_and_flags_are_refused)
{
	struct cell f = { .p = 42 };
	uint8_t wire[CELL_BYTES];

	memcpy(wire, golden, sizeof(wire));
	wire[0] = 0xc8;
	ck_assert_int_eq(cell_decode(wire, &f), TALLY_EPROTO);
	wire[0] = CELL_MAGIC;
	wire[1] = 0x21;
	ck_assert_int_eq(cell_decode(wire, &f), TALLY_EVERSION);
	for (int type = 0; type < 16; type++) {
		bool known = type > CELL_NONE && type < CELL_TYPE_END;

		wire[1] = (uint8_t)(0x10 | type);
		ck_assert_int_eq(cell_decode(wire, &f), known ? 0 : TALLY_EPROTO);
		ck_assert_int_eq(strcmp(cell_type_name((uint8_t)type), "?") != 0, known);
	}
	f.p = 42;
	wire[1] = 0x11;
	wire[2] = 0x10;
	ck_assert_int_eq(cell_decode(wire, &f), TALLY_EPROTO);
	wire[2] = CELL_WIDE;	/* of an ADD */
	ck_assert_int_eq(cell_decode(wire, &f), TALLY_EPROTO);
	ck_assert_uint_eq(f.p, 42);
}
END_TEST

/* type, flags, payload, fits */
static const struct {
	uint8_t type, flags;
	size_t payload;
	bool fits;
} lengths[] = {
	{ CELL_ADD, 0, 0, false }, { CELL_ADD, 0, 1, true },
	{ CELL_ADD, 0, CELL_PAYLOAD_MAX, true }, { CELL_ADD, 0, CELL_PAYLOAD_MAX + 1, false },
	{ CELL_SUM, 0, 0, false }, { CELL_SUM, 0, 1408, true }, { CELL_SUMMED, 0, 4, true },
	{ CELL_ACK, 0, 0, true }, { CELL_ACK, 0, 8, false },
	{ CELL_ACK, CELL_WIDE, CELL_WIDE_BYTES, true }, { CELL_ACK, CELL_WIDE, 0, false },
	{ CELL_PING, 0, 0, true }, { CELL_PING, 0, 1, false }, { CELL_STOP, 0, 0, true },
	{ CELL_STOP, 0, 1, false }, { CELL_PATH, 0, 0, true },
	{ CELL_PATH, 0, CELL_PAYLOAD_MAX, true }, { CELL_PATH_OK, 0, CELL_PAYLOAD_MAX + 1, false },
};

START_TEST(payload_has_the_length_of_its_type)
{
	static uint8_t datagram[CELL_BYTES + CELL_PAYLOAD_MAX + 1];
	struct cell f = { .type = lengths[_i].type, .flags = lengths[_i].flags }, got;

	cell_encode(&f, datagram);
	ck_assert_int_eq(cell_read(datagram, CELL_BYTES + lengths[_i].payload, &got),
			 lengths[_i].fits ? 0 : TALLY_EPROTO);
}
END_TEST

START_TEST(datagram_shorter_than_a_header_is_refused)
{
	struct cell f;

	for (size_t len = 0; len < CELL_BYTES; len++)
		ck_assert_int_eq(cell_read(golden, len, &f), TALLY_EPROTO);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cell");
	TCase *t = tcase_create("bytes");
	SRunner *r;
	int failed;

	tcase_add_test(t, golden_bytes_stay);
	tcase_add_test(t, big_endian_flag_swaps_every_field_and_reads_back);
	tcase_add_test(t, other_magic_version_type_and_flags_are_refused);
	tcase_add_loop_test(t, payload_has_the_length_of_its_type, 0, (int)ARRAY_SIZE(lengths));
	tcase_add_test(t, datagram_shorter_than_a_header_is_refused);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
