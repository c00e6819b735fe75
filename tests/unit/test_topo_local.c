// SPDX-License-Identifier: Apache-2.0
/* Local plans: known machines against the rule and its formulas, any machine against laws. */
#include <math.h>

#include "common/topo/local.h"
#include "tests/unit/topo_make.h"

#define NEAR 1e-9
#define GBIT 1e9

static struct topo *t;
static struct local_plan *p;

static void plan(const char *lines)
{
	struct err e = { 0 };

	t = topo_make(lines);
	p = calloc(1, sizeof(*p));
	ck_assert_ptr_nonnull(p);
	ck_assert_msg(local_plan_make(t, false, p, &e) == 0, "%s", e.text);
}

static void done(void)
{
	free(t);
	free(p);
	t = NULL;
	p = NULL;
}

static const struct local_link *link_of(enum local_link_kind kind, uint32_t a)
{
	for (uint32_t i = 0; i < p->links; i++)
		if (p->link[i].kind == kind && p->link[i].a == a)
			return &p->link[i];
	ck_abort_msg("no such link");
}

static void carries(enum local_link_kind kind, uint32_t a, double up, double down)
{
	const struct local_link *l = link_of(kind, a);

	ck_assert_double_eq_tol(local_load(l, LOCAL_UP), up, NEAR);
	ck_assert_double_eq_tol(local_load(l, LOCAL_DOWN), down, NEAR);
}

static double share_of(uint32_t gpu)
{
	double sum = 0;

	for (uint32_t i = 0; i < p->copies; i++)
		sum += p->copy[i].gpu == gpu ? p->copy[i].share : 0;
	return sum;
}

static enum local_link_kind bottleneck(void)
{
	return p->link[p->bottleneck].kind;
}

#define TWO_BY_FOUR(rates) \
	"node = n0 socket=0; switch = s0 under=n0 rate=80gbit; switch = s1 under=n0 rate=80gbit;" \
	"gpu = g0 under=s0 " rates "; gpu = g1 under=s0 " rates "; gpu = g2 under=s0 " rates ";" \
	"gpu = g3 under=s0 " rates "; gpu = g4 under=s1 " rates "; gpu = g5 under=s1 " rates ";" \
	"gpu = g6 under=s1 " rates "; gpu = g7 under=s1 " rates ";"

START_TEST(pcie_2x4_card_apart_the_cpu_adds_two_switches)
{
	plan(TWO_BY_FOUR("rate=105gbit") "nic = c0 under=n0 net=100gbit");
	ck_assert_int_eq(p->strategy, LOCAL_CPU_ASSISTED);
	ck_assert_uint_eq(p->groups, 2);
	for (uint32_t i = 0; i < 8; i++) {
		carries(LOCAL_LINK_GPU, i, 7.0 / 4, 7.0 / 4);	/* (2l - 1) / l */
		ck_assert_double_eq_tol(share_of(i), 0.25, NEAR);
	}
	carries(LOCAL_LINK_SWITCH, 0, 1, 1);
	carries(LOCAL_LINK_SWITCH, 1, 1, 1);
	carries(LOCAL_LINK_NET, 0, 1, 1);
	/* written: 2 copies, the sum, the result; read: 2 by the sum, send, 2 back */
	carries(LOCAL_LINK_MEMORY, 0, 4, 5);
	ck_assert_int_eq(bottleneck(), LOCAL_LINK_GPU);
	/* the paper: 23.7 % less than a ring, whose 7/4 cross the switches' ways up */
	ck_assert_double_eq_tol(p->s_per_byte / (7.0 / 4 * 8 / (80 * GBIT)), 1 - 0.237, 2e-3);
	done();
}
END_TEST

START_TEST(pcie_2x4_card_on_a_switch_nothing_can_be_spared)
{
	plan(TWO_BY_FOUR("rate=105gbit") "nic = c0 under=s0 net=100gbit");
	ck_assert_int_eq(p->strategy, LOCAL_CPU_ASSISTED);
	carries(LOCAL_LINK_SWITCH, 0, 2, 2);
	carries(LOCAL_LINK_SWITCH, 1, 1, 1);
	ck_assert_int_eq(bottleneck(), LOCAL_LINK_SWITCH);
	ck_assert_uint_eq(p->link[p->bottleneck].a, 0);
	done();
}
END_TEST

