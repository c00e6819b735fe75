// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_state.c - the scheduler's state directory on a real file system.
 */
/* LIBS: -Wl,--wrap=fsync */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/state.h"

static char dir[64], path[128];
static uint32_t sync_fails_at;		/* the n-th from now on, 1 being the next; 0: none */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	if (!sync_fails_at || --sync_fails_at)
		return __real_fsync(fd);
	errno = EIO;
	return -1;
}

static void setup(void)
{
	snprintf(dir, sizeof(dir), "/tmp/tally-state-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/%s", dir, STATE_FILE);
}

static void teardown(void)
{
	static const char *const files[] = { STATE_FILE, STATE_COPY, STATE_FILE ".tmp",
					     STATE_LOCK };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		remove(path);
	}
	rmdir(dir);
}

static struct state *open_ok(const char *where)
{
	struct state *st;
	struct err e = { 0 };

	ck_assert_msg(!state_open(&st, where, &e), "%s", e.text);
	return st;
}

START_TEST(saved_numbers_survive_a_restart)
{
	struct sched_ids ids = { .epoch = UINT64_C(0x0102030405060708), .job = 9, .node = 10 };
	uint8_t cluster[ID_BYTES], seed[KEY_BYTES];
	struct state *st = open_ok(dir);
	struct err e;

	ck_assert(state_is_new(st));
	memcpy(cluster, state_cluster(st), ID_BYTES);
	memcpy(seed, state_key_seed(st), KEY_BYTES);
	ck_assert_int_eq(state_save(st, &ids, &e), 0);
	state_close(st);
	st = open_ok(dir);
	ck_assert(!state_is_new(st));
	ck_assert_mem_eq(state_cluster(st), cluster, ID_BYTES);
	ck_assert_mem_eq(state_key_seed(st), seed, KEY_BYTES);
	ck_assert_uint_eq(state_ids(st)->epoch, ids.epoch);
	ck_assert_uint_eq(state_ids(st)->job, 9);
	ck_assert_uint_eq(state_ids(st)->node, 10);
	state_close(st);
}
END_TEST

static void copy_is_gone(void)
{
	char copy[160];

	snprintf(copy, sizeof(copy), "%s/" STATE_COPY, dir);
	ck_assert_int_eq(remove(copy), 0);
}

static void write_over(const char *name, const void *bytes, size_t n)
{
	char file[160];
	FILE *f;

	snprintf(file, sizeof(file), "%s/%s", dir, name);
	f = fopen(file, "w");
	fwrite(bytes, 1, n, f);
	fclose(f);
}

START_TEST(a_damaged_file_does_not_take_numbers_back)
{
	static const struct { const char *bytes; size_t n; } bad[] = {
		{ "", 0 }, { "TALLYST1", 8 }, { "no state, and longer than one, by some bytes, so "
						"that it may not be taken for one", 80 },
	};
	struct sched_ids ids = { .epoch = 5000, .job = 9, .node = 10 };
	struct state *st = open_ok(dir);
	struct err e;

	for (size_t i = 0; i <= ARRAY_SIZE(bad); i++) {
		uint8_t cluster[ID_BYTES];

		memcpy(cluster, state_cluster(st), ID_BYTES);
		ids.epoch++;
		ck_assert_int_eq(state_save(st, &ids, &e), 0);
		state_close(st);
		if (i < ARRAY_SIZE(bad))
			write_over(STATE_FILE, bad[i].bytes, bad[i].n);
		else
			ck_assert_int_eq(remove(path), 0);
		st = open_ok(dir);
		ck_assert(!state_is_new(st));
		ck_assert_mem_eq(state_cluster(st), cluster, ID_BYTES);
		ck_assert_uint_eq(state_ids(st)->epoch, ids.epoch);
	}
	ck_assert_int_eq(state_save(st, &ids, &e), 0);
	state_close(st);
	write_over(STATE_COPY, "", 0);
	state_close(open_ok(dir));		/* nobody needs it */
	write_over(STATE_FILE, "", 0);
	ck_assert_int_eq(state_open(&st, dir, &e), TALLY_EPROTO);
	ck_assert_int_eq(remove(path), 0);
	ck_assert_int_eq(state_open(&st, dir, &e), TALLY_EPROTO);
}
END_TEST

START_TEST(every_damaged_byte_is_refused_by_name)
{
	struct state *st = open_ok(dir);
	uint8_t good[256], bad[256];
	struct err e;
	FILE *f;
	size_t n;

	state_close(st);
	copy_is_gone();
	f = fopen(path, "r");
	n = fread(good, 1, sizeof(good), f);
	fclose(f);
	ck_assert_uint_gt(n, 40);
	for (size_t i = 0; i <= n; i++) {
		memcpy(bad, good, n);
		bad[i % n] ^= 0x10;
		f = fopen(path, "w");
		fwrite(bad, 1, i == n ? n / 2 : n, f);	/* at last: cut short */
		fclose(f);
		ck_assert_int_eq(state_open(&st, dir, &e), TALLY_EPROTO);
		ck_assert_ptr_nonnull(strstr(e.text, path));
	}
	f = fopen(path, "w");
	fwrite(good, 1, n, f);
	fclose(f);
	state_close(open_ok(dir));
}
END_TEST

START_TEST(second_scheduler_is_told_the_pid_of_the_first)
{
	struct state *st = open_ok(dir), *other;
	char pid[32];
	struct err e;

	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	ck_assert_int_eq(state_open(&other, dir, &e), TALLY_EBUSY);
	ck_assert_ptr_nonnull(strstr(e.text, pid));
	state_close(st);
	state_close(open_ok(dir));	/* the lock went with it */
}
END_TEST

