// SPDX-License-Identifier: Apache-2.0
/*
 * gpu.c - a session gets a GPU: plugin, plan, group, and somebody who watches.
 *
 * Opening: the plugin is loaded and names the GPU; the agent is told (GPU_JOIN) and, when
 * all ranks of the machine have said theirs, answers with the group, its roots and the id
 * of its first member, by which the members find each other.
 *
 * Watching: what waits on a GPU cannot look at a status page, so a thread does, ten times
 * a second, and sees whether the agent is there.  Breaking is letting go: all words get their
 * count, the group is aborted, so whoever waits for the GPU gets it back, and the session is
 * over with the reason.  Another thread asks the driver whether the GPU has failed: while a thread
 * of the program frees memory there, which waits for what is on the GPU, nobody else may get an
 * answer, and what is on the GPU waits for the one who watches.
 */
#include "client/gpu.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/back.h"
#include "client/clock.h"
#include "client/mem.h"

#define WATCH_MS	100u
#define BLAME_MS	7000u	/* a group's failure may be the echo of a rank's end, and the end
				 * of a job has two steps of 3 s (scheduler/sched_end.c); one that
				 * takes longer, because results still come, is not waited for */
#define DOZE_NS		20000
#define SETTLE_MS	10000u	/* who leaves has a step on its streams, which others may never
				 * begin */
#define PLUGIN		"libtally-cuda.so.0"

static_assert(GPU_PLUGIN_IDS == GPU_ID_WORDS, "the message carries what the plugin says");

/* ---- breaking ---- */

static void let_go(struct lt_gpu *g)
{
	list_for_each(&g->tensors, l) {
		struct lt_gpu_tensor *t = list_entry(l, struct lt_gpu_tensor, link);

		for (uint32_t r = 0; r < t->nruns; r++)
			atomic_store(&t->words[r], lt_gpu_count(t, r));
	}
}

static void break_it(struct lt_gpu *g, const struct err *why)
{
	pthread_mutex_lock(&g->lock);
	if (!g->broken) {
		g->err = *why;
		g->broken = true;
	}
	let_go(g);
	pthread_mutex_unlock(&g->lock);
	g->ops->give_up(g->dev);
}

void lt_gpu_doze(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = DOZE_NS }, NULL);
}

/* NCCL may know of a rank's end before the agent does.  Who it was, the thread hears. */
static void blame(const struct lt_gpu *g)
{
	mono_t deadline = lt_now() + mono_ms(BLAME_MS);

	while (!g->broken && lt_now() < deadline)
		lt_gpu_doze();
}

int lt_gpu_broken(tally_session *s, const struct err *why)
{
	blame(s->gpu);
	break_it(s->gpu, why);
	return lt_gpu_live(s);
}

int lt_gpu_live(tally_session *s)
{
	struct lt_gpu *g = s->gpu;

	if (!g || !g->broken)
		return 0;
	s->err = g->err;
	lt_conn_close(&s->conn);	/* so that the other ranks hear of it */
	return lt_session_over(s);
}

/* ---- watching ---- */

static bool all_there(const struct lt_gpu_tensor *t)
{
	for (uint32_t r = 0; r < t->nruns; r++)
		if (atomic_load(&t->words[r]) != lt_gpu_count(t, r))
			return false;
	return true;
}

static void status(tally_session *s, struct err *over, char *stall)
{
	pthread_mutex_lock(&s->sub_lock);
	ring_status_get(&s->ring, over ? &over->code : NULL, over ? over->text : NULL, stall);
	pthread_mutex_unlock(&s->sub_lock);
}

/* Of an agent that is gone the page has what it said last. */
static void why_late(tally_session *s, char stall[ERR_TEXT_MAX + 1])
{
	status(s, NULL, stall);
	if (pthread_mutex_trylock(&s->api))
		return;
	if (s->away)
		lt_back_text(s, stall, ERR_TEXT_MAX + 1);
	pthread_mutex_unlock(&s->api);
}

