// SPDX-License-Identifier: Apache-2.0
/*
 * Control connections: bytes to messages and back.
 *
 * Bytes from the stream are gathered in `buf` until a message is whole: first its
 * prefix, which says how long it is, then its body.  The buffer grows with what
 * has really arrived, not with what the prefix promises, so that eight bytes
 * cannot make us allocate sixteen megabytes.  A whole message is decoded into
 * `mem` and handed to the owner; big buffers are given back afterwards.
 *
 * One deadline runs while we wait for something: for the connection and its first
 * message, or for the rest of a message that began; of a stranger until it is known.
 * It does not count what the peer has sent and we have not read.
 *
 * Descriptors: the kernel ends a read at the end of the bytes that they came
 * with, so fresh ones belong to the message that holds the last byte of the read
 * (to the next whole one, if the read ends inside a message).
 *
 * Any fault of the peer's ends in fail(): a REPLY that says what was wrong, as far
 * as the peer still reads, and then the close.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/utf8.h"
#include "common/ctl/ctl.h"
#include "common/rt/log.h"
#include "proto/speech.h"

#define KEEP_BYTES	(16u << 10)	/* a buffer kept between messages */
#define SPARE_MS	100u		/* a deadline that found something unread */

struct ctl {
	struct loop *l;
	struct stream *s;
	struct ctl_cb cb;
	void *user;
	bool closing;			/* no callback but closed() from here on */
	bool heard;			/* the first message is in */
	bool bounded;			/* as in ctl_set_bounded() */
	bool spared;			/* its deadline was put off, once */
	struct ctl_crowd *crowd;	/* NULL: known, or closing */
	struct list link;		/* in its strangers */
	uint32_t patience_ms;
	struct loop_timer *deadline;
	struct err why;			/* code 0: the stream knows better */
	uint8_t *buf;			/* owned */
	size_t have, cap;
	uint32_t body_bytes, type;	/* once the prefix is in */
	uint8_t *mem;			/* owned */
	size_t mem_bytes;
	uint32_t ncarried;		/* descriptors of the message that buf begins */
	int carried[STREAM_FDS_MAX];
	uint32_t nfds;			/* of the message in msg(), not taken */
	int fds[STREAM_FDS_MAX];
};

/* ---- strangers ---- */

#define CROWD_TELL_MS	10000u

void ctl_crowd_init(struct ctl_crowd *w, uint32_t max)
{
	*w = (struct ctl_crowd){ .max = max };
	list_init(&w->strangers);
}

static void stop_deadline(struct ctl *c)
{
	loop_timer_stop(c->deadline);
	c->deadline = NULL;
}

static void set_room(struct ctl *c)
{
	stream_set_room(c->s, !c->bounded ? 0 : c->crowd ? STRANGER_ROOM_BYTES : CTL_ROOM_BYTES);
}

void ctl_set_bounded(struct ctl *c, bool bounded)
{
	if (bounded == c->bounded)
		return;
	c->bounded = bounded;
	set_room(c);
}

static void leave_crowd(struct ctl *c)
{
	if (!c->crowd)
		return;
	list_del(&c->link);
	c->crowd->n--;
	c->crowd = NULL;
}

void ctl_known(struct ctl *c)
{
	if (!c->crowd)
		return;
	leave_crowd(c);
	set_room(c);
	c->spared = false;
	if (c->heard && c->have == 0)
		stop_deadline(c);
}

void ctl_crowd_join(struct ctl_crowd *w, struct ctl *c)
{
	mono_t now = loop_now();

	ASSERT(!c->crowd);
	if (w->n == w->max) {
		if (!w->told || now - w->told > mono_ms(CROWD_TELL_MS)) {
			log_warn("%u connections say nothing, the oldest are closed", w->n);
			w->told = now;
		}
		ctl_close(list_first(&w->strangers, struct ctl, link));
	}
	c->crowd = w;
	list_add(&w->strangers, &c->link);
	w->n++;
	set_room(c);
}

/* ---- the end ---- */

static void close_fds(int *fds, uint32_t *n)
{
	while (*n > 0)
		close(fds[--*n]);
}

