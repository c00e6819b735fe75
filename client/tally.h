/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally.h - libtally: sum gradients across processes and machines.
 *
 *	tally_session *s;
 *	tally_tensor *t;
 *	tally_ticket k;
 *	float *g;
 *
 *	tally_attach(NULL, &s);				// rank, world size from the environment
 *	tally_alloc(s, n * sizeof(*g), (void **)&g);	// in the arena: no copy later
 *	tally_declare(s, &(tally_tensor_desc){ .name = "grad", .dtype = TALLY_FLOAT32,
 *					       .count = n }, 1, &t);
 *	...						// write the gradient into g
 *	tally_push_pull(s, t, g, g, NULL, &k);		// returns at once: g is in the arena
 *	tally_wait(s, k, -1);				// g is the sum over all ranks
 *
 * Every function returns 0 (TALLY_OK) or a negative TALLY_E* code, and leaves
 * one line of explanation for tally_error_text().  The library never exits or installs
 * signal handlers, starts no thread but tally_gpu_open()'s, and prints nothing unless TALLY_LOG
 * is set: info says on stderr what a call or a round waits for, once that has taken a second, and
 * then whenever it has taken twice as long, and the life of the session; debug says each call.
 * A session belongs to one thread at a time; different sessions are independent.
 * A session does not survive fork(): the only call that a child may make with its parent's is
 * tally_forked().
 *
 * All ranks of a job declare the same tensors and use each of them for the same
 * rounds; the order in which they submit and wait is theirs.
 *
 * Errors that each function names come beside those of many:
 * - EINVAL: NULL for a session, or another argument that cannot be.
 * - ENOMEM: no memory, of this process, the agent or the scheduler.
 * - What ended the session, for all that need the job from then on: EWORKERLOST, ESERVERLOST,
 *   EMISMATCH (ranks whose rounds differ), ..., EAGENT (the agent is gone), EPROTO (it makes no
 *   sense), ESHUTDOWN (the session was left, or the job brought down).
 * - ESCHED: tally_attach(), tally_declare(), tally_undeclare(), tally_barrier() or tally_grow()
 *   could not reach the scheduler in time.
 *
 * Names of jobs and tensors are 1 to 255 bytes of printable UTF-8.
 */
#ifndef TALLY_H
#define TALLY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TALLY_VERSION_MAJOR 0
#define TALLY_VERSION_MINOR 1
#define TALLY_VERSION_PATCH 0

#ifndef TALLY_API
#define TALLY_API __attribute__((visibility("default")))
#endif

/* Error codes; tally_error_help() says what each means. */
enum {
	TALLY_OK = 0,
	TALLY_EAGAIN = -1,
	TALLY_EINVAL = -2,
	TALLY_EPROTO = -3,
	TALLY_EMISMATCH = -4,
	TALLY_EEXIST = -5,
	TALLY_ENOENT = -6,
	TALLY_ENOMEM = -7,
	TALLY_EQUOTA = -8,
	TALLY_ETIMEDOUT = -9,
	TALLY_EWORKERLOST = -10,
	TALLY_ESERVERLOST = -11,
	TALLY_ENOSERVER = -12,
	TALLY_EAGENT = -13,
	TALLY_ESCHED = -14,
	TALLY_EVERSION = -15,
	TALLY_EAUTH = -16,
	TALLY_ESHUTDOWN = -17,
	TALLY_EIO = -18,
	TALLY_EBUSY = -19,
	TALLY_EINTERNAL = -20
};

/* Types of elements; tally_dtype_size() says how long one is. */
typedef enum {
	TALLY_FLOAT32 = 1,
	TALLY_FLOAT64 = 2,
	TALLY_FLOAT16 = 3,
	TALLY_BFLOAT16 = 4,
	TALLY_INT8 = 5,
	TALLY_UINT8 = 6,
	TALLY_INT32 = 7,
	TALLY_INT64 = 8
} tally_dtype;

