// SPDX-License-Identifier: Apache-2.0
/*
 * One data thread of an agent: mail in, frames in and out, sums in between.
 *
 * Engine 0 also listens to the processes' rings (agent_rings.c); the others get
 * their posts by mail and answer when a tensor's round is done in their shard.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/kern/kern.h"
#include "common/net/flight.h"
#include "common/rt/log.h"
#include "worker-agent/agent.h"
#include "worker-agent/agent_net.h"

#define WORK_BUDGET	(4u << 20)	/* bytes summed before looking at the links again */
#define TICK_MS		10u
#define STALL_MS	500u

static void wait_a_moment(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

void ad_engine_tell(struct ad_engine *en, enum ad_mail type, const void *body, size_t len)
{
	while (engine_post(en->thread, ENGINE_CONTROL, type, body, len))
		wait_a_moment();
}

void ad_tell_control(struct ad_engine *en, enum ad_mail type, const void *body, size_t len)
{
	outbox_post(&en->out, type, body, len);
}

/*
 * Reports trouble to the control thread. It is reported once, but for a stall, so this waits for
 * memory, as the outbox does.
 */
void ad_trouble(struct ad_engine *en, enum ad_mail type, const struct ad_trouble *t)
{
	struct ad_trouble *copy = malloc(sizeof(*copy));

	for (; !copy && type != AD_STALLED; copy = malloc(sizeof(*copy)))
		wait_a_moment();
	if (!copy)
		return;
	*copy = *t;
	ad_tell_control(en, type, &copy, sizeof(copy));
}

/* ---- jobs and tensors ---- */

static void job_start(struct ad_engine *en, struct ad_job *j)
{
	struct ag_job_desc d = {
		.id = j->id,
		.n = j->n,
		.me = j->me,
		.nlocal = j->nlocal,
		.world = j->world,
		.user = j->user,
		.epoch = (uint32_t)j->first->epoch,
		.chunk_bytes = j->chunk_bytes,
		.seg_bytes = j->seg_bytes,
		.nroutes = j->first->nroutes,
		.route = j->first->route[en->index],
	};

	ad_epoch_begin(en, j);
	j->core[en->index] = ag_job_start(&en->core, &j->piece[en->index], &d);
	j->core[en->index]->user = j;
	en->flight_limit = ad_card_flight(en->agent);
	en->core.links.credit = flight_credit(en->flight_limit);
	if (en->index == 0)
		fr_job_start(&en->front, &j->front);
	if (j->ngone && en->index == 0)
		fr_job_shrink(&j->front, j->live);
	if (j->ngone)
		ag_job_shrink(j->core[en->index], j->live, j->world - j->ngone);
}

static void job_stop(struct ad_engine *en, struct ad_job *j)
{
	if (en->index == 0) {
		ad_rings_job_over(en, j);
		fr_job_stop(&en->front, &j->front);
	}
	ag_job_stop(&en->core, j->core[en->index]);
	ad_links_hide(en, j->id);
	list_add(&en->stopping, &j->stop_link[en->index]);
	ad_tell_control(en, AD_JOB_STOPPED, &j, sizeof(j));
}

/* The front's is engine 0's whether it has a chunk of it or not. */
static void add_tensor(struct ad_engine *en, struct ad_job *j, struct ad_tensor *t)
{
	if (en->index == 0)
		fr_tensor_add(&en->front, &j->front, t->front);
	if (!t->piece[en->index])
		return;
	t->core[en->index] = ag_tensor_add_shard(&en->core, j->core[en->index],
						 t->piece[en->index], &t->desc, en->index,
						 j->engines);
	t->core[en->index]->user = t;
}

static void remove_tensor(struct ad_engine *en, struct ad_tensor *t)
{
	if (en->index == 0)
		fr_tensor_remove(&en->front, t->front);
	if (t->core[en->index])
		ag_tensor_remove(&en->core, t->core[en->index]);
}

static void batch(struct ad_engine *en, struct ad_batch *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->forget)
			remove_tensor(en, b->tensor[i]);
		else
			add_tensor(en, b->job, b->tensor[i]);
	}
	if (b->forget)
		list_add(&en->forgetting, &b->link[en->index]);
	else
		ad_tell_control(en, AD_BATCH_READY, &b, sizeof(b));
}

/* ---- letting go ---- */

static bool batch_borrowed(const struct ad_batch *b, uint32_t index)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->tensor[i]->core[index] && b->tensor[i]->core[index]->borrowed)
			return true;
	return false;
}

static void drop_shown(struct ad_engine *en, uint32_t job)
{
	for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++)
		if (en->shown[id].fd >= 0 && en->shown[id].job == job)
			ad_links_forget(en, &en->shown[id]);
}