START_TEST(pcie_4x2_each_gpu_link_carries_three_halves)
{
	plan("node = n0 socket=0; node = n1 socket=1;"
	     "switch = a under=n0; switch = b under=n0; switch = c under=n1; switch = d under=n1;"
	     "gpu = g0 under=a; gpu = g1 under=a; gpu = g2 under=b; gpu = g3 under=b;"
	     "gpu = g4 under=c; gpu = g5 under=c; gpu = g6 under=d; gpu = g7 under=d;"
	     "nic = c0 under=n0 net=50gbit");
	ck_assert_int_eq(p->strategy, LOCAL_CPU_ASSISTED);
	ck_assert_uint_eq(p->groups, 4);
	for (uint32_t i = 0; i < 8; i++)
		carries(LOCAL_LINK_GPU, i, 1.5, 1.5);
	for (uint32_t i = 0; i < 4; i++)
		carries(LOCAL_LINK_SWITCH, i, 1, 1);
	/* the second socket's two groups come over to the card's memory */
	carries(LOCAL_LINK_SOCKETS, 0, 2, 2);
	done();
}
END_TEST

/* No ring of faster links has it; there are many that all but have it. */
START_TEST(one_slower_gpu_among_ten_is_in_their_ring)
{
	char lines[1024] = "node = n0 socket=0; switch = s0 under=n0 rate=126gbit;"
			   "nic = c0 under=n0 net=100gbit;";

	for (int i = 0; i < 10; i++)
		snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines),
			 "gpu = g%d under=s0 rate=%dgbit;", i, i == _i ? 63 : 126);
	plan(lines);
	ck_assert_int_eq(p->grouping, LOCAL_GROUP_JOINED);
	ck_assert_uint_eq(p->groups, 1);
	ck_assert_uint_eq(p->group[0].count, 10);
	done();
}
END_TEST

/* Nine and nine with faster links among themselves: many ways through nine, none through all. */
START_TEST(where_the_faster_links_have_no_ring_the_slower_ones_are_looked_at)
{
	char *lines = calloc(1, 16384);
	size_t at = (size_t)sprintf(lines, "node = n0 socket=0; nic = c0 under=n0 net=100gbit;");

	for (int i = 0; i < 18; i++)
		at += (size_t)sprintf(lines + at, "gpu = g%d under=n0 rate=126gbit;", i);
	for (int i = 0; i < 18; i++)
		for (int k = 0; k < i; k++)
			at += (size_t)sprintf(lines + at, "nvlink = g%d g%d %dgbit;", k, i,
					      i / 9 == k / 9 ? 200 : 100);
	plan(lines);
	ck_assert_int_eq(p->grouping, LOCAL_GROUP_JOINED);
	ck_assert_uint_eq(p->groups, 1);
	ck_assert_uint_eq(p->group[0].count, 18);
	done();
	free(lines);
}
END_TEST

/* The hybrid cube mesh of DGX-1 (V100): per GPU six links of 200 Gbit/s. */
#define MESH \
	"nvlink = g0 g1 200gbit; nvlink = g0 g2 200gbit; nvlink = g0 g3 400gbit;" \
	"nvlink = g0 g4 400gbit; nvlink = g1 g2 400gbit; nvlink = g1 g3 200gbit;" \
	"nvlink = g1 g5 400gbit; nvlink = g2 g3 400gbit; nvlink = g2 g6 200gbit;" \
	"nvlink = g3 g7 200gbit; nvlink = g4 g5 200gbit; nvlink = g4 g6 200gbit;" \
	"nvlink = g4 g7 400gbit; nvlink = g5 g6 400gbit; nvlink = g5 g7 200gbit;" \
	"nvlink = g6 g7 400gbit;"
