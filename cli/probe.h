/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - two machines measure the link between them, with the daemons' transport.
 *
 * One side listens (probe_serve), the other connects and leads (probe_run): RDMA where
 * both have a card for the addresses, TCP else, as agents and servers would.  Nothing
 * else of Tally need run.  Whoever reaches the port may take part: it is for as long as
 * somebody looks at it.
 */
#ifndef TALLY_CLI_PROBE_H
#define TALLY_CLI_PROBE_H

#include "common/net/xport.h"

#define PROBE_PORT		7479
#define PROBE_SECONDS		60u	/* each step; then it fails */
#define PROBE_PINGS		200u

struct probe_result {
	char kind[8];			/* "rdma", "tcp" */
	char path[256];			/* which card and why, or why not */
	double latency_us;		/* half of a round trip of a frame, median */
	double out, in;			/* bytes/s, each way by itself */
	double both_out, both_in;	/* and at once */
	uint64_t detours;		/* payloads that went over TCP beside RDMA */
};

/* `bytes` each way in payloads of `size`. */
int probe_run(const struct xport_addr *to, uint32_t size, uint64_t bytes, struct probe_result *r,
	      struct err *e);
/*
 * Says on stdout where it listens, and serves one peer after another; returns on an error, or
 * after `peers` of them (0: never).  Where it has `peers`, one that cannot be served is an error.
 */
int probe_serve(const char *host, uint16_t port, uint32_t peers, struct err *e);

#endif
