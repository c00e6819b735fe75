// SPDX-License-Identifier: Apache-2.0
/*
 * common/lane: machines and an aggregator over a network that loses, doubles, delays and reorders
 * datagrams.  Every sum has the bits of kern_sum() over the inputs in the order of the machines.
 */
#include <check.h>
#include <stdlib.h>

#include "common/kern/kern.h"
#include "common/lane/hub.h"
#include "common/lane/lane.h"

#define KEY		0x5eed1234u
#define LANE_NO		3u
#define CELL		256u			/* bytes of payload */
#define ELEMENTS	(CELL / 4)
#define MEMBERS_MAX	8u
#define SEGMENTS	24u
#define WIRE_MAX	(CELL_BYTES + CELL)
#define FLIGHT_MAX	8192u

struct bad_net {
	uint32_t drop, twice;		/* of 1000 datagrams */
	mono_t delay, jitter, late;	/* late: how late some copies are */
	bool one_way;			/* only what machines send is lost */
};

struct flying {
	mono_t at;
	uint32_t to;			/* machine, or members: the server */
	uint32_t len;
	uint8_t wire[WIRE_MAX + CELL_WIDE_BYTES];
};

struct world {
	struct rng rng;
	struct bad_net net;
	mono_t now;
	uint32_t members, slots;
	uint64_t resident[BITS_WORDS(MEMBERS_MAX)];
	struct hub hub;
	struct lane lane[MEMBERS_MAX];
	void *memory[MEMBERS_MAX + 1];
	uint32_t cells[SEGMENTS], p0[SEGMENTS], total;
	float *input[MEMBERS_MAX], *result[MEMBERS_MAX];	/* of all segments in turn */
	uint32_t done[MEMBERS_MAX], granted[MEMBERS_MAX];
	struct flying *flying;
	uint32_t nflying;
	uint64_t lost;
};

static struct world *w;

static float any_float(struct rng *r)
{
	return (float)((double)rng_u64(r) / 1e9 - 9e9) * (rng_below(r, 2) ? 1e-12f : 1.0f);
}

static void world_new(uint64_t seed, uint32_t members, uint32_t slots, struct bad_net net)
{
	w = calloc(1, sizeof(*w));
	w->rng.state = seed;
	w->net = net;
	w->members = members;
	w->slots = slots;
	w->flying = calloc(FLIGHT_MAX, sizeof(*w->flying));
	for (uint32_t s = 0; s < SEGMENTS; s++) {
		w->p0[s] = w->total;
		w->total += w->cells[s] = 1 + (uint32_t)rng_below(&w->rng, 40);
	}
	w->memory[members] = aligned_alloc(64, (hub_bytes(AGG_EXACT, members, slots, CELL) + 63) &
					   ~(size_t)63);
	hub_init(&w->hub, w->memory[members], KEY, LANE_NO, AGG_EXACT, members, slots, CELL,
		 w->resident);
	for (uint32_t m = 0; m < members; m++) {
		w->memory[m] = calloc(1, lane_bytes(slots));
		lane_init(&w->lane[m], w->memory[m], slots, KEY, LANE_NO, (uint16_t)m);
		w->input[m] = calloc(w->total, CELL);
		w->result[m] = calloc(w->total, CELL);
		for (uint32_t i = 0; i < w->total * ELEMENTS; i++)
			w->input[m][i] = any_float(&w->rng);
	}
}

static void world_free(void)
{
	for (uint32_t m = 0; m < w->members; m++) {
		free(w->input[m]);
		free(w->result[m]);
		free(w->memory[m]);
	}
	free(w->memory[w->members]);
	free(w->flying);
	free(w);
}

static void fly(uint32_t to, const struct cell *f, const void *payload, uint32_t len, mono_t more)
{
	struct flying *d = &w->flying[w->nflying++];
	mono_t jitter = (mono_t)rng_below(&w->rng, (uint64_t)w->net.jitter + 1);

	ck_assert_uint_lt(w->nflying, FLIGHT_MAX);
	d->at = w->now + w->net.delay + more + jitter;
	d->to = to;
	d->len = CELL_BYTES + len;
	cell_encode(f, d->wire);
	if (len)
		memcpy(d->wire + CELL_BYTES, payload, len);
}

