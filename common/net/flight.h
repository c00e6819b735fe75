/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - how much may be under way at once on a card.
 *
 * Bytes that the kernel or the card's queue hold cannot be overtaken, and wait in
 * the same queue as acknowledgements and probes.  So a daemon keeps no more of
 * them than the card sends in FLIGHT_MS: enough to bridge the time until it looks
 * again, little enough that its own order (urgency, shares) is the wire's order.
 * A virtual card says 10 Gbit/s, and may be shaped to a tenth of that or carry many times as
 * much: what it says is right for both (docs/BENCHMARKS.md).
 */
#ifndef TALLY_NET_FLIGHT_H
#define TALLY_NET_FLIGHT_H

#include "common/base/base.h"

#define FLIGHT_MS		3u
#define FLIGHT_PEERS_MIN	3u
#define FLIGHT_PEER_BYTES_MIN	(64u << 10)
#define FLIGHT_LOOK_MS		1u		/* look again when it is full */
#define FLIGHT_BYTES_MIN	(192u << 10)
#define FLIGHT_CREDIT		6u		/* times what is under way */

/* Of all cards together, bits/s; 0: unknown.  UINT64_MAX: no bound. */
static inline uint64_t flight_bytes(uint64_t bits_per_s)
{
	if (!bits_per_s)
		return UINT64_MAX;
	return MAX(bits_per_s / 8 * FLIGHT_MS / 1000, FLIGHT_BYTES_MIN);
}

/* Each engine's part of flight_bytes(). */
static inline uint64_t flight_part(uint64_t bits_per_s, uint32_t engines)
{
	uint64_t limit = flight_bytes(bits_per_s);

	return limit == UINT64_MAX ? limit : MAX(limit / engines, FLIGHT_BYTES_MIN);
}

/*
 * Bytes that one of `peers` may have under way: twice its part. With much more a peer whose NIC
 * is busy takes all there is and the others starve; with less the NIC idles when several are
 * busy at once.
 */
static inline uint64_t flight_peer_bytes(uint64_t limit, uint32_t peers)
{
	if (limit == UINT64_MAX)
		return UINT64_MAX;
	return MAX(limit * 2 / MAX(peers, FLIGHT_PEERS_MIN), FLIGHT_PEER_BYTES_MIN);
}

/*
 * Bytes that a job whose rounds wait for what others have under way may catch up with (fair.h):
 * several times as much, since a round waits at agents, servers and receivers.
 */
static inline uint64_t flight_credit(uint64_t limit)
{
	return (limit == UINT64_MAX ? FLIGHT_BYTES_MIN : limit) * FLIGHT_CREDIT;
}

/* Bytes that fit on top of `bytes` under way. */
static inline uint64_t flight_room(uint64_t limit, uint64_t bytes)
{
	return limit - MIN(limit, bytes);
}

#endif
