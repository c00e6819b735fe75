// SPDX-License-Identifier: Apache-2.0
/*
 * Processes that come back to an agent which was started again.
 *
 * A process that lost its agent hands back what it had of it, then attaches: the memfds of
 * its arena and of the results, where each tensor's results lie, and the last round that it
 * has had (SLAB, DECLARED, ATTACH that names the job).  With the last of the machine's
 * processes the scheduler tells the job again.  That is kept until it says that this was
 * all, and then taken in as a whole: a connection that breaks in the middle leaves nothing.
 *
 * Nobody is believed who has not what the first agent gave to that rank of that job alone:
 * each memfd is ours, and was called by its maker after what it is for; a ring after its
 * rank, too.  So no process can come back as another user's, nor disturb its job.
 *
 * Arenas are mapped as they are.  Results go into fresh memory, at the places where they were,
 * so that processes map it where the first was and no pointer of theirs changes; what servers
 * on this machine still write into the first is nobody's any more.  The marks beside the
 * results say which segments had theirs (agent_core_mark.c).  Copies to a GPU that were put on
 * its lanes before read the first memory, whatever is mapped: there the results of rounds that
 * are in flight go, too, until these are over.
 *
 * A machine that comes into a running job with ranks in the place of lost ones hears it in
 * the same way, and there is nothing to hand back.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rt/log.h"
#include "worker-agent/agent.h"

struct ad_back {
	uint32_t job;			/* 0: it has not asked to attach yet */
	mono_t attach_by;
	uint64_t barriers;
	int ring;			/* owned; -1: not yet */
	struct slab input[SLABS_PER_PROCESS_MAX];	/* by index; owned */
	uint32_t ninputs, nresults, nold;
	struct ad_result {
		int fd;			/* owned */
		uint64_t bytes;
		dev_t dev;
		ino_t ino;
	} result[RESULT_SLABS_MAX], old[RESULT_SLABS_MAX];	/* old: that its GPU reads */
	uint32_t nrows, room;
	struct msg_declared_tensor *row;	/* owned; by id once it asks to attach */
};

/* Where a tensor's results were, by what the processes say. */
struct ad_kept {
	uint32_t id, page, npages;	/* npages: of one round's */
	struct ad_slab *slab;
	bool claimed;
};

/* The job as it is told again. */
struct ad_returning {
	struct list link;		/* in agent->returning */
	uint32_t job;
	struct list wires;		/* ad_entry.link */
};

/* ---- what a process hands back ---- */

static struct ad_back *back_of(struct ad_session *s)
{
	if (s->back)
		return s->back;
	s->back = calloc(1, sizeof(*s->back));
	if (!s->back)
		return NULL;
	s->back->attach_by = loop_now() + mono_ms(HANDSHAKE_MS);
	s->back->ring = -1;
	return s->back;
}

bool ad_back_late(const struct ad_session *s, mono_t now)
{
	return s->state == SESSION_NEW && s->back && now >= s->back->attach_by;
}

#define ROWS_PER_FD	16u		/* so many may take as much of us as a descriptor */

/*
 * Bounds what processes of one user hand back before they say whose it is: together no more than
 * a part of our descriptors, so that others have theirs; the first one may always go on. A
 * process that is refused so comes again, as it would if this agent had ended.
 */
static bool has_room(const struct ad_session *s)
{
	struct rlimit fds;
	uint64_t others = 0;
	bool is_first = true, met = false;

	list_for_each(&s->agent->sessions, l) {
		const struct ad_session *o = list_entry(l, struct ad_session, link);
		const struct ad_back *b = o->back;

		met |= o == s;
		if (o == s || !b || o->state != SESSION_NEW || o->uid != s->uid)
			continue;
		is_first &= met;
		others += b->ninputs + b->nresults + b->nold + b->nrows / ROWS_PER_FD + 1;
	}
	return is_first || getrlimit(RLIMIT_NOFILE, &fds) || others < fds.rlim_cur / 4;
}

