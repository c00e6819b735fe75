// SPDX-License-Identifier: Apache-2.0
/*
 * The rings between a process and its agent: order, back-pressure, wake-up, and
 * what happens when the other side writes nonsense into the shared page.
 *
 * The hostile tests write at fixed offsets: they pin the layout that
 * docs/PROTOCOL.md describes, and that a client in another language would use.
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/shm/ring.h"

#define AT_SUB_TAIL	0
#define AT_SUB_HEAD	64
#define AT_CPL_TAIL	192
#define AT_CPL_HEAD	256
#define AT_SUB_WORDS	8192

#define STRESS_ENTRIES	200000u
#define DEADLINE_MS	20000

static uint8_t *mem;
static int sub_bell[2], cpl_bell[2];
static struct ring_end proc, agent;

static void set_up(void)
{
	mem = aligned_alloc(PAGE_BYTES, ring_shared_bytes());
	ck_assert_ptr_nonnull(mem);
	ring_format(mem);
	ck_assert_int_eq(ring_sub_bell_new(sub_bell), 0);
	ck_assert_int_eq(ring_cpl_bell_new(cpl_bell), 0);
	ring_end_init(&proc, mem, sub_bell[0], cpl_bell[1]);
	ring_end_init(&agent, mem, sub_bell[1], cpl_bell[0]);
}

static void tear_down(void)
{
	for (int i = 0; i < 2; i++) {
		close(sub_bell[i]);
		close(cpl_bell[i]);
	}
	free(mem);
}

static bool bell_is_up(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void poke(size_t at, uint32_t value)
{
	__atomic_store_n((uint32_t *)(mem + at), value, __ATOMIC_SEQ_CST);
}

static struct ring_sub sub_of(uint32_t i)
{
	return (struct ring_sub){
		.offset = i * 3ull, .length = i + 1ull, .at = ~(uint64_t)i, .tensor = i,
		.round = ~i, .slab = i ^ 0x5a5a5a5a, .root = i / 2, .rop = (uint8_t)i,
		.priority = -(int32_t)i, .out_offset = i, .out_slab = i,
	};
}

static void assert_same_sub(const struct ring_sub *a, uint32_t i)
{
	struct ring_sub b = sub_of(i);

	ck_assert_int_eq(memcmp(a, &b, sizeof(b)), 0);
}

START_TEST(ring_gives_entries_in_order_and_whole)
{
	struct ring_sub s;
	struct ring_cpl c;

	for (uint32_t i = 0; i < 3 * RING_ENTRIES; i++) {
		s = sub_of(i);
		ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
		memset(&s, 0, sizeof(s));
		ck_assert_int_eq(ring_sub_take(&agent, &s), 0);
		assert_same_sub(&s, i);
		c = (struct ring_cpl){ .tensor = i, .round = i + 7, .code = -(int32_t)i };
		ck_assert_int_eq(ring_cpl_post(&agent, &c), 0);
		ring_cpl_publish(&agent);
		memset(&c, 0, sizeof(c));
		ck_assert_int_eq(ring_cpl_take(&proc, &c), 0);
		ck_assert_uint_eq(c.tensor, i);
		ck_assert_uint_eq(c.round, i + 7);
		ck_assert_int_eq(c.code, -(int32_t)i);
	}
}
END_TEST

START_TEST(ring_empty_consumer_gets_again)
{
	struct ring_sub s;
	struct ring_cpl c;

	ck_assert_int_eq(ring_sub_take(&agent, &s), TALLY_EAGAIN);
	ck_assert_int_eq(ring_cpl_take(&proc, &c), TALLY_EAGAIN);
}
END_TEST

START_TEST(ring_full_producer_gets_again)
{
	struct ring_sub s;
	struct ring_cpl c = { 0 };

	for (uint32_t i = 0; i < RING_ENTRIES; i++) {
		s = sub_of(i);
		ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
		ck_assert_int_eq(ring_cpl_post(&agent, &c), 0);
	}
	ck_assert_int_eq(ring_sub_post(&proc, &s), TALLY_EAGAIN);
	ck_assert_int_eq(ring_cpl_post(&agent, &c), TALLY_EAGAIN);
	ck_assert_int_eq(ring_sub_take(&agent, &s), 0);
	assert_same_sub(&s, 0);
	s = sub_of(RING_ENTRIES);
	ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
	ck_assert_int_eq(ring_sub_post(&proc, &s), TALLY_EAGAIN);
}
END_TEST

START_TEST(ring_works_across_the_wrap_of_its_indices)
{
	uint32_t start = UINT32_MAX - RING_ENTRIES / 2;
	struct ring_sub s;

	poke(AT_SUB_TAIL, start);
	poke(AT_SUB_HEAD, start);
	proc.sub_pos = proc.sub_seen = agent.sub_pos = agent.sub_seen = start;
	for (uint32_t i = 0; i < RING_ENTRIES; i++) {
		s = sub_of(i);
		ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
	}
	ck_assert_int_eq(ring_sub_post(&proc, &s), TALLY_EAGAIN);
	for (uint32_t i = 0; i < RING_ENTRIES; i++) {
		ck_assert_int_eq(ring_sub_take(&agent, &s), 0);
		assert_same_sub(&s, i);
	}
	ck_assert_int_eq(ring_sub_take(&agent, &s), TALLY_EAGAIN);
}
END_TEST

START_TEST(ring_agent_reports_an_impossible_tail)
{
	const uint32_t bad[] = { RING_ENTRIES + 1, 0x80000000u, UINT32_MAX };
	struct ring_sub s;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		poke(AT_SUB_TAIL, bad[i]);
		ck_assert_int_eq(ring_sub_take(&agent, &s), TALLY_EPROTO);
	}
	/* as many as fit are possible, whatever they hold */
	poke(AT_SUB_TAIL, RING_ENTRIES);
	memset(mem + AT_SUB_WORDS, 0xff, RING_ENTRIES * sizeof(s));
	for (uint32_t i = 0; i < RING_ENTRIES; i++)
		ck_assert_int_eq(ring_sub_take(&agent, &s), 0);
	ck_assert_int_eq(ring_sub_take(&agent, &s), TALLY_EAGAIN);
}
END_TEST

