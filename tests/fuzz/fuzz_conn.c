// SPDX-License-Identifier: Apache-2.0
/*
 * The library's end of its connection to an agent that sends anything, with descriptors.
 * The input is a list of steps: send so many bytes of it, as they are or behind a right
 * prefix; receive; take a descriptor.  Whatever comes: what is received was
 * decoded, a broken stream is closed, and no descriptor is left over.
 */
#include <stdlib.h>

#include "client/conn.h"
#include "common/base/bytes.h"
#include "tests/fuzz/fuzz_fds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct step {
	uint8_t what, nfds, len, type;
};

static void receive(struct lt_conn *c, bool take)
{
	struct msg m = { .type = MSG_NONE };
	struct err e = { 0 };
	int rc = lt_conn_recv(c, &m, 0, &e), fd;

	ASSERT(rc == 0 || (e.code == rc && *e.text));
	ASSERT(rc != 0 || (m.type > MSG_NONE && m.type < MSG_TYPE_END));
	ASSERT((c->fd < 0) == (rc != 0 && rc != TALLY_ETIMEDOUT));
	ASSERT(c->nfds <= FDS_PER_MSG_MAX);
	for (uint32_t i = 0; take && i <= c->nfds; i++) {
		fd = lt_conn_take_fd(c, i);
		ASSERT(fd < 0 || i < c->nfds);
		ASSERT(lt_conn_take_fd(c, i) < 0);
		if (fd >= 0)
			close(fd);
	}
}

static void send_prefix(int sock, const struct step *s, uint32_t body)
{
	uint8_t prefix[MSG_PREFIX_BYTES];

	put_le32(prefix, body);
	put_le16(prefix + 4, 1 + s->type % (MSG_TYPE_END - 1));
	put_le16(prefix + 6, MSG_VERSION);
	send_with_fds(sock, prefix, sizeof(prefix), s->nfds % (SENT_FDS_MAX + 1));
}

static void play(struct lt_conn *c, int sock, const uint8_t *data, size_t size)
{
	struct step s;
	size_t len;

	while (size >= sizeof(s) && c->fd >= 0) {
		memcpy(&s, data, sizeof(s));
		data += sizeof(s);
		size -= sizeof(s);
		len = MIN(s.len, size);
		switch (s.what % 4) {
		case 0:
			send_prefix(sock, &s, (uint32_t)len);
			break;
		case 1:
			if (len)
				send_with_fds(sock, data, len, s.nfds % (SENT_FDS_MAX + 1));
			data += len;
			size -= len;
			break;
		default:
			receive(c, s.what & 4);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t before = open_fds();
	struct lt_conn c;
	int sv[2];

	ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) == 0);
	lt_conn_init(&c, "nowhere");
	c.fd = sv[0];
	play(&c, sv[1], data, size);
	shutdown(sv[1], SHUT_WR);
	while (c.fd >= 0)		/* each time a message, until the end */
		receive(&c, false);
	lt_conn_fini(&c);
	close(sv[1]);
	ASSERT(open_fds() == before);
	return 0;
}
