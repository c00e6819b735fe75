// SPDX-License-Identifier: Apache-2.0
/*
 * The writer keeps one number per open bracket: how many values it holds, which
 * says whether a comma is due.  Doubles are printed with the fewest digits that
 * read back the same, so that a table made from the document is not off by one.
 */
#include "cli/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void put_string(struct json *j, const char *s)
{
	putc('"', j->out);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			fprintf(j->out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(j->out, "\\u%04x", c);
		else
			putc(c, j->out);
	}
	putc('"', j->out);
}

static void new_line(struct json *j)
{
	putc('\n', j->out);
	for (uint32_t i = 0; i < j->depth; i++)
		fputs("  ", j->out);
}

static void start_value(struct json *j, const char *key)
{
	if (j->count[j->depth]++)
		putc(',', j->out);
	if (j->depth)
		new_line(j);
	if (key) {
		put_string(j, key);
		fputs(": ", j->out);
	}
}

static void open_bracket(struct json *j, const char *key, int bracket)
{
	ASSERT(j->depth < JSON_DEPTH_MAX);
	start_value(j, key);
	putc(bracket, j->out);
	j->count[++j->depth] = 0;
}

static void close_bracket(struct json *j, int bracket)
{
	ASSERT(j->depth > 0);
	if (j->count[j->depth--])
		new_line(j);
	putc(bracket, j->out);
}

void json_init(struct json *j, FILE *out)
{
	*j = (struct json){ .out = out };
}

void json_object(struct json *j, const char *key)
{
	open_bracket(j, key, '{');
}

void json_array(struct json *j, const char *key)
{
	open_bracket(j, key, '[');
}

void json_end_object(struct json *j)
{
	close_bracket(j, '}');
}

void json_end_array(struct json *j)
{
	close_bracket(j, ']');
}

void json_str(struct json *j, const char *key, const char *value)
{
	start_value(j, key);
	put_string(j, value);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	start_value(j, key);
	fprintf(j->out, "%" PRIu64, value);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
	start_value(j, key);
	fprintf(j->out, "%" PRId64, value);
}

void json_double(struct json *j, const char *key, double value)
{
	char buf[40];

	if (!isfinite(value)) {
		json_null(j, key);
		return;
	}
	start_value(j, key);
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(buf, sizeof(buf), "%.*g", digits, value);
		if (!(strtod(buf, NULL) < value) && !(strtod(buf, NULL) > value))
			break;
	}
	fputs(buf, j->out);
}

void json_bool(struct json *j, const char *key, bool value)
{
	start_value(j, key);
	fputs(value ? "true" : "false", j->out);
}

void json_null(struct json *j, const char *key)
{
	start_value(j, key);
	fputs("null", j->out);
}

void json_end_document(struct json *j)
{
	ASSERT(j->depth == 0);
	putc('\n', j->out);
}
