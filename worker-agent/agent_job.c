// SPDX-License-Identifier: Apache-2.0
/*
 * Jobs and tensors on the control thread.
 *
 * JOB_UP makes the job's description, which the engines read and nobody changes;
 * each engine gets the memory of its core.  A log entry replays the placement, as
 * every server does, gives every tensor its result slots (and a place for the
 * local sum), and goes to all engines; only when they have it do processes hear
 * of it.  agent_log.c keeps the log, for a scheduler that has lost it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/rt/log.h"
#include "worker-agent/agent_quota.h"

struct ad_job *ad_job_find(struct agent *a, uint32_t id)
{
	list_for_each(&a->jobs, l) {
		struct ad_job *j = list_entry(l, struct ad_job, link);

		if (j->id == id)
			return j;
	}
	return NULL;
}

/* ---- a job comes up ---- */

static int copy_machines(struct ad_job *j, const struct msg_job_up *m, struct err *e)
{
	j->me = UINT32_MAX;
	j->n = m->nmachines;
	j->machines = calloc(m->nmachines, sizeof(*j->machines));
	if (!j->machines)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < m->nmachines; i++) {
		const struct msg_machine *from = &m->machines[i];
		struct ad_machine *to = &j->machines[i];

		memcpy(to->name, from->name, strlen(from->name) + 1);
		to->nranks = from->nranks;
		to->ranks = calloc(from->nranks + 1, sizeof(*to->ranks));
		if (!to->ranks)
			return err_set(e, TALLY_ENOMEM, "out of memory");
		memcpy(to->ranks, from->ranks, from->nranks * sizeof(*to->ranks));
		if (from->node == j->agent->my_node)
			j->me = i;
	}
	if (j->me == UINT32_MAX)
		return err_set(e, TALLY_EPROTO, "job %u does not name agent %s", m->job,
			       j->agent->name);
	j->nlocal = j->machines[j->me].nranks;
	if (!j->nlocal || j->nlocal > LOCAL_RANKS_MAX)
		return err_set(e, TALLY_EQUOTA, "job %u has %u ranks on agent %s, at most %u",
			       m->job, j->nlocal, j->agent->name, LOCAL_RANKS_MAX);
	return 0;
}

static int start_place(struct ad_job *j, const struct msg_job_up *m, struct err *e)
{
	uint32_t weight[SERVERS_PER_JOB_MAX];

	j->place = malloc(sizeof(*j->place));
	if (!j->place)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < m->nservers; i++)
		weight[i] = m->servers[i].weight;
	place_init(j->place, m->chunk_bytes);
	j->place->epoch = (uint32_t)m->epoch;
	return place_start(j->place, weight, m->nservers, e);
}

static void fill_front(struct ad_job *j)
{
	j->front.id = j->id;
	j->front.world = j->world;
	j->front.nlocal = j->nlocal;
	j->front.user = j;
	j->front.shrink = j->shrink;
	memcpy(j->front.rank, j->machines[j->me].ranks, j->nlocal * sizeof(uint32_t));
}

static int check_job(struct agent *a, const struct msg_job_up *m, struct err *e)
{
	if (m->algorithm != PLACE_ALGORITHM)
		return err_set(e, TALLY_EVERSION, "agent %s places by algorithm %u, the job by %u",
			       a->name, PLACE_ALGORITHM, m->algorithm);
	if (ad_job_find(a, m->job))
		return err_set(e, TALLY_EEXIST, "agent %s has job %u already", a->name, m->job);
	return 0;
}

static int build(struct ad_job *j, const struct msg *m, struct err *e)
{
	const struct msg_job_up *up = &m->job_up;
	struct ad_entry *entry;
	int rc = j->lost && j->detached ? copy_machines(j, up, e) :
				      err_set(e, TALLY_ENOMEM, "out of memory");

	rc = rc ? rc : start_place(j, up, e);
	if (!rc) {
		j->epoch = j->first = ad_epoch_new(j, up->epoch, up->servers, up->nservers, e);
		rc = j->epoch ? 0 : e->code;
	}
	rc = rc ? rc : ad_log_keep(j, m, &entry, e);
	if (rc)
		return rc;
	fill_front(j);
	j->live = ad_shrink_live(j, up->gone, up->ngone);
	j->ngone = up->ngone;
	j->grown = j->grown_shown = up->grown;
	j->grown_at = up->grown_at;
	for (uint32_t i = 0; i < up->ngone; i++)
		bits_set(j->lost, up->gone[i]);
	for (uint32_t i = 0; i < up->nleft; i++)
		ad_job_detached(j, up->left[i]);
	return j->live ? 0 : err_set(e, TALLY_EPROTO, "all ranks that are here are gone");
}