#define DGX1 \
	"node = n0 socket=0; node = n1 socket=1;" \
	"switch = s0 under=n0 rate=126gbit; switch = s1 under=n0 rate=126gbit;" \
	"switch = s2 under=n1 rate=126gbit; switch = s3 under=n1 rate=126gbit;" \
	"gpu = g0 under=s0 rate=126gbit; gpu = g1 under=s0 rate=126gbit;" \
	"gpu = g2 under=s1 rate=126gbit; gpu = g3 under=s1 rate=126gbit;" \
	"gpu = g4 under=s2 rate=126gbit; gpu = g5 under=s2 rate=126gbit;" \
	"gpu = g6 under=s3 rate=126gbit; gpu = g7 under=s3 rate=126gbit;" MESH

START_TEST(nvlink_one_card_roots_keep_away_from_its_switch)
{
	char why[200];

	plan(DGX1 "nic = ib0 under=s0 rate=126gbit net=100gbit");
	ck_assert_int_eq(p->strategy, LOCAL_ROOTS);
	ck_assert_uint_eq(p->groups, 1);
	ck_assert(p->group[0].nvlink && p->group[0].whole);
	ck_assert_uint_eq(p->group[0].switches_card, 1);
	ck_assert_uint_eq(p->group[0].switches_only, 3);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_double_eq_tol(share_of(i), i < 2 ? 0 : 1.0 / 6, NEAR);
	carries(LOCAL_LINK_SWITCH, 0, 1, 1);		/* the network alone */
	for (uint32_t i = 1; i < 4; i++)
		carries(LOCAL_LINK_SWITCH, i, 1.0 / 3, 1.0 / 3);
	ck_assert_int_eq(bottleneck(), LOCAL_LINK_NET);
	ck_assert_ptr_nonnull(strstr(local_why(p, 0, why, sizeof(why)), "away from it"));
	done();
}
END_TEST

START_TEST(whole_chunks_go_to_the_roots_by_turns)
{
	struct local_piece piece[LOCAL_COPIES_MAX];
	uint32_t had[8] = { 0 };

	plan(DGX1 "nic = ib0 under=s0 rate=126gbit net=100gbit");
	for (uint64_t chunk = 0; chunk < 600; chunk++) {
		ck_assert_uint_eq(local_pieces(p, 0, chunk, CHUNK_BYTES_DEFAULT, piece), 1);
		ck_assert_uint_eq(piece[0].len, CHUNK_BYTES_DEFAULT);
		ck_assert_uint_eq(piece[0].copy, chunk % 6);
		had[p->copy[piece[0].copy].gpu]++;
	}
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_uint_eq(had[i], i < 2 ? 0 : 100);
	done();
}
END_TEST

START_TEST(nvlink_a_card_on_every_switch_is_symmetric)
{
	plan(DGX1 "nic = ib0 under=s0 net=100gbit; nic = ib1 under=s1 net=100gbit;"
	     "nic = ib2 under=s2 net=100gbit; nic = ib3 under=s3 net=100gbit");
	ck_assert_int_eq(p->strategy, LOCAL_SCATTER);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_double_eq_tol(share_of(i), 1.0 / 8, NEAR);
	for (uint32_t i = 0; i < p->copies; i++)	/* each by its own switch's card */
		ck_assert_uint_eq(p->copy[i].card, p->copy[i].gpu / 2);
	for (uint32_t i = 0; i < 4; i++)
		carries(LOCAL_LINK_SWITCH, i, 0.5, 0.5);
	carries(LOCAL_LINK_SOCKETS, 0, 0, 0);
	done();
}
END_TEST

START_TEST(nvswitch_and_a_card_for_each_switch_like_dgx_a100)
{
	char text[2048] = "node = n0 socket=0; node = n1 socket=1;";
	size_t at = strlen(text);

	for (int s = 0; s < 4; s++)
		at += (size_t)sprintf(text + at, "switch = s%d under=n%d rate=252gbit;"
			"gpu = g%d under=s%d rate=252gbit nvswitch=2400gbit;"
			"gpu = g%d under=s%d rate=252gbit nvswitch=2400gbit;"
			"nic = a%d under=s%d rate=252gbit net=200gbit;"
			"nic = b%d under=s%d rate=252gbit net=200gbit;", s, s / 2, 2 * s, s,
			2 * s + 1, s, s, s, s, s);
	plan(text);
	ck_assert_int_eq(p->strategy, LOCAL_SCATTER);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_double_eq_tol(share_of(i), 1.0 / 8, NEAR);
		/* (l - 1) / l to reduce and to broadcast */
		carries(LOCAL_LINK_NVSWITCH, i, 7.0 / 4, 7.0 / 4);
		carries(LOCAL_LINK_GPU, i, 1.0 / 8, 1.0 / 8);
	}
	for (uint32_t i = 0; i < 4; i++)
		carries(LOCAL_LINK_SWITCH, i, 0.5, 0.5);
	for (uint32_t i = 0; i < p->copies; i++)
		ck_assert_uint_eq(p->copy[i].card / 2, p->copy[i].gpu / 2);
	done();
}
END_TEST

