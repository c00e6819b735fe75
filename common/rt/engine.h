/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - a pinned data thread with an epoll descriptor and a mailbox.
 *
 * The control thread and other engines reach it only through its mailbox:
 * engine_post() copies one small message in, from any thread (one lock-free
 * single-producer ring per sender: ENGINES_MAX engines and the control thread).
 * The owner's callbacks run on the engine thread:
 *   mail:  one message arrived.
 *   event: an epoll event whose data.ptr the owner registered on engine_epfd().
 *   turn:  once after each batch of events; returns when it wants to be called
 *          again at the latest (MONO_NEVER: only on events).  NULL: none.
 * Stop is orderly: engine_stop() posts the end, joins, after which no callback
 * runs; messages not taken are handed to mail with `stopping` set (by the engine
 * thread; those that other engines post at the very last, by engine_stop()).
 * Whoever posts to an engine must have stopped posting before that returns.
 */
#ifndef TALLY_RT_ENGINE_H
#define TALLY_RT_ENGINE_H

#include "common/base/err.h"

#define MAIL_BYTES	120u

struct mail {
	uint32_t type;		/* the program's */
	uint32_t from;		/* engine index, or ENGINE_CONTROL */
	uint8_t body[MAIL_BYTES];
};

#define ENGINE_CONTROL	ENGINES_MAX

struct engine;

struct engine_cb {
	void (*mail)(void *ctx, const struct mail *m, bool stopping);
	void (*event)(void *ctx, void *data_ptr, uint32_t events);
	mono_t (*turn)(void *ctx, mono_t now);
};

/* index < ENGINES_MAX names the thread "<name>/<index>"; cpu < 0: not pinned.
 * Spins up to spin_us for work before it sleeps. */
int engine_start(struct engine **en, const char *name, uint32_t index, int cpu, uint32_t spin_us,
		 const struct engine_cb *cb, void *ctx, struct err *e);
void engine_stop(struct engine *en);
int engine_epfd(const struct engine *en);

/* Microseconds that its thread has run or waited for a CPU since it began; 0: the kernel does
 * not say.  From any thread. */
uint64_t engine_cpu_us(const struct engine *en);

/* From control thread (from = ENGINE_CONTROL) or an engine; blocks never:
 * TALLY_EAGAIN when that sender's ring is full. */
int engine_post(struct engine *en, uint32_t from, uint32_t type, const void *body, size_t len);

/* The other way: engines to the control thread. drain is called on a loop bell. */
struct mailbox;
int mailbox_new(struct mailbox **mb, void (*ring)(void *ctx), void *ctx, struct err *e);
void mailbox_free(struct mailbox *mb);
int mailbox_post(struct mailbox *mb, uint32_t from, uint32_t type, const void *body, size_t len);
/* False: empty, and the next post rings.  Take until then, or nobody rings again. */
bool mailbox_take(struct mailbox *mb, struct mail *m);
/* The same for a reader that comes back by itself: asks for no ring. */
bool mailbox_poll(struct mailbox *mb, struct mail *m);

#endif
