// SPDX-License-Identifier: Apache-2.0
/*
 * Agents: what their control threads do when the scheduler says something, with
 * memory of their own.  Every buffer is an allocation of its own, so that a sanitizer
 * sees each byte out of place, and holds garbage first where old contents must not
 * matter.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

/* ---- slabs: how a server on the same machine reads an agent's memory ---- */

static uint64_t slab_add(struct sim_agent *a, uint8_t *base, uint64_t bytes)
{
	ASSERT(a->nslabs < SIM_SLABS);
	a->slab[a->nslabs] = (struct sim_slab){ base, bytes };
	return SLOT_SLAB(a->nslabs++, 0);
}

struct sim_agent *sim_agent_at(struct sim *s, const struct sim_link *l)
{
	struct sim_agent *a = s->agent[l->agent];

	while (a->life != l->life)
		a = a->before;
	return a;
}

void *sim_resolve(struct sim_agent *a, uint64_t slot, uint64_t len)
{
	uint32_t id = SLOT_SLAB_ID(slot);

	if (slot == SLOT_NONE || id >= a->nslabs ||
	    !range_ok(SLOT_SLAB_OFF(slot), len, a->slab[id].bytes))
		return NULL;
	return a->slab[id].base + SLOT_SLAB_OFF(slot);
}

/* ---- routes ---- */

/* SIM_NOBODY: it has not heard its own number, and perhaps never will. */
static uint32_t server_of(const struct sim *s, uint32_t node)
{
	for (uint32_t i = 0; i < s->nservers; i++)
		if (s->server[i]->node == node)
			return i;
	return SIM_NOBODY;
}

/* One that has chunks and was lost before it had heard its number is there as one that died. */
static void take_rows(struct sim *s, struct sim_agent_job *aj, const struct msg_server *servers,
		      uint32_t n)
{
	ASSERT(n <= SIM_ROWS);
	aj->nrows = n;
	for (uint32_t i = 0; i < n; i++) {
		aj->row[i] = servers[i].node;
		if (aj->row[i] && servers[i].weight && server_of(s, aj->row[i]) == SIM_NOBODY)
			sim_server_never(s, aj->row[i]);
	}
}

static bool link_is_used(const struct sim_agent *a, uint32_t server)
{
	for (uint32_t i = 0; i < SIM_JOBS; i++)
		if (!a->job[i].over && a->job[i].route[server] && a->job[i].route[server]->peer)
			return true;
	return false;
}

static struct ag_route *route_new(struct sim *s, uint32_t agent, uint32_t v)
{
	struct sim_agent *a = s->agent[agent];
	bool first = !link_is_used(a, v);
	struct sim_link *l = s->link[agent][v];

	if (first && l && !l->ended)
		sim_link_end(s, l);	/* a job that is over here was the last to use it */
	l = sim_link_get(s, agent, v);
	if (first) {
		ag_peer_init(&a->core, &l->ag, s->server[v]->node, 0);
		l->ag.tx_limit = s->p.tx_limit;
		for (uint32_t k = 0; k < s->p.lanes; k++)
			sim_link_open(s, l);
	}
	return ag_route_init(sim_zeroed(ag_route_size(s->p.window_bytes)), &l->ag, 0,
			     s->p.window_bytes, sim_clock(s, sim_agent_proc(agent)));
}

static void fill_table(struct sim *s, const struct sim_job *j, uint32_t agent)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	if (j->p->n == 1)
		aj->table[0] = aj->route[0] = ag_route_init(sim_zeroed(ag_route_size(0)), NULL, 0,
							    0, sim_clock(s, agent));
	for (uint32_t i = 0; j->p->n > 1 && i < aj->nrows; i++) {
		uint32_t v;

		aj->table[i] = NULL;
		if (!aj->row[i])
			continue;
		v = server_of(s, aj->row[i]);
		if (v == SIM_NOBODY)
			continue;
		if (!aj->route[v])
			aj->route[v] = route_new(s, agent, v);
		aj->table[i] = aj->route[v];
	}
}

