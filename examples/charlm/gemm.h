/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - matrix multiplication, one thread.
 *
 * Every element of the result is summed over k from first to last, multiplied
 * and added separately: the same bits on every CPU.  No heap.
 */
#ifndef CHARLM_GEMM_H
#define CHARLM_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/* A matrix by strides: element (i, j) is at[i * row + j * col]. */
struct view {
	const float *at;
	size_t row, col;
};

/* Row after row, n to a row; and that matrix transposed. */
static inline struct view view_rows(const float *at, size_t n)
{
	return (struct view){ at, n, 1 };
}

static inline struct view view_transposed(const float *at, size_t n)
{
	return (struct view){ at, 1, n };
}

/* c = a * b (add: c += a * b); a is m x k, b is k x n, c is m x n, row after row. */
void gemm(float *c, struct view a, struct view b, size_t m, size_t n, size_t k, bool add);

#endif
