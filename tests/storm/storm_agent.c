// SPDX-License-Identifier: Apache-2.0
/*
 * storm_agent.c - an agent's core, and servers that send any frame.
 *
 * Machine 1 of 3 with two local ranks, two servers, three tensors.  The servers answer as they
 * should, or ask for, hold, take back, refuse and seek what nobody has, give results of rounds
 * that there are not, or lose their links while pushes and results are under way.  Inputs, sums
 * and results have exactly their size, so that a sanitizer sees one byte too far.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/kern/kern.h"
#include "tests/storm/storm.h"
#include "worker-agent/agent_core.h"

enum {
	JOB = 4, EPOCH = 6, SEG = 4096, CHUNKS = 4, TENSORS = 3, ME = 1, LOCAL = 2, PEERS = 2,
	FLYING = 6, PAST = 16, STEPS = 400,
};

struct tensor {
	struct ag_tensor *t;
	uint64_t bytes;
	uint8_t *input[LOCAL], *sum, *result[2];
	uint64_t *mark[2];
	uint32_t route[CHUNKS];
	uint32_t round, posted;		/* the one that goes on; ranks that gave theirs: bits */
};

struct landing {
	struct frame f;
	struct ag_peer *peer;
	void *at;
};

struct flying {
	struct ag_seg *seg;
	struct ag_peer *peer;
	uint32_t len;
};

struct world {
	struct storm *storm;
	struct ag_core core;
	struct ag_job job;
	struct ag_peer peer[PEERS];
	struct ag_route *route[PEERS];
	struct tensor tensor[TENSORS];
	struct landing landing[FLYING];
	struct flying flying[FLYING];
	struct frame past[PAST];
	uint32_t npast;
	uint64_t seq;
	mono_t now;
};

static uint32_t below(struct world *w, uint32_t n)
{
	return storm_below(w->storm, n);
}

static bool one_in(struct world *w, uint32_t n)
{
	return storm_one_in(w->storm, n);
}

/* ---- what the agent has ---- */

static void tensor_open(struct world *w, uint32_t k)
{
	struct tensor *x = &w->tensor[k];
	struct ag_tensor_desc d = {
		.id = k + 1, .dtype = one_in(w, 2) ? DTYPE_I32 : DTYPE_F32, .route = x->route,
		.sum_slot = SLOT_SLAB(9, 0), .whole = one_in(w, 2),
	};
	uint64_t n;

	x->bytes = 8u * (1 + below(w, CHUNKS * SEG / 8));
	d.geom = (struct geom){ x->bytes, SEG, SEG };
	n = ag_marks(&d.geom);
	for (uint32_t i = 0; i < CHUNKS; i++)
		x->route[i] = below(w, PEERS);
	x->sum = d.sum = calloc(1, x->bytes);
	for (uint32_t i = 0; i < 2; i++) {
		x->input[i] = calloc(1, x->bytes);
		x->result[i] = d.result[i] = calloc(1, x->bytes);
		x->mark[i] = d.mark[i] = calloc(n + 1, sizeof(uint64_t));
		d.result_slot[i] = SLOT_SLAB(k + 1, i * (uint64_t)CHUNKS * SEG);
	}
	ASSERT(ag_desc_resume(&d, 0));
	x->t = ag_tensor_add(&w->core, &w->job, calloc(1, ag_tensor_size(&w->job, &d)), &d);
	x->round = 1;
}

static void tensor_close(struct world *w, struct tensor *x)
{
	ag_tensor_forget(&w->core, x->t);
	free(x->t);
	free(x->sum);
	for (uint32_t i = 0; i < 2; i++) {
		free(x->input[i]);
		free(x->result[i]);
		free(x->mark[i]);
	}
}

static void open_world(struct world *w)
{
	struct ag_job_desc d = {
		.id = JOB, .n = 3, .me = ME, .nlocal = LOCAL, .world = 3 * LOCAL, .epoch = EPOCH,
		.chunk_bytes = SEG, .seg_bytes = SEG, .nroutes = PEERS, .route = w->route,
	};
	uint64_t window = (2 + below(w, 8)) * (uint64_t)SEG;

	kern_init(~0u);
	w->now = 10 * NS_PER_SEC;
	ag_init(&w->core);
	for (uint32_t i = 0; i < PEERS; i++) {
		ag_peer_init(&w->core, &w->peer[i], 77 + i, 0);
		w->route[i] = ag_route_init(calloc(1, ag_route_size(window)), &w->peer[i], 0,
					    window, w->now);
	}
	ag_job_start(&w->core, &w->job, &d);
	for (uint32_t k = 0; k < TENSORS; k++)
		tensor_open(w, k);
}

