// SPDX-License-Identifier: Apache-2.0
/*
 * Engine 0's front: the processes' rings in, rounds to the engines, completions
 * back.
 *
 * What a ring says is checked here (does the slab exist, does the range lie in
 * it) and in the front (tensor, round, operation).  A process that breaks the
 * rules loses its ring and, through the control thread, its session; ranks that
 * disagree lose their job.  A completion that finds its ring full is owed, and
 * tried again each turn.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/base/utf8.h"
#include "common/rt/log.h"
#include "worker-agent/agent.h"
#include "worker-agent/agent_net.h"

#define TURN_SUBS	256u		/* descriptors taken from one ring in one turn */
#define STALL_SHOW_MS	500u
#define STALLS_SEEN	64u		/* rounds looked at for that */
#define RANKS_NAMED	4u		/* of one machine */

bool ad_is_ring(const struct ad_engine *en, const void *p)
{
	list_for_each(&en->rings, l)
		if (list_entry(l, struct ad_ring, link) == p)
			return true;
	return false;
}

static void quiet(struct ad_engine *en, struct ad_ring *r)
{
	if (!r->broken)
		epoll_ctl(engine_epfd(en->thread), EPOLL_CTL_DEL, r->ring.sub_fd, NULL);
	r->broken = true;
}

/* Once its process can see why it may go, and be gone before the control thread hears of it. */
static void broken(struct ad_engine *en, struct ad_ring *r, const struct err *e)
{
	quiet(en, r);
	r->session->cut = e->code == TALLY_EPROTO ?
		"has broken the rules of its ring, and was cut off" :
		"cannot be listened to, and was cut off";
	ring_status_set(&r->ring, e->code, e->text, "");
	ad_trouble(en, AD_RING_BROKEN, &(struct ad_trouble){
		.session = r->session, .job = r->job->id, .err = *e });
}

/* ---- coming and going ---- */

void ad_rings_add(struct ad_engine *en, struct ad_session *s)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.ptr = s->ring };
	struct err e = { 0 };

	ad_shrink_show(s->job, &s->ring->ring);
	list_add(&en->rings, &s->ring->link);
	if (epoll_ctl(engine_epfd(en->thread), EPOLL_CTL_ADD, s->bell[1], &ev))
		err_set(&e, err_from_errno(errno), "agent %s cannot listen to rank %u: %m",
			en->agent->name, s->rank);
	ad_tell_control(en, AD_RING_READY, &s, sizeof(s));
	if (e.code)
		broken(en, s->ring, &e);
}

static void forget_owed(struct ad_ring *r)
{
	while (!list_empty(&r->owed))
		list_del(r->owed.next);
}

void ad_rings_del(struct ad_engine *en, struct ad_session *s)
{
	forget_owed(s->ring);
	quiet(en, s->ring);
	list_del(&s->ring->link);
	ad_tell_control(en, AD_RING_GONE, &s, sizeof(s));
}

void ad_rings_slab(struct ad_engine *en, const struct ad_slab_mail *m)
{
	struct ad_ring *r = m->session->ring;

	r->slab[m->slab->index].base = m->slab->mem.base;
	r->slab[m->slab->index].bytes = m->slab->mem.bytes;
	r->slab[m->slab->index].id = m->slab->id;
	r->slab[m->slab->index].writable = m->slab->mem.writable;
	ad_tell_control(en, AD_SLAB_READY, m, sizeof(*m));
}

void ad_rings_job_over(struct ad_engine *en, struct ad_job *j)
{
	list_for_each(&en->rings, l) {
		struct ad_ring *r = list_entry(l, struct ad_ring, link);

		if (r->job != j)
			continue;
		forget_owed(r);
		quiet(en, r);
		ring_status_set(&r->ring, j->code, j->text, "");
	}
}

void ad_rings_lost(struct ad_engine *en, const struct ad_job *j)
{
	list_for_each(&en->rings, l) {
		struct ad_ring *r = list_entry(l, struct ad_ring, link);

		if (r->job == j && !r->broken)
			ad_shrink_show(j, &r->ring);
	}
}

/* ---- completions ---- */

static struct ad_ring *ring_of(const struct ad_engine *en, const struct ad_job *j, uint32_t local)
{
	list_for_each(&en->rings, l) {
		struct ad_ring *r = list_entry(l, struct ad_ring, link);

		if (r->job == j && r->local == local && !r->broken)
			return r;
	}
	return NULL;
}

