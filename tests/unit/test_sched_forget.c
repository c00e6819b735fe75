// SPDX-License-Identifier: Apache-2.0
/* sched_node.c, sched_refused.c: what is shown of nodes that are gone or were refused. */
#include "scheduler/sched_refused.h"
#include "tests/unit/sched_rig.h"

static uint32_t cli;

static void setup_cli(void)
{
	cli = conn_up();
}

static void ck_shown(const char *line)
{
	query(cli);
	ck_assert_msg(strstr(shown, line), "'%s' is not in:\n%s", line, shown);
}

static void ck_not_shown(const char *text)
{
	query(cli);
	ck_assert_msg(!strstr(shown, text), "'%s' is in:\n%s", text, shown);
}

static void forget(uint64_t req, const char *name)
{
	struct msg m = { .type = MSG_NODE_FORGET, .node_forget = { .req = req, .name = name } };

	send(cli, &m);
}

static void drain(const char *name, bool undo)
{
	struct msg m = { .type = MSG_DRAIN, .drain = { .req = 99, .name = name, .undo = undo } };

	send(cli, &m);
}

/* ---- nodes that are gone ---- */

START_TEST(a_node_shows_its_state_since_when_and_why)
{
	uint32_t s = hello(NODE_SERVER, "s");

	pass(2000);
	ck_shown("s up 2 s, registered\n");
	conn_closed(s);
	pass(RECONNECT_GRACE_MS + 4000);
	ck_shown("s dead 4 s, connection closed\n");
	s = hello(NODE_SERVER, "s");
	pass(LEASE_MS + 1000);
	ck_shown("s dead 1 s, lease ran out\n");
}
END_TEST

START_TEST(a_drained_server_shows_since_when_and_one_that_ends_then_has_left)
{
	uint32_t s = hello(NODE_SERVER, "s");

	pass(1000);
	drain("s", false);
	heartbeat(s, 1);
	pass(1000);
	drain("s", false);		/* once more changes nothing */
	ck_shown("s drained 1 s, tally drain\n");
	drain("s", true);
	ck_shown("s up 0 s, tally drain --undo\n");
	drain("s", false);
	conn_closed(s);
	pass(RECONNECT_GRACE_MS);
	ck_shown("s left 0 s, connection closed\n");
}
END_TEST

START_TEST(dead_nodes_are_shown_for_an_hour)
{
	uint32_t s = hello(NODE_SERVER, "s"), stays = hello(NODE_AGENT, "a");

	conn_closed(s);
	pass(RECONNECT_GRACE_MS);
	pass_beating(NODE_SHOWN_MS - 2000, &stays, 1);
	ck_shown("s dead 3598 s");
	pass_beating(4000, &stays, 1);
	ck_not_shown("s dead");
	ck_shown("a up 3602 s");
}
END_TEST

START_TEST(a_dead_node_is_forgotten_at_once_and_only_that)
{
	uint32_t s = hello(NODE_SERVER, "x");

	hello(NODE_AGENT, "x");		/* of the same name, and up */
	conn_closed(s);
	pass(RECONNECT_GRACE_MS);
	forget(1, "x");
	ck_answer(cli, 1, 0, "");
	ck_not_shown("x dead");
	ck_shown("x up");
	ck_assert_uint_eq(sched_nodes_up(w->s), 1);
	hello(NODE_SERVER, "x");
	ck_assert_uint_eq(sched_nodes_up(w->s), 2);
}
END_TEST

START_TEST(what_is_there_is_not_forgotten_and_the_answer_says_what_to_do)
{
	uint32_t s = hello(NODE_SERVER, "s");

	hello(NODE_AGENT, "a");
	forget(1, "s");
	ck_answer(cli, 1, TALLY_EBUSY, "server 's' is up; drain it ('tally drain s'), stop "
		  "tally-server on machine s, then forget it");
	forget(2, "a");
	ck_answer(cli, 2, TALLY_EBUSY, "agent 'a' is up; stop tally-agent on machine a, then "
		  "forget it");
	conn_closed(s);
	forget(3, "s");
	ck_assert_int_eq(answer(cli, 3)->code, TALLY_EBUSY);
	forget(4, "nobody");
	ck_answer(cli, 4, TALLY_ENOENT, "there is no node 'nobody'; tally nodes lists them");
}
END_TEST

/* ---- nodes that were refused ---- */

static void restart_with_secret(void)
{
	sched_free(w->s);
	w->n = 0;
	world_open(w->saved, 0, "sesame");
	cli = conn_up();
}

static uint32_t hello_by(const char *addr, enum node_kind kind, const char *name,
			 const char *secret)
{
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = kind,
		.name = name, .machine = "m", .instance = { 7 }, .secret = secret,
		.naddrs = 1, .addrs = &(struct msg_addr){ "10.0.0.1", 7471, 0 },
		.shm_path = "", .engines = 1,
	} };
	uint32_t conn = conn_up();

	peer = addr;
	send(conn, &m);
	peer = "10.0.0.9:51812";
	return conn;
}

static void ask(void)
{
	hello_by("10.0.0.9:1", NODE_CLI, "tally", "sesame");
	cli = w->conns - 1;
}

START_TEST(a_refused_node_is_shown_with_address_reason_and_count)
{
	restart_with_secret();
	hello_by("10.0.0.3:4711", NODE_SERVER, "s", "wrong");
	hello_by("10.0.0.3:4712", NODE_SERVER, "s", "wrong");
	hello_by("[fe80::1]:4712", NODE_AGENT, "a", "");
	ask();
	ck_shown("! s 10.0.0.3 EAUTH 2 times, wrong join secret; ");
	ck_shown("! a fe80::1 EAUTH 1 times, wrong join secret; ");
	hello_by("10.0.0.3:4713", NODE_SERVER, "s", "sesame");
	ck_not_shown("! s");		/* it was taken */
	ck_shown("! a ");
	hello_by("10.0.0.3:4714", NODE_CLI, "tally", "wrong");
	ck_not_shown("! tally");	/* a command says so itself */
}
END_TEST