/*
 * Operations of a round: the sum of the ranks' elements (TALLY_SUM), or that sum divided by the
 * number of ranks (TALLY_MEAN).
 * Whole numbers wrap around where a sum is too large, and a mean of them is that sum divided,
 * rounded toward zero.  Sums of float16 and bfloat16 are made in float32, and rounded once on
 * each machine and once on the server.
 */
typedef enum { TALLY_SUM = 1, TALLY_MEAN = 2 } tally_op;

/*
 * Policies of a job that loses a rank: it fails on all others with EWORKERLOST
 * (TALLY_ON_LOSS_ERROR), or goes on with fewer ranks (TALLY_ON_LOSS_SHRINK; tally_live_ranks).
 * A rank is lost when its process or its machine ends without tally_detach().
 */
typedef enum { TALLY_ON_LOSS_ERROR = 0, TALLY_ON_LOSS_SHRINK = 1 } tally_on_loss;

/* Handles of a process in its job, of a tensor, and of a round that was started. */
typedef struct tally_session tally_session;
typedef struct tally_tensor tally_tensor;
typedef uint64_t tally_ticket;		/* 0 is no ticket */

/* How to join a job.  Zeroed fields take their value from the environment, then the default.
 * Strings are read by tally_attach() and may go behind it. */
typedef struct {
	const char *socket;	/* the agent's; TALLY_SOCKET; /run/tally/agent.sock */
	const char *job;	/* TALLY_JOB, torchrun, Slurm, Open MPI id; "default" */
	int rank;		/* used when world > 0, and no launcher's variable then */
	int world;		/* 0: RANK and WORLD_SIZE as TALLY_*, torchrun, Slurm, Open MPI */
	int local_rank;		/* what tally_local_rank() says, below world; 0 or -1: with world 0
				 * the launcher's, else (or if that says none) the agent's */
	int timeout_ms;		/* for attach, declare, barrier; 0: TALLY_TIMEOUT_MS, 60000 */
	size_t chunk_bytes;	/* unit of placement, a multiple of 16 KiB up to 4 MiB, the same
				 * on all ranks; 0: automatic */
	tally_on_loss on_loss;	/* the same on all ranks */
	int round_timeout_ms;	/* for each round; 0: TALLY_ROUND_TIMEOUT_MS, 600000 */
} tally_options;

/* A tensor as a rank declares it.  Read by tally_declare(), its name and shape, too, and may go
 * behind it. */
typedef struct {
	const char *name;	/* unique in the job */
	tally_dtype dtype;
	uint64_t count;		/* elements, 64 GiB of them at most; may be 0 */
	const uint64_t *shape;	/* optional: compared between ranks; product = count */
	uint32_t ndims;		/* of shape, 8 at most */
	int32_t priority;	/* higher is more urgent; each rank's own */
	const char *meaning;	/* optional: what it stands for, items with "; " between them, in
				 * printable UTF-8, 16 KiB at most; compared between ranks:
				 * EMISMATCH shows the first items that differ.  For a tensor that
				 * others were packed into, say. */
} tally_tensor_desc;

/* How one round differs from others; zeroed fields: a sum, of the tensor's priority. */
typedef struct {
	tally_op op;		/* 0: TALLY_SUM */
	int32_t priority;	/* used when override_priority */
	int override_priority;
} tally_push_pull_options;

/*
 * Joins the job: connects to this machine's agent and waits until all ranks are
 * there.  opt may be NULL.  EAGENT: no agent at that socket; ETIMEDOUT names the
 * missing ranks; EMISMATCH: another rank has another world size, chunk_bytes or on_loss;
 * EEXIST: this rank is taken; EBUSY: ranks of the job of that name before have not detached by
 * the deadline; EAUTH: not allowed to use that socket, or the job is another user's; EINVAL:
 * opt, the environment, or a lost rank that comes at another agent; EVERSION: an agent of
 * another release; ENOSERVER: several machines, and no tally-server; EQUOTA: too many
 * processes, jobs, or ranks on a machine (64); EIO: the scheduler cannot save its state.
 * An agent that goes, also in the middle of rounds, and is started again within the
 * scheduler's grace (--agent-grace, 30 s) is a pause in whatever waits: rounds in flight,
 * memory and results stay as they are.  Rounds go on when every rank of the machine has
 * called something here since, which one that computes may do much later; one with a GPU
 * (tally_gpu_open) need not.  An agent that is not started again: EAGENT, 10 s after that time.
 * On failure *s is still set when memory allowed it, for tally_error_text() only;
 * pass it to tally_detach().
 */
