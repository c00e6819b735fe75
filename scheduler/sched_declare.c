// SPDX-License-Identifier: Apache-2.0
/*
 * sched_declare.c - DECLARE and UNDECLARE, rank by rank.
 *
 * A message is looked at as a whole before anything is changed.  The first rank
 * that names a tensor sets what it is; a rank that says otherwise fails it for
 * everybody: those who wait get the error at once, the others when they come,
 * and when all have had it the name is free again.  A DECLARE that fails takes
 * all its other tensors back with it.
 */
#include "scheduler/sched_blame.h"

#include "common/base/parse.h"

/* ---- taking back ---- */

static void unset(struct sched_tensor *t, uint32_t rank)
{
	ASSERT(bits_test(t->set, rank) && t->nset > 0);
	bits_clear(t->set, rank);
	t->nset--;
}

void tensor_withdraw(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	ASSERT(!q->entry);
	for (uint32_t i = 0; i < q->n; i++) {
		struct sched_tensor *t = q->t[i];

		if (q->kind == SQ_UNDECLARE) {
			unset(t, q->rank);
		} else if (t->state == ST_WANTED) {
			unset(t, q->rank);
			if (!t->nset)
				tensor_free(s, j, t);
		}
	}
	q->n = 0;
}

static bool names(const struct sched_req *q, const struct sched_tensor *t)
{
	for (uint32_t i = 0; i < q->n; i++) {
		if (q->t[i] == t)
			return true;
	}
	return false;
}

/* Strikes a tensor out of the request that wants it; true: nothing is left of the request. */
static bool strike_out(struct sched_req *q, const struct sched_tensor *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < q->n; i++) {
		if (q->t[i] != t)
			q->t[n++] = q->t[i];
	}
	q->n = n;
	return !n;
}

void tensor_purge(struct sched *s, struct sched_job *j, struct sched_tensor *t, int code,
		  const char *text)
{
	t->state = ST_FAILED;	/* so that nobody frees it meanwhile */
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->entry || !names(q, t))
			continue;
		if (q->kind == SQ_UNDECLARE) {
			if (strike_out(q, t))
				req_done(s, j, q, 0, "", NULL, 0);
			continue;
		}
		tensor_withdraw(s, j, q);
		req_done(s, j, q, code, text, NULL, 0);
	}
	tensor_free(s, j, t);
}

/* ---- disagreement ---- */

/* True: everybody knows, t is gone. */
static bool told(struct sched *s, struct sched_job *j, struct sched_tensor *t, uint32_t rank)
{
	if (bits_test(t->set, rank))
		return false;
	bits_set(t->set, rank);
	if (++t->nset < j->world - j->nlost)
		return false;
	tensor_free(s, j, t);
	return true;
}

/*
 * Takes a lost rank out of all sets, since nobody will report for it any more; its own requests
 * are dropped already.
 */
void tensor_lose(struct sched *s, struct sched_job *j, uint32_t rank)
{
	list_for_each_safe(&j->tensors, p, next) {
		struct sched_tensor *t = list_entry(p, struct sched_tensor, link);

		if (t->state != ST_FAILED)
			continue;
		if (bits_test(t->set, rank))
			unset(t, rank);
		if (t->nset == j->world - j->nlost)
			tensor_free(s, j, t);
	}
}

static uint32_t first_set(const struct sched_tensor *t)
{
	uint32_t r = 0;

	while (!bits_test(t->set, r))
		r++;
	return r;
}

/* Writes one side of a mismatch: no shape and one of a single dimension would read alike. */
static void side_text(struct text *x, uint32_t dtype, const uint64_t *dims, uint32_t ndims,
		      uint64_t count, uint32_t other_ndims)
{
	text_shape(x, dtype, dims, ndims, count);
	if (!ndims && other_ndims)
		text_add(x, " without a shape");
}

/* The item that begins at `at`, its length in *len; moves on to the next one. */
static const char *next_item(const char **at, int *len)
{
	const char *item = *at;
	const char *end = strstr(item, "; ");

	*len = end ? (int)(end - item) : (int)strlen(item);
	*at = end ? end + 2 : item + *len;
	return item;
}

