// SPDX-License-Identifier: Apache-2.0
/*
 * Tensors on the control thread: placement, memory, and mail to the engines.
 *
 * A log entry replays the placement, as every agent does, and every engine gets
 * bookkeeping and result slots for the chunks that are ours and its.  When all
 * engines have it the scheduler hears READY.  What does not fit into the memory
 * limit is refused here, before anybody trains; the log goes on behind a refused
 * entry, since the scheduler has everybody forget it next.
 *
 * An epoch moves chunks.  What comes gets a part of its own, and READY says so; what
 * goes stays until the scheduler says that all agents have gone over.  An epoch is
 * not refused for the limit: what a lost server summed has to be summed by somebody; and
 * who has no room for a share that others can keep gets none (sched_epoch.c).
 *
 * A restarted scheduler rebuilds the log from the agents, who may not have had
 * the last entry that we have: its number comes again, and what we hold from there
 * on is forgotten.  An epoch cannot be: then we let go of the job, and join it anew.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/rt/log.h"
#include "server/server.h"

/* ---- parts ---- */

static void part_free(struct server *s, struct sv_part *p)
{
	for (uint32_t i = 0; i < s->nengines; i++) {
		free(p->piece[i].mem);
		sv_slots_put(s, &p->piece[i].place);
	}
	list_del(&p->link);
	free(p->mine);
	free(p->leaving);
	free(p);
}

/* The chunks of `mine`, which becomes the part's.  NULL: out of memory, mine is freed. */
static struct sv_part *part_new(struct server *s, struct sv_tensor *t, bool *mine, uint32_t epoch,
				bool young)
{
	struct sv_job *j = t->job;
	uint32_t chunks = place_chunks(j->place, t->placed.bytes);
	struct sv_part *p = calloc(1, sizeof(*p) + s->nengines * sizeof(p->piece[0]));

	if (!p) {
		free(mine);
		return NULL;
	}
	p->tensor = t;
	p->epoch = epoch;
	p->mine = mine;
	p->leaving = calloc(chunks + 1, sizeof(bool));
	list_init(&p->link);
	if (!p->leaving) {
		free(p->mine);
		free(p);
		return NULL;
	}
	list_add(&t->parts, &p->link);
	for (uint32_t c = 0; c < chunks; c++)
		p->nchunks += mine[c];
	for (uint32_t i = 0; i < s->nengines; i++)
		p->piece[i].desc = (struct srv_tensor_desc){
			.id = t->id, .dtype = (uint8_t)t->dtype,
			.geom = { t->placed.bytes, j->chunk_bytes, j->seg_bytes },
			.epoch = epoch, .young = young,
		};
	return p;
}

/* Which of the part's chunks are the engine's: for the engine, which frees it. */
static bool *own_chunks(struct server *s, const struct sv_part *p, uint32_t engine)
{
	uint32_t chunks = place_chunks(p->tensor->job->place, p->tensor->placed.bytes);
	bool *own = calloc(chunks + 1, sizeof(*own));

	for (uint32_t c = 0; own && c < chunks; c++)
		own[c] = p->mine[c] && geom_shard(p->tensor->id, c, s->nengines) == engine;
	return own;
}

/* The engines' bookkeeping of the part; where its results lie comes by place_parts(). */
static int part_alloc(struct server *s, struct sv_part *p, struct err *e)
{
	for (uint32_t i = 0; i < s->nengines; i++) {
		struct sv_tensor_piece *x = &p->piece[i];
		bool *own = own_chunks(s, p, i);

		if (own) {
			x->desc.mine = own;
			x->mem = calloc(1, srv_tensor_size(p->tensor->job->n, &x->desc,
							   &x->slot_bytes));
		}
		if (!own || !x->mem)
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	}
	return 0;
}

/* Where the results of the parts lie (NULL: no part): one slab for what finds no room in
 * those there are. */
