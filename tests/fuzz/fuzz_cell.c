// SPDX-License-Identifier: Apache-2.0
/*
 * Any datagram: read as it is, and again with magic and version made right, so that the fuzzer
 * gets past them.  What reads must encode to the same bytes and keep the ranges that cell.h
 * promises.
 */
#include "proto/cell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_datagram(const uint8_t *datagram, size_t len)
{
	uint8_t again[CELL_BYTES];
	struct cell f;
	char text[128];

	if (cell_read(datagram, len, &f))
		return;
	ASSERT(len >= CELL_BYTES && len - CELL_BYTES <= CELL_PAYLOAD_MAX);
	ASSERT(*cell_text(&f, text, sizeof(text)) != '?');
	cell_encode(&f, again);
	ASSERT(!memcmp(datagram, again, CELL_BYTES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t datagram[CELL_BYTES + CELL_PAYLOAD_MAX + 1] = { 0 };

	size = MIN(size, sizeof(datagram));
	memcpy(datagram, data, size);
	try_datagram(data, size);
	datagram[0] = CELL_MAGIC;
	datagram[1] = (uint8_t)(CELL_VERSION << 4 | (datagram[1] & 15));
	try_datagram(datagram, size);
	return 0;
}
