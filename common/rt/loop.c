// SPDX-License-Identifier: Apache-2.0
/*
 * The control thread's loop over libuv.
 *
 * Each timer, watch and bell is one heap block that holds the libuv handle and
 * the owner's callback.  Stop hands the block to libuv, which frees it when it
 * has let go of the handle; the owner's callback is never called after stop.
 *
 * Deferred tasks run from a timer of zero length, that is on the next turn of
 * the loop and never inside the call that queued them.  loop_free() lets what is
 * still closing finish, then takes the loop's own handles down; something that
 * its owner forgot to close is our bug and trips the guard.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>
#undef MIN			/* uv.h drags in sys/param.h's */
#undef MAX

#include "common/rt/loop_int.h"

/* What closes takes HANDSHAKE_MS at most; a standstill of ours is one tick, however long. */
#define POOL_THREADS	4u	/* libuv's own */
#define GUARD_MS	500u
#define GUARD_TICKS	(2u * HANDSHAKE_MS / GUARD_MS)

struct loop {
	uv_loop_t uv;
	uv_async_t keep;		/* holds uv_run() until loop_stop() */
	uv_timer_t defer;
	uv_timer_t guard;
	uint32_t guard_ticks;
	struct fdguard *fdguard;	/* borrowed; NULL: sockets are of people who are trusted */
	uv_poll_t reserve;
	struct list tasks;
	uint32_t works;
	uv_signal_t signals[2];
	uint32_t nsignals;
	void (*on_signal)(void *ctx, int signum);
	void *signal_ctx;
	uint8_t scratch[LOOP_SCRATCH_BYTES];
};

static int uv_failed(struct err *e, const char *what, int r)
{
	return err_set(e, err_from_errno(-r), "cannot %s: %s", what, uv_strerror(r));
}

static void free_handle(uv_handle_t *h)
{
	free(h->data);
}

static void close_handle(uv_handle_t *h)
{
	if (!uv_is_closing(h))
		uv_close(h, NULL);
}

/* ---- the loop ---- */

int loop_new(struct loop **out, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_set(e, TALLY_ENOMEM, "no memory for the event loop");
	r = uv_loop_init(&l->uv);
	if (r < 0)
		goto free_l;
	r = uv_async_init(&l->uv, &l->keep, NULL);
	if (r < 0)
		goto close_uv;
	uv_timer_init(&l->uv, &l->defer);
	uv_timer_init(&l->uv, &l->guard);
	l->defer.data = l->guard.data = l;
	list_init(&l->tasks);
	*out = l;
	return 0;

close_uv:
	uv_loop_close(&l->uv);
free_l:
	free(l);
	return uv_failed(e, "start an event loop", r);
}

/* Work takes what it takes. */
static void on_guard(uv_timer_t *t)
{
	struct loop *l = t->data;

	l->guard_ticks = l->works ? 0 : l->guard_ticks + 1;
	ASSERT(l->guard_ticks < GUARD_TICKS || !"everything on the loop was closed");
}

static void close_signals(struct loop *l)
{
	for (uint32_t i = 0; i < l->nsignals; i++)
		close_handle((uv_handle_t *)&l->signals[i]);
}