START_TEST(ring_process_reports_an_impossible_tail)
{
	struct ring_cpl c;

	poke(AT_CPL_TAIL, RING_ENTRIES + 1);
	ck_assert_int_eq(ring_cpl_take(&proc, &c), TALLY_EPROTO);
}
END_TEST

START_TEST(ring_tail_that_goes_back_is_reported)
{
	struct ring_sub s = sub_of(1);

	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
		ck_assert_int_eq(ring_sub_take(&agent, &s), 0);
	}
	poke(AT_SUB_TAIL, 5);
	ck_assert_int_eq(ring_sub_take(&agent, &s), TALLY_EPROTO);
}
END_TEST

START_TEST(ring_producer_takes_a_lying_head_for_full)
{
	const uint32_t bad[] = { 1, RING_ENTRIES + 1, UINT32_MAX - RING_ENTRIES };
	struct ring_cpl c = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		agent.cpl_pos = 0;
		agent.cpl_seen = 0u - RING_ENTRIES;	/* forces a look at the head */
		poke(AT_CPL_HEAD, bad[i]);
		ck_assert_int_eq(ring_cpl_post(&agent, &c), TALLY_EAGAIN);
	}
	poke(AT_CPL_HEAD, 0);
	ck_assert_int_eq(ring_cpl_post(&agent, &c), 0);
}
END_TEST

