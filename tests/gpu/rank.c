// SPDX-License-Identifier: Apache-2.0
/*
 * rank [--exact] [--apart] [--rounds N | --until FILE] [--lost | --fails | --shy | --host |
 *	--mixed | --crossed | --captures | --late | --alone HOW | --short |
 *	--steps DIRECTORY] PLUGIN
 * rank --gpus
 *
 * A rank whose gradients lie on a GPU, for the stories tests/stories/gpu_*.sh, where it
 * plays on the double of CUDA, and for tests/gpu/check.sh, where it has a real one: its
 * tensors are managed memory.  Inputs are written and results read on a stream, so what the
 * stream does not wait for shows as other values.
 *
 * Most tensors have small integers as values, so their sums are the same in every order;
 * one has not, and is compared with the sum of the same values in host memory: bit by bit
 * with --exact.  --until: rounds until FILE is there.  --lost: rank 1 dies in the middle;
 * --fails: its group of GPUs does.  Then every other rank must get an error, soon, and its
 * stream must go on.  --shy: rank 1 opens no GPU; --host: nor does it then, and declares a
 * tensor, for which it has 5 s; --mixed: it alone wants exact sums; --crossed: it starts two
 * rounds the other way round.
 * --captures: before each round a graph is captured on the stream, and no round gets into it.
 * --late: two ranks, exact; on rank 0's GPU a result is stuck behind a round that rank 1 begins
 * late, while its tensor goes on in host memory, and while it is given back.
 * --alone: rank 0 starts a round that nobody else does. HOW is wait, however often it takes, or
 * leave: the job, while a stream waits.
 * --short: the first slab that the agent gives does not fit into this process.
 * --steps: the first half of the ranks starts a round, and another when there is a file 1 in
 * DIRECTORY; all wait for both when there is a 2, the others start them only then.
 * --apart: several ranks may have one GPU, as if they were of different hosts, which NCCL
 * wants then.  --gpus prints how many there are, or why there is none and exits 1.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/tally.h"

#define BROKEN_ROUND	3u
#define SOON_MS		60000
#define CHUNK		(64u << 10)	/* so small that several go together */

struct item {
	const char *name;
	tally_dtype dtype;
	uint64_t count;
	tally_op op;
	bool apart;			/* out is not in */
	bool real;			/* values that are no integers */
	tally_tensor *tensor, *twin;	/* twin: in host memory, of one that is real */
	uint8_t *in, *out, *seen, *host;
	uint32_t round;			/* what fill() is to write */
	tally_ticket ticket;
};

static struct item items[] = {
	{ "tiny", TALLY_INT32, 3, TALLY_SUM, false, false },
	{ "bytes", TALLY_INT8, 200001, TALLY_SUM, true, false },
	{ "layer0", TALLY_FLOAT32, 1000000, TALLY_SUM, false, false },
	{ "layer1", TALLY_BFLOAT16, 700000, TALLY_SUM, true, false },
	{ "mean", TALLY_INT64, 300000, TALLY_MEAN, false, false },
	{ "half", TALLY_FLOAT16, 131072, TALLY_MEAN, true, false },
	{ "real", TALLY_FLOAT32, 500001, TALLY_SUM, true, true },
	{ "none", TALLY_FLOAT32, 0, TALLY_SUM, false, false },
};

#define ITEMS (sizeof(items) / sizeof(items[0]))

static tally_session *s;
static uint32_t rank, world;
static bool exact, captures;

static void die(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "rank %u: ", rank);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

static void must(int rc, const char *what)
{
	if (rc)
		die("%s: %s: %s", what, tally_error_name(rc), tally_error_text(s));
}

/* ---- values ---- */

/*
 * Small integers repeat themselves after PERIOD elements, in runs, each of which begins one
 * element further on; so an element is at step at / RUN % PERIOD + at % RUN.
 */
#define PERIOD	13u
#define RUN	1000u

static int32_t small(uint32_t step, uint32_t round, uint32_t of)
{
	return (int32_t)((step * 7 + of * 5 + round * 3) % PERIOD) - 6;
}

