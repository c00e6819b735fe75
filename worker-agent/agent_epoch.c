// SPDX-License-Identifier: Apache-2.0
/*
 * Epochs of a job's placement: which server sums which chunk, from when on.
 *
 * The control thread replays the log entry as everybody does, allocates all that the
 * engines need for it, and mails it to them.  An engine adopts it in one turn: routes
 * to servers that are new, segments to their new owners (agent_core_move.c), an end
 * with servers that are gone.  When nothing of a job is with an older owner any more
 * in any engine, the scheduler hears that the epoch is followed.
 */
#include <stdlib.h>
#include <string.h>

#include "common/rt/log.h"
#include "worker-agent/agent.h"

/* ---- control thread: what an epoch is ---- */

/* A server that died while the job came up still has chunks, until an epoch moves them. */
static bool has_routes(const struct ad_server *sv)
{
	return sv->node || sv->weight;
}

static int copy_server(struct ad_job *j, struct ad_server *sv, const struct msg_server *m,
		       struct err *e)
{
	if (!m->engines || m->engines > ENGINES_MAX || m->naddrs > RAILS_MAX)
		return err_set(e, TALLY_EPROTO, "server %s has impossible numbers", m->name);
	sv->node = m->node;
	sv->engines = m->engines;
	sv->weight = m->weight;
	sv->local = j->agent->opt.no_shm ? false : !strcmp(m->machine, j->agent->machine) &&
						   m->shm_path[0];
	memcpy(sv->instance, m->instance, ID_BYTES);
	memcpy(sv->name, m->name, strlen(m->name) + 1);
	memcpy(sv->shm_path, m->shm_path, strlen(m->shm_path) + 1);
	sv->naddrs = m->naddrs;
	for (uint32_t i = 0; i < m->naddrs; i++) {
		memcpy(sv->addr[i].host, m->addrs[i].host, strlen(m->addrs[i].host) + 1);
		sv->addr[i].port = m->addrs[i].port;
		sv->addr[i].bits_per_s = m->addrs[i].bits_per_s;
	}
	return 0;
}

static int copy_servers(struct ad_epoch *ep, const struct msg_server *m, struct err *e)
{
	for (uint32_t i = 0; i < ep->nservers; i++) {
		int rc = copy_server(ep->job, &ep->servers[i], &m[i], e);

		if (rc)
			return rc;
		ep->servers[i].route = ep->nroutes;
		ep->nroutes += m[i].engines;
	}
	if (ep->job->n == 1)
		ep->nroutes = 1;	/* for ever the first epoch's */
	return 0;
}

static int add_block(struct ad_epoch *ep, uint32_t engine, uint64_t window_bytes)
{
	struct ad_route *r = calloc(1, sizeof(*r) + ag_route_size(window_bytes));

	if (!r)
		return TALLY_ENOMEM;
	r->window_bytes = window_bytes;
	r->core = (struct ag_route *)(r + 1);
	list_add(&ep->blocks[engine], &r->link);
	return ep->job->n > 1 ? ad_peers_reserve(&ep->spare[engine], 1) : 0;
}

static bool is_new(const struct ad_epoch *ep, uint32_t server)
{
	const struct ad_epoch *old = ep->before;

	return !old || server >= old->nservers ||
	       old->servers[server].node != ep->servers[server].node;
}

/* Memory for the routes that the engine does not have yet, in the order of their numbers. */
static int add_blocks(struct ad_epoch *ep, uint32_t engine)
{
	const struct ad_job *j = ep->job;
	uint32_t engines = j->engines;

	if (j->n == 1)
		return ep->before ? 0 : add_block(ep, engine, 0);
	for (uint32_t i = 0; i < ep->nservers; i++) {
		const struct ad_server *sv = &ep->servers[i];
		uint64_t window = geom_window(j->window_bytes, sv->engines, engines, j->seg_bytes);

		for (uint32_t e = 0; has_routes(sv) && is_new(ep, i) && e < sv->engines; e++) {
			uint64_t at;

			if (geom_engines_meet(engine, engines, e, sv->engines) &&
			    add_block(ep, engine, geom_window_part(window, engine, engines, e,
								   sv->engines, &at)))
				return TALLY_ENOMEM;
		}
	}
	return 0;
}

static int alloc_engines(struct ad_epoch *ep)
{
	for (uint32_t i = 0; i < ep->job->agent->nengines; i++) {
		ep->route[i] = calloc(ep->nroutes + 1, sizeof(struct ag_route *));
		if (!ep->route[i] || add_blocks(ep, i))
			return TALLY_ENOMEM;
	}
	return 0;
}

