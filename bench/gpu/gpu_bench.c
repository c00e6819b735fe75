// SPDX-License-Identifier: Apache-2.0
/*
 * What gradients on a GPU cost, next to what the machine can do: run by bench/gpu/run.sh under
 * `tally local`, one rank for each GPU.
 *
 *	copies		push_pulls of several tensors in flight, bytes of theirs a second, next to
 *			copies of pinned memory out and in at once and nothing else
 *	compute		how long a kernel on another stream takes while that goes on, next to the
 *			kernel alone
 *	beside		the push_pulls' rate beside the kernel, next to theirs alone
 *
 * Contestants take turns; a number is the median of the turns, and of the ranks the slowest
 * one's.  What the push_pulls bring is compared, every element, outside of all times.
 */
#include "bench/gpu/work.h"
#include "client/tally.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LANES		4u		/* tensors in flight */
#define TURNS_MAX	99u
#define ROUNDS_MIN	3u
#define ROUNDS_MAX	10000u
#define LAUNCHES_MAX	512u		/* a stream's queue has room for them */
#define COPIES_TARGET	0.90
#define COMPUTE_TARGET	1.03
#define WAIT_MS		60000

struct options {
	uint64_t size;			/* bytes of a tensor; 0: the list */
	uint32_t time_ms, turns;
	bool json;
	const char *plugin;
};

struct lane {
	tally_tensor *tensor;
	tally_ticket ticket;
	float *in, *out;		/* on the GPU */
};

struct bench {
	tally_session *s;
	uint32_t rank, world;
	int device;
	tally_tensor *numbers;		/* a number of each rank's */
	struct work work;
	/* Not more, with those of libtally: GPUs have few queues, and streams may share one. */
	cudaStream_t train, compute, away, back;
	cudaEvent_t begin, end;
	uint64_t size;			/* bytes, of each lane's tensor */
	struct lane lane[LANES];
	float *from, *to;		/* pinned, of that size */
	uint64_t wrong;			/* elements, of all ranks */
};

struct row {
	const char *name, *unit, *peer;
	uint64_t size;
	double ours, peers, target;	/* target 0: nothing is promised */
	bool at_most;			/* the ratio; else at least */
};

static const char usage[] =
	"Usage: gpu_bench [OPTION]...   (bench/gpu/run.sh runs it)\n"
	"Measures push_pulls of tensors on a GPU next to plain copies and a kernel.\n"
	"\n"
	"  -s, --size BYTES   of a tensor (default: 64 MiB, 256 MiB)\n"
	"  -t, --time-ms MS   measure each number for about so long (default: 1000)\n"
	"  -r, --turns N      and so many times (default: 5)\n"
	"  -p, --plugin FILE  libtally-cuda, where the linker does not find it\n"
	"  -j, --json         print JSON\n"
	"  -g, --gpus         print how many GPUs there are, or why none and exit 1\n"
	"  -h, --help         print this\n";

