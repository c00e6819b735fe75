// SPDX-License-Identifier: Apache-2.0
/* Engines near cards: what a machine says, and which CPUs and cards follow from it. */
#include <check.h>
#include <sched.h>
#include <string.h>

#include "common/rt/near.h"

static struct near m;
static int cpu[ENGINES_MAX];
static uint32_t order[RAILS_MAX];

/* Four nodes of four CPUs, with numbers that go round the nodes as firmware likes to do;
 * nodes 0 and 1 are close to each other, and so are 2 and 3. */
static void four_nodes(const uint32_t *card_node, uint32_t cards)
{
	memset(&m, 0, sizeof(m));
	m.nodes = 4;
	m.cpus = 16;
	m.cards = cards;
	for (uint32_t i = 0; i < m.cpus; i++) {
		m.cpu[i] = 100 + (int)i;
		m.cpu_node[i] = i % 4;
	}
	for (uint32_t i = 0; i < cards; i++)
		m.card_node[i] = card_node[i];
	for (uint32_t a = 0; a < 4; a++)
		for (uint32_t b = 0; b < 4; b++)
			m.distance[a][b] = a == b ? 0 : a / 2 == b / 2 ? 2 : 11;
}

static void pinned(uint32_t engines, bool from_last, const int *want)
{
	near_pin(&m, engines, from_last, cpu);
	for (uint32_t i = 0; i < engines; i++)
		ck_assert_msg(cpu[i] == want[i], "engine %u on cpu %d, not %d", i, cpu[i], want[i]);
}

static void ordered(int at, const uint32_t *want)
{
	near_order(&m, at, order);
	for (uint32_t i = 0; i < m.cards; i++)
		ck_assert_msg(order[i] == want[i], "place %u has card %u, not %u", i, order[i],
			      want[i]);
}

START_TEST(engines_are_near_the_cards_in_turn)
{
	four_nodes((const uint32_t[]){ 2, 1 }, 2);
	pinned(4, false, (const int[]){ 102, 101, 106, 105 });
	pinned(4, true, (const int[]){ 114, 113, 110, 109 });
}
END_TEST

START_TEST(the_next_nearest_node_takes_whom_the_first_has_no_cpu_for)
{
	four_nodes((const uint32_t[]){ 3 }, 1);
	pinned(6, false, (const int[]){ 103, 107, 111, 115, 102, 106 });
}
END_TEST

START_TEST(without_a_known_card_the_kernels_order_counts)
{
	four_nodes((const uint32_t[]){ NEAR_UNKNOWN }, 1);
	pinned(3, false, (const int[]){ 100, 101, 102 });
	pinned(3, true, (const int[]){ 115, 114, 113 });
	four_nodes(NULL, 0);
	pinned(2, false, (const int[]){ 100, 101 });
}
END_TEST

START_TEST(one_engine_or_too_few_cpus_are_left_to_the_kernel)
{
	four_nodes((const uint32_t[]){ 2 }, 1);
	pinned(1, false, (const int[]){ -1 });
	m.cpus = 4;
	pinned(4, false, (const int[]){ -1, -1, -1, -1 });
	m.cpus = 0;
	pinned(2, false, (const int[]){ -1, -1 });
}
END_TEST

START_TEST(the_nearest_card_comes_first)
{
	four_nodes((const uint32_t[]){ 2, 0, 3, 0, NEAR_UNKNOWN }, 5);
	ordered(100, (const uint32_t[]){ 1, 3, 4, 0, 2 });
	ordered(103, (const uint32_t[]){ 2, 4, 0, 1, 3 });
	ordered(-1, (const uint32_t[]){ 0, 1, 2, 3, 4 });
}
END_TEST

START_TEST(people_are_told_what_is_near)
{
	static const char *const addr[] = { "10.0.0.1", "10.0.0.2", "10.0.0.3" };
	char buf[128];

	four_nodes((const uint32_t[]){ 2, NEAR_UNKNOWN, 3 }, 3);
	near_text(&m, addr, (const int[]){ 102, 101, 103, 100 }, 4, buf, sizeof(buf));
	ck_assert_str_eq(buf, "102 (near 10.0.0.1), 101, 103 (near 10.0.0.3), 100");
	m.nodes = 1;
	near_text(&m, addr, (const int[]){ 102, 101 }, 2, buf, sizeof(buf));
	ck_assert_str_eq(buf, "102, 101");
}
END_TEST

START_TEST(hwloc_says_where_cards_and_cpus_are)
{
	static const char *const cards[] = { "0000:85:00.0", "0000:05:00.0", "", "0000:77:00.0",
					     "no address" };

	near_read(&m, "tests/data/topo/a100-card-per-switch.xml", cards, 5);
	ck_assert_uint_eq(m.nodes, 2);
	ck_assert_uint_eq(m.cards, 5);
	ck_assert_uint_eq(m.cpus, 2);
	ck_assert(m.cpu_node[0] == 0 && m.cpu_node[1] == 1);
	ck_assert(m.card_node[0] == 1 && m.card_node[1] == 0);
	for (uint32_t i = 2; i < 5; i++)
		ck_assert_uint_eq(m.card_node[i], NEAR_UNKNOWN);
	ck_assert(!m.distance[0][0] && !m.distance[1][1]);
	ck_assert(m.distance[0][1] && m.distance[1][0]);
	ordered(0, (const uint32_t[]){ 1, 2, 3, 4, 0 });
	ordered(1, (const uint32_t[]){ 0, 2, 3, 4, 1 });
}
END_TEST

START_TEST(here_it_knows_the_cpus_that_we_may_use)
{
	const char *const card[] = { "" };
	cpu_set_t set;

	near_read(&m, NULL, card, 1);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	ck_assert_uint_eq(m.cpus, MIN((uint32_t)CPU_COUNT(&set), NEAR_CPUS_MAX));
	for (uint32_t i = 0; i < m.cpus; i++)
		ck_assert(CPU_ISSET((size_t)m.cpu[i], &set));
}
END_TEST

START_TEST(without_a_description_all_is_near)
{
	const char *const card[] = { "0000:05:00.0" };

	near_read(&m, "tests/data/topo/none.xml", card, 1);
	ck_assert_uint_eq(m.cards, 1);
	near_pin(&m, 2, false, cpu);
	ck_assert(cpu[0] == -1 && cpu[1] == -1);
	ordered(-1, (const uint32_t[]){ 0 });
}
END_TEST

int main(void)
{
	Suite *s = suite_create("near");
	TCase *t = tcase_create("near");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, engines_are_near_the_cards_in_turn);
	tcase_add_test(t, the_next_nearest_node_takes_whom_the_first_has_no_cpu_for);
	tcase_add_test(t, without_a_known_card_the_kernels_order_counts);
	tcase_add_test(t, one_engine_or_too_few_cpus_are_left_to_the_kernel);
	tcase_add_test(t, the_nearest_card_comes_first);
	tcase_add_test(t, people_are_told_what_is_near);
	tcase_add_test(t, hwloc_says_where_cards_and_cpus_are);
	tcase_add_test(t, here_it_knows_the_cpus_that_we_may_use);
	tcase_add_test(t, without_a_description_all_is_near);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
