// SPDX-License-Identifier: Apache-2.0
/*
 * A node's connection to the scheduler.
 *
 *	waiting -> connecting -> greeting -> up
 *	   ^            |           |        |
 *	   +------------+-----------+--------+--- any trouble
 *	                            +-> refused   the scheduler does not want us
 *
 * connecting: the socket is on its way; greeting: HELLO is out, WELCOME is not in;
 * up: registered, heartbeats run; waiting: a back-off timer runs, doubling from
 * BACKOFF_MIN_MS to BACKOFF_MAX_MS with a jitter of one half, so that a thousand
 * nodes do not come back at the same moment.  The connection of a state ends in
 * on_closed() before the next one begins; there is never more than one.
 *
 * HELLO is kept encoded and decoded once: the codec makes the deep copy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/parse.h"
#include "common/ctl/ctl.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/rt/notify.h"

#define BACKOFF_MIN_MS		50u
#define BACKOFF_MAX_MS		1000u
#define HEARTBEAT_FLOOR_MS	10u	/* what we believe of a WELCOME */
#define HEARTBEAT_CEIL_MS	60000u

#define STATE_TABLE(X) \
	X(WAITING,	"waiting") \
	X(CONNECTING,	"connecting") \
	X(GREETING,	"greeting") \
	X(UP,		"up") \
	X(REFUSED,	"refused") \
	X(STOPPED,	"stopped")

enum node_state {
#define X(e, name) NODE_##e,
	STATE_TABLE(X)
#undef X
};

static const char *const state_names[] = {
#define X(e, name) name,
	STATE_TABLE(X)
#undef X
};

#define BIT(s)	(1u << NODE_##s)

/* What may follow. */
static const uint32_t may_follow[] = {
	[NODE_WAITING] = BIT(CONNECTING) | BIT(WAITING) | BIT(STOPPED),
	[NODE_CONNECTING] = BIT(GREETING) | BIT(WAITING) | BIT(STOPPED),
	[NODE_GREETING] = BIT(UP) | BIT(WAITING) | BIT(REFUSED) | BIT(STOPPED),
	[NODE_UP] = BIT(WAITING) | BIT(STOPPED),
	[NODE_REFUSED] = BIT(STOPPED),
	[NODE_STOPPED] = 0,
};

struct ctl_node {
	struct loop *l;
	struct ctl_node_cb cb;
	void *ctx;
	enum node_state state;
	struct ctl *c;			/* NULL: none, or already told to close */
	uint32_t closing;		/* connections whose closed() is still to come */
	struct loop_timer *timer;	/* waiting: back-off; up: heartbeat; there for life */
	uint32_t backoff_ms;
	struct rng rng;
	struct err why;			/* the last try ended so; code 0: none has */
	int told_down;			/* code of what was told last of this outage; 0: nothing */
	uint32_t heartbeat_ms, lease_ms;
	uint64_t seq;
	mono_t beaten;			/* when the last heartbeat was sent */
	uint32_t unheard;		/* the timer's heartbeats since one came back */
	struct msg hello;		/* points into hello_mem */
	uint8_t *hello_mem;		/* owned */
	uint16_t port;
	char host[ADDR_LEN_MAX + 1];
	char where[ENDPOINT_TEXT];	/* both, for people */
	char local[ADDR_LEN_MAX + 1];
};

/* ---- states ---- */

static void set_state(struct ctl_node *n, enum node_state to, const char *why)
{
	ASSERT(may_follow[n->state] & (1u << to));
	if (n->state != to)
		log_debug("scheduler %s %s -> %s, reason %s", n->where,
			  state_names[n->state], state_names[to], why);
	n->state = to;
	loop_timer_pause(n->timer);
	n->local[0] = '\0';
}

static void node_free(struct ctl_node *n)
{
	loop_timer_stop(n->timer);
	free(n->hello_mem);
	free(n);
}

