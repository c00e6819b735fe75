/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_make.h - descriptions of machines for tests, in the format of override files.
 */
#ifndef TEST_TOPO_MAKE_H
#define TEST_TOPO_MAKE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/topo/topo.h"

/* One line more; 0 or what topo_line() said. */
static inline int topo_add(struct topo *t, struct err *e, const char *line)
{
	char text[512], *eq;
	int rc;

	snprintf(text, sizeof(text), "%s", line);
	eq = strstr(text, " = ");
	ck_assert_ptr_nonnull(eq);
	*eq = '\0';
	rc = topo_line(t, text, eq + 3, e);
	return rc;
}

/* A whole machine; lines end by newline or semicolon.  The caller frees it. */
static inline struct topo *topo_make(const char *lines)
{
	struct topo *t = calloc(1, sizeof(*t));
	char *text = strdup(lines), *rest;
	struct err e = { 0 };

	ck_assert(t && text);
	for (char *l = strtok_r(text, ";\n", &rest); l; l = strtok_r(NULL, ";\n", &rest)) {
		l += strspn(l, " \t");
		if (*l)
			ck_assert_msg(topo_add(t, &e, l) == 0, "%s: %s", l, e.text);
	}
	free(text);
	topo_guess(t);
	ck_assert_msg(topo_check(t, &e) == 0, "%s", e.text);
	return t;
}

#endif