START_TEST(single_switch_reduces_inside_and_copies_once)
{
	plan("node = n0; switch = s under=n0; gpu = a under=s; gpu = b under=s; gpu = c under=s;"
	     "nic = x under=n0 net=25gbit");
	ck_assert_int_eq(p->strategy, LOCAL_SCATTER);
	ck_assert_uint_eq(p->groups, 1);
	for (uint32_t i = 0; i < 3; i++)
		carries(LOCAL_LINK_GPU, i, 5.0 / 3, 5.0 / 3);
	carries(LOCAL_LINK_SWITCH, 0, 1, 1);
	/* no sum of the CPU's: copy and result written, both read */
	carries(LOCAL_LINK_MEMORY, 0, 2, 2);
	ck_assert_int_eq(bottleneck(), LOCAL_LINK_NET);
	done();
}
END_TEST

START_TEST(one_gpu_copies_everything)
{
	plan("node = n0; gpu = g under=n0 rate=63gbit; nic = c under=n0 net=100gbit");
	ck_assert_int_eq(p->strategy, LOCAL_COPY);
	carries(LOCAL_LINK_GPU, 0, 1, 1);
	ck_assert_int_eq(bottleneck(), LOCAL_LINK_GPU);
	ck_assert_double_eq_tol(p->s_per_byte * 63 * GBIT / 8, 1, NEAR);
	done();
}
END_TEST

START_TEST(gpus_on_one_socket_and_the_card_on_the_other)
{
	plan("node = n0 socket=0; node = n1 socket=1; switch = s under=n1;"
	     "gpu = a under=s; gpu = b under=s; nic = c under=n0 net=40gbit");
	ck_assert_int_eq(p->strategy, LOCAL_SCATTER);
	for (uint32_t i = 0; i < p->copies; i++)
		ck_assert_uint_eq(p->copy[i].node, 0);	/* near the card */
	carries(LOCAL_LINK_SOCKETS, 0, 1, 1);
	carries(LOCAL_LINK_MEMORY, 1, 0, 0);
	done();
}
END_TEST

START_TEST(two_cards_on_one_switch_are_one_switch_to_spare)
{
	plan(DGX1 "nic = a under=s1 net=50gbit; nic = b under=s1 net=50gbit");
	ck_assert_int_eq(p->strategy, LOCAL_ROOTS);
	ck_assert_double_eq_tol(p->card_share[0], 0.5, NEAR);
	ck_assert_double_eq_tol(share_of(2) + share_of(3), 0, NEAR);
	carries(LOCAL_LINK_SWITCH, 1, 1, 1);
	carries(LOCAL_LINK_SWITCH, 0, 1.0 / 3, 1.0 / 3);
	done();
}
END_TEST

START_TEST(consumer_board_every_gpu_is_its_own_switch)
{
	plan("node = n0; gpu = a under=n0 rate=126gbit; gpu = b under=n0 rate=63gbit;"
	     "gpu = c under=n0 rate=32gbit; nic = c0 under=n0 rate=8gbit net=1gbit");
	ck_assert_int_eq(p->strategy, LOCAL_CPU_ASSISTED);
	ck_assert_uint_eq(p->groups, 3);
	for (uint32_t i = 0; i < 3; i++)
		carries(LOCAL_LINK_GPU, i, 1, 1);
	ck_assert_int_eq(bottleneck(), LOCAL_LINK_NET);
	done();
}
END_TEST

