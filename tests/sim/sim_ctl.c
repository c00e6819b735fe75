// SPDX-License-Identifier: Apache-2.0
/*
 * Control connections, and the scheduler's core at the end of them.
 *
 * Messages go through the real codec, in order, as over TCP: where nothing gets
 * through for a while they come late, and where that takes too long one side gives the
 * connection up.  Each end notices for itself that it is over.  A node says that it
 * lives each second, and comes back with a new connection as the daemons do.  A
 * connection may break with all that is on its way, and a new one be there before the
 * scheduler knows.
 *
 * The scheduler itself dies, and is started again with the numbers that it had saved;
 * all else it learns from those who register.
 */
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/sched.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_cover.h"

#define CLI_CONN	(SIM_CONNS - 1)
#define AGENT_GRACE_MS	4000u
#define RECOVER_MS	(LEASE_MS + 2000u)	/* as of the daemon */
enum { TO_NODE, TO_SCHED };

struct sim_ctl_msg {
	uint32_t proc, gen;
	uint8_t dir;
	uint32_t type, bytes;
	uint8_t body[];
};

struct sim_ctl *sim_ctl_of(struct sim *s, uint32_t proc)
{
	return proc < SIM_AGENTS ? &s->agent[proc]->ctl : &s->server[proc - SIM_AGENTS]->ctl;
}

/* ---- the scheduler's shell ---- */

static void carry(struct sim *s, uint32_t proc, uint8_t dir, const struct msg *m);
static void die_untold(struct sim *s, const struct msg *m);

static void arm(struct sim *s)
{
	mono_t wait = sched_next(s->sched) - sim_clock(s, SIM_SCHED);
	mono_t next = wait > 0 ? s->now + sim_clock_wait(s, SIM_SCHED, wait) : s->now;

	if (s->sched_at && s->sched_at <= next && s->sched_at > s->now)
		return;
	s->sched_at = next > s->now ? next : s->now + 1;
	sim_at(s, s->sched_at - s->now,
	       &(struct sim_event){ .type = EV_SCHED, .proc = SIM_NOBODY });
}

static bool is_current(struct sim *s, uint32_t conn)
{
	uint32_t proc = s->conn[conn].proc;

	return proc != SIM_NOBODY && sim_ctl_of(s, proc)->conn == conn &&
	       sim_ctl_of(s, proc)->open[0];
}

static void gone_at(struct sim *s, uint32_t conn, mono_t delay)
{
	sim_at(s, delay, &(struct sim_event){ .type = EV_SCHED_GONE, .proc = SIM_NOBODY,
					      .a = conn, .b = s->conn[conn].use });
}

/* The scheduler has closed its end; the node reads what was sent before and then sees it. */
static void closed_by_sched(struct sim *s, uint32_t conn)
{
	uint32_t proc = s->conn[conn].proc;
	struct sim_ctl *c;
	mono_t read;

	gone_at(s, conn, 0);
	s->conn[conn].node = 0;
	if (!is_current(s, conn))
		return;
	c = sim_ctl_of(s, proc);
	c->open[0] = false;
	if (c->cut_until == MONO_NEVER)
		return;
	read = MAX(MAX(c->last[TO_NODE], c->cut[TO_NODE] ? c->cut_until : 0), s->now);
	sim_at(s, read - s->now + 100000,
	       &(struct sim_event){ .type = EV_CTL_CLOSED, .proc = proc, .a = proc, .b = c->gen });
}

static void step(struct sim *s, struct sched_event ev);

/* For a moment, or for longer than a scheduler takes to recover. */
static bool disk_full(struct sim *s)
{
	mono_t most = mono_ms(sim_below(s, 2) ? 2 : 2 * RECOVER_MS);

	if (s->now < s->full_until)
		return true;
	if (!s->p.refuse_save || !sim_faulty(s) || !sim_chance(s, 500))
		return false;
	s->full_until = s->now + 1 + (mono_t)sim_below(s, (uint64_t)most);
	return true;
}

static void save(struct sim *s, const struct sched_ids *ids)
{
	int code = disk_full(s) ? TALLY_EIO : 0;

	s->save_failed = code;
	if (!code)
		s->saved = *ids;
	if (!code && s->recovers_until == MONO_NEVER)
		s->recovers_until = sim_clock(s, SIM_SCHED) + mono_ms(RECOVER_MS);
	step(s, (struct sched_event){ .type = SCHED_EV_SAVED, .code = code });
}

