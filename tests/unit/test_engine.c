// SPDX-License-Identifier: Apache-2.0
/* Engines and mailboxes, with real threads; made to be run under TSan too. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/rt/engine.h"
#include "common/rt/loop.h"

#define DEADLINE_S	60
#define SENDERS		4u
#define PER_SENDER	20000u

static void wait_sem(sem_t *s)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += DEADLINE_S;
	ck_assert_int_eq(sem_timedwait(s, &ts), 0);
}

/* ---- mailbox ---- */

static void ring_sem(void *ctx)
{
	sem_post(ctx);
}

START_TEST(empty_mailbox_rings_once_until_taken_empty)
{
	struct mailbox *mb;
	struct mail m;
	struct err e;
	sem_t bell;
	int rung;

	sem_init(&bell, 0, 0);
	ck_assert_int_eq(mailbox_new(&mb, ring_sem, &bell, &e), 0);
	ck_assert_int_eq(mailbox_post(mb, 3, 7, "hello", 6), 0);
	ck_assert_int_eq(mailbox_post(mb, ENGINE_CONTROL, 8, NULL, 0), 0);
	sem_getvalue(&bell, &rung);
	ck_assert_int_eq(rung, 1);
	ck_assert(mailbox_take(mb, &m));
	ck_assert_uint_eq(m.type, 7);
	ck_assert_uint_eq(m.from, 3);
	ck_assert_str_eq((char *)m.body, "hello");
	ck_assert(mailbox_poll(mb, &m));
	ck_assert_uint_eq(m.from, ENGINE_CONTROL);
	ck_assert(!mailbox_poll(mb, &m));
	ck_assert_int_eq(mailbox_post(mb, 3, 9, NULL, 0), 0);	/* poll asked for no ring */
	sem_getvalue(&bell, &rung);
	ck_assert_int_eq(rung, 1);
	ck_assert(mailbox_take(mb, &m));
	ck_assert(!mailbox_take(mb, &m));
	ck_assert_int_eq(mailbox_post(mb, 3, 9, NULL, 0), 0);
	sem_getvalue(&bell, &rung);
	ck_assert_int_eq(rung, 2);
	mailbox_free(mb);
}
END_TEST

START_TEST(full_ring_says_again_and_keeps_the_other_senders_room)
{
	struct mailbox *mb;
	struct mail m;
	struct err e;
	uint32_t n = 0;
	sem_t bell;

	sem_init(&bell, 0, 0);
	ck_assert_int_eq(mailbox_new(&mb, ring_sem, &bell, &e), 0);
	while (mailbox_post(mb, 0, n, NULL, 0) == 0)
		n++;
	ck_assert_uint_ge(n, 256);
	ck_assert_int_eq(mailbox_post(mb, 0, 0, NULL, 0), TALLY_EAGAIN);
	ck_assert_int_eq(mailbox_post(mb, 1, 0, NULL, 0), 0);
	ck_assert(mailbox_take(mb, &m) && mailbox_take(mb, &m));
	ck_assert_int_eq(mailbox_post(mb, 0, n, NULL, 0), 0);
	mailbox_free(mb);
}
END_TEST

struct sender {
	struct mailbox *mb;
	uint32_t from;
};

/* A full body whose every byte follows from the number: torn mail would show. */
static void fill(uint8_t body[MAIL_BYTES], uint32_t from, uint32_t i)
{
	memset(body, (int)(from * 31 + i), MAIL_BYTES);
	memcpy(body, &i, sizeof(i));
}

static void *send_all(void *arg)
{
	const struct sender *s = arg;
	uint8_t body[MAIL_BYTES];

	for (uint32_t i = 0; i < PER_SENDER; i++) {
		fill(body, s->from, i);
		while (mailbox_post(s->mb, s->from, i, body, sizeof(body)) == TALLY_EAGAIN)
			sched_yield();
	}
	return NULL;
}

