// SPDX-License-Identifier: Apache-2.0
/*
 * A server's jobs and their logs on the control thread, with real engines: what
 * the scheduler's refusals and restarts do to them.
 */
#include <check.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/shm/slab.h"
#include "server/server.h"
#include "tests/unit/heap_fault.h"

#define DEADLINE_S	60
#define JOB		7u
#define NODE		3u

static struct server s;
static sem_t bell;
static struct sv_job *job;

static void ring(void *ctx)
{
	sem_post(ctx);
}

/* One turn of what sv_on_mail() does, but for telling the scheduler. */
static void take(const struct mail *m, uint32_t *batches)
{
	void *p;

	memcpy(&p, m->body, sizeof(p));
	if (m->type == SV_JOB_READY) {
		((struct sv_job *)p)->starting--;
	} else if (m->type == SV_BATCH_READY) {
		if (--((struct sv_batch *)p)->engines_left == 0) {
			sv_batch_free(&s, p);
			++*batches;
		}
	} else if (m->type == SV_JOB_FREE && --((struct sv_job *)p)->engines_left == 0) {
		sv_job_free(&s, p);
	}
}

/* What is there, or comes within the deadline. */
static void take_some(uint32_t *batches)
{
	struct timespec ts;
	struct mail m;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += DEADLINE_S;
	ck_assert_int_eq(sem_timedwait(&bell, &ts), 0);
	while (mailbox_take(s.mail, &m))
		take(&m, batches);
}

/* Until the engines have answered for that many batches, and the job is there or gone. */
static void settle(uint32_t batches)
{
	uint32_t done = 0;

	while (done < batches || (!list_empty(&s.jobs) && (job->starting || job->stopping)))
		take_some(&done);
}

static int job_up(uint32_t id, uint32_t agent, struct err *e)
{
	static const uint32_t rank = 0;
	const struct msg_machine machine = {
		.node = agent, .name = "a", .machine = "a", .nranks = 1, .ranks = &rank,
	};
	static const struct msg_server server = {
		.node = NODE, .name = "s", .machine = "s", .shm_path = "", .engines = 2,
		.weight = UINT32_MAX,
	};
	const struct msg_job_up up = {
		.job = id, .name = "x", .world = 1, .epoch = 5, .algorithm = PLACE_ALGORITHM,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .seg_bytes = CHUNK_BYTES_DEFAULT,
		.window_bytes = WINDOW_BYTES_MIN, .nmachines = 1, .machines = &machine,
		.nservers = 1, .servers = &server,
	};

	return sv_job_up(&s, &up, e);
}

static void start_job(void)
{
	struct err e;

	ck_assert_int_eq(job_up(JOB, 1, &e), 0);
	job = sv_job_find(&s, JOB);
}

static void setup(void)
{
	struct err e;

	memset(&s, 0, sizeof(s));
	s.name = "s";
	s.my_node = NODE;
	s.nengines = 2;
	s.memory_bytes = 64u << 20;
	s.opt.daemon.frames_per_write = FRAMES_PER_WRITE_MAX;
	list_init(&s.jobs);
	list_init(&s.agents);
	list_init(&s.greetings);
	ck_assert_int_eq(sem_init(&bell, 0, 0), 0);
	ck_assert_int_eq(mailbox_new(&s.mail, ring, &bell, &e), 0);
	for (uint32_t i = 0; i < s.nengines; i++)
		ck_assert_int_eq(sv_engine_start(&s, i, -1, &e), 0);
	start_job();
}

static void teardown(void)
{
	struct sv_job *j = sv_job_find(&s, JOB);

	if (j) {
		sv_job_down(&s, JOB);
		settle(0);
	}
	ck_assert(list_empty(&s.jobs));
	ck_assert_uint_eq(s.memory_used, 0);
	for (uint32_t i = 0; i < s.nengines; i++)
		sv_engine_stop(s.engine[i]);
	sv_listen_stop(&s);
	mailbox_free(s.mail);
	sem_destroy(&bell);
}

