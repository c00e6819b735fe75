/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - every bound of Tally has its name here.
 *
 * A limit is a promise to the operator (memory, time) or to a peer (what will
 * be accepted).  Relations between limits are asserted at compile time at the
 * end of the file.  Sizes are in bytes, times in milliseconds unless the name
 * says otherwise.
 */
#ifndef TALLY_BASE_LIMITS_H
#define TALLY_BASE_LIMITS_H

#include <assert.h>

/* memory geometry */
#define PAGE_BYTES		4096u
#define CHUNK_BYTES_MIN		(16u << 10)	/* unit of placement */
#define CHUNK_BYTES_DEFAULT	(512u << 10)	/* less on slow cards: place_sizes() */
#define CHUNK_BYTES_MAX		(4u << 20)
#define SEG_BYTES_MIN		(16u << 10)	/* unit of travel and of summing */
#define SEG_BYTES_MAX		CHUNK_BYTES_MAX
#define WINDOW_BYTES_MAX	(16u << 20)	/* credit per (job, agent, server) */
#define WINDOW_BYTES_MIN	CHUNK_BYTES_MAX
/* Of a server: the smallest windows of two machines in the quarter that windows may take. */
#define SERVER_MEMORY_MIN	(8u * WINDOW_BYTES_MIN)
#define SERVER_MEMORY_MAX	(1ull << 50)
#define SERVER_OWN_BYTES	(64u << 20)	/* a server's, besides its share and windows */
#define MEMORY_KEPT_MAX		(512ull << 20)	/* or a 32nd of the machine's: left for others */
#define SLAB_BYTES_MAX		(1ull << 40)
#define SLABS_PER_PROCESS_MAX	64u		/* arena slabs of one training process */
#define RESULT_SLABS_MAX	1024u		/* of a job on one machine */
#define SLAB_AHEAD_BYTES	(256u << 20)	/* or an eighth of a job's: slab_ahead_max() */
#define SLABS_PER_LINK_MAX	8192u		/* slabs an agent shows its colocated server */

/* cluster */
#define NODES_MAX		4096u
#define JOBS_MAX		256u
#define AGENTS_PER_JOB_MAX	1024u		/* machines of one job */
#define SERVERS_PER_JOB_MAX	2048u		/* colocated ones counted */
#define WORLD_SIZE_MAX		16384u
#define LOCAL_RANKS_MAX		64u		/* processes of one job on one machine */
#define RAILS_MAX		8u		/* cards of one machine */
#define NIC_BITS_MIN		1000000ull	/* of a rate that somebody says: less, or more */
#define NIC_BITS_MAX		10000000000000ull	/* is another unit than was meant */
#define CARD_BITS_UNKNOWN	10000000000ull	/* a card that does not say, bits/s */
#define ENGINES_MAX		16u		/* data threads of one daemon */
#define LINKS_PER_RAIL_MAX	8u
#define FRAMES_PER_WRITE_MAX	64u

/* inside a machine: what a local plan can speak of */
#define TOPO_GPUS_MAX		LOCAL_RANKS_MAX
#define TOPO_CARDS_MAX		32u
#define TOPO_SWITCHES_MAX	128u		/* nested ones counted */
#define TOPO_NODES_MAX		32u		/* NUMA nodes that have CPUs */
#define TOPO_NAME_MAX		63u

/* tensors */
#define TENSORS_PER_JOB_MAX	65536u
#define ROUND_MAX		0xfffffffeu	/* of a tensor, 2^32 - 2; then comes 1 */
#define TENSORS_PER_BATCH_MAX	16384u
#define TENSOR_BYTES_MAX	(64ull << 30)
#define PLACED_MAX		(1u << 20)	/* chunks of a log entry, for a latecomer */
#define CHUNKS_PER_JOB_MAX	(1u << 21)	/* an epoch says all of them to one */
#define DIMS_MAX		8u
#define MEANING_LEN_MAX		16384u	/* what a tensor stands for, as text */
#define MEANING_BYTES_MAX	(64u << 20)	/* of a job's tensors that wait for ranks */

/* text */
#define NAME_LEN_MAX		255u		/* nodes, jobs, tensors; without the NUL */
#define ERR_TEXT_MAX		480u
#define ADDR_LEN_MAX		107u		/* host:port, or a Unix socket path */

