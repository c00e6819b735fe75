// SPDX-License-Identifier: Apache-2.0
/* LIBS: -lglpk */
/*
 * The planner against the paper's closed form, against a linear program that
 * knows nothing of capacities or bisection, and at its edges.
 */
#include <check.h>
#include <glpk.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "common/place/place.h"

#define GBIT		UINT64_C(1000000000)
#define MODEL		1e9	/* bytes */
#define MACHINES_MAX	2048u

static struct plan_machine machine[MACHINES_MAX];
static double share[MACHINES_MAX];
static struct plan plan;
static struct err err;

static void cluster(uint32_t n, uint64_t gpu_rate, uint32_t k, uint64_t cpu_rate)
{
	for (uint32_t i = 0; i < n + k; i++)
		machine[i] = (struct plan_machine){
			.bits_per_s = i < n ? gpu_rate : cpu_rate,
			.is_gpu = i < n,
			.has_server = true,
		};
}

static int solve(uint32_t count)
{
	return plan_solve(machine, count, MODEL, share, &plan, &err);
}

static double sum_of(const double *v, uint32_t count)
{
	double sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += v[i];
	return sum;
}

static void assert_near(double is, double should, double tolerance)
{
	ck_assert_msg(fabs(is - should) <= tolerance * fabs(should),
		      "%.12g is not within %g of %.12g", is, tolerance, should);
}

/* The shares add up, and the time they take by the traffic is the one promised. */
static void assert_consistent(uint32_t count)
{
	assert_near(sum_of(share, count), MODEL, 1e-9);
	assert_near(plan_time_of(machine, count, MODEL, share), plan.round_time_s, 1e-9);
}

/* ---- equal machines ---- */

static void check_closed_form(double n, double k)
{
	double d = n * n + k * n - 2 * k, b = 100e9 / 8;

	cluster((uint32_t)n, 100 * GBIT, (uint32_t)k, 100 * GBIT);
	ck_assert_int_eq(solve((uint32_t)(n + k)), 0);
	assert_near(plan.round_time_s, 2 * n * (n - 1) * MODEL / (d * b), 1e-9);
	assert_near(plan.ring_time_s / plan.round_time_s, d / (n * n), 1e-9);
	if (k > 0)
		assert_near(plan.ps_time_s / plan.round_time_s,
			    fmax(d / (2 * k * (n - 1)), d / (2 * n * (n - 1))), 1e-9);
	else
		ck_assert_double_eq(plan.ps_time_s, 0);
	for (uint32_t i = 0; i < (uint32_t)(n + k); i++) {
		double s = i < n ? (n - k) * MODEL / d : 2 * (n - 1) * MODEL / d;

		ck_assert_double_eq_tol(share[i], s, 1e-9 * MODEL);
	}
	assert_consistent((uint32_t)(n + k));
	ck_assert_int_eq(plan.bottleneck, k == n || n == 2 ? PLAN_GPU_CARD : PLAN_ALL_CARDS);
}

/* 2 n (n - 1) is 0: one machine alone, or with a CPU machine, sends nothing. */
START_TEST(plan_one_machine_is_closed_form)
{
	for (uint32_t k = 0; k <= 1; k++) {
		cluster(1, 100 * GBIT, k, 100 * GBIT);
		ck_assert_int_eq(solve(1 + k), 0);
		ck_assert_double_eq(plan.round_time_s, 0);
	}
}
END_TEST

START_TEST(plan_equal_machines_is_closed_form)
{
	for (uint32_t n = 2; n <= 64; n++)
		for (uint32_t k = 0; k <= n; k++)
			check_closed_form(n, k);
}
END_TEST

START_TEST(plan_more_cpus_than_gpus_gains_nothing_but_uses_them)
{
	cluster(4, 100 * GBIT, 7, 100 * GBIT);
	ck_assert_int_eq(solve(11), 0);
	assert_near(plan.round_time_s, MODEL / 12.5e9, 1e-9);
	for (uint32_t i = 0; i < 11; i++)
		ck_assert_double_eq_tol(share[i], i < 4 ? 0 : MODEL / 7, 1);
	ck_assert_int_eq(plan.bottleneck, PLAN_GPU_CARD);
	assert_consistent(11);
}
END_TEST

