// SPDX-License-Identifier: Apache-2.0
/* A machine's description from a file, whichever of the two kinds, or from hwloc. */
#include "common/rt/topo_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/rt/ini.h"

static int take_line(void *ctx, uint32_t line, char *name, char *value, struct err *e)
{
	(void)line;
	return topo_line(ctx, name, value, e);
}

/* By its first character that is no white space. */
static int find_source(const char *file, enum topo_source *source, struct err *e)
{
	FILE *f = fopen(file, "re");
	int c;

	if (!f)
		return err_set(e, err_from_errno(errno), "cannot read %s: %s", file,
			       strerror(errno));
	do
		c = getc(f);
	while (c != EOF && isspace(c));
	fclose(f);
	*source = c == '<' ? TOPO_XML : TOPO_LINES;
	return 0;
}

int topo_read(const char *file, struct topo *t, enum topo_source *source, struct err *e)
{
	enum topo_source from = TOPO_LIVE;
	int rc = file ? find_source(file, &from, e) : 0;

	memset(t, 0, sizeof(*t));
	if (rc)
		return rc;
	if (from == TOPO_LINES)
		rc = ini_read(file, take_line, t, e);
	else
		rc = topo_read_hwloc(file, t, e);
	if (rc)
		return rc;
	*source = from;
	return topo_check(t, e) ? err_wrap(e, "%s", file ? file : "hwloc") : 0;
}
