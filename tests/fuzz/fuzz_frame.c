// SPDX-License-Identifier: Apache-2.0
/*
 * Any 64 bytes: decoded as they are, and again with magic, version and check made
 * right, so that the fuzzer gets past them.  What decodes must encode to the same
 * bytes and keep the ranges that frame.h promises.
 */
#include "common/base/bytes.h"
#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_header(const uint8_t wire[FRAME_BYTES])
{
	uint8_t again[FRAME_BYTES];
	struct frame f;
	char text[256];

	if (frame_decode(wire, &f))
		return;
	ASSERT(f.length <= SEG_BYTES_MAX && f.dtype < DTYPE_END && f.rop < ROP_END);
	ASSERT(range_ok(f.offset, f.length, CHUNK_BYTES_MAX));
	ASSERT(!frame_has_payload(&f) || f.type == FRAME_PUSH || f.type == FRAME_RESULT ||
	       f.type == FRAME_GIVE);
	ASSERT(*frame_text(&f, text, sizeof(text)) != '?');
	frame_encode(&f, again);
	ASSERT(!memcmp(wire, again, FRAME_BYTES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t wire[FRAME_BYTES] = { 0 };

	memcpy(wire, data, MIN(size, sizeof(wire)));
	try_header(wire);
	put_le32(wire, FRAME_MAGIC);
	wire[4] = FRAME_VERSION;
	put_le32(wire + 60, crc32c(wire, 60));
	try_header(wire);
	return 0;
}
