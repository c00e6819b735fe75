// SPDX-License-Identifier: Apache-2.0
/*
 * server_adder.c - how fast this server's engines sum, all at once.
 *
 * One thread for each engine, on that engine's CPU, sums memory of its own, which it has
 * touched first, so that it is near.  They go round together, and a round takes from when the
 * first one begins until the last one has done: what they share (the memory's
 * bandwidth, a core's two threads) is shared then as it will be.  The best of the rounds
 * counts: others shared the machine with somebody.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/parse.h"
#include "common/kern/adder.h"
#include "common/rt/engine.h"
#include "common/rt/log.h"
#include "common/shm/limit.h"
#include "server/server.h"

struct adder {
	pthread_barrier_t all;
	mono_t (*now)(void);
	char *scratch;			/* n of them */
	size_t bytes;			/* of each */
	uint32_t n;
	mono_t from[ENGINES_MAX], to[ENGINES_MAX], began;
	uint64_t best;
	bool over;
};

/* By one of them, while the others wait for it. */
static void take_round(struct adder *a, uint32_t round, size_t read)
{
	mono_t from = a->from[0], to = a->to[0];

	for (uint32_t i = 1; i < a->n; i++) {
		from = MIN(from, a->from[i]);
		to = MAX(to, a->to[i]);
	}
	if (!round)
		a->began = from;
	a->best = MAX(a->best, adder_rate(a->n * read, to - from));
	a->over = ++round == ADDER_ROUNDS_MAX || to - a->began >= mono_ms(ADDER_LONGEST_MS) ||
		  (round >= ADDER_ROUNDS_MIN && to - a->began >= mono_ms(ADDER_MEASURE_MS));
}

static void on_mail(void *ctx, const struct mail *m, bool stopping)
{
	struct adder *a = ctx;
	uint32_t i = m->type;
	char *mine = a->scratch + i * a->bytes;

	(void)stopping;			/* the others count on it */
	memset(mine, 0, a->bytes);
	for (uint32_t round = 0; !a->over; round++) {
		size_t read;

		pthread_barrier_wait(&a->all);
		a->from[i] = a->now();
		read = adder_pass(mine, a->bytes);
		a->to[i] = a->now();
		pthread_barrier_wait(&a->all);
		if (i == 0)
			take_round(a, round, read);
		pthread_barrier_wait(&a->all);
	}
}

static int run(struct adder *a, const int *cpus, struct err *e)
{
	static const struct engine_cb callbacks = { .mail = on_mail };
	struct engine *thread[ENGINES_MAX];
	uint32_t n = 0;
	int rc = 0;

	while (!rc && n < a->n) {
		rc = engine_start(&thread[n], "adder", n, cpus[n], 0, &callbacks, a, e);
		n += !rc;
	}
	for (uint32_t i = 0; !rc && i < n; i++)
		ASSERT(engine_post(thread[i], ENGINE_CONTROL, i, NULL, 0) == 0);
	for (uint32_t i = 0; i < n; i++)
		engine_stop(thread[i]);
	return rc;
}

/* Less than is wanted rather than none: then it measures more of the caches. */
static int get_scratch(struct adder *a, struct err *e)
{
	size_t want = MAX(ADDER_SCRATCH_BYTES / a->n, SV_ADDER_EACH_MIN);

	for (; want >= SV_ADDER_EACH_LEAST; want /= 2) {
		a->bytes = want / PAGE_BYTES * PAGE_BYTES;
		if (limit_memory_check(a->n * a->bytes, e))
			continue;
		a->scratch = mmap(NULL, a->n * a->bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (a->scratch == MAP_FAILED)
			continue;
		(void)madvise(a->scratch, a->n * a->bytes, MADV_HUGEPAGE);	/* as windows */
		return 0;
	}
	return err_set(e, TALLY_ENOMEM, "no memory, not even %u MiB, to measure how fast it sums",
		       a->n * SV_ADDER_EACH_LEAST >> 20);
}

int sv_adder_measure(uint32_t engines, const int *cpus, mono_t (*now)(void),
		     uint64_t *bytes_per_s, struct err *e)
{
	struct adder a = { .n = engines, .now = now };
	int rc = get_scratch(&a, e);

	if (rc)
		return rc;
	ASSERT(pthread_barrier_init(&a.all, NULL, engines) == 0);
	rc = run(&a, cpus, e);
	pthread_barrier_destroy(&a.all);
	munmap(a.scratch, a.n * a.bytes);
	if (rc)
		return rc;
	if (!a.best)
		return err_set(e, TALLY_EIO, "the clock stood still while it was measured how fast "
			       "it sums");
	*bytes_per_s = a.best;
	return 0;
}

/*
 * Each byte that a NIC brings is read once by a sum.  The plan knows both rates, and gives a
 * server no more than it can sum: nothing is wrong, but the NIC is not used up.
 */
void sv_adder_warn(struct server *s)
{
	char adder[32], brings[32], rate[32];
	uint64_t bits_per_s = 0;

	for (uint32_t i = 0; i < s->naddrs; i++)
		bits_per_s += s->addr[i].bits_per_s;
	if (s->adder_bytes_per_s >= bits_per_s / 8)
		return;
	snprintf(s->note, sizeof(s->note), "sums %s/s with %u engine%s, its NIC%s of %s bring%s "
		 "%s/s: the CPU binds, and plans give it less; more --engines on more cores help",
		 fmt_bytes(adder, sizeof(adder), s->adder_bytes_per_s), s->nengines,
		 plural(s->nengines), plural(s->naddrs),
		 fmt_bitrate(rate, sizeof(rate), bits_per_s), s->naddrs == 1 ? "s" : "",
		 fmt_bytes(brings, sizeof(brings), bits_per_s / 8));
	log_warn("server %s %s", s->name, s->note);
}
