// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler's side of an agent: registers, takes jobs and log entries in,
 * passes answers on, and after an outage says what runs here.  Training does not
 * need the scheduler; joining, declaring and barriers do.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/parse.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/rt/notify.h"
#include "common/rt/route.h"
#include "worker-agent/agent.h"
#include "worker-agent/agent_net.h"

/* A round may end without a rank that left only so long: what is known of it is older by 3 s. */
#define LEFT_GRACE_MS	4000u

void ad_set_timeout(struct msg *m, uint32_t timeout_ms)
{
	if (m->type == MSG_DECLARE)
		m->declare.timeout_ms = timeout_ms;
	else if (m->type == MSG_UNDECLARE)
		m->ids.timeout_ms = timeout_ms;
	else
		m->barrier.timeout_ms = timeout_ms;
}

int ad_tell_scheduler(struct agent *a, const struct msg *m)
{
	struct err e;
	int rc = ctl_node_send(a->node, m, &e);

	if (rc && rc != TALLY_ESCHED)
		log_warn("message %s not sent, reason %s", msg_type_name(m->type), e.text);
	return rc;
}

static int tell_failed(struct ad_job *j)
{
	const struct msg m = {
		.type = MSG_RANK_LEAVE,
		.rank_leave = {
			.job = j->id,
			.rank = j->machines[j->me].ranks[j->live ? __builtin_ctzll(j->live) : 0],
			.code = j->code,
			.text = j->text,
		},
	};

	return ad_tell_scheduler(j->agent, &m);
}

/*
 * Everybody hears it from the scheduler.  One that goes away just now may not have read it, and
 * hears it again when it is back; a job of this machine alone does not wait for that.
 */
void ad_job_fail(struct ad_job *j, const struct err *why)
{
	if (j->state == JOB_STOPPING)
		return;
	if (!j->code) {
		j->code = why->code;
		snprintf(j->text, sizeof(j->text), "%s", why->text);
	}
	if (tell_failed(j) && j->n == 1)
		ad_job_down(j, why->code, why->text);
}

/* ---- what the scheduler says ---- */

/* Ends the jobs of another cluster when this agent joins a new one. */
static void check_cluster(struct agent *a, const uint8_t cluster[ID_BYTES])
{
	static const uint8_t none[ID_BYTES];

	if (memcmp(a->cluster, none, ID_BYTES) && memcmp(a->cluster, cluster, ID_BYTES)) {
		log_warn("scheduler %s is of another cluster, which this agent joins",
			 a->opt.daemon.scheduler);
		list_for_each(&a->jobs, l)
			ad_job_down(list_entry(l, struct ad_job, link), TALLY_ESHUTDOWN,
				    "its machine has joined another cluster");
	}
	memcpy(a->cluster, cluster, ID_BYTES);
}

static void on_up(void *ctx, const struct msg_welcome *w)
{
	struct agent *a = ctl_daemon_owner(ctx);

	check_cluster(a, w->cluster);
	a->my_node = w->node;
	a->replaced = false;
	a->registrations++;
	a->registered = loop_now();
	a->grace_ms = w->agent_grace_ms;
	ad_back_forget(a);
	memcpy(a->link_key, w->link_key, KEY_BYTES);
	ctl_daemon_registered(ctx, a->node, w);
	notify("STATUS=registered");
	list_for_each(&a->jobs, l) {
		struct ad_job *j = list_entry(l, struct ad_job, link);

		if (j->state == JOB_STOPPING)
			continue;
		ad_job_resend(j);
		if (j->code)
			(void)tell_failed(j);
		ad_stuck_tell(j);
	}
	ad_session_scheduler_up(a);
	ad_alive_look(a);		/* the grace may be over in less than a second */
}

static void on_rank_leave(struct agent *a, const struct msg_rank_leave *m)
{
	struct ad_job *j = ad_job_find(a, m->job);

	if (j && j->state != JOB_STOPPING && m->rank < j->world)
		ad_job_detached(j, m->rank);
}

