/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_job_rig.h - an agent's control thread with real engines, one job of it, processes as
 * the engines see them, and a scheduler that writes down what it hears.
 */
#ifndef TALLY_TESTS_AGENT_JOB_RIG_H
#define TALLY_TESTS_AGENT_JOB_RIG_H

#include <check.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/ctl/ctl.h"
#include "common/net/flight.h"
#include "tests/unit/heap_fault.h"
#include "tests/unit/loop_wait.h"
#include "worker-agent/agent.h"

#define JOB	7u
#define NODE	3u
#define ENGINES	2u

static struct agent a;
static struct loop_bell *bell;

/* What the engines have said. */
static struct {
	uint32_t jobs, freed, batches, rings, gone, broken, hidden;
	struct err why;			/* of the last broken ring */
} said;

static inline void ring_bell(void *ctx)
{
	(void)ctx;
	loop_bell_ring(bell);
}

static inline void on_bell(void *ctx)
{
	struct mail m;
	void *p;

	(void)ctx;
	while (mailbox_take(a.mail, &m)) {
		memcpy(&p, m.body, sizeof(p));
		switch (m.type) {
		case AD_RING_READY:
			said.rings++;
			break;
		case AD_RING_GONE:
			said.gone++;
			break;
		case AD_RING_BROKEN:
			said.why = ((struct ad_trouble *)p)->err;
			said.broken++;
			free(p);
			break;
		case AD_BATCH_READY:
			said.batches++;		/* each test says when it is done */
			break;
		case AD_JOB_READY:
			said.jobs++;
			ad_on_mail(&a, &m);
			break;
		default:
			said.freed += m.type == AD_JOB_FREE;
			said.hidden += m.type == AD_HIDDEN;
			ad_on_mail(&a, &m);
		}
	}
}

static inline void wait_for(const uint32_t *counter, uint32_t n)
{
	loop_wait_count(a.loop, counter, n);
}

static const uint32_t ranks[] = { 0, 1 };
static const struct msg_machine machines[] = {
	{ .node = NODE, .name = "a", .machine = "a", .nranks = 1, .ranks = &ranks[0] },
	{ .node = NODE + 1, .name = "b", .machine = "b", .nranks = 1, .ranks = &ranks[1] },
};
/* Nobody listens there. */
static const struct msg_addr nowhere = { .host = "127.0.0.1", .port = 1 };
static const struct msg_server server = {
	.node = 9, .name = "s", .machine = "s", .shm_path = "", .engines = 3,
	.weight = UINT32_MAX, .naddrs = 1, .addrs = &nowhere,
};

static const uint32_t *has_left;	/* a rank that had detached when the job came; or NULL */

/* A rank on each machine, or two on one. */
static inline struct msg job_up_msg(const struct msg_machine *m0, uint32_t nmachines)
{
	return (struct msg){ .type = MSG_JOB_UP, .job_up = {
		.job = JOB, .name = "x", .world = MAX(nmachines, m0->nranks), .epoch = 5,
		.algorithm = PLACE_ALGORITHM, .chunk_bytes = CHUNK_BYTES_DEFAULT,
		.seg_bytes = CHUNK_BYTES_DEFAULT, .window_bytes = WINDOW_BYTES_MIN,
		.nmachines = nmachines, .machines = m0,
		.nservers = nmachines > 1, .servers = &server,
		.nleft = has_left != NULL, .left = has_left,
	} };
}

static inline int job_up_of(const struct msg_machine *m0, uint32_t nmachines, struct err *e)
{
	const struct msg m = job_up_msg(m0, nmachines);

	return ad_job_up(&a, &m, e);
}

static inline int job_up(uint32_t nmachines, struct err *e)
{
	return job_up_of(machines, nmachines, e);
}

static inline struct ad_job *start_pair(void)
{
	static const struct msg_machine both = {
		.node = NODE, .name = "a", .machine = "a", .nranks = 2, .ranks = ranks,
	};
	uint32_t ready = said.jobs + ENGINES;
	struct err e;

	ck_assert_int_eq(job_up_of(&both, 1, &e), 0);
	wait_for(&said.jobs, ready);
	return ad_job_find(&a, JOB);
}

