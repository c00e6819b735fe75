// SPDX-License-Identifier: Apache-2.0
/*
 * info.c - the questions that need no agent.
 */
#include "client/session.h"

#include "client/clock.h"

int tally_rank(const tally_session *s)
{
	return s ? (int)s->who.rank : TALLY_EINVAL;
}

int tally_world_size(const tally_session *s)
{
	return s ? (int)s->who.world : TALLY_EINVAL;
}

const char *tally_job_name(const tally_session *s)
{
	return s ? s->who.job : "";
}

/* The launcher's word counts: it is what the frameworks choose the device by. */
int tally_local_rank(const tally_session *s)
{
	if (!s)
		return TALLY_EINVAL;
	return s->who.local_rank >= 0 ? s->who.local_rank : (int)s->local_rank;
}

int tally_local_size(const tally_session *s)
{
	return s ? (int)s->local_size : TALLY_EINVAL;
}

int tally_round_timeout_ms(const tally_session *s)
{
	return s ? (int)s->who.round_timeout_ms : TALLY_EINVAL;
}

int tally_set_timeout_ms(tally_session *s, int timeout_ms)
{
	LT_CALL(s);

	if (!s)
		return TALLY_EINVAL;
	if (timeout_ms < 0)
		return err_set(&s->err, TALLY_EINVAL, "a timeout of %d ms", timeout_ms);
	s->who.timeout_ms = timeout_ms ? (uint32_t)timeout_ms : s->asked_timeout_ms;
	return 0;
}

int tally_machines(const tally_session *s)
{
	return s ? (int)s->machines : TALLY_EINVAL;
}

int tally_live_ranks(const tally_session *s)
{
	LT_CALL(s);

	if (!s)
		return TALLY_EINVAL;
	return (int)(s->who.world - (s->attached ? ring_lost_count(&s->ring) : 0));
}

int tally_rank_is_live(const tally_session *s, int rank)
{
	LT_CALL(s);

	if (!s)
		return TALLY_EINVAL;
	/* it is the caller's promise that is const, not what we allocated */
	if (rank < 0 || (uint32_t)rank >= s->who.world)
		return err_set((struct err *)&s->err, TALLY_EINVAL, "rank %d is not in a world of "
			       "%u", rank, s->who.world);
	return !s->attached || !ring_is_lost(&s->ring, (uint32_t)rank);
}

int tally_span(tally_session *s, tally_span_kind kind, const char *name, uint64_t begin_ns,
	       uint64_t end_ns)
{
	const struct lt_span span = {
		.kind = kind == TALLY_SPAN_COPY ? SPAN_COPY : SPAN_FRAMEWORK, .name = name,
		.begin = (mono_t)begin_ns, .end = (mono_t)end_ns,
	};
	LT_CALL(s);

	if (!s)
		return TALLY_EINVAL;
	if ((kind != TALLY_SPAN_FRAMEWORK && kind != TALLY_SPAN_COPY) || !name ||
	    begin_ns > end_ns || end_ns > (uint64_t)lt_now())
		return err_set(&s->err, TALLY_EINVAL, "no span: kind %d from %llu to %llu ns",
			       (int)kind, (unsigned long long)begin_ns,
			       (unsigned long long)end_ns);
	if (s->timeline)
		lt_timeline_span(s->timeline, &span);
	if (s->timeline && s->poll_fd >= 0)
		lt_timeline_flush(s->timeline);
	return 0;
}

int tally_is_late(const tally_session *s)
{
	return s ? s->late : TALLY_EINVAL;
}

const char *tally_error_text(const tally_session *s)
{
	LT_CALL(s);

	if (!s)
		return "";
	((tally_session *)s)->shown = s->err;
	return s->shown.text;
}

const char *tally_error_name(int code)
{
	return err_name(code);
}

const char *tally_error_help(int code)
{
	return err_help(code);
}

#define VERSION_TEXT_(a, b, c)	#a "." #b "." #c
#define VERSION_TEXT(a, b, c)	VERSION_TEXT_(a, b, c)

const char *tally_version(void)
{
	return VERSION_TEXT(TALLY_VERSION_MAJOR, TALLY_VERSION_MINOR, TALLY_VERSION_PATCH);
}

size_t tally_dtype_size(tally_dtype d)
{
	return (unsigned int)d < DTYPE_END ? dtype_bytes((uint8_t)d) : 0;
}