static void close_world(struct world *w)
{
	ag_check(&w->core);
	ag_job_stop(&w->core, &w->job);
	for (uint32_t i = 0; i < FLYING; i++) {
		if (w->landing[i].at)
			ag_unplace(&w->core, &w->landing[i].f);
		if (w->flying[i].seg)
			ag_sent(&w->core, w->flying[i].peer, w->flying[i].seg, w->flying[i].len,
				w->now);
	}
	for (uint32_t k = 0; k < TENSORS; k++)
		tensor_close(w, &w->tensor[k]);
	ag_job_forget(&w->core, &w->job);
	while (!list_empty(&w->job.routes)) {
		struct ag_route *r = list_first(&w->job.routes, struct ag_route, link);

		ag_route_del(r);
		free(r);
	}
}

/* ---- what its ranks and links do ---- */

static void post(struct world *w)
{
	uint32_t k = below(w, TENSORS), local = below(w, LOCAL);
	struct tensor *x = &w->tensor[k];
	struct ag_post p = {
		.round = x->round, .local = local, .rop = ROP_SUM, .root_local = -1,
		.priority = (int32_t)below(w, 3), .seq = w->seq++, .length = (uint32_t)x->bytes,
		.base = x->input[local], .base_slot = SLOT_SLAB(20 + local, 0),
	};

	if (x->posted & 1u << local)
		return;
	x->posted |= 1u << local;
	ag_post(&w->core, x->t, &p, w->now);
}

static void take_done(struct world *w)
{
	struct ag_tensor *t;

	while ((t = ag_done(&w->core)) != NULL) {
		struct tensor *x = &w->tensor[t->id - 1];

		ASSERT(x->posted == (1u << LOCAL) - 1);	/* never before all have given */
		x->posted = 0;
		x->round = round_next(x->round);
		w->storm->good++;
	}
}

static void sent(struct world *w, struct flying *f)
{
	if (f->seg)
		ag_sent(&w->core, f->peer, f->seg, f->len, w->now);
	f->seg = NULL;
}

static void send(struct world *w)
{
	volatile uint8_t sum = 0;
	struct ag_send s;

	ag_work(&w->core, 1u << 20);
	for (uint32_t n = 0; n < 6 && ag_next(&w->core, w->now, &s); n++) {
		uint32_t i = 0;

		w->past[w->npast++ % PAST] = s.frame;
		if (!s.data)
			continue;
		for (uint32_t k = 0; k < s.frame.length; k++)
			sum = (uint8_t)(sum + ((const uint8_t *)s.data)[k]);
		while (i < FLYING && w->flying[i].seg)
			i++;
		if (i == FLYING || one_in(w, 2))
			ag_sent(&w->core, s.peer, s.seg, s.frame.length, w->now);
		else
			w->flying[i] = (struct flying){ s.seg, s.peer, s.frame.length };
		ag_check(&w->core);
	}
}

static void landed(struct world *w, struct landing *l, bool broke)
{
	if (!l->at)
		return;
	l->at = NULL;
	if (broke)
		ag_unplace(&w->core, &l->f);
	else
		ag_frame(&w->core, l->peer, &l->f, w->now);
}

static void link_change(struct world *w, struct ag_peer *p)
{
	if (!p->up) {
		ag_peer_up(&w->core, p, one_in(w, 4), w->now);
		return;
	}
	if (one_in(w, 2)) {
		ag_peer_hurt(&w->core, p);
		return;
	}
	for (uint32_t i = 0; i < FLYING; i++) {
		if (w->landing[i].peer == p)
			landed(w, &w->landing[i], true);
		if (w->flying[i].peer == p)
			sent(w, &w->flying[i]);
	}
	ag_peer_down(&w->core, p);
}

/* ---- frames ---- */

static struct frame a_frame(struct world *w)
{
	static const uint8_t types[] = {
		FRAME_RESULT, FRAME_RESULT, FRAME_HELD, FRAME_ASK, FRAME_CANCELLED, FRAME_REFUSED,
		FRAME_SEEK,
	};
	uint32_t k = below(w, TENSORS);
	const struct tensor *x = &w->tensor[k];
	struct frame f = {
		.type = one_in(w, 16) ? (uint8_t)(1 + below(w, FRAME_TYPE_END - 1))
				      : types[below(w, ARRAY_SIZE(types))],
		.worker = one_in(w, 16) ? (uint16_t)below(w, 65536) : ME,
		.job = one_in(w, 16) ? below(w, 9) : JOB,
		.tensor = one_in(w, 16) ? below(w, 9) : k + 1,
		.chunk = one_in(w, 12) ? below(w, 99) : below(w, CHUNKS), .epoch = EPOCH,
		.round = x->round, .attempt = (uint8_t)below(w, 3), .aux = below(w, 40),
		.offset = one_in(w, 16) ? below(w, 3) * SEG : 0,
		.slot = one_in(w, 3) ? below(w, 2) : SLOT_NONE,
		.rslot = below(w, 3) * (uint64_t)SEG,
	};

