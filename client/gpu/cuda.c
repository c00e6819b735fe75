// SPDX-License-Identifier: Apache-2.0
/*
 * cuda.c - libtally-cuda: lanes are CUDA streams, groups are NCCL communicators.
 *
 * A group has two communicators, one for REDUCE and one for SPREAD, so that results come
 * back while later runs are still being added up.  They are non-blocking: a call that
 * NCCL cannot finish at once is asked after until it has, and give_up() ends that, too.
 *
 * The words that a lane waits for are host memory that is pinned and mapped; the wait is
 * the driver's cuStreamWaitValue32, found at run time, as libcuda comes with the driver
 * and not with the toolkit.
 *
 * ncclCommAbort() frees a communicator while another thread may be using it, so every
 * call on one is made under a lock, and none after the abort.  It waits until the GPU is idle,
 * and so for the other communicator's kernels, too: each is aborted by a thread of its own.
 */
#include "client/gpu/plugin.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/clock.h"

#define PLUGIN_API	__attribute__((visibility("default")))
#define WAIT_GEQ	0u		/* CU_STREAM_WAIT_VALUE_GEQ */
#define NAP_NS		20000
#define LEAVE_MS	5000u
#define PROBE_BYTES	(32u << 20)
#define PROBE_COPIES	4u		/* that are measured together */
#define PROBE_TURNS	3u
#define WARM_BYTES	(16u * LOCAL_RANKS_MAX)	/* what each gives, and one result */

enum { COMM_REDUCE, COMM_SPREAD, COMMS };

static_assert(COMMS * sizeof(ncclUniqueId) <= GPU_PLUGIN_IDS * sizeof(uint64_t), "ids fit");

typedef int wait_value_fn(cudaStream_t stream, unsigned long long at, uint32_t value,
			  unsigned flags);

struct gpu {
	int device;
	cudaStream_t lane[GPU_LANES];
	wait_value_fn *wait_value;
	pthread_mutex_t lock;		/* of comm */
	ncclComm_t comm[COMMS];		/* NULL: none, or aborted */
	struct ending {			/* of each that was aborted; under it, too */
		ncclComm_t comm;
		int device;
		pthread_t thread;
		bool has_thread;
	} ending[COMMS];
	_Atomic bool aborted;
	void *scratch;			/* owned: on the GPU */
};

struct gpu_event {
	cudaEvent_t event;
};

/* ---- errors ---- */

static int cuda_error(cudaError_t rc, const char *what, struct err *e)
{
	int code = rc == cudaErrorMemoryAllocation ? TALLY_ENOMEM : TALLY_EIO;

	(void)cudaGetLastError();	/* not the user's to find */
	return err_set(e, code, "CUDA: %s: %s", what, cudaGetErrorString(rc));
}

#define CUDA(call, e) do { \
		cudaError_t rc_ = (call); \
		if (rc_ != cudaSuccess) \
			return cuda_error(rc_, #call, e); \
	} while (0)

static int nccl_error(ncclResult_t rc, struct err *e)
{
	return err_set(e, TALLY_EIO, "NCCL: %s: %.300s", ncclGetErrorString(rc),
		       ncclGetLastError(NULL));
}

/* Sleeps for a moment. The kernel may take a few times as long, so this is no measure of time. */
static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

/* ---- queries ---- */

/* Where another thread captures a graph, a query in the usual mode fails, and spoils the graph. */
static cudaError_t query(cudaStream_t lane)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t rc;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	rc = cudaStreamQuery(lane);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return rc;
}

static cudaError_t query_event(cudaEvent_t event)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t rc;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	rc = cudaEventQuery(event);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return rc;
}

/* ---- opening, closing ---- */

static int find_wait_value(struct gpu *g, struct err *e)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *f = driver ? dlsym(driver, "cuStreamWaitValue32_v2") : NULL;

	if (driver && !f)
		f = dlsym(driver, "cuStreamWaitValue32");
	if (!f)
		return err_set(e, TALLY_EVERSION, "the driver has no cuStreamWaitValue32: %.200s",
			       driver ? "too old" : dlerror());
	g->wait_value = (wait_value_fn *)f;
	return 0;
}

