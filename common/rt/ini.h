/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ini.h - files of "name = value" lines, one format for everything that people write.
 *
 * '#' at the start of a line or after white space begins a comment; blank lines mean
 * nothing; white space around name and value goes.  What names mean is the caller's.
 */
#ifndef TALLY_RT_INI_H
#define TALLY_RT_INI_H

#include "common/base/err.h"

#define INI_LINE_BYTES 4096u

/* Both words live during the call only, and may be changed. */
typedef int ini_take(void *ctx, uint32_t line, char *name, char *value, struct err *e);

/*
 * Calls take() for every line, until it returns a code.  0, or a code with a text that
 * begins with the file, and its line where there is one.
 */
int ini_read(const char *path, ini_take *take, void *ctx, struct err *e);

#endif
