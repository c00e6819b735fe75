// SPDX-License-Identifier: Apache-2.0
/*
 * A control connection with any bytes on it, cut into pieces as the first byte says, and
 * with descriptors as the second one does: how many on how many of the pieces, and whether
 * the owner takes them.  It ends in closed(), once, every message handed over was decoded,
 * and no descriptor is left over.
 */
#include <signal.h>
#include <stdlib.h>

#include "common/ctl/ctl.h"
#include "tests/fuzz/fuzz_fds.h"

#define TAKE	0x80u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
	bool take;
	int closed;
};

static void on_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	const struct world *w = ctx;
	int fds[FDS_PER_MSG_MAX];
	uint32_t n;

	ASSERT(m->type > MSG_NONE && m->type < MSG_TYPE_END);
	n = w->take ? ctl_take_fds(c, fds, FDS_PER_MSG_MAX - 1) : 0;
	ASSERT(n < FDS_PER_MSG_MAX);
	while (n > 0)
		close(fds[--n]);
}

static void on_closed(void *ctx, struct ctl *c, const struct err *e)
{
	struct world *w = ctx;

	(void)c;
	ASSERT(e->code <= 0);
	w->closed++;
}

static const struct ctl_cb cb = { .msg = on_msg, .closed = on_closed };

static void feed(int sock, const uint8_t *data, size_t size)
{
	size_t piece = 1 + data[0];
	uint32_t nfds = data[1] % (SENT_FDS_MAX + 1), every = 1 + (data[1] >> 4) % 8, n = 0;

	for (size_t at = 2; at < size; at += piece, n++)
		if (!send_with_fds(sock, data + at, MIN(piece, size - at), n % every ? 0 : nfds))
			break;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = { .closed = 0 };
	static bool warm;		/* the first loop of a process keeps some */
	uint32_t before = open_fds();
	struct loop *l;
	struct ctl *c;
	int p[2];

	signal(SIGPIPE, SIG_IGN);
	if (size < 2 || size > 32768 || loop_new(&l, NULL) < 0)
		return 0;
	w.take = data[1] & TAKE;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p) < 0 ||
	    ctl_adopt(l, &c, p[0], &cb, &w, NULL) < 0)
		abort();
	feed(p[1], data, size);
	close(p[1]);
	/* Nothing keeps the loop but the connection, which the end of input closes. */
	loop_free(l);
	ASSERT(w.closed == 1);
	ASSERT(!warm || open_fds() == before);
	warm = true;
	return 0;
}