static int set_up(struct gpu *g, char *name, struct err *e)
{
	int count = 0;
	cudaError_t rc = cudaGetDeviceCount(&count);

	if (rc != cudaSuccess) {
		(void)cudaGetLastError();
		return err_set(e, TALLY_ENOENT, "this process sees no GPU: CUDA: %s; nvidia-smi "
			       "and CUDA_VISIBLE_DEVICES tell why", cudaGetErrorString(rc));
	}
	if (g->device < 0 || g->device >= count)
		return err_set(e, TALLY_ENOENT, "no GPU %d: this process sees %d of them",
			       g->device, count);
	CUDA(cudaSetDevice(g->device), e);
	CUDA(cudaDeviceGetPCIBusId(name, GPU_NAME_MAX + 1, g->device), e);
	for (int i = 0; i < GPU_LANES; i++)
		CUDA(cudaStreamCreateWithFlags(&g->lane[i], cudaStreamNonBlocking), e);
	return find_wait_value(g, e);
}

static void cuda_close(struct gpu *g);
static int finish(struct gpu *g, int comm, ncclResult_t rc, uint32_t timeout_ms, struct err *e);

static int cuda_open(int device, struct gpu **out, char *name, struct err *e)
{
	struct gpu *g = calloc(1, sizeof(*g));
	int rc;

	if (!g)
		return err_set(e, TALLY_ENOMEM, "no memory for a GPU");
	g->device = device;
	pthread_mutex_init(&g->lock, NULL);
	rc = set_up(g, name, e);
	if (rc)
		cuda_close(g);
	else
		*out = g;
	return rc;
}

/* A thread begins on device 0, where NCCL would leave a context. */
static void *do_abort(void *arg)
{
	struct ending *e = arg;

	(void)cudaSetDevice(e->device);
	(void)ncclCommAbort(e->comm);
	return NULL;
}

static void cuda_give_up(struct gpu *g)
{
	struct ending *here[COMMS];
	uint32_t n = 0;

	g->aborted = true;
	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < COMMS; i++) {
		struct ending *e = &g->ending[i];

		if (!g->comm[i])
			continue;
		*e = (struct ending){ .comm = g->comm[i], .device = g->device };
		e->has_thread = !pthread_create(&e->thread, NULL, do_abort, e);
		if (!e->has_thread)
			here[n++] = e;
		g->comm[i] = NULL;
	}
	pthread_mutex_unlock(&g->lock);
	while (n)
		(void)do_abort(here[--n]);
}

static void aborted(struct gpu *g)
{
	for (int i = 0; i < COMMS; i++)
		if (g->ending[i].has_thread)
			(void)pthread_join(g->ending[i].thread, NULL);
	memset(g->ending, 0, sizeof(g->ending));
}

static void cuda_drain(struct gpu *g)
{
	aborted(g);
	(void)cudaSetDevice(g->device);
	for (int i = 0; i < GPU_LANES; i++)
		(void)cudaStreamSynchronize(g->lane[i]);
}

/* Together with the other members: to them, one that merely goes is an error. */
static void leave(struct gpu *g, int comm)
{
	ncclResult_t rc;
	struct err e;

	if (!g->comm[comm])
		return;
	rc = ncclCommFinalize(g->comm[comm]);
	if (finish(g, comm, rc, LEAVE_MS, &e))
		return;
	(void)ncclCommDestroy(g->comm[comm]);
	g->comm[comm] = NULL;
}