/* For want of memory, perhaps, while they live: its jobs go on without them from here on. */
static void look_for_dead(struct sim *s)
{
	for (uint32_t k = 0; k < s->sched->nnodes; k++) {
		const struct sched_node *n = s->sched->nodes[k];

		for (uint32_t i = 0; i < s->p.n && n->state == SN_DEAD; i++)
			for (uint32_t j = 0; n->number == s->agent[i]->node && j < s->p.njobs; j++)
				sim_machine_lost(s, &s->job[j], i);
	}
}

static void look_for_given_up(struct sim *s)
{
	for (uint32_t k = 0; k < s->sched->nnodes; k++)
		for (uint32_t i = 0; i < s->p.n && s->sched->nodes[k]->state == SN_DEAD; i++)
			if (s->sched->nodes[k]->number == s->agent[i]->node && s->agent[i]->alive &&
			    !s->agent[i]->given_up)
				sim_agent_given_up(s, i);
}

#define EPOCHS_AT_ONCE	32u	/* with nobody's answer to any: more have no end */

static void step(struct sim *s, struct sched_event ev)
{
	struct sched_actions todo;
	uint64_t epoch;
	struct sched_ids ids;
	bool saved = false;

	if (!s->sched)
		return;
	ev.now = sim_clock(s, SIM_SCHED);
	if (s->p.famine)		/* so that each message wants memory anew */
		out_fini(s->sched);
	sim_cover_sched(s->sched, &ev);
	epoch = s->sched->last.epoch;
	sched_step(s->sched, &ev, &todo);
	if (s->sched->last.epoch > epoch + EPOCHS_AT_ONCE)
		sim_fail(s, "the scheduler began %llu epochs at once",
			 (unsigned long long)(s->sched->last.epoch - epoch));
	if (s->p.famine)
		look_for_dead(s);
	if (s->p.parts)
		look_for_given_up(s);
	for (const struct sched_action *a = todo.head; a; a = a->next) {
		if (a->type == SCHED_DO_SEND && a->msg->type == MSG_WELCOME)
			s->conn[a->conn].node = a->msg->welcome.node;
		if (a->type == SCHED_DO_SEND && a->msg->type == MSG_REPORT)
			sim_status_told(s, a->msg);
		if (a->type == SCHED_DO_SEND && a->conn != CLI_CONN && is_current(s, a->conn)) {
			carry(s, s->conn[a->conn].proc, TO_NODE, a->msg);
			die_untold(s, a->msg);
		} else if (a->type == SCHED_DO_CLOSE)
			closed_by_sched(s, a->conn);
		else if (a->type == SCHED_DO_LOG)
			sim_trace(s, "scheduler: %s", a->text);
		else if (a->type == SCHED_DO_SAVE) {
			saved = true;
			ids = a->ids;
		}
	}
	sched_check(s->sched);
	sim_slow_check(s);
	if (saved)
		save(s, &ids);
	arm(s);
}

static void *alloc(void *ctx, size_t bytes)
{
	return sim_sched_starves(ctx) ? NULL : calloc(1, bytes);
}

static void release(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

static void start(struct sim *s)
{
	const struct mem_ops mem = { s, alloc, release };
	const struct sched_config config = {
		.cluster = { 1 }, .secret = "", .version = "simulated", .ids = s->saved,
		.heartbeat_ms = HEARTBEAT_MS, .agent_grace_ms = AGENT_GRACE_MS,
		.recover_ms = s->saved.node ? RECOVER_MS : 0,
	};

	sim_clock_start(s, SIM_SCHED);
	s->sched_since = sim_clock(s, SIM_SCHED);
	s->sched_lives++;
	s->recovers_until = config.recover_ms ? MONO_NEVER : 0;
	s->save_failed = false;
	s->sched = sched_new(&mem, &config, sim_clock(s, SIM_SCHED));
	ASSERT(s->sched);
	s->sched_at = 0;
	s->deaf_until = 0;
	step(s, (struct sched_event){ .type = SCHED_EV_TIMER });
	step(s, (struct sched_event){ .type = SCHED_EV_UP, .conn = CLI_CONN });
}

void sim_sched_start(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_CONNS; i++)
		s->conn[i].proc = SIM_NOBODY;
	start(s);
}

