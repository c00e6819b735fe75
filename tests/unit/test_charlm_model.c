// SPDX-License-Identifier: Apache-2.0
/*
 * The example's arithmetic: gradients against finite differences, matrix
 * products against three loops, and the same bits for the same inputs.
 */
#include "examples/charlm/gemm.h"
#include "examples/charlm/model.h"
#include "examples/charlm/text.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct model_shape small = {
	.context = 3, .embed = 5, .hidden1 = 37, .hidden2 = 33, .batch = 6,
};

static const uint8_t *const windows[] = {
	(const uint8_t *)"abcd", (const uint8_t *)"bcda", (const uint8_t *)"aaaa",
	(const uint8_t *)"zyxa", (const uint8_t *)"\377\200\001", (const uint8_t *)"dcba",
};
#define WINDOWS 6u

static void model_with_gradients(struct model *m, uint64_t seed)
{
	ck_assert_int_eq(model_new(m, &small), 0);
	for (int p = 0; p < MODEL_PARAMS; p++)
		m->grad[p] = calloc(model_count(&small, (enum model_param)p), sizeof(float));
	model_randomize(m, seed);
}

static void model_drop(struct model *m)
{
	for (int p = 0; p < MODEL_PARAMS; p++)
		free(m->grad[p]);
	model_free(m);
}

/* ---- gemm ---- */

static void check_gemm(size_t m, size_t n, size_t k, bool transpose_a, bool transpose_b, bool add)
{
	float *a = malloc(m * k * sizeof(*a)), *b = malloc(k * n * sizeof(*b));
	float *c = malloc(m * n * sizeof(*c)), *want = malloc(m * n * sizeof(*want));
	struct view va = transpose_a ? view_transposed(a, m) : view_rows(a, k);
	struct view vb = transpose_b ? view_transposed(b, k) : view_rows(b, n);
	uint64_t random = m + n * 7 + k * 31;

	for (size_t i = 0; i < m * k; i++)
		a[i] = (float)(model_random(&random) >> 40) * 0x1p-23f - 1;
	for (size_t i = 0; i < k * n; i++)
		b[i] = (float)(model_random(&random) >> 40) * 0x1p-23f - 1;
	for (size_t i = 0; i < m * n; i++) {
		float sum = c[i] = (float)i;

		sum = add ? sum : 0;
		for (size_t p = 0; p < k; p++)
			sum += va.at[i / n * va.row + p * va.col] *
			       vb.at[p * vb.row + i % n * vb.col];
		want[i] = sum;
	}
	gemm(c, va, vb, m, n, k, add);
	for (size_t i = 0; i < m * n; i++)
		if (c[i] != want[i])
			ck_abort_msg("%zu x %zu x %zu, element %zu: %g, not %g", m, n, k, i,
				     (double)c[i], (double)want[i]);
	free(a);
	free(b);
	free(c);
	free(want);
}

START_TEST(gemm_equals_three_loops_bit_for_bit)
{
	static const size_t sizes[] = { 1, 3, 4, 5, 31, 32, 33, 64, 191, 192, 200 };

	for (size_t i = 0; i < 11; i++)
		for (size_t j = 0; j < 11; j++)
			for (size_t l = 0; l < 11; l += 2)
				check_gemm(sizes[i], sizes[j], sizes[l], (i + l) % 2,
					   (j + l / 2) % 2, i % 3 == 0);
}
END_TEST

/* ---- gradients ---- */

/* The loss with one parameter moved; in float, so the step cannot be tiny. */
static double loss_at(struct model *m, float *x, float value)
{
	float kept = *x;
	double loss;

	*x = value;
	loss = (double)model_forward(m, windows, WINDOWS, NULL);
	*x = kept;
	return loss;
}

/* Some parameters of each tensor: those with the largest gradients and others. */
static void check_gradients(struct model *m, enum model_param p)
{
	size_t n = model_count(&small, p), checked = 0;
	const float step = 2e-3f;	/* crosses few kinks of ReLU */

	for (size_t i = 0; i < n; i += 1 + n / 211) {
		float *x = &m->param[p][i];
		double up = loss_at(m, x, *x + step), down = loss_at(m, x, *x - step);
		double slope = (up - down) / (2 * (double)step), grad = (double)m->grad[p][i];

		if (fabs(slope - grad) > 1e-3 + 2e-2 * fabs(grad))
			ck_abort_msg("%s[%zu]: gradient %g, slope %g", model_param_name(p), i,
				     grad, slope);
		checked += fabs(grad) > 1e-3;
	}
	ck_assert_msg(checked > 0, "%s: no gradient to speak of", model_param_name(p));
}

START_TEST(gradients_are_the_slopes_of_the_loss)
{
	struct model m;

	model_with_gradients(&m, 3);
	for (size_t i = 0; i < model_count(&small, MODEL_W3); i++)
		m.param[MODEL_W3][i] *= 5;
	model_forward(&m, windows, WINDOWS, NULL);
	model_backward(&m, NULL);
	for (int p = 0; p < MODEL_PARAMS; p++)
		check_gradients(&m, (enum model_param)p);
	model_drop(&m);
}
END_TEST

/* ---- training ---- */

static float train(struct model *m, uint32_t steps)
{
	float loss = 0;

	for (uint32_t i = 1; i <= steps; i++) {
		loss = model_forward(m, windows, WINDOWS, NULL);
		model_backward(m, NULL);
		for (int p = 0; p < MODEL_PARAMS; p++)
			model_update(m, (enum model_param)p, m->grad[p], i, 0.005f);
	}
	return loss;
}

