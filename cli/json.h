/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - writes one JSON document to a stream, a call per value.
 *
 * What it does: commas, indentation by two, escapes, numbers that read back as
 * the same double.  What it does not do: read JSON, check that keys are unique.
 * Life: json_init, then values, then json_end_document.  `key` is NULL inside an
 * array and at the top.  Depth is at most JSON_DEPTH_MAX: deeper is our bug.
 * Owner: one thread.  Errors: the stream's own (ferror), looked at by main.
 */
#ifndef TALLY_CLI_JSON_H
#define TALLY_CLI_JSON_H

#include <stdio.h>

#include "common/base/base.h"

#define JSON_DEPTH_MAX 8u

struct json {
	FILE *out;		/* borrowed until the end */
	uint32_t depth;
	uint32_t count[JSON_DEPTH_MAX + 1];	/* values so far at each depth */
};

/* Starts a document on out. */
void json_init(struct json *j, FILE *out);

/* Opens and closes an object `{}` or an array `[]`. */
void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
void json_end_object(struct json *j);
void json_end_array(struct json *j);

/* Write one value each; a NaN or an infinity, which JSON lacks, becomes null. */
void json_str(struct json *j, const char *key, const char *value);
void json_u64(struct json *j, const char *key, uint64_t value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_double(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

/* Asserts that everything is closed and ends the line. */
void json_end_document(struct json *j);

#endif