static void job_gone(struct ad_engine *en, struct ad_job *j)
{
	struct ag_job *c = j->core[en->index];

	list_for_each_safe(&c->tensors, l, next)
		ag_tensor_forget(&en->core, list_entry(l, struct ag_tensor, link));
	ag_job_forget(&en->core, c);
	ad_epoch_end(en, j);
	drop_shown(en, j->id);
	ad_tell_control(en, AD_JOB_FREE, &j, sizeof(j));
}

static void let_go(struct ad_engine *en)
{
	list_for_each_safe(&en->forgetting, l, next) {
		struct ad_batch *b = container_of(l - en->index, struct ad_batch, link);

		if (batch_borrowed(b, en->index))
			continue;
		list_del(l);
		for (uint32_t i = 0; i < b->n; i++)
			if (b->tensor[i]->core[en->index])
				ag_tensor_forget(&en->core, b->tensor[i]->core[en->index]);
		ad_tell_control(en, AD_BATCH_READY, &b, sizeof(b));
	}
	list_for_each_safe(&en->stopping, l, next) {
		struct ad_job *j = container_of(l - en->index, struct ad_job, stop_link);

		if (j->core[en->index]->borrowed || ad_links_shown(en, j->id))
			continue;
		list_del(l);
		job_gone(en, j);
	}
}

/* ---- mail ---- */

/* Here and not at the start: the group is this thread's from its first breath. */
static void open_group(struct ad_engine *en)
{
	struct err e;

	if (xport_group_new(&en->group, engine_epfd(en->thread), &ad_link_callbacks, en, &e)) {
		log_error("agent engine %u cannot start: %s", en->index, e.text);
		exit(1);
	}
	xport_set_frames_per_write(en->group, (uint32_t)en->agent->opt.daemon.frames_per_write);
}

static void post(struct ad_engine *en, const struct ad_post_mail *p, mono_t now)
{
	struct ag_tensor *t = ag_tensor_find(&en->core, p->job, p->tensor);

	if (t && !t->removed)
		ag_post(&en->core, t, &p->post, now);
}

static void hide(struct ad_engine *en, const struct ad_shown *s)
{
	en->shown[s->id].hiding = true;
	en->nhiding++;
}

static void on_data_mail(struct ad_engine *en, const struct mail *m)
{
	union {
		struct ad_post_mail post;
		struct ad_done_mail done;
		struct ad_waits_mail waits;
		struct ad_settled_mail settled;
		struct ad_shown shown;
		struct ad_slab_mail slab;
	} u;

	memcpy(&u, m->body, sizeof(u));
	if (m->type == AD_POST)
		post(en, &u.post, loop_now());
	else if (m->type == AD_DONE)
		ad_rings_done(en, &u.done);
	else if (m->type == AD_WAITS)
		ad_rings_waits(en, &u.waits);
	else if (m->type == AD_FROZEN || m->type == AD_THAW)
		ad_shrink_mail(en, m->type, &u.settled);
	else if (m->type == AD_SHOW)
		ad_links_show(en, &u.shown);
	else if (m->type == AD_HIDE)
		hide(en, &u.shown);
	else
		ad_rings_slab(en, &u.slab);
}

static void on_mail(void *ctx, const struct mail *m, bool stopping)
{
	struct ad_engine *en = ctx;
	void *p;

	memcpy(&p, m->body, sizeof(p));
	if (m->type == AD_NET && (stopping || en->quiet))
		free(p);
	if (stopping || en->quiet)
		return;			/* the control thread frees all there is */
	switch (m->type) {
	case AD_OPEN:
		open_group(en);
		break;
	case AD_QUIET:
		ad_rings_publish(en);	/* no turn follows */
		en->quiet = true;
		break;
	case AD_JOB_START:
		job_start(en, p);
		ad_tell_control(en, AD_JOB_READY, &p, sizeof(p));
		break;
	case AD_JOB_STOP:
		job_stop(en, p);
		break;
	case AD_BATCH:
		batch(en, p);
		break;
	case AD_EPOCH:
		if (((struct ad_epoch *)p)->anew)
			ad_shrink_freeze(en, p);
		else
			ad_epoch_adopt(en, p);
		break;
	case AD_NET:
		ad_net_view(en, p);
		break;
	case AD_RING_ADD:
		ad_rings_add(en, p);
		break;
	case AD_RING_DEL:
		ad_rings_del(en, p);
		break;
	default:
		on_data_mail(en, m);
	}
}

/* ---- rounds that end, jobs that fail, rounds that wait ---- */