static void cuda_close(struct gpu *g)
{
	for (int i = 0; i < COMMS; i++)
		leave(g, i);
	cuda_give_up(g);		/* what is left: others have not come in time */
	aborted(g);
	for (int i = 0; i < GPU_LANES; i++)
		if (g->lane[i])
			(void)cudaStreamDestroy(g->lane[i]);
	if (g->scratch)			/* or it makes a context */
		(void)cudaFree(g->scratch);
	(void)cudaGetLastError();
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* ---- measuring ---- */

struct probe {
	enum gpu_way way;
	struct gpu *g, *peer;
	void *near, *far;		/* owned: on g; on peer, or pinned */
	cudaEvent_t begin, end;		/* owned */
};

static int probe_init(struct probe *p, struct err *e)
{
	int direct;

	if (p->way == GPU_TO_GPU) {
		CUDA(cudaSetDevice(p->peer->device), e);
		CUDA(cudaMalloc(&p->far, PROBE_BYTES), e);
	} else {
		CUDA(cudaMallocHost(&p->far, PROBE_BYTES), e);
	}
	CUDA(cudaSetDevice(p->g->device), e);
	CUDA(cudaMalloc(&p->near, PROBE_BYTES), e);
	CUDA(cudaEventCreateWithFlags(&p->begin, 0), e);
	CUDA(cudaEventCreateWithFlags(&p->end, 0), e);
	if (p->way != GPU_TO_GPU)
		return 0;
	CUDA(cudaDeviceCanAccessPeer(&direct, p->g->device, p->peer->device), e);
	if (!direct)
		return err_set(e, TALLY_EIO, "CUDA: copies to GPU %d go by host memory",
			       p->peer->device);
	/* it may be so already */
	if (cudaDeviceEnablePeerAccess(p->peer->device, 0) != cudaSuccess)
		(void)cudaGetLastError();
	return 0;
}

static void probe_fini(struct probe *p)
{
	if (p->end)
		(void)cudaEventDestroy(p->end);
	if (p->begin)
		(void)cudaEventDestroy(p->begin);
	if (p->near)
		(void)cudaFree(p->near);
	if (p->far && p->way == GPU_TO_GPU)
		(void)cudaFree(p->far);
	else if (p->far)
		(void)cudaFreeHost(p->far);
	(void)cudaGetLastError();
}

static cudaError_t probe_copy(const struct probe *p)
{
	cudaStream_t lane = p->g->lane[GPU_OUT];

	if (p->way == GPU_TO_GPU)
		return cudaMemcpyPeerAsync(p->far, p->peer->device, p->near, p->g->device,
					   PROBE_BYTES, lane);
	if (p->way == GPU_TO_HOST)
		return cudaMemcpyAsync(p->far, p->near, PROBE_BYTES, cudaMemcpyDeviceToHost, lane);
	return cudaMemcpyAsync(p->near, p->far, PROBE_BYTES, cudaMemcpyHostToDevice, lane);
}

/* The best of some turns, behind a copy that finds the link asleep. */
static int probe_run(const struct probe *p, float *ms, struct err *e)
{
	float now;

	*ms = 0;
	CUDA(probe_copy(p), e);
	for (uint32_t turn = 0; turn < PROBE_TURNS; turn++) {
		CUDA(cudaEventRecord(p->begin, p->g->lane[GPU_OUT]), e);
		for (uint32_t i = 0; i < PROBE_COPIES; i++)
			CUDA(probe_copy(p), e);
		CUDA(cudaEventRecord(p->end, p->g->lane[GPU_OUT]), e);
		CUDA(cudaStreamSynchronize(p->g->lane[GPU_OUT]), e);
		CUDA(cudaEventElapsedTime(&now, p->begin, p->end), e);
		*ms = turn && *ms < now ? *ms : now;
	}
	return 0;
}

static int cuda_measure(struct gpu *g, enum gpu_way way, struct gpu *peer, uint64_t *bytes_per_s,
			struct err *e)
{
	struct probe p = { .way = way, .g = g, .peer = peer };
	int rc = probe_init(&p, e);
	float ms = 0;

	rc = rc ? rc : probe_run(&p, &ms, e);
	probe_fini(&p);
	if (!rc && ms <= 0)
		rc = err_set(e, TALLY_EIO, "CUDA: copies that take no time");
	if (!rc)
		*bytes_per_s = (uint64_t)((double)PROBE_BYTES * PROBE_COPIES * 1e3 / (double)ms);
	return rc;
}

/* ---- groups ---- */

static int cuda_new_id(struct gpu *g, uint64_t ids[GPU_PLUGIN_IDS], struct err *e)
{
	ncclUniqueId id;
	ncclResult_t rc;

	(void)g;
	memset(ids, 0, GPU_PLUGIN_IDS * sizeof(*ids));
	for (int i = 0; i < COMMS; i++) {
		rc = ncclGetUniqueId(&id);
		if (rc != ncclSuccess)
			return nccl_error(rc, e);
		memcpy((char *)ids + (size_t)i * sizeof(id), &id, sizeof(id));
	}
	return 0;
}

/* The communicator's state; ncclInProgress: not done yet. */
static ncclResult_t state_of(struct gpu *g, int comm)
{
	ncclResult_t state = ncclInternalError, rc = ncclInternalError;

	pthread_mutex_lock(&g->lock);
	if (g->comm[comm])
		rc = ncclCommGetAsyncError(g->comm[comm], &state);
	pthread_mutex_unlock(&g->lock);
	return rc == ncclSuccess ? state : rc;
}

static int too_late(uint32_t timeout_ms, struct err *e)
{
	return err_set(e, TALLY_ETIMEDOUT, "NCCL: the group did not come about or does not go on, "
		       "after %u ms", timeout_ms);
}

static int finish(struct gpu *g, int comm, ncclResult_t rc, uint32_t timeout_ms, struct err *e)
{
	mono_t deadline = lt_now() + mono_ms(timeout_ms);

	while (rc == ncclInProgress && !g->aborted) {
		rc = state_of(g, comm);
		if (rc != ncclInProgress)
			break;
		if (lt_now() >= deadline)
			return too_late(timeout_ms, e);
		nap();
	}
	if (rc == ncclSuccess)
		return 0;
	if (g->aborted)
		return err_set(e, TALLY_ESHUTDOWN, "the group of GPUs was given up");
	return nccl_error(rc, e);
}

static ncclDataType_t nccl_type(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_F32:
		return ncclFloat32;
	case DTYPE_F64:
		return ncclFloat64;
	case DTYPE_F16:
		return ncclFloat16;
	case DTYPE_BF16:
		return ncclBfloat16;
	case DTYPE_I8:
		return ncclInt8;
	case DTYPE_U8:
		return ncclUint8;
	case DTYPE_I32:
		return ncclInt32;
	case DTYPE_I64:
		return ncclInt64;
	case DTYPE_NONE:
	case DTYPE_END:
		break;
	}
	ASSERT(!"a type that no tensor has");
	return ncclInt8;
}

