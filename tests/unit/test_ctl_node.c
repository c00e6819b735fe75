// SPDX-License-Identifier: Apache-2.0
/* A node's registration against a scheduler that misbehaves as the test wants. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/ctl/ctl.h"
#include "common/rt/notify.h"
#include "tests/unit/loop_wait.h"
#include "tests/unit/notify_ear.h"

#define HEARTBEAT	15u		/* ms, in these tests */
#define LEASE		90u
#define WATCHDOG	"20000"		/* us */

/* The scheduler. */
static struct {
	struct listener *li;
	struct ctl *c;			/* the newest connection */
	uint32_t live, accepted, hellos, heartbeats;
	uint64_t epoch_seen, seq;
	uint8_t cluster0;
	uint32_t draining;
	char name[32], secret[32];
	uint64_t epoch;			/* to hand out */
	int refuse;			/* this code instead of WELCOME */
	bool mute;			/* no echoes */
	bool silent;			/* no WELCOME either */
} sched;

/* The node. */
static struct {
	struct ctl_node *n;
	uint32_t ups, msgs, downs, refusals, replaced, beats;
	struct err why;
	struct msg_welcome welcome;
	enum msg_type type;
	bool stop_in_down, stop_in_up, stop_in_refused, stop_in_replaced, trains;
	const char *secret;
} node;

static struct loop *loop;

/* ---- the scheduler's side ---- */

static void send_welcome(struct ctl *c)
{
	struct msg m = { .type = MSG_WELCOME, .welcome = {
		.version = MSG_VERSION, .node = 4, .cluster = { 42 }, .epoch = sched.epoch,
		.heartbeat_ms = HEARTBEAT, .lease_ms = LEASE } };
	struct err e;

	ck_assert_msg(ctl_send(c, &m, &e) == 0, "%s", e.text);
}

static void on_hello(struct ctl *c, const struct msg_hello *h)
{
	sched.hellos++;
	sched.seq = node.beats;		/* what was under way on a connection before is lost */
	sched.epoch_seen = h->epoch_seen;
	sched.cluster0 = h->cluster[0];
	sched.draining = h->draining;
	snprintf(sched.name, sizeof(sched.name), "%s", h->name);
	snprintf(sched.secret, sizeof(sched.secret), "%s", h->secret);
	if (sched.refuse)
		ctl_reply(c, 0, sched.refuse, "not you");
	else if (!sched.silent)
		send_welcome(c);
}

static void on_sched_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	(void)ctx;
	if (m->type == MSG_HELLO) {
		on_hello(c, &m->hello);
	} else if (m->type == MSG_HEARTBEAT) {
		sched.heartbeats++;
		ck_assert_uint_eq(m->heartbeat.seq, ++sched.seq);
		ck_assert_uint_eq(m->heartbeat.links, 3);
		if (!sched.mute)
			ctl_send(c, m, NULL);
	}
}

static void on_sched_closed(void *ctx, struct ctl *c, const struct err *e)
{
	(void)ctx;
	(void)e;
	sched.live--;
	if (c == sched.c)
		sched.c = NULL;
}

static const struct ctl_cb sched_cb = { .msg = on_sched_msg, .closed = on_sched_closed };

static void on_accepted(void *ctx, int fd)
{
	(void)ctx;
	sched.accepted++;
	sched.live++;
	ck_assert_int_eq(ctl_adopt(loop, &sched.c, fd, &sched_cb, NULL, NULL), 0);
}

static void listen_on(uint16_t port)
{
	struct err e;

	ck_assert_msg(listener_tcp(loop, &sched.li, "127.0.0.1", port, on_accepted, NULL, &e) == 0,
		      "%s", e.text);
}

/* ---- the node's side ---- */

static void stop_node(void)
{
	ctl_node_stop(node.n);
	node.n = NULL;
}

static void on_up(void *ctx, const struct msg_welcome *w)
{
	ck_assert_ptr_eq(ctx, &node);
	node.ups++;
	node.welcome = *w;
	if (node.stop_in_up)
		stop_node();
}

static void on_msg(void *ctx, const struct msg *m)
{
	(void)ctx;
	node.msgs++;
	node.type = m->type;
}

static void on_down(void *ctx, const struct err *why)
{
	(void)ctx;
	node.downs++;
	node.why = *why;
	if (node.stop_in_down)
		stop_node();
}

static void on_refused(void *ctx, const struct err *why)
{
	(void)ctx;
	node.refusals++;
	node.why = *why;
	if (node.stop_in_refused)
		stop_node();
}

