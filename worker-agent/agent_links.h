/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_links.h - an engine's links to the servers' engines, for the files that make them:
 * agent_links.c keeps them, agent_shows.c shows slabs over them.  Owner: the engine's thread.
 */
#ifndef TALLY_AGENT_LINKS_H
#define TALLY_AGENT_LINKS_H

#include "worker-agent/agent.h"

struct ad_peer {
	struct list link;		/* in engine->peers */
	struct list lanes;		/* ad_lane.link */
	struct ag_peer core;
	struct ad_engine *engine;
	struct ad_server server;	/* a copy: jobs come and go */
	uint8_t key[KEY_BYTES];
	uint32_t node;			/* this agent's number, as the server knows it */
	uint32_t server_engine, jobs, lanes_up, shm_failures;
	int process;			/* pidfd of a server that writes here; -1: none does */
	mono_t up_at;			/* since when there is a link without a pause */
	bool troubled, path_told;	/* troubled: the control thread has heard so */
};

struct ad_lane {
	struct list link;
	struct ad_peer *peer;
	struct xport_addr addr;
	struct xport_ep *ep;		/* NULL: waits for retry_at */
	uint64_t bits_per_s;
	uint32_t index, backoff_ms, rdma_failures;
	mono_t retry_at, rdma_failed;	/* rdma_failed: the first of rdma_failures */
	uint64_t backlog;		/* by the kernel's word at the turn's beginning */
	uint32_t unshown;		/* slabs from this id on may not be shown yet: no room */
	bool up, going;			/* going: freed once closed */
	enum ad_no_rdma no_rdma;	/* why addr says tcp */
};

/* For each lane of all peers. */
static inline void ad_lanes_each(const struct ad_engine *en, void (*f)(struct ad_lane *, void *),
				 void *arg)
{
	list_for_each(&en->peers, lp)
		list_for_each(&list_entry(lp, struct ad_peer, link)->lanes, l)
			f(list_entry(l, struct ad_lane, link), arg);
}

/* Shows what the lane's peer has not been shown yet, as far as there is room; one that is shown
 * twice does no harm. */
void ad_lane_show(struct ad_engine *en, struct ad_lane *k);

#endif
