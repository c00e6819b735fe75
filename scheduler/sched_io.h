/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_io.h - the scheduler's shell: sockets, timer, disk and log around the core.
 *
 * Everything runs on the loop's thread.  Life: sched_io_start(), loop_run(),
 * which returns after sched_io_stop() has closed all connections,
 * sched_io_free().
 */
#ifndef TALLY_SCHED_IO_H
#define TALLY_SCHED_IO_H

#include "common/rt/loop.h"
#include "scheduler/sched_core.h"
#include "scheduler/state.h"

struct sched_io;

struct sched_io_config {
	const char *host;		/* to listen on */
	uint16_t port;			/* 0: any */
	const char *secret;		/* "" none; borrowed for life */
	uint32_t heartbeat_ms, agent_grace_ms;
	uint32_t window_bytes;		/* 0: by the cards */
	uint32_t user_jobs, user_tensors;	/* that one user may have */
};

/* st stays the caller's and must outlive the result. */
int sched_io_start(struct sched_io **out, struct loop *l, struct state *st,
		   const struct sched_io_config *config, struct err *e);
uint16_t sched_io_port(const struct sched_io *io);
void sched_io_stop(struct sched_io *io);	/* loop_stop() when all is closed */
void sched_io_free(struct sched_io *io);

#endif
