// SPDX-License-Identifier: Apache-2.0
/*
 * Trouble on the network with agents: engines tell of it, the control thread logs it, once a
 * minute for an agent, and has it in heartbeats (common/base/trouble.h).
 */
#include <stdlib.h>
#include <string.h>

#include "common/rt/log.h"
#include "server/server_peer.h"

#define LOOK_MS		500u
#define LASTS_MS	5000u	/* a link over which nothing large went is fine then */

/* ---- an engine ---- */

static void tell(struct sv_engine *en, const struct sv_peer *p, enum trouble_what what,
		 const struct cause_facts *f, const char *words)
{
	struct trouble_news *n = calloc(1, sizeof(*n));

	if (!n)
		return;
	n->what = what;
	n->source = en->index;
	n->node = p->core.node;
	snprintf(n->words, sizeof(n->words), "%s", words);
	cause_hold(&n->held, f);
	n->held.facts.peer = PEER_AGENT;
	outbox_post(&en->out, SV_NET, &n, sizeof(n));
}

/* Where others of its engines have trouble the agent has; the last of them says so. */
void sv_net_fine(struct sv_engine *en, struct sv_peer *p, enum trouble_what what)
{
	bool was = p->troubled;

	p->troubled = false;
	list_for_each(&en->core.peers, l) {
		const struct sv_peer *q = sv_peer_of(l);

		was &= !(q->troubled && q->core.node == p->core.node);
	}
	if (was)
		tell(en, p, what, &(struct cause_facts){ 0 }, "");
}

void sv_net_lost(struct sv_engine *en, struct sv_peer *p, const struct xport_ep *ep,
		 enum close_reason why, const struct err *e)
{
	char words[ERR_TEXT_MAX + 32];
	struct cause_facts f;

	xport_facts(ep, &f);
	if (why == CLOSE_LOCAL || (close_reason_severity(why)[0] == 'i' && !cause_of(&f)))
		return;
	snprintf(words, sizeof(words), "%s: %s", close_reason_name(why), e->text);
	p->troubled = true;
	tell(en, p, TROUBLE_LOST, &f, words);
}

static void look_at(struct sv_engine *en, struct sv_peer *p, mono_t now)
{
	struct cause_facts f;
	bool fine = false;

	list_for_each(&p->links, l) {
		const struct sv_link *k = list_entry(l, struct sv_link, link);

		if (!k->up)
			continue;
		xport_facts(k->ep, &f);
		if (cause_of(&f) == CAUSE_MTU) {
			p->troubled = true;
			tell(en, p, TROUBLE_STUCK, &f, "");
			return;
		}
		fine |= f.proven || now - k->up_at > mono_ms(LASTS_MS);
	}
	if (fine)
		sv_net_fine(en, p, TROUBLE_OVER);
}

void sv_net_look(struct sv_engine *en, mono_t now)
{
	if (now < en->next_look)
		return;
	en->next_look = now + mono_ms(LOOK_MS);
	list_for_each(&en->core.peers, l)
		look_at(en, sv_peer_of(l), now);
}

/* ---- control thread ---- */

void sv_net_take(struct server *s, struct trouble_news *n)
{
	char line[TROUBLE_LINE];

	if (trouble_hear(&s->trouble, n, loop_now(), line))
		log_here(n->what == TROUBLE_OVER ? LOG_INFO : LOG_WARN, "%s", line);
	free(n);
}

void sv_net_fill(struct server *s, struct msg_heartbeat *hb)
{
	mono_t recent = loop_now() - mono_ms(TROUBLE_LOG_MS);
	const struct trouble_row *now = trouble_first(&s->trouble, MONO_NEVER);
	const struct trouble_row *late = trouble_first(&s->trouble, MAX(recent, 1));

	hb->cause = now && !cause_is_vague(now->cause) ? now->text : "";
	if (late && !hb->cause[0])		/* a heartbeat stays a small packet */
		hb->note = late->text;
}
