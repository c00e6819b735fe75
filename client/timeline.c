// SPDX-License-Identifier: Apache-2.0
/*
 * timeline.c - events into the buffer, the buffer into the file.
 *
 * The file is locked as long as it is written, by flock(): a process may have several
 * sessions, and machines that share a directory the same name.  A write that fails (no
 * room on the disk) cuts the file back to its last whole line, and is the last one.
 */
#include "client/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/mem.h"
#include "common/base/utf8.h"

#define END_BYTES	(4 * TIMELINE_LINE_MAX)	/* kept for the last events */

static const char *const categories[] = {
#define X(kind, category, track) category,
	LT_SPAN_TABLE(X)
#undef X
};
static const char *const tracks[] = {
#define X(kind, category, track) track,
	LT_SPAN_TABLE(X)
#undef X
};

static_assert(TIMELINE_LINE_MAX >= 2 * NAME_LEN_MAX + 400, "an event is a line");

/* ---- the file ---- */

static void give_up(struct lt_timeline *t)
{
	close(t->fd);
	t->fd = -1;
	t->len = 0;
}

/* A file that grows beyond the process's limit would end it by a signal, which is not ours. */
static bool too_large(const struct lt_timeline *t)
{
	struct rlimit l;

	return !getrlimit(RLIMIT_FSIZE, &l) && l.rlim_cur != RLIM_INFINITY &&
	       t->bytes + t->len > l.rlim_cur;
}

void lt_timeline_flush(struct lt_timeline *t)
{
	size_t at = 0;
	ssize_t n;

	while (t->fd >= 0 && at < t->len) {
		n = too_large(t) ? -1 : write(t->fd, t->buffer + at, t->len - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			(void)!ftruncate(t->fd, (off_t)t->bytes);
			give_up(t);
			return;
		}
		at += (size_t)n;
	}
	t->bytes += at;
	t->len = 0;
}

/* Room for a line; NULL: none is written any more. */
static char *line(struct lt_timeline *t)
{
	if (t->len + TIMELINE_LINE_MAX > sizeof(t->buffer))
		lt_timeline_flush(t);
	return t->fd < 0 ? NULL : t->buffer + t->len;
}

/* ---- events ---- */

/* As the inside of a JSON string, two bytes for one at most: utf8_mend() takes the rest out. */
static const char *escape(const char *name, char *buf)
{
	char text[NAME_LEN_MAX + 1];
	size_t len = strnlen(name, NAME_LEN_MAX);
	char *to = buf;

	memcpy(text, name, len);
	text[len] = '\0';
	utf8_mend(text);
	for (const char *c = text; *c; c++) {
		if (*c == '"' || *c == '\\')
			*to++ = '\\';
		*to++ = *c;
	}
	*to = '\0';
	return buf;
}

/* An event that describes: of the whole process, or of one of its tracks. */
static void describe(struct lt_timeline *t, const char *what, uint32_t tid, const char *key,
		     const char *value)
{
	char *to = line(t);

	if (to)
		t->len += (size_t)sprintf(to, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,"
					  "\"tid\":%u,\"args\":{\"%s\":%s}},\n", what, t->rank,
					  tid, key, value);
}

static uint32_t tid_of(enum lt_span_kind kind, uint32_t track)
{
	return (uint32_t)kind * TIMELINE_TRACKS_MAX + track + 1;
}

static void new_track(struct lt_timeline *t, enum lt_span_kind kind, uint32_t track)
{
	uint32_t tid = tid_of(kind, track);
	char value[64];

	snprintf(value, sizeof(value), track ? "\"%s %u\"" : "\"%s\"", tracks[kind], track + 1);
	describe(t, "thread_name", tid, "name", value);
	snprintf(value, sizeof(value), "%u", tid);
	describe(t, "thread_sort_index", tid, "sort_index", value);
}

/*
 * Chooses a track that is free from the span's begin on, the one that was used last; TRACKS_MAX:
 * there is none.
 */
static uint32_t track_for(struct lt_timeline *t, const struct lt_span *s)
{
	uint32_t best = TIMELINE_TRACKS_MAX, n = t->ntracks[s->kind];
	const mono_t *busy = t->busy[s->kind];

	for (uint32_t i = 0; i < n; i++)
		if (busy[i] <= s->begin && (best == TIMELINE_TRACKS_MAX || busy[i] > busy[best]))
			best = i;
	if (best == TIMELINE_TRACKS_MAX && n < TIMELINE_TRACKS_MAX) {
		best = t->ntracks[s->kind]++;
		new_track(t, s->kind, best);
	}
	return best;
}

