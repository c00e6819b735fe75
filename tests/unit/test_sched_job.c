// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_job.c - a job from its first rank to its last: tensors, barriers.
 *
 * What one rank asks for is answered when all have asked, or by its deadline, and a
 * refusal names who is at odds with whom to every rank that waits.
 */
#include "tests/unit/sched_rig.h"

/* ---- jobs ---- */

START_TEST(job_comes_up_servers_first)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");
	uint32_t s0 = hello(NODE_SERVER, "cpu-0"), s1 = hello(NODE_SERVER, "cpu-1");
	const struct record *up;

	join(b, 5, 3, 0);
	join(a, 6, 3, 2);
	ck_assert_uint_eq(count(s0, MSG_JOB_UP, REQ_ANY), 0);
	join(a, 7, 3, 1);
	up = last(s0, MSG_JOB_UP);
	ck_assert_uint_ne(up->key, 0);
	ck_assert_uint_eq(up->nmachines, 2);
	ck_assert_uint_eq(up->nservers, 2);
	ck_assert_str_eq(up->name, "b");	/* by lowest rank */
	ck_assert_uint_le(up->weight[0] - up->weight[1], 1);	/* equal but for the rounding */
	ck_assert_uint_eq(up->chunk, 64u << 10);	/* 1 Gbit/s: 125 kB in a millisecond */
	ck_assert_uint_eq(up->seg, 64u << 10);
	ck_assert_uint_eq(up->window, 4u << 20);	/* 4 MB in 32 ms */
	ready_as(s0, MSG_JOB_READY, up->job, up->epoch, 0);
	ck_assert_uint_eq(count(a, MSG_JOB_UP, REQ_ANY), 0);
	ready_as(s1, MSG_JOB_READY, up->job, up->epoch, 0);
	ck_assert_uint_eq(last(a, MSG_JOB_UP)->key, 0);
	ck_answer(b, 5, 0, "");
	ck_assert_uint_eq(answer(a, 6)->ids[0], up->job);
	ck_answer(a, 7, 0, "");
}
END_TEST

START_TEST(one_machine_needs_no_server)
{
	uint32_t a = hello(NODE_AGENT, "a");

	join(a, 1, 2, 0);
	join(a, 2, 2, 1);
	ck_answer(a, 1, 0, "");
	ck_assert_uint_eq(last(a, MSG_JOB_UP)->nservers, 0);
}
END_TEST

START_TEST(job_waits_for_a_server_and_says_so)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b"), s;

	join(a, 1, 2, 0);
	join(b, 1, 2, 1);
	pass(2000);
	ck_answer(a, 1, TALLY_ENOSERVER, NULL);
	ck_answer(b, 1, TALLY_ENOSERVER, NULL);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
	join(a, 2, 2, 0);
	join(b, 2, 2, 1);
	s = hello(NODE_SERVER, "cpu-0");
	ck_assert_uint_eq(count(s, MSG_JOB_UP, REQ_ANY), 1);
}
END_TEST

