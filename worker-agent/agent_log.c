// SPDX-License-Identifier: Apache-2.0
/*
 * What a job's agents know and a restarted scheduler does not: JOB_UP and the
 * log's TENSORS entries, kept as they came; and who has left.
 *
 * An entry goes when its last tensor is forgotten, and what is told of the others
 * are the tensors that are left; so a job may declare and undeclare for ever.
 * FORGET is not kept: a tensor that this agent does not tell, although it tells
 * of a later entry, is forgotten.  The last number of the log is told with EPOCH_READY.
 */
#include <stdlib.h>

#include "common/base/bytes.h"
#include "worker-agent/agent.h"

int ad_entry_new(const struct msg *m, struct ad_entry **out, struct err *e)
{
	struct ad_entry *entry;
	uint32_t bytes;
	int rc = msg_encode_size(m, &bytes, e);

	if (rc)
		return rc;
	entry = malloc(sizeof(*entry) + bytes);
	if (!entry)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	rc = msg_encode(m, entry->wire, bytes, e);
	if (rc) {
		free(entry);
		return rc;
	}
	entry->tensors = m->type == MSG_TENSORS ? m->tensors.ntensors : 0;
	list_init(&entry->link);
	*out = entry;
	return 0;
}

int ad_log_keep(struct ad_job *j, const struct msg *m, struct ad_entry **out, struct err *e)
{
	int rc = ad_entry_new(m, out, e);

	if (!rc)
		list_add(&j->log, &(*out)->link);
	return rc;
}

static void entry_free(struct ad_entry *entry)
{
	list_del(&entry->link);
	free(entry);
}

void ad_log_forget(struct ad_tensor *t)
{
	ASSERT(t->entry->tensors);
	if (!--t->entry->tensors)
		entry_free(t->entry);
	t->entry = NULL;
}

void ad_log_free(struct ad_job *j)
{
	while (!list_empty(&j->log))
		entry_free(list_first(&j->log, struct ad_entry, link));
}

/* ---- telling ---- */

static void drop_forgotten(struct ad_job *j, struct msg_tensors *m)
{
	struct msg_tensor *t = (struct msg_tensor *)m->tensors;	/* ours: decoded just now */
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->ntensors; i++)
		if (ad_tensor_find(j, t[i].id))
			t[n++] = t[i];
	m->ntensors = n;
}

/* Where the chunks of these tensors are by now; NULL: no memory, or too many. */
static uint64_t *tell_placed(struct ad_job *j, struct msg_tensors *m)
{
	uint64_t *out, n = 0, at = 0;

	for (uint32_t i = 0; i < m->ntensors; i++)
		n += place_chunks(j->place, ad_tensor_find(j, m->tensors[i].id)->placed.bytes);
	out = n <= PLACED_MAX ? calloc(n + 1, sizeof(*out)) : NULL;
	for (uint32_t i = 0; out && i < m->ntensors; i++) {
		const struct place_tensor *t = &ad_tensor_find(j, m->tensors[i].id)->placed;

		for (uint32_t c = 0; c < place_chunks(j->place, t->bytes); c++)
			out[at++] = PLACED(t->since[c], t->owner[c]);
	}
	m->placed = out;
	m->nplaced = out ? (uint32_t)n : 0;
	return out;
}

/*
 * Lists the ranks that have detached, here or elsewhere: the agent of such a rank may not come
 * back to report it.
 */
static uint32_t *tell_detached(const struct ad_job *j, struct msg_job_up *up)
{
	uint32_t *left = calloc(j->world, sizeof(*left));

	up->nleft = 0;
	up->left = left;
	for (uint32_t r = 0; left && r < j->world; r++)
		if (bits_test(j->detached, r))
			left[up->nleft++] = r;
	return left;
}

