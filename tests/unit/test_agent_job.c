// SPDX-License-Identifier: Apache-2.0
/*
 * An agent's jobs on the control thread, with real engines: what a heap that says
 * no does to them, what a process may name, and what a scheduler is told again.
 */
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
	uint32_t jobs, freed, batches, rings, gone, broken;
	struct err why;			/* of the last broken ring */
} said;

static void ring_bell(void *ctx)
{
	(void)ctx;
	loop_bell_ring(bell);
}

static void on_bell(void *ctx)
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
			ad_on_mail(&a, &m);
		}
	}
}

static void wait_for(const uint32_t *counter, uint32_t n)
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

static int job_up(uint32_t nmachines, struct err *e)
{
	const struct msg m = { .type = MSG_JOB_UP, .job_up = {
		.job = JOB, .name = "x", .world = nmachines, .epoch = 5,
		.algorithm = PLACE_ALGORITHM, .chunk_bytes = CHUNK_BYTES_DEFAULT,
		.seg_bytes = CHUNK_BYTES_DEFAULT, .window_bytes = WINDOW_BYTES_MIN,
		.nmachines = nmachines, .machines = machines,
		.nservers = nmachines > 1, .servers = &server,
	} };

	return ad_job_up(&a, &m, e);
}

static struct ad_job *start_job(uint32_t nmachines)
{
	uint32_t ready = said.jobs + ENGINES;
	struct err e;

	ck_assert_int_eq(job_up(nmachines, &e), 0);
	wait_for(&said.jobs, ready);
	return ad_job_find(&a, JOB);
}

static void end_job(struct ad_job *j)
{
	uint32_t freed = said.freed + ENGINES;

	ad_job_down(j, 0, "");
	wait_for(&said.freed, freed);
	ck_assert(list_empty(&a.jobs));
	for (uint32_t id = 0; id < SLABS_PER_LINK_MAX; id++)
		ck_assert_ptr_null(a.slab[id]);
}

static void setup(void)
{
	struct err e;

	heap_own = true;
	memset(&a, 0, sizeof(a));
	memset(&said, 0, sizeof(said));
	a.name = a.machine = "a";
	a.my_node = NODE;
	a.nengines = ENGINES;
	a.opt.links = 2;
	list_init(&a.jobs);
	list_init(&a.sessions);
	list_init(&a.returning);
	ck_assert_int_eq(loop_new(&a.loop, &e), 0);
	ck_assert_int_eq(loop_bell_start(a.loop, &bell, on_bell, NULL), 0);
	ck_assert_int_eq(mailbox_new(&a.mail, ring_bell, NULL, &e), 0);
	for (uint32_t i = 0; i < ENGINES; i++)
		ck_assert_int_eq(ad_engine_start(&a, i, -1, &e), 0);
}

static void teardown(void)
{
	ck_assert(list_empty(&a.jobs));
	for (uint32_t i = 0; i < ENGINES; i++)
		ad_engine_quiet(a.engine[i]);
	for (uint32_t i = 0; i < ENGINES; i++)
		ad_engine_stop(a.engine[i]);
	loop_bell_stop(bell);
	mailbox_free(a.mail);
	loop_free(a.loop);
}

/* ---- memory ---- */

#if HEAP_FAULTS
START_TEST(job_without_memory_is_refused_and_the_next_one_starts)
{
	struct err e;
	uint64_t at = 0;
	int rc;

	do {
		heap_fail_at = ++at;
		rc = job_up(2, &e);
		heap_fail_at = 0;
		ck_assert(!rc || rc == TALLY_ENOMEM);
		ck_assert(!rc || list_empty(&a.jobs));
	} while (rc);
	ck_assert_uint_gt(at, 10);
	wait_for(&said.jobs, ENGINES);
	end_job(ad_job_find(&a, JOB));
	end_job(start_job(1));
}
END_TEST

START_TEST(engines_need_no_memory_to_start_a_job)
{
	struct ad_job *j;

	end_job(start_job(1));		/* the engines have all that they start with */
	heap_fail_others = true;
	j = start_job(2);
	heap_fail_others = false;
	for (uint32_t i = 0; i < ENGINES; i++)
		for (uint32_t k = 0; k < server.engines; k++)
			ck_assert_int_eq(j->core[i]->route[k] && j->core[i]->route[k]->peer,
					 geom_engines_meet(i, ENGINES, k, server.engines));
	end_job(j);
}
END_TEST

