// SPDX-License-Identifier: Apache-2.0
/*
 * test_sched_plan.c - what nodes say when they register is what the planner plans for.
 *
 * Each case writes the cluster down twice: as nodes that say hello, and as the planner's
 * machines, with the shares that come of them.
 */
#include "tests/unit/sched_rig.h"

#define MODEL	1e9		/* bytes; shares do not depend on it */
#define GB	UINT64_C(1000000000)
#define NODES	8u

/* A node; and by a server: the planner's machine that it is on, and its part of that share. */
struct one {
	enum node_kind kind;
	const char *name, *machine;
	uint64_t card, second, adder;	/* bits, bits, bytes per second */
	uint32_t on;
	double part;
};

static void register_all(const struct one *o, uint32_t n, uint32_t *conn)
{
	for (uint32_t i = 0; i < n; i++) {
		card_bits_per_s = o[i].card;
		second_bits_per_s = o[i].second;
		hello_adder = o[i].adder;
		conn[i] = hello_from(o[i].kind, o[i].name, o[i].machine, (uint8_t)(i + 1), "");
	}
}

/* Each agent has a rank. */
static const struct record *job_up(const struct one *o, uint32_t n)
{
	uint32_t conn[NODES], world = 0, rank = 0, server = 0;

	register_all(o, n, conn);
	for (uint32_t i = 0; i < n; i++)
		world += o[i].kind == NODE_AGENT;
	for (uint32_t i = 0; i < n; i++) {
		if (o[i].kind == NODE_AGENT)
			join(conn[i], 1, world, rank++);
		else
			server = conn[i];
	}
	return last(server, MSG_JOB_UP);
}

static void check_weights(const struct one *o, uint32_t n, const struct plan_machine *m,
			  uint32_t machines)
{
	const struct record *up = job_up(o, n);
	double share[NODES], each[NODES];
	uint32_t servers = 0, weight[NODES];
	struct plan plan;
	struct err e;

	ck_assert_int_eq(plan_solve(m, machines, MODEL, share, &plan, &e), 0);
	for (uint32_t i = 0; i < n; i++) {
		if (o[i].kind == NODE_SERVER)
			each[servers++] = share[o[i].on] * o[i].part;
	}
	plan_weights(each, servers, weight);
	ck_assert_uint_eq(up->nservers, servers);
	for (uint32_t i = 0; i < servers; i++) {	/* but for the doubles' rounding */
		ck_assert_uint_gt(weight[i], 100);
		ck_assert_uint_le(MAX(up->weight[i], weight[i]) -
				  MIN(up->weight[i], weight[i]), 100);
	}
}

/* Two agents with a server beside them, a server with two cards, one that adds slowly. */
START_TEST(cards_adders_and_places_of_servers_are_what_is_planned_for)
{
	static const struct one nodes[] = {
		{ NODE_AGENT, "a", "a", 10 * GB },
		{ NODE_AGENT, "b", "b", 4 * GB, 4 * GB },
		{ NODE_AGENT, "c", "c", 6 * GB },
		{ NODE_AGENT, "d", "d", 5 * GB },
		{ NODE_SERVER, "at-a", "a", 40 * GB, 0, 10 * GB, 0, 1 },	/* a has 10 */
		{ NODE_SERVER, "at-b", "b", 8 * GB, 0, 10 * GB, 1, 1 },
		{ NODE_SERVER, "rails", "e", GB, 3 * GB, 10 * GB, 4, 1 },
		{ NODE_SERVER, "slow", "f", 10 * GB, 0, GB / 4, 5, 1 },
	};
	static const struct plan_machine machines[] = {
		{ .is_gpu = true, .has_server = true, .bits_per_s = 10 * GB,
		  .adder_bytes_per_s = 10 * GB },
		{ .is_gpu = true, .has_server = true, .bits_per_s = 8 * GB,
		  .adder_bytes_per_s = 10 * GB },
		{ .is_gpu = true, .bits_per_s = 6 * GB },
		{ .is_gpu = true, .bits_per_s = 5 * GB },
		{ .has_server = true, .bits_per_s = 4 * GB, .adder_bytes_per_s = 10 * GB },
		{ .has_server = true, .bits_per_s = 10 * GB, .adder_bytes_per_s = GB / 4 },
	};

	check_weights(nodes, ARRAY_SIZE(nodes), machines, ARRAY_SIZE(machines));
}
END_TEST

