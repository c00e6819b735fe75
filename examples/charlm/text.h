/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - the text that is learned: any file, read whole, as bytes.
 */
#ifndef CHARLM_TEXT_H
#define CHARLM_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_DEFAULT	"/usr/share/common-licenses/GPL-3"
#define TEXT_BYTES_MIN	4096u
#define TEXT_BYTES_MAX	(256u << 20)

struct text {
	uint8_t *data;		/* owned */
	size_t len;
};

/* -1: why (one line, at least 256 bytes) says what is wrong with the file. */
int text_load(struct text *t, const char *path, char *why, size_t why_size);
void text_free(struct text *t);

/*
 * n random windows (context bytes and the next) from this rank's share of the
 * text: the positions that are `rank` modulo `world`.
 */
void text_windows(const struct text *t, size_t context, int rank, int world, uint64_t *random,
		  const uint8_t *windows[], size_t n);

uint64_t text_hash(const struct text *t);

#endif