static void run_all(struct loop *l)
{
	while (uv_loop_alive(&l->uv))
		uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_free(struct loop *l)
{
	int r;

	if (!l)
		return;
	close_signals(l);
	uv_unref((uv_handle_t *)&l->keep);
	uv_timer_start(&l->guard, on_guard, GUARD_MS, GUARD_MS);
	uv_unref((uv_handle_t *)&l->guard);
	run_all(l);
	close_handle((uv_handle_t *)&l->guard);
	close_handle((uv_handle_t *)&l->defer);
	close_handle((uv_handle_t *)&l->keep);
	run_all(l);
	r = uv_loop_close(&l->uv);
	ASSERT(r == 0);
	free(l);
}

void loop_run(struct loop *l)
{
	uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *l)
{
	uv_stop(&l->uv);
}

void loop_set_fdguard(struct loop *l, struct fdguard *g)
{
	l->fdguard = g;
}

struct fdguard *loop_fdguard(const struct loop *l)
{
	return l->fdguard;
}

uint8_t *loop_scratch(struct loop *l)
{
	return l->scratch;
}

struct uv_loop_s *loop_uv(struct loop *l)
{
	return &l->uv;
}

/* ---- tasks ---- */

static void on_defer(uv_timer_t *t)
{
	struct loop *l = t->data;

	while (!list_empty(&l->tasks)) {
		struct loop_task *task = list_first(&l->tasks, struct loop_task, link);

		list_del(&task->link);
		task->fn(task);
	}
}

void loop_task_init(struct loop_task *t, void (*fn)(struct loop_task *t))
{
	list_init(&t->link);
	t->fn = fn;
}

void loop_defer(struct loop *l, struct loop_task *t)
{
	list_del(&t->link);
	list_add(&l->tasks, &t->link);
	uv_timer_start(&l->defer, on_defer, 0, 0);
}

/* ---- timers ---- */

struct loop_timer {
	uv_timer_t uv;
	void (*fn)(void *ctx);
	void *ctx;
};

static void on_timer(uv_timer_t *h)
{
	struct loop_timer *t = h->data;

	t->fn(t->ctx);
}

int loop_timer_start(struct loop *l, struct loop_timer **out, uint64_t first_ms,
		     uint64_t repeat_ms, void (*fn)(void *), void *ctx)
{
	struct loop_timer *t = calloc(1, sizeof(*t));

	if (!t)
		return TALLY_ENOMEM;
	t->fn = fn;
	t->ctx = ctx;
	uv_timer_init(&l->uv, &t->uv);
	t->uv.data = t;
	loop_timer_set(t, first_ms, repeat_ms);
	*out = t;
	return 0;
}

void loop_timer_set(struct loop_timer *t, uint64_t first_ms, uint64_t repeat_ms)
{
	/* Deadlines count from now, not from when this turn of the loop began. */
	uv_update_time(t->uv.loop);
	uv_timer_start(&t->uv, on_timer, first_ms, repeat_ms);
}

void loop_timer_pause(struct loop_timer *t)
{
	uv_timer_stop(&t->uv);
}

void loop_timer_stop(struct loop_timer *t)
{
	if (t)
		uv_close((uv_handle_t *)&t->uv, free_handle);
}

/* ---- watches ---- */

struct loop_watch {
	uv_poll_t uv;
	int events;
	void (*fn)(void *ctx, int events);
	void *ctx;
};

static int to_uv_events(int events)
{
	return (events & LOOP_READ ? UV_READABLE : 0) | (events & LOOP_WRITE ? UV_WRITABLE : 0);
}

/*
 * libuv reports EPOLLERR as a status and stops polling.  The owner shall find
 * the error by the read or write it asked for, so it is told exactly that.
 */
static void on_poll(uv_poll_t *h, int status, int uv_events)
{
	struct loop_watch *w = h->data;
	int events = (uv_events & UV_READABLE ? LOOP_READ : 0) |
		     (uv_events & UV_WRITABLE ? LOOP_WRITE : 0);

	if (status < 0) {
		events = w->events;
		loop_watch_change(w, events);
	}
	w->fn(w->ctx, events);
}

int loop_watch_start(struct loop *l, struct loop_watch **out, int fd, int events,
		     void (*fn)(void *ctx, int events), void *ctx)
{
	struct loop_watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return TALLY_ENOMEM;
	w->fn = fn;
	w->ctx = ctx;
	r = uv_poll_init(&l->uv, &w->uv, fd);
	if (r < 0) {
		free(w);
		return err_from_errno(-r);
	}
	w->uv.data = w;
	loop_watch_change(w, events);
	*out = w;
	return 0;
}

void loop_watch_change(struct loop_watch *w, int events)
{
	int r = uv_poll_start(&w->uv, to_uv_events(events), on_poll);

	ASSERT(r == 0);
	w->events = events;
}

void loop_watch_stop(struct loop_watch *w)
{
	if (w)
		uv_close((uv_handle_t *)&w->uv, free_handle);
}

/* ---- bells ---- */

struct loop_bell {
	uv_async_t uv;
	void (*fn)(void *ctx);
	void *ctx;
};

static void on_bell(uv_async_t *h)
{
	struct loop_bell *b = h->data;

	b->fn(b->ctx);
}

int loop_bell_start(struct loop *l, struct loop_bell **out, void (*fn)(void *), void *ctx)
{
	struct loop_bell *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return TALLY_ENOMEM;
	b->fn = fn;
	b->ctx = ctx;
	r = uv_async_init(&l->uv, &b->uv, on_bell);
	if (r < 0) {
		free(b);
		return err_from_errno(-r);
	}
	b->uv.data = b;
	*out = b;
	return 0;
}

void loop_bell_ring(struct loop_bell *b)
{
	int r = uv_async_send(&b->uv);

	ASSERT(r == 0);
}

void loop_bell_stop(struct loop_bell *b)
{
	if (b)
		uv_close((uv_handle_t *)&b->uv, free_handle);
}

/* ---- work ---- */

struct work {
	uv_work_t uv;
	struct loop *l;
	void (*fn)(void *ctx);
	void *ctx;
};

static void do_work(uv_work_t *uv)
{
	struct work *w = uv->data;

	w->fn(w->ctx);
}

static void on_work_done(uv_work_t *uv, int status)
{
	struct work *w = uv->data;

	ASSERT(status == 0);		/* nobody cancels it */
	w->l->works--;
	free(w);
}

int loop_work(struct loop *l, void (*fn)(void *), void *ctx)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		return TALLY_ENOMEM;
	*w = (struct work){ .uv.data = w, .l = l, .fn = fn, .ctx = ctx };
	if (uv_queue_work(&l->uv, &w->uv, do_work, on_work_done)) {
		free(w);
		return TALLY_ENOMEM;
	}
	l->works++;
	return 0;
}

