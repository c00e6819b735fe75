// SPDX-License-Identifier: Apache-2.0
/*
 * back.c - to an agent that was started again.
 *
 *   here -> its socket is at its end -> AWAY: connect, again and again -> hand back what
 *   there is, ATTACH -> ASKED: its results are mapped where the first agent's were, ATTACHED
 *   -> here; a socket that breaks on the way leads back to AWAY
 *
 * AWAY has an end, and begins anew when an agent goes that had taken the question.  ASKED has
 * none: such an agent answers when the scheduler has, who may be gone, too, and says no when
 * the grace is over.  Calls have their own deadlines all along.
 *
 * Completions that the first agent wrote are taken in when it goes, and none after that: what
 * the new one is told to be done is done, and nothing else is.  Rounds in flight are submitted
 * again; where an arena can only be read (huge pages) in place of nothing, and the result is
 * copied when it is handed over.  Of what its first process had written there before it died
 * the agent has marks, and reads no input again that may be the result by now.
 *
 * Handing back is one piece of work, also for a call that has no time (tally_test): while the
 * agent reads it is short, and one that stands still is tried again later.
 *
 * Our ring goes first: the name that its agent gave to it tells the new one who we are.
 *
 * Failures: an agent that refuses (the job is over, other processes of the machine did not
 * come back) ends the session with its reason; one that does not come, with EAGENT.
 */
#include "client/back.h"

#include <stdio.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/gpu.h"
#include "client/mem.h"

#define TRY_MS		20u
#define HAND_MS		250u		/* for one message, where its caller has no time at all */
#define TAKEN_MS	1000u		/* an agent that hangs up before has not taken it */
#define ASK_MS		(24u * 3600 * 1000) /* for ranks that compute; lost ones end it */
#define SLACK_MS	10000u		/* a scheduler that died, too, comes up and recovers */
#define ROWS_MAX	4096u		/* of one message */
#define AWAY_WAIT	"waiting for the agent"

uint32_t lt_back_patience_ms(const tally_session *s)
{
	return (uint32_t)MIN((uint64_t)s->grace_ms + SLACK_MS, UINT32_MAX);
}

void lt_back_text(const tally_session *s, char *buf, size_t len)
{
	mono_t left = s->away_until - lt_now();

	if (s->away == LT_AWAY)
		snprintf(buf, len, "agent at %s is gone, and is waited for until %u s from now",
			 s->who.socket, left > 0 ? (uint32_t)(left / NS_PER_SEC) : 0);
	else
		snprintf(buf, len, "agent at %s was started again, and waits for other processes "
			 "of this machine, or for the scheduler (see tally jobs)", s->who.socket);
}

int lt_back_late(tally_session *s)
{
	char buf[ERR_TEXT_MAX + 1];

	lt_back_text(s, buf, sizeof(buf));
	return err_set(&s->err, TALLY_ETIMEDOUT, "%s", buf);
}

/*
 * Closes the connection and sets the time of the next try. An agent that accepted, said nothing
 * and stands still gets less of the caller's time then.
 */
static void try_later(tally_session *s, mono_t took)
{
	if (s->away == LT_ASKED && lt_now() - s->asked_at >= mono_ms(TAKEN_MS))
		s->away_until = lt_now() + mono_ms(lt_back_patience_ms(s));
	lt_conn_close(&s->conn);
	s->away = LT_AWAY;
	s->try_at = lt_now() + MAX(mono_ms(TRY_MS), MIN(3 * took, NS_PER_SEC));
}

bool lt_back_begin(tally_session *s)
{
	if (s->over.code || !s->attached || !s->grace_ms || lt_session_live(s) ||
	    lt_round_take_all(s))
		return false;
	if (s->away && s->conn.fd < 0)
		try_later(s, 0);	/* the one that was asked has gone, too */
	if (s->away)
		return true;
	lt_news_unwatch(s);
	lt_conn_close(&s->conn);
	s->away = LT_AWAY;
	s->away_until = lt_now() + mono_ms(lt_back_patience_ms(s));
	s->try_at = lt_now();
	lt_wait_begin(s, &s->gone);
	lt_log(s, LT_LOG_INFO, "the agent at %s is gone; it is waited for", s->who.socket);
	lt_news_moved(s);
	return true;
}

