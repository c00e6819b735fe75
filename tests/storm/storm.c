// SPDX-License-Identifier: Apache-2.0
/*
 * storm.c - choices, and messages made of them.
 */
#include "tests/storm/storm.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/dtype.h"
#include "common/base/turn.h"
#include "common/place/place.h"

#define MANY	200u		/* elements of an array that is long */

void storm_init(struct storm *s, uint64_t seed, const uint8_t *data, size_t size)
{
	*s = (struct storm){ .rng = { seed }, .data = data, .left = size };
	s->arena = malloc(STORM_ARENA);
	ASSERT(s->arena);
}

void storm_fini(struct storm *s)
{
	for (uint32_t i = 0; i < STORM_SEEN; i++)
		free(s->seen[i].wire);
	free(s->arena);
}

void storm_reset(struct storm *s)
{
	s->used = 0;
}

void *storm_get(struct storm *s, size_t bytes)
{
	void *p = s->arena + s->used;

	bytes = align_up(MAX(bytes, 1), 16);
	if (bytes > STORM_ARENA - s->used)
		return NULL;
	s->used += bytes;
	return memset(p, 0, bytes);
}

/* ---- choices ---- */

static uint64_t draw(struct storm *s, uint32_t bytes)
{
	uint8_t b[8] = { 0 };

	if (!s->data)
		return rng_u64(&s->rng);
	if (s->left < bytes) {
		s->over = true;
		return 0;
	}
	memcpy(b, s->data, bytes);
	s->data += bytes;
	s->left -= bytes;
	return get_le64(b);
}

uint32_t storm_below(struct storm *s, uint32_t n)
{
	if (n <= 1)
		return 0;
	if (!s->data)
		return (uint32_t)rng_below(&s->rng, n);
	return (uint32_t)(draw(s, n <= 256 ? 1 : 4) % n);
}

bool storm_one_in(struct storm *s, uint32_t n)
{
	return storm_below(s, n) == n - 1;
}

/* ---- what was said ---- */

enum { POOL_NONE, POOL_JOB, POOL_SEQ, POOL_NODE, POOL_TENSOR, POOL_REQ };

static uint32_t pool_of(const char *name)
{
	static const struct {
		const char *name;
		uint32_t pool;
	} rows[] = {
		{ "job", POOL_JOB }, { "back", POOL_JOB },
		{ "seq", POOL_SEQ }, { "epoch", POOL_SEQ }, { "epoch_seq", POOL_SEQ },
		{ "epoch_seen", POOL_SEQ }, { "log", POOL_SEQ }, { "barrier", POOL_SEQ },
		{ "generation", POOL_SEQ }, { "grown_at", POOL_SEQ }, { "barriers", POOL_SEQ },
		{ "round", POOL_SEQ }, { "rounds", POOL_SEQ },
		{ "node", POOL_NODE }, { "who", POOL_NODE },
		{ "id", POOL_TENSOR }, { "ids", POOL_TENSOR }, { "tensor", POOL_TENSOR },
		{ "req", POOL_REQ },
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(rows[i].name, name))
			return rows[i].pool;
	return POOL_NONE;
}

static void keep(struct storm *s, uint32_t pool, uint64_t v)
{
	if (!pool || !v)
		return;
	for (uint32_t i = 0; i < MIN(s->npool[pool], STORM_POOL); i++)
		if (s->pool[pool][i] == v)
			return;
	s->pool[pool][s->npool[pool]++ % STORM_POOL] = v;
}

static void see_rows(struct storm *s, const struct msg_shape *shape, const uint8_t *plain)
{
	for (uint32_t i = 0; i < shape->nrows; i++) {
		const struct msg_row *row = &shape->rows[i];
		uint32_t pool = pool_of(row->name);
		uint64_t v = 0;

		if (row->kind == KIND_U32 || row->kind == KIND_U64) {
			memcpy(&v, plain + row->at, row->kind == KIND_U32 ? 4 : 8);
			keep(s, pool, v);
		} else if (row->kind == KIND_U32S && pool) {
			for (uint32_t k = 0; k < MIN(msg_row_count(row, plain), 4); k++)
				keep(s, pool, ((const uint32_t *)msg_row_ptr(row, plain))[k]);
		} else if (row->kind == KIND_SUBS) {
			const uint8_t *sub = msg_row_ptr(row, plain);

			for (uint32_t k = 0; k < MIN(msg_row_count(row, plain), 4); k++)
				see_rows(s, row->sub, sub + k * row->sub->bytes);
		}
	}
}

