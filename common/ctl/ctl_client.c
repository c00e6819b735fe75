// SPDX-License-Identifier: Apache-2.0
/*
 * The blocking client of the command line: connect, ask, wait for the answer.
 *
 * One socket, non-blocking underneath, and poll() with what is left of the one
 * deadline that each call has: no peer can hold the command longer than that.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/ctl/ctl.h"

struct ctl_client {
	int fd;
	uint32_t timeout_ms;
	mono_t deadline;		/* of the call at hand */
	char peer[ENDPOINT_TEXT];
	uint8_t *body;			/* owned; of the last answer */
	uint8_t *mem;			/* owned; what the last answer points into */
};

/* ---- waiting ---- */

/* Until fd is ready or the deadline; 0 or ETIMEDOUT. */
static int wait_for(struct ctl_client *c, short events, struct err *e)
{
	struct pollfd p = { .fd = c->fd, .events = events };

	for (;;) {
		mono_t left = c->deadline - loop_now();
		int ms = left > 0 ? (int)div_round_up((uint64_t)left, NS_PER_MS) : 0;
		int n = poll(&p, 1, ms);

		if (n > 0)
			return 0;
		if (n == 0)
			return err_set(e, TALLY_ETIMEDOUT, "%s did not answer in %u ms", c->peer,
				       c->timeout_ms);
		if (errno != EINTR)
			return err_set(e, err_from_errno(errno), "cannot wait for %s: %s",
				       c->peer, strerror(errno));
	}
}

