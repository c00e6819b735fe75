// SPDX-License-Identifier: Apache-2.0
/*
 * tally bench: measures push_pull as nccl-tests measures all-reduce, and checks it.
 *
 * Every rank runs the same loop: fill, barrier, clock, push_pull, wait, clock,
 * compare.  What the ranks saw is gathered through Tally itself (each puts its
 * numbers into its own slots of a tensor of zeros and sums it), so that an
 * iteration's time is that of the slowest rank and an error anywhere counts.
 * Rank 0 prints.  The barrier's release reaches the ranks a little apart; that
 * skew is part of the time, as it is in training.
 */
#include "client/tally.h"

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cmd.h"
#include "cli/json.h"
#include "common/base/parse.h"
#include "common/rt/host.h"
#include "common/rt/loop.h"

#define BENCH_SCHEMA	1
#define SOCKET_DEFAULT	"/run/tally/agent.sock"
#define SAMPLES_MAX	(4u << 20)	/* iterations x ranks */

static const char usage[] =
"Usage: tally bench [OPTION]...\n"
"Measures and checks push_pull, as one rank of a job (see tally help local).\n"
"\n"
"  -b BYTES        smallest size (4K, or -e where that is less)\n"
"  -e BYTES        largest size (64M, or -b where that is more)\n"
"  -f FACTOR       from one size to the next, at least 1.1 (4)\n"
"  -n COUNT        measured iterations per size (20)\n"
"  -w COUNT        iterations before those, not measured (5)\n"
"  -d, --dtype TYPE\n"
"                  float32, float64, float16, bfloat16, int8, uint8, int32, int64\n"
"  --op OP         sum or mean (sum)\n"
"  --in-place      the result replaces the input (default)\n"
"  --out-of-place  the result goes to memory of its own\n"
"  --view          the result is read where it lies, without a copy\n"
"  --check         compare every element with the expected sum (default)\n"
"  --no-check      do not\n"
"  --json          one object with a list `results`; with --no-check `errors` is null\n"
"\n"
"algbw = size / p50; busbw = algbw * 2(n - 1)/n for n ranks.  Exit status 1 when an\n"
"element was wrong.\n"
"\n"
"Example:\n"
"  tally local --agents 2 --servers 1 --ranks 2 -- tally bench -b 4K -e 64M -f 4\n";

enum bench_way { WAY_IN_PLACE, WAY_OUT_OF_PLACE, WAY_VIEW };

struct bench_opts {
	uint64_t bytes_min, bytes_max;	/* 0: not said */
	uint64_t iterations, warm_up;
	double factor;
	enum dtype dtype;
	enum rop op;
	enum bench_way way;
	bool check, json;
};

struct bench {
	struct bench_opts o;
	tally_session *s;	/* owned */
	uint32_t rank, world;
	char socket[PATH_MAX];
	uint8_t *in, *out;	/* in the arena; bytes_max; out is in when in place */
	uint8_t *source;	/* owned: this rank's input, to restore `in` from */
	uint8_t *expected;	/* owned; NULL without --check */
	tally_tensor *times_t, *keys_t;
	double *times;		/* in the arena; iterations x world, row by row */
	int64_t *keys;		/* in the arena; world entries, also for the errors */
	struct bench_ranks ranks;
	struct json json;
	uint64_t errors;	/* of all sizes and ranks */
};

struct bench_row {
	uint64_t bytes, count, errors;
	double p50_us, p99_us, algbw, busbw;	/* Gbit/s */
};

/* ---- options ---- */

enum { GO = -1 };

#define SMALLEST	(UINT64_C(4) << 10)	/* bytes */
#define LARGEST		(UINT64_C(64) << 20)

enum bench_opt {
	OPT_OP = 1, OPT_IN_PLACE, OPT_OUT_OF_PLACE, OPT_VIEW, OPT_CHECK,
	OPT_NO_CHECK, OPT_JSON,
};

static const struct option longs[] = {
	{ "dtype", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, OPT_OP },
	{ "in-place", no_argument, NULL, OPT_IN_PLACE },
	{ "out-of-place", no_argument, NULL, OPT_OUT_OF_PLACE },
	{ "view", no_argument, NULL, OPT_VIEW },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "no-check", no_argument, NULL, OPT_NO_CHECK },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static bool wrong(const char *option, const char *why)
{
	cmd_usage_error("bench", "%s: %s", option, why);
	return false;
}