static int place_parts(struct server *s, struct sv_job *j, struct sv_part **part, uint32_t n,
		       bool beyond, struct err *e)
{
	uint64_t left = 0;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; part[i] && k < s->nengines; k++)
			left += part[i]->piece[k].slot_bytes;
	for (uint32_t i = 0; !rc && i < n; i++)
		for (uint32_t k = 0; part[i] && !rc && k < s->nengines; k++) {
			struct sv_tensor_piece *x = &part[i]->piece[k];

			if (x->slot_bytes)
				rc = sv_slots_get(s, j, x->slot_bytes, left, beyond, &x->place,
						  e);
			left -= x->slot_bytes;
		}
	return rc;
}

/* ---- tensors ---- */

static struct sv_tensor *tensor_new(struct sv_job *j, const struct msg_tensor *m, uint64_t seq)
{
	struct sv_tensor *t = calloc(1, sizeof(*t));
	uint32_t chunks;

	if (!t)
		return NULL;
	t->job = j;
	t->id = m->id;
	t->dtype = m->dtype;
	t->seq = seq;
	t->placed.bytes = m->count * dtype_bytes((uint8_t)m->dtype);
	chunks = place_chunks(j->place, t->placed.bytes);
	t->placed.owner = calloc(chunks + 1, sizeof(uint16_t));
	t->placed.since = calloc(chunks + 1, sizeof(uint32_t));
	list_init(&t->link);
	list_init(&t->parts);
	if (t->placed.owner && t->placed.since)
		return t;
	free(t->placed.owner);
	free(t->placed.since);
	free(t);
	return NULL;
}

static void tensor_free(struct server *s, struct sv_tensor *t)
{
	while (!list_empty(&t->parts))
		part_free(s, list_first(&t->parts, struct sv_part, link));
	list_del(&t->link);
	idtab_del(&t->job->ids, &t->by_id);
	free(t->placed.owner);
	free(t->placed.since);
	free(t);
}

void sv_tensors_free(struct server *s, struct sv_job *j)
{
	while (!list_empty(&j->tensors))
		tensor_free(s, list_first(&j->tensors, struct sv_tensor, link));
}

/* ---- batches ---- */

static struct sv_batch *batch_new(struct sv_job *j, enum sv_batch_kind kind, uint64_t seq,
				  uint32_t max)
{
	struct sv_batch *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->job = j;
	b->kind = kind;
	b->seq = seq;
	b->part = calloc(max + 1, sizeof(struct sv_part *));
	b->leaving = calloc(max + 1, sizeof(bool *));
	list_init(&b->in_job);
	if (b->part && b->leaving)
		return b;
	free(b->part);
	free(b->leaving);
	free(b);
	return NULL;
}

static void batch_put(struct sv_batch *b, struct sv_part *p)
{
	p->batches++;
	b->part[b->n++] = p;
}

void sv_batch_free(struct server *s, struct sv_batch *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		struct sv_part *p = b->part[i];
		struct sv_tensor *t = p->tensor;

		for (uint32_t k = 0; k < s->nengines; k++) {
			free((void *)p->piece[k].desc.mine);
			p->piece[k].desc.mine = NULL;
		}
		free(b->leaving[i]);
		p->batches--;
		if (p->dropped && !p->batches)
			part_free(s, p);
		if (list_empty(&t->parts) && list_empty(&t->link))	/* and it is forgotten */
			tensor_free(s, t);
	}
	list_del(&b->in_job);
	free(b->part);
	free(b->leaving);
	free(b->lost);
	free(b);
}

static void batch_send(struct server *s, struct sv_batch *b)
{
	list_add(&b->job->batches, &b->in_job);
	b->engines_left = s->nengines;
	for (uint32_t i = 0; i < s->nengines; i++)
		sv_engine_tell(s->engine[i], SV_BATCH, &b, sizeof(b));
}

/* All agents have gone over: the part's memory goes when all of its chunks have left. */
static void part_left(struct sv_part *p)
{
	uint32_t chunks = place_chunks(p->tensor->job->place, p->tensor->placed.bytes);

	for (uint32_t c = 0; c < chunks; c++) {
		if (!p->mine[c] || !p->leaving[c])
			continue;
		p->leaving[c] = p->mine[c] = false;
		p->nchunks--;
	}
	p->dropped |= !p->nchunks;
}