START_TEST(ring_rings_only_for_a_sleeper)
{
	struct ring_sub s = sub_of(1);

	ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
	ck_assert(!bell_is_up(agent.sub_fd));
	ck_assert(!ring_sub_sleep(&agent));
	ck_assert_int_eq(ring_sub_take(&agent, &s), 0);
	ck_assert(ring_sub_sleep(&agent));
	ck_assert(!bell_is_up(agent.sub_fd));
	ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
	ck_assert(bell_is_up(agent.sub_fd));
	ck_assert_int_eq(ring_sub_wake(&agent), 0);
	ck_assert(!bell_is_up(agent.sub_fd));
	ck_assert_int_eq(ring_sub_post(&proc, &s), 0);
	ck_assert(!bell_is_up(agent.sub_fd));
}
END_TEST

START_TEST(ring_completions_come_together_with_one_bell)
{
	struct ring_cpl c = { .round = 1 };

	ck_assert(ring_cpl_sleep(&proc));
	for (c.tensor = 0; c.tensor < 3; c.tensor++)
		ck_assert_int_eq(ring_cpl_post(&agent, &c), 0);
	ck_assert(!bell_is_up(proc.cpl_fd));
	ck_assert_int_eq(ring_cpl_take(&proc, &c), TALLY_EAGAIN);
	ring_cpl_publish(&agent);
	ck_assert(bell_is_up(proc.cpl_fd));
	ck_assert_int_eq(ring_cpl_wake(&proc), 0);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(ring_cpl_take(&proc, &c), 0);
		ck_assert_uint_eq(c.tensor, i);
	}
	ck_assert(ring_cpl_sleep(&proc));
	ring_cpl_publish(&agent);		/* nothing new: nobody is woken */
	ck_assert(!bell_is_up(proc.cpl_fd));
}
END_TEST

START_TEST(ring_that_is_full_and_a_job_that_ends_leave_nothing_untold)
{
	struct ring_cpl c = { .round = 1 };

	ck_assert(ring_cpl_sleep(&proc));
	while (ring_cpl_post(&agent, &c) == 0)
		;
	ck_assert(bell_is_up(proc.cpl_fd));
	for (uint32_t i = 0; i < RING_ENTRIES; i++)
		ck_assert_int_eq(ring_cpl_take(&proc, &c), 0);
	ck_assert_int_eq(ring_cpl_post(&agent, &c), 0);
	ck_assert_int_eq(ring_cpl_take(&proc, &c), TALLY_EAGAIN);
	ring_status_set(&agent, TALLY_EWORKERLOST, "", NULL);
	ck_assert_int_eq(ring_cpl_take(&proc, &c), 0);
}
END_TEST

START_TEST(ring_bell_never_blocks_its_ringer)
{
	struct ring_cpl c = { 0 };

	/* nobody clears it: the socket fills up, and posting goes on */
	for (uint32_t i = 0; i < RING_ENTRIES; i++) {
		(void)ring_cpl_sleep(&proc);
		ck_assert_int_eq(ring_cpl_post(&agent, &c), 0);
		ring_cpl_publish(&agent);
		ck_assert_int_eq(ring_cpl_take(&proc, &c), 0);
	}
	ck_assert(bell_is_up(proc.cpl_fd));
}
END_TEST

START_TEST(ring_closed_bell_ends_the_session)
{
	close(cpl_bell[0]);
	ck_assert_int_eq(ring_cpl_wake(&proc), TALLY_ESHUTDOWN);
	cpl_bell[0] = -1;
}
END_TEST

START_TEST(ring_bell_is_told_from_other_descriptors)
{
	int p[2];

	ck_assert(ring_sub_bell_ok(sub_bell[0]));
	ck_assert(ring_cpl_bell_ok(cpl_bell[1]));
	ck_assert(!ring_sub_bell_ok(cpl_bell[1]));
	ck_assert(!ring_cpl_bell_ok(sub_bell[0]));
	ck_assert_int_eq(pipe(p), 0);
	ck_assert(!ring_sub_bell_ok(p[0]));
	ck_assert(!ring_cpl_bell_ok(p[0]));
	close(p[0]);
	close(p[1]);
	ck_assert(!ring_sub_bell_ok(-1));
	ck_assert(!ring_cpl_bell_ok(-1));
}
END_TEST

