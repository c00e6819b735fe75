/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msg.h - the control messages as plain structs, and their codec.
 *
 * Three conversations use them: node <-> scheduler and CLI <-> scheduler over
 * TCP, training process <-> agent over a Unix stream socket (where descriptors
 * ride on a message).  On the wire a message is an 8-byte prefix (length of the
 * body u32, type u16, version u16, little-endian) and a protobuf body
 * (tally.proto); protobuf-c's generated code stays inside proto/.
 *
 * Memory: msg_decode() unpacks into the caller's msg_mem (a bump allocator over
 * one block, grown by nobody) and the message points into it; all memory that a
 * body can make it use is there.  A block of msg_mem_need(body bytes) takes every
 * message that keeps the limits; in a smaller one the answer may be ENOMEM, in
 * one of that size a body that wants more is no message (EPROTO).  On any error
 * mem->used is as before.
 *
 * What a decoded message promises: strings are never NULL, NUL-terminated, at
 * most NAME_LEN_MAX, ADDR_LEN_MAX or ERR_TEXT_MAX bytes (by field; msg_table.c has
 * the rows), valid UTF-8 without control characters; names not empty; arrays
 * NULL when their count is 0; counts, ranks, kinds, sizes and codes (<= 0) within
 * limits.h; dtypes exist; bytes of a tensor <= TENSOR_BYTES_MAX; count equal to
 * the product of dims where ndims > 0 (0: no shape was given); ranks ascending,
 * machines by lowest rank; a job of several machines has a server with a weight, and
 * its chunks whole segments.  So cores need not look again.  What breaks a promise
 * is EPROTO with the field's name; unknown fields are ignored.
 *
 * msg_encode() refuses the same with EINVAL; there a NULL string is "".  It needs
 * no memory.  Codes below -1023 do not travel.
 */
#ifndef TALLY_PROTO_MSG_H
#define TALLY_PROTO_MSG_H

#include "common/base/dtype.h"
#include "common/base/err.h"

#define MSG_VERSION		1u
#define MSG_PREFIX_BYTES	8u
#define KEY_BYTES		16u
#define ID_BYTES		16u
#define GPU_ID_WORDS		32u	/* what a group of GPUs finds itself by; two NCCL ids */

/*  enum	num  struct	     direction; meaning */
#define MSG_TABLE(X) \
	X(REPLY,          1, msg_reply,      "answer to any request: code 0 or an error") \
	X(HELLO,          2, msg_hello,      "node, CLI -> scheduler: who I am") \
	X(WELCOME,        3, msg_welcome,    "scheduler -> node: you are registered") \
	X(HEARTBEAT,      4, msg_heartbeat,  "node -> scheduler each heartbeat_ms; echoed back") \
	X(RANK_JOIN,      5, msg_rank_join,  "agent -> scheduler: a process wants into a job") \
	X(RANK_LEAVE,     6, msg_rank_leave, "agent -> scheduler -> agents: a rank is gone") \
	X(JOB_UP,         7, msg_job_up,     "scheduler -> servers, then agents: it is complete") \
	X(JOB_READY,      8, msg_ready,      "server -> scheduler: reserved, or not (code)") \
	X(JOB_DOWN,       9, msg_job_down,   "scheduler -> all: it is over; server: it is let go") \
	X(DECLARE,       10, msg_declare,    "process -> agent -> scheduler: a batch of tensors") \
	X(TENSORS,       11, msg_tensors,    "scheduler -> servers, then agents: a log entry") \
	X(TENSORS_READY, 12, msg_ready,      "server -> scheduler: reserved, or not (code)") \
	X(UNDECLARE,     13, msg_ids,        "process -> agent -> scheduler") \
	X(FORGET,        14, msg_ids,        "scheduler -> all: a log entry, tensors removed") \
	X(BARRIER,       15, msg_barrier,    "process -> agent -> scheduler; answered to all") \
	X(QUERY,         16, msg_query,      "CLI -> scheduler") \
	X(REPORT,        17, msg_report,     "scheduler -> CLI") \
	X(JOB_HELD,      18, msg_job_up,     "agent -> restarted scheduler: this job runs here") \
	X(TENSORS_HELD,  19, msg_tensors,    "agent -> restarted scheduler: its log, in order") \
	X(ATTACH,        20, msg_attach,     "process -> agent") \
	X(ATTACHED,      21, msg_attached,   "agent -> process, with ring memory and bells") \
	X(SLAB_WANT,     22, msg_slab,       "process -> agent: more arena, please") \
	X(SLAB,          23, msg_slab,       "agent -> process, with a memfd; or the other way") \
	X(SLAB_MAPPED,   24, msg_slab,       "process -> agent: mapped; sealed -> REPLY") \
	X(DECLARED,      25, msg_declared,   "agent -> process: ids and where results will lie") \
	X(DETACH,        26, msg_reply,      "process -> agent: orderly goodbye") \
	X(EPOCH,         27, msg_epoch,      "scheduler -> servers, then agents: chunks move") \
	X(EPOCH_READY,   28, msg_ready,      "server, agent -> scheduler -> servers: it is done") \
	X(DRAIN,         29, msg_drain,      "CLI -> scheduler -> server: it gets nothing to do") \
	X(STUCK,         30, msg_stuck,      "agent -> scheduler: all rounds of a job that wait") \
	X(GPU_JOIN,      31, msg_gpu_join,   "process -> agent: my gradients lie on that GPU") \
	X(GPU_PLAN,      32, msg_gpu_plan,   "agent -> process: its part in the local plan") \
	X(HEARD,         34, msg_heard,      "scheduler -> server: is that agent heard? -> it is") \
	X(RANK_ALIVE,    35, msg_rank_alive, "agent -> scheduler: it lives, and will come back") \
	X(AGENT_KEYS,    36, msg_agent_keys, "scheduler -> servers: what agents present by now") \
	X(NODE_FORGET,   37, msg_node_forget, "CLI -> scheduler: that node is shown no longer") \
	X(JOB_TIME,      38, msg_job_time,   "agent -> scheduler: what rounds of a job took") \
	X(WAITS,         39, msg_reply,      "process -> agent -> scheduler: why no REPLY? -> text")

