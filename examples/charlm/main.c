// SPDX-License-Identifier: Apache-2.0
/*
 * charlm: trains a character language model on every rank of a Tally job, each
 * on its share of a text, and shows that all ranks end with the same model.
 *
 * A step: the forward pass asks for each parameter just before its use; that
 * waits for the mean gradient of the step before and applies it.  The backward
 * pass announces each gradient when it is complete; that pushes it.  So while a
 * layer is computed, the others' gradients travel.
 *
 * Rank 0 prints; every rank says what fails.  Exit status: 0, 1 (it failed), 2
 * (wrong usage).
 */
#include "examples/charlm/exchange.h"
#include "examples/charlm/model.h"
#include "examples/charlm/text.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONTEXT		24u
#define BATCH_MAX	4096u
#define WARM_UP		20u	/* steps in which the rate grows to its full value */
#define EVAL_PASSES	8u	/* of `batch` windows on each rank, before and after */
#define TEMPERATURE	0.7	/* of the sample: below 1 prefers the likely */

struct options {
	const char *text;
	uint64_t steps, batch, seed, sample;
	double rate;
};

struct run {
	struct options o;
	struct text text;
	struct model model;
	struct exchange x;
	const uint8_t **windows;	/* owned: of one pass */
	uint64_t random;		/* this rank's, for its windows */
	uint32_t updates;		/* the step whose gradients are now applied */
	float loss;			/* mean over the ranks, of a step just passed */
	double began, shown;
	int error;			/* first TALLY_E* of a hook; 0: none */
};

static const char usage[] =
	"Usage: charlm [OPTION]... [TEXT]\n"
	"Trains a character language model on the ranks of a Tally job, for example\n"
	"  tally local --agents 2 --servers 1 --ranks 4 -- charlm\n"
	"\n"
	"TEXT is a regular file of 4096 bytes to 256 MiB; by default $TEXT, else\n"
	TEXT_DEFAULT "\n"
	"\n"
	"  --steps N    train for N steps (default 350)\n"
	"  --batch N    windows of text per rank and step (default 64)\n"
	"  --rate R     learning rate (default 0.003)\n"
	"  --seed N     other random numbers (default 1)\n"
	"  --sample N   characters to write at the end (default 400)\n"
	"  --help       print this\n";

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- training ---- */

/* Grows, then falls in a straight line to a tenth. */
static float rate_at(const struct options *o, uint32_t step)
{
	double rate = o->rate * (1 - 0.9 * (double)step / (double)o->steps);

	return (float)(step < WARM_UP ? rate * step / WARM_UP : rate);
}

/* Hooks cannot fail: the first error is kept, and nothing more is asked of Tally. */
static void need(void *ctx, enum model_param p)
{
	struct run *run = ctx;
	const float *mean;

	if (run->error)
		return;
	run->error = exchange_finish(&run->x, p, &mean);
	if (!run->error && mean)
		model_update(&run->model, p, mean, run->updates,
			     rate_at(&run->o, run->updates));
}

static void ready(void *ctx, enum model_param p)
{
	struct run *run = ctx;

	if (!run->error)
		run->error = exchange_start(&run->x, p);
}

static void show(struct run *run, uint64_t step)
{
	bool tty = isatty(STDOUT_FILENO), last = step == run->o.steps;
	double t = seconds(), per_second = (double)step / (t - run->began);
	double world = run->x.world;
	double bytes = (double)model_count_all(&run->model.shape) * sizeof(float);

	if (run->x.rank != 0 || (!last && t - run->shown < (tty ? 0.1 : 2)))
		return;
	run->shown = t;
	printf("%sstep %llu/%llu  loss %.3f  %.0f samples/s  %.0f MB/s through Tally%s",
	       tty ? "\r" : "", (unsigned long long)step, (unsigned long long)run->o.steps,
	       (double)run->loss, per_second * (double)run->o.batch * world,
	       per_second * bytes * world / 1e6, tty && !last ? "   " : "\n");
	fflush(stdout);
}

/* The loss on the screen is the one of the step before: it had time to travel. */
static int train_step(struct run *run, uint64_t step)
{
	const struct model_hooks hooks = { need, ready, run };
	float loss;
	int r;

	text_windows(&run->text, CONTEXT, run->x.rank, run->x.world, &run->random, run->windows,
		     run->o.batch);
	loss = model_forward(&run->model, run->windows, run->o.batch, &hooks);
	run->updates = (uint32_t)step;
	if (run->error)
		return run->error;
	r = exchange_finish_loss(&run->x, &run->loss);
	if (r == 0)
		r = exchange_start_loss(&run->x, loss);
	if (r < 0)
		return r;
	model_backward(&run->model, &hooks);
	return run->error;
}

