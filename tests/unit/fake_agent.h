/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_agent.h - an agent in a thread, for the tests of libtally.
 *
 * It speaks the local protocol for one process at a time and gives each round's
 * input back as its result.  `trick` makes it misbehave at one place.  It may be
 * changed between two calls of libtally.
 */
#ifndef TALLY_TESTS_FAKE_AGENT_H
#define TALLY_TESTS_FAKE_AGENT_H

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/clock.h"
#include "common/shm/ring.h"
#include "common/shm/slab.h"
#include "proto/msg.h"

enum fake_trick {
	NO_TRICK,
	REFUSE_ATTACH,		/* EMISMATCH with a text */
	MUTE_ATTACH,		/* no answer */
	GARBAGE_ATTACH,		/* bytes that are no message */
	HANG_UP_ATTACH,
	FEW_FDS_ATTACH,		/* two of three descriptors */
	NO_BELL_ATTACH,		/* a pipe where a bell should be */
	SHORT_RING_ATTACH,	/* an unsealed memfd of one page as the ring */
	OTHER_RANK_ATTACH,
	WRONG_REQ_BARRIER,
	WRONG_TYPE_BARRIER,
	REFUSE_BARRIER,		/* ETIMEDOUT "rank 1 (machine b) is missing" */
	LATE_BARRIER,		/* the first one is answered together with the second */
	REFUSE_SLAB,		/* EQUOTA when more than 1 MiB is wanted */
	LATE_SLAB,		/* the same, and each of its answers comes SLAB_LATE_MS later */
	SMALL_SLAB,
	NO_FD_SLAB,
	REFUSE_DECLARE,
	NO_SLAB_DECLARE,	/* results in a slab that does not exist */
	OUTSIDE_DECLARE,	/* results beyond the slab's end */
	SAME_ID_DECLARE,
	FEW_DECLARE,
	REFUSE_SECOND_DECLARE,
	NO_ROOM_RESULTS,	/* this process has no address space for them */
	HOLD_ROUNDS,		/* completes nothing until `release` */
	DIE_ON_ROUND,
	LEAVE_ON_ROUND,		/* is started again; has finished the round meanwhile, unheard */
	FAIL_ROUND,		/* completion with ESERVERLOST */
	FAIL_JOB,		/* job_code EWORKERLOST on a round */
	BREAK_RING,		/* impossible completion tail on a round */
	STALE_COMPLETIONS,	/* three wrong completions before the right one */
	TELL_TIMES,		/* of a round: in each completion */
	TELL_EARLY_TIMES,	/* all but the last by a clock read long ago */
	TELL_OTHER_TIMES,	/* of another machine's clock */
};

#define SLAB_LATE_MS	2200u
#define FAKE_TENSORS	40000u
#define FAKE_HELD	64u
#define FAKE_SLABS	128u

struct fake_tensor {
	uint8_t *result;		/* of an even round; the odd one's is bytes_up later */
	uint64_t bytes, bytes_up;
	bool live;
};

struct fake_agent {
	_Atomic enum fake_trick trick;
	char dir[32], path[64];
	int listener, conn;
	int bell[2], stop[2];
	pthread_t thread;
	pthread_mutex_t pause;		/* while locked, the ring is not read */
	atomic_uint live_tensors, declares, detaches, slabs_mapped, input_slabs, rounds;
	atomic_int last_priority, last_rop;
	atomic_uint last_out;		/* slab + 1 that the result was wanted in */
	_Atomic uint64_t last_generation;	/* of a barrier */

	struct slab ring_mem, input[FAKE_SLABS], output[FAKE_SLABS];
	uint32_t ninput, noutput, ids;
	struct ring_end ring;
	int sub_bell[2], cpl_bell[2];
	uint64_t late_req;
	atomic_bool left;		/* by LEAVE_ON_ROUND: it keeps what it had */
	atomic_bool still;		/* hears nobody new, though the kernel connects them */
	atomic_bool at_once;		/* takes back whom it left, without `release` */
	atomic_bool dies_of_detach;	/* once: and is started again */
	atomic_bool dies_of_back;	/* once: having taken a process back, it reads no ring */
	atomic_uint grace_ms;		/* for LEAVE_ON_ROUND */
	atomic_uint swallows;		/* and so many rounds are in flight before */
	atomic_uint first_round;	/* that tensors have when they are declared */
	struct msg_attach back;
	atomic_uint backs, back_round;	/* asked to take a process back, with that round done, */
	atomic_uint back_flies;		/* and the next one in flight */
	atomic_uint back_results;	/* slabs that were handed back */
	struct ring_sub held[FAKE_HELD];
	uint32_t nheld;
	struct fake_tensor tensors[FAKE_TENSORS];
};