static bool is_listed(const struct sim_agent_job *aj, uint32_t node)
{
	for (uint32_t i = 0; i < aj->nrows; i++)
		if (aj->row[i] == node)
			return true;
	return false;
}

static void end_route(struct sim *s, uint32_t agent, struct sim_agent_job *aj, uint32_t v)
{
	ag_route_del(aj->route[v]);
	free(aj->route[v]);
	aj->route[v] = NULL;
	if (s->link[agent][v] && !link_is_used(s->agent[agent], v))
		sim_link_end(s, s->link[agent][v]);
}

/* ---- messages ---- */

static void enter_world(struct sim *s, struct sim_job *j, uint32_t agent, const uint32_t *gone,
			uint32_t n, uint32_t grown)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	uint64_t live = 0;
	uint32_t world = (1u << j->p->world) - 1;

	for (uint32_t i = 0; i < n; i++)
		world &= ~(1u << gone[i]);
	for (uint32_t l = 0; l < aj->front.nlocal; l++)
		live |= (uint64_t)(world >> aj->front.rank[l] & 1) << l;
	if (!live)
		sim_fail(s, "agent %u hears of a world without any of its ranks", agent);
	if (grown > j->grown)		/* no round of before will be */
		j->nworlds = 0;
	j->grown = MAX(j->grown, grown);
	sim_world_add(j, world);
	sim_cover_world(aj->core);
	ag_job_shrink(aj->core, live, j->p->world - n);
	fr_job_shrink(&aj->front, live);
}

static void job_up(struct sim *s, uint32_t agent, const struct msg *msg)
{
	const struct msg_job_up *m = &msg->job_up;
	uint32_t index = (uint32_t)(m->name[3] - '0'), nlocal = 0, me = 0;
	struct sim_job *j = &s->job[index];
	struct sim_agent_job *aj = &s->agent[agent]->job[index];
	struct ag_job_desc d = {
		.id = m->job, .user = m->user, .n = j->p->n, .world = j->p->world,
		.epoch = (uint32_t)m->epoch,
		.chunk_bytes = s->p.chunk_bytes, .seg_bytes = s->p.seg_bytes, .route = aj->table,
		.nroutes = MAX(m->nservers, 1u),
	};

	if (aj->core)
		return;			/* said again: it runs already */
	j->number = m->job;
	while (j->p->agent[me] != agent)
		me++;
	ASSERT(m->nmachines == j->p->n && m->machines[me].node == s->agent[agent]->node);
	aj->me = d.me = me;
	d.nlocal = j->p->nlocal[me];
	sim_log_start(&aj->log, m);
	aj->log.told = aj->nback || m->epoch_seq ? m->seq : 0;	/* else it hears all of it */
	aj->log.epoch_seq = m->epoch_seq;
	aj->up_wire = sim_wire(msg);
	take_rows(s, aj, m->servers, m->nservers);
	fill_table(s, j, agent);
	aj->core = ag_job_start(&s->agent[agent]->core, sim_zeroed(sizeof(*aj->core)), &d);
	aj->epoch = aj->settled_told = m->epoch;
	aj->stuck = true;		/* what it said of its part before is over */
	aj->front.id = m->job;
	aj->front.world = j->p->world;
	for (uint32_t r = 0; r < j->p->world; r++)
		if (j->p->machine[r] == me) {
			j->rank[r].local = nlocal;
			aj->front.rank[nlocal++] = r;
		}
	aj->front.nlocal = nlocal;
	fr_job_start(&s->agent[agent]->front, &aj->front);
	if (m->ngone)			/* it has heard so late */
		enter_world(s, j, agent, m->gone, m->ngone, m->grown);
}

static void route_of(const struct sim_job *j, const struct sim_agent_job *aj, uint32_t k,
		     uint32_t *route)
{
	for (uint32_t c = 0; c < geom_chunks(&j->tensor[k].geom); c++)
		route[c] = j->p->n > 1 ? aj->log.owner[k][c] : 0;
}