START_TEST(world_mismatch_reaches_every_rank)
{
	static const char text[] =
		"job 'x': rank 0 on machine a says world size 4, rank 1 on machine b says 2";
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	join(a, 1, 4, 0);
	join(a, 2, 4, 2);
	join(b, 1, 2, 1);
	ck_answer(a, 1, TALLY_EMISMATCH, text);
	ck_answer(a, 2, TALLY_EMISMATCH, text);
	ck_answer(b, 1, TALLY_EMISMATCH, text);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

/* Texts that quote names cut these within an e with an accent, wherever they cut. */
START_TEST(names_are_cut_between_characters)
{
	static const struct want other = { "t", DTYPE_F64, 500 };
	char name[NAME_LEN_MAX + 1], mine[NAME_LEN_MAX + 1] = "a";
	struct want t = { mine, DTYPE_F32, 1 };
	struct msg m = { .type = MSG_RANK_JOIN, .rank_join = {
		.req = 1, .job = mine, .world = 2, .rank = 0, .pid = 7, .timeout_ms = 2000,
	} };
	uint32_t a, b, s, job;

	for (size_t at = 1; at + 2 < sizeof(mine); at += 2)
		memcpy(mine + at, "\xc3\xa9", 3);
	memcpy(name, mine, sizeof(name));
	a = hello(NODE_AGENT, mine);
	name[0] = 'b';
	b = hello(NODE_AGENT, name);
	s = hello(NODE_SERVER, mine);
	send(a, &m);
	m.rank_join.rank = 1;
	m.rank_join.world = 3;
	send(b, &m);
	ck_answer(a, 1, TALLY_EMISMATCH, NULL);
	ck_answer(b, 1, TALLY_EMISMATCH, NULL);

	m.rank_join.req = 2;
	m.rank_join.world = 2;
	send(b, &m);
	m.rank_join.rank = 0;
	send(a, &m);
	job = last(s, MSG_JOB_UP)->job;
	ready_as(s, MSG_JOB_READY, job, last(s, MSG_JOB_UP)->epoch, 0);
	declare_in(a, 3, job, 0, &t, 1);
	t.count = 2;
	declare_in(b, 3, job, 1, &t, 1);
	ck_answer(a, 3, TALLY_EMISMATCH, NULL);
	declare_in(a, 4, job, 0, &t, 1);
	declare_in(b, 4, job, 1, &other, 1);
	pass(2000);
	ck_answer(a, 4, TALLY_ETIMEDOUT, NULL);
}
END_TEST

START_TEST(segments_divide_chunks)
{
	uint32_t a = hello(NODE_AGENT, "a"), chunk;

	for (chunk = CHUNK_BYTES_MIN; chunk <= CHUNK_BYTES_MAX; chunk += CHUNK_BYTES_MIN) {
		join_as(a, chunk, 1, 0, 0, chunk);
		ck_assert_uint_eq(last(a, MSG_JOB_UP)->chunk, chunk);
		ck_assert_uint_eq(chunk % last(a, MSG_JOB_UP)->seg, 0);
		leave(a, last(a, MSG_JOB_UP)->job, 0, 0);
	}
}
END_TEST

START_TEST(chunk_wishes_must_agree)
{
	uint32_t a = hello(NODE_AGENT, "a");

	join_as(a, 1, 2, 0, 0, 64u << 10);
	join_as(a, 2, 2, 1, 0, 0);
	ck_answer(a, 1, TALLY_EMISMATCH, "job 'x': rank 0 on machine a wants chunks of 65536 "
		  "bytes (0: any), rank 1 on machine a of 0");
	ck_answer(a, 2, TALLY_EMISMATCH, NULL);
	join_as(a, 3, 2, 1, 0, 5);
	ck_answer(a, 3, TALLY_EINVAL, NULL);
	join_as(a, 4, 2, 1, 0, CHUNK_BYTES_MIN + PAGE_BYTES);	/* the codec lets it pass */
	ck_answer(a, 4, TALLY_EINVAL, NULL);
}
END_TEST

START_TEST(second_process_of_a_rank_is_refused_alone)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	join(a, 1, 3, 0);
	join(b, 1, 3, 0);
	ck_answer(b, 1, TALLY_EEXIST, "rank 0 of job 'x' is on machine a already, process 101"
		  "; give each process a TALLY_RANK of its own, or this job another name "
		  "(TALLY_JOB)");
	ck_assert_uint_eq(count(a, MSG_REPLY, 1), 0);
	join(a, 1, 3, 0);	/* the same one again: answered once */
	pass(2000);
	ck_answer(a, 1, TALLY_ETIMEDOUT, "ranks 1, 2 of job 'x' have not attached");
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(server_that_is_full_fails_the_job)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");
	uint32_t s = hello(NODE_SERVER, "cpu-0");

	join(a, 1, 2, 0);
	join(b, 1, 2, 1);
	ready_as(s, MSG_JOB_READY, last(s, MSG_JOB_UP)->job, last(s, MSG_JOB_UP)->epoch,
		 TALLY_EQUOTA);
	ck_answer(a, 1, TALLY_EQUOTA, "server cpu-0 cannot take job 'x': memory is full");
	ck_answer(b, 1, TALLY_EQUOTA, NULL);
	ck_assert_int_eq(last(s, MSG_JOB_DOWN)->code, TALLY_EQUOTA);
	ck_assert_uint_eq(count(a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(server_that_is_silent_is_named)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	hello(NODE_SERVER, "cpu-0");
	join(a, 1, 2, 0);
	join(b, 1, 2, 1);
	pass(2000);
	ck_answer(a, 1, TALLY_ETIMEDOUT, "job 'x' waits for server cpu-0 to reserve memory");
}
END_TEST

START_TEST(last_rank_that_leaves_ends_the_job)
{
	struct pair p = pair_up();

	barrier(p.b, 9, p.job, 1, 1);
	leave(p.a, p.job, 0, 0);
	ck_assert_uint_eq(last(p.b, MSG_RANK_LEAVE)->rank, 0);
	ck_answer(p.b, 9, TALLY_ESHUTDOWN, "rank 0 of job 'x' has detached");
	barrier(p.b, 10, p.job, 1, 1);
	ck_answer(p.b, 10, TALLY_ESHUTDOWN, NULL);
	leave(p.b, p.job, 1, 0);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, 0);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, 0);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

/* Its agent holds a detaching process back until then, whatever became of its job. */
START_TEST(who_leaves_is_answered)
{
	struct pair p = pair_up();
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = p.job, .text = "", .req = 5,
	} };

	leave(p.b, p.job, 1, 0);		/* nobody waits */
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 0), 0);
	send(p.a, &m);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 1);
	ck_answer(p.a, 5, 0, "");
	m.rank_leave.req++;
	send(p.a, &m);
	ck_answer(p.a, 6, 0, "");
	m.rank_leave.job = 99;
	m.rank_leave.req++;
	send(p.a, &m);
	ck_answer(p.a, 7, 0, "");
}
END_TEST

