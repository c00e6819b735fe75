// SPDX-License-Identifier: Apache-2.0
/*
 * tensor.c - declaring tensors and giving them back.
 *
 * Everything that can fail for want of memory is allocated before the first
 * DECLARE goes out, so that a failure on our side declares nothing.  A call of
 * more tensors, or chunks, than a log entry has is several requests; when a later one
 * is refused, what the earlier ones declared is undeclared again.
 *
 * A slot is a tensor's number here, kept small and reused; its generation goes up
 * with each use, so that a ticket of a former tensor is recognised.
 */
#include "client/session.h"

#include <string.h>

#include "client/clock.h"
#include "client/gpu.h"
#include "client/mem.h"
#include "common/base/parse.h"
#include "common/base/utf8.h"

#define DECLARED_BYTES_MAX	64u	/* one tensor's row in a DECLARED */
#define SLOTS_MIN		64u

static_assert(TENSORS_PER_JOB_MAX <= 65536, "a slot is 16 bits of a ticket");
static_assert(TENSORS_PER_BATCH_MAX * 512ull <= CTL_MSG_BYTES_MAX, "a batch is one message");

/* Tensors of a batch in which some say what they stand for. */
#define MEANINGS_PER_BATCH	(CTL_MSG_BYTES_MAX / (MEANING_LEN_MAX + 1024u))

/* ---- checking what the user says ---- */

static bool shape_fits(const tally_tensor_desc *d)
{
	uint64_t product = 1;

	for (uint32_t i = 0; i < d->ndims; i++)
		if (__builtin_mul_overflow(product, d->shape[i], &product))
			return false;
	return product == d->count;
}

static int check_desc(tally_session *s, const tally_tensor_desc *d, uint32_t i)
{
	size_t size = tally_dtype_size(d->dtype);
	size_t len = d->name ? strnlen(d->name, NAME_LEN_MAX + 1) : 0;

	if (len == 0 || len > NAME_LEN_MAX)
		return err_set(&s->err, TALLY_EINVAL, "tensor %u: a name has 1 to %u bytes", i,
			       NAME_LEN_MAX);
	if (!utf8_is_text(d->name))
		return err_set(&s->err, TALLY_EINVAL, "tensor %u: its name is no printable UTF-8",
			       i);
	if (!size)
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: no dtype %d", d->name,
			       (int)d->dtype);
	if (d->count > TENSOR_BYTES_MAX / size)
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: more than %llu bytes", d->name,
			       (unsigned long long)TENSOR_BYTES_MAX);
	if (d->meaning && strnlen(d->meaning, MEANING_LEN_MAX + 1) > MEANING_LEN_MAX)
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: its meaning has more than %u "
			       "bytes", d->name, MEANING_LEN_MAX);
	if (!d->shape && d->ndims)
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: %u dimensions, but no shape; "
			       "without one ndims is 0", d->name, d->ndims);
	if (!d->shape)
		return 0;
	if (d->ndims > DIMS_MAX)
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: more than %u dimensions",
			       d->name, DIMS_MAX);
	if (!shape_fits(d))
		return err_set(&s->err, TALLY_EINVAL, "tensor %s: its shape has not %llu elements",
			       d->name, (unsigned long long)d->count);
	return 0;
}

/* ---- names, slots and ids ---- */

static struct tally_tensor **named(tally_session *s, const char *name)
{
	uint32_t h = 2166136261u;	/* FNV-1a */

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return &s->named[h % LT_ID_BUCKETS];
}

/* The scheduler takes a tensor that is declared twice for one whose answer was lost. */
static int check_new(tally_session *s, const char *name)
{
	const struct tally_tensor *t = *named(s, name);

	while (t && strcmp(t->name, name))
		t = t->next_named;
	return t ? err_set(&s->err, TALLY_EEXIST, "tensor '%s' of job '%.96s' is declared already, "
			   "or twice in this call", name, s->who.job) : 0;
}

static void name_add(tally_session *s, struct tally_tensor *t)
{
	struct tally_tensor **head = named(s, t->name);

	t->next_named = *head;
	*head = t;
}

static void name_del(tally_session *s, struct tally_tensor *t)
{
	struct tally_tensor **at = named(s, t->name);

	while (*at != t)
		at = &(*at)->next_named;
	*at = t->next_named;
}

static struct tally_tensor **bucket_of(tally_session *s, uint32_t id)
{
	return &s->buckets[id % LT_ID_BUCKETS];
}

