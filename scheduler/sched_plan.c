// SPDX-License-Identifier: Apache-2.0
/*
 * sched_plan.c - who takes part in a job, and how much each server sums.
 *
 * Workers are the job's agents by their lowest rank.  Every server that is up is
 * listed, by number, whatever its share: placement indexes never move.  The
 * planner wants machines: an agent's machine has a colocated server when one
 * says the same machine id.  Where several agents run on one machine (a test
 * cluster) they share its servers out one each; what they leave over, and every
 * machine without an agent, is a CPU machine.  Servers of one machine divide its
 * share by how fast they add.
 */
#include "common/base/parse.h"
#include "scheduler/sched.h"

#include <stdio.h>

/* ---- who ---- */

static uint32_t mark_machines(struct sched *s, struct sched_job *j)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->nnodes; i++)
		s->nodes[i]->mark = UINT32_MAX;
	for (uint32_t r = 0; r < j->world; r++) {
		if (j->ranks[r].node->mark == UINT32_MAX)
			j->ranks[r].node->mark = n++;
		j->ranks[r].machine = j->ranks[r].node->mark;
	}
	return n;
}

static void part_set(struct sched_part *p, struct sched_node *n)
{
	p->node = n;
	p->engines = n->engines;
	p->number = n->number;
	snprintf(p->name, sizeof(p->name), "%s", n->name);
}

static bool can_serve(const struct sched_node *n)
{
	return n->kind == NODE_SERVER && n->state == SN_UP && !n->draining;
}

bool plan_any_stays(const struct sched_job *j)
{
	for (uint32_t i = 0; i < j->nservers; i++)
		if (part_answers(&j->servers[i]) && !j->servers[i].node->draining)
			return true;
	return false;
}

bool plan_can_serve(const struct sched_job *j, const struct sched_part *p)
{
	return part_answers(p) && (!p->node->draining || !plan_any_stays(j));
}

static uint32_t count_servers(const struct sched *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->nnodes; i++)
		n += can_serve(s->nodes[i]);
	return MIN(n, SERVERS_PER_JOB_MAX);
}

static int choose_parts(struct sched *s, struct sched_job *j, struct err *e)
{
	uint32_t n = mark_machines(s, j), k = n > 1 ? count_servers(s) : 0;

	if (n > AGENTS_PER_JOB_MAX)
		return err_set(e, TALLY_EQUOTA, "job '%.128s' spans %u machines, %u are possible",
			       j->name, n, AGENTS_PER_JOB_MAX);
	j->machines = sched_alloc(s, n * sizeof(*j->machines));
	j->servers = sched_alloc(s, MAX(k, 1) * sizeof(*j->servers));
	if (!j->machines || !j->servers)
		return err_set(e, TALLY_ENOMEM, "the scheduler is out of memory");
	for (uint32_t r = 0; r < j->world; r++)
		part_set(&j->machines[j->ranks[r].machine], j->ranks[r].node);
	j->nmachines = n;
	j->servers_room = MAX(k, 1);
	for (uint32_t i = 0; i < s->nnodes && j->nservers < k; i++) {
		if (can_serve(s->nodes[i]))
			part_set(&j->servers[j->nservers++], s->nodes[i]);
	}
	return 0;
}

/* ---- how much ---- */

static uint64_t card_bits(const struct sched_node *n)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < n->naddrs; i++)
		bits += n->addrs[i].bits_per_s;
	return bits ? bits : CARD_BITS_UNKNOWN;
}

/* 0 means "not the limit", and stays that in any company. */
static uint64_t add_rate(uint64_t sum, uint64_t rate, bool first)
{
	if (first)
		return rate;
	return sum && rate ? sum + rate : 0;
}

struct layout {
	struct plan_machine *m;		/* agents' machines, then CPU machines */
	const struct sched_node **host;	/* one node of each, for its machine id */
	uint32_t n, agents;
	uint32_t *of;			/* server -> machine */
};

static uint32_t machine_for(struct layout *l, const struct sched_node *server)
{
	uint32_t agents = 0;

	for (uint32_t i = 0; i < l->agents; i++)
		agents += !strcmp(l->host[i]->machine, server->machine);
	for (uint32_t i = 0; i < l->n; i++) {
		bool taken = i < l->agents && agents > 1 && l->m[i].has_server;

		if (!taken && !strcmp(l->host[i]->machine, server->machine))
			return i;
	}
	l->host[l->n] = server;
	return l->n++;
}