static bool come_again(struct ad_session *s)
{
	if (has_room(s))
		return false;
	log_warn("%s uid %u is to come back later: others of its user hand back much",
		 s->called, s->uid);
	ctl_close(s->ctl);
	return true;
}

/* Only what an agent has made: nobody else can give it to our user. */
static int check_owner(int fd, uint64_t bytes, struct err *e)
{
	int seals = fcntl(fd, F_GET_SEALS), want = F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat st;

	if (fd < 0 || seals < 0 || (seals & want) != want || fstat(fd, &st) ||
	    st.st_uid != geteuid() || !bytes || bytes > (uint64_t)st.st_size)
		return err_set(e, TALLY_EPROTO, "a slab that no agent has given");
	return 0;
}

/*
 * Sealed, if the first agent has not come to that.  One of huge pages, of which it has, can only
 * be read.
 */
static int take_input(struct ad_session *s, const struct msg_slab *m, int fd, struct err *e)
{
	struct slab *mem = &s->back->input[MIN(m->id, SLABS_PER_PROCESS_MAX - 1)];
	int rc;

	if (m->id >= SLABS_PER_PROCESS_MAX || mem->base)
		return err_set(e, TALLY_EPROTO, "slab %u cannot be", m->id);
	if (m->kind == SLAB_DEVICE)
		return ad_device_map(s->agent, mem, fd, m->bytes, e);
	rc = slab_map(mem, fd, m->bytes, true, e) ? slab_map(mem, fd, m->bytes, false, e) : 0;
	if (rc)
		return rc;
	if ((slab_seal(mem, NULL) && mem->huge) || !slab_is_solid(mem))
		rc = err_set(e, TALLY_EPROTO, "slab %u can be punched", m->id);
	else if (mem->huge)		/* which the process has, or the kernel refuses us */
		rc = ad_prefault(s->agent, mem, 0, mem->bytes, e);
	if (!rc)
		return 0;
	mem->fd = -1;			/* still the caller's */
	slab_free(mem);
	return rc;
}

/* Each once. */
static int take_one(struct ad_result *of, uint32_t *n, const struct msg_slab *m, int fd,
		    struct err *e)
{
	struct stat st = { 0 };

	(void)fstat(fd, &st);
	for (uint32_t i = 0; i < *n; i++)
		if (of[i].ino == st.st_ino && of[i].dev == st.st_dev)
			return err_set(e, TALLY_EPROTO, "result slab %u is slab %u", m->id, i);
	if (m->id != *n || m->id == RESULT_SLABS_MAX)
		return err_set(e, TALLY_EPROTO, "result slab %u after %u", m->id, *n);
	of[(*n)++] = (struct ad_result){
		.fd = fd, .bytes = m->bytes, .dev = st.st_dev, .ino = st.st_ino,
	};
	return 0;
}

/* There will be as much memory of our own. */
static int take_result(struct ad_session *s, const struct msg_slab *m, int fd, struct err *e)
{
	return take_one(s->back->result, &s->back->nresults, m, fd, e);
}

static int take_old(struct ad_session *s, const struct msg_slab *m, int fd, struct err *e)
{
	return take_one(s->back->old, &s->back->nold, m, fd, e);
}

static int take_ring(struct ad_session *s, const struct msg_slab *m, int fd, struct err *e)
{
	(void)m;
	if (s->back->ring >= 0)
		return err_set(e, TALLY_EPROTO, "a second ring");
	s->back->ring = fd;
	return 0;
}

static void refuse(struct ad_session *s, const struct err *e)
{
	log_warn("%s uid %u does not come back, reason %s", s->called, s->uid, e->text);
	(void)ctl_reply(s->ctl, 0, e->code, "%s", e->text);
	ctl_close(s->ctl);
}

