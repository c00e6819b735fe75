// SPDX-License-Identifier: Apache-2.0
/*
 * One training process as the control thread sees it.
 *
 *   NEW -> ATTACH -> JOINING (the scheduler is asked) -> OPENING (the job is
 *   there, the ring is being opened) -> OPEN -> DETACH or end of file -> OVER
 *
 * What a process asks is forwarded to the scheduler under a number of ours and
 * answered when the scheduler has answered (for DECLARE: when the engines have
 * the tensors, too).  A scheduler that is lost meanwhile is asked again when it
 * is back, within the same deadline.  Who the process is says the kernel (SO_PEERCRED), not the
 * process.  Its memory outlives it until its job ends, since other machines may
 * still be sent what it had posted.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/rt/log.h"
#include "worker-agent/agent.h"

#define ASK_AGAIN_MS	300u	/* after a registration: answers that waited there are in */
#define ANSWER_SLACK_MS 1000u	/* the scheduler answers by its own deadline; then we do */
#define DETACH_MS	2000u	/* that the scheduler may take to hear of it */

static void session_free(struct ad_session *s);

/* ---- answers ---- */

int ad_session_send(struct ad_session *s, const struct msg *m, const int *fds, uint32_t nfds)
{
	struct err e;
	int rc = s->ctl ? ctl_send_fds(s->ctl, m, fds, nfds, &e) : 0;

	if (rc)
		log_warn("%s not told, reason %s", s->called, e.text);
	return rc;
}

static void reply(struct ad_session *s, uint64_t req, int code, const char *text)
{
	if (s->ctl)
		(void)ctl_reply(s->ctl, req, code, "%s", text);
}

static void declared_error(struct ad_session *s, uint64_t req, int code, const char *text)
{
	const struct msg m = {
		.type = MSG_DECLARED,
		.declared = { .req = req, .code = code, .text = text },
	};

	(void)ad_session_send(s, &m, NULL, 0);
}

/* Whatever becomes of its question, who detaches is gone. */
static void fail(struct ad_session *s, enum msg_type type, uint64_t req, int code,
		 const char *text)
{
	if (type == MSG_DECLARE)
		declared_error(s, req, code, text);
	else if (type == MSG_DETACH)
		reply(s, req, 0, "");
	else
		reply(s, req, code, text);
}

/* ---- questions on their way ---- */

static struct ad_req *req_new(struct ad_session *s, enum msg_type type, uint64_t theirs,
			      uint32_t timeout_ms)
{
	for (uint32_t i = 0; i < AD_REQS_MAX; i++) {
		struct ad_req *r = &s->req[i];

		if (r->ours)
			continue;
		*r = (struct ad_req){
			.ours = ++s->agent->next_req,
			.theirs = theirs,
			.type = type,
			.deadline = loop_now() + mono_ms((uint64_t)timeout_ms + ANSWER_SLACK_MS),
		};
		return r;
	}
	fail(s, type, theirs, TALLY_EAGAIN, "too many questions at once");
	return NULL;
}

static void req_free(struct ad_req *r)
{
	free(r->ids);
	free(r->wire);
	*r = (struct ad_req){ 0 };
}

static void req_fail(struct ad_session *s, struct ad_req *r, int code, const char *text)
{
	char more[ERR_TEXT_MAX + 1];

	if (code == TALLY_ETIMEDOUT)
		text = ad_gpu_remark(s->job, text, more);
	fail(s, r->type, r->theirs, code, text);
	req_free(r);
}

static void reqs_fail(struct ad_session *s, int code, const char *text)
{
	for (uint32_t i = 0; i < AD_REQS_MAX; i++)
		if (s->req[i].ours)
			req_fail(s, &s->req[i], code, text);
}

/* ---- attaching ---- */

static void ask_join(struct ad_session *s)
{
	const struct msg m = {
		.type = MSG_RANK_JOIN,
		.rank_join = {
			.req = s->req[0].ours,
			.job = s->job_name,
			.world = s->world,
			.rank = s->rank,
			.pid = s->pid,
			.uid = s->uid,
			.timeout_ms = s->timeout_ms,
			.chunk_bytes = s->chunk_bytes,
			.on_loss = s->on_loss,
			.back = ad_back_job(s),
		},
	};

	(void)ad_tell_scheduler(s->agent, &m);	/* down: asked again when it is up */
}

