// SPDX-License-Identifier: Apache-2.0
/*
 * storm_server.c - a server's core, and agents that send any frame.
 *
 * Frames are as they come out of frame_decode(): known types, lengths within limits.  Peers speak
 * for machines that they are not, of tensors and rounds that there are not, take back what they
 * have not pushed, answer what nobody asked, and lose their links while payloads land and results
 * are under way.  Between these jobs are started and stopped, tensors come and leave by epochs,
 * machines are lost.  Windows, results and what peers lend have exactly their size, so that a
 * sanitizer sees one byte too far.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/kern/kern.h"
#include "server/server_core.h"
#include "tests/storm/storm.h"

enum {
	N = 3, PEERS = 5, TENSORS = 4, SEG = 4096, WINDOW = 32 * SEG, FLYING = 6, STEPS = 400,
	NODE = 50, CHUNKS = 3, PAST = 16,
};

struct held_tensor {
	struct srv_tensor *t;
	void *mem;
	uint8_t *slots;
	bool removed;
};

struct landing {
	struct frame f;
	struct srv_peer *peer;
	void *at;
};

struct flying {
	struct srv_in *in;
	struct srv_peer *peer;
};

struct world {
	struct storm *storm;
	struct srv_core core;
	struct srv_job *job;
	uint32_t id, epoch, last_id;
	uint8_t *window[N];
	struct held_tensor tensor[TENSORS];
	struct srv_peer peer[PEERS];
	struct landing landing[FLYING];
	struct flying flying[FLYING];
	struct frame past[PAST];
	uint32_t npast;
	uint8_t *lent;			/* what a peer shows, of one segment */
	uint8_t read[SEG];		/* what srv_take() is given */
	uint8_t *result_at;
};

static uint32_t below(struct world *w, uint32_t n)
{
	return storm_below(w->storm, n);
}

static bool one_in(struct world *w, uint32_t n)
{
	return storm_one_in(w->storm, n);
}

/* ---- what the server does ---- */

static void job_start(struct world *w)
{
	struct srv_job_desc d = {
		.id = ++w->id, .n = N, .world = N, .epoch = ++w->epoch,
		.chunk_bytes = 2 * SEG, .seg_bytes = SEG, .window_bytes = WINDOW, .engines = 2,
	};

	w->job = srv_job_start(&w->core, calloc(1, srv_job_size(N, 2)), &d);
	for (uint32_t i = 0; i < N; i++) {
		w->window[i] = one_in(w, 8) ? NULL : calloc(1, WINDOW);
		w->job->worker[i].node = NODE + i;
		w->job->worker[i].engines = 1 + i % 2;
		w->job->worker[i].window = w->window[i];
		w->job->worker[i].window_bytes = w->window[i] ? WINDOW : 0;
	}
}

/* Another tensor, or chunks that a later epoch brings of one that is here. */
static void tensor_add(struct world *w)
{
	struct held_tensor *h = NULL, *of = &w->tensor[below(w, TENSORS)];
	bool mine[CHUNKS], more = of->t && !of->removed && one_in(w, 2);
	struct srv_tensor_desc d = { .id = more ? of->t->id : ++w->last_id, .mine = mine };
	uint64_t bytes;

	for (uint32_t i = 0; i < TENSORS; i++)
		h = w->tensor[i].t ? h : &w->tensor[i];
	if (!h)
		return;
	d.dtype = (uint8_t)(DTYPE_NONE + 1 + below(w, DTYPE_END - DTYPE_NONE - 1));
	d.geom = (struct geom){ 8u * below(w, 5 * SEG / 8 + 1), 2 * SEG, SEG };
	d.epoch = w->job->epoch;
	if (more) {
		d.dtype = of->t->dtype;
		d.geom = of->t->geom;
		d.epoch = ++w->epoch;
		d.young = one_in(w, 2);
	}
	for (uint32_t i = 0; i < CHUNKS; i++)
		mine[i] = one_in(w, 2);
	h->mem = calloc(1, srv_tensor_size(N, &d, &bytes));
	h->slots = malloc(MAX(bytes, 1));
	ASSERT(h->mem && h->slots);
	h->removed = false;
	h->t = srv_tensor_add(&w->core, w->job, h->mem, h->slots, &d);
}

