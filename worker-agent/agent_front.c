// SPDX-License-Identifier: Apache-2.0
#include "worker-agent/agent_front.h"

#include <stdio.h>
#include <string.h>

#include "common/base/parse.h"

void fr_init(struct front *f)
{
	memset(f, 0, sizeof(*f));
	list_init(&f->jobs);
	list_init(&f->running);
}

mono_t fr_oldest(const struct front *f)
{
	return list_empty(&f->running) ? MONO_NEVER :
	       list_first(&f->running, struct fr_tensor, running_link)->since;
}

void fr_job_start(struct front *f, struct fr_job *j)
{
	list_init(&j->tensors);
	j->open = 0;
	j->live = UINT64_MAX >> (LOCAL_RANKS_MAX - j->nlocal);
	list_add(&f->jobs, &j->link);
}

struct fr_job *fr_job_find(struct front *f, uint32_t id)
{
	list_for_each(&f->jobs, l) {
		struct fr_job *j = list_entry(l, struct fr_job, link);

		if (j->id == id)
			return j;
	}
	return NULL;
}

void fr_job_stop(struct front *f, struct fr_job *j)
{
	while (!list_empty(&j->tensors))
		fr_tensor_remove(f, list_first(&j->tensors, struct fr_tensor, link));
	list_del(&j->link);
}

/* A job's tensors are numbered one after the other: so are their places here, and a step
 * that goes through all of them goes through the table from end to end. */
static uint32_t bucket_of(uint32_t job, uint32_t id)
{
	return (job * 0x9e3779b1u + id) & (FR_BUCKETS - 1);
}

size_t fr_tensor_size(uint32_t nlocal)
{
	return sizeof(struct fr_tensor) + nlocal * sizeof(struct fr_input);
}

void fr_tensor_add(struct front *f, struct fr_job *j, struct fr_tensor *t)
{
	struct fr_tensor **head = &f->bucket[bucket_of(j->id, t->id)];

	t->job = j;
	list_init(&t->running_link);
	for (uint32_t l = 0; l < j->nlocal; l++)
		list_init(&t->in[l].owed);
	list_add(&j->tensors, &t->link);
	t->hash_next = *head;
	*head = t;
}

struct fr_tensor *fr_tensor_find(struct front *f, uint32_t job, uint32_t id)
{
	struct fr_tensor *t = f->bucket[bucket_of(job, id)];

	while (t && (t->id != id || t->job->id != job))
		t = t->hash_next;
	return t;
}

void fr_tensor_remove(struct front *f, struct fr_tensor *t)
{
	struct fr_tensor **at = &f->bucket[bucket_of(t->job->id, t->id)];

	while (*at != t)
		at = &(*at)->hash_next;
	*at = t->hash_next;
	t->job->open -= t->running;
	list_del(&t->link);
	list_del(&t->running_link);
	for (uint32_t l = 0; l < t->job->nlocal; l++)
		list_del(&t->in[l].owed);
}

/* ---- submissions ---- */

static int bad(struct err *e, const struct fr_job *j, uint32_t local, const char *what,
	       uint64_t value)
{
	return err_set(e, TALLY_EPROTO, "rank %u submitted a descriptor with a bad %s (%llu)",
		       j->rank[local], what, (unsigned long long)value);
}

/* A broadcast's rank that is not the root takes part without data. */
static bool only_listens(const struct fr_job *j, uint32_t local, const struct ring_sub *s)
{
	return s->rop == ROP_BROADCAST && s->root != j->rank[local] && !s->length;
}

static bool whole_chunks(const struct fr_tensor *t, const struct ring_sub *s)
{
	return s->length && range_ok(s->at, s->length, t->bytes) && s->at % t->chunk_bytes == 0 &&
	       (s->length % t->chunk_bytes == 0 || s->at + s->length == t->bytes);
}

/* Of a round whose inputs come by pieces. */
static int check_part(const struct fr_job *j, uint32_t local, const struct fr_tensor *t,
		      const struct ring_sub *s, struct err *e)
{
	if (s->part >= PART_END || !t->bytes || j->shrink)
		return bad(e, j, local, "part", s->part);
	if (s->rop == ROP_BROADCAST)
		return bad(e, j, local, "operation", s->rop);
	if (s->part == PART_PIECE && (s->group >= t->groups || s->groups))
		return bad(e, j, local, "group", s->group);
	if (s->part == PART_PIECE && !whole_chunks(t, s))
		return bad(e, j, local, "piece", s->at);
	if (s->part == PART_PIECE)
		return 0;
	if (!s->groups || s->groups > j->nlocal || s->group)
		return bad(e, j, local, "number of groups", s->groups);
	if (!s->run)
		return bad(e, j, local, "run", s->run);
	if (s->at || s->offset % 4 || s->out_slab ||
	    s->length != 4 * div_round_up(div_round_up(t->bytes, t->chunk_bytes), s->run))
		return bad(e, j, local, "length", s->length);
	return 0;
}

