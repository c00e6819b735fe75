/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap_fault.h - a heap that says no, for what daemons allocate with libc's.
 *
 * Replaces malloc, calloc and realloc of the program's own code, not of the
 * libraries'.  Sanitizers have a heap of their own that must stay: there nothing
 * fails, and HEAP_FAULTS is 0.
 */
#ifndef TALLY_TESTS_HEAP_FAULT_H
#define TALLY_TESTS_HEAP_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEAP_FAULTS 0
#else
#define HEAP_FAULTS 1
#endif

/* This thread's n-th allocation from now on fails, 1 being the next; 0: none does. */
static _Thread_local uint64_t heap_fail_at __attribute__((unused));
/* While it is set, no thread but those that set heap_own gets any memory. */
static atomic_bool heap_fail_others __attribute__((unused));
static _Thread_local bool heap_own __attribute__((unused));

#if HEAP_FAULTS
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);

static bool heap_fails(void)
{
	if (heap_fail_others && !heap_own)
		return true;
	return heap_fail_at && !--heap_fail_at;
}

void *malloc(size_t bytes)
{
	return heap_fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	return heap_fails() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
	return heap_fails() ? NULL : __libc_realloc(p, bytes);
}
#endif

#endif
