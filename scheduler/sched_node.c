// SPDX-License-Identifier: Apache-2.0
/*
 * sched_node.c - who is in the cluster, and who has died.
 *
 * HELLO registers a node; WELCOME tells it its number.  Its lease runs from the
 * last message.  When the connection closes the node is away: the same instance
 * may come back within RECONNECT_GRACE_MS and keeps its number and jobs, and is
 * told what it missed.  Otherwise, or when the lease is out, it is dead, which
 * only this file decides; its jobs hear of it.  The row of a dead node stays for
 * the status until its name or its place is needed, for NODE_SHOWN_MS, or until
 * somebody has read it (NODE_FORGET); so does that of one that was refused.  What is up comes
 * back by itself, and what is away has jobs that wait for it: these are not forgotten.
 */
#include "scheduler/sched_blame.h"

#include <stdio.h>

static const char *const state_name[] = {
#define X(e, name, next, help) name,
	SCHED_NODE_TABLE(X)
#undef X
};

static const uint32_t state_next[] = {
#define X(e, name, next, help) next,
	SCHED_NODE_TABLE(X)
#undef X
};

const char *node_state_name(enum sched_node_state st)
{
	return state_name[st];
}

void node_since(struct sched *s, struct sched_node *n, const char *why)
{
	n->since = s->now;
	snprintf(n->why, sizeof(n->why), "%s", why);
}

/*
 * Moves a node to another state and logs it; a warning for one that is missed, which a drained
 * server is not.
 */
static void set_state(struct sched *s, struct sched_node *n, enum sched_node_state to,
		      const char *why)
{
	bool missed = to == SN_DEAD && !(n->draining && epoch_idle(s, n));

	ASSERT(state_next[n->state] & 1u << to);
	out_log(s, missed ? SCHED_WARN : SCHED_INFO, "%s %s %s -> %s, number %u, reason %s",
		msg_kind_name(n->kind), n->name, state_name[n->state], state_name[to], n->number,
		why);
	n->state = to;
	n->left = to == SN_DEAD && !missed;
	node_since(s, n, why);
}

struct sched_node *node_by_name(struct sched *s, enum node_kind kind, const char *name)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		if (s->nodes[i]->kind == kind && !strcmp(s->nodes[i]->name, name))
			return s->nodes[i];
	}
	return NULL;
}

void node_free(struct sched *s, struct sched_node *n)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		if (s->nodes[i] != n)
			continue;
		memmove(&s->nodes[i], &s->nodes[i + 1], (s->nnodes - i - 1) * sizeof(n));
		s->nnodes--;
		break;
	}
	out_drop(s, n);
	held_unsay(s, n);
	blame_drop(s, n);
	sched_release(s, n);
}

void node_die(struct sched *s, struct sched_node *n, const char *why)
{
	uint32_t conn = n->conn;

	ASSERT(n->state != SN_DEAD);
	set_state(s, n, SN_DEAD, why);
	s->counters.nodes_lost++;
	blame_drop(s, n);
	n->conn = NO_CONN;
	out_drop(s, n);
	if (conn != NO_CONN) {
		s->conns[conn].node = NULL;
		out_close(s, conn);
	}
	late_forget(s, n);
	job_node_dead(s, n, why);
}

void node_closed(struct sched *s, struct sched_node *n)
{
	if (n->conn == NO_CONN)
		return;
	s->conns[n->conn].node = NULL;
	n->conn = NO_CONN;
	n->away = s->now;
	out_forget_ahead(s, n);
	set_state(s, n, SN_AWAY, "connection closed");
	late_forget(s, n);
	n->seen = n->ask_at = n->asked = 0;
	sched_wake(s, s->now + return_grace(s, n));
}

void node_recovered(struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		struct sched_node *n = s->nodes[i];
		uint32_t conn = n->conn;

		if (n->state == SN_AWAY)
			n->away = s->now;
		if (conn == NO_CONN || !s->conns[conn].early)
			continue;
		node_closed(s, n);
		out_close(s, conn);
	}
}

