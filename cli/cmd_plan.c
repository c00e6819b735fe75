// SPDX-License-Identifier: Apache-2.0
/*
 * tally plan: what a cluster would do, on paper.
 *
 * The command line becomes classes of equal machines, the classes become the
 * planner's machines, the planner is asked twice (as given, and with one more
 * CPU machine), and the answer is printed in words or as JSON.  Nothing is
 * asked of any cluster.
 */
#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/models.h"
#include "cli/screen.h"
#include "cli/table.h"
#include "common/base/parse.h"
#include "common/place/place.h"

#define PLAN_SCHEMA	1
#define CLASSES_MAX	64u
#define MACHINES_MAX	SERVERS_PER_JOB_MAX
#define GBIT_DEFAULT	UINT64_C(100000000000)
#define MODEL_BYTES_MAX	(1ull << 50)
#define TEXT_MAX	256u
#define GO		(-1)

static const char usage[] =
"Usage: tally plan --gpu N[xGBIT]... [--cpu K[xGBIT]...] --model BYTES|NAME [OPTION]...\n"
"Says what a cluster would do on paper: shares, round time, bottleneck.\n"
"\n"
"  --gpu N[xGBIT]    N GPU machines, each with an agent and a server of its own;\n"
"                    their NICs together move GBIT Gbit/s each way (100).\n"
"                    Units are understood: 8x25, 8x25g, 8x2.5Gbit/s.  Repeat\n"
"                    the option for machines with other NICs\n"
"  --cpu K[xGBIT]    K CPU machines with a server, likewise (none)\n"
"  --model BYTES     gradients of one round: 1300M, 1.3G (bytes, powers of 1024); 7B\n"
"                    (billions of parameters, whose gradients are float32), or the name\n"
"                    of a network, likewise; case and dashes do not count:\n"
"                   "
#define X(name, parameters) " " name
MODEL_TABLE(X)
#undef X
"\n"
"  --adder GB/S      what each server reads while it sums, in 10^9 bytes per second\n"
"                    (no limit)\n"
"  --json            one object instead of words; null where there is nothing to compare\n"
"                    with, as for a single machine\n"
"  --wide            the table in full, wider than the terminal, too\n"
"  --help            this text\n"
"\n"
"Rates are taken as given, as payload: what is left of the line rate after headers\n"
"(TCP with 1500 byte frames 94 %, with 9000 99 %; RoCEv2 with MTU 4096 98 %).\n"
"\n"
"Example:\n"
"  tally plan --gpu 8x94 --cpu 4x94 --model bert-large\n";

/* Machines that the command line describes in one word. */
struct machine_class {
	bool is_gpu;
	uint32_t count;
	uint64_t bits_per_s;
};

struct plan_opts {
	struct machine_class classes[CLASSES_MAX];
	uint32_t nclasses, gpus, cpus;
	const char *model;		/* borrowed: of the table, or of argv */
	uint64_t model_bytes;		/* 0: not said yet */
	uint64_t adder_bytes_per_s;
	bool json, wide;
};

/* The planner's question and answer. */
struct paper {
	struct plan_machine m[MACHINES_MAX + 1];
	double share[MACHINES_MAX + 1];
	uint32_t count;
	struct plan plan;
	uint64_t extra_bits_per_s;	/* card of one more CPU machine */
	double extra_time_s;		/* round time with it */
};

/* ---- options ---- */

static bool wrong(const char *option, const char *typed, const char *should)
{
	cmd_usage_error("plan", "%s \"%s\": %s", option, typed, should);
	return false;
}

