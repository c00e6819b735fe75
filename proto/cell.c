// SPDX-License-Identifier: Apache-2.0
/*
 * cell.c - the bytes of a lane's datagram.
 *
 * One list of (offset, width, field) serves both directions and both byte orders.  A reader looks
 * at the magic first, then at the version, then at the byte order, and only then at the fields.
 */
#include "proto/cell.h"

#include <stdio.h>

#define FIELD_TABLE(X) \
	X(4, 32, key) \
	X(8, 16, lane) \
	X(10, 16, worker) \
	X(12, 32, p) \
	X(16, 32, pn) \
	X(20, 32, ack) \
	X(24, 64, sack)

#define AT_FLAGS	2
#define AT_WIN		3

void cell_encode(const struct cell *f, uint8_t wire[CELL_BYTES])
{
	bool be = f->flags & CELL_BE;

	wire[0] = CELL_MAGIC;
	wire[1] = (uint8_t)(CELL_VERSION << 4 | f->type);
	wire[AT_FLAGS] = f->flags;
	wire[AT_WIN] = f->win;
#define X(at, bits, field) \
	put_le##bits(wire + (at), be ? __builtin_bswap##bits(f->field) : f->field);
	FIELD_TABLE(X)
#undef X
}

static bool known_type(uint8_t type)
{
	return type > CELL_NONE && type < CELL_TYPE_END;
}

int cell_decode(const uint8_t wire[CELL_BYTES], struct cell *f)
{
	struct cell g = { .type = wire[1] & 15, .flags = wire[AT_FLAGS], .win = wire[AT_WIN] };
	bool be = g.flags & CELL_BE;

	if (wire[0] != CELL_MAGIC)
		return TALLY_EPROTO;
	if (wire[1] >> 4 != CELL_VERSION)
		return TALLY_EVERSION;
	if (!known_type(g.type) || g.flags & ~CELL_FLAGS ||
	    (g.flags & CELL_WIDE && g.type != CELL_ACK))
		return TALLY_EPROTO;
#define X(at, bits, field) \
	g.field = get_le##bits(wire + (at)); \
	if (be) \
		g.field = __builtin_bswap##bits(g.field);
	FIELD_TABLE(X)
#undef X
	*f = g;
	return 0;
}

static bool length_suits(const struct cell *f, size_t payload)
{
	switch ((enum cell_type)f->type) {
	case CELL_ADD:
	case CELL_SUM:
	case CELL_SUMMED:
		return payload > 0 && payload <= CELL_PAYLOAD_MAX;
	case CELL_PATH:
	case CELL_PATH_OK:
		return payload <= CELL_PAYLOAD_MAX;
	case CELL_ACK:
		return payload == (f->flags & CELL_WIDE ? CELL_WIDE_BYTES : 0);
	default:
		return payload == 0;
	}
}

int cell_read(const uint8_t *datagram, size_t len, struct cell *f)
{
	struct cell g;
	int rc = len < CELL_BYTES ? TALLY_EPROTO : cell_decode(datagram, &g);

	if (rc)
		return rc;
	if (!length_suits(&g, len - CELL_BYTES))
		return TALLY_EPROTO;
	*f = g;
	return 0;
}

const char *cell_type_name(uint8_t type)
{
	static const char *const names[CELL_TYPE_END] = {
#define X(e, num, from, help) [num] = #e,
		CELL_TYPE_TABLE(X)
#undef X
	};

	return known_type(type) ? names[type] : "?";
}

const char *cell_text(const struct cell *f, char *buf, size_t len)
{
	snprintf(buf, len, "%s lane %u worker %u p %u pn %u ack %u", cell_type_name(f->type),
		 f->lane, f->worker, f->p, f->pn, f->ack);
	return buf;
}
