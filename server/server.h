/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h - the shell around the server's core: who owns what.
 *
 *   control thread (loop): scheduler connection, listeners, hello of new links,
 *	jobs and tensors as declared (struct sv_job, sv_tensor), all memory.
 *   engine e: its srv_core, links and peers, and what hangs below sv_piece[e].
 *
 * They speak by mail; a pointer in a mail belongs to the receiver until it sends
 * it back (SV_*_READY, SV_*_FREE).  Memory is mapped when a job comes up
 * (windows) and when tensors are declared (result slots); never per message.
 */
#ifndef TALLY_SERVER_H
#define TALLY_SERVER_H

#include "common/base/idtab.h"
#include "common/base/pagemap.h"
#include "common/base/trouble.h"
#include "common/ctl/ctl.h"
#include "common/net/xport.h"
#include "common/place/place.h"
#include "common/rt/daemon.h"
#include "common/rt/outbox.h"
#include "server/server_core.h"

#define SV_LISTEN_MAX	RAILS_MAX

struct sv_options {
	struct daemon_options daemon;	/* first */
	const char *shm_socket, *port_file;
	struct opt_list listen;
	uint64_t memory_bytes;
	bool no_rdma;
};

/* One engine's part of a job or tensor. */
struct sv_job_piece {
	void *mem;			/* srv_job_size() */
	struct srv_job *core;		/* the engine's */
	struct list link;		/* in engine->stopping */
};

/* A job's results, or a part of them; results are given out of it page by page. */
struct sv_slots {
	struct list link;		/* in job->slots */
	struct sv_job *job;
	uint8_t *base;			/* mapped */
	uint64_t bytes;
	struct xport_region *region;	/* NULL: cards do not know it */
	uint32_t lent[ENGINES_MAX];	/* the engine's: tensors that it has here */
	struct pagemap pages;
	uint64_t words[];
};

struct sv_place {
	struct sv_slots *in;		/* NULL: none */
	uint32_t page, npages;
};

static inline uint8_t *sv_place_at(const struct sv_place *p)
{
	return p->in ? p->in->base + (size_t)p->page * PAGE_BYTES : NULL;
}

struct sv_job {
	struct list link;		/* in server->jobs */
	uint32_t id, n, me, world, nservers, nengines;
	uint32_t agent_engines;		/* of the agent that has the most */
	uint32_t user;			/* whose: MSG_USER(); 0: not known */
	uint64_t epoch;			/* that it came up with here */
	uint64_t epoch_seq;		/* log entry of the last one; 0: none */
	uint32_t chunk_bytes, seg_bytes;
	uint64_t window_bytes;		/* per worker and engine */
	uint64_t part_bytes;		/* the least that one engine of an agent has of it */
	uint64_t seq;			/* last log entry taken in */
	uint64_t forget_seq;		/* the last FORGET's, and the oldest entry that it took */
	uint64_t forget_from;		/* something of; see log_cut() */
	uint64_t told;			/* up to here the log was told afterwards, with gaps */
	uint64_t refused;		/* the last entry, with that tensor in it, if that is not */
	uint32_t refused_id;		/* forgotten; else 0: there is none */
	uint32_t ready_type;		/* the last READY of an entry: enum msg_type, 0: none yet */
	uint64_t ready_seq;
	struct err ready_err;		/* with a code: that entry was refused */
	struct place *place;
	struct list tensors;		/* log order */
	struct idtab ids;		/* the same, by id */
	struct list batches;		/* sv_batch.in_job: with the engines */
	struct {
		uint32_t node, engines;
	} *worker;			/* n */
	uint8_t *windows;		/* n * nengines * window_bytes, mapped */
	size_t windows_bytes;
	struct xport_region *windows_region;	/* NULL: cards do not know them */
	struct list slots;		/* sv_slots.link */
	uint32_t starting;		/* engines that do not have it yet */
	uint32_t engines_left;		/* that have not let go of it yet */
	bool stopping;
	uint32_t *machine_of;		/* of each rank; owned */
	uint32_t ngone, grown;		/* ranks that the job goes on without; that came back; */
	bool *lost;			/* n: machines of which none is left; owned */
	struct sv_job_piece piece[ENGINES_MAX];
};

struct sv_tensor_piece {
	void *mem;
	uint64_t slot_bytes;
	struct sv_place place;		/* of slot_bytes; none if 0 */
	struct srv_tensor_desc desc;
	struct srv_tensor *core;	/* the engine's; NULL: forgotten */
};