/* Its ranks do not detach in one moment; the next job of that name waits its turn. */
START_TEST(next_job_of_a_name_is_told_who_has_not_left_the_last)
{
	struct pair p = pair_up();

	leave(p.a, p.job, 0, 0);
	join(p.a, 8, 1, 0);
	ck_answer(p.a, 8, TALLY_EBUSY, "the job 'x' of before is not over, "
		  "rank 1 (machine b) has not detached yet");
	join(p.a, 9, 2, 1);		/* also where its place is taken */
	ck_answer(p.a, 9, TALLY_EBUSY, NULL);
	leave(p.b, p.job, 1, 0);
	join(p.a, 10, 1, 0);
	ck_answer(p.a, 10, 0, "");
}
END_TEST

START_TEST(lost_rank_is_named_to_everybody)
{
	struct pair p = pair_up();

	barrier(p.a, 9, p.job, 0, 1);
	leave(p.b, p.job, 1, TALLY_EWORKERLOST);
	ck_assert_str_eq(last(p.a, MSG_JOB_DOWN)->text,
			 "rank 1 on machine b is gone (process ended)");
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_answer(p.a, 9, TALLY_EWORKERLOST, NULL);
}
END_TEST

START_TEST(what_an_agent_found_is_told_as_it_is)
{
	struct pair p = pair_up();
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = p.job, .rank = 1, .code = TALLY_EMISMATCH,
		.text = "the ranks disagree on the operation",
	} };

	barrier(p.a, 9, p.job, 0, 1);
	send(p.b, &m);
	ck_assert_int_eq(last(p.b, MSG_JOB_DOWN)->code, TALLY_EMISMATCH);
	ck_assert_str_eq(last(p.server, MSG_JOB_DOWN)->text, "the ranks disagree on the operation");
	ck_answer(p.a, 9, TALLY_EMISMATCH, "the ranks disagree on the operation");
}
END_TEST

/* The rank that it names has detached; others on its machine wait for what cannot be. */
START_TEST(what_an_agent_found_is_told_also_of_a_rank_that_has_left)
{
	struct pair p = pair_up();

	leave(p.b, p.job, 1, 0);
	leave(p.b, p.job, 1, TALLY_ESHUTDOWN);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_ESHUTDOWN);
}
END_TEST

START_TEST(agent_that_cannot_take_the_job_says_why_to_everybody)
{
	struct pair p = pair_up();
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = p.job, .rank = 1, .code = TALLY_ENOMEM, .text = "out of memory",
	} };

	barrier(p.a, 9, p.job, 0, 1);
	send(p.b, &m);
	ck_assert_int_eq(last(p.server, MSG_JOB_DOWN)->code, TALLY_ENOMEM);
	ck_answer(p.a, 9, TALLY_ENOMEM, "machine b: out of memory");
}
END_TEST

