// SPDX-License-Identifier: Apache-2.0
/*
 * Servers: what their control threads do when the scheduler says something.  A server
 * that was declared dead while it lived registers as somebody new: in the table that
 * is another server, and the first one goes on as a ghost until its links end.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

static void answer(struct sim *s, uint32_t server, enum msg_type type, uint32_t job, uint64_t seq)
{
	struct sim_server *v = s->server[server];
	const struct msg m = { .type = type, .ready = { .job = job, .seq = seq, .text = "",
							.log = MAX(v->log.seq, v->log.told) } };

	if (type != MSG_JOB_READY) {
		v->ready_type = type;
		v->ready_seq = seq;
	}
	sim_ctl_send(s, sim_server_proc(server), &m);
}

/* What it has, after each registration: it may not have been heard before. */
void sim_server_tell(struct sim *s, uint32_t server)
{
	const struct sim_server *v = s->server[server];

	if (!v->job || v->job->stopped)
		return;
	answer(s, server, MSG_JOB_READY, s->job, v->job_epoch);
	if (v->ready_type)
		answer(s, server, v->ready_type, s->job, v->ready_seq);
}

/* ---- parts of tensors ---- */

static void add_part(struct sim *s, uint32_t server, uint32_t k, const bool *mine, uint32_t epoch,
		     bool young)
{
	struct sim_server *v = s->server[server];
	struct sim_tensor *t = &s->tensor[k];
	struct srv_tensor_desc d = { .id = t->id, .dtype = t->dtype, .geom = t->geom,
				     .mine = mine, .epoch = epoch, .young = young };
	struct sim_part *p = &v->tensor[k].part[v->tensor[k].n++];
	uint64_t slots;

	ASSERT(v->tensor[k].n <= SIM_PARTS);
	*p = (struct sim_part){ .epoch = epoch };
	memcpy(p->mine, mine, sizeof(p->mine));
	p->mem = sim_zeroed(srv_tensor_size(s->p.n, &d, &slots));
	p->slots = sim_garbage(s, slots);
	p->core = srv_tensor_add(&v->core, v->job, p->mem, p->slots, &d);
}

static void tensors(struct sim *s, uint32_t server, const struct msg_tensors *m)
{
	struct sim_server *v = s->server[server];
	uint32_t first = v->log.n;

	sim_log_tensors(s, &v->log, m);
	for (uint32_t i = first; i < v->log.n; i++) {
		uint32_t k = v->log.k[i];
		bool mine[SIM_CHUNKS] = { false };

		for (uint32_t c = 0; c < geom_chunks(&s->tensor[k].geom); c++)
			mine[c] = v->log.owner[k][c] == v->me;
		add_part(s, server, k, mine, v->log.place->epoch, false);
	}
	answer(s, server, MSG_TENSORS_READY, m->job, m->seq);
}

static void forget(struct sim *s, uint32_t server, const struct msg_ids *m)
{
	struct sim_server *v = s->server[server];

	v->log.seq = m->seq;
	for (uint32_t i = 0; i < m->nids; i++) {
		uint32_t k = sim_log_forget(s, &v->log, m->ids[i]);

		for (uint32_t p = 0; k != UINT32_MAX && p < v->tensor[k].n; p++)
			if (v->tensor[k].part[p].core)
				srv_tensor_remove(&v->core, v->tensor[k].part[p].core);
	}
	sim_server_let_go(s, server);
}

/* ---- epochs ---- */

static void mark_leaving(struct sim_server *v, uint32_t k, uint32_t chunk, uint32_t since)
{
	for (uint32_t i = 0; i < v->tensor[k].n; i++) {
		struct sim_part *p = &v->tensor[k].part[i];

		if (p->core && p->epoch == since && p->mine[chunk])
			p->leaving[chunk] = true;
	}
}

