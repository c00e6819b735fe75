// SPDX-License-Identifier: Apache-2.0
/*
 * conn.c - whole messages over the agent's Unix socket, until a deadline.
 *
 * The socket does not block; every wait is one lt_poll().  Only as many bytes are
 * read as the message at hand has, because the kernel hands descriptors out with
 * the bytes they were sent with: what came since the prefix's first byte belongs
 * to this message.
 */
#include "client/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/mem.h"
#include "common/shm/limit.h"

#define CONNECT_RETRY_MS	10	/* a listener whose queue is full */

static_assert(ADDR_LEN_MAX < sizeof(((struct sockaddr_un *)0)->sun_path), "a path fits");

void lt_conn_init(struct lt_conn *c, const char *path)
{
	*c = (struct lt_conn){ .fd = -1, .epfd = -1, .path = path };
}

static void drop_fds(struct lt_conn *c)
{
	for (uint32_t i = 0; i < c->nfds; i++)
		if (c->fds[i] >= 0)
			close(c->fds[i]);
	c->nfds = 0;
}

void lt_conn_close(struct lt_conn *c)
{
	drop_fds(c);
	/* A child that was forked has it, too: it would be watched for ever, at its end. */
	if (c->fd >= 0 && c->epfd >= 0)
		epoll_ctl(c->epfd, EPOLL_CTL_DEL, c->fd, NULL);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->got = 0;
}

void lt_conn_fini(struct lt_conn *c)
{
	lt_conn_close(c);
	lt_mem_free(c->in);
	lt_mem_free(c->out);
	lt_mem_free(c->mem);
	lt_conn_init(c, NULL);
}

/* Connecting to a Unix socket is done or refused at once, unless its queue is full. */
static int connect_until(int fd, const struct sockaddr_un *sa, mono_t deadline)
{
	while (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) < 0) {
		if (errno != EINTR && errno != EAGAIN)
			return -1;
		if (lt_now() >= deadline)
			return -1;
		(void)poll(NULL, 0, CONNECT_RETRY_MS);
	}
	return 0;
}

int lt_conn_open(struct lt_conn *c, mono_t deadline, struct err *e)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return limit_err(e, errno, "a socket to the agent");
	memcpy(sa.sun_path, c->path, strlen(c->path) + 1);
	if (connect_until(fd, &sa, deadline) < 0) {
		if (errno == EACCES)
			err_set(e, TALLY_EAUTH, "agent at %s: %m; who trains has to be in its "
				"group (usermod -aG GROUP USER)", c->path);
		else
			err_set(e, TALLY_EAGENT, "agent at %s: %m; does tally-agent run on this "
				"machine?  If it has ended, its log says why", c->path);
		close(fd);
		return e->code;
	}
	c->fd = fd;
	return 0;
}

/* The kernel leaves out descriptors for which there is no room, and says nothing. */
bool lt_conn_lacks_fds(const struct lt_conn *c, struct err *e)
{
	int fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	else if (errno == EMFILE || errno == ENFILE)
		return limit_err(e, errno, "descriptors from agent at %.100s", c->path);
	return false;
}

int lt_conn_reserve(struct lt_conn *c, size_t body_bytes, struct err *e)
{
	if (lt_mem_reserve(&c->in, &c->in_size, body_bytes) &&
	    lt_mem_reserve(&c->mem, &c->mem_size, msg_mem_need((uint32_t)body_bytes)))
		return 0;
	return err_set(e, TALLY_ENOMEM, "no memory for a message of %zu bytes", body_bytes);
}

int lt_conn_say_gone(const struct lt_conn *c, struct err *e)
{
	return err_set(e, TALLY_EAGENT, "agent at %s is gone", c->path);
}

bool lt_conn_gone(const struct lt_conn *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLRDHUP };

	return c->fd < 0 || poll(&p, 1, 0) > 0;
}

