// SPDX-License-Identifier: Apache-2.0
/*
 * A smaller or a larger world, in all engines at once.
 *
 * An epoch says that ranks are gone, or that some are there again.  A round that is whole
 * on this machine stays as it is, all others begin again, and a tensor's segments are with
 * several engines; so there must be one moment that decides.  Each engine freezes the job
 * when it hears of the epoch (none of its rounds ends any more) and tells engine 0, behind
 * whatever it has told of rounds that ended.  When all have, engine 0's front knows which rounds
 * are whole: it marks the others, and with AD_THAW the engines adopt the epoch.
 * Meanwhile the control thread keeps what comes behind that epoch in the job's log.
 *
 * Who comes back does so when nobody has a round under way, so nothing begins again then
 * but what a process has begun that did not wait for the answer.  It goes on with the round
 * behind the one that is over by then (ad_tensor.round).
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/rt/log.h"
#include "worker-agent/agent.h"

#define LATER_MAX	TENSORS_PER_JOB_MAX	/* as many as an agent may have to catch up with */

/* ---- control thread ---- */

uint64_t ad_shrink_live(const struct ad_job *j, const uint32_t *gone, uint32_t n)
{
	const struct ad_machine *me = &j->machines[j->me];
	uint64_t live = UINT64_MAX >> (LOCAL_RANKS_MAX - j->nlocal);

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t l = 0; l < me->nranks; l++)
			if (me->ranks[l] == gone[i])
				live &= ~(UINT64_C(1) << l);
	return live;
}

int ad_shrink_fill(struct ad_epoch *ep, const struct msg_epoch *m, struct err *e)
{
	struct ad_job *j = ep->job;

	ep->live = j->live;
	ep->grown = m->grown;
	ep->anew = m->ngone > j->ngone || m->grown != j->grown;
	if (!ep->anew)
		return 0;
	ep->gone = calloc(m->ngone + 1, sizeof(*ep->gone));
	if (!ep->gone)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	if (m->ngone)
		memcpy(ep->gone, m->gone, m->ngone * sizeof(*ep->gone));
	ep->ngone = m->ngone;
	ep->live = ad_shrink_live(j, m->gone, m->ngone);
	return ep->live ? 0 : err_set(e, TALLY_EPROTO, "job %u epoch %llu: all ranks that are here "
				      "are gone", m->job, (unsigned long long)m->epoch);
}

static int keep_later(struct ad_job *j, const struct msg *m, struct err *e)
{
	struct ad_entry *entry;
	int rc;

	if (j->nlater == LATER_MAX)
		return err_set(e, TALLY_EQUOTA, "job %u: more than %u log entries wait for a "
			       "smaller world", j->id, LATER_MAX);
	rc = ad_entry_new(m, &entry, e);
	if (rc)
		return rc;
	list_add(&j->later, &entry->link);
	j->nlater++;
	return 0;
}

/* Also until all engines have the job: engine 0 is to know what it hears of from others. */
int ad_shrink_defer(struct ad_job *j, const struct msg *m, bool *later, struct err *e)
{
	bool early = j->state == JOB_STARTING && m->type == MSG_EPOCH;

	*later = j->adopting || early || !list_empty(&j->later);
	return *later ? keep_later(j, m, e) : 0;
}

static void take_later(struct ad_job *j, const struct ad_entry *entry)
{
	struct msg_mem mem = { 0 };
	uint32_t bytes, type;
	struct msg m;
	struct err e;

	if (j->code || msg_prefix_decode(entry->wire, &bytes, &type, NULL))
		return;			/* one before it failed, perhaps by half */
	mem.size = msg_mem_need(bytes);
	mem.base = malloc(mem.size);
	if (!mem.base)
		err_set(&e, TALLY_ENOMEM, "agent %s has no memory for its log", j->agent->name);
	if (!mem.base ||
	    msg_decode(type, entry->wire + MSG_PREFIX_BYTES, bytes, &mem, &m, &e) ||
	    ad_log_entry(j->agent, &m, &e))
		ad_job_fail(j, &e);
	free(mem.base);
}

void ad_shrink_forget_later(struct ad_job *j)
{
	while (!list_empty(&j->later)) {
		struct ad_entry *entry = list_first(&j->later, struct ad_entry, link);

		list_del(&entry->link);
		free(entry);
	}
	j->nlater = 0;
}

void ad_shrink_done(struct ad_job *j)
{
	j->adopting = false;
	ad_arenas_tidy(j);
	while (!j->adopting && !list_empty(&j->later)) {
		struct ad_entry *entry = list_first(&j->later, struct ad_entry, link);

		list_del(&entry->link);
		j->nlater--;
		take_later(j, entry);
		free(entry);
	}
}

