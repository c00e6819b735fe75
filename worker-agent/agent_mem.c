// SPDX-License-Identifier: Apache-2.0
/*
 * Slabs of the agent: every piece of memory that a process or a colocated server
 * may map.  Each has a number under which links show it; results and local sums
 * are given out of them page by page; arenas are a process's own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/base/parse.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "worker-agent/agent.h"

#define GROW_BYTES_MIN (4ull << 20)
#define PREFAULT_BYTES (16ull << 20)
/* Of all numbers, the others are for results and sums: a job that finds none for these ends. */
#define ARENA_SLABS_MAX (SLABS_PER_LINK_MAX - RESULT_SLABS_MAX)

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

void ad_slab_name(char name[AD_NAME_MAX], const char *what, uint32_t job)
{
	snprintf(name, AD_NAME_MAX, "%s %u", what, job);
}

void ad_ring_name(char name[AD_NAME_MAX], uint32_t job, uint32_t rank)
{
	snprintf(name, AD_NAME_MAX, "tally-ring %u.%u", job, rank);
}

enum layout { WHOLE, PAGES, MARKED_PAGES };	/* PAGES: given out one by one */

/*
 * Marks of small tensors that follow each other are neighbours, and no tensor takes a page
 * more for them.
 */
static uint32_t mark_pages(uint32_t npages)
{
	return (uint32_t)div_round_up(npages * sizeof(uint64_t), PAGE_BYTES);
}

static int make(struct ad_slab *s, const char *what, uint64_t bytes, enum layout layout,
		bool huge, struct err *e)
{
	char name[AD_NAME_MAX];
	uint32_t npages;
	int rc;

	ad_slab_name(name, what, s->job);
	rc = slab_new(&s->mem, name, bytes, huge, e);
	if (rc || layout == WHOLE)
		return rc;
	npages = (uint32_t)(s->mem.bytes / PAGE_BYTES);
	if (layout == MARKED_PAGES) {
		npages -= mark_pages(npages);
		s->marks = (uint64_t *)(s->mem.base + (uint64_t)npages * PAGE_BYTES);
	}
	s->words = calloc(2 * BITS_WORDS(npages), sizeof(uint64_t));
	if (!s->words)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	s->had = s->words + BITS_WORDS(npages);
	pagemap_init(&s->pages, s->words, npages);
	return 0;
}

static uint32_t unbacked(const struct ad_slab *s, uint32_t first, uint32_t n)
{
	uint32_t more = 0;

	for (uint32_t i = first; i < first + n; i++)
		more += !bits_test(s->had, i);
	return more;
}

/*
 * Memory that is not there would not be refused by the kernel: it would end somebody, us maybe.
 * Pages that were given out before have theirs.
 */
static int check_bytes(struct agent *a, const struct ad_slab *s, uint64_t bytes, const char *what,
		       struct err *e)
{
	uint64_t left = UINT64_MAX;
	char need[32];

	if (a->memory_bytes)
		left = a->memory_bytes - MIN(a->backed_bytes, a->memory_bytes);
	if (!s->mem.huge && a->unseen_bytes + bytes >= PREFAULT_BYTES) {
		left = MIN(left, host_memory_left_bytes());
		a->unseen_bytes = 0;
	}
	if (bytes > left)
		return err_set(e, TALLY_EQUOTA, "there is no memory for %s of %s",
			       fmt_bytes(need, sizeof(need), bytes), what);
	return 0;
}

static int check_memory(struct agent *a, const struct ad_slab *s, uint32_t first, uint32_t n,
			struct err *e)
{
	return check_bytes(a, s, (uint64_t)unbacked(s, first, n) * PAGE_BYTES, "results", e);
}

static void note_backed(struct agent *a, struct ad_slab *s, uint32_t first, uint32_t n)
{
	uint32_t more = unbacked(s, first, n);

	for (uint32_t i = first; i < first + n; i++)
		bits_set(s->had, i);
	s->backed += more;
	a->backed_bytes += (uint64_t)more * PAGE_BYTES;
	a->unseen_bytes += (uint64_t)more * PAGE_BYTES;
}

