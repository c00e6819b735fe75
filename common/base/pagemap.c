// SPDX-License-Identifier: Apache-2.0
/*
 * pagemap.c - which pages of a slab are taken: a bitmap, first fit.
 *
 * A set bit is a taken page.  Searching skips 64 pages at a time; `hint` keeps a
 * long prefix of taken pages from being walked again.  Freed runs need no
 * merging: neighbours in a bitmap are merged by being neighbours.
 */
#include "common/base/bytes.h"
#include "common/base/pagemap.h"

void pagemap_init(struct pagemap *m, uint64_t *words, uint32_t pages)
{
	memset(words, 0, BITS_WORDS((size_t)pages) * sizeof(*words));
	*m = (struct pagemap){ .words = words, .pages = pages };
}

/* First page >= from, < end, whose bit equals `taken`; end: none. */
static uint32_t find_next(const struct pagemap *m, uint32_t from, uint32_t end, bool taken)
{
	uint64_t i = from, word;

	while (i < end) {
		word = m->words[i / 64] ^ (taken ? 0 : UINT64_MAX);
		word >>= i % 64;
		if (word)
			return (uint32_t)MIN(i + (uint64_t)__builtin_ctzll(word), end);
		i = (i / 64 + 1) * 64;
	}
	return end;
}

uint32_t pagemap_get(struct pagemap *m, uint32_t n)
{
	uint32_t first, end;

	ASSERT(n >= 1);
	m->hint = first = find_next(m, m->hint, m->pages, false);
	while (n <= m->pages - first) {
		end = find_next(m, first, first + n, true);
		if (end == first + n) {
			for (uint32_t i = first; i < end; i++)
				bits_set(m->words, i);
			m->used += n;
			if (first == m->hint)
				m->hint = end;
			return first;
		}
		first = find_next(m, end, m->pages, false);
	}
	return UINT32_MAX;
}

bool pagemap_take(struct pagemap *m, uint32_t first, uint32_t n)
{
	if (!n || !range_ok(first, n, m->pages) ||
	    find_next(m, first, first + n, true) != first + n)
		return false;
	for (uint32_t i = first; i < first + n; i++)
		bits_set(m->words, i);
	m->used += n;
	return true;
}

void pagemap_put(struct pagemap *m, uint32_t first, uint32_t n)
{
	ASSERT(n >= 1 && range_ok(first, n, m->pages));
	for (uint32_t i = first; i < first + n; i++) {
		ASSERT(bits_test(m->words, i));
		bits_clear(m->words, i);
	}
	m->used -= n;
	m->hint = MIN(m->hint, first);
}
