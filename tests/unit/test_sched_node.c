// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_node.c - whom the scheduler lets in, and what it has back after a
 * restart.
 *
 * A name belongs to one living process; numbers are durable before they are handed
 * out.  A restarted core knows only those numbers: jobs and tensors come back from
 * what agents say they hold, or are declared over.
 */
#include "tests/unit/sched_rig.h"

/* ---- nodes ---- */

START_TEST(hello_gets_number_and_key)
{
	uint32_t a = hello(NODE_AGENT, "a"), s = hello(NODE_SERVER, "a");

	ck_assert_uint_eq(last(a, MSG_WELCOME)->node, 1);
	ck_assert_uint_ne(last(a, MSG_WELCOME)->key, 0);
	ck_assert_uint_eq(last(s, MSG_WELCOME)->node, 2);
	ck_assert_uint_eq(last(s, MSG_WELCOME)->key, 0);
	heartbeat(a, 42);
	ck_assert_uint_eq(last(a, MSG_HEARTBEAT)->seq, 42);
}
END_TEST

START_TEST(living_name_is_not_given_twice)
{
	uint32_t a = hello_from(NODE_AGENT, "a", "m", 1, ""), again;

	heartbeat(a, 1);
	again = hello_from(NODE_AGENT, "a", "m", 2, "");
	ck_assert_int_eq(last(again, MSG_REPLY)->code, TALLY_EBUSY);
	ck_assert_uint_eq(w->closes[again], 1);
	pass(RECONNECT_GRACE_MS);
	heartbeat(a, 2);		/* that may have been on its way for so long */
	again = hello_from(NODE_AGENT, "a", "m", 2, "");
	ck_assert_int_eq(last(again, MSG_REPLY)->code, TALLY_EBUSY);
	pass(100);
	heartbeat(a, 3);
	again = hello_from(NODE_AGENT, "a", "m", 2, "");
	ck_assert_int_eq(last(again, MSG_REPLY)->code, TALLY_EEXIST);
	ck_assert_uint_eq(w->closes[again], 1);
	again = hello_from(NODE_AGENT, "a", "other", 3, "");
	ck_assert_int_eq(last(again, MSG_REPLY)->code, TALLY_EEXIST);
	again = hello_from(NODE_AGENT, "a", "m", 4, "");	/* not the one that heard so */
	ck_assert_int_eq(last(again, MSG_REPLY)->code, TALLY_EBUSY);
	ck_assert_uint_eq(w->closes[a], 0);
}
END_TEST

/* The end of the process before is read behind its last heartbeats. */
START_TEST(new_process_waits_until_the_end_of_the_one_before_is_seen)
{
	static const enum node_kind kinds[] = { NODE_AGENT, NODE_SERVER };
	uint32_t a, again;

	a = hello_from(kinds[_i], "a", "m", 1, "");
	again = hello_from(kinds[_i], "a", "m", 2, "");
	heartbeat(a, 1);
	ck_assert_int_eq(last(again, MSG_REPLY)->code, TALLY_EBUSY);
	conn_closed(a);
	again = hello_from(kinds[_i], "a", "m", 2, "");
	ck_assert_uint_ne(last(again, MSG_WELCOME)->node, 0);
	ck_assert_uint_eq(sched_nodes_up(w->s), 1);
}
END_TEST

START_TEST(returning_instance_keeps_its_number)
{
	uint32_t a = hello_from(NODE_AGENT, "a", "m", 7, ""), again;

	conn_closed(a);
	pass(RECONNECT_GRACE_MS / 2);
	again = hello_from(NODE_AGENT, "a", "m", 7, "");
	ck_assert_uint_eq(last(again, MSG_WELCOME)->node, last(a, MSG_WELCOME)->node);
	pass(RECONNECT_GRACE_MS);
	ck_assert_uint_eq(sched_nodes_up(w->s), 1);
}
END_TEST

START_TEST(new_process_takes_the_name_of_a_closed_one)
{
	uint32_t a = hello_from(NODE_AGENT, "a", "m", 7, ""), b;

	conn_closed(a);
	b = hello_from(NODE_AGENT, "a", "m", 8, "");
	ck_assert_uint_ne(last(b, MSG_WELCOME)->node, last(a, MSG_WELCOME)->node);
	conn_closed(b);
	b = hello_from(NODE_AGENT, "a", "other", 9, "");
	ck_assert_int_eq(last(b, MSG_REPLY)->code, TALLY_EBUSY);
	pass(RECONNECT_GRACE_MS);
	b = hello_from(NODE_AGENT, "a", "other", 9, "");
	ck_assert_uint_gt(last(b, MSG_WELCOME)->node, 0);
}
END_TEST

