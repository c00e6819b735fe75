// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler's side of a server: registers, answers for jobs and log entries
 * once the engines have them, tells numbers each second.  A lost scheduler stops
 * nothing that runs; ctl_node comes back to it.
 *
 * An answer may be lost with a connection, and a restarted scheduler may not
 * know a job that no agent holds any more.  So each job is told again after each
 * registration and every TELL_JOBS_MS, with how much of its log is here and what was
 * answered last; what the scheduler does not know it ends.
 * A scheduler of another cluster knows none of them, and is joined when nobody trains here.
 *
 * A server that is told to end asks to be drained first, and ends when it has no jobs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/rt/log.h"
#include "common/rt/notify.h"
#include "server/server.h"

#define TELL_JOBS_MS	10000u
#define LEAVE_MS	10000u

static void answer(struct server *s, enum msg_type type, uint32_t job, uint64_t seq,
		   const struct err *e)
{
	struct sv_job *j = sv_job_find(s, job);
	struct msg m = {
		.type = type,
		.ready = {
			.job = job, .seq = seq, .code = e ? e->code : 0,
			.text = e ? e->text : "",
			.log = j ? MAX(j->seq, j->told) : 0,
			.epoch = j ? j->place->epoch : 0,
		},
	};

	(void)ctl_node_send(s->node, &m, NULL);	/* if it is gone, it will ask again */
}

static void refuse(struct server *s, enum msg_type type, uint32_t job, uint64_t seq,
		   const struct err *e)
{
	log_warn("job %u refused, reason %s", job, e->text);
	answer(s, type, job, seq, e);
}

/* Of a log entry; kept, to be told again. */
static void answer_entry(struct server *s, struct sv_job *j, enum msg_type type, uint64_t seq,
			 const struct err *e)
{
	j->ready_type = type;
	j->ready_seq = seq;
	j->ready_err = e ? *e : (struct err){ 0 };
	if (e)
		refuse(s, type, j->id, seq, e);
	else
		answer(s, type, j->id, seq, NULL);
}

/* The scheduler takes us for lost, and we come back as somebody new. */
static void leave_job(struct server *s, uint32_t job, const struct err *e)
{
	sv_job_down(s, job);
	refuse(s, MSG_JOB_READY, job, 0, e);
}

/* The connection is another one by now: nobody knows that we lack the rest of the log. */
static void leave_half_told(struct server *s)
{
	struct err e;

	list_for_each(&s->jobs, l) {
		const struct sv_job *j = list_entry(l, struct sv_job, link);

		if (j->stopping || j->seq >= j->told)
			continue;
		err_set(&e, TALLY_EBUSY, "server %s was cut off while it was told of job %u",
			s->name, j->id);
		leave_job(s, j->id, &e);
	}
}

static void tell_jobs(void *ctx)
{
	struct server *s = ctx;

	list_for_each(&s->jobs, l) {
		const struct sv_job *j = list_entry(l, struct sv_job, link);

		if (j->starting || j->stopping)
			continue;
		answer(s, MSG_JOB_READY, j->id, j->epoch, NULL);
		if (j->ready_type)
			answer(s, j->ready_type, j->id, j->ready_seq,
			       j->ready_err.code ? &j->ready_err : NULL);
	}
}

static void end_jobs(struct server *s)
{
	list_for_each(&s->jobs, l)
		sv_job_down(s, list_entry(l, struct sv_job, link)->id);
}

static void check_cluster(struct server *s, const uint8_t cluster[ID_BYTES])
{
	static const uint8_t none[ID_BYTES];

	if (memcmp(s->cluster, none, ID_BYTES) && memcmp(s->cluster, cluster, ID_BYTES)) {
		log_warn("scheduler %s is of another cluster, which this server joins",
			 s->opt.daemon.scheduler);
		end_jobs(s);		/* nobody trains in them */
	}
	memcpy(s->cluster, cluster, ID_BYTES);
}

/* Jobs and links name servers by number: with another one we are none of theirs. */
static void take_number(struct server *s, uint32_t node)
{
	if (s->my_node && s->my_node != node) {
		log_warn("server node %u was taken for lost, all jobs end", s->my_node);
		end_jobs(s);
		for (uint32_t i = 0; i < s->nengines; i++)
			sv_engine_tell(s->engine[i], SV_CUT, NULL, 0);
	}
	s->my_node = node;
}

static void on_up(void *ctx, const struct msg_welcome *w)
{
	struct server *s = ctl_daemon_owner(ctx);

	check_cluster(s, w->cluster);
	take_number(s, w->node);
	ctl_daemon_registered(ctx, s->node, w);
	notify("STATUS=registered");
	leave_half_told(s);
	tell_jobs(s);
}

/*
 * EBUSY: the log goes another way than the one we took.  What a latecomer is told all the
 * others have, and nobody forgets it because he cannot.
 */
