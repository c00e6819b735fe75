// SPDX-License-Identifier: Apache-2.0
/* speech.c: a port that was mistaken for another is known by its first bytes. */
#include <check.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/msg.h"
#include "proto/speech.h"

static const char *speech(enum speech_of expected, const void *bytes, size_t n)
{
	static char buf[SPEECH_TEXT];

	return speech_of(expected, bytes, n, buf);
}

START_TEST(bytes_of_other_programs_are_called_by_their_names)
{
	const struct frame f = { .type = FRAME_PING };
	uint8_t ping[FRAME_BYTES], p[MSG_PREFIX_BYTES] = { 9, 0, 0, 0, MSG_REPLY, 0, MSG_VERSION };
	uint32_t bytes, type;
	struct err e;

	frame_encode(&f, ping);
	for (int i = 0; i < 2; i++) {
		enum speech_of x = i ? SPEECH_DATA : SPEECH_CONTROL;

		ck_assert_str_eq(speech(x, "HTTP/1.1 400 Bad", 16), "a web server (HTTP)");
		ck_assert_str_eq(speech(x, "<!DOCTYPE HTML", 8), "a web server (HTTP)");
		ck_assert_str_eq(speech(x, "GET / HT", 8), "a web client (HTTP)");
		ck_assert_str_eq(speech(x, "SSH-2.0-", 8), "an SSH server or client");
		ck_assert_str_eq(speech(x, "\x15\x03\x01\0\x02\x02\x46", 7),
				 "a TLS server or client");
		ck_assert_str_eq(speech(x, "220 mail.example ESMTP", 22),
				 "another program, which says \"220 mail.example\"");
		ck_assert_str_eq(speech(x, "-ERR\r\n", 6),
				 "another program, which says \"-ERR\"");
		ck_assert_str_eq(speech(x, "\1\2\3\4\5\6\7\xff", 8), "");
		ck_assert_str_eq(speech(x, "", 0), "");
	}
	ck_assert_str_eq(speech(SPEECH_CONTROL, ping, 8),
			 "a Tally data link (a server's --listen port)");
	ck_assert_str_eq(speech(SPEECH_DATA, p, 8),
			 "a Tally control connection (a scheduler's port)");
	for (size_t n = 1; n <= 8; n++) {	/* and Tally's own, as far as it has come */
		ck_assert_str_eq(speech(SPEECH_DATA, ping, n), "");
		ck_assert_str_eq(speech(SPEECH_CONTROL, p, n), "");
	}
	ck_assert_int_eq(msg_prefix_decode((const uint8_t *)"<!DOCTYP", &bytes, &type, &e),
			 TALLY_EPROTO);
	ck_assert_ptr_nonnull(strstr(e.text, "a web server (HTTP)"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("speech");
	TCase *c = tcase_create("speech");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, bytes_of_other_programs_are_called_by_their_names);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
