// SPDX-License-Identifier: Apache-2.0
/*
 * session.c - a process joins a job, talks to its agent, and leaves.
 *
 * Attach: ATTACH goes out, ATTACHED comes back with descriptors (ring page, submission bell,
 * completion bell, a file to lock) once all ranks are there, or a REPLY says
 * why not.  Then requests are answered one at a time; before a DECLARED that
 * needs new result memory the agent sends SLABs unasked, which are mapped
 * read-only and acknowledged on the way.
 *
 * Failures: what the agent refuses is the call's error and no more.  An agent
 * that is gone or breaks the protocol ends the session, and so does the job's
 * failure, which the ring's status page tells.  An answer that comes after its
 * call gave up is recognised by its number and dropped.
 */
#include "client/session.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/back.h"
#include "client/clock.h"
#include "client/gpu.h"
#include "client/mem.h"

#define AGENT_LOOK_MS	20u
#define ATTACH_AGAIN_MS	50u	/* while the job of that name before ends */
#define ANSWER_WHY_MS	1000u	/* for the agent to say what an answer waits for */
#define ANSWER_BYTES	1024u	/* any answer but a DECLARED: a text and some numbers */

/* ---- being over ---- */

void lt_session_no_return(tally_session *s)
{
	if (s->alive >= 0)
		close(s->alive);
	s->alive = -1;
}

int lt_session_over(tally_session *s)
{
	bool first = !s->over.code && s->attached;
	int code = 0;

	if (first)
		ring_status_get(&s->ring, &code, NULL, NULL);
	if (code) {
		/* read again with the text: job_code was set after it */
		s->over.code = code < 0 ? code : TALLY_EPROTO;
		ring_status_get(&s->ring, NULL, s->over.text, NULL);
		if (!s->over.text[0])
			err_set(&s->over, s->over.code, "%s", err_help(s->over.code));
	} else if (!s->over.code) {
		s->over = s->err;
	}
	lt_session_no_return(s);
	s->err = s->over;
	if (first)
		lt_log(s, LT_LOG_INFO, "the session is over: %s", s->over.text);
	return s->over.code;
}

int lt_session_live(tally_session *s)
{
	int code = 0;

	if (s->over.code)
		return lt_session_over(s);
	ring_status_get(&s->ring, &code, NULL, NULL);
	return code ? lt_session_over(s) : lt_gpu_live(s);
}

int lt_session_protocol_error(tally_session *s, const char *what)
{
	err_set(&s->err, TALLY_EPROTO, "agent at %s: %s", s->who.socket, what);
	lt_conn_close(&s->conn);
	return lt_session_over(s);
}

int lt_session_agent_gone(tally_session *s)
{
	if (lt_back_begin(s))
		return 0;
	lt_conn_say_gone(&s->conn, &s->err);
	lt_conn_close(&s->conn);
	return lt_session_over(s);
}

/* ---- requests ---- */

uint64_t lt_session_req(tally_session *s)
{
	return ++s->next_req;
}

static uint64_t req_of(const struct msg *m)
{
	switch (m->type) {
	case MSG_REPLY:
		return m->reply.req;
	case MSG_ATTACHED:
		return m->attached.req;
	case MSG_SLAB:
		return m->slab.req;
	case MSG_DECLARED:
		return m->declared.req;
	case MSG_GPU_PLAN:
		return m->gpu_plan.req;
	default:
		return UINT64_MAX;	/* no answer of ours: refused as one to come */
	}
}

static int mapped(tally_session *s, const struct msg_slab *slab)
{
	struct msg m = {
		.type = MSG_SLAB_MAPPED,
		.slab = { .id = slab->id, .kind = slab->kind, .bytes = slab->bytes },
	};

	return lt_conn_send(&s->conn, &m, lt_now() + mono_ms(HANDSHAKE_MS), &s->err);
}

static struct lt_result *result_slab(tally_session *s, uint32_t id)
{
	for (uint32_t i = 0; i < s->nresults; i++)
		if (s->results[i].id == id)
			return &s->results[i];
	return NULL;
}

/*
 * A result slab nobody asked for.  One that cannot be mapped (address space) is
 * remembered: the tensors that lie in it will be refused with that error.  Its descriptor
 * stays: an agent that is started again is handed all of them.
 */
