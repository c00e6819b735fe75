// SPDX-License-Identifier: Apache-2.0
/*
 * round.c - one round of a tensor: submitted, waited for, handed over.
 *
 * Submitting posts one descriptor to the ring and makes no system call unless the
 * agent sleeps.  Waiting takes completions in (of any tensor), spins for a moment,
 * then sleeps on the completion bell and on the agent's socket, so that a dead
 * agent wakes us too.  Handing over copies the result to `out` and uses the
 * ticket up.
 *
 * Failures: a completion may carry the round's error; the status page may say
 * that the job is over, which voids every round that has not completed; a
 * deadline tells what the agent says the round waits for, and voids nothing.
 */
#include "client/session.h"

#include <string.h>

#include "client/back.h"
#include "client/clock.h"
#include "client/gpu.h"
#include "common/base/geom.h"

#define GPU_LOOK_MS	100u
#define RING_TIME_ERROR_NS	2000
#define SPIN_TURNS	64	/* some microseconds: a result that is about to come */

/* A ticket: generation of the slot, slot, round.  Generations start at 1: never 0. */
static tally_ticket ticket_of(const tally_session *s, const struct tally_tensor *t)
{
	return (uint64_t)s->slots[t->slot].generation << 48 | (uint64_t)t->slot << 32 | t->round;
}

struct tally_tensor *lt_round_of(const tally_session *s, tally_ticket k)
{
	uint32_t slot = (uint32_t)(k >> 32) & 0xffff;
	struct tally_tensor *t = slot < s->nslots ? s->slots[slot].tensor : NULL;

	return t && t->state != LT_IDLE && ticket_of(s, t) == k ? t : NULL;
}

/* A session that is over has none, and says why it is. */
static int no_such_ticket(tally_session *s, tally_ticket k)
{
	int rc = lt_session_live(s);

	return rc ? rc : err_set(&s->err, TALLY_EINVAL, "ticket %#llx is used up, or never was one",
				 (unsigned long long)k);
}

/* ---- taking completions in ---- */

static void tell(tally_session *s, const struct tally_tensor *t, enum lt_span_kind kind,
		 mono_t begin, mono_t end, uint32_t round)
{
	const struct lt_span span = {
		.kind = kind, .name = t->name, .begin = begin, .end = end, .round = round,
		.priority = t->priority, .bytes = t->bytes, .code = t->code,
	};

	lt_timeline_span(s->timeline, &span);
}

/*
 * Adds the agent's times of the round to the timeline; nothing where its clock is another one.
 * The agent reads its clock once a turn, so work that it did at once may seem to precede the
 * request.
 */
static void tell_agents(tally_session *s, const struct tally_tensor *t, const struct ring_cpl *c)
{
	mono_t now = lt_now(), last = t->since, at[TIME_END];

	if (!c->at[TIME_BEGUN] || !c->at[TIME_DONE])
		return;
	for (int i = 0; i < TIME_END; i++) {
		at[i] = now - 1000 * (mono_t)(RING_TIME(now) - c->at[i]);
		if (i == TIME_DONE && at[i] + RING_TIME_ERROR_NS < t->since)
			return;
		at[i] = MAX(at[i], t->since);
		if (c->at[i] && i != TIME_CAME)
			last = at[i] = MAX(at[i], last);
	}
	tell(s, t, SPAN_TURN, t->since, at[TIME_BEGUN], t->round);
	if (!c->at[TIME_SENT] || !c->at[TIME_SUMMED]) {
		tell(s, t, SPAN_SUM, at[TIME_BEGUN], at[TIME_DONE], t->round);
		return;
	}
	tell(s, t, SPAN_PUSH, at[TIME_BEGUN], at[TIME_SENT], t->round);
	tell(s, t, SPAN_AWAIT, at[TIME_SENT], at[TIME_SUMMED], t->round);
	tell(s, t, SPAN_RESULT, MIN(at[TIME_CAME], at[TIME_SUMMED]), at[TIME_DONE], t->round);
}

/* A completion that matches nothing is an echo of something given up: ignored. */
static void take_completion(tally_session *s, const struct ring_cpl *c)
{
	struct tally_tensor *t = lt_tensor_by_id(s, c->tensor);

	if (!t || t->state != LT_FLYING || t->round != c->round)
		return;
	t->state = LT_DONE;
	t->code = c->code <= 0 ? c->code : TALLY_EPROTO;
	t->announced = s->poll_count;
	s->fresh++;
	if (!t->code)
		t->result_round = t->gpu && t->gpu->flying ? 0 : t->round;
	if (s->timeline)
		tell_agents(s, t, c);
}

