// SPDX-License-Identifier: Apache-2.0
/* The parts of the command line below its verbs: guesses, tables, JSON, benchmark, broom. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/broom.h"
#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/proc.h"
#include "cli/screen.h"
#include "cli/sup.h"
#include "cli/table.h"
#include "common/kern/kern.h"

#define DEADLINE_MS 10000

/* ---- guesses ---- */

static const char *guess(const char *typed)
{
	static const char *const names[] = { "status", "nodes", "jobs", "tensors", "plan" };

	return cmd_nearest(typed, names, ARRAY_SIZE(names));
}

START_TEST(nearest_is_one_or_two_letters_away)
{
	ck_assert_str_eq(guess("statsu"), "status");
	ck_assert_str_eq(guess("node"), "nodes");
	ck_assert_str_eq(guess("jobbs"), "jobs");
	ck_assert_str_eq(guess("pln"), "plan");
}
END_TEST

START_TEST(nearest_of_nonsense_is_nothing)
{
	ck_assert_ptr_null(guess("frobnicate"));
	ck_assert_ptr_null(guess(""));
	ck_assert_ptr_null(guess("a-word-that-is-much-longer-than-any-name-can-be"));
}
END_TEST

/* ---- tables and JSON ---- */

static char *text;
static size_t text_len;

static FILE *open_text(void)
{
	FILE *f = open_memstream(&text, &text_len);

	ck_assert_ptr_nonnull(f);
	return f;
}

static void expect_text(FILE *f, const char *expected)
{
	fclose(f);
	ck_assert_str_eq(text, expected);
	free(text);
}

START_TEST(table_aligns_words_left_numbers_right_and_shows_empty_cells)
{
	FILE *f = open_text();
	struct table t;

	table_init(&t, "NAME >BYTES NOTE");
	table_cell(&t, "%s", "ä");
	table_cell(&t, "%d", 5);
	table_cell(&t, "%s", "");
	table_cell(&t, "%s", "longer");
	table_cell(&t, "%d", 123456);
	table_cell(&t, "%s", "x");
	ck_assert(table_print(&t, f, 0));
	table_free(&t);
	expect_text(f, "NAME     BYTES  NOTE\n"
		       "ä            5  -\n"
		       "longer  123456  x\n");
}
END_TEST

/* Three rows under heads whose columns may go, may be shortened, and may not. */
static struct table narrow_table(void)
{
	struct table t;

	table_init(&t, "~NAME >SIZE:2 STATE >COUNT:5 ~NOTE");
	for (uint32_t i = 0; i < 3; i++) {
		table_cell(&t, "%s", i == 2 ? "knoten-mit-einem-längeren-namen" : "n");
		table_cell(&t, "%u", 1000 + i);
		table_cell(&t, "up");
		table_cell(&t, "%u", 123456 + i);
		table_cell(&t, "%s", i ? "数字は幅二つ、二つ、二つ、二つ、二つ" : "");
	}
	return t;
}

/* No line is wider, whatever the terminal is; from `least` columns on nothing is cut. */
START_TEST(table_is_never_wider_than_the_terminal)
{
	struct table t = narrow_table();

	for (uint32_t columns = 1; columns < 120; columns++) {
		FILE *f = open_text();
		char *line, *rest;
		uint32_t lines = 0;

		ck_assert(table_print(&t, f, columns));
		fclose(f);
		for (line = strtok_r(text, "\n", &rest); line;
		     line = strtok_r(NULL, "\n", &rest)) {
			ck_assert_uint_le(table_width_of(line), columns);
			lines++;
		}
		ck_assert_uint_ge(lines, 4);
		free(text);
	}
	table_free(&t);
}
END_TEST