void node_deaf(struct sched *s, mono_t ns)
{
	return_deaf(s, ns);
	if (s->recover_until && s->recover_until != MONO_NEVER)
		s->recover_until += ns;
	for (uint32_t i = 0; i < s->nnodes; i++) {
		struct sched_node *n = s->nodes[i];

		n->heard = MIN(n->heard + ns, s->now);
		n->away = MIN(n->away + ns, s->now);
		since_later(s, &n->seen, ns);
	}
}

/* Agents have longer, where processes wait for them. */
static void lease_over(struct sched *s, struct sched_node *n)
{
	uint32_t conn = n->conn;

	if (return_grace(s, n) <= mono_ms(RECONNECT_GRACE_MS)) {
		node_die(s, n, "lease ran out");
		return;
	}
	node_closed(s, n);
	out_close(s, conn);
}

void node_timer(struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		struct sched_node *n = s->nodes[i];
		mono_t lease = n->heard + mono_ms(LEASE_MS);
		mono_t grace = return_until(s, n);

		if (n->state == SN_UP && s->now >= lease) {
			lease_over(s, n);
		} else if (n->state == SN_UP) {
			sched_wake(s, lease);
		} else if (n->state == SN_AWAY && s->now >= grace) {
			node_die(s, n, "connection closed");
		} else if (n->state == SN_AWAY) {
			sched_wake(s, grace);
			return_ask(s, n);
		}
	}
}

uint64_t node_silent_ms(const struct sched *s, const struct sched_node *n)
{
	uint64_t ms = (uint64_t)((s->now - n->heard) / NS_PER_MS);

	return ms > s->config.heartbeat_ms + s->config.heartbeat_ms / 2 ? ms : 0;
}

static const char *cause_for(struct sched *s, const struct sched_node *n)
{
	const struct sched_node *other = blame_for(s, n);
	char buf[ERR_TEXT_MAX + 1];
	struct text t;

	if (!other)
		return "";
	text_init(&t, buf, sizeof(buf));
	text_blame(&t, "", other);
	return out_string(s, buf);
}

void node_heartbeat(struct sched *s, struct sched_node *n, const struct msg_heartbeat *hb)
{
	struct msg *m = out_msg(s, MSG_HEARTBEAT);

	n->last = *hb;
	n->beat = s->now;
	blame_take(s, n, hb);
	if (m) {
		m->heartbeat = n->last;
		m->heartbeat.note = "";
		m->heartbeat.cause = cause_for(s, n);
	}
	out_send(s, n, m);
	epoch_unsaid(s, n);		/* what it held before it has told by now */
	if (n->kind == NODE_SERVER && n->state == SN_UP)
		epoch_offer(s, n);
}

bool node_is_machine(const struct sched_node *n, const char *machine)
{
	return !n->machine[0] || !strcmp(n->machine, machine);
}

/* ---- registration ---- */

/* The time it takes says nothing about where the first difference is. */
static bool secret_ok(const struct sched *s, const char *given)
{
	const char *want = s->config.secret;
	size_t len = strlen(given), n = strlen(want);
	uint8_t diff = len != n;

	for (size_t i = 0; i < n; i++)
		diff |= (uint8_t)(want[i] ^ given[i < len ? i : len]);
	return diff == 0;
}