static bool take_class(struct plan_opts *o, bool is_gpu, const char *typed)
{
	static const char should[] =
		"say how many machines and, after an x, their Gbit/s, e.g. 8x25";
	const char *option = is_gpu ? "--gpu" : "--cpu";
	uint32_t *sum = is_gpu ? &o->gpus : &o->cpus;
	struct machine_class c = { .is_gpu = is_gpu, .bits_per_s = GBIT_DEFAULT };
	size_t digits = strcspn(typed, "xX");
	char number[16];
	uint64_t count;
	struct err e;

	if (digits >= sizeof(number) || strspn(typed, "0123456789") != digits || !digits)
		return wrong(option, typed, should);
	memcpy(number, typed, digits);
	number[digits] = '\0';
	if (parse_u64(number, is_gpu, is_gpu ? AGENTS_PER_JOB_MAX : MACHINES_MAX, &count, &e) ||
	    (typed[digits] && parse_bitrate(typed + digits + 1, NIC_BITS_MIN, NIC_BITS_MAX,
						&c.bits_per_s, &e)))
		return wrong(option, typed, e.text);
	*sum += (uint32_t)count;
	if (o->gpus > AGENTS_PER_JOB_MAX || o->gpus + o->cpus > MACHINES_MAX)
		return wrong(option, typed, "too many machines: a job has at most 1024 GPU "
			     "machines and 2048 servers");
	if (o->nclasses == CLASSES_MAX)
		return wrong(option, typed, "too many kinds of machines, at most 64");
	c.count = (uint32_t)count;
	if (count > 0)
		o->classes[o->nclasses++] = c;
	return true;
}

/* VGG-16, ResNet_50: people's spellings of one name differ in case and dashes alone. */
static bool same_model(const char *a, const char *b)
{
	for (;; a++, b++) {
		a += strspn(a, "-_");
		b += strspn(b, "-_");
		if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return false;
		if (!*a)
			return true;
	}
}

/* "7B", "0.35B": billions of parameters, as models are called; else bytes. */
static bool take_size(struct plan_opts *o, const char *typed)
{
	size_t digits = strspn(typed, "0123456789.");
	char number[24];
	double billions;
	struct err e;

	if (strcmp(typed + digits, "B") || digits >= sizeof(number))
		return !parse_bytes(typed, 1, MODEL_BYTES_MAX, &o->model_bytes, &e) ||
		       wrong("--model", typed, e.text);
	memcpy(number, typed, digits);
	number[digits] = '\0';
	if (parse_decimal(number, 1e-6, 1e5, &billions, &e)) {
		err_wrap(&e, "billions of parameters");
		return wrong("--model", typed, e.text);
	}
	o->model_bytes = (uint64_t)(billions * 1e9 * MODEL_BYTES_PER_PARAMETER);
	return true;
}

static bool take_model(struct plan_opts *o, const char *typed)
{
	static const char *const names[] = {
#define X(name, parameters) name,
		MODEL_TABLE(X)
#undef X
	};
	static const uint64_t parameters[] = {
#define X(name, parameters) parameters,
		MODEL_TABLE(X)
#undef X
	};
	static const char known[] =
#define X(name, parameters) " " name
		MODEL_TABLE(X)
#undef X
		;
	const char *near;
	char should[sizeof(known) + 80];

	o->model = typed;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (same_model(names[i], typed)) {
			o->model = names[i];
			o->model_bytes = parameters[i] * MODEL_BYTES_PER_PARAMETER;
			return true;
		}
	if (isdigit((unsigned char)typed[0]))
		return take_size(o, typed);
	near = cmd_nearest(typed, names, ARRAY_SIZE(names));
	snprintf(should, sizeof(should), "no size, e.g. 1.3G, and no known network%s%s%s:%s",
		 near ? "; did you mean " : "", near ? near : "", near ? "?  Known" : "; known",
		 known);
	return wrong("--model", typed, should);
}

static bool take_adder(struct plan_opts *o, const char *typed)
{
	struct err e;
	double gb;

	if (parse_decimal(typed, 1e-3, 1e6, &gb, &e)) {
		err_wrap(&e, "in 10^9 bytes per second");
		return wrong("--adder", typed, e.text);
	}
	o->adder_bytes_per_s = (uint64_t)(gb * 1e9);
	return true;
}

enum plan_opt { OPT_GPU = 1, OPT_CPU, OPT_MODEL, OPT_ADDER, OPT_JSON, OPT_WIDE, OPT_HELP };