int ad_log_entry(struct agent *a, const struct msg *m, struct err *e)
{
	if (m->type == MSG_TENSORS)
		return ad_tensors(a, m, e);
	return m->type == MSG_EPOCH ? ad_epoch(a, m, e) : ad_forget(a, m, e);
}

/* A log entry: who cannot follow cannot be in the job. */
static void take_entry(struct agent *a, uint32_t job, const struct msg *m)
{
	struct ad_job *j = ad_job_find(a, job);
	struct err e;
	bool later;
	int rc;

	if (!j || j->code)	/* an entry that failed may have been taken in by half */
		return;
	rc = ad_shrink_defer(j, m, &later, &e);
	if (!rc && !later)
		rc = ad_log_entry(a, m, &e);
	if (rc)
		ad_job_fail(j, &e);
}

void ad_job_refuse(struct agent *a, const struct msg_job_up *m, const struct err *why)
{
	struct msg leave = { .type = MSG_RANK_LEAVE };

	log_error("job %u refused, reason %s", m->job, why->text);
	a->refused = *why;
	a->refused_job = m->job;
	for (uint32_t i = 0; i < m->nmachines; i++) {
		if (m->machines[i].node != a->my_node || !m->machines[i].nranks)
			continue;
		leave.rank_leave = (struct msg_rank_leave){
			.job = m->job,
			.rank = m->machines[i].ranks[0],
			.code = why->code,
			.text = why->text,
		};
		(void)ad_tell_scheduler(a, &leave);
	}
}

static void take_job(struct agent *a, const struct msg *m)
{
	struct err e;

	if (ad_job_find(a, m->job_up.job))
		return;			/* said again after an outage: it runs already */
	if (!ad_job_up(a, m, &e)) {
		struct ad_job *j = ad_job_find(a, m->job_up.job);

		ad_join_check(j, j->live, false);
		return;
	}
	ad_job_refuse(a, &m->job_up, &e);
}

static void on_msg(void *ctx, const struct msg *m)
{
	struct agent *a = ctl_daemon_owner(ctx);
	struct ad_job *j;

	switch (m->type) {
	case MSG_JOB_UP:
		ad_stuck_new_part(a, m->job_up.job);
		if (!ad_back_keeps(a, m))
			take_job(a, m);
		break;
	case MSG_TENSORS:
		if (!ad_back_keeps(a, m))
			take_entry(a, m->tensors.job, m);
		break;
	case MSG_FORGET:
		take_entry(a, m->ids.job, m);
		break;
	case MSG_EPOCH:
		take_entry(a, m->epoch.job, m);
		break;
	case MSG_JOB_DOWN:
		j = ad_job_find(a, m->job_down.job);
		if (j)
			ad_job_down(j, m->job_down.code, m->job_down.text);
		ad_back_drop(a, m->job_down.job);
		break;
	case MSG_RANK_LEAVE:
		on_rank_leave(a, &m->rank_leave);
		break;
	case MSG_REPLY:
		ad_session_reply(a, &m->reply);
		break;
	case MSG_WAITS:
		ad_waits_told(a, &m->reply);
		break;
	default:
		log_debug("message %s ignored", msg_type_name(m->type));
	}
}

const char *ad_scheduler_remark(const struct agent *a, int code, const char *text,
				char more[ERR_TEXT_MAX + 1])
{
	if (code != TALLY_ETIMEDOUT)
		return text;
	snprintf(more, ERR_TEXT_MAX + 1, "%s (scheduler %s)", text, ctl_node_where(a->node));
	return more;
}

void ad_scheduler_late(const struct agent *a, struct err *e)
{
	if (ctl_node_is_up(a->node)) {
		err_set(e, TALLY_ETIMEDOUT, "scheduler %s did not answer in time",
			ctl_node_where(a->node));
		return;
	}
	ctl_node_why(a->node, e);
	err_wrap(e, "agent %.64s", a->name);
}

/* "rdma on 1 of 2 links, 0 payloads over tcp; on 1 not: ended too often; 1048576 bytes by
 * NIC, 0 copied" */
