// SPDX-License-Identifier: Apache-2.0
/* test_sched_join.c - who may come into a job, in whatever order they come. */
#include "scheduler/sched_dispute.h"
#include "tests/unit/return_rig.h"

#define PAIR_IS_2 "job 'x': rank 0 on machine a says world size 2, "

/* ---- another world size ---- */

START_TEST(another_world_size_hears_both_when_the_job_is_up)
{
	struct pair p = pair_up();

	join(p.a, 5, 3, 2);
	ck_answer(p.a, 5, TALLY_EMISMATCH, PAIR_IS_2 "rank 2 on machine a says 3");
	join(p.b, 5, 3, 1);		/* a rank that is in: another process, another world */
	ck_answer(p.b, 5, TALLY_EMISMATCH, PAIR_IS_2 "rank 1 on machine b says 3");
	join(p.b, 6, 1, 0);
	ck_answer(p.b, 6, TALLY_EMISMATCH, PAIR_IS_2 "rank 0 on machine b says 1");
	join(p.a, 7, 2, 1);		/* the same one is a second job of that name */
	ck_answer(p.a, 7, TALLY_EEXIST, NULL);
	barrier(p.a, 8, p.job, 0, 1);
	barrier(p.b, 8, p.job, 1, 1);
	ck_answer(p.a, 8, 0, "");
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(a_world_of_one_that_runs_says_so_to_a_larger_one)
{
	uint32_t a = hello(NODE_AGENT, "a");

	join(a, 1, 1, 0);
	ck_answer(a, 1, 0, "");
	join(a, 2, 2, 1);
	ck_answer(a, 2, TALLY_EMISMATCH, "job 'x': rank 0 on machine a says world size 1, rank 1 "
		  "on machine a says 2");
	join(a, 3, 2, 0);
	ck_answer(a, 3, TALLY_EMISMATCH, "job 'x': rank 0 on machine a says world size 1, rank 0 "
		  "on machine a says 2");
	ck_assert_uint_eq(sched_jobs(w->s), 1);
}
END_TEST

START_TEST(another_world_size_hears_both_while_servers_make_room)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");
	uint32_t s = hello(NODE_SERVER, "cpu-0");
	const struct record *up;

	join(a, 1, 2, 0);
	join(b, 1, 2, 1);
	up = last(s, MSG_JOB_UP);
	join(b, 2, 3, 2);
	ck_answer(b, 2, TALLY_EMISMATCH, PAIR_IS_2 "rank 2 on machine b says 3");
	ready_as(s, MSG_JOB_READY, up->job, up->epoch, 0);
	ck_answer(a, 1, 0, "");
	ck_answer(b, 1, 0, "");
}
END_TEST

/* Nobody is refused alone while ranks gather: the others would wait for their deadlines. */
START_TEST(the_same_rank_of_two_worlds_ends_what_gathers)
{
	static const uint32_t worlds[][2] = { { 2, 1 }, { 2, 3 }, { 3, 2 } };
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");
	char text[ERR_TEXT_MAX + 1];

	snprintf(text, sizeof(text), "job 'x': rank 0 on machine a says world size %u, rank 0 on "
		 "machine b says %u", worlds[_i][0], worlds[_i][1]);
	join(a, 1, worlds[_i][0], 0);
	join(b, 1, worlds[_i][1], 0);
	ck_answer(a, 1, TALLY_EMISMATCH, text);
	ck_answer(b, 1, TALLY_EMISMATCH, text);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

/* Before and after somebody has said that the job is held. */
START_TEST(another_world_size_hears_both_when_the_scheduler_is_back)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	join_as(p.b, 2, 3, 1, 9000, 0);
	job_held(p.a, p.job, epoch);
	ck_answer(p.b, 2, TALLY_EMISMATCH, PAIR_IS_2 "rank 1 on machine b says 3");
	join_as(p.b, 3, 3, 1, 9000, 0);
	ck_answer(p.b, 3, TALLY_EMISMATCH, PAIR_IS_2 "rank 1 on machine b says 3");
	job_held(p.b, p.job, epoch);
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	ck_assert_uint_eq(sched_jobs(w->s), 1);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	join(p.b, 4, 1, 0);
	ck_answer(p.b, 4, TALLY_EMISMATCH, PAIR_IS_2 "rank 0 on machine b says 1");
}
END_TEST

