// SPDX-License-Identifier: Apache-2.0
/*
 * Local plans carried out: threads stand for GPUs and for the CPU, memcpy for copies.
 *
 * Every GPU knows the plan and its own memory; what it takes from others it takes when
 * they say that it is there.  The other machine of the job is the CPU thread, which adds
 * its input where the network would have been.  At the end every GPU must hold the sum
 * of all.
 */
#include <pthread.h>

#include "common/topo/local.h"
#include "tests/unit/topo_make.h"

#define CHUNK	4096u			/* elements */
#define CHUNKS	6u
#define COUNT	(CHUNK * (CHUNKS - 1) + 777)	/* the last chunk is short */

enum stage { REDUCED, BROADCAST, STAGES };

static struct topo *t;
static struct local_plan *p;

static float in[TOPO_GPUS_MAX][COUNT];		/* gradients, in the GPUs' memory */
static float partial[TOPO_GPUS_MAX][COUNT];	/* what a GPU has for its neighbour */
static float out[TOPO_GPUS_MAX][COUNT];
static float arena[TOPO_GPUS_MAX][COUNT];	/* host memory: what each group brings */
static float result[COUNT];			/* host memory: the sum of all machines */
static float far[COUNT];			/* the other machine's */

/* Who is ready with which piece: pieces of a chunk by their place in local_pieces(). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool gpu_has[STAGES][TOPO_GPUS_MAX][CHUNKS][TOPO_GPUS_MAX];
static uint32_t brought[CHUNKS];		/* elements in the arena, all groups */
static bool summed[CHUNKS];

static void say(bool *flag)
{
	pthread_mutex_lock(&lock);
	*flag = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void await(const bool *flag)
{
	pthread_mutex_lock(&lock);
	while (!*flag)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static uint32_t elements_of(uint32_t chunk)
{
	return chunk + 1 < CHUNKS ? CHUNK : COUNT - CHUNK * (CHUNKS - 1);
}

/* ---- the way to a root ---- */

/* The member that `from` gives its partial sum to, on the way to the root. */
static uint32_t toward(const struct local_group *g, uint32_t from)
{
	return g->first + (from - g->first + 1) % g->count;
}

static uint32_t member_of(const struct local_group *g, uint32_t gpu)
{
	for (uint32_t i = g->first; i < g->first + g->count; i++)
		if (p->member[i] == gpu)
			return i;
	ASSERT(!"a root is in its group");
	return 0;
}

/* ---- threads ---- */

struct piece {
	const struct local_group *g;
	uint32_t chunk, index, start, len;	/* elements of the tensor */
	uint32_t root;				/* a member */
};

static void reduce(const struct piece *k, uint32_t me)
{
	const struct local_group *g = k->g;
	uint32_t gpu = p->member[me];
	float *sum = &partial[gpu][k->start];

	memcpy(sum, &in[gpu][k->start], k->len * sizeof(*sum));
	for (uint32_t i = g->first; i < g->first + g->count; i++) {
		uint32_t other = p->member[i];

		if (i == me || i == k->root || toward(g, i) != me)
			continue;
		await(&gpu_has[REDUCED][other][k->chunk][k->index]);
		for (uint32_t e = 0; e < k->len; e++)
			sum[e] += partial[other][k->start + e];
	}
	if (me != k->root) {
		say(&gpu_has[REDUCED][gpu][k->chunk][k->index]);
		return;
	}
	memcpy(&arena[g - p->group][k->start], sum, k->len * sizeof(*sum));
	pthread_mutex_lock(&lock);
	brought[k->chunk] += k->len;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void broadcast(const struct piece *k, uint32_t me)
{
	uint32_t gpu = p->member[me], from = TOPO_NONE;

	if (me != k->root)
		from = p->member[toward(k->g, me)];
	await(me == k->root ? &summed[k->chunk] : &gpu_has[BROADCAST][from][k->chunk][k->index]);
	memcpy(&out[gpu][k->start], me == k->root ? &result[k->start] : &out[from][k->start],
	       k->len * sizeof(float));
	say(&gpu_has[BROADCAST][gpu][k->chunk][k->index]);
}

static uint32_t group_of(uint32_t gpu)
{
	for (uint32_t i = 0; i < p->groups; i++)
		for (uint32_t m = 0; m < p->group[i].count; m++)
			if (p->member[p->group[i].first + m] == gpu)
				return i;
	ASSERT(!"every GPU has a group");
	return 0;
}

static void run_chunk(uint32_t gpu, uint32_t group, uint32_t chunk, struct local_piece *cut)
{
	const struct local_group *g = &p->group[group];
	uint32_t n = local_pieces(p, group, chunk, elements_of(chunk) * sizeof(float), cut);

	for (int stage = REDUCED; stage < STAGES; stage++)
		for (uint32_t i = 0; i < n; i++) {
			struct piece k = {
				.g = g, .chunk = chunk, .index = i,
				.start = chunk * CHUNK + (uint32_t)(cut[i].offset / sizeof(float)),
				.len = (uint32_t)(cut[i].len / sizeof(float)),
				.root = member_of(g, p->copy[cut[i].copy].gpu),
			};

			(stage == REDUCED ? reduce : broadcast)(&k, member_of(g, gpu));
		}
}

static void *run_gpu(void *arg)
{
	uint32_t gpu = (uint32_t)(uintptr_t)arg, group = group_of(gpu);
	struct local_piece *cut = calloc(LOCAL_COPIES_MAX, sizeof(*cut));

	ASSERT(cut);
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		run_chunk(gpu, group, chunk, cut);
	free(cut);
	return NULL;
}

/* Group by group in order, then the other machine. */
static void run_cpu(void)
{
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
		pthread_mutex_lock(&lock);
		while (brought[chunk] < p->groups * elements_of(chunk))
			pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);
		for (uint32_t i = 0; i < elements_of(chunk); i++) {
			uint32_t e = chunk * CHUNK + i;

			result[e] = arena[0][e];
			for (uint32_t g = 1; g < p->groups; g++)
				result[e] += arena[g][e];
			result[e] += far[e];
		}
		say(&summed[chunk]);
	}
}

/* ---- machines ---- */

/* A float of any size, or with a whole number small enough that sums are exact. */
static float any_value(uint64_t *seed, bool whole)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	if (whole)
		return (float)(int32_t)(*seed >> 48) - 32768;
	return (float)(int32_t)(*seed >> 32) * (float)(1 << (*seed >> 27 & 15));
}