enum msg_type {
	MSG_NONE = 0,
#define X(e, num, s, help) MSG_##e = num,
	MSG_TABLE(X)
#undef X
	MSG_TYPE_END
};

enum node_kind { NODE_NONE, NODE_AGENT, NODE_SERVER, NODE_CLI };

struct msg_addr {
	const char *host;		/* numeric */
	uint16_t port;			/* 0 for an agent's rail */
	uint64_t bits_per_s;		/* of the card; 0 unknown */
};

/* req: chosen by the asker, echoed; 0 where nothing was asked */
struct msg_reply {
	uint64_t req;
	int32_t code;
	const char *text;
	uint32_t nids;			/* answers: DECLARE's as declared, RANK_JOIN's job */
	const uint32_t *ids;
};

struct msg_hello {
	uint32_t version_min, version_max;
	uint32_t kind;			/* enum node_kind */
	const char *name;		/* unique among nodes of its kind; shown to people */
	const char *machine;		/* machine id: same string, same machine */
	uint8_t instance[ID_BYTES];	/* random per process start */
	const char *secret;		/* join secret, "" for none */
	uint32_t naddrs;
	const struct msg_addr *addrs;	/* server: listening; agent: rails */
	const char *shm_path;		/* server: Unix socket for colocated agents, "" none */
	uint32_t engines;
	uint64_t adder_bytes_per_s;	/* server: measured at start, bytes read */
	uint64_t memory_bytes;		/* server: pool it may use */
	uint64_t epoch_seen;		/* highest epoch ever heard: it never goes back */
	uint8_t cluster[ID_BYTES];	/* of the last WELCOME; zeros: never had one */
	uint32_t node;			/* of the last WELCOME; a restarted scheduler keeps it */
	uint32_t draining;		/* server: 1: the last DRAIN it heard was no undo */
};

struct msg_welcome {
	uint32_t version;
	uint32_t node;			/* number, stable while the scheduler's state lives */
	uint8_t cluster[ID_BYTES];
	uint64_t epoch;
	uint32_t heartbeat_ms, lease_ms;
	uint8_t link_key[KEY_BYTES];	/* agent: what its data links present */
	uint32_t agent_grace_ms;	/* how long jobs wait for an agent that is gone */
};

