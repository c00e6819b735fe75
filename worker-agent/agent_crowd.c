// SPDX-License-Identifier: Apache-2.0
/*
 * agent_crowd.c - how many processes come to the socket, and whose they are.
 *
 * AD_SESSIONS_MAX places, which users share (user_has_room()).  Who finds none is
 * heard out, so that its attach can say why, but for AD_REFUSED_MAX of those at a
 * time: whoever is over that is shut out without a word.  Who says nothing for
 * HANDSHAKE_MS leaves its place anyway.
 */
#include "worker-agent/agent.h"

struct crowd {
	uint32_t all, mine, refused;
};

static struct crowd count(const struct agent *a, uint32_t uid)
{
	struct crowd n = { 0 };

	list_for_each(&a->sessions, l) {
		const struct ad_session *s = list_entry(l, struct ad_session, link);

		n.refused += s->refused;
		n.all += !s->refused;
		n.mine += !s->refused && s->uid == uid;
	}
	return n;
}

bool ad_crowd_admits(const struct agent *a, uint32_t uid, bool *refused)
{
	struct crowd n = count(a, uid);

	*refused = !user_has_room(n.mine, n.all, AD_SESSIONS_MAX);
	return !*refused || n.refused < AD_REFUSED_MAX;
}

void ad_crowd_refuse(struct ad_session *s, uint64_t req)
{
	struct crowd n = count(s->agent, s->uid);

	if (n.all == AD_SESSIONS_MAX)
		(void)ctl_reply(s->ctl, req, TALLY_EQUOTA, "agent %s has %u processes already",
				s->agent->name, n.all);
	else
		(void)ctl_reply(s->ctl, req, TALLY_EQUOTA, "user id %u has %u processes at agent "
				"%s, and the last %u places are for others; let one end first",
				s->uid, n.mine, s->agent->name, AD_SESSIONS_MAX - n.all);
	ctl_close(s->ctl);
}
