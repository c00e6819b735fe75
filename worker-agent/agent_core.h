/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_core.h - what an agent's engine does with its shard of the chunks.
 *
 * For: adding up what the machine's processes gave, pushing the most urgent
 * segment that has room, taking results in, asking after what got lost.
 * Not for: rings, sockets, memory, time of its own, other engines' chunks.
 *
 * A segment's round:
 *
 *	IDLE -> READY	 all local ranks have posted it; queued by urgency
 *	READY -> PUSHED	 it has room in the window at its server and a link takes it
 *	PUSHED -> DONE	 its result is in the result slot
 *	PUSHED -> CANCELLING -> READY  taken back, because the server asks for another
 *
 * and IDLE again with the next round.  On one machine alone (n = 1) READY leads
 * to DONE by the sum of the local inputs.
 *
 * A new placement epoch gives segments to other servers (agent_core_move.c), in
 * the middle of whatever round they are in: what was pushed without a result is
 * pushed again to the new owner, and who has a result that others lack gives it.
 *
 * A lost rank makes the world smaller (ag_job_shrink): rounds that are not whole in all
 * engines are forgotten as far as they have come, and begin again among the survivors.
 *
 * Retention: inputs (or the local sum) stay untouched until the segment's result
 * is here, results until the next but one round's, so there is always something
 * to push again or to give.  A rank that wants the result in memory of its own gets
 * it there segment by segment, still warm from the cache; that may be its input.
 *
 * Shape: ag_post() brings inputs, ag_place()/ag_frame() results, ag_next() gives
 * the next frame to send, ag_done() the tensors whose round is complete.  Pure;
 * memory is the caller's (ag_*_size()).  Payload addresses from ag_next() are
 * borrowed until ag_sent(), landing addresses until ag_frame()/ag_unplace().
 */
#ifndef TALLY_AGENT_CORE_H
#define TALLY_AGENT_CORE_H

#include "common/base/fair.h"
#include "common/base/geom.h"
#include "common/base/list.h"
#include "common/base/mutate.h"
#include "common/base/pagemap.h"
#include "common/base/pheap.h"
#include "common/shm/ring.h"
#include "proto/frame.h"
#include "proto/msg.h"

#define AG_COUNTER_TABLE(X) \
	X(pushes,	"contributions pushed") \
	X(repushes,	"contributions pushed again") \
	X(results,	"results taken in") \
	X(bytes_added,	"bytes read by sums over local ranks") \
	X(drop_job,	"frames for a job or tensor not here") \
	X(drop_epoch,	"frames of another placement epoch") \
	X(drop_round,	"results of another round") \
	X(drop_shape,	"frames whose length or slot cannot be") \
	X(drop_state,	"frames that the segment's state has no use for") \
	X(duplicates,	"results that were here already") \
	X(refused,	"frames that a server refused") \
	X(offers,	"offers sent") \
	X(probes,	"probes sent") \
	X(cancels,	"contributions taken back") \
	X(moves,	"segments that went to another server") \
	X(gives,	"results given to a server that had none") \
	X(voided,	"results of a larger world that came too late") \
	X(again,	"tensors' rounds that began again in a smaller world") \
	X(kept,		"results that were here before this process was")

struct ag_counters {
#define X(name, help) uint64_t name;
	AG_COUNTER_TABLE(X)
#undef X
};

#define AG_BUCKETS 16384u

/* Routes over links, and by reference. */
enum { AG_BY_LINK, AG_BY_REF, AG_TURNS };

/* One engine of one server, over whatever links. */
struct ag_peer {
	struct ag_core *core;
	struct list talk;		/* in core->talk while todo is not empty */
	uint32_t node, engine;
	bool up, by_ref;
	bool doubtful;			/* a link was lost, and nothing has come of a push since */
	bool busy;			/* the shell's: its links' queues are full */
	uint64_t tx_bytes;		/* payload handed out, not yet sent */
	uint64_t tx_limit;		/* set by the shell */
	struct list todo;		/* ag_seg.todo_link */
	void *user;			/* the shell's */
};