static void cannot(struct server *s, enum msg_type type, uint32_t job, uint64_t seq,
		   const struct err *e)
{
	struct sv_job *j = sv_job_find(s, job);

	if (e->code == TALLY_EBUSY || (type == MSG_TENSORS_READY && j && seq <= j->told))
		leave_job(s, job, e);
	else if (j)
		answer_entry(s, j, type, seq, e);
	else
		answer(s, type, job, seq, e);	/* one that was refused, with all of its log */
}

static void take_epoch(struct server *s, const struct msg *m)
{
	struct err e;

	if (sv_epoch(s, &m->epoch, &e))
		cannot(s, MSG_EPOCH_READY, m->epoch.job, m->epoch.epoch, &e);
}

/* ---- the end ---- */

static void leave_now(struct server *s, const char *why)
{
	if (!s->daemon.leaving)
		return;
	log_info("server %s ends, %s", s->name, why);
	daemon_end(&s->daemon);
}

static void on_leave_by(void *ctx)
{
	leave_now(ctx, "though agents have not gone over yet");
}

bool sv_leave(void *owner)
{
	struct server *s = owner;
	struct msg m = { .type = MSG_DRAIN, .drain = { .req = 1, .name = s->name } };

	if (list_empty(&s->jobs) || !s->node || ctl_node_send(s->node, &m, NULL) ||
	    loop_timer_start(s->loop, &s->leave_by, LEAVE_MS, LEAVE_MS, on_leave_by, s))
		return false;
	log_info("server %s gives its jobs to others first, for %u s at most; a second signal "
		 "ends it at once", s->name, LEAVE_MS / 1000);
	return true;
}

static void on_down(void *ctx, const struct err *why)
{
	ctl_daemon_down(ctx, why);
	leave_now(ctl_daemon_owner(ctx), "there is nobody to take its jobs away");
}

/* ---- messages ---- */

/*
 * Whether a JOB_UP was read before, and not answered before the connection broke; an answer may
 * be on its way.
 */
static bool is_told_again(struct server *s, const struct msg_job_up *m)
{
	const struct sv_job *j = sv_job_find(s, m->job);

	if (!j || j->stopping || j->epoch != m->epoch)
		return false;
	if (!j->starting)
		answer(s, MSG_JOB_READY, j->id, j->epoch, NULL);
	return true;
}

/*
 * JOB_UP. Of a job that is here already the scheduler knows nothing when it sends this anew: it
 * is asked again.
 */
static void job_up(struct server *s, const struct msg_job_up *m)
{
	struct err e;

	if (is_told_again(s, m))
		return;
	sv_job_down(s, m->job);
	if (sv_job_up(s, m, &e))
		refuse(s, MSG_JOB_READY, m->job, m->epoch, &e);
}

static void on_msg(void *ctx, const struct msg *m)
{
	struct server *s = ctl_daemon_owner(ctx);
	struct err e;

	switch (m->type) {
	case MSG_JOB_UP:
		job_up(s, &m->job_up);
		break;
	case MSG_TENSORS:
		if (sv_tensors(s, &m->tensors, &e))
			cannot(s, MSG_TENSORS_READY, m->tensors.job, m->tensors.seq, &e);
		break;
	case MSG_FORGET:
		if (sv_forget(s, &m->ids, &e))
			leave_job(s, m->ids.job, &e);
		break;
	case MSG_EPOCH:
		take_epoch(s, m);
		break;
	case MSG_EPOCH_READY:
		sv_epoch_settled(s, &m->ready);
		break;
	case MSG_JOB_DOWN:
		log_info("job %u ends here, %s", m->job_down.job, m->job_down.text);
		sv_job_down(s, m->job_down.job);
		break;
	case MSG_HEARD:
		for (uint32_t i = 0; i < s->nengines; i++)
			sv_engine_tell(s->engine[i], SV_HEARD, &m->heard.node,
				       sizeof(m->heard.node));
		break;
	case MSG_AGENT_KEYS:
		sv_agents_keys(s, &m->agent_keys);
		break;
	case MSG_DRAIN:			/* ctl_node keeps it, for a scheduler that does not know */
		log_info("server %s is %s", s->name, m->drain.undo ? "used again" : "to drain");
		break;
	case MSG_REPLY:
		log_warn("scheduler says %s", m->reply.text);
		if (m->reply.code == TALLY_ENOSERVER)
			leave_now(s, "nobody can take its jobs over");
		break;
	default:
		log_debug("message %s ignored", msg_type_name(m->type));
	}
}

/* Of an engine, on average; 0: the kernel does not say. */
static uint64_t cpu_us(const struct server *s)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < s->nengines; i++)
		sum += engine_cpu_us(s->engine[i]->thread);
	return sum / s->nengines;
}

