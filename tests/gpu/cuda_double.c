// SPDX-License-Identifier: Apache-2.0
/* The CUDA of the tests: see double.h. */
#include "tests/gpu/double.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define DEVICES_MAX	16
#define RANGES_MAX	512

struct op {
	struct op *next;
	void (*fn)(void *);
	void *arg;		/* owned */
};

struct double_stream {
	struct double_stream *next;	/* in streams */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct op *first, **last;
	bool busy, stop, blocking;	/* blocking: the default stream waits for it */
	uint64_t rng;
};

/* One record of an event: what waits for it does not care for later ones. */
struct mark {
	_Atomic bool reached;
	_Atomic uint32_t users;		/* the event, and what is on streams */
	double at_ms;			/* when it was reached */
};

struct double_event {
	struct mark *last;		/* NULL: never recorded */
};

static struct range {
	const char *p;
	size_t bytes;
	bool read_only;
} range[RANGES_MAX];

static pthread_mutex_t range_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- devices ---- */

API cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

API const char *cudaGetErrorString(cudaError_t rc)
{
	static const char *const text[] = { "no error", "invalid value", "no memory", "not ready",
					    "no device", "no driver",
					    "not while a stream is captured",
					    "the default stream waits for one that is" };

	return text[rc];
}

static int names(char name[DEVICES_MAX][64])
{
	const char *list = getenv("DOUBLE_GPUS");
	char copy[1024], *at, *word;
	int n = 0;

	for (int i = 0; !list && i < DEVICES_MAX; i++)
		snprintf(name[i], 64, "g%d", i);
	if (!list)
		return DEVICES_MAX;
	snprintf(copy, sizeof(copy), "%s", list);
	for (word = strtok_r(copy, ",", &at); word && n < DEVICES_MAX;
	     word = strtok_r(NULL, ",", &at))
		snprintf(name[n++], 64, "%.63s", word);
	return n;
}

API cudaError_t cudaGetDeviceCount(int *count)
{
	char name[DEVICES_MAX][64];

	*count = names(name);
	if (*count == 1 && !strcmp(name[0], "no-driver"))
		return cudaErrorInsufficientDriver;
	return *count ? cudaSuccess : cudaErrorNoDevice;
}

static _Thread_local int current;	/* device */

API cudaError_t cudaSetDevice(int device)
{
	char name[DEVICES_MAX][64];

	if (device < 0 || device >= names(name))
		return cudaErrorInvalidValue;
	current = device;
	return cudaSuccess;
}

API cudaError_t cudaGetDevice(int *device)
{
	*device = current;
	return cudaSuccess;
}

API cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device)
{
	char name[DEVICES_MAX][64];

	if (device < 0 || device >= names(name))
		return cudaErrorInvalidValue;
	snprintf(id, (size_t)len, "%s", name[device]);
	return cudaSuccess;
}

/* ---- captures: of one stream at a time, and what must not happen during them ---- */

static _Atomic(cudaStream_t) captured;
static _Atomic bool spoiled;
static _Thread_local enum cudaStreamCaptureMode capture_mode;

static cudaError_t spoil(void)
{
	spoiled = true;
	return cudaErrorStreamCaptureUnsupported;
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	enum cudaStreamCaptureMode was = capture_mode;

	capture_mode = *mode;
	*mode = was;
	return cudaSuccess;
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	if (!s || captured || mode != cudaStreamCaptureModeGlobal)
		return cudaErrorInvalidValue;
	spoiled = false;
	captured = s;
	return cudaSuccess;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
	if (!s && captured && captured->blocking)
		return cudaErrorStreamCaptureImplicit;
	*status = s && s == captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
	*graph = NULL;
	if (s != captured)
		return cudaErrorInvalidValue;
	captured = NULL;
	return spoiled ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

/* ---- streams ---- */

void double_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

static struct double_stream *streams;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

bool double_idle(cudaStream_t but)
{
	bool idle = true;

	pthread_mutex_lock(&streams_lock);
	for (struct double_stream *s = streams; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		idle &= s == but || !s->first;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&streams_lock);
	return idle;
}

static void pause_sometimes(struct double_stream *s)
{
	s->rng = s->rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
	if (s->rng >> 61 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = (long)(s->rng >> 40 & 0x7ffff) }, NULL);
}

static void *run(void *arg)
{
	struct double_stream *s = arg;
	struct op *op;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (!s->first && !s->stop)
			pthread_cond_wait(&s->news, &s->lock);
		op = s->first;
		if (!op)
			break;
		s->busy = true;
		pthread_mutex_unlock(&s->lock);
		pause_sometimes(s);
		op->fn(op->arg);
		free(op->arg);
		pthread_mutex_lock(&s->lock);
		s->first = op->next;
		if (!s->first)
			s->last = &s->first;
		free(op);
		s->busy = false;
		pthread_cond_broadcast(&s->news);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	struct double_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return cudaErrorMemoryAllocation;
	s->blocking = !(flags & cudaStreamNonBlocking);
	s->last = &s->first;
	s->rng = (uintptr_t)s;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->news, NULL);
	if (pthread_create(&s->thread, NULL, run, s)) {
		free(s);
		return cudaErrorMemoryAllocation;
	}
	pthread_mutex_lock(&streams_lock);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&streams_lock);
	*out = s;
	return cudaSuccess;
}

API cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	struct double_stream **at = &streams;

	pthread_mutex_lock(&streams_lock);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	pthread_mutex_unlock(&streams_lock);
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->news);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->news);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return cudaSuccess;
}

/* The default stream: there from its first use on. */
static struct double_stream *default_stream;

static void make_default(void)
{
	(void)cudaStreamCreateWithFlags(&default_stream, 0);
}

static struct double_stream *real(cudaStream_t s)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (s)
		return s;
	pthread_once(&once, make_default);
	return default_stream;
}

cudaError_t double_put(cudaStream_t stream, void (*fn)(void *), void *arg)
{
	struct double_stream *s = real(stream);
	struct op *op;

	if (stream && stream == captured)
		return spoil();
	op = calloc(1, sizeof(*op));
	if (!op || !s)
		return cudaErrorMemoryAllocation;
	op->fn = fn;
	op->arg = arg;
	pthread_mutex_lock(&s->lock);
	*s->last = op;
	s->last = &op->next;
	pthread_cond_broadcast(&s->news);
	pthread_mutex_unlock(&s->lock);
	return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	struct double_stream *s = real(stream);

	pthread_mutex_lock(&s->lock);
	while (s->first)
		pthread_cond_wait(&s->news, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return cudaSuccess;
}

API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	struct double_stream *s = real(stream);
	bool empty;

	if (captured && capture_mode == cudaStreamCaptureModeGlobal)
		return spoil();
	pthread_mutex_lock(&s->lock);
	empty = !s->first;
	pthread_mutex_unlock(&s->lock);
	return empty ? cudaSuccess : cudaErrorNotReady;
}

/* ---- events ---- */

struct mark_op {
	struct mark *mark;
};

static void put_mark(struct mark *m)
{
	if (m && --m->users == 0)
		free(m);
}

static void reach(void *arg)
{
	const struct mark_op *o = arg;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	o->mark->at_ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
	o->mark->reached = true;
	put_mark(o->mark);
}

static void await_mark(void *arg)
{
	const struct mark_op *o = arg;

	while (!o->mark->reached)
		double_nap();
	put_mark(o->mark);
}

static cudaError_t put_on(cudaStream_t s, void (*fn)(void *), struct mark *mark)
{
	struct mark_op *o = calloc(1, sizeof(*o));

	if (!o)
		return cudaErrorMemoryAllocation;
	o->mark = mark;
	mark->users++;
	return double_put(s, fn, o);
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ev, unsigned flags)
{
	(void)flags;
	*ev = calloc(1, sizeof(**ev));
	return *ev ? cudaSuccess : cudaErrorMemoryAllocation;
}

API cudaError_t cudaEventDestroy(cudaEvent_t ev)
{
	put_mark(ev->last);
	free(ev);
	return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t ev, cudaStream_t s)
{
	struct mark *m = calloc(1, sizeof(*m));

	if (!m)
		return cudaErrorMemoryAllocation;
	m->users = 1;
	put_mark(ev->last);
	ev->last = m;
	return put_on(s, reach, m);
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t ev, unsigned flags)
{
	(void)flags;
	return ev->last ? put_on(s, await_mark, ev->last) : cudaSuccess;
}

API cudaError_t cudaEventQuery(cudaEvent_t ev)
{
	if (captured && capture_mode == cudaStreamCaptureModeGlobal)
		return spoil();
	return !ev->last || ev->last->reached ? cudaSuccess : cudaErrorNotReady;
}

API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	if (!from->last || !to->last)
		return cudaErrorInvalidValue;
	if (!from->last->reached || !to->last->reached)
		return cudaErrorNotReady;
	*ms = (float)(to->last->at_ms - from->last->at_ms);
	return cudaSuccess;
}

/* ---- memory ---- */

API cudaError_t cudaMalloc(void **p, size_t bytes)
{
	return cudaMallocManaged(p, bytes, 0);
}

API cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags)
{
	(void)flags;
	*p = malloc(bytes);
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

API cudaError_t cudaFree(void *p)
{
	free(p);
	return cudaSuccess;
}

static const struct range *range_of(const void *p, size_t bytes)
{
	for (int i = 0; i < RANGES_MAX; i++)
		if (range[i].p && (const char *)p >= range[i].p &&
		    (const char *)p + bytes <= range[i].p + range[i].bytes)
			return &range[i];
	return NULL;
}

static bool registered(const void *p, size_t bytes, bool writable)
{
	const struct range *r;
	bool yes;

	pthread_mutex_lock(&range_lock);
	r = range_of(p, bytes);
	yes = r && !(writable && r->read_only);
	pthread_mutex_unlock(&range_lock);
	return yes;
}

API cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	cudaError_t rc = cudaErrorMemoryAllocation;

	pthread_mutex_lock(&range_lock);
	if (range_of(p, bytes))
		rc = cudaErrorInvalidValue;	/* twice */
	if (flags & cudaHostRegisterReadOnly && getenv("DOUBLE_WRITABLE"))
		rc = cudaErrorInvalidValue;
	for (int i = 0; i < RANGES_MAX && rc == cudaErrorMemoryAllocation; i++) {
		if (range[i].p)
			continue;
		range[i] = (struct range){ p, bytes, flags & cudaHostRegisterReadOnly };
		rc = cudaSuccess;
	}
	pthread_mutex_unlock(&range_lock);
	return rc;
}