/* Its time is up, and the message that the job is held comes before the timer. */
START_TEST(who_has_no_time_left_when_the_job_is_told_of_does_not_wait_on)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	join_as(p.b, 2, 2, 1, 1000, 0);
	w->now += mono_ms(1010);
	job_held(p.a, p.job, epoch);
	pass(10);
	ck_answer(p.b, 2, TALLY_ETIMEDOUT, NULL);
}
END_TEST

/* It may be the next one, of any size. */
START_TEST(another_world_size_waits_for_a_job_that_ranks_have_left)
{
	struct pair p = pair_up();

	leave(p.a, p.job, 0, 0);
	join(p.a, 5, 3, 0);
	ck_answer(p.a, 5, TALLY_EBUSY, NULL);
}
END_TEST

START_TEST(a_job_is_as_old_as_its_first_rank)
{
	uint32_t a = hello(NODE_AGENT, "a"), cli = conn_up();

	join_as(a, 1, 2, 0, 60000, 0);
	pass_beating(10000, &a, 1);
	join(a, 2, 2, 1);
	ck_answer(a, 1, 0, "");
	pass_beating(1000, &a, 1);
	query(cli);
	ck_assert_uint_eq(last(cli, MSG_REPORT)->job_age_ms, 11000);
}
END_TEST

/* ---- another user ---- */

static void join_by(uint32_t uid, uint32_t conn, uint64_t req, uint32_t world, uint32_t rank)
{
	rank_uid = uid;
	join(conn, req, world, rank);
	rank_uid = 1000;
}

START_TEST(another_user_neither_joins_nor_ends_what_gathers)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	hello(NODE_SERVER, "cpu-0");
	join(a, 1, 2, 0);
	join_by(1001, b, 1, 2, 1);
	ck_answer(b, 1, TALLY_EAUTH, "job 'x' belongs to user id 1000, rank 1 on machine b is user "
		  "id 1001; give this job another name (TALLY_JOB)");
	join_by(1001, a, 2, 3, 0);
	ck_answer(a, 2, TALLY_EAUTH, NULL);
	join_by(0, b, 2, 2, 1);			/* the superuser of a machine is not that user */
	ck_answer(b, 2, TALLY_EAUTH, NULL);
	ck_assert_uint_eq(count(a, MSG_REPLY, 1), 0);
	join(b, 3, 2, 1);
	ck_assert_uint_eq(last(b, MSG_REPLY)->req, 2);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
}
END_TEST

START_TEST(another_user_hears_whose_job_runs_and_waits_for_its_end)
{
	struct pair p = pair_up();

	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->user, MSG_USER(1000));
	ck_assert_uint_eq(last(p.server, MSG_JOB_UP)->user, MSG_USER(1000));
	join_by(1001, p.a, 5, 3, 2);
	ck_answer(p.a, 5, TALLY_EAUTH, NULL);
	leave(p.a, p.job, 0, 0);
	join_by(1001, p.a, 6, 1, 0);
	ck_answer(p.a, 6, TALLY_EBUSY, NULL);
	leave(p.b, p.job, 1, 0);
	join_by(1001, p.a, 7, 1, 0);
	ck_answer(p.a, 7, 0, "");
}
END_TEST

START_TEST(another_user_does_not_take_a_lost_rank)
{
	struct pair p = trio();

	leave(p.a, p.job, 0, TALLY_EWORKERLOST);
	rank_uid = 1001;
	join_late(p.a, 11);
	rank_uid = 1000;
	ck_answer(p.a, 11, TALLY_EAUTH, NULL);
	join_late(p.a, 12);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 12), 0);	/* it waits to come in */
	ck_assert_ptr_nonnull(strstr(waiting_for(), "rank 0 waits to come in"));
}
END_TEST

/* Agents say so, or, where they do not know, who was in and asks again. */
START_TEST(whose_a_job_is_is_known_again_after_a_restart)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	if (_i == 0)
		join_as(p.a, 4, 2, 0, 9000, 0);	/* before anybody has told of the job */
	held_user = _i == 4 ? MSG_USER(1000) : 0;
	job_held(p.a, p.job, epoch);
	job_held(p.b, p.job, epoch);
	held_user = 0;
	if (_i == 1)
		join_as(p.a, 4, 2, 0, 9000, 0);
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	if (_i == 2)
		join(p.a, 4, 2, 0);
	if (_i == 3) {
		conn_closed(p.a);
		p.a = hello_from(NODE_AGENT, "a", "a", 9, "");
		back_as(p.a, 4, p.job, 0);
	}
	if (_i < 4)
		ck_answer(p.a, 4, 0, "");
	join_by(1001, p.a, 5, 2, 1);
	ck_answer(p.a, 5, TALLY_EAUTH, NULL);
	join_by(1001, p.b, 5, 2, 1);		/* whose process is not known */
	ck_answer(p.b, 5, TALLY_EAUTH, NULL);
	join(p.b, 6, 2, 1);
	ck_answer(p.b, 6, 0, "");
}
END_TEST