static int hello_valid(const struct sched *s, const struct msg_hello *h, struct err *e)
{
	if (h->version_min > MSG_VERSION || h->version_max < MSG_VERSION)
		return err_set(e, TALLY_EVERSION,
			       "the scheduler speaks version %u, '%.64s' speaks %u to %u; install "
			       "the same release everywhere", MSG_VERSION, h->name,
			       h->version_min, h->version_max);
	if (!secret_ok(s, h->secret))
		return err_set(e, TALLY_EAUTH,
			       s->config.secret[0] ?
			       "wrong join secret; its --secret-file is to have the first line of "
			       "the scheduler's" :
			       "a join secret was given, the scheduler has none (--secret-file)");
	if (h->kind == NODE_CLI)
		return 0;
	if (h->kind != NODE_AGENT && h->kind != NODE_SERVER)
		return err_set(e, TALLY_EINVAL, "no such kind of node: %u", h->kind);
	if (!h->name[0] || strlen(h->name) > NAME_LEN_MAX || !h->machine[0] ||
	    strlen(h->machine) > NAME_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "a node needs a name and a machine id of 1 to %u "
			       "characters", NAME_LEN_MAX);
	if (h->naddrs > RAILS_MAX || (h->kind == NODE_SERVER && !h->naddrs))
		return err_set(e, TALLY_EINVAL, "%s '%.64s' has %u addresses; 1 to %u are possible",
			       msg_kind_name(h->kind), h->name, h->naddrs, RAILS_MAX);
	for (uint32_t i = 0; i < h->naddrs; i++) {
		if (strlen(h->addrs[i].host) > ADDR_LEN_MAX)
			return err_set(e, TALLY_EINVAL, "an address is longer than %u",
				       ADDR_LEN_MAX);
	}
	if (strlen(h->shm_path) > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "the socket path is longer than %u", ADDR_LEN_MAX);
	if (!sched_epoch_can_be(s, h->epoch_seen))
		return err_set(e, TALLY_EINVAL, "epoch %llu cannot be",
			       (unsigned long long)h->epoch_seen);
	return 0;
}

bool node_outlived(const struct sched_node *n, const struct msg_hello *h)
{
	return h->node && n->machine[0] && memcmp(n->instance, h->instance, ID_BYTES);
}

/*
 * A process that was started again may come before the end of the one before is seen, which may
 * lie behind heartbeats that are yet to be read.  Who lives sends more of them.
 */
static bool may_be_over(struct sched *s, struct sched_node *old, const struct msg_hello *h)
{
	if (!node_is_machine(old, h->machine))
		return false;
	if (memcmp(old->claimant, h->instance, ID_BYTES)) {
		memcpy(old->claimant, h->instance, ID_BYTES);
		old->claimed = s->now;
	}
	return old->beat <= old->claimed + mono_ms(RECONNECT_GRACE_MS);
}

/* The name is taken by a living one, or free (again) after this. */
static int claim_name(struct sched *s, struct sched_node *old, const struct msg_hello *h,
		      struct err *e)
{
	bool outlived = node_outlived(old, h);

	if (old->state == SN_UP && outlived && h->kind == NODE_AGENT)
		return err_set(e, TALLY_EEXIST, "another agent is registered as '%.128s', from "
			       "machine %.64s, and this one was given up; start what ran here "
			       "there, or this one with another --name", h->name, old->machine);
	if (old->state == SN_UP && may_be_over(s, old, h))
		return err_set(e, TALLY_EBUSY, "%s '%.128s' of machine %.64s is registered, and "
			       "its end has not been seen yet", msg_kind_name(h->kind), h->name,
			       old->machine);
	if (old->state == SN_UP)
		return err_set(e, TALLY_EEXIST, "%s '%.128s' is registered already, from machine "
			       "%.64s; give this one another --name",
			       msg_kind_name(h->kind), h->name, old->machine);
	if (old->state == SN_AWAY && (outlived || !node_is_machine(old, h->machine)))
		return err_set(e, TALLY_EBUSY, "%s '%.128s' of machine %.64s may still come back",
			       msg_kind_name(h->kind), h->name, old->machine);
	if (old->state == SN_AWAY)
		node_die(s, old, "replaced by a new process");
	node_free(s, old);
	return 0;
}

static struct sched_node *oldest_dead(struct sched *s)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		if (s->nodes[i]->state == SN_DEAD)
			return s->nodes[i];
	}
	return NULL;
}

static bool number_taken(const struct sched *s, uint32_t number)
{
	for (uint32_t i = 0; i < s->nnodes; i++) {
		if (s->nodes[i]->number == number)
			return true;
	}
	return false;
}

/*
 * Chooses a node's number. Nodes that outlived a restart of the scheduler keep theirs, since
 * links know them by it; so does a machine by whose number the jobs that went on without it know
 * it.
 */
