/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - rows of text in aligned columns, as wide as there is room.
 *
 * Cells are collected, then printed once with every column as wide as its
 * widest cell: words to the left, numbers (columns marked so) to the right, two
 * spaces between.  Width counts the columns that a terminal shows: UTF-8, a wide
 * character is two.  An empty cell is printed as "-", so that a column can be cut
 * out by position; a control character as "?".
 *
 * Where the table is wider than the terminal, the least important columns are left
 * out, one after the other, and long texts are shortened with an ellipsis; a last
 * line says how many columns are left out.  No line is ever wider than that.
 *
 * Memory: the table's own, grows with the rows; table_free gives it back.
 */
#ifndef TALLY_CLI_TABLE_H
#define TALLY_CLI_TABLE_H

#include <stdio.h>

#include "common/base/base.h"

#define TABLE_COLUMNS_MAX	24u
#define TABLE_TEXT_LEAST	16u	/* a text is shortened to this before a column goes */

struct table {
	uint32_t ncols;
	struct table_column {
		bool right;		/* a number: aligned to the right */
		bool text;		/* may be shortened */
		uint32_t leaves;	/* the highest is left out first; 0: none before them */
	} col[TABLE_COLUMNS_MAX];
	char **cells;		/* owned, each of them too; row by row, heads first */
	size_t ncells, room;
	bool failed;		/* out of memory: said by table_print */
};

/*
 * Heads separated by blanks.  One that starts with '>' is a number column, with '~' a text
 * that may be shortened; one that ends in ":3" is left out before those with a lower number.
 */
void table_init(struct table *t, const char *heads);
void table_free(struct table *t);

/* The next cell of the current row. */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints all rows within so many columns (0: as wide as they are); false when there was no
 * memory for them. */
bool table_print(const struct table *t, FILE *out, uint32_t columns);

/* Columns of a terminal that UTF-8 text takes. */
size_t table_width_of(const char *text);

#endif