struct ad_epoch *ad_epoch_new(struct ad_job *j, uint64_t epoch, const struct msg_server *servers,
			      uint32_t nservers, struct err *e)
{
	struct ad_epoch *ep = calloc(1, sizeof(*ep));

	err_set(e, TALLY_ENOMEM, "out of memory");
	if (!ep)
		return NULL;
	ep->job = j;
	ep->epoch = epoch;
	ep->before = j->epoch;
	ep->nservers = nservers;
	ep->engines_left = j->agent->nengines;
	for (uint32_t i = 0; i < ENGINES_MAX; i++) {
		list_init(&ep->blocks[i]);
		list_init(&ep->spare[i]);
	}
	ep->servers = calloc(nservers + 1, sizeof(*ep->servers));
	if (ep->servers && !copy_servers(ep, servers, e) && !alloc_engines(ep))
		return ep;
	ep->before = NULL;		/* the job's still */
	ad_epoch_free(ep);
	return NULL;
}

static void free_moves(struct ad_epoch *ep)
{
	for (uint32_t i = 0; i < ep->nmoves; i++) {
		free(ep->move[i].route);
		free(ep->move[i].since);
	}
	free(ep->move);
	ep->move = NULL;
	ep->nmoves = 0;
}

static void free_routes(struct list *routes)
{
	while (!list_empty(routes)) {
		struct ad_route *r = list_first(routes, struct ad_route, link);

		list_del(&r->link);
		free(r);
	}
}

/* Frees the routes that engines had no time to let go of: only when the agent stops. */
void ad_routes_free(struct ad_job *j)
{
	for (uint32_t i = 0; i < j->agent->nengines; i++)
		free_routes(&j->routes[i]);
}

void ad_epoch_free(struct ad_epoch *ep)
{
	if (!ep)
		return;
	ad_epoch_free(ep->before);
	free_moves(ep);
	for (uint32_t i = 0; i < ENGINES_MAX; i++) {
		ad_peers_release(&ep->spare[i]);
		free_routes(&ep->blocks[i]);
		free(ep->route[i]);
	}
	free(ep->servers);
	free(ep->gone);
	free(ep);
}

/* The number of a chunk's route: its server, and which of the server's engines. */
uint32_t ad_epoch_route(const struct ad_epoch *ep, uint32_t tensor, uint32_t chunk, uint16_t owner)
{
	const struct ad_server *sv;

	if (ep->job->n == 1)
		return 0;
	ASSERT(owner < ep->nservers);
	sv = &ep->servers[owner];
	return sv->route + geom_shard(tensor, chunk, sv->engines);
}

/* ---- control thread: the log entry ---- */

static int replay(struct ad_job *j, const struct msg_epoch *m, uint32_t n, struct err *e)
{
	uint32_t weight[SERVERS_PER_JOB_MAX], at = 0;
	bool alive[SERVERS_PER_JOB_MAX], done;
	struct place_tensor *all = calloc(n + 1, sizeof(*all));
	const struct place_change c = {
		.epoch = (uint32_t)m->epoch, .repair = m->repair,
		.anew = m->ngone > j->ngone || m->grown != j->grown,
		.nservers = m->nservers, .weight = weight, .alive = alive,
		.nplaced = m->nplaced, .placed = m->placed,
	};

	if (!all)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	list_for_each(&j->tensors, l)
		all[at++] = list_entry(l, struct ad_tensor, link)->placed;
	for (uint32_t i = 0; i < m->nservers; i++) {
		weight[i] = m->servers[i].weight;
		alive[i] = m->servers[i].node != 0;
	}
	done = place_epoch(j->place, &c, all, n);
	free(all);
	return done ? 0 : err_set(e, TALLY_EPROTO, "job %u epoch %llu: chunks where they cannot "
				  "be", j->id, (unsigned long long)m->epoch);
}

static int fill_move(struct ad_epoch *ep, struct ad_move *mv, struct ad_tensor *t)
{
	uint32_t chunks = place_chunks(ep->job->place, t->placed.bytes);

	mv->tensor = t;
	mv->route = calloc(chunks + 1, sizeof(uint32_t));
	mv->since = calloc(chunks + 1, sizeof(uint32_t));
	if (!mv->route || !mv->since)
		return TALLY_ENOMEM;
	for (uint32_t c = 0; c < chunks; c++) {
		mv->route[c] = ad_epoch_route(ep, t->id, c, t->placed.owner[c]);
		mv->since[c] = t->placed.since[c];
	}
	return 0;
}