static void forget_slabs(struct sim_agent *a, const struct sim_agent_tensor *at)
{
	for (uint32_t i = 0; at->result && i < a->nslabs; i++)
		for (uint32_t l = 0; l <= SIM_LOCAL + 1; l++) {
			const void *p = l < SIM_LOCAL ? (void *)at->input[l] :
					l == SIM_LOCAL ? at->result : at->sum;

			if (p && a->slab[i].base == p)
				a->slab[i] = (struct sim_slab){ 0 };
		}
}

/* Nobody gave any of it an input, so nothing of it is borrowed. */
static void tensor_forget(struct sim_agent *a, struct sim_agent_tensor *at)
{
	ASSERT(!at->mem);
	forget_slabs(a, at);
	for (uint32_t l = 0; l < SIM_LOCAL; l++)
		free(at->input[l]);
	free(at->result);
	free(at->marks);
	free(at->sum);
	*at = (struct sim_agent_tensor){ 0 };
}

/* round: that the others had finished when this machine came in. */
static void add_tensor(struct sim *s, const struct sim_job *j, uint32_t agent, uint32_t k,
		       uint32_t round)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[j->index];
	struct sim_agent_tensor *at = &aj->tensor[k];
	const struct sim_tensor *t = &j->tensor[k];
	uint32_t nlocal = aj->front.nlocal, route[SIM_CHUNKS];
	uint64_t bytes = t->geom.bytes, slot;
	const struct sim_agent_tensor *kept = aj->nback ? sim_back_tensor(a, j->index, k) : NULL;
	struct ag_tensor_desc d = { .id = aj->log.id[k], .dtype = t->dtype, .geom = t->geom,
				    .route = route, .since = aj->log.since[k] };

	d.whole = j->p->shrink;
	d.round = kept ? 0 : round;
	route_of(j, aj, k, route);
	tensor_forget(a, at);		/* of a declaration that was refused */
	at->kept = kept;
	at->elsewhere = kept ? kept->elsewhere : round;
	at->result = sim_garbage(s, 2 * bytes);
	at->marks = sim_zeroed(2 * ag_marks(&t->geom) * sizeof(uint64_t));
	if (kept) {
		memcpy(at->result, kept->result, 2 * bytes);
		memcpy(at->marks, kept->marks, 2 * ag_marks(&t->geom) * sizeof(uint64_t));
	}
	slot = slab_add(a, at->result, 2 * bytes);
	at->slab = SLOT_SLAB_ID(slot);
	for (int parity = 0; parity < 2; parity++) {
		d.result[parity] = (uint8_t *)at->result + (uint64_t)parity * bytes;
		d.result_slot[parity] = slot + (uint64_t)parity * bytes;
		d.mark[parity] = at->marks + (uint64_t)parity * ag_marks(&t->geom);
	}
	if (kept && !ag_desc_resume(&d, sim_back_round(s, j, agent, k)))
		sim_fail(s, "agent %u: tensor %u, results of a round are not all there", agent, k);
	if (nlocal > 1) {
		at->sum = sim_garbage(s, bytes);
		d.sum = at->sum;
		d.sum_slot = slab_add(a, at->sum, bytes);
	}
	for (uint32_t l = 0; l < nlocal; l++) {
		at->input[l] = kept ? kept->input[l] : sim_garbage(s, bytes);
		ASSERT(slab_add(a, at->input[l], bytes) != SLOT_NONE);
	}
	at->mem = sim_zeroed(ag_tensor_size(aj->core, &d));
	at->core = ag_tensor_add(&a->core, aj->core, at->mem, &d);
	at->front = sim_zeroed(fr_tensor_size(nlocal));
	at->front->id = aj->log.id[k];
	at->front->name = "simulated";
	at->front->bytes = bytes;
	at->front->chunk_bytes = d.geom.chunk_bytes;
	at->front->engines = bytes ? 1 : 0;
	at->front->round = d.round;
	fr_tensor_add(&a->front, &aj->front, at->front);
}

