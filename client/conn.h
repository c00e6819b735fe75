/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h - the Unix stream socket to the agent: whole messages, with deadlines.
 *
 * A message is proto/msg.h's prefix and body; descriptors ride on its first byte.
 * lt_conn_recv() can be left at a deadline in the middle of a message and goes on
 * there next time, so a slow agent costs a call and not the connection.
 *
 * Whatever breaks the stream (end, nonsense, half a message sent) closes it:
 * fd is -1 then, and the error is EAGENT, EPROTO or EVERSION.
 *
 * Memory: grows its buffers to the largest message seen; a received message and
 * its texts are valid until the next receive.
 */
#ifndef TALLY_CLIENT_CONN_H
#define TALLY_CLIENT_CONN_H

#include "client/tally.h"
#include "common/shm/slab.h"
#include "proto/msg.h"

struct lt_conn {
	int fd;				/* owned; -1: none */
	int epfd;			/* borrowed: may watch fd until that is closed; -1: none */
	const char *path;		/* borrowed until close */
	uint8_t *in, *out, *mem;	/* owned: body received, message sent, decoded texts */
	size_t in_size, out_size, mem_size;
	uint8_t prefix[MSG_PREFIX_BYTES];
	uint32_t got;			/* bytes of the message being received */
	uint32_t type, body_bytes;	/* valid once the prefix is there */
	uint32_t nfds;
	int fds[FDS_PER_MSG_MAX];	/* owned: came with the message */
};

void lt_conn_init(struct lt_conn *c, const char *path);
int lt_conn_open(struct lt_conn *c, mono_t deadline, struct err *e);
void lt_conn_close(struct lt_conn *c);		/* memory stays */
void lt_conn_fini(struct lt_conn *c);

/* Room for an answer of that size, so that receiving it cannot fail for memory. */
int lt_conn_reserve(struct lt_conn *c, size_t body_bytes, struct err *e);

/* Whole messages; ETIMEDOUT: no answer so far.  EINVAL: m breaks its own rules. */
int lt_conn_send(struct lt_conn *c, const struct msg *m, mono_t deadline, struct err *e);
int lt_conn_send_fd(struct lt_conn *c, const struct msg *m, int fd, mono_t deadline,
		    struct err *e);	/* with a descriptor, which stays the caller's */
int lt_conn_recv(struct lt_conn *c, struct msg *m, mono_t deadline, struct err *e);

int lt_conn_take_fd(struct lt_conn *c, uint32_t i);	/* now the caller's; -1: none */
/* Whether that none came is because this process may open no more files; e says so then. */
bool lt_conn_lacks_fds(const struct lt_conn *c, struct err *e);
bool lt_conn_gone(const struct lt_conn *c);		/* has the agent hung up? */
int lt_conn_say_gone(const struct lt_conn *c, struct err *e);	/* EAGENT and the text */

#endif
