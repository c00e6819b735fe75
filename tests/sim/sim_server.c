// SPDX-License-Identifier: Apache-2.0
/*
 * Servers: what their control threads do when the scheduler says something.  A server
 * that was declared dead while it lived registers as somebody new: in the table that
 * is another server, and the first one goes on as a ghost until its links end.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

#define LET_GO_NS 1000000u	/* between two looks at whether what has ended is lent still */
#define KEPT_NS (20 * LET_GO_NS)	/* longer than it takes to see that it is not lent */

static void answer_code(struct sim *s, uint32_t server, const struct sim_job *j,
			enum msg_type type, uint64_t seq, int code)
{
	struct sim_server_job *sj = &s->server[server]->job[j->index];
	const struct msg m = { .type = type, .ready = {
		.job = j->number, .seq = seq, .code = code, .text = code ? "out of memory" : "",
		.log = MAX(sj->log.seq, sj->log.told),
		.epoch = sj->log.place ? sj->log.place->epoch : 0,
	} };

	if (type != MSG_JOB_READY) {
		sj->ready_type = type;
		sj->ready_seq = seq;
		sj->ready_code = code;
	}
	sim_ctl_send(s, sim_server_proc(server), &m);
}

static void answer(struct sim *s, uint32_t server, const struct sim_job *j, enum msg_type type,
		   uint64_t seq)
{
	answer_code(s, server, j, type, seq, 0);
}

static void refuse(struct sim *s, uint32_t server, uint32_t job, uint64_t epoch, int code,
		   const char *why)
{
	const struct msg no = { .type = MSG_JOB_READY, .ready = {
		.job = job, .seq = epoch, .code = code, .text = why,
	} };

	sim_ctl_send(s, sim_server_proc(server), &no);
}

static bool has_job(const struct sim_server_job *sj)
{
	return sj->core && !sj->core->stopped;
}

/* It lets go of the job, and comes back as somebody new. */
static void leave(struct sim *s, uint32_t server, const struct sim_job *j, int code,
		  const char *why)
{
	srv_job_stop(&s->server[server]->core, s->server[server]->job[j->index].core);
	refuse(s, server, j->number, 0, code, why);
}

/* What it has, after each registration: it may not have been heard before. */
void sim_server_tell(struct sim *s, uint32_t server)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		const struct sim_server_job *sj = &s->server[server]->job[i];

		if (!has_job(sj))
			continue;
		if (sj->log.seq < sj->log.told) {
			sim_trace(s, "s%u was being told of job %u", server, s->job[i].number);
			leave(s, server, &s->job[i], TALLY_EBUSY, "cut off as it was told");
			continue;
		}
		answer(s, server, &s->job[i], MSG_JOB_READY, sj->epoch);
		if (sj->ready_type)
			answer_code(s, server, &s->job[i], sj->ready_type, sj->ready_seq,
				    sj->ready_code);
	}
}

/* ---- parts of tensors ---- */

static void add_part(struct sim *s, uint32_t server, const struct sim_job *j, uint32_t k,
		     const bool *mine, uint32_t epoch, bool young)
{
	struct sim_server *v = s->server[server];
	struct sim_server_job *sj = &v->job[j->index];
	const struct sim_tensor *t = &j->tensor[k];
	struct srv_tensor_desc d = { .id = sj->log.id[k], .dtype = t->dtype, .geom = t->geom,
				     .mine = mine, .epoch = epoch, .young = young };
	struct sim_part *p = &sj->tensor[k].part[sj->tensor[k].n++];
	uint64_t slots;

	ASSERT(sj->tensor[k].n <= SIM_PARTS);
	*p = (struct sim_part){ .epoch = epoch };
	memcpy(p->mine, mine, sizeof(p->mine));
	p->mem = sim_zeroed(srv_tensor_size(j->p->n, &d, &slots));
	p->slots = sim_garbage(s, slots);
	p->core = srv_tensor_add(&v->core, sj->core, p->mem, p->slots, &d);
}

static void remove_parts(struct sim_server *v, struct sim_server_job *sj, uint32_t k)
{
	for (uint32_t p = 0; k != SIM_NOBODY && p < sj->tensor[k].n; p++)
		if (sj->tensor[k].part[p].core && !sj->tensor[k].part[p].core->removed)
			srv_tensor_remove(&v->core, sj->tensor[k].part[p].core);
}