START_TEST(silence_ends_the_lease)
{
	uint32_t a = hello(NODE_AGENT, "a");

	pass(LEASE_MS - 1);
	ck_assert_uint_eq(sched_nodes_up(w->s), 1);
	pass(1);
	ck_assert_uint_eq(sched_nodes_up(w->s), 0);
	ck_assert_uint_eq(w->closes[a], 1);
}
END_TEST

/* Stopped and continued, or the machine was: what was said meanwhile has not been read. */
START_TEST(deaf_scheduler_blames_nobody)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello_from(NODE_AGENT, "b", "m", 7, "");

	pass(LEASE_MS / 2);
	conn_closed(b);
	w->now += mono_ms(20 * LEASE_MS);
	pass(0);
	ck_assert_uint_eq(sched_nodes_up(w->s), 1);
	b = hello_from(NODE_AGENT, "b", "m", 7, "");
	ck_assert_uint_eq(sched_nodes_up(w->s), 2);
	heartbeat(a, 1);
	heartbeat(b, 1);
	pass(LEASE_MS - 1);
	ck_assert_uint_eq(sched_nodes_up(w->s), 2);
	pass(1);
	ck_assert_uint_eq(sched_nodes_up(w->s), 0);
}
END_TEST

/* It was about to come back as that began: it is still the same. */
START_TEST(who_is_away_for_a_moment_is_not_dead_when_the_scheduler_was_deaf)
{
	uint32_t a = hello_from(NODE_SERVER, "s", "m", 7, ""), node = w->server_node;

	heartbeat(a, 1);
	pass(RECONNECT_GRACE_MS / 2);
	conn_closed(a);
	w->now += mono_ms(20 * LEASE_MS);
	pass(0);
	a = hello_from(NODE_SERVER, "s", "m", 7, "");
	ck_assert_uint_eq(last(a, MSG_WELCOME)->node, node);
	ck_assert_uint_eq(sched_counters(w->s)->nodes_lost, 0);
}
END_TEST

START_TEST(strangers_are_turned_away)
{
	uint32_t c = conn_up(), v = conn_up();
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = 9, .version_max = 9, .kind = NODE_AGENT, .name = "a",
		.machine = "m", .secret = "", .shm_path = "",
	} };

	heartbeat(c, 1);
	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
	ck_assert_str_eq(last(c, MSG_REPLY)->text, "before HEARTBEAT comes HELLO, which says "
			 "who sends it");
	ck_assert_uint_eq(w->closes[c], 1);
	send(v, &m);
	ck_assert_int_eq(last(v, MSG_REPLY)->code, TALLY_EVERSION);
}
END_TEST

START_TEST(cli_that_has_said_hello_hears_what_it_may_send)
{
	uint32_t c = hello(NODE_CLI, "cli");

	heartbeat(c, 1);
	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
	ck_assert_str_eq(last(c, MSG_REPLY)->text,
			 "a CLI may send QUERY, DRAIN and NODE_FORGET, and sent HEARTBEAT");
	ck_assert_uint_eq(w->closes[c], 1);
}
END_TEST

START_TEST(secret_is_asked_for)
{
	uint32_t c;

	sched_free(w->s);
	world_open(w->saved, 0, "sesame");
	c = hello(NODE_AGENT, "a");
	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
	c = conn_up();
	query(c);
	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
}
END_TEST

static uint32_t hello_with(const char *secret, uint8_t cluster, uint32_t node, uint64_t epoch)
{
	const struct msg_addr addr = { "10.0.0.1", 7471, 0 };
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = NODE_SERVER,
		.name = "s", .machine = "m", .secret = secret, .shm_path = "", .naddrs = 1,
		.addrs = &addr, .engines = 1, .node = node, .epoch_seen = epoch,
	} };
	uint32_t c = conn_up();

	if (cluster)
		snprintf((char *)m.hello.cluster, ID_BYTES, "one cluster");
	send(c, &m);
	return c;
}

START_TEST(a_secret_is_all_of_it_and_no_more)
{
	static const char *const wrong[] = { "", "s", "sesam", "sesame ", "sesame seed", "Sesame" };
	uint32_t c;

	sched_free(w->s);
	world_open(w->saved, 0, "sesame");
	for (uint32_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		c = hello_with(wrong[i], 0, 0, 0);
		ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
	}
	c = hello_with("sesame", 0, 0, 0);
	ck_assert_uint_gt(last(c, MSG_WELCOME)->node, 0);
}
END_TEST

/* Who has one hears that it is the scheduler that lacks it, not that it is a wrong one. */
START_TEST(a_secret_that_nobody_asked_for_is_not_called_wrong)
{
	uint32_t c = hello_with("sesame", 0, 0, 0);

	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EAUTH);
	ck_assert_ptr_nonnull(strstr(last(c, MSG_REPLY)->text, "the scheduler has none"));
}
END_TEST