static int lay_out(struct sched *s, const struct sched_job *j, struct layout *l)
{
	uint32_t max = j->nmachines + j->nservers;

	l->m = out_scratch(s, max * sizeof(*l->m));
	l->host = out_scratch(s, max * sizeof(*l->host));
	l->of = out_scratch(s, max * sizeof(*l->of));
	if (!l->m || !l->host || !l->of)
		return TALLY_ENOMEM;
	for (uint32_t i = 0; i < j->nmachines; i++) {
		const struct sched_node *n = grow_node(j, i);

		if (!n)
			continue;	/* all its ranks are lost */
		l->host[l->n] = n;
		l->m[l->n].is_gpu = true;
		l->m[l->n++].bits_per_s = card_bits(n);
	}
	l->agents = l->n;
	for (uint32_t i = 0; i < j->nservers; i++) {
		const struct sched_node *server = j->servers[i].node;
		struct plan_machine *m;
		uint32_t at;

		l->of[i] = UINT32_MAX;
		if (!plan_can_serve(j, &j->servers[i]))
			continue;
		at = machine_for(l, server);
		m = &l->m[at];
		l->of[i] = at;
		m->adder_bytes_per_s = add_rate(m->adder_bytes_per_s, server->adder_bytes_per_s,
						!m->has_server);
		m->has_server = true;
		if (!m->is_gpu)
			m->bits_per_s = MAX(m->bits_per_s, card_bits(server));
	}
	return 0;
}

/* Divides a machine's share among its servers: by adder, or evenly. */
static double server_share(const struct sched_job *j, const struct layout *l, const double *share,
			   uint32_t server)
{
	uint32_t at = l->of[server], mates = 0;
	uint64_t sum;

	if (at == UINT32_MAX)
		return 0;
	sum = l->m[at].adder_bytes_per_s;
	if (sum)
		return share[at] * (double)j->servers[server].node->adder_bytes_per_s / (double)sum;
	for (uint32_t i = 0; i < j->nservers; i++)
		mates += l->of[i] == at;
	return share[at] / mates;
}

/* Asks the planner for each server's share, in parts of all; NULL: it cannot. */
static const double *shares_of(struct sched *s, const struct sched_job *j, double *seconds,
			       struct err *e)
{
	uint32_t max = j->nmachines + j->nservers;
	double *share = out_scratch(s, max * sizeof(*share));
	double *each = out_scratch(s, max * sizeof(*each));
	struct layout l = { 0 };
	struct plan plan;

	if (!share || !each || lay_out(s, j, &l)) {
		err_set(e, TALLY_ENOMEM, "the scheduler is out of memory");
		return NULL;
	}
	if (plan_solve(l.m, l.n, SCHED_NOMINAL_BYTES, share, &plan, e)) {
		err_wrap(e, "job '%.128s'", j->name);
		return NULL;
	}
	*seconds = plan.round_time_s / SCHED_NOMINAL_BYTES;
	/* One machine that is left of several still sums by way of servers. */
	for (uint32_t i = 0; i < j->nservers; i++)
		each[i] = l.agents > 1 ? server_share(j, &l, share, i) : l.of[i] != UINT32_MAX;
	return each;
}

int plan_weights_of(struct sched *s, struct sched_job *j, struct err *e)
{
	double *each = out_scratch(s, MAX(j->nservers, 1) * sizeof(*each));
	uint32_t *weight = out_scratch(s, MAX(j->nservers, 1) * sizeof(*weight));
	const double *planned = shares_of(s, j, &j->seconds_per_byte, e);

	if (!planned)
		return e->code;
	if (!each || !weight)
		return err_set(e, TALLY_ENOMEM, "the scheduler is out of memory");
	for (uint32_t i = 0; i < j->nservers; i++) {
		j->servers[i].pace.planned = planned[i];
		each[i] = planned[i] * pace_of(j->servers[i].pace.pace);
	}
	plan_weights(each, j->nservers, weight);
	for (uint32_t i = 0; i < j->nservers; i++)
		j->servers[i].weight = weight[i];
	return 0;
}

/* Whether a server has chunks, and may keep them. */
static bool keeps(const struct sched_job *j, const struct sched_part *p)
{
	return part_answers(p) && !p->node->draining && epoch_has_chunks(j, p);
}

/* In bytes, as it said them last; who has just joined has not counted its windows yet. */
static uint64_t room_of(const struct sched_job *j, const struct sched_part *p)
{
	const struct sched_node *n = p->node;
	uint64_t used = n->last.memory_used_bytes;

	if (!n->memory_bytes)
		return UINT64_MAX;		/* it has not said how much it has */
	if (n->beat == p->from)
		used += (uint64_t)j->nmachines * j->window_bytes;
	return n->memory_bytes - MIN(used, n->memory_bytes);
}

struct sched_part *plan_without_room(struct sched *s, struct sched_job *j, struct err *why)
{
	bool any_keeps = false, any_fresh = false;
	const double *share;
	double sum = 0, seconds;

