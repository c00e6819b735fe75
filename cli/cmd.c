// SPDX-License-Identifier: Apache-2.0
/*
 * What the verbs share: the words for a wrong argument, the environment (its one
 * home in the command line), and the guess at a mistyped name.
 */
#include "cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_usage_error(const char *verb, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "tally %s: ", verb);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry: tally help %s\n", verb);
	return CMD_USAGE;
}

const char *cmd_env(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value && *value ? value : otherwise;
}

#define WORD_MAX 32

/* Letters to insert, delete or replace (Levenshtein); long words are never near. */
static unsigned distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);
	unsigned row[WORD_MAX + 1];

	if (la > WORD_MAX || lb > WORD_MAX)
		return WORD_MAX;
	for (size_t j = 0; j <= lb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= la; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= lb; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			best = best < row[j] + 1 ? best : row[j] + 1;
			row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
		}
	}
	return row[lb];
}

const char *cmd_nearest(const char *typed, const char *const *names, unsigned count)
{
	const char *best = NULL;
	unsigned least = WORD_MAX;

	for (unsigned i = 0; i < count; i++) {
		unsigned d = distance(typed, names[i]);

		if (d < least && 3 * d <= strlen(names[i]) + 2) {
			least = d;
			best = names[i];
		}
	}
	return best;
}
