// SPDX-License-Identifier: Apache-2.0
/*
 * The level is found once: the best that the CPU and the mask permit.  A call
 * then goes to the level's function for the type, which does everything in one
 * pass over the inputs.  Three cases are the same for all levels and are done
 * here: one input without a division is a copy; many inputs are added in groups,
 * a piece of the result at a time; and integers are divided by a second, plain
 * loop over each piece of the result while it is in cache.
 *
 * Means of 16-bit floats are added in float32 by other functions where the sum may not fit it, or
 * inputs were divided before: every input is scaled by a power of two.
 *
 * Results are stored the ordinary way: the next reader (the network, a process
 * that maps the result) is near, and segments fit in the cache.  Where neither is
 * so, kern_sum_cold() is for.
 */
#include "common/kern/kern.h"
#include "common/kern/impl.h"
#include "common/base/limits.h"
#include "common/kern/half.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <string.h>

#define DIV_BLOCK	4096u		/* elements: 32 KiB at most, inside any L2 */
#define GROUP		8u		/* inputs that prefetchers and cache ways keep up with */
#define PIECE_BYTES	4096u

static kern_fn *const *const tables[KERN_LEVELS] = {
	[KERN_C] = kern_table_c,
#ifdef __x86_64__
	[KERN_AVX2] = kern_table_avx2,
	[KERN_AVX512] = kern_table_avx512,
#endif
};

static kern_fn *const *const cold_tables[KERN_LEVELS] = {
#ifdef __x86_64__
	[KERN_AVX2] = kern_cold_avx2,
	[KERN_AVX512] = kern_cold_avx512,
#endif
};

static kern_scaled_fn *const *const scaled_tables[KERN_LEVELS] = {
	[KERN_C] = kern_scaled_c,
#ifdef __x86_64__
	[KERN_AVX2] = kern_scaled_avx2,
	[KERN_AVX512] = kern_scaled_avx512,
#endif
};

static kern_scaled_fn *const *const scaled_cold_tables[KERN_LEVELS] = {
#ifdef __x86_64__
	[KERN_AVX2] = kern_scaled_cold_avx2,
	[KERN_AVX512] = kern_scaled_cold_avx512,
#endif
};

static enum kern_level level = KERN_C;

#ifdef __x86_64__

