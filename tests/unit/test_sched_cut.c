// SPDX-License-Identifier: Apache-2.0
/* sched_cut.c: a server that one agent of a job has no link to. */
#include "tests/unit/sched_rig.h"

struct cut {
	struct pair p;
	uint32_t one, two;		/* servers' connections */
	uint32_t node_one, node_two;
};

static void stuck(uint32_t conn, uint32_t job, enum wait_kind kind, uint32_t who)
{
	const struct msg_wait row = {
		.tensor = 1, .round = 3, .chunk = 2, .chunks = 4, .kind = kind, .who = who,
	};
	struct msg m = { .type = MSG_STUCK, .stuck = { .job = job, .nwaits = kind != WAIT_NONE,
						       .waits = &row } };

	send(conn, &m);
}

static void let_go(uint32_t conn, uint32_t job)
{
	struct msg m = { .type = MSG_JOB_DOWN, .job_down = { .job = job, .text = "" } };

	send(conn, &m);
}

static void beat_for(const struct cut *c, uint64_t ms)
{
	pass_beating(ms, (uint32_t[]){ c->p.a, c->p.b, c->one, c->two }, 4);
}

/* Those of its servers that are in the epoch follow it, and the agents. */
static void follow(const struct cut *c, bool one, bool two)
{
	uint32_t servers[2], n = 0;

	if (two)
		servers[n++] = c->two;
	if (one)
		servers[n++] = c->one;
	follow_epoch(&c->p, servers, n);
}

/* Agents a and b, server cpu-0, and cpu-1, which is offered the job. */
static struct cut one_offered(void)
{
	struct cut c = { .p = pair_declared() };

	c.one = c.p.server;
	c.node_one = w->server_node;
	c.two = hello(NODE_SERVER, "cpu-1");
	c.node_two = w->server_node;
	heartbeat(c.two, 1);
	return c;
}

/* It is in, and agents have heard so. */
static struct cut one_joined(void)
{
	struct cut c = one_offered();
	uint64_t epoch;

	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
	epoch = last(c.two, MSG_EPOCH)->epoch;
	ready_as(c.two, MSG_EPOCH_READY, c.p.job, epoch, 0);
	ready_as(c.one, MSG_EPOCH_READY, c.p.job, epoch, 0);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->epoch, epoch);
	return c;
}

/* And follow: each of both has a share. */
static struct cut two_servers(void)
{
	struct cut c = one_joined();

	ready_as(c.p.a, MSG_EPOCH_READY, c.p.job, last(c.p.a, MSG_EPOCH)->epoch, 0);
	ready_as(c.p.b, MSG_EPOCH_READY, c.p.job, last(c.p.a, MSG_EPOCH)->epoch, 0);
	return c;
}

static uint32_t given_up(uint32_t conn)
{
	return count(conn, MSG_JOB_DOWN, REQ_ANY);
}

static void until_given_up(const struct cut *c, uint32_t conn, uint32_t times)
{
	for (uint32_t i = 0; given_up(conn) < times && i < 2 * LEASE_MS / 500; i++)
		beat_for(c, 500);
	ck_assert_uint_eq(given_up(conn), times);
}

/* An agent has no link to cpu-1, which lets go, and the job goes on with cpu-0. */
static void without_two(const struct cut *c)
{
	stuck(c->p.a, c->p.job, WAIT_LINK, c->node_two);
	until_given_up(c, c->two, 1);
	let_go(c->two, c->p.job);
	stuck(c->p.a, c->p.job, WAIT_NONE, 0);
	follow(c, true, false);
}

START_TEST(job_goes_on_without_a_server_that_an_agent_cannot_reach)
{
	struct cut c = two_servers();

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	beat_for(&c, LEASE_MS - 1);
	ck_assert_uint_eq(given_up(c.two), 0);
	until_given_up(&c, c.two, 1);
	ck_assert_str_eq(last(c.two, MSG_JOB_DOWN)->text, "machine a has no link to it");
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 0);	/* it may still write */
	let_go(c.two, c.p.job);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
	follow(&c, true, false);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nservers, 2);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nlet_go, 1);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
	ck_assert_uint_eq(given_up(c.one), 0);
}
END_TEST

