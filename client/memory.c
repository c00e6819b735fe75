// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - tally_alloc() and tally_free(): the arena, grown with the agent's help.
 *
 * When no slab has room, the agent is asked for one as large as all there are
 * (so a program that allocates piece by piece makes few slabs); when it has not
 * that much, for what is needed and no more.  The new slab is mapped writable and
 * acknowledged; then the agent lets nobody else map it so.
 * Where the agent writes, too, there are small pages: of huge ones an agent that is started
 * again can write none.  So there are where this process gets no huge pages, though the agent
 * does: a cgroup may have a limit of its own for them, which is met when they are touched.  All of
 * them are had before any is used, and a slab whose pages are refused goes back to the agent.
 *
 * tally_import() adds a slab that is a device's: none of it is given out, and the agent reads it
 * only, or has its cards read it.
 */
#include "client/session.h"
#include "common/shm/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The agent takes the slab back; from here on it is asked for small pages alone. */
static int refuse_huge(tally_session *s, const struct msg_slab *slab, mono_t deadline)
{
	struct msg answer, ask = { .type = MSG_SLAB_MAPPED, .slab = *slab };

	s->no_huge = true;
	ask.slab.req = lt_session_req(s);
	ask.slab.small = 1;
	return lt_session_call_fd(s, &ask, -1, ask.slab.req, MSG_REPLY, deadline, &answer);
}

/*
 * Gets one more slab of `bytes` from the agent and cuts it in pages.  The agent reads nothing
 * there before it has sealed what we have mapped.
 */
static int grow_by(tally_session *s, uint64_t bytes, bool written, mono_t deadline)
{
	struct msg answer, ask = { .type = MSG_SLAB_WANT };
	struct lt_arena_slab as;
	int rc, fd;

	rc = lt_arena_slab_prepare(&as, bytes, &s->err);
	if (rc)
		return rc;
	ask.slab = (struct msg_slab){
		.req = lt_session_req(s), .kind = SLAB_INPUT, .bytes = bytes,
		.small = written || s->no_huge,
	};
	rc = lt_session_call_fd(s, &ask, -1, ask.slab.req, MSG_SLAB, deadline, &answer);
	if (rc)
		goto drop;
	if (answer.slab.kind != SLAB_INPUT || answer.slab.bytes < bytes) {
		rc = lt_session_protocol_error(s, "another slab than the one asked for");
		goto drop;
	}
	fd = lt_conn_take_fd(&s->conn, 0);
	rc = slab_map(&as.mem, fd, answer.slab.bytes, true, &s->err);
	if (rc) {
		if (fd >= 0)
			close(fd);
		goto drop;
	}
	if (ask.slab.small && as.mem.huge) {
		rc = lt_session_protocol_error(s, "huge pages, which were not asked for");
		goto drop;
	}
	if (as.mem.huge && slab_prefault(&as.mem, 0, as.mem.bytes, &s->err)) {
		lt_arena_slab_drop(&as);
		rc = refuse_huge(s, &answer.slab, deadline);
		return rc ? rc : grow_by(s, bytes, written, deadline);
	}
	as.id = answer.slab.id;
	lt_arena_add(&s->arena, &as);
	ask = (struct msg){ .type = MSG_SLAB_MAPPED, .slab = answer.slab };
	ask.slab.req = lt_session_req(s);
	rc = lt_session_call_fd(s, &ask, -1, ask.slab.req, MSG_REPLY, deadline, &answer);
	if (rc)
		lt_arena_take_back(&s->arena);
	return rc;
drop:
	lt_arena_slab_drop(&as);
	return rc;
}

/* Doubles the arena, or adds just what is needed when there is not so much. */
static int grow_for(tally_session *s, uint64_t bytes, bool written)
{
	uint64_t need = align_up(MAX(bytes, 1), PAGE_BYTES);
	uint64_t wish = MIN(MAX(s->arena.bytes, LT_ARENA_GROW_MIN), LT_ARENA_GROW_MAX);
	mono_t deadline = lt_session_limit(s->who.timeout_ms);
	int rc;

	if (s->arena.nslabs == SLABS_PER_PROCESS_MAX)
		return err_set(&s->err, TALLY_EQUOTA, "the arena has its %u slabs already",
			       SLABS_PER_PROCESS_MAX);
	rc = grow_by(s, MAX(need, wish), written, deadline);
	if (need < wish && (rc == TALLY_EQUOTA || rc == TALLY_ENOMEM) && !s->over.code)
		rc = grow_by(s, need, written, deadline);
	return rc;
}

int lt_session_alloc(tally_session *s, uint64_t bytes, bool written, void **p)
{
	struct err e;
	void *got;
	int rc;

	if (bytes > SLAB_BYTES_MAX)
		return err_set(&s->err, TALLY_EINVAL, "%llu bytes are more than a slab can have",
			       (unsigned long long)bytes);
	got = lt_arena_get(&s->arena, bytes, written, &e);
	if (!got && !e.code) {
		rc = grow_for(s, bytes, written);
		if (rc)
			return rc;
		got = lt_arena_get(&s->arena, bytes, written, &e);
		ASSERT(got || e.code);
	}
	if (!got)
		return err_set(&s->err, e.code, "%s", e.text);
	*p = got;
	return 0;
}

