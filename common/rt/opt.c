// SPDX-License-Identifier: Apache-2.0
/*
 * Options: one table makes the parser, the file reader, the help and the errors.
 *
 * A value goes through set_value() whatever it came from; `enum origin` says where
 * that was, and ini_read() in which line.  The order is defaults, then the file,
 * then the command line, wherever --config stands on it.  A list given by a later
 * source replaces the earlier one's.  The free options (--config, --check, ...)
 * are rows like any other, in a table of our own.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/rt/ini.h"
#include "common/rt/opt.h"

#ifndef TALLY_VERSION
#define TALLY_VERSION "0.1.0"
#endif

#define ROWS_MAX	64u
#define NEAR_ENOUGH	3u		/* edits between a typo and what was meant */
#define HELP_COLUMNS	80u

struct own {				/* the fields of the free options */
	const char *config;
	bool check, show_config, help, version;
};

static const struct opt own_rows[] = {
	{ .name = "config", .type = OPT_STR, .offset = offsetof(struct own, config),
	  .arg = "FILE", .help = "read \"name = value\" lines; the command line wins" },
	{ .name = "check", .type = OPT_FLAG, .offset = offsetof(struct own, check),
	  .help = "say whether the options are right, and exit" },
	{ .name = "show-config", .type = OPT_FLAG, .offset = offsetof(struct own, show_config),
	  .help = "print every option as file and command line set it, and exit" },
	{ .name = "help", .type = OPT_FLAG, .offset = offsetof(struct own, help),
	  .help = "print this, and exit" },
	{ .name = "version", .type = OPT_FLAG, .offset = offsetof(struct own, version),
	  .help = "print the version, and exit" },
};

static const struct opt_program own_program = {
	.table = own_rows, .count = ARRAY_SIZE(own_rows),
};

enum origin { FROM_NOWHERE, FROM_DEFAULT, FROM_FILE, FROM_ARGV };

struct parse {
	const struct opt_program *p;
	void *fields;
	struct own own;
	uint8_t seen[ROWS_MAX];		/* enum origin of the last value of each row */
	FILE *errout;
};

/* ---- complaints ---- */

/* Says it, and returns e's code. */
static int complain(const struct parse *ps, const struct err *e)
{
	fprintf(ps->errout, "%s: %s\n", ps->p->name, e->text);
	return e->code;
}