START_TEST(no_gpu_leaves_the_network_and_memory)
{
	plan("node = n0; nic = c under=n0 net=10gbit");
	ck_assert_int_eq(p->strategy, LOCAL_NO_GPU);
	ck_assert_uint_eq(p->groups + p->copies, 0);
	carries(LOCAL_LINK_MEMORY, 0, 1, 1);
	ck_assert_int_eq(bottleneck(), LOCAL_LINK_NET);
	done();
	plan("node = n0");
	ck_assert_double_eq(p->s_per_byte, 0);
	done();
}
END_TEST

START_TEST(no_card_keeps_copies_near_their_gpus)
{
	plan(DGX1);
	ck_assert_int_eq(p->strategy, LOCAL_SCATTER);
	for (uint32_t i = 0; i < p->copies; i++) {
		ck_assert_uint_eq(p->copy[i].card, TOPO_NONE);
		ck_assert_uint_eq(p->copy[i].node, t->gpu[p->copy[i].gpu].at.node);
	}
	carries(LOCAL_LINK_SOCKETS, 0, 0, 0);
	done();
}
END_TEST

START_TEST(unequal_switches_get_equal_loads_where_that_is_faster)
{
	plan("node = n0; switch = a under=n0 rate=100gbit; switch = b under=n0 rate=100gbit;"
	     "gpu = g0 under=a nvswitch=2400gbit; gpu = g1 under=a nvswitch=2400gbit;"
	     "gpu = g2 under=a nvswitch=2400gbit; gpu = g3 under=b nvswitch=2400gbit;"
	     "nic = c under=n0 net=400gbit rate=504gbit");
	ck_assert_int_eq(p->strategy, LOCAL_ROOTS);
	carries(LOCAL_LINK_SWITCH, 0, 0.5, 0.5);
	carries(LOCAL_LINK_SWITCH, 1, 0.5, 0.5);
	ck_assert_double_eq_tol(share_of(3), 0.5, 1e-7);
	done();
	/* a slow card makes equal shares good enough */
	plan("node = n0; switch = a under=n0 rate=100gbit; switch = b under=n0 rate=100gbit;"
	     "gpu = g0 under=a nvswitch=2400gbit; gpu = g1 under=a nvswitch=2400gbit;"
	     "gpu = g2 under=a nvswitch=2400gbit; gpu = g3 under=b nvswitch=2400gbit;"
	     "nic = c under=n0 net=100gbit");
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_double_eq_tol(share_of(i), 0.25, NEAR);
	done();
}
END_TEST

START_TEST(too_few_switches_without_cards_get_help)
{
	plan("node = n0; switch = a under=n0 rate=126gbit; switch = b under=n0 rate=126gbit;"
	     "switch = c under=n0 rate=126gbit;"
	     "gpu = g0 under=a nvswitch=2400gbit; gpu = g1 under=b nvswitch=2400gbit;"
	     "gpu = g2 under=c nvswitch=2400gbit;"
	     "nic = x under=a net=100gbit; nic = y under=b net=100gbit");
	/* 1/2 of the network on two ways up, so that 2/3 on each of three is the least */
	for (uint32_t i = 0; i < 3; i++)
		carries(LOCAL_LINK_SWITCH, i, 2.0 / 3, 2.0 / 3);
	ck_assert_double_eq_tol(share_of(2), 2.0 / 3, 1e-7);
	ck_assert(!p->group[0].spared);
	done();
}
END_TEST

START_TEST(one_bridge_between_switches_is_not_worth_it)
{
	plan(TWO_BY_FOUR("rate=80gbit") "nic = c under=n0 net=100gbit; nvlink = g3 g4 400gbit");
	ck_assert_int_eq(p->grouping, LOCAL_GROUP_BY_SWITCH);
	ck_assert_int_eq(p->strategy, LOCAL_CPU_ASSISTED);
	ck_assert(p->s_per_byte < p->other_s_per_byte[LOCAL_GROUP_JOINED]);
	done();
}
END_TEST

START_TEST(bridges_between_all_pairs_join_the_switches)
{
	plan(TWO_BY_FOUR("rate=105gbit") "nic = c under=n0 net=200gbit rate=252gbit;"
	     "nvlink = g0 g4 400gbit; nvlink = g1 g5 400gbit; nvlink = g2 g6 400gbit;"
	     "nvlink = g3 g7 400gbit;");
	ck_assert_int_eq(p->grouping, LOCAL_GROUP_JOINED);
	ck_assert_int_eq(p->strategy, LOCAL_SCATTER);
	carries(LOCAL_LINK_SWITCH, 0, 0.5, 0.5);
	done();
}
END_TEST