static int tensors(uint64_t seq, uint32_t id, uint64_t count)
{
	const struct msg_tensor t = {
		.id = id, .name = "t", .dtype = DTYPE_F32, .count = count,
	};
	const struct msg_tensors m = { .job = JOB, .seq = seq, .ntensors = 1, .tensors = &t };
	struct err e = { 0 };
	int rc = sv_tensors(&s, &m, &e);

	ck_assert_int_eq(e.code, rc);
	return rc;
}

static int forget(uint64_t seq, uint32_t id)
{
	struct err e;
	const struct msg_ids m = { .job = JOB, .seq = seq, .nids = 1, .ids = &id };

	return sv_forget(&s, &m, &e);
}

static uint32_t tensors_held(void)
{
	uint32_t n = 0;

	list_for_each(&job->tensors, l)
		n++;
	return n;
}

START_TEST(refused_entry_keeps_its_number)
{
	uint64_t used = s.memory_used;

	ck_assert_int_eq(tensors(1, 1, 1u << 30), TALLY_EQUOTA);
	ck_assert_uint_eq(job->seq, 1);
	ck_assert_uint_eq(s.memory_used, used);
	ck_assert_uint_eq(job->place->total_bytes, 0);
	forget(2, 1);
	ck_assert_int_eq(tensors(3, 2, 1000), 0);
	ck_assert_int_eq(tensors(4, 3, 1u << 30), TALLY_EQUOTA);
	ck_assert_int_eq(forget(5, 2), TALLY_EBUSY);	/* all others have tensor 3 */
	ck_assert_int_eq(tensors(4, 4, 1000), 0);	/* or never were told of it */
	settle(4);
	ck_assert_uint_eq(tensors_held(), 2);
}
END_TEST

/* A page for each, though chunks are of another size. */
START_TEST(small_tensors_take_what_they_need)
{
	enum { N = 1000 };
	struct msg_tensor *t = calloc(N, sizeof(*t));
	const struct msg_tensors m = { .job = JOB, .seq = 1, .ntensors = N, .tensors = t };
	uint64_t before = s.memory_used;
	struct err e;

	ck_assert_ptr_nonnull(t);
	for (uint32_t i = 0; i < N; i++)
		t[i] = (struct msg_tensor){ .id = 1 + i, .name = "t", .dtype = DTYPE_F32,
					    .count = 1 + i };
	ck_assert_uint_gt((uint64_t)N * CHUNK_BYTES_DEFAULT, s.memory_bytes);
	ck_assert_int_eq(sv_tensors(&s, &m, &e), 0);
	ck_assert_uint_eq(s.memory_used - before, (uint64_t)N * PAGE_BYTES);
	settle(1);
	free(t);
}
END_TEST

START_TEST(entry_that_comes_again_replaces_what_was_held)
{
	ck_assert_int_eq(tensors(1, 1, 1000), 0);
	ck_assert_int_eq(tensors(2, 2, 2000), 0);
	settle(2);
	ck_assert_int_eq(tensors(2, 900, 3000), 0);
	settle(2);			/* one forgotten, one added */
	ck_assert_uint_eq(tensors_held(), 2);
	ck_assert_uint_eq(list_first(&job->tensors, struct sv_tensor, link)->id, 1);
	ck_assert_uint_eq(job->place->total_bytes, 4 * (1000 + 3000));
	ck_assert_uint_eq(job->seq, 2);
	ck_assert_int_eq(tensors(3, 901, 10), 0);
	forget(3, 901);			/* a FORGET may come again, too */
	settle(3);
	ck_assert_uint_eq(tensors_held(), 2);
	ck_assert_uint_eq(job->seq, 3);
}
END_TEST