/* Levenshtein, one row at a time; names longer than a row are far from everything. */
static uint32_t distance(const char *a, const char *b)
{
	uint8_t row[64];
	size_t la = strlen(a), lb = strlen(b);

	if (la >= sizeof(row) || lb >= sizeof(row))
		return UINT32_MAX;
	for (size_t j = 0; j <= lb; j++)
		row[j] = (uint8_t)j;
	for (size_t i = 1; i <= la; i++) {
		uint8_t diagonal = row[0];

		row[0] = (uint8_t)i;
		for (size_t j = 1; j <= lb; j++) {
			uint8_t change = (uint8_t)(diagonal + (a[i - 1] != b[j - 1]));

			diagonal = row[j];
			row[j] = (uint8_t)MIN(change, MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[lb];
}

static void find_nearest(const struct opt_program *p, const char *name, const char **best,
			 uint32_t *best_distance)
{
	for (uint32_t i = 0; i < p->count; i++) {
		uint32_t d = distance(name, p->table[i].name);

		/* An unfinished name is near, however much is missing. */
		if (strncmp(name, p->table[i].name, strlen(name)) == 0 && name[0])
			d = 1;
		if (d < *best_distance) {
			*best = p->table[i].name;
			*best_distance = d;
		}
	}
}

static int unknown(const struct parse *ps, enum origin from, const char *name, struct err *e)
{
	const char *dashes = from == FROM_ARGV ? "--" : "";
	const char *best = NULL;
	uint32_t best_distance = NEAR_ENOUGH + 1;

	find_nearest(ps->p, name, &best, &best_distance);
	if (from == FROM_ARGV)
		find_nearest(&own_program, name, &best, &best_distance);
	if (best)
		return err_set(e, TALLY_EINVAL, "unknown option %s%.200s (did you mean %s%s?)",
			       dashes, name, dashes, best);
	return err_set(e, TALLY_EINVAL, "unknown option %s%.200s (--help lists them)", dashes,
		       name);
}

/* ---- values ---- */

static const struct opt *find_row(const struct opt_program *p, const char *name)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (strcmp(p->table[i].name, name) == 0)
			return &p->table[i];
	return NULL;
}

static int set_number(const struct opt *o, const char *value, uint64_t *field, struct err *e)
{
	uint64_t max = o->max ? o->max : UINT64_MAX;

	if (o->type == OPT_U64)
		return parse_u64(value, o->min, max, field, e);
	if (o->type == OPT_BYTES)
		return parse_bytes(value, o->min, max, field, e);
	return parse_bitrate(value, o->min, max, field, e);
}

static int set_flag(const char *value, bool *field, struct err *e)
{
	static const char *const words[][2] = {
		{ "no", "yes" }, { "off", "on" }, { "false", "true" }, { "0", "1" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		for (int on = 0; on < 2; on++)
			if (strcmp(value, words[i][on]) == 0) {
				*field = on;
				return 0;
			}
	return err_set(e, TALLY_EINVAL, "must be yes or no");
}

static bool is_list(const struct opt *o)
{
	return o->type == OPT_ENDPOINTS || o->type == OPT_RAILS;
}

/*
 * Checks an option that is an address. The port may be missing: the user of the address has a
 * default.
 */
static int check_address(const struct opt *o, const char *value, struct err *e)
{
	char host[ADDR_LEN_MAX + 1];
	uint64_t bits_per_s;
	uint16_t port;

	if (o->type == OPT_LISTEN)
		return parse_listen(value, 1, host, &port, e);
	if (o->type == OPT_PEER)
		return parse_peer(value, 1, host, &port, e);
	if (o->type == OPT_RAILS)
		return parse_rail(value, host, &bits_per_s, e);
	return parse_endpoint(value, 1, host, &port, &bits_per_s, e);
}

static int add_to_list(struct opt_list *list, const char *value, bool fresh, struct err *e)
{
	if (fresh)
		list->n = 0;
	if (list->n == OPT_LIST_MAX)
		return err_set(e, TALLY_EINVAL, "given more than %u times", OPT_LIST_MAX);
	list->v[list->n++] = value;
	return 0;
}

/* fresh: the first value of this source. */
static int set_field(const struct opt *o, void *fields, const char *value, bool fresh,
		     struct err *e)
{
	void *field = (uint8_t *)fields + o->offset;
	int code;

	switch (o->type) {
	case OPT_STR:
		*(const char **)field = value;
		return 0;
	case OPT_LISTEN:
	case OPT_PEER:
		*(const char **)field = value;
		return check_address(o, value, e);
	case OPT_ENDPOINTS:
	case OPT_RAILS:
		code = check_address(o, value, e);
		return code ? code : add_to_list(field, value, fresh, e);
	case OPT_FLAG:
		return set_flag(value, field, e);
	case OPT_U64:
	case OPT_BYTES:
	case OPT_BITRATE:
		return set_number(o, value, field, e);
	}
	ASSERT(!"an option of a type that there is");
	return TALLY_EINTERNAL;
}

static int set_value(struct parse *ps, enum origin from, const struct opt *o,
		     const char *value, struct err *e)
{
	uint8_t *seen = &ps->seen[o - ps->p->table];

	if (set_field(o, ps->fields, value, *seen != from, e) < 0)
		return err_wrap(e, "%s%s '%.200s'", from == FROM_ARGV ? "--" : "", o->name, value);
	*seen = (uint8_t)from;
	return 0;
}

static void set_defaults(struct parse *ps)
{
	struct err e;

	ASSERT(ps->p->count <= ROWS_MAX);
	for (uint32_t i = 0; i < ps->p->count; i++) {
		const struct opt *o = &ps->p->table[i];

		ASSERT(!o->def || set_value(ps, FROM_DEFAULT, o, o->def, &e) == 0);
	}
}

/* ---- the file ---- */

/* Values from a file live until exit, as argv does. */
struct kept {
	struct kept *next;
	char text[];
};

static struct kept *kept;

static const char *keep(const char *text)
{
	size_t bytes = strlen(text) + 1;
	struct kept *k = malloc(sizeof(*k) + bytes);

	if (!k)
		return NULL;
	memcpy(k->text, text, bytes);
	k->next = kept;
	kept = k;
	return k->text;
}

static int take_line(void *ctx, uint32_t line, char *name, char *value, struct err *e)
{
	struct parse *ps = ctx;
	const struct opt *o = find_row(ps->p, name);
	const char *text;

	(void)line;
	if (!o)
		return unknown(ps, FROM_FILE, name, e);
	if (!is_list(o) && ps->seen[o - ps->p->table] == FROM_FILE)
		return err_set(e, TALLY_EINVAL, "%s is given twice", name);
	text = keep(value);
	if (!text)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	return set_value(ps, FROM_FILE, o, text, e);
}

static int read_file(struct parse *ps, const char *path)
{
	struct err e;

	return ini_read(path, take_line, ps, &e) ? complain(ps, &e) : 0;
}

/* ---- the command line ---- */

/* One pass for the free options, one for the program's: the file comes in between. */
enum pass { PASS_OWN, PASS_PROGRAM };

static int take_own(struct parse *ps, const struct opt *o, const char *value, struct err *e)
{
	/* The last one of an option counts, but of a file no line would: that is a mistake. */
	if (o->offset == offsetof(struct own, config) && ps->own.config)
		return err_set(e, TALLY_EINVAL, "--config is given twice: put all into one file");
	if (set_field(o, &ps->own, value, true, e) < 0)
		return err_wrap(e, "--%s '%.200s'", o->name, value);
	return 0;
}

/* argv[*i] is an option; moves *i to its last word. */
static int take_argument(struct parse *ps, enum pass pass, char **argv, int argc, int *i,
			 struct err *e)
{
	const char *eq = strchr(argv[*i], '='), *value = eq ? eq + 1 : NULL;
	size_t len = eq ? (size_t)(eq - argv[*i]) - 2 : strlen(argv[*i]) - 2;
	const struct opt *o, *own;
	char name[NAME_LEN_MAX + 1];

	snprintf(name, sizeof(name), "%.*s", (int)MIN(len, NAME_LEN_MAX), argv[*i] + 2);
	own = find_row(&own_program, name);
	o = own ? own : find_row(ps->p, name);
	if (!o)
		return unknown(ps, FROM_ARGV, name, e);
	if (!value && o->type == OPT_FLAG)
		value = "yes";
	if (!value && ++*i < argc)
		value = argv[*i];
	if (!value)
		return err_set(e, TALLY_EINVAL, "--%s needs a value: --%s %s", name, name,
			       o->arg ? o->arg : "VALUE");
	if (own)
		return pass == PASS_OWN ? take_own(ps, o, value, e) : 0;
	return pass == PASS_PROGRAM ? set_value(ps, FROM_ARGV, o, value, e) : 0;
}

static int take_arguments(struct parse *ps, enum pass pass, int argc, char **argv)
{
	struct err e;
	int code = 0;

	for (int i = 1; i < argc && code == 0; i++) {
		if (strcmp(argv[i], "-h") == 0)
			ps->own.help = true;
		else if (strncmp(argv[i], "--", 2) == 0 && argv[i][2])
			code = take_argument(ps, pass, argv, argc, &i, &e);
		else
			code = err_set(&e, TALLY_EINVAL, "unexpected argument '%.200s' (--help "
				       "lists the options)", argv[i]);
	}
	return code ? complain(ps, &e) : 0;
}

/* ---- help and show-config ---- */

static size_t head_width(const struct opt *o)
{
	return strlen(o->name) + (o->arg ? strlen(o->arg) + 1 : 0);
}

static const char *limit_text(const struct opt *o, uint64_t v, char *buf, size_t len)
{
	if (o->type == OPT_BYTES)
		return fmt_bytes(buf, len, v);
	if (o->type == OPT_BITRATE)
		return fmt_bitrate(buf, len, v);
	snprintf(buf, len, "%llu", (unsigned long long)v);
	return buf;
}

/* "listening address (default 0.0.0.0:7470; 1 to 16)" */
static void describe(const struct opt *o, char *buf, size_t len)
{
	bool number = o->type == OPT_U64 || o->type == OPT_BYTES || o->type == OPT_BITRATE;
	char def[160] = "", range[80] = "", min[32], max[32];

	if (o->def && o->def[0] && o->type != OPT_FLAG)
		snprintf(def, sizeof(def), "default %s", o->def);
	if (number && o->max)
		snprintf(range, sizeof(range), "%s to %s", limit_text(o, o->min, min, sizeof(min)),
			 limit_text(o, o->max, max, sizeof(max)));
	if (is_list(o))
		snprintf(range, sizeof(range), "may be repeated");
	snprintf(buf, len, "%s%s%s%s%s%s", o->help, def[0] || range[0] ? " (" : "", def,
		 def[0] && range[0] ? "; " : "", range, def[0] || range[0] ? ")" : "");
}

/* Words of text in lines of HELP_COLUMNS, the first one already at column `indent`. */
static void print_wrapped(FILE *out, const char *text, size_t indent)
{
	size_t column = indent;

	while (*text) {
		size_t word = strcspn(text, " ");

		if (column > indent && column + 1 + word > HELP_COLUMNS) {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
		}
		if (column > indent)
			column += (size_t)fprintf(out, " ");
		column += (size_t)fprintf(out, "%.*s", (int)word, text);
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void print_rows(const struct opt_program *p, size_t width, FILE *out)
{
	for (uint32_t i = 0; i < p->count; i++) {
		const struct opt *o = &p->table[i];
		char text[640];

		fprintf(out, "  --%s%s%s%*s", o->name, o->arg ? " " : "", o->arg ? o->arg : "",
			(int)(width - head_width(o) + 2), "");
		describe(o, text, sizeof(text));
		print_wrapped(out, text, width + 6);
	}
}

static size_t widest(const struct opt_program *p)
{
	size_t w = 0;

	for (uint32_t i = 0; i < p->count; i++)
		w = MAX(w, head_width(&p->table[i]));
	return w;
}

static void print_help(const struct opt_program *p, FILE *out)
{
	size_t width = MAX(widest(p), widest(&own_program));

	fprintf(out, "Usage: %s [--OPTION VALUE]...\n%s\n\n", p->name, p->summary);
	print_rows(p, width, out);
	fputc('\n', out);
	print_rows(&own_program, width, out);
	if (p->details)
		fprintf(out, "\n%s%s", p->details,
			p->details[strlen(p->details) - 1] == '\n' ? "" : "\n");
}

static void show_row(const struct opt *o, const void *field, FILE *out)
{
	const struct opt_list *list = field;

	switch (o->type) {
	case OPT_STR:
	case OPT_LISTEN:
	case OPT_PEER:
		if (*(const char *const *)field)
			fprintf(out, "%s = %s\n", o->name, *(const char *const *)field);
		else
			fprintf(out, "# %s =\n", o->name);
		break;
	case OPT_ENDPOINTS:
	case OPT_RAILS:
		for (uint32_t i = 0; i < list->n; i++)
			fprintf(out, "%s = %s\n", o->name, list->v[i]);
		if (list->n == 0)
			fprintf(out, "# %s =\n", o->name);
		break;
	case OPT_FLAG:
		fprintf(out, "%s = %s\n", o->name, *(const bool *)field ? "yes" : "no");
		break;
	case OPT_U64:
	case OPT_BYTES:
	case OPT_BITRATE:
		if (o->def || *(const uint64_t *)field)
			fprintf(out, "%s = %llu%s\n", o->name,
				(unsigned long long)*(const uint64_t *)field,
				o->type == OPT_BITRATE ? "bit" : "");
		else
			fprintf(out, "# %s =\n", o->name);
		break;
	}
}

static void show_config(const struct parse *ps, FILE *out)
{
	for (uint32_t i = 0; i < ps->p->count; i++) {
		const struct opt *o = &ps->p->table[i];

		show_row(o, (const uint8_t *)ps->fields + o->offset, out);
	}
}

/* ---- all of it ---- */

enum opt_outcome opt_parse(const struct opt_program *p, int argc, char **argv, void *fields,
			   FILE *out, FILE *errout)
{
	struct parse ps = { .p = p, .fields = fields, .errout = errout };

	set_defaults(&ps);
	if (take_arguments(&ps, PASS_OWN, argc, argv) < 0)
		return OPT_EXIT_USAGE;
	if (ps.own.help) {
		print_help(p, out);
		return OPT_EXIT_OK;
	}
	if (ps.own.version) {
		fprintf(out, "%s %s\n", p->name, TALLY_VERSION);
		return OPT_EXIT_OK;
	}
	if (ps.own.config && read_file(&ps, ps.own.config) < 0)
		return OPT_EXIT_USAGE;
	if (take_arguments(&ps, PASS_PROGRAM, argc, argv) < 0)
		return OPT_EXIT_USAGE;
	if (!ps.own.show_config)
		return ps.own.check ? OPT_CHECK : OPT_RUN;
	show_config(&ps, out);
	return OPT_EXIT_OK;
}

/* ---- where sockets are ---- */

static bool dir_make(const char *path, mode_t mode)
{
	if (mkdir(path, mode) == 0)
		(void)chmod(path, mode);	/* what the umask took away */
	return access(path, W_OK | X_OK) == 0;
}

bool opt_runtime_make(void)
{
	return dir_make(RUNTIME_DIR, 0755);
}

const char *opt_runtime_dir(void)
{
	static char own[4096];
	const char *dir = getenv("RUNTIME_DIRECTORY"), *user = getenv("XDG_RUNTIME_DIR");

	if (dir && dir[0])
		return dir;
	if (opt_runtime_make())
		return RUNTIME_DIR;
	if (!user || user[0] != '/' ||
	    (size_t)snprintf(own, sizeof(own), "%s/tally", user) >= sizeof(own))
		return NULL;
	return dir_make(own, 0700) ? own : NULL;
}
