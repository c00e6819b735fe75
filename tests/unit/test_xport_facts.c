// SPDX-License-Identifier: Apache-2.0
/* xport_facts.c: what is known of a link that did not come about, and of one that went. */
#include "tests/unit/xport_rig.h"

/* The link's listener answers its HELLO by those bytes, and closes. */
static enum cause answered(const void *bytes, size_t n, const char *name)
{
	struct rig r;
	int fd;

	ck_assert(rig_open(&r, 0));
	r.a.name = name;
	connect_link(&r, &r.a);
	let_pass(&r, 1);
	fd = accept(r.listener, NULL, NULL);
	(void)raw_read(&r, fd);
	if (n)
		raw_write(fd, bytes, n);
	close(fd);
	UNTIL(&r, r.a.closes == 1);
	rig_close(&r);
	return r.a.cause;
}

static enum cause said(const char *text)
{
	return answered(text, strlen(text), "s0");
}

START_TEST(other_programs_are_known_by_their_answer)
{
	static const uint8_t reply[] = { 2, 0, 0, 0, 3, 0, 1, 0, 8, 1 };	/* a scheduler's */

	ck_assert_int_eq(said("SSH-2.0-OpenSSH_9.2\r\n"), CAUSE_WRONG_PORT);
	ck_assert_int_eq(said("HTTP/1.1 400 Bad Request\r\nServer: a\r\nDate: today, and on; it is "
			      "longer than a frame\r\n\r\n"), CAUSE_WRONG_PORT);
	ck_assert_int_eq(said("\x15\x03\x01"), CAUSE_WRONG_PORT);
	ck_assert_int_eq(answered(reply, sizeof(reply), "s0"), CAUSE_WRONG_PORT);
	ck_assert_int_eq(said(""), CAUSE_DENIED);
}
END_TEST

START_TEST(another_server_says_its_name)
{
	struct frame f = { .type = FRAME_REFUSED, .aux = -TALLY_ENOENT, .epoch = 9 };
	uint8_t wire[FRAME_BYTES], name[HELLO_NAME_BYTES] = "s1";

	f.slot = get_le64(name);
	f.rslot = get_le64(name + 8);
	frame_encode(&f, wire);
	ck_assert_int_eq(answered(wire, sizeof(wire), "s0"), CAUSE_OTHER_SERVER);
	/* Of the server that is meant it is another process. */
	ck_assert_int_eq(answered(wire, sizeof(wire), "s1"), CAUSE_NONE);
	f.aux = -TALLY_EAUTH;
	frame_encode(&f, wire);
	ck_assert_int_eq(answered(wire, sizeof(wire), "s0"), CAUSE_NONE);
}
END_TEST

START_TEST(nobody_there_is_refused)
{
	struct rig r;

	ck_assert(rig_open(&r, 0));
	shutdown(r.listener, SHUT_RDWR);
	close(r.listener);
	r.listener = open("/dev/null", O_RDONLY);
	connect_link(&r, &r.a);
	UNTIL(&r, r.a.closes == 1);
	ck_assert_int_eq(r.a.cause, CAUSE_REFUSED);
	rig_close(&r);
}
END_TEST

/* However long it takes: it is not the path that large packets do not pass. */
START_TEST(a_peer_that_reads_nothing_is_no_hole)
{
	uint8_t *data = calloc(1, SEG_BYTES_MAX);
	struct cause_facts f;
	struct rig r;
	int fd;

	ck_assert(rig_open(&r, 0));
	fd = raw_peer(&r);
	for (uint32_t i = 0; i < 32; i++)
		ck_assert_int_eq(send_push(&r.b, data, SEG_BYTES_MAX, 1 + i), 0);
	for (int i = 0; i < 10; i++) {
		let_pass(&r, 250);
		raw_frame(fd, &(struct frame){ .type = FRAME_PING });
		xport_facts(r.b.ep, &f);
		ck_assert_int_ne(cause_of(&f), CAUSE_MTU);
	}
	close(fd);
	UNTIL(&r, r.b.closes == 1);
	rig_close(&r);
	free(data);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, other_programs_are_known_by_their_answer);
	tcase_add_test(t, another_server_says_its_name);
	tcase_add_test(t, nobody_there_is_refused);
	tcase_add_test(t, a_peer_that_reads_nothing_is_no_hole);
}

int main(void)
{
	return rig_main("xport_facts", add);
}