void ad_back_slab(struct ad_session *s, const struct msg_slab *m)
{
	static int (*const take[])(struct ad_session *, const struct msg_slab *, int,
				   struct err *) = {
		[SLAB_INPUT] = take_input, [SLAB_RESULT] = take_result, [SLAB_RING] = take_ring,
		[SLAB_DEVICE] = take_input, [SLAB_OLD] = take_old,
	};
	struct ad_back *b;
	struct err e;
	int fd = -1, rc;

	b = back_of(s);
	if (!ctl_take_fds(s->ctl, &fd, 1))
		fd = -1;
	if (come_again(s))
		goto closed;
	rc = b ? 0 : err_set(&e, TALLY_ENOMEM, "out of memory");
	if (!rc && m->kind != SLAB_DEVICE)
		rc = check_owner(fd, m->bytes, &e);
	rc = rc ? rc : take[m->kind](s, m, fd, &e);
	if (!rc) {
		b->ninputs += m->kind == SLAB_INPUT || m->kind == SLAB_DEVICE;
		return;
	}
	refuse(s, &e);
closed:
	if (fd >= 0)
		close(fd);
}

void ad_back_rows(struct ad_session *s, const struct msg_declared *m)
{
	struct ad_back *b;
	struct msg_declared_tensor *more;
	struct err e = { .code = TALLY_ENOMEM, .text = "out of memory" };

	b = back_of(s);
	if (come_again(s))
		return;
	if (b && m->ntensors > TENSORS_PER_JOB_MAX - b->nrows)
		err_set(&e, TALLY_EPROTO, "more than %u tensors", TENSORS_PER_JOB_MAX);
	else if (b && m->ntensors) {
		more = realloc(b->row, (b->nrows + m->ntensors) * sizeof(*more));
		if (more) {
			memcpy(more + b->nrows, m->tensors, m->ntensors * sizeof(*more));
			b->row = more;
			b->nrows += m->ntensors;
			return;
		}
	} else if (b) {
		return;
	}
	refuse(s, &e);
}

static int by_id(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;	/* id comes first in rows and in ad_kept */

	return *x < *y ? -1 : *x > *y;
}

static_assert(offsetof(struct msg_declared_tensor, id) == 0, "rows are sorted by it");
static_assert(offsetof(struct ad_kept, id) == 0, "they are, too");

/* All of it was that rank's of that job, and nobody else's. */
static bool are_its(const struct ad_back *b, uint32_t job, uint32_t rank)
{
	char name[AD_NAME_MAX];

	ad_ring_name(name, job, rank);
	if (b->ring < 0 || !slab_is_named(b->ring, name))
		return false;
	ad_slab_name(name, AD_ARENA, job);
	for (uint32_t i = 0; i < SLABS_PER_PROCESS_MAX; i++)
		if (b->input[i].base && !b->input[i].device &&
		    !slab_is_named(b->input[i].fd, name))
			return false;
	ad_slab_name(name, AD_RESULTS, job);
	for (uint32_t i = 0; i < b->nresults; i++)
		if (!slab_is_named(b->result[i].fd, name))
			return false;
	for (uint32_t i = 0; i < b->nold; i++)
		if (!slab_is_named(b->old[i].fd, name))
			return false;
	return true;
}

int ad_back_attach(struct ad_session *s, const struct msg_attach *m, struct err *e)
{
	struct ad_back *b = s->back;

	if (!m->back && !b)
		return 0;
	if (!m->back || !b || !are_its(b, m->back, m->rank)) {
		err_set(e, TALLY_EPROTO, "what was handed back is not that of rank %u of job %u",
			m->rank, m->back);
		refuse(s, e);
		return e->code;
	}
	b->job = m->back;
	b->barriers = m->barriers;
	if (b->nrows)
		qsort(b->row, b->nrows, sizeof(*b->row), by_id);
	return 0;
}

uint32_t ad_back_job(const struct ad_session *s)
{
	return s->back ? s->back->job : 0;
}

/* ---- the job is told again ---- */

static struct ad_session *next_of(const struct agent *a, uint32_t job, struct ad_session *after)
{
	const struct list *l = after ? after->link.next : a->sessions.next;

	for (; l != &a->sessions; l = l->next) {
		struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->state == SESSION_JOINING && ad_back_job(s) == job)
			return s;
	}
	return NULL;
}

static struct ad_returning *returning(struct agent *a, uint32_t job)
{
	list_for_each(&a->returning, l)
		if (list_entry(l, struct ad_returning, link)->job == job)
			return list_entry(l, struct ad_returning, link);
	return NULL;
}