static bool complete_one(struct ad_ring *r, uint32_t tensor, uint32_t round,
			 const struct ag_times *t, mono_t now)
{
	const mono_t at[TIME_END] = {
		[TIME_BEGUN] = t->begun ? t->begun : t->given, [TIME_SENT] = t->sent,
		[TIME_CAME] = t->came, [TIME_SUMMED] = t->summed, [TIME_DONE] = now,
	};
	struct ring_cpl c = { .tensor = tensor, .round = round };

	for (int i = 0; i < TIME_END; i++)
		c.at[i] = at[i] ? RING_TIME(at[i]) : 0;
	return !ring_cpl_post(&r->ring, &c);
}

static void complete(struct ad_ring *r, struct fr_input *in, uint32_t tensor, uint32_t round,
		     const struct ag_times *times, mono_t now)
{
	if (!list_empty(&in->owed))
		return;		/* it does not read, or breaks the rules: check_heard() */
	if (list_empty(&r->owed) && complete_one(r, tensor, round, times, now))
		return;
	in->owed_tensor = tensor;
	in->owed_round = round;
	list_add(&r->owed, &in->owed);
}

void ad_rings_finish(struct ad_engine *en, struct fr_tensor *t)
{
	struct ad_job *j = t->job->user;
	mono_t now = loop_now();

	fr_finish(&en->front, t, now);
	if (t->was && --j->was_left == 0)
		ad_tell_control(en, AD_WAS_OVER, &j->id, sizeof(j->id));
	t->was = false;
	for (uint32_t l = 0; l < t->job->nlocal; l++) {
		struct ad_ring *r = ring_of(en, j, l);

		if (r && t->job->live >> l & 1)		/* others have no part in it any more */
			complete(r, &t->in[l], t->id, t->round, &t->times, now);
	}
}

void ad_rings_publish(struct ad_engine *en)
{
	list_for_each(&en->rings, l)
		ring_cpl_publish(&list_entry(l, struct ad_ring, link)->ring);
}

/* All results of a round are there, run by run. */
static void count_all(const struct fr_tensor *t, const struct ring_sub *s, _Atomic uint32_t *words)
{
	uint32_t chunks = (uint32_t)div_round_up(t->bytes, t->chunk_bytes);

	if (!s->run || s->offset % 4 || s->length != 4 * div_round_up(chunks, s->run))
		return;			/* its own fault */
	for (uint32_t c = 0; c < chunks; c++)
		atomic_fetch_add(&words[c / s->run], 1);
}

/*
 * Completes a round that was done before this process was started, and that the rank has not
 * been told of.
 */
static bool was_done(struct ad_ring *r, struct fr_tensor *t, const struct ring_sub *s,
		     const uint8_t *base)
{
	static const struct ag_times none;
	struct fr_input *in = &t->in[r->local];
	uint32_t round = s->round;

	if (!in->behind || in->behind != round)
		return false;
	if (s->part == PART_OPEN)
		count_all(t, s, (_Atomic uint32_t *)(uintptr_t)base);
	in->behind = 0;
	in->over = round;
	complete(r, in, t->id, round, &none, 0);
	return true;
}

/* Without the times: by now they are of another round, maybe. */
static void pay_owed(struct ad_ring *r)
{
	static const struct ag_times none;

	while (!list_empty(&r->owed)) {
		struct fr_input *in = list_first(&r->owed, struct fr_input, owed);

		if (!complete_one(r, in->owed_tensor, in->owed_round, &none, 0))
			return;
		list_del(&in->owed);
	}
}

bool ad_rings_owe(const struct ad_engine *en)
{
	list_for_each(&en->rings, l)
		if (!list_empty(&list_entry(l, struct ad_ring, link)->owed))
			return true;
	return false;
}

void ad_rings_done(struct ad_engine *en, const struct ad_done_mail *m)
{
	struct fr_tensor *t = fr_tensor_find(&en->front, m->job, m->tensor);

	if (t && t->running && t->round == m->round && fr_engine_done(&en->front, t, &m->times)) {
		const struct ad_job *j = t->job->user;

		if (j->stall_shown && en->now - t->since >= mono_ms(STALL_SHOW_MS))
			en->next_stall = 0;	/* processes are told of what may be over */
		ad_rings_finish(en, t);
	}
}

/* ---- submissions ---- */

/* Where the descriptor's bytes lie; without data it names none.  Words are written to, and pieces
 * may be, when they become the result. */