/* While the agent is away there is nothing: the next one hears how far we were when it went. */
int lt_round_take_all(tally_session *s)
{
	struct ring_cpl c;
	int rc;

	if (s->away)
		return 0;
	while ((rc = ring_cpl_take(&s->ring, &c)) == 0)
		take_completion(s, &c);
	if (rc == TALLY_EAGAIN)
		return 0;
	err_set(&s->err, rc, "agent at %s: the completion ring is broken", s->who.socket);
	lt_conn_close(&s->conn);
	return lt_session_over(s);
}

/* ---- submitting ---- */

int lt_round_check(tally_session *s, tally_tensor *t, const tally_ticket *k)
{
	int rc = lt_session_live(s);

	if (rc)
		return rc;
	if (!t || t->session != s || !k)
		return err_set(&s->err, TALLY_EINVAL, "no tensor of this session, or no ticket");
	rc = lt_gpu_settle(s, t, 0);
	if (rc)
		return rc;
	if (t->state == LT_FLYING)
		return err_set(&s->err, TALLY_EEXIST, "round %u of tensor %s is in flight; "
			       "wait for its ticket first", t->round, t->name);
	if (t->state == LT_DONE)
		return err_set(&s->err, TALLY_EEXIST,
			       "round %u of tensor %s is done; wait for its ticket first",
			       t->round, t->name);
	t->code = 0;
	if (s->timeline || s->who.log)
		t->since = lt_now();
	return 0;
}

/* Copies one tensor and notes a span of it in the timeline. */
static void copy(tally_session *s, const struct tally_tensor *t, void *to, const void *from,
		 uint32_t round)
{
	mono_t begin = s->timeline ? lt_now() : 0;

	memcpy(to, from, t->bytes);
	if (s->timeline)
		tell(s, t, SPAN_COPY, begin, lt_now(), round);
}

/*
 * Where the agent will read `in`: in place when it lies in the arena (aligned as
 * its type wants), else in the tensor's staging block, which is made on first use.
 */
static int place_input(tally_session *s, struct tally_tensor *t, const void *in,
		       struct ring_sub *sub)
{
	bool found;
	int rc;

	if (t->bytes == 0)
		return 0;
	if (!in)
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: no input", t->name);
	sub->length = t->bytes;
	if ((uintptr_t)in % dtype_bytes(t->dtype) == 0 &&
	    lt_arena_find(&s->arena, in, t->bytes, &sub->slab, &sub->offset)) {
		t->in = in;
		return 0;
	}
	if (!t->staging) {
		rc = lt_session_alloc(s, t->bytes, false, &t->staging);
		if (rc)
			return rc;
	}
	copy(s, t, t->staging, in, round_next(t->round));
	t->in = t->staging;
	found = lt_arena_find(&s->arena, t->staging, t->bytes, &sub->slab, &sub->offset);
	ASSERT(found);
	return 0;
}

/* In place, or no byte of the input is touched: the agent writes out part by part. */
static bool apart(const struct tally_tensor *t, const uint8_t *out)
{
	const uint8_t *in = t->in;

	return !in || in == out || in + t->bytes <= out || out + t->bytes <= in;
}

/*
 * Whether the agent can write the result to `out` itself; memory that it cannot reach is copied
 * when the round is handed over.
 */
static bool agent_fills(tally_session *s, const struct tally_tensor *t, void *out,
			struct ring_sub *sub)
{
	uint32_t slab;

	if (s->who.on_loss == TALLY_ON_LOSS_SHRINK)
		return false;		/* the input is kept until the whole tensor is there */
	if (!out || !t->bytes || !apart(t, out) ||
	    !lt_arena_find(&s->arena, out, t->bytes, &slab, &sub->out_offset) ||
	    lt_arena_read_only(&s->arena, slab)) {
		sub->out_offset = 0;
		return false;
	}
	sub->out_slab = slab + 1;
	return true;
}

int lt_round_post(tally_session *s, const struct ring_sub *sub)
{
	int rc;

	pthread_mutex_lock(&s->sub_lock);
	rc = ring_sub_post(&s->ring, sub);
	pthread_mutex_unlock(&s->sub_lock);
	return rc;
}

int lt_round_start(tally_session *s, tally_tensor *t, struct ring_sub *sub, tally_ticket *k)
{
	int rc;

	sub->tensor = t->id;
	sub->round = round_next(t->round);
	if (lt_round_post(s, sub)) {
		/* the agent may wait for room in the other ring before it reads this one */
		rc = lt_round_take_all(s);
		if (rc)
			return rc;
		return err_set(&s->err, TALLY_EAGAIN, "the submission ring is full (%u rounds)",
			       RING_ENTRIES);
	}
	t->sub = *sub;
	t->before = t->round;
	t->round = sub->round;
	t->state = LT_FLYING;
	t->out = NULL;
	*k = ticket_of(s, t);
	return 0;
}