static const char *rdma_note(struct agent *a, uint32_t links)
{
	static const char *const why[] = {
#define X(e, text) text,
		NO_RDMA_TABLE(X)
#undef X
	};
	uint32_t rdma = 0, n[NO_RDMA_END] = { 0 };
	uint64_t detours = 0, direct = 0, copied = 0;
	int at;		/* the note has room for the largest numbers */

	for (uint32_t i = 0; i < a->nengines; i++) {
		rdma += a->engine[i]->rdma_links;
		detours += a->engine[i]->detours;
		direct += a->engine[i]->direct_bytes;
		copied += a->engine[i]->copied_bytes;
		for (uint32_t w = 0; w < NO_RDMA_END; w++)
			n[w] += a->engine[i]->no_rdma[w];
	}
	at = snprintf(a->note, sizeof(a->note), "rdma on %u of %u link%s, %llu payload%s over tcp",
		      rdma, links, plural(links), (unsigned long long)detours, plural(detours));
	for (uint32_t w = 0; w < NO_RDMA_END; w++)
		if (n[w])
			at += snprintf(a->note + at, sizeof(a->note) - (size_t)at,
				       "; on %u not: %s", n[w], why[w]);
	snprintf(a->note + at, sizeof(a->note) - (size_t)at, "; %llu byte%s by NIC, %llu copied",
		 (unsigned long long)direct, plural(direct), (unsigned long long)copied);
	return a->note;
}

/* Reports what rounds took, where some are over since the last report. */
static void tell_times(struct agent *a)
{
	list_for_each(&a->jobs, l) {
		struct ad_job *j = list_entry(l, struct ad_job, link);
		const struct msg m = { .type = MSG_JOB_TIME, .job_time = {
			.job = j->id, .under_way_us = j->front.open_ns / 1000,
			.bytes = j->front.over_bytes,
		} };

		if (j->state == JOB_RUNNING && m.job_time.bytes != j->told_bytes &&
		    !ad_tell_scheduler(a, &m))
			j->told_bytes = m.job_time.bytes;
	}
}

static void on_heartbeat(void *ctx, struct msg_heartbeat *hb)
{
	struct agent *a = ctl_daemon_owner(ctx);
	uint64_t flight = ad_card_flight(a);

	for (uint32_t i = 0; i < a->nengines; i++)
		ctl_stats_add(hb, &a->engine[i]->stats);
	hb->flight_bytes = flight == UINT64_MAX ? 0 : flight * a->nlinked;
	if (!hb->links)
		hb->links_per_peer = 0;		/* counted while there were some */
	if (xport_rdma_devices() && hb->links)
		hb->note = rdma_note(a, hb->links);
	for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++)
		hb->memory_used_bytes += a->slab[id] ? a->slab[id]->mem.bytes : 0;
	tell_times(a);
	ad_net_fill(a, hb);
	ad_alive_look(a);
	list_for_each(&a->jobs, l) {	/* what could not be sent, for want of memory, say */
		struct ad_job *j = list_entry(l, struct ad_job, link);

		if (j->code && j->state != JOB_STOPPING)
			(void)tell_failed(j);
	}
}

static void show_net(struct agent *a)
{
	struct ad_net_view *v = a->engine[0] ? ad_net_copy(a) : NULL;

	if (v)
		ad_engine_tell(a->engine[0], AD_NET, &v, sizeof(v));
}

static void on_echo(void *ctx, const struct msg_heartbeat *hb)
{
	struct agent *a = ctl_daemon_owner(ctx);

	if (ad_net_heard(a, hb->cause))
		show_net(a);
}

/*
 * Whether ranks still depend on this agent; one that was replaced stays until its ranks have
 * heard so.
 */
static bool trains(void *ctx)
{
	const struct agent *a = ctl_daemon_owner(ctx);

	list_for_each(&a->sessions, l) {
		const struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->job && !s->detached && (s->job->state != JOB_STOPPING || a->replaced))
			return true;
	}
	return false;
}

/*
 * This agent was away for too long, and another one has taken its place, and perhaps its number.
 */
static void on_replaced(void *ctx, const struct err *why)
{
	struct agent *a = ctl_daemon_owner(ctx);

	a->replaced = true;
	list_for_each(&a->jobs, l)
		ad_job_down(list_entry(l, struct ad_job, link), TALLY_EWORKERLOST, why->text);
}