static void on_attach(struct ad_session *s, const struct msg_attach *m)
{
	struct err e;

	if (s->state != SESSION_NEW) {
		reply(s, m->req, TALLY_EPROTO, "attached already");
		return;
	}
	if (!ad_admit(s, m))
		return;
	memcpy(s->job_name, m->job, strlen(m->job) + 1);
	s->world = m->world;
	s->rank = m->rank;
	s->chunk_bytes = m->chunk_bytes;
	s->on_loss = m->on_loss;
	s->timeout_ms = m->timeout_ms ? m->timeout_ms : ATTACH_TIMEOUT_MS;
	if (ad_back_attach(s, m, &e))
		return;
	if (!req_new(s, MSG_RANK_JOIN, m->req, s->timeout_ms))
		return;
	s->state = SESSION_JOINING;
	ask_join(s);
}

static void join_failed(struct ad_session *s, uint64_t theirs, int code, const char *text)
{
	char more[ERR_TEXT_MAX + 1];

	s->state = SESSION_OVER;
	reply(s, theirs, code, ad_scheduler_remark(s->agent, code, text, more));
	ctl_close(s->ctl);		/* which tells the others */
}

/* The job is up and the scheduler has said yes. */
static void joined(struct ad_session *s, uint64_t theirs)
{
	const struct ad_machine *me = &s->job->machines[s->job->me];
	struct err e;
	uint32_t local = 0;

	while (local < me->nranks && me->ranks[local] != s->rank)
		local++;
	if (local == me->nranks) {
		join_failed(s, theirs, TALLY_EINTERNAL, "the scheduler placed this rank elsewhere");
		return;
	}
	if (s->job->code && s->job->left[local].gone) {		/* just now, with all others here */
		join_failed(s, theirs, s->job->code, s->job->text);
		return;
	}
	if (ad_join_taken(s, s->job, local)) {
		err_set(&e, TALLY_EEXIST, "rank %u of job '%.128s' is another process of machine "
			"%.128s already; start each with a rank, or a job, of its own", s->rank,
			s->job->name, s->agent->name);
		goto failed;
	}
	s->local = local;
	s->placed = true;
	if (ad_ring_open(s, &e))
		goto failed;
	s->ring->local = local;
	s->ring_busy = true;		/* engine 0 is told of it from here on */
	if (s->back && ad_back_inputs(s, &e))
		goto failed;
	s->unready = s->job->grown_at && !s->back;
	s->attach_req = theirs;
	s->state = SESSION_OPENING;
	ad_engine_tell(s->agent->engine[0], AD_RING_ADD, &s, sizeof(s));
	return;
failed:
	join_failed(s, theirs, e.code, e.text);
}

static int show_results(struct ad_session *s, struct err *e)
{
	list_for_each(&s->job->results, l) {
		struct ad_slab *slab = list_entry(l, struct ad_slab, link);
		struct msg m = { .type = MSG_SLAB, .slab = {
			.id = slab->index, .kind = SLAB_RESULT, .bytes = slab->mem.bytes,
		} };
		int fd, rc;

		if (slab->index < s->results_shown)
			continue;
		rc = slab_readonly_fd(&slab->mem, &fd, e);
		if (rc)
			return rc;
		rc = ad_session_send(s, &m, &fd, 1);
		close(fd);
		if (rc)			/* what it had before would be taken for this one */
			return err_set(e, rc, "result slab %u could not be sent", slab->index);
		s->results_shown = slab->index + 1;
	}
	return 0;
}

/* Answers ATTACH. A process that has come back has its lock file already. */
static void send_attached(struct ad_session *s, const struct msg *m)
{
	bool may_return = s->agent->grace_ms && !s->back;
	int alive = may_return ? ad_alive_file(s->agent, s->job->id, s->rank) : -1;
	const int fds[4] = { s->ring_mem.fd, s->bell[0], s->bell[3], alive };

	if (ad_session_send(s, m, fds, alive < 0 ? 3 : 4))
		ctl_close(s->ctl);		/* else it would wait for ever */
	if (alive >= 0)
		close(alive);
}