/* As log_cut(): entries that a restarted scheduler does not know never were. */
static bool cut_log(struct sim *s, uint32_t server, const struct sim_job *j, uint64_t seq)
{
	struct sim_server_job *sj = &s->server[server]->job[j->index];

	if (seq <= sj->refused)
		sj->refused = 0;
	if (sj->refused) {
		leave(s, server, j, TALLY_EBUSY, "lacks tensors that all others have");
		return false;
	}
	if (seq > sj->log.seq)
		return true;
	sim_totals.log_cuts++;
	if (seq <= sj->log.epoch_seq ||
	    (seq <= sj->log.forget_seq && sj->log.forget_from < seq)) {
		leave(s, server, j, TALLY_EBUSY, "cannot take an entry back");
		return false;
	}
	for (uint32_t i = sj->log.n; i-- > 0; ) {
		uint32_t k = sj->log.k[i];

		if (sj->log.entry[k] >= seq)
			remove_parts(s->server[server], sj,
				     sim_log_forget(&sj->log, sj->log.id[k]));
	}
	sj->log.seq = sj->log.told = seq - 1;
	return true;
}

static void tensors(struct sim *s, uint32_t server, struct sim_job *j,
		    const struct msg_tensors *m)
{
	struct sim_server_job *sj = &s->server[server]->job[j->index];
	uint32_t first;

	if (!cut_log(s, server, j, m->seq))
		return;
	if (sim_starves(s, j, false)) {
		sim_trace(s, "s%u has no memory for tensors", server);
		if (m->seq <= sj->log.told) {
			leave(s, server, j, TALLY_EBUSY, "out of memory");
			return;
		}
		sj->log.seq = sj->refused = m->seq;
		sj->refused_id = m->tensors[0].id;
		answer_code(s, server, j, MSG_TENSORS_READY, m->seq, TALLY_ENOMEM);
		return;
	}
	first = sj->log.n;
	sim_log_tensors(s, &sj->log, j, m);
	for (uint32_t i = first; i < sj->log.n; i++) {
		uint32_t k = sj->log.k[i];
		bool mine[SIM_CHUNKS] = { false };

		for (uint32_t c = 0; c < geom_chunks(&j->tensor[k].geom); c++)
			mine[c] = sj->log.owner[k][c] == sj->me;
		add_part(s, server, j, k, mine, sj->log.place->epoch, false);
	}
	answer(s, server, j, MSG_TENSORS_READY, m->seq);
	sim_server_let_go(s, server);
}

static void forget(struct sim *s, uint32_t server, struct sim_job *j, const struct msg_ids *m)
{
	struct sim_server_job *sj = &s->server[server]->job[j->index];

	for (uint32_t i = 0; i < m->nids; i++)
		if (m->ids[i] == sj->refused_id)
			sj->refused = 0;
	if (!cut_log(s, server, j, m->seq))
		return;
	if (sim_starves(s, j, false)) {
		sim_trace(s, "s%u has no memory to forget tensors", server);
		leave(s, server, j, TALLY_ENOMEM, "out of memory");
		return;
	}
	if (!sim_log_follows(&sj->log, m->seq))
		sim_fail(s, "server %u: FORGET entry %llu after %llu", server,
			 (unsigned long long)m->seq, (unsigned long long)sj->log.seq);
	sj->log.seq = sj->log.forget_seq = sj->log.forget_from = m->seq;
	sj->ready_type = 0;		/* what was before is heard, or refused */
	for (uint32_t i = 0; i < m->nids; i++) {
		uint32_t k = sim_log_forget(&sj->log, m->ids[i]);

		if (k != SIM_NOBODY)
			sj->log.forget_from = MIN(sj->log.forget_from, sj->log.entry[k]);
		remove_parts(s->server[server], sj, k);
	}
	sim_server_let_go(s, server);
}

/* ---- epochs ---- */

static void mark_leaving(struct sim_server_job *sj, uint32_t k, uint32_t chunk, uint32_t since)
{
	for (uint32_t i = 0; i < sj->tensor[k].n; i++) {
		struct sim_part *p = &sj->tensor[k].part[i];

		if (p->core && p->epoch == since && p->mine[chunk])
			p->leaving[chunk] = true;
	}
}

