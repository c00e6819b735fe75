// SPDX-License-Identifier: Apache-2.0
/*
 * Jobs and tensors on the control thread: memory, placement, and mail to the
 * engines.
 *
 * A job coming up gets its windows (address space; pages come as agents fill
 * them).  A log entry replays the placement, as every agent does, and every
 * engine gets bookkeeping and result slots for the chunks that are ours and its.
 * When all engines have it the scheduler hears READY.  What does not fit into
 * the memory limit is refused here, before anybody trains; the log goes on
 * behind a refused entry, since the scheduler has everybody forget it next.
 *
 * A restarted scheduler rebuilds the log from the agents, who may not have had
 * the last entry that we have: its number comes again with other tensors, and
 * what we hold from there on is forgotten.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/rt/log.h"
#include "server/server.h"

static int check_room(const struct server *s, uint64_t bytes, const char *what, struct err *e)
{
	uint64_t room = s->memory_bytes - MIN(s->memory_used, s->memory_bytes);
	char need[32], have[32];

	if (bytes <= room)
		return 0;
	return err_set(e, TALLY_EQUOTA, "server %s: %s needs %s, free are %s (--memory)", s->name,
		       what, fmt_bytes(need, sizeof(need), bytes),
		       fmt_bytes(have, sizeof(have), room));
}

struct sv_job *sv_job_find(struct server *s, uint32_t id)
{
	list_for_each(&s->jobs, l) {
		struct sv_job *j = list_entry(l, struct sv_job, link);

		if (j->id == id)
			return j;
	}
	return NULL;
}

/* ---- a job comes up ---- */

static int my_index(const struct server *s, const struct msg_job_up *m, uint32_t *me)
{
	for (uint32_t i = 0; i < m->nservers; i++) {
		if (m->servers[i].node == s->my_node) {
			*me = i;
			return 0;
		}
	}
	return TALLY_ENOENT;
}

static int start_place(struct sv_job *j, const struct msg_job_up *m, struct err *e)
{
	uint32_t weight[SERVERS_PER_JOB_MAX];

	j->place = malloc(sizeof(*j->place));
	if (!j->place)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < m->nservers; i++)
		weight[i] = m->servers[i].weight;
	place_init(j->place, m->chunk_bytes);
	return place_start(j->place, weight, m->nservers, e);
}

static int alloc_job(struct server *s, struct sv_job *j, const struct msg_job_up *m, struct err *e)
{
	j->node = calloc(m->nmachines, sizeof(*j->node));
	if (!j->node || !sv_windows_map(s, j))
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	for (uint32_t i = 0; i < m->nmachines; i++)
		j->node[i] = m->machines[i].node;
	for (uint32_t i = 0; i < s->nengines; i++) {
		j->piece[i].mem = calloc(1, srv_job_size(m->nmachines));
		if (!j->piece[i].mem)
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	}
	return start_place(j, m, e);
}

static int check_job(struct server *s, const struct msg_job_up *m, struct err *e)
{
	if (m->algorithm != PLACE_ALGORITHM)
		return err_set(e, TALLY_EVERSION, "server %s places by algorithm %u, the job by %u",
			       s->name, PLACE_ALGORITHM, m->algorithm);
	if (sv_job_find(s, m->job))
		return err_set(e, TALLY_EEXIST, "server %s has job %u already", s->name, m->job);
	return 0;
}

