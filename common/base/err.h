/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - one table of error codes, and an error a human will read.
 *
 * Functions return 0 or a negative TALLY_E* code.  Where a person will see the
 * failure, a `struct err` travels along: the same code and a short text that
 * says what, where and what to do.  The table is the public one: libtally's
 * tally.h repeats the numbers (a test compares them), docs print it.
 */
#ifndef TALLY_BASE_ERR_H
#define TALLY_BASE_ERR_H

#include <stdarg.h>

#include "common/base/base.h"

/*   name	code  what it means, what to do */
#define ERR_TABLE(X) \
	X(EAGAIN,	 1, "no room right now; wait for completions and try again") \
	X(EINVAL,	 2, "the call's arguments are wrong; nothing happened") \
	X(EPROTO,	 3, "a message broke the protocol; the connection is closed") \
	X(EMISMATCH,	 4, "the ranks disagree; fix the program") \
	X(EEXIST,	 5, "it exists already, or is in flight") \
	X(ENOENT,	 6, "no such thing") \
	X(ENOMEM,	 7, "out of memory; see the text") \
	X(EQUOTA,	 8, "a server's or machine's limit is reached; see the text") \
	X(ETIMEDOUT,	 9, "the deadline passed; the text names who is missing, of a " \
	  "round that is a second old") \
	X(EWORKERLOST,	10, "a rank of the job is gone; the job is over") \
	X(ESERVERLOST,	11, "no server can take a lost one's part; the job is over") \
	X(ENOSERVER,	12, "no summation server is registered") \
	X(EAGENT,	13, "the machine's agent cannot be reached") \
	X(ESCHED,	14, "the scheduler cannot be reached") \
	X(EVERSION,	15, "the two sides speak different versions") \
	X(EAUTH,	16, "not allowed") \
	X(ESHUTDOWN,	17, "the other side is shutting down, or the session is over") \
	X(EIO,		18, "an input or output failed; see the text") \
	X(EBUSY,	19, "in use; see the text") \
	X(EINTERNAL,	20, "a bug of Tally's; please report it")

#ifndef TALLY_H		/* libtally's sources have the same enumerators from tally.h */
enum tally_err {
#define X(name, code, help) TALLY_##name = -(code),
	ERR_TABLE(X)
#undef X
	TALLY_OK = 0,
};
#endif

struct err {
	int code;			/* 0 or TALLY_E* */
	char text[ERR_TEXT_MAX + 1];	/* one line, no newline */
};

/*
 * Fills e (when not NULL) and returns code, so that callers `return err_set(...)`.
 * What a precision ("%.64s") or the text's end cuts is cut between characters: a text
 * goes into messages, and one that is no UTF-8 cannot be sent.
 */
int err_set(struct err *e, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int err_setv(struct err *e, int code, const char *fmt, va_list ap);

/* Puts "context: " before the text; keeps the code and returns it. */
int err_wrap(struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* "EMISMATCH" / its help; total over all ints. */
const char *err_name(int code);
const char *err_help(int code);

/* TALLY_E* for an errno value (EIO where nothing fits better). */
int err_from_errno(int errnum);

#endif
