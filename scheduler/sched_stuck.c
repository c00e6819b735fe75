// SPDX-License-Identifier: Apache-2.0
/*
 * sched_stuck.c - rounds that wait: what agents tell (STUCK), and what comes of it.
 *
 * An agent knows which of its own ranks has not given its input, and of other
 * machines only that one is missing.  Together they know the ranks: what a machine
 * says of itself goes before what others say of it: which ranks, that it waits for others,
 * too, or that a server keeps it back, which others may have heard in time.  Where it says
 * nothing, none of its ranks has come.  A server's silence is told by who waits for it.
 */
#include "scheduler/sched_blame.h"

struct sched_stuck {
	mono_t at;
	uint32_t n, nlinks;
	uint32_t *link;			/* servers' numbers, each once; behind the rows */
	struct msg_wait row[];
};

static bool lacks_link(const struct sched_stuck *st, uint32_t server)
{
	for (uint32_t i = 0; i < st->nlinks; i++) {
		if (st->link[i] == server)
			return true;
	}
	return false;
}

/* Each timer asks after each server: there are few links among the rows, if any. */
static void note_links(struct sched_stuck *st)
{
	st->link = (uint32_t *)(void *)(st->row + st->n);
	for (uint32_t i = 0; i < st->n; i++) {
		if (st->row[i].kind == WAIT_LINK && !lacks_link(st, st->row[i].who))
			st->link[st->nlinks++] = st->row[i].who;
	}
}

void stuck_take(struct sched *s, struct sched_node *n, const struct msg_stuck *m)
{
	struct sched_job *j = job_by_number(s, m->job);
	struct sched_part *p = j ? job_machine_part(j, n) : NULL;
	struct sched_stuck *st;

	if (!p || p->coming) {		/* of a part that is over: it is yet to hear so */
		s->counters.strays++;
		return;
	}
	st = m->nwaits ? sched_alloc(s, sizeof(*st) + m->nwaits * (sizeof(*st->row) +
								    sizeof(*st->link))) : NULL;
	if (st) {
		st->at = s->now;
		st->n = m->nwaits;
		memcpy(st->row, m->waits, m->nwaits * sizeof(*st->row));
		note_links(st);
	}
	if (MUTATE(32) && !st)
		return;
	sched_release(s, p->stuck);
	p->stuck = st;
}

/* ---- who it is ---- */

/* Those that are not lost, by machine: m's are rank[first[m]] and on, up to first[m + 1]. */
struct ranks {
	uint32_t *first, *rank;
};

static bool sort_ranks(struct sched *s, const struct sched_job *j, struct ranks *by)
{
	by->first = out_scratch(s, (j->nmachines + 1) * sizeof(*by->first));
	by->rank = out_scratch(s, j->world * sizeof(*by->rank));
	if (!by->first || !by->rank)
		return false;
	for (uint32_t r = 0; r < j->world; r++)
		by->first[j->ranks[r].machine] += j->ranks[r].state != SR_LOST;
	for (uint32_t m = 1; m <= j->nmachines; m++)
		by->first[m] += by->first[m - 1];
	for (uint32_t r = j->world; r-- > 0; ) {
		if (j->ranks[r].state != SR_LOST)
			by->rank[--by->first[j->ranks[r].machine]] = r;
	}
	return true;
}

/* What a row of an agent says, put together with what others say of themselves. */
struct found {
	const struct sched_tensor *tensor;
	const struct sched_node *node;	/* the ranks' agent, or the server */
	uint32_t nranks;		/* 0: it is a server */
	uint32_t ranks[LOCAL_RANKS_MAX];
};

static bool of_server(const struct msg_wait *w)
{
	return w->kind == WAIT_SERVER || w->kind == WAIT_LINK;
}

/* Also one that is lost by now: its chunks are not anywhere else yet. */
static bool has_server(const struct sched_job *j, uint32_t number)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (j->servers[i].number == number)
			return true;
	}
	return false;
}