static int check_shape(const struct fr_job *j, uint32_t local, const struct fr_tensor *t,
		       const struct ring_sub *s, struct err *e)
{
	if (s->rop == ROP_NONE || s->rop >= ROP_END)
		return bad(e, j, local, "operation", s->rop);
	if (s->rop == ROP_BROADCAST && s->root >= j->world)
		return bad(e, j, local, "root", s->root);
	if (s->run && s->part != PART_OPEN)
		return bad(e, j, local, "run", s->run);
	if (s->part != PART_WHOLE)
		return check_part(j, local, t, s, e);
	if (s->groups || s->group)
		return bad(e, j, local, "group", s->group);
	if (s->at || (s->length != t->bytes && !only_listens(j, local, s)))
		return bad(e, j, local, "length", s->length);
	return 0;
}

static int32_t local_of(const struct fr_job *j, uint32_t rank)
{
	for (uint32_t l = 0; l < j->nlocal; l++)
		if (j->rank[l] == rank && j->live >> l & 1)
			return (int32_t)l;
	return -1;
}

static void open_round(struct front *f, struct fr_tensor *t, const struct ring_sub *s, mono_t now)
{
	t->round = s->round;
	t->running = true;
	t->rop = s->rop;
	t->groups = s->groups;
	t->pieces = 0;
	t->root = s->root;
	t->root_local = s->rop == ROP_BROADCAST ? local_of(t->job, s->root) : -1;
	t->priority = s->priority;
	t->seq = f->next_seq++;
	t->since = now;
	if (!t->job->open++)
		t->job->open_since = now;
	t->times = (struct ag_times){ 0 };
	t->waits.kind = WAIT_NONE;
	t->left = (uint32_t)__builtin_popcount(t->engines);
	t->posted = 0;
	list_add(&f->running, &t->running_link);
}

/* j->nlocal: nobody has. */
static uint32_t first_posted(const struct fr_job *j, const struct fr_tensor *t)
{
	return t->posted ? (uint32_t)__builtin_ctzll(t->posted) : j->nlocal;
}

static int check_agrees(const struct fr_job *j, uint32_t local, const struct fr_tensor *t,
			const struct ring_sub *s, struct err *e)
{
	uint32_t first = first_posted(j, t);

	if (first == j->nlocal)		/* it opened the round, or the process before it did */
		first = local;
	if (s->rop != t->rop)
		return err_set(e, TALLY_EMISMATCH,
			       "tensor '%.60s' round %u: rank %u: %s, rank %u: %s", t->name,
			       t->round, j->rank[first], rop_name(t->rop), j->rank[local],
			       rop_name(s->rop));
	if (s->groups != t->groups)
		return err_set(e, TALLY_EMISMATCH,
			       "tensor '%.60s' round %u: rank %u: %u group%s of GPUs, rank %u: %u "
			       "(0: in host memory)", t->name, t->round, j->rank[first], t->groups,
			       plural(t->groups), j->rank[local], s->groups);
	if (t->rop == ROP_BROADCAST && s->root != t->root)
		return err_set(e, TALLY_EMISMATCH,
			       "tensor '%.60s' round %u: rank %u: broadcast from rank %u, "
			       "rank %u: broadcast from rank %u", t->name, t->round, j->rank[first],
			       t->root, j->rank[local], s->root);
	return 0;
}

#define SAME_ORDER "all ranks start rounds on GPUs in the same order"

/*
 * The tensor, other than `but`, that is some rank's `turn`-th round on GPUs; NULL: there is none
 * yet.
 */
static const struct fr_tensor *of_turn(struct front *f, const struct fr_job *j,
				       const struct fr_tensor *but, uint64_t turn)
{
	list_for_each(&f->running, l) {
		const struct fr_tensor *t = list_entry(l, struct fr_tensor, running_link);

		if (t != but && t->job == j && t->groups && t->turn == turn)
			return t;
	}
	return NULL;
}

static bool is_ahead(const struct fr_job *j, uint32_t local, uint64_t turn)
{
	for (uint32_t l = 0; l < j->nlocal; l++)
		if (l != local && j->turns[l] >= turn)
			return false;
	return true;
}

/*
 * A group's GPUs take part in what its ranks start, one after the other, whatever it is called:
 * in another order they would add one tensor to another.  Seen with the first that is begun in
 * another's turn: who has begun something else waits for them on its GPU, and may never begin a
 * second.  Where each GPU is a group nobody's order matters.
 */
static int check_order(struct front *f, struct fr_job *j, uint32_t local, struct fr_tensor *t,
		       struct err *e)
{
	uint64_t turn = ++j->turns[local];
	bool opens = first_posted(j, t) == j->nlocal;
	const struct fr_tensor *other;

	/* nobody else has had that turn, or it was with this one */
	if (opens ? is_ahead(j, local, turn) : t->turn == turn) {
		t->turn = turn;
		return 0;
	}
	other = of_turn(f, j, t, turn);
	if (opens)
		t->turn = turn;
	if (!other)
		return 0;
	return err_set(e, TALLY_EMISMATCH, "tensor '%.60s' round %u: rank %u starts it on its GPU "
		       "where others start '%.60s'; " SAME_ORDER, t->name, t->round, j->rank[local],
		       other->name);
}