/* Lets go of the connection; on_closed() will find that it is no longer ours. */
static void drop_connection(struct ctl_node *n)
{
	if (!n->c)
		return;
	ctl_close(n->c);
	n->c = NULL;
	n->closing++;
}

static uint64_t next_backoff_ms(struct ctl_node *n)
{
	uint32_t ms = n->backoff_ms;

	n->backoff_ms = MIN(2 * ms, BACKOFF_MAX_MS);
	return ms / 2 + rng_below(&n->rng, ms / 2 + 1);
}

/* Whether a refusal is final: trying again would not change it. */
static bool is_final(int code)
{
	return code == TALLY_EVERSION || code == TALLY_EAUTH || code == TALLY_EEXIST;
}

/* Back to waiting, whatever it was that went wrong. */
static void retry(struct ctl_node *n, const struct err *why)
{
	bool foreign = why->code == TALLY_EMISMATCH || is_final(why->code);
	bool tell = !n->told_down || (foreign && n->told_down != why->code);

	n->why = *why;
	drop_connection(n);
	set_state(n, NODE_WAITING, why->text);
	loop_timer_set(n->timer, next_backoff_ms(n), BACKOFF_MAX_MS);
	n->told_down = tell ? why->code : n->told_down;
	if (tell)
		n->cb.down(n->ctx, why);	/* the last thing: it may stop us */
}

static bool trains(const struct ctl_node *n)
{
	return n->cb.trains && n->cb.trains(n->ctx);
}

static void refuse(struct ctl_node *n, const struct err *why)
{
	n->why = *why;
	drop_connection(n);
	set_state(n, NODE_REFUSED, why->text);
	n->cb.refused(n->ctx, why);
}

/*
 * A scheduler that takes us for a stranger: wrong secret, other version, name in use.  Who has jobs
 * in which somebody trains needs no scheduler for that, and waits for one that knows it.  But where
 * another process of our own cluster has our name, what we had was taken from us with it.
 */
static void refused(struct ctl_node *n, const struct err *why)
{
	struct err e;

	if (why->code == TALLY_EEXIST && n->hello.hello.node && n->cb.replaced)
		n->cb.replaced(n->ctx, why);
	if (n->state == NODE_STOPPED)
		return;
	if (is_final(why->code) && !trains(n)) {
		refuse(n, why);
		return;
	}
	e = *why;
	err_wrap(&e, "it refuses this node");
	retry(n, &e);
}

/* ---- heartbeats ---- */

static void send_heartbeat(struct ctl_node *n)
{
	struct msg m = { .type = MSG_HEARTBEAT, .heartbeat = { .note = "", .cause = "" } };
	struct err e;

	n->cb.heartbeat(n->ctx, &m.heartbeat);
	n->beaten = loop_now();
	m.heartbeat.seq = ++n->seq;
	if (n->state == NODE_UP && ctl_send(n->c, &m, &e) < 0)
		log_warn("scheduler %s heartbeat not sent: %s", n->where, e.text);
}

/*
 * Silence is counted in turns of the loop, not by the clock: when we were busy for
 * longer than a lease, the echoes lie in the socket and nobody is to blame.
 */
static void on_heartbeat_due(struct ctl_node *n)
{
	struct err e;

	if ((uint64_t)n->unheard * n->heartbeat_ms > n->lease_ms) {
		err_set(&e, TALLY_ETIMEDOUT, "it echoed no heartbeat for %u ms", n->lease_ms);
		ctl_explain(&e, STAGE_UP, 0, false, ctl_peer(n->c), ctl_local(n->c));
		retry(n, &e);
		return;
	}
	n->unheard++;
	send_heartbeat(n);
}

void ctl_node_alive(struct ctl_node *n)
{
	notify_alive();
	if (n && n->state == NODE_UP && loop_now() - n->beaten >= mono_ms(n->heartbeat_ms))
		send_heartbeat(n);
}