static uint32_t count_parts(const struct sv_tensor *t)
{
	uint32_t n = 0;

	list_for_each(&t->parts, l)
		n++;
	return n;
}

/* Takes the tensor out of the log; its parts go through the engines once more. */
static void forget(struct server *s, struct sv_batch *b, struct sv_tensor *t)
{
	place_forget(b->job->place, &t->placed);
	list_del(&t->link);
	idtab_del(&b->job->ids, &t->by_id);
	list_for_each(&t->parts, l) {
		struct sv_part *p = list_entry(l, struct sv_part, link);

		p->dropped = true;
		batch_put(b, p);
	}
	if (list_empty(&t->parts))
		tensor_free(s, t);
}

/* ---- the log's order ---- */

/* Entries from `seq` on never were: a restarted scheduler gives the number again. */
static int log_cut(struct server *s, struct sv_job *j, uint64_t seq, struct err *e)
{
	struct sv_batch *b;
	uint32_t n = 0;

	if (seq <= j->epoch_seq || (seq <= j->forget_seq && j->forget_from < seq))
		return err_set(e, TALLY_EBUSY, "server %s cannot take an entry back, job %u",
			       s->name, j->id);
	list_for_each(&j->tensors, l) {
		const struct sv_tensor *t = list_entry(l, struct sv_tensor, link);

		n += t->seq >= seq ? count_parts(t) : 0;
	}
	b = batch_new(j, BATCH_FORGET, 0, n);
	if (!b)
		return err_set(e, TALLY_EBUSY, "server %s: out of memory", s->name);
	j->seq = j->told = seq - 1;
	list_for_each_safe(&j->tensors, l, next) {
		struct sv_tensor *t = list_entry(l, struct sv_tensor, link);

		if (t->seq >= seq)
			forget(s, b, t);
	}
	batch_send(s, b);
	return 0;
}

/*
 * The job, ready for entry `seq` of its log.  Behind one that was refused comes its FORGET; but
 * who joins is not waited for, and the others may go on with it.
 */
static int log_job(struct server *s, uint32_t id, uint64_t seq, struct sv_job **out, struct err *e)
{
	struct sv_job *j = sv_job_find(s, id);
	bool told;

	if (!j || j->stopping)
		return err_set(e, TALLY_ENOENT, "server %s has no job %u", s->name, id);
	if (seq <= j->refused)
		j->refused = 0;
	if (j->refused)
		return err_set(e, TALLY_EBUSY, "server %s lacks tensors that all others have, "
			       "job %u", s->name, id);
	told = seq > j->seq && seq <= j->told;
	if (!told && (!seq || seq > MAX(j->seq, j->told) + 1))
		return err_set(e, TALLY_EPROTO, "server %s: job %u log entry %llu after %llu",
			       s->name, id, (unsigned long long)seq, (unsigned long long)j->seq);
	*out = j;
	return seq <= j->seq ? log_cut(s, j, seq, e) : 0;
}

/* ---- tensors are declared ---- */

static int place_all(struct sv_job *j, struct sv_tensor **t, uint32_t n, struct err *e)
{
	struct place_tensor *placed = calloc(n + 1, sizeof(*placed));

	if (!placed)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		placed[i] = t[i]->placed;
	place_batch(j->place, placed, n);
	free(placed);
	return 0;
}

/* A latecomer is told where chunks are. */
static int take_placed(struct sv_job *j, struct sv_tensor **t, uint32_t n,
		       const struct msg_tensors *m, struct err *e)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++)
		at += place_chunks(j->place, t[i]->placed.bytes);
	if (at != m->nplaced)
		return err_set(e, TALLY_EPROTO, "job %u: %u chunks are placed, of %llu", j->id,
			       m->nplaced, (unsigned long long)at);
	at = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (!place_adopt(j->place, &t[i]->placed, m->placed + at))
			return err_set(e, TALLY_EPROTO, "job %u: no such server", j->id);
		at += place_chunks(j->place, t[i]->placed.bytes);
	}
	return 0;
}