/* A completion that found no room is owed, one for each tensor. */
static int check_heard(const struct fr_job *j, uint32_t local, const struct fr_tensor *t,
		       struct err *e)
{
	if (list_empty(&t->in[local].owed))
		return 0;
	return err_set(e, TALLY_EPROTO, "rank %u went on with tensor '%.60s' before it had heard "
		       "that round %u is done", j->rank[local], t->name, t->in[local].owed_round);
}

/* A piece belongs to the round that its rank has opened. */
static int check_turn(struct front *f, const struct fr_job *j, uint32_t local,
		      struct fr_tensor *t, const struct ring_sub *s, mono_t now, struct err *e)
{
	bool piece = s->part == PART_PIECE;

	if (!t->running && s->round == round_next(t->round) && !piece)
		open_round(f, t, s, now);
	else if (!t->running || s->round != t->round || fr_posted(t, local) != piece)
		return bad(e, j, local, "round", s->round);
	if (piece)
		return s->rop == t->rop ? 0 : bad(e, j, local, "operation", s->rop);
	return check_agrees(j, local, t, s, e);
}

/* Where all ranks are on this machine: else the server finds that nobody has the data. */
static int check_root(const struct fr_job *j, const struct ring_sub *s, struct err *e)
{
	if (s->rop != ROP_BROADCAST || j->world != j->nlocal || local_of(j, s->root) >= 0)
		return 0;
	return err_set(e, TALLY_ESHUTDOWN, "a broadcast from rank %u, which is gone", s->root);
}

int fr_submit(struct front *f, struct fr_job *j, uint32_t local, const struct ring_sub *s,
	      const uint8_t *base, uint64_t base_slot, mono_t now, struct fr_tensor **out,
	      struct ag_post *post, struct err *e)
{
	struct fr_tensor *t = fr_tensor_find(f, j->id, s->tensor);
	int rc;

	if (!t)
		return bad(e, j, local, "tensor", s->tensor);
	rc = check_shape(j, local, t, s, e);
	rc = rc ? rc : check_heard(j, local, t, e);
	if (rc)
		return rc;
	rc = t->running ? 0 : check_root(j, s, e);
	rc = rc ? rc : check_turn(f, j, local, t, s, now, e);
	if (!rc && s->part == PART_OPEN && s->groups < j->nlocal)
		rc = check_order(f, j, local, t, e);
	if (rc)
		return rc;
	t->posted |= 1ull << local;
	t->pieces += s->part == PART_PIECE ? s->length : 0;
	*post = (struct ag_post){
		.round = t->round,
		.local = local,
		.rop = t->rop,
		.part = s->part,
		.group = s->group,
		.groups = t->groups,
		.root_local = t->root_local,
		.root = t->rop == ROP_BROADCAST ? t->root : 0,
		.priority = t->priority,
		.seq = t->seq,
		.at = s->at,
		.length = s->part == PART_PIECE ? s->length : t->bytes,
		.run = s->run,
		.base = base,
		.base_slot = base_slot,
	};
	*out = t;
	return 0;
}

bool fr_all_posted(const struct fr_tensor *t)
{
	return !fr_unposted(t);
}

/*
 * Takes lost ranks out and lets others in. Inputs that the process before gave are not those of
 * the one in its place.
 */
void fr_job_shrink(struct fr_job *j, uint64_t live)
{
	uint64_t came = live & ~j->live;

	j->live = live;
	list_for_each(&j->tensors, l)
		list_entry(l, struct fr_tensor, link)->posted &= ~came;
}

void fr_again(struct fr_tensor *t)
{
	ASSERT(t->running);
	t->left = (uint32_t)__builtin_popcount(t->engines);
	t->times = (struct ag_times){ 0 };
	t->waits.kind = WAIT_NONE;
	if (t->root_local >= 0 && !(t->job->live >> t->root_local & 1) &&
	    !fr_posted(t, (uint32_t)t->root_local))
		t->root_local = -1;	/* it ended before it gave its data */
}

bool fr_engine_done(struct front *f, struct fr_tensor *t, const struct ag_times *times)
{
	(void)f;
	ASSERT(t->running && t->left);
	ag_times_join(&t->times, times);
	return --t->left == 0;
}

void fr_finish(struct front *f, struct fr_tensor *t, mono_t now)
{
	struct fr_job *j = t->job;

	ASSERT(t->running && !t->left && j->open);
	t->running = false;
	j->open--;
	j->open_ns += (uint64_t)(now - j->open_since);
	j->open_since = now;
	j->over_bytes += t->bytes;
	list_del(&t->running_link);
	f->rounds++;
}

const char *fr_missing(const struct fr_tensor *t, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (uint32_t l = 0; l < t->job->nlocal && at < len; l++) {
		if (!(fr_unposted(t) >> l & 1))
			continue;
		at += (size_t)snprintf(buf + at, len - at, "%s%u", at ? ", " : "rank ",
				       t->job->rank[l]);
	}
	return buf;
}