START_TEST(a_server_that_a_job_goes_on_without_is_shown_as_bypassed_and_why)
{
	struct cut c = two_servers();
	uint32_t cli = conn_up();

	query(cli);
	ck_assert_msg(!strstr(shown, "bypassed"), "%s", shown);
	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	beat_for(&c, 1000);
	query(cli);
	ck_assert_msg(strstr(shown, "bypassed: job x: machine a has no link to it\n"),
		      "%s", shown);
	until_given_up(&c, c.two, 1);
	let_go(c.two, c.p.job);
	stuck(c.p.a, c.p.job, WAIT_NONE, 0);
	follow(&c, true, false);
	query(cli);
	ck_assert_msg(strstr(shown, "bypassed: job x: machine a has no link to it; it is asked "
				    "again in 20 s\n"), "%s", shown);
}
END_TEST

START_TEST(a_server_that_does_not_take_a_job_is_shown_as_bypassed_by_it)
{
	struct cut c = one_offered();
	uint32_t cli = conn_up();

	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, TALLY_EQUOTA);
	query(cli);
	ck_assert_msg(strstr(shown, "bypassed: job x: memory is full; it is asked again in 5 s\n"),
		      "%s", shown);
}
END_TEST

/* That the link is back was said, and not yet read. */
START_TEST(time_in_which_the_scheduler_stood_still_is_not_a_cut)
{
	struct cut c = two_servers();

	beat_for(&c, LEASE_MS);
	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	beat_for(&c, 1000);
	w->now += mono_ms(60000);
	pass(0);
	stuck(c.p.a, c.p.job, WAIT_NONE, 0);
	beat_for(&c, 2 * LEASE_MS);
	ck_assert_uint_eq(given_up(c.two), 0);
	ck_assert_uint_eq(sched_counters(w->s)->cuts, 0);
}
END_TEST

START_TEST(server_that_does_not_say_that_it_let_go_is_not_waited_for_long)
{
	struct cut c = two_servers();

	stuck(c.p.b, c.p.job, WAIT_LINK, c.node_one);
	until_given_up(&c, c.one, 1);
	beat_for(&c, 2000);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
	follow(&c, false, true);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nlet_go, 0);
	let_go(c.one, c.p.job);			/* late */
	let_go(c.one, 999);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
}
END_TEST

/* What it still writes would come into what the next owner of its chunks sums. */
START_TEST(server_that_could_not_be_heard_has_its_time_to_let_go)
{
	struct cut c = two_servers();

	stuck(c.p.b, c.p.job, WAIT_LINK, c.node_one);
	until_given_up(&c, c.one, 1);
	w->now += mono_ms(60000);
	pass(0);			/* the scheduler stood still */
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 0);
	let_go(c.one, c.p.job);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
}
END_TEST

START_TEST(server_that_dies_meanwhile_is_lost_once)
{
	struct cut c = two_servers();

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	until_given_up(&c, c.two, 1);
	conn_closed(c.two);
	pass_beating(RECONNECT_GRACE_MS + 10, (uint32_t[]){ c.p.a, c.p.b, c.one }, 3);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
	follow(&c, true, false);
	pass_beating(5000, (uint32_t[]){ c.p.a, c.p.b, c.one }, 3);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
}
END_TEST

START_TEST(server_that_all_others_lack_is_not_given_up)
{
	struct cut c = two_servers();

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	stuck(c.p.b, c.p.job, WAIT_LINK, c.node_one);
	beat_for(&c, 60000);
	ck_assert_uint_eq(given_up(c.one) + given_up(c.two), 0);
	stuck(c.p.b, c.p.job, WAIT_NONE, 0);
	beat_for(&c, 1000);
	ck_assert_uint_eq(given_up(c.two), 1);
}
END_TEST