static void on_closed(void *ctx, struct stream *s, const struct err *e)
{
	struct ctl *c = ctx;
	char who[SPEECH_TEXT];

	loop_timer_stop(c->deadline);
	leave_crowd(c);
	if (!c->closing && c->have > 0 && e->code == 0 &&
	    *speech_of(SPEECH_CONTROL, c->buf, MIN(c->have, MSG_PREFIX_BYTES), who))
		err_set(&c->why, TALLY_EPROTO, "%s is at the other end, and this is Tally's "
			"control protocol", who);
	else if (!c->closing && c->have > 0 && e->code == 0)
		err_set(&c->why, TALLY_EPROTO, "%s closed in the middle of a message",
			stream_peer(s));
	c->closing = true;
	c->cb.closed(c->user, c, c->why.code ? &c->why : e);
	close_fds(c->carried, &c->ncarried);
	free(c->buf);
	free(c->mem);
	free(c);
}

/* A stranger that has not read so far is not waited for, or a crowd would keep memory so. */
void ctl_close(struct ctl *c)
{
	bool deaf = c->crowd && stream_stalled(c->s);

	if (c->closing)
		return;
	c->closing = true;
	leave_crowd(c);
	stop_deadline(c);
	if (deaf)
		stream_close(c->s);
	else
		stream_finish(c->s, c->patience_ms);
}

/* e may be c->why.  Of a stream that is over already, its last word says why. */
static void fail(struct ctl *c, const struct err *e)
{
	if (c->closing)
		return;
	if (!stream_is_over(c->s)) {
		c->why = *e;
		ctl_reply(c, 0, e->code, "%s", e->text);
	}
	ctl_close(c);
}

/* We stood still, and read before we judge; or there is no room for its answers. */
static bool is_spared(struct ctl *c)
{
	bool was = c->spared;

	c->spared = true;
	return stream_unread(c->s) && (!was || (!c->crowd && stream_stalled(c->s)));
}

static void on_deadline(void *ctx)
{
	const char *what = "no first message";
	struct ctl *c = ctx;
	struct err e;

	if (is_spared(c)) {
		loop_timer_set(c->deadline, SPARE_MS, 0);
		return;
	}
	if (c->have > 0)
		what = "the rest of a message did not come";
	else if (c->heard)
		what = "it did not say who it is";
	err_set(&e, TALLY_ETIMEDOUT, "%s: %s in %u ms", ctl_peer(c), what, c->patience_ms);
	fail(c, &e);
}

static void start_deadline(struct ctl *c)
{
	if (c->deadline || c->closing)
		return;
	if (loop_timer_start(c->l, &c->deadline, c->patience_ms, 0, on_deadline, c) < 0)
		fail(c, &(struct err){ TALLY_ENOMEM, "no memory for a deadline" });
}

void ctl_set_patience(struct ctl *c, uint32_t ms)
{
	c->patience_ms = ms;
	if (!c->deadline)
		return;
	stop_deadline(c);
	start_deadline(c);
}

/* ---- reading ---- */

static bool grow(uint8_t **buf, size_t *cap, size_t want)
{
	uint8_t *p;

	if (want <= *cap)
		return true;
	p = realloc(*buf, want);
	if (!p)
		return false;
	*buf = p;
	*cap = want;
	return true;
}

static void shrink(uint8_t **buf, size_t *cap)
{
	if (*cap <= KEEP_BYTES)
		return;
	free(*buf);
	*buf = NULL;
	*cap = 0;
}

static size_t whole_bytes(const struct ctl *c)
{
	return MSG_PREFIX_BYTES + (c->have < MSG_PREFIX_BYTES ? 0 : c->body_bytes);
}

/* Moves what belongs to the message at hand; bytes taken, 0 after a failure. */
static size_t gather(struct ctl *c, const uint8_t *data, size_t len)
{
	size_t whole = whole_bytes(c), n = MIN(len, whole - c->have);
	struct err e;

	if (c->have + n > c->cap &&
	    !grow(&c->buf, &c->cap, MIN(MAX(2 * (c->have + n), 1024u), MAX(whole, 1024u)))) {
		err_set(&e, TALLY_ENOMEM, "no memory for a message of %zu bytes", whole);
		fail(c, &e);
		return 0;
	}
	memcpy(c->buf + c->have, data, n);
	c->have += n;
	if (whole == MSG_PREFIX_BYTES && c->have == MSG_PREFIX_BYTES &&
	    msg_prefix_decode(c->buf, &c->body_bytes, &c->type, &e) < 0) {
		fail(c, &e);
		return 0;
	}
	if (c->crowd && c->have >= MSG_PREFIX_BYTES && c->body_bytes > STRANGER_BYTES_MAX) {
		err_set(&e, TALLY_EPROTO, "a first message of %u bytes", c->body_bytes);
		fail(c, &e);
		return 0;
	}
	return n;
}

