// SPDX-License-Identifier: Apache-2.0
#include "client/mem.h"

#include <stdlib.h>
#include <string.h>

void *lt_mem_new(size_t count, size_t size)
{
	if (tally_mem_test_fails && tally_mem_test_fails())
		return NULL;
	return calloc(count ? count : 1, size);
}

void lt_mem_free(void *p)
{
	free(p);
}

bool lt_mem_reserve(uint8_t **p, size_t *size, size_t want)
{
	uint8_t *bigger;

	if (want <= *size)
		return true;
	bigger = lt_mem_new(want, 1);
	if (!bigger)
		return false;
	if (*size)
		memcpy(bigger, *p, *size);
	lt_mem_free(*p);
	*p = bigger;
	*size = want;
	return true;
}