static void withdraw(uint32_t conn, uint32_t rank, uint32_t pid)
{
	struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.rank = rank, .code = TALLY_EWORKERLOST, .text = "x", .pid = pid,
	} };

	send(conn, &m);
}

START_TEST(process_that_ends_while_joining_gives_its_place_back)
{
	uint32_t a = hello(NODE_AGENT, "a"), b = hello(NODE_AGENT, "b");

	hello(NODE_SERVER, "cpu-0");
	join(a, 1, 2, 0);
	withdraw(a, 0, 102);			/* another process: it was refused */
	withdraw(b, 0, 101);			/* another machine */
	ck_assert_uint_eq(sched_jobs(w->s), 1);
	withdraw(a, 0, 101);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
	ck_assert_uint_eq(count(a, MSG_REPLY, 1), 0);	/* nobody is there to hear it */
	join(a, 3, 2, 0);			/* its successor */
	ck_assert_uint_eq(count(a, MSG_REPLY, 3), 0);
	join(b, 1, 2, 1);
	withdraw(a, 0, 103);			/* the job is being set up: it is lost */
	ck_answer(b, 1, TALLY_EWORKERLOST, "rank 0 on machine a is gone (process 103 has ended "
		  "while it was joining)");
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

static void epoch_ready(uint32_t conn, uint32_t job, uint64_t epoch)
{
	ready_as(conn, MSG_EPOCH_READY, job, epoch, 0);
}

/* A server dies: its chunks move; the only one: the job waits for another. */
START_TEST(dead_server_is_repaired_or_awaited)
{
	struct pair p = pair_up();
	uint32_t other = hello(NODE_SERVER, "cpu-1");
	uint64_t epoch;

	heartbeat(other, 1);
	ck_assert_uint_eq(last(other, MSG_JOB_UP)->job, p.job);
	ready_as(other, MSG_JOB_READY, p.job, last(other, MSG_JOB_UP)->epoch, 0);
	epoch = last(other, MSG_EPOCH)->epoch;
	ck_assert_uint_eq(last(other, MSG_EPOCH)->n, 0);
	ck_assert_uint_eq(count(p.a, MSG_EPOCH, REQ_ANY), 0);	/* servers first */
	epoch_ready(p.server, p.job, epoch);
	epoch_ready(other, p.job, epoch);
	ck_assert_uint_eq(last(p.a, MSG_EPOCH)->epoch, epoch);
	epoch_ready(p.a, p.job, epoch);
	ck_assert_uint_eq(count(other, MSG_EPOCH_READY, REQ_ANY), 0);
	epoch_ready(p.b, p.job, epoch);
	ck_assert_uint_eq(last(other, MSG_EPOCH_READY)->seq, epoch);
	conn_closed(p.server);
	pass(RECONNECT_GRACE_MS);
	ck_assert_uint_eq(last(other, MSG_EPOCH)->n, 1);
	ck_assert_uint_gt(last(other, MSG_EPOCH)->epoch, epoch);
	ck_assert_uint_eq(last(other, MSG_EPOCH)->weight[0], 0);
	epoch_ready(other, p.job, last(other, MSG_EPOCH)->epoch);
	ck_assert_uint_eq(last(p.a, MSG_EPOCH)->n, 1);
	conn_closed(other);
	pass(RECONNECT_GRACE_MS);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

START_TEST(dead_agent_ends_the_job)
{
	struct pair p = pair_up();

	conn_closed(p.b);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	pass(RECONNECT_GRACE_MS);
	ck_assert_int_eq(last(p.a, MSG_JOB_DOWN)->code, TALLY_EWORKERLOST);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

START_TEST(away_node_hears_what_it_missed)
{
	struct pair p = pair_up();
	uint32_t again;

	barrier(p.b, 9, p.job, 1, 1);
	conn_closed(p.b);
	barrier(p.a, 9, p.job, 0, 1);
	leave(p.a, p.job, 0, TALLY_EMISMATCH);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
	again = hello_from(NODE_AGENT, "b", "b", 2, "");
	ck_answer(again, 9, 0, "");
	ck_assert_int_eq(last(again, MSG_JOB_DOWN)->code, TALLY_EMISMATCH);
	ck_assert_uint_eq(sched_jobs(w->s), 0);
}
END_TEST

/* ---- tensors ---- */

START_TEST(batch_goes_to_servers_then_agents_then_ids)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	ck_assert_uint_eq(count(p.server, MSG_TENSORS, REQ_ANY), 0);
	declare_in(p.b, 2, p.job, 1, swapped, 2);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->n, 2);
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, REQ_ANY), 0);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.b, MSG_TENSORS)->seq, 1);
	ck_assert_uint_eq(answer(p.a, 2)->ids[0], 1);
	ck_assert_uint_eq(answer(p.a, 2)->ids[1], 2);
	ck_assert_uint_eq(answer(p.b, 2)->ids[0], 2);
	ck_assert_uint_eq(answer(p.b, 2)->ids[1], 1);
	declare_in(p.a, 3, p.job, 0, both, 1);
	ck_answer(p.a, 3, 0, NULL);
	ck_assert_uint_eq(answer(p.a, 3)->ids[0], 1);
}
END_TEST

