// SPDX-License-Identifier: Apache-2.0
/*
 * Who this process is, from options and from the launchers' variables.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "client/env.h"

static struct lt_ident id;
static struct err e;

static void clean_environment(void)
{
	static const char *const all[] = {
		"TALLY_RANK", "TALLY_WORLD_SIZE", "TALLY_LOCAL_RANK", "TALLY_JOB",
		"TALLY_SOCKET", "TALLY_TIMEOUT_MS", "TALLY_ROUND_TIMEOUT_MS", "RANK",
		"WORLD_SIZE", "LOCAL_RANK",
		"TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
		"SLURM_NPROCS", "SLURM_LOCALID",
		"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID", "OMPI_COMM_WORLD_RANK",
		"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_MCA_ess_base_jobid",
		"PMIX_NAMESPACE", "TALLY_TIMELINE", "MASTER_ADDR", "MASTER_PORT",
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		unsetenv(all[i]);
}

static void set(const char *name, const char *value)
{
	ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void expect(uint32_t rank, uint32_t world, int local, const char *job)
{
	ck_assert_msg(lt_ident_fill(&id, NULL, &e) == 0, "%s", e.text);
	ck_assert_uint_eq(id.rank, rank);
	ck_assert_uint_eq(id.world, world);
	ck_assert_int_eq(id.local_rank, local);
	ck_assert_str_eq(id.job, job);
}

/* The error names the variable that is to blame. */
static void expect_refusal(const char *names)
{
	ck_assert_int_eq(lt_ident_fill(&id, NULL, &e), TALLY_EINVAL);
	ck_assert_ptr_nonnull(strstr(e.text, names));
}

START_TEST(env_empty_is_one_rank_of_the_default_job)
{
	expect(0, 1, -1, "default");
	ck_assert_str_eq(id.socket, LT_SOCKET_DEFAULT);
	ck_assert_uint_eq(id.timeout_ms, ATTACH_TIMEOUT_MS);
	ck_assert_uint_eq(id.round_timeout_ms, WAIT_TIMEOUT_MS);
}
END_TEST

START_TEST(env_every_launcher_is_understood)
{
	set("SLURM_PROCID", "5");
	set("SLURM_NTASKS", "8");
	expect(5, 8, -1, "default");
	set("SLURM_LOCALID", "1");
	set("SLURM_JOB_ID", "77");
	expect(5, 8, 1, "slurm-77");
	set("SLURM_STEP_ID", "2");
	expect(5, 8, 1, "slurm-77.2");
	ck_assert_int_eq(unsetenv("SLURM_NTASKS"), 0);
	set("SLURM_NPROCS", "16");		/* its older name */
	expect(5, 16, 1, "slurm-77.2");
	set("SLURM_STEP_NUM_TASKS", "8");
	expect(5, 8, 1, "slurm-77.2");
	set("OMPI_COMM_WORLD_RANK", "3");
	set("OMPI_COMM_WORLD_SIZE", "4");
	set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
	set("PMIX_NAMESPACE", "prterun-a-1@1");
	expect(3, 4, 0, "openmpi-prterun-a-1@1");
	set("OMPI_MCA_ess_base_jobid", "99");
	expect(3, 4, 0, "openmpi-99");
	set("RANK", "1");
	set("WORLD_SIZE", "2");
	set("LOCAL_RANK", "1");
	set("TORCHELASTIC_RUN_ID", "abc");
	expect(1, 2, 1, "torchrun-abc");
	set("TALLY_RANK", "0");
	set("TALLY_WORLD_SIZE", "16");
	expect(0, 16, -1, "default");
	set("TALLY_LOCAL_RANK", "0");
	set("TALLY_JOB", "mine");
	expect(0, 16, 0, "mine");
}
END_TEST

START_TEST(env_torchrun_jobs_without_an_id_have_names_of_their_own)
{
	set("RANK", "1");
	set("WORLD_SIZE", "2");
	set("TORCHELASTIC_RUN_ID", "none");
	expect(1, 2, -1, "default");
	set("MASTER_ADDR", "node-7");
	set("MASTER_PORT", "29500");
	expect(1, 2, -1, "torchrun-node-7:29500");
	set("MASTER_PORT", "29501");
	expect(1, 2, -1, "torchrun-node-7:29501");
	set("TORCHELASTIC_RUN_ID", "nonesuch");
	expect(1, 2, -1, "torchrun-nonesuch");
	unsetenv("TORCHELASTIC_RUN_ID");	/* by hand: addresses may differ by machine */
	expect(1, 2, -1, "default");
}
END_TEST

