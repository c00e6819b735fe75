// SPDX-License-Identifier: Apache-2.0
/* sched_shrink.c: jobs that go on without the ranks that they lose. */
#include "tests/unit/sched_rig.h"

static uint32_t agent[3], srv, number;

static void join_shrink(uint32_t conn, uint32_t rank, uint32_t world, uint32_t on_loss)
{
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = 1 + rank, .job = "x", .world = world, .rank = rank, .pid = 100 + rank,
		.timeout_ms = 2000, .on_loss = on_loss,
	} };

	send(conn, &m);
}

/* Agents a (ranks 0, 1), b (2) and c (3), a server, and tensors t and u. */
static void job(void)
{
	static const char *const name[] = { "a", "b", "c" };

	for (uint32_t i = 0; i < 3; i++)
		agent[i] = hello(NODE_AGENT, name[i]);
	srv = hello(NODE_SERVER, "s0");
	for (uint32_t r = 0; r < 4; r++)
		join_shrink(agent[r ? r - 1 : 0], r, 4, ON_LOSS_SHRINK);
	number = last(srv, MSG_JOB_UP)->job;
	ready_as(srv, MSG_JOB_READY, number, last(srv, MSG_JOB_UP)->epoch, 0);
	for (uint32_t r = 0; r < 4; r++)
		declare_in(agent[r ? r - 1 : 0], 10 + r, number, r, both, 2);
	ready_as(srv, MSG_TENSORS_READY, number, 1, 0);
	ck_answer(agent[0], 10, 0, NULL);
}

static void ck_gone(uint32_t conn, uint32_t n, uint32_t first)
{
	const struct record *r = last(conn, MSG_EPOCH);

	ck_assert_ptr_nonnull(r);
	ck_assert_uint_eq(r->n, 1);		/* a repair */
	ck_assert_uint_eq(r->ngone, n);
	ck_assert_uint_eq(r->gone[0], first);
}

/* The server and all agents follow. */
static void follow(const bool *of)
{
	const struct record *r = last(srv, MSG_EPOCH);
	uint64_t epoch = r->epoch;

	ready_as(srv, MSG_EPOCH_READY, number, epoch, 0);
	for (uint32_t i = 0; i < 3; i++)
		if (of[i])
			ready_as(agent[i], MSG_EPOCH_READY, number, epoch, 0);
}

START_TEST(a_lost_rank_is_an_epoch_that_servers_hear_first)
{
	job();
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	ck_gone(srv, 1, 1);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(count(agent[i], MSG_EPOCH, REQ_ANY), 0);
	follow((const bool[]){ true, true, true });
	for (uint32_t i = 0; i < 3; i++) {
		ck_gone(agent[i], 1, 1);
		ck_assert_uint_eq(count(agent[i], MSG_JOB_DOWN, REQ_ANY), 0);
	}
	ck_assert_uint_eq(count(srv, MSG_EPOCH_READY, REQ_ANY), 1);
}
END_TEST

/* It cannot take the epoch in that would tell it: what it names is a rank as it knew it. */
START_TEST(an_agent_that_cannot_go_on_may_name_a_lost_rank)
{
	job();
	leave(agent[0], number, 0, TALLY_EWORKERLOST);
	leave(agent[1], number, 0, TALLY_ENOMEM);	/* not its own */
	ck_assert_uint_eq(count(agent[2], MSG_JOB_DOWN, REQ_ANY), 0);
	leave(agent[0], number, 0, TALLY_ENOMEM);
	ck_assert_int_eq(last(agent[2], MSG_JOB_DOWN)->code, TALLY_ENOMEM);
}
END_TEST