static void move_tensor(struct sim *s, uint32_t server, const struct sim_job *j, uint32_t k,
			const uint32_t *before, uint32_t epoch)
{
	struct sim_server *v = s->server[server];
	struct sim_server_job *sj = &v->job[j->index];
	bool mine[SIM_CHUNKS] = { false }, any = false;

	for (uint32_t c = 0; c < geom_chunks(&j->tensor[k].geom); c++) {
		if (sj->log.since[k][c] == before[c])
			continue;
		mark_leaving(sj, k, c, before[c]);
		mine[c] = sj->log.owner[k][c] == sj->me;
		any |= mine[c];
	}
	for (uint32_t p = 0; p < sj->tensor[k].n; p++)
		if (sj->tensor[k].part[p].core && !sj->tensor[k].part[p].core->removed) {
			sim_cover_leave(sj->tensor[k].part[p].core, sj->tensor[k].part[p].leaving);
			srv_tensor_leave(&v->core, sj->tensor[k].part[p].core,
					 sj->tensor[k].part[p].leaving);
		}
	if (any)
		add_part(s, server, j, k, mine, epoch, true);
}

static void shrink(struct sim_server *v, const struct sim_job *j, const uint32_t *gone,
		   uint32_t n)
{
	bool lost[SIM_AGENTS];
	uint32_t left[SIM_AGENTS] = { 0 };

	for (uint32_t r = 0; r < j->p->world; r++)
		left[j->p->machine[r]]++;
	for (uint32_t i = 0; i < n; i++)
		left[j->p->machine[gone[i]]]--;
	for (uint32_t i = 0; i < j->p->n; i++)
		lost[i] = !left[i];
	sim_cover_server_world(v->job[j->index].core);
	srv_job_shrink(&v->core, v->job[j->index].core, lost, j->p->world - n);
}

static void epoch(struct sim *s, uint32_t server, struct sim_job *j, const struct msg_epoch *m)
{
	struct sim_server *v = s->server[server];
	struct sim_server_job *sj = &v->job[j->index];
	uint32_t before[SIM_TENSORS][SIM_CHUNKS];

	if (!cut_log(s, server, j, m->seq))
		return;
	if (m->nservers < sj->log.place->nservers) {
		leave(s, server, j, TALLY_EBUSY, "has heard of servers that no agent has");
		return;
	}
	if (m->servers[sj->me].node != v->node) {
		leave(s, server, j, TALLY_EBUSY, "is in another row than it was told");
		return;
	}
	if (!sim_log_follows(&sj->log, m->seq))
		sim_fail(s, "server %u: epoch entry %llu after %llu", server,
			 (unsigned long long)m->seq, (unsigned long long)sj->log.seq);
	if (sim_starves(s, j, true)) {
		sim_trace(s, "s%u has no memory to take over", server);
		sj->log.seq = sj->log.epoch_seq = m->seq;
		answer_code(s, server, j, MSG_EPOCH_READY, m->epoch, TALLY_ENOMEM);
		return;
	}
	memcpy(before, sj->log.since, sizeof(before));
	if (m->ngone > sj->log.ngone || m->grown != sj->log.grown)
		shrink(v, j, m->gone, m->ngone);
	sim_log_epoch(s, &sj->log, m);
	for (uint32_t i = 0; i < sj->log.n; i++)
		move_tensor(s, server, j, sj->log.k[i], before[sj->log.k[i]], (uint32_t)m->epoch);
	answer(s, server, j, MSG_EPOCH_READY, m->epoch);
}

static void let_go_in(struct sim *s, uint32_t server, mono_t ns)
{
	sim_at(s, ns, &(struct sim_event){ .type = EV_LET_GO,
		.proc = sim_server_proc(server), .a = sim_server_proc(server) });
}

static void settled(struct sim *s, uint32_t server, const struct sim_job *j,
		    const struct msg_ready *m)
{
	struct sim_server_job *sj = &s->server[server]->job[j->index];

	if (m->seq < sj->log.place->epoch)
		return;
	for (uint32_t k = 0; k < SIM_TENSORS; k++)
		for (uint32_t p = 0; p < sj->tensor[k].n; p++)
			if (sj->tensor[k].part[p].core) {
				srv_tensor_settled(&s->server[server]->core,
						   sj->tensor[k].part[p].core);
				sj->tensor[k].part[p].left = true;
			}
	sj->settled = m->seq;
	sj->settled_at = s->now;
	/* The engine's next turn; by then it may have heard of the next epoch. */
	let_go_in(s, server, (mono_t)sim_below(s, LET_GO_NS));
}