static int fill_moves(struct ad_epoch *ep, const struct msg_epoch *m, struct err *e)
{
	struct ad_job *j = ep->job;
	uint32_t n = 0;
	int rc;

	if (j->n == 1)
		return 0;
	list_for_each(&j->tensors, l)
		n++;
	ep->move = calloc(n + 1, sizeof(*ep->move));
	rc = ep->move ? replay(j, m, n, e) : err_set(e, TALLY_ENOMEM, "out of memory");
	if (rc)
		return rc;
	list_for_each(&j->tensors, l) {
		if (fill_move(ep, &ep->move[ep->nmoves++], list_entry(l, struct ad_tensor, link)))
			return err_set(e, TALLY_ENOMEM, "out of memory");
	}
	return 0;
}

static int keep_wire(struct ad_job *j, const struct msg *m, struct err *e)
{
	uint32_t bytes;
	uint8_t *wire;
	struct msg plain = *m;
	int rc;

	plain.epoch.nplaced = 0;	/* told anew for each tensor */
	rc = msg_encode_size(&plain, &bytes, e);
	if (rc)
		return rc;
	wire = malloc(bytes);
	if (!wire)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	rc = msg_encode(&plain, wire, bytes, e);
	if (rc) {
		free(wire);
		return rc;
	}
	free(j->epoch_wire);
	j->epoch_wire = wire;
	return 0;
}

/* As FORGET, it may come with the number of the last entry. */
static int check(const struct ad_job *j, const struct msg_epoch *m, struct err *e)
{
	if (m->seq != j->seq + 1 && m->seq != j->seq)
		return err_set(e, TALLY_EPROTO, "job %u log entry %llu after %llu", m->job,
			       (unsigned long long)m->seq, (unsigned long long)j->seq);
	if (m->epoch <= j->epoch->epoch || m->nservers < j->epoch->nservers ||
	    (j->n == 1) == (m->nservers > 0) ||
	    (m->ngone < j->ngone && m->grown == j->grown) || (m->ngone && !j->shrink))
		return err_set(e, TALLY_EPROTO, "job %u epoch %llu after %llu cannot be", m->job,
			       (unsigned long long)m->epoch, (unsigned long long)j->epoch->epoch);
	return 0;
}

int ad_epoch(struct agent *a, const struct msg *msg, struct err *e)
{
	const struct msg_epoch *m = &msg->epoch;
	struct ad_job *j = ad_job_find(a, m->job);
	struct ad_epoch *ep;
	int rc;

	if (!j || j->state == JOB_STOPPING)
		return 0;
	rc = check(j, m, e);
	if (rc)
		return rc;
	ep = ad_epoch_new(j, m->epoch, m->servers, m->nservers, e);
	if (!ep)
		return e->code;
	rc = ad_shrink_fill(ep, m, e);
	rc = rc ? rc : fill_moves(ep, m, e);
	rc = rc ? rc : keep_wire(j, msg, e);
	if (rc) {
		ep->before = NULL;	/* the job's still */
		ad_epoch_free(ep);
		return rc;
	}
	j->seq = j->epoch_seq = m->seq;
	j->epoch = ep;
	log_info("job %u '%s' epoch %llu, %s", j->id, j->name, (unsigned long long)m->epoch,
		 ep->anew && m->grown != j->grown ? "ranks have come back" :
		 ep->anew ? "it goes on without ranks that are lost" :
		 m->repair ? "a lost server's chunks move" : "chunks move to new shares");
	ad_shrink_take(j, ep, m);
	for (uint32_t i = 0; i < a->nengines; i++)
		ad_engine_tell(a->engine[i], AD_EPOCH, &ep, sizeof(ep));
	return 0;
}

void ad_epoch_taken(struct ad_epoch *ep)
{
	if (--ep->engines_left)
		return;
	free_moves(ep);
	ad_epoch_free(ep->before);
	ep->before = NULL;
	if (ep->anew && ep->job->state != JOB_STOPPING)
		ad_shrink_done(ep->job);
}