static void on_replaced(void *ctx, const struct err *why)
{
	(void)ctx;
	node.replaced++;
	node.why = *why;
	if (node.stop_in_replaced)
		stop_node();
}

static void on_heartbeat(void *ctx, struct msg_heartbeat *hb)
{
	(void)ctx;
	node.beats++;
	hb->links = 3;
}

static const char *secret(void *ctx)
{
	(void)ctx;
	return node.secret ? node.secret : "";
}

static bool trains(void *ctx)
{
	(void)ctx;
	return node.trains;
}

static const struct ctl_node_cb node_cb = {
	.up = on_up, .msg = on_msg, .down = on_down, .refused = on_refused,
	.replaced = on_replaced, .heartbeat = on_heartbeat, .secret = secret,
	.trains = trains,
};

static void start_node(uint16_t port)
{
	char name[] = "gpu-a", addr[] = "10.0.0.1";
	struct msg_addr rail = { .host = addr };
	struct msg_hello hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = NODE_AGENT,
		.name = name, .machine = "m", .secret = "", .naddrs = 1, .addrs = &rail,
		.shm_path = "", .epoch_seen = 5, .engines = 1,
	};
	struct err e;

	ck_assert_msg(ctl_node_start(loop, &node.n, "127.0.0.1", port, &hello, &node_cb, &node,
				     &e) == 0, "%s", e.text);
	memset(name, 'x', sizeof(name) - 1);	/* hello was copied */
	memset(addr, 'x', sizeof(addr) - 1);
	memset(&hello, 0xee, sizeof(hello));
}

static void setup(void)
{
	memset(&sched, 0, sizeof(sched));
	memset(&node, 0, sizeof(node));
	sched.epoch = 7;
	ck_assert_int_eq(loop_new(&loop, NULL), 0);
	listen_on(0);
}

static void teardown(void)
{
	ctl_node_stop(node.n);
	if (sched.c)
		ctl_close(sched.c);
	listener_close(sched.li);
	loop_free(loop);
	ck_assert_uint_eq(sched.live, 0);
}

/* ---- promises ---- */

START_TEST(node_registers_and_keeps_its_heartbeat)
{
	start_node(listener_port(sched.li));
	ck_assert(!ctl_node_is_up(node.n));
	loop_wait_count(loop, &sched.heartbeats, 20);	/* longer than the lease */
	ck_assert(ctl_node_is_up(node.n));
	ck_assert_str_eq(sched.name, "gpu-a");
	ck_assert_uint_eq(node.welcome.node, 4);
	ck_assert_str_eq(ctl_node_local(node.n), "127.0.0.1");
	ck_assert_uint_eq(node.ups, 1);
	ck_assert_uint_eq(node.downs, 0);
	ck_assert_uint_eq(node.msgs, 0);		/* echoes are not for it */
	ck_assert_uint_eq(sched.accepted, 1);
}
END_TEST

START_TEST(messages_pass_both_ways_once_up)
{
	struct msg down = { .type = MSG_JOB_DOWN, .job_down = { .job = 1, .text = "" } };
	struct msg leave = { .type = MSG_RANK_LEAVE, .rank_leave = { .job = 1, .text = "" } };
	struct err e;

	start_node(listener_port(sched.li));
	ck_assert_int_eq(ctl_node_send(node.n, &leave, &e), TALLY_ESCHED);
	ck_assert_str_eq(ctl_node_local(node.n), "");
	loop_wait_count(loop, &node.ups, 1);
	ck_assert_int_eq(ctl_node_send(node.n, &leave, &e), 0);
	ck_assert_int_eq(ctl_send(sched.c, &down, &e), 0);
	loop_wait_count(loop, &node.msgs, 1);
	ck_assert_int_eq(node.type, MSG_JOB_DOWN);
}
END_TEST

START_TEST(missing_scheduler_is_told_once_and_tried_until_it_is_there)
{
	uint16_t port = listener_port(sched.li);
	struct err e;

	listener_close(sched.li);
	start_node(port);
	loop_wait_count(loop, &node.downs, 1);
	ck_assert_ptr_nonnull(strstr(node.why.text, "is this machine itself, and nobody listens"));
	ctl_node_why(node.n, &e);
	ck_assert_ptr_nonnull(strstr(e.text, "no connection to scheduler 127.0.0.1:"));
	listen_on(port);
	loop_wait_count(loop, &node.ups, 1);
	ck_assert_uint_eq(node.downs, 1);
}
END_TEST

/* What some other program says to whoever connects, and closes. */
static const char *banner;

