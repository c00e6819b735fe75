/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_peer.h - an engine's view of one engine of an agent: links, and memory it shows.
 *
 * A peer lives while it has links or slabs, or while a job names its agent: an agent that
 * was started again is known by its HELLO, and what its first process had here counts no
 * more then.  Owned by the engine's thread.
 */
#ifndef TALLY_SERVER_PEER_H
#define TALLY_SERVER_PEER_H

#include "common/shm/slab.h"
#include "server/server.h"

struct sv_slab {
	struct list link;		/* in peer->retired, or nowhere */
	uint32_t job;
	struct slab mem;
	struct xport_region *region;	/* NULL: cards do not read it */
};

struct sv_peer {
	struct list links;		/* sv_link.link */
	struct list retired;		/* sv_slab.link: no number names them any more */
	struct srv_peer core;
	uint32_t agent_engine;
	uint32_t start;			/* of the agent's process, as its HELLO says; 0: none yet */
	uint32_t nslabs;
	bool heard;			/* a frame has come since somebody asked */
	bool troubled;			/* the control thread has heard so */
	uint64_t room;			/* bytes it may be sent in this turn */
	struct sv_slab *slab[SLABS_PER_LINK_MAX];
};

struct sv_link {
	struct list link;
	struct sv_peer *peer;
	struct xport_ep *ep;
	bool up;
	mono_t up_at;
	uint64_t backlog;		/* by the kernel's word at the turn's beginning */
};

/* Of an element of engine->core.peers. */
static inline struct sv_peer *sv_peer_of(struct list *l)
{
	return container_of(list_entry(l, struct srv_peer, link), struct sv_peer, core);
}

struct sv_peer *sv_peer_get(struct sv_engine *en, uint32_t node, uint32_t agent_engine);
void sv_peer_put(struct sv_engine *en, struct sv_peer *p);	/* frees it, if it may go */
void sv_peer_free(struct sv_engine *en, struct sv_peer *p);	/* no links are left */
void sv_peer_cut(struct sv_peer *p);	/* its links end, from the next turn on */
/*
 * Links of the process with that start may be adopted.  False: those of the one before have
 * been cut, and are yet to end.
 */
bool sv_peer_is(struct sv_engine *en, struct sv_peer *p, uint32_t start);

/* ---- server_net.c: trouble on the network, on an engine's thread ---- */

/* In closed() of a link. */
void sv_net_lost(struct sv_engine *en, struct sv_peer *p, const struct xport_ep *ep,
		 enum close_reason why, const struct err *e);
/* Links to the peer carry data (TROUBLE_OVER), or the peer goes (TROUBLE_LEFT). */
void sv_net_fine(struct sv_engine *en, struct sv_peer *p, enum trouble_what what);
/* Each turn; looks twice a second. */
void sv_net_look(struct sv_engine *en, mono_t now);

/* Where the peer's slab has those bytes; NULL: nowhere. */
void *sv_slab_at(const struct sv_peer *p, uint64_t slot, uint32_t job, uint64_t len);
bool sv_slab_writable(const struct sv_peer *p, uint64_t slot);
/* The peer shows a slab; fd is ours from here on.  -1: the number names none any more.
 * False: it is not known here, for want of memory, and has to be shown again. */
bool sv_slab_take(struct sv_engine *en, struct sv_peer *p, uint32_t job, uint32_t id, int fd,
		  uint64_t bytes);
void sv_slabs_sweep(struct sv_engine *en);	/* drops retired ones that nothing lies in */
void sv_slabs_retire(struct sv_engine *en, struct sv_peer *p, uint32_t job);	/* they are no
						 * one's now; what lies in them can be read */
void sv_slabs_drop_job(struct sv_engine *en, uint32_t job);	/* of all peers */

#endif
