// SPDX-License-Identifier: Apache-2.0
/*
 * seeds TARGET DIRECTORY: what a fuzz target may begin with, as files.
 *
 * Messages of every type for those that read messages, made from the codec's own table: a
 * fuzzer finds few of them by itself in the seconds that it has.  Links that come up, in each
 * of fuzz_xport's modes.  Noise that is long enough for those whose input is a list of steps.
 * Nothing for all others.
 */
#include <stdio.h>
#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wunused-function"	/* a test's, too */
#include "proto/frame.h"
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

/* ---- fuzz_xport: what its first byte says ---- */

#define MODES		256u
#define MODE_SHM	1u
#define MODE_REFUSE	4u
#define MODE_ANSWER	8u
#define MODE_CONNECT	16u
#define MODE_HELLO_FIRST 32u
#define MODE_CARD	64u
#define MODE_FDS	128u
#define STEPS		4u

static void put_frame(struct seed *s, const struct frame *f)
{
	uint8_t head[FRAME_BYTES];

	frame_encode(f, head);
	put(s, head, sizeof(head));
}

static void put_first(struct seed *s, uint32_t mode)
{
	struct frame f = { .aux = FRAME_VERSION };

	f.type = mode & MODE_CONNECT ? FRAME_WELCOME : FRAME_HELLO;
	if (mode & MODE_REFUSE)		/* the wrong one, too */
		f.type = mode & MODE_ANSWER ? FRAME_PROBE : FRAME_REFUSED;
	if (mode & (MODE_CONNECT | MODE_HELLO_FIRST))
		put_frame(s, &f);
}

/* A slab is shown, or taken back, where there are any; all types but the transport's follow. */
static void link_frames(struct seed *s, uint32_t mode)
{
	static const uint8_t payload[100];
	struct frame f = { .type = FRAME_SLAB, .rslot = mode & MODE_FDS ? 4096 : 0 };

	put_first(s, mode);
	if (mode & MODE_SHM)
		put_frame(s, &f);
	for (uint8_t type = FRAME_WELCOME + 1; type < FRAME_TYPE_END; type++) {
		f = (struct frame){ .type = type, .length = sizeof(payload) };
		if (type == FRAME_SLAB || type == FRAME_QP)
			continue;
		if (frame_has_payload(&f) && mode & MODE_SHM)
			f.flags = FRAME_BYREF;
		put_frame(s, &f);
		if (frame_has_payload(&f))
			put(s, payload, sizeof(payload));
	}
}

/* A step of fuzz_xport's with a card: what it is, and the bytes that it makes a frame of. */
static void put_step(struct seed *s, uint8_t what, uint8_t more, uint8_t fills, struct rng *rng)
{
	uint8_t step[1 + FRAME_BYTES], *p = step + 1;

	for (uint32_t k = 0; k < sizeof(step); k++)
		step[k] = (uint8_t)rng_u64(rng);
	step[0] = (uint8_t)(8 * more + what);
	p[0] = 1 + p[0] % 5;		/* MTU of a queue pair */
	p[3] = p[24] = 0;		/* job, slab */
	p[4] &= 0xfe;			/* a queue pair that can be joined */
	p[13] = p[18] = p[23] = 1;	/* its buffers; length, slot as they are there */
	p[26] = 0;			/* where in the slab */
	p[27] = fills != 1;		/* aux: 1 for what is answered */
	p[28] = fills ? 1 : 2;		/* a slab is taken back, or shown */
	p[30] |= 0x80;			/* and large */
	put(s, step, what < 7 ? sizeof(step) : 1);
}

/* The queue pairs are joined; memory is shown both ways, written to, and taken back. */
static void card_steps(struct seed *s, bool connects, struct rng *rng)
{
	enum { SAY_QP = 0, SAY_SLAB = 1, SAY = 3, CARD = 5, OWN = 7, HIDE = 0, SEND = 3 };

	put_step(s, SAY_QP, connects ? QP_OFFER : QP_ANSWER, 0, rng);
	if (connects)
		put_step(s, SAY_QP, QP_READY, 0, rng);
	put_step(s, SAY_SLAB, 0, 0, rng);
	put_step(s, OWN, SEND, 0, rng);
	put_step(s, CARD, FRAME_PUSH, 0, rng);
	put_step(s, CARD, FRAME_PROBE, 0, rng);
	put_step(s, SAY, FRAME_OFFER, 0, rng);
	put_step(s, SAY_SLAB, 0, 2, rng);
	put_step(s, OWN, HIDE, 0, rng);
	put_step(s, SAY_SLAB, 0, 1, rng);
	for (uint32_t i = 0; i < STEPS; i++)
		put_step(s, (uint8_t)(rng_u64(rng) % 8), (uint8_t)(rng_u64(rng) % 32), i % 3, rng);
}

static void links(void)
{
	static const uint8_t pieces[] = { 0, 4, 255 };
	struct rng rng = { 2 };
	struct seed s;

	for (uint32_t mode = 0; mode < MODES; mode++) {
		s.used = 0;
		put(&s, (uint8_t[]){ (uint8_t)mode, mode & MODE_FDS ? 255 : pieces[mode % 3], 0 },
		    3);
		if ((mode & (MODE_CARD | MODE_CONNECT | MODE_HELLO_FIRST)) ==
		    (MODE_CARD | MODE_HELLO_FIRST))
			put_frame(&s, &(struct frame){ .type = FRAME_HELLO, .offset = HELLO_RDMA });
		if (mode & MODE_CARD)
			card_steps(&s, mode & MODE_CONNECT, &rng);
		else
			link_frames(&s, mode);
		save(&s, mode, 0);
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
	else if (!strcmp(target, "fuzz_xport"))
		links();
	else if (!strcmp(target, "fuzz_ring") || !strcmp(target, "fuzz_mark") ||
		 !strncmp(target, "fuzz_storm_", 11))
		noise();
	return 0;
}