/* Else a later node would have the same number. */
START_TEST(a_number_that_was_never_handed_out_is_not_kept)
{
	uint32_t c;

	restart(5000);
	c = hello_with("", 1, UINT32_MAX - 1, 0);
	ck_assert_uint_le(last(c, MSG_WELCOME)->node, w->saved.node);
	ck_assert_uint_gt(last(c, MSG_WELCOME)->node, 1);
}
END_TEST

/* It is another cluster's, or of a time before this one's. */
START_TEST(a_number_without_its_cluster_is_not_kept)
{
	uint32_t c;

	hello(NODE_SERVER, "s");
	restart(5000);
	c = hello_with("", 0, 1, 0);
	ck_assert_uint_gt(last(c, MSG_WELCOME)->node, 1);
}
END_TEST

START_TEST(an_epoch_that_cannot_be_is_refused)
{
	static const uint64_t epoch[] = { UINT64_MAX, UINT64_C(1) << 62, UINT64_C(1) << 32 };
	uint32_t c = hello_with("", 0, 0, epoch[_i]);

	ck_assert_int_eq(last(c, MSG_REPLY)->code, TALLY_EINVAL);
	ck_assert_uint_lt(sched_epoch(w->s), UINT32_MAX);
}
END_TEST

/* What the scheduler hands out then is no more than it takes, also when it is started again. */
START_TEST(the_highest_epoch_that_can_be_breaks_nothing)
{
	const uint64_t most = UINT64_C(1) << 31;
	struct pair p;
	uint32_t c;

	c = hello_with("", 0, 0, most);
	conn_closed(c);
	pass(RECONNECT_GRACE_MS + 1);
	p = pair_up();
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->epoch, most + 1);
	c = hello_with("", 0, 0, most + 1);
	ck_assert_uint_eq(last(c, MSG_WELCOME)->epoch, most + 1);
	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	job_held(p.a, p.job, most + 1);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(without_a_disk_no_number_is_handed_out)
{
	uint32_t a;

	sched_free(w->s);
	w->disk = TALLY_EIO;
	world_open(w->saved, 0, "");
	a = hello(NODE_AGENT, "a");
	ck_assert_int_eq(last(a, MSG_REPLY)->code, TALLY_EIO);
	w->disk = 0;
	pass(2000);
	a = hello(NODE_AGENT, "a");
	join(a, 1, 1, 0);
	ck_answer(a, 1, 0, "");
}
END_TEST

/* ---- restart ---- */

START_TEST(restarted_scheduler_takes_held_jobs_back)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	ck_assert(sched_recovering(w->s));
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	p.server = hello(NODE_SERVER, "cpu-0");
	job_held(p.a, p.job, epoch);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	tensors_held(p.a, p.job, 2, 2, &both[1]);
	job_held(p.b, p.job, epoch);
	tensors_held(p.b, p.job, 1, 1, &both[0]);
	declare_in(p.b, 8, p.job, 1, both, 2);		/* never heard the answer */
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(last(p.b, MSG_TENSORS)->seq, 2);	/* it was behind */
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 8), 1);
	barrier(p.a, 9, p.job, 0, 1);
	barrier(p.b, 9, p.job, 1, 1);
	ck_answer(p.a, 9, 0, "");
	join(p.a, 10, 2, 0);		/* which process it was its agent knows */
	ck_answer(p.a, 10, 0, "");
	join(p.a, 11, 2, 0);
	ck_answer(p.a, 11, 0, "");
	ck_assert_uint_ge(sched_epoch(w->s), epoch);
}
END_TEST

/* Until numbers can be saved nobody is let in: that time is not that of who holds jobs. */
START_TEST(recovery_begins_when_nodes_can_register)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	w->disk = TALLY_EIO;
	restart(5000);
	pass(20000);
	ck_assert(sched_recovering(w->s));
	p.a = hello(NODE_AGENT, "a");
	ck_assert_int_eq(last(p.a, MSG_REPLY)->code, TALLY_EIO);
	w->disk = 0;
	pass(1000);
	pass(4000);
	ck_assert(sched_recovering(w->s));
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	p.server = hello(NODE_SERVER, "cpu-0");
	job_held(p.a, p.job, epoch);
	job_held(p.b, p.job, epoch);
	pass_beating(1000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(sched_jobs(w->s), 1);
	barrier(p.a, 9, p.job, 0, 1);
	barrier(p.b, 9, p.job, 1, 1);
	ck_answer(p.a, 9, 0, "");
}
END_TEST

