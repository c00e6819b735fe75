/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_model.h - the jobs of place_job.h, with a real network's tensors (the
 * lists in tests/data) on a planned cluster.
 */
#ifndef TALLY_TESTS_PLACE_MODEL_H
#define TALLY_TESTS_PLACE_MODEL_H

#include <stdio.h>
#include <stdlib.h>

#include "common/base/dtype.h"
#include "tests/unit/place_job.h"

#define RATE		UINT64_C(100000000000)

static inline uint64_t dims_product(char *dims)
{
	uint64_t product = 1;
	char *save = NULL;

	for (char *d = strtok_r(dims, "x", &save); d; d = strtok_r(NULL, "x", &save))
		product *= strtoull(d, NULL, 10);
	return product;
}

static inline void load_model(struct job *j, const char *model)
{
	char path[256], name[256], dtype[32], dims[128];
	FILE *f;

	snprintf(path, sizeof(path), "tests/data/%s.txt", model);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s: run from the top of the tree", path);
	while (fscanf(f, "%255s %31s %127s", name, dtype, dims) == 3) {
		uint32_t size = dtype_bytes((uint8_t)dtype_from_name(dtype));

		ck_assert_msg(size > 0, "%s: %s has no type", path, name);
		add_tensor(j, size * dims_product(dims));
	}
	ck_assert(feof(f));
	fclose(f);
}

static inline double model_bytes(const struct job *j)
{
	double sum = 0;

	for (uint32_t i = 0; i < j->tensors; i++)
		sum += (double)j->t[i].bytes;
	return sum;
}

static inline void set_cluster(struct job *j, uint32_t n, uint32_t k)
{
	for (uint32_t i = 0; i < n + k; i++)
		j->m[i] = (struct plan_machine){ .bits_per_s = RATE, .is_gpu = i < n,
						 .has_server = true };
	j->machines = n + k;
}

static inline void make_plan(struct job *j)
{
	static double share[SERVERS_PER_JOB_MAX];

	ck_assert_int_eq(plan_solve(j->m, j->machines, model_bytes(j), share, &j->plan, NULL), 0);
	plan_weights(share, j->machines, j->weight);
}

/* With the chunk that such a job has. */
static inline void setup(struct job *j, const char *model, uint32_t n, uint32_t k)
{
	struct place_sizes sizes;

	place_sizes(&sizes, 0, n + k, RATE, RATE);
	job_init(j, sizes.chunk_bytes);
	load_model(j, model);
	set_cluster(j, n, k);
	make_plan(j);
	start(j, n + k);
}

#endif