void sim_sched_count(struct sim *s)
{
	const struct sched_counters *c = s->sched ? sched_counters(s->sched) : NULL;

	for (size_t i = 0; c && i < sizeof(*c) / sizeof(uint64_t); i++)
		((uint64_t *)&sim_totals.sched)[i] += ((const uint64_t *)c)[i];
}

static bool any_starved(const struct sim *s)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		if (s->job[i].starved)
			return true;
	return false;
}

/* Who is not back when a new one has recovered has lost its jobs without a word. */
static bool any_parted(const struct sim *s)
{
	for (uint32_t i = 0; i < s->p.n && s->p.parts; i++)
		if (s->agent[i]->alive && (s->agent[i]->given_up ||
					   s->agent[i]->ctl.cut_until > s->now))
			return true;
	return false;
}

/*
 * Nothing of it is left but what it saved; nodes notice, each in its time.  Not when it may be
 * telling a job that it ends for want of memory: some would hear so, and the others go on.
 * Nor when a job is with ranks alone, which wait for their agents: then it is lost.
 */
bool sim_sched_crash(struct sim *s)
{
	if (!s->sched || any_starved(s) || any_parted(s) || !sim_jobs_are_held(s, SIM_NOBODY))
		return false;
	sim_trace(s, "the scheduler dies");
	sim_totals.restarts++;
	sim_sched_count(s);
	sched_free(s->sched);
	s->sched = NULL;
	s->sched_still = 0;
	for (uint32_t i = 0; i < SIM_CONNS; i++) {
		if (is_current(s, i)) {
			struct sim_ctl *c = sim_ctl_of(s, s->conn[i].proc);

			c->open[0] = false;
			c->lost = true;
			if (c->open[1] && c->cut_until != MONO_NEVER)
				sim_at(s, (mono_t)sim_below(s, 20000000), &(struct sim_event){
					.type = EV_CTL_CLOSED, .proc = s->conn[i].proc,
					.a = s->conn[i].proc, .b = c->gen });
		}
		s->conn[i].proc = SIM_NOBODY;
		s->conn[i].busy = false;
		s->conn[i].node = 0;
		s->conn[i].use++;
	}
	sim_at(s, 10000000 + (mono_t)sim_below(s, 3 * NS_PER_SEC),
	       &(struct sim_event){ .type = EV_SCHED_START, .proc = SIM_NOBODY });
	return true;
}

/* Or its machine does: nothing is read, nobody is let in, and no time has passed for it. */
bool sim_sched_stop(struct sim *s)
{
	if (!s->sched || s->sched_still > s->now || sched_recovering(s->sched))
		return false;
	s->sched_still = s->now + 1 + (mono_t)sim_below(s, mono_ms(2 * LEASE_MS));
	s->deaf_until = sim_clock(s, SIM_SCHED) + (s->sched_still - s->now) * 21 / 20;
	sim_totals.still++;
	sim_trace(s, "the scheduler stands still");
	return true;
}

bool sim_sched_waits(const struct sim *s, const struct sim_event *e)
{
	if (s->sched_still <= s->now || s->stopped)
		return false;
	return e->type == EV_SCHED || e->type == EV_SCHED_GONE ||
	       ((e->type == EV_CTL || e->type == EV_CTL_CLOSED) && e->proc == SIM_NOBODY);
}

static bool is_drained(const struct sim *s, const char *name)
{
	for (uint32_t i = 0; s->sched && i < s->sched->nnodes; i++)
		if (s->sched->nodes[i]->state != SN_DEAD && !strcmp(s->sched->nodes[i]->name, name))
			return s->sched->nodes[i]->draining;
	return false;
}

bool sim_drain(struct sim *s, uint32_t name, bool undo)
{
	struct msg m = { .type = MSG_DRAIN, .drain = { .req = 1, .undo = undo } };
	char text[16];
	bool before;

	if (s->sched_still > s->now)
		return false;
	snprintf(text, sizeof(text), "s%u", name);
	before = is_drained(s, text);
	m.drain.name = text;
	sim_trace(s, "%s is to be %s", text, undo ? "used again" : "drained");
	step(s, (struct sched_event){ .type = SCHED_EV_MSG, .conn = CLI_CONN, .msg = &m });
	return is_drained(s, text) != before;
}

/* ---- messages ---- */