/* clang 14's __builtin_cpu_supports() does not know it. */
static bool has_f16c(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool kern_level_usable(enum kern_level l)
{
	switch (l) {
	case KERN_C:
		return true;
	/* All that the level's file is compiled for.  A hypervisor may hide any of it. */
	case KERN_AVX2:
		return __builtin_cpu_supports("avx2") && has_f16c();
	case KERN_AVX512:
		return kern_level_usable(KERN_AVX2) && __builtin_cpu_supports("avx512f") &&
		       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
		       __builtin_cpu_supports("avx512dq");
	case KERN_LEVELS:
		break;
	}
	return false;
}

#else

bool kern_level_usable(enum kern_level l)
{
	return l == KERN_C;
}

#endif

const char *kern_level_name(enum kern_level l)
{
	static const char *const names[KERN_LEVELS] = {
		[KERN_C] = "c",
		[KERN_AVX2] = "avx2",
		[KERN_AVX512] = "avx512",
	};

	return (unsigned int)l < KERN_LEVELS ? names[l] : "?";
}

enum kern_level kern_init(uint32_t mask)
{
	level = KERN_C;
	for (int l = KERN_LEVELS - 1; l > KERN_C; l--) {
		if ((mask >> l & 1) && kern_level_usable((enum kern_level)l)) {
			level = (enum kern_level)l;
			break;
		}
	}
	return level;
}

enum kern_level kern_level(void)
{
	return level;
}

static bool is_integer(enum dtype dtype)
{
	return dtype == DTYPE_I8 || dtype == DTYPE_U8 || dtype == DTYPE_I32 || dtype == DTYPE_I64;
}

/*
 * Toward zero, as C divides.  Through a floating type that holds both operands
 * exactly the quotient, once cut, is the same: it is never rounded up to the
 * next integer.  (A float may round div itself, but only where both quotients
 * are 0.)  That way the compiler can use vectors for the smaller types.
 */
#define DEFINE_DIVIDE(name, elem, via) \
	static void name(char *out, size_t len, uint32_t div) \
	{ \
		via by = (via)div; \
		elem e; \
\
		for (size_t i = 0; i < len; i++) { \
			memcpy(&e, out + i * sizeof(e), sizeof(e)); \
			e = (elem)((via)e / by); \
			memcpy(out + i * sizeof(e), &e, sizeof(e)); \
		} \
	}

DEFINE_DIVIDE(divide_i8, int8_t, float)
DEFINE_DIVIDE(divide_u8, uint8_t, float)
DEFINE_DIVIDE(divide_i32, int32_t, double)
DEFINE_DIVIDE(divide_i64, int64_t, int64_t)

static void divide(enum dtype dtype, char *out, size_t len, uint32_t div)
{
	switch (dtype) {
	case DTYPE_I8:
		divide_i8(out, len, div);
		break;
	case DTYPE_U8:
		divide_u8(out, len, div);
		break;
	case DTYPE_I32:
		divide_i32(out, len, div);
		break;
	default:
		divide_i64(out, len, div);
	}
}

static void copy_range(enum dtype dtype, void *out, const void *in, size_t from, size_t to)
{
	size_t size = dtype_bytes((uint8_t)dtype);

	if (out != in)
		memcpy((char *)out + from * size, (const char *)in + from * size,
		       (to - from) * size);
}

/*
 * Inputs lie at like addresses in slots of like size, so more than a few of them
 * fight for the same cache sets.  The partial sum of a piece stays in L1 instead
 * while the groups pass by.  The order of the additions is the same.
 */
static void sum_groups(kern_fn *sum, size_t size, char *out, const void *const in[], uint32_t n,
		       size_t bytes, uint32_t div)
{
	_Alignas(64) char part[PIECE_BYTES];
	const void *group[GROUP];

	for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
		size_t len = MIN(PIECE_BYTES, bytes - at) / size;

		for (uint32_t done = 0; done < n;) {
			uint32_t k = 0;

			if (done > 0)
				group[k++] = part;
			while (k < GROUP && done < n)
				group[k++] = (const char *)in[done++] + at;
			if (done < n)
				sum(part, group, k, 0, len, 1);
			else
				sum(out + at, group, k, 0, len, div);
		}
	}
}

