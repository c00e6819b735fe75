// SPDX-License-Identifier: Apache-2.0
/*
 * A machine's description from a file, whichever of the two kinds, or from hwloc; and which
 * of its cards count.
 */
#include "common/rt/topo_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/rt/host.h"
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

static bool is_rail(const struct topo_card *c, const char *const *rail, uint32_t nrails)
{
	char name[HOST_INTERFACE_LEN];

	for (uint32_t i = 0; i < nrails; i++)
		if (host_interface_of(rail[i], name) &&
		    (!strcmp(name, c->name) || host_interface_is_over(name, c->name)))
			return true;
	return false;
}

void topo_keep_rails(struct topo *t, const char *const *rail, uint32_t nrails)
{
	uint32_t kept = 0;

	for (uint32_t c = 0; c < t->cards; c++)
		if (is_rail(&t->card[c], rail, nrails))
			t->card[kept++] = t->card[c];
	if (kept)
		t->cards = kept;
	else
		topo_drop_slow_cards(t);
}

int topo_read_used(const char *file, const char *const *rail, uint32_t nrails, struct topo *t,
		   uint32_t *left_out, struct err *e)
{
	enum topo_source source;
	int rc = topo_read(file, t, &source, e);
	uint32_t cards = t->cards;

	if (rc)
		return rc;
	if (source == TOPO_LIVE)
		topo_keep_rails(t, rail, nrails);
	else if (source == TOPO_XML)
		topo_drop_slow_cards(t);
	*left_out = cards - t->cards;
	return 0;
}