static void on_stranger(void *ctx, int fd)
{
	(void)ctx;
	ck_assert_int_eq(send(fd, banner, strlen(banner), 0), (ssize_t)strlen(banner));
	close(fd);
}

START_TEST(another_programs_port_is_called_that_and_tried_again)
{
	static const char *const banners[] = { "SSH-2.0-OpenSSH_9\r\n", "HTTP/1.1 400 Bad\r\n\r\n",
					       "\x15\x03\x01" };
	static const char *const says[] = { "SSH", "HTTP", "TLS" };
	struct listener *li;
	struct err e;

	banner = banners[_i];
	ck_assert_int_eq(listener_tcp(loop, &li, "127.0.0.1", 0, on_stranger, NULL, &e), 0);
	start_node(listener_port(li));
	loop_wait_count(loop, &node.downs, 1);
	ck_assert_msg(strstr(node.why.text, says[_i]) && strstr(node.why.text, "--scheduler"),
		      "%s", node.why.text);
	ck_assert_uint_eq(node.refusals, 0);
	listener_close(li);
}
END_TEST

START_TEST(another_clusters_scheduler_is_joined_when_nothing_trains)
{
	struct msg drain = { .type = MSG_DRAIN, .drain = { .name = "gpu-a" } };
	struct err e;

	start_node(listener_port(sched.li));
	loop_wait_count(loop, &node.ups, 1);
	ck_assert_int_eq(ctl_send(sched.c, &drain, &e), 0);
	loop_wait_count(loop, &node.msgs, 1);
	node.trains = true;
	sched.refuse = TALLY_EMISMATCH;
	ctl_close(sched.c);
	loop_wait_count(loop, &sched.hellos, 4);
	ck_assert_uint_eq(sched.cluster0, 42);
	ck_assert_uint_eq(sched.draining, 1);
	ck_assert_uint_eq(node.refusals, 0);
	ck_assert_uint_eq(node.downs, 2);	/* closed, and why it stays so */
	node.trains = false;
	loop_wait_count(loop, &sched.hellos, 6);
	ck_assert_uint_eq(sched.cluster0, 0);
	ck_assert_uint_eq(sched.draining, 0);	/* it was the other's wish */
	sched.refuse = 0;
	loop_wait_count(loop, &node.ups, 2);
	ck_assert_uint_eq(node.downs, 2);
}
END_TEST

START_TEST(lost_connection_is_made_again_with_epoch_and_cluster)
{
	start_node(listener_port(sched.li));
	loop_wait_count(loop, &node.ups, 1);
	ck_assert_uint_eq(sched.epoch_seen, 5);
	ck_assert_uint_eq(sched.cluster0, 0);
	ctl_close(sched.c);
	loop_wait_count(loop, &node.downs, 1);
	ck_assert(!ctl_node_is_up(node.n));
	ck_assert_int_eq(node.why.code, TALLY_ESCHED);
	sched.epoch = 6;			/* an older one does not take it back */
	loop_wait_count(loop, &node.ups, 2);
	ck_assert_uint_eq(sched.epoch_seen, 7);
	ck_assert_uint_eq(sched.cluster0, 42);
	ctl_close(sched.c);
	loop_wait_count(loop, &node.ups, 3);
	ck_assert_uint_eq(sched.epoch_seen, 7);
	ck_assert_uint_eq(node.downs, 2);
}
END_TEST

START_TEST(drain_is_told_to_the_next_scheduler_until_it_is_undone)
{
	struct msg m = { .type = MSG_DRAIN, .drain = { .name = "gpu-a" } };

	start_node(listener_port(sched.li));
	for (uint32_t i = 1; i <= 3; i++) {
		loop_wait_count(loop, &node.ups, i);
		ck_assert_uint_eq(sched.draining, i == 2);
		m.drain.undo = i == 2;
		ck_assert_int_eq(ctl_send(sched.c, &m, NULL), 0);
		loop_wait_count(loop, &node.msgs, i);
		ck_assert_int_eq(node.type, MSG_DRAIN);
		ctl_close(sched.c);
		loop_wait_count(loop, &node.downs, i);
	}
}
END_TEST

/* Longer than the lease without a turn of the loop, as to map a large model takes. */
START_TEST(long_work_keeps_its_lease)
{
	uint32_t sent;
	mono_t began;

	start_node(listener_port(sched.li));
	loop_wait_count(loop, &sched.heartbeats, 1);
	sent = node.beats;
	began = loop_now();
	while (loop_now() - began < mono_ms(3 * LEASE) || node.beats - sent < 2)
		ctl_node_alive(node.n);
	/* One may have been due already. */
	ck_assert_uint_le(node.beats - sent, (loop_now() - began) / mono_ms(HEARTBEAT) + 1);
	loop_wait_count(loop, &sched.heartbeats, node.beats);
	ck_assert_uint_eq(node.downs, 0);
	ck_assert(ctl_node_is_up(node.n));
}
END_TEST