static bool take_factor(struct bench_opts *o)
{
	struct err e;

	return parse_decimal(optarg, 1.1, 1e6, &o->factor, &e) ? wrong("-f", e.text) : true;
}

static bool take_number(int c, uint64_t *out)
{
	const char option[] = { '-', (char)c, '\0' };
	struct err e;
	int rc = c == 'b' || c == 'e' ? parse_bytes(optarg, 1, TENSOR_BYTES_MAX, out, &e)
				      : parse_u64(optarg, c == 'n', 1000000, out, &e);

	return rc ? wrong(option, e.text) : true;
}

/* False: it was wrong, and that has been said. */
static bool take_option(struct bench_opts *o, int c)
{
	switch (c) {
	case 'b':
		return take_number(c, &o->bytes_min);
	case 'e':
		return take_number(c, &o->bytes_max);
	case 'n':
		return take_number(c, &o->iterations);
	case 'w':
		return take_number(c, &o->warm_up);
	case 'f':
		return take_factor(o);
	case 'd':
		o->dtype = dtype_from_name(optarg);
#define X(e, num, name, bytes) " " name
		return o->dtype ? true
			: wrong("--dtype", "no such type; there are" DTYPE_TABLE(X));
#undef X
	case OPT_OP:
		o->op = !strcmp(optarg, "mean") ? ROP_MEAN : ROP_SUM;
		return o->op == ROP_MEAN || !strcmp(optarg, "sum") ? true
			: wrong("--op", "sum or mean");
	case OPT_IN_PLACE:
	case OPT_OUT_OF_PLACE:
	case OPT_VIEW:
		o->way = (enum bench_way)(c - OPT_IN_PLACE);
		return true;
	case OPT_CHECK:
	case OPT_NO_CHECK:
		o->check = c == OPT_CHECK;
		return true;
	case OPT_JSON:
		o->json = true;
		return true;
	default:	/* getopt_long has said what is wrong */
		fputs("Try: tally help bench\n", stderr);
		return false;
	}
}

static int parse_opts(struct bench_opts *o, int argc, char **argv)
{
	uint32_t size;
	int c;

	optind = 0;
	while ((c = getopt_long(argc, argv, "+b:e:f:n:w:d:h", longs, NULL)) != -1) {
		if (c == 'h') {
			fputs(usage, stdout);
			return CMD_OK;
		}
		if (!take_option(o, c))
			return CMD_USAGE;
	}
	if (optind < argc)
		return cmd_usage_error("bench", "unexpected argument '%s'", argv[optind]);
	if (!o->bytes_max)
		o->bytes_max = MAX(LARGEST, o->bytes_min);
	if (!o->bytes_min)
		o->bytes_min = MIN(SMALLEST, o->bytes_max);
	size = dtype_bytes((uint8_t)o->dtype);
	if (o->bytes_min < size || o->bytes_max < o->bytes_min ||
	    o->bytes_max > TENSOR_BYTES_MAX)
		return cmd_usage_error("bench", "-b and -e: %u (one element) <= -b <= -e "
				       "<= 64 GiB", size);
	return GO;
}

/* ---- talking to Tally ---- */

/* Says what failed, as this rank; returns the exit code. */
static int failed(const struct bench *b, const char *what)
{
	fprintf(stderr, "tally bench: %s: %s\n", what, tally_error_text(b->s));
	return CMD_FAILED;
}

static int attach(struct bench *b)
{
	const tally_options o = { .socket = b->socket };
	int rc = tally_attach(&o, &b->s);

	if (!rc)
		return CMD_OK;
	fprintf(stderr, "tally bench: %s: %s\n", tally_error_name(rc),
		b->s ? tally_error_text(b->s) : tally_error_help(rc));
	if (rc == TALLY_EAUTH)
		return CMD_DENIED;
	if (rc == TALLY_ESCHED)
		return CMD_UNREACHABLE;
	if (rc != TALLY_EAGENT && rc != TALLY_EINVAL)
		return CMD_FAILED;
	fputs("It runs as one rank of a job: start it with TALLY_RANK, TALLY_WORLD_SIZE and\n"
	      "TALLY_SOCKET (or by torchrun, srun, mpirun) beside a tally-agent, or try it here:\n"
	      "  tally local --agents 2 --servers 1 --ranks 2 -- tally bench -b 4K -e 64M -f 4\n",
	      stderr);
	return rc == TALLY_EAGENT ? CMD_UNREACHABLE : CMD_USAGE;
}

