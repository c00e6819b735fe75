// SPDX-License-Identifier: Apache-2.0
/*
 * New data links: each connection has HANDSHAKE_MS to say HELLO with the key of
 * an agent that a job of ours names and with our number, then it goes to the engine it
 * asks for.  Anything else is closed and logged once: at debug level only another number,
 * for agents that have yet to hear of ours try again, and a link that its own side closes
 * before it has said a word.  Nothing is answered to strangers.
 *
 * A key belongs to a process: the scheduler says when an agent is another one (AGENT_KEYS),
 * and links of the one before end.  The new one may be here before that word is, and the old
 * one try until it hears that it was replaced: only a wrong key for longer is worth a warning.
 *
 * When too many are silent at a time, the one that has been for longest makes
 * room: an agent says its HELLO at once, so a crowd of strangers keeps none out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/base/parse.h"
#include "common/base/utf8.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/rt/route.h"
#include "proto/speech.h"
#include "server/server.h"

#define CROWD_TELL_MS	10000u
#define WRONG_KEY_MS	5000u		/* as long as agents may take to hear what is new */
#define SHM_PATHS	8u		/* that auto tries */

struct greeting {
	struct list link;
	struct server *server;
	struct loop_watch *watch;
	struct loop_timer *deadline;
	struct xport_hello hello;
	int fd;
};

static void greeting_free(struct greeting *g)
{
	list_del(&g->link);
	g->server->ngreetings--;
	loop_watch_stop(g->watch);
	loop_timer_stop(g->deadline);
	free(g);
}

static void greeting_close(struct greeting *g)
{
	int fd = g->fd;

	greeting_free(g);		/* its watch ends before the number is another's */
	close(fd);
}

static void greeting_refuse(struct greeting *g, const char *why)
{
	log_warn("link refused, reason %s", why);
	greeting_close(g);
}

/*
 * Tells a peer that takes this port for the scheduler's what it is. What the peer still sends is
 * read, or the answer would be lost.
 */