void storm_see(struct storm *s, uint32_t conn, const struct msg *m)
{
	struct storm_kept *k = &s->seen[s->nseen % STORM_SEEN];
	uint32_t bytes;
	struct err e;

	see_rows(s, msg_shape_of(m->type), msg_body(m));
	if (m->type == MSG_REPORT || msg_encode_size(m, &bytes, &e) || bytes > (16u << 10))
		return;
	s->nseen++;
	free(k->wire);
	*k = (struct storm_kept){
		.conn = conn, .type = m->type, .bytes = bytes - MSG_PREFIX_BYTES,
	};
	k->wire = malloc(bytes);
	ASSERT(k->wire && !msg_encode(m, k->wire, bytes, &e));
}

static bool decode(struct storm *s, const struct storm_kept *k, uint32_t type, struct msg *m)
{
	size_t need = MIN(msg_mem_need(k->bytes), (size_t)STORM_ARENA / 4);
	struct msg_mem mem = { .base = storm_get(s, need), .size = need };

	return mem.base &&
	       !msg_decode(type, k->wire + MSG_PREFIX_BYTES, k->bytes, &mem, m, NULL);
}

bool storm_last(struct storm *s, uint32_t conn, struct msg *m)
{
	for (uint32_t i = 0; i < MIN(s->nseen, STORM_SEEN); i++) {
		const struct storm_kept *k = &s->seen[(s->nseen - 1 - i) % STORM_SEEN];

		if (k->conn == conn && k->type != MSG_HEARTBEAT && k->type != MSG_REPLY)
			return decode(s, k, k->type, m);
	}
	return false;
}

bool storm_seen(struct storm *s, uint32_t i, struct msg *m)
{
	uint32_t at = i + (s->nseen > STORM_SEEN ? s->nseen - STORM_SEEN : 0);
	const struct storm_kept *k = &s->seen[at % STORM_SEEN];

	return at < s->nseen && decode(s, k, k->type, m);
}

/* ---- fields ---- */

/* What a plausible message has there, from `lo` on. */
static uint64_t usual(struct storm *s, const char *name, uint64_t lo)
{
	static const struct {
		const char *name;
		uint64_t base;
		uint32_t more;
	} rows[] = {
		{ "world", 2, 2 }, { "rank", 0, 3 }, { "chunk_bytes", CHUNK_BYTES_MIN, 1 },
		{ "seg_bytes", SEG_BYTES_MIN, 1 }, { "window_bytes", WINDOW_BYTES_MAX, 1 },
		{ "algorithm", PLACE_ALGORITHM, 1 }, { "weight", 1u << 31, 1 },
		{ "dtype", DTYPE_F32, 2 }, { "count", 0, 4000 }, { "dims", 0, 40 },
		{ "timeout_ms", 0, 20000 }, { "memory_bytes", 1u << 30, 1 },
		{ "bits_per_s", 1000000000, 1 }, { "adder_bytes_per_s", 1000000000, 1 },
		{ "uid", 1000, 1 }, { "pid", 100, 4 }, { "bytes", 4096, 1 }, { "length", 4096, 1 },
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(rows[i].name, name))
			return rows[i].base + storm_below(s, rows[i].more);
	return lo + storm_below(s, 3);
}

static uint64_t number(struct storm *s, const struct msg_row *row, uint64_t hi)
{
	uint32_t pool = pool_of(row->name), how = storm_below(s, 24);
	uint32_t n = MIN(s->npool[pool], STORM_POOL);
	uint64_t v, lo = (uint64_t)row->lo;

	if (how == 0)
		return lo;
	if (how == 1)
		return hi - storm_below(s, 2);
	if (how == 2)
		return lo + ((hi - lo) >> storm_below(s, 64));
	if (!pool || !n || how == 3)
		return usual(s, row->name, lo);
	v = s->pool[pool][storm_below(s, n)];
	return how == 4 ? v + 1 : how == 5 ? v - 1 : v;
}