/* The first items in which two lists differ; an empty one where a list has ended. */
static void first_difference(const char *a, const char *b, const char **one, int *one_len,
			     const char **other, int *other_len)
{
	do {
		*one = next_item(&a, one_len);
		*other = next_item(&b, other_len);
	} while (*one_len == *other_len && !memcmp(*one, *other, (size_t)*one_len) && (*a || *b));
}

#define SAID_MAX	120		/* of an item of what a tensor stands for */

static void item_text(struct text *x, const char *item, int len)
{
	if (!len)
		text_add(x, "nothing more");
	else
		text_add(x, "%.*s%s", MIN(len, SAID_MAX), item, len > SAID_MAX ? "..." : "");
}

/* Ranks of equal tensors that stand for different things. */
static void meaning_text(struct text *x, const struct sched_job *j, const struct sched_tensor *t,
			 const struct msg_tensor *m, uint32_t ref, uint32_t rank)
{
	const char *one, *other;
	int one_len, other_len;

	first_difference(t->meaning ? t->meaning : "", m->meaning ? m->meaning : "", &one,
			 &one_len, &other, &other_len);
	text_add(x, "rank %u (machine %.48s) has ", ref, j->ranks[ref].node->name);
	item_text(x, one, one_len);
	text_add(x, ", rank %u (machine %.48s) has ", rank, j->ranks[rank].node->name);
	item_text(x, other, other_len);
}

static void mismatch_text(const struct sched_job *j, const struct sched_tensor *t,
			  const struct msg_tensor *m, uint32_t rank, struct err *e)
{
	uint32_t ref = first_set(t);
	struct text x;

	e->code = TALLY_EMISMATCH;
	text_init(&x, e->text, sizeof(e->text));
	text_add(&x, "tensor '%.96s': ", t->name);
	if (!tensor_means(t, m)) {
		meaning_text(&x, j, t, m, ref, rank);
		return;
	}
	text_add(&x, "rank %u (machine %.48s) ", ref, j->ranks[ref].node->name);
	side_text(&x, t->dtype, t->dims, t->ndims, t->count, m->ndims);
	text_add(&x, ", rank %u (machine %.48s) ", rank, j->ranks[rank].node->name);
	side_text(&x, m->dtype, m->dims, m->ndims, m->count, t->ndims);
}

/*
 * Sets the error of a rank that came back late and whose tensor differs from the one that is
 * there; the others go on.
 */
static void mine_differs(const struct sched_job *j, const struct sched_tensor *t,
			 const struct msg_tensor *m, uint32_t rank, struct err *e)
{
	struct text x;

	e->code = TALLY_EMISMATCH;
	text_init(&x, e->text, sizeof(e->text));
	if (tensor_equal(t, m)) {
		text_add(&x, "tensor '%.96s' stands for something else in the job than rank %u "
			 "(machine %.48s) says", t->name, rank, j->ranks[rank].node->name);
		return;
	}
	text_add(&x, "tensor '%.96s': the job has ", t->name);
	side_text(&x, t->dtype, t->dims, t->ndims, t->count, m->ndims);
	text_add(&x, ", rank %u (machine %.48s) ", rank, j->ranks[rank].node->name);
	side_text(&x, m->dtype, m->dims, m->ndims, m->count, t->ndims);
}

/* Fails t for all who have declared it, and for `rank`, who differs. */
static void fail_tensor(struct sched *s, struct sched_job *j, struct sched_tensor *t,
			uint32_t rank, const struct err *why)
{
	bool gone;

	t->why = sched_alloc(s, sizeof(*t->why));
	if (t->why)
		*t->why = *why;
	t->state = ST_FAILED;
	t->nset = 0;
	memset(t->set, 0, BITS_WORDS(j->world) * sizeof(*t->set));
	gone = told(s, j, t, rank);
	list_for_each_safe(&j->reqs, p, next) {
		struct sched_req *q = list_entry(p, struct sched_req, link);
		uint32_t by = q->rank;

		if (gone || q->kind != SQ_DECLARE || q->entry || !names(q, t))
			continue;
		tensor_withdraw(s, j, q);
		req_done(s, j, q, why->code, why->text, NULL, 0);
		gone = told(s, j, t, by);
	}
}

