// SPDX-License-Identifier: Apache-2.0
/*
 * xport_reason.c - why links end: the table's columns, and errno's way into it.
 */
#include <errno.h>

#include "common/net/xport_ep.h"

static const struct {
	const char *name, *severity, *help;
	int code;
	bool retry;
} reasons[] = {
#define X(e, text, sev, again, err_code, meaning) \
	[CLOSE_##e] = { text, sev, meaning, TALLY_##err_code, again },
	CLOSE_REASON_TABLE(X)
#undef X
};

const char *close_reason_name(enum close_reason r)
{
	return (unsigned int)r < CLOSE_REASON_END ? reasons[r].name : "?";
}

const char *close_reason_help(enum close_reason r)
{
	return (unsigned int)r < CLOSE_REASON_END ? reasons[r].help : "?";
}

const char *close_reason_severity(enum close_reason r)
{
	return (unsigned int)r < CLOSE_REASON_END ? reasons[r].severity : "error";
}

int close_reason_code(enum close_reason r)
{
	return (unsigned int)r < CLOSE_REASON_END ? reasons[r].code : TALLY_EINTERNAL;
}

bool close_reason_retry(enum close_reason r)
{
	return (unsigned int)r < CLOSE_REASON_END && reasons[r].retry;
}

enum close_reason close_reason_from_errno(int errnum)
{
	switch (errnum) {
	case ECONNREFUSED:
	case ENOENT:		/* shm: no socket at that path */
	case EAGAIN:		/* shm: the listener's backlog is full */
		return CLOSE_REFUSED;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case ENETDOWN:
	case EADDRNOTAVAIL:
	case EACCES:
	case EPERM:
		return CLOSE_UNREACHABLE;
	case ETIMEDOUT:
		return CLOSE_TIMEOUT;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
	case ETOOMANYREFS:
		return CLOSE_RESOURCE;
	default:
		return CLOSE_RESET;
	}
}
