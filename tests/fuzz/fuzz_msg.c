// SPDX-License-Identifier: Apache-2.0
/*
 * The first byte picks the type, the rest is the body.  Whatever decodes must be
 * encodable, decode again, and encode to the same bytes: what we say of a message
 * that we believed is what everybody else will understand.  The block of memory
 * has exactly the stated size, so that a sanitizer sees a byte too far.
 */
#include <stdlib.h>

#include "common/base/bytes.h"
#include "proto/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *must_malloc(size_t bytes)
{
	void *p = malloc(bytes);

	ASSERT(p);
	return p;
}

static int decode(uint32_t type, const uint8_t *body, uint32_t bytes, struct msg_mem *mem,
		  struct msg *m)
{
	struct err e = { 0 };
	int rc;

	*mem = (struct msg_mem){ .size = msg_mem_need(bytes) };
	mem->base = must_malloc(mem->size);
	rc = msg_decode(type, body, bytes, mem, m, &e);
	ASSERT(rc == 0 || (rc == TALLY_EPROTO && e.code == rc && *e.text));
	return rc;
}

static uint8_t *encode(const struct msg *m, uint32_t *bytes)
{
	uint8_t *out;

	ASSERT(msg_encode_size(m, bytes, NULL) == 0);
	out = must_malloc(*bytes);
	ASSERT(msg_encode(m, out, *bytes, NULL) == 0);
	return out;
}

static void again(const struct msg *m)
{
	uint32_t bytes, bytes2, body, type;
	uint8_t *out = encode(m, &bytes), *out2;
	struct msg_mem mem;
	struct msg m2;

	ASSERT(msg_prefix_decode(out, &body, &type, NULL) == 0);
	ASSERT(type == m->type && body == bytes - MSG_PREFIX_BYTES);
	ASSERT(decode(type, out + MSG_PREFIX_BYTES, body, &mem, &m2) == 0);
	out2 = encode(&m2, &bytes2);
	ASSERT(bytes == bytes2 && !memcmp(out, out2, bytes));
	free(out2);
	free(mem.base);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t body, type;
	struct msg_mem mem;
	struct msg m;

	if (size >= MSG_PREFIX_BYTES)
		msg_prefix_decode(data, &body, &type, NULL);
	if (!size)
		return 0;
	if (!decode(data[0] % (MSG_TYPE_END + 1), data + 1, (uint32_t)size - 1, &mem, &m))
		again(&m);
	free(mem.base);
	return 0;
}