static void tensor_free(struct world *w, struct held_tensor *h)
{
	srv_tensor_forget(&w->core, h->t);
	free(h->mem);
	free(h->slots);
	*h = (struct held_tensor){ .t = NULL };
}

static void tensor_end(struct world *w, struct held_tensor *h)
{
	bool chunks[CHUNKS];

	if (!h->t)
		return;
	if (h->removed) {
		if (!h->t->borrowed)
			tensor_free(w, h);
		return;
	}
	switch (below(w, 4)) {
	case 0:
		srv_tensor_remove(&w->core, h->t);
		h->removed = true;
		break;
	case 1:
		for (uint32_t i = 0; i < CHUNKS; i++)
			chunks[i] = i < h->t->nchunks && h->t->first[i] != SRV_NO_SEG &&
				    one_in(w, 2);
		srv_tensor_leave(&w->core, h->t, chunks);
		break;
	case 2:
		srv_tensor_settled(&w->core, h->t);
		break;
	default:
		srv_tensor_left(&w->core, h->t);
	}
}

static void shrink(struct world *w)
{
	bool lost[N];

	for (uint32_t i = 0; i < N; i++)
		lost[i] = i && one_in(w, 3);
	w->epoch++;
	srv_job_shrink(&w->core, w->job, lost, 1 + below(w, N));
}

/* ---- links ---- */

static void sent(struct world *w, struct flying *f)
{
	if (f->in)
		srv_sent(&w->core, f->in);
	*f = (struct flying){ .in = NULL };
}

static void landed(struct world *w, struct landing *l, bool broke)
{
	if (!l->at)
		return;
	if (broke)
		srv_unplace(&w->core, l->peer, &l->f);
	else
		srv_frame(&w->core, l->peer, &l->f, l->at, NULL);
	l->at = NULL;
}

static void peer_lost(struct world *w, struct srv_peer *p)
{
	for (uint32_t i = 0; i < FLYING; i++) {
		if (w->landing[i].peer == p)
			landed(w, &w->landing[i], true);
		if (w->flying[i].peer == p)
			sent(w, &w->flying[i]);
	}
	srv_peer_lost(&w->core, p);
	if (one_in(w, 2))
		srv_peer_anew(&w->core, p);
}

static void job_end(struct world *w)
{
	srv_job_stop(&w->core, w->job);
	srv_check(&w->core);
	for (uint32_t i = 0; i < FLYING; i++) {
		landed(w, &w->landing[i], below(w, 2));
		sent(w, &w->flying[i]);
	}
	ASSERT(!srv_job_borrowed(w->job));
	for (uint32_t i = 0; i < TENSORS; i++)
		if (w->tensor[i].t)
			tensor_free(w, &w->tensor[i]);
	srv_job_forget(&w->core, w->job);
	free(w->job);
	for (uint32_t i = 0; i < N; i++)
		free(w->window[i]);
}

/* ---- frames ---- */

static uint32_t a_round(struct world *w, const struct frame *f)
{
	const struct srv_tensor *t = srv_tensor_find(&w->core, f->job, f->tensor, f->chunk,
						     f->epoch);
	uint32_t done = t && t->nsegs ? t->seg[below(w, t->nsegs)].done_round : 0;

	switch (below(w, 12)) {
	case 0:
		return 0;
	case 1:
		return UINT32_MAX - below(w, 3);
	case 2:
		return done;
	case 3:
		return round_next(round_next(done));
	default:
		return round_next(done);
	}
}

static uint64_t a_slot(struct world *w)
{
	switch (below(w, 10)) {
	case 0:
		return SLOT_NONE;
	case 1:
		return WINDOW - below(w, SEG);
	case 2:
		return UINT64_MAX - below(w, 2 * SEG);
	default:
		return (uint64_t)below(w, 3) * SEG;
	}
}