struct msg_heartbeat {
	uint64_t seq;
	uint64_t bytes_sent, bytes_received, bytes_summed;	/* since start */
	uint64_t memory_used_bytes;
	uint64_t rounds;		/* finished: segments' (server), tensors' (agent) */
	uint64_t drops;			/* stale, duplicate, malformed: counted and dropped */
	uint32_t links;			/* data links up */
	const char *note;		/* "" or one line for `tally status` */
	uint64_t busy_us;		/* server: had something to sum or send, since start */
	uint64_t frames, writes;	/* that sockets took, and the calls for them, since start */
	uint32_t links_per_peer;	/* agent: to one engine of a server, the most */
	uint64_t flight_bytes;		/* may be under way on its NICs at once; 0: no bound */
	uint64_t cpu_us;		/* server: an engine ran or waited for a CPU, on average,
					 * since start; 0: not known */
	const char *cause;		/* "" or what is wrong on the network now, with a remedy; in
					 * the echo somebody else's, of the receiver's jobs */
};

/* What becomes of a job that loses a rank. */
enum on_loss { ON_LOSS_ERROR, ON_LOSS_SHRINK, ON_LOSS_END };

struct msg_rank_join {
	uint64_t req;
	const char *job;
	uint32_t world, rank;
	uint32_t pid, uid;
	uint32_t timeout_ms;
	uint32_t chunk_bytes;		/* wish; 0: the scheduler's choice */
	uint32_t on_loss;		/* enum on_loss */
	uint32_t back;			/* number of the job that it is in already: its agent was
					 * started again; 0: it joins */
};

struct msg_rank_leave {
	uint32_t job, rank;		/* job 0: text is its name, the rank was joining */
	int32_t code;			/* 0: detached; EWORKERLOST; else found by the agent */
	const char *text;
	uint32_t pid;			/* with job 0: as in its RANK_JOIN */
	uint64_t req;			/* of a detach that waits for a REPLY; 0: none does */
};

struct msg_machine {		/* one agent of a job; order = by lowest rank = worker index */
	uint32_t node;
	const char *name;
	const char *machine;
	uint64_t bits_per_s;
	uint8_t link_key[KEY_BYTES];	/* sent to servers only; zeros else, and where the agent
					 * is gone or not there yet: no news, and nobody's */
	uint32_t nranks;
	const uint32_t *ranks;		/* ascending */
	uint32_t engines;		/* data threads; 0: one */
};

struct msg_server {		/* order = placement index */
	uint32_t node;			/* 0: it is gone */
	const char *name;
	const char *machine;
	const char *shm_path;
	uint32_t engines;
	uint32_t weight;		/* parts of PLACE_WEIGHT_SUM */
	uint32_t naddrs;
	const struct msg_addr *addrs;
	uint8_t instance[ID_BYTES];	/* of its process */
};

struct msg_job_up {
	uint32_t job;			/* number; never reused while the scheduler's state lives */
	const char *name;
	uint32_t world;
	uint64_t epoch;			/* of the placement */
	uint32_t algorithm;		/* PLACE_ALGORITHM */
	uint32_t chunk_bytes, seg_bytes, window_bytes;
	uint32_t nmachines;
	const struct msg_machine *machines;
	uint32_t nservers;
	const struct msg_server *servers;
	uint64_t seq;			/* JOB_UP of a job that runs: the log up to here follows, as
					 * placed; JOB_HELD: the entry of its last EPOCH */
	uint32_t repair;		/* JOB_HELD, JOB_UP of a job that runs: of its last EPOCH */
	uint32_t on_loss;		/* enum on_loss */
	uint32_t ngone;			/* ranks that were lost, and the job goes on without; */
	const uint32_t *gone;		/* ascending */
	uint32_t grown;			/* as of EPOCH: these three */
	uint64_t grown_at;
	uint32_t njoined;
	const uint32_t *joined;
	uint64_t epoch_seq;		/* JOB_UP of a job that runs: that EPOCH's entry; 0: none */
	uint32_t nleft;			/* JOB_HELD, JOB_UP of a job that runs: ranks that have */
	const uint32_t *left;		/* detached, of any machine, ascending */
	uint32_t user;			/* whose it is, MSG_USER() of a uid; 0: not known */
};

/* The cluster's word for a user, whose jobs share what one user may have. */
#define MSG_USER(uid)		((uint32_t)(uid) + 1)
#define MSG_USER_UID(user)	((user) - 1)

/* A log entry that changes who sums what: the servers with their new weights. */
struct msg_epoch {
	uint32_t job;
	uint64_t seq, epoch;
	uint32_t repair;		/* 1: only what was lost moves */
	uint32_t nservers;
	const struct msg_server *servers;
	uint32_t nplaced;		/* 0: by place_epoch(); else where all chunks of the */
	const uint64_t *placed;		/* tensors that are there are by now, as in TENSORS */
	uint32_t ngone;			/* more than before: the world is a smaller one, */
	const uint32_t *gone;
	uint32_t grown;			/* so many lost ranks came back, ever; more than before: it
					 * is a larger one.  In both cases all chunks are placed
					 * anew, by their owners' epoch */
	uint64_t grown_at;		/* the barrier at which the last of them did, 0: none */
	uint32_t njoined;		/* who did then, ascending */
	const uint32_t *joined;
};