static const struct option longs[] = {
	{ "gpu", required_argument, NULL, OPT_GPU },
	{ "cpu", required_argument, NULL, OPT_CPU },
	{ "model", required_argument, NULL, OPT_MODEL },
	{ "adder", required_argument, NULL, OPT_ADDER },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "wide", no_argument, NULL, OPT_WIDE },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

/* False: it was wrong, and that has been said. */
static bool take_option(struct plan_opts *o, int c)
{
	switch (c) {
	case OPT_GPU:
	case OPT_CPU:
		return take_class(o, c == OPT_GPU, optarg);
	case OPT_MODEL:
		return take_model(o, optarg);
	case OPT_ADDER:
		return take_adder(o, optarg);
	case OPT_JSON:
		o->json = true;
		return true;
	case OPT_WIDE:
		o->wide = true;
		return true;
	default:	/* getopt_long has said what is wrong */
		fputs("Try: tally help plan\n", stderr);
		return false;
	}
}

static int parse_opts(struct plan_opts *o, int argc, char **argv)
{
	int c;

	*o = (struct plan_opts){ 0 };
	optind = 0;
	while ((c = getopt_long(argc, argv, "+h", longs, NULL)) != -1) {
		if (c == OPT_HELP || c == 'h') {
			fputs(usage, stdout);
			return CMD_OK;
		}
		if (!take_option(o, c))
			return CMD_USAGE;
	}
	if (optind < argc)
		return cmd_usage_error("plan", "unexpected argument '%s'", argv[optind]);
	if (o->gpus == 0)
		return cmd_usage_error("plan", "no GPU machines: say --gpu N, e.g. --gpu 8x25");
	if (o->model_bytes == 0)
		return cmd_usage_error("plan", "no model: say --model BYTES or --model NAME");
	return GO;
}

/* ---- the question ---- */

static uint64_t class_rate_of_one_more(const struct plan_opts *o)
{
	for (uint32_t i = o->nclasses; i-- > 0;)
		if (!o->classes[i].is_gpu)
			return o->classes[i].bits_per_s;
	return o->classes[0].bits_per_s;
}

static void add_machine(struct paper *p, const struct plan_opts *o, bool is_gpu, uint64_t rate)
{
	p->m[p->count++] = (struct plan_machine){
		.bits_per_s = rate,
		.adder_bytes_per_s = o->adder_bytes_per_s,
		.is_gpu = is_gpu,
		.has_server = true,
	};
}

/* First with one more CPU machine, then as given: its shares are the ones to keep. */
static int ask(struct paper *p, const struct plan_opts *o)
{
	double bytes = (double)o->model_bytes;
	struct err e;
	int r;

	p->count = 0;
	for (uint32_t i = 0; i < o->nclasses; i++)
		for (uint32_t j = 0; j < o->classes[i].count; j++)
			add_machine(p, o, o->classes[i].is_gpu, o->classes[i].bits_per_s);
	p->extra_bits_per_s = class_rate_of_one_more(o);
	add_machine(p, o, false, p->extra_bits_per_s);
	r = plan_solve(p->m, p->count, bytes, p->share, &p->plan, &e);
	p->extra_time_s = p->plan.round_time_s;
	p->count--;
	if (!r)
		r = plan_solve(p->m, p->count, bytes, p->share, &p->plan, &e);
	if (r) {
		fprintf(stderr, "tally plan: %s\n", e.text);
		return CMD_FAILED;
	}
	return CMD_OK;
}

/* "gpu0", "cpu3": the machine's place among its kind. */
static const char *machine_name(const struct paper *p, uint32_t i, char name[16])
{
	uint32_t before = 0;

	for (uint32_t j = 0; j < i; j++)
		before += p->m[j].is_gpu == p->m[i].is_gpu;
	snprintf(name, 16, "%s%u", p->m[i].is_gpu ? "gpu" : "cpu", before);
	return name;
}

static const char *bottleneck_word(const struct plan *plan)
{
	static const char *const words[] = {
		[PLAN_NONE] = "none",
		[PLAN_GPU_CARD] = "gpu card",
		[PLAN_ALL_CARDS] = "all cards",
		[PLAN_ADDER] = "adder",
		[PLAN_NO_SERVER] = "no server",
	};

	return words[plan->bottleneck];
}