static bool *mine_of(const struct sv_tensor *t)
{
	uint32_t chunks = place_chunks(t->job->place, t->placed.bytes);
	bool *mine = calloc(chunks + 1, sizeof(*mine));

	for (uint32_t c = 0; mine && c < chunks; c++)
		mine[c] = t->placed.owner[c] == t->job->me;
	return mine;
}

static int make_tensors(struct sv_job *j, struct sv_tensor **t, const struct msg_tensors *m,
			uint32_t *n, struct err *e)
{
	for (uint32_t i = 0; i < m->ntensors; i++) {
		t[i] = tensor_new(j, &m->tensors[i], m->seq);
		if (!t[i])
			return err_set(e, TALLY_ENOMEM, "out of memory");
		list_add(&j->tensors, &t[i]->link);
		++*n;
		if (!idtab_add(&j->ids, &t[i]->by_id, t[i]->id))
			return err_set(e, TALLY_EPROTO, "job %u has tensor %u already", j->id,
				       t[i]->id);
	}
	return m->nplaced ? take_placed(j, t, *n, m, e) : place_all(j, t, *n, e);
}

static int fill_batch(struct server *s, struct sv_batch *b, struct sv_tensor **t, uint32_t n,
		      struct err *e)
{
	uint64_t bytes = 0;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool *mine = mine_of(t[i]);
		struct sv_part *p;

		p = mine ? part_new(s, t[i], mine, b->job->place->epoch, false) : NULL;
		if (!p)
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
		batch_put(b, p);
		rc = part_alloc(s, p, e);
		for (uint32_t k = 0; k < s->nengines; k++)
			bytes += p->piece[k].slot_bytes;
		rc = rc ? rc : sv_slots_check(s, b->job, bytes, e);
		if (rc)
			return rc;
	}
	return place_parts(s, b->job, b->part, b->n, false, e);
}

int sv_tensors(struct server *s, const struct msg_tensors *m, struct err *e)
{
	struct sv_tensor **t;
	struct sv_batch *b = NULL;
	struct sv_job *j = NULL;
	uint32_t n = 0;
	bool placed;
	int rc = log_job(s, m->job, m->seq, &j, e);

	if (rc)
		return rc;
	j->seq = j->refused = m->seq;	/* refused or not: FORGET follows a refusal */
	j->refused_id = m->ntensors ? m->tensors[0].id : 0;
	t = calloc(m->ntensors + 1, sizeof(struct sv_tensor *));
	if (!t)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	rc = make_tensors(j, t, m, &n, e);
	placed = !rc;
	b = rc ? NULL : batch_new(j, BATCH_ADD, m->seq, n);
	if (!rc)
		rc = b ? fill_batch(s, b, t, n, e) : err_set(e, TALLY_ENOMEM, "out of memory");
	if (!rc) {
		j->refused = 0;
		batch_send(s, b);
		free(t);
		return 0;
	}
	if (b)
		sv_batch_free(s, b);
	for (uint32_t i = 0; i < n; i++) {
		if (placed)
			place_forget(j->place, &t[i]->placed);
		tensor_free(s, t[i]);
	}
	free(t);
	return rc;
}

static struct sv_tensor *tensor_find(struct sv_job *j, uint32_t id)
{
	struct id_node *n = idtab_find(&j->ids, id);

	return n ? container_of(n, struct sv_tensor, by_id) : NULL;
}

/* Left undone it would leave this server with a placement of its own. */
int sv_forget(struct server *s, const struct msg_ids *m, struct err *e)
{
	struct sv_job *j = sv_job_find(s, m->job);
	struct sv_batch *b;
	uint32_t n = 0;
	int rc;

	for (uint32_t i = 0; j && i < m->nids; i++)
		if (m->ids[i] == j->refused_id)
			j->refused = 0;
	rc = log_job(s, m->job, m->seq, &j, e);
	if (rc)
		return rc == TALLY_ENOENT ? 0 : rc;
	for (uint32_t i = 0; i < m->nids; i++) {
		const struct sv_tensor *t = tensor_find(j, m->ids[i]);

		n += t ? count_parts(t) : 0;
	}
	b = batch_new(j, BATCH_FORGET, m->seq, n);
	if (!b)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	j->seq = j->forget_seq = j->forget_from = m->seq;
	j->ready_type = 0;		/* the scheduler has heard what was before, or refused */
	for (uint32_t i = 0; i < m->nids; i++) {
		struct sv_tensor *t = tensor_find(j, m->ids[i]);

		if (!t)
			continue;
		j->forget_from = MIN(j->forget_from, t->seq);
		forget(s, b, t);
	}
	batch_send(s, b);
	return 0;
}

