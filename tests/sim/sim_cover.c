// SPDX-License-Identifier: Apache-2.0
/* Which (state, event) pairs of a segment's two state tables the runs have come to. */
#include <stdio.h>

#include "tests/sim/sim.h"

enum { SRV_STATES = 4, AG_STATES = 5, KINDS = 2 };

static const char *const srv_state[SRV_STATES] = { "NONE", "OFFERED", "LANDING", "PARKED" };
static const char *const srv_kind[KINDS] = { "", " young" };
static const char *const ag_state[AG_STATES] = { "IDLE", "READY", "PUSHED", "CANCELLING", "DONE" };
static const char *const ag_kind[KINDS] = { "", " moving" };
static const uint8_t srv_event[] = { FRAME_OFFER, FRAME_PUSH, FRAME_PROBE, FRAME_CANCEL,
				     FRAME_GIVE };
static const uint8_t ag_event[] = { FRAME_RESULT, FRAME_ASK, FRAME_HELD, FRAME_CANCELLED,
				    FRAME_REFUSED, FRAME_SEEK };

static uint64_t srv_seen[SRV_STATES][KINDS][32], ag_seen[AG_STATES][KINDS][32];

void sim_cover_server(struct srv_core *c, const struct frame *f)
{
	struct srv_tensor *t = srv_tensor_find(c, f->job, f->tensor, f->chunk, f->epoch);
	const struct srv_seg *s;

	if (!t || t->removed || f->worker >= t->job->n || f->offset % t->geom.seg_bytes ||
	    f->offset >= geom_chunk_len(&t->geom, f->chunk))
		return;
	s = &t->seg[t->first[f->chunk] + f->offset / t->geom.seg_bytes];
	srv_seen[s->in[f->worker].state][s->young][f->type % 32]++;
}

void sim_cover_agent(struct ag_core *c, const struct frame *f)
{
	struct ag_seg *s = ag_find(c, f);

	if (s && !s->tensor->removed)
		ag_seen[s->state][s->next != NULL][f->type % 32]++;
}

static uint32_t row(const char *who, const char *state, const char *kind, uint64_t *seen,
		    const uint8_t *event, size_t n)
{
	uint32_t met = 0;

	for (size_t i = 0; i < n; i++) {
		met += seen[event[i]] != 0;
		printf("  %-6s %-10s%-7s %-10s %12llu\n", who, state, kind,
		       frame_type_name(event[i]), (unsigned long long)seen[event[i]]);
	}
	return met;
}

/* A segment moves only while its contribution is with the old owner. */
static bool can_move(uint32_t state)
{
	return state == SEG_PUSHED || state == SEG_CANCELLING;
}

void sim_cover_sched(struct sim *s, const struct sched_event *ev, uint32_t proc)
{
	(void)s;
	(void)ev;
	(void)proc;
}

void sim_cover_report(void)
{
	uint32_t met = 0, all = 0;

	for (uint32_t i = 0; i < SRV_STATES; i++)
		for (uint32_t k = 0; k < KINDS; k++) {
			met += row("server", srv_state[i], srv_kind[k], srv_seen[i][k], srv_event,
				   ARRAY_SIZE(srv_event));
			all += ARRAY_SIZE(srv_event);
		}
	for (uint32_t i = 0; i < AG_STATES; i++)
		for (uint32_t k = 0; k < KINDS && (!k || can_move(i)); k++) {
			met += row("agent", ag_state[i], ag_kind[k], ag_seen[i][k], ag_event,
				   ARRAY_SIZE(ag_event));
			all += ARRAY_SIZE(ag_event);
		}
	printf("%u of %u pairs of a segment's state and a frame were met\n", met, all);
}