static int gone_for_good(tally_session *s)
{
	err_set(&s->err, TALLY_EAGENT, "agent at %s is gone, and was not back within %u s",
		s->who.socket, (uint32_t)div_round_up(lt_back_patience_ms(s), 1000));
	lt_conn_close(&s->conn);
	return lt_session_over(s);
}

static int over(tally_session *s)
{
	lt_conn_close(&s->conn);
	return lt_session_over(s);
}

/* ---- handing back ---- */

/* Until when one message of it may take: an agent that reads has all of them in time. */
struct hand {
	mono_t caller;			/* its deadline */
	mono_t end;			/* of all messages together */
};

static mono_t hand_by(const struct hand *h)
{
	return MIN(h->end, MAX(h->caller, lt_now() + mono_ms(HAND_MS)));
}

static int hand_slab(tally_session *s, uint32_t kind, uint32_t id, const struct slab *mem,
		     const struct hand *h)
{
	const struct msg m = {
		.type = MSG_SLAB,
		.slab = { .id = id, .kind = kind, .bytes = mem->bytes },
	};

	return lt_conn_send_fd(&s->conn, &m, mem->fd, hand_by(h), &s->err);
}

static int hand_slabs(tally_session *s, const struct hand *h)
{
	const struct slab *mem;
	int rc = hand_slab(s, SLAB_RING, 0, &s->ring_mem, h);	/* says who we are */

	for (uint32_t i = 0; !rc && i < s->arena.nslabs; i++)
		rc = hand_slab(s, s->arena.slabs[i].mem.device ? SLAB_DEVICE : SLAB_INPUT,
			       s->arena.slabs[i].id, &s->arena.slabs[i].mem, h);
	for (uint32_t i = 0; !rc && i < s->nresults; i++)
		rc = hand_slab(s, SLAB_RESULT, s->results[i].id, &s->results[i].mem, h);
	for (uint32_t i = 0; !rc && (mem = lt_gpu_memory(s, i)); i++)
		rc = hand_slab(s, SLAB_OLD, i, mem, h);
	return rc;
}

/* The slab that a result lies in; one of no bytes lies in none. */
static void find_result(const tally_session *s, const uint8_t *at, struct msg_declared_tensor *row,
			int k)
{
	for (uint32_t i = 0; i < s->nresults; i++) {
		uint64_t off = (uint64_t)((uintptr_t)at - (uintptr_t)s->results[i].mem.base);

		if (off >= s->results[i].mem.bytes)
			continue;
		row->slab = s->results[i].id;
		row->off[k] = off;
	}
}

static struct msg_declared_tensor row_of(tally_session *s, struct tally_tensor *t)
{
	struct msg_declared_tensor row = { .id = t->id };
	bool flies = t->state == LT_FLYING;

	for (int k = 0; k < 2; k++)
		find_result(s, t->result[k], &row, k);
	row.round = flies ? t->before : t->round;
	if (!flies)
		return row;
	t->handed = t->round;
	lt_gpu_hand(s, t);
	row.flies = true;
	row.was = lt_gpu_reads(s, t);
	return row;
}

static int hand_rows(tally_session *s, const struct msg_declared_tensor *row, uint32_t n,
		     const struct hand *h)
{
	const struct msg m = {
		.type = MSG_DECLARED,
		.declared = { .text = "", .ntensors = n, .tensors = row },
	};

	return n ? lt_conn_send(&s->conn, &m, hand_by(h), &s->err) : 0;
}

/* Also of a declaration that is under way: what was answered of it has its place. */
static int hand_tensors(tally_session *s, const struct hand *h)
{
	struct msg_declared_tensor *row = lt_mem_new(ROWS_MAX, sizeof(*row));
	uint32_t n = 0;
	int rc = 0;

	if (!row)
		return err_set(&s->err, TALLY_ENOMEM, "no memory to come back to the agent");
	for (uint32_t i = 0; !rc && i < s->nslots + s->nbound; i++) {
		struct tally_tensor *t = i < s->nslots ? s->slots[i].tensor :
							 s->bound[i - s->nslots];

		if (t)
			row[n++] = row_of(s, t);
		if (n < ROWS_MAX)
			continue;
		rc = hand_rows(s, row, n, h);
		n = 0;
	}
	rc = rc ? rc : hand_rows(s, row, n, h);
	lt_mem_free(row);
	return rc;
}