/* On a disk without room for as much as a number. */
START_TEST(scheduler_that_cannot_say_its_pid_starts_and_has_the_lock)
{
	struct rlimit all, none;
	struct state *st, *other;
	struct err e;

	st = open_ok(dir);
	ck_assert_int_eq(state_save(st, &(struct sched_ids){ .epoch = 5 }, &e), 0);
	state_close(st);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
	none = (struct rlimit){ 0, all.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	st = open_ok(dir);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
	ck_assert_uint_eq(state_ids(st)->epoch, 5);
	ck_assert_int_eq(state_open(&other, dir, &e), TALLY_EBUSY);
	ck_assert_ptr_nonnull(strstr(e.text, "process unknown"));	/* not the one before */
	state_close(st);
}
END_TEST

START_TEST(left_over_of_a_crash_is_harmless)
{
	struct sched_ids ids = { .epoch = 5 };
	struct state *st = open_ok(dir);
	char tmp[160];
	struct err e;
	FILE *f;

	state_save(st, &ids, &e);
	state_close(st);
	snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	f = fopen(tmp, "w");
	fputs("half a st", f);
	fclose(f);
	st = open_ok(dir);
	ck_assert_uint_eq(state_ids(st)->epoch, 5);
	ids.epoch = 6;
	ck_assert_int_eq(state_save(st, &ids, &e), 0);
	state_close(st);
}
END_TEST

START_TEST(failed_save_keeps_what_was_durable)
{
	struct sched_ids ids = { .epoch = 5 };
	struct state *st = open_ok(dir);
	char tmp[160];
	struct err e;

	state_save(st, &ids, &e);
	snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	ck_assert_int_eq(mkdir(tmp, 0700), 0);	/* in the way, even of root */
	ids.epoch = 6;
	ck_assert_int_lt(state_save(st, &ids, &e), 0);
	ck_assert_uint_eq(state_ids(st)->epoch, 5);
	rmdir(tmp);
	state_close(st);
	st = open_ok(dir);
	ck_assert_uint_eq(state_ids(st)->epoch, 5);
	state_close(st);
}
END_TEST

/* The copy's, its directory's, and the same of the file. */
START_TEST(what_is_not_synced_is_not_saved)
{
	struct sched_ids ids = { .epoch = 5 };
	struct state *st = open_ok(dir);
	struct err e;
	uint32_t i = 0;

	ck_assert_int_eq(state_save(st, &ids, &e), 0);
	for (;;) {
		struct sched_ids more = { .epoch = 6 };

		e = (struct err){ 0 };
		sync_fails_at = ++i;
		if (!state_save(st, &more, &e))
			break;
		ck_assert_int_eq(e.code, TALLY_EIO);
		ck_assert_ptr_nonnull(strstr(e.text, strerror(EIO)));
		ck_assert_ptr_nonnull(strstr(e.text, dir));
		ck_assert_uint_eq(state_ids(st)->epoch, 5);
		state_close(st);
		st = open_ok(dir);		/* renamed it may be there */
		ck_assert(state_ids(st)->epoch == 5 || (i == 4 && state_ids(st)->epoch == 6));
		ck_assert_int_eq(state_save(st, &ids, &e), 0);
	}
	sync_fails_at = 0;
	ck_assert_uint_eq(i, 5);
	ck_assert_uint_eq(state_ids(st)->epoch, 6);
	state_close(st);
}
END_TEST

START_TEST(directory_is_made_if_its_parent_is_there)
{
	char sub[96], deep[128];
	struct state *st;
	struct err e;

	snprintf(deep, sizeof(deep), "%s/no/where", dir);
	ck_assert_int_eq(state_open(&st, deep, &e), TALLY_ENOENT);
	ck_assert_ptr_nonnull(strstr(e.text, deep));
	snprintf(sub, sizeof(sub), "%s/new", dir);
	state_close(open_ok(sub));
	snprintf(deep, sizeof(deep), "%s/" STATE_FILE, sub);
	ck_assert_int_eq(remove(deep), 0);
	snprintf(deep, sizeof(deep), "%s/" STATE_COPY, sub);
	ck_assert_int_eq(remove(deep), 0);
	snprintf(deep, sizeof(deep), "%s/" STATE_LOCK, sub);
	ck_assert_int_eq(remove(deep), 0);
	ck_assert_int_eq(rmdir(sub), 0);
}
END_TEST

START_TEST(memory_only_is_a_new_cluster_each_time)
{
	struct state *a = open_ok(""), *b = open_ok("");

	ck_assert(state_is_new(a) && state_is_new(b));
	ck_assert_mem_ne(state_cluster(a), state_cluster(b), ID_BYTES);
	state_close(a);
	state_close(b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sched_state");
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, saved_numbers_survive_a_restart);
	tcase_add_test(t, every_damaged_byte_is_refused_by_name);
	tcase_add_test(t, a_damaged_file_does_not_take_numbers_back);
	tcase_add_test(t, second_scheduler_is_told_the_pid_of_the_first);
	tcase_add_test(t, scheduler_that_cannot_say_its_pid_starts_and_has_the_lock);
	tcase_add_test(t, left_over_of_a_crash_is_harmless);
	tcase_add_test(t, failed_save_keeps_what_was_durable);
	tcase_add_test(t, what_is_not_synced_is_not_saved);
	tcase_add_test(t, directory_is_made_if_its_parent_is_there);
	tcase_add_test(t, memory_only_is_a_new_cluster_each_time);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