/* Also where the scheduler is away; and no more often than it has to be. */
START_TEST(long_work_answers_the_watchdog)
{
	mono_t began = loop_now();
	int ear = notify_ear_open();
	uint32_t said = 0, most;

	while (said < 5 && loop_now() - began < mono_ms(10000)) {
		ctl_node_alive(NULL);
		said += notify_ear_took(ear, "WATCHDOG=1");
	}
	ck_assert_uint_eq(said, 5);
	most = 1 + (uint32_t)((loop_now() - began) / mono_ms(notify_watchdog_ms() / 2));
	ck_assert_uint_le(said, most);
	notify_ear_close(ear);
}
END_TEST

START_TEST(long_silence_of_ours_is_not_the_schedulers)
{
	mono_t began;

	start_node(listener_port(sched.li));
	loop_wait_count(loop, &sched.heartbeats, 1);
	began = loop_now();
	while (loop_now() - began < mono_ms(3 * LEASE))
		;
	loop_wait_count(loop, &sched.heartbeats, 5);
	ck_assert_uint_eq(node.downs, 0);
}
END_TEST

START_TEST(heartbeats_without_echo_end_the_connection)
{
	mono_t began;

	sched.mute = true;
	start_node(listener_port(sched.li));
	loop_wait_count(loop, &node.ups, 1);
	began = loop_now();
	loop_wait_count(loop, &node.downs, 1);
	ck_assert_int_eq(node.why.code, TALLY_ETIMEDOUT);
	ck_assert_int_ge(loop_now() - began, mono_ms(LEASE) / 2);
	sched.mute = false;
	loop_wait_count(loop, &node.ups, 2);
}
END_TEST

static void on_over(void *ctx)
{
	++*(uint32_t *)ctx;
}

START_TEST(refusal_is_final)
{
	static const int codes[] = { TALLY_EVERSION, TALLY_EAUTH, TALLY_EEXIST };
	uint16_t port = listener_port(sched.li);

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		uint32_t accepted, over = 0;
		struct loop_timer *t;

		memset(&node, 0, sizeof(node));
		sched.refuse = codes[i];
		start_node(port);
		loop_wait_count(loop, &node.refusals, 1);
		ck_assert_int_eq(node.why.code, codes[i]);
		ck_assert_ptr_nonnull(strstr(node.why.text, "not you"));
		accepted = sched.accepted;
		/* Longer than the first back-off: time enough to come again, if it did. */
		ck_assert_int_eq(loop_timer_start(loop, &t, 120, 0, on_over, &over), 0);
		loop_wait_count(loop, &over, 1);
		loop_timer_stop(t);
		ck_assert_uint_eq(node.downs, 0);
		ck_assert_uint_eq(node.replaced, 0);	/* it never was a node here */
		ck_assert_uint_eq(sched.accepted, accepted);
		stop_node();
	}
}
END_TEST

/* A scheduler that was started again with another secret, or is of another version. */
START_TEST(who_trains_waits_for_a_scheduler_that_knows_it)
{
	static const int codes[] = { TALLY_EVERSION, TALLY_EAUTH, TALLY_EEXIST };

	start_node(listener_port(sched.li));
	loop_wait_count(loop, &node.ups, 1);
	node.trains = true;
	sched.refuse = codes[_i];
	ctl_close(sched.c);
	loop_wait_count(loop, &sched.hellos, 4);
	ck_assert_uint_eq(node.refusals, 0);
	ck_assert_uint_eq(node.downs, 2);	/* closed, and why it stays so */
	ck_assert_int_eq(node.why.code, codes[_i]);
	ck_assert_uint_eq(node.replaced > 0, codes[_i] == TALLY_EEXIST);
	sched.refuse = 0;
	loop_wait_count(loop, &node.ups, 2);
	ck_assert_uint_eq(node.downs, 2);
	ctl_close(sched.c);
	sched.refuse = codes[_i];
	node.trains = false;
	loop_wait_count(loop, &node.refusals, 1);
}
END_TEST

