/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - what a session did, when: a file for chrome://tracing and Perfetto.
 *
 * The file is an array of the JSON trace event format, an event a line.  It is written in
 * whole lines and the array is closed at the end, so that what a killed process leaves is
 * an array that is open, which both viewers take.  Lines wait in a buffer of fixed size
 * until it is full, or until the session has nothing to do but wait.
 *
 * A span is shown on a track of its kind.  Spans of a track do not overlap: a kind gets
 * more tracks as more of its spans are under way at a time, up to TIMELINE_TRACKS_MAX.
 * What finds none is left out, and so is what comes when the file has its full size; the
 * last event says how many there were.
 *
 * Not for: deciding anything.  What cannot be written is left out; training goes on.
 * Owner: the session's thread.
 */
#ifndef TALLY_CLIENT_TIMELINE_H
#define TALLY_CLIENT_TIMELINE_H

#include "client/env.h"

#define TIMELINE_BUFFER_BYTES	(64u << 10)
#define TIMELINE_LINE_MAX	1024u		/* with the longest name, each byte escaped */
#define TIMELINE_FILE_MAX	(1ull << 30)	/* what comes later is left out */
#define TIMELINE_TRACKS_MAX	64u		/* of a kind */
#define TIMELINE_NAMES_MAX	100u		/* files that sessions at one time may ask for */

/*	kind	    category	 track */
#define LT_SPAN_TABLE(X) \
	X(FRAMEWORK, "framework", "framework") \
	X(ROUND,     "framework", "round") \
	X(COPY,	     "copy",	  "copy") \
	X(TURN,	     "network",	  "turn awaited") \
	X(PUSH,	     "network",	  "push") \
	X(AWAIT,     "sum",	  "sum awaited") \
	X(SUM,	     "sum",	  "sum") \
	X(RESULT,    "network",	  "result")

enum lt_span_kind {
#define X(kind, category, track) SPAN_##kind,
	LT_SPAN_TABLE(X)
#undef X
	SPAN_END
};

struct lt_span {
	enum lt_span_kind kind;
	const char *name;		/* any bytes; more than NAME_LEN_MAX are cut off */
	mono_t begin, end;
	uint32_t round;			/* 0: not of a round; then without the rest, too */
	int32_t priority;
	uint64_t bytes;
	int code;			/* of a round: 0, or the error that it ended with */
};

struct lt_timeline {
	int fd;				/* owned; -1: nothing is written any more */
	uint32_t rank;
	int64_t to_wall;		/* from the session's clock to that of the wall */
	uint64_t bytes, limit;		/* written; the file's end */
	uint64_t left_out;		/* spans */
	uint32_t ntracks[SPAN_END];
	mono_t busy[SPAN_END][TIMELINE_TRACKS_MAX];	/* until then */
	size_t len;			/* in the buffer: whole lines */
	char buffer[TIMELINE_BUFFER_BYTES];
};

/*
 * Makes the file new, or where another session writes it now, one with ".2", ".3", ...
 * after its name.  ENOMEM; EIO and others with the path; EINVAL: no regular file.
 */
int lt_timeline_open(struct lt_timeline **t, const char *path, const char *job, uint32_t rank,
		     uint32_t world, struct err *e);

void lt_timeline_span(struct lt_timeline *t, const struct lt_span *span);
void lt_timeline_flush(struct lt_timeline *t);		/* no system call without news */
void lt_timeline_close(struct lt_timeline *t);		/* and frees; NULL is fine */

#endif