/* Plans, runs, and compares with the sum in rank order. */
static void run(const char *machine, bool exact)
{
	pthread_t gpu[TOPO_GPUS_MAX];
	uint64_t seed = 7;
	struct err e;

	t = topo_make(machine);
	p = calloc(1, sizeof(*p));
	ck_assert_ptr_nonnull(p);
	ck_assert_msg(local_plan_make(t, exact, p, &e) == 0, "%s", e.text);
	memset(gpu_has, 0, sizeof(gpu_has));
	memset(brought, 0, sizeof(brought));
	memset(summed, 0, sizeof(summed));
	memset(out, 0xff, sizeof(out));		/* NaN */
	for (uint32_t i = 0; i < COUNT; i++) {
		far[i] = any_value(&seed, !exact);
		for (uint32_t g = 0; g < t->gpus; g++)
			in[g][i] = any_value(&seed, !exact);
	}
	for (uint32_t g = 0; g < t->gpus; g++)
		ck_assert_int_eq(pthread_create(&gpu[g], NULL, run_gpu, (void *)(uintptr_t)g), 0);
	run_cpu();
	for (uint32_t g = 0; g < t->gpus; g++)
		pthread_join(gpu[g], NULL);
	for (uint32_t i = 0; i < COUNT; i++) {
		float want = in[0][i];

		for (uint32_t g = 1; g < t->gpus; g++)
			want += in[g][i];
		want += far[i];
		for (uint32_t g = 0; g < t->gpus; g++)
			ck_assert_msg(memcmp(&want, &out[g][i], sizeof(want)) == 0,
				      "GPU %u, element %u: %a, not %a", g, i, (double)out[g][i],
				      (double)want);
	}
}

static void done(void)
{
	free(t);
	free(p);
}

#define TWO_SWITCHES \
	"node = n; switch = s under=n; switch = u under=n;" \
	"gpu = a under=s; gpu = b under=s; gpu = c under=s; gpu = d under=u; gpu = e under=u;"

START_TEST(one_gpu_copies_out_and_in)
{
	run("node = n; gpu = a under=n; nic = c under=n", false);
	ck_assert_int_eq(p->strategy, LOCAL_COPY);
	done();
}
END_TEST

START_TEST(reduce_scatter_and_all_gather_below_one_switch)
{
	run("node = n; switch = s under=n; gpu = a under=s; gpu = b under=s; gpu = c under=s;"
	    "nic = k under=n", false);
	ck_assert_int_eq(p->strategy, LOCAL_SCATTER);
	done();
}
END_TEST

START_TEST(cpu_assisted_across_unequal_switches_and_two_cards)
{
	run(TWO_SWITCHES "nic = k under=n net=100gbit; nic = l under=n net=60gbit", false);
	ck_assert_int_eq(p->strategy, LOCAL_CPU_ASSISTED);
	ck_assert_uint_eq(p->groups, 2);
	done();
}
END_TEST

START_TEST(reduce_and_broadcast_by_turning_roots)
{
	run(TWO_SWITCHES "nic = k under=s; nvlink = a b 400gbit; nvlink = b c 400gbit;"
	    "nvlink = c d 400gbit; nvlink = d e 400gbit; nvlink = e a 400gbit", false);
	ck_assert_int_eq(p->strategy, LOCAL_ROOTS);
	ck_assert_uint_eq(p->group[0].copies, 2);
	done();
}
END_TEST

START_TEST(no_group_where_nvlinks_are_no_ring)
{
	run(TWO_SWITCHES "nic = k under=n; nvlink = a b 400gbit; nvlink = a c 400gbit;"
	    "nvlink = c d 400gbit; nvlink = c e 400gbit", false);
	ck_assert(isinf(p->other_s_per_byte[LOCAL_GROUP_JOINED]));
	ck_assert_uint_gt(p->groups, 1);
	done();
}
END_TEST

START_TEST(exact_has_the_bits_of_rank_order_on_every_machine)
{
	run(TWO_SWITCHES "nic = k under=s", true);
	ck_assert_uint_eq(p->groups, 5);
	done();
	run(TWO_SWITCHES "nic = k under=s; nic = l under=n; nvlink = a b 400gbit;"
	    "nvlink = b c 400gbit; nvlink = c d 400gbit; nvlink = d e 400gbit", true);
	ck_assert_int_eq(p->strategy, LOCAL_CPU_ASSISTED);
	done();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("topo_run");
	TCase *tc = tcase_create("threads as GPUs");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, one_gpu_copies_out_and_in);
	tcase_add_test(tc, reduce_scatter_and_all_gather_below_one_switch);
	tcase_add_test(tc, cpu_assisted_across_unequal_switches_and_two_cards);
	tcase_add_test(tc, reduce_and_broadcast_by_turning_roots);
	tcase_add_test(tc, no_group_where_nvlinks_are_no_ring);
	tcase_add_test(tc, exact_has_the_bits_of_rank_order_on_every_machine);
	suite_add_tcase(s, tc);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