static struct frame a_frame(struct world *w, const struct srv_peer *p)
{
	static const uint8_t types[] = {
		FRAME_PUSH, FRAME_PUSH, FRAME_PUSH, FRAME_PUSH, FRAME_OFFER, FRAME_PROBE,
		FRAME_CANCEL, FRAME_GIVE,
	};
	struct frame f = {
		.type = one_in(w, 20) ? (uint8_t)(1 + below(w, FRAME_TYPE_END - 1))
				      : types[below(w, ARRAY_SIZE(types))],
		.worker = (uint16_t)(one_in(w, 12) ? below(w, 65536) : p->node - NODE),
		.job = one_in(w, 20) ? below(w, w->id + 2) : w->job->id,
		.tensor = 1 + below(w, w->last_id + 1),
		.chunk = one_in(w, 20) ? below(w, 9) : below(w, CHUNKS),
		.epoch = one_in(w, 3) ? w->epoch : w->job->epoch, .offset = below(w, 2) * SEG,
		.attempt = (uint8_t)below(w, 3), .rslot = below(w, 4) * (uint64_t)SEG,
		.aux = below(w, 3),
	};
	const struct srv_tensor *t = NULL;

	for (uint32_t i = 0; i < TENSORS; i++)
		if (w->tensor[i].t && !one_in(w, 3)) {
			t = w->tensor[i].t;
			f.tensor = t->id;
			f.epoch = t->epoch;
		}
	f.round = a_round(w, &f);
	f.slot = a_slot(w);
	f.dtype = t ? t->dtype : DTYPE_F32;
	f.rop = (uint8_t)(one_in(w, 6) ? below(w, ROP_END) : ROP_SUM);
	f.length = SEG;
	if (t && f.chunk < t->nchunks && f.offset < geom_chunk_len(&t->geom, f.chunk))
		f.length = geom_seg_len(&t->geom, f.chunk, f.offset);
	if (one_in(w, 16))
		f.length = below(w, SEG + 1);
	if (one_in(w, 5) && (f.type == FRAME_PUSH || f.type == FRAME_GIVE))
		f.flags |= FRAME_BYREF;
	if (one_in(w, 12) && f.type == FRAME_PUSH)
		f.flags |= FRAME_NODATA;
	if (f.type != FRAME_PUSH && f.type != FRAME_GIVE)
		f.length = one_in(w, 9) ? f.length : 0;
	return f;
}

/* One that was sent, to or from anybody, with a field changed. */
static struct frame an_echo(struct world *w, const struct srv_peer *p)
{
	struct frame f = w->past[below(w, MIN(w->npast, PAST))];

	switch (below(w, 8)) {
	case 0:
		f.type = (uint8_t)(1 + below(w, FRAME_TYPE_END - 1));
		break;
	case 1:
		f.worker = (uint16_t)(p->node - NODE);
		break;
	case 2:
		f.round = round_next(f.round);
		break;
	case 3:
		f.attempt++;
		break;
	case 4:
		f.slot = a_slot(w);
		break;
	case 5:
		f.rop = (uint8_t)below(w, ROP_END);
		break;
	default:
		break;
	}
	return f;
}

static void take(struct world *w, struct srv_peer *p, const struct frame *f)
{
	void *at;

	w->past[w->npast++ % PAST] = *f;
	if (!frame_has_payload(f)) {
		bool lent = f->flags & FRAME_BYREF && f->length <= SEG;

		srv_frame(&w->core, p, f, lent ? w->lent + SEG - f->length : NULL,
			  one_in(w, 2) ? w->result_at : NULL);
		return;
	}
	if (f->length <= SEG && one_in(w, 2)) {
		memset(w->read, 1, f->length);
		srv_take(&w->core, p, f, w->read);
		memset(w->read, 0xff, f->length);
		return;
	}
	at = srv_place(&w->core, p, f);
	srv_check(&w->core);
	if (!at)
		return;
	memset(at, 1, f->length);
	for (uint32_t i = 0; i < FLYING && one_in(w, 4); i++) {
		if (w->landing[i].at)
			continue;
		w->landing[i] = (struct landing){ *f, p, at };
		return;
	}
	srv_frame(&w->core, p, f, at, NULL);
}