/* Sends it all or breaks the stream: half a message cannot be taken back. */
static int send_all(struct lt_conn *c, size_t len, int fd, mono_t deadline, struct err *e)
{
	struct pollfd p = { .fd = c->fd, .events = POLLOUT };
	size_t at = 0;
	int n;

	while (at < len) {
		n = fdmsg_send(c->fd, c->out + at, len - at, &fd, at == 0 && fd >= 0);
		if (n > 0) {
			at += (size_t)n;
		} else if (n != TALLY_EAGAIN) {
			lt_conn_say_gone(c, e);
			break;
		} else if (lt_poll(&p, 1, deadline) <= 0) {
			err_set(e, TALLY_EAGENT, "agent at %s does not read", c->path);
			break;
		}
	}
	if (at == len)
		return 0;
	lt_conn_close(c);
	return TALLY_EAGENT;
}

int lt_conn_send(struct lt_conn *c, const struct msg *m, mono_t deadline, struct err *e)
{
	return lt_conn_send_fd(c, m, -1, deadline, e);
}

int lt_conn_send_fd(struct lt_conn *c, const struct msg *m, int fd, mono_t deadline,
		    struct err *e)
{
	uint32_t bytes;
	int rc;

	if (c->fd < 0)
		return lt_conn_say_gone(c, e);
	rc = msg_encode_size(m, &bytes, e);
	if (rc)
		return rc;
	if (!lt_mem_reserve(&c->out, &c->out_size, bytes))
		return err_set(e, TALLY_ENOMEM, "no memory for a message of %u bytes", bytes);
	rc = msg_encode(m, c->out, bytes, e);
	return rc ? rc : send_all(c, bytes, fd, deadline, e);
}

/* Reads at least one byte of the current message, or says why not. */
static int recv_some(struct lt_conn *c, uint8_t *to, size_t len, mono_t deadline, struct err *e)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	uint32_t nfds;
	int n;

	for (;;) {
		nfds = FDS_PER_MSG_MAX - c->nfds;
		n = fdmsg_recv(c->fd, to, len, c->fds + c->nfds, &nfds);
		c->nfds += nfds;
		if (n > 0) {
			c->got += (uint32_t)n;
			return 0;
		}
		if (n != TALLY_EAGAIN) {
			lt_conn_say_gone(c, e);
			lt_conn_close(c);
			return e->code;
		}
		if (lt_poll(&p, 1, deadline) <= 0)
			return err_set(e, TALLY_ETIMEDOUT, "no answer from the agent at %s",
				       c->path);
	}
}

static int recv_prefix(struct lt_conn *c, mono_t deadline, struct err *e)
{
	int rc = 0;

	if (c->got == 0)
		drop_fds(c);
	while (!rc && c->got < MSG_PREFIX_BYTES)
		rc = recv_some(c, c->prefix + c->got, MSG_PREFIX_BYTES - c->got, deadline, e);
	if (rc)
		return rc;
	rc = msg_prefix_decode(c->prefix, &c->body_bytes, &c->type, e);
	if (rc) {
		err_wrap(e, "agent at %s", c->path);
		lt_conn_close(c);
	}
	return rc;
}

int lt_conn_recv(struct lt_conn *c, struct msg *m, mono_t deadline, struct err *e)
{
	struct msg_mem mem;
	int rc;

	if (c->fd < 0)
		return lt_conn_say_gone(c, e);
	rc = recv_prefix(c, deadline, e);
	if (!rc)
		rc = lt_conn_reserve(c, c->body_bytes, e);
	while (!rc && c->got < MSG_PREFIX_BYTES + c->body_bytes)
		rc = recv_some(c, c->in + (c->got - MSG_PREFIX_BYTES),
			       MSG_PREFIX_BYTES + c->body_bytes - c->got, deadline, e);
	if (rc)
		return rc;
	c->got = 0;
	mem = (struct msg_mem){ .base = c->mem, .size = c->mem_size };
	rc = msg_decode(c->type, c->in, c->body_bytes, &mem, m, e);
	if (rc) {
		err_wrap(e, "agent at %s", c->path);
		lt_conn_close(c);
	}
	return rc;
}

int lt_conn_take_fd(struct lt_conn *c, uint32_t i)
{
	int fd;

	if (i >= c->nfds)
		return -1;
	fd = c->fds[i];
	c->fds[i] = -1;
	return fd;
}
