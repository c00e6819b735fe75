// SPDX-License-Identifier: Apache-2.0
/*
 * The file is read once, whole.  Windows point into it.
 */
#include "examples/charlm/text.h"

#include "examples/charlm/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int check(FILE *f, const char *path, size_t *len, char *why, size_t why_size)
{
	struct stat st;

	if (fstat(fileno(f), &st) < 0) {
		snprintf(why, why_size, "%s: %s", path, strerror(errno));
		return -1;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(why, why_size, "%s: not a regular file", path);
		return -1;
	}
	if (st.st_size < (off_t)TEXT_BYTES_MIN || st.st_size > (off_t)TEXT_BYTES_MAX) {
		snprintf(why, why_size, "%s: %lld bytes; a text has %u to %u", path,
			 (long long)st.st_size, TEXT_BYTES_MIN, TEXT_BYTES_MAX);
		return -1;
	}
	*len = (size_t)st.st_size;
	return 0;
}

int text_load(struct text *t, const char *path, char *why, size_t why_size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t len;

	if (!f) {
		snprintf(why, why_size, "%s: %s", path, strerror(errno));
		return -1;
	}
	if (check(f, path, &len, why, why_size) < 0)
		goto close;
	data = malloc(len);
	if (!data || fread(data, 1, len, f) != len) {
		snprintf(why, why_size, "%s: %s", path, data ? "cannot be read" : "no memory");
		goto close;
	}
	fclose(f);
	*t = (struct text){ data, len };
	return 0;
close:
	free(data);
	fclose(f);
	return -1;
}

void text_free(struct text *t)
{
	free(t->data);
	*t = (struct text){ 0 };
}

void text_windows(const struct text *t, size_t context, int rank, int world, uint64_t *random,
		  const uint8_t *windows[], size_t n)
{
	size_t positions = t->len - context;	/* a window starts before each of these */
	size_t first = (size_t)rank % positions;
	size_t mine = (positions - first + (size_t)world - 1) / (size_t)world;

	for (size_t i = 0; i < n; i++)
		windows[i] = t->data + first + model_random(random) % mine * (size_t)world;
}

uint64_t text_hash(const struct text *t)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < t->len; i++)
		h = (h ^ t->data[i]) * 0x100000001b3u;
	return h;
}