static inline void fake_send(struct fake_agent *f, const struct msg *m, const int *fds,
			     uint32_t nfds)
{
	struct err e;
	uint32_t bytes;
	uint8_t *out;
	ssize_t n;

	ASSERT(msg_encode_size(m, &bytes, &e) == 0);
	out = malloc(bytes);
	ASSERT(out && msg_encode(m, out, bytes, &e) == 0);
	/* the prefix alone first: the client must put descriptors and body together */
	n = fdmsg_send(f->conn, out, MSG_PREFIX_BYTES, fds, nfds);
	for (size_t at = MSG_PREFIX_BYTES; n > 0 && at < bytes; at += (size_t)n)
		n = send(f->conn, out + at, bytes - at, MSG_NOSIGNAL);
	free(out);
}

static inline void fake_reply(struct fake_agent *f, uint64_t req, int code, const char *text)
{
	struct msg m = { .type = MSG_REPLY, .reply = { .req = req, .code = code, .text = text } };

	fake_send(f, &m, NULL, 0);
}

static inline void fake_forget(struct fake_agent *f)
{
	for (uint32_t i = 0; i < f->ninput; i++)
		slab_free(&f->input[i]);
	for (uint32_t i = 0; i < f->noutput; i++)
		slab_free(&f->output[i]);
	slab_free(&f->ring_mem);
	for (int i = 0; i < 2; i++) {
		if (f->sub_bell[i] >= 0)
			close(f->sub_bell[i]);
		if (f->cpl_bell[i] >= 0)
			close(f->cpl_bell[i]);
		f->sub_bell[i] = f->cpl_bell[i] = -1;
	}
	if (f->conn >= 0)
		close(f->conn);
	f->conn = -1;
	f->ninput = f->noutput = f->nheld = 0;
	memset(f->tensors, 0, sizeof(f->tensors));
}

static inline void fake_attach(struct fake_agent *f, const struct msg_attach *a)
{
	struct msg m = { .type = MSG_ATTACHED };
	int fds[3], pipefd[2] = { -1, -1 };
	struct slab shorty = { 0 };
	struct err e;

	ASSERT(slab_new(&f->ring_mem, "ring", ring_shared_bytes(), false, &e) == 0);
	ring_format(f->ring_mem.base);
	ASSERT(ring_sub_bell_new(f->sub_bell) == 0);
	ASSERT(ring_cpl_bell_new(f->cpl_bell) == 0);
	ring_end_init(&f->ring, f->ring_mem.base, f->sub_bell[1], f->cpl_bell[0]);
	ASSERT(ring_sub_sleep(&f->ring));
	m.attached = (struct msg_attached){
		.req = a->req, .job = 1, .world = a->world, .rank = a->rank, .local_size = 2,
		.local_rank = 1, .machines = 3, .chunk_bytes = CHUNK_BYTES_DEFAULT,
		.agent = "fake",
		.grace_ms = f->trick == LEAVE_ON_ROUND || a->back ? f->grace_ms : 0,
		.devices = 1,
	};
	if (f->trick == OTHER_RANK_ATTACH)
		m.attached.world++;
	memcpy(fds, (int[]){ f->ring_mem.fd, f->sub_bell[0], f->cpl_bell[1] }, sizeof(fds));
	if (f->trick == NO_BELL_ATTACH) {
		ASSERT(pipe(pipefd) == 0);
		fds[2] = pipefd[0];
	} else if (f->trick == SHORT_RING_ATTACH) {
		ASSERT(slab_new(&shorty, "short", 1, false, &e) == 0);
		fds[0] = shorty.fd;
	}
	fake_send(f, &m, fds, f->trick == FEW_FDS_ATTACH ? 2 : 3);
	close(f->sub_bell[0]);
	close(f->cpl_bell[1]);
	f->sub_bell[0] = f->cpl_bell[1] = -1;
	if (pipefd[0] >= 0) {
		close(pipefd[0]);
		close(pipefd[1]);
	}
	slab_free(&shorty);
}

/* The first one's ring is there until `release`: then the process is answered. */
static inline void fake_on_back(struct fake_agent *f, const struct msg_attach *a);