static void tensors(struct sim *s, struct sim_job *j, uint32_t agent, const struct msg_tensors *m)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	uint32_t first = aj->log.n;

	sim_log_tensors(s, &aj->log, j, m);
	for (uint32_t i = first; i < aj->log.n; i++)
		add_tensor(s, j, agent, aj->log.k[i], m->tensors[i - first].round);
	sim_declared(s, j, agent);
}

static void forget(struct sim *s, const struct sim_job *j, uint32_t agent, const struct msg_ids *m)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[j->index];
	uint64_t seq = MAX(aj->log.seq, aj->log.told);

	if (m->seq != seq + 1 && m->seq != seq &&	/* see catch_up() */
	    (m->nids || m->seq != seq + 2))
		sim_fail(s, "agent %u: FORGET entry %llu after %llu", agent,
			 (unsigned long long)m->seq, (unsigned long long)seq);
	sim_totals.caught_up += m->seq == seq;
	aj->log.seq = m->seq;
	for (uint32_t i = 0; i < m->nids; i++) {
		uint32_t k = sim_log_forget(&aj->log, m->ids[i]);
		struct sim_agent_tensor *at = &aj->tensor[k];

		if (k == SIM_NOBODY)
			continue;
		ag_tensor_remove(&a->core, at->core);
		fr_tensor_remove(&a->front, at->front);
		at->removed = true;
	}
	sim_agent_let_go(s, agent);
}

/* It registered anew, and has the job anew, or the job goes on without it as it lives. */
static bool has_let_go(const struct sim *s, const struct msg_epoch *m, uint32_t v)
{
	for (uint32_t i = 0; i < m->nservers; i++)
		if (!memcmp(m->servers[i].instance, s->server[v]->ctl.instance, ID_BYTES))
			return true;
	return false;
}

/* As leave_gone() of the daemon: nothing of a lost server lands any more. */
static void leave_gone(struct sim *s, uint32_t agent, struct sim_agent_job *aj,
		       const struct msg_epoch *m)
{
	for (uint32_t v = 0; v < s->nservers; v++) {
		struct sim_link *l = s->link[agent][v];

		if (!aj->route[v] || is_listed(aj, s->server[v]->node))
			continue;
		ag_route_gone(aj->route[v]);
		if (!aj->route[v]->users)
			continue;
		if (l->by_ref && s->server[v]->alive && !has_let_go(s, m, v))
			sim_fence(s, v);
		sim_link_fence(s, l);
	}
}

/* As ad_epoch_frozen(): the one engine has stopped, so what is whole is known at once. */
static void new_world(struct sim *s, struct sim_job *j, uint32_t agent, const struct msg_epoch *m)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[j->index];

	ag_job_freeze(aj->core);
	enter_world(s, j, agent, m->gone, m->ngone, m->grown);
	for (uint32_t i = 0; i < aj->log.n; i++) {
		struct sim_agent_tensor *at = &aj->tensor[aj->log.k[i]];

		if (!at->front->running)
			continue;
		fr_again(at->front);
		if (at->front->engines) {
			ag_tensor_again(&a->core, at->core);
		} else if (fr_all_posted(at->front)) {
			fr_finish(&a->front, at->front, sim_clock(s, sim_agent_proc(agent)));
			sim_round_done(s, j, agent, aj->log.k[i], at->front->round);
		}
	}
}