START_TEST(a_machine_without_ranks_is_out_and_not_waited_for)
{
	job();
	leave(agent[1], number, 2, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(agent[1], MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	follow((const bool[]){ true, false, true });
	ck_gone(agent[0], 1, 2);
	ck_gone(agent[2], 1, 2);
	ck_assert_uint_eq(count(agent[1], MSG_EPOCH, REQ_ANY), 0);
	ck_assert_uint_eq(count(srv, MSG_EPOCH_READY, REQ_ANY), 1);	/* settled */
}
END_TEST

START_TEST(a_dead_agent_takes_its_ranks_along_and_the_rest_goes_on)
{
	job();
	conn_closed(agent[0]);
	pass_beating(1000, (const uint32_t[]){ agent[1], agent[2], srv }, 3);
	ck_gone(srv, 2, 0);
	follow((const bool[]){ false, true, true });
	ck_gone(agent[1], 2, 0);
	ck_gone(agent[2], 2, 0);
	ck_assert_uint_eq(count(srv, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(declarations_and_barriers_wait_for_survivors_only)
{
	static const struct want late = { "late", DTYPE_F32, 5 };

	job();
	for (uint32_t r = 0; r < 3; r++) {
		declare_in(agent[r ? r - 1 : 0], 20 + r, number, r, &late, 1);
		barrier(agent[r ? r - 1 : 0], 30 + r, number, r, 1);
	}
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 30), 0);
	leave(agent[2], number, 3, TALLY_EWORKERLOST);
	for (uint32_t r = 0; r < 3; r++)
		ck_answer(agent[r ? r - 1 : 0], 30 + r, 0, NULL);
	follow((const bool[]){ true, true, false });
	ready_as(srv, MSG_TENSORS_READY, number, last(srv, MSG_TENSORS)->seq, 0);
	for (uint32_t r = 0; r < 3; r++)
		ck_answer(agent[r ? r - 1 : 0], 20 + r, 0, NULL);
}
END_TEST

START_TEST(a_second_loss_is_told_though_the_first_is_not_settled)
{
	job();
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	leave(agent[2], number, 3, TALLY_EWORKERLOST);
	ck_gone(srv, 1, 1);		/* everybody hears the same under that number */
	ready_as(srv, MSG_EPOCH_READY, number, last(srv, MSG_EPOCH)->epoch, 0);
	ck_gone(agent[0], 1, 1);
	ck_gone(srv, 2, 1);
	follow((const bool[]){ true, true, false });
	ck_gone(agent[0], 2, 1);
	ck_gone(agent[1], 2, 1);
}
END_TEST

START_TEST(the_last_rank_that_is_lost_ends_the_job)
{
	job();
	for (uint32_t r = 0; r < 3; r++)
		leave(agent[r ? r - 1 : 0], number, r, TALLY_EWORKERLOST);
	ck_assert_uint_eq(count(agent[2], MSG_JOB_DOWN, REQ_ANY), 0);
	leave(agent[2], number, 3, TALLY_EWORKERLOST);
	ck_assert_int_eq(last(srv, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
}
END_TEST

START_TEST(on_one_machine_agents_hear_it_without_servers)
{
	agent[0] = hello(NODE_AGENT, "a");
	for (uint32_t r = 0; r < 3; r++)
		join_shrink(agent[0], r, 3, ON_LOSS_SHRINK);
	number = last(agent[0], MSG_JOB_UP)->job;
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	ck_gone(agent[0], 1, 1);
	ck_assert_uint_eq(last(agent[0], MSG_EPOCH)->nservers, 0);
}
END_TEST

START_TEST(ranks_that_want_different_things_hear_it)
{
	agent[0] = hello(NODE_AGENT, "a");
	agent[1] = hello(NODE_AGENT, "b");
	join_shrink(agent[0], 0, 2, ON_LOSS_SHRINK);
	join_shrink(agent[1], 1, 2, ON_LOSS_ERROR);
	ck_answer(agent[0], 1, TALLY_EMISMATCH,
		  "job 'x': rank 0 on machine a wants to shrink when a rank is lost, rank 1 on "
		  "machine b to end" AGREE);
	ck_assert_int_eq(answer(agent[1], 2)->code, TALLY_EMISMATCH);
}
END_TEST

START_TEST(an_agent_that_was_left_behind_is_told_so)
{
	struct msg m = { .type = MSG_JOB_HELD, .job_up = { .name = "x" } };

	job();
	conn_closed(agent[1]);
	pass_beating(1000, (const uint32_t[]){ agent[0], agent[2], srv }, 3);
	follow((const bool[]){ true, false, true });
	agent[1] = hello(NODE_AGENT, "b");
	m.job_up.job = number;
	send(agent[1], &m);
	ck_assert_int_eq(last(agent[1], MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_str_eq(last(agent[1], MSG_JOB_DOWN)->text, "rank 2 on machine b was lost while "
			 "its agent could not reach the scheduler (--agent-grace says for how long "
			 "it may), and job 'x' goes on without it; whoever attaches in such a "
			 "place comes in when all others call tally_grow()");
	ck_assert_uint_eq(count(agent[0], MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(an_agent_with_several_ranks_that_was_left_behind_hears_of_all)
{
	struct msg m = { .type = MSG_JOB_HELD, .job_up = { .name = "x" } };

	job();
	conn_closed(agent[0]);
	pass_beating(1000, (const uint32_t[]){ agent[1], agent[2], srv }, 3);
	follow((const bool[]){ false, true, true });
	agent[0] = hello(NODE_AGENT, "a");
	m.job_up.job = number;
	send(agent[0], &m);
	ck_assert_ptr_nonnull(strstr(last(agent[0], MSG_JOB_DOWN)->text,
				     "ranks 0, 1 on machine a were lost"));
}
END_TEST

/* As its agent may have said just before. */
START_TEST(nobody_waits_for_a_lost_rank)
{
	const struct msg_wait own = { .tensor = 1, .round = 3, .chunks = 4, .kind = WAIT_RANK,
				      .who = 1 };
	struct msg m = { .type = MSG_STUCK };
	struct msg q = { .type = MSG_QUERY, .query = { .what = QUERY_STUCK, .job = "" } };
	uint32_t cli = conn_up();

	job();
	m.stuck = (struct msg_stuck){ .job = number, .nwaits = 1, .waits = &own };
	send(agent[0], &m);
	send(cli, &q);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "t 3 0+4 a 1");
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	send(cli, &q);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "");
}
END_TEST

/* Rank 1 is counted among those who are there, and is lost; rank 3 has yet to come. */
START_TEST(what_a_lost_rank_was_there_for_does_not_begin_without_others)
{
	static const struct want third = { "v", DTYPE_I8, 3 };
	static const uint32_t ids[] = { 2 };

	job();
	for (uint32_t r = 0; r < 3; r++) {
		barrier(agent[r ? r - 1 : 0], 20 + r, number, r, 1);
		declare_in(agent[r ? r - 1 : 0], 30 + r, number, r, &third, 1);
		ids_as(agent[r ? r - 1 : 0], MSG_UNDECLARE, 40 + r, number, r, ids, 1);
	}
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	follow((const bool[]){ true, true, true });
	ck_assert_uint_eq(count(agent[0], MSG_REPLY, 20), 0);
	ck_assert_uint_eq(count(srv, MSG_TENSORS, REQ_ANY), 1);
	ck_assert_uint_eq(count(srv, MSG_FORGET, REQ_ANY), 0);
	barrier(agent[2], 23, number, 3, 1);
	ck_answer(agent[0], 20, 0, "");
	declare_in(agent[2], 33, number, 3, &third, 1);
	ck_assert_uint_eq(count(srv, MSG_TENSORS, REQ_ANY), 2);
}
END_TEST

START_TEST(an_undeclare_does_not_wait_for_a_rank_that_is_lost)
{
	static const uint32_t ids[] = { 2 };

	job();
	for (uint32_t r = 0; r < 4; r++)
		if (r != 1)
			ids_as(agent[r ? r - 1 : 0], MSG_UNDECLARE, 40 + r, number, r, ids, 1);
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	follow((const bool[]){ true, true, true });
	ck_answer(agent[2], 43, 0, "");
}
END_TEST

/* It has detached before: what the survivors ask for is not refused because it has. */
START_TEST(who_had_detached_is_lost_with_its_machine)
{
	job();
	leave(agent[1], number, 2, 0);
	barrier(agent[0], 50, number, 0, 1);
	ck_answer(agent[0], 50, TALLY_ESHUTDOWN, NULL);
	conn_closed(agent[1]);
	pass_beating(2000, (uint32_t[]){ agent[0], agent[2], srv }, 3);
	follow((const bool[]){ true, false, true });
	barrier(agent[0], 51, number, 0, 1);
	barrier(agent[0], 52, number, 1, 1);
	barrier(agent[2], 53, number, 3, 1);
	ck_answer(agent[2], 53, 0, "");
}
END_TEST

/* Ranks 0 and 1 disagree, and know; rank 1 is lost then. */
START_TEST(all_survivors_hear_of_a_mismatch)
{
	static const struct want mine = { "v", DTYPE_I8, 3 }, other = { "v", DTYPE_I8, 4 };

	job();
	declare_in(agent[0], 30, number, 0, &mine, 1);
	declare_in(agent[0], 31, number, 1, &other, 1);
	ck_answer(agent[0], 30, TALLY_EMISMATCH, NULL);
	leave(agent[0], number, 1, TALLY_EWORKERLOST);
	declare_in(agent[1], 32, number, 2, &mine, 1);
	ck_answer(agent[1], 32, TALLY_EMISMATCH, NULL);
	declare_in(agent[2], 33, number, 3, &mine, 1);
	ck_answer(agent[2], 33, TALLY_EMISMATCH, NULL);
}
END_TEST

START_TEST(a_machine_that_is_out_waits_for_nobody)
{
	const struct msg_wait row = { .tensor = 1, .round = 3, .chunks = 4, .kind = WAIT_MACHINE };
	struct msg m = { .type = MSG_STUCK }, q = { .type = MSG_QUERY };
	uint32_t cli = conn_up();

	job();
	m.stuck = (struct msg_stuck){ .job = number, .nwaits = 1, .waits = &row };
	q.query = (struct msg_query){ .what = QUERY_STUCK, .job = "" };
	send(agent[2], &m);
	send(cli, &q);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "t 3 0+4 a 0 1");
	leave(agent[2], number, 3, TALLY_EWORKERLOST);
	send(cli, &q);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "");
}
END_TEST

/* Whoever comes first or last. */
START_TEST(rank_0_says_how_urgent_a_tensor_is)
{
	static const uint32_t order[][4] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 1, 0, 3, 2 } };

	job();
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t r = order[_i][i];
		const struct msg_tensor one = { .name = "v", .dtype = DTYPE_I8, .count = 3,
						.priority = 50 + (int32_t)r };

		send(agent[r ? r - 1 : 0], &(struct msg){ .type = MSG_DECLARE, .declare = {
			.req = 30 + r, .job = number, .rank = r, .timeout_ms = 2000,
			.ntensors = 1, .tensors = &one,
		} });
	}
	ck_assert_int_eq(last(srv, MSG_TENSORS)->priority, 50);
}
END_TEST

/* Four machines with an agent and its rank, and servers. */
struct four {
	uint32_t agent[4], srv[4];	/* UINT32_MAX: there is none */
	bool there[4];			/* the rank is */
};

static uint64_t used;		/* of each server's memory, as it says */

static void four_up(struct four *m, const char *const *server)
{
	static const char *const name[] = { "a", "b", "c", "d" };
	static const struct want grad = { "grad", DTYPE_F32, 16 << 20 };	/* 64 MiB */
	uint64_t epoch;

	used = 0;
	for (uint32_t i = 0; i < 4; i++) {
		m->agent[i] = hello(NODE_AGENT, name[i]);
		m->there[i] = true;
	}
	for (uint32_t i = 0; i < 4; i++)
		m->srv[i] = server[i] ? hello(NODE_SERVER, server[i]) : UINT32_MAX;
	for (uint32_t r = 0; r < 4; r++)
		join_shrink(m->agent[r], r, 4, ON_LOSS_SHRINK);
	number = last(m->srv[0], MSG_JOB_UP)->job;
	epoch = last(m->srv[0], MSG_JOB_UP)->epoch;
	for (uint32_t i = 0; i < 4; i++)
		if (m->srv[i] != UINT32_MAX)
			ready_as(m->srv[i], MSG_JOB_READY, number, epoch, 0);
	for (uint32_t r = 0; r < 4; r++)
		declare_in(m->agent[r], 10, number, r, &grad, 1);
	for (uint32_t i = 0; i < 4; i++)
		if (m->srv[i] != UINT32_MAX)
			ready_as(m->srv[i], MSG_TENSORS_READY, number, 1, 0);
	ck_answer(m->agent[0], 10, 0, NULL);
}

static void four_follow(const struct four *m)
{
	uint64_t epoch = last(m->srv[0], MSG_EPOCH)->epoch;

	for (uint32_t i = 0; i < 4; i++)
		if (m->srv[i] != UINT32_MAX)
			ready_as(m->srv[i], MSG_EPOCH_READY, number, epoch, 0);
	for (uint32_t i = 0; i < 4; i++)
		if (m->there[i])
			ready_as(m->agent[i], MSG_EPOCH_READY, number, epoch, 0);
}

static void four_lose(struct four *m, uint32_t rank)
{
	m->there[rank] = false;
	leave(m->agent[rank], number, rank, TALLY_EWORKERLOST);
}

static void four_beat(const struct four *m, uint32_t seconds)
{
	const struct msg beat = { .type = MSG_HEARTBEAT, .heartbeat = {
		.seq = 1, .note = "", .memory_used_bytes = used,
	} };

	for (; seconds; seconds--) {
		for (uint32_t i = 0; i < 4; i++) {
			heartbeat(m->agent[i], 1);
			if (m->srv[i] != UINT32_MAX)
				send(m->srv[i], &beat);
		}
		pass(1000);
	}
}

static const char *const everywhere[] = { "a", "b", "c", "d" };

static void ck_epochs(const struct four *m, uint32_t n, bool repair)
{
	ck_assert_uint_eq(count(m->srv[0], MSG_EPOCH, REQ_ANY), n);
	ck_assert_uint_eq(last(m->srv[0], MSG_EPOCH)->n, repair);
}

/* Two of four machines have a server and no rank any more: these can sum the most. */
START_TEST(in_a_smaller_world_chunks_move_to_the_shares_that_it_wants)
{
	struct four m;

	four_up(&m, everywhere);
	four_lose(&m, 2);
	four_follow(&m);
	four_lose(&m, 3);
	four_follow(&m);
	ck_epochs(&m, 2, true);
	ck_assert_uint_gt(last(m.srv[0], MSG_EPOCH)->weight[2], UINT32_MAX / 5 * 2);
	four_beat(&m, 10);
	ck_epochs(&m, 3, false);
	four_follow(&m);
	four_beat(&m, 60);			/* and that was it */
	ck_epochs(&m, 3, false);
}
END_TEST

START_TEST(in_a_smaller_world_nothing_moves_where_there_is_no_room_for_it)
{
	struct four m;

	four_up(&m, everywhere);
	used = (1u << 30) - (32 << 20);		/* two would get 16 MiB more each */
	four_lose(&m, 2);
	four_follow(&m);
	four_lose(&m, 3);
	four_follow(&m);
	four_beat(&m, 60);
	ck_epochs(&m, 2, true);
	used -= 64 << 20;
	four_beat(&m, 10);
	ck_epochs(&m, 3, false);
}
END_TEST

START_TEST(in_a_smaller_world_with_the_same_shares_no_epoch_follows)
{
	static const char *const apart[] = { "x", "y", "z", NULL };
	struct four m;

	four_up(&m, apart);
	four_lose(&m, 1);
	four_follow(&m);
	four_beat(&m, 60);
	ck_epochs(&m, 1, true);
}
END_TEST

/* It can take part when the world is already about to be smaller. */
START_TEST(a_server_that_comes_while_ranks_are_lost_gets_its_share)
{
	static const char *const apart[] = { "x", "y", "z", NULL };
	struct four m;

	four_up(&m, apart);
	four_lose(&m, 1);
	m.srv[3] = hello(NODE_SERVER, "new");
	heartbeat(m.srv[3], 1);
	ready_as(m.srv[3], MSG_JOB_READY, number, last(m.srv[3], MSG_JOB_UP)->epoch, 0);
	four_lose(&m, 2);
	four_follow(&m);
	four_follow(&m);
	ck_epochs(&m, 2, true);
	ck_assert_uint_gt(last(m.srv[0], MSG_EPOCH)->weight[3], UINT32_MAX / 5);
	four_beat(&m, 10);
	ck_epochs(&m, 3, false);
	four_follow(&m);
	four_beat(&m, 60);
	ck_epochs(&m, 3, false);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, in_a_smaller_world_chunks_move_to_the_shares_that_it_wants);
	tcase_add_test(t, in_a_smaller_world_nothing_moves_where_there_is_no_room_for_it);
	tcase_add_test(t, in_a_smaller_world_with_the_same_shares_no_epoch_follows);
	tcase_add_test(t, a_server_that_comes_while_ranks_are_lost_gets_its_share);
	tcase_add_loop_test(t, rank_0_says_how_urgent_a_tensor_is, 0, 3);
	tcase_add_test(t, what_a_lost_rank_was_there_for_does_not_begin_without_others);
	tcase_add_test(t, an_undeclare_does_not_wait_for_a_rank_that_is_lost);
	tcase_add_test(t, who_had_detached_is_lost_with_its_machine);
	tcase_add_test(t, all_survivors_hear_of_a_mismatch);
	tcase_add_test(t, a_machine_that_is_out_waits_for_nobody);
	tcase_add_test(t, nobody_waits_for_a_lost_rank);
	tcase_add_test(t, a_lost_rank_is_an_epoch_that_servers_hear_first);
	tcase_add_test(t, an_agent_that_cannot_go_on_may_name_a_lost_rank);
	tcase_add_test(t, a_machine_without_ranks_is_out_and_not_waited_for);
	tcase_add_test(t, a_dead_agent_takes_its_ranks_along_and_the_rest_goes_on);
	tcase_add_test(t, declarations_and_barriers_wait_for_survivors_only);
	tcase_add_test(t, a_second_loss_is_told_though_the_first_is_not_settled);
	tcase_add_test(t, the_last_rank_that_is_lost_ends_the_job);
	tcase_add_test(t, on_one_machine_agents_hear_it_without_servers);
	tcase_add_test(t, ranks_that_want_different_things_hear_it);
	tcase_add_test(t, an_agent_that_was_left_behind_is_told_so);
	tcase_add_test(t, an_agent_with_several_ranks_that_was_left_behind_hears_of_all);
}

int main(void)
{
	return rig_main("sched_shrink", add);
}