/* False: the connection is over. */
static inline bool fake_on_attach(struct fake_agent *f, const struct msg_attach *a)
{
	if (a->back) {
		fake_on_back(f, a);
		return true;
	}
	switch (f->trick) {
	case REFUSE_ATTACH:
		fake_reply(f, a->req, TALLY_EMISMATCH, "rank 1 says 2 ranks, rank 0 says 4");
		return true;
	case MUTE_ATTACH:
		return true;
	case GARBAGE_ATTACH:
		return send(f->conn, "HTTP/1.1 400 Bad Request\r\n", 26, MSG_NOSIGNAL) > 0;
	case HANG_UP_ATTACH:
		return false;
	default:
		fake_attach(f, a);
		return true;
	}
}

static inline void fake_on_slab_want(struct fake_agent *f, const struct msg_slab *w)
{
	struct slab *s = &f->input[f->ninput];
	struct msg m = { .type = MSG_SLAB, .slab = *w };
	struct err e;

	if (f->trick == LATE_SLAB)
		usleep(SLAB_LATE_MS * 1000);
	if ((f->trick == REFUSE_SLAB || f->trick == LATE_SLAB) && w->bytes > 1u << 20) {
		fake_reply(f, w->req, TALLY_EQUOTA, "1 MiB is all there is");
		return;
	}
	ASSERT(f->ninput < FAKE_SLABS && slab_new(s, "input", w->bytes, false, &e) == 0);
	m.slab.id = 100 + f->ninput++;
	m.slab.bytes = s->bytes;
	if (f->trick == SMALL_SLAB)
		m.slab.bytes = PAGE_BYTES;
	fake_send(f, &m, &s->fd, f->trick == NO_FD_SLAB ? 0 : 1);
	atomic_fetch_add(&f->input_slabs, 1);
}

/* So much address space is left. */
static inline void fake_tighten(uint64_t bytes)
{
	FILE *statm = fopen("/proc/self/statm", "r");
	unsigned long long pages;
	struct rlimit limit;

	ASSERT(statm && fscanf(statm, "%llu", &pages) == 1);
	fclose(statm);
	ASSERT(getrlimit(RLIMIT_AS, &limit) == 0);
	limit.rlim_cur = pages * PAGE_BYTES + bytes;
	ASSERT(setrlimit(RLIMIT_AS, &limit) == 0);
}

static inline void fake_result_slab(struct fake_agent *f, uint64_t bytes)
{
	struct slab *s = &f->output[f->noutput];
	struct msg m = { .type = MSG_SLAB };
	struct err e;
	int fd;

	ASSERT(f->noutput < FAKE_SLABS && slab_new(s, "output", bytes, false, &e) == 0);
	ASSERT(slab_readonly_fd(s, &fd, &e) == 0 && slab_seal(s, &e) == 0);
	m.slab = (struct msg_slab){ .id = f->noutput++, .kind = SLAB_RESULT, .bytes = s->bytes };
	if (f->trick == NO_ROOM_RESULTS)
		fake_tighten(s->bytes / 2);
	fake_send(f, &m, &fd, 1);
	close(fd);
}

/* Lays two results per tensor out in the newest slab. */
static inline void fake_lay_out(struct fake_agent *f, const struct msg_declare *d,
				struct msg_declared_tensor *rows)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < d->ntensors; i++) {
		uint64_t bytes = d->tensors[i].count * dtype_bytes((uint8_t)d->tensors[i].dtype);
		uint64_t up = align_up(bytes, 64);
		uint32_t id = ++f->ids;

		ASSERT(id < FAKE_TENSORS);
		rows[i] = (struct msg_declared_tensor){
			.id = id, .slab = f->noutput - 1, .off = { at, at + up },
			.round = f->first_round,
		};
		if (f->trick == NO_SLAB_DECLARE)
			rows[i].slab = 4711;
		if (f->trick == OUTSIDE_DECLARE)
			rows[i].off[1] = f->output[f->noutput - 1].bytes - 1;
		if (f->trick == SAME_ID_DECLARE)
			rows[i].id = 1;
		f->tensors[id] = (struct fake_tensor){
			.result = f->output[f->noutput - 1].base + at, .bytes = bytes,
			.bytes_up = up, .live = true,
		};
		at += 2 * up;
	}
	atomic_fetch_add(&f->live_tensors, d->ntensors);
}