/* As ad_epoch_adopt(): what is lost, where to go, all segments, an end with the lost. */
static void epoch(struct sim *s, struct sim_job *j, uint32_t agent, const struct msg *msg)
{
	const struct msg_epoch *m = &msg->epoch;
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[j->index];
	uint32_t route[SIM_CHUNKS];
	bool larger = m->grown != aj->log.grown, anew = larger || m->ngone > aj->log.ngone;
	uint64_t live = aj->front.live, seq = MAX(aj->log.seq, aj->log.told);

	if ((m->seq != seq + 1 && m->seq != seq) || m->epoch <= aj->epoch)
		sim_fail(s, "agent %u: epoch %llu entry %llu after %llu entry %llu", agent,
			 (unsigned long long)m->epoch, (unsigned long long)m->seq,
			 (unsigned long long)aj->epoch, (unsigned long long)seq);
	sim_totals.caught_up += m->seq == seq;
	sim_log_epoch(s, &aj->log, m);
	free(aj->epoch_wire);
	aj->epoch_wire = sim_wire(msg);
	take_rows(s, aj, m->servers, m->nservers);
	if (j->p->n > 1) {
		leave_gone(s, agent, aj, m);
		fill_table(s, j, agent);
	}
	ag_job_epoch(&a->core, aj->core, (uint32_t)m->epoch, aj->table, MAX(aj->nrows, 1));
	if (anew)
		new_world(s, j, agent, m);
	sim_totals.grown += larger;
	sim_totals.shrunk += anew && !larger;
	for (uint32_t i = 0; j->p->n > 1 && i < aj->log.n; i++) {
		uint32_t k = aj->log.k[i];

		route_of(j, aj, k, route);
		sim_cover_move(aj->tensor[k].core, aj->table, route);
		ag_tensor_move(&a->core, aj->tensor[k].core, route, aj->log.since[k],
			       sim_clock(s, sim_agent_proc(agent)));
	}
	for (uint32_t v = 0; v < s->nservers; v++)
		if (aj->route[v] && aj->route[v]->gone)
			end_route(s, agent, aj, v);
	aj->epoch = m->epoch;
	if (anew)
		sim_grow_heard(s, j, agent, aj->front.live & ~live);
}

static uint32_t local_ranks_missing(const struct fr_job *fj, mono_t now, struct msg_wait *row)
{
	uint32_t n = 0;

	list_for_each(&fj->tensors, l) {
		const struct fr_tensor *t = list_entry(l, struct fr_tensor, link);

		for (uint32_t i = 0; i < fj->nlocal; i++)
			if (t->running && now - t->since >= mono_ms(STUCK_MS) &&
			    fr_unposted(t) >> i & 1)
				row[n++] = (struct msg_wait){
					.tensor = t->id, .round = t->round, .chunks = 1,
					.kind = WAIT_RANK, .who = fj->rank[i],
				};
	}
	return n;
}

/* As ad_stuck_look() and ad_stuck_tell(), on each heartbeat. */
void sim_agent_stuck(struct sim *s, uint32_t agent)
{
	struct msg_wait row[STUCK_ROWS_MAX];
	struct msg m = { .type = MSG_STUCK, .stuck = { .waits = row } };
	mono_t now = sim_clock(s, sim_agent_proc(agent));

	for (uint32_t i = 0; i < s->p.njobs; i++) {
		struct sim_agent_job *aj = &s->agent[agent]->job[i];
		uint32_t n;

		if (!aj->core || aj->core->stopped)
			continue;
		n = local_ranks_missing(&aj->front, now, row);
		list_for_each(&aj->core->tensors, l) {
			const struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

			if (t->running && !t->removed && now - t->since >= mono_ms(STUCK_MS))
				n += ag_waits_for(t, now, &row[n], STUCK_ROWS_MAX - n);
		}
		n = ag_waits_elsewhere(aj->core, row, n, STUCK_ROWS_MAX);
		m.stuck.job = aj->core->id;
		m.stuck.nwaits = n;
		sim_wait_said(s, agent, &m.stuck);
		if (n || aj->stuck)
			sim_ctl_send(s, sim_agent_proc(agent), &m);
		aj->stuck = n != 0;
	}
}

/*
 * Only a lost agent ends a job, and want of memory, for all others in the same way; or
 * one's own ranks do.
 */
