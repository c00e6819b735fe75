// SPDX-License-Identifier: Apache-2.0
/*
 * How fast the sums are: gigabytes of input per second for each type, number of
 * inputs, size and level, next to memcpy (bytes read), to what memory alone would
 * allow (every line of the inputs read and of the output written, also past the
 * caches, with next to no arithmetic), and to the loop one would write first, which
 * adds one float32 input after the other to the output.
 */
#include "common/kern/adder.h"
#include "common/kern/kern.h"
#include "common/shm/slab.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_MAX		64u
#define CORES_MAX	16u
#define SIZE_MAX_BYTES	(64u << 20)
#define LINE		64u
#define WORDS_PER_LINE	(LINE / sizeof(uint64_t))
#define TOTAL_MAX	(640ull << 20)	/* larger cells are left out */

struct options {
	bool json, shared;
	enum dtype dtype;	/* DTYPE_NONE: all */
	uint32_t n;		/* 0: the list */
	size_t size;		/* bytes of an input; 0: the list */
	uint32_t time_ms;	/* at least, per number */
	uint32_t cores;
};

/* One row of the table; rates in GB/s, 0 for what does not apply. */
struct row {
	enum dtype dtype;
	uint32_t n;
	size_t size;
	double copy, memory, past, loop, level[KERN_LEVELS];
};

static const char usage[] =
	"Usage: kern_bench [OPTION]...\n"
	"Measures the sums: GB/s of input by type, number of inputs, size and level.\n"
	"\n"
	"  -d, --dtype NAME   only this type (float32, bfloat16, ...)\n"
	"  -n, --inputs N     only this number of inputs, 1 to 64 (default: 2 4 8 16)\n"
	"  -s, --size BYTES   only this input size, up to 67108864 (default: 4 KiB to 64 MiB)\n"
	"  -t, --time-ms MS   measure each number for at least this long (default: 4)\n"
	"  -c, --cores N      with so many threads, each a part of the bytes, 1 to 16\n"
	"  -m, --shared       in memory as processes and daemons share it\n"
	"  -j, --json         print JSON\n"
	"  -h, --help         print this\n";

static mono_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (mono_t)ts.tv_sec * NS_PER_SEC + ts.tv_nsec;
}

/* The best of many calls, in bytes per nanosecond. */
#define MEASURE(bytes, time_ms, call) \
	({ \
		mono_t began_ = now(), from_, to_, best_ = MONO_NEVER; \
\
		do { \
			from_ = now(); \
			call; \
			to_ = now(); \
			best_ = MIN(best_, MAX(to_ - from_, 1)); \
		} while (to_ - began_ < mono_ms(time_ms)); \
		(double)(bytes) / (double)best_; \
	})

/* What one would write first.  Not inlined: it must not learn n or len. */
static __attribute__((noinline)) void plain_loop(float *restrict out, const void *const in[],
						 uint32_t n, size_t len)
{
	memcpy(out, in[0], len * sizeof(*out));
	for (uint32_t j = 1; j < n; j++) {
		const float *x = in[j];

		for (size_t i = 0; i < len; i++)
			out[i] += x[i];
	}
}

/* One pass over memory and nothing else: a word of every line read, every line written. */
static inline __attribute__((always_inline)) void touch_by(
	void (*write)(uint64_t *line, uint64_t x), uint64_t *restrict out,
	const void *const in[], uint32_t n, size_t size)
{
	for (size_t i = 0; i < size / sizeof(*out); i += WORDS_PER_LINE) {
		uint64_t x = 0;

		for (uint32_t j = 0; j < n; j++)
			x += ((const uint64_t *)in[j])[i];
		write(out + i, x);
	}
}

static inline void write_line(uint64_t *line, uint64_t x)
{
	for (size_t w = 0; w < WORDS_PER_LINE; w++)
		line[w] = x;
}

static __attribute__((noinline)) void touch(uint64_t *restrict out, const void *const in[],
					    uint32_t n, size_t size)
{
	touch_by(write_line, out, in, n, size);
}