static void carry(struct sim *s, uint32_t proc, uint8_t dir, const struct msg *m)
{
	struct sim_ctl *c = sim_ctl_of(s, proc);
	struct sim_ctl_msg *cm;
	uint8_t prefix[MSG_PREFIX_BYTES];
	mono_t at = s->now + 50000 + (mono_t)sim_below(s, 1000000);
	uint32_t bytes;
	struct err e;

	if (c->cut_until == MONO_NEVER || c->lost)
		return;			/* nobody will read it */
	if (msg_encode_size(m, &bytes, &e)) {
		sim_fail(s, "%s cannot be encoded: %s", msg_type_name(m->type), e.text);
		return;
	}
	cm = malloc(sizeof(*cm) + bytes);
	ASSERT(cm && !msg_encode(m, cm->body, bytes, &e));
	memcpy(prefix, cm->body, MSG_PREFIX_BYTES);
	ASSERT(!msg_prefix_decode(prefix, &cm->bytes, &cm->type, NULL));
	memmove(cm->body, cm->body + MSG_PREFIX_BYTES, cm->bytes);
	cm->proc = proc;
	cm->gen = c->gen;
	cm->dir = dir;
	at = MAX(at + sim_lag(s, proc) + s->p.lag[SIM_LAGS - 1], c->cut[dir] ? c->cut_until : 0);
	at = c->last[dir] = MAX(at, c->last[dir] + 1);
	s->ctl_msgs++;
	sim_at(s, at - s->now, &(struct sim_event){ .type = EV_CTL, .ctl = cm,
						    .proc = dir == TO_NODE ? proc : SIM_NOBODY });
}

/* It dies while it tells: some hear it and some do not. */
static void die_untold(struct sim *s, const struct msg *m)
{
	if (m->type != MSG_WELCOME && m->type != MSG_HEARTBEAT && m->type != MSG_DRAIN &&
	    sim_faulty(s) && sim_chance(s, s->p.untold))
		sim_at(s, (mono_t)sim_below(s, 1000000),
		       &(struct sim_event){ .type = EV_LIFE, .proc = SIM_NOBODY, .b = 2 });
}

void sim_ctl_send(struct sim *s, uint32_t proc, const struct msg *m)
{
	if (sim_ctl_of(s, proc)->open[1])
		carry(s, proc, TO_SCHED, m);
}

/* Nobody waited for it: that may be when its jobs are lost by others' fault. */
static void lost_meanwhile(struct sim *s, uint32_t agent, uint32_t node)
{
	struct sim_agent *a = s->agent[agent];

	for (uint32_t i = 0; i < s->p.njobs; i++) {
		if (!a->job[i].core || a->job[i].over)
			continue;
		if (s->job[i].p->n == 1)
			continue;	/* it tells of it, and hears if it is over */
		if (!sim_job_may_end(s, &s->job[i]) && !a->given_up && !a->job[i].left)
			sim_fail(s, "agent %u was %u and is now %u", agent, a->node, node);
		a->job[i].code = TALLY_EWORKERLOST;
		sim_machine_lost(s, &s->job[i], agent);
		sim_agent_stop_job(s, agent, &s->job[i]);
		if (a->given_up)
			sim_grow_machine(s, &s->job[i], agent);
	}
	a->given_up = false;
}

/* A job that has ended while it was away does not keep its number. */
static bool is_awaited(const struct sim *s, uint32_t agent)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		if (s->agent[agent]->job[i].nback && !sim_job_may_end(s, &s->job[i]))
			return true;
	return false;
}

/* A registered server that hears another number than it had is dead to the cluster. */
static uint32_t on_welcome(struct sim *s, uint32_t proc, const struct msg_welcome *w)
{
	struct sim_ctl *c = sim_ctl_of(s, proc);

	c->registered = true;
	c->silent = false;
	c->echo = sim_clock(s, proc);
	if (w->epoch < c->epoch_seen)
		sim_fail(s, "the epochs go back from %llu to %llu",
			 (unsigned long long)c->epoch_seen, (unsigned long long)w->epoch);
	c->epoch_seen = MAX(c->epoch_seen, w->epoch);
	if (proc < SIM_AGENTS) {
		if (s->agent[proc]->node && s->agent[proc]->node != w->node)
			lost_meanwhile(s, proc, w->node);
		if (s->agent[proc]->was_node && s->agent[proc]->was_node != w->node &&
		    is_awaited(s, proc))
			sim_fail(s, "agent %u was %u before it was started again and is now %u",
				 proc, s->agent[proc]->was_node, w->node);
		s->agent[proc]->node = w->node;
		memcpy(s->agent[proc]->key, w->link_key, KEY_BYTES);
		sim_held_tell(s, proc);
		sim_back_ask(s, proc);
		sim_ask_welcomed(s, proc);
	} else if (!s->server[proc - SIM_AGENTS]->node) {
		s->server[proc - SIM_AGENTS]->node = w->node;
	} else if (s->server[proc - SIM_AGENTS]->node != w->node) {
		sim_server_reborn(s, proc - SIM_AGENTS, w->node);
	} else {
		sim_server_tell(s, proc - SIM_AGENTS);
	}
	return proc;
}