static void job_down(struct sim *s, struct sim_job *j, uint32_t agent, const struct msg_job_down *m)
{
	struct sim_agent_job *aj = &s->agent[agent]->job[j->index];

	if (aj->over)
		return;
	if (aj->left) {
		sim_agent_stop_job(s, agent, j);
		return;
	}
	if (!sim_job_may_end(s, j) && sim_machine_lives(j, aj->me)) {
		sim_fail(s, "job %u has ended: %s", j->index, m->text);
		return;
	}
	/* It may have been told already, and have lost that with its connection. */
	if (m->code != TALLY_ESHUTDOWN &&
	    !(j->starved && (m->code == TALLY_ENOMEM || m->code == TALLY_ESERVERLOST)) &&
	    !((j->starved || sim_job_is_lost(s, j) || !sim_machine_lives(j, aj->me)) &&
	      m->code == TALLY_EWORKERLOST))
		sim_fail(s, "job %u has ended with %s: %s", j->index, err_name(m->code), m->text);
	sim_trace(s, "a%u: job %u is over: %s", agent, j->index, m->text);
	aj->code = m->code;
	if (m->code == TALLY_EWORKERLOST)
		sim_machine_lost(s, j, agent);
	sim_agent_stop_job(s, agent, j);
}

/* As ad_job_fail(): it does not follow the log any more, and the job cannot go on. */
static bool cannot_follow(struct sim *s, struct sim_job *j, uint32_t agent, const struct msg *m)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[j->index];
	const struct msg no = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = j->number, .rank = aj->front.rank[__builtin_ctzll(aj->front.live)],
		.code = TALLY_ENOMEM,
		.text = "out of memory",
	} };

	if (m->type == MSG_JOB_DOWN)
		return false;
	if (aj->starved_gen != a->ctl.gen && !sim_starves(s, j, true))
		return false;
	sim_trace(s, "a%u: job %u has no memory for %s", agent, j->index, msg_type_name(m->type));
	aj->starved_gen = a->ctl.gen;	/* on the next connection it hears it again */
	sim_ctl_send(s, sim_agent_proc(agent), &no);
	return true;
}

static void log_entry(struct sim *s, uint32_t agent, uint32_t number, const struct msg *m)
{
	struct sim_job *j = sim_job_of(s, number);

	if (!j || !s->agent[agent]->job[j->index].core || s->agent[agent]->job[j->index].over ||
	    cannot_follow(s, j, agent, m))
		return;
	switch (m->type) {
	case MSG_TENSORS: tensors(s, j, agent, &m->tensors); break;
	case MSG_FORGET: forget(s, j, agent, &m->ids); break;
	case MSG_EPOCH: epoch(s, j, agent, m); break;
	default: job_down(s, j, agent, &m->job_down); break;
	}
}

void sim_agent_take(struct sim *s, uint32_t agent, const struct msg *m)
{
	switch (m->type) {
	case MSG_JOB_UP: job_up(s, agent, m); break;
	case MSG_TENSORS: log_entry(s, agent, m->tensors.job, m); break;
	case MSG_FORGET: log_entry(s, agent, m->ids.job, m); break;
	case MSG_EPOCH: log_entry(s, agent, m->epoch.job, m); break;
	case MSG_JOB_DOWN: log_entry(s, agent, m->job_down.job, m); break;
	case MSG_REPLY: sim_answered(s, agent, &m->reply); break;
	default: break;
	}
}

void sim_agent_msg(struct sim *s, uint32_t agent, const struct msg *m)
{
	bool told = m->type == MSG_JOB_UP || m->type == MSG_TENSORS;

	if (m->type == MSG_REPLY && sim_back_answered(s, agent, &m->reply))
		return;
	if (!told || !sim_back_keeps(s, agent, m))
		sim_agent_take(s, agent, m);
}

/* As ad_epoch_tell(). */
void sim_agent_ready(struct sim *s, uint32_t agent, const struct sim_job *j)
{
	const struct sim_agent_job *aj = &s->agent[agent]->job[j->index];
	uint64_t rounds[SIM_TENSORS];
	struct msg m = { .type = MSG_EPOCH_READY, .ready = {
		.job = j->number, .seq = aj->settled_told, .text = "",
		.log = MAX(aj->log.seq, aj->log.told),
		.barrier = aj->barriers, .rounds = rounds,
	} };

	for (uint32_t i = 0; i < aj->log.n && m.ready.barrier < aj->log.grown_at &&
			     aj->settled_told == aj->epoch; i++) {
		const struct fr_tensor *t = aj->tensor[aj->log.k[i]].front;

		rounds[m.ready.nrounds++] = (uint64_t)aj->log.id[aj->log.k[i]] << 32 |
					    (t->running ? round_prev(t->round) : t->round);
	}
	sim_ctl_send(s, sim_agent_proc(agent), &m);
}