TALLY_API int tally_attach(const tally_options *opt, tally_session **s);

/*
 * Leaves the job and frees everything of s, arena memory too.  NULL is fine.
 * Work in flight is given up (that costs the other ranks the job).  When all ranks' calls have
 * returned, a job of the same name can be started anywhere (unless the scheduler is away, or
 * takes more than 3 s to hear of it).  An error (EAGENT, ETIMEDOUT, or what has ended the job)
 * says that the job may not have heard of it; s is freed all the same.  An agent that does not
 * answer costs 7 s, one that is gone up to the time that it is waited for (tally_attach).
 * A round that a stream waits for (tally_gpu_wait()) has 10 s to be done, or timeout_ms where that
 * is less; then the stream goes on, out holds nothing of use, and ETIMEDOUT says so.
 */
TALLY_API int tally_detach(tally_session *s);

/*
 * Leaves the job, but keeps memory: the first half of tally_detach(), for a caller who has handed
 * memory of s on.  Frees tensors (their handles die) and closes descriptors.  What tally_alloc(),
 * tally_import() and tally_result() have given stays readable, tally_alloc()'s writable, until
 * tally_detach(), which then waits for nothing and may be called by any thread.  Calls in between
 * that need the job get ESHUTDOWN, or what had ended it before.  Errors as of tally_detach(), with
 * a text; a second call is harmless.
 */
TALLY_API int tally_leave(tally_session *s);

/*
 * In a child after fork(), before it does anything else: what tally_alloc() has given s, which a
 * child shares with its parent, becomes the child's own, at the same place, with the values that it
 * had.  What the child writes there does not reach the parent, nor the job.  Nothing else may be
 * called for s there.  tally.Session (Python) does it at every os.fork().  NULL is fine.
 */
TALLY_API void tally_forked(tally_session *s);

/*
 * Identity of this process in its job; constant from tally_attach() to tally_detach(). For no
 * session: EINVAL, which is negative.
 */
TALLY_API int tally_rank(const tally_session *s);	/* 0 to world size - 1 */
TALLY_API int tally_world_size(const tally_session *s);	/* processes of the job */
TALLY_API const char *tally_job_name(const tally_session *s);	/* "" for no session */

/* This process's number on its machine: that of tally_options, or the launcher's, which
 * frameworks choose the GPU by, else the agent's, from 0 to tally_local_size() - 1. */
TALLY_API int tally_local_rank(const tally_session *s);
TALLY_API int tally_local_size(const tally_session *s);	/* processes of the job on the machine */
TALLY_API int tally_machines(const tally_session *s);	/* of the job */
TALLY_API int tally_round_timeout_ms(const tally_session *s);	/* of its tally_options */

/* Changes how long to wait for others: from here on tally_declare(), tally_undeclare() and a
 * tally_barrier() without a limit of its own do so long; 0: as long as tally_options said.
 * EINVAL: less than 0. */
TALLY_API int tally_set_timeout_ms(tally_session *s, int timeout_ms);

/*
 * With TALLY_ON_LOSS_SHRINK a job goes on without the ranks that it loses.  All others
 * keep their numbers, and tally_world_size() is as before; these tell who is left.  A round
 * of a tensor that some survivor's machine had whole by then finishes for all with the
 * lost rank's part; every other is summed again, whole, among the survivors, and
 * TALLY_MEAN divides by their number.  All survivors have the same bits.  Declarations
 * and barriers wait for survivors only.  A broadcast whose root is lost before anybody has
 * its data ends the job (ESHUTDOWN).  Such a job's inputs are not written to before the
 * round is over, so that in == out costs a copy there.
 */
