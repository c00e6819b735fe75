/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msg_table.h - what the codec knows about every struct of msg.h (inside proto/).
 *
 * A shape is a struct: its size, its protobuf message, its rows and one rule
 * that spans fields.  A row is a field: where it lies, of which kind, within
 * which bounds.  Row i belongs to the protobuf field with the i-th number, so
 * that decoder, encoder and checker are three walks over the same table.
 */
#ifndef TALLY_PROTO_MSG_TABLE_H
#define TALLY_PROTO_MSG_TABLE_H

#include <protobuf-c/protobuf-c.h>

#include "proto/msg.h"

enum msg_kind {
	KIND_U16,	/* lo and hi bound the value */
	KIND_U32,
	KIND_U64,
	KIND_I32,
	KIND_F64,	/* finite and not negative */
	KIND_STR,	/* lo and hi bound the bytes */
	KIND_ID,	/* 16 bytes; all zeros travel as none */
	KIND_U32S,	/* lo and hi bound the count, which lies at count_at */
	KIND_U64S,
	KIND_SUBS,	/* an array of another shape; bounds and count as above */
	KIND_SUB,	/* another shape, in place; absent means all zeros */
};

struct msg_row {
	const char *name;	/* as in tally.proto */
	enum msg_kind kind;
	uint16_t at;		/* offset in the struct */
	uint16_t count_at;
	int64_t lo;
	uint64_t hi;
	const struct msg_shape *sub;
};

struct msg_shape {
	size_t bytes;				/* of the struct */
	const ProtobufCMessageDescriptor *desc;
	const struct msg_row *rows;
	uint32_t nrows;
	const char *(*rule)(const void *plain);	/* NULL, or a text naming the field */
};

const struct msg_shape *msg_shape_of(uint32_t type);	/* NULL: no such type */

/* Every row and rule, in depth.  0, or `code` with e naming the field. */
int msg_check(const struct msg_shape *shape, const void *plain, int code, struct err *e);

/* The generated struct of any shape, on the stack; no field set. */
union msg_flat {
	ProtobufCMessage base;
	uint8_t bytes[256];
};

static inline void msg_flat_init(union msg_flat *flat, const struct msg_shape *shape)
{
	ASSERT(shape->desc->sizeof_message <= sizeof(*flat));
	ASSERT(shape->desc->n_fields == shape->nrows);
	protobuf_c_message_init(shape->desc, flat);
}

static inline const void *msg_body(const struct msg *m)
{
	return &m->reply;	/* the union's members share their address */
}

/* Accessors that do not care about types: a row knows where, memcpy does the rest. */
static inline uint32_t msg_row_count(const struct msg_row *row, const void *plain)
{
	uint32_t n;

	__builtin_memcpy(&n, (const char *)plain + row->count_at, sizeof(n));
	return n;
}

static inline const void *msg_row_ptr(const struct msg_row *row, const void *plain)
{
	const void *p;

	__builtin_memcpy(&p, (const char *)plain + row->at, sizeof(p));
	return p;
}

#endif