/* Whatever a stranger's descriptor does when it is closed, it does not do it to the agent. */
START_TEST(ring_bells_take_no_descriptors_from_the_process)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} room = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	const int fd[2] = { sub_bell[0], cpl_bell[1] };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = room.bytes, .msg_controllen = sizeof(room.bytes),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &sub_bell[0], sizeof(int));
	for (int i = 0; i < 2; i++)
		ck_assert_int_lt(sendmsg(fd[i], &m, MSG_DONTWAIT | MSG_NOSIGNAL), 0);
}
END_TEST

/* The flags of an eventfd are shared, so its process may make it block. */
START_TEST(ring_bell_that_was_made_to_block_does_not_stop_the_agent)
{
	ck_assert_int_eq(fcntl(sub_bell[0], F_SETFL, 0), 0);
	ck_assert_int_eq(ring_sub_wake(&agent), 0);
	ck_assert(ring_sub_sleep(&agent));
	ck_assert_int_eq(ring_sub_post(&proc, &(struct ring_sub){ .round = 1 }), 0);
	ck_assert(bell_is_up(agent.sub_fd));
	ck_assert_int_eq(ring_sub_wake(&agent), 0);
	ck_assert_int_eq(ring_sub_wake(&agent), 0);
}
END_TEST

START_TEST(ring_status_tells_code_and_texts)
{
	char job[ERR_TEXT_MAX + 1], stall[ERR_TEXT_MAX + 1], big[2 * ERR_TEXT_MAX];
	int code = 1;

	ring_status_get(&proc, &code, job, stall);
	ck_assert_int_eq(code, 0);
	ck_assert_str_eq(job, "");
	ring_status_set(&agent, 0, NULL, "waiting for rank 3");
	ring_status_set(&agent, TALLY_EWORKERLOST, "rank 3 is gone", NULL);
	ring_status_get(&proc, &code, job, stall);
	ck_assert_int_eq(code, TALLY_EWORKERLOST);
	ck_assert_str_eq(job, "rank 3 is gone");
	ck_assert_str_eq(stall, "waiting for rank 3");
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	ring_status_set(&agent, TALLY_EIO, big, NULL);
	ring_status_get(&proc, NULL, job, NULL);
	ck_assert_uint_eq(strlen(job), ERR_TEXT_MAX);
}
END_TEST

START_TEST(ring_tells_who_is_lost)
{
	static const uint32_t ranks[] = { 0, 63, 64, WORLD_SIZE_MAX - 1 };

	ck_assert_uint_eq(ring_lost_count(&proc), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(ranks); i++) {
		ck_assert(!ring_is_lost(&proc, ranks[i]));
		ring_lost_set(&agent, ranks[i], true);
		ring_lost_set(&agent, ranks[i], true);
		ck_assert(ring_is_lost(&proc, ranks[i]));
		ck_assert_uint_eq(ring_lost_count(&proc), i + 1);
	}
	ck_assert(!ring_is_lost(&proc, 1));
	ring_lost_set(&agent, 64, false);
	ring_lost_set(&agent, 64, false);
	ring_lost_set(&agent, 1, false);
	ck_assert(!ring_is_lost(&proc, 64));
	ck_assert_uint_eq(ring_lost_count(&proc), ARRAY_SIZE(ranks) - 1);
	ck_assert_uint_eq(ring_grown(&proc), 0);
	ring_grown_set(&agent, 3);
	ck_assert_uint_eq(ring_grown(&proc), 3);
}
END_TEST