/* The same without reading the lines that are written, as sums of large inputs do it. */
#ifdef __x86_64__
static inline void stream_line(uint64_t *line, uint64_t x)
{
	for (size_t w = 0; w < WORDS_PER_LINE; w++)
		__builtin_ia32_movnti64((long long *)line + w, (long long)x);
}

static __attribute__((noinline)) void touch_past(uint64_t *restrict out, const void *const in[],
						 uint32_t n, size_t size)
{
	touch_by(stream_line, out, in, n, size);
	__builtin_ia32_sfence();
}
#else
#define touch_past touch
#endif

/* ---- passes over all of it, each core over its part ---- */

enum what { COPY, TOUCH, TOUCH_PAST, LOOP, SUM };

struct pass {
	enum what what;
	enum dtype dtype;
	uint32_t n;
	size_t size;			/* of an input, in bytes */
	uint8_t *out;
	const uint8_t *in[N_MAX];
};

static struct crew {
	uint32_t cores;
	pthread_t thread[CORES_MAX];
	pthread_barrier_t begin, end;
	const struct pass *pass;	/* NULL: that was all */
} crew = { .cores = 1 };

static void work(const struct pass *p, uint32_t core)
{
	size_t part = p->size / crew.cores / LINE * LINE, at = core * part;
	size_t size = core + 1 < crew.cores ? part : p->size - at;
	size_t len = size / dtype_bytes((uint8_t)p->dtype);
	const void *in[N_MAX];

	for (uint32_t j = 0; j < p->n; j++)
		in[j] = p->in[j] + at;
	if (p->what == COPY)
		memcpy(p->out + at, in[0], size);
	else if (p->what == TOUCH)
		touch((uint64_t *)(p->out + at), in, p->n, size / LINE * LINE);
	else if (p->what == TOUCH_PAST)
		touch_past((uint64_t *)(p->out + at), in, p->n, size / LINE * LINE);
	else if (p->what == LOOP)
		plain_loop((float *)(p->out + at), in, p->n, len);
	else if (p->size < KERN_COLD_BYTES)	/* the level is set */
		kern_sum(p->dtype, p->out + at, in, p->n, len, 1);
	else
		kern_sum_cold(p->dtype, p->out + at, in, p->n, len, 1);
}

static void *one_of_crew(void *core)
{
	for (;;) {
		pthread_barrier_wait(&crew.begin);
		if (!crew.pass)
			return NULL;
		work(crew.pass, (uint32_t)(uintptr_t)core);
		pthread_barrier_wait(&crew.end);
	}
}

static bool crew_start(uint32_t cores)
{
	crew.cores = cores;
	pthread_barrier_init(&crew.begin, NULL, cores);
	pthread_barrier_init(&crew.end, NULL, cores);
	for (uint32_t i = 1; i < cores; i++)
		if (pthread_create(&crew.thread[i], NULL, one_of_crew, (void *)(uintptr_t)i))
			return false;
	return true;
}

static void crew_stop(void)
{
	crew.pass = NULL;
	pthread_barrier_wait(&crew.begin);
	for (uint32_t i = 1; i < crew.cores; i++)
		pthread_join(crew.thread[i], NULL);
}

static void pass_once(const struct pass *p)
{
	crew.pass = p;
	pthread_barrier_wait(&crew.begin);
	work(p, 0);
	pthread_barrier_wait(&crew.end);
}

static double rate(const struct options *o, struct pass *p, enum what what)
{
	p->what = what;
	return MEASURE((what == COPY ? 1 : p->n) * p->size, o->time_ms, pass_once(p));
}

static struct row measure(const struct options *o, struct pass *p)
{
	struct row r = { .dtype = p->dtype, .n = p->n, .size = p->size };

