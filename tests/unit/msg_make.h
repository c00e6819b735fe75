/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msg_make.h - contents for every message, made from the codec's own table.
 *
 * fill() makes any struct: every row at its least, at its most, or at random, and
 * obeys the rules between fields.  raw() is a second encoder, which checks nothing
 * and can therefore say what the real one refuses to.  same() compares deeply.
 * Included by one program each.
 */
#ifndef TALLY_TESTS_MSG_MAKE_H
#define TALLY_TESTS_MSG_MAKE_H

#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/turn.h"
#include "proto/msg_table.h"

/* ---- memory of one test ---- */

#define POOL_BYTES	((size_t)96 << 20)

static uint8_t *pool, *wire, *block;	/* contents, encoded bytes, decoder's memory */
static size_t pool_used;

static void *get(size_t bytes)
{
	void *p = pool + pool_used;

	pool_used += align_up(bytes, 16);
	ASSERT(pool_used <= POOL_BYTES);
	return memset(p, 0, bytes);
}

static void setup(void)
{
	pool = malloc(POOL_BYTES);
	wire = malloc(2 * (size_t)CTL_MSG_BYTES_MAX);
	block = malloc(msg_mem_need(CTL_MSG_BYTES_MAX));
	ASSERT(pool && wire && block);
	pool_used = 0;
}

static void teardown(void)
{
	free(pool);
	free(wire);
	free(block);
}

/* ---- contents ---- */

enum mode { SMALLEST, LONGEST, MOST, ANY };	/* values, texts; counts; random */

static uint64_t number(struct rng *rng, enum mode mode, uint64_t lo, uint64_t hi)
{
	uint64_t span = hi - lo;

	if (mode == SMALLEST || mode == MOST)
		return lo;
	if (mode == LONGEST)
		return hi;
	span >>= rng_below(rng, 64);		/* all magnitudes alike */
	return lo + (span == UINT64_MAX ? rng_u64(rng) : rng_below(rng, span + 1));
}

static const char *text(struct rng *rng, enum mode mode, const struct msg_row *row)
{
	static const char *const chars[] = {
		"a", "Z", " ", "~", "\"", "%", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80",
		"\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
		"\xf4\x8f\xbf\xbf",
	};
	size_t want = number(rng, mode, (uint64_t)row->lo, row->hi), len = 0;
	char *s = get(want + 1);

	while (len < want) {
		const char *c = chars[mode == ANY ? rng_below(rng, ARRAY_SIZE(chars)) : 0];

		if (len + strlen(c) > want)
			c = "x";
		memcpy(s + len, c, strlen(c));
		len += strlen(c);
	}
	return s;
}

static void fill(struct rng *rng, enum mode mode, const struct msg_shape *shape, uint8_t *plain);

static uint32_t count(struct rng *rng, enum mode mode, const struct msg_row *row)
{
	if (mode == MOST)
		return (uint32_t)row->hi;
	if (mode == SMALLEST)
		return (uint32_t)row->lo;
	return (uint32_t)number(rng, mode, (uint64_t)row->lo, MAX((uint64_t)row->lo,
								  MIN(row->hi, 3)));
}

static void fill_array(struct rng *rng, enum mode mode, const struct msg_row *row, uint8_t *plain)
{
	size_t each = row->kind == KIND_U32S ? 4 : row->kind == KIND_U64S ? 8 : row->sub->bytes;
	uint32_t n = count(rng, mode, row);
	uint8_t *p = n ? get(n * each) : NULL;

	memcpy(plain + row->at, &p, sizeof(p));
	memcpy(plain + row->count_at, &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++) {
		if (row->kind == KIND_SUBS)
			fill(rng, mode, row->sub, p + i * each);
		else if (row->kind == KIND_U32S)
			memcpy(p + i * each, &(uint32_t){ i + 1 }, each);
		else
			memcpy(p + i * each, &(uint64_t){ rng_below(rng, 9) }, each);
	}
}

static void fill_row(struct rng *rng, enum mode mode, const struct msg_row *row, uint8_t *plain)
{
	uint64_t v = number(rng, mode, (uint64_t)row->lo, row->hi);
	double f = mode == SMALLEST ? 0 : (double)(rng_u64(rng) >> 11) * 0x1p-20;
	const char *s;

	switch (row->kind) {
	case KIND_U16:
		memcpy(plain + row->at, &v, 2);		/* little-endian, as are all we build for */
		break;
	case KIND_U32:
	case KIND_I32:
		memcpy(plain + row->at, &v, 4);
		break;
	case KIND_U64:
		memcpy(plain + row->at, &v, 8);
		break;
	case KIND_F64:
		memcpy(plain + row->at, &f, 8);
		break;
	case KIND_ID:
		memset(plain + row->at, mode == SMALLEST || mode == MOST ? 0 : 0xa7, ID_BYTES);
		break;
	case KIND_STR:
		s = text(rng, mode, row);
		memcpy(plain + row->at, &s, sizeof(s));
		break;
	case KIND_U32S:
	case KIND_U64S:
	case KIND_SUBS:
		fill_array(rng, mode, row, plain);
		break;
	case KIND_SUB:
		fill(rng, mode, row->sub, plain + row->at);
		break;
	}
}