static uint32_t gpus_with_rate(const struct paper *p, uint64_t bits_per_s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->count; i++)
		n += p->m[i].is_gpu && p->m[i].bits_per_s == bits_per_s;
	return n;
}

static const char *explain_bottleneck(const struct paper *p, const struct plan_opts *o,
				      char text[TEXT_MAX])
{
	const struct plan_machine *m = &p->m[p->plan.bottleneck_machine];
	char name[16], rate[32];

	switch (p->plan.bottleneck) {
	case PLAN_GPU_CARD:
		snprintf(text, TEXT_MAX, "%u of %u GPU machines have %s; they send and receive "
			 "the whole model whoever sums it, so only faster cards there help",
			 gpus_with_rate(p, m->bits_per_s), o->gpus,
			 fmt_bitrate(rate, sizeof(rate), m->bits_per_s));
		break;
	case PLAN_ALL_CARDS:
		snprintf(text, TEXT_MAX, "the cards of all machines are busy all the time; "
			 "more CPU machines or faster cards help");
		break;
	case PLAN_ADDER:
		snprintf(text, TEXT_MAX, "the server of %s sums at %.3g GB/s and cannot keep up "
			 "with its card; faster summing or more CPU machines help",
			 machine_name(p, p->plan.bottleneck_machine, name),
			 (double)m->adder_bytes_per_s / 1e9);
		break;
	default:
		snprintf(text, TEXT_MAX, "none, one GPU machine needs no network");
	}
	return text;
}

/* ---- the answer as JSON ---- */

/* other_s over the round's time; JSON's null without either. */
static double speedup(const struct paper *p, double other_s)
{
	return p->plan.round_time_s > 0 && other_s > 0 ? other_s / p->plan.round_time_s : NAN;
}

/* Time of the sums of one machine in JSON: null where they take none. */
static double other_time(double other_s)
{
	return other_s > 0 ? other_s : NAN;
}

static bool has_culprit(const struct plan *plan)
{
	return plan->bottleneck == PLAN_GPU_CARD || plan->bottleneck == PLAN_ADDER;
}

/* Each share is rounded so that those up to it add up: the list's sum is exact. */
static void json_shares(struct json *j, const struct paper *p, const struct plan_opts *o)
{
	double sum = 0;
	uint64_t given = 0;
	char name[16];

	json_array(j, "shares");
	for (uint32_t i = 0; i < p->count; i++) {
		uint64_t up_to;

		sum += p->share[i];
		up_to = (uint64_t)(sum + 0.5);
		json_object(j, NULL);
		json_str(j, "machine", machine_name(p, i, name));
		json_str(j, "kind", p->m[i].is_gpu ? "gpu" : "cpu");
		json_u64(j, "bits_per_s", p->m[i].bits_per_s);
		json_u64(j, "bytes", up_to - given);
		json_double(j, "fraction", p->share[i] / (double)o->model_bytes);
		json_end_object(j);
		given = up_to;
	}
	json_end_array(j);
}

static void print_json(const struct paper *p, const struct plan_opts *o)
{
	char text[TEXT_MAX], name[16];
	struct json j;

	json_init(&j, stdout);
	json_object(&j, NULL);
	json_u64(&j, "schema", PLAN_SCHEMA);
	json_str(&j, "model", o->model);
	json_u64(&j, "model_bytes", o->model_bytes);
	json_u64(&j, "gpu_machines", o->gpus);
	json_u64(&j, "cpu_machines", o->cpus);
	json_double(&j, "round_time_s", p->plan.round_time_s);
	json_double(&j, "all_reduce_time_s", other_time(p->plan.ring_time_s));
	json_double(&j, "parameter_server_time_s", other_time(p->plan.ps_time_s));
	json_double(&j, "speedup_vs_all_reduce", speedup(p, p->plan.ring_time_s));
	json_double(&j, "speedup_vs_parameter_server", speedup(p, p->plan.ps_time_s));
	json_str(&j, "bottleneck", bottleneck_word(&p->plan));
	if (has_culprit(&p->plan))
		json_str(&j, "bottleneck_machine",
			 machine_name(p, p->plan.bottleneck_machine, name));
	else
		json_null(&j, "bottleneck_machine");
	json_str(&j, "explanation", explain_bottleneck(p, o, text));
	json_double(&j, "round_time_s_with_one_more_cpu_machine", p->extra_time_s);
	json_shares(&j, p, o);
	json_end_object(&j);
	json_end_document(&j);
}