/* What was forgotten since cannot be had again: the server joins anew. */
START_TEST(forget_that_never_was_cannot_be_taken_back)
{
	ck_assert_int_eq(tensors(1, 1, 1000), 0);
	ck_assert_int_eq(tensors(2, 2, 1000), 0);
	ck_assert_int_eq(forget(3, 2), 0);
	ck_assert_int_eq(tensors(2, 900, 1000), 0);	/* that tensor never was, either */
	ck_assert_int_eq(forget(3, 1), 0);
	ck_assert_int_eq(tensors(3, 901, 1000), TALLY_EBUSY);
	ck_assert_uint_eq(job->seq, 3);
	settle(5);
}
END_TEST

/* What a joining server was told and the scheduler has forgotten does not count as had. */
START_TEST(entry_that_comes_again_ends_what_was_told)
{
	job->told = 5;
	ck_assert_int_eq(tensors(2, 1, 1000), 0);
	ck_assert_int_eq(tensors(4, 2, 1000), 0);
	ck_assert_int_eq(tensors(4, 900, 1000), 0);
	ck_assert_uint_eq(job->seq, 4);
	ck_assert_uint_le(job->told, 4);
	ck_assert_int_eq(tensors(6, 901, 1000), TALLY_EPROTO);
	settle(4);
}
END_TEST

/* They came when a scheduler before was about to begin an epoch with them: it leaves the job. */
START_TEST(epoch_without_servers_that_no_agent_has_heard_of_is_not_followed)
{
	const struct msg_server server = {
		.node = NODE, .name = "s", .machine = "s", .shm_path = "", .engines = 2,
		.weight = UINT32_MAX,
	};
	const struct msg_epoch m = {
		.job = JOB, .seq = 1, .epoch = 6, .nservers = 1, .servers = &server,
	};
	struct err e;

	job->nservers = 2;
	ck_assert_int_eq(sv_epoch(&s, &m, &e), TALLY_EBUSY);
	ck_assert_uint_eq(job->seq, 0);
	job->nservers = 1;
	ck_assert_int_eq(sv_epoch(&s, &m, &e), 0);
	settle(1);
	ck_assert_uint_eq(job->seq, 1);
}
END_TEST

/* A scheduler that was started again knows rows from agents, and those it had lost since. */
START_TEST(epoch_that_has_us_in_another_row_is_not_followed)
{
	struct msg_server server[] = {
		{ .node = NODE, .name = "s", .machine = "s", .shm_path = "", .engines = 2 },
		{ .node = NODE + 1, .name = "t", .machine = "t", .shm_path = "", .engines = 2,
		  .weight = UINT32_MAX },
	};
	const struct msg_epoch m = {
		.job = JOB, .seq = 1, .epoch = 6, .nservers = 2, .servers = server,
	};
	struct err e;

	settle(0);	/* the engines read their row as they begin */
	job->me = 1;
	ck_assert_int_eq(sv_epoch(&s, &m, &e), TALLY_EBUSY);
	ck_assert_uint_eq(job->seq, 0);
	job->me = 0;
	ck_assert_int_eq(sv_epoch(&s, &m, &e), 0);
	settle(1);
	ck_assert_uint_eq(job->seq, 1);
}
END_TEST

/* Epoch n of the job, by log entry seq, with n - 5 servers of the same weight. */
static void epoch(uint64_t seq, uint64_t n)
{
	struct msg_server server[3] = { 0 };
	const struct msg_epoch m = {
		.job = JOB, .seq = seq, .epoch = n, .nservers = (uint32_t)n - 5,
		.servers = server,
	};
	struct err e;

	for (uint32_t i = 0; i < m.nservers; i++)
		server[i] = (struct msg_server){
			.node = NODE + i, .name = "s", .machine = "s", .shm_path = "",
			.engines = 2, .weight = UINT32_MAX / m.nservers,
		};
	ck_assert_int_eq(sv_epoch(&s, &m, &e), 0);
}

static uint32_t leaving(const struct sv_part *p)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < place_chunks(job->place, p->tensor->placed.bytes); c++)
		n += p->leaving[c];
	return n;
}

