// SPDX-License-Identifier: Apache-2.0
/*
 * The picture is a walk down from every NUMA node.  Each device is one line in the
 * format of a topology file, indented below what it hangs on.
 *
 * The plan is told from the result backwards: what is done, what holds it back and how
 * long a GiB takes, what other groups would take, then group by group who and why.
 */
#include "cli/machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"
#include "common/base/parse.h"

#define GIB 0x1p30

/* ---- the picture ---- */

static void indent(uint32_t depth, FILE *out)
{
	fprintf(out, "%*s", (int)(2 * depth), "");
}

struct named_rate {
	const char *key;
	const struct topo_rate *rate;
};

/* " rate=126gbit" of what is known; then, in a comment, of what is not. */
static void print_rates(const struct named_rate *r, uint32_t count, FILE *out)
{
	const char *intro = "  # guessed:";

	for (uint32_t i = 0; i < count; i++)
		if (r[i].rate->bits_per_s && !r[i].rate->guessed)
			fprintf(out, " %s=%.6ggbit", r[i].key, (double)r[i].rate->bits_per_s / 1e9);
	for (uint32_t i = 0; i < count; i++)
		if (r[i].rate->guessed) {
			fprintf(out, "%s %s=%.6ggbit", intro, r[i].key,
				(double)r[i].rate->bits_per_s / 1e9);
			intro = "";
		}
	putc('\n', out);
}

static const char *name_of(const struct topo *t, const struct topo_place *at)
{
	return at->sw == TOPO_NONE ? t->node[at->node].name : t->sw[at->sw].name;
}

static bool is_at(const struct topo_place *a, const struct topo_place *b)
{
	return a->sw == b->sw && (a->sw != TOPO_NONE || a->node == b->node);
}

static void print_devices(const struct topo *t, const struct topo_place *at, uint32_t depth,
			  FILE *out)
{
	for (uint32_t i = 0; i < t->gpus; i++) {
		const struct topo_gpu *g = &t->gpu[i];

		if (!is_at(&g->at, at))
			continue;
		indent(depth, out);
		fprintf(out, "gpu = %s under=%s", g->name, name_of(t, at));
		print_rates((struct named_rate[]){ { "rate", &g->pcie },
			    { "nvswitch", &g->nvswitch } }, 2, out);
	}
	for (uint32_t i = 0; i < t->cards; i++) {
		const struct topo_card *c = &t->card[i];

		if (!is_at(&c->at, at))
			continue;
		indent(depth, out);
		fprintf(out, "card = %s under=%s", c->name, name_of(t, at));
		print_rates((struct named_rate[]){ { "rate", &c->pcie }, { "net", &c->net } }, 2,
			    out);
	}
}

static void print_below(const struct topo *t, const struct topo_place *at, uint32_t depth,
			FILE *out)
{
	print_devices(t, at, depth, out);
	for (uint32_t i = 0; i < t->switches; i++) {
		struct topo_place here = { i, at->node };

		if (!is_at(&t->sw[i].at, at))
			continue;
		indent(depth, out);
		fprintf(out, "switch = %s under=%s", t->sw[i].name, name_of(t, at));
		print_rates(&(struct named_rate){ "rate", &t->sw[i].up }, 1, out);
		print_below(t, &here, depth + 1, out);
	}
}

static bool has_sockets(const struct topo *t)
{
	for (uint32_t i = 1; i < t->nodes; i++)
		if (t->node[i].socket != t->node[0].socket)
			return true;
	return false;
}

void machine_print(const struct topo *t, FILE *out)
{
	for (uint32_t i = 0; i < t->nodes; i++) {
		struct topo_place at = { TOPO_NONE, i };

		fprintf(out, "node = %s socket=%u", t->node[i].name, t->node[i].socket);
		print_rates(&(struct named_rate){ "memory", &t->node[i].memory }, 1, out);
		print_below(t, &at, 1, out);
	}
	for (uint32_t a = 0; a < t->gpus; a++)
		for (uint32_t b = a + 1; b < t->gpus; b++)
			if (t->nvlink[a][b])
				fprintf(out, "nvlink = %s %s %.6ggbit\n", t->gpu[a].name,
					t->gpu[b].name, (double)t->nvlink[a][b] / 1e9);
	if (has_sockets(t))
		fprintf(out, "%ssockets = %.6ggbit%s\n", t->sockets.guessed ? "# " : "",
			(double)t->sockets.bits_per_s / 1e9, t->sockets.guessed ? ", guessed" : "");
}

/* ---- the plan ---- */

#define LINK_NAME_MAX (2 * TOPO_NAME_MAX + 32)

static const char *link_name(const struct topo *t, const struct local_link *l,
			     char buf[LINK_NAME_MAX])
{
	const char *kind = local_link_text(l->kind);

	switch (l->kind) {
	case LOCAL_LINK_NET:
	case LOCAL_LINK_CARD:
		snprintf(buf, LINK_NAME_MAX, "%s %s", kind, t->card[l->a].name);
		break;
	case LOCAL_LINK_SWITCH:
		snprintf(buf, LINK_NAME_MAX, "%s %s", kind, t->sw[l->a].name);
		break;
	case LOCAL_LINK_GPU:
	case LOCAL_LINK_NVSWITCH:
		snprintf(buf, LINK_NAME_MAX, "%s %s", kind, t->gpu[l->a].name);
		break;
	case LOCAL_LINK_SOCKETS:
		snprintf(buf, LINK_NAME_MAX, "%s %u-%u", kind, l->a, l->b);
		break;
	case LOCAL_LINK_MEMORY:
		snprintf(buf, LINK_NAME_MAX, "%s %s", kind, t->node[l->a].name);
		break;
	case LOCAL_LINK_NVLINK:
		snprintf(buf, LINK_NAME_MAX, "%s %s-%s", kind, t->gpu[l->a].name,
			 t->gpu[l->b].name);
		break;
	}
	return buf;
}

