// SPDX-License-Identifier: Apache-2.0
/*
 * Large arrays of pointers cannot be had while the file NO_MEMORY is there: to be preloaded.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGE	500

extern void *__libc_calloc(size_t n, size_t size);

void *calloc(size_t n, size_t size)
{
	const char *file = n >= LARGE && size == sizeof(void *) ? getenv("NO_MEMORY") : NULL;

	if (!file || access(file, F_OK))
		return __libc_calloc(n, size);
	errno = ENOMEM;
	return NULL;
}