/* Several calls in one: p[i] by `one`; all of it under the lock, as the abort wants it. */
typedef ncclResult_t one_fn(struct gpu *g, const struct gpu_part *p, ncclDataType_t type);

static ncclResult_t all_of(struct gpu *g, int comm, one_fn *one, const struct gpu_part *p,
			   uint32_t n, ncclDataType_t type)
{
	ncclResult_t rc = ncclInternalError, end;

	pthread_mutex_lock(&g->lock);
	if (g->comm[comm]) {
		rc = ncclGroupStart();
		for (uint32_t i = 0; i < n && (rc == ncclSuccess || rc == ncclInProgress); i++)
			rc = one(g, &p[i], type);
		end = ncclGroupEnd();
		rc = rc == ncclSuccess || rc == ncclInProgress ? end : rc;
	}
	pthread_mutex_unlock(&g->lock);
	return rc;
}

static int put(struct gpu *g, int comm, one_fn *one, const struct gpu_part *p, uint32_t n,
	       enum dtype dtype, uint32_t timeout_ms, struct err *e)
{
	CUDA(cudaSetDevice(g->device), e);
	return finish(g, comm, all_of(g, comm, one, p, n, nccl_type(dtype)), timeout_ms, e);
}

static ncclResult_t reduce_one(struct gpu *g, const struct gpu_part *p, ncclDataType_t type)
{
	return ncclReduce(p->in, p->out, p->count, type, ncclSum, (int)p->root,
			  g->comm[COMM_REDUCE], g->lane[GPU_REDUCE]);
}

