// SPDX-License-Identifier: Apache-2.0
/* What the speeds of cards decide: how many links there are, how much is under way on them. */
#include "common/net/flight.h"
#include "worker-agent/agent.h"

#define LINK_BITS	20000000000ull	/* of one TCP connection: a guess, net_bench has 34 by lo */

uint64_t ad_slower_card(uint64_t a, uint64_t b)
{
	if (!a && !b)
		return CARD_BITS_UNKNOWN;
	return a && b ? MIN(a, b) : MAX(a, b);
}

uint32_t ad_tcp_links(uint64_t bits_per_s, uint32_t pairs)
{
	return (uint32_t)MIN(MAX(div_round_up(bits_per_s, LINK_BITS * pairs), 1),
			     LINKS_PER_RAIL_MAX);
}

uint64_t ad_rail_links(const struct agent *a, uint64_t bits_per_s, uint32_t server_engines)
{
	uint32_t pairs = geom_engine_pairs(a->nlinked, MAX(server_engines, 1));

	return a->opt.links ? a->opt.links : ad_tcp_links(bits_per_s, pairs);
}

uint64_t ad_card_flight(const struct agent *a)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < a->nrails; i++)
		bits += a->rail[i].bits_per_s;
	return flight_part(bits, a->nlinked);
}