int sv_job_up(struct server *s, const struct msg_job_up *m, struct err *e)
{
	struct sv_job *j;
	uint32_t me;
	int rc = check_job(s, m, e);

	if (rc)
		return rc;
	if (my_index(s, m, &me))
		return err_set(e, TALLY_EPROTO, "job %u does not name server %s", m->job, s->name);
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	j->id = m->job;
	j->n = m->nmachines;
	j->me = me;
	j->world = m->world;
	j->nservers = m->nservers;
	j->nengines = s->nengines;
	j->epoch = m->epoch;
	j->chunk_bytes = m->chunk_bytes;
	j->seg_bytes = m->seg_bytes;
	j->window_bytes = geom_window(m->window_bytes, s->nengines, m->seg_bytes);
	j->windows_bytes = j->n * s->nengines * j->window_bytes;
	list_init(&j->tensors);
	list_init(&j->batches);
	list_init(&j->slots);
	rc = check_room(s, j->windows_bytes, "the job's windows", e);
	if (rc) {
		free(j);
		return rc;
	}
	s->memory_used += j->windows_bytes;
	list_add(&s->jobs, &j->link);
	rc = alloc_job(s, j, m, e);
	rc = rc ? rc : sv_agents_add(s, m, e);
	if (rc) {
		sv_job_free(s, j);
		return rc;
	}
	j->starting = s->nengines;
	for (uint32_t i = 0; i < s->nengines; i++)
		sv_engine_tell(s->engine[i], SV_JOB_START, &j, sizeof(j));
	return 0;
}

/* ---- tensors ---- */

static void piece_free(struct server *s, struct sv_tensor_piece *p)
{
	free(p->mem);
	sv_slots_put(s, &p->place);
}

static void tensor_free(struct server *s, struct sv_tensor *t)
{
	idtab_del(&t->job->ids, &t->by_id);
	for (uint32_t i = 0; i < s->nengines; i++)
		piece_free(s, &t->piece[i]);
	free(t->placed.owner);
	free(t);
}

static int make_piece(struct server *s, struct sv_tensor *t, uint32_t index,
		      const struct srv_tensor_desc *d, struct err *e)
{
	struct sv_tensor_piece *p = &t->piece[index];
	size_t bytes = srv_tensor_size(t->job->n, d, &p->slot_bytes);

	p->desc = *d;
	p->desc.mine = NULL;
	p->mem = calloc(1, bytes);
	if (!p->mem)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	return 0;
}

/* Each engine's part of a placed tensor. `mine` is scratch of `chunks` entries. */
static int make_pieces(struct server *s, struct sv_tensor *t, const struct msg_tensor *m,
		       struct err *e)
{
	struct sv_job *j = t->job;
	uint32_t chunks = place_chunks(j->place, t->placed.bytes);
	struct srv_tensor_desc d = {
		.id = m->id,
		.dtype = (uint8_t)m->dtype,
		.geom = { t->placed.bytes, j->chunk_bytes, j->seg_bytes },
	};

	for (uint32_t i = 0; i < s->nengines; i++) {
		bool *mine = calloc(chunks + 1, sizeof(*mine));
		int rc;

		if (!mine)
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
		for (uint32_t c = 0; c < chunks; c++)
			mine[c] = t->placed.owner[c] == j->me &&
				  geom_shard(m->id, c, s->nengines) == i;
		d.mine = mine;
		rc = make_piece(s, t, i, &d, e);
		t->piece[i].desc.mine = mine;	/* freed once the engine has read it */
		if (rc)
			return rc;
	}
	return 0;
}

static struct sv_tensor *new_tensor(struct server *s, struct sv_job *j, const struct msg_tensor *m)
{
	struct sv_tensor *t = calloc(1, sizeof(*t) + s->nengines * sizeof(t->piece[0]));

	if (!t)
		return NULL;
	t->job = j;
	t->id = m->id;
	t->placed.bytes = m->count * dtype_bytes((uint8_t)m->dtype);
	t->placed.owner = calloc(place_chunks(j->place, t->placed.bytes) + 1, sizeof(uint16_t));
	if (!t->placed.owner) {
		free(t);
		return NULL;
	}
	return t;
}

static int place_all(struct sv_batch *b, struct err *e)
{
	struct place_tensor *placed = calloc(b->n + 1, sizeof(*placed));

	if (!placed)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < b->n; i++)
		placed[i] = b->tensor[i]->placed;
	place_batch(b->job->place, placed, b->n);
	free(placed);
	return 0;
}

static void batch_scratch_free(struct server *s, struct sv_batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		for (uint32_t k = 0; k < s->nengines; k++) {
			free((void *)b->tensor[i]->piece[k].desc.mine);
			b->tensor[i]->piece[k].desc.mine = NULL;
		}
}