int lt_session_result_slab(tally_session *s, const struct msg_slab *slab)
{
	struct lt_result *r = result_slab(s, slab->id);
	int fd = lt_conn_take_fd(&s->conn, 0);

	if (slab->kind != SLAB_RESULT || fd < 0) {
		bool lacks = fd < 0 && lt_conn_lacks_fds(&s->conn, &s->slab_err);

		if (fd >= 0)
			close(fd);
		return lt_session_protocol_error(s, lacks ? s->slab_err.text :
						 "a slab of another kind, or without memory");
	}
	if (r && r->mem.base) {		/* of an agent that was started again */
		if (!slab_remap(&r->mem, fd, &s->err))
			return mapped(s, slab);
		close(fd);
		return s->err.code;
	}
	if (r) {
		close(r->mem.fd);
	} else if (s->nresults == RESULT_SLABS_MAX) {
		err_set(&s->slab_err, TALLY_EQUOTA, "more than %u result slabs",
			RESULT_SLABS_MAX);
		close(fd);
		return 0;
	} else {
		r = &s->results[s->nresults++];
		r->id = slab->id;
	}
	if (!slab_map(&r->mem, fd, slab->bytes, false, &s->slab_err))
		return mapped(s, slab);
	r->mem = (struct slab){ .fd = fd, .bytes = slab->bytes };
	return 0;
}

/* A refusal is the call's result; its text comes from whoever refused. */
static int refused(tally_session *s, int32_t code, const char *text)
{
	if (code > 0)
		return lt_session_protocol_error(s, "a positive error code");
	return err_set(&s->err, code, "%s", *text ? text : err_help(code));
}

static int check_answer(tally_session *s, const struct msg *m, enum msg_type want)
{
	if (m->type == MSG_REPLY && m->reply.code)
		return refused(s, m->reply.code, m->reply.text);
	if (m->type == MSG_DECLARED && m->declared.code)
		return refused(s, m->declared.code, m->declared.text);
	return m->type == want ? 0 : lt_session_protocol_error(s, "an answer of another kind");
}

/* Text of what a request waits for, until the answer to WAITS says it in the agent's words. */
static const char *waiting_for(enum msg_type ask)
{
	switch (ask) {
	case MSG_ATTACH:
		return "joining the job";
	case MSG_DECLARE:
		return "declaring tensors";
	case MSG_UNDECLARE:
		return "giving tensors back";
	case MSG_BARRIER:
		return "in a barrier";
	case MSG_DETACH:
		return "leaving the job";
	case MSG_GPU_JOIN:
		return "opening a GPU";
	default:
		return "asking the agent for memory";
	}
}

/* The wait for an answer is to be told of: the agent knows why, or does not answer, either. */
static int ask_why(tally_session *s, const struct msg *ask, uint64_t req)
{
	const struct msg why = { .type = MSG_WAITS, .reply = { .req = req, .text = "" } };

	if (s->asking.asked || ask->type == MSG_DETACH) {
		lt_wait_tell(s, &s->asking, waiting_for(ask->type), "the agent does not answer");
		return 0;
	}
	s->asking.asked = true;
	s->asking.next = lt_now() + mono_ms(ANSWER_WHY_MS);
	return lt_conn_send(&s->conn, &why, lt_now() + mono_ms(HANDSHAKE_MS), &s->err);
}

static void told_why(tally_session *s, const struct msg *ask, const struct msg_reply *m)
{
	s->asking.asked = false;
	lt_wait_tell(s, &s->asking, waiting_for(ask->type), m->text);
}

static int await_answer(tally_session *s, const struct msg *ask, uint64_t req, enum msg_type want,
			mono_t deadline, struct msg *m)
{
	uint64_t got;
	int rc;

	for (;;) {
		rc = lt_conn_recv(&s->conn, m, lt_wait_until(&s->asking, deadline), &s->err);
		if (rc == TALLY_ETIMEDOUT && lt_now() < deadline && lt_wait_due(&s->asking)) {
			rc = ask_why(s, ask, req);
			if (!rc)
				continue;
		}
		if (rc)
			return rc;
		if (m->type == MSG_WAITS) {
			if (m->reply.req == req)
				told_why(s, ask, &m->reply);
			continue;
		}
		got = req_of(m);
		if (got == req)
			return check_answer(s, m, want);
		if (got > req)
			return lt_session_protocol_error(s, "an answer that nobody waits for");
		/* 0: unasked; less: a call that has given up since */
		if (got == 0 && m->type == MSG_SLAB)
			rc = lt_session_result_slab(s, &m->slab);
		if (rc)
			return rc;
	}
}