/* Where all are gone everybody waits for the last ones. */
static bool find_server(const struct sched *s, const struct sched_job *j,
			const struct msg_wait *w, struct found *f)
{
	for (uint32_t i = 0; i < j->nservers; i++) {
		if (j->servers[i].number == w->who)
			f->node = j->servers[i].node;
	}
	for (uint32_t i = 0; j->no_server && !f->node && i < s->nnodes; i++) {
		if (s->nodes[i]->number == w->who)
			f->node = s->nodes[i];
	}
	return f->node;
}

/*
 * Whether a machine explains why it is waited for: it names its own ranks; or it has all of them
 * and waits for others itself; or it goes on as soon as a server that it waits for answers, or
 * another one is in the place of a lost one.
 */
static bool says_why(const struct sched_job *j, const struct sched_part *p,
		     const struct msg_wait *w)
{
	for (uint32_t i = 0; p->stuck && i < p->stuck->n && !MUTATE(39); i++) {
		const struct msg_wait *own = &p->stuck->row[i];

		if ((own->kind == WAIT_RANK || own->kind == WAIT_MACHINE) &&
		    own->tensor == w->tensor && own->round == w->round)
			return true;
		if (of_server(own) && own->chunks && has_server(j, own->who))
			return true;
	}
	return false;
}

static bool find_machine(const struct sched_job *j, const struct ranks *by,
			 const struct msg_wait *w, struct found *f)
{
	uint32_t m;

	if (w->who >= j->nmachines || says_why(j, &j->machines[w->who], w))
		return false;
	m = MUTATE(38) ? (w->who + 1) % j->nmachines : w->who;
	f->node = j->machines[m].node;
	for (uint32_t i = by->first[m]; i < by->first[m + 1] && f->nranks < LOCAL_RANKS_MAX; i++)
		f->ranks[f->nranks++] = by->rank[i];
	return f->node && f->nranks;
}

static bool find(const struct sched *s, const struct sched_job *j, const struct ranks *by,
		 const struct sched_part *p, const struct msg_wait *w, struct found *f)
{
	*f = (struct found){ .tensor = tensor_by_id(j, w->tensor) };
	if (!f->tensor || !w->chunks)
		return false;
	if (w->kind == WAIT_MACHINE)
		return find_machine(j, by, w, f);
	if (of_server(w))
		return find_server(s, j, w, f);
	f->node = p->node;
	f->nranks = 1;
	f->ranks[0] = w->who;
	return f->node && w->who < j->world && j->ranks[w->who].state != SR_LOST;
}

/* ---- the report ---- */

/* Rows to be added up, and where the last one was: agents tell of rounds in one order. */
struct table {
	struct msg_stuck_row *row;
	uint32_t n, at;
};

static bool same(const struct msg_stuck_row *r, const struct sched_job *j, const struct msg_wait *w,
		 const struct found *f)
{
	return r->job == j->number && r->round == w->round && r->nranks == f->nranks &&
	       (!r->nranks || r->ranks[0] == f->ranks[0]) && !strcmp(r->name, f->node->name) &&
	       !strcmp(r->tensor, f->tensor->name);
}

static struct msg_stuck_row *row_of(struct table *t, const struct sched_job *j,
				    const struct msg_wait *w, const struct found *f)
{
	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t k = (t->at + i) % t->n;

		if (!same(&t->row[k], j, w, f))
			continue;
		t->at = k + 1;
		return &t->row[k];
	}
	return NULL;
}

static bool fill(struct sched *s, const struct sched_job *j, const struct msg_wait *w,
		 const struct found *f, struct msg_stuck_row *row)
{
	uint32_t *ranks = out_scratch(s, (f->nranks + 1) * sizeof(*ranks));

	if (!ranks)
		return false;
	memcpy(ranks, f->ranks, f->nranks * sizeof(*ranks));
	*row = (struct msg_stuck_row){
		.job = j->number, .tensor = out_string(s, f->tensor->name), .round = w->round,
		.chunk = w->chunk, .chunks = w->chunks,
		.kind = f->nranks ? WAIT_MACHINE : WAIT_SERVER,
		.nranks = f->nranks, .ranks = ranks, .name = out_string(s, f->node->name),
		.machine = out_string(s, f->node->machine), .silent_ms = node_silent_ms(s, f->node),
	};
	return true;
}

