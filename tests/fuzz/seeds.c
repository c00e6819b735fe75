// SPDX-License-Identifier: Apache-2.0
/*
 * seeds TARGET DIRECTORY: what a fuzz target may begin with, as files.
 *
 * Messages of every type for those that read messages, made from the codec's own table: a
 * fuzzer finds few of them by itself in the seconds that it has.  Noise that is long enough
 * for those whose input is a list of steps.  Nothing for all others.
 */
#include <stdio.h>
#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wunused-function"	/* a test's, too */
#include "tests/unit/msg_make.h"

#define SEED_BYTES_MAX	4096u		/* as long as a fuzzer makes its own */
#define PER_TYPE	4u
#define NOISE		16u
#define NOISE_BYTES	1024u

struct seed {
	uint8_t bytes[2 * SEED_BYTES_MAX];
	size_t used;
};

static const char *dir;

static void put(struct seed *s, const void *p, size_t len)
{
	ASSERT(len <= sizeof(s->bytes) - s->used);
	memcpy(s->bytes + s->used, p, len);
	s->used += len;
}

static void save(const struct seed *s, uint32_t type, uint32_t n)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/seed-%u-%u", dir, type, n);
	f = fopen(path, "we");
	if (!f || fwrite(s->bytes, 1, s->used, f) != s->used || fclose(f)) {
		perror(path);
		exit(1);
	}
}

/* Into `wire`, with its prefix; 0: it is too long for a seed. */
static size_t message(uint32_t type, uint32_t n)
{
	static const enum mode modes[PER_TYPE] = { SMALLEST, LONGEST, ANY, ANY };
	struct msg m = make(type, modes[n], n);
	uint32_t bytes;

	if (msg_encode_size(&m, &bytes, NULL) || bytes > SEED_BYTES_MAX)
		return 0;
	ASSERT(msg_encode(&m, wire, bytes, NULL) == 0);
	return bytes;
}

/* The type and the body. */
static void for_msg(struct seed *s, uint32_t type, size_t len, uint32_t n)
{
	(void)n;
	put(s, &(uint8_t){ (uint8_t)type }, 1);
	put(s, wire + MSG_PREFIX_BYTES, len - MSG_PREFIX_BYTES);
}

/* How long the pieces are, which have descriptors, and the stream. */
static void for_ctl(struct seed *s, uint32_t type, size_t len, uint32_t n)
{
	put(s, (uint8_t[]){ (uint8_t)(type * 37), (uint8_t)(n * 64 + n + 1) }, 2);
	put(s, wire, len);
	if (2 * len < SEED_BYTES_MAX)
		put(s, wire, len);
}

/* The stream in pieces with descriptors, and a receive; twice. */
static void for_conn(struct seed *s, uint32_t type, size_t len, uint32_t n)
{
	const size_t piece = 5 + type * 7 % 250;

	for (uint32_t i = 0; i < 2 && s->used + 2 * len < SEED_BYTES_MAX; i++) {
		for (size_t at = 0; at < len; at += piece) {
			uint8_t now = (uint8_t)MIN(piece, len - at);

			put(s, (uint8_t[]){ 1, (uint8_t)(n + type % 4), now, 0 }, 4);
			put(s, wire + at, now);
		}
		put(s, (uint8_t[]){ i ? 6 : 2, 0, 0, 0 }, 4);
	}
}

static void messages(void (*add)(struct seed *s, uint32_t type, size_t len, uint32_t n))
{
	struct seed s;

	setup();
	for (uint32_t type = MSG_NONE + 1; type < MSG_TYPE_END; type++) {
		for (uint32_t n = 0; n < PER_TYPE; n++) {
			size_t len = msg_shape_of(type) ? message(type, n) : 0;

			s.used = 0;
			if (len)
				add(&s, type, len, n);
			if (s.used)
				save(&s, type, n);
		}
	}
	teardown();
}

static void noise(void)
{
	struct rng rng = { 1 };
	struct seed s;

	for (uint32_t n = 0; n < NOISE; n++) {
		s.used = 0;
		while (s.used < NOISE_BYTES >> n % 4)
			put(&s, &(uint8_t){ (uint8_t)rng_u64(&rng) }, 1);
		save(&s, 0, n);
	}
}

int main(int argc, char **argv)
{
	const char *target = argc == 3 ? argv[1] : "";

	if (argc != 3)
		return 2;
	dir = argv[2];
	if (!strcmp(target, "fuzz_msg"))
		messages(for_msg);
	else if (!strcmp(target, "fuzz_ctl"))
		messages(for_ctl);
	else if (!strcmp(target, "fuzz_conn"))
		messages(for_conn);
	else if (!strcmp(target, "fuzz_ring") || !strcmp(target, "fuzz_mark"))
		noise();
	return 0;
}
