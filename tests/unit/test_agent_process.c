// SPDX-License-Identifier: Apache-2.0
/*
 * Processes on an agent's control thread and in its engine 0: what they may name, what they
 * hand back, what they ask.
 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "tests/unit/agent_job_rig.h"
#include "worker-agent/agent_quota.h"

/* ---- who comes in ---- */

struct asker {
	struct ad_session session;
	struct ctl *end;		/* the process's */
	uint32_t heard, closed;
	struct err answer;
};

static void asker_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct asker *k = ctx;

	(void)c;
	ck_assert_int_eq(m->type, MSG_REPLY);
	err_set(&k->answer, m->reply.code, "%s", m->reply.text);
	k->heard++;
}

static void asker_closed(void *ctx, struct ctl *c, const struct err *e)
{
	struct asker *k = ctx;

	(void)e;
	*(c == k->end ? &k->end : &k->session.ctl) = NULL;
	k->closed++;
}

/* Whether a process of that user is admitted, and what it hears else. */
static bool asks_in(uint32_t uid, uint32_t version, struct asker *k)
{
	static const struct ctl_cb cb = { .msg = asker_msg, .closed = asker_closed };
	struct err e;
	bool in;
	int p[2];

	*k = (struct asker){ .session = { .agent = &a, .uid = uid } };
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &k->session.ctl, p[0], &cb, k, &e), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &k->end, p[1], &cb, k, &e), 0);
	list_add(&a.sessions, &k->session.link);
	in = ad_admit(&k->session, &(struct msg_attach){ .req = 3, .version = version });
	if (!in)
		wait_for(&k->closed, 2);	/* it is closed, which the other end sees */
	list_del(&k->session.link);
	if (k->session.ctl)
		ctl_close(k->session.ctl);
	if (k->end)
		ctl_close(k->end);
	wait_for(&k->closed, 2);
	return in;
}

START_TEST(a_user_leaves_half_of_the_places_to_others)
{
	static struct ad_session in[AD_SESSIONS_MAX];
	uint32_t half = AD_SESSIONS_MAX / 2;
	struct asker k;

	for (uint32_t i = 0; i < AD_SESSIONS_MAX; i++) {	/* a half stays among strangers */
		in[i] = (struct ad_session){ .agent = &a, .uid = 1000, .admitted = i < half - 1 };
		list_add(&a.sessions, &in[i].link);
	}
	ck_assert(asks_in(1000, MSG_VERSION, &k));
	in[half].admitted = true;
	ck_assert(!asks_in(1000, MSG_VERSION, &k));
	ck_assert_int_eq(k.answer.code, TALLY_EQUOTA);
	ck_assert_str_eq(k.answer.text, "user id 1000 has 512 processes at agent a, and the last "
			 "512 places are for others; let one end first");
	ck_assert(asks_in(1001, MSG_VERSION, &k));
	for (uint32_t i = 0; i < AD_SESSIONS_MAX; i++)
		in[i].admitted = true;
	ck_assert(!asks_in(1001, MSG_VERSION, &k));
	ck_assert_str_eq(k.answer.text, "agent a has 1024 processes already");
	for (uint32_t i = 0; i < AD_SESSIONS_MAX; i++)
		list_del(&in[i].link);
}
END_TEST

START_TEST(a_library_of_another_version_is_told_so_and_closed)
{
	struct asker k;

	ck_assert(!asks_in(1000, MSG_VERSION + 1, &k));
	ck_assert_uint_eq(k.heard, 1);
	ck_assert_int_eq(k.answer.code, TALLY_EVERSION);
}
END_TEST

/* ---- what a process may name ---- */

static bool is_told(void *ctx)
{
	int code;

	ring_status_get(&((struct process *)ctx)->end, &code, NULL, NULL);
	return code;
}

/* All engines have it by now, but nobody has said so: the process can only guess. */
START_TEST(tensor_that_a_process_was_not_told_of_ends_its_session)
{
	struct ad_job *j = start_job(1);
	struct process p;

	process_start(&p, j, 0);
	log_entry(j, 1, 1, 1);
	submit(&p, 1, ROP_SUM);
	ck_assert(loop_wait(a.loop, is_told, &p));
	/* so that it is told of, also when the process goes before the next is heard */
	ck_assert_str_eq(p.session.cut, "has broken the rules of its ring, and was cut off");
	wait_for(&said.broken, 1);
	ck_assert_int_eq(said.why.code, TALLY_EPROTO);
	ck_assert_str_eq(said.why.text, "rank 0 submitted tensor 1, which it was not told of");
	batches_done(j);
	process_end(&p);
	end_job(j);
}
END_TEST