/* The agent ends: whoever waits would hear nothing but that. */
static void on_refused(void *ctx, const struct err *why)
{
	struct agent *a = ctl_daemon_owner(ctx);
	struct err e = *why;

	err_wrap(&e, "scheduler %s refuses agent %.64s", ctl_node_where(a->node), a->name);
	ad_sessions_fail(a, TALLY_ESCHED, e.text);
	ctl_daemon_refused(ctx, why);
}

static const struct ctl_node_cb callbacks = {
	.up = on_up,
	.msg = on_msg,
	.down = ctl_daemon_down,
	.refused = on_refused,
	.heartbeat = on_heartbeat,
	.echo = on_echo,
	.secret = ctl_daemon_secret,
	.trains = trains,
	.replaced = on_replaced,
};

/* ---- what the engines say ---- */

/*
 * A rank that has detached, of those that the round waits for; UINT32_MAX: there is none.  Where
 * several have it is the one that did so first: others may have detached because of it.
 */
static uint32_t awaited_leaver(const struct ad_job *j, const struct ad_trouble *t)
{
	uint32_t at = t->locals ? j->me : t->machine, leaver = UINT32_MAX;

	for (uint32_t i = 0; at < j->n && i < j->machines[at].nranks; i++) {
		uint32_t rank = j->machines[at].ranks[i];

		if ((!t->locals || t->locals >> i & 1) && bits_test(j->detached, rank) &&
		    (leaver == UINT32_MAX || rank == j->first_detached))
			leaver = rank;
	}
	return leaver;
}

static void on_stalled(struct agent *a, const struct ad_trouble *t)
{
	struct ad_job *j = ad_job_find(a, t->job);
	mono_t now = loop_now();
	uint32_t leaver;
	struct err e;

	if (!j || j->state == JOB_STOPPING)
		return;
	leaver = awaited_leaver(j, t);
	if (leaver != UINT32_MAX &&
	    now - MAX(j->detached_at, t->since) > mono_ms(LEFT_GRACE_MS)) {
		err_set(&e, TALLY_ESHUTDOWN, "rank %u of job '%.100s' has detached, %.250s",
			leaver, j->name, t->err.text);
		ad_job_fail(j, &e);
		return;
	}
	if (now - t->since < mono_ms(STALL_WARN_MS) ||
	    now - j->stall_logged < mono_ms(STALL_WARN_MS))
		return;
	j->stall_logged = now;
	log_warn("job %u '%s' is stuck, %s", j->id, j->name, t->err.text);
}

static void on_trouble(struct agent *a, uint32_t type, struct ad_trouble *t)
{
	struct ad_job *j = ad_job_find(a, t->job);

	if (type == AD_STALLED)
		on_stalled(a, t);
	else if (type == AD_RING_BROKEN)
		ad_session_broken(t->session, &t->err);
	else if (j)
		ad_job_fail(j, &t->err);
	free(t);
}

/* A job may be told to stop before all engines have begun it. */
static void on_engine_job(struct ad_job *j, uint32_t type)
{
	if (type == AD_JOB_FREE) {
		if (!--j->engines_left)
			ad_job_free(j);
	} else if (!--j->starting && j->state == JOB_STARTING) {
		j->state = JOB_RUNNING;
		ad_session_tensors_ready(j);
		ad_shrink_done(j);
	}
}