static int send_all(struct ctl_client *c, const uint8_t *data, size_t len, struct err *e)
{
	while (len > 0) {
		ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		int code;

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return err_set(e, TALLY_ESCHED, "cannot write to %s: %s", c->peer,
				       strerror(errno));
		if (n < 0) {
			code = wait_for(c, POLLOUT, e);
			if (code < 0)
				return code;
			continue;
		}
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int recv_all(struct ctl_client *c, uint8_t *data, size_t len, struct err *e)
{
	while (len > 0) {
		ssize_t n = recv(c->fd, data, len, MSG_DONTWAIT);
		int code;

		if (n == 0)
			return err_set(e, TALLY_ESHUTDOWN, "%s closed the connection", c->peer);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return err_set(e, TALLY_ESCHED, "cannot read from %s: %s", c->peer,
				       strerror(errno));
		if (n < 0) {
			code = wait_for(c, POLLIN, e);
			if (code < 0)
				return code;
			continue;
		}
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* ---- opening ---- */

static int connect_to(struct ctl_client *c, const struct sockaddr *sa, socklen_t len,
		      struct err *e)
{
	int errnum = 0, code;
	socklen_t size = sizeof(errnum);

	c->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return err_set(e, err_from_errno(errno), "cannot make a socket: %s",
			       strerror(errno));
	if (connect(c->fd, sa, len) == 0)
		return 0;
	errnum = errno;
	if (errnum == EINPROGRESS) {
		code = wait_for(c, POLLOUT, e);
		if (code == 0 && getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &errnum, &size) < 0)
			errnum = errno;
		if (code == 0 && errnum == 0)
			return 0;
	} else {
		code = 0;
	}
	close(c->fd);
	c->fd = -1;
	if (code == 0)
		err_set(e, TALLY_ESCHED, "cannot connect to %s: %s", c->peer, strerror(errnum));
	if (e && sa->sa_family != AF_UNIX)
		ctl_explain(e, STAGE_CONNECT, errnum, false, c->peer, "");
	return code < 0 ? code : TALLY_ESCHED;
}

static int connect_unix(struct ctl_client *c, const char *path, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (strlen(path) > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "socket path %.120s is too long", path);
	memcpy(a.sun_path, path, strlen(path));
	return connect_to(c, (struct sockaddr *)&a, sizeof(a), e);
}

static int connect_tcp(struct ctl_client *c, const char *host, uint16_t port, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *all, *ai;
	char service[8];
	mono_t deadline = c->deadline;
	int code = TALLY_EIO, r;

	snprintf(service, sizeof(service), "%u", port);
	r = getaddrinfo(host, service, &hints, &all);
	if (r != 0)
		err_set(e, TALLY_EIO, "cannot find the address of %s: %s", host, gai_strerror(r));
	if (r != 0)
		return e ? ctl_explain(e, STAGE_CONNECT, 0, false, "", "") : TALLY_EIO;
	for (ai = all; ai && code < 0; ai = ai->ai_next) {
		if (ai->ai_next)	/* one that does not answer leaves time for the others */
			c->deadline = MIN(deadline, loop_now() + mono_ms(NEXT_ADDR_MS));
		code = connect_to(c, ai->ai_addr, ai->ai_addrlen, e);
		c->deadline = deadline;
	}
	freeaddrinfo(all);
	return code;
}

static void start_call(struct ctl_client *c)
{
	c->deadline = loop_now() + mono_ms(c->timeout_ms);
}

int ctl_client_open(struct ctl_client **out, const char *host, uint16_t port, uint32_t timeout_ms,
		    struct err *e)
{
	struct ctl_client *c = calloc(1, sizeof(*c));
	int code;

	if (!c)
		return err_set(e, TALLY_ENOMEM, "no memory for a connection");
	c->fd = -1;
	c->timeout_ms = timeout_ms;
	start_call(c);
	if (host[0] == '/') {
		snprintf(c->peer, sizeof(c->peer), "%s", host);
		code = connect_unix(c, host, e);
	} else {
		fmt_endpoint(c->peer, sizeof(c->peer), host, port);
		code = connect_tcp(c, host, port, e);
	}
	if (code < 0)
		ctl_client_close(c);
	else
		*out = c;
	return code;
}

void ctl_client_close(struct ctl_client *c)
{
	if (!c)
		return;
	if (c->fd >= 0)
		close(c->fd);
	free(c->body);
	free(c->mem);
	free(c);
}

/* ---- asking ---- */

static int send_msg(struct ctl_client *c, const struct msg *m, struct err *e)
{
	uint32_t bytes;
	uint8_t *out;
	int code = msg_encode_size(m, &bytes, e);

	if (code < 0)
		return code;
	out = malloc(bytes);
	if (!out)
		return err_set(e, TALLY_ENOMEM, "no memory for a message of %u bytes", bytes);
	code = msg_encode(m, out, bytes, e);
	if (code == 0)
		code = send_all(c, out, bytes, e);
	free(out);
	return code;
}

static int recv_msg(struct ctl_client *c, struct msg *m, struct err *e)
{
	uint8_t prefix[MSG_PREFIX_BYTES];
	uint32_t body_bytes, type;
	struct msg_mem mem;
	int code = recv_all(c, prefix, sizeof(prefix), e);

	if (code < 0)
		return code;
	if (msg_prefix_decode(prefix, &body_bytes, &type, e) < 0)
		return err_wrap(e, "%s", c->peer);
	mem = (struct msg_mem){ .size = msg_mem_need(body_bytes) };
	free(c->body);
	free(c->mem);
	c->body = malloc(body_bytes + 1);
	c->mem = mem.base = malloc(mem.size);
	if (!c->body || !c->mem)
		return err_set(e, TALLY_ENOMEM, "no memory for a message of %u bytes",
			       body_bytes);
	code = recv_all(c, c->body, body_bytes, e);
	return code < 0 ? code : msg_decode(type, c->body, body_bytes, &mem, m, e);
}

static int ask_and_hear(struct ctl_client *c, const struct msg *ask, struct msg *answer,
			struct err *e)
{
	struct msg m;
	int code;

	code = send_msg(c, ask, e);
	/* Not fatal yet: the peer may have said why it closed, and that is unread. */
	if (code < 0 && code != TALLY_ESCHED)
		return code;
	do {
		if (recv_msg(c, &m, code < 0 ? NULL : e) < 0)
			return code < 0 ? code : e ? e->code : TALLY_ESCHED;
	} while (m.type == MSG_HEARTBEAT);
	*answer = m;
	return 0;
}

int ctl_client_ask(struct ctl_client *c, const struct msg *ask, struct msg *answer,
		   struct err *e)
{
	int code;

	start_call(c);
	code = ask_and_hear(c, ask, answer, e);
	if (code < 0 && e && c->peer[0] != '/')
		ctl_explain(e, STAGE_GREET, 0, code == TALLY_ESHUTDOWN, c->peer, "");
	return code;
}