void sim_agent_turn(struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++) {
		struct sim_agent_job *aj = &s->agent[agent]->job[i];

		if (!aj->core || aj->over || !ag_job_settled(aj->core) ||
		    aj->settled_told == aj->epoch)
			continue;
		aj->settled_told = aj->epoch;
		s->job[i].last_move = s->now;
		sim_agent_ready(s, agent, &s->job[i]);
	}
}

/* ---- life ---- */

struct sim_agent *sim_agent_make(struct sim *s, uint32_t agent)
{
	struct sim_agent *a = s->agent[agent] = sim_zeroed(sizeof(*a));

	ag_init(&a->core);
	sim_clock_start(s, sim_agent_proc(agent));
	a->alive = true;
	a->core.tx_limit = s->p.tx_limit;
	fr_init(&a->front);
	memset(a->ctl.instance, 1 + (int)agent, ID_BYTES);
	return a;
}

void sim_agent_begin(struct sim *s, uint32_t agent)
{
	sim_ctl_connect(s, sim_agent_proc(agent));
	sim_at(s, mono_ms(HEARTBEAT_MS), &(struct sim_event){ .type = EV_BEAT,
		.proc = sim_agent_proc(agent), .a = sim_agent_proc(agent) });
	sim_at(s, (mono_t)sim_below(s, 20000000),
	       &(struct sim_event){ .type = EV_TICK, .proc = sim_agent_proc(agent), .a = agent });
}

void sim_agent_new(struct sim *s, uint32_t agent)
{
	(void)sim_agent_make(s, agent);
	sim_agent_begin(s, agent);
}

void sim_agent_ranks_lost(struct sim *s, struct sim_job *j, uint32_t agent)
{
	for (uint32_t r = 0; r < j->p->world; r++) {
		if (j->p->agent[j->p->machine[r]] != agent)
			continue;
		sim_ranks_lost(s, j, 1u << r);
		sim_ask_ended(j, r);
	}
}

/* The scheduler had no memory for a message to it, and a job may go on without. */
void sim_machine_lost(struct sim *s, struct sim_job *j, uint32_t agent)
{
	if (j->starved && j->p->shrink &&
	    sim_machine_lives(j, s->agent[agent]->job[j->index].me))
		sim_agent_ranks_lost(s, j, agent);
}

void sim_agent_crash(struct sim *s, uint32_t agent, bool for_good)
{
	struct sim_agent *a = s->agent[agent];

	sim_trace(s, "a%u dies", agent);
	sim_totals.agent_crashes++;
	a->alive = false;
	for (uint32_t i = 0; i < s->p.njobs; i++)
		sim_agent_ranks_lost(s, &s->job[i], agent);
	if (for_good && sim_chance(s, 300))	/* with its machine: nobody closes them */
		a->ctl.cut_until = MONO_NEVER;
	else
		sim_ctl_break(s, sim_agent_proc(agent), (mono_t)sim_below(s, 5000000));
	for (uint32_t v = 0; v < s->nservers; v++)
		for (struct sim_link *l = s->link[agent][v]; l; l = l->before)
			sim_link_died(s, l, 1);
}

void sim_rank_dies(struct sim *s, struct sim_job *j, uint32_t rank)
{
	const struct msg m = { .type = MSG_RANK_LEAVE, .rank_leave = {
		.job = j->number, .rank = rank, .code = TALLY_EWORKERLOST, .text = "killed",
	} };
	uint32_t agent = j->p->agent[j->p->machine[rank]];

	sim_trace(s, "job %u rank %u dies", j->index, rank);
	sim_totals.ranks_lost++;
	sim_ranks_lost(s, j, 1u << rank);
	sim_ask_ended(j, rank);
	sim_grow_lost(s, j, rank);
	if (!s->agent[agent]->alive)	/* nobody sees it, and it does not come back */
		return;
	sim_ctl_send(s, sim_agent_proc(agent), &m);
	sim_back_lost(s, agent, j, rank);
}

