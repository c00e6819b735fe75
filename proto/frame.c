// SPDX-License-Identifier: Apache-2.0
/*
 * frame.c - the data header's bytes.
 *
 * One list of (offset, field) serves both directions, so encode and decode can
 * not disagree.  decode() looks at the magic first (is this ours at all?), then
 * at the version (another version may lay out everything else differently), then
 * at the check, and only then at what the fields say.
 */
#include "proto/frame.h"

#include <stdio.h>

#include "common/base/bytes.h"

#define AT_MAGIC	0
#define AT_VERSION	4
#define AT_CHECK	60

/*  offset, width in bits, field */
#define FIELD_TABLE(X8, X16, X32, X64) \
	X8(5, type) \
	X8(6, dtype) \
	X8(7, rop) \
	X8(8, flags) \
	X8(9, attempt) \
	X16(10, worker) \
	X32(12, job) \
	X32(16, tensor) \
	X32(20, chunk) \
	X32(24, round) \
	X32(28, epoch) \
	X32(32, offset) \
	X32(36, length) \
	X64(40, slot) \
	X64(48, rslot) \
	X32(56, aux)

void frame_encode(const struct frame *f, uint8_t wire[FRAME_BYTES])
{
	put_le32(wire + AT_MAGIC, FRAME_MAGIC);
	wire[AT_VERSION] = FRAME_VERSION;
#define PUT8(at, field)		wire[at] = f->field;
#define PUT16(at, field)	put_le16(wire + (at), f->field);
#define PUT32(at, field)	put_le32(wire + (at), f->field);
#define PUT64(at, field)	put_le64(wire + (at), f->field);
	FIELD_TABLE(PUT8, PUT16, PUT32, PUT64)
	put_le32(wire + AT_CHECK, crc32c(wire, AT_CHECK));
}

/* A mean's data are divided by a power of two where a machine's sum might not fit its type. */
static bool scale_ok(const struct frame *f)
{
	return !(f->flags & FRAME_SCALED) ||
	       (f->rop == ROP_MEAN && (f->dtype == DTYPE_F16 || f->dtype == DTYPE_BF16) &&
		!(f->flags & FRAME_NODATA) && f->aux >= 1 && f->aux <= FRAME_SHIFT_MAX);
}

/* NODATA and SCALED belong to PUSH; a reference is a payload's, wherever it lies. */
static bool flags_ok(const struct frame *f)
{
	switch (f->type) {
	case FRAME_PUSH:
		return !(f->flags & ~FRAME_FLAGS) && scale_ok(f);
	case FRAME_RESULT:
	case FRAME_GIVE:
		return !(f->flags & ~FRAME_BYREF);
	default:
		return !f->flags;
	}
}

static bool fields_ok(const struct frame *f)
{
	return f->type > FRAME_NONE && f->type < FRAME_TYPE_END &&
	       f->dtype < DTYPE_END && f->rop < ROP_END && flags_ok(f) &&
	       f->length <= SEG_BYTES_MAX && range_ok(f->offset, f->length, CHUNK_BYTES_MAX);
}

int frame_decode(const uint8_t wire[FRAME_BYTES], struct frame *f)
{
	struct frame g;

	if (get_le32(wire + AT_MAGIC) != FRAME_MAGIC)
		return TALLY_EPROTO;
	if (wire[AT_VERSION] != FRAME_VERSION)
		return TALLY_EVERSION;
	if (get_le32(wire + AT_CHECK) != crc32c(wire, AT_CHECK))
		return TALLY_EPROTO;
#define GET8(at, field)		g.field = wire[at];
#define GET16(at, field)	g.field = get_le16(wire + (at));
#define GET32(at, field)	g.field = get_le32(wire + (at));
#define GET64(at, field)	g.field = get_le64(wire + (at));
	FIELD_TABLE(GET8, GET16, GET32, GET64)
	if (!fields_ok(&g))
		return TALLY_EPROTO;
	*f = g;
	return 0;
}

const char *frame_type_name(uint8_t type)
{
	switch (type) {
#define X(e, num, payload, from, help) case FRAME_##e: return #e;
	FRAME_TYPE_TABLE(X)
#undef X
	}
	return "?";
}

static bool type_has_payload(uint8_t type)
{
	switch (type) {
#define X(e, num, payload, from, help) case FRAME_##e: return payload;
	FRAME_TYPE_TABLE(X)
#undef X
	}
	return false;
}

bool frame_has_payload(const struct frame *f)
{
	return type_has_payload(f->type) && f->length &&
	       !(f->flags & (FRAME_BYREF | FRAME_NODATA));
}

const char *frame_text(const struct frame *f, char *buf, size_t len)
{
	snprintf(buf, len, "%s job %u key %u.%u+%u round %u worker %u epoch %u "
		 "length %u attempt %u%s%s%s aux %u",
		 frame_type_name(f->type), f->job, f->tensor, f->chunk, f->offset, f->round,
		 f->worker, f->epoch, f->length, f->attempt,
		 f->flags & FRAME_BYREF ? " byref" : "",
		 f->flags & FRAME_NODATA ? " nodata" : "",
		 f->flags & FRAME_SCALED ? " scaled" : "", f->aux);
	return buf;
}