/* The chunks that one epoch gave us; the first part: what the tensor began with. */
struct sv_part {
	struct list link;		/* in tensor->parts */
	struct sv_tensor *tensor;
	uint32_t epoch;
	uint32_t nchunks;		/* ours */
	bool *mine, *leaving;		/* per chunk: ours, going; owned */
	uint32_t batches;		/* it is in, with the engines */
	bool dropped;			/* to be freed when it is in none */
	struct sv_tensor_piece piece[];	/* nengines */
};

struct sv_tensor {
	struct list link;		/* in job->tensors */
	struct id_node by_id;
	struct sv_job *job;
	uint32_t id;
	uint32_t dtype;
	uint64_t seq;			/* its log entry */
	struct place_tensor placed;
	struct list parts;		/* sv_part.link, by epoch */
};

enum sv_batch_kind {
	BATCH_ADD,			/* the tensors of a log entry */
	BATCH_EPOCH,			/* what an epoch brings, and what leaves by it */
	BATCH_LEFT,			/* all agents have gone over: what leaves is gone */
	BATCH_FORGET,			/* tensors that are no more */
};

/* Parts on their way through the engines. */
struct sv_batch {
	struct list in_job;		/* in job->batches */
	struct sv_job *job;
	enum sv_batch_kind kind;
	uint64_t seq;			/* what READY says: log entry, or epoch */
	uint32_t engines_left;
	struct list link[ENGINES_MAX];	/* in engine->forgetting */
	uint32_t n;
	struct sv_part **part;		/* owned */
	bool **leaving;			/* EPOCH: chunks that part i loses; NULL: new; owned */
	bool *lost;			/* EPOCH, another world: machines not in it; owned */
	uint32_t world;			/* its ranks */
};

enum sv_mail {
	SV_OPEN,		/* the first: set up what belongs to the thread */
	SV_ADOPT,		/* control -> engine: struct sv_adopt */
	SV_CUT,			/* links that are there, as none of them is for us any more */
	SV_CUT_AGENT,		/* uint32_t: that agent's, whose process is another one now */
	SV_HEARD,		/* uint32_t, an agent's number, and back if it is heard */
	SV_JOB_START,		/* struct sv_job *, and back as SV_JOB_READY */
	SV_JOB_STOP,		/* struct sv_job *, and back as SV_JOB_FREE */
	SV_BATCH,		/* struct sv_batch *, and back as SV_BATCH_READY */
	SV_JOB_READY,
	SV_JOB_FREE,
	SV_BATCH_READY,
	SV_NET,			/* engine -> control: struct trouble_news *, the receiver's */
};

struct sv_adopt {
	int fd;
	struct frame hello;
};

struct sv_engine {
	struct server *server;
	uint32_t index;
	struct engine *thread;
	struct xport_group *group;
	struct srv_core core;
	struct list stopping;		/* sv_job_piece.link */
	struct list forgetting;		/* sv_batch.link[index] */
	struct list waiting;		/* sv_waiting.link */
	uint32_t nretired;		/* slabs in peers' retired */
	mono_t next_sweep;		/* a look at whether they may go */
	uint64_t bytes_sent, bytes_received;
	uint64_t flight_limit;		/* this engine's part of the cards' */
	struct outbox out;		/* to the control thread */
	bool was_busy;			/* at the end of the turn before */
	mono_t turned;			/* what came before is counted */
	mono_t next_look;		/* at links that carry nothing */
	struct ctl_stats stats;
};

struct sv_agent {			/* may open links: named by a job */
	struct list link;
	uint32_t node, jobs;
	uint8_t key[KEY_BYTES];		/* of its process; zeros: nobody's */
	char name[NAME_LEN_MAX + 1];
	mono_t wrong, wrong_since;	/* another one was presented: last, and first of a series */
};

struct server {
	struct daemon daemon;
	struct sv_options opt;
	const char *name;		/* the daemon's, as loop, mail and nengines */
	struct loop *loop;
	struct ctl_node *node;
	struct mailbox *mail;
	struct listener *listener[SV_LISTEN_MAX + 1];
	uint32_t nlisteners;
	struct msg_addr addr[SV_LISTEN_MAX];
	char addr_text[SV_LISTEN_MAX][ADDR_LEN_MAX + 1];
	uint32_t naddrs;
	char shm_path[ADDR_LEN_MAX + 1];
	uint64_t adder_bytes_per_s, memory_bytes, memory_used;
	struct list jobs, agents;
	struct list greetings;		/* the oldest first */
	uint32_t ngreetings;
	mono_t crowd_told;		/* when that was in the log last */
	mono_t key_told;		/* and unknown agents, wrong keys; 0: never */
	uint32_t nengines, my_node;
	uint8_t cluster[ID_BYTES];	/* of the last WELCOME; zeros: none yet */
	char note[320];			/* in heartbeats */
	struct trouble trouble;		/* with agents, on the network */
	struct loop_timer *tick, *leave_by;
	struct sv_engine *engine[ENGINES_MAX];
};