static const char *text(struct storm *s, const struct msg_row *row)
{
	static const char *const job[] = { "x", "x", "y" };
	static const char *const any[] = { "a", "b", "c", "s", "t", "x", "" };
	uint32_t how = storm_below(s, 40);
	const char *t;
	char *p;

	if (how == 0) {				/* as long as can be, and in UTF-8 */
		p = storm_get(s, row->hi + 1);
		if (!p)
			return "a";
		memset(p, 'a' + (int)storm_below(s, 3), row->hi);
		if (row->hi > 4)
			memcpy(p, "\xf0\x90\x80\x80", 4);
		return p;
	}
	if (!strcmp(row->name, "secret") || !strcmp(row->name, "shm_path"))
		return how == 1 ? "a" : "";
	if (!strcmp(row->name, "host"))
		return how == 1 ? "::1" : "127.0.0.1";
	t = !strcmp(row->name, "job") ? job[storm_below(s, ARRAY_SIZE(job))]
				      : any[storm_below(s, ARRAY_SIZE(any))];
	return *t || !row->lo ? t : "a";
}

static void fill(struct storm *s, const struct msg_shape *shape, uint8_t *plain, uint32_t depth);

static uint32_t count(struct storm *s, const struct msg_row *row)
{
	uint64_t lo = (uint64_t)row->lo;
	uint32_t how = storm_below(s, 30);

	if (how == 0)
		return (uint32_t)MIN(row->hi, MANY);
	if (how < 8)
		return (uint32_t)lo;
	return (uint32_t)MIN(row->hi, lo + storm_below(s, 4));
}

static void fill_array(struct storm *s, const struct msg_row *row, uint8_t *plain, uint32_t depth)
{
	size_t each = row->kind == KIND_U32S ? 4 : row->kind == KIND_U64S ? 8 : row->sub->bytes;
	uint32_t n = count(s, row);
	uint8_t *p = n ? storm_get(s, n * each) : NULL;
	bool ranks = pool_of(row->name) == POOL_NONE;

	n = p ? n : 0;
	memcpy(plain + row->at, &p, sizeof(p));
	memcpy(plain + row->count_at, &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++) {
		struct msg_row one = { .name = row->name, .lo = 0 };
		uint64_t v;

		if (row->kind == KIND_SUBS) {
			fill(s, row->sub, p + i * each, depth + 1);
			continue;
		}
		v = ranks && row->kind == KIND_U32S ? i + storm_below(s, 2)
		    : number(s, &one, each == 4 ? UINT32_MAX : UINT64_MAX);
		memcpy(p + i * each, &v, each);
	}
}

static void fill_row(struct storm *s, const struct msg_row *row, uint8_t *plain, uint32_t depth)
{
	static const int32_t codes[] = { 0, 0, 0, TALLY_EWORKERLOST, TALLY_EQUOTA, TALLY_EMISMATCH,
					 -1023 };
	const char *t;
	uint64_t v;
	double f;

	switch (row->kind) {
	case KIND_U16:
	case KIND_U32:
	case KIND_U64:
		v = number(s, row, row->hi);
		v = MAX(v, (uint64_t)row->lo);
		v = MIN(v, row->hi);
		memcpy(plain + row->at, &v,
		       row->kind == KIND_U16 ? 2 : row->kind == KIND_U32 ? 4 : 8);
		break;
	case KIND_I32:
		memcpy(plain + row->at, &codes[storm_below(s, ARRAY_SIZE(codes))], 4);
		break;
	case KIND_F64:
		f = storm_below(s, 9);
		memcpy(plain + row->at, &f, 8);
		break;
	case KIND_ID:
		memset(plain + row->at, 0, ID_BYTES);
		plain[row->at] = (uint8_t)storm_below(s, 4);
		break;
	case KIND_STR:
		t = text(s, row);
		memcpy(plain + row->at, &t, sizeof(t));
		break;
	case KIND_U32S:
	case KIND_U64S:
	case KIND_SUBS:
		fill_array(s, row, plain, depth);
		break;
	case KIND_SUB:
		fill(s, row->sub, plain + row->at, depth + 1);
		break;
	}
}