static ncclResult_t broadcast_one(struct gpu *g, const struct gpu_part *p, ncclDataType_t type)
{
	return ncclBroadcast(p->in, p->out, p->count, type, (int)p->root, g->comm[COMM_SPREAD],
			     g->lane[GPU_SPREAD]);
}

static ncclResult_t scatter_one(struct gpu *g, const struct gpu_part *p, ncclDataType_t type)
{
	return ncclReduceScatter(p->in, p->out, p->count, type, ncclSum, g->comm[COMM_REDUCE],
				 g->lane[GPU_REDUCE]);
}

static ncclResult_t gather_one(struct gpu *g, const struct gpu_part *p, ncclDataType_t type)
{
	return ncclAllGather(p->in, p->out, p->count, type, g->comm[COMM_SPREAD],
			     g->lane[GPU_SPREAD]);
}

/* ---- the group ---- */

/* Until what is on the lane has run. */
static int await_lane(struct gpu *g, enum gpu_lane lane, int comm, uint32_t timeout_ms,
		      struct err *e)
{
	mono_t deadline = lt_now() + mono_ms(timeout_ms);
	cudaError_t rc;

	while ((rc = query(g->lane[lane])) == cudaErrorNotReady) {
		ncclResult_t state = state_of(g, comm);

		if (g->aborted || (state != ncclSuccess && state != ncclInProgress))
			return finish(g, comm, g->aborted ? ncclInProgress : state, 0, e);
		if (lt_now() >= deadline)
			return too_late(timeout_ms, e);
		nap();
	}
	(void)cudaGetLastError();
	return rc == cudaSuccess ? 0 : cuda_error(rc, "a lane", e);
}

/*
 * A kernel with a larger stack than any before has the driver make all stacks anew, and its launch
 * waits until nothing is on the GPU, the waits for results neither: these may need what this
 * process does next.  So each kernel that rounds use runs once before there are any.
 */
static int warm_up(struct gpu *g, uint32_t timeout_ms, struct err *e)
{
	struct gpu_part p = { .count = 1 }, two[2];
	int rc = 0;

	CUDA(cudaMalloc(&g->scratch, WARM_BYTES), e);
	p.in = g->scratch;
	p.out = (uint8_t *)g->scratch + WARM_BYTES / 2;
	for (enum dtype d = DTYPE_NONE + 1; d < DTYPE_END && !rc; d++) {
		rc = put(g, COMM_REDUCE, reduce_one, &p, 1, d, timeout_ms, e);
		rc = rc ? rc : put(g, COMM_REDUCE, scatter_one, &p, 1, d, timeout_ms, e);
	}
	two[0] = two[1] = p;
	two[1].root = 1;
	two[1].out = (uint8_t *)p.out + 1;
	/* what moves bytes is the same for all types; from several roots it may be another one */
	rc = rc ? rc : put(g, COMM_SPREAD, broadcast_one, &p, 1, DTYPE_U8, timeout_ms, e);
	rc = rc ? rc : put(g, COMM_SPREAD, broadcast_one, two, 2, DTYPE_U8, timeout_ms, e);
	rc = rc ? rc : put(g, COMM_SPREAD, gather_one, &p, 1, DTYPE_U8, timeout_ms, e);
	rc = rc ? rc : await_lane(g, GPU_REDUCE, COMM_REDUCE, timeout_ms, e);
	return rc ? rc : await_lane(g, GPU_SPREAD, COMM_SPREAD, timeout_ms, e);
}

static int cuda_join(struct gpu *g, const uint64_t ids[GPU_PLUGIN_IDS], uint32_t me,
		     uint32_t members, uint32_t timeout_ms, struct err *e)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;
	ncclResult_t nrc;
	int rc = 0;

	CUDA(cudaSetDevice(g->device), e);
	config.blocking = 0;
	for (int i = 0; i < COMMS && !rc; i++) {
		memcpy(&id, (const char *)ids + (size_t)i * sizeof(id), sizeof(id));
		pthread_mutex_lock(&g->lock);
		nrc = ncclCommInitRankConfig(&g->comm[i], (int)members, id, (int)me, &config);
		pthread_mutex_unlock(&g->lock);
		rc = finish(g, i, nrc, timeout_ms, e);
	}
	rc = rc ? rc : warm_up(g, timeout_ms, e);
	if (rc)
		cuda_give_up(g);
	return rc;
}