/* In pieces: to get a large model's pages takes longer than a lease. */
int ad_prefault(struct agent *a, struct slab *mem, uint64_t off, uint64_t len, struct err *e)
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
	int rc;

	if (!xport_rdma_devices())
		return;
	if (s->mem.device) {
		rc = xport_region_device(&s->region, s->mem.fd, s->mem.base, s->mem.bytes, &e);
	} else {
		(void)ad_prefault(a, &s->mem, 0, s->mem.bytes, &e);	/* else by one long call */
		rc = xport_region_new(&s->region, s->mem.base, s->mem.bytes, servers_write, &e);
	}
	if (rc)
		log_warn("rdma cannot be used for %llu MiB, which go over tcp, reason %s",
			 (unsigned long long)s->mem.bytes >> 20, e.text);
	ctl_node_alive(a->node);
}

/* All engines' links may show it from here on: to servers that write there, or only read. */
static void show(struct agent *a, struct ad_slab *s, bool servers_write)
{
	struct ad_shown shown = {
		.job = s->job, .id = s->id, .fd = s->mem.fd, .bytes = s->mem.bytes,
		.servers_write = servers_write,
	};

	if (s->read_fd >= 0)
		shown.fd = s->read_fd;
	tell_cards(a, s, servers_write);
	shown.region = s->region;
	for (uint32_t i = 0; i < a->nengines; i++)
		ad_engine_tell(a->engine[i], AD_SHOW, &shown, sizeof(shown));
}

/* With a number; without memory yet. */
static struct ad_slab *slab_number(struct agent *a, struct ad_job *j, struct err *e)
{
	struct ad_slab *s = calloc(1, sizeof(*s));

	if (!s) {
		err_set(e, TALLY_ENOMEM, "out of memory");
		return NULL;
	}
	s->mem.fd = s->read_fd = -1;
	s->job = j->id;
	list_init(&s->link);
	if (take_id(a, s, e)) {
		free(s);
		return NULL;
	}
	return s;
}

/* Cards know a slab as a whole, so all of it gets its memory before the first page is given. */
static int back_for_cards(struct agent *a, struct ad_slab *s, struct err *e)
{
	int rc;

	if (!xport_rdma_devices())
		return 0;
	if (!s->words) {		/* an arena, which no account is kept of */
		rc = check_bytes(a, s, s->mem.bytes, "an arena", e);
		a->unseen_bytes += rc ? 0 : s->mem.bytes;
		return rc;
	}
	rc = check_memory(a, s, 0, s->pages.pages, e);
	if (!rc)
		note_backed(a, s, 0, s->pages.pages);
	return rc;
}

/* Once for each agent: from then on it takes small pages. */
static void say_no_huge(struct agent *a, const struct err *why)
{
	if (!a->no_huge)
		log_warn("agent %s takes small pages instead of huge ones, reason %s", a->name,
			 why->text);
	a->no_huge = true;
}

/*
 * A slab's huge pages are kept for it, but may be refused still when they are touched, which
 * would end this process: so all of them are had now, or small ones instead.  Those of an arena
 * are its process's to have.
 */
static int make_usable(struct agent *a, struct ad_slab *s, const char *what, uint64_t bytes,
		       enum layout layout, bool huge, struct err *e)
{
	int rc = make(s, what, bytes, layout, huge && !a->no_huge, e);

	if (rc || !s->mem.huge || layout == WHOLE || !ad_prefault(a, &s->mem, 0, s->mem.bytes, e))
		return rc;
	say_no_huge(a, e);
	free(s->words);
	s->words = NULL;
	slab_free(&s->mem);
	return make(s, what, bytes, layout, false, e);
}

static struct ad_slab *slab_make(struct agent *a, struct ad_job *j, const char *what,
				 uint64_t bytes, enum layout layout, bool huge, struct err *e)
{
	struct ad_slab *s = slab_number(a, j, e);

	if (!s)
		return NULL;
	if (make_usable(a, s, what, bytes, layout, huge, e) || back_for_cards(a, s, e) ||
	    (layout != MARKED_PAGES && slab_readonly_fd(&s->mem, &s->read_fd, e))) {
		ad_slab_free(a, s);
		return NULL;
	}
	show(a, s, layout == MARKED_PAGES);	/* results */
	return s;
}

struct ad_slab *ad_slab_new(struct agent *a, struct ad_job *j, const char *what, uint64_t bytes,
			    bool huge, struct err *e)
{
	return slab_make(a, j, what, bytes, WHOLE, huge, e);
}

struct ad_slab *ad_slab_adopt(struct agent *a, struct ad_job *j, struct slab *mem, struct err *e)
{
	struct ad_slab *s = slab_number(a, j, e);

