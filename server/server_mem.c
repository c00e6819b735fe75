// SPDX-License-Identifier: Apache-2.0
/*
 * A server's memory for jobs: windows, and results in slabs.
 *
 * All of it has its pages before it is used, and is refused where the machine or a cgroup has
 * none: a page that is refused at its first touch would end the server.  Results of a job lie in
 * few slabs: a declared batch takes what is free in them, then a slab for all the rest of it, so
 * that cards need to know few pieces of memory however many tensors there are.  A slab goes back
 * when nothing is left in it.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/bytes.h"
#include "common/rt/log.h"
#include "common/shm/limit.h"
#include "common/shm/slab.h"
#include "server/server.h"

#define PIECE_BYTES	((size_t)16 << 20)

static void *map_pages(size_t bytes, struct err *e)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		limit_err(e, errno, "mapping %zu bytes", bytes);
		return NULL;
	}
	(void)madvise(p, bytes, MADV_HUGEPAGE);		/* where there are any */
	return p;
}

/* To get or to free a large model's pages takes longer than a lease: in pieces. */
static void unmap_pages(const struct server *s, uint8_t *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
		munmap(p + at, MIN(bytes - at, PIECE_BYTES));
		ctl_node_alive(s->node);
	}
}

/* The same as map_pages(), with its pages. */
static void *map_pages_now(const struct server *s, size_t bytes, struct err *e)
{
	uint8_t *p = limit_memory_check(bytes, e) ? NULL : map_pages(bytes, e);
	struct slab pages = { .base = p, .bytes = bytes, .writable = true, .fd = -1 };

	for (size_t at = 0; p && at < bytes; at += PIECE_BYTES) {
		if (slab_prefault(&pages, at, MIN(bytes - at, PIECE_BYTES), e)) {
			munmap(p, bytes);
			return NULL;
		}
		ctl_node_alive(s->node);
	}
	return p;
}

/* Without it the memory's bytes go over TCP, which is said. */
static struct xport_region *tell_cards(const struct server *s, void *p, uint64_t bytes,
				       bool peers_write)
{
	struct xport_region *r = NULL;
	struct err e;

	ctl_node_alive(s->node);
	if (xport_region_new(&r, p, bytes, peers_write, &e))
		log_warn("rdma cannot be used for %llu MiB, which go over tcp, reason %s",
			 (unsigned long long)bytes >> 20, e.text);
	ctl_node_alive(s->node);
	return r;
}

int sv_windows_map(struct server *s, struct sv_job *j, struct err *e)
{
	j->windows = map_pages_now(s, j->windows_bytes, e);
	if (!j->windows)
		return err_wrap(e, "server %s", s->name);
	if (xport_rdma_devices())
		j->windows_region = tell_cards(s, j->windows, j->windows_bytes, true);
	return 0;
}

void sv_windows_unmap(struct server *s, struct sv_job *j)
{
	xport_region_free(j->windows_region);
	if (j->windows)
		unmap_pages(s, j->windows, j->windows_bytes);
}

static void slab_give_back(struct server *s, struct sv_slots *m)
{
	list_del(&m->link);
	s->memory_used -= m->bytes;
	xport_region_free(m->region);
	unmap_pages(s, m->base, m->bytes);
	free(m);
}

static struct sv_slots *slab_make(struct server *s, struct sv_job *j, uint64_t bytes,
				  struct err *e)
{
	uint32_t npages = (uint32_t)(bytes / PAGE_BYTES);
	struct sv_slots *m = calloc(1, sizeof(*m) + BITS_WORDS(npages) * sizeof(m->words[0]));

	if (!m) {
		err_set(e, TALLY_ENOMEM, "out of memory");
		return NULL;
	}
	m->base = map_pages_now(s, bytes, e);
	if (!m->base) {
		free(m);
		return NULL;
	}
	m->job = j;
	m->bytes = bytes;
	pagemap_init(&m->pages, m->words, npages);
	m->region = tell_cards(s, m->base, bytes, false);
	s->memory_used += bytes;
	list_add(&j->slots, &m->link);
	return m;
}

/*
 * Size of the next slab: memory that NICs must know comes in doubling sizes, if tensors are
 * declared one by one.
 */
static uint64_t slab_bytes(const struct server *s, const struct sv_job *j, uint64_t wanted)
{
	uint64_t all = 0, room = s->memory_bytes - MIN(s->memory_used, s->memory_bytes);

	if (!xport_rdma_devices())
		return wanted;
	list_for_each(&j->slots, l)
		all += list_entry(l, const struct sv_slots, link)->bytes;
	return MAX(wanted, MIN(all, slab_ahead_max(all, room)));
}

int sv_slots_check(const struct server *s, const struct sv_job *j, uint64_t bytes, struct err *e)
{
	uint64_t left = 0;

	list_for_each(&j->slots, l) {
		const struct pagemap *p = &list_entry(l, const struct sv_slots, link)->pages;

		left += (uint64_t)(p->pages - p->used) * PAGE_BYTES;
	}
	return sv_check_room(s, bytes - MIN(bytes, left), "the job's share", e);
}

int sv_slots_get(struct server *s, struct sv_job *j, uint64_t bytes, uint64_t batch_bytes,
		 bool beyond, struct sv_place *out, struct err *e)
{
	uint64_t room = s->memory_bytes - MIN(s->memory_used, s->memory_bytes), slab;
	uint32_t n = (uint32_t)(bytes / PAGE_BYTES), page;
	struct sv_slots *m;

	list_for_each(&j->slots, l) {
		m = list_entry(l, struct sv_slots, link);
		page = pagemap_get(&m->pages, n);
		if (page != UINT32_MAX) {
			*out = (struct sv_place){ m, page, n };
			return 0;
		}
	}
	if (!beyond && bytes > room)	/* what is free is in pieces that are too small */
		return sv_check_room(s, bytes, "the job's share", e);
	slab = slab_bytes(s, j, batch_bytes);
	m = slab_make(s, j, beyond ? slab : MIN(slab, room / PAGE_BYTES * PAGE_BYTES), e);
	if (!m)
		return err_wrap(e, "server %s", s->name);
	*out = (struct sv_place){ m, pagemap_get(&m->pages, n), n };
	return 0;
}

/* Engines that are told to stop a job look through all of its memory once more. */
void sv_slots_put(struct server *s, struct sv_place *p)
{
	if (!p->in)
		return;
	pagemap_put(&p->in->pages, p->page, p->npages);
	if (!p->in->pages.used && !p->in->job->stopping)
		slab_give_back(s, p->in);
	p->in = NULL;
}

void sv_slots_free(struct server *s, struct sv_job *j)
{
	while (!list_empty(&j->slots))
		slab_give_back(s, list_first(&j->slots, struct sv_slots, link));
}
