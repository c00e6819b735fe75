// SPDX-License-Identifier: Apache-2.0
/*
 * storm - messages in impossible orders against the cores of the daemons, one run per seed.
 *
 *	storm [--first N] [--seeds N]	so many seeds, all cores
 *	storm --core NAME ...		one of them
 *	storm --seed N --core NAME [--trace]	that run again
 *	storm --peer FILE --seed N	a scheduler for real daemons, on the port that it writes
 *					into FILE, until it has said so many --messages
 *
 * A seed that fails is named in the last line, with the command that repeats it.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/storm/storm.h"

static const struct {
	const char *name;
	void (*run)(struct storm *s);
	uint32_t each;		/* one seed of so many, in a set */
} cores[] = {
	{ "sched", storm_sched, 1 },
	{ "server", storm_server, 1 },
	{ "agent", storm_agent, 1 },
	{ "jobs", storm_jobs, 4 },
};

static char repeat[128];	/* how to see the present run again */

static void on_end(int sig)
{
	ssize_t n = write(STDERR_FILENO, repeat, strlen(repeat));

	(void)n;
	signal(sig, SIG_DFL);
	raise(sig);
}

static uint64_t messages, good, repairs;

static void run(uint32_t core, uint64_t seed, bool trace)
{
	struct storm s;

	snprintf(repeat, sizeof(repeat), "failed; again: storm --core %s --seed %llu --trace\n",
		 cores[core].name, (unsigned long long)seed);
	storm_init(&s, seed, NULL, 0);
	s.trace = trace;
	cores[core].run(&s);
	messages += s.messages;
	good += s.good;
	repairs += s.repairs;
	storm_fini(&s);
}

static int peer(const char *port_file, uint64_t seed, uint64_t limit)
{
	struct storm s;
	int rc;

	storm_init(&s, seed, NULL, 0);
	rc = storm_peer(&s, port_file, limit);
	storm_fini(&s);
	return rc;
}

static uint64_t value(const char *text)
{
	char *end;
	uint64_t v = strtoull(text, &end, 10);

	if (*end || end == text) {
		fprintf(stderr, "storm: '%s' is no number\n", text);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seeds", required_argument, NULL, 'n' },
		{ "first", required_argument, NULL, 'f' },
		{ "seed", required_argument, NULL, 's' },
		{ "core", required_argument, NULL, 'c' },
		{ "peer", required_argument, NULL, 'p' },
		{ "messages", required_argument, NULL, 'm' },
		{ "trace", no_argument, NULL, 't' }, { 0 },
	};
	uint64_t first = 1, seeds = 5000, limit = 2000;
	const char *only = NULL, *port_file = NULL;
	bool trace = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'n')
			seeds = value(optarg);
		else if (o == 'f' || o == 's')
			first = value(optarg);
		if (o == 'p')
			port_file = optarg;
		else if (o == 'm')
			limit = value(optarg);
		if (o == 's')
			seeds = 1;
		else if (o == 'c')
			only = optarg;
		else if (o == 't')
			trace = true;
		else if (o == '?')
			return 2;
	}
	if (port_file)
		return peer(port_file, first, limit);
	signal(SIGABRT, on_end);
	signal(SIGSEGV, on_end);
	for (uint32_t c = 0; c < ARRAY_SIZE(cores); c++) {
		if (only && strcmp(only, cores[c].name))
			continue;
		for (uint64_t i = 0; i < seeds; i += cores[c].each)
			run(c, first + i, trace);
		printf("%s: %llu seeds, %llu messages, %llu jobs up, %llu epochs\n", cores[c].name,
		       (unsigned long long)seeds, (unsigned long long)messages,
		       (unsigned long long)good, (unsigned long long)repairs);
		messages = good = repairs = 0;
	}
	return EXIT_SUCCESS;
}
