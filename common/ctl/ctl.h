/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl.h - a control connection: struct msg in, struct msg out, over a stream.
 *
 * Both sides of TCP control connections and of the agent's Unix socket use it.
 * One read buffer per connection, grown to the message at hand and at most
 * CTL_MSG_BYTES_MAX; a message not complete within HANDSHAKE_MS of its first
 * byte, or a first message not within HANDSHAKE_MS of connecting, closes it.
 * A bad message closes the connection with EPROTO/EVERSION after a REPLY that
 * says so.  The msg in on_msg() lives until the callback returns.
 */
#ifndef TALLY_CTL_H
#define TALLY_CTL_H

#include "common/base/err.h"
#include "common/rt/loop.h"
#include "proto/msg.h"

struct ctl;

struct ctl_cb {
	void (*up)(void *ctx, struct ctl *c);				/* may be NULL */
	/* fds: descriptors that came with it (Unix only), the callee's. */
	void (*msg)(void *ctx, struct ctl *c, const struct msg *m);
	void (*closed)(void *ctx, struct ctl *c, const struct err *e);	/* once; c is gone after */
};

int ctl_connect(struct loop *l, struct ctl **c, const char *host, uint16_t port,
		const struct ctl_cb *cb, void *ctx, struct err *e);
int ctl_adopt(struct loop *l, struct ctl **c, int fd, const struct ctl_cb *cb, void *ctx,
	      struct err *e);
int ctl_send(struct ctl *c, const struct msg *m, struct err *e);
/* Unix only: with descriptors (duplicated; the caller keeps its own). */
int ctl_send_fds(struct ctl *c, const struct msg *m, const int *fds, uint32_t nfds,
		 struct err *e);
int ctl_reply(struct ctl *c, uint64_t req, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void ctl_close(struct ctl *c);
const char *ctl_peer(const struct ctl *c);
const char *ctl_local(const struct ctl *c);	/* "10.0.0.2:51812": this side's address */
int ctl_fd(const struct ctl *c);		/* for SO_PEERCRED */
void ctl_set_user(struct ctl *c, void *user);	/* replaces ctx of the callbacks */

/* ---- the blocking way, for the CLI: one connection, ask and answer ---- */

struct ctl_client;

int ctl_client_open(struct ctl_client **c, const char *host, uint16_t port, uint32_t timeout_ms,
		    struct err *e);
void ctl_client_close(struct ctl_client *c);
/* Sends *ask, waits for one message that is not a HEARTBEAT; *answer lives until the next call. */
int ctl_client_ask(struct ctl_client *c, const struct msg *ask, struct msg *answer,
		   struct err *e);

/*
 * ---- a node's connection to the scheduler: connects, registers, heartbeats,
 * reconnects with back-off (50 ms to 1 s, with jitter) until closed ----
 */
struct ctl_node;

struct ctl_node_cb {
	/* Registered (again); a node that holds jobs tells them now. */
	void (*up)(void *ctx, const struct msg_welcome *w);
	void (*msg)(void *ctx, const struct msg *m);
	void (*down)(void *ctx, const struct err *why);		/* will try again by itself */
	/* Refused for good (EVERSION, EAUTH, EEXIST name taken): the daemon should exit. */
	void (*refused)(void *ctx, const struct err *why);
	/* Fills the numbers of a heartbeat. */
	void (*heartbeat)(void *ctx, struct msg_heartbeat *hb);
};

int ctl_node_start(struct loop *l, struct ctl_node **n, const char *host, uint16_t port,
		   const struct msg_hello *hello, const struct ctl_node_cb *cb, void *ctx,
		   struct err *e);	/* hello is copied deeply */
int ctl_node_send(struct ctl_node *n, const struct msg *m, struct err *e); /* ESCHED when down */
bool ctl_node_is_up(const struct ctl_node *n);
const char *ctl_node_local(const struct ctl_node *n);	/* this side's numeric host, "" when down */
void ctl_node_stop(struct ctl_node *n);

#endif