/* ---- messages ---- */

static void note_epoch(struct ctl_node *n, uint64_t epoch)
{
	n->hello.hello.epoch_seen = MAX(n->hello.hello.epoch_seen, epoch);
}

static void on_welcome(struct ctl_node *n, const struct msg_welcome *w)
{
	set_state(n, NODE_UP, "registered");
	n->heartbeat_ms = MIN(MAX(w->heartbeat_ms, HEARTBEAT_FLOOR_MS), HEARTBEAT_CEIL_MS);
	n->lease_ms = MAX(w->lease_ms, n->heartbeat_ms);
	n->beaten = loop_now();
	n->unheard = 0;
	n->backoff_ms = BACKOFF_MIN_MS;
	n->told_down = 0;
	n->why.code = 0;
	note_epoch(n, w->epoch);
	memcpy(n->hello.hello.cluster, w->cluster, ID_BYTES);
	n->hello.hello.node = w->node;
	endpoint_host(ctl_local(n->c), n->local);
	loop_timer_set(n->timer, n->heartbeat_ms, n->heartbeat_ms);
	n->cb.up(n->ctx, w);
}

static void on_greeting_msg(struct ctl_node *n, const struct msg *m)
{
	struct err e;

	if (m->type == MSG_WELCOME) {
		on_welcome(n, &m->welcome);
		return;
	}
	if (m->type != MSG_REPLY) {
		err_set(&e, TALLY_EPROTO, "it answered HELLO with %s",
			msg_type_name(m->type));
		retry(n, &e);
		return;
	}
	err_set(&e, m->reply.code ? m->reply.code : TALLY_EPROTO, "%s", m->reply.text);
	if (e.code == TALLY_EMISMATCH && !trains(n)) {
		memset(n->hello.hello.cluster, 0, ID_BYTES);
		n->hello.hello.node = 0;
		n->hello.hello.draining = 0;
	}
	refused(n, &e);
}

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct ctl_node *n = ctx;

	ASSERT(c == n->c);
	if (n->state == NODE_GREETING) {
		on_greeting_msg(n, m);
		return;
	}
	if (m->type == MSG_HEARTBEAT) {
		n->unheard = 0;
		if (n->cb.echo)
			n->cb.echo(n->ctx, &m->heartbeat);
		return;
	}
	if (m->type == MSG_JOB_UP)
		note_epoch(n, m->job_up.epoch);
	if (m->type == MSG_DRAIN)
		n->hello.hello.draining = !m->drain.undo;
	n->cb.msg(n->ctx, m);
}

/* ---- the connection ---- */

static void on_up(void *ctx, struct ctl *c)
{
	struct ctl_node *n = ctx;
	struct err e;

	set_state(n, NODE_GREETING, "connected");
	if (n->cb.secret)
		n->hello.hello.secret = n->cb.secret(n->ctx);
	if (ctl_send(c, &n->hello, &e) < 0)
		retry(n, &e);
}

static void on_closed(void *ctx, struct ctl *c, const struct err *why)
{
	struct ctl_node *n = ctx;
	struct err e;

	if (c != n->c) {		/* dropped by us before */
		n->closing--;
		if (n->state == NODE_STOPPED && n->closing == 0)
			node_free(n);
		return;
	}
	n->c = NULL;
	err_set(&e, why->code ? why->code : TALLY_ESCHED, "%s",
		why->code ? why->text : "connection closed");
	if (n->state == NODE_CONNECTING || n->state == NODE_GREETING)
		ctl_explain(&e, n->state == NODE_CONNECTING ? STAGE_CONNECT : STAGE_GREET,
			    ctl_errnum(c), !why->code, ctl_peer(c), ctl_local(c));
	if (n->state == NODE_GREETING && why->code == TALLY_EVERSION)
		refused(n, &e);
	else
		retry(n, &e);
}

static const struct ctl_cb ctl_cb = { .up = on_up, .msg = on_msg, .closed = on_closed };

