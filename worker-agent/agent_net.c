// SPDX-License-Identifier: Apache-2.0
/* agent_net.c - from engines' news to log, heartbeat and engine 0's view. */
#include "worker-agent/agent_net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/log.h"
#include "worker-agent/agent.h"

int ad_net_start(struct agent *a, struct err *e)
{
	a->net = calloc(1, sizeof(*a->net));
	return a->net ? 0 : err_set(e, TALLY_ENOMEM, "out of memory");
}

void ad_net_free(struct agent *a)
{
	free(a->net);
	a->net = NULL;
}

struct ad_net_view *ad_net_copy(const struct agent *a)
{
	struct ad_net_view *v = malloc(sizeof(*v));

	if (v && a->net)
		*v = a->net->now;
	else if (v)
		*v = (struct ad_net_view){ 0 };
	return v;
}

void ad_net_take(struct agent *a, struct trouble_news *n)
{
	char line[TROUBLE_LINE];

	if (a->net && trouble_hear(&a->net->now.own, n, loop_now(), line))
		log_here(n->mild || n->what == TROUBLE_OVER ? LOG_INFO : LOG_WARN, "%s", line);
	free(n);
}

bool ad_net_heard(struct agent *a, const char *cause)
{
	struct ad_net_view *v = &a->net->now;

	if (!strcmp(v->heard, cause))
		return false;
	snprintf(v->heard, sizeof(v->heard), "%s", cause);
	return true;
}

void ad_net_fill(struct agent *a, struct msg_heartbeat *hb)
{
	struct ad_net *net = a->net;
	mono_t recent = loop_now() - mono_ms(TROUBLE_LOG_MS);
	const struct trouble_row *now, *late;

	hb->cause = "";
	if (!net)
		return;
	now = trouble_first(&net->now.own, MONO_NEVER);
	late = trouble_first(&net->now.own, MAX(recent, 1));
	snprintf(net->cause, sizeof(net->cause), "%s",
		 now && !cause_is_vague(now->cause) ? now->text : "");
	hb->cause = net->cause;
	if (!late || hb->note[0] || hb->cause[0])	/* a heartbeat stays a small packet */
		return;
	snprintf(net->note, sizeof(net->note), "%s", late->text);
	hb->note = net->note;
}

/* ---- engines ---- */

static void tell(struct ad_engine *en, const struct ad_server *sv, enum trouble_what what,
		 const struct cause_facts *f, const char *words)
{
	struct trouble_news *n = calloc(1, sizeof(*n));

	if (!n)
		return;
	n->what = what;
	n->source = en->index;
	n->mild = !sv->weight;
	snprintf(n->peer, sizeof(n->peer), "%s", sv->name);
	snprintf(n->words, sizeof(n->words), "%s", words);
	cause_hold(&n->held, f);
	n->held.facts.peer = PEER_SERVER;
	outbox_post(&en->out, AD_NET, &n, sizeof(n));
}

void ad_net_say(struct ad_engine *en, const struct ad_server *sv, enum trouble_what what)
{
	tell(en, sv, what, &(struct cause_facts){ 0 }, "");
}

void ad_net_lost(struct ad_engine *en, const struct ad_server *sv, bool part,
		 const struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	char words[ERR_TEXT_MAX + 32];
	struct cause_facts f;

	xport_facts(ep, &f);
	snprintf(words, sizeof(words), "%s: %s", close_reason_name(why), e->text);
	tell(en, sv, part ? TROUBLE_PART : TROUBLE_LOST, &f, words);
}

void ad_net_unmade(struct ad_engine *en, const struct ad_server *sv, bool part,
		   const struct xport_addr *a, const struct err *e)
{
	const struct cause_facts f = {
		.stage = STAGE_CONNECT, .errnum = e->code == TALLY_EINVAL ? EINVAL : EMFILE,
		.local = a->local, .remote = a->remote, .port = a->port,
	};

	tell(en, sv, part ? TROUBLE_PART : TROUBLE_LOST, &f, e->text);
}

bool ad_net_stuck(struct ad_engine *en, const struct ad_server *sv, const struct xport_ep *ep)
{
	struct cause_facts f;

	xport_facts(ep, &f);
	if (cause_of(&f) != CAUSE_MTU)
		return false;
	tell(en, sv, TROUBLE_STUCK, &f, "");
	return true;
}

void ad_net_view(struct ad_engine *en, struct ad_net_view *v)
{
	free(en->net);
	en->net = v;
}

const char *ad_net_why(const struct ad_engine *en, const char *server)
{
	const struct trouble_row *r;

	if (!en->net)
		return "";
	r = trouble_of(&en->net->own, server);
	if (!r && !server[0])
		r = trouble_first(&en->net->own, MONO_NEVER);
	if (r && r->cause != CAUSE_NONE && (!cause_is_vague(r->cause) || !en->net->heard[0]))
		return r->text;
	return en->net->heard;
}