START_TEST(env_half_a_family_is_refused)
{
	static const char *const pairs[][2] = {
		{ "TALLY_RANK", "TALLY_WORLD_SIZE" }, { "RANK", "WORLD_SIZE" },
		{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
		{ "SLURM_PROCID", "SLURM_NTASKS" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		for (int half = 0; half < 2; half++) {
			clean_environment();
			set(pairs[i][half], "1");
			expect_refusal(pairs[i][!half]);
			expect_refusal("set TALLY_RANK and TALLY_WORLD_SIZE");
			expect_refusal(i == 3 ? "start it with srun" : "set both");
		}
	}
}
END_TEST

START_TEST(env_numbers_too_large_for_anything_are_out_of_range)
{
	set("TALLY_WORLD_SIZE", "2");
	set("TALLY_RANK", "99999999999999999999");
	expect_refusal("TALLY_RANK: 99999999999999999999 is out of range");
	set("TALLY_RANK", "99999999999999999999.5");
	expect_refusal("is no whole number");
}
END_TEST

START_TEST(env_a_broken_family_hides_no_good_one)
{
	set("SLURM_PROCID", "0");
	set("SLURM_NTASKS", "1");
	set("RANK", "0");
	expect_refusal("WORLD_SIZE");
}
END_TEST

START_TEST(env_malformed_numbers_are_refused)
{
	static const char *const bad[] = { "x", "-1", "1x", "99999999999999999999", "0x1", " ",
					   "1.0" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		clean_environment();
		set("RANK", "0");
		set("WORLD_SIZE", bad[i]);
		expect_refusal("WORLD_SIZE");
		set("WORLD_SIZE", "2");
		set("RANK", bad[i]);
		expect_refusal("RANK");
		set("RANK", "0");
		set("LOCAL_RANK", bad[i]);
		expect_refusal("LOCAL_RANK");
	}
}
END_TEST

START_TEST(env_numbers_that_contradict_each_other_are_refused)
{
	set("TALLY_RANK", "4");
	set("TALLY_WORLD_SIZE", "4");
	expect_refusal("TALLY_RANK");
	set("TALLY_WORLD_SIZE", "0");
	expect_refusal("TALLY_WORLD_SIZE");
	set("TALLY_WORLD_SIZE", "16385");
	expect_refusal("TALLY_WORLD_SIZE");
	set("TALLY_WORLD_SIZE", "8");
	set("TALLY_LOCAL_RANK", "8");
	expect_refusal("TALLY_LOCAL_RANK");
	set("TALLY_LOCAL_RANK", "4");
	expect(4, 8, 4, "default");
}
END_TEST

START_TEST(env_empty_variables_are_not_set)
{
	set("TALLY_RANK", "");
	set("TALLY_WORLD_SIZE", "");
	set("TALLY_JOB", "");
	set("TALLY_SOCKET", "");
	set("RANK", "1");
	set("WORLD_SIZE", "2");
	expect(1, 2, -1, "default");
	ck_assert_str_eq(id.socket, LT_SOCKET_DEFAULT);
}
END_TEST

static void expect_timeline(const char *value, const char *path)
{
	set("TALLY_TIMELINE", value);
	ck_assert_msg(lt_ident_fill(&id, NULL, &e) == 0, "%s", e.text);
	ck_assert_str_eq(id.timeline, path);
}

START_TEST(env_every_rank_has_a_timeline_of_its_own)
{
	char name[2 * LT_PATH_MAX];

	expect_timeline("", "");
	expect_timeline("/t/x.json", "/t/x.json");
	set("TALLY_RANK", "12");
	set("TALLY_WORLD_SIZE", "16");
	expect_timeline("/t/x.json", "/t/x.json.12");
	expect_timeline("/t/%r%%%r.json", "/t/12%12.json");
	set("TALLY_TIMELINE", "/t/%p");
	expect_refusal("TALLY_TIMELINE: %r is the rank");
	set("TALLY_TIMELINE", "/t/%");
	expect_refusal("TALLY_TIMELINE");
	for (size_t len = LT_PATH_MAX - 4; len < sizeof(name); len++) {
		memset(name, 'x', len);
		name[len] = '\0';
		set("TALLY_TIMELINE", name);
		if (len + 3 <= LT_PATH_MAX)
			ck_assert_int_eq(lt_ident_fill(&id, NULL, &e), 0);
		else
			expect_refusal("TALLY_TIMELINE is longer");
		memcpy(name + len - 2, "%r", 2);
		set("TALLY_TIMELINE", name);
		if (len <= LT_PATH_MAX)
			ck_assert_int_eq(lt_ident_fill(&id, NULL, &e), 0);
		else
			expect_refusal("TALLY_TIMELINE is longer");
	}
}
END_TEST

START_TEST(options_go_before_the_environment)
{
	tally_options opt = {
		.socket = "/tmp/s", .job = "other", .rank = 2, .world = 3, .local_rank = 1,
		.timeout_ms = 1234, .chunk_bytes = CHUNK_BYTES_MIN,
		.on_loss = TALLY_ON_LOSS_SHRINK, .round_timeout_ms = 5678,
	};

	set("TALLY_RANK", "nonsense");
	set("TALLY_JOB", "mine");
	set("TALLY_SOCKET", "/tmp/t");
	set("TALLY_TIMEOUT_MS", "99");
	set("TALLY_ROUND_TIMEOUT_MS", "77");
	ck_assert_int_eq(lt_ident_fill(&id, &opt, &e), 0);
	ck_assert_uint_eq(id.rank, 2);
	ck_assert_uint_eq(id.world, 3);
	ck_assert_int_eq(id.local_rank, 1);
	ck_assert_uint_eq(id.timeout_ms, 1234);
	ck_assert_uint_eq(id.round_timeout_ms, 5678);
	ck_assert_uint_eq(id.chunk_bytes, CHUNK_BYTES_MIN);
	ck_assert_uint_eq(id.on_loss, TALLY_ON_LOSS_SHRINK);
	ck_assert_str_eq(id.job, "other");
	ck_assert_str_eq(id.socket, "/tmp/s");
	opt.local_rank = 0;		/* numbers of the caller's own: the launcher's do not fit */
	set("TALLY_LOCAL_RANK", "7");
	ck_assert_int_eq(lt_ident_fill(&id, &opt, &e), 0);
	ck_assert_int_eq(id.local_rank, -1);
	unsetenv("TALLY_RANK");
	expect(0, 1, -1, "mine");
	ck_assert_str_eq(id.socket, "/tmp/t");
	ck_assert_uint_eq(id.timeout_ms, 99);
	ck_assert_uint_eq(id.round_timeout_ms, 77);
}
END_TEST

START_TEST(options_out_of_range_are_refused)
{
	char name[300];
	const tally_options bad[] = {
		{ .world = -1 }, { .world = 16385 }, { .world = 2, .rank = 2 },
		{ .world = 2, .rank = -1 }, { .local_rank = 1 }, { .local_rank = -2 },
		{ .world = 2, .local_rank = 2 }, { .timeout_ms = -1 }, { .round_timeout_ms = -1 },
		{ .chunk_bytes = 1 },
		{ .chunk_bytes = CHUNK_BYTES_MIN + PAGE_BYTES }, { .chunk_bytes = PAGE_BYTES },
		{ .chunk_bytes = CHUNK_BYTES_MAX + CHUNK_BYTES_MIN },
		{ .on_loss = 2 }, { .on_loss = -1 }, { .job = name }, { .socket = name },
	};

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(lt_ident_fill(&id, &bad[i], &e), TALLY_EINVAL);
}
END_TEST

/* Those that the scheduler takes, no others, and the error says which they are. */
START_TEST(options_take_chunks_in_steps_of_the_smallest)
{
	tally_options opt = { .chunk_bytes = CHUNK_BYTES_MIN };

	for (; opt.chunk_bytes <= CHUNK_BYTES_MAX; opt.chunk_bytes += CHUNK_BYTES_MIN) {
		ck_assert_int_eq(lt_ident_fill(&id, &opt, &e), 0);
		ck_assert_uint_eq(id.chunk_bytes, opt.chunk_bytes);
	}
	opt.chunk_bytes = CHUNK_BYTES_MIN + PAGE_BYTES;
	ck_assert_int_eq(lt_ident_fill(&id, &opt, &e), TALLY_EINVAL);
	ck_assert_str_eq(e.text, "chunk_bytes 20480; multiples of 16384 up to 4194304 are "
			 "possible");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client_env");
	TCase *tc = tcase_create("all");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(tc, clean_environment, clean_environment);
	tcase_add_test(tc, env_empty_is_one_rank_of_the_default_job);
	tcase_add_test(tc, env_every_launcher_is_understood);
	tcase_add_test(tc, env_torchrun_jobs_without_an_id_have_names_of_their_own);
	tcase_add_test(tc, env_half_a_family_is_refused);
	tcase_add_test(tc, env_numbers_too_large_for_anything_are_out_of_range);
	tcase_add_test(tc, env_a_broken_family_hides_no_good_one);
	tcase_add_test(tc, env_malformed_numbers_are_refused);
	tcase_add_test(tc, env_numbers_that_contradict_each_other_are_refused);
	tcase_add_test(tc, env_empty_variables_are_not_set);
	tcase_add_test(tc, env_every_rank_has_a_timeline_of_its_own);
	tcase_add_test(tc, options_go_before_the_environment);
	tcase_add_test(tc, options_out_of_range_are_refused);
	tcase_add_test(tc, options_take_chunks_in_steps_of_the_smallest);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