/* ---- DECLARE ---- */

/* A DECLARE being looked at. */
struct look {
	struct sched_job *j;
	uint32_t rank, n;
	uint32_t room;			/* for new tensors: what their user may have more */
	struct sched_tensor **t;	/* n of them, in the order named */
	struct sched_tensor *bad;	/* the one in the way, if that is the reason */
	bool differs;			/* bad is wanted, but not like this */
	struct err e;
};

/* Marks find doubles within one message and are gone after it. */
static void unmark(struct look *k)
{
	for (uint32_t i = 0; i < k->n; i++)
		k->t[i]->mark = false;
}

static int judge(struct look *k, struct sched_tensor *t, const struct msg_tensor *m)
{
	bool same = tensor_equal(t, m) && tensor_means(t, m);

	if (t->state == ST_FAILED) {
		k->bad = t;
		if (!t->why)
			return err_set(&k->e, TALLY_EMISMATCH, "tensor '%s': ranks disagree, and "
				       "the scheduler had no memory to say who", t->name);
		return err_set(&k->e, TALLY_EMISMATCH, "%s", t->why->text);
	}
	if (t->state == ST_UP && same && !(t->set && bits_test(t->set, k->rank)))
		return 0;		/* done, and not heard; libtally finds doubles itself */
	if (t->state == ST_UP && !same && t->seq <= k->j->ranks[k->rank].since) {
		mine_differs(k->j, t, m, k->rank, &k->e);
		return k->e.code;
	}
	if (t->state == ST_DROPPED)
		return err_set(&k->e, TALLY_EBUSY, "tensor '%s' of job '%.96s' is being taken back",
			       t->name, k->j->name);
	if (t->state != ST_WANTED || bits_test(t->set, k->rank))
		return err_set(&k->e, TALLY_EEXIST,
			       "tensor '%s' of job '%.96s' is declared already",
			       t->name, k->j->name);
	if (t->nset && !same) {
		mismatch_text(k->j, t, m, k->rank, &k->e);
		k->bad = t;
		k->differs = true;
		return k->e.code;
	}
	return 0;
}

/* Of all jobs of the job's user; of a job whose user is not known of that alone. */
static uint32_t tensors_of_user(const struct sched *s, const struct sched_job *j)
{
	uint32_t n = 0;

	if (!j->owned)
		return j->ntensors;
	for (uint32_t i = 0; i < s->njobs; i++)
		n += s->jobs[i]->owned && s->jobs[i]->uid == j->uid ? s->jobs[i]->ntensors : 0;
	return n;
}

static uint32_t room_of_user(const struct sched *s, const struct sched_job *j)
{
	uint32_t have = tensors_of_user(s, j);

	if (!s->config.user_tensors)
		return UINT32_MAX;
	return s->config.user_tensors - MIN(have, s->config.user_tensors);
}

static int user_full(const struct sched *s, struct look *k)
{
	uint32_t have = tensors_of_user(s, k->j);

	return err_set(&k->e, TALLY_EQUOTA, "user id %u has %u tensor%s in all jobs, as many as "
		       "one user may have (tally-scheduler --user-tensors); take some back, or let "
		       "a job end", k->j->uid, have, plural(have));
}