/* ---- the job ---- */

static bool let_all_go(struct sim_server *v, struct sim_server_job *sj);

static bool job_gone(struct sim_server *v, struct sim_server_job *sj)
{
	ASSERT(sj->core->stopped);
	if (!let_all_go(v, sj) || srv_job_borrowed(sj->core))
		return false;
	srv_job_forget(&v->core, sj->core);
	free(sj->core);
	for (uint32_t i = 0; i < SIM_AGENTS; i++)
		free(sj->window[i]);
	sim_log_fini(&sj->log);
	memset(sj, 0, sizeof(*sj));
	return true;
}

/* Zeros are no news. */
static void take_key(struct sim *s, uint32_t server, uint32_t node, const uint8_t key[KEY_BYTES],
		     bool named)
{
	static const uint8_t none[KEY_BYTES];
	struct sim_server *v = s->server[server];
	uint32_t i = 0;

	while (i < v->nkeys && v->key[i].node != node)
		i++;
	if (i == v->nkeys && !named)
		return;
	ASSERT(i < SIM_KEYS);
	v->nkeys = MAX(v->nkeys, i + 1);
	v->key[i].node = node;
	if (!memcmp(key, none, KEY_BYTES))
		return;
	memcpy(v->key[i].link_key, key, KEY_BYTES);
	for (uint32_t k = 0; k < s->p.n; k++)
		if (s->agent[k]->node == node)
			sim_link_outdated(s, k, server);
}

static void agent_keys(struct sim *s, uint32_t server, const struct msg_agent_keys *m)
{
	for (uint32_t i = 0; i < m->nkeys; i++)
		take_key(s, server, m->keys[i].node, m->keys[i].link_key, false);
}

static void job_up(struct sim *s, uint32_t server, const struct msg_job_up *m)
{
	struct sim_server *v = s->server[server];
	struct sim_job *j = &s->job[m->name[3] - '0'];
	struct sim_server_job *sj = &v->job[j->index];
	struct srv_job_desc d = {
		.id = m->job, .user = m->user, .n = j->p->n, .world = j->p->world, .engines = 1,
		.epoch = (uint32_t)m->epoch,
		.chunk_bytes = s->p.chunk_bytes, .seg_bytes = s->p.seg_bytes,
		.window_bytes = s->p.window_bytes,
	};

	/* The scheduler knows nothing of it, unless it tells the same once more. */
	if (sj->core && (sj->core->id != m->job || sj->epoch != m->epoch))
		sim_server_stop_job(s, server, j);
	/* It was here before, and is not gone yet. */
	if (sj->core && (!sj->core->stopped || !job_gone(v, sj))) {
		refuse(s, server, m->job, m->epoch, TALLY_EEXIST, "not gone yet");
		return;
	}
	if (j->started && sim_starves(s, j, false)) {
		refuse(s, server, m->job, m->epoch, TALLY_ENOMEM, "out of memory");
		return;
	}
	j->number = m->job;
	sim_log_start(&sj->log, m);
	sj->log.epoch_seq = m->epoch_seq;
	sj->epoch = m->epoch;
	sj->refused = 0;
	sj->core = srv_job_start(&v->core, sim_zeroed(srv_job_size(j->p->n, 1)), &d);
	for (sj->me = 0; m->servers[sj->me].node != v->node; sj->me++)
		ASSERT(sj->me < m->nservers);
	for (uint32_t i = 0; i < j->p->n; i++) {
		take_key(s, server, m->machines[i].node, m->machines[i].link_key, true);
		sj->core->worker[i].node = m->machines[i].node;
		if (v->home == j->p->agent[i])
			continue;
		sj->window[i] = sim_garbage(s, s->p.window_bytes);
		sj->core->worker[i].window = sj->window[i];
	}
	if (m->ngone)
		shrink(v, j, m->gone, m->ngone);
	answer(s, server, j, MSG_JOB_READY, m->epoch);
}

void sim_server_stop_job(struct sim *s, uint32_t server, const struct sim_job *j)
{
	struct sim_server *v = s->server[server];
	struct sim_server_job *sj = &v->job[j->index];

	if (sj->core && !sj->core->stopped)
		srv_job_stop(&v->core, sj->core);
}

