// SPDX-License-Identifier: Apache-2.0
/*
 * log.c - lines on stderr, for who has set TALLY_LOG; a wait is told of after 1, 2, 4, ... seconds.
 *
 * A line is one write(2), so that lines of several ranks stay whole.  What a request waits for
 * its caller asks the agent (WAITS); what a round waits for the agent says in the ring's status.
 */
#include "client/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/back.h"
#include "client/clock.h"

#define FIRST_MS	1000u
#define PAUSE_MAX_MS	60000u
#define LOOK_MS		200u		/* between two looks at all rounds */
#define LINE_MAX_BYTES	1024u

void lt_log(const tally_session *s, enum lt_log_level level, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	va_list ap;
	int n, more;

	if (s->who.log < level)
		return;
	n = snprintf(line, sizeof(line), "tally: rank %u of %u, job '%.96s': ", s->who.rank,
		     s->who.world, s->who.job);
	va_start(ap, fmt);
	more = vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	n = MIN(n + MAX(more, 0), (int)sizeof(line) - 1);
	line[n++] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)n);
}

void lt_wait_begin(const tally_session *s, struct lt_wait *w)
{
	*w = (struct lt_wait){ 0 };
	if (s->who.log == LT_LOG_NONE)
		return;
	w->begin = lt_now();
	w->next = w->begin + mono_ms(FIRST_MS);
}

mono_t lt_wait_until(const struct lt_wait *w, mono_t deadline)
{
	return w->begin ? MIN(deadline, w->next) : deadline;
}

bool lt_wait_due(const struct lt_wait *w)
{
	return w->begin && lt_now() >= w->next;
}

static unsigned long long seconds(const struct lt_wait *w, mono_t now)
{
	return (unsigned long long)((now - w->begin + NS_PER_SEC / 2) / NS_PER_SEC);
}

void lt_wait_tell(const tally_session *s, struct lt_wait *w, const char *what, const char *why)
{
	mono_t now = lt_now();

	if (!w->begin)
		return;
	w->told = true;
	w->next = now + MIN(MAX(now - w->begin, mono_ms(FIRST_MS)), mono_ms(PAUSE_MAX_MS));
	lt_log(s, LT_LOG_INFO, "%s for %llu s%s%s", what, seconds(w, now), *why ? ": " : "", why);
}

void lt_wait_end(const tally_session *s, struct lt_wait *w, const char *what)
{
	if (w->told)
		lt_log(s, LT_LOG_INFO, "%s is over, after %llu s", what, seconds(w, lt_now()));
	*w = (struct lt_wait){ 0 };
}

/* ---- rounds ---- */

static const struct tally_tensor *oldest(const tally_session *s)
{
	const struct tally_tensor *first = NULL;

	for (uint32_t i = 0; i < s->nslots; i++) {
		const struct tally_tensor *t = s->slots[i].tensor;

		if (t && t->state == LT_FLYING && (!first || t->since < first->since))
			first = t;
	}
	return first;
}

static void round_name(const tally_session *s, char *buf, size_t len)
{
	snprintf(buf, len, "round %u of tensor %.200s", s->slow_round, s->slow_name);
}

static void round_end(tally_session *s)
{
	char what[ERR_TEXT_MAX];

	round_name(s, what, sizeof(what));
	lt_wait_end(s, &s->slow, what);
}

static void round_begin(tally_session *s, const struct tally_tensor *t)
{
	lt_wait_begin(s, &s->slow);
	s->slow.begin = t->since;
	s->slow.next = t->since + mono_ms(FIRST_MS);
	s->slow_round = t->round;
	snprintf(s->slow_name, sizeof(s->slow_name), "%s", t->name);
}

void lt_log_round_over(tally_session *s, const struct tally_tensor *t)
{
	if (s->slow.begin && t->round == s->slow_round && !strcmp(t->name, s->slow_name))
		round_end(s);
}

void lt_log_rounds(tally_session *s)
{
	char what[ERR_TEXT_MAX], why[ERR_TEXT_MAX + 1];
	const struct tally_tensor *t;

	if (!s->who.log || s->over.code || lt_now() < s->slow_look)
		return;
	s->slow_look = lt_now() + mono_ms(LOOK_MS);
	t = oldest(s);
	if (s->slow.begin && (!t || t->round != s->slow_round || strcmp(t->name, s->slow_name)))
		round_end(s);
	if (t && !s->slow.begin)
		round_begin(s, t);
	if (!t || s->away || !lt_wait_due(&s->slow))
		return;
	ring_status_get(&s->ring, NULL, NULL, why);
	round_name(s, what, sizeof(what));
	lt_wait_tell(s, &s->slow, what, why);
}
