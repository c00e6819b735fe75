/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - rows of text in aligned columns.
 *
 * Cells are collected, then printed once with every column as wide as its
 * widest cell: words to the left, numbers (columns marked so) to the right, two
 * spaces between.  Width counts UTF-8 characters, not bytes.  An empty cell is
 * printed as "-", so that a column can be cut out by position.
 * Memory: the table's own, grows with the rows; table_free gives it back.
 */
#ifndef TALLY_CLI_TABLE_H
#define TALLY_CLI_TABLE_H

#include <stdio.h>

#include "common/base/base.h"

#define TABLE_COLUMNS_MAX 20u

struct table {
	uint32_t ncols;
	uint32_t right;		/* bit i: column i is aligned to the right */
	char **cells;		/* owned, each of them too; row by row, heads first */
	size_t ncells, room;
	bool failed;		/* out of memory: said by table_print */
};

/* Heads separated by blanks; a head that starts with '>' is a number column. */
void table_init(struct table *t, const char *heads);
void table_free(struct table *t);

/* The next cell of the current row. */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints all rows; false when there was no memory for them. */
bool table_print(const struct table *t, FILE *out);

#endif
