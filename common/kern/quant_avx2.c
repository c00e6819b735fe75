// SPDX-License-Identifier: Apache-2.0
/* quant_avx2.c - q32's loops, compiled for the level "avx2" of kern.h. */
#define QUANT_TABLE quant_table_avx2

#include "common/kern/quant_body.h"