void ad_shrink_take(struct ad_job *j, const struct ad_epoch *ep, const struct msg_epoch *m)
{
	uint64_t came = ep->live & ~j->live;

	j->adopting = ep->anew;
	j->ngone = m->ngone;
	j->grown = m->grown;
	j->grown_at = m->grown_at;
	j->live = ep->live;
	for (uint32_t l = 0; l < j->nlocal; l++)
		if (came >> l & 1)
			j->left[l] = (struct ad_left){ 0 };
	for (uint32_t i = 0; i < m->ngone; i++)	/* its machine was lost; it may come in anew */
		if (m->gone[i] < j->world)
			bits_clear(j->detached, m->gone[i]);
	ad_join_check(j, came, false);
}

/* ---- engines ---- */

static struct ad_job *find_job(struct ad_engine *en, uint32_t id)
{
	struct ag_job *c = ag_job_find(&en->core, id);

	return c && !c->stopped ? c->user : NULL;
}

static bool tell(struct ad_engine *from, struct ad_engine *to, uint32_t type,
		 const struct ad_settled_mail *m)
{
	return !engine_post(to->thread, from->index, type, m, sizeof(*m));
}

void ad_shrink_freeze(struct ad_engine *en, struct ad_epoch *ep)
{
	struct ad_job *j = ep->job;

	ag_job_freeze(j->core[en->index]);
	j->freezing[en->index] = ep;
	j->frozen_told[en->index] = false;
	ad_shrink_turn(en, j);
}

/* Engine 0 may be busy: then at the next turn. */
void ad_shrink_turn(struct ad_engine *en, struct ad_job *j)
{
	struct ad_epoch *ep = j->freezing[en->index];
	struct ad_settled_mail m = { j->id, en->index, ep ? ep->epoch : 0 };

	if (!ep || j->frozen_told[en->index])
		return;
	j->frozen_told[en->index] = en->index == 0 ||
				    tell(en, en->agent->engine[0], AD_FROZEN, &m);
	if (en->index == 0)
		ad_shrink_mail(en, AD_FROZEN, &m);
}

void ad_shrink_show(const struct ad_job *j, struct ring_end *r)
{
	for (uint32_t rank = 0; rank < j->world; rank++)
		ring_lost_set(r, rank, bits_test(j->lost, rank));
	ring_grown_set(r, j->grown_shown);
}

/* Engine 0, when all have stopped: what is not whole by now begins again. */
static void decide(struct ad_engine *en, struct ad_job *j, const struct ad_epoch *ep)
{
	memset(j->lost, 0, BITS_WORDS(j->world) * sizeof(*j->lost));
	for (uint32_t i = 0; i < ep->ngone; i++)
		bits_set(j->lost, ep->gone[i]);
	j->grown_shown = ep->grown;
	fr_job_shrink(&j->front, ep->live);
	list_for_each(&j->front.tensors, l) {
		struct fr_tensor *t = list_entry(l, struct fr_tensor, link);
		struct ad_tensor *at = t->user;

		at->again = t->running;
		at->round = t->running ? round_prev(t->round) : t->round;
		if (!t->running)
			continue;
		fr_again(t);
		if (!t->engines && fr_all_posted(t))
			ad_rings_finish(en, t);
	}
	ad_rings_lost(en, j);
}

static void on_frozen(struct ad_engine *en, struct ad_job *j)
{
	struct ad_epoch *ep = j->freezing[0];
	struct ad_settled_mail m = { j->id, 0, 0 };

	if (++j->frozen < en->agent->nengines)
		return;
	j->frozen = 0;
	m.epoch = ep->epoch;
	decide(en, j, ep);
	for (uint32_t e = 1; e < en->agent->nengines; e++)
		while (!tell(en, en->agent->engine[e], AD_THAW, &m))
			;		/* it always makes room, waiting for nobody */
	j->freezing[0] = NULL;
	ad_epoch_adopt(en, ep);
}

/* The job may have ended since, and another begun. */
void ad_shrink_mail(struct ad_engine *en, uint32_t type, const struct ad_settled_mail *m)
{
	struct ad_job *j = find_job(en, m->job);
	struct ad_epoch *ep;

	if (!j)
		return;
	if (type == AD_FROZEN) {
		on_frozen(en, j);
		return;
	}
	ep = j->freezing[en->index];
	if (!ep || ep->epoch != m->epoch)
		return;
	j->freezing[en->index] = NULL;
	ad_epoch_adopt(en, ep);
}