static atomic_uint unmapped_here, unmapped_elsewhere;	/* the control thread is here */

int munmap(void *p, size_t bytes)
{
	if (bytes >= 4u << 20)
		(*(heap_own ? &unmapped_here : &unmapped_elsewhere))++;
	return (int)syscall(SYS_munmap, p, bytes);
}

static bool all_unmapped(void *ctx)
{
	return unmapped_here + unmapped_elsewhere == *(const uint32_t *)ctx;
}

START_TEST(large_memory_is_freed_off_the_control_thread)
{
	struct ad_job *j = start_job(1);
	uint32_t slabs = 2;
	struct ad_slab *s;
	struct err e;

	for (uint32_t i = 0; i < slabs; i++) {
		s = ad_slab_new(&a, j, "input", 8u << 20, &e);
		ck_assert_ptr_nonnull(s);
		list_add(i ? &j->inputs : &j->results, &s->link);
	}
	unmapped_here = unmapped_elsewhere = 0;
	end_job(j);
	ck_assert(loop_wait(a.loop, all_unmapped, &slabs));
	ck_assert_uint_eq(unmapped_here, 0);
}
END_TEST
#endif

/* ---- the log ---- */

static void log_entry(struct ad_job *j, uint64_t seq, uint32_t first, uint32_t n)
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

static void batches_done(struct ad_job *j)
{
	while (!list_empty(&j->batches))
		ad_batch_done(list_first(&j->batches, struct ad_batch, in_job));
}

#if HEAP_FAULTS
START_TEST(forget_without_memory_is_said_and_changes_nothing)
{
	struct ad_job *j = start_job(2);
	const uint32_t id = 1;
	const struct msg m = { .type = MSG_FORGET, .ids = {
		.job = JOB, .seq = 2, .nids = 1, .ids = &id,
	} };
	uint32_t batches;
	struct err e;

	log_entry(j, 1, 1, 1);
	batches_done(j);
	heap_fail_at = 1;
	ck_assert_int_eq(ad_forget(&a, &m, &e), TALLY_ENOMEM);
	heap_fail_at = 0;
	ck_assert_uint_eq(j->seq, 1);
	ck_assert_ptr_nonnull(ad_tensor_find(j, id));
	ck_assert_uint_eq(j->place->total_bytes, PAGE_BYTES);
	batches = said.batches + ENGINES;
	ck_assert_int_eq(ad_forget(&a, &m, &e), 0);
	wait_for(&said.batches, batches);
	batches_done(j);
	ck_assert_ptr_null(ad_tensor_find(j, id));
	ck_assert_uint_eq(j->place->total_bytes, 0);
	end_job(j);
}
END_TEST
#endif

#if HEAP_FAULTS
/* Nobody would miss it: it may be the last entry for a long time. */
START_TEST(entry_that_cannot_wait_for_a_smaller_world_is_said)
{
	struct ad_job *j = start_job(2);
	const uint32_t id = 1;
	const struct msg m = { .type = MSG_FORGET, .ids = {
		.job = JOB, .seq = 1, .nids = 1, .ids = &id,
	} };
	struct err e;
	bool later;

	ck_assert_int_eq(ad_shrink_defer(j, &m, &later, &e), 0);
	ck_assert(!later);
	j->adopting = true;
	heap_fail_at = 1;
	ck_assert_int_eq(ad_shrink_defer(j, &m, &later, &e), TALLY_ENOMEM);
	heap_fail_at = 0;
	ck_assert(list_empty(&j->later));
	ck_assert_int_eq(ad_shrink_defer(j, &m, &later, &e), 0);
	ck_assert(later && !list_empty(&j->later));
	ad_shrink_done(j);
	ck_assert(list_empty(&j->later));
	ck_assert_uint_eq(j->seq, 1);
	batches_done(j);
	end_job(j);
}
END_TEST
#endif