struct tally_tensor *lt_tensor_by_id(const tally_session *s, uint32_t id)
{
	struct tally_tensor *t = s->buckets[id % LT_ID_BUCKETS];

	while (t && t->id != id)
		t = t->next;
	return t;
}

/* Makes room for n more tensors. */
static int reserve_slots(tally_session *s, uint32_t n)
{
	struct lt_slot *bigger;
	uint32_t want;

	if (n > TENSORS_PER_JOB_MAX - s->ntensors)
		return err_set(&s->err, TALLY_EQUOTA, "more than %u tensors", TENSORS_PER_JOB_MAX);
	if (n <= s->nslots - s->ntensors)
		return 0;
	want = MAX(MAX(s->ntensors + n, 2 * s->nslots), SLOTS_MIN);
	want = MIN(want, TENSORS_PER_JOB_MAX);
	bigger = lt_mem_new(want, sizeof(*bigger));
	if (!bigger)
		return err_set(&s->err, TALLY_ENOMEM, "no memory for %u tensors", want);
	if (s->nslots)
		memcpy(bigger, s->slots, s->nslots * sizeof(*bigger));
	lt_mem_free(s->slots);
	s->slots = bigger;
	s->nslots = want;
	return 0;
}

static void put_in_slot(tally_session *s, struct tally_tensor *t, uint32_t *hint)
{
	struct lt_slot *slot;

	while (s->slots[*hint].tensor)
		++*hint;
	slot = &s->slots[*hint];
	slot->tensor = t;
	slot->generation = slot->generation == UINT16_MAX ? 1 : slot->generation + 1;
	t->slot = *hint;
	t->next = *bucket_of(s, t->id);
	*bucket_of(s, t->id) = t;
	s->ntensors++;
}

static void tensor_free(tally_session *s, struct tally_tensor *t)
{
	struct tally_tensor **at = bucket_of(s, t->id);

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	name_del(s, t);
	s->slots[t->slot].tensor = NULL;
	s->ntensors--;
	if (t->state == LT_DONE && t->announced == s->poll_count)
		s->fresh--;
	lt_gpu_tensor_free(s, t);
	if (t->staging)
		lt_arena_put(&s->arena, t->staging);
	lt_mem_free(t);
}

void lt_tensors_fini(tally_session *s)
{
	for (uint32_t i = 0; i < s->nslots; i++)
		if (s->slots[i].tensor)
			tensor_free(s, s->slots[i].tensor);
	lt_mem_free(s->slots);
	s->slots = NULL;
	s->nslots = 0;
}

/* ---- declare ---- */

/* What one tally_declare() works on; all of it allocated before anything is sent. */
struct declaration {
	const tally_tensor_desc *desc;
	struct tally_tensor **made;	/* owned, n of them */
	struct msg_tensor *wire;	/* owned, one batch of them */
	uint32_t *ids;			/* owned, one batch of them */
	uint32_t n;
};

static struct tally_tensor *tensor_new(tally_session *s, const tally_tensor_desc *d)
{
	size_t len = strlen(d->name) + 1;
	struct tally_tensor *t = lt_mem_new(1, sizeof(*t) + len);

	if (!t)
		return NULL;
	memcpy(t->name, d->name, len);
	t->session = s;
	t->dtype = (uint8_t)d->dtype;
	t->count = d->count;
	t->bytes = d->count * tally_dtype_size(d->dtype);
	t->priority = d->priority;
	return t;
}

static void declaration_drop(tally_session *s, struct declaration *d)
{
	for (uint32_t i = 0; d->made && i < d->n; i++) {
		if (d->made[i])
			name_del(s, d->made[i]);
		lt_mem_free(d->made[i]);
	}
	lt_mem_free(d->made);
	lt_mem_free(d->wire);
	lt_mem_free(d->ids);
}

static int declaration_prepare(tally_session *s, struct declaration *d)
{
	uint32_t batch = MIN(d->n, TENSORS_PER_BATCH_MAX);
	int rc;

	rc = reserve_slots(s, d->n);
	if (!rc)
		rc = lt_conn_reserve(&s->conn, 1024 + (size_t)batch * DECLARED_BYTES_MAX, &s->err);
	if (rc)
		return rc;
	d->made = lt_mem_new(d->n, sizeof(*d->made));
	d->wire = lt_mem_new(batch, sizeof(*d->wire));
	d->ids = lt_mem_new(batch, sizeof(*d->ids));
	for (uint32_t i = 0; d->made && i < d->n; i++) {
		rc = check_new(s, d->desc[i].name);
		d->made[i] = rc ? NULL : tensor_new(s, &d->desc[i]);
		if (!d->made[i])
			break;
		name_add(s, d->made[i]);
	}
	if (d->made && d->wire && d->ids && d->made[d->n - 1])
		return 0;
	declaration_drop(s, d);
	return rc ? rc : err_set(&s->err, TALLY_ENOMEM, "no memory for %u tensors", d->n);
}