START_TEST(ring_failed_job_wakes_a_sleeper_and_lets_none_sleep)
{
	ck_assert(ring_cpl_sleep(&proc));
	ring_status_set(&agent, 0, NULL, "waiting");
	ck_assert(!bell_is_up(proc.cpl_fd));
	ring_status_set(&agent, TALLY_ESHUTDOWN, "over", NULL);
	ck_assert(bell_is_up(proc.cpl_fd));
	ck_assert_int_eq(ring_cpl_wake(&proc), 0);
	ck_assert(!ring_cpl_sleep(&proc));
}
END_TEST

START_TEST(ring_status_garbage_ends_with_nul)
{
	char job[ERR_TEXT_MAX + 1], stall[ERR_TEXT_MAX + 1];

	memset(mem + PAGE_BYTES, 0xff, PAGE_BYTES);
	ring_status_get(&proc, NULL, job, stall);
	ck_assert_uint_le(strlen(job), ERR_TEXT_MAX);
	ck_assert_uint_le(strlen(stall), ERR_TEXT_MAX);
}
END_TEST

/* ---- two threads ---- */

static void *echo_agent(void *arg)
{
	struct pollfd p = { .fd = agent.sub_fd, .events = POLLIN };
	uint32_t taken = 0;
	struct ring_sub s;
	struct ring_cpl c;

	(void)arg;
	while (taken < STRESS_ENTRIES) {
		if (ring_sub_take(&agent, &s) == 0) {
			c = (struct ring_cpl){ .tensor = s.tensor, .round = s.round };
			c.code = s.length == s.tensor + 1ull ? 0 : TALLY_EPROTO;
			while (ring_cpl_post(&agent, &c) == TALLY_EAGAIN)
				sched_yield();
			if (taken++ % 3 == 0)
				ring_cpl_publish(&agent);
		} else if (ring_cpl_publish(&agent), ring_sub_sleep(&agent)) {
			if (poll(&p, 1, DEADLINE_MS) != 1)
				return "a wake-up of the agent was lost";
			ring_sub_wake(&agent);
		}
	}
	ring_cpl_publish(&agent);
	return NULL;
}

/* Takes all that is there; sleeps for more when `sleep`. */
static uint32_t take_echoes(uint32_t next, bool sleep)
{
	struct pollfd p = { .fd = proc.cpl_fd, .events = POLLIN };
	struct ring_cpl c;

	for (;;) {
		while (ring_cpl_take(&proc, &c) == 0) {
			ck_assert_uint_eq(c.tensor, next);
			ck_assert_uint_eq(c.round, ~next);
			ck_assert_int_eq(c.code, 0);
			next++;
			sleep = false;
		}
		if (!sleep)
			return next;
		if (ring_cpl_sleep(&proc)) {
			ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
			ck_assert_int_eq(ring_cpl_wake(&proc), 0);
		}
	}
}

START_TEST(ring_two_threads_lose_no_entry_and_no_wake_up)
{
	struct rng rng = { .state = 42 };
	uint32_t posted = 0, taken = 0;
	struct ring_sub s;
	void *complaint;
	pthread_t th;

	ck_assert_int_eq(pthread_create(&th, NULL, echo_agent, NULL), 0);
	while (taken < STRESS_ENTRIES) {
		uint32_t burst = 1 + (uint32_t)rng_below(&rng, 64);

		for (; burst && posted < STRESS_ENTRIES; burst--) {
			s = sub_of(posted);
			if (ring_sub_post(&proc, &s))
				break;
			posted++;
		}
		taken = take_echoes(taken, posted > taken && rng_below(&rng, 2));
	}
	ck_assert_int_eq(pthread_join(th, &complaint), 0);
	ck_assert_msg(!complaint, "%s", (char *)complaint);
}
END_TEST

#define STATUS_WRITES	1000

struct status_story {
	atomic_uint reads;
	atomic_bool done;
};