/* Applies the last step's gradients: there is no next forward pass to do it. */
static int finish(struct run *run)
{
	for (int p = 0; p < MODEL_PARAMS; p++)
		need(run, (enum model_param)p);
	return run->error ? run->error : exchange_finish_loss(&run->x, &run->loss);
}

static int train(struct run *run)
{
	int r = 0;

	run->began = run->shown = seconds();
	for (uint64_t step = 1; r == 0 && step <= run->o.steps; step++) {
		r = train_step(run, step);
		if (r == 0 && step == run->o.steps)
			r = finish(run);
		if (r == 0)
			show(run, step);
	}
	return r;
}

/* The mean loss over windows from everywhere in the text, the same ones each time. */
static int evaluate(struct run *run, float *loss)
{
	uint64_t random = run->o.seed + (uint64_t)run->x.rank;
	float sum = 0;
	int r;

	for (uint32_t i = 0; i < EVAL_PASSES; i++) {
		text_windows(&run->text, CONTEXT, run->x.rank, run->x.world, &random,
			     run->windows, run->o.batch);
		sum += model_forward(&run->model, run->windows, run->o.batch, NULL);
	}
	r = exchange_start_loss(&run->x, sum / EVAL_PASSES);
	return r < 0 ? r : exchange_finish_loss(&run->x, loss);
}

/* ---- the sample ---- */

static uint8_t draw(const float *probability, uint64_t *random)
{
	double weight[MODEL_BYTES], sum = 0, at;

	for (size_t i = 0; i < MODEL_BYTES; i++)
		sum += weight[i] = pow((double)probability[i], 1 / TEMPERATURE);
	at = (double)(model_random(random) >> 11) * 0x1p-53 * sum;
	for (size_t i = 0; i < MODEL_BYTES - 1; i++) {
		at -= weight[i];
		if (at < 0)
			return (uint8_t)i;
	}
	return MODEL_BYTES - 1;
}

static void print_byte(uint8_t c)
{
	putchar(c < ' ' && c != '\n' && c != '\t' ? ' ' : c);
}

/* Goes on from a place in the text; what was read there is shown in brackets. */
static void print_sample(struct run *run)
{
	uint8_t window[CONTEXT + 1];
	const uint8_t *w = window;
	uint64_t random = run->o.seed;

	text_windows(&run->text, CONTEXT, 0, 1, &random, run->windows, 1);
	memcpy(window, run->windows[0], CONTEXT);
	window[CONTEXT] = 0;
	printf("\nsample of generated text:\n[");
	for (size_t i = 0; i < CONTEXT; i++)
		print_byte(window[i]);
	printf("]");
	for (uint64_t i = 0; i < run->o.sample; i++) {
		model_forward(&run->model, &w, 1, NULL);
		window[CONTEXT] = draw(run->model.output, &random);
		print_byte(window[CONTEXT]);
		memmove(window, window + 1, CONTEXT);
	}
	printf("\n\n");
}

/* ---- the whole ---- */

/* What must be equal on all ranks for the training to make sense. */
static uint64_t settings_hash(const struct run *run)
{
	uint64_t h = text_hash(&run->text), rate;

	memcpy(&rate, &run->o.rate, sizeof(rate));
	h ^= run->o.steps;
	h = model_random(&h) ^ run->o.batch;
	h = model_random(&h) ^ run->o.seed;
	h = model_random(&h) ^ rate;
	return model_random(&h);
}

static int must_be_same(struct run *run, uint64_t value, const char *complaint)
{
	bool same = false;
	int r = exchange_same(&run->x, value, &same);

	if (r < 0) {
		exchange_explain(&run->x, r, stderr);
		return EXIT_FAILURE;
	}
	if (same)
		return EXIT_SUCCESS;
	fprintf(stderr, "charlm: rank %d: %s\n", run->x.rank, complaint);
	return EXIT_FAILURE;
}

static int train_and_measure(struct run *run, float *before, float *after)
{
	int r = exchange_broadcast(&run->x, &run->model);

	if (r == 0)
		r = evaluate(run, before);
	if (r == 0)
		r = train(run);
	if (r == 0)
		r = evaluate(run, after);
	if (r == 0)
		return EXIT_SUCCESS;
	exchange_explain(&run->x, r, stderr);
	return EXIT_FAILURE;
}