/* ---- epochs ---- */

static struct sv_part *part_of(const struct sv_tensor *t, uint32_t epoch, uint32_t chunk)
{
	list_for_each(&t->parts, l) {
		struct sv_part *p = list_entry(l, struct sv_part, link);

		if (p->epoch == epoch && p->mine[chunk])
			return p;
	}
	return NULL;
}

static void move_all(struct sv_job *j, const struct msg_epoch *m, struct place_tensor *all,
		    uint32_t n)
{
	uint32_t weight[SERVERS_PER_JOB_MAX];
	bool alive[SERVERS_PER_JOB_MAX];
	const struct place_change c = {
		.epoch = (uint32_t)m->epoch, .repair = m->repair,
		.anew = m->ngone > j->ngone || m->grown != j->grown,
		.nservers = m->nservers, .weight = weight, .alive = alive,
	};

	for (uint32_t i = 0; i < m->nservers; i++) {
		weight[i] = m->servers[i].weight;
		alive[i] = m->servers[i].node != 0;
	}
	j->nservers = m->nservers;
	(void)place_epoch(j->place, &c, all, n);	/* who missed something joins anew */
}

/*
 * Finds what moves in one tensor: parts that lose chunks are marked, chunks that come are a new
 * part.
 */
static int part_moves(struct server *s, struct sv_tensor *t, const uint32_t *since,
		      struct sv_part **part, uint32_t epoch, struct err *e)
{
	uint32_t chunks = place_chunks(t->job->place, t->placed.bytes);
	bool *mine = calloc(chunks + 1, sizeof(*mine)), any = false;

	if (!mine)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	for (uint32_t c = 0; c < chunks; c++) {
		struct sv_part *old = part_of(t, since[c], c);

		if (t->placed.since[c] == since[c])
			continue;
		if (old)
			old->leaving[c] = true;
		mine[c] = t->placed.owner[c] == t->job->me;
		any |= mine[c];
	}
	if (!any) {
		free(mine);
		return 0;
	}
	*part = part_new(s, t, mine, epoch, true);
	return *part ? part_alloc(s, *part, e) :
	       err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
}

static bool loses(const struct sv_part *p)
{
	for (uint32_t c = 0; c < place_chunks(p->tensor->job->place, p->tensor->placed.bytes); c++)
		if (p->leaving[c])
			return true;
	return false;
}

/* Parts with chunks that leave, into the batch if there is one; returns how many. */
static uint32_t put_leaving(struct sv_job *j, struct sv_batch *b)
{
	uint32_t n = 0;

	list_for_each(&j->tensors, lt) {
		list_for_each(&list_entry(lt, struct sv_tensor, link)->parts, l) {
			struct sv_part *p = list_entry(l, struct sv_part, link);

			if (!loses(p))
				continue;
			n++;
			if (b)
				batch_put(b, p);
		}
	}
	return n;
}

struct sv_moves {			/* scratch of one epoch */
	uint32_t n;
	struct sv_tensor **t;
	struct place_tensor *all;
	uint32_t **since;		/* before */
	struct sv_part **part;		/* what comes */
};

static void moves_free(struct sv_moves *v)
{
	for (uint32_t i = 0; v->since && i < v->n; i++)
		free(v->since[i]);
	free(v->t);
	free(v->all);
	free(v->since);
	free(v->part);
}

