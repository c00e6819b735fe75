/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes.h - little-endian loads and stores, the checksum, a small generator.
 */
#ifndef TALLY_BASE_BYTES_H
#define TALLY_BASE_BYTES_H

#include <string.h>

#include "common/base/base.h"

static inline void put_le16(void *p, uint16_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
}

static inline void put_le32(void *p, uint32_t v)
{
	put_le16(p, (uint16_t)v);
	put_le16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

static inline void put_le64(void *p, uint64_t v)
{
	put_le32(p, (uint32_t)v);
	put_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t get_le16(const void *p)
{
	const uint8_t *b = p;

	return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t get_le32(const void *p)
{
	return get_le16(p) | (uint32_t)get_le16((const uint8_t *)p + 2) << 16;
}

static inline uint64_t get_le64(const void *p)
{
	return get_le32(p) | (uint64_t)get_le32((const uint8_t *)p + 4) << 32;
}

/* CRC-32C (Castagnoli, reflected, init and final xor ~0), as in iSCSI. */
uint32_t crc32c(const void *data, size_t len);
uint32_t crc32c_by_table(const void *data, size_t len);	/* the same on every CPU; for tests */

/* A deterministic generator (splitmix64) for cores, simulator and tests. */
struct rng {
	uint64_t state;
};

static inline uint64_t rng_u64(struct rng *r)
{
	uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Uniform enough in [0, n); n > 0. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)rng_u64(r) * n) >> 64);
}

/* Bit sets over caller-provided words. */
#define BITS_WORDS(n)	(((n) + 63) / 64)

static inline bool bits_test(const uint64_t *w, uint32_t i)
{
	return w[i / 64] >> (i % 64) & 1;
}

static inline void bits_set(uint64_t *w, uint32_t i)
{
	w[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void bits_clear(uint64_t *w, uint32_t i)
{
	w[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

#endif
