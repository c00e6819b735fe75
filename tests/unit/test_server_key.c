// SPDX-License-Identifier: Apache-2.0
/*
 * Whom a server's listener lets in: the process whose key the scheduler has said last, over
 * real sockets and with real engines.  And what such a link leaves that ends too early.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "server/server.h"
#include "tests/unit/loop_wait.h"

#define NODE	3u

static struct server s;
static struct loop_bell *bell;
static uint32_t freed, batches;		/* jobs; what the engines have of their tensors */

static void ring_bell(void *ctx)
{
	(void)ctx;
	loop_bell_ring(bell);
}

/* As sv_on_mail(), but for telling the scheduler. */
static void on_bell(void *ctx)
{
	struct sv_batch *b;
	struct sv_job *j;
	struct mail m;

	(void)ctx;
	while (mailbox_take(s.mail, &m)) {
		memcpy(&j, m.body, sizeof(j));
		memcpy(&b, m.body, sizeof(b));
		if (m.type == SV_JOB_READY) {
			j->starting--;
		} else if (m.type == SV_BATCH_READY && !--b->engines_left) {
			sv_batch_free(&s, b);
			batches++;
		} else if (m.type == SV_JOB_FREE && !--j->engines_left) {
			sv_agents_del(&s, j);
			sv_job_free(&s, j);
			freed++;
		} else if (m.type == SV_NET) {
			free(j);
		}
	}
}

/* ---- jobs and keys ---- */

static void key_set(uint8_t key[KEY_BYTES], uint8_t fill)
{
	memset(key, fill, KEY_BYTES);
}

/* Of agents 1 and 2, with these keys. */
static void job_up(uint32_t id, uint8_t key1, uint8_t key2)
{
	static const uint32_t rank[] = { 0, 1 };
	struct msg_machine machine[] = {
		{ .node = 1, .name = "a", .machine = "a", .nranks = 1, .ranks = &rank[0] },
		{ .node = 2, .name = "b", .machine = "b", .nranks = 1, .ranks = &rank[1] },
	};
	const struct msg_server server = {
		.node = NODE, .name = "s", .machine = "s", .shm_path = "", .engines = 2,
		.weight = UINT32_MAX,
	};
	const struct msg_job_up up = {
		.job = id, .name = "x", .world = 2, .epoch = 5, .algorithm = PLACE_ALGORITHM,
		.chunk_bytes = CHUNK_BYTES_DEFAULT, .seg_bytes = CHUNK_BYTES_DEFAULT,
		.window_bytes = WINDOW_BYTES_MIN, .nmachines = 2, .machines = machine,
		.nservers = 1, .servers = &server,
	};
	struct err e;

	key_set(machine[0].link_key, key1);
	key_set(machine[1].link_key, key2);
	ck_assert_int_eq(sv_job_up(&s, &up, &e), 0);
}

static void agent_is(uint32_t node, uint8_t key)
{
	struct msg_agent_key row = { .node = node };
	const struct msg_agent_keys m = { .nkeys = 1, .keys = &row };

	key_set(row.link_key, key);
	sv_agents_keys(&s, &m);
}

static void setup(void)
{
	struct err e;

	memset(&s, 0, sizeof(s));
	s.name = "s";
	s.my_node = NODE;
	s.nengines = 2;
	s.memory_bytes = 256u << 20;
	s.opt.daemon.frames_per_write = FRAMES_PER_WRITE_MAX;
	s.opt.listen = (struct opt_list){ .v = { "127.0.0.1:0" }, .n = 1 };
	s.opt.shm_socket = "none";
	list_init(&s.jobs);
	list_init(&s.agents);
	list_init(&s.greetings);
	ck_assert_int_eq(loop_new(&s.loop, &e), 0);
	ck_assert_int_eq(loop_bell_start(s.loop, &bell, on_bell, NULL), 0);
	ck_assert_int_eq(mailbox_new(&s.mail, ring_bell, NULL, &e), 0);
	for (uint32_t i = 0; i < s.nengines; i++)
		ck_assert_int_eq(sv_engine_start(&s, i, -1, &e), 0);
	ck_assert_msg(!sv_listen_start(&s, &e), "%s", e.text);
}

static void teardown(void)
{
	uint32_t jobs = freed;

	list_for_each(&s.jobs, l) {
		sv_job_down(&s, list_entry(l, struct sv_job, link)->id);
		jobs++;
	}
	loop_wait_count(s.loop, &freed, jobs);
	ck_assert(list_empty(&s.agents));
	for (uint32_t i = 0; i < s.nengines; i++)
		sv_engine_stop(s.engine[i]);
	sv_listen_stop(&s);
	loop_bell_stop(bell);
	mailbox_free(s.mail);
	loop_free(s.loop);
}

