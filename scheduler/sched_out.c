// SPDX-License-Identifier: Apache-2.0
/*
 * sched_out.c - what a step leaves behind: actions, and the memory they need.
 *
 * Messages are built in scratch blocks that live until the next step; one block
 * is kept, so a quiet scheduler allocates nothing.  When a message cannot be
 * built its connection is doomed: at the next step it is closed and its node
 * declared dead, so that nobody goes on with a message missing.  An answer for a node
 * whose connection is closed waits in the node's outbox for its return.
 */
#include "scheduler/sched.h"

#include <stdio.h>

#define SCRATCH_BYTES	(64u << 10)

struct sched_block {
	struct sched_block *next;
	size_t size, used;
	max_align_t data[];
};

void *sched_alloc(struct sched *s, size_t bytes)
{
	void *p = s->mem.alloc(s->mem.ctx, bytes);

	if (!p)
		s->counters.nomem++;
	return p;
}

void sched_release(struct sched *s, void *p)
{
	s->mem.free(s->mem.ctx, p);
}

void *out_scratch(struct sched *s, size_t bytes)
{
	struct sched_block *b = s->scratch;
	size_t size = MAX(bytes, SCRATCH_BYTES);
	void *p;

	bytes = align_up(bytes, sizeof(max_align_t));
	if (!b || b->size - b->used < bytes) {
		b = sched_alloc(s, sizeof(*b) + align_up(size, sizeof(max_align_t)));
		if (!b)
			return NULL;
		b->size = align_up(size, sizeof(max_align_t));
		b->next = s->scratch;
		s->scratch = b;
	}
	p = (uint8_t *)b->data + b->used;
	b->used += bytes;
	memset(p, 0, bytes);
	return p;
}

/* Keeps the oldest block, unless it is an outsize one. */
void out_reset(struct sched *s)
{
	struct sched_block *b = s->scratch, *next;

	for (; b && (b->next || b->size > SCRATCH_BYTES); b = next) {
		next = b->next;
		sched_release(s, b);
	}
	s->scratch = b;
	if (b)
		b->used = 0;
}

void out_fini(struct sched *s)
{
	out_reset(s);
	sched_release(s, s->scratch);
	s->scratch = NULL;
}

const char *out_string(struct sched *s, const char *text)
{
	size_t len = strlen(text) + 1;
	char *p = out_scratch(s, len);

	return p ? memcpy(p, text, len) : "";
}

static struct sched_action *act(struct sched *s, enum sched_action_type type, uint32_t conn)
{
	struct sched_action *a = out_scratch(s, sizeof(*a));

	if (!a)
		return NULL;
	a->type = type;
	a->conn = conn;
	*s->todo->tail = a;
	s->todo->tail = &a->next;
	return a;
}

struct msg *out_msg(struct sched *s, enum msg_type type)
{
	struct msg *m = out_scratch(s, sizeof(*m));

	if (m)
		m->type = type;
	return m;
}

static void doom(struct sched *s, uint32_t conn)
{
	s->conns[conn].doomed = true;
	s->any_doomed = true;
	sched_wake(s, s->now);
}

void out_send_conn(struct sched *s, uint32_t conn, const struct msg *m)
{
	struct sched_conn *c = &s->conns[conn];
	struct sched_action *a;

	if (c->state == SC_FREE || c->state == SC_CLOSING || c->doomed)
		return;
	a = m ? act(s, SCHED_DO_SEND, conn) : NULL;
	if (!a) {
		if (!MUTATE(36))
			doom(s, conn);
		return;
	}
	a->msg = m;
}

bool out_send(struct sched *s, struct sched_node *n, const struct msg *m)
{
	if (n->conn == NO_CONN)
		return false;
	out_send_conn(s, n->conn, m);
	return true;
}

void out_close(struct sched *s, uint32_t conn)
{
	struct sched_conn *c = &s->conns[conn];

	if (c->state == SC_FREE || c->state == SC_CLOSING)
		return;
	if (!act(s, SCHED_DO_CLOSE, conn)) {
		doom(s, conn);
		return;
	}
	c->state = SC_CLOSING;
	c->doomed = false;
	c->node = NULL;
}

/* Closes what could not be served; whatever fails again stays doomed. */
void out_doomed(struct sched *s)
{
	if (!s->any_doomed)
		return;
	s->any_doomed = false;
	for (uint32_t i = 0; i < CTL_CONNS_MAX; i++) {
		struct sched_node *n = s->conns[i].node;

		if (!s->conns[i].doomed)
			continue;
		if (n)
			node_die(s, n, "memory ran out for a message");
		out_close(s, i);
	}
}