START_TEST(what_does_not_last_or_is_no_missing_link_costs_no_server)
{
	struct cut c = two_servers();

	for (uint32_t i = 0; i < 10; i++) {
		stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
		beat_for(&c, LEASE_MS - 1000);
		stuck(c.p.a, c.p.job, WAIT_NONE, 0);
		beat_for(&c, 1000);
	}
	stuck(c.p.a, c.p.job, WAIT_SERVER, c.node_two);
	beat_for(&c, 10000);
	stuck(c.p.a, c.p.job, WAIT_LINK, 999);
	beat_for(&c, 10000);
	ck_assert_uint_eq(given_up(c.one) + given_up(c.two), 0);
}
END_TEST

/* Until it is offered the job again: so long. */
static uint32_t pause_s(const struct cut *c)
{
	uint32_t before = count(c->two, MSG_JOB_UP, REQ_ANY), s = 0;

	while (count(c->two, MSG_JOB_UP, REQ_ANY) == before && ++s < 5000)
		beat_for(c, 1000);
	return s;
}

START_TEST(server_that_was_given_up_is_asked_again_later_and_later)
{
	static const uint32_t want[] = { 20, 40, 80, 160 };
	struct cut c = two_servers();

	for (uint32_t i = 0; i < ARRAY_SIZE(want); i++) {
		stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
		until_given_up(&c, c.two, i + 1);
		let_go(c.two, c.p.job);
		stuck(c.p.a, c.p.job, WAIT_NONE, 0);
		follow(&c, true, false);
		uint32_t s = pause_s(&c);

		ck_assert_uint_ge(s, want[i]);
		ck_assert_uint_le(s, want[i] + 1);
		ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
		follow(&c, true, true);
	}
	beat_for(&c, 400000);			/* it has lasted */
	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	until_given_up(&c, c.two, ARRAY_SIZE(want) + 1);
	let_go(c.two, c.p.job);
	stuck(c.p.a, c.p.job, WAIT_NONE, 0);
	follow(&c, true, false);
	ck_assert_uint_le(pause_s(&c), want[0] + 1);
}
END_TEST

START_TEST(server_that_refuses_a_job_is_asked_again_later_and_later)
{
	static const uint32_t want[] = { 5, 10, 20, 40, 80, 160, 320, 320 };
	struct cut c = one_offered();

	for (uint32_t i = 0; i < ARRAY_SIZE(want); i++) {
		ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch,
			 TALLY_ENOMEM);
		uint32_t s = pause_s(&c);

		ck_assert_uint_ge(s, want[i]);
		ck_assert_uint_le(s, want[i] + 1);
	}
	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
	follow(&c, true, true);
}
END_TEST

