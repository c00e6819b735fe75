// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_back.c - what was on its way when a connection broke, or the scheduler
 * ended, is heard again or not needed.
 */
#include "tests/unit/sched_rig.h"


static uint32_t agent_back(uint32_t conn, const char *name, uint8_t instance)
{
	conn_closed(conn);
	return hello_from(NODE_AGENT, name, name, instance, "");
}

static uint32_t server_back(uint32_t conn)
{
	conn_closed(conn);
	return hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
}

START_TEST(server_that_lost_a_forget_hears_it_again)
{
	struct pair p = pair_declared();

	undeclare_both(&p, 3);
	p.server = server_back(p.server);
	ck_assert_uint_eq(count(p.server, MSG_FORGET, REQ_ANY), 0);
	has_log(p.server, MSG_JOB_READY, p.job, 1, 1);
	ck_assert_uint_eq(last(p.server, MSG_FORGET)->seq, 2);
	has_log(p.server, MSG_JOB_READY, p.job, 1, 2);		/* now and then, to no effect */
	ck_assert_uint_eq(count(p.server, MSG_FORGET, REQ_ANY), 1);
}
END_TEST

START_TEST(log_goes_on_only_where_it_stopped)
{
	struct pair p = pair_declared();

	undeclare_both(&p, 3);
	p.server = server_back(p.server);
	declare_in(p.a, 4, p.job, 0, both, 2);
	declare_in(p.b, 4, p.job, 1, both, 2);
	ck_assert_uint_eq(count(p.server, MSG_TENSORS, REQ_ANY), 0);	/* it lacks 2 */
	has_log(p.server, MSG_JOB_READY, p.job, 1, 1);
	ck_assert_uint_eq(last(p.server, MSG_FORGET)->seq, 2);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->seq, 3);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 3, 0);
	ck_answer(p.a, 4, 0, NULL);
}
END_TEST

START_TEST(agent_that_lost_tensors_hears_them_again)
{
	struct pair p = pair_declared();

	p.a = agent_back(p.a, "a", 1);
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);
	p.b = agent_back(p.b, "b", 2);
	has_log(p.b, MSG_EPOCH_READY, p.job, 1, 1);
	ck_assert_uint_eq(count(p.b, MSG_TENSORS, REQ_ANY), 0);
}
END_TEST

START_TEST(agent_that_lost_its_job_up_hears_all_again)
{
	struct pair p = pair_declared();

	p.a = agent_back(p.a, "a", 1);
	heartbeat(p.a, 1);
	ck_assert_uint_eq(last(p.a, MSG_JOB_UP)->job, p.job);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->seq, 1);
}
END_TEST

START_TEST(agent_that_missed_too_much_costs_its_job)
{
	struct pair p = pair_declared();
	const uint32_t all[] = { p.a, p.b, p.server };

	pass_beating(20000, all, 3);
	undeclare_both(&p, 3);
	p.a = agent_back(p.a, "a", 1);
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 0);	/* TENSORS, 20 s ago */
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

START_TEST(server_that_comes_back_without_the_job_is_lost)
{
	struct pair p = pair_declared();

	p.server = server_back(p.server);
	heartbeat(p.server, 1);
	ck_assert_uint_eq(w->closes[p.server], 1);
}
END_TEST

/* It was told of the job on a connection that broke just then. */
START_TEST(server_that_has_not_heard_of_a_job_that_comes_up_is_told_again)
{
	struct pair p = { .a = hello(NODE_AGENT, "a"), .b = hello(NODE_AGENT, "b") };
	struct record up;

	p.server = hello(NODE_SERVER, "cpu-0");
	join(p.a, 1, 2, 0);
	join(p.b, 1, 2, 1);
	up = *last(p.server, MSG_JOB_UP);
	p.server = server_back(p.server);
	ck_assert_uint_eq(count(p.server, MSG_JOB_UP, REQ_ANY), 0);	/* it may have it */
	heartbeat(p.server, 1);
	ck_assert_uint_eq(w->closes[p.server], 0);
	ck_assert_uint_eq(last(p.server, MSG_JOB_UP)->job, up.job);
	ck_assert_uint_eq(last(p.server, MSG_JOB_UP)->epoch, up.epoch);
	heartbeat(p.server, 2);
	ck_assert_uint_eq(count(p.server, MSG_JOB_UP, REQ_ANY), 1);
	ready_as(p.server, MSG_JOB_READY, up.job, up.epoch, 0);
	ck_answer(p.a, 1, 0, NULL);
	ck_answer(p.b, 1, 0, NULL);
}
END_TEST

