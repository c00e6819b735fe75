// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sched_claim.h"

/* Each row is a node of its own, that was given its number; a server that is gone has none. */
static bool rows_can_be(const struct sched *s, const struct msg_job_up *m)
{
	for (uint32_t i = 0; i < m->nmachines; i++) {
		if (m->machines[i].node > s->last.node)
			return false;
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(m->machines[i].name, m->machines[k].name) ||
			    m->machines[i].node == m->machines[k].node)
				return false;
	}
	for (uint32_t i = 0; i < m->nservers; i++) {
		if (m->servers[i].node > s->last.node)
			return false;
		for (uint32_t k = 0; k < i; k++)
			if (m->servers[i].node && m->servers[i].node == m->servers[k].node)
				return false;
	}
	return true;
}

bool held_valid(const struct sched *s, const struct msg_job_up *m)
{
	if (!m->job || m->job > s->config.ids.job || !m->name[0] ||
	    strlen(m->name) > NAME_LEN_MAX)
		return false;
	if (!m->world || m->world > WORLD_SIZE_MAX || !sched_epoch_can_be(s, m->epoch))
		return false;
	if (m->chunk_bytes < CHUNK_BYTES_MIN || m->chunk_bytes > CHUNK_BYTES_MAX ||
	    m->seq > SCHED_SEQ_MAX)
		return false;
	return m->nmachines && m->nmachines <= AGENTS_PER_JOB_MAX &&
	       m->nservers <= SERVERS_PER_JOB_MAX && rows_can_be(s, m);
}