static void drop(struct ad_returning *r)
{
	while (!list_empty(&r->wires)) {
		struct ad_entry *entry = list_first(&r->wires, struct ad_entry, link);

		list_del(&entry->link);
		free(entry);
	}
	list_del(&r->link);
	free(r);
}

void ad_back_free(struct ad_session *s)
{
	struct ad_returning *r = s->back ? returning(s->agent, s->back->job) : NULL;
	struct ad_back *b = s->back;

	if (!b)
		return;
	for (uint32_t i = 0; i < SLABS_PER_PROCESS_MAX; i++)
		slab_free(&b->input[i]);
	while (b->nresults)
		close(b->result[--b->nresults].fd);
	while (b->nold)
		close(b->old[--b->nold].fd);
	if (b->ring >= 0)
		close(b->ring);
	free(b->row);
	free(b);
	s->back = NULL;
	if (r && !next_of(s->agent, r->job, NULL))
		drop(r);		/* nobody is left who wants it */
}

void ad_back_forget(struct agent *a)
{
	while (!list_empty(&a->returning))
		drop(list_first(&a->returning, struct ad_returning, link));
}

/* A process that waits for its answer; also one that comes in the place of a lost rank. */
static bool is_wanted(const struct agent *a, const struct msg_job_up *m)
{
	list_for_each(&a->sessions, l) {
		const struct ad_session *s = list_entry(l, struct ad_session, link);

		if (s->state == SESSION_JOINING && !strcmp(s->job_name, m->name))
			return true;
	}
	return false;
}

/* They ended when the scheduler could not be told, or have nothing that they could go on with. */
static void lose_all(struct agent *a, const struct msg_job_up *m, const char *why)
{
	for (uint32_t i = 0; i < m->nmachines; i++)
		for (uint32_t k = 0; m->machines[i].node == a->my_node &&
				     k < m->machines[i].nranks; k++) {
			const struct msg lost = { .type = MSG_RANK_LEAVE, .rank_leave = {
				.job = m->job, .rank = m->machines[i].ranks[k],
				.code = TALLY_EWORKERLOST, .text = why,
			} };

			(void)ad_tell_scheduler(a, &lost);
		}
}

/* True: it is taken in later, or not at all. */
static bool keeps_up(struct agent *a, const struct msg_job_up *m, struct ad_returning **r)
{
	bool again = m->seq || m->epoch_seq;	/* the job is running */

	if (*r)
		drop(*r);
	*r = NULL;
	if (again && !is_wanted(a, m)) {
		lose_all(a, m, "its process has ended");
		return true;
	}
	if (!next_of(a, m->job, NULL) && !m->epoch_seq)
		return false;
	*r = calloc(1, sizeof(**r));
	if (!*r)
		return true;
	(*r)->job = m->job;
	list_init(&(*r)->wires);
	list_add(&a->returning, &(*r)->link);
	return true;
}

/*
 * Keeps JOB_UP or TENSORS for later; an entry that cannot be kept is missed when the job is
 * taken in.
 */
bool ad_back_keeps(struct agent *a, const struct msg *m)
{
	uint32_t job = m->type == MSG_JOB_UP ? m->job_up.job : m->tensors.job;
	struct ad_returning *r = returning(a, job);
	struct ad_job *j = ad_job_find(a, job);
	struct ad_entry *entry;
	struct err e;

	if (j && j->state != JOB_STOPPING)
		return false;
	if (m->type == MSG_JOB_UP ? !keeps_up(a, &m->job_up, &r) : !r)
		return false;
	if (r && ad_entry_new(m, &entry, &e))
		drop(r);
	else if (r)
		list_add(&r->wires, &entry->link);
	return true;
}

/* ---- where results were ---- */

static uint32_t results_of(const struct agent *a, uint32_t job, const struct ad_session **most)
{
	uint32_t n = 0;

	for (struct ad_session *s = NULL; (s = next_of(a, job, s)); ) {
		if (s->back->nresults < n)
			continue;
		n = s->back->nresults;
		*most = s;
	}
	return n;
}