void sim_agent_stop_job(struct sim *s, uint32_t agent, const struct sim_job *j)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[j->index];

	if (!aj->over && aj->core && a->alive) {
		ag_job_stop(&a->core, aj->core);
		fr_job_stop(&a->front, &aj->front);
	}
	aj->over = true;
}

static bool let_go(struct sim_agent *a, struct sim_agent_job *aj)
{
	bool all = true;

	for (uint32_t k = 0; k < SIM_TENSORS; k++) {
		struct sim_agent_tensor *at = &aj->tensor[k];

		if (!at->mem || !at->removed)
			continue;
		if (at->core->borrowed) {
			all = false;
			continue;
		}
		ag_tensor_forget(&a->core, at->core);
		free(at->mem);
		free(at->front);
		at->mem = at->front = NULL;
		sim_totals.removed++;
	}
	return all;
}

void sim_agent_let_go(struct sim *s, uint32_t agent)
{
	bool all = true;

	for (uint32_t i = 0; i < s->p.njobs; i++)
		all &= let_go(s->agent[agent], &s->agent[agent]->job[i]);
	if (!all && !s->stopped)
		sim_at(s, 1000000, &(struct sim_event){ .type = EV_LET_GO,
			.proc = sim_agent_proc(agent), .a = sim_agent_proc(agent) });
}

static void add_counters(uint64_t *to, const uint64_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += from[i];
}

static void job_free(struct sim *s, struct sim_agent *a, struct sim_agent_job *aj)
{
	bool clean = !s->failed && a->alive;

	for (uint32_t k = 0; k < SIM_TENSORS; k++)
		aj->tensor[k].removed = true;
	if (clean)
		ASSERT(let_go(a, aj));
	for (uint32_t k = 0; k < SIM_TENSORS; k++) {
		free(aj->tensor[k].result);
		free(aj->tensor[k].marks);
		free(aj->tensor[k].sum);
		free(aj->tensor[k].mem);
		free(aj->tensor[k].front);
		for (uint32_t l = 0; l < SIM_LOCAL; l++)
			if (!aj->tensor[k].kept)
				free(aj->tensor[k].input[l]);	/* else the first's */
	}
	if (clean && aj->core)
		ag_job_forget(&a->core, aj->core);
	for (uint32_t v = 0; v < SIM_SERVERS; v++) {
		if (clean && aj->route[v])
			ag_route_del(aj->route[v]);
		free(aj->route[v]);
	}
	sim_log_fini(&aj->log);
	sim_back_drop(aj);
	free(aj->up_wire);
	free(aj->epoch_wire);
	free(aj->core);
}

/* Nothing of what it had of the job is left; false: some of it is still borrowed. */
bool sim_agent_anew(struct sim *s, uint32_t agent, const struct sim_job *j)
{
	struct sim_agent *a = s->agent[agent];
	struct sim_agent_job *aj = &a->job[j->index];

	for (uint32_t k = 0; k < SIM_TENSORS; k++)
		aj->tensor[k].removed = true;
	if (!let_go(a, aj))
		return false;
	for (uint32_t k = 0; k < SIM_TENSORS; k++)
		forget_slabs(a, &aj->tensor[k]);
	job_free(s, a, aj);
	*aj = (struct sim_agent_job){ 0 };
	return true;
}

static void agent_free(struct sim *s, struct sim_agent *a)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		job_free(s, a, &a->job[i]);
	add_counters((uint64_t *)&sim_totals.ag, (uint64_t *)&a->core.count,
		     sizeof(a->core.count) / sizeof(uint64_t));
	if (a->before)
		agent_free(s, a->before);
	free(a);
}

void sim_agent_free(struct sim *s, uint32_t agent)
{
	agent_free(s, s->agent[agent]);
}