API cudaError_t cudaHostUnregister(void *p)
{
	cudaError_t rc = cudaErrorInvalidValue;

	pthread_mutex_lock(&range_lock);
	for (int i = 0; i < RANGES_MAX; i++) {
		if (range[i].p != p)
			continue;
		range[i].p = NULL;
		rc = cudaSuccess;
	}
	pthread_mutex_unlock(&range_lock);
	return rc;
}

API cudaError_t cudaMallocHost(void **p, size_t bytes)
{
	*p = malloc(bytes);
	return *p ? cudaHostRegister(*p, bytes, 0) : cudaErrorMemoryAllocation;
}

API cudaError_t cudaFreeHost(void *p)
{
	cudaError_t rc = cudaHostUnregister(p);

	free(p);
	return rc;
}

API cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	(void)flags;
	if (!registered(host, 1, true))
		return cudaErrorInvalidValue;
	*device = host;
	return cudaSuccess;
}

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static void do_copy(void *arg)
{
	const struct copy *c = arg;

	memcpy(c->to, c->from, c->bytes);
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
				enum cudaMemcpyKind kind, cudaStream_t s)
{
	bool out = kind == cudaMemcpyDeviceToHost, pinned = registered(out ? to : from, bytes, out);
	struct copy *c;

	if (out && !pinned)
		return cudaErrorInvalidValue;
	c = calloc(1, sizeof(*c) + (pinned ? 0 : bytes));
	if (!c)
		return cudaErrorMemoryAllocation;
	*c = (struct copy){ to, from, bytes };
	if (!pinned)			/* read at once, as a real one does where it is little */
		c->from = memcpy(c + 1, from, bytes);
	return double_put(s, do_copy, c);
}

API cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
				    size_t bytes, cudaStream_t s)
{
	struct copy *c = calloc(1, sizeof(*c));
	char name[DEVICES_MAX][64];

	if (!c || to_device >= names(name) || from_device >= names(name)) {
		free(c);
		return cudaErrorInvalidValue;
	}
	*c = (struct copy){ to, from, bytes };
	return double_put(s, do_copy, c);
}

API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = !getenv("DOUBLE_APART");
	return device == peer ? cudaErrorInvalidValue : cudaSuccess;
}

API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
	char name[DEVICES_MAX][64];

	return flags || peer >= names(name) ? cudaErrorInvalidValue : cudaSuccess;
}

/* ---- callbacks, words ---- */

struct callback {
	cudaHostFn_t fn;
	void *arg;
};

static void do_callback(void *arg)
{
	const struct callback *c = arg;

	c->fn(c->arg);
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
	struct callback *c = calloc(1, sizeof(*c));

	if (!c)
		return cudaErrorMemoryAllocation;
	*c = (struct callback){ fn, arg };
	return double_put(s, do_callback, c);
}

struct word {
	_Atomic uint32_t *at;
	uint32_t value;
};

static void await_word(void *arg)
{
	const struct word *w = arg;

	while ((int32_t)(atomic_load(w->at) - w->value) < 0)
		double_nap();
}

API int cuStreamWaitValue32_v2(cudaStream_t s, unsigned long long at, uint32_t value,
			       unsigned flags);

API int cuStreamWaitValue32_v2(cudaStream_t s, unsigned long long at, uint32_t value,
			       unsigned flags)
{
	struct word *w;

	if (flags || at % 4)
		return 1;
	w = calloc(1, sizeof(*w));
	if (!w)
		return 2;
	*w = (struct word){ (_Atomic uint32_t *)(uintptr_t)at, value };
	return double_put(s, await_word, w) == cudaSuccess ? 0 : 2;
}

/* ---- kernels: all of them take a while, and do nothing ---- */

API int cuModuleLoadData(void **module, const char *image);
API int cuModuleGetFunction(void **kernel, void *module, const char *name);
API int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned shared, cudaStream_t s, void **params,
		       void **extra);

API int cuModuleLoadData(void **module, const char *image)
{
	static char one;

	*module = &one;
	return strncmp(image, ".version ", 9) ? 1 : 0;
}

API int cuModuleGetFunction(void **kernel, void *module, const char *name)
{
	*kernel = module;
	return name ? 0 : 1;
}

static void take_a_while(void *arg)
{
	(void)arg;
	nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
}

API int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		       unsigned by, unsigned bz, unsigned shared, cudaStream_t s, void **params,
		       void **extra)
{
	if (!kernel || gx * gy * gz == 0 || bx * by * bz > 1024 || shared || !params || extra)
		return 1;
	return double_put(s, take_a_while, NULL) == cudaSuccess ? 0 : 2;
}