/* To the servers and back, to the agents, and the answers: nothing per tensor. */
START_TEST(ten_thousand_tensors_take_one_round_trip)
{
	enum { N = 10000 };
	struct pair p = pair_up();
	struct want *t = calloc(N, sizeof(*t));
	char (*names)[12] = calloc(N, sizeof(*names));
	uint32_t before = w->n;

	for (uint32_t i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "t%u", i);
		t[i] = (struct want){ names[i], DTYPE_F32, 1 + i };
	}
	declare_in(p.a, 2, p.job, 0, t, N);
	ck_assert_uint_eq(w->n - before, 0);
	declare_in(p.b, 2, p.job, 1, t, N);
	ck_assert_uint_eq(w->n - before, 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->n, N);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_assert_uint_eq(w->n - before, 1 + 2 + 2);
	ck_assert_uint_eq(last(p.a, MSG_TENSORS)->n, N);
	ck_assert_uint_eq(answer(p.b, 2)->n, N);
	free(t);
	free(names);
}
END_TEST

START_TEST(tensor_mismatch_names_both_sides_everywhere)
{
	static const struct want other[] = { { "t", DTYPE_F64, 500 } };
	static const char text[] = "tensor 't': rank 0 (machine a) float32[1000], "
				   "rank 1 (machine b) float64[500]";
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, other, 1);
	ck_answer(p.a, 2, TALLY_EMISMATCH, text);
	ck_answer(p.b, 2, TALLY_EMISMATCH, text);
	declare_in(p.a, 3, p.job, 0, other, 1);		/* the name is free again */
	declare_in(p.b, 3, p.job, 1, other, 1);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.a, 3, 0, NULL);
}
END_TEST

START_TEST(mismatch_of_tensors_without_shape_names_their_counts)
{
	static const struct want one[] = { { "t", DTYPE_F32, 1000, true } };
	static const struct want other[] = { { "t", DTYPE_F32, 1001, true } };
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, one, 1);
	declare_in(p.b, 2, p.job, 1, other, 1);
	ck_answer(p.a, 2, TALLY_EMISMATCH, "tensor 't': rank 0 (machine a) float32[1000], "
		  "rank 1 (machine b) float32[1001]");
	declare_in(p.a, 3, p.job, 0, one, 1);
	declare_in(p.b, 3, p.job, 1, both, 1);	/* the same but for the shape, which it has */
	ck_answer(p.a, 3, TALLY_EMISMATCH, "tensor 't': rank 0 (machine a) float32[1000] without "
		  "a shape, rank 1 (machine b) float32[1000]");
}
END_TEST

START_TEST(late_rank_hears_of_the_mismatch)
{
	static const struct want other[] = { { "t", DTYPE_F64, 500 } };
	uint32_t a = hello(NODE_AGENT, "a");

	for (uint32_t r = 0; r < 3; r++)
		join(a, r, 3, r);
	declare_in(a, 10, 1, 0, both, 1);
	declare_in(a, 11, 1, 1, other, 1);
	declare_in(a, 12, 1, 1, other, 1);
	ck_answer(a, 12, TALLY_EMISMATCH, NULL);
	declare_in(a, 13, 1, 2, both, 2);
	ck_answer(a, 13, TALLY_EMISMATCH, answer(a, 10)->text);
	for (uint32_t r = 0; r < 3; r++)
		declare_in(a, 20 + r, 1, r, both, 2);
	ck_answer(a, 22, 0, NULL);
}
END_TEST