static int sum_in_place(struct bench *b, tally_tensor *t, void *buf)
{
	tally_ticket k;
	int rc = tally_push_pull(b->s, t, buf, buf, NULL, &k);

	return rc ? rc : tally_wait(b->s, k, -1);
}

/* The same on all ranks afterwards: keys[r] is what rank r gave. */
static int gather(struct bench *b, int64_t mine)
{
	memset(b->keys, 0, b->world * sizeof(*b->keys));
	b->keys[b->rank] = mine;
	return sum_in_place(b, b->keys_t, b->keys);
}

/* Names this rank's agent: machine and socket path, as one number (FNV-1a). */
static int64_t agent_key(const struct bench *b)
{
	char id[33], text[33 + PATH_MAX];
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	host_machine_id(id);
	snprintf(text, sizeof(text), "%s%s", id, b->socket);
	for (const char *p = text; *p; p++)
		h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
	return (int64_t)h;
}

static int declare(struct bench *b, const char *name, tally_dtype dtype, uint64_t count,
		   tally_tensor **t)
{
	const tally_tensor_desc d = { .name = name, .dtype = dtype, .count = count };

	return tally_declare(b->s, &d, 1, t);
}

static int alloc_all(struct bench *b)
{
	size_t bytes = b->o.bytes_max;
	int rc = tally_alloc(b->s, bytes, (void **)&b->in);

	b->out = b->in;
	if (!rc && b->o.way == WAY_OUT_OF_PLACE)
		rc = tally_alloc(b->s, bytes, (void **)&b->out);
	if (!rc)
		rc = tally_alloc(b->s, b->o.iterations * b->world * sizeof(*b->times),
				 (void **)&b->times);
	if (!rc)
		rc = tally_alloc(b->s, b->world * sizeof(*b->keys), (void **)&b->keys);
	if (rc)
		return failed(b, "alloc");
	b->source = malloc(bytes);
	b->expected = b->o.check ? malloc(bytes) : NULL;
	b->ranks.machine_of = malloc(b->world * sizeof(*b->ranks.machine_of));
	if (b->source && b->ranks.machine_of && (b->expected || !b->o.check))
		return CMD_OK;
	fputs("tally bench: out of memory; try a smaller -e\n", stderr);
	return CMD_FAILED;
}

/* Learns which rank is on which machine, which decides in what order the expected sum is made. */
static int learn_ranks(struct bench *b)
{
	if (declare(b, "bench.keys", TALLY_INT64, b->world, &b->keys_t) ||
	    declare(b, "bench.times", TALLY_FLOAT64, b->o.iterations * b->world, &b->times_t))
		return failed(b, "declare");
	if (gather(b, agent_key(b)))
		return failed(b, "gather");
	bench_group(&b->ranks, b->keys, b->world, b->ranks.machine_of);
	if (b->o.check && b->ranks.machines != (uint32_t)tally_machines(b->s)) {
		if (b->rank == 0)
			fprintf(stderr, "tally bench: the ranks see %u agents, the job has %d; "
				"results will not be checked\n", b->ranks.machines,
				tally_machines(b->s));
		b->o.check = false;
	}
	return CMD_OK;
}

static int set_up(struct bench *b)
{
	int status = attach(b);

	if (status)
		return status;
	b->rank = (uint32_t)tally_rank(b->s);
	b->world = (uint32_t)tally_world_size(b->s);
	if (b->o.iterations * b->world > SAMPLES_MAX) {
		if (b->rank == 0)
			fprintf(stderr, "tally bench: -n: at most %u for %u ranks\n",
				SAMPLES_MAX / b->world, b->world);
		return CMD_USAGE;
	}
	status = alloc_all(b);
	return status ? status : learn_ranks(b);
}

static void tear_down(struct bench *b)
{
	free(b->source);
	free(b->expected);
	free(b->ranks.machine_of);
	tally_detach(b->s);
}

/* ---- one size ---- */