/* JOB_UP as it would be now: the servers of the last epoch. Returns what they lie in. */
static void *newest_epoch(struct ad_job *j, struct msg_job_up *up)
{
	struct msg_mem mem = { 0 };
	uint32_t bytes, type;
	struct msg m;

	up->seq = j->epoch_seq;
	if (!j->epoch_wire || msg_prefix_decode(j->epoch_wire, &bytes, &type, NULL))
		return NULL;
	mem.size = msg_mem_need(bytes);
	mem.base = malloc(mem.size);
	if (!mem.base || msg_decode(type, j->epoch_wire + MSG_PREFIX_BYTES, bytes, &mem, &m, NULL))
		return mem.base;
	up->epoch = m.epoch.epoch;
	up->repair = m.epoch.repair;
	up->nservers = m.epoch.nservers;
	up->servers = m.epoch.servers;
	up->ngone = m.epoch.ngone;
	up->gone = m.epoch.gone;
	up->grown = m.epoch.grown;
	up->grown_at = m.epoch.grown_at;
	up->njoined = m.epoch.njoined;
	up->joined = m.epoch.joined;
	return mem.base;
}

static void tell_entry(struct ad_job *j, const struct ad_entry *entry)
{
	struct msg_mem mem = { 0 };
	struct msg m;
	uint32_t bytes, type;
	uint64_t *placed = NULL;
	uint32_t *left = NULL;
	void *epoch = NULL;

	if (msg_prefix_decode(entry->wire, &bytes, &type, NULL))
		return;
	mem.size = msg_mem_need(bytes);
	mem.base = malloc(mem.size);
	if (mem.base && !msg_decode(type, entry->wire + MSG_PREFIX_BYTES, bytes, &mem, &m, NULL)) {
		if (m.type == MSG_TENSORS) {
			drop_forgotten(j, &m.tensors);
			placed = tell_placed(j, &m.tensors);
		} else {
			epoch = newest_epoch(j, &m.job_up);
			left = tell_detached(j, &m.job_up);
		}
		m.type = m.type == MSG_TENSORS ? MSG_TENSORS_HELD : MSG_JOB_HELD;
		(void)ad_tell_scheduler(j->agent, &m);
	}
	free(placed);
	free(left);
	free(epoch);
	free(mem.base);
}

static bool tell_left(struct ad_job *j, uint32_t local)
{
	const struct ad_left *left = &j->left[local];
	struct msg m = {
		.type = MSG_RANK_LEAVE,
		.rank_leave = {
			.job = j->id,
			.rank = j->machines[j->me].ranks[local],
			.code = left->code,
			.text = "",
			.req = left->req,
		},
	};
	struct err e;

	if (left->code) {
		const char *why = left->why ? left->why : left->joining ?
				  "has ended while it was joining" : "has ended without detaching";

		if (left->pid)
			err_set(&e, left->code, "process %u %s", left->pid, why);
		else
			err_set(&e, left->code, "its process %s", why);
		m.rank_leave.text = e.text;
	}
	return !ad_tell_scheduler(j->agent, &m);
}

/*
 * Marks a rank of this machine that detached from the agent before this one, so that it is not
 * missed here.
 */
static void left_before(struct ad_job *j, uint32_t rank)
{
	const struct ad_machine *me = &j->machines[j->me];

	for (uint32_t local = 0; local < me->nranks; local++)
		if (me->ranks[local] == rank && !j->left[local].gone)
			j->left[local] = (struct ad_left){ .gone = true };
}

void ad_job_detached(struct ad_job *j, uint32_t rank)
{
	if (bits_test(j->detached, rank))
		return;
	bits_set(j->detached, rank);
	if (!j->detached_at)
		j->first_detached = rank;
	j->detached_at = loop_now();
	left_before(j, rank);
}

bool ad_job_left(struct ad_job *j, uint32_t local, const struct ad_left *left)
{
	if (j->state == JOB_STOPPING || j->left[local].gone)
		return false;
	j->left[local] = *left;
	j->left[local].gone = true;
	if (!left->code)
		ad_job_detached(j, j->machines[j->me].ranks[local]);
	return tell_left(j, local);
}

void ad_job_resend(struct ad_job *j)
{
	ad_shrink_forget_later(j);	/* who does not say that it has them hears them again */
	list_for_each(&j->log, l)
		tell_entry(j, list_entry(l, struct ad_entry, link));
	ad_epoch_tell(j);	/* and how much of the log that was */
	for (uint32_t local = 0; local < j->nlocal; local++)
		if (j->left[local].gone)
			(void)tell_left(j, local);
}
