// SPDX-License-Identifier: Apache-2.0
/*
 * To be preloaded: while the file NO_MEMORY is there, large arrays of pointers cannot be had, or
 * NO_MEMORY_PERMILLE of 1000 allocations, whatever they are for.  The file gets a byte for each.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGE	500

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);

static _Atomic uint64_t asked;

/* In no order that a program could fall into step with. */
static bool by_chance(uint64_t permille)
{
	uint64_t x = atomic_fetch_add(&asked, 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return (x >> 32) % 1000 < permille;
}

/* Whether the file is there; it has one byte more then. */
static bool is_poor(const char *file)
{
	int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);

	if (fd < 0)
		return false;
	(void)!write(fd, "x", 1);
	close(fd);
	return true;
}

static bool fails(bool large)
{
	const char *file = getenv("NO_MEMORY"), *permille = getenv("NO_MEMORY_PERMILLE");

	if (!file || !(permille ? by_chance(strtoul(permille, NULL, 10)) : large) ||
	    !is_poor(file))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return fails(false) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails(n >= LARGE && size == sizeof(void *)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	return size && fails(false) ? NULL : __libc_realloc(p, size);
}