static int run_job(struct run *run)
{
	struct model *m = &run->model;
	bool root = run->x.rank == 0;
	float before = 0, after = 0;
	int r = exchange_declare(&run->x, m);

	if (r < 0) {
		exchange_explain(&run->x, r, stderr);
		return EXIT_FAILURE;
	}
	if (must_be_same(run, settings_hash(run), "the ranks have different texts or options"))
		return EXIT_FAILURE;
	if (root) {
		model_randomize(m, run->o.seed);
		printf("%zu parameters, %d rank%s on %d machine%s, %zu bytes of %s\n",
		       model_count_all(&m->shape), run->x.world, run->x.world == 1 ? "" : "s",
		       tally_machines(run->x.session),
		       tally_machines(run->x.session) == 1 ? "" : "s", run->text.len, run->o.text);
		fflush(stdout);
	}
	run->random = run->o.seed * 1000003 + (uint64_t)run->x.rank;
	if (train_and_measure(run, &before, &after) ||
	    must_be_same(run, model_hash(m), "the parameters differ between the ranks"))
		return EXIT_FAILURE;
	if (root) {
		print_sample(run);
		printf("trained in %.1f s\nloss before %.3f, after %.3f (%.2f x)\n"
		       "parameters identical on %d rank%s\n",
		       run->shown - run->began, (double)before, (double)after,
		       (double)(after / before), run->x.world, run->x.world == 1 ? "" : "s");
	}
	return EXIT_SUCCESS;
}

static int run_all(struct run *run)
{
	struct model_shape shape = { .context = CONTEXT, .embed = 32, .hidden1 = 768,
				     .hidden2 = 512, .batch = run->o.batch };
	char why[512];
	int status = EXIT_FAILURE, r;

	if (text_load(&run->text, run->o.text, why, sizeof(why)) < 0) {
		fprintf(stderr, "charlm: %s\n", why);
		return EXIT_FAILURE;
	}
	run->windows = calloc(run->o.batch, sizeof(*run->windows));
	if (!run->windows || model_new(&run->model, &shape) < 0) {
		fprintf(stderr, "charlm: no memory for the model\n");
		goto free_text;
	}
	r = exchange_open(&run->x);
	if (r < 0)
		exchange_explain(&run->x, r, stderr);
	else
		status = run_job(run);
	exchange_close(&run->x);
	model_free(&run->model);
free_text:
	free(run->windows);
	text_free(&run->text);
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	fprintf(stderr, "charlm: cannot write the output: %s\n", strerror(errno));
	return EXIT_FAILURE;
}

/* ---- options ---- */

static bool parse_count(const char *name, const char *text, uint64_t least, uint64_t most,
			uint64_t *v)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < least || n > most) {
		fprintf(stderr, "charlm: --%s wants a number from %llu to %llu, not \"%s\"\n",
			name, (unsigned long long)least, (unsigned long long)most, text);
		return false;
	}
	*v = n;
	return true;
}

static bool parse_rate(const char *text, double *v)
{
	char *end;

	*v = strtod(text, &end);
	if (end != text && !*end && *v > 0 && *v <= 1)
		return true;
	fprintf(stderr, "charlm: --rate wants a number above 0, at most 1, not \"%s\"\n", text);
	return false;
}

/* -1: go on; else the exit status. */
static int parse_options(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {
		{ "steps", required_argument, NULL, 's' },
		{ "batch", required_argument, NULL, 'b' },
		{ "rate", required_argument, NULL, 'r' },
		{ "seed", required_argument, NULL, 'e' },
		{ "sample", required_argument, NULL, 'a' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *env = getenv("TEXT");
	bool ok = true;
	int c;

	*o = (struct options){ .text = env && *env ? env : TEXT_DEFAULT, .steps = 350,
			       .batch = 64, .seed = 1, .sample = 400, .rate = 0.003 };
	while (ok && (c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
		if (c == 's')
			ok = parse_count("steps", optarg, 1, 100000000, &o->steps);
		else if (c == 'b')
			ok = parse_count("batch", optarg, 1, BATCH_MAX, &o->batch);
		else if (c == 'r')
			ok = parse_rate(optarg, &o->rate);
		else if (c == 'e')
			ok = parse_count("seed", optarg, 0, UINT64_MAX, &o->seed);
		else if (c == 'a')
			ok = parse_count("sample", optarg, 0, 1000000, &o->sample);
		else if (c == 'h')
			return fputs(usage, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
		else
			ok = false;
	}
	if (ok && optind < argc)
		o->text = argv[optind++];
	if (ok && optind < argc) {
		fprintf(stderr, "charlm: only one TEXT, not also \"%s\"\n", argv[optind]);
		ok = false;
	}
	if (ok)
		return -1;
	fprintf(stderr, "Try charlm --help.\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct run run = { 0 };
	int status = parse_options(&run.o, argc, argv);

	return status >= 0 ? status : run_all(&run);
}