TALLY_API int tally_live_ranks(const tally_session *s);		/* how many; world size at first */
/* Says whether a rank takes part: 1 or 0; EINVAL, which is negative: there is no such rank. */
TALLY_API int tally_rank_is_live(const tally_session *s, int rank);

/* Memory in the arena, page aligned, zeroed: inputs there are never copied.
 * Freed by tally_free or tally_detach.  tally_alloc asks the agent for more when the arena has
 * no room: ENOMEM, EQUOTA: neither has the agent; ETIMEDOUT: no answer within the session's
 * timeout_ms and 2 s; EINVAL: more than 1 TiB.  tally_free: EBUSY while a round reads it, or is
 * yet to write its result there; EINVAL: not from tally_alloc(); NULL is fine. */
TALLY_API int tally_alloc(tally_session *s, size_t bytes, void **p);
TALLY_API int tally_free(tally_session *s, void *p);

/*
 * Memory of a device (a GPU) as a part of the arena, for inputs: fd is a dma-buf that its driver
 * has exported, of `bytes` bytes at least, and stays the caller's; *p is where the CPU sees it.
 * A round whose in lies there is read from the device without a copy: by RDMA NICs directly
 * (GPUDirect), else by the CPU through *p, which is right but may be slow.  What the device has
 * written must be visible to others when the round starts (synchronize its stream; where the
 * driver wants it, DMA_BUF_IOCTL_SYNC around the round).  Lent until tally_detach().
 * EINVAL: no dma-buf, too short, or one that its driver does not let the CPU map; EAUTH: the
 * agent takes none (tally-agent --dma-buf); EQUOTA; ETIMEDOUT as of tally_alloc().
 */
TALLY_API int tally_import(tally_session *s, int fd, size_t bytes, void **p);

/*
 * Declares n tensors in one round trip, out[i] for desc[i]; returns when all
 * ranks have declared them.  Handles are the session's: tally_undeclare() and tally_detach()
 * end them.  All or nothing.  EMISMATCH names the tensor and
 * both sides, on every rank; ETIMEDOUT names who has not declared, and the call
 * may be made again; EEXIST: this process has a tensor of that name; EBUSY: one of that name is
 * still being given back; EQUOTA: no room in a server's memory (--memory) or the machine's, or
 * more than 65536 tensors, or 2097152 chunks, or 1048576 of one tensor; EINVAL: a name, dtype,
 * shape or size that cannot be.
 */
TALLY_API int tally_declare(tally_session *s, const tally_tensor_desc *desc, uint32_t n,
			    tally_tensor **out);

/*
 * Gives n tensors back, as all ranks must; returns when all have.  Handles die: t[i] is NULL
 * then, also of those that were through before an error.  EBUSY: a round of one is in flight
 * (none is given back); ETIMEDOUT names who has not undeclared, and the call may be made
 * again; EINVAL: a handle that is not of this session, or twice there.
 */
TALLY_API int tally_undeclare(tally_session *s, tally_tensor **t, uint32_t n);

/*
 * Starts a round of t: in (count elements) is summed over all ranks, out gets
 * the result.  in and out may be the same, or out NULL: then tally_result() shows
 * it without a copy.  Memory from tally_alloc() is read and written in place:
 * in must not change, and out is neither the old nor the new value, until the
 * ticket is done (after an error out holds nothing of use).  Other memory is
 * copied: in before the call returns, out by tally_wait() and tally_test().
 * It waits for nobody, with one exception: the first time that in is other memory t gets a
 * block of the arena to copy to, which it keeps; that has the waits and errors of tally_alloc().
 * EEXIST: a round of t is in flight, or is done and its ticket has not been used up
 * (tally_wait(), tally_test()); EAGAIN: the ring is full.  After an error no round has begun.
 */
TALLY_API int tally_push_pull(tally_session *s, tally_tensor *t, const void *in, void *out,
			      const tally_push_pull_options *opt, tally_ticket *k);