static uint32_t choose_number(struct sched *s, const struct msg_hello *h)
{
	bool ours = !memcmp(h->cluster, s->config.cluster, ID_BYTES);
	uint32_t missed = h->kind == NODE_AGENT && !s->recover_until ? grow_number(s, h->name) : 0;

	if (s->recover_until && ours && h->node && h->node <= s->config.ids.node &&
	    !number_taken(s, h->node))
		return h->node;
	if (missed && !number_taken(s, missed))
		return missed;
	return ++s->last.node;
}

static void insert(struct sched *s, struct sched_node *n)
{
	uint32_t at = s->nnodes++;

	for (; at && s->nodes[at - 1]->number > n->number; at--)
		s->nodes[at] = s->nodes[at - 1];
	s->nodes[at] = n;
}

/* NULL: no memory, or too many. */
static struct sched_node *row_new(struct sched *s, uint32_t number)
{
	struct sched_node *dead = s->nnodes == NODES_MAX ? oldest_dead(s) : NULL, *n;

	if (dead)
		node_free(s, dead);
	n = s->nnodes < NODES_MAX ? sched_alloc(s, sizeof(*n)) : NULL;
	if (!n)
		return NULL;
	n->number = number;
	n->conn = NO_CONN;
	n->last.note = n->note;
	n->last.cause = "";
	list_init(&n->outbox);
	list_init(&n->ahead);
	list_init(&n->said);
	insert(s, n);
	return n;
}

static int node_new(struct sched *s, const struct msg_hello *h, struct sched_node **out,
		    struct err *e)
{
	if (s->last.node >= s->saved.node)
		return err_set(e, TALLY_EIO, "the scheduler cannot save its state just now");
	*out = row_new(s, choose_number(s, h));
	if (*out)
		return 0;
	return s->nnodes == NODES_MAX ?
		err_set(e, TALLY_EQUOTA, "%u nodes are registered already", NODES_MAX) :
		err_set(e, TALLY_ENOMEM, "the scheduler is out of memory");
}

struct sched_node *node_away(struct sched *s, const struct sched_part *p)
{
	struct sched_node *n = node_by_name(s, NODE_AGENT, p->name);

	if (n && n->state != SN_DEAD)
		return n->number == p->number ? n : NULL;
	if (!p->number || p->number > s->config.ids.node)
		return NULL;
	if (n)
		node_free(s, n);
	n = number_taken(s, p->number) ? NULL : row_new(s, p->number);
	if (!n)
		return NULL;
	n->kind = NODE_AGENT;
	n->state = SN_AWAY;
	n->away = s->now;
	node_since(s, n, "not back since the scheduler was started again");
	n->engines = p->engines;
	snprintf(n->name, sizeof(n->name), "%s", p->name);
	return n;
}

static void take_facts(struct sched_node *n, const struct msg_hello *h)
{
	n->kind = h->kind;
	snprintf(n->name, sizeof(n->name), "%s", h->name);
	snprintf(n->machine, sizeof(n->machine), "%s", h->machine);
	snprintf(n->shm_path, sizeof(n->shm_path), "%s", h->shm_path);
	memcpy(n->instance, h->instance, ID_BYTES);
	n->naddrs = h->naddrs;
	for (uint32_t i = 0; i < h->naddrs; i++) {
		snprintf(n->addrs[i].host, sizeof(n->addrs[i].host), "%s", h->addrs[i].host);
		n->addrs[i].port = h->addrs[i].port;
		n->addrs[i].bits_per_s = h->addrs[i].bits_per_s;
	}
	n->engines = h->engines;
	n->adder_bytes_per_s = h->adder_bytes_per_s;
	n->memory_bytes = h->memory_bytes;
}