static inline struct ad_job *start_job(uint32_t nmachines)
{
	uint32_t ready = said.jobs + ENGINES;
	struct err e;

	ck_assert_int_eq(job_up(nmachines, &e), 0);
	wait_for(&said.jobs, ready);
	return ad_job_find(&a, JOB);
}

static inline void end_job(struct ad_job *j)
{
	uint32_t freed = said.freed + ENGINES;

	ad_job_down(j, 0, "");
	wait_for(&said.freed, freed);
	ck_assert(list_empty(&a.jobs));
	for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++)
		ck_assert_ptr_null(a.slab[id]);
}

/* Of whose memory only so much was allowed: all of it is given back. */
static inline void end_counted_job(struct ad_job *j)
{
	a.memory_bytes = 0;
	end_job(j);
	ck_assert_uint_eq(a.backed_bytes, 0);
}

static inline void setup(void)
{
	struct err e;

	heap_own = true;
	memset(&a, 0, sizeof(a));
	memset(&said, 0, sizeof(said));
	a.name = a.machine = "a";
	a.my_node = NODE;
	a.nengines = a.nlinked = ENGINES;
	a.opt.links = 2;
	a.opt.daemon.frames_per_write = FRAMES_PER_WRITE_MAX;
	list_init(&a.jobs);
	list_init(&a.sessions);
	list_init(&a.returning);
	ck_assert_int_eq(loop_new(&a.loop, &e), 0);
	ck_assert_int_eq(loop_bell_start(a.loop, &bell, on_bell, NULL), 0);
	ck_assert_int_eq(mailbox_new(&a.mail, ring_bell, NULL, &e), 0);
	for (uint32_t i = 0; i < ENGINES; i++)
		ck_assert_int_eq(ad_engine_start(&a, i, -1, &e), 0);
}

static inline void stop_engines(void)
{
	for (uint32_t i = 0; i < a.nengines; i++)
		ad_engine_quiet(a.engine[i]);
	for (uint32_t i = 0; i < a.nengines; i++)
		ad_engine_stop(a.engine[i]);
}

static inline void teardown(void)
{
	ck_assert(list_empty(&a.jobs));
	stop_engines();
	loop_bell_stop(bell);
	mailbox_free(a.mail);
	loop_free(a.loop);
}

/* ---- the log ---- */

static inline void log_entry(struct ad_job *j, uint64_t seq, uint32_t first, uint32_t n)
{
	struct msg_tensor t[4];
	const struct msg m = { .type = MSG_TENSORS, .tensors = {
		.job = JOB, .seq = seq, .ntensors = n, .tensors = t,
	} };
	uint32_t batches = said.batches + ENGINES;
	struct err e;

	for (uint32_t i = 0; i < n; i++)
		t[i] = (struct msg_tensor){
			.id = first + i, .name = (const char *[]){ "t", "u", "v", "w" }[i],
			.dtype = DTYPE_F32, .count = PAGE_BYTES / 4,
		};
	ck_assert_int_eq(ad_tensors(&a, &m, &e), 0);
	wait_for(&said.batches, batches);
	(void)j;
}

static inline void batches_done(struct ad_job *j)
{
	while (!list_empty(&j->batches))
		ad_batch_done(list_first(&j->batches, struct ad_batch, in_job));
}

/* ---- processes ---- */

struct process {
	struct ad_session session;
	struct ring_end end;
	struct slab input;
};


static bool has_no_bell;		/* it has something that no engine can wait for */