	if (!s)
		return NULL;
	s->mem = *mem;
	*mem = (struct slab){ .fd = -1 };
	if (!s->mem.device && slab_readonly_fd(&s->mem, &s->read_fd, e)) {
		ad_slab_free(a, s);
		return NULL;
	}
	show(a, s, false);
	return s;
}

/* Of small pages: processes map it where the one before was. */
struct ad_slab *ad_results_again(struct agent *a, struct ad_job *j, uint64_t bytes, struct err *e)
{
	struct ad_slab *s = slab_make(a, j, AD_RESULTS, bytes, MARKED_PAGES, false, e);

	if (!s)
		return NULL;
	list_for_each(&j->results, l)
		s->index++;
	list_add(&j->results, &s->link);
	return s;
}

static int copy_bytes(struct agent *a, struct ad_slab *s, uint64_t at, uint64_t len, int fd,
		      struct err *e)
{
	uint64_t end = at + len;
	int rc = ad_prefault(a, &s->mem, at, len, e);

	while (!rc && at < end) {
		ssize_t got = pread(fd, s->mem.base + at, MIN(end - at, PREFAULT_BYTES),
				    (off_t)at);

		if (got <= 0)
			return err_set(e, TALLY_EPROTO, "results that were handed back: %s",
				       got ? strerror(errno) : "too short");
		at += (uint64_t)got;
		ctl_node_alive(a->node);
	}
	return rc;
}

static uint64_t marks_at(const struct ad_slab *s, uint32_t page)
{
	return (uint64_t)((const uint8_t *)&s->marks[page] - s->mem.base);
}

int ad_pages_copy(struct agent *a, struct ad_slab *s, uint32_t page, uint32_t n, int fd,
		  struct err *e)
{
	int rc = check_memory(a, s, page, n, e);

	if (rc)
		return rc;
	note_backed(a, s, page, n);
	rc = copy_bytes(a, s, (uint64_t)page * PAGE_BYTES, (uint64_t)n * PAGE_BYTES, fd, e);
	return rc ? rc : copy_bytes(a, s, marks_at(s, page), n * sizeof(uint64_t), fd, e);
}

static void free_memory(void *ctx)
{
	struct ad_slab *s = ctx;

	xport_region_free(s->region);
	if (s->read_fd >= 0)
		close(s->read_fd);
	slab_free(&s->mem);
	free(s->words);
	free(s);
}

/* The kernel takes a large slab's pages back in one go, for longer than a lease lasts. */
void ad_slab_free(struct agent *a, struct ad_slab *s)
{
	list_del(&s->link);
	a->slab[s->id] = NULL;
	a->backed_bytes -= (uint64_t)s->backed * PAGE_BYTES;
	if (a->loop && !loop_work(a->loop, free_memory, s))
		return;
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
	rc = check_memory(a, s, first, n, e);
	if (!rc)
		note_backed(a, s, first, n);	/* also where it ends half-way */
	rc = rc ? rc : ad_prefault(a, &s->mem, (uint64_t)first * PAGE_BYTES,
				   (uint64_t)n * PAGE_BYTES, e);
	if (!rc && s->marks)
		rc = ad_prefault(a, &s->mem, marks_at(s, first), n * sizeof(uint64_t), e);
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
	enum layout layout = slabs == &j->results ? MARKED_PAGES : PAGES;
	uint64_t need = ((uint64_t)n + 2 * mark_pages(n)) * PAGE_BYTES, bytes = GROW_BYTES_MIN;
	uint64_t all = 0;
	struct ad_slab *fresh;
	uint32_t index = 0;
	int rc;

	list_for_each(slabs, l) {
		struct ad_slab *s = list_entry(l, struct ad_slab, link);

		rc = get_from(a, s, n, out, page, e);
		if (rc != TALLY_EAGAIN)
			return rc;
		bytes = MAX(bytes, 2 * s->mem.bytes);
		all += s->mem.bytes;
		index++;
	}
	if (xport_rdma_devices())
		bytes = MIN(bytes, slab_ahead_max(all, UINT64_MAX));
	bytes = MAX(bytes, need);
	fresh = slab_make(a, j, what, bytes, layout, true, e);
	while (!fresh && bytes > need) {	/* slabs are to be few, but not at any price */
		bytes = MAX(bytes / 2 / PAGE_BYTES * PAGE_BYTES, need);
		fresh = slab_make(a, j, what, bytes, layout, true, e);
	}
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

/* ---- arenas ---- */

static bool has_room(struct ad_session *s, uint64_t req)
{
	const struct agent *a = s->agent;
	uint32_t all = 0, mine = 0;

	for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++) {
		all += a->slab[id] && a->slab[id]->owner;
		mine += a->slab[id] && a->slab[id]->owner && a->slab[id]->uid == s->uid;
	}
	if (s->nslabs >= SLABS_PER_PROCESS_MAX)
		(void)ctl_reply(s->ctl, req, TALLY_EQUOTA, "no more arena slabs for this process");
	else if (!user_has_room(mine, all, ARENA_SLABS_MAX))
		(void)ctl_reply(s->ctl, req, TALLY_EQUOTA, "user id %u has %u arena slabs at agent "
				"%s, and the last %u are for others", s->uid, mine, a->name,
				ARENA_SLABS_MAX - MIN(all, ARENA_SLABS_MAX));
	else
		return true;
	return false;
}

