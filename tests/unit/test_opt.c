// SPDX-License-Identifier: Apache-2.0
/* Options: sources and their order, every refusal with its place, help. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rt/opt.h"

struct fields {
	const char *listen, *peer;
	struct opt_list rails;
	uint64_t engines, pool, rate;
	bool quiet;
};

#define F(m) offsetof(struct fields, m)
static const struct opt rows[] = {
	{ "listen", OPT_STR, F(listen), "0.0.0.0:7471", 0, 0, "HOST:PORT", "where to listen" },
	{ "peer", OPT_PEER, F(peer), NULL, 0, 0, "HOST:PORT", "whom to ask" },
	{ "rail", OPT_RAILS, F(rails), NULL, 0, 0, "ADDR[@RATE]", "a card to use" },
	{ "engines", OPT_U64, F(engines), "2", 1, 16, "N",
	  "data threads, each with a shard of the keys and a processor of its own near the card" },
	{ "pool", OPT_BYTES, F(pool), "64M", 1 << 20, 0, "BYTES", "memory for chunks" },
	{ "rate", OPT_BITRATE, F(rate), NULL, 0, 0, "BITS", "speed of the card" },
	{ "quiet", OPT_FLAG, F(quiet), NULL, 0, 0, NULL, "say less" },
};

static const struct opt_program program = {
	"tally-test", "A program that is not there.", "Examples:\n  tally-test --engines 3",
	rows, ARRAY_SIZE(rows),
};

static struct fields f;
static char *out_text, *err_text;

/* Runs the parser on the words, which end with NULL. */
static enum opt_outcome parse(const char *const *words)
{
	char *argv[40] = { (char *)"tally-test" };
	int argc = 1;
	size_t nout, nerr;
	FILE *out, *err;
	enum opt_outcome r;

	for (; *words; words++)
		argv[argc++] = (char *)*words;
	free(out_text);
	free(err_text);
	out = open_memstream(&out_text, &nout);
	err = open_memstream(&err_text, &nerr);
	memset(&f, 0, sizeof(f));
	r = opt_parse(&program, argc, argv, &f, out, err);
	fclose(out);
	fclose(err);
	return r;
}

#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL })

static char file[] = "/tmp/test_opt.XXXXXX";

static void write_file(const char *text)
{
	FILE *fp = fopen(file, "w");

	fputs(text, fp);
	fclose(fp);
}

#define ck_said(text, want) ck_assert_msg(strstr(text, want), "'%s' not in: %s", want, text)

START_TEST(defaults_hold_where_nothing_is_said)
{
	ck_assert_int_eq(PARSE(NULL), OPT_RUN);
	ck_assert_str_eq(f.listen, "0.0.0.0:7471");
	ck_assert_uint_eq(f.engines, 2);
	ck_assert_uint_eq(f.pool, 64 << 20);
	ck_assert_uint_eq(f.rails.n, 0);
	ck_assert(!f.quiet);
}
END_TEST

START_TEST(values_come_behind_a_blank_or_an_equals_sign)
{
	ck_assert_int_eq(PARSE("--listen", "[::1]:1", "--engines=16", "--rail", "10.0.0.1",
			       "--rail=10.0.0.2@25g", "--quiet", "--rate", "25gbit"), OPT_RUN);
	ck_assert_str_eq(f.listen, "[::1]:1");
	ck_assert_uint_eq(f.engines, 16);
	ck_assert_uint_eq(f.rails.n, 2);
	ck_assert_str_eq(f.rails.v[1], "10.0.0.2@25g");
	ck_assert(f.quiet);
	ck_assert_uint_eq(f.rate, UINT64_C(25000000000));
}
END_TEST

START_TEST(command_line_wins_over_the_file_wherever_it_stands)
{
	write_file("# a comment\n\n  engines = 4   # four\nlisten=h#1:2\nrail = a\nrail = b\n"
		   "quiet = yes\n");
	ck_assert_int_eq(PARSE("--engines", "5", "--rail", "c", "--config", file), OPT_RUN);
	ck_assert_uint_eq(f.engines, 5);
	ck_assert_str_eq(f.listen, "h#1:2");
	ck_assert(f.quiet);
	ck_assert_uint_eq(f.rails.n, 1);
	ck_assert_str_eq(f.rails.v[0], "c");
	ck_assert_int_eq(PARSE("--config", file), OPT_RUN);
	ck_assert_uint_eq(f.engines, 4);
	ck_assert_uint_eq(f.rails.n, 2);
}
END_TEST

