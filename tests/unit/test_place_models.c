// SPDX-License-Identifier: Apache-2.0
/*
 * The map on the tensors of real networks: how far from the planner's ideal time
 * it ends, and how many bytes move when servers die, come, drain or slow down.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/models.h"
#include "tests/unit/place_model.h"

static struct job job;

static const char *const models[] = { "resnet50", "vgg16", "bert-large", "gpt2" };

static const struct { uint32_t n, k; } sizes[] = {
	{ 4, 2 }, { 8, 0 }, { 8, 4 }, { 8, 8 }, { 16, 8 }, { 32, 16 }, { 32, 32 },
};

static void place_one_by_one(struct job *j)
{
	for (uint32_t i = 0; i < j->tensors; i++)
		place_batch(&j->p, &j->t[i], 1);
}

/* The round time of the map as it is, over the ideal of the current plan. */
static double time_ratio(const struct job *j)
{
	static double bytes[SERVERS_PER_JOB_MAX];

	count_bytes(j, bytes);
	return plan_time_of(j->m, j->machines, model_bytes(j), bytes) / j->plan.round_time_s;
}

/* What one chunk more than its share costs a machine. */
static double one_chunk_ratio(const struct job *j)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < j->machines; i++)
		n += j->m[i].is_gpu;
	return 1 + n * (double)j->p.chunk_bytes * 8 / (double)RATE / j->plan.round_time_s;
}

/* The sizes that the CLI knows by name are those of the lists. */
START_TEST(models_by_name_have_their_lists_size)
{
	static const struct { const char *name; uint64_t parameters; } known[] = {
#define X(name, parameters) { name, parameters },
		MODEL_TABLE(X)
#undef X
	};
	static const char *const lists[] = { "resnet50", "vgg16", "bert-base", "bert-large",
					     "gpt2" };
	uint32_t compared = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		job_init(&job, CHUNK);
		load_model(&job, lists[i]);
		for (size_t k = 0; k < ARRAY_SIZE(known); k++) {
			if (strcmp(known[k].name, lists[i]))
				continue;
			ck_assert_double_eq(model_bytes(&job), (double)known[k].parameters *
					    MODEL_BYTES_PER_PARAMETER);
			compared++;
		}
	}
	ck_assert_uint_eq(compared, ARRAY_SIZE(lists));
}
END_TEST

START_TEST(place_real_models_in_one_batch_within_3_percent)
{
	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		printf("place: %-10s over ideal, one batch:", models[i]);
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
			double ratio;

			setup(&job, models[i], sizes[s].n, sizes[s].k);
			place_batch(&job.p, job.t, job.tensors);
			check_map(&job);
			ratio = time_ratio(&job);
			printf(" (%u,%u) %.2f %%", sizes[s].n, sizes[s].k, 100 * ratio - 100);
			ck_assert_msg(ratio <= fmax(1.03, one_chunk_ratio(&job)),
				      "%s at (%u,%u): %.4f, one chunk %.4f", models[i],
				      sizes[s].n, sizes[s].k, ratio, one_chunk_ratio(&job));
		}
		printf("\n");
	}
}
END_TEST

START_TEST(place_real_models_one_by_one_within_20_percent)
{
	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		printf("place: %-10s over ideal, one by one:", models[i]);
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
			double ratio;

			setup(&job, models[i], sizes[s].n, sizes[s].k);
			place_one_by_one(&job);
			check_map(&job);
			ratio = time_ratio(&job);
			printf(" (%u,%u) %.2f %%", sizes[s].n, sizes[s].k, 100 * ratio - 100);
			ck_assert_msg(ratio <= 1.20, "%s at (%u,%u): %.4f", models[i],
				      sizes[s].n, sizes[s].k, ratio);
		}
		printf("\n");
	}
}
END_TEST

/* ---- repair ---- */

/* The server of machine `dead` dies; the others keep every chunk they have.  Bytes that move. */
static double check_repair(const char *model, uint32_t n, uint32_t k, uint32_t dead)
{
	static uint16_t before[OWNERS];
	bool alive[SERVERS_PER_JOB_MAX];
	uint64_t lost, moved;
	double ratio;

	setup(&job, model, n, k);
	place_batch(&job.p, job.t, job.tensors);
	lost = job.p.server[dead].assigned_bytes;
	memcpy(before, job.owner, job.owners * sizeof(before[0]));

	for (uint32_t i = 0; i < n + k; i++)
		alive[i] = i != dead;
	job.m[dead].has_server = false;
	make_plan(&job);
	moved = place_repair(&job.p, job.weight, alive, job.p.nservers, job.t, job.tensors);
	check_map(&job);
	ck_assert_uint_eq(moved, lost);
	for (uint32_t i = 0; i < job.owners; i++)
		if (before[i] != dead && job.owner[i] != before[i])
			ck_abort_msg("chunk %u moved without need", i);
	ratio = time_ratio(&job);
	printf("place: %-10s (%u,%u) lost %s server: %5.1f MB moved of %.0f, %.2f %% over the "
	       "new ideal\n", model, n, k, dead < n ? "a colocated" : "a CPU",
	       (double)moved / 1e6, model_bytes(&job) / 1e6, 100 * ratio - 100);
	ck_assert_msg(ratio <= fmax(1.03, one_chunk_ratio(&job)), "%.4f", ratio);
	return (double)moved;
}