mono_t lt_session_limit(uint32_t timeout_ms)
{
	return lt_now() + mono_ms((uint64_t)timeout_ms + LT_CALL_SLACK_MS);
}

int lt_session_call(tally_session *s, const struct msg *ask, uint64_t req, enum msg_type want,
		    uint32_t timeout_ms, struct msg *answer)
{
	return lt_session_call_fd(s, ask, -1, req, want, lt_session_limit(timeout_ms), answer);
}

int lt_session_call_fd(tally_session *s, const struct msg *ask, int fd, uint64_t req,
		       enum msg_type want, mono_t deadline, struct msg *answer)
{
	bool joins = ask->type == MSG_ATTACH;	/* its wait is attach()'s */
	int rc = 0;

	if (s->timeline)
		lt_timeline_flush(s->timeline);
	if (!joins)
		lt_wait_begin(s, &s->asking);
	for (;;) {			/* an agent that was started again is asked again */
		if (s->away)
			rc = lt_back(s, deadline);
		if (rc == TALLY_EAGAIN)
			return lt_back_late(s);
		rc = rc ? rc : lt_conn_send_fd(&s->conn, ask, fd, deadline, &s->err);
		rc = rc ? rc : await_answer(s, ask, req, want, deadline, answer);
		if (rc != TALLY_EAGENT || s->conn.fd >= 0 || !lt_back_begin(s))
			break;
		rc = 0;
	}
	lt_log(s, LT_LOG_DEBUG, "%s: %s", waiting_for(ask->type), rc ? s->err.text : "done");
	if (!joins)
		lt_wait_end(s, &s->asking, waiting_for(ask->type));
	if (rc && s->conn.fd < 0 && !s->away)
		return lt_session_over(s);
	return rc;
}

/* ---- attach ---- */

int lt_session_ring(tally_session *s)
{
	int ring = lt_conn_take_fd(&s->conn, 0);
	int rc;

	s->sub_bell = lt_conn_take_fd(&s->conn, 1);
	s->cpl_bell = lt_conn_take_fd(&s->conn, 2);
	if (!ring_sub_bell_ok(s->sub_bell) || !ring_cpl_bell_ok(s->cpl_bell)) {
		if (ring >= 0)
			close(ring);
		return lt_conn_lacks_fds(&s->conn, &s->err) ? s->err.code :
		       err_set(&s->err, TALLY_EPROTO, "agent at %s: not three good descriptors",
			       s->who.socket);
	}
	rc = slab_map(&s->ring_mem, ring, ring_shared_bytes(), true, &s->err);
	if (rc) {
		close(ring);
		return err_wrap(&s->err, "agent at %s: the ring", s->who.socket);
	}
	ring_end_init(&s->ring, s->ring_mem.base, s->sub_bell, s->cpl_bell);
	return 0;
}

/* The lock is the process's, and ends with it. */
static void show_alive(tally_session *s)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

	s->alive = lt_conn_take_fd(&s->conn, 3);
	if (s->alive >= 0 && fcntl(s->alive, F_SETLK, &lock))
		lt_session_no_return(s);
}

static int take_attached(tally_session *s, const struct msg_attached *m)
{
	int rc;

	if (m->world != s->who.world || m->rank != s->who.rank)
		return err_set(&s->err, TALLY_EPROTO, "agent at %s: attached as rank %u of %u",
			       s->who.socket, m->rank, m->world);
	rc = lt_session_ring(s);
	if (rc)
		return rc;
	show_alive(s);
	s->job = m->job;
	s->chunk_bytes = m->chunk_bytes;
	s->local_rank = m->local_rank;
	s->local_size = m->local_size;
	s->machines = m->machines;
	s->barriers = m->barrier;
	s->late = m->barrier != 0;
	s->grown = ring_grown(&s->ring);
	s->grace_ms = m->grace_ms;
	s->devices = m->devices;
	s->attached = true;
	return 0;
}

static int attach_by(tally_session *s, mono_t deadline)
{
	mono_t left = MAX(deadline - lt_now(), NS_PER_MS);
	uint32_t timeout_ms = (uint32_t)div_round_up((uint64_t)left, NS_PER_MS);
	struct msg answer, ask = { .type = MSG_ATTACH };
	int rc = lt_conn_open(&s->conn, deadline, &s->err);

	if (rc)
		return rc;
	ask.attach = (struct msg_attach){
		.req = lt_session_req(s), .version = MSG_VERSION, .job = s->who.job,
		.world = s->who.world, .rank = s->who.rank, .timeout_ms = timeout_ms,
		.chunk_bytes = s->who.chunk_bytes, .on_loss = s->who.on_loss,
	};
	rc = lt_session_call(s, &ask, ask.attach.req, MSG_ATTACHED, timeout_ms, &answer);
	return rc ? rc : take_attached(s, &answer.attached);
}