void ad_session_ring_ready(struct ad_session *s)
{
	const struct msg m = {
		.type = MSG_ATTACHED,
		.attached = {
			.req = s->attach_req,
			.job = s->job->id,
			.world = s->world,
			.rank = s->rank,
			.local_rank = s->ring->local,
			.local_size = s->job->nlocal,
			.machines = s->job->n,
			.chunk_bytes = s->job->chunk_bytes,
			.agent = s->agent->name,
			.barrier = s->job->grown_at,
			.grace_ms = s->agent->grace_ms, .devices = s->agent->opt.dma_buf,
		},
	};
	struct err e;

	if (s->state != SESSION_OPENING)
		return;
	/* It submits to tensors that it knows; a job that cannot go on may not have them. */
	s->waits = s->back && (s->job->state == JOB_STARTING ||
			       (s->job->state == JOB_RUNNING &&
				(s->job->code || !list_empty(&s->job->batches))));
	if (s->waits)
		return;
	s->state = SESSION_OPEN;
	if (s->job->state == JOB_STOPPING)
		reply(s, s->attach_req, s->job->code, s->job->text);
	else if (s->back && show_results(s, &e))
		join_failed(s, s->attach_req, e.code, e.text);
	else
		send_attached(s, &m);
	ad_back_free(s);
}

/* ---- tensors ---- */

static bool all_ready(struct ad_job *j, const struct ad_req *r)
{
	for (uint32_t i = 0; i < r->nids; i++) {
		const struct ad_tensor *t = ad_tensor_find(j, r->ids[i]);

		if (!t || !t->ready)
			return false;
	}
	return true;
}

static void declared(struct ad_session *s, struct ad_req *r)
{
	struct msg_declared_tensor *rows = calloc(r->nids + 1, sizeof(*rows));
	struct msg m = { .type = MSG_DECLARED };
	struct err e;

	if (!rows || show_results(s, &e)) {
		req_fail(s, r, rows ? e.code : TALLY_ENOMEM, rows ? e.text : "out of memory");
		free(rows);
		return;
	}
	for (uint32_t i = 0; i < r->nids; i++) {
		const struct ad_tensor *t = ad_tensor_find(s->job, r->ids[i]);

		rows[i].id = t->id;
		rows[i].slab = t->result->index;
		rows[i].round = t->round;
		for (int k = 0; k < 2; k++)
			rows[i].off[k] = (uint64_t)t->result_page[k] * PAGE_BYTES;
	}
	m.declared = (struct msg_declared){
		.req = r->theirs, .text = "", .ntensors = r->nids, .tensors = rows,
	};
	(void)ad_session_send(s, &m, NULL, 0);
	free(rows);
	req_free(r);
	s->unready = false;
}

void ad_session_tensors_ready(struct ad_job *j)
{
	list_for_each(&j->agent->sessions, l) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		for (uint32_t i = 0; s->job == j && i < AD_REQS_MAX; i++)
			if (s->req[i].ids && all_ready(j, &s->req[i]))
				declared(s, &s->req[i]);
		if (s->job == j && s->waits)
			ad_session_ring_ready(s);
	}
}

/*
 * Keeps a request as bytes, to repeat it to a scheduler that has lost it; without memory it is
 * not repeated.
 */
static void req_keep(struct ad_req *r, const struct msg *m)
{
	uint32_t bytes;

	if (msg_encode_size(m, &bytes, NULL))
		return;
	r->wire = malloc(bytes);
	if (r->wire && msg_encode(m, r->wire, bytes, NULL)) {
		free(r->wire);
		r->wire = NULL;
	}
}

/* On a new connection; its answer would have come by now if it was waiting there. */
static void ask_again(struct agent *a, struct ad_req *r, mono_t now)
{
	mono_t left = r->deadline - now - mono_ms(ANSWER_SLACK_MS);
	struct msg_mem mem = { 0 };
	struct msg m;
	uint32_t bytes, type;

	if (msg_prefix_decode(r->wire, &bytes, &type, NULL))
		return;
	mem.size = msg_mem_need(bytes);
	mem.base = malloc(mem.size);
	if (mem.base && !msg_decode(type, r->wire + MSG_PREFIX_BYTES, bytes, &mem, &m, NULL)) {
		ad_set_timeout(&m, left > 0 ? (uint32_t)(left / NS_PER_MS) : 0);
		if (!ad_tell_scheduler(a, &m))
			r->asked = a->registrations;
	}
	free(mem.base);
}

