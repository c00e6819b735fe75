// SPDX-License-Identifier: Apache-2.0
#include "common/base/dtype.h"

#include <string.h>

uint32_t dtype_bytes(uint8_t dtype)
{
	switch (dtype) {
#define X(e, num, name, bytes) case DTYPE_##e: return bytes;
	DTYPE_TABLE(X)
#undef X
	}
	return 0;
}

const char *dtype_name(uint8_t dtype)
{
	switch (dtype) {
#define X(e, num, name, bytes) case DTYPE_##e: return name;
	DTYPE_TABLE(X)
#undef X
	}
	return "?";
}

enum dtype dtype_from_name(const char *name)
{
	static const struct {
		const char *name;
		enum dtype dtype;
	} all[] = {
#define X(e, num, n, bytes) { n, DTYPE_##e },
		DTYPE_TABLE(X)
#undef X
		{ "fp32", DTYPE_F32 }, { "f32", DTYPE_F32 }, { "float", DTYPE_F32 },
		{ "fp64", DTYPE_F64 }, { "f64", DTYPE_F64 }, { "double", DTYPE_F64 },
		{ "fp16", DTYPE_F16 }, { "f16", DTYPE_F16 }, { "half", DTYPE_F16 },
		{ "bf16", DTYPE_BF16 }, { "i8", DTYPE_I8 }, { "u8", DTYPE_U8 },
		{ "i32", DTYPE_I32 }, { "i64", DTYPE_I64 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(all[i].name, name))
			return all[i].dtype;
	return DTYPE_NONE;
}

const char *rop_name(uint8_t rop)
{
	switch (rop) {
#define X(e, num, name) case ROP_##e: return name;
	ROP_TABLE(X)
#undef X
	}
	return "?";
}