/* server_adder.c: what the engines on these CPUs (-1: any) sum together, > 0 */
#define SV_ADDER_EACH_MIN	(20u << 20)	/* of each one's memory, where there is enough */
#define SV_ADDER_EACH_LEAST	(2u << 20)
int sv_adder_measure(uint32_t engines, const int *cpus, mono_t (*now)(void),
		     uint64_t *bytes_per_s, struct err *e);
/* In s->note and the log: it sums less than its NICs bring, if that is so. */
void sv_adder_warn(struct server *s);

/* server_io.c: the scheduler's side */
int sv_io_start(struct server *s, struct err *e);
void sv_io_stop(struct server *s);
bool sv_leave(void *owner);	/* a signal to end: true: it has jobs that go to others first */
void sv_on_mail(void *owner, const struct mail *m);

/* server_job.c, server_tensor.c: jobs' memory, and what the engines get of it */
int sv_job_up(struct server *s, const struct msg_job_up *m, struct err *e);
int sv_tensors(struct server *s, const struct msg_tensors *m, struct err *e);
int sv_epoch(struct server *s, const struct msg_epoch *m, struct err *e);
void sv_epoch_settled(struct server *s, const struct msg_ready *m);
int sv_forget(struct server *s, const struct msg_ids *m, struct err *e);
void sv_job_down(struct server *s, uint32_t id);
/* These ranks are gone; 0 or TALLY_ENOMEM. */
int sv_job_shrink(struct sv_job *j, const uint32_t *gone, uint32_t ngone);
struct sv_job *sv_job_find(struct server *s, uint32_t id);
void sv_job_free(struct server *s, struct sv_job *j);	/* the engines have let go */
void sv_batch_free(struct server *s, struct sv_batch *b);	/* engines are through with it */
void sv_tensors_free(struct server *s, struct sv_job *j);
int sv_check_room(const struct server *s, uint64_t bytes, const char *what, struct err *e);

/* server_mem.c: windows and results */
int sv_windows_map(struct server *s, struct sv_job *j, struct err *e);	/* ENOMEM */
void sv_windows_unmap(struct server *s, struct sv_job *j);
/* Whether so much more fits, in what is free in the job's slabs and beside them. */
int sv_slots_check(const struct server *s, const struct sv_job *j, uint64_t bytes, struct err *e);
/* `bytes` (whole pages) of results; batch_bytes: what the batch still needs, with these.
 * beyond: also of more memory than --memory. */
int sv_slots_get(struct server *s, struct sv_job *j, uint64_t bytes, uint64_t batch_bytes,
		 bool beyond, struct sv_place *out, struct err *e);
void sv_slots_put(struct server *s, struct sv_place *p);	/* harmless on none */
void sv_slots_free(struct server *s, struct sv_job *j);	/* the engines have let go of the job */

/* server_listen.c: new links up to their hello */
int sv_listen_start(struct server *s, struct err *e);
void sv_listen_stop(struct server *s);
int sv_agents_add(struct server *s, const struct msg_job_up *m, struct err *e);
void sv_agents_del(struct server *s, const struct sv_job *j);
void sv_agents_keys(struct server *s, const struct msg_agent_keys *m);

/* "a0", or "node 3" of one whose jobs are over. */
void sv_agent_name(const struct server *s, uint32_t node, char *buf, size_t len);

/* server_net.c: trouble on the network, on the control thread */
void sv_net_take(struct server *s, struct trouble_news *n);	/* with the peer's name; freed */
void sv_net_fill(struct server *s, struct msg_heartbeat *hb);	/* note and cause */

/* server_stats.c */
void sv_stats_turn(struct sv_engine *en, mono_t now);

/* server_engine.c: one data thread */
/* An engine's part of what all cards together may have under way; UINT64_MAX: no bound. */
uint64_t sv_card_flight(const struct server *s);
int sv_engine_start(struct server *s, uint32_t index, int cpu, struct err *e);
void sv_engine_stop(struct sv_engine *en);
/* Waits for room in the mailbox, which the engine empties at each turn. */
void sv_engine_tell(struct sv_engine *en, enum sv_mail type, const void *body, size_t len);

#endif