/* A model of many small tensors would take twice the memory, and its marks a page each. */
START_TEST(tensors_of_a_page_take_one_for_each_parity_and_marks_are_neighbours)
{
	struct ad_job *j = start_job(1);
	const uint64_t *next = NULL;

	log_entry(j, 1, 1, 4);
	batches_done(j);
	for (uint32_t id = 1; id <= 4; id++) {
		const struct ad_tensor *t = ad_tensor_find(j, id);
		const struct ad_slab *s = t->result;

		ck_assert_uint_eq(t->npages, 1);
		ck_assert_uint_eq(t->result_page[1], t->result_page[0] + 1);
		ck_assert(!next || t->desc.mark[0] == next);
		ck_assert(t->desc.mark[1] == t->desc.mark[0] + 1);
		next = t->desc.mark[1] + 1;
		ck_assert(s->marks == (uint64_t *)(s->mem.base + s->pages.pages * PAGE_BYTES));
		ck_assert((uint8_t *)(s->marks + s->pages.pages) <= s->mem.base + s->mem.bytes);
	}
	end_job(j);
}
END_TEST

/* ---- what a process may name ---- */

struct process {
	struct ad_session session;
	struct ring_end end;
	struct slab input;
};

static void process_start(struct process *p, struct ad_job *j)
{
	struct ad_session *s = &p->session;
	struct ad_slab_mail mail = { .session = s };
	struct err e;

	*p = (struct process){ .session = { .agent = &a, .job = j } };
	ck_assert_int_eq(slab_new(&s->ring_mem, "ring", ring_shared_bytes(), false, &e), 0);
	ck_assert_int_eq(ring_bell_new(&s->bell[0]), 0);
	ck_assert_int_eq(ring_bell_new(&s->bell[2]), 0);
	ring_format(s->ring_mem.base);
	s->ring = calloc(1, sizeof(*s->ring));
	ring_end_init(&s->ring->ring, s->ring_mem.base, s->bell[1], s->bell[2]);
	ring_end_init(&p->end, s->ring_mem.base, s->bell[0], s->bell[3]);
	s->ring->session = s;
	s->ring->job = j;
	mail.slab = ad_slab_new(&a, j, "input", 4096, &e);
	ck_assert_ptr_nonnull(mail.slab);
	list_add(&j->inputs, &mail.slab->link);
	s->ring->slab[0].base = mail.slab->mem.base;
	s->ring->slab[0].bytes = mail.slab->mem.bytes;
	s->ring->slab[0].id = mail.slab->id;
	ad_engine_tell(a.engine[0], AD_RING_ADD, &s, sizeof(s));
	wait_for(&said.rings, 1);
}

static void process_end(struct process *p)
{
	struct ad_session *s = &p->session;

	ad_engine_tell(a.engine[0], AD_RING_DEL, &s, sizeof(s));
	wait_for(&said.gone, 1);
	for (int i = 0; i < 4; i++)
		close(s->bell[i]);
	slab_free(&s->ring_mem);
	free(s->ring);
}

static void submit(struct process *p, uint32_t tensor)
{
	const struct ring_sub sub = {
		.length = PAGE_BYTES, .tensor = tensor, .round = 1, .rop = ROP_SUM,
	};

	ck_assert_int_eq(ring_sub_post(&p->end, &sub), 0);
}

static bool completed(void *ctx)
{
	struct ring_cpl c;

	return !ring_cpl_take(&((struct process *)ctx)->end, &c);
}

/* All engines have it by now, but nobody has said so: the process can only guess. */
START_TEST(tensor_that_a_process_was_not_told_of_ends_its_session)
{
	struct ad_job *j = start_job(1);
	struct process p;

	process_start(&p, j);
	log_entry(j, 1, 1, 1);
	submit(&p, 1);
	wait_for(&said.broken, 1);
	ck_assert_int_eq(said.why.code, TALLY_EPROTO);
	ck_assert_str_eq(said.why.text, "rank 0 submitted tensor 1, which it was not told of");
	batches_done(j);
	process_end(&p);
	end_job(j);
}
END_TEST