START_TEST(what_was_done_and_not_heard_may_be_asked_again)
{
	struct pair p = pair_declared();

	declare_in(p.a, 9, p.job, 0, both, 2);
	ck_answer(p.a, 9, 0, NULL);		/* its process may have given up meanwhile */
	ck_assert_uint_eq(answer(p.a, 9)->ids[1], 2);
	p.a = agent_back(p.a, "a", 1);
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 1);
	declare_in(p.a, 2, p.job, 0, both, 2);
	ck_answer(p.a, 2, 0, NULL);
	ck_assert_uint_eq(answer(p.a, 2)->ids[1], 2);
	undeclare_both(&p, 3);
	p.a = agent_back(p.a, "a", 1);
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 2);
	ids_as(p.a, MSG_UNDECLARE, 3, p.job, 0, both_ids, 2);
	ck_answer(p.a, 3, 0, NULL);
}
END_TEST

/* The question is asked again while its answer, an error, is on its way. */
static void refuse_and_ask_again(bool while_away)
{
	struct pair p = pair_up();

	declare_in(p.a, 5, p.job, 0, both, 2);
	declare_in(p.b, 5, p.job, 1, both, 2);
	conn_closed(p.a);
	if (while_away)
		ready_as(p.server, MSG_TENSORS_READY, p.job, 1, TALLY_ENOMEM);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 0);
	if (!while_away)
		ready_as(p.server, MSG_TENSORS_READY, p.job, 1, TALLY_ENOMEM);
	ck_answer(p.a, 5, TALLY_ENOMEM, NULL);
	declare_in(p.a, 5, p.job, 0, both, 2);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 5), 1);
	declare_in(p.a, 6, p.job, 0, both, 2);
	declare_in(p.b, 6, p.job, 1, both, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 3, 0);
	ck_answer(p.a, 6, 0, NULL);
	declare_in(p.a, 7, p.job, 0, both, 2);		/* not asked before: it has them */
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 7), 1);
}

START_TEST(question_that_crosses_its_answer_is_not_a_new_one)
{
	refuse_and_ask_again(_i);
}
END_TEST

/* Its answer was lost with a connection, and another rank has detached by then. */
START_TEST(what_was_done_is_answered_though_a_rank_has_left)
{
	static const struct want other[] = { { "v", DTYPE_F32, 10 } };
	static const char left[] = "rank 1 of job 'x' has detached";
	struct pair p = pair_declared();

	declare_in(p.a, 3, p.job, 0, other, 1);
	declare_in(p.b, 3, p.job, 1, other, 1);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 2, 0);
	undeclare_both(&p, 4);
	barrier(p.a, 5, p.job, 0, 1);
	barrier(p.b, 5, p.job, 1, 1);
	p.a = agent_back(p.a, "a", 1);
	leave(p.b, p.job, 1, 0);
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 3);
	declare_in(p.a, 3, p.job, 0, other, 1);
	ck_answer(p.a, 3, 0, NULL);
	ids_as(p.a, MSG_UNDECLARE, 4, p.job, 0, both_ids, 2);
	ck_answer(p.a, 4, 0, NULL);
	barrier(p.a, 5, p.job, 0, 1);
	ck_answer(p.a, 5, 0, NULL);
	declare_in(p.a, 6, p.job, 0, both, 1);
	ck_answer(p.a, 6, TALLY_ESHUTDOWN, left);
	ids_as(p.a, MSG_UNDECLARE, 7, p.job, 0, &(uint32_t){ 3 }, 1);
	ck_answer(p.a, 7, TALLY_ESHUTDOWN, left);
	barrier(p.a, 8, p.job, 0, 2);
	ck_answer(p.a, 8, TALLY_ESHUTDOWN, left);
}
END_TEST

