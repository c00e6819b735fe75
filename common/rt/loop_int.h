/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_int.h - what the files of common/rt share with each other, and nobody else.
 *
 * Tasks: work that must happen soon but not inside the caller's own call, above
 * all a stream's last word.  Resolving: names to addresses off the loop's thread.
 * Both belong to the loop's thread.
 */
#ifndef TALLY_RT_LOOP_INT_H
#define TALLY_RT_LOOP_INT_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/rt/loop.h"

/* Embedded in its owner; fn runs once per loop_defer, from the loop. */
struct loop_task {
	struct list link;
	void (*fn)(struct loop_task *t);
};

void loop_task_init(struct loop_task *t, void (*fn)(struct loop_task *t));
void loop_defer(struct loop *l, struct loop_task *t);	/* queued already: fine */

/* One buffer for all reads of the loop; its bytes live until the callback returns. */
#define LOOP_SCRATCH_BYTES	(64u << 10)
uint8_t *loop_scratch(struct loop *l);

/* NULL: there is none. */
struct fdguard *loop_fdguard(const struct loop *l);

/* libuv's own, for the files that include it. */
struct uv_loop_s *loop_uv(struct loop *l);

/* An address of any family we speak. */
struct sock_addr {
	socklen_t len;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
	};
};

#define RESOLVE_ADDRS_MAX	8u

struct resolve;

/* fn is called once from the loop with n > 0 addresses or with e; unless cancelled. */
int resolve_start(struct loop *l, struct resolve **r, const char *host, uint16_t port,
		  void (*fn)(void *ctx, const struct sock_addr *addrs, uint32_t n,
			     const struct err *e),
		  void *ctx, struct err *e);
void resolve_cancel(struct resolve *r);		/* not after fn was called */

/* A numeric address or an absolute path (Unix); false: it is a name. */
bool sock_addr_numeric(struct sock_addr *a, const char *host, uint16_t port);
bool sock_addr_from_sa(struct sock_addr *a, const struct sockaddr *sa, socklen_t len);
/* "10.0.0.1:4711", "[::1]:4711", a path, "" where there is none; returns buf. */
const char *sock_addr_text(const struct sock_addr *a, char *buf, size_t len);

#define SOCK_TEXT_BYTES		(ADDR_LEN_MAX + 1)

void sock_tune_tcp(int fd);
int sock_connect(const struct sock_addr *a);	/* a socket that connects, or -errno */
/* As send() without waiting; fds, STREAM_FDS_MAX at most, ride on the first byte. */
ssize_t sock_send(int fd, const uint8_t *data, size_t len, const int *fds, uint32_t nfds);

#endif