/* _i: it has room; it has too little; there is nobody else, since the other one is to drain. */
START_TEST(server_that_joins_without_room_for_its_share_is_out_again)
{
	struct msg drain = { .type = MSG_DRAIN, .drain = { .req = 1, .name = "cpu-0" } };
	struct cut c = { .p = pair_declared() };
	const uint64_t windows = 2ull * last(c.p.server, MSG_JOB_UP)->window;

	c.one = c.p.server;
	hello_memory = windows + (_i ? 1000 : 3000);
	c.two = hello(NODE_SERVER, "cpu-1");
	hello_memory = 1 << 30;
	heartbeat(c.two, 1);
	if (_i == 2)
		send(c.one, &drain);
	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
	if (_i == 1) {
		ck_assert_str_eq(last(c.two, MSG_JOB_DOWN)->text,
				 "its share needs 2 KiB, free are 1000 B (--memory)");
		let_go(c.two, c.p.job);
		ck_assert_uint_eq(count(c.one, MSG_EPOCH, REQ_ANY), 0);
		ck_assert_uint_ge(pause_s(&c), 5);
		ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
		ck_assert_uint_eq(given_up(c.two), 2);
	} else {
		follow(&c, true, true);
		ck_assert_uint_eq(given_up(c.two), 0);
	}
	ck_assert_uint_eq(count(c.p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* What a0 had to do there before it could say so has not been done yet. */
START_TEST(server_that_has_just_come_takes_nobodys_place)
{
	struct cut c = two_servers();

	without_two(&c);
	(void)pause_s(&c);
	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_one);
	beat_for(&c, LEASE_MS - 500);		/* it takes its time */
	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
	follow(&c, true, true);
	beat_for(&c, LEASE_MS - 1000);
	ck_assert_uint_eq(given_up(c.one), 0);
	until_given_up(&c, c.one, 1);		/* nobody has said that it lacks the other one */
}
END_TEST

/* Nothing waits for it, but could not go there either. */
START_TEST(server_that_an_agent_lacks_as_well_takes_nobodys_place)
{
	struct cut c = two_servers();
	struct msg_wait rows[2] = {
		{ .tensor = 1, .round = 3, .chunks = 4, .kind = WAIT_LINK, .who = c.node_one },
		{ .tensor = 1, .round = 3, .chunks = 0, .kind = WAIT_LINK, .who = c.node_two },
	};
	struct msg m = { .type = MSG_STUCK, .stuck = { .job = c.p.job, .nwaits = 2,
						       .waits = rows } };

	send(c.p.a, &m);
	beat_for(&c, 30000);
	ck_assert_uint_eq(given_up(c.one) + given_up(c.two), 0);
	m.stuck.nwaits = 1;
	send(c.p.a, &m);
	beat_for(&c, 1000);
	ck_assert_uint_eq(given_up(c.one), 1);
}
END_TEST

/* No epoch has said that it let go: agents would wait for what it had, under its number. */
START_TEST(server_that_let_go_as_the_last_one_is_another_one_then)
{
	struct cut c = two_servers();
	uint32_t number = c.node_two;

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	until_given_up(&c, c.two, 1);
	conn_closed(c.one);
	let_go(c.two, c.p.job);
	stuck(c.p.a, c.p.job, WAIT_NONE, 0);
	pass_beating(RECONNECT_GRACE_MS + 10, (uint32_t[]){ c.p.a, c.p.b, c.two }, 3);
	for (uint32_t i = 0; sched_counters(w->s)->nodes_lost < 2 && i < 25; i++)
		pass_beating(1000, (uint32_t[]){ c.p.a, c.p.b, c.two }, 3);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 2);
	ck_assert_uint_eq(count(c.two, MSG_JOB_UP, REQ_ANY), 1);
	c.two = hello(NODE_SERVER, "cpu-1");
	ck_assert_uint_ne(w->server_node, number);
	heartbeat(c.two, 1);
	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
	follow(&c, false, true);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 2);
}
END_TEST

/* It is in the job again, perhaps in another row: nobody may take it for one that has let go. */
START_TEST(server_that_is_back_has_not_let_go)
{
	struct cut c = two_servers();
	uint32_t more;

	without_two(&c);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nlet_go, 1);
	more = hello(NODE_SERVER, "cpu-2");	/* does not take its row yet */
	heartbeat(more, 1);
	ck_assert_uint_eq(last(more, MSG_JOB_UP)->nservers, 3);
	ready_as(more, MSG_JOB_READY, c.p.job, last(more, MSG_JOB_UP)->epoch, 0);
	ready_as(c.one, MSG_EPOCH_READY, c.p.job, last(c.one, MSG_EPOCH)->epoch, 0);
	follow(&(struct cut){ .p = c.p, .one = c.one, .two = more }, false, true);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nlet_go, 1);
	for (uint32_t i = 0; i < 25; i++) {
		heartbeat(more, 1);
		beat_for(&c, 1000);
	}
	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
	ready_as(more, MSG_EPOCH_READY, c.p.job, last(more, MSG_EPOCH)->epoch, 0);
	follow(&c, true, true);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nlet_go, 0);
}
END_TEST

