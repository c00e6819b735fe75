// SPDX-License-Identifier: Apache-2.0
/* cause.c, trouble.c: from facts to a sentence with its remedy, and how often it is said. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/trouble.h"

#define SECOND	mono_ms(1000)

static const char *text_of(const struct cause_facts *f)
{
	static char buf[ERR_TEXT_MAX + 1];

	return cause_text(cause_of(f), f, buf, sizeof(buf));
}

#define has(text, what)	ck_assert_msg(strstr(text, what) != NULL, "'%s' lacks '%s'", text, what)

START_TEST(errnos_of_connecting_have_causes)
{
	static const struct {
		int errnum;
		enum cause cause;
		const char *says[3];
	} rows[] = {
		{ ECONNREFUSED, CAUSE_REFUSED,
		  { "10.0.0.5:7471 refuses connections to server s0", "firewall", "port 7471" } },
		{ 0, CAUSE_FILTERED, { "does not answer at all", "firewall drops", "nc -vz" } },
		{ ETIMEDOUT, CAUSE_FILTERED,
		  { "does not answer at all", "10.0.0.5 7471", "open" } },
		{ EHOSTUNREACH, CAUSE_NO_ROUTE, { "no way", "ip route get 10.0.0.5", "--rail" } },
		{ ENETUNREACH, CAUSE_NO_ROUTE, { "no way", "ip route get", "--listen" } },
		{ EADDRNOTAVAIL, CAUSE_LOCAL_GONE, { "no address 10.0.0.9", "ip addr", "--rail" } },
		{ EMFILE, CAUSE_NONE, { "", "", "" } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct cause_facts f = {
			.peer = PEER_SERVER, .stage = STAGE_CONNECT, .errnum = rows[i].errnum,
			.name = "s0", .local = "10.0.0.9", .remote = "10.0.0.5", .port = 7471,
		};

		ck_assert_int_eq(cause_of(&f), rows[i].cause);
		for (int k = 0; k < 3; k++)
			has(text_of(&f), rows[i].says[k]);
	}
}
END_TEST

START_TEST(an_address_that_leads_nowhere_explains_whatever_came_of_it)
{
	struct cause_facts f = {
		.peer = PEER_SERVER, .stage = STAGE_CONNECT, .errnum = ECONNREFUSED,
		.name = "s0", .local = "10.0.0.9", .remote = "127.0.1.1", .port = 7471,
	};

	has(text_of(&f), "announced at 127.0.1.1");
	has(text_of(&f), "--listen ADDRESS:PORT");
	f.stage = STAGE_GREET;
	f.speaks = "the data port of server 's1'";
	ck_assert_int_eq(cause_of(&f), CAUSE_LOOPBACK);
	f.speaks = NULL;
	f.stage = STAGE_CONNECT;
	f.local = "127.0.0.1";		/* all on one machine */
	ck_assert_int_eq(cause_of(&f), CAUSE_REFUSED);
	f.remote = "10.0.0.5";
	f.errnum = EINVAL;
	has(text_of(&f), "127.0.0.1 leads to no other machine");
	has(text_of(&f), "--rail");
	f.local = "10.0.0.9";
	f.remote = "fd00::5";
	has(text_of(&f), "IPv4 and IPv6 do not reach each other");
	f.local = "";
	f.errnum = ECONNREFUSED;
	has(text_of(&f), "[fd00::5]:7471 refuses");
}
END_TEST

START_TEST(the_scheduler_is_named_by_its_option)
{
	struct cause_facts f = {
		.peer = PEER_SCHEDULER, .stage = STAGE_CONNECT, .errnum = ECONNREFUSED,
		.remote = "127.0.1.1", .port = 7470,
	};

	has(text_of(&f), "127.0.1.1:7470 is this machine itself");
	f.remote = "10.0.0.1";
	has(text_of(&f), "refuses connections to the scheduler");
	has(text_of(&f), "start tally-scheduler");
	f.errnum = 0;
	has(text_of(&f), "give another --scheduler");
	f.stage = STAGE_GREET;
	has(text_of(&f), "takes connections and does not answer as the scheduler");
	f.speaks = "a web server (HTTP)";
	has(text_of(&f), "what answers at 10.0.0.1:7470 is a web server (HTTP), not the scheduler");
	has(text_of(&f), "--scheduler");
}
END_TEST

