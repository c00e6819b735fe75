// SPDX-License-Identifier: Apache-2.0
/*
 * Jobs on the control thread: one coming up gets its windows, its tensors are in
 * server_tensor.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/rt/log.h"
#include "server/server.h"

int sv_check_room(const struct server *s, uint64_t bytes, const char *what, struct err *e)
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
	j->place->epoch = (uint32_t)m->epoch;
	return place_start(j->place, weight, m->nservers, e);
}

static int alloc_job(struct server *s, struct sv_job *j, const struct msg_job_up *m, struct err *e)
{
	j->worker = calloc(m->nmachines, sizeof(*j->worker));
	j->machine_of = calloc(m->world, sizeof(*j->machine_of));
	j->lost = calloc(m->nmachines, sizeof(*j->lost));
	if (!j->worker || !j->machine_of || !j->lost)
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	if (sv_windows_map(s, j, e))
		return e->code;
	for (uint32_t i = 0; i < m->nmachines; i++) {
		j->worker[i].node = m->machines[i].node;
		j->worker[i].engines = MAX(m->machines[i].engines, 1);
		for (uint32_t k = 0; k < m->machines[i].nranks; k++)
			j->machine_of[m->machines[i].ranks[k]] = i;
	}
	if (sv_job_shrink(j, m->gone, m->ngone))
		return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	for (uint32_t i = 0; i < s->nengines; i++) {
		j->piece[i].mem = calloc(1, srv_job_size(m->nmachines, j->agent_engines));
		if (!j->piece[i].mem)
			return err_set(e, TALLY_ENOMEM, "server %s: out of memory", s->name);
	}
	return start_place(j, m, e);
}

int sv_job_shrink(struct sv_job *j, const uint32_t *gone, uint32_t ngone)
{
	uint32_t *left = calloc(j->n, sizeof(*left));

	if (!left)
		return TALLY_ENOMEM;
	for (uint32_t r = 0; r < j->world; r++)
		left[j->machine_of[r]]++;
	for (uint32_t i = 0; i < ngone; i++)
		if (gone[i] < j->world)
			left[j->machine_of[gone[i]]]--;
	for (uint32_t i = 0; i < j->n; i++)
		j->lost[i] = !left[i];
	j->ngone = ngone;
	free(left);
	return 0;
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

/*
 * Sizes windows for the agent with the most engines, and finds the least part that any engine
 * has of one.
 */
static void size_windows(const struct server *s, struct sv_job *j, const struct msg_job_up *m)
{
	j->part_bytes = UINT64_MAX;
	for (uint32_t i = 0; i < m->nmachines; i++) {
		uint32_t engines = MAX(m->machines[i].engines, 1);
		uint64_t window = geom_window(m->window_bytes, s->nengines, engines, m->seg_bytes);
		uint64_t at, part;

		j->agent_engines = MAX(j->agent_engines, engines);
		j->window_bytes = MAX(j->window_bytes, window);
		for (uint32_t e = 0; e < engines * s->nengines; e++) {
			if (!geom_engines_meet(e / s->nengines, engines, e % s->nengines,
					       s->nengines))
				continue;
			part = geom_window_part(window, e / s->nengines, engines, e % s->nengines,
						s->nengines, &at);
			j->part_bytes = MIN(j->part_bytes, part);
		}
	}
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
	j->user = m->user;
	j->nservers = m->nservers;
	j->nengines = s->nengines;
	j->epoch = m->epoch;
	j->chunk_bytes = m->chunk_bytes;
	j->seg_bytes = m->seg_bytes;
	j->told = m->seq;
	j->epoch_seq = m->epoch_seq;
	j->grown = m->grown;
	size_windows(s, j, m);
	j->windows_bytes = j->n * s->nengines * j->window_bytes;
	list_init(&j->tensors);
	list_init(&j->batches);
	list_init(&j->slots);
	rc = sv_check_room(s, j->windows_bytes, "a window for each machine", e);
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
		sv_batch_free(s, list_first(&j->batches, struct sv_batch, in_job));
	sv_tensors_free(s, j);
	sv_slots_free(s, j);
	for (uint32_t i = 0; i < s->nengines; i++)
		free(j->piece[i].mem);
	sv_windows_unmap(s, j);
	s->memory_used -= j->windows_bytes;
	list_del(&j->link);
	free(j->place);
	free(j->worker);
	free(j->machine_of);
	free(j->lost);
	free(j);
}
