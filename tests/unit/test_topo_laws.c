// SPDX-License-Identifier: Apache-2.0
/*
 * Laws of local plans, on random machines: nested and unequal switches, any NVLinks, any
 * cards.  A plan is carried out on counters, and its loads are held against sums that
 * come from the description alone.
 */
#include <math.h>

#include "common/topo/local.h"
#include "tests/unit/topo_make.h"

#define MACHINES 800u
#define NEAR 1e-7

static struct topo t;
static struct local_plan p, again;
static uint64_t seed;

static uint32_t dice(uint32_t sides)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33) % sides;
}

#define must(x) ck_assert_msg(x, "machine %u: %s", machine, #x)

/* ---- machines ---- */

static struct topo_rate any_rate(void)
{
	static const uint32_t gbit[] = { 8, 25, 63, 100, 126, 252, 504 };

	return (struct topo_rate){ gbit[dice(ARRAY_SIZE(gbit))] * UINT64_C(1000000000), false };
}

static struct topo_place any_place(void)
{
	uint32_t sw = dice(4) && t.switches ? dice(t.switches) : TOPO_NONE;

	if (sw == TOPO_NONE)
		return (struct topo_place){ TOPO_NONE, dice(t.nodes) };
	return (struct topo_place){ sw, t.sw[sw].at.node };
}

static void any_nvlinks(void)
{
	uint32_t kind = dice(4), density = 1 + dice(4);

	for (uint32_t a = 0; a < t.gpus; a++) {
		if (kind == 1 && dice(5))
			t.gpu[a].nvswitch = any_rate();
		for (uint32_t b = 0; kind == 2 && b < a; b++)
			if (dice(density) == 0)
				t.nvlink[a][b] = t.nvlink[b][a] = any_rate().bits_per_s;
	}
	for (uint32_t a = 0; kind == 3 && a + 1 < t.gpus; a += 1 + dice(2))
		t.nvlink[a][a + 1] = t.nvlink[a + 1][a] = any_rate().bits_per_s;
}

static void any_machine(uint32_t machine)
{
	struct err e = { 0 };
	uint32_t switches = dice(7), gpus = dice(dice(8) ? 9 : 33), cards = dice(5);

	memset(&t, 0, sizeof(t));
	for (t.nodes = 0; t.nodes < 1 + machine % 3; t.nodes++)
		t.node[t.nodes].socket = dice(2);
	for (t.switches = 0; t.switches < switches; t.switches++) {
		t.sw[t.switches].at = any_place();
		t.sw[t.switches].up = any_rate();
	}
	for (t.gpus = 0; t.gpus < gpus; t.gpus++) {
		t.gpu[t.gpus].at = any_place();
		t.gpu[t.gpus].pcie = any_rate();
	}
	for (t.cards = 0; t.cards < cards; t.cards++) {
		t.card[t.cards].at = any_place();
		t.card[t.cards].net = any_rate();
	}
	any_nvlinks();
	topo_guess(&t);
	ck_assert_msg(topo_check(&t, &e) == 0, "machine %u: %s", machine, e.text);
	ck_assert_msg(local_plan_make(&t, false, &p, &e) == 0, "machine %u: %s", machine, e.text);
}

/* ---- the plan, carried out ---- */

static bool can_reach(uint32_t a, uint32_t b)
{
	return topo_same_switch(&t, a, b) || topo_nvlinked(&t, a, b);
}

static void groups_hold_every_gpu_once(uint32_t machine)
{
	uint32_t seen[TOPO_GPUS_MAX] = { 0 }, n = 0;

	for (uint32_t g = 0; g < p.groups; g++) {
		must(p.group[g].first == n && p.group[g].count > 0);
		for (uint32_t i = 0; i < p.group[g].count; i++)
			seen[p.member[n++]]++;
	}
	must(n == t.gpus);
	for (uint32_t i = 0; i < t.gpus; i++)
		must(seen[i] == 1);
}

/* Only over links that are there. */
static void paths_are_there(uint32_t machine, const struct local_group *g)
{
	for (uint32_t i = 0; i < g->count; i++) {
		uint32_t next = g->first + (i + 1) % g->count;

		must(g->count == 1 || can_reach(p.member[g->first + i], p.member[next]));
	}
}

/* What arrives at the root when everybody adds its own once: must be every GPU, once. */
static void root_gets_all_once(uint32_t machine, const struct local_group *g, uint32_t root)
{
	uint32_t has[TOPO_GPUS_MAX][TOPO_GPUS_MAX] = { { 0 } };
	uint32_t at_root = TOPO_NONE;

	for (uint32_t i = 0; i < g->count; i++) {
		has[i][i] = 1;
		if (p.member[g->first + i] == root)
			at_root = i;
	}
	must(at_root != TOPO_NONE);
	for (uint32_t step = 1; step < g->count; step++)
		for (uint32_t i = 0; i < g->count; i++)
			has[(at_root + step + 1) % g->count][i] +=
				has[(at_root + step) % g->count][i];
	for (uint32_t i = 0; i < g->count; i++)
		must(has[at_root][i] == 1);
}