/* Undoes what the first `b->n` tensors of a refused batch have taken. */
static void batch_undo(struct server *s, struct sv_batch *b, bool placed)
{
	batch_scratch_free(s, b);
	for (uint32_t i = 0; i < b->n; i++) {
		if (placed)
			place_forget(b->job->place, &b->tensor[i]->placed);
		list_del(&b->tensor[i]->link);
		tensor_free(s, b->tensor[i]);
	}
	free(b);
}

/* Where the results of all of it lie: one slab for what finds no room in those there are. */
static int give_slots(struct server *s, struct sv_batch *b, struct err *e)
{
	uint64_t left = 0;
	int rc = 0;

	for (uint32_t i = 0; i < b->n; i++)
		for (uint32_t k = 0; k < s->nengines; k++)
			left += b->tensor[i]->piece[k].slot_bytes;
	for (uint32_t i = 0; !rc && i < b->n; i++)
		for (uint32_t k = 0; !rc && k < s->nengines; k++) {
			struct sv_tensor_piece *p = &b->tensor[i]->piece[k];

			if (p->slot_bytes)
				rc = sv_slots_get(s, b->job, p->slot_bytes, left, &p->place, e);
			left -= p->slot_bytes;
		}
	return rc;
}

static int fill_batch(struct server *s, struct sv_batch *b, const struct msg_tensors *m,
		      bool *placed, struct err *e)
{
	uint64_t bytes = 0;
	int rc;

	for (uint32_t i = 0; i < m->ntensors; i++) {
		b->tensor[i] = new_tensor(s, b->job, &m->tensors[i]);
		if (!b->tensor[i])
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
		b->tensor[i]->seq = b->seq;
		list_add(&b->job->tensors, &b->tensor[i]->link);
		b->n++;
		if (!idtab_add(&b->job->ids, &b->tensor[i]->by_id, b->tensor[i]->id))
			return err_set(e, TALLY_EPROTO, "server %s: job %u has tensor %u already",
				       s->name, b->job->id, b->tensor[i]->id);
	}
	rc = place_all(b, e);
	if (rc)
		return rc;
	*placed = true;
	for (uint32_t i = 0; i < b->n; i++) {
		const struct place_tensor *t = &b->tensor[i]->placed;

		for (uint32_t c = 0; c < place_chunks(b->job->place, t->bytes); c++)
			bytes += t->owner[c] == b->job->me ? b->job->chunk_bytes : 0;
	}
	rc = check_room(s, bytes, "the job's share", e);
	for (uint32_t i = 0; !rc && i < b->n; i++)
		rc = make_pieces(s, b->tensor[i], &m->tensors[i], e);
	return rc ? rc : give_slots(s, b, e);
}

static struct sv_batch *batch_new(struct sv_job *j, uint64_t seq, uint32_t max)
{
	struct sv_batch *b = calloc(1, sizeof(*b) + max * sizeof(b->tensor[0]));

	if (b) {
		b->job = j;
		b->seq = seq;
	}
	return b;
}

static void batch_send(struct server *s, struct sv_batch *b)
{
	list_add(&b->job->batches, &b->in_job);
	b->engines_left = s->nengines;
	for (uint32_t i = 0; i < s->nengines; i++)
		sv_engine_tell(s->engine[i], SV_BATCH, &b, sizeof(b));
}

static void batch_forget(struct sv_batch *b, struct sv_tensor *t)
{
	place_forget(b->job->place, &t->placed);
	list_del(&t->link);
	idtab_del(&b->job->ids, &t->by_id);
	b->tensor[b->n++] = t;
}

