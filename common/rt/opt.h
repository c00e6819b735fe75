/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt.h - a daemon's options from one table: command line, file, help.
 *
 * Each row names a field of the program's option struct.  Sources, later wins:
 * default, --config FILE ("name = value" lines, see ini.h), command line.  Of an
 * option that the command line has several times the last one counts, so that a
 * script can add to a line; only --config goes once.  An
 * unknown name or a value out of range is an error with file and line (or the
 * argument) and the nearest name; the caller exits 2.
 * --help, --version, --show-config and --check come for free.
 */
#ifndef TALLY_RT_OPT_H
#define TALLY_RT_OPT_H

#include <stdio.h>

#include "common/base/err.h"

enum opt_type {
	OPT_STR,		/* const char * */
	OPT_LISTEN,		/* const char *, as parse_listen() wants it */
	OPT_PEER,		/* const char *, as parse_peer() wants it */
	OPT_ENDPOINTS,		/* struct opt_list, given several times: as parse_endpoint() */
	OPT_RAILS,		/* the same: as parse_rail() wants them */
	OPT_U64,		/* uint64_t in [min, max] */
	OPT_BYTES,		/* uint64_t, "64M" */
	OPT_BITRATE,		/* uint64_t, "25gbit" */
	OPT_FLAG,		/* bool, no value */
};

#define OPT_LIST_MAX 16
struct opt_list {
	const char *v[OPT_LIST_MAX];
	uint32_t n;
};

struct opt {
	const char *name;	/* long name without "--" */
	enum opt_type type;
	size_t offset;		/* of the field */
	const char *def;	/* as typed; NULL: none: 0 or NULL */
	uint64_t min, max;	/* numbers only */
	const char *arg;	/* "HOST:PORT" */
	const char *help;	/* one line */
};

struct opt_program {
	const char *name;	/* "tally-server" */
	const char *summary;	/* one line */
	const char *details;	/* examples; may be NULL */
	const struct opt *table;
	uint32_t count;
};

/* OPT_CHECK: the table has no objection; the program looks at what only it knows. */
enum opt_outcome { OPT_RUN, OPT_CHECK, OPT_EXIT_OK, OPT_EXIT_USAGE };

/* Fills *fields. Messages and help go to out/errout. Strings live as long as argv
 * (or until exit, from a file). */
enum opt_outcome opt_parse(const struct opt_program *p, int argc, char **argv, void *fields,
			   FILE *out, FILE *errout);

#define RUNTIME_DIR "/run/tally"

/* Where daemons keep their sockets: $RUNTIME_DIRECTORY (systemd's), else RUNTIME_DIR, else
 * tally below $XDG_RUNTIME_DIR, of which the first is taken that is ours to write to; NULL: none.
 * What is missing is made where it may be. */
const char *opt_runtime_dir(void);
/* Makes RUNTIME_DIR where it is missing; true: it is there, and ours to write to. */
bool opt_runtime_make(void);

#endif