/* The way of one job to one server engine; n = 1: the only one, to itself. */
struct ag_route {
	struct list link;		/* in job->routes */
	struct pheap_node turn;		/* in one of job->turn while ready is not empty */
	struct list aside;		/* scratch of ag_choose() */
	struct ag_job *job;
	struct ag_peer *peer;		/* NULL: this machine alone */
	uint32_t users;			/* segments that are here or are to come here */
	bool gone;			/* the server is dead: nothing of it counts any more */
	struct pheap ready;		/* ag_seg.heap */
	struct list waiting;		/* ag_seg.link of the READY, next to be offered first */
	struct list inflight;		/* ag_seg.link, by time of last word */
	uint64_t window_at;		/* where our part of the window at the server begins */
	struct pagemap window;
	bool full;			/* nothing fits until something is freed */
	uint32_t numbered;		/* segments of a tensor that is being added */
	mono_t progress;		/* when something was freed last */
};

struct ag_job {
	struct list link;
	uint32_t id, n, me, nlocal, world, epoch;
	uint32_t chunk_bytes, seg_bytes;
	bool stopped, fail_told;	/* fail_told: the shell's */
	int fail_code;			/* 0, or why the shell should end the job */
	uint32_t fail_tensor, fail_round;
	uint64_t fail_side[2];		/* as the server has them */
	uint64_t borrowed;
	uint64_t live;			/* local ranks that take part: bits */
	bool frozen;			/* no tensor's round ends */
	struct list tensors;
	void *user;
	struct pheap turn[AG_TURNS];	/* ag_route.turn, by their most urgent segments */
	uint32_t nready;		/* segments that are READY */
	struct fair_flow flow;		/* in core->links, on this machine alone in core->alone;
					 * awake while some segment is READY */
	struct list routes;		/* ag_route.link: of this epoch, and older ones */
	struct ag_route *const *route;	/* of this epoch, by number; borrowed */
	uint32_t nroutes;
	uint32_t moving;		/* segments that are not yet with their new owner */
};

/* A link that lives delivers what it was given: a push is repeated on an ASK only
 * after so many probes, unless a link broke. */
#define AG_PATIENCE 4u

enum ag_state { SEG_IDLE, SEG_READY, SEG_PUSHED, SEG_CANCELLING, SEG_DONE };
enum ag_todo { AG_OFFER = 1, AG_PROBE = 2, AG_CANCEL = 4, AG_GIVE = 8 };

struct ag_seg {
	struct ag_tensor *tensor;
	struct pheap_node heap;		/* in route->ready while READY */
	struct list link;		/* in route->inflight while PUSHED or CANCELLING,
					 * in route->waiting while READY */
	struct list todo_link;		/* in peer->todo while todo != 0 */
	struct ag_route *route, *next;	/* next: of the new owner, while not there; else NULL */
	uint32_t epoch, next_epoch;	/* that gave it to these owners */
	uint32_t give_round;		/* AG_GIVE: whose result is wanted */
	uint32_t chunk, offset, len;
	uint32_t order;			/* where it comes among its tensor's segments */
	uint32_t slot;			/* first page in the window; UINT32_MAX: none */
	uint32_t late_slot;		/* given up, but pushes of before may still land in it */
	struct ag_route *late_route;	/* whose slot that is */
	uint32_t lent;			/* pushes handed out and not sent */
	uint32_t missing;		/* worker the server waits for; UINT32_MAX: not said */
	uint32_t backoff_ms;
	mono_t heard;			/* pushed, or last word from the server */
	uint64_t posted;		/* local ranks that gave it, or opened it: bits; and */
	uint8_t pieces;			/* groups that gave it */
	uint8_t state, todo, attempt;
	bool voided;			/* at its server is what counts no more: comes back first */
	bool asked, pinned;		/* by the server; not to be taken back */
	bool added;			/* the local sum is in the aggregate */
	bool landing, probed;
	bool hurt;			/* a link broke since it was pushed */
	bool held;			/* the server may have this round's contribution */
	bool lost;			/* it was pushed, and the server says that it lacks it */
	bool kept;			/* its result of round tensor->kept was there */
	uint8_t probes;			/* since it was pushed */
	uint8_t unheard;		/* probes since the server has said anything of it */
};