/* The kernel may want more memory for that than it has. */
START_TEST(ring_that_an_engine_cannot_wait_for_ends_its_session)
{
	struct ad_job *j = start_job(1);
	struct process p;

	has_no_bell = true;
	process_start(&p, j, 0);
	has_no_bell = false;
	wait_for(&said.broken, 1);
	ck_assert_ptr_nonnull(strstr(said.why.text, "agent a cannot listen to rank 0: "));
	ck_assert(is_told(&p));
	process_end(&p);
	end_job(j);
}
END_TEST

#if HEAP_FAULTS
/* Else its session stays, and the others of its job wait for it until their deadlines. */
START_TEST(broken_ring_is_said_also_when_there_was_no_memory)
{
	struct ad_job *j = start_job(1);
	struct process p;

	process_start(&p, j, 0);
	log_entry(j, 1, 1, 1);
	heap_fail_others = true;
	submit(&p, 1, ROP_SUM);
	ck_assert(loop_wait(a.loop, is_told, &p));
	usleep(50000);
	heap_fail_others = false;
	wait_for(&said.broken, 1);
	batches_done(j);
	process_end(&p);
	end_job(j);
}
END_TEST
#endif

static atomic_bool held, let_go;

static void hold(int number)
{
	(void)number;
	held = true;
	while (!let_go)
		usleep(1000);
}

static void hold_engine(uint32_t index)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[300], name[16], want[16];
	const struct dirent *task;

	snprintf(want, sizeof(want), "agent/%u\n", index);
	signal(SIGUSR1, hold);
	while (!held && (task = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		FILE *f = fopen(path, "r");

		if (f && fgets(name, sizeof(name), f) && !strcmp(name, want))
			(void)syscall(SYS_tgkill, getpid(), atoi(task->d_name), SIGUSR1);
		if (f)
			fclose(f);
	}
	closedir(tasks);
	while (!held)
		usleep(1000);
}

/* What an engine has in hand may still go to a rank's memory. */
START_TEST(end_of_a_job_is_shown_when_all_engines_have_stopped_it)
{
	struct ad_job *j = start_job(1);
	uint32_t freed = said.freed + ENGINES;
	struct process p;

	process_start(&p, j, 0);
	hold_engine(1);
	ad_job_down(j, TALLY_EWORKERLOST, "rank 1 is gone");
	usleep(50000);
	ck_assert(!is_told(&p));
	let_go = true;
	ck_assert(loop_wait(a.loop, is_told, &p));
	process_end(&p);
	wait_for(&said.freed, freed);
}
END_TEST

/* It hears of a round's end, and in the same breath that the agent ends: the rank is told. */
START_TEST(engine_that_ends_tells_what_is_done)
{
	struct ad_job *j = start_job(2);
	const struct ad_done_mail done = { .job = JOB, .tensor = 1, .round = 1 };
	struct process p;

	process_start(&p, j, 0);
	log_entry(j, 1, 1, 1);
	batches_done(j);
	submit(&p, 1, ROP_SUM);
	while (!a.oldest || a.oldest == MONO_NEVER)	/* no round is open yet */
		usleep(1000);
	hold_engine(0);
	ad_engine_tell(a.engine[0], AD_DONE, &done, sizeof(done));
	ad_engine_tell(a.engine[0], AD_QUIET, NULL, 0);
	let_go = true;
	ad_engine_quiet(a.engine[0]);
	ck_assert(completed(&p));
	stop_engines();
	a.stopping = true;
	ad_job_free(j);
	process_free(&p);
	a.nengines = 0;			/* they have gone */
}
END_TEST

START_TEST(tensor_that_a_process_was_told_of_is_summed)
{
	struct ad_job *j = start_job(1);
	struct process p;

	process_start(&p, j, 0);
	log_entry(j, 1, 1, 1);
	batches_done(j);
	submit(&p, 1, ROP_SUM);
	ck_assert(loop_wait(a.loop, completed, &p));
	ck_assert_uint_eq(said.broken, 0);
	process_end(&p);
	end_job(j);
}
END_TEST