	for (uint32_t i = 0; i < j->nservers; i++) {
		any_keeps |= keeps(j, &j->servers[i]);
		any_fresh |= j->servers[i].fresh;
	}
	share = any_keeps && any_fresh ? shares_of(s, j, &seconds, why) : NULL;
	for (uint32_t i = 0; share && i < j->nservers; i++)
		sum += share[i] * pace_of(j->servers[i].pace.pace);
	for (uint32_t i = 0; share && i < j->nservers; i++) {
		struct sched_part *p = &j->servers[i];
		char need[32], have[32];
		uint64_t bytes, room;

		if (!p->fresh || !plan_can_serve(j, p) || epoch_has_chunks(j, p) ||
		    p->node->state != SN_UP)
			continue;
		bytes = (uint64_t)(share[i] * pace_of(p->pace.pace) / sum * (double)j->bytes);
		room = room_of(j, p);
		if (bytes <= room)
			continue;
		err_set(why, TALLY_EQUOTA, "its share needs %s, free are %s (--memory)",
			fmt_bytes(need, sizeof(need), bytes), fmt_bytes(have, sizeof(have), room));
		return p;
	}
	return NULL;
}

/* All agents' windows take at most a quarter of the smallest server. */
static uint32_t window_in_memory(const struct sched_job *j, uint32_t window)
{
	uint64_t memory = UINT64_MAX;

	for (uint32_t i = 0; i < j->nservers; i++)
		if (j->servers[i].node->memory_bytes)
			memory = MIN(memory, j->servers[i].node->memory_bytes);
	while (window > WINDOW_BYTES_MIN && (uint64_t)j->nmachines * window > memory / 4)
		window = MAX(window / 2, WINDOW_BYTES_MIN);
	return window;
}

static void set_sizes(const struct sched *s, struct sched_job *j)
{
	uint64_t slowest = UINT64_MAX, fastest = 0;
	struct place_sizes z;

	for (uint32_t i = 0; i < j->nmachines; i++)
		slowest = MIN(slowest, card_bits(j->machines[i].node));
	for (uint32_t i = 0; i < j->nservers; i++) {
		slowest = MIN(slowest, card_bits(j->servers[i].node));
		fastest = MAX(fastest, card_bits(j->servers[i].node));
	}
	place_sizes(&z, j->chunk_bytes, j->nmachines > 1 ? j->nservers : 0, slowest, fastest);
	j->chunk_bytes = z.chunk_bytes;
	j->seg_bytes = z.seg_bytes;
	if (s->config.window_bytes)
		z.window_bytes = s->config.window_bytes;
	j->window_bytes = window_in_memory(j, z.window_bytes);
}

int plan_job(struct sched *s, struct sched_job *j, struct err *e)
{
	int err = choose_parts(s, j, e);

	if (!err && j->nservers)
		err = plan_weights_of(s, j, e);
	if (err)
		return err;
	set_sizes(s, j);
	if (!sched_take_epoch(s, &j->epoch))
		return err_set(e, TALLY_EIO, "the scheduler cannot save its state just now");
	j->settled = j->epoch;
	return place_new(s, j) ? 0 : err_set(e, TALLY_ENOMEM, "the scheduler is out of memory");
}

/* ---- the message ---- */

static bool fill_machine(struct sched *s, const struct sched_job *j, uint32_t i, bool with_keys,
			 struct msg_machine *m)
{
	const struct sched_part *p = &j->machines[i];
	const struct sched_node *n = p->node;
	uint32_t *ranks, count = 0;

	for (uint32_t r = 0; r < j->world; r++)
		count += j->ranks[r].machine == i;
	ranks = out_scratch(s, count * sizeof(*ranks));
	if (!ranks)
		return false;
	*m = (struct msg_machine){
		.node = p->number, .name = out_string(s, p->name), .ranks = ranks, .machine = "",
		.engines = p->engines,
	};
	if (n) {
		m->node = n->number;
		m->machine = out_string(s, n->machine);
		m->bits_per_s = card_bits(n);
		m->engines = n->engines;
	}
	if (with_keys)
		(void)key_of(s, p, m->link_key);	/* else zeros: no news */
	for (uint32_t r = 0; r < j->world; r++) {
		if (j->ranks[r].machine == i)
			ranks[m->nranks++] = r;
	}
	return true;
}

