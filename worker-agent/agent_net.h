/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_net.h - trouble on the network, as the agent knows it: of its own links, which engines
 * tell, and of others in its jobs, which the scheduler tells with its echo of a heartbeat.
 *
 * The control thread keeps both, logs (once a minute for a server), and gives engine 0 a view,
 * from which the texts of ranks that wait have the cause.  Memory: a view and each piece of news
 * is the receiver's; without memory for one, texts lack it.
 */
#ifndef TALLY_AGENT_NET_H
#define TALLY_AGENT_NET_H

#include "common/base/trouble.h"
#include "common/net/xport.h"
#include "proto/msg.h"

struct agent;
struct ad_engine;
struct ad_server;

struct ad_net_view {
	struct trouble own;
	char heard[ERR_TEXT_MAX + 1];	/* by the scheduler: "agent a1: ..."; "": nothing */
};

struct ad_net {
	struct ad_net_view now;
	char cause[ERR_TEXT_MAX + 1], note[ERR_TEXT_MAX + 1];	/* of the last heartbeat */
};

/* ---- control thread ---- */

int ad_net_start(struct agent *a, struct err *e);
void ad_net_free(struct agent *a);
void ad_net_take(struct agent *a, struct trouble_news *n);	/* n is freed */
bool ad_net_heard(struct agent *a, const char *cause);	/* in the scheduler's echo; it is news */
struct ad_net_view *ad_net_copy(const struct agent *a);	/* for engine 0; NULL: no memory */
/* The cause now; and in the note, unless it has something else, what was up to a minute ago. */
void ad_net_fill(struct agent *a, struct msg_heartbeat *hb);

/* ---- engines ---- */

/* In closed() of the last link, or of one of several (part). */
void ad_net_lost(struct ad_engine *en, const struct ad_server *sv, bool part,
		 const struct xport_ep *ep, enum close_reason why, const struct err *e);
/* The same of one to which no connection could be begun. */
void ad_net_unmade(struct ad_engine *en, const struct ad_server *sv, bool part,
		   const struct xport_addr *a, const struct err *e);
/* True, and told: the link is up and carries no data. */
bool ad_net_stuck(struct ad_engine *en, const struct ad_server *sv, const struct xport_ep *ep);
void ad_net_say(struct ad_engine *en, const struct ad_server *sv, enum trouble_what what);
void ad_net_view(struct ad_engine *en, struct ad_net_view *v);	/* engine 0: is its own now */
/* Why that server, or where it is "" anybody in the engine's jobs, is not reached; "": no idea. */
const char *ad_net_why(const struct ad_engine *en, const char *server);

#endif
