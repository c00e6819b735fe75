// SPDX-License-Identifier: Apache-2.0
/*
 * sched_place.c - which server has which chunk, as everybody computes it.
 *
 * The scheduler replays the log through common/place as agents and servers do.  It
 * needs the answer for one who comes late: a server that joins a running job cannot
 * know what tensors that are gone by now have left behind.
 */
#include "scheduler/sched.h"

bool place_new(struct sched *s, struct sched_job *j)
{
	uint32_t *weight = out_scratch(s, MAX(j->nservers, 1) * sizeof(*weight));

	j->place = sched_alloc(s, sizeof(*j->place));
	if (!j->place || !weight)
		return false;
	for (uint32_t i = 0; i < j->nservers; i++)
		weight[i] = j->servers[i].weight;
	place_init(j->place, j->chunk_bytes);
	j->place->epoch = (uint32_t)j->epoch;
	return !place_start(j->place, weight, j->nservers, NULL);
}

/* Memory for where its chunks are. */
static bool give_memory(struct sched *s, struct sched_job *j, struct sched_tensor *t)
{
	uint64_t bytes = tensor_bytes(t);
	uint32_t chunks = (uint32_t)div_round_up(bytes, j->chunk_bytes);

	t->place.bytes = bytes;
	t->place.since = sched_alloc(s, (chunks + 1) * (sizeof(uint32_t) + sizeof(uint16_t)));
	t->place.owner = t->place.since ? (uint16_t *)(t->place.since + chunks + 1) : NULL;
	return t->place.since != NULL;
}

bool place_entry(struct sched *s, struct sched_job *j, struct sched_tensor *const *t, uint32_t n)
{
	struct place_tensor *some = out_scratch(s, MAX(n, 1) * sizeof(*some));

	for (uint32_t i = 0; i < n; i++) {
		if (!some || !give_memory(s, j, t[i]))
			return false;
		some[i] = t[i]->place;
	}
	place_batch(j->place, some, n);
	for (uint32_t i = 0; i < n; i++)
		list_add(&j->placed, &t[i]->placed);
	return true;
}

void place_drop(struct sched *s, struct sched_job *j, struct sched_tensor *t)
{
	if (!list_empty(&t->placed))
		place_forget(j->place, &t->place);
	list_del(&t->placed);
	sched_release(s, t->place.since);
	t->place.since = NULL;
}

bool place_change(struct sched *s, struct sched_job *j)
{
	struct place_tensor *all;
	uint32_t *weight = out_scratch(s, MAX(j->nservers, 1) * sizeof(*weight));
	bool *alive = out_scratch(s, MAX(j->nservers, 1) * sizeof(*alive));
	struct place_change c = {
		.epoch = (uint32_t)j->epoch, .repair = j->repair, .anew = j->anew,
		.nservers = j->nservers, .weight = weight, .alive = alive,
	};
	uint32_t n = 0;

	list_for_each(&j->placed, p)
		n++;
	all = out_scratch(s, MAX(n, 1) * sizeof(*all));
	if (!all || !weight || !alive)
		return false;
	n = 0;
	list_for_each(&j->placed, p)
		all[n++] = list_entry(p, struct sched_tensor, placed)->place;
	for (uint32_t i = 0; i < j->nservers; i++) {
		weight[i] = j->servers[i].weight;
		alive[i] = j->servers[i].number != 0 || MUTATE(15);
	}
	if (!j->nservers) {
		j->place->epoch = (uint32_t)j->epoch;
		return true;
	}
	return place_epoch(j->place, &c, all, n);
}

/* ---- for those who come late, and from those who were there ---- */

const uint64_t *place_told(struct sched *s, const struct sched_job *j,
			   struct sched_tensor *const *t, uint32_t n, uint32_t *count)
{
	uint64_t *out;
	uint64_t all = 0, at = 0;

	for (uint32_t i = 0; i < n; i++)
		all += place_chunks(j->place, t[i]->place.bytes);
	out = all <= CHUNKS_PER_JOB_MAX ? out_scratch(s, (all + 1) * sizeof(*out)) : NULL;
	for (uint32_t i = 0; out && i < n; i++)
		for (uint32_t c = 0; c < place_chunks(j->place, t[i]->place.bytes); c++)
			out[at++] = PLACED(t[i]->place.since[c], t[i]->place.owner[c]);
	*count = (uint32_t)at;
	return out;
}

bool place_take(struct sched *s, struct sched_job *j, struct sched_tensor *t,
		const uint64_t *placed, uint32_t n)
{
	if (j->nservers && (n < div_round_up(tensor_bytes(t), j->chunk_bytes) ||
			    !give_memory(s, j, t) || !place_adopt(j->place, &t->place, placed)))
		return false;
	list_add(&j->placed, &t->placed);
	return true;
}
