// SPDX-License-Identifier: Apache-2.0
/*
 * agg.c - slots, versions, and the rule by which a cell counts.
 *
 * agg_take() finds the version of the position.  If it holds that position already, the machine's
 * bit says whether the cell is a copy.  If it holds the one before (or none in this life), and the
 * slot's other version is done with the position in between, the version begins anew.  All else is
 * refused, whatever it claims to be.
 */
#include "common/lane/agg.h"

#include "common/kern/kern.h"

static uint32_t version_of(const struct agg *a, uint32_t p)
{
	return p & (2 * a->slots - 1);
}

static uint64_t *seen_of(const struct agg *a, uint32_t version)
{
	return a->seen + (size_t)version * BITS_WORDS(a->members);
}

static uint8_t *parked_at(const struct agg *a, uint32_t p, uint32_t w)
{
	return a->parked + ((size_t)(p & (a->slots - 1)) * a->members + w) * a->cell_bytes;
}

static uint8_t *sum_at(const struct agg *a, uint32_t version)
{
	return a->sums + (size_t)version * a->cell_bytes;
}

static size_t up64(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

static size_t seen_bytes(uint32_t members, uint32_t slots)
{
	return up64(2 * (size_t)slots * BITS_WORDS(members) * sizeof(uint64_t));
}

static size_t version_bytes(uint32_t slots)
{
	return up64(2 * (size_t)slots * sizeof(struct agg_version));
}

size_t agg_bytes(enum agg_mode mode, uint32_t members, uint32_t slots, uint32_t cell_bytes)
{
	size_t cells = 2 * (size_t)slots + (mode == AGG_EXACT ? (size_t)slots * members : 0);

	return version_bytes(slots) + seen_bytes(members, slots) + cells * cell_bytes;
}

void agg_init(struct agg *a, void *memory, enum agg_mode mode, uint32_t members, uint32_t slots,
	      uint32_t cell_bytes, const uint64_t *resident)
{
	uint8_t *at = memory;

	ASSERT(members >= 1 && members <= AGG_MEMBERS_MAX);
	ASSERT(slots >= AGG_SLOTS_MIN && slots <= AGG_SLOTS_MAX && !(slots & (slots - 1)));
	ASSERT(cell_bytes && cell_bytes <= CELL_PAYLOAD_MAX && !(cell_bytes % 64));
	*a = (struct agg){
		.mode = mode, .members = members, .slots = slots, .cell_bytes = cell_bytes,
		.resident = resident,
	};
	for (uint32_t w = 0; w < members; w++)
		a->senders += !bits_test(resident, w);
	ASSERT(a->senders);
	a->version = (struct agg_version *)at;
	at += version_bytes(slots);
	a->seen = (uint64_t *)at;
	at += seen_bytes(members, slots);
	a->sums = at;
	a->parked = at + 2 * (size_t)slots * cell_bytes;
	memset(a->seen, 0, seen_bytes(members, slots));
	for (uint32_t v = 0; v < 2 * slots; v++)
		a->version[v] = (struct agg_version){ .fresh = true };
}

/* Has version v, of the position `slots` before p, its sum, or is there no such position? */
static bool is_over(const struct agg *a, const struct agg_version *v, uint32_t p)
{
	return v->fresh ? p < a->slots : v->p == p - a->slots && v->summed;
}

/* May version v begin position p? */
static bool may_begin(const struct agg *a, const struct agg_version *v, uint32_t p)
{
	bool next = v->fresh ? p < 2 * a->slots : p == v->p + 2 * a->slots && v->summed;

	return next && is_over(a, &a->version[version_of(a, p) ^ a->slots], p);
}

static void begin(struct agg *a, uint32_t version, uint32_t p, uint32_t len)
{
	a->version[version] = (struct agg_version){ .p = p, .len = len };
	memset(seen_of(a, version), 0, BITS_WORDS(a->members) * sizeof(uint64_t));
}

/* Adds `len` bytes of int32, modulo 2^32; the first contribution is copied. */
static void add_int32(uint8_t *sum, const uint8_t *in, uint32_t len, bool first)
{
	const void *both[2] = { sum, in };

	if (first)
		memcpy(sum, in, len);
	else
		kern_sum(DTYPE_I32, sum, both, 2, len / 4, 1);
}

static enum agg_verdict verdict_elsewhere(const struct agg_version *v, uint32_t p)
{
	return !v->fresh && serial_before(p, v->p) ? AGG_STALE : AGG_JUMP;
}

enum agg_verdict agg_take(struct agg *a, uint32_t w, uint32_t p, const void *payload,
			  uint32_t len)
{
	uint32_t version = version_of(a, p);
	struct agg_version *v = &a->version[version];

	if (w >= a->members || bits_test(a->resident, w) || !len || len > a->cell_bytes)
		return AGG_REFUSED;
	if (v->fresh || v->p != p) {
		if (!may_begin(a, v, p))
			return verdict_elsewhere(v, p);
		begin(a, version, p, len);
	}
	if (bits_test(seen_of(a, version), w))
		return v->summed ? AGG_AGAIN : AGG_COPY;
	if (len != v->len)
		return AGG_REFUSED;
	if (a->mode == AGG_INT32)
		add_int32(sum_at(a, version), payload, len, v->count == 0);
	else
		memcpy(parked_at(a, p, w), payload, len);
	bits_set(seen_of(a, version), w);
	v->count++;
	return v->count == a->senders ? AGG_COMPLETE : AGG_TAKEN;
}

/* Where the contribution of machine w to position p lies. */
static const void *input_at(const struct agg *a, uint32_t p, uint32_t w,
			    const void *const *inputs)
{
	return bits_test(a->resident, w) ? inputs[w] : parked_at(a, p, w);
}

const void *agg_sum(struct agg *a, uint32_t p, enum dtype dtype, uint32_t div,
		    const void *const *inputs)
{
	uint32_t version = version_of(a, p);
	struct agg_version *v = &a->version[version];
	const void *in[AGG_MEMBERS_MAX];
	uint8_t *sum = sum_at(a, version);

	ASSERT(!v->fresh && v->p == p && v->count == a->senders && !v->summed);
	v->summed = true;
	if (a->mode == AGG_EXACT) {
		for (uint32_t w = 0; w < a->members; w++)
			in[w] = input_at(a, p, w, inputs);
		kern_sum(dtype, sum, in, a->members, v->len / dtype_bytes(dtype), div);
		return sum;
	}
	ASSERT(dtype == DTYPE_I32 && div == 1);
	for (uint32_t w = 0; w < a->members; w++)
		if (bits_test(a->resident, w))
			add_int32(sum, inputs[w], v->len, false);
	return sum;
}

const void *agg_result(const struct agg *a, uint32_t p, uint32_t *len)
{
	uint32_t version = version_of(a, p);
	const struct agg_version *v = &a->version[version];

	if (v->fresh || v->p != p || !v->summed)
		return NULL;
	*len = v->len;
	return sum_at(a, version);
}

bool agg_misses(const struct agg *a, uint32_t p, uint32_t w)
{
	uint32_t version = version_of(a, p);
	const struct agg_version *v = &a->version[version];

	return w < a->members && !bits_test(a->resident, w) && !v->fresh && v->p == p &&
	       !bits_test(seen_of(a, version), w);
}

void agg_check(const struct agg *a)
{
	for (uint32_t i = 0; i < 2 * a->slots; i++) {
		const struct agg_version *v = &a->version[i], *w = &a->version[i ^ a->slots];
		uint32_t count = 0;

		for (uint32_t word = 0; word < BITS_WORDS(a->members); word++)
			count += (uint32_t)__builtin_popcountll(seen_of(a, i)[word]);
		ASSERT(count == v->count && count <= a->senders);
		ASSERT(v->fresh || version_of(a, v->p) == i);
		ASSERT(!v->summed || v->count == a->senders);
		/* At most one of a slot's versions gathers. */
		ASSERT(v->fresh || w->fresh || v->summed || w->summed);
	}
}