struct msg_drain {
	uint64_t req;
	const char *name;		/* of the server */
	uint32_t undo;			/* 1: use it again */
};

/* Of dead and refused nodes: what is there, or may come back, is not forgotten. */
struct msg_node_forget {
	uint64_t req;
	const char *name;
};

enum wait_kind {
	WAIT_NONE,			/* nothing, or nobody knows */
	WAIT_RANK,			/* who: a rank of the agent's own machine */
	WAIT_MACHINE,			/* who: index of an agent of the job */
	WAIT_SERVER,			/* who: its node number; it does not answer */
	WAIT_LINK,			/* the same; no link to it, or none that carries a push */
	WAIT_KIND_END
};

/* A round that waits, and for whom: a row each. */
struct msg_wait {
	uint32_t tensor, round;
	uint32_t chunk, chunks;		/* the first that waits, and how many do; LINK: 0, if none
					 * does, but could not go there either */
	uint32_t kind, who;		/* enum wait_kind */
	uint64_t age_ms;		/* since the round began on the agent's machine */
};

struct msg_stuck {
	uint32_t job;
	uint32_t nwaits;		/* replaces what it said before */
	const struct msg_wait *waits;
};

/* What the rounds of a job took at an agent, since that was started. */
struct msg_job_time {
	uint32_t job;
	uint64_t under_way_us;		/* some round was submitted and not over */
	uint64_t bytes;			/* of the rounds that are over */
};

struct msg_ready {
	uint32_t job;
	uint64_t seq;			/* TENSORS_READY: the log entry; else: the epoch */
	int32_t code;
	const char *text;
	uint64_t log;			/* JOB_READY, an agent's EPOCH_READY: last log entry that
					 * the sender has */
	uint64_t barrier;		/* an agent's: barriers that some rank of its has passed */
	uint32_t nrounds;		/* an agent's, while ranks come in, for machines that do */
	const uint64_t *rounds;		/* as well: tensor << 32 | its last round */
	uint64_t epoch;			/* JOB_READY: that it is at, by its log */
};

struct msg_heard {
	uint32_t node;			/* the agent's number */
};

/* Of the process that is that agent now. */
struct msg_agent_key {
	uint32_t node;
	uint8_t link_key[KEY_BYTES];
};

struct msg_agent_keys {
	uint32_t nkeys;
	const struct msg_agent_key *keys;
};

/* Of a job that the agent, which was started again, does not have. */
struct msg_rank_alive {
	uint32_t job;
	uint32_t rank;
};

struct msg_job_down {
	uint32_t job;
	int32_t code;			/* 0: all ranks detached */
	const char *text;
};

struct msg_tensor {
	uint32_t id;			/* 0 in DECLARE: not known yet; else 1.. */
	const char *name;
	uint32_t dtype;
	uint32_t ndims;
	const uint64_t *dims;		/* product = count */
	uint64_t count;
	int32_t priority;
	uint32_t round;			/* TENSORS for a machine that comes in: its last; else 0 */
	const char *meaning;		/* DECLARE: a list that ranks compare, or ""; else "" */
};

struct msg_declare {
	uint64_t req;
	uint32_t job, rank;
	uint32_t timeout_ms;
	uint32_t ntensors;
	const struct msg_tensor *tensors;
};

struct msg_tensors {
	uint32_t job;
	uint64_t seq;			/* log entry, 1, 2, 3, ... per job, no gaps */
	uint32_t ntensors;
	const struct msg_tensor *tensors;
	uint32_t nplaced;		/* 0: place them; else where their chunks are by now, */
	const uint64_t *placed;		/* in order: PLACED(epoch, server's index) of place.h */
};

struct msg_ids {
	uint64_t req;
	uint32_t job, rank;
	uint64_t seq;			/* FORGET: log entry */
	uint32_t timeout_ms;
	uint32_t nids;
	const uint32_t *ids;
};

struct msg_barrier {
	uint64_t req;
	uint32_t job, rank;
	uint32_t timeout_ms;
	uint64_t generation;		/* barriers of the job that the rank has passed, and 1 */
	uint32_t grow;			/* 1: who waits in the place of a lost rank comes in */
};

