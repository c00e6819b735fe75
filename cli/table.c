// SPDX-License-Identifier: Apache-2.0
/*
 * Two passes: cells are stored as text while the caller makes them, widths are
 * found and everything is printed at the end.  Failure of the heap is remembered
 * and told once, so that callers write cells without looking back.
 */
#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void add_cell(struct table *t, char *text)
{
	if (t->ncells == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		char **cells = realloc(t->cells, room * sizeof(*cells));

		if (!cells) {
			free(text);
			t->failed = true;
			return;
		}
		t->cells = cells;
		t->room = room;
	}
	t->cells[t->ncells++] = text;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		t->failed = true;
		return;
	}
	add_cell(t, text);
}

void table_init(struct table *t, const char *heads)
{
	uint32_t ncols = 0;

	*t = (struct table){ 0 };
	while (*heads) {
		size_t n = strcspn(heads, " ");

		ASSERT(ncols < TABLE_COLUMNS_MAX);
		if (*heads == '>') {
			t->right |= 1u << ncols;
			heads++;
			n--;
		}
		table_cell(t, "%.*s", (int)n, heads);
		ncols++;
		heads += n;
		heads += strspn(heads, " ");
	}
	t->ncols = ncols;
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->ncells; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){ 0 };
}

static const char *shown(const char *cell)
{
	return *cell ? cell : "-";
}

/* Characters: every byte of UTF-8 but the continuation ones. */
static size_t width_of(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void pad(size_t n, FILE *out)
{
	while (n--)
		putc(' ', out);
}

bool table_print(const struct table *t, FILE *out)
{
	size_t width[TABLE_COLUMNS_MAX] = { 0 };

	if (t->failed || t->ncells % t->ncols)
		return false;
	for (size_t i = 0; i < t->ncells; i++)
		width[i % t->ncols] = MAX(width[i % t->ncols], width_of(shown(t->cells[i])));
	for (size_t i = 0; i < t->ncells; i++) {
		uint32_t col = (uint32_t)(i % t->ncols);
		bool last = col + 1 == t->ncols;
		const char *text = shown(t->cells[i]);
		size_t room = width[col] - width_of(text);

		if (t->right >> col & 1)
			pad(room, out);
		fputs(text, out);
		if (!last && !(t->right >> col & 1))
			pad(room, out);
		fputs(last ? "\n" : "  ", out);
	}
	return true;
}