START_TEST(narrow_table_loses_the_least_important_columns_first)
{
	static const struct {
		uint32_t columns;
		const char *heads;
	} rows[] = {
		{ 0, "NAME                             SIZE  STATE   COUNT  NOTE\n" },
		{ 60, "NAME                SIZE  STATE   COUNT  NOTE\n" },
		{ 50, "NAME               SIZE  STATE  NOTE\n" },
		{ 41, "NAME              STATE  NOTE\n" },
	};
	struct table t = narrow_table();

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		FILE *f = open_text();
		size_t at = 0;

		ck_assert(table_print(&t, f, rows[i].columns));
		fclose(f);
		for (const char *h = rows[i].heads; *h; h++) {	/* blanks count for one */
			if (*h == ' ' && h[1] == ' ')
				continue;
			while (text[at] == ' ' && text[at + 1] == ' ')
				at++;
			ck_assert_msg(text[at++] == *h, "%u: %s", rows[i].columns, text);
		}
		ck_assert_int_eq(strstr(text, "(--wide shows ") != NULL, rows[i].columns == 50 ||
				 rows[i].columns == 41);
		free(text);
	}
	table_free(&t);
}
END_TEST

START_TEST(shortened_text_ends_in_an_ellipsis_and_whole_characters)
{
	FILE *f = open_text();
	struct table t;

	table_init(&t, "~NAME");
	table_cell(&t, "%s", "äöüäöüäöü");
	table_cell(&t, "%s", "数字数字");
	table_cell(&t, "%s", "short");
	ck_assert(table_print(&t, f, 6));
	table_free(&t);
	expect_text(f, "NAME\näöüäö…\n数字…\nshort\n");
}
END_TEST

START_TEST(table_draws_no_control_characters)
{
	FILE *f = open_text();
	struct table t;

	table_init(&t, "NAME");
	table_cell(&t, "%s", "a\033[2J\nb\x7f");
	ck_assert(table_print(&t, f, 0));
	table_free(&t);
	expect_text(f, "NAME\na?[2J?b?\n");
}
END_TEST

START_TEST(lines_go_on_below_their_first_word)
{
	FILE *f = open_text();

	screen_line(f, 30, "note", "%s", "a server whose NIC is slow");
	screen_line(f, 0, "note", "%s", "as long as it is");
	screen_line(f, 12, "x", "%s", "");
	expect_text(f, "note       a server whose NIC\n"
		       "           is slow\n"
		       "note       as long as it is\n"
		       "x          \n");
}
END_TEST

START_TEST(table_of_heads_only_prints_heads)
{
	FILE *f = open_text();
	struct table t;

	table_init(&t, "A >B");
	ck_assert(table_print(&t, f, 0));
	table_free(&t);
	expect_text(f, "A  B\n");
}
END_TEST

START_TEST(json_puts_commas_escapes_and_closes)
{
	FILE *f = open_text();
	struct json j;

	json_init(&j, f);
	json_object(&j, NULL);
	json_str(&j, "s", "a\"b\\c\nd");
	json_array(&j, "l");
	json_u64(&j, NULL, UINT64_MAX);
	json_i64(&j, NULL, -1);
	json_end_array(&j);
	json_array(&j, "none");
	json_end_array(&j);
	json_bool(&j, "b", true);
	json_null(&j, "n");
	json_end_object(&j);
	json_end_document(&j);
	expect_text(f, "{\n  \"s\": \"a\\\"b\\\\c\\u000ad\",\n  \"l\": [\n"
		       "    18446744073709551615,\n    -1\n  ],\n  \"none\": [],\n"
		       "  \"b\": true,\n  \"n\": null\n}\n");
}
END_TEST

START_TEST(json_numbers_read_back_the_same)
{
	static const double values[] = { 0, 0.1, 1.0 / 3, 1e300, 123456789.125, -2.5e-308 };

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		FILE *f = open_text();
		struct json j;
		double back;

		json_init(&j, f);
		json_double(&j, NULL, values[i]);
		fclose(f);
		back = strtod(text, NULL);
		ck_assert(!memcmp(&back, &values[i], sizeof(back)));
		free(text);
	}
}
END_TEST

