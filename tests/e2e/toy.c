// SPDX-License-Identifier: Apache-2.0
/*
 * A tensor and the memory that its rounds read and write.  A buffer is SLOP
 * bytes longer than the tensor; behind the tensor lies a pattern that must still
 * be there after every round, and an input that is not also the output must
 * still hold what was put in.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/e2e.h"

#define SLOP	64u
#define PATTERN	0xa5

static uint64_t toy_bytes(const struct toy *t)
{
	return t->count * tally_dtype_size(t->dtype);
}

void toys_declare(struct run *r, struct toy *toys, uint32_t n)
{
	tally_tensor_desc *desc = calloc(n, sizeof(*desc));
	tally_tensor **out = calloc(n, sizeof(*out));

	if (!desc || !out)
		die(r, "no memory");
	for (uint32_t i = 0; i < n; i++)
		desc[i] = (tally_tensor_desc){ .name = toys[i].name, .dtype = toys[i].dtype,
					       .count = toys[i].count,
					       .priority = toys[i].priority };
	must(r, tally_declare(r->s, desc, n, out), "declare");
	for (uint32_t i = 0; i < n; i++) {
		toys[i].t = out[i];
		toys[i].id = i;
	}
	free(desc);
	free(out);
}

void toys_undeclare(struct run *r, struct toy *toys, uint32_t n)
{
	tally_tensor **t = calloc(n, sizeof(*t));

	if (!t)
		die(r, "no memory");
	for (uint32_t i = 0; i < n; i++) {
		t[i] = toys[i].t;
		must(r, tally_free(r->s, toys[i].buffer[ARENA_IN]), "free");
		must(r, tally_free(r->s, toys[i].buffer[ARENA_OUT]), "free");
		free(toys[i].buffer[FOREIGN_IN]);
		free(toys[i].buffer[FOREIGN_OUT]);
	}
	must(r, tally_undeclare(r->s, t, n), "undeclare");
	free(t);
}

static uint8_t *buffer(struct run *r, struct toy *t, int which)
{
	size_t bytes = toy_bytes(t) + SLOP;

	if (t->buffer[which])
		return t->buffer[which];
	if (which == ARENA_IN || which == ARENA_OUT)
		must(r, tally_alloc(r->s, bytes, &t->buffer[which]), "alloc");
	else if (!(t->buffer[which] = malloc(bytes)))
		die(r, "no memory");
	return t->buffer[which];
}

static void choose_memory(struct run *r, struct toy *t)
{
	switch (t->place) {
	case ARENA_IN_PLACE:
		t->in = t->out = buffer(r, t, ARENA_IN);
		break;
	case ARENA_ODD_IN_PLACE:
		t->in = t->out = buffer(r, t, ARENA_IN) + tally_dtype_size(t->dtype);
		break;
	case ARENA_TO_ARENA:
		t->in = buffer(r, t, ARENA_IN);
		t->out = buffer(r, t, ARENA_OUT);
		break;
	case ARENA_VIEW:
		t->in = buffer(r, t, ARENA_IN);
		t->out = NULL;
		break;
	case FOREIGN_IN_PLACE:
		t->in = t->out = buffer(r, t, FOREIGN_IN);
		break;
	case FOREIGN_TO_FOREIGN:
		t->in = buffer(r, t, FOREIGN_IN);
		t->out = buffer(r, t, FOREIGN_OUT);
		break;
	case FOREIGN_TO_ARENA:
		t->in = buffer(r, t, FOREIGN_IN);
		t->out = buffer(r, t, ARENA_OUT);
		break;
	default:
		t->in = buffer(r, t, FOREIGN_IN);
		t->out = NULL;
	}
}

void toy_submit(struct run *r, struct toy *t, enum op op, enum place place, uint32_t root)
{
	const tally_push_pull_options mean = { .op = TALLY_MEAN };
	int rc;

	if (t->k)
		die(r, "%s: submitted twice", t->name);
	t->round++;
	t->place = place;
	t->recipe = (struct recipe){ .dtype = t->dtype, .op = op, .world = r->world,
				     .machines = r->machines, .root = root,
				     .seed = mix64(r->seed << 40 ^ (uint64_t)t->id << 20 ^
						   t->round) };
	choose_memory(r, t);
	if (t->out)
		memset(t->out, PATTERN, toy_bytes(t) + SLOP / 2);
	value_fill(&t->recipe, r->rank, t->count, t->in);
	if (op == OP_BROADCAST)
		rc = tally_broadcast(r->s, t->t, r->rank == root ? t->in : NULL, t->out,
				     (int)root, &t->k);
	else
		rc = tally_push_pull(r->s, t->t, t->in, t->out, op == OP_MEAN ? &mean : NULL,
				     &t->k);
	must(r, rc, t->name);
	/* Other memory was copied before the call returned: it is ours again. */
	if (place == FOREIGN_VIEW && t->count)
		memset(t->in, PATTERN, toy_bytes(t));
}

void toy_check(struct run *r, const struct toy *t, const struct recipe *recipe, const void *p)
{
	uint64_t at, bad;

	bad = value_differences(recipe, p, t->count, &at);
	if (bad)
		die(r, "%s: %llu of %llu elements are wrong, the first at %llu "
		    "(round %u, op %d, memory %d)", t->name, (unsigned long long)bad,
		    (unsigned long long)t->count, (unsigned long long)at, t->round,
		    (int)recipe->op, (int)t->place);
}

/* What lies in memory but is none of the result. */
static void check_rest(struct run *r, const struct toy *t)
{
	const uint8_t *behind = (const uint8_t *)t->out + toy_bytes(t);
	struct recipe own = t->recipe;
	uint64_t at;

	for (uint32_t i = 0; t->out && i < SLOP / 2; i++)
		if (behind[i] != PATTERN)
			die(r, "%s: byte %u behind the output was written", t->name, i);
	if (t->out == t->in || t->place == FOREIGN_VIEW)
		return;
	own.op = OP_BROADCAST;
	own.root = r->rank;
	if (value_differences(&own, t->in, t->count, &at))
		die(r, "%s: the input changed at %llu", t->name, (unsigned long long)at);
}

static uint64_t hash_bytes(const void *bytes, uint64_t len, uint64_t h)
{
	const uint8_t *p = bytes;

	for (; len >= 8; p += 8, len -= 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		h = (h ^ v) * UINT64_C(0x9ddfea08eb382d69);
		h ^= h >> 29;
	}
	for (; len; p++, len--)
		h = (h ^ *p) * UINT64_C(0x9ddfea08eb382d69);
	return mix64(h);
}

void toy_collect(struct run *r, struct toy *t)
{
	const void *view;

	must(r, tally_wait(r->s, t->k, E2E_WAIT_MS), t->name);
	t->k = 0;
	view = tally_result(r->s, t->t);
	if (!view && t->count)
		die(r, "%s: no result to look at", t->name);
	if (t->out && t->count && memcmp(t->out, view, toy_bytes(t)))
		die(r, "%s: the output is not the result", t->name);
	toy_check(r, t, &t->recipe, t->out ? t->out : view);
	check_rest(r, t);
	if (t->count && r->rank == 0)	/* who shows it */
		r->hash += hash_bytes(view, toy_bytes(t), mix64(t->recipe.seed));
	r->results++;
	r->bytes += toy_bytes(t);
}