static int resolve(const struct ad_ring *r, const struct ring_sub *s, const uint8_t **base,
		   uint64_t *slot)
{
	*base = NULL;
	*slot = SLOT_NONE;
	if (!s->length)
		return 0;
	if (s->slab >= SLABS_PER_PROCESS_MAX || !r->slab[s->slab].base ||
	    !range_ok(s->offset, s->length, r->slab[s->slab].bytes) ||
	    (s->part != PART_WHOLE && !r->slab[s->slab].writable))
		return TALLY_EPROTO;
	*base = r->slab[s->slab].base + s->offset;
	*slot = SLOT_SLAB(r->slab[s->slab].id, s->offset);
	return 0;
}

static void post_all(struct ad_engine *en, struct fr_tensor *t, const struct ag_post *post,
		     mono_t now)
{
	struct ad_post_mail m = { .job = t->job->id, .tensor = t->id, .post = *post };
	const struct ad_tensor *at = t->user;

	for (uint32_t e = 0; e < en->agent->nengines; e++) {
		if (!(t->engines >> e & 1))
			continue;
		if (e == 0)
			ag_post(&en->core, at->core[0], post, now);
		else	/* it always makes room, waiting for nobody */
			while (engine_post(en->agent->engine[e]->thread, 0, AD_POST, &m, sizeof(m)))
				;
	}
}

/* Where the rank wants the result, besides the result slot; NULL: nowhere. */
static int resolve_out(const struct ad_ring *r, const struct ring_sub *s, uint64_t bytes,
		       uint8_t **out)
{
	uint32_t slab = s->out_slab - 1;

	*out = NULL;
	if (!s->out_slab)
		return 0;
	if (slab >= SLABS_PER_PROCESS_MAX || !r->slab[slab].writable ||
	    !range_ok(s->out_offset, bytes, r->slab[slab].bytes))
		return TALLY_EPROTO;
	*out = r->slab[slab].base + s->out_offset;
	return 0;
}

/* A tensor that some engine does not have yet: its process has guessed the number. */
static bool too_early(const struct fr_tensor *t)
{
	return t && !((const struct ad_tensor *)t->user)->ready;
}

static void submit(struct ad_engine *en, struct ad_ring *r, const struct ring_sub *s, mono_t now)
{
	struct fr_tensor *t = fr_tensor_find(&en->front, r->job->id, s->tensor);
	struct ag_post post;
	const uint8_t *base;
	uint8_t *out;
	uint64_t slot;
	struct err e;
	int rc = resolve(r, s, &base, &slot);

	if (!rc)
		rc = resolve_out(r, s, t ? t->bytes : 0, &out);

	if (!rc && t && s->part == PART_PIECE && s->round && s->round == t->in[r->local].over)
		return;
	if (!rc && t && s->part != PART_PIECE && was_done(r, t, s, base))
		return;
	if (rc) {
		err_set(&e, rc, "rank %u named memory that it does not have",
			r->job->front.rank[r->local]);
	} else if (too_early(t)) {
		rc = err_set(&e, TALLY_EPROTO, "rank %u submitted tensor %u, which it was not "
			     "told of", r->job->front.rank[r->local], s->tensor);
	} else {
		rc = fr_submit(&en->front, &r->job->front, r->local, s, base, slot, now, &t, &post,
			       &e);
	}
	if (rc == TALLY_EMISMATCH || rc == TALLY_ESHUTDOWN) {
		err_wrap(&e, "machine %.80s", en->agent->name);
		r->job->failing = true;
		ad_trouble(en, AD_JOB_FAILED, &(struct ad_trouble){
			.job = r->job->id, .err = e });
	} else if (rc) {
		broken(en, r, &e);
	} else {
		post.out = r->job->shrink ? NULL : out;	/* what it keeps is shown whole */
		post_all(en, t, &post, now);
		if (!t->left && fr_all_posted(t))	/* no elements: nothing to wait for */
			ad_rings_finish(en, t);
	}
}

/* Whether submissions of this process are still taken in. */
static bool listens(const struct ad_ring *r)
{
	return !r->broken && !r->job->failing;
}

/* True: there may be more. */
static bool take_subs(struct ad_engine *en, struct ad_ring *r, mono_t now)
{
	struct ring_sub s;
	struct err e;
	int rc = 0;

	for (uint32_t i = 0; i < TURN_SUBS && listens(r); i++) {
		rc = ring_sub_take(&r->ring, &s);
		if (rc)
			break;
		submit(en, r, &s, now);
	}
	if (rc == TALLY_EPROTO) {
		err_set(&e, rc, "rank %u wrote an impossible ring index",
			r->job->front.rank[r->local]);
		broken(en, r, &e);
	}
	return listens(r) && !rc;
}