static void at_node(struct sim *s, uint32_t proc, const struct msg *m)
{
	if (m->type == MSG_JOB_UP)
		sim_ctl_of(s, proc)->epoch_seen = MAX(sim_ctl_of(s, proc)->epoch_seen,
						      m->job_up.epoch);
	if (m->type == MSG_WELCOME)
		on_welcome(s, proc, &m->welcome);
	else if (m->type == MSG_HEARTBEAT)
		sim_ctl_of(s, proc)->echo = sim_clock(s, proc);
	else if (proc < SIM_AGENTS)
		sim_agent_msg(s, proc, m);
	else
		sim_server_msg(s, proc - SIM_AGENTS, m);
}

static void arrive(struct sim *s, struct sim_ctl_msg *cm)
{
	uint32_t proc = cm->proc;
	struct sim_ctl *c = sim_ctl_of(s, proc);
	struct msg_mem mem = { .size = msg_mem_need(cm->bytes) };
	struct msg m;
	struct err e;

	s->ctl_msgs--;
	/* A process that has registered anew reads on where its first life stopped. */
	while (proc >= SIM_AGENTS && s->server[proc - SIM_AGENTS]->replaced) {
		proc = sim_server_proc(s->server[proc - SIM_AGENTS]->next_life);
		c = sim_ctl_of(s, proc);
	}
	if (c->gen != cm->gen || c->lost || !c->open[cm->dir == TO_NODE] || s->stopped ||
	    (proc < SIM_AGENTS && !s->agent[proc]->alive && cm->dir == TO_NODE)) {
		free(cm);
		return;
	}
	mem.base = malloc(mem.size);
	ASSERT(mem.base);
	if (msg_decode(cm->type, cm->body, cm->bytes, &mem, &m, &e)) {
		sim_fail(s, "%s cannot be decoded: %s", msg_type_name(cm->type), e.text);
	} else if (cm->dir == TO_SCHED) {
		s->conn[c->conn].heard = sim_clock(s, SIM_SCHED);
		if (m.type == MSG_HEARTBEAT)
			s->conn[c->conn].beat = m.heartbeat.seq;
		step(s, (struct sched_event){ .type = SCHED_EV_MSG, .conn = c->conn, .msg = &m });
	} else {
		sim_trace(s, "%c%u hears %s", proc < SIM_AGENTS ? 'a' : 's',
			  proc < SIM_AGENTS ? proc : proc - SIM_AGENTS, msg_type_name(m.type));
		at_node(s, proc, &m);
	}
	free(mem.base);
	free(cm);
}

/* ---- connections ---- */

void sim_proc_name(const struct sim *s, uint32_t proc, char name[16], char machine[16])
{
	const struct sim_server *v = proc < SIM_AGENTS ? NULL : s->server[proc - SIM_AGENTS];

	snprintf(name, 16, "%c%u", v ? 's' : 'a', v ? v->name : proc);
	if (v && v->home == SIM_NOBODY)
		snprintf(machine, 16, "c%u", v->name);
	else
		snprintf(machine, 16, "m%u", v ? v->home : proc);
}

