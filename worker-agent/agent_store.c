// SPDX-License-Identifier: Apache-2.0
/*
 * The service manager's descriptor store: what processes have of this agent (arenas, results,
 * rings) is there, too, under "JOB.NUMBER", and the agent that is started next gets it.
 *
 * So it knows by itself what was this agent's.  A process that hands back such memory is believed
 * however much others of its user hand back, which is all that the store adds: without one
 * (a program that starts the agent, a store that is full) the processes' own descriptors do.
 *
 * A piece goes out of the store with the memory, and what nobody came back for when the others
 * have, or when nobody can come any more.  One that ends with the agent stays.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rt/log.h"
#include "common/rt/notify.h"
#include "worker-agent/agent.h"

#define NAME_BYTES	32u
#define LATE_MS		10000u	/* after its grace: processes wait for an agent for so long */
#define START_MS	500u	/* that the manager may take to answer, where all wait for it */
#define ANSWER_MS	5000u	/* elsewhere */
#define ALIVE_MS	5000u	/* a process that is seen to live each second is */

/* Of the agent before, and nobody has come for it. */
struct ad_kept_fd {
	struct list link;		/* in agent->kept */
	struct agent *agent;
	uint64_t key;
	uint64_t session;		/* that hands it back; 0: none does */
	mono_t alive;			/* its job had a process that lives, and was not back */
	int fd;				/* owned */
	dev_t dev;
	ino_t ino;
};

static uint64_t key_of(uint32_t job, uint32_t number)
{
	return (uint64_t)job << 32 | number;
}

static uint32_t job_of(uint64_t key)
{
	return (uint32_t)(key >> 32);
}

static void store_name(char name[NAME_BYTES], uint64_t key)
{
	snprintf(name, NAME_BYTES, "%u.%u", job_of(key), (uint32_t)key);
}

static void take(void *ctx, const char *name, int fd)
{
	struct agent *a = ctx;
	struct ad_kept_fd *k = calloc(1, sizeof(*k));
	uint32_t job, number;
	struct stat st;
	char more;

	if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) || !k ||
	    sscanf(name, "%u.%u%c", &job, &number, &more) != 2 || !number) {
		(void)notify_forget(name, 0);
		close(fd);
		free(k);
		return;
	}
	k->agent = a;
	k->key = key_of(job, number);
	k->fd = fd;
	k->dev = st.st_dev;
	k->ino = st.st_ino;
	list_add(&a->kept, &k->link);
	a->stored = MAX(a->stored, number);
}

void ad_store_start(struct agent *a)
{
	uint32_t n = 0;

	list_init(&a->kept);
	a->storing = notify_barrier(START_MS);
	if (!a->storing && notify_is_wanted())
		log_warn("the service manager does not answer: it is given no memory to keep");
	notify_kept(take, a);
	list_for_each(&a->kept, l)
		n++;
	if (n)
		log_info("the service manager has kept %u pieces of memory of the agent before", n);
}

static struct ad_kept_fd *find(const struct agent *a, int fd)
{
	struct stat st;

	if (list_empty(&a->kept) || fd < 0 || fstat(fd, &st))
		return NULL;
	list_for_each(&a->kept, l) {
		struct ad_kept_fd *k = list_entry(l, struct ad_kept_fd, link);

		if (k->ino == st.st_ino && k->dev == st.st_dev)
			return k;
	}
	return NULL;
}

bool ad_store_claim(struct agent *a, int fd, uint64_t session)
{
	struct ad_kept_fd *k = find(a, fd);

	if (!k || k->session)
		return false;
	k->session = session;
	return true;
}

void ad_store_unclaim(struct agent *a, uint64_t session)
{
	list_for_each(&a->kept, l) {
		struct ad_kept_fd *k = list_entry(l, struct ad_kept_fd, link);

		if (k->session == session)
			k->session = 0;
	}
}

static void kept_free(struct ad_kept_fd *k)
{
	if (k->fd >= 0)
		close(k->fd);
	free(k);
}

uint64_t ad_store_put(struct agent *a, uint32_t job, int fd)
{
	struct ad_kept_fd *k = find(a, fd);
	char name[NAME_BYTES];
	uint64_t key;

	if (k) {
		key = k->key;
		list_del(&k->link);
		kept_free(k);
		return key;
	}
	if (!a->storing)
		return 0;
	key = key_of(job, ++a->stored);
	store_name(name, key);
	notify_keep(fd, name);
	return key;
}

/* One that does not answer any more is given nothing else, and nobody waits for it again. */
static void forget(struct agent *a, uint64_t key, uint32_t wait_ms)
{
	char name[NAME_BYTES];
	bool told;

	store_name(name, key);
	told = notify_forget(name, a->storing ? wait_ms : 0);
	if (wait_ms && a->storing && !(told && notify_barrier(wait_ms))) {
		a->storing = false;
		log_warn("the service manager does not answer: it is given no more memory to keep");
	}
}

void ad_store_forget(struct agent *a, uint64_t key, bool may_wait)
{
	if (key)
		forget(a, key, may_wait ? ANSWER_MS : 0);
}

/* Its pages may go with it. */
static void give_up(void *ctx)
{
	struct ad_kept_fd *k = ctx;

	forget(k->agent, k->key, ANSWER_MS);
	kept_free(k);
}

void ad_store_drop(struct agent *a, uint64_t key)
{
	struct ad_kept_fd *k = key && !a->stopping ? calloc(1, sizeof(*k)) : NULL;

	if (!k)
		return;
	*k = (struct ad_kept_fd){ .agent = a, .key = key, .fd = -1 };
	if (!loop_work(a->loop, give_up, k))
		return;
	forget(a, key, 0);
	free(k);
}

void ad_store_alive(struct agent *a, uint32_t job, mono_t now)
{
	list_for_each(&a->kept, l) {
		struct ad_kept_fd *k = list_entry(l, struct ad_kept_fd, link);

		if (job_of(k->key) == job)
			k->alive = now;
	}
}

/* Whether a process can still come for it.  Who is alive is seen while the scheduler is there. */
static bool is_awaited(struct agent *a, const struct ad_kept_fd *k, mono_t now)
{
	if (a->node && !ctl_node_is_up(a->node))
		return true;
	if (ad_back_waits(a, job_of(k->key)) || now - k->alive < mono_ms(ALIVE_MS))
		return true;
	return !ad_job_find(a, job_of(k->key)) &&
	       (!a->registrations || now - a->registered < mono_ms(a->grace_ms + LATE_MS));
}

void ad_store_tick(struct agent *a, mono_t now)
{
	list_for_each_safe(&a->kept, l, next) {
		struct ad_kept_fd *k = list_entry(l, struct ad_kept_fd, link);

		if (is_awaited(a, k, now))
			continue;
		list_del(&k->link);
		if (loop_work(a->loop, give_up, k)) {	/* no memory: it may be there next time */
			list_add(&a->kept, &k->link);
			return;
		}
	}
}

void ad_store_free(struct agent *a)
{
	while (!list_empty(&a->kept)) {
		struct ad_kept_fd *k = list_first(&a->kept, struct ad_kept_fd, link);

		list_del(&k->link);
		kept_free(k);
	}
}
