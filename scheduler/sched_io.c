// SPDX-License-Identifier: Apache-2.0
/*
 * sched_io.c - events from the loop into the core, actions out to the world.
 *
 * Each accepted socket gets the lowest free connection number.  A step's actions
 * are done before the next event is fed: what happens meanwhile (a connection
 * that closes while it is sent to) is noted and fed afterwards.  SAVE is done at
 * once, on the spot: the file is 64 bytes, written once in hundreds of numbers.
 */
#include "scheduler/sched_io.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/ctl/ctl.h"
#include "common/rt/log.h"

#define RECOVER_MS	(LEASE_MS + 2000u)
#define LOG_PLACES	64u	/* in the core, that are bounded; more share the last one */
#ifndef TALLY_VERSION
#define TALLY_VERSION	"0.1.0"
#endif

struct sched_conn_io {
	struct sched_io *io;		/* borrowed for life */
	struct ctl *ctl;		/* NULL: number is free */
	bool gone;			/* closed while actions were being done */
};

struct sched_io {
	struct loop *loop;		/* borrowed for life */
	struct state *state;		/* borrowed for life */
	struct sched *core;		/* owned */
	struct listener *listener;	/* owned */
	struct loop_timer *timer;	/* owned */
	mono_t armed;			/* when the timer fires */
	bool acting, any_gone, stopping, saved;
	int save_code;
	uint32_t open;
	struct ctl_crowd crowd;		/* who has said nothing yet */
	const struct msg *encoded;	/* in `wire`, during a step's actions */
	struct ctl_wire wire;		/* owned */
	struct sched_conn_io conns[CTL_CONNS_MAX];
};

static void feed(struct sched_io *io, struct sched_event ev);

/* ---- actions ---- */

/* A storm of one kind leaves room for what others say. */
static struct log_site *site_of(const struct sched_action *a)
{
	static struct {
		const char *place;
		enum sched_level level;
		struct log_site site;
	} known[LOG_PLACES];
	uint32_t i = 0;

	while (i < LOG_PLACES - 1 && known[i].place &&
	       (known[i].place != a->place || known[i].level != a->level))
		i++;
	known[i].place = a->place;
	known[i].level = a->level;
	return &known[i].site;
}

static void log_row(const struct sched_action *a)
{
	static const enum log_level to[] = {
		[SCHED_ERROR] = LOG_ERROR, [SCHED_WARN] = LOG_WARN,
		[SCHED_OFTEN] = LOG_INFO, [SCHED_INFO] = LOG_INFO, [SCHED_DEBUG] = LOG_DEBUG,
	};

	if (a->level <= SCHED_OFTEN)	/* strangers can have those said */
		log_bounded(site_of(a), to[a->level], "%s", a->text);
	else
		log_line(to[a->level], "%s", a->text);
}

/*
 * The core sends one message to many in a row, and to encode it for each of a thousand
 * nodes takes seconds, in which nobody's heartbeat would be heard.
 */
static int encode(struct sched_io *io, const struct msg *m, struct err *e)
{
	int err;

	if (m == io->encoded)
		return 0;
	ctl_wire_free(&io->wire);
	err = ctl_encode(m, &io->wire, e);
	io->encoded = err ? NULL : m;
	return err;
}

static void send_msg(struct sched_io *io, uint32_t conn, const struct msg *m)
{
	struct sched_conn_io *c = &io->conns[conn];
	struct err e;

	if (!c->ctl || c->gone)
		return;
	if (!encode(io, m, &e) && !ctl_send_wire(c->ctl, &io->wire, &e))
		return;
	log_warn("connection %s is cut, message %s, reason %s", ctl_peer(c->ctl),
		 msg_type_name(m->type), e.text);
	ctl_close(c->ctl);
}

static void save(struct sched_io *io, const struct sched_ids *ids)
{
	struct err e;

	io->save_code = state_save(io->state, ids, &e);
	io->saved = true;
	if (io->save_code)
		log_error("state is not saved, reason %s", e.text);
}

