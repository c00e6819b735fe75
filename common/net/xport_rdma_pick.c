// SPDX-License-Identifier: Apache-2.0
/*
 * xport_rdma_pick.c - which address of which port a link takes.  No verbs, no I/O.
 *
 * A RoCE device lists the addresses of its network interfaces as GIDs, each once for
 * every RoCE version it speaks.  The row with the address that the link has anyway
 * belongs to the right card, VLAN and network by construction, and is what the peer's
 * routes lead to.  RoCEv1 is not routed, so it never serves.  On InfiniBand GIDs are no
 * IP addresses: there the network interface (IPoIB) leads to the port.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/net/xport_rdma.h"

bool rdma_gid_of(const struct sockaddr_storage *sa, uint8_t gid[16])
{
	if (sa->ss_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
		return true;
	}
	if (sa->ss_family != AF_INET)
		return false;
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	return true;
}

uint32_t rdma_mtu_bytes(uint8_t mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

uint32_t rdma_patience_ms(bool soft)
{
	uint32_t timeout = soft ? RDMA_SOFT_TIMEOUT : RDMA_TIMEOUT;
	uint32_t retries = soft ? RDMA_SOFT_RETRIES : RDMA_RETRIES;

	return (uint32_t)(UINT64_C(4096) * (1u << timeout) * (retries + 1) / 1000000);
}

static bool serves(const struct rdma_gid *r, const uint8_t addr[16], const char *netdev)
{
	if (r->type == RDMA_IB)
		return r->index == 0 && netdev[0] && !strcmp(r->netdev, netdev);
	return !memcmp(r->gid, addr, 16);
}

static void describe(const struct rdma_gid *r, char *why, size_t len)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, r->gid, text, sizeof(text));
	snprintf(why, len, "%s port %u gid %u (%s), %s, mtu %u", r->name, r->port, r->index, text,
		 r->type == RDMA_IB ? "InfiniBand: the port of the link's interface" :
		 "RoCEv2: the link's own address", rdma_mtu_bytes(r->mtu));
}

int rdma_pick(const struct rdma_gid *rows, uint32_t n, const uint8_t addr[16], const char *netdev,
	      char *why, size_t len)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, addr, text, sizeof(text));
	snprintf(why, len, "no RDMA device has the address %s", text);
	for (uint32_t i = 0; i < n; i++) {
		const struct rdma_gid *r = &rows[i];

		if (!serves(r, addr, netdev))
			continue;
		if (r->type == RDMA_ROCE_V1) {
			snprintf(why, len, "%s has %s for RoCEv1 only", r->name, text);
		} else if (!r->active) {
			snprintf(why, len, "%s port %u is down", r->name, r->port);
		} else {
			describe(r, why, len);
			return (int)i;
		}
	}
	return -1;
}