static void hello(struct sim *s, uint32_t proc)
{
	const struct sim_server *v = proc < SIM_AGENTS ? NULL : s->server[proc - SIM_AGENTS];
	struct sim_ctl *c = sim_ctl_of(s, proc);
	const struct msg_addr addr = { .host = "10.0.0.1", .port = v ? 7471 : 0,
				       .bits_per_s = 10000000000 };
	char name[16], machine[16];
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION,
		.kind = v ? NODE_SERVER : NODE_AGENT, .name = name, .machine = machine,
		.secret = "", .naddrs = 1, .addrs = &addr, .shm_path = v ? "/s" : "", .engines = 1,
		.memory_bytes = v ? UINT64_C(1) << 40 : 0,
	} };

	sim_proc_name(s, proc, name, machine);
	m.hello.draining = v && v->draining;
	memcpy(m.hello.instance, c->instance, ID_BYTES);
	m.hello.node = v ? v->node : s->agent[proc]->node;
	m.hello.epoch_seen = c->epoch_seen;
	if (m.hello.node)
		m.hello.cluster[0] = 1;
	sim_ctl_send(s, proc, &m);
}

static uint32_t free_conn(const struct sim *s)
{
	uint32_t i = 0;

	while (s->conn[i].proc != SIM_NOBODY || s->conn[i].busy)
		i++;
	ASSERT(i < CLI_CONN);
	return i;
}

static bool is_alive(const struct sim *s, uint32_t proc)
{
	if (proc < SIM_AGENTS)
		return s->agent[proc]->alive;
	return s->server[proc - SIM_AGENTS]->alive && !s->server[proc - SIM_AGENTS]->replaced;
}

void sim_ctl_connect(struct sim *s, uint32_t proc)
{
	struct sim_ctl *c = sim_ctl_of(s, proc);

	if (!is_alive(s, proc) || c->open[1] || s->stopped)
		return;
	/* No route, nobody there, or the old one still stands, and it is waited for. */
	if (c->cut_until > s->now || !s->sched || s->sched_still > s->now ||
	    (c->open[0] && proc >= SIM_AGENTS && sim_below(s, 2))) {
		sim_at(s, 100000000 + (mono_t)sim_below(s, 300000000),
		       &(struct sim_event){ .type = EV_CTL_OPEN, .proc = proc, .a = proc });
		return;
	}
	if (c->open[0]) {
		gone_at(s, c->conn, (mono_t)sim_below(s, NS_PER_SEC));
		s->conn[c->conn].proc = SIM_NOBODY;
	}
	c->gen++;
	c->conn = free_conn(s);
	c->open[0] = c->open[1] = true;
	c->registered = c->lost = false;
	c->echo = sim_clock(s, proc);
	s->conn[c->conn].proc = s->conn[c->conn].who = proc;
	s->conn[c->conn].busy = true;
	s->conn[c->conn].beat = 0;
	step(s, (struct sched_event){ .type = SCHED_EV_UP, .conn = c->conn });
	hello(s, proc);
}

static void node_end(struct sim *s, uint32_t proc, mono_t sched_notices)
{
	struct sim_ctl *c = sim_ctl_of(s, proc);

	if (!c->open[1])
		return;
	c->open[1] = c->registered = false;
	if (c->open[0])
		sim_at(s, sched_notices, &(struct sim_event){ .type = EV_CTL_CLOSED,
			.proc = SIM_NOBODY, .a = proc, .b = c->gen });
}

void sim_ctl_break(struct sim *s, uint32_t proc, mono_t sched_notices)
{
	node_end(s, proc, sched_notices);
}

bool sim_ctl_cut(struct sim *s, struct sim_ctl *c, mono_t until, uint32_t ways)
{
	bool through = c->cut_until <= s->now;

	c->cut[TO_NODE] = (!through && c->cut[TO_NODE]) || ways & 1u << TO_NODE;
	c->cut[TO_SCHED] = (!through && c->cut[TO_SCHED]) || ways & 1u << TO_SCHED;
	c->cut_until = MAX(c->cut_until, until);
	return through;
}

void sim_ctl_reset(struct sim *s, uint32_t proc)
{
	struct sim_ctl *c = sim_ctl_of(s, proc);

	/* Agents come back within their grace, or their jobs are lost. */
	if (!c->open[0] || !c->open[1] || c->lost || !is_alive(s, proc) ||
	    (proc < SIM_AGENTS && (!c->registered || s->paused_until[proc] > s->now)))
		return;
	sim_trace(s, "%c%u loses its connection to the scheduler", proc < SIM_AGENTS ? 'a' : 's',
		  proc < SIM_AGENTS ? proc : proc - SIM_AGENTS);
	sim_totals.resets++;
	c->lost = true;
	sim_at(s, (mono_t)sim_below(s, 50000000), &(struct sim_event){ .type = EV_CTL_CLOSED,
		.proc = proc, .a = proc, .b = c->gen });
	sim_at(s, (mono_t)sim_below(s, sim_below(s, 4) ? 50000000 : NS_PER_SEC),
	       &(struct sim_event){ .type = EV_CTL_CLOSED, .proc = SIM_NOBODY, .a = proc,
				    .b = c->gen });
}

