// SPDX-License-Identifier: Apache-2.0
/*
 * msg_decode.c - bytes to struct, inside the caller's block of memory.
 *
 * protobuf-c unpacks with an allocator that only moves forward through msg_mem
 * and never gives anything back, so a hostile body can cost no more than the
 * block.  What it unpacked stays: the structs point at its texts and number
 * arrays, only nested messages are turned into arrays of ours.  Then the whole
 * struct is checked; nothing is believed before.
 *
 * Fields of a later version are unknown here, unpacked and ignored.
 */
#include "common/base/bytes.h"
#include "proto/msg_table.h"

/* Before each block its length: protobuf-c forgets how long a text was. */
struct block {
	_Alignas(8) uint64_t len;
};

struct decoder {
	struct msg_mem *mem;
	struct err *e;
	bool full;		/* the block ran out */
};

static void *mem_get(struct decoder *d, size_t len)
{
	struct msg_mem *mem = d->mem;
	size_t pad = -(uintptr_t)(mem->base + mem->used) % _Alignof(struct block);
	size_t room = mem->size - mem->used;
	struct block *b;

	if (pad + sizeof(*b) > room || len > room - pad - sizeof(*b)) {
		d->full = true;
		return NULL;
	}
	b = (struct block *)(mem->base + mem->used + pad);
	b->len = len;
	mem->used += pad + sizeof(*b) + len;
	return b + 1;
}

static void *alloc_cb(void *data, size_t len)
{
	return mem_get(data, len);
}

static void free_cb(void *data, void *p)
{
	(void)data;
	(void)p;
}

static int take_text(struct decoder *d, const struct msg_row *row, const uint8_t *from,
		     uint8_t *to)
{
	const char *text;

	memcpy(&text, from, sizeof(text));
	if (text != protobuf_c_empty_string) {	/* else absent: no block of ours */
		const struct block *b = (const struct block *)text - 1;

		if (b->len != strlen(text) + 1)
			return err_set(d->e, TALLY_EPROTO, "%s: a NUL inside", row->name);
	}
	memcpy(to, &text, sizeof(text));
	return 0;
}

static int take_port(struct decoder *d, const struct msg_row *row, const uint8_t *from,
		     uint8_t *to)
{
	uint32_t v;
	uint16_t u16;

	memcpy(&v, from, sizeof(v));
	if (v > UINT16_MAX)
		return err_set(d->e, TALLY_EPROTO, "%s: %u, at most %u allowed", row->name, v,
			       UINT16_MAX);
	u16 = (uint16_t)v;
	memcpy(to, &u16, sizeof(u16));
	return 0;
}

static int take_id(struct decoder *d, const struct msg_row *row, const uint8_t *from, uint8_t *to)
{
	ProtobufCBinaryData data;

	memcpy(&data, from, sizeof(data));
	if (data.len && data.len != ID_BYTES)
		return err_set(d->e, TALLY_EPROTO, "%s: %zu bytes, 0 or %u allowed", row->name,
			       data.len, ID_BYTES);
	if (data.len)
		memcpy(to, data.data, ID_BYTES);
	return 0;
}

/* Where an array's elements lie unpacked, and their bounded number, stored in plain. */
static int take_count(struct decoder *d, const struct msg_row *row,
		      const ProtobufCFieldDescriptor *fd, const uint8_t *pb, uint8_t *plain,
		      uint32_t *count)
{
	size_t n;

	memcpy(&n, pb + fd->quantifier_offset, sizeof(n));
	if (n > row->hi)
		return err_set(d->e, TALLY_EPROTO, "%s: %zu of them, at most %zu allowed",
			       row->name, n, (size_t)row->hi);
	*count = (uint32_t)n;
	memcpy(plain + row->count_at, count, sizeof(*count));
	return 0;
}

static int take_numbers(struct decoder *d, const struct msg_row *row,
			const ProtobufCFieldDescriptor *fd, const uint8_t *pb, uint8_t *plain)
{
	uint32_t n = 0;
	int rc = take_count(d, row, fd, pb, plain, &n);

	if (!rc && n)
		memcpy(plain + row->at, pb + fd->offset, sizeof(void *));
	return rc;
}

static int take_message(struct decoder *d, const struct msg_shape *shape, const uint8_t *pb,
			uint8_t *plain);