/*
 * Which process a rank is that outlived a restart its agent knows alone: another one that asks
 * for that rank and goes before it hears the answer is not it.
 */
START_TEST(who_leaves_before_the_answer_does_not_end_an_outlived_job)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);
	struct msg gone = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.rank = 0, .code = TALLY_EWORKERLOST, .text = "x", .pid = _i % 2 ? 104 : 0,
	} };
	struct msg asks = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = 4, .job = "x", .world = 2, .rank = 0, .pid = gone.rank_leave.pid,
		.timeout_ms = 9000, .uid = 1001,
	} };

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	job_held(p.a, p.job, epoch);
	job_held(p.b, p.job, epoch);
	if (_i < 2)
		send(p.a, &asks);		/* while the scheduler recovers */
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ck_assert(!sched_recovering(w->s));
	if (_i >= 2)
		send(p.a, &asks);
	ck_answer(p.a, 4, 0, "");
	send(p.a, &gone);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), 0);
	barrier(p.a, 8, p.job, 0, 1);
	barrier(p.b, 8, p.job, 1, 1);
	ck_answer(p.a, 8, 0, "");
}
END_TEST

/* ---- how many jobs a user may have ---- */

/* A job of its own, which never comes up: of two ranks one. */
static void begin(uint32_t uid, uint32_t conn, uint32_t number)
{
	char name[16];
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = number, .job = name, .world = 2, .rank = 0, .pid = number,
		.timeout_ms = 1000 * number, .uid = uid,
	} };

	snprintf(name, sizeof(name), "j%u", number);
	send(conn, &m);
}

START_TEST(a_user_leaves_half_of_the_jobs_to_others)
{
	uint32_t a = hello(NODE_AGENT, "a"), half = JOBS_MAX / 2, i = 1;

	while (i <= half)
		begin(1000, a, i++);
	ck_assert_uint_eq(sched_jobs(w->s), half);
	begin(1000, a, i);
	ck_answer(a, i++, TALLY_EQUOTA, "user id 1000 has 128 jobs already, and the last 128 "
		  "places of the cluster are for others; let one end first");
	for (uint32_t uid = 1001, left = half; left; uid++, left /= 2)
		for (uint32_t n = 0; n < (left + 1) / 2; n++)
			begin(uid, a, i++);
	ck_assert_uint_eq(sched_jobs(w->s), JOBS_MAX);
	begin(1, a, i);
	ck_answer(a, i, TALLY_EQUOTA, "the cluster has 256 jobs already");
}
END_TEST

START_TEST(who_comes_when_all_job_numbers_are_used_hears_so)
{
	uint32_t a;

	sched_free(w->s);
	world_open((struct sched_ids){ .job = UINT32_MAX - 1 }, 0, "");
	a = hello(NODE_AGENT, "a");
	join(a, 1, 1, 0);
	ck_answer(a, 1, 0, "");
	leave(a, UINT32_MAX, 0, 0);
	join(a, 2, 1, 0);
	ck_answer(a, 2, TALLY_EQUOTA, "the cluster has had all job numbers that there are; give "
		  "the scheduler another --state-dir once no job runs");
}
END_TEST

START_TEST(a_user_whose_job_has_ended_may_begin_another)
{
	uint32_t a = hello(NODE_AGENT, "a"), half = JOBS_MAX / 2;

	for (uint32_t i = 1; i <= half; i++)
		begin(1000, a, i);
	pass_beating(1500, &a, 1);		/* the first one's deadline */
	ck_answer(a, 1, TALLY_ETIMEDOUT, NULL);
	begin(1000, a, half + 1);
	ck_assert_uint_eq(count(a, MSG_REPLY, half + 1), 0);
	begin(1000, a, half + 2);
	ck_answer(a, half + 2, TALLY_EQUOTA, NULL);
}
END_TEST

/* Ranks give up one after the other; each is told who never came, not who gave up before. */
static void ck_says(uint32_t conn, uint64_t req, const char *text)
{
	const struct record *r = answer(conn, req);

	ck_assert_int_eq(r->code, TALLY_ETIMEDOUT);
	ck_assert_msg(strstr(r->text, text) != NULL, "%s", r->text);
}