START_TEST(tensor_that_a_process_was_told_of_is_summed)
{
	struct ad_job *j = start_job(1);
	struct process p;

	process_start(&p, j);
	log_entry(j, 1, 1, 1);
	batches_done(j);
	submit(&p, 1);
	ck_assert(loop_wait(a.loop, completed, &p));
	ck_assert_uint_eq(said.broken, 0);
	process_end(&p);
	end_job(j);
}
END_TEST

/* ---- what a scheduler that has lost it is told ---- */

/* A scheduler that writes down what it hears. */
static struct {
	struct listener *listener;
	struct ctl *c;
	uint32_t up, n;
	struct heard {
		enum msg_type type;
		uint64_t seq;
		uint32_t count, id;	/* of tensors, the first one's */
		int32_t code;
		uint64_t barrier;
	} row[8];
} sched;

static void sched_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	const struct msg welcome = { .type = MSG_WELCOME, .welcome = {
		.version = MSG_VERSION, .node = NODE, .epoch = 1, .cluster = { 1 },
		.heartbeat_ms = HEARTBEAT_MS, .lease_ms = LEASE_MS,
	} };
	struct heard *h = &sched.row[sched.n];
	struct err e;

	(void)ctx;
	if (m->type == MSG_HELLO) {
		ck_assert_int_eq(ctl_send(c, &welcome, &e), 0);
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
	}
	sched.n++;
}

static void sched_closed(void *ctx, struct ctl *c, const struct err *e)
{
	(void)ctx;
	(void)c;
	(void)e;
	sched.c = NULL;
}

static void sched_accepted(void *ctx, int fd)
{
	static const struct ctl_cb cb = { .msg = sched_msg, .closed = sched_closed };
	struct err e;

	(void)ctx;
	ck_assert_int_eq(ctl_adopt(a.loop, &sched.c, fd, &cb, NULL, &e), 0);
}

static void node_up(void *ctx, const struct msg_welcome *w)
{
	(void)ctx;
	(void)w;
	sched.up++;
}

static void node_msg(void *ctx, const struct msg *m)
{
	(void)ctx;
	(void)m;
}

static void node_trouble(void *ctx, const struct err *e)
{
	(void)ctx;
	ck_abort_msg("the scheduler is lost: %s", e->text);
}

static void node_heartbeat(void *ctx, struct msg_heartbeat *hb)
{
	(void)ctx;
	(void)hb;
}

static void register_agent(void)
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
	wait_for(&sched.up, 1);
}

static void unregister_agent(void)
{
	ctl_node_stop(a.node);
	a.node = NULL;
	listener_close(sched.listener);
	if (sched.c)
		ctl_close(sched.c);
}

static void forget(struct ad_job *j, uint64_t seq, const uint32_t *ids, uint32_t n)
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

static void ck_heard(uint32_t i, struct heard want)
{
	ck_assert_uint_eq(sched.row[i].type, want.type);
	ck_assert_uint_eq(sched.row[i].seq, want.seq);
	ck_assert_uint_eq(sched.row[i].count, want.count);
	ck_assert_uint_eq(sched.row[i].id, want.id);
	ck_assert_int_eq(sched.row[i].code, want.code);
	ck_assert_uint_eq(sched.row[i].barrier, want.barrier);
}

START_TEST(job_is_told_again_as_it_is_now)
{
	struct ad_job *j = start_job(1);

	register_agent();
	log_entry(j, 1, 1, 2);
	log_entry(j, 2, 3, 1);
	batches_done(j);
	ad_job_resend(j);
	wait_for(&sched.n, 4);
	ck_heard(0, (struct heard){ .type = MSG_JOB_HELD });
	ck_heard(1, (struct heard){ .type = MSG_TENSORS_HELD, .seq = 1, .count = 2, .id = 1 });
	ck_heard(2, (struct heard){ .type = MSG_TENSORS_HELD, .seq = 2, .count = 1, .id = 3 });
	ck_heard(3, (struct heard){ .type = MSG_EPOCH_READY, .seq = 2 });

	/* What is forgotten is not told; the log's last number is, and who has left. */
	forget(j, 3, (const uint32_t[]){ 1, 3 }, 2);
	ad_job_left(j, 0, TALLY_EWORKERLOST, 4711);
	wait_for(&sched.n, 5);
	sched.n = 0;
	ad_job_resend(j);
	wait_for(&sched.n, 4);
	ck_heard(0, (struct heard){ .type = MSG_JOB_HELD });
	ck_heard(1, (struct heard){ .type = MSG_TENSORS_HELD, .seq = 1, .count = 1, .id = 2 });
	ck_heard(2, (struct heard){ .type = MSG_EPOCH_READY, .seq = 3 });
	ck_heard(3, (struct heard){ .type = MSG_RANK_LEAVE, .code = TALLY_EWORKERLOST });
	unregister_agent();
	end_job(j);
}
END_TEST