/* Forwards a question; the process's own numbers are replaced by ours. */
static void forward(struct ad_session *s, const struct msg *m)
{
	struct msg copy = *m;
	struct ad_req *r;

	if (m->type == MSG_DECLARE) {
		r = req_new(s, m->type, m->declare.req, m->declare.timeout_ms);
		copy.declare.req = r ? r->ours : 0;
		copy.declare.job = s->job->id;
		copy.declare.rank = s->rank;
	} else if (m->type == MSG_UNDECLARE) {
		r = req_new(s, m->type, m->ids.req, m->ids.timeout_ms);
		copy.ids.req = r ? r->ours : 0;
		copy.ids.job = s->job->id;
		copy.ids.rank = s->rank;
	} else {
		r = req_new(s, m->type, m->barrier.req, m->barrier.timeout_ms);
		copy.barrier.req = r ? r->ours : 0;
		copy.barrier.job = s->job->id;
		copy.barrier.rank = s->rank;
		if (r)
			r->generation = m->barrier.generation;
	}
	if (!r)
		return;
	req_keep(r, &copy);
	if (!ad_tell_scheduler(s->agent, &copy))
		r->asked = s->agent->registrations;
}

/* The scheduler says yes, but the job is not here: it has been refused, or has ended. */
static void joined_nothing(struct ad_session *s, uint64_t theirs, uint32_t job)
{
	const struct agent *a = s->agent;

	if (s->job && s->job->code)
		join_failed(s, theirs, s->job->code, s->job->text);
	else if (job && a->refused_job == job)
		join_failed(s, theirs, a->refused.code, a->refused.text);
	else
		join_failed(s, theirs, TALLY_ESHUTDOWN, "the job is over");
}

static void take_answer(struct ad_session *s, struct ad_req *r, const struct msg_reply *m)
{
	if (r->type == MSG_RANK_JOIN) {
		uint64_t theirs = r->theirs;

		req_free(r);
		if (!m->code && m->nids)
			ad_back_take_in(s->agent, m->ids[0]);
		s->job = m->code || !m->nids ? NULL : ad_job_find(s->agent, m->ids[0]);
		if (s->job && s->job->state != JOB_STOPPING) {
			if (!s->back)
				s->job->barriers = MAX(s->job->barriers, s->job->grown_at);
			joined(s, theirs);
			return;
		}
		ad_back_free(s);
		if (m->code)
			join_failed(s, theirs, m->code, m->text);
		else
			joined_nothing(s, theirs, m->nids ? m->ids[0] : 0);
		return;
	}
	if (m->code) {
		req_fail(s, r, m->code, m->text);
	} else if (r->type != MSG_DECLARE) {
		s->job->barriers = MAX(s->job->barriers, r->generation);	/* 0: no barrier */
		reply(s, r->theirs, 0, "");
		req_free(r);
	} else {
		free(r->ids);		/* of a scheduler that had to be asked again */
		r->ids = calloc(m->nids + 1, sizeof(*r->ids));
		if (!r->ids) {
			req_fail(s, r, TALLY_ENOMEM, "out of memory");
			return;
		}
		r->nids = m->nids;
		if (m->nids)
			memcpy(r->ids, m->ids, m->nids * sizeof(*r->ids));
		if (all_ready(s->job, r))
			declared(s, r);
	}
}

void ad_session_reply(struct agent *a, const struct msg_reply *m)
{
	list_for_each_safe(&a->sessions, l, next) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		for (uint32_t i = 0; i < AD_REQS_MAX && m->req; i++) {	/* 0: to nobody */
			if (s->req[i].ours != m->req)
				continue;
			take_answer(s, &s->req[i], m);
			return;
		}
	}
	log_debug("answer %llu comes too late", (unsigned long long)m->req);
}

/* ---- the end ---- */

/*
 * Reports that a rank leaves. One that came late and could not take part was no member whose
 * leaving would end the job. req: as in struct ad_left. True: the scheduler answers.
 */
static bool tell_leave(struct ad_session *s, uint64_t req)
{
	const struct ad_left left = {
		.code = !s->detached || s->unready ? TALLY_EWORKERLOST : 0,
		.pid = s->pid,
		.why = s->cut,
		.req = req,
	};

	return s->placed && ad_job_left(s->job, s->local, &left);
}

static void session_end(struct ad_session *s)
{
	(void)tell_leave(s, 0);
	s->state = SESSION_OVER;
	for (uint32_t i = 0; i < AD_REQS_MAX; i++)
		req_free(&s->req[i]);
	if (s->ring && s->ring_busy) {
		s->ring_busy = false;
		ad_engine_tell(s->agent->engine[0], AD_RING_DEL, &s, sizeof(s));
	} else {
		session_free(s);
	}
}

void ad_session_ring_gone(struct ad_session *s)
{
	session_free(s);
}

struct ad_session *ad_session_of(struct ad_job *j)
{
	list_for_each(&j->agent->sessions, l) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->job == j)
			return s;
	}
	return NULL;
}