START_TEST(a_name_that_is_taken_is_shown_as_refused_too)
{
	uint32_t a = hello_by("10.0.0.3:1", NODE_AGENT, "a", "");
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = NODE_AGENT,
		.name = "a", .machine = "other", .instance = { 8 }, .secret = "", .naddrs = 1,
		.addrs = &(struct msg_addr){ "10.0.0.1", 7471, 0 }, .shm_path = "", .engines = 1,
	} };
	uint32_t other = conn_up();

	send(other, &m);
	ck_shown("! a 10.0.0.9 EEXIST 1 times, agent 'a' is registered already");
	forget(1, "a");
	ck_answer(cli, 1, 0, "");
	ck_not_shown("! a");
	ck_shown("a up");
	ck_assert_uint_eq(w->closes[a], 0);
}
END_TEST

START_TEST(what_is_no_message_is_shown_by_its_address)
{
	const struct err why = { TALLY_EVERSION, "message of version 20569" };
	uint32_t conn = conn_up(), known = hello(NODE_AGENT, "a");

	step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = conn,
				   .peer = "10.0.0.4:80", .why = &why });
	ck_shown("!  10.0.0.4 EVERSION 1 times, message of version 20569\n");
	step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = known,
				   .peer = "10.0.0.5:80", .why = &why });
	ck_not_shown("10.0.0.5");	/* it is away, and shown so */
}
END_TEST

START_TEST(refusals_are_shown_for_an_hour)
{
	uint32_t stays = hello(NODE_AGENT, "a");
	const struct err why = { TALLY_EPROTO, "no message" };
	uint32_t conn = conn_up();

	step((struct sched_event){ .type = SCHED_EV_CLOSED, .conn = conn, .why = &why });
	pass_beating(NODE_SHOWN_MS - 2000, &stays, 1);
	ck_shown("!   EPROTO");
	pass_beating(4000, &stays, 1);
	ck_not_shown("!");
}
END_TEST

static uint32_t rows_of(const struct refusals *all, const char *addr)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < all->n; i++)
		n += !strcmp(all->row[i].addr, addr);
	return n;
}

START_TEST(a_flood_from_one_address_displaces_its_own_rows)
{
	struct refusals all = { 0 };
	const struct err why = { TALLY_EAUTH, "wrong join secret" };
	char name[16];

	refused_note(&all, false, NODE_AGENT, "mine", "10.0.0.1:1", &why, 1);
	refused_note(&all, true, NODE_AGENT, "known", "10.0.0.66:1", &why, 1);
	for (uint32_t i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		refused_note(&all, false, NODE_SERVER, name, "10.0.0.66:1", &why, 2 + i);
	}
	ck_assert_uint_eq(all.n, REFUSED_MAX / 2 + 1);
	ck_assert_uint_eq(rows_of(&all, "10.0.0.1"), 1);
	ck_assert_str_eq(all.row[0].name, "n9999");
	for (uint32_t i = 0; i < 1000; i++) {	/* and from many */
		snprintf(name, sizeof(name), "10.0.1.%u:1", i);
		refused_note(&all, false, NODE_AGENT, "x", name, &why, 20000 + i);
	}
	ck_assert_uint_eq(all.n, REFUSED_MAX / 2 + 1);
	ck_assert_uint_eq(refused_forget(&all, "known"), 1);
}
END_TEST

START_TEST(what_a_stranger_says_of_itself_is_plain)
{
	struct refusals all = { 0 };
	const struct err why = { TALLY_EAUTH, "a \xe2\x80\xae b" };

	refused_note(&all, false, NODE_AGENT, "a\xe2\x80\xae" "b\xc3\xa4", "10.0.0.1:1", &why, 1);
	ck_assert_str_eq(all.row[0].name, "a???b??");
	ck_assert_str_eq(all.row[0].why, "a ??? b");
	refused_note(&all, true, NODE_AGENT, "\xc3\xa4", "10.0.0.1:1", &why, 2);
	ck_assert_str_eq(all.row[0].name, "\xc3\xa4");
	ck_assert_uint_eq(refused_forget(&all, "a\xe2\x80\xae" "b\xc3\xa4"), 1);
	refused_taken(&all, NODE_AGENT, "\xc3\xa4", "10.0.0.1:9");
	ck_assert_uint_eq(all.n, 0);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_checked_fixture(t, setup_cli, NULL);
	tcase_add_test(t, a_node_shows_its_state_since_when_and_why);
	tcase_add_test(t, a_drained_server_shows_since_when_and_one_that_ends_then_has_left);
	tcase_add_test(t, dead_nodes_are_shown_for_an_hour);
	tcase_add_test(t, a_dead_node_is_forgotten_at_once_and_only_that);
	tcase_add_test(t, what_is_there_is_not_forgotten_and_the_answer_says_what_to_do);
	tcase_add_test(t, a_refused_node_is_shown_with_address_reason_and_count);
	tcase_add_test(t, a_name_that_is_taken_is_shown_as_refused_too);
	tcase_add_test(t, what_is_no_message_is_shown_by_its_address);
	tcase_add_test(t, refusals_are_shown_for_an_hour);
	tcase_add_test(t, a_flood_from_one_address_displaces_its_own_rows);
	tcase_add_test(t, what_a_stranger_says_of_itself_is_plain);
}

int main(void)
{
	return rig_main("sched_forget", add);
}
