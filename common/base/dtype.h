/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h - the element types and operations, one table each.
 *
 * Numbers are part of the wire protocol and of libtally's ABI: never reused.
 */
#ifndef TALLY_BASE_DTYPE_H
#define TALLY_BASE_DTYPE_H

#include "common/base/base.h"

/*  enum	num  name      bytes */
#define DTYPE_TABLE(X) \
	X(F32,	1, "float32",  4) \
	X(F64,	2, "float64",  8) \
	X(F16,	3, "float16",  2) \
	X(BF16,	4, "bfloat16", 2) \
	X(I8,	5, "int8",     1) \
	X(U8,	6, "uint8",    1) \
	X(I32,	7, "int32",    4) \
	X(I64,	8, "int64",    8)

enum dtype {
	DTYPE_NONE = 0,
#define X(e, num, name, bytes) DTYPE_##e = num,
	DTYPE_TABLE(X)
#undef X
	DTYPE_END
};

/* What a round computes.  BROADCAST copies the root's contribution to everybody. */
#define ROP_TABLE(X) \
	X(SUM,		1, "sum") \
	X(MEAN,		2, "mean") \
	X(BROADCAST,	3, "broadcast")

enum rop {
	ROP_NONE = 0,
#define X(e, num, name) ROP_##e = num,
	ROP_TABLE(X)
#undef X
	ROP_END
};

uint32_t dtype_bytes(uint8_t dtype);		/* 0: no such type */
const char *dtype_name(uint8_t dtype);		/* "?": no such type */
enum dtype dtype_from_name(const char *name);	/* also "fp32", "half", ...; DTYPE_NONE */
const char *rop_name(uint8_t rop);

#endif