/* How far a round has come, when; 0: not yet.  For people: nothing is decided by it. */
struct ag_times {
	mono_t given;			/* the last post */
	mono_t begun, sent;		/* the first push handed out, the last push sent */
	mono_t came, summed;		/* the first, the last result began to come */
};

struct ag_tensor {
	struct ag_tensor *hash_next;
	struct list link;		/* in job->tensors */
	struct list done_link;		/* in core->done */
	struct ag_job *job;
	void *user;			/* the shell's */
	uint64_t borrowed;
	uint32_t id;
	uint8_t dtype, rop, last_rop;	/* last: of the round before */
	uint8_t groups;			/* inputs of each chunk, by pieces; 0: by local rank */
	struct geom geom;
	uint32_t nchunks, nsegs, left;	/* left: not DONE in this round */
	uint32_t round;			/* running or last finished; 0 none yet */
	bool running, removed;
	bool past;			/* its round is from before the world last changed, or a
					 * link has something from then */
	int32_t root_local;		/* broadcast: local rank of the root, -1: elsewhere */
	uint32_t root;			/* broadcast: the root's rank, else 0 */
	int32_t priority;
	uint64_t seq;			/* of the round's submission on this machine */
	mono_t since;			/* the round's first post */
	struct ag_times times;
	uint8_t *sum;			/* local sums; NULL with one local rank */
	uint64_t sum_slot;		/* its SLOT_SLAB, SLOT_NONE */
	uint8_t *result[2];		/* by round parity */
	uint64_t result_slot[2];
	uint64_t *mark[2];		/* by parity: AG_MARK() of each segment; NULL: none */
	uint32_t *first;		/* nchunks: the chunk's first segment or AG_NO_SEG */
	struct ag_seg *seg;
	struct ag_piece {
		const uint8_t *base;	/* NULL: not here yet */
		uint64_t slot;		/* its SLOT_SLAB, SLOT_NONE */
	} *piece;			/* nchunks * nlocal: of the chunk and group */
	uint32_t kept;			/* round of which marks say what the process before had */
	uint32_t nwas;			/* places where its result goes, too, */
	uint8_t *const *was;		/* borrowed, as long as it runs */
	struct ag_input {
		const uint8_t *base;	/* of the rank's input in this round */
		uint64_t slot;		/* its SLOT_SLAB, SLOT_NONE */
		uint8_t *out;		/* where it wants the result, too; NULL: nowhere */
		_Atomic uint32_t *tell;	/* counts chunks whose result is there; or NULL */
		uint32_t run;		/* chunks that it counts in one word */
	} in[];				/* nlocal */
};

#define AG_NO_SEG UINT32_MAX

struct ag_core {
	struct ag_counters count;
	struct list jobs, done, talk;
	uint32_t open;			/* tensors whose round is running */
	struct fair links;		/* ag_job.flow, by bytes that links take */
	struct fair alone;		/* the same of jobs on this machine alone, by bytes that
					 * their sums move */
	uint64_t tx_bytes;
	uint64_t tx_limit;		/* all links together; set by the shell */
	struct ag_tensor *bucket[AG_BUCKETS];
};

/* No jobs, no bounds on what is under way. */
void ag_init(struct ag_core *c);

/* ---- peers ---- */