/* What the second one says after that makes no sense either, and is no fault of its own. */
START_TEST(ranks_that_disagree_are_not_cut_off_before_they_hear_it)
{
	struct ad_job *j;
	struct process p[2];

	register_agent();
	j = start_pair();
	for (uint32_t l = 0; l < 2; l++)
		process_start(&p[l], j, l);
	log_entry(j, 1, 1, 1);
	batches_done(j);
	submit(&p[0], 1, ROP_SUM);
	submit(&p[1], 1, ROP_MEAN);
	wait_for(&sched.n, 1);
	submit(&p[1], 7, ROP_SUM);
	ck_heard(0, (struct heard){ .type = MSG_RANK_LEAVE, .code = TALLY_EMISMATCH });
	for (uint32_t l = 0; l < 2; l++)
		process_end(&p[l]);
	ck_assert_uint_eq(said.broken, 0);
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

/* A scheduler that does not answer keeps nobody here. */
START_TEST(who_detaches_waits_for_the_scheduler_a_while_only)
{
	struct ad_job *j = start_job(1);
	struct ad_session s = { .agent = &a, .job = j, .state = SESSION_OPEN, .process = -1 };
	struct ad_req *r = &s.req[0];
	const struct ad_req asked = {
		.ours = 9, .type = MSG_DETACH, .deadline = loop_now() + NS_PER_SEC,
	};
	const struct msg_reply answer = { .req = 9, .text = "" };

	register_agent();
	list_add(&a.sessions, &s.link);
	*r = asked;
	ad_sessions_tick(&a, asked.deadline - 1);
	ck_assert_uint_eq(r->ours, 9);
	ad_sessions_tick(&a, asked.deadline);
	ck_assert_uint_eq(r->ours, 0);
	*r = asked;
	ad_session_reply(&a, &answer);
	ck_assert_uint_eq(r->ours, 0);
	list_del(&s.link);
	unregister_agent();
	end_job(j);
}
END_TEST

/* ---- slabs of users ---- */

static uint32_t answers;

static void any_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	(void)ctx;
	(void)c;
	(void)m;
	answers++;			/* descriptors that nobody takes are closed */
}

static void any_closed(void *ctx, struct ctl *c, const struct err *e)
{
	(void)c;
	(void)e;
	++*(uint32_t *)ctx;
}

/*
 * One user's processes ask for as many slabs as they get.  Another user's declaration still finds
 * a number for its results: without one the agent could not follow the log, and the job would end.
 */
START_TEST(a_user_leaves_slabs_to_others)
{
	static const struct ctl_cb cb = { .msg = any_msg, .closed = any_closed };
	static struct ad_session in[SLABS_PER_LINK_MAX / SLABS_PER_PROCESS_MAX];
	const struct msg_slab want = { .req = 1, .kind = SLAB_INPUT, .bytes = PAGE_BYTES };
	struct ad_job *j = start_job(1);
	struct ctl *mine, *its;
	uint32_t closed = 0;
	struct rlimit l;
	struct err e;
	int p[2];

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &l), 0);
	l.rlim_cur = l.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &l), 0);
	a.memory_bytes = UINT64_MAX;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &mine, p[0], &cb, &closed, &e), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &its, p[1], &cb, &closed, &e), 0);
	answers = 0;
	ck_assert_int_eq(ctl_reply(its, 0, 0, "a first word"), 0);
	ck_assert_int_eq(ctl_reply(mine, 0, 0, "a first word"), 0);
	wait_for(&answers, 2);
	answers = 0;
	for (uint32_t i = 0; i < SLABS_PER_LINK_MAX; i++) {
		struct ad_session *s = &in[i / SLABS_PER_PROCESS_MAX];

		if (!s->agent)
			*s = (struct ad_session){ .agent = &a, .job = j, .uid = 1000,
						  .serial = 1 + i, .ctl = mine };
		ad_arena_want(s, &want);
		if (i % 64 == 63)
			wait_for(&answers, i + 1);
	}
	log_entry(j, 1, 1, 1);		/* of whatever user's job */
	batches_done(j);
	ctl_close(mine);
	ctl_close(its);
	wait_for(&closed, 2);
	end_job(j);
}
END_TEST

/* What would end this process, or another one, is refused; what was given back is there again. */
START_TEST(results_that_the_machine_has_no_memory_for_are_refused)
{
	struct ad_job *j = start_job(1);
	struct ad_slab *s;
	uint32_t page, again;
	struct err e;

	a.memory_bytes = a.backed_bytes + 10 * PAGE_BYTES;
	ck_assert_int_eq(ad_pages_get(&a, j, &j->results, AD_RESULTS, 8, &s, &page, &e), 0);
	ck_assert_int_eq(ad_pages_get(&a, j, &j->results, AD_RESULTS, 3, &s, &again, &e),
			 TALLY_EQUOTA);
	ck_assert_ptr_nonnull(strstr(e.text, "there is no memory for 12 KiB of results"));
	ad_pages_put(s, page, 8);
	ck_assert_int_eq(ad_pages_get(&a, j, &j->results, AD_RESULTS, 10, &s, &page, &e), 0);
	ad_pages_put(s, page, 10);
	end_counted_job(j);
}
END_TEST