void ad_on_mail(void *owner, const struct mail *m)
{
	struct ad_settled_mail settled;
	struct agent *a = owner;
	struct ad_shown shown;
	struct ad_slab_mail slab;
	struct ad_job *j;
	uint32_t id;
	void *p;

	memcpy(&slab, m->body, sizeof(slab));
	memcpy(&p, m->body, sizeof(p));
	switch (m->type) {
	case AD_JOB_READY:
	case AD_JOB_FREE:
		on_engine_job(p, m->type);
		break;
	case AD_JOB_STOPPED:
		ad_job_stopped(p);
		break;
	case AD_BATCH_READY:
		if (--((struct ad_batch *)p)->engines_left == 0)
			ad_batch_done(p);
		break;
	case AD_EPOCH_TAKEN:
		ad_epoch_taken(p);
		break;
	case AD_SETTLED:
		memcpy(&settled, m->body, sizeof(settled));
		ad_epoch_settled(a, &settled);
		break;
	case AD_HIDDEN:
		memcpy(&shown, m->body, sizeof(shown));
		ad_arena_hidden(a, &shown);
		break;
	case AD_WAS_OVER:
		memcpy(&id, m->body, sizeof(id));
		j = ad_job_find(a, id);
		if (j)
			ad_was_over(j);
		break;
	case AD_STUCK:
		ad_stuck_take(a, p);
		break;
	case AD_NET:
		ad_net_take(a, p);
		show_net(a);
		break;
	case AD_RING_READY:
		ad_session_ring_ready(p);
		break;
	case AD_RING_GONE:
		ad_session_ring_gone(p);
		break;
	case AD_SLAB_READY:
		ad_session_slab_ready(&slab);
		break;
	default:
		on_trouble(a, m->type, p);
	}
}

/* ---- life ---- */

static void on_tick(void *ctx)
{
	ad_sessions_tick(ctx, loop_now());
}

/* rate 0: as the card says. */
static void add_rail(struct agent *a, const char *addr, uint64_t rate)
{
	struct msg_addr *r = &a->rail[a->nrails];

	r->host = strcpy(a->rail_text[a->nrails++], addr);
	r->bits_per_s = rate ? rate : host_card_bits_per_s(addr);
}

static int take_rail(struct agent *a, const char *spec, struct err *e)
{
	char host[ADDR_LEN_MAX + 1], addr[ADDR_LEN_MAX + 1];
	uint64_t rate;
	int rc = parse_rail(spec, host, &rate, e);

	rc = rc ? rc : route_numeric(host, addr, e);
	rc = rc ? rc : route_check(addr, a->opt.daemon.scheduler, SCHEDULER_PORT, e);
	if (rc)
		return err_wrap(e, "--rail %s", spec);
	if (!host_has_address(addr))
		return err_set(e, TALLY_EINVAL, "--rail %s: this machine has no address %s", spec,
			       addr);
	for (uint32_t i = 0; i < a->nrails; i++)
		if (!strcmp(a->rail_text[i], addr))
			return err_set(e, TALLY_EINVAL, "--rail %s: the second one with address "
				       "%s", spec, addr);
	add_rail(a, addr, rate);
	return 0;
}

int ad_rails_start(struct agent *a, struct err *e)
{
	char sched[ADDR_LEN_MAX + 1], source[ADDR_LEN_MAX + 1];
	uint16_t port;
	int rc;

	if (a->opt.rails.n > RAILS_MAX)
		return err_set(e, TALLY_EINVAL, "more than %u --rail", RAILS_MAX);
	for (uint32_t i = 0; i < a->opt.rails.n; i++) {
		rc = take_rail(a, a->opt.rails.v[i], e);
		if (rc)
			return rc;
	}
	if (a->nrails)
		return 0;
	rc = parse_peer(a->opt.daemon.scheduler, SCHEDULER_PORT, sched, &port, e);
	rc = rc ? rc : route_source(sched, port, source, e);
	if (rc)
		return err_wrap(e, "--scheduler %s", a->opt.daemon.scheduler);
	add_rail(a, source, 0);
	route_warn_loopback(source, "--rail ADDRESS");
	return 0;
}

int ad_io_start(struct agent *a, struct err *e)
{
	struct msg_hello hello = { .kind = NODE_AGENT, .addrs = a->rail, .shm_path = "" };
	int rc;

	hello.naddrs = a->nrails;
	rc = loop_timer_start(a->loop, &a->tick, 500, 500, on_tick, a);
	if (rc)
		return err_set(e, rc, "out of memory");
	return ctl_daemon_start(&a->daemon, &a->node, &hello, &callbacks, e);
}

void ad_io_stop(struct agent *a)
{
	if (a->node)
		ctl_node_stop(a->node);
	a->node = NULL;
	loop_timer_stop(a->tick);
	a->tick = NULL;
}