/* The next epoch comes before the engines have let go of what the last one took away. */
START_TEST(what_the_next_epoch_takes_away_waits_for_that_ones_end)
{
	const struct sv_part *p;
	uint32_t all, gone;

	ck_assert_int_eq(tensors(1, 1, 6 * CHUNK_BYTES_DEFAULT / 4), 0);
	settle(1);
	p = list_first(&list_first(&job->tensors, struct sv_tensor, link)->parts, struct sv_part,
		       link);
	all = p->nchunks;
	epoch(2, 7);
	settle(1);
	gone = leaving(p);
	ck_assert(gone && gone < all);
	sv_epoch_settled(&s, &(struct msg_ready){ .job = JOB, .seq = 7 });
	epoch(3, 8);
	settle(2);
	ck_assert_uint_eq(p->nchunks, all - gone);
	ck_assert(leaving(p) && leaving(p) < p->nchunks);
	gone += leaving(p);
	sv_epoch_settled(&s, &(struct msg_ready){ .job = JOB, .seq = 8 });
	settle(1);
	ck_assert_uint_eq(p->nchunks, all - gone);
	ck_assert_uint_eq(leaving(p), 0);
}
END_TEST

START_TEST(gap_in_the_log_is_refused)
{
	ck_assert_int_eq(tensors(2, 1, 1000), TALLY_EPROTO);
	ck_assert_int_eq(tensors(0, 1, 1000), TALLY_EPROTO);
	ck_assert_uint_eq(job->seq, 0);
	forget(2, 1);
	ck_assert_uint_eq(job->seq, 0);
	settle(0);
}
END_TEST

START_TEST(job_that_ends_while_it_starts_is_freed)
{
	sv_job_down(&s, JOB);		/* the engines' answers to its start are on their way */
	settle(0);
	ck_assert(list_empty(&s.jobs));
	ck_assert_uint_eq(s.memory_used, 0);
}
END_TEST

static void end_job(uint32_t id)
{
	sv_job_down(&s, id);
	while (sv_job_find(&s, id))
		take_some(&(uint32_t){ 0 });
}

/* ---- slabs that an agent on this machine shows ---- */

static struct {
	int epfd;
	struct xport_group *group;
	struct xport_ep *ep;		/* NULL: closed */
	bool up;
	uint32_t results;
} agent;

static void on_up(void *ctx, struct xport_ep *ep, const struct frame *peer)
{
	(void)ctx;
	(void)ep;
	(void)peer;
	agent.up = true;
}

static void on_deliver(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data)
{
	(void)ctx;
	(void)ep;
	(void)data;
	ck_assert_str_eq(frame_type_name(f->type), "RESULT");
	agent.results++;
}

/* A result by reference is in its place, and any address says "go on". */
static const void *on_resolve(void *ctx, struct xport_ep *ep, const struct frame *f)
{
	(void)ctx;
	(void)f;
	return ep;
}

static void on_sent(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len)
{
	(void)ctx;
	(void)ep;
	(void)cookie;
	(void)len;
}

static void on_closed(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e)
{
	(void)ctx;
	(void)ep;
	(void)why;
	(void)e;
	agent.ep = NULL;
}

static mono_t turn(void)
{
	struct epoll_event ev;
	mono_t now = loop_now();

	if (epoll_wait(agent.epfd, &ev, 1, 1) > 0)
		xport_event(agent.group, ev.data.ptr, ev.events);
	xport_poll(agent.group, now);
	return now;
}

#define UNTIL(condition) do { \
	mono_t until_ = loop_now() + mono_ms(1000u * DEADLINE_S); \
	while (!(condition)) \
		ck_assert(turn() < until_); \
} while (0)

static bool said_hello(struct xport_hello *h, int fd, struct frame *hello)
{
	int rc = xport_hello_read(h, fd, hello);

	ck_assert(rc == 0 || rc == TALLY_EAGAIN);
	return !rc;
}