START_TEST(training_starts_at_chance_and_learns)
{
	struct model m;
	float first;

	model_with_gradients(&m, 1);
	first = model_forward(&m, windows, WINDOWS, NULL);
	ck_assert_msg(fabsf(first - logf(256)) < 0.3f, "first loss %g", (double)first);
	ck_assert_msg(train(&m, 60) < 0.05f * first, "did not learn six windows");
	model_drop(&m);
}
END_TEST

START_TEST(same_seed_gives_same_bits_and_another_seed_others)
{
	struct model a, b, c;

	model_with_gradients(&a, 1);
	model_with_gradients(&b, 1);
	model_with_gradients(&c, 2);
	ck_assert_uint_eq(model_hash(&a), model_hash(&b));
	ck_assert_uint_ne(model_hash(&a), model_hash(&c));
	train(&a, 10);
	ck_assert_uint_ne(model_hash(&a), model_hash(&b));
	train(&b, 10);
	ck_assert_uint_eq(model_hash(&a), model_hash(&b));
	model_drop(&a);
	model_drop(&b);
	model_drop(&c);
}
END_TEST

START_TEST(hash_sees_one_changed_bit_anywhere)
{
	struct model m;
	uint64_t before;

	model_with_gradients(&m, 1);
	before = model_hash(&m);
	for (int p = 0; p < MODEL_PARAMS; p++) {
		uint32_t *last = (uint32_t *)m.param[p] +
				 model_count(&small, (enum model_param)p) - 1;

		*last ^= 1u << 31;
		ck_assert_uint_ne(model_hash(&m), before);
		*last ^= 1u << 31;
	}
	ck_assert_uint_eq(model_hash(&m), before);
	model_drop(&m);
}
END_TEST

/* ---- hooks ---- */

static char calls[64];

static void on_need(void *ctx, enum model_param p)
{
	ck_assert_ptr_eq(ctx, calls);
	calls[strlen(calls)] = (char)('0' + p);
}

static void on_ready(void *ctx, enum model_param p)
{
	ck_assert_ptr_eq(ctx, calls);
	calls[strlen(calls)] = (char)('a' + p);
}

START_TEST(parameters_are_needed_first_to_last_and_gradients_ready_last_to_first)
{
	const struct model_hooks hooks = { on_need, on_ready, calls };
	struct model m;

	model_with_gradients(&m, 1);
	memset(calls, 0, sizeof(calls));
	model_forward(&m, windows, WINDOWS, &hooks);
	model_backward(&m, &hooks);
	ck_assert_str_eq(calls, "0123456gfedcba");
	model_drop(&m);
}
END_TEST

/* ---- text ---- */

static void check_load(const char *content, size_t len, int want)
{
	char path[] = "/tmp/charlm_text_XXXXXX", why[512] = "";
	struct text t = { 0 };
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, content, len), (ssize_t)len);
	close(fd);
	ck_assert_int_eq(text_load(&t, path, why, sizeof(why)), want);
	if (want == 0)
		ck_assert_mem_eq(t.data, content, len);
	else
		ck_assert_ptr_nonnull(strstr(why, path));
	text_free(&t);
	unlink(path);
}

START_TEST(text_too_short_or_missing_is_refused_by_name)
{
	static char content[TEXT_BYTES_MIN];
	struct text t;
	char why[512];

	check_load(content, sizeof(content), 0);
	check_load(content, sizeof(content) - 1, -1);
	check_load(content, 0, -1);
	ck_assert_int_eq(text_load(&t, "/nonexistent", why, sizeof(why)), -1);
	ck_assert_ptr_nonnull(strstr(why, "/nonexistent"));
	ck_assert_int_eq(text_load(&t, "/tmp", why, sizeof(why)), -1);
}
END_TEST

START_TEST(ranks_shares_are_disjoint_and_cover_the_text)
{
	uint8_t data[64], owner[64];
	struct text t = { data, sizeof(data) };
	const uint8_t *w[512];

	memset(owner, 0xff, sizeof(owner));
	for (int rank = 0; rank < 5; rank++) {
		uint64_t random = 1;

		text_windows(&t, 8, rank, 5, &random, w, 512);
		for (size_t i = 0; i < 512; i++) {
			size_t at = (size_t)(w[i] - data);

			ck_assert_uint_lt(at, 64 - 8);
			ck_assert(owner[at] == 0xff || owner[at] == rank);
			owner[at] = (uint8_t)rank;
		}
	}
	for (size_t i = 0; i < 64 - 8; i++)
		ck_assert_uint_ne(owner[i], 0xff);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("charlm_model");
	TCase *t = tcase_create("charlm_model");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 240);
	tcase_add_test(t, gemm_equals_three_loops_bit_for_bit);
	tcase_add_test(t, gradients_are_the_slopes_of_the_loss);
	tcase_add_test(t, training_starts_at_chance_and_learns);
	tcase_add_test(t, same_seed_gives_same_bits_and_another_seed_others);
	tcase_add_test(t, hash_sees_one_changed_bit_anywhere);
	tcase_add_test(t, parameters_are_needed_first_to_last_and_gradients_ready_last_to_first);
	tcase_add_test(t, text_too_short_or_missing_is_refused_by_name);
	tcase_add_test(t, ranks_shares_are_disjoint_and_cover_the_text);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