START_TEST(declare_deadline_names_tensors_and_ranks)
{
	struct pair p = pair_up();
	uint32_t conns[] = { p.a, p.b, p.server };

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 1);
	pass_beating(2000, conns, 3);
	ck_answer(p.a, 2, TALLY_ETIMEDOUT,
		  "tensor 'u' of job 'x': rank 1 (machine b) has not declared it");
	ck_assert_int_eq(answer(p.b, 2)->code, TALLY_ETIMEDOUT);
	declare_in(p.a, 3, p.job, 0, both, 2);		/* all was taken back */
	declare_in(p.b, 3, p.job, 1, both, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.b, 3, 0, NULL);
}
END_TEST

START_TEST(declare_is_all_or_nothing)
{
	static const struct want twice[] = { { "v", DTYPE_F32, 1 }, { "v", DTYPE_F32, 1 } };
	struct pair p = pair_declared();

	declare_in(p.a, 3, p.job, 0, twice, 2);
	ck_answer(p.a, 3, TALLY_EINVAL, NULL);
	declare_in(p.a, 4, p.job, 0, twice, 1);
	declare_in(p.b, 4, p.job, 1, twice, 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->seq, 2);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->ids[0], 3);
}
END_TEST

START_TEST(batches_cut_differently_go_together)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, &both[0], 1);
	ck_assert_uint_eq(count(p.server, MSG_TENSORS, REQ_ANY), 0);
	declare_in(p.b, 3, p.job, 1, &both[1], 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->n, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.b, 2, 0, NULL);
	ck_answer(p.b, 3, 0, NULL);
}
END_TEST

START_TEST(server_without_room_takes_the_batch_back)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 2);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, TALLY_EQUOTA);
	ck_answer(p.a, 2, TALLY_EQUOTA, "memory is full");
	ck_answer(p.b, 2, TALLY_EQUOTA, NULL);
	ck_assert_uint_eq(count(p.a, MSG_TENSORS, 0), 0);	/* nobody gives memory in vain */
	ck_assert_uint_eq(count(p.a, MSG_FORGET, 0), 1);	/* for both numbers */
	ck_assert_uint_eq(last(p.a, MSG_FORGET)->seq, 2);
	ck_assert_uint_eq(last(p.a, MSG_FORGET)->n, 0);
	ck_assert_uint_eq(last(p.server, MSG_FORGET)->n, 2);
}
END_TEST

START_TEST(silent_server_fails_the_batch_by_name)
{
	struct pair p = pair_up();
	uint32_t conns[] = { p.a, p.b, p.server };

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, both, 2);
	pass_beating(2000, conns, 3);
	ck_answer(p.a, 2, TALLY_ETIMEDOUT, "job 'x' waits for server cpu-0");
	ck_answer(p.b, 2, TALLY_ETIMEDOUT, NULL);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_assert_uint_eq(last(p.b, MSG_FORGET)->seq, 2);
}
END_TEST

START_TEST(undeclare_forgets_when_all_have)
{
	static const uint32_t ids[] = { 1, 2 }, none[] = { 77 };
	struct pair p = pair_declared();

	ids_as(p.a, MSG_UNDECLARE, 3, p.job, 0, ids, 2);
	ids_as(p.a, MSG_UNDECLARE, 4, p.job, 0, ids, 1);
	ck_answer(p.a, 4, TALLY_EEXIST, NULL);
	ids_as(p.a, MSG_UNDECLARE, 5, p.job, 0, none, 1);
	ck_answer(p.a, 5, TALLY_ENOENT, NULL);
	ck_assert_uint_eq(count(p.server, MSG_FORGET, REQ_ANY), 0);
	ids_as(p.b, MSG_UNDECLARE, 3, p.job, 1, ids, 2);
	ck_answer(p.a, 3, 0, "");
	ck_answer(p.b, 3, 0, "");
	ck_assert_uint_eq(last(p.server, MSG_FORGET)->seq, 2);
	declare_in(p.a, 6, p.job, 0, both, 1);
	declare_in(p.b, 6, p.job, 1, both, 1);
	ck_assert_uint_eq(last(p.server, MSG_TENSORS)->ids[0], 3);	/* never reused */
}
END_TEST