/* Where an agent is there that could have the missing ranks, no other scheduler is thought of. */
START_TEST(ranks_that_miss_others_hear_which_agents_this_scheduler_has)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b"), ab[] = { a, b };

	join(a, 1, 3, 0);
	pass_beating(3000, ab, 2);
	ck_answer(a, 1, TALLY_ETIMEDOUT, "ranks 1, 2 of job 'x' have not attached");
	join(a, 2, 3, 0);
	join(b, 3, 3, 1);
	pass_beating(3000, ab, 2);
	ck_says(a, 2, "rank 2 of job 'x' has not attached; 2 agents are registered with this "
		      "scheduler, a, b, and all have ranks of it");
}
END_TEST

START_TEST(who_gave_up_is_not_who_is_missing)
{
	uint32_t a = hello(NODE_AGENT, "a");

	for (uint32_t r = 0; r < 3; r++) {
		join(a, 1 + r, 4, r);
		pass_beating(500, &a, 1);
	}
	pass_beating(2000, &a, 1);
	for (uint32_t r = 0; r < 3; r++)
		ck_answer(a, 1 + r, TALLY_ETIMEDOUT, "rank 3 of job 'x' has not attached; 1 agent "
			  "is registered with this scheduler, a, and has ranks of it: do all "
			  "machines have the same --scheduler?");

	for (uint32_t r = 0; r < 4; r++)
		join(a, 10 + r, 4, r);
	ck_answer(a, 13, 0, NULL);
	for (uint32_t r = 0; r < 3; r++) {
		barrier(a, 20 + r, 2, r, 1);
		declare_in(a, 30 + r, 2, r, both, 1);
		heartbeat(a, 1);
		pass(500);
	}
	pass_beating(2000, &a, 1);
	for (uint32_t r = 0; r < 3; r++) {
		ck_answer(a, 20 + r, TALLY_ETIMEDOUT,
			  "barrier 1 of job 'x' waits for rank 3 (machine a)");
		ck_answer(a, 30 + r, TALLY_ETIMEDOUT,
			  "tensor 't' of job 'x': rank 3 (machine a) has not declared it");
	}

	/* Another one comes alone: all others are missing, whoever gave up. */
	barrier(a, 40, 2, 3, 1);
	pass_beating(2000, &a, 1);
	ck_answer(a, 40, TALLY_ETIMEDOUT, "barrier 1 of job 'x' waits for ranks 0 (machine a), "
		  "1 (machine a), 2 (machine a)");
	for (uint32_t r = 0; r < 4; r++)	/* after a barrier nobody has given up */
		barrier(a, 50 + r, 2, r, 1);
	ck_answer(a, 53, 0, NULL);
	barrier(a, 60, 2, 3, 2);
	pass_beating(2000, &a, 1);
	ck_answer(a, 60, TALLY_ETIMEDOUT, "barrier 2 of job 'x' waits for ranks 0 (machine a), "
		  "1 (machine a), 2 (machine a)");
	barrier(a, 70, 2, 0, 2);
	pass_beating(2000, &a, 1);
	ck_answer(a, 70, TALLY_ETIMEDOUT, "barrier 2 of job 'x' waits for ranks 1 (machine a), "
		  "2 (machine a)");
}
END_TEST

/* Those who disagreed have ended by then, as programs do. */
START_TEST(late_rank_hears_of_the_mismatch_and_not_of_who_has_left_for_it)
{
	static const struct want other[] = { { "t", DTYPE_F64, 500 } };
	uint32_t a = hello(NODE_AGENT, "a");

	for (uint32_t r = 0; r < 3; r++)
		join(a, r, 3, r);
	declare_in(a, 10, 1, 0, both, 1);
	declare_in(a, 11, 1, 1, other, 1);
	leave(a, 1, 0, 0);
	leave(a, 1, 1, 0);
	declare_in(a, 12, 1, 2, swapped, 2);
	ck_answer(a, 12, TALLY_EMISMATCH, answer(a, 10)->text);
	declare_in(a, 13, 1, 2, swapped, 1);
	ck_answer(a, 13, TALLY_ESHUTDOWN, "rank 0 of job 'x' has detached");
}
END_TEST