int ad_job_up(struct agent *a, const struct msg *m, struct err *e)
{
	const struct msg_job_up *up = &m->job_up;
	struct ad_job *j;
	int rc = check_job(a, up, e);

	if (rc)
		return rc;
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	j->agent = a;
	j->id = up->job;
	j->world = up->world;
	j->user = up->user;
	j->engines = up->nmachines == 1 ? a->nengines : a->nlinked;
	j->told_settled = up->epoch;
	j->chunk_bytes = up->chunk_bytes;
	j->seg_bytes = up->seg_bytes;
	j->window_bytes = up->window_bytes;
	j->node = a->my_node;
	memcpy(j->link_key, a->link_key, KEY_BYTES);
	memcpy(j->name, up->name, strlen(up->name) + 1);
	j->shrink = up->on_loss == ON_LOSS_SHRINK;
	j->lost = calloc(BITS_WORDS(up->world), sizeof(*j->lost));
	j->detached = calloc(BITS_WORDS(up->world), sizeof(*j->detached));
	list_init(&j->later);
	list_init(&j->log);
	list_init(&j->tensors);
	list_init(&j->was);
	list_init(&j->results);
	list_init(&j->sums);
	list_init(&j->inputs);
	list_init(&j->batches);
	for (uint32_t i = 0; i < a->nengines; i++)
		list_init(&j->routes[i]);
	list_add(&a->jobs, &j->link);
	rc = build(j, m, e);
	if (rc) {
		ad_job_free(j);
		return rc;
	}
	j->starting = a->nengines;
	for (uint32_t i = 0; i < a->nengines; i++)
		ad_engine_tell(a->engine[i], AD_JOB_START, &j, sizeof(j));
	log_info("job %u '%s' up, ranks %u of %u here, machines %u, servers %u, segment %u KiB",
		 j->id, j->name, j->nlocal, j->world, j->n, j->epoch->nservers, j->seg_bytes >> 10);
	return 0;
}

/* ---- tensors ---- */

static void tensor_free(struct ad_tensor *t)
{
	t->job->tensor_bytes -= t->cost;
	if (t->result)
		ad_pages_put(t->result, t->result_page[0], 2 * t->npages);
	if (t->sum)
		ad_pages_put(t->sum, t->sum_page, t->npages);
	for (uint32_t i = 0; i < t->job->agent->nengines; i++)
		free(t->piece[i]);
	list_del(&t->link);
	idtab_del(&t->job->ids, &t->by_id);
	free((void *)t->desc.route);
	free((void *)t->desc.since);
	free(t->placed.owner);
	free(t->placed.since);
	free(t->front);
	free(t->was);
	free(t);
}

/* malloc() rounds up, and takes at least so much. */
#define HEAP_MIN_BYTES		32u
static_assert(sizeof(struct ad_tensor) + NAME_LEN_MAX + 1 + HEAP_MIN_BYTES +
	      sizeof(struct fr_tensor) + LOCAL_RANKS_MAX * sizeof(struct fr_input) +
	      HEAP_MIN_BYTES + 4 * HEAP_MIN_BYTES <= TENSOR_OWN_BYTES,
	      "a tensor without elements, its name, and its lists of no chunks");

static struct ad_tensor *tensor_new(struct ad_job *j, const struct msg_tensor *m)
{
	size_t len = strlen(m->name) + 1;
	struct ad_tensor *t = calloc(1, sizeof(*t) + len);
	uint32_t chunks;

	if (!t)
		return NULL;
	t->job = j;
	t->id = m->id;
	t->dtype = m->dtype;
	t->name = memcpy(t + 1, m->name, len);
	list_init(&t->link);
	t->placed.bytes = m->count * dtype_bytes((uint8_t)m->dtype);
	t->desc.id = t->id;
	t->desc.dtype = (uint8_t)t->dtype;
	t->desc.geom = (struct geom){ t->placed.bytes, j->chunk_bytes, j->seg_bytes };
	t->desc.whole = j->shrink;
	t->desc.round = t->round = m->round;
	chunks = place_chunks(j->place, t->placed.bytes);
	t->placed.owner = calloc(chunks + 1, sizeof(uint16_t));
	t->placed.since = calloc(chunks + 1, sizeof(uint32_t));
	t->desc.route = calloc(chunks + 1, sizeof(uint32_t));
	t->desc.since = calloc(chunks + 1, sizeof(uint32_t));
	t->front = calloc(1, fr_tensor_size(j->nlocal));
	if (!t->placed.owner || !t->placed.since || !t->desc.route || !t->desc.since ||
	    !t->front) {
		tensor_free(t);
		return NULL;
	}
	return t;
}