static void say(struct world *w, struct srv_peer *p)
{
	struct frame f = w->npast && one_in(w, 4) ? an_echo(w, p) : a_frame(w, p), known;
	uint8_t wire[FRAME_BYTES];

	frame_encode(&f, wire);
	if (frame_decode(wire, &known))
		return;
	if ((known.flags & FRAME_BYREF) && known.length > SEG)
		return;				/* nobody has shown so much */
	if (w->storm->trace) {
		char text[256];

		printf("%u: %s\n", (uint32_t)(p - w->peer), frame_text(&known, text, sizeof(text)));
		fflush(stdout);
	}
	w->storm->messages++;
	take(w, p, &known);
}

/* All workers of a segment, as they should. */
static void whole_round(struct world *w)
{
	const struct srv_tensor *t = w->tensor[below(w, TENSORS)].t;
	const struct srv_seg *s = t && t->nsegs ? &t->seg[below(w, t->nsegs)] : NULL;
	struct frame f = { .type = FRAME_PUSH, .rop = ROP_SUM, .job = w->job->id };

	if (!s || !s->len)
		return;
	f.tensor = t->id;
	f.epoch = t->epoch;
	f.dtype = t->dtype;
	f.chunk = s->chunk;
	f.offset = s->offset;
	f.length = s->len;
	f.round = round_next(s->done_round);
	for (uint32_t i = 0; i < N; i++) {
		f.worker = (uint16_t)i;
		f.slot = (uint64_t)below(w, 3) * SEG;
		take(w, &w->peer[i == 0 && one_in(w, 4) ? PEERS - 1 : i], &f);
		srv_check(&w->core);
	}
}

static void send(struct world *w, struct srv_peer *p)
{
	volatile uint8_t sum = 0;
	struct srv_send s;

	for (uint32_t n = 0; n < 4 && srv_next(&w->core, p, one_in(w, 4), &s); n++) {
		uint32_t i = 0;

		w->past[w->npast++ % PAST] = s.frame;
		w->storm->good += s.frame.type == FRAME_RESULT;
		for (uint32_t k = 0; s.data && k < s.frame.length; k++)
			sum = (uint8_t)(sum + ((const uint8_t *)s.data)[k]);
		if (!s.data)
			continue;
		while (i < FLYING && w->flying[i].in)
			i++;
		if (i == FLYING || one_in(w, 2))
			srv_sent(&w->core, s.in);
		else
			w->flying[i] = (struct flying){ s.in, p };
		srv_check(&w->core);
	}
}

/* ---- a run ---- */

static void turn(struct world *w)
{
	struct srv_peer *p = &w->peer[below(w, PEERS)];
	uint32_t what = below(w, 64);

	if (what < 2)
		tensor_add(w);
	else if (what < 4)
		tensor_end(w, &w->tensor[below(w, TENSORS)]);
	else if (what == 4)
		w->epoch++;
	else if (what == 5 && one_in(w, 4))
		shrink(w);
	else if (what == 6)
		peer_lost(w, p);
	else if (what == 7 && one_in(w, 4)) {
		job_end(w);
		job_start(w);
	} else if (what < 12)
		landed(w, &w->landing[below(w, FLYING)], one_in(w, 4));
	else if (what < 16)
		sent(w, &w->flying[below(w, FLYING)]);
	else if (what < 26)
		send(w, p);
	else if (what < 30)
		whole_round(w);
	else
		say(w, p);
	srv_check(&w->core);
}

void storm_server(struct storm *st)
{
	struct world *w = calloc(1, sizeof(*w));

	ASSERT(w);
	w->storm = st;
	w->lent = calloc(1, SEG);
	w->result_at = calloc(1, SEG);
	ASSERT(w->lent && w->result_at);
	kern_init(~0u);
	srv_init(&w->core);
	job_start(w);
	for (uint32_t i = 0; i < PEERS; i++)
		srv_peer_init(&w->core, &w->peer[i], NODE + i % 4, i / 4);
	for (uint32_t i = 0; i < TENSORS - 1; i++)
		tensor_add(w);
	for (uint32_t i = 0; i < STEPS && !st->over; i++)
		turn(w);
	job_end(w);
	for (uint32_t i = 0; i < PEERS; i++) {
		srv_peer_lost(&w->core, &w->peer[i]);
		srv_peer_fini(&w->peer[i]);
	}
	free(w->lent);
	free(w->result_at);
	free(w);
}