static _Noreturn void die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("gpu_bench: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static void must(const struct bench *b, int rc, const char *what)
{
	if (rc)
		die("%s: %s: %s", what, tally_error_name(rc), tally_error_text(b->s));
}

static void cuda(cudaError_t rc, const char *what)
{
	if (rc)
		die("%s: %s", what, cudaGetErrorString(rc));
}

static void *memory(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		die("out of memory");
	return p;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void barrier(const struct bench *b)
{
	must(b, tally_barrier(b->s, 0), "barrier");
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Each rank brings a number: all get them, smallest first. */
static double *gather(const struct bench *b, double mine)
{
	double *all = memory(b->world, sizeof(*all));
	tally_ticket k;

	all[b->rank] = mine;
	must(b, tally_push_pull(b->s, b->numbers, all, all, NULL, &k), "push_pull");
	must(b, tally_wait(b->s, k, WAIT_MS), "wait");
	qsort(all, b->world, sizeof(*all), by_value);
	return all;
}

static double least(const struct bench *b, double mine)
{
	double *all = gather(b, mine), v = all[0];

	free(all);
	return v;
}

static double most(const struct bench *b, double mine)
{
	double *all = gather(b, mine), v = all[b->world - 1];

	free(all);
	return v;
}

/* ---- values: small integers, whose sums are exact ---- */

static float value(uint64_t i, uint32_t lane)
{
	return (float)(i % 1021 + lane);
}

static void copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
		 cudaStream_t stream)
{
	cuda(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

static void sync_stream(cudaStream_t stream)
{
	cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static void fill(const struct bench *b, uint32_t lane)
{
	const struct lane *l = &b->lane[lane];

	for (uint64_t i = 0; i < b->size / sizeof(float); i++)
		b->from[i] = value(i, lane) * (float)(b->rank + 1);
	copy(l->in, b->from, b->size, cudaMemcpyHostToDevice, b->away);
	sync_stream(b->away);
	memset(b->from, 0, b->size);
	copy(l->out, b->from, b->size, cudaMemcpyHostToDevice, b->away);
	sync_stream(b->away);
}

static void check(struct bench *b)
{
	float factor = (float)(b->world * (b->world + 1) / 2);
	uint64_t wrong = 0;

	for (uint32_t l = 0; l < LANES; l++) {
		copy(b->to, b->lane[l].out, b->size, cudaMemcpyDeviceToHost, b->away);
		sync_stream(b->away);
		for (uint64_t i = 0; i < b->size / sizeof(float); i++)
			wrong += b->to[i] != value(i, l) * factor;
	}
	b->wrong += (uint64_t)most(b, (double)wrong);
}

/* ---- tensors ---- */

static void have(struct bench *b, uint64_t size)
{
	tally_tensor_desc d = { .dtype = TALLY_FLOAT32, .count = size / sizeof(float) };
	char name[32];

	d.name = name;
	b->size = size;
	cuda(cudaMallocHost((void **)&b->from, size), "pinned memory");
	cuda(cudaMallocHost((void **)&b->to, size), "pinned memory");
	for (uint32_t i = 0; i < LANES; i++) {
		struct lane *l = &b->lane[i];

		snprintf(name, sizeof(name), "layer%u", i);
		must(b, tally_declare(b->s, &d, 1, &l->tensor), "declare");
		cuda(cudaMalloc((void **)&l->in, size), "memory of the GPU");
		cuda(cudaMalloc((void **)&l->out, size), "memory of the GPU");
		fill(b, i);
	}
}

static void drop(struct bench *b)
{
	for (uint32_t i = 0; i < LANES; i++) {
		struct lane *l = &b->lane[i];

		must(b, tally_undeclare(b->s, &l->tensor, 1), "undeclare");
		(void)cudaFree(l->in);
		(void)cudaFree(l->out);
	}
	(void)cudaFreeHost(b->from);
	(void)cudaFreeHost(b->to);
}

/* ---- what is measured; all in seconds ---- */

/* Both ways at once, `rounds` times as much as a round of all lanes. */
static double copy_rounds(const struct bench *b, uint32_t rounds)
{
	double began;

	barrier(b);
	began = now();
	for (uint32_t i = 0; i < rounds * LANES; i++) {
		const struct lane *l = &b->lane[i % LANES];

		copy(b->to, l->in, b->size, cudaMemcpyDeviceToHost, b->away);
		copy(l->out, b->from, b->size, cudaMemcpyHostToDevice, b->back);
	}
	sync_stream(b->away);
	sync_stream(b->back);
	return now() - began;
}

static void start_compute(const struct bench *b, uint32_t launches)
{
	cuda(cudaEventRecord(b->begin, b->compute), "cudaEventRecord");
	for (uint32_t i = 0; i < launches; i++) {
		const char *wrong = work_launch(&b->work, b->compute);

		if (wrong)
			die("%s", wrong);
	}
	cuda(cudaEventRecord(b->end, b->compute), "cudaEventRecord");
}

static double end_compute(const struct bench *b)
{
	float ms;

	sync_stream(b->compute);
	cuda(cudaEventElapsedTime(&ms, b->begin, b->end), "cudaEventElapsedTime");
	return (double)ms / 1e3;
}

static double compute_alone(const struct bench *b, uint32_t launches)
{
	barrier(b);
	start_compute(b, launches);
	return end_compute(b);
}

static void push(const struct bench *b, struct lane *l)
{
	must(b, tally_gpu_push_pull(b->s, l->tensor, l->in, l->out, NULL, b->train, &l->ticket),
	     "gpu_push_pull");
}

/* The host waits for the tensor that is due; the others are under way. */
static void pull(const struct bench *b, const struct lane *l)
{
	must(b, tally_wait(b->s, l->ticket, WAIT_MS), "wait");
}

/* launches > 0: the kernel begins when the first round is under way; *compute is its time. */
static double push_rounds(struct bench *b, uint32_t rounds, uint32_t launches, double *compute)
{
	double began, took;

	barrier(b);
	began = now();
	for (uint32_t i = 0; i < rounds * LANES; i++) {
		struct lane *l = &b->lane[i % LANES];

		if (i >= LANES)
			pull(b, l);
		push(b, l);
		if (i + 1 == LANES && launches)
			start_compute(b, launches);
	}
	for (uint32_t i = 0; i < LANES; i++)
		pull(b, &b->lane[i]);
	took = now() - began;
	if (launches)
		*compute = end_compute(b);
	return took;
}

/* So many that they take about that long, on the slowest rank: the same number on all. */
static uint32_t enough(const struct bench *b, double one, double seconds, uint32_t min,
		       uint32_t max)
{
	double n = seconds / most(b, one);

	return n < min ? min : n > max ? max : (uint32_t)n;
}

/* ---- rows ---- */

static void add(struct bench *b, struct row *row, double *ours, double *peers, uint32_t turns)
{
	row->size = b->size;
	row->ours = median(ours, turns);
	row->peers = median(peers, turns);
	row->ours = row->at_most ? most(b, row->ours) : least(b, row->ours);
	row->peers = row->at_most ? most(b, row->peers) : least(b, row->peers);
}

static void measure(struct bench *b, const struct options *o, struct row row[3])
{
	double pushed[TURNS_MAX], copied[TURNS_MAX], computed[TURNS_MAX], beside[TURNS_MAX];
	double alone[TURNS_MAX], before[TURNS_MAX], seconds = o->time_ms / 1e3;
	double bytes = (double)b->size * LANES;
	uint32_t rounds, copies, launches;

	(void)push_rounds(b, 1, 0, NULL);	/* makes what a tensor needs on a GPU */
	(void)compute_alone(b, 1);
	rounds = enough(b, push_rounds(b, 1, 0, NULL), seconds, ROUNDS_MIN, ROUNDS_MAX);
	copies = enough(b, copy_rounds(b, 1), seconds, ROUNDS_MIN, ROUNDS_MAX);
	launches = enough(b, compute_alone(b, 4) / 4, seconds / 2, 1, LAUNCHES_MAX);
	for (uint32_t i = 0; i < o->turns; i++) {
		copied[i] = bytes * copies / copy_rounds(b, copies) / 1e9;
		pushed[i] = bytes * rounds / push_rounds(b, rounds, 0, NULL) / 1e9;
		alone[i] = compute_alone(b, launches);
		beside[i] = bytes * rounds / push_rounds(b, rounds, launches, &computed[i]) / 1e9;
	}
	memcpy(before, pushed, sizeof(before));
	/* of several GPUs in a group each copies its share: then it is no pipeline's ratio */
	row[0] = (struct row){ .name = "copies", .unit = "GB/s",
			       .target = b->world == 1 ? COPIES_TARGET : 0,
			       .peer = "pinned copies, both ways at once" };
	row[1] = (struct row){ .name = "compute", .unit = "s", .target = COMPUTE_TARGET,
			       .peer = "the kernel alone", .at_most = true };
	row[2] = (struct row){ .name = "beside", .unit = "GB/s", .peer = "push_pulls alone" };
	add(b, &row[0], pushed, copied, o->turns);
	add(b, &row[1], computed, alone, o->turns);
	add(b, &row[2], beside, before, o->turns);
}

static bool met(const struct row *r)
{
	double ratio = r->ours / r->peers;

	return r->at_most ? ratio <= r->target : ratio >= r->target;
}

static void print_json(const struct bench *b, const struct row *row, uint32_t n)
{
	printf("{ \"ranks\": %u, \"wrong\": %llu, \"rows\": [", b->world,
	       (unsigned long long)b->wrong);
	for (uint32_t i = 0; i < n; i++) {
		const struct row *r = &row[i];

		printf("%s\n  { \"name\": \"%s\", \"size\": %llu, \"unit\": \"%s\", ", i ? "," : "",
		       r->name, (unsigned long long)r->size, r->unit);
		printf("\"tally\": %.9g, \"peer\": \"%s\", \"peer_value\": %.9g, \"ratio\": %.6g, ",
		       r->ours, r->peer, r->peers, r->ours / r->peers);
		if (r->target > 0)
			printf("\"target\": \"%s %.2f\", \"met\": %s }", r->at_most ? "<=" : ">=",
			       r->target, met(r) ? "true" : "false");
		else
			printf("\"target\": null, \"met\": null }");
	}
	printf("\n] }\n");
}

static void print_table(const struct bench *b, const struct row *row, uint32_t n)
{
	printf("%-24s %10s %-5s %-32s %10s %7s  %-8s %s\n", "", "Tally", "", "next to", "", "ratio",
	       "target", "met");
	for (uint32_t i = 0; i < n; i++) {
		const struct row *r = &row[i];
		char name[32], target[16] = "";

		snprintf(name, sizeof(name), "%s (%u) %.3g MiB", r->name, b->world,
			 (double)r->size / (1 << 20));
		if (r->target > 0)
			snprintf(target, sizeof(target), "%s %.2f", r->at_most ? "<=" : ">=",
				 r->target);
		printf("%-24s %10.4g %-5s %-32s %10.4g %7.3f  %-8s %s\n", name, r->ours, r->unit,
		       r->peer, r->peers, r->ours / r->peers, target,
		       r->target > 0 ? met(r) ? "yes" : "no" : "");
	}
	if (b->wrong)
		printf("WRONG: %llu elements of a rank\n", (unsigned long long)b->wrong);
}

/* ---- the whole ---- */

static int count_gpus(void)
{
	int gpus = 0;
	cudaError_t rc = cudaGetDeviceCount(&gpus);

	if (rc || !gpus)
		fprintf(stderr, "%s\n", rc ? cudaGetErrorString(rc) : "CUDA sees none");
	else
		printf("%d\n", gpus);
	return rc || !gpus;
}

static void open_all(struct bench *b, const struct options *o)
{
	tally_tensor_desc d = { .name = "numbers", .dtype = TALLY_FLOAT64 };
	tally_gpu_options gpu = { .plugin = o->plugin };
	const char *wrong;

	must(b, tally_attach(NULL, &b->s), "attach");
	b->rank = (uint32_t)tally_rank(b->s);
	d.count = b->world = (uint32_t)tally_world_size(b->s);
	gpu.device = tally_local_rank(b->s);
	must(b, tally_gpu_open(b->s, &gpu), "gpu_open");
	cuda(cudaSetDevice(gpu.device), "cudaSetDevice");
	wrong = work_init(&b->work);
	if (wrong)
		die("%s", wrong);
	must(b, tally_declare(b->s, &d, 1, &b->numbers), "declare");
	cuda(cudaStreamCreateWithFlags(&b->train, cudaStreamNonBlocking), "a stream");
	cuda(cudaStreamCreateWithFlags(&b->compute, cudaStreamNonBlocking), "a stream");
	cuda(cudaStreamCreateWithFlags(&b->away, cudaStreamNonBlocking), "a stream");
	cuda(cudaStreamCreateWithFlags(&b->back, cudaStreamNonBlocking), "a stream");
	cuda(cudaEventCreateWithFlags(&b->begin, 0), "an event");
	cuda(cudaEventCreateWithFlags(&b->end, 0), "an event");
}

static void close_all(struct bench *b)
{
	work_fini(&b->work);
	(void)cudaEventDestroy(b->begin);
	(void)cudaEventDestroy(b->end);
	(void)cudaStreamDestroy(b->train);
	(void)cudaStreamDestroy(b->compute);
	(void)cudaStreamDestroy(b->away);
	(void)cudaStreamDestroy(b->back);
	must(b, tally_detach(b->s), "detach");
}

static int run(const struct options *o)
{
	static const uint64_t sizes[] = { 64u << 20, 256u << 20 };
	uint32_t n = o->size ? 1 : sizeof(sizes) / sizeof(sizes[0]);
	struct row row[3 * sizeof(sizes) / sizeof(sizes[0])];
	struct bench b = { .wrong = 0 };

	open_all(&b, o);
	for (uint32_t i = 0; i < n; i++) {
		have(&b, o->size ? o->size : sizes[i]);
		measure(&b, o, &row[3 * i]);
		check(&b);
		drop(&b);
	}
	close_all(&b);
	if (!b.rank && o->json)
		print_json(&b, row, 3 * n);
	else if (!b.rank)
		print_table(&b, row, 3 * n);
	return b.wrong || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* A number in [min, max]; or says that it is none. */
static bool parse(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *v)
{
	char *end;

	*v = strtoull(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && *v >= min && *v <= max)
		return true;
	fprintf(stderr, "gpu_bench: --%s wants a number from %llu to %llu, not \"%s\"\n", option,
		(unsigned long long)min, (unsigned long long)max, text);
	return false;
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
		{ "size", required_argument, NULL, 's' },
		{ "time-ms", required_argument, NULL, 't' },
		{ "turns", required_argument, NULL, 'r' },
		{ "plugin", required_argument, NULL, 'p' },
		{ "json", no_argument, NULL, 'j' },
		{ "gpus", no_argument, NULL, 'g' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct options o = { 0 };
	uint64_t time_ms = 1000, turns = 5;
	bool ok = true;
	int c;

	while (ok && (c = getopt_long(argc, argv, "s:t:r:p:jgh", names, NULL)) != -1) {
		if (c == 's')
			ok = parse("size", optarg, sizeof(float), UINT64_C(4) << 30, &o.size);
		else if (c == 't')
			ok = parse("time-ms", optarg, 1, 60000, &time_ms);
		else if (c == 'r')
			ok = parse("turns", optarg, 1, TURNS_MAX, &turns);
		else if (c == 'p')
			o.plugin = optarg;
		else if (c == 'j')
			o.json = true;
		else if (c == 'g')
			return count_gpus();
		else if (c == 'h')
			return fputs(usage, stdout) < 0;
		else
			ok = false;
	}
	if (!ok || optind < argc) {
		fprintf(stderr, "Try gpu_bench --help.\n");
		return 2;
	}
	o.size = o.size / sizeof(float) * sizeof(float);
	o.time_ms = (uint32_t)time_ms;
	o.turns = (uint32_t)turns;
	return run(&o);
}