/* Entries from `seq` on never were: a restarted scheduler gives the number again. */
static int log_cut(struct server *s, struct sv_job *j, uint64_t seq, struct err *e)
{
	struct sv_batch *b;
	uint32_t n = 0;

	list_for_each(&j->tensors, l)
		n += list_entry(l, struct sv_tensor, link)->seq >= seq;
	b = n ? batch_new(j, 0, n) : NULL;
	if (n && !b)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	j->seq = seq - 1;
	if (!n)
		return 0;
	b->forget = true;
	list_for_each_safe(&j->tensors, l, next) {
		struct sv_tensor *t = list_entry(l, struct sv_tensor, link);

		if (t->seq >= seq)
			batch_forget(b, t);
	}
	batch_send(s, b);
	return 0;
}

/* The job, ready for entry `seq` of its log. */
static int log_job(struct server *s, uint32_t id, uint64_t seq, struct sv_job **out, struct err *e)
{
	struct sv_job *j = sv_job_find(s, id);

	if (!j || j->stopping)
		return err_set(e, TALLY_ENOENT, "server %s has no job %u", s->name, id);
	if (!seq || seq > j->seq + 1)
		return err_set(e, TALLY_EPROTO, "server %s: job %u log entry %llu after %llu",
			       s->name, id, (unsigned long long)seq, (unsigned long long)j->seq);
	*out = j;
	return seq <= j->seq ? log_cut(s, j, seq, e) : 0;
}

int sv_tensors(struct server *s, const struct msg_tensors *m, struct err *e)
{
	struct sv_job *j;
	struct sv_batch *b;
	bool placed = false;
	int rc = log_job(s, m->job, m->seq, &j, e);

	if (rc)
		return rc;
	j->seq = m->seq;		/* refused or not: FORGET follows a refusal */
	b = batch_new(j, m->seq, m->ntensors);
	if (!b)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	rc = fill_batch(s, b, m, &placed, e);
	if (rc) {
		batch_undo(s, b, placed);
		return rc;
	}
	batch_send(s, b);
	return 0;
}

static struct sv_tensor *tensor_find(struct sv_job *j, uint32_t id)
{
	struct id_node *n = idtab_find(&j->ids, id);

	return n ? container_of(n, struct sv_tensor, by_id) : NULL;
}

void sv_forget(struct server *s, const struct msg_ids *m)
{
	struct sv_job *j;
	struct sv_batch *b;

	if (log_job(s, m->job, m->seq, &j, NULL))
		return;
	j->seq = m->seq;
	b = batch_new(j, m->seq, m->nids);
	if (!b)
		return;			/* they stay until the job ends */
	b->forget = true;
	for (uint32_t i = 0; i < m->nids; i++) {
		struct sv_tensor *t = tensor_find(j, m->ids[i]);

		if (t)
			batch_forget(b, t);
	}
	batch_send(s, b);
}

/* All engines are through with the batch. */
void sv_batch_done(struct server *s, struct sv_batch *b)
{
	batch_scratch_free(s, b);
	for (uint32_t i = 0; b->forget && i < b->n; i++)
		tensor_free(s, b->tensor[i]);
	list_del(&b->in_job);
	free(b);
}

/* ---- the end ---- */

void sv_job_down(struct server *s, uint32_t id)
{
	struct sv_job *j = sv_job_find(s, id);

	if (!j || j->stopping)
		return;
	j->stopping = true;
	j->engines_left = s->nengines;
	for (uint32_t i = 0; i < s->nengines; i++)
		sv_engine_tell(s->engine[i], SV_JOB_STOP, &j, sizeof(j));
}

void sv_job_free(struct server *s, struct sv_job *j)
{
	while (!list_empty(&j->batches))	/* only when the server stops */
		sv_batch_done(s, list_first(&j->batches, struct sv_batch, in_job));
	while (!list_empty(&j->tensors)) {
		struct sv_tensor *t = list_first(&j->tensors, struct sv_tensor, link);

		list_del(&t->link);
		tensor_free(s, t);
	}
	for (uint32_t i = 0; i < s->nengines; i++)
		free(j->piece[i].mem);
	sv_windows_unmap(s, j);
	s->memory_used -= j->windows_bytes;
	list_del(&j->link);
	free(j->place);
	free(j->node);
	free(j);
}