void out_save(struct sched *s, struct sched_ids ids)
{
	struct sched_action *a = act(s, SCHED_DO_SAVE, NO_CONN);

	if (!a)
		return;
	a->ids = ids;
	s->saving = ids;
	s->save_pending = true;
}

void out_log(struct sched *s, enum sched_level level, const char *fmt, ...)
{
	char buf[2 * ERR_TEXT_MAX];
	struct sched_action *a = act(s, SCHED_DO_LOG, NO_CONN);
	va_list ap;

	if (!a)
		return;
	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	a->level = level;
	a->place = fmt;
	a->text = out_string(s, buf);
}

static const struct msg *reply_msg(struct sched *s, uint64_t req, int code, const char *text,
				   const uint32_t *ids, uint32_t nids)
{
	struct msg *m = out_msg(s, MSG_REPLY);
	uint32_t *copy = out_scratch(s, nids * sizeof(*ids) + 1);

	if (!m || !copy)
		return NULL;
	if (nids)
		memcpy(copy, ids, nids * sizeof(*ids));
	m->reply = (struct msg_reply){
		.req = req, .code = code, .text = out_string(s, text),
		.nids = nids, .ids = copy,
	};
	return m;
}

void out_reply(struct sched *s, uint32_t conn, uint64_t req, int code, const char *fmt, ...)
{
	struct err e;
	va_list ap;

	va_start(ap, fmt);
	err_setv(&e, code, fmt, ap);
	va_end(ap);
	if (code)
		s->counters.refused++;
	out_send_conn(s, conn, reply_msg(s, req, code, e.text, NULL, 0));
}

/* Without memory the node is not away any more: it is dead, and learns that. */
static void mail_add(struct sched *s, struct sched_node *n, uint64_t req, int code,
		     const char *text, const uint32_t *ids, uint32_t nids)
{
	size_t len = strlen(text) + 1;
	struct sched_mail *mail = sched_alloc(s, sizeof(*mail) + nids * sizeof(*ids) + len);

	if (!mail) {
		n->away = s->now - mono_ms(RECONNECT_GRACE_MS);
		sched_wake(s, s->now);
		return;
	}
	mail->req = req;
	mail->code = code;
	mail->nids = nids;
	if (nids)
		memcpy(mail->ids, ids, nids * sizeof(*ids));
	mail->text = memcpy(mail->ids + nids, text, len);
	list_add(&n->outbox, &mail->link);
}

void out_answer(struct sched *s, struct sched_node *n, uint64_t req, int code, const char *text,
		const uint32_t *ids, uint32_t nids)
{
	s->counters.answers++;
	if (n->conn == NO_CONN)
		mail_add(s, n, req, code, text, ids, nids);
	else
		out_send_conn(s, n->conn, reply_msg(s, req, code, text, ids, nids));
}

void out_refuse(struct sched *s, struct sched_node *n, uint64_t req, int code, const char *fmt, ...)
{
	struct err e;
	va_list ap;

	va_start(ap, fmt);
	err_setv(&e, code, fmt, ap);
	va_end(ap);
	s->counters.refused++;
	out_answer(s, n, req, code, e.text, NULL, 0);
}

void out_flush(struct sched *s, struct sched_node *n)
{
	while (!list_empty(&n->outbox)) {
		struct sched_mail *mail = list_first(&n->outbox, struct sched_mail, link);

		out_send(s, n, reply_msg(s, mail->req, mail->code, mail->text, mail->ids,
					 mail->nids));
		list_del(&mail->link);
		list_add(&n->ahead, &mail->link);
	}
}

static void drop_all(struct sched *s, struct list *of)
{
	while (!list_empty(of)) {
		struct sched_mail *mail = list_first(of, struct sched_mail, link);

		list_del(&mail->link);
		sched_release(s, mail);
	}
}

/* Without memory a question that crosses its answer is taken for a new one. */
void out_ahead(struct sched *s, struct sched_node *n, uint64_t req)
{
	struct sched_mail *mail = sched_alloc(s, sizeof(*mail));

	if (!mail)
		return;
	mail->req = req;
	list_add(&n->ahead, &mail->link);
}

bool out_was_ahead(struct sched *s, struct sched_node *n, uint64_t req)
{
	list_for_each(&n->ahead, p) {
		struct sched_mail *mail = list_entry(p, struct sched_mail, link);

		if (mail->req != req)
			continue;
		list_del(&mail->link);
		sched_release(s, mail);
		return true;
	}
	return false;
}

void out_forget_ahead(struct sched *s, struct sched_node *n)
{
	drop_all(s, &n->ahead);
}

void out_drop(struct sched *s, struct sched_node *n)
{
	drop_all(s, &n->outbox);
	drop_all(s, &n->ahead);
}