static int look_at(struct sched *s, struct look *k, const struct msg_tensor *m)
{
	struct sched_tensor *t = tensor_by_name(k->j, m->name);

	if (!m->name[0])
		return err_set(&k->e, TALLY_EINVAL, "a tensor needs a name");
	if (!t && k->j->ntensors >= TENSORS_PER_JOB_MAX)
		return err_set(&k->e, TALLY_EQUOTA, "job '%.96s' has %u tensors already",
			       k->j->name, TENSORS_PER_JOB_MAX);
	if (!t && !k->room)
		return user_full(s, k);
	if (!t && m->meaning && k->j->meaning_bytes + strlen(m->meaning) > MEANING_BYTES_MAX)
		return err_set(&k->e, TALLY_EQUOTA, "tensors of job '%.96s' that not all ranks "
			       "have declared stand for more than %u bytes of text", k->j->name,
			       MEANING_BYTES_MAX);
	k->room -= !t;
	if (!t)
		t = tensor_new(s, k->j, m);
	if (!t)
		return err_set(&k->e, TALLY_ENOMEM, "the scheduler is out of memory");
	if (t->mark)
		return err_set(&k->e, TALLY_EINVAL, "tensor '%s' is named twice in one batch",
			       t->name);
	t->mark = true;
	k->t[k->n++] = t;
	if (t->state == ST_WANTED && !tensor_wants_set(s, k->j, t))
		return err_set(&k->e, TALLY_ENOMEM, "the scheduler is out of memory");
	return judge(k, t, m);
}

static int look_at_all(struct sched *s, struct look *k, const struct msg_declare *m)
{
	int err = 0;

	if (!m->ntensors || m->ntensors > TENSORS_PER_BATCH_MAX)
		return err_set(&k->e, TALLY_EINVAL, "a batch has 1 to %u tensors, not %u",
			       TENSORS_PER_BATCH_MAX, m->ntensors);
	k->t = out_scratch(s, m->ntensors * sizeof(struct sched_tensor *));
	if (!k->t)
		return err_set(&k->e, TALLY_ENOMEM, "the scheduler is out of memory");
	k->room = room_of_user(s, k->j);
	for (uint32_t i = 0; !err && i < m->ntensors; i++)
		err = look_at(s, k, &m->tensors[i]);
	unmark(k);
	return err;
}

/* Frees what only this message has named. */
static void look_away(struct sched *s, struct look *k)
{
	for (uint32_t i = 0; i < k->n; i++) {
		if (k->t[i]->state == ST_WANTED && !k->t[i]->nset)
			tensor_free(s, k->j, k->t[i]);
	}
}

static void declare_refused(struct sched *s, struct sched_node *n, const struct msg_declare *m,
			    struct look *k)
{
	look_away(s, k);
	out_refuse(s, n, m->req, k->e.code, "%s", k->e.text);
	if (k->differs)
		fail_tensor(s, k->j, k->bad, m->rank, &k->e);
	else if (k->bad)
		told(s, k->j, k->bad, m->rank);
}

static void declare_commit(struct sched *s, struct look *k, const struct msg_declare *m,
			   struct sched_req *q)
{
	bool all = true;

	for (uint32_t i = 0; i < k->n; i++) {
		struct sched_tensor *t = k->t[i];

		q->t[i] = t;
		if (t->state != ST_WANTED)
			continue;
		if (m->rank == 0)
			t->priority = m->tensors[i].priority;
		bits_set(t->set, m->rank);
		t->nset++;
		all = all && t->nset == k->j->world - k->j->nlost;
	}
	if (all)
		tensor_issue(s, k->j, SQ_DECLARE);
}

static bool are_up(const struct sched_job *j, const struct msg_declare *m)
{
	for (uint32_t i = 0; i < m->ntensors; i++) {
		const struct sched_tensor *t = tensor_by_name(j, m->tensors[i].name);

		if (!t || t->state != ST_UP)
			return false;
	}
	return true;
}

static bool any_failed(const struct sched_job *j, const struct msg_declare *m)
{
	for (uint32_t i = 0; i < m->ntensors; i++) {
		const struct sched_tensor *t = tensor_by_name(j, m->tensors[i].name);

		if (t && t->state == ST_FAILED)
			return true;
	}
	return false;
}

/*
 * DECLARE. A quicker rank may have detached since: where all is done already, and the answer was
 * lost, it is sent again, and so is the reason that the rank may have detached for.
 */