static inline void fake_on_declare(struct fake_agent *f, const struct msg_declare *d)
{
	struct msg m = { .type = MSG_DECLARED, .declared = { .req = d->req, .text = "" } };
	struct msg_declared_tensor *rows = calloc(d->ntensors, sizeof(*rows));
	uint32_t nth = atomic_fetch_add(&f->declares, 1) + 1;
	uint64_t total = 0;

	ASSERT(rows);
	if (f->trick == REFUSE_DECLARE || (f->trick == REFUSE_SECOND_DECLARE && nth == 2)) {
		m.declared.code = TALLY_EMISMATCH;
		m.declared.text = "tensor w: rank 0 says float32, rank 1 says int8";
	} else {
		for (uint32_t i = 0; i < d->ntensors; i++)
			total += 2 * align_up(d->tensors[i].count *
					      dtype_bytes((uint8_t)d->tensors[i].dtype), 64);
		fake_result_slab(f, MAX(total, 1));
		fake_lay_out(f, d, rows);
		m.declared.ntensors = d->ntensors - (f->trick == FEW_DECLARE);
		m.declared.tensors = rows;
	}
	fake_send(f, &m, NULL, 0);
	free(rows);
}

static inline void fake_on_undeclare(struct fake_agent *f, const struct msg_ids *m)
{
	for (uint32_t i = 0; i < m->nids; i++) {
		ASSERT(m->ids[i] < FAKE_TENSORS && f->tensors[m->ids[i]].live);
		f->tensors[m->ids[i]].live = false;
	}
	atomic_fetch_sub(&f->live_tensors, m->nids);
	fake_reply(f, m->req, 0, "");
}

static inline void fake_on_barrier(struct fake_agent *f, const struct msg_barrier *b)
{
	struct msg odd = { .type = MSG_ATTACHED, .attached = {
		.req = b->req, .world = 1, .local_size = 1, .chunk_bytes = CHUNK_BYTES_DEFAULT,
		.agent = "fake", .machines = 1, .job = 1,
	} };

	f->last_generation = b->generation;
	switch (f->trick) {
	case WRONG_REQ_BARRIER:
		fake_reply(f, b->req + 1000, 0, "");
		break;
	case WRONG_TYPE_BARRIER:
		fake_send(f, &odd, NULL, 0);
		break;
	case REFUSE_BARRIER:
		fake_reply(f, b->req, TALLY_ETIMEDOUT, "rank 1 (machine b) is missing");
		break;
	case LATE_BARRIER:
		if (f->late_req)
			fake_reply(f, f->late_req, TALLY_EIO, "too late");
		if (f->late_req)
			fake_reply(f, b->req, 0, "");
		f->late_req = b->req;
		break;
	default:
		fake_reply(f, b->req, 0, "");
	}
}

/* False: goodbye. */
static inline bool fake_on_msg(struct fake_agent *f, const struct msg *m)
{
	switch (m->type) {
	case MSG_ATTACH:
		return fake_on_attach(f, &m->attach);
	case MSG_SLAB_WANT:
		fake_on_slab_want(f, &m->slab);
		return true;
	case MSG_SLAB_MAPPED:
		atomic_fetch_add(&f->slabs_mapped, 1);
		if (m->slab.kind == SLAB_INPUT)
			fake_reply(f, m->slab.req, 0, "");
		return true;
	case MSG_DECLARE:
		fake_on_declare(f, &m->declare);
		return true;
	case MSG_UNDECLARE:
		fake_on_undeclare(f, &m->ids);
		return true;
	case MSG_BARRIER:
		fake_on_barrier(f, &m->barrier);
		return true;
	case MSG_DETACH:
		if (atomic_exchange(&f->dies_of_detach, false))
			return false;
		atomic_fetch_add(&f->detaches, 1);
		f->left = false;
		fake_reply(f, m->reply.req, 0, "");
		return false;
	case MSG_SLAB:
		atomic_fetch_add(&f->back_results, m->slab.kind == SLAB_RESULT);
		return true;		/* handed back: it is here */
	case MSG_DECLARED:
		f->back_round = m->declared.tensors[0].round;
		f->back_flies = m->declared.tensors[0].flies;
		return true;
	default:
		ASSERT(!"a message that no client sends");
		return false;
	}
}