/* Measures one push_pull, from the call to its result. */
static int once(struct bench *b, tally_tensor *t, uint64_t bytes, double *seconds)
{
	const tally_push_pull_options po = { .op = (tally_op)b->o.op };
	void *out = b->o.way == WAY_VIEW ? NULL : b->out;
	tally_ticket k;
	mono_t start;
	int rc;

	memcpy(b->in, b->source, bytes);
	rc = tally_barrier(b->s, 0);
	if (rc)
		return rc;
	start = loop_now();
	rc = tally_push_pull(b->s, t, b->in, out, &po, &k);
	if (!rc)
		rc = tally_wait(b->s, k, -1);
	*seconds = (double)(loop_now() - start) / NS_PER_SEC;
	return rc;
}

/* All iterations of one size; this rank's times into its slots, its errors out. */
static int iterate(struct bench *b, tally_tensor *t, const struct bench_row *row,
		   uint64_t *errors)
{
	double seconds;
	int rc;

	*errors = 0;
	memset(b->times, 0, b->o.iterations * b->world * sizeof(*b->times));
	for (uint64_t i = 0; i < b->o.warm_up + b->o.iterations; i++) {
		rc = once(b, t, row->bytes, &seconds);
		if (rc)
			return rc;
		if (i >= b->o.warm_up)
			b->times[(i - b->o.warm_up) * b->world + b->rank] = seconds;
		if (b->o.check)
			*errors += bench_differences(b->o.dtype, b->o.way == WAY_VIEW
						     ? tally_result(b->s, t) : b->out,
						     b->expected, row->count);
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Every iteration took as long as its slowest rank; packs those to the front. */
static void evaluate(struct bench *b, struct bench_row *row)
{
	uint32_t n = (uint32_t)b->o.iterations;
	double p50;

	for (uint32_t i = 0; i < n; i++) {
		double slowest = 0;

		for (uint32_t r = 0; r < b->world; r++)
			slowest = MAX(slowest, b->times[(size_t)i * b->world + r]);
		b->times[i] = slowest;
	}
	qsort(b->times, n, sizeof(*b->times), by_value);
	p50 = bench_quantile(b->times, n, 0.50);
	row->p50_us = p50 * 1e6;
	row->p99_us = bench_quantile(b->times, n, 0.99) * 1e6;
	row->algbw = p50 > 0 ? (double)row->bytes * 8 / p50 / 1e9 : 0;
	row->busbw = row->algbw * 2 * (b->world - 1) / b->world;
	row->errors = 0;
	for (uint32_t r = 0; r < b->world; r++)
		row->errors += (uint64_t)b->keys[r];
}

static int measure(struct bench *b, struct bench_row *row)
{
	char name[64];
	uint64_t errors;
	tally_tensor *t;

	snprintf(name, sizeof(name), "bench.%s.%" PRIu64, dtype_name((uint8_t)b->o.dtype),
		 row->bytes);
	bench_fill(b->o.dtype, b->rank, 0, row->count, b->source);
	if (b->o.check && bench_expect(&b->ranks, b->o.dtype, b->o.op, row->count,
				       b->expected)) {
		fputs("tally bench: out of memory; try --no-check\n", stderr);
		return CMD_FAILED;
	}
	if (declare(b, name, (tally_dtype)b->o.dtype, row->count, &t))
		return failed(b, "declare");
	if (iterate(b, t, row, &errors))
		return failed(b, "push_pull");
	if (sum_in_place(b, b->times_t, b->times) || gather(b, (int64_t)errors))
		return failed(b, "gather");
	if (tally_undeclare(b->s, &t, 1))
		return failed(b, "undeclare");
	evaluate(b, row);
	return CMD_OK;
}

/* ---- what rank 0 prints ---- */

static void print_start(struct bench *b)
{
	const char *dtype = dtype_name((uint8_t)b->o.dtype);

	if (b->o.json) {
		json_init(&b->json, stdout);
		json_object(&b->json, NULL);
		json_u64(&b->json, "schema", BENCH_SCHEMA);
		json_u64(&b->json, "world_size", b->world);
		json_u64(&b->json, "machines", (uint64_t)tally_machines(b->s));
		json_str(&b->json, "op", rop_name((uint8_t)b->o.op));
		json_u64(&b->json, "iterations", b->o.iterations);
		json_bool(&b->json, "checked", b->o.check);
		json_array(&b->json, "results");
		return;
	}
	printf("# push_pull %s of %s, %" PRIu32 " ranks on %d machines, %" PRIu64
	       " iterations after %" PRIu64 "\n",
	       rop_name((uint8_t)b->o.op), dtype, b->world, tally_machines(b->s),
	       b->o.iterations, b->o.warm_up);
	printf("#%12s %12s %9s %12s %12s %10s %10s %8s\n", "size", "count", "dtype", "p50", "p99",
	       "algbw", "busbw", "errors");
	printf("#%12s %12s %9s %12s %12s %10s %10s %8s\n", "(B)", "(elements)", "", "(us)",
	       "(us)", "(Gbit/s)", "(Gbit/s)", "");
	fflush(stdout);
}

static void print_errors(struct bench *b, uint64_t errors)
{
	if (b->o.check)
		json_u64(&b->json, "errors", errors);
	else
		json_null(&b->json, "errors");
}

static void print_row(struct bench *b, const struct bench_row *row)
{
	const char *dtype = dtype_name((uint8_t)b->o.dtype);
	char errors[24] = "N/A";

	if (b->o.json) {
		json_object(&b->json, NULL);
		json_u64(&b->json, "size_bytes", row->bytes);
		json_u64(&b->json, "count", row->count);
		json_str(&b->json, "dtype", dtype);
		json_double(&b->json, "p50_us", row->p50_us);
		json_double(&b->json, "p99_us", row->p99_us);
		json_double(&b->json, "algbw_gbit_s", row->algbw);
		json_double(&b->json, "busbw_gbit_s", row->busbw);
		print_errors(b, row->errors);
		json_end_object(&b->json);
		return;
	}
	if (b->o.check)
		snprintf(errors, sizeof(errors), "%" PRIu64, row->errors);
	printf(" %12" PRIu64 " %12" PRIu64 " %9s %12.1f %12.1f %10.3f %10.3f %8s\n", row->bytes,
	       row->count, dtype, row->p50_us, row->p99_us, row->algbw, row->busbw, errors);
	fflush(stdout);
}

/* Also after a failure: what was measured until then is a whole document. */
static void print_end(struct bench *b, bool complete)
{
	if (b->o.json) {
		json_end_array(&b->json);
		print_errors(b, b->errors);
		json_bool(&b->json, "complete", complete);
		json_end_object(&b->json);
		json_end_document(&b->json);
	} else if (!complete) {
		puts("# not complete");
	} else if (b->o.check) {
		printf("# %" PRIu64 " wrong elements\n", b->errors);
	} else {
		puts("# not checked");
	}
}

/* ---- all sizes ---- */

/* The size after `bytes`: whole elements, always larger. */
static uint64_t next_size(const struct bench_opts *o, uint64_t bytes)
{
	uint32_t size = dtype_bytes((uint8_t)o->dtype);
	double next = (double)bytes * o->factor;

	if (next > (double)o->bytes_max)
		return o->bytes_max + 1;
	return MAX((uint64_t)next / size * size, bytes + size);
}

static int measure_all(struct bench *b)
{
	uint32_t size = dtype_bytes((uint8_t)b->o.dtype);

	for (uint64_t bytes = b->o.bytes_min / size * size; bytes <= b->o.bytes_max;
	     bytes = next_size(&b->o, bytes)) {
		struct bench_row row = { .bytes = bytes, .count = bytes / size };
		int status = measure(b, &row);

		if (status)
			return status;
		b->errors += row.errors;
		if (b->rank == 0)
			print_row(b, &row);
	}
	return CMD_OK;
}

static int run(struct bench *b)
{
	int status = set_up(b);

	if (status)
		return status;
	if (b->rank == 0)
		print_start(b);
	status = measure_all(b);
	if (b->rank == 0)
		print_end(b, status == CMD_OK);
	return b->errors ? CMD_FAILED : status;
}

int cmd_bench(int argc, char **argv)
{
	struct bench b = {
		.o = {
			.iterations = 20,
			.warm_up = 5,
			.factor = 4,
			.dtype = DTYPE_F32,
			.op = ROP_SUM,
			.check = true,
		},
	};
	const char *socket = cmd_env("TALLY_SOCKET", SOCKET_DEFAULT);
	int status = parse_opts(&b.o, argc, argv);

	if (status != GO)
		return status;
	if (strlen(socket) >= sizeof(b.socket))
		return cmd_usage_error("bench", "TALLY_SOCKET is too long");
	if (!realpath(socket, b.socket))
		snprintf(b.socket, sizeof(b.socket), "%s", socket);
	status = run(&b);
	tear_down(&b);
	return status;
}