static uint32_t pages(uint32_t bytes, uint32_t least)
{
	return MAX(bytes & ~(PAGE_BYTES - 1), least);
}

static void obey_gone(const uint32_t *gone, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		((uint32_t *)gone)[i] = i;
}

static void obey_job_up(struct msg_job_up *m)
{
	obey_gone(m->gone, m->ngone);
	obey_gone(m->left, m->nleft);
	m->chunk_bytes = pages(m->chunk_bytes, CHUNK_BYTES_MIN);
	m->seg_bytes = pages(m->seg_bytes, SEG_BYTES_MIN);
	if (m->chunk_bytes % m->seg_bytes)
		m->seg_bytes = m->chunk_bytes;
	m->window_bytes = MAX(m->window_bytes, m->seg_bytes);
	m->world = WORLD_SIZE_MAX;
	if (m->nservers)
		((struct msg_server *)m->servers)->weight |= 1;
	else
		m->nmachines = 1;
	for (uint32_t i = 0; i < m->nmachines; i++)
		for (uint32_t j = 0; j < m->machines[i].nranks; j++)
			((uint32_t *)m->machines[i].ranks)[j] = i + j;
}

static void obey_tensor(struct msg_tensor *m)
{
	uint64_t product = 1;

	for (uint32_t i = 0; i < m->ndims; i++)
		product *= m->dims[i];
	m->count = m->ndims ? product
			    : MIN(m->count, TENSOR_BYTES_MAX / dtype_bytes((uint8_t)m->dtype));
}

static void obey_gpu_plan(struct msg_gpu_plan *m)
{
	m->group %= m->groups;
	m->me %= m->nmembers;
	m->nroots = m->nweights = MIN(MIN(m->nroots, m->nweights), m->nmembers);
	for (uint32_t i = 0; i < m->nroots; i++)
		((uint32_t *)m->roots)[i] = i;
	((uint32_t *)m->weights)[m->nroots - 1] = TURN_SUM;
	m->scatter &= m->nroots == m->nmembers;
}

/* Makes contents that keep their rows keep the rules between fields, too. */
static void obey(const struct msg_shape *shape, void *plain)
{
	const char *name = shape->desc->short_name;

	if (!strcmp(name, "Hello")) {
		struct msg_hello *m = plain;

		m->version_min = MIN(m->version_min, m->version_max);
		m->machine = *m->machine ? m->machine : "machine";
		m->engines = MAX(m->engines, 1);
	} else if (!strcmp(name, "RankJoin")) {
		struct msg_rank_join *m = plain;

		m->rank %= m->world;
		m->chunk_bytes = m->chunk_bytes ? pages(m->chunk_bytes, CHUNK_BYTES_MIN) : 0;
	} else if (!strcmp(name, "Attach")) {
		struct msg_attach *m = plain;

		m->rank %= m->world;
		m->chunk_bytes = m->chunk_bytes ? pages(m->chunk_bytes, CHUNK_BYTES_MIN) : 0;
	} else if (!strcmp(name, "Attached")) {
		struct msg_attached *m = plain;

		m->rank %= m->world;
		m->local_rank %= m->local_size;
		m->chunk_bytes = pages(m->chunk_bytes, CHUNK_BYTES_MIN);
	} else if (!strcmp(name, "JobUp")) {
		obey_job_up(plain);
	} else if (!strcmp(name, "GpuPlan")) {
		obey_gpu_plan(plain);
	} else if (!strcmp(name, "Epoch")) {
		const struct msg_epoch *m = plain;

		obey_gone(m->gone, m->ngone);
	} else if (!strcmp(name, "Tensor")) {
		obey_tensor(plain);
	} else if (!strcmp(name, "Tensors")) {
		struct msg_tensors *m = plain;

		for (uint32_t i = 0; i < m->ntensors; i++)
			((struct msg_tensor *)m->tensors)[i].id |= 1;
	}
}

static void fill(struct rng *rng, enum mode mode, const struct msg_shape *shape, uint8_t *plain)
{
	for (uint32_t i = 0; i < shape->nrows; i++)
		fill_row(rng, mode, &shape->rows[i], plain);
	obey(shape, plain);
}

static struct msg make(uint32_t type, enum mode mode, uint64_t seed)
{
	struct msg m = { .type = (enum msg_type)type };
	struct rng rng = { seed };

	pool_used = 0;
	fill(&rng, mode, msg_shape_of(type), (uint8_t *)&m.reply);
	return m;
}

/* ---- the second encoder ---- */

static uint8_t *raw_varint(uint8_t *out, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*out++ = (uint8_t)(v | 0x80);
	*out++ = (uint8_t)v;
	return out;
}