enum query_what { QUERY_NODES = 1, QUERY_JOBS = 2, QUERY_TENSORS = 4, QUERY_STUCK = 8 };

struct msg_query {
	uint64_t req;
	uint32_t what;			/* enum query_what, or-ed */
	const char *job;		/* "" all */
};

struct msg_node_row {
	uint32_t node, kind;
	const char *name, *machine, *addr, *state, *note;
	uint64_t bits_per_s, adder_bytes_per_s, memory_bytes;
	uint32_t rails, jobs;
	uint64_t heartbeat_age_ms;
	struct msg_heartbeat last;
	uint32_t pace;			/* server: percent of its share, where least; 0: all */
	uint64_t state_ms;		/* in that state for so long, */
	const char *why;		/* for that reason */
	const char *bypassed;		/* server that is up: jobs that train without it, and why;
					 * "" none does */
};

/* A node that may not register, or what claims to be one: a row for each address, name and code. */
struct msg_refused_row {
	uint32_t kind;			/* 0: it has not said */
	const char *name, *addr;	/* name "": it has not said */
	int32_t code;			/* of the last time, as its reason */
	const char *why;
	uint64_t count;
	uint64_t age_ms;		/* since the last time */
};

struct msg_job_row {
	uint32_t job;
	const char *name, *state, *waiting_for;	/* "ranks 2, 3", "" */
	uint32_t world, attached, machines, servers, tensors;
	uint64_t bytes, epoch, age_ms;
	double round_time_s;		/* predicted for all its tensors */
	double measured_time_s;		/* the same, as agents have measured it; 0: not known */
	uint32_t chunk_bytes, seg_bytes, window_bytes;	/* 0 until it begins */
};

struct msg_tensor_row {
	uint32_t job, id;
	const char *name, *state, *waiting_for;
	uint32_t dtype;
	uint64_t count;
	int32_t priority;
	uint32_t chunks;
};

/* A round that waits, as all agents together know it. */
struct msg_stuck_row {
	uint32_t job;
	const char *tensor;
	uint32_t round, chunk, chunks;
	uint32_t kind;			/* enum wait_kind: WAIT_MACHINE or WAIT_SERVER */
	uint32_t nranks;
	const uint32_t *ranks;		/* WAIT_MACHINE: that are missing */
	const char *name;		/* of the ranks' agent, or of the server */
	const char *machine;		/* its machine id */
	uint64_t age_ms;
	uint64_t silent_ms;		/* the node has missed heartbeats since; 0: it has not */
};

struct msg_report {
	uint64_t req;
	uint8_t cluster[ID_BYTES];
	uint64_t epoch, uptime_ms;
	const char *state, *version;	/* "active", "recovering" */
	uint32_t nnodes, njobs, ntensors, nstuck, nrefused;
	const struct msg_node_row *nodes;
	const struct msg_job_row *jobs;
	const struct msg_tensor_row *tensors;
	const struct msg_stuck_row *stuck;
	const struct msg_refused_row *refused;	/* with the nodes; the last one first */
};

struct msg_attach {
	uint64_t req;
	uint32_t version;
	const char *job;
	uint32_t world, rank;
	uint32_t timeout_ms;
	uint32_t chunk_bytes;
	uint32_t on_loss;		/* enum on_loss */
	uint32_t back;			/* number of the job that it is in already: its agent was
					 * started again, and it has handed back what it has
					 * (SLAB, DECLARED); 0: it joins */
	uint64_t barriers;		/* back: that it has passed */
};

struct msg_attached {
	uint64_t req;
	uint32_t job, world, rank, local_rank, local_size, machines;
	uint32_t chunk_bytes;
	const char *agent;		/* its name */
	uint64_t barrier;		/* that the rank counts as having passed; 0: none yet */
	uint32_t grace_ms;		/* when the agent is gone, try so long to come back */
	uint32_t devices;		/* 1: it takes dma-bufs (SLAB of kind DEVICE) */
};

/* RING: handed back alone.  DEVICE: a dma-buf, which the process gives, and hands back. */
enum slab_kind { SLAB_NONE, SLAB_INPUT, SLAB_RESULT, SLAB_RING, SLAB_DEVICE, SLAB_OLD };

struct msg_slab {
	uint64_t req;
	uint32_t id;			/* per process and kind */
	uint32_t kind;			/* enum slab_kind */
	uint64_t bytes;
	uint32_t small;			/* SLAB_WANT: 1: not of huge pages */
};