/* What is in the log comes to its end, also when somebody has detached meanwhile. */
START_TEST(a_rank_that_detaches_takes_nothing_out_of_the_log)
{
	struct pair p = pair_up();

	declare_in(p.a, 2, p.job, 0, both, 2);
	declare_in(p.b, 2, p.job, 1, swapped, 2);
	leave(p.a, p.job, 0, 0);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 2), 0);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.b, 2, 0, "");
}
END_TEST

START_TEST(requests_of_one_rank_have_a_limit)
{
	struct pair p = pair_up();
	char name[16];

	for (uint32_t i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		declare_in(p.a, 10 + i, p.job, 0, &(struct want){ name, DTYPE_I8, 1 }, 1);
		ck_assert_uint_eq(count(p.a, MSG_REPLY, 10 + i), 0);
	}
	declare_in(p.a, 5, p.job, 0, both, 1);
	ck_answer(p.a, 5, TALLY_EQUOTA, NULL);
	declare_in(p.b, 5, p.job, 1, both, 1);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 5), 0);
}
END_TEST

/* ---- barriers, reports, hostile words ---- */

START_TEST(barrier_opens_for_all_or_names_who_is_missing)
{
	struct pair p = pair_up();
	uint32_t conns[] = { p.a, p.b, p.server };

	barrier(p.a, 2, p.job, 0, 1);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 2), 0);
	barrier(p.b, 2, p.job, 1, 1);
	ck_answer(p.a, 2, 0, "");
	ck_answer(p.b, 2, 0, "");
	barrier(p.b, 3, p.job, 1, 2);
	pass_beating(2000, conns, 3);
	ck_answer(p.b, 3, TALLY_ETIMEDOUT, "barrier 2 of job 'x' waits for rank 0 (machine a)");
}
END_TEST

/* The answer was lost: by asking again nobody gets into the next barrier. */
START_TEST(barrier_asked_again_is_entered_once)
{
	struct pair p = pair_up();

	barrier(p.a, 2, p.job, 0, 1);
	barrier(p.b, 2, p.job, 1, 1);
	barrier(p.a, 2, p.job, 0, 1);
	ck_assert_uint_eq(count(p.a, MSG_REPLY, 2), 2);
	barrier(p.b, 3, p.job, 1, 2);
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 3), 0);
	barrier(p.a, 3, p.job, 0, 2);
	ck_answer(p.a, 3, 0, "");
	ck_answer(p.b, 3, 0, "");
}
END_TEST

/* A rank that gave up before we did comes back under another number. */
START_TEST(barrier_place_is_the_ranks_own)
{
	struct pair p = pair_up();

	barrier(p.b, 3, p.job, 1, 1);
	barrier(p.b, 4, p.job, 1, 1);
	ck_answer(p.b, 3, TALLY_EEXIST, "the barrier was asked for again");
	barrier(p.a, 3, p.job, 0, 1);
	ck_answer(p.b, 4, 0, "");
}
END_TEST

/* As after a restart: who asks for the next has passed this one, and so have all. */
START_TEST(barrier_that_one_rank_has_passed_is_open)
{
	struct pair p = pair_up();

	barrier(p.a, 2, p.job, 0, 7);
	barrier(p.b, 2, p.job, 1, 8);
	ck_answer(p.a, 2, 0, "");
	ck_assert_uint_eq(count(p.b, MSG_REPLY, 2), 0);
	barrier(p.a, 3, p.job, 0, 8);
	ck_answer(p.a, 3, 0, "");
	ck_answer(p.b, 2, 0, "");
}
END_TEST

START_TEST(report_says_what_is_waited_for)
{
	struct pair p = pair_up();
	uint32_t cli = conn_up();

	query(cli);
	ck_assert_uint_eq(last(cli, MSG_REPORT)->n, 3);
	ck_assert_uint_eq(last(cli, MSG_REPORT)->nmachines, 1);
	ck_assert_str_eq(last(cli, MSG_REPORT)->name, "active");
	declare_in(p.a, 2, p.job, 0, both, 1);
	query(cli);
	ck_assert_uint_eq(last(cli, MSG_REPORT)->nservers, 1);
	ck_assert_str_eq(last(cli, MSG_REPORT)->text, "rank 1 (machine b)");
}
END_TEST