static int ask(tally_session *s, const struct hand *h)
{
	struct msg m = { .type = MSG_ATTACH };

	s->back_req = lt_session_req(s);
	m.attach = (struct msg_attach){
		.req = s->back_req, .version = MSG_VERSION, .job = s->who.job,
		.world = s->who.world, .rank = s->who.rank,
		.timeout_ms = ASK_MS, .chunk_bytes = s->who.chunk_bytes,
		.on_loss = s->who.on_loss, .back = s->job, .barriers = s->barriers,
	};
	return lt_conn_send(&s->conn, &m, hand_by(h), &s->err);
}

/* EAGENT: tried again; anything else is the end. */
static int connect_and_ask(tally_session *s, mono_t deadline)
{
	const struct hand h = { .caller = deadline, .end = lt_now() + mono_ms(HANDSHAKE_MS) };
	int rc = lt_conn_open(&s->conn, lt_now() + mono_ms(TRY_MS), &s->err);

	rc = rc ? rc : hand_slabs(s, &h);
	rc = rc ? rc : hand_tensors(s, &h);
	rc = rc ? rc : ask(s, &h);
	/* its socket's mode comes after the socket; descriptors and memory may come back, too */
	if (rc == TALLY_EAUTH || rc == TALLY_EQUOTA || rc == TALLY_ENOMEM)
		rc = TALLY_EAGENT;
	if (rc)
		return rc;
	s->away = LT_ASKED;
	s->asked_at = lt_now();
	return 0;
}

/* ---- being back ---- */

int lt_back_post(tally_session *s, const struct ring_sub *sub)
{
	mono_t deadline = lt_now() + mono_ms(HANDSHAKE_MS);
	int rc;

	while ((rc = lt_round_post(s, sub)) == TALLY_EAGAIN) {
		rc = lt_round_take_all(s);
		if (rc)
			return rc;
		rc = lt_session_live(s);
		if (rc)
			return rc;
		if (lt_conn_gone(&s->conn) || lt_now() >= deadline)
			return err_set(&s->err, TALLY_EAGENT, "agent at %s does not read its ring",
				       s->who.socket);
		(void)lt_poll(NULL, 0, lt_now() + NS_PER_MS);
	}
	return rc;
}

/* A round on a GPU is more than one descriptor. */
static int post_again(tally_session *s, struct tally_tensor *t, bool handed)
{
	if (t->state != LT_FLYING || (t->gpu && t->gpu->flying) ||
	    (t->handed == t->round) != handed)
		return 0;
	if (t->sub.out_slab && lt_arena_read_only(&s->arena, t->sub.out_slab - 1)) {
		t->out = lt_arena_at(&s->arena, t->sub.out_slab - 1, t->sub.out_offset);
		t->sub.out_slab = 0;
		t->sub.out_offset = 0;
	}
	return lt_back_post(s, &t->sub);
}

/* Posts all rounds in flight again: first those that were handed back, then those begun since. */
static int all_again(tally_session *s)
{
	int rc = 0;

	for (uint32_t i = 0; i < s->arena.nslabs; i++)
		if (!s->arena.slabs[i].mem.device)
			s->arena.slabs[i].read_only = slab_is_closed(&s->arena.slabs[i].mem);
	for (int handed = 1; !rc && handed >= 0; handed--) {
		for (uint32_t i = 0; !rc && i < s->nslots; i++)
			if (s->slots[i].tensor)
				rc = post_again(s, s->slots[i].tensor, handed);
		rc = rc ? rc : lt_gpu_again(s, handed);
	}
	return rc;
}

