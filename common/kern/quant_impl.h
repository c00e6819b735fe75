/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_impl.h - what the levels of q32 share; for common/kern only.
 *
 * Functions of a table work on one block of at most QUANT_BLOCK elements in memory that is aligned
 * as its type, and never read what they have written.
 */
#ifndef TALLY_KERN_QUANT_IMPL_H
#define TALLY_KERN_QUANT_IMPL_H

#include "common/base/base.h"

struct quant_table {
	uint32_t (*largest)(const float *x, uint32_t len);	/* bits of the largest |x| */
	void (*ints)(const float *x, uint32_t len, float scale, int32_t *q);
	void (*add_ints)(const float *x, uint32_t len, float scale, int32_t *sum);
	void (*shift_down)(int32_t *q, uint32_t len, uint32_t shift);
	void (*floats)(const int32_t *sum, uint32_t len, double scale, float *out);
	void (*floats_divided)(const int32_t *sum, uint32_t len, double scale, double div,
			       float *out);
	void (*from_f16)(const uint16_t *x, uint32_t len, float *out);
	void (*from_bf16)(const uint16_t *x, uint32_t len, float *out);
	void (*to_f16)(const float *x, uint32_t len, uint16_t *out);
	void (*to_bf16)(const float *x, uint32_t len, uint16_t *out);
};

extern const struct quant_table quant_table_c, quant_table_avx2, quant_table_avx512;

#endif
