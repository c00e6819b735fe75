/* SPDX-License-Identifier: Apache-2.0 */
/* sim_cover.h - which pairs of a state and an event were met; each before it happens. */
#ifndef TALLY_TESTS_SIM_COVER_H
#define TALLY_TESTS_SIM_COVER_H

#include "scheduler/sched_core.h"
#include "server/server_core.h"
#include "worker-agent/agent_core.h"

void sim_cover_server(struct srv_core *c, const struct frame *f);
void sim_cover_agent(struct ag_core *c, const struct frame *f);
/* What happens to a segment without a frame. */
void sim_cover_given(const struct ag_tensor *t, const struct ag_post *p);
void sim_cover_sent(const struct ag_seg *s);
void sim_cover_down(const struct ag_core *c, const struct ag_peer *p);
void sim_cover_move(const struct ag_tensor *t, struct ag_route *const *table,
		    const uint32_t *route);
void sim_cover_world(const struct ag_job *j);	/* it becomes smaller or larger */
void sim_cover_time(const struct ag_core *c);
void sim_cover_server_world(const struct srv_job *j);
void sim_cover_result(const struct srv_in *in);	/* was sent, or lost with its link */
void sim_cover_lost(const struct srv_core *c, const struct srv_peer *p, bool anew);
void sim_cover_leave(const struct srv_tensor *t, const bool *chunks);
void sim_cover_sched(struct sched *c, const struct sched_event *ev);
uint32_t sim_cover_report(void);	/* pairs that are missing */

#endif