/* control messages */
#define CTL_MSG_BYTES_MAX	(16u << 20)
#define CTL_QUEUE_BYTES_MAX	(64u << 20)	/* unsent bytes before a slow peer is cut */
#define CTL_CONNS_MAX		8192u
/* Unsent before no more is read of one who asks and is answered; a bit more for what was read. */
#define CTL_ROOM_BYTES		(1u << 20)
#define STRANGER_ROOM_BYTES	(16u << 10)	/* of one that has not said who it is */

/* nodes that a scheduler refused, as it shows them: half of the rows are for those that know the
 * cluster's secret */
#define REFUSED_MAX		64u

/* connections of a listener that have not said who they are; the oldest makes room for one more */
#define STRANGERS_MAX		1024u
#define STRANGER_BYTES_MAX	(256u << 10)	/* in a message: of rows handed back, say */

/* rings of a training process */
#define RING_ENTRIES		4096u		/* a power of two */

/* times */
#define HEARTBEAT_MS		1000u
#define LEASE_MS		3000u
#define JOIN_RETRY_MS		5000u		/* a server that did not take a job: ask again */
#define NODE_SHOWN_MS		3600000u	/* a node that is dead, or was refused */
#define RECONNECT_GRACE_MS	500u		/* closed control connection: dead after this */
#define LINK_PING_MS		1000u		/* nothing received on a data link: ask */
#define LINK_DEAD_MS		3000u		/* still nothing: the link is closed */
#define HANDSHAKE_MS		5000u
#define NEXT_ADDR_MS		1000u		/* no answer from one of a name: try the next one */
#define CTL_STALL_MS		5000u		/* answers wait, none is taken, more is asked */
#define ATTACH_TIMEOUT_MS	60000u		/* default: wait for the other ranks */
#define WAIT_TIMEOUT_MS		600000u		/* default: wait for a round */
#define STALL_WARN_MS		10000u
#define STUCK_MS		500u		/* a round that waits so long is told of */
#define STUCK_ROWS_MAX		256u		/* of one job, that one agent tells of */
#define STUCK_REPORT_MAX	1024u		/* of all jobs, in one answer */
#define PROBE_MIN_MS		200u		/* ask after a pushed segment without a result */
#define PROBE_MAX_MS		2000u
#define OFFER_AFTER_MS		20u		/* a full window without progress for this long */

static_assert(SEG_BYTES_MIN % PAGE_BYTES == 0, "segments are page aligned");
static_assert(CHUNK_BYTES_MIN % SEG_BYTES_MIN == 0, "chunks hold whole segments");
static_assert(CHUNK_BYTES_MAX % CHUNK_BYTES_MIN == 0, "chunk sizes nest");
static_assert(TENSOR_BYTES_MAX / CHUNK_BYTES_DEFAULT <= PLACED_MAX,
	      "any tensor is an entry, but of small chunks");
static_assert(CHUNKS_PER_JOB_MAX * 7ull + (2u << 20) <= CTL_MSG_BYTES_MAX,
	      "a message says where all chunks are, and all servers");
static_assert(ROUND_MAX % 2 == 0, "odd and even rounds take turns, where they begin anew, too");
static_assert(WINDOW_BYTES_MIN >= SEG_BYTES_MAX, "a window takes any segment");
static_assert((RING_ENTRIES & (RING_ENTRIES - 1)) == 0, "ring size is a power of two");
/* Else it and its agent might wait for each other: it says of each slab that it has mapped it. */
static_assert(CTL_ROOM_BYTES >= TENSORS_PER_BATCH_MAX * 32 + RESULT_SLABS_MAX * 256,
	      "all that a process is told for one question finds room");
static_assert(STRANGER_ROOM_BYTES <= CTL_ROOM_BYTES, "who is known may ask more");
static_assert(STRANGERS_MAX < CTL_CONNS_MAX - NODES_MAX, "nodes find room beside a crowd");
static_assert(LEASE_MS >= 3 * HEARTBEAT_MS, "a lease survives two lost heartbeats");
static_assert(LINK_DEAD_MS >= 2 * LINK_PING_MS, "a ping has time to be answered");
static_assert(WORLD_SIZE_MAX <= AGENTS_PER_JOB_MAX * LOCAL_RANKS_MAX, "ranks fit");

#endif
