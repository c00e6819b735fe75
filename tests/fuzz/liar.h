/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liar.h - well-formed messages in orders and with contents that no honest node sends.
 *
 * A liar hears messages and makes messages.  What it makes is of any type: built from the codec's
 * own table with values that it has heard under the same names (or under others), or a message
 * heard before, said again, perhaps as another type of the same shape and with some fields
 * changed.  Everything it makes passes the codec, so the receiver's core has to cope with it.  A
 * new message or field is covered without a line here.
 *
 * Choices come from bytes (a fuzzer's input; when they are used up all choices are 0) or, with a
 * NULL pointer, from a generator with a seed.  One liar at a time; memory is static.
 */
#ifndef TALLY_TESTS_LIAR_H
#define TALLY_TESTS_LIAR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/geom.h"
#include "proto/msg_table.h"

#define LIAR_NAMES	192u		/* of fields */
#define LIAR_VALUES	8u		/* that are remembered of each */
#define LIAR_TEXT	48u
#define LIAR_HEARD	24u		/* whole messages that are remembered */
#define LIAR_WIRE	8192u		/* of such a message, at most */
#define LIAR_POOL	(1u << 20)	/* contents of one message */

struct liar_values {
	const char *name;
	uint64_t number[LIAR_VALUES];
	char text[LIAR_VALUES][LIAR_TEXT];
	uint32_t nnumbers, ntexts;	/* ever */
};

struct liar {
	const uint8_t *bytes;		/* NULL: choices come from rng */
	size_t left;
	struct rng rng;
	struct liar_values values[LIAR_NAMES];
	uint32_t nvalues;
	struct { uint32_t type, len; uint8_t wire[LIAR_WIRE]; } heard[LIAR_HEARD];
	uint32_t nheard;		/* ever */
	uint8_t pool[LIAR_POOL];
	size_t used;
	uint8_t decoded[LIAR_POOL + 4096];
};

static struct liar liar;

static inline void liar_begin(const uint8_t *bytes, size_t len, uint64_t seed)
{
	memset(&liar, 0, offsetof(struct liar, pool));
	liar.bytes = bytes;
	liar.left = len;
	liar.rng.state = seed;
}

static inline bool liar_is_done(void)
{
	return liar.bytes && !liar.left;
}

/* A choice among n; n > 0. */
static inline uint32_t choose(uint32_t n)
{
	uint32_t v = 0;

	if (!liar.bytes)
		return (uint32_t)rng_below(&liar.rng, n);
	for (uint64_t most = 1; most < n && liar.left; most <<= 8) {
		v = v << 8 | *liar.bytes++;
		liar.left--;
	}
	return v % n;
}

static inline bool chance(uint32_t percent)
{
	return choose(100) < percent;
}

static inline void *liar_get(size_t bytes)
{
	void *p = liar.pool + liar.used;

	bytes = align_up(bytes, 16);
	if (liar.used + bytes > LIAR_POOL)
		return NULL;
	liar.used += bytes;
	return memset(p, 0, bytes);
}

/* ---- what was heard ---- */

static inline struct liar_values *values_of(const char *name)
{
	for (uint32_t i = 0; i < liar.nvalues; i++)
		if (!strcmp(liar.values[i].name, name))
			return &liar.values[i];
	ASSERT(liar.nvalues < LIAR_NAMES);
	liar.values[liar.nvalues].name = name;
	return &liar.values[liar.nvalues++];
}

static inline void note_number(const char *name, uint64_t v)
{
	struct liar_values *k = values_of(name);

	for (uint32_t i = 0; i < MIN(k->nnumbers, LIAR_VALUES); i++)
		if (k->number[i] == v)
			return;
	k->number[k->nnumbers++ % LIAR_VALUES] = v;
}

static inline void note_text(const char *name, const char *s)
{
	struct liar_values *k = values_of(name);

	for (uint32_t i = 0; i < MIN(k->ntexts, LIAR_VALUES); i++)
		if (!strncmp(k->text[i], s, LIAR_TEXT - 1))
			return;
	snprintf(k->text[k->ntexts++ % LIAR_VALUES], LIAR_TEXT, "%s", s);
}

static inline uint64_t row_number(const struct msg_row *row, const uint8_t *at)
{
	uint64_t v = 0;

	memcpy(&v, at, row->kind == KIND_U16 ? 2 : row->kind == KIND_U64 ? 8 : 4);
	return v;
}

static inline void note_shape(const struct msg_shape *shape, const uint8_t *plain)
{
	for (uint32_t r = 0; r < shape->nrows; r++) {
		const struct msg_row *row = &shape->rows[r];
		const uint8_t *at = plain + row->at;
		const uint8_t *p;

		switch (row->kind) {
		case KIND_U16: case KIND_U32: case KIND_U64: case KIND_I32:
			note_number(row->name, row_number(row, at));
			break;
		case KIND_STR:
			p = msg_row_ptr(row, plain);
			note_text(row->name, p ? (const char *)p : "");
			break;
		case KIND_U32S: case KIND_U64S: case KIND_SUBS:
			p = msg_row_ptr(row, plain);
			for (uint32_t i = 0; i < MIN(msg_row_count(row, plain), 8u); i++) {
				if (row->kind == KIND_SUBS)
					note_shape(row->sub, p + i * row->sub->bytes);
				else
					note_number(row->name, row->kind == KIND_U32S ?
						    ((const uint32_t *)p)[i] :
						    ((const uint64_t *)p)[i]);
			}
			break;
		case KIND_SUB:
			note_shape(row->sub, at);
			break;
		case KIND_F64: case KIND_ID:
			break;
		}
	}
}

/* Remembers a message that somebody sent; it can be encoded. */
static inline void liar_hear(const struct msg *m)
{
	uint32_t bytes;

	ASSERT(!msg_encode_size(m, &bytes, NULL));
	note_shape(msg_shape_of(m->type), msg_body(m));
	if (bytes > LIAR_WIRE)
		return;
	ASSERT(!msg_encode(m, liar.heard[liar.nheard % LIAR_HEARD].wire, bytes, NULL));
	liar.heard[liar.nheard % LIAR_HEARD].type = m->type;
	liar.heard[liar.nheard++ % LIAR_HEARD].len = bytes;
}

/* ---- what is made ---- */

static inline uint64_t any_number(const struct msg_row *row)
{
	const struct liar_values *k = values_of(row->name);
	uint64_t lo = row->kind == KIND_I32 ? 0 : (uint64_t)row->lo, hi = row->hi, v;

	if (chance(10) && liar.nvalues)
		k = &liar.values[choose(liar.nvalues)];
	if (k->nnumbers && chance(70))
		v = k->number[choose(MIN(k->nnumbers, LIAR_VALUES))];
	else if (chance(60))
		v = lo + choose(4);
	else
		v = (uint64_t)choose(UINT32_MAX) << choose(33);
	v += chance(5);
	return v < lo ? lo : v > hi ? hi - choose(2) : v;
}

static inline const char *any_text(const struct msg_row *row)
{
	static const char *const fixed[] = { "a", "b", "s", "t", "x", "y", "" };
	const struct liar_values *k = values_of(row->name);
	char *s = liar_get(row->hi > 300 ? 301 : row->hi + 1);
	size_t len;

	if (!s)
		return "x";
	if (chance(10) && liar.nvalues)
		k = &liar.values[choose(liar.nvalues)];
	if (k->ntexts && chance(75))
		snprintf(s, MIN(row->hi, (uint64_t)LIAR_TEXT) + 1, "%s",
			 k->text[choose(MIN(k->ntexts, LIAR_VALUES))]);
	else if (chance(90))
		snprintf(s, row->hi + 1 < 4 ? row->hi + 1 : 4, "%s",
			 fixed[choose(ARRAY_SIZE(fixed))]);
	else
		memset(s, 'y', MIN(row->hi, 300u));
	for (len = strlen(s); len < (size_t)row->lo; len++)
		s[len] = 'x';
	return s;
}

static inline void make_shape(const struct msg_shape *shape, uint8_t *plain);

static inline void make_array(const struct msg_row *row, uint8_t *plain)
{
	size_t each = row->kind == KIND_U32S ? 4 : row->kind == KIND_U64S ? 8 : row->sub->bytes;
	uint32_t n = chance(95) ? choose(4) : choose(40);
	uint8_t *p;

	n = (uint32_t)MIN(MAX((uint64_t)row->lo, n), row->hi);
	p = n ? liar_get(n * each) : NULL;
	n = p ? n : 0;
	memcpy(plain + row->at, &p, sizeof(p));
	memcpy(plain + row->count_at, &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++) {
		struct msg_row one = { .name = row->name, .kind = KIND_U64, .hi = UINT32_MAX };
		uint64_t v;

		if (row->kind == KIND_SUBS) {
			make_shape(row->sub, p + i * each);
			continue;
		}
		v = chance(60) ? i : any_number(&one);
		memcpy(p + i * each, &v, each);
	}
}

static inline void make_row(const struct msg_row *row, uint8_t *plain)
{
	uint8_t *at = plain + row->at;
	uint64_t v;
	double f = choose(1000);
	const char *s;

	switch (row->kind) {
	case KIND_U16: case KIND_U32: case KIND_I32: case KIND_U64:
		v = any_number(row);
		memcpy(at, &v, row->kind == KIND_U16 ? 2 : row->kind == KIND_U64 ? 8 : 4);
		break;
	case KIND_F64:
		memcpy(at, &f, sizeof(f));
		break;
	case KIND_ID:
		memset(at, 0, ID_BYTES);
		*at = (uint8_t)choose(4);
		break;
	case KIND_STR:
		s = any_text(row);
		memcpy(at, &s, sizeof(s));
		break;
	case KIND_U32S: case KIND_U64S: case KIND_SUBS:
		make_array(row, plain);
		break;
	case KIND_SUB:
		make_shape(row->sub, at);
		break;
	}
}

static inline void make_shape(const struct msg_shape *shape, uint8_t *plain)
{
	for (uint32_t i = 0; i < shape->nrows; i++)
		make_row(&shape->rows[i], plain);
}

/* Brings what the codec wants of several fields together where chance did not. */
static inline void make_fit(struct msg *m)
{
	struct msg_job_up *up = &m->job_up;
	static const uint32_t chunks[] = { CHUNK_BYTES_MIN, 65536, CHUNK_BYTES_DEFAULT };

	if (m->type == MSG_RANK_JOIN) {
		m->rank_join.world = MAX(m->rank_join.world, 1u);
		m->rank_join.rank %= m->rank_join.world;
		m->rank_join.chunk_bytes = chance(50) ? 0 : chunks[choose(3)];
	}
	if (m->type == MSG_HELLO) {
		m->hello.version_min = m->hello.version_max = MSG_VERSION;
		m->hello.engines = 1 + choose(3);
	}
	if (m->type == MSG_DECLARE || m->type == MSG_TENSORS || m->type == MSG_TENSORS_HELD) {
		uint32_t n = m->type == MSG_DECLARE ? m->declare.ntensors : m->tensors.ntensors;
		const struct msg_tensor *t = m->type == MSG_DECLARE ? m->declare.tensors :
					     m->tensors.tensors;

		for (uint32_t i = 0; i < n; i++) {
			struct msg_tensor *one = (struct msg_tensor *)&t[i];

			one->ndims = 0;
			one->dtype = 1 + one->dtype % (DTYPE_END - 1);
			one->count = chance(80) ? one->count % 100000 : one->count >> 30;
		}
	}
	if (m->type != MSG_JOB_UP && m->type != MSG_JOB_HELD)
		return;
	up->chunk_bytes = up->seg_bytes = chunks[choose(3)];
	up->window_bytes = MAX(up->window_bytes, up->seg_bytes);
	up->world = MIN(MAX(up->world, 1u), 8u);
	up->ngone = up->nleft = up->njoined = 0;
	for (uint32_t i = 0; i < up->nservers; i++)
		((struct msg_server *)up->servers)[i].weight = i ? choose(9) : UINT32_MAX;
	for (uint32_t i = 0; i < up->nmachines; i++) {
		struct msg_machine *k = (struct msg_machine *)&up->machines[i];

		for (uint32_t r = 0; r < k->nranks; r++)
			((uint32_t *)k->ranks)[r] = up->world > up->nmachines ? i + r : i;
		k->nranks = MIN(k->nranks, up->world > i ? up->world - i : 1);
	}
}

/* As a peer's bytes become a message; false: the codec does not let it pass. */
static inline bool through_codec(struct msg *m, const uint8_t *wire, uint32_t bytes, uint32_t type)
{
	struct msg_mem mem = { .base = liar.decoded, .size = sizeof(liar.decoded) };
	struct err e;

	return !msg_decode(type, wire + MSG_PREFIX_BYTES, bytes - MSG_PREFIX_BYTES, &mem, m, &e);
}

static inline bool say_again(struct msg *m, const uint32_t *types, uint32_t n)
{
	uint32_t i, type, k, as;

	if (!liar.nheard)
		return false;
	i = choose(MIN(liar.nheard, LIAR_HEARD));
	type = as = liar.heard[i].type;
	for (uint32_t tries = 0; tries < 4; tries++) {
		k = types[choose(n)];
		if (msg_shape_of(k) == msg_shape_of(type))
			as = k;
	}
	if (!through_codec(m, liar.heard[i].wire, liar.heard[i].len, as))
		return false;
	m->type = (enum msg_type)as;
	for (uint32_t changes = choose(3); changes > 0; changes--) {
		const struct msg_shape *shape = msg_shape_of(as);

		make_row(&shape->rows[choose(shape->nrows)], (uint8_t *)&m->reply);
	}
	return true;
}

/* A message of one of these types, or one heard before; false: chance made none. */
static inline bool liar_make(struct msg *m, const uint32_t *types, uint32_t n)
{
	static uint8_t wire[1u << 19];
	uint32_t bytes;

	liar.used = 0;
	memset(m, 0, sizeof(*m));
	if (!chance(45) || !say_again(m, types, n)) {
		memset(m, 0, sizeof(*m));
		m->type = (enum msg_type)types[choose(n)];
		make_shape(msg_shape_of(m->type), (uint8_t *)&m->reply);
		make_fit(m);
	}
	if (msg_encode_size(m, &bytes, NULL) || bytes > sizeof(wire))
		return false;
	ASSERT(!msg_encode(m, wire, bytes, NULL));
	bytes = through_codec(m, wire, bytes, m->type) ? bytes : 0;
	if (bytes)
		note_shape(msg_shape_of(m->type), msg_body(m));
	return bytes != 0;
}

#endif
