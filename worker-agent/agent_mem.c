// SPDX-License-Identifier: Apache-2.0
/*
 * Slabs of the agent: every piece of memory that a process or a colocated server
 * may map.  Each has a number under which links show it; results and local sums
 * are given out of them page by page.
 */
#include <stdlib.h>

#include "common/base/bytes.h"
#include "common/rt/log.h"
#include "worker-agent/agent.h"

#define GROW_BYTES_MIN (4ull << 20)
#define PREFAULT_BYTES (16ull << 20)

static int take_id(struct agent *a, struct ad_slab *s, struct err *e)
{
	for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++) {
		if (!a->slab[id]) {
			a->slab[id] = s;
			s->id = id;
			return 0;
		}
	}
	return err_set(e, TALLY_EQUOTA, "agent %s: more than %u memory slabs", a->name,
		       SLABS_PER_LINK_MAX);
}

static int make(struct ad_slab *s, const char *what, uint64_t bytes, bool pages, struct err *e)
{
	uint32_t npages;
	int rc = slab_new(&s->mem, what, bytes, true, e);

	if (rc || !pages)
		return rc;
	npages = (uint32_t)(s->mem.bytes / PAGE_BYTES);
	s->words = calloc(BITS_WORDS(npages), sizeof(uint64_t));
	if (!s->words)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	pagemap_init(&s->pages, s->words, npages);
	return 0;
}

/* In pieces: to get a large model's pages takes longer than a lease. */
static int prefault(struct agent *a, struct slab *mem, uint64_t off, uint64_t len, struct err *e)
{
	for (uint64_t at = 0; at < len; at += PREFAULT_BYTES) {
		int rc = slab_prefault(mem, off + at, MIN(len - at, PREFAULT_BYTES), e);

		if (rc)
			return rc;
		ctl_node_alive(a->node);
	}
	return 0;
}

/* Cards read inputs and sums, and write results.  What they do not know goes over TCP. */
static void tell_cards(struct agent *a, struct ad_slab *s, bool servers_write)
{
	struct err e;

	if (!xport_rdma_devices())
		return;
	(void)prefault(a, &s->mem, 0, s->mem.bytes, &e);	/* else by one long call */
	if (xport_region_new(&s->region, s->mem.base, s->mem.bytes, servers_write, &e))
		log_warn("rdma cannot be used for %llu MiB, which go over tcp, reason %s",
			 (unsigned long long)s->mem.bytes >> 20, e.text);
	ctl_node_alive(a->node);
}

static struct ad_slab *slab_make(struct agent *a, struct ad_job *j, const char *what,
				 uint64_t bytes, bool pages, bool servers_write, struct err *e)
{
	struct ad_slab *s = calloc(1, sizeof(*s));
	struct ad_shown shown;

	if (!s) {
		err_set(e, TALLY_ENOMEM, "out of memory");
		return NULL;
	}
	s->mem.fd = -1;
	s->job = j->id;
	list_init(&s->link);
	if (take_id(a, s, e)) {
		free(s);
		return NULL;
	}
	if (make(s, what, bytes, pages, e)) {
		ad_slab_free(a, s);
		return NULL;
	}
	tell_cards(a, s, servers_write);
	shown = (struct ad_shown){
		.job = j->id, .id = s->id, .fd = s->mem.fd, .bytes = s->mem.bytes,
		.region = s->region, .servers_write = servers_write,
	};
	for (uint32_t i = 0; i < a->nengines; i++)
		ad_engine_tell(a->engine[i], AD_SHOW, &shown, sizeof(shown));
	return s;
}

struct ad_slab *ad_slab_new(struct agent *a, struct ad_job *j, const char *what, uint64_t bytes,
			    bool pages, struct err *e)
{
	return slab_make(a, j, what, bytes, pages, false, e);
}

static void free_memory(void *ctx)
{
	struct ad_slab *s = ctx;

	xport_region_free(s->region);
	slab_free(&s->mem);
	free(s->words);
	free(s);
}

/* The kernel takes a large slab's pages back in one go, for longer than a lease lasts. */
void ad_slab_free(struct agent *a, struct ad_slab *s)
{
	list_del(&s->link);
	a->slab[s->id] = NULL;
	if (!a->loop || loop_work(a->loop, free_memory, s))
		free_memory(s);
}

/* A tensor knows its pages only when it has them: they are put back once. */
static int get_from(struct agent *a, struct ad_slab *s, uint32_t n, struct ad_slab **out,
		    uint32_t *page, struct err *e)
{
	uint32_t first = pagemap_get(&s->pages, n);
	int rc;

	if (first == UINT32_MAX)
		return TALLY_EAGAIN;
	rc = prefault(a, &s->mem, (uint64_t)first * PAGE_BYTES, (uint64_t)n * PAGE_BYTES, e);
	if (rc) {
		pagemap_put(&s->pages, first, n);
		return rc;
	}
	*out = s;
	*page = first;
	return 0;
}

int ad_pages_get(struct agent *a, struct ad_job *j, struct list *slabs, const char *what,
		 uint32_t n, struct ad_slab **out, uint32_t *page, struct err *e)
{
	uint64_t bytes = GROW_BYTES_MIN;
	struct ad_slab *fresh;
	uint32_t index = 0;
	int rc;

	list_for_each(slabs, l) {
		struct ad_slab *s = list_entry(l, struct ad_slab, link);

		rc = get_from(a, s, n, out, page, e);
		if (rc != TALLY_EAGAIN)
			return rc;
		bytes = MAX(bytes, 2 * s->mem.bytes);
		index++;
	}
	bytes = MAX(bytes, (uint64_t)n * PAGE_BYTES);
	fresh = slab_make(a, j, what, bytes, true, slabs == &j->results, e);
	if (!fresh)
		return e->code;
	fresh->index = index;
	list_add(slabs, &fresh->link);
	return get_from(a, fresh, n, out, page, e);
}

void ad_pages_put(struct ad_slab *s, uint32_t page, uint32_t n)
{
	pagemap_put(&s->pages, page, n);
}