static void take_done(struct ad_engine *en)
{
	struct ag_tensor *t;

	while ((t = ag_done(&en->core))) {
		struct ad_done_mail d = { t->job->id, t->id, t->round, t->times };

		if (en->index == 0) {
			ad_rings_done(en, &d);
		} else if (engine_post(en->agent->engine[0]->thread, en->index, AD_DONE, &d,
				       sizeof(d))) {
			ag_undone(&en->core, t);	/* engine 0 is busy: next turn */
			return;
		}
	}
}

static void check_failures(struct ad_engine *en)
{
	struct err e;

	list_for_each(&en->core.jobs, l) {
		struct ag_job *j = list_entry(l, struct ag_job, link);
		const struct ag_tensor *t;

		if (!j->fail_code || j->stopped || j->fail_told)
			continue;
		j->fail_told = true;
		t = ag_tensor_find(&en->core, j->id, j->fail_tensor);
		ad_mismatch(j, t ? ((const struct ad_tensor *)t->user)->name : "?", &e);
		ad_trouble(en, AD_JOB_FAILED, &(struct ad_trouble){ .job = j->id, .err = e });
	}
}

/* The oldest round of those that wait for the same as this one, among n. */
static uint32_t place_of(const struct msg_wait *w, struct msg_wait *row, uint32_t n)
{
	uint32_t k = 0;

	while (k < n && (row[k].kind != w->kind || row[k].who != w->who))
		k++;
	if (k < STALLS_SHOWN && (k == n || w->age_ms > row[k].age_ms))
		row[k] = *w;
	return MAX(n, MIN(k + 1, STALLS_SHOWN));
}

bool ad_any_open(const struct ad_engine *en, mono_t now, uint32_t ms)
{
	return en->agent->oldest <= now - mono_ms(ms);
}

/* For whom does every job's oldest round wait, and are there rounds that wait for others? */
static void tell_waits(struct ad_engine *en, mono_t now)
{
	if (!ad_any_open(en, now, STALL_MS))
		return;
	list_for_each(&en->core.jobs, lj) {
		struct ag_job *j = list_entry(lj, struct ag_job, link);
		struct msg_wait w, row[STALLS_SHOWN];
		uint32_t n = 0;

		list_for_each(&j->tensors, l) {
			const struct ag_tensor *t = list_entry(l, struct ag_tensor, link);

			if (t->running && now - t->since > mono_ms(STALL_MS) &&
			    ag_waits_for(t, now, &w, 1))
				n = place_of(&w, row, n);
		}
		for (uint32_t k = 0; k < n; k++) {
			struct ad_waits_mail m = { .job = j->id, .wait = row[k] };

			if (en->index == 0)
				ad_rings_waits(en, &m);
			else
				(void)engine_post(en->agent->engine[0]->thread, en->index,
						  AD_WAITS, &m, sizeof(m));
		}
	}
}

/* ---- the thread ---- */

static void on_event(void *ctx, void *data_ptr, uint32_t events)
{
	struct ad_engine *en = ctx;

	en->now = loop_now();
	if (en->quiet || xport_event(en->group, data_ptr, events))
		return;
	if (en->index == 0 && ad_is_ring(en, data_ptr))
		ad_rings_event(en, data_ptr);
}

static void publish(struct ad_engine *en)
{
	const struct ag_counters *c = &en->core.count;
	const struct xport_written w = xport_written(en->group);

	en->stats.bytes_sent = en->bytes_sent;
	en->stats.bytes_received = en->bytes_received;
	en->stats.bytes_summed = c->bytes_added;
	en->stats.rounds = en->front.rounds;
	en->stats.frames = w.frames;
	en->stats.writes = w.calls;
	en->stats.drops = c->drop_job + c->drop_round + c->drop_shape + c->drop_state +
			  c->duplicates;
}

/* Nothing is open, taken back or in trouble: nothing changes until something comes. */
static bool at_rest(const struct ad_engine *en)
{
	return ag_at_rest(&en->core) && !en->nhiding && !ad_links_troubled(en) &&
	       (en->index || list_empty(&en->front.running));
}

static void slow_things(struct ad_engine *en, mono_t now)
{
	if (now >= en->next_tick) {
		if (en->index == 0)
			en->agent->oldest = fr_oldest(&en->front);
		ag_tick(&en->core, now);
		en->next_tick = now + mono_ms(TICK_MS);
	}
	if (now >= en->next_stall) {
		tell_waits(en, now);
		ad_links_count(en);
		ad_links_take_back(en);
		if (en->index == 0)
			ad_rings_stalls(en, now);
		en->next_stall = now + mono_ms(STALL_MS);
	}
	if (now >= en->next_stuck) {
		ad_stuck_look(en, now);
		en->next_stuck = now + mono_ms(STUCK_MS);
	}
}