/* What was said of it was lost with a connection; or its machine's agent came back last. */
START_TEST(who_comes_back_hears_who_has_left)
{
	struct pair p = pair_up();
	uint64_t epoch = last(p.a, MSG_JOB_UP)->epoch;

	leave(p.b, p.job, 1, 0);
	p.a = agent_back(p.a, "a", 1);
	has_log(p.a, MSG_EPOCH_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.a, MSG_RANK_LEAVE)->rank, 1);

	restart(5000);
	p.a = hello_from(NODE_AGENT, "a", "a", 1, "");
	p.b = hello_from(NODE_AGENT, "b", "b", 2, "");
	job_held(p.b, p.job, epoch);
	leave(p.b, p.job, 1, 0);
	job_held(p.a, p.job, epoch);
	ck_assert_uint_eq(last(p.a, MSG_RANK_LEAVE)->rank, 1);
}
END_TEST

/* Agents hear it later than servers; who has been offered the job meanwhile is not in it. */
START_TEST(epoch_is_the_same_for_all)
{
	struct pair p = pair_declared();
	uint32_t one = hello(NODE_SERVER, "cpu-1"), two;

	heartbeat(one, 1);
	ready_as(one, MSG_JOB_READY, p.job, last(one, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->nservers, 2);
	two = hello(NODE_SERVER, "cpu-2");
	heartbeat(two, 1);
	ck_assert_uint_eq(last(two, MSG_JOB_UP)->nservers, 3);
	ready_as(p.server, MSG_EPOCH_READY, p.job, last(one, MSG_EPOCH)->epoch, 0);
	ready_as(one, MSG_EPOCH_READY, p.job, last(one, MSG_EPOCH)->epoch, 0);
	ck_assert_uint_eq(last(p.a, MSG_EPOCH)->nservers, 2);
}
END_TEST

/* ---- after a restart of the scheduler ---- */

static struct pair come_back_to(const struct pair *before, uint64_t epoch, uint64_t settled,
				uint64_t log)
{
	struct pair p = { .job = before->job };

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	job_held(p.a, p.job, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, settled, log);
	job_held(p.b, p.job, epoch);
	has_log(p.b, MSG_EPOCH_READY, p.job, settled, log);
	return p;
}

static struct pair come_back(const struct pair *before, uint64_t epoch, uint64_t log)
{
	return come_back_to(before, epoch, epoch, log);
}

static void recover(const struct pair *p)
{
	pass_beating(5000, (uint32_t[]){ p->a, p->b, p->server }, 3);
	pass(1);
}

START_TEST(last_entry_is_known_whatever_it_was)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch, 2);		/* a TENSORS and its FORGET */
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 2);
	recover(&p);
	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 2);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->seq, 3);
}
END_TEST

START_TEST(server_that_has_lost_the_job_is_not_waited_for)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);
	uint32_t other;

	p = come_back(&p, epoch, 0);		/* and the server says nothing of the job */
	recover(&p);
	ck_assert_uint_eq(w->closes[p.server], 1);	/* its number is what agents wait for */
	other = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	heartbeat(other, 1);
	ck_assert_uint_eq(last(other, MSG_JOB_UP)->job, p.job);
	ready_as(other, MSG_JOB_READY, p.job, last(other, MSG_JOB_UP)->epoch, 0);
	ck_assert_uint_gt(last(other, MSG_EPOCH)->epoch, epoch);
}
END_TEST

/*
 * It was told the job anew, or an epoch, that the scheduler took with it; or has such a one where
 * the log of the others has theirs, which it was too late to hear.
 */
START_TEST(server_at_another_epoch_than_the_agents_joins_anew)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch + 1, 1);
	has_log(p.server, MSG_JOB_READY, p.job, _i ? epoch + 2 : epoch, 1);
	recover(&p);
	ck_assert_uint_eq(w->closes[p.server], 1);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
}
END_TEST

/* It takes that back, or says that it cannot, and then lets go first. */
START_TEST(server_with_an_epoch_that_no_agent_has_is_told_another)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch + 1, 1);
	has_log(p.server, MSG_JOB_READY, p.job, epoch + 2, 2);
	recover(&p);
	ck_assert_uint_eq(w->closes[p.server], 0);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->seq, 2);
	ck_assert_uint_gt(last(p.server, MSG_EPOCH)->epoch, epoch + 2);
}
END_TEST

/* One of them heard of the job once more while a server was offered it in another one's row. */
static void agents_know_a_row_by(int32_t a, int32_t b, uint32_t ends)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	job_held_by(p.a, p.job, epoch, a);
	job_held_by(p.b, p.job, epoch, b);
	ck_assert_uint_eq(count(p.b, MSG_JOB_DOWN, REQ_ANY), ends);
}

