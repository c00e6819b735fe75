// SPDX-License-Identifier: Apache-2.0
/* What an engine counts, once a turn, for the heartbeats. */
#include "server/server.h"

/* From turn to turn: a turn itself is short, and what wakes the engine ends an idle time. */
static void count_busy(struct sv_engine *en, mono_t now)
{
	uint64_t us = (uint64_t)(now - en->turned) / 1000;

	if (en->was_busy) {
		en->stats.busy_us += us;
		en->turned += (mono_t)us * 1000;
	} else {
		en->turned = now;
	}
	en->was_busy = srv_busy(&en->core);
}

void sv_stats_turn(struct sv_engine *en, mono_t now)
{
	const struct srv_counters *c = &en->core.count;
	const struct xport_written w = xport_written(en->group);

	en->stats.bytes_sent = en->bytes_sent;
	en->stats.bytes_received = en->bytes_received;
	en->stats.bytes_summed = c->bytes_summed;
	en->stats.rounds = c->rounds;
	en->stats.frames = w.frames;
	en->stats.writes = w.calls;
	en->stats.drops = c->drop_job + c->drop_tensor + c->drop_epoch + c->drop_worker +
			  c->drop_round + c->drop_attempt + c->drop_shape + c->duplicates;
	count_busy(en, now);
}