/* It has no job any more, and would refuse what somebody declares just then. */
START_TEST(tensors_are_not_asked_of_a_server_that_lets_go)
{
	static const struct want more = { "more", DTYPE_F32, 1000, false };
	struct cut c = two_servers();
	uint32_t told;

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	until_given_up(&c, c.two, 1);
	told = count(c.two, MSG_TENSORS, REQ_ANY);
	declare_in(c.p.a, 9, c.p.job, 0, &more, 1);
	declare_in(c.p.b, 9, c.p.job, 1, &more, 1);
	ck_assert_uint_eq(count(c.two, MSG_TENSORS, REQ_ANY), told);
	ready_as(c.two, MSG_TENSORS_READY, c.p.job, last(c.one, MSG_TENSORS)->seq, TALLY_ENOENT);
	ready_as(c.one, MSG_TENSORS_READY, c.p.job, last(c.one, MSG_TENSORS)->seq, 0);
	ck_answer(c.p.a, 9, 0, NULL);
	ck_answer(c.p.b, 9, 0, NULL);
	let_go(c.two, c.p.job);
	follow(&c, true, false);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
}
END_TEST

/* One that was asked just before: its refusal does not count. */
START_TEST(server_that_lets_go_refuses_nothing)
{
	static const struct want more = { "more", DTYPE_F32, 1000, false };
	struct cut c = two_servers();

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	beat_for(&c, LEASE_MS - 100);
	declare_in(c.p.a, 9, c.p.job, 0, &more, 1);
	declare_in(c.p.b, 9, c.p.job, 1, &more, 1);
	until_given_up(&c, c.two, 1);
	ready_as(c.one, MSG_TENSORS_READY, c.p.job, last(c.one, MSG_TENSORS)->seq, 0);
	ready_as(c.two, MSG_TENSORS_READY, c.p.job, last(c.two, MSG_TENSORS)->seq, TALLY_ENOENT);
	ck_assert_uint_eq(count(c.p.a, MSG_REPLY, 9), 0);
	let_go(c.two, c.p.job);
	ck_answer(c.p.a, 9, 0, NULL);
	ck_answer(c.p.b, 9, 0, NULL);
	follow(&c, true, false);
}
END_TEST

/* It has heard what nobody else has; an agent on its machine need not end what has let go. */
static struct cut astray(void)
{
	struct cut c = two_servers();

	ready_as(c.two, MSG_JOB_READY, c.p.job, 0, TALLY_EBUSY);
	ck_assert_uint_eq(given_up(c.two), 1);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 0);
	ready_as(c.two, MSG_EPOCH_READY, c.p.job, last(c.two, MSG_EPOCH)->epoch, TALLY_ENOENT);
	ready_as(c.two, MSG_JOB_READY, c.p.job, 0, TALLY_ENOENT);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
	return c;
}

START_TEST(server_that_cannot_follow_lets_go_and_is_another_one_then)
{
	struct cut c = astray();
	uint32_t number = c.node_two;

	let_go(c.two, c.p.job);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 1);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
	follow(&c, true, false);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nlet_go, 1);
	c.two = hello(NODE_SERVER, "cpu-1");
	ck_assert_uint_ne(w->server_node, number);
	heartbeat(c.two, 1);
	ck_assert_uint_eq(count(c.two, MSG_JOB_UP, REQ_ANY), 1);
}
END_TEST

START_TEST(server_that_cannot_follow_and_does_not_let_go_is_lost_all_the_same)
{
	struct cut c = astray();

	beat_for(&c, 900);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
	pass_beating(500, (uint32_t[]){ c.p.a, c.p.b, c.one }, 3);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 1);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
	follow(&c, true, false);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->nlet_go, 0);
}
END_TEST