START_TEST(plan_two_card_classes_is_derived_form)
{
	double n = 8, k = 4, g = 25e9 / 8, c = 40e9 / 8;

	cluster(8, 25 * GBIT, 4, 40 * GBIT);
	ck_assert_int_eq(solve(12), 0);
	assert_near(plan.round_time_s, 2 * n * (n - 1) * MODEL / (n * n * g + k * (n - 2) * c),
		    1e-9);
	assert_consistent(12);
}
END_TEST

/* ---- small and odd clusters ---- */

START_TEST(plan_one_machine_needs_no_network)
{
	cluster(1, 0, 2, 100 * GBIT);
	machine[0].has_server = false;
	ck_assert_int_eq(solve(3), 0);
	ck_assert_double_eq(plan.round_time_s, 0);
	ck_assert_double_eq(sum_of(share, 3), 0);
	ck_assert_int_eq(plan.bottleneck, PLAN_NONE);
	ck_assert_double_eq(plan_time_of(machine, 3, MODEL, share), 0);
}
END_TEST

START_TEST(plan_two_machines_colocated_servers_are_free)
{
	cluster(2, 10 * GBIT, 1, GBIT);
	ck_assert_int_eq(solve(3), 0);
	assert_near(plan.round_time_s, MODEL / 1.25e9, 1e-12);
	assert_near(share[2], MODEL / 20, 1e-9);	/* a tenth of the card, n = 2 */
	assert_consistent(3);
}
END_TEST

START_TEST(plan_two_machines_one_server_takes_all)
{
	uint32_t weight[2];

	cluster(2, 10 * GBIT, 0, 0);
	machine[0].has_server = false;
	ck_assert_int_eq(solve(2), 0);
	assert_near(plan.round_time_s, MODEL / 1.25e9, 1e-12);
	ck_assert_double_eq(share[0], 0);
	plan_weights(share, 2, weight);
	ck_assert_uint_eq(weight[0], 0);
	ck_assert_uint_eq(weight[1], PLACE_WEIGHT_SUM);
}
END_TEST

START_TEST(plan_missing_colocated_servers_leaves_the_rest_to_others)
{
	double b = 12.5e9;

	cluster(4, 100 * GBIT, 1, 100 * GBIT);
	machine[1].has_server = machine[3].has_server = false;
	ck_assert_int_eq(solve(5), 0);
	/* T*B/4 + 2 * (T*B - M)/2 = M */
	assert_near(plan.round_time_s, 2 * MODEL / (1.25 * b), 1e-9);
	ck_assert_double_eq(share[1] + share[3], 0);
	assert_consistent(5);
}
END_TEST

START_TEST(plan_only_one_colocated_server_is_found)
{
	cluster(8, 100 * GBIT, 0, 0);
	for (uint32_t i = 1; i < 8; i++)
		machine[i].has_server = false;
	ck_assert_int_eq(solve(8), 0);
	assert_near(plan.round_time_s, 7 * MODEL / 12.5e9, 1e-9);
	assert_near(share[0], MODEL, 1e-9);
}
END_TEST

START_TEST(plan_slow_gpu_card_is_named)
{
	cluster(4, 100 * GBIT, 2, 100 * GBIT);
	machine[2].bits_per_s = 10 * GBIT;
	ck_assert_int_eq(solve(6), 0);
	assert_near(plan.round_time_s, MODEL / 1.25e9, 1e-9);
	ck_assert_int_eq(plan.bottleneck, PLAN_GPU_CARD);
	ck_assert_uint_eq(plan.bottleneck_machine, 2);
	ck_assert_double_eq(share[2], 0);
	assert_consistent(6);
}
END_TEST

/* Two CPU machines could sum it all in that time, but then they would be busy for all of it. */
START_TEST(plan_slow_gpu_card_leaves_room_on_all_others_alike)
{
	double m = 0;

	cluster(4, 100 * GBIT, 2, 100 * GBIT);
	machine[1].bits_per_s = 50 * GBIT;
	ck_assert_int_eq(solve(6), 0);
	assert_near(plan.round_time_s, MODEL / 6.25e9, 1e-9);
	assert_consistent(6);
	for (uint32_t i = 0; i < 6; i++) {
		/* 2 T'B/4 + 3 (T'B - M)/2 = M */
		double t = (machine[i].is_gpu ? MODEL + 2 * share[i] : 4 * share[i]) / 12.5e9;

		m += share[i];
		assert_near(t, (i == 1 ? 1 : 1.25) * MODEL / 12.5e9, 1e-9);
	}
	assert_near(m, MODEL, 1e-9);
}
END_TEST

