// SPDX-License-Identifier: Apache-2.0
/*
 * rank: one training process that does as bench/run.py tells it.
 *
 *	rank CONTROL		(with TALLY_RANK, TALLY_WORLD_SIZE, TALLY_SOCKET)
 *
 * CONTROL is a Unix socket of the driver's.  The rank says hello on it, then reads one
 * order a line and answers each with one line of JSON; at the end of input it leaves.
 * All ranks of a job get the same orders, so that between two of them they are idle
 * and another contestant can be measured.  bench/peer.py is the same for the peers.
 *
 *	tensors COUNT BYTES URGENCY	have so many float32 tensors of so many bytes each;
 *					URGENCY 1: the first is the most urgent, 0: all alike
 *	list FILE DIVISOR		have those of a list, their elements divided
 *	prepare WAY			one round, every element compared; then zeros.  WAY:
 *					in-place, or view (the result is read where it lies)
 *	run STEPS			barrier, then so many steps one after the other
 *	declare COUNT			declares so many tensors, says how long it took
 *	urgent				all tensors, the first when the others are under way:
 *					which part of those was not yet done when it was
 *	train STEPS FORWARD BACKWARD	as training does: see train()
 *
 * A step submits all tensors, last one first as gradients come, and waits for all of
 * them.  Times are CLOCK_MONOTONIC, the same for all ranks of this machine: the driver
 * takes the slowest rank of each step.
 */
#include "client/tally.h"

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES	512
#define ALIGN_FLOATS	16u	/* tensors of a list begin at cache lines */