START_TEST(unknown_option_is_refused_with_the_nearest)
{
	ck_assert_int_eq(PARSE("--lisen", "x"), OPT_EXIT_USAGE);
	ck_said(err_text, "tally-test: unknown option --lisen (did you mean --listen?)");
	ck_assert_int_eq(PARSE("--eng=1"), OPT_EXIT_USAGE);
	ck_said(err_text, "did you mean --engines?");
	ck_assert_int_eq(PARSE("--show-confg"), OPT_EXIT_USAGE);
	ck_said(err_text, "did you mean --show-config?");
	ck_assert_int_eq(PARSE("--zzzzzzzz"), OPT_EXIT_USAGE);
	ck_said(err_text, "--help lists them");
	ck_assert_int_eq(PARSE("word"), OPT_EXIT_USAGE);
	ck_said(err_text, "unexpected argument 'word'");
	ck_assert_int_eq(PARSE("--"), OPT_EXIT_USAGE);
	ck_assert_int_eq(PARSE("-x"), OPT_EXIT_USAGE);
}
END_TEST

START_TEST(bad_value_is_refused_with_its_range)
{
	static const char *const bad[][2] = {
		{ "--engines", "0" }, { "--engines", "17" }, { "--engines", "2x" },
		{ "--engines", "" }, { "--engines", "-1" }, { "--pool", "1K" },
		{ "--pool", "many" }, { "--rate", "fast" },
		{ "--peer", "" }, { "--peer", "h:65536" }, { "--rail", "10.0.0.1@x" },
		{ "--peer", "h:1@5gbit" }, { "--peer", ":1" }, { "--rail", "10.0.0.1:99" },
		{ "--rail", "[::]" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(PARSE(bad[i][0], bad[i][1]), OPT_EXIT_USAGE);
		ck_said(err_text, bad[i][0]);
		ck_assert_str_eq(out_text, "");
	}
	ck_assert_int_eq(PARSE("--pool", "1K"), OPT_EXIT_USAGE);
	ck_said(err_text, "--pool '1K': 1K is out of range; from 1 MiB to");	/* as --help does */
	ck_assert_int_eq(PARSE("--engines"), OPT_EXIT_USAGE);
	ck_said(err_text, "--engines needs a value: --engines N");
	ck_assert_int_eq(PARSE("--quiet=maybe"), OPT_EXIT_USAGE);
	ck_said(err_text, "must be yes or no");
}
END_TEST

START_TEST(list_is_bounded)
{
	const char *words[2 * OPT_LIST_MAX + 3] = { 0 };

	for (uint32_t i = 0; i < OPT_LIST_MAX; i++) {
		words[2 * i] = "--rail";
		words[2 * i + 1] = "x";
	}
	ck_assert_int_eq(parse(words), OPT_RUN);
	ck_assert_uint_eq(f.rails.n, OPT_LIST_MAX);
	words[2 * OPT_LIST_MAX] = "--rail=y";
	ck_assert_int_eq(parse(words), OPT_EXIT_USAGE);
	ck_said(err_text, "more than 16 times");
}
END_TEST

START_TEST(file_errors_name_file_and_line)
{
	char want[80];
	static const struct {
		const char *text, *want;
		int line;
	} cases[] = {
		{ "engines = 2\n\nlisten = a\nlisen = b\n",
		  "unknown option lisen (did you mean listen?)", 4 },
		{ "engines 2\n", "not of the form name = value", 1 },
		{ "#\nengines = 99\n", "engines '99'", 2 },
		{ "[section]\n", "not of the form", 1 },
		{ "engines = 2\nengines = 3\n", "given twice", 2 },
		{ "quiet\n", "not of the form", 1 },
		{ "config = x\n", "unknown option config", 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		write_file(cases[i].text);
		ck_assert_int_eq(PARSE("--config", file), OPT_EXIT_USAGE);
		snprintf(want, sizeof(want), "tally-test: %s:%d: ", file, cases[i].line);
		ck_said(err_text, want);
		ck_said(err_text, cases[i].want);
	}
	ck_assert_int_eq(PARSE("--config", "/nonexistent/x"), OPT_EXIT_USAGE);
	ck_said(err_text, "cannot read /nonexistent/x: No such file");
}
END_TEST

START_TEST(last_of_an_option_on_the_command_line_counts_but_only_one_file_is_read)
{
	write_file("engines = 4\n");
	ck_assert_int_eq(PARSE("--engines", "5", "--engines", "6", "--config", file), OPT_RUN);
	ck_assert_uint_eq(f.engines, 6);
	ck_assert_int_eq(PARSE("--config", file, "--engines", "5", "--config", file),
			 OPT_EXIT_USAGE);
	ck_said(err_text, "--config is given twice: put all into one file");
}
END_TEST

START_TEST(line_too_long_is_refused_and_a_last_line_without_newline_is_read)
{
	char *text = malloc(10000);

	memset(text, 'x', 9999);
	text[9999] = '\0';
	write_file(text);
	free(text);
	ck_assert_int_eq(PARSE("--config", file), OPT_EXIT_USAGE);
	ck_said(err_text, ":1: longer than");
	write_file("engines = 7");
	ck_assert_int_eq(PARSE("--config", file), OPT_RUN);
	ck_assert_uint_eq(f.engines, 7);
}
END_TEST

/* As after a power loss: all that follows would be at its default. */
START_TEST(file_with_bytes_of_0_is_refused)
{
	FILE *to = fopen(file, "w");

	ck_assert_ptr_nonnull(to);
	ck_assert_uint_eq(fwrite("engines = 7\n\0\0\0", 1, 15, to), 15);
	ck_assert_int_eq(fclose(to), 0);
	ck_assert_int_eq(PARSE("--config", file), OPT_EXIT_USAGE);
	ck_said(err_text, ":2: a byte of 0");
	to = fopen(file, "w");
	ck_assert_ptr_nonnull(to);
	ck_assert_uint_eq(fwrite("engines = 7\0\n", 1, 13, to), 13);
	ck_assert_int_eq(fclose(to), 0);
	ck_assert_int_eq(PARSE("--config", file), OPT_EXIT_USAGE);
	ck_said(err_text, ":1: a byte of 0");
}
END_TEST

START_TEST(help_shows_every_row_with_default_and_range_within_80_columns)
{
	ck_assert_int_eq(PARSE("--help"), OPT_EXIT_OK);
	ck_said(out_text, "Usage: tally-test");
	ck_said(out_text, "default 0.0.0.0:7471");
	ck_said(out_text, "default 2; 1 to 16");
	ck_said(out_text, "may be repeated");
	ck_said(out_text, "--show-config");
	ck_said(out_text, "tally-test --engines 3\n");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		ck_said(out_text, rows[i].name);
	for (const char *l = out_text; *l; l += strcspn(l, "\n") + 1)
		ck_assert_uint_le(strcspn(l, "\n"), 80);
	ck_assert_int_eq(PARSE("-h"), OPT_EXIT_OK);
	ck_assert_int_eq(PARSE("--version"), OPT_EXIT_OK);
	ck_said(out_text, "tally-test ");
}
END_TEST

START_TEST(shown_configuration_reads_back_the_same)
{
	struct fields before;

	ck_assert_int_eq(PARSE("--rail", "a", "--rail", "b", "--pool", "3M", "--rate", "10g",
			       "--quiet", "--show-config"), OPT_EXIT_OK);
	before = f;
	write_file(out_text);
	ck_assert_int_eq(PARSE("--config", file), OPT_RUN);
	ck_assert_str_eq(f.listen, before.listen);
	ck_assert_uint_eq(f.pool, before.pool);
	ck_assert_uint_eq(f.rate, before.rate);
	ck_assert_uint_eq(f.rails.n, before.rails.n);
	ck_assert_str_eq(f.rails.v[1], before.rails.v[1]);
	ck_assert(f.quiet);

	ck_assert_int_eq(PARSE("--show-config"), OPT_EXIT_OK);
	ck_said(out_text, "# rate =\n");	/* a number that nobody gave */
	write_file(out_text);
	ck_assert_int_eq(PARSE("--config", file), OPT_RUN);
	ck_assert_uint_eq(f.rate, 0);
}
END_TEST

START_TEST(check_leaves_the_last_word_to_the_program)
{
	ck_assert_int_eq(PARSE("--check", "--engines", "3"), OPT_CHECK);
	ck_assert_int_eq(PARSE("--check", "--engines", "0"), OPT_EXIT_USAGE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("opt");
	TCase *c = tcase_create("opt");
	SRunner *r = srunner_create(s);
	int failed, fd = mkstemp(file);

	if (fd < 0)
		return EXIT_FAILURE;
	close(fd);
	tcase_add_test(c, defaults_hold_where_nothing_is_said);
	tcase_add_test(c, values_come_behind_a_blank_or_an_equals_sign);
	tcase_add_test(c, command_line_wins_over_the_file_wherever_it_stands);
	tcase_add_test(c, unknown_option_is_refused_with_the_nearest);
	tcase_add_test(c, bad_value_is_refused_with_its_range);
	tcase_add_test(c, list_is_bounded);
	tcase_add_test(c, file_errors_name_file_and_line);
	tcase_add_test(c, last_of_an_option_on_the_command_line_counts_but_only_one_file_is_read);
	tcase_add_test(c, line_too_long_is_refused_and_a_last_line_without_newline_is_read);
	tcase_add_test(c, help_shows_every_row_with_default_and_range_within_80_columns);
	tcase_add_test(c, shown_configuration_reads_back_the_same);
	tcase_add_test(c, file_with_bytes_of_0_is_refused);
	tcase_add_test(c, check_leaves_the_last_word_to_the_program);
	suite_add_tcase(s, c);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	free(out_text);
	free(err_text);
	unlink(file);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