/* A process that hands back its ring to a new agent, and attaches. */
struct returning {
	struct ad_session session;
	struct ctl *end;		/* the process's */
	struct slab ring;
	uint32_t attached;
};

static void returning_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct returning *r = ctx;
	struct err e;

	(void)c;
	if (m->type == MSG_SLAB) {
		ad_back_slab(&r->session, &m->slab);
	} else {
		ck_assert_int_eq(ad_back_attach(&r->session, &m->attach, &e), 0);
		r->attached++;
	}
}

static void returning_closed(void *ctx, struct ctl *c, const struct err *e)
{
	(void)ctx;
	(void)c;
	(void)e;
}

static void returning_start(struct returning *r, struct ad_job *j, uint64_t barriers)
{
	static const struct ctl_cb cb = { .msg = returning_msg, .closed = returning_closed };
	const struct msg slab = { .type = MSG_SLAB, .slab = {
		.kind = SLAB_RING, .bytes = ring_shared_bytes(),
	} };
	const struct msg attach = { .type = MSG_ATTACH, .attach = {
		.version = MSG_VERSION, .job = "x", .world = 1, .back = JOB, .barriers = barriers,
	} };
	char name[AD_NAME_MAX];
	struct err e;
	int p[2];

	*r = (struct returning){ .session = { .agent = &a, .job = j } };
	ad_ring_name(name, JOB, 0);
	ck_assert_int_eq(slab_new(&r->ring, name, slab.slab.bytes, false, &e), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &r->session.ctl, p[0], &cb, r, &e), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &r->end, p[1], &cb, r, &e), 0);
	ck_assert_int_eq(ctl_send_fds(r->end, &slab, &r->ring.fd, 1, &e), 0);
	ck_assert_int_eq(ctl_send(r->end, &attach, &e), 0);
	wait_for(&r->attached, 1);
}

static void returning_end(struct returning *r)
{
	ad_back_free(&r->session);
	ctl_close(r->session.ctl);
	ctl_close(r->end);
	slab_free(&r->ring);
}

/* The scheduler may have been started again since, and nobody else may have passed them. */
START_TEST(barriers_that_who_comes_back_has_passed_are_told)
{
	struct ad_job *j = start_job(1);
	struct returning some[3];
	struct err e;

	register_agent();
	for (uint32_t i = 0; i < 3; i++) {
		returning_start(&some[i], j, i ? 2 : 0);
		ck_assert_int_eq(ad_back_inputs(&some[i].session, &e), 0);
	}
	ad_job_left(j, 0, TALLY_EWORKERLOST, 4711);
	wait_for(&sched.n, 2);
	ck_heard(0, (struct heard){ .type = MSG_EPOCH_READY, .barrier = 2 });
	ck_heard(1, (struct heard){ .type = MSG_RANK_LEAVE, .code = TALLY_EWORKERLOST });
	for (uint32_t i = 0; i < 3; i++)
		returning_end(&some[i]);
	unregister_agent();
	end_job(j);
}
END_TEST