#include "tests/unit/rig_main.h"

/* ---- agents ---- */

struct link {
	int fd;
	uint8_t wire[FRAME_BYTES];
	size_t got;
	bool ended;
};

/* Has been answered, or its end has come; what comes after the answer is of no interest. */
static bool hear(void *ctx)
{
	struct link *k = ctx;
	uint8_t *to = k->wire + MIN(k->got, FRAME_BYTES - 1);
	ssize_t n = recv(k->fd, to, k->got < FRAME_BYTES ? FRAME_BYTES - k->got : 1, MSG_DONTWAIT);

	k->ended |= n == 0 || (n < 0 && errno != EAGAIN);
	k->got += n > 0 ? (size_t)n : 0;
	return k->ended || k->got >= FRAME_BYTES;
}

/* It says that it lives: for silence it would end, too. */
static bool hear_end(void *ctx)
{
	const struct frame ping = { .type = FRAME_PING };
	uint8_t wire[FRAME_BYTES];
	struct link *k = ctx;

	frame_encode(&ping, wire);
	(void)send(k->fd, wire, sizeof(wire), MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)hear(k);
	return k->ended;
}

/* True: it was let in. */
static bool comes(struct link *k, uint32_t node, uint8_t key, uint32_t start)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(listener_port(s.listener[0])),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct frame hello = { .type = FRAME_HELLO, .job = node, .epoch = NODE, .round = start,
			       .aux = FRAME_VERSION };
	uint8_t bytes[KEY_BYTES], wire[FRAME_BYTES];

	key_set(bytes, key);
	hello.slot = get_le64(bytes);
	hello.rslot = get_le64(bytes + 8);
	frame_encode(&hello, wire);
	*k = (struct link){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	ck_assert_int_eq(connect(k->fd, (struct sockaddr *)&to, sizeof(to)), 0);
	ck_assert_int_eq(send(k->fd, wire, sizeof(wire), MSG_NOSIGNAL), sizeof(wire));
	ck_assert(loop_wait(s.loop, hear, k));
	if (k->ended)
		close(k->fd);
	return !k->ended;
}

static void end(struct link *k)
{
	close(k->fd);
}

/* ---- promises ---- */

START_TEST(the_process_whose_key_it_is_is_let_in)
{
	struct link k, other;

	job_up(7, 10, 20);
	ck_assert(comes(&k, 1, 10, 100));
	ck_assert(!comes(&other, 1, 20, 100));
	ck_assert(!comes(&other, 3, 10, 100));
	ck_assert(comes(&other, 2, 20, 100));
	end(&other);
	end(&k);
}
END_TEST

/* Its open links end without anybody else's HELLO, and it cannot make them again. */
START_TEST(when_the_agent_is_another_process_the_one_before_is_out)
{
	struct link old, other, k;

	job_up(7, 10, 20);
	ck_assert(comes(&old, 1, 10, 100));
	ck_assert(comes(&other, 2, 20, 100));
	ck_assert(!comes(&k, 1, 11, 101));	/* it is here before the word is */
	agent_is(1, 11);
	ck_assert(loop_wait(s.loop, hear_end, &old));
	end(&old);
	ck_assert(comes(&k, 1, 11, 101));
	ck_assert(!comes(&old, 1, 10, 100));
	ck_assert(!hear_end(&k));
	ck_assert(!hear_end(&other));
	end(&other);
	end(&k);
}
END_TEST

START_TEST(the_same_key_again_changes_nothing)
{
	struct link k, more;

	job_up(7, 10, 20);
	ck_assert(comes(&k, 1, 10, 100));
	agent_is(1, 10);
	job_up(8, 10, 20);
	ck_assert(comes(&more, 1, 10, 100));	/* by now its end would be here */
	ck_assert(!hear_end(&k));
	end(&more);
	end(&k);
}
END_TEST

/* It comes with another job, too: JOB_UP has what is known by then. */
START_TEST(a_job_that_begins_brings_the_key_of_the_process_that_is_there)
{
	struct link old, k;

	job_up(7, 10, 20);
	ck_assert(comes(&old, 1, 10, 100));
	job_up(8, 11, 20);
	ck_assert(loop_wait(s.loop, hear_end, &old));
	end(&old);
	ck_assert(comes(&k, 1, 11, 101));
	end(&k);
}
END_TEST

START_TEST(zeros_are_no_news_and_let_nobody_in)
{
	struct link k, none;

	job_up(7, 10, 0);
	ck_assert(!comes(&none, 2, 0, 100));
	ck_assert(comes(&k, 1, 10, 100));
	job_up(8, 0, 20);
	agent_is(1, 0);
	ck_assert(comes(&none, 1, 10, 100));
	ck_assert(!hear_end(&k));
	end(&none);
	end(&k);
}
END_TEST