static bool fill_server(struct sched *s, const struct sched_part *p, struct msg_server *m)
{
	const struct sched_node *n = p->node;
	struct msg_addr *addrs;

	if (!n) {
		*m = (struct msg_server){
			.node = p->number, .name = out_string(s, p->name),
			.machine = "", .shm_path = "",
			.engines = p->engines, .weight = p->weight,
		};
		memcpy(m->instance, p->let_go, ID_BYTES);
		return true;
	}
	addrs = out_scratch(s, MAX(n->naddrs, 1) * sizeof(*addrs));
	if (!addrs)
		return false;
	for (uint32_t i = 0; i < n->naddrs; i++)
		addrs[i] = (struct msg_addr){
			.host = out_string(s, n->addrs[i].host), .port = n->addrs[i].port,
			.bits_per_s = n->addrs[i].bits_per_s,
		};
	*m = (struct msg_server){
		.node = p->number, .name = out_string(s, n->name),
		.machine = out_string(s, n->machine), .shm_path = out_string(s, n->shm_path),
		.engines = n->engines, .weight = p->weight, .naddrs = n->naddrs, .addrs = addrs,
	};
	memcpy(m->instance, n->instance, ID_BYTES);
	return true;
}

static struct msg_server *fill_servers(struct sched *s, const struct sched_job *j)
{
	struct msg_server *servers = out_scratch(s, MAX(j->nservers, 1) * sizeof(*servers));

	for (uint32_t i = 0; servers && i < j->nservers; i++) {
		if (!fill_server(s, &j->servers[i], &servers[i]))
			return NULL;
	}
	return servers;
}

/* The rows that it placed: servers that were offered the job since come with the next one,
 * and everybody hears the same, whenever that is. */
struct msg *plan_epoch(struct sched *s, const struct sched_job *j)
{
	struct msg *m = out_msg(s, MSG_EPOCH);
	struct msg_server *servers = fill_servers(s, j);

	uint32_t ngone;
	const uint32_t *gone = shrink_gone(s, j, &ngone);
	uint32_t njoined;
	const uint32_t *joined = grow_joined(s, j, &njoined);

	if (!m || !servers || !gone || !joined)
		return NULL;
	m->epoch = (struct msg_epoch){
		.job = j->number, .seq = j->epoch_seq, .epoch = j->epoch, .repair = j->repair,
		.nservers = j->place->nservers, .servers = servers,
		.ngone = ngone, .gone = gone,
		.grown = j->grown, .grown_at = j->grown_at, .njoined = njoined, .joined = joined,
	};
	return m;
}

/* NULL: no memory. */
static const uint32_t *fill_left(struct sched *s, const struct sched_job *j, uint32_t *n)
{
	uint32_t *out = out_scratch(s, (j->nleft + 1) * sizeof(*out));

	*n = 0;
	for (uint32_t r = 0; out && r < j->world; r++)
		if (j->ranks[r].state == SR_LEFT)
			out[(*n)++] = r;
	return out;
}

const struct msg *plan_job_up(struct sched *s, const struct sched_job *j, uint32_t nservers,
			      bool with_keys)
{
	struct msg *m = out_msg(s, MSG_JOB_UP);
	struct msg_machine *machines = out_scratch(s, j->nmachines * sizeof(*machines));
	struct msg_server *servers = fill_servers(s, j);

	uint32_t ngone;
	const uint32_t *gone = shrink_gone(s, j, &ngone);
	uint32_t njoined;
	const uint32_t *joined = grow_joined(s, j, &njoined);
	uint32_t nleft;
	const uint32_t *left = fill_left(s, j, &nleft);

	if (!m || !machines || !servers || !gone || !joined || !left)
		return NULL;
	for (uint32_t i = 0; i < j->nmachines; i++) {
		if (!fill_machine(s, j, i, with_keys, &machines[i]))
			return NULL;
	}
	m->job_up = (struct msg_job_up){
		.job = j->number, .name = out_string(s, j->name), .world = j->world,
		.epoch = j->epoch, .algorithm = PLACE_ALGORITHM, .chunk_bytes = j->chunk_bytes,
		.seg_bytes = j->seg_bytes, .window_bytes = j->window_bytes,
		.nmachines = j->nmachines, .machines = machines,
		.nservers = nservers, .servers = servers, .seq = j->seq, .epoch_seq = j->epoch_seq,
		.on_loss = j->on_loss, .ngone = ngone, .gone = gone, .nleft = nleft, .left = left,
		.grown = j->grown, .grown_at = j->grown_at, .njoined = njoined, .joined = joined,
		.user = j->owned ? MSG_USER(j->uid) : 0,
	};
	return m;
}

/* The rows as all others have them: who was offered the job since its last epoch is in none. */
const struct msg *plan_job_again(struct sched *s, const struct sched_job *j)
{
	uint32_t rows = j->place ? j->place->nservers : 0;
	struct msg *m = (struct msg *)plan_job_up(s, j, rows, false);

	if (!m)
		return NULL;
	for (uint32_t i = 0; i < rows; i++) {
		if (j->servers[i].joining_epoch == j->epoch)
			((struct msg_server *)m->job_up.servers)[i].node = 0;
	}
	m->job_up.seq = j->told;
	m->job_up.repair = j->repair;
	return m;
}
