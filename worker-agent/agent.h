/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h - the shell around the agent's cores: who owns what.
 *
 *   control thread (loop): scheduler connection, processes' Unix sockets
 *	(ad_session), jobs and tensors as declared (ad_job, ad_tensor), all memory
 *	and its descriptors (ad_slab).
 *   engine e: its ag_core, links and peers; engine 0 also the front and the
 *	processes' rings (ad_ring).
 *
 * They speak by mail.  A pointer in a mail belongs to the receiver until it sends
 * it back; everything that processes may refer to (a ring's slab, a tensor) is
 * sent back before the process is told of it, so that no descriptor can come
 * before what it names.
 */
#ifndef TALLY_AGENT_H
#define TALLY_AGENT_H

#include "common/base/idtab.h"
#include "common/ctl/ctl.h"
#include "common/net/xport.h"
#include "common/place/place.h"
#include "common/rt/daemon.h"
#include "common/rt/outbox.h"
#include "common/shm/ring.h"
#include "common/shm/slab.h"
#include "worker-agent/agent_core.h"
#include "worker-agent/agent_front.h"

#define AD_SESSIONS_MAX	1024u		/* processes; of one user half of what others leave */
#define AD_REQS_MAX	64u		/* questions of one process at the scheduler */
#define AD_NAME_MAX	64u		/* of a memfd */

struct ad_options {
	struct daemon_options daemon;	/* first */
	const char *socket;
	struct opt_list rails;
	uint64_t links;			/* 0: ad_tcp_links() */
	bool no_shm, no_rdma, dma_buf;
	const char *topology;
};

/* ---- memory ---- */

/* A slab that colocated servers see under `id`, whatever it is for. */
struct ad_slab {
	struct list link;		/* in its owner's list */
	struct slab mem;
	int read_fd;			/* owned: for who only reads it; -1: there is none */
	struct xport_region *region;	/* NULL: cards do not know it */
	uint32_t id;			/* index in agent->slab */
	uint32_t job;
	uint32_t index;			/* what its process calls it */
	uint64_t owner;			/* ad_session.serial; 0: the agent itself */
	uint32_t local;			/* and its process's index in the job */
	uint32_t uid;			/* an arena's: whose */
	uint32_t hiding;		/* engines that may use it still, and will say when not */
	struct pagemap pages;		/* results and sums: what is given out */
	uint32_t backed;		/* of these, so many were, some time: they have memory */
	uint64_t *words, *had;		/* had: which; in no order where results came back */
	uint64_t *marks;		/* results: the last pages of mem, a word for each page of
					 * it: the mark of the segment that begins there */
};

/* ---- jobs ---- */

struct ad_server {			/* of one epoch, in placement order */
	uint32_t weight;		/* of its share in the plan; 0: it sums nothing */
	uint32_t node;			/* 0: it is gone */
	uint32_t engines, route;	/* route: of its engine 0; the others follow */
	uint8_t instance[ID_BYTES];	/* of its process */
	char name[NAME_LEN_MAX + 1];
	char shm_path[ADDR_LEN_MAX + 1];
	bool local;			/* on this machine */
	uint32_t naddrs;
	struct {
		char host[ADDR_LEN_MAX + 1];
		uint16_t port;
		uint64_t bits_per_s;
	} addr[RAILS_MAX];
};

struct ad_machine {
	char name[NAME_LEN_MAX + 1];
	uint32_t nranks;
	uint32_t *ranks;
};

struct ad_entry {			/* of the log, as it came: for a new scheduler */
	struct list link;
	uint32_t tensors;		/* that are not forgotten */
	uint8_t wire[];
};

struct ad_left {			/* a local rank that is gone */
	bool gone;
	int code;			/* 0: it detached */
	uint32_t pid;			/* 0: not known: the process is in another PID namespace */
	bool joining;			/* it went before it was in */
	const char *why;		/* static; NULL: its process has ended */
	uint64_t req;			/* the scheduler's answer goes there; 0: nobody waits */
};

/* An engine's way to an engine of a server, for one job. */
struct ad_route {
	struct list link;		/* in ad_epoch.blocks, then in job->routes */
	uint32_t node, server_engine;
	struct ag_peer *peer;		/* NULL: n = 1 */
	uint64_t window_bytes;
	struct ag_route *core;		/* behind this struct */
};

/* A chunk's way from an epoch on, for all chunks of one tensor. */
struct ad_move {
	struct ad_tensor *tensor;
	uint32_t *route, *since;	/* owned */
};

/*
 * One epoch of a job's placement: made by the control thread, adopted by each engine
 * in its turn; the control thread frees it when all engines have adopted a later one.
 */
struct ad_epoch {
	struct ad_job *job;
	uint64_t epoch;
	uint32_t nservers, nroutes;
	struct ad_server *servers;
	uint32_t engines_left;		/* that have not adopted it */
	struct ad_epoch *before;	/* freed then */
	struct ag_route **route[ENGINES_MAX];	/* by number; NULL: the engines do not meet */
	struct list blocks[ENGINES_MAX];	/* ad_route.link: memory for new ones, by number */
	struct list spare[ENGINES_MAX];	/* ad_peers for new links */
	uint32_t nmoves;
	struct ad_move *move;
	bool anew;			/* the world is another one from here on */
	uint32_t grown;			/* as of MSG_EPOCH */
	uint32_t ngone, *gone;		/* owned: ranks that are not in it, ascending */
	uint64_t live;			/* this machine's that are: bits */
};

enum ad_job_state { JOB_STARTING, JOB_RUNNING, JOB_STOPPING };

struct ad_job {
	struct list link;		/* in agent->jobs */
	struct agent *agent;
	enum ad_job_state state;
	uint32_t id, world, n, me, nlocal;
	uint32_t user;			/* whose: MSG_USER(); 0: not known */
	uint32_t engines;		/* that have chunks of it: the first so many */
	uint64_t told;			/* log entry up to which it was told again */
	bool taking;			/* just now: entries may be left out */
	uint32_t nkept;
	struct ad_kept *kept;		/* owned, by id: where results were; agent_back.c */
	struct list was;		/* ad_was.link: memory where GPUs wait for results */
	_Atomic uint32_t was_left;	/* rounds for which they do */
	uint64_t seq, epoch_seq;	/* epoch_seq: log entry of the last epoch; 0: none yet */
	uint64_t barriers;		/* that some rank here has passed */
	uint8_t *epoch_wire;		/* that entry, for a new scheduler */
	uint64_t told_settled;		/* epoch */
	uint64_t told_bytes;		/* by the last JOB_TIME */
	bool shrink;			/* it goes on without the ranks that it loses */
	uint32_t ngone;			/* so many by now */
	uint32_t grown;			/* so many have come back; the last of them, */
	uint64_t grown_at;		/* at this barrier */
	uint64_t live;			/* local ranks that it has: bits */
	bool adopting;			/* engines are on their way into another world: */
	uint32_t nlater;
	struct list later;		/* ad_entry: log entries that wait for that, or for all
					 * engines to have the job */
	uint32_t chunk_bytes, seg_bytes;
	uint64_t window_bytes;
	uint32_t node;			/* our number, as the servers of this job know it */
	uint8_t link_key[KEY_BYTES];	/* and its key */
	char name[NAME_LEN_MAX + 1];
	struct place *place;
	struct ad_epoch *epoch;		/* the newest */
	struct ad_machine *machines;
	struct list log;		/* ad_entry: JOB_UP first */
	struct ad_left left[LOCAL_RANKS_MAX];
	struct list tensors;		/* ad_tensor.link, log order */
	struct idtab ids;		/* the same, by id */
	struct list results, sums;	/* ad_slab.link */
	struct list inputs;		/* ad_slab.link: of processes that are gone too */
	struct list batches;		/* ad_batch.in_job: with the engines */
	int code;			/* why it ended, or cannot go on: said until it ends */
	char text[ERR_TEXT_MAX + 1];
	uint64_t *detached;		/* ranks that have: bits; owned */
	mono_t detached_at;		/* the last of them; 0: none has */
	uint32_t first_detached;	/* the first of them, which others may have followed */
	uint32_t starting;		/* engines that do not have it yet */
	uint32_t engines_left;		/* that have not let go of it yet */
	uint32_t writing;		/* engines that have not stopped it yet */
	bool freed;			/* all but this struct */
	struct ag_job piece[ENGINES_MAX];	/* memory for each engine's */
	struct ad_epoch *first;		/* that JOB_START begins with */
	struct ag_job *core[ENGINES_MAX];	/* the engines' */
	struct ad_epoch *view[ENGINES_MAX];	/* the engines': that they have adopted */
	struct list routes[ENGINES_MAX];	/* the engines': ad_route.link */
	uint64_t settled[ENGINES_MAX];	/* as the engines have said */
	uint64_t settled_told[ENGINES_MAX];	/* the engines': the last that they said */
	struct list stop_link[ENGINES_MAX];
	struct fr_job front;		/* engine 0's */
	struct ad_epoch *freezing[ENGINES_MAX];	/* the engines': no round ends until it is theirs */
	bool frozen_told[ENGINES_MAX];	/* the engines': engine 0 knows */
	uint32_t frozen;		/* engine 0's: engines that are */
	uint64_t *lost;			/* engine 0's: ranks, bits; owned */
	uint32_t grown_shown;		/* engine 0's */
	bool failing;			/* engine 0's: its ranks disagreed, and its rings are not
					 * read any more */
	bool stall_shown;		/* engine 0's: rings show what is waited for */
	mono_t stall_logged;		/* control thread's */
	bool stuck_said[ENGINES_MAX];	/* the engines': the last AD_STUCK was not empty */
	struct ad_stuck *stuck[ENGINES_MAX];	/* the last one, owned; NULL: none, or empty */
	struct ad_stuck *stuck_told;	/* what the scheduler knows, owned; NULL: nothing */
};

struct ad_tensor {
	struct list link;		/* in job->tensors */
	struct id_node by_id;
	struct ad_entry *entry;		/* of the log, that it came with */
	struct ad_job *job;
	uint32_t id, dtype;
	_Atomic bool ready;		/* all engines have it; engine 0 looks, too */
	bool again;			/* its round begins anew: engine 0's word, before AD_THAW */
	uint32_t round;			/* over when the world last became another one: the same */
	char name[NAME_LEN_MAX + 1];
	struct place_tensor placed;
	struct ad_slab *result, *sum;
	uint32_t result_page[2], sum_page, npages;
	struct ag_tensor_desc desc;	/* geometry and addresses, the same for all engines */
	uint8_t **was;			/* owned: the desc's */
	void *piece[ENGINES_MAX];
	struct ag_tensor *core[ENGINES_MAX];	/* the engines' */
	struct fr_tensor *front;	/* engine 0's */
};

struct ad_batch {
	struct list in_job;		/* in job->batches */
	struct ad_job *job;
	bool forget;
	uint32_t engines_left;
	struct list link[ENGINES_MAX];	/* in engine->forgetting */
	uint32_t n;
	struct ad_tensor *tensor[];
};

/* ---- processes ---- */

/* Engine 0's view of a process: its ring and what its descriptors may name. */
struct ad_ring {
	struct list link;		/* in engine->rings */
	struct ad_session *session;
	struct ad_job *job;
	uint32_t local;
	struct ring_end ring;
	struct list owed;		/* fr_input.owed: completions that found no room */
	bool broken;			/* no longer listened to */
	struct {
		uint8_t *base;
		uint64_t bytes;
		uint32_t id;
		bool writable;
	} slab[SLABS_PER_PROCESS_MAX];
};

enum ad_session_state { SESSION_NEW, SESSION_JOINING, SESSION_OPENING, SESSION_OPEN, SESSION_OVER };

struct ad_req {				/* a question forwarded to the scheduler */
	uint64_t ours, theirs;
	enum msg_type type;
	uint32_t nids;
	uint32_t *ids;			/* DECLARE: answered, waiting for the engines */
	uint64_t generation;		/* BARRIER: its own */
	mono_t deadline;
	uint8_t *wire;			/* to ask again; NULL: nothing to */
	uint64_t asked;			/* agent->registrations when it was asked last; 0: never */
	mono_t why_at;			/* when the process has asked what it waits for */
};

struct ad_gpu {				/* a GPU_JOIN that is not answered yet */
	uint64_t req;
	mono_t deadline;
	bool exact;
	char name[TOPO_NAME_MAX + 1];
	uint64_t ids[GPU_ID_WORDS];
};

struct ad_session {
	struct list link;		/* in agent->sessions */
	struct agent *agent;
	struct ctl *ctl;		/* NULL: the process is gone */
	enum ad_session_state state;
	uint64_t serial;		/* never used again */
	uint32_t pid, uid;		/* pid 0: of a process in another PID namespace */
	char called[40];		/* "process 12", for the log */
	int process;			/* a pidfd; -1: the kernel shows us none */
	bool died;			/* the process, at the last tick */
	char job_name[NAME_LEN_MAX + 1];
	uint32_t world, rank, chunk_bytes, timeout_ms, on_loss;
	uint64_t attach_req;
	struct ad_job *job;
	struct slab ring_mem;
	int bell[4];			/* sub 0/1, cpl 0/1 */
	struct ad_ring *ring;
	uint32_t nslabs;		/* inputs given out */
	uint64_t arena_bytes;		/* of all of them */
	bool no_huge;			/* the process may not have huge pages */
	uint32_t results_shown;
	uint32_t local;			/* index in its job here */
	bool placed, detached, ring_busy;
	_Atomic(const char *) cut;	/* what it did that it was cut off for, said before it
					 * hears so; NULL: nothing */
	bool admitted;			/* one of AD_SESSIONS_MAX; else a stranger */
	bool unready;			/* came into a job that ran, and has none of its tensors */
	struct ad_back *back;		/* owned: what it hands back; NULL: nothing */
	bool waits;			/* OPENING: for tensors of a job that came back */
	struct ad_gpu *gpu;		/* owned; joins the others with its GPU; NULL: does not */
	struct ad_req req[AD_REQS_MAX];
};

/* Control -> engine 0: a slab for a ring; and back. */
struct ad_slab_mail {
	struct ad_session *session;
	struct ad_slab *slab;
	uint64_t req;
};

/* ---- engines ---- */

struct ad_shown {			/* a slab as links show it */
	uint32_t job, id;
	int fd;				/* borrowed from the control thread until the job ends */
	uint64_t bytes;
	const struct xport_region *region;	/* the same; NULL: cards do not know it */
	bool servers_write;		/* by RDMA */
	bool hiding;			/* its process is gone: no longer, once it may be */
};

/* Why a link is TCP's although there are RDMA devices; people see it in `tally status`. */
#define NO_RDMA_TABLE(X) \
	X(CARD,		"no card has its address") \
	X(JOIN,		"not joined") \
	X(ENDS,		"ended too often")

enum ad_no_rdma {
#define X(e, text) NO_RDMA_##e,
	NO_RDMA_TABLE(X)
#undef X
	NO_RDMA_END
};

struct ad_engine {
	struct agent *agent;
	uint32_t index;
	struct engine *thread;
	struct xport_group *group;
	struct ag_core core;
	struct front front;		/* engine 0 */
	struct list rings;		/* engine 0: ad_ring.link */
	struct list peers;		/* ad_peer.link */
	struct list stopping;		/* ad_job.stop_link[index] */
	struct list forgetting;		/* ad_batch.link[index] */
	struct ad_shown *shown;		/* by slab id; fd -1: none */
	uint32_t nhiding;		/* of them */
	mono_t next_tick, next_stall, next_stuck;
	mono_t now;			/* as what is at hand began: a turn, an event of a link */
	uint64_t flight_limit;		/* this engine's part of the cards' */
	uint64_t bytes_sent, bytes_received;
	struct outbox out;		/* to the control thread */
	_Atomic bool quiet;		/* says nothing to anybody any more */
	struct ctl_stats stats;
	struct ad_net_view *net;	/* engine 0: owned; NULL: no trouble so far */
	_Atomic uint32_t rdma_links, no_rdma[NO_RDMA_END];
	_Atomic uint64_t detours, direct_bytes, copied_bytes;	/* struct xport_moved */
	uint64_t detours_before;	/* of links that are gone */
	struct xport_moved moved_before;
};

enum ad_mail {
	AD_OPEN,		/* the first: set up what belongs to the thread */
	AD_QUIET,		/* the last: engines speak to each other, so all stop that first */
	AD_JOB_START,		/* struct ad_job *, and back as AD_JOB_READY */
	AD_JOB_STOP,		/* struct ad_job *, and back as AD_JOB_STOPPED, then AD_JOB_FREE */
	AD_BATCH,		/* struct ad_batch *, and back as AD_BATCH_READY */
	AD_RING_ADD,		/* struct ad_session *, and back as AD_RING_READY */
	AD_RING_DEL,		/* struct ad_session *, and back as AD_RING_GONE */
	AD_SLAB,		/* struct ad_slab_mail, and back as AD_SLAB_READY */
	AD_SHOW,		/* struct ad_shown: links may show it */
	AD_HIDE,		/* the same: not any more, and back as AD_HIDDEN */
	AD_EPOCH,		/* struct ad_epoch *, and back as AD_EPOCH_TAKEN */
	AD_POST,		/* engine 0 -> engine: struct ad_post_mail */
	AD_DONE,		/* engine -> engine 0: struct ad_done_mail */
	AD_WAITS,		/* engine -> engine 0: struct ad_waits_mail */
	AD_FROZEN,		/* engine -> engine 0: struct ad_settled_mail */
	AD_THAW,		/* engine 0 -> engine: struct ad_settled_mail */
	AD_EPOCH_TAKEN,
	AD_SETTLED,		/* engine -> control: struct ad_settled_mail */
	AD_JOB_READY,
	AD_JOB_STOPPED,
	AD_JOB_FREE,
	AD_BATCH_READY,
	AD_RING_READY,
	AD_RING_GONE,
	AD_SLAB_READY,
	AD_HIDDEN,
	AD_WAS_OVER,		/* engine 0 -> control: uint32_t, a job */
	AD_RING_BROKEN,		/* engine 0 -> control: struct ad_trouble * */
	AD_JOB_FAILED,		/* any engine -> control: struct ad_trouble * */
	AD_STALLED,		/* engine 0 -> control: struct ad_trouble * */
	AD_STUCK,		/* any engine -> control: struct ad_stuck * */
	AD_NET,			/* engine -> control: struct trouble_news *; control -> engine 0:
				 * struct ad_net_view *, the receiver's */
};

struct ad_post_mail {
	uint32_t job, tensor;
	struct ag_post post;
};

struct ad_done_mail {
	uint32_t job, tensor, round;
	struct ag_times times;
};

/* What an engine's oldest open round of a job waits for. */
struct ad_waits_mail {
	uint32_t job;
	struct msg_wait wait;
};

/* All that an engine's open rounds of a job wait for. */
#define STALLS_SHOWN	3u		/* whom rounds wait for, in the text that ranks read */

struct ad_stuck {			/* the receiver's */
	uint32_t job, engine, n;
	mono_t at;			/* when the ages in it were right */
	struct msg_wait row[STUCK_ROWS_MAX];
};

struct ad_settled_mail {
	uint32_t job, engine;
	uint64_t epoch;			/* SETTLED: nothing of it is with an older owner any more;
					 * FROZEN, THAW: that makes the world smaller */
};

struct ad_trouble {			/* the receiver frees it */
	struct ad_session *session;	/* RING_BROKEN */
	uint32_t job;
	mono_t since;			/* STALLED: the round's begin, and whom it waits for: */
	uint64_t locals;		/* ranks of this machine, bits; */
	uint32_t machine;		/* those of that one of the job's; UINT32_MAX: of none */
	struct err err;
};

struct agent {
	struct daemon daemon;
	struct ad_options opt;
	const char *name, *machine;	/* the daemon's, as loop, mail and nengines */
	struct loop *loop;		/* NULL when it is gone */
	struct ctl_node *node;
	struct mailbox *mail;
	struct listener *listener;
	struct loop_timer *tick;
	uint32_t nrails;
	struct msg_addr rail[RAILS_MAX];
	char rail_text[RAILS_MAX][ADDR_LEN_MAX + 1];
	bool rail_rdma[RAILS_MAX];	/* a card here serves it */
	uint32_t rail_order[ENGINES_MAX][RAILS_MAX];	/* the engine's nearest first */
	uint8_t link_key[KEY_BYTES];
	uint8_t cluster[ID_BYTES];	/* of the last WELCOME; zeros: none yet */
	uint32_t my_node;
	uint64_t next_req, next_session;
	uint64_t memory_bytes;		/* the machine's; 0: nobody has looked */
	uint64_t backed_bytes;		/* results and sums have so much of it */
	bool no_huge;			/* our cgroup has no huge pages for us */
	uint64_t unseen_bytes;		/* of these, since what is left was looked at */
	struct list jobs, sessions;
	struct ctl_crowd crowd;		/* processes that have not attached yet */
	struct list returning;		/* ad_returning.link: jobs as they are told again */
	uint32_t refused_job;		/* the last that could not be taken; 0: none */
	struct err refused;		/* why */
	struct ad_slab *slab[SLABS_PER_LINK_MAX];	/* what ids mean; NULL: free */
	struct topo *topology;		/* owned: what --topology says, or hwloc said; or NULL */
	mono_t topology_until;		/* hwloc is asked anew then; 0: never */
	uint32_t nengines, nlinked;	/* nlinked: the first so many speak to servers */
	struct ad_engine *engine[ENGINES_MAX];
	_Atomic mono_t oldest;		/* engine 0's, every 10 ms: since when the oldest round of
					 * all is open; MONO_NEVER: none is */
	char note[320];			/* in heartbeats */
	struct ad_net *net;		/* owned */
	uint32_t start;			/* random, not 0: tells servers one process from the next */
	uint32_t grace_ms;		/* scheduler's: how long a job waits for this agent; 0: it
					 * does not */
	uint64_t registrations;		/* WELCOMEs so far */
	bool replaced;			/* the scheduler has another process of our name */
	mono_t registered;		/* the last one */
	bool stopping;			/* sessions end without a word */
};

/* agent_io.c: the scheduler's side */
/* The agent's cards, as --rail says, or the one that leads to the scheduler. */
int ad_rails_start(struct agent *a, struct err *e);
int ad_io_start(struct agent *a, struct err *e);
void ad_io_stop(struct agent *a);
void ad_on_mail(void *owner, const struct mail *m);
void ad_set_timeout(struct msg *m, uint32_t timeout_ms);	/* of a process's question */
int ad_tell_scheduler(struct agent *a, const struct msg *m);	/* 0 or TALLY_ESCHED */
/* With its address, where ranks waited for others in vain: these may be at another one. */
const char *ad_scheduler_remark(const struct agent *a, int code, const char *text,
				char more[ERR_TEXT_MAX + 1]);
void ad_scheduler_late(const struct agent *a, struct err *e);	/* it has not answered: why */
void ad_job_fail(struct ad_job *j, const struct err *why);	/* asks for its end */
void ad_job_refuse(struct agent *a, const struct msg_job_up *m, const struct err *why);

/* agent_job.c: jobs and tensors */
struct ad_job *ad_job_find(struct agent *a, uint32_t id);
int ad_job_up(struct agent *a, const struct msg *m, struct err *e);
int ad_tensors(struct agent *a, const struct msg *m, struct err *e);
int ad_forget(struct agent *a, const struct msg *m, struct err *e);
void ad_job_down(struct ad_job *j, int code, const char *text);
void ad_job_stopped(struct ad_job *j);	/* by one more engine */
void ad_job_free(struct ad_job *j);
void ad_job_forget(struct ad_job *j);	/* freed, and no session is left */
void ad_batch_done(struct ad_batch *b);
struct ad_tensor *ad_tensor_find(struct ad_job *j, uint32_t id);

/* agent_epoch.c: who sums what, from when on */
struct ad_epoch *ad_epoch_new(struct ad_job *j, uint64_t epoch, const struct msg_server *servers,
			      uint32_t nservers, struct err *e);
void ad_epoch_free(struct ad_epoch *ep);
void ad_routes_free(struct ad_job *j);
int ad_epoch(struct agent *a, const struct msg *m, struct err *e);
int ad_log_entry(struct agent *a, const struct msg *m, struct err *e);	/* any of a log */
uint32_t ad_epoch_route(const struct ad_epoch *ep, uint32_t tensor, uint32_t chunk,
			uint16_t owner);
void ad_epoch_taken(struct ad_epoch *ep);	/* by one engine */
void ad_epoch_settled(struct agent *a, const struct ad_settled_mail *m);
void ad_epoch_tell(struct ad_job *j);		/* to a scheduler that may not know */
void ad_epoch_begin(struct ad_engine *en, struct ad_job *j);	/* the engine's: its first */
void ad_epoch_adopt(struct ad_engine *en, struct ad_epoch *ep);
void ad_epoch_turn(struct ad_engine *en);	/* says what is settled */
void ad_epoch_end(struct ad_engine *en, struct ad_job *j);	/* its routes go */

/* agent_shrink.c: a smaller or a larger world, in all engines at once */
/* The local ranks (bits) of a world without those. */
uint64_t ad_shrink_live(const struct ad_job *j, const uint32_t *gone, uint32_t n);
int ad_shrink_fill(struct ad_epoch *ep, const struct msg_epoch *m, struct err *e);
/* The control thread's: that world is the job's; who of it has no process is told. */
void ad_shrink_take(struct ad_job *j, const struct ad_epoch *ep, const struct msg_epoch *m);
/* A log entry that has to wait (later) is kept; ENOMEM, EQUOTA: the job cannot go on here. */
int ad_shrink_defer(struct ad_job *j, const struct msg *m, bool *later, struct err *e);
void ad_shrink_forget_later(struct ad_job *j);	/* they will be heard again, or never */
void ad_shrink_done(struct ad_job *j);		/* all engines are in it */
void ad_shrink_freeze(struct ad_engine *en, struct ad_epoch *ep);
void ad_shrink_turn(struct ad_engine *en, struct ad_job *j);	/* tells engine 0 */
void ad_shrink_mail(struct ad_engine *en, uint32_t type, const struct ad_settled_mail *m);
void ad_shrink_show(const struct ad_job *j, struct ring_end *r);	/* who is lost */

/* agent_back.c: processes that come back to an agent that was started again */
void ad_back_slab(struct ad_session *s, const struct msg_slab *m);	/* handed back, */
void ad_back_rows(struct ad_session *s, const struct msg_declared *m);	/* before it attaches */
int ad_back_attach(struct ad_session *s, const struct msg_attach *m, struct err *e);
uint32_t ad_back_job(const struct ad_session *s);	/* that it comes back to; 0: none */
bool ad_back_late(const struct ad_session *s, mono_t now);	/* it hands back, and no more */
void ad_back_free(struct ad_session *s);
bool ad_back_keeps(struct agent *a, const struct msg *m);	/* JOB_UP or TENSORS, for later */
void ad_back_forget(struct agent *a);		/* all of that: it will be told anew */
void ad_back_take_in(struct agent *a, uint32_t job);	/* what was kept of that job, if any */
void ad_back_drop(struct agent *a, uint32_t job);	/* it is over */
int ad_back_memory(struct ad_tensor *t, bool *kept, struct err *e);	/* of its results */
/* At the round that its ranks are in; seq: the log entry that it came with. */
int ad_back_resume(struct ad_tensor *t, uint64_t seq, struct err *e);
int ad_back_inputs(struct ad_session *s, struct err *e);

/* agent_was.c: results go to where GPUs wait for them since a time before this process */
/* t's result of that round, to the memory behind a descriptor that a process handed back. */
int ad_was_show(struct ad_tensor *t, int fd, uint64_t bytes, uint32_t round, struct err *e);
void ad_was_over(struct ad_job *j);	/* lets go of it, once nobody waits there */

/* agent_log.c: what a restarted scheduler is told */
int ad_entry_new(const struct msg *m, struct ad_entry **entry, struct err *e);	/* in no list */
int ad_log_keep(struct ad_job *j, const struct msg *m, struct ad_entry **entry, struct err *e);
void ad_log_forget(struct ad_tensor *t);
void ad_log_free(struct ad_job *j);
/*
 * A local rank is gone; told now, and again to a scheduler that may not know it.  False: known
 * already, or there is no scheduler now, so that no answer may come.
 */
bool ad_job_left(struct ad_job *j, uint32_t local, const struct ad_left *left);
void ad_job_detached(struct ad_job *j, uint32_t rank);	/* of any machine; said again or not */
void ad_job_resend(struct ad_job *j);

/* agent_mem.c: slabs */
#define AD_ARENA	"tally-arena"
#define AD_RESULTS	"tally-result"
/*
 * Names of memfds, for a job and for a rank of it. Nobody can change them, so they tell what the
 * memory was made for when it is handed back.
 */
void ad_slab_name(char name[AD_NAME_MAX], const char *what, uint32_t job);
/* The ring of a rank that is placed, with its memory. EQUOTA, ENOMEM. */
int ad_ring_open(struct ad_session *s, struct err *e);
void ad_ring_name(char name[AD_NAME_MAX], uint32_t job, uint32_t rank);
struct ad_slab *ad_slab_new(struct agent *a, struct ad_job *j, const char *what, uint64_t bytes,
			    bool huge, struct err *e);
void ad_slab_free(struct agent *a, struct ad_slab *s);
int ad_prefault(struct agent *a, struct slab *mem, uint64_t off, uint64_t len, struct err *e);
/* Pages out of the slabs of a list, which grows by new slabs; index: its place in it. */
int ad_pages_get(struct agent *a, struct ad_job *j, struct list *slabs, const char *what,
		 uint32_t n, struct ad_slab **s, uint32_t *page, struct err *e);
void ad_pages_put(struct ad_slab *s, uint32_t page, uint32_t n);
/* Memory that a process has handed back; on success *mem is the slab's. */
struct ad_slab *ad_slab_adopt(struct agent *a, struct ad_job *j, struct slab *mem, struct err *e);
/*
 * Makes one more slab for results; ad_pages_copy() copies the same pages of another slab into
 * it, with their marks.
 */
struct ad_slab *ad_results_again(struct agent *a, struct ad_job *j, uint64_t bytes, struct err *e);
int ad_pages_copy(struct agent *a, struct ad_slab *s, uint32_t page, uint32_t n, int fd,
		  struct err *e);
void ad_arena_want(struct ad_session *s, const struct msg_slab *m);
void ad_arena_import(struct ad_session *s, const struct msg_slab *m);	/* a dma-buf came with m */
/* Maps one; EAUTH: this agent takes none.  On success mem owns fd. */
int ad_device_map(const struct agent *a, struct slab *mem, int fd, uint64_t bytes, struct err *e);
void ad_arena_mapped(struct ad_session *s, const struct msg_slab *m);
void ad_session_slab_ready(const struct ad_slab_mail *m);
/* Memory of processes that are gone, whose ranks the job goes on without, is given back. */
void ad_arenas_tidy(struct ad_job *j);
void ad_arena_hidden(struct agent *a, const struct ad_shown *m);	/* by one engine */

/* agent_gpu.c: the local plan of a job's GPUs, on the control thread */
int ad_gpu_read(struct agent *a, struct err *e);	/* --topology, before anything */
void ad_gpu_join(struct ad_session *s, const struct msg_gpu_join *m);
void ad_gpu_over(struct ad_job *j);	/* it ends: no answer will come */
/* The text of an error that a process of j gets (NULL: it has none yet): where others wait for
 * GPUs, with whose, put together in `out`; where nobody does as it is. */
const char *ad_gpu_remark(struct ad_job *j, const char *text, char out[ERR_TEXT_MAX + 1]);
void ad_gpu_tick(struct ad_session *s, mono_t now);

/* agent_join.c: which process is which rank */
bool ad_join_taken(const struct ad_session *s, const struct ad_job *j, uint32_t local);
void ad_join_give_up(struct ad_session *s);	/* it has ended, or waited for too long */
/* These local ranks (bits) are in the job from now on: who of them has no process?  back: of
 * those that were in it already. */
void ad_join_check(struct ad_job *j, uint64_t locals, bool back);

/* agent_alive.c: processes of the agent before this one */
/* To be locked by that rank's process for as long as it lives; the caller's. -1 after a warning. */
int ad_alive_file(const struct agent *a, uint32_t job, uint32_t rank);
void ad_alive_over(const struct ad_job *j);
void ad_alive_look(struct agent *a);	/* each second: who has not come back is told of */
void ad_alive_end(struct agent *a);

/* agent_admit.c: false: it has been told why not, and is closed */
bool ad_admit(struct ad_session *s, const struct msg_attach *m);

/* agent_session.c: processes */
int ad_sessions_start(struct agent *a, struct err *e);
void ad_sessions_stop(struct agent *a);	/* their sockets close with the loop */
void ad_sessions_free(struct agent *a);	/* which has; the engines are gone */
struct ad_session *ad_session_of(struct ad_job *j);	/* any of them */
void ad_sessions_tick(struct agent *a, mono_t now);
void ad_sessions_fail(struct agent *a, int code, const char *text);	/* all that they ask */
void ad_session_scheduler_up(struct agent *a);
/* The scheduler's answer to a question of one of the processes. */
void ad_session_reply(struct agent *a, const struct msg_reply *r);
void ad_session_job_ready(struct ad_job *j);
void ad_session_tensors_ready(struct ad_job *j);
void ad_session_job_over(struct ad_job *j);
void ad_session_ring_ready(struct ad_session *s);
void ad_session_ring_gone(struct ad_session *s);
int ad_session_send(struct ad_session *s, const struct msg *m, const int *fds, uint32_t nfds);
void ad_session_broken(struct ad_session *s, const struct err *why);

/* agent_engine.c: one data thread */
int ad_engine_start(struct agent *a, uint32_t index, int cpu, struct err *e);
void ad_engine_quiet(struct ad_engine *en);	/* all of them, before the first is stopped */
void ad_engine_stop(struct ad_engine *en);
void ad_engine_tell(struct ad_engine *en, enum ad_mail type, const void *body, size_t len);
void ad_tell_control(struct ad_engine *en, enum ad_mail type, const void *body, size_t len);
void ad_trouble(struct ad_engine *en, enum ad_mail type, const struct ad_trouble *t);	/* a copy */

/* agent_rings.c: engine 0's front */
bool ad_rings_turn(struct ad_engine *en, mono_t now);
void ad_rings_add(struct ad_engine *en, struct ad_session *s);
void ad_rings_del(struct ad_engine *en, struct ad_session *s);
void ad_rings_slab(struct ad_engine *en, const struct ad_slab_mail *m);
void ad_rings_event(struct ad_engine *en, struct ad_ring *r);
void ad_rings_finish(struct ad_engine *en, struct fr_tensor *t);	/* its round is whole */
void ad_rings_lost(struct ad_engine *en, const struct ad_job *j);	/* processes are shown */
void ad_rings_job_over(struct ad_engine *en, struct ad_job *j);
void ad_rings_done(struct ad_engine *en, const struct ad_done_mail *m);
void ad_rings_publish(struct ad_engine *en);	/* what was completed in this turn, and wakes */
bool ad_rings_owe(const struct ad_engine *en);	/* completions that found no room */
void ad_rings_waits(struct ad_engine *en, const struct ad_waits_mail *w);
void ad_rings_stalls(struct ad_engine *en, mono_t now);
/* Why a job failed by a round on which machines disagree: who wants what. */
void ad_mismatch(const struct ag_job *j, const char *tensor, struct err *e);
bool ad_is_ring(const struct ad_engine *en, const void *p);

/* agent_stuck.c: which rounds wait for whom, as the scheduler is told */
void ad_stuck_look(struct ad_engine *en, mono_t now);	/* the engine's: every STUCK_MS */
/* A round that has been open for so long, of any job. */
bool ad_any_open(const struct ad_engine *en, mono_t now, uint32_t ms);
void ad_stuck_take(struct agent *a, struct ad_stuck *st);
void ad_stuck_tell(struct ad_job *j);		/* to a scheduler that may not know */
/* The agent is told of its part in a job: what it said of one before is over. */
void ad_stuck_new_part(struct agent *a, uint32_t job);
void ad_stuck_free(struct ad_job *j);
/* Why a process's question has no answer yet: WAITS of the process, and of the scheduler. */
void ad_waits_asked(struct ad_session *s, uint64_t theirs);
void ad_waits_told(struct agent *a, const struct msg_reply *m);

/* agent_cards.c: what their speeds, in bit/s, decide */
/* Of two cards; one whose speed nobody knows (0) counts as the other, or as CARD_BITS_UNKNOWN. */
uint64_t ad_slower_card(uint64_t a, uint64_t b);
/* TCP connections of each of so many pairs of engines, which together fill a card. */
uint32_t ad_tcp_links(uint64_t bits_per_s, uint32_t pairs);
/* Number of links to such a server: as --links says, or as many as the pair of machines needs. */
uint64_t ad_rail_links(const struct agent *a, uint64_t bits_per_s, uint32_t server_engines);
/* An engine's part of what all cards together may have under way; UINT64_MAX: no bound. */
uint64_t ad_card_flight(const struct agent *a);

/* agent_fence.c: a server here that may write into our memory; -1: none does */
/* Its process is known from here on, and is the one behind that link; else it could not be ended,
 * and why. */
int ad_fence_keep(int *process, const struct xport_ep *ep, struct err *e);
void ad_fence_kill(int *process, const char *server);

/* agent_links.c: an engine's links to servers */
/* Memory for n peers, so that an engine that starts a job needs none; ENOMEM. */
int ad_peers_reserve(struct list *spare, uint32_t n);
void ad_peers_release(struct list *spare);
struct ag_peer *ad_peer_get(struct ad_engine *en, const struct ad_job *j, struct list *spare,
			    const struct ad_server *sv, uint32_t server_engine);
/* An epoch's news of it: its share; and its addresses, where it was out of the job when we
 * first heard of it and comes into it again as the same node. */
void ad_peer_learn(struct ag_peer *p, const struct ad_server *sv);
void ad_peer_put(struct ag_peer *p);
/* The server is dead, or as good as: nothing of it lands here any more.  ended: its
 * process has let go of the job, so that it need not be ended. */
void ad_peer_fence(struct ag_peer *p, bool ended);
void ad_links_turn(struct ad_engine *en, mono_t now);
bool ad_links_full(const struct ad_engine *en);	/* there is more than the card takes now */
mono_t ad_links_next(const struct ad_engine *en);
void ad_links_show(struct ad_engine *en, const struct ad_shown *s);
void ad_links_forget(struct ad_engine *en, struct ad_shown *s);	/* for links to come */
/* Slabs on their way out: those that no round reads any more are taken back, and said so. */
void ad_links_take_back(struct ad_engine *en);
/* The job's again, to a server that takes part anew: on this machine it may have let go of it, by
 * RDMA it was shown nothing of a job that was not its own. */
void ad_links_show_job(struct ad_engine *en, struct ag_peer *p, uint32_t job);
/* Takes back what servers may write of a job; whether some of it still can be. */
void ad_links_hide(struct ad_engine *en, uint32_t job);
bool ad_links_shown(const struct ad_engine *en, uint32_t job);
/* For the operator: links of a peer, those that use RDMA, and payloads that went over TCP
 * beside it. */
void ad_links_count(struct ad_engine *en);
bool ad_links_troubled(const struct ad_engine *en);	/* a server is not known to be reached */
void ad_links_free(struct ad_engine *en);
extern const struct xport_cb ad_link_callbacks;

#endif