static void begin_connecting(struct ctl_node *n)
{
	struct err e;

	set_state(n, NODE_CONNECTING, "back-off over");
	if (ctl_connect(n->l, &n->c, n->host, n->port, &ctl_cb, n, &e) < 0)
		retry(n, &e);
}

static void on_timer(void *ctx)
{
	struct ctl_node *n = ctx;

	if (n->state == NODE_UP)
		on_heartbeat_due(n);
	else
		begin_connecting(n);
}

/* ---- life ---- */

static int copy_hello(struct ctl_node *n, const struct msg_hello *hello, struct err *e)
{
	struct msg m = { .type = MSG_HELLO, .hello = *hello };
	struct msg_mem mem = { 0 };
	uint32_t bytes;
	uint8_t *wire;
	int code = msg_encode_size(&m, &bytes, e);

	if (code < 0)
		return code;
	wire = malloc(bytes);
	mem.size = 4 * (size_t)bytes + 4096;
	n->hello_mem = mem.base = malloc(mem.size);
	if (!wire || !mem.base)
		code = err_set(e, TALLY_ENOMEM, "no memory for a HELLO of %u bytes", bytes);
	if (code == 0)
		code = msg_encode(&m, wire, bytes, e);
	if (code == 0)
		code = msg_decode(MSG_HELLO, wire + MSG_PREFIX_BYTES, bytes - MSG_PREFIX_BYTES,
				  &mem, &n->hello, e);
	free(wire);
	return code;
}

int ctl_node_start(struct loop *l, struct ctl_node **out, const char *host, uint16_t port,
		   const struct msg_hello *hello, const struct ctl_node_cb *cb, void *ctx,
		   struct err *e)
{
	struct ctl_node *n = calloc(1, sizeof(*n));
	int code;

	if (!n)
		return err_set(e, TALLY_ENOMEM, "no memory for the scheduler's connection");
	n->l = l;
	n->cb = *cb;
	n->ctx = ctx;
	n->port = port;
	n->backoff_ms = BACKOFF_MIN_MS;
	snprintf(n->host, sizeof(n->host), "%s", host);
	fmt_endpoint(n->where, sizeof(n->where), host, port);
	host_random(&n->rng.state, sizeof(n->rng.state));
	code = copy_hello(n, hello, e);
	if (code == 0 && loop_timer_start(l, &n->timer, 0, BACKOFF_MAX_MS, on_timer, n) < 0)
		code = err_set(e, TALLY_ENOMEM, "no memory for a timer");
	if (code < 0) {
		node_free(n);
		return code;
	}
	*out = n;
	return 0;
}

void ctl_node_stop(struct ctl_node *n)
{
	if (!n)
		return;
	drop_connection(n);
	set_state(n, NODE_STOPPED, "told to");
	if (n->closing == 0)
		node_free(n);
}

int ctl_node_send(struct ctl_node *n, const struct msg *m, struct err *e)
{
	if (n->state != NODE_UP) {
		ctl_node_why(n, e);
		return TALLY_ESCHED;
	}
	return ctl_send(n->c, m, e);
}

const char *ctl_node_where(const struct ctl_node *n)
{
	return n->where;
}

const char *ctl_node_peer(const struct ctl_node *n)
{
	return n->state == NODE_UP && n->c ? ctl_peer(n->c) : "";
}

void ctl_node_why(const struct ctl_node *n, struct err *e)
{
	if (n->why.code)
		err_set(e, TALLY_ESCHED, "no connection to scheduler %s: %s", n->where,
			n->why.text);
	else
		err_set(e, TALLY_ESCHED, "no connection to scheduler %s: it has not answered yet",
			n->where);
}

bool ctl_node_is_up(const struct ctl_node *n)
{
	return n->state == NODE_UP;
}

const char *ctl_node_local(const struct ctl_node *n)
{
	return n->local;
}
