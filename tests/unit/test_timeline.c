// SPDX-License-Identifier: Apache-2.0
/* timeline.c: what the file holds, whole or cut off, and what it must never hold. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/timeline.h"

static char dir[32], path[64], *text;
static struct lt_timeline *t;
static struct err e;

static void setup(void)
{
	strcpy(dir, "/tmp/tally-line-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/trace", dir);
	text = NULL;
}

static void teardown(void)
{
	char name[80];

	unlink(path);
	for (int i = 2; i < 4; i++) {
		snprintf(name, sizeof(name), "%s.%d", path, i);
		unlink(name);
	}
	rmdir(dir);
	free(text);
}

static void open_it(void)
{
	ck_assert_msg(lt_timeline_open(&t, path, "job", 3, 8, &e) == 0, "%s", e.text);
}

static void span(enum lt_span_kind kind, const char *name, mono_t begin, mono_t end)
{
	const struct lt_span s = { .kind = kind, .name = name, .begin = begin, .end = end,
				   .round = 7, .priority = -2, .bytes = 4096 };

	lt_timeline_span(t, &s);
}

static const char *read_it(void)
{
	struct stat st;
	int fd = open(path, O_RDONLY);

	ck_assert(fd >= 0 && fstat(fd, &st) == 0);
	free(text);
	text = calloc(1, (size_t)st.st_size + 1);
	ck_assert_int_eq(read(fd, text, (size_t)st.st_size), st.st_size);
	close(fd);
	return text;
}

static bool ends_with(const char *s, const char *end)
{
	return strlen(s) >= strlen(end) && !strcmp(s + strlen(s) - strlen(end), end);
}

/* How many times part is there. */
static uint32_t count(const char *part)
{
	uint32_t n = 0;

	for (const char *at = text; (at = strstr(at, part)); at++)
		n++;
	return n;
}

/* Every line but the brackets is one event; no control character, no stray quote. */
static void check_lines(void)
{
	char *rest = strdup(text), *all = rest, *line;
	uint32_t n = 0;

	while ((line = strsep(&rest, "\n"))) {
		int depth = 0;
		bool quoted = false, good = true;

		if (!strcmp(line, "[") || !strcmp(line, "]") || !*line)
			continue;
		n++;
		ck_assert(line[0] == '{' && (ends_with(line, "},") || ends_with(line, "}")));
		for (const char *c = line; *c; c++) {
			good &= (uint8_t)*c >= ' ';
			if (quoted && *c == '\\') {
				c++;
				good &= *c == '\\' || *c == '"';
			} else if (*c == '"') {
				quoted = !quoted;
			} else if (!quoted) {
				depth += (*c == '{') - (*c == '}');
			}
		}
		ck_assert(good && !quoted && depth == 0);
	}
	ck_assert_uint_gt(n, 0);
	free(all);
}

START_TEST(a_span_is_an_event_and_the_end_closes_the_array)
{
	open_it();
	t->to_wall = 1000000000;
	span(SPAN_PUSH, "grad", 5000001, 5002500);
	lt_timeline_close(t);
	read_it();
	check_lines();
	ck_assert(!strncmp(text, "[\n", 2) && ends_with(text, "}\n]\n"));
	ck_assert_ptr_nonnull(strstr(text,
		"{\"ph\":\"X\",\"cat\":\"network\",\"name\":\"grad\",\"pid\":3,\"tid\":257,"
		"\"ts\":1005000.001,\"dur\":2.499,"
		"\"args\":{\"round\":7,\"bytes\":4096,\"priority\":-2}},\n"));
	ck_assert_ptr_nonnull(strstr(text, "\"name\":\"rank 3 of 8, job job\""));
	ck_assert_ptr_nonnull(strstr(text, "\"name\":\"push\""));
	ck_assert_ptr_nonnull(strstr(text, "\"spans\":0}}\n]"));
}
END_TEST

START_TEST(what_is_flushed_is_whole_lines)
{
	open_it();
	span(SPAN_COPY, "a", 1, 2);
	ck_assert_uint_eq(strlen(read_it()), t->bytes);
	ck_assert_ptr_null(strstr(text, "\"a\""));	/* it waits for company */
	lt_timeline_flush(t);
	ck_assert(ends_with(read_it(), "}},\n"));
	ck_assert_ptr_nonnull(strstr(text, "\"a\""));
	check_lines();
	for (int i = 0; i < 5000; i++) {
		span(SPAN_COPY, "b", 10 * i + 10, 10 * i + 11);
		ck_assert_uint_le(t->len, sizeof(t->buffer));
	}
	ck_assert(ends_with(read_it(), "}},\n"));
	check_lines();
	lt_timeline_close(t);
}
END_TEST

