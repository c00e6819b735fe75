/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_rig.h - one session at one fake agent, and calls that must succeed.
 */
#ifndef TALLY_TESTS_CLIENT_RIG_H
#define TALLY_TESTS_CLIENT_RIG_H

#include "client/tally.h"

#include <check.h>
#include <fcntl.h>

#include "tests/unit/fake_agent.h"

#define DEADLINE_MS	20000
#define SHORT_MS	50

static struct fake_agent *agent;
static tally_session *s;

static inline int attach_at(const char *path, int timeout_ms)
{
	tally_options opt = {
		.socket = path, .job = "test", .rank = 0, .world = 2, .timeout_ms = timeout_ms,
	};

	return tally_attach(&opt, &s);
}

static inline void start(enum fake_trick trick)
{
	agent = fake_start(trick);
	ck_assert_msg(attach_at(agent->path, DEADLINE_MS) == 0, "%s", tally_error_text(s));
}

static inline void finish(void)
{
	tally_detach(s);
	s = NULL;
	fake_end(agent);
	agent = NULL;
}

static inline tally_tensor *declare(const char *name, tally_dtype dtype, uint64_t count)
{
	tally_tensor_desc d = { .name = name, .dtype = dtype, .count = count, .priority = 5 };
	tally_tensor *t = NULL;

	ck_assert_msg(tally_declare(s, &d, 1, &t) == 0, "%s", tally_error_text(s));
	return t;
}

static inline tally_ticket push(tally_tensor *t, const void *in, void *out)
{
	tally_ticket k = 0;

	ck_assert_msg(tally_push_pull(s, t, in, out, NULL, &k) == 0, "%s", tally_error_text(s));
	ck_assert_uint_ne(k, 0);
	return k;
}

static inline void wait_ok(tally_ticket k)
{
	ck_assert_msg(tally_wait(s, k, DEADLINE_MS) == 0, "%s", tally_error_text(s));
}

static inline void expect_text(const char *part)
{
	ck_assert_msg(strstr(tally_error_text(s), part), "\"%s\" is not in \"%s\"", part,
		      tally_error_text(s));
}

static inline int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 512; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#endif
