// SPDX-License-Identifier: Apache-2.0
/* quant_c.c - q32's loops, compiled for the level "c" of kern.h. */
#define QUANT_TABLE quant_table_c

#include "common/kern/quant_body.h"