static bool is_half(enum dtype dtype)
{
	return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* 16-bit floats cannot be added in groups: a partial sum would be rounded. */
static bool sums_in_groups(enum dtype dtype, uint32_t n)
{
	return n > GROUP && !is_half(dtype);
}

/* The smallest k for which 2^k is not below n. */
static uint32_t log2_up(uint32_t n)
{
	return n > 1 ? 32 - (uint32_t)__builtin_clz(n - 1) : 0;
}

uint8_t kern_shift(enum dtype dtype, uint32_t n)
{
	return is_half(dtype) ? (uint8_t)log2_up(n) : 0;
}

static float power_of_2(int k)
{
	return f32_from_bits((uint32_t)(127 + k) << 23);
}

/* float16's sums always fit float32: their inputs are scaled only if one was divided before. */
static bool is_scaled(enum dtype dtype, const uint8_t *shift, uint32_t n, uint32_t div)
{
	uint32_t any = 0;

	for (uint32_t i = 0; shift && is_half(dtype) && i < n; i++)
		any |= shift[i];
	return any || (dtype == DTYPE_BF16 && div > 1);
}

static void scaled_mean(kern_scaled_fn *sum, void *out, const void *const in[],
			const uint8_t *shift, uint32_t n, size_t len, uint32_t div)
{
	float scale[AGENTS_PER_JOB_MAX];
	int k = (int)log2_up(div);

	ASSERT(n <= AGENTS_PER_JOB_MAX);
	for (uint32_t i = 0; i < n; i++)
		scale[i] = power_of_2((shift ? shift[i] : 0) - k);
	sum(out, in, scale, n, 0, len, (float)div * power_of_2(-k));
}

static void integer_mean(kern_fn *sum, enum dtype dtype, void *out, const void *const in[],
			 uint32_t n, size_t len, uint32_t div)
{
	size_t size = dtype_bytes((uint8_t)dtype), to;

	for (size_t from = 0; from < len; from = to) {
		to = MIN(len, from + DIV_BLOCK);
		if (n == 1)
			copy_range(dtype, out, in[0], from, to);
		else
			sum(out, in, n, from, to, 1);
		divide(dtype, (char *)out + from * size, to - from, div);
	}
}

void kern_mean_at(enum kern_level l, enum dtype dtype, void *out, const void *const in[],
		  const uint8_t shift[], uint32_t n, size_t len, uint32_t div)
{
	kern_fn *sum;

	ASSERT((unsigned int)l < KERN_LEVELS && dtype > DTYPE_NONE && dtype < DTYPE_END);
	ASSERT(n >= 1 && div >= 1);
	sum = tables[l][dtype];
	if (len == 0)
		return;
	if (is_scaled(dtype, shift, n, div))
		scaled_mean(scaled_tables[l][dtype], out, in, shift, n, len, div);
	else if (n == 1 && div == 1)
		copy_range(dtype, out, in[0], 0, len);
	else if (div > 1 && is_integer(dtype))
		integer_mean(sum, dtype, out, in, n, len, div);
	else if (sums_in_groups(dtype, n))
		sum_groups(sum, dtype_bytes((uint8_t)dtype), out, in, n,
			   len * dtype_bytes((uint8_t)dtype), div);
	else
		sum(out, in, n, 0, len, div);
}

void kern_mean(enum dtype dtype, void *out, const void *const in[], const uint8_t shift[],
	       uint32_t n, size_t len, uint32_t div)
{
	kern_mean_at(level, dtype, out, in, shift, n, len, div);
}

void kern_sum_at(enum kern_level l, enum dtype dtype, void *out, const void *const in[],
		 uint32_t n, size_t len, uint32_t div)
{
	kern_mean_at(l, dtype, out, in, NULL, n, len, div);
}

void kern_sum(enum dtype dtype, void *out, const void *const in[], uint32_t n, size_t len,
	      uint32_t div)
{
	kern_sum_at(level, dtype, out, in, n, len, div);
}

/* Stores past the caches pass other stores. */
void kern_copied(void)
{
#ifdef __x86_64__
	__builtin_ia32_sfence();
#endif
}

void kern_copy_cold(void *out, const void *in, size_t bytes)
{
	size_t head = -(uintptr_t)out % KERN_LINE;

	if (level == KERN_C || bytes < KERN_COPY_COLD_MIN) {
		memcpy(out, in, bytes);
		return;
	}
	memcpy(out, in, head);
	in = (const char *)in + head;
	cold_tables[level][DTYPE_U8]((char *)out + head, &in, 1, 0, bytes - head, 1);
}

void kern_sum_cold(enum dtype dtype, void *out, const void *const in[], uint32_t n, size_t len,
		   uint32_t div)
{
	if (level == KERN_C || (div > 1 && is_integer(dtype)) || sums_in_groups(dtype, n) ||
	    (uintptr_t)out % KERN_LINE || (n == 1 && in[0] == out))
		kern_sum(dtype, out, in, n, len, div);
	else if (n == 1 && div == 1)		/* bits, not numbers */
		cold_tables[level][DTYPE_U8](out, in, 1, 0, len * dtype_bytes((uint8_t)dtype), 1);
	else if (is_scaled(dtype, NULL, n, div))
		scaled_mean(scaled_cold_tables[level][dtype], out, in, NULL, n, len, div);
	else
		cold_tables[level][dtype](out, in, n, 0, len, div);
	kern_copied();
}

bool kern_init_upto(const char *name)
{
	for (int l = KERN_C; l < KERN_LEVELS; l++) {
		if (!strcmp(name, kern_level_name((enum kern_level)l))) {
			kern_init((2u << l) - 1);
			return true;
		}
	}
	return false;
}
