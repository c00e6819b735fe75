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
#include "proto/msg_table.h"

/*
 * The length of the well-formed character at s (a NUL ends every string, so
 * looking one byte on is safe as long as the last was not NUL); 0: malformed,
 * overlong, a surrogate, out of range, or a control character (C0, DEL, C1).
 */
static uint32_t utf8_char(const uint8_t *s)
{
	static const uint32_t least[] = { 0, 0x20, 0xa0, 0x800, 0x10000 };
	uint32_t c = s[0], n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 :
			       c < 0xf8 ? 4 : 0;

	if (n > 1)
		c &= 0x7fu >> n;
	for (uint32_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c == 0x7f || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

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