	r.copy = rate(o, p, COPY);
	r.memory = rate(o, p, TOUCH);
	r.past = rate(o, p, TOUCH_PAST);
	if (p->dtype == DTYPE_F32)
		r.loop = rate(o, p, LOOP);
	for (int l = 0; l < KERN_LEVELS; l++) {
		if (!kern_level_usable((enum kern_level)l))
			continue;
		kern_init(1u << l);
		r.level[l] = rate(o, p, SUM);
	}
	kern_init(UINT32_MAX);
	return r;
}

static void print_rate(double rate)
{
	if (rate > 0)
		printf(" %8.2f", rate);
	else
		printf(" %8s", "-");
}

static void print_row(const struct row *r)
{
	printf("%-9s %4u %10zu", dtype_name((uint8_t)r->dtype), r->n, r->size);
	print_rate(r->copy);
	print_rate(r->memory);
	print_rate(r->past);
	print_rate(r->loop);
	for (int l = 0; l < KERN_LEVELS; l++)
		print_rate(r->level[l]);
	printf("\n");
}

static void print_json(const struct row *r, bool first)
{
	printf("%s\n    {\"dtype\": \"%s\", \"inputs\": %u, \"size_bytes\": %zu, "
	       "\"memcpy_gb_s\": %.3f, \"memory_gb_s\": %.3f, \"past_gb_s\": %.3f",
	       first ? "" : ",", dtype_name((uint8_t)r->dtype), r->n, r->size, r->copy,
	       r->memory, r->past);
	if (r->loop > 0)
		printf(", \"loop_gb_s\": %.3f", r->loop);
	for (int l = 0; l < KERN_LEVELS; l++)
		if (r->level[l] > 0)
			printf(", \"%s_gb_s\": %.3f", kern_level_name((enum kern_level)l),
			       r->level[l]);
	printf("}");
}

static void print_head(const struct options *o, uint64_t adder)
{
	if (o->json) {
		printf("{\n  \"level\": \"%s\",\n  \"adder_bytes_per_s\": %llu,\n"
		       "  \"results\": [",
		       kern_level_name(kern_level()), (unsigned long long)adder);
		return;
	}
	printf("adder: %.2f GB/s of float32 at level %s\n\n", (double)adder / 1e9,
	       kern_level_name(kern_level()));
	printf("GB/s of input     bytes of\n");
	printf("%-9s %4s %10s %8s %8s %8s %8s", "dtype", "n", "one", "memcpy", "memory", "past",
	       "loop");
	for (int l = 0; l < KERN_LEVELS; l++)
		printf(" %8s", kern_level_name((enum kern_level)l));
	printf("\n");
}

static void run_size(const struct options *o, enum dtype dtype, size_t size, uint8_t *memory,
		     bool *first)
{
	static const uint32_t counts[] = { 2, 4, 8, 16 };

	for (size_t i = 0; i < (o->n ? 1 : ARRAY_SIZE(counts)); i++) {
		uint32_t n = o->n ? o->n : counts[i];
		struct pass p = { .dtype = dtype, .n = n, .size = size, .out = memory };
		struct row r;

		if ((n + 1ull) * size > TOTAL_MAX)
			continue;
		for (uint32_t j = 0; j < n; j++)
			p.in[j] = memory + (j + 1) * size;
		r = measure(o, &p);
		if (o->json)
			print_json(&r, *first);
		else
			print_row(&r);
		*first = false;
	}
}

/* NULL after a message. */
static uint8_t *get_memory(const struct options *o, struct slab *s)
{
	uint8_t *memory;
	struct err e;

	if (o->shared) {
		if (!slab_new(s, "kern-bench", TOTAL_MAX, true, &e))
			return s->base;
		fprintf(stderr, "kern_bench: %s\n", e.text);
		return NULL;
	}
	memory = aligned_alloc(PAGE_BYTES, TOTAL_MAX);	/* as arenas and slots are */
	if (!memory)
		fprintf(stderr, "kern_bench: no memory for %llu bytes\n", TOTAL_MAX);
	return memory;
}