static bool is_whole(const struct ctl *c)
{
	return c->have >= MSG_PREFIX_BYTES && c->have == whole_bytes(c);
}

/* Decodes the message in buf and hands it over. */
static void deliver(struct ctl *c)
{
	struct msg_mem mem;
	struct msg m;
	struct err e;

	if (!c->crowd) {
		stop_deadline(c);
		c->spared = false;
	}
	c->heard = true;
	if (!grow(&c->mem, &c->mem_bytes, msg_mem_need(c->body_bytes))) {
		err_set(&e, TALLY_ENOMEM, "no memory for a message of %u bytes", c->body_bytes);
		fail(c, &e);
		return;
	}
	mem = (struct msg_mem){ c->mem, c->mem_bytes, 0 };
	if (msg_decode(c->type, c->buf + MSG_PREFIX_BYTES, c->body_bytes, &mem, &m, &e) < 0) {
		fail(c, &e);
		return;
	}
	c->have = 0;
	c->cb.msg(c->user, c, &m);
	shrink(&c->buf, &c->cap);
	shrink(&c->mem, &c->mem_bytes);
}

static void move_fds(int *to, uint32_t *nto, int *from, uint32_t *nfrom)
{
	for (uint32_t i = 0; i < *nfrom; i++) {
		if (*nto < STREAM_FDS_MAX)
			to[(*nto)++] = from[i];
		else
			close(from[i]);
	}
	*nfrom = 0;
}

static void on_readable(void *ctx, struct stream *s, const uint8_t *data, size_t len)
{
	int fresh[STREAM_FDS_MAX];
	uint32_t nfresh = stream_take_fds(s, fresh, STREAM_FDS_MAX);
	struct ctl *c = ctx;

	while (len > 0 && !c->closing) {
		size_t n = gather(c, data, len);

		data += n;
		len -= n;
		if (c->closing || !is_whole(c))
			continue;
		move_fds(c->fds, &c->nfds, c->carried, &c->ncarried);
		if (len == 0)
			move_fds(c->fds, &c->nfds, fresh, &nfresh);
		deliver(c);
		close_fds(c->fds, &c->nfds);
	}
	move_fds(c->carried, &c->ncarried, fresh, &nfresh);
	if (c->have == 0)
		return;
	stream_want(s, whole_bytes(c) - c->have);
	start_deadline(c);
}

uint32_t ctl_take_fds(struct ctl *c, int *fds, uint32_t max)
{
	uint32_t n = MIN(max, c->nfds);

	memcpy(fds, c->fds, n * sizeof(*fds));
	memmove(c->fds, c->fds + n, (c->nfds - n) * sizeof(*fds));
	c->nfds -= n;
	return n;
}

/* ---- making ---- */

static void on_connected(void *ctx, struct stream *s)
{
	struct ctl *c = ctx;

	(void)s;
	if (!c->closing && c->cb.up)
		c->cb.up(c->user, c);
}

static const struct stream_cb stream_cb = {
	.connected = on_connected, .readable = on_readable, .closed = on_closed,
};

static struct ctl *ctl_new(struct loop *l, const struct ctl_cb *cb, void *ctx, struct err *e)
{
	struct ctl *c = calloc(1, sizeof(*c));

	if (!c || loop_timer_start(l, &c->deadline, HANDSHAKE_MS, 0, on_deadline, c) < 0) {
		free(c);
		err_set(e, TALLY_ENOMEM, "no memory for a control connection");
		return NULL;
	}
	c->l = l;
	c->cb = *cb;
	c->user = ctx;
	c->patience_ms = HANDSHAKE_MS;
	return c;
}

static int opened(struct ctl *c, struct ctl **out, int code)
{
	if (code < 0) {
		loop_timer_stop(c->deadline);
		free(c);
		return code;
	}
	*out = c;
	return 0;
}