	if (one_in(w, 8))
		f.round = one_in(w, 2) ? round_next(f.round) : below(w, 3);
	if (one_in(w, 16))
		f.epoch = below(w, 9);
	if (f.type == FRAME_RESULT || one_in(w, 12)) {
		uint64_t at = (uint64_t)f.chunk * SEG;

		f.dtype = x->t->dtype;
		f.rop = one_in(w, 12) ? (uint8_t)below(w, ROP_END) : ROP_SUM;
		f.length = at < x->bytes ? (uint32_t)MIN(x->bytes - at, SEG) : SEG;
		if (one_in(w, 16))
			f.length = below(w, SEG + 1);
		if (one_in(w, 6) && f.type == FRAME_RESULT)
			f.flags = FRAME_BYREF;
	}
	return f;
}

/* The answer to what was sent, or something near it. */
static struct frame an_answer(struct world *w)
{
	static const uint8_t types[] = {
		FRAME_RESULT, FRAME_RESULT, FRAME_RESULT, FRAME_HELD, FRAME_ASK, FRAME_CANCELLED,
		FRAME_REFUSED, FRAME_SEEK,
	};
	struct frame f = w->past[below(w, MIN(w->npast, PAST))];

	f.type = types[below(w, ARRAY_SIZE(types))];
	f.flags = 0;
	f.slot = SLOT_NONE;
	if (f.type == FRAME_RESULT && !f.length && f.chunk < CHUNKS && f.tensor <= TENSORS)
		f.length = SEG;
	if (one_in(w, 8))
		f.attempt++;
	if (one_in(w, 8))
		f.round = round_next(f.round);
	if (f.type != FRAME_RESULT)
		f.length = 0;
	return f;
}

static void say(struct world *w, struct ag_peer *p)
{
	struct frame f = w->npast && one_in(w, 2) ? an_answer(w) : a_frame(w), known;
	uint8_t wire[FRAME_BYTES];
	void *at;

	frame_encode(&f, wire);
	if (!p->up || frame_decode(wire, &known))
		return;
	w->storm->messages++;
	if (w->storm->trace) {
		char text[256];

		printf("%u: %s\n", (uint32_t)(p - w->peer), frame_text(&known, text, sizeof(text)));
		fflush(stdout);
	}
	if (!frame_has_payload(&known)) {
		ag_frame(&w->core, p, &known, w->now);
		return;
	}
	if (one_in(w, 2)) {
		static const uint8_t read[SEG];

		if (known.length <= SEG)
			ag_take(&w->core, p, &known, read, w->now);
		return;
	}
	at = ag_place(&w->core, p, &known, w->now);
	ag_check(&w->core);
	if (!at)
		return;
	memset(at, 0, known.length);
	for (uint32_t i = 0; i < FLYING && one_in(w, 4); i++) {
		if (w->landing[i].at)
			continue;
		w->landing[i] = (struct landing){ known, p, at };
		return;
	}
	ag_frame(&w->core, p, &known, w->now);
}

/* ---- a run ---- */

static void turn(struct world *w)
{
	struct ag_peer *p = &w->peer[below(w, PEERS)];
	uint32_t what = below(w, 64);

	if (what < 8)
		post(w);
	else if (what < 18)
		send(w);
	else if (what < 20 || (!p->up && what < 30))
		link_change(w, p);
	else if (what < 24)
		landed(w, &w->landing[below(w, FLYING)], one_in(w, 4));
	else if (what < 28)
		sent(w, &w->flying[below(w, FLYING)]);
	else if (what < 32) {
		w->now += mono_ms(below(w, 3000));
		ag_tick(&w->core, w->now);
	} else
		say(w, p);
	ag_check(&w->core);
	take_done(w);
	ag_check(&w->core);
}

void storm_agent(struct storm *st)
{
	struct world *w = calloc(1, sizeof(*w));

	ASSERT(w);
	w->storm = st;
	open_world(w);
	for (uint32_t i = 0; i < STEPS && !st->over && !w->job.fail_code; i++)
		turn(w);
	close_world(w);
	free(w);
}
