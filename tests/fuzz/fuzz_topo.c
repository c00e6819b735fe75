// SPDX-License-Identifier: Apache-2.0
/*
 * Topology files: any lines give an error or a description that holds, and every such
 * description a plan whose shares add up to one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/topo/local.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct topo t;
static struct local_plan p;

#define must(x) do { if (!(x)) abort(); } while (0)

static void take_line(char *line)
{
	char *eq = strchr(line, '=');
	struct err e;

	if (!eq)
		return;
	*eq = '\0';
	line[strcspn(line, " \t")] = '\0';
	topo_line(&t, line, eq + 1, &e);
}

static void check_group(uint32_t group)
{
	static struct local_piece piece[LOCAL_COPIES_MAX];
	const struct local_group *g = &p.group[group];
	uint32_t n = local_pieces(&p, group, group, CHUNK_BYTES_DEFAULT, piece);
	uint64_t bytes = 0;
	double sum = 0;

	for (uint32_t i = 0; i < g->copies; i++)
		sum += p.copy[g->first_copy + i].share;
	for (uint32_t i = 0; i < n; i++)
		bytes += piece[i].len;
	must(fabs(sum - 1) < 1e-6 && bytes == CHUNK_BYTES_DEFAULT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *rest;
	struct err e;

	must(text);
	memcpy(text, data, size);
	text[size] = '\0';
	memset(&t, 0, sizeof(t));
	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
		take_line(l);
	free(text);
	must((topo_check(&t, &e) == 0) == (t.nodes > 0));
	if (t.nodes == 0)
		return 0;
	topo_guess(&t);
	must(local_plan_make(&t, false, &p, &e) == 0);
	must(isfinite(p.s_per_byte));
	for (uint32_t g = 0; g < p.groups; g++)
		check_group(g);
	return 0;
}