void ag_peer_init(struct ag_core *c, struct ag_peer *p, uint32_t node, uint32_t engine);
/* A first link is up: pushes what waited, and again what may be lost. */
void ag_peer_up(struct ag_core *c, struct ag_peer *p, bool by_ref, mono_t now);
/* Notes that one of several links broke: what was on it is probed at once. */
void ag_peer_hurt(struct ag_core *c, struct ag_peer *p);
void ag_peer_down(struct ag_core *c, struct ag_peer *p);	/* the last link broke */

/* ---- jobs and tensors ---- */

/* Bytes of a route with that much window. */
size_t ag_route_size(uint64_t window_bytes);
/* mem: ag_route_size() zeroed bytes, the caller's until ag_route_del().  peer NULL: n = 1. */
struct ag_route *ag_route_init(void *mem, struct ag_peer *peer, uint64_t window_at,
			       uint64_t window_bytes, mono_t now);

struct ag_job_desc {
	uint32_t id, n, me, nlocal, world, epoch, chunk_bytes, seg_bytes;
	uint32_t user;			/* whose job it is: its share of the links is the user's */
	uint32_t nroutes;		/* n = 1: one */
	struct ag_route *const *route;	/* by number, NULL where this engine has none; borrowed
					 * until the next epoch */
};

/* mem: sizeof(struct ag_job) zeroed bytes. */
struct ag_job *ag_job_start(struct ag_core *c, void *mem, const struct ag_job_desc *d);
struct ag_job *ag_job_find(struct ag_core *c, uint32_t id);
void ag_job_stop(struct ag_core *c, struct ag_job *j);	/* its tensors are removed */
void ag_job_forget(struct ag_core *c, struct ag_job *j); /* all tensors forgotten */

struct ag_tensor_desc {
	uint32_t id;
	uint8_t dtype;
	struct geom geom;
	const uint32_t *route;		/* per chunk: its number; AG_NO_SEG: not this engine's */
	const uint32_t *since;		/* per chunk: epoch that placed it there; NULL: the job's */
	uint8_t *sum;			/* whole tensor; NULL when nlocal = 1 */
	uint64_t sum_slot;
	uint8_t *result[2];
	uint64_t result_slot[2];
	/*
	 * Beside the results, in memory that outlives this process: whose result is there,
	 * whole.  It says so before a rank's input may be overwritten by it.  ag_marks() of
	 * them, zeros at first; NULL: nobody wants to know.
	 */
	uint64_t *mark[2];
	bool whole;			/* of the next round it keeps all or nothing */
	/* Of the process before this one, as ag_desc_resume() found it; else 0. */
	uint32_t round;			/* that this machine had finished; 0: none */
	uint8_t rop;			/* of that round; ROP_NONE: only others had finished it */
	bool kept;			/* of the next one there may be results */
	uint32_t nwas;			/* where GPUs wait for that one's result, as processes */
	uint8_t *const *was;		/* before have shown it to them; borrowed */
};

/* Of a result: its operation, its round, and in how large a world it was summed. */
#define AG_MARK(world, rop, round) \
	((uint64_t)(world) << 40 | (uint64_t)(rop) << 32 | (round))
#define AG_MARK_ROP(m)		((uint8_t)((m) >> 32))
#define AG_MARK_ROUND(m)	((uint32_t)(m))

/* Marks of one parity: a tensor has as many as segments, in all engines together. */
static inline uint64_t ag_marks(const struct geom *g)
{
	uint32_t n = geom_chunks(g);
	uint64_t each = div_round_up(g->chunk_bytes, g->seg_bytes);

	return n ? (n - 1) * each + geom_chunk_segs(g, n - 1) : 0;
}

/*
 * Reads what the process before has left of the tensor, whose ranks have finished that round (0:
 * none). Marks are not to be trusted, nor to stay as they are: they are read once, here and when
 * the tensor is added. False: they do not say that the round is whole, of one world.
 */
bool ag_desc_resume(struct ag_tensor_desc *d, uint32_t round);