START_TEST(an_agent_of_no_job_is_not_known_for_its_key)
{
	struct link k;

	job_up(7, 10, 20);
	agent_is(5, 50);
	ck_assert(!comes(&k, 5, 50, 100));
}
END_TEST

/* ---- ends ---- */

/* All that lands in it has ended: the job goes, which teardown() waits for. */
START_TEST(a_job_does_not_wait_for_a_payload_that_its_link_has_cut_short)
{
	struct msg_tensor t = { .id = 1, .name = "t", .dtype = DTYPE_F32, .count = 65536 };
	const struct msg_tensors m = { .job = 7, .seq = 1, .ntensors = 1, .tensors = &t };
	struct frame push = {
		.type = FRAME_PUSH, .job = 7, .epoch = 5, .round = 1, .dtype = DTYPE_F32,
		.rop = ROP_SUM, .length = 65536 * 4,
	};
	uint8_t half[65536] = { 0 };
	struct link k;
	struct err e;

	while (geom_shard(t.id, 0, s.nengines))
		t.id++;			/* one of engine 0's */
	push.tensor = t.id;
	job_up(7, 10, 20);
	ck_assert_int_eq(sv_tensors(&s, &m, &e), 0);
	loop_wait_count(s.loop, &batches, 1);
	ck_assert(comes(&k, 1, 10, 100));
	frame_encode(&push, half);
	ck_assert_int_eq(send(k.fd, half, sizeof(half), MSG_NOSIGNAL), sizeof(half));
	end(&k);
}
END_TEST

/* ---- the log ---- */

static struct sv_agent *agent_1(void)
{
	return list_first(&s.agents, struct sv_agent, link);
}

START_TEST(a_wrong_key_is_told_when_it_lasts_and_not_each_time)
{
	mono_t told;
	struct link k;

	job_up(7, 10, 20);
	ck_assert(!comes(&k, 1, 11, 101));
	ck_assert(!comes(&k, 1, 11, 101));
	ck_assert_int_eq(s.key_told, 0);
	agent_1()->wrong_since -= mono_ms(60000);	/* it has gone on for that long */
	ck_assert(!comes(&k, 1, 11, 101));
	told = s.key_told;
	ck_assert_int_ne(told, 0);
	ck_assert(!comes(&k, 1, 11, 101));
	ck_assert(!comes(&k, 5, 11, 101));
	ck_assert_int_eq(s.key_told, told);
	s.key_told -= mono_ms(60000);
	ck_assert(!comes(&k, 1, 11, 101));
	ck_assert_int_ge(s.key_told, told);
}
END_TEST

START_TEST(a_wrong_key_once_in_a_while_does_not_last)
{
	struct link k;

	job_up(7, 10, 20);
	ck_assert(!comes(&k, 1, 11, 101));
	agent_1()->wrong -= mono_ms(60000);
	agent_1()->wrong_since -= mono_ms(60000);
	ck_assert(!comes(&k, 1, 11, 101));
	ck_assert_int_eq(s.key_told, 0);
	agent_1()->wrong_since -= mono_ms(60000);
	ck_assert(comes(&k, 1, 10, 100));		/* it was right in between */
	end(&k);
	ck_assert(!comes(&k, 1, 11, 101));
	ck_assert_int_eq(s.key_told, 0);
}
END_TEST

START_TEST(an_agent_that_nobody_named_is_told_at_once)
{
	struct link k;

	ck_assert(!comes(&k, 1, 10, 100));
	ck_assert_int_ne(s.key_told, 0);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, the_process_whose_key_it_is_is_let_in);
	tcase_add_test(t, when_the_agent_is_another_process_the_one_before_is_out);
	tcase_add_test(t, the_same_key_again_changes_nothing);
	tcase_add_test(t, a_job_that_begins_brings_the_key_of_the_process_that_is_there);
	tcase_add_test(t, zeros_are_no_news_and_let_nobody_in);
	tcase_add_test(t, an_agent_of_no_job_is_not_known_for_its_key);
	tcase_add_test(t, a_job_does_not_wait_for_a_payload_that_its_link_has_cut_short);
	tcase_add_test(t, a_wrong_key_is_told_when_it_lasts_and_not_each_time);
	tcase_add_test(t, a_wrong_key_once_in_a_while_does_not_last);
	tcase_add_test(t, an_agent_that_nobody_named_is_told_at_once);
}

int main(void)
{
	return rig_main("server_key", add);
}