static inline void process_start(struct process *p, struct ad_job *j, uint32_t local)
{
	struct ad_session *s = &p->session;
	struct ad_slab_mail mail = { .session = s };
	struct err e;

	*p = (struct process){ .session = { .agent = &a, .job = j } };
	ck_assert_int_eq(slab_new(&s->ring_mem, "ring", ring_shared_bytes(), false, &e), 0);
	ck_assert_int_eq(ring_sub_bell_new(&s->bell[0]), 0);
	ck_assert_int_eq(ring_cpl_bell_new(&s->bell[2]), 0);
	if (has_no_bell)
		ck_assert_int_eq(dup2(s->ring_mem.fd, s->bell[1]), s->bell[1]);
	ring_format(s->ring_mem.base);
	s->ring = calloc(1, sizeof(*s->ring));
	ring_end_init(&s->ring->ring, s->ring_mem.base, s->bell[1], s->bell[2]);
	ring_end_init(&p->end, s->ring_mem.base, s->bell[0], s->bell[3]);
	list_init(&s->ring->link);
	list_init(&s->ring->owed);
	s->ring->session = s;
	s->ring->job = j;
	s->ring->local = local;
	mail.slab = ad_slab_new(&a, j, "input", 4096, true, &e);
	ck_assert_ptr_nonnull(mail.slab);
	list_add(&j->inputs, &mail.slab->link);
	s->ring->slab[0].base = mail.slab->mem.base;
	s->ring->slab[0].bytes = mail.slab->mem.bytes;
	s->ring->slab[0].id = mail.slab->id;
	ad_engine_tell(a.engine[0], AD_RING_ADD, &s, sizeof(s));
	wait_for(&said.rings, local + 1);
}

static inline void process_free(struct process *p)
{
	struct ad_session *s = &p->session;

	for (int i = 0; i < 4; i++)
		close(s->bell[i]);
	slab_free(&s->ring_mem);
	free(s->ring);
}

static inline void process_end(struct process *p)
{
	struct ad_session *s = &p->session;
	uint32_t gone = said.gone + 1;

	ad_engine_tell(a.engine[0], AD_RING_DEL, &s, sizeof(s));
	wait_for(&said.gone, gone);
	process_free(p);
}

static inline void submit(struct process *p, uint32_t tensor, enum rop rop)
{
	const struct ring_sub sub = {
		.length = PAGE_BYTES, .tensor = tensor, .round = 1, .rop = rop,
	};

	ck_assert_int_eq(ring_sub_post(&p->end, &sub), 0);
}

static inline bool completed(void *ctx)
{
	struct ring_cpl c;

	return !ring_cpl_take(&((struct process *)ctx)->end, &c);
}

/* ---- the scheduler ---- */

/* A scheduler that writes down what it hears. */
static struct {
	struct listener *listener;
	struct ctl *c;
	uint32_t up, n, hellos;
	const char *replaced;		/* it has another process of that name, and says so */
	struct heard {
		enum msg_type type;
		uint64_t seq;
		uint32_t count, id;	/* of tensors, the first one's; JOB_END: of rounds;
					 * STUCK: of waits, the job's */
		int32_t code;
		uint64_t barrier;
		uint32_t nleft, left;	/* the first of them */
	} row[8];
} sched;

static inline void sched_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	const struct msg welcome = { .type = MSG_WELCOME, .welcome = {
		.version = MSG_VERSION, .node = NODE, .epoch = 1, .cluster = { 1 },
		.heartbeat_ms = HEARTBEAT_MS, .lease_ms = LEASE_MS,
	} };
	struct heard *h = &sched.row[sched.n];
	struct err e;

	(void)ctx;
	if (m->type == MSG_HELLO) {
		sched.hellos++;
		ck_assert_int_eq(sched.replaced ?
				 ctl_reply(c, 0, TALLY_EEXIST, "%s", sched.replaced) :
				 ctl_send(c, &welcome, &e), 0);
		return;
	}
	if (m->type == MSG_HEARTBEAT)
		return;
	ck_assert_uint_lt(sched.n, ARRAY_SIZE(sched.row));
	*h = (struct heard){ .type = m->type };
	if (m->type == MSG_TENSORS_HELD) {
		h->seq = m->tensors.seq;
		h->count = m->tensors.ntensors;
		h->id = m->tensors.tensors[0].id;
	} else if (m->type == MSG_EPOCH_READY) {
		h->seq = m->ready.log;
		h->barrier = m->ready.barrier;
	} else if (m->type == MSG_RANK_LEAVE) {
		h->code = m->rank_leave.code;
	} else if (m->type == MSG_STUCK) {
		h->count = m->stuck.nwaits;
		h->id = m->stuck.job;
	} else if (m->type == MSG_JOB_HELD && m->job_up.nleft) {
		h->nleft = m->job_up.nleft;
		h->left = m->job_up.left[0];
	}
	sched.n++;
}