size_t ag_tensor_size(const struct ag_job *j, const struct ag_tensor_desc *d);
/* The same for a tensor with nsegs segments in this engine at most. */
size_t ag_tensor_size_max(uint32_t nlocal, const struct geom *g, uint64_t nsegs);
struct ag_tensor *ag_tensor_add(struct ag_core *c, struct ag_job *j, void *mem,
				const struct ag_tensor_desc *d);
/* The same as ag_tensor_add() for one of several engines: the chunks that geom_shard() gives it. */
struct ag_tensor *ag_tensor_add_shard(struct ag_core *c, struct ag_job *j, void *mem,
				      const struct ag_tensor_desc *d, uint32_t engine,
				      uint32_t engines);
struct ag_tensor *ag_tensor_find(struct ag_core *c, uint32_t job, uint32_t id);
/* Ends what it was doing; it stays known until nothing of it is borrowed (t->borrowed). */
void ag_tensor_remove(struct ag_core *c, struct ag_tensor *t);
void ag_tensor_forget(struct ag_core *c, struct ag_tensor *t);	/* mem is the caller's again */

/* ---- a new epoch ---- */

/*
 * The job's routes and epoch from now on; then ag_tensor_move() for every tensor.
 * A server that died: ag_route_gone() on its routes before, and what the fence of
 * the shell is made of (its links cut, so that nothing of it lands any more).
 */
void ag_job_epoch(struct ag_core *c, struct ag_job *j, uint32_t epoch,
		  struct ag_route *const *route, uint32_t nroutes);
void ag_route_gone(struct ag_route *r);
/* Per chunk: the owner's route number, and the epoch that gave it the chunk. */
void ag_tensor_move(struct ag_core *c, struct ag_tensor *t, const uint32_t *route,
		    const uint32_t *since, mono_t now);
/* All segments are where the newest epoch wants them: servers may forget the older ones. */
static inline bool ag_job_settled(const struct ag_job *j)
{
	return !j->moving || MUTATE(14);
}
/* Takes a route without users out; mem is the caller's again. */
void ag_route_del(struct ag_route *r);

/* ---- a smaller world ---- */

/*
 * Ranks are lost, and the job goes on without them.  First no round ends any more in any
 * engine (freeze): then the caller knows which tensors' rounds are whole, and those stay as
 * they are.  Then, in the new epoch of all chunks, the job goes on with `live` local ranks
 * (bits) of `world` in all, and every other running round begins again, from the inputs.
 */
void ag_job_freeze(struct ag_job *j);
void ag_job_shrink(struct ag_job *j, uint64_t live, uint32_t world);	/* and thaws */
/* Before its ag_tensor_move(). */
void ag_tensor_again(struct ag_core *c, struct ag_tensor *t);
/* Whether inputs of ranks that were lost may be read still, here or by reference. */
bool ag_job_past(struct ag_job *j);

/* ---- rounds ---- */

struct ag_post {
	uint32_t round, local;		/* local rank's index */
	uint8_t rop;
	uint8_t part;			/* enum ring_part; PIECE: of a round that was opened */
	uint8_t group, groups;		/* of a PIECE; of OPEN and PIECE, at most nlocal */
	int32_t root_local;
	uint32_t root;			/* broadcast's, else 0 */
	int32_t priority;
	uint64_t seq;
	uint64_t at, length;		/* what it is of: whole chunks of the tensor */
	const uint8_t *base;		/* WHOLE, PIECE: the input; OPEN: words, one for each run of
					 * chunks, that count what is told; valid until the round is
					 * done */
	uint64_t base_slot;		/* its SLOT_SLAB, SLOT_NONE */
	uint8_t *out;			/* the whole tensor's result is wanted there, too: base,
					 * or memory apart from it; NULL: nowhere */
	uint32_t run;			/* OPEN: chunks of each word */
};

/* The first post of a round opens it: the caller has seen to it that the round
 * before is done and that rop, root and base agree (ASSERT). */
void ag_post(struct ag_core *c, struct ag_tensor *t, const struct ag_post *p, mono_t now);

