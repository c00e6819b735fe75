// SPDX-License-Identifier: Apache-2.0
/*
 * A control connection with any bytes on it, cut into pieces as the first byte
 * says: it ends in closed(), once, and every message handed over was decoded.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/ctl/ctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	(void)ctx;
	(void)c;
	ASSERT(m->type > MSG_NONE && m->type < MSG_TYPE_END);
}

static void on_closed(void *ctx, struct ctl *c, const struct err *e)
{
	(void)c;
	ASSERT(e->code <= 0);
	++*(int *)ctx;
}

static const struct ctl_cb cb = { .msg = on_msg, .closed = on_closed };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = size ? 1 + data[0] : 1;
	struct loop *l;
	struct ctl *c;
	int p[2], closed = 0;

	signal(SIGPIPE, SIG_IGN);
	if (size > 32768 || loop_new(&l, NULL) < 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p) < 0 ||
	    ctl_adopt(l, &c, p[0], &cb, &closed, NULL) < 0)
		abort();
	for (size_t at = 1; at < size; at += piece)
		if (write(p[1], data + at, MIN(piece, size - at)) < 0)
			break;
	close(p[1]);
	/* Nothing keeps the loop but the connection, which the end of input closes. */
	loop_free(l);
	ASSERT(closed == 1);
	return 0;
}