static void arena_add(struct ad_session *s, struct ad_slab *slab)
{
	slab->index = s->nslabs++;
	slab->owner = s->serial;
	slab->local = s->local;
	slab->uid = s->uid;
	list_add(&s->job->inputs, &slab->link);
}

static void arena_give(struct ad_session *s, const struct ad_slab *slab, uint64_t req)
{
	const struct msg m = {
		.type = MSG_SLAB,
		.slab = {
			.req = req,
			.id = slab->index,
			.kind = slab->mem.device ? SLAB_DEVICE : SLAB_INPUT,
			.bytes = slab->mem.bytes,
		},
	};

	(void)ad_session_send(s, &m, &slab->mem.fd, !slab->mem.device);
}

/* The ring may name it from here on; the process is answered then. */
static void arena_open(struct ad_session *s, struct ad_slab *slab, uint64_t req)
{
	const struct ad_slab_mail mail = { .session = s, .slab = slab, .req = req };

	ad_engine_tell(s->agent->engine[0], AD_SLAB, &mail, sizeof(mail));
}

void ad_arena_want(struct ad_session *s, const struct msg_slab *m)
{
	struct ad_slab *slab;
	struct err e;

	if (!has_room(s, m->req))
		return;
	if (!m->bytes || m->bytes > SLAB_BYTES_MAX) {
		(void)ctl_reply(s->ctl, m->req, TALLY_EINVAL, "impossible slab size");
		return;
	}
	if (m->bytes > s->agent->memory_bytes - MIN(s->arena_bytes, s->agent->memory_bytes)) {
		(void)ctl_reply(s->ctl, m->req, TALLY_EQUOTA, "the arenas of this process would be "
				"larger than the machine's memory");
		return;
	}
	slab = ad_slab_new(s->agent, s->job, AD_ARENA, m->bytes, !m->small && !s->no_huge, &e);
	if (!slab) {
		(void)ctl_reply(s->ctl, m->req, e.code, "%s", e.text);
		return;
	}
	s->arena_bytes += slab->mem.bytes;
	arena_add(s, slab);
	arena_give(s, slab, m->req);
}

int ad_device_map(const struct agent *a, struct slab *mem, int fd, uint64_t bytes, struct err *e)
{
	if (!a->opt.dma_buf)
		return err_set(e, TALLY_EAUTH, "agent %s takes no memory of devices (tally-agent "
			       "--dma-buf)", a->name);
	return slab_map_device(mem, fd, bytes, false, e);
}

void ad_arena_import(struct ad_session *s, const struct msg_slab *m)
{
	struct slab mem = { .fd = -1 };
	struct ad_slab *slab;
	int fd = -1, rc;
	struct err e;

	if (!ctl_take_fds(s->ctl, &fd, 1))
		fd = -1;
	rc = ad_device_map(s->agent, &mem, fd, m->bytes, &e);
	if (rc) {
		if (fd >= 0)
			close(fd);
		(void)ctl_reply(s->ctl, m->req, rc, "%s", e.text);
		return;
	}
	if (has_room(s, m->req)) {
		slab = ad_slab_adopt(s->agent, s->job, &mem, &e);
		if (slab) {
			arena_add(s, slab);
			arena_open(s, slab, m->req);
		} else {
			(void)ctl_reply(s->ctl, m->req, e.code, "%s", e.text);
		}
	}
	slab_free(&mem);		/* harmless once it is adopted */
}