/* Sums for jobs on this machine alone, at most budget bytes; true: more to do. */
bool ag_work(struct ag_core *c, uint64_t budget);

struct ag_send {
	struct ag_peer *peer;
	struct frame frame;
	const void *data;		/* borrowed when not NULL: ag_sent(peer, seg, length) */
	struct ag_seg *seg;		/* NULL without data */
};

bool ag_next(struct ag_core *c, mono_t now, struct ag_send *s);
bool ag_waits(const struct ag_core *c);	/* something is READY that takes room on the links */
/* The push of s is with the server, or lost with its link: exactly once for each. */
void ag_sent(struct ag_core *c, struct ag_peer *p, struct ag_seg *s, uint32_t len, mono_t now);

void *ag_place(struct ag_core *c, struct ag_peer *p, const struct frame *f, mono_t now);
void ag_unplace(struct ag_core *c, const struct frame *f);	/* its landing ended half-way */
/* A frame with its payload, which is borrowed for this call: what ag_place() and ag_frame() are
 * together.  Other threads see the result after kern_copied(). */
void ag_take(struct ag_core *c, struct ag_peer *p, const struct frame *f, const void *data,
	     mono_t now);
void ag_frame(struct ag_core *c, struct ag_peer *p, const struct frame *f, mono_t now);

/* No round is open here: ag_tick() has nothing to do before the next post. */
static inline bool ag_at_rest(const struct ag_core *c)
{
	return !c->open;
}

/* Offers, probes; call at least every OFFER_AFTER_MS while rounds are open. */
void ag_tick(struct ag_core *c, mono_t now);

/* Joins the times that several engines know of one round; all zeroed at first. */
static inline void ag_times_join(struct ag_times *all, const struct ag_times *one)
{
	all->given = MAX(all->given, one->given);
	all->begun = all->begun && (!one->begun || all->begun < one->begun) ? all->begun :
									       one->begun;
	all->sent = MAX(all->sent, one->sent);
	all->came = all->came && (!one->came || all->came < one->came) ? all->came : one->came;
	all->summed = MAX(all->summed, one->summed);
}

/* A tensor whose round just finished in this engine, once; NULL: none. */
struct ag_tensor *ag_done(struct ag_core *c);
void ag_undone(struct ag_core *c, struct ag_tensor *t);	/* give it out again, first */

/* agent_core_wait.c: whom a running round waits for, as far as this engine knows; a row
 * per somebody, at most max of them.  Returns how many. */
uint32_t ag_waits_for(const struct ag_tensor *t, mono_t now, struct msg_wait *row, uint32_t max);

/* Of the n rows of a job's rounds, if one of them wants a link: adds a row of no chunks for each
 * other server that there is no link to; the last row makes room for it, where max is reached.
 * Returns how many they are now. */
uint32_t ag_waits_elsewhere(const struct ag_job *j, struct msg_wait *row, uint32_t n,
			    uint32_t max);

/* A link to some server of its is up, and carries what is pushed. */
bool ag_reaches_any(const struct ag_job *j);

/* Asserts every invariant. */
void ag_check(const struct ag_core *c);

/* ---- between the core's own files ---- */

static inline void ag_set_running(struct ag_core *c, struct ag_tensor *t, bool running)
{
	c->open += (uint32_t)running - (uint32_t)t->running;
	t->running = running;
}

/* agent_core_sum.c */
/* This machine's contribution: its only input as it is, or the sum of all. */
const uint8_t *ag_contribution(struct ag_core *c, struct ag_seg *s, uint64_t *slot);
uint32_t ag_contribution_shift(const struct ag_tensor *t);
/* The result, to where it is wanted besides its slot.  read: its bytes are there, too, in a
 * cache, and its slot in none; NULL: its slot has them. */