/* Another process has its name: its jobs are over at that word, and then it may end. */
START_TEST(who_was_replaced_hears_so_before_it_is_refused)
{
	start_node(listener_port(sched.li));
	loop_wait_count(loop, &node.ups, 1);
	node.trains = true;
	sched.refuse = TALLY_EEXIST;
	ctl_close(sched.c);
	loop_wait_count(loop, &node.replaced, 2);
	ck_assert_int_eq(node.why.code, TALLY_EEXIST);
	ck_assert_uint_eq(node.refusals, 0);
	node.trains = false;
	loop_wait_count(loop, &node.refusals, 1);
	ck_assert_uint_ge(node.replaced, 3);
}
END_TEST

/* Its file is replaced, perhaps only after the scheduler has the new one. */
START_TEST(secret_is_what_it_is_when_it_says_hello)
{
	char next[] = "open wheat";

	node.secret = "sesame";
	start_node(listener_port(sched.li));
	loop_wait_count(loop, &node.ups, 1);
	ck_assert_str_eq(sched.secret, "sesame");
	node.trains = true;
	sched.refuse = TALLY_EAUTH;
	ctl_close(sched.c);
	loop_wait_count(loop, &sched.hellos, 3);
	ck_assert_str_eq(sched.secret, "sesame");
	node.secret = next;
	sched.refuse = 0;
	loop_wait_count(loop, &node.ups, 2);
	ck_assert_str_eq(sched.secret, "open wheat");
}
END_TEST

START_TEST(other_refusals_are_tried_again)
{
	sched.refuse = TALLY_EBUSY;
	start_node(listener_port(sched.li));
	loop_wait_count(loop, &sched.hellos, 3);
	ck_assert_uint_eq(node.refusals, 0);
	ck_assert_uint_eq(node.downs, 1);
	sched.refuse = 0;
	loop_wait_count(loop, &node.ups, 1);
}
END_TEST

START_TEST(node_may_be_stopped_in_any_callback_and_state)
{
	uint16_t port = listener_port(sched.li);

	start_node(port);
	stop_node();				/* before anything happened */
	sched.silent = true;
	start_node(port);
	loop_wait_count(loop, &sched.hellos, 1);
	stop_node();				/* in the middle of greeting */
	sched.silent = false;
	node.stop_in_up = true;
	start_node(port);
	loop_wait_count(loop, &node.ups, 1);
	node.stop_in_up = false;
	sched.refuse = TALLY_EBUSY;
	node.stop_in_down = true;
	start_node(port);
	loop_wait_count(loop, &node.downs, 1);
	sched.refuse = TALLY_EAUTH;
	node.stop_in_refused = true;
	start_node(port);
	loop_wait_count(loop, &node.refusals, 1);
	sched.refuse = 0;
	node.stop_in_down = false;
	start_node(port);
	loop_wait_count(loop, &node.ups, 2);
	sched.refuse = TALLY_EEXIST;
	node.stop_in_replaced = true;
	ctl_close(sched.c);
	loop_wait_count(loop, &node.replaced, 1);
	ck_assert_ptr_null(node.n);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ctl_node");
	TCase *c = tcase_create("ctl_node");
	SRunner *r = srunner_create(s);
	int failed;

	setenv("WATCHDOG_USEC", WATCHDOG, 1);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, node_registers_and_keeps_its_heartbeat);
	tcase_add_test(c, messages_pass_both_ways_once_up);
	tcase_add_test(c, missing_scheduler_is_told_once_and_tried_until_it_is_there);
	tcase_add_loop_test(c, another_programs_port_is_called_that_and_tried_again, 0, 3);
	tcase_add_test(c, another_clusters_scheduler_is_joined_when_nothing_trains);
	tcase_add_test(c, lost_connection_is_made_again_with_epoch_and_cluster);
	tcase_add_test(c, drain_is_told_to_the_next_scheduler_until_it_is_undone);
	tcase_add_test(c, long_work_keeps_its_lease);
	tcase_add_test(c, long_work_answers_the_watchdog);
	tcase_add_test(c, long_silence_of_ours_is_not_the_schedulers);
	tcase_add_test(c, heartbeats_without_echo_end_the_connection);
	tcase_add_test(c, refusal_is_final);
	tcase_add_loop_test(c, who_trains_waits_for_a_scheduler_that_knows_it, 0, 3);
	tcase_add_test(c, who_was_replaced_hears_so_before_it_is_refused);
	tcase_add_test(c, secret_is_what_it_is_when_it_says_hello);
	tcase_add_test(c, other_refusals_are_tried_again);
	tcase_add_test(c, node_may_be_stopped_in_any_callback_and_state);
	tcase_set_timeout(c, 240);
	suite_add_tcase(s, c);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