/* Bookkeeping of tensors is memory, too; tensors without elements have no results. */
START_TEST(what_a_user_may_have_counts_before_it_is_asked_for)
{
	struct ad_job *j = start_job(1);
	struct ad_session s = { .agent = &a, .job = j, .job_name = "x" };
	struct msg_tensor t = { .name = "t", .dtype = DTYPE_F32, .count = 1024 };
	struct msg_declare m = { .ntensors = 1, .tensors = &t };
	const uint64_t each = ad_tensor_cost(j, PAGE_BYTES);
	uint64_t cost;
	struct err e;

	ck_assert_uint_eq(ad_tensor_cost(j, 0), TENSOR_OWN_BYTES);
	ck_assert_uint_ge(each, TENSOR_OWN_BYTES + 2 * PAGE_BYTES);
	j->user = MSG_USER(1000);
	a.user_bytes = each + PAGE_BYTES;
	ck_assert_int_eq(ad_quota_declare(&s, &m, &cost, &e), 0);
	ck_assert_uint_eq(cost, each);
	log_entry(j, 1, 1, 1);
	batches_done(j);
	ck_assert_uint_eq(j->tensor_bytes, each);
	ck_assert_int_eq(ad_quota_declare(&s, &m, &cost, &e), TALLY_EQUOTA);
	ck_assert_ptr_nonnull(strstr(e.text, "user id 1000 has "));
	ck_assert_ptr_nonnull(strstr(e.text, " that one user may have at agent a, and tensors of "
				     "job 'x' would take "));
	ck_assert_ptr_nonnull(strstr(e.text, "--user-memory"));
	s.declared_bytes = 0;			/* another rank, which declares the same */
	ck_assert_int_eq(ad_quota_declare(&s, &m, &cost, &e), 0);
	ad_quota_undeclare(&s, each);
	ck_assert_uint_eq(s.declared_bytes, 0);
	t.count = 0;
	s.declared_bytes = each;
	ck_assert_int_eq(ad_quota_declare(&s, &m, &cost, &e), 0);
	ck_assert_uint_eq(s.declared_bytes, each + TENSOR_OWN_BYTES);
	a.user_bytes = 0;
	end_job(j);
}
END_TEST

START_TEST(a_tensor_without_elements_has_no_results)
{
	struct ad_job *j = start_job(1);
	struct ad_tensor *t;

	entry_count = 0;
	log_entry(j, 1, 1, 1);
	entry_count = PAGE_BYTES / 4;
	batches_done(j);
	t = ad_tensor_find(j, 1);
	ck_assert(t->ready && !t->result && !t->sum && !t->npages);
	for (uint32_t i = 0; i < ENGINES; i++)
		ck_assert(!t->piece[i] && !t->core[i]);
	ck_assert(list_empty(&j->results));
	end_job(j);
}
END_TEST

/* An engine that has no chunk of a tensor keeps nothing of it. */
START_TEST(a_small_tensor_is_one_engine_s)
{
	struct ad_job *j = start_job(1);
	uint32_t has = 0;

	log_entry(j, 1, 1, 1);
	batches_done(j);
	for (uint32_t i = 0; i < ENGINES; i++)
		has += ad_tensor_find(j, 1)->core[i] != NULL;
	ck_assert_uint_eq(has, 1);
	end_job(j);
}
END_TEST

/*
 * After a restart results lie where they were, with gaps: what is copied has memory from there
 * on, what lies before it has none yet, and only what is new is asked for.
 */