/* Everybody gets root's data; in is used at the root only and may equal out.  Waits and errors
 * as of tally_push_pull(); EINVAL: no such root. */
TALLY_API int tally_broadcast(tally_session *s, tally_tensor *t, const void *in, void *out,
			      int root, tally_ticket *k);

/*
 * Waits for k (done: its out is filled, the ticket is used up).  timeout_ms < 0:
 * the session's limit (round_timeout_ms).  ETIMEDOUT: the ticket stays valid, and the text
 * names who is missing once the round is a second old (the agent looks every half of one, for
 * rounds that are older than that).  EINVAL: it is used up, or no ticket.  Any other error: the
 * round is void and the ticket used up.
 */
TALLY_API int tally_wait(tally_session *s, tally_ticket k, int timeout_ms);

/*
 * Says whether k is done.  0: it is, as of tally_wait(); EAGAIN: not yet; others as of that.  It
 * and tally_poll() do not wait, with one exception: after the agent was started again they hand
 * back to it what this process has.  That takes at most 5 s in all; an agent that does not take it
 * costs 0.25 s, at most once a second.
 */
TALLY_API int tally_test(tally_session *s, tally_ticket k);

/*
 * A descriptor that becomes readable when tickets complete; after it did, call
 * tally_poll(), which takes the completions in (and says how many), then
 * tally_test() the tickets.  tally_fd() opens it, or returns EQUOTA (no descriptor is left) or
 * why the session is over; the session owns it.  It stays readable when the session is over:
 * tally_poll() says why.
 */
TALLY_API int tally_fd(tally_session *s);
TALLY_API int tally_poll(tally_session *s);

/*
 * The last finished round's result, read-only, count elements; valid until this
 * process submits the next but one round of t (or undeclares it).  NULL before
 * the first, and after one on a GPU.
 */
TALLY_API const void *tally_result(const tally_session *s, const tally_tensor *t);

/* ---- timeline (docs/TIMELINE.md) ---- */

/* Kinds of spans in a timeline: work of the framework, or a copy. */
typedef enum { TALLY_SPAN_FRAMEWORK = 1, TALLY_SPAN_COPY = 2 } tally_span_kind;

/*
 * Adds a span of the caller's own to the timeline.
 *
 * With TALLY_TIMELINE=FILE in the environment a session writes what it does to FILE, as a
 * Chrome trace: rounds, copies, and what the agent tells of pushes and sums.  A %r in FILE
 * is the rank; without it, in a job of several, .RANK is appended.  EINVAL, EIO, ... of
 * tally_attach(): FILE cannot be written.  Of 1 GiB on, and from a full disk on, events
 * are left out.
 *
 * The span lasts from begin to end, nanoseconds of CLOCK_BOOTTIME, both past.  Without a
 * timeline the call does nothing.  EINVAL: no such kind,
 * no name, or an end before the beginning or to come.
 */
TALLY_API int tally_span(tally_session *s, tally_span_kind kind, const char *name,
			 uint64_t begin_ns, uint64_t end_ns);

/* ---- tensors on GPUs (docs/GPU.md) ---- */

/* Which GPU a session gets, and how sums of GPUs are made. */
typedef struct {
	int device;		/* which of the GPUs that this process sees */
	int exact;		/* 1: add in rank order, not in NCCL's: bits as from host memory */
	const char *plugin;	/* NULL: libtally-cuda.so.0, where the linker finds libraries */
} tally_gpu_options;

/*
 * Gives the session a GPU, until it is detached; all ranks of the machine call it, with
 * the same `exact`.  opt NULL: GPU number tally_local_rank().  Starts a thread, which looks after
 * what waits on the GPU.  ENOENT: no plugin, no such GPU, or one that the agent does not
 * see; EINVAL: the job has TALLY_ON_LOSS_SHRINK; ETIMEDOUT names who has not called it;
 * EMISMATCH: another one's `exact` differs; EEXIST: the session has a GPU; EVERSION: a plugin
 * of another version, or too old a driver; EIO: CUDA or NCCL failed.  After an error there is
 * no GPU.
 */