START_TEST(large_packets_are_lost_where_only_small_ones_ever_passed)
{
	struct cause_facts f = {
		.peer = PEER_SERVER, .stage = STAGE_UP, .name = "s0",
		.local = "10.0.0.9", .remote = "10.0.0.5", .port = 7471,
		.stuck = true, .unacked_bytes = 65536, .mss = 1448, .mtu = 1500,
	};

	ck_assert_int_eq(cause_of(&f), CAUSE_MTU);
	has(text_of(&f), "small packets pass to server s0");
	has(text_of(&f), "`ping -M do -s 1472 10.0.0.5` from 10.0.0.9");
	f.remote = "fd00::5";
	f.local = "fd00::9";
	has(text_of(&f), "ping -M do -s 1452 fd00::5");
	f.closed = true;
	ck_assert_int_eq(cause_of(&f), CAUSE_MTU);
	f.proven = true;
	ck_assert_int_eq(cause_of(&f), CAUSE_NONE);
	f.closed = false;
	f.errnum = ETIMEDOUT;
	ck_assert_int_eq(cause_of(&f), CAUSE_SILENT);
	f.proven = false;
	f.stuck = false;
	ck_assert_int_eq(cause_of(&f), CAUSE_SILENT);
	f.stuck = true;
	f.unacked_bytes = 64;
	ck_assert_int_eq(cause_of(&f), CAUSE_SILENT);
	f.errnum = ECONNRESET;
	ck_assert_int_eq(cause_of(&f), CAUSE_NONE);
	f.stage = STAGE_GREET;
	ck_assert_int_eq(cause_of(&f), CAUSE_DENIED);
	f.other = "s0";			/* another process of that server */
	ck_assert_int_eq(cause_of(&f), CAUSE_NONE);
	f.other = "s17";
	has(text_of(&f), "is server s17's port, not server s0's");
}
END_TEST

START_TEST(every_sentence_is_whole_and_fits_a_text)
{
	char name[NAME_LEN_MAX + 1], buf[ERR_TEXT_MAX + 1];
	struct cause_facts f = {
		.name = name, .local = "2001:db8:1111:2222:3333:4444:5555:6666",
		.remote = "2001:db8:1111:2222:3333:4444:5555:7777", .port = 65535,
		.speaks = "another program, which says \"0123456789abcdef\"", .mtu = 65535,
	};

	memset(name, 'n', NAME_LEN_MAX);
	name[NAME_LEN_MAX] = '\0';
	for (int c = CAUSE_NONE + 1; c < CAUSE_END; c++) {
		for (f.peer = PEER_SERVER; f.peer <= PEER_SCHEDULER; f.peer++) {
			cause_text(c, &f, buf, sizeof(buf));
			ck_assert_ptr_nonnull(strstr(buf, "; "));
			ck_assert_ptr_null(strchr(buf, '%'));
			ck_assert_uint_lt(strlen(buf), ERR_TEXT_MAX);
			for (size_t n = 1; n < sizeof(buf); n += 7) {
				char cut[ERR_TEXT_MAX + 1];

				cause_text(c, &f, cut, n);
				ck_assert_uint_lt(strlen(cut), n);
				ck_assert(!strncmp(cut, buf, strlen(cut)));
			}
		}
	}
	ck_assert_str_eq(cause_text(CAUSE_NONE, &f, buf, sizeof(buf)), "");
}
END_TEST

/* ---- how often it is said ---- */

static struct trouble t;

