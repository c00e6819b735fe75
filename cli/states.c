// SPDX-License-Identifier: Apache-2.0
/* Nodes by state.  Words come from the scheduler; one that is not known here is shown, too. */
#include "cli/states.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "cli/table.h"
#include "common/base/parse.h"
#include "common/base/utf8.h"

#define HEADLINE_NAMES	4u
#define LINE_MAX	(2 * ERR_TEXT_MAX)

struct line {
	char text[LINE_MAX + 1];
	size_t used;
};

__attribute__((format(printf, 2, 3)))
static void add(struct line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->text + l->used, sizeof(l->text) - l->used, fmt, ap);
	va_end(ap);
	utf8_mend(l->text + l->used);
	l->used += strlen(l->text + l->used);
}

static bool is_up(const struct msg_node_row *n)
{
	return !strcmp(n->state, "up");
}

/* Whole seconds: a state does not change faster than people read. */
static const char *age_text(char buf[32], uint64_t ms)
{
	return fmt_seconds(buf, 32, (double)(ms / 1000));
}

uint32_t states_count(const struct msg_report *r, uint32_t kind, const char *state)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->nnodes; i++)
		count += r->nodes[i].kind == kind &&
			 (!state || !strcmp(r->nodes[i].state, state));
	return count;
}

/* ---- for people ---- */

static void count_kind(struct line *l, const struct msg_report *r, uint32_t kind)
{
	uint32_t all = states_count(r, kind, NULL), up = states_count(r, kind, "up");

	if (up < all)
		add(l, "%" PRIu32 " of %" PRIu32 " %s%s up", up, all, msg_kind_name(kind),
		    plural(all));
	else
		add(l, "%" PRIu32 " %s%s up", up, msg_kind_name(kind), plural(up));
}

const char *states_headline(char *buf, size_t size, const struct msg_report *r)
{
	uint32_t named = 0;
	struct line l = { .used = 0 };
	char age[32];

	count_kind(&l, r, NODE_AGENT);
	add(&l, ", ");
	count_kind(&l, r, NODE_SERVER);
	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];

		if (is_up(n) && !n->bypassed[0])
			continue;
		if (++named > HEADLINE_NAMES)
			continue;
		if (is_up(n))
			add(&l, ", %.64s bypassed", n->name);
		else
			add(&l, ", %.64s %s %s", n->name, n->state, age_text(age, n->state_ms));
	}
	if (named > HEADLINE_NAMES)
		add(&l, " and %" PRIu32 " more", named - HEADLINE_NAMES);
	if (r->nrefused)
		add(&l, ", %" PRIu32 " refused", r->nrefused);
	snprintf(buf, size, "%s", l.text);
	return buf;
}

static void more(uint32_t listed, const char *label, states_line *line, void *ctx)
{
	char text[64];

	if (listed <= STATES_LISTED)
		return;
	snprintf(text, sizeof(text), "and %" PRIu32 " more; tally nodes shows all",
		 listed - STATES_LISTED);
	line(ctx, label, text);
}

static void lines_not_up(const struct msg_report *r, states_line *line, void *ctx)
{
	uint32_t listed = 0;
	char age[32];

	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];
		bool gone = !strcmp(n->state, "dead") || !strcmp(n->state, "left");
		struct line l = { .used = 0 };

		if (is_up(n) || ++listed > STATES_LISTED)
			continue;
		add(&l, "%s %.128s of machine %.64s is %s since %s", msg_kind_name(n->kind),
		    n->name, n->machine, n->state, age_text(age, n->state_ms));
		if (n->why[0])
			add(&l, ": %s", n->why);
		if (gone)
			add(&l, "; 'tally forget %.128s' if it shall not come back", n->name);
		line(ctx, "not up", l.text);
	}
	more(listed, "not up", line, ctx);
}

static void lines_bypassed(const struct msg_report *r, states_line *line, void *ctx)
{
	uint32_t listed = 0;

	for (uint32_t i = 0; i < r->nnodes; i++) {
		const struct msg_node_row *n = &r->nodes[i];
		struct line l = { .used = 0 };

		if (!n->bypassed[0] || ++listed > STATES_LISTED)
			continue;
		add(&l, "server %.128s by %s", n->name, n->bypassed);
		line(ctx, "bypassed", l.text);
	}
	more(listed, "bypassed", line, ctx);
}

