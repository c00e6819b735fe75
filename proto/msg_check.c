// SPDX-License-Identifier: Apache-2.0
/*
 * msg_check.c - is this message one that may exist?
 *
 * The same walk serves both directions: what a peer sent (EPROTO) and what our
 * own program wants to send (EINVAL).  The first thing wrong ends it; its path
 * is put together on the way out, "tensors[3]: name: 300 bytes, 1 to 255 allowed".
 */
#include <inttypes.h>
#include <math.h>

#include "common/base/bytes.h"
#include "common/base/utf8.h"
#include "proto/msg_table.h"

static int check_text(const struct msg_row *row, const void *plain, int code, struct err *e)
{
	const char *text = msg_row_ptr(row, plain);
	size_t len = text ? strlen(text) : 0;

	if (len < (uint64_t)row->lo || len > row->hi)
		return err_set(e, code, "%s: %zu bytes, %" PRIi64 " to %" PRIu64 " allowed",
			       row->name, len, row->lo, row->hi);
	for (size_t i = 0; i < len; ) {
		uint32_t n = utf8_char((const uint8_t *)text + i);

		if (!n)
			return err_set(e, code, "%s: no printable UTF-8 at byte %zu",
				       row->name, i);
		i += n;
	}
	return 0;
}

static int check_unsigned(const struct msg_row *row, uint64_t v, int code, struct err *e)
{
	if (v >= (uint64_t)row->lo && v <= row->hi)
		return 0;
	return err_set(e, code, "%s: %" PRIu64 ", %" PRIi64 " to %" PRIu64 " allowed",
		       row->name, v, row->lo, row->hi);
}

static int check_signed(const struct msg_row *row, int32_t v, int code, struct err *e)
{
	if (v >= row->lo && v <= (int64_t)row->hi)
		return 0;
	return err_set(e, code, "%s: %" PRIi32 ", %" PRIi64 " to %" PRIi64 " allowed",
		       row->name, v, row->lo, (int64_t)row->hi);
}

static int check_subs(const struct msg_row *row, const void *plain, int code, struct err *e)
{
	const char *sub = msg_row_ptr(row, plain);
	uint32_t n = msg_row_count(row, plain);
	int rc = check_unsigned(row, n, code, e);

	for (uint32_t i = 0; !rc && i < n; i++) {
		rc = msg_check(row->sub, sub + i * row->sub->bytes, code, e);
		if (rc && e)
			err_wrap(e, "%s[%u]", row->name, i);
	}
	return rc;
}

static int check_row(const struct msg_row *row, const void *plain, int code, struct err *e)
{
	const char *at = (const char *)plain + row->at;
	union {
		uint16_t u16;
		uint32_t u32;
		uint64_t u64;
		int32_t i32;
		double f64;
	} v;

	switch (row->kind) {
	case KIND_U16:
		memcpy(&v.u16, at, sizeof(v.u16));
		return check_unsigned(row, v.u16, code, e);
	case KIND_U32:
		memcpy(&v.u32, at, sizeof(v.u32));
		return check_unsigned(row, v.u32, code, e);
	case KIND_U64:
		memcpy(&v.u64, at, sizeof(v.u64));
		return check_unsigned(row, v.u64, code, e);
	case KIND_I32:
		memcpy(&v.i32, at, sizeof(v.i32));
		return check_signed(row, v.i32, code, e);
	case KIND_F64:
		memcpy(&v.f64, at, sizeof(v.f64));
		if (isfinite(v.f64) && v.f64 >= 0)
			return 0;
		return err_set(e, code, "%s: negative or no number", row->name);
	case KIND_STR:
		return check_text(row, plain, code, e);
	case KIND_ID:
		return 0;
	case KIND_U32S:
	case KIND_U64S:
		return check_unsigned(row, msg_row_count(row, plain), code, e);
	case KIND_SUBS:
		return check_subs(row, plain, code, e);
	case KIND_SUB:
		return msg_check(row->sub, at, code, e);
	}
	ASSERT(!"a kind without a check");
	return code;
}

int msg_check(const struct msg_shape *shape, const void *plain, int code, struct err *e)
{
	const char *wrong;

	for (uint32_t i = 0; i < shape->nrows; i++) {
		int rc = check_row(&shape->rows[i], plain, code, e);

		if (rc)
			return rc;
	}
	wrong = shape->rule ? shape->rule(plain) : NULL;
	return wrong ? err_set(e, code, "%s", wrong) : 0;
}
