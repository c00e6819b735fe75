// SPDX-License-Identifier: Apache-2.0
/*
 * storm_peer.c - a scheduler that says anything, on a port of the loopback, to real daemons.
 *
 * Whoever says HELLO is welcome: agents have the number 1, servers 2.  Then come jobs that both
 * are in, log entries in order or not, and whatever storm.c makes.  Which daemon ends by it the
 * caller sees; a connection that breaks is accepted anew.
 */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/place/place.h"
#include "tests/storm/storm.h"

#define CONNS	8u
#define WAIT_MS	2

struct conn {
	int fd;
	bool known;
};

struct world {
	struct storm *st;
	struct conn conn[CONNS];
	uint32_t job;
	uint64_t seq, epoch;
	uint32_t id;
	struct msg_addr addr;		/* of the server */
	char host[ADDR_LEN_MAX + 1];
};

static void say(struct world *w, struct conn *c, const struct msg *m)
{
	static uint8_t wire[1u << 20];
	uint32_t bytes;

	if (msg_encode_size(m, &bytes, NULL) || bytes > sizeof(wire) ||
	    msg_encode(m, wire, bytes, NULL))
		return;
	if (m->type != MSG_HEARTBEAT)
		storm_see(w->st, 0, m);
	w->st->messages++;
	if (send(c->fd, wire, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
		close(c->fd);
		*c = (struct conn){ .fd = -1 };
	}
}

static bool get(int fd, void *to, size_t len)
{
	return recv(fd, to, len, MSG_WAITALL) == (ssize_t)len;
}

static void hear_hello(struct world *w, struct conn *c, const struct msg_hello *h)
{
	const struct msg m = { .type = MSG_WELCOME, .welcome = {
		.version = MSG_VERSION, .node = h->kind == NODE_AGENT ? 1 : 2, .epoch = 1,
		.cluster = { 1 }, .heartbeat_ms = HEARTBEAT_MS, .lease_ms = LEASE_MS,
		.agent_grace_ms = storm_below(w->st, 2) * 3000,
	} };

	if (h->kind == NODE_SERVER && h->naddrs) {
		snprintf(w->host, sizeof(w->host), "%s", h->addrs[0].host);
		w->addr = h->addrs[0];
		w->addr.host = w->host;
	}
	c->known = true;
	say(w, c, &m);
}

static bool hear(struct world *w, struct conn *c)
{
	uint8_t prefix[MSG_PREFIX_BYTES], *body;
	uint32_t bytes, type;
	struct msg_mem mem;
	struct msg m;
	bool good;

	if (!get(c->fd, prefix, sizeof(prefix)) || msg_prefix_decode(prefix, &bytes, &type, NULL))
		return false;
	body = malloc(bytes + 1);
	mem = (struct msg_mem){ .size = msg_mem_need(bytes) };
	mem.base = malloc(mem.size);
	ASSERT(body && mem.base);
	good = (!bytes || get(c->fd, body, bytes)) &&
	       !msg_decode(type, body, bytes, &mem, &m, NULL);
	if (good && m.type == MSG_HELLO)
		hear_hello(w, c, &m.hello);
	else if (good && m.type == MSG_HEARTBEAT)
		say(w, c, &m);
	else if (good)
		storm_see(w->st, 0, &m);
	free(mem.base);
	free(body);
	return good;
}

/* ---- what it says ---- */

static void to_all(struct world *w, const struct msg *m)
{
	for (uint32_t i = 0; i < CONNS; i++)
		if (w->conn[i].fd >= 0 && w->conn[i].known)
			say(w, &w->conn[i], m);
}

static void job_up(struct world *w)
{
	static const uint32_t ranks[] = { 0, 1, 2 };
	const struct msg_machine machines[] = {
		{ .node = 1, .name = "a", .machine = "a", .nranks = 1, .ranks = &ranks[0] },
		{ .node = 9, .name = "b", .machine = "b", .nranks = 2, .ranks = &ranks[1] },
	};
	const struct msg_server server = {
		.node = 2, .name = "s", .machine = "s", .shm_path = "", .engines = 1,
		.weight = PLACE_WEIGHT_SUM, .naddrs = w->addr.host != NULL, .addrs = &w->addr,
	};
	uint32_t alone = storm_below(w->st, 2);
	const struct msg m = { .type = MSG_JOB_UP, .job_up = {
		.job = ++w->job, .name = "x", .world = alone ? 1 : 3, .epoch = ++w->epoch,
		.algorithm = PLACE_ALGORITHM, .chunk_bytes = CHUNK_BYTES_MIN,
		.seg_bytes = SEG_BYTES_MIN, .window_bytes = WINDOW_BYTES_MIN,
		.nmachines = alone ? 1 : 2, .machines = machines, .nservers = !alone,
		.servers = &server, .on_loss = storm_below(w->st, ON_LOSS_END),
	} };

	w->seq = 0;
	to_all(w, &m);
}

static void tensors(struct world *w)
{
	const struct msg_tensor t[] = {
		{ .id = ++w->id, .name = "t", .dtype = DTYPE_F32,
		  .count = storm_below(w->st, 90000) },
		{ .id = ++w->id, .name = "u", .dtype = DTYPE_F32, .count = storm_below(w->st, 9) },
	};
	const struct msg m = { .type = MSG_TENSORS, .tensors = {
		.job = w->job, .seq = ++w->seq, .ntensors = 1 + storm_below(w->st, 2), .tensors = t,
	} };

	to_all(w, &m);
}

static void epoch(struct world *w)
{
	static const uint32_t ranks[] = { 0, 1, 2 };
	const struct msg_server server = {
		.node = 2, .name = "s", .machine = "s", .shm_path = "", .engines = 1,
		.weight = PLACE_WEIGHT_SUM, .naddrs = w->addr.host != NULL, .addrs = &w->addr,
	};
	const struct msg m = { .type = MSG_EPOCH, .epoch = {
		.job = w->job, .seq = ++w->seq, .epoch = ++w->epoch, .nservers = 1,
		.servers = &server, .repair = storm_below(w->st, 2),
		.ngone = storm_below(w->st, 3), .gone = &ranks[1],
	} };

	to_all(w, &m);
}

static void turn(struct world *w)
{
	static const uint32_t types[] = {
		MSG_JOB_UP, MSG_TENSORS, MSG_FORGET, MSG_EPOCH, MSG_EPOCH_READY, MSG_JOB_DOWN,
		MSG_AGENT_KEYS, MSG_RANK_LEAVE, MSG_HEARD, MSG_REPLY, MSG_DRAIN,
	};
	uint32_t what = storm_below(w->st, 16);
	struct msg m;

	if (what == 0 || !w->job)
		job_up(w);
	else if (what < 3)
		tensors(w);
	else if (what == 3)
		epoch(w);
	else if (what < 12 ? storm_make(w->st, types[storm_below(w->st, ARRAY_SIZE(types))], &m)
			   : storm_echo(w->st, &m))
		to_all(w, &m);
	storm_reset(w->st);
}

static void look(struct world *w, int listener)
{
	struct pollfd p[CONNS + 1] = { { .fd = listener, .events = POLLIN } };

	for (uint32_t i = 0; i < CONNS; i++)
		p[i + 1] = (struct pollfd){ .fd = w->conn[i].fd, .events = POLLIN };
	if (poll(p, CONNS + 1, WAIT_MS) <= 0)
		return;
	for (uint32_t i = 0; i < CONNS; i++) {
		if (!p[i + 1].revents || w->conn[i].fd < 0 || hear(w, &w->conn[i]))
			continue;
		close(w->conn[i].fd);
		w->conn[i] = (struct conn){ .fd = -1 };
	}
	for (uint32_t i = 0; i < CONNS && p[0].revents; i++) {
		if (w->conn[i].fd >= 0)
			continue;
		w->conn[i] = (struct conn){ .fd = accept(listener, NULL, NULL) };
		break;
	}
}

/* On any port, which the file says. */
static int listen_on(const char *port_file)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(at);
	FILE *f;

	if (bind(listener, (const struct sockaddr *)&at, len) || listen(listener, 8) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		return -1;
	f = fopen(port_file, "we");
	if (!f || fprintf(f, "%u\n", ntohs(at.sin_port)) < 0 || fclose(f))
		return -1;
	return listener;
}

int storm_peer(struct storm *st, const char *port_file, uint64_t messages)
{
	int listener = listen_on(port_file);
	struct world *w = calloc(1, sizeof(*w));

	ASSERT(w);
	w->st = st;
	w->epoch = 1;
	for (uint32_t i = 0; i < CONNS; i++)
		w->conn[i].fd = -1;
	if (listener < 0) {
		perror(port_file);
		return 1;
	}
	while (st->messages < messages) {
		look(w, listener);
		turn(w);
	}
	free(w);
	close(listener);
	return 0;
}