START_TEST(server_that_cannot_follow_is_another_one_though_its_job_has_ended)
{
	struct cut c = astray();

	leave(c.p.a, c.p.job, 0, 0);
	leave(c.p.b, c.p.job, 1, 0);
	heartbeat(c.two, 1);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 1);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 0);
}
END_TEST

/* Its next process, which has another number. */
START_TEST(next_process_of_that_name_waits_as_long)
{
	struct cut c = two_servers();

	without_two(&c);
	conn_closed(c.two);
	pass_beating(RECONNECT_GRACE_MS + 10, (uint32_t[]){ c.p.a, c.p.b, c.one }, 3);
	c.two = hello(NODE_SERVER, "cpu-1");
	beat_for(&c, 10000);
	ck_assert_uint_eq(count(c.two, MSG_JOB_UP, REQ_ANY), 0);
	beat_for(&c, 12000);
	ck_assert_uint_eq(count(c.two, MSG_JOB_UP, REQ_ANY), 1);
}
END_TEST

/* Its connection breaks with what it was told, and is back before it counts as lost. */
static struct cut back_with_the_job(void)
{
	struct cut c = two_servers();

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	until_given_up(&c, c.two, 1);
	conn_closed(c.two);			/* JOB_DOWN is lost */
	pass(200);
	c.two = hello_from(NODE_SERVER, "cpu-1", "cpu-1", 4, "");
	ck_assert_uint_eq(last(c.two, MSG_WELCOME)->node, c.node_two);
	has_log(c.two, MSG_JOB_READY, c.p.job, last(c.one, MSG_EPOCH)->epoch, 2);
	return c;
}

/* Without that it keeps the job, and refuses it (EEXIST) each time that it is offered again. */
START_TEST(server_that_did_not_hear_that_it_is_to_let_go_hears_it_when_it_is_back)
{
	struct cut c = back_with_the_job();

	pass_beating(1000, (uint32_t[]){ c.p.a, c.p.b, c.one }, 3);
	heartbeat(c.two, 1);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 1);
	ck_assert_uint_eq(count(c.two, MSG_JOB_DOWN, REQ_ANY), 1);
}
END_TEST

/* Other jobs, which are to notice nothing, would have lost it. */
START_TEST(server_that_is_to_let_go_is_not_dead_for_that)
{
	struct cut c = back_with_the_job();

	heartbeat(c.two, 1);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
}
END_TEST

/* An agent has yet to hear the epoch that it is in, and nobody can say that it lacks it. */
START_TEST(server_whose_epoch_agents_have_not_heard_takes_nobodys_place)
{
	struct cut c = two_servers();

	without_two(&c);
	(void)pause_s(&c);
	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_one);	/* just now its path is cut */
	ready_as(c.two, MSG_JOB_READY, c.p.job, last(c.two, MSG_JOB_UP)->epoch, 0);
	ready_as(c.one, MSG_EPOCH_READY, c.p.job, last(c.one, MSG_EPOCH)->epoch, 0);
	beat_for(&c, 4000);			/* cpu-1 takes its time to set memory aside */
	ck_assert_uint_eq(given_up(c.one), 0);
	ready_as(c.two, MSG_EPOCH_READY, c.p.job, last(c.two, MSG_EPOCH)->epoch, 0);
	beat_for(&c, 1000);			/* a has no link to it, and says so in a moment */
	ck_assert_uint_eq(given_up(c.one), 0);
}
END_TEST