/* Frees a session; what it posted stays, as the job's. */
static void session_free(struct ad_session *s)
{
	struct ad_job *j = s->job;

	for (int i = 0; i < 4; i++)
		if (s->bell[i] >= 0)
			close(s->bell[i]);
	if (s->process >= 0)
		close(s->process);
	slab_free(&s->ring_mem);
	free(s->ring);
	free(s->gpu);
	ad_back_free(s);
	list_del(&s->link);
	free(s);
	if (j && !j->freed)
		ad_arenas_tidy(j);
	else if (j && !ad_session_of(j))
		ad_job_forget(j);
}

void ad_session_broken(struct ad_session *s, const struct err *why)
{
	log_warn("%s uid %u of job '%s' cut off, reason %s", s->called, s->uid, s->job_name,
		 why->text);
	if (s->ctl)
		ctl_close(s->ctl);
}

void ad_session_job_over(struct ad_job *j)
{
	list_for_each(&j->agent->sessions, l) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->job == j)
			reqs_fail(s, j->code, j->text);
		if (s->job == j && s->waits)
			ad_session_ring_ready(s);
	}
	ad_gpu_over(j);
}

void ad_sessions_fail(struct agent *a, int code, const char *text)
{
	list_for_each(&a->sessions, l)
		reqs_fail(list_entry(l, struct ad_session, link), code, text);
}

void ad_session_scheduler_up(struct agent *a)
{
	list_for_each(&a->sessions, l) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->state == SESSION_JOINING)
			ask_join(s);
	}
}

/*
 * Its children may hold the socket for long.  What it wrote is read first: a tick later.  One
 * that has heard that it does not come in has nothing more to ask.
 */
static void look_after(struct ad_session *s, mono_t now)
{
	struct pollfd p = { .fd = s->process, .events = POLLIN };

	if ((s->died || s->state == SESSION_OVER || ad_back_late(s, now)) && s->ctl)
		ctl_close(s->ctl);
	else
		s->died = poll(&p, 1, 0) > 0;
}

void ad_sessions_tick(struct agent *a, mono_t now)
{
	struct err e;

	list_for_each_safe(&a->sessions, l, next) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		ad_gpu_tick(s, now);
		for (uint32_t i = 0; i < AD_REQS_MAX; i++) {
			struct ad_req *r = &s->req[i];

			/* Its answer has come, and its tensors are on their way behind that. */
			if (!r->ours || (r->ids && r->asked == a->registrations))
				continue;
			if (now < r->deadline) {
				if (r->wire && r->asked != a->registrations &&
				    now - a->registered > mono_ms(ASK_AGAIN_MS))
					ask_again(a, r, now);
				continue;
			}
			if (r->type == MSG_RANK_JOIN) {
				s->state = SESSION_OVER;
				ad_join_give_up(s);
			}
			ad_scheduler_late(a, &e);
			req_fail(s, r, e.code, e.text);
		}
		look_after(s, now);
	}
}

/* ---- the socket ---- */

/*
 * Answered when the scheduler knows it: the next job of that name may be asked for by way of
 * another agent, and waits for what the scheduler knows to be leaving.
 */
static void on_detach(struct ad_session *s, uint64_t req)
{
	struct ad_req *r;

	s->detached = true;
	r = req_new(s, MSG_DETACH, req, DETACH_MS);
	if (!tell_leave(s, r ? r->ours : 0) && r)
		req_fail(s, r, 0, "");
}

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct ad_session *s = ctx;
	bool open = s->state == SESSION_OPEN;

	(void)c;
	if (open && s->job->state == JOB_STOPPING && m->type != MSG_DETACH) {
		if (m->type == MSG_DECLARE)
			declared_error(s, m->declare.req, s->job->code, s->job->text);
		else if (m->type == MSG_UNDECLARE)
			reply(s, m->ids.req, s->job->code, s->job->text);
		else if (m->type == MSG_BARRIER)
			reply(s, m->barrier.req, s->job->code, s->job->text);
		else if (m->type == MSG_SLAB_WANT || m->type == MSG_SLAB ||
			 (m->type == MSG_SLAB_MAPPED && m->slab.kind == SLAB_INPUT))
			reply(s, m->slab.req, s->job->code, s->job->text);
		else if (m->type == MSG_GPU_JOIN)
			reply(s, m->gpu_join.req, s->job->code, s->job->text);
		return;
	}
	if (m->type == MSG_SLAB && s->state == SESSION_NEW) {
		ad_back_slab(s, &m->slab);
	} else if (m->type == MSG_DECLARED && s->state == SESSION_NEW) {
		ad_back_rows(s, &m->declared);
	} else if (m->type == MSG_ATTACH) {
		on_attach(s, &m->attach);
	} else if (m->type == MSG_WAITS && s->state != SESSION_NEW) {
		ad_waits_asked(s, m->reply.req);
	} else if (m->type == MSG_DETACH) {
		on_detach(s, m->reply.req);
	} else if (open && m->type == MSG_SLAB_WANT) {
		ad_arena_want(s, &m->slab);
	} else if (open && m->type == MSG_SLAB && m->slab.kind == SLAB_DEVICE) {
		ad_arena_import(s, &m->slab);
	} else if (open && m->type == MSG_GPU_JOIN) {
		ad_gpu_join(s, &m->gpu_join);
	} else if (open && m->type == MSG_SLAB_MAPPED) {
		ad_arena_mapped(s, &m->slab);
	} else if (open && (m->type == MSG_DECLARE || m->type == MSG_UNDECLARE ||
			    m->type == MSG_BARRIER)) {
		forward(s, m);
	} else {
		(void)ctl_reply(s->ctl, 0, TALLY_EPROTO, "message %s makes no sense here",
				msg_type_name(m->type));
		ctl_close(s->ctl);
	}
}