static uint64_t slot_of(const struct ad_slab *s, uint32_t page)
{
	return SLOT_SLAB(s->id, (uint64_t)page * PAGE_BYTES);
}

static int give_memory(struct ad_tensor *t, struct err *e)
{
	struct ad_job *j = t->job;
	struct agent *a = j->agent;
	bool kept = false;
	int rc = 0;

	t->cost = ad_tensor_cost(j, t->placed.bytes);
	j->tensor_bytes += t->cost;
	t->desc.sum_slot = t->desc.result_slot[0] = t->desc.result_slot[1] = SLOT_NONE;
	t->npages = (uint32_t)div_round_up(t->placed.bytes, PAGE_BYTES);
	ASSERT(ag_marks(&t->desc.geom) <= t->npages);
	if (!t->npages)
		return 0;
	if (j->taking)
		rc = ad_back_memory(t, &kept, e);
	/* Both parities from one slab: DECLARED names one. */
	if (!rc && !kept)
		rc = ad_pages_get(a, j, &j->results, AD_RESULTS, 2 * t->npages, &t->result,
				  &t->result_page[0], e);
	if (rc)
		return rc;
	t->result_page[1] = t->result_page[0] + t->npages;
	for (int k = 0; k < 2; k++) {
		t->desc.result[k] = t->result->mem.base + (uint64_t)t->result_page[k] * PAGE_BYTES;
		t->desc.result_slot[k] = slot_of(t->result, t->result_page[k]);
		t->desc.mark[k] = &t->result->marks[t->result_page[k]];
		if (!kept)
			memset(t->desc.mark[k], 0, t->npages * sizeof(uint64_t));
	}
	if (j->nlocal == 1 || j->n == 1)
		return 0;
	rc = ad_pages_get(a, j, &j->sums, "tally-sum", t->npages, &t->sum, &t->sum_page, e);
	if (rc)
		return rc;
	t->desc.sum = t->sum->mem.base + (uint64_t)t->sum_page * PAGE_BYTES;
	t->desc.sum_slot = slot_of(t->sum, t->sum_page);
	return 0;
}

/* Which engine owns which chunk here, and the memory of each engine's part. */
static int make_pieces(struct ad_tensor *t, struct err *e)
{
	struct ad_job *j = t->job;
	struct agent *a = j->agent;
	uint32_t *route = (uint32_t *)t->desc.route, *since = (uint32_t *)t->desc.since;
	uint64_t nsegs[ENGINES_MAX] = { 0 };
	uint32_t engines = 0;

	for (uint32_t c = 0; c < geom_chunks(&t->desc.geom); c++) {
		route[c] = ad_epoch_route(j->epoch, t->id, c, t->placed.owner[c]);
		since[c] = t->placed.since[c];
		engines |= 1u << geom_shard(t->id, c, j->engines);
		nsegs[geom_shard(t->id, c, j->engines)] += geom_chunk_segs(&t->desc.geom, c);
	}
	t->front->id = t->id;
	t->front->round = t->round;
	t->front->bytes = t->placed.bytes;
	t->front->chunk_bytes = j->chunk_bytes;
	t->front->engines = engines;
	t->front->name = t->name;
	t->front->user = t;
	for (uint32_t i = 0; i < a->nengines; i++) {
		if (!nsegs[i])
			continue;
		t->piece[i] = calloc(1, ag_tensor_size_max(j->nlocal, &t->desc.geom, nsegs[i]));
		if (!t->piece[i])
			return err_set(e, TALLY_ENOMEM, "out of memory");
	}
	return 0;
}

/* After a restart of the scheduler: what was placed when this machine was away. */
static int take_placed(struct ad_batch *b, const struct msg_tensors *m, struct err *e)
{
	struct place *p = b->job->place;
	uint64_t at = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		struct place_tensor *t = &b->tensor[i]->placed;

		if (at + place_chunks(p, t->bytes) > m->nplaced ||
		    !place_adopt(p, t, m->placed + at))
			return err_set(e, TALLY_EPROTO, "job %u: chunks where they cannot be",
				       b->job->id);
		at += place_chunks(p, t->bytes);
	}
	return 0;
}