/* While ranks come in: a machine may come with them that has nothing of the job. */
static uint64_t *tell_rounds(struct ad_job *j, struct msg_ready *m)
{
	uint64_t *rounds;
	uint32_t n = 0;

	if (j->barriers >= j->grown_at || j->told_settled != j->epoch->epoch)
		return NULL;
	list_for_each(&j->tensors, l)
		n++;
	rounds = calloc(n + 1, sizeof(*rounds));
	if (!rounds)
		return NULL;
	list_for_each(&j->tensors, l) {
		const struct ad_tensor *t = list_entry(l, struct ad_tensor, link);

		rounds[m->nrounds++] = (uint64_t)t->id << 32 | t->round;
	}
	m->rounds = rounds;
	return rounds;
}

void ad_epoch_tell(struct ad_job *j)
{
	struct msg m = {
		.type = MSG_EPOCH_READY,
		.ready = { .job = j->id, .seq = j->told_settled, .text = "", .log = j->seq,
			   .barrier = j->barriers },
	};
	uint64_t *rounds = tell_rounds(j, &m.ready);

	(void)ad_tell_scheduler(j->agent, &m);
	free(rounds);
}

void ad_epoch_settled(struct agent *a, const struct ad_settled_mail *m)
{
	struct ad_job *j = ad_job_find(a, m->job);
	uint64_t least = UINT64_MAX;

	if (!j || j->state == JOB_STOPPING)
		return;
	j->settled[m->engine] = m->epoch;
	for (uint32_t i = 0; i < a->nengines; i++)
		least = MIN(least, j->settled[i]);
	if (least <= j->told_settled)
		return;
	j->told_settled = least;
	ad_epoch_tell(j);
}

/* ---- an engine ---- */

static struct ad_route *route_find(struct ad_engine *en, struct ad_job *j, uint32_t node,
				   uint32_t server_engine)
{
	list_for_each(&j->routes[en->index], l) {
		struct ad_route *r = list_entry(l, struct ad_route, link);

		if (r->node == node && r->server_engine == server_engine && !r->core->gone)
			return r;
	}
	return NULL;
}

static struct ad_route *route_new(struct ad_engine *en, struct ad_epoch *ep, uint64_t window_at,
				  const struct ad_server *sv, uint32_t server_engine)
{
	struct ad_route *r = list_first(&ep->blocks[en->index], struct ad_route, link);

	list_del(&r->link);
	list_add(&ep->job->routes[en->index], &r->link);
	r->server_engine = server_engine;
	if (sv) {
		r->node = sv->node;
		r->peer = ad_peer_get(en, ep->job, &ep->spare[en->index], sv, server_engine);
	}
	ag_route_init(r->core, r->peer, window_at, r->window_bytes, loop_now());
	return r;
}

static void fill_routes(struct ad_engine *en, struct ad_epoch *ep, const struct ad_server *sv)
{
	const struct ad_job *j = ep->job;
	uint32_t engines = j->engines;
	uint64_t window = geom_window(j->window_bytes, sv->engines, engines, j->seg_bytes), at;

	for (uint32_t e = 0; has_routes(sv) && e < sv->engines; e++) {
		struct ad_route *r;

		if (!geom_engines_meet(en->index, engines, e, sv->engines))
			continue;
		(void)geom_window_part(window, en->index, engines, e, sv->engines, &at);
		r = route_find(en, ep->job, sv->node, e);
		if (r)
			ad_peer_learn(r->peer, sv);
		else
			r = route_new(en, ep, at, sv, e);
		ep->route[en->index][sv->route + e] = r->core;
	}
}

static void fill_table(struct ad_engine *en, struct ad_epoch *ep)
{
	const struct ad_epoch *old = ep->job->view[en->index];

	if (ep->job->n == 1)
		ep->route[en->index][0] = old ? old->route[en->index][0] :
					  route_new(en, ep, 0, NULL, 0)->core;
	for (uint32_t i = 0; ep->job->n > 1 && i < ep->nservers; i++)
		fill_routes(en, ep, &ep->servers[i]);
	ad_peers_release(&ep->spare[en->index]);
	ep->job->view[en->index] = ep;
	ep->job->settled_told[en->index] = ep->job->settled_told[en->index] ?
					   ep->job->settled_told[en->index] : ep->epoch;
}

void ad_epoch_begin(struct ad_engine *en, struct ad_job *j)
{
	fill_table(en, j->first);
}

static bool is_listed(const struct ad_epoch *ep, uint32_t node)
{
	for (uint32_t i = 0; i < ep->nservers; i++)
		if (ep->servers[i].node == node)
			return true;
	return false;
}

/* A server that registered anew, and has the job anew, has let go of what it had before. So
 * has one that the job goes on without because it cannot be reached: it is gone, and named. */