int ctl_connect(struct loop *l, struct ctl **out, const char *host, uint16_t port,
		const struct ctl_cb *cb, void *ctx, struct err *e)
{
	struct ctl *c = ctl_new(l, cb, ctx, e);

	if (!c)
		return TALLY_ENOMEM;
	return opened(c, out, stream_connect(l, &c->s, host, port, &stream_cb, c, e));
}

int ctl_adopt(struct loop *l, struct ctl **out, int fd, const struct ctl_cb *cb, void *ctx,
	      struct err *e)
{
	struct ctl *c = ctl_new(l, cb, ctx, e);

	if (!c)
		return TALLY_ENOMEM;
	return opened(c, out, stream_adopt(l, &c->s, fd, &stream_cb, c, e));
}

/* ---- sending ---- */

static int write_failed(struct ctl *c, int code, struct err *e)
{
	if (code == TALLY_EQUOTA) {
		err_set(&c->why, code, "%s does not read: %u MiB wait for it", ctl_peer(c),
			CTL_QUEUE_BYTES_MAX >> 20);
		c->closing = true;
		stop_deadline(c);
		stream_fail(c->s, &c->why);
		return err_set(e, code, "%s", c->why.text);
	}
	return err_set(e, code, "cannot send to %s", ctl_peer(c));
}

int ctl_encode(const struct msg *m, struct ctl_wire *w, struct err *e)
{
	uint32_t bytes;
	uint8_t *out;
	int code;

	code = msg_encode_size(m, &bytes, e);
	if (code < 0)
		return code;
	out = malloc(bytes);
	if (!out)
		return err_set(e, TALLY_ENOMEM, "no memory for a message of %u bytes", bytes);
	code = msg_encode(m, out, bytes, e);
	if (code < 0) {
		free(out);
		return code;
	}
	*w = (struct ctl_wire){ out, bytes };
	return 0;
}

void ctl_wire_free(struct ctl_wire *w)
{
	free(w->bytes);
	*w = (struct ctl_wire){ 0 };
}

static int send_wire(struct ctl *c, const struct ctl_wire *w, const int *fds, uint32_t nfds,
		     struct err *e)
{
	int code;

	if (c->closing)
		return err_set(e, TALLY_ESHUTDOWN, "the connection to %s is closed", ctl_peer(c));
	code = stream_write_fds(c->s, w->bytes, w->len, fds, nfds);
	return code < 0 ? write_failed(c, code, e) : 0;
}

int ctl_send_wire(struct ctl *c, const struct ctl_wire *w, struct err *e)
{
	return send_wire(c, w, NULL, 0, e);
}

int ctl_send_fds(struct ctl *c, const struct msg *m, const int *fds, uint32_t nfds,
		 struct err *e)
{
	struct ctl_wire w = { 0 };
	int code;

	if (c->closing)
		return err_set(e, TALLY_ESHUTDOWN, "the connection to %s is closed", ctl_peer(c));
	code = ctl_encode(m, &w, e);
	if (code < 0)
		return code;
	code = send_wire(c, &w, fds, nfds, e);
	ctl_wire_free(&w);
	return code;
}

int ctl_send(struct ctl *c, const struct msg *m, struct err *e)
{
	return ctl_send_fds(c, m, NULL, 0, e);
}

/* A text of ours may quote a peer's bytes; on the wire it must be clean. */
static void clean(char *text)
{
	while (*text) {
		uint32_t n = utf8_char((const uint8_t *)text);

		if (!n)
			*text = '?';
		text += MAX(n, 1);
	}
}

int ctl_reply(struct ctl *c, uint64_t req, int code, const char *fmt, ...)
{
	struct msg m = { .type = MSG_REPLY, .reply = { .req = req, .code = code } };
	char text[ERR_TEXT_MAX + 1];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	clean(text);
	m.reply.text = text;
	return ctl_send(c, &m, NULL);
}

/* ---- facts ---- */

int ctl_errnum(const struct ctl *c)
{
	return stream_errnum(c->s);
}

const char *ctl_peer(const struct ctl *c)
{
	return stream_peer(c->s);
}

const char *ctl_local(const struct ctl *c)
{
	return stream_local(c->s);
}

int ctl_fd(const struct ctl *c)
{
	return stream_fd(c->s);
}