/* No ETIMEDOUT, with which a ticket stays valid: the streams are let go. */
static int check_time(tally_session *s, struct err *e)
{
	mono_t limit = lt_now() - mono_ms(s->who.round_timeout_ms);
	char stall[ERR_TEXT_MAX + 1];
	int rc = 0;

	why_late(s, stall);
	pthread_mutex_lock(&s->gpu->lock);
	list_for_each(&s->gpu->tensors, l) {
		const struct lt_gpu_tensor *t = list_entry(l, struct lt_gpu_tensor, link);

		if (rc || !t->round || t->since > limit || all_there(t))
			continue;
		rc = err_set(e, TALLY_EIO, "round %u of tensor %s: not done on its GPU after "
			     "%u ms%s%.300s", t->round, t->tensor->name,
			     s->who.round_timeout_ms, *stall ? "; " : "", stall);
	}
	pthread_mutex_unlock(&s->gpu->lock);
	return rc;
}

/* The rank is in a call, which looks after the agent, or waits for its GPU, and so for us. */
static int look_after_agent(tally_session *s, struct err *e)
{
	struct err last;

	if (pthread_mutex_trylock(&s->api))
		return 0;
	last = s->err;
	if (!s->over.code && (s->away || lt_conn_gone(&s->conn))) {
		(void)lt_back_look(s);
		lt_news_arm(s);
	}
	*e = s->over;
	s->err = last;
	pthread_mutex_unlock(&s->api);
	return e->code;
}

/* Something that ends the session; 0: nothing. */
static int look(tally_session *s, struct err *e)
{
	status(s, e, NULL);
	if (e->code) {
		status(s, e, NULL);	/* the code comes behind the text */
		return e->code = e->code < 0 ? e->code : TALLY_EPROTO;
	}
	if (look_after_agent(s, e))
		return e->code;
	if (!s->gpu->failed)
		return check_time(s, e);
	*e = s->gpu->failure;
	if (!s->gpu->failed_at)
		s->gpu->failed_at = lt_now();
	return lt_now() - s->gpu->failed_at < mono_ms(BLAME_MS) ? 0 : e->code;
}

static void *watch(void *arg)
{
	tally_session *s = arg;
	struct lt_gpu *g = s->gpu;
	struct pollfd stop = { .fd = g->stop_fd, .events = POLLIN };
	struct err e = { 0 };

	while (lt_poll(&stop, 1, lt_now() + mono_ms(WATCH_MS)) <= 0)
		if (g->broken || look(s, &e))
			break_it(g, &e);
	return NULL;
}

static void *ask(void *arg)
{
	struct lt_gpu *g = arg;
	struct pollfd stop = { .fd = g->stop_fd, .events = POLLIN };

	while (!g->failed && lt_poll(&stop, 1, lt_now() + mono_ms(WATCH_MS)) <= 0)
		g->failed = g->ops->failed(g->dev, &g->failure) != 0;
	return NULL;
}

/* ---- opening ---- */

static int load(tally_session *s, const char *path, const struct gpu_plugin **ops)
{
	const char *file = path ? path : PLUGIN;
	void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	gpu_plugin_fn *get = so ? (gpu_plugin_fn *)dlsym(so, GPU_PLUGIN_SYMBOL) : NULL;

	if (!get)
		return err_set(&s->err, TALLY_ENOENT, "no plugin for GPUs: %.300s", dlerror());
	*ops = get();
	if ((*ops)->version != GPU_PLUGIN_VERSION)
		return err_set(&s->err, TALLY_EVERSION, "%.200s is of version %u, libtally of %u",
			       file, (*ops)->version, GPU_PLUGIN_VERSION);
	return 0;
}

