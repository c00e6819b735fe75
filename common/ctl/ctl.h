/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl.h - a control connection: struct msg in, struct msg out, over a stream.
 *
 * Both sides of TCP control connections and of the agent's Unix socket use it.
 * One read buffer per connection, grown to the message at hand and at most
 * CTL_MSG_BYTES_MAX; a message not complete within HANDSHAKE_MS of its first
 * byte, or a first message not within HANDSHAKE_MS of connecting, closes it; of a
 * stranger (struct ctl_crowd) all that it says until it is known is to come in that time.
 * A bad message closes the connection with EPROTO/EVERSION after a REPLY that
 * says so (req 0).  The msg in msg() lives until the callback returns.
 *
 * Life: ctl_connect/ctl_adopt .. ctl_close or the peer's or the network's end;
 * closed() is called once, later and never inside another call, and c is gone
 * after it.  No other callback comes after ctl_close().
 */
#ifndef TALLY_CTL_H
#define TALLY_CTL_H

#include "common/base/cause.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/rt/daemon.h"
#include "common/rt/loop.h"
#include "proto/msg.h"

struct ctl;

struct ctl_cb {
	void (*up)(void *ctx, struct ctl *c);	/* of ctl_connect only; may be NULL */
	/* ctl_take_fds() in it takes the descriptors that came with m (Unix only). */
	void (*msg)(void *ctx, struct ctl *c, const struct msg *m);
	void (*closed)(void *ctx, struct ctl *c, const struct err *e);	/* once; c is gone after */
};

int ctl_connect(struct loop *l, struct ctl **c, const char *host, uint16_t port,
		const struct ctl_cb *cb, void *ctx, struct err *e);
int ctl_adopt(struct loop *l, struct ctl **c, int fd, const struct ctl_cb *cb, void *ctx,
	      struct err *e);

/*
 * The connections of a listener that nobody knows yet, oldest first: whoever means it says so at
 * once, so when there are too many the oldest is closed, and a crowd keeps nobody out.
 */
struct ctl_crowd {
	struct list strangers;
	uint32_t n, max;
	mono_t told;			/* that there are too many; 0: never */
};
void ctl_crowd_init(struct ctl_crowd *w, uint32_t max);
void ctl_crowd_join(struct ctl_crowd *w, struct ctl *c);	/* until ctl_known(), or its end */
void ctl_known(struct ctl *c);
/*
 * Of a peer that asks and is answered: while more than CTL_ROOM_BYTES of answers wait for it, or
 * STRANGER_ROOM_BYTES of a stranger, nothing more is read of it, however much it asks; it is cut
 * (EQUOTA) when it asks on and takes nothing for CTL_STALL_MS.  Who has not asked more may take
 * its time.  false, as it begins: CTL_QUEUE_BYTES_MAX is the one bound.
 */
void ctl_set_bounded(struct ctl *c, bool bounded);
/* Queues a copy; before up() too.  EINVAL, ENOMEM: nothing was sent.  EQUOTA: the peer
 * does not read, and c is closed for it.  ESHUTDOWN: closed already. */
int ctl_send(struct ctl *c, const struct msg *m, struct err *e);

/* One message for many connections, encoded once. */
struct ctl_wire {
	uint8_t *bytes;			/* owned */
	uint32_t len;
};
int ctl_encode(const struct msg *m, struct ctl_wire *w, struct err *e);	/* EINVAL, ENOMEM */
void ctl_wire_free(struct ctl_wire *w);		/* zeroed is fine */
int ctl_send_wire(struct ctl *c, const struct ctl_wire *w, struct err *e);	/* as ctl_send() */

/* Unix only: with descriptors (duplicated; the caller keeps its own). */
int ctl_send_fds(struct ctl *c, const struct msg *m, const int *fds, uint32_t nfds,
		 struct err *e);
/* In msg() only: descriptors that came with this message, the caller's from here on; what
 * is not taken is closed when msg() returns.  Returns how many. */