static void act(struct sched_io *io, const struct sched_action *a)
{
	switch (a->type) {
	case SCHED_DO_SEND:
		send_msg(io, a->conn, a->msg);
		break;
	case SCHED_DO_CLOSE:
		if (io->conns[a->conn].ctl && !io->conns[a->conn].gone)
			ctl_close(io->conns[a->conn].ctl);
		break;
	case SCHED_DO_SAVE:
		save(io, &a->ids);
		break;
	case SCHED_DO_LOG:
		log_row(a);
		break;
	case SCHED_DO_NONE:
		break;
	}
}

/* ---- the timer ---- */

static void on_timer(void *ctx)
{
	struct sched_io *io = ctx;

	io->armed = MONO_NEVER;
	feed(io, (struct sched_event){ .type = SCHED_EV_TIMER });
}

static void arm(struct sched_io *io)
{
	mono_t next = sched_next(io->core), now = loop_now();
	uint64_t ms = next > now ? div_round_up((uint64_t)(next - now), NS_PER_MS) : 1;

	if (io->stopping || next == io->armed)
		return;
	io->armed = next;
	loop_timer_set(io->timer, ms, HEARTBEAT_MS);
}

/* ---- events ---- */

static void step(struct sched_io *io, const struct sched_event *ev)
{
	struct sched_actions todo;

	sched_step(io->core, ev, &todo);
	for (const struct sched_action *a = todo.head; a; a = a->next)
		act(io, a);
	ctl_wire_free(&io->wire);
	io->encoded = NULL;
}

static bool is_no_message(const struct err *e)
{
	return e && (e->code == TALLY_EPROTO || e->code == TALLY_EVERSION);
}

static void conn_gone(struct sched_io *io, struct sched_conn_io *c, const char *peer,
		      const struct err *e)
{
	struct sched_event ev = {
		.type = SCHED_EV_CLOSED, .now = loop_now(), .conn = (uint32_t)(c - io->conns),
		.peer = peer, .why = is_no_message(e) ? e : NULL,
	};

	c->ctl = NULL;
	c->gone = false;
	io->open--;
	if (!io->stopping)
		step(io, &ev);
}

static void feed_gone(struct sched_io *io)
{
	io->any_gone = false;
	for (uint32_t i = 0; i < CTL_CONNS_MAX; i++) {
		if (io->conns[i].gone)
			conn_gone(io, &io->conns[i], NULL, NULL);
	}
}

/* Feeds the events that a step's own actions have caused, before anything else comes. */
static void settle(struct sched_io *io)
{
	while (io->saved || io->any_gone) {
		if (io->saved) {
			const struct sched_event ev = {
				.type = SCHED_EV_SAVED, .now = loop_now(), .code = io->save_code,
			};

			io->saved = false;
			step(io, &ev);
		}
		if (io->any_gone)
			feed_gone(io);
	}
}

static void feed(struct sched_io *io, struct sched_event ev)
{
	ASSERT(!io->acting);
	io->acting = true;
	ev.now = loop_now();
	step(io, &ev);
	settle(io);
	io->acting = false;
	arm(io);
}

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct sched_conn_io *conn = ctx;

	if (conn->gone || conn->io->stopping)
		return;
	ctl_known(c);
	/* A node is told of jobs unasked, however large. */
	if (m->type == MSG_HELLO && m->hello.kind != NODE_CLI)
		ctl_set_bounded(c, false);
	feed(conn->io, (struct sched_event){
		.type = SCHED_EV_MSG, .conn = (uint32_t)(conn - conn->io->conns), .msg = m,
		.peer = ctl_peer(c),
	});
}

static void on_closed(void *ctx, struct ctl *c, const struct err *e)
{
	struct sched_conn_io *conn = ctx;
	struct sched_io *io = conn->io;

	if (e->code)
		log_here(LOG_INFO, "connection %s closed, reason %s", ctl_peer(c), e->text);
	if (io->acting) {
		conn->gone = io->any_gone = true;
		return;
	}
	io->acting = true;
	conn_gone(io, conn, ctl_peer(c), e);
	settle(io);
	io->acting = false;
	if (io->stopping && !io->open)
		loop_stop(io->loop);
	else
		arm(io);
}

