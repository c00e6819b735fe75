// SPDX-License-Identifier: Apache-2.0
/*
 * e2e [--chunk BYTES] [--edge BYTES]... [--look COMMAND] [--seed N] [--effort N] SCENARIO...
 *
 * Attaches as the launcher's variables say, plays the scenarios, detaches.  Rank
 * 0 prints one line: "hash 0123456789abcdef results N bytes N".
 *
 * What the sizes lie around is not the chunk that the job has, so that runs with other
 * chunks have the same tensors: 256 KiB and 512 KiB, which `tally local` chooses, unless
 * --edge says otherwise.  Rank 0 runs COMMAND while the tensors of `sums` or `edges` are
 * declared: it can see whether theirs are chunks' edges, and the run fails unless it exits 0.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/e2e.h"

static uint32_t efforts = 1;

uint32_t effort(void)
{
	return efforts;
}

void die(const struct run *r, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "e2e rank %u: ", r->rank);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void must(const struct run *r, int rc, const char *what)
{
	if (rc)
		die(r, "%s: %s: %s", what, tally_error_name(rc), tally_error_text(r->s));
}

static const struct scenario *find(const char *name)
{
	for (const struct scenario *s = scenarios; s->name; s++)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

static void usage(void)
{
	fputs("Usage: e2e [--chunk BYTES] [--edge BYTES]... [--look COMMAND] [--seed N] "
	      "[--effort N] SCENARIO...\n", stderr);
	for (const struct scenario *s = scenarios; s->name; s++)
		fprintf(stderr, "  %-10s %s\n", s->name, s->help);
	exit(2);
}

static void attach(struct run *r, const tally_options *opt)
{
	uint32_t world;

	must(r, tally_attach(opt, &r->s), "attach");
	r->rank = (uint32_t)tally_rank(r->s);
	r->machines = (uint32_t)tally_machines(r->s);
	r->world = world = (uint32_t)tally_world_size(r->s);
	if (world > E2E_WORLD_MAX)
		die(r, "at most %u ranks", E2E_WORLD_MAX);
	for (uint32_t m = 0, first = 0; m < r->machines; m++) {
		uint32_t ranks = value_ranks_on(world, r->machines, m);

		if (r->rank >= first && r->rank < first + ranks &&
		    (uint32_t)tally_local_size(r->s) != ranks)
			die(r, "local size %d, not %u", tally_local_size(r->s), ranks);
		first += ranks;
	}
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "chunk", required_argument, NULL, 'c' },
		{ "edge", required_argument, NULL, 'E' },
		{ "look", required_argument, NULL, 'l' },
		{ "seed", required_argument, NULL, 's' },
		{ "effort", required_argument, NULL, 'e' },
		{ 0 },
	};
	tally_options opt = { .local_rank = -1 };
	struct run r = { .seed = 1 };
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'c')
			opt.chunk_bytes = strtoull(optarg, NULL, 0);
		else if (c == 'E' && r.nedges < E2E_EDGES)
			r.edge[r.nedges++] = strtoull(optarg, NULL, 0);
		else if (c == 'l')
			r.look = optarg;
		else if (c == 's')
			r.seed = strtoull(optarg, NULL, 0);
		else if (c == 'e')
			efforts = (uint32_t)strtoul(optarg, NULL, 0);
		else
			usage();
	}
	if (optind == argc)
		usage();
	for (int i = optind; i < argc; i++)
		if (!find(argv[i]))
			usage();
	if (!r.nedges) {
		r.edge[r.nedges++] = 256 << 10;
		r.edge[r.nedges++] = 512 << 10;
	}
	attach(&r, &opt);
	for (int i = optind; i < argc; i++)
		find(argv[i])->play(&r);
	if (r.rank == 0)
		printf("hash %016llx results %llu bytes %llu\n", (unsigned long long)r.hash,
		       (unsigned long long)r.results, (unsigned long long)r.bytes);
	must(&r, tally_detach(r.s), "detach");
	return 0;
}