START_TEST(row_of_a_server_that_is_offered_the_job_is_any)
{
	static const struct {
		int32_t a, b;
		uint32_t ends;
	} c[] = { { 77, 77, 0 }, { 0, 77, 0 }, { 77, 0, 0 }, { 76, 77, 1 } };

	agents_know_a_row_by(c[_i].a, c[_i].b, c[_i].ends);
}
END_TEST

START_TEST(server_that_missed_an_entry_joins_anew)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch, 2);
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 1);
	recover(&p);
	ck_assert_uint_eq(w->closes[p.server], 1);
}
END_TEST

/* The scheduler ended while it told everybody: b has heard nothing, a no answer. */
START_TEST(job_that_was_about_to_come_up_does)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	p.b = hello(NODE_AGENT, "b");
	join_as(p.b, 1, 2, 1, 9000, 0);		/* before anybody has told of the job */
	p.a = hello(NODE_AGENT, "a");
	job_held(p.a, p.job, epoch);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 0);
	join_as(p.a, 1, 2, 0, 9000, 0);
	join_as(p.a, 2, 2, 1, 9000, 0);		/* that one is b's */
	ck_answer(p.a, 2, TALLY_EEXIST, NULL);
	recover(&p);
	ck_assert_uint_eq(last(p.b, MSG_JOB_UP)->job, p.job);
	ck_assert_uint_eq(count(p.a, MSG_JOB_UP, REQ_ANY), 0);
	ck_answer(p.a, 1, 0, NULL);
	ck_answer(p.b, 1, 0, NULL);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(agent_that_missed_one_forget_is_told_what_it_was)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch, 0);
	tensors_held(p.b, p.job, 1, 1, &both[0]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 2);		/* and has no tensor */
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 1);
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 2);
	recover(&p);
	ck_told(p.b, (struct told[]){ { MSG_FORGET, 1, 1, 1 }, { MSG_FORGET, 2, 0, 0 } }, 2);
	ck_told(p.a, NULL, 0);
}
END_TEST

/* Tensors 1 and 2, two FORGETs, 3 and 4, one of them forgotten: b has heard of 1 and 2. */
START_TEST(agent_that_missed_several_forgets_catches_up)
{
	static const struct want third = { "v", DTYPE_F32, 50 };
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch, 0);
	tensors_held(p.a, p.job, 5, 3, &third);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 6);
	tensors_held(p.b, p.job, 1, 1, &both[0]);
	tensors_held(p.b, p.job, 2, 2, &both[1]);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 2);
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 6);
	recover(&p);
	ck_told(p.b, (struct told[]){
		{ MSG_FORGET, 2, 2, 2 }, { MSG_FORGET, 3, 0, 0 }, { MSG_FORGET, 4, 0, 0 },
		{ MSG_TENSORS, 5, 1, 3 }, { MSG_FORGET, 6, 0, 0 },
	}, 5);
	ck_told(p.a, NULL, 0);
	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 2);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->seq, 7);
}
END_TEST

/* Whatever else it missed with the epoch, it hears where chunks are by now. */
START_TEST(agent_that_missed_an_epoch_hears_where_chunks_are)
{
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	p = (struct pair){ .job = p.job };
	restart(5000);
	p.server = hello_from(NODE_SERVER, "cpu-0", "cpu-0", 3, "");
	p.a = hello(NODE_AGENT, "a");
	p.b = hello(NODE_AGENT, "b");
	job_held(p.a, p.job, epoch + 1);
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 4);
	job_held(p.b, p.job, epoch);
	tensors_held(p.b, p.job, 1, 1, &both[0]);
	tensors_held(p.b, p.job, 2, 2, &both[1]);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 2);
	has_log(p.server, MSG_JOB_READY, p.job, epoch + 1, 4);
	recover(&p);
	ck_told(p.b, (struct told[]){
		{ MSG_FORGET, 2, 1, 2 }, { MSG_EPOCH, 2, 1, 0 }, { MSG_FORGET, 3, 0, 0 },
		{ MSG_FORGET, 4, 0, 0 },
	}, 4);
	ck_assert_uint_eq(last(p.b, MSG_EPOCH)->epoch, epoch + 1);
	ck_told(p.a, NULL, 0);
}
END_TEST