static int place_all(struct ad_batch *b, const struct msg_tensors *m, struct err *e)
{
	struct place_tensor *placed;

	if (m->nplaced)
		return take_placed(b, m, e);
	placed = calloc(b->n + 1, sizeof(*placed));
	if (!placed)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < b->n; i++)
		placed[i] = b->tensor[i]->placed;
	place_batch(b->job->place, placed, b->n);
	free(placed);
	return 0;
}

/* A job that runs already is not ended by a limit that has become lower since. */
static int check_quota(const struct ad_batch *b, struct err *e)
{
	uint64_t cost = 0;

	for (uint32_t i = 0; i < b->n; i++)
		cost += ad_tensor_cost(b->job, b->tensor[i]->placed.bytes);
	return b->job->taking ? 0 : ad_quota_check(b->job, cost, "tensors", e);
}

static int fill_batch(struct ad_batch *b, const struct msg_tensors *m, struct err *e)
{
	int rc;

	for (uint32_t i = 0; i < m->ntensors; i++) {
		b->tensor[i] = tensor_new(b->job, &m->tensors[i]);
		if (!b->tensor[i])
			return err_set(e, TALLY_ENOMEM, "out of memory");
		b->n++;
		if (!idtab_add(&b->job->ids, &b->tensor[i]->by_id, b->tensor[i]->id))
			return err_set(e, TALLY_EPROTO, "job %u has tensor %u already",
				       b->job->id, b->tensor[i]->id);
	}
	rc = check_quota(b, e);
	rc = rc ? rc : place_all(b, m, e);
	for (uint32_t i = 0; !rc && i < b->n; i++) {
		rc = give_memory(b->tensor[i], e);
		rc = rc ? rc : make_pieces(b->tensor[i], e);
		if (!rc && b->job->taking)
			rc = ad_back_resume(b->tensor[i], m->seq, e);
	}
	return rc;
}

static void send_batch(struct ad_batch *b)
{
	struct agent *a = b->job->agent;

	list_add(&b->job->batches, &b->in_job);
	b->engines_left = a->nengines;
	for (uint32_t i = 0; i < a->nengines; i++)
		ad_engine_tell(a->engine[i], AD_BATCH, &b, sizeof(b));
}

/* An entry that cannot be taken in ends the job: everybody else has it. */
int ad_tensors(struct agent *a, const struct msg *msg, struct err *e)
{
	const struct msg_tensors *m = &msg->tensors;
	struct ad_job *j = ad_job_find(a, m->job);
	struct ad_entry *entry;
	struct ad_batch *b;
	int rc;

	if (!j || j->state == JOB_STOPPING)
		return 0;
	if (m->seq != j->seq + 1 && (!j->taking || m->seq <= j->seq))
		return err_set(e, TALLY_EPROTO, "job %u log entry %llu after %llu", m->job,
			       (unsigned long long)m->seq, (unsigned long long)j->seq);
	b = calloc(1, sizeof(*b) + m->ntensors * sizeof(b->tensor[0]));
	if (!b)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	b->job = j;
	rc = fill_batch(b, m, e);
	rc = rc ? rc : ad_log_keep(j, msg, &entry, e);
	if (rc) {
		for (uint32_t i = 0; i < b->n; i++)
			tensor_free(b->tensor[i]);
		free(b);
		return rc;
	}
	j->seq = m->seq;
	for (uint32_t i = 0; i < b->n; i++) {
		b->tensor[i]->entry = entry;
		list_add(&j->tensors, &b->tensor[i]->link);
	}
	send_batch(b);
	return 0;
}

struct ad_tensor *ad_tensor_find(struct ad_job *j, uint32_t id)
{
	struct id_node *n = idtab_find(&j->ids, id);

	return n ? container_of(n, struct ad_tensor, by_id) : NULL;
}

uint64_t ad_tensors_cost(struct ad_job *j, const struct msg_ids *m)
{
	uint64_t cost = 0;

	for (uint32_t i = 0; i < m->nids; i++) {
		const struct ad_tensor *t = ad_tensor_find(j, m->ids[i]);

		cost += t ? t->cost : 0;
	}
	return cost;
}

/*
 * Left undone it would leave this machine with a placement of its own.  With the number of
 * the last entry it is none itself: what was missed while the scheduler was away.
 */