static bool add(struct sched *s, struct table *t, const struct sched_job *j,
		const struct ranks *by, const struct sched_part *p, const struct msg_wait *w)
{
	uint64_t age = w->age_ms + (uint64_t)((s->now - p->stuck->at) / NS_PER_MS);
	struct msg_stuck_row *row;
	struct found f;

	if (!find(s, j, by, p, w, &f))
		return true;
	row = row_of(t, j, w, &f);
	if (!row && (t->n == STUCK_REPORT_MAX || !fill(s, j, w, &f, &t->row[t->n])))
		return false;
	if (!row)
		row = &t->row[t->n++];
	row->age_ms = MAX(row->age_ms, age);
	row->chunk = MIN(row->chunk, w->chunk);
	row->chunks = MAX(row->chunks, w->chunks);
	return true;
}

void stuck_report(struct sched *s, const struct sched_job *j, struct msg_report *r)
{
	struct table t = { .row = (struct msg_stuck_row *)r->stuck, .n = r->nstuck };
	struct ranks by;

	if (!t.row)
		t.row = out_scratch(s, STUCK_REPORT_MAX * sizeof(*t.row));
	if (!t.row || !sort_ranks(s, j, &by))
		return;			/* none of the report is sent */
	for (uint32_t m = 0; m < j->nmachines; m++) {
		const struct sched_part *p = &j->machines[m];

		for (uint32_t i = 0; p->stuck && i < p->stuck->n; i++) {
			if (!add(s, &t, j, &by, p, &p->stuck->row[i]))
				break;
		}
	}
	r->stuck = t.row;
	r->nstuck = t.n;
}

/* ---- in one line, for the job's row ---- */

static void text_found(struct text *t, const struct found *f, const struct msg_wait *w,
		       const char *machine)
{
	if (!f->nranks)
		text_add(t, "server %.64s", f->node->name);
	if (w->kind == WAIT_LINK)
		text_add(t, " (no link from machine %.64s)", machine);
	for (uint32_t i = 0; i < MIN(f->nranks, 4); i++)
		text_add(t, "%s%u", i ? ", " : f->nranks > 1 ? "ranks " : "rank ", f->ranks[i]);
	if (f->nranks > 4)
		text_add(t, " and %u more", f->nranks - 4);
	if (f->nranks)
		text_add(t, " (machine %.64s)", f->node->name);
	text_add(t, ", tensor %.64s round %u", f->tensor->name, w->round);
}

void stuck_text(struct sched *s, struct text *t, const struct sched_job *j)
{
	struct ranks by;

	if (!sort_ranks(s, j, &by))
		return;
	for (uint32_t m = 0; m < j->nmachines; m++) {
		const struct sched_part *p = &j->machines[m];

		for (uint32_t i = 0; p->stuck && i < p->stuck->n; i++) {
			struct found f;

			if (find(s, j, &by, p, &p->stuck->row[i], &f)) {
				text_found(t, &f, &p->stuck->row[i], p->name);
				(void)text_blame(t, ": ", blame_of(s, j));
				return;
			}
		}
	}
}

const char *stuck_no_link(const struct sched_job *j, uint32_t server)
{
	for (uint32_t m = 0; m < j->nmachines; m++) {
		const struct sched_part *p = &j->machines[m];

		if (p->stuck && p->node && p->node->state == SN_UP && lacks_link(p->stuck, server))
			return p->name;
	}
	return NULL;
}

void stuck_drop(struct sched *s, struct sched_job *j)
{
	for (uint32_t m = 0; m < j->nmachines; m++) {
		sched_release(s, j->machines[m].stuck);
		j->machines[m].stuck = NULL;
	}
}