/* b lost the FORGET and its answer, and asks again before anybody knows of that. */
START_TEST(undeclare_of_what_is_gone_is_done)
{
	static const uint32_t first = 1;
	struct pair p = pair_declared();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch, 0);
	tensors_held(p.b, p.job, 1, 1, &both[0]);
	has_log(p.a, MSG_EPOCH_READY, p.job, epoch, 2);
	has_log(p.b, MSG_EPOCH_READY, p.job, epoch, 1);
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 2);
	pass_beating(4000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	ids_as(p.b, MSG_UNDECLARE, 7, p.job, 1, &first, 1);
	recover(&p);
	ck_answer(p.b, 7, 0, "");
}
END_TEST

/* The server that refused them has not placed them, and would compute another epoch. */
START_TEST(refused_tensors_are_forgotten_before_an_epoch)
{
	static const struct want third = { "v", DTYPE_F32, 50 };
	struct pair p = pair_declared();
	uint32_t one = hello(NODE_SERVER, "cpu-1");

	heartbeat(one, 1);
	declare_in(p.a, 5, p.job, 0, &third, 1);
	declare_in(p.b, 5, p.job, 1, &third, 1);
	ready_as(one, MSG_JOB_READY, p.job, last(one, MSG_JOB_UP)->epoch, 0);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 2, TALLY_ENOMEM);
	ck_answer(p.a, 5, TALLY_ENOMEM, NULL);
	ck_told(p.server, (struct told[]){
		{ MSG_TENSORS, 1, 2, 2 }, { MSG_TENSORS, 2, 1, 3 }, { MSG_FORGET, 3, 1, 3 },
		{ MSG_EPOCH, 4, 0, 0 },
	}, 4);
}
END_TEST

/* Both had asked, and the scheduler ended when a had its answer and b had not. */
START_TEST(barrier_that_one_rank_has_passed_is_passed)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);
	struct msg m = { .type = MSG_EPOCH_READY, .ready = {
		.job = p.job, .seq = epoch, .text = "", .barrier = 3,
	} };

	p = come_back(&p, epoch, 0);
	barrier(p.b, 9, p.job, 1, 3);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 9), 0);
	send(p.a, &m);
	ck_answer(p.b, 9, 0, "");
	barrier(p.b, 10, p.job, 1, 4);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 10), 0);
}
END_TEST

START_TEST(server_that_was_about_to_join_is_told_to_end_that)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);
	uint32_t other;

	p = come_back(&p, epoch, 0);
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 0);
	other = hello(NODE_SERVER, "cpu-1");
	has_log(other, MSG_JOB_READY, p.job, epoch, 0);
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server, other }, 4);
	pass(1);
	ck_assert_uint_eq(last(other, MSG_JOB_DOWN)->job, p.job);
	ck_assert_uint_eq(count(p.server, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* It may be an epoch by which it gives its chunks away: what it has and we have differ. */
START_TEST(server_with_an_entry_more_than_agents_gets_an_epoch)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back(&p, epoch, 0);
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 1);
	pass_beating(5000, (uint32_t[]){ p.a, p.b, p.server }, 3);
	pass(1);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->seq, 1);
}
END_TEST

static struct pair recovered_stale(bool settled)
{
	struct pair p = pair_up();
	uint64_t epoch = sched_epoch(w->s);

	p = come_back_to(&p, epoch, settled ? epoch : epoch - 1, 0);
	has_log(p.server, MSG_JOB_READY, p.job, epoch, 1);
	recover(&p);
	return p;
}

/* The one that it has is of the scheduler before, under the same number. */
START_TEST(entry_that_never_was_is_not_the_one_that_is)
{
	struct pair p = recovered_stale(true);
	uint64_t epoch = last(p.server, MSG_EPOCH)->epoch;

	p.server = server_back(p.server);
	has_log(p.server, MSG_JOB_READY, p.job, 1, 1);
	ck_assert_uint_eq(last(p.server, MSG_EPOCH)->epoch, epoch);
	ck_assert_uint_eq(count(p.a, MSG_EPOCH, REQ_ANY), 0);
	ready_as(p.server, MSG_EPOCH_READY, p.job, epoch, 0);
	ck_assert_uint_eq(last(p.a, MSG_EPOCH)->epoch, epoch);
	p.server = server_back(p.server);
	has_log(p.server, MSG_JOB_READY, p.job, 1, 1);
	ck_assert_uint_eq(count(p.server, MSG_EPOCH, REQ_ANY), 0);
}
END_TEST

