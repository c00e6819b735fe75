// SPDX-License-Identifier: Apache-2.0
/*
 * storm_jobs.c - a server's jobs and their logs on its control thread, with real engines, and a
 * scheduler that says anything: jobs that it has already, entries out of order, tensors and
 * epochs that cannot be, lists of servers without this one.
 *
 * Engines are let finish after each message, so that a run repeats from its seed.  The server is
 * started once for all runs; at the end of each all its jobs end, and all memory is back.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "server/server.h"
#include "tests/storm/storm.h"

#define NODE		3u
#define ENGINES		2u
#define STEPS		60u
#define MEMORY_BYTES	(64u << 20)
#define DEADLINE_S	60

struct world {
	struct server s;
	sem_t bell;
	uint32_t job;			/* numbers given out */
	uint64_t epoch;
	uint32_t id;
};

static void ring(void *ctx)
{
	sem_post(ctx);
}

static void open_world(struct world *w)
{
	struct server *s = &w->s;
	struct err e;

	s->name = "s";
	s->my_node = NODE;
	s->nengines = ENGINES;
	s->memory_bytes = MEMORY_BYTES;
	s->opt.daemon.frames_per_write = FRAMES_PER_WRITE_MAX;
	list_init(&s->jobs);
	list_init(&s->agents);
	list_init(&s->greetings);
	ASSERT(!sem_init(&w->bell, 0, 0) && !mailbox_new(&s->mail, ring, &w->bell, &e));
	for (uint32_t i = 0; i < ENGINES; i++)
		ASSERT(!sv_engine_start(s, i, -1, &e));
}

static void take(struct world *w, const struct mail *m)
{
	void *p;

	memcpy(&p, m->body, sizeof(p));
	if (m->type == SV_JOB_READY)
		((struct sv_job *)p)->starting--;
	else if (m->type == SV_BATCH_READY && --((struct sv_batch *)p)->engines_left == 0)
		sv_batch_free(&w->s, p);
	else if (m->type == SV_JOB_FREE && --((struct sv_job *)p)->engines_left == 0)
		sv_job_free(&w->s, p);
}

static bool busy(struct world *w)
{
	list_for_each(&w->s.jobs, l) {
		const struct sv_job *j = list_entry(l, struct sv_job, link);

		if (j->starting || j->stopping || !list_empty(&j->batches))
			return true;
	}
	return false;
}

static void settle(struct world *w)
{
	struct timespec ts;
	struct mail m;

	while (busy(w)) {
		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec += DEADLINE_S;
		ASSERT(!sem_timedwait(&w->bell, &ts));
		while (mailbox_take(w->s.mail, &m))
			take(w, &m);
	}
}

/* As server_io.c does, but for what the scheduler hears. */
static void hear(struct world *w, const struct msg *m)
{
	struct err e;

	switch (m->type) {
	case MSG_JOB_UP:
		sv_job_up(&w->s, &m->job_up, &e);
		break;
	case MSG_TENSORS:
		sv_tensors(&w->s, &m->tensors, &e);
		break;
	case MSG_FORGET:
		if (sv_forget(&w->s, &m->ids, &e))
			sv_job_down(&w->s, m->ids.job);
		break;
	case MSG_EPOCH:
		if (sv_epoch(&w->s, &m->epoch, &e) == TALLY_EBUSY)
			sv_job_down(&w->s, m->epoch.job);	/* else it only says so */
		break;
	case MSG_EPOCH_READY:
		sv_epoch_settled(&w->s, &m->ready);
		break;
	case MSG_JOB_DOWN:
		sv_job_down(&w->s, m->job_down.job);
		break;
	case MSG_AGENT_KEYS:
		sv_agents_keys(&w->s, &m->agent_keys);
		break;
	default:
		break;
	}
}

static void say(struct storm *st, struct world *w, const struct msg *m)
{
	uint32_t bytes;

	if (msg_encode_size(m, &bytes, NULL))
		return;
	if (st->trace) {
		printf("%s job %u\n", msg_type_name(m->type), m->job_down.job);
		fflush(stdout);
	}
	st->messages++;
	storm_see(st, 0, m);
	hear(w, m);
	settle(w);
}

/* ---- what a scheduler says, or nearly ---- */

static const struct msg_server servers[] = {
	{ .node = NODE, .name = "s", .machine = "s", .shm_path = "", .engines = ENGINES,
	  .weight = 1u << 31 },
	{ .node = NODE + 1, .name = "t", .machine = "t", .shm_path = "", .engines = 1,
	  .weight = 1u << 31 },
};