static const struct msg *welcome(struct sched *s, const struct sched_node *n)
{
	struct msg *m = out_msg(s, MSG_WELCOME);

	if (!m)
		return NULL;
	m->welcome = (struct msg_welcome){
		.version = MSG_VERSION, .node = n ? n->number : 0, .epoch = s->last.epoch,
		.heartbeat_ms = s->config.heartbeat_ms, .lease_ms = LEASE_MS,
		.agent_grace_ms = s->config.agent_grace_ms,
	};
	memcpy(m->welcome.cluster, s->config.cluster, ID_BYTES);
	if (n && n->kind == NODE_AGENT)
		key_derive(s->config.key_seed, n->number, n->instance, m->welcome.link_key);
	return m;
}

static void bind_conn(struct sched *s, struct sched_node *n, uint32_t conn, const char *why)
{
	uint32_t old = n->conn;

	if (old != NO_CONN) {
		node_closed(s, n);
		out_close(s, old);
	}
	n->conn = conn;
	n->conns++;
	n->heard = s->now;
	s->conns[conn].state = SC_NODE;
	s->conns[conn].node = n;
	set_state(s, n, SN_UP, why);
	sched_wake(s, s->now + mono_ms(LEASE_MS));
	out_send(s, n, welcome(s, n));
}

/*
 * Tells a server whether it drains. The server keeps that for us: a restarted scheduler, or one
 * that took it for dead, asks it.
 */
void node_tell_drain(struct sched *s, struct sched_node *n)
{
	struct msg *m = out_msg(s, MSG_DRAIN);

	if (m)
		m->drain = (struct msg_drain){
			.name = out_string(s, n->name), .undo = !n->draining,
		};
	out_send(s, n, m);
}

/*
 * Repeats DRAIN to a server that was away when it was sent, or that has it from another cluster.
 */
static void check_drain(struct sched *s, struct sched_node *n, const struct msg_hello *h)
{
	if (n->draining != h->draining)
		node_tell_drain(s, n);
}

/* The same number, by which servers know the agent, and a key of its own. */
static void started_again(struct sched *s, uint32_t conn, struct sched_node *n,
			  const struct msg_hello *h)
{
	out_drop(s, n);
	take_facts(n, h);
	return_begin(s, n);
	key_tell(s, n);
	bind_conn(s, n, conn, h->node ? "it came back" : "it was started again");
}

/*
 * Whose jobs a scheduler does not know it would end.  One that has lost its state, or was
 * given another's, shall not: jobs train on without it, and nodes without any forget where
 * they belonged and come again.
 */
static bool is_foreign(const struct sched *s, const struct msg_hello *h)
{
	static const uint8_t none[ID_BYTES];

	return memcmp(h->cluster, none, ID_BYTES) &&
	       memcmp(h->cluster, s->config.cluster, ID_BYTES);
}

static int admit(struct sched *s, uint32_t conn, const struct msg_hello *h, struct err *e)
{
	struct sched_node *n = node_by_name(s, h->kind, h->name);
	bool again = n && n->state != SN_DEAD && !memcmp(n->instance, h->instance, ID_BYTES) &&
		     !strcmp(n->machine, h->machine);
	int err;

	if (is_foreign(s, h))
		return err_set(e, TALLY_EMISMATCH, "%.64s belongs to another cluster, and joins "
			       "this one when its jobs are over; or has this scheduler lost its "
			       "--state-dir?", h->name);
	if (again) {
		take_facts(n, h);
		bind_conn(s, n, conn, "it came back");
		check_drain(s, n, h);
		if (n->kind == NODE_SERVER)
			key_tell_server(s, n);
		job_node_back(s, n);
		out_flush(s, n);
		return 0;
	}
	if (s->recover_until && h->kind == NODE_AGENT && !h->node)
		return err_set(e, TALLY_EBUSY, "the scheduler recovers from a restart, and agents "
			       "that it did not know register when it has");
	if (n && return_can(s, n, h)) {
		started_again(s, conn, n, h);
		return 0;
	}
	if (n) {
		err = claim_name(s, n, h, e);
		if (err)
			return err;
	}
	err = node_new(s, h, &n, e);
	if (err)
		return err;
	take_facts(n, h);
	n->draining = n->kind == NODE_SERVER && h->draining;
	if (n->kind == NODE_AGENT)
		key_tell(s, n);		/* it may have a lost one's number */
	bind_conn(s, n, conn, n->draining ? "registered, draining" : "registered");
	check_drain(s, n, h);
	if (n->kind == NODE_SERVER)
		job_servers_changed(s);
	return 0;
}