/* A link by shared memory to engine 0, as the listener would hand it over. */
static void agent_connect(void)
{
	static const struct xport_cb cb = {
		.up = on_up, .resolve = on_resolve, .deliver = on_deliver, .sent = on_sent,
		.closed = on_closed,
	};
	const struct frame hello = { .type = FRAME_HELLO, .job = 1, .aux = FRAME_VERSION };
	struct xport_addr to = { .kind = XPORT_SHM };
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct xport_hello h = { .got = 0 };
	struct sv_adopt adopt;
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err e;

	snprintf(to.remote, sizeof(to.remote), "/tmp/test_server_job.%d", getpid());
	strcpy(sun.sun_path, to.remote);
	unlink(to.remote);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sun, sizeof(sun)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	agent.epfd = epoll_create1(EPOLL_CLOEXEC);
	agent.up = false;
	agent.results = 0;
	ck_assert_int_eq(xport_group_new(&agent.group, agent.epfd, &cb, NULL, &e), 0);
	ck_assert_int_eq(xport_connect(agent.group, &to, &hello, NULL, loop_now(), &agent.ep, &e),
			 0);
	adopt.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	ck_assert_int_ge(adopt.fd, 0);
	close(listener);
	unlink(to.remote);
	UNTIL(said_hello(&h, adopt.fd, &adopt.hello));
	sv_engine_tell(s.engine[0], SV_ADOPT, &adopt, sizeof(adopt));
	UNTIL(agent.up);
}

static void agent_close(void)
{
	xport_group_free(agent.group);
	close(agent.epfd);
}

/* How often this process has mapped it: once is the agent's own. */
static uint32_t mapped(const char *name)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], want[64];
	uint32_t n = 0;

	ck_assert_ptr_nonnull(f);
	snprintf(want, sizeof(want), "memfd:%s ", name);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, want) != NULL;
	fclose(f);
	return n;
}