static int take_subs(struct decoder *d, const struct msg_row *row,
		     const ProtobufCFieldDescriptor *fd, const uint8_t *pb, uint8_t *plain)
{
	const uint8_t *const *from;
	uint8_t *subs;
	uint32_t n = 0;
	int rc = take_count(d, row, fd, pb, plain, &n);

	if (rc || !n)
		return rc;
	subs = mem_get(d, n * row->sub->bytes);
	if (!subs)
		return TALLY_ENOMEM;
	memcpy(plain + row->at, &subs, sizeof(subs));
	memcpy(&from, pb + fd->offset, sizeof(from));
	for (uint32_t i = 0; !rc && i < n; i++) {
		rc = take_message(d, row->sub, from[i], subs + i * row->sub->bytes);
		if (rc && d->e)
			err_wrap(d->e, "%s[%u]", row->name, i);
	}
	return rc;
}

/* An absent message reads as one whose fields are all absent. */
static int take_sub(struct decoder *d, const struct msg_row *row, const uint8_t *from, uint8_t *to)
{
	union msg_flat empty;
	const uint8_t *pb;

	memcpy(&pb, from, sizeof(pb));
	if (!pb) {
		msg_flat_init(&empty, row->sub);
		pb = empty.bytes;
	}
	return take_message(d, row->sub, pb, to);
}

static int take_field(struct decoder *d, const struct msg_row *row,
		      const ProtobufCFieldDescriptor *fd, const uint8_t *pb, uint8_t *plain)
{
	const uint8_t *from = pb + fd->offset;
	uint8_t *to = plain + row->at;

	switch (row->kind) {
	case KIND_U16:
		return take_port(d, row, from, to);
	case KIND_U32:
	case KIND_I32:
		memcpy(to, from, sizeof(uint32_t));
		return 0;
	case KIND_U64:
	case KIND_F64:
		memcpy(to, from, sizeof(uint64_t));
		return 0;
	case KIND_STR:
		return take_text(d, row, from, to);
	case KIND_ID:
		return take_id(d, row, from, to);
	case KIND_U32S:
	case KIND_U64S:
		return take_numbers(d, row, fd, pb, plain);
	case KIND_SUBS:
		return take_subs(d, row, fd, pb, plain);
	case KIND_SUB:
		return take_sub(d, row, from, to);
	}
	ASSERT(!"a kind that nobody takes");
	return TALLY_EPROTO;
}

static int take_message(struct decoder *d, const struct msg_shape *shape, const uint8_t *pb,
			uint8_t *plain)
{
	int rc = 0;

	memset(plain, 0, shape->bytes);
	for (uint32_t i = 0; !rc && i < shape->nrows; i++)
		rc = take_field(d, &shape->rows[i], &shape->desc->fields[i], pb, plain);
	return rc;
}

static int decode_body(struct decoder *d, const struct msg_shape *shape, const uint8_t *body,
		       uint32_t body_bytes, struct msg *m)
{
	ProtobufCAllocator alloc = { .alloc = alloc_cb, .free = free_cb, .allocator_data = d };
	ProtobufCMessage *pb = protobuf_c_message_unpack(shape->desc, &alloc, body_bytes, body);
	int rc;

	if (!pb && !d->full)
		return err_set(d->e, TALLY_EPROTO, "no such protobuf message");
	rc = pb ? take_message(d, shape, (const uint8_t *)pb, (uint8_t *)&m->reply) : TALLY_ENOMEM;
	if (rc)
		return rc;
	return msg_check(shape, msg_body(m), TALLY_EPROTO, d->e);
}

int msg_decode(uint32_t type, const uint8_t *body, uint32_t body_bytes, struct msg_mem *mem,
	       struct msg *m, struct err *e)
{
	const struct msg_shape *shape = msg_shape_of(type);
	struct decoder d = { .mem = mem, .e = e };
	struct msg got = { .type = (enum msg_type)type };
	size_t used = mem->used;
	int rc;

	if (!shape)
		return err_set(e, TALLY_EPROTO, "message of unknown type %u", type);
	if (body_bytes > CTL_MSG_BYTES_MAX)
		return err_set(e, TALLY_EPROTO, "%s: %u bytes, at most %u are allowed",
			       msg_type_name(type), body_bytes, CTL_MSG_BYTES_MAX);
	rc = decode_body(&d, shape, body, body_bytes, &got);
	if (!rc) {
		*m = got;
		return 0;
	}
	mem->used = used;
	if (d.full && mem->size - used >= msg_mem_need(body_bytes))
		rc = err_set(e, TALLY_EPROTO, "more elements than any message may have");
	else if (d.full)
		rc = err_set(e, TALLY_ENOMEM, "%zu bytes of memory for a body of %u",
			     mem->size - used, body_bytes);
	if (e)
		err_wrap(e, "%s", msg_type_name(type));
	return rc;
}
