// SPDX-License-Identifier: Apache-2.0
/*
 * What a server sends to an agent next, and what it then lends to the agent's link.
 *
 * Each agent has its parts of segments with something to say in a queue, and answers that belong
 * to none.  Of a part the result goes first, then what is to be asked or answered.
 */
#include "server/server_core.h"

static bool is_missing(const struct srv_seg *s, uint32_t w)
{
	return s->in[w].state != IN_PARKED &&
	       (!bits_test(s->tensor->job->out, w) || s->tensor->stale);
}

/*
 * The first worker whose contribution is missing. One that has offered it has it, and waits for
 * room: it is named only when no other is missing.
 */
static uint32_t first_missing(const struct srv_seg *s)
{
	uint32_t n = s->tensor->job->n, offered = n;

	for (uint32_t w = 0; w < n; w++) {
		if (!is_missing(s, w))
			continue;
		if (s->in[w].state != IN_OFFERED)
			return w;
		offered = MIN(offered, w);
	}
	return offered;
}

static void fill(struct srv_send *out, const struct srv_in *in, uint8_t type)
{
	const struct srv_seg *s = in->seg;
	const struct srv_tensor *t = s->tensor;
	bool done = type == FRAME_RESULT || type == FRAME_REFUSED;
	uint32_t round = done ? s->done_round : round_next(s->done_round);

	out->frame = (struct frame){
		.type = type,
		.worker = (uint16_t)(in - s->in),
		.job = t->job->id,
		.tensor = t->id,
		.chunk = s->chunk,
		.offset = s->offset,
		.round = type == FRAME_SEEK ? srv_sought_round(s) : round,
		.epoch = t->epoch,
		.attempt = type == FRAME_CANCELLED ? (uint8_t)(in->attempt - 1) : in->attempt,
	};
	out->data = NULL;
	out->in = NULL;
}

static void fill_result(struct srv_core *c, struct srv_send *out, struct srv_in *in, bool by_ref)
{
	struct srv_seg *s = in->seg;
	bool repeated = in->told && !by_ref;

	in->told = true;
	in->probes = 0;
	out->frame.dtype = s->tensor->dtype;
	out->frame.rop = s->done_rop;
	out->frame.length = s->len;
	out->frame.slot = repeated ? SLOT_NONE : in->rslot[s->done_round & 1];
	c->count.results++;
	if (by_ref) {
		out->frame.flags = FRAME_BYREF;
		return;
	}
	out->data = s->result;
	out->in = in;
	in->lent = true;
	s->lent++;
	s->tensor->borrowed++;
	s->tensor->job->borrowed++;
}

/* All agree on a broadcast, and nobody has its data: its root is gone. */
static void fill_mismatch(struct srv_send *out, const struct srv_in *in)
{
	bool agree = SIDE_ROP(in->seg->side[0]) == SIDE_ROP(in->seg->side[1]) &&
		     SIDE_ROOT(in->seg->side[0]) == SIDE_ROOT(in->seg->side[1]);

	out->frame.aux = (uint32_t)-(agree ? TALLY_ESHUTDOWN : TALLY_EMISMATCH);
	out->frame.slot = in->seg->side[0];
	out->frame.rslot = in->seg->side[1];
}

static void fill_held(struct srv_send *out, const struct srv_in *in)
{
	out->frame.aux = first_missing(in->seg);
	out->frame.slot = in->seg->asking ? HELD_ASKED : 0;
}

bool srv_next(struct srv_core *c, struct srv_peer *p, bool by_ref, struct srv_send *out)
{
	static const struct {
		uint8_t todo, type;
	} order[] = {
		{ TODO_RESULT, FRAME_RESULT }, { TODO_FAIL, FRAME_REFUSED },
		{ TODO_CANCELLED, FRAME_CANCELLED }, { TODO_ASK, FRAME_ASK },
		{ TODO_HELD, FRAME_HELD }, { TODO_SEEK, FRAME_SEEK },
	};
	struct srv_in *in;
	size_t i = 0;

	if (p->nrefusals) {
		*out = (struct srv_send){ .frame = p->refusal[--p->nrefusals] };
		return true;
	}
	in = srv_first(p);
	if (!in)
		return false;
	if (in->todo & TODO_RESULT)
		srv_serve(in, by_ref);
	while (!(in->todo & order[i].todo))
		i++;
	fill(out, in, order[i].type);
	if (order[i].todo == TODO_RESULT)
		fill_result(c, out, in, by_ref);
	else if (order[i].todo == TODO_FAIL)
		fill_mismatch(out, in);
	else if (order[i].todo == TODO_HELD)
		fill_held(out, in);
	srv_todo_drop(in, order[i].todo);
	return true;
}

void srv_sent(struct srv_core *c, struct srv_in *in)
{
	bool again = in->again;

	ASSERT(in->lent);
	in->lent = in->again = false;
	if (again)
		srv_resend(c, in, NULL);
	srv_seg_back(c, in->seg);
}
