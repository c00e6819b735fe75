// SPDX-License-Identifier: Apache-2.0
/*
 * xport_facts.c - what is known of an endpoint's trouble (common/base/cause.h).
 *
 * Most of it is known when the endpoint dies.  That large packets are lost is looked for while it
 * lives: from the first write that makes a packet of full size until such a one is acknowledged,
 * the kernel is asked once in a tick.  A peer that is heard meanwhile, a while after that write,
 * lives, and small packets pass both ways.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/net/xport_ep.h"

#define STUCK_AFTER_MS	1250u		/* three retransmits; one loss in ten makes 1 of 10,000
					 * links look like that */
#define HEARD_AFTER_MS	(LINK_PING_MS / 2 + XPORT_TICK_MS)	/* times are of ticks */

static bool ask(const struct xport_ep *ep, struct tcp_info *t)
{
	socklen_t len = sizeof(*t);

	memset(t, 0, sizeof(*t));
	return !ep->ops->by_reference && ep->fd >= 0 &&
	       !getsockopt(ep->fd, IPPROTO_TCP, TCP_INFO, t, &len);
}

void ep_facts_up(struct xport_ep *ep)
{
	struct tcp_info t;

	if (!ask(ep, &t))
		return;
	ep->facts.mss = t.tcpi_snd_mss;
	ep->facts.mtu = t.tcpi_pmtu;
}

void ep_facts_wrote(struct xport_ep *ep, size_t bytes)
{
	struct ep_facts *f = &ep->facts;

	if (f->mss && !f->full_at && bytes >= f->mss) {
		f->full_at = f->written + f->mss;
		ep->g->stirred = true;
	}
	f->written += bytes;
}

/* On the way; or by this machine's own queue, which the kernel takes for not sent. */
static bool is_lost(const struct tcp_info *t)
{
	return t->tcpi_ca_state == TCP_CA_Loss || (!t->tcpi_unacked && t->tcpi_notsent_bytes);
}

void ep_facts_look(struct xport_ep *ep)
{
	struct ep_facts *f = &ep->facts;
	struct tcp_info t;

	if (!ep_facts_wanted(ep) || !ask(ep, &t))
		return;
	if (!f->full_sent)
		f->full_sent = ep->g->tick_at;
	f->proven = t.tcpi_bytes_acked >= f->full_at;
	f->unacked = f->written - MIN(f->written, t.tcpi_bytes_acked);
	f->stuck |= is_lost(&t) &&
		    ep->heard_at > f->full_sent + mono_ms(HEARD_AFTER_MS) &&
		    ep->g->tick_at - f->full_sent >= mono_ms(STUCK_AFTER_MS);
}

static enum cause_stage stage_of(const struct xport_ep *ep)
{
	switch (ep->state) {
	case EP_CONNECTING:
		return STAGE_CONNECT;
	case EP_HELLO:
		return ep->facts.answered ? STAGE_UP : STAGE_GREET;
	default:
		return STAGE_UP;
	}
}

void ep_facts_end(struct xport_ep *ep, enum close_reason why)
{
	struct ep_facts *f = &ep->facts;

	ep_facts_look(ep);
	f->stage = stage_of(ep);
	f->closed = why != CLOSE_TIMEOUT && why != CLOSE_UNREACHABLE && why != CLOSE_RETRIES;
	if (f->stage == STAGE_GREET && !f->speaks[0])
		(void)speech_of(SPEECH_DATA, ep->rx.part, ep->rx.have, f->speaks);
}

void xport_facts(const struct xport_ep *ep, struct cause_facts *out)
{
	const struct ep_facts *f = &ep->facts;

	if (ep->ops->by_reference) {
		*out = (struct cause_facts){ .stage = STAGE_UP, .closed = true };
		return;
	}
	*out = (struct cause_facts){
		.stage = ep_live(ep) ? stage_of(ep) : f->stage, .errnum = f->errnum,
		.closed = ep_live(ep) || f->closed, .name = "", .local = f->local,
		.remote = f->remote, .port = f->port, .speaks = f->speaks, .other = f->other,
		.proven = f->proven,
		.stuck = f->stuck, .unacked_bytes = f->unacked, .mss = f->mss,
		.mtu = f->mtu,
	};
}
