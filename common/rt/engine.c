// SPDX-License-Identifier: Apache-2.0
/*
 * An engine: take the mail, take the events, give the owner its turn; and when
 * there was nothing for spin_us, sleep in epoll_wait() until something comes or
 * the owner's next deadline.
 *
 * The doorbell is an eventfd in the epoll set that senders write only when the
 * mailbox says that the engine sleeps (mailbox.c has the argument).  A batch of
 * mail is bounded so that events get their share, and the other way round.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/rt/engine.h"
#include "common/rt/loop.h"
#include "common/shm/limit.h"

#define MAIL_PER_TURN	256
#define EVENTS_PER_TURN	64
#define THREAD_NAME	16		/* the kernel's limit, NUL counted */

struct engine {
	struct engine_cb cb;
	void *ctx;
	mono_t spin;
	pthread_t thread;
	struct mailbox *mailbox;
	int epfd, bell;
	_Atomic bool stop;
	_Atomic int tid;		/* 0: it does not run yet */
};

/* ---- the thread ---- */

static void ring_bell(void *ctx)
{
	struct engine *en = ctx;
	uint64_t one = 1;
	ssize_t n = write(en->bell, &one, sizeof(one));

	ASSERT(n == sizeof(one) || errno == EAGAIN);	/* EAGAIN: rung 2^64 times */
}

static void hush_bell(struct engine *en)
{
	uint64_t count;
	ssize_t n = read(en->bell, &count, sizeof(count));

	ASSERT(n == sizeof(count) || errno == EAGAIN);
}

static bool run_mail(struct engine *en)
{
	struct mail m;
	int n = 0;

	while (n < MAIL_PER_TURN && mailbox_poll(en->mailbox, &m)) {
		en->cb.mail(en->ctx, &m, false);
		n++;
	}
	return n > 0;
}

static bool run_events(struct engine *en, int timeout_ms)
{
	struct epoll_event ev[EVENTS_PER_TURN];
	int n = epoll_wait(en->epfd, ev, EVENTS_PER_TURN, timeout_ms);

	ASSERT(n >= 0 || errno == EINTR);
	for (int i = 0; i < n; i++) {
		if (ev[i].data.ptr == en)
			hush_bell(en);
		else
			en->cb.event(en->ctx, ev[i].data.ptr, ev[i].events);
	}
	return n > 0;
}

static mono_t run_turn(struct engine *en, mono_t now)
{
	return en->cb.turn ? en->cb.turn(en->ctx, now) : MONO_NEVER;
}

/* Never early, and never longer than an int of milliseconds. */
static int sleep_ms(mono_t due, mono_t now)
{
	if (due == MONO_NEVER)
		return -1;
	if (due <= now)
		return 0;
	return (int)MIN(div_round_up((uint64_t)(due - now), NS_PER_MS), INT32_MAX);
}

/* True if there was something after all. */
static bool sleep_until(struct engine *en, mono_t due, mono_t now)
{
	struct mail m;

	if (!mailbox_take(en->mailbox, &m))
		return run_events(en, sleep_ms(due, now));
	en->cb.mail(en->ctx, &m, false);
	return true;
}

static void hand_over_rest(struct engine *en)
{
	struct mail m;

	while (mailbox_poll(en->mailbox, &m))
		en->cb.mail(en->ctx, &m, true);
}

static void *engine_main(void *arg)
{
	struct engine *en = arg;
	mono_t busy_at = loop_now(), due;

	en->tid = (int)gettid();
	due = run_turn(en, busy_at);

	while (!atomic_load_explicit(&en->stop, memory_order_acquire)) {
		bool busy = run_mail(en);
		mono_t now;

		busy |= run_events(en, 0);
		now = loop_now();
		if (!busy && due > now && now - busy_at >= en->spin) {
			busy = sleep_until(en, due, now);
			now = loop_now();
		}
		if (busy)
			busy_at = now;
		if (busy || due <= now)
			due = run_turn(en, now);
	}
	hand_over_rest(en);
	return NULL;
}

uint64_t engine_cpu_us(const struct engine *en)
{
	unsigned long long ran = 0, waited = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", en->tid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &ran, &waited) != 2)
		ran = waited = 0;
	fclose(f);
	return (ran + waited) / 1000;
}

/* ---- start and stop ---- */

static int open_fds(struct engine *en, struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = en };

	en->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (en->epfd < 0)
		return limit_err(e, errno, "cannot make an epoll descriptor");
	en->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (en->bell >= 0 && epoll_ctl(en->epfd, EPOLL_CTL_ADD, en->bell, &ev) == 0)
		return 0;
	return limit_err(e, errno, "cannot make an engine's doorbell");
}

static void engine_free(struct engine *en)
{
	mailbox_free(en->mailbox);
	if (en->bell >= 0)
		close(en->bell);
	if (en->epfd >= 0)
		close(en->epfd);
	free(en);
}

/* The affinity is given to the thread before it runs, so that it allocates nearby. */
static int start_thread(struct engine *en, int cpu, struct err *e)
{
	pthread_attr_t attr;
	cpu_set_t set;
	int r;

	pthread_attr_init(&attr);
	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET((size_t)cpu, &set);
		pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	}
	r = pthread_create(&en->thread, &attr, engine_main, en);
	pthread_attr_destroy(&attr);
	if (r == 0)
		return 0;
	if (r == EINVAL && cpu >= 0)
		return err_set(e, TALLY_EINVAL, "cannot pin an engine to cpu %d: not ours to use",
			       cpu);
	return limit_err(e, r, "cannot start an engine thread");
}

int engine_start(struct engine **out, const char *name, uint32_t index, int cpu,
		 uint32_t spin_us, const struct engine_cb *cb, void *ctx, struct err *e)
{
	struct engine *en = calloc(1, sizeof(*en));
	char thread_name[THREAD_NAME];
	int code;

	ASSERT(index < ENGINES_MAX && cpu < CPU_SETSIZE);
	if (!en)
		return err_set(e, TALLY_ENOMEM, "no memory for an engine");
	en->cb = *cb;
	en->ctx = ctx;
	en->spin = (mono_t)spin_us * 1000;
	en->epfd = en->bell = -1;
	code = mailbox_new(&en->mailbox, ring_bell, en, e);
	if (code == 0)
		code = open_fds(en, e);
	/* The owner's callbacks may ask for engine_epfd(*out) at once. */
	*out = en;
	if (code == 0)
		code = start_thread(en, cpu, e);
	if (code < 0) {
		*out = NULL;
		engine_free(en);
		return code;
	}
	snprintf(thread_name, sizeof(thread_name), "%.12s/%u", name, index);
	pthread_setname_np(en->thread, thread_name);
	return 0;
}

void engine_stop(struct engine *en)
{
	int r;

	if (!en)
		return;
	atomic_store_explicit(&en->stop, true, memory_order_release);
	ring_bell(en);
	r = pthread_join(en->thread, NULL);
	ASSERT(r == 0);
	hand_over_rest(en);
	engine_free(en);
}

int engine_epfd(const struct engine *en)
{
	return en->epfd;
}

int engine_post(struct engine *en, uint32_t from, uint32_t type, const void *body, size_t len)
{
	return mailbox_post(en->mailbox, from, type, body, len);
}