START_TEST(names_are_escaped_mended_and_cut)
{
	char name[2 * NAME_LEN_MAX];

	open_it();
	span(SPAN_COPY, "q\"b\\c\n\x01" "d\xc3\xa4\xff", 1, 2);
	memset(name, '"', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	span(SPAN_COPY, name, 3, 4);
	memset(name, 'x', sizeof(name) - 1);
	memcpy(name + NAME_LEN_MAX - 1, "\xc3\xa4", 2);	/* half of it does not fit */
	span(SPAN_COPY, name, 5, 6);
	span(SPAN_COPY, "", 7, 8);
	lt_timeline_close(t);
	read_it();
	check_lines();
	ck_assert_ptr_nonnull(strstr(text, "\"q\\\"b\\\\cd\xc3\xa4\""));
	ck_assert_uint_eq(count("\\\""), NAME_LEN_MAX + 1);
	name[NAME_LEN_MAX - 1] = '\0';
	ck_assert_ptr_nonnull(strstr(text, name));
	ck_assert_uint_eq(count("\xc3"), 1);
}
END_TEST

START_TEST(spans_of_a_track_do_not_overlap)
{
	open_it();
	span(SPAN_ROUND, "a", 10, 20);
	span(SPAN_ROUND, "b", 15, 25);
	span(SPAN_ROUND, "c", 20, 30);		/* after a */
	span(SPAN_ROUND, "d", 26, 27);		/* after b */
	span(SPAN_ROUND, "e", 5, 40);
	lt_timeline_close(t);
	read_it();
	ck_assert_uint_eq(count("\"tid\":65,\"ts\""), 2);
	ck_assert_uint_eq(count("\"tid\":66,\"ts\""), 2);
	ck_assert_uint_eq(count("\"tid\":67,\"ts\""), 1);
	ck_assert_ptr_nonnull(strstr(text, "\"round 3\""));
}
END_TEST

START_TEST(more_at_a_time_than_tracks_are_counted)
{
	open_it();
	for (uint32_t i = 0; i < TIMELINE_TRACKS_MAX + 10; i++)
		span(SPAN_ROUND, "a", 10, 20);
	span(SPAN_ROUND, "b", 20, 30);
	lt_timeline_close(t);
	read_it();
	check_lines();
	ck_assert_uint_eq(count("\"ph\":\"X\""), TIMELINE_TRACKS_MAX + 1);
	ck_assert_ptr_nonnull(strstr(text, "\"spans\":10}}"));
}
END_TEST

START_TEST(a_file_has_a_limit)
{
	open_it();
	t->limit = 20000;
	for (int i = 0; i < 1000; i++)
		span(SPAN_COPY, "a", 10 * i, 10 * i + 1);
	lt_timeline_close(t);
	read_it();
	check_lines();
	ck_assert_uint_le(strlen(text), 20000);
	ck_assert_uint_gt(strlen(text), 10000);
	ck_assert(ends_with(text, "}}\n]\n"));
	ck_assert_ptr_null(strstr(text, "\"spans\":0}}"));
}
END_TEST

START_TEST(sessions_of_one_name_have_files_of_their_own)
{
	struct lt_timeline *other;

	open_it();
	ck_assert_int_eq(lt_timeline_open(&other, path, "job", 3, 8, &e), 0);
	span(SPAN_COPY, "mine", 1, 2);
	lt_timeline_close(other);
	lt_timeline_close(t);
	ck_assert_ptr_nonnull(strstr(read_it(), "mine"));
	strcat(path, ".2");
	ck_assert_ptr_null(strstr(read_it(), "mine"));
	check_lines();
	*strrchr(path, '.') = '\0';
	open_it();				/* free again, and new */
	lt_timeline_close(t);
	ck_assert_ptr_null(strstr(read_it(), "mine"));
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_ne(lt_timeline_open(&t, path, "job", 0, 1, &e), 0);
	ck_assert_ptr_nonnull(strstr(e.text, "TALLY_TIMELINE"));
	ck_assert_int_ne(lt_timeline_open(&t, dir, "job", 0, 1, &e), 0);
	ck_assert_int_ne(lt_timeline_open(&t, "/nowhere/x", "job", 0, 1, &e), 0);
	ck_assert_ptr_nonnull(strstr(e.text, "/nowhere/x: No such file"));
}
END_TEST

START_TEST(a_full_disk_ends_the_file_and_nothing_else)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	open_it();
	ck_assert_int_ge(full, 0);
	ck_assert_int_eq(dup2(full, t->fd), t->fd);
	close(full);
	for (int i = 0; i < 1000; i++)
		span(SPAN_COPY, "a", 10 * i, 10 * i + 1);
	ck_assert_int_eq(t->fd, -1);
	ck_assert_uint_gt(t->left_out, 0);
	lt_timeline_close(t);
	read_it();
	check_lines();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("timeline");
	TCase *c = tcase_create("timeline");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 240);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, a_span_is_an_event_and_the_end_closes_the_array);
	tcase_add_test(c, what_is_flushed_is_whole_lines);
	tcase_add_test(c, names_are_escaped_mended_and_cut);
	tcase_add_test(c, spans_of_a_track_do_not_overlap);
	tcase_add_test(c, more_at_a_time_than_tracks_are_counted);
	tcase_add_test(c, a_file_has_a_limit);
	tcase_add_test(c, sessions_of_one_name_have_files_of_their_own);
	tcase_add_test(c, what_is_no_file_is_refused);
	tcase_add_test(c, a_full_disk_ends_the_file_and_nothing_else);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