static void shares_add_up(uint32_t machine, const struct local_group *g)
{
	double sum = 0, by_card[TOPO_CARDS_MAX] = { 0 };
	uint32_t before = 0;

	for (uint32_t i = g->first_copy; i < g->first_copy + g->copies; i++) {
		const struct local_copy *c = &p.copy[i];

		must(c->share > 0 && c->weight_end >= before);
		must(fabs(c->share * LOCAL_WEIGHT_SUM - (c->weight_end - before)) < 4);
		before = c->weight_end;
		sum += c->share;
		if (c->card != TOPO_NONE)
			by_card[c->card] += c->share;
		must((c->card == TOPO_NONE) == (t.cards == 0));
		must(c->card == TOPO_NONE || c->node == t.card[c->card].at.node);
		root_gets_all_once(machine, g, c->gpu);
	}
	must(before == LOCAL_WEIGHT_SUM);
	must(fabs(sum - 1) < NEAR);
	for (uint32_t i = 0; i < t.cards; i++)
		must(fabs(by_card[i] - p.card_share[i]) < NEAR);
}

/* The cut of a chunk; card_ends: where the CPU's sums change cards, the same everywhere. */
static void pieces_cover_once(uint32_t machine, uint32_t group, uint64_t bytes,
			      uint64_t card_ends[TOPO_CARDS_MAX])
{
	static struct local_piece piece[LOCAL_COPIES_MAX];
	const struct local_group *g = &p.group[group];

	for (uint64_t chunk = 0; chunk < 3; chunk++) {
		uint32_t n = local_pieces(&p, group, chunk, bytes, piece);
		uint64_t ends[TOPO_CARDS_MAX] = { 0 }, at = 0;

		must(n > 0 && n <= g->copies);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t c = piece[i].copy;

			must(c >= g->first_copy && c < g->first_copy + g->copies);
			must(piece[i].offset == at && piece[i].len > 0);
			at += piece[i].len;
			must(at == bytes || at % 256 == 0);
			if (t.cards)
				ends[p.copy[c].card] = at;
		}
		must(at == bytes);
		if (p.groups < 2)
			continue;
		must(group == 0 || !memcmp(ends, card_ends, sizeof(ends)));
		memcpy(card_ends, ends, sizeof(ends));
	}
}

START_TEST(every_byte_of_every_gpu_is_added_exactly_once)
{
	for (uint32_t machine = 0; machine < MACHINES; machine++) {
		uint64_t ends[2][TOPO_CARDS_MAX];

		seed = machine;
		any_machine(machine);
		groups_hold_every_gpu_once(machine);
		for (uint32_t g = 0; g < p.groups; g++) {
			paths_are_there(machine, &p.group[g]);
			shares_add_up(machine, &p.group[g]);
			pieces_cover_once(machine, g, CHUNK_BYTES_DEFAULT, ends[0]);
			pieces_cover_once(machine, g, 4 * 65537, ends[1]);
		}
	}
}
END_TEST

/* ---- loads ---- */

static double total(enum local_link_kind kind, enum local_way way, enum local_cause c)
{
	double sum = 0;

	for (uint32_t i = 0; i < p.links; i++)
		if (p.link[i].kind == kind)
			sum += p.link[i].load[way][c];
	return sum;
}

static bool near(double a, double b)
{
	return fabs(a - b) <= NEAR * fmax(1, fabs(b));
}

/* What leaves GPUs for other GPUs: each but the root gives a byte away once. */
static double between_gpus(enum local_cause c)
{
	return total(LOCAL_LINK_GPU, LOCAL_UP, c) + total(LOCAL_LINK_NVSWITCH, LOCAL_UP, c) +
	       total(LOCAL_LINK_NVLINK, LOCAL_UP, c) + total(LOCAL_LINK_NVLINK, LOCAL_DOWN, c);
}

START_TEST(loads_are_what_has_to_move_and_no_more)
{
	for (uint32_t machine = 0; machine < MACHINES; machine++) {
		seed = machine;
		any_machine(machine);
		must(near(between_gpus(LOCAL_BY_REDUCE), t.gpus - p.groups));
		must(near(between_gpus(LOCAL_BY_BROADCAST), t.gpus - p.groups));
		must(near(total(LOCAL_LINK_GPU, LOCAL_UP, LOCAL_BY_COPY_OUT), p.groups));
		must(near(total(LOCAL_LINK_GPU, LOCAL_DOWN, LOCAL_BY_COPY_IN), p.groups));
		must(near(total(LOCAL_LINK_MEMORY, LOCAL_UP, LOCAL_BY_COPY_OUT), p.groups));
		must(near(total(LOCAL_LINK_MEMORY, LOCAL_DOWN, LOCAL_BY_COPY_IN), p.groups));
		must(near(total(LOCAL_LINK_MEMORY, LOCAL_DOWN, LOCAL_BY_SUM),
			  p.groups > 1 ? p.groups : 0));
		for (int way = LOCAL_UP; way <= LOCAL_DOWN; way++) {
			must(near(total(LOCAL_LINK_NET, way, LOCAL_BY_NETWORK), t.cards > 0));
			must(near(total(LOCAL_LINK_MEMORY, way, LOCAL_BY_NETWORK), t.cards > 0));
		}
	}
}
END_TEST