void tensor_declare(struct sched *s, struct sched_node *n, const struct msg_declare *m)
{
	struct look k = { .j = job_of_request(s, n, m->req, m->job, m->rank), .rank = m->rank };
	struct sched_req *q;

	if (!k.j || req_asked(k.j, n, SQ_DECLARE, m->rank, m->req))
		return;
	if (m->ntensors && req_asked_anew(k.j, n, SQ_DECLARE, m->rank,
					  tensor_by_name(k.j, m->tensors[0].name), m->req))
		return;
	if (!are_up(k.j, m) && !any_failed(k.j, m) && job_refuses(s, k.j, n, m->req))
		return;
	if (look_at_all(s, &k, m)) {
		declare_refused(s, n, m, &k);
		return;
	}
	q = req_new(s, k.j, n, SQ_DECLARE, m->rank, m->req, m->timeout_ms, k.n);
	if (!q) {
		look_away(s, &k);
		return;
	}
	declare_commit(s, &k, m, q);
}

/* ---- UNDECLARE ---- */

static bool declaring(const struct sched_job *j, const struct sched_tensor *t, uint32_t rank)
{
	if (!j->ranks[rank].pending)
		return false;
	list_for_each(&j->reqs, p) {
		const struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind == SQ_DECLARE && q->rank == rank && names(q, t))
			return true;
	}
	return false;
}

static int look_at_id(struct sched *s, struct look *k, uint32_t id)
{
	struct sched_tensor *t = tensor_by_id(k->j, id);

	if (!t || t->state == ST_DROPPED)
		return err_set(&k->e, TALLY_ENOENT, "job '%.96s' has no tensor %u", k->j->name, id);
	if (t->mark)
		return err_set(&k->e, TALLY_EINVAL, "tensor %u is named twice", id);
	if (t->state != ST_UP || declaring(k->j, t, k->rank))
		return err_set(&k->e, TALLY_EBUSY, "tensor '%s' is still being declared", t->name);
	if (!tensor_wants_set(s, k->j, t))
		return err_set(&k->e, TALLY_ENOMEM, "the scheduler is out of memory");
	if (bits_test(t->set, k->rank))
		return err_set(&k->e, TALLY_EEXIST, "rank %u has undeclared tensor '%s' already",
			       k->rank, t->name);
	t->mark = true;
	k->t[k->n++] = t;
	return 0;
}

static int look_at_ids(struct sched *s, struct look *k, const struct msg_ids *m)
{
	int err = 0;

	if (!m->nids || m->nids > TENSORS_PER_BATCH_MAX)
		return err_set(&k->e, TALLY_EINVAL, "a batch has 1 to %u tensors, not %u",
			       TENSORS_PER_BATCH_MAX, m->nids);
	k->t = out_scratch(s, m->nids * sizeof(struct sched_tensor *));
	if (!k->t)
		return err_set(&k->e, TALLY_ENOMEM, "the scheduler is out of memory");
	for (uint32_t i = 0; !err && i < m->nids; i++)
		err = look_at_id(s, k, m->ids[i]);
	unmark(k);
	return err;
}

/* They have been, and the answer was lost; after a restart who asks knows better which were. */
static bool are_forgotten(const struct sched_job *j, const struct msg_ids *m)
{
	for (uint32_t i = 0; i < m->nids; i++) {
		if (tensor_by_id(j, m->ids[i]) || (!j->outlived && m->ids[i] > j->last_id))
			return false;
	}
	return m->nids != 0;
}

