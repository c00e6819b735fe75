// SPDX-License-Identifier: Apache-2.0
/*
 * Panels of b, DEPTH deep and COLS wide, are copied into a buffer that fits the
 * L1 cache, whatever b's strides are.  Tiles of ROWS x COLS of c then run down
 * the panel with all their sums in registers.  The tile is written once, with
 * GCC's vector types, and compiled for three instruction sets; the CPU decides.
 */
#include "examples/charlm/gemm.h"

#include <string.h>

#define ROWS	4u
#define COLS	32u
#define DEPTH	192u

typedef void tile_fn(float *c, size_t ldc, struct view a, const float *panel, size_t k);

/*
 * `rows` rows of c, COLS columns: c += a * panel.  A strip is two vectors wide;
 * with narrow ones it takes several.
 */
#define DEFINE_TILE(name, target, lanes) \
	typedef float name##_vec __attribute__((vector_size(4 * (lanes)), aligned(4), may_alias)); \
\
	target static inline __attribute__((always_inline)) void name##_strip( \
		float *c, size_t ldc, struct view a, const float *panel, size_t k, size_t rows) \
	{ \
		name##_vec sum[ROWS][2]; \
\
		for (size_t i = 0; i < rows; i++) \
			for (size_t v = 0; v < 2; v++) \
				sum[i][v] = *(name##_vec *)(c + i * ldc + v * (lanes)); \
		for (size_t p = 0; p < k; p++, panel += COLS) \
			for (size_t i = 0; i < rows; i++) \
				for (size_t v = 0; v < 2; v++) \
					sum[i][v] += a.at[i * a.row + p * a.col] * \
						*(const name##_vec *)(panel + v * (lanes)); \
		for (size_t i = 0; i < rows; i++) \
			for (size_t v = 0; v < 2; v++) \
				*(name##_vec *)(c + i * ldc + v * (lanes)) = sum[i][v]; \
	} \
\
	target static void name##_four(float *c, size_t ldc, struct view a, const float *panel, \
				       size_t k) \
	{ \
		for (size_t j = 0; j < COLS; j += 2 * (lanes)) \
			name##_strip(c + j, ldc, a, panel + j, k, ROWS); \
	} \
\
	target static void name##_one(float *c, size_t ldc, struct view a, const float *panel, \
				      size_t k) \
	{ \
		for (size_t j = 0; j < COLS; j += 2 * (lanes)) \
			name##_strip(c + j, ldc, a, panel + j, k, 1); \
	}

DEFINE_TILE(base, , 4)
#ifdef __x86_64__
DEFINE_TILE(avx2, __attribute__((target("avx2"))), 8)
DEFINE_TILE(avx512, __attribute__((target("avx512f"))), 16)
#endif

struct tiles {
	tile_fn *four, *one;
};

static struct tiles choose(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return (struct tiles){ avx512_four, avx512_one };
	if (__builtin_cpu_supports("avx2"))
		return (struct tiles){ avx2_four, avx2_one };
#endif
	return (struct tiles){ base_four, base_one };
}

/* Copies a panel of b, k x n, padded with zeros to COLS columns. */
static void pack(float *panel, struct view b, size_t k, size_t n)
{
	if (n < COLS)
		memset(panel, 0, k * COLS * sizeof(*panel));
	if (b.col == 1) {
		for (size_t p = 0; p < k; p++)
			memcpy(panel + p * COLS, b.at + p * b.row, n * sizeof(*panel));
		return;
	}
	/* A transposed b is read along its rows; the scattered writes stay in L1. */
	for (size_t j = 0; j < n; j++)
		for (size_t p = 0; p < k; p++)
			panel[p * COLS + j] = b.at[p * b.row + j * b.col];
}

static void run_tiles(struct tiles t, float *c, size_t ldc, struct view a, const float *panel,
		      size_t m, size_t k)
{
	size_t i = 0;

	for (; i + ROWS <= m; i += ROWS, a.at += ROWS * a.row)
		t.four(c + i * ldc, ldc, a, panel, k);
	for (; i < m; i++, a.at += a.row)
		t.one(c + i * ldc, ldc, a, panel, k);
}

/* The last columns, fewer than COLS: through a row of its own, wide enough. */
static void run_narrow(struct tiles t, float *c, size_t ldc, struct view a, const float *panel,
		       size_t m, size_t n, size_t k)
{
	float row[COLS] = { 0 };

	for (size_t i = 0; i < m; i++, a.at += a.row) {
		memcpy(row, c + i * ldc, n * sizeof(*c));
		t.one(row, COLS, a, panel, k);
		memcpy(c + i * ldc, row, n * sizeof(*c));
	}
}

void gemm(float *c, struct view a, struct view b, size_t m, size_t n, size_t k, bool add)
{
	_Alignas(64) float panel[DEPTH * COLS];
	struct tiles t = choose();

	if (!add)
		memset(c, 0, m * n * sizeof(*c));
	for (size_t p = 0; p < k; p += DEPTH) {
		size_t depth = k - p < DEPTH ? k - p : DEPTH;
		struct view part = { a.at + p * a.col, a.row, a.col };

		for (size_t j = 0; j < n; j += COLS) {
			size_t cols = n - j < COLS ? n - j : COLS;
			struct view from = { b.at + p * b.row + j * b.col, b.row, b.col };

			pack(panel, from, depth, cols);
			if (cols == COLS)
				run_tiles(t, c + j, n, part, panel, m, depth);
			else
				run_narrow(t, c + j, n, part, panel, m, cols, depth);
		}
	}
}