static int make_results(struct ad_job *j, struct err *e)
{
	const struct ad_session *s = NULL;
	uint32_t n = results_of(j->agent, j->id, &s);

	for (uint32_t i = 0; i < n; i++)
		if (!ad_results_again(j->agent, j, s->back->result[i].bytes, e))
			return e->code;
	return 0;
}

static struct ad_slab *result_at(const struct ad_job *j, uint32_t index)
{
	list_for_each(&j->results, l)
		if (list_entry(l, struct ad_slab, link)->index == index)
			return list_entry(l, struct ad_slab, link);
	return NULL;
}

static int bad_row(uint32_t id, struct err *e)
{
	return err_set(e, TALLY_EPROTO, "results of tensor %u are handed back where they cannot "
		       "be", id);
}

static int keep_row(const struct ad_job *j, const struct msg_declared_tensor *row, uint32_t *n,
		    struct err *e)
{
	struct ad_kept *k = &j->kept[*n];
	uint64_t bytes = row->off[1] - row->off[0];

	if (row->off[0] == row->off[1])
		return 0;		/* it has no elements */
	*k = (struct ad_kept){ .id = row->id, .slab = result_at(j, row->slab) };
	if (!k->slab || row->off[1] < row->off[0] || bytes % PAGE_BYTES ||
	    row->off[0] % PAGE_BYTES || !range_ok(row->off[0], 2 * bytes, k->slab->mem.bytes))
		return bad_row(row->id, e);
	k->page = (uint32_t)(row->off[0] / PAGE_BYTES);
	k->npages = (uint32_t)(bytes / PAGE_BYTES);
	++*n;
	return 0;
}

/* All processes say the same of a tensor that they both have. */
static int merge_rows(const struct ad_job *j, uint32_t *rows, struct err *e)
{
	uint32_t n = 0;

	if (*rows)
		qsort(j->kept, *rows, sizeof(*j->kept), by_id);
	for (uint32_t i = 0; i < *rows; i++) {
		const struct ad_kept *k = &j->kept[i], *last = n ? &j->kept[n - 1] : NULL;

		if (!last || last->id != k->id)
			j->kept[n++] = *k;
		else if (last->slab != k->slab || last->page != k->page ||
			 last->npages != k->npages)
			return bad_row(k->id, e);
	}
	*rows = n;
	return 0;
}

/* nkept: those whose pages are theirs now. */
static int keep_rows(struct ad_job *j, struct err *e)
{
	uint64_t all = 1;
	uint32_t n = 0;
	int rc = 0;

	for (struct ad_session *s = NULL; (s = next_of(j->agent, j->id, s)); )
		all += s->back->nrows;
	j->kept = calloc(all, sizeof(*j->kept));
	if (!j->kept)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	for (struct ad_session *s = NULL; !rc && (s = next_of(j->agent, j->id, s)); )
		for (uint32_t i = 0; !rc && i < s->back->nrows; i++)
			rc = keep_row(j, &s->back->row[i], &n, e);
	rc = rc ? rc : merge_rows(j, &n, e);
	for (; !rc && j->nkept < n; j->nkept += !rc) {
		struct ad_kept *k = &j->kept[j->nkept];

		if (!pagemap_take(&k->slab->pages, k->page, 2 * k->npages))
			rc = bad_row(k->id, e);
	}
	return rc;
}

int ad_back_memory(struct ad_tensor *t, bool *kept, struct err *e)
{
	const struct ad_session *s = NULL;
	struct ad_job *j = t->job;
	struct ad_kept *k = j->nkept ? bsearch(&t->id, j->kept, j->nkept, sizeof(*k), by_id) :
				       NULL;

	*kept = k != NULL;
	if (!k)
		return 0;
	if (k->npages != t->npages || k->claimed)
		return bad_row(t->id, e);
	k->claimed = true;
	t->result = k->slab;
	t->result_page[0] = k->page;
	(void)results_of(j->agent, j->id, &s);
	return ad_pages_copy(j->agent, k->slab, k->page, 2 * k->npages,
			     s->back->result[k->slab->index].fd, e);
}