void ag_hand_out(const struct ag_seg *s, const void *read);
uint64_t ag_sum_alone(struct ag_core *c, const struct ag_seg *s);	/* bytes moved */
/* agent_core_mark.c */
void ag_mark(const struct ag_seg *s);		/* its result is there */
void ag_unmark(const struct ag_seg *s);		/* it is to be another one */
bool ag_was_done(const struct ag_seg *s);	/* in this round, by the process before */
void ag_tell(const struct ag_seg *s);		/* ranks that take results run by run */
void ag_tensor_resume(struct ag_tensor *t, const struct ag_tensor_desc *d);
/* The segment that a frame names; NULL: not here. */
struct ag_seg *ag_find(struct ag_core *c, const struct frame *f);
/* agent_core_turn.c: into and out of the queue of its route. */
void ag_seg_ready(struct ag_seg *s);
void ag_seg_unready(struct ag_seg *s);
/* Ready, or idle where a rank that has come into the job has not given it yet. */
void ag_seg_given(struct ag_seg *s);
void ag_turns_init(struct pheap *turn, uint32_t n);
struct pheap *ag_turn_of(const struct ag_route *r);
/* The next to be pushed, with room in the window where it needs some; NULL: none now. */
struct ag_seg *ag_choose(struct ag_core *c);
/* Gives its room in the window back, if it has some. */
void ag_seg_free_slot(struct ag_seg *s, mono_t now);
void ag_seg_free_late(struct ag_seg *s);	/* harmless if it has none */
/* Something to be said about it to its server, or no longer. */
void ag_todo(struct ag_seg *s, uint8_t what);
void ag_todo_drop(struct ag_seg *s, uint8_t what);
/* Sends it where the newest epoch wants it, as far as that can be now. */
void ag_seg_move(struct ag_core *c, struct ag_seg *s, mono_t now);
/* From the owner to the new one: nothing of it is with the old one. */
void ag_seg_switch(struct ag_core *c, struct ag_seg *s, mono_t now);
/* Takes a contribution back (CANCEL), to push it again. */
void ag_seg_recall(struct ag_seg *s);
void ag_on_seek(struct ag_core *c, struct ag_peer *p, const struct frame *f, mono_t now);
/* Fills a GIVE; false: the result is not here any more. */
bool ag_give(struct ag_core *c, struct ag_seg *s, struct ag_send *out);
void ag_fill_head(struct frame *f, const struct ag_seg *s, uint8_t type);
/* out's payload: data, or where it lies when the peer reads it by reference. */
void ag_lend(struct ag_core *c, struct ag_seg *s, struct ag_send *out, const uint8_t *data,
	     uint64_t slot);
static inline void ag_saw_push(struct ag_tensor *t, mono_t now)
{
	t->times.begun = t->times.begun ? t->times.begun : now;
	t->times.sent = now;
}
static inline void ag_saw_result(struct ag_tensor *t, mono_t now)
{
	t->times.came = t->times.came ? t->times.came : now;
	t->times.summed = now;
}
/* A broadcast's contribution without data: the root is on another machine. */
static inline bool ag_without_data(const struct ag_tensor *t)
{
	return t->rop == ROP_BROADCAST && t->root_local < 0;
}
/*
 * Whether a segment is ready: all local ranks gave it, or opened it, and all of its pieces are
 * there. On a machine alone a broadcast whose root was lost before it gave its data never is.
 */
static inline bool ag_all_gave(const struct ag_seg *s)
{
	const struct ag_tensor *t = s->tensor;

	return (s->posted & t->job->live) == t->job->live && s->pieces == t->groups &&
	       !(t->job->n == 1 && ag_without_data(t));
}
static inline uint32_t ag_seg_pages(const struct ag_seg *s)
{
	return (uint32_t)div_round_up(s->len, PAGE_BYTES);
}
static inline uint64_t ag_seg_at(const struct ag_seg *s)
{
	return (uint64_t)s->chunk * s->tensor->geom.chunk_bytes + s->offset;
}
/* The order of the queue: asked for, priority, submission, place in the tensor. */
bool ag_more_urgent(const struct ag_seg *a, const struct ag_seg *b);

#endif