/* EBUSY: some ranks of the job of this name before have not detached yet. */
static int attach(tally_session *s, const tally_options *opt)
{
	mono_t deadline;
	int rc;

	rc = lt_ident_fill(&s->who, opt, &s->err);
	if (!rc && s->who.timeline[0])
		rc = lt_timeline_open(&s->timeline, s->who.timeline, s->who.job, s->who.rank,
				      s->who.world, &s->err);
	if (rc)
		return rc;
	lt_conn_init(&s->conn, s->who.socket);
	rc = lt_conn_reserve(&s->conn, ANSWER_BYTES, &s->err);
	if (rc)
		return rc;
	s->asked_timeout_ms = s->who.timeout_ms;
	deadline = lt_now() + mono_ms(s->who.timeout_ms);
	lt_wait_begin(s, &s->asking);
	for (;;) {
		rc = attach_by(s, deadline);
		if (rc != TALLY_EBUSY || lt_now() + mono_ms(ATTACH_AGAIN_MS) >= deadline)
			break;
		if (lt_wait_due(&s->asking))
			lt_wait_tell(s, &s->asking, waiting_for(MSG_ATTACH), s->err.text);
		lt_conn_close(&s->conn);
		(void)lt_poll(NULL, 0, lt_now() + mono_ms(ATTACH_AGAIN_MS));
	}
	lt_wait_end(s, &s->asking, waiting_for(MSG_ATTACH));
	if (!rc)
		lt_log(s, LT_LOG_INFO, "attached by the agent at %s, machines %u, ranks on this "
		       "one %u", s->who.socket, s->machines, s->local_size);
	return rc;
}

static void lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t again;

	pthread_mutexattr_init(&again);
	pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(lock, &again);
	pthread_mutexattr_destroy(&again);
}

int tally_attach(const tally_options *opt, tally_session **out)
{
	tally_session *s;
	int rc;

	if (!out)
		return TALLY_EINVAL;
	*out = s = lt_mem_new(1, sizeof(*s));
	if (!s)
		return TALLY_ENOMEM;
	s->sub_bell = s->cpl_bell = s->alive = s->poll_fd = s->news_fd = s->away_fd = -1;
	lock_init(&s->api);
	lock_init(&s->sub_lock);
	lt_conn_init(&s->conn, NULL);
	rc = attach(s, opt);
	if (!rc)
		return 0;
	/* s stays for its text; whatever else is asked of it, this is the answer */
	lt_conn_close(&s->conn);
	s->over = s->err;
	return rc;
}

/* ---- results, barrier ---- */

const uint8_t *lt_session_result(const tally_session *s, uint32_t slab, uint64_t off,
				 uint64_t bytes)
{
	for (uint32_t i = 0; i < s->nresults; i++)
		if (s->results[i].id == slab)
			return s->results[i].mem.base &&
			       range_ok(off, bytes, s->results[i].mem.bytes) ?
			       s->results[i].mem.base + off : NULL;
	return NULL;
}

static int enter_barrier(tally_session *s, int timeout_ms, bool grow)
{
	struct msg answer, ask = { .type = MSG_BARRIER };
	int rc;

	ask.barrier = (struct msg_barrier){
		.req = lt_session_req(s), .job = s->job, .rank = s->who.rank,
		.timeout_ms = timeout_ms > 0 ? (uint32_t)timeout_ms : s->who.timeout_ms,
		.generation = s->barriers + 1, .grow = grow,
	};
	rc = lt_session_call(s, &ask, ask.barrier.req, MSG_REPLY, ask.barrier.timeout_ms,
			     &answer);
	s->barriers += !rc;		/* else the next call is for the same one */
	return rc;
}

int tally_barrier(tally_session *s, int timeout_ms)
{
	LT_CALL(s);
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	return rc ? rc : enter_barrier(s, timeout_ms, false);
}

/* All live ranks are at the same round of every tensor, if each of them has none under way. */
static int check_idle(tally_session *s)
{
	for (uint32_t i = 0; i < s->nslots; i++) {
		const struct tally_tensor *t = s->slots[i].tensor;

		if (t && t->state != LT_IDLE)
			return err_set(&s->err, TALLY_EBUSY, "round %u of tensor %s: wait for its "
				       "ticket first", t->round, t->name);
	}
	return 0;
}

