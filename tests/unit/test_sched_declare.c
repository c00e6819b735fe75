// SPDX-License-Identifier: Apache-2.0
/*
 * sched_declare.c, and the log's part in it: what ranks hear that disagree on a tensor, whatever
 * memory there is, and servers that refuse tensors and were not asked.
 */
#include "tests/unit/sched_rig.h"

static const struct want hundred = { "t", DTYPE_F32, 100 }, more = { "t", DTYPE_F32, 101 };

static uint32_t machine, job;

static int heard(uint64_t req)
{
	return count(machine, MSG_REPLY, req) ? answer(machine, req)->code : 0;
}

/* Who is told so is not heard again; so who asks later must be told, too, and not wait for them. */
START_TEST(who_asks_late_hears_of_it_whichever_allocation_has_failed)
{
	machine = hello(NODE_AGENT, "a");
	for (uint32_t r = 0; r < 3; r++)
		join(machine, 1 + r, 3, r);
	job = last(machine, MSG_JOB_UP)->job;
	declare_in(machine, 10, job, 0, &hundred, 1);
	w->allocs = 0;
	w->fail_every = (uint32_t)_i;
	declare_in(machine, 11, job, 1, &more, 1);
	w->fail_every = 0;
	if (heard(11) == TALLY_ENOMEM || !count(machine, MSG_REPLY, 11))
		declare_in(machine, 11, job, 1, &more, 1);	/* as who has not heard does */
	ck_assert_int_eq(heard(11), TALLY_EMISMATCH);
	declare_in(machine, 12, job, 2, &hundred, 1);
	ck_assert_int_eq(heard(12), TALLY_EMISMATCH);
	for (uint32_t r = 0; r < 3; r++)		/* and then it is forgotten */
		declare_in(machine, 20 + r, job, r, &hundred, 1);
	ck_answer(machine, 22, 0, "");
}
END_TEST

/*
 * cpu-1 is told of the job while tensors are declared, joins it (_i: or does not yet), is given
 * chunks, and then says that it had no memory for these tensors.
 */