/* A first life of this process may still have the job. */
static void job_down(struct sim *s, uint32_t server, uint32_t number)
{
	const struct sim_job *j = sim_job_of(s, number);

	if (!j)
		return;
	while (!s->server[server]->job[j->index].core &&
	       s->server[server]->last_life != SIM_NOBODY)
		server = s->server[server]->last_life;
	sim_server_stop_job(s, server, j);
	while (s->server[server]->replaced)
		server = s->server[server]->next_life;
	sim_ctl_send(s, sim_server_proc(server), &(struct msg){
		.type = MSG_JOB_DOWN, .job_down = { .job = number, .text = "" } });
}

static void say_heard(struct sim *s, uint32_t server, uint32_t node)
{
	struct sim_server *v = s->server[server];

	for (uint32_t i = 0; i < s->p.n; i++) {
		if (s->agent[i]->node != node || !v->heard[i])
			continue;
		v->heard[i] = false;
		sim_totals.heard++;
		sim_ctl_send(s, sim_server_proc(server), &(struct msg){
			.type = MSG_HEARD, .heard = { .node = node } });
	}
}

/* As it has heard it: perhaps so late that nobody would undo it. */
static void drained(struct sim *s, uint32_t server, bool draining)
{
	s->server[server]->draining = draining;
	if (draining && s->started && !sim_faulty(s))
		sim_at(s, 0, &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY });
}

static uint32_t job_number(const struct msg *m)
{
	switch (m->type) {
	case MSG_TENSORS: return m->tensors.job;
	case MSG_FORGET: return m->ids.job;
	case MSG_EPOCH: return m->epoch.job;
	case MSG_EPOCH_READY: return m->ready.job;
	default: return 0;
	}
}

/* What follows a JOB_UP that was refused, or a JOB_DOWN that was on its way. */
static void no_job(struct sim *s, uint32_t server, const struct msg *m)
{
	const struct msg no = { .type = m->type == MSG_EPOCH ? MSG_EPOCH_READY : MSG_TENSORS_READY,
		.ready = {
			.job = job_number(m), .code = TALLY_ENOENT, .text = "no such job",
			.seq = m->type == MSG_EPOCH ? m->epoch.epoch : m->tensors.seq,
		},
	};

	if (m->type == MSG_EPOCH || m->type == MSG_TENSORS)
		sim_ctl_send(s, sim_server_proc(server), &no);
}