int tally_grow(tally_session *s, int timeout_ms)
{
	LT_CALL(s);
	uint32_t before;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	if (!rc && s->who.on_loss != TALLY_ON_LOSS_SHRINK)
		rc = err_set(&s->err, TALLY_EINVAL, "the job ends when it loses a rank, so none "
			     "comes back: that is for TALLY_ON_LOSS_SHRINK");
	if (!rc)
		rc = check_idle(s);
	if (!rc)
		rc = enter_barrier(s, timeout_ms, true);
	if (rc)
		return rc;
	before = s->grown;
	s->grown = ring_grown(&s->ring);
	return (int)(s->grown - before);
}

/* ---- detach ---- */

/* Its agent answers in 3 s at most, also one that others keep from taking us back. */
static int goodbye(tally_session *s)
{
	mono_t deadline = lt_now() + mono_ms(HANDSHAKE_MS + LT_CALL_SLACK_MS);
	struct msg answer, ask = { .type = MSG_DETACH };
	int rc;

	ask.reply = (struct msg_reply){ .req = lt_session_req(s), .text = "" };
	rc = lt_conn_send(&s->conn, &ask, deadline, &s->err);
	lt_wait_begin(s, &s->asking);
	rc = rc ? rc : await_answer(s, &ask, ask.reply.req, MSG_REPLY, deadline, &answer);
	lt_wait_end(s, &s->asking, waiting_for(MSG_DETACH));
	return rc;
}

/* returns: an agent that is gone is waited for, as anything else waits for it. */
static int say_goodbye(tally_session *s, bool returns)
{
	mono_t end = lt_now() + mono_ms(returns ? lt_back_patience_ms(s) : HANDSHAKE_MS);
	int rc;

	if (!s->attached || (s->conn.fd < 0 && !s->away))
		return 0;
	if (s->conn.fd < 0 && s->over.code)
		return lt_session_over(s);
	if (s->timeline)
		lt_timeline_flush(s->timeline);
	for (;;) {
		rc = s->away == LT_AWAY ? lt_back(s, lt_now() + mono_ms(AGENT_LOOK_MS)) : 0;
		if (rc && rc != TALLY_EAGAIN)
			return rc;
		if (s->away == LT_AWAY && lt_now() >= end)
			return lt_back_late(s);
		if (s->away == LT_AWAY)
			continue;
		rc = goodbye(s);
		if (rc != TALLY_EAGENT || s->conn.fd >= 0 || lt_now() >= end || !lt_back_begin(s))
			break;
	}
	return rc && s->conn.fd < 0 && !s->away ? lt_session_over(s) : rc;
}

static void result_close_fd(struct slab *mem)
{
	if (!mem->base && mem->fd >= 0)
		close(mem->fd);
	slab_close_fd(mem);
}

int tally_leave(tally_session *s)
{
	LT_CALL(s);
	bool returns;
	int rc, void_rc;

	if (!s)
		return 0;
	returns = s->grace_ms;
	void_rc = lt_gpu_close(s);
	rc = say_goodbye(s, returns);
	rc = rc ? rc : void_rc;
	if (!s->over.code)
		err_set(&s->over, TALLY_ESHUTDOWN, "the session has left its job");
	s->attached = false;
	int *const fds[] = { &s->sub_bell, &s->cpl_bell, &s->alive, &s->poll_fd, &s->news_fd,
			     &s->away_fd };

	lt_conn_fini(&s->conn);
	lt_tensors_fini(s);
	lt_timeline_close(s->timeline);
	s->timeline = NULL;
	slab_free(&s->ring_mem);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	for (uint32_t i = 0; i < s->nresults; i++)
		result_close_fd(&s->results[i].mem);
	for (uint32_t i = 0; i < s->arena.nslabs; i++)
		slab_close_fd(&s->arena.slabs[i].mem);
	return rc;
}

int tally_detach(tally_session *s)
{
	int rc = tally_leave(s);

	if (!s)
		return 0;
	for (uint32_t i = 0; i < s->nresults; i++)
		slab_free(&s->results[i].mem);
	lt_arena_fini(&s->arena);
	pthread_mutex_destroy(&s->sub_lock);
	pthread_mutex_destroy(&s->api);
	lt_mem_free(s);
	return rc;
}