START_TEST(nonsense_is_refused_and_harms_nobody)
{
	struct pair p = pair_up();

	barrier(p.a, 2, 99, 0, 1);
	ck_answer(p.a, 2, TALLY_ENOENT, "there is no job number 99");
	barrier(p.a, 3, p.job, 1, 1);
	ck_answer(p.a, 3, TALLY_ENOENT, "rank 1 of job 'x' is not on machine a");
	declare_in(p.a, 4, p.job, UINT32_MAX, both, 2);
	ck_answer(p.a, 4, TALLY_ENOENT, NULL);
	declare_in(p.a, 5, p.job, 0, both, 0);
	ck_answer(p.a, 5, TALLY_EINVAL, NULL);
	leave(p.a, p.job, 1, -1);
	ready_as(p.server, MSG_TENSORS_READY, p.job, 7, 0);
	ready_as(p.server, MSG_JOB_READY, p.job, 7, 0);
	ck_assert_uint_eq(sched_counters(w->s)->strays, 2);
	ck_assert_uint_eq(sched_jobs(w->s), 1);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, job_comes_up_servers_first);
	tcase_add_test(t, one_machine_needs_no_server);
	tcase_add_test(t, job_waits_for_a_server_and_says_so);
	tcase_add_test(t, world_mismatch_reaches_every_rank);
	tcase_add_test(t, names_are_cut_between_characters);
	tcase_add_test(t, segments_divide_chunks);
	tcase_add_test(t, chunk_wishes_must_agree);
	tcase_add_test(t, second_process_of_a_rank_is_refused_alone);
	tcase_add_test(t, server_that_is_full_fails_the_job);
	tcase_add_test(t, server_that_is_silent_is_named);
	tcase_add_test(t, last_rank_that_leaves_ends_the_job);
	tcase_add_test(t, who_leaves_is_answered);
	tcase_add_test(t, next_job_of_a_name_is_told_who_has_not_left_the_last);
	tcase_add_test(t, lost_rank_is_named_to_everybody);
	tcase_add_test(t, what_an_agent_found_is_told_as_it_is);
	tcase_add_test(t, what_an_agent_found_is_told_also_of_a_rank_that_has_left);
	tcase_add_test(t, agent_that_cannot_take_the_job_says_why_to_everybody);
	tcase_add_test(t, process_that_ends_while_joining_gives_its_place_back);
	tcase_add_test(t, dead_agent_ends_the_job);
	tcase_add_test(t, dead_server_is_repaired_or_awaited);
	tcase_add_test(t, away_node_hears_what_it_missed);
	tcase_add_test(t, batch_goes_to_servers_then_agents_then_ids);
	tcase_add_test(t, ten_thousand_tensors_take_one_round_trip);
	tcase_add_test(t, tensor_mismatch_names_both_sides_everywhere);
	tcase_add_test(t, mismatch_of_tensors_without_shape_names_their_counts);
	tcase_add_test(t, late_rank_hears_of_the_mismatch);
	tcase_add_test(t, declare_deadline_names_tensors_and_ranks);
	tcase_add_test(t, declare_is_all_or_nothing);
	tcase_add_test(t, batches_cut_differently_go_together);
	tcase_add_test(t, server_without_room_takes_the_batch_back);
	tcase_add_test(t, silent_server_fails_the_batch_by_name);
	tcase_add_test(t, undeclare_forgets_when_all_have);
	tcase_add_test(t, a_rank_that_detaches_takes_nothing_out_of_the_log);
	tcase_add_test(t, requests_of_one_rank_have_a_limit);
	tcase_add_test(t, barrier_opens_for_all_or_names_who_is_missing);
	tcase_add_test(t, barrier_asked_again_is_entered_once);
	tcase_add_test(t, barrier_place_is_the_ranks_own);
	tcase_add_test(t, barrier_that_one_rank_has_passed_is_open);
	tcase_add_test(t, report_says_what_is_waited_for);
	tcase_add_test(t, nonsense_is_refused_and_harms_nobody);
}

int main(void)
{
	return rig_main("sched_job", add);
}