/* "reduce 0.75/0.75, copy out 0.25/0" */
static void cell_causes(struct table *table, const struct local_link *l)
{
	char text[256] = "nothing";
	size_t at = 0;

	for (int c = 0; c < LOCAL_CAUSES; c++)
		if (l->load[LOCAL_UP][c] > 0 || l->load[LOCAL_DOWN][c] > 0)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %.3g/%.3g",
					       at ? ", " : "", local_cause_text(c),
					       l->load[LOCAL_UP][c], l->load[LOCAL_DOWN][c]);
	table_cell(table, "%s", text);
}

static bool print_links(const struct topo *t, const struct local_plan *p, FILE *out,
			uint32_t columns)
{
	struct table table;
	bool ok;

	table_init(&table, "LINK >GBIT/S >UP >DOWN >BUSY ~WHY");
	for (uint32_t i = 0; i < p->links; i++) {
		const struct local_link *l = &p->link[i];
		char name[LINK_NAME_MAX];

		if (!l->rate.bits_per_s)
			continue;
		table_cell(&table, "%s", link_name(t, l, name));
		table_cell(&table, "%.4g%s", (double)l->rate.bits_per_s / 1e9,
			   l->rate.guessed ? "?" : "");
		table_cell(&table, "%.3f", local_load(l, LOCAL_UP));
		table_cell(&table, "%.3f", local_load(l, LOCAL_DOWN));
		table_cell(&table, "%.0f %%", p->s_per_byte > 0 ?
			   100 * local_link_time(l) / p->s_per_byte : 0);
		cell_causes(&table, l);
	}
	ok = table_print(&table, out, columns);
	table_free(&table);
	return ok;
}

/* Shares by each card apart, where a root has several. */
static void print_roots(const struct topo *t, const struct local_plan *p,
			const struct local_group *g, FILE *out)
{
	fprintf(out, "  roots    ");
	for (uint32_t i = g->first_copy; i < g->first_copy + g->copies; i++) {
		const struct local_copy *c = &p->copy[i];

		fprintf(out, "%s%s %.1f %%", i > g->first_copy ? ", " : "", t->gpu[c->gpu].name,
			100 * c->share);
		if (c->card != TOPO_NONE)
			fprintf(out, " by %s", t->card[c->card].name);
	}
	fprintf(out, "%s\n", g->whole ? "; whole chunks, by turns" :
		g->copies > 1 ? "; of every chunk" : "");
}

static void print_group(const struct topo *t, const struct local_plan *p, uint32_t group, FILE *out)
{
	const struct local_group *g = &p->group[group];
	char why[256];

	fprintf(out, "group %-4u ", group);
	for (uint32_t i = g->first; i < g->first + g->count; i++)
		fprintf(out, "%s%s", i > g->first ? " " : "", t->gpu[p->member[i]].name);
	fprintf(out, "%s\n", g->count == 1 ? "" : ", a ring");
	fprintf(out, "  why      %s\n", local_why(p, group, why, sizeof(why)));
	print_roots(t, p, g, out);
}

/* A grouping that takes the same time is mostly the same one. */
static void print_others(const struct local_plan *p, FILE *out)
{
	for (int g = 0; g < LOCAL_GROUPINGS; g++)
		if (isinf(p->other_s_per_byte[g]))
			fprintf(out, "instead    %s: their links form no ring\n",
				local_grouping_text(g));
		else if (p->other_s_per_byte[g] > p->s_per_byte * 1.005)
			fprintf(out, "instead    %s: %.2f x that time\n", local_grouping_text(g),
				p->other_s_per_byte[g] / p->s_per_byte);
}

static void print_sum(const struct local_plan *p, FILE *out)
{
	static const char *const why[] = {
		[LOCAL_GROUP_JOINED] = "they reach each other in host memory only",
		[LOCAL_GROUP_BY_SWITCH] = "faster than over the NVLinks between switches",
		[LOCAL_GROUP_ALONE] = "the GPUs' links are too narrow to reduce over them first",
	};
	bool no_ring = isinf(p->other_s_per_byte[LOCAL_GROUP_JOINED]);

	fprintf(out, "sum        the CPU adds what the %u groups bring: %s\n", p->groups,
		no_ring ? "their NVLinks form no ring" : why[p->grouping]);
}

bool machine_print_plan(const struct topo *t, const struct local_plan *p, FILE *out,
			uint32_t columns)
{
	char name[LINK_NAME_MAX], why[256], time[32];

	fprintf(out, "plan       %s", local_strategy_text(p->strategy));
	fprintf(out, "%s%s\n", t->gpus > 1 ? "; " : "",
		t->gpus > 1 ? local_grouping_text(p->grouping) : "");
	if (p->s_per_byte > 0) {
		fprintf(out, "time       %s for each GiB of gradients, predicted\n",
			fmt_seconds(time, sizeof(time), p->s_per_byte * GIB));
		fprintf(out, "busiest    %s: %s\n", link_name(t, &p->link[p->bottleneck], name),
			local_bottleneck_text(p, why, sizeof(why)));
	}
	print_others(p, out);
	if (p->groups > 1)
		print_sum(p, out);
	for (uint32_t i = 0; i < p->groups; i++)
		print_group(t, p, i, out);
	fprintf(out, "\nBytes on each link for each byte of gradients.  UP is toward the CPU; of a "
		"wire sent,\nof a memory written, of an NVLink from the first to the second, of an "
		"NVSwitch out of the\nGPU.  '?': the rate is a guess.\n");
	return print_links(t, p, out, columns);
}
