// SPDX-License-Identifier: Apache-2.0
/* "name = value" files: a line at a time; the first thing wrong ends it. */
#include "common/rt/ini.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static char *trim(char *s)
{
	size_t len;

	while (isspace((unsigned char)*s))
		s++;
	len = strlen(s);
	while (len > 0 && isspace((unsigned char)s[len - 1]))
		s[--len] = '\0';
	return s;
}

/* '#' at the start of the line or after white space: a value may contain one. */
static void cut_comment(char *line)
{
	for (char *c = line; *c; c++)
		if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) {
			*c = '\0';
			return;
		}
}

/* How many bytes, with what ends it; 0: that was all. */
static size_t get_line(FILE *f, char line[INI_LINE_BYTES])
{
	size_t len = 0;
	int c = 0;

	while (c != '\n' && len < INI_LINE_BYTES - 1 && (c = getc(f)) != EOF)
		line[len++] = (char)c;
	line[len] = '\0';
	return len;
}

static int read_line(uint32_t number, char *line, size_t len, ini_take *take, void *ctx,
		     struct err *e)
{
	char *name, *eq;

	if (memchr(line, '\0', len))
		return err_set(e, TALLY_EINVAL, "a byte of 0: this is no text; was it written "
			       "whole?");
	if (len == INI_LINE_BYTES - 1 && line[len - 1] != '\n')
		return err_set(e, TALLY_EINVAL, "longer than %u bytes", INI_LINE_BYTES - 2);
	cut_comment(line);
	name = trim(line);
	if (name[0] == '\0')
		return 0;
	eq = strchr(name, '=');
	if (!eq)
		return err_set(e, TALLY_EINVAL, "'%.100s' is not of the form name = value", name);
	*eq = '\0';
	return take(ctx, number, trim(name), trim(eq + 1), e);
}

int ini_read(const char *path, ini_take *take, void *ctx, struct err *e)
{
	FILE *f = fopen(path, "re");
	char line[INI_LINE_BYTES];
	uint32_t number = 0;
	size_t len;
	int code = 0;

	if (!f)
		return err_set(e, err_from_errno(errno), "cannot read %s: %s", path,
			       strerror(errno));
	while (code == 0 && (len = get_line(f, line)) > 0) {
		code = read_line(++number, line, len, take, ctx, e);
		if (code)
			err_wrap(e, "%s:%u", path, number);
	}
	if (code == 0 && ferror(f))
		code = err_set(e, TALLY_EIO, "cannot read %s: %s", path, strerror(errno));
	fclose(f);
	return code;
}