START_TEST(only_dma_bufs_are_taken_for_a_device_and_only_where_wanted)
{
	struct slab other, mem = { .fd = -1 };
	struct err e;

	ck_assert_int_eq(slab_new(&other, "test", PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(ad_device_map(&a, &mem, other.fd, PAGE_BYTES, &e), TALLY_EAUTH);
	ck_assert_ptr_nonnull(strstr(e.text, "tally-agent --dma-buf"));
	a.opt.dma_buf = true;
	ck_assert_int_eq(ad_device_map(&a, &mem, other.fd, PAGE_BYTES, &e), TALLY_EINVAL);
	ck_assert_int_eq(ad_device_map(&a, &mem, -1, PAGE_BYTES, &e), TALLY_EINVAL);
	ck_assert_ptr_null(mem.base);
	a.opt.dma_buf = false;
	slab_free(&other);
}
END_TEST

/* ---- cards ---- */

/*
 * The answer says which tensors, which come behind it; a scheduler that dies in between knows
 * nothing of them.
 */
START_TEST(who_declares_asks_again_until_its_tensors_are_there)
{
	const struct msg_tensor t = { .name = "t", .dtype = DTYPE_F32, .count = 8, .ndims = 1,
				      .dims = &(uint64_t){ 8 } };
	const struct msg declare = { .type = MSG_DECLARE, .declare = {
		.req = 9, .job = JOB, .timeout_ms = 60000, .ntensors = 1, .tensors = &t,
	} };
	const struct msg_reply answer = { .req = 9, .text = "", .nids = 1,
					  .ids = &(uint32_t){ 5 } };
	struct ad_job *j = start_job(1);
	struct ad_session s = { .agent = &a, .job = j, .state = SESSION_OPEN, .process = -1 };
	struct ad_req *r = &s.req[0];
	uint32_t bytes;

	ck_assert_int_eq(msg_encode_size(&declare, &bytes, NULL), 0);
	register_agent();
	*r = (struct ad_req){ .ours = 9, .type = MSG_DECLARE, .deadline = MONO_NEVER,
			      .wire = malloc(bytes), .asked = 1 };
	ck_assert_int_eq(msg_encode(&declare, r->wire, bytes, NULL), 0);
	a.registrations = 1;
	list_add(&a.sessions, &s.link);
	for (uint32_t i = 0; i < 2; i++) {
		ad_session_reply(&a, &answer);
		ad_sessions_tick(&a, loop_now() + NS_PER_SEC);
		ck_assert_uint_eq(r->asked, a.registrations);	/* the tensor is on its way */
		ck_assert_uint_eq(sched.n, i);
		a.registrations++;
		ad_sessions_tick(&a, loop_now() + NS_PER_SEC);
		wait_for(&sched.n, i + 1);
		ck_assert_int_eq(sched.row[i].type, MSG_DECLARE);
	}
	list_del(&s.link);
	free(r->ids);
	free(r->wire);
	unregister_agent();
	end_job(j);
}
END_TEST

START_TEST(card_of_unknown_speed_is_as_fast_as_the_one_it_speaks_to)
{
	ck_assert_uint_eq(ad_slower_card(1000, 3000), 1000);
	ck_assert_uint_eq(ad_slower_card(3000, 1000), 1000);
	ck_assert_uint_eq(ad_slower_card(0, 3000), 3000);
	ck_assert_uint_eq(ad_slower_card(3000, 0), 3000);
	ck_assert_uint_eq(ad_slower_card(0, 0), FLIGHT_FAST_BITS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("agent_job");
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
#if HEAP_FAULTS
	tcase_add_test(t, job_without_memory_is_refused_and_the_next_one_starts);
	tcase_add_test(t, engines_need_no_memory_to_start_a_job);
	tcase_add_test(t, large_memory_is_freed_off_the_control_thread);
	tcase_add_test(t, forget_without_memory_is_said_and_changes_nothing);
	tcase_add_test(t, entry_that_cannot_wait_for_a_smaller_world_is_said);
#endif
	tcase_add_test(t, tensors_of_a_page_take_one_for_each_parity_and_marks_are_neighbours);
	tcase_add_test(t, tensor_that_a_process_was_not_told_of_ends_its_session);
	tcase_add_test(t, tensor_that_a_process_was_told_of_is_summed);
	tcase_add_test(t, job_is_told_again_as_it_is_now);
	tcase_add_test(t, barriers_that_who_comes_back_has_passed_are_told);
	tcase_add_test(t, only_dma_bufs_are_taken_for_a_device_and_only_where_wanted);
	tcase_add_test(t, who_declares_asks_again_until_its_tensors_are_there);
	tcase_add_test(t, card_of_unknown_speed_is_as_fast_as_the_one_it_speaks_to);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