START_TEST(results_that_came_back_have_their_memory)
{
	struct ad_job *j = start_job(1);
	struct ad_slab *s, *out;
	struct slab before;
	uint32_t page;
	struct err e;

	ck_assert_int_eq(slab_new(&before, "test", 4u << 20, false, &e), 0);
	s = ad_results_again(&a, j, before.bytes, &e);
	ck_assert_ptr_nonnull(s);
	ck_assert(pagemap_take(&s->pages, 8, 8) && pagemap_take(&s->pages, 16, 4));
	a.memory_bytes = a.backed_bytes + 16 * PAGE_BYTES;
	ck_assert_int_eq(ad_pages_copy(&a, s, 16, 4, before.fd, &e), 0);
	ck_assert_uint_eq(a.backed_bytes, 4 * PAGE_BYTES);
	ck_assert_int_eq(ad_pages_copy(&a, s, 8, 8, before.fd, &e), 0);
	ck_assert_uint_eq(a.backed_bytes, 12 * PAGE_BYTES);
	ck_assert_int_eq(ad_pages_get(&a, j, &j->results, AD_RESULTS, 2, &out, &page, &e), 0);
	ck_assert_ptr_eq(out, s);
	ck_assert_uint_eq(page, 0);
	ck_assert_uint_eq(a.backed_bytes, 14 * PAGE_BYTES);
	ck_assert_int_eq(ad_pages_get(&a, j, &j->results, AD_RESULTS, 7, &out, &page, &e),
			 TALLY_EQUOTA);
	ck_assert_int_eq(ad_pages_get(&a, j, &j->results, AD_RESULTS, 2, &out, &page, &e), 0);
	ck_assert(pagemap_take(&s->pages, 20, 1));
	ck_assert_int_eq(ad_pages_copy(&a, s, 20, 1, before.fd, &e), TALLY_EQUOTA);
	end_counted_job(j);
	slab_free(&before);
}
END_TEST

static void engine_waits(uint32_t engine, uint32_t chunk, uint32_t chunks)
{
	struct ad_stuck *st = calloc(1, sizeof(*st));

	st->job = JOB;
	st->engine = engine;
	st->n = 1;
	st->row[0] = (struct msg_wait){
		.tensor = 1, .round = 2, .chunk = chunk, .chunks = chunks, .kind = WAIT_LINK,
		.who = 9,
	};
	ad_stuck_take(&a, st);
}

/* The other says that it has no link to that server either, and no chunks of this round there. */
START_TEST(first_chunk_that_waits_is_that_of_an_engine_with_chunks_that_do)
{
	struct ad_job *j;

	register_agent();
	j = start_job(1);
	engine_waits(_i, 7, 5);
	engine_waits(!_i, 0, 0);
	ck_assert_uint_eq(j->stuck_told->n, 1);
	ck_assert_uint_eq(j->stuck_told->row[0].chunk, 7);
	ck_assert_uint_eq(j->stuck_told->row[0].chunks, 5);
	engine_waits(!_i, 6, 1);
	ck_assert_uint_eq(j->stuck_told->row[0].chunk, 6);
	ck_assert_uint_eq(j->stuck_told->row[0].chunks, 6);
	end_job(j);
	unregister_agent();
}
END_TEST

/* REPLY 0, which the scheduler says when it cuts the connection, is no process's answer. */
START_TEST(the_last_word_of_a_connection_answers_nobody)
{
	static const struct ctl_cb cb = { .msg = asker_msg, .closed = asker_closed };
	struct asker k = { .session = { .agent = &a, .uid = 1, .state = SESSION_JOINING } };
	struct msg_reply last = { .code = TALLY_ENOMEM, .text = "no memory for a message" };
	struct msg_reply own = { .req = 7, .code = TALLY_EEXIST, .text = "taken" };
	struct err e;
	int p[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &k.session.ctl, p[0], &cb, &k, &e), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &k.end, p[1], &cb, &k, &e), 0);
	k.session.req[0] = (struct ad_req){ .ours = 7, .theirs = 1, .type = MSG_RANK_JOIN };
	list_add(&a.sessions, &k.session.link);
	ad_session_reply(&a, &last);
	ad_session_reply(&a, &own);
	wait_for(&k.closed, 2);		/* it does not come in, and has nothing more to ask */
	ck_assert_int_eq(k.answer.code, TALLY_EEXIST);
	list_del(&k.session.link);
	ck_assert_uint_eq(k.heard, 1);
}
END_TEST

/* ---- another agent has its name ---- */

static bool registered(void *ctx)
{
	(void)ctx;
	return a.registrations > 0;
}

/* To the scheduler of the rig, as the program does. */
static void start_io(void)
{
	static const struct opt_program program = { .name = "tally-agent" };
	static char where[64];
	struct err e;

	memset(&sched, 0, sizeof(sched));
	ck_assert_int_eq(listener_tcp(a.loop, &sched.listener, "127.0.0.1", 0, sched_accepted,
				      NULL, &e), 0);
	snprintf(where, sizeof(where), "127.0.0.1:%u", listener_port(sched.listener));
	a.opt.daemon.scheduler = where;
	a.daemon = (struct daemon){
		.program = &program, .opt = &a.opt.daemon, .owner = &a, .loop = a.loop,
		.nengines = ENGINES, .name = "a", .machine = "a",
	};
	ck_assert_int_eq(ad_io_start(&a, &e), 0);
	ck_assert(loop_wait(a.loop, registered, NULL));
}