/* ---- how far the ranks are ---- */

/* NULL: it has not heard of that tensor, as who came into the job late, or declares it now. */
static const struct msg_declared_tensor *row_of(const struct ad_session *s, uint32_t id)
{
	return s->back->nrows ? bsearch(&id, s->back->row, s->back->nrows,
					sizeof(*s->back->row), by_id) : NULL;
}

static uint32_t local_of(const struct ad_job *j, uint32_t rank)
{
	uint32_t l = 0;

	while (l < j->nlocal && j->front.rank[l] != rank)
		l++;
	return l;
}

static void keep_round(struct ad_tensor *t, uint32_t local, const struct msg_declared_tensor *row,
		       uint32_t newest)
{
	if (local == t->job->nlocal)
		return;
	if (row->round != newest)
		t->front->in[local].behind = newest;
}

/* The rank's GPU waits for the round in flight where an agent before us has put results. */
static int keep_showing(struct ad_tensor *t, const struct ad_back *b,
			const struct msg_declared_tensor *row, struct err *e)
{
	const struct ad_result *r = &b->old[row->was - 1];

	if (row->was > b->nold || !row->flies)
		return bad_row(t->id, e);
	return ad_was_show(t, r->fd, r->bytes, round_next(row->round), e);
}

/* The marks are read once, here: servers on this machine can write beside them. */
int ad_back_resume(struct ad_tensor *t, uint64_t seq, struct err *e)
{
	struct ad_job *j = t->job;
	bool behind = false, known = false;
	const struct msg_declared_tensor *row;
	uint32_t newest = 0;

	if (!next_of(j->agent, j->id, NULL))
		return 0;		/* nobody was here before */
	t->desc.round = 0;
	for (struct ad_session *s = NULL; (s = next_of(j->agent, j->id, s)); ) {
		row = row_of(s, t->id);
		if (!row)
			continue;
		known = true;
		if (!newest || row->round == round_next(newest))
			newest = row->round;
	}
	/* Who came late has not declared it yet.  What is younger all declare as it is declared. */
	if (!known && j->grown_at && seq <= j->epoch_seq)
		return err_set(e, TALLY_EWORKERLOST, "the ranks of this machine came into the job "
			       "just before their agent was started again");
	for (struct ad_session *s = NULL; (s = next_of(j->agent, j->id, s)); ) {
		row = row_of(s, t->id);
		if (!row)
			continue;
		if (row->round != newest && round_next(row->round) != newest)
			return err_set(e, TALLY_EPROTO, "tensor %u: rank %u has had round %u, "
				       "another one %u", t->id, s->rank, row->round, newest);
		keep_round(t, local_of(j, s->rank), row, newest);
		behind |= row->round != newest;
		if (row->round == newest && row->was && keep_showing(t, s->back, row, e))
			return e->code;
	}
	if (!ag_desc_resume(&t->desc, newest) ||
	    (behind && t->desc.rop == ROP_NONE && ag_marks(&t->desc.geom)))
		return err_set(e, TALLY_EPROTO, "tensor %u: the results of round %u are not all "
			       "in what was handed back", t->id, newest);
	t->front->round = t->round = newest;
	return 0;
}

/* ---- taking it in ---- */

static void end_rows(struct ad_job *j)
{
	for (uint32_t i = 0; i < j->nkept; i++)
		if (!j->kept[i].claimed)	/* forgotten since */
			ad_pages_put(j->kept[i].slab, j->kept[i].page, 2 * j->kept[i].npages);
	free(j->kept);
	j->kept = NULL;
	j->nkept = 0;
}

