// SPDX-License-Identifier: Apache-2.0
/*
 * sched_key.c - what an agent's data links present to the servers.
 *
 * The key is a function of the cluster's secret seed and the agent's number, by
 * which servers know it: a restarted scheduler hands out the same one, an agent that
 * was started again has it, too, and links that reconnect are let in.  The function is
 * SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012): a keyed
 * pseudo-random function, which is what is needed to keep one agent from computing
 * another's key.
 */
#include "scheduler/sched.h"

static uint64_t rotl(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static void rounds(uint64_t v[4], int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] = rotl(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[2] = rotl(v[2], 32);
	}
}

static void absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

void key_derive(const uint8_t seed[KEY_BYTES], uint32_t number, uint8_t key[KEY_BYTES])
{
	uint64_t k0 = get_le64(seed), k1 = get_le64(seed + 8);
	uint64_t v[4] = {
		k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
		k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573),
	};

	absorb(v, number);
	absorb(v, (uint64_t)sizeof(uint64_t) << 56);
	v[2] ^= 0xee;
	rounds(v, 4);
	put_le64(key, v[0] ^ v[1] ^ v[2] ^ v[3]);
	v[1] ^= 0xdd;
	rounds(v, 4);
	put_le64(key + 8, v[0] ^ v[1] ^ v[2] ^ v[3]);
}