/* Cheaper than a sine for each element.  Made before any stream calls fill(). */
static float waves[1024];

static void waves_init(void)
{
	for (uint32_t i = 0; i < 1024; i++)
		waves[i] = (float)sin(i * 0.37 + 1);
}

static float odd(uint64_t i, uint32_t round, uint32_t of)
{
	return waves[(i * (of + 2) + round * 5) % 1024] * (float)(1 + i % 97);
}

static void store(tally_dtype dtype, void *p, uint64_t i, double v)
{
	float f = (float)v;
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	switch (dtype) {
	case TALLY_FLOAT32:
		((float *)p)[i] = f;
		break;
	case TALLY_FLOAT16:
		((_Float16 *)p)[i] = (_Float16)f;
		break;
	case TALLY_BFLOAT16:
		((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
		break;
	case TALLY_INT8:
		((int8_t *)p)[i] = (int8_t)v;
		break;
	case TALLY_INT32:
		((int32_t *)p)[i] = (int32_t)v;
		break;
	default:
		((int64_t *)p)[i] = (int64_t)v;
	}
}

/* ribbon: as many elements as there are steps, what this rank gives, or what comes of all. */
static void weave(const struct item *it, bool result, uint8_t *ribbon)
{
	bool whole = it->dtype == TALLY_INT64;

	for (uint32_t step = 0; step < PERIOD + RUN; step++) {
		int32_t sum = result ? 0 : small(step, it->round, rank);

		for (uint32_t r = 0; result && r < world; r++)
			sum += small(step, it->round, r);
		if (result && it->op == TALLY_MEAN)
			store(it->dtype, ribbon, step, whole ? sum / (int32_t)world :
			      (double)sum / world);
		else
			store(it->dtype, ribbon, step, sum);
	}
}

static void fill(void *arg)
{
	const struct item *it = arg;
	size_t size = tally_dtype_size(it->dtype);
	uint8_t ribbon[(PERIOD + RUN) * 8];

	for (uint64_t i = 0; it->real && i < it->count; i++)
		((float *)it->in)[i] = odd(i, it->round, rank);
	if (it->real)
		return;
	weave(it, false, ribbon);
	for (uint64_t at = 0; at < it->count; at += RUN)
		memcpy(it->in + at * size, ribbon + at / RUN % PERIOD * size,
		       (it->count - at < RUN ? it->count - at : RUN) * size);
}

static void look(void *arg)
{
	struct item *it = arg;

	memcpy(it->seen, it->out, it->count * tally_dtype_size(it->dtype));
}

static void check_small(const struct item *it)
{
	size_t size = tally_dtype_size(it->dtype);
	uint8_t ribbon[(PERIOD + RUN) * 8];
	int rc;

	weave(it, true, ribbon);
	for (uint64_t at = 0; at < it->count; at += RUN) {
		const uint8_t *want = ribbon + at / RUN % PERIOD * size;
		const uint8_t *seen = it->seen + at * size;
		uint64_t n = it->count - at < RUN ? it->count - at : RUN, i = 0;

		if (!memcmp(seen, want, n * size))
			continue;
		/* a job that has ended lets streams go, and says so in the next call */
		while ((rc = tally_poll(s)) > 0)
			;
		must(rc, "poll");
		while (!memcmp(seen + i * size, want + i * size, size))
			i++;
		die("tensor %s round %u: element %llu is wrong", it->name, it->round,
		    (unsigned long long)(at + i));
	}
}

/* The same values from host memory. */
static void check_real(struct item *it)
{
	const float *got = (const float *)it->seen, *want = (const float *)it->host;
	tally_ticket k;

	for (uint64_t i = 0; i < it->count; i++)
		((float *)it->host)[i] = odd(i, it->round, rank);
	must(tally_push_pull(s, it->twin, it->host, it->host, NULL, &k), "push_pull");
	must(tally_wait(s, k, SOON_MS), "wait");
	for (uint64_t i = 0; i < it->count; i++)
		if (exact ? memcmp(&got[i], &want[i], 4) :
		    fabsf(got[i] - want[i]) > 1e-3f)
			die("tensor %s round %u: element %llu is %.9g, in host memory %.9g",
			    it->name, it->round, (unsigned long long)i, (double)got[i],
			    (double)want[i]);
}

/* ---- rounds ---- */

static void *on_gpu(size_t bytes)
{
	void *p;

	if (cudaMallocManaged(&p, bytes, cudaMemAttachGlobal))
		die("no managed memory");
	return p;
}

static void declare(void)
{
	for (size_t i = 0; i < ITEMS; i++) {
		struct item *it = &items[i];
		size_t bytes = it->count * tally_dtype_size(it->dtype);
		tally_tensor_desc d = { .name = it->name, .dtype = it->dtype, .count = it->count };

		must(tally_declare(s, &d, 1, &it->tensor), "declare");
		d.name = "twin";
		if (it->real)
			must(tally_declare(s, &d, 1, &it->twin), "declare");
		it->in = on_gpu(bytes + 1);
		it->out = it->apart ? on_gpu(bytes + 1) : it->in;
		it->seen = calloc(1, bytes + 1);
		if (it->real)
			must(tally_alloc(s, bytes, (void **)&it->host), "alloc");
	}
}

static void overlap(struct item *it)
{
	tally_ticket k;
	int rc = tally_gpu_push_pull(s, it->tensor, it->in, it->in + 4, NULL, NULL, &k);

	if (rc != TALLY_EINVAL || !strstr(tally_error_text(s), "in and out overlap"))
		die("in and out overlap: %s", tally_error_name(rc));
}

static void start(struct item *it, uint32_t round, cudaStream_t stream)
{
	const tally_push_pull_options opt = { .op = it->op };

	it->round = round;
	(void)cudaLaunchHostFunc(stream, fill, it);
	must(tally_gpu_push_pull(s, it->tensor, it->in, it->out, &opt, stream, &it->ticket),
	     "gpu_push_pull");
}

static void refused(int rc, const char *what)
{
	if (rc != TALLY_EINVAL || !strstr(tally_error_text(s), "captured into a CUDA graph"))
		die("%s on a captured stream: %s: %s", what, tally_error_name(rc),
		    tally_error_text(s));
}

/* Long enough for who watches the GPU to look at it.  stream: the one, or one that waits for it. */
static void capture(struct item *flying, struct item *idle, cudaStream_t captured,
		    cudaStream_t stream)
{
	cudaGraph_t graph;
	tally_ticket k;
	cudaError_t rc = cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal);

	if (rc)
		die("capture: %s", cudaGetErrorString(rc));
	refused(tally_gpu_push_pull(s, idle->tensor, idle->in, idle->out, NULL, stream, &k),
		"gpu_push_pull");
	refused(tally_gpu_wait(s, flying->ticket, stream), "gpu_wait");
	usleep(300000);
	rc = cudaStreamEndCapture(captured, &graph);
	if (rc)
		die("the end of the capture: %s", cudaGetErrorString(rc));
}

/* In odd rounds the host waits, in even ones the stream does. */
static void play_round(uint32_t round, cudaStream_t stream)
{
	static cudaStream_t blocking;

	for (size_t i = 0; i < ITEMS; i++) {
		start(&items[i], round, stream);
		if (!captures || i > 0)
			continue;
		capture(&items[0], &items[1], stream, stream);
		if (blocking || cudaStreamCreateWithFlags(&blocking, 0) == cudaSuccess)
			capture(&items[0], &items[1], blocking, NULL);
	}
	for (size_t i = 0; i < ITEMS; i++) {
		if (round % 2)
			must(tally_wait(s, items[i].ticket, SOON_MS), "wait");
		else
			must(tally_gpu_wait(s, items[i].ticket, stream), "gpu_wait");
		(void)cudaLaunchHostFunc(stream, look, &items[i]);
	}
	(void)cudaStreamSynchronize(stream);
	for (size_t i = 0; i < ITEMS; i++)
		if (items[i].real)
			check_real(&items[i]);
		else
			check_small(&items[i]);
}

static void say(int rc)
{
	fprintf(stderr, "rank %u got %s: %s\n", rank, tally_error_name(rc), tally_error_text(s));
}

/* The rank that is well: its round ends with an error, and its stream goes on. */
static void expect_error(cudaStream_t stream)
{
	struct item *it = &items[2];
	int rc = 0;

	for (int i = 0; i < 100 && !rc; i++) {
		it->round = BROKEN_ROUND;
		(void)cudaLaunchHostFunc(stream, fill, it);
		rc = tally_gpu_push_pull(s, it->tensor, it->in, it->out, NULL, stream,
					 &it->ticket);
		if (!rc)
			rc = i % 2 ? tally_wait(s, it->ticket, SOON_MS) :
			     tally_gpu_wait(s, it->ticket, stream);
		(void)cudaStreamSynchronize(stream);
	}
	if (!rc || rc == TALLY_ETIMEDOUT)
		die("no error, or a late one: %s", tally_error_text(s));
	say(rc);
}

/* Rank 1 starts two tensors of one size in another order: nobody may be shown a sum of both. */
static void cross(void)
{
	struct item *it[2] = { &items[2], &items[3] };
	uint32_t first = rank == 1;
	cudaStream_t stream;
	int rc;

	it[1]->dtype = it[0]->dtype;
	it[1]->count = it[0]->count;
	declare();
	rc = tally_barrier(s, SOON_MS);		/* who is quick ends the job */
	(void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	for (uint32_t i = 0; i < 2; i++) {
		struct item *now = it[i ^ first];

		rc = rc ? rc : tally_gpu_push_pull(s, now->tensor, now->in, now->out, NULL,
						   stream, &now->ticket);
	}
	for (uint32_t i = 0; i < 2 && !rc; i++)
		rc = tally_wait(s, it[i]->ticket, SOON_MS);
	if (!rc)
		die("ranks crossed, and nobody has said so");
	say(rc);
	_exit(0);
}

static void nap(void *arg)
{
	(void)arg;
	usleep(200000);
}

static void use_host(struct item *it)
{
	tally_ticket k;

	for (int i = 0; i < 2; i++) {		/* both places of results */
		memset(it->seen, i, it->count * tally_dtype_size(it->dtype));
		must(tally_push_pull(s, it->tensor, it->seen, it->seen, NULL, &k), "push_pull");
		must(tally_wait(s, k, SOON_MS), "wait");
	}
}

static void late(void)
{
	struct item *behind = &items[2], *first = &items[4];
	cudaStream_t stream;

	must(tally_fd(s) < 0, "fd");
	(void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	for (uint32_t turn = 0; turn < 2; turn++) {
		uint32_t round = turn ? 4 : 1;	/* of `behind`, which is in host memory twice */

		if (!rank)
			start(first, turn + 1, stream);
		start(behind, round, stream);
		while (tally_poll(s) < 1)
			usleep(1000);		/* its result is at the agent */
		if (!rank && !turn)
			must(tally_gpu_wait(s, behind->ticket, stream), "gpu_wait");
		if (rank && !turn)
			must(tally_wait(s, behind->ticket, SOON_MS), "wait");
		must(tally_barrier(s, SOON_MS), "barrier");
		if (rank) {
			(void)cudaLaunchHostFunc(stream, nap, NULL);
			start(first, turn + 1, stream);
		}
		if (turn)
			must(tally_undeclare(s, &behind->tensor, 1), "undeclare");
		else
			use_host(behind);
		look(behind);
		check_small(behind);
		must(tally_wait(s, first->ticket, SOON_MS), "wait");
	}
	must(tally_barrier(s, SOON_MS), "barrier");	/* who ends before is a lost rank */
	must(tally_detach(s), "detach");
	exit(0);
}

/* Others hear that rank 0 does not come. */
static void alone(const char *how)
{
	struct item *it = &items[2];
	cudaStream_t stream;
	int rc;

	if (rank) {
		(void)tally_barrier(s, SOON_MS);
		_exit(0);
	}
	(void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	start(it, 1, stream);
	if (!strcmp(how, "leave")) {
		must(tally_gpu_wait(s, it->ticket, stream), "gpu_wait");
		rc = tally_leave(s);
	} else {
		rc = TALLY_ETIMEDOUT;
		for (int i = 0; i < 200 && rc == TALLY_ETIMEDOUT; i++)
			rc = tally_wait(s, it->ticket, 100);
	}
	say(rc);
	(void)cudaStreamSynchronize(stream);
	_exit(0);
}

static void await_file(const char *dir, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	while (access(path, F_OK))
		usleep(10000);
}

static void steps(const char *dir)
{
	struct item *first = &items[2], *second = &items[4];
	bool early = rank < world / 2;
	cudaStream_t stream;

	(void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	if (!early)
		await_file(dir, "2");
	start(first, 1, stream);
	puts("started 1");
	if (early)
		await_file(dir, "1");
	start(second, 1, stream);
	puts("started 2");
	await_file(dir, "2");
	must(tally_wait(s, first->ticket, SOON_MS), "wait");
	must(tally_wait(s, second->ticket, SOON_MS), "wait");
	look(first);
	look(second);
	check_small(first);
	check_small(second);
	must(tally_barrier(s, SOON_MS), "barrier");
	must(tally_detach(s), "detach");
	exit(0);
}

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

/* As a program that has been written for host memory does. */
static int declare_alone(void)
{
	tally_tensor_desc d = { .name = "a", .dtype = TALLY_FLOAT32, .count = 1000 };
	tally_tensor *t;

	return tally_declare(s, &d, 1, &t);
}

static uint64_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long long pages = 0;

	if (!f || fscanf(f, "%llu", &pages) != 1)
		die("no /proc/self/statm");
	fclose(f);
	return pages * (uint64_t)getpagesize();
}

/* From then on an arena slab's place among those that are here is not its number at the agent. */
static void lose_slab(void)
{
	struct rlimit was, tight;
	void *p;
	int rc;

	(void)getrlimit(RLIMIT_AS, &was);
	tight = (struct rlimit){ address_space() + (16u << 20), was.rlim_max };
	(void)setrlimit(RLIMIT_AS, &tight);
	rc = tally_alloc(s, 64u << 20, &p);
	(void)setrlimit(RLIMIT_AS, &was);
	if (rc != TALLY_ENOMEM)
		die("a slab without room: %s", tally_error_name(rc));
}

/* A function of the double. */
static bool of_double(const char *name)
{
	void (*f)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, name);

	if (f)
		f();
	return f;
}

/* Rank 1 goes, and NCCL says so in the others' next call, before the agent knows. */
static void lose_one(void)
{
	if (rank == 1)
		(void)of_double("double_nccl_dies");	/* the real one sees a connection end */
	must(tally_barrier(s, SOON_MS), "barrier");
	if (rank == 1)
		_exit(0);
}

/* TROUBLE_COUNT, a file, shows how many rounds are done. */
static void count(uint32_t round)
{
	const char *file = getenv("TROUBLE_COUNT");
	FILE *f = file ? fopen(file, "r+") : NULL;

	if (f) {
		fprintf(f, "%10u\n", round);
		fclose(f);
	}
}

/* Rank 0 sees the file, and all agree. */
static bool all_see(const char *file)
{
	const tally_tensor_desc d = { .name = "seen", .dtype = TALLY_INT32, .count = 1 };
	static tally_tensor *t;
	static int32_t seen;
	tally_ticket k;

	if (!t)
		must(tally_declare(s, &d, 1, &t), "declare");
	seen = !rank && !access(file, F_OK);
	must(tally_push_pull(s, t, &seen, &seen, NULL, &k), "push_pull");
	must(tally_wait(s, k, SOON_MS), "wait");
	return seen;
}

static void play(uint32_t rounds, const char *until, bool lost, bool fails)
{
	cudaStream_t stream;

	(void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	for (uint32_t r = 1; until ? !all_see(until) : r <= rounds; r++) {
		if ((!lost && !fails) || r < BROKEN_ROUND) {
			play_round(r, stream);
			count(r);
			continue;
		}
		if (lost)
			lose_one();
		if (fails && rank == 1 && !of_double("double_nccl_fails"))
			die("only the double can fail when it is asked to");
		expect_error(stream);
		_exit(0);
	}
	(void)cudaStreamDestroy(stream);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "exact", no_argument, NULL, 'e' },
		{ "apart", no_argument, NULL, 'a' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "until", required_argument, NULL, 'u' },
		{ "lost", no_argument, NULL, 'l' },
		{ "fails", no_argument, NULL, 'f' },
		{ "shy", no_argument, NULL, 's' },
		{ "host", no_argument, NULL, 'h' },
		{ "mixed", no_argument, NULL, 'm' },
		{ "crossed", no_argument, NULL, 'c' },
		{ "captures", no_argument, NULL, 'C' },
		{ "late", no_argument, NULL, 'L' },
		{ "alone", required_argument, NULL, 'A' },
		{ "short", no_argument, NULL, 'o' },
		{ "steps", required_argument, NULL, 'S' },
		{ "gpus", no_argument, NULL, 'g' },
		{ 0 }
	};
	tally_gpu_options opt = { 0 };
	uint32_t rounds = 3;
	bool lost = false, fails = false, shy = false, host = false, mixed = false;
	bool crossed = false, delays = false, no_room = false;
	tally_options how = { .chunk_bytes = CHUNK };
	const char *me = getenv("TALLY_RANK"), *step_files = NULL, *until = NULL, *how_alone = NULL;
	int c, rc, gpus;

	waves_init();
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		exact |= c == 'e';
		lost |= c == 'l';
		fails |= c == 'f';
		shy |= c == 's';
		host |= c == 'h';
		mixed |= c == 'm';
		crossed |= c == 'c';
		captures |= c == 'C';
		delays |= c == 'L';
		no_room |= c == 'o';
		if (c == 'a')
			(void)setenv("NCCL_HOSTID", me ? me : "0", 1);
		if (c == 'g')
			return count_gpus();
		if (c == 'S')
			step_files = optarg;
		if (c == 'A')
			how_alone = optarg;
		if (c == 'u')
			until = optarg;
		if (c == 'r')
			rounds = (uint32_t)atoi(optarg);
	}
	if (host && me && atoi(me) == 1)
		how.timeout_ms = 5000;
	must(tally_attach(&how, &s), "attach");
	rank = (uint32_t)tally_rank(s);
	world = (uint32_t)tally_world_size(s);
	if (no_room)
		lose_slab();
	if (cudaGetDeviceCount(&gpus) || !gpus)
		gpus = 1;				/* gpu_open() says what is wrong */
	opt.device = tally_local_rank(s) % gpus;	/* which several ranks may share */
	(void)cudaSetDevice(opt.device);
	opt.exact = exact || delays;
	opt.plugin = argv[optind];
	if (mixed && rank == 1)
		opt.exact = true;
	if (rank == 1 && (shy || host))
		rc = host ? declare_alone() : tally_barrier(s, SOON_MS);
	else
		rc = tally_gpu_open(s, &opt);
	if (shy || host || mixed) {
		say(rc);
		return 0;
	}
	must(rc, "gpu_open");
	if (crossed)
		cross();
	declare();
	setlinebuf(stdout);
	if (delays)
		late();
	if (how_alone)
		alone(how_alone);
	if (step_files)
		steps(step_files);
	overlap(&items[2]);
	play(rounds, until, lost, fails);
	for (size_t i = 0; i < ITEMS; i++)
		must(tally_undeclare(s, &items[i].tensor, 1), "undeclare");
	must(tally_detach(s), "detach");
	for (size_t i = 0; i < ITEMS; i++) {
		(void)cudaFree(items[i].in);
		if (items[i].apart)
			(void)cudaFree(items[i].out);
		free(items[i].seen);
	}
	if (!rank && !until)
		printf("%u rounds of %zu tensors\n", rounds, ITEMS);
	return 0;
}
