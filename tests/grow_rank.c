// SPDX-License-Identifier: Apache-2.0
/*
 * What grow_rank.py does, in C: the same lines for the same ranks and steps.
 *
 *	grow_rank TENSORS STEPS STEP_MS GROW_FROM
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tally.h"

#define PAGE	1024u
#define PARAMS	5000u
#define MOST	16u

static tally_session *s;
static tally_tensor *tensor[MOST + 2];
static uint64_t size[MOST + 2];
static float *array[MOST + 1];
static int64_t *now;
static uint32_t tensors;

static void must(int rc)
{
	if (rc >= 0)
		return;
	printf("ERROR %s %s\n", tally_error_name(rc), tally_error_text(s));
	exit(1);
}

static void pause_ms(int ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

static unsigned long long hash_of(const float *a, uint64_t n)
{
	unsigned long long h = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &a[i], sizeof(bits));
		h += bits * (2 * i + 1);
	}
	return h;
}

static void fill(float *a, uint64_t n, int rank, uint32_t k, int64_t step)
{
	for (uint64_t i = 0; i < n; i++)
		a[i] = (float)((rank * 7919 + k * 104729 + (int64_t)i * 31 + step * 17) % 1000) /
		       3.0f;
	for (uint64_t i = 0; i < n; i += PAGE)
		a[i] = (float)(1u << rank);
}

static void declare(void)
{
	tally_tensor_desc desc[MOST + 2] = { 0 };
	char name[MOST][8];

	for (uint32_t k = 0; k < tensors; k++) {
		snprintf(name[k], sizeof(name[k]), "t%u", k);
		size[k] = 1 + (37777 * (k + 1)) % 100000;
		desc[k] = (tally_tensor_desc){ .name = name[k], .dtype = TALLY_FLOAT32 };
	}
	size[tensors] = PARAMS;
	size[tensors + 1] = 1;
	desc[tensors] = (tally_tensor_desc){ .name = "params", .dtype = TALLY_FLOAT32 };
	desc[tensors + 1] = (tally_tensor_desc){ .name = "step", .dtype = TALLY_INT64 };
	for (uint32_t k = 0; k < tensors + 2; k++) {
		desc[k].count = size[k];
		desc[k].shape = &size[k];
		desc[k].ndims = 1;
	}
	must(tally_declare(s, desc, tensors + 1, tensor));
	must(tally_declare(s, desc + tensors + 1, 1, tensor + tensors + 1));
	for (uint32_t k = 0; k < tensors + 1; k++)
		must(tally_alloc(s, size[k] * sizeof(float), (void **)&array[k]));
	must(tally_alloc(s, sizeof(*now), (void **)&now));
}

static void catch_up(void)
{
	void *what[2] = { array[tensors], now };

	for (uint32_t i = 0; i < 2; i++) {
		tally_ticket t;

		must(tally_broadcast(s, tensor[tensors + i], what[i], what[i], 0, &t));
		must(tally_wait(s, t, 60000));
	}
}

static void step(void)
{
	tally_ticket t[MOST];

	for (uint32_t k = 0; k < tensors; k++) {
		fill(array[k], size[k], tally_rank(s), k, *now);
		must(tally_push_pull(s, tensor[k], array[k], array[k], NULL, &t[k]));
	}
	for (uint32_t k = 0; k < tensors; k++)
		must(tally_wait(s, t[k], 60000));
	printf("step %lld", (long long)*now);
	for (uint32_t k = 0; k < tensors; k++)
		printf(" %x:%llx", (unsigned)array[k][0], hash_of(array[k], size[k]));
	for (uint32_t i = 0; i < PARAMS; i++)
		array[tensors][i] += array[0][i];
	printf("\nparams %lld %llx\n", (long long)*now, hash_of(array[tensors], PARAMS));
}

int main(int argc, char **argv)
{
	const tally_options opt = { .on_loss = TALLY_ON_LOSS_SHRINK, .timeout_ms = 60000 };
	int steps, came, from;

	if (argc != 5)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	tensors = (uint32_t)atoi(argv[1]);
	steps = atoi(argv[2]);
	from = atoi(argv[4]);
	must(tally_attach(&opt, &s));
	printf("attached%s\n", tally_is_late(s) ? ", late" : "");
	declare();
	if (tally_is_late(s))
		catch_up();
	while (*now < steps) {
		++*now;
		step();
		pause_ms(atoi(argv[3]));
		if (*now < from)
			continue;
		while (access(getenv("GROW_GATE"), F_OK))
			pause_ms(10);
		came = tally_grow(s, 60000);
		must(came);
		if (!came)
			continue;
		printf("came %d live %d\n", came, tally_live_ranks(s));
		catch_up();
	}
	must(tally_barrier(s, 30000));
	must(tally_detach(s));
	printf("detached\n");
	return 0;
}