int ad_forget(struct agent *a, const struct msg *msg, struct err *e)
{
	const struct msg_ids *m = &msg->ids;
	struct ad_job *j = ad_job_find(a, m->job);
	struct ad_batch *b;

	if (!j || j->state == JOB_STOPPING)
		return 0;
	/* the last one again; or one that the servers refused, and its FORGET, in one */
	if (m->seq != j->seq + 1 && m->seq != j->seq && (m->nids || m->seq != j->seq + 2))
		return err_set(e, TALLY_EPROTO, "job %u log entry %llu after %llu", m->job,
			       (unsigned long long)m->seq, (unsigned long long)j->seq);
	b = calloc(1, sizeof(*b) + m->nids * sizeof(b->tensor[0]));
	if (!b)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	j->seq = m->seq;
	b->job = j;
	b->forget = true;
	for (uint32_t i = 0; i < m->nids; i++) {
		struct ad_tensor *t = ad_tensor_find(j, m->ids[i]);

		if (!t)
			continue;
		place_forget(j->place, &t->placed);
		ad_log_forget(t);
		list_del(&t->link);
		idtab_del(&j->ids, &t->by_id);
		b->tensor[b->n++] = t;
	}
	send_batch(b);
	return 0;
}

static void batch_free(struct ad_batch *b)
{
	for (uint32_t i = 0; b->forget && i < b->n; i++)
		tensor_free(b->tensor[i]);
	list_del(&b->in_job);
	free(b);
}

/* All engines are through with it. */
void ad_batch_done(struct ad_batch *b)
{
	struct ad_job *j = b->job;

	for (uint32_t i = 0; i < b->n; i++)
		b->tensor[i]->ready = true;
	batch_free(b);
	if (j->state == JOB_RUNNING)
		ad_session_tensors_ready(j);
}

/* ---- the end ---- */

void ad_job_down(struct ad_job *j, int code, const char *text)
{
	if (j->state == JOB_STOPPING)
		return;
	if (code)
		log_warn("job %u '%s' ends, %s", j->id, j->name, text);
	else
		log_info("job %u '%s' ends, all ranks detached", j->id, j->name);
	j->state = JOB_STOPPING;
	j->code = code ? code : TALLY_ESHUTDOWN;
	snprintf(j->text, sizeof(j->text), "%s", code ? text : "all ranks have detached");
	j->engines_left = j->writing = j->agent->nengines;
	for (uint32_t i = 1; i < j->agent->nengines; i++)
		ad_engine_tell(j->agent->engine[i], AD_JOB_STOP, &j, sizeof(j));
	if (j->writing == 1)
		ad_engine_tell(j->agent->engine[0], AD_JOB_STOP, &j, sizeof(j));
}

/*
 * An engine has stopped the job. Ranks that hear of the end write to their results, so they hear
 * it when no engine does any more; engine 0, which shows it to the rings, is the last.
 */
void ad_job_stopped(struct ad_job *j)
{
	if (--j->writing == 1)
		ad_engine_tell(j->agent->engine[0], AD_JOB_STOP, &j, sizeof(j));
	else if (!j->writing)
		ad_session_job_over(j);
}

static void slabs_free(struct agent *a, struct list *slabs)
{
	while (!list_empty(slabs))
		ad_slab_free(a, list_first(slabs, struct ad_slab, link));
}

/* The engines hold nothing of it any more; its sessions still know why it ended. */
void ad_job_free(struct ad_job *j)
{
	struct agent *a = j->agent;

	if (j->machines && j->me < j->n && !a->stopping)
		ad_alive_over(j);
	j->freed = true;
	j->id = 0;				/* this machine may come into it again */
	while (!list_empty(&j->batches))	/* only when the agent stops */
		batch_free(list_first(&j->batches, struct ad_batch, in_job));
	while (!list_empty(&j->tensors))
		tensor_free(list_first(&j->tensors, struct ad_tensor, link));
	j->was_left = 0;
	ad_was_over(j);
	slabs_free(a, &j->results);
	slabs_free(a, &j->sums);
	slabs_free(a, &j->inputs);
	ad_routes_free(j);
	ad_log_free(j);
	ad_stuck_free(j);
	for (uint32_t i = 0; j->machines && i < j->n; i++)
		free(j->machines[i].ranks);
	free(j->machines);
	ad_epoch_free(j->epoch);
	free(j->epoch_wire);
	free(j->lost);
	free(j->detached);
	ad_shrink_forget_later(j);
	free(j->place);
	if (!ad_session_of(j))
		ad_job_forget(j);
}

/* The last session has gone, too. */
void ad_job_forget(struct ad_job *j)
{
	list_del(&j->link);
	free(j);
}