static inline bool fake_recv_all(int fd, void *buf, size_t len)
{
	return len == 0 || recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

static inline bool fake_read_msg(struct fake_agent *f)
{
	uint8_t prefix[MSG_PREFIX_BYTES], *body;
	uint32_t bytes, type;
	struct msg_mem mem = { 0 };
	struct err e = { 0 };
	struct msg m;
	bool more;

	if (!fake_recv_all(f->conn, prefix, sizeof(prefix)))
		return false;
	ASSERT(msg_prefix_decode(prefix, &bytes, &type, &e) == 0);
	body = malloc(bytes + 1);
	mem.size = msg_mem_need(bytes);
	mem.base = malloc(mem.size);
	ASSERT(body && mem.base);
	more = fake_recv_all(f->conn, body, bytes);
	if (more) {
		if (msg_decode(type, body, bytes, &mem, &m, &e))
			fprintf(stderr, "fake agent: %s\n", e.text);
		ASSERT(e.code == 0);
		more = fake_on_msg(f, &m);
	}
	free(body);
	free(mem.base);
	return more;
}

static inline const uint8_t *fake_input(struct fake_agent *f, const struct ring_sub *s)
{
	ASSERT(s->slab >= 100 && s->slab - 100 < f->ninput);
	ASSERT(range_ok(s->offset, s->length, f->input[s->slab - 100].bytes));
	return f->input[s->slab - 100].base + s->offset;
}

/* Microseconds that a time of a round is before the truth. */
static inline uint32_t time_error(enum fake_trick trick, int which)
{
	if (trick == TELL_OTHER_TIMES)
		return 1u << 30;
	return trick == TELL_EARLY_TIMES && which != TIME_DONE ? 5000000 : 0;
}

static inline void fake_complete(struct fake_agent *f, const struct ring_sub *s)
{
	struct ring_cpl c = { .tensor = s->tensor, .round = s->round };
	struct fake_tensor *t = &f->tensors[s->tensor];
	struct ring_cpl odd;

	if (s->length)
		memcpy(t->result + (s->round & 1) * t->bytes_up, fake_input(f, s), t->bytes);
	atomic_store(&f->last_out, s->out_slab);
	if (s->out_slab) {
		ASSERT(s->out_slab >= 101 && s->out_slab - 101 < f->ninput);
		ASSERT(range_ok(s->out_offset, t->bytes, f->input[s->out_slab - 101].bytes));
		memcpy(f->input[s->out_slab - 101].base + s->out_offset,
		       t->result + (s->round & 1) * t->bytes_up, t->bytes);
	}
	for (int i = 0; i < TIME_END && f->trick >= TELL_TIMES; i++)
		c.at[i] = RING_TIME(lt_now()) - time_error(f->trick, i);
	if (f->trick == FAIL_ROUND)
		c.code = TALLY_ESERVERLOST;
	if (f->trick == STALE_COMPLETIONS) {
		odd = (struct ring_cpl){ .tensor = 999999, .round = s->round, .code = -3 };
		ring_cpl_post(&f->ring, &odd);
		odd = (struct ring_cpl){ .tensor = s->tensor, .round = s->round - 1, .code = -3 };
		ring_cpl_post(&f->ring, &odd);
		ring_cpl_post(&f->ring, &c);
		c.code = TALLY_EPROTO;
	}
	while (ring_cpl_post(&f->ring, &c) == TALLY_EAGAIN)
		sched_yield();
	ring_cpl_publish(&f->ring);
}

static inline void fake_take_back(struct fake_agent *f)
{
	slab_free(&f->ring_mem);
	close(f->sub_bell[1]);
	close(f->cpl_bell[0]);
	f->left = false;
	f->trick = NO_TRICK;
	fake_attach(f, &f->back);
	if (!atomic_exchange(&f->dies_of_back, false))
		return;
	f->left = true;
	(void)shutdown(f->conn, SHUT_RDWR);
}

static inline void fake_on_back(struct fake_agent *f, const struct msg_attach *a)
{
	f->back = *a;
	for (uint32_t i = 0; i < f->nheld; i++)
		fake_complete(f, &f->held[i]);
	f->nheld = 0;
	atomic_fetch_add(&f->backs, 1);
	if (f->at_once)
		fake_take_back(f);
}

/* False: the agent dies of it. */
static inline bool fake_on_sub(struct fake_agent *f, const struct ring_sub *s)
{
	ASSERT(s->tensor < FAKE_TENSORS && f->tensors[s->tensor].live);
	ASSERT(s->length == 0 || s->length == f->tensors[s->tensor].bytes);
	atomic_store(&f->last_priority, s->priority);
	atomic_store(&f->last_rop, s->rop);
	atomic_fetch_add(&f->rounds, 1);
	switch (f->trick) {
	case DIE_ON_ROUND:
		return false;
	case LEAVE_ON_ROUND:
		if (f->swallows) {
			f->swallows--;
			return true;
		}
		f->held[f->nheld++] = *s;
		f->left = true;
		return false;
	case FAIL_JOB:
		ring_status_set(&f->ring, TALLY_EWORKERLOST, "rank 3 is gone", NULL);
		return true;
	case BREAK_RING:
		memset(f->ring_mem.base + 192, 0x7f, 4);
		ring_status_set(&f->ring, 0, NULL, NULL);
		send(f->cpl_bell[0], "", 1, MSG_NOSIGNAL);
		return true;
	case HOLD_ROUNDS:
		ASSERT(f->nheld < FAKE_HELD);
		f->held[f->nheld++] = *s;
		ring_status_set(&f->ring, 0, NULL, "waiting for rank 3 (machine b)");
		return true;
	default:
		fake_complete(f, s);
		return true;
	}
}

static inline bool fake_ring(struct fake_agent *f)
{
	struct ring_sub s;

	bool more = ring_sub_wake(&f->ring) == 0;

	pthread_mutex_lock(&f->pause);
	do {
		while (more && ring_sub_take(&f->ring, &s) == 0)
			more = fake_on_sub(f, &s);
	} while (more && !ring_sub_sleep(&f->ring));
	pthread_mutex_unlock(&f->pause);
	return more;
}

static inline void fake_serve(struct fake_agent *f)
{
	struct pollfd p[4] = {
		{ .fd = f->conn, .events = POLLIN }, { .events = POLLIN },
		{ .fd = f->bell[0], .events = POLLIN }, { .fd = f->stop[0], .events = POLLIN },
	};
	char c;

	for (;;) {
		p[1].fd = f->left ? -1 : f->sub_bell[1];	/* a dead one's is not read */
		(void)poll(p, 4, -1);
		if (p[3].revents)
			return;
		if (p[2].revents && read(f->bell[0], &c, 1) == 1) {
			for (uint32_t i = 0; i < f->nheld; i++)
				fake_complete(f, &f->held[i]);
			f->nheld = 0;
			if (f->left)
				fake_take_back(f);
		}
		if (p[1].fd >= 0 && p[1].revents && !fake_ring(f))
			return;
		if (p[0].revents && !fake_read_msg(f))
			return;
	}
}

static inline void *fake_main(void *arg)
{
	struct fake_agent *f = arg;
	struct pollfd p[2] = {
		{ .fd = f->listener, .events = POLLIN }, { .fd = f->stop[0], .events = POLLIN },
	};

	for (;;) {
		(void)poll(p, 2, -1);
		if (p[1].revents)
			return NULL;
		while (f->still)
			sched_yield();
		f->conn = accept(f->listener, NULL, NULL);
		if (f->conn >= 0)
			fake_serve(f);
		if (!f->left)
			fake_forget(f);
		else if (f->conn >= 0)
			close(f->conn);
	}
}

static inline struct fake_agent *fake_start(enum fake_trick trick)
{
	struct fake_agent *f = calloc(1, sizeof(*f));
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	ck_assert_ptr_nonnull(f);
	f->trick = trick;
	f->grace_ms = 60000;
	pthread_mutex_init(&f->pause, NULL);
	f->conn = f->sub_bell[0] = f->sub_bell[1] = f->cpl_bell[0] = f->cpl_bell[1] = -1;
	strcpy(f->dir, "/tmp/tally-fake-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/s", f->dir);
	memcpy(sa.sun_path, f->path, sizeof(f->path));
	f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(f->listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(f->listener, 4), 0);
	ck_assert_int_eq(pipe(f->bell), 0);
	ck_assert_int_eq(pipe(f->stop), 0);
	ck_assert_int_eq(pthread_create(&f->thread, NULL, fake_main, f), 0);
	return f;
}

/* Completes what HOLD_ROUNDS held. */
static inline void fake_release(struct fake_agent *f)
{
	ck_assert_int_eq(write(f->bell[1], "x", 1), 1);
}

static inline void fake_end(struct fake_agent *f)
{
	ck_assert_int_eq(write(f->stop[1], "x", 1), 1);
	ck_assert_int_eq(pthread_join(f->thread, NULL), 0);
	close(f->listener);
	for (int i = 0; i < 2; i++) {
		close(f->bell[i]);
		close(f->stop[i]);
	}
	unlink(f->path);
	rmdir(f->dir);
	free(f);
}

#endif