static bool has_let_go(const struct ad_epoch *ep, const struct ad_epoch *old, uint32_t node)
{
	static const uint8_t unknown[ID_BYTES];

	for (uint32_t i = 0; i < old->nservers; i++) {
		if (old->servers[i].node != node ||
		    !memcmp(old->servers[i].instance, unknown, ID_BYTES))
			continue;
		for (uint32_t k = 0; k < ep->nservers; k++)
			if (!memcmp(ep->servers[k].instance, old->servers[i].instance, ID_BYTES))
				return true;
	}
	return false;
}

/* Leaves servers that are gone: what they have will not come back from there. */
static void leave_gone(struct ad_engine *en, struct ad_epoch *ep)
{
	const struct ad_epoch *old = ep->job->view[en->index];

	list_for_each(&ep->job->routes[en->index], l) {
		struct ad_route *r = list_entry(l, struct ad_route, link);

		if (ep->job->n == 1 || (r->node && is_listed(ep, r->node)))
			continue;
		ag_route_gone(r->core);
		if (r->core->users)
			ad_peer_fence(r->peer, has_let_go(ep, old, r->node));
	}
}

static void route_free(struct ad_route *r)
{
	ag_route_del(r->core);
	if (r->peer)
		ad_peer_put(r->peer);
	list_del(&r->link);
	free(r);
}

/*
 * Whether a server had no part in the job, and so no place for the job's memory, while the link
 * was up.
 */
static bool takes_part_anew(const struct ad_epoch *ep, const struct ad_epoch *old, uint32_t i)
{
	const struct ad_server *sv = &ep->servers[i];

	return sv->weight && (i >= old->nservers || old->servers[i].node != sv->node ||
			      !old->servers[i].weight);
}

static void show_anew(struct ad_engine *en, struct ad_epoch *ep, const struct ad_epoch *old)
{
	for (uint32_t i = 0; i < ep->nservers; i++) {
		const struct ad_server *sv = &ep->servers[i];

		for (uint32_t e = 0; takes_part_anew(ep, old, i) && e < sv->engines; e++) {
			const struct ag_route *r = ep->route[en->index][sv->route + e];

			if (r && r->peer)
				ad_links_show_job(en, r->peer, ep->job->id);
		}
	}
}

static void enter_world(struct ad_engine *en, const struct ad_epoch *ep)
{
	struct ag_job *c = ep->job->core[en->index];

	ag_job_shrink(c, ep->live, ep->job->world - ep->ngone);
	list_for_each(&c->tensors, l) {
		struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

		if (((const struct ad_tensor *)t->user)->again && t->round)
			ag_tensor_again(&en->core, t);
	}
}

void ad_epoch_adopt(struct ad_engine *en, struct ad_epoch *ep)
{
	struct ad_job *j = ep->job;
	const struct ad_epoch *old = j->view[en->index];
	mono_t now = loop_now();

	leave_gone(en, ep);
	fill_table(en, ep);
	ag_job_epoch(&en->core, j->core[en->index], (uint32_t)ep->epoch, ep->route[en->index],
		     ep->nroutes);
	show_anew(en, ep, old);
	if (ep->anew)
		enter_world(en, ep);
	for (uint32_t i = 0; i < ep->nmoves; i++) {
		const struct ad_move *mv = &ep->move[i];

		ag_tensor_move(&en->core, mv->tensor->core[en->index], mv->route, mv->since, now);
	}
	list_for_each_safe(&j->routes[en->index], l, next) {
		struct ad_route *r = list_entry(l, struct ad_route, link);

		if (r->core->gone)
			route_free(r);
	}
	ad_tell_control(en, AD_EPOCH_TAKEN, &ep, sizeof(ep));
}

void ad_epoch_turn(struct ad_engine *en)
{
	list_for_each(&en->core.jobs, l) {
		const struct ag_job *c = list_entry(l, struct ag_job, link);
		struct ad_job *j = c->user;
		struct ad_settled_mail m = { c->id, en->index, j->view[en->index]->epoch };

		if (!c->stopped)
			ad_shrink_turn(en, j);
		if (c->stopped || !ag_job_settled(c) || j->settled_told[en->index] == m.epoch)
			continue;
		j->settled_told[en->index] = m.epoch;
		ad_tell_control(en, AD_SETTLED, &m, sizeof(m));
	}
}

void ad_epoch_end(struct ad_engine *en, struct ad_job *j)
{
	while (!list_empty(&j->routes[en->index]))
		route_free(list_first(&j->routes[en->index], struct ad_route, link));
}
