// SPDX-License-Identifier: Apache-2.0
/*
 * msg_encode.c - struct to bytes, without memory of its own.
 *
 * protobuf-c packs one flat message at a time: its struct is filled on the stack
 * from the rows (texts and arrays are pointed to, never copied) and packed; the
 * nested messages follow behind, each with its own tag and length.  The order of
 * fields in a protobuf message is free, so this is as good as the one call over
 * a tree of structs, and no tree is ever built.
 */
#include "common/base/bytes.h"
#include "proto/msg_table.h"

#define WIRE_LEN	2u	/* protobuf's wire type "length-delimited" */

static void fill_id(uint8_t *to, const uint8_t *id)
{
	static const uint8_t zeros[ID_BYTES];
	ProtobufCBinaryData data = { .len = ID_BYTES, .data = (uint8_t *)id };

	if (memcmp(id, zeros, ID_BYTES))
		memcpy(to, &data, sizeof(data));
}

static void fill_field(uint8_t *pb, const ProtobufCFieldDescriptor *fd,
		       const struct msg_row *row, const uint8_t *plain)
{
	const uint8_t *from = plain + row->at;
	uint8_t *to = pb + fd->offset;
	uint32_t u32;
	uint16_t u16;
	size_t n;

	switch (row->kind) {
	case KIND_U16:
		memcpy(&u16, from, sizeof(u16));
		u32 = u16;
		memcpy(to, &u32, sizeof(u32));
		break;
	case KIND_U32:
	case KIND_I32:
		memcpy(to, from, sizeof(uint32_t));
		break;
	case KIND_U64:
	case KIND_F64:
		memcpy(to, from, sizeof(uint64_t));
		break;
	case KIND_ID:
		fill_id(to, from);
		break;
	case KIND_U32S:
	case KIND_U64S:
		n = msg_row_count(row, plain);
		memcpy(pb + fd->quantifier_offset, &n, sizeof(n));
		memcpy(to, from, sizeof(void *));
		break;
	case KIND_STR:		/* NULL packs as "" does: not at all */
		memcpy(to, from, sizeof(void *));
		break;
	case KIND_SUBS:		/* none here; they follow */
	case KIND_SUB:
		break;
	}
}

static void fill_flat(const struct msg_shape *shape, const void *plain, union msg_flat *flat)
{
	msg_flat_init(flat, shape);
	for (uint32_t i = 0; i < shape->nrows; i++)
		fill_field(flat->bytes, &shape->desc->fields[i], &shape->rows[i], plain);
}

/* The nested structs of a row: first one and how many; 0 for rows of other kinds. */
static uint32_t row_subs(const struct msg_row *row, const void *plain, const uint8_t **first)
{
	if (row->kind == KIND_SUB) {
		*first = (const uint8_t *)plain + row->at;
		return 1;
	}
	if (row->kind != KIND_SUBS)
		return 0;
	*first = msg_row_ptr(row, plain);
	return msg_row_count(row, plain);
}

static uint8_t *put_varint(uint8_t *out, uint64_t v)
{
	while (v >= 0x80) {
		*out++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*out++ = (uint8_t)v;
	return out;
}

static size_t varint_bytes(uint64_t v)
{
	uint8_t scratch[10];

	return (size_t)(put_varint(scratch, v) - scratch);
}

static uint32_t field_tag(const struct msg_shape *shape, uint32_t row)
{
	return shape->desc->fields[row].id << 3 | WIRE_LEN;
}

static size_t packed_bytes(const struct msg_shape *shape, const void *plain)
{
	union msg_flat flat;
	size_t bytes;

	fill_flat(shape, plain, &flat);
	bytes = protobuf_c_message_get_packed_size(&flat.base);
	for (uint32_t r = 0; r < shape->nrows; r++) {
		const struct msg_shape *sub = shape->rows[r].sub;
		const uint8_t *first = NULL;
		uint32_t n = row_subs(&shape->rows[r], plain, &first);

		for (uint32_t i = 0; i < n; i++) {
			size_t len = packed_bytes(sub, first + i * sub->bytes);

			bytes += varint_bytes(field_tag(shape, r)) + varint_bytes(len) + len;
		}
	}
	return bytes;
}

static uint8_t *pack(const struct msg_shape *shape, const void *plain, uint8_t *out)
{
	union msg_flat flat;

	fill_flat(shape, plain, &flat);
	out += protobuf_c_message_pack(&flat.base, out);
	for (uint32_t r = 0; r < shape->nrows; r++) {
		const struct msg_shape *sub = shape->rows[r].sub;
		const uint8_t *first = NULL;
		uint32_t n = row_subs(&shape->rows[r], plain, &first);

		for (uint32_t i = 0; i < n; i++) {
			const uint8_t *p = first + i * sub->bytes;

			out = put_varint(out, field_tag(shape, r));
			out = put_varint(out, packed_bytes(sub, p));
			out = pack(sub, p, out);
		}
	}
	return out;
}

int msg_encode_size(const struct msg *m, uint32_t *bytes, struct err *e)
{
	const struct msg_shape *shape = msg_shape_of(m->type);
	size_t body;
	int rc;

	if (!shape)
		return err_set(e, TALLY_EINVAL, "no message has type %u", (unsigned int)m->type);
	rc = msg_check(shape, msg_body(m), TALLY_EINVAL, e);
	if (rc) {
		if (e)
			err_wrap(e, "%s", msg_type_name(m->type));
		return rc;
	}
	body = packed_bytes(shape, msg_body(m));
	if (body > CTL_MSG_BYTES_MAX)
		return err_set(e, TALLY_EINVAL, "%s: %zu bytes, at most %u are allowed",
			       msg_type_name(m->type), body, CTL_MSG_BYTES_MAX);
	*bytes = MSG_PREFIX_BYTES + (uint32_t)body;
	return 0;
}

int msg_encode(const struct msg *m, uint8_t *out, uint32_t bytes, struct err *e)
{
	uint32_t need = 0;
	uint8_t *end;
	int rc = msg_encode_size(m, &need, e);

	if (rc)
		return rc;
	if (need != bytes)
		return err_set(e, TALLY_EINVAL, "%s: takes %u bytes, room for %u given",
			       msg_type_name(m->type), need, bytes);
	put_le32(out, need - MSG_PREFIX_BYTES);
	put_le16(out + 4, (uint16_t)m->type);
	put_le16(out + 6, MSG_VERSION);
	end = pack(msg_shape_of(m->type), msg_body(m), out + MSG_PREFIX_BYTES);
	ASSERT(end == out + need);
	return 0;
}