/* What a server with one engine says that it sums, bytes of input per second. */
static uint64_t adder(uint8_t *memory)
{
	uint64_t best = 0;

	for (uint32_t i = 0; i < ADDER_ROUNDS_MIN; i++) {
		mono_t from = now();
		size_t read = adder_pass(memory, ADDER_SCRATCH_BYTES);

		best = MAX(best, adder_rate(read, now() - from));
	}
	return best;
}

static int run(const struct options *o)
{
	static const size_t sizes[] = { 4u << 10, 64u << 10, 1u << 20, 16u << 20, 64u << 20 };
	struct slab slab = { 0 };
	uint8_t *memory = get_memory(o, &slab);
	bool first = true;

	if (!memory)
		return EXIT_FAILURE;
	memset(memory, 0, TOTAL_MAX);
	kern_init(UINT32_MAX);
	if (!crew_start(o->cores)) {
		fprintf(stderr, "kern_bench: no more threads\n");
		exit(EXIT_FAILURE);
	}
	print_head(o, adder(memory));
	for (int d = DTYPE_NONE + 1; d < DTYPE_END; d++) {
		if (o->dtype != DTYPE_NONE && o->dtype != (enum dtype)d)
			continue;
		for (size_t i = 0; i < (o->size ? 1 : ARRAY_SIZE(sizes)); i++)
			run_size(o, (enum dtype)d, o->size ? o->size : sizes[i], memory, &first);
	}
	if (o->json)
		printf("\n  ]\n}\n");
	crew_stop();
	if (slab.base)
		slab_free(&slab);
	else
		free(memory);
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* False after a message: what is not a number in [1, max]. */
static bool parse(const char *option, const char *text, uint64_t max, uint64_t *v)
{
	char *end;

	*v = strtoull(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && *v >= 1 && *v <= max)
		return true;
	fprintf(stderr, "kern_bench: --%s wants a number from 1 to %llu, not \"%s\"\n", option,
		(unsigned long long)max, text);
	return false;
}

static bool parse_dtype(const char *text, enum dtype *dtype)
{
	*dtype = dtype_from_name(text);
	if (*dtype != DTYPE_NONE)
		return true;
	fprintf(stderr, "kern_bench: --dtype: there is no type \"%s\"\n", text);
	return false;
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
		{ "dtype", required_argument, NULL, 'd' },
		{ "inputs", required_argument, NULL, 'n' },
		{ "size", required_argument, NULL, 's' },
		{ "time-ms", required_argument, NULL, 't' },
		{ "cores", required_argument, NULL, 'c' },
		{ "shared", no_argument, NULL, 'm' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct options o = { 0 };
	uint64_t n = 0, size = 0, time_ms = 4, cores = 1;
	bool ok = true;
	int c;

	while (ok && (c = getopt_long(argc, argv, "d:n:s:t:c:mjh", names, NULL)) != -1) {
		if (c == 'd')
			ok = parse_dtype(optarg, &o.dtype);
		else if (c == 'n')
			ok = parse("inputs", optarg, N_MAX, &n);
		else if (c == 's')
			ok = parse("size", optarg, SIZE_MAX_BYTES, &size);
		else if (c == 't')
			ok = parse("time-ms", optarg, 10000, &time_ms);
		else if (c == 'c')
			ok = parse("cores", optarg, CORES_MAX, &cores);
		else if (c == 'm')
			o.shared = true;
		else if (c == 'j')
			o.json = true;
		else if (c == 'h')
			return fputs(usage, stdout) < 0;
		else
			ok = false;
	}
	if (ok && optind < argc) {
		fprintf(stderr, "kern_bench: unexpected argument \"%s\"\n", argv[optind]);
		ok = false;
	}
	if (!ok) {
		fprintf(stderr, "Try kern_bench --help.\n");
		return 2;
	}
	o.n = (uint32_t)n;
	o.size = (size_t)size;
	o.time_ms = (uint32_t)time_ms;
	o.cores = (uint32_t)cores;
	return run(&o);
}