static void show_as(uint32_t number, uint32_t id, const char *name, struct slab *mem)
{
	struct err e;

	ck_assert_int_eq(slab_new(mem, name, PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(xport_send_slab(agent.ep, id, number, mem->fd, mem->bytes), 0);
	UNTIL(mapped(name) == 2);
}

static void show(uint32_t id, const char *name, struct slab *mem)
{
	show_as(5, id, name, mem);
}

/* A round of one worker: its input and its result lie in slab 5. */
static void sum_there(void)
{
	struct frame push = {
		.type = FRAME_PUSH, .job = JOB, .epoch = 5, .round = 1, .dtype = DTYPE_F32,
		.rop = ROP_SUM, .length = PAGE_BYTES, .slot = SLOT_SLAB(5, 0),
		.rslot = SLOT_SLAB(5, 0),
	};
	uint32_t id = 1;

	while (geom_shard(id, 0, 2))
		id++;			/* one of engine 0's */
	push.tensor = id;
	ck_assert_int_eq(tensors(1, id, PAGE_BYTES / 4), 0);
	settle(1);
	ck_assert_int_eq(xport_send(agent.ep, &push, NULL, 0), 0);
	UNTIL(agent.results == 1);
}

/* When this slab has gone, all have gone that may. */
static void sweep_once(void)
{
	struct slab mem;

	show_as(6, JOB, "broom", &mem);
	ck_assert_int_eq(xport_send_slab(agent.ep, JOB, 6, -1, 0), 0);
	UNTIL(mapped("broom") == 1);
	slab_free(&mem);
}

/* An agent hears of a job, and shows its slabs, when the engines have it. */
static void second_job(void)
{
	struct err e;

	ck_assert_int_eq(job_up(JOB + 1, 1, &e), 0);
	while (sv_job_find(&s, JOB + 1)->starting)
		take_some(&(uint32_t){ 0 });
}

/* The agent has ended the job and uses the number again; this server has not heard yet. */
START_TEST(slab_whose_number_is_another_jobs_stays_until_its_job_ends)
{
	struct slab one, two;

	agent_connect();
	show(JOB, "one", &one);
	sum_there();
	second_job();
	show(JOB + 1, "two", &two);
	sweep_once();
	ck_assert_uint_eq(mapped("one"), 2);
	end_job(JOB);
	ck_assert_uint_eq(mapped("one"), 1);
	ck_assert_uint_eq(mapped("two"), 2);
	end_job(JOB + 1);
	ck_assert_uint_eq(mapped("two"), 1);
	slab_free(&one);
	slab_free(&two);
	agent_close();
}
END_TEST

START_TEST(slab_that_is_taken_back_goes_when_nothing_lies_in_it)
{
	struct slab one, two;

	agent_connect();
	show(JOB, "one", &one);
	sum_there();
	ck_assert_int_eq(xport_send_slab(agent.ep, JOB, 5, -1, 0), 0);
	ck_assert_int_eq(xport_send_slab(agent.ep, JOB, 5, -1, 0), 0);
	sweep_once();
	ck_assert_uint_eq(mapped("one"), 2);	/* the last result */
	forget(2, list_first(&job->tensors, struct sv_tensor, link)->id);
	settle(1);
	UNTIL(mapped("one") == 1);
	show(JOB, "two", &two);			/* its number */
	sweep_once();
	ck_assert_uint_eq(mapped("two"), 2);
	slab_free(&one);
	slab_free(&two);
	agent_close();
}
END_TEST

/* The link broke before it could be taken back. */
START_TEST(another_slab_by_a_number_that_is_known_takes_its_place)
{
	struct slab one, two;

	agent_connect();
	show(JOB, "one", &one);
	ck_assert_int_eq(xport_send_slab(agent.ep, JOB, 5, one.fd, one.bytes), 0);
	show(JOB, "two", &two);
	UNTIL(mapped("one") == 1);
	sweep_once();
	ck_assert_uint_eq(mapped("two"), 2);
	slab_free(&one);
	slab_free(&two);
	agent_close();
}
END_TEST

START_TEST(slab_stays_until_its_job_ends_when_the_link_is_gone)
{
	struct slab one, two;

	agent_connect();
	show(JOB, "one", &one);
	sum_there();
	second_job();
	show(JOB + 1, "two", &two);
	agent_close();
	end_job(JOB + 1);
	ck_assert_uint_eq(mapped("two"), 1);
	ck_assert_uint_eq(mapped("one"), 2);
	end_job(JOB);
	ck_assert_uint_eq(mapped("one"), 1);
	slab_free(&one);
	slab_free(&two);
}
END_TEST

#if HEAP_FAULTS
/*
 * A slab that cannot be mapped is shown once for each link: what lies in it is named again and
 * again, and nobody knows it.  So the link ends, and the next one is shown everything.
 */
START_TEST(slab_that_finds_no_memory_ends_its_link)
{
	struct slab one;
	struct err e;
	mono_t until;

	heap_own = true;
	agent_connect();
	ck_assert_int_eq(slab_new(&one, "one", PAGE_BYTES, false, &e), 0);
	settle(0);			/* both engines have begun */
	heap_fail_others = true;
	ck_assert_int_eq(xport_send_slab(agent.ep, JOB, 5, one.fd, one.bytes), 0);
	until = loop_now() + mono_ms(1000u * DEADLINE_S);
	while (agent.ep && turn() < until)
		;
	heap_fail_others = false;
	ck_assert_uint_eq(mapped("one"), 1);
	ck_assert_msg(!agent.ep, "the link is up, and the agent takes the slab for known");
	agent_close();
	agent_connect();
	ck_assert_int_eq(xport_send_slab(agent.ep, JOB, 5, one.fd, one.bytes), 0);
	UNTIL(mapped("one") == 2);
	sum_there();
	agent_close();
	slab_free(&one);
}
END_TEST

static bool one_job_and_one_agent(void)
{
	return s.jobs.next->next == &s.jobs && s.agents.next->next == &s.agents;
}

START_TEST(job_without_memory_is_refused_and_the_others_stay)
{
	uint64_t used = s.memory_used, at = 0;
	struct err e;
	int rc;

	heap_own = true;
	do {
		heap_fail_at = ++at;
		rc = job_up(JOB + 1, 2, &e);
		heap_fail_at = 0;
		ck_assert(!rc || rc == TALLY_ENOMEM);
		ck_assert(!rc || (one_job_and_one_agent() && s.memory_used == used));
	} while (rc);
	ck_assert_uint_gt(at, 4);
	ck_assert(!one_job_and_one_agent());
	settle(0);
	end_job(JOB + 1);
	ck_assert_uint_eq(s.memory_used, used);
}
END_TEST

START_TEST(entry_without_memory_is_refused_and_the_log_goes_on)
{
	uint64_t seq = 0;
	uint32_t at = 0;
	int rc;

	heap_own = true;
	while (true) {
		heap_fail_at = ++at;
		rc = tensors(++seq, at, 1000);
		heap_fail_at = 0;
		if (!rc)
			break;
		ck_assert_int_eq(rc, TALLY_ENOMEM);
		ck_assert_uint_eq(job->seq, seq);
		forget(++seq, at);
		ck_assert_uint_eq(job->seq, seq);
	}
	ck_assert_uint_gt(at, 4);
	settle(at);			/* what was forgotten, and what was added */
	ck_assert_uint_eq(tensors_held(), 1);
	ck_assert_uint_eq(job->place->total_bytes, 4 * 1000);
}
END_TEST

START_TEST(forget_without_memory_is_said_and_changes_nothing)
{
	uint32_t at = 0;
	int rc;

	heap_own = true;
	ck_assert_int_eq(tensors(1, 1, 1000), 0);
	while (true) {
		heap_fail_at = ++at;
		rc = forget(2, 1);
		heap_fail_at = 0;
		if (!rc)
			break;
		ck_assert_int_eq(rc, TALLY_ENOMEM);
		ck_assert_uint_eq(job->seq, 1);
		ck_assert_uint_eq(job->place->total_bytes, 4 * 1000);
	}
	ck_assert_uint_gt(at, 2);
	settle(2);
	ck_assert_uint_eq(tensors_held(), 0);
	ck_assert_uint_eq(job->place->total_bytes, 0);
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("server_job");
	TCase *t = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 2 * DEADLINE_S);
	tcase_add_test(t, refused_entry_keeps_its_number);
	tcase_add_test(t, small_tensors_take_what_they_need);
	tcase_add_test(t, entry_that_comes_again_replaces_what_was_held);
	tcase_add_test(t, forget_that_never_was_cannot_be_taken_back);
	tcase_add_test(t, entry_that_comes_again_ends_what_was_told);
	tcase_add_test(t, epoch_without_servers_that_no_agent_has_heard_of_is_not_followed);
	tcase_add_test(t, epoch_that_has_us_in_another_row_is_not_followed);
	tcase_add_test(t, what_the_next_epoch_takes_away_waits_for_that_ones_end);
	tcase_add_test(t, gap_in_the_log_is_refused);
	tcase_add_test(t, job_that_ends_while_it_starts_is_freed);
	tcase_add_test(t, slab_whose_number_is_another_jobs_stays_until_its_job_ends);
	tcase_add_test(t, slab_that_is_taken_back_goes_when_nothing_lies_in_it);
	tcase_add_test(t, another_slab_by_a_number_that_is_known_takes_its_place);
	tcase_add_test(t, slab_stays_until_its_job_ends_when_the_link_is_gone);
#if HEAP_FAULTS
	tcase_add_test(t, slab_that_finds_no_memory_ends_its_link);
	tcase_add_test(t, job_without_memory_is_refused_and_the_others_stay);
	tcase_add_test(t, entry_without_memory_is_refused_and_the_log_goes_on);
	tcase_add_test(t, forget_without_memory_is_said_and_changes_nothing);
#endif
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