struct rank {
	tally_session *s;	/* owned */
	FILE *in, *out;		/* owned: the driver */
	uint32_t n;		/* tensors */
	uint32_t taken;		/* of this step's tickets, those waited for */
	tally_tensor **t;	/* owned */
	tally_ticket *ticket;	/* owned */
	uint64_t *count, *at;	/* owned: elements of each, and where it begins */
	float *data;		/* in the arena: all tensors, one after the other */
	uint64_t elements;	/* in data */
	bool view;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static _Noreturn void die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("rank: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static void must(const struct rank *r, int rc, const char *what)
{
	if (rc)
		die("%s: %s", what, tally_error_text(r->s));
}

static void *memory(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		die("out of memory");
	return p;
}

/* ---- tensors ---- */

static void drop(struct rank *r)
{
	if (r->n) {
		must(r, tally_undeclare(r->s, r->t, r->n), "undeclare");
		must(r, tally_free(r->s, r->data), "free");
	}
	free(r->t);
	free(r->ticket);
	free(r->count);
	free(r->at);
	r->n = 0;
	r->t = NULL;
	r->ticket = NULL;
	r->count = r->at = NULL;
}

static double declare(const struct rank *r, const char *prefix, const uint64_t *count,
		      uint32_t n, bool urgency, tally_tensor **t)
{
	tally_tensor_desc *d = memory(n, sizeof(*d));
	char (*name)[32] = memory(n, sizeof(*name));
	double from;

	for (uint32_t i = 0; i < n; i++) {
		snprintf(name[i], sizeof(name[i]), "%s.%u", prefix, i);
		d[i] = (tally_tensor_desc){ .name = name[i], .dtype = TALLY_FLOAT32,
					    .count = count[i],
					    .priority = urgency ? -(int32_t)i : 0 };
	}
	must(r, tally_barrier(r->s, 0), "barrier");
	from = now();
	must(r, tally_declare(r->s, d, n, t), "declare");
	from = now() - from;
	free(name);
	free(d);
	return from;
}

/* Takes `count` over. */
static void have(struct rank *r, uint64_t *count, uint32_t n, bool urgency)
{
	static unsigned int generation;
	char prefix[16];

	drop(r);
	r->count = count;
	r->n = n;
	r->t = memory(n, sizeof(struct tally_tensor *));
	r->ticket = memory(n, sizeof(*r->ticket));
	r->at = memory(n, sizeof(*r->at));
	r->elements = 0;
	for (uint32_t i = 0; i < n; i++) {
		r->at[i] = r->elements;
		r->elements += (count[i] + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
	}
	must(r, tally_alloc(r->s, r->elements * sizeof(float), (void **)&r->data), "alloc");
	snprintf(prefix, sizeof(prefix), "g%u", generation++);
	declare(r, prefix, count, n, urgency, r->t);
}

static void order_tensors(struct rank *r, const char *line)
{
	unsigned int n, urgency;
	unsigned long long bytes;
	uint64_t *count;

	if (sscanf(line, "tensors %u %llu %u", &n, &bytes, &urgency) != 3)
		die("wrong order: %s", line);
	count = memory(n, sizeof(*count));
	for (unsigned int i = 0; i < n; i++)
		count[i] = bytes / sizeof(float);
	have(r, count, n, urgency);
	fprintf(r->out, "{}\n");
}

/* "512x1024": the product, divided. */
static uint64_t shape_count(const char *shape, unsigned int divisor)
{
	uint64_t n = 1;
	char *end;

	for (;; shape = end + 1) {
		n *= strtoull(shape, &end, 10);
		if (*end != 'x')
			return n > divisor ? n / divisor : 1;
	}
}

static void order_list(struct rank *r, const char *line)
{
	char path[LINE_BYTES], row[LINE_BYTES], shape[LINE_BYTES];
	unsigned int divisor;
	uint64_t *count = NULL, bytes = 0;
	uint32_t n = 0;
	FILE *f;

	if (sscanf(line, "list %511s %u", path, &divisor) != 2)
		die("wrong order: %s", line);
	f = fopen(path, "r");
	if (!f)
		die("cannot read %s", path);
	while (fgets(row, sizeof(row), f)) {
		if (row[0] == '#' || sscanf(row, "%*s %*s %511s", shape) != 1)
			continue;
		count = realloc(count, (n + 1) * sizeof(*count));
		if (!count)
			die("out of memory");
		count[n] = shape_count(shape, divisor);
		bytes += count[n++] * sizeof(float);
	}
	fclose(f);
	have(r, count, n, true);
	fprintf(r->out, "{\"bytes\": %llu}\n", (unsigned long long)bytes);
}

static void order_declare(struct rank *r, const char *line)
{
	static unsigned int generation;
	tally_tensor **t;
	uint64_t *count;
	char prefix[16];
	unsigned int n;
	double seconds;

	if (sscanf(line, "declare %u", &n) != 1)
		die("wrong order: %s", line);
	t = memory(n, sizeof(struct tally_tensor *));
	count = memory(n, sizeof(*count));
	for (unsigned int i = 0; i < n; i++)
		count[i] = 1024;
	snprintf(prefix, sizeof(prefix), "d%u", generation++);
	seconds = declare(r, prefix, count, n, true, t);
	must(r, tally_undeclare(r->s, t, n), "undeclare");
	free(count);
	free(t);
	fprintf(r->out, "{\"seconds\": %.6f}\n", seconds);
}

/* ---- steps ---- */

static void wait_for(struct rank *r, uint32_t i)
{
	must(r, tally_wait(r->s, r->ticket[i], -1), "wait");
}

static void submit(struct rank *r, uint32_t i)
{
	float *p = r->data + r->at[i];
	int rc;

	while ((rc = tally_push_pull(r->s, r->t[i], p, r->view ? NULL : p, NULL,
				     &r->ticket[i])) == TALLY_EAGAIN)
		wait_for(r, r->n - 1 - r->taken++);	/* the ring is full: the oldest */
	must(r, rc, "push_pull");
}

static void step(struct rank *r)
{
	r->taken = 0;
	for (uint32_t i = r->n; i-- > 0;)
		submit(r, i);
	while (r->taken < r->n)
		wait_for(r, r->n - 1 - r->taken++);
}

/* Integers, exact in a sum of up to 1000 ranks. */
static float pattern(uint64_t i, uint32_t factor)
{
	return (float)(i % 1009 * factor);
}

static uint64_t wrong_elements(const struct rank *r)
{
	uint32_t world = (uint32_t)tally_world_size(r->s);
	uint64_t wrong = 0;

	for (uint32_t k = 0; k < r->n; k++) {
		const float *p = r->view ? tally_result(r->s, r->t[k]) : r->data + r->at[k];

		for (uint64_t i = 0; i < r->count[k]; i++)
			wrong += p[i] != pattern(r->at[k] + i, world * (world + 1) / 2);
	}
	return wrong;
}

/* Zeros afterwards: sums in place would grow out of range, and cost the same. */
static void order_prepare(struct rank *r, const char *line)
{
	uint64_t wrong;

	r->view = strstr(line, "view") != NULL;
	for (uint64_t i = 0; i < r->elements; i++)
		r->data[i] = pattern(i, (uint32_t)tally_rank(r->s) + 1);
	step(r);
	wrong = wrong_elements(r);
	memset(r->data, 0, r->elements * sizeof(float));
	step(r);
	fprintf(r->out, "{\"wrong\": %llu}\n", (unsigned long long)wrong);
}

static void answer_times(struct rank *r, double from, const double *end, uint32_t steps)
{
	fprintf(r->out, "{\"from\": %.9f, \"ends\": [", from);
	for (uint32_t i = 0; i < steps; i++)
		fprintf(r->out, "%s%.9f", i ? ", " : "", end[i]);
	fprintf(r->out, "]}\n");
}

static void order_run(struct rank *r, const char *line)
{
	unsigned int steps;
	double *end, from;

	if (sscanf(line, "run %u", &steps) != 1)
		die("wrong order: %s", line);
	end = memory(steps, sizeof(*end));
	must(r, tally_barrier(r->s, 0), "barrier");
	from = now();
	for (unsigned int i = 0; i < steps; i++) {
		step(r);
		end[i] = now();
	}
	answer_times(r, from, end, steps);
	free(end);
}

/* ---- urgency ---- */

/* Takes in what is done; returns how many elements of tensors but the first that were. */
static uint64_t take_done(struct rank *r, bool *done)
{
	uint64_t elements = 0;
	int rc;

	rc = tally_poll(r->s);
	if (rc < 0)
		must(r, rc, "poll");
	for (uint32_t i = 0; i < r->n; i++) {
		if (done[i])
			continue;
		rc = tally_test(r->s, r->ticket[i]);
		if (rc == TALLY_EAGAIN)
			continue;
		must(r, rc, "test");
		done[i] = true;
		elements += i ? r->count[i] : 0;
	}
	return elements;
}

/*
 * The first tensor is given when the others are under way: one of them is done.  Told are the parts
 * of the others' bytes that were left when it was given, and after it was done.
 */
static void order_urgent(struct rank *r)
{
	struct pollfd p = { .fd = tally_fd(r->s), .events = POLLIN };
	bool *done = memory(r->n, sizeof(*done));
	uint64_t others = 0, before = 0, left;

	if (p.fd < 0)
		must(r, p.fd, "fd");
	for (uint32_t i = 1; i < r->n; i++)
		others += r->count[i];
	must(r, tally_barrier(r->s, 0), "barrier");
	r->taken = 0;
	for (uint32_t i = r->n; i-- > 1;)
		submit(r, i);
	done[0] = true;		/* not given yet */
	while (before == 0) {
		poll(&p, 1, -1);
		before += take_done(r, done);
	}
	before += take_done(r, done);
	left = others - before;
	submit(r, 0);
	done[0] = false;
	while (!done[0]) {
		poll(&p, 1, -1);
		before += take_done(r, done);
	}
	for (uint32_t i = 0; i < r->n; i++)
		if (!done[i])
			wait_for(r, i);
	free(done);
	fprintf(r->out, "{\"after\": %.6f, \"left\": %.6f}\n",
		(double)(others - before) / (double)others, (double)left / (double)others);
}

/* The machine's card computes; the CPUs are free meanwhile. */
static void compute(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/*
 * As training does: the forward pass of a layer waits for that layer's gradients of
 * the step before, and computes; the backward pass goes from the last layer to the
 * first, and each layer's gradients are submitted as soon as they are computed.
 */
static void order_train(struct rank *r, const char *line)
{
	double forward, backward, *end, from;
	unsigned int steps;

	if (sscanf(line, "train %u %lf %lf", &steps, &forward, &backward) != 3)
		die("wrong order: %s", line);
	end = memory(steps, sizeof(*end));
	must(r, tally_barrier(r->s, 0), "barrier");
	from = now();
	for (unsigned int k = 0; k < steps; k++) {
		for (uint32_t i = 0; i < r->n; i++) {
			if (k > 0)
				wait_for(r, i);
			compute(forward);
		}
		for (uint32_t i = r->n; i-- > 0;) {
			compute(backward);
			submit(r, i);
		}
		end[k] = now();
	}
	for (uint32_t i = 0; i < r->n; i++)
		wait_for(r, i);
	answer_times(r, from, end, steps);
	free(end);
}

/* ---- the driver ---- */

static void hear(struct rank *r, const char *line)
{
	if (!strncmp(line, "tensors ", 8))
		order_tensors(r, line);
	else if (!strncmp(line, "list ", 5))
		order_list(r, line);
	else if (!strncmp(line, "prepare", 7))
		order_prepare(r, line);
	else if (!strncmp(line, "run ", 4))
		order_run(r, line);
	else if (!strncmp(line, "declare ", 8))
		order_declare(r, line);
	else if (!strncmp(line, "urgent", 6))
		order_urgent(r);
	else if (!strncmp(line, "train ", 6))
		order_train(r, line);
	else
		die("wrong order: %s", line);
	fflush(r->out);
}

static void meet_driver(struct rank *r, const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(a.sun_path))
		die("%s: the path is too long", path);
	strcpy(a.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		die("cannot connect to %s", path);
	r->in = fdopen(fd, "r");
	r->out = fdopen(dup(fd), "w");
	if (!r->in || !r->out)
		die("cannot open %s", path);
	fprintf(r->out, "{\"rank\": %d, \"pid\": %d}\n", tally_rank(r->s), (int)getpid());
	fflush(r->out);
}

int main(int argc, char **argv)
{
	char line[LINE_BYTES];
	struct rank r = { 0 };
	int rc;

	if (argc != 2)
		die("started by bench/run.py: rank CONTROL");
	rc = tally_attach(NULL, &r.s);
	if (rc)
		die("attach: %s", r.s ? tally_error_text(r.s) : tally_error_help(rc));
	meet_driver(&r, argv[1]);
	while (fgets(line, sizeof(line), r.in))
		hear(&r, line);
	drop(&r);
	must(&r, tally_detach(r.s), "detach");
	fclose(r.in);
	fclose(r.out);
	return 0;
}
