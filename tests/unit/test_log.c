// SPDX-License-Identifier: Apache-2.0
/* The log: what a line looks like, and that it never blocks. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rt/log.h"

static int saved, reader;
static char text[1 << 17];

/* stderr becomes the writing end of a pipe or socket; nothing else holds it open. */
static void redirect(int fds[2])
{
	saved = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	reader = fds[0];
	fcntl(reader, F_SETFL, O_NONBLOCK);
}

static void redirect_pipe(void)
{
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	redirect(p);
}

static void restore(void)
{
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(reader);
	log_init("test", LOG_INFO);
}

/* What is in the pipe now. */
static const char *read_all(void)
{
	size_t have = 0;
	ssize_t n;

	while ((n = read(reader, text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	text[have] = '\0';
	return text;
}

START_TEST(line_has_time_level_program_and_text)
{
	int y, mon, d, h, min, sec, ms, end = 0;

	redirect_pipe();
	log_init("tally-test", LOG_INFO);
	errno = ENOENT;
	log_warn("node %d lost: %m", 7);
	ck_assert_int_eq(errno, ENOENT);
	read_all();
	restore();
	ck_assert_int_eq(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &y, &mon, &d, &h, &min,
				&sec, &ms, &end), 7);
	ck_assert_str_eq(text + end, "warn  tally-test: node 7 lost: No such file or directory\n");
}
END_TEST

START_TEST(lines_below_the_level_are_not_written)
{
	redirect_pipe();
	log_init("t", LOG_WARN);
	log_info("unheard");
	log_debug("unheard");
	log_error("heard");
	read_all();
	restore();
	ck_assert_ptr_null(strstr(text, "unheard"));
	ck_assert_ptr_nonnull(strstr(text, "heard"));
}
END_TEST

START_TEST(levels_have_names)
{
	ck_assert_int_eq(log_level_from_name("error"), LOG_ERROR);
	ck_assert_int_eq(log_level_from_name("debug"), LOG_DEBUG);
	ck_assert_int_eq(log_level_from_name("loud"), -1);
}
END_TEST

START_TEST(text_of_a_peer_cannot_make_lines_of_its_own)
{
	char *nl;

	redirect_pipe();
	log_init("t", LOG_INFO);
	log_info("name %s", "a\nb\033[2Jc");
	read_all();
	restore();
	ck_assert_ptr_nonnull(strstr(text, "name a?b?[2Jc\n"));
	nl = strchr(text, '\n');
	ck_assert_int_eq(nl[1], '\0');
}
END_TEST

START_TEST(long_line_is_cut_and_stays_one_line)
{
	char big[5000];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	redirect_pipe();
	log_init("t", LOG_INFO);
	log_info("%s", big);
	read_all();
	restore();
	ck_assert_uint_eq(strlen(text), 1024);
	ck_assert_int_eq(text[1023], '\n');
}
END_TEST

START_TEST(full_pipe_drops_counts_and_later_tells)
{
	uint64_t before, lost;
	char want[64];

	redirect_pipe();
	log_init("t", LOG_INFO);
	before = log_dropped();
	for (int i = 0; i < 5000; i++)		/* far more than a pipe holds */
		log_info("line %d of quite some length, so that the pipe is full soon", i);
	lost = log_dropped() - before;
	ck_assert_uint_gt(lost, 0);
	ck_assert_uint_lt(lost, 5000);
	read_all();
	log_info("room again");
	read_all();
	restore();
	snprintf(want, sizeof(want), "log lines dropped, count %llu\n", (unsigned long long)lost);
	ck_assert_ptr_nonnull(strstr(text, want));
	ck_assert_ptr_nonnull(strstr(text, "room again\n"));
}
END_TEST

/* What its lines go to is on a disk without room. */
START_TEST(full_disk_drops_counts_and_later_tells)
{
	int full[2] = { open("/dev/null", O_RDONLY), open("/dev/full", O_WRONLY) };
	uint64_t before = log_dropped();

	ck_assert_int_ge(full[1], 0);
	redirect(full);
	log_init("t", LOG_INFO);
	for (int i = 0; i < 3; i++) {
		errno = ENOENT;
		log_info("unheard");
		ck_assert_int_eq(errno, ENOENT);
	}
	restore();
	ck_assert_uint_eq(log_dropped() - before, 3);
	redirect_pipe();
	log_init("t", LOG_INFO);
	log_info("room again");
	read_all();
	restore();
	ck_assert_ptr_nonnull(strstr(text, "log lines dropped, count 3\n"));
	ck_assert_ptr_nonnull(strstr(text, "room again\n"));
}
END_TEST

/* It cannot be reopened, so it blocks whoever writes to it when it is full. */
START_TEST(full_pipe_of_another_user_does_not_block)
{
	int p[2], status;
	pid_t child;

	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(fchmod(p[1], 0), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		alarm(20);
		dup2(p[1], STDERR_FILENO);
		if (!getuid() && setresuid(65534, 65534, 65534))
			_exit(2);
		if (open("/proc/self/fd/2", O_WRONLY) >= 0)
			_exit(3);
		log_init("t", LOG_INFO);
		for (int i = 0; i < 5000; i++)
			log_info("line %d of quite some length, so that the pipe is full", i);
		_exit(!log_dropped());
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	close(p[0]);
	close(p[1]);
}
END_TEST

START_TEST(under_the_journal_lines_carry_a_priority)
{
	struct stat st;
	char stream[64];
	int p[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	redirect(p);
	fstat(STDERR_FILENO, &st);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init("t", LOG_INFO);
	log_error("help");
	log_info("fine");
	read_all();
	unsetenv("JOURNAL_STREAM");
	restore();
	ck_assert_str_eq(text, "<3>help\n<6>fine\n");
}
END_TEST

START_TEST(full_journal_socket_does_not_block)
{
	uint64_t before = log_dropped();
	int p[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	redirect(p);
	log_init("t", LOG_INFO);
	for (int i = 0; i < 20000; i++)
		log_info("line %d", i);
	restore();
	ck_assert_uint_gt(log_dropped(), before);
}
END_TEST

/* Lines of text that have this in them. */
static uint32_t count(const char *what)
{
	uint32_t n = 0;

	for (const char *p = text; (p = strstr(p, what)); p++)
		n++;
	return n;
}

START_TEST(a_storm_of_warnings_is_bounded_place_by_place)
{
	struct log_site site = { 0 };

	redirect_pipe();
	log_init("t", LOG_WARN);
	for (uint32_t i = 0; i < 3 * LOG_BURST; i++) {
		log_bounded(&site, LOG_WARN, "storm %u", i);
		log_bounded(&site, LOG_INFO, "unheard, and not counted");
	}
	for (uint32_t i = 0; i < 2; i++)
		log_warn("another place");
	read_all();
	ck_assert_uint_eq(count("storm"), LOG_BURST);
	ck_assert_ptr_nonnull(strstr(text, "storm 99 (more like this are left out for 10 s)\n"));
	ck_assert_uint_eq(count("(more"), 1);
	ck_assert_uint_eq(count("another place\n"), 2);

	atomic_fetch_sub(&site.since, LOG_WINDOW_S);	/* time goes by */
	log_bounded(&site, LOG_WARN, "later");
	log_bounded(&site, LOG_WARN, "and on");
	read_all();
	restore();
	ck_assert_ptr_nonnull(strstr(text, "later (200 more like this were left out)\n"));
	ck_assert_ptr_nonnull(strstr(text, "and on\n"));
}
END_TEST

START_TEST(log_error_and_log_warn_are_bounded)
{
	redirect_pipe();
	log_init("t", LOG_INFO);
	for (uint32_t i = 0; i < 2 * LOG_BURST; i++) {
		log_warn("w");
		log_error("e");
		log_info("i");
	}
	read_all();
	restore();
	ck_assert_uint_eq(count("t: w"), LOG_BURST);
	ck_assert_uint_eq(count("t: e"), LOG_BURST);
	ck_assert_uint_eq(count("t: i"), 2 * LOG_BURST);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("log");
	TCase *c = tcase_create("log");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, line_has_time_level_program_and_text);
	tcase_add_test(c, lines_below_the_level_are_not_written);
	tcase_add_test(c, levels_have_names);
	tcase_add_test(c, text_of_a_peer_cannot_make_lines_of_its_own);
	tcase_add_test(c, long_line_is_cut_and_stays_one_line);
	tcase_add_test(c, full_pipe_drops_counts_and_later_tells);
	tcase_add_test(c, full_disk_drops_counts_and_later_tells);
	tcase_add_test(c, full_pipe_of_another_user_does_not_block);
	tcase_add_test(c, under_the_journal_lines_carry_a_priority);
	tcase_add_test(c, full_journal_socket_does_not_block);
	tcase_add_test(c, a_storm_of_warnings_is_bounded_place_by_place);
	tcase_add_test(c, log_error_and_log_warn_are_bounded);
	suite_add_tcase(s, c);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