/* Weights are those of the last epoch until there is a number for the next one. */
START_TEST(a_server_lost_while_no_number_can_be_saved_changes_no_weight)
{
	struct cut c = two_servers();
	uint32_t lasts[] = { c.p.a, c.p.b, c.one }, three;
	const uint32_t *weight = last(c.one, MSG_EPOCH)->weight;
	uint64_t epoch = last(c.one, MSG_EPOCH)->epoch;
	struct msg ahead = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = NODE_AGENT,
		.name = "c", .machine = "c", .secret = "", .shm_path = "",
		.epoch_seen = w->saved.epoch,
	} };

	w->disk = TALLY_EIO;
	send(conn_up(), &ahead);
	ck_assert_uint_eq(sched_epoch(w->s), w->saved.epoch);
	conn_closed(c.two);
	pass_beating(2000, lasts, 3);
	ck_assert_uint_eq(last(c.one, MSG_EPOCH)->epoch, epoch);
	three = hello(NODE_SERVER, "cpu-2");
	heartbeat(three, 1);
	ck_assert_uint_eq(last(three, MSG_JOB_UP)->epoch, epoch);
	ck_assert_uint_eq(last(three, MSG_JOB_UP)->weight[0], weight[0]);
	ck_assert_uint_eq(last(three, MSG_JOB_UP)->weight[1], weight[1]);
	w->disk = 0;
	pass_beating(2000, lasts, 3);
	ck_assert_uint_gt(last(c.one, MSG_EPOCH)->epoch, epoch);
	ck_assert_uint_eq(last(c.one, MSG_EPOCH)->weight[1], 0);
}
END_TEST

/* One that is drained serves on while there is no other. */
START_TEST(server_that_lets_go_is_not_one_that_stays)
{
	struct cut c = two_servers();
	struct msg m = { .type = MSG_DRAIN, .drain = { .req = 1, .name = "cpu-0" } };
	uint32_t cli = conn_up(), told;

	stuck(c.p.a, c.p.job, WAIT_LINK, c.node_two);
	until_given_up(&c, c.two, 1);
	told = count(c.one, MSG_EPOCH, REQ_ANY);
	send(cli, &m);
	ck_answer(cli, 1, 0, "");
	ck_assert_uint_eq(count(c.one, MSG_EPOCH, REQ_ANY), told);
	let_go(c.two, c.p.job);
	follow(&c, true, false);
	beat_for(&c, 1000);
	ck_assert_uint_eq(given_up(c.one), 0);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
}
END_TEST

/* It lets go of this job, and of no other that it has. */
START_TEST(server_that_joins_and_cannot_take_the_log_is_asked_later)
{
	struct cut c = one_offered();
	uint32_t s;

	ck_assert_uint_eq(count(c.two, MSG_JOB_UP, REQ_ANY), 1);
	ready_as(c.two, MSG_JOB_READY, c.p.job, 0, TALLY_ENOMEM);
	let_go(c.two, c.p.job);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
	s = pause_s(&c);
	ck_assert_uint_ge(s, 5);
	ck_assert_uint_le(s, 6);
}
END_TEST

START_TEST(server_that_was_offered_a_job_and_is_in_no_epoch_costs_no_repair)
{
	struct cut c = one_joined();
	uint64_t epoch = last(c.two, MSG_EPOCH)->epoch;
	uint32_t three;

	three = hello(NODE_SERVER, "cpu-2");
	heartbeat(three, 1);
	ready_as(three, MSG_JOB_READY, c.p.job, last(three, MSG_JOB_UP)->epoch, TALLY_ENOMEM);
	beat_for(&c, 1000);
	ck_assert_uint_eq(sched_counters(w->s)->repairs, 0);
	ck_assert_uint_eq(last(c.p.a, MSG_EPOCH)->epoch, epoch);
}
END_TEST

/* It lets go of a job when its connection breaks before: by that entry it knows that it has all. */
START_TEST(server_that_joins_hears_the_last_entry_whatever_became_of_it)
{
	struct cut c = two_servers();
	uint32_t three;

	ck_told(c.two, (struct told[]){ { MSG_TENSORS, 1, 2, 2 }, { MSG_EPOCH, 2, 0, 0 } }, 2);
	undeclare_both(&c.p, 3);
	three = hello(NODE_SERVER, "cpu-2");
	heartbeat(three, 1);
	ck_told(three, (struct told[]){ { MSG_FORGET, 3, 0, 0 } }, 1);
}
END_TEST

