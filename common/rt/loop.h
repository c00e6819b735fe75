/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - the control thread's event loop: libuv behind five nouns.
 *
 * One loop per daemon or CLI run, on the main thread.  Callbacks run on that
 * thread.  Objects are the caller's structs, initialised once; *_stop or
 * *_close may be called in any callback, the memory may be freed in on_closed
 * (streams) or at once after stop (timers, watches: the loop copies what libuv
 * needs).  loop_run() returns after loop_stop().  loop_free() still calls the
 * `closed` of streams that were told to close, so their ctx must be there.
 */
#ifndef TALLY_RT_LOOP_H
#define TALLY_RT_LOOP_H

#include "common/base/err.h"

struct loop;

int loop_new(struct loop **l, struct err *e);
void loop_free(struct loop *l);			/* everything on it must be closed */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
mono_t loop_now(void);				/* CLOCK_BOOTTIME */

/*
 * Allocates what is allocated only once, and for want of which libuv ends the process: its table
 * of descriptors, up to LOOP_FDS, and the threads of loop_work() and of resolving names. For
 * daemons, at the start. ENOMEM; EAGAIN: no threads.
 */
int loop_reserve(struct loop *l, bool threads);
#define LOOP_FDS	65536u

/*
 * The Unix sockets that are accepted from here on are strangers', who may send descriptors that
 * hang whoever closes them (fdguard.h).  Borrowed until the loop is freed.
 */
struct fdguard;
void loop_set_fdguard(struct loop *l, struct fdguard *g);

struct loop_timer;	/* repeats until stopped (repeat_ms 0: once); first after `first_ms` */
int loop_timer_start(struct loop *l, struct loop_timer **t, uint64_t first_ms, uint64_t repeat_ms,
		     void (*fn)(void *), void *ctx);
/* The same one anew, which needs no memory; or not at all until it is set again. */
void loop_timer_set(struct loop_timer *t, uint64_t first_ms, uint64_t repeat_ms);
void loop_timer_pause(struct loop_timer *t);
void loop_timer_stop(struct loop_timer *t);	/* NULL is fine; t is gone */

struct loop_watch;	/* a descriptor is readable (and/or writable) */
enum { LOOP_READ = 1, LOOP_WRITE = 2 };
int loop_watch_start(struct loop *l, struct loop_watch **w, int fd, int events,
		     void (*fn)(void *ctx, int events), void *ctx);
void loop_watch_change(struct loop_watch *w, int events);
void loop_watch_stop(struct loop_watch *w);	/* the fd stays open, the caller's */

struct loop_bell;	/* rung from any thread; rings coalesce */
int loop_bell_start(struct loop *l, struct loop_bell **b, void (*fn)(void *), void *ctx);
void loop_bell_ring(struct loop_bell *b);
void loop_bell_stop(struct loop_bell *b);

/* Calls fn(ctx) on a thread that is neither the loop's nor anybody's: for what the kernel
 * takes long to do, and nobody waits for.  ENOMEM: not called.  loop_free() waits for it. */
int loop_work(struct loop *l, void (*fn)(void *ctx), void *ctx);

/* SIGTERM and SIGINT; also ignores SIGPIPE. */
int loop_on_signals(struct loop *l, void (*fn)(void *ctx, int signum), void *ctx);

/* ---- byte streams: TCP and Unix, with descriptors on Unix ones ---- */

struct stream;

struct stream_cb {
	void (*connected)(void *ctx, struct stream *s);
	void (*readable)(void *ctx, struct stream *s, const uint8_t *data, size_t len);
	/* Last word, once; s is freed after it. e: why (code 0: closed by us or clean EOF). */
	void (*closed)(void *ctx, struct stream *s, const struct err *e);
};

struct listener;

/* Numeric or resolvable host; port 0: any. unix: host = path, port ignored; a dead
 * socket file is replaced, a living one is EBUSY.  The accepted fd is the callee's.
 * Out of descriptors, accepting pauses and comes back. */
int listener_tcp(struct loop *l, struct listener **out, const char *host, uint16_t port,
		 void (*accepted)(void *ctx, int fd), void *ctx, struct err *e);
int listener_unix(struct loop *l, struct listener **out, const char *path, uint32_t mode,
		  void (*accepted)(void *ctx, int fd), void *ctx, struct err *e);
uint16_t listener_port(const struct listener *li);
void listener_close(struct listener *li);	/* removes its socket file */

/*
 * Connecting never fails in the call for the peer's sake: that is for closed().
 * A host that begins with '/' is a Unix socket's path.  adopt: fd is the stream's
 * on success.  Writing is allowed before connected(); it waits.
 */
int stream_connect(struct loop *l, struct stream **out, const char *host, uint16_t port,
		   const struct stream_cb *cb, void *ctx, struct err *e);
int stream_adopt(struct loop *l, struct stream **out, int fd, const struct stream_cb *cb,
		 void *ctx, struct err *e);
/* Closes a socket that was accepted, instead of adopting it. */
void stream_refuse(struct loop *l, int fd);
/* Copies data; EQUOTA when more than CTL_QUEUE_BYTES_MAX would wait: close it then.
 * ESHUTDOWN on a closed stream.  A broken connection is for closed() to say. */
int stream_write(struct stream *s, const void *data, size_t len);
/* Unix only, len > 0: descriptors ride on the first byte.  Duplicates them; EINVAL
 * on TCP or for more than STREAM_FDS_MAX. */
#define STREAM_FDS_MAX	16u
int stream_write_fds(struct stream *s, const void *data, size_t len, const int *fds,
		     uint32_t nfds);
/* In readable() only: the descriptors that came with these bytes, the caller's from
 * here on.  They belong to the message that holds the last of the bytes: the kernel
 * ends a read there.  What is not taken is closed when readable() returns. */
uint32_t stream_take_fds(struct stream *s, int *fds, uint32_t max);
/* In readable() only: so much is yet to come of a message that has begun.  Otherwise a turn reads
 * 4 KiB, so that who sends small messages without end holds up nobody. */
void stream_want(struct stream *s, size_t bytes);
/* Of one who asks and is answered: nothing is read while more than so many bytes wait for it, with
 * what it takes to keep them; it is closed (EQUOTA) when it has asked more and has taken nothing
 * for CTL_STALL_MS.  0, as it begins: no such bound. */
void stream_set_room(struct stream *s, size_t bytes);
bool stream_stalled(const struct stream *s);	/* nothing is read for that */
bool stream_unread(const struct stream *s);	/* the peer has sent what we have not read */
void stream_close(struct stream *s);		/* at once; what waits is dropped */
/* Reads no more, sends what waits for up to timeout_ms, then closes. */
void stream_finish(struct stream *s, uint32_t timeout_ms);
/* Closed by us for that reason, which closed() will be told. */
void stream_fail(struct stream *s, const struct err *why);
bool stream_is_over(const struct stream *s);	/* its last word is all that is yet to come */
int stream_fd(const struct stream *s);		/* -1 until there is one; for SO_PEERCRED */
int stream_errnum(const struct stream *s);	/* that it ended with, or 0 */
const char *stream_peer(const struct stream *s);	/* "10.0.0.1:4711", "pid 4711 uid 1000" */
const char *stream_local(const struct stream *s);	/* "10.0.0.2:51812" */

#endif
