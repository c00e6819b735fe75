/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_core.h - what a summation server does with a frame (one engine's shard).
 *
 * For: parking contributions, summing a segment once all are there, answering.
 * Not for: sockets, memory, time of its own, other engines' chunks.
 *
 * A segment's life, for each round r = 1, 2, ...:
 *
 *   gathering r: contributions parked where they landed (the agent's window, or
 *	its own memory when it is on this machine), each at most once.
 *   done r: all n were there; summed in worker order in one pass; the result lies
 *	in the segment's slot until every agent has pushed r + 1, and is sent
 *	again to whoever asks.  A push of r + 1 is the acknowledgement of r.
 *
 * Every frame is idempotent; late and repeated ones are counted and dropped, so
 * loss, duplication and reordering cost time only.  Memory is bounded: per job
 * the result slots (the server's share of the model) and one window per agent.
 * Windows that fill up with contributions nobody matches are untangled by OFFER,
 * ASK, CANCEL, CANCELLED (docs/PROTOCOL.md).
 *
 * A segment that a new epoch brought here is young: other agents may be in the
 * middle of a round that its old server began.  It learns the round from the first
 * agent that speaks, and SEEKs those it has not heard of: who has the round's
 * result already GIVEs it, who waits for the old server comes over.  The first
 * result, summed or given, ends its youth.  One that an epoch took away is leaving:
 * it serves those who have not heard yet, until all agents have gone over.
 *
 * A job that goes on without a lost machine does so in a new epoch of all its chunks
 * (srv_job_shrink): no segment ever sees contributions of two worlds.
 *
 * A card writes a result to where its frame says, and there may be another round's, from
 * another server, by then.  So it writes a round's result once, while the agent waits
 * for it.  A repetition waits for the end of what was sent before and has no slot: it
 * goes over the link's stream, and the agent places it.  By reference, too, a result is not
 * written again where its agent was told that it lies.
 *
 * Shape: frames go in by srv_place/srv_frame, frames come out by srv_next, peer
 * by peer, as fast as its link takes them; nothing is queued per message.  All
 * memory is the caller's: struct srv_job (srv_job_size), struct srv_tensor
 * (srv_tensor_size), struct srv_peer.  Pure: the time comes in with the call.
 *
 * A payload address given out by srv_place() or srv_next() is borrowed until
 * srv_frame()/srv_unplace() or srv_sent(); a tensor's memory may be freed when it is
 * removed, not borrowed and forgotten, a job's when srv_job_borrowed() is 0 after
 * srv_job_stop().
 */
#ifndef TALLY_SERVER_CORE_H
#define TALLY_SERVER_CORE_H

#include "common/base/bytes.h"
#include "common/base/fair.h"
#include "common/base/geom.h"
#include "common/base/list.h"
#include "common/base/mutate.h"
#include "proto/frame.h"

#define SRV_COUNTER_TABLE(X) \
	X(pushes,	"contributions accepted") \
	X(results,	"results sent") \
	X(rounds,	"segment rounds summed") \
	X(bytes_summed,	"bytes read by sums") \
	X(drop_job,	"frames for a job not here") \
	X(drop_tensor,	"frames for a tensor or segment not here") \
	X(drop_epoch,	"frames of another placement epoch") \
	X(drop_worker,	"frames of a worker or chunk that the link does not speak for") \
	X(drop_round,	"frames of a round long past or not yet possible") \
	X(drop_attempt,	"pushes taken back before they came") \
	X(drop_shape,	"frames whose dtype, length or slot cannot be") \
	X(duplicates,	"contributions that were there already") \
	X(resends,	"results sent again") \
	X(offers,	"offers noted") \
	X(asks,		"contributions asked for") \
	X(cancels,	"contributions taken back") \
	X(seeks,	"agents asked for a round that began elsewhere") \
	X(given,	"results taken from an agent that had them") \
	X(skipped,	"rounds that turned out to be done elsewhere") \
	X(let_go,	"contributions dropped, of agents that were started again") \
	X(refusals_lost, "refusals not sent, too many at once")

struct srv_counters {
#define X(name, help) uint64_t name;
	SRV_COUNTER_TABLE(X)
#undef X
};

#define SRV_BUCKETS	16384u
#define SRV_REFUSALS	64u

/* An agent's engine that speaks to this engine, over whatever links. */
struct srv_peer {
	struct list link;		/* in core->peers */
	uint32_t node;			/* the agent's node number */
	uint32_t engine;		/* the agent's */
	struct fair lanes;		/* srv_lane.flow */
	struct frame refusal[SRV_REFUSALS];
	uint32_t nrefusals;
	void *user;			/* the shell's */
};

/* A job's frames on their way to an engine of an agent. */
struct srv_lane {
	struct fair_flow flow;		/* in peer->lanes; awake while there are some */
	struct list out;		/* srv_in.out: something to say, the oldest first */
};

struct srv_worker {			/* one machine of a job */
	uint32_t node;
	uint32_t engines;		/* of the agent: which of them owns a chunk */
	uint8_t *window;		/* shared with the transport; NULL: none (by reference) */
	uint64_t window_bytes;
	uint64_t parked_bytes;
	struct srv_lane *lane;		/* by its agent's engines: job->engines */
	uint32_t landing;		/* pushes that land in the window */
	uint32_t late;			/* of these, what it had begun before it was lost */
};

struct srv_job {
	struct list link;		/* srv_core.jobs */
	uint32_t id;
	uint32_t n;			/* machines */
	uint32_t live;			/* machines that take part: those not in out */
	uint32_t world;			/* ranks that do: a mean's divisor */
	uint32_t epoch;			/* that it came up with */
	uint32_t chunk_bytes, seg_bytes;
	bool stopped;
	uint64_t borrowed;		/* payload addresses given out, landing or being sent */
	uint64_t parked;		/* contributions that wait for others */
	uint32_t owner, engines;	/* whose it is; of the agent that has the most */
	struct fair_flow flow;		/* in core->out, always asleep: what it was sent */
	uint64_t asked_bytes, ask_limit; /* by srv_ask_cost */
	struct list ask_wait;		/* srv_seg.ask: complete but for offers */
	struct list tensors;		/* srv_tensor.link */
	void *user;
	uint64_t out[BITS_WORDS(AGENTS_PER_JOB_MAX)];	/* machines that were lost */
	struct srv_worker worker[];	/* n */
};

enum srv_in_state { IN_NONE, IN_OFFERED, IN_LANDING, IN_PARKED };
enum srv_todo {
	TODO_RESULT = 1, TODO_HELD = 2, TODO_ASK = 4, TODO_CANCELLED = 8, TODO_FAIL = 16,
	TODO_SEEK = 32,
};

struct srv_seg;

struct srv_in {				/* one worker's part in one segment */
	struct list out;		/* in its lane while todo != 0 */
	struct srv_seg *seg;
	struct srv_peer *peer;		/* that last spoke of it; borrowed */
	const uint8_t *data;		/* parked; NULL: takes part without data */
	uint8_t *result_at;		/* by reference: where the agent wants it */
	uint64_t rslot[2];		/* where the agent wants the result, by round & 1 */
	uint8_t state, todo, attempt;
	uint8_t shift;			/* parked: the data was divided by 2^shift */
	uint8_t probes;			/* since the last result was sent */
	bool by_ref;
	bool told;			/* done_round's result was handed to a link */
	bool wants;			/* done_round's result, which is not here yet */
	bool recalled;			/* a CANCEL came while it lands */
	bool lent;			/* a result was handed out and is not sent */
	bool again;			/* meanwhile it was asked for once more */
};

/* A link that lives delivers what it was given: so many probes are answered by
 * silence before a result is sent again, unless the agent knows that a link broke. */
#define SRV_PATIENCE 4u

struct srv_seg {
	struct srv_tensor *tensor;
	struct list ask;		/* in job->ask_wait */
	uint32_t chunk, offset, len;
	uint32_t done_round;		/* last finished; the next one is gathering */
	uint32_t parked, offered;
	uint32_t lent;			/* results handed out and not sent; one is landing */
	uint8_t rop;			/* of the gathering round, 0: nothing yet */
	uint8_t done_rop;
	bool asking;			/* its bytes count in job->asked_bytes */
	bool failed;			/* done_round ended in a mismatch */
	uint64_t side[2];		/* SIDE() of the round's first and latest contribution */
	bool young;			/* came by an epoch, and has seen no result yet */
	bool known;			/* young: done_round is what an agent's round says */
	bool giving;			/* a result lands in own */
	bool leaving;			/* an epoch has given it to another server */
	bool left;			/* and all agents have gone over */
	uint32_t wants;			/* workers that want done_round's result */
	uint8_t *own;			/* this server's result slot */
	uint8_t *result;		/* where done_round's result lies */
	uint64_t turn;			/* done_round's place among all that this core finished */
	struct srv_in *in;		/* n */
};

struct srv_tensor {
	struct srv_tensor *hash_next;
	struct list link;		/* in job->tensors */
	uint64_t borrowed;		/* result addresses being sent or landed on */
	struct srv_job *job;
	uint32_t id;
	uint32_t epoch;			/* that placed these chunks here */
	bool removed;
	bool stale;			/* of a larger world: sums no more, gives back */
	uint8_t dtype;
	struct geom geom;
	uint32_t nchunks, nsegs;
	uint32_t *first;		/* nchunks: index of the chunk's first segment, or none */
	struct srv_seg *seg;
};

struct srv_core {
	struct srv_counters count;
	struct list jobs, peers;	/* peers: in the order in which results go out */
	uint32_t first_node;		/* with which that begins */
	struct fair out;		/* srv_job.flow */
	uint64_t finished;		/* segment rounds */
	struct srv_tensor *bucket[SRV_BUCKETS];
};

/* No jobs. */
void srv_init(struct srv_core *c);

/* ---- jobs and tensors: at their beginning and end ---- */

/* engines: of the agent that has the most. */
size_t srv_job_size(uint32_t nmachines, uint32_t engines);

struct srv_job_desc {
	uint32_t id, n, world, epoch, chunk_bytes, seg_bytes;
	uint32_t user;			/* whose it is: its share of a card is the user's */
	uint32_t engines;		/* as in srv_job_size() */
	uint64_t window_bytes;		/* of each worker, of this engine */
	uint64_t part_bytes;		/* the least that an agent's engine has of it; 0: all */
};

/* mem: srv_job_size() zeroed bytes. Workers' node and window are filled by the caller. */
struct srv_job *srv_job_start(struct srv_core *c, void *mem, const struct srv_job_desc *d);
struct srv_job *srv_job_find(struct srv_core *c, uint32_t id);
/*
 * The machines that are lost (by index; others may have come back), and the job goes on
 * with `world` ranks.  What was summed can be had; what was not is given back on CANCEL, and
 * gathered by the tensors that are added from here on, among those who are there.
 */
void srv_job_shrink(struct srv_core *c, struct srv_job *j, const bool *lost, uint32_t world);
void srv_job_stop(struct srv_core *c, struct srv_job *j);
void srv_job_forget(struct srv_core *c, struct srv_job *j); /* not borrowed; mem is the caller's */
static inline uint64_t srv_job_borrowed(const struct srv_job *j)
{
	return j->borrowed;
}
/* Whether contributions or results of the job lie in those bytes, or are to. */
bool srv_job_uses(const struct srv_job *j, const uint8_t *base, uint64_t bytes);

struct srv_tensor_desc {
	uint32_t id;
	uint8_t dtype;
	struct geom geom;
	const bool *mine;		/* per chunk: this engine's; borrowed for the call */
	uint32_t epoch;			/* that placed them here; 0: the job's first */
	bool young;			/* from another server, in the middle of whatever round */
};

/* Bytes of bookkeeping, and of result slots (page-aligned per chunk). */
size_t srv_tensor_size(uint32_t nmachines, const struct srv_tensor_desc *d, uint64_t *slot_bytes);
struct srv_tensor *srv_tensor_add(struct srv_core *c, struct srv_job *j, void *mem,
				  uint8_t *slots, const struct srv_tensor_desc *d);
/*
 * A tensor has one struct for the chunks that it began with here and one for those
 * of each later epoch.  The one that has the chunk, of that epoch; NULL: none.
 */
struct srv_tensor *srv_tensor_find(struct srv_core *c, uint32_t job, uint32_t id, uint32_t chunk,
				   uint32_t epoch);
/* The chunk is here, but by another epoch. */
bool srv_tensor_moved(const struct srv_core *c, uint32_t job, uint32_t id, uint32_t chunk,
		      uint32_t epoch);
/* By reference the worker has pushed to the smaller world: nothing of the larger one may be
 * written any more where that one's result lies. */
bool srv_gone_on(const struct srv_core *c, const struct srv_in *in, uint32_t worker);
/* Ends what it was doing; it stays known until nothing of it is borrowed (t->borrowed). */
void srv_tensor_remove(struct srv_core *c, struct srv_tensor *t);
/* Its mem is the caller's again. */
void srv_tensor_forget(struct srv_core *c, struct srv_tensor *t);
/* An epoch has given these chunks (of this struct, by index) to others. */
void srv_tensor_leave(struct srv_core *c, struct srv_tensor *t, const bool *chunks);
/* All agents have gone over to the epoch: ends what these chunks were doing.  What an epoch
 * after that takes away is not meant, whenever that comes. */
void srv_tensor_settled(struct srv_core *c, struct srv_tensor *t);
/* Lets go of what has ended.  False: some of it is borrowed still, call again. */
bool srv_tensor_left(struct srv_core *c, struct srv_tensor *t);
bool srv_tensor_empty(const struct srv_tensor *t);	/* all have left */

/* ---- peers and frames ---- */

void srv_peer_init(struct srv_core *c, struct srv_peer *p, uint32_t node, uint32_t engine);
/*
 * The agent that is first in core->peers.  Each server begins with another one, as agents do with
 * servers: else all send their first results to the same card, and the other cards idle.
 */
void srv_begin_with(struct srv_core *c, uint32_t node);

/* Where in that order a peer is. */
static inline uint32_t srv_turn(const struct srv_core *c, const struct srv_peer *p)
{
	return p->node - c->first_node;
}

/* All its links are gone: forgets what it was to be sent (it will ask) and every
 * mention of it, so that it may be used for new links, or, after srv_peer_fini(), freed. */
void srv_peer_lost(struct srv_core *c, struct srv_peer *p);
void srv_peer_fini(struct srv_peer *p);
/*
 * Behind its links is another process than before: the agent was started again.  What the
 * first one had here counts no more, and its window is empty; results that are done stay.
 * None of its links is left.
 */
void srv_peer_anew(struct srv_core *c, struct srv_peer *p);

/* Where f's payload shall land; NULL: nowhere. Then exactly one of srv_frame (it
 * landed) or srv_unplace (the link broke). */
void *srv_place(struct srv_core *c, struct srv_peer *p, const struct frame *f);
void srv_unplace(struct srv_core *c, struct srv_peer *p, const struct frame *f);
/* A frame with its payload, which is borrowed for this call: what srv_place() and srv_frame() are
 * together.  The last contribution to a sum is added from there, without a copy. */
void srv_take(struct srv_core *c, struct srv_peer *p, const struct frame *f, const void *data);

/* data: landed payload, or the address in the sender's slab (by reference); NULL for
 * frames without.  result_at: by reference, where rslot points, or NULL. */
void srv_frame(struct srv_core *c, struct srv_peer *p, const struct frame *f, const void *data,
	       void *result_at);

struct srv_send {
	struct frame frame;
	const void *data;		/* borrowed when not NULL: srv_sent(in) */
	struct srv_in *in;		/* whose; NULL without data */
};

/* The next frame for p, if there is one; by_ref: its link carries no payload. */
bool srv_next(struct srv_core *c, struct srv_peer *p, bool by_ref, struct srv_send *s);
/* The agent has the result, or it is lost with its link: exactly once for each. */
void srv_sent(struct srv_core *c, struct srv_in *in);
/* p's next frame. */
#define SRV_NOTHING UINT64_MAX
struct srv_due {
	const struct srv_job *job;	/* NULL: one without payload, or there is none */
	uint64_t turn;			/* of the round whose result it is: the least is the
					 * furthest behind; 0: without payload; or SRV_NOTHING */
};
struct srv_due srv_due(const struct srv_peer *p);
bool srv_due_before(const struct srv_due *a, const struct srv_due *b);
void srv_turns_credit(struct srv_core *c, uint64_t bytes);	/* struct fair's, of all turns */

/* Something is landing, parked or to be sent: the time that this is so, over what is
 * summed meanwhile, says how fast the server is, card, adder and all. */
bool srv_busy(const struct srv_core *c);

void srv_check(const struct srv_core *c);	/* asserts every invariant */

/* ---- between the core's own files ---- */

#define SRV_NO_SEG UINT32_MAX		/* in srv_tensor.first: not this engine's chunk */

/* server_core_turn.c */
void srv_lanes_init(struct srv_job *j, struct srv_lane *lane, uint32_t engines);
void srv_lanes_fini(struct srv_job *j);
void srv_lanes_lost(struct srv_core *c, struct srv_peer *p);	/* nothing of p is in them */
struct srv_in *srv_first(const struct srv_peer *p);		/* NULL: p is to be sent nothing */
void srv_serve(const struct srv_in *in, bool by_ref);		/* its result goes out */
void srv_turns_check(const struct srv_core *c);

void srv_ask_end(struct srv_seg *s);		/* no longer asked for, or waiting to be */
void srv_ask_pump(struct srv_core *c, struct srv_job *j);
void srv_todo(struct srv_in *in, uint8_t what);		/* nothing, while no link is known */
void srv_todo_drop(struct srv_in *in, uint8_t what);
void srv_unpark(struct srv_in *in, uint32_t worker);
void srv_resend(struct srv_core *c, struct srv_in *in, uint8_t *result_at);
void srv_seg_back(struct srv_core *c, struct srv_seg *s);	/* a link lets go of its result */

/* server_core_young.c */
void srv_learn_round(struct srv_core *c, struct srv_seg *s, uint32_t round);
void srv_want(struct srv_core *c, struct srv_in *in);
void srv_let_go(struct srv_in *in);	/* it goes elsewhere, and wants nothing from here */
void srv_seek(struct srv_core *c, struct srv_seg *s);
uint32_t srv_sought_round(const struct srv_seg *s);
void *srv_give_place(struct srv_core *c, struct srv_seg *s, const struct frame *f);
void srv_give(struct srv_core *c, struct srv_seg *s, const struct frame *f, const void *data);

/*
 * Bytes that s takes of ask_limit: its pages, and as much as they can spoil. k runs of pages
 * leave at most k + 1 holes, so a segment of S pages finds room beside them if all their pages
 * and k * (S - 1) more fit: asked ones always fit together, wherever in a window the agent has
 * put them.
 */
static inline uint64_t srv_ask_cost(const struct srv_seg *s)
{
	return align_up(s->len, PAGE_BYTES) + s->tensor->job->seg_bytes - PAGE_BYTES;
}

/* Bytes of the worker's window that a parked contribution takes. */
static inline uint64_t srv_window_use(const struct srv_in *in)
{
	return in->data && !in->by_ref ? in->seg->len : 0;
}

#endif