static int cuda_reduce(struct gpu *g, const struct gpu_part *p, uint32_t n, enum dtype dtype,
		       struct err *e)
{
	return put(g, COMM_REDUCE, reduce_one, p, n, dtype, WAIT_TIMEOUT_MS, e);
}

static int cuda_broadcast(struct gpu *g, const struct gpu_part *p, uint32_t n,
			  enum dtype dtype, struct err *e)
{
	return put(g, COMM_SPREAD, broadcast_one, p, n, dtype, WAIT_TIMEOUT_MS, e);
}

static int cuda_reduce_scatter(struct gpu *g, const void *in, void *out, size_t count,
			       enum dtype dtype, struct err *e)
{
	const struct gpu_part p = { .in = in, .out = out, .count = count };

	return put(g, COMM_REDUCE, scatter_one, &p, 1, dtype, WAIT_TIMEOUT_MS, e);
}

static int cuda_all_gather(struct gpu *g, const void *in, void *out, size_t count,
			   enum dtype dtype, struct err *e)
{
	const struct gpu_part p = { .in = in, .out = out, .count = count };

	return put(g, COMM_SPREAD, gather_one, &p, 1, dtype, WAIT_TIMEOUT_MS, e);
}

/* ---- memory, events, lanes ---- */

static int cuda_pin(struct gpu *g, void *p, size_t bytes, bool read_only, struct err *e)
{
	unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;

	flags |= read_only ? cudaHostRegisterReadOnly : 0;
	CUDA(cudaSetDevice(g->device), e);
	CUDA(cudaHostRegister(p, bytes, flags), e);
	return 0;
}

static void cuda_unpin(struct gpu *g, void *p)
{
	(void)g;
	(void)cudaHostUnregister(p);
	(void)cudaGetLastError();
}

static int cuda_event_new(struct gpu *g, struct gpu_event **out, struct err *e)
{
	struct gpu_event *ev = calloc(1, sizeof(*ev));
	cudaError_t rc;

	if (!ev)
		return err_set(e, TALLY_ENOMEM, "no memory for an event");
	rc = cudaSetDevice(g->device);
	if (rc == cudaSuccess)
		rc = cudaEventCreateWithFlags(&ev->event, cudaEventDisableTiming);
	if (rc != cudaSuccess) {
		free(ev);
		return cuda_error(rc, "an event", e);
	}
	*out = ev;
	return 0;
}

static void cuda_event_free(struct gpu *g, struct gpu_event *ev)
{
	(void)g;
	(void)cudaEventDestroy(ev->event);
	free(ev);
}

static int cuda_record(struct gpu *g, enum gpu_lane lane, struct gpu_event *ev, struct err *e)
{
	CUDA(cudaEventRecord(ev->event, g->lane[lane]), e);
	return 0;
}

static int cuda_wait(struct gpu *g, enum gpu_lane lane, struct gpu_event *ev, struct err *e)
{
	CUDA(cudaStreamWaitEvent(g->lane[lane], ev->event, 0), e);
	return 0;
}

static int cuda_done(struct gpu *g, struct gpu_event *ev, struct err *e)
{
	cudaError_t rc = query_event(ev->event);

	(void)g;
	if (rc == cudaErrorNotReady) {
		(void)cudaGetLastError();
		return TALLY_EAGAIN;
	}
	return rc == cudaSuccess ? 0 : cuda_error(rc, "what was on the lanes", e);
}

/*
 * Refuses a stream that is being captured: work that waits for it would be captured, too, and
 * the lanes would become part of a graph.
 */