/* Together they add what both do, over the faster one's card; each has what it adds of it. */
START_TEST(servers_of_one_machine_divide_its_share_by_how_fast_they_add)
{
	static const struct one nodes[] = {
		{ NODE_AGENT, "a", "a", 10 * GB },
		{ NODE_AGENT, "b", "b", 10 * GB },
		{ NODE_AGENT, "c", "c", 10 * GB },
		{ NODE_SERVER, "s0", "m", 8 * GB, 0, GB / 2, 3, 0.25 },
		{ NODE_SERVER, "s1", "m", 10 * GB, 0, 3 * GB / 2, 3, 0.75 },
		{ NODE_SERVER, "s2", "o", 10 * GB, 0, 10 * GB, 4, 1 },
	};
	static const struct plan_machine machines[] = {
		{ .is_gpu = true, .bits_per_s = 10 * GB },
		{ .is_gpu = true, .bits_per_s = 10 * GB },
		{ .is_gpu = true, .bits_per_s = 10 * GB },
		{ .has_server = true, .bits_per_s = 10 * GB, .adder_bytes_per_s = 2 * GB },
		{ .has_server = true, .bits_per_s = 10 * GB, .adder_bytes_per_s = 10 * GB },
	};

	check_weights(nodes, ARRAY_SIZE(nodes), machines, ARRAY_SIZE(machines));
}
END_TEST

START_TEST(an_adder_that_is_not_known_is_no_limit_and_its_machine_is_divided_evenly)
{
	static const struct one nodes[] = {
		{ NODE_AGENT, "a", "a", 10 * GB },
		{ NODE_AGENT, "b", "b", 10 * GB },
		{ NODE_AGENT, "c", "c", 10 * GB },
		{ NODE_SERVER, "s0", "m", 10 * GB, 0, GB / 8, 3, 0.5 },
		{ NODE_SERVER, "s1", "m", 10 * GB, 0, 0, 3, 0.5 },
		{ NODE_SERVER, "s2", "o", 10 * GB, 0, GB, 4, 1 },
	};
	static const struct plan_machine machines[] = {
		{ .is_gpu = true, .bits_per_s = 10 * GB },
		{ .is_gpu = true, .bits_per_s = 10 * GB },
		{ .is_gpu = true, .bits_per_s = 10 * GB },
		{ .has_server = true, .bits_per_s = 10 * GB },
		{ .has_server = true, .bits_per_s = 10 * GB, .adder_bytes_per_s = GB },
	};

	check_weights(nodes, ARRAY_SIZE(nodes), machines, ARRAY_SIZE(machines));
}
END_TEST

/* Each agent has one of them; what is left over sums as a machine of its own. */
START_TEST(agents_of_one_machine_share_its_servers_out)
{
	static const struct one nodes[] = {
		{ NODE_AGENT, "a", "m", 10 * GB },
		{ NODE_AGENT, "b", "m", 8 * GB },
		{ NODE_AGENT, "c", "c", 5 * GB },
		{ NODE_SERVER, "s0", "m", 10 * GB, 0, 10 * GB, 0, 1 },
		{ NODE_SERVER, "s1", "m", 10 * GB, 0, 10 * GB, 1, 1 },
		{ NODE_SERVER, "s2", "m", 3 * GB, 0, 10 * GB, 3, 1 },
	};
	static const struct plan_machine machines[] = {
		{ .is_gpu = true, .has_server = true, .bits_per_s = 10 * GB,
		  .adder_bytes_per_s = 10 * GB },
		{ .is_gpu = true, .has_server = true, .bits_per_s = 8 * GB,
		  .adder_bytes_per_s = 10 * GB },
		{ .is_gpu = true, .bits_per_s = 5 * GB },
		{ .has_server = true, .bits_per_s = 3 * GB, .adder_bytes_per_s = 10 * GB },
	};

	check_weights(nodes, ARRAY_SIZE(nodes), machines, ARRAY_SIZE(machines));
}
END_TEST