void ad_rings_event(struct ad_engine *en, struct ad_ring *r)
{
	if (ring_sub_wake(&r->ring))
		quiet(en, r);		/* the control thread hears of the process's end */
}

/*
 * Takes what is there, of each ring so much that others have their turn, too; a ring that is
 * empty is asked to ring its bell next time.  True: there is more.
 */
bool ad_rings_turn(struct ad_engine *en, mono_t now)
{
	bool more = false;

	list_for_each(&en->rings, l) {
		struct ad_ring *r = list_entry(l, struct ad_ring, link);

		if (r->broken)
			continue;
		pay_owed(r);
		if (!listens(r))
			continue;
		more |= take_subs(en, r, now) || (listens(r) && !ring_sub_sleep(&r->ring));
	}
	return more;
}

/* ---- what rounds wait for ---- */

void ad_rings_waits(struct ad_engine *en, const struct ad_waits_mail *w)
{
	struct fr_tensor *t = fr_tensor_find(&en->front, w->job, w->wait.tensor);

	if (!t || !t->running || t->round != w->wait.round)
		return;
	t->waits = w->wait;
	t->waits_at = loop_now();
}

static void machine_text(const struct ad_machine *m, char *buf, size_t len)
{
	size_t at = (size_t)snprintf(buf, len, "%s ", m->nranks == 1 ? "rank" : "ranks");

	for (uint32_t i = 0; i < MIN(m->nranks, RANKS_NAMED) && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%u", i ? ", " : "", m->ranks[i]);
	if (m->nranks > RANKS_NAMED && at < len)
		at += (size_t)snprintf(buf + at, len - at, " and %u more",
				       m->nranks - RANKS_NAMED);
	if (at < len)
		snprintf(buf + at, len - at, " (machine %.80s)", m->name);
}

static void side_text(const struct ad_job *j, uint64_t side, char *buf, size_t len)
{
	const char *rop = rop_name(SIDE_ROP(side));
	char who[160];

	if (SIDE_WORKER(side) < j->n)
		machine_text(&j->machines[SIDE_WORKER(side)], who, sizeof(who));
	else
		snprintf(who, sizeof(who), "an unknown machine");
	if (SIDE_ROP(side) == ROP_BROADCAST)
		snprintf(buf, len, "%s: %s from rank %u", who, rop, SIDE_ROOT(side));
	else
		snprintf(buf, len, "%s: %s", who, rop);
}

void ad_mismatch(const struct ag_job *j, const char *tensor, struct err *e)
{
	char side[2][200];

	if (j->fail_code == TALLY_ESHUTDOWN) {
		err_set(e, j->fail_code, "tensor '%.60s' round %u: rank %u, which was to "
			"broadcast it, is lost", tensor, j->fail_round, SIDE_ROOT(j->fail_side[0]));
		return;
	}
	for (int i = 0; i < 2; i++)
		side_text(j->user, j->fail_side[i], side[i], sizeof(side[i]));
	err_set(e, j->fail_code, "tensor '%.60s' round %u: %s, %s", tensor, j->fail_round, side[0],
		side[1]);
}

static const char *server_name(const struct ad_job *j, uint32_t node)
{
	for (uint32_t i = 0; i < j->view[0]->nservers; i++)
		if (j->view[0]->servers[i].node == node)
			return j->view[0]->servers[i].name;
	return "?";
}

/* Whether more than this: what is here was pushed, and it is with the servers. */
static bool known(const struct fr_tensor *t)
{
	return t->waits.kind != WAIT_NONE || !fr_all_posted(t) || t->pieces < t->groups * t->bytes;
}

/* Why it is not reached; "": it is, or nobody knows. */
static const char *why_text(const struct ad_engine *en, const struct ad_job *j,
			    const struct fr_tensor *t)
{
	if (!fr_all_posted(t) || t->pieces < t->groups * t->bytes)
		return "";
	if (t->waits.kind == WAIT_SERVER || t->waits.kind == WAIT_LINK)
		return ad_net_why(en, server_name(j, t->waits.who));
	return t->waits.kind == WAIT_MACHINE && en->net ? en->net->heard : "";
}

/*
 * Whom the round waits for, as far as this machine knows.  Ranks of another machine are not named
 * where the network is known to keep somebody of the job back: they may have given theirs.
 */
static void who_text(const struct ad_job *j, const struct fr_tensor *t, const char *why, char *who,
		     size_t len)
{
	fr_missing(t, who, len);
	if (who[0])
		snprintf(who + strlen(who), len - strlen(who), " (machine %.80s)",
			 j->machines[j->me].name);
	else if (t->pieces < t->groups * t->bytes)
		snprintf(who, len, "copies from GPUs of machine %.80s", j->machines[j->me].name);
	else if (t->waits.kind == WAIT_SERVER || t->waits.kind == WAIT_LINK)
		snprintf(who, len, "server %.80s%s", server_name(j, t->waits.who),
			 t->waits.kind == WAIT_SERVER ? "" : ag_reaches_any(j->core[0]) ?
			 " (no link)" : why[0] ? " (no link to any)" :
			 " (no link to any; is there one? tally nodes shows them)");
	else if (t->waits.kind == WAIT_MACHINE && t->waits.who < j->n && why[0])
		snprintf(who, len, "machine %.80s", j->machines[t->waits.who].name);
	else if (t->waits.kind == WAIT_MACHINE && t->waits.who < j->n)
		machine_text(&j->machines[t->waits.who], who, len);
	else
		snprintf(who, len, "the servers");
}

/*
 * Writes one line on what the oldest round waits for, and on others that wait for somebody else.
 */
static void wait_text(struct ad_engine *en, const struct ad_job *j, mono_t now, char *buf,
		      size_t len)
{
	char who[STALLS_SHOWN][200];
	const char *why, *first = "";
	uint32_t n = 0, seen = 0;
	size_t at = 0;

	list_for_each(&en->front.running, l) {
		const struct fr_tensor *t = list_entry(l, struct fr_tensor, running_link);
		uint32_t k = 0;

		if (t->job != &j->front)
			continue;
		if (n == STALLS_SHOWN || ++seen > STALLS_SEEN || at >= len ||
		    now - t->since < mono_ms(STALL_SHOW_MS))
			break;
		why = why_text(en, j, t);
		first = first[0] ? first : why;
		who_text(j, t, why, who[n], sizeof(who[n]));
		while (k < n && strcmp(who[k], who[n]))
			k++;
		if (k < n || (n && !known(t)))
			continue;
		at += (size_t)snprintf(buf + at, len - at, "%stensor '%.100s' round %u waits for "
				       "%s since %.1f s", n ? "; " : "", t->name, t->round, who[n],
				       (double)(now - t->since) / 1e9);
		n++;
	}
	if (first[0] && at < len)
		snprintf(buf + at, len - at, ": %.400s", first);
	utf8_mend(buf);
}

/* As wait_text() says it; but nobody says it when a machine is waited for no more. */
static void say_stall(struct ad_engine *en, const struct ad_job *j, const struct fr_tensor *t,
		      mono_t now, const struct err *e)
{
	struct ad_trouble st = {
		.job = j->id, .since = t->since, .machine = UINT32_MAX, .err = *e,
		.locals = fr_unposted(t),
	};

	if (!st.locals && t->pieces == t->groups * t->bytes && t->waits.kind == WAIT_MACHINE &&
	    now - t->waits_at <= mono_ms(2 * STALL_SHOW_MS))
		st.machine = t->waits.who;
	ad_trouble(en, AD_STALLED, &st);
}

static void show_stall(struct ad_engine *en, const struct ad_job *j, const char *text)
{
	list_for_each(&en->rings, l) {
		struct ad_ring *r = list_entry(l, struct ad_ring, link);

		if (r->job == j && !r->broken)
			ring_status_set(&r->ring, 0, NULL, text);
	}
}

static const struct fr_tensor *oldest_of(const struct ad_engine *en, const struct fr_job *j)
{
	list_for_each(&en->front.running, l) {
		const struct fr_tensor *t = list_entry(l, struct fr_tensor, running_link);

		if (t->job == j)
			return t;
	}
	return NULL;
}

void ad_rings_stalls(struct ad_engine *en, mono_t now)
{
	list_for_each(&en->front.jobs, l) {
		struct fr_job *fj = list_entry(l, struct fr_job, link);
		struct ad_job *j = fj->user;
		const struct fr_tensor *t = oldest_of(en, fj);
		struct err e = { 0 };

		if (!t || now - t->since < mono_ms(STALL_SHOW_MS)) {
			if (j->stall_shown)
				show_stall(en, j, "");
			j->stall_shown = false;
			continue;
		}
		wait_text(en, j, now, e.text, sizeof(e.text));
		show_stall(en, j, e.text);
		j->stall_shown = true;
		say_stall(en, j, t, now, &e);
	}
}