static void on_closed(void *ctx, struct ctl *c, const struct err *e)
{
	struct ad_session *s = ctx;

	(void)c;
	s->ctl = NULL;
	if (s->agent->stopping)
		return;
	if (e->code == TALLY_EQUOTA)
		s->cut = "asks and does not read the answers, and was cut off";
	if (s->job && !s->detached && s->job->state != JOB_STOPPING)
		log_warn("%s (rank %u of job '%s') is gone%s%s", s->called, s->rank,
			 s->job_name, e->code ? ", reason " : "", e->text);
	else if (!s->job && e->code)
		log_warn("%s uid %u cut off, reason %s", s->called, s->uid, e->text);
	if (s->state == SESSION_JOINING)
		ad_join_give_up(s);
	session_end(s);
}

static const struct ctl_cb callbacks = {
	.msg = on_msg,
	.closed = on_closed,
};

static void on_accept(void *ctx, int fd)
{
	struct agent *a = ctx;
	struct ad_session *s;
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	struct err e;

	s = calloc(1, sizeof(*s));
	if (!s || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
		log_warn("process refused, reason %s", s ? "no credentials" : "out of memory");
		free(s);
		stream_refuse(a->loop, fd);
		return;
	}
	s->agent = a;
	s->serial = ++a->next_session;
	s->pid = (uint32_t)cred.pid;
	if (s->pid)
		snprintf(s->called, sizeof(s->called), "process %u", s->pid);
	else		/* the kernel tells no number of one that this namespace does not have */
		snprintf(s->called, sizeof(s->called), "a process of another PID namespace");
	s->uid = cred.uid;
	s->process = cred.pid > 0 ? (int)syscall(SYS_pidfd_open, cred.pid, 0) : -1;
	s->ring_mem.fd = -1;
	for (int i = 0; i < 4; i++)
		s->bell[i] = -1;
	if (ctl_adopt(a->loop, &s->ctl, fd, &callbacks, s, &e)) {
		log_warn("%s refused, reason %s", s->called, e.text);
		stream_refuse(a->loop, fd);
		if (s->process >= 0)
			close(s->process);
		free(s);
		return;
	}
	ctl_crowd_join(&a->crowd, s->ctl);
	ctl_set_bounded(s->ctl, true);
	list_add(&a->sessions, &s->link);
}

int ad_sessions_start(struct agent *a, struct err *e)
{
	int rc;

	ctl_crowd_init(&a->crowd, STRANGERS_MAX);
	rc = listener_unix(a->loop, &a->listener, a->opt.socket, 0660, on_accept, a, e);

	return rc ? err_wrap(e, "--socket") : 0;
}

void ad_sessions_stop(struct agent *a)
{
	a->stopping = true;
	if (a->listener)
		listener_close(a->listener);
	list_for_each_safe(&a->sessions, l, next) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->ctl)
			ctl_close(s->ctl);
		for (uint32_t i = 0; i < AD_REQS_MAX; i++)
			req_free(&s->req[i]);
	}
}

void ad_sessions_free(struct agent *a)
{
	list_for_each_safe(&a->sessions, l, next)
		session_free(list_entry(l, struct ad_session, link));
}
