// SPDX-License-Identifier: Apache-2.0
/* quant_avx512.c - q32's loops, compiled for the level "avx512" of kern.h. */
#define QUANT_TABLE quant_table_avx512

#include "common/kern/quant_body.h"