static void job_up(struct storm *st, struct world *w)
{
	static const uint32_t ranks[] = { 0, 1, 2 };
	const struct msg_machine machines[] = {
		{ .node = 1, .name = "a", .machine = "a", .nranks = 1, .ranks = &ranks[0] },
		{ .node = 2, .name = "b", .machine = "b", .nranks = 2, .ranks = &ranks[1] },
	};
	const struct msg m = { .type = MSG_JOB_UP, .job_up = {
		.job = ++w->job, .name = "x", .world = 3, .epoch = ++w->epoch,
		.algorithm = PLACE_ALGORITHM, .chunk_bytes = CHUNK_BYTES_MIN,
		.seg_bytes = SEG_BYTES_MIN, .window_bytes = WINDOW_BYTES_MIN,
		.nmachines = 2, .machines = machines, .nservers = 1 + storm_below(st, 2),
		.servers = servers,
	} };

	say(st, w, &m);
	st->good += sv_job_find(&w->s, w->job) != NULL;
}

static void tensors(struct storm *st, struct world *w, const struct sv_job *j)
{
	const struct msg_tensor t[] = {
		{ .id = ++w->id, .name = "t", .dtype = DTYPE_F32, .count = storm_below(st, 90000) },
		{ .id = ++w->id, .name = "u", .dtype = DTYPE_F32, .count = storm_below(st, 9) },
	};
	const struct msg m = { .type = MSG_TENSORS, .tensors = {
		.job = j->id, .seq = j->seq + 1, .ntensors = 1 + storm_below(st, 2), .tensors = t,
	} };

	say(st, w, &m);
}

static void epoch(struct storm *st, struct world *w, const struct sv_job *j)
{
	static const uint32_t gone[] = { 0, 1 };
	struct msg m = { .type = MSG_EPOCH, .epoch = {
		.job = j->id, .seq = j->seq + 1, .epoch = ++w->epoch, .nservers = 2,
		.servers = servers, .repair = storm_below(st, 2),
		.ngone = storm_one_in(st, 4) ? storm_below(st, 3) : 0, .gone = gone,
	} };
	const struct msg settled = { .type = MSG_EPOCH_READY, .ready = {
		.job = j->id, .seq = w->epoch, .text = "",
	} };

	say(st, w, &m);
	if (storm_one_in(st, 2))
		say(st, w, &settled);
}

static void forget(struct storm *st, struct world *w, const struct sv_job *j)
{
	const uint32_t ids[] = { w->id - storm_below(st, 3), w->id + 1 };
	const struct msg m = { .type = MSG_FORGET, .ids = {
		.job = j->id, .seq = j->seq + 1, .nids = 1 + storm_one_in(st, 8), .ids = ids,
	} };

	say(st, w, &m);
}

static void anything(struct storm *st, struct world *w)
{
	static const uint32_t types[] = {
		MSG_JOB_UP, MSG_TENSORS, MSG_FORGET, MSG_EPOCH, MSG_EPOCH_READY, MSG_JOB_DOWN,
		MSG_AGENT_KEYS,
	};
	struct msg m;

	if (storm_one_in(st, 2) ? storm_echo(st, &m)
				: storm_make(st, types[storm_below(st, ARRAY_SIZE(types))], &m))
		say(st, w, &m);
}

static void turn(struct storm *st, struct world *w)
{
	const struct sv_job *j = sv_job_find(&w->s, w->job);
	uint32_t what = storm_below(st, 16);

	if (!j || what == 0)
		job_up(st, w);
	else if (what < 4)
		tensors(st, w, j);
	else if (what < 6)
		epoch(st, w, j);
	else if (what < 7)
		forget(st, w, j);
	else
		anything(st, w);
	storm_reset(st);
}

void storm_jobs(struct storm *st)
{
	static struct world *w;

	if (!w) {
		w = calloc(1, sizeof(*w));
		ASSERT(w);
		open_world(w);
	}
	w->job = w->id = 0;
	w->epoch = 0;
	for (uint32_t i = 0; i < STEPS && !st->over; i++)
		turn(st, w);
	while (!list_empty(&w->s.jobs)) {
		sv_job_down(&w->s, list_first(&w->s.jobs, struct sv_job, link)->id);
		settle(w);
	}
	ASSERT(!w->s.memory_used);
}
