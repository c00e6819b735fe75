// SPDX-License-Identifier: Apache-2.0
/*
 * test_agent_store.c - what is in the service manager's descriptor store, and what an agent makes
 * of what it gets out of it.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "common/rt/notify.h"
#include "tests/unit/agent_job_rig.h"
#include "tests/unit/notify_ear.h"

#define KEY(number) ((uint64_t)JOB << 32 | (number))
#define ROOM 3				/* descriptors from 3 on, which main() keeps free */

static ino_t inode(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

/* The next word; the inode of what came with it, 0: nothing did. */
static ino_t hears(int ear, const char *want)
{
	struct pollfd p = { .fd = ear, .events = POLLIN };
	char got[128] = "";
	uint32_t n = 1;
	ino_t ino = 0;
	int fd;

	ck_assert_int_eq(poll(&p, 1, 10000), 1);
	ck_assert_int_gt(fdmsg_recv(ear, got, sizeof(got) - 1, &fd, &n), 0);
	ck_assert_str_eq(got, want);
	if (n) {
		ino = inode(fd);
		close(fd);
	}
	return ino;
}

static void hears_no_more(int ear)
{
	ck_assert_int_lt(recv(ear, &(char){ 0 }, 1, MSG_DONTWAIT), 0);
}

/* The agent is started with those; ear: -1: by nobody.  A manager that does not answer then is
 * none, and the tests are quicker than to answer beside. */
static void start_with(int ear, const struct slab *mem, int n, const char *names)
{
	char text[16];

	for (int i = 0; i < n; i++)
		ck_assert_int_eq(dup2(mem[i].fd, 3 + i), 3 + i);
	snprintf(text, sizeof(text), "%d", getpid());
	setenv("LISTEN_PID", text, 1);
	snprintf(text, sizeof(text), "%d", n);
	setenv("LISTEN_FDS", text, 1);
	setenv("LISTEN_FDNAMES", names, 1);
	ad_store_start(&a);
	ck_assert(!a.storing);
	a.storing = true;
	if (ear >= 0)
		ck_assert_uint_ne(hears(ear, "BARRIER=1"), 0);
}

static void make(struct slab *mem, int n)
{
	struct err e;

	for (int i = 0; i < n; i++)
		ck_assert_int_eq(slab_new(&mem[i], "m", PAGE_BYTES, false, &e), 0);
}

static void unmake(struct slab *mem, int n)
{
	while (n)
		slab_free(&mem[--n]);
}

START_TEST(memory_that_processes_see_is_there_until_it_is_freed)
{
	struct ad_job *j = start_job(1);
	int ear = notify_ear_open();
	struct ad_slab *results;
	uint32_t forgotten = 0;
	struct process p;

	a.storing = true;
	log_entry(j, 1, 1, 1);
	results = list_first(&j->results, struct ad_slab, link);
	ck_assert_uint_eq(hears(ear, "FDSTORE=1\nFDNAME=7.1"), inode(results->mem.fd));
	process_start(&p, j, 0);
	ck_assert_uint_ne(hears(ear, "FDSTORE=1\nFDNAME=7.2"), 0);
	hears_no_more(ear);		/* of sums, which are made anew */
	process_end(&p);
	end_job(j);
	while (forgotten != 3) {	/* in any order */
		char word[64] = "";
		uint32_t n = 1;
		int fd;

		ck_assert_int_gt(fdmsg_recv(ear, word, sizeof(word) - 1, &fd, &n), 0);
		if (n)
			close(fd);
		forgotten |= !strcmp(word, "FDSTOREREMOVE=1\nFDNAME=7.1");
		forgotten |= !strcmp(word, "FDSTOREREMOVE=1\nFDNAME=7.2") ? 2 : 0;
	}
	notify_ear_close(ear);
}
END_TEST

START_TEST(an_agent_that_ends_leaves_it_to_the_next)
{
	struct ad_job *j = start_job(1);
	int ear = notify_ear_open();

	a.storing = true;
	log_entry(j, 1, 1, 1);
	hears(ear, "FDSTORE=1\nFDNAME=7.1");
	a.stopping = true;
	end_job(j);
	hears_no_more(ear);
	notify_ear_close(ear);
}
END_TEST

START_TEST(what_was_kept_is_one_session_s_at_a_time)
{
	struct slab mem[ROOM];

	make(mem, ROOM);
	start_with(-1, mem, 2, "7.5:7.6");
	ck_assert(ad_store_claim(&a, mem[0].fd, 1));
	ck_assert(!ad_store_claim(&a, mem[0].fd, 2));
	ck_assert(!ad_store_claim(&a, mem[0].fd, 1));	/* nor twice */
	ck_assert(ad_store_claim(&a, mem[1].fd, 2));
	ck_assert(!ad_store_claim(&a, mem[2].fd, 2));	/* never kept */
	ck_assert(!ad_store_claim(&a, -1, 2));
	ad_store_unclaim(&a, 1);
	ck_assert(ad_store_claim(&a, mem[0].fd, 3));
	ck_assert(!ad_store_claim(&a, mem[1].fd, 3));
	ad_store_free(&a);
	ck_assert(!ad_store_claim(&a, mem[0].fd, 4));
	unmake(mem, ROOM);
}
END_TEST

START_TEST(memory_that_came_back_stays_under_its_number)
{
	int ear = notify_ear_open();
	struct slab mem[2];

	make(mem, 2);
	start_with(ear, mem, 1, "7.5");
	ck_assert_uint_eq(ad_store_put(&a, 7, mem[0].fd), KEY(5));
	hears_no_more(ear);
	ck_assert_uint_eq(ad_store_put(&a, 7, mem[1].fd), KEY(6));
	ck_assert_uint_eq(hears(ear, "FDSTORE=1\nFDNAME=7.6"), inode(mem[1].fd));
	ad_store_drop(&a, KEY(5));
	hears(ear, "FDSTOREREMOVE=1\nFDNAME=7.5");
	ck_assert_uint_ne(hears(ear, "BARRIER=1"), 0);
	ad_store_drop(&a, 0);
	hears_no_more(ear);
	notify_ear_close(ear);
	unmake(mem, 2);
}
END_TEST

START_TEST(what_is_not_ours_is_given_back_at_once)
{
	static const char *const names[] = { "stored", "7.0", "7.5x", "" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		int ear = notify_ear_open();
		struct slab mem[1];
		char want[64];

		make(mem, 1);
		start_with(ear, mem, 1, names[i]);
		snprintf(want, sizeof(want), "FDSTOREREMOVE=1\nFDNAME=%s", names[i]);
		hears(ear, want);
		ck_assert(list_empty(&a.kept));
		ck_assert_int_eq(open("/dev/null", O_RDONLY), 3);
		notify_ear_close(ear);
		unmake(mem, 1);
	}
}
END_TEST

START_TEST(what_is_another_process_s_is_left_alone)
{
	setenv("LISTEN_PID", "1", 1);
	setenv("LISTEN_FDS", "1", 1);
	ad_store_start(&a);
	ck_assert(list_empty(&a.kept));
}
END_TEST

START_TEST(what_nobody_comes_back_for_is_given_up)
{
	int ear = notify_ear_open();
	mono_t now = loop_now();
	struct slab mem[2];
	struct ad_job *j;

	make(mem, 2);
	start_with(ear, mem, 2, "7.5:8.6");
	a.grace_ms = 3000;
	ad_store_tick(&a, now + mono_ms(60000));	/* no scheduler has told the grace yet */
	a.registrations = 1;
	a.registered = now;
	ad_store_tick(&a, now + mono_ms(12900));
	hears_no_more(ear);
	j = start_job(1);
	ck_assert_uint_eq(j->id, 7);
	ad_store_tick(&a, now);				/* nobody comes back to it */
	hears(ear, "FDSTOREREMOVE=1\nFDNAME=7.5");
	ck_assert_uint_ne(hears(ear, "BARRIER=1"), 0);
	ck_assert(ad_store_claim(&a, mem[1].fd, 1));
	ad_store_alive(&a, 8, now + mono_ms(13000));
	ad_store_tick(&a, now + mono_ms(17900));	/* a process of it was alive just now */
	hears_no_more(ear);
	ad_store_tick(&a, now + mono_ms(18100));
	hears(ear, "FDSTOREREMOVE=1\nFDNAME=8.6");
	ck_assert_uint_ne(hears(ear, "BARRIER=1"), 0);
	ck_assert(list_empty(&a.kept));
	end_job(j);
	notify_ear_close(ear);
	unmake(mem, 2);
}
END_TEST

/* Who lives is seen at heartbeats, and there are none. */
START_TEST(nothing_is_given_up_while_the_scheduler_is_away)
{
	int ear = notify_ear_open();
	mono_t now = loop_now();
	struct slab mem[1];

	make(mem, 1);
	start_with(ear, mem, 1, "8.6");
	a.grace_ms = 3000;
	a.registrations = 1;
	a.registered = now;
	register_start();
	ad_store_tick(&a, now + mono_ms(60000));
	ck_assert(!list_empty(&a.kept));
	hears_no_more(ear);
	wait_for(&sched.up, 1);
	ad_store_tick(&a, now + mono_ms(60000));
	hears(ear, "FDSTOREREMOVE=1\nFDNAME=8.6");
	ck_assert_uint_ne(hears(ear, "BARRIER=1"), 0);
	unregister_agent();
	notify_ear_close(ear);
	unmake(mem, 1);
}
END_TEST

/* It reads nothing, so that there is no room to ask it anything. */
START_TEST(a_manager_that_stands_still_is_given_nothing)
{
	int ear = notify_ear_open(), room = 1;
	struct slab mem[1];

	make(mem, 1);
	ck_assert_int_eq(setsockopt(ear, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
	a.storing = true;
	while (notify_forget("7.9", 1))
		;
	ck_assert(!notify_barrier(1));
	ad_store_start(&a);
	ck_assert(!a.storing);
	ck_assert_uint_eq(ad_store_put(&a, JOB, mem[0].fd), 0);
	notify_ear_close(ear);
	unmake(mem, 1);
}
END_TEST

START_TEST(a_manager_that_does_not_answer_is_given_nothing)
{
	int ear = notify_ear_open();
	struct slab mem[1];

	make(mem, 1);
	ad_store_start(&a);
	hears(ear, "BARRIER=1");
	ck_assert_uint_eq(ad_store_put(&a, JOB, mem[0].fd), 0);
	hears_no_more(ear);
	a.storing = true;			/* it did once */
	ck_assert_uint_eq(ad_store_put(&a, JOB, mem[0].fd), KEY(1));
	ad_store_forget(&a, KEY(1), false);
	ck_assert(a.storing);
	notify_ear_close(ear);
	ad_store_forget(&a, KEY(1), true);
	ck_assert(!a.storing);
	unmake(mem, 1);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, a_manager_that_does_not_answer_is_given_nothing);
	tcase_add_test(t, a_manager_that_stands_still_is_given_nothing);
	tcase_add_test(t, nothing_is_given_up_while_the_scheduler_is_away);
	tcase_add_test(t, memory_that_processes_see_is_there_until_it_is_freed);
	tcase_add_test(t, an_agent_that_ends_leaves_it_to_the_next);
	tcase_add_test(t, what_was_kept_is_one_session_s_at_a_time);
	tcase_add_test(t, memory_that_came_back_stays_under_its_number);
	tcase_add_test(t, what_is_not_ours_is_given_back_at_once);
	tcase_add_test(t, what_is_another_process_s_is_left_alone);
	tcase_add_test(t, what_nobody_comes_back_for_is_given_up);
}

int main(void)
{
	for (int i = 0; i < ROOM; i++)
		if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0)
			return EXIT_FAILURE;
	(void)xport_rdma_devices();	/* engines look for them, and read the environment then */
	return rig_main("agent_store", add);
}
