// SPDX-License-Identifier: Apache-2.0
/*
 * msg_table.c - one row for every field of every control message.
 *
 * This is the whole of what the codec believes: a bound that is not here or in
 * a rule is not checked.  Rows stand in the order of tally.proto's numbers.
 */
#include "proto/msg_table.h"

#include "common/base/turn.h"
#include "proto/tally.pb-c.h"

#define CODE_MIN	(-1023)		/* later versions may know more codes than we do */
#define ANY32		0, UINT32_MAX
#define ANY64		0, UINT64_MAX

#define ROW(k, s, f, min, max) \
	{ .name = #f, .kind = KIND_##k, .at = offsetof(struct s, f), .lo = (min), .hi = (max) }
#define ROW_ARRAY(k, s, f, min, max, shape) \
	{ .name = #f, .kind = KIND_##k, .at = offsetof(struct s, f), \
	  .count_at = offsetof(struct s, n##f), .lo = (min), .hi = (max), .sub = (shape) }

#define U16(s, f, ...)		ROW(U16, s, f, __VA_ARGS__)
#define U32(s, f, ...)		ROW(U32, s, f, __VA_ARGS__)
#define U64(s, f, ...)		ROW(U64, s, f, __VA_ARGS__)
#define F64(s, f)		ROW(F64, s, f, 0, 0)
#define CODE(s, f)		ROW(I32, s, f, CODE_MIN, 0)
#define PRIORITY(s, f)		ROW(I32, s, f, INT32_MIN, INT32_MAX)
#define NAME(s, f)		ROW(STR, s, f, 1, NAME_LEN_MAX)
#define NAME_OR_NONE(s, f)	ROW(STR, s, f, 0, NAME_LEN_MAX)
#define ADDR(s, f)		ROW(STR, s, f, 1, ADDR_LEN_MAX)
#define ADDR_OR_NONE(s, f)	ROW(STR, s, f, 0, ADDR_LEN_MAX)
#define TEXT(s, f)		ROW(STR, s, f, 0, ERR_TEXT_MAX)
#define ID(s, f)		ROW(ID, s, f, 0, 0)
#define U32S(s, f, min, max)	ROW_ARRAY(U32S, s, f, min, max, NULL)
#define U64S(s, f, min, max)	ROW_ARRAY(U64S, s, f, min, max, NULL)
#define SUBS(s, f, min, max, shape) ROW_ARRAY(SUBS, s, f, min, max, &(shape))

#define SHAPE(noun, func) \
	static const struct msg_shape msg_##noun##_shape = { \
		.bytes = sizeof(struct msg_##noun), \
		.desc = &tally__##noun##__descriptor, \
		.rows = noun##_rows, \
		.nrows = ARRAY_SIZE(noun##_rows), \
		.rule = (func), \
	}

/* ---- rules that span fields ---- */

static const char *chunk_rule(uint32_t chunk_bytes)
{
	if (chunk_bytes && (chunk_bytes < CHUNK_BYTES_MIN || chunk_bytes % PAGE_BYTES))
		return "chunk_bytes: neither 0 nor a page multiple from CHUNK_BYTES_MIN";
	return NULL;
}

static const char *ids_rule(const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!ids[i])
			return "ids: 0 is no tensor";
	return NULL;
}

static const char *reply_rule(const void *plain)
{
	const struct msg_reply *m = plain;

	return ids_rule(m->ids, m->nids);
}

static const char *hello_rule(const void *plain)
{
	const struct msg_hello *m = plain;

	if (m->version_min > m->version_max)
		return "version_min: above version_max";
	if (m->kind == NODE_CLI)
		return NULL;
	if (!m->machine || !*m->machine)
		return "machine: empty, a node must say where it runs";
	if (!m->engines)
		return "engines: 0, a node has at least one";
	return NULL;
}

static const char *rank_join_rule(const void *plain)
{
	const struct msg_rank_join *m = plain;

	return m->rank < m->world ? chunk_rule(m->chunk_bytes) : "rank: not below world";
}

static const char *machine_rule(const void *plain)
{
	const struct msg_machine *m = plain;

	for (uint32_t i = 0; i < m->nranks; i++)
		if (m->ranks[i] >= WORLD_SIZE_MAX || (i && m->ranks[i] <= m->ranks[i - 1]))
			return "ranks: not ascending, or beyond WORLD_SIZE_MAX";
	return NULL;
}

static bool ascends(const uint32_t *ranks, uint32_t n, uint32_t world)
{
	for (uint32_t i = 0; i < n; i++)
		if (ranks[i] >= world || (i && ranks[i] <= ranks[i - 1]))
			return false;
	return true;
}

static const char *world_rule(const uint32_t *gone, uint32_t ngone, const uint32_t *joined,
			      uint32_t njoined, uint32_t world)
{
	if (!ascends(gone, ngone, world))
		return "gone: not ascending, or not below world";
	if (!ascends(joined, njoined, world))
		return "joined: not ascending, or not below world";
	return ngone < world ? NULL : "gone: nobody is left";
}

static const char *job_up_rule(const void *plain)
{
	const struct msg_job_up *m = plain;
	uint32_t weight = 0;

	if (m->chunk_bytes % PAGE_BYTES)
		return "chunk_bytes: not a multiple of the page size";
	if (m->seg_bytes % PAGE_BYTES || m->chunk_bytes % m->seg_bytes)
		return "seg_bytes: not a multiple of the page size, or no part of chunk_bytes";
	if (m->nservers && m->window_bytes < m->seg_bytes)
		return "window_bytes: below seg_bytes";
	for (uint32_t i = 0; i < m->nmachines; i++) {
		const struct msg_machine *a = &m->machines[i];

		if (a->ranks[a->nranks - 1] >= m->world)
			return "machines: a rank is not below world";
		if (i && a->ranks[0] <= a[-1].ranks[0])
			return "machines: not in the order of their lowest ranks";
	}
	for (uint32_t i = 0; i < m->nservers; i++)
		weight |= m->servers[i].weight;
	if (m->nmachines > 1 && !weight)
		return "servers: none sums for several machines";
	if (!ascends(m->left, m->nleft, m->world))
		return "left: not ascending, or not below world";
	return world_rule(m->gone, m->ngone, m->joined, m->njoined, m->world);
}

static const char *tensor_rule(const void *plain)
{
	const struct msg_tensor *m = plain;
	uint64_t max = TENSOR_BYTES_MAX / dtype_bytes((uint8_t)m->dtype);
	uint64_t product = 1;

	if (m->count > max)
		return "count: more than TENSOR_BYTES_MAX bytes";
	if (!m->ndims)		/* no shape was given */
		return NULL;
	for (uint32_t i = 0; i < m->ndims; i++)
		if (__builtin_mul_overflow(product, m->dims[i], &product))
			return "dims: their product overflows";
	return product == m->count ? NULL : "dims: their product is not count";
}

static const char *tensors_rule(const void *plain)
{
	const struct msg_tensors *m = plain;

	for (uint32_t i = 0; i < m->ntensors; i++)
		if (!m->tensors[i].id)
			return "tensors: one has no id";
	return NULL;
}

static const char *msg_ids_rule(const void *plain)
{
	const struct msg_ids *m = plain;

	return ids_rule(m->ids, m->nids);
}

static const char *epoch_rule(const void *plain)
{
	const struct msg_epoch *m = plain;

	return world_rule(m->gone, m->ngone, m->joined, m->njoined, WORLD_SIZE_MAX);
}

static const char *attach_rule(const void *plain)
{
	const struct msg_attach *m = plain;

	return m->rank < m->world ? chunk_rule(m->chunk_bytes) : "rank: not below world";
}

static const char *attached_rule(const void *plain)
{
	const struct msg_attached *m = plain;

	if (m->rank >= m->world)
		return "rank: not below world";
	if (m->local_rank >= m->local_size)
		return "local_rank: not below local_size";
	return m->chunk_bytes ? chunk_rule(m->chunk_bytes) : "chunk_bytes: 0";
}

static const char *gpu_plan_rule(const void *plain)
{
	const struct msg_gpu_plan *m = plain;

	if (m->group >= m->groups)
		return "group: not below groups";
	if (m->me >= m->nmembers)
		return "me: no member";
	if (m->nroots != m->nweights || m->nroots > m->nmembers)
		return "roots: not as many as weights, or more than members";
	for (uint32_t i = 0; i < m->nroots; i++) {
		if (m->roots[i] >= m->nmembers || (i && m->roots[i] <= m->roots[i - 1]))
			return "roots: no members, or not ascending";
		if (i && m->weights[i] <= m->weights[i - 1])
			return "weights: not ascending";
	}
	if (m->weights[m->nweights - 1] != TURN_SUM)
		return "weights: the last is not TURN_SUM";
	return m->scatter && m->nroots != m->nmembers ? "scatter: not all are roots" : NULL;
}

/* ---- rows ---- */

static const struct msg_row addr_rows[] = {
	ADDR(msg_addr, host),
	U16(msg_addr, port, 0, UINT16_MAX),
	U64(msg_addr, bits_per_s, ANY64),
};
SHAPE(addr, NULL);

static const struct msg_row reply_rows[] = {
	U64(msg_reply, req, ANY64),
	CODE(msg_reply, code),
	TEXT(msg_reply, text),
	U32S(msg_reply, ids, 0, TENSORS_PER_BATCH_MAX),
};
SHAPE(reply, reply_rule);

static const struct msg_row hello_rows[] = {
	U32(msg_hello, version_min, 1, UINT32_MAX),
	U32(msg_hello, version_max, 1, UINT32_MAX),
	U32(msg_hello, kind, NODE_AGENT, NODE_CLI),
	NAME(msg_hello, name),
	NAME_OR_NONE(msg_hello, machine),
	ID(msg_hello, instance),
	NAME_OR_NONE(msg_hello, secret),
	SUBS(msg_hello, addrs, 0, RAILS_MAX, msg_addr_shape),
	ADDR_OR_NONE(msg_hello, shm_path),
	U32(msg_hello, engines, 0, ENGINES_MAX),
	U64(msg_hello, adder_bytes_per_s, ANY64),
	U64(msg_hello, memory_bytes, ANY64),
	U64(msg_hello, epoch_seen, ANY64),
	ID(msg_hello, cluster),
	U32(msg_hello, node, ANY32),
	U32(msg_hello, draining, 0, 1),
};
SHAPE(hello, hello_rule);

static const struct msg_row welcome_rows[] = {
	U32(msg_welcome, version, 1, UINT32_MAX),
	U32(msg_welcome, node, ANY32),
	ID(msg_welcome, cluster),
	U64(msg_welcome, epoch, ANY64),
	U32(msg_welcome, heartbeat_ms, 1, UINT32_MAX),
	U32(msg_welcome, lease_ms, 1, UINT32_MAX),
	ID(msg_welcome, link_key),
	U32(msg_welcome, agent_grace_ms, ANY32),
};
SHAPE(welcome, NULL);

static const struct msg_row heartbeat_rows[] = {
	U64(msg_heartbeat, seq, ANY64),
	U64(msg_heartbeat, bytes_sent, ANY64),
	U64(msg_heartbeat, bytes_received, ANY64),
	U64(msg_heartbeat, bytes_summed, ANY64),
	U64(msg_heartbeat, memory_used_bytes, ANY64),
	U64(msg_heartbeat, rounds, ANY64),
	U64(msg_heartbeat, drops, ANY64),
	U32(msg_heartbeat, links, ANY32),
	TEXT(msg_heartbeat, note),
	U64(msg_heartbeat, busy_us, ANY64),
	U64(msg_heartbeat, frames, ANY64),
	U64(msg_heartbeat, writes, ANY64),
	U32(msg_heartbeat, links_per_peer, ANY32),
	U64(msg_heartbeat, flight_bytes, ANY64),
	U64(msg_heartbeat, cpu_us, ANY64),
	TEXT(msg_heartbeat, cause),
};
SHAPE(heartbeat, NULL);

static const struct msg_row rank_join_rows[] = {
	U64(msg_rank_join, req, ANY64),
	NAME(msg_rank_join, job),
	U32(msg_rank_join, world, 1, WORLD_SIZE_MAX),
	U32(msg_rank_join, rank, 0, WORLD_SIZE_MAX - 1),
	U32(msg_rank_join, pid, ANY32),
	U32(msg_rank_join, uid, ANY32),
	U32(msg_rank_join, timeout_ms, ANY32),
	U32(msg_rank_join, chunk_bytes, 0, CHUNK_BYTES_MAX),
	U32(msg_rank_join, on_loss, 0, ON_LOSS_END - 1),
	U32(msg_rank_join, back, ANY32),
};
SHAPE(rank_join, rank_join_rule);

static const struct msg_row rank_leave_rows[] = {
	U32(msg_rank_leave, job, ANY32),
	U32(msg_rank_leave, rank, 0, WORLD_SIZE_MAX - 1),
	CODE(msg_rank_leave, code),
	TEXT(msg_rank_leave, text),
	U32(msg_rank_leave, pid, ANY32),
	U64(msg_rank_leave, req, ANY64),
};
SHAPE(rank_leave, NULL);

static const struct msg_row machine_rows[] = {
	U32(msg_machine, node, ANY32),
	NAME(msg_machine, name),
	NAME_OR_NONE(msg_machine, machine),
	U64(msg_machine, bits_per_s, ANY64),
	ID(msg_machine, link_key),
	U32S(msg_machine, ranks, 1, LOCAL_RANKS_MAX),
	U32(msg_machine, engines, 0, ENGINES_MAX),
};
SHAPE(machine, machine_rule);

static const struct msg_row server_rows[] = {
	U32(msg_server, node, ANY32),
	NAME(msg_server, name),
	NAME_OR_NONE(msg_server, machine),
	ADDR_OR_NONE(msg_server, shm_path),
	U32(msg_server, engines, 1, ENGINES_MAX),
	U32(msg_server, weight, ANY32),
	SUBS(msg_server, addrs, 0, RAILS_MAX, msg_addr_shape),
	ID(msg_server, instance),
};
SHAPE(server, NULL);

static const struct msg_row job_up_rows[] = {
	U32(msg_job_up, job, ANY32),
	NAME(msg_job_up, name),
	U32(msg_job_up, world, 1, WORLD_SIZE_MAX),
	U64(msg_job_up, epoch, ANY64),
	U32(msg_job_up, algorithm, 1, UINT32_MAX),
	U32(msg_job_up, chunk_bytes, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
	U32(msg_job_up, seg_bytes, SEG_BYTES_MIN, SEG_BYTES_MAX),
	U32(msg_job_up, window_bytes, 0, WINDOW_BYTES_MAX),
	SUBS(msg_job_up, machines, 1, AGENTS_PER_JOB_MAX, msg_machine_shape),
	SUBS(msg_job_up, servers, 0, SERVERS_PER_JOB_MAX, msg_server_shape),
	U64(msg_job_up, seq, ANY64),
	U32(msg_job_up, repair, 0, 1),
	U32(msg_job_up, on_loss, 0, ON_LOSS_END - 1),
	U32S(msg_job_up, gone, 0, WORLD_SIZE_MAX - 1),
	U32(msg_job_up, grown, ANY32),
	U64(msg_job_up, grown_at, ANY64),
	U32S(msg_job_up, joined, 0, WORLD_SIZE_MAX - 1),
	U64(msg_job_up, epoch_seq, ANY64),
	U32S(msg_job_up, left, 0, WORLD_SIZE_MAX - 1),
	U32(msg_job_up, user, ANY32),
};
SHAPE(job_up, job_up_rule);

static const struct msg_row epoch_rows[] = {
	U32(msg_epoch, job, ANY32),
	U64(msg_epoch, seq, ANY64),
	U64(msg_epoch, epoch, ANY64),
	U32(msg_epoch, repair, 0, 1),
	SUBS(msg_epoch, servers, 0, SERVERS_PER_JOB_MAX, msg_server_shape),
	U64S(msg_epoch, placed, 0, CHUNKS_PER_JOB_MAX),
	U32S(msg_epoch, gone, 0, WORLD_SIZE_MAX - 1),
	U32(msg_epoch, grown, ANY32),
	U64(msg_epoch, grown_at, ANY64),
	U32S(msg_epoch, joined, 0, WORLD_SIZE_MAX - 1),
};
SHAPE(epoch, epoch_rule);

static const struct msg_row drain_rows[] = {
	U64(msg_drain, req, ANY64),
	NAME(msg_drain, name),
	U32(msg_drain, undo, 0, 1),
};
SHAPE(drain, NULL);

static const struct msg_row node_forget_rows[] = {
	U64(msg_node_forget, req, ANY64),
	NAME(msg_node_forget, name),
};
SHAPE(node_forget, NULL);

static const struct msg_row wait_rows[] = {
	U32(msg_wait, tensor, 1, UINT32_MAX),
	U32(msg_wait, round, ANY32),
	U32(msg_wait, chunk, ANY32),
	U32(msg_wait, chunks, ANY32),
	U32(msg_wait, kind, WAIT_RANK, WAIT_KIND_END - 1),
	U32(msg_wait, who, ANY32),
	U64(msg_wait, age_ms, ANY64),
};
SHAPE(wait, NULL);

static const struct msg_row job_time_rows[] = {
	U32(msg_job_time, job, ANY32),
	U64(msg_job_time, under_way_us, ANY64),
	U64(msg_job_time, bytes, ANY64),
};
SHAPE(job_time, NULL);

static const struct msg_row stuck_rows[] = {
	U32(msg_stuck, job, ANY32),
	SUBS(msg_stuck, waits, 0, STUCK_ROWS_MAX, msg_wait_shape),
};
SHAPE(stuck, NULL);

static const struct msg_row ready_rows[] = {
	U32(msg_ready, job, ANY32),
	U64(msg_ready, seq, ANY64),
	CODE(msg_ready, code),
	TEXT(msg_ready, text),
	U64(msg_ready, log, ANY64),
	U64(msg_ready, barrier, ANY64),
	U64S(msg_ready, rounds, 0, TENSORS_PER_JOB_MAX),
	U64(msg_ready, epoch, ANY64),
};
SHAPE(ready, NULL);

static const struct msg_row heard_rows[] = {
	U32(msg_heard, node, ANY32),
};
SHAPE(heard, NULL);

static const struct msg_row agent_key_rows[] = {
	U32(msg_agent_key, node, ANY32),
	ID(msg_agent_key, link_key),
};
SHAPE(agent_key, NULL);

static const struct msg_row agent_keys_rows[] = {
	SUBS(msg_agent_keys, keys, 1, AGENTS_PER_JOB_MAX, msg_agent_key_shape),
};
SHAPE(agent_keys, NULL);

static const struct msg_row rank_alive_rows[] = {
	U32(msg_rank_alive, job, ANY32),
	U32(msg_rank_alive, rank, 0, WORLD_SIZE_MAX - 1),
};
SHAPE(rank_alive, NULL);

static const struct msg_row job_down_rows[] = {
	U32(msg_job_down, job, ANY32),
	CODE(msg_job_down, code),
	TEXT(msg_job_down, text),
};
SHAPE(job_down, NULL);

static const struct msg_row tensor_rows[] = {
	U32(msg_tensor, id, ANY32),
	NAME(msg_tensor, name),
	U32(msg_tensor, dtype, DTYPE_NONE + 1, DTYPE_END - 1),
	U64S(msg_tensor, dims, 0, DIMS_MAX),
	U64(msg_tensor, count, ANY64),
	PRIORITY(msg_tensor, priority),
	U32(msg_tensor, round, ANY32),
	ROW(STR, msg_tensor, meaning, 0, MEANING_LEN_MAX),
};
SHAPE(tensor, tensor_rule);

static const struct msg_row declare_rows[] = {
	U64(msg_declare, req, ANY64),
	U32(msg_declare, job, ANY32),
	U32(msg_declare, rank, 0, WORLD_SIZE_MAX - 1),
	U32(msg_declare, timeout_ms, ANY32),
	SUBS(msg_declare, tensors, 1, TENSORS_PER_BATCH_MAX, msg_tensor_shape),
};
SHAPE(declare, NULL);

static const struct msg_row tensors_rows[] = {
	U32(msg_tensors, job, ANY32),
	U64(msg_tensors, seq, 1, UINT64_MAX),
	SUBS(msg_tensors, tensors, 1, TENSORS_PER_BATCH_MAX, msg_tensor_shape),
	U64S(msg_tensors, placed, 0, PLACED_MAX),
};
SHAPE(tensors, tensors_rule);

static const struct msg_row ids_rows[] = {
	U64(msg_ids, req, ANY64),
	U32(msg_ids, job, ANY32),
	U32(msg_ids, rank, 0, WORLD_SIZE_MAX - 1),
	U64(msg_ids, seq, ANY64),
	U32(msg_ids, timeout_ms, ANY32),
	U32S(msg_ids, ids, 0, TENSORS_PER_JOB_MAX),
};
SHAPE(ids, msg_ids_rule);

static const struct msg_row barrier_rows[] = {
	U64(msg_barrier, req, ANY64),
	U32(msg_barrier, job, ANY32),
	U32(msg_barrier, rank, 0, WORLD_SIZE_MAX - 1),
	U32(msg_barrier, timeout_ms, ANY32),
	U64(msg_barrier, generation, 1, UINT64_MAX),
	U32(msg_barrier, grow, 0, 1),
};
SHAPE(barrier, NULL);

static const struct msg_row query_rows[] = {
	U64(msg_query, req, ANY64),
	U32(msg_query, what, 1, QUERY_NODES | QUERY_JOBS | QUERY_TENSORS |
	    QUERY_STUCK),
	NAME_OR_NONE(msg_query, job),
};
SHAPE(query, NULL);

static const struct msg_row node_row_rows[] = {
	U32(msg_node_row, node, ANY32),
	U32(msg_node_row, kind, NODE_AGENT, NODE_CLI),
	NAME(msg_node_row, name),
	NAME_OR_NONE(msg_node_row, machine),
	NAME_OR_NONE(msg_node_row, addr),
	NAME_OR_NONE(msg_node_row, state),
	TEXT(msg_node_row, note),
	U64(msg_node_row, bits_per_s, ANY64),
	U64(msg_node_row, adder_bytes_per_s, ANY64),
	U64(msg_node_row, memory_bytes, ANY64),
	U32(msg_node_row, rails, ANY32),
	U32(msg_node_row, jobs, ANY32),
	U64(msg_node_row, heartbeat_age_ms, ANY64),
	{ .name = "last", .kind = KIND_SUB, .at = offsetof(struct msg_node_row, last),
	  .sub = &msg_heartbeat_shape },
	U32(msg_node_row, pace, 0, 100),
	U64(msg_node_row, state_ms, ANY64),
	TEXT(msg_node_row, why),
	TEXT(msg_node_row, bypassed),
};
SHAPE(node_row, NULL);

static const struct msg_row refused_row_rows[] = {
	U32(msg_refused_row, kind, NODE_NONE, NODE_CLI),
	NAME_OR_NONE(msg_refused_row, name),
	ADDR_OR_NONE(msg_refused_row, addr),
	CODE(msg_refused_row, code),
	TEXT(msg_refused_row, why),
	U64(msg_refused_row, count, ANY64),
	U64(msg_refused_row, age_ms, ANY64),
};
SHAPE(refused_row, NULL);

static const struct msg_row job_row_rows[] = {
	U32(msg_job_row, job, ANY32),
	NAME(msg_job_row, name),
	NAME_OR_NONE(msg_job_row, state),
	TEXT(msg_job_row, waiting_for),
	U32(msg_job_row, world, ANY32),
	U32(msg_job_row, attached, ANY32),
	U32(msg_job_row, machines, ANY32),
	U32(msg_job_row, servers, ANY32),
	U32(msg_job_row, tensors, ANY32),
	U64(msg_job_row, bytes, ANY64),
	U64(msg_job_row, epoch, ANY64),
	U64(msg_job_row, age_ms, ANY64),
	F64(msg_job_row, round_time_s),
	U32(msg_job_row, chunk_bytes, ANY32),
	U32(msg_job_row, seg_bytes, ANY32),
	U32(msg_job_row, window_bytes, ANY32),
	F64(msg_job_row, measured_time_s),
};
SHAPE(job_row, NULL);

static const struct msg_row tensor_row_rows[] = {
	U32(msg_tensor_row, job, ANY32),
	U32(msg_tensor_row, id, ANY32),
	NAME(msg_tensor_row, name),
	NAME_OR_NONE(msg_tensor_row, state),
	TEXT(msg_tensor_row, waiting_for),
	U32(msg_tensor_row, dtype, DTYPE_NONE + 1, DTYPE_END - 1),
	U64(msg_tensor_row, count, ANY64),
	PRIORITY(msg_tensor_row, priority),
	U32(msg_tensor_row, chunks, ANY32),
};
SHAPE(tensor_row, NULL);

static const struct msg_row stuck_row_rows[] = {
	U32(msg_stuck_row, job, ANY32),
	NAME(msg_stuck_row, tensor),
	U32(msg_stuck_row, round, ANY32),
	U32(msg_stuck_row, chunk, ANY32),
	U32(msg_stuck_row, chunks, ANY32),
	U32(msg_stuck_row, kind, WAIT_MACHINE, WAIT_SERVER),
	U32S(msg_stuck_row, ranks, 0, LOCAL_RANKS_MAX),
	NAME(msg_stuck_row, name),
	NAME_OR_NONE(msg_stuck_row, machine),
	U64(msg_stuck_row, age_ms, ANY64),
	U64(msg_stuck_row, silent_ms, ANY64),
};
SHAPE(stuck_row, NULL);

static const struct msg_row report_rows[] = {
	U64(msg_report, req, ANY64),
	ID(msg_report, cluster),
	U64(msg_report, epoch, ANY64),
	U64(msg_report, uptime_ms, ANY64),
	NAME_OR_NONE(msg_report, state),
	NAME_OR_NONE(msg_report, version),
	SUBS(msg_report, nodes, 0, NODES_MAX, msg_node_row_shape),
	SUBS(msg_report, jobs, 0, JOBS_MAX, msg_job_row_shape),
	SUBS(msg_report, tensors, 0, TENSORS_PER_JOB_MAX, msg_tensor_row_shape),
	SUBS(msg_report, stuck, 0, STUCK_REPORT_MAX, msg_stuck_row_shape),
	SUBS(msg_report, refused, 0, REFUSED_MAX, msg_refused_row_shape),
};
SHAPE(report, NULL);

static const struct msg_row attach_rows[] = {
	U64(msg_attach, req, ANY64),
	U32(msg_attach, version, 1, UINT32_MAX),
	NAME(msg_attach, job),
	U32(msg_attach, world, 1, WORLD_SIZE_MAX),
	U32(msg_attach, rank, 0, WORLD_SIZE_MAX - 1),
	U32(msg_attach, timeout_ms, ANY32),
	U32(msg_attach, chunk_bytes, 0, CHUNK_BYTES_MAX),
	U32(msg_attach, on_loss, 0, ON_LOSS_END - 1),
	U32(msg_attach, back, ANY32),
	U64(msg_attach, barriers, ANY64),
};
SHAPE(attach, attach_rule);

static const struct msg_row attached_rows[] = {
	U64(msg_attached, req, ANY64),
	U32(msg_attached, job, ANY32),
	U32(msg_attached, world, 1, WORLD_SIZE_MAX),
	U32(msg_attached, rank, 0, WORLD_SIZE_MAX - 1),
	U32(msg_attached, local_rank, 0, LOCAL_RANKS_MAX - 1),
	U32(msg_attached, local_size, 1, LOCAL_RANKS_MAX),
	U32(msg_attached, machines, 1, AGENTS_PER_JOB_MAX),
	U32(msg_attached, chunk_bytes, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
	NAME_OR_NONE(msg_attached, agent),
	U64(msg_attached, barrier, ANY64),
	U32(msg_attached, grace_ms, ANY32),
	U32(msg_attached, devices, 0, 1),
};
SHAPE(attached, attached_rule);

static const struct msg_row slab_rows[] = {
	U64(msg_slab, req, ANY64),
	U32(msg_slab, id, 0, UINT16_MAX),
	U32(msg_slab, kind, SLAB_INPUT, SLAB_OLD),
	U64(msg_slab, bytes, 0, SLAB_BYTES_MAX),
	U32(msg_slab, small, 0, 1),
};
SHAPE(slab, NULL);

static const struct msg_row declared_tensor_rows[] = {
	U32(msg_declared_tensor, id, 1, UINT32_MAX),
	U32(msg_declared_tensor, slab, 0, UINT16_MAX),
	{ .name = "off_even", .kind = KIND_U64,
	  .at = offsetof(struct msg_declared_tensor, off[0]), .hi = SLAB_BYTES_MAX },
	{ .name = "off_odd", .kind = KIND_U64,
	  .at = offsetof(struct msg_declared_tensor, off[1]), .hi = SLAB_BYTES_MAX },
	U32(msg_declared_tensor, round, ANY32),
	U32(msg_declared_tensor, flies, 0, 1),
	U32(msg_declared_tensor, was, 0, RESULT_SLABS_MAX),
};
SHAPE(declared_tensor, NULL);

static const struct msg_row declared_rows[] = {
	U64(msg_declared, req, ANY64),
	CODE(msg_declared, code),
	TEXT(msg_declared, text),
	SUBS(msg_declared, tensors, 0, TENSORS_PER_BATCH_MAX, msg_declared_tensor_shape),
};
SHAPE(declared, NULL);

static const struct msg_row gpu_join_rows[] = {
	U64(msg_gpu_join, req, ANY64),
	NAME(msg_gpu_join, gpu),
	U32(msg_gpu_join, exact, 0, 1),
	U32(msg_gpu_join, timeout_ms, ANY32),
	U64S(msg_gpu_join, ids, GPU_ID_WORDS, GPU_ID_WORDS),
};
SHAPE(gpu_join, NULL);

static const struct msg_row gpu_plan_rows[] = {
	U64(msg_gpu_plan, req, ANY64),
	U32(msg_gpu_plan, group, 0, LOCAL_RANKS_MAX - 1),
	U32(msg_gpu_plan, groups, 1, LOCAL_RANKS_MAX),
	U32(msg_gpu_plan, me, 0, LOCAL_RANKS_MAX - 1),
	U32S(msg_gpu_plan, members, 1, LOCAL_RANKS_MAX),
	U32S(msg_gpu_plan, roots, 1, LOCAL_RANKS_MAX),
	U32S(msg_gpu_plan, weights, 1, LOCAL_RANKS_MAX),
	U32(msg_gpu_plan, scatter, 0, 1),
	U64S(msg_gpu_plan, ids, GPU_ID_WORDS, GPU_ID_WORDS),
	TEXT(msg_gpu_plan, why),
};
SHAPE(gpu_plan, gpu_plan_rule);

/* ---- type -> shape ---- */

const struct msg_shape *msg_shape_of(uint32_t type)
{
	switch (type) {
#define X(e, num, s, help) case MSG_##e: return &s##_shape;
	MSG_TABLE(X)
#undef X
	}
	return NULL;
}