START_TEST(plan_adder_cap_moves_the_share_and_is_named)
{
	cluster(4, 100 * GBIT, 4, 100 * GBIT);
	machine[6].adder_bytes_per_s = UINT64_C(1250000000);	/* a tenth of its card */
	ck_assert_int_eq(solve(8), 0);
	ck_assert_int_eq(plan.bottleneck, PLAN_ADDER);
	ck_assert_uint_eq(plan.bottleneck_machine, 6);
	ck_assert(plan.round_time_s > MODEL / 12.5e9 * 1.01);
	assert_near(share[6], plan.round_time_s * 1.25e9 / 4, 1e-9);
	assert_consistent(8);
}
END_TEST

START_TEST(plan_adder_caps_alone_set_the_time)
{
	cluster(4, 100 * GBIT, 0, 0);
	for (uint32_t i = 0; i < 4; i++)
		machine[i].adder_bytes_per_s = UINT64_C(1000000000);
	ck_assert_int_eq(solve(4), 0);
	assert_near(plan.round_time_s, MODEL / 1e9, 1e-9);	/* n * M/n over A */
	ck_assert_int_eq(plan.bottleneck, PLAN_ADDER);
}
END_TEST

START_TEST(plan_cpu_machine_without_network_gets_nothing)
{
	cluster(3, 100 * GBIT, 2, 100 * GBIT);
	machine[4].bits_per_s = 0;
	ck_assert_int_eq(solve(5), 0);
	ck_assert_double_eq(share[4], 0);
	assert_consistent(5);
	share[4] = 1;
	ck_assert(isinf(plan_time_of(machine, 5, MODEL, share)));
}
END_TEST

START_TEST(plan_impossible_clusters_are_refused)
{
	cluster(2, 100 * GBIT, 0, 0);
	machine[0].has_server = machine[1].has_server = false;
	ck_assert_int_eq(solve(2), TALLY_ENOSERVER);
	ck_assert_int_eq(plan.bottleneck, PLAN_NO_SERVER);

	cluster(0, 0, 3, GBIT);
	ck_assert_int_eq(solve(3), TALLY_EINVAL);
	ck_assert_int_eq(solve(0), TALLY_EINVAL);

	cluster(3, GBIT, 1, GBIT);
	machine[1].bits_per_s = 0;
	ck_assert_int_eq(solve(4), TALLY_EINVAL);

	cluster(3, GBIT, 1, GBIT);
	ck_assert_int_eq(plan_solve(machine, 4, -1, share, &plan, &err), TALLY_EINVAL);
	ck_assert_int_eq(plan_solve(machine, 4, NAN, share, &plan, &err), TALLY_EINVAL);
	ck_assert_int_eq(plan_solve(machine, 4, INFINITY, share, &plan, NULL), TALLY_EINVAL);
}
END_TEST

START_TEST(plan_empty_model_takes_no_time)
{
	cluster(3, GBIT, 1, GBIT);
	ck_assert_int_eq(plan_solve(machine, 4, 0, share, &plan, &err), 0);
	ck_assert_double_eq(plan.round_time_s, 0);
	ck_assert_double_eq(sum_of(share, 4), 0);
}
END_TEST

START_TEST(plan_proportions_do_not_depend_on_model)
{
	double one[6];

	cluster(4, 100 * GBIT, 2, 60 * GBIT);
	ck_assert_int_eq(plan_solve(machine, 6, 1, one, &plan, &err), 0);
	ck_assert_int_eq(solve(6), 0);
	for (uint32_t i = 0; i < 6; i++)
		assert_near(share[i], one[i] * MODEL, 1e-9);
}
END_TEST

/* ---- unequal machines against a linear program ---- */

/* Column 1 is T; column 2 + i is what machine i's server sums. */
struct lp {
	glp_prob *p;
	uint32_t gpus;
};