START_TEST(job_that_ends_during_recovery_is_told_to_the_late)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.b = hello(NODE_AGENT, "b");
	job_held(p.b, p.job, epoch);
	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	p.a = hello(NODE_AGENT, "a");
	job_held(p.a, p.job, epoch);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "rank 1 on machine b is gone (process ended)");
	pass_beating(5000, (uint32_t[]){ p.a, p.b }, 2);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(held_job_without_all_its_agents_is_over)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.a = hello(NODE_AGENT, "a");
	p.server = hello(NODE_SERVER, "cpu-0");
	job_held(p.a, p.job, epoch);
	ready_as(p.server, MSG_JOB_READY, p.job, epoch, 0);
	pass_beating(5000, (uint32_t[]){ p.a, p.server }, 2);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "machine b did not come back after the scheduler's restart");
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	p.b = hello(NODE_AGENT, "b");
	job_held(p.b, p.job, epoch);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	join(p.a, 4, 1, 0);
	ck_assert_uint_gt(answer(p.a, 4)->ids[0], p.job);	/* never reused */
	ck_assert_uint_gt(last(p.a, MSG_JOB_UP)->epoch, epoch);
}
END_TEST

START_TEST(server_hears_of_a_job_that_nobody_holds)
{
	struct pair p = pair_up();

	ready_as(p.server, MSG_JOB_READY, p.job, last(p.server, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);
	restart(5000);
	p.server = hello(NODE_SERVER, "cpu-0");
	ready_as(p.server, MSG_JOB_READY, p.job, 1, 0);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);	/* agents may yet come */
	pass_beating(5000, (uint32_t[]){ p.server }, 1);
	ready_as(p.server, MSG_JOB_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.server, MSG_JOB_DOWN)->job, p.job);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_ESHUTDOWN);
}
END_TEST

/* It would end jobs that it does not know: a scheduler that has lost its state shall not. */
START_TEST(other_clusters_nodes_are_refused_until_they_have_forgotten_it)
{
	struct pair p = pair_up();

	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "elsewhere");
	ck_assert_uint_eq(count(p.a, MSG_WELCOME, REQ_ANY), 0);
	ck_assert_int_eq(last(p.a, MSG_REPLY)->code, TALLY_EMISMATCH);
	p.server = hello_from(NODE_SERVER, "cpu-0", "c", 1, "elsewhere");
	ck_assert_uint_eq(count(p.server, MSG_WELCOME, REQ_ANY), 0);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	ck_assert_uint_gt(last(p.a, MSG_WELCOME)->node, 0);
}
END_TEST

START_TEST(epoch_seen_by_a_node_is_never_undercut)
{
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = 1, .version_max = 1, .kind = NODE_AGENT, .name = "a",
		.machine = "m", .secret = "", .shm_path = "", .epoch_seen = 123456,
	} };
	uint32_t c = conn_up();

	send(c, &m);
	join(c, 1, 1, 0);
	ck_assert_uint_eq(last(c, MSG_JOB_UP)->epoch, 123457);
	ck_assert_uint_ge(w->saved.epoch, 123457);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, hello_gets_number_and_key);
	tcase_add_test(t, living_name_is_not_given_twice);
	tcase_add_loop_test(t, new_process_waits_until_the_end_of_the_one_before_is_seen, 0, 2);
	tcase_add_test(t, returning_instance_keeps_its_number);
	tcase_add_test(t, new_process_takes_the_name_of_a_closed_one);
	tcase_add_test(t, silence_ends_the_lease);
	tcase_add_test(t, deaf_scheduler_blames_nobody);
	tcase_add_test(t, who_is_away_for_a_moment_is_not_dead_when_the_scheduler_was_deaf);
	tcase_add_test(t, strangers_are_turned_away);
	tcase_add_test(t, cli_that_has_said_hello_hears_what_it_may_send);
	tcase_add_test(t, secret_is_asked_for);
	tcase_add_test(t, a_secret_is_all_of_it_and_no_more);
	tcase_add_test(t, a_secret_that_nobody_asked_for_is_not_called_wrong);
	tcase_add_test(t, a_number_that_was_never_handed_out_is_not_kept);
	tcase_add_test(t, a_number_without_its_cluster_is_not_kept);
	tcase_add_loop_test(t, an_epoch_that_cannot_be_is_refused, 0, 3);
	tcase_add_test(t, the_highest_epoch_that_can_be_breaks_nothing);
	tcase_add_test(t, without_a_disk_no_number_is_handed_out);
	tcase_add_test(t, restarted_scheduler_takes_held_jobs_back);
	tcase_add_test(t, recovery_begins_when_nodes_can_register);
	tcase_add_test(t, job_that_ends_during_recovery_is_told_to_the_late);
	tcase_add_test(t, held_job_without_all_its_agents_is_over);
	tcase_add_test(t, server_hears_of_a_job_that_nobody_holds);
	tcase_add_test(t, other_clusters_nodes_are_refused_until_they_have_forgotten_it);
	tcase_add_test(t, epoch_seen_by_a_node_is_never_undercut);
}

int main(void)
{
	return rig_main("sched_node", add);
}