START_TEST(gpus_of_different_switches_never_copy_through_the_cpu)
{
	for (uint32_t machine = 0; machine < MACHINES; machine++) {
		seed = machine;
		any_machine(machine);
		for (uint32_t i = 0; i < p.links; i++) {
			const struct local_link *l = &p.link[i];
			bool top = l->kind == LOCAL_LINK_SWITCH &&
				   t.sw[l->a].at.sw == TOPO_NONE;

			for (int way = LOCAL_UP; way <= LOCAL_DOWN; way++)
				if (top || l->kind == LOCAL_LINK_SOCKETS ||
				    l->kind == LOCAL_LINK_MEMORY)
					must(l->load[way][LOCAL_BY_REDUCE] == 0 &&
					     l->load[way][LOCAL_BY_BROADCAST] == 0);
		}
	}
}
END_TEST

/* Every GPU copies everything to memory near a card and takes everything back. */
static double naive_time(void)
{
	double sw[TOPO_SWITCHES_MAX] = { 0 }, mem[TOPO_NODES_MAX] = { 0 }, time = 0;
	double across[2] = { 0 };	/* away from socket 0, and toward it */

	for (uint32_t c = 0; c < t.cards; c++) {
		const struct topo_card *k = &t.card[c];
		double share = p.card_share[c];

		for (uint32_t s = k->at.sw; s != TOPO_NONE; s = t.sw[s].at.sw)
			sw[s] += share;
		time = fmax(time, share * 8 / (double)MIN(k->net.bits_per_s, k->pcie.bits_per_s));
		/* copies in and out, sent and received, read and written by the sum */
		mem[k->at.node] += share * (2.0 * t.gpus + 2 +
					    (t.gpus > 1 ? t.gpus + 1.0 : 0));
		for (uint32_t g = 0; g < t.gpus; g++) {
			uint32_t of_gpu = t.node[t.gpu[g].at.node].socket;

			if (of_gpu != t.node[k->at.node].socket)
				across[of_gpu != 0] += share;
		}
	}
	for (uint32_t g = 0; g < t.gpus; g++) {
		time = fmax(time, 8 / (double)t.gpu[g].pcie.bits_per_s);
		for (uint32_t s = t.gpu[g].at.sw; s != TOPO_NONE; s = t.sw[s].at.sw)
			sw[s] += 1;
	}
	for (uint32_t s = 0; s < t.switches; s++)
		time = fmax(time, sw[s] * 8 / (double)t.sw[s].up.bits_per_s);
	for (uint32_t n = 0; n < t.nodes; n++)
		time = fmax(time, mem[n] * 8 / (double)t.node[n].memory.bits_per_s);
	/* out one way, back the other */
	return fmax(time, (across[0] + across[1]) * 8 / (double)t.sockets.bits_per_s);
}

START_TEST(never_slower_than_plain_copies)
{
	uint32_t faster = 0;

	for (uint32_t machine = 0; machine < MACHINES; machine++) {
		double naive;

		seed = machine;
		any_machine(machine);
		if (t.cards == 0 || t.gpus == 0)
			continue;
		naive = naive_time();
		must(p.s_per_byte <= naive * (1 + NEAR));
		faster += p.s_per_byte < naive * (1 - NEAR);
	}
	ck_assert_uint_gt(faster, MACHINES / 10);
}
END_TEST

START_TEST(the_same_machine_has_the_same_plan)
{
	struct err e;

	for (uint32_t machine = 0; machine < 200; machine++) {
		seed = machine;
		any_machine(machine);
		memset(&again, 0xff, sizeof(again));
		must(local_plan_make(&t, false, &again, &e) == 0);
		must(again.s_per_byte == p.s_per_byte && again.groups == p.groups);
		must(!memcmp(again.member, p.member, t.gpus * sizeof(p.member[0])));
		must(again.copies == p.copies && again.links == p.links);
		for (uint32_t i = 0; i < p.copies; i++)
			must(again.copy[i].share == p.copy[i].share &&
			     again.copy[i].gpu == p.copy[i].gpu &&
			     again.copy[i].card == p.copy[i].card);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("topo_laws");
	TCase *tc = tcase_create("random machines");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, every_byte_of_every_gpu_is_added_exactly_once);
	tcase_add_test(tc, loads_are_what_has_to_move_and_no_more);
	tcase_add_test(tc, gpus_of_different_switches_never_copy_through_the_cpu);
	tcase_add_test(tc, never_slower_than_plain_copies);
	tcase_add_test(tc, the_same_machine_has_the_same_plan);
	suite_add_tcase(s, tc);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