TALLY_API int tally_gpu_open(tally_session *s, const tally_gpu_options *opt);

/*
 * As tally_push_pull(), with in and out on the GPU: the same, or memory apart.  Begins
 * when `stream` (a cudaStream_t, NULL: the default one) has done what it holds now; nobody
 * else may use in or out until the round is done.  All ranks of the job start rounds on
 * GPUs in the same order; EMISMATCH says who does not.  EINVAL: no GPU, in and out
 * overlap, or the stream is captured into a CUDA graph; EIO: the GPU failed, or a round on it
 * took more than round_timeout_ms, which ends the session.  While the agent is gone it waits for
 * it, round_timeout_ms at most (ETIMEDOUT).
 * tally_fd() does not tell of these rounds: wait with tally_wait() or tally_gpu_wait().
 */
TALLY_API int tally_gpu_push_pull(tally_session *s, tally_tensor *t, const void *in, void *out,
				  const tally_push_pull_options *opt, void *stream,
				  tally_ticket *k);

/*
 * Has `stream` wait for k, returns at once, and uses the ticket up: what `stream` gets from
 * now on runs when the result is in out.  If the job fails, the stream goes on, out holds
 * nothing of use, and the next call says why.  A round from host memory it waits for here, as
 * tally_wait(s, k, -1).  EINVAL: the stream is captured; the ticket is not used up.
 */
TALLY_API int tally_gpu_wait(tally_session *s, tally_ticket k, void *stream);

/*
 * Returns when all ranks have called it; ETIMEDOUT names who has not, timeout_ms later (0 or
 * less: the session's timeout_ms).  EMISMATCH: others call tally_grow().  After an error the
 * next call is for the same barrier.
 * ETIMEDOUT without names comes 2 s after that: the agent, or the scheduler, does not answer.
 * So it does from tally_attach(), tally_declare(), tally_undeclare() and tally_grow().
 */
TALLY_API int tally_barrier(tally_session *s, int timeout_ms);

/*
 * A barrier at which lost ranks come back, in a job with TALLY_ON_LOSS_SHRINK; the
 * place for it is between two steps, as where a checkpoint would be taken.  A process that
 * attaches as a rank that was lost (same job, world size and on_loss, at an agent with the name
 * of the one where it was) waits in tally_attach() until all others call this; then both
 * return.  Sums have its part again from the next round of each tensor on, as if it had always
 * been there, and TALLY_MEAN divides by the new number.  It declares the same tensors
 * (EMISMATCH for it alone if they differ), and then the application gives it what it lacks:
 * tally_broadcast() of the parameters from a survivor, in the same order on all ranks.
 *
 * Returns how many came in, the same number on all ranks; 0: nobody was waiting.  Those who
 * came in (tally_is_late()) do not call it for the step at which they did; one that detaches
 * before it has declared a tensor counts as lost again.  EBUSY names a tensor whose round
 * has not been waited for; EMISMATCH: others call tally_barrier(); EINVAL: a job without
 * TALLY_ON_LOSS_SHRINK.  timeout_ms, and after an error, as with tally_barrier().
 */
TALLY_API int tally_grow(tally_session *s, int timeout_ms);

/* Says whether this process has come in by the others' tally_grow().  1: it has, and lacks what
 * they have; 0: it was there first. */
TALLY_API int tally_is_late(const tally_session *s);

/*
 * Texts of errors, and facts about the library. tally_error_text(): of the last error of this
 * session ("" if none); valid until the next call.
 */
TALLY_API const char *tally_error_text(const tally_session *s);
TALLY_API const char *tally_error_name(int code);	/* "EMISMATCH" */
TALLY_API const char *tally_error_help(int code);	/* one sentence */
TALLY_API const char *tally_version(void);		/* of the library that runs: "0.1.0" */
TALLY_API size_t tally_dtype_size(tally_dtype d);	/* bytes; 0: no such type */

#ifdef __cplusplus
}
#endif
#endif