static void send_datagram(uint32_t to, const struct cell *f, const void *payload, uint32_t len)
{
	bool counts = !w->net.one_way || to == w->members;

	if (counts && rng_below(&w->rng, 1000) < w->net.drop)
		w->lost++;
	else
		fly(to, f, payload, len, 0);
	if (rng_below(&w->rng, 1000) < w->net.twice)
		fly(to, f, payload, len, w->net.late);
}

static void machine_turn(uint32_t m)
{
	struct lane *l = &w->lane[m];
	uint8_t wide[CELL_WIDE_BYTES];
	struct lane_cell what;
	struct cell f;

	while (lane_send(l, w->now, &f, &what)) {
		uint32_t at = w->p0[what.segment] + what.index;

		ck_assert_uint_eq(at, f.p);
		send_datagram(w->members, &f, w->input[m] + (size_t)at * ELEMENTS, CELL);
		lane_check(l);
	}
	while (lane_timer(l, w->now, &f, wide))
		send_datagram(w->members, &f, wide, f.flags & CELL_WIDE ? CELL_WIDE_BYTES : 0);
}

static void server_turn(void)
{
	uint8_t wide[CELL_WIDE_BYTES];
	const void *payload;
	struct cell f;
	uint32_t len;

	for (uint32_t m = 0; m < w->members; m++) {
		if (bits_test(w->resident, m))
			continue;
		while (hub_send(&w->hub, m, w->now, &f, &payload, &len))
			send_datagram(m, &f, payload, len);
		while (hub_timer(&w->hub, m, w->now, &f, wide))
			send_datagram(m, &f, wide, f.flags & CELL_WIDE ? CELL_WIDE_BYTES : 0);
	}
	hub_check(&w->hub);
}

static void complete(uint32_t p)
{
	const void *inputs[MEMBERS_MAX] = { NULL };
	const void *sum;

	for (uint32_t m = 0; m < w->members; m++)
		inputs[m] = w->input[m] + (size_t)p * ELEMENTS;
	sum = agg_sum(&w->hub.agg, p, DTYPE_F32, w->members, inputs);
	for (uint32_t m = 0; m < w->members; m++)
		if (bits_test(w->resident, m))
			memcpy(w->result[m] + (size_t)p * ELEMENTS, sum, CELL);
	hub_summed(&w->hub, p);
}

static void arrive(const struct flying *d)
{
	struct lane_cell what;
	struct cell f;

	ck_assert_int_eq(cell_read(d->wire, d->len, &f), 0);
	if (d->to == w->members) {
		if (hub_take(&w->hub, &f, d->wire + CELL_BYTES, d->len - CELL_BYTES, w->now) ==
		    HUB_COMPLETE)
			complete(f.p);
		hub_check(&w->hub);
		return;
	}
	if (lane_take(&w->lane[d->to], &f, f.flags & CELL_WIDE ? d->wire + CELL_BYTES : NULL,
		      w->now, &what) == LANE_SUM) {
		uint32_t at = w->p0[what.segment] + what.index;

		memcpy(w->result[d->to] + (size_t)at * ELEMENTS, d->wire + CELL_BYTES, CELL);
		w->done[d->to] += what.last;
	}
	lane_check(&w->lane[d->to]);
}

/* Segments are granted two at a time, the later one first, as mail over two links may come. */
static void grant_more(uint32_t m)
{
	struct lane *l = &w->lane[m];

	while (w->granted[m] < SEGMENTS && l->ngrants < 6) {
		uint32_t s = w->granted[m] ^ 1;

		ck_assert_int_eq(lane_grant(l, s, w->p0[s], w->cells[s]), 0);
		w->granted[m]++;
	}
}

static bool all_done(void)
{
	for (uint32_t m = 0; m < w->members; m++)
		if (!bits_test(w->resident, m) && w->done[m] < SEGMENTS)
			return false;
	return true;
}