START_TEST(who_joins_and_refuses_tensors_that_all_others_have_is_out_again)
{
	struct pair p = pair_up();
	const uint32_t one = p.server, two = hello(NODE_SERVER, "cpu-1");
	const struct msg gone = { .type = MSG_JOB_DOWN, .job_down = { .job = p.job, .text = "" } };
	uint64_t joined;

	heartbeat(two, 1);
	joined = last(two, MSG_JOB_UP)->epoch;
	declare_in(p.a, 10, p.job, 0, both, 2);
	declare_in(p.b, 10, p.job, 1, both, 2);
	ck_assert_uint_eq(count(two, MSG_TENSORS, REQ_ANY), 1);
	ready_as(one, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.a, 10, 0, "");
	if (!_i)
		ready_as(two, MSG_JOB_READY, p.job, joined, 0);
	ck_assert_uint_eq(count(one, MSG_EPOCH, REQ_ANY), !_i);
	ready_as(two, MSG_TENSORS_READY, p.job, 1, TALLY_ENOMEM);
	ck_assert_str_eq(last(two, MSG_JOB_DOWN)->text, "memory is full");
	ready_as(two, MSG_JOB_READY, p.job, joined, 0);		/* that was on its way */
	send(two, &gone);
	if (!_i) {
		follow_epoch(&p, &one, 1);
		ck_assert_uint_eq(last(one, MSG_EPOCH)->nlet_go, 1);
	}
	heartbeat(two, 2);
	ck_assert_uint_eq(count(two, MSG_JOB_UP, REQ_ANY), 1);	/* it is not asked at once */
	pass_beating(20000, (uint32_t[]){ p.a, p.b, one, two }, 4);
	ck_assert_uint_eq(count(two, MSG_JOB_UP, REQ_ANY), 2);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* It is told an epoch, since another server died, before it has said that it takes the job. */
START_TEST(who_joins_and_cannot_follow_an_epoch_costs_nobody_the_job)
{
	struct pair p = pair_declared();
	const uint32_t one = p.server, two = hello(NODE_SERVER, "cpu-1");
	const struct msg gone = { .type = MSG_JOB_DOWN, .job_down = { .job = p.job, .text = "" } };
	uint32_t late;

	heartbeat(two, 1);
	ready_as(two, MSG_JOB_READY, p.job, last(two, MSG_JOB_UP)->epoch, 0);
	follow_epoch(&p, (uint32_t[]){ one, two }, 2);
	late = hello(NODE_SERVER, "cpu-2");
	heartbeat(late, 1);
	ck_assert_uint_eq(count(late, MSG_JOB_UP, REQ_ANY), 1);
	conn_closed(two);
	pass_beating(RECONNECT_GRACE_MS + 10, (uint32_t[]){ p.a, p.b, one, late }, 4);
	ck_assert_uint_eq(count(late, MSG_EPOCH, REQ_ANY), 1);
	ready_as(late, MSG_EPOCH_READY, p.job, last(late, MSG_EPOCH)->epoch, TALLY_ENOMEM);
	ck_assert_str_eq(last(late, MSG_JOB_DOWN)->text, "memory is full");
	send(late, &gone);
	follow_epoch(&p, &one, 1);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

/* It has joined, and has no memory for the share that it is to have: nothing is lost by that. */
START_TEST(who_joins_and_cannot_take_its_share_costs_nobody_the_job)
{
	struct pair p = pair_declared();
	const uint32_t one = p.server, two = hello(NODE_SERVER, "cpu-1");
	const struct msg gone = { .type = MSG_JOB_DOWN, .job_down = { .job = p.job, .text = "" } };
	uint64_t epoch;

	heartbeat(two, 1);
	ready_as(two, MSG_JOB_READY, p.job, last(two, MSG_JOB_UP)->epoch, 0);
	epoch = last(two, MSG_EPOCH)->epoch;
	ready_as(one, MSG_EPOCH_READY, p.job, epoch, 0);
	ready_as(two, MSG_EPOCH_READY, p.job, epoch, TALLY_ENOMEM);
	ck_assert_str_eq(last(two, MSG_JOB_DOWN)->text, "memory is full");
	send(two, &gone);
	ck_assert_uint_gt(last(one, MSG_EPOCH)->epoch, epoch);
	follow_epoch(&p, &one, 1);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
	pass_beating(20000, (uint32_t[]){ p.a, p.b, one, two }, 4);
	ck_assert_uint_eq(count(two, MSG_JOB_UP, REQ_ANY), 2);
	ck_assert_uint_eq(count(p.a, MSG_JOB_DOWN, REQ_ANY), 0);
}
END_TEST

static void declare_meaning(uint32_t conn, uint64_t req, uint32_t in, uint32_t rank,
			    const char *meaning)
{
	struct msg_tensor t = { .name = "bucket0", .dtype = DTYPE_F32, .count = 14,
				.meaning = meaning };
	struct msg m = { .type = MSG_DECLARE, .declare = {
		.req = req, .job = in, .rank = rank, .timeout_ms = 2000, .ntensors = 1,
		.tensors = &t,
	} };

	send(conn, &m);
}

static const struct {
	const char *one, *other, *text;
} meanings[] = {
	{ "in float32[4]; out float32[10]", "in float32[4]; out float32[5, 2]",
	  "tensor 'bucket0': rank 0 (machine a) has out float32[10], "
	  "rank 1 (machine b) has out float32[5, 2]" },
	{ "in float32[4]; out float32[10]", "in float32[4]",
	  "tensor 'bucket0': rank 0 (machine a) has out float32[10], "
	  "rank 1 (machine b) has nothing more" },
	{ "in", "", "tensor 'bucket0': rank 0 (machine a) has in, "
	  "rank 1 (machine b) has nothing more" },
	{ "inner", "in", "tensor 'bucket0': rank 0 (machine a) has inner, "
	  "rank 1 (machine b) has in" },
};

START_TEST(equal_tensors_that_stand_for_other_things_are_a_mismatch)
{
	struct pair p = pair_up();

	declare_meaning(p.a, 7, p.job, 0, meanings[_i].one);
	declare_meaning(p.b, 7, p.job, 1, meanings[_i].other);
	ck_answer(p.a, 7, TALLY_EMISMATCH, meanings[_i].text);
	ck_answer(p.b, 7, TALLY_EMISMATCH, meanings[_i].text);
	declare_meaning(p.a, 8, p.job, 0, "the same");	/* it may be tried again */
	declare_meaning(p.b, 8, p.job, 1, "the same");
	ready_as(p.server, MSG_TENSORS_READY, p.job, 1, 0);
	ck_answer(p.a, 8, 0, NULL);
	ck_answer(p.b, 8, 0, NULL);
}
END_TEST

START_TEST(meanings_of_a_job_have_a_bound)
{
	enum { BATCH = MEANING_BYTES_MAX / MEANING_LEN_MAX + 1 };
	struct pair p = pair_up();
	static char text[MEANING_LEN_MAX + 1], name[BATCH][16];
	static struct msg_tensor t[BATCH];
	struct msg m = { .type = MSG_DECLARE, .declare = {
		.req = 9, .job = p.job, .timeout_ms = 2000, .ntensors = BATCH, .tensors = t,
	} };

	memset(text, 'x', MEANING_LEN_MAX);
	for (uint32_t i = 0; i < BATCH; i++) {
		snprintf(name[i], sizeof(name[i]), "t%u", i);
		t[i] = (struct msg_tensor){ .name = name[i], .dtype = DTYPE_F32, .meaning = text };
	}
	send(p.a, &m);
	ck_assert_int_eq(answer(p.a, 9)->code, TALLY_EQUOTA);
}
END_TEST

static uint32_t job_of(uint32_t uid, const char *name, uint32_t req)
{
	send(machine, &(struct msg){ .type = MSG_RANK_JOIN, .rank_join = {
		.req = req, .job = name, .world = 1, .pid = req, .timeout_ms = 1000, .uid = uid,
	} });
	return last(machine, MSG_JOB_UP)->job;
}

START_TEST(all_jobs_of_a_user_have_as_many_tensors_as_the_operator_allows)
{
	const struct want three[] = { { "t", DTYPE_F32, 0 }, { "u", DTYPE_F32, 0 },
				      { "v", DTYPE_F32, 0 } };
	uint32_t one, other, of_another;

	sched_free(w->s);
	user_tensors = 4;
	world_open((struct sched_ids){ 0 }, 0, "");
	user_tensors = 0;
	machine = hello(NODE_AGENT, "a");
	one = job_of(1000, "one", 1);
	other = job_of(1000, "other", 2);
	of_another = job_of(1001, "of another", 3);
	declare_in(machine, 10, one, 0, three, 3);
	ck_answer(machine, 10, 0, "");
	declare_in(machine, 11, other, 0, three, 2);
	ck_answer(machine, 11, TALLY_EQUOTA, "user id 1000 has 4 tensors in all jobs, as many as "
		  "one user may have (tally-scheduler --user-tensors); take some back, or let a "
		  "job end");
	declare_in(machine, 12, other, 0, three, 1);
	ck_answer(machine, 12, 0, "");
	declare_in(machine, 13, of_another, 0, three, 3);
	ck_answer(machine, 13, 0, "");
	leave(machine, one, 0, 0);
	declare_in(machine, 14, other, 0, &three[1], 2);
	ck_answer(machine, 14, 0, "");
}
END_TEST

static void add(TCase *t)
{
	tcase_add_loop_test(t, equal_tensors_that_stand_for_other_things_are_a_mismatch, 0,
			    (int)ARRAY_SIZE(meanings));
	tcase_add_test(t, meanings_of_a_job_have_a_bound);
	tcase_add_test(t, who_joins_and_cannot_follow_an_epoch_costs_nobody_the_job);
	tcase_add_test(t, who_joins_and_cannot_take_its_share_costs_nobody_the_job);
	tcase_add_test(t, all_jobs_of_a_user_have_as_many_tensors_as_the_operator_allows);
	tcase_add_loop_test(t, who_joins_and_refuses_tensors_that_all_others_have_is_out_again,
			    0, 2);
	tcase_add_loop_test(t, who_asks_late_hears_of_it_whichever_allocation_has_failed, 1, 12);
}

int main(void)
{
	return rig_main("sched_declare", add);
}
