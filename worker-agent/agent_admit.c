// SPDX-License-Identifier: Apache-2.0
/*
 * agent_admit.c - which processes come in.
 *
 * Whoever connects is a stranger, of whom the oldest makes room for the next one, until it
 * attaches, for which it has HANDSHAKE_MS.  Then it takes one of AD_SESSIONS_MAX places, which
 * users share (user_has_room()), or hears why not, and is closed.
 */
#include "worker-agent/agent.h"

static bool find_place(struct ad_session *s, uint64_t req)
{
	uint32_t all = 0, mine = 0;

	list_for_each(&s->agent->sessions, l) {
		const struct ad_session *o = list_entry(l, struct ad_session, link);

		all += o->admitted;
		mine += o->admitted && o->uid == s->uid;
	}
	s->admitted = user_has_room(mine, all, AD_SESSIONS_MAX);
	if (s->admitted)
		return true;
	if (all == AD_SESSIONS_MAX)
		(void)ctl_reply(s->ctl, req, TALLY_EQUOTA, "agent %s has %u processes already",
				s->agent->name, all);
	else
		(void)ctl_reply(s->ctl, req, TALLY_EQUOTA, "user id %u has %u processes at agent "
				"%s, and the last %u places are for others; let one end first",
				s->uid, mine, s->agent->name, AD_SESSIONS_MAX - all);
	return false;
}

static bool speaks_our_version(struct ad_session *s, const struct msg_attach *m)
{
	if (m->version != MSG_VERSION)
		(void)ctl_reply(s->ctl, m->req, TALLY_EVERSION, "this agent speaks version %u, "
				"libtally %u", MSG_VERSION, m->version);
	return m->version == MSG_VERSION;
}

bool ad_admit(struct ad_session *s, const struct msg_attach *m)
{
	if (speaks_our_version(s, m) && find_place(s, m->req)) {
		ctl_known(s->ctl);
		return true;
	}
	ctl_close(s->ctl);
	return false;
}