/* Else what there is stays: a GPU's driver may still post to it. */
static int take_ring(tally_session *s)
{
	int old[2] = { s->sub_bell, s->cpl_bell }, rc;
	struct slab ring_mem = s->ring_mem;

	rc = lt_session_ring(s);
	if (!rc)
		slab_free(&ring_mem);
	for (int i = 0; i < 2; i++) {
		int *now = i ? &s->cpl_bell : &s->sub_bell, gone = rc ? *now : old[i];

		if (rc)
			*now = old[i];
		if (gone >= 0)
			close(gone);
	}
	return rc;
}

static int take_back(tally_session *s, const struct msg_attached *m)
{
	int rc;

	if (m->job != s->job || m->rank != s->who.rank || m->world != s->who.world)
		return lt_session_protocol_error(s, "attached to another job");
	pthread_mutex_lock(&s->sub_lock);
	rc = take_ring(s);
	if (rc) {
		s->attached = false;		/* there is no ring to read a reason from */
		lt_conn_close(&s->conn);
		rc = lt_session_over(s);
	} else {
		s->away = LT_HERE;
		s->grace_ms = m->grace_ms;
		s->devices = m->devices;
		lt_wait_end(s, &s->gone, AWAY_WAIT);
		rc = all_again(s);
		if (rc == TALLY_EAGENT)		/* it has gone once more */
			s->away_until = lt_now() + mono_ms(lt_back_patience_ms(s));
		else
			lt_news_moved(s);
	}
	pthread_mutex_unlock(&s->sub_lock);
	return rc;
}

static int refused(tally_session *s, const struct msg_reply *m)
{
	err_set(&s->err, m->code < 0 ? m->code : TALLY_EPROTO, "%s", *m->text ? m->text :
		err_help(m->code));
	lt_conn_close(&s->conn);
	return lt_session_over(s);
}

static int answered(tally_session *s, const struct msg *m)
{
	if (m->type == MSG_SLAB && !m->slab.req)
		return lt_session_result_slab(s, &m->slab);
	if (m->type == MSG_ATTACHED && m->attached.req == s->back_req)
		return take_back(s, &m->attached);
	if (m->type == MSG_REPLY && m->reply.code)
		return refused(s, &m->reply);
	return lt_session_protocol_error(s, "an answer of another kind");
}

/* Where that is due, what is waited for. */
static void tell(tally_session *s)
{
	char why[ERR_TEXT_MAX + 1];

	if (!lt_wait_due(&s->gone))
		return;
	lt_back_text(s, why, sizeof(why));
	lt_wait_tell(s, &s->gone, AWAY_WAIT, why);
}

int lt_back(tally_session *s, mono_t deadline)
{
	struct msg m;
	int rc = 0;

	while (s->away && !s->over.code) {
		mono_t now = lt_now(), until = lt_wait_until(&s->gone, deadline);

		tell(s);
		if (s->away == LT_AWAY && now >= s->away_until)
			return gone_for_good(s);
		if (s->away == LT_AWAY && now < s->try_at) {
			if (now >= deadline)
				return TALLY_EAGAIN;
			(void)lt_poll(NULL, 0, MIN(deadline, s->try_at));
			continue;
		}
		if (s->away == LT_AWAY) {
			rc = connect_and_ask(s, deadline);
			lt_news_moved(s);
		} else {
			rc = lt_conn_recv(&s->conn, &m, MAX(until, now), &s->err);
			if (rc == TALLY_ETIMEDOUT && lt_now() < deadline)
				continue;
			if (rc == TALLY_ETIMEDOUT)
				return TALLY_EAGAIN;
			rc = rc ? rc : answered(s, &m);
		}
		if (rc == TALLY_ETIMEDOUT && !s->over.code)
			continue;
		if (rc == TALLY_EAGENT && !s->over.code)
			try_later(s, s->away == LT_AWAY ? lt_now() - now : 0);
		else if (rc && !s->over.code)
			rc = over(s);
	}
	return s->over.code ? lt_session_over(s) : 0;
}

int lt_back_look(tally_session *s)
{
	int rc = s->away ? 0 : lt_session_agent_gone(s);

	rc = rc ? rc : lt_back(s, lt_now());
	return rc ? rc : TALLY_EAGAIN;
}
