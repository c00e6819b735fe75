// SPDX-License-Identifier: Apache-2.0
/*
 * Memory in which an agent before this one had results, and where GPUs wait for some.
 *
 * A GPU's copies are put on its lanes when a round starts, and read the memory that the result
 * was to come to then, whatever is mapped since.  So while such a round is in flight its result
 * goes there, too.  Nobody else writes anything to it but the same bytes: servers on this machine
 * that were told of it by the agent before may still put that round's result there.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "worker-agent/agent.h"

struct ad_was {
	struct list link;		/* in job->was */
	dev_t dev;
	ino_t ino;
	struct slab mem;		/* owned */
};

static void free_was(void *was)
{
	slab_free(&((struct ad_was *)was)->mem);
	free(was);
}

/*
 * Lets go of the memory of earlier results in another thread: this may be the last mapping of
 * it, which takes the kernel long to free.
 */
void ad_was_over(struct ad_job *j)
{
	while (!j->was_left && !list_empty(&j->was)) {
		struct ad_was *w = list_first(&j->was, struct ad_was, link);

		list_del(&w->link);
		if (!j->agent->loop || loop_work(j->agent->loop, free_was, w))
			free_was(w);
	}
}

/* To be written; NULL: e. */
static struct slab *memory(struct ad_job *j, int fd, uint64_t bytes, struct err *e)
{
	struct stat st = { 0 };
	struct ad_was *w;

	(void)fstat(fd, &st);
	list_for_each(&j->was, l) {
		w = list_entry(l, struct ad_was, link);
		if (w->ino == st.st_ino && w->dev == st.st_dev)
			return &w->mem;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		err_set(e, TALLY_ENOMEM, "out of memory");
		return NULL;
	}
	if (slab_map_own(&w->mem, fd, bytes, e)) {
		free(w);
		return NULL;
	}
	w->ino = st.st_ino;
	w->dev = st.st_dev;
	list_add(&j->was, &w->link);
	return &w->mem;
}

/* Ranks of one machine mostly wait at the same place.  False: there are more than ranks. */
static bool add(struct ad_tensor *t, uint8_t *at)
{
	for (uint32_t i = 0; i < t->desc.nwas; i++)
		if (t->was[i] == at)
			return true;
	if (t->desc.nwas == t->job->nlocal)
		return false;
	t->was[t->desc.nwas++] = at;
	t->desc.was = t->was;
	return true;
}

int ad_was_show(struct ad_tensor *t, int fd, uint64_t bytes, uint32_t round, struct err *e)
{
	uint64_t at = (uint64_t)t->result_page[round & 1] * PAGE_BYTES;
	uint64_t len = (uint64_t)t->npages * PAGE_BYTES;
	struct slab *mem;

	if (!t->was)
		t->was = calloc(t->job->nlocal, sizeof(*t->was));
	if (!t->was)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	mem = memory(t->job, fd, bytes, e);
	if (!mem)
		return e->code;
	if (!range_ok(at, len, mem->bytes) || !add(t, mem->base + at))
		return err_set(e, TALLY_EPROTO, "the result of tensor %u is waited for in places "
			       "that were handed back and cannot be", t->id);
	if (ad_prefault(t->job->agent, mem, at, len, e))
		return e->code;
	t->job->was_left += !t->front->was;
	t->front->was = true;
	return 0;
}