static void take_plan(tally_session *s, const struct msg_gpu_plan *m)
{
	struct lt_gpu *g = s->gpu;

	g->group = m->group;
	g->groups = m->groups;
	g->me = m->me;
	g->members = m->nmembers;
	g->nroots = m->nroots;
	g->scatter = m->scatter;
	g->in_place = m->groups == 1 && s->machines == 1;
	memcpy(g->roots, m->roots, m->nroots * sizeof(*g->roots));
	memcpy(g->weights, m->weights, m->nroots * sizeof(*g->weights));
}

static int join(tally_session *s, const char *name, bool exact)
{
	struct lt_gpu *g = s->gpu;
	uint64_t ids[GPU_ID_WORDS];
	struct msg answer, ask = { .type = MSG_GPU_JOIN };
	int rc = g->ops->new_id(g->dev, ids, &s->err);

	if (rc)
		return rc;
	ask.gpu_join = (struct msg_gpu_join){
		.req = lt_session_req(s), .gpu = name, .exact = exact,
		.timeout_ms = s->who.timeout_ms, .nids = GPU_ID_WORDS, .ids = ids,
	};
	rc = lt_session_call(s, &ask, ask.gpu_join.req, MSG_GPU_PLAN, s->who.timeout_ms, &answer);
	if (rc)
		return rc;
	take_plan(s, &answer.gpu_plan);
	if (g->members == 1)
		return 0;
	return g->ops->join(g->dev, answer.gpu_plan.ids, g->me, g->members, s->who.timeout_ms,
			    &s->err);
}

static int start_watch(tally_session *s)
{
	struct lt_gpu *g = s->gpu;

	g->stop_fd = eventfd(0, EFD_CLOEXEC);
	g->asked = g->stop_fd >= 0 && !pthread_create(&g->asker, NULL, ask, g);
	g->watched = g->asked && !pthread_create(&g->watcher, NULL, watch, s);
	return g->watched ? 0 : err_set(&s->err, TALLY_ENOMEM, "no descriptors or no threads for "
					"the GPU");
}

static int open_device(tally_session *s, const tally_gpu_options *opt)
{
	struct lt_gpu *g = s->gpu;
	char name[GPU_NAME_MAX + 1];
	int rc;

	rc = g->ops->open(opt ? opt->device : tally_local_rank(s), &g->dev, name, &s->err);
	if (!rc)
		rc = g->ops->event_new(g->dev, &g->step, &s->err);
	if (!rc)
		rc = g->ops->event_new(g->dev, &g->old_read, &s->err);
	/* who waits for the others sees no page either */
	if (!rc)
		rc = start_watch(s);
	if (!rc)
		rc = join(s, name, opt && opt->exact);
	if (rc == TALLY_EIO && g->watched)
		blame(g);
	if (!rc)
		rc = lt_gpu_pin(s);
	return (rc == TALLY_ESHUTDOWN || rc == TALLY_EIO) && g->broken ? lt_gpu_live(s) : rc;
}

int tally_gpu_open(tally_session *s, const tally_gpu_options *opt)
{
	LT_CALL(s);
	const struct gpu_plugin *ops = NULL;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	if (rc)
		return rc;
	if (s->gpu)
		return err_set(&s->err, TALLY_EEXIST, "this session has a GPU already");
	if (s->who.on_loss == TALLY_ON_LOSS_SHRINK)
		return err_set(&s->err, TALLY_EINVAL, "no GPU in a job with on_loss = shrink: a "
			       "group of GPUs does not go on without one of them");
	rc = load(s, opt ? opt->plugin : NULL, &ops);
	if (rc)
		return rc;
	s->gpu = lt_mem_new(1, sizeof(*s->gpu));
	if (!s->gpu)
		return err_set(&s->err, TALLY_ENOMEM, "no memory for a GPU");
	s->gpu->ops = ops;
	s->gpu->stop_fd = -1;
	list_init(&s->gpu->tensors);
	pthread_mutex_init(&s->gpu->lock, NULL);
	rc = open_device(s, opt);
	if (rc) {
		struct err why = s->err;

		(void)lt_gpu_close(s);
		s->err = why;
	}
	return rc;
}