/*
 * Refuses a HELLO. A node that may have to wait, until the scheduler has recovered, say, asks
 * again and again, so that is logged rarely.
 */
static void refuse(struct sched *s, uint32_t conn, const struct msg_hello *h, const struct err *e)
{
	bool often = e->code == TALLY_EMISMATCH || (e->code == TALLY_EEXIST && h->node);
	bool waits = e->code == TALLY_EBUSY && s->recover_until;

	if (often ? s->now >= s->foreign_log : !waits)
		out_log(s, SCHED_WARN, "node %.128s is refused, reason %s, address %s", h->name,
			e->text, s->peer ? s->peer : "not known");
	if (often && s->now >= s->foreign_log)
		s->foreign_log = s->now + mono_ms(FOREIGN_LOG_MS);
	if (!waits && h->kind != NODE_CLI)
		refused_note(&s->refused, s->config.secret[0] && secret_ok(s, h->secret), h->kind,
			     h->name, s->peer, e, s->now);
	out_reply(s, conn, 0, e->code, "%s", e->text);
	out_close(s, conn);
}

void node_hello(struct sched *s, uint32_t conn, const struct msg_hello *h)
{
	struct err e;
	int err = hello_valid(s, h, &e);

	if (!err && h->kind == NODE_CLI) {
		s->conns[conn].state = SC_CLI;
		out_send_conn(s, conn, welcome(s, NULL));
		return;
	}
	if (!err)
		err = admit(s, conn, h, &e);
	if (err) {
		refuse(s, conn, h, &e);
		return;
	}
	refused_taken(&s->refused, h->kind, h->name, s->peer);
	sched_epoch_seen(s, h->epoch_seen);
}

/* ---- nodes that are shown, and are not there ---- */

void node_forget_old(struct sched *s)
{
	for (uint32_t i = s->nnodes; i-- > 0;) {
		struct sched_node *n = s->nodes[i];

		if (n->state == SN_DEAD && s->now - n->since >= mono_ms(NODE_SHOWN_MS))
			node_free(s, n);
	}
	refused_age(&s->refused, s->now);
}

/* Why that node stays. */
static void forget_not(struct sched *s, uint32_t conn, uint64_t req, const struct sched_node *n)
{
	if (n->state == SN_AWAY)
		out_reply(s, conn, req, TALLY_EBUSY, "%s '%.128s' is away and may come back, jobs "
			  "wait for it; it can be forgotten when it is dead",
			  msg_kind_name(n->kind), n->name);
	else if (n->kind == NODE_SERVER)
		out_reply(s, conn, req, TALLY_EBUSY, "server '%.128s' is up; drain it ('tally "
			  "drain %.128s'), stop tally-server on machine %.64s, then forget it",
			  n->name, n->name, n->machine);
	else
		out_reply(s, conn, req, TALLY_EBUSY, "agent '%.128s' is up; stop tally-agent on "
			  "machine %.64s, then forget it", n->name, n->machine);
}

void node_forget(struct sched *s, uint32_t conn, const struct msg_node_forget *m)
{
	const struct sched_node *there = NULL;
	uint32_t gone = 0, refused = refused_forget(&s->refused, m->name);

	for (uint32_t i = s->nnodes; i-- > 0;) {
		struct sched_node *n = s->nodes[i];

		if (strcmp(n->name, m->name))
			continue;
		if (n->state == SN_DEAD) {
			node_free(s, n);
			gone++;
		} else {
			there = n;
		}
	}
	if (gone || refused)
		out_reply(s, conn, m->req, 0, "%s", "");
	else if (there)
		forget_not(s, conn, m->req, there);
	else
		out_reply(s, conn, m->req, TALLY_ENOENT, "there is no node '%.128s'; tally nodes "
			  "lists them", m->name);
}