/* Waits for a read after each write: nobody tells news faster than they are read. */
static void *status_writer(void *arg)
{
	struct status_story *st = arg;
	char text[ERR_TEXT_MAX + 1];

	for (int i = 0; i < STATUS_WRITES; i++) {
		unsigned int before = atomic_load(&st->reads);

		memset(text, 'a' + i % 26, sizeof(text));
		text[1 + i % (int)ERR_TEXT_MAX] = '\0';
		ring_status_set(&agent, 0, text, text);
		while (atomic_load(&st->reads) == before)
			sched_yield();
	}
	atomic_store(&st->done, true);
	return NULL;
}

START_TEST(ring_status_is_never_torn)
{
	char job[ERR_TEXT_MAX + 1], stall[ERR_TEXT_MAX + 1];
	struct status_story st = { 0 };
	uint32_t torn = 0;
	pthread_t th;

	ck_assert_int_eq(pthread_create(&th, NULL, status_writer, &st), 0);
	while (!atomic_load(&st.done)) {
		ring_status_get(&proc, NULL, job, stall);
		torn += strcmp(job, stall) || strspn(job, (char[]){ job[0], 0 }) != strlen(job);
		atomic_fetch_add(&st.reads, 1);
	}
	ck_assert_int_eq(pthread_join(th, NULL), 0);
	ck_assert_uint_eq(torn, 0);
}
END_TEST

/* A writer that was stopped half-way leaves an odd number at the area's beginning. */
START_TEST(ring_status_of_a_stopped_writer_is_empty)
{
	char job[ERR_TEXT_MAX + 1], stall[ERR_TEXT_MAX + 1];
	_Atomic uint32_t *seq = (_Atomic uint32_t *)(void *)(mem + 4096);

	ring_status_set(&agent, 0, "why", "what");
	atomic_fetch_add(seq, 1);
	ring_status_get(&proc, NULL, job, stall);
	ck_assert_str_eq(job, "");
	ck_assert_str_eq(stall, "");
	atomic_fetch_add(seq, 1);
	ring_status_get(&proc, NULL, job, stall);
	ck_assert_str_eq(job, "why");
	ck_assert_str_eq(stall, "what");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ring");
	TCase *tc = tcase_create("all");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, ring_gives_entries_in_order_and_whole);
	tcase_add_test(tc, ring_empty_consumer_gets_again);
	tcase_add_test(tc, ring_full_producer_gets_again);
	tcase_add_test(tc, ring_works_across_the_wrap_of_its_indices);
	tcase_add_test(tc, ring_agent_reports_an_impossible_tail);
	tcase_add_test(tc, ring_process_reports_an_impossible_tail);
	tcase_add_test(tc, ring_tail_that_goes_back_is_reported);
	tcase_add_test(tc, ring_producer_takes_a_lying_head_for_full);
	tcase_add_test(tc, ring_rings_only_for_a_sleeper);
	tcase_add_test(tc, ring_completions_come_together_with_one_bell);
	tcase_add_test(tc, ring_that_is_full_and_a_job_that_ends_leave_nothing_untold);
	tcase_add_test(tc, ring_bell_never_blocks_its_ringer);
	tcase_add_test(tc, ring_closed_bell_ends_the_session);
	tcase_add_test(tc, ring_bell_is_told_from_other_descriptors);
	tcase_add_test(tc, ring_bells_take_no_descriptors_from_the_process);
	tcase_add_test(tc, ring_bell_that_was_made_to_block_does_not_stop_the_agent);
	tcase_add_test(tc, ring_status_tells_code_and_texts);
	tcase_add_test(tc, ring_tells_who_is_lost);
	tcase_add_test(tc, ring_failed_job_wakes_a_sleeper_and_lets_none_sleep);
	tcase_add_test(tc, ring_status_garbage_ends_with_nul);
	tcase_add_test(tc, ring_two_threads_lose_no_entry_and_no_wake_up);
	tcase_add_test(tc, ring_status_is_never_torn);
	tcase_add_test(tc, ring_status_of_a_stopped_writer_is_empty);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