/*
 * When slow_things() are due.  At rest they look once more, later than now, and not again before
 * something comes: an idle engine sleeps.  What this turn has changed since they looked is counted
 * before that.
 */
static mono_t slow_due(struct ad_engine *en, mono_t now)
{
	mono_t due = MONO_NEVER;

	if (list_empty(&en->core.jobs))
		return MONO_NEVER;
	if (!at_rest(en))
		return MIN(en->next_tick, MIN(en->next_stall, en->next_stuck));
	if (en->index == 0)
		en->agent->oldest = MONO_NEVER;
	if (en->next_stall != now + mono_ms(STALL_MS))
		due = en->next_stall;
	if (en->next_stuck != now + mono_ms(STUCK_MS))
		due = MIN(due, en->next_stuck);
	if (due == MONO_NEVER)
		ad_links_count(en);
	return due;
}

static mono_t on_turn(void *ctx, mono_t now)
{
	struct ad_engine *en = ctx;
	mono_t next;
	bool more;

	if (!en->group || en->quiet)
		return MONO_NEVER;
	en->now = now;
	more = en->index == 0 && ad_rings_turn(en, now);
	slow_things(en, now);
	more |= ag_work(&en->core, WORK_BUDGET);
	ad_links_turn(en, now);
	xport_poll(en->group, now);
	ad_links_turn(en, now);		/* what was sent has made room */
	next = xport_poll(en->group, now);
	if (!list_empty(&en->core.done))
		kern_copied();
	take_done(en);
	if (en->index == 0)
		ad_rings_publish(en);
	check_failures(en);
	ad_epoch_turn(en);
	if (!list_empty(&en->stopping) || !list_empty(&en->forgetting))
		let_go(en);
	publish(en);
	more = more || !list_empty(&en->core.done) || !en->next_stall;
	next = MIN(next, slow_due(en, now));
	if (ad_links_full(en))
		next = MIN(next, now + mono_ms(FLIGHT_LOOK_MS));
	if (!outbox_flush(&en->out) || ad_rings_owe(en))	/* who makes room rings no bell */
		next = MIN(next, now + mono_ms(1));
	return more ? now : MIN(next, ad_links_next(en));
}

static const struct engine_cb engine_callbacks = {
	.mail = on_mail,
	.event = on_event,
	.turn = on_turn,
};

static void engine_free(struct ad_engine *en)
{
	free(en->core.scratch);
	free(en->shown);
	free(en->net);
	free(en);
}

int ad_engine_start(struct agent *a, uint32_t index, int cpu, struct err *e)
{
	struct ad_engine *en = calloc(1, sizeof(*en));
	int rc;

	if (!en)
		return err_set(e, TALLY_ENOMEM, "out of memory for engine %u", index);
	ag_init(&en->core);
	en->shown = calloc(SLABS_PER_LINK_MAX, sizeof(*en->shown));
	en->core.scratch = aligned_alloc(PAGE_BYTES, AG_SCRATCH_BYTES);
	if (!en->shown || !en->core.scratch) {
		engine_free(en);
		return err_set(e, TALLY_ENOMEM, "out of memory for engine %u", index);
	}
	for (uint32_t i = 0; i < SLABS_PER_LINK_MAX; i++)
		en->shown[i].fd = -1;
	en->agent = a;
	en->index = index;
	fr_init(&en->front);
	list_init(&en->rings);
	list_init(&en->peers);
	list_init(&en->stopping);
	list_init(&en->forgetting);
	outbox_init(&en->out, a->mail, index);
	en->flight_limit = UINT64_MAX;	/* until the first job: the cards are known then */
	a->engine[index] = en;
	rc = engine_start(&en->thread, "agent", index, cpu, 0, &engine_callbacks, en, e);
	if (rc) {
		a->engine[index] = NULL;
		engine_free(en);
		return rc;
	}
	ad_engine_tell(en, AD_OPEN, NULL, 0);
	return 0;
}

/* The engine may be in the middle of a turn, which waits for nobody. */
void ad_engine_quiet(struct ad_engine *en)
{
	ad_engine_tell(en, AD_QUIET, NULL, 0);
	while (!en->quiet)
		wait_a_moment();
}

/* After engine_stop() everything of the engine belongs to the caller. */
void ad_engine_stop(struct ad_engine *en)
{
	engine_stop(en->thread);
	if (en->group)
		xport_group_free(en->group);
	ad_links_free(en);
	while (!list_empty(&en->rings))
		list_del(en->rings.next);	/* they are the sessions' */
	outbox_fini(&en->out);
	engine_free(en);
}