static void fill(struct storm *s, const struct msg_shape *shape, uint8_t *plain, uint32_t depth)
{
	for (uint32_t i = 0; i < shape->nrows && depth < 4; i++)
		fill_row(s, &shape->rows[i], plain, depth);
}

/* ---- rules between fields ---- */

static void mend_ranks(const uint32_t *ranks, uint32_t *n, uint32_t world, uint32_t least)
{
	uint32_t *r = (uint32_t *)ranks, kept = 0;

	for (uint32_t i = 0; i < *n; i++) {
		uint32_t v = world ? r[i] % world : r[i];

		if (!kept || v > r[kept - 1])
			r[kept++] = v;
	}
	*n = MAX(kept, MIN(least, *n));
}

static void mend_chunk(uint32_t *bytes, bool may_be_none)
{
	if (*bytes || !may_be_none)
		*bytes = MAX(*bytes & ~(PAGE_BYTES - 1), CHUNK_BYTES_MIN);
}

static void mend_tensors(const struct msg_tensor *t, uint32_t n, bool ids)
{
	for (uint32_t i = 0; i < n; i++) {
		struct msg_tensor *m = (struct msg_tensor *)&t[i];
		uint64_t max = TENSOR_BYTES_MAX / dtype_bytes((uint8_t)m->dtype), product = 1;

		m->id |= ids && !m->id;
		for (uint32_t k = 0; k < m->ndims; k++)
			if (__builtin_mul_overflow(product, m->dims[k], &product) ||
			    product > max) {
				m->ndims = 0;
				m->dims = NULL;
			}
		m->count = m->ndims ? product : MIN(m->count, max);
	}
}

static void mend_job_up(struct msg_job_up *m)
{
	uint32_t weight = 0;

	mend_chunk(&m->chunk_bytes, false);
	m->seg_bytes = MAX(m->seg_bytes & ~(PAGE_BYTES - 1), SEG_BYTES_MIN);
	if (m->chunk_bytes % m->seg_bytes)
		m->seg_bytes = m->chunk_bytes <= SEG_BYTES_MAX ? m->chunk_bytes : SEG_BYTES_MIN;
	m->window_bytes = MAX(m->window_bytes, m->seg_bytes);
	mend_ranks(m->gone, &m->ngone, m->world, 0);
	mend_ranks(m->left, &m->nleft, m->world, 0);
	mend_ranks(m->joined, &m->njoined, m->world, 0);
	m->ngone -= m->ngone == m->world;
	for (uint32_t i = 0; i < m->nmachines; i++) {
		struct msg_machine *a = (struct msg_machine *)&m->machines[i];

		mend_ranks(a->ranks, &a->nranks, m->world, 1);
		if (i && a->nranks && a->ranks[0] <= a[-1].ranks[0]) {
			if (a[-1].ranks[0] + 1 >= m->world) {
				m->nmachines = i;
				break;
			}
			*(uint32_t *)a->ranks = a[-1].ranks[0] + 1;
			a->nranks = 1;
		}
	}
	for (uint32_t i = 0; i < m->nservers; i++)
		weight |= m->servers[i].weight;
	if (m->nmachines > 1 && !weight && m->nservers)
		((struct msg_server *)m->servers)->weight = PLACE_WEIGHT_SUM;
	else if (m->nmachines > 1 && !m->nservers)
		m->nmachines = 1;
}

static void mend_ids(const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		((uint32_t *)ids)[i] |= !ids[i];
}

static void mend_attached(struct msg_attached *m)
{
	m->rank %= m->world;
	m->local_rank %= m->local_size;
	mend_chunk(&m->chunk_bytes, false);
}