static int undeclare_ids(tally_session *s, const uint32_t *ids, uint32_t n)
{
	struct msg answer, ask = { .type = MSG_UNDECLARE };

	ask.ids = (struct msg_ids){
		.req = lt_session_req(s), .job = s->job, .rank = s->who.rank,
		.timeout_ms = s->who.timeout_ms, .nids = n, .ids = ids,
	};
	return lt_session_call(s, &ask, ask.ids.req, MSG_REPLY, s->who.timeout_ms, &answer);
}

/* Takes made[from, to) back at the agent; the error being reported stays. */
static void take_back(tally_session *s, struct declaration *d, uint32_t from, uint32_t to)
{
	struct err why = s->err;
	uint32_t n;

	for (; from < to && !s->over.code; from += n) {
		n = MIN(to - from, TENSORS_PER_BATCH_MAX);
		for (uint32_t i = 0; i < n; i++)
			d->ids[i] = d->made[from + i]->id;
		(void)undeclare_ids(s, d->ids, n);
	}
	s->err = s->over.code ? s->over : why;
}

/* Believes one row of a DECLARED, or not. */
static int tensor_bind(tally_session *s, struct tally_tensor *t,
		       const struct msg_declared_tensor *row)
{
	static const uint8_t nothing;

	if (row->id == 0 || lt_tensor_by_id(s, row->id))
		return err_set(&s->err, TALLY_EPROTO, "agent at %s: tensor %s has id %u",
			       s->who.socket, t->name, row->id);
	t->id = row->id;
	t->round = row->round;		/* of a job that was there before us */
	for (int i = 0; i < 2; i++) {
		t->result[i] = t->bytes ?
			lt_session_result(s, row->slab, row->off[i], t->bytes) : &nothing;
		if (t->result[i])
			continue;
		if (s->slab_err.code) {
			s->err = s->slab_err;
			return err_wrap(&s->err, "tensor %s", t->name);
		}
		return err_set(&s->err, TALLY_EPROTO,
			       "agent at %s: tensor %s has its result in no slab", s->who.socket,
			       t->name);
	}
	return 0;
}

static int bind_batch(tally_session *s, struct declaration *d, uint32_t from,
		      const struct msg_declared *m, uint32_t n)
{
	int rc = 0;

	if (m->ntensors != n) {
		err_set(&s->err, TALLY_EPROTO, "agent at %s: of %u declared, %u answered",
			s->who.socket, n, m->ntensors);
		lt_conn_close(&s->conn);
		return lt_session_over(s);
	}
	/* all ids first: they are what take_back() needs */
	for (uint32_t i = 0; i < n; i++)
		d->made[from + i]->id = m->tensors[i].id;
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = tensor_bind(s, d->made[from + i], &m->tensors[i]);
	if (rc == TALLY_EPROTO) {
		lt_conn_close(&s->conn);
		return lt_session_over(s);
	}
	if (rc)
		take_back(s, d, from, from + n);
	return rc;
}

static int declare_batch(tally_session *s, struct declaration *d, uint32_t from, uint32_t n)
{
	struct msg answer, ask = { .type = MSG_DECLARE };
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		const tally_tensor_desc *t = &d->desc[from + i];

		d->wire[i] = (struct msg_tensor){
			.name = t->name, .dtype = (uint32_t)t->dtype, .count = t->count,
			.ndims = t->shape ? t->ndims : 0, .dims = t->shape,
			.priority = t->priority, .meaning = t->meaning,
		};
	}
	ask.declare = (struct msg_declare){
		.req = lt_session_req(s), .job = s->job, .rank = s->who.rank,
		.timeout_ms = s->who.timeout_ms, .ntensors = n, .tensors = d->wire,
	};
	rc = lt_session_call(s, &ask, ask.declare.req, MSG_DECLARED, s->who.timeout_ms, &answer);
	return rc ? rc : bind_batch(s, d, from, &answer.declared, n);
}

static bool any_meaning(const struct declaration *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		if (d->desc[i].meaning)
			return true;
	return false;
}