/* coef_t * T + coef_share * share_i <= bound. */
static void lp_row(struct lp *lp, uint32_t i, double coef_t, double coef_share, double bound)
{
	int ind[3] = { 0, 1, (int)i + 2 };
	double val[3] = { 0, coef_t, coef_share };
	int row = glp_add_rows(lp->p, 1);

	glp_set_row_bnds(lp->p, row, GLP_UP, 0, bound);
	glp_set_mat_row(lp->p, row, 2, ind, val);
}

/* Each direction's traffic fits the card for T, and the adder reads n inputs. */
static void lp_machine(struct lp *lp, uint32_t i)
{
	const struct plan_machine *m = &machine[i];
	double n = lp->gpus, rate = (double)m->bits_per_s / 8 / MODEL;
	double sends_for_share = m->is_gpu ? (n - 1) - 1 : n;

	glp_set_col_bnds(lp->p, (int)i + 2, m->has_server ? GLP_DB : GLP_FX, 0,
			 m->has_server ? 1 : 0);
	lp_row(lp, i, -rate, sends_for_share, m->is_gpu ? -1 : 0);
	if (m->adder_bytes_per_s)
		lp_row(lp, i, -(double)m->adder_bytes_per_s / MODEL, n, 0);
}

/* In units of the model, which keeps the matrix well scaled. */
static double lp_smallest_time(uint32_t count, uint32_t gpus)
{
	struct lp lp = { .p = glp_create_prob(), .gpus = gpus };
	static int ind[MACHINES_MAX + 1];
	static double one[MACHINES_MAX + 1];
	glp_smcp param;
	double t;
	int row;

	glp_set_obj_dir(lp.p, GLP_MIN);
	glp_add_cols(lp.p, (int)count + 1);
	glp_set_col_bnds(lp.p, 1, GLP_LO, 0, 0);
	glp_set_obj_coef(lp.p, 1, 1);
	for (uint32_t i = 0; i < count; i++) {
		lp_machine(&lp, i);
		ind[i + 1] = (int)i + 2;
		one[i + 1] = 1;
	}
	row = glp_add_rows(lp.p, 1);
	glp_set_row_bnds(lp.p, row, GLP_FX, 1, 1);
	glp_set_mat_row(lp.p, row, (int)count, ind, one);
	glp_init_smcp(&param);
	param.msg_lev = GLP_MSG_OFF;
	ck_assert_int_eq(glp_simplex(lp.p, &param), 0);
	ck_assert_int_eq(glp_get_status(lp.p), GLP_OPT);
	t = glp_get_obj_val(lp.p);
	glp_delete_prob(lp.p);
	return t;
}

/*
 * 2 to 12 GPU machines, 0 to 14 CPU ones, cards of 1 to 200 Gbit/s, GPU cards
 * alike within a factor of 1 to 4, some adders slow, some servers missing.
 */
static uint32_t random_cluster(struct rng *r, uint32_t *gpus)
{
	uint32_t n = 2 + (uint32_t)rng_below(r, 11), k = (uint32_t)rng_below(r, 15);
	uint64_t base = GBIT + rng_below(r, 49 * GBIT), spread = 1 + base * rng_below(r, 4);

	for (uint32_t i = 0; i < n + k; i++)
		machine[i] = (struct plan_machine){
			.bits_per_s = i < n ? base + rng_below(r, spread) :
				      GBIT + rng_below(r, base),
			.adder_bytes_per_s = rng_below(r, 3) ? 0 :
				base / 80 + rng_below(r, base / 4),
			.is_gpu = i < n,
			.has_server = rng_below(r, 4) > 0,
		};
	machine[rng_below(r, n + k)].has_server = true;
	*gpus = n;
	return n + k;
}

START_TEST(plan_unequal_machines_match_linear_program)
{
	struct rng r = { 20200814 };
	double worst = 0;
	uint32_t seen[PLAN_NO_SERVER] = { 0 };

	for (int round = 0; round < 1000; round++) {
		uint32_t gpus, count = random_cluster(&r, &gpus);
		double t = lp_smallest_time(count, gpus);

		ck_assert_int_eq(solve(count), 0);
		worst = fmax(worst, fabs(plan.round_time_s / t - 1));
		ck_assert_msg(worst <= 1e-3, "round %d: %g s, linear program %g s", round,
			      plan.round_time_s, t);
		assert_consistent(count);
		seen[plan.bottleneck]++;
	}
	printf("plan: 1000 clusters within %.1e of the linear program; held back by a GPU "
	       "card %u, all cards %u, an adder %u\n", worst, seen[PLAN_GPU_CARD],
	       seen[PLAN_ALL_CARDS], seen[PLAN_ADDER]);
	ck_assert(seen[PLAN_GPU_CARD] && seen[PLAN_ALL_CARDS] && seen[PLAN_ADDER]);
}
END_TEST