static void free_closed(struct sim *s, uint32_t conn)
{
	s->conn[conn].proc = SIM_NOBODY;
	s->conn[conn].busy = false;
	s->conn[conn].node = 0;
	s->conn[conn].use++;
	step(s, (struct sched_event){ .type = SCHED_EV_CLOSED, .conn = conn });
	if (conn == CLI_CONN)		/* it comes again */
		step(s, (struct sched_event){ .type = SCHED_EV_UP, .conn = CLI_CONN });
}

static void closed(struct sim *s, const struct sim_event *e)
{
	uint32_t proc = e->a;
	struct sim_ctl *c;

	while (proc >= SIM_AGENTS && s->server[proc - SIM_AGENTS]->replaced)
		proc = sim_server_proc(s->server[proc - SIM_AGENTS]->next_life);
	c = sim_ctl_of(s, proc);
	if (e->proc == SIM_NOBODY) {		/* the scheduler's end */
		if (c->gen != e->b || !c->open[0])
			return;
		c->open[0] = false;
		free_closed(s, c->conn);
		return;
	}
	if (c->gen != e->b || !c->open[1])
		return;
	c->open[1] = c->registered = false;
	sim_at(s, 25000000 + (mono_t)sim_below(s, proc < SIM_AGENTS ? 100000000 : 300000000),
	       &(struct sim_event){ .type = EV_CTL_OPEN, .proc = proc, .a = proc });
}

static void beat(struct sim *s, const struct sim_event *e)
{
	uint32_t proc = e->a;
	struct sim_ctl *c = sim_ctl_of(s, proc);
	struct msg m = { .type = MSG_HEARTBEAT,
			 .heartbeat = { .seq = ++c->beats, .note = "" } };

	if (s->stopped || !is_alive(s, proc))
		return;
	if (proc >= SIM_AGENTS)
		sim_slow_beat(s, proc - SIM_AGENTS, &m.heartbeat);
	if (c->registered && sim_clock(s, proc) - c->echo > mono_ms(LEASE_MS)) {
		node_end(s, proc, 1000000);
		sim_ctl_connect(s, proc);
	} else if (c->registered) {
		c->beat_at = s->now;
		sim_ctl_send(s, proc, &m);
		if (proc < SIM_AGENTS) {
			sim_agent_stuck(s, proc);
			sim_back_beat(s, proc);
		}
	}
	sim_at(s, sim_clock_wait(s, proc, mono_ms(HEARTBEAT_MS)), e);
}

static void ask_status(struct sim *s)
{
	const struct msg m = { .type = MSG_QUERY, .query = {
		.what = QUERY_NODES | QUERY_JOBS | QUERY_TENSORS | QUERY_STUCK, .job = "",
	} };

	step(s, (struct sched_event){ .type = SCHED_EV_MSG, .conn = CLI_CONN, .msg = &m });
}

static bool event(struct sim *s, const struct sim_event *e)
{
	switch (e->type) {
	case EV_SCHED:
		if (s->now >= s->sched_at)
			s->sched_at = 0;
		if (!s->stopped)
			step(s, (struct sched_event){ .type = SCHED_EV_TIMER });
		return true;
	case EV_SCHED_GONE:
		if (s->conn[e->a].use == e->b)
			free_closed(s, e->a);
		return true;
	case EV_SCHED_START:
		if (!s->stopped) {
			sim_trace(s, "the scheduler starts again");
			start(s);
			sim_life_recovers(s, mono_ms(RECOVER_MS), mono_ms(AGENT_GRACE_MS));
		}
		return true;
	case EV_CTL: arrive(s, e->ctl); return true;
	case EV_CTL_CLOSED: closed(s, e); return true;
	case EV_CTL_OPEN: sim_ctl_connect(s, e->a); return true;
	case EV_BEAT: beat(s, e); return true;
	default: return false;
	}
}

bool sim_ctl_event(struct sim *s, const struct sim_event *e)
{
	if (!event(s, e))
		return false;
	if (sim_status_due(s))
		ask_status(s);
	return true;
}
