// SPDX-License-Identifier: Apache-2.0
/*
 * A job's log as one process has replayed it: where every chunk is, and since which
 * epoch.  The scheduler's limits are for tensors of real size, so what it hears is
 * SIM_SCALE times as large as what there is; placement sees the same proportions.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

void sim_log_start(struct sim_log *l, const struct msg_job_up *m)
{
	uint32_t weight[SIM_ROWS];

	memset(l, 0, sizeof(*l));
	ASSERT(m->nservers <= SIM_ROWS);
	for (uint32_t i = 0; i < m->nservers; i++)
		weight[i] = m->servers[i].weight;
	l->place = sim_zeroed(sizeof(*l->place));
	place_init(l->place, m->chunk_bytes);
	l->place->epoch = (uint32_t)m->epoch;
	l->told = m->seq;
	l->ngone = m->ngone;
	l->grown = m->grown;
	l->grown_at = m->grown_at;
	ASSERT(!place_start(l->place, weight, m->nservers, NULL));
}

uint32_t sim_log_tensor(const struct sim_log *l, uint32_t id)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->id[l->k[i]] == id)
			return l->k[i];
	return SIM_NOBODY;
}

struct sim_job *sim_job_of(struct sim *s, uint32_t number)
{
	for (uint32_t i = 0; i < s->p.njobs; i++)
		if (number && s->job[i].number == number)
			return &s->job[i];
	return NULL;
}

bool sim_log_follows(const struct sim_log *l, uint64_t seq)
{
	return seq > l->seq && seq <= MAX(l->seq, l->told) + 1;
}

static void next(struct sim *s, struct sim_log *l, uint64_t seq)
{
	if (!sim_log_follows(l, seq))
		sim_fail(s, "log entry %llu after %llu", (unsigned long long)seq,
			 (unsigned long long)l->seq);
	l->seq = seq;
}

void sim_log_tensors(struct sim *s, struct sim_log *l, const struct sim_job *j,
		     const struct msg_tensors *m)
{
	struct place_tensor *some = sim_zeroed(m->ntensors * sizeof(*some));
	uint64_t at = 0;

	next(s, l, m->seq);
	for (uint32_t i = 0; i < m->ntensors; i++) {
		uint32_t k = (uint32_t)strtoul(m->tensors[i].name + 1, NULL, 10);
		const struct sim_tensor *t = &j->tensor[k];

		l->id[k] = m->tensors[i].id;
		l->entry[k] = m->seq;
		l->k[l->n++] = k;
		l->pt[k] = (struct place_tensor){
			.bytes = t->geom.bytes * SIM_SCALE, .owner = l->owner[k],
			.since = l->since[k],
		};
		some[i] = l->pt[k];
		if (m->nplaced && !place_adopt(l->place, &l->pt[k], m->placed + at))
			sim_fail(s, "log entry %llu places a chunk nowhere",
				 (unsigned long long)m->seq);
		at += geom_chunks(&t->geom);
	}
	if (!m->nplaced)
		place_batch(l->place, some, m->ntensors);
	free(some);
}

uint32_t sim_log_forget(struct sim_log *l, uint32_t id)
{
	uint32_t k = sim_log_tensor(l, id), i = 0;

	if (k == SIM_NOBODY)
		return k;
	while (l->k[i] != k)
		i++;
	place_forget(l->place, &l->pt[k]);
	memmove(&l->k[i], &l->k[i + 1], (l->n - i - 1) * sizeof(l->k[0]));
	l->n--;
	return k;
}

void sim_log_epoch(struct sim *s, struct sim_log *l, const struct msg_epoch *m)
{
	struct place_tensor all[SIM_TENSORS];
	uint32_t weight[SIM_ROWS];
	bool alive[SIM_ROWS];
	const struct place_change c = {
		.epoch = (uint32_t)m->epoch, .repair = m->repair,
		.anew = m->ngone > l->ngone || m->grown != l->grown,
		.nservers = m->nservers, .weight = weight, .alive = alive, .nplaced = m->nplaced,
		.placed = m->placed,
	};

	for (uint32_t i = 0; i < l->n; i++)
		all[i] = l->pt[l->k[i]];
	for (uint32_t i = 0; i < m->nservers; i++) {
		weight[i] = m->servers[i].weight;
		alive[i] = m->servers[i].node != 0;
	}
	if (!place_epoch(l->place, &c, all, l->n))
		sim_fail(s, "epoch %llu places chunks where they cannot be",
			 (unsigned long long)m->epoch);
	l->ngone = m->ngone;
	l->grown = m->grown;
	l->grown_at = m->grown_at;
	l->seq = l->epoch_seq = m->seq;
}

void sim_log_fini(struct sim_log *l)
{
	free(l->place);
	l->place = NULL;
}