/* ---- weights, size ---- */

START_TEST(plan_weights_sum_exactly_and_follow_shares)
{
	static uint32_t weight[MACHINES_MAX];
	struct rng r = { 7 };

	for (int round = 0; round < 200; round++) {
		uint32_t count = 1 + (uint32_t)rng_below(&r, 64);
		uint64_t sum = 0;
		double total;

		for (uint32_t i = 0; i < count; i++)
			share[i] = i && rng_below(&r, 4) == 0 ? 0 :
				   1 + (double)rng_below(&r, 1u << 30);
		total = sum_of(share, count);
		plan_weights(share, count, weight);
		for (uint32_t i = 0; i < count; i++) {
			double exact = share[i] / total * PLACE_WEIGHT_SUM;

			sum += weight[i];
			ck_assert(fabs(weight[i] - exact) <= 1);
			ck_assert(share[i] > 0 || weight[i] == 0);
		}
		ck_assert_uint_eq(sum, PLACE_WEIGHT_SUM);
	}
}
END_TEST

START_TEST(plan_weights_ties_go_to_lower_index)
{
	const double equal[] = { 5, 5, 5, 5 }, none[] = { 0, 0 };
	uint32_t weight[4];

	plan_weights(equal, 4, weight);	/* 2^32 - 1 = 4 * 0x3fffffff + 3 */
	ck_assert_uint_eq(weight[0], 0x40000000);
	ck_assert_uint_eq(weight[2], 0x40000000);
	ck_assert_uint_eq(weight[3], 0x3fffffff);
	plan_weights(none, 2, weight);
	ck_assert_uint_eq(weight[0] | weight[1], 0);
}
END_TEST

START_TEST(plan_two_thousand_machines_is_solved)
{
	static uint32_t weight[MACHINES_MAX];
	uint64_t sum = 0;

	cluster(1024, 100 * GBIT, 1024, 90 * GBIT);
	ck_assert_int_eq(solve(2048), 0);
	assert_consistent(2048);
	plan_weights(share, 2048, weight);
	for (uint32_t i = 0; i < 2048; i++)
		sum += weight[i];
	ck_assert_uint_eq(sum, PLACE_WEIGHT_SUM);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan");
	TCase *tc = tcase_create("plan");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, plan_one_machine_is_closed_form);
	tcase_add_test(tc, plan_equal_machines_is_closed_form);
	tcase_add_test(tc, plan_more_cpus_than_gpus_gains_nothing_but_uses_them);
	tcase_add_test(tc, plan_two_card_classes_is_derived_form);
	tcase_add_test(tc, plan_one_machine_needs_no_network);
	tcase_add_test(tc, plan_two_machines_colocated_servers_are_free);
	tcase_add_test(tc, plan_two_machines_one_server_takes_all);
	tcase_add_test(tc, plan_missing_colocated_servers_leaves_the_rest_to_others);
	tcase_add_test(tc, plan_only_one_colocated_server_is_found);
	tcase_add_test(tc, plan_slow_gpu_card_is_named);
	tcase_add_test(tc, plan_slow_gpu_card_leaves_room_on_all_others_alike);
	tcase_add_test(tc, plan_adder_cap_moves_the_share_and_is_named);
	tcase_add_test(tc, plan_adder_caps_alone_set_the_time);
	tcase_add_test(tc, plan_cpu_machine_without_network_gets_nothing);
	tcase_add_test(tc, plan_impossible_clusters_are_refused);
	tcase_add_test(tc, plan_empty_model_takes_no_time);
	tcase_add_test(tc, plan_proportions_do_not_depend_on_model);
	tcase_add_test(tc, plan_unequal_machines_match_linear_program);
	tcase_add_test(tc, plan_weights_sum_exactly_and_follow_shares);
	tcase_add_test(tc, plan_weights_ties_go_to_lower_index);
	tcase_add_test(tc, plan_two_thousand_machines_is_solved);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