static void say_data_port(struct greeting *g)
{
	char text[ERR_TEXT_MAX + 1];
	const struct msg m = {
		.type = MSG_REPLY, .reply = { .code = TALLY_EPROTO, .text = text },
	};
	uint8_t wire[2 * ERR_TEXT_MAX];
	uint32_t bytes;

	snprintf(text, sizeof(text), "this is the data port of server %.128s, not the scheduler's; "
		 "give --scheduler the HOST:PORT of tally-scheduler's --listen", g->server->name);
	if (msg_encode_size(&m, &bytes, NULL) || bytes > sizeof(wire) ||
	    msg_encode(&m, wire, bytes, NULL))
		return;
	(void)send(g->fd, wire, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(g->fd, SHUT_WR);
	for (int i = 0; i < 64 && recv(g->fd, wire, sizeof(wire), MSG_DONTWAIT) > 0; i++)
		continue;
}

/* A refusal that the log has not had in the last minute: daemons that take this port for another
 * come again and again. */
static bool is_news(struct server *s, const char *text)
{
	uint32_t hash = crc32c(text, strlen(text));
	mono_t now = loop_now();

	if (s->other_told && hash == s->other_hash &&
	    now - s->other_told < mono_ms(TROUBLE_LOG_MS))
		return false;
	s->other_told = now;
	s->other_hash = hash;
	return true;
}

static void refuse_other(struct greeting *g, const char *why)
{
	char who[SPEECH_TEXT], text[2 * SPEECH_TEXT];
	uint32_t bytes, type;

	(void)speech_of(SPEECH_DATA, g->hello.wire, g->hello.got, who);
	snprintf(text, sizeof(text), "%s%s%s%s", why, *who ? ": " : "", who,
		 *who ? " is at the other end" : "");
	if (g->hello.got >= MSG_PREFIX_BYTES &&
	    !msg_prefix_decode(g->hello.wire, &bytes, &type, NULL))
		say_data_port(g);
	if (is_news(g->server, text))
		greeting_refuse(g, text);
	else
		greeting_close(g);
}

static struct sv_agent *agent_find(const struct server *s, uint32_t node)
{
	list_for_each(&s->agents, l) {
		struct sv_agent *a = list_entry(l, struct sv_agent, link);

		if (a->node == node)
			return a;
	}
	return NULL;
}

/* All bytes are compared whatever the first ones say. */
static bool key_ok(const struct sv_agent *a, const struct frame *hello)
{
	uint8_t key[KEY_BYTES], diff = 0, any = 0;

	put_le64(key, hello->slot);
	put_le64(key + 8, hello->rslot);
	for (uint32_t i = 0; i < KEY_BYTES; i++) {
		diff |= key[i] ^ a->key[i];
		any |= a->key[i];
	}
	return any && !diff;
}

/* A wrong key that was just presented has been for long; a pause begins it anew. */
static bool is_lasting(struct sv_agent *a, mono_t now)
{
	if (!a->wrong || now - a->wrong > mono_ms(WRONG_KEY_MS))
		a->wrong_since = now;
	a->wrong = now;
	return now - a->wrong_since >= mono_ms(WRONG_KEY_MS);
}

static void greeting_stranger(struct greeting *g, struct sv_agent *a, uint32_t node)
{
	struct server *s = g->server;
	mono_t now = loop_now();
	bool tell = (!a || is_lasting(a, now)) &&
		    (!s->key_told || now - s->key_told > mono_ms(CROWD_TELL_MS));

	if (tell) {
		log_warn("link refused, agent node %u, reason unknown agent or wrong key", node);
		s->key_told = now;
	} else {
		log_debug("link refused, agent node %u, reason unknown agent or wrong key", node);
	}
	greeting_close(g);
}

/* To an agent that means another server: whose port this is. */
static void say_who(const struct greeting *g, const struct frame *hello)
{
	uint8_t wire[FRAME_BYTES], name[HELLO_NAME_BYTES] = { 0 };
	struct frame f = {
		.type = FRAME_REFUSED, .job = hello->job, .worker = hello->worker,
		.tensor = hello->tensor, .chunk = hello->chunk, .epoch = g->server->my_node,
		.aux = -TALLY_ENOENT,
	};

	memcpy(name, g->server->name, strnlen(g->server->name, sizeof(name)));
	f.slot = get_le64(name);
	f.rslot = get_le64(name + 8);
	frame_encode(&f, wire);
	(void)send(g->fd, wire, sizeof(wire), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Ends the greeting, well or not; false while the HELLO is not all there. */
static bool hear(struct greeting *g)
{
	struct server *s = g->server;
	struct sv_adopt adopt = { .fd = g->fd };
	struct sv_agent *a;
	int rc = xport_hello_read(&g->hello, g->fd, &adopt.hello);

	if (rc == TALLY_EAGAIN)
		return false;
	if (rc && !g->hello.got) {	/* an agent that has thought better of it, a port scan */
		log_debug("link refused, reason closed without a word");
		greeting_close(g);
		return true;
	}
	if (rc) {
		refuse_other(g, "not a hello");
		return true;
	}
	if (adopt.hello.epoch != s->my_node) {	/* it tries until its job hears of us */
		log_debug("link refused, reason server node %u is meant", adopt.hello.epoch);
		say_who(g, &adopt.hello);
		greeting_close(g);
		return true;
	}
	a = agent_find(s, adopt.hello.job);
	if (!a || !key_ok(a, &adopt.hello)) {
		greeting_stranger(g, a, adopt.hello.job);
		return true;
	}
	a->wrong = 0;
	if (adopt.hello.tensor >= s->nengines || adopt.hello.chunk >= ENGINES_MAX) {
		greeting_refuse(g, "no such engine");
		return true;
	}
	greeting_free(g);
	sv_engine_tell(s->engine[adopt.hello.tensor], SV_ADOPT, &adopt, sizeof(adopt));
	return true;
}

static void on_greeting(void *ctx, int events)
{
	(void)events;
	(void)hear(ctx);
}

/* After a standstill of ours it may be there by now. */
static void on_late(void *ctx)
{
	if (!hear(ctx))
		refuse_other(ctx, "no hello in time");
}

static void make_room(struct server *s)
{
	struct greeting *g = list_first(&s->greetings, struct greeting, link);
	mono_t now = loop_now();
	int fd = g->fd;

	if (!s->crowd_told || now - s->crowd_told > mono_ms(CROWD_TELL_MS)) {
		log_warn("%u connections say nothing, the oldest are closed", s->ngreetings);
		s->crowd_told = now;
	}
	greeting_free(g);
	close(fd);
}

static void on_accept(void *ctx, int fd)
{
	struct server *s = ctx;
	struct greeting *g = calloc(1, sizeof(*g));

	if (!g) {
		close(fd);
		return;
	}
	if (s->ngreetings == STRANGERS_MAX)
		make_room(s);
	g->server = s;
	g->fd = fd;
	list_add(&s->greetings, &g->link);
	s->ngreetings++;
	if (loop_watch_start(s->loop, &g->watch, fd, LOOP_READ, on_greeting, g) ||
	    loop_timer_start(s->loop, &g->deadline, HANDSHAKE_MS, 0, on_late, g))
		greeting_refuse(g, "out of memory");
}

static void agent_put(struct server *s, uint32_t node)
{
	struct sv_agent *a = agent_find(s, node);

	if (!a || --a->jobs)
		return;
	list_del(&a->link);
	free(a);
}

/* Zeros are no news: the agent is gone, or not back yet. */
static void take_key(struct server *s, struct sv_agent *a, const uint8_t key[KEY_BYTES])
{
	static const uint8_t none[KEY_BYTES];

	if (!memcmp(key, none, KEY_BYTES) || !memcmp(key, a->key, KEY_BYTES))
		return;
	if (memcmp(a->key, none, KEY_BYTES))
		for (uint32_t i = 0; i < s->nengines; i++)
			sv_engine_tell(s->engine[i], SV_CUT_AGENT, &a->node, sizeof(a->node));
	memcpy(a->key, key, KEY_BYTES);
	a->wrong = 0;
}

void sv_agents_keys(struct server *s, const struct msg_agent_keys *m)
{
	for (uint32_t i = 0; i < m->nkeys; i++) {
		struct sv_agent *a = agent_find(s, m->keys[i].node);

		if (a)			/* else its jobs are over here */
			take_key(s, a, m->keys[i].link_key);
	}
}

int sv_agents_add(struct server *s, const struct msg_job_up *m, struct err *e)
{
	for (uint32_t i = 0; i < m->nmachines; i++) {
		struct sv_agent *a = agent_find(s, m->machines[i].node);

		if (!a) {
			a = calloc(1, sizeof(*a));
			if (!a) {
				while (i)
					agent_put(s, m->machines[--i].node);
				return err_set(e, TALLY_ENOMEM, "server %s: out of memory",
					       s->name);
			}
			a->node = m->machines[i].node;
			snprintf(a->name, sizeof(a->name), "%s",
				 m->machines[i].name ? m->machines[i].name : "");
			list_add(&s->agents, &a->link);
		}
		take_key(s, a, m->machines[i].link_key);
		a->jobs++;
	}
	return 0;
}

void sv_agent_name(const struct server *s, uint32_t node, char *buf, size_t len)
{
	const struct sv_agent *a = agent_find(s, node);

	if (a && a->name[0])
		snprintf(buf, len, "%s", a->name);
	else
		snprintf(buf, len, "node %u", node);
}

void sv_agents_del(struct server *s, const struct sv_job *j)
{
	for (uint32_t i = 0; i < j->n; i++)
		agent_put(s, j->worker[i].node);
}

/* Opens one --listen address: HOST:PORT[@BITRATE]. */
static int listen_one(struct server *s, const char *spec, struct err *e)
{
	char host[ADDR_LEN_MAX + 1], *text = s->addr_text[s->naddrs];
	struct msg_addr *a = &s->addr[s->naddrs];
	struct listener **li = &s->listener[s->nlisteners];
	char sched[ADDR_LEN_MAX + 1];
	uint16_t port;
	uint64_t rate;
	int rc;

	rc = parse_endpoint(spec, 7471, host, &port, &rate, e);
	if (rc)
		return err_wrap(e, "--listen %s", spec);
	text[0] = '\0';
	if (!route_is_wildcard(host))	/* agents are told the number */
		rc = route_numeric(host, text, e);
	if (!rc && text[0])
		rc = route_check(text, s->opt.daemon.scheduler, SCHEDULER_PORT, e);
	if (rc)
		return err_wrap(e, "--listen %s", spec);
	rc = listener_tcp(s->loop, li, text[0] ? text : host, port, on_accept, s, e);
	if (rc)
		return rc;
	s->nlisteners++;
	if (!text[0]) {
		rc = parse_peer(s->opt.daemon.scheduler, SCHEDULER_PORT, sched, &port, e);
		rc = rc ? rc : route_source(sched, port, text, e);
		if (rc)
			return err_wrap(e, "--scheduler %s", s->opt.daemon.scheduler);
		route_warn_loopback(text, "--listen ADDRESS:PORT");
	}
	a->host = text;
	a->port = listener_port(*li);
	a->bits_per_s = rate ? rate : host_card_bits_per_s(text);
	s->naddrs++;
	return 0;
}

static int listen_shm(struct server *s, struct err *e)
{
	int rc = listener_unix(s->loop, &s->listener[s->nlisteners], s->shm_path, 0600,
			       on_accept, s, e);

	s->nlisteners += rc == 0;
	return rc;
}

/* "/run/tally/server-NAME.sock", the next ones with a number; a name may have slashes, and is
 * cut between characters. */
static int auto_path(struct server *s, const char *dir, uint32_t n, struct err *e)
{
	char name[31], number[12] = "";
	int len;

	snprintf(name, sizeof(name), "%.30s", s->name);
	utf8_mend(name);
	for (char *c = name; *c; c++)
		*c = *c == '/' ? '-' : *c;
	if (n)
		snprintf(number, sizeof(number), ".%u", n);
	len = snprintf(s->shm_path, sizeof(s->shm_path), "%s/server-%s%s.sock", dir, name, number);
	if (len > (int)ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "a socket in %.100s has too long a path", dir);
	return 0;
}

/* A server of that name may be here for another cluster: its path is left to it. */
static int listen_auto(struct server *s, struct err *e)
{
	const char *dir = opt_runtime_dir();
	int rc = TALLY_EBUSY;

	if (!dir)
		return err_set(e, TALLY_ENOENT,
			       "no " RUNTIME_DIR " and no $XDG_RUNTIME_DIR to write to");
	for (uint32_t n = 0; n < SHM_PATHS && rc == TALLY_EBUSY; n++) {
		rc = auto_path(s, dir, n, e);
		rc = rc ? rc : listen_shm(s, e);
	}
	return rc;
}

/*
 * Opens the socket for agents of this machine. Where its path is `auto` a failure is no error:
 * agents come by TCP then.
 */
static int listen_here(struct server *s, struct err *e)
{
	struct err why;

	if (!s->opt.shm_socket[0] || !strcmp(s->opt.shm_socket, "none"))
		return 0;
	if (strcmp(s->opt.shm_socket, "auto")) {
		snprintf(s->shm_path, sizeof(s->shm_path), "%s", s->opt.shm_socket);
		return listen_shm(s, e);
	}
	if (listen_auto(s, &why)) {
		s->shm_path[0] = '\0';
		log_warn("server %s has no shared memory with an agent of this machine, reason %s; "
			 "give it --shm-socket PATH, or none", s->name, why.text);
	}
	return 0;
}

int sv_listen_start(struct server *s, struct err *e)
{
	int rc;

	for (uint32_t i = 0; i < s->opt.listen.n; i++) {
		if (s->naddrs == SV_LISTEN_MAX)
			return err_set(e, TALLY_EINVAL, "more than %u --listen", SV_LISTEN_MAX);
		rc = listen_one(s, s->opt.listen.v[i], e);
		if (rc)
			return rc;
	}
	rc = listen_here(s, e);
	if (rc)
		return rc;
	return daemon_write_port(s->opt.port_file, s->addr[0].port, e);
}

void sv_listen_stop(struct server *s)
{
	for (uint32_t i = 0; i < s->nlisteners; i++)
		listener_close(s->listener[i]);
	s->nlisteners = 0;
	while (!list_empty(&s->greetings)) {
		struct greeting *g = list_first(&s->greetings, struct greeting, link);

		close(g->fd);
		greeting_free(g);
	}
	while (!list_empty(&s->agents)) {
		struct sv_agent *a = list_first(&s->agents, struct sv_agent, link);

		list_del(&a->link);
		free(a);
	}
}