START_TEST(many_senders_one_reader_lose_and_tear_nothing)
{
	uint32_t next[SENDERS] = { 0 }, total = 0;
	struct sender senders[SENDERS];
	pthread_t threads[SENDERS];
	uint8_t want[MAIL_BYTES];
	struct mailbox *mb;
	struct mail m;
	struct err e;
	sem_t bell;

	sem_init(&bell, 0, 0);
	ck_assert_int_eq(mailbox_new(&mb, ring_sem, &bell, &e), 0);
	for (uint32_t i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){ mb, i };
		pthread_create(&threads[i], NULL, send_all, &senders[i]);
	}
	/* Sleeps whenever it is empty: a ring that is missed would hang us here. */
	while (total < SENDERS * PER_SENDER) {
		if (!mailbox_take(mb, &m)) {
			wait_sem(&bell);
			continue;
		}
		ck_assert_uint_eq(m.type, next[m.from]);
		fill(want, m.from, next[m.from]++);
		ck_assert_mem_eq(m.body, want, MAIL_BYTES);
		total++;
	}
	for (uint32_t i = 0; i < SENDERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert(!mailbox_take(mb, &m));
	mailbox_free(mb);
}
END_TEST

/* ---- engine ---- */

struct owner {
	struct engine *en, *peer;
	pthread_t thread;		/* seen by callbacks */
	uint32_t index;
	_Atomic uint32_t mails, events, turns, stopping, hops;
	mono_t due;
	int cpu;
	char name[16];
	int fd;
	sem_t done;
	uint32_t post_done_at;
};

static void on_mail(void *ctx, const struct mail *m, bool stopping)
{
	struct owner *o = ctx;
	uint32_t hops;

	if (stopping) {
		o->stopping++;
		return;
	}
	if (o->peer) {			/* ping-pong until hops runs out */
		memcpy(&hops, m->body, sizeof(hops));
		if (hops-- == 0)
			sem_post(&o->done);
		else
			ck_assert_int_eq(engine_post(o->peer, o->index, 1, &hops, sizeof(hops)), 0);
		return;
	}
	if (++o->mails == o->post_done_at)
		sem_post(&o->done);
}

static void on_event(void *ctx, void *data_ptr, uint32_t events)
{
	struct owner *o = ctx;
	uint64_t v;

	ck_assert_ptr_eq(data_ptr, &o->fd);
	ck_assert_uint_eq(events, EPOLLIN);
	ck_assert_int_eq(read(o->fd, &v, sizeof(v)), sizeof(v));
	o->events++;
	sem_post(&o->done);
}

static mono_t on_turn(void *ctx, mono_t now)
{
	struct owner *o = ctx;

	if (o->turns++ == 0) {
		o->thread = pthread_self();
		o->cpu = sched_getcpu();
	}
	ck_assert(pthread_equal(o->thread, pthread_self()));
	if (o->due == 0)
		return MONO_NEVER;
	if (o->turns == 5)
		sem_post(&o->done);
	return now + o->due;
}

static const struct engine_cb cb = { .mail = on_mail, .event = on_event, .turn = on_turn };

static void start(struct owner *o, uint32_t index, int cpu, uint32_t spin_us)
{
	struct err e = { 0 };

	sem_init(&o->done, 0, 0);
	o->index = index;
	ck_assert_msg(engine_start(&o->en, "tally-test-long", index, cpu, spin_us, &cb, o, &e) == 0,
		      "%s", e.text);
}

START_TEST(engine_takes_all_mail_whether_it_spins_or_sleeps)
{
	static const uint32_t spins[] = { 0, 200 };

	for (size_t i = 0; i < ARRAY_SIZE(spins); i++) {
		struct owner o = { .post_done_at = PER_SENDER };

		start(&o, 0, -1, spins[i]);
		for (uint32_t n = 0; n < PER_SENDER; n++)
			while (engine_post(o.en, ENGINE_CONTROL, 1, &n, sizeof(n)) == TALLY_EAGAIN)
				sched_yield();
		wait_sem(&o.done);
		engine_stop(o.en);
		ck_assert_uint_eq(o.mails, PER_SENDER);
		ck_assert_uint_eq(o.stopping, 0);
	}
}
END_TEST