/* So many of the next ones, at least one, are a log entry, whatever the job's chunks: all ranks
 * cut alike. */
static uint32_t batch_of(const struct declaration *d, uint32_t from)
{
	uint32_t most = MIN(d->n - from, TENSORS_PER_BATCH_MAX), n = 0;
	uint64_t chunks = 0;

	if (any_meaning(d))
		most = MIN(most, MEANINGS_PER_BATCH);
	for (; n < most; n++) {
		const tally_tensor_desc *t = &d->desc[from + n];

		chunks += div_round_up(t->count * tally_dtype_size(t->dtype), CHUNK_BYTES_MIN);
		if (n && chunks > PLACED_MAX)
			break;
	}
	return n;
}

static int declare_all(tally_session *s, struct declaration *d)
{
	uint32_t from, n;
	int rc;

	for (from = 0; from < d->n; from += n) {
		n = batch_of(d, from);
		s->bound = d->made;
		s->nbound = from;
		rc = declare_batch(s, d, from, n);
		s->nbound = 0;
		if (rc) {
			take_back(s, d, 0, from);
			return rc;
		}
	}
	return 0;
}

int tally_declare(tally_session *s, const tally_tensor_desc *desc, uint32_t n, tally_tensor **out)
{
	LT_CALL(s);
	struct declaration d = { .desc = desc, .n = n };
	uint32_t hint = 0;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	if (!rc && n && (!desc || !out))
		rc = err_set(&s->err, TALLY_EINVAL, "no descriptions, or no room for tensors");
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = check_desc(s, &desc[i], i);
	if (rc || n == 0)
		return rc;
	rc = declaration_prepare(s, &d);
	if (rc)
		return rc;
	rc = declare_all(s, &d);
	for (uint32_t i = 0; i < n && !rc; i++) {
		put_in_slot(s, d.made[i], &hint);
		out[i] = d.made[i];
		d.made[i] = NULL;
	}
	declaration_drop(s, &d);
	return rc;
}

/* ---- undeclare ---- */

static int check_leaving(tally_session *s, tally_tensor **t, uint32_t n, uint32_t *marked)
{
	for (*marked = 0; *marked < n; ++*marked) {
		struct tally_tensor *x = t[*marked];
		int rc;

		if (!x || x->session != s || x->leaving)
			return err_set(&s->err, TALLY_EINVAL,
				       "handle %u is not of this session, or twice there",
				       *marked);
		rc = lt_gpu_settle(s, x, 0);
		if (!rc && x->state != LT_FLYING)
			rc = lt_gpu_landed(s, x, lt_now() + mono_ms(s->who.round_timeout_ms));
		if (rc)
			return rc;
		if (x->state == LT_FLYING)
			return err_set(&s->err, TALLY_EBUSY, "round %u of tensor %s is in flight; "
				       "wait for its ticket first", x->round, x->name);
		x->leaving = true;
	}
	return 0;
}

/* Undeclares one batch; its handles are freed only when the agent has let go of the tensors. */
static int undeclare_batch(tally_session *s, tally_tensor **t, uint32_t n, uint32_t *ids)
{
	int rc;

	for (uint32_t i = 0; i < n; i++)
		ids[i] = t[i]->id;
	rc = undeclare_ids(s, ids, n);
	for (uint32_t i = 0; i < n && !rc; i++) {
		tensor_free(s, t[i]);
		t[i] = NULL;
	}
	return rc;
}

int tally_undeclare(tally_session *s, tally_tensor **t, uint32_t n)
{
	LT_CALL(s);
	uint32_t marked, from, step, *ids;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	if (!rc && n && !t)
		rc = err_set(&s->err, TALLY_EINVAL, "no tensors");
	if (rc || n == 0)
		return rc;
	rc = check_leaving(s, t, n, &marked);
	for (uint32_t i = 0; i < marked; i++)
		t[i]->leaving = false;
	if (rc)
		return rc;
	ids = lt_mem_new(MIN(n, TENSORS_PER_BATCH_MAX), sizeof(*ids));
	if (!ids)
		return err_set(&s->err, TALLY_ENOMEM, "no memory to undeclare %u tensor%s", n,
			       plural(n));
	for (from = 0; from < n && !rc; from += step) {
		step = MIN(n - from, TENSORS_PER_BATCH_MAX);
		rc = undeclare_batch(s, t + from, step, ids);
	}
	lt_mem_free(ids);
	return rc;
}