static void epoch(struct sim *s, uint32_t server, const struct msg_epoch *m)
{
	struct sim_server *v = s->server[server];
	uint32_t before[SIM_TENSORS][SIM_CHUNKS];

	if (m->seq != MAX(v->log.seq, v->log.told) + 1 || m->servers[v->me].node != v->node)
		sim_fail(s, "server %u: epoch entry %llu after %llu", server,
			 (unsigned long long)m->seq, (unsigned long long)v->log.seq);
	memcpy(before, v->log.since, sizeof(before));
	sim_log_epoch(&v->log, m);
	for (uint32_t i = 0; i < v->log.n; i++) {
		uint32_t k = v->log.k[i];
		bool mine[SIM_CHUNKS] = { false }, any = false;

		for (uint32_t c = 0; c < geom_chunks(&s->tensor[k].geom); c++) {
			if (v->log.since[k][c] == before[k][c])
				continue;
			mark_leaving(v, k, c, before[k][c]);
			mine[c] = v->log.owner[k][c] == v->me;
			any |= mine[c];
		}
		for (uint32_t p = 0; p < v->tensor[k].n; p++)
			if (v->tensor[k].part[p].core)
				srv_tensor_leave(&v->core, v->tensor[k].part[p].core,
						 v->tensor[k].part[p].leaving);
		if (any)
			add_part(s, server, k, mine, (uint32_t)m->epoch, true);
	}
	answer(s, server, MSG_EPOCH_READY, m->job, m->epoch);
}

static void settled(struct sim *s, uint32_t server, const struct msg_ready *m)
{
	struct sim_server *v = s->server[server];

	if (!v->job || m->seq < v->log.place->epoch)
		return;
	for (uint32_t k = 0; k < s->p.ntensors; k++)
		for (uint32_t p = 0; p < v->tensor[k].n; p++)
			if (v->tensor[k].part[p].core)
				v->tensor[k].part[p].left = true;
	sim_server_let_go(s, server);
}

/* ---- the job ---- */

static bool let_all_go(struct sim *s, uint32_t server);

static bool job_gone(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];

	ASSERT(v->job->stopped);
	if (!let_all_go(s, server) || srv_job_borrowed(v->job))
		return false;
	srv_job_forget(&v->core, v->job);
	free(v->job);
	v->job = NULL;
	for (uint32_t i = 0; i < s->p.n; i++) {
		free(v->window[i]);
		v->window[i] = NULL;
	}
	sim_log_fini(&v->log);
	return true;
}

static void refuse(struct sim *s, uint32_t server, const struct msg_job_up *m)
{
	const struct msg no = { .type = MSG_JOB_READY, .ready = {
		.job = m->job, .seq = m->epoch, .code = TALLY_EEXIST, .text = "not gone yet",
	} };

	sim_ctl_send(s, sim_server_proc(server), &no);
}

static void job_up(struct sim *s, uint32_t server, const struct msg_job_up *m)
{
	struct sim_server *v = s->server[server];
	struct srv_job_desc d = {
		.id = m->job, .n = s->p.n, .world = s->p.world, .epoch = (uint32_t)m->epoch,
		.chunk_bytes = s->p.chunk_bytes, .seg_bytes = s->p.seg_bytes,
		.window_bytes = s->p.window_bytes,
	};

	if (v->job && !job_gone(s, server)) {	/* it was here before, and is not gone yet */
		refuse(s, server, m);
		return;
	}
	sim_log_start(&v->log, m);
	v->job_epoch = m->epoch;
	v->job = srv_job_start(&v->core, sim_zeroed(srv_job_size(s->p.n)), &d);
	for (v->me = 0; m->servers[v->me].node != v->node; v->me++)
		ASSERT(v->me < m->nservers);
	for (uint32_t i = 0; i < s->p.n; i++) {
		v->job->worker[i].node = m->machines[i].node;
		if (v->home == i)
			continue;
		v->window[i] = sim_garbage(s, s->p.window_bytes);
		v->job->worker[i].window = v->window[i];
	}
	answer(s, server, MSG_JOB_READY, m->job, m->epoch);
}

/* A first life of this process may still have the job. */
static void job_down(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];

	while (!v->job && v->last_life != SIM_NOBODY)
		v = s->server[v->last_life];
	if (v->job && !v->job->stopped)
		srv_job_stop(&v->core, v->job);
}