/* ---- memory ---- */

static void old_free(tally_session *s)
{
	struct lt_gpu *g = s->gpu;

	while (g->old) {
		struct lt_gpu_old *old = g->old;

		g->old = old->next;
		lt_gpu_let(s);
		g->ops->unpin(g->dev, old->mem.base);
		lt_gpu_hold(s);
		slab_free(&old->mem);
		lt_mem_free(old);
	}
}

/*
 * Sets the pinned results aside for the work that is queued on the lanes; what is queued later
 * pins memory anew.
 */
static int make_old(tally_session *s)
{
	struct lt_gpu *g = s->gpu;
	struct err e;
	int rc;

	lt_gpu_let(s);
	rc = g->ops->record(g->dev, GPU_IN, g->old_read, &e);
	lt_gpu_hold(s);
	if (rc)
		s->err = e;
	while (g->pinned_results && !rc) {
		struct lt_gpu_old *old = lt_mem_new(1, sizeof(*old));

		if (!old)
			return err_set(&s->err, TALLY_ENOMEM, "no memory for results of a GPU");
		old->mem = g->result[--g->pinned_results];
		old->next = g->old;
		g->old = old;
	}
	g->moved = rc != 0;
	return rc;
}

static int pin(tally_session *s, const struct slab *m, bool read_only)
{
	struct err e;
	int rc;

	lt_gpu_let(s);
	rc = s->gpu->ops->pin(s->gpu->dev, m->base, m->bytes, read_only, &e);
	lt_gpu_hold(s);
	if (rc)
		s->err = e;
	return rc;
}

/* A mapping of its own, which stays what it is when the agent has other memory. */
static int pin_result(tally_session *s, const struct slab *from, struct slab *to)
{
	int fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0), rc;

	rc = slab_map(to, fd, from->bytes, false, &s->err);
	if (rc) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	rc = pin(s, to, true);
	if (rc)
		slab_free(to);
	return rc;
}

/* A device's memory has no pages to pin, and no run is copied there. */
static int pin_arena(tally_session *s, const struct slab *m)
{
	return m->device ? 0 : pin(s, m, false);
}

/* As far as the agent is there, and the one whose results these are. */
static int pin_new(tally_session *s)
{
	struct lt_gpu *g = s->gpu;
	int rc = 0;

	for (; g->pinned_arena < s->arena.nslabs && !rc; g->pinned_arena += !rc)
		rc = pin_arena(s, &s->arena.slabs[g->pinned_arena].mem);
	while (g->pinned_results < s->nresults && !rc && !g->by_arena && !g->in_place &&
	       !s->away && !g->moved) {
		uint32_t i = g->pinned_results;

		g->by_arena = pin_result(s, &s->results[i].mem, &g->result[i]) != 0;
		g->pinned_results += !g->by_arena;
	}
	return rc;
}

/* Unpinning may wait for all that is on the lanes, and so for rounds that others begin late. */
static bool is_idle(tally_session *s)
{
	struct lt_gpu *g = s->gpu;
	struct err e;
	int rc = lt_gpu_done(s, g->old_read, &e);

	list_for_each(&g->tensors, l) {
		const struct lt_gpu_tensor *t = list_entry(l, struct lt_gpu_tensor, link);

		if (!rc && t->round)
			rc = lt_gpu_done(s, t->landed, &e);
	}
	return !rc;
}

/* The agent may go meanwhile, and come back. */
int lt_gpu_pin(tally_session *s)
{
	struct lt_gpu *g = s->gpu;
	int rc;

	do {
		rc = g->moved ? make_old(s) : 0;
		if (g->old && is_idle(s))
			old_free(s);
		rc = rc ? rc : pin_new(s);
	} while (!rc && g->moved);
	return rc;
}