static int submit(tally_session *s, struct tally_tensor *t, struct ring_sub *sub, void *out,
		  tally_ticket *k)
{
	bool theirs = agent_fills(s, t, out, sub);
	int rc = lt_round_start(s, t, sub, k);

	if (!rc && !theirs)
		t->out = out;
	return rc;
}

int lt_round_options(tally_session *s, const tally_tensor *t, const tally_push_pull_options *opt,
		     struct ring_sub *sub)
{
	sub->rop = opt && opt->op == TALLY_MEAN ? ROP_MEAN : ROP_SUM;
	sub->priority = opt && opt->override_priority ? opt->priority : t->priority;
	if (opt && opt->op && opt->op != TALLY_SUM && opt->op != TALLY_MEAN)
		return err_set(&s->err, TALLY_EINVAL, "no operation %d", (int)opt->op);
	return 0;
}

int tally_push_pull(tally_session *s, tally_tensor *t, const void *in, void *out,
		    const tally_push_pull_options *opt, tally_ticket *k)
{
	LT_CALL(s);
	struct ring_sub sub = { 0 };
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_round_check(s, t, k);
	if (rc)
		return rc;
	rc = lt_round_options(s, t, opt, &sub);
	if (!rc)
		rc = place_input(s, t, in, &sub);
	return rc ? rc : submit(s, t, &sub, out, k);
}

int tally_broadcast(tally_session *s, tally_tensor *t, const void *in, void *out, int root,
		    tally_ticket *k)
{
	LT_CALL(s);
	struct ring_sub sub = { .rop = ROP_BROADCAST };
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_round_check(s, t, k);
	if (rc)
		return rc;
	if (root < 0 || (uint32_t)root >= s->who.world)
		return err_set(&s->err, TALLY_EINVAL, "root %d is not in a world of %u", root,
			       s->who.world);
	sub.root = (uint32_t)root;
	sub.priority = t->priority;
	t->in = NULL;
	if (sub.root == s->who.rank)
		rc = place_input(s, t, in, &sub);
	return rc ? rc : submit(s, t, &sub, out, k);
}

/* ---- handing over ---- */

/* The round is over: on a GPU its copies have times of their own, and so has its end. */
static void tell_end(tally_session *s, const struct tally_tensor *t)
{
	const struct lt_gpu_times *g = t->gpu && t->gpu->flying ? &t->gpu->times : NULL;
	mono_t landed = g ? g->landed : 0;

	if (landed && g->out_end)
		tell(s, t, SPAN_COPY, g->out_begin, g->out_end, t->round);
	if (landed && g->in_end)
		tell(s, t, SPAN_COPY, g->in_begin, g->in_end, t->round);
	tell(s, t, SPAN_ROUND, t->since, landed && t->gpu->let_go ? landed : lt_now(), t->round);
}

void lt_round_use_up(tally_session *s, tally_tensor *t)
{
	if (t->state == LT_DONE && t->announced == s->poll_count)
		s->fresh--;
	if (t->state != LT_DONE)
		t->code = s->over.code;
	if (s->timeline)
		tell_end(s, t);
	lt_log_round_over(s, t);
	t->state = LT_IDLE;
	t->in = NULL;
	if (t->gpu)
		t->gpu->flying = t->gpu->let_go = false;
}

static int hand_over(tally_session *s, struct tally_tensor *t)
{
	void *out = t->code ? NULL : t->out;

	if (out && t->bytes)
		copy(s, t, out, t->result[t->round & 1], t->round);
	lt_round_use_up(s, t);
	if (t->code)
		return err_set(&s->err, t->code, "round %u of tensor %s: %s", t->round, t->name,
			       err_help(t->code));
	return 0;
}

/* ---- waiting ---- */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

/* 0: t is done; EAGAIN: not yet; else the session is over and t was not done before. */
static int look(tally_session *s, const struct tally_tensor *t)
{
	int rc, over;

	if (t->state == LT_DONE)
		return 0;
	over = lt_session_live(s);
	/* after the code: a round that was done before the job ended is done */
	rc = s->over.code && s->conn.fd < 0 ? over : lt_round_take_all(s);
	if (t->state == LT_DONE)
		return 0;
	return rc ? rc : over ? over : TALLY_EAGAIN;
}