static void stop_io(void)
{
	ad_io_stop(&a);
	listener_close(sched.listener);
	if (sched.c)
		ctl_close(sched.c);
}

/* Its ranks have been lost, and come into the job again. */
START_TEST(what_was_stuck_in_a_part_before_is_taken_back)
{
	struct ad_session s = { .agent = &a, .state = SESSION_JOINING, .job_name = "x" };
	struct msg m = job_up_msg(machines, 2);
	struct err e;

	start_io();
	list_add(&a.sessions, &s.link);
	m.job_up.epoch_seq = 4;
	ck_assert_int_eq(ctl_send(sched.c, &m, &e), 0);
	wait_for(&sched.n, 1);
	ck_heard(0, (struct heard){ .type = MSG_STUCK, .id = JOB });
	ad_back_forget(&a);
	list_del(&s.link);
	stop_io();
}
END_TEST

START_TEST(who_was_replaced_tells_its_ranks_and_ends_when_they_have_gone)
{
	char text[ERR_TEXT_MAX + 1];
	struct ad_job *j = start_job(1);
	uint32_t freed = said.freed + ENGINES, asked;
	struct process p;
	int code;

	process_start(&p, j, 0);
	p.session.process = -1;
	list_add(&a.sessions, &p.session.link);
	start_io();
	sched.replaced = "another one is there";
	ctl_close(sched.c);
	wait_for(&said.freed, freed);		/* its links are gone, too */
	ring_status_get(&p.end, &code, text, NULL);
	ck_assert_int_eq(code, TALLY_EWORKERLOST);
	ck_assert_str_eq(text, "another one is there");
	asked = sched.hellos;
	wait_for(&sched.hellos, asked + 2);
	ck_assert_int_eq(a.daemon.exit_code, 0);
	p.session.detached = true;
	(void)loop_wait(a.loop, completed, &p);		/* never: it stops the loop */
	ck_assert_int_eq(a.daemon.exit_code, 1);
	stop_io();
	process_end(&p);
	list_del(&p.session.link);
	ad_job_forget(j);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, what_was_stuck_in_a_part_before_is_taken_back);
	tcase_add_test(t, engine_that_ends_tells_what_is_done);
	tcase_add_test(t, who_was_replaced_tells_its_ranks_and_ends_when_they_have_gone);
	tcase_add_test(t, the_last_word_of_a_connection_answers_nobody);
	tcase_add_loop_test(t, first_chunk_that_waits_is_that_of_an_engine_with_chunks_that_do,
			    0, 2);
	tcase_add_test(t, what_a_user_may_have_counts_before_it_is_asked_for);
	tcase_add_test(t, a_tensor_without_elements_has_no_results);
	tcase_add_test(t, a_small_tensor_is_one_engine_s);
	tcase_add_test(t, results_that_came_back_have_their_memory);
	tcase_add_test(t, results_that_the_machine_has_no_memory_for_are_refused);
	tcase_add_test(t, a_user_leaves_slabs_to_others);
#if HEAP_FAULTS
	tcase_add_test(t, broken_ring_is_said_also_when_there_was_no_memory);
#endif
	tcase_add_test(t, a_user_leaves_half_of_the_places_to_others);
	tcase_add_test(t, a_library_of_another_version_is_told_so_and_closed);
	tcase_add_test(t, tensor_that_a_process_was_not_told_of_ends_its_session);
	tcase_add_test(t, ring_that_an_engine_cannot_wait_for_ends_its_session);
	tcase_add_test(t, end_of_a_job_is_shown_when_all_engines_have_stopped_it);
	tcase_add_test(t, tensor_that_a_process_was_told_of_is_summed);
	tcase_add_test(t, ranks_that_disagree_are_not_cut_off_before_they_hear_it);
	tcase_add_test(t, only_dma_bufs_are_taken_for_a_device_and_only_where_wanted);
	tcase_add_test(t, who_declares_asks_again_until_its_tensors_are_there);
	tcase_add_test(t, who_detaches_waits_for_the_scheduler_a_while_only);
}

int main(void)
{
	return rig_main("agent_process", add);
}
