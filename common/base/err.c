// SPDX-License-Identifier: Apache-2.0
#include "common/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"

void assert_failed(const char *expr, const char *file, int line)
{
	fprintf(stderr, "<0>tally: bug at %s:%d: %s does not hold\n", file, line, expr);
	abort();
}

int err_setv(struct err *e, int code, const char *fmt, va_list ap)
{
	if (!e)
		return code;
	e->code = code;
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	utf8_mend(e->text);
	return code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_setv(e, code, fmt, ap);
	va_end(ap);
	return code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX + 1];
	va_list ap;
	size_t n, rest;

	if (!e)
		return TALLY_EINTERNAL;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text) - 2, fmt, ap);
	va_end(ap);
	strcat(text, ": ");
	n = strlen(text);
	rest = MIN(strlen(e->text), ERR_TEXT_MAX - n);
	memmove(e->text + n, e->text, rest);
	memcpy(e->text, text, n);
	e->text[n + rest] = '\0';
	utf8_mend(e->text);
	return e->code;
}

const char *err_name(int code)
{
	switch (code) {
	case TALLY_OK:
		return "OK";
#define X(name, num, help) case TALLY_##name: return #name;
	ERR_TABLE(X)
#undef X
	}
	return "EUNKNOWN";
}

const char *err_help(int code)
{
	switch (code) {
	case TALLY_OK:
		return "no error";
#define X(name, num, help) case TALLY_##name: return help;
	ERR_TABLE(X)
#undef X
	}
	return "not an error code of Tally";
}

int err_from_errno(int errnum)
{
	switch (errnum) {
	case 0:
		return 0;
	case EAGAIN:
	case EINTR:
		return TALLY_EAGAIN;
	case EINVAL:
		return TALLY_EINVAL;
	case EPROTO:
	case EBADMSG:
		return TALLY_EPROTO;
	case EEXIST:
		return TALLY_EEXIST;
	case ENOENT:
		return TALLY_ENOENT;
	case ENOMEM:
		return TALLY_ENOMEM;
	case EMFILE:
	case ENFILE:
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return TALLY_EQUOTA;
	case ETIMEDOUT:
		return TALLY_ETIMEDOUT;
	case EACCES:
	case EPERM:
		return TALLY_EAUTH;
	case EADDRINUSE:
	case EBUSY:
		return TALLY_EBUSY;
	case ECANCELED:
	case EPIPE:
	case ECONNRESET:
		return TALLY_ESHUTDOWN;
	}
	return TALLY_EIO;
}
