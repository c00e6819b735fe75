// SPDX-License-Identifier: Apache-2.0
/*
 * sched_tensor.c - a job's tensors, found by name and by id.
 *
 * The hash tables only find; whatever is walked is walked along the list, in
 * the order of the first declarations, so that results do not depend on hashes.
 */
#include "scheduler/sched.h"

static uint32_t name_bucket(const char *name)
{
	uint32_t h = 2166136261u;	/* FNV-1a */

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return (h ^ h >> 16) % SCHED_BUCKETS;
}

struct sched_tensor *tensor_by_name(const struct sched_job *j, const char *name)
{
	struct sched_tensor *t = j->by_name[name_bucket(name)];

	while (t && strcmp(t->name, name))
		t = t->by_name;
	return t;
}

struct sched_tensor *tensor_by_id(const struct sched_job *j, uint32_t id)
{
	struct sched_tensor *t = id ? j->by_id[id % SCHED_BUCKETS] : NULL;

	while (t && t->id != id)
		t = t->by_id;
	return t;
}

/* FNV-1a of the text, 0 for none. */
static uint64_t meaning_sum(const char *meaning)
{
	uint64_t h = UINT64_C(14695981039346656037);

	if (!meaning || !*meaning)
		return 0;
	for (; *meaning; meaning++)
		h = (h ^ (uint8_t)*meaning) * UINT64_C(1099511628211);
	return h ? h : 1;
}

/* The text of `meaning` is kept until all ranks agree; then its sum is. */
static bool keep_meaning(struct sched *s, struct sched_job *j, struct sched_tensor *t,
			 const char *meaning)
{
	size_t len = meaning ? strlen(meaning) : 0;

	t->meaning_sum = meaning_sum(meaning);
	if (!len)
		return true;
	t->meaning = sched_alloc(s, len + 1);
	if (!t->meaning)
		return false;
	memcpy(t->meaning, meaning, len + 1);
	j->meaning_bytes += len + 1;
	return true;
}

void tensor_drop_meaning(struct sched *s, struct sched_job *j, struct sched_tensor *t)
{
	j->meaning_bytes -= t->meaning ? strlen(t->meaning) + 1 : 0;
	sched_release(s, t->meaning);
	t->meaning = NULL;
}

/* After a restart of the scheduler nobody knows any more what a tensor that is up stands for. */
bool tensor_means(const struct sched_tensor *t, const struct msg_tensor *m)
{
	if (t->state != ST_WANTED)
		return !t->meaning_sum || t->meaning_sum == meaning_sum(m->meaning);
	return !strcmp(t->meaning ? t->meaning : "", m->meaning ? m->meaning : "");
}

/* WANTED by nobody yet; NULL without memory. */
struct sched_tensor *tensor_new(struct sched *s, struct sched_job *j, const struct msg_tensor *m)
{
	size_t len = strlen(m->name) + 1;
	struct sched_tensor *t = sched_alloc(s, sizeof(*t) + len), **at;

	if (!t)
		return NULL;
	if (!keep_meaning(s, j, t, m->meaning)) {
		sched_release(s, t);
		return NULL;
	}
	memcpy(t->name, m->name, len);
	t->dtype = m->dtype;
	t->ndims = m->ndims;
	if (m->ndims)
		memcpy(t->dims, m->dims, m->ndims * sizeof(t->dims[0]));
	t->count = m->count;
	t->priority = m->priority;
	at = &j->by_name[name_bucket(t->name)];
	t->by_name = *at;
	*at = t;
	list_init(&t->placed);
	list_add(&j->tensors, &t->link);
	j->ntensors++;
	return t;
}

static uint64_t chunks_of(const struct sched_job *j, const struct sched_tensor *t)
{
	return div_round_up(tensor_bytes(t), j->chunk_bytes);
}

void tensor_set_id(struct sched_job *j, struct sched_tensor *t, uint32_t id)
{
	struct sched_tensor **at = &j->by_id[id % SCHED_BUCKETS];

	ASSERT(!t->id && id);
	t->id = id;
	t->by_id = *at;
	*at = t;
	j->last_id = MAX(j->last_id, id);
	j->chunks += chunks_of(j, t);
}

void tensor_free(struct sched *s, struct sched_job *j, struct sched_tensor *t)
{
	struct sched_tensor **at = &j->by_name[name_bucket(t->name)];

	while (*at != t)
		at = &(*at)->by_name;
	*at = t->by_name;
	if (t->id) {
		at = &j->by_id[t->id % SCHED_BUCKETS];
		while (*at != t)
			at = &(*at)->by_id;
		*at = t->by_id;
		j->chunks -= chunks_of(j, t);
	}
	place_drop(s, j, t);
	list_del(&t->link);
	j->ntensors--;
	sched_release(s, t->set);
	sched_release(s, t->why);
	tensor_drop_meaning(s, j, t);
	sched_release(s, t);
}

bool tensor_equal(const struct sched_tensor *t, const struct msg_tensor *m)
{
	return t->dtype == m->dtype && t->count == m->count && t->ndims == m->ndims &&
	       !(m->ndims && memcmp(t->dims, m->dims, m->ndims * sizeof(t->dims[0])));
}

uint64_t tensor_bytes(const struct sched_tensor *t)
{
	return t->count * dtype_bytes((uint8_t)t->dtype);
}

/* Sets cost world bits each, so only tensors that somebody waits for have one. */
bool tensor_wants_set(struct sched *s, const struct sched_job *j, struct sched_tensor *t)
{
	if (!t->set)
		t->set = sched_alloc(s, BITS_WORDS(j->world) * sizeof(*t->set));
	return t->set != NULL;
}

void tensor_drop_set(struct sched *s, struct sched_tensor *t)
{
	sched_release(s, t->set);
	t->set = NULL;
	t->nset = 0;
}