/* ---- what libuv ends the process for where there is no memory ---- */

static void on_reserve(uv_poll_t *h, int status, int events)
{
	(void)h;
	(void)status;
	(void)events;
}

/*
 * Makes libuv's table of descriptors as large as it can become: it grows with the highest
 * descriptor that was ever watched.
 */
static void reserve_watches(struct loop *l)
{
	struct rlimit r;
	int low, high;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	low = eventfd(0, EFD_CLOEXEC);
	high = fcntl(low, F_DUPFD_CLOEXEC, (int)MIN(r.rlim_cur, LOOP_FDS) - 1);
	if (high >= 0 && !uv_poll_init(&l->uv, &l->reserve, high)) {
		uv_poll_start(&l->reserve, UV_READABLE, on_reserve);
		uv_close((uv_handle_t *)&l->reserve, NULL);
	}
	if (high >= 0)
		close(high);
	if (low >= 0)
		close(low);
}

static void do_nothing(void *ctx)
{
	(void)ctx;
}

static void *wait_for_all(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

/* As many at a time as libuv starts: where one cannot be had, it ends the process. */
static bool may_have_threads(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread[POOL_THREADS];
	uint32_t n = 0;
	bool all;

	pthread_mutex_lock(&lock);
	while (n < POOL_THREADS && !pthread_create(&thread[n], NULL, wait_for_all, &lock))
		n++;
	all = n == POOL_THREADS;
	pthread_mutex_unlock(&lock);
	while (n)
		pthread_join(thread[--n], NULL);
	pthread_mutex_destroy(&lock);
	return all;
}

int loop_reserve(struct loop *l, bool threads)
{
	reserve_watches(l);
	if (threads && !may_have_threads())
		return TALLY_EAGAIN;
	return threads ? loop_work(l, do_nothing, NULL) : 0;
}

/* ---- signals ---- */

static void on_uv_signal(uv_signal_t *h, int signum)
{
	struct loop *l = h->data;

	l->on_signal(l->signal_ctx, signum);
}

int loop_on_signals(struct loop *l, void (*fn)(void *ctx, int signum), void *ctx)
{
	static const int signums[ARRAY_SIZE(l->signals)] = { SIGTERM, SIGINT };

	ASSERT(l->nsignals == 0);
	l->on_signal = fn;
	l->signal_ctx = ctx;
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(signums); i++) {
		int r = uv_signal_init(&l->uv, &l->signals[i]);

		if (r < 0)
			return err_from_errno(-r);
		l->signals[i].data = l;
		l->nsignals++;
		r = uv_signal_start(&l->signals[i], on_uv_signal, signums[i]);
		if (r < 0)
			return err_from_errno(-r);
	}
	return 0;
}