static size_t put_args(char *to, const struct lt_span *s)
{
	size_t len;

	if (!s->round)
		return (size_t)sprintf(to, "}");
	len = (size_t)sprintf(to, ",\"args\":{\"round\":%u,\"bytes\":%llu,\"priority\":%d",
			      s->round, (unsigned long long)s->bytes, s->priority);
	if (s->code)
		len += (size_t)sprintf(to + len, ",\"error\":\"%s\"", err_name(s->code));
	return len + (size_t)sprintf(to + len, "}}");
}

void lt_timeline_span(struct lt_timeline *t, const struct lt_span *s)
{
	mono_t begin = s->begin + t->to_wall, length = MAX(s->end - s->begin, 0);
	char name[2 * NAME_LEN_MAX + 1], *to;
	uint32_t track;

	track = t->bytes + t->len + END_BYTES > t->limit ? TIMELINE_TRACKS_MAX : track_for(t, s);
	to = line(t);
	if (track == TIMELINE_TRACKS_MAX || !to) {
		t->left_out++;
		return;
	}
	t->busy[s->kind][track] = s->begin + length;
	to += sprintf(to, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,"
		      "\"ts\":%lld.%03d,\"dur\":%lld.%03d", categories[s->kind],
		      escape(s->name, name), t->rank, tid_of(s->kind, track),
		      (long long)begin / 1000, (int)(begin % 1000), (long long)length / 1000,
		      (int)(length % 1000));
	to += put_args(to, s);
	to += sprintf(to, ",\n");
	t->len = (size_t)(to - t->buffer);
}

/* ---- life ---- */

/* Ours now, and empty.  EAGAIN: another session writes it. */
static int take_file(const char *path, int *fd, struct err *e)
{
	struct stat st;

	/* NONBLOCK: a pipe that nobody reads shall not hold us here */
	*fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
	if (*fd < 0)
		return err_set(e, err_from_errno(errno), "TALLY_TIMELINE: %.200s: %m", path);
	if (fstat(*fd, &st) || !S_ISREG(st.st_mode))
		err_set(e, TALLY_EINVAL, "TALLY_TIMELINE: %.200s is no regular file", path);
	else if (flock(*fd, LOCK_EX | LOCK_NB))
		err_set(e, TALLY_EAGAIN, "TALLY_TIMELINE: %.200s is in use", path);
	else if (ftruncate(*fd, 0))
		err_set(e, err_from_errno(errno), "TALLY_TIMELINE: %.200s: %m", path);
	else
		return 0;
	close(*fd);
	return e->code;
}

static int find_file(const char *path, int *fd, struct err *e)
{
	char name[LT_PATH_MAX + 8];
	int rc = take_file(path, fd, e);

	for (uint32_t i = 2; rc == TALLY_EAGAIN && i <= TIMELINE_NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "%s.%u", path, i);
		rc = take_file(name, fd, e);
	}
	return rc;
}

int lt_timeline_open(struct lt_timeline **out, const char *path, const char *job, uint32_t rank,
		     uint32_t world, struct err *e)
{
	char name[2 * NAME_LEN_MAX + 1], value[2 * NAME_LEN_MAX + 64];
	struct lt_timeline *t = lt_mem_new(1, sizeof(*t));
	int rc;

	if (!t)
		return err_set(e, TALLY_ENOMEM, "no memory for a timeline");
	rc = find_file(path, &t->fd, e);
	if (rc) {
		lt_mem_free(t);
		return rc;
	}
	t->rank = rank;
	t->limit = TIMELINE_FILE_MAX;
	t->to_wall = lt_wall_offset();
	t->len = (size_t)sprintf(t->buffer, "[\n");
	snprintf(value, sizeof(value), "\"rank %u of %u, job %s\"", rank, world,
		 escape(job, name));
	describe(t, "process_name", 0, "name", value);
	snprintf(value, sizeof(value), "%u", rank);
	describe(t, "process_sort_index", 0, "sort_index", value);
	lt_timeline_flush(t);
	*out = t;
	return 0;
}

void lt_timeline_close(struct lt_timeline *t)
{
	char count[24];

	if (!t)
		return;
	snprintf(count, sizeof(count), "%llu", (unsigned long long)t->left_out);
	describe(t, "left_out", 0, "spans", count);
	if (t->fd >= 0) {		/* no comma behind the last event */
		t->len += (size_t)sprintf(t->buffer + t->len - 2, "\n]\n") - 2;
		lt_timeline_flush(t);
	}
	if (t->fd >= 0)
		give_up(t);
	lt_mem_free(t);
}
