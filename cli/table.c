// SPDX-License-Identifier: Apache-2.0
/*
 * Cells are stored as text while the caller makes them; when all are there, table_print
 * finds how wide each column would be (measure), makes them fit (fit), and prints.
 * Failure of the heap is remembered and told once, so that callers write cells without
 * looking back.
 */
#include "cli/table.h"

#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define GAP		2u	/* spaces between columns */
#define ELLIPSIS	"\u2026"

/* ---- cells ---- */

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

/* Names are other people's: they draw nothing on the terminal. */
static void tame(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
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
	tame(text);
	add_cell(t, text);
}

/* Adds a column from its head of n bytes, with its marks. */
static void add_head(struct table *t, const char *head, size_t n)
{
	const char *colon = memchr(head, ':', n);
	struct table_column *c = &t->col[t->ncols++];

	c->right = *head == '>';
	c->text = *head == '~';
	if (colon) {
		c->leaves = (uint32_t)atoi(colon + 1);
		n = (size_t)(colon - head);
	}
	if (c->right || c->text) {
		head++;
		n--;
	}
	table_cell(t, "%.*s", (int)n, head);
}

void table_init(struct table *t, const char *heads)
{
	*t = (struct table){ 0 };
	while (*heads) {
		size_t n = strcspn(heads, " ");

		ASSERT(t->ncols < TABLE_COLUMNS_MAX);
		add_head(t, heads, n);
		heads += n;
		heads += strspn(heads, " ");
	}
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

/* ---- widths of text ---- */

/* Of the character at s its bytes, and the columns that it takes; a broken one is one byte. */
static size_t character(const char *s, size_t *columns)
{
	mbstate_t state = { 0 };
	wchar_t wide;
	size_t n = mbrtowc(&wide, s, strlen(s), &state);
	int w;

	*columns = 1;
	if (n == 0 || n > strlen(s))
		return 1;
	w = wcwidth(wide);
	*columns = w < 0 ? 1 : (size_t)w;
	return n;
}

static size_t width_of(const char *s)
{
	size_t sum = 0, columns;

	while (*s) {
		s += character(s, &columns);
		sum += columns;
	}
	return sum;
}

/* UTF-8, whatever the user's locale is: for mbrtowc() and wcwidth() of this thread. */
static locale_t use_utf8(locale_t *before)
{
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);

	*before = uselocale(utf8 ? utf8 : (locale_t)0);
	return utf8;
}

static void use_again(locale_t before, locale_t utf8)
{
	uselocale(before);
	if (utf8)
		freelocale(utf8);
}

size_t table_width_of(const char *text)
{
	locale_t before, utf8 = use_utf8(&before);
	size_t width = width_of(text);

	use_again(before, utf8);
	return width;
}

static void pad(size_t n, FILE *out)
{
	while (n--)
		putc(' ', out);
}

/* At most `width` columns of text, an ellipsis as the last; returns how many it took. */
static size_t put_short(const char *text, size_t width, FILE *out)
{
	size_t used = 0, columns;

	if (width_of(text) <= width) {
		fputs(text, out);
		return width_of(text);
	}
	while (*text) {
		size_t n = character(text, &columns);

		if (used + columns + 1 > width)
			break;
		fwrite(text, 1, n, out);
		text += n;
		used += columns;
	}
	fputs(ELLIPSIS, out);
	return used + 1;
}

/* ---- columns that fit ---- */

struct layout {
	size_t width[TABLE_COLUMNS_MAX];	/* as printed; 0: left out */
	size_t natural[TABLE_COLUMNS_MAX];	/* of the widest cell */
	uint32_t left_out;
};

static void measure(const struct table *t, struct layout *l)
{
	*l = (struct layout){ 0 };
	for (size_t i = 0; i < t->ncells; i++) {
		size_t *w = &l->natural[i % t->ncols];

		*w = MAX(*w, width_of(shown(t->cells[i])));
	}
	memcpy(l->width, l->natural, sizeof(l->width));
}

static size_t total(const struct table *t, const struct layout *l)
{
	size_t sum = 0;

	for (uint32_t i = 0; i < t->ncols; i++)
		sum += l->width[i] ? l->width[i] + GAP : 0;
	return sum ? sum - GAP : 0;
}

/* The next to be left out: the least important, then the last; never the only one. */
static uint32_t least_important(const struct table *t, const struct layout *l)
{
	uint32_t least = 0, columns = 0, last = 0;

	for (uint32_t i = 0; i < t->ncols; i++) {
		if (!l->width[i])
			continue;
		columns++;
		last = i;
		if (t->col[i].leaves > t->col[least].leaves || !l->width[least])
			least = i;
	}
	if (columns < 2)
		return TABLE_COLUMNS_MAX;
	return t->col[least].leaves ? least : last;
}

/* Gives the columns that are left over to columns of text, one to each in turn. */
static void widen(const struct table *t, struct layout *l, size_t columns)
{
	size_t spare = columns - total(t, l);
	bool any = true;

	while (spare && any) {
		any = false;
		for (uint32_t i = 0; i < t->ncols && spare; i++) {
			if (!l->width[i] || l->width[i] >= l->natural[i])
				continue;
			l->width[i]++;
			spare--;
			any = true;
		}
	}
}

static void fit(const struct table *t, struct layout *l, size_t columns)
{
	uint32_t least;

	if (total(t, l) <= columns)
		return;
	for (uint32_t i = 0; i < t->ncols; i++)
		if (t->col[i].text)
			l->width[i] = MIN(l->width[i], MAX((size_t)TABLE_TEXT_LEAST,
							   width_of(t->cells[i])));
	while (total(t, l) > columns) {
		least = least_important(t, l);
		if (least == TABLE_COLUMNS_MAX)
			break;
		l->width[least] = 0;
		l->left_out++;
	}
	if (total(t, l) <= columns) {
		widen(t, l, columns);
		return;
	}
	for (uint32_t i = 0; i < t->ncols; i++)		/* the only one */
		l->width[i] = MIN(l->width[i], columns);
}

/* ---- printing ---- */

static void print_row(const struct table *t, const struct layout *l, char *const *cells,
		      FILE *out)
{
	uint32_t last = 0;

	for (uint32_t i = 0; i < t->ncols; i++)
		last = l->width[i] ? i : last;
	for (uint32_t i = 0; i <= last; i++) {
		const char *text = shown(cells[i]);
		size_t width = MIN(width_of(text), l->width[i]);

		if (!l->width[i])
			continue;
		if (t->col[i].right)
			pad(l->width[i] - width, out);
		width = put_short(text, l->width[i], out);
		if (i < last && !t->col[i].right)
			pad(l->width[i] - width, out);
		fputs(i == last ? "\n" : "  ", out);
	}
}

static void print_left_out(uint32_t n, size_t columns, FILE *out)
{
	char text[64];

	snprintf(text, sizeof(text), "(--wide shows %u more column%s)", n, n == 1 ? "" : "s");
	put_short(text, columns, out);
	putc('\n', out);
}

bool table_print(const struct table *t, FILE *out, uint32_t columns)
{
	struct layout l;
	locale_t before, utf8;

	if (t->failed || t->ncells % t->ncols)
		return false;
	utf8 = use_utf8(&before);
	measure(t, &l);
	if (columns)
		fit(t, &l, columns);
	for (size_t i = 0; i < t->ncells; i += t->ncols)
		print_row(t, &l, t->cells + i, out);
	if (l.left_out)
		print_left_out(l.left_out, columns, out);
	use_again(before, utf8);
	return true;
}