/* ---- the answer in words ---- */

/* Machines of a class are alike in all, so the first one's share is everyone's. */
static bool print_shares(const struct paper *p, const struct plan_opts *o)
{
	struct table t;
	uint32_t at = 0;
	char rate[32], bytes[32];
	bool ok;

	table_init(&t, "MACHINES KIND >CARD >SUMS-EACH >OF-MODEL");
	for (uint32_t i = 0; i < o->nclasses; i++) {
		const struct machine_class *c = &o->classes[i];
		double share = p->share[at];

		table_cell(&t, "%u", c->count);
		table_cell(&t, "%s", c->is_gpu ? "gpu" : "cpu");
		table_cell(&t, "%s", fmt_bitrate(rate, sizeof(rate), c->bits_per_s));
		table_cell(&t, "%s", fmt_bytes(bytes, sizeof(bytes), (uint64_t)(share + 0.5)));
		table_cell(&t, "%.2f %%", 100 * share / (double)o->model_bytes);
		at += c->count;
	}
	ok = table_print(&t, stdout, screen_columns(o->wide));
	table_free(&t);
	return ok;
}

static void print_ratio(const struct paper *p, double other_s, const char *other)
{
	double ratio = speedup(p, other_s);
	char time[32];

	if (isnan(ratio))
		return;
	printf("  ");
	if (ratio < 0.995 || ratio >= 1.005)
		printf("%.3g times ", ratio);
	printf("as fast as %s (%s)\n", other, fmt_seconds(time, sizeof(time), other_s));
}

static void print_one_more(const struct paper *p)
{
	double saved = 1 - p->extra_time_s / p->plan.round_time_s;
	char rate[32], time[32];

	printf("One more CPU machine of %s",
	       fmt_bitrate(rate, sizeof(rate), p->extra_bits_per_s));
	if (saved < 1e-4)
		printf(" would not shorten the round.\n");
	else
		printf(" would give %s, %.1f %% less.\n",
		       fmt_seconds(time, sizeof(time), p->extra_time_s), 100 * saved);
}

static bool print_words(const struct paper *p, const struct plan_opts *o)
{
	char text[TEXT_MAX];

	printf("%s, %s of gradients; %u GPU and %u CPU machines\n\n", o->model,
	       fmt_bytes(text, sizeof(text), o->model_bytes), o->gpus, o->cpus);
	if (!print_shares(p, o))
		return false;
	printf("\nA round takes %s", fmt_seconds(text, sizeof(text), p->plan.round_time_s));
	if (p->plan.round_time_s > 0)
		printf(", %.4g Gbit/s of gradients",
		       (double)o->model_bytes * 8 / 1e9 / p->plan.round_time_s);
	printf("\n");
	print_ratio(p, p->plan.ring_time_s, "ring all-reduce between the GPU machines");
	print_ratio(p, p->plan.ps_time_s, "a plain parameter server on the CPU machines");
	printf("Bottleneck: %s.\n", explain_bottleneck(p, o, text));
	if (p->plan.round_time_s > 0)
		print_one_more(p);
	return true;
}

int cmd_plan(int argc, char **argv)
{
	struct plan_opts o;
	struct paper p;
	int status = parse_opts(&o, argc, argv);

	if (status != GO)
		return status;
	status = ask(&p, &o);
	if (status != CMD_OK)
		return status;
	if (o.json)
		print_json(&p, &o);
	else if (!print_words(&p, &o))
		return CMD_FAILED;
	return CMD_OK;
}