START_TEST(place_repair_moves_lost_chunks_only_and_stays_near_optimum)
{
	for (size_t i = 0; i < ARRAY_SIZE(models); i++)
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
			if (sizes[s].k > 0)
				check_repair(models[i], sizes[s].n, sizes[s].k, sizes[s].n);
			if (sizes[s].k < sizes[s].n)
				check_repair(models[i], sizes[s].n, sizes[s].k, 1);
		}
}
END_TEST

/* ---- rebalance ---- */

static double necessary_bytes(const struct job *j, uint32_t servers)
{
	double sum = 0, weights = 0;

	for (uint32_t i = 0; i < servers; i++)
		weights += j->weight[i];
	for (uint32_t i = 0; i < j->p.nservers; i++)
		sum += fmax(0, (double)j->p.server[i].assigned_bytes -
				       (double)j->p.total_bytes * j->weight[i] / weights);
	return sum;
}

/* To the plan of job.m as it is now.  The bytes that move. */
static double check_rebalance(const char *what)
{
	double needed, ratio;
	uint64_t moved;

	make_plan(&job);
	needed = necessary_bytes(&job, job.machines);
	moved = place_rebalance(&job.p, job.weight, job.machines, job.t, job.tensors);
	check_map(&job);
	ratio = time_ratio(&job);
	printf("place: %s: %.1f MB moved, %.1f MB necessary, %.2f %% over the new ideal\n", what,
	       (double)moved / 1e6, needed / 1e6, 100 * ratio - 100);
	ck_assert_double_le((double)moved, needed);
	ck_assert_double_ge((double)moved, needed - (double)job.machines * job.p.chunk_bytes);
	ck_assert_msg(ratio <= fmax(1.03, one_chunk_ratio(&job)), "%.4f", ratio);
	check_balance(&job, job.p.chunk_bytes);
	return (double)moved;
}

/* The runner shows it. */
START_TEST(bytes_that_move_are_said)
{
	double repair = check_repair("bert-large", 8, 4, 8), more, drained;

	setup(&job, "bert-large", 8, 4);
	place_batch(&job.p, job.t, job.tensors);
	job.m[job.machines++] = job.m[8];
	more = check_rebalance("one more");
	job.m[9].has_server = false;
	drained = check_rebalance("one drained");
	printf("note: bert-large, (8,4): of %.0f MB a CPU server's loss moves %.0f, one more %.0f, "
	       "then one drained %.0f\n", model_bytes(&job) / 1e6, repair / 1e6, more / 1e6,
	       drained / 1e6);
}
END_TEST

START_TEST(place_rebalance_moves_near_the_minimum)
{
	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		char what[128];

		setup(&job, models[i], 8, 4);
		place_batch(&job.p, job.t, job.tensors);

		job.m[job.machines++] = job.m[8];
		snprintf(what, sizeof(what), "%-10s (8,4) + 1 CPU machine", models[i]);
		check_rebalance(what);

		job.m[9].has_server = false;
		snprintf(what, sizeof(what), "%-10s (8,5) one CPU machine drained", models[i]);
		check_rebalance(what);
		ck_assert_uint_eq(job.p.server[9].assigned_bytes, 0);

		job.m[10].bits_per_s /= 2;
		snprintf(what, sizeof(what), "%-10s (8,4) one CPU card at half rate", models[i]);
		check_rebalance(what);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("place models");
	TCase *tc = tcase_create("place models");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, models_by_name_have_their_lists_size);
	tcase_add_test(tc, place_real_models_in_one_batch_within_3_percent);
	tcase_add_test(tc, place_real_models_one_by_one_within_20_percent);
	tcase_add_test(tc, place_repair_moves_lost_chunks_only_and_stays_near_optimum);
	tcase_add_test(tc, place_rebalance_moves_near_the_minimum);
	tcase_add_test(tc, bytes_that_move_are_said);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