static const struct ctl_cb conn_cb = { .msg = on_msg, .closed = on_closed };

static void on_accepted(void *ctx, int fd)
{
	struct sched_io *io = ctx;
	struct sched_conn_io *c = io->conns;
	struct err e;

	while (c < io->conns + CTL_CONNS_MAX && c->ctl)
		c++;
	if (c == io->conns + CTL_CONNS_MAX) {
		log_warn("connection refused, limit %u", CTL_CONNS_MAX);
		close(fd);
		return;
	}
	if (ctl_adopt(io->loop, &c->ctl, fd, &conn_cb, c, &e)) {
		log_warn("connection refused, reason %s", e.text);
		c->ctl = NULL;
		close(fd);
		return;
	}
	ctl_crowd_join(&io->crowd, c->ctl);
	ctl_set_bounded(c->ctl, true);
	io->open++;
	feed(io, (struct sched_event){
		.type = SCHED_EV_UP, .conn = (uint32_t)(c - io->conns),
	});
}

/* ---- life ---- */

static void *mem_alloc(void *ctx, size_t bytes)
{
	(void)ctx;
	return calloc(1, bytes);
}

static void mem_free(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

static struct sched *core_new(const struct state *st, const struct sched_io_config *config)
{
	static const struct mem_ops mem = { .alloc = mem_alloc, .free = mem_free };
	struct sched_config c = {
		.ids = *state_ids(st), .secret = config->secret, .version = TALLY_VERSION,
		.heartbeat_ms = config->heartbeat_ms, .agent_grace_ms = config->agent_grace_ms,
		.recover_ms = state_is_new(st) ? 0 : RECOVER_MS,
		.window_bytes = config->window_bytes,
	};

	memcpy(c.cluster, state_cluster(st), ID_BYTES);
	memcpy(c.key_seed, state_key_seed(st), KEY_BYTES);
	return sched_new(&mem, &c, loop_now());
}

int sched_io_start(struct sched_io **out, struct loop *l, struct state *st,
		   const struct sched_io_config *config, struct err *e)
{
	struct sched_io *io = calloc(1, sizeof(*io));
	int err;

	if (!io)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	io->loop = l;
	io->state = st;
	ctl_crowd_init(&io->crowd, STRANGERS_MAX);
	io->armed = MONO_NEVER;
	for (uint32_t i = 0; i < CTL_CONNS_MAX; i++)
		io->conns[i].io = io;
	io->core = core_new(st, config);
	if (!io->core) {
		free(io);
		return err_set(e, TALLY_ENOMEM, "out of memory");
	}
	err = loop_timer_start(l, &io->timer, HEARTBEAT_MS, HEARTBEAT_MS, on_timer, io);
	if (err)
		err_set(e, err, "out of memory");
	else
		err = listener_tcp(l, &io->listener, config->host, config->port, on_accepted, io,
				   e);
	if (err) {
		loop_timer_stop(io->timer);
		sched_free(io->core);
		free(io);
		return err;
	}
	feed(io, (struct sched_event){ .type = SCHED_EV_TIMER });
	*out = io;
	return 0;
}

uint16_t sched_io_port(const struct sched_io *io)
{
	return listener_port(io->listener);
}

void sched_io_stop(struct sched_io *io)
{
	if (io->stopping)
		return;
	io->stopping = true;
	listener_close(io->listener);
	loop_timer_stop(io->timer);
	io->timer = NULL;
	if (!io->open)
		loop_stop(io->loop);
	for (uint32_t i = 0; i < CTL_CONNS_MAX; i++) {
		if (io->conns[i].ctl)
			ctl_close(io->conns[i].ctl);
	}
}

void sched_io_free(struct sched_io *io)
{
	sched_free(io->core);
	free(io);
}