const struct slab *lt_gpu_memory(const tally_session *s, uint32_t i)
{
	const struct lt_gpu *g = s->gpu;
	const struct lt_gpu_old *old;

	if (!g || i < g->pinned_results)
		return g ? &g->result[i] : NULL;
	i -= g->pinned_results;
	for (old = g->old; old && i; i--)
		old = old->next;
	return old ? &old->mem : NULL;
}

uint32_t lt_gpu_reads(const tally_session *s, const struct tally_tensor *t)
{
	const struct slab *mem;

	if (!t->gpu || !t->gpu->flying || !t->gpu->reads)
		return 0;
	for (uint32_t i = 0; (mem = lt_gpu_memory(s, i)); i++)
		if ((uintptr_t)t->gpu->reads - (uintptr_t)mem->base < mem->bytes)
			return i + 1;
	return 0;
}

/* ---- closing ---- */

static void stop_watch(struct lt_gpu *g)
{
	if (g->stop_fd >= 0)
		(void)eventfd_write(g->stop_fd, 1);
	if (g->watched)
		pthread_join(g->watcher, NULL);
	if (g->asked)
		pthread_join(g->asker, NULL);
	if (g->stop_fd >= 0)
		close(g->stop_fd);
}

/* Its stream's results are in their places; what is not by the deadline is void. */
static int settle(tally_session *s, const struct lt_gpu_tensor *t, mono_t deadline)
{
	uint32_t round = t->round;
	int rc = lt_gpu_settle(s, t->tensor, deadline);

	rc = rc ? rc : lt_gpu_landed(s, t->tensor, deadline);
	if (rc == TALLY_ETIMEDOUT && !s->over.code)
		err_set(&s->err, rc, "the session was left before round %u of tensor %s was done, "
			"which a stream waits for", round, t->tensor->name);
	return rc;
}

/* Rounds that a stream waits for come to their end, if that is soon; others are given up. */
static int settle_all(tally_session *s)
{
	struct lt_gpu *g = s->gpu;
	struct err why = { .code = TALLY_ESHUTDOWN, .text = "detached with a round in flight" };
	mono_t deadline = lt_now() + mono_ms(MIN(s->who.timeout_ms, SETTLE_MS));
	bool given_up = g->broken;
	int rc = 0;

	list_for_each(&g->tensors, l) {
		const struct lt_gpu_tensor *t = list_entry(l, struct lt_gpu_tensor, link);

		given_up |= t->flying && !t->let_go;
		if (!rc && !given_up)
			rc = settle(s, t, deadline);
	}
	if (rc || given_up)
		break_it(g, &why);
	return rc;
}

static void unpin_all(tally_session *s)
{
	struct lt_gpu *g = s->gpu;

	while (g->pinned_arena) {
		const struct slab *m = &s->arena.slabs[--g->pinned_arena].mem;

		if (!m->device)
			g->ops->unpin(g->dev, m->base);
	}
	while (g->pinned_results) {
		struct slab *m = &g->result[--g->pinned_results];

		g->ops->unpin(g->dev, m->base);
		slab_free(m);
	}
	old_free(s);
}

int lt_gpu_close(tally_session *s)
{
	struct lt_gpu *g = s->gpu;
	int rc;

	if (!g)
		return 0;
	rc = g->dev ? settle_all(s) : 0;
	stop_watch(g);
	if (g->dev)
		g->ops->drain(g->dev);
	while (!list_empty(&g->tensors))
		lt_gpu_tensor_free(s, list_first(&g->tensors, struct lt_gpu_tensor, link)->tensor);
	unpin_all(s);
	if (g->step)
		g->ops->event_free(g->dev, g->step);
	if (g->old_read)
		g->ops->event_free(g->dev, g->old_read);
	if (g->dev)
		g->ops->close(g->dev);
	pthread_mutex_destroy(&g->lock);
	s->gpu = NULL;
	lt_mem_free(g);
	return rc;
}
