// SPDX-License-Identifier: Apache-2.0
/*
 * test_agent_back.c - processes that come back to an agent which was started again: what they have
 * passed is told, and who hands back much leaves room for others.
 */
#include <sys/resource.h>

#include "tests/unit/agent_job_rig.h"

/* A process that hands back its ring to a new agent, and attaches. */
struct returning {
	struct ad_session session;
	struct ctl *end;		/* the process's */
	struct slab ring;
	uint32_t handed, attached, closed;
};

static void returning_msg(void *ctx, struct ctl *c, const struct msg *m)
{
	struct returning *r = ctx;
	struct err e;

	(void)c;
	if (m->type == MSG_SLAB) {
		ad_back_slab(&r->session, &m->slab);
		r->handed++;
	} else if (m->type == MSG_DECLARED) {
		ad_back_rows(&r->session, &m->declared);
		r->handed++;
	} else {
		ck_assert_int_eq(ad_back_attach(&r->session, &m->attach, &e), 0);
		r->attached++;
	}
}

static void returning_closed(void *ctx, struct ctl *c, const struct err *e)
{
	struct returning *r = ctx;

	(void)e;
	if (c == r->end)
		r->end = NULL;
	else
		r->session.ctl = NULL;
	r->closed++;
}

static void returning_connect(struct returning *r)
{
	static const struct ctl_cb cb = { .msg = returning_msg, .closed = returning_closed };
	struct err e;
	int p[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &r->session.ctl, p[0], &cb, r, &e), 0);
	ck_assert_int_eq(ctl_adopt(a.loop, &r->end, p[1], &cb, r, &e), 0);
}

static void returning_start(struct returning *r, struct ad_job *j, uint64_t barriers)
{
	const struct msg slab = { .type = MSG_SLAB, .slab = {
		.kind = SLAB_RING, .bytes = ring_shared_bytes(),
	} };
	const struct msg attach = { .type = MSG_ATTACH, .attach = {
		.version = MSG_VERSION, .job = "x", .world = 1, .back = JOB, .barriers = barriers,
	} };
	char name[AD_NAME_MAX];
	struct err e;

	*r = (struct returning){ .session = { .agent = &a, .job = j } };
	ad_ring_name(name, JOB, 0);
	ck_assert_int_eq(slab_new(&r->ring, name, slab.slab.bytes, false, &e), 0);
	returning_connect(r);
	ck_assert_int_eq(ctl_send_fds(r->end, &slab, &r->ring.fd, 1, &e), 0);
	ck_assert_int_eq(ctl_send(r->end, &attach, &e), 0);
	wait_for(&r->attached, 1);
}

static void returning_end(struct returning *r)
{
	ad_back_free(&r->session);
	if (r->session.ctl)
		ctl_close(r->session.ctl);
	if (r->end)
		ctl_close(r->end);
	wait_for(&r->closed, 2);
	slab_free(&r->ring);
}

/* One more result's memory, of a process that has not said yet whose it is. */
static void hand_back(struct returning *r, uint32_t id)
{
	const struct msg m = { .type = MSG_SLAB, .slab = {
		.kind = SLAB_RESULT, .id = id, .bytes = PAGE_BYTES,
	} };
	struct slab mem;
	struct err e;

	ck_assert_int_eq(slab_new(&mem, "of a result", PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(ctl_send_fds(r->end, &m, &mem.fd, 1, &e), 0);
	wait_for(&r->handed, id + 1);
	slab_free(&mem);
}

/* Processes of one user hand back so much that there is no room for another one of its. */
START_TEST(who_hands_back_much_leaves_room_for_other_users)
{
	struct returning many = { .session = { .agent = &a, .uid = 7 } };
	struct returning late = many, other = { .session = { .agent = &a, .uid = 8 } };
	const struct msg row = { .type = MSG_DECLARED, .declared = { .text = "" } };
	struct rlimit fds = { 160, 160 };
	struct err e;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &fds), 0);
	returning_connect(&many);
	returning_connect(&late);
	returning_connect(&other);
	list_add(&a.sessions, &many.session.link);
	list_add(&a.sessions, &late.session.link);
	list_add(&a.sessions, &other.session.link);
	for (uint32_t i = 0; i < 38; i++)
		hand_back(&many, i);
	hand_back(&late, 0);			/* there is room still */
	hand_back(&many, 38);			/* for who has handed all back, too */
	hand_back(&other, 0);
	ck_assert_uint_eq(late.closed, 0);
	hand_back(&late, 1);
	wait_for(&late.closed, 2);
	ck_assert_int_eq(ctl_send(other.end, &row, &e), 0);
	wait_for(&other.handed, 2);
	ck_assert_uint_eq(other.closed + many.closed, 0);
	list_del(&many.session.link);
	list_del(&late.session.link);
	list_del(&other.session.link);
	returning_end(&many);
	returning_end(&late);
	returning_end(&other);
}
END_TEST

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
	ad_job_left(j, 0, &(struct ad_left){ .code = TALLY_EWORKERLOST, .pid = 4711 });
	wait_for(&sched.n, 2);
	ck_heard(0, (struct heard){ .type = MSG_EPOCH_READY, .barrier = 2 });
	ck_heard(1, (struct heard){ .type = MSG_RANK_LEAVE, .code = TALLY_EWORKERLOST });
	for (uint32_t i = 0; i < 3; i++)
		returning_end(&some[i]);
	unregister_agent();
	end_job(j);
}
END_TEST

static void add(TCase *t)
{
	tcase_add_test(t, barriers_that_who_comes_back_has_passed_are_told);
	tcase_add_test(t, who_hands_back_much_leaves_room_for_other_users);
}

int main(void)
{
	return rig_main("agent_back", add);
}