static int moves_init(struct sv_moves *v, struct sv_job *j)
{
	uint32_t i = 0;

	list_for_each(&j->tensors, l)
		v->n++;
	v->t = calloc(v->n + 1, sizeof(struct sv_tensor *));
	v->all = calloc(v->n + 1, sizeof(*v->all));
	v->since = calloc(v->n + 1, sizeof(uint32_t *));
	v->part = calloc(v->n + 1, sizeof(struct sv_part *));
	if (!v->t || !v->all || !v->since || !v->part)
		return TALLY_ENOMEM;
	list_for_each(&j->tensors, l) {
		struct sv_tensor *t = list_entry(l, struct sv_tensor, link);
		size_t bytes = (place_chunks(j->place, t->placed.bytes) + 1) * sizeof(uint32_t);

		v->t[i] = t;
		v->all[i] = t->placed;
		v->since[i] = malloc(bytes);
		if (!v->since[i])
			return TALLY_ENOMEM;
		memcpy(v->since[i++], t->placed.since, bytes);
	}
	return 0;
}

static int moves_send(struct server *s, struct sv_job *j, struct sv_moves *v, uint64_t epoch,
		      bool lost, struct err *e)
{
	struct sv_batch *b = batch_new(j, BATCH_EPOCH, epoch, v->n + put_leaving(j, NULL));
	uint32_t first;

	if (!b)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	if (lost) {
		b->lost = malloc(j->n);
		if (!b->lost) {
			sv_batch_free(s, b);
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
		}
		memcpy(b->lost, j->lost, j->n);
		b->world = j->world - j->ngone;
	}
	for (uint32_t i = 0; i < v->n; i++)
		if (v->part[i])
			batch_put(b, v->part[i]);
	first = b->n;
	put_leaving(j, b);
	for (uint32_t i = first; i < b->n; i++) {
		const struct sv_part *p = b->part[i];
		uint32_t chunks = place_chunks(j->place, p->tensor->placed.bytes);

		b->leaving[i] = malloc(chunks + 1);
		if (!b->leaving[i]) {
			sv_batch_free(s, b);
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
		}
		memcpy(b->leaving[i], p->leaving, chunks);
	}
	batch_send(s, b);
	return 0;
}

int sv_epoch(struct server *s, const struct msg_epoch *m, struct err *e)
{
	struct sv_moves v = { 0 };
	struct sv_job *j;
	bool anew;
	int rc = log_job(s, m->job, m->seq, &j, e);

	if (rc)
		return rc;
	anew = m->ngone > j->ngone || m->grown != j->grown;
	if (m->nservers < j->nservers)	/* they came when a scheduler before was about to say so */
		return err_set(e, TALLY_EBUSY, "server %s has heard of servers, job %u, that no "
			       "agent has", s->name, m->job);
	if (j->me >= m->nservers || m->servers[j->me].node != s->my_node)
		return err_set(e, TALLY_EBUSY, "job %u has server %s in another row than it was "
			       "told", m->job, s->name);
	j->seq = j->epoch_seq = m->seq;
	rc = moves_init(&v, j) ? err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name) : 0;
	if (!rc)
		move_all(j, m, v.all, v.n);
	for (uint32_t i = 0; !rc && i < v.n; i++)
		rc = part_moves(s, v.t[i], v.since[i], &v.part[i], (uint32_t)m->epoch, e);
	rc = rc ? rc : place_parts(s, j, v.part, v.n, true, e);
	j->grown = m->grown;
	if (!rc && anew && sv_job_shrink(j, m->gone, m->ngone))
		rc = err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	if (!rc)
		rc = moves_send(s, j, &v, m->epoch, anew, e);
	moves_free(&v);
	if (!rc && s->memory_used > s->memory_bytes)
		log_warn("job %u needs more than --memory, as servers are lost, drained or slow",
			 j->id);
	return rc;
}

void sv_epoch_settled(struct server *s, const struct msg_ready *m)
{
	struct sv_job *j = sv_job_find(s, m->job);
	struct sv_batch *b;

	if (!j || j->stopping || m->seq < j->place->epoch)
		return;			/* a newer one has begun: its end frees all */
	b = batch_new(j, BATCH_LEFT, m->seq, put_leaving(j, NULL));
	if (!b)
		return;			/* what left stays until the job ends */
	put_leaving(j, b);
	for (uint32_t i = 0; i < b->n; i++)
		part_left(b->part[i]);
	batch_send(s, b);
}