START_TEST(two_engines_wake_each_other_from_sleep)
{
	struct owner a = { 0 }, b = { 0 };
	uint32_t hops = 4000;

	start(&a, 0, -1, 0);
	start(&b, 1, -1, 0);
	a.peer = b.en;		/* before the first mail, which publishes it */
	b.peer = a.en;
	ck_assert_int_eq(engine_post(a.en, ENGINE_CONTROL, 1, &hops, sizeof(hops)), 0);
	wait_sem(&a.done);
	engine_stop(b.en);
	engine_stop(a.en);
}
END_TEST

START_TEST(engine_tells_events_of_its_epoll_descriptor)
{
	struct owner o = { .fd = eventfd(0, EFD_NONBLOCK) };
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &o.fd };
	uint64_t one = 1;

	start(&o, 0, -1, 0);
	ck_assert_int_eq(epoll_ctl(engine_epfd(o.en), EPOLL_CTL_ADD, o.fd, &ev), 0);
	ck_assert_int_eq(write(o.fd, &one, sizeof(one)), sizeof(one));
	wait_sem(&o.done);
	engine_stop(o.en);
	ck_assert_uint_eq(o.events, 1);
	close(o.fd);
}
END_TEST

START_TEST(turn_comes_back_when_it_asked_to_and_not_early)
{
	struct owner o = { .due = mono_ms(3) };
	mono_t began = loop_now();

	start(&o, 0, -1, 0);
	wait_sem(&o.done);
	ck_assert_int_ge(loop_now() - began, 4 * mono_ms(3));
	engine_stop(o.en);
}
END_TEST

START_TEST(mail_not_taken_is_handed_over_when_stopping)
{
	for (int i = 0; i < 200; i++) {
		struct owner o = { 0 };
		uint32_t posted = 0;

		start(&o, 0, -1, 0);
		while (posted < 300 && engine_post(o.en, ENGINE_CONTROL, 1, NULL, 0) == 0)
			posted++;
		engine_stop(o.en);
		ck_assert_uint_eq(o.mails + o.stopping, posted);
	}
}
END_TEST

START_TEST(thread_is_named_and_pinned)
{
	struct owner o = { .post_done_at = 1 };
	cpu_set_t set, got;
	int cpu = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET((size_t)i, &set))
			cpu = i;
	start(&o, 12, cpu, 0);
	ck_assert_int_eq(engine_post(o.en, ENGINE_CONTROL, 1, NULL, 0), 0);
	wait_sem(&o.done);
	ck_assert_int_eq(pthread_getname_np(o.thread, o.name, sizeof(o.name)), 0);
	ck_assert_str_eq(o.name, "tally-test-l/12");
	ck_assert_int_eq(pthread_getaffinity_np(o.thread, sizeof(got), &got), 0);
	ck_assert_int_eq(CPU_COUNT(&got), 1);
	ck_assert_int_eq(o.cpu, cpu);
	engine_stop(o.en);
}
END_TEST

START_TEST(pinning_to_a_cpu_that_is_not_there_is_refused)
{
	struct owner o = { 0 };
	struct err e;

	ck_assert_int_eq(engine_start(&o.en, "t", 0, CPU_SETSIZE - 1, 0, &cb, &o, &e),
			 TALLY_EINVAL);
	ck_assert_ptr_nonnull(strstr(e.text, "cpu 1023"));
	ck_assert_ptr_null(o.en);
	engine_stop(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine");
	TCase *c = tcase_create("engine");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, empty_mailbox_rings_once_until_taken_empty);
	tcase_add_test(c, full_ring_says_again_and_keeps_the_other_senders_room);
	tcase_add_test(c, many_senders_one_reader_lose_and_tear_nothing);
	tcase_add_test(c, engine_takes_all_mail_whether_it_spins_or_sleeps);
	tcase_add_test(c, two_engines_wake_each_other_from_sleep);
	tcase_add_test(c, engine_tells_events_of_its_epoll_descriptor);
	tcase_add_test(c, turn_comes_back_when_it_asked_to_and_not_early);
	tcase_add_test(c, mail_not_taken_is_handed_over_when_stopping);
	tcase_add_test(c, thread_is_named_and_pinned);
	tcase_add_test(c, pinning_to_a_cpu_that_is_not_there_is_refused);
	tcase_set_timeout(c, 2 * DEADLINE_S);
	suite_add_tcase(s, c);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
