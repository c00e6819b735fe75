// SPDX-License-Identifier: Apache-2.0
/*
 * Both ring consumers and producers, the agent's and the process's, on memory that the other
 * side writes as it likes.  The input is a list of steps: scribble somewhere, take, post,
 * sleep.  Whatever happens, nothing is read or written outside the shared pages (ASan
 * sees to that), nothing aborts, and no call gives more than RING_ENTRIES
 * entries without looking at the index again.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/shm/ring.h"

#define STEP_BYTES	9u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void scribble(uint8_t *mem, const uint8_t *step)
{
	uint32_t where = get_le32(step) % (uint32_t)ring_shared_bytes();

	/* most of the mischief is in the first pages: indices, flags, status */
	if (step[0] & 1)
		where %= 2 * PAGE_BYTES;
	if (step[0] & 2)
		where = where / 64 * 64;
	memcpy(mem + where, step + 4, MIN(4, ring_shared_bytes() - where));
}

static void agent_step(struct ring_end *r, const uint8_t *step)
{
	struct ring_sub s = { 0 };
	struct ring_cpl c = { 0 };

	switch (step[0] / 16 % 4) {
	case 0:
		for (uint32_t i = 0; i <= 17u * step[1] && ring_sub_take(r, &s) == 0; i++)
			;
		break;
	case 1:
		for (uint32_t i = 0; i <= 17u * step[1] && ring_cpl_post(r, &c) == 0; i++)
			;
		if (step[2] & 1)
			ring_cpl_publish(r);
		break;
	case 2:
		if (ring_sub_sleep(r) && ring_sub_wake(r))
			abort();	/* nobody closed the bell */
		break;
	default:
		ring_status_set(r, (int)step[2], "over", step[3] ? "waiting" : NULL);
		ring_lost_set(r, get_le16(step + 4) % WORLD_SIZE_MAX, step[6] & 1);
		ring_grown_set(r, step[7]);
	}
}

static void process_step(struct ring_end *r, const uint8_t *step)
{
	char job[ERR_TEXT_MAX + 1], stall[ERR_TEXT_MAX + 1];
	struct ring_sub s = { .round = step[2] };
	struct ring_cpl c = { 0 };
	int code;

	switch (step[0] / 16 % 4) {
	case 0:
		for (uint32_t i = 0; i <= 17u * step[1] && ring_cpl_take(r, &c) == 0; i++)
			;
		break;
	case 1:
		for (uint32_t i = 0; i <= 17u * step[1] && ring_sub_post(r, &s) == 0; i++)
			;
		break;
	case 2:
		if (ring_cpl_sleep(r) && ring_cpl_wake(r))
			abort();
		break;
	default:
		ring_status_get(r, &code, job, stall);
		if (strlen(job) > ERR_TEXT_MAX || strlen(stall) > ERR_TEXT_MAX)
			abort();
		(void)ring_lost_count(r);
		(void)ring_is_lost(r, get_le16(step + 4) % WORLD_SIZE_MAX);
		(void)ring_grown(r);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *mem;		/* one for all: it is large */
	struct ring_end agent, process;
	int sub[2], cpl[2];

	if (!mem)
		mem = aligned_alloc(PAGE_BYTES, ring_shared_bytes());
	if (!mem || ring_sub_bell_new(sub) || ring_cpl_bell_new(cpl))
		abort();
	ring_format(mem);
	ring_end_init(&agent, mem, sub[1], cpl[0]);
	ring_end_init(&process, mem, sub[0], cpl[1]);
	for (; size >= STEP_BYTES; data += STEP_BYTES, size -= STEP_BYTES) {
		switch (data[0] % 4) {
		case 0:
			agent_step(&agent, data);
			break;
		case 1:
			process_step(&process, data);
			break;
		default:
			scribble(mem, data + 1);
		}
	}
	for (int i = 0; i < 2; i++) {
		close(sub[i]);
		close(cpl[i]);
	}
	return 0;
}