START_TEST(a_link_that_flaps_is_said_once_a_minute_with_counts)
{
	mono_t now = SECOND;
	uint32_t said = 0;

	memset(&t, 0, sizeof(t));
	ck_assert_uint_eq(trouble_note(&t, "s0", 0, CAUSE_MTU, "large ones are lost", now), 1);
	for (int i = 1; i <= 59; i++)
		ck_assert_uint_eq(trouble_note(&t, "s0", 0, i % 2 ? CAUSE_SILENT : CAUSE_MTU,
					       "again", now + i * SECOND), 0);
	said = trouble_note(&t, "s0", 0, CAUSE_SILENT, "again", now + 60 * SECOND);
	ck_assert_uint_eq(said, 60);
	ck_assert_int_eq(trouble_of(&t, "s0")->cause, CAUSE_MTU);
	ck_assert_uint_eq(trouble_note(&t, "s1", 0, CAUSE_REFUSED, "refused", now), 1);
	ck_assert_str_eq(trouble_first(&t, MONO_NEVER)->peer, "s0");
	ck_assert(trouble_over(&t, "s0", 0));
	ck_assert(!trouble_over(&t, "s0", 0));
	ck_assert_str_eq(trouble_first(&t, MONO_NEVER)->peer, "s1");
	ck_assert_uint_eq(trouble_note(&t, "s0", 0, CAUSE_SILENT, "x", now + 61 * SECOND), 0);
	ck_assert(!trouble_over(&t, "s0", 0));	/* nor is that it is back */
}
END_TEST

START_TEST(a_better_cause_is_said_at_once)
{
	mono_t now = SECOND;

	memset(&t, 0, sizeof(t));
	ck_assert_uint_eq(trouble_note(&t, "s0", 0, CAUSE_SILENT, "nothing comes", now), 1);
	ck_assert_uint_eq(trouble_note(&t, "s0", 0, CAUSE_NONE, "reset", now + SECOND), 0);
	ck_assert_uint_eq(trouble_note(&t, "s0", 0, CAUSE_FILTERED, "drops", now + 2 * SECOND), 2);
	ck_assert_uint_eq(trouble_note(&t, "s0", 0, CAUSE_REFUSED, "refused", now + 3 * SECOND), 0);
	ck_assert_str_eq(trouble_of(&t, "s0")->text, "refused");
	trouble_leave(&t, "s0", 0, now + 5 * SECOND);
	ck_assert_ptr_null(trouble_first(&t, MONO_NEVER));
	ck_assert_ptr_null(trouble_first(&t, now + 6 * SECOND));
	ck_assert_str_eq(trouble_first(&t, now + 5 * SECOND)->text, "refused");
}
END_TEST

START_TEST(a_peer_is_in_trouble_while_one_engine_is)
{
	memset(&t, 0, sizeof(t));
	ck_assert_uint_eq(trouble_note(&t, "s0", 0, CAUSE_MTU, "x", SECOND), 1);
	ck_assert_uint_eq(trouble_note(&t, "s0", 3, CAUSE_MTU, "x", SECOND), 0);
	ck_assert(!trouble_over(&t, "s0", 0));
	ck_assert_ptr_nonnull(trouble_of(&t, "s0"));
	ck_assert(!trouble_over(&t, "s0", 3));	/* the log has not had that one */
	ck_assert_ptr_null(trouble_of(&t, "s0"));
}
END_TEST

START_TEST(more_peers_than_rows_are_said_and_not_kept)
{
	char name[16];

	memset(&t, 0, sizeof(t));
	for (uint32_t i = 0; i < 2 * TROUBLE_ROWS; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_uint_eq(trouble_note(&t, name, 0, CAUSE_MTU, "x", SECOND + i), 1);
	}
	ck_assert_str_eq(trouble_first(&t, MONO_NEVER)->peer, "s0");
	ck_assert_ptr_null(trouble_of(&t, "s32"));
	ck_assert(trouble_over(&t, "s0", 0));
	ck_assert_uint_eq(trouble_note(&t, "s32", 0, CAUSE_MTU, "x", 2 * SECOND), 1);
	ck_assert_ptr_nonnull(trouble_of(&t, "s32"));
	ck_assert_ptr_null(trouble_of(&t, "s3"  "2x"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cause");
	TCase *c = tcase_create("cause");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, errnos_of_connecting_have_causes);
	tcase_add_test(c, an_address_that_leads_nowhere_explains_whatever_came_of_it);
	tcase_add_test(c, the_scheduler_is_named_by_its_option);
	tcase_add_test(c, large_packets_are_lost_where_only_small_ones_ever_passed);
	tcase_add_test(c, every_sentence_is_whole_and_fits_a_text);
	tcase_add_test(c, a_link_that_flaps_is_said_once_a_minute_with_counts);
	tcase_add_test(c, a_better_cause_is_said_at_once);
	tcase_add_test(c, a_peer_is_in_trouble_while_one_engine_is);
	tcase_add_test(c, more_peers_than_rows_are_said_and_not_kept);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