void sim_server_msg(struct sim *s, uint32_t server, const struct msg *m)
{
	struct sim_job *j = sim_job_of(s, job_number(m));

	if (m->type == MSG_JOB_UP)
		job_up(s, server, &m->job_up);
	else if (m->type == MSG_JOB_DOWN)
		job_down(s, server, m->job_down.job);
	else if (m->type == MSG_HEARD)
		say_heard(s, server, m->heard.node);
	else if (m->type == MSG_AGENT_KEYS)
		agent_keys(s, server, &m->agent_keys);
	else if (m->type == MSG_DRAIN)
		drained(s, server, !m->drain.undo);
	if (!j)
		return;
	if (!has_job(&s->server[server]->job[j->index])) {
		no_job(s, server, m);
		return;
	}
	switch (m->type) {
	case MSG_TENSORS: tensors(s, server, j, &m->tensors); break;
	case MSG_FORGET: forget(s, server, j, &m->ids); break;
	case MSG_EPOCH: epoch(s, server, j, &m->epoch); break;
	case MSG_EPOCH_READY: settled(s, server, j, &m->ready); break;
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
	sim_clock_start(s, sim_server_proc(server));
	memset(v->ctl.instance, 100 + (int)server, ID_BYTES);
	sim_at(s, mono_ms(HEARTBEAT_MS), &(struct sim_event){ .type = EV_BEAT,
		.proc = sim_server_proc(server), .a = sim_server_proc(server) });
	return server;
}

/* Nobody has heard that this is his number, and nobody will. */
void sim_server_never(struct sim *s, uint32_t node)
{
	struct sim_server *v = s->server[sim_server_new(s, SIM_NOBODY, SIM_NOBODY)];

	v->node = node;
	v->alive = false;
}

/* It goes on under another number: a new row, and a ghost that still has the old links. */
void sim_server_reborn(struct sim *s, uint32_t server, uint32_t node)
{
	struct sim_server *old = s->server[server], *v;
	uint32_t next = sim_server_new(s, old->name, old->home);

	sim_totals.reborn++;
	v = s->server[next];
	v->ctl = old->ctl;
	v->draining = old->draining;
	s->clock[sim_server_proc(next)] = s->clock[sim_server_proc(server)];
	v->node = node;
	v->last_life = server;
	old->replaced = true;
	old->next_life = next;
	s->conn[v->ctl.conn].proc = sim_server_proc(next);
	for (const struct sim_server *o = old; ; o = s->server[o->last_life]) {
		for (uint32_t i = 0; i < s->p.njobs; i++)
			if (has_job(&o->job[i]))
				answer(s, next, &s->job[i], MSG_JOB_READY, o->job[i].epoch);
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

static bool let_all_go(struct sim_server *v, struct sim_server_job *sj)
{
	bool all = true;

	for (uint32_t k = 0; k < SIM_TENSORS; k++) {
		uint32_t n = 0;

		for (uint32_t p = 0; p < sj->tensor[k].n; p++) {
			struct sim_part *x = &sj->tensor[k].part[p];

			if (x->core)
				all &= let_go(v, x);
			if (x->core)
				sj->tensor[k].part[n++] = *x;
		}
		sj->tensor[k].n = n;
	}
	return all;
}

void sim_server_let_go(struct sim *s, uint32_t server)
{
	bool all = true;

	for (uint32_t i = 0; i < s->p.njobs; i++)
		all &= let_all_go(s->server[server], &s->server[server]->job[i]);
	if (!all && !s->stopped && s->server[server]->alive)
		let_go_in(s, server, LET_GO_NS);
}

/* It has this part for a chunk that it is to sum, or since nothing has moved. */
static bool is_wanted(const struct sim_job *j, const struct sim_server_job *sj, uint32_t k,
		      const struct sim_part *p)
{
	if (sim_log_tensor(&sj->log, sj->log.id[k]) != k || p->core->removed)
		return false;
	if (p->epoch == sj->log.place->epoch)
		return true;
	for (uint32_t c = 0; c < geom_chunks(&j->tensor[k].geom); c++)
		if (p->mine[c] && sj->log.owner[k][c] == sj->me && sj->log.since[k][c] == p->epoch)
			return true;
	return false;
}

/* The newest epoch's, and when all follow it no others but what a slow link has still; it looks
 * each LET_GO_NS. */
void sim_server_kept(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];
	mono_t since = MAX(s->paused_until[sim_server_proc(server)], v->ctl.last[0]);

	for (uint32_t i = 0; i < s->p.njobs && v->alive && !v->replaced; i++) {
		const struct sim_server_job *sj = &v->job[i];

		if (!has_job(sj) || sj->settled < sj->log.place->epoch ||
		    s->now - MAX(sj->settled_at, since) < KEPT_NS)
			continue;
		for (uint32_t k = 0; k < SIM_TENSORS; k++)
			for (uint32_t p = 0; p < sj->tensor[k].n; p++)
				if (!sj->tensor[k].part[p].core->borrowed &&
				    !is_wanted(&s->job[i], sj, k, &sj->tensor[k].part[p]))
					sim_fail(s, "server %u keeps a part of tensor %u of epoch "
						 "%u, which has moved away", server, k + 1,
						 sj->tensor[k].part[p].epoch);
	}
}

static void add_counters(uint64_t *to, const uint64_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

static void job_free(struct sim *s, struct sim_server *v, struct sim_server_job *sj)
{
	/* What a process that has died had borrowed is nobody's. */
	if (!s->failed && v->alive && sj->core) {
		ASSERT(let_all_go(v, sj));
		srv_job_forget(&v->core, sj->core);
	}
	for (uint32_t k = 0; k < SIM_TENSORS; k++)
		for (uint32_t p = 0; p < sj->tensor[k].n; p++) {
			free(sj->tensor[k].part[p].mem);
			free(sj->tensor[k].part[p].slots);
		}
	for (uint32_t i = 0; i < SIM_AGENTS; i++)
		free(sj->window[i]);
	sim_log_fini(&sj->log);
	free(sj->core);
}

void sim_server_free(struct sim *s, uint32_t server)
{
	struct sim_server *v = s->server[server];

	for (uint32_t i = 0; i < s->p.njobs; i++)
		job_free(s, v, &v->job[i]);
	add_counters((uint64_t *)&sim_totals.srv, (uint64_t *)&v->core.count,
		     sizeof(v->core.count) / sizeof(uint64_t));
	free(v);
}