static void on_heartbeat(void *ctx, struct msg_heartbeat *hb)
{
	struct server *s = ctl_daemon_owner(ctx);
	uint64_t flight = sv_card_flight(s);

	for (uint32_t i = 0; i < s->nengines; i++)
		ctl_stats_add(hb, &s->engine[i]->stats);
	hb->busy_us /= s->nengines;
	hb->cpu_us = cpu_us(s);
	hb->note = s->note;
	hb->flight_bytes = flight == UINT64_MAX ? 0 : flight * s->nengines;
	hb->memory_used_bytes = s->memory_used;
	sv_net_fill(s, hb);
}

/* Agents keep links for as long as they have jobs. */
static bool trains(void *ctx)
{
	const struct server *s = ctl_daemon_owner(ctx);
	uint32_t links = 0;

	for (uint32_t i = 0; i < s->nengines; i++)
		links += s->engine[i]->stats.links;
	return links && !list_empty(&s->jobs);
}

static const struct ctl_node_cb callbacks = {
	.up = on_up,
	.msg = on_msg,
	.down = on_down,
	.refused = ctl_daemon_refused,
	.heartbeat = on_heartbeat,
	.secret = ctl_daemon_secret,
	.trains = trains,
};

/* Text of the memory that the job may use here at most: the share's percentage is the plan's. */
static const char *budget(const struct sv_job *j, char text[64])
{
	const struct place *p = j->place;
	double share = p->weight_sum ? 100.0 * p->server[j->me].weight / (double)p->weight_sum : 0;
	char fixed[32];

	snprintf(text, 64, "%s and %.3f %% of the tensors",
		 fmt_bytes(fixed, sizeof(fixed), j->windows_bytes + SERVER_OWN_BYTES), share);
	return text;
}

static void log_budget(const struct sv_job *j)
{
	char windows[32], text[64];

	log_info("job %u up, machines %u, segment %u KiB, windows %s, memory at most %s", j->id,
		 j->n, j->seg_bytes >> 10, fmt_bytes(windows, sizeof(windows), j->windows_bytes),
		 budget(j, text));
}

static void log_new_share(const struct sv_job *j)
{
	char text[64];

	log_info("job %u has new shares, memory at most %s from now on", j->id, budget(j, text));
}

static void job_ready(struct server *s, struct sv_job *j)
{
	if (--j->starting || j->stopping)
		return;
	log_budget(j);
	answer(s, MSG_JOB_READY, j->id, j->epoch, NULL);
}

void sv_on_mail(void *owner, const struct mail *m)
{
	struct server *s = owner;
	struct msg heard = { .type = MSG_HEARD };
	void *p;

	if (m->type == SV_HEARD) {
		memcpy(&heard.heard.node, m->body, sizeof(heard.heard.node));
		(void)ctl_node_send(s->node, &heard, NULL);
		return;
	}
	memcpy(&p, m->body, sizeof(p));
	if (m->type == SV_NET) {
		struct trouble_news *n = p;

		sv_agent_name(s, n->node, n->peer, sizeof(n->peer));
		sv_net_take(s, n);
	} else if (m->type == SV_JOB_READY) {
		job_ready(s, p);
	} else if (m->type == SV_BATCH_READY) {
		struct sv_batch *b = p;

		if (--b->engines_left)
			return;
		if (b->kind == BATCH_EPOCH && !b->job->stopping)
			log_new_share(b->job);
		if ((b->kind == BATCH_ADD || b->kind == BATCH_EPOCH) && !b->job->stopping)
			answer_entry(s, b->job, b->kind == BATCH_ADD ? MSG_TENSORS_READY :
				     MSG_EPOCH_READY, b->seq, NULL);
		sv_batch_free(s, b);
	} else if (m->type == SV_JOB_FREE) {
		struct sv_job *j = p;

		if (--j->engines_left)
			return;
		sv_agents_del(s, j);
		(void)ctl_node_send(s->node, &(struct msg){ .type = MSG_JOB_DOWN, .job_down = {
			.job = j->id, .text = "" } }, NULL);
		sv_job_free(s, j);
		if (list_empty(&s->jobs))
			leave_now(s, "it has no jobs any more");
	}
}

int sv_io_start(struct server *s, struct err *e)
{
	struct msg_hello hello = {
		.kind = NODE_SERVER,
		.naddrs = s->naddrs,
		.addrs = s->addr,
		.shm_path = s->shm_path,
		.adder_bytes_per_s = s->adder_bytes_per_s,
		.memory_bytes = s->memory_bytes,
	};
	int rc = loop_timer_start(s->loop, &s->tick, TELL_JOBS_MS, TELL_JOBS_MS, tell_jobs, s);

	if (rc)
		return err_set(e, rc, "out of memory");
	return ctl_daemon_start(&s->daemon, &s->node, &hello, &callbacks, e);
}

void sv_io_stop(struct server *s)
{
	if (s->node)
		ctl_node_stop(s->node);
	s->node = NULL;
	loop_timer_stop(s->tick);
	s->tick = NULL;
	loop_timer_stop(s->leave_by);
	s->leave_by = NULL;
}