/* One for each of its processors, say: they have one card, the agent's. */
START_TEST(servers_beside_one_agent_divide_its_machines_share)
{
	static const struct one nodes[] = {
		{ NODE_AGENT, "a", "a", 10 * GB },
		{ NODE_AGENT, "b", "b", 10 * GB },
		{ NODE_AGENT, "c", "c", 10 * GB },
		{ NODE_SERVER, "s0", "a", 10 * GB, 0, 2 * GB, 0, 0.5 },
		{ NODE_SERVER, "s1", "a", 10 * GB, 0, 2 * GB, 0, 0.5 },
		{ NODE_SERVER, "s2", "b", 10 * GB, 0, 4 * GB, 1, 1 },
		{ NODE_SERVER, "s3", "o", 10 * GB, 0, 10 * GB, 3, 1 },
	};
	static const struct plan_machine machines[] = {
		{ .is_gpu = true, .has_server = true, .bits_per_s = 10 * GB,
		  .adder_bytes_per_s = 4 * GB },
		{ .is_gpu = true, .has_server = true, .bits_per_s = 10 * GB,
		  .adder_bytes_per_s = 4 * GB },
		{ .is_gpu = true, .bits_per_s = 10 * GB },
		{ .has_server = true, .bits_per_s = 10 * GB, .adder_bytes_per_s = 10 * GB },
	};

	check_weights(nodes, ARRAY_SIZE(nodes), machines, ARRAY_SIZE(machines));
}
END_TEST

/* Fast cards need more of it, a server with little memory has less. */
START_TEST(windows_follow_the_cards)
{
	static const struct {
		uint64_t bits;
		uint32_t window;
	} want[] = {
		{ 100000000, WINDOW_BYTES_MIN }, { 1000000000, 4u << 20 },
		{ 2500000000, 8u << 20 }, { 100000000000, WINDOW_BYTES_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		uint32_t a, b, s;

		card_bits_per_s = want[i].bits;
		a = hello(NODE_AGENT, "a");
		b = hello(NODE_AGENT, "b");
		s = hello(NODE_SERVER, "s");
		join(a, 1, 2, 0);
		join(b, 1, 2, 1);
		ck_assert_uint_eq(last(s, MSG_JOB_UP)->window, want[i].window);
		conn_closed(a);
		conn_closed(b);
		conn_closed(s);
		pass(2 * LEASE_MS);
	}
	card_bits_per_s = 1000000000;
}
END_TEST

START_TEST(a_window_is_as_asked_for_where_memory_allows)
{
	static const struct {
		uint32_t asked;
		uint64_t memory;	/* of two agents' server */
		uint32_t window;
	} want[] = {
		{ 5u << 20, 1ull << 30, 5u << 20 }, { WINDOW_BYTES_MAX, 1ull << 30, 16u << 20 },
		{ WINDOW_BYTES_MAX, 100ull << 20, 8u << 20 }, { 6u << 20, 0, 6u << 20 },
		{ 5u << 20, 32ull << 20, WINDOW_BYTES_MIN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		uint32_t a, b, s;

		teardown();
		window_bytes = want[i].asked;
		hello_memory = want[i].memory;
		setup();
		a = hello(NODE_AGENT, "a");
		b = hello(NODE_AGENT, "b");
		s = hello(NODE_SERVER, "s");
		join(a, 1, 2, 0);
		join(b, 1, 2, 1);
		ck_assert_uint_eq(last(s, MSG_JOB_UP)->window, want[i].window);
	}
	window_bytes = 0;
	hello_memory = 1ull << 30;
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, cards_adders_and_places_of_servers_are_what_is_planned_for);
	tcase_add_test(t, servers_of_one_machine_divide_its_share_by_how_fast_they_add);
	tcase_add_test(t, an_adder_that_is_not_known_is_no_limit_and_its_machine_is_divided_evenly);
	tcase_add_test(t, agents_of_one_machine_share_its_servers_out);
	tcase_add_test(t, servers_beside_one_agent_divide_its_machines_share);
	tcase_add_test(t, windows_follow_the_cards);
	tcase_add_test(t, a_window_is_as_asked_for_where_memory_allows);
}

int main(void)
{
	return rig_main("sched_plan", add);
}