START_TEST(json_has_null_for_what_is_no_number)
{
	FILE *f = open_text();
	struct json j;

	json_init(&j, f);
	json_double(&j, NULL, 0.0 / 0.0);
	expect_text(f, "null");
}
END_TEST

/* ---- the benchmark's arithmetic ---- */

START_TEST(machines_are_numbered_by_their_lowest_rank)
{
	static const int64_t key[] = { 70, -5, 70, 9, -5 };
	static const uint32_t expected[] = { 0, 1, 0, 2, 1 };
	uint32_t machine_of[5];
	struct bench_ranks g;

	bench_group(&g, key, 5, machine_of);
	ck_assert_uint_eq(g.machines, 3);
	ck_assert(!memcmp(machine_of, expected, sizeof(expected)));
}
END_TEST

START_TEST(fill_is_the_same_from_any_start)
{
	for (int d = 1; d < DTYPE_END; d++) {
		uint8_t whole[8 * 100], part[8 * 40];
		uint32_t size = dtype_bytes((uint8_t)d);

		bench_fill((enum dtype)d, 3, 0, 100, whole);
		bench_fill((enum dtype)d, 3, 60, 40, part);
		ck_assert(!memcmp(whole + 60 * size, part, 40 * size));
		bench_fill((enum dtype)d, 4, 60, 40, part);
		ck_assert(memcmp(whole + 60 * size, part, 40 * size));
	}
}
END_TEST

/* Two ranks per machine in turn: ((r0 + r2) + (r1 + r3)), written out by hand. */
START_TEST(expected_sum_is_by_rank_then_by_machine)
{
	enum { N = BENCH_BLOCK + 17 };
	static float in[4][N], out[N];
	uint32_t machine_of[4];
	struct bench_ranks g;
	uint32_t order_shows = 0;

	bench_group(&g, (const int64_t[]){ 1, 2, 1, 2 }, 4, machine_of);
	for (uint32_t r = 0; r < 4; r++)
		bench_fill(DTYPE_F32, r, 0, N, in[r]);
	ck_assert_int_eq(bench_expect(&g, DTYPE_F32, ROP_SUM, N, out), 0);
	for (uint32_t i = 0; i < N; i++) {
		float a = in[0][i] + in[2][i], b = in[1][i] + in[3][i];
		float grouped = a + b, flat = in[0][i] + in[1][i];

		flat += in[2][i];
		flat += in[3][i];
		ck_assert(!memcmp(&out[i], &grouped, sizeof(grouped)));
		order_shows += memcmp(&flat, &grouped, sizeof(flat)) != 0;
	}
	ck_assert_uint_gt(order_shows, N / 100);
}
END_TEST

START_TEST(expected_integer_mean_rounds_toward_zero)
{
	enum { N = 64 };
	int32_t in[2][N], out[N];
	uint32_t machine_of[2];
	struct bench_ranks g;

	bench_group(&g, (const int64_t[]){ 1, 2 }, 2, machine_of);
	for (uint32_t r = 0; r < 2; r++)
		bench_fill(DTYPE_I32, r, 0, N, in[r]);
	ck_assert_int_eq(bench_expect(&g, DTYPE_I32, ROP_MEAN, N, out), 0);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(out[i], (int32_t)((uint32_t)in[0][i] + (uint32_t)in[1][i]) / 2);
}
END_TEST

/* Rounding the sum before the division would give another mean. */
START_TEST(expected_mean_on_one_machine_is_rounded_once)
{
	enum { N = BENCH_BLOCK, RANKS = 3 };
	static uint16_t in[RANKS][N], out[N], twice[N], once[N];
	const void *rows[RANKS], *sum = twice;
	uint32_t machine_of[RANKS], differ = 0;
	struct bench_ranks g;

	bench_group(&g, (const int64_t[]){ 4, 4, 4 }, RANKS, machine_of);
	for (uint32_t r = 0; r < RANKS; r++) {
		bench_fill(DTYPE_F16, r, 0, N, in[r]);
		rows[r] = in[r];
	}
	ck_assert_int_eq(bench_expect(&g, DTYPE_F16, ROP_MEAN, N, out), 0);
	kern_sum_at(KERN_C, DTYPE_F16, once, rows, RANKS, N, RANKS);
	kern_sum_at(KERN_C, DTYPE_F16, twice, rows, RANKS, N, 1);
	kern_sum_at(KERN_C, DTYPE_F16, twice, &sum, 1, N, RANKS);
	ck_assert(!memcmp(out, once, sizeof(out)));
	for (uint32_t i = 0; i < N; i++)
		differ += once[i] != twice[i];
	ck_assert_uint_gt(differ, 0);
}
END_TEST