void ad_session_slab_ready(const struct ad_slab_mail *mail)
{
	if (mail->req && mail->slab->mem.device)
		arena_give(mail->session, mail->slab, mail->req);
	else if (mail->req && mail->session->ctl)	/* else it has handed it back */
		(void)ctl_reply(mail->session->ctl, mail->req, 0, "%s", "");
}

static struct ad_slab *arena_of(const struct ad_session *s, uint32_t index)
{
	list_for_each(&s->job->inputs, l) {
		struct ad_slab *slab = list_entry(l, struct ad_slab, link);

		if (slab->owner == s->serial && slab->index == index)
			return slab;
	}
	return NULL;
}

/* Engines and links may know it: it is free when they have said that they do not any more. */
static void arena_hide(struct agent *a, struct ad_slab *slab)
{
	const struct ad_shown shown = { .job = slab->job, .id = slab->id };

	slab->hiding = a->nengines;
	for (uint32_t i = 0; i < a->nengines; i++)
		ad_engine_tell(a->engine[i], AD_HIDE, &shown, sizeof(shown));
}

/* Without use for its process, which did not get its pages, or may not have these. */
static void arena_take_back(struct ad_session *s, struct ad_slab *slab)
{
	const struct ad_job *j = s->job;

	s->arena_bytes -= MIN(slab->mem.bytes, s->arena_bytes);
	if (slab->index + 1 == s->nslabs)
		s->nslabs--;
	slab->owner = 0;
	slab->index = UINT32_MAX;
	if (!s->agent->stopping && !j->adopting && j->state == JOB_RUNNING)
		arena_hide(s->agent, slab);
}

static void arena_refused(struct ad_session *s, struct ad_slab *slab, uint64_t req)
{
	char limit[LIMIT_TEXT_MAX];

	if (slab->mem.huge && !s->no_huge) {
		slab_huge_text(&slab->mem, s->pid, limit);
		log_warn("%s of job '%s' gets small pages instead of huge ones, reason %s",
			 s->called, s->job_name,
			 limit[0] ? limit : "its cpuset or its limits have none for it");
	}
	s->no_huge = true;
	arena_take_back(s, slab);
	(void)ctl_reply(s->ctl, req, 0, "%s", "");
}

/*
 * The process has mapped it, and nobody can do anything to it from here on that would end who
 * reads it: not before is anything read there.
 */
void ad_arena_mapped(struct ad_session *s, const struct msg_slab *m)
{
	struct ad_slab *slab = arena_of(s, m->id);
	struct err e;

	if (m->kind != SLAB_INPUT)
		return;
	if (!slab || slab->mem.device) {
		(void)ctl_reply(s->ctl, m->req, TALLY_EINVAL, "no such slab");
		return;
	}
	if (m->small) {
		arena_refused(s, slab, m->req);
		return;
	}
	if (slab_seal(&slab->mem, &e)) {
		log_warn("slab of %s not sealed, reason %s", s->called, e.text);
		if (slab->mem.huge) {	/* small pages that were punched read as zeros */
			(void)ctl_reply(s->ctl, m->req, e.code, "%s", e.text);
			return;
		}
	}
	/* A process that has not got its pages would have us touch them first. */
	if (slab->mem.huge && ad_prefault(s->agent, &slab->mem, 0, slab->mem.bytes, &e)) {
		arena_take_back(s, slab);
		(void)ctl_reply(s->ctl, m->req, e.code, "%s", e.text);
		return;
	}
	arena_open(s, slab, m->req);
}

static bool has_process(const struct agent *a, uint64_t serial)
{
	list_for_each(&a->sessions, l)
		if (list_entry(l, struct ad_session, link)->serial == serial)
			return true;
	return false;
}

/* Engines that are in the world without its rank know when they have done with it. */
void ad_arenas_tidy(struct ad_job *j)
{
	struct agent *a = j->agent;

	if (a->stopping || j->adopting || j->state != JOB_RUNNING)
		return;
	list_for_each(&j->inputs, l) {
		struct ad_slab *s = list_entry(l, struct ad_slab, link);

		if (s->hiding || j->live >> s->local & 1 || has_process(a, s->owner))
			continue;
		arena_hide(a, s);
	}
}

void ad_arena_hidden(struct agent *a, const struct ad_shown *m)
{
	struct ad_slab *s = a->slab[m->id];

	if (--s->hiding)
		return;
	log_info("job %u: %llu MiB of an arena that is not used any more are free again", m->job,
		 (unsigned long long)s->mem.bytes >> 20);
	ad_slab_free(a, s);
}