/* The odd one comes second of four; then they are all started again, rank 3 first. */
START_TEST(world_mismatch_reaches_who_comes_later)
{
	static const char text[] =
		"job 'x': rank 0 on machine a says world size 4, rank 1 on machine b says 3";
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	join(a, 1, 4, 0);
	join(b, 1, 3, 1);
	ck_answer(a, 1, TALLY_EMISMATCH, text);
	ck_answer(b, 1, TALLY_EMISMATCH, text);
	pass(1000);
	join(a, 2, 4, 2);
	ck_answer(a, 2, TALLY_EMISMATCH, text);
	if (_i) {			/* all have heard it, or not */
		join(b, 2, 4, 3);
		ck_answer(b, 2, TALLY_EMISMATCH, text);
		join(b, 3, 4, 3);
	} else {
		join(a, 3, 4, 2);
	}
	join(a, 4, 4, 0);
	join(b, 4, 4, 1);
	join(a, 5, 4, _i ? 2 : 3);
	ck_assert_uint_eq(count(hello(NODE_SERVER, "cpu-0"), MSG_JOB_UP, REQ_ANY), 1);
}
END_TEST

START_TEST(mismatch_is_forgotten)
{
	const uint32_t both_of[] = { hello(NODE_AGENT, "a"), hello(NODE_AGENT, "b") };

	join(both_of[0], 1, 4, 0);
	join(both_of[1], 1, 3, 1);
	pass_beating(DISPUTE_MS, both_of, 2);
	join(both_of[0], 2, 4, 2);
	ck_assert_uint_eq(count(both_of[0], MSG_REPLY, 2), 0);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
}
END_TEST

/* Its agent is in a PID namespace of its own, where no number stands for the process. */
START_TEST(process_whose_number_is_not_known_is_named_without_one)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = 1, .job = "x", .world = 2, .timeout_ms = 1000,
	} };

	hello(NODE_SERVER, "cpu-0");
	send(a, &m);
	m.rank_join.req = 2;
	send(b, &m);
	ck_answer(b, 2, TALLY_EEXIST, "rank 0 of job 'x' is on machine a already; give each "
		  "process a TALLY_RANK of its own, or this job another name (TALLY_JOB)");
	m.rank_join.req = 3;
	m.rank_join.rank = 1;
	send(b, &m);
	send(a, &(struct msg){ .type = MSG_RANK_LEAVE, .rank_leave = {
		.rank = 0, .code = TALLY_EWORKERLOST, .text = "x",
	} });
	ck_answer(b, 3, TALLY_EWORKERLOST, "rank 0 on machine a is gone (its process has ended "
		  "while it was joining)");
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, world_mismatch_reaches_who_comes_later, 0, 2);
	tcase_add_test(t, mismatch_is_forgotten);
	tcase_add_test(t, who_comes_when_all_job_numbers_are_used_hears_so);
	tcase_add_test(t, a_job_is_as_old_as_its_first_rank);
	tcase_add_test(t, late_rank_hears_of_the_mismatch_and_not_of_who_has_left_for_it);
	tcase_add_test(t, another_world_size_hears_both_when_the_job_is_up);
	tcase_add_test(t, a_world_of_one_that_runs_says_so_to_a_larger_one);
	tcase_add_test(t, another_world_size_hears_both_while_servers_make_room);
	tcase_add_loop_test(t, the_same_rank_of_two_worlds_ends_what_gathers, 0, 3);
	tcase_add_test(t, another_world_size_hears_both_when_the_scheduler_is_back);
	tcase_add_test(t, who_has_no_time_left_when_the_job_is_told_of_does_not_wait_on);
	tcase_add_test(t, another_world_size_waits_for_a_job_that_ranks_have_left);
	tcase_add_test(t, another_user_neither_joins_nor_ends_what_gathers);
	tcase_add_test(t, another_user_hears_whose_job_runs_and_waits_for_its_end);
	tcase_add_test(t, another_user_does_not_take_a_lost_rank);
	tcase_add_test(t, a_user_leaves_half_of_the_jobs_to_others);
	tcase_add_test(t, a_user_whose_job_has_ended_may_begin_another);
	tcase_add_test(t, ranks_that_miss_others_hear_which_agents_this_scheduler_has);
	tcase_add_test(t, who_gave_up_is_not_who_is_missing);
	tcase_add_test(t, process_whose_number_is_not_known_is_named_without_one);
	tcase_add_loop_test(t, who_leaves_before_the_answer_does_not_end_an_outlived_job, 0, 4);
	tcase_add_loop_test(t, whose_a_job_is_is_known_again_after_a_restart, 0, 5);
}

int main(void)
{
	return rig_main("sched_join", add);
}