static int take_up(struct agent *a, const struct msg *m, struct ad_job **j, struct err *e)
{
	int rc;

	if (ad_job_find(a, m->job_up.job)) {	/* not all engines are through with it */
		lose_all(a, &m->job_up, "what its machine had of the job has not ended yet");
		return err_set(e, TALLY_EWORKERLOST, "job %u still ends here", m->job_up.job);
	}
	rc = ad_job_up(a, m, e);
	if (rc) {
		ad_job_refuse(a, &m->job_up, e);
		return rc;
	}
	*j = ad_job_find(a, m->job_up.job);
	(*j)->epoch_seq = m->job_up.epoch_seq;
	(*j)->told = m->job_up.seq;
	(*j)->taking = true;
	rc = make_results(*j, e);
	return rc ? rc : keep_rows(*j, e);
}

static int take_wire(struct agent *a, const struct ad_entry *entry, struct ad_job **j,
		     struct err *e)
{
	struct msg_mem mem = { 0 };
	uint32_t bytes, type;
	struct msg m;
	int rc = msg_prefix_decode(entry->wire, &bytes, &type, e);

	if (rc)
		return rc;
	mem.size = msg_mem_need(bytes);
	mem.base = malloc(mem.size);
	rc = mem.base ? msg_decode(type, entry->wire + MSG_PREFIX_BYTES, bytes, &mem, &m, e) :
			err_set(e, TALLY_ENOMEM, "out of memory");
	if (!rc)
		rc = m.type == MSG_JOB_UP ? take_up(a, &m, j, e) : ad_tensors(a, &m, e);
	free(mem.base);
	return rc;
}

void ad_back_drop(struct agent *a, uint32_t job)
{
	struct ad_returning *r = returning(a, job);

	if (r)
		drop(r);
}

/* The others go on, and where they are these ranks have not heard: they may come in anew. */
static void lose_here(struct ad_job *j, const struct err *why)
{
	j->code = why->code;		/* joined() tells who waits */
	snprintf(j->text, sizeof(j->text), "%s", why->text);
	for (uint32_t l = 0; l < j->nlocal; l++)
		if (j->live >> l & 1)
			ad_job_left(j, l, &(struct ad_left){ .code = why->code, .why = "came into "
				    "the job just before its agent was started again" });
}

void ad_back_take_in(struct agent *a, uint32_t job)
{
	struct ad_returning *r = returning(a, job);
	struct ad_job *j = NULL;
	struct err e;
	int rc = 0;

	if (!r)
		return;
	for (struct list *l = r->wires.next; !rc && l != &r->wires; l = l->next)
		rc = take_wire(a, list_entry(l, struct ad_entry, link), &j, &e);
	drop(r);
	if (!j)
		return;
	j->taking = false;
	j->seq = j->told;
	end_rows(j);
	if (rc == TALLY_EWORKERLOST)
		lose_here(j, &e);
	else if (rc)
		ad_job_fail(j, &e);
	else if (next_of(a, job, NULL))
		ad_epoch_tell(j);	/* and at which rounds they are, if others come in */
	ad_join_check(j, j->live, next_of(a, job, NULL));
	log_info("job %u '%s' goes on here, %s", j->id, j->name, next_of(a, job, NULL) ?
		 "tensors as the processes have kept them" : "ranks are in the place of lost ones");
}

/* Before its ring is opened: what comes through it may name them. */
int ad_back_inputs(struct ad_session *s, struct err *e)
{
	struct ad_job *j = s->job;

	if (s->back->barriers > j->barriers) {	/* nobody else may have heard of it */
		j->barriers = s->back->barriers;
		ad_epoch_tell(j);
	}
	for (uint32_t i = 0; i < SLABS_PER_PROCESS_MAX; i++) {
		struct ad_slab_mail mail = { .session = s };

		if (!s->back->input[i].base)
			continue;
		mail.slab = ad_slab_adopt(s->agent, j, &s->back->input[i], e);
		if (!mail.slab)
			return e->code;
		mail.slab->index = i;
		mail.slab->owner = s->serial;
		mail.slab->local = s->local;
		mail.slab->uid = s->uid;
		s->nslabs = i + 1;
		s->arena_bytes += mail.slab->mem.bytes;
		list_add(&j->inputs, &mail.slab->link);
		ad_engine_tell(s->agent->engine[0], AD_SLAB, &mail, sizeof(mail));
	}
	return 0;
}