/* Tensors would have the number that it has answered for already. */
START_TEST(entry_that_never_was_is_taken_back_by_an_epoch)
{
	struct pair p = recovered_stale(false);

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 2);
	ck_assert_uint_eq(count(p.server, MSG_TENSORS, REQ_ANY), 0);
	ready_as(p.server, MSG_EPOCH_READY, p.job, last(p.server, MSG_EPOCH)->epoch, 0);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->seq, 2);
}
END_TEST

START_TEST(who_tells_of_a_job_for_which_there_is_no_memory_tells_again)
{
	struct pair p = pair_up();

	restart(10000);
	p.a = hello(NODE_AGENT, "a");
	w->fail_every = 1;
	job_held(p.a, p.job, 1);
	w->fail_every = 0;
	pass(1);
	ck_assert_uint_eq(w->closes[p.a], 1);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	p.a = hello(NODE_AGENT, "a");
	ck_assert_uint_eq(last(p.a, MSG_WELCOME)->node, w->agent_node[0]);
	job_held(p.a, p.job, 1);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
}
END_TEST

START_TEST(no_memory_for_what_an_agent_holds_is_no_contradiction)
{
	struct pair p = pair_up();

	restart(10000);
	p.a = hello(NODE_AGENT, "a");
	job_held(p.a, p.job, 1);
	w->fail_every = 1;
	tensors_held(p.a, p.job, 1, 1, &both[0]);
	w->fail_every = 0;
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_ENOMEM);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text, "the scheduler is out of memory");
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, no_memory_for_what_an_agent_holds_is_no_contradiction);
	tcase_add_test(t, who_tells_of_a_job_for_which_there_is_no_memory_tells_again);
	tcase_add_test(t, server_that_lost_a_forget_hears_it_again);
	tcase_add_test(t, log_goes_on_only_where_it_stopped);
	tcase_add_test(t, agent_that_lost_tensors_hears_them_again);
	tcase_add_test(t, agent_that_lost_its_job_up_hears_all_again);
	tcase_add_test(t, agent_that_missed_too_much_costs_its_job);
	tcase_add_test(t, server_that_comes_back_without_the_job_is_lost);
	tcase_add_test(t, server_that_has_not_heard_of_a_job_that_comes_up_is_told_again);
	tcase_add_test(t, what_was_done_and_not_heard_may_be_asked_again);
	tcase_add_loop_test(t, question_that_crosses_its_answer_is_not_a_new_one, 0, 2);
	tcase_add_test(t, what_was_done_is_answered_though_a_rank_has_left);
	tcase_add_test(t, who_comes_back_hears_who_has_left);
	tcase_add_test(t, epoch_is_the_same_for_all);
	tcase_add_test(t, job_that_was_about_to_come_up_does);
	tcase_add_test(t, agent_that_missed_one_forget_is_told_what_it_was);
	tcase_add_test(t, agent_that_missed_several_forgets_catches_up);
	tcase_add_test(t, agent_that_missed_an_epoch_hears_where_chunks_are);
	tcase_add_test(t, undeclare_of_what_is_gone_is_done);
	tcase_add_test(t, refused_tensors_are_forgotten_before_an_epoch);
	tcase_add_test(t, barrier_that_one_rank_has_passed_is_passed);
	tcase_add_test(t, server_that_was_about_to_join_is_told_to_end_that);
	tcase_add_test(t, last_entry_is_known_whatever_it_was);
	tcase_add_test(t, server_that_has_lost_the_job_is_not_waited_for);
	tcase_add_loop_test(t, server_at_another_epoch_than_the_agents_joins_anew, 0, 2);
	tcase_add_test(t, server_with_an_epoch_that_no_agent_has_is_told_another);
	tcase_add_loop_test(t, row_of_a_server_that_is_offered_the_job_is_any, 0, 4);
	tcase_add_test(t, server_that_missed_an_entry_joins_anew);
	tcase_add_test(t, server_with_an_entry_more_than_agents_gets_an_epoch);
	tcase_add_test(t, entry_that_never_was_is_not_the_one_that_is);
	tcase_add_test(t, entry_that_never_was_is_taken_back_by_an_epoch);
}

int main(void)
{
	return rig_main("sched_back", add);
}