uint32_t ctl_take_fds(struct ctl *c, int *fds, uint32_t max);
int ctl_reply(struct ctl *c, uint64_t req, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void ctl_close(struct ctl *c);			/* sends what waits, HANDSHAKE_MS at most */
int ctl_errnum(const struct ctl *c);	/* in closed(): that it ended with, or 0 */
const char *ctl_peer(const struct ctl *c);
const char *ctl_local(const struct ctl *c);	/* "10.0.0.2:51812": this side's address */
int ctl_fd(const struct ctl *c);		/* for SO_PEERCRED */
/* Replaces HANDSHAKE_MS for what c waits for from now on. */
void ctl_set_patience(struct ctl *c, uint32_t ms);

/*
 * Why the scheduler is not reached, for people: e gets the cause with its remedy, if one is known.
 * errnum: that the connection ended with, 0: in silence; closed: by the peer; remote, local:
 * "10.0.0.1:7470", as far as they are known.  Returns e->code.
 */
int ctl_explain(struct err *e, enum cause_stage stage, int errnum, bool closed, const char *remote,
		const char *local);

/* ---- the blocking way, for the CLI: one connection, ask and answer ---- */

struct ctl_client;

int ctl_client_open(struct ctl_client **c, const char *host, uint16_t port, uint32_t timeout_ms,
		    struct err *e);
void ctl_client_close(struct ctl_client *c);
/* Sends *ask, waits for one message that is not a HEARTBEAT; *answer lives until the next
 * call.  timeout_ms is for opening and for each ask.  After an error only close is of use.
 * A host that begins with '/' is a Unix socket's path; one without an address is EIO. */
int ctl_client_ask(struct ctl_client *c, const struct msg *ask, struct msg *answer,
		   struct err *e);

/*
 * ---- a node's connection to the scheduler: connects, registers, heartbeats,
 * reconnects with back-off (50 ms to 1 s, with jitter) until stopped ----
 *
 * A heartbeat goes out each WELCOME.heartbeat_ms; when as many as fill lease_ms were
 * not echoed, the connection is given up and made anew.  Work on the loop's thread
 * that may take longer than a heartbeat goes in pieces with ctl_node_alive() between.
 * The highest epoch heard (WELCOME and JOB_UP), the cluster id and the last DRAIN go
 * into the next HELLO.  Refused by another cluster's scheduler (EMISMATCH) it forgets which
 * cluster that was, unless jobs train here.  Heartbeats and the REPLY to HELLO are not handed
 * to msg().  ctl_node_stop() is allowed in every callback.
 */
struct ctl_node;

struct ctl_node_cb {
	/* Registered (again); a node that holds jobs tells them now. */
	void (*up)(void *ctx, const struct msg_welcome *w);
	void (*msg)(void *ctx, const struct msg *m);
	/* Once per outage (also when the first try fails), and again where another cluster's
	 * scheduler is there (EMISMATCH); it tries again by itself. */
	void (*down)(void *ctx, const struct err *why);
	/* Refused for good (EVERSION, EAUTH, EEXIST name taken): the daemon should exit. */
	void (*refused)(void *ctx, const struct err *why);
	/* Another process is registered under our name, in a cluster where we were: our jobs are
	 * over.  It tries again while trains() says so, and is refused then.  NULL: nothing. */
	void (*replaced)(void *ctx, const struct err *why);
	/* Fills the numbers of a heartbeat; seq is ours. */
	void (*heartbeat)(void *ctx, struct msg_heartbeat *hb);
	/* The scheduler's echo of a heartbeat; NULL: nobody wants it. */
	void (*echo)(void *ctx, const struct msg_heartbeat *hb);
	/* The secret of the next HELLO, which is valid until then; NULL: hello's. */
	const char *(*secret)(void *ctx);
	/* Jobs train here: it registers with no other cluster's scheduler.  NULL: never. */
	bool (*trains)(void *ctx);
};

int ctl_node_start(struct loop *l, struct ctl_node **n, const char *host, uint16_t port,
		   const struct msg_hello *hello, const struct ctl_node_cb *cb, void *ctx,
		   struct err *e);	/* hello is copied deeply */
int ctl_node_send(struct ctl_node *n, const struct msg *m, struct err *e); /* ESCHED when down */
bool ctl_node_is_up(const struct ctl_node *n);
const char *ctl_node_where(const struct ctl_node *n);	/* "HOST:PORT", as it was given */
const char *ctl_node_peer(const struct ctl_node *n);	/* numeric, while it is up; else "" */
/* Why it is not up, with the scheduler's address; one line for people. */
void ctl_node_why(const struct ctl_node *n, struct err *e);
/* Sends a heartbeat, and a word for the service manager's watchdog, at once if one is due; calls
 * heartbeat() and nothing else.  NULL, or one that is not up, is fine. */
void ctl_node_alive(struct ctl_node *n);
const char *ctl_node_local(const struct ctl_node *n);	/* this side's numeric host, "" when down */
void ctl_node_stop(struct ctl_node *n);

/* ---- the same for a daemon: ctx of the callbacks is its struct daemon ---- */

#define SCHEDULER_PORT	7470u

/* Fills in what of a HELLO is the daemon's: versions, names, secret, engines, instance. */
int ctl_daemon_start(struct daemon *d, struct ctl_node **n, struct msg_hello *hello,
		     const struct ctl_node_cb *cb, struct err *e);
void *ctl_daemon_owner(void *ctx);		/* the program's struct */
/* For the callback table: says so, and waits; says so, and ends the daemon. */
void ctl_daemon_down(void *ctx, const struct err *why);
void ctl_daemon_refused(void *ctx, const struct err *why);
/* In up(): says where, for whoever looks for a second scheduler. */
void ctl_daemon_registered(void *ctx, const struct ctl_node *n, const struct msg_welcome *w);

/* As its file has it by now: it may be replaced while daemons run. */
const char *ctl_daemon_secret(void *ctx);

/* An engine's counters, which the control thread may read at any time. */
struct ctl_stats {
	_Atomic uint64_t bytes_sent, bytes_received, bytes_summed, rounds, drops, busy_us;
	_Atomic uint64_t frames, writes;
	_Atomic uint32_t links, links_per_peer;
};

/* To what the other engines have counted. */
void ctl_stats_add(struct msg_heartbeat *hb, const struct ctl_stats *st);

#endif