struct msg_declared_tensor {
	uint32_t id;
	uint32_t slab;			/* of kind RESULT */
	uint64_t off[2];		/* result of an even round, of an odd round */
	uint32_t round;			/* the last one that is over, or, handed back, that the
					 * process has had; 0: none */
	uint32_t flies;			/* handed back: 1: the round behind that is in flight, */
	uint32_t was;			/* for whose result a GPU waits at the same place of the
					 * OLD slab was - 1; 0: none does */
};

struct msg_declared {
	uint64_t req;
	int32_t code;
	const char *text;
	uint32_t ntensors;
	const struct msg_declared_tensor *tensors;
};

/* Answered when every local rank has sent one. */
struct msg_gpu_join {
	uint64_t req;
	const char *gpu;		/* its PCI address, or its name in the agent's topology */
	uint32_t exact;			/* 1: sums in rank order, so every GPU is a group */
	uint32_t timeout_ms;
	uint32_t nids;			/* GPU_ID_WORDS */
	const uint64_t *ids;		/* for the group, if this rank is its first member */
};

/*
 * The group's chunks go to its roots by turns (turn_of()): root i gets those up to
 * weights[i], of TURN_SUM.
 */
struct msg_gpu_plan {
	uint64_t req;
	uint32_t group, groups;		/* groups in the order of their lowest ranks */
	uint32_t me;			/* index in members */
	uint32_t nmembers;
	const uint32_t *members;	/* ranks, as GPUs reduce along the ring */
	uint32_t nroots;
	const uint32_t *roots;		/* indices in members, ascending */
	uint32_t nweights;		/* nroots */
	const uint32_t *weights;	/* ascending, the last is TURN_SUM */
	uint32_t scatter;		/* 1: all are roots with equal shares: reduce-scatter */
	uint32_t nids;
	const uint64_t *ids;		/* members[0]'s */
	const char *why;		/* one line for people */
};

struct msg {
	enum msg_type type;
	union {
		struct msg_reply reply;
		struct msg_hello hello;
		struct msg_welcome welcome;
		struct msg_heartbeat heartbeat;
		struct msg_rank_join rank_join;
		struct msg_rank_leave rank_leave;
		struct msg_job_up job_up;	/* JOB_UP, JOB_HELD */
		struct msg_ready ready;		/* JOB_READY, TENSORS_READY */
		struct msg_job_down job_down;
		struct msg_heard heard;
		struct msg_rank_alive rank_alive;
		struct msg_agent_keys agent_keys;
		struct msg_declare declare;
		struct msg_tensors tensors;	/* TENSORS, TENSORS_HELD */
		struct msg_ids ids;		/* UNDECLARE, FORGET */
		struct msg_barrier barrier;
		struct msg_query query;
		struct msg_report report;
		struct msg_attach attach;
		struct msg_attached attached;
		struct msg_slab slab;		/* SLAB_WANT, SLAB, SLAB_MAPPED */
		struct msg_declared declared;
		struct msg_epoch epoch;
		struct msg_drain drain;
		struct msg_node_forget node_forget;
		struct msg_stuck stuck;
		struct msg_job_time job_time;
		struct msg_gpu_join gpu_join;
		struct msg_gpu_plan gpu_plan;
	};
};

struct msg_mem {
	uint8_t *base;			/* borrowed */
	size_t size, used;
};

/* "agent", "server"; "unknown": another enum node_kind. */
const char *msg_kind_name(uint32_t kind);

/* "REPLY"; "?": no such type. */
const char *msg_type_name(uint32_t type);

/* Reads a prefix: 0 with both outputs set, EPROTO (too long, no such type), EVERSION. */
int msg_prefix_decode(const uint8_t prefix[MSG_PREFIX_BYTES], uint32_t *body_bytes,
		      uint32_t *type, struct err *e);

/* Bytes of msg_mem for a body: 4 KiB, and 80 per byte or 24 MiB + the body, what is less. */
size_t msg_mem_need(uint32_t body_bytes);

int msg_decode(uint32_t type, const uint8_t *body, uint32_t body_bytes, struct msg_mem *mem,
	       struct msg *m, struct err *e);

/*
 * Bytes of prefix and body; then writes exactly that many.  EINVAL: m breaks its
 * own rules, or its body is above CTL_MSG_BYTES_MAX.
 */
int msg_encode_size(const struct msg *m, uint32_t *bytes, struct err *e);
int msg_encode(const struct msg *m, uint8_t *out, uint32_t bytes, struct err *e);

#endif