START_TEST(differences_are_counted_by_element)
{
	uint16_t a[] = { 1, 2, 3, 4 }, b[] = { 1, 0x102, 3, 5 };

	ck_assert_uint_eq(bench_differences(DTYPE_F16, a, b, 4), 2);
	ck_assert_uint_eq(bench_differences(DTYPE_F16, a, a, 4), 0);
}
END_TEST

START_TEST(quantiles_are_by_nearest_rank)
{
	double v[100];

	for (int i = 0; i < 100; i++)
		v[i] = i + 1;
	ck_assert_double_eq(bench_quantile(v, 100, 0.50), 50);
	ck_assert_double_eq(bench_quantile(v, 100, 0.99), 99);
	ck_assert_double_eq(bench_quantile(v, 1, 0.99), 1);
	ck_assert_double_eq(bench_quantile(v, 20, 0.99), 20);
}
END_TEST

/* ---- processes ---- */

static bool is_gone(pid_t pid)
{
	char path[64], line[256];
	bool gone = true;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "State:", 6))
			gone = strchr(line, 'Z') || strchr(line, 'X');
	if (f)
		fclose(f);
	return gone;
}

static bool until_gone(const pid_t *pids, int n, const char *dir)
{
	for (int ms = 0; ms < DEADLINE_MS; ms += 10) {
		bool gone = access(dir, F_OK) != 0;

		for (int i = 0; i < n; i++)
			gone = gone && is_gone(pids[i]);
		if (gone)
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

static void make_dir(char dir[64])
{
	char path[96];
	int fd;

	snprintf(dir, 64, "/tmp/test-cli-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sub", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/sub/file", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

/*
 * Deaf to everything but SIGKILL; its child leaves the session, its parent's end does not
 * move it, and it has a child of its own.  Tells the numbers of all three.
 */
static const char *const stubborn[] = {
	"sh", "-c", "trap '' TERM INT HUP; echo $$; setsid sh -c 'sleep 600 & echo $$ $!; wait' & "
	"wait; sleep 600", NULL,
};

/* Who is there while the work goes on: broom, work, and those three. */
struct crew {
	pid_t broom, work, of_child[3];
};

struct job {
	int tell_fd;		/* gets the crew */
	int status;		/* that the work returns at once; -1: it stays for ever */
};

static int start_stubborn(void *arg)
{
	const struct job *j = arg;
	struct proc_spec spec = { stubborn, NULL, -1, -1, -1 };
	struct crew crew = { .broom = getppid(), .work = getpid() };
	struct err e;
	int out[2];
	pid_t pid;
	FILE *f;

	if (pipe2(out, O_CLOEXEC))
		return 99;
	spec.out_fd = out[1];
	if (proc_start(&spec, &pid, &e))
		return 99;
	f = fdopen(out[0], "re");
	for (int i = 0; f && i < 3; i++)
		if (fscanf(f, "%d", &crew.of_child[i]) != 1)
			return 99;
	if (!f || write(j->tell_fd, &crew, sizeof(crew)) != (ssize_t)sizeof(crew))
		return 99;
	while (j->status < 0)
		pause();
	fclose(f);
	close(out[1]);
	return j->status;
}

static bool until_crew_gone(const struct crew *c, const char *dir)
{
	const pid_t all[] = { c->broom, c->work, c->of_child[0], c->of_child[1],
			      c->of_child[2] };

	return until_gone(all, ARRAY_SIZE(all), dir);
}

/* In a process of its own, so that it can be killed; returns when the crew is there. */
static pid_t own_a_broom(const char *dir, struct crew *crew)
{
	int tell[2];
	pid_t owner;

	ck_assert_int_eq(pipe2(tell, O_CLOEXEC), 0);
	owner = fork();
	if (owner == 0) {
		struct job j = { .tell_fd = tell[1], .status = -1 };
		struct err e;

		_exit(broom_run(dir, start_stubborn, &j, &e));
	}
	close(tell[1]);
	ck_assert_int_eq(read(tell[0], crew, sizeof(*crew)), (ssize_t)sizeof(*crew));
	close(tell[0]);
	for (int i = 0; i < 3; i++)
		ck_assert(!is_gone(crew->of_child[i]));
	return owner;
}

START_TEST(broom_sweeps_after_its_owner_was_killed)
{
	struct crew crew;
	char dir[64];
	pid_t owner;

	make_dir(dir);
	owner = own_a_broom(dir, &crew);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	ck_assert(until_crew_gone(&crew, dir));
}
END_TEST

START_TEST(broom_sweeps_after_the_work_was_killed)
{
	struct crew crew;
	char dir[64];
	pid_t owner;
	int status;

	make_dir(dir);
	owner = own_a_broom(dir, &crew);
	kill(crew.work, SIGKILL);
	waitpid(owner, &status, 0);
	ck_assert_int_eq(proc_exit_code(status), 128 + SIGKILL);
	ck_assert(until_crew_gone(&crew, dir));
}
END_TEST

START_TEST(broom_that_is_killed_takes_the_work_along)
{
	struct crew crew;
	char dir[64];
	pid_t owner;
	int status;

	make_dir(dir);
	owner = own_a_broom(dir, &crew);
	kill(crew.broom, SIGKILL);
	waitpid(owner, &status, 0);
	ck_assert_int_eq(proc_exit_code(status), 128 + SIGKILL);
	ck_assert(until_gone((pid_t[]){ crew.broom, crew.work, crew.of_child[0] }, 3, dir));
	kill(crew.of_child[1], SIGKILL);
	kill(crew.of_child[2], SIGKILL);
}
END_TEST

START_TEST(broom_kills_who_has_left_its_group_before_it_returns)
{
	struct crew crew;
	struct err e;
	char dir[64];
	int tell[2];
	struct job j;

	make_dir(dir);
	ck_assert_int_eq(pipe2(tell, O_CLOEXEC), 0);
	j = (struct job){ .tell_fd = tell[1], .status = 7 };
	ck_assert_int_eq(broom_run(dir, start_stubborn, &j, &e), 7);
	ck_assert_int_eq(read(tell[0], &crew, sizeof(crew)), (ssize_t)sizeof(crew));
	ck_assert(is_gone(crew.broom) && is_gone(crew.work));
	for (int i = 0; i < 3; i++)
		ck_assert(is_gone(crew.of_child[i]));
	ck_assert_int_ne(access(dir, F_OK), 0);
	close(tell[0]);
	close(tell[1]);
}
END_TEST

START_TEST(starting_what_does_not_exist_says_so)
{
	static const char *const nothing[] = { "/nonexistent/program", NULL };
	struct proc_spec spec = { nothing, NULL, -1, -1, -1 };
	struct err e;
	pid_t pid;

	ck_assert_int_eq(proc_start(&spec, &pid, &e), TALLY_ENOENT);
	ck_assert_ptr_nonnull(strstr(e.text, "/nonexistent/program"));
}
END_TEST

START_TEST(supervisor_sees_who_ended_first_and_how)
{
	static const char *const one[] = { "sh", "-c", "read x; exit 3", NULL };
	static const char *const two[] = { "sh", "-c", "exec sleep 600", NULL };
	struct proc_spec spec = { one, NULL, -1, -1, -1 };
	int gate[2];
	struct sup s;
	struct err e;
	pid_t pid;
	const struct child *first;

	ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
	ck_assert_int_eq(sup_init(&s, 2, &e), 0);
	spec.in_fd = gate[0];
	ck_assert_int_eq(proc_start(&spec, &pid, &e), 0);
	ck_assert_ptr_nonnull(sup_add(&s, CHILD_RANK, "rank 0", pid, -1, &e));
	spec.argv = two;
	spec.in_fd = -1;
	ck_assert_int_eq(proc_start(&spec, &pid, &e), 0);
	ck_assert_ptr_nonnull(sup_add(&s, CHILD_RANK, "rank 1", pid, -1, &e));
	ck_assert_uint_eq(sup_running(&s, CHILD_RANK), 2);
	ck_assert(!sup_wait(&s, CHILD_RANK, 1));
	close(gate[1]);
	while (sup_running(&s, CHILD_RANK) == 2)
		sup_turn(&s, DEADLINE_MS);
	first = sup_first_ended(&s, CHILD_RANK, true, 0);
	ck_assert_str_eq(first->label, "rank 0");
	ck_assert_int_eq(proc_exit_code(first->wait_status), 3);
	sup_signal(&s, CHILD_RANK, SIGKILL);
	ck_assert(sup_wait(&s, CHILD_RANK, DEADLINE_MS));
	ck_assert_int_eq(proc_exit_code(s.children[1].wait_status), 128 + SIGKILL);
	ck_assert_ptr_eq(sup_first_ended(&s, CHILD_RANK, true, 0), first);
	ck_assert_ptr_eq(sup_first_ended(&s, CHILD_RANK, true, first->ended), &s.children[1]);
	ck_assert_ptr_null(sup_first_ended(&s, CHILD_RANK, true, s.children[1].ended));
	sup_fini(&s);
	close(gate[0]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cli");
	TCase *c = tcase_create("cli");
	SRunner *r;
	int failed;

	tcase_set_timeout(c, 240);
	tcase_add_test(c, nearest_is_one_or_two_letters_away);
	tcase_add_test(c, nearest_of_nonsense_is_nothing);
	tcase_add_test(c, table_aligns_words_left_numbers_right_and_shows_empty_cells);
	tcase_add_test(c, table_is_never_wider_than_the_terminal);
	tcase_add_test(c, narrow_table_loses_the_least_important_columns_first);
	tcase_add_test(c, shortened_text_ends_in_an_ellipsis_and_whole_characters);
	tcase_add_test(c, table_draws_no_control_characters);
	tcase_add_test(c, lines_go_on_below_their_first_word);
	tcase_add_test(c, table_of_heads_only_prints_heads);
	tcase_add_test(c, json_puts_commas_escapes_and_closes);
	tcase_add_test(c, json_numbers_read_back_the_same);
	tcase_add_test(c, json_has_null_for_what_is_no_number);
	tcase_add_test(c, machines_are_numbered_by_their_lowest_rank);
	tcase_add_test(c, fill_is_the_same_from_any_start);
	tcase_add_test(c, expected_sum_is_by_rank_then_by_machine);
	tcase_add_test(c, expected_integer_mean_rounds_toward_zero);
	tcase_add_test(c, expected_mean_on_one_machine_is_rounded_once);
	tcase_add_test(c, differences_are_counted_by_element);
	tcase_add_test(c, quantiles_are_by_nearest_rank);
	tcase_add_test(c, broom_sweeps_after_its_owner_was_killed);
	tcase_add_test(c, broom_sweeps_after_the_work_was_killed);
	tcase_add_test(c, broom_that_is_killed_takes_the_work_along);
	tcase_add_test(c, broom_kills_who_has_left_its_group_before_it_returns);
	tcase_add_test(c, starting_what_does_not_exist_says_so);
	tcase_add_test(c, supervisor_sees_who_ended_first_and_how);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