static inline void sched_closed(void *ctx, struct ctl *c, const struct err *e)
{
	(void)ctx;
	(void)c;
	(void)e;
	sched.c = NULL;
}

static inline void sched_accepted(void *ctx, int fd)
{
	static const struct ctl_cb cb = { .msg = sched_msg, .closed = sched_closed };
	struct err e;

	(void)ctx;
	ck_assert_int_eq(ctl_adopt(a.loop, &sched.c, fd, &cb, NULL, &e), 0);
}

static inline void node_up(void *ctx, const struct msg_welcome *w)
{
	(void)ctx;
	(void)w;
	sched.up++;
}

static inline void node_msg(void *ctx, const struct msg *m)
{
	(void)ctx;
	(void)m;
}

static inline void node_trouble(void *ctx, const struct err *e)
{
	(void)ctx;
	ck_abort_msg("the scheduler is lost: %s", e->text);
}

static inline void node_heartbeat(void *ctx, struct msg_heartbeat *hb)
{
	(void)ctx;
	(void)hb;
}

static inline void register_start(void)
{
	static const struct ctl_node_cb cb = {
		.up = node_up, .msg = node_msg, .down = node_trouble, .refused = node_trouble,
		.heartbeat = node_heartbeat,
	};
	const struct msg_hello hello = {
		.version_min = MSG_VERSION, .version_max = MSG_VERSION, .kind = NODE_AGENT,
		.name = "a", .machine = "a", .secret = "", .shm_path = "", .engines = ENGINES,
	};
	struct err e;

	memset(&sched, 0, sizeof(sched));
	ck_assert_int_eq(listener_tcp(a.loop, &sched.listener, "127.0.0.1", 0, sched_accepted,
				      NULL, &e), 0);
	ck_assert_int_eq(ctl_node_start(a.loop, &a.node, "127.0.0.1",
					listener_port(sched.listener), &hello, &cb, NULL, &e), 0);
}

static inline void register_agent(void)
{
	register_start();
	wait_for(&sched.up, 1);
}

static inline void unregister_agent(void)
{
	ctl_node_stop(a.node);
	a.node = NULL;
	listener_close(sched.listener);
	if (sched.c)
		ctl_close(sched.c);
}

static inline void forget(struct ad_job *j, uint64_t seq, const uint32_t *ids, uint32_t n)
{
	const struct msg m = { .type = MSG_FORGET, .ids = {
		.job = JOB, .seq = seq, .nids = n, .ids = ids,
	} };
	uint32_t batches = said.batches + ENGINES;
	struct err e;

	ck_assert_int_eq(ad_forget(&a, &m, &e), 0);
	wait_for(&said.batches, batches);
	batches_done(j);
}

static inline void ck_heard(uint32_t i, struct heard want)
{
	ck_assert_uint_eq(sched.row[i].type, want.type);
	ck_assert_uint_eq(sched.row[i].seq, want.seq);
	ck_assert_uint_eq(sched.row[i].count, want.count);
	ck_assert_uint_eq(sched.row[i].id, want.id);
	ck_assert_int_eq(sched.row[i].code, want.code);
	ck_assert_uint_eq(sched.row[i].barrier, want.barrier);
	ck_assert_uint_eq(sched.row[i].nleft, want.nleft);
	ck_assert_uint_eq(sched.row[i].left, want.left);
}

#include "tests/unit/rig_main.h"

#endif