static int look_for_a_moment(tally_session *s, const struct tally_tensor *t)
{
	int rc = look(s, t);

	for (int i = 0; i < SPIN_TURNS && rc == TALLY_EAGAIN; i++) {
		relax();
		rc = look(s, t);
	}
	return rc;
}

/* Sleeps until something comes, the agent hangs up (EAGENT), or the deadline passes. */
static int sleep_for_news(tally_session *s, mono_t deadline)
{
	struct pollfd p[2] = {
		{ .fd = s->cpl_bell, .events = POLLIN },
		{ .fd = s->conn.fd, .events = POLLRDHUP },
	};
	mono_t until;
	int n, bell;

	if (s->timeline)
		lt_timeline_flush(s->timeline);
	lt_log_rounds(s);
	until = lt_wait_until(&s->slow, deadline);
	if (!ring_cpl_sleep(&s->ring))
		return 0;
	if (s->gpu)			/* whose trouble rings no bell */
		until = MIN(until, lt_now() + mono_ms(GPU_LOOK_MS));
	n = lt_poll(p, ARRAY_SIZE(p), until);
	bell = ring_cpl_wake(&s->ring);
	if (n > 0 && (p[1].revents || bell))
		return TALLY_EAGENT;
	return n > 0 || lt_now() < deadline ? 0 : TALLY_ETIMEDOUT;
}

int lt_round_await(tally_session *s, const tally_tensor *t, mono_t deadline)
{
	int slept = 0, rc;

	for (;;) {
		rc = look_for_a_moment(s, t);
		if (rc != TALLY_EAGAIN || slept == TALLY_ETIMEDOUT)
			return rc == TALLY_EAGAIN ? TALLY_ETIMEDOUT : rc;
		rc = slept == TALLY_EAGENT ? lt_session_agent_gone(s) : 0;
		if (!rc && s->away)
			rc = lt_back(s, deadline);
		if (rc && rc != TALLY_EAGAIN)
			return look(s, t) == 0 ? 0 : rc;	/* it may have come meanwhile */
		slept = rc ? TALLY_ETIMEDOUT : sleep_for_news(s, deadline);
	}
}

static int say_timeout(tally_session *s, const struct tally_tensor *t, int timeout_ms)
{
	char stall[ERR_TEXT_MAX + 1];

	if (s->away)			/* what the ring says is the last agent's word */
		lt_back_text(s, stall, sizeof(stall));
	else
		ring_status_get(&s->ring, NULL, NULL, stall);
	return err_set(&s->err, TALLY_ETIMEDOUT,
		       "round %u of tensor %s: not done after %d ms%s%s", t->round, t->name,
		       timeout_ms, *stall ? "; " : "", stall);
}

int tally_wait(tally_session *s, tally_ticket k, int timeout_ms)
{
	LT_CALL(s);
	struct tally_tensor *t;
	mono_t deadline;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	t = lt_round_of(s, k);
	if (!t)
		return no_such_ticket(s, k);
	if (timeout_ms < 0)
		timeout_ms = (int)s->who.round_timeout_ms;
	deadline = lt_now() + mono_ms((uint64_t)timeout_ms);
	rc = lt_round_await(s, t, deadline);
	if (!rc && !t->code)
		rc = lt_gpu_landed(s, t, deadline);
	if (!rc)
		rc = hand_over(s, t);
	else if (rc == TALLY_ETIMEDOUT && !s->over.code)
		say_timeout(s, t, timeout_ms);
	else
		lt_round_use_up(s, t);
	lt_news_arm(s);
	return rc;
}

int tally_test(tally_session *s, tally_ticket k)
{
	LT_CALL(s);
	struct tally_tensor *t;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	t = lt_round_of(s, k);
	if (!t)
		return no_such_ticket(s, k);
	rc = look(s, t);
	lt_log_rounds(s);
	if (rc == TALLY_EAGAIN && (s->away || lt_conn_gone(&s->conn))) {
		rc = look(s, t) == 0 ? 0 : lt_back_look(s);
		if (rc && look(s, t) == 0)	/* it may have come meanwhile */
			rc = 0;
	}
	if (!rc && !t->code)
		rc = lt_gpu_landed(s, t, 0);
	if (!rc)
		rc = hand_over(s, t);
	else if (rc == TALLY_EAGAIN && !s->over.code)
		err_set(&s->err, rc, "round %u of tensor %s is in flight", t->round, t->name);
	else
		lt_round_use_up(s, t);
	lt_news_arm(s);
	return rc;
}

const void *tally_result(const tally_session *s, const tally_tensor *t)
{
	LT_CALL(s);

	if (!s || !t || t->session != s || !t->result_round)
		return NULL;
	return t->result[t->result_round & 1];
}