static void lines_refused(const struct msg_report *r, states_line *line, void *ctx)
{
	char age[32];

	for (uint32_t i = 0; i < MIN(r->nrefused, STATES_LISTED); i++) {
		const struct msg_refused_row *f = &r->refused[i];
		struct line l = { .used = 0 };

		add(&l, "%s%s%.128s", f->kind ? msg_kind_name(f->kind) : "a connection",
		    f->name[0] ? " " : "", f->name);
		if (f->addr[0])
			add(&l, " from %s", f->addr);
		add(&l, ", %" PRIu64 " time%s, last %s ago: %s", f->count, plural(f->count),
		    age_text(age, f->age_ms), f->why);
		line(ctx, "refused", l.text);
	}
	more(r->nrefused, "refused", line, ctx);
}

void states_lines(const struct msg_report *r, states_line *line, void *ctx)
{
	lines_not_up(r, line, ctx);
	lines_bypassed(r, line, ctx);
	lines_refused(r, line, ctx);
}

const char *states_note(char *buf, size_t size, const struct msg_node_row *n)
{
	const char *note = n->note[0] ? n->note : n->last.note;
	struct line l = { .used = 0 };

	if (!is_up(n))
		add(&l, "%s", n->why);
	if (n->bypassed[0])
		add(&l, "%sbypassed by %s", l.used ? "; " : "", n->bypassed);
	if (note[0])
		add(&l, "%s%s", l.used ? "; " : "", note);
	snprintf(buf, size, "%s", l.text);
	utf8_mend(buf);
	return buf;
}

const char states_refused_columns[] =
"  REFUSED       name that it gave, if it came so far\n"
"  KIND          agent, server, or unknown\n"
"  ADDRESS       that it came from\n"
"  TIMES         that it was refused for this reason\n"
"  LAST          since the last time\n"
"  REASON        why, and what to do\n";

bool states_refused_table(const struct msg_report *r, FILE *out, uint32_t columns)
{
	struct table t;
	bool ok;

	if (!r->nrefused)
		return true;
	putc('\n', out);
	table_init(&t, "~REFUSED KIND:3 ~ADDRESS >TIMES:2 >LAST:1 ~REASON");
	for (uint32_t i = 0; i < r->nrefused; i++) {
		const struct msg_refused_row *f = &r->refused[i];
		char age[32];

		table_cell(&t, "%s", f->name);
		table_cell(&t, "%s", msg_kind_name(f->kind));
		table_cell(&t, "%s", f->addr);
		table_cell(&t, "%" PRIu64, f->count);
		table_cell(&t, "%s", age_text(age, f->age_ms));
		table_cell(&t, "%s", f->why);
	}
	ok = table_print(&t, out, columns);
	table_free(&t);
	return ok;
}

/* ---- for programs ---- */

static void counts_json(const struct msg_report *r, struct json *j, const char *key, uint32_t kind)
{
	json_object(j, key);
#define X(state, help) json_u64(j, #state, states_count(r, kind, #state));
	STATES_TABLE(X)
#undef X
	json_end_object(j);
}

void states_counts_json(const struct msg_report *r, struct json *j)
{
	counts_json(r, j, "agents_by_state", NODE_AGENT);
	counts_json(r, j, "servers_by_state", NODE_SERVER);
}

void states_refused_json(const struct msg_report *r, struct json *j)
{
	json_array(j, "refused");
	for (uint32_t i = 0; i < r->nrefused; i++) {
		const struct msg_refused_row *f = &r->refused[i];

		json_object(j, NULL);
		json_str(j, "kind", msg_kind_name(f->kind));
		json_str(j, "name", f->name);
		json_str(j, "address", f->addr);
		json_str(j, "code", err_name(f->code));
		json_str(j, "reason", f->why);
		json_u64(j, "count", f->count);
		json_u64(j, "age_ms", f->age_ms);
		json_end_object(j);
	}
	json_end_array(j);
}