void tensor_undeclare(struct sched *s, struct sched_node *n, const struct msg_ids *m)
{
	struct look k = { .j = job_of_request(s, n, m->req, m->job, m->rank), .rank = m->rank };
	struct sched_req *q;
	bool all = true;

	if (!k.j || req_asked(k.j, n, SQ_UNDECLARE, m->rank, m->req))
		return;
	if (m->nids && req_asked_anew(k.j, n, SQ_UNDECLARE, m->rank,
				      tensor_by_id(k.j, m->ids[0]), m->req))
		return;
	if (are_forgotten(k.j, m)) {
		out_answer(s, n, m->req, 0, "", NULL, 0);
		return;
	}
	if (job_refuses(s, k.j, n, m->req))
		return;
	if (look_at_ids(s, &k, m)) {
		out_refuse(s, n, m->req, k.e.code, "%s", k.e.text);
		return;
	}
	q = req_new(s, k.j, n, SQ_UNDECLARE, m->rank, m->req, m->timeout_ms, k.n);
	if (!q)
		return;
	for (uint32_t i = 0; i < k.n; i++) {
		q->t[i] = k.t[i];
		bits_set(k.t[i]->set, m->rank);
		all = ++k.t[i]->nset == k.j->world - k.j->nlost && all;
	}
	if (all)
		tensor_issue(s, k.j, SQ_UNDECLARE);
}

/* ---- deadlines ---- */

static bool incomplete(const struct sched_job *j, const struct sched_req *q,
		       const struct sched_tensor *t)
{
	return t->nset < j->world - j->nlost &&
	       t->state == (q->kind == SQ_DECLARE ? ST_WANTED : ST_UP) &&
	       !(q->kind == SQ_DECLARE && t->state == ST_UP);
}

/* "tensors 'a', 'b' and 3 more of job 'x': ranks 2, 3 have not declared them". */
static bool name_missing(const struct sched *s, struct text *x, const struct sched_job *j,
			 const struct sched_req *q)
{
	const struct sched_tensor *first = NULL;
	uint32_t n = 0, ranks;

	for (uint32_t i = 0; i < q->n; i++) {
		if (!incomplete(j, q, q->t[i]))
			continue;
		if (n++ < 3)
			text_add(x, "%s'%.64s'", first ? ", " : "tensor ", q->t[i]->name);
		if (!first)
			first = q->t[i];
	}
	if (!first)
		return false;
	if (n > 3)
		text_add(x, " and %u more", n - 3);
	text_add(x, " of job '%.96s': ", j->name);
	if (text_blame(x, "", blame_of(s, j)))
		return true;
	ranks = text_missing(x, j, first->set);
	text_add(x, " %s not %s", ranks == 1 ? "has" : "have",
		 q->kind == SQ_DECLARE ? "declared it" : "undeclared it");
	return true;
}

/* Its own tensors are complete, another rank's batch holds them back. */
static bool name_others(const struct sched *s, struct text *x, const struct sched_job *j,
			const struct sched_req *own)
{
	list_for_each(&j->reqs, p) {
		const struct sched_req *q = list_entry(p, struct sched_req, link);

		if (q->kind == own->kind && !q->entry && name_missing(s, x, j, q))
			return true;
	}
	return false;
}

void tensor_text(const struct sched *s, struct text *x, const struct sched_job *j,
		 const struct sched_req *q)
{
	if (!q->entry && (name_missing(s, x, j, q) || name_others(s, x, j, q)))
		return;
	text_add(x, "job '%.96s' waits for ", j->name);
	if (!q->entry)
		text_add(x, "the scheduler to recover");
	else if (!text_blame(x, "", blame_of(s, j)) && !text_not_ready(x, j))
		text_add(x, "an agent or server that is away");
}

static void expire_logged(struct sched *s, struct sched_job *j, struct sched_req *q,
			  const char *buf)
{
	if (q->kind == SQ_DECLARE)
		log_fail(s, j, q->entry, TALLY_ETIMEDOUT, buf);
	else
		req_done(s, j, q, TALLY_ETIMEDOUT, buf, NULL, 0);
}

void tensor_expire(struct sched *s, struct sched_job *j, struct sched_req *q)
{
	char buf[ERR_TEXT_MAX + 1];
	struct text x;

	text_init(&x, buf, sizeof(buf));
	tensor_text(s, &x, j, q);
	if (q->entry) {
		expire_logged(s, j, q, buf);
		return;
	}
	tensor_withdraw(s, j, q);
	req_done(s, j, q, TALLY_ETIMEDOUT, buf, NULL, 0);
}