START_TEST(narrow_gpu_links_below_a_wide_switch_copy_plainly)
{
	plan("node = n0 memory=1600gbit; switch = s under=n0 rate=126gbit;"
	     "gpu = a under=s rate=31gbit; gpu = b under=s rate=31gbit;"
	     "gpu = c under=s rate=31gbit; gpu = d under=s rate=31gbit;"
	     "nic = x under=n0 net=100gbit");
	ck_assert_int_eq(p->grouping, LOCAL_GROUP_ALONE);
	carries(LOCAL_LINK_GPU, 0, 1, 1);
	carries(LOCAL_LINK_SWITCH, 0, 4, 4);
	done();
}
END_TEST

START_TEST(nested_switches_load_the_inner_link_with_the_ring)
{
	plan("node = n0; switch = top under=n0; switch = in under=top;"
	     "gpu = a under=top; gpu = b under=in; gpu = c under=in; nic = x under=n0 net=10gbit");
	ck_assert_uint_eq(p->groups, 1);
	carries(LOCAL_LINK_SWITCH, 0, 1, 1);
	/* 2/3 to copy, and each pass of the ring crosses once each way */
	carries(LOCAL_LINK_SWITCH, 1, 2.0 / 3 + 4.0 / 3, 2.0 / 3 + 4.0 / 3);
	done();
}
END_TEST

START_TEST(unknown_rates_are_refused)
{
	struct topo *bare = topo_make("node = n0; gpu = g under=n0");
	struct local_plan *out = calloc(1, sizeof(*out));
	struct err e;

	bare->gpu[0].pcie.bits_per_s = 0;
	ck_assert_int_eq(local_plan_make(bare, false, out, &e), TALLY_EINVAL);
	free(bare);
	free(out);
}
END_TEST

static Suite *suite_known(void)
{
	Suite *s = suite_create("topo_local");
	TCase *tc = tcase_create("known");

	tcase_add_test(tc, pcie_2x4_card_apart_the_cpu_adds_two_switches);
	tcase_add_test(tc, pcie_2x4_card_on_a_switch_nothing_can_be_spared);
	tcase_add_loop_test(tc, one_slower_gpu_among_ten_is_in_their_ring, 0, 10);
	tcase_add_test(tc, where_the_faster_links_have_no_ring_the_slower_ones_are_looked_at);
	tcase_add_test(tc, pcie_4x2_each_gpu_link_carries_three_halves);
	tcase_add_test(tc, nvlink_one_card_roots_keep_away_from_its_switch);
	tcase_add_test(tc, whole_chunks_go_to_the_roots_by_turns);
	tcase_add_test(tc, nvlink_a_card_on_every_switch_is_symmetric);
	tcase_add_test(tc, nvswitch_and_a_card_for_each_switch_like_dgx_a100);
	tcase_add_test(tc, single_switch_reduces_inside_and_copies_once);
	tcase_add_test(tc, one_gpu_copies_everything);
	tcase_add_test(tc, gpus_on_one_socket_and_the_card_on_the_other);
	tcase_add_test(tc, two_cards_on_one_switch_are_one_switch_to_spare);
	tcase_add_test(tc, consumer_board_every_gpu_is_its_own_switch);
	tcase_add_test(tc, no_gpu_leaves_the_network_and_memory);
	tcase_add_test(tc, no_card_keeps_copies_near_their_gpus);
	tcase_add_test(tc, unequal_switches_get_equal_loads_where_that_is_faster);
	tcase_add_test(tc, too_few_switches_without_cards_get_help);
	tcase_add_test(tc, one_bridge_between_switches_is_not_worth_it);
	tcase_add_test(tc, bridges_between_all_pairs_join_the_switches);
	tcase_add_test(tc, narrow_gpu_links_below_a_wide_switch_copy_plainly);
	tcase_add_test(tc, nested_switches_load_the_inner_link_with_the_ring);
	tcase_add_test(tc, unknown_rates_are_refused);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(suite_known());
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