static int check_place(tally_session *s, void **p)
{
	return p ? 0 : err_set(&s->err, TALLY_EINVAL, "no place for the memory's address");
}

int tally_alloc(tally_session *s, size_t bytes, void **p)
{
	LT_CALL(s);
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	rc = rc ? rc : check_place(s, p);
	return rc ? rc : lt_session_alloc(s, bytes, false, p);
}

/* A dma-buf, mapped here; writable where its descriptor is, of which mem has its own. */
static int map_device(tally_session *s, int fd, uint64_t bytes, struct slab *mem)
{
	int rc = slab_map_device(mem, fd, bytes, true, &s->err);

	rc = rc ? slab_map_device(mem, fd, bytes, false, &s->err) : 0;
	if (rc)
		return rc;
	mem->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (mem->fd >= 0)
		return 0;
	limit_err(&s->err, errno, "another descriptor of a dma-buf");
	slab_free(mem);
	return s->err.code;
}

static int import(tally_session *s, int fd, uint64_t bytes, void **p)
{
	struct msg answer, ask = { .type = MSG_SLAB };
	struct lt_arena_slab as = { .mem.fd = -1, .read_only = true };
	int rc;

	if (s->arena.nslabs == SLABS_PER_PROCESS_MAX)
		return err_set(&s->err, TALLY_EQUOTA, "the arena has its %u slabs already",
			       SLABS_PER_PROCESS_MAX);
	rc = map_device(s, fd, bytes, &as.mem);
	if (rc)
		return rc;
	if (!s->devices) {
		slab_free(&as.mem);
		return err_set(&s->err, TALLY_EAUTH, "the agent of this machine takes no memory of "
			       "devices (tally-agent --dma-buf)");
	}
	ask.slab = (struct msg_slab){
		.req = lt_session_req(s), .kind = SLAB_DEVICE, .bytes = as.mem.bytes,
	};
	rc = lt_session_call_fd(s, &ask, as.mem.fd, ask.slab.req, MSG_SLAB,
				lt_session_limit(s->who.timeout_ms), &answer);
	if (!rc && (answer.slab.kind != SLAB_DEVICE || answer.slab.bytes != as.mem.bytes))
		rc = lt_session_protocol_error(s, "another slab than the one that was given");
	if (rc) {
		slab_free(&as.mem);
		return rc;
	}
	as.id = answer.slab.id;
	*p = as.mem.base;
	lt_arena_add(&s->arena, &as);
	return 0;
}

int tally_import(tally_session *s, int fd, size_t bytes, void **p)
{
	LT_CALL(s);
	int rc;

	if (!s)
		return TALLY_EINVAL;
	rc = lt_session_live(s);
	rc = rc ? rc : check_place(s, p);
	return rc ? rc : import(s, fd, bytes, p);
}

static bool lies_in(const void *at, const void *p, uint64_t bytes)
{
	return at && (uintptr_t)at - (uintptr_t)p < bytes;
}

/* Where a round's result is yet to go, besides its slot; NULL: nowhere. */
static const void *out_of(const tally_session *s, const struct tally_tensor *t)
{
	if (t->state == LT_FLYING && t->sub.out_slab)
		return lt_arena_at(&s->arena, t->sub.out_slab - 1, t->sub.out_offset);
	return t->state == LT_IDLE ? NULL : t->out;
}

/* A block that a round reads or writes, or that libtally keeps for itself, stays. */
static int check_unused(tally_session *s, const void *p, uint64_t bytes)
{
	const struct tally_tensor *t;

	for (uint32_t i = 0; i < s->nslots; i++) {
		t = s->slots[i].tensor;
		if (!t)
			continue;
		if (t->staging == p)
			return err_set(&s->err, TALLY_EINVAL, "%p was not given out", p);
		if (t->state == LT_FLYING && lies_in(t->in, p, bytes))
			return err_set(&s->err, TALLY_EBUSY,
				       "round %u of tensor %s still reads that memory", t->round,
				       t->name);
		if (lies_in(out_of(s, t), p, bytes))
			return err_set(&s->err, TALLY_EBUSY, "round %u of tensor %s still writes "
				       "that memory: wait for its ticket first", t->round, t->name);
	}
	return 0;
}

int tally_free(tally_session *s, void *p)
{
	LT_CALL(s);
	uint64_t bytes;
	int rc;

	if (!s)
		return TALLY_EINVAL;
	if (!p)
		return 0;
	bytes = lt_arena_block(&s->arena, p);
	if (!bytes)
		return err_set(&s->err, TALLY_EINVAL, "%p was not given out by tally_alloc()", p);
	rc = check_unused(s, p, bytes);
	if (!rc)
		lt_arena_put(&s->arena, p);
	return rc;
}

/* Without the session's lock, which another thread of the parent may have held at the fork. */
void tally_forked(tally_session *s)
{
	if (s)
		lt_arena_unshare(&s->arena);
}