static int not_captured(void *stream, struct err *e)
{
	enum cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
	cudaError_t rc = cudaStreamIsCapturing((cudaStream_t)stream, &is);

	if (rc == cudaErrorStreamCaptureImplicit)	/* the default one, which waits for it */
		(void)cudaGetLastError();
	else if (rc == cudaSuccess && is == cudaStreamCaptureStatusNone)
		return 0;
	else
		CUDA(rc, e);
	return err_set(e, TALLY_EINVAL, "the stream is being captured into a CUDA graph, and no "
		       "round can be part of one");
}

static int cuda_follow(struct gpu *g, enum gpu_lane lane, void *stream, struct gpu_event *ev,
		       struct err *e)
{
	int rc;

	CUDA(cudaSetDevice(g->device), e);
	rc = not_captured(stream, e);
	if (rc)
		return rc;
	CUDA(cudaEventRecord(ev->event, (cudaStream_t)stream), e);
	return cuda_wait(g, lane, ev, e);
}

static int cuda_lead(struct gpu *g, struct gpu_event *ev, void *stream, struct err *e)
{
	int rc;

	CUDA(cudaSetDevice(g->device), e);
	rc = not_captured(stream, e);
	if (rc)
		return rc;
	CUDA(cudaStreamWaitEvent((cudaStream_t)stream, ev->event, 0), e);
	return 0;
}

static int cuda_copy(struct gpu *g, enum gpu_lane lane, void *to, const void *from,
		     size_t bytes, struct err *e)
{
	CUDA(cudaMemcpyAsync(to, from, bytes, lane == GPU_OUT ? cudaMemcpyDeviceToHost :
			     cudaMemcpyHostToDevice, g->lane[lane]), e);
	return 0;
}

static int cuda_call(struct gpu *g, enum gpu_lane lane, void (*fn)(void *), void *arg,
		     struct err *e)
{
	CUDA(cudaLaunchHostFunc(g->lane[lane], fn, arg), e);
	return 0;
}

static int cuda_await(struct gpu *g, enum gpu_lane lane, _Atomic uint32_t *word,
		      uint32_t value, struct err *e)
{
	void *seen;
	int rc;

	CUDA(cudaHostGetDevicePointer(&seen, (void *)word, 0), e);
	rc = g->wait_value(g->lane[lane], (uintptr_t)seen, value, WAIT_GEQ);
	return rc ? err_set(e, TALLY_EIO, "CUDA: cuStreamWaitValue32: error %d", rc) : 0;
}

/* ---- trouble ---- */

static int cuda_failed(struct gpu *g, struct err *e)
{
	ncclResult_t state = ncclSuccess;
	cudaError_t rc;

	(void)cudaSetDevice(g->device);
	for (int i = 0; i < GPU_LANES; i++) {
		rc = query(g->lane[i]);
		if (rc != cudaSuccess && rc != cudaErrorNotReady)
			return cuda_error(rc, "a lane", e);
	}
	(void)cudaGetLastError();
	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < COMMS && state == ncclSuccess; i++)
		if (g->comm[i])
			(void)ncclCommGetAsyncError(g->comm[i], &state);
	pthread_mutex_unlock(&g->lock);
	return state == ncclSuccess || state == ncclInProgress ? 0 : nccl_error(state, e);
}

static const struct gpu_plugin plugin = {
	.version = GPU_PLUGIN_VERSION,
	.open = cuda_open,
	.drain = cuda_drain,
	.close = cuda_close,
	.measure = cuda_measure,
	.new_id = cuda_new_id,
	.join = cuda_join,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.event_new = cuda_event_new,
	.event_free = cuda_event_free,
	.record = cuda_record,
	.wait = cuda_wait,
	.done = cuda_done,
	.follow = cuda_follow,
	.lead = cuda_lead,
	.copy = cuda_copy,
	.call = cuda_call,
	.await = cuda_await,
	.reduce = cuda_reduce,
	.broadcast = cuda_broadcast,
	.reduce_scatter = cuda_reduce_scatter,
	.all_gather = cuda_all_gather,
	.failed = cuda_failed,
	.give_up = cuda_give_up,
};

PLUGIN_API const struct gpu_plugin *tally_gpu_plugin(void)
{
	return &plugin;
}