/* The next moment at which something happens. */
static mono_t next_time(void)
{
	mono_t next = MONO_NEVER;

	for (uint32_t i = 0; i < w->nflying; i++)
		next = MIN(next, w->flying[i].at);
	for (uint32_t m = 0; m < w->members; m++)
		if (!bits_test(w->resident, m))
			next = MIN(next, MIN(lane_next(&w->lane[m]), hub_next(&w->hub, m)));
	return next;
}

static void step(void)
{
	for (uint32_t i = 0; i < w->nflying;) {
		struct flying d = w->flying[i];

		if (d.at > w->now) {
			i++;
			continue;
		}
		w->flying[i] = w->flying[--w->nflying];
		arrive(&d);
	}
	server_turn();
	for (uint32_t m = 0; m < w->members; m++) {
		if (bits_test(w->resident, m))
			continue;
		ck_assert(!lane_failed(&w->lane[m], w->now));
		grant_more(m);
		machine_turn(m);
	}
}

static void run_to_end(void)
{
	for (uint32_t turns = 0; !all_done(); turns++) {
		ck_assert_uint_lt(turns, 2000000);
		step();
		if (!all_done())
			w->now = MAX(w->now + 1, next_time());
	}
}

static void expect_sums(void)
{
	float *want = calloc(w->total, CELL);
	const void *in[MEMBERS_MAX];

	for (uint32_t m = 0; m < w->members; m++)
		in[m] = w->input[m];
	kern_sum(DTYPE_F32, want, in, w->members, (size_t)w->total * ELEMENTS, w->members);
	for (uint32_t m = 0; m < w->members; m++)
		ck_assert_mem_eq(w->result[m], want, (size_t)w->total * CELL);
	free(want);
}

static const struct {
	const char *name;
	uint32_t members, slots;
	struct bad_net net;
} nets[] = {
	{ "quiet", 4, 64, { .delay = 100000 } },
	{ "loses 1 %", 4, 64, { .drop = 10, .delay = 100000 } },
	{ "loses 10 %", 4, 16, { .drop = 100, .delay = 100000 } },
	{ "loses 30 %", 2, 16, { .drop = 300, .delay = 50000 } },
	{ "reorders", 3, 32, { .delay = 100000, .jitter = 3000000 } },
	{ "doubles, seconds late", 4, 16, { .drop = 20, .twice = 100, .delay = 100000,
					    .late = 2000000000 } },
	{ "all of it", 8, 16, { .drop = 100, .twice = 100, .delay = 100000, .jitter = 3000000,
				.late = 5000000 } },
	{ "one direction only", 4, 32, { .drop = 50, .delay = 100000, .one_way = true } },
	{ "one machine", 1, 16, { .drop = 50, .delay = 100000 } },
};

#define SEEDS 12

START_TEST(every_sum_has_the_bits_of_the_inputs_in_worker_order)
{
	int net = _i / SEEDS;

	world_new((uint64_t)_i + 1, nets[net].members, nets[net].slots, nets[net].net);
	run_to_end();
	expect_sums();
	world_free();
}
END_TEST

START_TEST(resident_machine_takes_part_without_cells)
{
	world_new(7, 4, 32, (struct bad_net){ .drop = 30, .delay = 100000 });
	bits_set(w->resident, 2);
	hub_init(&w->hub, w->memory[4], KEY, LANE_NO, AGG_EXACT, 4, 32, CELL, w->resident);
	run_to_end();
	expect_sums();
	ck_assert_uint_eq(w->lane[2].sent, 0);
	world_free();
}
END_TEST

/* What is sent again is what was lost, and little more. */
START_TEST(quiet_network_sees_no_retransmit_and_loss_costs_what_was_lost)
{
	uint64_t resent = 0;

	world_new(1, 4, 64, nets[0].net);
	run_to_end();
	for (uint32_t m = 0; m < 4; m++)
		resent += w->lane[m].resent;
	ck_assert_uint_eq(resent + w->hub.resent, 0);
	world_free();

	world_new(1, 4, 64, nets[1].net);
	run_to_end();
	for (uint32_t m = 0; m < 4; m++)
		resent += w->lane[m].resent;
	resent += w->hub.resent;
	ck_assert_uint_gt(w->lost, 10);
	ck_assert_uint_le(resent, 2 * w->lost);
	world_free();
}
END_TEST