static uint8_t *raw_bytes(uint8_t *out, uint32_t id, const void *p, size_t len)
{
	uint8_t head[16];
	size_t head_len = (size_t)(raw_varint(raw_varint(head, id << 3 | 2), len) - head);

	memmove(out + head_len, p, len);	/* p may be just behind out */
	memcpy(out, head, head_len);
	return out + head_len + len;
}

/* What the row points to; NULL where it holds its value itself. */
static const void *pointer(const struct msg_row *row, const void *plain)
{
	switch (row->kind) {
	case KIND_STR:
	case KIND_U32S:
	case KIND_U64S:
	case KIND_SUBS:
		return msg_row_ptr(row, plain);
	default:
		return NULL;
	}
}

static uint8_t *raw(const struct msg_shape *shape, const uint8_t *plain, uint8_t *out)
{
	for (uint32_t r = 0; r < shape->nrows; r++) {
		const struct msg_row *row = &shape->rows[r];
		const uint8_t *at = plain + row->at, *p = pointer(row, plain);
		uint32_t id = shape->desc->fields[r].id, n;
		uint8_t *in = out + 16, *end = in;
		uint64_t v = 0;
		int32_t i32;

		switch (row->kind) {
		case KIND_U16:
		case KIND_U32:
		case KIND_U64:
			memcpy(&v, at, row->kind == KIND_U16 ? 2 : row->kind == KIND_U32 ? 4 : 8);
			out = raw_varint(raw_varint(out, id << 3), v);
			break;
		case KIND_I32:
			memcpy(&i32, at, 4);
			v = (uint32_t)i32 << 1 ^ (uint32_t)(i32 >> 31);
			out = raw_varint(raw_varint(out, id << 3), v);
			break;
		case KIND_F64:
			out = raw_varint(out, id << 3 | 1);
			memcpy(out, at, 8);
			out += 8;
			break;
		case KIND_STR:
			out = raw_bytes(out, id, p ? (const char *)p : "",
					p ? strlen((const char *)p) : 0);
			break;
		case KIND_ID:
			out = raw_bytes(out, id, at, ID_BYTES);
			break;
		case KIND_U32S:
		case KIND_U64S:
			n = msg_row_count(row, plain);
			for (uint32_t i = 0; i < n; i++) {
				size_t each = row->kind == KIND_U32S ? 4 : 8;

				v = 0;
				memcpy(&v, p + i * each, each);
				end = raw_varint(end, v);
			}
			out = raw_bytes(out, id, in, (size_t)(end - in));
			break;
		case KIND_SUBS:
			n = msg_row_count(row, plain);
			for (uint32_t i = 0; i < n; i++) {
				end = raw(row->sub, p + i * row->sub->bytes, out + 16);
				out = raw_bytes(out, id, out + 16, (size_t)(end - out) - 16);
			}
			break;
		case KIND_SUB:
			end = raw(row->sub, at, in);
			out = raw_bytes(out, id, in, (size_t)(end - in));
			break;
		}
	}
	return out;
}

/* ---- comparing ---- */

static bool same(const struct msg_shape *shape, const uint8_t *a, const uint8_t *b)
{
	static const size_t widths[] = {
		[KIND_U16] = 2, [KIND_U32] = 4, [KIND_U64] = 8, [KIND_I32] = 4, [KIND_F64] = 8,
		[KIND_ID] = ID_BYTES, [KIND_U32S] = 4, [KIND_U64S] = 8, [KIND_SUB] = 0,
	};

	for (uint32_t r = 0; r < shape->nrows; r++) {
		const struct msg_row *row = &shape->rows[r];
		const uint8_t *pa = pointer(row, a), *pb = pointer(row, b);
		uint32_t n;

		switch (row->kind) {
		case KIND_STR:
			if (!pb || strcmp(pa ? (const char *)pa : "", (const char *)pb))
				return false;
			break;
		case KIND_U32S:
		case KIND_U64S:
			n = msg_row_count(row, a);
			if (n != msg_row_count(row, b) ||
			    (n && memcmp(pa, pb, n * widths[row->kind])))
				return false;
			break;
		case KIND_SUBS:
			n = msg_row_count(row, a);
			if (n != msg_row_count(row, b))
				return false;
			for (size_t i = 0, at = 0; i < n; i++, at += row->sub->bytes)
				if (!same(row->sub, pa + at, pb + at))
					return false;
			break;
		case KIND_SUB:
			if (!same(row->sub, a + row->at, b + row->at))
				return false;
			break;
		default:
			if (memcmp(a + row->at, b + row->at, widths[row->kind]))
				return false;
		}
	}
	return true;
}

static bool same_msg(const struct msg *a, const struct msg *b)
{
	return a->type == b->type && same(msg_shape_of(a->type), (const uint8_t *)&a->reply,
					  (const uint8_t *)&b->reply);
}

#endif