static void mend_type(struct msg *m)
{
	switch (m->type) {
	case MSG_HELLO:
		m->hello.version_min = MIN(m->hello.version_min, m->hello.version_max);
		m->hello.engines = MAX(m->hello.engines, 1);
		if (!*m->hello.machine)
			m->hello.machine = m->hello.name;
		break;
	case MSG_RANK_JOIN:
		m->rank_join.rank %= m->rank_join.world;
		mend_chunk(&m->rank_join.chunk_bytes, true);
		break;
	case MSG_ATTACH:
		m->attach.rank %= m->attach.world;
		mend_chunk(&m->attach.chunk_bytes, true);
		break;
	case MSG_ATTACHED:
		mend_attached(&m->attached);
		break;
	case MSG_JOB_UP:
	case MSG_JOB_HELD:
		mend_job_up(&m->job_up);
		break;
	case MSG_EPOCH:
		mend_ranks(m->epoch.gone, &m->epoch.ngone, WORLD_SIZE_MAX, 0);
		mend_ranks(m->epoch.joined, &m->epoch.njoined, WORLD_SIZE_MAX, 0);
		break;
	case MSG_DECLARE:
		mend_tensors(m->declare.tensors, m->declare.ntensors, false);
		break;
	case MSG_TENSORS:
	case MSG_TENSORS_HELD:
		mend_tensors(m->tensors.tensors, m->tensors.ntensors, true);
		break;
	case MSG_UNDECLARE:
	case MSG_FORGET:
		mend_ids(m->ids.ids, m->ids.nids);
		break;
	case MSG_REPLY:
	case MSG_DETACH:
		mend_ids(m->reply.ids, m->reply.nids);
		break;
	default:
		break;
	}
}

bool storm_mend(struct msg *m)
{
	uint32_t bytes;

	mend_type(m);
	return !msg_encode_size(m, &bytes, NULL);
}

/* ---- messages ---- */

bool storm_make(struct storm *s, uint32_t type, struct msg *m)
{
	const struct msg_shape *shape = msg_shape_of(type);

	memset(m, 0, sizeof(*m));
	if (!shape)
		return false;
	m->type = (enum msg_type)type;
	fill(s, shape, (uint8_t *)&m->reply, 0);
	return storm_mend(m);
}

/* A field of the message, or of one of its parts. */
static void change(struct storm *s, const struct msg_shape *shape, uint8_t *plain, uint32_t depth)
{
	const struct msg_row *row = &shape->rows[storm_below(s, shape->nrows)];
	uint32_t n = row->kind == KIND_SUBS ? msg_row_count(row, plain) : 0;

	if (n && depth < 3 && !storm_one_in(s, 4)) {
		uint8_t *sub = (uint8_t *)msg_row_ptr(row, plain);

		if (storm_one_in(s, 4)) {	/* one less of them */
			n -= n > (uint64_t)row->lo;
			memcpy(plain + row->count_at, &n, sizeof(n));
			return;
		}
		change(s, row->sub, sub + storm_below(s, n) * row->sub->bytes, depth + 1);
		return;
	}
	fill_row(s, row, plain, depth);
}

bool storm_echo(struct storm *s, struct msg *m)
{
	uint32_t n = MIN(s->nseen, STORM_SEEN), changes, as = 0, types = 0;
	const struct storm_kept *k;

	if (!n)
		return false;
	k = &s->seen[(s->nseen - 1 - storm_below(s, n)) % STORM_SEEN];
	for (uint32_t t = MSG_NONE + 1; t < MSG_TYPE_END; t++)
		if (msg_shape_of(t) == msg_shape_of(k->type) && !storm_below(s, ++types))
			as = t;
	if (!decode(s, k, as, m))
		return false;
	changes = storm_below(s, 3);
	for (uint32_t i = 0; i < changes; i++)
		change(s, msg_shape_of(as), (uint8_t *)&m->reply, 0);
	return storm_mend(m);
}

bool storm_any(struct storm *s, struct msg *m)
{
	if (storm_one_in(s, 2))
		return storm_echo(s, m);
	return storm_make(s, 1 + storm_below(s, MSG_TYPE_END - 1), m);
}