START_TEST(lane_without_answers_fails_after_its_deadline_and_not_before)
{
	mono_t began;

	world_new(1, 1, 16, (struct bad_net){ .drop = 1000, .delay = 100000 });
	grant_more(0);
	machine_turn(0);
	began = lane_next(&w->lane[0]);
	for (w->now = began; !lane_failed(&w->lane[0], w->now); w->now = lane_next(&w->lane[0])) {
		ck_assert_int_lt(w->now - began, mono_ms(LANE_DEAD_MS) + 1);
		machine_turn(0);
	}
	ck_assert_int_ge(w->now - began, mono_ms(LANE_DEAD_MS));
	world_free();
}
END_TEST

START_TEST(cells_of_another_key_lane_or_machine_are_strange_and_change_nothing)
{
	static const uint8_t payload[CELL];
	struct cell f = { .type = CELL_ADD, .key = KEY, .lane = LANE_NO, .pn = 1 };
	struct lane_cell what;
	struct cell bad;

	world_new(1, 2, 16, nets[0].net);
	for (int i = 0; i < 5; i++) {
		bad = f;
		bad.key ^= i == 0;
		bad.lane ^= i == 1;
		bad.worker = i == 2 ? 2 : i == 3 ? CELL_FROM_SERVER : 0;
		bad.type = i == 4 ? CELL_SUM : CELL_ADD;
		ck_assert_int_eq(hub_take(&w->hub, &bad, payload, CELL, 0), HUB_STRANGE);
		bad = f;
		bad.type = i == 4 ? CELL_ADD : CELL_SUM;
		bad.worker = i == 2 ? 0 : CELL_FROM_SERVER;
		bad.key ^= i == 0 || i == 3;
		bad.lane ^= i == 1;
		ck_assert_int_eq(lane_take(&w->lane[0], &bad, NULL, 0, &what), LANE_STRANGE);
	}
	ck_assert_uint_eq(w->hub.strange, 5);
	ck_assert(!agg_misses(&w->hub.agg, 0, 1));
	world_free();
}
END_TEST

START_TEST(grant_of_positions_that_are_taken_is_refused)
{
	world_new(1, 1, 16, nets[0].net);
	ck_assert_int_eq(lane_grant(&w->lane[0], 1, 0, 10), 0);
	ck_assert_int_eq(lane_grant(&w->lane[0], 2, 9, 1), TALLY_EPROTO);
	ck_assert_int_eq(lane_grant(&w->lane[0], 2, 5, 100), TALLY_EPROTO);
	ck_assert_int_eq(lane_grant(&w->lane[0], 2, UINT32_MAX, 1), TALLY_EPROTO);
	ck_assert_int_eq(lane_grant(&w->lane[0], 2, 20, 0), TALLY_EPROTO);
	for (uint32_t i = 1; i < LANE_GRANTS_MAX; i++)
		ck_assert_int_eq(lane_grant(&w->lane[0], i, 10 * i, 10), 0);
	ck_assert_int_eq(lane_grant(&w->lane[0], 9, 10 * LANE_GRANTS_MAX, 1), TALLY_EQUOTA);
	lane_check(&w->lane[0]);
	world_free();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane");
	TCase *t = tcase_create("all");
	SRunner *r;
	int failed;

	kern_init(~0u);
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, every_sum_has_the_bits_of_the_inputs_in_worker_order, 0,
			    SEEDS * (int)ARRAY_SIZE(nets));
	tcase_add_test(t, resident_machine_takes_part_without_cells);
	tcase_add_test(t, quiet_network_sees_no_retransmit_and_loss_costs_what_was_lost);
	tcase_add_test(t, lane_without_answers_fails_after_its_deadline_and_not_before);
	tcase_add_test(t, cells_of_another_key_lane_or_machine_are_strange_and_change_nothing);
	tcase_add_test(t, grant_of_positions_that_are_taken_is_refused);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