void sim_server_msg(struct sim *s, uint32_t server, const struct msg *m)
{
	const struct sim_server *v = s->server[server];

	switch (m->type) {
	case MSG_JOB_UP: job_up(s, server, &m->job_up); break;
	default: break;
	}
	/* What follows a JOB_UP that was refused is for nobody. */
	if (m->type != MSG_JOB_DOWN && (!v->job || v->job->stopped))
		return;
	switch (m->type) {
	case MSG_TENSORS: tensors(s, server, &m->tensors); break;
	case MSG_FORGET: forget(s, server, &m->ids); break;
	case MSG_EPOCH: epoch(s, server, &m->epoch); break;
	case MSG_EPOCH_READY: settled(s, server, &m->ready); break;
	case MSG_JOB_DOWN: job_down(s, server); break;
	default: break;
	}
}

/* ---- life ---- */

uint32_t sim_server_new(struct sim *s, uint32_t name, uint32_t home)
{
	uint32_t server = s->nservers++;
	struct sim_server *v;

	ASSERT(server < SIM_SERVERS);
	v = s->server[server] = sim_zeroed(sizeof(*v));
	v->name = name;
	v->home = home;
	v->alive = true;
	v->next_life = v->last_life = SIM_NOBODY;
	srv_init(&v->core);
	memset(v->ctl.instance, 100 + (int)server, ID_BYTES);
	sim_at(s, mono_ms(HEARTBEAT_MS), &(struct sim_event){ .type = EV_BEAT,
		.proc = sim_server_proc(server), .a = sim_server_proc(server) });
	return server;
}

/* It goes on under another number: a new row, and a ghost that still has the old links. */
void sim_server_reborn(struct sim *s, uint32_t server, uint32_t node)
{
	struct sim_server *old = s->server[server], *v;
	uint32_t next = sim_server_new(s, old->name, old->home);

	sim_totals.reborn++;
	v = s->server[next];
	v->ctl = old->ctl;
	v->node = node;
	v->last_life = server;
	old->replaced = true;
	old->next_life = next;
	s->conn[v->ctl.conn] = sim_server_proc(next);
	for (const struct sim_server *o = old; ; o = s->server[o->last_life]) {
		if (o->job && !o->job->stopped)
			answer(s, next, MSG_JOB_READY, s->job, o->job_epoch);
		if (o->last_life == SIM_NOBODY)
			break;
	}
}

/* True when nothing of the part is left. */
static bool let_go(struct sim_server *v, struct sim_part *p)
{
	if (p->left && !p->core->removed) {
		if (!srv_tensor_left(&v->core, p->core))
			return false;
		p->left = false;
		if (srv_tensor_empty(p->core))
			srv_tensor_remove(&v->core, p->core);
	}
	if (!p->core->removed)
		return true;
	if (p->core->borrowed)
		return false;
	srv_tensor_forget(&v->core, p->core);
	free(p->mem);
	free(p->slots);
	p->core = NULL;
	sim_totals.removed++;
	return true;
}

static bool let_all_go(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];
	bool all = true;

	for (uint32_t k = 0; k < s->p.ntensors; k++) {
		uint32_t n = 0;

		for (uint32_t p = 0; p < v->tensor[k].n; p++) {
			struct sim_part *x = &v->tensor[k].part[p];

			if (x->core)
				all &= let_go(v, x);
			if (x->core)
				v->tensor[k].part[n++] = *x;
		}
		v->tensor[k].n = n;
	}
	return all;
}

void sim_server_let_go(struct sim *s, uint32_t server)
{
	if (!let_all_go(s, server) && !s->stopped && s->server[server]->alive)
		sim_at(s, 1000000, &(struct sim_event){ .type = EV_LET_GO,
			.proc = sim_server_proc(server), .a = sim_server_proc(server) });
}

static void add_counters(uint64_t *to, const uint64_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

void sim_server_free(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];

	/* What a process that has died had borrowed is nobody's. */
	if (!s->failed && v->alive && v->job) {
		ASSERT(let_all_go(s, server));
		srv_job_forget(&v->core, v->job);
	}
	for (uint32_t k = 0; k < s->p.ntensors; k++)
		for (uint32_t p = 0; p < v->tensor[k].n; p++) {
			free(v->tensor[k].part[p].mem);
			free(v->tensor[k].part[p].slots);
		}
	add_counters((uint64_t *)&sim_totals.srv, (uint64_t *)&v->core.count,
		     sizeof(v->core.count) / sizeof(uint64_t));
	for (uint32_t i = 0; i < s->p.n; i++)
		free(v->window[i]);
	sim_log_fini(&v->log);
	free(v->job);
	free(v);
}