/* Its ranks have detached, so nobody is lost with it. */
START_TEST(epoch_does_not_wait_for_an_agent_that_is_gone)
{
	struct cut c = one_joined();
	uint64_t epoch = last(c.two, MSG_EPOCH)->epoch;

	ready_as(c.p.a, MSG_EPOCH_READY, c.p.job, epoch, 0);
	leave(c.p.b, c.p.job, 1, 0);
	conn_closed(c.p.b);
	ck_assert_uint_eq(count(c.two, MSG_EPOCH_READY, REQ_ANY), 0);
	pass_beating(60000, (uint32_t[]){ c.p.a, c.one, c.two }, 3);
	ck_assert_uint_eq(last(c.two, MSG_EPOCH_READY)->seq, epoch);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, server_that_refuses_a_job_is_asked_again_later_and_later);
	tcase_add_test(t, a_server_lost_while_no_number_can_be_saved_changes_no_weight);
	tcase_add_test(t, job_goes_on_without_a_server_that_an_agent_cannot_reach);
	tcase_add_test(t, a_server_that_a_job_goes_on_without_is_shown_as_bypassed_and_why);
	tcase_add_test(t, a_server_that_does_not_take_a_job_is_shown_as_bypassed_by_it);
	tcase_add_test(t, time_in_which_the_scheduler_stood_still_is_not_a_cut);
	tcase_add_test(t, server_that_does_not_say_that_it_let_go_is_not_waited_for_long);
	tcase_add_test(t, server_that_dies_meanwhile_is_lost_once);
	tcase_add_test(t, server_that_could_not_be_heard_has_its_time_to_let_go);
	tcase_add_test(t, server_that_all_others_lack_is_not_given_up);
	tcase_add_test(t, what_does_not_last_or_is_no_missing_link_costs_no_server);
	tcase_add_test(t, server_that_was_given_up_is_asked_again_later_and_later);
	tcase_add_loop_test(t, server_that_joins_without_room_for_its_share_is_out_again, 0, 3);
	tcase_add_test(t, server_that_has_just_come_takes_nobodys_place);
	tcase_add_test(t, server_that_an_agent_lacks_as_well_takes_nobodys_place);
	tcase_add_test(t, server_that_let_go_as_the_last_one_is_another_one_then);
	tcase_add_test(t, server_that_is_back_has_not_let_go);
	tcase_add_test(t, tensors_are_not_asked_of_a_server_that_lets_go);
	tcase_add_test(t, server_that_lets_go_refuses_nothing);
	tcase_add_test(t, server_that_cannot_follow_lets_go_and_is_another_one_then);
	tcase_add_test(t, server_that_cannot_follow_and_does_not_let_go_is_lost_all_the_same);
	tcase_add_test(t, server_that_cannot_follow_is_another_one_though_its_job_has_ended);
	tcase_add_test(t, next_process_of_that_name_waits_as_long);
	tcase_add_test(t, server_that_did_not_hear_that_it_is_to_let_go_hears_it_when_it_is_back);
	tcase_add_test(t, server_that_is_to_let_go_is_not_dead_for_that);
	tcase_add_test(t, server_whose_epoch_agents_have_not_heard_takes_nobodys_place);
	tcase_add_test(t, server_that_lets_go_is_not_one_that_stays);
	tcase_add_test(t, server_that_joins_and_cannot_take_the_log_is_asked_later);
	tcase_add_test(t, server_that_joins_hears_the_last_entry_whatever_became_of_it);
	tcase_add_test(t, server_that_was_offered_a_job_and_is_in_no_epoch_costs_no_repair);
	tcase_add_test(t, epoch_does_not_wait_for_an_agent_that_is_gone);
}

int main(void)
{
	return rig_main("sched_cut", add);
}
